"""The questions about time that a strategy asks; :class:`Cost` is answered from hardware or from stated durations."""

from __future__ import annotations

from typing import Literal, Protocol

from simulator.cost.model import DraftHead
from simulator.cost.rows import Phase, Rows

Role = Literal["target", "draft"]
Purpose = Literal["window", "redraft"]
Depth = int | float
"""A place in a model: an integer is a layer number, from the end if negative, a float in [0, 1] a share of the depth."""


class Cost(Protocol):
    """What a strategy asks about time."""

    @property
    def contention(self) -> float:
        """Slowdown of target and draft while both are busy; 1 with memories of their own."""

    @property
    def reads_context(self) -> bool:
        """Whether a pass takes longer over more cached tokens."""

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """One pass of the target through the layers from ``start`` to ``stop``."""

    def draft(self, rows: Rows, purpose: Purpose = "window") -> Phase:
        """One internal step of the draft."""

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """One pass of layers that draft beside the target, on its device."""

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """One pass over the prompts."""

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """Sampling and token-channel transfer at the early exit or after the final verification."""

    def copy(self, tokens: int) -> float:
        """Seconds to copy the draft's cache of so many tokens within its memory."""

    @property
    def stages(self) -> int:
        """Stages of the target's pipeline; 0 without one."""

    def stage(self, index: int, rows: Rows) -> Phase:
        """A pass through one stage, counted from 0."""

    def carry(self, index: int, tokens: int) -> float:
        """Seconds for the hidden states of ``tokens`` over the link behind a stage."""

    def token(self) -> float:
        """Seconds for a verified token from the last stage to all the others."""

    @property
    def jitters(self) -> bool:
        """Whether links of the pipeline have a jitter: what they take is a mean, unless it is drawn."""

    def drawn(self, seed: int) -> Cost:
        """The same with jitter drawn anew for every transfer; itself without any."""
