"""Saguaro: windows are written ahead for the likeliest outcomes of a verification."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import Ranged
from simulator.core.strategies.common.step import (
    Admission,
    Kind,
    Progress,
    State,
    intern_chain,
)
from simulator.core.strategies.common.traits import Needs
from simulator.core.strategies.vanilla_sd import TOKEN_BYTES
from simulator.papers.saguaro.strategy import Saguaro, best_fan_outs
from tests.ledger import PROMPT, Ledger, booked, near

DURATIONS = StatedDurations(target_ms=20.0, draft_step_ms=3.0)


def strategy_of(miss: float, fan_out: tuple[int, ...] = (4,), power: float = 0.5) -> Saguaro:
    return Saguaro(
        gamma=3,
        fan_out=fan_out,
        miss_of_one=Ranged(value=miss),
        miss_power=Ranged(value=power),
    )


def test_every_other_outcome_is_missed() -> None:
    """Of four outcomes one is not among them with a chance of 4^-0.5. A hit takes the 20 ms of the
    target, beside 9 ms of drafts; a miss 9 ms more.
    """
    strategy = strategy_of(1.0)
    read = strategy.reads(Cycle((2,), (False,)))
    state = strategy.open(read.cursor(0, None), 100)
    seen = []
    for _ in range(4):
        step = strategy.compose([state])
        (progress,) = strategy.settle([state])
        seconds = strategy.step_seconds(
            strategy.durations(StatedCost(DURATIONS, 3), step), step.kind
        )
        seen.append((step.rows.tokens, progress.verified, progress.missed, round(seconds, 9)))
    assert seen == [(4, 3, False, 0.020), (4, 3, True, 0.029)] * 2


def test_the_draft_has_a_row_for_every_outcome_of_every_request() -> None:
    """Fan-outs of 5, 2, 1 and 1 behind 0, 1, 2 and 3 kept tokens: nine rows a request, and by 0.5
    ms for a row 3 passes of 4.5 ms for each of two requests.
    """
    strategy = strategy_of(0.5, (5, 2, 1))
    assert [strategy.fan_out_behind(kept) for kept in range(5)] == [5, 2, 1, 1, 1]
    by_rows = StatedDurations.model_validate(
        {"target_ms": 20.0, "draft_step_ms": {"base_ms": 1.0, "row_ms": 0.5}}
    )
    odds = odds_of(strategy.reads(Rates((0.8,))), None)
    (kind, *_) = strategy.kinds(odds, 2)
    durations = strategy.durations(StatedCost(by_rows, 3), strategy.step(kind, 100))
    assert durations.draft * 1e3 == pytest.approx(3 * (1.0 + 0.5 * 18))


@given(
    rate=st.floats(0.05, 0.95),
    miss=st.floats(0.01, 0.99),
    target_ms=st.floats(1.0, 50.0),
    draft_ms=st.floats(0.1, 20.0),
)
def test_one_request_is_as_fast_as_the_restated_law_says(
    rate: float, miss: float, target_ms: float, draft_ms: float
) -> None:
    """E / (p max{1, T_ahead} + (1 - p) (1 + T_backup)), in units of T_target."""
    strategy = strategy_of(miss, (1,))
    odds = odds_of(strategy.reads(Rates((rate,))), None)
    durations = StatedDurations(target_ms=target_ms, draft_step_ms=draft_ms)
    law = strategy.law(StatedCost(durations, 3), odds, 1, 100)
    written = 3 * draft_ms / target_ms
    kept = sum(rate**place for place in range(4))
    speed = kept / ((1 - miss) * max(1.0, written) + miss * (1.0 + written))
    assert target_ms * 1e-3 / law.tpot_s == pytest.approx(speed)


def test_of_several_requests_some_miss() -> None:
    """Three requests that miss with a chance of 0.5 each: all of them in an eighth of the steps."""
    strategy = strategy_of(0.5, (1,))
    odds = odds_of(strategy.reads(Rates((0.8,))), None)
    shares = {kind.redrafts: share for kind, share in strategy.kinds(odds, 3).items()}
    assert shares == pytest.approx({0: 1 / 8, 1: 3 / 8, 2: 3 / 8, 3: 1 / 8})


def test_the_best_fan_outs_are_a_geometric_series_with_a_larger_end() -> None:
    """F_k ~ P(k)^(1 / (1 + b)): with b = 1 and chances that are halved, by the root of 2; the end
    has the chance of the whole window.
    """
    chances = [0.5**kept * 0.5 for kept in range(4)] + [0.5**4]
    fan_outs = best_fan_outs(chances, 10_000, 1.0)
    assert sum(fan_outs) == 10_000
    for one, other in ((0, 1), (1, 2), (2, 3)):
        assert fan_outs[one] / fan_outs[other] == pytest.approx(2**0.5, rel=0.01)
    assert fan_outs[4] == pytest.approx(fan_outs[3], rel=0.01)
    surer = [0.8**kept * 0.2 for kept in range(4)] + [0.8**4]
    assert best_fan_outs(surer, 100, 1.0)[4] > best_fan_outs(surer, 100, 1.0)[0]
    with pytest.raises(ValueError, match="a row for each of 5 outcomes, got 4"):
        best_fan_outs(chances, 4, 1.0)


def test_the_page_of_the_law_says_which_fan_outs_miss_fewest() -> None:
    """Windows of a token, kept or not as often, and nine outcomes: missed as F^-1, that is
    1/2 (1/8 + 1) as they are set, 1/2 (1/5 + 1/4) at best.
    """
    strategy = Saguaro(
        gamma=1,
        fan_out=(8, 1),
        miss_of_one=Ranged(value=1.0),
        miss_power=Ranged(value=1.0),
    )
    odds = odds_of(strategy.reads(Rates((0.5,))), None)
    cost = StatedCost(StatedDurations(target_ms=20.0, draft_step_ms=2.0), 1)
    assert strategy.derived(cost, strategy.step(Kind("step", 1), 100), odds) == {
        "outcomes": 9.0,
        "missed_share": pytest.approx(0.5625),
        "least_missed_share": pytest.approx(0.225),
        "best_fan_out_behind_0": 5.0,
        "best_fan_out_behind_1": 4.0,
    }


# ---- steps by hand

WIDE = Saguaro(gamma=2, fan_out=(3, 1), miss_of_one=Ranged(value=1.0), miss_power=Ranged(value=1.0))


def requests_of(strategy: Saguaro, *stated: tuple[int, int, bool]) -> list[State]:
    """Requests by context, tokens that verifications keep, and whether a window is at hand."""
    return [
        strategy.open(strategy.reads(Cycle((kept,))).cursor(0, None), context, drafted)
        for context, kept, drafted in stated
    ]


def test_a_hit_two_misses_and_a_request_without_a_window_beside_a_prompt() -> None:
    """Behind no kept token an outcome in three is missed, behind others every one. The draft reads
    6 tokens, then writes 3 x 5 outcomes of those with a window and 3 of the other, twice.
    """
    ledger = Ledger()
    batch = requests_of(WIDE, (10, 0, True), (20, 1, True), (40, 2, True), (30, 0, False))
    step = WIDE.compose(batch, PROMPT)
    assert step.kind == Kind("step", 3, 1, redrafts=2, prompts=1)
    assert (step.rows.tokens, step.redraft_kv_tokens, step.prompts) == (10, 60, PROMPT)
    t = WIDE.durations(ledger, step)
    assert t._asdict() == {
        "target": near(16.0),
        "draft": near(1.5 + 2 * 1.8),
        "backup": near(0.4),
        "rv": near(4 * 2 * TOKEN_BYTES * 1e-3),
        "contention": 1.0,
    }
    assert ("prefill", "draft", PROMPT) in ledger.asked
    assert ("draft", Rows(2, 2, 2, 60, 60), "window") in ledger.asked
    spans, end = booked(WIDE, t, step.kind)
    assert spans == [
        ("draft", 0, near(5.1), "draft outcomes"),
        ("target", 0, near(16.0), "verify"),
        ("draft", near(16.0), near(16.4), "back-up"),
        ("rendezvous", near(16.4), near(16.4 + t.rv), "windows"),
    ]
    assert WIDE.step_seconds(t, step.kind) == near(end)
    assert WIDE.settle(batch) == [
        Progress(1, 1, 0, 2),
        Progress(2, 2, 1, 2, missed=True),
        Progress(3, 3, 2, 2, missed=True),
        Progress(1, 1, 0, 0),
    ]
    assert [state.context for state in batch] == [11, 22, 43, 31]
    assert all(state.ready for state in batch)


def test_what_is_written_ahead_is_cut_short_where_all_miss_unless_prompts_are_read() -> None:
    """Sixteen outcomes of two tokens take 3.2 s, a verification 3."""
    slow = WIDE.model_copy(update={"fan_out": (14, 1)})
    ledger = Ledger(contention=1.5)
    for prompts, longest, shorter in ((NO_ROWS, 3.0, 3.0), (PROMPT, 9.0, 4.7)):
        step = slow.compose(requests_of(slow, (20, 1, True)), prompts)
        t = slow.durations(ledger, step)
        behind = 0.2 + 2 * TOKEN_BYTES * 1e-3
        assert slow.step_seconds(t, step.kind) == near(longest + 0.5 * shorter + behind)


def test_a_first_window_is_written_behind_the_prompts() -> None:
    ledger = Ledger()
    assert WIDE.admission(ledger, PROMPT, 2, 6) == Admission(near(3.0), near(1.5), near(0.4))
    assert ledger.asked[-1] == ("draft", Rows(2, 2, 2, 8, 8), "window")
    assert WIDE.admission(ledger, PROMPT).window == 0.0
    assert WIDE.needs == Needs(draft_model=True, draft_steps=2, cache_tokens=3)


def test_the_example_misses_every_other_outcome() -> None:
    """21 ms of drafts beside 18 of the target and a quarter of these more, 0.2 of the exchange; a
    miss cuts the drafts at 18 and takes 21 more.
    """
    example = Saguaro.example()
    strategy = example.strategy
    odds = odds_of(strategy.reads(Cycle((3,))), None)
    law = strategy.law(example.cost_of(strategy), odds, 1, 100)
    assert law.step_s == near((25.7e-3 + 43.7e-3) / 2)
    assert law.tokens_per_step == near(4.0)


def test_a_hit_ends_with_its_verification_and_nobody_writes_behind_it() -> None:
    ledger = Ledger()
    step = WIDE.compose(requests_of(WIDE, (10, 0, True)))
    t = WIDE.durations(ledger, step)
    assert booked(WIDE, t, step.kind)[0] == [
        ("draft", 0, near(1.0), "draft outcomes"),
        ("target", 0, near(3.0), "verify"),
        ("rendezvous", near(3.0), near(3.0 + t.rv), "windows"),
    ]
    (kind, *_) = WIDE.kinds(odds_of(WIDE.reads(Rates((0.5,))), None), 1)
    assert kind.name == "step"


def test_stated_rates_draw_what_is_missed_for_each_request_on_its_own() -> None:
    """Every other outcome is missed in the long run; a chance is 1 at most."""
    read = strategy_of(0.5, (1,)).reads(Rates((0.5,)))
    drawn = []
    for request in (0, 1):
        cursor = read.cursor(request, None)
        drawn.append([cursor.judge(intern_chain(3, True)).off_exit for _ in range(400)])
    assert drawn[0] != drawn[1]
    assert all(160 < sum(missed) < 240 for missed in drawn)
    assert strategy_of(3.0, (1,)).miss_among(1) == 1.0
