"""Autoregressive decoding takes one pass of the target per token.

    target |==pass==|==pass==|==pass==|

    T_step = T_target,  one token per step.

Every speed-up is over this.
"""

from abc import ABC
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.base import D, Strategy
from simulator.core.strategies.common.capabilities import ProvenSteps
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.courses import Course, Sums, TellsCourses
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_kind,
)
from simulator.core.strategies.common.traits import Traits

ONE_TOKEN = Progress(1, 1, 0, 0)


@lru_cache(maxsize=1_024)
def _one_by_one(tokens: int) -> Course:
    """Return the course of so many steps, which many requests share."""
    numbers = np.arange(tokens, dtype=np.int64)[None, :]
    numbers.flags.writeable = False
    return Course(numbers, range(1, tokens + 1), {ONE_TOKEN: tokens})


class AutoregressiveDurations(NamedTuple):
    """The only duration is that of one pass, in seconds, with one new token per request."""

    target: float


class TargetOnly(Strategy[D], ProvenSteps, ABC):
    """Nothing is drafted: a pass of the target brings every request a token."""

    @property
    def independent_steps(self) -> bool:
        """Return True: a pass brings every request its token."""
        return True

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which every request takes part with one token."""
        requests = len(states)
        rows = Rows.decode(1, sum([state.context for state in states]), requests)
        return Step(intern_kind("step", 0, requests, prompts=prompts.sequences), rows, 0, prompts)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Return one token for each request; nothing is judged, so a trace need not be asked."""
        for state in states:
            state.context += 1
        return [ONE_TOKEN] * len(states)

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return True: every pass brings a token."""
        return True


class Autoregressive(TargetOnly[AutoregressiveDurations], TellsCourses):
    """Target-only decoding is what every speed-up is relative to."""

    name: Literal["autoregressive"] = "autoregressive"
    traits: ClassVar[Traits] = Traits(AutoregressiveDurations, "T_step = T_target")

    @classmethod
    def example(cls) -> Example:
        """Return passes of 36 ms."""
        return Example(cls(), StatedDurations(target_ms=36.0))

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the pass of the target."""
        return {"target": cost.target(step.rows + step.prompts)}

    def timeline(self, lanes: Lanes, durations: AutoregressiveDurations, kind: Kind) -> Timeline:
        """Book the pass."""
        return (lanes.target.start(durations.target, "decode"),)

    def step_seconds(self, durations: AutoregressiveDurations, kind: Kind) -> Numbers:
        """Return T_target in seconds."""
        return durations.target

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact: a step is a pass."""
        return EXACT

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """Return a share of 1 for the only kind of step."""
        return {Kind("step", 0, bare=requests): 1.0}

    def course_window(self, requests: int) -> int | None:
        """Return 0: nothing depends on the batch."""
        return 0

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return a pass over one token of each."""
        return Step(intern_kind("step", 0, requests), Rows.decode(1, sums[0], requests))

    def foreseeable(self, state: State) -> bool:
        """Return True: nothing is judged."""
        return True

    def alone(self, state: State, window: int) -> tuple[tuple[int, ...], Progress]:
        """Return a token of a request."""
        context = state.context
        state.context += 1
        return (context,), ONE_TOKEN

    def course(self, state: State, window: int, tokens: int) -> Course:
        """Return a token a step."""
        return _one_by_one(tokens)
