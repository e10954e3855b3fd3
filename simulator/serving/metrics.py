"""What happened, counted as it happens: nothing here grows with the number of requests.

Times of requests (all in seconds):

* *TTFT*: from arrival to the first token, waiting and the prefill of target and draft included.
* *TBT*: between two moments at which a request shows tokens; several shown at once are one moment.
* *TPOT*: ``(E2E - TTFT) / (tokens - 1)``. *E2E*: from arrival to the last token.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isclose, log
from typing import Any

from simulator.numeric import ordered_sum
from simulator.serving.slo import Limit
from simulator.strategies.common.step import Kind, Progress

GROWTH = log(1.01)


class Sketch:
    """A distribution in constant memory: count, mean and extremes are exact, quantiles to within 0.5 %.

    Values fall into buckets of one per cent of width (the idea of DDSketch); those of zero have their own. How many of
    them meet each of the ``limits`` is counted.
    """

    __slots__ = ("buckets", "count", "least", "limits", "most", "total", "within")

    def __init__(self, limits: Sequence[Limit] = ()) -> None:
        self.buckets: defaultdict[int | None, int] = defaultdict(int)
        self.count, self.total, self.least, self.most = 0, 0.0, inf, -inf
        self.limits, self.within = tuple(limits), [0] * len(limits)

    def add(self, value: float, times: int = 1) -> None:
        """Note ``value`` so many times."""
        self.count += times
        self.total += value * times
        self.least = value if value < self.least else self.least
        self.most = value if value > self.most else self.most
        self.buckets[ceil(log(value) / GROWTH) if value > 0.0 else None] += times
        if self.limits:
            for place, limit in enumerate(self.limits):
                self.within[place] += times * (value <= limit.seconds)

    @property
    def mean(self) -> float:
        """Arithmetic mean; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The value that ``share`` of all do not exceed; 0 of nothing."""
        rank, seen = max(1, ceil(share * self.count)), 0
        for bucket in sorted(self.buckets, key=lambda one: -inf if one is None else one):
            seen += self.buckets[bucket]
            if seen >= rank:
                middle = 0.0 if bucket is None else 1.01 ** (bucket - 0.5)
                return min(max(middle, self.least), self.most)
        return 0.0

    def join(self, other: Sketch) -> None:
        """Note everything that ``other`` has noted."""
        for bucket, times in other.buckets.items():
            self.buckets[bucket] += times
        self.count += other.count
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)


def level_quantile(seconds: Mapping[int, float], share: float) -> int:
    """The level that is not exceeded for ``share`` of the time, of seconds by level; 0 of nothing."""
    rank, seen = share * ordered_sum(seconds.values()), 0.0
    for level in sorted(seconds):
        seen += seconds[level]
        if seen >= rank:
            return level
    return max(seconds, default=0)


class BrokenRunError(Exception):
    """A run contradicts itself: a fault of the simulator, not of its input."""


@dataclass(slots=True)
class Spent:
    """Steps of one kind and the time they took."""

    steps: int = 0
    seconds: float = 0.0

    def __iadd__(self, other: Spent) -> Spent:
        self.steps += other.steps
        self.seconds += other.seconds
        return self


@dataclass
class Tally:
    """Counts and times of one run."""

    spent: defaultdict[Kind, Spent] = field(default_factory=lambda: defaultdict(Spent))
    """Steps in which somebody decoded."""
    prefills: int = 0
    """Iterations with prompts only."""
    prefill_seconds: float = 0.0
    request_steps: int = 0
    settled: Counter[Progress] = field(default_factory=Counter)
    """What steps did for requests; everything about windows is counted from it."""
    shown: int = 0
    """Tokens of steps that reached a reader."""
    verified_rows: int = 0
    """Rows that the target computed for decoding: every window and one token more."""
    prompt_rows: int = 0
    """Tokens that went through a prefill, recomputed ones included."""
    recomputed_rows: int = 0
    arrived: int = 0
    finished: int = 0
    cancelled: int = 0
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
    """From arrival to first admission."""
    system_s: float = 0.0
    """Time that all requests together spent in the system, by summing over requests."""
    area_s: float = 0.0
    """The same by summing the number in the system over time."""
    block_area_s: float = 0.0
    """Blocks held over time."""
    queue_s: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds during which so many requests waited to be admitted."""
    waiting: int = 0
    in_system: int = 0
    _queue_since: float = 0.0
    _since: float = 0.0

    @property
    def steps(self) -> Counter[Kind]:
        """Steps in which somebody decoded, by kind."""
        return Counter({kind: one.steps for kind, one in self.spent.items()})

    @property
    def seconds(self) -> dict[Kind, float]:
        """Time spent in them, by kind."""
        return {kind: one.seconds for kind, one in self.spent.items()}

    @property
    def committed(self) -> int:
        """Verified tokens of steps, those past the end of an output included."""
        return sum(one.verified * times for one, times in self.settled.items())

    @property
    def drafted(self) -> int:
        """Draft tokens that were judged."""
        return sum(one.proposed * times for one, times in self.settled.items())

    @property
    def kept(self) -> int:
        """Draft tokens among them that were accepted."""
        return sum(one.accepted * times for one, times in self.settled.items())

    @property
    def accepted(self) -> Counter[int]:
        """Verified windows by accepted draft tokens."""
        return self._counted(lambda one: one.accepted if one.proposed else None)

    @property
    def judged(self) -> Counter[int]:
        """Verified windows by length."""
        return self._counted(lambda one: one.proposed or None)

    @property
    def windows_missed(self) -> Counter[int]:
        """Verified windows whose successor was lost, by length."""
        return self._counted(lambda one: one.proposed if one.missed else None)

    @property
    def choices(self) -> Counter[str]:
        """What the strategy decided about its next step."""
        return self._counted(lambda one: one.choice or None)

    def _counted(self, what: Callable[[Progress], Any]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for one, times in self.settled.items():
            if (value := what(one)) is not None:
                found[value] += times
        return found

    @property
    def step_seconds(self) -> float:
        """Time spent in steps of all kinds."""
        return ordered_sum(self.seconds.values())

    @property
    def mean_batch(self) -> float:
        """Requests that decode in a step, mean over steps; 0 without any."""
        return self.request_steps / max(1, sum(self.steps.values()))

    def note(self, progress_of: Sequence[Progress]) -> None:
        """What a step did for each request in it."""
        if progress_of.count(progress_of[0]) == len(progress_of):  # nobody differs: quicker than to hash each
            self.settled[progress_of[0]] += len(progress_of)
        else:
            self.settled.update(progress_of)

    def pass_time(self, now: float) -> None:
        """Add the number in the system over the time since the last change of it."""
        self.area_s += self.in_system * (now - self._since)
        self._since = now

    def queue(self, waiting: int, now: float) -> None:
        """So many requests wait from now on."""
        self.queue_s[self.waiting] += now - self._queue_since
        self.waiting, self._queue_since = waiting, now

    def arrive(self, at: float) -> None:
        """A request entered the system."""
        self.pass_time(at)
        self.arrived += 1
        self.in_system += 1

    def leave(self, arrival: float, now: float) -> None:
        """A request left the system, finished or cancelled."""
        self.pass_time(now)
        self.in_system -= 1
        self.system_s += now - arrival

    @classmethod
    def pooled(cls, tallies: Sequence[Tally]) -> Tally:
        """Of several replicas together; of one, its own."""
        if len(tallies) == 1:
            return tallies[0]
        whole = cls()
        for one in tallies:
            for name, held in vars(one).items():
                mine = getattr(whole, name)
                if isinstance(mine, Sketch):
                    mine.join(held)
                elif isinstance(mine, dict):
                    for key, value in held.items():
                        mine[key] += value
                else:
                    setattr(whole, name, mine + held)
        return whole

    def check(self) -> None:
        """What must hold once the system is empty; raises :class:`BrokenRunError`.

        Little's law (number in the system over time = time in the system over requests), and every token
        shown belongs to a request that finished or was cancelled.
        """
        if not isclose(self.area_s, self.system_s, rel_tol=1e-9, abs_tol=1e-9):
            raise BrokenRunError(
                f"Little's law fails: {self.area_s!r} s by number in the system, {self.system_s!r} s by request"
            )
        if self.shown + self.first_tokens != self.tokens + self.thrown_away:
            found = f"{self.shown} + {self.first_tokens} tokens shown, {self.tokens} + {self.thrown_away} delivered"
            raise BrokenRunError(f"tokens are not conserved: {found}")
        if self.arrived != self.finished + self.cancelled or self.in_system:
            raise BrokenRunError(f"{self.arrived} requests came, {self.finished} finished, {self.cancelled} were cancelled")
