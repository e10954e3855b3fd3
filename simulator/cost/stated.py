"""Costs that a scenario states outright: "my T_target, T_draft and E[A]: what do I get?"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from simulator.cost.model import DraftHead
from simulator.cost.protocol import Depth, Purpose, Role
from simulator.cost.rows import Phase, Rows
from simulator.files.schema import BadInput, Fault, Frozen
from simulator.numeric import ordered_sum

Duration = Annotated[float, Field(ge=0)]
ByRows = Annotated[dict[Annotated[int, Field(gt=0)], Duration], Field(min_length=1)]
"""Times at some numbers of rows, as measured; linear in between and flat outside."""
PassDuration = Annotated[
    Annotated[Duration, Tag("for any rows")] | Annotated[ByRows, Tag("by rows")],
    Discriminator(lambda given: "by rows" if isinstance(given, Mapping) else "for any rows"),
]


class StatedDurations(Frozen):
    """Durations in milliseconds; of a pass of the target or of a stage one for any rows, or one by its rows.

    The target is one time, two (``prefix_ms`` to the early exit, ``suffix_ms`` after it) or one for each
    layer, or one for each stage of a pipeline (``stages_ms``) with the links between them and the way of a verified
    token to all of them. The draft is the time of a whole window or of one internal step, and ``draft_head_ms`` that of
    an LM head that drafts beside the target, if it is not in there.
    """

    target_ms: PassDuration | None = None
    """A pass of the target."""
    stages_ms: tuple[PassDuration, ...] | None = Field(default=None, min_length=2)
    """A pass through each stage of a pipeline."""
    links_ms: tuple[Duration, ...] = ()
    """From each stage to the next; one fewer than stages."""
    token_ms: float = Field(default=0.0, ge=0)
    """A verified token on its way to all stages."""
    layers_ms: tuple[Duration, ...] | None = Field(default=None, min_length=1)
    """Each layer of the target."""
    prefix_ms: float | None = Field(default=None, ge=0)
    """Layers up to the early exit."""
    suffix_ms: float | None = Field(default=None, ge=0)
    """Layers behind the early exit."""
    draft_ms: float | None = Field(default=None, ge=0)
    """A whole window of the draft, whatever ``gamma`` is."""
    draft_step_ms: float | None = Field(default=None, ge=0)
    """One internal step of the draft; a longer window takes more of them."""
    draft_head_ms: float = Field(default=0.0, ge=0)
    """An LM head that drafts beside the target, if it is not in there."""
    redraft_ms: float | None = Field(default=None, ge=0)
    """A window written anew after a miss; by default that of the draft."""
    rv_ee_ms: float = Field(default=0.0, ge=0)
    """Rendezvous at the early exit."""
    rv_fv_ms: float = Field(default=0.0, ge=0)
    """Rendezvous after the final verification."""
    prefill_ms: float = Field(default=0.0, ge=0)
    """The target's pass over a prompt."""
    draft_prefill_ms: float = Field(default=0.0, ge=0)
    """The draft's pass over a prompt."""

    @model_validator(mode="after")
    def _complete(self) -> StatedDurations:
        split = {"prefix_ms": self.prefix_ms, "suffix_ms": self.suffix_ms}
        whole = self.target_ms, self.layers_ms, self.stages_ms
        forms = [*(form is not None for form in whole), None not in split.values()]
        if sum(forms) != 1 or (not forms[-1] and any(value is not None for value in split.values())):
            raise ValueError("expected one of target_ms, layers_ms, stages_ms, or prefix_ms and suffix_ms together")
        stages = len(self.stages_ms or ())
        if self.links_ms and len(self.links_ms) != stages - 1:
            raise ValueError(f"links_ms: {stages} stages_ms have one link less between them, got {len(self.links_ms)}")
        if self.draft_ms is not None and self.draft_step_ms is not None:
            raise ValueError("expected draft_ms (a whole window) or draft_step_ms (one internal step), not both")
        return self


@dataclass(frozen=True)
class StatedCost:
    """Costs that a scenario states; ``window_steps`` internal steps make the draft's whole window."""

    given: StatedDurations
    window_steps: int = 1
    contention: float = 1.0
    reads_context: ClassVar[bool] = False

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """The whole pass, or the part before or after the early exit."""
        given = self.given
        if given.layers_ms is not None:
            first, last = (depth if isinstance(depth, int) else round(depth * len(given.layers_ms)) for depth in (start, stop))
            return Phase(ordered_sum(given.layers_ms[first:last]) * 1e-3, {})
        if start == stop:
            return Phase(0.0, {})
        if given.stages_ms is not None:
            return Phase((ordered_sum(_at(each, rows) for each in given.stages_ms) + ordered_sum(given.links_ms)) * 1e-3, {})
        if given.target_ms is not None:
            return Phase(_at(given.target_ms, rows) * 1e-3 * (float(stop) - float(start)), {})
        prefix, suffix = (0.0 if part is None else part for part in (given.prefix_ms, given.suffix_ms))
        return Phase((prefix * (start == 0.0) + suffix * (stop == 1.0)) * 1e-3, {})

    def draft(self, rows: Rows, purpose: Purpose = "window") -> Phase:
        """One internal step."""
        given = self.given
        if purpose == "redraft" and given.redraft_ms is not None:
            return Phase(given.redraft_ms * 1e-3 / self.window_steps, {})
        if given.draft_step_ms is not None:
            return Phase(given.draft_step_ms * 1e-3, {})
        if given.draft_ms is None:
            raise BadInput([Fault(("scenario", 0, 0), "durations", "this strategy needs draft_ms or draft_step_ms")])
        return Phase(given.draft_ms * 1e-3 / self.window_steps, {})

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """An internal step of the draft for layers and matrices, and what an LM head takes where rows need logits."""
        inner = self.draft(rows).wall_s if head.layers or head.squares else 0.0
        return Phase(inner + self.given.draft_head_ms * 1e-3 * bool(rows.logit_rows), {})

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """As stated; nothing unless it is."""
        return Phase((self.given.prefill_ms if role == "target" else self.given.draft_prefill_ms) * 1e-3, {})

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """As stated; nothing unless it is."""
        return Phase((self.given.rv_ee_ms if at == "ee" else self.given.rv_fv_ms) * 1e-3, {})

    def copy(self, tokens: int) -> float:
        """Nothing; it is part of the stated draft."""
        return 0.0

    @property
    def stages(self) -> int:
        """As many as were stated."""
        return len(self.given.stages_ms or ())

    def stage(self, index: int, rows: Rows) -> Phase:
        """As stated."""
        return Phase(_at((self.given.stages_ms or ())[index], rows) * 1e-3, {})

    def carry(self, index: int, tokens: int) -> float:
        """As stated; nothing unless it is."""
        return self.given.links_ms[index] * 1e-3 if self.given.links_ms else 0.0

    def token(self) -> float:
        """As stated; nothing unless it is."""
        return self.given.token_ms * 1e-3

    @property
    def jitters(self) -> bool:
        """Stated durations do not."""
        return False

    def drawn(self, seed: int) -> StatedCost:
        """Itself."""
        return self


def _at(duration_ms: float | Mapping[int, float], rows: Rows) -> float:
    if isinstance(duration_ms, Mapping):
        known = sorted(duration_ms)
        return float(np.interp(rows.tokens, known, [duration_ms[count] for count in known]))
    return duration_ms
