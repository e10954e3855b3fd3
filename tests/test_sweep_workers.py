"""Workers of a sweep: how many there are changes no byte, and one that dies takes no point with
it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.studies.sweep.axes import Point
from simulator.studies.sweep.executors import SMALLEST, Bundle, Crew, InProcess, crew
from simulator.studies.sweep.store import reading

ROOT = Path(__file__).parent.parent
SWEEP = [sys.executable, "-c", "from simulator.cli.main import main; main()", "sweep"]
WORLD = """
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 10, draft_step_ms: 1}
acceptance: {rate: 0.7}
requests: {count: 4, prompt_tokens: 8, output_tokens: 1000}
"""
AXES = ["--axis", "strategy.gamma=1:6:6", "--axis", "seed=1:10:10"]
PATIENCE_S = 120
"""A machine that is shared may be slow; nothing is measured against this."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(WORLD)
    return tmp_path


def started(folder: Path, *arguments: object, workers: int = 2) -> subprocess.Popen[str]:
    """A sweep in a session of its own, so that its interruption is not ours."""
    command = [*SWEEP, "tiny.yaml", "--workers", str(workers), *map(str, arguments)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
        # ignored where tests run in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def table(folder: Path, name: str, *arguments: object, workers: int = 1) -> bytes:
    """What a whole sweep exports."""
    command = [
        "sweep",
        "tiny.yaml",
        "--workers",
        workers,
        "--store",
        f"{name}.sqlite",
        "--export",
        f"{name}.csv",
        *arguments,
    ]
    with contextlib.chdir(folder):
        found = CliRunner().invoke(main, [str(word) for word in command])
    assert found.exit_code == 0, found.output
    return (folder / f"{name}.csv").read_bytes()


def until(happened: Callable[[], object], why: str) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, why
        time.sleep(0.02)


def done(folder: Path, name: str) -> int:
    """Points that the store of a running sweep holds."""
    try:
        with reading(folder / f"{name}.sqlite") as store:
            return store.progress("simulation").done
    except BadInput:  # it is only being made
        return 0


def children(process: subprocess.Popen[str]) -> list[int]:
    """Workers of a sweep: the processes that its fork server has made."""
    return [
        worker
        for child in below(process.pid)
        if b"forkserver" in command(child)
        for worker in below(child)
    ]


def below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- one point that kills whoever evaluates it


def deadly(points: list[Point]) -> Bundle[int]:
    """Squares; point 13 does not come back."""
    if any(point.number == 13 for point in points):
        os.kill(os.getpid(), signal.SIGKILL)
    return Bundle([point.number**2 for point in points], 0.0)


def numbered(count: int) -> Iterator[Point]:
    return (Point(number, (), {}) for number in range(count))


def test_the_point_that_kills_its_worker_is_found_and_all_others_come_through() -> None:
    with crew(2) as hired:
        found = [
            pair
            for part in hired.results(deadly, numbered(40), 40, lambda point: -1)
            for pair in part
        ]
    assert {point.number: value for point, value in found} == {
        n: -1 if n == 13 else n**2 for n in range(40)
    }
    assert len(found) == 40


def test_bundles_get_smaller_towards_the_end() -> None:
    """Half a second of work is 500 points here, of which 4 bundles are under way; of what is left,
    each gets an eighth.
    """
    sizes: list[int] = []

    def work(points: list[Point]) -> Bundle[int]:
        sizes.append(len(points))
        return Bundle([0] * len(points), len(points) / 1_000)

    hired = Crew(InProcess, 2)
    assert (
        sum(len(part) for part in hired.results(work, numbered(40_000), 40_000, lambda point: 0))
        == 40_000
    )
    assert sizes[0] == 1
    assert max(sizes) == 500
    assert sizes[-2] == round(500 * SMALLEST)
    assert sizes[-1] <= sizes[-2]


def refusing(points: list[Point]) -> Bundle[int]:
    raise ValueError("not these")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_work_itself_is_raised_here(workers: int) -> None:
    with pytest.raises(ValueError, match="not these"), crew(workers) as hired:
        list(hired.results(refusing, numbered(3), 3, lambda point: 0))


@pytest.fixture
def thawed() -> Iterator[None]:
    """Nothing is frozen, as in a process that runs no tests."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_is_there_is_frozen_for_the_block() -> None:
    assert not gc.get_freeze_count()
    with crew(1):
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


@pytest.mark.usefixtures("thawed")
def test_what_the_caller_has_frozen_stays_frozen() -> None:
    gc.freeze()
    with crew(1):
        pass
    assert gc.get_freeze_count()


# ---- whole sweeps


def test_two_workers_write_what_one_writes(folder: Path) -> None:
    axes = [
        "--axis",
        "strategy.gamma=1:6:6",
        "--axis",
        "seed=1,2",
        "--axis",
        "durations.target_ms=10,-1",
    ]
    assert table(folder, "one", *axes) == table(folder, "two", *axes, workers=2)


@pytest.mark.full
def test_four_workers_write_what_one_writes(folder: Path) -> None:
    assert table(folder, "one", *AXES) == table(folder, "four", *AXES, workers=4)


@pytest.mark.full
def test_nothing_is_lost_when_a_worker_and_then_the_sweep_are_killed(folder: Path) -> None:
    undisturbed = table(folder, "whole", *AXES)
    with started(folder, "--store", "killed.sqlite", *AXES) as process:
        until(lambda: done(folder, "killed") > 5, "no point was evaluated")
        workers = children(process)
        os.kill(workers[0], signal.SIGKILL)
        before = done(folder, "killed")
        until(
            lambda: done(folder, "killed") > before + 5 or process.poll() is not None,
            "it did not go on",
        )
        assert process.poll() is None, "it was over too soon to be disturbed"
        workers = children(process)
        assert workers
        process.kill()
    until(lambda: not any(map(alive, workers)), "workers outlive their sweep")
    kept = done(folder, "killed")
    assert 0 < kept < 60
    assert table(folder, "killed", *AXES, "--resume", workers=2) == undisturbed


def test_an_interrupted_sweep_changes_no_file_and_says_how_it_goes_on(folder: Path) -> None:
    (folder / "part.csv").write_text("the whole table of yesterday")
    (folder / "page").mkdir()
    (folder / "page" / "tiny.csv").write_text("the same")
    files = ["--export", "part.csv", "--report", "page"]
    with started(folder, "--store", "part.sqlite", *files, *AXES) as process:
        until(lambda: done(folder, "part") > 5, "no point was evaluated")
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: the workers get it too
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, out + err
    assert (
        "interrupted; part.sqlite keeps the points that are done, and no other file was changed"
        in err
    )
    assert "Traceback" not in err
    assert (folder / "part.csv").read_text() == "the whole table of yesterday"
    assert {path.name for path in (folder / "page").iterdir()} == {"tiny.csv"}
    assert {path.name for path in folder.iterdir()} == {
        "tiny.yaml",
        "part.sqlite",
        "part.csv",
        "page",
    }
    kept = done(folder, "part")
    assert 5 < kept < 60
    words = shlex.split(err.partition("go on with: specsim ")[2])
    with contextlib.chdir(folder):
        resumed = CliRunner().invoke(main, words)
    assert resumed.exit_code == 0, resumed.output
    assert (folder / "part.csv").read_bytes() == table(folder, "afresh", *AXES)
    assert (folder / "page" / "tiny.csv").read_bytes() == (folder / "part.csv").read_bytes()


def test_a_sweep_that_is_interrupted_while_it_writes_files_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "part.csv").write_text("the whole table of yesterday")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "pandas.DataFrame.to_csv", lambda frame, path, **_: interrupted(path.write_text("half"))
    )
    monkeypatch.chdir(folder)
    words = [
        "sweep",
        "tiny.yaml",
        "--axis",
        "seed=1,2",
        "--workers",
        "1",
        "--store",
        "part.sqlite",
        "--export",
        "part.csv",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 130, result.output
    assert "files that were not reached are as they were" in result.stderr
    assert (folder / "part.csv").read_text() == "the whole table of yesterday"
