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

    @property
    def simulated(self) -> bool:
        """Return whether both accountings were simulated."""
        return self.verified.simulation is not None and self.emitted.simulation is not None


def budget_sweep(
    loaded: Loaded, gammas: Iterable[int], simulate_at: Collection[int]
) -> list[BudgetPoint]:
    """Return a point for all budgets with one sequence: by law, and by replay and simulation for
    those in ``simulate_at``.
    """
    _checked(loaded)
    single = loaded.change(sequences=1, first_rate=None, rule="stated")
    points = []
    for gamma in counted(gammas, "budgets"):
        changed = at_window(single, gamma, REQUESTS)
        points.append(budget_point(changed, gamma in simulate_at))
    return points


def sequence_sweep(loaded: Loaded) -> list[BudgetPoint]:
    """Return points for 1, 2, 3 and a dynamic number of sequences at the scenario's budget, as far
    as acceptance answers.
    """
    strategy = _checked(loaded)
    points = []
    for sequences in (*STATIC, "dynamic"):
        if isinstance(sequences, int) and sequences > strategy.window:
            continue
        stated = loaded.change(sequences=sequences, rule="stated")
        changed = at_window(stated, strategy.window, REQUESTS)
        facts = Facts(stated=True)
        if changed.trace:
            facts = Facts(trace=changed.trace)
        unanswered = changed.scenario.strategy.findings(facts)
        if not any(unanswered):
            points.append(budget_point(changed, True))
    return points


def coefficient(loaded: Loaded) -> float:
    """Return c = T_target / T_draft of the scenario at its mean context, a ratio (DUO-1)."""
    strategy = _checked(loaded)
    scenario = loaded.scenario
    return strategy.coefficient(scenario.cost, scenario.mean_context)


def to_simulate(loaded: Loaded, budgets: Sequence[int]) -> set[int]:
    """Return about a dozen of the budgets, and those around c."""
    c = budget(coefficient(loaded))
    every = max(1, len(budgets) // 12)
    around = [c + offset for offset in OFFSETS]
    return {*budgets[::every], budgets[-1], *around}


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
    emitted_per_s = 0.0
    if written.seconds:
        emitted_per_s = (cap - 1) / written.seconds
    point = BudgetPoint(
        gamma=strategy.window,
        sequences=strategy.fixed or "dynamic",
        draft_ms=draft_s * 1e3,
        target_ms=target_s * 1e3,
        step_ms=law.step_s * 1e3,
        verified=BudgetRates(1.0 / law.tpot_s),
        emitted=BudgetRates(emitted_per_s),
        reported_ratio=written.shown / written.verified,
    )
    if simulated:
        return _simulated(point, loaded, acceptance)
    return point


def _simulated(point: BudgetPoint, loaded: Loaded, acceptance: Acceptance) -> BudgetPoint:
    rates = {}
    for count in ("verified", "emitted"):
        scenario = loaded.change(count=count).scenario
        replayed = evaluate.replay(scenario, acceptance)
        outcome, _ = evaluate.simulate(scenario, acceptance)
        by_law = getattr(point, count)
        by_replay = 1.0 / replayed.tpot_s
        by_simulation = 1.0 / outcome.tpot_s
        rates[count] = replace(by_law, replay=by_replay, simulation=by_simulation)
    return replace(point, **rates)


def _checked(loaded: Loaded) -> DuoDecoding:
    strategy = loaded.scenario.schedule
    if not isinstance(strategy, DuoDecoding):
        message = f"expected a scenario of duodecoding, got {strategy.name}"
        raise BadInput.at(loaded.scenario.name, message, "strategy.name")
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
        rates = {}
        for point in self.points:
            accounting = getattr(point, count)
            rate = getattr(accounting, way)
            if rate is not None:
                rates[point.gamma] = rate
        return rates

    def best(self, count: str, way: str) -> int:
        """Return the budget with the most tokens per second."""
        rates = self.read(count, way)
        return max(rates, key=lambda gamma: rates[gamma])

    def flat(self, count: str, way: str) -> tuple[int, int]:
        """Return the first and the last budget that lose no more than ``FLAT`` against the best."""
        rates = self.read(count, way)
        least = (1.0 - FLAT) * max(rates.values())
        near = [gamma for gamma, rate in rates.items() if rate >= least]
        return near[0], near[-1]

    def around(self, count: str, way: str) -> dict[int, float]:
        """Return what budgets around gamma = c gain or lose against it, as shares (Table 3); empty
        where c was not swept.
        """
        rates = self.read(count, way)
        at = rates.get(self.budget)
        changes: dict[int, float] = {}
        if not at:
            return changes
        for offset in OFFSETS:
            gamma = self.budget + offset
            rate = rates.get(gamma)
            if offset and rate:
                changes[gamma] = rate / at - 1.0
        return changes


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
    studies = [budget_study(scenario, budgets or (), simulated or ()) for scenario in loaded]
    return BudgetStudies(tuple(studies))


def budget_study(
    loaded: Loaded, gammas: Sequence[int] = (), simulate_at: Collection[int] = ()
) -> BudgetStudy:
    """Return both sweeps of a scenario; where not asked for, budgets to well past c, and about a
    dozen of them simulated.

    Raises :class:`BadInput` for a strategy that is not DuoDecoding.
    """
    c = coefficient(loaded)
    largest = max(c, loaded.scenario.schedule.window)
    well_past = max(8, round(1.5 * largest))
    chosen = gammas or range(1, min(MOST, well_past) + 1)
    simulated = simulate_at or to_simulate(loaded, chosen)
    points = budget_sweep(loaded, chosen, simulated)
    by_sequences = sequence_sweep(loaded)
    source = loaded.acceptance().odds(1, None).source
    return BudgetStudy(loaded.scenario.name, c, budget(c), source, points, by_sequences)
