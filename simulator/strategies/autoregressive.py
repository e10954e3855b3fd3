"""Autoregressive decoding: one pass of the target per token.

target |==pass==|==pass==|==pass==|

T_step = T_target,  one token per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from simulator.cost import Cost, Phase, Rows
from simulator.strategies.protocol import Kind, Lanes, OddsOf, Progress, State, Strategy, Timeline


class Durations(NamedTuple):
    """Seconds of one pass, one new token per request."""

    target: float


class Autoregressive(Strategy):
    """Target-only decoding; what every speedup is relative to."""

    name: Literal["autoregressive"] = "autoregressive"
    named: ClassVar[type[Durations]] = Durations
    equation: ClassVar[str] = "T_step = T_target"

    def compose(self, states: Sequence[State]) -> tuple[Kind, Rows]:
        """Every request takes part with one token."""
        rows = Rows()
        for state in states:
            state.proposed = 0
            rows += Rows.decode(1, state.context)
        return Kind("step", 0, bare=len(states)), rows

    def phases(self, cost: Cost, kind: Kind, rows: Rows) -> dict[str, Phase]:
        """One pass."""
        return {"target": cost.target(rows)}

    def timeline(self, lanes: Lanes, durations: Durations, kind: Kind) -> Timeline:
        """One pass."""
        yield lanes.target.start(durations.target, "decode")

    def step_seconds(self, durations: Durations, kind: Kind) -> Any:
        """T_target."""
        return durations.target

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """All steps are alike."""
        return {Kind("step", 0, bare=requests): 1.0}

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """One token each; nothing is judged, so a trace need not be asked."""
        for state in states:
            state.context += 1
        return [Progress(1, 1, 0, 0)] * len(states)
