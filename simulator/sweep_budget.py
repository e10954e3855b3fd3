r"""DuoDecoding's budget: tokens per second as ``gamma`` grows, by law, replay and simulation, in both accountings.

    verified |      ________         rises while a longer tail still pays, is flat once it is hardly ever right
             |   __/        \___     to its end, falls once gamma T_draft > T_target
    emitted  |  _______-----\___     rises with every unverified token that ends a request, up to c
             +--------------+----- gamma
                            c = T_target / T_draft

Budgets are compared with one sequence (Table 3), numbers of sequences at the scenario's own budget (Table 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from simulator import run
from simulator.acceptance import Acceptance
from simulator.outcome import Outcome
from simulator.scenario import Loaded, Scenario
from simulator.schema import BadInput, Fault
from simulator.sequence_laws import budget
from simulator.strategies.duodecoding import DuoDecoding
from simulator.sweep_window import at_window

REQUESTS = 60
"""Requests simulated at one budget."""
FLAT = 0.01
"""Loss against the best budget that counts as none."""
OFFSETS = (-2, -1, 0, 1, 2)
"""Budgets around c that the paper compares (Table 3)."""
STATIC = (1, 2, 3)
"""Numbers of sequences that the paper compares with the dynamic one (Table 2)."""


@dataclass(frozen=True)
class Rates:
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
    verified: Rates
    emitted: Rates
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
        if isinstance(sequences, int) and sequences > strategy.gamma:
            continue
        changed = at_window(loaded.change(sequences=sequences, rule="stated"), strategy.gamma, REQUESTS)
        asked, trace = changed.scenario.strategy, changed.trace
        if not (asked.unrecorded(trace) if trace else asked.unstated):
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
    sequences = strategy.fixed or 1
    t = strategy.durations(cost, strategy.step(strategy.kind_of(strategy.split.tail(sequences), sequences), context))
    point = BudgetPoint(
        gamma=strategy.gamma,
        sequences=strategy.sequences,
        draft_ms=t.draft * 1e3,
        target_ms=t.target * 1e3,
        step_ms=law.step_s * 1e3,
        verified=Rates(1.0 / law.tpot_s),
        emitted=Rates((cap - 1) / written.seconds if written.seconds else 0.0),
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


def _checked(loaded: Loaded) -> DuoDecoding:
    strategy = loaded.scenario.schedule
    if not isinstance(strategy, DuoDecoding):
        message = f"expected a scenario of duodecoding, got {strategy.name}"
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "strategy.name", message)])
    return strategy


Reading = Callable[[BudgetPoint], float | None]


def verified(point: BudgetPoint) -> float | None:
    """Verified tokens per second, simulated."""
    return point.verified.simulation


def emitted(point: BudgetPoint) -> float | None:
    """Emitted tokens per second, simulated."""
    return point.emitted.simulation


def best(points: Sequence[BudgetPoint], reading: Reading) -> BudgetPoint:
    """The budget of most tokens per second."""
    return max(points, key=lambda point: reading(point) or 0.0)


def flat(points: Sequence[BudgetPoint], reading: Reading) -> tuple[int, int]:
    """First and last budget that lose no more than ``FLAT`` against the best one."""
    most = reading(best(points, reading)) or 0.0
    near = [point.gamma for point in points if (reading(point) or 0.0) >= (1.0 - FLAT) * most]
    return near[0], near[-1]


def summary(loaded: Loaded, points: Sequence[BudgetPoint], sequences: Sequence[BudgetPoint]) -> dict[str, Any]:
    """Both sweeps as plain data, with c and what it is worth."""
    scenario: Scenario = loaded.scenario
    c = coefficient(loaded)
    chosen = budget(c)
    laws: dict[str, Reading] = {
        "verified_law": lambda point: point.verified.law,
        "verified_simulation": verified,
        "emitted_law": lambda point: point.emitted.law,
        "emitted_simulation": emitted,
    }
    held = {name: [point for point in points if reading(point) is not None] for name, reading in laws.items()}
    return {
        "scenario": scenario.name,
        "cost_coefficient": c,
        "budget": chosen,
        "acceptance": loaded.acceptance().odds(1, None).source,
        "best": {name: best(held[name], reading).gamma for name, reading in laws.items() if held[name]},
        "flat": {name: flat(held[name], reading) for name, reading in laws.items() if held[name]},
        "around_c": _around(points, chosen),
        "budgets": [asdict(point) for point in points],
        "sequences": [asdict(point) for point in sequences],
    }


def _around(points: Sequence[BudgetPoint], chosen: int) -> list[dict[str, float]]:
    """What a budget beside gamma = c gains or loses."""
    by_gamma = {point.gamma: point for point in points}
    at = by_gamma.get(chosen)
    found = []
    for offset in OFFSETS:
        point = by_gamma.get(chosen + offset)
        if at is None or point is None:
            continue
        one: dict[str, float] = {"gamma": point.gamma}
        for name in ("verified", "emitted"):
            here, there = getattr(point, name), getattr(at, name)
            one[f"{name}_law_change"] = here.law / there.law - 1.0
            if here.simulation and there.simulation:
                one[f"{name}_simulation_change"] = here.simulation / there.simulation - 1.0
        found.append(one)
    return found
