"""Whether arrivals can be served at all, by law and before anything is simulated.

A replica does one pass at a time. A request keeps it busy for its share of a pass that reads prompts, and for its share of
the steps that bring its tokens; both are least in some batch. When more requests come than these shares leave time for, the
queue grows for as long as they come (Loynes, 1962).
"""

from collections.abc import Iterator
from math import floor
from typing import Any, NamedTuple

from simulator.acceptance.sources import Acceptance, odds_of
from simulator.cost.rows import Rows
from simulator.scenario.fields import Scenario

PROMPTS_AT_ONCE = 64
"""Prompts of one pass, at most, among which its time is shared."""


class Load(NamedTuple):
    """Arrivals beside what can be served of them, both in requests a second."""

    offered_per_s: float
    most_per_s: float
    """What all replicas serve by law in the batch that suits them best."""
    batch: int
    """Requests that decode together in that batch."""
    replicas: int

    @property
    def stable(self) -> bool:
        """Return whether less comes than can be served."""
        return self.offered_per_s < self.most_per_s

    @property
    def words(self) -> str:
        """Return what comes and what is served, in a sentence; of an unstable load, the nearest change that would do."""
        rates = f"{self.offered_per_s:.4g} requests come a second, and by law at most {self.most_per_s:.4g} are served"
        if self.stable:
            return rates
        enough = floor(self.offered_per_s / self.most_per_s * self.replicas) + 1
        return (
            f"unstable: {rates} ({self.batch:,} at a time), so the queue grows for as long as they come; "
            f"let fewer than {self.most_per_s:.4g} come, or set serving.replicas={enough:,}"
        )

    def data(self) -> dict[str, Any]:
        """Return the load as plain data, for JSON."""
        return {"stable": self.stable, **self._asdict()}


def load_of(scenario: Scenario, acceptance: Acceptance) -> Load | None:
    """Return the load of a scenario; None in a closed loop, and where all requests come at once."""
    offered, replicas = scenario.requests.offered_per_s, scenario.serving.replicas
    if offered is None:
        return None
    reading, (_, output, _) = _least_prompt_s(scenario), scenario.lengths
    odds, strategy = odds_of(acceptance, scenario.exit), scenario.schedule
    served = {}
    for batch in _doubled(scenario.batch):
        law = strategy.law(scenario.cost, odds, batch, scenario.mean_context, one_lane=scenario.one_lane)
        served[batch] = replicas / (reading + (output - 1.0) * law.tpot_s / batch)
    best = max(served, key=lambda batch: served[batch])
    return Load(offered, served[best], best, replicas)


def _doubled(most: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... and last ``most``."""
    size = 1
    while size < most:
        yield size
        size *= 2
    yield most


def _least_prompt_s(scenario: Scenario) -> float:
    """Return the seconds that a prompt keeps a replica at least: its share of a pass, on the slowest stage of a pipeline."""
    cost, shares, prompt = scenario.cost, [], Rows.prefill(round(scenario.lengths[0]))
    for count in _doubled(min(PROMPTS_AT_ONCE, scenario.batch)):
        rows = Rows(*(number * count for number in prompt))
        if scenario.schedule.traits.staged:
            seconds = max(float(cost.stage(index, rows).wall_s) for index in range(cost.stages))
        else:
            sides = scenario.schedule.admission(cost, rows)[:2]
            seconds = sum(sides) if scenario.one_lane else max(sides)
        shares.append(seconds / count)
    return min(shares)
