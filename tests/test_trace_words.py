"""What the pages of traces say of numbers small enough to be written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.core.acceptance.statistics import (
    DrafterNumbers,
    FlavourNumbers,
    Hits,
    PipelineNumbers,
    Statistics,
    WindowMean,
)
from simulator.report.blocks import Table
from simulator.report.pages.trace import comparison_page, facts, figures, page
from tests.test_acceptance import make_trace

TRACE = make_trace([[9, 0, 0, 2], [0, 5, 0, 0]])
WINDOWS = (WindowMean(1, 0.75, 0.75, 0.8, 0.0, 6.667), WindowMean(2, 1.2, 1.3125, 1.25, 9.375, 4.2))
NUMBERS = Statistics(
    requests=1200,
    tokens=34567,
    rate=0.745,
    flavours=(FlavourNumbers("only", 1200, 34567, 0.745, WINDOWS, (0.7, 0.6), 0.125),),
    windows=WINDOWS,
    hits=(Hits(None, 1, 0.745, 0.0), Hits(None, 2, 0.8, None), Hits(0.5, 8, 0.9, 0.25)),
    runs={0: 1, 4: 2, 30: 1},
    repetition=None,
    drafters=(DrafterNumbers("draft", (0.7, 0.6), 2, 1.2),),
    pipelines=(PipelineNumbers(4, 2, 8, 0.5, 2.5, 3.25, 20.0),),
)
FORMULAS = (
    "Accepted draft tokens, correction or bonus not counted. i.i.d.: rate + rate² + ... with the "
    "replayed rate at γ = 1; law: from all positions, visited or not"
)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({}, "vocabulary of 100; greedy; any window; format 1, 10.0 bytes a token"),
        (
            {"temperature": None, "vocabulary": None, "window": 7},
            "vocabulary not known; temperature not stated; windows of up to 7 draft tokens; format "
            "1, 10.0 bytes a token",
        ),
        (
            {"temperature": 0.6, "vocabulary": 32000},
            "vocabulary of 32,000; sampled at temperature 0.6; any window; format 1, 10.0 bytes a "
            "token",
        ),
    ],
)
def test_what_was_recorded_in_sentences(header: dict[str, Any], said: str) -> None:
    trace = replace(TRACE, header=TRACE.header | header)
    counted, pair = facts(trace, NUMBERS, 80)
    assert counted == "1,200 requests, 34,567 tokens; accepted at 74.5 % of all positions"
    assert pair == f"{trace.pair[0].upper()}{trace.pair[1:]}; {said}"


def test_where_a_recording_comes_from_in_sentences() -> None:
    stated = {"source": "a talk", "derived_from": {"trace": "x", "window": 3}}
    trace = replace(TRACE, header=TRACE.header | stated)
    assert list(facts(trace, NUMBERS, 80))[2:] == [
        "source: a talk",
        "derived from a recording: trace x, window 3",
    ]


def test_a_page_of_a_trace_reads_so() -> None:
    written = page("mine", TRACE, NUMBERS, 80)
    assert written.title == "trace mine"
    tables: dict[str, Table] = {
        section.title: section.blocks[0] for section in written.sections[:-1]
    }
    assert {title: [shown.title, shown.head, *shown.rows] for title, shown in tables.items()} == {
        "Accepted draft tokens per window (correction or bonus not counted), errors against the "
        "replay": [
            "Windows",
            ["γ", "replayed", "i.i.d.", "error", "law", "error"],
            ("1", "0.750", "0.750", "0.00 %", "0.800", "+6.67 %"),
            ("2", "1.200", "1.312", "+9.38 %", "1.250", "+4.20 %"),
        ],
        "By kind of text: accepted at all positions; the rest at γ = 2": [
            "Kinds of text",
            ["", "tokens", "accepted", "replayed", "i.i.d. error", "law error", "repeats"],
            ("only", "34,567", "74.5 %", "1.200", "+9.38 %", "+4.20 %", "12.5 %"),
        ],
        "Emitted token among the first k choices; at corrections: where the draft was rejected": [
            "Hits",
            ["", "k = 1", "k = 2", "k = 8"],
            ("draft, all positions", "74.5 %", "80.0 %"),
            ("draft, at corrections", "0.0 %", ""),
            ("exit at 0.5, all positions", "90.0 %"),
            ("exit at 0.5, at corrections", "25.0 %"),
        ],
        "Every drafter of the same text: kept at each position, in % of the windows that got "
        "there": [
            "Drafters",
            ["", "1", "2", "3", "4", "5", "window", "kept a step"],
            ("draft", "70.0", "60.0", "", "", "", "2", "1.200"),
        ],
        "Dynamic trees in a pipeline (SpecPipe), as grown and verified": [
            "Dynamic trees",
            [
                "width",
                "children",
                "stages",
                "in the tree",
                "steps a token",
                "rows a step",
                "in flight",
            ],
            ("4", "2", "8", "50.0 %", "2.500", "3.250", "20.00"),
        ],
        "Accepted in a row: windows as long as the recording allows": [
            "Run lengths",
            ("tokens", "windows"),
            ("0", "25.0 %"),
            ("4", "50.0 %"),
            ("24 or more", "25.0 %"),
        ],
    }
    assert written.sections[-1].title == "How the means are computed"
    assert written.sections[-1].blocks[0].items == [FORMULAS]


def test_a_page_of_traces_side_by_side_reads_so() -> None:
    bare = replace(NUMBERS, flavours=(), windows=WINDOWS[:1], hits=(), repetition=0.25)
    written = comparison_page([("mine", NUMBERS), ("bare", bare)])
    shown, formulas = written.opening
    assert shown.head == ["", "mine", "bare"]
    assert shown.rows == [
        ("requests", "1,200", "1,200"),
        ("tokens", "34,567", "34,567"),
        ("repeated four-grams", "", "25.0 %"),
        ("accepted, all positions", "74.5 %", "74.5 %"),
        ("  only", "74.5 %", ""),
        ("γ = 1: replayed", "0.750", "0.750"),
        ("γ = 2: replayed", "1.200", ""),
        ("γ = 1: i.i.d. error", "0.00 %", "0.00 %"),
        ("γ = 2: i.i.d. error", "+9.38 %", ""),
        ("γ = 1: law error", "+6.67 %", "+6.67 %"),
        ("γ = 2: law error", "+4.20 %", ""),
        ("draft, first 1", "74.5 %", ""),
        ("exit at 0.5, first 8", "90.0 %", ""),
    ]
    assert formulas.items == [FORMULAS]


def test_pictures_name_their_axes() -> None:
    """Axes and legends of every picture; trees are drawn where there are two of them."""
    trees = (*NUMBERS.pipelines, PipelineNumbers(8, 2, 8, 0.6, 2.0, 5.0, 30.0))
    drawings = figures(replace(NUMBERS, pipelines=trees))
    said = {}
    for name, drawing in drawings.items():
        axes = drawing.axes[0]
        labels = axes.get_legend_handles_labels()[1]
        said[name] = [axes.get_xlabel(), axes.get_ylabel(), *labels]
    assert said == {
        "windows": [
            "window γ (draft tokens)",
            "accepted draft tokens",
            "i.i.d., rate at γ = 1",
            "law, all positions",
            "replay",
        ],
        "run_lengths": [
            "draft tokens accepted in a row (last: 24 or more)",
            "windows as long as the recording allows (%)",
            "i.i.d., rate 0.750",
            "replay",
        ],
        "acceptance_by_position": [
            "position in the window (all before it accepted)",
            "accepted (%)",
            "only",
        ],
        "hits_by_width": [
            "first k choices of the draft or exit",
            "emitted token among them (%)",
            "draft",
            "exit at 50% of depth",
        ],
        "exit_hits_at_corrections": [
            "first k choices",
            "emitted token among them (%)",
            "all positions",
            "at corrections",
        ],
        "drafters_by_position": [
            "position in the window (all before it kept)",
            "kept (%)",
            "draft",
        ],
        "pipeline_hits": [
            "width of the tree (nodes a level)",
            "token in the tree (%)",
            "2 children, 8 stages",
        ],
    }
    assert drawings["pipeline_hits"].axes[1].get_ylabel() == "pipeline steps a token"
