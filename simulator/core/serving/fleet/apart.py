"""A service whose prefill and decode are apart, with a link in between.

::

    requests -> MetricsCollector -> Pools -> Scheduler (prefill) -> Between -> Scheduler (decode)
                                      |--------------------------> Scheduler (both)

Schedulers know nothing of it but who leaves them behind its prefill, and who comes with its prompt
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from numpy.random import default_rng
from simpy import Environment

from simulator.core.serving.cache.tiers import BlockStore
from simulator.core.serving.fleet.between import Between, Luggage, Receiver
from simulator.core.serving.fleet.handover import Handover, PoolRole
from simulator.core.serving.metrics import BrokenRunError
from simulator.core.serving.requests import Request, Source
from simulator.core.serving.router import Dealer, Fleet, RoutedReplica, Router
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.service import (
    OnIteration,
    OnRequest,
    Service,
    ServiceRun,
    lanes_of,
    numbered,
)
from simulator.core.world import Span, World


class Pools(Fleet):
    """Pools of replicas with the router before them: whoever comes goes to a replica that reads
    prompts.
    """

    exhausted = False
    """A replica never knows that nobody comes any more: it is woken when somebody does."""

    def __init__(
        self, source: Source, router: Router, environment: Environment, between: Between
    ) -> None:
        super().__init__(source, router, environment)
        self._between = between
        self._prefills: dict[RoutedReplica, tuple[Scheduler, int]] = {}
        """Replicas that only read prompts, with their numbers among all."""
        self._entries: Dealer

    def open_pools(self, replicas: Sequence[Member], receivers: list[Receiver]) -> None:
        """Send these replicas what is there at the start, and from now on whatever arrives."""
        between = self._between
        between.open(Dealer(self._router, receivers, self.now), receivers)
        entries = []
        for number, (role, replica) in enumerate(replicas, start=1):
            if role != "decode":
                entries.append(replica)
            if role == "prefill":
                self._prefills[replica] = replica, number
                replica.passes_on = partial(between.take, replica, number)
        self._entries = Dealer(self._router, entries, self.now)
        self.dispatch()

    def send(self, request: Request) -> None:
        """Send a request to a replica that reads it, once there is room where it will decode."""
        replica = self._entries.replica_for(request)
        prefill = self._prefills.get(replica)
        first = self._between.handover.routing == "decode_first"
        if prefill and first and request.output_tokens > 1:
            self._between.reserve(request, *prefill)
        else:
            replica.submit(request)
            replica.ring()


Member = tuple[PoolRole, Scheduler]
"""A replica and the role of its pool."""


@dataclass(frozen=True)
class ServicePool:
    """Replicas of one role, each as the service has it; ``serving.replicas`` says how many."""

    name: str
    """What reports call it: its role, with a number where several have that."""
    role: PoolRole
    service: Service


class Started(NamedTuple):
    """A replica that runs in a world of its own."""

    pool: ServicePool
    replica: Scheduler
    world: World
    shown: bool
    """Whether its spans are kept: it is the first of its pool."""
    receiver: Receiver | None
    """What takes requests over for it, if it only decodes."""


@dataclass(frozen=True)
class ApartService(Service):
    """Pools of replicas; the other fields are those of the first pool that decodes."""

    pools: tuple[ServicePool, ...] = ()
    handover: Handover | None = None
    """How requests go over; None where every pool does both."""
    luggage: Luggage | None = None
    """What a request takes along."""
    plain_tokens: int = 0
    """Tokens behind its prompt up to which the steps of a request are plain ones."""

    def run(
        self,
        spans: int = 0,
        on_iteration: OnIteration | None = None,
        on_finished: OnRequest | None = None,
        on_arrived: OnRequest | None = None,
    ) -> ServiceRun:
        """Simulate on the event engine and return what happened.

        Of each lane of the first replica of a pool, and of each link, the first ``spans`` busy
        intervals are kept.
        """
        links = World(spans)
        environment = links.environment
        collector = self._collector(on_finished, on_arrived)
        between = self._between(links)
        fleet = Fleet(collector, self.serving.router, environment)
        if between:
            fleet = Pools(collector, self.serving.router, environment, between)
        shared = self._shared_tiers()
        started: list[Started] = []
        for pool in self.pools:
            for place in range(pool.service.serving.replicas):
                world = World(0 if place else spans, environment)
                log = numbered(on_iteration, len(started) + 1)
                replica = pool.service.scheduler(
                    fleet, pool.service.cost.drawn(self.seed), log, shared
                )
                started.append(self._start(pool, replica, len(started) + 1, place == 0, world))
        replicas = [one.replica for one in started]
        collector.watch(replicas)
        if isinstance(fleet, Pools):
            members = [(one.pool.role, one.replica) for one in started]
            fleet.open_pools(members, [one.receiver for one in started if one.receiver])
        else:
            fleet.open(replicas)
        environment.run()
        if between:
            between.check()
        busy = [{lane.name: lane.busy_s for lane in one.world.lanes.values()} for one in started]
        kept = _spans(links, started)
        return self._ended(replicas, collector, environment.now, busy, kept, between)

    def _between(self, links: World) -> Between | None:
        """Return what hands requests over, on lanes of ``links``; None where every pool does
        both.
        """
        if self.handover and self.luggage:
            random = default_rng((self.seed, 2))
            return Between(self.handover, self.luggage, links.environment, links, random)
        if any(pool.role != "both" for pool in self.pools):
            raise ValueError("pools need to know how requests are handed over")
        return None

    def _shared_tiers(self) -> dict[str, BlockStore]:
        """Return the empty tiers that the replicas of all pools share, by name; where blocks of one
        pool are larger than those of another there is room for so many of the largest.
        """
        caching = [
            pool.service for pool in self.pools if pool.service.serving.memory.prefix_caching
        ]
        largest = max((service.block_bytes for service in caching), default=0.0)
        return self.serving.memory.stores(largest, shared=True)

    def _start(
        self, pool: ServicePool, replica: Scheduler, number: int, shown: bool, world: World
    ) -> Started:
        """Start a replica of a pool in its world; ``number`` is its own among all, from 1, and its
        lanes are ``shown``, or not.
        """
        service = pool.service
        replica.lazy = None  # who is handed over is stepped
        lanes = lanes_of(world, service.strategy, service.cost, service.stages, service.one_lane)
        receiver = None
        if pool.role == "decode" and self.luggage:
            replica.plain_tokens = self.plain_tokens
            lane = lanes.target if self.luggage.on_target else lanes.draft
            receiver = Receiver(replica, number, lane)
        world.environment.process(replica.run(world, lanes))
        return Started(pool, replica, world, shown, receiver)

    def replay(self) -> ServiceRun:
        """Raise :class:`BrokenRunError`: a replay follows one replica."""
        raise BrokenRunError("a replay follows one replica, and prefill and decode are apart")


def _spans(links: World, started: Sequence[Started]) -> list[Span]:
    """Return the kept spans of the links and of the replicas that are shown, in order of time."""
    spans = list(links.spans)
    for one in started:
        if one.shown:
            named = (span._replace(lane=f"{one.pool.name} {span.lane}") for span in one.world.spans)
            spans += named
    return sorted(spans, key=_begin)


def _begin(span: Span) -> tuple[float, float]:
    return span.start_s, span.end_s
