"""PEARL in batches: who has how many rows verified when, and how long the steps take."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import ClosedLoop, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.common.step import Kind, Lanes, Progress, Step
from simulator.core.strategies.common.traits import Needs
from simulator.core.world import World
from simulator.papers.pearl.strategy import Pearl, PearlDurations
from simulator.scenario import load
from tests.ledger import PROMPT, Ledger, booked, near, states as with_contexts

DURATIONS = StatedDurations(target_ms=10.0, draft_step_ms=2.0, rv_fv_ms=0.5)


class Staggered(Cycle):
    """The same cycle, each request one turn further on."""

    def cursor(self, request, exit):  # type: ignore[no-untyped-def]
        cursor = super().cursor(request, exit)
        cursor.position = request
        return cursor


def test_a_request_goes_to_and_fro_between_one_row_and_a_window() -> None:
    """Windows of four. The first token is right: 1 token. The three others and the first of the
    next window are right: 4. Of the next four 2 are: 3 tokens with the correction, and one row
    again, which is wrong: 1.
    """
    strategy = Pearl(gamma=4)
    state = strategy.open(Cycle((1, 4, 2, 0), (False,) * 4).cursor(0, None), 100)
    seen = []
    for _ in range(4):
        step = strategy.compose([state])
        (progress,) = strategy.settle([state])
        seen.append((step.rows.tokens, step.rows.kv_tokens, progress.accepted, progress.verified))
    assert seen == [(1, 101, 1, 1), (4, 105, 4, 4), (4, 109, 2, 3), (1, 109, 0, 1)]
    assert (state.context, state.pending) == (109, 0)


def test_rows_of_both_sorts_share_a_pass() -> None:
    """One of two requests keeps everything, the other nothing: after the first step one has four
    rows and the other one; each step is four passes of 2 ms beside one of 10, and 0.5 ms.
    """
    strategy = Pearl(gamma=4)
    keeps = strategy.open(Cycle((4,), (False,)).cursor(0, None), 100)
    loses = strategy.open(Cycle((0,), (False,)).cursor(1, None), 200)
    tokens = []
    for _ in range(3):
        step = strategy.compose([keeps, loses])
        strategy.settle([keeps, loses])
        tokens.append(step.rows.tokens)
        cost = StatedCost(DURATIONS, 4)
        durations = strategy.durations(cost, step)
        assert (durations.target, durations.draft, durations.exchange) == pytest.approx(
            (0.010, 0.008, 0.0005)
        )
        assert strategy.step_seconds(durations, step.kind) == pytest.approx(0.0105)
    assert tokens == [2, 5, 5]
    assert (keeps.context, loses.context) == (109, 203)


def test_a_run_of_two_requests_takes_the_steps_that_are_counted_by_hand() -> None:
    """Nine tokens each, the first with the prompt. Request 1 keeps 1, 4, 2 + 1: steps 1 to 3.
    Request 2 begins with the 4: 1, then 2 + 1, then 0 + 1, then 1 and 4: steps 1 to 5.
    """
    strategy = Pearl(gamma=4)
    acceptance = Staggered((1, 4, 2, 0), (False,) * 4)
    requests = Requests(concurrency=2, count=2, output_tokens=9)
    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    scheduler = Scheduler(
        strategy,
        acceptance,
        None,
        ClosedLoop(requests),
        StatedCost(DURATIONS, 4),
        FixedBatch(),
        Blocks(16, 1_000),
    )
    world.environment.process(scheduler.run(world, lanes))
    world.environment.run()
    scheduler.check()
    tally = scheduler.ledger.tally
    assert tally.step_seconds == pytest.approx(5 * 0.0105)
    met = {(kind.verifying, kind.bare): count for kind, count in tally.steps.items()}
    assert met == {(0, 2): 1, (2, 0): 1, (1, 1): 1, (0, 1): 1, (1, 0): 1}


@given(st.floats(0.05, 0.95), st.integers(2, 12))
def test_the_law_is_the_renewal_of_runs(rate: float, gamma: int) -> None:
    """A run with its correction: 1 / (1 - a) tokens in 1 + a / (1 - a^gamma) steps."""
    strategy = Pearl(gamma=gamma)
    odds = odds_of(Rates((rate,)), None)
    law = strategy.law(StatedCost(DURATIONS, gamma), odds, 1, 100)
    steps = 1.0 + rate / (1.0 - rate**gamma)
    assert law.tokens_per_step == pytest.approx(1.0 / (1.0 - rate) / steps, rel=1e-9)
    rows = sum(share * strategy.step(kind, 100).rows.tokens for kind, share in law.kinds.items())
    assert rows == pytest.approx((1.0 + (steps - 1.0) * gamma) / steps, rel=1e-9)


def test_windows_follow_the_batch_where_that_is_asked_for() -> None:
    """A target of 10 ms and a draft of 3: 3.33, rounded to 3; at most gamma."""
    cost = StatedCost(StatedDurations(target_ms=10.0, draft_step_ms=3.0), 8)
    odds = odds_of(Rates((0.8,)), None)
    tuned = Pearl(gamma=8, rule="round").tuned(cost, odds, 5, 100)
    assert tuned.windows == {1: 3, 2: 3, 4: 3}
    assert (tuned.window_for(5), tuned.rule) == (3, "stated")
    assert Pearl(gamma=2, rule="round").tuned(cost, odds, 1, 100).window_for(1) == 2


def test_a_window_that_the_scheduler_cuts_is_verified_in_parts() -> None:
    strategy = Pearl(gamma=4)
    state = strategy.open(Cycle((9,), (False,)).cursor(0, None), 100)
    tokens = []
    for most in (9, 2, 2, 9):
        state.most_rows = most
        tokens.append(strategy.compose([state]).rows.tokens)
        strategy.settle([state])
    assert tokens == [1, 2, 2, 4]
    assert state.context == 109


def test_one_request_is_as_in_duodecoding_with_one_sequence() -> None:
    """The same schedule under another name: PEARL of one request, up to the messages."""
    duo = load("pearl_llama_2_70b_a800", ["requests.count=3"])
    pearl = load("pearl_llama_2_70b_a800", ["requests.count=3", "strategy={name: pearl, gamma: 5}"])
    acceptance = odds_of(Rates((0.8,)), None)
    law = pearl.scenario.schedule.law(pearl.scenario.cost, acceptance, 1, 300)
    read = duo.scenario.schedule.reads(Rates((0.8,)))
    other = duo.scenario.schedule.law(duo.scenario.cost, odds_of(read, None), 1, 300)
    assert law.tokens_per_step == pytest.approx(other.tokens_per_step, rel=1e-9)
    assert law.step_s == pytest.approx(other.step_s, rel=0.01)


# ---- steps by hand


def test_a_window_and_a_row_beside_a_prompt() -> None:
    """A row takes the target 1 s, a pass of the draft 0.1 s for each request. One of two requests
    has a window of four; the draft reads six tokens, then writes four passes.
    """
    strategy, ledger = Pearl(gamma=4), Ledger()
    batch = with_contexts(strategy, (10, 4), (20, 0))
    batch[0].pending = 3
    step = strategy.compose(batch, PROMPT)
    assert step.kind == Kind("step", 1, 1, prompts=1)
    assert step.rows == Rows.decode(4, 10, 1) + Rows.decode(1, 20, 1)
    assert (step.prompts, [state.window for state in batch]) == (PROMPT, [4, 4])
    t = strategy.durations(ledger, step)
    assert t == PearlDurations(near(11.0), near(1.5 + 4 * 0.2), near(2 * 5 * 4 * 1e-3))
    assert ("prefill", "draft", PROMPT) in ledger.asked
    assert ("draft", Rows(2, 2, 2, 35, 34), "window") in ledger.asked
    assert ledger.asked[-2][:3] == ("rendezvous", "fv", 5)
    assert booked(strategy, t, step.kind) == (
        [
            ("draft", 0, near(2.3), "draft"),
            ("target", 0, near(11.0), "verify"),
            ("rendezvous", near(11.0), near(11.04), "exchange"),
        ],
        near(11.04),
    )
    late = t._replace(draft=12.0)
    assert booked(strategy, late, step.kind)[1] == near(12.04)
    assert strategy.in_turn(late, step.kind, False) == (12.0, near(0.04))
    assert strategy.in_turn(late, step.kind, True) == (near(11.0), 12.0, near(0.04))
    assert strategy.settle(batch) == [Progress(4, 4, 4, 4), Progress(1, 1, 0, 1)]
    assert [(state.context, state.pending) for state in batch] == [(14, 3), (21, 0)]


def test_a_step_that_only_reads_drafts_nothing() -> None:
    strategy, ledger = Pearl(gamma=4), Ledger()
    t = strategy.durations(ledger, strategy.compose([], PROMPT))
    assert t == PearlDurations(near(6.0), near(1.5), 0.0)
    needs = Needs(draft_model=True, draft_steps=4, cache_tokens=8, rows=4)
    assert strategy.needs == needs


def test_the_course_of_a_request_is_that_of_its_steps() -> None:
    """Of sums of contexts: one request of three is in post-verify, with 10 of 60 tokens."""
    strategy = Pearl(gamma=4, windows={1: 4, 2: 3})
    assert strategy.step_of(3, (60, 1, 10)) == Step(
        Kind("step", 1, 2, window=3), Rows.decode(3, 10, 1) + Rows.decode(1, 50, 2)
    )
    assert [strategy.course_window(size) for size in (1, 3)] == [4, 3]
    state = with_contexts(strategy, (10, 1))[0]
    assert strategy.alone(state, 3) == ((10, 0, 0), Progress(1, 1, 1, 1))
    assert (state.context, state.pending, strategy.along(state)) == (11, 2, (11, 1, 11))


def test_with_two_tokens_the_only_one_pending_is_a_window() -> None:
    """Windows of two have a token pending behind the first; of one there are none."""
    strategy = Pearl(gamma=2)
    batch = with_contexts(strategy, (10, 2))
    kinds = []
    for _ in range(2):
        kinds.append(strategy.compose(batch).kind.verifying)
        strategy.settle(batch)
    assert kinds == [0, 1]
    assert strategy.post_share(odds_of(Rates((0.5,)), None), 1) == 0.0
    step = strategy.step(Kind("step", 2, 1), 10)
    assert step.rows == Rows.decode(2, 20, 2) + Rows.decode(1, 10, 1)


def test_the_example_is_bound_by_its_draft() -> None:
    """Four passes of 5.5 ms beside 18, a quarter of which memory takes, and the exchange."""
    example = Pearl.example()
    strategy = example.strategy
    odds = odds_of(Cycle((4,)), None)
    law = strategy.law(example.cost_of(strategy), odds, 1, 9)
    assert law.step_s == near(0.022 + 0.25 * 0.018 + 0.0002)
    assert (strategy.window, law.tokens_per_step) == (4, near(4.0))
