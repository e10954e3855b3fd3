"""What studies print on a terminal: the same order, at most ten lines of at most 100 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import click
import pytest
from click.testing import CliRunner
from command_tree import every
from golden import STUDIES
from hypothesis import given, strategies as st
from rich.console import Console

from simulator.api.studies import study_names
from simulator.cli.main import SECTIONS, main
from simulator.cli.options import LONG, answer
from simulator.report.blocks import (
    ALWAYS,
    FIRST,
    Brief,
    Highlight,
    Page,
    Paragraph,
    Remark,
    Section,
    Standing,
    Table,
)
from simulator.report.pages.brief import LINES, MOST, in_brief, standing_of
from simulator.report.terminal import print_page
from simulator.scenario import load
from simulator.scenario.decision.by_law import by_law

ORDER = ("Answer", "Interval", "Verdict", "Uncertain", "Report")
WIDEST = 100
LENGTH = 10


def printed(page: Page, width: int = WIDEST) -> list[str]:
    """The lines of a page on a terminal."""
    text = StringIO()
    print_page(page, Console(file=text, width=width))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def names(lines: list[str]) -> list[str]:
    """The names of the remarks, in their order."""
    return [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]


def with_long(command: click.Command) -> bool:
    """Whether a command has --long."""
    return any("--long" in parameter.opts for parameter in command.params)


# ---- every study


def test_every_study_is_tried_here_and_answers_in_brief() -> None:
    assert set(STUDIES) == set(study_names())
    commands = dict(every())
    others = ["run", "law", "plan", "sweep", "observe", "what-if", "verify", "validate"]
    others += [f"trace {name}" for name in ("info", "compare", "iid", "advise")]
    for name in [*study_names(), *others]:
        assert with_long(commands[name]), name
    fitting = [name for name in commands if name.startswith("calibrate") and "import" not in name]
    assert [name for name in fitting if not with_long(commands[name])] == [
        "calibrate paper",
        "calibrate passes",
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_answers_in_ten_lines_in_one_order(name: str) -> None:
    words = shlex.split(STUDIES[name].words)
    done = CliRunner().invoke(main, words, env={"COLUMNS": str(WIDEST)}, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= LENGTH, done.stdout
    assert max(map(len, lines)) <= WIDEST, done.stdout
    told = [remark for remark in names(lines) if remark in ORDER]
    assert told == [remark for remark in ORDER if remark in told]
    assert told[0] == "Answer"
    assert told[-1] == "Report"
    assert lines[-1].split(maxsplit=1)[1].startswith("--out writes a page, --long prints its")


@pytest.mark.parametrize(
    "words",
    [
        "trace info six_flavours_greedy:plain",
        "trace compare six_flavours_greedy:plain six_flavours_greedy:plain",
        "trace iid six_flavours_greedy:plain",
        "trace advise --target Qwen3-8B",
        "validate --law vanilla_sd",
    ],
)
def test_traces_and_validations_answer_in_ten_lines(words: str) -> None:
    done = CliRunner().invoke(main, words.split(), env={"COLUMNS": str(WIDEST)})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= LENGTH, done.stdout
    assert max(map(len, lines)) <= WIDEST, done.stdout
    told = names(lines)
    assert (told[0], told[-1]) == ("Answer", "Report")
    assert len(CliRunner().invoke(main, [*words.split(), "--long"]).stdout) > len(done.stdout)


@pytest.mark.full
def test_long_prints_what_the_page_says() -> None:
    words = ["compare", "durations_only", "durations_only", "--set", "B:strategy.gamma=3"]
    brief = CliRunner().invoke(main, words).stdout
    long = CliRunner().invoke(main, [*words, "--long"]).stdout
    assert "Inputs that differ" not in brief
    assert "Inputs that differ" in long
    assert "Report" not in names(long.splitlines())
    assert len(long.splitlines()) > LENGTH


# ---- the mechanism


def page(**changes: object) -> Page:
    """A page of every kind of remark."""
    more = [Remark("Why", "It is so.", FIRST)]
    standing = Standing("A to b.", "Helps, 96 %.", ["x", "y", "z"], more)
    whole = Page("title", answer="It is.", standing=standing)
    return replace(whole, **changes)


def test_remarks_have_one_order() -> None:
    assert printed(in_brief(page(), "--out writes a page")) == [
        "title",
        "Answer     It is.",
        "Interval   A to b.",
        "Verdict    Helps, 96 %.",
        "Why        It is so.",
        "Uncertain  x; y.",
        "Report     --out writes a page",
    ]


def test_an_answer_may_be_shorter_on_a_terminal() -> None:
    short = replace(page().standing or Standing(), answer="Yes.")
    assert printed(in_brief(page(standing=short)))[1] == "Answer     Yes."


def test_a_verdict_that_the_answer_gives_is_said_once() -> None:
    """So a page says whether its answer decides; words of the answer are not asked."""
    loaded = load("mirror_qwen3_32b_m2_ultra")
    law = by_law(loaded)
    told = standing_of(page(), "m", law, ["x"])
    assert told.verdict.startswith("Speculation helps, over 99 % chance that it is faster")
    assert standing_of(page(decides=True), "m", law, ["x"]) == replace(told, verdict="")


def test_a_section_that_was_asked_for_follows_the_answer() -> None:
    kept = Section("Asked", [Paragraph("in full")], brief=True)
    shown = in_brief(page(sections=[Section("Details", [Paragraph("more")]), kept]))
    assert shown.sections == [kept]


def test_numbers_of_the_page_stand_in_where_nothing_else_is_said() -> None:
    numbers = [Highlight("3 x", "as fast"), Highlight("2", "points")]
    alone = page(highlights=numbers, standing=Standing())
    assert printed(in_brief(alone))[-1] == "Numbers  3 x as fast; 2 points."
    assert "Numbers" not in names(printed(in_brief(page(highlights=numbers))))


sentence = st.lists(st.text("abc", min_size=1, max_size=14), max_size=200).map(" ".join)


@given(sentence, sentence, sentence, st.lists(sentence, max_size=4), st.lists(sentence, max_size=3))
def test_ten_lines_are_never_exceeded(
    answer: str, interval: str, verdict: str, doubts: list[str], more: list[str]
) -> None:
    said: list[Remark] = [Remark("More", words, rank, 1) for rank, words in enumerate(more)]
    shown = page(answer=answer, standing=Standing(interval, verdict, doubts, said))
    lines = printed(in_brief(shown, "here"))
    assert len(lines) <= LENGTH
    assert max(map(len, lines)) <= WIDEST
    assert names(lines)[-1] == "Report"


def test_what_is_always_said_fits() -> None:
    assert sum(MOST.values()) <= LINES == LENGTH - 1
    assert tuple(MOST) == ORDER


def test_words_are_cut_behind_their_last_line() -> None:
    remarks = [Remark("A", "one two three four five six", ALWAYS, 2), Remark("B", "seven", FIRST)]
    assert printed(Page("t", brief=Brief(remarks, 1)), 12)[1:] == ["A  one …"]
    assert printed(Page("t", brief=Brief(remarks, 2)), 12)[1:] == ["A  one two", "   three …"]
    whole = ["A  one two", "   three", "   four five", "   six"]
    assert printed(Page("t", brief=Brief(remarks, 4)), 12)[1:] == whole
    assert printed(Page("t", brief=Brief(remarks, 5)), 12)[1:] == [*whole, "B  seven"]


def test_a_command_without_the_option_prints_the_page_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So does one that has it and got it; one that has it and did not prints the answer alone."""
    details = Section("Details", [Paragraph("in full")])
    page = Page("t", answer="It helps.", sections=[details], standing=Standing("1 to 2"))
    for asked_long, whole in ((None, True), (True, True), (False, False)):
        with click.Context(main) as context:
            if asked_long is not None:
                context.meta[LONG] = asked_long
            answer(False, dict, lambda: page)
        assert ("in full" in capsys.readouterr().out) is whole


# ---- lists fit a narrow terminal


def listed() -> Iterator[list[str]]:
    """Commands that list what there is."""
    yield ["list"]
    yield ["list", "method"]
    yield ["list", "device"]
    yield ["figure"]
    yield ["--help"]


@pytest.mark.parametrize("words", list(listed()), ids=" ".join)
def test_lists_can_be_read_in_eighty_columns(words: list[str]) -> None:
    done = CliRunner().invoke(
        main, words, env={"COLUMNS": "80"}, terminal_width=80, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_has_a_line_for_every_command() -> None:
    lines = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    for entries in SECTIONS.values():
        for name, entry in entries.items():
            assert any(line.strip().startswith(name) and entry.line in line for line in lines), name


# ---- tables


def test_bars_leave_room_for_the_cells_beside_them() -> None:
    """At 100 columns a bar of 100 % has 30 letters, at 58 what is left of them, never below 10."""
    rows = [("step (4 verifying a window)", "100.0 %"), ("step (1 verifying a window)", "50.0 %")]
    shares = Table(("step kind", "share"), rows, "Kinds of steps", bars=(1,))
    whole = Page("title", sections=[Section("Times", [shares])])
    for width, full in (100, 30), (58, 18), (40, 10):
        lines = printed(whole, width)
        bars = [line.split()[-1] for line in lines if line.endswith("#")]
        assert [len(bar) for bar in bars] == [full, full // 2], "\n".join(lines)
        assert sum(rows[0][0] in line for line in lines) == (width > 50)
