"""Drafters apart from verifiers in plans: what they rent together, and when another split of the
same devices is better.
"""

from __future__ import annotations

from functools import cache

import pytest

from simulator.papers.specactor.strategy import SpecActor
from simulator.report.pages.plan import loads_words
from simulator.scenario import load
from simulator.scenario.evaluate import law, tuned
from simulator.scenario.expenses import rented_devices, usd_per_hour
from simulator.studies.plan.file import Candidate, Plan, load_plan
from simulator.studies.plan.loads import WORTH, BestUse, best_uses
from simulator.studies.plan.search import Finding, examine, replicated
from simulator.studies.plan.study import study

NAME = "decoupled_qwen3_32b_8xh200"
PLAIN = "autoregressive"
OTHERS = [(4, 1), (6, 3), (7, 7)]
"""Replicas and verifiers of a group, which is what eight devices hold of it."""


def few(requests: int, rate_per_s: float) -> Plan:
    return load_plan(
        NAME,
        (
            f"scenario.requests.count={requests}",
            f"scenario.requests.arrivals.rate_per_s={rate_per_s}",
            "strategies.coupled.vary={strategy.gamma: [2, 5]}",
            "strategies.specactor.vary={strategy.verifiers: [1, 3, 7], strategy.gamma: [2, 5]}",
        ),
    )


@cache
def found() -> tuple[Plan, tuple[BestUse, ...]]:
    plan = few(40, 8)
    return plan, best_uses(plan, Finding(plan.candidates[0], 1))


def verifiers(candidate: Candidate) -> int:
    strategy = candidate.loaded.scenario.strategy
    return strategy.verifiers if isinstance(strategy, SpecActor) else 0


@pytest.mark.parametrize(
    ("drafters", "count", "group"), [(1, 1, 1), (1, 3, 3), (2, 4, 2), (4, 6, 3), (3, 1, 1)]
)
def test_verifiers_that_share_drafters_rent_them_together(
    drafters: int, count: int, group: int
) -> None:
    """A verifier has its part of a drafter; a group the fewest devices that are whole."""
    strategy = f"strategy={{name: specactor, drafters: {drafters}, verifiers: {count}}}"
    scenario = load("specactor_qwen3_32b_3xh200", [strategy]).scenario
    target, draft = rented_devices(scenario)
    assert target.number == 1
    assert draft.number == pytest.approx(drafters / count)
    assert usd_per_hour([target, draft]) == pytest.approx(3.99 * (1 + drafters / count))
    assert SpecActor(drafters=drafters, verifiers=count).sharing_targets == group


def test_a_plan_counts_whole_groups() -> None:
    plan, _ = found()
    for candidate in plan.candidates:
        group = verifiers(candidate)
        if group:
            assert candidate.devices == {"h200_sxm": group + 1}
            assert candidate.sizes == [
                size for size in range(group, 9, group) if size in candidate.sizes
            ]
            whole = candidate.sizes[-1]
            assert (whole, group) in OTHERS
            assert candidate.fleet_devices(whole) == {"h200_sxm": 8}
            assert candidate.fleet_usd_per_hour(whole) == pytest.approx(8 * 3.99)
            assert replicated(candidate.loaded, whole).scenario.serving.replicas == whole


@pytest.mark.few(2)
@pytest.mark.parametrize("requests", [1, 168, 504, 840])
def test_the_best_use_is_that_of_the_law(requests: int) -> None:
    """A single request, and numbers that are shared out evenly over 4, 6, 7 and 8 replicas: none is
    sooner than the use of this load by more than a change is worth.
    """
    plan, uses = found()
    best = [use for use in uses if use.from_requests <= requests][-1]
    tpot_ms: dict[int, float] = {}
    for candidate in plan.candidates:
        for replicas in candidate.sizes:
            if candidate.fleet_devices(replicas) == {"h200_sxm": 8} and candidate.strategy != PLAIN:
                ready = tuned(candidate.loaded)
                batch = max(1, requests // replicas)
                of_law = float(law(ready.scenario, ready.acceptance(), batch).tpot_s) * 1e3
                tpot_ms[replicas] = min(of_law, tpot_ms.get(replicas, of_law))
    assert sorted(tpot_ms) == [4, 6, 7, 8]
    assert best.devices == {"h200_sxm": 8}
    assert tpot_ms[best.replicas] <= min(tpot_ms.values()) / (1.0 - WORTH)
    if requests == best.from_requests:
        assert best.tpot_ms == pytest.approx(tpot_ms[best.replicas])


def test_the_more_requests_the_fewer_drafters() -> None:
    """One for every verifier, then for three, then for seven; then every target drafts itself."""
    _, uses = found()
    assert [verifiers(use.candidate) for use in uses][:4] == [1, 3, 7, 0]
    assert uses[3].candidate.strategy == "coupled"
    froms = [use.from_requests for use in uses]
    assert froms == sorted(froms)
    rates = [use.from_per_s for use in uses[:4]]
    assert rates == sorted(rates)


def test_simulations_of_little_and_of_much_load_agree() -> None:
    """With less than one request a second a drafter for each verifier is sooner than every target
    for itself; with twelve it is the other way about.
    """
    _, uses = found()
    first, coupled = uses[0], uses[3]
    for rate_per_s, sooner, later in ((0.8, first, coupled), (12.0, coupled, first)):
        plan = few(80, rate_per_s)
        tpot_s = []
        for use in (sooner, later):
            (same,) = (one for one in plan.candidates if one.name == use.candidate.name)
            outcome = examine(same, use.replicas, "end").outcome
            assert outcome
            tpot_s.append(outcome.tpot_s)
        assert tpot_s[0] < 0.97 * tpot_s[1]


@pytest.mark.full
def test_the_answer_tells_from_which_load_on_another_split_is_better() -> None:
    answered = study(few(30, 8), draws=1)
    words = loads_words(answered)
    assert words.startswith("by law tokens come soonest from 8 x h200_sxm as 4 x specactor")
    for use in answered.loads[1:]:
        assert f"from {use.from_requests:,} at a time on" in words
    assert "Planned are 8.00 a second" in words


def test_plans_that_decouple_nothing_say_nothing_of_it() -> None:
    plan = load_plan(
        NAME,
        (
            "strategies.specactor.strategy={name: mirror_sd}",
            "strategies.specactor.vary={strategy.gamma: [2]}",
        ),
    )
    assert best_uses(plan, Finding(plan.candidates[0], 1)) == ()
