"""SpecPipe's equations beside the two processes: where each is exact, where it bounds, where they
meet.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from test_flow_line import constant, pipelines, played, seconds

from simulator.core.strategies.common.pipeline_laws import PipelineTimes, hit_shares, unequal_stages
from tests.formulas import barrier_passage, equal_stages, per_token

chances = st.floats(0.0, 1.0)


@st.composite
def bare(draw: st.DrawFn) -> PipelineTimes:
    """Stages alone: nothing is carried, pruned or drafted."""
    return PipelineTimes(tuple(draw(st.lists(seconds, min_size=2, max_size=9))))


def test_the_steps_of_a_refill_are_as_long_as_the_stages_that_work() -> None:
    """Stages 10, 30, 20: a refill of 3 steps takes 10 + 30 + 30, one of 2 steps 30 + 30, one step
    30.
    """
    times = PipelineTimes((10.0, 30.0, 20.0))
    assert [barrier_passage(times, steps) for steps in (1, 2, 3, 4)] == [30, 60, 70, 100]
    assert (times.pace, times.latency) == (30, 60)


def test_pruning_and_transmission_overlap_or_add_up() -> None:
    """Pruning 5 and its token 1 beside the slowest of the links in use, 2 and 8; a refill step
    carries without pruning.
    """
    both = [
        PipelineTimes((10.0, 10.0, 10.0), (2.0, 8.0), 5.0, 1.0, asynchronous=overlap)
        for overlap in (True, False)
    ]
    assert [barrier_passage(times, 1) for times in both] == [18, 24]
    assert [barrier_passage(times, 3) for times in both] == [16 + 12 + 18, 16 + 12 + 18]


def test_a_draft_slower_than_the_step_sets_its_length() -> None:
    times = PipelineTimes((10.0, 20.0), draft=15.0)
    assert [barrier_passage(times, steps) for steps in (1, 2)] == [20, 35]


@given(bare(), chances)
def test_eq_1_is_the_late_tandem_and_no_less_than_the_other(
    times: PipelineTimes, hit: float
) -> None:
    m, printed = len(times.stages), unequal_stages(times.stages, hit)
    of = {
        (clock, late): per_token(times, clock, hit_shares(hit, m, late))
        for clock in ("barrier", "tandem")
        for late in (False, True)
    }
    assert of["tandem", True] == pytest.approx(printed, rel=1e-12)
    assert of["tandem", False] <= printed * (1 + 1e-12)
    assert of["barrier", True] >= printed * (1 - 1e-12)
    assert of["tandem", False] == pytest.approx(
        hit * max(times.stages) + (1 - hit) * sum(times.stages)
    )


@given(bare(), chances)
def test_barrier_and_tandem_meet_where_stages_do_not_decrease(
    times: PipelineTimes, hit: float
) -> None:
    m = len(times.stages)
    rising = PipelineTimes(tuple(sorted(times.stages)))
    assert per_token(rising, "barrier", hit_shares(hit, m)) == pytest.approx(
        per_token(rising, "tandem", hit_shares(hit, m))
    )
    assert barrier_passage(times, 1) == times.at_most(1)
    assert barrier_passage(times, m) >= times.at_most(m) * (1 - 1e-12)


@given(seconds, st.integers(2, 20), chances)
def test_equal_stages_make_eq_1_eq_2(stage: float, m: int, hit: float) -> None:
    times = PipelineTimes((stage,) * m)
    assert unequal_stages(times.stages, hit) == pytest.approx(equal_stages(stage, hit, m))
    for clock in ("barrier", "tandem"):
        assert per_token(times, clock, hit_shares(hit, m, late=True)) == pytest.approx(
            equal_stages(stage, hit, m)
        )
        assert per_token(times, clock, hit_shares(hit, m)) == pytest.approx(
            equal_stages(stage, hit, m - 1)
        )


@settings(deadline=None)
@given(pipelines(), st.lists(st.booleans(), min_size=1, max_size=25))
def test_tandem_keeps_its_law_given_the_realised_hits(
    times: PipelineTimes, hits: list[bool]
) -> None:
    """Any stages, links, pruning and draft, as long as m levels in flight cover the way: 1e-9 on
    the event engine.
    """
    assume(times.keeps_pace)
    m = len(times.stages)
    steps = [m, *(1 if hit else m for hit in hits)]
    known, _ = played(times, constant(times, steps))
    assert known == pytest.approx(np.cumsum([times.at_most(count) for count in steps]), rel=1e-9)


@settings(deadline=None)
@given(pipelines(), st.lists(st.integers(1, 6), min_size=1, max_size=25))
def test_partial_refills_take_no_more_than_the_law_charges(
    times: PipelineTimes, wanted: list[int]
) -> None:
    assume(times.keeps_pace)
    m = len(times.stages)
    steps = [m, *(min(count, m) for count in wanted)]
    known, _ = played(times, constant(times, steps))
    assert known[-1] <= sum(times.at_most(count) for count in steps) * (1 + 1e-9)


@pytest.mark.parametrize("tokens", [10_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_tandem_with_independent_hits(tokens: int) -> None:
    """Unequal stages and links on the event engine: within four standard errors of the law."""
    times, hit = PipelineTimes((48.0, 50.0, 52.0, 51.0), (1.0, 2.0, 1.0), prune=5.0), 0.9
    steps = [4, *np.where(np.random.default_rng(5).random(tokens) < hit, 1, 4).tolist()]
    known, _ = played(times, constant(times, steps), keep=0)
    law = per_token(times, "tandem", hit_shares(hit, 4))
    assert abs((known[-1] - known[0]) / tokens - law) < 4 * np.diff(known).std() / tokens**0.5


def test_too_few_levels_in_flight_for_long_links() -> None:
    """Two stages of 10 with a link of 9: L = 29 is more than 2 M = 20, so two levels leave the
    stages idle at times.
    """
    times = PipelineTimes((10.0, 10.0), (9.0,))
    assert times.claim({1: 1.0}).relation == "lower_bound"
    known, _ = played(times, constant(times, [2] + [1] * 8))
    assert known == [29, 39, 58, 68, 87, 97, 116, 126, 145]


def test_links_fit_their_stages() -> None:
    with pytest.raises(ValueError, match="3 stages have 2 links between them, got 1"):
        PipelineTimes((1.0, 1.0, 1.0), (1.0,))
    with pytest.raises(ValueError, match="two stages or more"):
        PipelineTimes((1.0,))
