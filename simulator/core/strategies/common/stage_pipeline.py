"""In a stage pipeline, levels of one request pass stages and links, which block independently of
each other.

A level is computed as soon as it is there and its stage has pruned behind the level before; it is
carried as soon as the link is free. No level overtakes another, so that its whole way is known when
it enters, and is booked at once; a token is the only event. A drop changes the way: what has not
begun is taken back, what a dropped level is at is cut short, and what is left is booked anew, so
that it moves up::

    stage 1  |=a=|p|=b=|p|       begin = max{arrival, when the level before was let go + prune}
    link 1       |a|   |b|              end   = begin + seconds = arrival at the next one
    stage 2        |==a==|p|==b==|p|

It knows lanes and seconds, no models.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import inf

from simpy import Event

from simulator.core.world import Lane, at


class Level:
    """A level of a tree takes seconds at each stage, on each link, and of the draft to grow the
    next level from it.
    """

    __slots__ = ("begin", "draft", "grown", "let_go", "ready", "seconds")

    def __init__(
        self, compute: Sequence[float], carry: Sequence[float], draft: float = 0.0
    ) -> None:
        self.seconds = [0.0] * (len(compute) + len(carry))
        self.seconds[::2], self.seconds[1::2] = compute, carry
        self.draft = draft
        self.ready = 0.0
        """Time at which it is pruned, in seconds; it cannot enter before."""
        self.begin: list[float] = []
        """Times at which it begins at stage 1, on link 1, at stage 2, ..."""
        self.let_go: list[float] = []
        """Times at which they are done with it; a stage prunes from then on."""
        self.grown = 0.0
        """Time at which the draft has the next level."""


class StagePipeline:
    """Stages with links between them are fed with levels by :meth:`advance` and booked by this
    pipeline alone.

    ``prune_s``: behind every level, and before one enters; ``token_s``: from the last stage to all
    who must know the token. ``asynchronous``: a stage lets go of a level once it is computed; else
    once it is carried.
    """

    def __init__(
        self,
        stages: Sequence[Lane],
        links: Sequence[Lane],
        draft: Lane,
        prune_s: float = 0.0,
        token_s: float = 0.0,
        asynchronous: bool = True,
    ) -> None:
        self.environment = draft.environment
        self.draft = draft
        self.prune_s = prune_s
        self.token_s = token_s
        self.asynchronous = asynchronous
        self.lanes = [stages[0]]
        for link, stage in zip(links, stages[1:], strict=True):
            self.lanes += [link, stage]
        last = len(self.lanes) - 1
        pruning: list[list[tuple[float, float, str]] | None] = [None] * len(self.lanes)
        for index in range(0, last + 1, 2) if prune_s else ():
            pruning[index if asynchronous else min(index + 1, last)] = self.lanes[index].spans
        self.parts = [
            (
                lane.spans,
                "transmit" if index % 2 else "compute",
                0.0 if index % 2 else prune_s,
                pruned,
            )
            for index, (lane, pruned) in enumerate(zip(self.lanes, pruning, strict=True))
        ]
        """Spans of a stage or link, their label, what it prunes, and the spans of the stage that
        prunes once it is done.
        """
        self.flying: deque[Level] = deque()
        """Levels in flight: the level whose token is due, and those behind it."""
        self.let_go = [-inf] * len(self.lanes)
        """Times by stage and link at which it was done with levels that are no longer in flight."""

    def advance(self, dropped: int, entering: Sequence[Level]) -> Event:
        """Drop levels behind the one that was due, let others enter, and return the event at which
        the next token is known.
        """
        now = self.environment.now
        flying = self.flying
        if dropped:
            self._drop(dropped, now)
        elif flying:
            self.let_go = flying.popleft().let_go
        if flying:
            let_go = flying[-1].let_go
            grown = flying[-1].grown
        else:
            let_go = self.let_go
            grown = -inf
            self.draft.cancel()
        ready = now + self.prune_s
        pruned = max(let_go[0] + self.prune_s, now)
        if entering and pruned < ready:
            self.lanes[0].spans.append((pruned, ready, "prune"))
        for level in entering:
            level.ready = ready
            self._book(level, let_go, grown, now)
            flying.append(level)
            let_go = level.let_go
            grown = level.grown
        return at(self.environment, max(flying[0].let_go[-1] + self.token_s, now))

    def _book(self, level: Level, let_go: Sequence[float], grown: float, now: float) -> None:
        """Book the whole way behind a level that is ``let_go`` and a draft that has ``grown``; what
        has begun stays written.
        """
        prune_s = self.prune_s
        begins: list[float] = []
        ends: list[float] = []
        arrival = level.ready if level.ready > grown else grown
        for (spans, label, prunes, pruning), seconds, free in zip(
            self.parts, level.seconds, let_go, strict=True
        ):
            pruned = free + prunes
            begin = arrival if arrival > pruned else pruned
            arrival = begin + seconds
            begins.append(begin)
            ends.append(arrival)
            if begin >= now:
                spans.append((begin, arrival, label))
            if pruning is not None and arrival >= now:
                pruning.append((arrival, arrival + prune_s, "prune"))
        if not self.asynchronous:
            ends[:-1:2] = ends[1::2]
        level.begin = begins
        level.let_go = ends
        level.grown = begins[0] + level.draft
        if level.draft and begins[0] >= now:
            self.draft.book(begins[0], level.grown, "draft level")

    def _drop(self, count: int, now: float) -> None:
        """Take out the level that was due and ``count`` more, wherever they are; the others move
        up.
        """
        for lane in (*self.lanes, self.draft):
            lane.retract()
        gone = [self.flying.popleft() for _ in range(min(count + 1, len(self.flying)))]
        let_go = list(self.let_go)
        grown = -inf
        begun = 0
        for level in reversed(gone):
            past = begun
            begun = bisect_left(level.begin, now)
            for index in range(past, begun):
                let_go[index] = self._cut(level, index, now)
            if begun and grown == -inf:
                grown = level.grown
        self.let_go = let_go
        for level in self.flying:
            self._book(level, let_go, grown, now)
            let_go = level.let_go
            grown = level.grown

    def _cut(self, level: Level, index: int, now: float) -> float:
        """Return when a stage or link is done with a level that is dropped ``now``."""
        lane = self.lanes[index]
        planned = level.let_go[index]
        if level.begin[index] + level.seconds[index] > now:
            lane.cancel()
        if planned < now:
            return planned
        if self.prune_s and not index % 2:
            lane.spans.append((now, now + self.prune_s, "prune"))
        return now
