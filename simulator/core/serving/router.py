"""Several replicas behind a router: each request goes to one of them the moment it arrives, and
stays there.

A router knows of each replica what a load balancer knows (:class:`RoutedReplica`), and never how
long a request will be. Where replicas are equal, the one after the last choice is taken, so that an
idle fleet is not its first replica.

Replicas may stand in pools, each with a role that its router names; a request has one role, and is
dealt out in the pool of that role alone. The last choice is one of its pool.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import ClassVar, Literal, Protocol

from simpy import Environment

from simulator.core.quantities import Named
from simulator.core.serving.requests import Request, Source
from simulator.core.world import at


class RoutedReplica(Protocol):
    """What a router knows of a replica, and how a request gets there."""

    @property
    def waiting(self) -> int:
        """Return how many requests wait to be admitted."""

    @property
    def outstanding(self) -> int:
        """Return how many requests have not got their last token, waiting or running."""

    def cached(self, request: Request) -> int:
        """Return how many tokens of a request's prompt are in its cache."""

    def submit(self, request: Request) -> None:
        """Take a request into the system, at its time of arrival."""

    def ring(self) -> None:
        """Look now whether there is something to do."""


class Router(Named, ABC):
    """The base of all routers."""

    looks_into_caches: ClassVar[bool] = False
    """Whether it asks for what is cached, which needs a cache that keeps prompts for others."""

    @abstractmethod
    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica that gets a request.

        ``turn`` holds the pool of its role, first the one after its last choice, so that the
        first of equals, as ``min`` finds it, is the one whose turn it is.
        """

    def pools(self, replicas: int) -> Mapping[str, int]:
        """Return how many of so many replicas have each role, by role, in the order of their
        numbers; by default all of them one without a name.
        """
        return {"": replicas}

    def role(self, request: Request) -> str:
        """Return the role of the replicas among which a request is dealt out."""
        return ""

    def roles(self, replicas: int) -> list[str]:
        """Return the role of each of so many replicas."""
        return [role for role, count in self.pools(replicas).items() for _ in range(count)]

    def refusal(self, replicas: int) -> str | None:
        """Return why so many replicas cannot stand in its pools; None if they can."""
        pools = self.pools(replicas)
        if min(pools.values(), default=0) > 0 and sum(pools.values()) == replicas:
            return None
        divided = " and ".join(f"{count} {role}" for role, count in pools.items())
        return (
            f"{self.name} makes {divided} of {replicas:,} replicas; expected one or more of each "
            "role, and no others"
        )


class RoundRobin(Router):
    """Round robin: the replicas in turn, whatever they do."""

    name: Literal["round_robin"] = "round_robin"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one whose turn it is."""
        return turn[0]


class LeastOutstanding(Router):
    """Least outstanding (LOR of Vidur; LEAST_REQUEST of Envoy over all hosts;
    ``least_outstanding_requests`` of AWS target groups): the replica with the fewest requests that
    have not got their last token, waiting or running.
    """

    name: Literal["least_outstanding"] = "least_outstanding"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with the fewest outstanding requests."""
        return min(turn, key=lambda replica: replica.outstanding)


class JoinShortestQueue(Router):
    """Shortest queue (the queue scorer of the Gateway API inference extension, over
    ``num_requests_waiting`` of vLLM): the replica with the fewest requests that wait to be
    admitted, among equals the one with the fewest outstanding.

    In queueing theory a queue also holds who is being served; with one place in each replica that
    is ``least_outstanding``.
    """

    name: Literal["join_shortest_queue"] = "join_shortest_queue"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with the shortest queue, then with the fewest outstanding requests."""
        return min(turn, key=lambda replica: (replica.waiting, replica.outstanding))


class MostCached(Router):
    """Most cached (``kvaware`` of vLLM's production stack): the replica whose cache has most of the
    prompt, among equals the one with the fewest outstanding requests.

    SGLang's ``cache_aware`` leaves it for the least loaded where loads are far apart.
    """

    name: Literal["most_cached"] = "most_cached"
    looks_into_caches: ClassVar[bool] = True

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with most of the prompt, then with the fewest outstanding requests."""
        return min(turn, key=lambda replica: (-replica.cached(request), replica.outstanding))


class Dealer:
    """Deals requests out among the replicas of one role."""

    def __init__(self, router: Router, replicas: Sequence[RoutedReplica]) -> None:
        self._router = router
        self._replicas = replicas
        self._next = 0
        """The number of the replica after the last choice."""

    def replica_for(self, request: Request) -> RoutedReplica:
        """Return the replica that gets a request; the turn passes to the one after it."""
        turn = [*self._replicas[self._next :], *self._replicas[: self._next]]
        chosen = self._router.choose(request, turn)
        self._next = (self._next + turn.index(chosen) + 1) % len(turn)
        return chosen


class Fleet:
    """Replicas and the router before them, on one clock; a replica is handed its requests and does
    not ask for any.
    """

    def __init__(self, source: Source, router: Router, environment: Environment) -> None:
        self._source = source
        self._environment = environment
        self._router = router
        self._pools: Mapping[str, Dealer] = {}
        self._wakeup_at_s = -inf

    def open(self, replicas: Sequence[RoutedReplica]) -> None:
        """Send these replicas what is there at the start, and from now on whatever arrives."""
        by_role = defaultdict[str, list[RoutedReplica]](list)
        for role, replica in zip(self._router.roles(len(replicas)), replicas, strict=True):
            by_role[role].append(replica)
        self._pools = {role: Dealer(self._router, pool) for role, pool in by_role.items()}
        self.dispatch()

    def dispatch(self) -> None:
        """Send every request that has arrived by now, and come back when the next one arrives."""
        for request in self._source.due(self._environment.now):
            self.send(request)
        next_s = self._source.next_s
        if self._environment.now < next_s < inf and next_s != self._wakeup_at_s:
            self._wakeup_at_s = next_s
            arrival = at(self._environment, next_s)
            arrival.callbacks.append(lambda _: self.dispatch())

    def send(self, request: Request) -> None:
        """Send a request, as it arrives, to a replica."""
        pool = self._pools[self._router.role(request)]
        replica = pool.replica_for(request)
        replica.submit(request)
        replica.ring()

    # ---- the source that a replica sees

    next_s = inf
    """When the next request arrives: unknown to a replica, which is woken."""

    @property
    def exhausted(self) -> bool:
        """Return whether no more requests will come."""
        return self._source.exhausted

    def due(self, now: float) -> Iterable[Request]:
        """Return nothing: a replica is handed its requests."""
        return ()

    def ended(self, request: Request) -> None:
        """Tell the source that a request has left the system, and send what its client has next."""
        self._source.ended(request)
        self.dispatch()

    def close(self) -> None:
        """Let no more requests come."""
        self._source.close()
