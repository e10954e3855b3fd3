"""A scenario may state its costs outright: "my T_target, T_draft and E[A]: what do I get?"."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from simulator.core.cost.durations import ByLoad, Duration, PassDuration, Tabulated, duration_ms
from simulator.core.cost.hull import Drafting
from simulator.core.cost.model import DraftHead
from simulator.core.cost.protocol import Depth, Purpose, Role
from simulator.core.cost.rows import Phase, Rows
from simulator.core.faults import BadInput, Fault
from simulator.core.numeric import ordered_sum
from simulator.core.quantities import Frozen


class StatedDurations(Frozen):
    """These durations are stated in milliseconds.

    A pass may take longer over more rows, behind more context and in a fuller batch: ``{1: 30, 8:
    36}`` by rows, ``{base_ms: 28, row_ms: 0.4, cached_token_ms: 0.00002, sequence_ms: 0.1}``, or
    ``{file: target.csv}``. What the host adds to a pass is part of it, or ``host_ms``.

    The target is one time, two (``prefix_ms`` to the early exit, ``suffix_ms`` after it) or one for
    each layer, or one for each stage of a pipeline (``stages_ms``) with the links between them and
    the transfer of a verified token to all of them. The draft is the time of a whole window or of
    one internal step, and ``draft_head_ms`` that of an LM head that drafts on the target's device,
    where the draft's time does not include it.
    """

    target_ms: PassDuration | None = None
    """Time of a pass of the target, in ms; or by its load."""
    host_ms: PassDuration = 0.0
    """What the host adds to ``target_ms`` of every pass that decodes, in ms; or by its load."""
    stages_ms: tuple[PassDuration, ...] | None = Field(default=None, min_length=2)
    """Time of a pass through each stage of a pipeline, in ms; or by its load."""
    links_ms: tuple[Duration, ...] = ()
    """Transfer from each stage to the next, in ms; one fewer than there are stages."""
    token_ms: float = Field(default=0.0, ge=0)
    """Transfer of a verified token to all stages, in ms."""
    layers_ms: tuple[Duration, ...] | None = Field(default=None, min_length=1)
    """Time of each layer of the target, in ms."""
    prefix_ms: float | None = Field(default=None, ge=0)
    """Time of the layers up to the early exit, in ms."""
    suffix_ms: float | None = Field(default=None, ge=0)
    """Time of the layers behind the early exit, in ms."""
    draft_ms: float | None = Field(default=None, ge=0)
    """Time of a whole window of the draft, in ms, whatever ``gamma`` is."""
    draft_step_ms: PassDuration | None = None
    """Time of one internal step of the draft, in ms, or by its load; a longer window takes more of
    them.
    """
    draft_head_ms: float = Field(default=0.0, ge=0)
    """Time of an LM head that drafts on the target's device, in ms, where the draft's time does not
    include it.
    """
    redraft_ms: float | None = Field(default=None, ge=0)
    """Time of a window that is drafted again after a miss, in ms; by default that of any window."""
    rv_ee_ms: float = Field(default=0.0, ge=0)
    """Time of the rendezvous at the early exit, in ms."""
    rv_fv_ms: float = Field(default=0.0, ge=0)
    """Time of the rendezvous after the final verification, in ms."""
    prefill_ms: PassDuration = 0.0
    """Time of the target's pass over prompts, in ms; or by its load."""
    draft_prefill_ms: PassDuration = 0.0
    """Time of the draft's pass over prompts, in ms; or by its load."""

    @property
    def passes(self) -> tuple[PassDuration | None, ...]:
        """Return the stated passes that may depend on their load."""
        return (
            self.target_ms,
            self.host_ms,
            *(self.stages_ms or ()),
            self.draft_step_ms,
            self.prefill_ms,
            self.draft_prefill_ms,
        )

    @property
    def by_load(self) -> bool:
        """Return whether a stated pass is a formula or a table, so that a fuller batch takes
        longer.
        """
        return any(isinstance(stated, ByLoad | Tabulated) for stated in self.passes)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        split = {"prefix_ms": self.prefix_ms, "suffix_ms": self.suffix_ms}
        whole = self.target_ms, self.layers_ms, self.stages_ms
        forms = [*(form is not None for form in whole), None not in split.values()]
        if sum(forms) != 1 or (
            not forms[-1] and any(value is not None for value in split.values())
        ):
            raise ValueError(
                "expected one of target_ms, layers_ms, stages_ms, or prefix_ms and suffix_ms "
                "together"
            )
        stages = len(self.stages_ms or ())
        if self.links_ms and len(self.links_ms) != stages - 1:
            raise ValueError(
                f"links_ms: {stages} stages_ms have one link less between them, got "
                f"{len(self.links_ms)}"
            )
        if self.host_ms and self.target_ms is None:
            raise ValueError(
                "host_ms stands beside target_ms; else what the host adds is part of each "
                "stated time"
            )
        if self.draft_ms is not None and self.draft_step_ms is not None:
            raise ValueError(
                "expected draft_ms (a whole window) or draft_step_ms (one internal step), not both"
            )
        return self


@dataclass(frozen=True)
class StatedCost:
    """A stated cost repeats the durations that a scenario states."""

    durations: StatedDurations
    window_steps: int = 1
    """Internal steps of the draft in a whole window."""
    contention: float = 1.0
    """How many times as long target and draft take while both are busy."""
    method_host_ratio: ClassVar[float] = 1.0
    outside_s: ClassVar[float] = 0.0
    jitters: ClassVar[bool] = False

    @cached_property
    def reads_context(self) -> bool:
        """Return whether a stated pass takes longer over more cached tokens."""
        return any(
            isinstance(stated, ByLoad | Tabulated) and stated.reads_context
            for stated in self.durations.passes
        )

    def drafted_by(self, drafting: Drafting) -> Self:
        """Return this cost: what the host adds is stated, however drafts come about."""
        return self

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """Return the phase of the whole pass, or of the part before or after the early exit."""
        given = self.durations
        if given.layers_ms is not None:
            first, last = (
                depth if isinstance(depth, int) else round(depth * len(given.layers_ms))
                for depth in (start, stop)
            )
            return Phase(ordered_sum(given.layers_ms[first:last]) * 1e-3, {})
        if start == stop:
            return Phase(0.0, {})
        if given.stages_ms is not None:
            passes_ms = ordered_sum(duration_ms(stage_ms, rows) for stage_ms in given.stages_ms)
            return Phase((passes_ms + ordered_sum(given.links_ms)) * 1e-3, {})
        if given.target_ms is not None:
            pass_ms = duration_ms(given.target_ms, rows) + duration_ms(given.host_ms, rows)
            return Phase(pass_ms * 1e-3 * (float(stop) - float(start)), {})
        pass_ms = 0.0
        if start == 0.0 and given.prefix_ms is not None:
            pass_ms = pass_ms + given.prefix_ms
        if stop == 1.0 and given.suffix_ms is not None:
            pass_ms = pass_ms + given.suffix_ms
        return Phase(pass_ms * 1e-3, {})

    def draft(
        self, rows: Rows, purpose: Purpose = "window", start: Depth = 0.0, stop: Depth = 1.0
    ) -> Phase:
        """Return the phase of one internal step of the draft, all of it with its first layers.

        Raises :class:`BadInput` where no draft is stated.
        """
        given = self.durations
        if start != 0.0:
            return Phase(0.0, {})
        if purpose == "redraft" and given.redraft_ms is not None:
            return Phase(given.redraft_ms * 1e-3 / self.window_steps, {})
        if given.draft_step_ms is not None:
            return Phase(duration_ms(given.draft_step_ms, rows) * 1e-3, {})
        if given.draft_ms is None:
            raise BadInput(
                [
                    Fault(
                        ("scenario", 0, 0),
                        "durations",
                        "this strategy needs draft_ms or draft_step_ms",
                    )
                ]
            )
        return Phase(given.draft_ms * 1e-3 / self.window_steps, {})

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """Return the phase of an internal step of the draft if the head has layers, and of its LM
        head if rows need logits.
        """
        step_s = self.draft(rows).wall_s if head.layers or head.squares else 0.0
        if rows.logit_rows:
            step_s += self.durations.draft_head_ms * 1e-3
        return Phase(step_s, {})

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """Return the stated phase of the pass of ``role`` over a prompt; it takes no time where
        none is stated.
        """
        stated_ms = (
            self.durations.prefill_ms if role == "target" else self.durations.draft_prefill_ms
        )
        return Phase(duration_ms(stated_ms, rows) * 1e-3, {})

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """Return the stated phase of a rendezvous; it takes no time where none is stated."""
        return Phase(
            (self.durations.rv_ee_ms if at == "ee" else self.durations.rv_fv_ms) * 1e-3, {}
        )

    def copy(self, tokens: int) -> float:
        """Return 0 seconds: the copy is part of the stated draft."""
        return 0.0

    @property
    def stages(self) -> int:
        """Return the number of stages whose durations are stated."""
        return len(self.durations.stages_ms or ())

    def stage(self, index: int, rows: Rows) -> Phase:
        """Return the stated phase of the stage ``index``."""
        return Phase(duration_ms((self.durations.stages_ms or ())[index], rows) * 1e-3, {})

    def carry(self, index: int, tokens: int) -> float:
        """Return the stated seconds of the link behind stage ``index``; 0 where none are stated."""
        if self.durations.links_ms:
            return self.durations.links_ms[index] * 1e-3
        return 0.0

    def token(self) -> float:
        """Return the stated seconds of a verified token's transfer to all stages; 0 where none are
        stated.
        """
        return self.durations.token_ms * 1e-3

    def drawn(self, seed: int) -> Self:
        """Return this cost itself: stated durations do not jitter."""
        return self
