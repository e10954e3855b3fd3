"""The scheduler: continuous batching of any strategy under any policy, on two clocks.

The policy says who takes part in the next iteration, the strategy what a step of this batch is, the
scheduler lets it happen and keeps the books. On the event engine an iteration takes what its lanes take;
in a replay it takes what the law says of its kind. With ``in_flight`` = m, m iterations are under way
at a time, over disjoint requests.

An iteration of prompts alone is a pass through target and draft side by side; its first tokens are shown
when both are done, so the draft's prefill is part of TTFT. Then the first windows are drafted, where a
strategy has them drafted outside its steps. Prompts beside decoding requests travel in the step itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from simpy import Environment, Event

from simulator.acceptance.sources import Acceptance, Exit
from simulator.cost.cost import NO_ROWS, Cost, Rows
from simulator.serving.memory import Blocks
from simulator.serving.metrics import BrokenRunError, Tally
from simulator.serving.policies import Policy, Queues
from simulator.serving.requests import Request, Source
from simulator.serving.step_times import StepTimes
from simulator.strategies.common.base import Strategy
from simulator.strategies.common.step import BARE, Admission, Lanes, State, Step
from simulator.world import World, at

TURNS = 64
"""Iterations between two moments at which lanes drop the spans that are not to be kept."""


class Iteration(NamedTuple):
    """One line of the iteration log; ``rows`` and ``tokens`` stand by request in the order of ``requests``."""

    start_s: float
    duration_s: float
    kind: str
    """The strategy's name for the step, ``prefill``, or both joined by ``+``."""
    requests: tuple[int, ...]
    rows: tuple[int, ...]
    """Rows of the target's pass: tokens of a window and one more, or tokens of a prompt."""
    tokens: tuple[int, ...]
    """Verified tokens, those past the end of an output included."""
    waiting: int
    """Requests that wait meanwhile to be admitted, as far as they had arrived when it began."""
    kv_tokens: int
    """Room that requests hold in the KV cache during it."""
    replica: int = 1
    """Which of several replicas it was, from 1."""


@dataclass(slots=True)
class _Round:
    """An iteration under way: a step with or without prompts beside it, or prompts alone."""

    begin_s: float
    decode: list[Request]
    prompts: list[tuple[Request, int]]
    states: list[State] = field(default_factory=list)
    step: Step | None = None
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    waiting: int = 0
    kv_tokens: int = 0

    def holds(self, request: Request) -> bool:
        return request in self.decode or any(request is one for one, _ in self.prompts)


class Scheduler:
    """The batch and its books; ``run`` and ``replay`` let time pass.

    ``log`` is called with every iteration, ``finished`` with every request that has all its tokens.
    """

    def __init__(
        self,
        strategy: Strategy,
        acceptance: Acceptance,
        exit: Exit | None,
        source: Source,
        cost: Cost,
        policy: Policy,
        memory: Blocks | None = None,
        log: Callable[[Iteration], object] | None = None,
        finished: Callable[[Request], object] | None = None,
    ) -> None:
        self.strategy, self.acceptance, self.exit, self.cost = strategy, acceptance, exit, cost
        self.source, self.policy, self.log, self.finished = source, policy, log, finished
        self.memory = Blocks() if memory is None else memory
        self.queues = Queues(self.memory, strategy)
        self.times = StepTimes(strategy, cost)
        self.tally = Tally()
        self.gaps = self.tally.tbt
        """Where the times between tokens go; elsewhere while they do not count."""
        self.longest_gap_s = inf
        """A request that waits longer between two tokens is late."""
        self.under_way: list[_Round] = []
        self._trims = strategy.window > 0 and not policy.reserves
        self._fixed = policy.reserves and self.queues.in_flight == 1
        self._same: _Round | None = None
        """The last iteration, where the next one is of the same requests: nobody came, left or waits."""
        self._wakeup: Event | None = None
        self._wakeup_at_s = -inf
        self._since = 0.0
        self._leaving = False

    # ---- two clocks

    def run(self, world: World, lanes: Lanes) -> Generator[Event, object, None]:
        """The SimPy process: iterations take what their lanes take. Start ``in_flight`` of them."""
        environment, strategy, turn = world.environment, self.strategy, 0
        while True:
            turn += 1
            if not turn % TURNS:
                world.forget()
            one = self.next(environment.now)
            if one is None:
                if self.over:
                    self.ring()
                    return
                yield self._wait(environment)
                continue
            if one.step is None:
                admission = self._admission(one)
                target = lanes.target.start(admission.target, "prefill")
                if admission.draft:
                    yield lanes.draft.start(admission.draft, "draft prefill")
                yield target
                self._settle_prompts(one, environment.now)
                if admission.window:
                    yield lanes.draft.start(admission.window, "first window")
            else:
                yield from strategy.timeline(lanes, self.times.of(one.step), one.step.kind)
            self.settle(one, environment.now)

    def replay(self, one_lane: bool = False) -> float:
        """No events: iterations take what the law says of them; returns the end time in seconds.

        ``one_lane``: target and draft are one device, so their prefills follow each other.
        """
        if self.queues.in_flight > 1:
            raise ValueError("a replay follows one iteration at a time")
        now = 0.0
        while True:
            one = self.next(now)
            if one is None:
                if self.over:
                    return now
                now = self.source.next_s
                continue
            if one.step is None:
                admission = self._admission(one)
                sides = admission.target, admission.draft
                now += sum(sides) if one_lane else max(sides) + (self.cost.contention - 1.0) * min(sides)
                self._settle_prompts(one, now)
                now += admission.window
            else:
                now += float(self.strategy.step_seconds(self.times.of(one.step), one.step.kind))
            self.settle(one, now)

    def _wait(self, environment: Environment) -> Event:
        """Until something changes: an arrival, the end of another iteration, a request handed in."""
        if self._wakeup is None:
            self._wakeup = Event(environment)
        if self._wakeup_at_s < self.source.next_s < inf:  # one alarm for an arrival, however many iterations wait for it
            self._wakeup_at_s = self.source.next_s
            arrival = at(environment, self.source.next_s)
            arrival.callbacks.append(lambda _: self.ring())
        return self._wakeup

    def ring(self) -> None:
        """Wake whoever waits for something to do."""
        if self._wakeup is not None:
            bell, self._wakeup = self._wakeup, None
            bell.succeed()

    # ---- who takes part

    @property
    def over(self) -> bool:
        """Nobody is here and nobody will come."""
        return self.source.exhausted and not self.queues.running and not self.queues.waiting

    def submit(self, request: Request) -> None:
        """A request enters the system."""
        self.tally.arrive(request.arrival_s)
        request.queued_s = request.arrival_s
        self._same = None
        self.queues.waiting.append(request)
        self.tally.queue(len(self.queues.waiting), request.arrival_s)

    def cancel(self, request: Request, now: float) -> None:
        """A request leaves at ``now`` without its output; what an iteration under way brings it is thrown away."""
        tally, queues = self.tally, self.queues
        self._note_blocks(now)
        self._same = None
        request.gone = True
        if request in queues.waiting:
            queues.waiting.remove(request)
            queues.waited_s += now - request.queued_s
            tally.queue(len(queues.waiting), now)
        elif any(one.holds(request) for one in self.under_way):
            self._leaving = True
        else:
            queues.running.remove(request)
            self.memory.keep(request, 0)
        tally.cancelled += 1
        tally.thrown_away += request.tokens
        tally.leave(request.arrival_s, now)
        self.source.ended()
        self.ring()

    def next(self, now: float) -> _Round | None:
        """The next iteration; None if there is nothing to do at this time."""
        queues, same = self.queues, self._same
        if same is not None and now < self.source.next_s:
            same.begin_s, same.step = now, self.strategy.compose(same.states)
            self.under_way.append(same)
            return same
        for request in self.source.due(now):
            self.submit(request)
        self._note_blocks(now)
        queues.now = now
        decode, prompts = self.policy.plan(queues)
        if len(queues.waiting) != self.tally.waiting:
            self.tally.queue(len(queues.waiting), now)
        if not (decode or prompts):
            return None
        one = _Round(now, decode, prompts)
        for request, _ in prompts:
            if request.cursor is None:
                number = request.index if request.number is None else request.number
                request.cursor, request.admitted_s = self.acceptance.cursor(number, self.exit), now
                self.tally.wait.add(now - request.arrival_s)
        if queues.in_flight > 1:
            self._mark(one, True)
        if decode:
            states: list[State] = [request.state for request in decode]  # type: ignore[misc]  # who decodes has one
            one.states = states
            one.step = self.strategy.compose(states, self._rows(prompts) if prompts else NO_ROWS)
            if self.log:
                one.rows = [0 if state.proposed is None else state.proposed + 1 for state in states]
        one.waiting, one.kv_tokens = len(queues.waiting), self.memory.used * self.memory.block_tokens
        self.under_way.append(one)
        return one

    def _mark(self, one: _Round, flying: bool) -> None:
        for request in one.decode:
            request.flying = flying
        for request, _ in one.prompts:
            request.flying = flying

    def _rows(self, prompts: list[tuple[Request, int]]) -> Rows:
        rows = NO_ROWS
        for request, tokens in prompts:
            rows += Rows.prefill(tokens, request.cached, tokens == request.left)
        return rows

    def _admission(self, one: _Round) -> Admission:
        """Durations of an iteration of prompts alone."""
        ending = [request.cached + tokens for request, tokens in one.prompts if tokens == request.left]
        return self.strategy.admission(self.cost, self._rows(one.prompts), len(ending), sum(ending))

    # ---- the books

    def settle(self, one: _Round, now: float) -> None:
        """An iteration has ended."""
        tally, queues, step = self.tally, self.queues, one.step
        self._note_blocks(now)
        self.under_way.remove(one)
        if step is None:
            tally.prefills += 1
            tally.prefill_seconds += now - one.begin_s
        else:
            spent = tally.spent[step.kind]
            spent.steps += 1
            spent.seconds += now - one.begin_s
            tally.request_steps += len(one.decode)
            tally.verified_rows += step.rows.tokens
            self._settle_step(one, now)
            if one.prompts:
                self._settle_prompts(one, now)
        if self.log:
            self._write(one, now)
        if queues.in_flight > 1:
            self._mark(one, False)
            self.ring()
        self._same = one if self._fixed and not (one.prompts or self._leaving or queues.waiting or self.log) else None
        if self._leaving:
            self._release()

    def _write(self, one: _Round, now: float) -> None:
        members = (*one.decode, *(request for request, _ in one.prompts))
        name = "prefill" if one.step is None else one.step.kind.name + ("+prefill" if one.prompts else "")
        rows = (*one.rows, *(tokens for _, tokens in one.prompts))
        if self.log:
            ids = tuple(request.index for request in members)
            held = one.waiting, one.kv_tokens
            self.log(Iteration(one.begin_s, now - one.begin_s, name, ids, rows, tuple(one.tokens), *held))

    def _release(self) -> None:
        """Take the memory of all who have finished or were cancelled, and are in no iteration under way."""
        staying: list[Request] = []
        self._leaving = False
        for request in self.queues.running:
            if not request.gone:
                staying.append(request)
            elif request.flying:
                staying.append(request)
                self._leaving = True
            else:
                self.memory.keep(request, 0)
        self.queues.running = staying

    def _settle_step(self, one: _Round, now: float) -> None:
        """Hand every decoding request its tokens."""
        tally, progress_of = self.tally, self.strategy.settle(one.states)
        if self.log:
            one.tokens = [progress.verified for progress in progress_of]
        tally.note(progress_of)
        block, trims = self.memory.block_tokens, self._trims
        shown_now = same = 0
        gap, late = 0.0, False
        for request, progress in zip(one.decode, progress_of, strict=True):
            if request.gone:
                continue
            shown = progress.shown
            tokens = request.tokens + shown
            if shown > 0:
                if now - request.last_token_s == gap:
                    same += 1
                else:
                    if same:
                        self.gaps.add(gap, same)
                    gap, same = now - request.last_token_s, 1
                    late = gap > self.longest_gap_s
                request.last_token_s = now
                if late:
                    request.late = True
                if tokens >= request.output_tokens:
                    end = request.output_tokens if request.cut else tokens
                    shown_now += end - request.tokens
                    request.tokens = end
                    self._finish(request, now)
                    continue
            request.tokens = tokens
            shown_now += shown
            if trims and request.slots - request.state.context >= block:  # type: ignore[union-attr]
                self.memory.keep(request, request.state.context)  # type: ignore[union-attr]
        if same:
            self.gaps.add(gap, same)
        tally.shown += shown_now

    def _settle_prompts(self, one: _Round, now: float) -> None:
        """Prompts have gone on; those that are complete show one token and decode from now on."""
        tally = self.tally
        for request, tokens in one.prompts:
            ends = tokens == request.left
            tally.prompt_rows += tokens
            if request.preemptions:
                tally.recomputed_rows += tokens
            one.tokens.append(int(ends))
            request.cached += tokens
            if ends and not request.gone:
                self._open(request, one.step is None, now)

    def _open(self, request: Request, drafted: bool, now: float) -> None:
        """The pass that ends a prefill shows a token: the first one, or the next one after a preemption."""
        cursor = request.cursor
        if cursor is None:
            raise BrokenRunError(f"request {request.index} was never admitted")
        if request.tokens:
            cursor.judge(BARE)
            gap = now - request.last_token_s
            self.gaps.add(gap)
            request.late = request.late or gap > self.longest_gap_s
        else:
            request.first_token_s = now
            self.tally.ttft.add(now - request.arrival_s)
        self.tally.first_tokens += 1
        request.tokens += 1
        request.last_token_s = now
        request.state = self.strategy.open(cursor, request.cached, drafted)
        if request.tokens >= request.output_tokens:
            self._finish(request, now)

    def _finish(self, request: Request, now: float) -> None:
        tally = self.tally
        request.finished_s, request.gone = now, True
        self._leaving = True
        tally.finished += 1
        tally.tokens += request.tokens
        tally.preemptions += request.preemptions
        tally.e2e.add(now - request.arrival_s)
        if request.tokens > 1:
            tally.tpot.add((now - request.first_token_s) / (request.tokens - 1))
        tally.leave(request.arrival_s, now)
        self.source.ended()
        if self.finished:
            self.finished(request)

    def _note_blocks(self, now: float) -> None:
        self.tally.block_area_s += self.memory.used * (now - self._since)
        self._since = now

    def check(self) -> None:
        """What must hold when a run has ended; raises :class:`BrokenRunError`."""
        self.tally.check()
        if self.memory.used or self.queues.running or self.queues.waiting:
            raise BrokenRunError(f"{self.memory.used} KV blocks are still held when everybody has left")
