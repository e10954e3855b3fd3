"""The fields of a scenario, and what follows from them alone."""

from collections import Counter
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, Union

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from simulator.core.acceptance.cut_vocabulary import usual_share
from simulator.core.acceptance.sources import Acceptance, Exit, Rates
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.cost.device import Link
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.placement import Placement
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.core.quantities import Frozen, Sourced
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.fields import Serving
from simulator.core.serving.fleet.sizes import cache_bytes, head_bytes
from simulator.core.serving.load.sessions import READERS as SESSION_READERS
from simulator.core.serving.load.traffic import READERS
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.serving.slo import Slo
from simulator.core.serving.waiting import running_together
from simulator.core.strategies import Strategy, strategies
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.capabilities import (
    CutsVocabulary,
    ExtraMemory,
    caches_of_draft,
    drafting_of,
    drafts_first,
    dropped_units,
    extra_memory,
    uncut,
)
from simulator.core.strategies.common.law import Law, OddsOf
from simulator.core.strategies.common.method import Method
from simulator.core.strategies.common.outputs import Outputs
from simulator.core.strategies.common.step import UNLIMITED
from simulator.inputs import sessions, traffic
from simulator.scenario.routing import recorded_routing

MOST_ROLES = 512
"""Roles on their devices whose weights are kept."""


def _made_already(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Return a strategy as it is, even one that no file can name; read anything else."""
    if isinstance(value, Strategy):
        return value
    return read(value)


READERS |= dict.fromkeys(traffic.FORMATS, traffic.recorded)
SESSION_READERS["sessions"] = sessions.recorded
"""Whoever reads a scenario can read its traffic file, or its file of sessions."""

if TYPE_CHECKING:
    AnyStrategy = Strategy
else:
    _Any = Union[tuple(strategies().values())]  # noqa: UP007
    _Named = Annotated[_Any, Field(discriminator="name")]
    AnyStrategy = Annotated[SerializeAsAny[_Named], WrapValidator(_made_already)]


class SharedMemory(Frozen):
    """A memory that target and draft share: each is ``slowdown`` times slower while both are
    busy.
    """

    slowdown: Sourced
    """How many times longer each takes while both are busy; 1 or more."""

    @model_validator(mode="after")
    def _slows(self) -> Self:
        if self.slowdown.value < 1.0:
            raise ValueError(f"slowdown: expected 1 or more, got {self.slowdown.value:g}")
        return self


class RoleMemory(NamedTuple):
    """A role on its devices and the size of its weights on each, in 1e9 bytes."""

    role: str
    place: Placement
    weights_gb: float
    head_gb: float = 0.0
    """Size of a token in the cache of layers that draft beside the target, in 1e9 bytes."""
    caches: float = 1.0
    """How many caches of a request lie beside the weights: 0 where they lie elsewhere."""

    def request_gb(self, tokens: int, rows: int) -> float:
        """Return the size of the caches of a request of ``tokens``, and of a state for each of
        ``rows``, in 1e9 bytes.
        """
        if not self.caches:
            return 0.0
        own_gb = self.place.kv_gb(tokens) + self.head_gb * tokens + rows * self.place.state_gb
        return self.caches * own_gb


class DeviceGroup(NamedTuple):
    """Roles whose weights and caches lie in one memory."""

    roles: tuple[RoleMemory, ...]
    utilisation: float
    """Share of the memory that may be used."""

    @property
    def limit_gb(self) -> float:
        """Return what weights and caches may take on each device, in 1e9 bytes: the share of the
        smallest.
        """
        smallest = min(part.place.device.memory_gb.value for part in self.roles)
        return self.utilisation * smallest

    @property
    def weights_gb(self) -> float:
        """Return the size of the weights of all roles on each device, in 1e9 bytes."""
        return ordered_sum(part.weights_gb for part in self.roles)

    def request_gb(self, tokens: int, rows: int) -> float:
        """Return the size of the caches of a request of ``tokens``, and of a state for each of
        ``rows``, in 1e9 bytes.

        A state cannot be rolled back: a verification keeps that behind each of its rows, until it
        is known which one counts.
        """
        return ordered_sum(part.request_gb(tokens, rows) for part in self.roles)

    def needed_gb(self, tokens: int, requests: int = 1, rows: int = 1) -> float:
        """Return the size of the weights and of all that ``requests`` of ``tokens`` each keep, in
        1e9 bytes.
        """
        return self.weights_gb + requests * self.request_gb(tokens, rows)

    @property
    def token_gb(self) -> float:
        """Return the size of the caches of one token in all layers in 1e9 bytes; of a state where
        there is no cache.
        """
        return self.request_gb(1, 0) or self.request_gb(0, 1)

    @property
    def room_tokens(self) -> int | None:
        """Return the number of tokens whose caches fit beside the weights: 0 if those do not fit,
        None where a token takes no room (layers without cache or state).
        """
        left_gb = self.limit_gb - self.weights_gb
        if left_gb <= 0:
            return 0
        if not self.token_gb:
            return None
        return int(left_gb / self.token_gb)


class Scenario(Frozen):
    """A scenario: everything that a run needs to know, as its file states it."""

    name: str = Field(pattern=r"^[\w.-]*\w[\w.-]*$")
    """What reports call it; the file's name where none is stated."""
    about: str = ""
    """What it is for, in a sentence."""
    strategy: AnyStrategy
    """How tokens are drafted and verified; a name alone takes every default."""
    method: Method | None = None
    """The published system that the strategy runs; its file states the strategy."""
    target: Placement | None = None
    """The model whose tokens come out, and where it runs; left out where ``durations`` state all
    times.
    """
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
    seed: int = Field(default=0, ge=0, le=10**18)
    """Of everything that is drawn by chance."""

    @property
    def method_name(self) -> str:
        """Return the name of the method, or of the strategy where no method is stated."""
        if self.method:
            return self.method.name
        return self.strategy.name

    @property
    def layers(self) -> int | None:
        """Return the number of layers of the target; None where stated durations do not say."""
        if self.durations and self.durations.layers_ms:
            return len(self.durations.layers_ms)
        if self.target:
            return self.target.model.num_hidden_layers
        return None

    @property
    def stages(self) -> int:
        """Return the number of stages of the target's pipeline; 0 without one."""
        if self.durations:
            return len(self.durations.stages_ms or ())
        if self.target and self.target.pipeline:
            return len(self.target.pipeline.stages)
        return 0

    @property
    def asked_batch(self) -> int:
        """Return how many requests would decode together in one replica if the cache had room for
        all: its clients, or its places. With arrivals it is all places there are.
        """
        places = self.serving.policy.max_requests or UNLIMITED
        if self.requests.arrivals:
            return places
        busiest = -(-self.requests.concurrency // self.serving.decoding)
        return min(busiest, places)

    @cached_property
    def batch(self) -> int:
        """Return how many requests decode together in one replica when nothing holds them up.

        The law is taken at this number, and the strategy is set for it. In a closed loop clients
        for which the cache has no room wait (:mod:`simulator.core.serving.waiting`).
        """
        batch = self.asked_batch
        if self.requests.varies:
            return batch
        while batch > 1:
            # a strategy that is set for fewer requests may draft more for each
            fitting = self._fitting(batch, self.strategy.fitted_to(batch, self.stages))
            if fitting >= batch:
                return batch
            batch = max(1, fitting)
        return batch

    @property
    def waits(self) -> bool:
        """Return whether clients of a closed loop wait as the cache has no room for all."""
        return self.batch < self.asked_batch

    @cached_property
    def plain_batch(self) -> int:
        """Return how many requests decode together in autoregressive decoding, which has the room
        of the draft and its cache as well.
        """
        if self.waits:
            return self.replace(strategy=Autoregressive()).batch
        return self.batch

    @cached_property
    def fitting_batch(self) -> int:
        """Return how many requests decode together at most in one replica where nothing is shared:
        all that it has places for, or as many as its cache has room for in the mean.
        """
        return max(1, self._fitting(self.batch, self.schedule))

    def _fitting(self, requests: int, schedule: Strategy) -> int:
        """Return how many of so many requests run at a time in the cache of one replica: all of
        them, or their mean number over time, rounded down.
        """
        memory = self.serving.memory.pool(self.kv_tokens, self._held_by(schedule))
        slots = self.serving.policy.step_slots(schedule.needs)
        if requests * memory.needed(self.lengths[2] + slots) <= memory.total:
            return requests
        prompts, outputs = self._different_lengths
        blocks = self.serving.policy.blocks_in_service(memory, prompts, outputs, slots)
        return int(running_together(memory, blocks, np.maximum(1.0, outputs - 1.0)))

    @cached_property
    def _different_lengths(self) -> NDArray[np.int64]:
        """Return prompt and output tokens of the requests, (2, requests), or (2, 1) where all are
        alike.
        """
        fixed = (self.requests.prompt_tokens, self.requests.output_tokens)
        if self.requests.sessions is None and all(isinstance(length, int) for length in fixed):
            return np.array(fixed, dtype=np.int64).reshape(2, 1)
        return np.concatenate(list(self.requests.drawn_lengths(self.seed)), axis=1)

    @cached_property
    def schedule(self) -> Strategy:
        """Return the strategy as it is set for this many requests at a time."""
        return self.strategy.fitted_to(self.batch, self.stages)

    @cached_property
    def exit(self) -> Exit | None:
        """Return the early exit that acceptance must know about; None where there is none."""
        return early_exit(self.schedule, self.layers)

    @property
    def least_covered(self) -> float:
        """Return the least share of the target's tokens that the draft can propose: 1 with a whole
        LM head, and where ``covered`` says what the strategy makes of a cut one.
        """
        draft = self.draft
        if draft is None or draft.lm_head_rows is None or not self.schedule.needs.draft_model:
            return 1.0
        if isinstance(self.schedule, CutsVocabulary) and self.schedule.covered is not None:
            return 1.0
        return usual_share(draft.lm_head_rows / draft.model.vocab_size)

    def at_rates(self, rates: Rates) -> Acceptance:
        """Return the verdicts of stated rates, in place of the acceptance of the scenario; beside a
        stated mean, which is that of a draft whose vocabulary is cut, they are so, too.
        """
        if self.acceptance.rescale:
            return uncut(self.schedule).reads(rates)
        return self.schedule.reads(rates)

    @property
    def contention(self) -> float:
        """Return how many times slower target and draft are while both are busy; 1 without shared
        memory.
        """
        if self.shared_memory:
            return self.shared_memory.slowdown.value
        return 1.0

    @property
    def one_lane(self) -> bool:
        """Return whether the draft sits on a device of the target's on the same machine: its own,
        or one on which a part of it lies.
        """
        if not (self.target and self.draft and self.target.machine):
            return False
        places = [self.target, *(lying.place for lying in self.target.offloaded)]
        names = {place.device.name for place in places}
        return self.target.machine == self.draft.machine and self.draft.device.name in names

    @cached_property
    def cost(self) -> Cost:
        """Return the cost model that durations come from.

        Raises :class:`BadInput` where neither ``durations`` nor a target is stated.
        """
        if self.durations:
            return StatedCost(self.durations, self.schedule.needs.draft_steps, self.contention)
        if self.target is None:
            raise BadInput.at(self.name, "is required and missing", "target")
        return HardwareCost(
            self.target, self.draft, self.channel, self.contention, drafting_of(self.schedule)
        )

    def replace(self, **updates: Any) -> Self:
        """Return a copy with fields replaced; ``model_copy`` would keep the cost and schedule of
        the old fields. Lengths of requests that stay are not drawn again.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        changed = type(self)(**fields | updates)
        if changed.requests is self.requests and changed.seed == self.seed:
            for name in ("lengths", "output_lengths"):
                if name in self.__dict__:
                    changed.__dict__[name] = self.__dict__[name]
        return changed

    @cached_property
    def lengths(self) -> tuple[float, float, int]:
        """Return mean prompt tokens, mean output tokens, and the tokens of the longest request,
        both together.
        """
        return self.requests.totals(self.seed)

    @cached_property
    def output_lengths(self) -> Counter[int]:
        """Return the number of requests by output tokens."""
        return self.requests.output_lengths(self.seed)

    @cached_property
    def outputs(self) -> Outputs:
        """Return the lengths of the outputs, as a law of finite ones has to know them."""
        requests = self.requests
        return Outputs(
            self.output_lengths,
            requests.past_end == "cut",
            drafts_first(self.schedule),
        )

    @property
    def mean_context(self) -> int:
        """Return the cached tokens halfway through the output, at which the law takes its
        durations.
        """
        prompt, output, _ = self.lengths
        return int(prompt + output // 2)

    def law_at(self, odds: OddsOf, requests: int, context: int | None = None) -> Law:
        """Return the strategy's law of ``requests`` at ``context`` cached tokens each; None:
        halfway through the output.
        """
        tokens = self.mean_context if context is None else context
        return self.schedule.law(
            self.cost, odds, requests, tokens, one_lane=self.one_lane, outputs=self.outputs
        )

    def service(self, acceptance: Acceptance) -> Service:
        """Return the service that the scenario describes, ready to run or to replay."""
        return Service(
            strategy=self.schedule,
            acceptance=acceptance,
            cost=self.cost,
            requests=self.requests,
            serving=self.serving,
            slo=self.slo,
            exit=self.exit,
            routing=recorded_routing(self.target, self.schedule, acceptance),
            kv_tokens=self.kv_tokens,
            held_tokens=self.held_tokens,
            block_bytes=self.block_bytes,
            weight_bytes=self.weight_bytes,
            one_lane=self.one_lane,
            stages=self.stages if self.schedule.traits.staged else 0,
            seed=self.seed,
        )

    @cached_property
    def block_bytes(self) -> float:
        """Return the bytes of a block of the KV cache, of target and draft in all layers, as a tier
        below it has it; 0 where nobody says.
        """
        memory = self.serving.memory
        tokens = memory.block_tokens
        if memory.token_bytes is not None:
            return memory.token_bytes * tokens
        if self.target is None:
            return 0.0
        size = cache_bytes(self.target, tokens) + head_bytes(self.schedule, self.target, tokens)
        if self.draft and self.schedule.needs.draft_model:
            size += cache_bytes(self.draft, tokens)
        return size

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of the weights that a replica needs to start, of target, heads and draft
        on all of their devices.
        """
        parts = [part for group in self.device_groups for part in group.roles]
        runtime_gb = 0.0
        if self.target and self.target.pipeline:
            runtime_gb = self.target.pipeline.runtime_gb.value * self.stages
        size_gb = ordered_sum(part.weights_gb * part.place.tensor_parallel for part in parts)
        return (size_gb - runtime_gb) * 1e9

    @property
    def start_s(self) -> float:
        """Return the seconds in which a replica starts; 0 where their number stays."""
        scaling = self.serving.scaling
        return scaling.seconds(self.weight_bytes) if scaling else 0.0

    def memory(self) -> Blocks:
        """Return an empty KV cache of the size that the hardware leaves."""
        return self.serving.memory.pool(
            self.kv_tokens, self.held_tokens, dropped_units(self.schedule)
        )

    @cached_property
    def held_tokens(self) -> Callable[[int], float] | None:
        """Return the function from the tokens of a request to the number of tokens whose room it
        takes; None where they are the same.

        A window drops what it has passed; a state takes room whatever the tokens, once for every
        row of a verification.
        """
        return self._held_by(self.schedule)

    def _held_by(self, schedule: Strategy) -> Callable[[int], float] | None:
        """Return :attr:`held_tokens` of a strategy that is set for some number of requests."""
        places = (self.target, self.draft)
        if not any(place and place.model.mixers for place in places):
            return None
        rows = schedule.needs.cache_tokens
        sizes = [(group, group.token_gb) for group in self.device_groups if group.token_gb]
        if not sizes:
            return None

        @cache
        def held(tokens: int) -> float:
            return max(group.request_gb(tokens, rows) / size for group, size in sizes)

        return held

    @cached_property
    def kv_tokens(self) -> int | None:
        """Return how many tokens the KV caches of all requests of a replica have room for; None
        without a limit.
        """
        stated = self.serving.memory.kv_tokens
        if stated is not None:
            return stated
        rooms = [group.room_tokens for group in self.device_groups]
        return min((room for room in rooms if room is not None), default=None)

    @cached_property
    def device_groups(self) -> list[DeviceGroup]:
        """Return the stages of the target's pipeline, or the target, and the draft with the memory
        that each needs; those that share a memory are in one group.
        """
        groups: dict[tuple[str, str], list[RoleMemory]] = {}
        if self.target and self.target.pipeline:
            runtime_gb = self.target.pipeline.runtime_gb.value
            for number, part in enumerate(self.target.parts, start=1):
                stage = f"stage {number}"
                size = part.weights_gb() + runtime_gb
                groups[stage, ""] = [RoleMemory(stage, part, size)]
        elif self.target:
            extra = extra_memory(self.strategy, self.target.model)
            memory = _role_memory("target", self.target, extra)
            groups[self._memory_of(memory)] = [memory]
            for lying in self.target.offloaded:
                role = f"offload {lying.name}"
                there = RoleMemory(role, lying.place, lying.weights_gb, 0.0, lying.caches)
                groups.setdefault(self._memory_of(there), []).append(there)
        if self.draft and self.strategy.needs.draft_model:
            memory = _role_memory("draft", self.draft, ExtraMemory())
            memory = memory._replace(caches=caches_of_draft(self.strategy))
            groups.setdefault(self._memory_of(memory), []).append(memory)
        utilisation = self.serving.memory.utilisation
        return [DeviceGroup(tuple(roles), utilisation) for roles in groups.values()]

    def _memory_of(self, part: RoleMemory) -> tuple[str, str]:
        """Return what tells the memory of a role from others: its machine and its device there.

        Memory that is shared is one to a machine; a role without a machine has one of its own, but
        what lies on a CPU lies in the memory of the host.
        """
        device = part.place.device
        if part.place.machine:
            machine = part.place.machine
        elif device.kind == "cpu":
            machine = "host"
        else:
            machine = part.role
        if self.shared_memory:
            return machine, ""
        return machine, device.name


@lru_cache(MOST_ROLES)
def _role_memory(role: str, place: Placement, extra: ExtraMemory) -> RoleMemory:
    """Return a role with the size of its weights and of what a method adds to them."""
    weights_gb = place.weights_gb(extra.weights) + extra.table_bytes / 1e9
    head_gb = place.kv_gb(1) / place.layers_here * extra.kv_layers
    return RoleMemory(role, place, weights_gb, head_gb)


def resolved(scenario: Scenario) -> PlainData:
    """Return the scenario with every default and every looked-up file in place, as plain data."""
    return scenario.model_dump(mode="json", exclude_none=True)
