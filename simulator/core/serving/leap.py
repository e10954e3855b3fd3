"""Leaps: the steps of a batch in which nothing is decided are taken at once.

From a step on until a request arrives, ends or finds no room, a batch does the same over and over,
but for its contexts and what is kept of its windows::

    arrival                                                     arrival, or somebody's last step
    ...---|==prefill==|--step--|--step--|--step--|--step--|--step--|==step==|---...
                      |<----------- one leap, one event ---------->|

A leap works such a *run* out as arrays over its steps: what requests commit, how long steps take,
when lanes are busy. The books and the spans are those of the steps one by one, to the last bit:
times are added in the order in which they would pass.
"""

from math import inf
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from simulator.core.numeric import Numbers
from simulator.core.serving.iteration import Batch
from simulator.core.serving.memory import Blocks
from simulator.core.serving.metrics import BrokenRunError
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.common.runs import Counts, Places, TakesRuns, takes_runs
from simulator.core.strategies.common.step import Lanes, Step
from simulator.core.world import Lane, RunLane

Seconds = NDArray[np.float64]
LEAST = 7
"""Steps that a run must have for sure: to work one out takes as long as some six to ten steps."""
ALONE = 8
"""Steps that it must have besides where a request is alone, whose steps are quick; of a batch, a
share of them.
"""
MOST = 4_096
"""Steps of one leap, at most, so that its arrays stay small."""
TimedSteps = tuple[Places, Step, NamedTuple]
"""The steps of one kind with their durations, each a number or an array over the steps, in
seconds.
"""


class Leap:
    """One run of steps of a batch: foreseen, timed, booked, and settled when its time has
    passed.
    """

    def __init__(self, scheduler: Scheduler, batch: Batch, first: Step, most: int) -> None:
        self.scheduler = scheduler
        self.batch = batch
        self.requests = batch.decode
        self.states = batch.states
        self.first = first
        self.strategy = cast("TakesRuns", scheduler.strategy)
        left = [request.output_tokens - request.tokens for request in self.requests]
        self.foreseen = self.strategy.foresee(self.states, left, most)
        committed = self.foreseen.committed
        self.behind = np.array([state.context for state in self.states])[
            :, None
        ] + committed.cumsum(axis=1)
        """(requests, steps) cached tokens of each request after each step."""
        self.steps = committed.shape[1]
        self.used: Counts | None = None
        """(steps,) KV blocks in use during each step where they change."""
        if not scheduler.policy.reserves:
            self._find_room()

    def _find_room(self) -> None:
        """Note the blocks that each step needs, and end the run before one that would find no
        room.
        """
        memory = self.scheduler.memory
        ahead = self.scheduler.queues.ahead
        before = self.behind - self.foreseen.committed
        self.used = (-(-(before + ahead) // memory.block_tokens)).sum(axis=0)
        if memory.total < inf and self.used.max(initial=0) > memory.total:
            self._cut(int(np.argmax(self.used > memory.total)))

    def _cut(self, steps: int) -> None:
        """End the run after so many steps."""
        if steps < self.steps:
            self.steps = steps
            self.foreseen = self.foreseen.cut(steps)
            self.behind = self.behind[:, :steps]
            self.used = None if self.used is None else self.used[:steps]

    def time(self, one_lane: bool = False, by_law: bool = False) -> float:
        """Work out when each step begins and ends, up to the first that ends after an arrival;
        return the end in seconds.
        """
        scheduler = self.scheduler
        parts = list[tuple[Numbers, ...]]()
        self.kinds: list[TimedSteps] = []
        contexts = self.behind - self.foreseen.committed
        for places, step in self.strategy.steps_of_run(
            self.first, self.states, self.foreseen, contexts
        ):
            durations = scheduler.times.along(step)
            law = scheduler.strategy.step_seconds
            parts.append(
                (law(durations, step.kind),)
                if by_law
                else self.strategy.in_turn(durations, step.kind, one_lane)
            )
            self.kinds.append((places, step, durations))
        width = len(parts[0])
        passing = np.zeros(self.steps * width + 1)
        passing[0] = self.batch.begin_s
        by_step = passing[1:].reshape(self.steps, width)
        for (places, _, _), columns in zip(self.kinds, parts, strict=True):
            for column, seconds in enumerate(columns):
                by_step[places, column] = seconds
        times = np.add.accumulate(passing)[::width]
        if times[-2] >= scheduler.source.next_s:
            self._cut(int(times.searchsorted(scheduler.source.next_s)))
            self.kinds = [
                kind
                for kind in map(self._within, self.kinds)
                if isinstance(kind[0], slice) or len(kind[0])
            ]
        self.starts = times[: self.steps]
        self.ends = times[1 : self.steps + 1]
        return float(self.ends[-1])

    def _within(self, kind: TimedSteps) -> TimedSteps:
        """Return the steps of a kind that are still in the run."""
        places, step, durations = kind
        if isinstance(places, slice):
            kept = slice(self.steps)
        else:
            kept = places < self.steps
        left = kept if isinstance(places, slice) else places[kept]
        return (
            left,
            step,
            type(durations)._make(
                value[kept] if isinstance(value, np.ndarray) else value for value in durations
            ),
        )

    def book(self, lanes: Lanes) -> float:
        """Book all steps on the lanes, as the strategy's timeline books one; return when the last
        one ends, in seconds.
        """
        end_s = self.time(lanes.target is lanes.draft)
        booked: dict[Lane, list[tuple[Places, RunLane]]] = {}
        for places, step, durations in self.kinds:
            roles = (lanes.target, lanes.draft, lanes.rendezvous)
            copies = {lane: RunLane(self.starts[places]) for lane in roles}
            on_copies = Lanes._make((*(copies[lane] for lane in roles), *lanes[len(roles) :]))
            *_, ends = self.scheduler.strategy.timeline(on_copies, durations, step.kind)
            if not (cast("Seconds", ends) == self.ends[places]).all():
                raise BrokenRunError(
                    f"{step.kind.name}: the timeline of a step does not last what its durations "
                    "say in turn"
                )
            for lane, copy in copies.items():
                if copy.booked:
                    booked.setdefault(lane, []).append((places, copy))
        for lane, runs in booked.items():
            lane.book_runs(self.steps, runs)
        return end_s

    def settle(self) -> None:
        """Write into the books what the steps did, in their order, and leave the requests where the
        last one does.
        """
        scheduler = self.scheduler
        ledger = scheduler.ledger
        requests = self.requests
        scheduler.under_way.remove(self.batch)
        seconds = self.ends - self.starts
        for places, step, _ in self.kinds:
            ledger.steps(step, len(requests), seconds[places].tolist())
        counted = self.strategy.settle_run(self.states, self.foreseen)
        gaps = seconds.tolist()
        ends = (float(self.ends[0]), float(self.ends[-1]))
        contexts = self.behind[:, -1].tolist()
        used = None if self.used is None else self.used.tolist()
        ledger.hand_out_run(requests, self.states, counted, contexts, gaps, ends)
        ledger.hold_run(requests, contexts, used, gaps, ends[-1])


class Leaps:
    """Finds the runs of steps of a scheduler that are long enough to leap over.

    A refusal says for how many steps the run stays too short, and until then nobody looks.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.resting = 0
        cost = scheduler.cost
        strategy = scheduler.strategy
        alone = (
            strategy.needs.in_flight == 1
            and not cost.stages
            and scheduler.log is None
            and scheduler.routing is None
        )
        countable = scheduler.policy.reserves or (
            type(scheduler.memory) is Blocks and scheduler.memory.held is None
        )
        self.possible = (
            takes_runs(strategy)
            and alone
            and countable
            and not cost.jitters
            and cost.contention == 1.0
        )
        """Whether there is one iteration at a time, for which nothing is drawn and whose log nobody
        reads.
        """

    def from_(self, batch: Batch) -> Leap | None:
        """Return the run of steps that begins with this iteration; None where it is short, or
        somebody may come in between.
        """
        if self.resting:
            self.resting -= 1
            return None
        scheduler = self.scheduler
        requests = batch.decode
        step = batch.step
        if (
            step is None
            or batch.prompts
            or scheduler.queues.waiting
            or len(scheduler.queues.running) != len(requests)
        ):
            return None
        window = scheduler.strategy.window_for(len(requests))
        sure = min([request.output_tokens - request.tokens for request in requests]) // (1 + window)
        least = LEAST + ALONE // len(requests)
        if sure >= least:
            step_s = float(scheduler.strategy.step_seconds(scheduler.times.of(step), step.kind))
            until_s = scheduler.source.next_s - batch.begin_s
            if until_s >= MOST * step_s:
                most = MOST
            else:
                most = int(until_s / step_s) + 2
            if most - 2 >= least:
                leap = Leap(scheduler, batch, step, most) if self._repeats(batch) else None
                if leap and leap.steps:
                    return leap
                return None
            sure = most - 2
        self.resting = max(0, sure - 1)  # this step is one of them
        return None

    def _repeats(self, batch: Batch) -> bool:
        """Return whether the policy and the strategy go on as in this iteration, for which there is
        just room.
        """
        scheduler = self.scheduler
        policy = self.scheduler.policy
        memory = self.scheduler.memory
        steady = cast("TakesRuns", scheduler.strategy).steady(batch.states) and policy.repeats(
            scheduler.queues
        )
        return steady and all(
            policy.reserves
            or request.slots == memory.room_of(state.context + scheduler.queues.ahead)
            for request, state in zip(batch.decode, batch.states, strict=True)
        )
