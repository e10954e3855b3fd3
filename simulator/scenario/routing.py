"""Which experts a mixture reads: as recorded, window by window, where a scenario replays recorded
routing; else by law.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import log

from simulator.core.acceptance.routing import RecordedRouting, experts_of, experts_read
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import EVEN, Experts
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers
from simulator.core.quantities import Ranged
from simulator.core.strategies.common.base import Strategy


def routed_as_recorded(target: Placement, trace: Trace) -> Placement:
    """Return a target whose law of routing is fitted to a trace of as many experts; the target
    itself for any other trace.
    """
    experts = target.model.experts
    if experts is None or experts_of(trace) != (experts.routed, experts.per_token):
        return target
    model = target.model.model_copy(update={"experts": _fitted_to(trace, experts)})
    return target.model_copy(update={"model": model})


@lru_cache(maxsize=4)
def _fitted_to(trace: Trace, experts: Experts) -> Experts:
    source = "calibrated-on: the routing of the scenario's trace"
    return fitted_routing(experts, experts_read(trace), source)


def fitted_routing(experts: Experts, read: Mapping[tuple[int, int], float], source: str) -> Experts:
    """Return a mixture with the routing that best gives the experts ``read`` by (rows of a window,
    requests): the least sum of squared logs of (by law / read).
    """
    from scipy.optimize import least_squares

    def made(numbers: Numbers) -> Experts:
        routing = {}
        for name, value in zip(("window_exponent", "popularity"), numbers, strict=True):
            routing[name] = Ranged(value=float(value), source=source, confidence="calibrated")
        return experts.model_copy(update=routing)

    def off(numbers: Numbers) -> list[float]:
        mixture = made(numbers)
        errors = []
        for (window, requests), number in read.items():
            rows = mixture.independent(Rows(window * requests, sequences=requests))
            errors.append(log(mixture.touched(rows) / number))
        return errors

    best = least_squares(off, (0.8, 0.05), bounds=((0.0, EVEN), (1.0, 0.9)))
    return made(best.x)


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
