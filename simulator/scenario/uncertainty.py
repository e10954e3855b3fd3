"""How far a simulated number may be off: other requests, devices that are not quite as their profile, fits that left something.

Three things, drawn together ``DRAWS`` times, as factors on the number:

- *requests*: those of the run, drawn again with replacement; the time per token over them.
- *devices*: every device slower or faster as a whole, log-normal with the ``spread`` of its profile, where nothing was left
  out of its fit ``UNMEASURED``; how much the number follows is seen from one run (or law) with the device slower by its spread.
- *residuals* of the cells that a paper's free parameters were fitted to, drawn with replacement; only where there was a fit.

Left out: links, host times where nothing was fitted, the requests of a second run that the first is divided by, acceptance
that was recorded from other models or stated as a rate, and that requests of a batch depend on each other. An interval
holds ``SHARE`` of the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cost.device import Device
from simulator.files.schema import nested, replace_nested
from simulator.scenario import Loaded, Scenario
from simulator.scenario.run import baseline, law
from simulator.serving.requests import Request

SHARE = 0.9
DRAWS = 4_000
UNMEASURED = 0.10
"""Spread of a device for which nothing was left out of a fit: between what the RTX 3090 leaves and a datasheet's rates."""


class Interval(NamedTuple):
    """Between which numbers ``SHARE`` of the draws lie."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


class Times:
    """Requests of a run as they end: seconds since they were admitted, and tokens."""

    def __init__(self, then: Callable[[Request], object] | None = None) -> None:
        self.requests, self.then = list[tuple[float, int]](), then

    def note(self, one: Request) -> None:
        """To be handed every request that has ended; hands it on."""
        if self.then:
            self.then(one)
        self.requests.append((one.finished_s - one.admitted_s, one.tokens))


class Doubt(NamedTuple):
    """What a run knows of its own uncertainty: seconds and tokens of each request, and how its number follows each device.

    ``devices``: by name, log change of the number where the device is slower by its spread.
    """

    requests: tuple[tuple[float, int], ...]
    devices: dict[str, float]


def interval(value: float, doubt: Doubt, residuals: Sequence[float] = (), seed: int = 0) -> Interval:
    """Of a number above zero; ``residuals``: ``log(run / published)`` of what was fitted."""
    random = np.random.default_rng(seed)
    factors = _luck(doubt.requests, random)
    for change in doubt.devices.values():
        factors = factors + change * random.standard_normal(DRAWS)
    if residuals:
        factors = factors + random.choice(residuals, DRAWS)
    tail = (1.0 - SHARE) / 2.0
    low, high = np.exp(np.quantile(factors, (tail, 1.0 - tail)))
    return Interval(value * float(low), value * float(high))


def _luck(requests: Sequence[tuple[float, int]], random: np.random.Generator) -> NDArray[np.float64]:
    """Log of the time per token over requests drawn again, against that over all of them."""
    if len(requests) < 2:
        return np.zeros(DRAWS)
    seconds, tokens = np.array(requests, dtype=float).T
    drawn = random.integers(0, len(requests), (DRAWS, len(requests)))
    times: NDArray[np.float64] = seconds[drawn].sum(axis=1) / tokens[drawn].sum(axis=1)
    factors: NDArray[np.float64] = np.log(times / (seconds.sum() / tokens.sum()))
    return factors


def of_speedup(loaded: Loaded, speedup: float, requests: Sequence[tuple[float, int]]) -> Interval:
    """Of a run's speed-up; how it follows the devices is taken from the laws, which are as good and much quicker."""
    acceptance = loaded.acceptance()

    def by_law(one: Loaded) -> float:
        return float(baseline(one.scenario).tpot_s / law(one.scenario, acceptance).tpot_s)

    before = by_law(loaded)
    changes = {name: log(by_law(change(loaded)) / before) for name, change in slowed(loaded)}
    return interval(speedup, Doubt(tuple(requests), changes))


def slowed(loaded: Loaded) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Each device of a scenario by name, with what makes it slower by its spread in this or another scenario."""
    for name in devices(loaded.scenario):
        yield name, partial(with_slower, {name: 1.0})


def devices(scenario: Scenario) -> list[str]:
    """Return the names of the devices of a scenario, in the order in which they are first mentioned."""
    return list(dict.fromkeys(device.name for device in nested(scenario, Device)))


def with_slower(spreads: Mapping[str, float], loaded: Loaded) -> Loaded:
    """With devices slower, by name, by so many times their spread; faster where that is negative."""
    return Loaded(replace_nested(loaded.scenario, Device, partial(_slower, spreads)), loaded.trace, loaded.document)


def _slower(spreads: Mapping[str, float], device: Device) -> Device:
    if not spreads.get(device.name):
        return device
    spread = UNMEASURED if device.spread is None else device.spread.value
    factor = (1.0 + spread) ** spreads[device.name]
    rates = {
        rate: getattr(device, rate).model_copy(update={"value": getattr(device, rate).value / factor})
        for rate in ("memory_bandwidth_gb_s", "peak_tflops")
    }
    return device.model_copy(update=rates)
