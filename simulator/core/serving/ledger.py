"""The books of one replica, written here alone: by steps one by one, on either clock, and by lazy
batches many steps at a time.

What they hold of every request is its tokens, when the last one was shown and whether it is late
(SLO); of the replica the gaps between tokens, the memory in use over time, how many requests wait
and are here, and what prefills and steps did. ``hand_out`` writes what one step brings,
``hand_out_course`` what all steps of a request bring; sums of times are those of the steps one by
one, to the last bit.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.core.numeric import added_up
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.occupancy import Occupancy
from simulator.core.serving.metrics import PENDING, Tally
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.step import Progress, State, Step


class Ledger:
    """Writes down what a replica does: its tally, the gaps between tokens, the tokens of its
    requests and the memory that they use.
    """

    def __init__(self, memory: Blocks, shrinks: bool = False) -> None:
        self.memory = memory
        self.shrinks = shrinks
        """Whether a request gives back after a step what its rejected tokens took."""
        self.occupancy = Occupancy(len(memory.levels)) if memory.evicts else None
        """How full the memory is over time, where something is kept in it."""
        self._tally = Tally()
        self._ended: list[Request] = []
        """Requests with their whole output that are not in the tally yet, in order of ending."""
        self.gaps = self._tally.tbt
        """The sketch that takes the seconds between tokens; another one while they do not count."""
        self.longest_gap_s = inf
        """Seconds between two tokens beyond which a request is late."""
        self.catch_up: Callable[[], object] = lambda: None
        """Writes what a lazy batch has not written yet; whoever reads in between calls it."""

    @property
    def tally(self) -> Tally:
        """Return counts and times so far."""
        if self._ended:
            self._count_ended()
        return self._tally

    @property
    def in_system(self) -> int:
        """Return how many requests are here, without counting those that have ended."""
        return self._tally.in_system

    # ---- requests come and go

    def arrive(self, request: Request, waiting: int) -> None:
        """Write that a request has entered the system, where now so many wait."""
        tally = self._tally
        request.entered_s = request.arrival_s
        self._pass_time(request.arrival_s)
        tally.arrived += 1
        tally.in_system += 1
        self.wait(waiting, request.arrival_s)

    def take_over(self, request: Request, now: float) -> None:
        """Write that a request has come from another replica, with what it has shown there."""
        tally = self._tally
        request.entered_s = now
        self._pass_time(now)
        tally.taken_over += 1
        tally.tokens_taken_over += request.tokens
        tally.in_system += 1

    def hand_on(self, request: Request, now: float) -> None:
        """Write that a request leaves for another replica, with what it has shown so far."""
        tally = self._tally
        self._pass_time(now)
        tally.handed_on += 1
        tally.tokens_handed_on += request.tokens
        tally.in_system -= 1
        tally.system_s += now - request.entered_s

    def end_reading(self, request: Request, now: float) -> None:
        """Write that the prompt of a request is read that decodes elsewhere."""
        self._tally.reading.add(now - request.admitted_s)

    def join(self, request: Request, now: float, outside_s: float) -> None:
        """Write that a request begins to decode that was handed over; its first token is shown now
        unless it was before.
        """
        self._tally.joining.add(now - request.entered_s)
        if not request.tokens:
            self.show_first(request, 1, now, outside_s)

    def wait(self, waiting: int, now: float) -> None:
        """Write how many requests wait from now on."""
        tally = self._tally
        tally.queue_s[tally.waiting] += now - tally.queue_since
        tally.waiting = waiting
        tally.queue_since = now

    def wait_anew(self, waiting: int, now: float) -> None:
        """Write how many requests wait from now on, where that has changed."""
        if waiting != self._tally.waiting:
            self.wait(waiting, now)

    def admit(self, request: Request, now: float) -> None:
        """Write that a request is admitted for the first time."""
        request.admitted_s = now
        self._tally.wait.add(now - max(request.arrival_s, request.granted_s))

    def cancel(self, request: Request, now: float) -> None:
        """Write that a request has left without its output."""
        tally = self.tally
        request.finished_s = now
        self._pass_time(now)
        tally.cancelled += 1
        tally.thrown_away += request.tokens
        tally.in_system -= 1
        tally.system_s += now - request.entered_s

    def refuse(self, request: Request, now: float) -> None:
        """Write that a request was turned away that had shown nothing."""
        tally = self._tally
        request.finished_s = now
        self._pass_time(now)
        tally.refused += 1
        tally.in_system -= 1
        tally.system_s += now - request.entered_s

    def finish(self, request: Request, now: float) -> None:
        """Write that a request has left with its whole output."""
        request.finished_s = now
        self._pass_time(now)
        self._tally.in_system -= 1
        self._ended.append(request)
        if len(self._ended) >= PENDING:
            self._count_ended()

    def _count_ended(self) -> None:
        """Count requests with their whole output, many at a time: 5 % of a plain request less than
        one by one.
        """
        tally = self._tally
        ended = self._ended
        self._ended = []
        finished_s = np.array([request.finished_s for request in ended])
        first_token_s = np.array([request.first_token_s for request in ended])
        tokens = np.array([request.tokens for request in ended])
        whole_s = finished_s - np.array([request.arrival_s for request in ended])
        stayed_s = finished_s - np.array([request.entered_s for request in ended])
        several = tokens > 1
        per_token_s = (finished_s - first_token_s)[several] / (tokens[several] - 1)
        tally.finished += len(ended)
        tally.tokens += int(tokens.sum())
        tally.preemptions += sum([request.preemptions for request in ended])
        tally.system_s = added_up(tally.system_s, stayed_s)
        tally.e2e.add_each(whole_s.tolist())
        tally.tpot.add_each(per_token_s.tolist())

    def _pass_time(self, now: float) -> None:
        """Add the number in the system over the time since the last change of it."""
        tally = self._tally
        if tally.in_system:
            seconds = now - tally.system_since
            tally.area_s += tally.in_system * seconds
            tally.occupied_s += seconds
        tally.system_since = now

    # ---- memory in use

    def hold(self, now: float) -> None:
        """Add the blocks in use over the time since they were last noted."""
        tally = self._tally
        tally.block_area_s += self.memory.used * (now - tally.blocks_since)
        tally.blocks_since = now
        if self.occupancy:
            self.occupancy.note(now, self.memory.levels)

    def hold_each(
        self, used: NDArray[np.int64], seconds: NDArray[np.float64], end_s: float
    ) -> None:
        """Add the blocks in use during each of some iterations in a row, (iterations,), the last of
        which ends at ``end_s``.
        """
        tally = self._tally
        tally.block_area_s = added_up(tally.block_area_s, used * seconds)
        tally.blocks_since = end_s
        self.memory.most_used = max(self.memory.most_used, int(used.max()))

    # ---- steps and rows

    def prefill(self, seconds: float) -> None:
        """Count an iteration of prompts alone."""
        self._tally.prefills += 1
        self._tally.prefill_seconds += seconds

    def step(self, step: Step, requests: int, seconds: float) -> None:
        """Count a step in which so many requests decode."""
        tally = self._tally
        spent = tally.spent[step.kind]
        spent.steps += 1
        spent.seconds += seconds
        tally.request_steps += requests
        tally.verified_rows += step.rows.tokens

    def steps(self, step: Step, seconds: NDArray[np.float64]) -> None:
        """Count steps of one kind, with the ``seconds`` (steps,) that each takes, in their
        order.
        """
        tally = self._tally
        spent = tally.spent[step.kind]
        spent.steps += len(seconds)
        spent.seconds = added_up(spent.seconds, seconds)
        tally.verified_rows += step.rows.tokens * len(seconds)

    def read(self, request: Request, tokens: int) -> None:
        """Write that so many tokens of a prompt have gone through a prefill."""
        tally = self._tally
        tally.prompt_rows += tokens
        if request.preemptions:
            tally.recomputed_rows += tokens
        request.cached += tokens

    # ---- tokens and the gaps between them

    def hand_out(
        self,
        requests: Sequence[Request],
        states: Sequence[State],
        progress_of: Sequence[Progress],
        now: float,
    ) -> Iterator[Request]:
        """Hand each request of a step its tokens, and yield in between who has its whole output;
        equal gaps between tokens are noted together.

        Who leaves may let a request come that begins or ends what counts, so that the gaps of the
        others go elsewhere.
        """
        tally = self._tally
        # all alike: quicker than to hash each
        if progress_of.count(progress_of[0]) == len(progress_of):
            tally.settled[progress_of[0]] += len(progress_of)
        else:
            tally.settled.update(progress_of)
        memory = self.memory
        block = memory.block_tokens
        shrinks = self.shrinks
        shown_now = 0
        equal_gaps = 0
        gap = 0.0
        late = False
        for request, state, progress in zip(requests, states, progress_of, strict=True):
            if request.gone:
                continue
            shown = progress.shown
            tokens = request.tokens + shown
            if shown > 0:
                if now - request.last_token_s == gap:
                    equal_gaps += 1
                else:
                    if equal_gaps:
                        self.gaps.add(gap, equal_gaps)
                    gap = now - request.last_token_s
                    equal_gaps = 1
                    late = gap > self.longest_gap_s
                request.last_token_s = now
                if late:
                    request.late = True
                if tokens >= request.output_tokens:
                    end = request.output_tokens if request.cut else tokens
                    shown_now += end - request.tokens
                    request.tokens = end
                    yield request
                    continue
            request.tokens = tokens
            shown_now += shown
            if shrinks and request.slots - state.context >= block:
                memory.keep(request, state.context)
        if equal_gaps:
            self.gaps.add(gap, equal_gaps)
        tally.shown += shown_now

    def hand_out_course(self, request: Request, tokens: int, counted: int) -> None:
        """Hand a request all ``tokens`` that it was shown by the steps of its course, so many of
        which are ``counted`` already.
        """
        self._tally.shown += tokens - counted
        request.tokens += tokens

    def settle(self, progress: Progress, times: int) -> None:
        """Note how often steps of courses did this for a request."""
        self._tally.settled[progress] += times

    def show_first(self, request: Request, tokens: int, now: float, outside_s: float) -> None:
        """Show ``tokens`` of the pass that ends a prefill: the first of the output, ``outside_s``
        later where the user is, or the next ones after a preemption.
        """
        if request.cut:
            tokens = min(tokens, request.output_tokens - request.tokens)
        if request.tokens:
            gap = now - request.last_token_s
            self.gaps.add(gap)
            request.late = request.late or gap > self.longest_gap_s
        else:
            request.first_token_s = now
            request.outside_s = outside_s
            self._tally.ttft.add(now - request.arrival_s + outside_s)
        self._tally.first_tokens += tokens
        request.tokens += tokens
        request.last_token_s = now
