"""A pipeline cuts the target into stages of layers, each on a device of its own, with links between
neighbours.

Stage i holds ``layers`` layers in a row; the first one also holds the embedding, the last one the
LM head. Stages of one ``server`` are linked ``within`` it, neighbours on two servers ``between``
them.

An offload is a device on which layers, or the routed experts of layers, lie for which the target's
has no room, behind a link:

    elsewhere |==layers 1 to 4==|                       layers: a pass crosses once
    link                        |-|
    device                        |==layers 5 to 8==|

    device    |=mixer, router=|     |=mixer, router=|   experts: a pass crosses there and back
    link                      |-| |-|                   in every layer whose experts lie elsewhere
    elsewhere                  |=experts=|

Everything of a pass follows one another, as llama.cpp computes it (``--n-gpu-layers``,
``--tensor-split``, ``--override-tensor exps=CPU``, ``--n-cpu-moe``).
"""

from functools import cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.formats import ACTIVATION_BYTES, WEIGHT_BYTES, WeightFormat
from simulator.core.cost.model import ModelSpec
from simulator.core.quantities import Frozen, NonNegative

GIB = 2**30
"""Bytes in a GiB."""
LayerFormula = Literal["printed", "grouped"]


class Stage(Frozen):
    """A stage holds consecutive layers of the target on one device; by default on a device like the
    target's.
    """

    layers: int = Field(le=10_000)
    """Number of consecutive layers."""
    device: Device | None = None
    """The device that holds them; by default the target's."""
    server: str = ""
    """Name of the server; stages of the same name share it."""

    @field_validator("layers")
    @classmethod
    def _not_empty(cls, layers: int) -> int:
        if layers < 1:
            raise ValueError(f"a stage holds a layer or more, got {layers}")
        return layers


class Pipeline(Frozen):
    """A pipeline consists of stages, in the order in which a pass goes through them, and of the
    links between them.

    ``runtime_gb`` is the memory that the software takes on each device in addition to weights and
    cache.
    """

    stages: tuple[Stage, ...]
    """Stages in the order in which a pass goes through them; two or more."""
    within: Link | None = None
    """Link between neighbours on one server."""
    between: Link | None = None
    """Link between neighbours on two servers."""
    runtime_gb: NonNegative = NonNegative(
        value=0.268, source="SpecPipe sec. 4.5: 256 MiB", confidence="published"
    )
    """Memory that the software takes on each device in addition to weights and cache, in 1e9
    bytes.
    """

    @model_validator(mode="after")
    def _linked(self) -> Self:
        if len(self.stages) < 2:
            raise ValueError(f"a pipeline has two stages or more, got {len(self.stages)}")
        for number, (stage, following) in enumerate(pairwise(self.stages), start=1):
            if stage.server == following.server and self.within is None:
                on = f"both on server '{stage.server}'" if stage.server else "on one server"
                raise ValueError(
                    f"there is no link between stages {number} and {number + 1}, {on}; set within"
                )
            if stage.server != following.server and self.between is None:
                on = f"on servers '{stage.server}' and '{following.server}'"
                raise ValueError(
                    f"there is no link between stages {number} and {number + 1}, {on}; set between"
                )
        return self

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Return the link behind every stage but the last."""
        pairs = pairwise(self.stages)
        links = (
            self.within if stage.server == following.server else self.between
            for stage, following in pairs
        )
        return tuple(link for link in links if link is not None)

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """Return, by stage, the number of its first layer and that of the layer behind its last."""
        return tuple(pairwise(accumulate((stage.layers for stage in self.stages), initial=0)))


def printed_layer_weights(model: ModelSpec) -> int:
    """Return the weights of a layer, ``4 d^2 + 3 d f`` as SpecPipe prints it: without grouped-query
    attention (SP-10, K27).
    """
    return 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size


class StageMemory(NamedTuple):
    """The device of one stage holds these bytes."""

    weights: float
    """Weights of its layers."""
    table: float
    """Embedding on the first stage, LM head on the last one."""
    kv: float
    """KV cache of its layers."""
    tree: float
    """Hidden states of one level of the tree, and the tree's mask."""
    runtime: float
    """The software."""

    @property
    def gib(self) -> float:
        """Return the size of all of them together, in GiB."""
        return sum(self) / GIB


def stage_memory(
    model: ModelSpec,
    layers: int,
    kv_tokens: int,
    *,
    ends: int = 0,
    formula: LayerFormula = "grouped",
    weights: WeightFormat = "bf16",
    width: int = 0,
    stages: int = 1,
    runtime_bytes: float = 256 * 2**20,
) -> StageMemory:
    """Return the bytes of a stage of ``layers`` (SP-10); ``ends``: how many of embedding and LM
    head it holds.

    A tree of ``width`` nodes a level needs their hidden states, and a byte in its mask for each
    pair of nodes in flight.
    """
    layer_weights = printed_layer_weights(model) if formula == "printed" else model.layer_weights
    return StageMemory(
        weights=layers * layer_weights * WEIGHT_BYTES[weights],
        table=ends * model.head_weights * WEIGHT_BYTES[weights],
        kv=kv_tokens * layers * model.kv_bytes_per_layer(),
        tree=message_bytes(model, width) + (width * stages) ** 2,
        runtime=runtime_bytes,
    )


def message_bytes(model: ModelSpec, tokens: int) -> int:
    """Return the bytes of a level on its way to the next stage: a hidden state a token (SP-9),
    without its tree mask.
    """
    return tokens * model.hidden_size * ACTIVATION_BYTES


Number = Annotated[int, Field(ge=1, le=10_000)]
"""Number of a layer, from 1, or a number of layers."""
Layers = Number | tuple[Number, Number]
"""The first layers of a model, or those from one to another, both included and counted from 1."""


class Offload(Frozen):
    """An offload is one other device that holds layers or experts of a model, and the link to it.

    ``layers: 12`` are the model's first twelve, ``[5, 12]`` its fifth to twelfth; the last layer
    and the LM head stay. ``experts``, likewise or ``all``, are the routed experts of such layers,
    as far as they stay.
    """

    device: Device
    """The other device; its memory may be that of the host."""
    engine: Engine | None = None
    """The software as it computes there, as llama_cpp_cpu on a CPU; by default that of the
    target.
    """
    link: Link
    """The link between the two devices."""
    layers: Layers | None = None
    """Layers that lie there as a whole, with their caches."""
    experts: Literal["all"] | Layers | None = None
    """Layers whose routed experts lie there."""
    copied_from_rows: int | None = Field(default=None, ge=1, le=1_000_000)
    """Rows of a pass from which the weights are copied over the link and multiplied on the target's
    device (llama.cpp: 32); by default never.
    """

    @model_validator(mode="after")
    def _one_part(self) -> Self:
        if (self.layers is None) == (self.experts is None):
            raise ValueError(
                "expected one of layers and experts; state two offloads for both on one device"
            )
        for part in (self.layers, self.experts):
            if isinstance(part, tuple) and part[0] > part[1]:
                raise ValueError(f"expected the first layer before the last, got {list(part)}")
        return self

    def places(self, layers: int) -> range:
        """Return the layers of a model of so many that it names, counted from 0."""
        part = self.layers if self.experts is None else self.experts
        if isinstance(part, tuple):
            return range(part[0] - 1, part[1])
        if isinstance(part, int):
            return range(part)
        return range(layers)

    def copies(self, rows: int) -> bool:
        """Return whether a pass over so many rows copies the weights to the target's device."""
        return self.copied_from_rows is not None and rows >= self.copied_from_rows

    @property
    def words(self) -> str:
        """Return what lies there, in words."""
        if self.experts == "all":
            return "all routed experts"
        whose = "" if self.experts is None else "the routed experts of "
        named = self.places(0)
        if len(named) == 1:
            return f"{whose}layer {named.stop:,}"
        return f"{whose}layers {named.start + 1:,} to {named.stop:,}"
