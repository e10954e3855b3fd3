"""Split a fleet into replicas that read prompts and replicas that decode.

A request keeps a replica busy for R seconds with its prompt, and for D with its output, by law: in
the largest batch in which a token takes no longer than the SLO allows. Of n replicas that do both
each serves 1 / (R + D) requests a second; of x for prefill and n - x for decode the slower pool
bounds what goes through (:mod:`simulator.core.serving.fleet.tandem`)::

    together  n / (R + D)
    apart     min(x / R, (n - x) / D)        as much only where x / n = R / (R + D)

So of all splits of n those nearest to that balance are looked at, ``NEAREST`` of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simulator.core.serving.fleet.tandem import Tandem
from simulator.scenario import Loaded
from simulator.scenario.evaluate import tuned
from simulator.scenario.stability import cached_tokens
from simulator.studies.plan.file import Candidate, FleetSplit, Plan
from simulator.studies.plan.throughput import occupied_s, within_limits

NEAREST = 2
"""Splits of so many replicas that are looked at: those with the most throughput by law."""


@dataclass(frozen=True)
class Balance:
    """Says for how long a request keeps a replica busy by law, with its prompt and its output."""

    read_s: float
    decode_s: float

    @property
    def read_share(self) -> float:
        """Return the share of prompts in the work, of 1."""
        return self.read_s / (self.read_s + self.decode_s)

    def per_s(self, split: FleetSplit) -> float:
        """Return the requests a second of a split, bounded by its slower pool."""
        return Tandem(self.read_s, 0.0, self.decode_s, *split).most_per_s

    def nearest(self, replicas: int) -> list[FleetSplit]:
        """Return the ``NEAREST`` splits of so many replicas, most requests a second first."""
        every = [FleetSplit(reading, replicas - reading) for reading in range(1, replicas)]
        return sorted(every, key=self.per_s, reverse=True)[:NEAREST]

    def kept(self, replicas: int) -> float:
        """Return the share of the throughput of so many replicas that their best split keeps."""
        together = replicas / (self.read_s + self.decode_s)
        return self.per_s(self.nearest(replicas)[0]) / together


def balance(loaded: Loaded) -> Balance:
    """Return the balance of a scenario by law."""
    loaded = tuned(loaded)
    prompt, output, _ = loaded.scenario.lengths
    prompt -= cached_tokens(loaded.scenario, written=False)
    of_prompt, _ = occupied_s(loaded)
    return Balance(prompt * of_prompt, output * within_limits(loaded).token_s)


def split_as(candidate: Candidate, split: FleetSplit) -> Candidate:
    """Return a candidate whose prefill and decode are apart with so many replicas for either."""
    return replace(candidate.changed(partial(_with_pools, split=split)), split=split)


def _with_pools(loaded: Loaded, split: FleetSplit) -> Loaded:
    """Return a scenario with so many replicas in its two pools."""
    serving = loaded.scenario.serving
    pools = []
    for pool, replicas in zip(serving.pools or (), split, strict=True):
        pools.append(pool.model_copy(update={"replicas": replicas}))
    changes: dict[str, Any] = {"pools": tuple(pools)}
    return loaded.replace(serving=serving.model_copy(update=changes))


def every_split(plan: Plan) -> Iterator[Candidate]:
    """Yield the splits of a plan that are looked at, of every number of replicas."""
    for candidate in plan.apart:
        even = balance(candidate.loaded)
        for replicas in range(max(2, candidate.fewest), candidate.most_replicas + 1):
            for split in even.nearest(replicas):
                yield split_as(candidate, split)
