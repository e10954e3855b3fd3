"""Headroom: how many times the traffic of the plan its answer carries, and how far that can be
known.

    kept     x x x x x . . . .        traffic of k times the rate, drawn anew for every k
                                      (simulator.core.serving.load.busier)
             1 2 4       |     |
                  answer +     + arithmetic: flops, bytes, KV cache of the datasheets

*Steady* traffic is run until its queue has settled: ``SETTLED`` times as long as a request may
wait and takes in a full batch, however short its log. A k is carried where the SLO is met and no
more than ``BEHIND`` of arrivals stay behind between the second third of the run and the last.
Traffic whose rate changes is run once, its bursts k times as large.

*What bounds it.* The datasheets (:mod:`simulator.studies.plan.arithmetic`); the requests of a run
(``MOST_REQUESTS``); and what few requests say of the lengths of more: where v is the coefficient of
variation of what requests of a log cost, the mean of N of them is known to v / sqrt(N) (one
standard deviation; the interval is normal). Below ``FEWEST`` requests, or where half the interval
is more than ``UNSURE``, headroom is unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil, inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from simulator.core.faults import BadInput
from simulator.core.parallel import say
from simulator.core.plain import PlainData
from simulator.core.serving.load.busier import (
    FEWEST,
    busier,
    is_steady,
    requests_in_words,
)
from simulator.core.serving.requests import Request
from simulator.scenario import Loaded
from simulator.scenario.uncertain.draws import SHARE
from simulator.studies.capacity import drift
from simulator.studies.plan.arithmetic import most_times
from simulator.studies.plan.file import Candidate
from simulator.studies.plan.limits import limits_of
from simulator.studies.plan.search import Finding, keeps
from simulator.studies.plan.throughput import (
    OVERLOADED,
    by_law,
    full_step_s,
    occupied_s,
    offered_per_s,
)

PRECISION = 0.05
"""Relative width at which the search ends."""
SHORTFALL = 0.25
"""The same below the traffic of the plan: how little is carried there decides nothing, and such
runs are long.
"""
BEHIND = 0.05
"""Share of arrivals that may stay behind; in runs this short, more than chance leaves there."""
SETTLED = 8.0
"""Length of a run over the longest that a request should take in a full batch."""
LEAST_SETTLED = 400
MOST_SETTLED = 3_000
"""Requests of a steady run at least, so that chance decides little; and for each replica at
most.
"""
MOST_REQUESTS = 20_000
"""Requests of a run beyond which no higher multiple is tried."""
THIRDS = 3.0
"""Length of a run over the mean of a session: the system fills up within its first third."""
UNSURE = 0.5
"""Half of the interval, relative to the mean, from which on nothing is known."""
FAINTEST = 1e-3
"""Multiple of the traffic below which nothing is looked for."""


@dataclass(frozen=True)
class Headroom:
    """Says how many times the traffic of the plan a fleet carries."""

    times: float | None
    """The highest multiple that was carried, to ``PRECISION`` (``SHORTFALL`` below 1); None:
    unknown; 0: not even a little.
    """
    by_arithmetic: float
    """The most that flops, bytes and KV cache allow."""
    steady: bool
    """Whether traffic went on until the queue had settled; else it came once."""
    recorded: int | None
    """Requests of the log that more were drawn from; None where the scenario states how to draw
    them.
    """
    interval: tuple[float, float] | None = None
    """Where the mean length of so few requests leaves it; None where lengths are stated, or
    alike.
    """
    capped: bool = False
    """Whether a higher multiple was not tried."""
    requests: int = 0
    """Requests of the run that carried it."""
    lasted_s: float = 0.0
    """Seconds from its first arrival to its last."""
    by_law: bool = False
    """Whether the multiple is the law's and was not run (``OVERLOADED``)."""
    cut_short: bool = False
    """Whether its run ended behind ``MOST_SETTLED`` turns a replica, before sessions had filled it
    up.
    """

    def as_data(self) -> PlainData:
        """Return plain data."""
        names = ("times", "steady", "recorded", "interval", "capped", "requests", "by_law")
        found = {name: getattr(self, name) for name in names}
        if self.cut_short:
            found["cut_short"] = True
        return found | {
            "lasted_s": self.lasted_s,
            "by_arithmetic": self.by_arithmetic if self.by_arithmetic < inf else None,
        }


class TooShort(BadInput):
    """Is raised for a log of too few requests to draw more from."""


def with_more(loaded: Loaded, factor: float, least_s: float) -> Loaded:
    """Return the scenario with ``factor`` times its traffic, which goes on for ``least_s`` seconds
    at least if it is steady.

    Raises :class:`TooShort` for a log that says nothing of more.
    """
    requests = loaded.scenario.requests
    if requests.traffic and requests.count < FEWEST:
        message = f"unknown from {requests_in_words(requests.count)}; it takes {FEWEST}"
        raise TooShort.at(loaded.scenario.name, message, "requests")
    drawn = busier(requests, factor, loaded.scenario.seed, least_s)
    if drawn is requests:
        return loaded
    return loaded.replace(requests=drawn)


def lasting_s(loaded: Loaded, factor: float, replicas: int) -> float:
    """Return for how many seconds steady traffic of ``factor`` times the rate is run on so many
    replicas.

    What they could not serve for long is a burst, which lasts no longer than it did.
    """
    if by_law(loaded, replicas) < OVERLOADED:
        return loaded.scenario.requests.count / offered_per_s(loaded)
    return _settled_s(loaded, factor, replicas)


def _settled_s(loaded: Loaded, factor: float, replicas: int) -> float:
    """Return the same of traffic that goes on, whatever so many replicas serve of it."""
    rate = offered_per_s(loaded) * factor
    return max(LEAST_SETTLED / rate, min(settling_s(loaded), MOST_SETTLED * replicas / rate))


def recorded(loaded: Loaded) -> int | None:
    """Return the number of requests of a log; None where arrivals are drawn."""
    requests = loaded.scenario.requests
    if requests.traffic:
        return requests.count
    return None


def settling_s(loaded: Loaded) -> float:
    """Return the seconds after which the queue of steady traffic has settled."""
    limits = limits_of(loaded.scenario)
    _, output, _ = loaded.scenario.lengths
    waiting = max((limit.seconds for limit in limits if limit.metric == "ttft"), default=0.0)
    each = [limit.seconds for limit in limits if limit.metric == "tpot"]
    decoding = output * min([full_step_s(loaded), *each])
    whole = [limit.seconds for limit in limits if limit.metric == "e2e"]
    request_s = min([waiting + decoding, *whole])
    return max(SETTLED * request_s, THIRDS * _session_s(loaded, request_s))


def _session_s(loaded: Loaded, request_s: float) -> float:
    """Return the mean seconds from the first turn of a session to its end, with ``request_s`` for
    each turn; 0 without sessions.
    """
    requests = loaded.scenario.requests
    sessions = list(requests.turns(loaded.scenario.seed))
    if not sessions:
        return 0.0
    waits = sum(turn.wait_s for turns in sessions for turn in turns)
    return (waits + requests.count * request_s) / len(sessions)


class FillingUp(NamedTuple):
    """Says for how long drawn sessions begin in a run, and how long one lasts in the mean (s)."""

    begin_s: float
    session_s: float
    enough_turns: int
    """Turns of a run in which sessions begin for ``THIRDS`` times as long as one lasts."""


def filling_up(finding: Finding) -> FillingUp | None:
    """Return why a run ends before its system has filled up with sessions; None where it has, or
    sessions are not drawn.
    """
    loaded = finding.candidate.loaded
    requests = loaded.scenario.requests
    if finding.outcome is None or requests.sessions is None or not is_steady(requests):
        return None
    rate = offered_per_s(loaded)
    session_s = _session_s(loaded, (finding.outcome.serving.e2e.mean_ms or 0.0) / 1e3)
    enough_s = THIRDS * session_s
    begin_s = requests.count / rate
    if begin_s >= enough_s:
        return None
    return FillingUp(begin_s, session_s, ceil(rate * enough_s))


def headroom(finding: Finding) -> Headroom:
    """Return how many times the traffic of the plan a fleet carries, found by trying multiples
    about the law's guess.

    Carried is taken to be all that is less: with more requests in a second nothing else is to be
    expected.
    """
    fleet = _Fleet(finding.candidate, finding.replicas)
    requests = fleet.loaded.scenario.requests
    if fleet.unknown or not fleet.steady:
        # gone through once, traffic as it is has been carried: that is the answer of the plan
        return fleet.carries(_Run(1.0, requests.count, fleet.burst_s), 1.5, SHORTFALL)
    guess = by_law(fleet.loaded, finding.replicas)
    if guess < OVERLOADED:
        return Headroom(guess, fleet.by_arithmetic, True, fleet.recorded, by_law=True)
    return fleet.carries(_Run(0.0), guess, SHORTFALL)


def most_carried(candidate: Candidate, replicas: int, more_than: float = 0.0) -> Headroom | None:
    """Return how many times its traffic a fleet carries, to ``PRECISION`` whatever that traffic is;
    None where it is no more than ``more_than`` times, to that precision.

    It is run at the rates that it may carry alone. So two plans that differ in the rate of drawn
    arrivals, or of a steady log, find the same number of requests a second.
    """
    fleet = _Fleet(candidate, replicas)
    if fleet.unknown:
        return fleet.carries(_Run(0.0), 1.0, PRECISION)
    low = _Run(0.0)
    if more_than:
        above = fleet.carried(more_than * (1.0 + PRECISION))
        if above is None:
            return None
        low = above
    guess = by_law(fleet.loaded, replicas) or 1.0  # requests at one instant have no rate
    return fleet.carries(low, max(guess, low.times * (1.0 + 2.0 * PRECISION)), PRECISION)


class _Run(NamedTuple):
    """Is a run that was carried: the multiple of the traffic, its requests, and seconds from the
    first arrival to the last.
    """

    times: float
    requests: int = 0
    lasted_s: float = 0.0


class _Fleet:
    """Replicas under more and less of their traffic."""

    def __init__(self, candidate: Candidate, replicas: int) -> None:
        self.candidate = candidate
        self.replicas = replicas
        self.loaded = candidate.loaded
        scenario = self.loaded.scenario
        self.steady = is_steady(scenario.requests)
        self.recorded = recorded(self.loaded)
        limits = limits_of(scenario)
        offered = offered_per_s(self.loaded)
        self.by_arithmetic = most_times(scenario, replicas, limits, self.steady, offered)

    @cached_property
    def unsure(self) -> float:
        """Return half of the interval of what a request of a log costs, relative to its mean."""
        return 0.0 if self.recorded is None else _unsure(self.loaded)

    @property
    def unknown(self) -> bool:
        """Return whether the requests of a log are too few to say anything of more."""
        return (self.recorded or FEWEST) < FEWEST or self.unsure > UNSURE

    @property
    def burst_s(self) -> float:
        """Return for how long traffic lasts that is gone through once."""
        requests = self.loaded.scenario.requests
        if requests.sessions is None:
            return max(line.arrival_s for line in requests.lines())
        return requests.count / offered_per_s(self.loaded)

    @property
    def tried_up_to(self) -> float:
        """Return the highest multiple that is tried."""
        requests = self.loaded.scenario.requests
        if self.steady:
            return self.by_arithmetic
        if requests.sessions is None:
            return max(2.0, MOST_REQUESTS / requests.count)
        return max(2.0, sum(1 for _ in requests.turns(self.loaded.scenario.seed)))  # but at once

    def carries(self, low: _Run, guess: float, below_one: float) -> Headroom:
        """Return the highest multiple that is carried, from one that is on, by trying some about a
        guess; ``below_one``: the precision of those below 1.
        """
        if self.unknown:
            return Headroom(None, self.by_arithmetic, self.steady, self.recorded)
        best = max([low, *self._tried(guess, low.times, below_one)])
        interval = None
        if self.unsure > PRECISION:
            interval = (best.times / (1.0 + self.unsure), best.times / (1.0 - self.unsure))
        most = self.tried_up_to
        return Headroom(
            best.times,
            self.by_arithmetic,
            self.steady,
            self.recorded,
            interval,
            most < self.by_arithmetic and best.times >= most,
            best.requests,
            best.lasted_s,
            cut_short=best.times > 0.0 and _cut_short(self.loaded, best.times, self.replicas),
        )

    def _tried(self, guess: float, low: float, below_one: float) -> Iterator[_Run]:
        """Yield the runs that are carried, of multiples above ``low``, which is, and below what
        arithmetic allows.

        From a guess on steps grow until it lies between a multiple that is carried and one that is
        not; then it is bisected.
        """
        most = self.tried_up_to
        high = beyond = self.by_arithmetic
        times = min(guess, 0.95 * high)
        faintest = FAINTEST * min(1.0, guess)
        step = 1.0 + 2.0 * PRECISION
        while low < most and (low or high > faintest):
            if high <= low * (1.0 + (PRECISION if high > 1.0 else below_one)):
                break
            if run := self.carried(times):
                low = times
                yield run
            else:
                high = times
            if not low:
                times = high / step
            elif high == beyond and low * step < high:
                times = min(low * step, most)
            else:
                times = (low * high) ** 0.5
            step = step * step

    def carried(self, times: float) -> _Run | None:
        """Return the run under so many times the traffic; None where it is not carried."""
        say(f"{times:.3g} times the traffic")
        came = list[Request]()
        least_s = _settled_s(self.loaded, times, self.replicas)
        more = partial(with_more, factor=times, least_s=least_s)
        if not keeps(self.candidate.changed(more), self.replicas, came):
            return None
        arrivals = np.array([request.arrival_s for request in came])
        ends = np.sort([request.finished_s if request.gone else inf for request in came])
        if self.steady and drift(arrivals, ends) > BEHIND:
            return None
        return _Run(times, len(arrivals), float(arrivals[-1] - arrivals[0]))


def _cut_short(loaded: Loaded, times: float, replicas: int) -> bool:
    """Return whether drawn sessions end before they have filled up so many replicas."""
    requests = loaded.scenario.requests
    if requests.sessions is None or not is_steady(requests):
        return False
    return lasting_s(loaded, times, replicas) < settling_s(loaded)


def _unsure(loaded: Loaded) -> float:
    """Return half of the interval of the mean cost of a request of a log, relative to that mean."""
    requests = loaded.scenario.requests
    lengths = np.array([(line.prompt_tokens, line.output_tokens) for line in requests.lines()])
    cost = lengths @ np.array(occupied_s(loaded))
    return float(ndtri((1.0 + SHARE) / 2.0) * cost.std() / cost.mean() / sqrt(len(cost)))
