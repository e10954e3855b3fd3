"""Cost from hardware: how long a pass of a model over some tokens takes, and on what the time is spent.

:class:`HardwareCost` composes a pass from operation groups on devices and links (p-norm roofline, token tiles, host,
collectives); :mod:`simulator.cost.stated` repeats durations that a scenario states outright. All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simulator.cost.device import Link
from simulator.cost.kernels import (
    LayerTime,
    all_reduce_time,
    attention_timer,
    head_time,
    layer_products,
    side_product_time,
)
from simulator.cost.model import WEIGHT_BYTES, DraftHead
from simulator.cost.partition import message_bytes
from simulator.cost.placement import Placement
from simulator.cost.protocol import Depth, Purpose, Role
from simulator.cost.rows import Phase, Rows, together
from simulator.files.schema import BadInput, Fault
from simulator.numeric import ordered_sum

REMEMBERED = 1 << 16
"""Passes whose times are kept for the next time they are asked for; then forgotten, so that memory stays bounded."""
TOKEN_BYTES = 4
"""An id on its way to the stages of a pipeline (width assumed)."""


class PassParts(NamedTuple):
    """A pass but for its attention, in seconds."""

    layers: tuple[tuple[int, LayerTime], ...]
    """How many take so long."""
    head: float
    carried: float
    host: float


class PassTimes:
    """Passes of one model where it is placed; the parts that depend on few numbers are worked out once.

    Only attention depends on the cached tokens, which differ from step to step. Nothing here rounds: a
    remembered part is the part.
    """

    def __init__(self, place: Placement, role: str) -> None:
        self.place, self.role = place, role
        self.attention = attention_timer(place)
        self._parts: dict[tuple[int, int, int, bool, int, int], PassParts] = {}
        self._drafting: dict[tuple[DraftHead, int, int, int, bool], PassParts] = {}
        self._busy = tuple(f"{role} {use}" for use in ("compute", "collectives", "host"))

    def phase(self, rows: Rows, first: int, last: int) -> Phase:
        """Layers ``first`` to ``last`` of one pass; the LM head belongs to the last layer, no layers cost nothing."""
        if first >= last:
            return Phase(0.0, {})
        key = rows.tokens, rows.logit_rows, rows.adapted, rows.tokens > rows.sequences, first, last
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = self.parts(*key)
        return self._phase(rows, parts)

    def parts(self, tokens: int, logit_rows: int, adapted: int, many_rows: bool, first: int, last: int) -> PassParts:
        """What does not depend on the cached tokens."""
        place = self.place
        model, layers = place.model, last - first
        dense = max(0, min(last, model.num_hidden_layers - model.expert_layers) - first)
        stretches = ((dense, False), (layers - dense, True))
        products = tuple((count, layer_products(place, tokens, experts, adapted)) for count, experts in stretches if count)
        ends = last == model.num_hidden_layers
        carried = all_reduce_time(place, tokens) * place.collectives.count
        carried = carried * layers if place.collectives.per == "layer" else carried * ends
        host = place.engine.host_seconds(layers, many_rows)
        if first == 0:
            host += place.engine.host_us_per_pass.value * 1e-6
        return PassParts(products, head_time(place, logit_rows) if ends else 0.0, carried, host)

    def drafting(self, head: DraftHead, rows: Rows) -> Phase:
        """A pass of a draft head beside the target; the LM head runs where rows need logits."""
        key = head, rows.tokens, rows.logit_rows, rows.adapted, rows.tokens > rows.sequences
        parts = self._drafting.get(key)
        if parts is None:
            parts = self._drafting[key] = self.drafting_parts(*key)
        return self._phase(rows, parts)

    def drafting_parts(self, head: DraftHead, tokens: int, logit_rows: int, adapted: int, many_rows: bool) -> PassParts:
        """What does not depend on the cached tokens; matrices beside the layers count with the LM head."""
        place, model = self.place, self.place.model
        beside = head.squares * side_product_time(place, tokens, model.hidden_size)
        if head.rank:
            beside += 2 * side_product_time(place, tokens, head.rank)
        if logit_rows:
            own = model.model_copy(update={"vocab_size": head.width(model)})
            beside += head_time(place.model_copy(update={"model": own}), logit_rows)
        carried = all_reduce_time(place, tokens) * place.collectives.count * head.layers
        host = place.engine.host_seconds(head.layers, many_rows) + place.engine.host_us_per_pass.value * 1e-6
        return PassParts(((head.layers, layer_products(place, tokens, False, adapted)),), beside, carried, host)

    def _phase(self, rows: Rows, parts: PassParts) -> Phase:
        attention, device = self.attention(rows), parts.head
        for layers, one in parts.layers:
            device += layers * (one.qkv + attention + one.output + one.mlp + one.small)
        carried, host = parts.carried, parts.host
        compute, collectives, program = self._busy
        wall = self.place.engine.wall_seconds(host, device + carried)
        return Phase(wall, {compute: device, collectives: carried, program: host})


@dataclass(frozen=True)
class HardwareCost:
    """Costs composed from models, devices, links and engines; repeated questions are remembered."""

    target_place: Placement
    draft_place: Placement | None = None
    channel: Link | None = None
    contention: float = 1.0
    random: np.random.Generator | None = None
    """Draws the jitter of links; None: it is at its mean."""
    reads_context: ClassVar[bool] = True
    _known: dict[tuple[str, Rows, int, int], Phase] = field(default_factory=dict, repr=False)
    _heads: dict[tuple[DraftHead, Rows], Phase] = field(default_factory=dict, repr=False)
    _times: dict[str, PassTimes] = field(default_factory=dict, repr=False)

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """One pass of the target through the layers from ``start`` to ``stop``."""
        place = self.target_place
        if self.stages:
            return self._through(rows)
        return self._pass("target", place, rows, place.layer(start), place.layer(stop))

    @property
    def stages(self) -> int:
        """Stages of the target's pipeline; 0 without one."""
        return len(self.target_place.on_stages)

    def stage(self, index: int, rows: Rows) -> Phase:
        """The layers of one stage on its device; the last one with the LM head."""
        pipeline = self.target_place.pipeline
        if pipeline is None:
            raise BadInput([Fault(("scenario", 0, 0), "target.pipeline", "is required and missing")])
        return self._pass(f"stage {index + 1}", self.target_place.on_stages[index], rows, *pipeline.bounds[index])

    def carry(self, index: int, tokens: int) -> float:
        """Latency and hidden states over bandwidth (SP-9)."""
        pipeline = self.target_place.pipeline
        size = message_bytes(self.target_place.model, tokens)
        return pipeline.links[index].transfer_seconds(size, self.random) if pipeline else 0.0

    def token(self) -> float:
        """The slowest link carries an id; the others at the same time."""
        pipeline = self.target_place.pipeline
        return max(link.transfer_seconds(TOKEN_BYTES, self.random) for link in pipeline.links) if pipeline else 0.0

    @property
    def jitters(self) -> bool:
        """As the links between its stages say."""
        pipeline = self.target_place.pipeline
        return any(link.jitter is not None for link in pipeline.links) if pipeline else False

    def drawn(self, seed: int) -> HardwareCost:
        """With a generator of its own; what is remembered of passes is shared."""
        return replace(self, random=np.random.default_rng(seed)) if self.jitters else self

    def _through(self, rows: Rows) -> Phase:
        """One pass through all stages, one after the other."""
        walks = [self.stage(index, rows) for index in range(self.stages)]
        carried = ordered_sum(self.carry(index, rows.tokens) for index in range(self.stages - 1))
        return together(*walks, Phase(carried, {"target links": carried}))

    def draft(self, rows: Rows, purpose: Purpose = "window") -> Phase:
        """One pass of the draft over ``rows``, whatever the purpose."""
        if self.draft_place is None:
            raise BadInput([Fault(("scenario", 0, 0), "draft", "this strategy needs a draft")])
        return self._pass("draft", self.draft_place, rows, 0, self.draft_place.model.num_hidden_layers)

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """One pass of layers that draft beside the target, remembered like every other."""
        if "head" not in self._times:
            self._times["head"] = PassTimes(self.target_place, "draft head")
        if isinstance(rows.kv_tokens, np.ndarray):
            return self._times["head"].drafting(head, rows)
        key = head, rows
        phase = self._heads.get(key)
        if phase is None:
            if len(self._heads) >= REMEMBERED:
                self._heads.clear()
            phase = self._heads[key] = self._times["head"].drafting(head, rows)
        return phase

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """A pass over the prompts; nothing where a role has no model."""
        if role == "draft":
            return self.draft(rows) if self.draft_place else Phase(0.0, {})
        return self.target(rows)

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """At ``ee``: exit adapter H -> H/2 -> H, shared head, sampling, transfer; at ``fv`` the transfer."""
        carried = self.channel.transfer_seconds(payload_bytes) if self.channel else 0.0
        if at == "fv":
            return Phase(carried, {})
        place = self.target_place
        device, adapter = place.device, float(place.model.hidden_size**2)
        size = adapter * WEIGHT_BYTES[place.weights] / place.tensor_parallel
        flops = 2.0 * logit_rows * adapter / place.tensor_parallel
        exit_head = device.seconds(device.matmul_for(place.weights), size, flops, logit_rows) + head_time(place, logit_rows)
        return Phase(exit_head + carried, {"target compute": exit_head})

    def copy(self, tokens: int) -> float:
        """Every byte of it read and written once."""
        place = self.draft_place
        return 2.0 * place.kv_gb(tokens) / place.device.memory_bandwidth_gb_s.value if place else 0.0

    def _pass(self, role: str, place: Placement, rows: Rows, first: int, last: int) -> Phase:
        if role not in self._times:
            self._times[role] = PassTimes(place, role)
        if isinstance(rows.kv_tokens, np.ndarray):
            return self._times[role].phase(rows, first, last)
        key = (role, rows, first, last)
        phase = self._known.get(key)
        if phase is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            phase = self._known[key] = self._times[role].phase(rows, first, last)
        return phase
