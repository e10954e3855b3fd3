"""Vanilla speculative decoding: draft a window, verify it in one pass, one after the other.

    draft     |=1=|=2=|...|=gamma=|                       |
    rendezvous|                   |rv|                    |
    target    |                      |==verify gamma+1 ==|

    T_SD = T_draft(gamma) + T_target(gamma)            (Mirror-SD, sec. 2, Eq. 5; MSD-1)

On two devices the window crosses a channel (``rv``); the paper's law has no such term, so without a
channel it is zero. On one device both roles book the same lane; nothing overlaps anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from simulator.cost import Cost, Phase, Rows, together
from simulator.drafters import AutoregressiveDrafter, Drafter, branch_rows
from simulator.strategies.protocol import LONGEST_WINDOW, Kind, Lanes, State, Strategy, Timeline

TOKEN_BYTES = 6
"""Id and bf16 log-probability of one drafted token on the channel (MSD-12, id width assumed)."""


class Durations(NamedTuple):
    """Seconds: the whole window, its transfer, the verification."""

    draft: float
    rv: float
    target: float


class VanillaSD(Strategy):
    """Serial draft and verify with a window of ``gamma``."""

    name: Literal["vanilla_sd"] = "vanilla_sd"
    named: ClassVar[type[Durations]] = Durations
    equation: ClassVar[str] = "T_SD = T_draft + T_target (Mirror-SD Eq. 5)"

    gamma: int = Field(default=4, ge=1, le=LONGEST_WINDOW)
    drafter: Drafter = AutoregressiveDrafter()

    @property
    def window(self) -> int:
        """Gamma."""
        return self.gamma

    @property
    def window_steps(self) -> int:
        """Internal draft steps J of one window."""
        return self.drafter.steps(self.gamma)

    def compose(self, states: Sequence[State]) -> tuple[Kind, Rows]:
        """Every request proposes a full window."""
        rows = Rows()
        for state in states:
            state.proposed = self.gamma
            rows += Rows.decode(self.gamma + 1, state.context)
        return Kind("step", len(states)), rows

    def phases(self, cost: Cost, kind: Kind, rows: Rows) -> dict[str, Phase]:
        """J internal steps with one branch per request, then one pass over gamma + 1 tokens each."""
        chain = branch_rows(self.drafter, kind.verifying, kind.verifying, rows.kv_tokens)
        return {
            "draft": together(cost.draft(chain), times=self.window_steps),
            "rv": cost.rendezvous("fv", 0, kind.verifying * self.gamma * TOKEN_BYTES),
            "target": cost.target(rows),
        }

    def timeline(self, lanes: Lanes, durations: Durations, kind: Kind) -> Timeline:
        """Draft, hand over, verify."""
        yield lanes.draft.start(durations.draft, "draft window")
        if durations.rv:
            yield lanes.rendezvous.start(durations.rv, "window")
        yield lanes.target.start(durations.target, "verify")

    def step_seconds(self, durations: Durations, kind: Kind) -> Any:
        """T_draft + T_rv + T_target."""
        return durations.draft + durations.rv + durations.target
