"""World, Lane, Span: the engine room. Knows time and who is busy; knows nothing of models.

A lane does one thing at a time. ``occupy`` books it from when it is free, and behind other lanes where these
have to be done first; ``start`` does the same and gives an event to wait for. The lane writes the span down
itself. So a step whose order is known is booked at once and waited for once. Who knows the times of all that is
to come books it ahead with ``book``, and takes it back with ``retract``. Lanes that share a memory slow each other
down while both are busy.
"""

from __future__ import annotations

import sys
from functools import reduce
from heapq import heapify, heappush
from operator import add
from typing import NamedTuple

from simpy import Environment, Event
from simpy.events import NORMAL


class Span(NamedTuple):
    """One busy interval of a lane, in seconds."""

    lane: str
    start_s: float
    end_s: float
    label: str


class World:
    """One simulation: a clock, its lanes and what they did.

    ``spans`` bounds what is written down for good: the first so many of each lane. Whoever runs for long calls
    ``forget`` now and then, so that memory does not grow. How long each lane was busy is always known.
    Worlds with one ``environment`` have one clock, and lanes of their own.
    """

    def __init__(self, spans: int | None = None, environment: Environment | None = None) -> None:
        self.environment = environment or Environment()
        self.lanes: dict[str, Lane] = {}
        self.most_spans = sys.maxsize if spans is None else spans

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.environment.now

    def lane(self, name: str) -> Lane:
        """The lane of this name, made when first asked for."""
        if name not in self.lanes:
            self.lanes[name] = Lane(self.environment, name, self.most_spans)
        return self.lanes[name]

    def share_memory(self, names: tuple[str, str], slowdown: float) -> None:
        """Make two lanes of one memory: while both are busy, each takes ``slowdown`` times as long."""
        one, other = (SharingLane(self.environment, name, self.most_spans) for name in names)
        one.share(other, slowdown)
        self.lanes |= {one.name: one, other.name: other}

    def forget(self) -> None:
        """Drop what is not to be kept."""
        for lane in self.lanes.values():
            if len(lane.spans) > lane.room:
                lane.forget()

    @property
    def spans(self) -> list[Span]:
        """Everything that was written down, by start time."""
        written = (Span(lane.name, *span) for lane in self.lanes.values() for span in lane.spans[: lane.room])
        return sorted(written, key=lambda span: span[1:3])


class _Moment(Event):
    """Made and scheduled by :func:`at`."""

    _ok, _value = True, None


def at(environment: Environment, time_s: float) -> Event:
    """An event at an absolute time: nothing is lost to ``now + (time - now)``."""
    event: Event = Event.__new__(_Moment)  # what ``Event.__init__`` would do, at a third of its time
    event.env, event.callbacks = environment, []
    heappush(environment._queue, (time_s, NORMAL, next(environment._eid), event))
    return event


def reschedule(event: Event, time_s: float) -> None:
    """Let an event that was scheduled come at another time."""
    queue = event.env._queue
    place = next(place for place, entry in enumerate(queue) if entry[3] is event)
    queue[place] = (time_s, *queue[place][1:])
    heapify(queue)


class Lane:
    """One thing that can do one thing at a time, in the order it is asked."""

    __slots__ = ("environment", "forgotten_s", "free_at", "name", "room", "spans")

    def __init__(self, environment: Environment, name: str, room: int = sys.maxsize) -> None:
        self.environment = environment
        self.name = name
        self.room = room
        self.free_at = 0.0
        self.forgotten_s = 0.0
        self.spans: list[tuple[float, float, str]] = []

    def occupy(self, seconds: float, label: str, after: Lane | None = None, also: Lane | None = None) -> float:
        """Book ``seconds`` from when this lane is free, and one or two others are; nobody is told. Returns its end."""
        now: float = self.environment._now
        begin = self.free_at if self.free_at > now else now
        if after is not None and after.free_at > begin:
            begin = after.free_at
        if also is not None and also.free_at > begin:
            begin = also.free_at
        self.free_at = end = begin + seconds
        self.spans.append((begin, end, label))
        return end

    def start(self, seconds: float, label: str, after: Lane | None = None, also: Lane | None = None) -> Event:
        """Book as :meth:`occupy` does; the event comes at the end of the booking.

        :meth:`occupy` and :func:`at` are written out here, as calling them is a tenth of what a step of one booking costs.
        """
        environment = self.environment
        now: float = environment._now
        begin = self.free_at if self.free_at > now else now
        if after is not None and after.free_at > begin:
            begin = after.free_at
        if also is not None and also.free_at > begin:
            begin = also.free_at
        self.free_at = end = begin + seconds
        self.spans.append((begin, end, label))
        event: Event = Event.__new__(_Moment)
        event.env, event.callbacks = environment, []
        heappush(environment._queue, (end, NORMAL, next(environment._eid), event))
        return event

    def book(self, begin: float, end: float, label: str) -> None:
        """Book ahead, behind all other bookings; nobody is told."""
        self.free_at = end
        self.spans.append((begin, end, label))

    def retract(self) -> None:
        """Take back every booking that has not begun."""
        now, spans = self.environment._now, self.spans
        while spans and spans[-1][0] >= now:
            spans.pop()
        self.free_at = max(spans[-1][1] if spans else now, now)

    def forget(self) -> None:
        """Keep the first ``room`` spans, and behind them what has not ended and may yet be cut short."""
        now, spans, ended = self.environment._now, self.spans, len(self.spans)
        while ended > self.room and spans[ended - 1][1] > now:
            ended -= 1
        if ended > self.room:
            self.forgotten_s += reduce(add, [end - begin for begin, end, _ in spans[self.room : ended]], 0.0)
            del spans[self.room : ended]

    @property
    def busy_s(self) -> float:
        """Seconds of all bookings until now."""
        now = self.environment._now
        done = (min(end, now) - begin for begin, end, _ in self.spans if begin < now)
        return self.forgotten_s + reduce(add, done, 0.0)  # `sum` of floats is another one from Python 3.12 on

    def cancel(self) -> None:
        """Cut the newest booking short: the lane is free from now, or from where the booking would have begun.

        Its event still comes at the time once planned; whoever cancels does not wait for it.
        """
        if not self.spans:
            return
        begin, end, label = self.spans[-1]
        now = self.environment._now
        if end <= now:
            return
        self.spans.pop()
        if begin < now:
            self.spans.append((begin, now, label))
        self.free_at = max(begin, now)


class SharingLane(Lane):
    """One of two lanes on one memory. What is booked also stretches what the other lane is doing from then on.

    So the two are booked in the order in which work begins on them, and what depends on either only after that.
    """

    __slots__ = ("end", "other", "slowdown")

    other: SharingLane
    slowdown: float
    end: Event | None
    """Somebody waits for the newest booking."""

    def share(self, other: SharingLane, slowdown: float) -> None:
        """Let the two have one memory."""
        self.other, other.other = other, self
        self.slowdown = other.slowdown = slowdown
        self.end = other.end = None

    def occupy(self, seconds: float, label: str, after: Lane | None = None, also: Lane | None = None) -> float:
        """Book ``seconds`` of undisturbed work; both lanes take longer while both are busy."""
        self.end = None
        super().occupy(seconds, label, after, also)
        begin, other = self.spans[-1][0], self.other
        if other.spans and other.spans[-1][0] > begin:
            raise ValueError(f"{label!r} on {self.name} begins before what {other.name} was booked for last")
        both = min(seconds, other.free_at - begin)
        if both > 0.0:
            for lane in (self, other):
                lane._stretch(both * (self.slowdown - 1.0))
        return self.free_at

    def start(self, seconds: float, label: str, after: Lane | None = None, also: Lane | None = None) -> Event:
        """Book as :meth:`occupy` does; the event comes at the end of the booking, however late that will be."""
        self.end = event = at(self.environment, self.occupy(seconds, label, after, also))
        return event

    def cancel(self) -> None:
        """Cut the newest booking short; what the other lane is at goes on alone and ends the sooner."""
        other, now = self.other, self.environment._now
        if other.spans and other.spans[-1][0] > now:
            raise ValueError(f"{self.name} cannot be cut short: {other.name} has more booked behind what it does")
        alone = min(self.free_at, other.free_at) - max(now, *(lane.spans[-1][0] for lane in (self, other) if lane.spans))
        super().cancel()
        if alone > 0.0:
            other._stretch(alone * (1.0 / self.slowdown - 1.0))

    def _stretch(self, seconds: float) -> None:
        """Let the newest booking take longer."""
        begin, end, label = self.spans[-1]
        self.free_at = end + seconds
        self.spans[-1] = (begin, self.free_at, label)
        if self.end is not None:
            reschedule(self.end, self.free_at)
