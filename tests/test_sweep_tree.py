"""The sweep over recorded trees in a world small enough to add up by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_tree_replay import trace_of

from simulator.cli import main
from simulator.scenario import load
from simulator.sweep_tree import tree_sweep

TEXT = """\
strategy: {name: specpipe, width: 2, branching: 2, prune_ms: 1}
durations: {stages_ms: [10, 10], draft_step_ms: 3}
acceptance: {trace: ./x.npz}
"""
BEAMS = [{"width": 1, "branching": 2, "stages": 2}, {"width": 2, "branching": 2, "stages": 2}]


def recorded(folder: Path) -> str:
    """Two requests of three tokens: the narrow tree misses once in the first and twice in the second, the wide one once."""
    trace = trace_of(
        [0] * 8,
        offsets=(0, 4, 8),
        header={"beams": BEAMS},
        beam_steps=[[0, 2, 1, 2, 0, 2, 2, 2], [0, 2, 1, 1, 0, 2, 1, 2]],
        beam_hit=[[0, 1, 0, 1, 0, 0, 0, 1], [0, 1, 1, 1, 0, 1, 0, 1]],
        beam_rows=[
            [[0, 1, 1, 1, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 1, 1]],
            [[0, 1, 2, 2, 0, 1, 2, 1], [0, 2, 0, 0, 0, 2, 0, 2]],
        ],
    )
    trace.write(folder / "x.npz")
    (folder / "x.yaml").write_text(TEXT)
    return str(folder / "x.yaml")


def test_every_recorded_tree_beside_eq_1(tmp_path: Path) -> None:
    """Hits cost 11 ms, refills 11 + 10. Narrow: 21 + 11 + 21 and 3 x 21 over 6 tokens; wide: 21 + 11 + 11 and 21 + 11 + 21."""
    narrow, wide = tree_sweep(load(recorded(tmp_path)))
    assert (narrow.width, wide.width) == (1, 2)
    assert (narrow.tpot_ms, wide.tpot_ms) == pytest.approx(((53 + 63) / 6, (43 + 53) / 6))
    assert (narrow.hit, wide.hit) == pytest.approx((3 / 6, 5 / 6))
    assert narrow.printed_ms == pytest.approx(10 + 0.5 * 20)
    assert (narrow.behind_ms, wide.behind_ms) == pytest.approx((20 / 6, 0))
    assert (narrow.ties, wide.ties) == (False, True)
    assert wide.step_ms == pytest.approx(11)


def test_the_command_prints_what_the_sweep_found(tmp_path: Path) -> None:
    name = recorded(tmp_path)
    found = json.loads(CliRunner().invoke(main, ["trees", name, "--json"]).stdout)
    assert [tree["width"] for tree in found["trees"]] == [1, 2]
    shown = CliRunner().invoke(main, ["trees", name]).stdout
    assert "best" in shown
    assert "83.3 %" in shown


def test_a_scenario_without_recorded_trees_is_told_so() -> None:
    result = CliRunner().invoke(main, ["trees", "pipeline_llama_3_1_70b_8x3090"])
    assert result.exit_code == 2
    assert "expected a scenario of specpipe with a trace that holds trees over 8 stages" in result.stderr


def test_what_the_shipped_recording_says_about_width_and_branching() -> None:
    """As in the paper two children are too few and four enough; hits saturate with width, and past a tile they do not pay."""
    points = {(point.width, point.branching): point for point in tree_sweep(load("specpipe_llama_3_1_70b_8x3090"))}
    times = {tree: point.tpot_ms for tree, point in points.items()}
    enough = [times[64, k] for k in (4, 8, 16, 32)]
    assert max(enough) < 1.02 * min(enough) < times[64, 2]
    hits = [points[w, 16].hit for w in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert hits == sorted(hits)
    assert hits[-1] - hits[-2] < 0.01 < hits[1] - hits[0]
    assert times[128, 16] > times[64, 16] > times[32, 16]
    assert points[32, 16].ties
    assert points[32, 16].tile_edge
    assert not points[16, 16].tile_edge
