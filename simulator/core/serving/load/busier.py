"""More traffic: the requests of a workload drawn again, so many times as many in a second.

    log       ||||....|...|...|...|     a burst, then a steady stream
    twice     ||||||||..|.|.|.|.|.|.|     the burst is twice as large, the stream twice as dense

*Stretches* (the law of what is kept). A log is cut into stretches within which gaps between
requests differ by no more than chance: the piecewise constant rate of most likelihood, at the price
of a cut of Bayesian Blocks (Scargle et al., ApJ 764, 167, 2013, eq. 21, false positives
``FALSE_CUTS``), on gaps that are ``AT_ONCE_S`` longer than recorded, so that what is closer counts
as at once. A ``factor`` k then keeps:

* *the rate over time, times k*. A stretch lasts as long as it did and has k times its requests, so
  that bursts add up, as those of k times as many users do whom the same event wakes. 200 requests
  at one instant become 400 at that instant.
* *the burstiness within a stretch*. Its gaps are those recorded, over k: a steady stream stays
  steady, and a Poisson stream is one of k times the rate. What is independent stays independent.
* *the lengths*. Prompt, output and task stay together. A stretch is gone through again and again,
  the first time in its own order, then from a random place on. For a whole k each of its requests
  comes k times, else some come once more than others.

A log of one stretch is *steady*: it goes on in the same way for ``least_s`` at least, and for as
many requests as were recorded. A log of several is gone through once: nobody knows what comes after
it.

Prefixes of prompts are shared within one passage of the log: who comes with another passage is
somebody else. Drawn arrivals need no log: more are drawn, at k times the rate. So it is with
sessions that are drawn; those of a file are what they are, and begin k times as fast.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil, floor, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.serving.load.arrivals import Recorded
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.load.traffic import Line, TrafficFile
from simulator.core.serving.requests import Requests

AT_ONCE_S = 1e-3
"""Seconds between requests below which they come at once: a small part of any pass."""
FALSE_CUTS = 0.01
"""Share of streams of one rate that are cut nevertheless, about."""
FEWEST = 10
"""Requests of a log from which on it says anything about more."""
MOST_CELLS = 1_500
"""Cells of gaps among which cuts are looked for; longer logs have several gaps in each."""


class Redrawn(TrafficFile):
    """Requests that were drawn again from those of a file, whose fields it keeps for messages."""

    drawn: tuple[Line, ...] = ()
    """The requests, in order of arrival."""

    def lines(self) -> Iterator[Line]:
        """Return the requests in order of arrival."""
        return iter(self.drawn)


class Stretch(NamedTuple):
    """Requests of a log from ``begin`` to before ``end``, which come at one rate."""

    begin: int
    end: int


def busier(requests: Requests, factor: float, seed: int = 0, least_s: float = 0.0) -> Requests:
    """Return a workload with ``factor`` times as many requests in a second; a closed loop as it is.

    A steady one lasts ``least_s`` seconds at least. A factor of 1 leaves what is long enough
    unchanged.
    """
    arrivals = requests.arrivals
    if arrivals is None:
        return requests
    if isinstance(arrivals, Recorded):
        scale = arrivals.rate_scale * factor
        sooner = arrivals.model_copy(update={"rate_scale": scale})
        return requests.model_copy(update={"arrivals": sooner})
    if isinstance(arrivals, TrafficFile):
        recorded = tuple(requests.lines())
        drawn = redrawn(recorded, factor, seed, least_s)
        if drawn is recorded:
            return requests
        return with_lines(requests, arrivals, drawn)
    rate = arrivals.rate_per_s * factor
    count = requests.count
    if requests.sessions is None:
        count = max(count, ceil(rate * least_s))
    elif not isinstance(requests.sessions, SessionFile):
        turns_per_s = (requests.offered_per_s(seed) or 0.0) * factor
        count = max(count, ceil(turns_per_s * least_s))
    faster = arrivals.model_copy(update={"rate_per_s": rate})
    return requests.model_copy(update={"arrivals": faster, "count": count})


def requests_in_words(count: int) -> str:
    """Return how many requests there are, in words."""
    if count == 1:
        return "1 request"
    return f"{count:,} requests"


def with_lines(requests: Requests, traffic: TrafficFile, lines: Iterable[Line]) -> Requests:
    """Return a workload of these requests in place of those of its file."""
    drawn = tuple(lines)
    fields = {name: getattr(traffic, name) for name in TrafficFile.model_fields}
    arrivals = Redrawn.model_construct(**fields, drawn=drawn)
    return requests.model_copy(update={"arrivals": arrivals, "count": len(drawn)})


def is_steady(requests: Requests) -> bool:
    """Return whether a workload may go on as it is: arrivals are drawn, or come at one rate
    throughout. Sessions of a file do not: they are those that there are.
    """
    if isinstance(requests.sessions, SessionFile):
        return False
    if requests.traffic is None:
        return requests.arrivals is not None
    return _is_stream(tuple(line.arrival_s for line in requests.lines()))


def _is_stream(times: tuple[float, ...]) -> bool:
    """Return whether ascending times of arrival (s) have one rate, a finite one."""
    return len(stretches(times)) == 1 and times[-1:] > times[:1]


def rate_per_s(requests: Requests) -> float:
    """Return how many requests come in a second, in the mean; infinity where all come at once."""
    if requests.traffic is None:
        return float(getattr(requests.arrivals, "rate_per_s", np.inf))
    times = [line.arrival_s for line in requests.lines()]
    if times[-1] > times[0]:
        return (len(times) - 1) / (times[-1] - times[0])
    return np.inf


def redrawn(
    lines: tuple[Line, ...], factor: float, seed: int = 0, least_s: float = 0.0
) -> tuple[Line, ...]:
    """Return the requests of a log at ``factor`` times its rate, a steady one for ``least_s``
    seconds at least.
    """
    arrivals = tuple(line.arrival_s for line in lines)
    times = np.array(arrivals)
    parts = stretches(arrivals)
    steady = _is_stream(arrivals)
    gaps = np.append(np.diff(times), 0.0)
    if len(lines) > 1:
        last = parts[-1]
        if last.end - last.begin > 1:
            gaps[-1] = gaps[last.begin : -1].mean()
        else:
            gaps[-1] = gaps[-2]
    whole_s = float(gaps.sum())
    if factor == 1.0 and not (steady and whole_s < least_s):
        return lines
    random = np.random.default_rng((seed, 4))
    drawn = list[Line]()
    if steady:
        number = max(len(lines), ceil(len(lines) * factor * least_s / whole_s - 1e-9))
        lasts_s = whole_s * number / (len(lines) * factor)
        return tuple(_passages(lines, gaps, parts[0], number, float(times[0]), lasts_s, random))
    for part in parts:
        number = floor(part.end * factor + 0.5) - floor(part.begin * factor + 0.5)
        begin_s = float(times[part.begin])
        lasts_s = float(gaps[part.begin : part.end].sum())
        if not number:
            continue
        if part.end < len(times):
            until_s = float(times[part.end])
        else:
            until_s = None
        drawn += _passages(lines, gaps, part, number, begin_s, lasts_s, random, until_s)
    return tuple(drawn) or lines[:1]


def _passages(
    lines: tuple[Line, ...],
    gaps: NDArray[np.float64],
    part: Stretch,
    number: int,
    begin_s: float,
    lasts_s: float,
    random: np.random.Generator,
    until_s: float | None = None,
) -> Iterator[Line]:
    """Yield ``number`` requests from ``begin_s`` on, going through a stretch again and again within
    ``lasts_s`` seconds.
    """
    size = part.end - part.begin
    places = np.arange(number)
    passage = places // size
    starts = random.integers(0, size, size=number // size + 1)
    starts[0] = 0
    chosen = part.begin + (places + starts[passage]) % size
    steps = gaps[chosen]
    total_s = float(steps.sum())
    if total_s > 0.0:
        steps = steps * (lasts_s / total_s)
    at = begin_s + np.append(0.0, np.cumsum(steps)[:-1])
    if until_s is not None:
        at = np.minimum(at, until_s)  # a sum of gaps may end a rounding later
    for place, when, repeated in zip(chosen.tolist(), at.tolist(), passage.tolist(), strict=True):
        line = lines[place]
        if repeated:
            hashes = tuple(f"{repeated}:{name}" for name in line.hashes)
        else:
            hashes = line.hashes
        yield line._replace(arrival_s=when, hashes=hashes)


@lru_cache(maxsize=8)
def stretches(times: tuple[float, ...]) -> tuple[Stretch, ...]:
    """Return the stretches of one rate in ascending times of arrival (s), by dynamic programming
    over gaps.

    A stretch of n gaps that last S in all has the log likelihood n ln(n / S) at the rate n / S that
    suits it best; a cut is made where it gains more than its price. A request belongs to the gap
    behind it, the last one to the last stretch.
    """
    count = len(times)
    if count < 3:
        return (Stretch(0, count),)
    gaps = np.diff(np.array(times)) + AT_ONCE_S
    size = ceil(len(gaps) / MOST_CELLS)
    edges = np.append(np.arange(0, len(gaps), size), len(gaps))
    lasted = np.append(0.0, np.cumsum(gaps))[edges]
    price = 4.0 - log(73.53 * FALSE_CUTS * count**-0.478)
    best = np.zeros(len(edges))
    cut = np.zeros(len(edges), dtype=np.int64)
    for end in range(1, len(edges)):
        numbers = edges[end] - edges[:end]
        gains = best[:end] + numbers * np.log(numbers / (lasted[end] - lasted[:end])) - price
        cut[end] = int(gains.argmax())
        best[end] = gains[cut[end]]
    found = list[Stretch]()
    end = len(edges) - 1
    while end:
        begin = int(cut[end])
        found.append(Stretch(int(edges[begin]), int(edges[end])))
        end = begin
    found.reverse()
    found[-1] = Stretch(found[-1].begin, count)
    return tuple(found)
