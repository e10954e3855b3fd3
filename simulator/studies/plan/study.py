"""Answer a plan: the fleet to rent, the alternatives, how robust the answer is, and the laws of the
whole grid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from simulator.core.parallel import counted, say
from simulator.core.plain import PlainData
from simulator.core.serving.slo import Limit
from simulator.scenario import Loaded
from simulator.scenario.run import law, tuned
from simulator.scenario.uncertainty import rests_on
from simulator.studies.capacity import Trial, trial
from simulator.studies.plan.break_even import BreakEven, break_even
from simulator.studies.plan.export import (
    DraftLengths,
    WindowSchedule,
    draft_lengths,
    exports,
    schedule,
)
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.headroom import Headroom, headroom
from simulator.studies.plan.robustness import DRAWS, Chance, Sensitivity, chance, sensitivity
from simulator.studies.plan.search import (
    Finding,
    Search,
    examine,
    nearest_miss,
    no_answer,
    replicated,
    search,
)
from simulator.studies.what_if import WhatIf, what_if

FEWER = 1
MORE = 3
"""Replicas below and above the cheapest size of a family for which the figure has a point."""
LONGER = 4
"""How many times as many requests the answer is run with to see whether its queue grows."""


class LawPoint(NamedTuple):
    """Gives the law of one replica with ``batch`` requests that decode together: ms per token,
    tokens per second.
    """

    candidate: Candidate
    batch: int
    tpot_ms: float
    tokens_per_s: float
    relation: str


@dataclass(frozen=True)
class PlanStudy:
    """Holds the answer of a plan with everything that stress-tests and explains it."""

    command: str
    search: Search
    chosen: Finding
    capacities: dict[tuple[str, str], Headroom]
    """How many times the traffic of the plan the cheapest of every family carries."""
    longer: Trial
    """A run of the answer with ``LONGER`` times as many requests; of a traffic file, with those
    there are.
    """
    sensitivity: tuple[Sensitivity, ...]
    chance: Chance
    rests_on: str
    """What in doubt the speed of the answer rests on; empty where that is little."""
    break_even: BreakEven | None
    schedule: WindowSchedule | None
    lengths: DraftLengths
    """Draft tokens by context and batch that give the most by law; empty for plain decoding."""
    exports: dict[str, str]
    laws: tuple[LawPoint, ...]
    sizes: tuple[Finding, ...]
    """Runs of the cheapest of every family with fewer and with more replicas, each to its end."""
    law: WhatIf
    """The law of a replica of the answer, or of the cheapest that speculates, over acceptance and
    window.
    """

    @property
    def headroom(self) -> Headroom:
        """Return how many times the traffic of the plan the answer carries, and how far that is
        known.
        """
        return self.capacities[self.chosen.candidate.family]

    @property
    def capacity(self) -> float | None:
        """Return that number; None where it is unknown."""
        return self.headroom.times

    @property
    def binding(self) -> Limit | None:
        """Return the limit that the answer breaks with one replica fewer; None where it has only
        one.
        """
        return self.search.binding(self.chosen)

    @property
    def runners_up(self) -> dict[tuple[str, str], Finding | None]:
        """Return the cheapest fleet of every family, None for one without; the answer's first, then
        by cost.
        """
        cheapest: dict[tuple[str, str], Finding | None] = dict(self.search.by_family)
        for candidate in self.search.plan.candidates:
            cheapest.setdefault(candidate.family, None)
        return cheapest


def study(plan: Plan, command: str = "", draws: int = DRAWS) -> PlanStudy:
    """Return the answer of a plan, stress-tested; raises :class:`Infeasible` with the nearest miss
    where there is none.
    """
    searched = search(plan)
    chosen = searched.best
    if chosen is None:
        say("no fleet meets the SLO; looking for the nearest miss")
        raise no_answer(plan, nearest_miss(plan))
    table = schedule(chosen)
    lengths = draft_lengths(chosen.candidate.loaded)
    return PlanStudy(
        command=command,
        search=searched,
        chosen=chosen,
        capacities=dict(_capacities(searched)),
        longer=trial(_longer(replicated(chosen.candidate.loaded, chosen.replicas))),
        sensitivity=tuple(sensitivity(searched, chosen)),
        chance=chance(chosen, draws),
        rests_on="" if _prompts_alone(chosen) else rests_on(chosen.candidate.loaded),
        break_even=break_even(chosen),
        schedule=table,
        lengths=lengths,
        exports=exports(chosen, table, lengths, plan.file.heads.get(chosen.candidate.strategy, "")),
        laws=tuple(point for candidate in plan.candidates for point in _laws(candidate)),
        sizes=tuple(
            size
            for cheapest in counted(searched.by_family.values(), "families")
            for size in _sizes(cheapest)
        ),
        law=_what_if([chosen, *searched.by_family.values()]),
    )


def _prompts_alone(finding: Finding) -> bool:
    """Return whether nothing is decoded, so that times per token are those of nobody."""
    return finding.candidate.loaded.scenario.requests.prompts_alone


def _what_if(fleets: Sequence[Finding]) -> WhatIf:
    """Return the law of the first fleet that speculates, else of the first, at the mean batch of
    its run.
    """
    fleet = next(
        (fleet for fleet in fleets if fleet.candidate.loaded.scenario.schedule.window), fleets[0]
    )
    batch = fleet.outcome.serving.mean_batch if fleet.outcome else 1.0
    return what_if(tuned(fleet.candidate.loaded), max(1, round(batch))) | {
        "name": fleet.candidate.name
    }


def _capacities(searched: Search) -> Iterator[tuple[tuple[str, str], Headroom]]:
    """Yield each family with how many times the traffic of the plan its cheapest fleet carries."""
    for family, cheapest in counted(searched.by_family.items(), "families"):
        say(f"how much traffic {cheapest.replicas} x {cheapest.candidate.name} carry")
        yield family, headroom(cheapest)


def _longer(loaded: Loaded) -> Loaded:
    """Return the scenario with ``LONGER`` times as many requests; one that reads a traffic file as
    it is.
    """
    requests = loaded.scenario.requests
    if requests.traffic:
        return loaded
    return loaded.replace(requests=requests.model_copy(update={"count": LONGER * requests.count}))


def _sizes(cheapest: Finding) -> Iterator[Finding]:
    """Yield runs from ``FEWER`` replicas less to ``MORE`` than enough, as far as they may be
    rented.
    """
    candidate = cheapest.candidate
    near = range(cheapest.replicas - FEWER, cheapest.replicas + MORE + 1)
    for replicas in candidate.sizes:
        if replicas not in near:
            continue
        say(f"{replicas} x {candidate.name}, to the end")
        yield (
            cheapest
            if replicas == cheapest.replicas
            else examine(candidate, replicas, to_the_end=True)
        )


def _laws(candidate: Candidate) -> Iterator[LawPoint]:
    """Yield the law at 1, 2, 4, ... requests and at as many as there are places."""
    loaded = tuned(candidate.loaded)
    places = loaded.scenario.batch
    sizes = {places, *(1 << power for power in range(places.bit_length()) if 1 << power <= places)}
    for batch in sorted(sizes):
        mean = law(loaded.scenario, loaded.acceptance(), batch)
        yield LawPoint(candidate, batch, mean.tpot_s * 1e3, batch / mean.tpot_s, mean.relation)


def summary(answered: PlanStudy) -> PlainData:
    """Return a study as plain data."""
    chosen = answered.chosen
    plan = answered.search.plan
    return {
        "plan": plan.file.name,
        "slo": plan.file.slo.model_dump(exclude_none=True),
        "answer": finding_data(chosen),
        "binding": answered.binding and limit_name(answered.binding),
        "capacity_ratio": answered.capacity,
        "headroom": answered.headroom.as_data(),
        "longer": {
            "requests": answered.longer.requests,
            "kept": answered.longer.slo_met,
            "drift": answered.longer.drift,
        },
        "chance": {
            "kept": answered.chance.kept,
            "draws": answered.chance.draws,
            **answered.chance.interval._asdict(),
        },
        "families": [
            {
                "hardware": family[0],
                "strategy": family[1],
                "cheapest": cheapest and finding_data(cheapest),
                "capacity_ratio": answered.capacities[family].times if cheapest else None,
            }
            for family, cheapest in answered.runners_up.items()
        ],
        "sensitivity": [
            vars(case) | {"answer": case.answer and finding_data(case.answer)}
            for case in answered.sensitivity
        ],
        "break_even": answered.break_even and asdict(answered.break_even),
        "draft_lengths": answered.lengths,
        "exports": answered.exports,
        "sizes": [finding_data(finding) for finding in answered.sizes],
        "searched": [finding_data(finding) for finding in answered.search.findings],
        "left_out": [
            {name: getattr(one, name) for name in ("name", "reason", "no_room")}
            for one in plan.left_out
        ],
        "laws": [{**point._asdict(), "candidate": point.candidate.name} for point in answered.laws],
    }


def finding_data(finding: Finding) -> PlainData:
    """Return a finding as plain data."""
    outcome = finding.outcome
    return {
        "candidate": finding.candidate.name,
        "hardware": finding.candidate.hardware,
        "strategy": finding.candidate.strategy,
        "settings": dict(finding.candidate.settings),
        "replicas": finding.replicas,
        "devices": {
            name: count * finding.replicas for name, count in finding.candidate.devices.items()
        },
        "cost_usd_per_hour": finding.cost_usd_per_hour,
        "cost_usd_per_million_tokens": finding.cost_usd_per_million_tokens if outcome else None,
        "kept": finding.kept,
        "ruled_out_by": finding.bound or None,
        "missed": finding.missed and limit_name(finding.missed),
        "measured_ms": {
            limit_name(measured.limit): measured.seconds * 1e3 for measured in finding.measured
        },
        "tpot_ms": outcome.tpot_s * 1e3 if outcome and outcome.steps else None,
        "tokens_per_s": outcome.tokens_per_s if outcome else None,
        "mean_batch": outcome.serving.mean_batch if outcome else None,
    }


def limit_name(limit: Limit) -> str:
    """Return a limit by metric and percentile, as ``TTFT p90``."""
    return f"{limit.metric.upper()} {limit.percentile}"
