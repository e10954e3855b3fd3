"""Intervals of what a scenario gives: how each answer follows what is not known for certain."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log, pi, sqrt
from typing import TypeAlias

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.engine import Engine
from simulator.core.quantities import nested
from simulator.core.serving.request_times import Times
from simulator.core.serving.service import OnIteration, OnRequest
from simulator.scenario import Loaded, Scenario
from simulator.scenario.evaluate import baseline, law, run, tuned
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.stated.means import possible_changes
from simulator.scenario.uncertain.acceptance import acceptance_range
from simulator.scenario.uncertain.devices import slowed
from simulator.scenario.uncertain.doubts import at_ends, doubtful, numbers_of, uneven
from simulator.scenario.uncertain.draws import (
    BY_CONTEXT,
    SHARE_DEVIATIONS,
    Doubt,
    Interval,
    interval,
)
from simulator.scenario.uncertain.footings import rests_on


def run_with_interval(
    loaded: Loaded,
    command: str = "",
    log: OnIteration | None = None,
    finished: OnRequest | None = None,
) -> tuple[RunResult, Interval]:
    """Return the result of :func:`simulator.scenario.evaluate.run`, and the interval of its
    speed-up.
    """
    times = Times(finished)
    loaded = tuned(loaded)
    result = run(loaded, command, log, times.note)
    result = replace(result, rests_on=rests_on(loaded))
    return result, of_speedup(loaded, result.speedup, times.requests)


def of_speedup(loaded: Loaded, speedup: float, requests: Sequence[tuple[float, int]]) -> Interval:
    """Return the interval of a run's speed-up; ``requests`` as :attr:`Times.requests` has them."""
    return interval(speedup, doubt_of(loaded, requests))


Quantity: TypeAlias = Callable[[Scenario, Acceptance], float]
"""A number above zero that the laws give of a scenario."""


def speedup_by_law(scenario: Scenario, acceptance: Acceptance) -> float:
    """Return the time per token of plain decoding over that of a scenario."""
    return float(baseline(scenario).tpot_s / law(scenario, acceptance).tpot_s)


def step_by_law(scenario: Scenario, acceptance: Acceptance) -> float:
    """Return the mean time of a step in seconds."""
    return float(law(scenario, acceptance).step_s)


def doubt_of(
    loaded: Loaded, requests: Sequence[tuple[float, int]], quantity: Quantity = speedup_by_law
) -> Doubt:
    """Return how a number follows what is not known for certain, taken from the laws, which are
    as good and much quicker.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    stated_law = law(scenario, acceptance)

    def by_law(other: Loaded) -> float:
        return quantity(other.scenario, acceptance)

    before = by_law(loaded)
    changes = {}
    for name, change in (*slowed(loaded), *doubtful(loaded)):
        changes[name] = log(by_law(change(loaded)) / before)
    for engine in nested(scenario, Engine):
        if engine.fit:
            changes[f"fit of engine {engine.name}"] = left_by(engine)
    by_context = scenario.acceptance.by_context
    if by_context:
        falling = by_context.model_copy(update={"fall": "lowest"})
        low = scenario.acceptance.model_copy(update={"by_context": falling})
        lowest = law(scenario, loaded.replace(acceptance=low).acceptance())
        changes[BY_CONTEXT] = log(stated_law.tpot_s / lowest.tpot_s) / SHARE_DEVIATIONS
    spans = uneven(numbers_of(scenario), scenario)
    ends = tuple(at_ends(span, loaded, by_law) for span in spans)
    possible = possible_changes(scenario, float(stated_law.verified_per_step))
    return Doubt(tuple(requests), changes, acceptance_range(loaded), ends, possible)


def left_by(engine: Engine) -> float:
    """Return one standard deviation of a speed-up by what the fit of an engine left of groups of
    runs that took no part in it: of a normal error whose mean absolute error is the largest left.
    """
    most = 0.0
    if engine.fit:
        for what, error in engine.fit.errors.items():
            if what.startswith("without"):
                most = max(most, error)
    return sqrt(pi / 2.0) * most
