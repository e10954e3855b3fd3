"""How far a simulated number may be off: other requests, devices that are not quite as their
profile, fits that left something.

Seven sources of error are drawn together ``DRAWS`` times, as factors on the number:

- *requests*: those of the run, drawn again with replacement (a bootstrap); the time per token over
  them.
- *devices*: every device slower or faster as a whole, log-normal with the ``spread`` of its
  profile, ``UNMEASURED`` where nothing was left out of its fit; how much the number follows is seen
  from one run (or law) with the device that much slower.
- *rows of a verification*: what further query rows cost attention in parts, of which a range is
  known (``extra_row``).
- *experts read*: how alike the rows of a window route, and how unequally experts are chosen,
  likewise.
- *residuals* of the cells that free parameters were fitted to, drawn with replacement; their
  standard errors widen them.
- *numbers in doubt*: what is assumed, borrowed or has a range outside of the devices (host times of
  an engine, links, a method's host), each by its :func:`deviation`, and what the fit of an engine
  left of runs that took no part in it; not in cells of papers, whose fits decide the host.
- *acceptance*, where the scenario states between what means it lies (``tokens_per_step_between``)
  or states rates of fewer positions than a window has, which are continued; steps as long as they
  are, and no mean below 1 or above the window + 1.

Left out: the requests of a second run that the first is divided by, acceptance that was recorded
from other models or stated without such a range, and that requests of a batch depend on each other.
An interval holds ``SHARE`` of the draws.

Memory does not grow with the number of requests. Up to ``GROUPS`` requests are kept and drawn one
by one. Of more, consecutive requests are added up into groups of equal size (2, 4, 8, ...), and
whole groups are drawn: a bootstrap of blocks that do not overlap (Carlstein, Annals of Statistics
14, 1986) for a ratio of sums, whose variance is that of requests drawn singly where these are
independent; if neighbours depend on each other, groups count that and single requests do not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, inf, log, pi, sqrt
from typing import NamedTuple, Self, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine
from simulator.core.cost.model import Experts
from simulator.core.cost.roofline import Attention
from simulator.core.quantities import Fraction, Positive, Ranged, Sourced, nested, provenance
from simulator.core.serving.request_times import Times
from simulator.core.serving.service import OnIteration, OnRequest
from simulator.scenario import Loaded, Scenario
from simulator.scenario.doubts import (
    SHARE,
    SHARE_DEVIATIONS,
    Uneven,
    changed,
    continued_further,
    evenly,
    uncurved,
    uneven,
)
from simulator.scenario.evaluate import baseline, law, run, tuned
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.stated.means import possible_changes, range_window, stated_range

DRAWS = 4_000
"""Draws behind an interval."""
DRAWN_AT_ONCE = 1 << 18
"""Requests that are drawn together at most, over as many of the draws as that makes; bounds memory,
changes no number.
"""
SPREADS = {
    **dict.fromkeys(("measured", "datasheet", "computed"), 0.02),
    **dict.fromkeys(("calibrated", "published"), 0.05),
    "borrowed": 0.15,
    "assumed": 0.3,
}
"""One deviation of a number without a range, relative to it, by its confidence: judged, not
measured.
"""
WORTH_NAMING = 0.005
"""Change of a speed-up from which on a number in doubt is named beside it."""
BY_CONTEXT = "acceptance behind long contexts"
"""What is drawn where acceptance falls with the context."""
UNMEASURED = 0.10
"""Spread of a device for which nothing was left out of a fit: between what the RTX 3090 leaves and
a datasheet's rates.
"""


class Interval(NamedTuple):
    """The numbers between which ``SHARE`` of the draws lie."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies within."""
        return self.low <= value <= self.high


class Doubt(NamedTuple):
    """What a run knows of its own uncertainty."""

    requests: tuple[tuple[float, int], ...]
    """Seconds and tokens of each request or group of requests, as :attr:`Times.requests` has
    them.
    """
    changes: dict[str, float]
    """Log change of the number where one thing is off by one standard deviation, by its name: a
    device that is slower by its spread, a number in doubt, the fit of an engine.
    """
    acceptance: tuple[float, float] = (0.0, 0.0)
    """Log changes of the number at the lower and the upper end of the range of acceptance."""
    ends: tuple[tuple[float, float], ...] = ()
    """The same at both ends of other ranges that lie unevenly around their number."""
    possible: tuple[float, float] = (-inf, inf)
    """Log change of the number where a step writes 1 token, and where it writes the window + 1."""

    def of_a_step(self) -> Self:
        """Return what is not known of a step, whose time no acceptance changes."""
        changes = {name: change for name, change in self.changes.items() if name != BY_CONTEXT}
        return self._replace(changes=changes, acceptance=(0.0, 0.0))


class Drawn(NamedTuple):
    """A number above zero as it may be."""

    value: float
    """The number itself, in its unit."""
    changes: NDArray[np.float64]
    """``DRAWS`` log changes of it."""

    def interval(self, share: float = SHARE) -> Interval:
        """Return the numbers between which a share of the draws lies, in the unit of the number."""
        tail = (1.0 - share) / 2.0
        low, high = np.exp(np.quantile(self.changes, (tail, 1.0 - tail)))
        return Interval(self.value * float(low), self.value * float(high))

    def chance_above(self, limit: float) -> float:
        """Return the share of the draws that lie above a limit in the unit of the number."""
        return float(np.mean(self.changes > log(limit / self.value)))


def drawn(value: float, doubt: Doubt, residuals: Sequence[float] = (), seed: int = 0) -> Drawn:
    """Return the draws of a number above zero; ``residuals`` are ``log(run / published)`` of what
    was fitted: where runs come out too high, the number is lower.
    """
    random = np.random.default_rng(seed)
    changes = _resampled_times(doubt.requests, random)
    of_acceptance = np.zeros(DRAWS)
    for name, change in doubt.changes.items():
        moved = change * random.standard_normal(DRAWS)
        if name == BY_CONTEXT:
            of_acceptance += moved
        else:
            changes += moved
    if residuals:
        changes -= random.choice(residuals, DRAWS)  # what runs above is published below
    if any(doubt.acceptance):
        of_acceptance += _drawn_between(doubt.acceptance, random)
    for ends in filter(any, doubt.ends):
        changes += _drawn_between(ends, random)
    if of_acceptance.any():
        changes += np.clip(of_acceptance, *doubt.possible)
    return Drawn(value, changes)


def interval(
    value: float, doubt: Doubt, residuals: Sequence[float] = (), seed: int = 0
) -> Interval:
    """Return the interval of a number above zero, in its unit, as :func:`drawn` draws it."""
    return drawn(value, doubt, residuals, seed).interval()


def _drawn_between(ends: tuple[float, float], random: np.random.Generator) -> NDArray[np.float64]:
    """Return ``DRAWS`` log changes of a range whose ends lie unevenly around its number."""
    drawn = random.standard_normal(DRAWS) / SHARE_DEVIATIONS
    return np.where(drawn < 0.0, -drawn * ends[0], drawn * ends[1])


def _resampled_times(
    requests: Sequence[tuple[float, int]], random: np.random.Generator
) -> NDArray[np.float64]:
    """Return ``DRAWS`` logs of the time per token over requests drawn again, relative to that over
    all of them.

    Requests that took no time, as those whose only token comes with a pass stated as 0 ms, show
    none and are left out.
    """
    logs = np.zeros(DRAWS)
    timed = [request for request in requests if request[0]]
    if len(timed) < 2:
        return logs
    seconds, tokens = np.array(timed, dtype=float).T
    mean = seconds.sum() / tokens.sum()
    at_once = max(1, DRAWN_AT_ONCE // len(timed))
    for first in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - first)
        drawn = random.integers(0, len(timed), (draws, len(timed)))
        times = seconds[drawn].sum(axis=1) / tokens[drawn].sum(axis=1)
        logs[first : first + at_once] = np.log(times / mean)
    return logs


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
    spans = uneven(_numbers(scenario), scenario)
    ends = tuple(_at_ends(span, loaded, by_law) for span in spans)
    possible = possible_changes(scenario, float(stated_law.verified_per_step))
    return Doubt(tuple(requests), changes, _acceptance_range(loaded), ends, possible)


def _at_ends(
    span: Uneven, loaded: Loaded, by_law: Callable[[Loaded], float]
) -> tuple[float, float]:
    """Return the log changes of what ``by_law`` gives at both ends of a number whose ends lie
    unevenly, the lesser one first.
    """
    before = by_law(loaded)
    changes = [log(by_law(span.at(end, loaded)) / before) for end in span.ends]
    return min(0.0, *changes), max(0.0, *changes)


def _acceptance_range(loaded: Loaded) -> tuple[float, float]:
    """Return the log changes of tokens per step from what the law has to both ends of the stated
    range; 0 without one.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    spec = scenario.acceptance
    if not (spec.tokens_per_step_between or spec.per_position or spec.lengths):
        return 0.0, 0.0
    odds = acceptance.odds(scenario.schedule.window, scenario.exit)
    if np.all(odds.unmatched == 1.0):
        return 0.0, 0.0  # no step proposes anything that could be kept
    tokens = float(law(scenario, acceptance).verified_per_step)
    measured = acceptance.odds(range_window(scenario), scenario.exit)
    return stated_range(scenario, tokens, float(measured.committed()), SHARE_DEVIATIONS)


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


class Footing(NamedTuple):
    """A number that an answer rests on, and what it could change in it."""

    parameter: str
    value: float
    confidence: str
    source: str
    change: float
    """Relative change of the speed-up by law where the number is off by one deviation."""
    ends: tuple[float, float] | None = None
    """The same at both ends of its range, where these lie unevenly around it."""


def footings(loaded: Loaded, every: bool = True) -> list[Footing]:
    """Return the numbers that the speed-up rests on, that which changes it most first; without
    ``every`` only those in doubt: assumed, borrowed, or with a range.

    Where nothing is drafted it is the speed. Numbers with the same value and source are one, and
    are moved together.
    """
    loaded = tuned(loaded)
    scenario = loaded.scenario
    acceptance = loaded.acceptance()

    def by_law(other: Loaded) -> float:
        reference = 1.0
        if other.scenario.schedule.window:
            reference = baseline(other.scenario).tpot_s
        return float(reference / law(other.scenario, acceptance).tpot_s)

    before = by_law(loaded)

    def moved(other: Loaded) -> float:
        return by_law(other) / before - 1.0

    ranked = []
    numbers = _numbers(scenario)
    for span in uneven(numbers, scenario):
        low, high = _at_ends(span, loaded, by_law)
        farther = exp(max(low, high, key=abs) / SHARE_DEVIATIONS) - 1.0
        known = (span.number.value, span.known.confidence, span.known.source)
        ends = (exp(low) - 1.0, exp(high) - 1.0)
        ranked.append(Footing(span.name, *known, farther, ends))
    for name, number in evenly(numbers, scenario).items():
        if deviation(number) and (every or _in_doubt(number)):
            change = moved(_with_number(number, loaded))
            ranked.append(Footing(name, number.value, number.confidence, number.source, change))
    for name, without_curve in uncurved(scenario):
        change = moved(without_curve(loaded))
        ranked.append(Footing(name, 1.0, "borrowed", "no curve of the format", change))
    for name, continued in continued_further(scenario):
        change = moved(continued(loaded))
        source = "a formula beyond what it was fitted to"
        ranked.append(Footing(name, 1.0, "assumed", source, change))
    lower, _ = _acceptance_range(loaded)
    if lower:
        change = exp(lower / SHARE_DEVIATIONS) - 1.0
        mean = float(law(scenario, acceptance).verified_per_step)
        confidence = scenario.acceptance.confidence or "assumed"
        source = scenario.acceptance.source or "not stated"
        name = "acceptance, tokens per step"
        ranked.append(Footing(name, mean, confidence, source, change))
    return sorted(ranked, key=lambda footing: -abs(footing.change))


def deviation(number: Sourced) -> float:
    """Return one standard deviation of a number: of its range where it has one, else by how well it
    is known.
    """
    if _has_range(number):
        low = number.value
        high = number.value
        if number.low is not None:
            low = number.low
        if number.high is not None:
            high = number.high
        return (high - low) / 2.0 / SHARE_DEVIATIONS
    return SPREADS[number.confidence] * number.value


def _has_range(number: Sourced) -> TypeGuard[Ranged]:
    return isinstance(number, Ranged) and (number.low, number.high) != (None, None)


def _in_doubt(number: Sourced) -> bool:
    return _has_range(number) or number.confidence in ("borrowed", "assumed")


def _numbers(scenario: Scenario) -> dict[str, Sourced]:
    """Return the different numbers of a scenario by the dotted name of their first place."""
    names = {}
    for entry in reversed(list(provenance(scenario))):
        names[(entry["value"], entry["source"])] = str(entry["parameter"])
    numbers = {}
    for number in dict.fromkeys(nested(scenario, Sourced)):
        name = names.get((number.value, number.source), number.source)
        numbers[name] = number
    return numbers


def _with_number(number: Sourced, loaded: Loaded) -> Loaded:
    """Return the scenario with a number one deviation higher; that much lower where it may be no
    higher, as a share of 1.
    """
    higher = number.value + deviation(number)
    lower = number.value
    if number.value:
        lower = number.value / (1.0 + deviation(number) / number.value)

    def at(value: float) -> Loaded:
        other = number.model_copy(update={"value": value})
        return changed(Sourced, lambda own: other if own == number else own, loaded)

    if isinstance(number, Fraction):
        return at(lower)
    try:
        return at(higher)
    except ValidationError:
        return at(lower)


def doubtful(loaded: Loaded) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield what is assumed, borrowed or has a range outside of the devices, each with what moves
    it by one deviation.
    """
    of_devices: set[Sourced] = set()
    for device in nested(loaded.scenario, Device):
        of_devices.update(nested(device, Sourced))
    for name, number in evenly(_numbers(loaded.scenario), loaded.scenario).items():
        if number not in of_devices and _in_doubt(number) and deviation(number):
            yield name, partial(_with_number, number)
    yield from uncurved(loaded.scenario)
    yield from continued_further(loaded.scenario)


def rests_on(loaded: Loaded, most: int = 4) -> str:
    """Return which number in doubt could change the speed-up most, and by how much, and then the
    next ones; empty where they change little.
    """
    doubted = footings(loaded, every=False)
    named = [footing for footing in doubted if abs(footing.change) >= WORTH_NAMING]
    if not named:
        return ""
    largest, *others = named[:most]
    what = "speed"
    if loaded.scenario.schedule.window:
        what = "speed-up"
    how_far = "if it is off by one standard deviation"
    if largest.ends is not None:
        how_far = "over its range"
    words = (
        f"largest uncertainty: {largest.parameter} ({_known(largest)}); {how_far}, the {what} "
        f"changes by {_size(largest)} %"
    )
    if others:
        smaller = []
        for footing in others:
            smaller.append(f"{footing.parameter} ({_known(footing)}, {_size(footing)} %)")
        words += f"; then {', '.join(smaller)}"
    return words


def _known(footing: Footing) -> str:
    """Return how well a number is known: its confidence, or where it is borrowed from."""
    if footing.confidence == "borrowed":
        origin, _, _ = footing.source.partition(" (")
        return origin
    return footing.confidence


def _size(footing: Footing) -> str:
    """Return how far a number moves a speed-up in per cent: by one deviation, or at both ends of an
    uneven range.
    """
    if footing.ends is None:
        return f"{100 * footing.change:+.1f}"
    low, high = footing.ends
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def slowed(loaded: Loaded) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield each device of a scenario by name, with what makes it slower by its spread in this or
    another scenario.

    Behind it comes what its attention takes for further rows of a verification, where that is known
    as a range alone, and then how alike the rows of a mixture route.
    """
    for name in devices(loaded.scenario):
        yield name, partial(with_slower, {name: 1.0})
    ranged = dict[str, None]()
    for device in nested(loaded.scenario, Device):
        if _widened(device) is not device:
            ranged[device.name] = None
    for name in ranged:
        widened = partial(_widened, only=name)
        yield f"{name}, rows of a verification", partial(changed, Device, widened)
    mixtures = list(nested(loaded.scenario, Experts))
    for field in ("window_exponent", "popularity"):
        if any(getattr(experts, field).high is not None for experts in mixtures):
            otherwise = partial(_routed_otherwise, field)
            yield f"experts read, {field}", partial(changed, Experts, otherwise)


def devices(scenario: Scenario) -> list[str]:
    """Return the names of the devices of a scenario, in the order in which they are first
    mentioned.
    """
    return list(dict.fromkeys(device.name for device in nested(scenario, Device)))


def with_slower(spreads: Mapping[str, float], loaded: Loaded) -> Loaded:
    """Return the scenario with devices slower, by name, by so many times their spread; faster where
    that is negative.
    """
    return changed(Device, partial(_slower, spreads), loaded)


def _widened(device: Device, only: str | None = None) -> Device:
    """Return a device whose attention takes one standard deviation longer for rows of a
    verification; itself without a range.

    ``only``: the name of the device that is meant. Between the number and its upper end lies half
    of what an interval holds.
    """
    if only not in (None, device.name):
        return device
    wider = {}
    for name in ("attention", "latent_attention"):
        part = getattr(device, name)
        if isinstance(part, Attention) and part.extra_row.high is not None:
            wider[name] = part.model_copy(update={"extra_row": _higher(part.extra_row)})
    if wider:
        return device.model_copy(update=wider)
    return device


def _higher(number: Ranged) -> Ranged:
    """Return a number one standard deviation higher; itself without a range."""
    if number.high is None:
        return number
    above = number.high - number.value
    return number.model_copy(update={"value": number.value + above / SHARE_DEVIATIONS})


def _routed_otherwise(field: str, experts: Experts) -> Experts:
    return experts.model_copy(update={field: _higher(getattr(experts, field))})


def _slower(spreads: Mapping[str, float], device: Device) -> Device:
    if not spreads.get(device.name):
        return device
    spread = UNMEASURED
    if device.spread is not None:
        spread = device.spread.value
    factor = (1.0 + spread) ** spreads[device.name]

    def divided(rate: Positive) -> Positive:
        return rate.model_copy(update={"value": rate.value / factor})

    rates: dict[str, object] = {}
    for name in ("memory_bandwidth_gb_s", "peak_tflops", "cache_bandwidth_gb_s"):
        rate = getattr(device, name)
        if rate is not None:
            rates[name] = divided(rate)
    rates["peaks_tflops"] = {name: divided(peak) for name, peak in device.peaks_tflops.items()}
    return device.model_copy(update=rates)
