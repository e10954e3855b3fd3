"""Acceptance replayed from a tiny trace, judged window by window, and the odds a law sees."""

from __future__ import annotations

from collections import Counter
from copy import copy
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_tree_replay import trace_of

from benchmarks.verification import accepted_prefix
from simulator.core.acceptance.cursors import Chain, Verdict, forked
from simulator.core.acceptance.sources import Cycle, Exit, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import RecordedRun, RunCursor, tokens_per_pass
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.strategies.common.drafters import (
    AutoregressiveDrafter,
    StreamingDrafter,
    branch_rows,
    internal_steps,
)
from simulator.inputs.traces import file as trace_file
from simulator.inputs.traces.file import read
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load
from simulator.scenario.loading import variant
from tests.formulas import overlap_mass, top


def make_trace(
    ranks: list[list[int]],
    exits: list[list[int]] | None = None,
    temperature: float = 0.0,
    **arrays: Any,
) -> Trace:
    """A trace of one flavour from the draft ranks of each request; position 0 belongs to the
    prefill.
    """
    flat = [rank for request in ranks for rank in request]
    exit_flat = [rank for request in exits for rank in request] if exits else [0] * len(flat)
    shape = {"layers": 4, "vocabulary": 100}
    header = {
        "format": 1,
        "temperature": temperature,
        "vocabulary": 100,
        "flavours": ["only"],
        "exit_layers": [2],
        "models": {role: {"shape": shape, "parameters": 1} for role in ("target", "draft")},
    }
    return Trace(
        header,
        offsets=np.cumsum([0, *(len(request) for request in ranks)]),
        flavour=np.zeros(len(ranks), dtype=np.uint8),
        token=np.arange(len(flat), dtype=np.uint16) % 100,
        draft_rank=np.array(flat, dtype=np.uint16),
        p=arrays.get("p", np.ones(len(flat), dtype=np.float16)),
        q=arrays.get("q", np.ones(len(flat), dtype=np.float16)),
        exit_rank=np.array([exit_flat], dtype=np.uint16),
        run=arrays.get("run"),
    )


def test_a_recording_judged_window_by_window() -> None:
    """Agreement 1 1 0 | 0 | 1 1 1 1: with gamma 3 the windows keep 2, 0, 3; then round again from
    position 1.
    """
    trace = make_trace([[9, 0, 0, 1, 1, 0, 0, 0, 0]], [[0, 0, 0, 5, 0, 0, 0, 0, 7]])
    cursor = Replay(trace).cursor(0, Exit(0.5, kappa=4))
    first, second, third, fourth = (cursor.judge(Chain(3)) for _ in range(4))
    assert (first.accepted, first.committed, first.off_exit) == (2, 3, True)
    assert (second.accepted, second.committed, second.off_exit) == (0, 1, False)
    assert (third.accepted, third.committed, third.off_exit, third.off_path) == (3, 4, True, False)
    assert (fourth.accepted, fourth.committed) == (2, 3)


def test_without_a_bonus_a_full_window_commits_what_it_proposed() -> None:
    cursor = Replay(make_trace([[9, 0, 0, 0, 1]])).cursor(0, None)
    assert [cursor.judge(Chain(2, bonus=False)).committed for _ in range(3)] == [2, 2, 2]


def test_a_bonus_the_draft_would_not_have_written_is_off_the_path() -> None:
    cursor = Replay(make_trace([[9, 0, 0, 3, 0, 0, 0]])).cursor(0, None)
    assert cursor.judge(Chain(2)).off_path
    assert not cursor.judge(Chain(2)).off_path


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 30))
def test_replay_equals_a_plain_walk(agreement: list[bool], gamma: int, windows: int) -> None:
    trace = make_trace([[0, *(0 if agree else 1 for agree in agreement)]])
    cursor = Replay(trace).cursor(0, None)
    position = 0
    for _ in range(windows):
        accepted = 0
        while accepted < gamma and agreement[(position + accepted) % len(agreement)]:
            accepted += 1
        verdict = cursor.judge(Chain(gamma))
        assert (verdict.accepted, verdict.committed) == (accepted, accepted + 1)
        position += accepted + 1


def test_recorded_run_lengths_take_the_place_of_agreement() -> None:
    """From position 1 on a window keeps 2 0 3 0 1 by where it starts; agreement says something
    else.
    """
    trace = make_trace(
        [[9, 0, 0, 0, 0, 0]],
        [[0, 9, 0, 9, 0, 0]],
        run=np.array([9, 2, 0, 3, 0, 1], dtype=np.uint16),
    )
    cursor = Replay(trace).cursor(0, Exit(0.5, kappa=4))
    verdicts = [cursor.judge(Chain(2)) for _ in range(3)]
    assert [(v.accepted, v.committed, v.off_exit, v.off_path) for v in verdicts] == [
        (2, 3, True, True),
        (0, 1, False, False),
        (1, 2, True, False),
    ]
    odds = Replay(trace).odds(2, Exit(0.5, kappa=4))
    assert odds.accepted.tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert odds.off_exit.tolist() == pytest.approx([0.0, 0.2, 0.2])
    assert odds.off_path == pytest.approx(0.4)


@given(st.lists(st.booleans(), min_size=2, max_size=30), st.integers(1, 5))
def test_runs_that_follow_from_agreement_replay_alike(agreement: list[bool], gamma: int) -> None:
    plain = make_trace([[0, *(0 if agree else 1 for agree in agreement)]])
    runs = np.minimum(Replay(plain).runs(0), 60_000).astype(np.uint16)
    given_runs = make_trace(
        [[0] * (len(agreement) + 1)], run=np.concatenate(([0], runs)).astype(np.uint16)
    )
    one, other = (Replay(trace).cursor(0, None) for trace in (plain, given_runs))
    assert [one.judge(Chain(gamma)) for _ in range(20)] == [
        other.judge(Chain(gamma)) for _ in range(20)
    ]


def test_requests_are_dealt_once_each_in_an_order_set_by_the_seed() -> None:
    trace = make_trace([[0, rank, rank] for rank in range(10)])
    orders = {seed: Replay(trace, seed=seed).order for seed in (0, 1)}
    assert sorted(orders[0]) == list(range(10))
    assert orders[0] != orders[1]
    assert Replay(trace, seed=1).order == orders[1]


def test_sampled_positions_are_accepted_with_the_coupling_chance() -> None:
    """min(1, q/p) of the emitted token: 0.5, 1 and 0 at three kinds of position."""
    count = 6_000
    p = np.tile([0.8, 0.2, 0.5], count // 3).astype(np.float16)
    q = np.tile([0.4, 0.6, 0.0], count // 3).astype(np.float16)
    trace = make_trace([[0] * count], temperature=1.0, p=p, q=q)
    accepted = trace.accepted(seed=5)
    assert accepted[1::3].all()
    assert not accepted[2::3].any()
    assert accepted[0::3].mean() == pytest.approx(0.5, abs=0.04)
    assert (trace.accepted(seed=5) == accepted).all()
    assert not (trace.accepted(seed=6) == accepted).all()


def test_marginal_odds_of_a_trace() -> None:
    trace = make_trace([[9, 0, 0, 1, 0]], [[9, 0, 0, 5, 9]])
    odds = Replay(trace).odds(2, Exit(0.5, kappa=4))
    assert odds.accepted.tolist() == pytest.approx([0.25, 0.1875, 0.5625])
    assert odds.off_exit.tolist() == pytest.approx([0.25, 0.1875, 0.5625 * 0.5])


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=12), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_fallback_is_monotone_in_kappa_exactly(exits: list[list[int]], gamma: int) -> None:
    """Top-kappa sets are nested, so per position a larger kappa can only help (Proposition 1)."""
    trace = make_trace([[0] * len(request) for request in exits], exits)
    missed = [int((~trace.on_exit(0.5, kappa)).sum()) for kappa in range(1, 22)]
    assert all(wider <= narrower for narrower, wider in pairwise(missed))
    assert missed[-1] == 0


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8))
def test_overlap_mass_grows_to_one(weights: list[float]) -> None:
    q = np.array(weights) / sum(weights)
    masses = [overlap_mass(q, q[::-1], kappa) for kappa in range(1, len(q) + 1)]
    assert all(a <= b + 1e-12 for a, b in pairwise(masses))
    assert masses[-1] == pytest.approx(1.0)


def test_the_file_comes_back_as_written_and_always_the_same(tmp_path: Any) -> None:
    trace = make_trace([[9, 0, 0, 1, 0], [9, 0, 1]])
    for name in ("a.npz", "b.npz"):
        trace_file.write(trace, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = read(tmp_path / "a.npz")
    assert again.header == trace.header
    assert (again.draft_rank == trace.draft_rank).all()
    assert again.requests_by_flavour == {"only": [0, 1]}


def test_repetition_is_the_share_of_four_grams_seen_before() -> None:
    trace = make_trace([[0] * 12])
    looped = Trace(**{**vars(trace), "token": np.tile(np.arange(4, dtype=np.uint16), 3)})
    assert trace.repetition() == 0.0
    assert looped.repetition() == pytest.approx(5 / 9)


def test_constant_and_drawn_acceptance() -> None:
    assert [Cycle((3,)).cursor(0, None).judge(Chain(gamma)).accepted for gamma in (2, 7)] == [2, 3]
    one, again = (Rates((0.5,), seed=1).cursor(4, None) for _ in range(2))
    assert [one.judge(Chain(5)) for _ in range(20)] == [again.judge(Chain(5)) for _ in range(20)]
    assert Rates((1.0,)).cursor(0, None).judge(Chain(6)).accepted == 6
    assert accepted_prefix("abcd", "abxd") == 2


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 9), st.integers(1, 9))
def test_a_higher_rate_meets_the_same_luck_and_keeps_no_less(
    one: float, other: float, gamma: int, longer: int
) -> None:
    lower, higher = (Rates((rate,), seed=2).cursor(0, None) for rate in sorted((one, other)))
    for _ in range(20):
        assert lower.judge(Chain(gamma)).accepted <= higher.judge(Chain(gamma + longer)).accepted


@given(
    rates=st.lists(st.sampled_from((0.0, 0.3, 0.85, 1.0)), min_size=1, max_size=3),
    proposal=st.builds(Chain, st.integers(1, 5), st.booleans()),
    request=st.integers(0, 40),
    tokens=st.sampled_from((1, 3, 40, 100, 700)),
)
def test_windows_told_ahead_are_those_judged_one_by_one(
    rates: list[float], proposal: Chain, request: int, tokens: int
) -> None:
    """First windows are judged for several requests at once; requests of many windows go on
    behind those.
    """
    source = Rates(tuple(rates), seed=5)
    before, counts = source.cursor(request, None).counted(proposal, tokens)
    cursor = source.cursor(request, None)
    judged = [cursor.judge(proposal) for _ in before[1:]]
    assert before.tolist() == [0, *accumulate(verdict.committed for verdict in judged)]
    assert before[-2] < tokens <= before[-1]
    assert sum(counts.values()) == len(judged)
    for verdict, times in counts.items():
        assert times == sum(one.accepted == verdict.accepted for one in judged)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_a_walk_along_a_recording_is_told_once_for_each_place(
    agreed: list[int], windows: list[int], tokens: int
) -> None:
    """Cursors of two runs that have come as far are told the same, and what they would judge one by
    one.
    """
    source = Replay(make_trace([[9, *agreed]]))
    for window in windows:
        cursor, other = (source.cursor(0, None) for _ in range(2))
        for passed in range(3):
            told = cursor.counted(Chain(window), tokens)
            assert np.shares_memory(other.counted(Chain(window), tokens).before, told.before)
            twin = forked(cursor)
            judged = [twin.judge(Chain(window)) for _ in told.before[1:]]
            kept = accumulate((verdict.committed for verdict in judged), initial=0)
            assert told.before.tolist() == list(kept)
            assert told.counts == Counter(judged)
            cursor.judge(Chain(1 + passed))
            other.judge(Chain(1 + passed))


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.builds(Chain, st.integers(1, 5), st.booleans()),
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
)
def test_a_walk_goes_on_as_far_as_anybody_asks(
    run: list[int], proposal: Chain, asked: list[int]
) -> None:
    """Outputs of any lengths, in any order, are told what a cursor judges one by one; verdicts in
    the order in which they come up.
    """
    cursor = RunCursor(RecordedRun(run, [True] * len(run)))
    for tokens in asked:
        before, counts = cursor.counted(proposal, tokens)
        judged, behind = cursor.ahead(proposal, tokens)
        assert before.tolist() == [0, *behind]
        assert list(counts.items()) == list(Counter(judged).items())


def test_drawn_windows_keep_what_the_odds_say() -> None:
    rates = Rates((0.9, 0.6, 0.7), overlap=0.95, seed=3)
    cursor, odds = rates.cursor(0, None), rates.odds(4, None)
    verdicts = [cursor.judge(Chain(4)) for _ in range(20_000)]
    assert np.mean([verdict.off_path for verdict in verdicts]) == pytest.approx(
        odds.off_path, abs=0.01
    )
    assert all(verdict.accepted == 4 for verdict in verdicts if verdict.off_path)
    assert all(verdict.committed == verdict.accepted + 1 for verdict in verdicts)
    for accepted in range(5):
        share, off = odds.accepted[accepted], odds.off_exit[accepted]
        assert np.mean([verdict.accepted == accepted for verdict in verdicts]) == pytest.approx(
            share, abs=0.01
        )
        found = np.mean([verdict.accepted == accepted and verdict.off_exit for verdict in verdicts])
        assert found == pytest.approx(off, abs=0.01)


@given(st.lists(st.floats(1.0, 9.0), min_size=1, max_size=5), st.integers(1, 40))
def test_internal_steps_are_the_first_that_suffice(emitted: list[float], gamma: int) -> None:
    steps = internal_steps(tuple(emitted), gamma)
    total = sum((emitted + emitted[-1:] * steps)[:steps])
    assert total >= gamma - 1e-9
    assert total - (emitted + emitted[-1:] * steps)[steps - 1] < gamma


def test_rows_of_a_branch_complete_tree() -> None:
    """B x kappa x (gamma + 1) branches; a stream adds a row to each in the top layers; a request's
    cache is read once.
    """
    branches = 2 * 8 * (7 + 1)
    plain = branch_rows(AutoregressiveDrafter(), branches, sequences=2, kv_tokens=1000)
    assert (plain.tokens, plain.sequences, plain.kv_tokens, plain.attention_pairs) == (
        128,
        2,
        1000,
        128 * 500,
    )
    assert branch_rows(StreamingDrafter(streams=2), branches, 2, 1000).tokens == 3 * 128
    assert (
        branch_rows(StreamingDrafter(streams=2, verifies="proposal"), branches, 2, 1000).tokens
        == 3 * 3 * 128
    )


@pytest.mark.parametrize(("verifies", "below"), [("main", 64), ("proposal", 3 * 64)])
def test_streams_are_paid_for_in_the_top_layers_alone(
    verifies: Literal["main", "proposal"], below: int
) -> None:
    """Speculative Streaming Eq. 4: N - N_s of 16 layers carry a row a branch, the top 4 two more;
    the LM head reads those.
    """
    cost = load("mirror_qwen3_32b_m2_ultra").scenario.cost
    drafter = StreamingDrafter(streams=2, verifies=verifies)
    lower, upper = (
        Rows(below, 0, 1, 600, below * 600),
        Rows(3 * below, 3 * below, 1, 600, 3 * below * 600),
    )
    expected = (
        cost.draft(lower, "window", 0, 12).wall_s + cost.draft(upper, "window", 12, 16).wall_s
    )
    assert drafter.step(cost, 64, 1, 600).wall_s == pytest.approx(expected, rel=1e-12)
    whole = StreamingDrafter(streams=2, stream_layers=99, verifies=verifies)
    assert whole.step(cost, 64, 1, 600).wall_s == pytest.approx(cost.draft(upper).wall_s, rel=1e-12)
    assert expected < cost.draft(upper).wall_s


def test_a_stated_internal_step_is_paid_for_once() -> None:
    cost = StatedCost(StatedDurations(target_ms=30, draft_step_ms=3))
    steps = (
        drafter.step(cost, 64, 1, 600).wall_s
        for drafter in (AutoregressiveDrafter(), StreamingDrafter(streams=2))
    )
    assert list(steps) == [0.003, 0.003]


def test_a_recording_says_what_a_pass_of_streams_emits() -> None:
    """MSD-4: a window of 7 takes 5 passes of two recorded streams, 6 of one, and 4 where a scenario
    states 1.75 tokens.
    """
    recorded = load("mirror_qwen3_32b_m2_ultra").scenario
    assert isinstance(recorded.strategy, MirrorSD)
    assert isinstance(recorded.strategy.drafter, StreamingDrafter)
    emitted = recorded.strategy.drafter.per_pass
    assert list(emitted) == sorted(emitted)
    assert 1.0 < emitted[0] < emitted[1] < 2.0
    assert [
        recorded.strategy.drafter.model_copy(update={"streams": n}).steps(7) for n in (1, 2, 9)
    ] == [6, 5, 5]
    stated = variant(
        load("mirror_qwen3_32b_m2_ultra"), {"strategy.drafter.emitted": [1.75]}
    ).scenario.schedule
    assert isinstance(stated, MirrorSD)
    assert stated.drafter.steps(7) == 4


def test_another_recording_says_it_anew() -> None:
    greedy = load("mirror_qwen3_32b_m2_ultra")
    sampled = variant(greedy, {"acceptance.trace": "six_flavours_sampled"}).scenario.schedule
    assert (
        sampled
        == load(
            "mirror_qwen3_32b_m2_ultra", ["acceptance.trace=six_flavours_sampled"]
        ).scenario.schedule
    )
    assert sampled != greedy.scenario.schedule


def test_tokens_of_a_pass_are_counted_along_the_way() -> None:
    """The first stream is right at every second position: passes of 2, 2 and 1 tokens cover five
    positions.
    """
    ranks = [[9, 0, 1, 0, 1, 1], [9, 1, 1, 1, 1, 1]]
    assert tokens_per_pass(trace_of([9] * 6, streams_rank=ranks)) == (5 / 3, 5 / 3)
    assert tokens_per_pass(trace_of([9] * 6)) == ()


# ---- worked out by hand


def test_odds_of_stated_rates_worked_out_by_hand() -> None:
    """Rates 0.5, 0.8, 0.8, ...: reached with 1, 0.5, 0.4, 0.32; a tenth of every position is off
    the exit.
    """
    odds = Rates((0.5, 0.8), overlap=0.9).odds(3, None)
    assert odds.accepted.tolist() == pytest.approx([0.5, 0.1, 0.08, 0.32])
    assert odds.off_exit.tolist() == pytest.approx([0.1, 0.05, 0.04, 0.032])
    assert odds.off_path == pytest.approx(0.32 * 0.2)
    assert (odds.source, odds.unmatched) == ("stated rates", 0.0)
    assert odds.mean_accepted == pytest.approx(0.1 + 0.16 + 0.96)
    assert (odds.committed(), odds.committed(bonus=False)) == pytest.approx((2.22, 1.9))


def test_what_is_always_accepted_is_off_the_exit_only_behind_the_window() -> None:
    odds = Rates((1.0,), overlap=0.75).odds(2, None)
    assert (odds.accepted.tolist(), odds.off_exit.tolist(), odds.off_path) == (
        [0, 0, 1],
        [0, 0, 0.25],
        0,
    )
    verdicts = [
        Rates((1.0,), 0.75).cursor(0, None).judge(Chain(2, bonus)) for bonus in (True, False)
    ]
    assert [(verdict.accepted, verdict.committed, verdict.off_path) for verdict in verdicts] == [
        (2, 3, False),
        (2, 2, False),
    ]


def test_odds_of_a_grid_of_rates_are_those_of_each() -> None:
    odds = Rates((np.array([0.5, 1.0]), 0.8), overlap=np.array([[0.9], [1.0]])).odds(2, None)
    for at, overlap in enumerate((0.9, 1.0)):
        for i, rate in enumerate((0.5, 1.0)):
            one = Rates((rate, 0.8), overlap).odds(2, None)
            assert np.broadcast_to(odds.accepted, (3, 2))[:, i].tolist() == one.accepted.tolist()
            assert odds.off_exit[:, at, i].tolist() == one.off_exit.tolist()
            assert odds.off_path[i] == one.off_path


def test_every_request_of_stated_rates_has_a_luck_of_its_own() -> None:
    def kept(seed: int, request: int) -> list[int]:
        cursor = Rates((0.5,), seed=seed).cursor(request, None)
        return [cursor.judge(Chain(9)).accepted for _ in range(30)]

    found = [kept(seed, request) for seed in (0, 1) for request in (0, 1)]
    assert all(found.count(one) == 1 for one in found)
    cursor = Rates((0.5,)).cursor(0, None)
    assert [cursor.judge(Chain(9)).accepted for _ in range(30)] == found[0]


def test_a_window_without_tokens_keeps_none() -> None:
    assert Rates((1.0,)).cursor(0, None).judge(Chain(0)) == Verdict(0, 1, False, False)
    assert Rates((0.0,)).cursor(0, None).judge(Chain(0)) == Verdict(0, 1, False, True)


def test_a_stated_cycle_verdict_by_verdict() -> None:
    cursor = Cycle((3, 0, 5), (True, False)).cursor(0, None)
    assert [cursor.judge(Chain(4)) for _ in range(4)] == [
        Verdict(3, 4, True, True),
        Verdict(0, 1, False, False),
        Verdict(4, 5, True, True),
        Verdict(3, 4, False, False),
    ]
    assert [cursor.judge(Chain(4, bonus=False)) for _ in range(2)] == [
        Verdict(0, 1, True, True),
        Verdict(4, 4, False, False),
    ]
    assert Cycle((1,)).cursor(0, None).judge(Chain(4)) == Verdict(1, 2, False, False)


def test_odds_of_a_cycle_go_once_round_both_sequences() -> None:
    """Kept 3 0 2 3 0 2 of windows of 3, off the exit on even turns: 0, 2, 4."""
    odds = Cycle((5, 0, 2), (True, False)).odds(3, None)
    assert odds.accepted.tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    assert odds.off_exit.tolist() == pytest.approx([1 / 6, 0, 1 / 6, 1 / 6])
    assert (odds.off_path, odds.source) == (pytest.approx(1 / 6), "stated cycle")
    assert Cycle((2,), (True, False, False)).odds(3, None).off_path == 0.0


def two_flavours() -> Trace:
    """Requests 0 and 2 are of the first flavour, 1 of the second; 2, 4 and 3 positions after the
    prefill's.
    """
    trace = make_trace([[0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 0, 1]])
    header = {**trace.header, "flavours": ["one", "two"]}
    return Trace(
        **{**vars(trace), "header": header, "flavour": np.array([0, 1, 0], dtype=np.uint8)}
    )


def test_only_requests_of_the_chosen_flavours_are_dealt_and_then_again() -> None:
    whole, one, two = (
        Replay(two_flavours()),
        Replay(two_flavours(), ["one"]),
        Replay(two_flavours(), ["two"]),
    )
    assert (sorted(whole.order), sorted(one.order), two.order) == ([0, 1, 2], [0, 2], [1])
    lengths = {0: 2, 1: 4, 2: 3}
    assert [whole.length(request) for request in range(6)] == [
        lengths[recording] for recording in whole.order * 2
    ]
    assert two.positions().tolist() == [4, 5, 6, 7]
    assert sorted(one.positions().tolist()) == [1, 2, 9, 10, 11]
    for request in (0, 1):
        first, again = whole.cursor(request, None), whole.cursor(request + 3, None)
        assert [first.judge(Chain(2)) for _ in range(5)] == [
            again.judge(Chain(2)) for _ in range(5)
        ]


def test_other_recordings_of_the_same_text_are_replayed_in_the_same_order() -> None:
    mine = make_trace([[0, rank % 2, 1] for rank in range(8)])
    other = make_trace([[0, 1 - rank % 2, 1] for rank in range(8)])
    replay = Replay(mine, seed=3)
    replay.cursor(0, None)
    over = replay.over(other)
    assert (over.order, over.trace, replay.trace) == (replay.order, other, mine)
    kept = [each.cursor(0, None).judge(Chain(1)).accepted for each in (replay, over)]
    assert sorted(kept) == [0, 1]


def test_chance_of_a_sampled_trace_is_set_by_the_seed() -> None:
    half = np.full(400, 0.5, dtype=np.float16)
    trace = make_trace([[0] * 400], temperature=1.0, p=np.ones(400, dtype=np.float16), q=half)
    for seed in (0, 1):
        assert (Replay(trace, seed=seed).accepted == trace.accepted(seed)).all()
        assert (Replay(trace).over(trace, seed).accepted == trace.accepted(seed)).all()
    assert (Replay(trace).over(trace).accepted == trace.accepted(0)).all()


def test_each_exit_has_its_own_verdicts() -> None:
    replay = Replay(make_trace([[9, 1, 1]], [[0, 5, 2]]))
    found = [replay.cursor(0, Exit(0.5, kappa)).judge(Chain(1)).off_exit for kappa in (6, 5, 6)]
    assert found == [False, True, False]
    assert not replay.cursor(0, None).judge(Chain(1)).off_exit


def test_a_recording_without_a_single_rejection_goes_on_for_ever() -> None:
    cursor = Replay(make_trace([[9, 0, 0, 0]])).cursor(0, None)
    assert [cursor.judge(Chain(7)) for _ in range(3)] == [Verdict(7, 8, False, False)] * 3
    odds = Replay(make_trace([[9, 0, 0, 0]])).odds(2, None)
    assert (odds.accepted.tolist(), odds.off_exit.tolist(), odds.off_path) == (
        [0, 0, 1],
        [0, 0, 0],
        0,
    )


def test_marginal_odds_by_hand() -> None:
    """Kept 3 of 4; of those kept 1 of 3 is off the exit, and so is the one rejected: the path holds
    with 3/4 x 2/3.
    """
    odds = Replay(make_trace([[9, 0, 0, 1, 0]], [[9, 0, 0, 5, 9]])).odds(2, Exit(0.5, kappa=4))
    assert odds.off_path == pytest.approx(0.5625 * (1 - 0.5))
    assert odds.source == "marginal rates of the trace"
    never = Replay(make_trace([[9, 1, 1]])).odds(1, None)
    assert (never.accepted.tolist(), never.off_path) == ([1, 0], 0)


def test_odds_of_recorded_run_lengths_by_hand() -> None:
    """Two recordings, gamma 2: windows keep 2 0 | 1 2 0 (5 positions); what follows them is off the
    exit at a 9.
    """
    trace = make_trace(
        [[9, 0, 0], [9, 0, 0, 0]],
        [[0, 9, 0], [9, 0, 9, 0]],
        run=np.array([9, 2, 0, 9, 1, 3, 0], dtype=np.uint16),
    )
    odds = Replay(trace).odds(2, Exit(0.5, kappa=4))
    assert odds.accepted.tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert odds.off_exit.tolist() == pytest.approx([0.0, 0.2, 0.2])
    assert odds.off_path == pytest.approx(0.4)
    assert odds.source == "marginal run lengths of the trace"


def test_agreement_ends_with_the_shorter() -> None:
    assert [
        accepted_prefix(*pair)
        for pair in (("abc", "abcd"), ("abcd", "ab"), ("", "a"), ("xb", "ab"))
    ] == [3, 2, 0, 0]


def test_odds_have_a_place_for_every_number_of_accepted_tokens() -> None:
    cycle = Cycle((1,), (True,)).odds(4, None)
    assert (cycle.accepted.tolist(), cycle.off_exit.tolist()) == ([0, 1, 0, 0, 0], [0, 1, 0, 0, 0])
    runs = Replay(make_trace([[9, 0]], run=np.array([9, 1], dtype=np.uint16))).odds(4, None)
    assert (runs.accepted.tolist(), runs.off_exit.tolist()) == ([0, 1, 0, 0, 0], [0, 0, 0, 0, 0])


def test_a_full_window_is_off_the_exit_as_often_as_any_token() -> None:
    cursor = Rates((0.9,), overlap=0.6).cursor(0, None)
    full = [
        verdict.off_exit
        for verdict in (cursor.judge(Chain(1)) for _ in range(20_000))
        if verdict.accepted
    ]
    assert np.mean(full) == pytest.approx(0.4, abs=0.015)


def test_odds_are_those_of_the_replay_that_is_asked() -> None:
    """What was asked for before is told again, and a copy of other requests has odds of its own."""
    trace = make_trace([[9, 0, 0, 0], [9, 1, 1, 1]])
    both = Replay(trace)
    assert both.odds(2, None) is both.odds(2, None)
    for order, rate in (([0], 1.0), ([1], 0.0), ([0, 1], 0.5)):
        some = copy(both)
        some.order = order
        assert some.odds(1, None).accepted.tolist() == [1.0 - rate, rate]
        assert some.odds(2, None).accepted[2] == rate**2
    assert both.odds(1, Exit(0.5, kappa=4)) is not both.odds(1, None)


def test_rejected_and_accepted_tokens_off_the_exit_are_told_apart() -> None:
    """Kept 3 of 4, all three off the exit and the rejected one on it: the path never holds."""
    odds = Replay(make_trace([[9, 0, 0, 1, 0]], [[9, 9, 9, 0, 9]])).odds(1, Exit(0.5, kappa=4))
    assert odds.off_exit.tolist() == pytest.approx([0.0, 0.75 * 0.75])
    assert odds.off_path == pytest.approx(0.75)
    assert Replay(make_trace([[9, 1, 1]])).odds(0, None).off_path == 1.0


def test_the_path_of_a_recorded_run_breaks_at_its_end_or_where_the_exit_missed() -> None:
    """Gamma 1: runs 0 (off), 1, 3, 2 (off), 1: the second and the last end there, the fourth is
    off.
    """
    trace = make_trace(
        [[9, 0, 0, 0, 0, 0]],
        [[0, 9, 0, 0, 9, 0]],
        run=np.array([9, 0, 1, 3, 2, 1], dtype=np.uint16),
    )
    assert Replay(trace).odds(1, Exit(0.5, kappa=4)).off_path == pytest.approx(0.6)


def test_requests_are_dealt_by_seed_0_where_none_is_given() -> None:
    trace = make_trace([[0, 0]] * 40)
    assert Replay(trace).order == Replay(trace, seed=0).order


def test_the_likeliest_tokens_among_many_alike_are_the_first() -> None:
    assert top(np.full(1_000, 0.001), 5).tolist() == [0, 1, 2, 3, 4]
    assert top(np.where(np.arange(1_000) % 3, 0.2, 0.7), 4).tolist() == [0, 3, 6, 9]
