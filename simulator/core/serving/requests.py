"""Requests: the workload of a scenario, and one request on its way through the system.

A closed loop has ``concurrency`` clients; each sends its next request the moment its last one ends,
until ``count`` have been sent. With ``arrivals`` the loop is open: requests come when they come.
Lengths are fixed, drawn or read; request number i always gets the i-th draw of its seed, whatever
happens around it, and always replays the same piece of a trace (see
:mod:`simulator.core.acceptance.assignment`). With ``sessions`` either loop is one of sessions, each
of which sends one request after the other (:mod:`simulator.core.serving.load.sessions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice, pairwise
from math import inf
from typing import Annotated, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Cursor
from simulator.core.faults import BadInput, did_you_mean, told
from simulator.core.numeric import ordered_sum
from simulator.core.quantities import Frozen
from simulator.core.serving.load.arrivals import DRAWN_AT_ONCE, AnyArrivals, Daily, Recorded
from simulator.core.serving.load.classes import (
    ClassDraw,
    RequestClass,
    unknown_task,
    wrong_classes,
)
from simulator.core.serving.load.content import HASHED_TOKENS, Hash, Prefix, hashed_prefixes
from simulator.core.serving.load.lengths import OutputTokens, PromptTokens, draw_lengths
from simulator.core.serving.load.sessions import AnySessions, SessionFile
from simulator.core.serving.load.traffic import LATEST_S, Line, TrafficFile
from simulator.core.serving.load.turns import Clients, Session, SessionTurn, turns_of
from simulator.core.serving.slo import Metric
from simulator.core.strategies.common.step import State

MOST_TOGETHER = 100_000
"""Requests that one machine may hold at a time: a hundred times what any does."""

Deal = Callable[[int, str], int]
"""A function from a request's index and task to the number under which it asks for acceptance."""


class Requests(Frozen):
    """A workload: a closed loop of ``concurrency`` clients, or an open one with ``arrivals``.

    Prompt and output lengths are the same for all requests, or drawn for each; those of a traffic
    file stand in the file, and ``count``, where it is stated, is the most requests that are taken
    from it. ``task_flavours`` says which flavours of a recording the requests of a task replay. The
    first ``warm_up`` and the last ``cool_down`` requests do not count
    (:mod:`simulator.core.serving.collector`). ``past_end``: what a step shows beyond
    ``output_tokens`` is cut off, as a server does, or counted, as programs do that divide the
    length of the text by the time.
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
    """When requests come, or sessions begin, in an open loop."""
    count: int = Field(default=200, gt=0, le=10_000_000)
    """How many there are."""
    prompt_tokens: PromptTokens = 512
    """Length of prompts: a number, or a distribution."""
    output_tokens: OutputTokens = 128
    """Length of outputs: a number of 2 or more, or a distribution."""
    sessions: AnySessions | None = None
    """Conversations and agents, whose requests are turns that follow each other; ``count`` counts
    turns.
    """
    warm_up: int = Field(default=0, ge=0, le=10_000_000)
    """So many requests at the beginning do not count."""
    cool_down: int = Field(default=0, ge=0, le=10_000_000)
    """So many at the end do not count."""
    past_end: Literal["cut", "counted"] = "cut"
    """Tokens of the last step beyond an output: cut off, or counted."""
    task_flavours: dict[str, tuple[str, ...]] | Literal["by_name"] = Field(default_factory=dict)
    """For each task of a traffic file, the flavours of the recording that it replays; ``by_name``:
    those called like it.
    """
    recordings: tuple[str, ...] | dict[str, Annotated[int, Field(gt=0, le=1_000)]] = ()
    """Without a traffic file, flavours of the recording, or ``flavour/3``, that requests replay in
    turn, or so many of each.
    """

    classes: dict[str, RequestClass] | None = Field(default=None, min_length=1, max_length=64)
    """Classes of service by name, as ``interactive`` and ``batch``; by default all are alike."""

    @model_validator(mode="after")
    def _enough(self) -> Requests:
        if self.concurrency > self.count:
            raise ValueError(
                f"concurrency {self.concurrency} needs at least as many requests, and count is "
                f"{self.count}; state a requests.count of {self.concurrency} or more"
            )
        rate = getattr(self.arrivals, "rate_per_s", None)
        if rate is not None and self.count > LATEST_S * rate:
            raise ValueError(
                f"count {self.count} at rate_per_s {rate:g} takes longer than {LATEST_S:g} s"
            )
        if self.traffic is None and self.warm_up + self.cool_down >= self.count:
            raise ValueError(
                f"warm_up {self.warm_up} and cool_down {self.cool_down} leave none of "
                f"{self.count} requests to count"
            )
        if not isinstance(self.output_tokens, int) and self.output_tokens.least_tokens < 2:
            raise ValueError(
                "output_tokens.least_tokens: expected 2 or more, as time per token needs two tokens"
            )
        return self

    @model_validator(mode="after")
    def _one_load(self) -> Requests:
        if self.arrivals is not None and self.concurrency > 1:
            raise ValueError(
                "concurrency is for a closed loop, and there are arrivals; leave one of them out"
            )
        self._check_sessions()
        if wrong := wrong_classes(self.classes or {}, self.traffic is not None):
            raise ValueError(wrong)
        if self.traffic is None:
            if self.task_flavours:
                raise ValueError(
                    "task_flavours is for a traffic file; without one, recordings names what "
                    "requests replay"
                )
            return self
        if self.recordings:
            raise ValueError(
                "recordings is for requests without a traffic file; with one, task_flavours: "
                "by_name pairs them"
            )
        if stated := self.model_fields_set & {"prompt_tokens", "output_tokens"}:
            raise ValueError(
                f"{' and '.join(sorted(stated))} stand in the traffic file; leave them out"
            )
        return self

    def _check_sessions(self) -> None:
        """Raise :class:`ValueError` where fields do not go with sessions, or need them."""
        sessions = self.sessions
        recorded = isinstance(sessions, SessionFile)
        if isinstance(self.arrivals, Recorded) and not recorded:
            raise ValueError(
                "arrivals: {name: recorded} is for sessions: {name: file, file: FILE}, which says "
                "when they begin"
            )
        if sessions is None:
            return
        if self.traffic is not None:
            raise ValueError(
                "a traffic file has requests of its own; leave sessions out, or take arrivals of "
                "another name, which say when sessions begin"
            )
        if isinstance(sessions, SessionFile):
            if stated := self.model_fields_set & {"prompt_tokens", "output_tokens"}:
                raise ValueError(
                    f"{' and '.join(sorted(stated))} stand in the file of sessions; leave them out"
                )
            return
        longest = sessions.most_at_first(self.prompt_tokens, self.output_tokens)
        if sessions.context_tokens is not None and longest > sessions.context_tokens:
            raise ValueError(
                f"sessions.context_tokens: a first turn may have {longest:,} tokens, prompt and "
                f"output together; expected as many or more, got {sessions.context_tokens:,}"
            )

    @property
    def varies(self) -> bool:
        """Return whether the number of requests in the system varies by itself: as they arrive, or
        as clients think between turns.
        """
        return self.arrivals is not None or self.sessions is not None

    @property
    def traffic(self) -> TrafficFile | None:
        """Return the file that requests are read from; None without one."""
        if isinstance(self.arrivals, TrafficFile):
            return self.arrivals
        return None

    @property
    def read_from_file(self) -> bool:
        """Return whether requests are read from a file, of traffic or of sessions, once."""
        return self.traffic is not None or isinstance(self.sessions, SessionFile)

    @property
    def flavours_by_task(self) -> Mapping[str, Sequence[str]]:
        """Return what the requests of a task replay; a request without a traffic file has what it
        replays as its task.
        """
        if isinstance(self.task_flavours, str):
            return {}
        return self.task_flavours or {name: (name,) for name in self.recordings}

    def tasks(self) -> Iterator[str]:
        """Yield the task of request 0, 1, 2, ...; empty words where nothing says what it is."""
        stated: Iterable[str]
        if isinstance(self.recordings, dict):
            stated = Counter(self.recordings).elements()
        else:
            stated = self.recordings
        if self.traffic:
            return (line.task for line in self.lines())
        return cycle([*stated] or [""])

    def offered_per_s(self, seed: int) -> float | None:
        """Return how many requests come in a second, in the mean; None in a closed loop, and where
        all come at once. With sessions it is how many would come if no turn took any time.
        """
        if self.sessions is not None:
            return self._turns_per_s(seed)
        if isinstance(self.arrivals, Daily):
            return self.arrivals.offered_per_s(self.count)
        if self.traffic is None:
            return getattr(self.arrivals, "rate_per_s", None)
        last = max((line.arrival_s for line in self.lines()), default=0.0)
        if last:
            return self.count / last
        return None

    def _turns_per_s(self, seed: int) -> float | None:
        """Return how many turns come in a second, in the mean; None in a closed loop. Of recorded
        sessions those that come if no answer takes any time: no more come.
        """
        sessions = sum(1 for _ in self.turns(seed))
        if isinstance(self.arrivals, Recorded):
            begins = self._begins(seed, sessions)
            last = 0.0
            for begin_s, turns in zip(begins, self.turns(seed), strict=True):
                last = max(last, begin_s + ordered_sum(turn.wait_s for turn in turns))
            return self.count / last if last else None
        if isinstance(self.arrivals, Daily):
            return self.arrivals.offered_per_s(sessions) * self.count / sessions
        rate = getattr(self.arrivals, "rate_per_s", None)
        return rate and rate * self.count / sessions

    @property
    def all_count(self) -> bool:
        """Return whether no request at the beginning or the end is left out of what is counted."""
        return not (self.warm_up or self.cool_down)

    @property
    def together(self) -> bool:
        """Return whether several requests may be in the system at a time."""
        return self.arrivals is not None or self.concurrency > 1

    def lines(self) -> Iterator[Line]:
        """Yield the lines that are read from the traffic file; nothing without one."""
        if self.traffic is not None:
            yield from islice(
                self.traffic.lines(), self.count if "count" in self.model_fields_set else None
            )

    @property
    def prompts_alone(self) -> bool:
        """Return whether no output of a traffic file has a second token, so that nothing is
        decoded.
        """
        return self.traffic is not None and all(line.output_tokens == 1 for line in self.lines())

    def counted(self) -> Requests:
        """Return the workload with the number of requests that its traffic file has, all of them
        read and checked.

        Raises :class:`BadInput` for the first line that is wrong or whose task has no flavours, and
        for an empty slice.
        """
        if isinstance(self.sessions, SessionFile):
            return self._with_turns_of(self.sessions)
        if self.traffic is None:
            return self
        traffic = self.traffic
        count = 0
        tasks = self.flavours_by_task
        if self.task_flavours == "by_name":
            tasks = {line.task: (line.task,) for line in self.lines()}
        for line in self.lines():
            count += 1
            if tasks and line.task not in tasks:
                raise traffic.fault(
                    line.number,
                    f"task '{line.task}' is not in task_flavours{did_you_mean(line.task, tasks)}",
                )
            if (task := unknown_task(self.classes or {}, [line.task])) is not None:
                raise traffic.fault(line.number, f"task '{task}' is in none of the classes")
        if not count:
            raise traffic.empty()
        if self.warm_up + self.cool_down >= count:
            raise traffic.fault(
                0,
                f"holds {count:,} requests; warm_up {self.warm_up} and cool_down "
                f"{self.cool_down} leave none",
            )
        return self.model_copy(update={"count": count, "task_flavours": tasks})

    def _with_turns_of(self, file: SessionFile) -> Requests:
        """Return the workload with the number of turns that its file of sessions has; a stated
        ``count`` is the most that are taken.
        """
        sessions = list(file.sessions(0))
        if isinstance(self.arrivals, Recorded) and sessions and sessions[0].begin_s is None:
            raise file.fault(
                0,
                "does not say when sessions begin; state another name of arrivals, or concurrency "
                "of clients",
            )
        count = sum(len(session.turns) for session in sessions)
        if "count" in self.model_fields_set:
            count = min(count, self.count)
        if not count:
            raise file.fault(0, "holds no turn within context_tokens")
        if self.warm_up + self.cool_down >= count:
            raise file.fault(
                0,
                f"holds {count:,} turns; warm_up {self.warm_up} and cool_down {self.cool_down} "
                "leave none",
            )
        if self.concurrency > count:
            raise file.fault(0, f"holds {count:,} turns, fewer than concurrency {self.concurrency}")
        return self.model_copy(update={"count": count})

    def turns(self, seed: int) -> Iterator[list[SessionTurn]]:
        """Yield the turns of one session after the other, ``count`` in all; nothing without
        sessions.
        """
        sent = 0
        for number, session in enumerate(self._sessions(seed)):
            turns = turns_of(session, number, sent)[: self.count - sent]
            sent += len(turns)
            yield turns
            if sent == self.count:
                return

    def dealt_turns(self, seed: int, deal: Deal) -> Iterator[list[SessionTurn]]:
        """Yield the turns of one session after the other, each with what it is dealt."""
        tasks = self.tasks()
        for turns in self.turns(seed):
            yield [turn._replace(dealt=deal(turn.number, next(tasks))) for turn in turns]

    def _sessions(self, seed: int) -> Iterator[Session]:
        """Return the sessions that are drawn or read."""
        if self.sessions is None:
            return iter(())
        if isinstance(self.sessions, SessionFile):
            return self.sessions.sessions(seed)
        return self.sessions.sessions(seed, self.prompt_tokens, self.output_tokens)

    def _begins(self, seed: int, sessions: int) -> Iterator[float]:
        """Yield when each of so many sessions of an open loop begins, in seconds."""
        if isinstance(self.arrivals, Recorded):
            for session in islice(self._sessions(seed), sessions):
                yield (session.begin_s or 0.0) / self.arrivals.rate_scale
        elif self.arrivals is not None and not isinstance(self.arrivals, TrafficFile):
            yield from self.arrivals.times(seed, sessions)

    def hash_fault(self) -> BadInput | None:
        """Return the error at the first line of a traffic file whose hashes do not name prefixes;
        None where all do.
        """
        known: dict[Hash, tuple[Hash | None, int]] = {}
        for line in self.lines():
            if self.traffic and (message := _wrong_hashes(line, known)):
                return self.traffic.fault(line.number, message, field="hash_ids")
        return None

    def source_of(self, seed: int, deal: Deal = lambda index, task: index) -> Source:
        """Return the source of the requests, which makes each as it arrives and keeps none."""
        source = self._source_of(seed, deal)
        return Classified(source, self.classes, seed) if self.classes else source

    def _source_of(self, seed: int, deal: Deal) -> Source:
        if self.sessions is not None:
            begins = None if self.arrivals is None else self._begins(seed, self.count)
            between_s = self.sessions.between_s if isinstance(self.sessions, SessionFile) else 0.0
            turns = self.dealt_turns(seed, deal)
            clients = Clients(turns, begins, self.concurrency, between_s)
            return SessionTurns(clients, self.past_end == "cut")
        if self.arrivals is None:
            return ClosedLoop(self, seed, deal)
        return Arrivals(self._arriving(seed, deal))

    def _arriving(self, seed: int, deal: Deal) -> Iterator[Request]:
        """Yield the requests of an open loop in order of arrival."""
        cut = self.past_end == "cut"
        if self.arrivals is None or isinstance(self.arrivals, TrafficFile | Recorded):
            for index, (_, at, prompt, output, task, hashes) in enumerate(self.lines()):
                prefixes = hashed_prefixes(hashes, prompt)
                dealt = deal(index, task)
                yield Request(index, at, prompt, output, cut, dealt, prefixes=prefixes, task=task)
            return
        times = zip(self.arrivals.times(seed, self.count), self.lengths(seed), strict=True)
        for index, ((at, lengths), task) in enumerate(zip(times, self.tasks(), strict=False)):
            yield Request(index, at, *lengths, cut, deal(index, task))

    def lengths(self, seed: int) -> Iterator[tuple[int, int]]:
        """Yield (prompt, output) tokens of request 0, 1, 2, ..., drawn or read block by block, so
        that nothing is kept.
        """
        for block in self.drawn_lengths(seed):
            yield from zip(*block.tolist(), strict=True)

    def drawn_lengths(self, seed: int) -> Iterator[NDArray[np.int64]]:
        """Yield prompt and output tokens of a block of requests at a time, (2, requests); with
        sessions turn by turn, whenever they come.
        """
        if self.traffic is not None or self.sessions is not None:
            read: Iterator[tuple[int, int]]
            if self.sessions is None:
                read = ((line.prompt_tokens, line.output_tokens) for line in self.lines())
            else:
                turns = chain.from_iterable(self.turns(seed))
                read = ((turn.prompt_tokens, turn.output_tokens) for turn in turns)
            while block := list(islice(read, DRAWN_AT_ONCE)):
                yield np.array(block, dtype=np.int64).T
            return
        for first in range(0, self.count, DRAWN_AT_ONCE):
            count = min(DRAWN_AT_ONCE, self.count - first)
            prompts = draw_lengths(self.prompt_tokens, (seed, 0, first), count)
            yield np.stack([prompts, draw_lengths(self.output_tokens, (seed, 1, first), count)])

    def output_lengths(self, seed: int) -> Counter[int]:
        """Return the number of requests by output tokens."""
        if not self.read_from_file and isinstance(self.output_tokens, int):
            return Counter({self.output_tokens: self.count})
        lengths = Counter[int]()
        for block in self.drawn_lengths(seed):
            tokens, requests = np.unique(block[1], return_counts=True)
            lengths.update(dict(zip(tokens.tolist(), requests.tolist(), strict=True)))
        return lengths

    def totals(self, seed: int) -> tuple[float, float, int]:
        """Return mean prompt tokens, mean output tokens, and the tokens of the longest request,
        prompt and output together.
        """
        if (
            self.traffic is None
            and self.sessions is None
            and isinstance(self.prompt_tokens, int)
            and isinstance(self.output_tokens, int)
        ):
            return self.prompt_tokens, self.output_tokens, self.prompt_tokens + self.output_tokens
        prompts = outputs = longest = 0
        for block in self.drawn_lengths(seed):
            prompts += int(block[0].sum())
            outputs += int(block[1].sum())
            longest = max(longest, int(block.sum(axis=0).max()))
        return prompts / self.count, outputs / self.count, longest


def _wrong_hashes(line: Line, known: dict[Hash, tuple[Hash | None, int]]) -> str:
    """Return what is wrong with the hashes of a line; ``known`` gets what stands before each, and
    the tokens it ends.
    """
    expected = -(-line.prompt_tokens // HASHED_TOKENS)
    if len(line.hashes) != expected:
        wanted = (
            f"one for every {HASHED_TOKENS} of {line.prompt_tokens:,} prompt tokens and the "
            "rest (hash_ids)"
        )
        return f"prefix caching needs {expected:,}, {wanted}, got {len(line.hashes) or 'none'}"
    for place, (before, name) in enumerate(pairwise((None, *line.hashes))):
        if not isinstance(name, int | str) or isinstance(name, bool):
            return f"expected whole numbers or texts, got {told(name)}"
        meant = before, min(HASHED_TOKENS, line.prompt_tokens - place * HASHED_TOKENS)
        if known.setdefault(name, meant) != meant:
            return (
                f"{told(name)} named another prefix further up; expected hashes of the prompt "
                "from its beginning"
            )
    return ""


@dataclass(slots=True, eq=False)
class Request:
    """A request: what it asks for, how far it has got, and when things happened to it (seconds)."""

    index: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    cut: bool = True
    """Whether what the last step shows beyond ``output_tokens`` is cut off."""
    number: int | None = None
    """The number under which it asks for acceptance; None: its index."""
    cursor: Cursor | None = None
    """Its place in the acceptance source; None until it is first admitted."""
    state: State | None = None
    """What its strategy knows of it; None until its prompt is in the cache."""
    tokens: int = 0
    """Output tokens shown so far."""
    cached: int = 0
    """Tokens of its prompt (after a preemption also of its output) that are in the cache so far."""
    hit_tokens: int = 0
    """Tokens of its prompt that were in a cache as it first entered."""
    blocks: int = 0
    """KV blocks that it has."""
    prefixes: tuple[Prefix, ...] = ()
    """Names of its beginnings, in order of their ends; empty where none are known."""
    task: str = ""
    """The task that a traffic file names; empty without one."""
    service_class: str = ""
    """The name of its class of service; empty where there are none."""
    priority: int = 0
    """That of its class: lower ones go first."""
    session: int | None = None
    """The number of the session whose turn it is; None where it is none."""
    shared: int = 0
    """How many leading blocks of it are kept for others that begin alike."""
    slots: int = 0
    """Tokens that these blocks have room for."""
    entered_s: float = 0.0
    """When it came to the replica that has it: as it arrived, or was handed over."""
    queued_s: float = 0.0
    """When it last began to wait."""
    granted_s: float = 0.0
    """When it got room where it will decode, if that is looked for before its prefill."""
    admitted_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    finished_s: float = 0.0
    """When it left the system, with its whole output or without."""
    outside_s: float = 0.0
    """Seconds outside of the engine, before its first token is seen."""
    preemptions: int = 0
    flying: bool = False
    """Whether a step with it is under way."""
    late: bool = False
    """Whether it waited longer between two tokens than a limit allows."""
    refused: bool = False
    """Whether it was turned away, as too many waited."""
    gone: bool = False
    """Whether it has finished or was cancelled; what a step under way brings is thrown away."""

    @property
    def dealt(self) -> int:
        """Return the number under which it asks for acceptance, and is dealt a recording."""
        if self.number is None:
            return self.index
        return self.number

    @property
    def left(self) -> int:
        """Return the tokens that still have to go through a prefill before it can decode."""
        if self.state is not None:
            return 0
        return self.prompt_tokens + self.tokens - self.cached

    @property
    def written_tokens(self) -> int:
        """Return the tokens whose keys and values are written: all but the last of an output."""
        if self.state is None:
            return self.cached
        return self.prompt_tokens + self.tokens - 1

    def guest(self) -> Request:
        """Return who holds blocks for it where it is not yet: in another replica, or while they are
        on their way.
        """
        return replace(self, blocks=0, slots=0, shared=0, cached=0)

    @property
    def spent_s(self) -> dict[Metric, float]:
        """Return the seconds that it took, by metric, once it has ended; TPOT only where it has
        more than a token.
        """
        since_s = self.arrival_s - self.outside_s
        spent: dict[Metric, float] = {
            "ttft": self.first_token_s - since_s,
            "e2e": self.finished_s - since_s,
        }
        if self.tokens > 1:
            spent["tpot"] = (self.finished_s - self.first_token_s) / (self.tokens - 1)
        return spent


Prompts: TypeAlias = list[tuple[Request, int]]
"""Requests with the prompt tokens of each that are prefilled."""


def states_of(requests: Iterable[Request]) -> list[State]:
    """Return what the strategy knows of each of these requests, whose prompts are in the cache."""
    return [state for request in requests if (state := request.state) is not None]


class Source(Protocol):
    """What requests come from."""

    def due(self, now: float) -> Iterable[Request]:
        """Return the requests that have arrived by ``now`` and were not handed out yet, in order of
        arrival.
        """

    def ended(self, request: Request) -> None:
        """Take note that a request has left the system, at its ``finished_s``."""

    def close(self) -> None:
        """Let no more requests come."""

    @property
    def next_s(self) -> float:
        """Return when the next request arrives, in seconds, if nobody leaves before: infinity if
        that is not known, minus infinity if it is there already.
        """

    @property
    def exhausted(self) -> bool:
        """Return whether no more requests will come."""


class Classified:
    """A source whose requests are of a class each; the turns of a session are of the same one."""

    def __init__(self, source: Source, classes: Mapping[str, RequestClass], seed: int) -> None:
        self._source = source
        self._classes = classes
        self._draw = ClassDraw(classes, seed)

    def due(self, now: float) -> Iterator[Request]:
        """Yield the requests that have arrived by ``now``, each with its class and priority."""
        for request in self._source.due(now):
            number = request.index if request.session is None else request.session
            request.service_class = self._draw.class_of(number, request.task)
            request.priority = self._classes[request.service_class].priority
            yield request

    @property
    def next_s(self) -> float:
        """Return when the next request arrives, in seconds."""
        return self._source.next_s

    @property
    def exhausted(self) -> bool:
        """Return whether no more requests will come."""
        return self._source.exhausted

    def ended(self, request: Request) -> None:
        """Take note that a request has left the system."""
        self._source.ended(request)

    def close(self) -> None:
        """Let no more requests come."""
        self._source.close()


class ClosedLoop:
    """``concurrency`` clients, each with a single request in the system."""

    def __init__(
        self, requests: Requests, seed: int = 0, deal: Deal = lambda index, task: index
    ) -> None:
        self._lengths = enumerate(requests.lengths(seed))
        self._tasks = requests.tasks()
        self._deal = deal
        self._idle = requests.concurrency
        self._left = requests.count
        self._cut = requests.past_end == "cut"

    @property
    def next_s(self) -> float:
        """Return minus infinity while an idle client has a request to send, else infinity."""
        return -inf if self._idle and self._left else inf

    @property
    def exhausted(self) -> bool:
        """Return whether all requests have been sent."""
        return self._left == 0

    def due(self, now: float) -> Iterable[Request]:
        """Yield a request of every idle client, while there are any left."""
        while self._idle and self._left:
            self._idle -= 1
            self._left -= 1
            index, (prompt, output) = next(self._lengths)
            yield Request(
                index, now, prompt, output, self._cut, self._deal(index, next(self._tasks))
            )

    def ended(self, request: Request) -> None:
        """Take note that a client is idle and can send its next request."""
        self._idle += 1

    def close(self) -> None:
        """Let no client send another request."""
        self._left = 0


class Arrivals:
    """Requests at stated times, in order of arrival."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._rest = iter(requests)
        self._next = next(self._rest, None)

    @property
    def next_s(self) -> float:
        """Return when the next request arrives, in seconds; infinity after the last."""
        if self._next is None:
            return inf
        return self._next.arrival_s

    @property
    def exhausted(self) -> bool:
        """Return whether all requests have arrived."""
        return self._next is None

    def due(self, now: float) -> Iterable[Request]:
        """Yield the requests that have arrived by ``now``."""
        while self._next is not None and self._next.arrival_s <= now:
            yield self._next
            self._next = next(self._rest, None)

    def ended(self, request: Request) -> None:
        """Do nothing: who comes does not depend on who goes."""

    def close(self) -> None:
        """Let nobody come any more."""
        self._next = None


class SessionTurns:
    """Turns of sessions, each of which comes when the one before it has ended."""

    def __init__(self, clients: Clients, cut: bool) -> None:
        self._clients = clients
        self._cut = cut
        self._came = 0
        self._numbers: dict[int, int] = {}
        """Numbers of the turns that have not ended, by the index of their request."""

    @property
    def next_s(self) -> float:
        """Return when the next turn comes, in seconds; infinity if that is not known."""
        return self._clients.next_s

    @property
    def exhausted(self) -> bool:
        """Return whether all turns have come."""
        return self._clients.exhausted

    def due(self, now: float) -> Iterable[Request]:
        """Yield the turns that have come by ``now``."""
        for at_s, turn in self._clients.due(now):
            index = self._came
            self._came += 1
            self._numbers[index] = turn.number
            yield Request(
                index,
                at_s,
                turn.prompt_tokens,
                turn.output_tokens,
                self._cut,
                turn.dealt,
                prefixes=turn.prefixes,
                session=turn.session,
            )

    def ended(self, request: Request) -> None:
        """Let the next turn of the session come, or the next session of its client."""
        self._clients.ended(self._numbers.pop(request.index), request.finished_s)

    def close(self) -> None:
        """Let nobody come any more."""
        self._clients.close()
