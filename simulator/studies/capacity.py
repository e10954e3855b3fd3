"""The load that a scenario can carry: whether it is stable under its arrivals, and up to which
rate.

*Stable* (rule). The run is cut into thirds by time, from 0 to the last arrival H. ``drift`` is by
how much the mean number of requests in the system grew from the middle third to the last, over the
requests that arrived between the middles of the two: the share of arrivals that stayed behind. A
queue whose arrivals outrun its service by a share s keeps s of them, so the drift estimates s; a
run is stable if it is at most ``DRIFT``. (A queue is stable while less work arrives than is done:
Loynes, 1962; the number in the system then has no upward drift: Foster's criterion, Asmussen,
Applied Probability and Queues, sec. I.5.) The first third is left out: a system that starts empty
fills up.

*Capacity* without an SLO is what the system delivers when it never lacks work: the saturation rule,
by which a queue is stable below the throughput that it has with all customers there at once
(Baccelli and Foss, J. Appl. Prob. 32, 1995). An unstable run is such a run already; of a stable
one, the whole workload is run again with all its requests at once, drawn again and again where they
are few. Filling and draining count, so the figure is a little low, the less the longer the
workload.

With an SLO it is the highest rate that meets it, which DistServe calls goodput (Zhong et al., OSDI
2024): bisected to ``TOLERANCE`` below the above, on the first requests of the workload, or where
they are fewer on more that are drawn from it; another rate is that of so many times as many
requests (:mod:`simulator.core.serving.load.busier`).
"""

import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.parallel import CORES, counted, say
from simulator.core.plain import PlainData
from simulator.core.processes import pool
from simulator.core.serving.load.arrivals import Daily, Recorded
from simulator.core.serving.load.busier import (
    FEWEST,
    busier,
    redrawn,
    requests_in_words,
    with_lines,
)
from simulator.core.serving.load.traffic import TrafficFile
from simulator.core.serving.requests import Request
from simulator.scenario import Loaded
from simulator.scenario.evaluate import simulate, tuned

DRIFT = 0.02
TOLERANCE = 0.05
SEARCHED = 2_000
"""Requests of a run in the search."""
POINTS = 240
"""Points of a curve over time."""
AT_ONCE = 1e6
"""Factor on the rate of arrivals at which all requests are as good as there at once."""
FAINTEST = 1e-3
"""Share of what the system delivers at most: where even less is refused, it is not the rate that is
too high.
"""
CURVES = ("hours", "in_system")
"""Fields of a trial that plain data leaves out."""


class Trial(NamedTuple):
    """Holds a run at a rate."""

    requests_per_s: float
    """Requests per second over the time to the last arrival."""
    requests: int
    drift: float
    stable: bool
    slo_met: bool
    finished_per_s: float
    """Requests per second over the time of the whole run."""
    tokens_per_s: float
    mean_in_system: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float | None
    """Median time in ms per token behind the first; None where no output has a second token."""
    tpot_p99_ms: float | None
    littles_gap: float
    preemptions: int
    cpu_s: float
    hours: tuple[float, ...]
    """Times at which ``in_system`` was counted, in hours since the start."""
    in_system: tuple[int, ...]
    """Requests in the system at these times."""

    @property
    def carried(self) -> bool:
        """Return whether the run is stable and within the SLO."""
        return self.stable and self.slo_met


class Capacity(NamedTuple):
    """Holds the verdict on a whole workload, and the rates that the search ended with."""

    scenario: str
    workload: str
    replicas: int
    offered: Trial
    """The run of the whole workload at its natural rate."""
    carried_per_s: float
    """Highest rate in requests per second that it carries; 0 where the SLO is out of reach at any
    rate.
    """
    refused_per_s: float
    """Lowest rate in requests per second that it was seen not to carry."""
    search_cpu_s: float
    """CPU time of the search in s."""

    @property
    def headroom(self) -> float:
        """Return the carried rate over the offered rate, a ratio."""
        return self.carried_per_s / self.offered.requests_per_s

    @property
    def verdict(self) -> str:
        """Return in a word or two whether the offered rate is carried."""
        if not self.offered.stable:
            return "unstable"
        if self.offered.slo_met:
            return "stable"
        return "stable, SLO missed"

    def as_data(self) -> PlainData:
        """Return plain data; curves over time are left out."""
        offered = {}
        for name, value in self.offered._asdict().items():
            if name not in CURVES:
                offered[name] = value
        return (
            self._asdict()
            | {"headroom": self.headroom, "verdict": self.verdict}
            | {"offered": offered}
        )


@dataclass(frozen=True)
class CapacityStudy:
    """Holds the capacities of scenarios under workloads, in the order asked for."""

    capacities: tuple[Capacity, ...]

    def as_data(self) -> PlainData:
        """Return the capacities as plain data."""
        return {"capacities": [capacity.as_data() for capacity in self.capacities]}


def study(
    loaded: Sequence[tuple[str, Loaded]], search: int = SEARCHED, workers: int | None = None
) -> CapacityStudy:
    """Return the capacities of the scenarios, given with the names of their workloads, in their
    order.

    They are found on all cores, or by so many ``workers``; several are processes.
    """
    processes = min(workers or CORES, len(loaded))
    if processes == 1:
        return CapacityStudy(
            tuple(capacity(one, workload, search) for workload, one in counted(loaded, "scenarios"))
        )
    with pool(processes) as executor:
        jobs = [
            executor.submit(capacity, scenario, workload, search) for workload, scenario in loaded
        ]
        for job in counted(as_completed(jobs), "scenarios", len(jobs)):
            say(f"the last: {job.result().scenario} under {job.result().workload}")
        return CapacityStudy(tuple(job.result() for job in jobs))


def capacity(loaded: Loaded, workload: str = "", searched: int = SEARCHED) -> Capacity:
    """Return verdict and capacity of a scenario with arrivals; raises :class:`BadInput` for a
    closed loop.
    """
    _refuse_without_rate(loaded)
    loaded, name = tuned(loaded), loaded.scenario.name
    say(f"{name}: {workload} at its own rate")
    offered = trial(loaded)
    if offered.requests_per_s == np.inf:
        message = "come all at once, which offers no rate; let them come one after another"
        raise loaded.document.refusal(("requests", "arrivals"), message)
    say(f"{name}: {workload}, all at once")
    most = trial(at_once(loaded, searched)) if offered.stable else offered
    searching = [] if most is offered else [most]
    low = high = most.finished_per_s
    if loaded.scenario.slo:
        low, high, tried = _within_slo(loaded, workload, high, searched)
        searching += tried
    cpu_s = sum(run.cpu_s for run in searching)
    return Capacity(name, workload, loaded.scenario.serving.copies, offered, low, high, cpu_s)


def _refuse_without_rate(loaded: Loaded) -> None:
    """Raise :class:`BadInput` for a closed loop, and for a log that is too short to say what is
    carried.
    """
    requests = loaded.scenario.requests
    if requests.arrivals is None:
        message = "is a closed loop, which offers no rate; set requests.arrivals, or name --traffic"
        raise loaded.document.refusal(("requests",), message)
    if requests.sessions is not None:
        message = (
            "are asked less often by a slow server, so that there is no rate of requests to raise; "
            f"raise that of sessions: specsim sweep {loaded.scenario.name} --axis "
            "requests.arrivals.rate_per_s=1,2,4"
        )
        raise loaded.document.refusal(("requests", "sessions"), message)
    if loaded.scenario.serving.admission is not None:
        message = "turns requests away at any rate that is too high; leave it out"
        raise loaded.document.refusal(("serving", "admission"), message)
    if isinstance(requests.arrivals, Daily):
        message = "has no one rate; ask for that of its busiest hour, as poisson"
        raise loaded.document.refusal(("requests", "arrivals"), message)
    if requests.traffic and requests.count < FEWEST:
        message = (
            f"holds {requests_in_words(requests.count)}; it takes {FEWEST} to say what is carried"
        )
        raise requests.traffic.fault(0, message)


def _within_slo(
    loaded: Loaded, workload: str, delivered: float, searched: int
) -> tuple[float, float, list[Trial]]:
    """Return the highest rate that meets the SLO, the lowest that was refused, and the runs that
    were tried.

    Rates are in requests per second; ``delivered`` is that above which none is carried, SLO or not.
    """
    part = _part(loaded, searched)
    natural = trial_rate(part)
    from_traffic = loaded.scenario.requests.traffic is not None
    low = 0.0
    high = delivered
    tried = list[Trial]()
    while high > FAINTEST * delivered and (not low or high / low > 1.0 + TOLERANCE):
        rate = (low * high) ** 0.5 if low else high / 1.5
        run = trial(busier_by(part, rate / natural, searched / rate if from_traffic else 0.0))
        tried.append(run)
        verdict = "met" if run.slo_met else "missed"
        say(f"{loaded.scenario.name}: {workload} at {rate:.3g} requests per second, SLO {verdict}")
        low, high = (rate, high) if run.slo_met else (low, rate)
    return low, high, tried


def _part(loaded: Loaded, searched: int) -> Loaded:
    """Return the first requests of a workload; all of it where it has fewer, or where the first
    ones come all at once.
    """
    requests = loaded.scenario.requests
    if requests.traffic and requests.count <= searched:
        return loaded
    part = loaded.replace(requests=requests.model_copy(update={"count": searched}))
    if trial_rate(part) < np.inf:
        return part
    return loaded


def trial(loaded: Loaded) -> Trial:
    """Return the run of a scenario with arrivals, whose strategy is tuned."""
    times = list[tuple[float, float]]()

    def note(request: Request) -> None:
        times.append((request.arrival_s, request.finished_s))

    begin = time.process_time()
    outcome, _ = simulate(loaded.scenario, loaded.acceptance(), finished=note, prompts_alone=True)
    cpu_s = time.process_time() - begin
    arrivals, ends = np.sort(np.array(times).T, axis=1)
    serving = outcome.serving
    last = float(arrivals[-1])
    grown = drift(arrivals, ends)
    at = np.linspace(0.0, outcome.end_s, POINTS)
    in_system = np.searchsorted(arrivals, at, "right") - np.searchsorted(ends, at, "right")
    return Trial(
        requests_per_s=len(times) / last if last else np.inf,
        requests=len(times),
        drift=grown,
        stable=grown <= DRIFT,
        slo_met=serving.counted.slo_met,
        finished_per_s=len(times) / outcome.end_s,
        tokens_per_s=outcome.tokens / outcome.end_s,
        mean_in_system=serving.mean_in_system,
        ttft_p50_ms=serving.ttft.quantile(0.5) * 1e3,
        ttft_p99_ms=serving.ttft.quantile(0.99) * 1e3,
        tpot_p50_ms=serving.tpot.quantile_ms(0.5),
        tpot_p99_ms=serving.tpot.quantile_ms(0.99),
        littles_gap=serving.littles_law.gap,
        preemptions=serving.preemptions,
        cpu_s=cpu_s,
        hours=tuple((at / 3600.0).tolist()),
        in_system=tuple(in_system.tolist()),
    )


def drift(arrivals: NDArray[np.float64], ends: NDArray[np.float64]) -> float:
    """Return the share of arrivals that stayed behind, from ascending times of arrival and of
    departure in s.
    """
    last = float(arrivals[-1])
    came = np.searchsorted(arrivals, [last / 2, last * 5 / 6])
    arrived = int(came[1] - came[0])
    if not arrived:
        return 0.0
    middle, late = (
        _mean_number(arrivals, ends, last * at, last * (at + 1 / 3)) for at in (1 / 3, 2 / 3)
    )
    return float(late - middle) / arrived


def _mean_number(
    arrivals: NDArray[np.float64], ends: NDArray[np.float64], begin: float, end: float
) -> float:
    """Return the requests in the system between two times, mean over time."""
    here = (
        np.clip(end - arrivals, 0.0, end - begin).sum()
        - np.clip(end - ends, 0.0, end - begin).sum()
    )
    return float(here) / (end - begin)


def trial_rate(loaded: Loaded) -> float:
    """Return the requests per second of a workload at its natural rate; infinity where all come at
    its beginning.
    """
    source = loaded.scenario.requests.source_of(loaded.scenario.seed)
    last = count = 0.0
    while not source.exhausted:
        last = source.next_s
        count += len(list(source.due(last)))
    if last:
        return count / last
    return np.inf


def busier_by(loaded: Loaded, factor: float, least_s: float = 0.0) -> Loaded:
    """Return the scenario with ``factor`` times its requests in a second
    (:func:`simulator.core.serving.load.busier.busier`).
    """
    scenario = loaded.scenario
    return loaded.replace(requests=busier(scenario.requests, factor, scenario.seed, least_s))


def at_once(loaded: Loaded, least: int) -> Loaded:
    """Return the scenario with all its requests as good as at once, ``least`` of them at least."""
    scenario = loaded.scenario
    requests = scenario.requests
    arrivals = scenario.requests.arrivals
    if isinstance(arrivals, TrafficFile):
        lines = tuple(requests.lines())
        if len(lines) < least:
            lines = redrawn(
                tuple(line._replace(arrival_s=0.0) for line in lines),
                least / len(lines),
                scenario.seed,
            )
        packed = (line._replace(arrival_s=line.arrival_s / AT_ONCE) for line in lines)
        return loaded.replace(requests=with_lines(requests, arrivals, packed))
    if arrivals is None or isinstance(arrivals, Recorded):
        return loaded
    rushed = arrivals.model_copy(update={"rate_per_s": arrivals.rate_per_s * AT_ONCE})
    update = {"arrivals": rushed, "count": max(requests.count, least)}
    return loaded.replace(requests=requests.model_copy(update=update))
