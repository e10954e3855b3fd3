"""The sweep over recorded trees in a world small enough to add up by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from test_tree_replay import trace_of

from simulator.cli.main import main
from simulator.inputs.traces import file as trace_file
from simulator.papers.specpipe.trees import (
    LevelTimes,
    TreePoint,
    TreeStudies,
    TreeStudy,
    tree_study,
    tree_sweep,
)
from simulator.papers.specpipe.trees_page import (
    headline,
    hiding,
    highlights,
    page as page_of,
    sentences,
    tree_figure,
)
from simulator.report.blocks import Highlight
from simulator.scenario import load

TEXT = """\
strategy: {name: specpipe, width: 2, branching: 2, prune_ms: 1}
durations: {stages_ms: [10, 10], draft_step_ms: 3}
acceptance: {trace: ./x.npz}
"""
SHIPPED = "specpipe_llama_3_1_70b_8x3090"
BEAMS = [{"width": 1, "branching": 2, "stages": 2}, {"width": 2, "branching": 2, "stages": 2}]


def recorded(folder: Path) -> str:
    """Two requests of three tokens: the narrow tree misses once in the first and twice in the
    second, the wide one once.
    """
    trace = trace_of(
        [0] * 8,
        offsets=(0, 4, 8),
        header={"beams": BEAMS},
        beam_steps=[[0, 2, 1, 2, 0, 2, 2, 2], [0, 2, 1, 1, 0, 2, 1, 2]],
        beam_hit=[[0, 1, 0, 1, 0, 0, 0, 1], [0, 1, 1, 1, 0, 1, 0, 1]],
        beam_rows=[
            [[0, 1, 1, 1, 0, 1, 1, 1], [0, 1, 1, 1, 0, 1, 1, 1]],
            [[0, 2, 2, 2, 0, 2, 2, 2], [0, 1, 1, 1, 0, 1, 1, 1]],
        ],
    )
    trace_file.write(trace, folder / "x.npz")
    (folder / "x.yaml").write_text(TEXT)
    return str(folder / "x.yaml")


def test_every_recorded_tree_beside_eq_1(tmp_path: Path) -> None:
    """Hits cost 11 ms, refills 11 + 10. Narrow: 21 + 11 + 21 and 3 x 21 over 6 tokens; wide: 21 +
    11 + 11 and 21 + 11 + 21.
    """
    narrow, wide = tree_sweep(load(recorded(tmp_path)))
    assert (narrow.width, wide.width) == (1, 2)
    assert (narrow.tpot_ms, wide.tpot_ms) == pytest.approx(((53 + 63) / 6, (43 + 53) / 6))
    assert (narrow.hit, wide.hit) == pytest.approx((3 / 6, 5 / 6))
    assert narrow.printed_ms == pytest.approx(10 + 0.5 * 20)
    assert (narrow.behind_ms, wide.behind_ms) == pytest.approx((20 / 6, 0))
    assert (narrow.ties, wide.ties) == (False, True)
    assert wide.step_ms == pytest.approx(11)
    assert (narrow.steps, wide.steps) == pytest.approx((11 / 6, 9 / 6))
    assert narrow.mean_step_ms * narrow.steps == pytest.approx(narrow.tpot_ms)


def test_a_width_that_requests_share_is_swept_as_the_width_of_each(tmp_path: Path) -> None:
    """A recorded tree is that of one request, whatever the rows of all together."""
    shared = [
        "strategy.width_rule=shared",
        "strategy.width=4",
        "requests={concurrency: 2, count: 2}",
    ]
    alone, together = (tree_study(load(recorded(tmp_path), more)) for more in ([], shared))
    assert together.points == alone.points
    assert together.levels.step_ms == pytest.approx(alone.levels.step_ms)


def test_a_late_miss_costs_its_token_one_step_more(tmp_path: Path) -> None:
    """Narrow: misses behind which a token follows are two; each adds a step of 11 ms to 53 + 63."""
    narrow, _ = tree_sweep(load(recorded(tmp_path), ["strategy.late=true"]))
    late = 1 + 2
    assert narrow.steps == pytest.approx((11 + late) / 6)
    assert narrow.tpot_ms == pytest.approx((53 + 63 + late * 11) / 6)


def test_the_command_prints_what_the_sweep_found(tmp_path: Path) -> None:
    name = recorded(tmp_path)
    (found,) = json.loads(CliRunner().invoke(main, ["trees", name, "--json"]).stdout)["studies"]
    assert [tree["width"] for tree in found["trees"]] == [1, 2]
    shown = CliRunner().invoke(main, ["trees", name, "--long"]).stdout
    assert "best" in shown
    assert "83.3 %" in shown


@pytest.mark.parametrize(
    "arguments",
    [["pipeline_llama_3_1_70b_8x3090"], [SHIPPED, "--set", "strategy.name=specpipe_tandem"]],
)
def test_a_scenario_without_recorded_trees_is_told_so(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["trees", *arguments])
    assert result.exit_code == 2
    assert (
        "expected a scenario of specpipe, with a trace that holds trees over its 8 stages"
        in result.stderr
    )


def test_a_level_is_flat_within_a_tile_and_hides_behind_the_last_stage() -> None:
    """RTX 3090: 32 rows hide behind the last stage and its LM head, the next do not, and 64 are as
    quick again as measured.
    """
    study = tree_study(load("specpipe_llama_3_1_70b_8x3090"))
    levels = study.levels
    assert levels.tiles == (64, 128)
    assert levels.hidden_rows == 32
    jumps = {int(rows) + 2 for rows in np.flatnonzero(np.diff(levels.body_ms) > 1.0)}
    assert jumps == {32, 65}
    assert set(levels.step_ms[:32]) == {levels.step_ms[0]}
    assert levels.step_ms[63] == pytest.approx(study.find(64, 16).step_ms)


LAST = "the last stage, one row and the LM head (3.000 ms)"


@pytest.mark.parametrize(
    ("body", "rows", "said"),
    [
        (
            [1.0, 2, 4, 3, 5, 2, 6, 9],
            2,
            f"A full level hides behind {LAST} up to 2 rows and again at 4 and again at 6, where "
            "width costs no time; 8 rows take 9.000 ms.",
        ),
        (
            [1.0, 2, 4, 5, 6, 7, 8, 9],
            2,
            f"A full level hides behind {LAST} up to 2 rows, where width costs no time; 4 rows "
            "take 5.000 ms.",
        ),
        ([4.0, 2, 2, 2, 2, 2, 2, 2], 0, f"Any level takes longer than {LAST}."),
        (
            [1.0, 2, 2, 2, 2, 2, 2, 2],
            8,
            f"A full level of up to 8 rows hides behind {LAST}: width costs no time.",
        ),
    ],
)
def test_rows_hide_up_to_the_first_longer_level_though_others_may_hide_again(
    body: list[float], rows: int, said: str
) -> None:
    levels = LevelTimes(np.array(body), 3.0, np.array(body), (2, 4, 6, 8))
    assert levels.hidden_rows == rows
    assert hiding(TreeStudy("any", [], levels)) == said


def test_the_interval_of_the_optimum_ends_where_trees_are_told_apart() -> None:
    below, above = tree_study(load("specpipe_llama_3_1_70b_8x3090")).interval
    assert (below.width, above.width) == (32, 128)
    four = tree_study(load("specpipe_llama_3_1_70b_4xl40"))
    assert (four.interval[0].width, four.interval[1]) == (16, None)
    assert "up to the widest recorded" in next(sentences(four))


def test_the_width_of_the_paper_is_the_best_on_both_cards() -> None:
    """With the kernels of an L40, 64 rows hide behind the last stage; with those of a 3090 they tie
    with the best.
    """
    study = tree_study(load("specpipe_llama_3_1_70b_8xl40"))
    assert {point.width for point in study.points if point.ties} == {64}
    assert {point.branching for point in study.points if point.ties} == {4, 8, 16, 32}
    assert study.levels.hidden_rows == 64
    said = " ".join(sentences(tree_study(load("specpipe_llama_3_1_70b_8x3090"))))
    assert "The paper's tree, w = 64 and k = 16, ties with it" in said
    assert "hides behind the last stage" in said


def test_a_page_holds_the_picture_every_tree_and_its_command(tmp_path: Path) -> None:
    page = tmp_path / "trees.md"
    name = recorded(tmp_path)
    done = CliRunner().invoke(
        main, ["trees", name, name, "--set", "strategy.prune_ms=2", "--out", str(page)]
    )
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert text.count("\n| 2 | 2 | 83.3 % |") == 2
    assert f"--set strategy.prune_ms=2 --out {page}" in text
    # our own
    words = "".join(ElementTree.parse(tmp_path / "trees.svg").getroot().itertext())
    assert "end of a token tile" not in words
    assert "k = 2" in words
    assert (
        CliRunner().invoke(main, ["trees", name, "--out", str(tmp_path / "no" / "x.svg")]).exit_code
        == 2
    )


def test_what_the_shipped_recording_says_about_width_and_branching() -> None:
    """As in the paper two children are too few and four enough; hits saturate with width, and past
    a tile they do not pay.
    """
    points = {
        (point.width, point.branching): point
        for point in tree_sweep(load("specpipe_llama_3_1_70b_8x3090"))
    }
    times = {tree: point.tpot_ms for tree, point in points.items()}
    enough = [times[64, k] for k in (4, 8, 16, 32)]
    assert max(enough) < 1.02 * min(enough) < times[64, 2]
    hits = [points[w, 16].hit for w in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert hits == sorted(hits)
    assert hits[-1] - hits[-2] < 0.01 < hits[1] - hits[0]
    assert times[128, 16] > times[32, 16] > times[64, 16]
    assert points[64, 16].ties
    assert points[64, 16].tile_edge
    assert not points[16, 16].tile_edge


def test_a_sampled_text_is_in_the_tree_less_often() -> None:
    """At temperature 0.6 a tree of any width holds less of the text, and a token takes longer (the
    paper: by 4.39 %).
    """
    greedy, warm = (
        {
            (point.width, point.branching): point
            for point in tree_sweep(load(f"specpipe_llama_3_1_70b_8x3090{name}"))
        }
        for name in ("", "_warm")
    )
    assert set(warm) == {(4, 16), (16, 16), (64, 16)}
    for tree, point in warm.items():
        assert point.hit < greedy[tree].hit
        assert point.tpot_ms > greedy[tree].tpot_ms


# ---- what the page says


BEST = TreePoint(64, 8, 0.75, 40.0, 0.5, 42.0, 20.0, 2.0, 0.0, 0.0, True, True)
TIED = TreePoint(64, 16, 0.8, 41.0, 0.5, 43.0, 20.5, 2.0, 1.0, 0.6, True, True)
NARROW = TreePoint(32, 16, 0.5, 50.0, 0.5, 52.0, 20.0, 2.5, 10.0, 0.5, False, False)
WIDE = TreePoint(128, 16, 0.9, 60.0, 0.5, 62.0, 30.0, 2.0, 20.0, 0.5, False, True)


def stated(*points: TreePoint, tiles: tuple[int, ...] = (64,)) -> TreeStudy:
    """A study of these trees, whose levels hide at any width."""
    levels = LevelTimes(np.full(128, 1.0), 3.0, np.full(128, 3.0), tiles)
    return TreeStudy("any", list(points), levels)


def test_a_study_in_sentences() -> None:
    study = stated(NARROW, BEST, TIED, WIDE)
    assert headline(study) == "any: w = 64, k = 8 is best, with 40.0 ms per token"
    assert list(highlights(study)) == [
        Highlight("40.0 ms", "per token with w = 64, k = 8, the best tree (± 0.50)"),
        Highlight("75.0 %", "of the tokens are in it"),
        Highlight("1", "recorded trees differ from it by no more than chance"),
    ]
    assert list(sentences(study)) == [
        "Best: w = 64, k = 8 with 40.00 ms per token; ties with 64 x 16. Interval of the optimum: "
        "above 32 (10.00 ms slower), below 128 (20.00 ms slower).",
        "w = 64 ends a token tile (tiles of these devices: 64 rows).",
        "A full level of up to 128 rows hides behind the last stage, one row and the LM head "
        "(3.000 ms): width costs no time.",
        "The paper's tree, w = 64 and k = 16, ties with it (1.000 ± 0.60 ms behind): 2.000 steps a "
        "token of 20.50 ms on average, against 2.000 of 20.00 ms. It holds 80.0 % of the tokens, "
        "the best tree 75.0 %.",
        "Branching at w = 64, ms per token: 40.00 (k = 8), 41.00 (k = 16). From k = 4 on they are "
        "within 2.5 %; k = 8 is 0.0 % behind.",
    ]


def test_a_study_that_nothing_ties_with_in_sentences() -> None:
    behind = replace(TIED, ties=False)
    best = replace(BEST, width=32, tile_edge=False)
    first, edge, _, paper = sentences(stated(best, behind, tiles=(64, 128)))
    assert first == (
        "Best: w = 32, k = 8 with 40.00 ms per token; no other recorded tree ties with it. "
        "Interval of the optimum: from the narrowest recorded, below 64 (1.000 ms slower)."
    )
    assert edge == "w = 32 does not end a token tile (tiles of these devices: 64, 128 rows)."
    assert paper.startswith(
        "The paper's tree, w = 64 and k = 16, is slower by 1.000 ± 0.60 ms: 2.000 steps"
    )


def test_a_single_tree_in_sentences() -> None:
    alone, hidden = sentences(stated(replace(BEST, branching=16), tiles=()))
    assert alone == (
        "Best: w = 64, k = 16 with 40.00 ms per token; no other recorded tree ties with it. "
        "Interval of the optimum: from the narrowest recorded, up to the widest recorded."
    )
    assert hidden.startswith("A full level of up to 128 rows")


def test_a_page_of_trees_reads_so() -> None:
    page = page_of(TreeStudies((stated(NARROW, BEST, TIED, WIDE), stated(BEST))))
    assert page.title == "Width and branching of the draft tree"
    assert page.answer == (
        "any: w = 64, k = 8 is best, with 40.0 ms per token; any: w = 64, k = 8 is best, with 40.0 "
        "ms per token."
    )
    table = page.sections[0].blocks[1]
    assert table.title == "Trees of any"
    assert table.head == [
        "w",
        "k",
        "in tree",
        "steps",
        "step ms",
        "ms per token",
        "behind",
        "Eq. (1)",
        "",
    ]
    assert table.rows[1:3] == [
        ("64", "8", "75.0 %", "2.00", "20.00", "40.00 ± 0.50", "", "42.00", "best edge"),
        ("64", "16", "80.0 %", "2.00", "20.50", "41.00 ± 0.50", "1.000", "43.00", "ties edge"),
    ]
    assert [row[-1] for row in table.rows[::3]] == ["", "edge"]


def test_a_picture_of_trees_reads_so() -> None:
    drawing = tree_figure([stated(NARROW, BEST, TIED, WIDE)])
    said = [
        [axes.get_xlabel(), axes.get_ylabel(), *axes.get_legend_handles_labels()[1]]
        for axes in drawing.axes
    ]
    assert said == [
        [
            "",
            "t(w), law (ms)",
            "end of a token tile",
            "step, full levels",
            "slowest stage before the last",
            "last stage: one row, LM head",
        ],
        ["", "tokens in the tree (%)", "k = 8", "k = 16"],
        [
            "width w",
            "E(T), replay (ms)",
            "k = 8",
            "k = 16",
            "best",
            "Eq. (1), at the k of most widths",
        ],
    ]
