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
from simulator.scenario.cache_cost import CacheCost
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.decide import decide
from simulator.scenario.evaluate import cache_cost_beside, law, tuned
from simulator.scenario.uncertain.doubts import about_large_mixtures
from simulator.scenario.uncertain.footings import footings, rests_on
from simulator.studies.capacity import Trial, trial
from simulator.studies.plan.break_even import BreakEven, break_even
from simulator.studies.plan.carried import DeviceCapacity, carried
from simulator.studies.plan.export import DraftLengths, WindowSchedule, served_answer
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.headroom import Headroom, headroom
from simulator.studies.plan.limits import limit_name, limits_of
from simulator.studies.plan.loads import BestUse, best_uses
from simulator.studies.plan.robustness import DRAWS, Chance, Sensitivity, chance, sensitivity
from simulator.studies.plan.search import (
    Finding,
    Search,
    enough,
    examine,
    keeps,
    nearest_miss,
    no_answer,
    not_recommended,
    replicated,
    search,
)
from simulator.studies.plan.split_or_not import SplitOrNot, split_data, split_or_not
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


class FleetDecision(NamedTuple):
    """Holds the decision on the speculation of a fleet."""

    fleet: Finding
    decision: Decision


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
    cache_costs: dict[tuple[str, str], CacheCost]
    """What speculation costs the prefix cache of the cheapest of a family; without those that do
    not speculate, or keep nothing.
    """
    sensitivity: tuple[Sensitivity, ...]
    chance: Chance
    rests_on: str
    """What in doubt the speed of the answer rests on; empty where that is little."""
    decision: FleetDecision | None
    """Whether to switch speculation on; None where no fleet that speculates meets the SLO."""
    enough: dict[str, Finding | None]
    """For each device of which those that are owned do not do, the cheapest fleet of more of them
    that would; None where no number does.
    """
    owned: dict[str, DeviceCapacity]
    """What all the devices that are owned carry, by name; without those on which no replica has
    room.
    """
    split: SplitOrNot | None
    """The devices of the answer together and split; None where the plan splits nothing."""
    loads: tuple[BestUse, ...]
    """What the devices are best used for by requests at a time; empty where no strategy of the plan
    decouples drafters.
    """
    break_even: BreakEven | None
    schedule: WindowSchedule | None
    adaptive: Finding | None
    """The answer with adaptive verification; None where its engine or its drafts have none."""
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
    def cache_cost(self) -> CacheCost | None:
        """Return what speculation costs the prefix cache of the answer; None where nothing is
        drafted or kept.
        """
        return self.cache_costs.get(self.chosen.candidate.family)

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
        if self.search.plan.file.apart != "only":
            for candidate in self.search.plan.candidates:
                cheapest.setdefault(candidate.family, None)
        for finding in self.search.findings:
            cheapest.setdefault(finding.candidate.family, None)
        return cheapest


def study(plan: Plan, command: str = "", draws: int = DRAWS) -> PlanStudy:
    """Return the answer of a plan, stress-tested; raises :class:`Infeasible` with the nearest miss
    where there is none.
    """
    searched = search(plan)
    chosen = searched.best
    if chosen is None and any(finding.kept for finding in searched.findings):
        raise not_recommended(searched)
    if chosen is None:
        say("no fleet meets the SLO; looking for the nearest miss")
        raise no_answer(plan, nearest_miss(plan), enough(searched), _carried_per_s(plan))
    loaded = chosen.candidate.loaded
    capacities = dict(_capacities(searched))
    cache_costs = dict(_cache_costs(searched))
    fleet = replicated(loaded, chosen.replicas)
    longer = trial(_longer(fleet))
    if any(limit.of for limit in limits_of(loaded.scenario)):
        met = keeps(chosen.candidate.changed(_longer), chosen.replicas)
        longer = longer._replace(slo_met=met)
    sensitive = tuple(sensitivity(searched, chosen))
    resampled = chance(chosen, draws)
    doubt = ""
    if not loaded.scenario.requests.prompts_alone:  # else times per token are those of nobody
        doubt = rests_on(loaded)
    even = break_even(chosen)
    decided = _decided([chosen, *searched.by_family.values()])
    head = plan.file.heads.get(chosen.candidate.strategy, "")
    served = served_answer(chosen, head, plan.catalogue)
    laws: list[LawPoint] = []
    for candidate in plan.candidates:
        laws += _laws(candidate)
    sizes: list[Finding] = []
    for cheapest in counted(searched.by_family.values(), "families"):
        sizes += _sizes(cheapest)
    return PlanStudy(
        command=command,
        search=searched,
        chosen=chosen,
        capacities=capacities,
        longer=longer,
        cache_costs=cache_costs,
        sensitivity=sensitive,
        chance=resampled,
        rests_on=doubt,
        decision=decided,
        enough=enough(searched),
        owned=dict(owned_uses(plan)),
        split=split_or_not(searched, chosen),
        loads=best_uses(plan, chosen),
        break_even=even,
        schedule=served.schedule,
        adaptive=served.adaptive,
        lengths=served.lengths,
        exports=served.files,
        laws=tuple(laws),
        sizes=tuple(sizes),
        law=_what_if([chosen, *searched.by_family.values()]),
    )


def _decided(fleets: Sequence[Finding]) -> FleetDecision | None:
    """Return the decision on the first fleet that speculates, at the mean batch of its run."""
    for fleet in fleets:
        if fleet.speedup is not None:
            loaded = tuned(fleet.candidate.loaded)
            doubted = footings(loaded, every=False)
            decision = decide(loaded, fleet.speedup, doubted, fleet.mean_batch)
            if decision:
                return FleetDecision(fleet, decision)
    return None


def _what_if(fleets: Sequence[Finding]) -> WhatIf:
    """Return the law of the first fleet that speculates, else of the first, at the mean batch of
    its run.
    """
    fleet = fleets[0]
    for other in fleets:
        if other.candidate.loaded.scenario.schedule.window:
            fleet = other
            break
    grid = what_if(tuned(fleet.candidate.loaded), fleet.mean_batch)
    return grid | {"name": fleet.candidate.name}


def _capacities(searched: Search) -> Iterator[tuple[tuple[str, str], Headroom]]:
    """Yield each family with how many times the traffic of the plan its cheapest fleet carries."""
    for family, cheapest in counted(searched.by_family.items(), "families"):
        say(f"how much traffic {cheapest.replicas} x {cheapest.candidate.name} carry")
        yield family, headroom(cheapest)


def owned_uses(plan: Plan) -> Iterator[tuple[str, DeviceCapacity]]:
    """Yield each device that is owned with what all of it carry, in replicas that do both."""
    for name, offer in plan.file.devices.items():
        if offer.owned is None or plan.file.apart == "only":
            continue
        of_it = [candidate for candidate in plan.candidates if {*candidate.devices} == {name}]
        use = carried(of_it, plan.file.least_chance)
        if use is not None:
            yield name, use


def _carried_per_s(plan: Plan) -> dict[str, float]:
    """Return the requests a second that all owned devices of a name carry, as far as known."""
    known = {}
    for name, use in owned_uses(plan):
        if use.per_s is not None:
            known[name] = use.per_s
    return known


def _cache_costs(searched: Search) -> Iterator[tuple[tuple[str, str], CacheCost]]:
    """Yield each family whose cheapest fleet speculates and keeps prompts with what that costs."""
    for family, cheapest in searched.by_family.items():
        if cheapest.outcome is None or not cheapest.outcome.serving.prefix_cache:
            continue
        say(f"plain decoding beside {cheapest.candidate.name}")
        fleet = replicated(cheapest.candidate.loaded, cheapest.replicas)
        cost = cache_cost_beside(fleet, cheapest.outcome)
        if cost is not None:
            yield family, cost


def _longer(loaded: Loaded) -> Loaded:
    """Return the scenario with ``LONGER`` times as many requests; one that reads them from a file
    as it is.
    """
    requests = loaded.scenario.requests
    if requests.read_from_file:
        return loaded
    longer = requests.model_copy(update={"count": LONGER * requests.count})
    return loaded.replace(requests=longer)


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
        if replicas == cheapest.replicas:
            yield cheapest
        else:
            yield examine(candidate, replicas, "end")


def _laws(candidate: Candidate) -> Iterator[LawPoint]:
    """Yield the law at 1, 2, 4, ... requests and at as many as there are places."""
    loaded = tuned(candidate.loaded)
    places = loaded.scenario.batch
    sizes = {1 << power for power in range(places.bit_length())}
    sizes.add(places)
    for batch in sorted(sizes):
        mean = law(loaded.scenario, loaded.acceptance(), batch)
        yield LawPoint(candidate, batch, mean.tpot_s * 1e3, batch / mean.tpot_s, mean.relation)


def summary(answered: PlanStudy) -> PlainData:
    """Return a study as plain data."""
    chosen = answered.chosen
    plan = answered.search.plan
    longer = answered.longer
    chance = answered.chance
    families = []
    for family, cheapest in answered.runners_up.items():
        hardware, strategy = family
        row: PlainData = {"hardware": hardware, "strategy": strategy}
        row["cheapest"] = cheapest and finding_data(cheapest)
        row["capacity_ratio"] = None
        row["chance"] = None
        row["cache_cost"] = cost_data(answered.cache_costs.get(family))
        row["recommended"] = False
        if cheapest:
            row["capacity_ratio"] = answered.capacities[family].times
            row["chance"] = cheapest.chance
            row["recommended"] = answered.search.recommended(cheapest)
        families.append(row)
    cases = []
    for case in answered.sensitivity:
        cases.append(vars(case) | {"answer": case.answer and finding_data(case.answer)})
    left_out = []
    for combination in plan.left_out:
        why = {"reason": combination.reason, "no_room": combination.no_room}
        left_out.append({"name": combination.name, **why})
    decision: PlainData | None = None
    if answered.decision:
        of_fleet = answered.decision.fleet.candidate.name
        decision = {"candidate": of_fleet, **answered.decision.decision.as_data()}
    return {
        "plan": plan.file.name,
        "decision": decision,
        "least_chance": plan.file.least_chance,
        "slo": plan.file.slo.model_dump(exclude_none=True),
        "answer": finding_data(chosen),
        "cautions": list(about_large_mixtures(chosen.candidate.loaded.scenario)),
        "binding": answered.binding and limit_name(answered.binding),
        "capacity_ratio": answered.capacity,
        "headroom": answered.headroom.as_data(),
        "owned": owned_data(answered),
        "split": split_data(answered.split),
        "loads": [use.as_data() for use in answered.loads],
        "cache_cost": cost_data(answered.cache_cost),
        "longer": {
            "requests": longer.requests,
            "kept": longer.slo_met,
            "drift": longer.drift,
        },
        "chance": {"kept": chance.kept, "draws": chance.draws, **chance.interval._asdict()},
        "families": families,
        "sensitivity": cases,
        "break_even": answered.break_even and asdict(answered.break_even),
        "draft_lengths": answered.lengths,
        "exports": answered.exports,
        "sizes": [finding_data(finding) for finding in answered.sizes],
        "searched": [finding_data(finding) for finding in answered.search.findings],
        "left_out": left_out,
        "laws": [{**point._asdict(), "candidate": point.candidate.name} for point in answered.laws],
    }


def owned_data(answered: PlanStudy) -> PlainData:
    """Return for each device that is owned how many there are, how many the answer uses and leaves,
    and how many would do where these do not, as plain data.
    """
    data: PlainData = {}
    used = answered.chosen.devices
    for name, offer in answered.search.plan.file.devices.items():
        if offer.owned is None:
            continue
        mine = used.get(name, 0)
        data[name] = {"owned": offer.owned, "used": mine, "left": offer.owned - mine}
        if name in answered.owned:
            use = answered.owned[name]
            data[name] |= {"carried_per_s": use.per_s, "carried": use.as_data()}
        if name in answered.enough:
            would = answered.enough[name]
            data[name]["enough"] = would and would.devices[name]
    return data


def cost_data(cost: CacheCost | None) -> PlainData | None:
    """Return what speculation costs a prefix cache as plain data."""
    if cost is None:
        return None
    return {**cost._asdict(), "lost_rate": cost.lost_rate}


def finding_data(finding: Finding) -> PlainData:
    """Return a finding as plain data."""
    candidate = finding.candidate
    measured_ms = {}
    for measured in finding.measured:
        measured_ms[limit_name(measured.limit)] = measured.seconds * 1e3
    data: PlainData = {
        "candidate": candidate.name,
        "hardware": candidate.hardware,
        "strategy": candidate.strategy,
        "settings": dict(candidate.settings),
        "replicas": finding.replicas,
        "split": candidate.split and candidate.split._asdict(),
        "devices": finding.devices,
        "cost_usd_per_hour": finding.cost_usd_per_hour,
        "cost_usd_per_million_tokens": None,
        "kept": finding.kept,
        "ruled_out_by": finding.bound or None,
        "missed": finding.missed and limit_name(finding.missed),
        "measured_ms": measured_ms,
        "classes": {},
        "tpot_ms": None,
        "tokens_per_s": None,
        "mean_batch": None,
        "hit_rate": finding.hit_rate,
    }
    outcome = finding.outcome
    if outcome:
        data["cost_usd_per_million_tokens"] = finding.cost_usd_per_million_tokens
        data["tokens_per_s"] = outcome.tokens_per_s
        data["mean_batch"] = outcome.serving.mean_batch
        for of_class in outcome.serving.classes:
            data["classes"][of_class.name] = {
                "arrived": of_class.arrived,
                "good": of_class.good,
                "goodput_requests_per_s": of_class.goodput_requests_per_s,
            }
        if outcome.steps:
            data["tpot_ms"] = outcome.tpot_s * 1e3
    return data
