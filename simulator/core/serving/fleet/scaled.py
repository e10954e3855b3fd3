"""Replicas that come and go behind a router, on one clock.

::

    place      begin      ready                      leaving      end
      3          |  starts  |  takes requests          |  drains   |
                 |---------------- held, and paid for ------------|

There are places for the most replicas that there may be. One that is to go has its place until its
last request is done, so that a start may have to wait for a place. Who comes to a place anew has an
empty cache, and the router has forgotten whom it sent there. First to go are those that wait for a
place, then those that start, then those that serve, of each the newest (as of a ReplicaSet of
Kubernetes); a place is filled in the order of its number. A look sees what all else of its moment
has left.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

from simpy import Environment

from simulator.core.numeric import ordered_sum
from simulator.core.serving.collector import keeps, longest_of
from simulator.core.serving.fleet.scaling import Scaling, ScalingRule
from simulator.core.serving.load.classes import RequestClass
from simulator.core.serving.metrics import BrokenRunError
from simulator.core.serving.requests import Request, Source
from simulator.core.serving.router import Dealer, Fleet, RoutedReplica, Router
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.slo import Metric, Slo
from simulator.core.world import LAST, at


class ScalingChange(NamedTuple):
    """A change of how many replicas are wanted."""

    at_s: float
    before: int
    after: int
    metric: float
    """What was compared with the target: the mean of a serving replica, or by ``slo`` the share of
    recent requests that met theirs.
    """


@dataclass(slots=True)
class ReplicaLife:
    """A replica from its start to its end, in seconds; infinity: not yet."""

    place: int
    """The number of its place, from 1."""
    begin_s: float
    ready_s: float = inf
    leaving_s: float = inf
    """When it was to go."""
    end_s: float = inf


class Recent:
    """The requests that ended lately: whether each met the SLO of its class, or of all."""

    def __init__(
        self, seconds: float, slo: Slo | None, classes: Mapping[str, RequestClass]
    ) -> None:
        self._seconds = seconds
        whole = slo.limits if slo else ()
        self._longest_s: dict[str, dict[Metric, float]] = {"": longest_of(whole)}
        for name, given in classes.items():
            self._longest_s[name] = longest_of(given.slo.limits if given.slo else whole)
        self._ended = deque[tuple[float, bool]]()
        self._met = 0

    def note(self, request: Request) -> None:
        """Note a request that has left the system, if somebody was promised something."""
        longest_s = self._longest_s[request.service_class]
        if longest_s:
            met = request.tokens >= request.output_tokens and keeps(request, longest_s)
            self._ended.append((request.finished_s, met))
            self._met += met

    def met(self, now: float) -> float | None:
        """Return the share that met it, of those that have ended in the last seconds; None where
        there are none.
        """
        ended = self._ended
        while ended and ended[0][0] <= now - self._seconds:
            self._met -= ended.popleft()[1]
        if ended:
            return self._met / len(ended)
        return None


class ScaledFleet(Fleet):
    """Places of replicas and the router before them; how many are filled follows the load.

    ``start_s``: seconds that a replica takes to start; ``replicas``: how many serve at the
    beginning.
    """

    def __init__(
        self,
        source: Source,
        router: Router,
        environment: Environment,
        scaling: Scaling,
        start_s: float,
        replicas: int,
        recent: Recent | None = None,
    ) -> None:
        super().__init__(source, router, environment)
        self.scaling = scaling
        self.start_s = start_s
        self._first = replicas
        self._recent = recent
        self._rule = ScalingRule(scaling, replicas)
        self._replicas: Sequence[Scheduler] = ()
        self._dealer: Dealer
        self._starting: list[ReplicaLife] = []
        self._serving: list[ReplicaLife] = []
        """In the order in which they began to serve."""
        self._draining: list[ReplicaLife] = []
        self._looks = 0
        self.lives: list[ReplicaLife] = []
        """All replicas there were, in order of their starts."""
        self.changes: list[ScalingChange] = []
        self.waiting_starts = 0
        """Starts that had to wait for a place."""
        self._short = 0
        """Starts that wait for one now."""
        self.ended_s = 0.0
        """When the last request left so far, in seconds."""

    def open_places(self, replicas: Sequence[Scheduler]) -> None:
        """Send what comes to those that serve at the beginning, of the replicas of all places."""
        self._replicas = replicas
        for number in range(1, self._first + 1):
            life = ReplicaLife(number, self.now(), self.now())
            self.lives.append(life)
            self._serving.append(life)
        self._dealer = Dealer(self._router, self._there(), self.now)
        role = next(iter(self._router.pools(self._first)))
        self._pools = {role: self._dealer}
        self._look_next()
        self.dispatch()

    def _there(self) -> list[RoutedReplica]:
        """Return the replicas that take requests, in order of their places."""
        return [self._replicas[place - 1] for place in sorted(life.place for life in self._serving)]

    def _has(self, life: ReplicaLife) -> int:
        """Return how many requests a replica has."""
        return self._replicas[life.place - 1].outstanding

    # ---- looks

    def _look_next(self) -> None:
        self._looks += 1
        look = at(self._environment, self._looks * self.scaling.every_s.value, LAST)
        look.callbacks.append(lambda _: self._look())

    def _look(self) -> None:
        """Compare the load with its target, unless nobody is here and nobody comes."""
        held = [*self._serving, *self._draining]
        if self._source.next_s == inf and not any(map(self._has, held)):
            return
        metric = self._metric()
        before = self._rule.wanted
        after = self._rule.look(self.now(), metric, len(self._serving))
        if after != before:
            self.changes.append(ScalingChange(self.now(), before, after, metric or 0.0))
            self._fill()
        self._look_next()

    def _metric(self) -> float | None:
        """Return what is compared with the target now; None where nothing says it."""
        there = [self._replicas[life.place - 1] for life in self._serving]
        if self._recent:
            met = self._recent.met(self.now())
            if met is None and not any(replica.outstanding for replica in there):
                return 1.0
            return met
        if self.scaling.by == "kv_use":
            return ordered_sum(replica.kv_use for replica in there) / len(there)
        return sum(replica.outstanding for replica in there) / len(there)

    # ---- replicas come and go

    def _fill(self) -> None:
        """Start or let go until there are as many replicas as are wanted, as far as there are
        places.
        """
        wanted = self._rule.wanted
        while len(self._starting) + len(self._serving) > wanted:
            self._let_one_go()
        taken = {life.place for life in (*self._starting, *self._serving, *self._draining)}
        free = [place for place in range(1, self.scaling.most + 1) if place not in taken]
        more = wanted - len(self._starting) - len(self._serving)
        for place in free[:more]:
            self._start(place)
        short = max(0, more - len(free))
        self.waiting_starts += max(0, short - self._short)
        self._short = short

    def _start(self, place: int) -> None:
        """Start a replica at a place."""
        life = ReplicaLife(place, self.now())
        self.lives.append(life)
        self._starting.append(life)
        ready = at(self._environment, self.now() + self.start_s, LAST)
        ready.callbacks.append(lambda _: self._serve(life))

    def _serve(self, life: ReplicaLife) -> None:
        """Send requests to a replica that has started, unless it was let go meanwhile."""
        if life not in self._starting:
            return
        self._starting.remove(life)
        self._serving.append(life)
        life.ready_s = self.now()
        replica = self._replicas[life.place - 1]
        replica.memory.forget()
        self._dealer.forget(replica)
        self._dealer.deal_among(self._there())

    def _let_one_go(self) -> None:
        """Let the newest replica go that starts, or else that serves."""
        if self._starting:
            life = self._starting.pop()
            life.leaving_s = life.end_s = self.now()
            return
        life = self._serving.pop()
        life.leaving_s = self.now()
        self._dealer.deal_among(self._there())
        if self._has(life):
            self._draining.append(life)
        else:
            life.end_s = self.now()

    def ended(self, request: Request) -> None:
        """Tell the source that a request has left the system, send what its client has next, and
        let go who has drained.
        """
        self.ended_s = max(self.ended_s, request.finished_s)
        if self._recent:
            self._recent.note(request)
        if self._draining:
            self._let_go(request.finished_s)
        super().ended(request)

    def _let_go(self, now: float) -> None:
        """Let those go that have drained."""
        drained = [life for life in self._draining if not self._has(life)]
        for life in drained:
            self._draining.remove(life)
            life.end_s = max(now, life.leaving_s)
        if drained:
            self._fill()

    # ---- books

    def close_books(self, end_s: float) -> None:
        """Let all lives end with the run, and check them; raises :class:`BrokenRunError` where a
        replica had requests while there was none.
        """
        for life in self.lives:
            life.end_s = min(life.end_s, end_s)
            life.ready_s = min(life.ready_s, life.end_s)
            life.leaving_s = min(life.leaving_s, life.end_s)
        for place, replica in enumerate(self._replicas, start=1):
            served_s = ordered_sum(
                life.end_s - life.ready_s for life in self.lives if life.place == place
            )
            occupied_s = replica.ledger.tally.occupied_s
            if occupied_s > served_s * (1 + 1e-9) + 1e-9:
                raise BrokenRunError(
                    f"place {place} had requests for {occupied_s} s, and a replica for {served_s} s"
                )

    @property
    def levels_s(self) -> dict[int, float]:
        """Return the seconds for which so many replicas were held, by their number."""
        steps = Counter[float]()
        for life in self.lives:
            steps[life.begin_s] += 1
            steps[life.end_s] -= 1
        levels = defaultdict[int, float](float)
        held = 0
        for begin_s, end_s in pairwise(sorted(steps)):
            held += steps[begin_s]
            levels[held] += end_s - begin_s
        return dict(levels)

    @property
    def replica_s(self) -> float:
        """Return replicas over time, from their starts to their ends, in seconds."""
        return ordered_sum(life.end_s - life.begin_s for life in self.lives)

    @property
    def starting_s(self) -> float:
        """Return the seconds in which replicas started."""
        return ordered_sum(life.ready_s - life.begin_s for life in self.lives)

    @property
    def draining_s(self) -> float:
        """Return the seconds in which replicas had requests and took no more."""
        return ordered_sum(life.end_s - life.leaving_s for life in self.lives)
