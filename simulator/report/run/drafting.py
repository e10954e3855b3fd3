"""Whether drafting is hidden behind the target, in words."""

from simulator.core.strategies.common.step import Kind
from simulator.report.wording import number, share
from simulator.scenario.result.run_result import RunResult
from simulator.studies.window import main_kind


def regime(result: RunResult) -> str:
    """Return half a sentence that compares T_draft to Delta, with times of the cost model at the
    mean context.
    """
    scenario = result.scenario
    traits = result.scenario.schedule.traits
    fullest = max(result.phases, key=lambda kind: (kind.verifying, tuple(kind.detail or ())))
    if "draft_level" in result.phases[fullest]:
        return _level_of_tree(result, fullest)
    phases = result.phases[main_kind(result.phases)]
    if traits.hidden_behind and "draft" in phases:
        draft_ms = phases["draft"].wall_s * 1e3
        delta_ms = phases[traits.hidden_behind].wall_s * 1e3
        if scenario.one_lane:
            return (
                f"T_draft = {number(draft_ms, 3)} ms is not hidden: target and draft share one "
                f"device, so Δ = {number(delta_ms, 3)} ms adds to it"
            )
        slowed = ""
        if scenario.contention > 1.0:
            slowed = (
                f" (before both slow down by {scenario.contention:g} while they share one memory)"
            )
        return f"{_against_delta(draft_ms, delta_ms)}{slowed}{_redrafts(result)}"
    drafted_ms = sum(phases[name].wall_s * 1e3 for name in traits.drafted_in if name in phases)
    if drafted_ms:
        return f"drafting a window takes {number(drafted_ms, 3)} ms and nothing hides it"
    if scenario.schedule.window:
        return "drafting takes no pass of its own"
    return "nothing is drafted"


def _against_delta(draft_ms: float, delta_ms: float) -> str:
    draft = number(draft_ms, 3)
    delta = number(delta_ms, 3)
    if draft_ms <= delta_ms:
        spare = number(delta_ms - draft_ms, 3)
        return f"T_draft = {draft} ms is hidden behind Δ = {delta} ms with {spare} ms to spare"
    exposed = number(draft_ms - delta_ms, 3)
    return f"T_draft = {draft} ms exceeds Δ = {delta} ms, so {exposed} ms of every step are exposed"


def _redrafts(result: RunResult) -> str:
    """Return how many steps draft a window again, and how long that takes; nothing without any."""
    redrafts = [kind for kind, phases in result.phases.items() if "redraft" in phases]
    steps = sum(result.simulated.kinds.get(kind, 0) for kind in redrafts)
    if not steps:
        return ""
    redraft_ms = result.phases[redrafts[0]]["redraft"].wall_s * 1e3
    return (
        f"; {share(steps / result.simulated.steps)} of the steps redraft a window for "
        f"{number(redraft_ms, 3)} ms"
    )


def _level_of_tree(result: RunResult, kind: Kind) -> str:
    """Return whether growing a level of the tree is hidden behind a pipeline step, in words."""
    ms = {name: phase.wall_s * 1e3 for name, phase in result.phases[kind].items()}
    draft_ms = ms["draft_level"]
    step_ms = ms["exchange"] + ms["compute"]
    if draft_ms <= step_ms:
        hidden = f"hidden with {number(step_ms - draft_ms, 3)} ms to spare"
    else:
        hidden = "what it waits for"
    kept = result.simulated.accepted
    hits = kept.get(1, 0) / (sum(kept.values()) or 1)
    point_ms = 0.01 * (result.scenario.stages - 1) * max(draft_ms, step_ms)
    return (
        f"a step of all stages takes {number(ms['compute'], 3)} ms to compute and "
        f"{number(ms['exchange'], 3)} ms to prune and transmit; "
        f"T_draft = {number(draft_ms, 3)} ms for a level is {hidden}; "
        f"{share(hits)} of the tokens were in the tree, of which a point is "
        f"{number(point_ms, 3)} ms a token"
    )
