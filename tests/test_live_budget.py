"""DuoDecoding live with two processes: the target's own tokens, and the iterations that a replay
has; never seconds.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks.family.pair import Family
from benchmarks.live.budget import PAIR, beside, decode, measure, shipped_prompts
from simulator.core.acceptance.sequences import (
    Automaton,
    RecordedDrafting,
    RecordedSequences,
    Split,
)
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import shipped
from simulator.papers.duodecoding.strategy import DuoDecoding

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]
TOKENS = 40


def test_two_processes_write_what_the_target_writes_iteration_for_iteration(
    family: Family, greedy: Trace, prompts: torch.Tensor
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    before = os.sched_getaffinity(0)
    with beside(shipped() / PAIR, cores) as connection:
        assert os.sched_getaffinity(0) == {cores[0]}
        for request, split in enumerate(
            [Split(1, 1), Split(4), Split(12), Split(8, 1), Split(6, 3), Split(5)]
        ):
            done = decode(family.target, connection, prompts[request].tolist(), TOKENS, split)
            start = int(greedy.offsets[request])
            assert done.tokens == greedy.token[start : start + len(done.tokens)].tolist()
            assert TOKENS <= len(done.tokens) == 1 + done.committed
            recorded = RecordedSequences(Replay(greedy), split).request(request)
            replay = Automaton(RecordedDrafting(recorded), split)
            assert [replay.judge() for _ in done.iterations] == done.iterations
            strategy = DuoDecoding(gamma=split.budget, sequences=split.fixed or "dynamic")
            assert done.passes == [
                strategy.passes(iteration.sequences)[1] for iteration in done.iterations
            ]
    assert os.sched_getaffinity(0) == before


def test_a_measurement_tries_gamma_c_and_its_neighbours() -> None:
    found = measure((), tokens=12, rounds=2, requests=2, sequences=1)
    budgets = [budget.budget for budget in found.budgets]
    assert found.budget == max(1, int(found.cost_coefficient))
    assert budgets == sorted(set(budgets)) and len(budgets) >= 4
    assert found.best in budgets
    for budget_point in found.budgets:
        assert budget_point.slowest_per_s <= budget_point.tokens_per_s <= budget_point.fastest_per_s
        assert 1.0 <= budget_point.tokens_per_iteration <= budget_point.budget


def test_prompts_take_flavours_in_turn() -> None:
    prompts = shipped_prompts(8)
    assert len(set(map(tuple, prompts))) == 8
    assert {len(prompt) for prompt in prompts} == {64}
