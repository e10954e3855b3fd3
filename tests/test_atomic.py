"""What is written is the old file or the new one: full disks, places that cannot be written to,
signals at any moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_bad_inputs import trace

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.evidence.calibrate import measurements
from simulator.inputs import writing
from simulator.inputs.traces import file as trace_file
from simulator.inputs.traces.file import read
from simulator.studies.sweep.store import reading

ROOT = Path(__file__).parent.parent
OLD, NEW = "old " * 5_000, "new " * 5_000


def log(path: Path) -> None:
    with writing.whole_file(path) as file:
        assert file is not None
        file.write(NEW)


def folder(path: Path) -> None:
    with writing.replacing(path, parents=True) as new:
        new.mkdir()
        for name in "ab":
            (new / name).write_text(NEW)


def recording(path: Path) -> None:
    (path.parent / "source.npz").write_bytes(trace())
    try:
        trace_file.write(read(path.parent / "source.npz"), path)
    finally:
        (path.parent / "source.npz").unlink()


def times(path: Path) -> None:
    measurements.write(
        measurements.table([{"operation": "matmul", "size_bytes": 5.0, "time_us": 3.0}]), path
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    "text.svg": lambda path: writing.write(path, NEW),
    "log.csv": log,
    "report": folder,
    "trace.npz": recording,
    "times.csv.gz": times,
}


def held(path: Path) -> dict[str, bytes]:
    """Everything below a folder."""
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


def put_old(name: str, path: Path) -> None:
    if name == "report":
        path.mkdir()
        for file in "ab":
            (path / file).write_text(OLD)
    else:
        path.write_text(OLD)


def fails(number: int, after: int = 0) -> Callable[..., None]:
    """A system call that does nothing ``after`` times and then fails."""
    left = [after]

    def call(*_: object, **__: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_a_new_file_takes_the_place_of_the_old_one(name: str, there: bool, tmp_path: Path) -> None:
    if there:
        put_old(name, tmp_path / name)
    WRITERS[name](tmp_path / name)
    assert {path.partition("/")[0] for path in held(tmp_path)} == {name}
    assert not any(content.startswith(OLD[:40].encode()) for content in held(tmp_path).values())


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("call", "reason"), [("fsync", errno.ENOSPC), ("replace", errno.EIO), ("mkdtemp", errno.EACCES)]
)
def test_what_cannot_be_written_leaves_everything_as_it_was(
    name: str, there: bool, call: str, reason: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        put_old(name, tmp_path / name)
    before = held(tmp_path)
    target = {
        "fsync": "os.fsync",
        "replace": "pathlib.Path.replace",
        "mkdtemp": "tempfile.mkdtemp",
    }[call]
    if call == "replace" and name == "report":
        target = "simulator.inputs.writing._exchange" if there else target
    monkeypatch.setattr(target, fails(reason))
    with pytest.raises(BadInput) as error:
        WRITERS[name](tmp_path / name)
    assert str(error.value) == f"{tmp_path / name}: cannot be written: {os.strerror(reason)}"
    assert held(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == ({name} if there else set())


@pytest.mark.parametrize("failing", [False, True])
def test_a_system_that_cannot_swap_folders_renames_them(
    failing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_old("report", tmp_path / "report")
    before = held(tmp_path)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    if failing:
        rename = Path.rename
        monkeypatch.setattr(
            Path,
            "rename",
            lambda one, other: (
                fails(errno.EIO)()
                if one.name == "report" and one.parent != tmp_path
                else rename(one, other)
            ),
        )
        with pytest.raises(BadInput, match="Input/output error"):
            folder(tmp_path / "report")
        assert held(tmp_path) == before
    else:
        folder(tmp_path / "report")
        assert set(held(tmp_path).values()) == {NEW.encode()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "durations_only", "--set", "requests.count=2", "--out", "rep"],
        [
            "run",
            "durations_only",
            "--set",
            "requests.count=2",
            "--json",
            "--iteration-log",
            "log.csv",
        ],
        [
            "run",
            "durations_only",
            "--set",
            "requests.count=2",
            "--json",
            "--request-log",
            "log.csv",
        ],
        ["trace", "rescale", "own.npz", "--mean", "1.5", "--window", "3", "--out", "x.npz"],
        ["batches", "durations_only", "--simulate", "1", "--sizes", "1,2", "--out", "x.svg"],
        ["trace", "convert", "2.5", "--from", "mean_length", "--window", "4", "--out", "x.yaml"],
    ],
)
def test_a_full_disk_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.npz").write_bytes(trace())
    monkeypatch.setattr("os.fsync", fails(errno.ENOSPC))
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "cannot be written: No space left on device" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.npz"]


def test_a_place_where_nothing_can_be_made_is_one_line() -> None:
    for arguments in (
        ["run", "durations_only", "--set", "requests.count=2", "--out", "/proc/report"],
        [
            "trace",
            "convert",
            "2.5",
            "--from",
            "mean_length",
            "--window",
            "4",
            "--out",
            "/proc/x.yaml",
        ],
    ):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
        assert result.stderr.startswith("error: /proc/")


# ---- in processes of their own


def started(
    script: str, *arguments: str, cwd: Path, most_bytes: int | None = None
) -> subprocess.Popen[str]:
    def limited() -> None:
        # whoever runs the tests in the background has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    # Where little may be written, coverage would fail to write what it has seen, and Python leave
    # half a compiled module.
    kept = {
        name: value
        for name, value in os.environ.items()
        if most_bytes is None or not name.startswith("COVERAGE_")
    }
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            **({"PYTHONDONTWRITEBYTECODE": "1"} if most_bytes is not None else {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


SPECSIM = "from simulator.cli.main import main; main()"
WRITING = """
import sys
from pathlib import Path
from simulator.inputs.writing import ended_by_sigterm, replacing, write
print("begun", flush=True)
with ended_by_sigterm():
    for number in range(10**9):
        text = f"{number % 7} " * 50_000
        write(Path("file.md"), text)
        with replacing(Path("report")) as new:
            new.mkdir()
            for name in "abc":
                (new / name).write_text(text)
"""


@pytest.mark.full
@pytest.mark.parametrize("most_bytes", [0, 100, 5_000, 20_000])
def test_a_disk_that_takes_so_many_bytes(most_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "rep").mkdir()
    (tmp_path / "rep" / "report.md").write_text("old")
    process = started(
        SPECSIM,
        "run",
        "durations_only",
        "--set",
        "requests.count=2",
        "--out",
        "rep",
        cwd=tmp_path,
        most_bytes=most_bytes,
    )
    _, errors = process.communicate()
    assert (process.returncode, len(errors.splitlines())) == (2, 1), errors
    assert "rep: cannot be written: File too large" in errors
    assert held(tmp_path) == {"rep/report.md": b"old"}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.full
@pytest.mark.parametrize("most_bytes", [5_000, 60_000])
def test_a_store_keeps_what_it_holds_when_the_disk_is_full_and_goes_on_later(
    most_bytes: int, tmp_path: Path
) -> None:
    def sweep(*words: str, most_bytes: int | None = None) -> tuple[int, str]:
        words = ("sweep", "durations_only", "--evaluate", "law", "--store", "s.sqlite", *words)
        process = started(SPECSIM, *words, cwd=tmp_path, most_bytes=most_bytes)
        _, errors = process.communicate()
        return process.returncode, errors

    few, many = ("--axis", "acceptance.rate=0.1:0.9:3"), ("--axis", "acceptance.rate=0.1:0.9:900")
    assert sweep(*few) == (0, "")
    code, errors = sweep(*many, "--resume", most_bytes=most_bytes)
    assert (code, len(errors.splitlines())) == (2, 1), errors
    assert errors.startswith("error: s.sqlite: cannot be written: ")
    code, errors = sweep(*few, "--resume")
    assert code == 0, errors
    with reading(tmp_path / "s.sqlite") as store:
        assert store.progress("law") == (3, 0)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_whole_files(number: signal.Signals, tmp_path: Path) -> None:
    """Text that is written over and over, ended 8 times each: all of one writing, or none."""
    chance = random.Random(int(number))
    for _ in range(8):
        process = started(WRITING, cwd=tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.05))
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode in (-number, 128 + number, 1)
        whole = {f"{digit} " * 50_000 for digit in range(7)}
        if (tmp_path / "file.md").exists():
            assert (tmp_path / "file.md").read_text() in whole
        if (tmp_path / "report").exists():
            texts = {(tmp_path / "report" / name).read_text() for name in "abc"}
            assert len(texts) == 1
            assert texts <= whole
        assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} <= {
            "file.md",
            "report",
        }


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_the_old_report_or_the_new_one(
    number: signal.Signals, tmp_path: Path
) -> None:
    def run(seed: int) -> subprocess.Popen[str]:
        words = [
            "run",
            "durations_only",
            "--set",
            "requests.count=20",
            "--seed",
            str(seed),
            "--out",
            "rep",
        ]
        return started(SPECSIM, *words, cwd=tmp_path)

    whole, seconds = [], 0.0
    for seed in (1, 0):
        before = time.monotonic()
        assert run(seed).wait() == 0
        seconds = time.monotonic() - before
        whole.append(held(tmp_path / "rep"))
    chance = random.Random(int(number))
    for _ in range(3):
        process = run(1)
        time.sleep(chance.uniform(0.3, 1.1) * seconds)
        process.send_signal(number)
        process.communicate(timeout=60)
        assert held(tmp_path / "rep") in whole
        assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [
            "rep"
        ]


def test_sigterm_reaches_processes_that_were_begun_as_ever(tmp_path: Path) -> None:
    script = """
import os, signal, time
from simulator.inputs.writing import ended_by_sigterm
with ended_by_sigterm():
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b"!")  # before that a signal may be lost in the fork
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitpid(child, 0)[1])
"""
    out, _ = started(script, cwd=tmp_path).communicate()
    assert int(out) == signal.SIGTERM


def test_arrays_are_those_that_were_written(tmp_path: Path) -> None:
    recording(tmp_path / "trace.npz")
    assert np.array_equal(read(tmp_path / "trace.npz").token, np.arange(8))


def test_what_a_killed_writer_left_goes_with_the_next_writing_of_that_name(tmp_path: Path) -> None:
    left, fresh, held_still, of_others, another = (
        tmp_path / name
        for name in (
            ".rep.specsim-a",
            ".rep.specsim-b",
            ".rep.specsim-c",
            ".rep.settings",
            ".re.specsim-d",
        )
    )
    for folder in (left, fresh, held_still, of_others, another):
        folder.mkdir()
        (folder / "half.md").write_text("half")
        if folder != fresh:  # a killed writer's goes, however short ago it was
            os.utime(folder, (1e9, 1e9))
    (tmp_path / ".rep.specsim-e").symlink_to(of_others)
    descriptor = os.open(held_still, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    writing.write(tmp_path / "rep", "whole")
    os.close(descriptor)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".re.specsim-d",
        ".rep.settings",
        ".rep.specsim-c",
        ".rep.specsim-e",
        "rep",
    ]
    assert (of_others / "half.md").read_text() == "half"


@pytest.mark.parametrize("name", WRITERS)
def test_a_pipe_is_no_place_for_a_file_and_stays(name: str, tmp_path: Path) -> None:
    """As a device would be, which whoever may write to its folder could lose."""
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(BadInput, match="is no regular file, and stays as it is"):
        WRITERS[name](path)
    assert path.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "words",
    ["run durations_only --out p", "sweep durations_only --evaluate law --axis seed=1,2 --store p"],
)
def test_commands_leave_pipes_alone(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("p")
    result = CliRunner().invoke(main, words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]
    assert Path("p").is_fifo()


def test_the_folder_in_which_one_stands_stays_and_holds_the_answer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that stands in a folder that was replaced would see an empty one that is gone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "earlier.txt").write_text(OLD)
    inode = tmp_path.stat().st_ino
    writing.write_all({Path("answer.txt"): NEW}, {"answer.txt", "earlier.txt"})
    assert (tmp_path.stat().st_ino, os.listdir(".")) == (inode, ["answer.txt"])
    (tmp_path / "own.txt").write_text("somebody's")
    (tmp_path / "earlier.txt").write_text(OLD)
    writing.write_all({Path("answer.txt"): NEW}, {"answer.txt", "earlier.txt"})
    assert sorted(os.listdir(".")) == ["answer.txt", "earlier.txt", "own.txt"]


def test_names_in_the_root_that_differ_in_case_are_two_files() -> None:
    assert not writing.same(Path("/No-Such-Name"), Path("/no-such-name"))
