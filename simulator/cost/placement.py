"""Which model runs on which devices, with which software."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from simulator.cost.device import Device, Link
from simulator.cost.engine import Engine
from simulator.cost.model import WEIGHT_BYTES, ModelSpec, WeightFormat
from simulator.cost.partition import Pipeline
from simulator.cost.protocol import Depth
from simulator.files.schema import Frozen


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
