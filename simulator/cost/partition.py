"""Pipeline: the target cut into stages of layers, each on a device of its own, with links between neighbours.

Stage i holds ``layers`` layers in a row; the first one also holds the embedding, the last one the LM head. Stages of
one ``server`` are linked ``within`` it, neighbours on two servers ``between`` them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import field_validator, model_validator

from simulator.cost.device import Device, Link
from simulator.cost.model import WEIGHT_BYTES, ModelSpec, WeightFormat
from simulator.files.schema import Frozen, NonNegative

ACTIVATION_BYTES = 2
GIB = 2**30
LayerFormula = Literal["printed", "grouped"]


class Stage(Frozen):
    """Some layers on a device; ``device`` is the target's where none is named."""

    layers: int
    """How many, in a row."""
    device: Device | None = None
    """Where; by default the target's device."""
    server: str = ""
    """Stages of one name share a server."""

    @field_validator("layers")
    @classmethod
    def _not_empty(cls, layers: int) -> int:
        if layers < 1:
            raise ValueError(f"a stage holds a layer or more, got {layers}")
        return layers


class Pipeline(Frozen):
    """Stages in the order in which a pass goes through them, and what links them.

    ``runtime_gb``: what the software takes on each device beside weights and cache.
    """

    stages: tuple[Stage, ...]
    """In the order in which a pass goes through them; two or more."""
    within: Link | None = None
    """Links neighbours on one server."""
    between: Link | None = None
    """Links neighbours on two servers."""
    runtime_gb: NonNegative = NonNegative(value=0.268, source="SpecPipe sec. 4.5: 256 MiB", confidence="published")
    """What the software takes on each device beside weights and cache."""

    @model_validator(mode="after")
    def _linked(self) -> Pipeline:
        if len(self.stages) < 2:
            raise ValueError(f"a pipeline has two stages or more, got {len(self.stages)}")
        for number, (one, other) in enumerate(zip(self.stages, self.stages[1:], strict=False), start=1):
            if one.server == other.server and self.within is None:
                on = f"both on server '{one.server}'" if one.server else "on one server"
                raise ValueError(f"there is no link between stages {number} and {number + 1}, {on}; set within")
            if one.server != other.server and self.between is None:
                on = f"on servers '{one.server}' and '{other.server}'"
                raise ValueError(f"there is no link between stages {number} and {number + 1}, {on}; set between")
        return self

    @property
    def links(self) -> tuple[Link, ...]:
        """The link behind every stage but the last."""
        pairs = zip(self.stages, self.stages[1:], strict=False)
        found = (self.within if one.server == other.server else self.between for one, other in pairs)
        return tuple(link for link in found if link is not None)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First layer of every stage, and the one behind its last."""
        first, found = 0, []
        for stage in self.stages:
            found.append((first, first + stage.layers))
            first += stage.layers
        return tuple(found)


def printed_layer_weights(model: ModelSpec) -> int:
    """``4 d^2 + 3 d f``, as SpecPipe prints it: without grouped-query attention (SP-10, K27)."""
    return 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size


class StageMemory(NamedTuple):
    """Bytes on the device of one stage."""

    weights: float
    table: float
    """Embedding on the first stage, LM head on the last one."""
    kv: float
    tree: float
    runtime: float

    @property
    def gib(self) -> float:
        """All together, in GiB."""
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
    """What a stage of ``layers`` takes (SP-10); ``ends``: how many of embedding and head it holds.

    A tree of ``width`` nodes a level needs their hidden states, and a byte in its mask for each pair of nodes in flight.
    """
    each = printed_layer_weights(model) if formula == "printed" else model.layer_weights
    return StageMemory(
        weights=layers * each * WEIGHT_BYTES[weights],
        table=ends * model.head_weights * WEIGHT_BYTES[weights],
        kv=kv_tokens * layers * model.kv_bytes_per_layer(),
        tree=message_bytes(model, width) + (width * stages) ** 2,
        runtime=runtime_bytes,
    )


def message_bytes(model: ModelSpec, tokens: int) -> int:
    """A level on its way to the next stage: one hidden state a token (SP-9); its tree mask is not counted."""
    return tokens * model.hidden_size * ACTIVATION_BYTES
