"""Adaptive verification: how many draft tokens of a batch are verified, and whose."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from simulator import law, run
from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.strategies.adaptive_verification import AdaptiveVerification
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.scenario import load

SCENARIO = "adaptive_dflash_qwen3_coder_30b_a3b_h200"
FIXED = "dflash_qwen3_coder_30b_a3b_h200"


def strategy(budgets: dict[int, int] | None = None, levels: int = 4) -> AdaptiveVerification:
    return AdaptiveVerification(
        tree=TokenTree(branching=(1,) * levels),
        passes=(DraftPass(rows=(levels,)),),
        budget_tokens=budgets or {},
    )


class Stairs(StatedCost):
    """Two rows for each step of 10 ms."""

    def target(self, rows: Rows, *layers: object) -> Phase:
        return Phase(0.010 * -(-rows.tokens // 2), {})


def test_the_budget_is_spread_over_the_requests_the_first_ones_first() -> None:
    """Seven tokens of three requests: 3, 2 and 2, so 4, 3 and 3 rows; all four that come are right,
    so 4, 3 and 3 tokens.
    """
    chosen = strategy({3: 7})
    states = [chosen.open(Cycle((4,), (False,)).cursor(n, None), 100) for n in range(3)]
    step = chosen.compose(states)
    assert [state.proposed for state in states] == [3, 2, 2]
    assert step.rows == Rows.decode(4, 100) + Rows.decode(3, 200, 2)
    settled = chosen.settle(states)
    assert [(one.accepted, one.verified) for one in settled] == [(3, 4), (2, 3), (2, 3)]
    assert step.kind.detail is not None
    assert step.kind.detail.words == "7 draft tokens verified"


def test_fewer_tokens_than_requests_leave_some_with_their_own_token() -> None:
    chosen = strategy({4: 1})
    (kind,) = chosen.kinds(odds_of(Rates((0.5,)), None), 4)
    assert (kind.verifying, kind.bare, kind.window) == (1, 3, 1)
    assert chosen.step(kind, 100).rows == Rows.decode(1, 300, 3) + Rows.decode(2, 100)


def test_budgets_grow_with_the_batch_between_what_is_known() -> None:
    chosen = strategy({1: 4, 8: 16})
    assert [chosen.budget_for(size) for size in (1, 2, 8, 12, 100)] == [4, 8, 16, 24, 200]
    assert strategy().budget_for(3) == 12


def test_the_budget_fills_the_stairs_of_the_target() -> None:
    """Chances of 0.8, 0.64, 0.51 and 0.41; a block takes 2 ms and a stair of two rows 10. One
    request: 1.8 tokens in 12 ms, 2.95 in 22, or 3.36 in 32; two requests: 2, 3.6, 4.88, 5.9 and 6.7
    tokens in 12, 22, 32, 42 and 52.
    """
    cost = Stairs(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
    chosen = strategy().tuned(cost, odds_of(Rates((0.8,)), None), 2, 100)
    by_hand = {}
    for size in (1, 2):
        kept = np.concatenate(([0.0], np.cumsum(np.repeat(0.8 ** np.arange(1, 5), size))))
        rows = size + np.arange(4 * size + 1)
        by_hand[size] = int(np.argmax((size + kept) / (0.002 + 0.010 * -(-rows // 2))))
    assert chosen.budget_tokens == by_hand == {1: 1, 2: 0}
    assert chosen.tuned(cost, odds_of(Rates((0.8,)), None), 2, 100) is chosen


@pytest.mark.parametrize("clients", [1, 16, 64, 256])
def test_no_fixed_window_is_better_by_more_than_a_hundredth(clients: int) -> None:
    """The same block is drafted, and 1 to 15 of its tokens are verified of every request."""
    fields = [f"requests={{count: {clients}, concurrency: {clients}}}", "target.engine=vllm"]
    fixed = []
    for window in range(1, 16):
        chain = f"strategy.tree={{branching: {[1] * window}}}"
        fixed.append(float(law(FIXED, [*fields, chain]).tpot_s))
    adaptive = float(law(SCENARIO, fields).tpot_s)
    assert adaptive <= min(fixed) * 1.01
    if clients > 16:
        assert adaptive < fixed[-1]


def test_a_run_takes_the_steps_of_its_law() -> None:
    """All requests begin together, so that every step but the last ones is the law's one kind."""
    result = run(SCENARIO, ["requests={count: 64, concurrency: 64, output_tokens: 40}"])
    (by_law,) = result.law.kinds
    met = max(result.simulated.kinds, key=lambda kind: result.simulated.kinds[kind])
    assert met == by_law


def test_only_a_chain_is_cut() -> None:
    with pytest.raises(BadInput, match="adaptive verification takes a chain"):
        load(SCENARIO, ["strategy.tree={branching: [2, 1]}"])


def test_a_budget_is_of_one_request_at_least() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        strategy({0: 0})
