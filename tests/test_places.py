"""Where commands write: never over an input, never over another output, all files of an answer or
none.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from command_tree import every
from test_bad_inputs import trace

from simulator.cli.main import main

MINE = (
    "strategy: {name: vanilla_sd, gamma: 3}\ndurations: {target_ms: 18, draft_ms: "
    "2}\nacceptance: {rate: 0.8}\n"
    "requests: {count: 2, prompt_tokens: 8, output_tokens: 8}\n"
)
TIMES = (
    "operation,size_bytes,time_us\ntransfer,1000,2\ntransfer,1000000,60\ntransfer,100000000,5000\n"
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an input of every kind, under second names too."""
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(MINE)
    Path("link.yaml").symlink_to("m.yaml")
    os.link("m.yaml", "hard.yaml")
    Path("sub").mkdir()
    Path("child.yaml").write_text("like: ./m.yaml\nstrategy: {gamma: 2}\n")
    Path("t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,8,8\n1,8,8\n")
    Path("log.yaml").write_text(
        MINE.replace(
            "count: 2, prompt_tokens: 8, output_tokens: 8",
            "arrivals: {name: file, format: csv, file: t.csv}",
        )
    )
    Path("own.npz").write_bytes(trace())
    Path("own").mkdir()
    Path("times.csv").write_text(TIMES)
    Path("rates.yaml").write_text("2.5\n")
    Path("lengths.jsonl").write_text('{"accepted": [2, 0, 3]}\n')
    Path("s.sqlite").write_bytes(b"")
    Path("device.yaml").write_text("like: h100_sxm\n")
    Path("placed.yaml").write_text(
        "like: vanilla_llama_2_7b_a100\ntarget: {device: ./device.yaml}\nrequests: {count: 2, "
        "output_tokens: 8}\n"
    )
    return tmp_path


def held(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


CLASHES = (
    "run m.yaml --request-log m.yaml",
    "run m.yaml --request-log ./sub/../m.yaml",
    "run m.yaml --json --iteration-log link.yaml",
    "run m.yaml --json --iteration-log hard.yaml",
    "run link.yaml --json --request-log m.yaml",
    "run child.yaml --json --request-log m.yaml",
    "run log.yaml --json --request-log t.csv",
    "run placed.yaml --json --request-log device.yaml",
    "run m.yaml --json --request-log a.csv --iteration-log a.csv",
    "run m.yaml --json --request-log a.csv --iteration-log sub/../a.csv",
    "run m.yaml --out a --request-log a",
    "sweep m.yaml --axis strategy.gamma=1,2 --workers 1 --store m.yaml",
    (
        "sweep m.yaml --axis strategy.gamma=1,2 --workers 1 --store new.sqlite --export m.csv "
        "--report m.csv"
    ),
    "sweep m.yaml --axis strategy.gamma=1,2 --workers 1 --store new.csv --export new.csv",
    "plot s.sqlite --kind line --out s.sqlite",
    "trace rescale own.npz --mean 1.5 --window 3 --out own.npz",
    "trace convert lengths.jsonl --from steps --out lengths.jsonl",
    "trace convert rates.yaml --from mean_length --window 4 --out rates.yaml",
    "calibrate link times.csv --like nvlink_a100 --out times.csv",
    "calibrate device times.csv --like ./device.yaml --out device.yaml",
    "calibrate import times.csv --from vidur --source x --out times.csv",
    "calibrate link times.csv --like nvlink_a100 --out a.yaml --report a.yaml",
    "law m.yaml --style m.html --out m.html",
    "capacity log.yaml --traffic csv:t.csv --out t.csv",
)


@pytest.mark.parametrize("command", CLASHES)
def test_no_output_is_an_input_or_another_output(command: str, work: Path) -> None:
    if "m.html" in command:
        Path("m.html").write_text("")
    before = held(work)
    done = CliRunner().invoke(main, command.split())
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 or "Usage" in done.stderr, done.stderr
    after = held(work)
    assert {name: after.get(name) for name in before} == before
    assert all(not content for content in (after[name] for name in after.keys() - before.keys())), (
        after.keys() - before.keys()
    )


READ = {
    "plot store",
    "trace record target",
    "trace record draft",
    "trace record prompts",
    "new name",
    "verify prediction",
    "verify after",
    "verify pairs",
}
"""Parameters that name what may not be there and are no output; `new` writes where nothing is
alone, and `verify` says itself what is missing.
"""


def test_every_path_that_need_not_be_there_is_declared_as_written() -> None:
    from simulator.cli.places import Output

    found = {}
    for words, command in every():
        for param in command.params:
            if isinstance(param.type, click.Path) and not param.type.exists:
                found[f"{words} {param.name}"] = isinstance(param, Output)
    assert {name for name, writes in found.items() if not writes} == READ
    assert len(found) > 40


def fails(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FOLDERS = (
    "trace iid own.npz --out made/deep",
    "trace plot own.npz --out made/deep",
    "compare m.yaml child.yaml --out made/deep",
    (
        "sweep m.yaml --axis strategy.gamma=1,2 --workers 1 --evaluate law --store s.sqlite "
        "--report made/deep"
    ),
    "calibrate link times.csv --like nvlink_a100 --report made/deep",
)


@pytest.mark.few(3)
@pytest.mark.parametrize("command", FOLDERS)
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_folder_on_a_full_disk_stays_as_it_was(
    command: str, there: bool, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        Path("made/deep").mkdir(parents=True)
        Path("made/deep/mine.txt").write_text("mine")
    before, synced, count = held(work), os.fsync, 0

    def full_at_the_second(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count > 1:
            fails()
        synced(descriptor)

    monkeypatch.setattr("os.fsync", full_at_the_second)
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 2, done.output
    assert "No space left on device" in done.stderr
    after = held(work)
    after.pop("s.sqlite"), before.pop("s.sqlite")
    assert after == before
    assert Path("made").exists() == there
    assert not list(work.rglob(".*specsim*"))


def test_a_new_scenario_on_a_full_disk_is_none(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", fails)
    done = CliRunner().invoke(main, ["new", "made"])
    assert (done.exit_code, Path("made.yaml").exists()) == (2, False), done.output
    assert "No space left on device" in done.stderr


def test_a_plan_on_a_full_disk_leaves_its_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulator.inputs import writing
    from simulator.report.pages import plan as pages

    monkeypatch.setattr(pages, "page_files", lambda *_: {"plan.md": "new", "plan.html": "new"})
    monkeypatch.setattr(pages, "page", lambda _: None)
    study: Any = type("Study", (), {"exports": {"scenario.yaml": "new"}})

    def left(folder: Path) -> dict[str, str]:
        return {path.name: path.read_text() for path in folder.iterdir()}

    earlier = {"plan.md": "old", "vllm.sh": "old"}
    for stranger in ({}, {"mine.txt": "mine"}):
        folder = tmp_path / f"plan{len(stranger)}"
        folder.mkdir()
        for name, text in (earlier | stranger).items():
            (folder / name).write_text(text)
        with monkeypatch.context() as full:
            full.setattr("os.fsync", fails)
            with pytest.raises(writing.BadInput, match="No space left on device"):
                pages.write_plan(study, folder)
            with pytest.raises(writing.BadInput, match="No space left on device"):
                pages.write_plan(study, tmp_path / "fresh" / "plan")
        assert left(folder) == earlier | stranger
        pages.write_plan(study, folder)
        new = {"plan.md": "new", "plan.html": "new", "scenario.yaml": "new"}
        assert left(folder) == new | (earlier | stranger | new if stranger else {})
    assert {path.name for path in tmp_path.iterdir()} == {"plan0", "plan1"}


def test_what_a_killed_run_left_goes_with_the_next_run(tmp_path: Path) -> None:
    script = "import sys, time\nfrom pathlib import Path\nfrom simulator.inputs import writing\n"
    script += (
        "with writing.replacing(Path(sys.argv[1])) as new:\n    new.write_text('half')\n    "
        "print(1, flush=True)\n"
    )
    script += "    time.sleep(60)"
    target = tmp_path / "report.csv"
    root = str(Path(__file__).parent.parent)
    killed, alive = (
        subprocess.Popen(
            [sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE, cwd=root
        )
        for _ in range(2)
    )
    for process in (killed, alive):
        assert process.stdout
        process.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 2
    killed.kill()
    killed.wait()
    run = [
        "run",
        "durations_only",
        "--set",
        "requests.count=2",
        "--json",
        "--request-log",
        str(target),
    ]
    assert CliRunner().invoke(main, run).exit_code == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2, names  # the log, and the place of the process that still writes
    alive.kill()
    alive.wait()
    assert CliRunner().invoke(main, run).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]
