"""The window sweep: what a step and a token cost as ``gamma`` grows, by law, beside a run.

    step |            ____/   slope: draft time per token
         |___________/
         +-----------+------- gamma
                   gamma*     T_draft = Delta

Below gamma* drafting hides behind the target's remaining layers (Mirror-SD: the zero-slope region).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from simulator.core.cost.stated import StatedDurations
from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import DraftsChain, least_window
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.traits import Facts
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.scenario import Loaded, Scenario, evaluate
from simulator.scenario.result.run_result import RunResult

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
    simulated_step_ms: float | None = None
    simulated_tpot_ms: float | None = None
    replayed_tpot_ms: float | None = None
    """Time per token in ms of the law with the acceptance and step kinds that the simulation
    counted.
    """


def window_sweep(loaded: Loaded, done: RunResult | None = None) -> list[SweepPoint]:
    """Return a point for each window by law, and what was ``done`` at its window; empty for a
    strategy without ``gamma``.

    The law is taken from 1 to well past both the scenario's window and gamma*, not above
    :data:`MOST` nor what the trace has recorded, for as many requests at a time as decoded together
    in what was done. Windows that the strategy's further settings do not allow are left out.

    A whole window's ``draft_ms`` or ``redraft_ms`` that a scenario states holds for its ``gamma``;
    for further windows it grows in proportion to their internal draft steps.
    """
    if "gamma" not in type(loaded.scenario.strategy).model_fields:
        return []
    requests = loaded.scenario.batch
    if done:
        loaded = loaded.replace(requests=done.scenario.requests)
        requests = evaluate.observed_batch(done.scenario, done.simulated)
    set_window = loaded.scenario.schedule.window
    plain_ms = evaluate.plain_tpot_s(loaded.scenario, requests) * 1e3
    windows = windows_of(loaded, range(1, MOST + 1))
    by_law = (_by_law(window, requests, plain_ms) for _, window in windows)
    points = _to_show(by_law, set_window)
    if done is None:
        return list(points)
    return [_beside(point, done) if point.gamma == set_window else point for point in points]


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


def _by_law(loaded: Loaded, requests: int, baseline_tpot_ms: float) -> SweepPoint:
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    strategy = scenario.schedule
    law = evaluate.law(scenario, acceptance, requests)
    kind = main_kind(law.kinds)
    durations = strategy.durations(scenario.cost, strategy.step(kind, scenario.mean_context))
    named: Mapping[str, float] = durations._asdict()
    overlap_ms = None
    if strategy.traits.hidden_behind:
        overlap_ms = named[strategy.traits.hidden_behind] * 1e3
    point = SweepPoint(
        gamma=strategy.window,
        law_step_ms=law.step_s * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        main_step_ms=float(strategy.step_seconds(durations, kind)) * 1e3,
        draft_ms=named.get("draft", 0.0) * 1e3,
        overlap_ms=overlap_ms,
        baseline_tpot_ms=baseline_tpot_ms,
    )
    serial = serial_drafting(scenario)
    if serial is None:
        return point
    vanilla = evaluate.law(serial, acceptance, requests)
    return replace(
        point, vanilla_step_ms=vanilla.step_s * 1e3, vanilla_tpot_ms=vanilla.tpot_s * 1e3
    )


def _beside(point: SweepPoint, done: RunResult) -> SweepPoint:
    """Return the point of a window with what its run came to."""
    return replace(
        point,
        simulated_step_ms=done.simulated.step_s * 1e3,
        simulated_tpot_ms=done.simulated.tpot_s * 1e3,
        replayed_tpot_ms=done.law_replayed.tpot_s * 1e3,
    )


def at_window(loaded: Loaded, gamma: int, most_requests: int | None = None) -> Loaded:
    """Return the scenario with windows of ``gamma``; stated times of a window grow with it.

    ``most_requests``: so many requests at most, or two full batches where that is more.
    """
    scenario = loaded.scenario
    changed = loaded.change(gamma=gamma)
    updates: PlainData = {}
    if most_requests is not None:
        requests = scenario.requests
        count = min(requests.count, max(most_requests, 2 * requests.concurrency))
        updates["requests"] = requests.model_copy(update={"count": count})
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
    return changed.replace(**updates) if updates else changed
