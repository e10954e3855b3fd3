r"""DuoDecoding's budget: tokens per second as ``gamma`` grows, by law, replay and simulation, in
both accountings.

    verified |      ________         rises while a longer tail still pays, is flat once seldom right
             |   __/        \___     to its end, falls once gamma T_draft > T_target
    emitted  |  _______-----\___     rises with every unverified token that ends a request, up to c
             +--------------+----- gamma
                            c = T_target / T_draft

Budgets are compared with one sequence (Table 3), numbers of sequences at the scenario's budget
(Table 2).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from simulator.core.acceptance.sequence_chances import budget
from simulator.core.acceptance.sources import Acceptance
from simulator.core.faults import BadInput
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies.common.traits import Facts
from simulator.papers.duodecoding.strategy import DuoDecoding
from simulator.scenario import Loaded, evaluate
from simulator.studies.window import at_window

REQUESTS = 60
"""Requests simulated at a budget."""
MOST = 64
"""The largest budget shown where none is asked for."""
FLAT = 0.01
"""Loss against the best budget that counts as none."""
OFFSETS = (-2, -1, 0, 1, 2)
"""Budgets around c that the paper compares (Table 3)."""
STATIC = (1, 2, 3)
"""Numbers of sequences that the paper compares with the dynamic one (Table 2)."""


@dataclass(frozen=True)
class BudgetRates:
    """Holds the tokens per second of a request while it decodes; None where not simulated."""

    law: float
    """Tokens per second by law, with marginal acceptance rates."""
    replay: float | None = None
    simulation: float | None = None


@dataclass(frozen=True)
class BudgetPoint:
    """Holds what a budget, or a number of sequences, comes to; times in milliseconds."""

    gamma: int
    sequences: int | str
    draft_ms: float
    """Time in ms to draft all sequences, or a single one where their number is dynamic."""
    target_ms: float
    """Time in ms of a pass over a whole sequence and a token more."""
    step_ms: float
    """Mean step in ms by law."""
    verified: BudgetRates
    emitted: BudgetRates
    """Rates where a request ends when its last token is shown, checked or not; tokens beyond the
    output do not count.
    """
    reported_ratio: float
    """Tokens that the released program counts over those of them that are verified, by law, a
    ratio.
    """


def budget_sweep(
    loaded: Loaded, gammas: Iterable[int], simulate_at: Collection[int]
) -> list[BudgetPoint]:
    """Return a point for all budgets with one sequence: by law, and by replay and simulation for
    those in ``simulate_at``.
    """
    _checked(loaded)
    single = loaded.change(sequences=1, first_rate=None, rule="stated")
    return [
        budget_point(at_window(single, gamma, REQUESTS), gamma in simulate_at)
        for gamma in counted(gammas, "budgets")
    ]


def sequence_sweep(loaded: Loaded) -> list[BudgetPoint]:
    """Return points for 1, 2, 3 and a dynamic number of sequences at the scenario's budget, as far
    as acceptance answers.
    """
    strategy = _checked(loaded)
    points = []
    for sequences in (*STATIC, "dynamic"):
        if isinstance(sequences, int) and sequences > strategy.window:
            continue
        changed = at_window(
            loaded.change(sequences=sequences, rule="stated"), strategy.window, REQUESTS
        )
        asked = changed.scenario.strategy
        trace = changed.trace
        if not any(asked.findings(Facts(trace=trace) if trace else Facts(stated=True))):
            points.append(budget_point(changed, True))
    return points


def coefficient(loaded: Loaded) -> float:
    """Return c = T_target / T_draft of the scenario at its mean context, a ratio (DUO-1)."""
    return _checked(loaded).coefficient(loaded.scenario.cost, loaded.scenario.mean_context)


def to_simulate(loaded: Loaded, budgets: Sequence[int]) -> set[int]:
    """Return about a dozen of the budgets, and those around c."""
    c = budget(coefficient(loaded))
    return (
        set(budgets[:: max(1, len(budgets) // 12)])
        | {budgets[-1]}
        | {c + offset for offset in OFFSETS}
    )


def budget_point(loaded: Loaded, simulated: bool) -> BudgetPoint:
    """Return the point of a scenario by law, and by replay and simulation where asked for, in both
    accountings.
    """
    strategy = _checked(loaded)
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    cost = scenario.cost
    context = scenario.mean_context
    law = evaluate.law(scenario, acceptance)
    cap = round(scenario.lengths[1])
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
    if simulated:
        return _simulated(point, loaded, acceptance)
    return point


def _simulated(point: BudgetPoint, loaded: Loaded, acceptance: Acceptance) -> BudgetPoint:
    rates = {}
    for count in ("verified", "emitted"):
        scenario = loaded.change(count=count).scenario
        replayed, (outcome, _) = (
            evaluate.replay(scenario, acceptance),
            evaluate.simulate(scenario, acceptance),
        )
        rates[count] = replace(
            getattr(point, count), replay=1.0 / replayed.tpot_s, simulation=1.0 / outcome.tpot_s
        )
    return replace(point, **rates)


def _checked(loaded: Loaded) -> DuoDecoding:
    strategy = loaded.scenario.schedule
    if not isinstance(strategy, DuoDecoding):
        raise BadInput.at(
            loaded.scenario.name,
            f"expected a scenario of duodecoding, got {strategy.name}",
            "strategy.name",
        )
    return strategy


@dataclass(frozen=True)
class BudgetStudy:
    """Holds both sweeps of a scenario, with c and the budget gamma = c."""

    scenario: str
    cost_coefficient: float
    budget: int
    source: str
    """Where the law's acceptance comes from, in words."""
    points: Sequence[BudgetPoint]
    sequences: Sequence[BudgetPoint]

    def read(self, count: str, way: str) -> dict[int, float]:
        """Return tokens per second by budget: ``verified`` or ``emitted``, by ``law``, ``replay``
        or ``simulation``.
        """
        rates = {point.gamma: getattr(getattr(point, count), way) for point in self.points}
        return {gamma: rate for gamma, rate in rates.items() if rate is not None}

    def best(self, count: str, way: str) -> int:
        """Return the budget with the most tokens per second."""
        rates = self.read(count, way)
        return max(rates, key=lambda gamma: rates[gamma])

    def flat(self, count: str, way: str) -> tuple[int, int]:
        """Return the first and the last budget that lose no more than ``FLAT`` against the best."""
        rates = self.read(count, way)
        near = []
        for gamma, rate in rates.items():
            if rate >= (1.0 - FLAT) * max(rates.values()):
                near.append(gamma)
        return near[0], near[-1]

    def around(self, count: str, way: str) -> dict[int, float]:
        """Return what budgets around gamma = c gain or lose against it, as shares (Table 3); empty
        where c was not swept.
        """
        rates = self.read(count, way)
        at = rates.get(self.budget)
        near = {offset: rates.get(self.budget + offset) for offset in OFFSETS if offset}
        return {
            self.budget + offset: rate / at - 1.0 for offset, rate in near.items() if at and rate
        }


@dataclass(frozen=True)
class BudgetStudies:
    """Holds the budget studies of several scenarios, in the order asked for."""

    studies: tuple[BudgetStudy, ...]

    def as_data(self) -> PlainData:
        """Return the studies as plain data."""
        return {"studies": [asdict(study) for study in self.studies]}


def study(
    loaded: Sequence[Loaded],
    budgets: Sequence[int] | None = None,
    simulated: Collection[int] | None = None,
) -> BudgetStudies:
    """Return the budget study of the scenarios; ``budgets`` and ``simulated`` as in
    :func:`budget_study`.
    """
    return BudgetStudies(
        tuple(budget_study(scenario, budgets or (), simulated or ()) for scenario in loaded)
    )


def budget_study(
    loaded: Loaded, gammas: Sequence[int] = (), simulate_at: Collection[int] = ()
) -> BudgetStudy:
    """Return both sweeps of a scenario; where not asked for, budgets to well past c, and about a
    dozen of them simulated.

    Raises :class:`BadInput` for a strategy that is not DuoDecoding.
    """
    c = coefficient(loaded)
    chosen = gammas or range(
        1, min(MOST, max(8, round(1.5 * max(c, loaded.scenario.schedule.window)))) + 1
    )
    points = budget_sweep(loaded, chosen, simulate_at or to_simulate(loaded, chosen))
    source = loaded.acceptance().odds(1, None).source
    return BudgetStudy(loaded.scenario.name, c, budget(c), source, points, sequence_sweep(loaded))
