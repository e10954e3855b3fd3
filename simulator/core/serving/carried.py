"""Prompts that are carried through the stages of a pipeline beside requests that decode, a stage a
step.
"""

from collections import deque
from collections.abc import Callable

from simulator.core.cost.rows import Rows
from simulator.core.serving.requests import Prompts
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import CarriesPrompts
from simulator.core.strategies.common.step import Step


class Carried:
    """Prompts on their way, by stage."""

    def __init__(self, strategy: Strategy, stages: int) -> None:
        self.strategy = strategy
        self.stages = stages
        self.line: deque[Prompts] = deque()

    def __bool__(self) -> bool:
        return bool(self.line)

    def move(
        self, entering: Prompts, step: Step, rows_of: Callable[[Prompts], Rows]
    ) -> tuple[Step, Prompts]:
        """Let prompts enter the first stage while all others move one on; return the step, and
        those that end with it.
        """
        if not isinstance(self.strategy, CarriesPrompts) or not (entering or self.line):
            return step, entering
        self.line.appendleft(entering)
        rows = [rows_of(prompts) for prompts in self.line]
        if len(self.line) == self.stages:
            ending = self.line.pop()
        else:
            ending = []
        if not any(self.line):
            self.line.clear()
        return self.strategy.carrying(step, rows), ending
