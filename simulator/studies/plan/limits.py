"""Limits of a plan, of all requests or of those of a class, and what a run measured there."""

import re
from typing import NamedTuple

from simulator.core.serving.load.classes import ClassDraw
from simulator.core.serving.requests import Requests
from simulator.core.serving.slo import METRICS, Limit, Slo
from simulator.scenario import Scenario
from simulator.scenario.outcome import Outcome

MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
"""Units of a time."""
TIME = r"\s*(?P<time>\d+\.?\d*|\.\d+)\s*(?P<unit>us|ms|s|min)?\s*"
IN_WORDS = re.compile(
    rf"(?P<metric>{'|'.join(METRICS)})(?P<in_ms>_ms)?[ _]+(?P<percentile>p[\d.]+)"
    rf"\s*(?:<=?|=){TIME}"
)
"""A limit as people write it: ``ttft_ms p95 < 500``, ``tpot p99 <= 40ms``."""


class LimitInWords(NamedTuple):
    """Is a limit that was read: field of an :class:`Slo`, percentile and milliseconds."""

    field: str
    percentile: str
    milliseconds: float


def read_limit(text: str) -> LimitInWords | None:
    """Return a limit as people write it; None for what is none, or has no unit."""
    match = IN_WORDS.fullmatch(text.strip().lower())
    if match is None or bool(match["in_ms"]) == bool(match["unit"]) or not float(match["time"]):
        return None
    limit_ms = _in_ms(match["time"], match["unit"] or "ms")
    return LimitInWords(f"{match['metric']}_ms", match["percentile"], limit_ms)


def milliseconds(text: str) -> float | None:
    """Return a time with its unit (``40ms``) in milliseconds; None for what is none, or 0."""
    match = re.fullmatch(TIME, text)
    if match is None or not match["unit"] or not float(match["time"]):
        return None
    return _in_ms(match["time"], match["unit"])


def _in_ms(time: str, unit: str) -> float:
    """Return a time in milliseconds, to twelve digits."""
    return float(f"{float(time) * MILLISECONDS[unit]:.12g}")


class MeasuredLimit(NamedTuple):
    """Holds a limit of the SLO, what a run measured there (s), and whether that is within the
    limit.
    """

    limit: Limit
    seconds: float
    kept: bool

    @property
    def strain(self) -> float:
        """Return the measured time over its limit; above one where it is missed."""
        return self.seconds / self.limit.seconds


def with_slo_by_class(requests: Requests, slo: Slo) -> Requests:
    """Return requests whose classes have the SLO each, where one has an SLO of its own and they
    have none.
    """
    classes = requests.classes or {}
    if not any(given.slo for given in classes.values()):
        return requests
    held = {}
    for name, given in classes.items():
        held[name] = given if given.slo else given.model_copy(update={"slo": slo})
    return requests.model_copy(update={"classes": held})


def limits_of(scenario: Scenario) -> tuple[Limit, ...]:
    """Return the limits that a scenario is held to: those of every class where classes have some,
    else those of all requests.
    """
    limits: list[Limit] = []
    for name, given in (scenario.requests.classes or {}).items():
        if given.slo:
            limits += [limit._replace(of=name) for limit in given.slo.limits]
    if limits:
        return tuple(limits)
    return scenario.slo.limits if scenario.slo else ()


def measured_limits(scenario: Scenario, outcome: Outcome) -> tuple[MeasuredLimit, ...]:
    """Return what a run measured at each limit that its scenario is held to."""
    limits = limits_of(scenario)
    counted = list(outcome.serving.counted.slo)
    if any(limit.of for limit in limits):
        counted = [found for of_class in outcome.serving.classes for found in of_class.slo]
    measured = []
    for limit, found in zip(limits, counted, strict=True):
        measured.append(MeasuredLimit(limit, found.found_ms / 1e3, found.met))
    return tuple(measured)


class ClassedOutput(NamedTuple):
    """Says of which class a request is, and how many tokens it writes."""

    of: str
    output_tokens: int


def classed_outputs(requests: Requests, seed: int) -> list[ClassedOutput]:
    """Return class and output of every request, in order of arrival; of sessions turn by turn,
    one session after the other. Without classes all are of the class ''.
    """
    if not requests.classes:
        return [ClassedOutput("", output) for _, output in requests.lengths(seed)]
    draw = ClassDraw(requests.classes, seed)
    if requests.sessions is None:
        outputs = [output for _, output in requests.lengths(seed)]
        tasks = requests.tasks()
        return [
            ClassedOutput(draw.class_of(number, next(tasks)), output)
            for number, output in enumerate(outputs)
        ]
    every = []
    for turns in requests.turns(seed):
        for turn in turns:
            every.append(ClassedOutput(draw.class_of(turn.session, ""), turn.output_tokens))
    return every


def limit_name(limit: Limit) -> str:
    """Return a limit by class, metric and percentile, as ``TTFT p90``."""
    return f"{limit.of} {limit.metric.upper()} {limit.percentile}".lstrip()
