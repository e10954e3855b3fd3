"""The books of one replica, written here alone: by steps one by one, on either clock, and by leaps.

What they hold of every request is its tokens, when the last one was shown and whether it is late
(SLO); of the replica the gaps between tokens, the memory in use over time, how many requests wait
and are here, and what prefills and steps did. ``hand_out`` writes what one step brings,
``hand_out_run`` what a run of steps brings, to the last bit as if they came one by one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from math import inf
from operator import add, mul

from simulator.core.serving.memory import Blocks
from simulator.core.serving.metrics import Tally
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
        self.tally = Tally()
        self.gaps = self.tally.tbt
        """The sketch that takes the seconds between tokens; another one while they do not count."""
        self.longest_gap_s = inf
        """Seconds between two tokens beyond which a request is late."""

    # ---- requests come and go

    def arrive(self, request: Request, waiting: int) -> None:
        """Write that a request has entered the system, where now so many wait."""
        tally = self.tally
        self._pass_time(request.arrival_s)
        tally.arrived += 1
        tally.in_system += 1
        self.wait(waiting, request.arrival_s)

    def wait(self, waiting: int, now: float) -> None:
        """Write how many requests wait from now on."""
        tally = self.tally
        tally.queue_s[tally.waiting] += now - tally.queue_since
        tally.waiting = waiting
        tally.queue_since = now

    def admit(self, request: Request, now: float) -> None:
        """Write that a request is admitted for the first time."""
        request.admitted_s = now
        self.tally.wait.add(now - request.arrival_s)

    def cancel(self, request: Request, now: float) -> None:
        """Write that a request has left without its output."""
        self.tally.cancelled += 1
        self.tally.thrown_away += request.tokens
        self._leave(request, now)

    def finish(self, request: Request, now: float) -> None:
        """Write that a request has left with its whole output."""
        tally = self.tally
        request.finished_s = now
        tally.finished += 1
        tally.tokens += request.tokens
        tally.preemptions += request.preemptions
        tally.e2e.add(now - request.arrival_s)
        if request.tokens > 1:
            tally.tpot.add((now - request.first_token_s) / (request.tokens - 1))
        self._leave(request, now)

    def _leave(self, request: Request, now: float) -> None:
        tally = self.tally
        self._pass_time(now)
        tally.in_system -= 1
        tally.system_s += now - request.arrival_s

    def _pass_time(self, now: float) -> None:
        """Add the number in the system over the time since the last change of it."""
        tally = self.tally
        tally.area_s += tally.in_system * (now - tally.system_since)
        tally.system_since = now

    # ---- memory in use

    def hold(self, now: float) -> None:
        """Add the blocks in use over the time since they were last noted."""
        tally = self.tally
        tally.block_area_s += self.memory.used * (now - tally.blocks_since)
        tally.blocks_since = now

    def hold_run(
        self,
        requests: Sequence[Request],
        contexts: Sequence[int],
        used: Sequence[int] | None,
        seconds: Sequence[float],
        end_s: float,
    ) -> None:
        """Add the blocks in use during each step of a run that ends at ``end_s``, and leave each
        request those of its context; None: they do not change.
        """
        tally = self.tally
        memory = self.memory
        during = [memory.used] * len(seconds) if used is None else used
        tally.block_area_s = reduce(add, map(mul, during, seconds), tally.block_area_s)
        tally.blocks_since = end_s
        memory.most_used = max(memory.most_used, *during)
        if used is not None:
            for request, context in zip(requests, contexts, strict=True):
                memory.hold(request, context)
                memory.keep(request, context)

    # ---- steps and rows

    def prefill(self, seconds: float) -> None:
        """Count an iteration of prompts alone."""
        self.tally.prefills += 1
        self.tally.prefill_seconds += seconds

    def step(self, step: Step, requests: int, seconds: float) -> None:
        """Count a step in which so many requests decode."""
        tally = self.tally
        spent = tally.spent[step.kind]
        spent.steps += 1
        spent.seconds += seconds
        tally.request_steps += requests
        tally.verified_rows += step.rows.tokens

    def steps(self, step: Step, requests: int, seconds: Sequence[float]) -> None:
        """Count steps that are alike but for the seconds that each takes, in their order."""
        tally = self.tally
        spent = tally.spent[step.kind]
        spent.steps += len(seconds)
        spent.seconds = reduce(add, seconds, spent.seconds)
        tally.request_steps += requests * len(seconds)
        tally.verified_rows += step.rows.tokens * len(seconds)

    def read(self, request: Request, tokens: int) -> None:
        """Write that so many tokens of a prompt have gone through a prefill."""
        tally = self.tally
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
        tally = self.tally
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

    def hand_out_run(
        self,
        requests: Sequence[Request],
        states: Sequence[State],
        counted: Iterable[tuple[Progress, int]],
        contexts: Sequence[int],
        seconds: Sequence[float],
        ends: tuple[float, float],
    ) -> None:
        """Hand each request the tokens of a run of steps, after which it has so many in the cache.

        ``seconds`` are those of each step, ``ends`` the ends of the first and of the last one.
        """
        tally = self.tally
        for progress, times in counted:
            tally.settled[progress] += times
        first_end_s, end_s = ends
        self._first_gaps(requests, first_end_s)
        self.gaps.add_each(seconds[1:], len(requests))
        late = max(seconds[1:], default=0.0) > self.longest_gap_s
        for request, state, context in zip(requests, states, contexts, strict=True):
            request.tokens += context - state.context
            tally.shown += context - state.context
            state.context = context
            request.last_token_s = end_s
            request.late = request.late or late

    def _first_gaps(self, requests: Sequence[Request], now: float) -> None:
        """Note the gaps before the tokens of a run's first step, which may differ; equal ones
        together.
        """
        for gap, alike in groupby(requests, lambda request: now - request.last_token_s):
            these = list(alike)
            self.gaps.add(gap, len(these))
            if gap > self.longest_gap_s:
                for request in these:
                    request.late = True

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
            self.tally.ttft.add(now - request.arrival_s + outside_s)
        self.tally.first_tokens += tokens
        request.tokens += tokens
        request.last_token_s = now
