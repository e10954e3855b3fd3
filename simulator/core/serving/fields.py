"""The fields of ``serving`` in a scenario: a policy of this package or of another one, memory,
replicas and their router.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field

from simulator.core.plugin_group import POLICIES
from simulator.core.quantities import Frozen, descendants, members, otherwise_named
from simulator.core.serving import policies as shipped
from simulator.core.serving.memory import KVMemory
from simulator.core.serving.policies import FixedBatch, Policy


@cache
def policies() -> dict[str, type[Policy]]:
    """Return all policies by name: the shipped ones, then those that other packages register in
    ``POLICIES``.
    """
    ours = [policy for policy in descendants(Policy) if policy.__module__ == shipped.__name__]
    return members(Policy, ours, POLICIES)


if TYPE_CHECKING:
    AnyPolicy = Policy
else:
    _Any = Union[tuple(policies().values())]  # noqa: UP007
    AnyPolicy = Annotated[_Any, Field(discriminator="name")]

RouterName = Literal["round_robin", "least_outstanding", "join_shortest_queue", "most_cached"]
"""How a replica is chosen (:mod:`simulator.core.serving.router`)."""


class Serving(Frozen):
    """How requests are batched and where their caches live; ``replicas`` of everything stand behind
    a ``router``.
    """

    policy: Annotated[AnyPolicy, otherwise_named("fixed_batch")] = FixedBatch()
    """Who takes part in the next iteration."""
    memory: KVMemory = KVMemory()
    """How the memory beside the weights is used."""
    replicas: int = Field(default=1, gt=0, le=10_000)
    """Copies of everything."""
    router: RouterName = "least_outstanding"
    """How a request's replica is chosen."""
