"""What takes long has a bar with count and time left, on a terminal alone, never beside JSON, and
only where it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from time import monotonic, sleep

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from simulator.cli import bars, display
from simulator.cli.main import main
from simulator.core.parallel import (
    WATCHER,
    Advance,
    counted,
    counting,
    in_turn,
    say,
    spread,
    unheard,
)


class Listener:
    """Hears as a display does, and keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard: list[list[object]] = []

    def update(self, what: str) -> None:
        self.said.append(what)

    @contextmanager
    def watch(self, what: str, total: int, done: int) -> Iterator[Advance]:
        entry: list[object] = [what, done, total]
        self.heard.append(entry)

        def advance(parts: int = 1, faults: int = 0) -> None:
            entry[1] += parts

        yield advance


@pytest.fixture
def listener() -> Iterator[Listener]:
    hears = Listener()
    before = WATCHER.set(hears)
    yield hears
    WATCHER.reset(before)


def test_nobody_hears_where_nobody_watches() -> None:
    say("lost")
    with counting("parts", 3) as advance:
        assert advance is unheard
    assert list(counted("abc")) == ["a", "b", "c"]


def test_what_is_counted_is_heard(listener: Listener) -> None:
    shared = counted(range(5), "parts")
    next(shared)
    assert listener.heard == [["parts", 0, 5]]
    next(shared)
    assert listener.heard == [["parts", 1, 5]]
    assert list(shared) == [2, 3, 4]
    assert in_turn(abs, iter([-1, -2])) == [1, 2]
    with spread(2) as everywhere:
        assert everywhere(abs, iter([-1, -2, -3])) == [1, 2, 3]
    assert listener.heard == [["parts", 5, 5], ["", 2, 2], ["", 3, 3]]


SHORT = ("--set", "requests.output_tokens=24")
COUNTED = {
    "run": (("run", "durations_only", "--set", "requests.count=7", "--json"), ["requests", 7, 7]),
    "replications": (
        ("run", "durations_only", "--replications", "3", "--json", *SHORT),
        ["replications", 3, 3],
    ),
    "load": (
        ("load", "vanilla_llama_2_7b_a100", "--sizes", "1,2", "--json", *SHORT),
        ["clients", 2, 2],
    ),
    "batches": (
        ("batches", "vanilla_llama_2_7b_a100", "--sizes", "1-3", "--simulate", "1", "--json"),
        ["batches", 3, 3],
    ),
    "methods": (("methods", "durations_only", "--only", "medusa_2", "--json"), ["methods", 1, 1]),
    "network": (
        ("network", "specpipe_llama_3_1_70b_8x3090", "--json", *SHORT),
        ["scenarios", 1, 1],
    ),
    "law": (
        ("validate", "--law", "vanilla_sd", "--law", "tree_sd", "--processes", "1"),
        ["", 2, 2],
    ),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_commands_count_what_they_do(kind: str, listener: Listener) -> None:
    arguments, expected = COUNTED[kind]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert expected in listener.heard


def test_points_of_a_sweep_are_counted(listener: Listener, tmp_path: Path) -> None:
    axes = (
        "--axis",
        "strategy.gamma=1,2,3",
        "--evaluate",
        "law",
        "--store",
        str(tmp_path / "s.sqlite"),
        "--workers",
        "1",
    )
    assert CliRunner().invoke(main, ("sweep", "durations_only", *axes, "--json")).exit_code == 0
    assert ["law", 3, 3] in listener.heard


def shown(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, as_json: bool, after_s: float = 0.0
) -> str:
    """Return what is written to stderr while 2 of 5 parts are done, in a command of this sort."""
    written = StringIO()
    console = Console(file=written, force_terminal=terminal, width=100, color_system=None)
    monkeypatch.setattr(bars, "Console", lambda stderr: console)
    monkeypatch.setattr(bars, "SHOWN_AFTER_S", after_s)
    monkeypatch.setattr(bars, "REFRESHED_S", 0.0)

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def work(as_json: bool) -> None:
        with display.showing("at [it]") as seen, counting("[parts]", 5) as advance:
            assert WATCHER.get() is seen
            assert isinstance(seen, bars.Display) == (terminal and not as_json)
            advance()
            advance(1, 1)
            if isinstance(seen, bars.Display):
                console.print(seen)
        assert WATCHER.get() is None

    assert (
        CliRunner().invoke(work, ["--json"] if as_json else [], catch_exceptions=False).exit_code
        == 0
    )
    return written.getvalue()


def test_a_bar_has_count_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True, as_json=False)
    assert "at [it]" in text
    line = next(line for line in text.splitlines() if "2/5" in line)
    assert "[parts] " in line
    assert "1 faulty left " in line


def test_what_is_soon_done_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True, as_json=False, after_s=3600.0)
    assert "at [it]" in text
    assert "2/5" not in text


@pytest.mark.parametrize(("terminal", "as_json"), [(False, False), (False, True), (True, True)])
def test_nothing_is_shown_off_a_terminal_or_beside_json(
    terminal: bool, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(monkeypatch, terminal=terminal, as_json=as_json) == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_work_of_minutes_writes_a_line_now_and_then_where_no_terminal_is(
    as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "PLAIN_S", 0.01)

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def work(as_json: bool) -> None:
        with display.showing("laws") as seen, counting("points", 5) as advance:
            advance(2, 1)
            wait_for("... laws; points 2 of 5, 1 faulty (", seen)
            say("claims")
            wait_for("... claims; points 2 of 5, 1 faulty (", seen)
        click.echo("{}")

    def wait_for(line: str, seen: bars.Display | display.Lines) -> None:
        assert isinstance(seen, display.Lines)
        begun = monotonic()
        while line not in seen.stream.getvalue() and monotonic() - begun < 60:
            sleep(0.01)
        assert line in seen.stream.getvalue()

    stream = StringIO()
    monkeypatch.setattr(display.sys, "stderr", stream)
    with display.showing("outer"), display.showing("inner"):
        assert WATCHER.get().what == "outer", "a command within a command is silent"
    done = CliRunner().invoke(
        patched(work, stream, monkeypatch), ["--json"] if as_json else [], catch_exceptions=False
    )
    assert done.stdout == "{}\n"


def patched(
    command: click.Command, stream: StringIO, monkeypatch: pytest.MonkeyPatch
) -> click.Command:
    """The command with its lines in a stream that can be read while it works."""
    original = display.Lines.__init__
    monkeypatch.setattr(
        display.Lines, "__init__", lambda self, what, _: original(self, what, stream)
    )
    return command
