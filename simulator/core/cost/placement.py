"""A placement says which model runs on which devices, with which software."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from math import ceil
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from simulator.core.cost.collectives import AllReduceForm, needs_p2p
from simulator.core.cost.degrees import refusal
from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.formats import (
    CACHE_BYTES,
    FORMATS,
    CacheFormat,
    NumberFormat,
    StoredBits,
    WeightFormat,
)
from simulator.core.cost.mixer import LayerKind, Mixer
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.partition import Offload, Pipeline
from simulator.core.cost.protocol import Depth
from simulator.core.cost.roofline import Attention, Roofline
from simulator.core.cost.stored.mixes import stored_bits, table_bits
from simulator.core.identifiers import hub_id
from simulator.core.numeric import ordered_sum
from simulator.core.quantities import Frozen

Group = Literal["blocks", "experts", "head"]
"""Tensors with bits of their own that products read: of layers, of routed experts, the LM head."""
SIXTEEN_BITS = 16.0
MOST_PLACES = 512
"""Placements of which is kept whether their degree can start."""


class Collectives(Frozen):
    """The ranks of a tensor-parallel model exchange these all-reduces: two a layer (Megatron) or
    two a pass (SPD draft).
    """

    count: int = Field(default=2, ge=0, le=1_000_000)
    """Number of all-reduces."""
    per: Literal["layer", "pass"] = "layer"
    """Whether that many are in each layer, or in a whole pass."""
    form: str | None = None
    """Which form of the link gives their time (``ring``, ``tree``, or a measured one); null: what
    the engine uses.
    """


class Segment(NamedTuple):
    """A segment is layers in a row on one device."""

    first: int
    last: int
    """The layer behind its last one."""
    place: "Placement"
    """The whole model on that device."""
    offload: Offload | None
    """The offload that it belongs to; None for what stays."""


class AwayExperts(NamedTuple):
    """The routed experts of some layers lie elsewhere."""

    kinds: Mapping[LayerKind, int]
    """Number of these layers by kind."""
    place: "Placement"
    """The whole model on the device that holds them."""
    offload: Offload


class OffloadedPart(NamedTuple):
    """What lies on the device of an offload."""

    name: str
    place: "Placement"
    """The layers on that device; of experts, the whole model there."""
    weights_gb: float
    """Size of the weights there, in 1e9 bytes."""
    caches: bool
    """Whether the caches of these layers lie there too."""


class Placement(Frozen):
    """A placement puts a model on devices, with the software that runs it.

    With a ``pipeline`` its stages share the layers out; ``device`` is that of stages that name
    none, and each stage is ``tensor_parallel`` devices.
    """

    model: ModelSpec
    """The model that runs."""
    device: Device
    """The devices that it runs on, all of one kind."""
    engine: Engine
    """The software that runs it."""
    machine: str = ""
    """Name of a machine: two roles on the same machine and device share that device."""
    weights: WeightFormat = Field(default=None, validate_default=True)
    """Format in which the weights are stored, and whether products compute in it (fp8) or in 16
    bits (fp8_wo); by default that of the model's file where it says so tensor by tensor (GGUF,
    MLX), else fp16. A mix (Q4_K_M) has the bits of its rules for the shapes of the model.
    """
    expert_weights: WeightFormat | None = None
    """Format of a mixture's routed experts; by default that of the other weights."""
    kv_cache: CacheFormat = Field(default=None, validate_default=True)
    """Format of the keys and values in the cache; by default that for which the model was
    published, else 16 bits.
    """
    tensor_parallel: int = Field(default=1, gt=0, le=65_536)
    """Number of devices that share every layer."""
    attention: Literal["tensor_parallel", "data_parallel"] = "tensor_parallel"
    """Whether those devices share every request's attention, or the requests: each then has all
    heads and its own caches.
    """
    link: Link | None = None
    """The link between those devices; needed where there is more than one."""
    network: Link | None = None
    """The link between servers, over which ranks beyond those of one server sum; needed where there
    are more.
    """
    p2p: bool = True
    """Whether these devices reach each other's memory; an engine's own all-reduces need it, and
    without it NCCL sums.
    """
    collectives: Collectives = Collectives()
    """All-reduces that these devices exchange in a pass."""
    experts: Literal["sliced", "whole", "dispatched"] = "sliced"
    """What a device has of a mixture: a slice of each expert; or whole experts, summing over
    devices or sent its rows.
    """
    pipeline: Pipeline | None = None
    """Stages among which the layers are shared out, for strategies that run on stages."""
    checkpoint: Annotated[str, AfterValidator(hub_id)] | None = None
    """The repository on Hugging Face that commands serve, by id; by default the first one of the
    model in the format of its weights. Changes no time.
    """
    lm_head_rows: int | None = Field(default=None, ge=1, le=100_000_000)
    """Tokens to which a draft's LM head is cut, a copy of so many of its rows (FR-Spec); by default
    all.
    """
    offload: dict[str, Offload] | None = Field(default=None, min_length=1, max_length=64)
    """Layers, and experts of layers, that lie on other devices, by names of your own."""

    @field_validator("kv_cache", mode="before")
    @classmethod
    def _as_published(cls, stated: object, read: ValidationInfo) -> object:
        model = read.data.get("model")
        return stated or (model and model.cache_format) or "fp16"

    @field_validator("weights", mode="before")
    @classmethod
    def _as_stored(cls, stated: object, read: ValidationInfo) -> object:
        model = read.data.get("model")
        return stated or (model and model.stored and model.weight_format) or "fp16"

    @field_validator("weights", "expert_weights")
    @classmethod
    def _computed(cls, weights: WeightFormat | None, read: ValidationInfo) -> WeightFormat | None:
        device = read.data.get("device")
        if device is not None and weights is not None:
            device.number_format(weights)
        return weights

    @model_validator(mode="after")
    def _shared_out(self) -> Self:
        if self.pipeline is not None:
            for stage in self.pipeline.stages:
                (stage.device or self.device).number_format(self.weights)
                (stage.device or self.device).number_format(self.expert_format)
            layers = sum(stage.layers for stage in self.pipeline.stages)
            if layers != self.model.num_hidden_layers:
                raise ValueError(
                    f"the stages hold {layers} layers, {self.model.name} has "
                    f"{self.model.num_hidden_layers}"
                )
        return self

    @model_validator(mode="after")
    def _cut(self) -> Self:
        if self.lm_head_rows and self.lm_head_rows > self.model.vocab_size:
            raise ValueError(
                f"lm_head_rows {self.lm_head_rows:,} is more than the {self.model.vocab_size:,} "
                f"tokens of {self.model.name}; leave it out for all of them"
            )
        return self

    @model_validator(mode="after")
    def _offloaded(self) -> Self:
        if not self.offload:
            return self
        if self.tensor_parallel > 1 or self.pipeline is not None:
            other = "pipeline" if self.pipeline is not None else "tensor_parallel"
            raise ValueError(
                f"offload and {other} cannot be stated together; an offload's device takes layers "
                "or experts of one device"
            )
        for name, part in self.offload.items():
            part.device.number_format(self.weights)
            part.device.number_format(self.expert_format)
            self._check_offload(name, part)
        return self

    def _check_offload(self, name: str, part: Offload) -> None:
        """Raise :class:`ValueError` for an offload of what is not there, has to stay, or lies on
        another device already.
        """
        model = self.model
        layers = model.num_hidden_layers
        named = part.places(layers)
        if named.stop > layers:
            raise ValueError(f"{name}: {model.name} has {layers} layers, got {named.stop}")
        if part.layers and named.stop == layers:
            raise ValueError(
                f"{name}: the last layer of {model.name} and its LM head stay on "
                f"{self.device.name}; offload {layers - 1} layers at most, or run it on "
                f"{part.device.name}"
            )
        if part.experts and not model.experts:
            raise ValueError(f"{name}: {model.name} has no routed experts; offload layers instead")
        for other_name, other in (self.offload or {}).items():
            if other_name == name:
                break
            shared = set(named) & set(other.places(layers))
            if shared and (part.layers is None) == (other.layers is None):
                raise ValueError(
                    f"{name}: layer {min(shared) + 1} lies on {other_name} already; state "
                    "ranges that do not meet, as in [1, 12] and [13, 20]"
                )

    @model_validator(mode="after")
    def _linked(self) -> Self:
        if self.tensor_parallel > 1 and self.collectives.count and self.link is None:
            raise ValueError("tensor_parallel above 1 needs a link between the devices")
        if words := _refusal(self):
            raise ValueError(words)
        if self.tensor_parallel > 1 and self.collectives.count:
            for link, ranks in self._rings():
                self._has_form(link, ranks)
        if (
            self.experts == "dispatched"
            and self.tensor_parallel > 1
            and (self.link is None or self.link.all_to_all is None)
        ):
            raise ValueError(
                "experts: dispatched needs a link with all_to_all; whole sums over the devices "
                "instead"
            )
        if self.experts == "dispatched" and self.servers > 1:
            raise ValueError(
                "experts: dispatched sends rows inside one server alone; whole sums over the "
                "devices instead"
            )
        return self

    @property
    def servers(self) -> int:
        """Return over how many servers the ranks are spread: 1 where the link joins all of them."""
        joined = self.link.server_devices if self.link else None
        if joined and self.network:
            return max(1, self.tensor_parallel // int(joined.value))
        return 1

    @property
    def ranks_inside(self) -> int:
        """Return the ranks of one server."""
        return self.tensor_parallel // self.servers

    def _has_form(self, link: Link, ranks: int) -> None:
        """Raise :class:`ValueError` where a link has no all-reduce for so many ranks in a form that
        is wanted.
        """
        if self._form(link, ranks) is None:
            if not self._wanted_forms():
                raise ValueError(
                    "p2p: false leaves none of the engine's all_reduce; add 'nccl' or 'ring'"
                )
            wanted = " or ".join(f"'{form}'" for form in self._wanted_forms())
            forms = link.all_reduce.forms(ranks)
            hint = f"it has {', '.join(forms)}" if forms else "it has none"
            raise ValueError(f"link '{link.name}' has no all_reduce in form {wanted}; {hint}")

    def _wanted_forms(self) -> tuple[str, ...]:
        if self.collectives.form:
            return (self.collectives.form,)
        if self.p2p:
            return self.engine.all_reduce
        return tuple(form for form in self.engine.all_reduce if not needs_p2p(form))

    def _form(self, link: Link | None, ranks: int) -> AllReduceForm | None:
        forms = link.all_reduce.forms(ranks) if link else {}
        return next((forms[name] for name in self._wanted_forms() if name in forms), None)

    def all_reduce_form(self) -> AllReduceForm | None:
        """Return the first form of all-reduce that is wanted and that the link has for a server's
        ranks; None without any.
        """
        return self._form(self.link, self.ranks_inside)

    def all_reduce_forms(self) -> list[tuple[AllReduceForm, Link, int]]:
        """Return by which forms the ranks sum, each with its link and how many ranks: inside a
        server, then between servers.

        A form is the first one that is wanted and that the link has for so many ranks.
        """
        parts = [(self._form(link, ranks), link, ranks) for link, ranks in self._rings()]
        return [(form, link, ranks) for form, link, ranks in parts if form is not None]

    def _rings(self) -> Iterator[tuple[Link, int]]:
        if self.link is not None:
            yield self.link, self.ranks_inside
        if self.network is not None and self.servers > 1:
            yield self.network, self.servers

    @property
    def mixer_ranks(self) -> int:
        """Return among how many devices the attention of a request is shared out."""
        if self.attention == "tensor_parallel":
            return self.tensor_parallel
        return 1

    @property
    def decode_attention(self) -> Roofline:
        """Return the device's roofline for attention of few rows over this cache."""
        attention = self.device.attention
        if isinstance(attention, Attention):
            return attention.over(self.kv_cache).decode
        return attention

    def busiest_share(self, sequences: int) -> float:
        """Return the share of the requests whose attention the busiest device computes, relative to
        ``mixer_ranks``.
        """
        if self.attention == "tensor_parallel" or not sequences:
            return 1.0
        return ceil(sequences / self.tensor_parallel) / sequences

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Return the layers by the device that holds them, in the order of a pass."""
        return _segments(self)

    def _on(self, part: Offload) -> Self:
        """Return the whole model on the device of an offload."""
        engine = part.engine or self.engine
        return self.model_copy(update={"device": part.device, "engine": engine, "offload": None})

    @cached_property
    def _kinds_here(self) -> Mapping[LayerKind, int]:
        """Return the number of layers of each kind on this device, their experts perhaps
        elsewhere.
        """
        kinds = Counter[LayerKind]()
        for segment in self.segments:
            if segment.offload is None:
                kinds += self.model.kinds(segment.first, segment.last)
        return kinds

    @property
    def layers_here(self) -> int:
        """Return how many layers lie on this device, their experts perhaps elsewhere."""
        return sum(self._kinds_here.values())

    def away_experts(self, first: int, last: int) -> tuple[AwayExperts, ...]:
        """Return by offload the layers from ``first`` to before ``last`` whose routed experts lie
        elsewhere while they do not.
        """
        here = set[int]()
        for segment in self.segments:
            if segment.offload is None:
                here.update(range(max(first, segment.first), min(last, segment.last)))
        parts = []
        for part in (self.offload or {}).values():
            kinds = Counter[LayerKind]()
            if part.experts:
                for place in here.intersection(part.places(self.model.num_hidden_layers)):
                    kinds += self.model.kinds(place, place + 1)
            with_experts = {kind: count for kind, count in kinds.items() if kind.experts}
            if with_experts:
                parts.append(AwayExperts(with_experts, self._on(part), part))
        return tuple(parts)

    @cached_property
    def offloaded(self) -> tuple[OffloadedPart, ...]:
        """Return what lies on the device of each offload, for sizes only."""
        parts = []
        for name, part in (self.offload or {}).items():
            if part.layers:
                named = part.places(self.model.num_hidden_layers)
                held = {
                    "num_hidden_layers": len(named),
                    "layers": self.model.runs(named.start, named.stop),
                }
                model = self.model.model_copy(update=held)
                place = self._on(part).model_copy(update={"model": model})
                size = self.layer_bytes(named.start, named.stop)
            else:
                place = self._on(part)
                away = self.away_experts(0, self.model.num_hidden_layers)
                layers = sum(sum(one.kinds.values()) for one in away if one.offload is part)
                size = layers * self._routed_bytes
            parts.append(OffloadedPart(name, place, size / 1e9, part.layers is not None))
        return tuple(parts)

    @property
    def expert_bytes(self) -> float:
        """Return the bytes of one routed expert."""
        return self.model.expert_weights * self.bits.expert_bits / 8.0

    @property
    def _routed_bytes(self) -> float:
        """Return the bytes of the routed experts of a layer."""
        routed = self.model.experts.routed if self.model.experts else 0
        return routed * self.expert_bytes

    def layer_bytes(self, first: int, last: int, read: float | None = None) -> float:
        """Return the bytes of the weights of the layers from ``first`` to before ``last``; of the
        routed experts of each only so many as are ``read``, by default all.
        """
        size = 0.0
        for kind, count in self.model.kinds(first, last).items():
            routed = 0
            if kind.experts and self.model.experts:
                routed = self.model.experts.routed * self.model.expert_weights
                size += count * (self._routed_bytes if read is None else read * self.expert_bytes)
            rest = self.model.kind_weights(kind) - routed
            size += count * rest * self.bits.block_bits / 8.0
        return size

    def weights_gb(self, extra: int = 0) -> float:
        """Return the size of the weights on one device in 1e9 bytes, with ``extra`` weights that a
        method adds; what is offloaded is not on it, nor an embedding that the engine leaves to the
        host.
        """
        left = 0.0
        if self.engine.embeds_on_host and not self.model.tie_word_embeddings:
            left = self.model.head_weights * self.bits.embedding_bits / 8e9
        return self._all_weights_gb(extra) - left / self.tensor_parallel

    def _all_weights_gb(self, extra: int = 0) -> float:
        ranks = self.tensor_parallel
        weight_bytes = self.bits.block_bits / 8.0
        of_tables = table_bits(self.model, self.bits) / 8.0
        tables = self.model.table_weights * (of_tables - weight_bytes)
        for mixer, count in self.model.mixer_layers:
            if self.mixer_ranks == 1:
                whole = mixer.weights * ranks
            else:
                whole = round(mixer.weights_before(ranks)) + mixer.output
            extra += count * (whole - mixer.weights)
        experts = self.model.routed_weights * (self.bits.expert_bits / 8.0 - weight_bytes)
        size = ((self.model.weights + extra) * weight_bytes + tables + experts) / ranks / 1e9
        if self.offload:
            size -= sum(part.weights_gb for part in self.offloaded)
        if self.lm_head_rows:
            rows = self.lm_head_rows * self.model.head_width
            size += rows * self.bits.head_bits / 8.0 / ranks / 1e9
        return size

    def kv_gb(self, tokens: int, sequences: int = 1) -> float:
        """Return the size of the KV caches of ``sequences`` of ``tokens`` each on one device in 1e9
        bytes, without states.
        """
        value = CACHE_BYTES[self.kv_cache]
        ranks = self.mixer_ranks
        layers = self._mixers_here
        size = ordered_sum(
            count * mixer.cache_bytes(tokens, value) * mixer.copies(ranks)
            for mixer, count in layers
        )
        return sequences * size / self.tensor_parallel / 1e9

    @property
    def _mixers_here(self) -> tuple[tuple[Mixer, int], ...]:
        """Return the mixers of the layers on this device and the number of layers of each."""
        if not self.offload:
            return self.model.mixer_layers
        return tuple((kind.mixer, count) for kind, count in self._kinds_here.items() if kind.mixer)

    @property
    def state_gb(self) -> float:
        """Return the size of the states of a sequence on one device in 1e9 bytes; 0 where all
        layers have caches.
        """
        size = self.model.state_bytes
        if self.offload:
            size = sum(count * mixer.state_bytes for mixer, count in self._mixers_here)
        return size / self.tensor_parallel / 1e9

    @cached_property
    def bits(self) -> StoredBits:
        """Return the bits a weight by group of tensors: of the model's file, or of the format's
        rules.
        """
        return stored_bits(self.model, self.weights, self.expert_weights)

    def format_of(self, group: Group) -> WeightFormat:
        """Return the format of a group of tensors, whose kernels multiply with it."""
        if group == "head":
            return self.table_format
        if group == "experts":
            return self.expert_format
        return self.weights

    def number_format(self, group: Group) -> NumberFormat:
        """Return how products with a group of tensors are computed on the device, with the bytes
        that its weights really have.
        """
        return self._number_formats[group]

    @cached_property
    def _number_formats(self) -> Mapping[Group, NumberFormat]:
        by_group: Mapping[Group, float] = {
            "blocks": self.bits.block_bits,
            "experts": self.bits.expert_bits,
            "head": self.bits.head_bits,
        }
        formats = {}
        for group, bits in by_group.items():
            form = self.device.number_format(self.format_of(group))
            formats[group] = form._replace(weight_bytes=bits / 8.0)
        return formats

    @property
    def table_format(self) -> WeightFormat:
        """Return the format of the LM head: that of the other weights, or 16 bits where a format
        leaves it so and the file does not say otherwise.
        """
        if FORMATS[self.weights].tables_in_16_bits and self.bits.head_bits >= SIXTEEN_BITS:
            return "fp16"
        return self.weights

    @property
    def expert_format(self) -> WeightFormat:
        """Return the format of routed experts."""
        return self.expert_weights or self.weights

    @cached_property
    def large_mixture(self) -> bool:
        """Return whether the model is a mixture that no single one of these devices holds."""
        if self.model.experts is None or self.offload:
            return False
        whole = self.model_copy(update={"tensor_parallel": 1})
        return whole.weights_gb() > self.device.memory_gb.value

    @cached_property
    def in_cache(self) -> bool:
        """Return whether the weights of a pass stay in the device's cache from one pass to the
        next.

        Every pass reads all weights but those of a separate embedding in the same order, so a cache
        that does not hold all of them holds none when it matters. The first pass behind another
        model's reads them from memory, which is left out.
        """
        cache = self.device.cache_mb
        unread = 0.0
        if not self.model.tie_word_embeddings:
            unread = self.model.head_weights * self.bits.embedding_bits / 8.0
        return (
            cache is not None
            and self._all_weights_gb() * 1e9 - unread / self.tensor_parallel <= cache.value * 1e6
        )

    @cached_property
    def on_stages(self) -> tuple[Self, ...]:
        """Return, by stage, a placement of the whole model on the device of that stage; empty
        without a pipeline.
        """
        stages = self.pipeline.stages if self.pipeline else ()
        return tuple(
            self.model_copy(
                update={
                    "device": stage.device or self.device,
                    "machine": stage.server,
                    "pipeline": None,
                }
            )
            for stage in stages
        )

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """Return, by stage, a placement of the part of the model that it holds; for sizes only.

        The first stage also holds the embedding, the last one the LM head.
        """
        if self.pipeline is None:
            return ()
        model = self.model
        table = self.model.head_weights
        layer = (
            model.weights - table * (1 if model.tie_word_embeddings else 2)
        ) / model.num_hidden_layers
        parts = []
        for place, (first, last) in zip(self.on_stages, self.pipeline.bounds, strict=True):
            ends = (first == 0) + (last == model.num_hidden_layers)
            weights = round(layer * (last - first)) + ends * table
            part = {
                "num_hidden_layers": last - first,
                "layers": model.runs(first, last),
                "parameters": weights,
                "tables": ends,
                "weight_format": self.weights,
                "stored": self.bits,
            }
            held: dict[str, object] = {"model": model.model_copy(update=part)}
            if first:  # the embedding that an engine leaves to the host is of the first stage
                held["engine"] = place.engine.model_copy(update={"embeds_on_host": False})
            parts.append(place.model_copy(update=held))
        return tuple(parts)

    @property
    def devices(self) -> str:
        """Return how many of which devices there are, in words, as in ``2 x a100_80g_sxm``."""
        counts = Counter(place.device.name for place in self.on_stages or (self,))
        devices = " + ".join(
            f"{count * self.tensor_parallel} x {name}" for name, count in counts.items()
        )
        for part in (self.offload or {}).values():
            devices += f" + {part.device.name} with {part.words}"
        return devices

    def layer(self, depth: Depth) -> int:
        """Return the number of layers up to ``depth``."""
        layers = self.model.num_hidden_layers
        if isinstance(depth, int):
            if depth >= 0:
                return depth
            return max(0, layers + depth)
        return round(depth * layers)


_refusal = lru_cache(MOST_PLACES)(refusal)


@lru_cache(MOST_PLACES)
def _segments(place: Placement) -> tuple[Segment, ...]:
    """Return the segments of a placement, which is one of them: it may not hold itself."""
    model_layers = place.model.num_hidden_layers
    whole = [part for part in (place.offload or {}).values() if part.layers]
    first = 0
    segments = []
    for part in sorted(whole, key=lambda part: part.places(model_layers).start):
        named = part.places(model_layers)
        if first < named.start:
            segments.append(Segment(first, named.start, place, None))
        segments.append(Segment(named.start, named.stop, place._on(part), part))
        first = named.stop
    return (*segments, Segment(first, model_layers, place, None))
