"""DuoDecoding with several requests: tails and sequences by hand, its law beside that of one
request, and when a slower device beside the target pays.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sequences import SequenceOdds
from simulator.core.acceptance.sources import Acceptance, Cycle, Rates, Replay
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.duodecoding.duodecoding_batch import DuoDecodingBatch
from simulator.papers.duodecoding.strategy import DuoDecoding
from simulator.scenario import load
from simulator.studies.window import windows_of
from tests.test_tree_replay import trace_of

TIMES = StatedDurations(target_ms=10.0, draft_step_ms=2.0, rv_fv_ms=0.5)
BATCH = "duodecoding_batch_llama_2_7b_a800"
rates = st.floats(0.05, 0.95)


def odds_of(strategy: DuoDecoding | DuoDecodingBatch, verdicts: Acceptance) -> OddsOf:
    source = strategy.reads(verdicts)
    return lambda tail: source.odds(tail, None)


def test_a_request_goes_to_and_fro_between_one_row_and_a_tail() -> None:
    """Four tokens in one sequence; the text goes on as drafted for 5 tokens at a time. Cold: the
    sequence begins right, 1 token. Its three others and the first of the next one are right: 4.
    Then nothing is drafted right: 1, and cold again.
    """
    strategy = DuoDecodingBatch(gamma=4)
    verdicts = strategy.reads(Cycle((1, 4, 0), (False,) * 3))
    state = strategy.open(verdicts.cursor(0, None), 100)
    seen = []
    for _ in range(4):
        step = strategy.compose([state])
        (progress,) = strategy.settle([state])
        seen.append((step.rows.tokens, progress.verified, state.pending))
    assert seen == [(1, 1, 3), (4, 4, 3), (4, 1, 0), (1, 1, 3)]


def test_one_of_two_sequences_begins_right_by_its_rank() -> None:
    """Six tokens in two sequences of three. Behind the first token ranks are 1, 0, 0, 0, 2, 0: the
    second sequence begins right, so that two tokens are unverified; both and the next first one are
    right, then the two behind that are not.
    """
    strategy = DuoDecodingBatch(gamma=6, sequences=2)
    verdicts = strategy.reads(Replay(trace_of([0, 1, 0, 0, 0, 2, 0])))
    state = strategy.open(verdicts.cursor(0, None), 100)
    seen = []
    for _ in range(3):
        step = strategy.compose([state])
        (progress,) = strategy.settle([state])
        seen.append((step.rows.tokens, progress.verified, state.pending))
    assert seen == [(1, 1, 2), (3, 3, 2), (3, 1, 0)]


def test_sequences_of_all_requests_are_written_beside_tails_and_single_rows() -> None:
    """Two requests, three passes and one more for the second sequence without its first token: 2 ms
    each beside 10 ms; drafts and verdicts take 0.5 ms each, and 0.1 ms between them.
    """
    strategy = DuoDecodingBatch(gamma=6, sequences=2, first_rate=0.9, verify_us=100)
    cost = StatedCost(TIMES, 6)
    kinds = strategy.kinds(odds_of(strategy, Rates((0.8,))), 2)
    assert sorted(kind.verifying for kind in kinds) == [0, 1, 2]
    for kind in kinds:
        step = strategy.step(kind, 100)
        assert step.rows.tokens == 3 * kind.verifying + kind.bare
        durations = strategy.durations(cost, step)
        assert durations.draft == pytest.approx((3 + 2) * 0.002)
        assert durations.exchange == pytest.approx(0.0011)


@settings(max_examples=30)
@given(rates, rates, st.integers(1, 4), st.integers(1, 3))
def test_one_request_is_as_in_duodecoding(
    rate: float, first: float, length: int, sequences: int
) -> None:
    """The same tokens in the same steps, with any fixed number of sequences."""
    budget = length * sequences
    first_rate = first if sequences > 1 else None
    alone = DuoDecoding(gamma=budget, sequences=sequences, first_rate=first_rate)
    batch = DuoDecodingBatch(gamma=budget, sequences=sequences, first_rate=first_rate)
    cost = StatedCost(TIMES, budget)
    one = alone.law(cost, odds_of(alone, Rates((rate,))), 1, 100)
    other = batch.law(cost, odds_of(batch, Rates((rate,))), 1, 100)
    assert other.tokens_per_step == pytest.approx(one.tokens_per_step, rel=1e-9)
    assert other.step_s == pytest.approx(one.step_s, rel=1e-9)


def test_a_tail_that_the_scheduler_cuts_is_verified_in_parts() -> None:
    """Of a recording, too, whose chain without a bonus commits no token of the target."""
    strategy = DuoDecodingBatch(gamma=4)
    verdicts = strategy.reads(Replay(trace_of([0] * 20)))
    state = strategy.open(verdicts.cursor(0, None), 100)
    tokens = []
    for most in (9, 2, 2, 9):
        state.most_rows = most
        tokens.append(strategy.compose([state]).rows.tokens)
        strategy.settle([state])
    assert tokens == [1, 2, 2, 4]
    assert state.context == 109


def test_what_several_sequences_need_is_said() -> None:
    with pytest.raises(ValueError, match="expected 1 to gamma = 2, got 3"):
        DuoDecodingBatch(gamma=2, sequences=3)
    with pytest.raises(BadInput, match="how often one begins right"):
        load(BATCH, ["acceptance={rate: 0.7}"])
    assert load(BATCH, ["acceptance={rate: 0.7}", "strategy.first_rate=0.8"])
    strategy = DuoDecodingBatch(gamma=4)
    with pytest.raises(TypeError, match="do not say what is drafted"):
        strategy.kinds(lambda tail: Rates((0.7,)).odds(tail, None), 2)
    assert isinstance(odds_of(strategy, Rates((0.7,)))(0), SequenceOdds)


@settings(max_examples=30)
@given(rates, st.floats(0.05, 1.0), st.integers(2, 5))
def test_a_slower_device_beside_the_target_pays_up_to_a_time(
    rate: float, draft_ms: float, gamma: int
) -> None:
    """Serial speculation with a draft on the target's device, beside one on a slower device with
    the same window. By law both are as fast where the drafting takes just the time of the
    inequality of ``docs/how-to/draft_on_cpu.md``, and the slower one is ahead below it.
    """
    serial_times = StatedDurations(target_ms=10.0, draft_step_ms=draft_ms)
    serial = VanillaSD(gamma=gamma)
    source = Rates((rate,))
    by_serial = serial.law(
        StatedCost(serial_times, gamma), lambda window: source.odds(window, None), 1, 100
    )
    beside = DuoDecodingBatch(gamma=gamma)
    odds = odds_of(beside, source)

    def tpot_s(drafting_s: float) -> float:
        times = StatedDurations(target_ms=10.0, draft_ms=drafting_s * 1e3, rv_fv_ms=0.1)
        law = beside.law(StatedCost(times, gamma), odds, 1, 100)
        return float(law.step_s / law.tokens_per_step)

    by_beside = beside.law(StatedCost(TIMES, gamma), odds, 1, 100)
    tokens_over_serial = float(by_beside.tokens_per_step / by_serial.tokens_per_step)
    most_s = tokens_over_serial * float(by_serial.step_s) - 0.0002
    serial_tpot_s = by_serial.step_s / by_serial.tokens_per_step
    if most_s <= 0.010:  # the target's pass alone takes longer
        assert tpot_s(0.001) >= serial_tpot_s * (1.0 - 1e-9)
        return
    assert tpot_s(most_s) == pytest.approx(serial_tpot_s, rel=1e-9)
    assert tpot_s(0.9 * most_s) < serial_tpot_s < tpot_s(1.1 * most_s)


def test_no_window_is_tried_that_its_sequences_do_not_fit_in() -> None:
    loaded = load("duodecoding_batch_llama_2_7b_a800")
    strategy = loaded.scenario.schedule
    assert isinstance(strategy, DuoDecodingBatch)
    assert strategy.sequences == 2
    assert [gamma for gamma, _ in windows_of(loaded, range(1, 5))] == [2, 3, 4]
