"""Arrivals of an open loop, which no departure changes: times between requests, drawn or fixed.

The i-th gap of a seed is always the same, whatever happens to the requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.core.quantities import Frozen
from simulator.core.serving.load.traffic import TrafficFile

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


class Recorded(Frozen):
    """Sessions begin when their file says."""

    name: Literal["recorded"] = "recorded"
    rate_scale: float = Field(default=1.0, gt=0)
    """How many times as many sessions begin in a second; what happens within a session stays."""


AnyArrivals = Annotated[
    Poisson | Gamma | Deterministic | TrafficFile | Recorded, Field(discriminator="name")
]
