"""Shortest output first: who will leave soonest enters first, whole prompts in passes of their own.

A package of its own, as a user would write one: the folder goes on the path, and specsim finds it
by its entry point.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.core.serving.policies import IterationPlan, Policy, Queues
from simulator.core.serving.requests import MOST_TOGETHER


class ShortestFirst(Policy):
    """Shortest output first, by one who knows how long each will be.

    1. While fewer than ``max_requests`` run: of those that wait, the one with the fewest tokens
       left to show enters if the cache has room for its prompt. It may overtake others.
    2. If a request entered, this iteration is the whole prompts of those; no request decodes.
    3. Else each decoding request gets room, by preemption if there is none, and decodes.
    """

    name: Literal["shortest_first"] = "shortest_first"
    max_requests: int = Field(default=256, gt=0, le=MOST_TOGETHER)
    """At most so many run."""

    def plan(self, queues: Queues) -> IterationPlan:
        """Return the prompts of those that may enter, else all that can decode."""
        in_order = sorted(
            queues.waiting, key=lambda request: request.output_tokens - request.tokens
        )
        queues.waiting.clear()
        queues.waiting.extend(in_order)
        entering = []
        while queues.waiting and len(queues.running) < self.max_requests:
            first = queues.first()
            if not queues.memory.hold(first, first.cached + first.left):
                break
            entering.append(queues.admit(first.left))
        if entering:
            return IterationPlan([], entering)
        return IterationPlan(queues.with_room(queues.decoding()), [])
