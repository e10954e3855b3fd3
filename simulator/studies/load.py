"""Scenarios under the same load: tokens a second against the time between tokens, as Figures 16 and 17 of SpecPipe have it.

TBT |      x 32            one curve for each scenario, one point for each size:
|    x 16              so many clients, each with its next request as soon as its last has ended
|  x 8
+---------- tokens/s
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simulator.scenario import Loaded, run
from simulator.studies.batches import at_size

SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class LoadPoint:
    """One scenario with so many clients, simulated; times of one request in milliseconds."""

    scenario: str
    clients: int
    tokens_per_s: float
    """Of all requests together, prefills included in the time."""
    tpot_ms: float
    """Mean per token behind the first, which the paper calls average TBT."""
    tbt_p50_ms: float
    """Between two deliveries, however many tokens come with one."""
    tbt_p99_ms: float
    preemptions: int


Curves = Mapping[str, list[LoadPoint]]
"""Points by scenario, in the order asked for; by clients within one."""


def load_sweep(loaded: Iterable[Loaded], sizes: Iterable[int] = SIZES) -> dict[str, list[LoadPoint]]:
    """Every scenario at every size."""
    at = list(sizes)
    return {one.scenario.name: [_point(one, size) for size in at] for one in loaded}


def crossing(ours: list[LoadPoint], theirs: list[LoadPoint]) -> int | None:
    """The first swept size from which on ``theirs`` brings more tokens a second; None where there is no such size."""
    found = None
    for one, other in zip(ours, theirs, strict=True):
        if other.tokens_per_s <= one.tokens_per_s:
            found = None
        elif found is None:
            found = one.clients
    return found


def _point(loaded: Loaded, size: int) -> LoadPoint:
    scenario = at_size(loaded.scenario, size)
    outcome, _ = run.simulate(scenario, Loaded(scenario, loaded.trace, loaded.document).acceptance())
    tbt = outcome.serving.tbt
    return LoadPoint(
        scenario=scenario.name,
        clients=size,
        tokens_per_s=outcome.tokens_per_s,
        tpot_ms=outcome.tpot_s * 1e3,
        tbt_p50_ms=tbt.quantile(0.5) * 1e3,
        tbt_p99_ms=tbt.quantile(0.99) * 1e3,
        preemptions=outcome.serving.preemptions,
    )
