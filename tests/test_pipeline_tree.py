"""SpecInfer's tree over the stages of a pipeline: tiny worlds with all their spans, its law on the
event engine.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from test_flow_line import pipelines
from test_specpipe import cost_of, played
from test_tree_replay import trace_of

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle, Rates, Replay
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.core.strategies.pipeline_tree import PipelineTree
from simulator.inputs.traces import file as trace_file
from simulator.scenario import load
from simulator.scenario.evaluate import law

TIMES = PipelineTimes((10.0, 20.0, 10.0), (1.0, 1.0), draft=2.0)


def strategy_for(times: PipelineTimes, requests: int, **fields: Any) -> Strategy:
    return PipelineTree(**fields).fitted_to(requests, len(times.stages))


def test_the_paper_s_tree_has_twenty_nodes() -> None:
    """SP-11 a; the root is verified along."""
    assert PipelineTree().levels == (1, 1, 3, 3, 3, 3, 3, 3)
    assert PipelineTree().needs.cache_tokens == 21


def test_one_request_drafts_and_then_passes_the_stages() -> None:
    """Two levels of 2 s each, then 42 s through the stages; two tokens kept and one more, for 46
    s.
    """
    log, loop, world = played(strategy_for(TIMES, 1, branching=(1, 2)), TIMES, Cycle((2,)), 6, 1)
    assert [(one.start_s, one.duration_s, one.tokens) for one in log] == [
        (0, 46, (3,)),
        (46, 46, (3,)),
    ]
    assert [
        (s.lane, s.start_s, s.end_s, s.label) for s in world.spans if s.start_s < s.end_s <= 46
    ] == [
        *(
            ("draft", 0, 4, "draft tree"),
            ("stage 1", 4, 14, "compute"),
            ("link 1", 14, 15, "transmit"),
        ),
        *(
            ("stage 2", 15, 35, "compute"),
            ("link 2", 35, 36, "transmit"),
            ("stage 3", 36, 46, "compute"),
        ),
    ]
    assert [(iteration.rows, loop.ledger.tally.verified_rows) for iteration in log] == [
        ((3,), 8)
    ] * 2, "a root and three nodes are verified"


def test_three_requests_draft_while_others_are_verified() -> None:
    """In flight together the slowest stage works all the time: 60 s between two steps of each, two
    tokens a step.
    """
    log, _, world = played(strategy_for(TIMES, 3, branching=(1, 2)), TIMES, Cycle((1,)), 10, 3)
    mine = [one.start_s + one.duration_s for one in log if one.requests == (0,)]
    assert np.diff(mine)[1:] == pytest.approx([60] * (len(mine) - 2))
    busy = sorted((s.start_s, s.end_s) for s in world.spans if s.lane == "stage 2")
    assert all(end == start for (_, end), (start, _) in pairwise(busy))


@given(
    pipelines(),
    st.integers(1, 10),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 4),
)
def test_it_keeps_its_law(
    times: PipelineTimes, requests: int, branching: list[int], accepted: int
) -> None:
    """Any stages, links, draft and tree, up to more requests than stages: the pace settles at its
    law to 1e-9.
    """
    strategy = strategy_for(times, requests, branching=tuple(branching))
    found = strategy.law(
        cost_of(times), lambda gamma: Cycle((accepted,)).odds(gamma, None), requests, 100
    )
    steps, kept = 30, min(accepted, len(branching)) + 1
    log, _, _ = played(strategy, times, Cycle((accepted,)), steps * kept, requests)
    first = [one.start_s + one.duration_s for one in log if 0 in one.requests]
    assert len(first) == steps
    pace = (first[-1] - first[steps // 2]) / (steps - 1 - steps // 2)
    assert pace / kept == pytest.approx(found.tpot_s, rel=1e-9)


def test_a_recording_says_what_the_tree_keeps() -> None:
    """Ranks 0, 1, 0, 2, 0, 0 behind the prefill; two children at the second level: keeps 3 (0, 1,
    0), then 0 (2), then 2.
    """
    replay = Replay(trace_of([9, 0, 1, 0, 2, 2, 0, 0]))
    strategy = PipelineTree(branching=(1, 2, 1))
    log, _, _ = played(
        strategy_for(TIMES, 1, branching=(1, 2, 1)), TIMES, strategy.reads(replay), 8, 1
    )
    assert [outcome.tokens for outcome in log] == [(4,), (1,), (3,)]


def test_stated_rates_are_those_of_the_children_at_a_level() -> None:
    odds = PipelineTree(branching=(1, 2)).reads(Rates((0.5, 0.8))).odds(2, None)
    assert odds.committed() == pytest.approx(1 + 0.5 + 0.4)


LIKE = "like: specinfer_llama_3_1_70b_8x3090\n"
FAULTS = [
    (
        "target: {model: llama_2_70b}\nstrategy: {branching: [1, 32001]}\n",
        "x.yaml:3:12: strategy.branching: a node has 32,000 children at most",
    ),
    (
        "strategy: {branching: [1, 0]}\n",
        "x.yaml:2:27: strategy.branching.1: expected 1 or more, got 0",
    ),
    ("strategy: {branching: []}\n", "x.yaml:2:12: strategy.branching: "),
    (
        "target: {pipeline: null}\n",
        "strategy: pipeline_tree runs on the stages of a pipeline; set target.pipeline",
    ),
    (
        "acceptance: {trace: ./x.npz}\n",
        "strategy.branching: x.npz holds no ranks of a draft, which a tree needs",
    ),
]


@pytest.mark.parametrize(("text", "expected"), FAULTS, ids=lambda value: value[-40:])
def test_one_line_that_helps(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_start = trace_of([0] * 4, header={"format": 2, "window": 3})
    kept = replace(by_start, run=np.array([1, 3, 2, 1], dtype=np.uint16))
    trace_file.write(kept, tmp_path / "x.npz")
    (tmp_path / "x.yaml").write_text(LIKE + text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "./x.yaml"])
    assert result.exit_code == 2
    assert expected in re.sub(r"as \S+:\d+ has it, ", "", result.stderr)


def test_a_full_pipeline_beats_one_that_waits_for_its_draft() -> None:
    """The paper's order on one server: SpecPipe, then SpecInfer, then one token after another (sec.
    4.2).
    """
    names = [f"{name}_llama_3_1_70b_8x3090" for name in ("specpipe", "specinfer", "pipeline")]
    times = []
    for name in names:
        loaded = load(name)
        times.append(law(loaded.scenario, loaded.acceptance()).tpot_s)
    assert times[0] < times[1] < times[2]
