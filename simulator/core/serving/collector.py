"""Collect what counts of a run: requests between warm-up and cool-down, the time in which they
arrive, the limits they meet.

Requests are numbered in order of arrival; the first ``warm_up`` and the last ``cool_down`` of them
are served like all others but count for nothing. The *stretch* begins with the arrival of the first
request that counts (at 0 without a warm-up) and ends with that of the first one after them (with
the run where there is none). TTFT, TPOT, E2E and waiting are those of counted requests; TBT are
gaps that end within the stretch; tokens per second are those shown in it, goodput the good ones
among the counted requests over its length. Batches, memory, lanes, wasted work and Little's law are
of the whole run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.core.parallel import stopping
from simulator.core.serving.load.classes import RequestClass
from simulator.core.serving.metrics import PENDING, Sketch
from simulator.core.serving.requests import Request, Requests, Source
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.slo import METRICS, Limit, Metric, Slo


class ClassCount:
    """What became of the requests of a class of service that count."""

    def __init__(self, given: RequestClass) -> None:
        self.priority = given.priority
        limits = given.slo.limits if given.slo else ()
        self.times: dict[Metric, Sketch] = {}
        """Seconds of the requests that have their whole output, by metric."""
        for metric in METRICS:
            if metric != "tbt":
                self.times[metric] = Sketch([limit for limit in limits if limit.metric == metric])
        self._longest_s = longest_of(limits)
        self.arrived = self.finished = self.refused = self.cancelled = 0
        self.good = self.good_tokens = 0
        """Requests that meet all limits of the class themselves, and their tokens."""

    def end(self, request: Request) -> None:
        """Count a request that has left the system."""
        if request.refused:
            self.refused += 1
            return
        if request.tokens < request.output_tokens:
            self.cancelled += 1
            return
        self.finished += 1
        for metric, seconds in request.spent_s.items():
            self.times[metric].add(seconds)
        if keeps(request, self._longest_s):
            self.good += 1
            self.good_tokens += request.tokens


def longest_of(limits: Sequence[Limit]) -> dict[Metric, float]:
    """Return the seconds that a good request may take at most, by metric."""
    longest_s: dict[Metric, float] = {}
    for limit in limits:
        longest_s[limit.metric] = max(limit.seconds, longest_s.get(limit.metric, 0.0))
    return longest_s


def keeps(request: Request, longest_s: Mapping[Metric, float]) -> bool:
    """Return whether a request that has its whole output took no longer than it may, by metric."""
    if request.late and "tbt" in longest_s:
        return False
    return all(seconds <= longest_s.get(metric, inf) for metric, seconds in request.spent_s.items())


class MetricsCollector:
    """A source of requests that knows which of them count, and collects what becomes of those.

    ``arrived`` is called with every request that has come, ``finished`` with every one that has
    ended, counted or not.
    """

    def __init__(
        self,
        source: Source,
        requests: Requests,
        slo: Slo | None = None,
        finished: Callable[[Request], object] | None = None,
        arrived: Callable[[Request], object] | None = None,
    ) -> None:
        self._source = source
        self._replicas = tuple[Scheduler, ...]()
        self._gaps = tuple[Sketch, ...]()
        """The gaps between tokens that each replica has noted."""
        self._finished = finished
        self._arrived = arrived
        self._requests = requests
        self.first = requests.warm_up
        self.last = requests.count - requests.cool_down
        self._whole = requests.all_count
        limits = slo.limits if slo else ()
        self._times = {
            metric: Sketch([limit for limit in limits if limit.metric == metric])
            for metric in METRICS
        }
        self._wait = Sketch()
        self.longest_s = longest_of(limits)
        """Seconds that a good request may take at most, by metric."""
        self.classes = {name: ClassCount(given) for name, given in (requests.classes or {}).items()}
        """What became of the requests that count, by class of service."""
        self._good = self._good_tokens = 0
        self._ended: list[Request] = []
        """Requests that count and are not in these yet, in order of ending."""
        self.tokens = 0
        self.begin_s = inf if self.first else 0.0
        self.end_s = inf

    def watch(self, replicas: Sequence[Scheduler]) -> None:
        """Note from now on what these replicas finish, and gaps between tokens while the stretch
        lasts.
        """
        self._replicas = tuple(replicas)
        for replica in replicas:
            replica.finished = self.note
            replica.ledger.longest_gap_s = self.longest_s.get("tbt", inf)
        limits = self._times["tbt"].limits
        self._gaps = tuple(Sketch(limits) for _ in self._replicas)
        if self.first:
            self._count_no_gaps()
        else:
            self._count_gaps()

    def _count_gaps(self) -> None:
        """Let each replica note gaps between tokens in a sketch of its own."""
        for replica, sketch in zip(self._replicas, self._gaps, strict=True):
            replica.ledger.gaps = sketch

    def _count_no_gaps(self) -> None:
        """Let gaps between tokens be lost from now on."""
        for replica in self._replicas:
            replica.ledger.gaps = Sketch()

    @property
    def _shown(self) -> int:
        """Tokens shown since the start of the run."""
        for replica in self._replicas:
            replica.ledger.catch_up()
        tallies = [replica.ledger.tally for replica in self._replicas]
        return sum(tally.shown + tally.first_tokens for tally in tallies)

    def _begin(self, at: float) -> None:
        """Begin the stretch."""
        self.begin_s = at
        self.tokens = -self._shown
        self._count_gaps()

    def end(self, at: float) -> None:
        """End the stretch, if it has not ended before."""
        if self.end_s == inf:
            self.end_s = at
            self.tokens += self._shown
            self._count_no_gaps()

    def note(self, request: Request) -> None:
        """Note a request that has ended."""
        if self._finished:
            self._finished(request)
        if self.first <= request.index < self.last:
            self._ended.append(request)
            if len(self._ended) >= PENDING:
                self._count_ended()

    def _count_ended(self) -> None:
        """Count requests that have ended, many at a time."""
        if not self._ended:
            return
        ended = self._ended
        self._ended = []
        finished_s = np.array([request.finished_s for request in ended])
        first_token_s = np.array([request.first_token_s for request in ended])
        tokens = np.array([request.tokens for request in ended])
        arrival_s = np.array([request.arrival_s for request in ended])
        since_s = arrival_s - np.array([request.outside_s for request in ended])
        several = tokens > 1
        spent: dict[Metric, NDArray[np.float64]] = {
            "ttft": first_token_s - since_s,
            "e2e": finished_s - since_s,
            "tpot": (finished_s - first_token_s) / np.maximum(tokens - 1, 1),
        }
        good = ~np.array([request.late for request in ended])
        for metric, seconds in spent.items():
            counts = several if metric == "tpot" else np.ones_like(several)
            self._times[metric].add_each(seconds[counts].tolist())
            good &= (seconds <= self.longest_s.get(metric, inf)) | ~counts
        admitted_s = np.array([request.admitted_s for request in ended])
        self._wait.add_each((admitted_s - arrival_s).tolist())
        self._good += int(good.sum())
        self._good_tokens += int(tokens[good].sum())

    @property
    def times(self) -> Mapping[Metric, Sketch]:
        """Return seconds of the requests, or gaps, that count, by metric."""
        self._count_ended()
        if len(self._gaps) == 1:
            return self._times | {"tbt": self._gaps[0]}
        gaps = Sketch(self._times["tbt"].limits)
        for sketch in self._gaps:
            gaps.join(sketch)
        return self._times | {"tbt": gaps}

    @property
    def wait(self) -> Sketch:
        """Return seconds from arrival to first admission of the requests that count."""
        self._count_ended()
        return self._wait

    @property
    def good(self) -> int:
        """Return how many of the requests that count meet all limits."""
        self._count_ended()
        return self._good

    @property
    def good_tokens(self) -> int:
        """Return the tokens of those."""
        self._count_ended()
        return self._good_tokens

    @property
    def rule(self) -> str:
        """Return in words which requests count."""
        # fewer than were asked for in a run that was stopped
        count = sum(replica.ledger.tally.arrived for replica in self._replicas)
        if self._whole:
            return f"all {count:,} requests, over the whole run"
        last = min(self.last, count)
        if last == count:
            until = "the end of the run"
        else:
            until = f"that of request {last + 1:,}"
        if self.first:
            since = f"the arrival of request {self.first + 1:,}"
        else:
            since = "the start"
        return (
            f"requests {self.first + 1:,} to {last:,} of {count:,} in order of arrival; rates "
            f"from {since} to {until}"
        )

    @property
    def seconds(self) -> float:
        """Return the length of the stretch, in seconds."""
        return self.end_s - self.begin_s

    # ---- a source

    @property
    def next_s(self) -> float:
        """Return when the next request arrives, in seconds."""
        return self._source.next_s

    @property
    def exhausted(self) -> bool:
        """Return whether all requests have arrived."""
        return self._source.exhausted

    def due(self, now: float) -> Iterable[Request]:
        """Return the requests that have arrived; the stretch begins or ends as the one that marks
        it is handed out.
        """
        if stopping():
            self.close()
        if self._whole and self._arrived is None and not self.classes:
            return self._source.due(now)
        return self._marking(now)

    def _marking(self, now: float) -> Iterator[Request]:
        for request in self._source.due(now):
            if request.index == self.first and self.first:
                self._begin(request.arrival_s)
            elif request.index == self.last:
                self.end(request.arrival_s)
            if self._arrived:
                self._arrived(request)
            if self.classes and self.first <= request.index < self.last:
                self.classes[request.service_class].arrived += 1
            yield request

    def ended(self, request: Request) -> None:
        """Tell the source that a request has left the system."""
        if self.classes and self.first <= request.index < self.last:
            self.classes[request.service_class].end(request)
        self._source.ended(request)

    def close(self) -> None:
        """Let no more requests come."""
        self._source.close()
