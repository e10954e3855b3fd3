"""Cost: how long a pass of a model over some tokens takes, and on what the time is spent.

:class:`HardwareCost` composes a pass from operation groups on devices and links (p-norm roofline, token tiles, host,
collectives); :mod:`simulator.cost.stated` repeats durations that a scenario states outright. All times are in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field, model_validator

from simulator.cost.device import Device, Link
from simulator.cost.engine import Engine
from simulator.cost.model import WEIGHT_BYTES, DraftHead, ModelSpec, WeightFormat
from simulator.cost.partition import ACTIVATION_BYTES, Pipeline, message_bytes
from simulator.files.schema import BadInput, Fault, Frozen
from simulator.numeric import ordered_sum

REMEMBERED = 1 << 16
"""Passes whose times are kept for the next time they are asked for; then forgotten, so that memory stays bounded."""
Role = Literal["target", "draft"]
TOKEN_BYTES = 4
"""An id on its way to the stages of a pipeline (width assumed)."""
Purpose = Literal["window", "redraft"]
Depth = int | float
"""A place in a model: an integer is a layer number, from the end if negative, a float in [0, 1] a share of the depth."""


class Rows(NamedTuple):
    """What a pass works on; additive, so that ragged batches, trees and mixed passes are sums.

    ``tokens``: rows of every matrix product; ``logit_rows``: rows that reach the LM head;
    ``sequences``: attention calls; ``kv_tokens``: cached tokens that attention reads; ``attention_pairs``:
    query-key pairs; ``adapted``: those of ``tokens`` that pass a low-rank adapter instead of the MLP, whose products are
    left out (of rank 8 they are 1/512 of the MLP at h = 4096, SS-7). What depends on the context, ``kv_tokens`` and
    ``attention_pairs``, may be arrays: the rows of many steps that differ in nothing else, priced at once.
    """

    tokens: int = 0
    logit_rows: int = 0
    sequences: int = 0
    kv_tokens: Any = 0
    attention_pairs: Any = 0
    adapted: int = 0

    def __add__(self, other: Rows) -> Rows:  # type: ignore[override]  # a sum of rows, not one long tuple
        return Rows(
            self.tokens + other.tokens,
            self.logit_rows + other.logit_rows,
            self.sequences + other.sequences,
            self.kv_tokens + other.kv_tokens,
            self.attention_pairs + other.attention_pairs,
            self.adapted + other.adapted,
        )

    @staticmethod
    def decode(tokens: int, context: Any, sequences: int = 1) -> Rows:
        """``tokens`` new tokens for each of ``sequences``, all with logits, behind ``context`` cached ones in total."""
        rows = tokens * sequences
        pairs = tokens * context + sequences * (tokens * (tokens + 1) // 2)
        return tuple.__new__(Rows, (rows, rows, sequences, context + rows, pairs, 0))  # for every step, at a third of the time

    @staticmethod
    def prefill(tokens: int, context: int = 0, ends: bool = True) -> Rows:
        """A prompt of one sequence, or a chunk of it behind ``context`` cached tokens; only its end needs logits."""
        return Rows(tokens, int(ends), 1, context + tokens, tokens * context + tokens * (tokens + 1) // 2)


NO_ROWS = Rows()


class Phase(NamedTuple):
    """One stretch between two synchronisations: its wall time and who was busy for how long in it."""

    wall_s: Any
    busy: Mapping[str, Any]


def together(*phases: Phase, times: int = 1) -> Phase:
    """Phases one after another, the whole ``times`` over."""
    busy: dict[str, float] = {}
    for phase in phases:
        for lane, seconds in phase.busy.items():
            busy[lane] = busy.get(lane, 0.0) + seconds * times
    return Phase(ordered_sum(phase.wall_s for phase in phases) * times, busy)


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


class Collectives(Frozen):
    """All-reduces of a tensor-parallel model: two per layer (Megatron) or two per pass (SPD draft)."""

    count: int = Field(default=2, ge=0)
    """All-reduces."""
    per: Literal["layer", "pass"] = "layer"
    """In each layer, or in a whole pass."""
    form: Literal["ring", "tree"] = "ring"
    """Which formula of the link."""


class Placement(Frozen):
    """A model on its devices: what runs where, with which software.

    With a ``pipeline`` its stages share the layers out; ``device`` is that of stages that name none, and each stage
    is ``tensor_parallel`` devices.
    """

    model: ModelSpec
    """Which model."""
    device: Device
    """On which devices, all of one kind."""
    engine: Engine
    """With which software."""
    machine: str = ""
    """A name: roles on the same one sit together, and on the same device share it."""
    weights: WeightFormat = "fp16"
    """How weights are stored."""
    tensor_parallel: int = Field(default=1, gt=0)
    """Devices that share every layer."""
    link: Link | None = None
    """Joins those devices; needed above one."""
    collectives: Collectives = Collectives()
    """What they exchange in a pass."""
    pipeline: Pipeline | None = None
    """Stages that share the layers out, for strategies that run on stages."""

    @model_validator(mode="after")
    def _shared_out(self) -> Placement:
        if self.pipeline is not None:
            held = sum(stage.layers for stage in self.pipeline.stages)
            if held != self.model.num_hidden_layers:
                raise ValueError(f"the stages hold {held} layers, {self.model.name} has {self.model.num_hidden_layers}")
        return self

    @model_validator(mode="after")
    def _linked(self) -> Placement:
        if self.tensor_parallel > 1 and self.collectives.count:
            if self.link is None:
                raise ValueError("tensor_parallel above 1 needs a link between the devices")
            if getattr(self.link.all_reduce, self.collectives.form) is None:
                known = [form for form in ("ring", "tree") if getattr(self.link.all_reduce, form) is not None]
                hint = f"it has {', '.join(known)}" if known else "it has none"
                raise ValueError(f"link '{self.link.name}' has no all_reduce in form '{self.collectives.form}'; {hint}")
        if self.model.num_attention_heads % self.tensor_parallel:
            heads = self.model.num_attention_heads
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} does not divide the {heads} attention heads of {self.model.name}"
            )
        return self

    def weights_gb(self, extra: int = 0) -> float:
        """Weights on one device, with ``extra`` ones of a method, in 1e9 bytes."""
        return (self.model.weights + extra) * WEIGHT_BYTES[self.weights] / self.tensor_parallel / 1e9

    def kv_gb(self, tokens: int) -> float:
        """KV cache of ``tokens`` on one device, in 1e9 bytes."""
        return tokens * self.model.kv_bytes_per_token() / self.tensor_parallel / 1e9

    @cached_property
    def on_stages(self) -> tuple[Placement, ...]:
        """The whole model as each stage's device would run it; empty without a pipeline."""
        stages = self.pipeline.stages if self.pipeline else ()
        return tuple(
            self.model_copy(update={"device": stage.device or self.device, "machine": stage.server, "pipeline": None})
            for stage in stages
        )

    @cached_property
    def parts(self) -> tuple[Placement, ...]:
        """The part of the model that each stage holds, embedding and head at the ends, where it runs; for sizes only."""
        if self.pipeline is None:
            return ()
        model, table = self.model, self.model.head_weights
        each = (model.weights - table * (1 if model.tie_word_embeddings else 2)) / model.num_hidden_layers
        found = []
        for place, (first, last) in zip(self.on_stages, self.pipeline.bounds, strict=True):
            ends = (first == 0) + (last == model.num_hidden_layers)
            weights = round(each * (last - first)) + ends * table
            part = model.model_copy(update={"num_hidden_layers": last - first, "parameters": weights})
            found.append(place.model_copy(update={"model": part}))
        return tuple(found)

    @property
    def devices(self) -> str:
        """How many of which devices, in words."""
        counts = Counter(place.device.name for place in self.on_stages or (self,))
        return " + ".join(f"{count * self.tensor_parallel} x {name}" for name, count in counts.items())

    def layer(self, depth: Depth) -> int:
        """The number of layers up to ``depth``."""
        layers = self.model.num_hidden_layers
        if isinstance(depth, int):
            return depth if depth >= 0 else layers + depth
        return round(depth * layers)


class LayerTime(NamedTuple):
    """Device seconds of one layer, by operation group."""

    qkv: float
    attention: float
    output: float
    mlp: float
    small: float


def attention_timer(place: Placement) -> Callable[[Rows], Any]:
    """Device time of attention in one layer over some rows, on one of the tensor-parallel ranks."""
    model, ranks = place.model, place.tensor_parallel
    cached = model.kv_bytes_per_layer() * place.engine.kv_traffic(model.num_attention_heads // model.num_key_value_heads)
    pair, seconds = 4.0 * model.query_width, place.device.timer(place.device.attention)
    return lambda rows: seconds(rows.kv_tokens * cached / ranks, rows.attention_pairs * pair / ranks, rows.tokens)


def layer_time(place: Placement, rows: Rows, experts: bool) -> LayerTime:
    """Device time of one layer for ``rows`` on one of the tensor-parallel ranks."""
    return layer_products(place, rows.tokens, experts, rows.adapted)._replace(attention=attention_timer(place)(rows))


def layer_products(place: Placement, n: int, experts: bool, adapted: int = 0) -> LayerTime:
    """The part of a layer that depends on its ``n`` rows alone: all but attention, which is left at zero.

    ``adapted`` of them do not pass the MLP.
    """
    model, device, ranks = place.model, place.device, place.tensor_parallel

    def product(weights: float, width: float, tokens: float) -> float:
        size = weights * WEIGHT_BYTES[place.weights] + tokens * width * ACTIVATION_BYTES
        return device.seconds(device.matmul_for(place.weights), size / ranks, 2.0 * tokens * weights / ranks, tokens)

    hidden, ff, full = model.hidden_size, model.intermediate_size, n - adapted
    mlp_width = hidden + ff * (2 if model.mlp == "gated" else 1)
    if experts and model.experts:
        touched, each = model.experts.touched(full), model.expert_weights
        tokens_each = max(1.0, full * model.experts.per_token / touched)
        mlp = product(touched * each, hidden + 3 * model.experts.intermediate_size, tokens_each)
        if model.experts.shared:
            mlp += product(model.experts.shared * each, hidden + 3 * model.experts.intermediate_size, full)
    else:
        mlp = product(model.up_weights, mlp_width, full) + product(model.down_weights, ff + hidden, full)
    widths = n * (8 * hidden + 2 * (model.query_width + 2 * model.kv_width) / ranks) + full * 3 * ff / ranks
    small_bytes = ACTIVATION_BYTES * widths
    small = device.seconds(device.small_operations, small_bytes, 0.0, n) * place.engine.small_operations_ratio.value
    return LayerTime(
        qkv=product(model.qkv_weights, hidden + model.query_width + 2 * model.kv_width, n),
        attention=0.0,
        output=product(model.output_weights, model.query_width + hidden, n),
        mlp=mlp,
        small=small,
    )


def side_product_time(place: Placement, tokens: int, width: int) -> float:
    """Device time of a product with one h x ``width`` matrix."""
    hidden, ranks = place.model.hidden_size, place.tensor_parallel
    weights = hidden * width
    size = weights * WEIGHT_BYTES[place.weights] + tokens * (hidden + width) * ACTIVATION_BYTES
    return place.device.seconds(place.device.matmul_for(place.weights), size / ranks, 2.0 * tokens * weights / ranks, tokens)


def head_time(place: Placement, logit_rows: int) -> float:
    """Device time of the LM head and of sampling from its logits."""
    if not logit_rows:
        return 0.0
    model, device = place.model, place.device
    size = (
        model.head_weights * WEIGHT_BYTES[place.weights]
        + logit_rows * (model.hidden_size + model.vocab_size) * ACTIVATION_BYTES
    )
    flops = 2.0 * logit_rows * model.head_weights
    head = device.seconds(
        device.matmul_for(place.weights), size / place.tensor_parallel, flops / place.tensor_parallel, logit_rows
    )
    return head + place.engine.sampling_us.value * 1e-6


def all_reduce_time(place: Placement, tokens: int) -> float:
    """Time of one collective over the activations of ``tokens``."""
    if place.tensor_parallel == 1 or not place.collectives.count or place.link is None:
        return 0.0
    size = tokens * place.model.hidden_size * ACTIVATION_BYTES
    form = getattr(place.link.all_reduce, place.collectives.form)
    return float(form.seconds(size, place.tensor_parallel))


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
