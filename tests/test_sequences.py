"""DuoDecoding's automaton: tiny recordings with every iteration written out, and DUO-6 against long
replays.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.verification import verify
from simulator.core.acceptance.sequence_chances import tail_shares
from simulator.core.acceptance.sequences import (
    Automaton,
    DrawnSequences,
    RecordedDrafting,
    RecordedSequences,
    SequenceIteration,
    Split,
    largest_divisor,
    unrecorded,
)
from simulator.core.acceptance.sources import Cycle, Rates, Replay
from simulator.core.acceptance.trace import Trace
from tests.formulas import expected_tokens
from tests.test_tree_replay import trace_of


def replay_of(trace: Trace, split: Split, recording: int = 0) -> Automaton:
    return Automaton(
        RecordedDrafting(RecordedSequences(Replay(trace), split).request(recording)), split
    )


def test_from_cold_to_warm_and_back() -> None:
    """Budget 4. Position 0 is the prefill's; two sequences are worth while except behind one greedy
    token.
    """
    worth = [[2] * 9, [1] * 9, [2] * 9, [2] * 9]
    replay = replay_of(trace_of([0, 1, 0, 0, 0, 0, 3, 0, 0], rollout_sequences=worth), Split(4))
    assert [replay.judge() for _ in range(5)] == [
        # rank 1 is the second sequence; two tokens, one checked
        SequenceIteration(sequences=2, unverified=0, committed=1, hit=True),
        # the tail and the first of the next four are right
        SequenceIteration(sequences=1, unverified=1, committed=2, hit=True),
        # the third of the tail is wrong: rank 3
        SequenceIteration(sequences=2, unverified=3, committed=3, hit=False),
        SequenceIteration(sequences=2, unverified=0, committed=1, hit=True),
        # goes round: behind position 8 comes 1, of rank 1
        SequenceIteration(sequences=1, unverified=1, committed=2, hit=False),
    ]


def test_three_sequences_share_a_budget_of_eleven() -> None:
    """DUO-4: 3, 3, 3 and two tokens unused; no roll-outs are asked for where the number is
    fixed.
    """
    replay = replay_of(trace_of([0, 2, 0, 0, 3, 1, 0]), Split(11, 3))
    assert [replay.judge() for _ in range(3)] == [
        SequenceIteration(sequences=3, unverified=0, committed=1, hit=True),
        # the tail is right, rank 3 is nobody's first
        SequenceIteration(sequences=3, unverified=2, committed=3, hit=False),
        SequenceIteration(sequences=3, unverified=0, committed=1, hit=True),
    ]


def test_rollouts_have_to_be_as_long_as_the_budget() -> None:
    trace = trace_of([0] * 9, rollout_sequences=[[1] * 9] * 2)
    replay = replay_of(trace, Split(4))
    with pytest.raises(
        ValueError, match="roll-outs of 2 tokens cannot answer behind 3 unverified ones"
    ):
        for _ in range(2):
            replay.judge()
    field, why = unrecorded(trace, Split(4)) or ("", "")
    assert (field, "roll-outs of 2 tokens, got 4" in why) == ("gamma", True)
    assert unrecorded(trace, Split(40, 1)) is None
    assert (unrecorded(trace_of([0] * 9), Split(4)) or ("", ""))[0] == "sequences"


@given(st.integers(1, 60), st.integers(1, 60))
def test_the_largest_divisor_divides_and_none_larger_does(number: int, at_most: int) -> None:
    found = largest_divisor(number, at_most)
    assert number % found == 0
    assert found <= at_most
    assert not any(number % larger == 0 for larger in range(found + 1, min(at_most, number) + 1))


@given(st.lists(st.integers(0, 4), min_size=3, max_size=40), st.integers(1, 9), st.data())
def test_every_iteration_is_what_algorithm_2_makes_of_it(
    ranks: list[int], budget: int, data: st.DataObject
) -> None:
    """Recorded iterations against DUO-5 on the tokens themselves, for every fixed number of
    sequences.
    """
    split = Split(budget, data.draw(st.integers(1, budget)))
    replay, here = replay_of(trace_of(ranks), split), 0
    body = ranks[1:]
    for _ in range(12):
        before = replay.unverified
        found = replay.judge()
        ahead = [body[(here + step) % len(body)] for step in range(before + 1)]
        firsts = [choice == ahead[-1] for choice in range(found.sequences)]
        committed, chosen = verify([rank == 0 for rank in ahead[:-1]], firsts)
        assert (found.committed, found.hit) == (committed, chosen is not None)
        assert replay.unverified == (0 if chosen is None else budget // found.sequences - 1)
        here += committed


def iterations(automaton: Automaton, count: int) -> np.ndarray:
    return np.array(
        [(one.committed, one.unverified > 0) for one in (automaton.judge() for _ in range(count))]
    )


def within_four_standard_errors(samples: np.ndarray, expected: float) -> None:
    """By means over batches, as iterations depend on the one before."""
    means = samples[: len(samples) // 200 * 200].reshape(200, -1).mean(axis=1)
    assert abs(means.mean() - expected) < 4 * means.std(ddof=1) / 200**0.5


@pytest.mark.parametrize("count", [40_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("rate", "first", "split"),
    [(0.8, 0.8, Split(24, 1)), (0.8, 0.9, Split(24, 2)), (0.5, 0.7, Split(6, 3))],
)
def test_duo_6_is_the_mean_of_a_replay_of_independent_tokens(
    rate: float, first: float, split: Split, count: int
) -> None:
    """A synthetic recording: rank 0 with chance alpha, a rank below s with chance alpha_first."""
    random = np.random.default_rng(6).random(3 * count)
    behind = (split.fixed or 1) - 1 if first > rate else 9
    ranks = np.select([random < rate, random < first], [0, behind], 9)
    log = iterations(replay_of(trace_of(ranks.tolist()), split), count)
    expected = expected_tokens(rate, first, split.longest_tail)
    within_four_standard_errors(log[:, 0], expected.tokens)
    within_four_standard_errors(log[:, 1], expected.warm)


@pytest.mark.parametrize("first", [None, 0.95])
def test_duo_6_is_the_mean_of_stated_rates(first: float | None) -> None:
    split = Split(8, 2 if first else 1)
    source = DrawnSequences(Rates((0.7,), seed=4), split, first)
    log = iterations(Automaton(source.cursor(0, None), split), 40_000)
    expected = expected_tokens(0.7, first or 0.7, split.longest_tail)
    within_four_standard_errors(log[:, 0], expected.tokens)
    odds = source.odds(split.longest_tail, None)
    assert odds.drafts == {split.fixed: (1.0, pytest.approx(first or 0.7))}


def test_shares_of_tails_with_several_numbers_of_sequences() -> None:
    """Budget 4: behind nothing 1 or 2 sequences, always right first; behind a tail none is. Then it
    takes turns.
    """
    drafts = {0: {1: (0.25, 1.0), 2: (0.75, 1.0)}, 3: {1: (1.0, 0.0)}, 1: {2: (1.0, 0.0)}}
    shares = tail_shares({0: 1.0, 3: 0.2, 1: 0.9}, drafts, {1: 3, 2: 1})
    assert shares == pytest.approx({0: 0.5, 3: 0.125, 1: 0.375})


def test_a_cycle_that_keeps_three_tokens_takes_turns() -> None:
    split = Split(8, 1)
    automaton = Automaton(DrawnSequences(Cycle((3,)), split).cursor(0, None), split)
    assert [automaton.judge() for _ in range(3)] == [
        SequenceIteration(1, 0, 1, True),
        SequenceIteration(1, 7, 4, False),
        SequenceIteration(1, 0, 1, True),
    ]
