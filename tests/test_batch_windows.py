"""Windows that follow tiers of batch sizes as SGLang's do, and ranges of them as vLLM's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from simulator import law, run
from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.faults import BadInput
from simulator.core.strategies.common.adaptive import WindowRanges, WindowTable
from simulator.core.strategies.common.step import Progress
from simulator.core.strategies.common.tiers import Tier, TierState, TierWindow
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.scenario import load

TIMES = "durations={target_ms: 20, draft_step_ms: 2, prefill_ms: 0}"


def chain(gamma: int, rule: str) -> str:
    return f"strategy={{name: vanilla_sd, gamma: {gamma}, adaptive: {rule}}}"


# ---- tiers


def state(window: int, mean: float, *candidates: int, **fields: float) -> TierState:
    return TierState(Tier(candidates=candidates, **fields), window, mean)


@pytest.mark.parametrize(
    ("before", "mean", "after"),
    [
        (3, 2.6, 5),  # above 2.5, and not above 4.5
        (3, 4.6, 7),
        (3, 2.5, 3),
        (3, 0.26, 3),  # 1 - 0.5 - 0.25
        (3, 0.25, 1),
        (7, 2.25, 3),  # down to 3 - 0.5 - 0.25, which is below 5 - 0.75 too
        (1, 0.0, 1),
    ],
)
def test_a_window_moves_as_the_mean_crosses_the_middle(
    before: int, mean: float, after: int
) -> None:
    one = state(before, mean, 7, 1, 5, 3)
    one.decide()
    assert one.window == after


@pytest.mark.parametrize(
    ("before", "mean", "after", "known"),
    [(1, 0.5, 0, 0.5), (1, 0.51, 3, 0.51), (0, 0.4, 1, 0.4), (0, -1.0, 1, 0.0)],
)
def test_nothing_is_drafted_where_half_a_token_is_kept(
    before: int, mean: float, after: int, known: float
) -> None:
    """Behind steps without drafts a window of one is tried; without any known mean as if it kept
    none.
    """
    one = state(before, mean, 0, 1, 3, down_hysteresis=0.0)
    one.decide()
    assert (one.window, one.mean) == (after, known)


def test_a_ceiling_holds_windows_down_and_no_step_up() -> None:
    one = state(7, 1.2, 1, 3, 5, 7, ceiling_coeff=2.0, down_hysteresis=-9.0)
    one.decide()
    assert one.window == 3
    one = state(1, 0.9, 1, 3, 5, 7, ceiling_coeff=1.0)
    one.decide()
    assert one.window == 3


def test_a_batch_belongs_to_the_tier_of_the_graph_that_it_runs_in() -> None:
    """Five requests run in a graph of eight; 65 are padded to none that matters."""
    rule = TierWindow()
    sizes = {requests: rule.size_of(requests) for requests in (1, 4, 5, 8, 24, 25, 56, 57, 65)}
    assert sizes == {1: 1, 4: 1, 5: 8, 8: 8, 24: 8, 25: 32, 56: 32, 57: 64, 65: 64}
    assert TierWindow(captured=()).size_of(5) == 1
    assert TierWindow(tiers={8: Tier(candidates=(2,))}).size_of(1) == 8


@pytest.mark.parametrize(("gamma", "windows"), [(7, (7, 1, 1, 0)), (3, (3, 3, 1, 0))])
def test_the_first_window_is_gamma_or_the_candidate_in_the_middle(
    gamma: int, windows: tuple[int, ...]
) -> None:
    rule = TierWindow()
    firsts = [rule.first(gamma, size) for size in (1, 8, 32, 64)]
    assert tuple(one.window for one in firsts) == windows
    assert [one.mean for one in firsts] == [window - 1 for window in windows]


def test_a_decision_comes_behind_the_warm_up_and_every_few_steps() -> None:
    """Means of 2, then 0.75 of it and 0: 2, 1.5, 1.125, 0.84, 0.63, ... each with a quarter of the
    newest; the first decision is behind two steps and three, the next behind three more.
    """
    rule = TierWindow(
        tiers={1: Tier(candidates=(1, 3))}, ema_alpha=0.25, update_interval=3, warmup_batches=2
    )
    strategy = VanillaSD(gamma=3, adaptive=rule)
    one = strategy.open(Cycle((0,)).cursor(0, None), 100)
    drafted = []
    for _ in range(12):
        step = strategy.compose([one])
        drafted.append(3 if step.kind.window is None else step.kind.window)
        strategy.settle([one])
    # 2 * 0.75**5 = 0.47, above 0.25; 2 * 0.75**8 = 0.20
    assert drafted == [3] * 8 + [1] * 4


def test_all_requests_of_a_batch_remember_the_same() -> None:
    """Whoever joins has the window of the others; a batch of its own begins anew."""
    rule = TierWindow(tiers={1: Tier(candidates=(1, 3))}, warmup_batches=0, update_interval=1)
    strategy = VanillaSD(gamma=3, adaptive=rule)
    first, second, alone = (
        strategy.open(Cycle((0,)).cursor(number, None), 100) for number in range(3)
    )
    for _ in range(12):
        strategy.compose([first])
        strategy.settle([first])
    strategy.compose([second, first])
    assert (second.proposed, first.proposed) == (1, 1)
    strategy.compose([alone])
    assert alone.proposed == 3


def test_the_mean_is_that_of_the_batch() -> None:
    rule = TierWindow(tiers={1: Tier(candidates=(1, 3))}, ema_alpha=0.5)
    strategy = VanillaSD(gamma=3, adaptive=rule)
    states = [strategy.open(Cycle((0,)).cursor(number, None), 100) for number in range(2)]
    strategy.compose(states)
    rule.settled(3, states, [Progress(4, 4, 3, 3), Progress(1, 1, 0, 3)])
    memory = states[0].batch_memory
    assert memory is not None
    assert memory[1].mean == 0.5 * 2.0 + 0.5 * 1.5


@pytest.mark.parametrize(
    ("rate", "requests", "shares"),
    [(0.9, 1, {7: 1.0}), (0.1, 1, {1: 1.0}), (0.3, 8, {0: 0.5, 1: 0.5}), (0.9, 64, {0: 1.0})],
)
def test_the_law_takes_the_windows_of_mean_acceptance(
    rate: float, requests: int, shares: dict[int, float]
) -> None:
    """A window of one keeps 0.3, no more than half, so that it is tried every other time."""
    found = TierWindow().shares(7, requests, odds_of(Rates((rate,)), None))
    assert found == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize("concurrency", [1, 6, 40, 70])
@pytest.mark.parametrize(
    "policy",
    ["{name: prefill_first}", "{name: unified_budget, budget_tokens: 90, max_requests: 30}"],
)
def test_a_replay_takes_the_steps_of_the_simulation(concurrency: int, policy: str) -> None:
    settings = [
        chain(7, "tiers"),
        TIMES,
        "acceptance={trace: six_flavours_greedy, stand_in: true}",
        f"requests={{count: 90, concurrency: {concurrency}, output_tokens: 90}}",
        f"serving={{policy: {policy}}}",
    ]
    result = run("durations_only", settings)
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert result.replay.kinds == result.simulated.kinds
    assert "its mean in every step" in result.law.relation


@pytest.mark.parametrize(("up", "step_ms", "long"), [(0.6, 22.0, 15), (0.0, 24.0, 505)])
def test_windows_that_keep_the_same_take_the_times_of_the_law(
    up: float, step_ms: float, long: int
) -> None:
    """Every step keeps one token. The mean falls from 2 to 1 + 0.8**15, below 1.1, by the second
    decision: windows of three, drafted in 6 ms, become one, in 2 ms. There they stay, or come back
    at every other decision, where more than half a token is enough.
    """
    tier = f"{{candidates: [1, 3], down_hysteresis: 0.6, up_hysteresis: {up}}}"
    settings = [
        chain(3, f"{{name: tiers, tiers: {{1: {tier}}}}}"),
        TIMES,
        "acceptance={cycle: {accepted: [1]}}",
        "requests={count: 1, output_tokens: 2001}",
    ]
    result = run("durations_only", settings)
    assert result.law.step_s == pytest.approx(step_ms * 1e-3)
    assert result.law.tokens_per_step == pytest.approx(2.0)
    kinds = {kind.window or 3: count for kind, count in result.simulated.kinds.items()}
    assert kinds == {3: long, 1: 1_000 - long}
    assert result.simulated.step_s == pytest.approx(0.022 + 0.004 * long / 1_000, rel=1e-9)


def test_tiers_are_not_longer_than_gamma_and_belong_to_serial_decoding() -> None:
    with pytest.raises(BadInput, match="longer than gamma = 3"):
        load("durations_only", [chain(3, "tiers"), TIMES])
    with pytest.raises(BadInput, match="drafted by vanilla_sd alone"):
        load("durations_only", ["strategy.adaptive=tiers", "strategy.gamma=7"])


# ---- ranges


def test_ranges_are_the_table_of_their_first_batches() -> None:
    """A gap, and what is behind the last, has the window of the range before."""
    ranges = WindowRanges(ranges=((1, 64, 3), (70, 128, 1), (129, 512, 0)))
    table = WindowTable(windows={1: 3, 70: 1, 129: 0})
    for requests in (1, 64, 65, 69, 70, 128, 129, 512, 600):
        assert ranges.window(3, requests) == table.window(3, requests)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[2, 4, 1]], "first has to begin with 1"),
        ([[1, 4, 1], [4, 8, 2]], "one ends with 4, and the next begins with 4"),
        ([[1, 4, 1], [9, 8, 2]], "9 to 8 ends before it begins"),
        ([[1, 4, -1]], "greater than or equal to 0"),
    ],
)
def test_what_vllm_refuses_is_refused(ranges: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WindowRanges.model_validate({"name": "ranges", "ranges": ranges})


def test_ranges_run_as_the_table_and_as_their_law() -> None:
    """Five requests draft two tokens, in 4 ms, and verify in 20; the table says the same."""
    ranges = json.dumps([[1, 4, 5], [5, 8, 2], [9, 16, 0]])
    more = [TIMES, "acceptance={cycle: {accepted: [1]}}", "requests={count: 5, concurrency: 5}"]
    settings = [chain(5, f"{{name: ranges, ranges: {ranges}}}"), *more]
    as_table = [chain(5, "{name: table, windows: {1: 5, 5: 2, 9: 0}}"), *more]
    assert law("durations_only", settings).step_s == pytest.approx(0.024)
    by_ranges, by_table = run("durations_only", settings), run("durations_only", as_table)
    assert by_ranges.simulated.end_s == by_table.simulated.end_s
    assert by_ranges.law.relation == "exact"
