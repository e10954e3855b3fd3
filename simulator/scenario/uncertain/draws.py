"""How far a simulated number may be off: other requests, devices that are not quite as their
profile, fits that left something.

Eight sources of error are drawn together ``DRAWS`` times, as factors on the number:

- *requests*: those of the run, drawn again with replacement (a bootstrap); the time per token over
  them.
- *devices*: every device slower or faster as a whole, and each of its operations with a spread of
  its own (``spreads``) by itself, log-normal with the ``spread`` of its
  profile, ``UNMEASURED`` where nothing was left out of its fit, but for the device that an engine
  was fitted on, whose error is part of what that fit left; how much the number follows is seen
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
- *distance*: what is less well known outside of what an engine was fitted on
  (:mod:`simulator.scenario.uncertain.distance`).
- *acceptance*, where the scenario states between what means it lies (``tokens_per_step_between``)
  or states rates of fewer positions than a window has, which are continued, or where a draft's LM
  head is cut and nothing says what that loses; steps as long as they are, and no mean below 1 or
  above the window + 1.

No draw has a speculative step with a whole pass of the target take less time than a step of plain
decoding, so that its speed-up is at most the tokens of a step.

Left out: the requests of a second run that the first is divided by, acceptance that was recorded
from other models or stated without such a range, and that requests of a batch depend on each other.
An interval holds ``SHARE`` of the draws.

Memory does not grow with the number of requests. Up to ``GROUPS`` requests are kept and drawn one
by one. Of more, consecutive requests are added up into groups of equal size (2, 4, 8, ...), and
whole groups are drawn: a bootstrap of blocks that do not overlap (Carlstein, Annals of Statistics
14, 1986) for a ratio of sums, whose variance is that of requests drawn singly where these are
independent; if neighbours depend on each other, groups count that and single requests do not.
"""

from collections.abc import Mapping, Sequence
from math import inf, log
from statistics import NormalDist
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

SHARE = 0.9
"""Share of the draws that an interval holds."""
SHARE_DEVIATIONS = NormalDist().inv_cdf((1.0 + SHARE) / 2.0)
"""Standard deviations from the middle of an interval to its end; a range is taken as such an
interval.
"""
DRAWS = 4_000
"""Draws behind an interval."""
DRAWN_AT_ONCE = 1 << 18
"""Requests that are drawn together at most, over as many of the draws as that makes; bounds memory,
changes no number.
"""
BY_CONTEXT = "acceptance behind long contexts"
"""What is drawn where acceptance falls with the context."""


class Interval(NamedTuple):
    """The numbers between which ``SHARE`` of the draws lie."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies within."""
        return self.low <= value <= self.high


NO_ENDS: Mapping[str, tuple[float, float]] = {}
"""No range that lies unevenly; other processes can be sent it, which a read-only view cannot."""


class Floor(NamedTuple):
    """A speculative step with a whole pass of the target takes no less time than one of plain
    decoding, however the draws fall.
    """

    longer: float
    """Log of the time of such a step over that of a plain one."""
    changes: Mapping[str, float]
    """Log change of that where one thing is off by one standard deviation, by its name."""
    ends: Mapping[str, tuple[float, float]] = NO_ENDS
    """Log changes of it at both ends of ranges that lie unevenly, by name."""
    power: float = -1.0
    """Power with which a number follows the time of a step: 1 for a step or a time per token, -1
    for a speed-up or a rate.
    """


class Doubt(NamedTuple):
    """What a run knows of its own uncertainty."""

    requests: tuple[tuple[float, int], ...]
    """Seconds and tokens of each request or group of requests, as :attr:`Times.requests` has
    them.
    """
    changes: Mapping[str, float]
    """Log change of the number where one thing is off by one standard deviation, by its name: a
    device that is slower by its spread, a number in doubt, the fit of an engine.
    """
    acceptance: tuple[float, float] = (0.0, 0.0)
    """Log changes of the tokens of a step at both ends of the range of acceptance."""
    ends: Mapping[str, tuple[float, float]] = NO_ENDS
    """Log changes of the number at the lower and the upper end of other ranges that lie unevenly
    around their middle, by the name of what has the range.
    """
    possible: tuple[float, float] = (-inf, inf)
    """Log change of the tokens of a step where it writes 1, and where it writes the window + 1."""
    tokens: float = 1.0
    """Power with which the number follows the tokens of a step: 1 for a speed-up or a rate, -1 for
    a time per token, 0 for a step.
    """
    floor: Floor | None = None
    """How long a step takes at least; None where nothing says it."""


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


class Deviates:
    """What is drawn, by the name of what is in doubt: the same for every number that is asked of
    one scenario, so that a speed-up is the ratio of two times in every single draw.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._normal: dict[str, NDArray[np.float64]] = {}
        self._times: tuple[tuple[tuple[float, int], ...], NDArray[np.float64]] | None = None

    def normal(self, name: str) -> NDArray[np.float64]:
        """Return ``DRAWS`` standard normal deviates of what has this name."""
        if name not in self._normal:
            self._normal[name] = stream(name, self._seed).standard_normal(DRAWS)
        return self._normal[name]

    def between(self, name: str, ends: tuple[float, float]) -> NDArray[np.float64]:
        """Return ``DRAWS`` log changes of a number by something whose range has these changes at
        its lower and upper end.
        """
        shares = self.normal(name) / SHARE_DEVIATIONS
        return np.where(shares < 0.0, -shares * ends[0], shares * ends[1])

    def times(self, requests: tuple[tuple[float, int], ...]) -> NDArray[np.float64]:
        """Return ``DRAWS`` logs of the time per token over requests drawn again."""
        if self._times is None or self._times[0] != requests:
            random = stream("requests", self._seed)
            self._times = (requests, _resampled_times(requests, random))
        return self._times[1]

    def drawn(
        self,
        value: float,
        doubt: Doubt,
        residuals: Sequence[float] = (),
        acceptance: str = "acceptance",
    ) -> Drawn:
        """Return the draws of a number above zero; ``residuals`` are ``log(run / published)`` of
        what was fitted: where runs come out too high, the number is lower. ``acceptance`` names
        what is drawn for a range of acceptance: one name for each source of it.
        """
        of_times = dict(doubt.changes)
        by_context = of_times.pop(BY_CONTEXT, 0.0)
        tokens = by_context * self.normal(BY_CONTEXT) if by_context else np.zeros(DRAWS)
        changes = self._together(of_times, doubt.ends)
        if doubt.tokens:
            changes -= doubt.tokens * self.times(doubt.requests)
        if residuals:
            random = stream("residuals", self._seed)
            changes -= random.choice(residuals, DRAWS)  # what runs above is published below
        if any(doubt.acceptance):
            tokens += self.between(acceptance, doubt.acceptance)
        if tokens.any():
            changes += doubt.tokens * np.clip(tokens, *doubt.possible)
        if doubt.floor:
            changes += doubt.floor.power * self._lifted(doubt.floor)
        return Drawn(value, changes)

    def _lifted(self, floor: Floor) -> NDArray[np.float64]:
        """Return ``DRAWS`` log changes that lift a step to the floor under it: 0 above it."""
        longer = floor.longer + self._together(floor.changes, floor.ends)
        lifted: NDArray[np.float64] = np.maximum(0.0, -longer)
        return lifted

    def _together(
        self, changes: Mapping[str, float], ends: Mapping[str, tuple[float, float]]
    ) -> NDArray[np.float64]:
        """Return ``DRAWS`` log changes by all that is in doubt, by name: ``changes`` of a standard
        deviation each, ``ends`` at both ends of a range.
        """
        together = np.zeros(DRAWS)
        for name, change in changes.items():
            if change:
                together += change * self.normal(name)
        for name, both in ends.items():
            if any(both):
                together += self.between(name, both)
        return together


def stream(name: str, seed: int) -> np.random.Generator:
    """Return the generator of what is drawn under a name."""
    return np.random.default_rng([seed, crc32(name.encode())])


def drawn(value: float, doubt: Doubt, residuals: Sequence[float] = (), seed: int = 0) -> Drawn:
    """Return the draws of a number above zero, as :meth:`Deviates.drawn` makes them."""
    return Deviates(seed).drawn(value, doubt, residuals)


def interval(
    value: float, doubt: Doubt, residuals: Sequence[float] = (), seed: int = 0
) -> Interval:
    """Return the interval of a number above zero, in its unit, as :func:`drawn` draws it."""
    return drawn(value, doubt, residuals, seed).interval()


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
