r"""DuoDecoding's budget: tokens per second as ``gamma`` grows, by law, replay and simulation, in both accountings.

    verified |      ________         rises while a longer tail still pays, is flat once it is hardly ever right
             |   __/        \___     to its end, falls once gamma T_draft > T_target
    emitted  |  _______-----\___     rises with every unverified token that ends a request, up to c
             +--------------+----- gamma
                            c = T_target / T_draft

Budgets are compared with one sequence (Table 3), numbers of sequences at the scenario's own budget (Table 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from simulator.acceptance.sequence_chances import budget
from simulator.acceptance.sources import Acceptance
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded, run
from simulator.scenario.outcome import Outcome
from simulator.strategies.common.studied import SharedBudget
from simulator.strategies.common.traits import Facts
from simulator.studies.window import at_window

REQUESTS = 60
"""Requests simulated at one budget."""
FLAT = 0.01
"""Loss against the best budget that counts as none."""
OFFSETS = (-2, -1, 0, 1, 2)
"""Budgets around c that the paper compares (Table 3)."""
STATIC = (1, 2, 3)
"""Numbers of sequences that the paper compares with the dynamic one (Table 2)."""


@dataclass(frozen=True)
class BudgetRates:
    """Tokens per second of one request while it decodes; None where not simulated."""

    law: float
    """Marginal acceptance rates."""
    replay: float | None = None
    simulation: float | None = None


@dataclass(frozen=True)
class BudgetPoint:
    """One budget, or one number of sequences; times in milliseconds."""

    gamma: int
    sequences: int | str
    draft_ms: float
    """All sequences, one where their number is dynamic."""
    target_ms: float
    """A pass over a whole sequence and one token more."""
    step_ms: float
    """Mean step by law."""
    verified: BudgetRates
    emitted: BudgetRates
    """A request ends when its last token is shown, checked or not; what is shown beyond the output does not count."""
    reported_ratio: float
    """Tokens that the released program counts over those of them that are verified, by law."""


def budget_sweep(loaded: Loaded, gammas: Iterable[int], simulate_at: Collection[int]) -> list[BudgetPoint]:
    """Every budget with one sequence; law everywhere, replay and simulation where asked for."""
    _checked(loaded)
    single = loaded.change(sequences=1, first_rate=None, rule="stated")
    return [budget_point(at_window(single, gamma, REQUESTS), gamma in simulate_at) for gamma in gammas]


def sequence_sweep(loaded: Loaded) -> list[BudgetPoint]:
    """One, two, three sequences and a dynamic number at the scenario's own budget, as far as acceptance can answer."""
    strategy = _checked(loaded)
    found = []
    for sequences in (*STATIC, "dynamic"):
        if isinstance(sequences, int) and sequences > strategy.window:
            continue
        changed = at_window(loaded.change(sequences=sequences, rule="stated"), strategy.window, REQUESTS)
        asked, trace = changed.scenario.strategy, changed.trace
        if not any(asked.findings(Facts(trace=trace) if trace else Facts(stated=True))):
            found.append(budget_point(changed, True))
    return found


def coefficient(loaded: Loaded) -> float:
    """C of the scenario, at its mean context (DUO-1)."""
    return _checked(loaded).coefficient(loaded.scenario.cost, loaded.scenario.mean_context)


def budgets_to_show(loaded: Loaded, most: int = 64) -> range:
    """From 1 to well past both c and the scenario's own budget."""
    return range(1, min(most, max(8, round(1.5 * max(coefficient(loaded), loaded.scenario.schedule.window)))) + 1)


def to_simulate(loaded: Loaded, budgets: Sequence[int]) -> set[int]:
    """About a dozen of them, and those around c."""
    c = budget(coefficient(loaded))
    return set(budgets[:: max(1, len(budgets) // 12)]) | {budgets[-1]} | {c + offset for offset in OFFSETS}


def budget_point(loaded: Loaded, simulated: bool) -> BudgetPoint:
    """Law, and replay and simulation if asked for, in both accountings."""
    strategy, scenario, acceptance = _checked(loaded), loaded.scenario, loaded.acceptance()
    cost, context = scenario.cost, scenario.mean_context
    law, cap = run.law(scenario, acceptance), round(scenario.lengths[1])
    written = strategy.until_shown(cost, lambda tail: acceptance.odds(tail, None), context, cap)
    draft_s, target_s = strategy.sides(cost, context)
    point = BudgetPoint(
        gamma=strategy.window,
        sequences=strategy.fixed or "dynamic",
        draft_ms=draft_s * 1e3,
        target_ms=target_s * 1e3,
        step_ms=law.step_s * 1e3,
        verified=BudgetRates(1.0 / law.tpot_s),
        emitted=BudgetRates((cap - 1) / written.seconds if written.seconds else 0.0),
        reported_ratio=written.shown / written.verified,
    )
    return _simulated(point, loaded, acceptance) if simulated else point


def _simulated(point: BudgetPoint, loaded: Loaded, acceptance: Acceptance) -> BudgetPoint:
    found = {}
    for count in ("verified", "emitted"):
        scenario = loaded.change(count=count).scenario
        replayed, (outcome, _) = run.replay(scenario, acceptance), run.simulate(scenario, acceptance)
        found[count] = replace(getattr(point, count), replay=_rate(replayed), simulation=_rate(outcome))
    return replace(point, **found)


def _rate(outcome: Outcome) -> float:
    return 1.0 / outcome.tpot_s


def _checked(loaded: Loaded) -> SharedBudget:
    strategy = loaded.scenario.schedule
    if not isinstance(strategy, SharedBudget):
        message = f"expected a scenario of duodecoding, got {strategy.name}"
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "strategy.name", message)])
    return strategy


@dataclass(frozen=True)
class BudgetStudy:
    """Both sweeps of a scenario, with c and gamma = c."""

    scenario: str
    cost_coefficient: float
    budget: int
    source: str
    """Where the law's acceptance comes from."""
    points: Sequence[BudgetPoint]
    sequences: Sequence[BudgetPoint]

    def read(self, count: str, way: str) -> dict[int, float]:
        """Tokens per second by budget: ``verified`` or ``emitted``, by ``law``, ``replay`` or ``simulation``."""
        rates = {point.gamma: getattr(getattr(point, count), way) for point in self.points}
        return {gamma: rate for gamma, rate in rates.items() if rate is not None}

    def best(self, count: str, way: str) -> int:
        """The budget of most tokens per second."""
        rates = self.read(count, way)
        return max(rates, key=lambda gamma: rates[gamma])

    def flat(self, count: str, way: str) -> tuple[int, int]:
        """First and last budget that lose no more than ``FLAT`` against the best one."""
        rates = self.read(count, way)
        near = [gamma for gamma, rate in rates.items() if rate >= (1.0 - FLAT) * max(rates.values())]
        return near[0], near[-1]

    def around(self, count: str, way: str) -> dict[int, float]:
        """What budgets beside gamma = c gain or lose against it (Table 3); empty where c was not asked for."""
        rates = self.read(count, way)
        at = rates.get(self.budget)
        beside = {offset: rates.get(self.budget + offset) for offset in OFFSETS if offset}
        return {self.budget + offset: rate / at - 1.0 for offset, rate in beside.items() if at and rate}


def budget_study(loaded: Loaded, gammas: Sequence[int] = (), simulate_at: Collection[int] = ()) -> BudgetStudy:
    """Both sweeps; where not asked for, budgets to well past c, and about a dozen simulated. BadInput without DuoDecoding."""
    c, chosen = coefficient(loaded), gammas or budgets_to_show(loaded)
    points = budget_sweep(loaded, chosen, simulate_at or to_simulate(loaded, chosen))
    source = loaded.acceptance().odds(1, None).source
    return BudgetStudy(loaded.scenario.name, c, budget(c), source, points, sequence_sweep(loaded))
