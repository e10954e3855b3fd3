"""The plan: the cheapest fleet that keeps an SLO under given traffic, and what else there is.

    cost |                      pairs of candidate and replicas, cheapest first:
         |   .   o  <- answer    ruled out by a bound, or simulated (x missed, o kept)
         | x  x                  the first cost with a pair that keeps the SLO is the answer's,
         |x .                    among its pairs the one with most to spare
         +-----------  TPOT      then on, until every family has its own cheapest or has none

Nothing is skipped that could be the answer: a pair is left unsimulated only where a bound
(:mod:`simulator.studies.plan.bounds`) proves that it would miss, and a run is ended early only where
no later request can mend it. So the answer is that of simulating all pairs, whether or not more machines always help.
All runs have the same arrivals, lengths and recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from simulator.files.schema import Fault, Infeasible
from simulator.scenario import Loaded
from simulator.scenario.expenses import Expenses, expenses
from simulator.scenario.outcome import Outcome
from simulator.scenario.run import simulate, tuned
from simulator.serving.slo import Limit
from simulator.studies.capacity import faster
from simulator.studies.plan.bounds import FleetBounds, LimitBrokenError, Watch
from simulator.studies.plan.file import Candidate, Plan

PRECISION = 0.01
"""Relative width at which a bisection of the rate ends."""
FASTEST = 64.0
"""Times the given rate; beyond it a capacity is not looked for."""
Tell = Callable[[str], object]


class MeasuredLimit(NamedTuple):
    """A limit and what a run measured there."""

    limit: Limit
    seconds: float
    kept: bool

    @property
    def strain(self) -> float:
        """Measured time over its limit; above one where it is missed."""
        return self.seconds / self.limit.seconds


@dataclass(frozen=True)
class Finding:
    """So many replicas of a candidate, and what became of them."""

    candidate: Candidate
    replicas: int
    measured: tuple[MeasuredLimit, ...] = ()
    """Of a run that went to its end."""
    broken: Limit | None = None
    """The limit that a bound, or the first requests of a run, have shown to be missed."""
    bound: str = ""
    """The bound that showed it; empty where it was a run."""
    outcome: Outcome | None = field(default=None, repr=False, compare=False)
    expenses: Expenses | None = None

    @property
    def kept(self) -> bool:
        """Every limit was kept."""
        return bool(self.measured) and all(one.kept for one in self.measured)

    @property
    def cost_usd_per_hour(self) -> float:
        """All replicas together."""
        return self.replicas * self.candidate.price_usd_per_hour

    @property
    def tightest(self) -> MeasuredLimit:
        """Where least is to spare, or most is missing."""
        return max(self.measured, key=lambda one: one.strain)

    @property
    def missed(self) -> Limit | None:
        """A limit that is not kept; None where all are, or nothing was looked at."""
        if self.kept or not (self.measured or self.broken):
            return None
        return self.broken or self.tightest.limit

    @property
    def cost_usd_per_million_tokens(self) -> float:
        """Output tokens of the run, the prompts' work included; not a number without a run."""
        return (self.expenses and self.expenses.usd_per_million_tokens) or float("nan")


@dataclass(frozen=True)
class Search:
    """Everything that was looked at."""

    plan: Plan
    findings: tuple[Finding, ...]
    """In the order in which they were looked at: by cost."""

    @property
    def best(self) -> Finding | None:
        """The answer; None where nothing keeps the SLO."""
        return min((one for one in self.findings if one.kept), key=_rank, default=None)

    @property
    def by_family(self) -> dict[tuple[str, str], Finding]:
        """The cheapest of each family that has one, cheapest first."""
        found: dict[tuple[str, str], Finding] = {}
        for one in sorted((one for one in self.findings if one.kept), key=_rank):
            found.setdefault(one.candidate.family, one)
        return found

    @property
    def simulated(self) -> int:
        """Pairs that a run was begun for."""
        return sum(not one.bound for one in self.findings)

    def binding(self, chosen: Finding) -> Limit | None:
        """The limit that keeps the chosen one from fewer replicas; None where it has only one."""
        fewer = (one for one in self.findings if one.candidate is chosen.candidate and one.replicas == chosen.replicas - 1)
        return next((one.missed for one in fewer), None)


def _rank(one: Finding) -> tuple[float, float]:
    return round(one.cost_usd_per_hour, 6), one.tightest.strain


def search(plan: Plan, first_only: bool = False, exhaustive: bool = False, tell: Tell = lambda text: None) -> Search:
    """Look at pairs by cost until every family is answered; ``first_only``: until anything is.

    ``exhaustive`` simulates every pair of the plan to its end and uses no bound.
    """
    limits = plan.file.slo.limits
    bounds = {id(one): FleetBounds(one.loaded, limits) for one in plan.candidates}
    findings: list[Finding] = []
    answered: set[tuple[str, str]] = set()
    for cost, group in groupby(_pairs(plan), key=lambda pair: round(pair[0].price_usd_per_hour * pair[1], 6)):
        found = []
        for candidate, replicas in group:
            if exhaustive:
                found.append(examine(candidate, replicas, to_the_end=True))
            elif candidate.family not in answered:
                tell(f"${cost:g} per hour: {replicas} x {candidate.name}")
                ruled_out = bounds[id(candidate)].broken_by(replicas)
                found.append(
                    Finding(candidate, replicas, bound=ruled_out[0], broken=ruled_out[1])
                    if ruled_out
                    else examine(candidate, replicas)
                )
        findings += found
        answered |= {one.candidate.family for one in found if one.kept}
        if first_only and answered:
            break
    return Search(plan, tuple(findings))


def _pairs(plan: Plan) -> list[tuple[Candidate, int]]:
    """Every candidate with every number of replicas that may be rented, cheapest first, then in the order of the file."""
    pairs = [(one, replicas) for one in plan.candidates for replicas in range(1, one.most_replicas + 1)]
    return sorted(pairs, key=lambda pair: round(pair[0].price_usd_per_hour * pair[1], 6))


def examine(candidate: Candidate, replicas: int, to_the_end: bool = False) -> Finding:
    """Simulate; a run ends early where a limit is missed whatever comes, unless it is to go to its end."""
    scenario = tuned(replicated(candidate.loaded, replicas)).scenario
    limits = scenario.slo.limits if scenario.slo else ()
    watch = None if to_the_end else Watch(limits, scenario.requests, scenario.seed)
    try:
        outcome, _ = simulate(scenario, candidate.loaded.acceptance(), finished=watch.note if watch else None)
    except LimitBrokenError as error:
        return Finding(candidate, replicas, broken=error.limit)
    verdicts = zip(limits, outcome.serving.counted.slo, strict=True)
    measured = tuple(MeasuredLimit(limit, found.found_ms / 1e3, found.met) for limit, found in verdicts)
    return Finding(candidate, replicas, measured, outcome=outcome, expenses=expenses(scenario, outcome))


def replicated(loaded: Loaded, replicas: int) -> Loaded:
    """So many replicas of it behind its router."""
    return loaded.replace(serving=loaded.scenario.serving.model_copy(update={"replicas": replicas}))


def most_traffic(finding: Finding) -> float:
    """The highest rate at which a fleet still keeps the SLO, as a multiple of the plan's; found by bisection.

    The given rate is kept; doubling it until one is missed, at most ``FASTEST`` times, brackets the answer. Taken to be
    one rate below which all are kept: with the same requests closer together nothing else is to be expected. Unlike
    :func:`simulator.studies.capacity.capacity` it asks for the SLO alone, and ends a run that cannot keep it.
    """
    candidate = finding.candidate

    def kept(times: float) -> bool:
        return examine(with_loaded(candidate, faster(candidate.loaded, times)), finding.replicas).kept

    low, high = 1.0, 2.0
    while kept(high):
        low, high = high, 2.0 * high
        if low >= FASTEST:
            return low
    while high / low > 1.0 + PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def with_loaded(candidate: Candidate, loaded: Loaded) -> Candidate:
    """The same candidate in another world."""
    return replace(candidate, loaded=loaded)


def nearest_miss(plan: Plan) -> Finding:
    """Of all candidates with all the replicas they may have, the one that misses by least; every one is run to its end."""
    return min(
        (examine(one, one.most_replicas, to_the_end=True) for one in plan.candidates), key=lambda one: one.tightest.strain
    )


def no_answer(plan: Plan, nearest: Finding) -> Infeasible:
    """What a plan without an answer ends with."""
    missed = "; ".join(
        f"{one.limit.metric.upper()} {one.limit.percentile} {one.seconds * 1e3:,.0f} ms, asked {one.limit.seconds * 1e3:,.0f}"
        for one in nearest.measured
        if not one.kept
    )
    message = f"no fleet keeps the SLO; nearest: {nearest.replicas} x {nearest.candidate.name}: {missed}"
    return Infeasible([Fault((plan.file.name, 0, 0), "slo", message)])
