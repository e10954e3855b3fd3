"""FlowLine: levels of one request on their way through stages and links, each of which can block on its own.

Stages and links are lanes. A level that is done at a stage is carried on when the link is free and computed when
the next stage is, in the order of arrival; the stage prunes behind every level. Dropping levels takes them out while
they are in flight: what they booked is cut short, what waits behind them moves up.

The line knows lanes and seconds, no models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from simpy import Event

from simulator.world import Booking, Lane


class Level:
    """A level of a tree: what it takes at stage 1, on link 1, at stage 2, ...; how many of these it has passed."""

    __slots__ = ("passed", "ready", "seconds")

    def __init__(self, compute: Sequence[float], carry: Sequence[float]) -> None:
        self.seconds = [0.0] * (len(compute) + len(carry))
        self.seconds[::2], self.seconds[1::2] = compute, carry
        self.passed = 0
        self.ready = 0.0
        """When it is pruned; it cannot enter before."""


class _Part:
    """A stage or a link: its lane, the level on it, those that wait.

    A stage that sends by itself is ``kept`` until the link behind it is done.
    """

    __slots__ = ("began", "booking", "following", "frees", "holder", "kept", "label", "lane", "number", "prune_s", "waiting")

    def __init__(self, number: int, lane: Lane, prune_s: float) -> None:
        self.number, self.lane, self.prune_s = number, lane, prune_s
        self.label = "transmit" if number % 2 else "compute"
        self.holder: Level | None = None
        self.booking: Event | None = None
        self.began = 0.0
        self.waiting: deque[Level] = deque()
        self.following: _Part | None = None
        self.frees: _Part | None = None
        self.kept = False

    def take(self, level: Level) -> None:
        """The level has come here."""
        if self.holder is None:
            self.begin(level)
        else:
            self.waiting.append(level)

    def begin(self, level: Level) -> None:
        """Book the time that the level takes."""
        self.holder = level
        self.began = max(self.lane.free_at, self.lane.environment._now)
        self.booking = booking = self.lane.start(level.seconds[self.number], self.label)
        booking.callbacks.append(self.done)

    def done(self, event: Event) -> None:
        """The level goes on; what was cut short is no longer waited for."""
        if event is not self.booking:
            return
        level = self.holder
        if level is None:
            return
        level.passed += 1
        if not self.kept:
            self.free()
        if self.frees is not None:
            self.frees.free()
        if self.following is not None:
            self.following.take(level)

    def free(self) -> None:
        """Prune, then whoever waits is next."""
        if self.prune_s:
            self.lane.hold(self.lane.environment._now + self.prune_s, "prune")
        self.release()

    def release(self) -> None:
        """Whoever waits is next."""
        if self.waiting:
            self.begin(self.waiting.popleft())
        else:
            self.holder = self.booking = None

    def cut(self) -> None:
        """The level is dropped: its booking ends now, or never begins."""
        begun = self.began < self.lane.environment.now
        self.lane.cancel()
        self.booking = None
        if begun:
            self.free()
        else:
            self.release()


class _Entrance(_Part):
    """The first stage: a level enters when it is pruned and the draft has grown it."""

    __slots__ = ("draft", "draft_s", "drafted")

    def __init__(self, lane: Lane, prune_s: float, draft: Lane, draft_s: float) -> None:
        super().__init__(0, lane, prune_s)
        self.draft, self.draft_s = draft, draft_s
        self.drafted: Event | None = None
        """What is still being grown; None when a level is at hand."""

    def take(self, level: Level) -> None:
        self.waiting.append(level)
        if self.holder is None:
            self.release()

    def release(self) -> None:
        self.holder = self.booking = None
        if self.waiting and self.drafted is None:
            level = self.waiting.popleft()
            self.lane.hold(level.ready, "prune")
            self.begin(level)
            if self.draft_s:
                self.draft.hold(self.began)
                self.drafted = self.draft.start(self.draft_s, "draft level")
                self.drafted.callbacks.append(self.grown)

    def grown(self, event: Event) -> None:
        """The draft has the next level."""
        if event is self.drafted:
            self.drafted = None
            if self.holder is None:
                self.release()

    def cut(self) -> None:
        if self.began >= self.lane.environment.now:
            self.stop_drafting()
        super().cut()

    def stop_drafting(self) -> None:
        """What was to be grown from is gone; what enters next is at hand."""
        self.drafted = None
        self.draft.cancel()


class FlowLine:
    """Stages with links between them, fed with levels by :meth:`advance`.

    ``prune_s``: behind every level, and before one enters; ``token_s``: from the last stage to all who must know the
    token. ``asynchronous``: a stage is free as soon as it has computed; else it holds still until its level is carried.
    ``draft_s``: for a level; the next one can enter that long after one began at the first stage.
    """

    def __init__(
        self,
        stages: Sequence[Lane],
        links: Sequence[Lane],
        draft: Lane,
        prune_s: float = 0.0,
        token_s: float = 0.0,
        draft_s: float = 0.0,
        asynchronous: bool = True,
    ) -> None:
        self.environment = draft.environment
        self.prune_s, self.token_s = prune_s, token_s
        self.entrance = _Entrance(stages[0], prune_s, draft, draft_s)
        self.parts: list[_Part] = [self.entrance]
        for link, stage in zip(links, stages[1:], strict=True):
            self._append(link, 0.0)
            self._append(stage, prune_s)
            if not asynchronous:
                self.parts[-3].kept, self.parts[-2].frees = True, self.parts[-3]
        self.parts[-1].following = _Exit(self)
        self.flying: deque[Level] = deque()
        self.known: set[Level] = set()
        """Levels in flight whose token is known, and not yet asked for."""
        self.out: Event | None = None

    def _append(self, lane: Lane, prune_s: float) -> None:
        self.parts.append(_Part(len(self.parts), lane, prune_s))
        self.parts[-2].following = self.parts[-1]

    def advance(self, dropped: int, entering: Sequence[Level]) -> Event:
        """Drop the oldest levels, let others enter behind; the event comes when the token of the oldest left is known."""
        if dropped:
            self._drop(min(dropped, len(self.flying)))
        ready = self.environment.now + self.prune_s
        for level in entering:
            level.ready = ready
            self.flying.append(level)
            self.entrance.take(level)
        self.out = out = Event(self.environment)
        self._hand_out()
        return out

    def learn(self, level: Level) -> None:
        """Everybody knows the token of a level."""
        self.known.add(level)
        self._hand_out()

    def _hand_out(self) -> None:
        if self.out is not None and self.flying[0] in self.known:
            self.known.remove(self.flying.popleft())
            out, self.out = self.out, None
            out.succeed()

    def _drop(self, count: int) -> None:
        """Take the oldest levels out, wherever they are."""
        gone = {self.flying.popleft() for _ in range(count)}
        self.known -= gone
        if not self.flying:
            self.entrance.stop_drafting()
        for part in self.parts:
            part.waiting = deque(level for level in part.waiting if level not in gone)
        for part in self.parts:
            if part.holder in gone:
                part.cut()


class _Exit(_Part):
    """Behind the last stage: a token becomes known."""

    __slots__ = ("line",)

    def __init__(self, line: FlowLine) -> None:
        self.line = line

    def take(self, level: Level) -> None:
        line = self.line
        if line.token_s:
            known = Booking(line.environment, line.environment.now + line.token_s)
            known.callbacks.append(lambda _: line.learn(level) if level in line.flying else None)
        else:
            line.learn(level)
