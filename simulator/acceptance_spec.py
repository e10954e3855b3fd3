"""What a scenario says about acceptance, and the source of verdicts that it means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from simulator.acceptance import Acceptance, Cycle, Rates, Replay
from simulator.schema import Confidence, Frozen
from simulator.traces import Trace

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class CycleSpec(Frozen):
    """Verdicts over and over: accepted tokens, and whether the next token was off the exit."""

    accepted: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    off_exit: tuple[bool, ...] = Field(default=(False,), min_length=1)


class Rescale(Frozen):
    """A mean that a recording is moved to, correction or bonus included; its bursts stay (:mod:`simulator.rescale`).

    ``window`` is the one at which the mean is meant, by default that of the strategy. ``stretch`` makes a chain's
    bursts longer, as text has them that repeats itself.
    """

    tokens_per_step: float = Field(gt=1)
    window: int | None = Field(default=None, ge=1)
    stretch: float = Field(default=0.0, ge=0.0, le=1.0)
    source: str = "not stated"
    confidence: Confidence = "assumed"


class AcceptanceSpec(Frozen):
    """Exactly one of: a recorded trace, a rate, rates by position, a constant, a cycle.

    ``rescale`` moves a trace to another mean, such as one published for larger models.

    ``stand_in: true`` says that the trace was recorded from other models than the scenario's and is
    borrowed for its shape; without it the vocabularies must be equal. ``drafter`` chooses among those
    that the trace knows: the first draft, another one, a draft head, prompt look-up. ``source`` and
    ``confidence`` say where stated numbers come from.
    """

    trace: str | None = None
    stand_in: bool = False
    rescale: Rescale | None = None
    flavours: tuple[str, ...] = ()
    drafter: str = "draft"
    rate: Share | None = None
    per_position: tuple[Share, ...] | None = Field(default=None, min_length=1)
    overlap: Share = 1.0
    always: int | None = Field(default=None, ge=0)
    cycle: CycleSpec | None = None
    source: str | None = None
    confidence: Confidence | None = None

    @model_validator(mode="after")
    def _one_source(self) -> AcceptanceSpec:
        given = [name for name in ("trace", "rate", "per_position", "always", "cycle") if getattr(self, name) is not None]
        if len(given) != 1:
            held = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of trace, rate, per_position, always, cycle; found {held}")
        if self.rescale and self.trace is None:
            raise ValueError("rescale is for a trace; other sources state their mean themselves")
        highest = max(self.per_position or (self.rate or 0.0,))
        if highest > self.overlap < 1.0:
            raise ValueError(
                f"overlap {self.overlap:g} must be at least the acceptance rate {highest:g}: what is kept is on the exit"
            )
        return self

    def verdicts(self, trace: Trace | None, seed: int) -> Acceptance:
        """The source of verdicts on chains; ``trace`` is the one that is named, read."""
        if trace is not None:
            return Replay(trace, self.flavours, seed)
        if self.cycle:
            return Cycle(self.cycle.accepted, self.cycle.off_exit)
        if self.always is not None:
            return Cycle((self.always,))
        rates = self.per_position or (self.rate or 0.0,)
        return Rates(tuple(rates), self.overlap, seed)
