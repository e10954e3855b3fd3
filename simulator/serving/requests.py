"""Requests: the workload of a scenario, and one request on its way through the system.

A closed loop has ``concurrency`` clients; each sends its next request the moment its last one ends, until
``count`` have been sent. With ``arrivals`` the loop is open: requests come
when they come. Lengths are fixed, drawn or read; request number i always gets the i-th draw of its seed, whatever
happens around it, and always replays the same piece of a trace (see :mod:`simulator.acceptance.assignment`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor, inf, log
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from simulator.acceptance.sources import Cursor
from simulator.files.schema import Frozen, did_you_mean
from simulator.serving.arrivals import DRAWN_AT_ONCE, AnyArrivals
from simulator.serving.traffic import MOST_TOKENS, Line, TrafficFile
from simulator.strategies.common.step import State

MOST_TOGETHER = 100_000
"""Requests that one machine may hold at a time: a hundred times what any does."""


class _Bounded(Frozen):
    least_tokens: int = Field(default=2, gt=0, le=MOST_TOKENS)
    """No length is shorter."""
    most_tokens: int = Field(gt=0, le=MOST_TOKENS)
    """No length is longer."""

    @model_validator(mode="after")
    def _ordered(self) -> _Bounded:
        if self.least_tokens > self.most_tokens:
            raise ValueError(f"least_tokens {self.least_tokens} is more than most_tokens {self.most_tokens}")
        return self


class Uniform(_Bounded):
    """Every length from ``least_tokens`` to ``most_tokens`` alike."""

    name: Literal["uniform"] = "uniform"

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many lengths."""
        return random.integers(self.least_tokens, self.most_tokens, size=count, endpoint=True)


class LogNormal(_Bounded):
    """Many short and a few long ones: log-normal, rounded, and moved to the bounds where it lies outside.

    ``mean_tokens`` and ``spread`` (standard deviation over mean) are those before the cut.
    """

    name: Literal["lognormal"] = "lognormal"
    mean_tokens: float = Field(gt=0, le=MOST_TOKENS)
    """Before the cut at both ends."""
    spread: float = Field(ge=0, le=1_000)
    """Standard deviation over mean, before the cut."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many lengths."""
        variance = log(1.0 + self.spread**2)
        drawn = random.lognormal(log(self.mean_tokens) - variance / 2, variance**0.5, size=count)
        return np.clip(np.rint(drawn), self.least_tokens, self.most_tokens).astype(np.int64)


class Exponential(_Bounded):
    """Lengths without memory: exponential, rounded up (which makes it geometric), and moved to the bounds.

    ``mean_tokens`` is that of the exponential.
    """

    name: Literal["exponential"] = "exponential"
    mean_tokens: float = Field(gt=0, le=MOST_TOKENS)
    """Before the cut at both ends."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many lengths."""
        drawn = np.ceil(random.exponential(self.mean_tokens, size=count))
        return np.clip(drawn, self.least_tokens, self.most_tokens).astype(np.int64)


class Even(Frozen):
    """The two whole numbers next to ``mean_tokens``, so spread that the mean is that number as nearly as can be."""

    name: Literal["even"] = "even"
    mean_tokens: float = Field(ge=1, le=MOST_TOKENS)
    """The mean of all lengths."""

    @property
    def least_tokens(self) -> int:
        """The shorter of the two."""
        return floor(self.mean_tokens)

    @property
    def most_tokens(self) -> int:
        """The longer of the two."""
        return ceil(self.mean_tokens)

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many lengths; nothing is random about them."""
        ends: NDArray[np.int64] = np.floor(np.arange(count + 1) * self.mean_tokens).astype(np.int64)
        return ends[1:] - ends[:-1]


Lengths = Uniform | LogNormal | Exponential | Even


def _which(value: object) -> object:
    """The tag of a length: its distribution, or a plain number."""
    if isinstance(value, dict):
        return value.get("name")
    return getattr(value, "name", "number")


_Drawn = (
    Annotated[Uniform, Tag("uniform")]
    | Annotated[LogNormal, Tag("lognormal")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[Even, Tag("even")]
)
PromptTokens = Annotated[Annotated[int, Field(gt=0, le=MOST_TOKENS), Tag("number")] | _Drawn, Discriminator(_which)]
OutputTokens = Annotated[Annotated[int, Field(gt=1, le=MOST_TOKENS), Tag("number")] | _Drawn, Discriminator(_which)]


Deal = Callable[[int, str], int]
"""From a request's index and task to the number under which it asks for acceptance."""


class Requests(Frozen):
    """A workload: a closed loop of ``concurrency`` clients, or an open one with ``arrivals``.

    Prompt and output lengths are the same for all requests, or drawn for each; those of a traffic file stand in the file,
    and ``count``, where it is stated, is the most requests that are taken from it. ``task_flavours`` says which
    flavours of a recording the requests of a task replay. The first ``warm_up`` and the last ``cool_down`` requests do not
    count (:mod:`simulator.serving.collector`). ``past_end``: what a step shows beyond ``output_tokens`` is cut
    off, as a server does, or counted, as programs do that divide the length of the text by the time.
    """

    name: str | None = None
    """What reports call the workload."""
    about: str | None = None
    """What it is, in a sentence."""
    source: str | None = None
    """Where it comes from."""
    concurrency: int = Field(default=1, gt=0, le=MOST_TOGETHER)
    """Clients of a closed loop: each sends its next request as its last one ends."""
    arrivals: AnyArrivals | None = None
    """When requests come, in an open loop."""
    count: int = Field(default=200, gt=0, le=10_000_000)
    """How many there are."""
    prompt_tokens: PromptTokens = 512
    """Length of prompts: a number, or a distribution."""
    output_tokens: OutputTokens = 128
    """Length of outputs: a number of 2 or more, or a distribution."""
    warm_up: int = Field(default=0, ge=0)
    """So many requests at the beginning do not count."""
    cool_down: int = Field(default=0, ge=0)
    """So many at the end do not count."""
    past_end: Literal["cut", "counted"] = "cut"
    """Tokens of the last step beyond an output: cut off, or counted."""
    task_flavours: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For each task of a traffic file, the flavours of the recording that it replays."""

    @model_validator(mode="after")
    def _enough(self) -> Requests:
        if self.concurrency > self.count:
            raise ValueError(f"concurrency {self.concurrency} needs at least as many requests, and count is {self.count}")
        if self.traffic is None and self.warm_up + self.cool_down >= self.count:
            raise ValueError(
                f"warm_up {self.warm_up} and cool_down {self.cool_down} leave none of {self.count} requests to count"
            )
        if not isinstance(self.output_tokens, int) and self.output_tokens.least_tokens < 2:
            raise ValueError("output_tokens.least_tokens: expected 2 or more, as time per token needs two tokens")
        return self

    @model_validator(mode="after")
    def _one_load(self) -> Requests:
        if self.arrivals is not None and self.concurrency > 1:
            raise ValueError("concurrency is for a closed loop, and there are arrivals; leave one of them out")
        if self.traffic is None:
            if self.task_flavours:
                raise ValueError("task_flavours is for a traffic file; nothing else says what a request's task is")
            return self
        if stated := self.model_fields_set & {"prompt_tokens", "output_tokens"}:
            raise ValueError(f"{' and '.join(sorted(stated))} stand in the traffic file; leave them out")
        return self

    @property
    def traffic(self) -> TrafficFile | None:
        """The file that requests are read from."""
        return self.arrivals if isinstance(self.arrivals, TrafficFile) else None

    @property
    def together(self) -> bool:
        """Several requests may be in the system at a time."""
        return self.arrivals is not None or self.concurrency > 1

    def lines(self) -> Iterator[Line]:
        """What is read from the traffic file; nothing without one."""
        if self.traffic is not None:
            yield from islice(self.traffic.lines(), self.count if "count" in self.model_fields_set else None)

    def counted(self) -> Requests:
        """With the number of requests that the traffic file holds, all of them read and checked.

        Raises :class:`BadInput` for the first line that is wrong or whose task has no flavours, and for an empty slice.
        """
        if self.traffic is None:
            return self
        traffic, count, decoded, known = self.traffic, 0, False, self.task_flavours
        for line in self.lines():
            count += 1
            decoded = decoded or line.output_tokens > 1
            if known and line.task not in known:
                raise traffic.fault(line.number, f"task '{line.task}' is not in task_flavours{did_you_mean(line.task, known)}")
        if not count:
            raise traffic.fault(0, f"holds no request from {traffic.from_s:g} s to {traffic.to_s or 'its end'}")
        if not decoded:
            raise traffic.fault(0, "holds no request with more than one output token; nothing would be decoded")
        if self.warm_up + self.cool_down >= count:
            raise traffic.fault(
                0, f"holds {count:,} requests; warm_up {self.warm_up} and cool_down {self.cool_down} leave none"
            )
        return self.model_copy(update={"count": count})

    def source_of(self, seed: int, deal: Deal = lambda index, task: index) -> Source:
        """The requests as they come, one at a time: nothing is kept of those that have not arrived."""
        return ClosedLoop(self, seed) if self.arrivals is None else Arrivals(self._arriving(seed, deal))

    def _arriving(self, seed: int, deal: Deal) -> Iterator[Request]:
        cut = self.past_end == "cut"
        if self.arrivals is None or isinstance(self.arrivals, TrafficFile):
            for index, (_, at, prompt, output, task) in enumerate(self.lines()):
                yield Request(index, at, prompt, output, cut, deal(index, task))
            return
        for index, (at, lengths) in enumerate(zip(self.arrivals.times(seed, self.count), self.lengths(seed), strict=True)):
            yield Request(index, at, *lengths, cut)

    def lengths(self, seed: int) -> Iterator[tuple[int, int]]:
        """(prompt, output) tokens of request 0, 1, 2, ...; drawn or read block by block, so that nothing is kept."""
        for block in self._blocks(seed):
            yield from zip(*block.tolist(), strict=True)

    def _blocks(self, seed: int) -> Iterator[NDArray[np.int64]]:
        """Prompt and output tokens of some requests at a time, (2, requests)."""
        if self.traffic is not None:
            read = ((line.prompt_tokens, line.output_tokens) for line in self.lines())
            while some := list(islice(read, DRAWN_AT_ONCE)):
                yield np.array(some, dtype=np.int64).T
            return
        for first in range(0, self.count, DRAWN_AT_ONCE):
            block = min(DRAWN_AT_ONCE, self.count - first)
            kinds = enumerate((self.prompt_tokens, self.output_tokens))
            yield np.stack([_drawn(kind, (seed, which, first), block) for which, kind in kinds])

    def totals(self, seed: int) -> tuple[float, float, int]:
        """Mean prompt tokens, mean output tokens, and most tokens of prompt and output together in one request."""
        if self.traffic is None and isinstance(self.prompt_tokens, int) and isinstance(self.output_tokens, int):
            return self.prompt_tokens, self.output_tokens, self.prompt_tokens + self.output_tokens
        prompts = outputs = longest = 0
        for block in self._blocks(seed):
            prompts, outputs = (held + int(more) for held, more in zip((prompts, outputs), block.sum(axis=1), strict=True))
            longest = max(longest, int(block.sum(axis=0).max()))
        return prompts / self.count, outputs / self.count, longest


def _drawn(kind: Any, seed: tuple[int, ...], count: int) -> NDArray[np.int64]:
    if isinstance(kind, int):
        return np.full(count, kind, dtype=np.int64)
    lengths: NDArray[np.int64] = kind.draw(np.random.default_rng(seed), count)
    return lengths


@dataclass(slots=True, eq=False)
class Request:
    """One request: what it asks for, where it stands, and when things happened to it (seconds)."""

    index: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    cut: bool = True
    """What the last step shows beyond ``output_tokens`` is not counted."""
    number: int | None = None
    """The number under which it asks for acceptance; None: its index."""
    cursor: Cursor | None = None
    """Its place in the acceptance source; None until it is first admitted."""
    state: State | None = None
    """What its strategy knows; None until its prompt is in the cache."""
    tokens: int = 0
    """Tokens shown."""
    cached: int = 0
    """Tokens of its prompt (after a preemption also of its output) that are in the cache so far."""
    blocks: int = 0
    """KV blocks it holds."""
    slots: int = 0
    """Tokens that these blocks have room for."""
    queued_s: float = 0.0
    """When it last began to wait."""
    admitted_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    finished_s: float = 0.0
    preemptions: int = 0
    flying: bool = False
    """A step with it is under way."""
    late: bool = False
    """It waited longer between two tokens than a limit allows."""
    gone: bool = False
    """Cancelled; whatever a step under way brings is thrown away."""

    @property
    def left(self) -> int:
        """Tokens that still have to go through a prefill before it can decode."""
        return 0 if self.state is not None else self.prompt_tokens + self.tokens - self.cached


class Source(Protocol):
    """Where requests come from."""

    def due(self, now: float) -> Iterable[Request]:
        """The requests that have arrived by ``now`` and were not handed out yet, in order of arrival."""

    def ended(self) -> None:
        """One request has left the system."""

    @property
    def next_s(self) -> float:
        """When the next one arrives, if nothing else happens before; infinity if that is not known."""

    @property
    def exhausted(self) -> bool:
        """No more will come."""


class ClosedLoop:
    """``concurrency`` clients with one request each in the system."""

    def __init__(self, requests: Requests, seed: int = 0) -> None:
        self._lengths = enumerate(requests.lengths(seed))
        self._idle, self._left = requests.concurrency, requests.count
        self._cut = requests.past_end == "cut"
        self.next_s = inf

    @property
    def exhausted(self) -> bool:
        """All have been sent."""
        return self._left == 0

    def due(self, now: float) -> Iterable[Request]:
        """One request of every client that waits for nothing."""
        while self._idle and self._left:
            self._idle -= 1
            self._left -= 1
            index, (prompt, output) = next(self._lengths)
            yield Request(index, now, prompt, output, self._cut)

    def ended(self) -> None:
        """Its client sends the next one."""
        self._idle += 1


class Arrivals:
    """Requests at stated times, in order of arrival."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._rest = iter(requests)
        self._next = next(self._rest, None)

    @property
    def next_s(self) -> float:
        """Arrival of the next request."""
        return inf if self._next is None else self._next.arrival_s

    @property
    def exhausted(self) -> bool:
        """All have arrived."""
        return self._next is None

    def due(self, now: float) -> Iterable[Request]:
        """Those that have arrived."""
        while self._next is not None and self._next.arrival_s <= now:
            yield self._next
            self._next = next(self._rest, None)

    def ended(self) -> None:
        """Who comes does not depend on who goes."""
