"""Several replicas behind a router: each request goes to one of them the moment it arrives, and
stays there.

A router knows of each replica what a load balancer knows, and never how long a request will be:

* ``round_robin``: the replicas in turn, whatever they do.
* ``least_outstanding``: the replica with the fewest requests that have not got their last token,
  waiting or running (``least_outstanding_requests`` of AWS target groups; LEAST_REQUEST of Envoy
  over all hosts; LOR of Vidur).
* ``join_shortest_queue``: the replica with the fewest requests that wait to be admitted (the queue
  scorer of the Gateway API inference extension, over ``num_requests_waiting`` of vLLM), among
  equals the one with the fewest outstanding. In queueing theory a queue also holds who is being
  served; with one place in each replica that is ``least_outstanding``.
* ``most_cached``: the replica whose cache has most of the prompt, among equals the one with the
  fewest outstanding (``kvaware`` of vLLM's production stack; SGLang's ``cache_aware`` leaves it for
  the least loaded where loads are far apart).

Where replicas are equal, the one after the last choice is taken, so that an idle fleet is not its
first replica.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from simpy import Environment

from simulator.core.serving.fields import RouterName
from simulator.core.serving.requests import Request, Source
from simulator.core.serving.scheduler import Scheduler
from simulator.core.world import at

LOADS: Mapping[RouterName, Callable[[Scheduler, Request], tuple[int, ...]]] = {
    "round_robin": lambda replica, request: (),
    "least_outstanding": lambda replica, request: (replica.ledger.tally.in_system,),
    "join_shortest_queue": lambda replica, request: (
        len(replica.queues.waiting),
        replica.ledger.tally.in_system,
    ),
    "most_cached": lambda replica, request: (
        -replica.memory.cached(request),
        replica.ledger.tally.in_system,
    ),
}
"""What a router compares, by its name; the replica with the least is chosen."""


class Fleet:
    """Replicas and the router before them, on one clock; a replica is handed its requests and does
    not ask for any.
    """

    def __init__(self, source: Source, router: RouterName, environment: Environment) -> None:
        self.replicas: Sequence[Scheduler] = ()
        self._source = source
        self._environment = environment
        self._load = LOADS[router]
        self._last = -1
        self._wakeup_at_s = -inf

    def open(self, replicas: Sequence[Scheduler]) -> None:
        """Send these replicas what is there at the start, and from now on whatever arrives."""
        self.replicas = replicas
        self.dispatch()

    def dispatch(self) -> None:
        """Send every request that has arrived by now, and come back when the next one arrives."""
        for request in self._source.due(self._environment.now):
            replica = self._choose(request)
            replica.submit(request)
            replica.ring()
        if self._wakeup_at_s < self._source.next_s < inf:
            self._wakeup_at_s = self._source.next_s
            arrival = at(self._environment, self._wakeup_at_s)
            arrival.callbacks.append(lambda _: self.dispatch())

    def _choose(self, request: Request) -> Scheduler:
        """Return the replica with the least load; among equals, the first behind the last
        choice.
        """
        count = len(self.replicas)
        turn = [(self._last + step) % count for step in range(1, count + 1)]
        self._last = min(turn, key=lambda number: self._load(self.replicas[number], request))
        return self.replicas[self._last]

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

    def ended(self) -> None:
        """Tell the source that a request has left the system, and send what its client has next."""
        self._source.ended()
        self.dispatch()

    def close(self) -> None:
        """Let no more requests come."""
        self._source.close()
