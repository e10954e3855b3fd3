"""Loads from lower tiers of KV memory: who waits for blocks that are on their way to the device.

At a boundary, before the policy plans, whoever waits is looked at in order::

    waiting    0   1   2   3        request 1 has blocks in a lower tier
    loading        1                it leaves the queue, its room on the device is held
    waiting    0   2   3            the others may be admitted meanwhile
    waiting    0   1   2   3        its blocks have come: it is back in its place

* Without prefetching only as many are looked at as there are places; with it all that wait, so that
  loads overlap with the queue.
* A load gets room that those in front of it, which have nothing to load, leave. Where there is
  none, it and all behind it stay where they are: they are not admitted either.
* Once blocks have come they are held no longer, but are the last ones to make way. Who finds some
  of them gone asks again.

The times are those of links alone, so that the event engine and a replay have the same. In vLLM a
request waits like this, too (0.32, ``WAITING_FOR_REMOTE_KVS``), but keeps its blocks until it runs.
"""

from collections import deque
from math import inf

from simulator.core.serving.cache.tiers import BlockLoad, TieredCache
from simulator.core.serving.policies import IterationPlan, Policy, Queues
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.step import UNLIMITED


class Loading:
    """Begins and ends the loads of one replica, at the boundaries between its iterations."""

    def __init__(self, memory: TieredCache, queues: Queues, policy: Policy) -> None:
        self.memory = memory
        self.queues = queues
        self.policy = policy
        self.prefetches = False
        """Whether loads begin as requests are queued, or as they could be admitted."""
        self.loads: list[BlockLoad] = []
        """Those on their way, in the order in which they began."""

    @property
    def next_s(self) -> float:
        """Return when the next load ends or takes its next link, in seconds; infinity where none is
        on its way.
        """
        return min((load.next_s for load in self.loads), default=inf)

    def plan(self, now: float) -> IterationPlan:
        """Return the plan of the policy, once loads have ended and begun.

        What one request gets may take blocks from another that was ready: that one has to load
        them. Where nothing else is planned and nothing is on its way, it does so now.
        """
        memory = self.memory
        queues = self.queues
        while True:
            behind = self._settle(now)
            memory.planning = True
            memory.barred = False
            planned = self.policy.plan(queues)
            memory.planning = False
            self._rejoin(behind)
            if any(planned) or self.loads or not memory.barred:
                return planned

    def _rejoin(self, behind: deque[Request]) -> None:
        """Let those wait again that stayed behind; who was preempted meanwhile stands before those
        of a lower priority.
        """
        waiting = self.queues.waiting
        waiting.extend(behind)
        if self.queues.ranked:
            ranked = sorted(waiting, key=lambda request: request.priority)
            waiting.clear()
            waiting.extend(ranked)

    def _settle(self, now: float) -> deque[Request]:
        """End the loads that have come and begin those that there is room for; return who has to
        stay behind, in order, while the policy plans.
        """
        self._end(now)
        memory = self.memory
        queues = self.queues
        waiting = queues.waiting
        ready = deque[Request]()
        places = self._places()
        spare = 0
        while waiting and len(ready) < places:
            request = waiting[0]
            hits = memory.wanted(request)
            if hits:
                load = memory.begin_load(request, request.guest(), hits, now, spare)
                if load is None:
                    return self._stay(ready)
                if load.next_s > now:
                    waiting.popleft()
                    queues.loading.append(request)
                    self.loads.append(load)
                    places -= 1
                    continue
                memory.end_load(load)
            else:
                memory.refresh(request.guest())
            ready.append(waiting.popleft())
            spare += memory.needed(self.policy.entry_tokens(queues, request))
        waiting.extendleft(reversed(ready))
        return deque()

    def _places(self) -> float:
        """Return how many of those that wait are looked at."""
        if self.prefetches:
            return inf
        most = self.policy.max_requests or UNLIMITED
        return most - len(self.queues.running) - len(self.loads)

    def _stay(self, ready: deque[Request]) -> deque[Request]:
        """Let only those wait that are ready; return the others."""
        waiting = self.queues.waiting
        behind = deque(waiting)
        waiting.clear()
        waiting.extend(ready)
        return behind

    def _end(self, now: float) -> None:
        """Let those go back to their places whose blocks have come."""
        self.memory.go_on(self.loads, now)
        ended = [load for load in self.loads if load.next_s <= now]
        if not ended:
            return
        self.loads = [load for load in self.loads if load.next_s > now]
        for load in ended:
            self.queues.loading.remove(load.request)
            self.memory.end_load(load)
            self._put_back(load.request)

    def _put_back(self, request: Request) -> None:
        """Put a request behind those of its priority that came before it; who was preempted goes to
        the front of these.
        """
        waiting = self.queues.waiting
        place = 0
        while place < len(waiting) and _turn(waiting[place]) < _turn(request):
            place += 1
        waiting.insert(place, request)

    def cancel(self, request: Request) -> None:
        """Let a request leave that waits for blocks; they come for nobody."""
        load = next(load for load in self.loads if load.request is request)
        self.loads.remove(load)
        self.queues.loading.remove(request)
        self.memory.give_up(load)


def _turn(request: Request) -> tuple[int, bool, float, int]:
    """Return what requests that wait are in order of."""
    return request.priority, not request.preemptions, request.arrival_s, request.index
