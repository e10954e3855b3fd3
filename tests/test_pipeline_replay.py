"""The vectorised replay against the event engine, step for step, where times depend on rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_flow_line import pipelines
from test_specpipe import cost_of, played, specpipe
from test_tree_replay import trace_of

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import RecordedPassages
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost
from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.papers.specpipe.replay import StepTables, token_seconds
from tests.formulas import equal_stages


class ByRows(StatedCost):
    """Stages, links and draft take longer for more rows, each in its own way."""

    def stage(self, index: int, rows: Rows) -> Phase:
        return Phase(super().stage(index, rows).wall_s * (1 + (rows.tokens + index) % 5), {})

    def carry(self, index: int, tokens: int) -> float:
        return super().carry(index, tokens) * tokens

    def draft(self, rows: Rows, purpose: str = "window") -> Phase:
        return Phase(super().draft(rows).wall_s * (1 + rows.tokens % 3), {})


@st.composite
def recordings(draw: st.DrawFn) -> tuple[PipelineTimes, Trace]:
    """A pipeline, and passages of up to 6 rows a level with any gaps; a miss is followed by a full
    refill.
    """
    times = draw(pipelines())
    m = len(times.stages)
    steps, hits = [m], []
    for _ in range(draw(st.integers(1, 15))):
        hits.append(draw(st.booleans()))
        steps.append(draw(st.integers(1, m)) if hits[-1] else m)
    hits.append(draw(st.booleans()))
    rows = np.array(
        draw(st.lists(st.integers(1, 6), min_size=m * len(steps), max_size=m * len(steps)))
    ).reshape(m, -1)
    count = len(steps) + 1
    beam = {"width": 6, "branching": 2, "stages": m}
    extra = {
        "beam_steps": [[0, *steps]],
        "beam_hit": [[0, *hits]],
        "beam_rows": np.pad(rows, ((0, 0), (1, 0)))[None],
    }
    return times, trace_of([0] * count, header={"beams": [beam]}, **extra)


@settings(deadline=None)
@given(recordings(), st.booleans())
def test_replay_and_engine_agree_step_for_step(
    recording: tuple[PipelineTimes, Trace], late: bool
) -> None:
    times, trace = recording
    m = len(times.stages)
    strategy = specpipe(times, width=6, branching=2, late=late)
    steps, hit, rows = (
        trace.extra[f"beam.{name}"][0][..., 1:].astype(np.int64)
        for name in ("steps", "hit", "rows")
    )
    cost = ByRows(cost_of(times).durations)
    found = token_seconds(StepTables.of(strategy, cost, 10), steps, rows, hit.astype(bool), late)
    log, _, _ = played(
        strategy, times, RecordedPassages(Replay(trace), Beam(6, 2, m)), len(steps), 1, cost
    )
    arrivals = [one.start_s + one.duration_s for one in log if sum(one.tokens)]
    assert np.cumsum(found) == pytest.approx(arrivals, rel=1e-9)


def test_a_million_independent_hits_meet_eq_2() -> None:
    """Eight stages of 50 ms, P = 0.97: 50 (1 + 0.03 x 8) ms as printed, within four standard errors
    of 1e6 tokens.
    """
    hit = np.random.default_rng(4).random(1_000_000) < 0.97
    steps = np.where(np.concatenate(([False], hit[:-1])), 1, 8)
    rows = np.full((8, 1_000_000), 64, dtype=np.uint8)
    tables = StepTables(np.full((8, 65), 0.05), np.zeros((7, 65)), np.zeros(65), 0.0)
    for late, refill in ((True, 8), (False, 7)):
        waits = token_seconds(tables, steps, rows, hit, late)
        assert abs(waits.mean() - equal_stages(0.05, 0.97, refill)) < 4 * waits.std() / 1e3
