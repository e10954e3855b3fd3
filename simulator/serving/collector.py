"""What counts of a run: the requests between warm-up and cool-down, the time in which they arrive, and the limits they meet.

Requests are numbered in order of arrival; the first ``warm_up`` and the last ``cool_down`` of them are served like all others
but count for nothing. The *stretch* begins with the arrival of the first request that counts (at 0 without a warm-up) and ends
with that of the first one after them (with the run where there is none). TTFT, TPOT, E2E and waiting are those of counted
requests; TBT are gaps that end within the stretch; tokens per second are those shown in it, goodput the good ones among the
counted requests over its length. Batches, memory, lanes, work in vain and Little's law are of the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from simulator.serving.metrics import Sketch
from simulator.serving.requests import Request, Requests, Source
from simulator.serving.scheduler import Scheduler
from simulator.serving.slo import METRICS, Metric, Slo


class MetricsCollector:
    """A source that knows which of its requests count, and what becomes of them.

    ``finished`` is called with every request that has ended, counted or not.
    """

    def __init__(
        self,
        source: Source,
        requests: Requests,
        slo: Slo | None = None,
        finished: Callable[[Request], object] | None = None,
    ) -> None:
        self._source, self._replicas, self._finished = source, tuple[Scheduler, ...](), finished
        self._requests = requests
        self.first, self.last = requests.warm_up, requests.count - requests.cool_down
        self._whole = not (requests.warm_up or requests.cool_down)
        limits = slo.limits if slo else ()
        self.times = {metric: Sketch([one for one in limits if one.metric == metric]) for metric in METRICS}
        self.wait = Sketch()
        self.longest_s: dict[Metric, float] = {one.metric: one.seconds for one in sorted(limits, key=lambda one: one.seconds)}
        """What a good request may take at most."""
        self.good = self.good_tokens = self.tokens = 0
        self.begin_s, self.end_s = (inf if self.first else 0.0), inf

    def watch(self, replicas: Sequence[Scheduler]) -> None:
        """From now on, what these finish is noted, and gaps between tokens while the stretch lasts."""
        self._replicas = tuple(replicas)
        for one in replicas:
            one.finished = self.note
            one.longest_gap_s = self.longest_s.get("tbt", inf)
        self._gaps_go_to(Sketch() if self.first else self.times["tbt"])

    def _gaps_go_to(self, sketch: Sketch) -> None:
        for one in self._replicas:
            one.gaps = sketch

    @property
    def _shown(self) -> int:
        return sum(one.tally.shown + one.tally.first_tokens for one in self._replicas)

    def _begin(self, at: float) -> None:
        self.begin_s, self.tokens = at, -self._shown
        self._gaps_go_to(self.times["tbt"])

    def end(self, at: float) -> None:
        """The stretch ends, or the run does."""
        if self.end_s == inf:
            self.end_s = at
            self.tokens += self._shown
            self._gaps_go_to(Sketch())

    def note(self, one: Request) -> None:
        """A request has ended."""
        if self._finished:
            self._finished(one)
        if not self.first <= one.index < self.last:
            return
        spent: dict[Metric, float] = {"ttft": one.first_token_s - one.arrival_s, "e2e": one.finished_s - one.arrival_s}
        if one.tokens > 1:
            spent["tpot"] = (one.finished_s - one.first_token_s) / (one.tokens - 1)
        for metric, seconds in spent.items():
            self.times[metric].add(seconds)
        self.wait.add(one.admitted_s - one.arrival_s)
        if not one.late and all(seconds <= self.longest_s.get(metric, inf) for metric, seconds in spent.items()):
            self.good += 1
            self.good_tokens += one.tokens

    @property
    def rule(self) -> str:
        """Which requests count, in words."""
        count = self.last + self._requests.cool_down
        if self._whole:
            return f"all {count:,} requests, over the whole run"
        until = "the end of the run" if self.last == count else f"that of request {self.last + 1:,}"
        since = f"the arrival of request {self.first + 1:,}" if self.first else "the start"
        return f"requests {self.first + 1:,} to {self.last:,} of {count:,} in order of arrival; rates from {since} to {until}"

    @property
    def seconds(self) -> float:
        """Length of the stretch."""
        return self.end_s - self.begin_s

    # ---- a source

    @property
    def next_s(self) -> float:
        """Arrival of the next request."""
        return self._source.next_s

    @property
    def exhausted(self) -> bool:
        """All have arrived."""
        return self._source.exhausted

    def due(self, now: float) -> Iterable[Request]:
        """Those that have arrived; where the stretch begins or ends with one, it does so now."""
        return self._source.due(now) if self._whole else self._marking(now)

    def _marking(self, now: float) -> Iterator[Request]:
        for request in self._source.due(now):
            if request.index == self.first and self.first:
                self._begin(request.arrival_s)
            elif request.index == self.last:
                self.end(request.arrival_s)
            yield request

    def ended(self) -> None:
        """One request has left the system."""
        self._source.ended()
