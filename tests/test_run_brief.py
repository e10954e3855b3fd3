"""What `specsim run` ends with on a terminal: the answer in a few lines."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from simulator.report.blocks import Brief, Page, Remark
from simulator.report.pages.brief import LINES, MOST, in_brief
from simulator.report.run.brief import standing
from simulator.report.terminal import print_page
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.outcome import LimitOutcome
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Interval
from simulator.scenario.uncertain.intervals import run_with_interval

WIDTH = 60


def printed(remarks: Brief, width: int = WIDTH) -> list[str]:
    """The lines below the title of a page that ends with these remarks."""
    text = StringIO()
    print_page(Page("title", brief=remarks), Console(file=text, width=width))
    title, *lines = text.getvalue().splitlines()
    assert title == "title"
    return [line.rstrip() for line in lines]


@pytest.fixture(scope="module")
def ran() -> RunResult:
    """Two requests of stated durations."""
    return run(load("durations_only", ["requests.count=2", "requests.output_tokens=16"]))


def test_remarks_give_way_by_rank_and_stay_in_order() -> None:
    remarks = [
        Remark("Answer", "yes", 0),
        Remark("Why", "two " * 20, 1),
        Remark("Where", "one", 2),
        Remark("More", "two " * 20, 2),
        Remark("Page", "a.html", 0),
    ]
    assert printed(Brief(remarks, 4)) == [
        "Answer  yes",
        f"Why     {'two ' * 12}two",
        f"        {'two ' * 6}two",
        "Page    a.html",
    ]
    assert printed(Brief(remarks, 5))[3] == "Where   one"
    assert len(printed(Brief(remarks, 6))) == 5
    assert len(printed(Brief(remarks, 7))) == 7


def test_what_has_to_be_said_is_said_where_there_is_no_room() -> None:
    remarks = [Remark("A", "x " * 50, 0), Remark("B", "y", 1), Remark("C", "z", 0)]
    assert printed(Brief(remarks, 1))[-1] == "C  z"


words = st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=20).map(" ".join)
some_remarks = st.lists(
    st.builds(Remark, st.text("ABC", min_size=1, max_size=9), words, st.integers(1, 3)), max_size=8
)


@given(some_remarks, st.integers(1, 9), st.integers(30, 100))
def test_no_more_lines_are_printed_than_asked(
    remarks: list[Remark], lines: int, width: int
) -> None:
    shown = printed(Brief(remarks, lines), width)
    assert len(shown) <= lines
    assert max(map(len, shown), default=0) <= width
    everything = printed(Brief(remarks, 1000), width)
    assert (shown == everything) == (len(everything) <= lines)


def test_the_remarks_of_a_run(ran: RunResult) -> None:
    missed = LimitOutcome("ttft", "p99", 100.0, 339.2, 0.5, False)
    counted = replace(ran.simulated.serving.counted, slo=(missed,))
    told = replace(
        ran,
        simulated=replace(ran.simulated, serving=replace(ran.simulated.serving, counted=counted)),
        cautions=("a caution",),
        doubts=("x (assumed, -3.0 %)", "y (assumed, -2.0 %)", "z (assumed, -1.0 %)"),
    )
    tpot_ms, plain_ms = 1e3 * ran.simulated.tpot_s, 1e3 * ran.baseline.tpot_s
    shown = Page("t", standing=standing(told, Interval(2.5, 3.55)))
    brief = in_brief(shown, "a/report.html (all tables here: --long)").brief
    assert brief
    remarks = brief.remarks
    assert [(remark.name, remark.words) for remark in remarks] == [
        (
            "Answer",
            f"{tpot_ms:.2f} ms per token, {plain_ms:.1f} without speculation (simulation).",
        ),
        ("Interval", f"Speed-up {ran.speedup:.2f}x (90 % interval 2.50 to 3.55)."),
        ("SLO", "TTFT p99 339.2 of 100.0 ms MISSED."),
        ("Beware", "A caution."),
        ("Why", "T_draft = 12.0 ms is hidden behind Δ = 18.0 ms with 6.00 ms to spare."),
        ("Uncertain", "x (assumed, -3.0 %); y (assumed, -2.0 %)."),
        ("Report", "a/report.html (all tables here: --long)"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "mirror_qwen3_32b_m2_ultra",
        "autoregressive_qwen3_32b_a100",
        "apart_eagle3_qwen3_32b_4xh100",
        "specpipe_llama_3_1_70b_8x3090",
    ],
)
def test_the_answer_of_a_run_has_ten_lines_at_most(name: str) -> None:
    result, span = run_with_interval(load(name, ["requests.count=8"]))
    shown = in_brief(Page("t", standing=standing(result, span)), f"reports/{name}/report.html")
    assert shown.brief
    lines = printed(shown.brief, 100)
    assert 3 <= len(lines) <= LINES == 9
    assert max(map(len, lines)) <= 100
    told = [line.split()[0] for line in lines]
    assert (told[0], told[-1]) == ("Answer", "Report")
    assert [name for name in told if name in MOST] == [name for name in MOST if name in told]
