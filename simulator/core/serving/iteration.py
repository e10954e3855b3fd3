"""Iterations: what is in the batch of one that is under way, and what the log says of one that has
ended.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.core.acceptance.cursors import position_of
from simulator.core.acceptance.routing import RecordedRouting, Window
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.step import State, Step


class Iteration(NamedTuple):
    """An iteration that has ended, as a line of the log; ``rows`` and ``tokens`` are in the order
    of ``requests``.
    """

    start_s: float
    duration_s: float
    kind: str
    """The strategy's name for the step, ``prefill``, or both joined by ``+``."""
    requests: tuple[int, ...]
    """Numbers of the requests that took part."""
    rows: tuple[int, ...]
    """Rows of the target's pass: tokens of a window and one more, or tokens of a prompt."""
    tokens: tuple[int, ...]
    """Verified tokens, those past the end of an output included."""
    waiting: int
    """Requests that wait meanwhile to be admitted, as far as they had arrived when it began."""
    kv_tokens: int
    """Tokens that the blocks in use have room for during it."""
    replica: int = 1
    """The number of the replica that it ran in, from 1."""


@dataclass(slots=True)
class Batch:
    """What an iteration under way works on: a step with or without prompts in it, or prompts
    alone.
    """

    begin_s: float
    decode: list[Request]
    """Requests that take part in a step of the strategy."""
    prompts: list[tuple[Request, int]]
    """Requests with the prompt tokens of each that are prefilled."""
    states: list[State] = field(default_factory=list)
    """What the strategy knows of each of them."""
    step: Step | None = None
    """The step; None for prompts alone."""
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    waiting: int = 0
    kv_tokens: int = 0

    def has(self, request: Request) -> bool:
        """Return whether a request takes part."""
        return request in self.decode or any(request is member for member, _ in self.prompts)

    def routed(self, step: Step, routing: RecordedRouting | None) -> Step:
        """Return the step with the experts that its windows read, where that is recorded; with
        prompts in it the law does.
        """
        if routing is None or step.prompts.tokens:
            return step
        windows = [
            Window(request.dealt, position_of(state.cursor), state.proposed)
            for request, state in zip(self.decode, self.states, strict=True)
            if state.proposed is not None
        ]
        if sum(window.drafted + 1 for window in windows) != step.rows.tokens:
            return step
        return step._replace(rows=step.rows._replace(experts_read=routing.read(windows)))

    def ended(self, now: float) -> Iteration:
        """Return what a log is handed of an iteration that ends ``now``."""
        members = (*self.decode, *(request for request, _ in self.prompts))
        parts = [] if self.step is None else [self.step.kind.name]
        if self.prompts:
            parts.append("prefill")
        rows = (*self.rows, *(tokens for _, tokens in self.prompts))
        ids = tuple(request.index for request in members)
        seconds = now - self.begin_s
        tokens = tuple(self.tokens)
        return Iteration(
            self.begin_s, seconds, "+".join(parts), ids, rows, tokens, self.waiting, self.kv_tokens
        )
