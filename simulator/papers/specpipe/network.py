"""What the network between servers costs a pipeline, with sending hidden behind pruning and
without.

    overlapped  stage i    |prune|== level ==|        in turn  |prune|....|== level ==|
                link i     |send|                              |     |send|

Scenarios are simulated as they are and with ``asynchronous`` turned round; those with a link
between servers also with the link within a server in its place. The time of a single request on the
plain pipeline is given as well, since the paper compares with that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from simulator.core.cost.device import Link
from simulator.core.faults import BadInput
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.world import Span
from simulator.papers.specpipe.filled_pipeline import FilledPipeline
from simulator.scenario import Loaded, evaluate

LATENCIES_US = (10, 50, 200, 500, 1_000, 2_000, 5_000, 10_000)
RATES_GBIT_S = (1, 2.5, 5, 10, 25, 100)
SLOWEST_MS = 1_000.0
LEAST_GBIT_S = 1e-3
CLOSE = 1.03
"""How far a link is made worse to see where it breaks a pipeline, and the ratio to which that is
located.
"""
SWEPT_REQUESTS = 10
"""Requests simulated for a point of a sweep, or as many as the scenario has where those are
fewer.
"""


@dataclass(frozen=True)
class NetworkRow:
    """Holds a scenario with its links as they are or all as within a server, sending overlapped or
    in turn.
    """

    scenario: str
    one_server: bool
    """Whether the link between servers is taken to be the link within them."""
    overlapped: bool
    """Whether links carry while stages prune."""
    tpot_ms: float
    added_ms: float
    """Time per token in ms more than with all links as within a server and sending overlapped."""
    plain_ms: float
    """Time per token in ms of one request at a time on the plain pipeline, over the same links."""

    @property
    def added_share(self) -> float:
        """Return ``added_ms`` as a share of the time that it is added to."""
        return self.added_ms / (self.tpot_ms - self.added_ms)

    @property
    def speedup(self) -> float:
        """Return the speed-up over one request at a time on the plain pipeline."""
        return self.plain_ms / self.tpot_ms


@dataclass(frozen=True)
class NetworkPoint:
    """Holds the milliseconds that a token takes longer than on one server, for a link of this
    latency and rate.
    """

    latency_us: float
    gbit_s: float
    overlapped_ms: float
    in_turn_ms: float


@dataclass(frozen=True)
class Breaking:
    """Says which link between servers makes a token take twice as long as on one server; None: no
    link in range does.
    """

    scenario: str
    overlapped: bool
    latency_ms: float | None
    """Latency in ms from which a token takes twice as long, at the scenario's rate."""
    gbit_s: float | None
    """Rate in Gbit/s below which a token takes twice as long, at the scenario's latency."""
    own_latency_ms: float
    """Latency of the scenario's link in ms."""
    own_gbit_s: float
    """Rate of the scenario's link in Gbit/s."""


@dataclass(frozen=True)
class LinkSweep:
    """Holds what the link between the servers of a scenario costs with further latencies and rates,
    and where it breaks it.
    """

    link: int
    """Place of the link, counted from 1."""
    exchanges: tuple[Sequence[Span], Sequence[Span]]
    """Spans of the lanes, with sending overlapped and in turn."""
    by_latency: Sequence[NetworkPoint]
    by_rate: Sequence[NetworkPoint]
    breaking: Sequence[Breaking]


@dataclass(frozen=True)
class NetworkStudy:
    """Holds what the network costs the scenarios, and the sweep of the last scenario's link where
    it was asked for.
    """

    rows: tuple[NetworkRow, ...]
    sweep: LinkSweep | None = None

    def as_data(self) -> PlainData:
        """Return the rows as plain data."""
        rows = []
        for row in self.rows:
            derived = {"added_share": row.added_share, "speedup": row.speedup}
            rows.append(asdict(row) | derived)
        return {"rows": rows}


def study(loaded: Sequence[Loaded], swept: bool = False) -> NetworkStudy:
    """Return two rows per scenario, four where servers are linked; ``swept``: also sweep the link
    of the last one.

    Raises :class:`BadInput` for a strategy that cannot overlap sending, and for a sweep without a
    link between servers.
    """
    last = loaded[-1]
    link = link_between_servers(last) if swept else 0
    rows: list[NetworkRow] = []
    for scenario in counted(loaded, "scenarios"):
        rows += _rows(scenario)
    if not swept:
        return NetworkStudy(tuple(rows))
    exchanges = spans_of(last, True), spans_of(last, False)
    by_latency = latency_sweep(last)
    by_rate = rate_sweep(last)
    sweep = LinkSweep(link, exchanges, by_latency, by_rate, breaking(last))
    return NetworkStudy(tuple(rows), sweep)


def latency_sweep(
    loaded: Loaded, latencies_us: Iterable[float] = LATENCIES_US
) -> list[NetworkPoint]:
    """Return a point per latency of the scenario's link between servers."""
    link = _between(loaded)
    links = [_changed(link, latency_us=latency) for latency in latencies_us]
    return list(_sweep(loaded, links))


def rate_sweep(loaded: Loaded, rates_gbit_s: Iterable[float] = RATES_GBIT_S) -> list[NetworkPoint]:
    """Return a point per rate of the scenario's link between servers."""
    link = _between(loaded)
    links = [_changed(link, bandwidth_gb_s=rate / 8) for rate in rates_gbit_s]
    return list(_sweep(loaded, links))


def breaking(loaded: Loaded) -> list[Breaking]:
    """Return where the link between servers doubles the time of a token, overlapped and in turn."""
    few = _few(loaded)
    link = _between(loaded)
    latency_ms = link.latency_us.value / 1e3
    gbit_s = link.bandwidth_gb_s.value * 8
    twice = 2.0 * _tpot_ms(_linked(few, None), True)

    def late(overlapped: bool, ms: float) -> bool:
        later = _changed(link, latency_us=ms * 1e3)
        return _tpot_ms(_linked(few, later), overlapped) >= twice

    def slow(overlapped: bool, times: float) -> bool:
        slower = _changed(link, bandwidth_gb_s=gbit_s / 8 / times)
        return _tpot_ms(_linked(few, slower), overlapped) >= twice

    results = []
    for overlapped in (True, False):
        ms = _first(partial(late, overlapped), latency_ms, SLOWEST_MS)
        times = _first(partial(slow, overlapped), 1.0, gbit_s / LEAST_GBIT_S)
        rate = gbit_s / times if times else None
        results.append(Breaking(loaded.scenario.name, overlapped, ms, rate, latency_ms, gbit_s))
    return results


def _first(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return where ``holds`` begins between two numbers, to the ratio ``CLOSE``; None where it is
    false at the second.
    """
    if not holds(high):
        return None
    while high / low > CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def link_between_servers(loaded: Loaded) -> int:
    """Return the place of the first link between servers, counted from 1; raises BadInput where all
    stages share a server.
    """
    between = _between(loaded)
    target = loaded.scenario.target
    links = target.pipeline.links if target and target.pipeline else ()
    return links.index(between) + 1


def spans_of(loaded: Loaded, overlapped: bool) -> list[Span]:
    """Return the spans of the lanes for a picture of a few steps."""
    changed = _few(loaded.change(asynchronous=overlapped))
    acceptance = changed.acceptance()
    _, spans = evaluate.simulate(changed.scenario, acceptance, evaluate.SPANS)
    return spans


def _rows(loaded: Loaded) -> Iterator[NetworkRow]:
    scenario = loaded.scenario
    if not isinstance(scenario.strategy, FilledPipeline):
        message = (
            f"{scenario.strategy.name} does not overlap sending with pruning; expected specpipe "
            "or specpipe_tandem"
        )
        raise BadInput.at(scenario.name, message, "strategy")
    link = _link(loaded)
    least: float | None = None
    for one_server in (True, False) if link else (True,):
        placed = _linked(loaded, None) if link and one_server else loaded
        plain, _ = evaluate.simulate(evaluate.plain(placed.scenario), evaluate.NO_DRAFTS)
        plain_ms = plain.tpot_s * 1e3
        for overlapped in (True, False):
            tpot_ms = _tpot_ms(placed, overlapped)
            if least is None:
                least = tpot_ms
            added_ms = tpot_ms - least
            yield NetworkRow(scenario.name, one_server, overlapped, tpot_ms, added_ms, plain_ms)


def _tpot_ms(loaded: Loaded, overlapped: bool) -> float:
    """Return the simulated time per token in ms."""
    changed = loaded.change(asynchronous=overlapped)
    outcome, _ = evaluate.simulate(changed.scenario, changed.acceptance())
    return outcome.tpot_s * 1e3


def _sweep(loaded: Loaded, links: Iterable[Link]) -> Iterator[NetworkPoint]:
    few = _few(loaded)
    least = _tpot_ms(_linked(few, None), True)
    for link in counted(links, "links"):
        placed = _linked(few, link)
        overlapped = _tpot_ms(placed, True) - least
        in_turn = _tpot_ms(placed, False) - least
        gbit_s = link.bandwidth_gb_s.value * 8
        yield NetworkPoint(link.latency_us.value, gbit_s, overlapped, in_turn)


def _few(loaded: Loaded) -> Loaded:
    """Return the scenario with no more requests than a point of a sweep takes."""
    requests = loaded.scenario.requests
    count = min(requests.count, SWEPT_REQUESTS)
    return loaded.replace(requests=requests.model_copy(update={"count": count}))


def _link(loaded: Loaded) -> Link | None:
    """Return the link between servers, None where the stages share a server or there are none."""
    target = loaded.scenario.target
    if target is None or target.pipeline is None:
        return None
    servers = {stage.server for stage in target.pipeline.stages}
    if len(servers) > 1:
        return target.pipeline.between
    return None


def _between(loaded: Loaded) -> Link:
    link = _link(loaded)
    if link is None:
        raise BadInput.at(loaded.scenario.name, "all stages are on one server", "target.pipeline")
    return link


def _changed(link: Link, **values: float) -> Link:
    """Return a link with some of its numbers replaced."""
    update = {}
    for name, value in values.items():
        stated = getattr(link, name)
        update[name] = stated.model_copy(update={"value": value})
    return link.model_copy(update=update)


def _linked(loaded: Loaded, link: Link | None) -> Loaded:
    """Return the scenario with ``link`` between its servers; None: the link within them."""
    target = loaded.scenario.target
    if target is None or target.pipeline is None:
        raise BadInput.at(loaded.scenario.name, "is required and missing", "target.pipeline")
    pipeline = target.pipeline.model_copy(update={"between": link or target.pipeline.within})
    return loaded.replace(target=target.model_copy(update={"pipeline": pipeline}))
