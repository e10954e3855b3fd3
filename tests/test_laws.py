"""Law against timeline, for every strategy there is: with deterministic acceptance they agree to
1e-9.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from simulator import law as law_of
from simulator.core.acceptance.sources import Cycle, Odds, Rates
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.quantities import Ranged
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import ClosedLoop, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies import Strategy, strategies
from simulator.core.strategies.common.adaptive import (
    FixedWindow,
    GoodputWindow,
    OffAbove,
    WindowRanges,
    WindowTable,
)
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.claim import Claim, Relation
from simulator.core.strategies.common.drafters import DraftPass, StreamingDrafter
from simulator.core.strategies.common.law import Law
from simulator.core.strategies.common.step import Kind, Lanes
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.tree_sd import TreeSD
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World
from simulator.evidence.law_check import check_example, check_mix, verdict_on
from simulator.papers.mirror_sd import MirrorSD, exposed_draft
from simulator.papers.pearl.strategy import Pearl
from simulator.papers.speculative_streaming.strategy import SpeculativeStreaming
from simulator.report.law_claims import law_sentence

milliseconds = st.floats(min_value=0.01, max_value=500.0)
given_durations = st.builds(
    StatedDurations,
    prefix_ms=milliseconds,
    suffix_ms=milliseconds,
    draft_ms=milliseconds,
    redraft_ms=milliseconds,
    draft_head_ms=milliseconds,
    rv_ee_ms=st.floats(0.0, 5.0),
    rv_fv_ms=st.floats(0.0, 5.0),
)
windows = st.integers(1, 9)
adaptives = st.one_of(
    st.just(FixedWindow()),
    st.builds(OffAbove, name=st.just("off_above"), requests=st.sampled_from([4, 8])),
    st.builds(WindowTable, name=st.just("table"), windows=st.just({1: 1, 5: 0})),
    st.builds(WindowRanges, ranges=st.just(((1, 4, 1), (5, 8, 0)))),
)
any_strategy = st.one_of(
    st.just(strategies()["autoregressive"]()),
    st.builds(VanillaSD, gamma=windows, bonus_on_full_accept=st.booleans(), adaptive=adaptives),
    st.builds(
        MirrorSD,
        gamma=windows,
        message=st.sampled_from(["per_position", "first_position"]),
        fallback=st.sampled_from(["redraft", "undrafted"]),
        others=st.sampled_from(["wait", "proceed"]),
        bonus_on_full_accept=st.booleans(),
        drafter=st.builds(StreamingDrafter, streams=st.integers(1, 3)),
        adaptive=adaptives,
    ),
    st.builds(
        TreeSD,
        tree=st.builds(
            TokenTree, branching=st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)
        ),
        passes=st.lists(st.builds(DraftPass, rows=st.just((2, 3))), max_size=2).map(tuple),
        host_ms=st.builds(Ranged, value=milliseconds),
        bonus_on_full_accept=st.booleans(),
    ),
    st.builds(
        SpeculativeStreaming,
        streams=st.integers(1, 5),
        branching=st.integers(1, 2),
        kept=st.sampled_from([None, 4]),
    ),
)


POLICIES: dict[str, Policy] = {
    "fixed_batch": FixedBatch(),
    "prefill_first": PrefillFirst(name="prefill_first"),
    "chunked_prefill": ChunkedPrefill(name="chunked_prefill", chunk_tokens=8 * 512),
    "unified_budget": UnifiedBudget(name="unified_budget", budget_tokens=8 * 512),
}
"""Chunk and budget take eight prompts at once, so that equal requests stay equal."""


def play(
    strategy: Strategy,
    acceptance: Any,
    cost: StatedCost,
    requests: Requests,
    policy: Policy = POLICIES["fixed_batch"],
) -> tuple[Scheduler, World]:
    world = World()
    if cost.contention > 1.0:
        world.share_memory(("target", "draft"), cost.contention)
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    loop = Scheduler(
        strategy,
        acceptance,
        early_exit(strategy, None),
        ClosedLoop(requests),
        cost,
        policy,
        Blocks(16, 100_000),
    )
    world.environment.process(loop.run(world, lanes))
    world.environment.run()
    loop.check()
    return loop, world


def agree(law: Law, loop: Scheduler) -> None:
    tally = loop.ledger.tally
    steps = sum(tally.steps.values())
    assert tally.step_seconds / steps == pytest.approx(law.step_s, rel=1e-9)
    assert tally.committed / tally.request_steps == pytest.approx(law.tokens_per_step, rel=1e-9)


factors = st.lists(st.one_of(st.just(0.0), st.floats(0.05, 20.0)), min_size=1, max_size=5)


@pytest.mark.parametrize("name", list(strategies()))
@settings(max_examples=6)
@given(factors)
@example([1.0])
def test_every_law_keeps_its_claim_on_its_example(name: str, factors: list[float]) -> None:
    """Law, replay and timeline at 1e-9, for whatever strategy there is: nothing is listed here."""
    verdict = verdict_on(strategies()[name].example().scaled(factors), drawn=False)
    assert not verdict.disagreement, law_sentence(verdict)


@pytest.mark.parametrize("name", list(strategies()))
def test_every_law_has_the_mix_of_steps_that_chance_brings(name: str) -> None:
    checks = list(check_mix(strategies()[name].example()))
    assert not any(check.disagreement for check in checks), checks
    if name in ("pearl", "saguaro", "specpipe"):
        assert {check.way.partition(",")[0] for check in checks} == {"share of steps"}


@pytest.mark.parametrize("name", list(strategies()))
def test_every_example_holds_steps_from_rest_or_in_flight_a_replay_and_a_simulation(
    name: str,
) -> None:
    checks = [check for check in check_example(strategies()[name].example()) if check.claim.exact]
    ways = {check.way.partition(",")[0] for check in checks}
    assert ways >= {"simulation", "replay"}
    assert "step from rest" in ways or strategies()[name].traits.staged


class WrongMix(Pearl):
    """Its mix of steps is right where all or none of a window is kept, and nowhere between."""

    name: Literal["wrong_mix"] = "wrong_mix"

    def post_share(self, odds: Any, window: int) -> Any:
        return odds(window).accepted[-1]


class OneNumber(Pearl):
    """Its mix of steps knows one acceptance rate at a time."""

    name: Literal["one_number"] = "one_number"

    def post_share(self, odds: Any, window: int) -> Any:
        return float(odds(window).accepted[-1])


def test_a_wrong_mix_of_steps_is_caught_by_chance() -> None:
    verdict = verdict_on(WrongMix.example())
    assert verdict.disagreement
    assert "share of steps (batch 1, chance 0." in law_sentence(verdict)


def test_kinds_have_to_take_arrays_or_say_that_they_do_not() -> None:
    with pytest.raises(BadInput, match=r"one_number: kinds fails .* leave out float\(\)"):
        verdict_on(OneNumber.example())


class OneDuration(Pearl):
    """Its law knows one duration at a time."""

    name: Literal["one_duration"] = "one_duration"

    def step_seconds(self, durations: Any, kind: Kind) -> Any:
        return max(durations.target, durations.draft)


class Between(Pearl):
    """Its law is another one for several durations at once."""

    name: Literal["between"] = "between"

    def step_seconds(self, durations: Any, kind: Kind) -> Any:
        return np.mean(durations.target) + super().step_seconds(durations, kind) * 0.0


def test_a_law_has_to_take_arrays_of_durations() -> None:
    with pytest.raises(BadInput, match=r"one_duration: .* fails: .* np\.maximum for max"):
        verdict_on(OneDuration.example())


def test_a_law_is_the_same_for_several_durations_at_once() -> None:
    with pytest.raises(BadInput, match=r"between: step_seconds .* is another one than for one"):
        verdict_on(Between.example())


class Twice(VanillaSD):
    """Its law charges the draft twice."""

    name: Literal["twice"] = "twice"
    relation: ClassVar[Relation] = "exact"

    def step_seconds(self, durations: Any, kind: Kind) -> Any:
        return durations.draft + super().step_seconds(durations, kind)

    def claim(self, *conditions: Any) -> Claim:
        return Claim(self.relation)


@pytest.mark.parametrize(
    ("relation", "disagrees"),
    [("exact", True), ("upper_bound", False), ("lower_bound", True), ("idealised", True)],
)
def test_a_wrong_law_is_caught_by_what_it_claims(
    relation: Any, disagrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """36 and 12.5 ms by lanes, 12 ms more by law; a law that only ever idealises leaves nothing to
    be held.
    """
    monkeypatch.setattr(Twice, "relation", relation)
    verdict = verdict_on(Twice.example())
    assert verdict.disagreement == disagrees
    assert ("FAIL" in law_sentence(verdict)) == disagrees
    if relation == "exact":
        assert verdict.worst is not None
        assert (verdict.worst.law, verdict.worst.process) == (
            pytest.approx(0.0605),
            pytest.approx(0.0485),
        )


@pytest.mark.parametrize("relation", ["exact", "upper_bound", "lower_bound", "idealised"])
def test_a_claim_allows_what_it_says(relation: Any) -> None:
    claim = Claim(relation)
    allowed = {
        process
        for process in (0.9, 1.0 - 1e-12, 1.0, 1.5, 2.0 + 1e-12, 2.1)
        if claim.allows(process, 1.0, 2.0, 1e-9)
    }
    near = {1.0 - 1e-12, 1.0, 1.5, 2.0 + 1e-12}
    assert (
        allowed
        == near
        | {"exact": set(), "upper_bound": {0.9}, "lower_bound": {2.1}, "idealised": {0.9, 2.1}}[
            relation
        ]
    )


@pytest.mark.parametrize("policy", list(POLICIES))
@given(any_strategy, given_durations, st.integers(0, 9), st.booleans(), st.sampled_from([1, 8]))
def test_law_and_simulation_agree_with_constant_acceptance(
    policy: str,
    strategy: Strategy,
    durations: StatedDurations,
    accepted: int,
    off_exit: bool,
    batch: int,
) -> None:
    check_agreement(policy, strategy, durations, accepted, off_exit, batch)


def check_agreement(
    policy: str,
    strategy: Strategy,
    durations: StatedDurations,
    accepted: int,
    off_exit: bool,
    batch: int,
    cycles: int = 1,
) -> None:
    """Two runs of different length differ by whole cycles of steady steps; the first step, whose
    window is always at hand, drops out.

    ``cycles`` is how many times as long a cycle is as the window alone would make it.
    """
    if strategy.traits.separate_prompts:
        policy = {"chunked_prefill": "prefill_first", "unified_budget": "fixed_batch"}.get(
            policy, policy
        )
    acceptance = Cycle((accepted,), (off_exit,))
    cost = StatedCost(durations, strategy.needs.draft_steps)
    law = strategy.law(cost, lambda gamma: acceptance.odds(gamma, None), batch, 100)
    if isinstance(strategy, MirrorSD) and any(share < 1.0 for share in law.kinds.values()):
        law = strategy.law(
            cost,
            lambda gamma: acceptance.odds(gamma, None),
            batch,
            100,
            in_lockstep(strategy, batch),
        )
    gamma = strategy.window_for(batch)
    full = accepted >= gamma and gamma and not strategy.bonus_on_full_accept
    window = min(accepted, gamma) + (0 if full else 1)
    cycle = 2 * window * (window + 1) * cycles
    short, long = (
        play(
            strategy,
            acceptance,
            cost,
            Requests(concurrency=batch, count=batch, output_tokens=1 + cycle * turns),
            POLICIES[policy],
        )[0].ledger.tally
        for turns in (1, 3)
    )
    steps = sum(long.steps.values()) - sum(short.steps.values())
    assert (long.step_seconds - short.step_seconds) / steps == pytest.approx(law.step_s, rel=1e-9)
    assert (long.committed - short.committed) / (steps * batch) == pytest.approx(
        law.tokens_per_step, rel=1e-9
    )


def in_lockstep(strategy: Strategy, batch: int) -> dict[Kind, float]:
    """Equal requests lose their window together and find it together: the two kinds take turns."""
    assert isinstance(strategy, MirrorSD)
    window = strategy._noted(strategy.window_for(batch))
    kinds = strategy.kind_of(batch, 0), strategy.kind_of(0, batch)
    return {kind._replace(window=window if kind.verifying else None): 0.5 for kind in kinds}


@given(
    given_durations,
    windows,
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8),
)
def test_law_and_simulation_agree_over_a_cycle_with_fallbacks(
    durations: StatedDurations, gamma: int, cycle: list[tuple[int, bool]]
) -> None:
    """One request; the kind of a step is set by the verdict before, so the cycle is played from its
    second turn on.
    """
    strategy = MirrorSD(gamma=gamma)
    acceptance = Cycle(tuple(a for a, _ in cycle), tuple(off for _, off in cycle))
    cost = StatedCost(durations, strategy.needs.draft_steps)
    law = strategy.law(cost, lambda g: acceptance.odds(g, None), 1, 100)
    tokens = sum(min(a, gamma) + 1 for a, _ in cycle)
    once, twice = (
        play(strategy, acceptance, cost, Requests(count=1, output_tokens=1 + tokens * turns))[
            0
        ].ledger.tally
        for turns in (1, 2)
    )
    steps = sum(twice.steps.values()) - sum(once.steps.values())
    assert steps == len(cycle)
    assert (twice.step_seconds - once.step_seconds) / steps == pytest.approx(law.step_s, rel=1e-9)
    assert (twice.committed - once.committed) / steps == pytest.approx(
        law.tokens_per_step, rel=1e-9
    )


class Staggered(Cycle):
    """The same cycle, each request one turn further on: exactly one of eight requests is off the
    tree at a time.
    """

    def cursor(self, request: int, exit: Any) -> Any:
        cursor = super().cursor(request, exit)
        cursor.position = request
        return cursor


@given(
    given_durations, windows, st.integers(0, 9), st.sampled_from(["wait", "proceed", "undrafted"])
)
def test_eight_requests_with_one_in_fallback(
    durations: StatedDurations, gamma: int, accepted: int, switch: str
) -> None:
    """What the seven others do is the explicit switch: wait for the redraft, step on, or carry a
    bare token along.
    """
    strategy = MirrorSD(
        gamma=gamma,
        fallback="undrafted" if switch == "undrafted" else "redraft",
        others="proceed" if switch == "proceed" else "wait",
    )
    acceptance = Staggered((accepted,), (True,) + (False,) * 7)
    cost = StatedCost(durations, strategy.needs.draft_steps)
    loop, _ = play(
        strategy,
        acceptance,
        cost,
        Requests(concurrency=8, count=8, output_tokens=1 + 8 * (min(accepted, gamma) + 1)),
    )
    kind = {
        "wait": Kind("fallback", 8, redrafts=1),
        "proceed": Kind("fallback", 7, redrafts=1, waiting=1),
        "undrafted": Kind("fallback", 7, bare=1),
    }[switch]
    assert loop.ledger.tally.steps[kind] >= 7
    simulated = loop.ledger.tally.seconds[kind] / loop.ledger.tally.steps[kind]
    t = strategy.durations(cost, strategy.step(kind, 100))
    late = {"wait": t.redraft, "proceed": 0.0, "undrafted": 0.0}[switch]
    start = max(0.0, t.redraft - t.prefix - t.rv_ee) if switch == "proceed" else 0.0
    expected = late + t.prefix + t.rv_ee + max(t.suffix, start + t.draft) + t.rv_fv
    assert float(strategy.step_seconds(t, kind)) == pytest.approx(expected, rel=1e-12)
    assert simulated == pytest.approx(expected, rel=1e-9)
    law = strategy.law(cost, lambda g: acceptance.odds(g, None), 8, 100, {kind: 1.0})
    window = min(accepted, gamma) + 1
    tokens = {"wait": 8 * window, "proceed": 7 * window, "undrafted": 7 * window + 1}[switch]
    assert law.tokens_per_step == pytest.approx(tokens / 8)


@given(given_durations, st.floats(1.0, 2.0))
def test_contention_is_the_same_term_in_law_and_simulation(
    durations: StatedDurations, slowdown: float
) -> None:
    strategy, acceptance = MirrorSD(gamma=4), Cycle((3,))
    cost = StatedCost(durations, strategy.needs.draft_steps, slowdown)
    loop, _ = play(strategy, acceptance, cost, Requests(count=1, output_tokens=1 + 4 * 10))
    agree(strategy.law(cost, lambda g: acceptance.odds(g, None), 1, 100), loop)


@given(given_durations)
def test_the_two_regimes_of_the_mirror_law(durations: StatedDurations) -> None:
    """MSD-3: hidden and exposed draft; the step saves min(Delta, T_d) - T_rv and never gains more
    than 1 + Delta/T_target.
    """
    t = MirrorSD(gamma=4).durations(StatedCost(durations, 4), MirrorSD().step(Kind("reuse", 1), 10))
    mirror = float(MirrorSD().step_seconds(t, Kind("reuse", 1)))
    target, rv = t.prefix + t.suffix, t.rv_ee + t.rv_fv
    serial = target + t.draft
    regime = target + rv if t.draft <= t.suffix else t.prefix + t.draft + rv
    assert mirror == pytest.approx(regime, rel=1e-12)
    assert serial - mirror == pytest.approx(min(t.suffix, t.draft) - rv, abs=1e-12)
    assert serial / mirror <= 1 + t.suffix / target + 1e-12
    assert mirror == pytest.approx(target + rv + float(exposed_draft(t)), rel=1e-12)


@given(st.floats(0.05, 0.98), windows, st.floats(0.0, 1.0))
def test_stated_rates_are_what_the_odds_say(alpha: float, gamma: int, spare: float) -> None:
    """E[A] = a (1 - a^gamma)/(1 - a), and per position the fallback bound holds with equality
    (MSD-8).
    """
    overlap = alpha + (1 - alpha) * spare
    odds = Rates((alpha,), overlap).odds(gamma, None)
    assert odds.accepted.sum() == pytest.approx(1.0)
    assert odds.mean_accepted == pytest.approx(alpha * (1 - alpha**gamma) / (1 - alpha))
    assert MirrorSD(gamma=1, bonus_on_full_accept=False).miss(
        Rates((alpha,), overlap).odds(1, None)
    ) == pytest.approx(1 - overlap)
    assert MirrorSD(gamma=gamma).miss(odds) <= 1.0 + 1e-12


def test_random_acceptance_meets_its_odds() -> None:
    """The law of independent requests, B = 4, against 40,000 drawn windows: within 1 %."""
    strategy, acceptance = MirrorSD(gamma=5), Rates((0.75,), 0.9, seed=3)
    cost = StatedCost(
        StatedDurations(
            prefix_ms=10, suffix_ms=10, draft_ms=8, redraft_ms=6, rv_ee_ms=0.1, rv_fv_ms=0.1
        ),
        5,
    )
    for options in (
        {},
        {"fallback": "undrafted"},
        {"others": "proceed"},
        {"message": "first_position"},
    ):
        strategy = MirrorSD(gamma=5, **options)
        loop, _ = play(
            strategy, acceptance, cost, Requests(concurrency=4, count=40, output_tokens=3_000)
        )
        law = strategy.law(cost, lambda g: acceptance.odds(g, None), 4, 100)
        steps = sum(loop.ledger.tally.steps.values())
        assert loop.ledger.tally.step_seconds / steps == pytest.approx(law.step_s, rel=0.01)
        assert loop.ledger.tally.committed / loop.ledger.tally.request_steps == pytest.approx(
            law.tokens_per_step, rel=0.01
        )


def test_a_law_is_the_same_expression_for_numbers_and_for_grids() -> None:
    draft = np.linspace(0, 40, 9)
    t = MirrorSD.traits.durations(18.0, 0.05, 18.0, draft, 0.05)
    whole = MirrorSD().step_seconds(t, Kind("reuse", 1))
    single = [
        float(MirrorSD().step_seconds(t._replace(draft=one), Kind("reuse", 1))) for one in draft
    ]
    assert whole.tolist() == single


def test_odds_of_a_cycle_are_shares() -> None:
    odds = Cycle((7, 3, 0, 5), (True, False)).odds(5, None)
    assert odds.accepted.tolist() == [0.25, 0, 0, 0.25, 0, 0.5]
    assert odds.off_exit.tolist() == [0.25, 0, 0, 0, 0, 0.25]
    assert isinstance(odds, Odds)


def test_the_window_of_most_goodput_shrinks_as_the_batch_makes_rows_dear() -> None:
    """Target 20 ms up to 64 rows and 1 ms a row beyond, draft 1 ms a token: worked out by law, for
    every batch.
    """

    class Knee(StatedCost):
        def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0) -> Phase:
            return Phase((20 + max(0, rows.tokens - 64)) * 1e-3, {})

    acceptance = Rates((0.8,))
    strategy = VanillaSD(gamma=8, adaptive=GoodputWindow(name="goodput"))
    cost = Knee(StatedDurations(target_ms=20, draft_step_ms=1), 8)
    found = strategy.tuned(cost, lambda gamma: acceptance.odds(gamma, None), 64, 100)

    def rate(window: int, batch: int) -> float:
        tokens = sum(0.8**i for i in range(window + 1))
        return batch * tokens / (20 + max(0, batch * (window + 1) - 64) + window)

    sizes = [*range(1, 17), 19, 23, 27, 32, 38, 45, 54, 64]
    best = [max(range(9), key=lambda window: rate(window, batch)) for batch in sizes]
    assert [found.window_for(batch) for batch in sizes] == best
    assert (best[0], best[-1]) == (8, 0)
    assert found.window_for(63) == found.window_for(54), "between two sizes the smaller one counts"
    assert found.tuned(cost, lambda gamma: acceptance.odds(gamma, None), 64, 100) is found


def test_the_law_of_a_scenario_is_that_of_the_windows_it_would_run_with() -> None:
    """A draft of 3 ms beside a target of 10: three tokens, not the 24 that are the most."""
    fields = [
        "strategy={name: pearl, gamma: 24, rule: round}",
        "durations={target_ms: 10, draft_step_ms: 3}",
        "acceptance={rate: 0.8}",
        "requests={count: 4}",
    ]
    for kind in law_of("durations_only", fields).to_dict()["kinds"]:
        assert kind["durations"]["draft_ms"] == pytest.approx(9.0)
