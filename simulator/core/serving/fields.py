"""The fields of ``serving`` in a scenario: memory, replicas, and a policy and a router of this
package or of another one.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Field

from simulator.core.cost.placement import Placement
from simulator.core.plugin_group import POLICIES, ROUTERS
from simulator.core.quantities import (
    Frozen,
    by_name_alone,
    descendants,
    members,
    otherwise_named,
)
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.fleet.handover import Handover, PoolRole
from simulator.core.serving.fleet.scaling import Scaling
from simulator.core.serving.policies import FixedBatch, Policy
from simulator.core.serving.requests import MOST_TOGETHER
from simulator.core.serving.router import LeastOutstanding, Router


@cache
def policies() -> dict[str, type[Policy]]:
    """Return all policies by name: the shipped ones, then those that other packages register in
    ``POLICIES``.
    """
    ours = [policy for policy in descendants(Policy) if policy.__module__ == Policy.__module__]
    return members(Policy, ours, POLICIES)


@cache
def routers() -> dict[str, type[Router]]:
    """Return all routers by name: the shipped ones, then those that other packages register in
    ``ROUTERS``.
    """
    ours = [router for router in descendants(Router) if router.__module__ == Router.__module__]
    return members(Router, ours, ROUTERS)


if TYPE_CHECKING:
    AnyPolicy = Policy
    AnyRouter = Router
else:
    _Policies = Union[tuple(policies().values())]  # noqa: UP007
    AnyPolicy = Annotated[_Policies, Field(discriminator="name")]
    _Routers = Union[tuple(routers().values())]  # noqa: UP007
    AnyRouter = Annotated[_Routers, Field(discriminator="name")]


def _or_a_name(schema: dict[str, Any]) -> None:
    """Let the schema of a router hold its name instead of its fields, as a file may."""
    by_fields = {key: schema.pop(key) for key in ("discriminator", "oneOf")}
    names = []
    for name, router in routers().items():
        if not any(field.is_required() for field in router.model_fields.values()):
            names.append(name)
    schema["anyOf"] = [{"enum": names}, by_fields]


class ReplicaPool(Frozen):
    """Replicas of one role: they read prompts, decode what others have read, or do both.

    What a pool does not state is as the scenario has it.
    """

    role: PoolRole
    """What its replicas do."""
    replicas: int = Field(default=1, gt=0, le=10_000)
    """How many there are."""
    target: Placement | None = None
    """Where the target runs, and how; fields that are left out are those of the scenario's
    target.
    """
    policy: Annotated[AnyPolicy, otherwise_named("fixed_batch")] | None = None
    """Who takes part in the next iteration of a replica."""
    draft: bool = True
    """Whether the draft is there, too: in a prefill pool it reads prompts beside the target."""


class AdmissionControl(Frozen):
    """Whom a replica turns away (``--max-queued-requests`` of SGLang): who comes while
    ``max_waiting`` requests wait; with priorities, whoever is last in the queue then and has never
    run.
    """

    max_waiting: int = Field(gt=0, le=MOST_TOGETHER)
    """Requests that may wait before one replica."""


class Serving(Frozen):
    """How requests are batched and where their caches live; ``replicas`` of everything stand behind
    a ``router``, or ``pools`` of them, each with a role.
    """

    policy: Annotated[AnyPolicy, otherwise_named("fixed_batch")] = FixedBatch()
    """Who takes part in the next iteration."""
    memory: KVMemory = KVMemory()
    """How the memory beside the weights is used."""
    replicas: int = Field(default=1, gt=0, le=10_000)
    """Copies of everything; with ``scaling`` as many as there are at the beginning."""
    scaling: Scaling | None = None
    """How their number follows the load; by default it does not."""
    router: Annotated[
        AnyRouter,
        otherwise_named(LeastOutstanding().name),
        BeforeValidator(by_name_alone),
        Field(json_schema_extra=_or_a_name),
    ] = LeastOutstanding()
    """How a request's replica is chosen."""
    pools: tuple[ReplicaPool, ...] | None = Field(default=None, min_length=1, max_length=64)
    """Replicas with roles, where prefill and decode are apart; else all do both."""
    handover: Handover | None = None
    """How a request goes from a prefill pool to a decode pool."""
    admission: AdmissionControl | None = None
    """Whom a replica turns away; by default all wait."""

    @property
    def copies(self) -> int:
        """Return how many replicas there are, of all roles, at most."""
        if self.pools is None:
            return self.scaling.most if self.scaling else self.replicas
        return sum(pool.replicas for pool in self.pools)

    @property
    def decoding(self) -> int:
        """Return how many replicas decode, at most."""
        if self.pools is None:
            return self.copies
        return sum(pool.replicas for pool in self.pools if pool.role != "prefill")

    @property
    def watches_memory(self) -> bool:
        """Return whether router or scaling ask for the memory in use."""
        by_memory = self.scaling is not None and self.scaling.by == "kv_use"
        return self.router.watches_memory or by_memory
