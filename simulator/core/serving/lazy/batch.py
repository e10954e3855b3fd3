"""The lazy batch: a step costs the same whatever the size of the batch.

Where what a request does depends on nobody beside it, its whole course is known as it begins to
decode: in which step it ends, and what it adds to each step until then. So only its end goes into a
heap, its course is added to sums over the steps to come, and a step reads one number of them::

    step          7     8     9    10    11    12
    request 3   612   615   616   620                  contexts, from its course; ends with step 10
    request 4         530   533   534   538   541      opened behind step 7
    sum         612  1145  1149  1154   538   541      price of a step: by requests and sum

Policies are asked where prompts wait or are under way, time passes as the strategy's timeline adds
it, and the books are written later (:mod:`simulator.core.serving.lazy.passed`), to the last bit
those of the steps one by one. Where memory, budget or a window that follows the batch decides about
single requests, the batch is left to steps, and taken up again behind them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice, pairwise
from math import inf
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Verdict
from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers
from simulator.core.serving.lazy.passed import (
    MOST,
    Alike,
    Passed,
    PricedSteps,
    Prices,
    ShownLast,
)
from simulator.core.serving.lazy.to_come import BLOCKS, Begun, StepsToCome
from simulator.core.serving.policies import Policy
from simulator.core.serving.requests import Prompts, Request
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.step_times import Block
from simulator.core.strategies.common.courses import Course, TellsCourses, tells_courses
from simulator.core.strategies.common.step import Lanes, Progress, Step

RUN = 24
"""Steps that a batch must have ahead for them to be priced at once where no block holds them."""
TOGETHER = 128
"""Steps that are added up at once, as quick as eight one by one, where an arrival may end them."""
MOST_BLOCKS = 128
"""Blocks of contexts whose prices a batch keeps, as many as a few requests come through; then they
are forgotten, so that memory stays bounded.
"""
MOST_WITH_PROMPTS = 8_192
"""Steps with prompts whose durations are kept; then they are forgotten, too."""
LONGEST_RUN = 4_096
"""Steps that are priced at once, at most."""
RESTS = 8
"""Steps for which nobody looks behind a batch that was left to steps; twice as many each time that
it was left at once.
"""
MOST_RESTS = 256


@dataclass(slots=True, eq=False)
class Member:
    """A request that decodes, with its course."""

    request: Request
    course: Course
    first: int
    """The number of its first step."""
    begun: Begun
    first_room: int
    """Tokens for which it has room in its first step."""
    room: NDArray[np.int64] | None
    """(steps,) the same in each step, where it does not grow as its context does."""
    counted: int = 0
    """Tokens of its course that are in the books."""

    def shown_by(self, step: int) -> int:
        """Return the tokens that it has shown before a step."""
        done = step - self.first
        return int(self.course.shown[done - 1]) if done else 0

    def room_in(self, steps: int) -> int:
        """Return the tokens for which it has room in the last of so many steps."""
        if self.room is not None:
            return int(self.room[steps - 1])
        return self.first_room + int(self.course.adds[0, steps - 1])


class PricedStep(NamedTuple):
    """A step that is priced by itself."""

    step: Step
    durations: Any
    """Its named durations, in seconds."""
    parts: tuple[float, ...]
    """Those that follow one another, in turn."""


class PromptPass(NamedTuple):
    """An iteration with prompts under way; times in seconds."""

    prompts: Prompts
    alone: bool
    """Whether nobody decodes beside them."""
    begin_s: float
    read_s: float
    """When the prompts are read."""
    ended_s: float
    """When first windows are written, too."""


class LazyBatch:
    """The requests of a scheduler that decode, and the steps that they take without being asked."""

    def __init__(self, scheduler: Scheduler, one_lane: bool, handed: bool = False) -> None:
        self.scheduler = scheduler
        self.one_lane = one_lane
        self.handed = handed
        """Whether a router hands requests in at times that nobody here knows before."""
        self.strategy = cast("TellsCourses", scheduler.strategy)
        self.members: dict[Request, Member] = {}
        """Those that decode, in running order."""
        self.ends: list[tuple[int, int, Member]] = []
        """A heap of (step after its last one, turn, member)."""
        self.turns = 0
        policy = scheduler.policy
        self.beside = policy.decodes_beside
        self.reserves = policy.reserves
        self.counts_drafts = policy.counts_drafts
        self.rows_fall = False
        """Whether requests have fewer rows in some steps than in others, and the policy counts
        them.
        """
        self.gives_back = policy.gives_back
        self.to_come = StepsToCome(
            scheduler.memory,
            policy.reserves,
            not policy.decodes_beside,
            scheduler.cost.reads_context,
        )
        self.written = 0
        """The first step that is not in the books."""
        self.passed = Passed()
        self.settled: dict[Progress | Verdict, int] = {}
        """How often steps did what for those that have ended, as their courses say it."""
        self.blocks: dict[tuple[int, int], Prices] = {}
        """Prices of blocks of contexts, by number of requests and first sum of contexts."""
        self.run: Prices | None = None
        """Prices by step, as long as nobody comes or ends."""
        self.with_prompts: dict[tuple[int, ...], PricedStep] = {}
        """Steps that read prompts where no context changes their price, by requests, prompts, rows
        of those, and how many are read whole.
        """
        self.window: int | None = None
        """That of the batch for which courses were told."""
        self.window_moved = False
        self.whole: set[int] = set()
        """Numbers of requests for which courses hold, and that decode in whole windows."""
        self.ahead = 0
        """Tokens for which a request gets room in a step."""
        self.blocked = False
        """Whether nobody can be admitted before somebody has ended."""
        self.next_s = -inf
        """When the next request comes, in seconds, as far as it is known."""
        self.shown_last: list[ShownLast] = []
        """When requests were last shown a token, those that follow one another together."""
        self.late_step = -1
        """The last step in front of which all requests that took part in the one before were
        late.
        """
        self.unlimited = policy.reserves or scheduler.memory.total == inf
        """Whether there is room for every step of who has been admitted."""
        self.resting = 0
        self.rests = RESTS
        self.taken_at = 0
        """The first step since requests were taken over."""
        self.lanes: Lanes | None = None
        scheduler.ledger.catch_up = self._write

    # ---- from steps and back to them

    def takes(self) -> bool:
        """Return whether the scheduler's requests can be taken over at this boundary."""
        if self.resting:
            self.resting -= 1
            return False
        queues = self.scheduler.queues
        decoding = [request for request in queues.running if request.state is not None]
        requests = max(1, len(decoding))
        self.window = self.strategy.course_window(requests)
        self.ahead = self.scheduler.policy.ahead(queues, requests)
        return self.window is not None and all(
            self.strategy.foreseeable(request.state) for request in decoding
        )

    def boundaries(self, now: float, lanes: Lanes | None) -> Generator[float, float | None]:
        """Yield when something is decided next, in seconds, from ``now`` on, and decide it when
        asked to go on.

        What is sent in return is when a request has come before that time: steps that begin later
        are taken back, and the boundary at which it is met is yielded. Infinity: nothing is left to
        do until one comes.

        ``lanes`` are booked; None: durations are those of the law, as in a replay.
        """
        self.lanes = lanes
        self._take_over()
        while True:
            self._note_kept()
            self._submit_due(now)
            prompts = self._prompts(now)
            if prompts is None:
                break
            if prompts:
                reading = self._read(prompts, now)
                now = reading.ended_s
                while (yield now) is not None:
                    pass  # an iteration that has begun is not taken back
                self._have_read(reading)
            elif self.members:
                until = self._until()
                if until == self.to_come.step:
                    break
                began = len(self.passed.ends)
                begin_s = now
                now = self._decode(now, until)
                while (came_s := (yield now)) is not None:
                    now = self._take_back(began, came_s)
                self._make_way(len(self.passed.ends) - began)
                self._stepped(began, begin_s)
            elif self.next_s < inf:
                now = self.next_s
                yield now
            else:
                came_s = (yield inf) if self.handed else None
                if came_s is None:
                    break
                now = came_s
            if len(self.passed.ends) >= MOST:
                self._write()
        self._rest()
        self._give_back(now)

    def _rest(self) -> None:
        """Note for how many steps nobody looks behind a batch that is left to steps now."""
        if self.to_come.step - self.taken_at > self.rests:
            self.rests = RESTS
        else:
            self.rests = min(2 * self.rests, MOST_RESTS)
        if self.members and not self.window_moved:
            self.resting = self.rests
        self.window_moved = False

    def _take_over(self) -> None:
        """Make members of all requests that decode."""
        self.blocked = False
        self.taken_at = self.to_come.step
        self.next_s = self.scheduler.source.next_s
        self.late_step = -1
        self.blocks.clear()
        self.whole.clear()
        self.run = None
        self.shown_last = []
        for request in self.scheduler.queues.running:
            if request.state is not None:
                self._open(request)
                self._shows(request.last_token_s)

    def _give_back(self, now: float) -> None:
        """Leave all requests as the steps so far have left them."""
        self._write()
        scheduler = self.scheduler
        memory = scheduler.memory
        for member in self.members.values():
            request = member.request
            state = request.state
            done = self.to_come.step - member.first
            for _ in range(done):
                _, progress = self.strategy.alone(state, self.window or 0)
                scheduler.ledger.settle(progress, 1)
            request.tokens += member.shown_by(self.to_come.step)
            request.late = request.late or self.late_step > member.first
            if done and not self.reserves and state is not None:
                memory.hold(request, state.context if self.gives_back else member.room_in(done))
                if self.gives_back:
                    memory.keep(request, state.context)
        last_shown = iter(self.shown_last)
        left = 0
        at_s = 0.0
        for member in self.members.values():
            if not left:
                at_s, left = next(last_shown)
            member.request.last_token_s = at_s
            left -= 1
        scheduler.ledger.tally.blocks_since = now
        self.members.clear()
        self.ends.clear()
        self.to_come.clear()

    def _open(self, request: Request) -> None:
        """Add the course of a request that begins to decode with the next step."""
        state: Any = request.state
        left = request.output_tokens - request.tokens
        course = self.strategy.course(state, self.window or 0, left)
        to_come = self.to_come
        steps = len(course.shown)
        if not to_come.has_room(steps):
            self._write()
            to_come.make_room(len(course.adds), steps)
        missing = self.strategy.rows_missing(course) if self.counts_drafts else None
        self.rows_fall = missing is not None
        room = self._room(request, course, missing)
        begun = to_come.begin(course, state.context, self.ahead, request.blocks, room)
        member = Member(request, course, to_come.step, begun, state.context + self.ahead, room)
        self.members[request] = member
        self.run = None
        self.turns += 1
        heappush(self.ends, (to_come.step + steps, self.turns, member))

    def _room(
        self, request: Request, course: Course, missing: NDArray[np.int64] | None
    ) -> NDArray[np.int64] | None:
        """Return (steps,) the tokens for which a request has room in each step of its course, of
        which some have ``missing`` rows; None where that is its context and what a step may add.
        """
        state = request.state
        if self.reserves or state is None:
            return None
        first = state.context + self.ahead
        slots = self.scheduler.memory.room_of(first)
        if missing is None and (self.gives_back or request.slots <= slots):
            return None
        room: NDArray[np.int64] = course.adds[0] + first
        if missing is not None:
            room = room - missing
        if self.gives_back:
            return room
        kept: NDArray[np.int64] = np.maximum.accumulate(np.maximum(room, request.slots))
        return kept

    def _shows(self, at_s: float) -> None:
        """Note that the request that was opened last was last shown a token at this time."""
        shown_last = self.shown_last
        if shown_last and shown_last[-1][0] == at_s:
            shown_last[-1] = (at_s, shown_last[-1][1] + 1)
        else:
            shown_last.append((at_s, 1))

    # ---- time passes

    def _submit_due(self, now: float) -> None:
        """Take all requests into the system that have come by ``now``."""
        if self.next_s > now:
            return
        source = self.scheduler.source
        for request in source.due(now):
            self.scheduler.submit(request)
        self.next_s = source.next_s

    def _take_back(self, began: int, came_s: float) -> float:
        """Take back the steps, of those from iteration ``began`` on, that begin when a request has
        come; return when the last one ends that is left.
        """
        ends = self.passed.ends
        kept = bisect_left(ends, came_s, began) + 1
        if kept < len(ends):
            self.to_come.step -= len(ends) - kept
            self.passed.keep(kept)
        return ends[-1]

    def _until(self) -> int:
        """Return the step up to which all members go on in whole windows, with room for each; the
        next one where it has to be stepped.
        """
        step = self.to_come.step
        requests = len(self.members)
        if requests not in self.whole and not self._holds(requests):
            return step
        until = self.ends[0][0]
        if self._rows_may_let_in():
            until = step + 1
        if self.unlimited:
            return until
        memory = self.scheduler.memory
        if memory.evicts and self.scheduler.queues.waiting:
            until = step + 1
        # what makes way does so as the steps are taken (:meth:`_stepped`)
        room = memory.total - memory.used - self.to_come.during
        grown = self.to_come.grown(step, until)
        if int(np.maximum.reduce(grown)) > room:
            return step + int((grown > room).argmax())
        return until

    def _make_way(self, steps: int) -> None:
        """Let make way what has to for the last steps, as they are taken: as much as for one by
        one, as nobody enters between them.
        """
        memory = self.scheduler.memory
        if self.unlimited or not memory.evicts:
            return
        to_come = self.to_come
        grown = to_come.grown(to_come.step - steps, to_come.step) + to_come.during
        highest = np.maximum.accumulate(grown)
        first = len(self.passed.ends) - steps
        while (free := memory.total - memory.used - memory.kept_blocks) < highest[-1]:
            place = int(np.searchsorted(highest, free, side="right"))
            memory.make_way(memory.used + int(highest[place]))
            if memory.total - memory.used - memory.kept_blocks == free:
                break
            self.passed.kept.append((first + place, memory.kept_blocks))

    def _note_kept(self) -> None:
        """Note how many blocks are kept that nobody has, from the next iteration on."""
        memory = self.scheduler.memory
        if memory.evicts:
            self.passed.kept.append((len(self.passed.ends), memory.kept_blocks))

    def _holds(self, requests: int) -> bool:
        """Return whether courses hold for so many requests, and all decode in whole windows."""
        scheduler = self.scheduler
        if self.strategy.course_window(requests) != self.window:
            self.window_moved = True
            return False
        if not scheduler.policy.takes_all(scheduler.queues, requests):
            return False
        self.whole.add(requests)
        return True

    def _prompts(self, now: float) -> Prompts | None:
        """Return the prompts of the next iteration, by the policy where some wait or are under way;
        None where it has to be asked about every request.
        """
        scheduler = self.scheduler
        queues = scheduler.queues
        if self.blocked or not (queues.waiting or queues.reading):
            return []
        memory = scheduler.memory
        requests = len(self.members)
        beside = self.beside
        if beside and requests and self._until() == self.to_come.step:
            return None
        grown = 0
        if requests and not self.unlimited:
            grown = self.to_come.blocks_next(before=not beside)
        queues.now = now
        memory.used += grown
        memory.make_way(memory.used)
        queues.next_rows = None
        if requests and self.rows_fall:
            queues.next_rows = self._next_step().rows.tokens
        prompts = scheduler.policy.prompts(queues, requests)
        memory.used -= grown
        ledger = scheduler.ledger
        ledger.wait_anew(len(queues.waiting), now)
        self.blocked = not (prompts or memory.evicts or self._rows_may_let_in())
        return prompts

    def _rows_may_let_in(self) -> bool:
        """Return whether a step of fewer rows than the next one may leave room for a prompt."""
        queues = self.scheduler.queues
        most = self.scheduler.policy.max_requests
        enters = queues.waiting and (most is None or len(queues.running) < most)
        return self.rows_fall and bool(queues.reading or enters)

    def _read(self, prompts: Prompts, now: float) -> PromptPass:
        """Let an iteration with prompts begin; return when it ends."""
        scheduler = self.scheduler
        scheduler.admit(prompts, now)
        passed = self.passed
        self._note_kept()
        if self.members and self.beside:
            ended_s = self._step_with(prompts, now)
            return PromptPass(prompts, False, now, ended_s, ended_s)
        admission = scheduler.admission(prompts)
        read_s = scheduler.read_by(admission, now, self.one_lane, self.lanes is None)
        ended_s = read_s + admission.window
        occurring = admission.draft > 0.0, admission.window > 0.0
        alike = passed.one_more(occurring, None, admission)
        held = self.to_come.blocks_next(before=True) if self.members else 0
        self._passes(now, alike, 0, held)
        passed.add(ended_s)
        return PromptPass(prompts, True, now, read_s, ended_s)

    def _have_read(self, reading: PromptPass) -> None:
        """End an iteration with prompts."""
        scheduler = self.scheduler
        prompts, alone, begin_s, read_s, ended_s = reading
        if alone:
            scheduler.ledger.prefill(ended_s - begin_s)
        else:
            self._stepped(len(self.passed.ends) - 1, begin_s)
        if scheduler.queues.preemptions and any(request.tokens for request, _ in prompts):
            self._write()  # a request that goes on after a preemption has a gap, in its turn
        scheduler.settle_prompts(prompts, alone, read_s)
        for request, _ in prompts:
            if request.gone:
                self._leave(request)
            elif request.state is not None:
                self._open(request)
                self._shows(request.last_token_s)

    def _step_with(self, prompts: Prompts, now: float) -> float:
        """Let one step pass that reads prompts; return when it ends."""
        scheduler = self.scheduler
        requests = len(self.members)
        if scheduler.cost.reads_context or len(self.to_come.rows) > BLOCKS:
            step = self._with_prompts(scheduler.prompt_rows(prompts))
            return self._pass_one(self._priced(step), now, requests)
        read = read_whole = 0
        for request, tokens in prompts:
            read += tokens
            read_whole += tokens == request.left
        key = requests, len(prompts), read, read_whole
        known = self.with_prompts.get(key)
        if known is None:
            if len(self.with_prompts) >= MOST_WITH_PROMPTS:
                self.with_prompts.clear()
            known = self._priced(self._with_prompts(scheduler.prompt_rows(prompts)))
            self.with_prompts[key] = known
        return self._pass_one(known, now, requests)

    def _with_prompts(self, rows: Rows) -> Step:
        """Return the next step with the rows of prompts in it."""
        kind, decoding, redraft, _, loads = self._next_step()
        return Step(kind._replace(prompts=rows.sequences), decoding, redraft, rows, loads)

    def _priced(self, step: Step) -> PricedStep:
        """Return a step with its durations."""
        durations = self.scheduler.times.of(step)
        return PricedStep(step, durations, tuple(map(float, self._in_turn(step, durations))))

    def _pass_one(self, priced: PricedStep, now: float, requests: int) -> float:
        """Let one step pass; return when it ends."""
        step, durations, parts = priced
        passed = self.passed
        alike = passed.one_more(step.kind, step, durations)
        self._passes(now, alike, requests, self.to_come.during)
        for seconds in parts:
            now += seconds
        passed.add(now)
        self.to_come.step += 1
        return now

    def _next_step(self) -> Step:
        """Return the next step, without prompts."""
        return self.strategy.step_of(len(self.members), self.to_come.sums_next())

    def _in_turn(self, step: Step, durations: Any) -> tuple[Numbers, ...]:
        """Return the parts of a step that follow one another, by its timeline or by its law."""
        if self.lanes is None:
            return (self.scheduler.strategy.step_seconds(durations, step.kind),)
        return self.strategy.in_turn(durations, step.kind, self.one_lane)

    def _passes(self, now: float, priced: Prices | Alike, decoding: int, grown: int = 0) -> None:
        """Begin a segment of iterations at ``now``."""
        passed = self.passed
        used = self.scheduler.memory.used + grown
        passed.segments.append((len(passed.ends), now, priced, decoding, used))

    def _decode(self, now: float, until: int) -> float:
        """Let steps without prompts pass up to one, or to an arrival; return when they end."""
        requests = len(self.members)
        passed = self.passed
        to_come = self.to_come
        next_s = self.next_s
        self._note_kept()
        used = self.scheduler.memory.used + to_come.during
        while to_come.step < until and now < next_s:
            prices = self._prices(requests, until)
            if prices is None:
                now = self._pass_one(self._priced(self._next_step()), now, requests)
                continue
            passed.segments.append((len(passed.ends), now, prices, requests, used))
            now = self._along(prices, now, until)
        return now

    def _along(self, prices: Prices, now: float, until: int) -> float:
        """Let steps pass as long as they have these prices, up to one or to an arrival; return when
        they end.
        """
        next_s = self.next_s
        passed = self.passed
        to_come = self.to_come
        while to_come.step < until and now < next_s:
            stop = until if next_s == inf else min(until, to_come.step + TOGETHER)
            entries = prices.entries_of(to_come, to_come.step, stop)
            if not len(entries):
                break
            ends = prices.ends(entries, now)
            if next_s < inf:
                steps = int(ends.searchsorted(next_s)) + 1
                ends, entries = ends[:steps], entries[:steps]
            passed.add_each(ends, entries)
            to_come.step += len(entries)
            now = passed.ends[-1]
        return now

    def _stepped(self, began: int, begin_s: float) -> None:
        """Note what the iterations from ``began`` on, which were steps, have brought; the first of
        them began at ``begin_s``.
        """
        now = self.passed.ends[-1]
        if len(self.shown_last) > 1 or self.shown_last[0][0] != begin_s:
            self.passed.shown_last.append((began, tuple(self.shown_last)))
        longest_s = self.scheduler.ledger.longest_gap_s
        if longest_s < inf:
            self._note_late(began, longest_s)
        while self.ends and self.ends[0][0] == self.to_come.step:
            self._end(heappop(self.ends)[2], now)
        self.shown_last = [(now, len(self.members))] if self.members else []

    def _note_late(self, began: int, longest_s: float) -> None:
        """Note who has waited too long between two tokens in the iterations from ``began`` on."""
        ends = self.passed.ends[began:]
        if any(ends[0] - at_s > longest_s for at_s, _ in self.shown_last):
            members = iter(self.members.values())
            for at_s, requests in self.shown_last:
                late = ends[0] - at_s > longest_s
                for member in islice(members, requests):
                    member.request.late = member.request.late or late
        for place, (before, after) in enumerate(pairwise(ends), start=1):
            if after - before > longest_s:
                self.late_step = self.to_come.step - len(ends) + place

    def _end(self, member: Member, now: float) -> None:
        """Let a request leave that has its whole output."""
        request = member.request
        course = member.course
        shown = int(course.shown[-1])
        if request.cut:
            shown = min(shown, request.output_tokens - request.tokens)
        request.late = request.late or self.late_step > member.first
        request.last_token_s = now
        self.scheduler.ledger.hand_out_course(request, shown, member.counted)
        settled = self.settled
        for did, times in course.settled.items():
            settled[did] = settled.get(did, 0) + times
        self.scheduler.finish(request, now)
        del self.members[request]
        self.to_come.end(member.begun)
        self.run = None
        self._leave(request)

    def _leave(self, request: Request) -> None:
        """Take back the memory of a request that has left."""
        scheduler = self.scheduler
        scheduler.memory.keep(request, 0)
        scheduler.queues.running.remove(request)
        self.next_s = scheduler.source.next_s
        self.blocked = False

    # ---- prices

    def _prices(self, requests: int, until: int) -> Prices | None:
        """Return prices that hold the next step: a block of contexts where there is one, all steps
        until ``until`` where those are many; None where it is priced by itself.
        """
        to_come = self.to_come
        step = to_come.step
        run = self.run
        if run is not None and run.first <= step < run.first + run.entries:
            return run  # not where steps were taken back to before it
        times = self.scheduler.times
        place = requests, times.first_of(to_come.context_of(step))
        known = self.blocks.get(place)
        if known is not None:
            return known
        next_step = self._next_step()
        block = None
        if len(to_come.rows) == BLOCKS:
            block = times.block(next_step)
        if block is not None:
            if len(self.blocks) >= MOST_BLOCKS:
                self.blocks.clear()
            priced = self.blocks[place] = self._of_block(next_step, block)
            return priced
        self.run = None
        if until - step >= RUN and not next_step.loads:
            self.run = self._run(requests, step, min(until, step + LONGEST_RUN))
        return self.run

    def _of_block(self, step: Step, block: Block) -> Prices:
        """Return the prices of a block of contexts."""
        priced = PricedSteps(slice(None), step, block.durations)
        parts = self._in_turn(step, block.durations)
        if not self.scheduler.cost.reads_context:
            return Prices((priced,), parts, 0, 1, always=True)
        return Prices((priced,), parts, block.first, block.stop - block.first)

    def _run(self, requests: int, step: int, until: int) -> Prices:
        """Return prices of all steps up to one."""
        sums = self.to_come.sums_until(until)
        priced = list[PricedSteps]()
        by_part: NDArray[np.float64] | None = None
        for places, of_kind in self.strategy.steps_along(requests, sums):
            durations = self.scheduler.times.along(of_kind)
            parts = self._in_turn(of_kind, durations)
            if by_part is None:
                by_part = np.zeros((len(parts), until - step))
            for row, seconds in zip(by_part, parts, strict=True):
                row[places] = seconds
            priced.append(PricedSteps(places, of_kind, durations))
        rows = () if by_part is None else tuple(by_part)
        return Prices(tuple(priced), rows, step, until - step, by_step=True)

    # ---- books

    def _write(self) -> None:
        """Bring the books up to date."""
        grown = self.to_come.grown(self.written, self.to_come.step)
        ledger = self.scheduler.ledger
        self.passed.write(ledger, grown, self.scheduler.strategy, self.lanes)
        self.written = self.to_come.step
        for did, times in self.settled.items():
            if isinstance(did, Verdict):
                ledger.settle(self.strategy.made_of(did, self.window or 0), times)
            else:
                ledger.settle(did, times)
        self.settled.clear()
        for member in self.members.values():
            shown = member.shown_by(self.to_come.step)
            ledger.tally.shown += shown - member.counted
            member.counted = shown


def lazy_batch(scheduler: Scheduler, one_lane: bool, handed: bool = False) -> LazyBatch | None:
    """Return the lazy batch of a scheduler; None where iterations overlap or are logged, something
    is drawn for each, or strategy or policy decides about single requests.

    ``handed``: a router hands requests in.
    """
    cost = scheduler.cost
    strategy = scheduler.strategy
    one_at_a_time = strategy.needs.in_flight == 1 and not cost.stages
    by_rule = not cost.jitters and cost.contention == 1.0
    unseen = scheduler.log is None and scheduler.routing is None
    told = tells_courses(strategy) and type(scheduler.policy).prompts is not Policy.prompts
    if one_at_a_time and by_rule and unseen and told:
        return LazyBatch(scheduler, one_lane, handed)
    return None
