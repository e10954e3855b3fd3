"""FlowLine: levels of one request on their way through stages and links, each of which can block on its own.

Stages and links are lanes. A level that is done at a stage is carried on when the link is free and computed when
the next stage is, in the order of arrival; the stage prunes behind every level. ``drop`` takes levels out while they
are in flight: what they booked is cut short, what waits behind them moves up.

The line knows lanes and seconds, no models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from simpy import Event

from simulator.world import Booking, Lane


@dataclass(slots=True, eq=False)
class Level:
    """A level of a tree: seconds at each stage and on each link, where it is, and whether it is still wanted."""

    compute: Sequence[float]
    carry: Sequence[float]
    part: int = -1
    """Stage 1 is 0, the link behind it 1, stage 2 is 2, ...; -1 before the first stage."""
    booked: bool = False
    """It holds its part; else it waits for it."""
    ready: float = 0.0
    """When it is pruned; it cannot enter before."""
    wanted: bool = True
    out: bool = False
    """Its token is known."""


@dataclass(slots=True)
class _Part:
    """A stage or a link: its lane, the level on it, those that wait."""

    lane: Lane
    label: str
    holder: Level | None = None
    waiting: deque[Level] = field(default_factory=deque)


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
        self.parts = [_Part(stages[0], "compute")]
        for link, stage in zip(links, stages[1:], strict=True):
            self.parts += [_Part(link, "transmit"), _Part(stage, "compute")]
        self.draft, self.draft_s, self.asynchronous = draft, draft_s, asynchronous
        self.prune_s, self.token_s = prune_s, token_s
        self.flying: deque[Level] = deque()
        self.entrance: deque[Level] = deque()
        self.drafting = 0
        """Counts drafts; only the end of the newest one lets a level in."""
        self.drafted = True
        self.out: Event | None = None

    def advance(self, dropped: int, entering: Sequence[Level]) -> Event:
        """Drop the oldest levels, let others enter behind; the event comes when the token of the oldest left is known."""
        if dropped:
            self._drop(min(dropped, len(self.flying)))
        for level in entering:
            level.ready = self.environment.now + self.prune_s
            self.flying.append(level)
            self.entrance.append(level)
        self._enter()
        self.out = out = Event(self.environment)
        if self.flying[0].out:
            self._hand_out()
        return out

    def _enter(self) -> None:
        """The next level goes to the first stage, once it is drafted and the stage is free."""
        if self.entrance and self.drafted and self.parts[0].holder is None:
            level = self.entrance.popleft()
            level.part = 0
            self.parts[0].lane.hold(level.ready, "prune")
            self._begin(level)
            if self.draft_s:
                self._draft(self.parts[0].lane)

    def _draft(self, stage: Lane) -> None:
        """The draft grows the level behind the one that begins at ``stage``."""
        self.drafted = False
        self.drafting += 1
        turn = self.drafting
        self.draft.hold(stage.spans[-1][0])
        grown = self.draft.start(self.draft_s, "draft level")
        grown.callbacks.append(lambda _: self._grown(turn))

    def _grown(self, turn: int) -> None:
        if turn == self.drafting:
            self.drafted = True
            self._enter()

    def _begin(self, level: Level) -> None:
        """Book the part that a level has come to."""
        index = level.part
        part = self.parts[index]
        part.holder, level.booked = level, True
        seconds = level.carry[index >> 1] if index & 1 else level.compute[index >> 1]
        done = part.lane.start(seconds, part.label)
        done.callbacks.append(lambda _: self._done(level) if level.wanted else None)

    def _done(self, level: Level) -> None:
        """A level leaves a part: the part prunes and goes on, the level moves on."""
        index = level.part
        if index & 1:
            self._release(index)
            if not self.asynchronous:
                self._release(index - 1)
        elif self.asynchronous or index == len(self.parts) - 1:
            self._release(index)
        if index == len(self.parts) - 1:
            if self.token_s:
                Booking(self.environment, self.environment.now + self.token_s).callbacks.append(lambda _: self._known(level))
            else:
                self._known(level)
            return
        level.part, level.booked = index + 1, False
        if self.parts[index + 1].holder is None:
            self._begin(level)
        else:
            self.parts[index + 1].waiting.append(level)

    def _known(self, level: Level) -> None:
        level.out = True
        if self.out is not None and self.flying[0] is level:
            self._hand_out()

    def _hand_out(self) -> None:
        out, self.out = self.out, None
        self.flying.popleft()
        if out is not None:
            out.succeed()

    def _release(self, index: int) -> None:
        """A part has done its work: a stage prunes, then whoever waits is next."""
        if not index & 1:
            self._prune(self.parts[index].lane)
        self._next(index)

    def _prune(self, stage: Lane) -> None:
        if self.prune_s:
            stage.hold(self.environment.now + self.prune_s, "prune")

    def _next(self, index: int) -> None:
        part = self.parts[index]
        part.holder = None
        if part.waiting:
            self._begin(part.waiting.popleft())
        elif index == 0:
            self._enter()

    def _drop(self, count: int) -> None:
        """Take the oldest levels out, wherever they are."""
        for _ in range(count):
            level = self.flying.popleft()
            level.wanted = False
            if level.part < 0:
                self.entrance.remove(level)
            elif not level.booked and not level.out:
                self.parts[level.part].waiting.remove(level)
        if not self.flying:
            self._stop_drafting()
        for index, part in enumerate(self.parts):
            if part.holder is not None and not part.holder.wanted:
                self._cut(index)

    def _cut(self, index: int) -> None:
        """The level on a part is dropped: its booking ends now, or never begins."""
        lane = self.parts[index].lane
        begun = lane.spans[-1][0] < self.environment.now
        lane.cancel()
        if index == 0 and not begun:
            self._stop_drafting()
        if begun and not index & 1:
            self._prune(lane)
        self._next(index)

    def _stop_drafting(self) -> None:
        """What was to be grown from is gone; what enters next is at hand."""
        self.drafting += 1
        self.drafted = True
        self.draft.cancel()
