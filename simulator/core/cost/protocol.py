"""A strategy asks a :class:`Cost` how long its passes take; it is answered from hardware or from
stated durations.
"""

from typing import Literal, Protocol, Self

from simulator.core.cost.hull import Drafting
from simulator.core.cost.model import DraftHead
from simulator.core.cost.rows import Phase, Rows

Role = Literal["target", "draft"]
Purpose = Literal["window", "redraft"]
Depth = int | float
"""A place in a model: an integer is a layer number, from the end if negative, a float in [0, 1] a
share of the depth.
"""


class Cost(Protocol):
    """A cost tells a strategy how long its passes, transfers and copies take."""

    def __hash__(self) -> int:
        """Return the same for equal costs, whose step times are kept once."""

    @property
    def contention(self) -> float:
        """Return how many times as long target and draft take while both are busy; 1 where they do
        not share a memory.
        """

    @property
    def method_host_ratio(self) -> float:
        """Return the host time of a method's own under this engine and on this host, relative to
        what its file states.
        """

    @property
    def outside_s(self) -> float:
        """Return the seconds of a request outside of the engine before its first token is seen."""

    @property
    def reads_context(self) -> bool:
        """Return whether a pass takes longer over more cached tokens."""

    def drafted_by(self, drafting: Drafting) -> Self:
        """Return the cost of steps whose drafts come about in this way, which decides what an
        engine's host adds to them.
        """

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """Return the phase of one pass of the target through the layers from ``start`` to
        ``stop``.
        """

    def draft(
        self, rows: Rows, purpose: Purpose = "window", start: Depth = 0.0, stop: Depth = 1.0
    ) -> Phase:
        """Return the phase of one internal step of the draft, or of its layers from ``start`` to
        ``stop``.
        """

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """Return the phase of one pass of a draft head on the target's device."""

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """Return the phase of one pass over prompts."""

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """Return the phase of sampling and transfer at the early exit (``ee``) or after the final
        verification (``fv``).
        """

    def copy(self, tokens: int) -> float:
        """Return the seconds to copy the draft's cache of ``tokens`` within its memory."""

    @property
    def stages(self) -> int:
        """Return the number of stages of the target's pipeline; 0 without a pipeline."""

    def stage(self, index: int, rows: Rows) -> Phase:
        """Return the phase of a pass through the stage ``index``, counted from 0."""

    def carry(self, index: int, tokens: int) -> float:
        """Return the seconds that the hidden states of ``tokens`` take over the link behind stage
        ``index``.
        """

    def token(self) -> float:
        """Return the seconds that a verified token takes from the last stage to all the others."""

    @property
    def jitters(self) -> bool:
        """Return whether links of the pipeline jitter: their times are then means, unless they are
        drawn.
        """

    def drawn(self, seed: int) -> Self:
        """Return this cost with the jitter of every transfer drawn from ``seed``; itself where
        nothing jitters.
        """
