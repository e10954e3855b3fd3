"""Which experts a mixture reads: as recorded, window by window, where a scenario replays recorded
routing; else by law.
"""

from functools import lru_cache

from simulator.core.acceptance.routing import RecordedRouting, experts_of, experts_read
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import Experts
from simulator.core.cost.placement import Placement
from simulator.core.strategies.common.base import Strategy


def routed_as_recorded(target: Placement, trace: Trace) -> Placement:
    """Return a target whose law of routing is fitted to a trace of as many experts; the target
    itself for any other trace.
    """
    experts = target.model.experts
    if experts is None or experts_of(trace) != (experts.routed, experts.per_token):
        return target
    return target.model_copy(
        update={"model": target.model.model_copy(update={"experts": _fitted(experts, trace)})}
    )


@lru_cache(maxsize=4)
def _fitted(experts: Experts, trace: Trace) -> Experts:
    return experts.fitted(experts_read(trace), "calibrated-on: the routing of the scenario's trace")


def recorded_routing(
    target: Placement | None, schedule: Strategy, acceptance: Acceptance
) -> RecordedRouting | None:
    """Return what the windows of a replay read; None where the law says it (:func:`why_by_law`)."""
    if (
        target is None
        or not isinstance(acceptance, Replay)
        or why_by_law(target, schedule, acceptance)
    ):
        return None
    return RecordedRouting(acceptance)


def why_by_law(target: Placement, schedule: Strategy, acceptance: Acceptance) -> str:
    """Return in words why the law says how many experts are read; empty where a recording does."""
    experts = target.model.experts
    recorded = experts_of(acceptance.trace) if isinstance(acceptance, Replay) else None
    if experts is None or recorded is None:
        return "no recording of routing is replayed"
    if recorded != (experts.routed, experts.per_token):
        wanted = f"{experts.per_token} of {experts.routed}"
        return (
            f"{recorded[1]} of {recorded[0]} experts serve a token in the recording, not {wanted}"
        )
    window = 1 + schedule.window
    is_window = (schedule.needs.rows or window) == window and not schedule.traits.staged
    if is_window:
        return ""
    return "windows are recorded, not trees, nor what fills a pipeline"
