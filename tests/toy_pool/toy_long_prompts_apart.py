"""Long prompts in a pool of their own, so that short ones never wait behind them.

A package of its own, as a user would write one: the folder goes on the path, and specsim finds it
by its entry point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from simulator.core.serving.requests import Request
from simulator.core.serving.router import RoutedReplica, Router


class LongPromptsApart(Router):
    """Long prompts apart: one pool takes prompts of more than ``short_tokens``, the other one the
    rest; in its pool a request goes to the replica with the fewest outstanding.

    The first ``long_replicas`` are the pool of the long prompts.
    """

    name: Literal["long_prompts_apart"] = "long_prompts_apart"
    short_tokens: int = Field(gt=0, le=1_000_000_000)
    """Tokens of the longest prompt that is a short one."""
    long_replicas: int = Field(default=1, gt=0, le=10_000)
    """Replicas that take long prompts."""

    def pools(self, replicas: int) -> Mapping[str, int]:
        """Return how many of the replicas take long prompts, and how many short ones."""
        return {"long": self.long_replicas, "short": replicas - self.long_replicas}

    def role(self, request: Request) -> str:
        """Return which of the two a request is."""
        return "long" if request.prompt_tokens > self.short_tokens else "short"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica of the pool with the fewest outstanding requests."""
        return min(turn, key=lambda replica: replica.outstanding)
