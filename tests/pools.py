"""Services in miniature whose prefill and decode are apart, for tests."""

from __future__ import annotations

from simulator.core.acceptance.sources import Acceptance, Cycle
from simulator.core.cost.device import Link
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.fields import Serving
from simulator.core.serving.fleet.apart import ApartService, ServicePool
from simulator.core.serving.fleet.between import Luggage
from simulator.core.serving.fleet.handover import Handover, PoolRole
from simulator.core.serving.policies import FixedBatch, Policy, PrefillFirst
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy

SECOND = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000))
"""Every pass takes a second."""
FREE = Link(latency_us=0, bandwidth_gb_s=1e30)
"""A link that takes no time."""
BYTE_A_SECOND = Link(latency_us=0, bandwidth_gb_s=1e-9)
"""A link that carries a byte a second."""


def handover(link: Link = FREE, **settings: object) -> Handover:
    """A handover over a link."""
    return Handover.model_validate({"link": link, **settings})


def apart(
    pools: dict[PoolRole, int],
    requests: Requests,
    over: Handover | None = None,
    strategy: Strategy | None = None,
    acceptance: Acceptance | None = None,
    cost: Cost = SECOND,
    luggage: Luggage | None = None,
    decode_policy: Policy | None = None,
    prefill_policy: Policy | None = None,
    kv_tokens: int | None = None,
    block_tokens: int = 8,
    router: str = "round_robin",
    plain_tokens: int = 0,
) -> ApartService:
    """Pools of replicas by role, each with one place unless a policy says otherwise."""
    strategy = strategy or Autoregressive()
    acceptance = acceptance or Cycle((0,))
    memory = KVMemory(block_tokens=block_tokens)
    policies = {
        "prefill": prefill_policy or PrefillFirst(max_requests=1, watermark=0.0),
        "decode": decode_policy or FixedBatch(max_requests=1),
        "both": decode_policy or FixedBatch(max_requests=1),
    }
    members = []
    for role, replicas in pools.items():
        serving = Serving(policy=policies[role], memory=memory, replicas=replicas, router=router)
        service = Service(
            strategy, acceptance, cost, requests, serving, kv_tokens=kv_tokens, lazy=False
        )
        members.append(ServicePool(role, role, service))
    last = members[-1].service
    return ApartService(
        strategy,
        acceptance,
        cost,
        requests,
        last.serving,
        kv_tokens=kv_tokens,
        pools=tuple(members),
        handover=over or handover(),
        luggage=luggage or Luggage(lambda tokens: 0.0),
        plain_tokens=plain_tokens,
    )
