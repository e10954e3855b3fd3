"""What all devices of a name carry within the SLO, by the method and configuration that carries
most.

    by law, within the SLO       simulated, one after the other
    plain, 2 ranks     20.6      18.5 requests a second
    eagle_3, 2 ranks   19.5      more than 18.5?   yes: 19.4
    eagle_3, 1 rank    18.3      more than 19.4?   no
    plain, 4 ranks     16.1      not tried: in full batches by law it serves less than 19.4

That is a property of the devices: it does not follow the planned rate. Every candidate has as many
replicas as there are devices for. The law ranks them, each in the largest batches that the SLO
allows, and the leading ones are run: the first at rates up to the one that it carries, each of the
others at a little more than the best so far. One that speculates has to be sure enough to be
faster, as the answer of a plan has.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from simulator.core.parallel import say
from simulator.core.plain import PlainData
from simulator.scenario.decision.by_law import drawn_speedup
from simulator.scenario.evaluate import tuned
from simulator.scenario.uncertain.draws import Interval
from simulator.studies.plan.file import Candidate
from simulator.studies.plan.headroom import Headroom, most_carried
from simulator.studies.plan.throughput import (
    SUSTAINED,
    by_law,
    offered_per_s,
    per_s_within_limits,
    within_limits,
)

MOST_TRIED = 8
"""Candidates that are run, at most, once one of them carries anything."""
OPTIMISTIC = 0.9
"""Share of the best so far that a candidate has to serve by law, in full batches, to be run (chosen
so that a law that is a tenth too low leaves nothing out).
"""


class DeviceCapacity(NamedTuple):
    """Says what some devices carry together, and by which method."""

    candidate: Candidate
    replicas: int
    room: Headroom
    """How many times the planned traffic that is."""

    @property
    def per_s(self) -> float | None:
        """Return requests a second within the SLO; None where that is not known, or requests come
        at one instant.
        """
        offered = offered_per_s(self.candidate.loaded)
        if self.room.times is None or offered == inf:
            return None
        return self.room.times * offered

    @property
    def between(self) -> Interval | None:
        """Return between what that lies, as few requests are known; None where enough are."""
        if self.room.interval is None or self.per_s is None:
            return None
        offered = offered_per_s(self.candidate.loaded)
        low, high = self.room.interval
        return Interval(offered * low, offered * high)

    def as_data(self) -> PlainData:
        """Return plain data."""
        between = self.between
        return {
            "candidate": self.candidate.name,
            "replicas": self.replicas,
            "devices": self.candidate.fleet_devices(self.replicas),
            "requests_per_s": self.per_s,
            "between_per_s": between and between._asdict(),
            "at_least": self.room.capped,
        }


def carried(candidates: Iterable[Candidate], least_chance: float) -> DeviceCapacity | None:
    """Return what the devices of these candidates carry, by the one that carries most; None where
    no replica of any has room on them.
    """
    best: DeviceCapacity | None = None
    for tried, candidate in enumerate(_leading(candidates)):
        replicas = candidate.sizes[-1]
        so_far = 0.0
        if best is not None:
            so_far = best.room.times or 0.0
        if so_far > 0.0 and tried >= MOST_TRIED:
            break
        if by_law(candidate.loaded, replicas) / SUSTAINED < OPTIMISTIC * so_far:
            continue
        if not _sure(candidate, least_chance):
            continue
        say(f"how much traffic {replicas} x {candidate.name} carry")
        room = most_carried(candidate, replicas, so_far)
        if room is None:
            continue
        best = DeviceCapacity(candidate, replicas, room)
        if room.times is None:
            break  # the requests say nothing of more, whoever serves them
    return best


def _leading(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that have room, those that serve most within the SLO by law first."""

    def per_s(candidate: Candidate) -> float:
        return per_s_within_limits(candidate.loaded, candidate.sizes[-1])

    return sorted((each for each in candidates if each.sizes), key=per_s, reverse=True)


def _sure(candidate: Candidate, least_chance: float) -> bool:
    """Return whether a candidate decodes plainly, or is sure enough to be faster in the batches
    that the SLO allows.
    """
    loaded = tuned(candidate.loaded)
    if not loaded.scenario.schedule.window:
        return True
    speedup = drawn_speedup(loaded, within_limits(loaded).batch)
    return speedup is None or speedup.chance_above(1.0) >= least_chance
