"""World, Lane, Span: the engine room. Knows time and who is busy; knows nothing of models.

A lane does one thing at a time. ``start`` books it from now, or from when it is free, and gives an
event to wait for; the lane writes the span down itself. Who knows the order of all that is to come
books it ahead with ``book``, and takes it back with ``retract``. Lanes that share a memory slow each
other down while both are busy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import reduce
from heapq import heappush
from operator import add, sub
from typing import NamedTuple

from simpy import Environment, Event
from simpy.events import NORMAL, Timeout


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

    def share_memory(self, names: Iterable[str], factor: float) -> None:
        """Make lanes of one memory: while two or more are busy, each takes ``factor`` times as long."""
        memory = SharedMemory(self.environment, factor)
        for name in names:
            self.lanes[name] = SharingLane(self.environment, name, memory, self.most_spans)

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


class Booking(Event):
    """The end of a booking, scheduled at its absolute time: nothing is lost to ``now + (end - now)``."""

    _ok, _value = True, None

    def __init__(self, environment: Environment, end: float) -> None:
        self.env = environment
        self.callbacks = []
        heappush(environment._queue, (end, NORMAL, next(environment._eid), self))


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

    def occupy(self, seconds: float, label: str) -> None:
        """Book ``seconds`` from now or when free, and nobody is told: for what is followed by more on the same lane."""
        begin = max(self.free_at, self.environment._now)
        self.free_at = end = begin + seconds
        self.spans.append((begin, end, label))

    def start(self, seconds: float, label: str) -> Event:
        """Book ``seconds`` from now or when free; the event comes at the end of the booking."""
        environment = self.environment
        now = environment._now
        begin = self.free_at if self.free_at > now else now
        self.free_at = end = begin + seconds
        self.spans.append((begin, end, label))
        return Booking(environment, end)

    def hold(self, until: float, label: str = "") -> None:
        """Not free before ``until``, and nobody is told; a span where there is a label."""
        begin = max(self.free_at, self.environment._now)
        if until > begin:
            self.free_at = until
            if label:
                self.spans.append((begin, until, label))

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
            begins, ends, _ = zip(*spans[self.room : ended], strict=True)
            self.forgotten_s += reduce(add, map(sub, ends, begins), 0.0)
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


class _Job:
    """Work on a sharing lane: seconds it would still take alone."""

    __slots__ = ("begin", "done", "label", "remaining")

    def __init__(self, remaining: float, label: str, done: Event) -> None:
        self.remaining, self.label, self.done = remaining, label, done
        self.begin = 0.0


class SharedMemory:
    """Slows the lanes on one memory while more than one of them is busy."""

    def __init__(self, environment: Environment, factor: float) -> None:
        self.environment, self.factor = environment, factor
        self.running: dict[SharingLane, _Job] = {}
        self._since, self._alarm = 0.0, 0

    def begin(self, lane: SharingLane, job: _Job) -> None:
        """Let a job run beside the others."""
        self._progress()
        job.begin = self.environment.now
        self.running[lane] = job
        self._set_alarm()

    def _slowdown(self) -> float:
        return self.factor if len(self.running) > 1 else 1.0

    def _progress(self) -> None:
        """Account for the time since the last change."""
        elapsed = (self.environment.now - self._since) / self._slowdown()
        self._since = self.environment.now
        for job in self.running.values():
            job.remaining -= elapsed

    def _set_alarm(self) -> None:
        """Wake when the next job ends; an alarm set earlier is void."""
        self._alarm += 1
        if not self.running:
            return
        alarm = self._alarm
        first = min(self.running, key=lambda lane: self.running[lane].remaining)
        wake = Timeout(self.environment, max(0.0, self.running[first].remaining * self._slowdown()))
        wake.callbacks.append(lambda _: self._finish(first) if alarm == self._alarm else None)

    def stop(self, lane: SharingLane) -> None:
        """Take a lane's job away before its end."""
        self._progress()
        del self.running[lane]
        self._set_alarm()

    def _finish(self, lane: SharingLane) -> None:
        self._progress()
        job = self.running.pop(lane)
        lane.ended(job)
        self._set_alarm()


class SharingLane(Lane):
    """A lane on a shared memory: how long a booking takes is known only when it has ended."""

    __slots__ = ("memory", "waiting")

    def __init__(self, environment: Environment, name: str, memory: SharedMemory, room: int = sys.maxsize) -> None:
        super().__init__(environment, name, room)
        self.memory = memory
        self.waiting: list[_Job] = []

    def start(self, seconds: float, label: str) -> Event:
        """Book ``seconds`` of undisturbed work behind what is already booked."""
        job = _Job(seconds, label, Event(self.environment))
        self.waiting.append(job)
        if len(self.waiting) == 1:
            self.memory.begin(self, job)
        return job.done

    def occupy(self, seconds: float, label: str) -> None:
        """Book ``seconds`` of undisturbed work behind what is already booked."""
        self.start(seconds, label)

    def ended(self, job: _Job) -> None:
        """Write the span down, wake who waits, take the next job."""
        self._write(job)
        self.waiting.pop(0)
        job.done.succeed()
        if self.waiting:
            self.memory.begin(self, self.waiting[0])

    def cancel(self) -> None:
        """Cut the newest booking short; its event never comes."""
        if not self.waiting:
            return
        job = self.waiting.pop()
        if not self.waiting:
            self.memory.stop(self)
            if job.begin < self.environment.now:
                self._write(job)

    def _write(self, job: _Job) -> None:
        self.spans.append((job.begin, self.environment.now, job.label))
