"""What a scenario states, and what follows from its fields alone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union

from pydantic import Field, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from simulator.acceptance.sources import Exit
from simulator.acceptance.spec import AcceptanceSpec
from simulator.cost.cost import Cost, HardwareCost, Placement
from simulator.cost.device import Link
from simulator.cost.stated import StatedCost, StatedDurations
from simulator.files.schema import BadInput, Fault, Frozen, Sourced
from simulator.numeric import ordered_sum
from simulator.serving.memory import Blocks
from simulator.serving.policies import Serving
from simulator.serving.requests import Requests
from simulator.serving.slo import Slo
from simulator.strategies import Strategy, strategies
from simulator.strategies.common.base import early_exit
from simulator.strategies.common.capabilities import extra_memory
from simulator.strategies.common.method import Method
from simulator.strategies.common.step import UNLIMITED


def _made_already(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """A strategy as it is, also one that no file can name; anything else is read."""
    return value if isinstance(value, Strategy) else read(value)


if TYPE_CHECKING:
    AnyStrategy = Strategy
else:
    _Known = Annotated[Union[tuple(strategies().values())], Field(discriminator="name")]  # noqa: UP007
    AnyStrategy = Annotated[SerializeAsAny[_Known], WrapValidator(_made_already)]


class SharedMemory(Frozen):
    """Target and draft use one memory: each is ``slowdown`` times slower while both are busy."""

    slowdown: Sourced
    """How many times longer each takes while both are busy; 1 or more."""

    @model_validator(mode="after")
    def _slows(self) -> SharedMemory:
        if self.slowdown.value < 1.0:
            raise ValueError(f"slowdown: expected 1 or more, got {self.slowdown.value:g}")
        return self


class RoleMemory(NamedTuple):
    """A role on its devices and the size of its weights on each, in 1e9 bytes."""

    role: str
    place: Placement
    weights_gb: float


class DeviceGroup(NamedTuple):
    """Roles in one memory, of which ``utilisation`` may be used."""

    roles: tuple[RoleMemory, ...]
    utilisation: float

    @property
    def limit_gb(self) -> float:
        """What weights and caches may take."""
        return self.utilisation * min(place.device.memory_gb.value for _, place, _ in self.roles)

    def needed_gb(self, tokens: int) -> float:
        """Weights and the caches of ``tokens``."""
        return ordered_sum(weights + place.kv_gb(tokens) for _, place, weights in self.roles)

    @property
    def room_tokens(self) -> int:
        """Tokens whose caches fit beside the weights; 0 if those do not fit."""
        left = self.limit_gb - ordered_sum(weights for _, _, weights in self.roles)
        return max(0, int(left / ordered_sum(place.kv_gb(1) for _, place, _ in self.roles)))


class Scenario(Frozen):
    """Everything that a run needs to know."""

    name: str = Field(pattern=r"^[\w.-]*\w[\w.-]*$")
    """What reports call it; the file's name where none is stated."""
    about: str = ""
    """What it is for, in a sentence."""
    strategy: AnyStrategy
    """How tokens are drafted and verified; a name alone takes every default."""
    method: Method | None = None
    """The published system that the strategy runs; its file states the strategy."""
    target: Placement | None = None
    """The model whose tokens come out, and where it runs; left out where ``durations`` state all times."""
    draft: Placement | None = None
    """The model that drafts, and where it runs; for strategies that need one."""
    channel: Link | None = None
    """The link between target and draft, where they sit on different devices."""
    shared_memory: SharedMemory | None = None
    """How much target and draft slow each other down, where they use one memory."""
    durations: StatedDurations | None = None
    """Times stated outright, instead of models and hardware."""
    acceptance: AcceptanceSpec
    """Which draft tokens the target keeps."""
    requests: Requests = Requests()
    """What is asked for, and when."""
    serving: Serving = Serving()
    """How requests are batched, where their caches live, how many replicas there are."""
    slo: Slo | None = None
    """What users were promised; runs then count goodput."""
    seed: int = Field(default=0, ge=0)
    """Of everything that is drawn by chance."""

    @property
    def method_name(self) -> str:
        """What decodes: a method by its name, or a strategy."""
        return self.method.name if self.method else self.strategy.name

    @property
    def layers(self) -> int | None:
        """Layers of the target, None where durations are given that do not tell."""
        if self.durations and self.durations.layers_ms:
            return len(self.durations.layers_ms)
        return self.target.model.num_hidden_layers if self.target else None

    @property
    def stages(self) -> int:
        """Stages of the target's pipeline; 0 without one."""
        if self.durations:
            return len(self.durations.stages_ms or ())
        return len(self.target.pipeline.stages) if self.target and self.target.pipeline else 0

    @property
    def batch(self) -> int:
        """Requests that decode together when nothing holds them up: what the law is taken at, and the strategy is set for.

        In one replica; of an open workload, all places there are.
        """
        places = self.serving.policy.max_requests or UNLIMITED
        return places if self.requests.arrivals else min(-(-self.requests.concurrency // self.serving.replicas), places)

    @cached_property
    def schedule(self) -> Strategy:
        """The strategy as it is set for this many requests at a time."""
        return self.strategy.fitted_to(self.batch, self.stages)

    @cached_property
    def exit(self) -> Exit | None:
        """The early exit that acceptance must know about."""
        return early_exit(self.schedule, self.layers)

    @property
    def contention(self) -> float:
        """Slowdown of target and draft while both are busy."""
        return self.shared_memory.slowdown.value if self.shared_memory else 1.0

    @property
    def one_lane(self) -> bool:
        """Target and draft sit on the same device of the same machine."""
        if not (self.target and self.draft and self.target.machine):
            return False
        return (self.target.machine, self.target.device.name) == (self.draft.machine, self.draft.device.name)

    @cached_property
    def cost(self) -> Cost:
        """Where durations come from."""
        if self.durations:
            return StatedCost(self.durations, self.schedule.needs.draft_steps, self.contention)
        if self.target is None:
            raise BadInput([Fault((self.name, 0, 0), "target", "is required and missing")])
        return HardwareCost(self.target, self.draft, self.channel, self.contention)

    def replace(self, **updates: Any) -> Scenario:
        """A copy that has computed nothing yet; ``model_copy`` would keep the cost and schedule of the old fields."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | updates)

    @cached_property
    def lengths(self) -> tuple[float, float, int]:
        """Mean prompt tokens, mean output tokens, and both together of the longest request."""
        return self.requests.totals(self.seed)

    @property
    def mean_context(self) -> int:
        """Cached tokens halfway through the output, at which the law takes its durations."""
        prompt, output, _ = self.lengths
        return int(prompt + output // 2)

    def memory(self) -> Blocks:
        """An empty KV cache of the size that the hardware leaves."""
        block, room = self.serving.memory.block_tokens, self.kv_tokens
        return Blocks(block, None if room is None else room // block)

    @cached_property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV caches of all requests together can hold; None without a limit."""
        stated = self.serving.memory.kv_tokens
        return stated if stated is not None else min((group.room_tokens for group in self.device_groups), default=None)

    @property
    def device_groups(self) -> list[DeviceGroup]:
        """Target and draft with what each needs, together where they share a memory."""
        held: dict[tuple[str, str], list[RoleMemory]] = {}
        pipeline = self.target.pipeline if self.target else None
        if self.target and pipeline:
            for number, part in enumerate(self.target.parts, start=1):
                size = part.weights_gb() + pipeline.runtime_gb.value
                held[f"stage {number}", ""] = [RoleMemory(f"stage {number}", part, size)]
        for role, place in (("target", self.target), ("draft", self.draft)):
            used = self.strategy.needs.draft_model if role == "draft" else pipeline is None
            if place is not None and used:
                extra, table = extra_memory(self.strategy, place.model) if role == "target" else (0, 0)
                key = (place.machine or role, "" if self.shared_memory else place.device.name)
                held.setdefault(key, []).append(RoleMemory(role, place, place.weights_gb(extra) + table / 1e9))
        return [DeviceGroup(tuple(roles), self.serving.memory.utilisation) for roles in held.values()]


def resolved(scenario: Scenario) -> dict[str, Any]:
    """The scenario with every default and every looked-up file in place, as plain data."""
    return scenario.model_dump(mode="json", exclude_none=True)
