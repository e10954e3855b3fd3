"""A service: one or several replicas of a model behind a router, with everything that a simulation
of them needs.

Each replica is a scheduler in a world of its own; all worlds share one clock. Requests come from
one source, through the collector that knows which of them count, to the router or straight to the
only replica::

    requests -> MetricsCollector -> [Fleet: the router] -> Scheduler of a replica -> lanes of its
    World

Where their number follows the load there is one for every place, whether it is filled or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from simpy import Environment

from simulator.core.acceptance.assignment import TraceAssignment
from simulator.core.acceptance.routing import RecordedRouting
from simulator.core.acceptance.sources import Acceptance, Exit
from simulator.core.cost.protocol import Cost
from simulator.core.numeric import ordered_sum
from simulator.core.serving.cache.fields import NO_STORES
from simulator.core.serving.cache.tiers import BlockStore, TieredCache
from simulator.core.serving.collector import MetricsCollector
from simulator.core.serving.fields import Serving
from simulator.core.serving.fleet.between import Between
from simulator.core.serving.fleet.scaled import Recent, ScaledFleet
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.lazy.batch import lazy_batch
from simulator.core.serving.metrics import Tally
from simulator.core.serving.requests import Request, Requests, Source
from simulator.core.serving.router import Fleet
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.slo import Slo
from simulator.core.serving.step_times import step_times
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import dropped_units, line_of
from simulator.core.strategies.common.step import Lanes
from simulator.core.world import Span, World

OnIteration = Callable[[Iteration], object]
OnRequest = Callable[[Request], object]


@dataclass(frozen=True)
class Service:
    """A strategy on its hardware, the requests that it is asked to serve, and how they are served.

    ``run`` and ``replay`` build worlds, schedulers, router and collector anew and let every request
    through.
    """

    strategy: Strategy
    acceptance: Acceptance
    cost: Cost
    requests: Requests
    serving: Serving
    """Policy, KV cache, number of replicas and their router."""
    slo: Slo | None = None
    exit: Exit | None = None
    """The early exit that acceptance has to know about; None without one."""
    routing: RecordedRouting | None = None
    """Which experts of the target the windows read, where that is recorded."""
    kv_tokens: int | None = None
    """Tokens that the KV cache of one replica has room for; None without a limit."""
    held_tokens: Callable[[int], float] | None = None
    """From the tokens of a request to those whose room it takes; None where they are the same."""
    block_bytes: float = 0.0
    """Bytes of a block of the KV cache in the tiers of memory below it."""
    weight_bytes: float = 0.0
    """Bytes of the weights that a replica needs to start."""
    one_lane: bool = False
    """Whether target and draft are one device, which does one thing at a time."""
    stages: int = 0
    """Stages of the target's pipeline, each a lane of its own; 0 where the target is one lane."""
    lazy: bool = True
    """Whether steps are taken by a lazy batch where it can; the result is the same, to the last
    bit.
    """
    seed: int = 0
    """Seed of everything that is drawn: arrivals, lengths, jitter of links."""

    def run(
        self,
        spans: int = 0,
        on_iteration: OnIteration | None = None,
        on_finished: OnRequest | None = None,
        on_arrived: OnRequest | None = None,
    ) -> ServiceRun:
        """Simulate on the event engine and return what happened.

        Of each lane of the first replica, the first ``spans`` busy intervals are kept.
        ``on_iteration`` is called with every iteration of every replica, ``on_arrived`` with every
        request that has come, ``on_finished`` with every one that has ended.
        """
        first = World(spans)
        environment = first.environment
        count = self.serving.copies
        worlds = [first, *(World(0, environment) for _ in range(count - 1))]
        collector = self._collector(on_finished, on_arrived)
        fleet = self._fleet(collector, environment) if count > 1 else None
        cost = self.cost.drawn(self.seed)
        shared = self.serving.memory.stores(self.block_bytes, shared=True)
        replicas = [
            self.scheduler(fleet or collector, cost, numbered(on_iteration, number), shared)
            for number in range(1, count + 1)
        ]
        collector.watch(replicas)
        if isinstance(fleet, ScaledFleet):
            fleet.open_places(replicas)
        elif fleet:
            fleet.open(replicas)
        for world, replica in zip(worlds, replicas, strict=True):
            lanes = lanes_of(world, self.strategy, self.cost, self.stages, self.one_lane)
            for _ in range(self.strategy.needs.in_flight):
                environment.process(replica.run(world, lanes))
        environment.run()
        for replica in replicas:
            replica.ledger.catch_up()
        busy = [{lane.name: lane.busy_s for lane in world.lanes.values()} for world in worlds]
        if isinstance(fleet, ScaledFleet):
            # looks go on until nobody is here
            fleet.close_books(fleet.ended_s)
            done = self._ended(replicas, collector, fleet.ended_s, busy, first.spans)
            return replace(done, scaled=fleet)
        return self._ended(replicas, collector, first.now, busy, first.spans)

    def _fleet(self, collector: MetricsCollector, environment: Environment) -> Fleet:
        """Return the router with its replicas, whose number follows the load where it may."""
        router = self.serving.router
        scaling = self.serving.scaling
        if scaling is None or not scaling.moves:
            return Fleet(collector, router, environment)
        recent = None
        if scaling.by == "slo":
            recent = Recent(scaling.recent_s.value, self.slo, self.requests.classes or {})
        start_s = scaling.seconds(self.weight_bytes)
        replicas = self.serving.replicas
        return ScaledFleet(collector, router, environment, scaling, start_s, replicas, recent)

    def replay(self) -> ServiceRun:
        """Follow one replica without events, each iteration as long as the law says, and return
        what happened.
        """
        collector = self._collector()
        scheduler = self.scheduler(collector, self.cost)
        collector.watch([scheduler])
        end_s = scheduler.replay(self.one_lane)
        return self._ended([scheduler], collector, end_s, [], [])

    def _collector(
        self, on_finished: OnRequest | None = None, on_arrived: OnRequest | None = None
    ) -> MetricsCollector:
        deal = TraceAssignment(self.acceptance, self.requests.flavours_by_task)
        return MetricsCollector(
            self.requests.source_of(self.seed, deal),
            self.requests,
            self.slo,
            on_finished,
            on_arrived,
        )

    def scheduler(
        self,
        source: Source,
        cost: Cost,
        on_iteration: OnIteration | None = None,
        shared: Mapping[str, BlockStore] = NO_STORES,
    ) -> Scheduler:
        """Return a replica that fetches its requests from ``source``, and has the tiers of memory
        that are ``shared`` together with others.
        """
        stated = self.serving.memory
        memory = stated.pool(
            self.kv_tokens,
            self.held_tokens,
            dropped_units(self.strategy),
            self.block_bytes,
            shared,
        )
        scheduler = Scheduler(
            self.strategy,
            self.acceptance,
            self.exit,
            source,
            cost,
            self.serving.policy,
            memory,
            log=on_iteration,
        )
        scheduler.routing = self.routing
        if cost is self.cost:
            scheduler.times = step_times(self.strategy, cost)
        handed = isinstance(source, Fleet)
        if self.serving.admission:
            scheduler.most_waiting = self.serving.admission.max_waiting
        decides = bool(self.requests.classes or self.serving.admission)
        watched = handed and self.serving.watches_memory
        lazy = self.lazy and not (watched or decides)
        if isinstance(memory, TieredCache):
            scheduler.load_from(memory, stated.prefetch == "queued")
        elif lazy and (self.requests.all_count or not handed):
            scheduler.lazy = lazy_batch(scheduler, self.one_lane, handed)
        return scheduler

    def _ended(
        self,
        replicas: Sequence[Scheduler],
        collector: MetricsCollector,
        end_s: float,
        busy_s: Sequence[Mapping[str, float]],
        spans: list[Span],
        between: Between | None = None,
    ) -> ServiceRun:
        """Close the books at ``end_s`` and check them."""
        for replica in replicas:
            replica.check()
            replica.ledger.wait(0, end_s)
            replica.ledger.hold(end_s)
        collector.end(end_s)
        done = ServiceRun(self, replicas, collector, end_s, busy_s, spans, between)
        done.tally.check()
        return done


def lanes_of(
    world: World, strategy: Strategy, cost: Cost, stages: int, one_lane: bool = False
) -> Lanes:
    """Make the lanes of a replica in its world, with a memory that target and draft share where
    they slow each other down.
    """
    if cost.contention > 1.0:
        world.share_memory(("target", "draft"), cost.contention)
    target = world.lane("target")
    draft = target if one_lane else world.lane("draft")
    rendezvous = world.lane("rendezvous")
    of_stages = tuple(world.lane(f"stage {number}") for number in range(1, stages + 1))
    links = tuple(world.lane(f"link {number}") for number in range(1, stages))
    lanes = Lanes(target, draft, rendezvous, of_stages, links)
    return lanes._replace(line=line_of(strategy, cost, lanes))


def numbered(on_iteration: OnIteration | None, replica: int) -> OnIteration | None:
    """Return a function that hands iterations on with the number of their replica; None where
    nobody wants them.
    """
    if on_iteration is None:
        return None
    return lambda iteration: on_iteration(iteration._replace(replica=replica))


@dataclass(frozen=True)
class ServiceRun:
    """A service that has served all its requests, with its books closed and checked."""

    service: Service
    replicas: Sequence[Scheduler]
    collector: MetricsCollector
    end_s: float
    """When the last request left, in seconds."""
    busy_s: Sequence[Mapping[str, float]]
    """For each replica, the busy seconds of each lane by name; empty for a replay."""
    spans: list[Span]
    """The first busy intervals of the first replica's lanes; empty for a replay."""
    between: Between | None = None
    """What handed requests over, where prefill and decode are apart."""
    scaled: ScaledFleet | None = None
    """The replicas that came and went, where their number follows the load."""

    @property
    def replica_s(self) -> float:
        """Return the seconds of all replicas, from their starts to their ends, summed over them."""
        if self.scaled:
            return self.scaled.replica_s
        return len(self.replicas) * self.end_s

    @property
    def mean_replicas(self) -> float:
        """Return how many replicas there were, mean over time."""
        if self.scaled:
            return self.scaled.replica_s / self.end_s
        return len(self.replicas)

    @property
    def idle_s(self) -> float:
        """Return the seconds of replicas that serve and have no request, summed over them."""
        occupied_s = ordered_sum(replica.ledger.tally.occupied_s for replica in self.replicas)
        starting_s = self.scaled.starting_s if self.scaled else 0.0
        return max(0.0, self.replica_s - starting_s - occupied_s)

    @cached_property
    def tally(self) -> Tally:
        """Return counts and times of all replicas together, in one tally."""
        tallies = [replica.ledger.tally for replica in self.replicas]
        if self.between:
            tallies.append(self.between.ledger.tally)
        return Tally.pooled(tallies)
