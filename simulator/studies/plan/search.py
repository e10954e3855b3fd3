"""Search for the cheapest fleet that meets an SLO under given traffic, and for the cheapest of
every family.

    cost |                      pairs of candidate and replicas, cheapest first:
         |   .   o  <- answer    ruled out by a bound, or simulated (x missed, o met)
         | x  x                  the first cost with a pair that meets the SLO is the answer's,
         |x .                    among its pairs the one with most to spare
         +-----------  TPOT      then on, until every family has its own cheapest or has none

A fleet that speculates is the answer only where the chance that it is faster than plain decoding is
at least ``least_chance`` of the plan. Until a fleet is found that may be recommended, families go
on beyond their cheapest.

Nothing is skipped that could be the answer: a pair is left unsimulated only where a bound
(:mod:`simulator.studies.plan.bounds`) proves that it would miss, and a run is ended early only
where no later request can mend it. So the answer is that of simulating all pairs, whether or not
more machines always help; of splits it is that of those that :mod:`simulator.studies.plan.splits`
looks at. All runs have the same arrivals, lengths and recordings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from math import floor, inf
from typing import Literal, NamedTuple

from simulator.core.faults import Infeasible
from simulator.core.parallel import say
from simulator.core.serving.requests import Request
from simulator.core.serving.service import OnRequest
from simulator.core.serving.slo import Limit
from simulator.scenario import Loaded, Scenario
from simulator.scenario.decision.by_law import drawn_speedup
from simulator.scenario.evaluate import simulate, tuned
from simulator.scenario.expenses import Expenses, expenses
from simulator.scenario.outcome import Outcome
from simulator.scenario.uncertain.draws import Drawn
from simulator.studies.plan.bounds import FleetBounds, SplitBounds
from simulator.studies.plan.file import APART, Candidate, FleetSplit, Plan
from simulator.studies.plan.limits import (
    MeasuredLimit,
    limit_name,
    limits_of,
    measured_limits,
)
from simulator.studies.plan.splits import every_split
from simulator.studies.plan.watch import LimitBrokenError, LimitsKeptError, Watch

Until = Literal["end", "exceeded", "known"]
"""How far a run goes: to its end, until too many requests that have ended exceeded a limit, or
until it is known that they will.
"""
RuledOut = Callable[[int], tuple[str, Limit] | None]
"""Takes replicas; returns the bound that rules them out and the limit that they break, or None."""
NONE_OWNED = "one replica needs more than is owned"
"""Why no fleet is looked at where replicas do both."""
DEAREST = 2.0
"""Price of a fleet whose prefill and decode are apart, over that of the answer, up to which one is
looked for.
"""


class Price(NamedTuple):
    """Ranks fleets: by their price (USD per hour), and those that cost nothing by their devices."""

    usd_per_hour: float
    devices: float
    """How many there are; 0 where they cost something."""


@dataclass(frozen=True)
class Finding:
    """Says how a fleet, so many replicas of a candidate, did under the SLO."""

    candidate: Candidate
    replicas: int
    measured: tuple[MeasuredLimit, ...] = ()
    """The limits as measured by a run that went to its end; empty without one."""
    broken: Limit | None = None
    """The limit that a bound, or the first requests of a run, have shown to be missed."""
    bound: str = ""
    """The name of the bound that showed it; empty where it was a run."""
    outcome: Outcome | None = field(default=None, repr=False, compare=False)
    expenses: Expenses | None = None

    @property
    def kept(self) -> bool:
        """Return whether a run met every limit."""
        return bool(self.measured) and all(measured.kept for measured in self.measured)

    @property
    def devices(self) -> dict[str, int]:
        """Return the number of devices of all replicas together, by name."""
        return self.candidate.fleet_devices(self.replicas)

    @property
    def cost_usd_per_hour(self) -> float:
        """Return the price of all replicas together (USD per hour)."""
        return self.candidate.fleet_usd_per_hour(self.replicas)

    @property
    def tightest(self) -> MeasuredLimit:
        """Return the measured limit with the least to spare, or with the most missing."""
        return max(self.measured, key=lambda measured: measured.strain)

    @property
    def hit_rate(self) -> float | None:
        """Return the share of prompt tokens that a prefix cache had and that were not computed;
        None without a run, or where nothing is kept.
        """
        if self.outcome is None or not self.outcome.serving.prefix_cache:
            return None
        return float(self.outcome.serving.prefix_cache["hit_rate"])

    @property
    def mean_batch(self) -> int:
        """Return how many requests decode together in a replica on average, rounded; at least 1."""
        if self.outcome is None:
            return 1
        return max(1, round(self.outcome.serving.mean_batch))

    @cached_property
    def speedup(self) -> Drawn | None:
        """Return the draws of the speed-up by law over plain decoding at the mean batch; None
        where nothing is drafted, or no run decoded.
        """
        loaded = tuned(self.candidate.loaded)
        decoded = self.outcome is not None and self.outcome.steps > 0
        if not decoded or not loaded.scenario.schedule.window:
            return None
        return drawn_speedup(loaded, self.mean_batch)

    @property
    def chance(self) -> float | None:
        """Return the chance that speculation is faster than plain decoding, as a share of 1; None
        where there is no :attr:`speedup`.
        """
        if self.speedup is None:
            return None
        return self.speedup.chance_above(1.0)

    @property
    def missed(self) -> Limit | None:
        """Return a limit that the fleet misses; None where it meets all, or nothing was looked
        at.
        """
        if self.kept or not (self.measured or self.broken):
            return None
        return self.broken or self.tightest.limit

    @property
    def cost_usd_per_million_tokens(self) -> float:
        """Return the price of a million output tokens (USD), prompts' work included; not a number
        without a run.
        """
        if self.expenses is None or self.expenses.usd_per_million_tokens is None:
            return float("nan")
        return self.expenses.usd_per_million_tokens


@dataclass(frozen=True)
class Search:
    """Holds every fleet that was looked at."""

    plan: Plan
    findings: tuple[Finding, ...]
    """The fleets in the order in which they were looked at: by cost."""

    @property
    def best(self) -> Finding | None:
        """Return the answer; None where no fleet that meets the SLO is recommended."""
        recommended = filter(self.recommended, self.findings)
        return min(recommended, key=rank, default=None)

    def recommended(self, finding: Finding) -> bool:
        """Return whether a fleet may be the answer: it meets the SLO, and where it speculates, that
        is sure enough to be faster than plain decoding.
        """
        if not finding.kept:
            return False
        return finding.chance is None or finding.chance >= self.plan.file.least_chance

    @property
    def by_family(self) -> dict[tuple[str, str], Finding]:
        """Return the cheapest fleet of each family that meets the SLO: first those that are
        recommended, cheapest first, then the others.
        """
        cheapest: dict[tuple[str, str], Finding] = {}
        kept = sorted((finding for finding in self.findings if finding.kept), key=rank)
        for finding in sorted(kept, key=lambda finding: not self.recommended(finding)):
            cheapest.setdefault(finding.candidate.family, finding)
        return cheapest

    @property
    def simulated(self) -> int:
        """Return the number of fleets that a run was begun for."""
        return sum(not finding.bound for finding in self.findings)

    def binding(self, chosen: Finding) -> Limit | None:
        """Return the limit that the chosen candidate breaks with one replica fewer; None where it
        has only one.
        """
        for finding in self.findings:
            placed = finding.candidate.placed == chosen.candidate.placed
            if placed and finding.replicas == chosen.replicas - chosen.candidate.sharing:
                return finding.missed
        return None


def rank(finding: Finding) -> tuple[Price, float]:
    """Return the price, then how much of the tightest limit is used: of equal prices, the most to
    spare comes first.
    """
    return _price(finding.candidate, finding.replicas), finding.tightest.strain


def search(plan: Plan, first_only: bool = False) -> Search:
    """Look at fleets by cost until every family has its answer, or with ``first_only`` until any
    has; return all of them. No family has one before a fleet may be recommended.

    Then at those whose prefill and decode are apart, where the plan says so: up to ``DEAREST``
    times the price of the answer, or ``first_only`` no dearer, until one may be recommended.
    """
    until: Until = "known" if first_only else "exceeded"
    bounds = {}
    for candidate in plan.candidates:
        limits = limits_of(candidate.loaded.scenario)
        bounds[id(candidate)] = FleetBounds(candidate.loaded, limits)
    findings: list[Finding] = []
    answered: set[tuple[str, str]] = set()
    for _, group in _by_cost(_pairs(plan)):
        at_this_cost = []
        for candidate, replicas in group:
            if candidate.family not in answered:
                ruled_out = bounds[id(candidate)].broken_by
                at_this_cost.append(_looked_at(candidate, replicas, until, ruled_out))
        findings += at_this_cost
        looked_at = Search(plan, tuple(findings))
        if any(finding.kept for finding in at_this_cost) and looked_at.best:
            answered = {finding.candidate.family for finding in findings if finding.kept}
        if first_only and answered:
            break
    together = Search(plan, tuple(findings))
    most = Price(inf, 0.0)
    if best := together.best:
        times = 1.0 if first_only else DEAREST
        _, devices = _price(best.candidate, best.replicas)
        most = Price(times * best.cost_usd_per_hour, times * devices)
    return Search(plan, (*findings, *_apart(plan, most, until)))


def _apart(plan: Plan, most: Price, until: Until) -> list[Finding]:
    """Return the fleets whose prefill and decode are apart, by cost up to the first at which one
    may be recommended.
    """
    bounds = {}
    for candidate in plan.apart:
        limits = limits_of(candidate.loaded.scenario)
        bounds[candidate.placed] = SplitBounds(candidate.loaded, limits)
    splits = [(candidate, sum(candidate.split or ())) for candidate in every_split(plan)]
    findings: list[Finding] = []
    for price, group in _by_cost(splits):
        if price > most:
            break
        for candidate, replicas in group:
            ruled_out = partial(_split_broken, bounds[candidate.placed], candidate.split)
            findings.append(_looked_at(candidate, replicas, until, ruled_out))
        if Search(plan, tuple(findings)).best:
            break
    return findings


def _split_broken(
    bounds: SplitBounds, split: FleetSplit | None, replicas: int
) -> tuple[str, Limit] | None:
    """Return which bound rules out a split of so many replicas, and the limit that they break."""
    if split is None or sum(split) != replicas:
        return None
    return bounds.broken_by(*split)


def _looked_at(candidate: Candidate, replicas: int, until: Until, ruled_out: RuledOut) -> Finding:
    """Return what is found of a fleet: that a bound rules it out, or else what its run shows."""
    price = _price(candidate, replicas)
    say(f"${price.usd_per_hour:g} per hour: {replicas} x {candidate.name}")
    if broken := ruled_out(replicas):
        return Finding(candidate, replicas, bound=broken[0], broken=broken[1])
    return examine(candidate, replicas, until)


def _by_cost(
    pairs: Iterable[tuple[Candidate, int]],
) -> Iterator[tuple[Price, Iterator[tuple[Candidate, int]]]]:
    """Yield candidates and replicas of equal price, the cheapest first, those of one price in their
    order.
    """

    def price(pair: tuple[Candidate, int]) -> Price:
        return _price(*pair)

    yield from groupby(sorted(pairs, key=price), key=price)


def _price(candidate: Candidate, replicas: int) -> Price:
    """Return the price of so many replicas, so that equal ones compare as equal."""
    usd_per_hour = round(candidate.fleet_usd_per_hour(replicas), 6)
    if usd_per_hour:
        return Price(usd_per_hour, 0)
    return Price(usd_per_hour, sum(candidate.fleet_devices(replicas).values()))


def _pairs(plan: Plan) -> list[tuple[Candidate, int]]:
    """Return every candidate whose replicas do both, with every number of them that may be rented;
    none where all are to be apart.
    """
    pairs: list[tuple[Candidate, int]] = []
    if plan.file.apart == "only":
        return pairs
    for candidate in plan.candidates:
        for replicas in candidate.sizes:
            pairs.append((candidate, replicas))
    return pairs


def examine(candidate: Candidate, replicas: int, until: Until = "exceeded") -> Finding:
    """Simulate a fleet; unless the run goes to its end, it stops where a limit is missed whatever
    comes.

    The limit that is missed is the first of which that is seen.
    """
    scenario = tuned(replicated(candidate.loaded, replicas)).scenario
    limits = limits_of(scenario)
    ended = None
    arrived = None
    if until != "end":
        watch = Watch(limits, scenario.requests, scenario.seed, candidate.split is not None)
        ended = watch.ended
        if until == "known":
            arrived = watch.arrived
    try:
        outcome = _run(candidate, scenario, ended, arrived)
    except LimitBrokenError as error:
        return Finding(candidate, replicas, broken=error.limit)
    measured = measured_limits(scenario, outcome)
    return Finding(
        candidate, replicas, measured, outcome=outcome, expenses=expenses(scenario, outcome)
    )


def all_of(fewest: Finding) -> Finding:
    """Return the run of as many replicas as there are devices for; the fewest that do where more
    of them would not.
    """
    candidate = fewest.candidate
    most = candidate.sizes[-1]
    if most == fewest.replicas:
        return fewest
    whole = examine(candidate, most, "end")
    return whole if whole.kept else fewest


def keeps(candidate: Candidate, replicas: int, came: list[Request] | None = None) -> bool:
    """Return whether a fleet keeps the SLO; its run ends as soon as that is known.

    ``came`` gets the requests: where the SLO is kept all of them, and those without an end are
    still there some time after the last has come.
    """
    scenario = tuned(replicated(candidate.loaded, replicas)).scenario
    limits = limits_of(scenario)
    watch = Watch(limits, scenario.requests, scenario.seed, candidate.split is not None)
    places: dict[int, int] = {}

    def arrived(request: Request) -> None:
        watch.arrived(request)
        if came is not None:
            places[request.index] = len(came)
            came.append(request)

    def ended(request: Request) -> None:
        if came is not None:
            came[places[request.index]] = request  # who was handed over ends as another one
        watch.ended(request)
        if watch.kept:
            raise LimitsKeptError

    try:
        outcome = _run(candidate, scenario, ended, arrived)
    except LimitsKeptError:
        return True
    except LimitBrokenError:
        return False
    return all(measured.kept for measured in measured_limits(scenario, outcome))


def _run(
    candidate: Candidate, scenario: Scenario, ended: OnRequest | None, arrived: OnRequest | None
) -> Outcome:
    """Return the run of a candidate's scenario; both are called with requests, at their end and as
    they come.
    """
    acceptance = candidate.loaded.acceptance()
    outcome, _ = simulate(scenario, acceptance, finished=ended, prompts_alone=True, arrived=arrived)
    return outcome


def replicated(loaded: Loaded, replicas: int) -> Loaded:
    """Return the scenario with so many replicas behind its router, at any time; one whose prefill
    and decode are apart has them already.
    """
    if loaded.scenario.serving.pools:
        return loaded
    fixed = {"replicas": replicas, "scaling": None}
    return loaded.replace(serving=loaded.scenario.serving.model_copy(update=fixed))


def nearest_miss(plan: Plan) -> Finding | None:
    """Return the fleet that misses by least, of all candidates with all the replicas they may have;
    each runs to its end. None where one replica of any needs more devices than are owned.
    """
    fleets = [(candidate, candidate.sizes[-1]) for candidate in plan.candidates]
    if plan.file.apart == "only":
        largest_of = {candidate.placed: candidate for candidate in every_split(plan)}
        fleets = [(candidate, candidate.sizes[-1]) for candidate in largest_of.values()]
    largest = (examine(candidate, replicas, "end") for candidate, replicas in fleets)
    return min(largest, key=lambda finding: finding.tightest.strain, default=None)


def enough(searched: Search) -> dict[str, Finding | None]:
    """Return, for each device of which those that are owned do not do, the cheapest fleet of more
    of them that would; None where no number does that there is.
    """
    plan = searched.plan
    doing = set[str]()
    for finding in filter(searched.recommended, searched.findings):
        doing.update(finding.candidate.devices)
    would: dict[str, Finding | None] = {}
    for name, offer in plan.file.devices.items():
        if offer.owned is None or name in doing:
            continue
        say(f"{offer.owned} x {name} do not do; looking for how many would")
        beyond = plan.beyond
        together = [candidate for candidate in beyond.candidates if name in candidate.devices]
        apart = [candidate for candidate in beyond.apart if name in candidate.devices]
        would[name] = search(beyond.of(together, apart), first_only=True).best
    return would


def devices_in_words(finding: Finding) -> str:
    """Return how many of which devices a fleet has: ``8 x h100_sxm``."""
    return " + ".join(f"{count} x {name}" for name, count in finding.devices.items())


def owned_together(plan: Plan) -> str:
    """Return the devices that are owned as one fleet, as it is typed: ``h100_sxm:4+l40s:8``."""
    offers = plan.file.devices.items()
    return "+".join(f"{name}:{offer.owned}" for name, offer in offers if offer.owned is not None)


def too_few(plan: Plan, name: str, would: Finding | None) -> str:
    """Return that the owned devices of a name do not do, and which number would."""
    offer = plan.file.devices[name]
    return not_enough(offer.owned or 0, name, would, offer.count)


def not_enough(count: int, name: str, would: Finding | None, most: int) -> str:
    """Return that so many devices of a name do not do, and which number would; ``most``: up to
    how many was looked.
    """
    does = "does" if count == 1 else "do"
    if would is None:
        return f"{count} x {name} {does} not do, nor {does} {most:,}"
    return (
        f"{count} x {name} {does} not do; {devices_in_words(would)} would: "
        f"{would.replicas} x {would.candidate.name}"
    )


def not_recommended(searched: Search) -> Infeasible:
    """Return the error of a plan in which fleets meet the SLO, all of which speculate and are not
    sure enough to be faster than plain decoding.
    """
    kept = [finding for finding in searched.findings if finding.kept]
    surest = max(kept, key=lambda finding: finding.chance or 0.0)
    least = searched.plan.file.least_chance
    message = (
        f"no fleet is recommended: of those that meet the SLO the surest is {surest.replicas} x "
        f"{surest.candidate.name}, and the chance that its speculation is faster than plain "
        f"decoding is {floor(100 * (surest.chance or 0.0))} %, below {100 * least:g} %; plain "
        "decoding does not meet the SLO, or is not among the strategies. With a lower least_chance "
        "the cheapest is told all the same"
    )
    return Infeasible.at(searched.plan.file.name, message, "least_chance")


def _nothing_to_split(plan: Plan) -> str:
    """Return why there is no split to look at where all fleets are to be split."""
    if plan.apart:
        return "a split takes two replicas, and no candidate may have as many"
    reasons = [entry.reason for entry in plan.left_out if entry.name.endswith(APART)]
    if reasons:
        return f"no candidate can be split: {reasons[0]}"
    return NONE_OWNED


def _in_ms(seconds: float) -> str:
    """Return a time in ms with as many places as tell a near miss from its limit."""
    ms = seconds * 1e3
    if ms < 100.0:
        return f"{ms:.3g}"
    return f"{ms:,.0f}"


def no_answer(
    plan: Plan,
    nearest: Finding | None,
    would: Mapping[str, Finding | None],
    carried_per_s: Mapping[str, float],
) -> Infeasible:
    """Return the error of a plan without an answer, which names the nearest miss, and of devices
    that are owned what they carry, and how many would do.
    """
    owned = []
    for name, fleet in would.items():
        owned.append(too_few(plan, name, fleet))
        if carried_per_s.get(name):
            number = plan.file.devices[name].owned
            carry = "carries" if number == 1 else "carry"
            rate = f"{carried_per_s[name]:.3g} requests a second"
            owned.append(f"{number} x {name} {carry} {rate}")
    if nearest is None:
        why = _nothing_to_split(plan) if plan.file.apart == "only" else NONE_OWNED
        field = "devices" if why == NONE_OWNED else "apart"
        return Infeasible.at(plan.file.name, "; ".join([why, *owned]), field)
    if len(would) > 1:
        owned.append(f"for all of them side by side ask --compare {owned_together(plan)}")
    missed = "; ".join(
        (f"{limit_name(limit)} {_in_ms(seconds)} ms, asked {_in_ms(limit.seconds)}")
        for limit, seconds, kept in nearest.measured
        if not kept
    )
    message = (
        f"no fleet meets the SLO; nearest: {nearest.replicas} x {nearest.candidate.name}: {missed}"
    )
    return Infeasible.at(plan.file.name, "; ".join([message, *owned]), "slo")
