"""What the pages of studies say of studies small enough to be written down, in whole sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure as Drawing

from simulator.papers.duodecoding import budget_page as budget
from simulator.papers.duodecoding.budget import BudgetPoint, BudgetRates, BudgetStudies, BudgetStudy
from simulator.papers.speculative_streaming import streams_page as streams
from simulator.papers.speculative_streaming.streams import StreamPoint, StreamStudy, TwoModels
from simulator.report.blocks import Code, Highlight, Listing, Page, Paragraph, Table
from simulator.report.pages import drafts, sweep
from simulator.scenario import load
from simulator.studies.drafts import RATES, DraftPoint, DraftStudy
from simulator.studies.sweep.axes import Axis, Design
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.study import Plot, SweepFile
from simulator.studies.sweep.table import SweepTable


def tables(page: Page) -> list[Table]:
    """All tables of a page, in order."""
    return [block for block in page.blocks if isinstance(block, Table)]


def words(drawing: Drawing) -> list[list[str]]:
    """What every panel of a drawing says: axes, titles, curves and notes."""
    panels = []
    for axes in drawing.axes:
        titles = [axes.get_title(loc=side) for side in ("left", "center")]
        notes = [text.get_text() for text in axes.texts]
        labels = axes.get_legend_handles_labels()[1]
        said = [axes.get_xlabel(), axes.get_ylabel(), *titles, *labels, *notes]
        panels.append([text for text in said if text])
    return panels


# ---- budget


def budget_point(gamma: int, verified: float, emitted: float, simulated: bool) -> BudgetPoint:
    """A budget with rates by law, and the same by replay and simulation where simulated."""
    rates = [
        BudgetRates(rate, *((rate, rate) if simulated else ())) for rate in (verified, emitted)
    ]
    return BudgetPoint(gamma, 1, 3.0 * gamma, 10.0, 12.0, *rates, reported_ratio=1.25)


def budget_study(simulated: bool) -> BudgetStudy:
    """Four budgets around c = 3."""
    rates = {1: (50.0, 50.0), 2: (100.0, 101.0), 3: (99.5, 110.0), 4: (90.0, 105.0)}
    points = [budget_point(gamma, *rate, simulated) for gamma, rate in rates.items()]
    return BudgetStudy("any", 3.2, 3, "stated", points, [budget_point(3, 99.5, 110.0, True)])


def test_a_budget_study_in_sentences() -> None:
    study = budget_study(True)
    assert budget.headline(study) == (
        "any: c = 3.20, so the paper's budget is 3 tokens; the most verified tokens per second "
        "come at 2 by law"
    )
    assert list(budget.highlights(study)) == [
        Highlight("3.20", "T_target / T_draft = c"),
        Highlight("2", "tokens, the budget with most verified tokens per second (law)"),
        Highlight("100", "verified tokens per second there (law)"),
    ]
    changes = "verified 1: -49.75%, 2: +0.50%, 4: -9.55%; emitted 1: -54.55%, 2: -8.18%, 4: -4.55%"
    assert list(budget.sentences(study)) == [
        "c = T_target / T_draft = 3.200, so gamma = 3",
        "most verified tokens per second at gamma = 2 by law (within 1% from 2 to 3), gamma = 2 by "
        "simulation (within 1% from 2 to 3)",
        "most emitted tokens per second at gamma = 3 by law (within 1% from 3 to 3), gamma = 3 by "
        "simulation (within 1% from 3 to 3)",
        f"against gamma = c by law: {changes}",
        f"against gamma = c by simulation: {changes}",
        "law: stated",
    ]


def test_a_budget_study_by_law_alone_in_sentences() -> None:
    study = budget_study(False)
    without_c = BudgetStudy("any", 30.0, 30, "stated", study.points, [])
    assert list(budget.sentences(without_c)) == [
        "c = T_target / T_draft = 30.00, so gamma = 30",
        "most verified tokens per second at gamma = 2 by law (within 1% from 2 to 3)",
        "most emitted tokens per second at gamma = 3 by law (within 1% from 3 to 3)",
        "law: stated",
    ]


def test_a_page_of_budgets_reads_so() -> None:
    page = budget.page(BudgetStudies((budget_study(True), budget_study(False))))
    assert page.answer == (
        "any: c = 3.20, so the paper's budget is 3 tokens; the most verified tokens per second "
        "come at 2 by law; any: c = 3.20, so the paper's budget is 3 tokens; the most verified "
        "tokens per second come at 2 by law. Write 2 tokens."
    )
    budgets, sequences, unsimulated, _ = tables(page)
    head = ["draft ms", "step ms", "law", "replay", "simul.", "emitted: law", "simul."]
    assert budgets.title == "Budgets of any"
    assert budgets.head == ["gamma", *head, "program counts"]
    assert sequences.title == "Sequences of any"
    assert sequences.head == ["sequences", *head, "program counts"]
    row = ("9.00", "12.0", "99.50", "99.50", "99.50", "110.0", "110.0", "x 1.25")
    assert budgets.rows[2] == ("3", *row)
    assert sequences.rows == [("1", *row)]
    assert not unsimulated.rows


def test_a_picture_of_budgets_reads_so() -> None:
    assert words(budget.budget_figure([budget_study(True)])) == [
        [
            "budget γ (draft tokens, one sequence)",
            "time (ms)",
            "any",
            "mean iteration, law",
            "target verifies a sequence",
            "draft writes γ tokens",
            " c = T_target / T_draft = 3.2 ",
        ],
        [
            "budget γ (draft tokens, one sequence)",
            "tokens per second",
            "verified, law",
            "verified, simulation",
            "emitted, law",
            "emitted, simulation",
            "shaded: verified within 1 % of the most, γ = 2 to 3\n"
            "most verified at γ = 2, emitted at γ = 3 (simulation)",
        ],
    ]


# ---- streams


def stream(branching: int, speedup: float, kept: int | None = None) -> StreamPoint:
    """A tree of four streams with this speed-up."""
    return StreamPoint(branching, 1000 * branching, kept, 2.5, 30.0, 12.0, speedup, 1.25)


CHAIN = stream(1, 1.5)
STREAMS = StreamStudy(
    "any",
    (CHAIN, stream(2, 1.8), stream(3, 1.4)),
    (CHAIN, stream(2, 1.7, 32), stream(3, 1.9, 32)),
    (1.6, 2.1),
    TwoModels("small", 4, 10.0, 1.0, 0.9, 1.5),
)


def test_a_stream_study_in_sentences() -> None:
    assert streams.headline(STREAMS) == (
        "Pruned, k = 3 is best: 1.90 times autoregressive decoding; unpruned, k = 2: 1.80 times."
    )
    assert list(streams.highlights(STREAMS)) == [
        Highlight("1.90 ×", "as fast, pruned, with k = 3"),
        Highlight("1.80 ×", "as fast with whole trees, k = 2"),
        Highlight("1.50 ×", "as fast without a tree, k = 1"),
    ]
    assert list(streams.sentences(STREAMS)) == [
        "Slower than the chain (k = 1): whole trees from k = 3 on, pruned ones nowhere up to k = "
        "3.",
        "As the drafter of mirror_sd, with 1 to 2 streams: 1.60, 2.10 tokens per internal step "
        "(strategy.drafter.emitted).",
        "With small as the draft of 4 tokens: R = 10.0, C_target / C_ss = 1.00, zeta / beta = "
        "0.900 (even at 1.40): streaming is 1.50 times as fast (Eq. 10, law).",
    ]


def test_a_single_stream_without_a_draft_in_sentences() -> None:
    alone = replace(STREAMS, emitted=(1.6,), two_models=None)
    assert list(streams.sentences(alone))[1:] == [
        "As the drafter of mirror_sd, with a stream: 1.60 tokens per internal step "
        "(strategy.drafter.emitted)."
    ]


def test_a_page_of_streams_reads_so() -> None:
    page = streams.page(STREAMS)
    assert page.title == "any: streams over the tree factor k"
    (trees,) = tables(page)
    assert trees.head == [
        "k",
        "nodes",
        "kept",
        "tokens",
        "step (ms)",
        "plain steps",
        "ms/token",
        "speed-up",
        "",
    ]
    same = ("2.50", "30.00", "1.250", "12.00")
    assert trees.rows == [
        ("1", "1,000", "all", *same, "1.50", ""),
        ("2", "2,000", "all", *same, "1.80", "best"),
        ("2", "2,000", "32", *same, "1.70", ""),
        ("3", "3,000", "all", *same, "1.40", ""),
        ("3", "3,000", "32", *same, "1.90", "best"),
    ]


def test_a_picture_of_streams_reads_so() -> None:
    assert words(streams.stream_figure(STREAMS)) == [
        [
            "tree factor k (tokens of a stream), and nodes of the whole tree",
            "speed-up over autoregressive",
            "whole tree",
            "pruned to 32 nodes",
            "best at k = 2: 1.80",
            "best at k = 3: 1.90",
            "the chain, k = 1",
        ],
        [
            "R: pass of the target over one of the draft",
            "ζ / β: tokens per step,\ntwo models over one",
            "even, were a step of both as long (Eq. 10 as printed)",
            "streaming is so many times as fast (Eq. 10)",
            "here, with small as the draft: 1.50",
            *(f"{level:g}" for level in streams.LEVELS),
        ],
    ]


# ---- drafts


def draft(model: str, billions: float, needed: float | None, pays: float | None) -> DraftPoint:
    """A draft whose speed-up grows with the chance that a token is kept."""
    speedups = tuple(2 * rate for rate in RATES)
    return DraftPoint(model, billions, 3.5, (4,) * len(RATES), speedups, needed, pays)


DRAFTS = DraftStudy(
    "any",
    True,
    0.72,
    1.9,
    (
        draft("small", 0.5, 0.72, 0.31),
        draft("middle", 1.5, 0.81, 0.4),
        draft("big", 4.0, None, None),
    ),
)


def test_a_draft_study_in_sentences() -> None:
    worth = "1.90 times autoregressive decoding with its best window"
    assert drafts.headline(DRAFTS) == (
        f"small is worth {worth}; middle comes level where 81% of its tokens are kept; big never "
        "comes level."
    )
    assert list(drafts.highlights(DRAFTS)) == [
        Highlight("1.90 ×", "as fast as autoregressive decoding, with small"),
        Highlight("72%", "of its tokens are kept"),
        Highlight("31%", "would have to be kept for it to pay"),
    ]
    assert list(drafts.sentences(DRAFTS)) == [
        "small keeps 72% of its tokens (acceptance stand-in: recorded from small models) and is "
        f"worth {worth}.",
        "middle, 3.0 times as big, comes level where 81% of its tokens are kept (+9 points).",
        "big, 8.0 times as big, cannot come level, however often its tokens are kept.",
    ]


def test_a_draft_that_never_pays_in_sentences() -> None:
    study = DraftStudy("any", False, 0.72, 0.9, (draft("small", 0.5, 0.72, None),))
    assert len(list(drafts.highlights(study))) == 2
    assert list(drafts.sentences(study)) == [
        "small keeps 72% of its tokens (acceptance of the scenario) and is worth 0.90 times "
        "autoregressive decoding with its best window."
    ]


def test_a_page_of_drafts_reads_so() -> None:
    (table,) = tables(drafts.page(DRAFTS))
    shares = ["at 50%", "at 60%", "at 70%", "at 80%", "at 90%"]
    assert table.head == [
        "draft",
        "1e9 weights",
        "ms a token",
        *shares,
        "pays above",
        "needs, for level",
    ]
    worth = ("1.00 (4)", "1.20 (4)", "1.40 (4)", "1.60 (4)", "1.80 (4)")
    assert table.rows == [
        ("small", "0.500", "3.50", *worth, "31%", "72%"),
        ("middle", "1.50", "3.50", *worth, "40%", "81%"),
        ("big", "4.00", "3.50", *worth, "never", "never"),
    ]


def test_a_picture_of_drafts_reads_so() -> None:
    assert words(drafts.draft_figure(DRAFTS)) == [
        [
            "draft tokens kept (%)",
            "speed-up over autoregressive decoding",
            "best window at all points; marks: level with the scenario's draft",
            "small, 3.5 ms a token",
            "middle, 3.5 ms a token",
            "big, 3.5 ms a token",
        ]
    ]


# ---- sweeps


DURATIONS = """\
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 30, draft_ms: 10}
acceptance: {always: 3}
requests: {prompt_tokens: 8, output_tokens: 41, count: 2}
"""
WINDOWS = (1, 2, 4)


def swept(columns: dict[str, list[float | None]], **stated: Any) -> SweepTable:
    """A sweep over three windows, of which the last is faulty where a column has nothing."""
    axis = Axis("strategy.gamma", WINDOWS, tuple({"strategy.gamma": gamma} for gamma in WINDOWS))
    whole = all(None not in values for values in columns.values())
    frame = pd.DataFrame(
        {
            "point": range(3),
            "strategy.gamma": WINDOWS,
            **columns,
            "fault": [None, None, None if whole else "it broke"],
        }
    )
    return SweepTable("small", SweepFile(scenario="mine", **stated), Design((axis,)), frame)


def shown(points: SweepTable, folder: Path) -> Page:
    """The page of a sweep over a scenario of stated durations."""
    (folder / "mine.yaml").write_text(DURATIONS)
    base = load(str(folder / "mine.yaml")).scenario
    return sweep.page(points, base, "specsim sweep small")


def test_a_page_of_a_sweep_reads_so(tmp_path: Path) -> None:
    plots = (
        Plot(kind="line", x="strategy.gamma", y="speedup", title="Windows"),
        Plot(kind="heatmap", x="strategy.gamma", y="strategy.gamma", value="tpot_ms", name="map"),
    )
    page = shown(
        swept(
            {
                "law_tpot_ms": [20.0, 11.0, None],
                "simulation_tpot_ms": [20.0, 10.0, None],
                "simulation_speedup": [2.0, 1.5, None],
            },
            evaluate="law then simulation",
            metrics=("tpot_ms", "speedup"),
            plots=plots,
            set={"requests.count": 1},
        ),
        tmp_path,
    )
    assert page.title == "small: 3 points of mine"
    assert page.answer == (
        "Best at strategy.gamma = 2 (time per token (ms), simulation: 10.0) and at strategy.gamma "
        "= 1 (speed-up, simulation: 2.00)."
    )
    assert list(page.highlights) == [
        Highlight("10.0", "best time per token (ms), simulation"),
        Highlight("2.00", "best speed-up, simulation"),
        Highlight("3 of 3", "points evaluated"),
        Highlight("1", "of them could not run"),
    ]
    assert list(page.opening) == [
        Paragraph(
            "Evaluated: 3 of 3 points, 1 of them faulty. Points are mine with the axes below "
            "changed, evaluated by law, the best of them by simulation. Each is evaluated once, so "
            "none has an interval here."
        ),
        Paragraph(
            "Caution: durations.draft_ms is the time of a whole window and stays 10 ms whatever "
            "strategy.gamma is, so that longer windows cost nothing here; state "
            "durations.draft_step_ms instead to let it grow with them."
        ),
        Paragraph(
            "The best point by speed-up, simulation, with its interval, its timeline and what went "
            "into it:"
        ),
        Listing("specsim run mine --set requests.count=1 --set strategy.gamma=1"),
    ]
    blocks = {section.title: section.blocks for section in page.sections}
    assert [(figure.title, figure.file) for figure in page.figures] == [
        ("Windows, line: speedup over strategy.gamma", "small_1.svg"),
        ("heatmap: tpot_ms over strategy.gamma and strategy.gamma", "small_map.svg"),
    ]
    assert blocks["Law against simulation"] == [
        Paragraph(
            "The law (marginal rates) is off the simulation's time per token by +5.00 % in the "
            "median, and by +10.00 % at strategy.gamma = 2, the worst. Points that both evaluated: "
            "2."
        )
    ]
    (wrong,) = blocks["What could not be evaluated"]
    assert (wrong.title, wrong.head) == ("Faults", ["point", "why"])
    assert wrong.rows == [("strategy.gamma=4", "it broke")]
    _, metrics = blocks["The sweep as stated"]
    assert (metrics.title, metrics.head) == ("Metrics", ["column", "what"])
    assert metrics.rows == [
        (Code("tpot_ms"), METRICS["tpot_ms"].label),
        (Code("speedup"), METRICS["speedup"].label),
    ]


def test_a_sweep_without_times_is_not_best_anywhere(tmp_path: Path) -> None:
    page = shown(swept({"law_step_ms": [1.0, 2.0, 3.0]}, evaluate="law"), tmp_path)
    assert page.answer == "No point has a time per token or a speed-up."
    assert len(page.opening) == 2


def test_a_page_shows_the_best_of_many_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST_ROWS", 2)
    points = swept({"law_tpot_ms": [20.0, 11.0, 12.0]}, evaluate="law")
    (every,) = [part for part in shown(points, tmp_path).sections if part.title == "Every point"]
    caption, table = every.blocks
    assert caption.words[0] == ("The best 2 of 3 points by time per token (ms), law; all of them: ")
    assert table.rows == [("2", "11.00"), ("4", "12.00")]
