"""Scenarios under the same load: tokens a second against the time between tokens, as Figures 16 and
17 of SpecPipe have it.

TBT |      x 32            a curve per scenario, a point per size: so many clients,
|    x 16              who send their next request as soon as their last has ended
|  x 8
+---------- tokens/s
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from simulator.core.faults import BadInput, Fault
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.scenario import Loaded, evaluate
from simulator.studies.batches import at_size, turning

SIZES = (1, 2, 4, 8, 16, 32)
"""Clients, as many as the batches of Figures 16 and 17 of SpecPipe."""


@dataclass(frozen=True)
class LoadPoint:
    """Holds a scenario with so many clients, simulated; times of a request in milliseconds."""

    scenario: str
    clients: int
    tokens_per_s: float
    """Tokens per second of all requests together, prefills included in the time."""
    tpot_ms: float
    """Mean time in ms per token behind the first, which the paper calls average TBT."""
    tbt_p50_ms: float | None
    """Median time in ms between two deliveries, however many tokens they bring; None where no
    request gets a second one.
    """
    tbt_p99_ms: float | None
    """The same time, 99th percentile, in ms."""
    preemptions: int
    """How often a request gave its cache up for others."""


Curves = Mapping[str, list[LoadPoint]]
"""Points by scenario, in the order asked for, and by ascending clients within a scenario."""


@dataclass(frozen=True)
class LoadStudy:
    """Holds the curves of scenarios under the same load."""

    curves: Curves

    def as_data(self) -> PlainData:
        """Return the points by scenario as plain data."""
        return {name: [asdict(point) for point in points] for name, points in self.curves.items()}


def study(loaded: Sequence[Loaded], sizes: Iterable[int] = SIZES) -> LoadStudy:
    """Return the curves of the scenarios with ``sizes`` clients, simulated.

    Raises :class:`BadInput` for two scenarios of one name, whose curves nobody could tell apart.
    """
    clients = list(sizes)
    names = Counter(base.scenario.name for base in loaded)
    for name, count in names.items():
        if count > 1:
            message = f"{count} scenarios are called {name}; give each a name of its own"
            raise BadInput([Fault((name, 0, 0), "name", message)])
    curves = {}
    for base in loaded:
        points = [_point(base, size) for size in counted(clients, "clients")]
        curves[base.scenario.name] = points
    return LoadStudy(curves)


def crossing(ours: Sequence[LoadPoint], theirs: Sequence[LoadPoint]) -> int | None:
    """Return the first swept size from which on ``theirs`` brings more tokens a second; None
    without such a size.
    """
    _, for_good = turning(
        (our.clients, their.tokens_per_s > our.tokens_per_s)
        for our, their in zip(ours, theirs, strict=True)
    )
    return for_good


def _point(loaded: Loaded, size: int) -> LoadPoint:
    sized = at_size(loaded, size)
    outcome, _ = evaluate.simulate(sized.scenario, sized.acceptance())
    tbt = outcome.serving.tbt
    return LoadPoint(
        scenario=sized.scenario.name,
        clients=size,
        tokens_per_s=outcome.tokens_per_s,
        tpot_ms=outcome.tpot_s * 1e3,
        tbt_p50_ms=tbt.quantile_ms(0.5),
        tbt_p99_ms=tbt.quantile_ms(0.99),
        preemptions=outcome.serving.preemptions,
    )
