"""Several replicas behind a router: each request goes to one of them the moment it arrives, and
stays there.

A router knows of each replica what a load balancer knows (:class:`RoutedReplica`), and never how
long a request will be. Where replicas are equal, the one after the last choice is taken, so that an
idle fleet is not its first replica.

Some routers remember what they have sent where. Such a memory is one of a run and of a pool: a
router is what a scenario says, and what it opens chooses.

Replicas may stand in pools, each with a role that its router names; a request has one role, and is
dealt out in the pool of that role alone. The last choice is one of its pool.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import ClassVar, Literal, Protocol, runtime_checkable

from simpy import Environment

from simulator.core.quantities import Named, NonNegative, OneOrMore, Share
from simulator.core.serving.cache.index import (
    Predicted,
    Reported,
    SentPrefixes,
    matched_tokens,
)
from simulator.core.serving.cache.memory import Report
from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request, Source
from simulator.core.world import at

SGLANG_ROUTER = "SGLang model gateway, launch_router --help"
LLM_D_WEIGHTS = "llm-d and the Gateway API inference extension: weights of their default profile"


class RoutedReplica(Protocol):
    """What a router knows of a replica, and how a request gets there."""

    @property
    def waiting(self) -> int:
        """Return how many requests wait to be admitted."""

    @property
    def outstanding(self) -> int:
        """Return how many requests have not got their last token, waiting or running."""

    @property
    def kv_use(self) -> float:
        """Return the share of its cache that requests have which run; 0 without a limit."""

    def cached(self, request: Request) -> int:
        """Return how many tokens of a request's prompt are in its cache."""

    def report_to(self, report: Report) -> None:
        """Report from now on what is in its cache, if it keeps prompts for others."""

    def submit(self, request: Request) -> None:
        """Take a request into the system, at its time of arrival."""

    def ring(self) -> None:
        """Look now whether there is something to do."""


class Chooser(Protocol):
    """Chooses replicas in one run."""

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica that gets a request, as :meth:`Router.choose` does."""


@runtime_checkable
class Forgets(Protocol):
    """A chooser that remembers what replicas were sent, and can forget it."""

    def forget(self, replica: RoutedReplica) -> None:
        """Forget what a replica was sent: it begins anew, with an empty cache."""


class Router(Named, ABC):
    """The base of all routers."""

    looks_into_caches: ClassVar[bool] = False
    """Whether it asks for what is cached, which needs a cache that keeps prompts for others."""
    watches_memory: ClassVar[bool] = False
    """Whether it asks for the memory in use or for reports, so that replicas are not lazy."""

    @abstractmethod
    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica that gets a request.

        ``turn`` holds the pool of its role, first the one after its last choice, so that the
        first of equals, as ``min`` finds it, is the one whose turn it is.
        """

    def opened(self, clock: Callable[[], float]) -> Chooser:
        """Return what chooses in one run; by default the router itself. One that remembers begins
        with nothing.

        ``clock`` says what time it is, in seconds.
        """
        return self

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


def least_outstanding(turn: Sequence[RoutedReplica]) -> RoutedReplica:
    """Return the replica with the fewest outstanding requests."""
    return min(turn, key=lambda replica: replica.outstanding)


class LeastOutstanding(Router):
    """Least outstanding (LOR of Vidur; LEAST_REQUEST of Envoy over all hosts;
    ``least_outstanding_requests`` of AWS target groups): the replica with the fewest requests that
    have not got their last token, waiting or running.
    """

    name: Literal["least_outstanding"] = "least_outstanding"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with the fewest outstanding requests."""
        return least_outstanding(turn)


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

    ``cache_aware`` leaves it for the least loaded where loads are far apart.
    """

    name: Literal["most_cached"] = "most_cached"
    looks_into_caches: ClassVar[bool] = True

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with most of the prompt, then with the fewest outstanding requests."""
        return min(turn, key=lambda replica: (-replica.cached(request), replica.outstanding))


class SessionAffinity(Router):
    """Session affinity (``session`` of vLLM's production stack, ring hash of Envoy): a session
    stays on its replica. Its first request goes to the replica with the fewest outstanding
    requests, as does a request without a session.

    The production stack and Envoy choose the first replica by a hash of the session, whatever the
    load.
    """

    name: Literal["session_affinity"] = "session_affinity"

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return where a session begins: the one with the fewest outstanding requests."""
        return least_outstanding(turn)

    def opened(self, clock: Callable[[], float]) -> Chooser:
        """Return a memory of no session."""
        return _Affinity()


class _Affinity:
    """Where sessions began."""

    def __init__(self) -> None:
        self._homes: dict[int, RoutedReplica] = {}

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica of a request's session, if it is still there."""
        if request.session is None:
            return least_outstanding(turn)
        home = self._homes.get(request.session)
        if home is None or home not in turn:
            home = least_outstanding(turn)
            self._homes[request.session] = home
        return home


class CacheAware(Router):
    """Cache aware (``cache_aware`` of SGLang's router): the replica that was sent most of the
    prompt before, if that is more than ``cache_threshold`` of it, else the one that was sent the
    fewest tokens; while loads are far apart, the one with the fewest outstanding requests.

    Loads are far apart where the most and the fewest outstanding requests differ by more than
    ``balance_abs_threshold``, and by a factor above ``balance_rel_threshold``. SGLang counts
    characters instead of tokens and prunes its tree; here nothing is pruned. Defaults are those of
    the gateway; the first router (0.1) had 0.5, 32 and 1.0001.
    """

    name: Literal["cache_aware"] = "cache_aware"
    cache_threshold: Share = Share(value=0.3, source=SGLANG_ROUTER, confidence="published")
    """Share of a prompt that must have been sent to a replica before."""
    balance_abs_threshold: NonNegative = NonNegative(
        value=64, source=SGLANG_ROUTER, confidence="published"
    )
    """Requests by which loads differ that are far apart."""
    balance_rel_threshold: OneOrMore = OneOrMore(
        value=1.5, source=SGLANG_ROUTER, confidence="published"
    )
    """Factor by which loads differ that are far apart."""

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with the fewest outstanding requests, as where nothing was sent."""
        return least_outstanding(turn)

    def far_apart(self, turn: Sequence[RoutedReplica]) -> bool:
        """Return whether loads are far apart."""
        loads = [replica.outstanding for replica in turn]
        most, fewest = max(loads), min(loads)
        beyond = most - fewest > self.balance_abs_threshold.value
        return beyond and most > self.balance_rel_threshold.value * fewest

    def opened(self, clock: Callable[[], float]) -> Chooser:
        """Return a memory of no prompt."""
        return _Trees(self)


class _Trees:
    """What each replica was sent."""

    def __init__(self, router: CacheAware) -> None:
        self._router = router
        self._trees = defaultdict[RoutedReplica, SentPrefixes](SentPrefixes)

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica that gets a request, and note that it was sent there."""
        if self._router.far_apart(turn):
            chosen = least_outstanding(turn)
        else:
            chosen = self._by_tree(request, turn)
        self._trees[chosen].send(request)
        return chosen

    def forget(self, replica: RoutedReplica) -> None:
        """Forget what a replica was sent."""
        self._trees.pop(replica, None)

    def _by_tree(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        trees = self._trees
        best = max(turn, key=lambda replica: trees[replica].matched(request))
        share = trees[best].matched(request) / request.prompt_tokens
        if share > self._router.cache_threshold.value:
            return best
        return min(turn, key=lambda replica: trees[replica].tokens)


class PrefixIndex(Router):
    """Prefix index (llm-d, the Gateway API inference extension): the replica with the highest sum
    of three weighted scores: the share of the prompt that it has by an index, how short its queue
    is beside the others', how much of its cache no running request has.

    The index holds what a replica was sent in the last ``ttl_s`` seconds, and what its cache
    reported (blocks stored and evicted) up to ``stale_s`` seconds ago; never what it has now.
    Without ``stale_s`` there are no reports: with ``ttl_s: 120`` this is the index of Dynamo under
    ``--no-kv-events``.
    """

    name: Literal["prefix_index"] = "prefix_index"
    watches_memory: ClassVar[bool] = True
    prefix_weight: NonNegative = NonNegative(value=3, source=LLM_D_WEIGHTS, confidence="published")
    """Weight of the share of the prompt."""
    queue_weight: NonNegative = NonNegative(value=2, source=LLM_D_WEIGHTS, confidence="published")
    """Weight of the queue: 1 where it is the shortest of all, 0 where it is the longest."""
    kv_weight: NonNegative = NonNegative(value=2, source=LLM_D_WEIGHTS, confidence="published")
    """Weight of the share of the cache that no running request has."""
    ttl_s: NonNegative = NonNegative(
        value=2, source="llm-d: speculativeTTL of the KV-cache indexer", confidence="published"
    )
    """Seconds for which the index holds what was sent."""
    stale_s: NonNegative | None = NonNegative(
        value=2, source="as long as llm-d's index holds what was sent", confidence="assumed"
    )
    """Seconds until a report of a cache is in the index; null: there are none."""

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the one with the highest score where the index has nothing."""
        return self.best(turn, [0.0] * len(turn))

    def best(self, turn: Sequence[RoutedReplica], shares: Sequence[float]) -> RoutedReplica:
        """Return the replica with the highest score; ``shares`` of a prompt by replica."""
        queues = [replica.waiting for replica in turn]
        longest, shortest = max(queues), min(queues)
        scores = []
        for replica, waiting, share in zip(turn, queues, shares, strict=True):
            shorter = (longest - waiting) / (longest - shortest) if longest > shortest else 1.0
            score = self.prefix_weight.value * share
            score += self.queue_weight.value * shorter
            score += self.kv_weight.value * (1.0 - replica.kv_use)
            scores.append(score)
        return turn[scores.index(max(scores))]

    def opened(self, clock: Callable[[], float]) -> Chooser:
        """Return an index of nothing."""
        return _Index(self, clock)


class _Index:
    """What each replica was sent, and what its cache has reported."""

    def __init__(self, router: PrefixIndex, clock: Callable[[], float]) -> None:
        self._router = router
        self._clock = clock
        self._predicted: dict[RoutedReplica, Predicted] = {}
        self._reported: dict[RoutedReplica, Reported] = {}

    def choose(self, request: Request, turn: Sequence[RoutedReplica]) -> RoutedReplica:
        """Return the replica that gets a request, and note that it was sent there."""
        for replica in turn:
            if replica not in self._predicted:
                self._meet(replica)
        shares = [self._matched(request, replica) / request.prompt_tokens for replica in turn]
        chosen = self._router.best(turn, shares)
        self._predicted[chosen].send(request, self._clock())
        return chosen

    def forget(self, replica: RoutedReplica) -> None:
        """Forget what a replica was sent and has reported."""
        self._predicted.pop(replica, None)
        self._reported.pop(replica, None)

    def _meet(self, replica: RoutedReplica) -> None:
        """Begin with a replica."""
        self._predicted[replica] = Predicted(self._router.ttl_s.value)
        if self._router.stale_s is not None:
            reported = Reported(self._router.stale_s.value, self._clock)
            replica.report_to(reported.report)
            self._reported[replica] = reported

    def _matched(self, request: Request, replica: RoutedReplica) -> int:
        """Return how many leading tokens of a prompt a replica has, by the index."""
        now = self._clock()
        predicted = self._predicted[replica]
        reported = self._reported.get(replica)

        def known(name: Hash) -> float:
            sent = predicted.known(name, now)
            return max(sent, reported.known(name, now)) if reported else sent

        return matched_tokens(request, known)


class Dealer:
    """Deals requests out among the replicas of one role.

    ``clock`` says what time it is, in seconds.
    """

    def __init__(
        self, router: Router, replicas: Sequence[RoutedReplica], clock: Callable[[], float]
    ) -> None:
        self._chooser = router.opened(clock)
        self._replicas = replicas
        self._next = 0
        """The number of the replica after the last choice."""

    def replica_for(self, request: Request) -> RoutedReplica:
        """Return the replica that gets a request; the turn passes to the one after it."""
        turn = [*self._replicas[self._next :], *self._replicas[: self._next]]
        chosen = self._chooser.choose(request, turn)
        self._next = (self._next + turn.index(chosen) + 1) % len(turn)
        return chosen

    def deal_among(self, replicas: Sequence[RoutedReplica]) -> None:
        """Deal out among these replicas from now on; whose turn it is stays, or is the next one of
        those before that is still there.
        """
        turn = [*self._replicas[self._next :], *self._replicas[: self._next]]
        first = next((replica for replica in turn if replica in replicas), replicas[0])
        self._replicas = replicas
        self._next = replicas.index(first)

    def forget(self, replica: RoutedReplica) -> None:
        """Forget what a replica was sent."""
        if isinstance(self._chooser, Forgets):
            self._chooser.forget(replica)


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
        self._sending = False
        """Whether requests are being sent; who is refused ends then and there."""

    def open(self, replicas: Sequence[RoutedReplica]) -> None:
        """Send these replicas what is there at the start, and from now on whatever arrives."""
        by_role = defaultdict[str, list[RoutedReplica]](list)
        for role, replica in zip(self._router.roles(len(replicas)), replicas, strict=True):
            by_role[role].append(replica)
        self._pools = {role: Dealer(self._router, pool, self.now) for role, pool in by_role.items()}
        self.dispatch()

    def now(self) -> float:
        """Return what time it is, in seconds."""
        return self._environment.now

    def dispatch(self) -> None:
        """Send every request that has arrived by now, and come back when the next one arrives."""
        if self._sending:
            return
        self._sending = True
        for request in self._source.due(self._environment.now):
            self.send(request)
        self._sending = False
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
