"""The scheduler: continuous batching of any strategy under any policy, on two clocks.

The policy says who takes part in the next iteration, the strategy what a step of this batch is. On
the event engine an iteration takes what its lanes take; in a replay it takes what the law says of
its kind. With ``in_flight`` = m, m iterations are under way at a time, over disjoint requests.

An iteration of prompts alone is a pass through target and draft side by side; its first tokens are
shown when both are done, so the draft's prefill is part of TTFT. First windows are drafted behind
it where a strategy drafts outside its steps, or before the target's pass, which then verifies them.
Prompts beside decoding requests travel in the step itself, or in as many steps as there are stages.
"""

from collections import deque
from collections.abc import Callable, Generator
from math import inf
from typing import Protocol

from simpy import Environment, Event

from simulator.core.acceptance.cursors import BARE
from simulator.core.acceptance.routing import RecordedRouting
from simulator.core.acceptance.sources import Acceptance, Exit
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.serving.cache.memory import Blocks, Report
from simulator.core.serving.cache.tiers import TieredCache
from simulator.core.serving.carried import Carried
from simulator.core.serving.iteration import Batch, Iteration
from simulator.core.serving.ledger import Ledger
from simulator.core.serving.loading import Loading
from simulator.core.serving.metrics import BrokenRunError
from simulator.core.serving.policies import Policy, Queues
from simulator.core.serving.requests import Prompts, Request, Source, states_of
from simulator.core.serving.step_times import StepTimes
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import PrefillsOnStages, drafts_first
from simulator.core.strategies.common.step import UNLIMITED, Admission, Lanes, State, Timeline
from simulator.core.world import World, at

TURNS = 64
"""Iterations between two moments at which lanes drop the spans that are not to be kept."""


class Lazy(Protocol):
    """What lets iterations of a scheduler pass without its being asked about each."""

    handed: bool
    """Whether a router hands requests in at times that nobody knows before."""

    def takes(self) -> bool:
        """Return whether it goes on from this boundary."""

    def boundaries(self, now: float, lanes: Lanes | None) -> Generator[float, float | None]:
        """Yield when something is decided next, in seconds, and decide it when asked to go on,
        until an iteration has to be stepped; sent when a request has come before, yield the
        boundary at which it is met. Without ``lanes`` time passes by the law.
        """


class Scheduler:
    """Keeps who is in the batch of one replica; ``run`` and ``replay`` let time pass, and its
    ledger has the books.

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
        self.strategy = strategy
        self.acceptance = acceptance
        self.exit = exit
        self.cost = cost
        self.source = source
        self.policy = policy
        self.log = log
        self.finished = finished
        self.memory = Blocks() if memory is None else memory
        self.queues = Queues(self.memory, strategy)
        self.times = StepTimes(strategy, cost)
        shrinks = strategy.window > 0 and not policy.reserves and policy.gives_back
        self.ledger = Ledger(self.memory, shrinks)
        self.routing: RecordedRouting | None = None
        """Which experts the windows of the requests read, where that is recorded."""
        self.passes_on: Callable[[Request, float], object] | None = None
        """Takes every request whose prompt has been read, and that wants more than one token, to
        another replica; None where requests stay.
        """
        self.grants: Callable[[float], object] | None = None
        """Gives room, at a boundary, to requests that are to be handed over to this replica; None
        where none are.
        """
        self.plain_tokens = 0
        """Tokens behind its prompt up to which the steps of a request that was handed over are
        plain ones.
        """
        self.most_waiting: int | None = None
        """How many requests may wait; who comes beyond is turned away. None: all may."""
        self.lazy: Lazy | None = None
        """Lets iterations pass in which nothing is decided about single requests
        (:mod:`simulator.core.serving.lazy.batch`); None: each is stepped.
        """
        self.loading: Loading | None = None
        """Loads blocks from lower tiers of memory; None where there are none."""
        self.under_way: list[Batch] = []
        """The batches of the iterations that are running, in order of their start."""
        self.carried = Carried(strategy, cost.stages)
        self._repeats = policy.reserves and strategy.needs.in_flight == 1
        """Whether an iteration can be followed by one of the same requests without asking the
        policy.
        """
        self._first_window = drafts_first(strategy)
        self._same: Batch | None = None
        """The last batch, where the next one has the same requests: nobody came, left or waits."""
        self._wakeup: Event | None = None
        self._wakeup_at_s = -inf
        self._leaving = False
        """Whether a request that is gone still stands among those that run."""

    # ---- two clocks

    def run(self, world: World, lanes: Lanes) -> Generator[Event, object, None]:
        """Run as a SimPy process in which iterations take what their lanes take; start
        ``in_flight`` of them.
        """
        environment = world.environment
        strategy = self.strategy
        lazy = self.lazy
        turn = 0
        self._draw_loads(world)
        while True:
            turn += 1
            if not turn % TURNS:
                world.forget()
            if lazy and lazy.takes():
                if lazy.handed:
                    yield from self._pass_lazily(lazy, environment, lanes)
                else:
                    passed_s = deque(lazy.boundaries(environment.now, lanes), 1)
                    yield at(environment, passed_s[-1] if passed_s else environment.now)
                self._same = None
            batch = self.next(environment.now)
            if batch is None:
                if self.over:
                    self.ring()
                    return
                yield self._wait(environment)
                continue
            if batch.step is None:
                admission = self.admission(batch.prompts)
                if self._first_window:
                    yield lanes.draft.start(admission.draft, "draft prefill, first window")
                target = self._prefill(lanes, batch, admission)
                if admission.draft and not self._first_window:
                    yield lanes.draft.start(admission.draft, "draft prefill")
                yield from target
                self._settle_prompts(batch, environment.now)
                if admission.window:
                    yield lanes.draft.start(admission.window, "first window")
            else:
                yield from strategy.timeline(lanes, self.times.of(batch.step), batch.step.kind)
            self.settle(batch, environment.now)

    def _draw_loads(self, world: World) -> None:
        """Draw loads from tiers of memory in a world, if there are tiers."""
        if self.loading:
            self.loading.memory.draw_on(world)

    def _pass_lazily(
        self, lazy: Lazy, environment: Environment, lanes: Lanes
    ) -> Generator[Event, object, None]:
        """Let iterations pass from boundary to boundary while a router hands requests in."""
        boundaries = lazy.boundaries(environment.now, lanes)
        boundary_s = next(boundaries, None)
        while boundary_s is not None:
            yield self._wait_until(environment, boundary_s)
            try:
                if environment.now < boundary_s:
                    boundary_s = boundaries.send(environment.now)
                else:
                    boundary_s = next(boundaries)
            except StopIteration:
                return

    def _wait_until(self, environment: Environment, time_s: float) -> Event:
        """Return the event that it is ``time_s``, or that a request was handed in before; infinity:
        that one was handed in.
        """
        wakeup = self._wakeup = Event(environment)

        def ring(_: Event) -> None:
            if self._wakeup is wakeup:
                self.ring()

        if time_s < inf:
            at(environment, time_s).callbacks.append(ring)
        return wakeup

    def replay(self, one_lane: bool = False) -> float:
        """Follow the requests without events, each iteration as long as the law says; return the
        end time in seconds.

        ``one_lane``: target and draft are one device, so their prefills follow each other.
        """
        if self.queues.in_flight > 1:
            raise ValueError("a replay follows one iteration at a time")
        now = 0.0
        while True:
            if self.lazy and self.lazy.takes():
                passed_s = deque(self.lazy.boundaries(now, None), 1)
                now = passed_s[-1] if passed_s else now
                self._same = None
            batch = self.next(now)
            if batch is None:
                if self.over:
                    return now
                now = self._next_s
                continue
            if batch.step is None:
                admission = self.admission(batch.prompts)
                now = self.read_by(admission, now, one_lane, by_law=True)
                self._settle_prompts(batch, now)
                now += admission.window
            else:
                now += float(self.strategy.step_seconds(self.times.of(batch.step), batch.step.kind))
            self.settle(batch, now)

    def read_by(
        self, admission: Admission, now: float, one_lane: bool, by_law: bool = False
    ) -> float:
        """Return when prompts that are alone in an iteration are read, in seconds: by target and
        draft in turn, or side by side.
        """
        target, draft, _ = admission
        if by_law:
            if one_lane or self._first_window:
                return now + (target + draft)
            return now + (max(target, draft) + (self.cost.contention - 1.0) * min(target, draft))
        if self._first_window:
            return now + draft + target
        if one_lane:
            return now + target + draft
        return max(now + target, now + draft)

    def _wait(self, environment: Environment) -> Event:
        """Return the event that something has changed: an arrival, the end of another iteration, a
        request handed in.
        """
        if self._wakeup is None:
            self._wakeup = Event(environment)
        # one alarm for an arrival, however many iterations wait for it; who has ended meanwhile may
        # let one come before it
        next_s = self._next_s
        if environment.now < next_s < inf and next_s != self._wakeup_at_s:
            self._wakeup_at_s = next_s
            arrival = at(environment, next_s)
            arrival.callbacks.append(lambda _: self.ring())
        return self._wakeup

    @property
    def _next_s(self) -> float:
        """Return when the next request or the next blocks come, in seconds; infinity if that is not
        known.
        """
        if self.loading is None:
            return self.source.next_s
        return min(self.source.next_s, self.loading.next_s)

    def ring(self) -> None:
        """Wake every process of this replica that waits for something to do."""
        if self._wakeup is not None:
            wakeup = self._wakeup
            self._wakeup = None
            wakeup.succeed()

    # ---- who takes part

    @property
    def over(self) -> bool:
        """Return whether no request is here and none will come."""
        queues = self.queues
        return self.source.exhausted and not queues.running and not queues.length

    @property
    def waiting(self) -> int:
        """Return how many requests wait to be admitted."""
        return self.queues.length

    @property
    def outstanding(self) -> int:
        """Return how many requests have not got their last token, waiting or running."""
        return self.ledger.in_system

    @property
    def kv_use(self) -> float:
        """Return the share of the cache that requests have which run; 0 without a limit."""
        return self.memory.used / self.memory.total

    def cached(self, request: Request) -> int:
        """Return how many tokens of a request's prompt are in the cache."""
        return self.memory.cached(request)

    def report_to(self, report: Report) -> None:
        """Report from now on what is in the cache, if it keeps prompts for others."""
        self.memory.report_to(report)

    def submit(self, request: Request) -> None:
        """Take a request into the system, at its time of arrival."""
        request.queued_s = request.arrival_s
        self._same = None
        self.queues.join(request)
        most = self.most_waiting
        one_too_many = most is not None and len(self.queues.waiting) > most
        self.ledger.arrive(request, self.queues.length - one_too_many)
        if one_too_many:
            self._refuse(request.arrival_s)

    def _refuse(self, now: float) -> None:
        """Turn away the last of those that wait and have never run, at ``now``."""
        queues = self.queues
        fresh = (request for request in reversed(queues.waiting) if request.cursor is None)
        request = next(fresh)
        queues.waiting.remove(request)
        queues.waited_s += now - request.queued_s
        request.gone = True
        request.refused = True
        self.ledger.refuse(request, now)
        self.source.ended(request)

    def announce(self, request: Request) -> None:
        """Take a request into the system, at its time of arrival, that waits until another replica
        has room for it.
        """
        request.queued_s = request.arrival_s
        self.queues.held.append(request)
        self.ledger.arrive(request, self.queues.length)

    def let_in(self, request: Request) -> None:
        """Let a request wait for its prefill that was announced."""
        self.queues.held.remove(request)
        self.queues.join(request)
        self.wake()

    def wake(self) -> None:
        """Look now whether there is something to do; the next batch may be another one."""
        self._same = None
        self.ring()

    def hand_on(self, request: Request, now: float) -> None:
        """Let a request go whose prompt has been read; its blocks stay until
        :meth:`give_back`.
        """
        self._same = None
        self.queues.running.remove(request)
        request.state = None
        self.ledger.end_reading(request, now)
        self.ledger.hand_on(request, now)

    def give_back(self, request: Request, now: float) -> None:
        """Take back the blocks of a request that was handed on, or is not to come."""
        self.ledger.hold(now)
        self.memory.keep(request, 0)
        self.wake()

    def take_over(self, request: Request, now: float) -> None:
        """Take a request whose prompt another replica has read, with its blocks in this one."""
        request.queued_s = now
        self.queues.landed.append(request)
        self.ledger.take_over(request, now)
        self.ledger.wait(self.queues.length, now)
        self.wake()

    def _join(self, now: float) -> None:
        """Let requests that were handed over decode, first come, first served, as far as there are
        places.
        """
        queues = self.queues
        places = self.policy.max_requests or UNLIMITED
        while queues.landed and len(queues.running) < places:
            request = queues.landed.popleft()
            if request.cursor is None:
                raise BrokenRunError(f"request {request.index} was never admitted")
            queues.waited_s += now - request.queued_s
            queues.running.append(request)
            state: State = self.strategy.open(request.cursor, request.prompt_tokens, False)
            state.plain_below = request.prompt_tokens + self.plain_tokens
            request.state = state
            self.ledger.join(request, now, self.cost.outside_s)

    def cancel(self, request: Request, now: float) -> None:
        """Let a request leave at ``now`` without its output; what an iteration under way brings it
        is thrown away.
        """
        ledger = self.ledger
        queues = self.queues
        ledger.hold(now)
        self._same = None
        request.gone = True
        if request in queues.waiting:
            queues.waiting.remove(request)
            queues.waited_s += now - request.queued_s
            ledger.wait(queues.length, now)
        elif self.loading and request in queues.loading:
            self.loading.cancel(request)
            queues.waited_s += now - request.queued_s
            ledger.wait(queues.length, now)
        elif request.flying or any(batch.has(request) for batch in self.under_way):
            self._leaving = True
        else:
            queues.running.remove(request)
            queues.read(request)
            self.memory.keep(request, 0)
        ledger.cancel(request, now)
        self.source.ended(request)
        self.ring()

    def next(self, now: float) -> Batch | None:
        """Return the batch of the next iteration; None if there is nothing to do at this time."""
        same = self._same
        if same is not None and now < self.source.next_s:
            same.begin_s = now
            same.step = same.routed(self.strategy.compose(same.states), self.routing)
            self.under_way.append(same)
            return same
        for request in self.source.due(now):
            self.submit(request)
        queues = self.queues
        ledger = self.ledger
        ledger.hold(now)
        queues.now = now
        if self.grants:
            self.grants(now)
        if queues.landed:
            self._join(now)
        if self.loading:
            decode, prompts = self.loading.plan(now)
        else:
            decode, prompts = self.policy.plan(queues)
        ledger.wait_anew(queues.length, now)
        if not (decode or prompts or self.carried):
            return None
        batch = Batch(now, decode, prompts)
        if prompts:
            self.admit(prompts, now)
        if queues.in_flight > 1:
            self._mark(batch, True)
        if decode or self.carried:
            self._compose(batch)
        batch.waiting = queues.length
        batch.kv_tokens = self.memory.used * self.memory.block_tokens
        self.under_way.append(batch)
        return batch

    def load_from(self, memory: TieredCache, prefetches: bool = False) -> None:
        """Load blocks from the tiers below the cache; ``prefetches``: as requests are queued."""
        memory.prefill_s = self.prefill_s
        self.loading = Loading(memory, self.queues, self.policy)
        self.loading.prefetches = prefetches

    def prefill_s(self, request: Request, cached: int) -> float:
        """Return the seconds in which a request is read, alone and in one pass, with so many tokens
        in the cache.
        """
        needed = request.prompt_tokens + request.tokens
        rows = Rows.prefill(needed - cached, cached, True)
        admission = self.times.admission(rows, 1, needed)
        return max(admission.target, admission.draft)

    def admit(self, prompts: Prompts, now: float) -> None:
        """Give requests whose prompts are read for the first time their acceptance, and note how
        long they waited.
        """
        for request, _ in prompts:
            if request.cursor is None:
                request.cursor = self.acceptance.cursor(request.dealt, self.exit)
                self.ledger.admit(request, now)

    def _compose(self, batch: Batch) -> None:
        """Give a batch the step of its requests that decode, with its prompts in it or carried
        beside it.
        """
        prompts = batch.prompts
        batch.states = states = states_of(batch.decode)
        if prompts and not self.queues.carries:
            rows = self.prompt_rows(prompts)
        else:
            rows = NO_ROWS
        step = self.strategy.compose(states, rows)
        step, batch.prompts = self.carried.move(prompts, step, self.prompt_rows)
        batch.step = batch.routed(step, self.routing)
        if self.log:
            batch.rows = [0 if state.proposed is None else state.proposed + 1 for state in states]

    def _mark(self, batch: Batch, flying: bool) -> None:
        """Note of every request in a batch whether a step with it is under way."""
        for request in batch.decode:
            request.flying = flying
        for request, _ in batch.prompts:
            request.flying = flying

    def prompt_rows(self, prompts: Prompts) -> Rows:
        """Return the rows of so many tokens of each of these prompts, in one pass."""
        rows = NO_ROWS
        for request, tokens in prompts:
            read = Rows.prefill(tokens, request.cached, tokens == request.left)
            rows = rows + read if rows.tokens else read
        return rows

    def admission(self, prompts: Prompts) -> Admission:
        """Return the durations, in seconds, of an iteration of prompts alone."""
        ending = [request.cached + tokens for request, tokens in prompts if tokens == request.left]
        rows = self.prompt_rows(prompts)
        return self.times.admission(rows, len(ending), sum(ending))

    def _prefill(self, lanes: Lanes, batch: Batch, admission: Admission) -> Timeline:
        """Let the target read prompts that are alone in an iteration, and return the event of the
        end.
        """
        if isinstance(self.strategy, PrefillsOnStages) and self.queues.in_flight > 1:
            return self.strategy.prefill(
                lanes, self.cost, self.prompt_rows(batch.prompts), admission.target
            )
        return (lanes.target.start(admission.target, "prefill"),)

    # ---- what an iteration has brought

    def settle(self, batch: Batch, now: float) -> None:
        """End an iteration: hand out its tokens, note its time, let go who has finished."""
        ledger = self.ledger
        queues = self.queues
        step = batch.step
        ledger.hold(now)
        self.under_way.remove(batch)
        if step is None:
            ledger.prefill(now - batch.begin_s)
        else:
            ledger.step(step, len(batch.decode), now - batch.begin_s)
            if batch.decode:
                self._settle_step(batch, now)
            if batch.prompts:
                self._settle_prompts(batch, now)
        if self.log:
            self.log(batch.ended(now))
        if queues.in_flight > 1 or queues.carries:
            self._mark(batch, False)
        if queues.in_flight > 1:
            self.ring()
        self._same = batch if self._comes_again(batch) else None
        if self._leaving:
            self._release()

    def _comes_again(self, batch: Batch) -> bool:
        """Return whether the next iteration has the same batch: nobody comes, leaves or is read."""
        waits = self.queues.waiting or self.queues.loading
        changes = batch.prompts or self.carried or self._leaving or waits
        return self._repeats and not (changes or self.log)

    def _release(self) -> None:
        """Take back the memory of all requests that have left and are in no iteration under way."""
        queues = self.queues
        for request in queues.running:
            if request.gone and not request.flying:
                self.memory.keep(request, 0)
        queues.running = [
            request for request in queues.running if request.flying or not request.gone
        ]
        queues.reading = [request for request in queues.reading if not request.gone]
        self._leaving = any(request.gone for request in queues.running)

    def _settle_step(self, batch: Batch, now: float) -> None:
        """Hand every decoding request its tokens, and let go who has all."""
        progress_of = self.strategy.settle(batch.states)
        if self.log:
            batch.tokens = [progress.verified for progress in progress_of]
        for request in self.ledger.hand_out(batch.decode, batch.states, progress_of, now):
            self.finish(request, now)

    def _settle_prompts(self, batch: Batch, now: float) -> None:
        """Move the prompts of an iteration on."""
        batch.tokens += self.settle_prompts(batch.prompts, batch.step is None, now)

    def settle_prompts(self, prompts: Prompts, alone: bool, now: float) -> list[int]:
        """Move prompts on; those that are complete show a token, or what is kept of a first window,
        and decode from now on. Return the tokens that each shows.

        ``alone``: nothing was decoded beside them.
        """
        ledger = self.ledger
        shown = []
        for request, tokens in prompts:
            ends = tokens == request.left
            ledger.read(request, tokens)
            if ends:
                self._open(request, alone)
            shown.append(int(ends))
        if self._first_window:
            states = states_of([request for request, _ in prompts])
            self.strategy.compose(states)
            shown = [progress.shown for progress in self.strategy.settle(states)]
        for (request, _), tokens in zip(prompts, shown, strict=True):
            if tokens and self.passes_on and request.output_tokens > 1:
                self.passes_on(request, now)
            elif tokens and not request.gone:
                ledger.show_first(request, tokens, now, self.cost.outside_s)
                if request.tokens >= request.output_tokens:
                    self.finish(request, now)
        return shown

    def _open(self, request: Request, drafted: bool) -> None:
        """Let a request decode whose prompt is complete; the prompt's last token is the root of a
        first window.
        """
        if request.cursor is None:
            raise BrokenRunError(f"request {request.index} was never admitted")
        if request.tokens and not self._first_window:
            request.cursor.judge(BARE)
        self.queues.read(request)
        request.state = self.strategy.open(
            request.cursor, request.cached - self._first_window, drafted
        )

    def finish(self, request: Request, now: float) -> None:
        """Let a request that has its whole output leave."""
        request.gone = True
        self._leaving = True
        self.ledger.finish(request, now)
        self.source.ended(request)
        if self.finished:
            self.finished(request)

    def check(self) -> None:
        """Raise :class:`BrokenRunError` unless the run has ended with balanced books and an empty
        cache.
        """
        self.ledger.tally.check()
        if self.memory.used or self.queues.running or self.queues.length:
            raise BrokenRunError(
                f"{self.memory.used} KV blocks are still in use after the last request has left"
            )
