"""All windows at once: the same, window for window, as walked one by one and as a run on the event
engine.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import ClosedLoop, Request, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World
from tests.plain_walk import walk
from tests.test_acceptance import make_trace

agreements = st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=40), min_size=1, max_size=5)
by_start = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=30), min_size=1, max_size=5)
gammas = st.integers(1, 9)


def check(replayed: WindowReplay, runs: list[list[int]], gamma: int, bonus: bool) -> None:
    walks = [walk(run, gamma, bonus) for run in runs]
    assert replayed.totals(gamma, bonus).tolist() == [[sum(kept), len(kept)] for kept in walks]
    assert (
        replayed.kept(gamma, bonus).tolist()
        == np.bincount(np.concatenate(walks).astype(int), minlength=gamma + 1).tolist()
    )


def test_a_stretch_is_cut_into_full_windows_and_a_rest() -> None:
    """Agreement 1 1 1 1 1 0 | 1 1, going round: gamma 2 keeps 2, 2 (its bonus the miss), then 2 of
    the 2 + 5.
    """
    runs = [5, 4, 3, 2, 1, 0, 7, 6]
    replayed = WindowReplay([np.array(runs)])
    assert replayed.by_position
    assert replayed.kept(2).tolist() == [0, 0, 3]
    assert replayed.totals(2).tolist() == [[6, 3]]
    assert replayed.kept(3).tolist() == [0, 1, 0, 2]
    assert replayed.kept(3, bonus=False).tolist() == [0, 0, 1, 2]


@given(agreements, gammas, st.booleans())
def test_a_chain_by_position_is_walked_at_once(
    ranks: list[list[int]], gamma: int, bonus: bool
) -> None:
    replay = Replay(make_trace(ranks))
    replayed = WindowReplay.of(replay)
    assert replayed.by_position
    check(replayed, [replay.runs(recording).tolist() for recording in replay.order], gamma, bonus)


@given(by_start, gammas, st.booleans())
def test_runs_by_start_are_walked_side_by_side(
    runs: list[list[int]], gamma: int, bonus: bool
) -> None:
    check(WindowReplay([np.array(run) for run in runs]), runs, gamma, bonus)


class OneAfterTheOther(ClosedLoop):
    """Request i puts out as many tokens as its recording holds, and one that its prefill shows."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(Requests(count=len(lengths)))
        self.lengths = lengths

    def due(self, now: float) -> list[Request]:
        arrived = list(super().due(now))
        for request in arrived:
            request.output_tokens = 1 + self.lengths[request.index]
        return arrived


@given(agreements, gammas, st.booleans())
def test_the_event_engine_walks_the_same_windows(
    ranks: list[list[int]], gamma: int, bonus: bool
) -> None:
    replay = Replay(make_trace(ranks))
    replayed = WindowReplay.of(replay)
    strategy, world = VanillaSD(gamma=gamma, bonus_on_full_accept=bonus), World()
    source = OneAfterTheOther([replay.length(request) for request in range(len(ranks))])
    cost = StatedCost(StatedDurations(target_ms=2.0, draft_step_ms=1.0), gamma)
    scheduler = Scheduler(strategy, replay, None, source, cost, FixedBatch())
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    world.environment.process(scheduler.run(world, lanes))
    world.environment.run()
    accepted = scheduler.ledger.tally.accepted
    assert [accepted[kept] for kept in range(gamma + 1)] == replayed.kept(gamma, bonus).tolist()
    steps = replayed.totals(gamma, bonus)[:, 1].sum()
    assert world.now == pytest.approx((2.0 + gamma) * 1e-3 * steps, rel=1e-9)
