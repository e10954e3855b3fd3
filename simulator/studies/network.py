"""What the network between servers costs a pipeline, with sending hidden behind pruning and without.

    overlapped  stage i    |prune|== level ==|        in turn  |prune|....|== level ==|
                link i     |send|                              |     |send|

Every scenario is simulated as it is and with ``asynchronous`` turned round; one with a link between servers also with
the link within a server in its place. What one request takes on the plain pipeline stands beside it, as the paper
compares with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from simulator.cost.device import Link
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded, run
from simulator.strategies.common.studied import LevelTree
from simulator.world import Span

LATENCIES_US = (10, 50, 200, 500, 1_000, 2_000, 5_000, 10_000)
RATES_GBIT_S = (1, 2.5, 5, 10, 25, 100)
SLOWEST_MS, LEAST_GBIT_S, CLOSE = 1_000.0, 1e-3, 1.03
"""How far a link is made worse to see where it breaks a pipeline, and how closely that is found."""
SWEPT_REQUESTS = 10
"""Requests simulated for each point of a sweep, or as many as the scenario has where those are fewer."""


@dataclass(frozen=True)
class NetworkRow:
    """One scenario, its links as they are or all as within a server, sending overlapped or in turn."""

    scenario: str
    one_server: bool
    """The link between servers is taken to be the one within them."""
    overlapped: bool
    tpot_ms: float
    added_ms: float
    """More than with all links as within a server and sending overlapped."""
    plain_ms: float
    """One request at a time on the plain pipeline, over the same links."""

    @property
    def added_share(self) -> float:
        """``added_ms`` as a share of what it is added to."""
        return self.added_ms / (self.tpot_ms - self.added_ms)

    @property
    def speedup(self) -> float:
        """Over one request on the plain pipeline."""
        return self.plain_ms / self.tpot_ms


@dataclass(frozen=True)
class NetworkPoint:
    """Milliseconds that a token takes longer than on one server, for a link of this latency and rate."""

    latency_us: float
    gbit_s: float
    overlapped_ms: float
    in_turn_ms: float


@dataclass(frozen=True)
class Breaking:
    """What a link between servers must be for a token to take twice as long as on one server; None: nothing looked at does."""

    scenario: str
    overlapped: bool
    latency_ms: float | None
    """At its own rate."""
    gbit_s: float | None
    """At its own latency."""
    own_latency_ms: float
    own_gbit_s: float


def network_rows(loaded: Sequence[Loaded]) -> list[NetworkRow]:
    """Two rows for a scenario, four where servers are linked; BadInput without a strategy that can overlap sending."""
    return [row for one in loaded for row in _rows(one)]


def latency_sweep(loaded: Loaded, latencies_us: Iterable[float] = LATENCIES_US) -> list[NetworkPoint]:
    """The scenario's link between servers with other latencies."""
    return list(_sweep(loaded, (_changed(_between(loaded), latency_us=latency) for latency in latencies_us)))


def rate_sweep(loaded: Loaded, rates_gbit_s: Iterable[float] = RATES_GBIT_S) -> list[NetworkPoint]:
    """The scenario's link between servers with other bandwidths."""
    return list(_sweep(loaded, (_changed(_between(loaded), bandwidth_gb_s=rate / 8) for rate in rates_gbit_s)))


def breaking(loaded: Loaded) -> list[Breaking]:
    """The latency, and the rate, at which the link between servers doubles the time of a token; overlapped and in turn."""
    few, link = _few(loaded), _between(loaded)
    least = _tpot_ms(_linked(few, None), True)

    def late(overlapped: bool, ms: float) -> bool:
        return _tpot_ms(_linked(few, _changed(link, latency_us=ms * 1e3)), overlapped) >= 2.0 * least

    def slow(overlapped: bool, times: float) -> bool:
        return _tpot_ms(_linked(few, _changed(link, bandwidth_gb_s=own[1] / 8 / times)), overlapped) >= 2.0 * least

    own = link.latency_us.value / 1e3, link.bandwidth_gb_s.value * 8
    found = []
    for way in (True, False):
        ms = _first(partial(late, way), own[0], SLOWEST_MS)
        times = _first(partial(slow, way), 1.0, own[1] / LEAST_GBIT_S)
        found.append(Breaking(loaded.scenario.name, way, ms, times and own[1] / times, *own))
    return found


def _first(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Where something begins to hold between two numbers, to ``CLOSE``; None where it does not even at the second."""
    if not holds(high):
        return None
    while high / low > CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def link_between_servers(loaded: Loaded) -> int:
    """The first link between servers, counted from 1; BadInput where all stages are on one."""
    between, target = _between(loaded), loaded.scenario.target
    links = target.pipeline.links if target and target.pipeline else ()
    return links.index(between) + 1


def spans_of(loaded: Loaded, overlapped: bool) -> list[Span]:
    """What the lanes do, for a picture of some steps."""
    one = _few(loaded.change(asynchronous=overlapped))
    return run.simulate(one.scenario, one.acceptance(), run.SPANS)[1]


def _rows(loaded: Loaded) -> Iterator[NetworkRow]:
    scenario = loaded.scenario
    if not isinstance(scenario.strategy, LevelTree):
        message = f"{scenario.strategy.name} does not overlap sending with pruning; expected specpipe or specpipe_tandem"
        raise BadInput([Fault((scenario.name, 0, 0), "strategy", message)])
    link = _link(loaded)
    least: float | None = None
    for one_server in (True, False) if link else (True,):
        placed = _linked(loaded, None) if link and one_server else loaded
        plain_ms = run.simulated_baseline(placed.scenario).tpot_s * 1e3
        for overlapped in (True, False):
            tpot_ms = _tpot_ms(placed, overlapped)
            least = tpot_ms if least is None else least
            yield NetworkRow(scenario.name, one_server, overlapped, tpot_ms, tpot_ms - least, plain_ms)


def _tpot_ms(loaded: Loaded, overlapped: bool) -> float:
    one = loaded.change(asynchronous=overlapped)
    return run.simulate(one.scenario, one.acceptance())[0].tpot_s * 1e3


def _sweep(loaded: Loaded, links: Iterable[Link]) -> Iterator[NetworkPoint]:
    few = _few(loaded)
    least = _tpot_ms(_linked(few, None), True)
    for link in links:
        placed = _linked(few, link)
        overlapped, in_turn = (_tpot_ms(placed, one) - least for one in (True, False))
        yield NetworkPoint(link.latency_us.value, link.bandwidth_gb_s.value * 8, overlapped, in_turn)


def _few(loaded: Loaded) -> Loaded:
    requests = loaded.scenario.requests
    return loaded.replace(requests=requests.model_copy(update={"count": min(requests.count, SWEPT_REQUESTS)}))


def _link(loaded: Loaded) -> Link | None:
    """The link between servers, if stages of a pipeline are on several."""
    pipeline = loaded.scenario.target.pipeline if loaded.scenario.target else None
    return pipeline.between if pipeline and len({stage.server for stage in pipeline.stages}) > 1 else None


def _between(loaded: Loaded) -> Link:
    link = _link(loaded)
    if link is None:
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "target.pipeline", "all stages are on one server")])
    return link


def _changed(link: Link, **values: float) -> Link:
    """A link with other numbers."""
    update = {name: getattr(link, name).model_copy(update={"value": value}) for name, value in values.items()}
    return link.model_copy(update=update)


def _linked(loaded: Loaded, link: Link | None) -> Loaded:
    """With another link between servers; None: the one within them."""
    target = loaded.scenario.target
    if target is None or target.pipeline is None:
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "target.pipeline", "is required and missing")])
    pipeline = target.pipeline.model_copy(update={"between": link or target.pipeline.within})
    return loaded.replace(target=target.model_copy(update={"pipeline": pipeline}))
