"""Chunked speculative decoding: the first half of a window travels while the draft writes the
second.

    draft     |==half 1==|==half 2==|                        |
    rendezvous|          |rv|       |rv|                     |
    target    |                        |==verify gamma + 1 ==|

    T_chunk = T_half + max{T_half, T_rv} + T_rv + T_target

A package of its own, as a user would write one: the folder goes on the path, and specsim finds it
by its entry point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.chain import ChainStrategy, cut_to_grants
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Lanes, State, Step, Timeline
from simulator.core.strategies.common.traits import Traits

TOKEN_BYTES = 6
"""Id and log-probability of a drafted token on the channel."""


class Durations(NamedTuple):
    """Seconds: half a window, its transfer, the verification."""

    half: float
    rv: float
    target: float


class ChunkedSD(ChainStrategy[Durations]):
    """Serial draft and verify, with the window sent in two halves."""

    name: Literal["chunked_sd"] = "chunked_sd"
    traits: ClassVar[Traits] = Traits(
        durations=Durations,
        equation="T_half + max{T_half, T_rv} + T_rv + T_target (toy)",
        drafted_in=("half",),
    )

    @classmethod
    def example(cls) -> Example:
        """Return windows of four tokens whose halves take longer to write than to send."""
        return Example(
            cls(gamma=4), StatedDurations(target_ms=30.0, draft_step_ms=5.0, rv_fv_ms=2.0)
        )

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact."""
        return EXACT

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which every request has its window verified."""
        gamma = self.window_for(len(states))
        for state in states:
            state.proposed = gamma
        kind = self.kind_of(len(states), gamma)._replace(prompts=prompts.sequences)
        return Step(kind, cut_to_grants(states), 0, prompts)

    def kind_of(self, requests: int, gamma: int) -> Kind:
        """Return the kind of a step with windows of so many tokens, which may be none."""
        if gamma:
            return Kind("step", requests, window=self._noted(gamma))
        return Kind("step", 0, requests, window=self._noted(gamma))

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """Return the only kind of step: that with the window of this batch."""
        return {self.kind_of(requests, self.window_for(requests)): 1.0}

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return both halves alike; the second half pays for the odd internal step too."""
        requests, gamma = step.kind.verifying, self._window_of(step.kind)
        if not requests:
            return {
                "target": cost.target(step.rows + step.prompts),
                "half": Phase(0.0, {}),
                "rv": Phase(0.0, {}),
            }
        inner = self.drafter.step(cost, requests, requests, step.rows.kv_tokens)
        half = -(-self.drafter.steps(gamma) // 2)
        return {
            "half": together(inner, times=half),
            "rv": cost.rendezvous("fv", 0, requests * -(-gamma // 2) * TOKEN_BYTES),
            "target": cost.target(step.rows + step.prompts),
        }

    def timeline(self, lanes: Lanes, durations: Durations, kind: Kind) -> Timeline:
        """Half, half beside a transfer, transfer, verify."""
        t = durations
        if kind.verifying:
            lanes.draft.occupy(t.half, "half 1")
            lanes.rendezvous.occupy(t.rv, "half 1 sent", lanes.draft)
            lanes.draft.occupy(t.half, "half 2")
            lanes.rendezvous.occupy(t.rv, "half 2 sent", lanes.draft)
        return (lanes.target.start(t.target, "verify", lanes.rendezvous),)

    def step_seconds(self, durations: Durations, kind: Kind) -> Numbers:
        """Return T_half + max{T_half, T_rv} + T_rv + T_target, in seconds."""
        t = durations
        return t.half + np.maximum(t.half, t.rv) + t.rv + t.target
