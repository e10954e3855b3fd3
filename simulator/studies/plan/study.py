"""Everything that is said about a plan: its answer, what else there is, how firm it is, and the laws of the whole grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from simulator.scenario import Loaded
from simulator.scenario.run import law, tuned
from simulator.serving.slo import Limit
from simulator.studies.capacity import Trial, trial
from simulator.studies.plan.break_even import BreakEven, break_even
from simulator.studies.plan.export import WindowSchedule, exports, schedule
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.robustness import DRAWS, Chance, Sensitivity, chance, sensitivity
from simulator.studies.plan.search import (
    Finding,
    Search,
    Tell,
    examine,
    most_traffic,
    nearest_miss,
    no_answer,
    replicated,
    search,
)

FEWER, MORE, LONGER = 1, 3, 4


class LawPoint(NamedTuple):
    """One replica of a candidate with so many requests that decode together, by law."""

    candidate: Candidate
    batch: int
    tpot_ms: float
    tokens_per_s: float
    relation: str


@dataclass(frozen=True)
class PlanStudy:
    """A plan and its answer."""

    command: str
    search: Search
    chosen: Finding
    capacities: dict[tuple[str, str], float]
    """The most traffic that the cheapest of every family carries, over that of the plan."""
    longer: Trial
    """The answer with ``LONGER`` times as many requests; of a traffic file, with those there are."""
    sensitivity: tuple[Sensitivity, ...]
    chance: Chance
    break_even: BreakEven | None
    schedule: WindowSchedule | None
    exports: dict[str, str]
    laws: tuple[LawPoint, ...]
    sizes: tuple[Finding, ...]
    """The cheapest of every family with fewer and with more replicas, each run to its end."""

    @property
    def capacity(self) -> float:
        """That of the answer."""
        return self.capacities[self.chosen.candidate.family]

    @property
    def binding(self) -> Limit | None:
        """What keeps the answer from one replica less."""
        return self.search.binding(self.chosen)

    @property
    def runners_up(self) -> dict[tuple[str, str], Finding | None]:
        """The cheapest of every family, None for one that has none; the answer's first, then by cost."""
        found: dict[tuple[str, str], Finding | None] = dict(self.search.by_family)
        return found | {one.family: None for one in self.search.plan.candidates if one.family not in found}


def study(plan: Plan, command: str = "", draws: int = DRAWS, tell: Tell = lambda text: None) -> PlanStudy:
    """Search, then everything about the answer; raises :class:`Infeasible` with the nearest miss where there is none."""
    found = search(plan, tell=tell)
    chosen = found.best
    if chosen is None:
        tell("nothing keeps the SLO; looking for the nearest miss")
        raise no_answer(plan, nearest_miss(plan))
    table = schedule(chosen)
    return PlanStudy(
        command=command,
        search=found,
        chosen=chosen,
        capacities=dict(_capacities(found, tell)),
        longer=trial(_longer(replicated(chosen.candidate.loaded, chosen.replicas))),
        sensitivity=tuple(sensitivity(found, chosen, tell)),
        chance=chance(chosen, draws, tell),
        break_even=break_even(chosen),
        schedule=table,
        exports=exports(chosen, table),
        laws=tuple(point for one in plan.candidates for point in _laws(one)),
        sizes=tuple(size for one in found.by_family.values() for size in _sizes(one, tell)),
    )


def _capacities(found: Search, tell: Tell) -> Iterator[tuple[tuple[str, str], float]]:
    for family, cheapest in found.by_family.items():
        tell(f"how much traffic {cheapest.replicas} x {cheapest.candidate.name} carry")
        yield family, most_traffic(cheapest)


def _longer(loaded: Loaded) -> Loaded:
    requests = loaded.scenario.requests
    if requests.traffic:
        return loaded
    return loaded.replace(requests=requests.model_copy(update={"count": LONGER * requests.count}))


def _sizes(cheapest: Finding, tell: Tell) -> Iterator[Finding]:
    """From ``FEWER`` replicas less to ``MORE`` than enough, as far as they may be rented."""
    candidate = cheapest.candidate
    for replicas in range(max(1, cheapest.replicas - FEWER), min(candidate.most_replicas, cheapest.replicas + MORE) + 1):
        tell(f"{replicas} x {candidate.name}, to the end")
        yield cheapest if replicas == cheapest.replicas else examine(candidate, replicas, to_the_end=True)


def _laws(candidate: Candidate) -> Iterator[LawPoint]:
    """At 1, 2, 4, ... requests and at all places."""
    loaded = tuned(candidate.loaded)
    places = loaded.scenario.batch
    sizes = {places, *(1 << power for power in range(places.bit_length()) if 1 << power <= places)}
    for batch in sorted(sizes):
        found = law(loaded.scenario, loaded.acceptance(), batch)
        yield LawPoint(candidate, batch, found.tpot_s * 1e3, batch / found.tpot_s, found.relation)


def summary(done: PlanStudy) -> dict[str, Any]:
    """A study as plain data."""
    chosen, plan = done.chosen, done.search.plan
    return {
        "plan": plan.file.name,
        "slo": plan.file.slo.model_dump(exclude_none=True),
        "answer": finding_data(chosen),
        "binding": done.binding and limit_name(done.binding),
        "capacity_ratio": done.capacity,
        "longer": {"requests": done.longer.requests, "kept": done.longer.slo_met, "drift": done.longer.drift},
        "chance": {"kept": done.chance.kept, "draws": done.chance.draws, **done.chance.interval._asdict()},
        "families": [
            {
                "hardware": family[0],
                "strategy": family[1],
                "cheapest": one and finding_data(one),
                "capacity_ratio": done.capacities.get(family),
            }
            for family, one in done.runners_up.items()
        ],
        "sensitivity": [
            {"change": one.change, "holds": one.holds, "answer": one.answer and finding_data(one.answer), "reason": one.reason}
            for one in done.sensitivity
        ],
        "break_even": done.break_even and asdict(done.break_even),
        "exports": done.exports,
        "sizes": [finding_data(one) for one in done.sizes],
        "searched": [finding_data(one) for one in done.search.findings],
        "left_out": [{"name": one.name, "reason": one.reason, "no_room": one.no_room} for one in plan.left_out],
        "laws": [{**one._asdict(), "candidate": one.candidate.name} for one in done.laws],
    }


def finding_data(one: Finding) -> dict[str, Any]:
    """A finding as plain data."""
    outcome = one.outcome
    return {
        "candidate": one.candidate.name,
        "hardware": one.candidate.hardware,
        "strategy": one.candidate.strategy,
        "settings": dict(one.candidate.settings),
        "replicas": one.replicas,
        "devices": {name: count * one.replicas for name, count in one.candidate.devices.items()},
        "cost_usd_per_hour": one.cost_usd_per_hour,
        "cost_usd_per_million_tokens": one.cost_usd_per_million_tokens if outcome else None,
        "kept": one.kept,
        "ruled_out_by": one.bound or None,
        "missed": one.missed and limit_name(one.missed),
        "measured_ms": {limit_name(held.limit): held.seconds * 1e3 for held in one.measured},
        "tpot_ms": outcome.tpot_s * 1e3 if outcome else None,
        "tokens_per_s": outcome.tokens_per_s if outcome else None,
        "mean_batch": outcome.serving.mean_batch if outcome else None,
    }


def limit_name(limit: Limit) -> str:
    """A limit by metric and percentile, as ``TTFT p90``."""
    return f"{limit.metric.upper()} {limit.percentile}"
