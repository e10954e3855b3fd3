"""What the same devices are best used for, by how many requests decode on them at a time.

    requests at a time   1 ............. 11 | 12 ............. 47 | 48 .......
    soonest by law       one drafter for    | one for three       | every target
                         every verifier     | verifiers           | drafts itself

Devices are there whatever the load, and a strategy that decouples drafters from verifiers can be
set up anew: with another number of either, or coupled. Every candidate of the plan that makes use
of all of them is compared by law, each with its share of the requests, as far as its memory and its
places go. Requests a second follow from that::

    R / (P + O T(n / R) R / n)      R targets, P seconds of a prompt, O output tokens,
                                    T seconds a token, n requests at a time

Prompts count in these, and not in the comparison: where outputs are short, a use with more targets
is better from fewer requests on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, inf

from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import DraftsElsewhere
from simulator.scenario import Loaded
from simulator.scenario.evaluate import law, tuned
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.search import Finding
from simulator.studies.plan.throughput import full_batch, occupied_s

WORTH = 0.02
"""By how much sooner tokens come, as a share, from where on another use is worth a change."""


@dataclass(frozen=True)
class BestUse:
    """Says as what some devices give tokens soonest, from a number of requests at a time on."""

    from_requests: int
    from_per_s: float
    """Requests a second with which as many decode at a time, by law."""
    candidate: Candidate
    replicas: int
    tpot_ms: float
    """Milliseconds a token at that number."""

    @property
    def devices(self) -> dict[str, int]:
        """Return the number of devices, by name."""
        return self.candidate.fleet_devices(self.replicas)

    def as_data(self) -> PlainData:
        """Return plain data."""
        return {
            "from_requests": self.from_requests,
            "from_requests_per_s": self.from_per_s,
            "candidate": self.candidate.name,
            "replicas": self.replicas,
            "tpot_ms": self.tpot_ms,
        }


class _Candidate:
    """Some devices as replicas of a candidate, by law."""

    def __init__(self, candidate: Candidate, replicas: int) -> None:
        self.candidate = candidate
        self.replicas = replicas
        self.loaded: Loaded = tuned(candidate.loaded)
        self.most = replicas * full_batch(candidate.loaded)
        """Requests that find a place."""
        self.of_batch_s = cache(self._of_batch_s)

    def _of_batch_s(self, batch: int) -> float:
        """Return the seconds a token in a batch."""
        return float(law(self.loaded.scenario, self.loaded.acceptance(), batch).tpot_s)

    def tpot_s(self, requests: int) -> float:
        """Return the seconds a token with so many requests, shared out evenly, between two batches
        on the line between them; infinity where they find no place.
        """
        if requests > self.most:
            return inf
        each = max(1.0, requests / self.replicas)
        low, high = floor(each), ceil(each)
        sooner, later = self.of_batch_s(low), self.of_batch_s(high)
        return sooner + (each - low) * (later - sooner)

    def best_use(self, requests: int) -> BestUse:
        """Return this use, from so many requests at a time on."""
        prompt, output, _ = self.loaded.scenario.lengths
        prompt_s = prompt * occupied_s(self.candidate.loaded)[0]
        tpot_s = self.tpot_s(requests)
        each = max(1.0, requests / self.replicas)
        per_s = self.replicas / (prompt_s + output * tpot_s / each)
        return BestUse(requests, per_s, self.candidate, self.replicas, tpot_s * 1e3)


Use = tuple[_Candidate, ...]
"""Candidates that make the same use of some devices, and differ in settings: the window that is
best for a load is no change of it.
"""


def best_uses(plan: Plan, chosen: Finding) -> tuple[BestUse, ...]:
    """Return what the owned devices, or those of the answer, are best used for, by requests at a
    time; nothing where no way to use them decouples drafters.
    """
    devices = _there(plan, chosen)
    uses: dict[tuple[str, str, int], Use] = {}
    decoupled = False
    for candidate in plan.candidates:
        for replicas in candidate.sizes:
            if candidate.fleet_devices(replicas) == devices:
                use = (*candidate.family, replicas)
                uses[use] = (*uses.get(use, ()), _Candidate(candidate, replicas))
                strategy = candidate.loaded.scenario.strategy
                decoupled = decoupled or isinstance(strategy, DraftsElsewhere)
    return tuple(_stretches(list(uses.values()))) if decoupled else ()


def _there(plan: Plan, chosen: Finding) -> Mapping[str, int]:
    """Return the devices that are there whatever the load: all that are owned of those of the
    answer, else its own.
    """
    there = {}
    for name, count in chosen.devices.items():
        owned = plan.file.devices[name].owned
        there[name] = count if owned is None else owned
    return there


def _stretches(uses: list[Use]) -> Iterator[BestUse]:
    """Yield the soonest of these uses from one request at a time on, and where another one is
    sooner by ``WORTH``.
    """
    most = max(candidate.most for use in uses for candidate in use)
    requests = 1
    while requests <= most:
        use = min(uses, key=lambda use: _tpot_s(use, requests))
        yield _soonest(use, requests).best_use(requests)
        requests = _first_worth(uses, use, requests, most)


def _soonest(use: Use, requests: int) -> _Candidate:
    """Return the candidate of a use with the settings that are best for a load."""
    return min(use, key=lambda candidate: candidate.tpot_s(requests))


def _tpot_s(use: Use, requests: int) -> float:
    """Return the seconds a token of a use with the settings that are best for a load."""
    return _soonest(use, requests).tpot_s(requests)


def _first_worth(uses: list[Use], use: Use, requests: int, most: int) -> int:
    """Return the number of requests behind ``requests`` at which another use is worth a change,
    looked for in steps of an eighth; ``most`` and one where none is.
    """

    def worth(number: int) -> bool:
        least = min(_tpot_s(other, number) for other in uses)
        return least < (1.0 - WORTH) * _tpot_s(use, number)

    same = requests
    other = requests
    while not worth(other):
        if other == most:
            return most + 1
        same = other
        other = min(most, other + max(1, other // 8))
    while other - same > 1:
        between = (same + other) // 2
        if worth(between):
            other = between
        else:
            same = between
    return other
