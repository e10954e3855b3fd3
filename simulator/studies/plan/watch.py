"""End a run as soon as it is known whether it keeps an SLO.

    limit p90 of 10 requests: one may exceed it
    request  1 2 3 4 5 6 7 8 9 10
             k k k ? x ? ? ? . .      k kept, x exceeded, ? in the system, . still to come
                         ^ the second that is sure to exceed it ends the run: missed
             k k k k k k k k k ?      nothing that is left can change it: kept

A request is *sure* to exceed a limit before it has ended, where it still has no first token when
TTFT has passed, no last one when E2E has passed, or no last one so long after its first as TPOT
allows for all of its tokens. So each is looked at again when such a moment is over. What is counted
is what the run would count at its end (:class:`simulator.core.serving.metrics.Sketch`), so that the
verdict is that of the whole run.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import ceil

from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.slo import Limit
from simulator.studies.plan.limits import classed_outputs

MARGIN = 1.0 + 1e-6
"""Limits are taken this much longer where a sum of other terms is held to them, so that its last
bits decide nothing.
"""


class LimitBrokenError(Exception):
    """Ends a run in which so many requests exceed a limit that nothing can mend it."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.limit = limit


class LimitsKeptError(Exception):
    """Ends a run in which nothing that is left can break a limit."""


def may_exceed(limit: Limit, values: int) -> int:
    """Return how many of so many values may exceed a limit."""
    return values - ceil(limit.share * values)


class Watch:
    """Counts the requests of a run that keep a limit, and those that exceed it or are sure to.

    Of an SLO that limits gaps between tokens (TBT) nothing is known to be kept: how many there will
    be is known only at the end. The same holds for TPOT where outputs are not cut, and where nobody
    knows which turns of sessions will count.
    """

    def __init__(
        self, limits: Iterable[Limit], requests: Requests, seed: int, by_end: bool = False
    ) -> None:
        self._by_end = by_end
        """Whether requests are judged as they end alone: where prefill and decode are apart, what
        one has got in between stands in two places.
        """
        self._counted = range(requests.warm_up, requests.count - requests.cool_down)
        every = classed_outputs(requests, seed)
        self._ordered = requests.sessions is None or requests.all_count
        self._asked = every[self._counted.start : self._counted.stop]
        self._tpot_known = requests.past_end == "cut" and (
            self._ordered or min(output for _, output in every) > 1
        )
        self._to_come = requests.count
        self._unjudged: dict[Limit, int] = {}
        self._left: dict[Limit, int] = {}
        """How many more may exceed each limit."""
        self._all_watched = True
        for limit in limits:
            number = self._values(limit)
            if number:
                self._unjudged[limit] = number
                self._left[limit] = may_exceed(limit, number)
            else:
                self._all_watched = False
        self._judged = set[tuple[int, Limit]]()
        self._looks: list[tuple[float, int, Limit, Request]] = []
        """A heap of when to look at a request again, in seconds."""

    def _values(self, limit: Limit) -> int:
        """Return how many values of a limit there will be; 0 where nobody knows."""
        outputs = [output for of, output in self._asked if limit.of in ("", of)]
        if limit.of and not self._ordered:
            return 0
        if limit.metric in ("ttft", "e2e"):
            return len(outputs)
        if limit.metric == "tpot" and self._tpot_known:
            return sum(output > 1 for output in outputs)
        return 0

    @property
    def kept(self) -> bool:
        """Return whether all requests have come and nothing that they do can break a limit."""
        if self._to_come or not self._all_watched:
            return False
        return all(unjudged <= self._left[limit] for limit, unjudged in self._unjudged.items())

    def arrived(self, request: Request) -> None:
        """Note a request that has come."""
        self._to_come -= 1
        if self._by_end or request.index not in self._counted:
            return
        for limit in self._left:
            if limit.of not in ("", request.service_class):
                continue
            allowed = limit.seconds * MARGIN
            if limit.metric == "tpot":
                allowed *= request.output_tokens - 1
            if allowed:
                self._look_again(request.arrival_s + allowed, limit, request)

    def ended(self, request: Request) -> None:
        """Judge a request that has ended, and those of which more is known by now; raises
        :class:`LimitBrokenError` with the first one too many.
        """
        if request.index in self._counted:
            spent = request.spent_s
            for limit in self._left:
                seconds = spent.get(limit.metric)
                if seconds is not None and limit.of in ("", request.service_class):
                    self._judge(request, limit, seconds <= limit.seconds)
        now = request.finished_s
        while self._looks and self._looks[0][0] < now:
            _, _, limit, other = heappop(self._looks)
            if not other.gone:
                self._look_at(other, limit, now)

    def _look_again(self, at_s: float, limit: Limit, request: Request) -> None:
        heappush(self._looks, (at_s, request.index, limit, request))

    def _look_at(self, request: Request, limit: Limit, now: float) -> None:
        """Judge a request that is in the system at ``now``, when its limit is over or may be."""
        if limit.metric == "ttft":
            in_time = request.tokens > 0 and request.spent_s["ttft"] <= limit.seconds
            self._judge(request, limit, in_time)
            return
        if limit.metric == "tpot":
            first_s = request.first_token_s if request.tokens else now
            due_s = first_s + limit.seconds * MARGIN * (request.output_tokens - 1)
            if due_s >= now:
                self._look_again(due_s, limit, request)
                return
        self._judge(request, limit, False)

    def _judge(self, request: Request, limit: Limit, kept: bool) -> None:
        """Count a request once for a limit."""
        key = request.index, limit
        if key in self._judged:
            return
        self._judged.add(key)
        self._unjudged[limit] -= 1
        if not kept:
            self._left[limit] -= 1
            if self._left[limit] < 0:
                raise LimitBrokenError(limit)
