"""Arrivals of an open loop, which no departure changes: times between requests, drawn or fixed, or
rates that follow the hours of a day.

The i-th gap of a seed is always the same, whatever happens to the requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from simulator.core.quantities import Frozen
from simulator.core.serving.load.traffic import TrafficFile

HOURS = 24
"""Hours of a day."""
DRAWN_AT_ONCE = 1_024
"""Gaps and lengths are drawn in blocks of this many requests, each with random numbers of its
own.
"""


class _Gaps(Frozen, ABC):
    """Arrivals whose gaps are drawn independently."""

    rate_per_s: float = Field(gt=0)
    """Mean requests per second; of sessions, how many begin."""

    @abstractmethod
    def gaps(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return ``count`` gaps between requests, in seconds."""

    def times(self, seed: int, count: int) -> Iterator[float]:
        """Yield the arrivals of ``count`` requests in seconds, the first a gap after 0."""
        now = 0.0
        for first in range(0, count, DRAWN_AT_ONCE):
            random = np.random.default_rng((seed, 2, first))
            times = now + np.cumsum(self.gaps(random, min(DRAWN_AT_ONCE, count - first)))
            now = float(times[-1])
            yield from times.tolist()


class Poisson(_Gaps):
    """Independent users: exponential gaps."""

    name: Literal["poisson"] = "poisson"

    def gaps(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return exponential gaps, in seconds."""
        return random.exponential(1.0 / self.rate_per_s, size=count)


class Gamma(_Gaps):
    """Gamma gaps whose coefficient of variation is ``burstiness``: above 1 in bursts, 1 is Poisson,
    below 1 more even.
    """

    name: Literal["gamma"] = "gamma"
    burstiness: float = Field(ge=0.001, le=1_000)
    """Coefficient of variation of the gaps: 1 is Poisson."""

    def gaps(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return gamma gaps of shape ``1 / burstiness^2``, in seconds."""
        return random.gamma(self.burstiness**-2, self.burstiness**2 / self.rate_per_s, size=count)


class Deterministic(_Gaps):
    """One request every ``1 / rate_per_s`` seconds."""

    name: Literal["deterministic"] = "deterministic"

    def gaps(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return equal gaps, in seconds."""
        return np.full(count, 1.0 / self.rate_per_s)


class Daily(Frozen):
    """Independent users whose number follows the hours of a day: a Poisson process whose rate is
    linear between the hours that are stated, and the same every day.

    A unit of exponential time is one expected request; it ends when the integral of the rate has
    grown by it (inversion; Cinlar, Introduction to Stochastic Processes, 1975, section 4.7).
    """

    name: Literal["daily"] = "daily"
    rate_per_s: float = Field(gt=0)
    """Mean requests per second, over a whole day; of sessions, how many begin."""
    weights: dict[float, float] = Field(min_length=1, max_length=1_000)
    """How busy it is at an hour, beside the others: ``{0: 1, 9: 6, 18: 4}``; linear in between,
    also over midnight.
    """
    begin_hour: float = Field(default=0.0, ge=0, lt=HOURS)
    """The hour at which the run begins."""
    day_s: float = Field(default=86_400.0, gt=0, le=1e9)
    """Seconds of a day; fewer let a day pass in a short run."""

    @field_validator("weights")
    @classmethod
    def _hours(cls, weights: dict[float, float]) -> dict[float, float]:
        for hour, weight in weights.items():
            if not 0 <= hour < HOURS:
                raise ValueError(f"expected hours from 0 to below {HOURS}, got {hour:g}")
            if weight < 0:
                raise ValueError(f"at hour {hour:g}: expected 0 or more, got {weight:g}")
        if not any(weights.values()):
            raise ValueError("expected a weight above 0 at some hour")
        return weights

    def _curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the points between which the rate is linear, from midnight to midnight: when, in
        seconds; the rates there; how many requests are expected until then, each (points,).
        """
        hours = np.array(sorted(self.weights))
        weights = np.array([self.weights[hour] for hour in hours.tolist()])
        bends = np.unique(np.concatenate([[0.0], hours, [float(HOURS)]]))
        rates = np.interp(bends, hours, weights, period=HOURS)
        at_s = bends * (self.day_s / HOURS)
        areas = np.diff(at_s) * (rates[1:] + rates[:-1]) / 2.0
        scale = self.rate_per_s * self.day_s / areas.sum()
        return at_s, rates * scale, np.append(0.0, np.cumsum(areas * scale))

    def _when(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return when so many requests are expected since the first midnight, in seconds."""
        at_s, rates, until = self._curve()
        days, left = np.divmod(expected, until[-1])
        part = np.clip(np.searchsorted(until, left, side="right") - 1, 0, len(rates) - 2)
        beyond = left - until[part]
        rate = rates[part]
        steeper = (rates[part + 1] - rate) / (at_s[part + 1] - at_s[part])
        slopes = rate + np.sqrt(np.maximum(rate**2 + 2.0 * steeper * beyond, 0.0))
        within = np.divide(2.0 * beyond, slopes, out=np.zeros_like(beyond), where=slopes > 0)
        found: NDArray[np.float64] = days * self.day_s + at_s[part] + within
        return found

    @property
    def _begin(self) -> tuple[float, float]:
        """Return when the run begins, in seconds from midnight, and the requests expected until
        then.
        """
        at_s, rates, until = self._curve()
        begin_s = self.begin_hour * self.day_s / HOURS
        part = min(int(np.searchsorted(at_s, begin_s, side="right")) - 1, len(rates) - 2)
        passed_s = begin_s - at_s[part]
        steeper = (rates[part + 1] - rates[part]) / (at_s[part + 1] - at_s[part])
        return begin_s, float(until[part] + passed_s * (rates[part] + steeper * passed_s / 2.0))

    def offered_per_s(self, count: int) -> float:
        """Return how many requests come in a second, in the mean over the time in which ``count``
        are expected.
        """
        begin_s, before = self._begin
        end_s = float(self._when(np.array([before + count]))[0])
        return count / (end_s - begin_s)

    def times(self, seed: int, count: int) -> Iterator[float]:
        """Yield the arrivals of ``count`` requests in seconds from the beginning of the run."""
        begin_s, expected = self._begin
        for first in range(0, count, DRAWN_AT_ONCE):
            random = np.random.default_rng((seed, 2, first))
            units = random.exponential(size=min(DRAWN_AT_ONCE, count - first))
            passed = expected + np.cumsum(units)
            expected = float(passed[-1])
            yield from (self._when(passed) - begin_s).tolist()


class Recorded(Frozen):
    """Sessions begin when their file says."""

    name: Literal["recorded"] = "recorded"
    rate_scale: float = Field(default=1.0, gt=0)
    """How many times as many sessions begin in a second; what happens within a session stays."""


AnyArrivals = Annotated[
    Poisson | Gamma | Deterministic | Daily | TrafficFile | Recorded, Field(discriminator="name")
]
