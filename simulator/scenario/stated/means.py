"""Means that acceptance states: whether they are possible, how far they reach, and whether a run
had them.

They are possible where a step writes 1 to window + 1 tokens, and where statements agree with each
other.
"""

from collections.abc import Iterator, Mapping
from math import log
from statistics import NormalDist
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.faults import Fault
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.strategies.common.adaptive import Adaptive, OracleWindow, RequestWindow
from simulator.core.strategies.common.capabilities import DraftsChain
from simulator.inputs.document import Document
from simulator.scenario.fields import Scenario

AGREES = 0.01
"""Share of a mean by which it may lie outside of what is stated to hold it: rates and means are
rounded.
"""
EIGHTY = NormalDist().inv_cdf(0.9)
"""Standard deviations from the middle of an interval of 80 % to its end."""
CLOSE = 0.01
"""Share of a stated mean by which a run may miss it without a word."""


def moving_rule(scenario: Scenario) -> PlainData | None:
    """Return the rule by which the strategy's windows follow each request, as a file states it;
    None where they do not.

    An oracle's windows are kept as a fixed one is.
    """
    schedule = scenario.schedule
    rule = schedule.chain_rule if isinstance(schedule, DraftsChain) else None
    if not isinstance(rule, RequestWindow) or isinstance(rule, OracleWindow):
        return None
    return rule.model_dump(mode="json")


def stated_rule(stated: PlainMapping | None, document: Document) -> RequestWindow | None:
    """Return the rule with which a mean was measured; raises :class:`BadInput` for one that follows
    no request.
    """
    if stated is None:
        return None
    try:
        rule = TypeAdapter(Adaptive).validate_python(stated)
    except ValidationError as error:
        raise document.refusal(("acceptance", "adaptive"), str(error.errors()[0]["msg"])) from error
    if isinstance(rule, RequestWindow):
        return rule
    raise document.refusal(
        ("acceptance", "adaptive"), f"expected a rule that follows each request, got {rule.name}"
    )


class StatedMean(NamedTuple):
    """The mean tokens a step that acceptance states, and that of the requests that ran; correction
    or bonus included.

    A step in which an output ends counts in full.
    """

    stated: float
    window: int
    """Draft tokens at most with which the mean is stated."""
    run: float
    run_window: int
    """Draft tokens at most with which the requests ran."""
    requests: int

    @property
    def cautions(self) -> tuple[str, ...]:
        """Return in words that a run missed the mean at its own window; nothing where it did
        not.
        """
        if self.window != self.run_window or abs(self.run / self.stated - 1.0) <= CLOSE:
            return ()
        if self.requests == 1:
            ran = "this request"
        else:
            ran = f"these {self.requests:,} requests"
        return (f"acceptance states {self.stated:.3g} tokens a step, {ran} ran {self.run:.3g}",)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return in words that the mean was stated for another window; nothing where it was not."""
        if self.window == self.run_window:
            return ()
        stated = f"{self.stated:.3g} tokens a step are stated for a window of {self.window:,}"
        return (f"{stated}; with {self.run_window:,} here the requests ran {self.run:.3g}",)


def stated_mean(scenario: Scenario, acceptance: Acceptance, run: float) -> StatedMean | None:
    """Return the stated mean beside the tokens of a step that a ``run`` counted; None where none is
    stated.
    """
    mean = scenario.acceptance.rescale
    if mean is None or mean.window is None or scenario.acceptance.by_context:
        return None
    stated = mean.tokens_per_step
    if isinstance(stated, dict):
        weights = acceptance.weights if isinstance(acceptance, Replay) else None
        if not weights:
            return None
        steps = ordered_sum(tokens / stated[name] for name, tokens in weights.items())
        stated = ordered_sum(weights.values()) / steps
    return StatedMean(stated, mean.window, run, scenario.schedule.window, scenario.requests.count)


def range_window(scenario: Scenario) -> int:
    """Return the window, in draft tokens, at which ``tokens_per_step_between`` is stated.

    By default that is the strategy's; no shorter one than positions are stated for.
    """
    spec = scenario.acceptance
    measured = spec.window or (spec.rescale.window if spec.rescale else None)
    return measured or max(scenario.schedule.window, len(spec.per_position or spec.lengths or ()))


def impossible_means(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield means that no window allows, and those that contradict each other."""
    spec = scenario.acceptance
    if not scenario.schedule.window:
        return
    if spec.tokens_per_step_between:
        yield from _impossible_range(scenario, document, *spec.tokens_per_step_between)
    if spec.by_context and not scenario.schedule.traits.staged:  # which reads no lengths
        window = spec.by_context.window or scenario.schedule.window
        for context, mean in spec.by_context.tokens_per_step.items():
            if mean > window + 1:
                place = ("acceptance", "by_context", "tokens_per_step")
                if spec.by_context.window:
                    where = ""
                else:
                    where = "; if it was measured with another, state by_context.window"
                yield document.fault(
                    place, f"{mean:g} at {context:,} tokens cannot be: {_bounds(window)}{where}"
                )


def _impossible_range(
    scenario: Scenario, document: Document, low: float, high: float
) -> Iterator[Fault]:
    window = range_window(scenario)
    place = ("acceptance", "tokens_per_step_between")
    if high > window + 1:
        yield document.fault(
            place, f"{low:g} to {high:g} cannot be: {_bounds(window)}; expected ends within that"
        )
        return
    for name, mean in _stated_means(scenario, window).items():
        if not low * (1.0 - AGREES) <= mean <= high * (1.0 + AGREES):
            found = f"by {name} a step writes {mean:.3g} tokens at window {window}"
            yield document.fault(
                place,
                f"{found}, which is not within {low:g} to {high:g}; state one of the two otherwise",
            )


def _bounds(window: int) -> str:
    return f"with a window of {window} draft tokens a step writes 1 to {window + 1}"


def _stated_means(scenario: Scenario, window: int) -> Mapping[str, float]:
    """Return the mean tokens a step at ``window`` that acceptance states, by what states it; none
    of a recording as it is.
    """
    spec = scenario.acceptance
    if spec.rescale:
        means = spec.rescale.tokens_per_step
        if isinstance(means, dict):
            inside = min(max(min(means.values()), _low(spec)), max(means.values()))
            return {"the means of the kinds of text": inside}
        if spec.rescale.window in (None, window):
            return {"acceptance.tokens_per_step": means}
        return {}
    if spec.trace is not None or scenario.schedule.traits.staged:
        return {}
    source = scenario.schedule.reads(spec.verdicts(None, scenario.seed))
    odds = source.odds(window, scenario.exit)
    if odds.unmatched == 1.0:  # a range of acceptance says nothing of steps that propose nothing
        return {}
    mean = odds.unmatched + (1.0 - odds.unmatched) * float(odds.committed())
    named = next(
        name
        for name in ("rate", "per_position", "lengths", "always", "cycle")
        if getattr(spec, name) is not None
    )
    return {f"acceptance.{named}": mean}


def _low(spec: AcceptanceSpec) -> float:
    return (spec.tokens_per_step_between or (1.0, 1.0))[0]


def stated_range(
    scenario: Scenario, tokens: float, at_window: float, deviations: float
) -> tuple[float, float]:
    """Return the log changes of ``tokens`` a step, as they run, to both ends of what is stated or
    continued; 0 without a range.

    ``at_window``: tokens a step at the window for which a range is stated. ``deviations``: standard
    deviations from the middle to the ends that are returned. No end is beyond 1 or the window + 1.
    """
    spec = scenario.acceptance
    window = scenario.schedule.window
    ends = [0.0]
    elsewhere = range_window(scenario) != window and at_window > 1.0
    of_accepted = (tokens - 1.0) / (at_window - 1.0) if elsewhere else 1.0
    ends += [
        log((1.0 + (end - 1.0) * of_accepted) / tokens)
        for end in spec.tokens_per_step_between or ()
    ]
    if window and (further := spec.continuation(window)):
        ends += [
            log(end / further.length) * deviations / EIGHTY for end in (further.low, further.high)
        ]
    least, most = possible_changes(scenario, tokens)
    return max(least, min(ends)), min(most, max(ends))


def possible_changes(scenario: Scenario, tokens: float) -> tuple[float, float]:
    """Return the log changes of ``tokens`` a step down to 1 and up to the window + 1."""
    return min(0.0, -log(tokens)), max(0.0, log((scenario.schedule.window + 1) / tokens))
