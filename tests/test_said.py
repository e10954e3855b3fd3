"""Whatever reads what is printed, and whatever is typed: an answer or a line of words, and the exit
code that belongs to it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.cli.streams import whole_streams

ROOT = Path(__file__).parent.parent
MINE = (
    "strategy: {name: vanilla_sd, gamma: 3}\ndurations: {target_ms: 18, draft_ms: "
    "2}\nacceptance: {rate: 0.8}\n"
    "requests: {count: 2, prompt_tokens: 8, output_tokens: 8}\n"
)
POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
READERS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "posix": POSIX,
    "one column": {"COLUMNS": "1"},
}
COMMANDS = (
    "--help",
    "list scenario",
    "list method",
    "show h100_sxm",
    "explain m.yaml",
    "law m.yaml",
    "run m.yaml --out rep --long",
    "compare m.yaml m.yaml",
    "batches m.yaml --sizes 1-2 --simulate 1",
    "trace list",
    "law naïve.yaml",
    "law none×.yaml",
)
FEW = ("list scenario", "law m.yaml", "law none×.yaml", "run m.yaml --out rep --long")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a scenario under two names."""
    for name in ("m.yaml", "naïve.yaml"):
        (tmp_path / name).write_text(f"{MINE}# × → ≤\n", "utf-8")
    return tmp_path


def said(
    command: str, work: Path, more: dict[str, str], stdout: int | None = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """What a command of its own process prints."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON"))
    }
    words = [sys.executable, "-m", "simulator", *command.split()]
    environment = plain | {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"} | more
    return subprocess.run(
        words,
        cwd=work,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        timeout=300,
    )


@pytest.mark.few(4)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "command",
    [
        *FEW,
        *(
            pytest.param(command, marks=pytest.mark.full)
            for command in COMMANDS
            if command not in FEW
        ),
    ],
)
def test_every_reader_is_told(command: str, reader: str, work: Path) -> None:
    done = said(command, work, READERS[reader])
    wrong = "none" in command
    assert b"Traceback" not in done.stderr, done.stderr.decode("latin-1")
    assert done.returncode == (2 if wrong else 0), done.stderr.decode("latin-1")
    assert (done.stdout == b"") is wrong
    assert len(done.stderr.splitlines()) == int(wrong)


@pytest.mark.few(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "list scenario",
        "law m.yaml",
        "law m.yaml --json",
        "schema scenario",
        "run m.yaml --json",
    ],
)
def test_a_full_disk_behind_stdout_is_one_line(command: str, work: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = said(command, work, {}, full.fileno())
    assert (done.returncode, done.stderr) == (
        2,
        b"error: what it prints cannot be written: No space left on device\n",
    )


def test_what_fails_elsewhere_is_not_blamed_on_printing() -> None:
    with pytest.raises(ConnectionRefusedError), whole_streams():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def test_nobody_who_reads_is_no_fault(work: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = said("list", work, {}, write)
    os.close(write)
    assert (b"Traceback" in done.stderr, done.returncode in (1, 141)) == (False, True)


TYPED = {
    "requests.arrivals={name: gamma, rate_per_s: 1, burstiness: 1e-200}": (
        "expected 0.001 or more, got 1e-200"
    ),
    "requests.arrivals={name: gamma, rate_per_s: 1, burstiness: 1e17}": "expected at most 1000",
    ".".join(["a"] * 3_000)
    + "=1": "is nested too deeply; expected at most 32 names with dots between them",
    "strategy." + ".".join(["gamma"] * 3_000) + "=1": "is nested too deeply",
    "durations." + "." * 3_000 + "=1": "is nested too deeply",
}


@pytest.mark.parametrize("command", ["law", "run", "explain", "batches"])
@pytest.mark.parametrize("change", TYPED, ids=range(len(TYPED)))
def test_what_was_typed_is_refused_in_words(
    change: str, command: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    places = "serving.policy={name: prefill_first, max_requests: 8}"
    done = CliRunner().invoke(main, [command, "m.yaml", "--set", places, "--set", change])
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert TYPED[change] in done.stderr


def test_an_axis_of_3000_dots_is_refused_in_words(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    done = CliRunner().invoke(
        main, ["sweep", "m.yaml", "--axis", ".".join(["a"] * 3_000) + "=1,2", "--workers", "1"]
    )
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == 2
    assert "is nested too deeply" in done.stderr


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1_000,
}


def unknown(count: int, each: str, between: str = "") -> str:
    """``each`` with so many numbers in it."""
    return between.join(each.format(number) for number in range(count))


def unknown_fields(count: int) -> dict[str, int]:
    return {f"unknown_{number}": 1 for number in range(count)}


MANY: dict[str, tuple[str, str, Callable[[int], str]]] = {
    "fields of a scenario": (
        "law m.yaml",
        "m.yaml",
        lambda count: MINE + unknown(count, "unknown_{}: 1\n"),
    ),
    "fields of a part": (
        "law m.yaml",
        "m.yaml",
        lambda count: MINE.replace(
            "rate: 0.8", f"rate: 0.8, {unknown(count, 'unknown_{}: 1', ', ')}"
        ),
    ),
    "rows of a table": (
        "calibrate link t.csv --like nvlink_a100",
        "t.csv",
        lambda count: "operation,size_bytes,time_us\n" + unknown(count, "unknown_{},1,1\n"),
    ),
    "fields of a configuration": (
        "law vanilla_llama_2_7b_a100 --set target.model=./published",
        "published/config.json",
        lambda count: json.dumps(CONFIG | unknown_fields(count), indent=1),
    ),
    "layers of a configuration": (
        "law vanilla_llama_2_7b_a100 --set target.model=./published",
        "published/config.json",
        lambda count: json.dumps(
            CONFIG | {"num_hidden_layers": count, "layer_types": list(unknown_fields(count))}
        ),
    ),
    "fields of a device": (
        "law vanilla_llama_2_7b_a100 --set target.device=./d.yaml",
        "d.yaml",
        lambda count: "name: mine\n" + unknown(count, "unknown_{}: 1\n"),
    ),
    "fields of a plan": (
        "plan ./p.yaml",
        "p.yaml",
        lambda count: unknown(count, "unknown_{}: 1\n"),
    ),
}
"""A command, the file that it reads, and that file's text with so many faults in it."""


def told(command: str, file: str, text: str) -> tuple[float, Result]:
    """CPU seconds of a command that reads a file, and what it left."""
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text)
    began_s = time.process_time()
    done = CliRunner().invoke(main, command.split())
    return time.process_time() - began_s, done


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", MANY)
def test_twenty_faults_are_told_and_the_rest_is_counted(
    kind: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most a few times as long as it takes to read as many lines of YAML in plain Python; with a
    search through all faults for every fault, twenty times.
    """
    monkeypatch.chdir(work)
    command, file, text = MANY[kind]
    lines = unknown(8_000, "unknown_{}: 1\n")
    began_s = time.process_time()
    yaml.load(lines, Loader=yaml.SafeLoader)
    reading_s = time.process_time() - began_s
    told_s, done = told(command, file, text(8_000))
    assert told_s < 10 * reading_s
    assert (done.exit_code, done.stdout) == (2, "")
    said = done.stderr.splitlines()
    assert len(said) == 21, said[:3]
    assert said[-1].startswith("error: ... and 7,98")
    assert len(done.stderr) < 10_000


def test_many_settings_are_told_like_a_file(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    words = [word for number in range(100) for word in ("--set", f"unknown_{number}=1")]
    done = CliRunner().invoke(main, ["law", "m.yaml", *words])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[20:] == ["error: ... and 80 more"]


ALL_WRONG = {
    "sweep m.yaml --axis strategy.gamma=-1,0 --workers 1": [
        "strategy.gamma=-1",
        "strategy.gamma=0",
    ],
    "compare wrong.yaml wrong.yaml": ["wrong.yaml:1:30"],
    "batches wrong.yaml": ["wrong.yaml:1:30"],
    "load wrong.yaml": ["wrong.yaml:1:30"],
    "capacity wrong.yaml": ["wrong.yaml:1:30"],
    "crossovers m.yaml --only a --only b": ["--only a", "--only b"],
    "crossovers vanilla_llama_2_7b_a100 --only mtp --only mirror_sd": [
        "mirror_sd: is left out",
        "mtp: is left out",
    ],
    "methods vanilla_llama_2_7b_a100 --only mtp": ["mtp: is left out"],
    "validate none neither": ["none", "neither"],
    "validate --law none --law neither": ["none", "neither"],
    "plan ./wrong.yaml": [
        "wrong.yaml:1:1: scenario",
        "wrong.yaml:1:1: devices",
    ],
}
"""Commands, and how the lines on stderr begin."""


@pytest.mark.few(3)
@pytest.mark.parametrize("command", ALL_WRONG)
def test_where_all_that_is_asked_is_wrong_there_are_faults_alone(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    Path("wrong.yaml").write_text(MINE.replace("gamma: 3", "gamma: -3"))
    done = CliRunner().invoke(main, [*command.split(), "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    for line, beginning in zip(lines, ALL_WRONG[command], strict=command[:4] != "plan"):
        assert line.startswith(f"error: {beginning}: "), line


@pytest.mark.parametrize("after_s", [0.6, 1.2, 2.0])
def test_ctrl_c_in_the_first_seconds_of_a_sweep_prints_no_traceback(
    after_s: float, work: Path
) -> None:
    words = [
        sys.executable,
        "-m",
        "simulator",
        "sweep",
        "m.yaml",
        "--axis",
        "requests.count=1000:9000:4000",
        "--workers",
        "2",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        words,
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # ignored where tests run in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
    _, told = process.communicate(timeout=120)
    assert b"Traceback" not in told, told.decode()
    assert process.returncode in (130, -signal.SIGINT)
