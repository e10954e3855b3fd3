"""Adaptive verification: how many draft tokens of a batch are verified, and whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from simulator import law, run
from simulator.core.acceptance.confidence import RankedSlots, of_matches, of_rollouts
from simulator.core.acceptance.cursors import Chain, Verdict
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


@pytest.mark.few(1)
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


# ---- tokens with chances of their own


class Told:
    """A cursor that keeps everything and is always as sure."""

    def __init__(self, *chances: float) -> None:
        self.confidences = np.array(chances)

    def judge(self, proposal: Chain) -> Verdict:
        return Verdict(proposal.tokens, proposal.tokens + 1, False, False)


def confident(tokens: int, **fields: Any) -> AdaptiveVerification:
    return AdaptiveVerification(
        tree=TokenTree(branching=(1,) * tokens),
        passes=(DraftPass(rows=(tokens,)),),
        confidence="rollouts",
        **fields,
    )


def test_a_budget_is_of_the_steps_before_and_goes_to_the_likeliest_tokens() -> None:
    """Two requests, blocks of two, 2 ms to draft and 10 for each two rows. Nothing is known at
    first, so that all counts: 2, 3, 4, 5 and 6 tokens in 12, 22, 22, 32 and 32 ms, four drafts.
    Then 0.92 and 0.77 of the first, 0.6 and 0.36 of the second: 2, 2.92, 3.69, 4.29 and 4.65
    tokens, two drafts, which are both of the first. Then 0.904 and 0.73, 0.52 and 0.27: 3.63 in 22
    ms are no more than 2 in 12, none.
    """
    cost = Stairs(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
    chosen = confident(2).tuned(cost, odds_of(Rates((0.8,)), None), 2, 100)
    assert chosen.tuned(cost, odds_of(Rates((0.8,)), None), 2, 100) is chosen
    states = [chosen.open(Told(0.9, 0.8), 100), chosen.open(Told(0.5, 0.5), 100)]
    rows = []
    target_s = []
    for _ in range(3):
        step = chosen.compose(states)
        rows.append([(state.proposed or 0) + 1 for state in states])
        target_s.append(chosen.durations(cost, step).target)
        chosen.settle(states)
    assert rows == [[3, 3], [3, 1], [1, 1]]
    assert target_s == pytest.approx([0.030, 0.020, 0.010])


def test_a_stated_budget_goes_to_the_likeliest_tokens() -> None:
    """Three drafts of three requests: 0.9 and 0.81 of the last, then 0.7; one request may have a
    single row.
    """
    chosen = confident(2, budget_tokens={1: 1, 3: 3})
    told = Told(0.6, 0.9), Told(0.7, 0.5), Told(0.9, 0.9)
    states = [chosen.open(cursor, 100) for cursor in told]
    (first, second, third) = states
    kind = chosen.compose(states).kind
    assert [state.proposed for state in states] == [0, 1, 2]
    assert (kind.verifying, kind.bare, kind.window) == (2, 1, 2)
    third.most_rows = 1
    chosen.compose(states)
    assert [state.proposed for state in states] == [2, 1, 0]
    second.plain_below = 101
    chosen.compose(states)
    assert [state.proposed for state in states] == [2, 0, 0]
    assert first.proposed == 2


def test_drafts_fill_the_stair_that_a_prompt_leaves_open() -> None:
    """Alone: 1 token in 12 ms, 2 in 12, 3 in 22, so one draft. Beside a prompt of one row, which
    brings a token too: 2 in 12, 3 and 4 in 22, so two.
    """
    cost = Stairs(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
    chosen = confident(2).tuned(cost, odds_of(Rates((0.8,)), None), 1, 100)
    states = [chosen.open(Told(0.9, 0.8), 100)]
    assert chosen.compose(states).rows.tokens == 2
    assert chosen.compose(states, Rows.prefill(1)).rows.tokens == 3


def test_the_slots_of_all_blocks_in_their_order() -> None:
    """0.9, 0.72, 0.5 and 0.1; of the first block both are kept, of the second none."""
    slots = RankedSlots(np.array([[0.9, 0.8], [0.5, 0.2]]), np.array([2, 0]))
    taken = np.arange(5) / 2
    assert slots.expected(taken) == pytest.approx(np.array([0, 0.9, 1.62, 2.12, 2.22]) / 2)
    assert [slots.kept(each) for each in taken] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert [slots.begun(each) for each in taken] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert slots.outcomes(1.0).tolist() == [0.0, 0.0, 1.0]
    assert slots.outcomes(1.5).tolist() == [0.5, 0.0, 0.5]
    assert slots.outcomes(0.0).tolist() == [0.0, 0.0, 0.0]


def test_roll_outs_are_calibrated_by_what_is_kept() -> None:
    """Of a hundred tokens of which the draft is sure by 0.9 eighty are kept, of as many by 0.3
    twenty; the second place, which too few reach, takes the fit of the first.
    """
    run = np.array([1] * 80 + [0] * 20 + [1] * 20 + [0] * 80)
    q = np.array([0.9] * 100 + [0.3] * 100)
    run[:40] = 2
    every = np.arange(200)
    chances = of_rollouts(np.stack([q, q]), np.minimum(run, 1), every)
    assert chances[[0, 199], 0] == pytest.approx([0.8, 0.2], abs=1e-3)
    assert of_rollouts(np.stack([q, q]), run, every)[0, 1] < 0.8
    few = of_rollouts(np.stack([q, q]), run, every[60:])
    assert few[0, 1] == pytest.approx(few[0, 0])


def test_the_surer_are_never_taken_to_be_kept_less_often() -> None:
    run = np.array([1] * 20 + [0] * 80 + [1] * 80 + [0] * 20)
    q = np.array([[0.9] * 100 + [0.3] * 100])
    chances = of_rollouts(q, run, np.arange(200))
    assert chances[:, 0] == pytest.approx(101 / 202)


def test_look_ups_are_counted_by_the_length_of_their_match() -> None:
    """Two matches of one token, of which one is right, and two of seven and nine, one class, both
    right: (1 + 1) / (2 + 2) and (2 + 1) / (2 + 2).
    """
    length = np.array([1, 1, 7, 9, 0])
    run = np.array([1, 0, 2, 1, 0])
    chances: NDArray[np.float64] = of_matches(length, 2, run, np.arange(5))
    assert chances[:, 0].tolist() == [0.5, 0.5, 0.75, 0.75, 0.0]
    assert chances[:, 1].tolist() == [1 / 3, 1 / 3, 0.5, 0.5, 0.0]


RECORDED = ["adaptive_rollouts_llama_2_7b_a100", "adaptive_suffix_llama_2_7b_a100"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize(
    "policy",
    ["{name: prefill_first}", "{name: unified_budget, budget_tokens: 300, max_requests: 6}"],
)
def test_a_replay_takes_the_steps_of_the_simulation(name: str, policy: str) -> None:
    requests = "requests={count: 24, concurrency: 8, output_tokens: 60}"
    result = run(name, [requests, f"serving={{policy: {policy}}}"])
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert result.replay.kinds == result.simulated.kinds
    assert "all recorded blocks" in result.law.relation


@pytest.mark.full
@pytest.mark.parametrize("name", RECORDED)
def test_the_law_of_recorded_blocks_is_near_to_its_process(name: str) -> None:
    """All requests of the recording twice, eight at a time; rates of all positions overstate what
    decoding meets.
    """
    result = run(name, ["requests={count: 240, concurrency: 8, output_tokens: 150}"])
    assert result.law.step_s == pytest.approx(result.simulated.step_s, rel=0.05)
    assert result.law.tokens_per_step == pytest.approx(result.simulated.tokens_per_step, rel=0.12)


@pytest.mark.full
def test_tokens_with_chances_of_their_own_are_kept_more_often() -> None:
    """The same draft on the same requests: of fewer verified tokens more are kept, in less time."""
    fields = ["requests={count: 64, concurrency: 64, output_tokens: 100}"]
    own, alike = (
        run(RECORDED[0], [*fields, f"strategy.confidence={name}"]).simulated
        for name in ("rollouts", "position")
    )
    assert own.tpot_s < alike.tpot_s
    shares = []
    for outcome in (own, alike):
        kept = sum(tokens * count for tokens, count in outcome.accepted.items())
        requests = sum(kind.batch * count for kind, count in outcome.kinds.items())
        shares.append(kept / (outcome.serving.verified_rows - requests))
    assert shares[0] > shares[1] * 1.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["acceptance={rate: 0.8}"], "rollouts are read from a recording"),
        (["acceptance.trace=six_flavours_sampled"], "confidence in 0 tokens ahead"),
        (["strategy.confidence=match_length"], "leave passes out"),
        (
            ["acceptance.by_context={tokens_per_step: {100: 3.0, 500: 2.0}}"],
            "reads more of a recording",
        ),
    ],
)
def test_what_has_no_chances_of_tokens_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(RECORDED[0], settings).acceptance()


def test_a_cursor_that_knows_no_chances_is_refused() -> None:
    with pytest.raises(TypeError, match="_CycleCursor does not know how sure the draft is"):
        confident(2).open(Cycle((2,)).cursor(0, None), 10)


def test_costs_are_measured_of_the_batch_or_of_each_request() -> None:
    """Ten rows in blocks of five are two requests, of 4,096 cached tokens each or 8,192."""
    of_batch = strategy()._dummy(10)
    of_each = strategy().model_copy(update={"measured_of": "request"})._dummy(10)
    assert (of_batch.sequences, of_batch.kv_tokens) == (2, 8_192 + 10)
    assert (of_each.sequences, of_each.kv_tokens) == (2, 2 * 8_192 + 10)
    assert (of_batch.tokens, of_batch.attention_pairs) == (10, 10 * 4_096 + 10 * 3)
