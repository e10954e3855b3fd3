"""The window sweep: what a step and a token cost as ``gamma`` grows, by law and by simulation.

    step |            ____/   slope: draft time per token
         |___________/
         +-----------+------- gamma
                   gamma*     T_draft = Delta

Below gamma* drafting hides behind the target's remaining layers (Mirror-SD: the zero-slope region).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.stated import StatedDurations
from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import DraftsChain, least_window
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.traits import Facts
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.scenario import Loaded, Scenario, evaluate
from simulator.scenario.result.run_result import RunResult

SWEEP_REQUESTS = 200
"""Requests simulated at one window length, or two full batches where that is more."""
MOST = 40
"""The longest window shown."""


@dataclass(frozen=True)
class SweepPoint:
    """Holds what a window of ``gamma`` tokens comes to; times in milliseconds, None where not asked
    for or not defined.
    """

    gamma: int
    law_step_ms: float
    """The mean step by law in ms, over all step kinds, with marginal rates."""
    law_tpot_ms: float
    main_step_ms: float
    """The law's time in ms of the main step kind alone, without any fallback."""
    draft_ms: float
    """T_draft of the main step kind in ms."""
    overlap_ms: float | None
    """Delta in ms, the target's time that drafting can hide behind."""
    baseline_tpot_ms: float
    """Time per token in ms of autoregressive decoding on the same target, by law."""
    vanilla_step_ms: float | None = None
    """Mean step in ms of vanilla speculative decoding with the same window, drafter and hardware,
    by law.
    """
    vanilla_tpot_ms: float | None = None
    simulated_requests: int = 0
    simulated_step_ms: float | None = None
    simulated_tpot_ms: float | None = None
    replayed_tpot_ms: float | None = None
    """Time per token in ms of the law with the acceptance and step kinds that the simulation
    counted.
    """


def window_sweep(
    loaded: Loaded,
    simulate_at: Collection[int] | None = None,
    done: RunResult | None = None,
) -> list[SweepPoint]:
    """Return a point for each window by law, simulated where also in ``simulate_at``; empty for a
    strategy without ``gamma``.

    The law is taken from 1 to well past both the scenario's window and gamma*, not above
    :data:`MOST` nor what the trace has recorded, and simulated at the windows of :func:`_telling`
    unless stated. Windows that the strategy's further settings do not allow are left out. What is
    ``done`` is not simulated again.

    A whole window's ``draft_ms`` or ``redraft_ms`` that a scenario states holds for its ``gamma``;
    for further windows it grows in proportion to their internal draft steps.
    """
    if "gamma" not in type(loaded.scenario.strategy).model_fields:
        return []
    set_window = loaded.scenario.schedule.window
    windows = dict(windows_of(loaded, range(1, MOST + 1)))
    by_law = (_by_law(window.scenario, window.acceptance()) for window in windows.values())
    points = list(_to_show(by_law, set_window))
    chosen = _telling(points, set_window) if simulate_at is None else simulate_at
    return [
        _simulated(point, windows[point.gamma], done) if point.gamma in chosen else point
        for point in points
    ]


def windows_of(loaded: Loaded, gammas: Iterable[int]) -> Iterator[tuple[int, Loaded]]:
    """Yield the scenario with all windows that its trace and its further settings can answer for,
    by window.
    """
    for gamma in gammas:
        strategy = loaded.scenario.schedule
        if gamma >= least_window(strategy):
            changed = at_window(loaded, gamma)
            if not (
                changed.trace
                and any(changed.scenario.schedule.findings(Facts(trace=changed.trace)))
            ):
                yield gamma, changed


def _to_show(points: Iterable[SweepPoint], set_window: int) -> Iterator[SweepPoint]:
    """Yield points until well past both the scenario's window and gamma*."""
    last = max(8, set_window + 2, round(1.6 * set_window))
    hidden = True
    for point in points:
        hidden = hidden and point.overlap_ms is not None and point.draft_ms <= point.overlap_ms
        if hidden:
            last = max(last, round(1.6 * point.gamma))
        if point.gamma > last:
            return
        yield point


def _telling(points: Sequence[SweepPoint], set_window: int) -> set[int]:
    """Return both ends, the scenario's window, and the best by law with its neighbours; none
    without points.
    """
    if not points:
        return set()
    best = min(points, key=lambda point: point.law_tpot_ms).gamma
    return {points[0].gamma, points[-1].gamma, set_window, best - 1, best, best + 1}


def main_kind(kinds: Iterable[Kind]) -> Kind:
    """Return the step kind that the paper's equation is about: all requests have their windows at
    hand.
    """
    return min(
        kinds, key=lambda kind: (kind.redrafts + kind.bare, -kind.verifying, kind.extra_work)
    )


def serial_drafting(scenario: Scenario) -> Scenario | None:
    """Return vanilla drafting with the scenario's window and drafter; None where the strategy is
    that, or drafts no chain.
    """
    own = scenario.strategy
    if not isinstance(own, DraftsChain) or own.serial:
        return None
    serial = VanillaSD(
        gamma=own.window, drafter=own.chain_drafter, bonus_on_full_accept=own.bonus_on_full_accept
    )
    return scenario.replace(strategy=serial)


def _by_law(scenario: Scenario, acceptance: Acceptance) -> SweepPoint:
    strategy = scenario.schedule
    law = evaluate.law(scenario, acceptance)
    kind = main_kind(law.kinds)
    durations = strategy.durations(scenario.cost, strategy.step(kind, scenario.mean_context))
    named: Mapping[str, float] = durations._asdict()
    point = SweepPoint(
        gamma=strategy.window,
        law_step_ms=law.step_s * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        main_step_ms=float(strategy.step_seconds(durations, kind)) * 1e3,
        draft_ms=named.get("draft", 0.0) * 1e3,
        overlap_ms=named[strategy.traits.hidden_behind] * 1e3
        if strategy.traits.hidden_behind
        else None,
        baseline_tpot_ms=evaluate.baseline(scenario).tpot_s * 1e3,
    )
    if serial := serial_drafting(scenario):
        vanilla = evaluate.law(serial, acceptance)
        point = replace(
            point, vanilla_step_ms=vanilla.step_s * 1e3, vanilla_tpot_ms=vanilla.tpot_s * 1e3
        )
    return point


def _simulated(point: SweepPoint, loaded: Loaded, done: RunResult | None) -> SweepPoint:
    if done and done.scenario == loaded.scenario:
        outcome = done.simulated
    else:
        outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    return replace(
        point,
        simulated_requests=loaded.scenario.requests.count,
        simulated_step_ms=outcome.step_s * 1e3,
        simulated_tpot_ms=outcome.tpot_s * 1e3,
        replayed_tpot_ms=evaluate.law_from(loaded.scenario, outcome).tpot_s * 1e3,
    )


def at_window(loaded: Loaded, gamma: int, most_requests: int = SWEEP_REQUESTS) -> Loaded:
    """Return the scenario with windows of ``gamma`` and at most so many requests; stated times of a
    window grow with it.
    """
    scenario = loaded.scenario
    requests = scenario.requests
    count = min(requests.count, max(most_requests, 2 * requests.concurrency))
    changed = loaded.change(gamma=gamma)
    updates: PlainData = {"requests": requests.model_copy(update={"count": count})}
    if scenario.durations:
        scale = changed.scenario.schedule.needs.draft_steps / scenario.schedule.needs.draft_steps
        given = {
            name: getattr(scenario.durations, name) for name in scenario.durations.model_fields_set
        }
        given |= {
            name: given[name] * scale
            for name in ("draft_ms", "redraft_ms")
            if given.get(name) is not None
        }
        updates["durations"] = StatedDurations(**given)
    return changed.replace(**updates)
