"""Count what happens as it happens: nothing here grows with the number of requests.

Times of requests (all in seconds):

* *TTFT*: from arrival to the first token, waiting and the prefill of target and draft included.
* *TBT*: between two moments at which a request shows tokens; several shown at once are one moment.
* *TPOT*: ``(E2E - TTFT) / (tokens - 1)``. *E2E*: from arrival to the last token.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isclose, log
from typing import Self

import numpy as np

from simulator.core.numeric import Item, added_up, ordered_sum
from simulator.core.serving.slo import Limit
from simulator.core.strategies.common.step import Kind, Progress

GROWTH = log(1.01)
"""Width of a sketch's buckets: the log of how much a bucket's upper end is above its lower one."""
PENDING = 2_048
"""Values that a sketch takes in together: a tenth of the time of one by one."""


class Sketch:
    """A distribution in constant memory: count, mean and extremes are exact, quantiles to within
    0.5 %.

    Values fall into buckets of 1 % of width (the idea of DDSketch), with a bucket for zero. How
    many values meet each of the ``limits`` is counted.
    """

    __slots__ = (
        "_buckets",
        "_count",
        "_least",
        "_most",
        "_times",
        "_total",
        "_values",
        "_within",
        "limits",
    )

    def __init__(self, limits: Sequence[Limit] = ()) -> None:
        self.limits = tuple(limits)
        self._buckets: defaultdict[int | None, int] = defaultdict(int)
        self._count = 0
        self._total = 0.0
        self._least = inf
        self._most = -inf
        self._within = [0] * len(limits)
        self._values: list[float] = []
        self._times: list[int] = []
        """Values that are not in the sketch yet, in their order, with how often each came up."""

    def add(self, value: float, times: int = 1) -> None:
        """Add ``value`` so many times."""
        self._values.append(value)
        self._times.append(times)
        if len(self._values) >= PENDING:
            self._settle()

    def add_each(self, values: Sequence[float], times: Sequence[int] | None = None) -> None:
        """Add every one of ``values`` so many times, by default once, in their order."""
        self._values += values
        self._times += [1] * len(values) if times is None else times
        if len(self._values) >= PENDING:
            self._settle()

    def _settle(self) -> None:
        """Take the values in that are still to come into the sketch."""
        if not self._values:
            return
        values = np.array(self._values)
        times = np.array(self._times)
        self._values = []
        self._times = []
        self._count += int(times.sum())
        self._total = added_up(self._total, values * times)
        self._least = min(self._least, float(values.min()))
        self._most = max(self._most, float(values.max()))
        positive = values > 0.0
        numbers = np.ceil(np.log(values[positive]) / GROWTH).astype(np.int64)
        if len(numbers):
            least = int(numbers.min())
            counts = np.bincount(numbers - least, weights=times[positive])
            for bucket in np.flatnonzero(counts).tolist():
                self._buckets[least + bucket] += int(counts[bucket])
        if not positive.all():
            self._buckets[None] += int(times[~positive].sum())
        for place, limit in enumerate(self.limits):
            self._within[place] += int(times[values <= limit.seconds].sum())

    @property
    def buckets(self) -> Mapping[int | None, int]:
        """Return how many values there are by bucket; None is that of zero."""
        self._settle()
        return self._buckets

    @property
    def count(self) -> int:
        """Return how many values there are."""
        self._settle()
        return self._count

    @property
    def total(self) -> float:
        """Return the sum of all values, added in their order."""
        self._settle()
        return self._total

    @property
    def least(self) -> float:
        """Return the smallest value; infinity without any."""
        self._settle()
        return self._least

    @property
    def most(self) -> float:
        """Return the largest value; minus infinity without any."""
        self._settle()
        return self._most

    @property
    def within(self) -> Sequence[int]:
        """Return how many values meet each of the limits."""
        self._settle()
        return self._within

    @property
    def mean(self) -> float:
        """Return the arithmetic mean; 0 without values."""
        if self.count:
            return self.total / self.count
        return 0.0

    def quantile(self, share: float) -> float:
        """Return the value that ``share`` of all values do not exceed; 0 without values."""
        rank = max(1, ceil(share * self.count))
        seen = 0
        for bucket in sorted(self.buckets, key=lambda number: -inf if number is None else number):
            seen += self.buckets[bucket]
            if seen >= rank:
                middle = 0.0 if bucket is None else 1.01 ** (bucket - 0.5)
                return min(max(middle, self.least), self.most)
        return 0.0

    @property
    def mean_ms(self) -> float | None:
        """Return the mean of seconds in milliseconds; None where nothing was measured."""
        if self.count:
            return self.mean * 1e3
        return None

    @property
    def most_ms(self) -> float | None:
        """Return the largest of them in milliseconds; None where nothing was measured."""
        if self.count:
            return self.most * 1e3
        return None

    def quantile_ms(self, share: float) -> float | None:
        """Return the quantile of seconds in milliseconds; None where nothing was measured."""
        if self.count:
            return self.quantile(share) * 1e3
        return None

    def join(self, sketch: Self) -> None:
        """Add all values of another sketch; which of them met its limits is taken over where both
        have the same.
        """
        self._settle()
        for bucket, times in sketch.buckets.items():
            self._buckets[bucket] += times
        self._count += sketch.count
        self._total += sketch.total
        self._least = min(self._least, sketch.least)
        self._most = max(self._most, sketch.most)
        if self.limits == sketch.limits:
            self._within = [
                mine + its for mine, its in zip(self._within, sketch.within, strict=True)
            ]


def level_quantile(seconds: Mapping[int, float], share: float) -> int:
    """Return the level that is not exceeded for ``share`` of the time, from seconds by level; 0
    without any.
    """
    rank = share * ordered_sum(seconds.values())
    seen = 0.0
    for level in sorted(seconds):
        seen += seconds[level]
        if seen >= rank:
            return level
    return max(seconds, default=0)


class BrokenRunError(Exception):
    """Raised where a run contradicts itself: a fault of the simulator, not of its input."""


@dataclass(slots=True)
class Spent:
    """Steps of the same kind: their number and the seconds they took."""

    steps: int = 0
    seconds: float = 0.0

    def __iadd__(self, more: Self) -> Self:
        self.steps += more.steps
        self.seconds += more.seconds
        return self


@dataclass
class Tally:
    """Counts and times, in seconds, of one replica over a whole run, or of several pooled."""

    spent: defaultdict[Kind, Spent] = field(default_factory=lambda: defaultdict(Spent))
    """Steps in which a request decoded, by kind."""
    prefills: int = 0
    """Iterations with prompts only."""
    prefill_seconds: float = 0.0
    """Seconds spent in them."""
    request_steps: int = 0
    """Requests that decoded in a step, summed over steps."""
    settled: Counter[Progress] = field(default_factory=Counter)
    """How often a step did what for a request; everything about windows follows from it."""
    shown: int = 0
    """Output tokens that came from steps."""
    verified_rows: int = 0
    """Rows that the target computed for decoding: of every window its tokens and one more."""
    prompt_rows: int = 0
    """Tokens that went through a prefill, recomputed ones included."""
    recomputed_rows: int = 0
    """Tokens that went through a prefill and had been in the cache before."""
    arrived: int = 0
    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    """Requests that were turned away as they came, or while they waited."""
    taken_over: int = 0
    """Requests that came from another replica, where prefill and decode are apart."""
    handed_on: int = 0
    """Requests that left for another replica."""
    tokens_taken_over: int = 0
    """Tokens that requests had shown when they were taken over."""
    tokens_handed_on: int = 0
    """Tokens that requests had shown when they were handed on."""
    preemptions: int = 0
    tokens: int = 0
    """Output tokens of finished requests."""
    thrown_away: int = 0
    """Tokens that requests had shown when they were cancelled."""
    first_tokens: int = 0
    """Tokens that prefills yielded, recomputed ones included."""
    ttft: Sketch = field(default_factory=Sketch)
    tbt: Sketch = field(default_factory=Sketch)
    tpot: Sketch = field(default_factory=Sketch)
    e2e: Sketch = field(default_factory=Sketch)
    wait: Sketch = field(default_factory=Sketch)
    """Seconds from arrival to first admission, without those until there was room elsewhere."""
    reading: Sketch = field(default_factory=Sketch)
    """Seconds from first admission to the end of the prefill, of requests that were handed on."""
    joining: Sketch = field(default_factory=Sketch)
    """Seconds for which requests that were handed over waited for a place."""
    system_s: float = 0.0
    """Time that all requests together spent in the system, by summing over requests."""
    area_s: float = 0.0
    """The same by summing the number in the system over time."""
    occupied_s: float = 0.0
    """Seconds with a request in the system, waiting or running."""
    block_area_s: float = 0.0
    """KV blocks in use, summed over time."""
    queue_s: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds during which so many requests waited to be admitted."""
    waiting: int = 0
    """Requests that wait to be admitted now."""
    in_system: int = 0
    """Requests that have arrived and not left."""
    blocks_since: float = 0.0
    """Until when the blocks in use are summed over time."""
    queue_since: float = 0.0
    """Until when the requests that wait are summed over time."""
    system_since: float = 0.0
    """Until when the requests in the system are summed over time."""

    @property
    def steps(self) -> Counter[Kind]:
        """Return the number of steps in which a request decoded, by kind."""
        return Counter({kind: spent.steps for kind, spent in self.spent.items()})

    @property
    def seconds(self) -> dict[Kind, float]:
        """Return the seconds spent in steps, by kind."""
        return {kind: spent.seconds for kind, spent in self.spent.items()}

    @property
    def committed(self) -> int:
        """Return the verified tokens of steps, those past the end of an output included."""
        return sum(progress.verified * times for progress, times in self.settled.items())

    @property
    def drafted(self) -> int:
        """Return the number of draft tokens that were verified."""
        return sum(progress.proposed * times for progress, times in self.settled.items())

    @property
    def kept(self) -> int:
        """Return the number of draft tokens that were accepted."""
        return sum(progress.accepted * times for progress, times in self.settled.items())

    @property
    def accepted(self) -> Counter[int]:
        """Return the number of verified windows by accepted draft tokens."""
        return self._counted(lambda progress: progress.accepted if progress.proposed else None)

    @property
    def judged(self) -> Counter[int]:
        """Return the number of verified windows by length."""
        return self._counted(lambda progress: progress.proposed or None)

    @property
    def windows_missed(self) -> Counter[int]:
        """Return the number of verified windows whose successor was lost, by length."""
        return self._counted(lambda progress: progress.proposed if progress.missed else None)

    @property
    def choices(self) -> Counter[str]:
        """Return how often the strategy decided what about its next step."""
        return self._counted(lambda progress: progress.choice or None)

    def _counted(self, what: Callable[[Progress], Item | None]) -> Counter[Item]:
        """Return how often a step did something, by ``what`` makes of it; None is left out."""
        counts = Counter[Item]()
        for progress, times in self.settled.items():
            if (value := what(progress)) is not None:
                counts[value] += times
        return counts

    @property
    def step_seconds(self) -> float:
        """Return the seconds spent in steps of all kinds."""
        return ordered_sum(self.seconds.values())

    @property
    def mean_batch(self) -> float:
        """Return the number of requests that decode in a step, mean over steps; 0 without steps."""
        return self.request_steps / max(1, sum(self.steps.values()))

    @classmethod
    def pooled(cls, tallies: Sequence[Self]) -> Self:
        """Return the tally of several replicas together; of a single replica, its own tally."""
        if len(tallies) == 1:
            return tallies[0]
        whole = cls()
        for tally in tallies:
            for name, addend in vars(tally).items():
                total = getattr(whole, name)
                if isinstance(total, Sketch):
                    total.join(addend)
                elif isinstance(total, dict):
                    for key, value in addend.items():
                        total[key] += value
                else:
                    setattr(whole, name, total + addend)
        return whole

    def check(self) -> None:
        """Check what must be true once the system is empty; raise :class:`BrokenRunError` where it
        is not.

        Little's law (number in the system over time = time in the system over requests), and every
        token shown belongs to a request that finished, was cancelled or was handed on.
        """
        if not isclose(self.area_s, self.system_s, rel_tol=1e-9, abs_tol=1e-9):
            raise BrokenRunError(
                f"Little's law fails: {self.area_s} s by number in the system, {self.system_s} "
                "s by request"
            )
        came = self.shown + self.first_tokens + self.tokens_taken_over
        if came != self.tokens + self.thrown_away + self.tokens_handed_on:
            counts = (
                f"{self.shown} + {self.first_tokens} tokens shown, {self.tokens} + "
                f"{self.thrown_away} delivered"
            )
            if self.taken_over or self.handed_on:
                counts += (
                    f", {self.tokens_taken_over} taken over, {self.tokens_handed_on} handed on"
                )
            raise BrokenRunError(f"tokens are not conserved: {counts}")
        gone = self.finished + self.cancelled + self.handed_on + self.refused
        if self.arrived + self.taken_over != gone or self.in_system:
            raise BrokenRunError(
                f"{self.arrived} + {self.taken_over} requests came, {self.finished} finished, "
                f"{self.cancelled} were cancelled, {self.refused} were refused, {self.handed_on} "
                "were handed on"
            )
