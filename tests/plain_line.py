"""The plainest pipeline of stages and links: a SimPy process for each level, a resource for each
stage and link.

What is in flight is interrupted where it is dropped. Tests hold the line that books ahead against
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from simpy import Environment, Event, Interrupt, Process, Resource

from simulator.core.strategies.common.pipeline_laws import PipelineTimes

Spans = list[tuple[int, float, float]]


class PlainLine:
    """``spans``: (part, begin, end) of what took time, parts counted stage 1, link 1, stage 2,
    ...
    """

    def __init__(self, times: PipelineTimes) -> None:
        self.times, self.environment = times, Environment()
        self.parts = [Resource(self.environment) for _ in range(2 * len(times.stages) - 1)]
        self.entrance = Resource(self.environment)
        self.spans: Spans = []

    def run(self, passages: Sequence[Any]) -> list[float]:
        """When each token is known everywhere."""
        known: list[float] = []
        self.environment.process(self._request(passages, known))
        self.environment.run()
        return known

    def _request(self, passages: Sequence[Any], known: list[float]) -> Iterator[Event]:
        flying: list[tuple[Process, Event]] = []
        for steps, entering in passages:
            for level, _ in flying[: steps - 1]:
                if level.is_alive:
                    level.interrupt()
            del flying[: steps - 1]
            if not flying:  # the draft starts afresh
                self.entrance = Resource(self.environment)
            for compute, carry in entering:
                seconds = [0.0] * len(self.parts)
                seconds[::2], seconds[1::2] = compute, carry
                out = self.environment.event()
                flying.append((self.environment.process(self._level(seconds, out)), out))
            _, out = flying.pop(0)
            yield out
            known.append(self.environment.now)

    def _level(self, seconds: Sequence[float], out: Event) -> Iterator[Event]:
        clock, entrance, held = self.environment, self.entrance, list[Any]()
        turn = entrance.request()
        index, began = -1, clock.now
        drafting: Process | None = None
        try:
            yield clock.timeout(self.times.prune)
            yield turn
            for index, part in enumerate(self.parts):
                held.append((index, part.request()))
                began = float("inf")
                yield held[-1][1]
                began = clock.now
                if index == 0:
                    drafting = clock.process(self._draft(entrance, turn))
                yield clock.timeout(seconds[index])
                self._note(index, began)
                if index % 2 or self.times.asynchronous or part is self.parts[-1]:
                    self._let_go(held)
            yield clock.timeout(self.times.token)
            out.succeed()
        except Interrupt:
            if held and began < clock.now:
                self._note(index, began)
            elif held:  # it never began here
                index, request = held.pop()
                request.cancel()
                self.parts[index].release(request)
                if index == 0 and drafting:
                    drafting.interrupt()
            self._let_go(held)
            if drafting is None:
                turn.cancel()
                entrance.release(turn)

    def _note(self, index: int, began: float) -> None:
        if self.environment.now > began:
            self.spans.append((index, began, self.environment.now))

    def _draft(self, entrance: Resource, turn: Any) -> Iterator[Event]:
        """The next level can enter when this one has been grown on."""
        with suppress(Interrupt):
            yield self.environment.timeout(self.times.draft)
        entrance.release(turn)

    def _let_go(self, held: list[Any]) -> None:
        """Stages prune before others come, links do not."""
        for index, request in held:
            self.environment.process(self._prune(index, request))
        held.clear()

    def _prune(self, index: int, request: Any) -> Iterator[Event]:
        if index % 2 == 0 and self.times.prune:
            yield self.environment.timeout(self.times.prune)
        self.parts[index].release(request)
        yield self.environment.timeout(0)
