"""Drafts on the devices of clients: what a step is, when the way to the server is too long, and how
many clients a server then serves.
"""

from __future__ import annotations

from math import isclose
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import assume, given, strategies as st

from simulator import law as law_of, run
from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.strategies.common.ahead import AheadDurations
from simulator.core.strategies.common.step import (
    ABSENT,
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
)
from simulator.core.strategies.common.traits import Needs
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import Span, World
from simulator.papers.edge_sd.strategy import (
    EdgeSD,
    longest_round_trip_s,
    more_clients,
)
from simulator.scenario import load
from tests.ledger import PROMPT, Ledger, booked, near, states as with_contexts

HARDWARE = "edge_qwen3_32b_h100_m4_max"
FAR = StatedDurations(target_ms=20.0, draft_step_ms=3.0, rv_fv_ms=10.0)


def cost_of(durations: StatedDurations, gamma: int = 4) -> StatedCost:
    return StatedCost(durations, gamma + 1)


def states(strategy: EdgeSD, kept: int, requests: int) -> list[State]:
    return [
        strategy.open(Cycle((kept,), (False,)).cursor(number, None), 100)
        for number in range(requests)
    ]


def played(strategy: EdgeSD, durations: StatedDurations, requests: int) -> list[Span]:
    """What one step of requests with windows at hand books."""
    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("network"))
    step = strategy.compose(states(strategy, 9, requests))
    cost = cost_of(durations)
    list(strategy.timeline(lanes, strategy.durations(cost, step), step.kind))
    world.environment.run()
    return world.spans


def in_ms(spans: list[Span]) -> list[tuple[str, float, float, str]]:
    return [
        (lane, round(begin * 1e3, 9), round(end * 1e3, 9), label)
        for lane, begin, end, label in spans
    ]


def test_a_client_drafts_while_its_window_is_away() -> None:
    """Five passes of 3 ms beside 20 ms at the server and 10 ms on either way."""
    assert in_ms(played(EdgeSD(gamma=4), FAR, 1)) == [
        ("draft", 0.0, 15.0, "draft ahead"),
        ("target", 0.0, 20.0, "verify"),
        ("network", 20.0, 30.0, "verdicts"),
        ("network", 30.0, 40.0, "windows"),
    ]


def test_clients_that_wait_draft_between_the_ways() -> None:
    """Two groups take 20 ms each; the windows of the first are back 12 ms of drafting later."""
    assert in_ms(played(EdgeSD(gamma=4, groups=2, ahead=False), FAR, 3)) == [
        ("target", 0.0, 20.0, "verify"),
        ("network", 20.0, 30.0, "verdicts"),
        ("target", 20.0, 40.0, "verify others"),
        ("draft", 30.0, 42.0, "draft"),
        ("network", 42.0, 52.0, "windows"),
    ]


def test_a_request_whose_window_is_lost_sits_one_step_out() -> None:
    """Windows of four with a guess behind them: of five tokens all are right, then three, then all
    again. The first lets the next window stand; behind the second the request writes another.
    """
    strategy = EdgeSD(gamma=4)
    state = strategy.open(Cycle((5, 3), (False, False)).cursor(0, None), 100)
    seen = []
    for _ in range(4):
        step = strategy.compose([state])
        (progress,) = strategy.settle([state])
        durations = strategy.durations(cost_of(FAR), step)
        seconds = strategy.step_seconds(durations, step.kind)
        seen.append((step.rows.tokens, progress.verified, progress.missed, round(seconds, 9)))
    assert seen[:2] == [(5, 5, False, 0.040), (5, 4, True, 0.040)]
    assert seen[2:] == [(0, 0, False, 0.012), (5, 5, False, 0.040)]
    assert state.context == 114


def test_groups_are_as_even_as_can_be() -> None:
    strategy = EdgeSD(gamma=4, groups=3)
    step = strategy.compose(states(strategy, 5, 8))
    assert [rows.sequences for rows in step.loads] == [3, 3, 2]
    assert step.loads[0] == Rows.decode(5, 300, 3)
    assert len(strategy.compose(states(strategy, 5, 2)).loads) == 2


def test_a_client_drafts_for_itself_alone() -> None:
    """Eight clients take as long to draft as one, and no more room on a device of theirs."""
    (eight, one) = [
        load(HARDWARE, [f"requests.concurrency={clients}"]).scenario for clients in (8, 1)
    ]
    drafted = []
    for scenario, clients in ((eight, 8), (one, 1)):
        (kind, *_) = scenario.schedule.kinds(odds_of(Rates((1.0,)), None), clients)
        step = scenario.schedule.step(kind, 500)
        drafted.append(scenario.schedule.phases(scenario.cost, step)["draft"].wall_s)
    assert drafted[0] == pytest.approx(drafted[1])
    assert eight.kv_tokens == one.kv_tokens
    assert eight.kv_tokens == eight.replace(strategy=VanillaSD(), draft=None).kv_tokens


# ---- the two inequalities


def at_a_distance_s(
    gamma: int, draft_s: float, target_s: float, trip_s: float, kept: float, clients: int = 1
) -> float:
    """Seconds a token of one of some clients that draft ahead, by the law."""
    durations = StatedDurations(
        target_ms=target_s * 1e3, draft_step_ms=draft_s * 1e3, rv_fv_ms=trip_s * 500
    )
    odds = odds_of(Rates((kept,)), None)
    return float(EdgeSD(gamma=gamma).law(cost_of(durations, gamma), odds, clients, 100).tpot_s)


def at_the_server_s(gamma: int, draft_s: float, target_s: float, kept: float) -> float:
    """Seconds a token of one client of a server that drafts itself, as fast."""
    durations = StatedDurations(target_ms=target_s * 1e3, draft_step_ms=draft_s * 1e3)
    odds = odds_of(Rates((kept,)), None)
    return float(VanillaSD(gamma=gamma).law(StatedCost(durations, gamma), odds, 1, 100).tpot_s)


@given(
    gamma=st.integers(1, 12),
    draft_s=st.floats(0.001, 0.02),
    target_s=st.floats(0.001, 0.1),
    trip_s=st.floats(0.0, 0.4),
    kept=st.floats(0.0, 1.0),
)
def test_beyond_the_drafting_window_it_pays_for_no_acceptance(
    gamma: int, draft_s: float, target_s: float, trip_s: float, kept: float
) -> None:
    """A round trip longer than gamma passes of the draft: never sooner than from the server."""
    assume(trip_s >= longest_round_trip_s(gamma * draft_s, target_s, 0.0, 1))
    served_s = at_the_server_s(gamma, draft_s, target_s, kept)
    assert at_a_distance_s(gamma, draft_s, target_s, trip_s, kept) >= served_s * (1 - 1e-9)


@given(
    gamma=st.integers(1, 12),
    draft_s=st.floats(0.001, 0.02),
    target_s=st.floats(0.02, 0.1),
    kept=st.floats(0.0, 1.0),
    clients=st.integers(1, 6),
    off_s=st.one_of(st.floats(-0.05, -1e-6), st.floats(1e-6, 0.05)),
)
def test_the_longest_round_trip_is_where_the_laws_cross(
    gamma: int, draft_s: float, target_s: float, kept: float, clients: int, off_s: float
) -> None:
    """The server takes as long for some clients as for one, so that one stands for all there."""
    lost = 1.0 - kept ** (gamma + 1)
    longest_s = longest_round_trip_s(gamma * draft_s, target_s, lost, clients)
    trip_s = max(0.0, longest_s + off_s, (gamma + 1) * draft_s - target_s)
    apart_s = at_a_distance_s(gamma, draft_s, target_s, trip_s, kept, clients)
    served_s = at_the_server_s(gamma, draft_s, target_s, kept)
    assert (apart_s < served_s) is (trip_s < longest_s) or isclose(apart_s, served_s, rel_tol=1e-9)


@pytest.mark.parametrize(("kept", "said_ms"), [(1.0, 80.0), (0.97, 60.8), (0.8, 10.7)])
def test_a_sweep_over_round_trips_crosses_within_a_millisecond(kept: float, said_ms: float) -> None:
    """Round trips of 1 to 200 ms, a client that drafts 8 tokens of 10 ms each, a server of 90 ms:
    80 ms where all is kept, fewer where some windows are lost.
    """
    lost = 1.0 - kept**9
    longest_s = longest_round_trip_s(0.080, 0.090, lost, 1)
    assert 1e3 * longest_s == pytest.approx(said_ms, abs=0.1)
    served_s = at_the_server_s(8, 0.010, 0.090, kept)
    pays = [
        trip_ms
        for trip_ms in range(1, 201)
        if at_a_distance_s(8, 0.010, 0.090, trip_ms * 1e-3, kept) < served_s
    ]
    assert pays == list(range(1, len(pays) + 1))
    assert abs(len(pays) - said_ms) <= 1.0


@pytest.mark.parametrize(("trip_ms", "pays"), [(1, True), (79, True), (81, False), (200, False)])
def test_what_the_sweep_says_is_so_simulated(trip_ms: int, pays: bool) -> None:
    rest = ["acceptance={rate: 1.0}", "requests={count: 2, output_tokens: 1801, prompt_tokens: 10}"]
    here = "durations={target_ms: 90, draft_step_ms: 10}"
    far = f"durations={{target_ms: 90, draft_step_ms: 10, rv_fv_ms: {trip_ms / 2}}}"
    at_server = run("durations_only", ["strategy={name: vanilla_sd, gamma: 8}", here, *rest])
    at_client = run("durations_only", ["strategy={name: edge_sd, gamma: 8}", far, *rest])
    assert (at_client.simulated.tpot_s < at_server.simulated.tpot_s) is pays


@given(
    gamma=st.integers(1, 12),
    draft_s=st.floats(0.001, 0.02),
    target_s=st.floats(0.005, 0.1),
    trip_s=st.floats(0.0, 0.2),
    groups=st.integers(1, 40),
)
def test_a_saturated_server_serves_more_clients_by_what_it_drafts_no_more(
    gamma: int, draft_s: float, target_s: float, trip_s: float, groups: int
) -> None:
    """A server that drafts and verifies for one client after the other serves each of N every
    N (gamma T_draft + T_target); with their drafts elsewhere N' as often, N' / N = 1 + gamma
    T_draft / T_target, if they are enough to keep it busy, and never more than that.
    """
    durations = StatedDurations(
        target_ms=target_s * 1e3, draft_step_ms=draft_s * 1e3, rv_fv_ms=trip_s * 500
    )
    strategy = EdgeSD(gamma=gamma, groups=groups, ahead=False)
    odds = odds_of(Rates((0.8,)), None)
    cycle_s = float(strategy.law(cost_of(durations, gamma), odds, groups, 100).step_s)
    at_server = cycle_s / (gamma * draft_s + target_s)
    bound = more_clients(gamma * draft_s, target_s)
    saturated = groups * target_s >= target_s + trip_s + gamma * draft_s
    assert groups / at_server <= bound * (1 + 1e-9)
    if saturated:
        assert groups / at_server == pytest.approx(bound)


def test_capacity_is_that_of_the_law_simulated() -> None:
    """Drafts of 15 ms and passes of 20: 1.75 times as many clients, 7 where 4 were served."""
    sets = [
        "strategy={name: edge_sd, gamma: 5, groups: 7, ahead: false}",
        "durations={target_ms: 20, draft_step_ms: 3, rv_fv_ms: 20}",
        "requests={count: 70, concurrency: 7, output_tokens: 101, prompt_tokens: 10}",
    ]
    step_s = law_of("durations_only", sets).step_s
    assert step_s == pytest.approx(7 * 0.020)
    assert step_s == pytest.approx(4 * 0.035)
    assert run("durations_only", sets).simulated.step_s <= step_s * (1 + 1e-9)
    assert more_clients(0.015, 0.020) == pytest.approx(7 / 4)


def test_the_page_of_the_law_says_how_far_away_a_client_may_be() -> None:
    """Windows of 8 tokens of 10 ms, a server of 90: 60.8 ms of a client that loses a window in
    four, 1 + 80 / 90 times as many clients.
    """
    durations = StatedDurations(target_ms=90.0, draft_step_ms=10.0, rv_fv_ms=15.0)
    strategy = EdgeSD(gamma=8)
    odds = odds_of(Rates((0.97,)), None)
    found = strategy.derived(cost_of(durations, 8), strategy.step(Kind("step", 1), 100), odds)
    assert found == {
        "round_trip_ms": pytest.approx(30.0),
        "longest_round_trip_ms": pytest.approx(60.8, abs=0.1),
        "times_as_many_clients": pytest.approx(17 / 9),
    }
    waits = EdgeSD(gamma=8, ahead=False)
    assert set(waits.derived(cost_of(durations, 8), waits.step(Kind("step", 1), 100), odds)) == {
        *("round_trip_ms", "times_as_many_clients")
    }
    idle = Kind("step", 0, waiting=1)
    assert strategy.derived(cost_of(durations, 8), strategy.step(idle, 100), odds) == {}
    done = CliRunner().invoke(main, ["law", HARDWARE, "--long"])
    assert done.exit_code == 0, done.output
    assert "longest round trip" in done.stdout
    assert "times as many clients" in done.stdout


# ---- steps by hand


def test_a_step_of_two_turns_with_a_client_that_waits_and_a_prompt() -> None:
    """A row takes the server 1 s and a client 0.1 s. Six tokens are read beside the window of the
    first turn; a device of a client reads them in 1.5 s and writes three tokens.
    """
    strategy, ledger = EdgeSD(gamma=2, groups=2), Ledger()
    batch = with_contexts(strategy, (10, 3), (20, 1), (30, 1))
    batch[2].ready = False
    step = strategy.compose(batch, PROMPT)
    assert step.kind == Kind("step", 2, waiting=1, prompts=1)
    assert step.loads == (Rows.decode(3, 10, 1), Rows.decode(3, 20, 1))
    assert (step.redraft_kv_tokens, step.prompts) == (30, PROMPT)
    t = strategy.durations(ledger, step)
    assert t._asdict() == {
        "target": near(9.0),
        "others": near(3.0),
        "draft": near(1.5 + 3 * 0.1),
        "down": near(0.012),
        "up": near(0.012),
    }
    assert ("draft", Rows(1, 1, 1, 22, 22), "window") in ledger.asked  # of 66 tokens a third
    assert ("prefill", "draft", PROMPT) in ledger.asked
    spans = [
        ("draft", 0, near(1.8), "draft ahead"),
        ("target", 0, near(9.0), "verify"),
        ("rendezvous", near(9.0), near(9.012), "verdicts"),
        ("target", near(9.0), near(12.0), "verify others"),
        ("rendezvous", near(9.012), near(9.024), "windows"),
    ]
    assert booked(strategy, t, step.kind) == (spans, near(12.0))
    assert strategy.step_seconds(t, step.kind) == near(12.0)
    assert strategy.settle(batch) == [
        Progress(3, 3, 3, 3),
        Progress(2, 2, 1, 3, missed=True),
        ABSENT,
    ]
    assert [(state.context, state.ready) for state in batch] == [
        *((13, True), (22, False), (30, True))
    ]


def test_where_no_window_is_at_hand_a_step_is_their_drafting() -> None:
    strategy, ledger = EdgeSD(gamma=2), Ledger()
    kind = Kind("step", 0, waiting=2)
    step = strategy.step(kind, 50)
    assert (step.rows, step.redraft_kv_tokens, step.loads) == (NO_ROWS, 100, ())
    t = strategy.durations(ledger, step)
    assert t == AheadDurations(0.0, 0.0, near(0.2), 0.0, 0.0)
    assert ledger.asked == [("draft", Rows(1, 1, 1, 50, 50), "window")]
    assert booked(strategy, t, kind) == (
        [("draft", 0, near(0.2), "draft"), ("rendezvous", near(0.2), near(0.2), "windows")],
        near(0.2),
    )
    sent = t._replace(up=0.5)
    assert strategy.step_seconds(sent, kind) == near(0.7)
    waits = EdgeSD(gamma=2, ahead=False)
    assert waits.durations(ledger, step).up == near(0.012)
    assert waits.lost(odds_of(Rates((0.5,)), None)) == 0.0


def test_first_windows_are_sent_behind_the_prompts() -> None:
    strategy, ledger = EdgeSD(gamma=2), Ledger()
    admitted = strategy.admission(ledger, PROMPT, 2, 6)
    assert admitted == Admission(near(3.0), near(1.5), near(0.2 + 0.012))
    assert ledger.asked[-1] == ("draft", Rows(1, 1, 1, 4, 4), "window")
    assert strategy.admission(Ledger(), PROMPT) == Admission(near(3.0), near(1.5), 0.0)
    assert strategy.open(Cycle((1,)).cursor(0, None), 7, False).ready is False
    assert strategy.needs == Needs(draft_model=True, draft_steps=3, cache_tokens=6, rows=3)
    assert (strategy.drafted_together(9), strategy.caches_of_draft) == (1, 0.0)
    assert strategy.draft_devices(9) == 9.0


def test_the_example_of_the_edge_takes_turns() -> None:
    """Two clients: two passes of 18 ms are as long as one with both ways and longer than drafts."""
    example = EdgeSD.example()
    strategy = example.strategy
    assert isinstance(strategy, EdgeSD)
    assert (strategy.gamma, strategy.turns, strategy.writes_ahead) == (4, 2, True)
    odds = odds_of(Rates((1.0,)), None)
    (one, two) = [strategy.law(example.cost_of(strategy), odds, clients, 9) for clients in (1, 2)]
    assert (one.step_s, two.step_s) == (near(0.030), near(0.036))
    assert one.tokens_per_step == near(5.0)


def test_a_draft_that_shares_memory_or_lane_gives_a_bound() -> None:
    strategy = EdgeSD()
    shares = {Kind("step", 1): 1.0}
    claims = [
        str(strategy.claim(Ledger(contention=contention), 1, 9, shares, one_lane))
        for contention, one_lane in ((1.0, False), (1.5, False), (1.0, True), (1.5, True))
    ]
    bound = "lower bound: target and draft share one lane and cannot overlap"
    assert claims == [
        *("exact", "lower bound: a draft elsewhere shares no memory with the target", bound, bound)
    ]


def test_a_guess_has_to_be_recorded_too() -> None:
    recorded: Any = SimpleNamespace(window=5)
    assert EdgeSD(gamma=4)._unrecorded(recorded) is None
    assert EdgeSD(gamma=5)._unrecorded(recorded) == (
        "gamma",
        "knows windows of up to 5 draft tokens, and the guess behind 5 is one more; set "
        "strategy.gamma=4",
    )
