"""What vLLM's scheduler decides in each step, watched from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.live.vllm.record import number_of

COLUMNS = {
    "requests": "earlier request with which it begins alike for longest (-1: none), tokens of "
    "prompt and output in common with that one, tokens of the prompt, tokens of the output, "
    "priority; in order of arrival",
    "steps": "[requests that have come since the step before, scheduled, preempted, hits]; "
    "scheduled, in order: [request, tokens, draft tokens at hand before the step, tokens that the "
    "pass yielded] and, of one that enters with a single token to read and is padded to a window, "
    "draft tokens that stand for nothing; hits: [request, tokens found in the cache] of those that "
    "enter. A step in which there is nothing to do is []",
}
Step = list[Any]


class Watched:
    """The steps of a scheduler so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.arrived = 0
        """Requests that have come since the last step."""
        self.under_way: dict[int, list[list[int]]] = {}
        """What was scheduled in steps whose output is not there yet, by the plan's identity."""

    def idle(self) -> None:
        """Note that a step's time passes with nothing to do."""
        self.steps.append([])

    def scheduled(self, plan: Any, at_hand: dict[str, int], before: set[str], after: Any) -> None:
        """Note what was decided; ``at_hand``: draft tokens of each request and ``before``: who ran
        before, ``after``: the scheduler.
        """
        if not plan.num_scheduled_tokens:
            return
        running = {request.request_id for request in after.running}
        preempted = sorted(map(number_of, before - running), reverse=True)
        rows = []
        hits = []
        for name, tokens in plan.num_scheduled_tokens.items():
            number = number_of(name)
            rows.append([number, tokens, at_hand.get(name, 0), 0])
            drafts = len(plan.scheduled_spec_decode_tokens.get(name, ()))
            if drafts > rows[-1][2]:
                rows[-1].append(drafts)
            if name not in before:
                hits.append([number, after.requests[name].num_computed_tokens - tokens])
        self.steps.append([self.arrived, rows, preempted, hits])
        self.under_way[id(plan)] = rows
        self.arrived = 0

    def yielded(self, plan: Any, output: Any) -> None:
        """Note what a step has brought."""
        rows = self.under_way.pop(id(plan), [])
        for row, name in zip(rows, plan.num_scheduled_tokens, strict=True):
            if output.sampled_token_ids:
                row[3] = len(output.sampled_token_ids[output.req_id_to_index[name]])


@contextmanager
def watched() -> Iterator[Watched]:
    """Yield what schedulers decide meanwhile."""
    from vllm.v1.core.sched.scheduler import Scheduler

    seen = Watched()
    schedule, update = Scheduler.schedule, Scheduler.update_from_output

    def scheduling(self: Any, *more: Any, **named: Any) -> Any:
        at_hand = {name: len(one.spec_token_ids) for name, one in self.requests.items()}
        before = {request.request_id for request in self.running}
        plan = schedule(self, *more, **named)
        seen.scheduled(plan, at_hand, before, self)
        return plan

    def updating(self: Any, plan: Any, output: Any) -> Any:
        seen.yielded(plan, output)
        return update(self, plan, output)

    Scheduler.schedule, Scheduler.update_from_output = scheduling, updating
    try:
        yield seen
    finally:
        Scheduler.schedule, Scheduler.update_from_output = schedule, update
