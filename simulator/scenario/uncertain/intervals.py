"""Intervals of what a scenario gives: how each answer follows what is not known for certain."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, log, log2, pi, sqrt
from statistics import fmean
from typing import NamedTuple, Self, TypeAlias

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.engine import Engine, EngineErrors
from simulator.core.plain import PlainData
from simulator.core.quantities import nested
from simulator.core.serving.request_times import Times
from simulator.core.serving.service import OnIteration, OnRequest
from simulator.core.strategies.common.base import rows_of_a_request
from simulator.core.strategies.common.law import Law
from simulator.scenario import Loaded, Scenario
from simulator.scenario.decision.decide import of_run
from simulator.scenario.evaluate import baseline, law, observed_batch, run, tuned
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.stated.means import EIGHTY, possible_changes
from simulator.scenario.uncertain.acceptance import acceptance_range
from simulator.scenario.uncertain.devices import by_operation, devices, slowed
from simulator.scenario.uncertain.distance import (
    OUTSIDE,
    farthest,
    fitted_here,
    held_by_fits,
    lone_window,
    outside,
)
from simulator.scenario.uncertain.doubts import doubtful, numbers_of, uneven
from simulator.scenario.uncertain.draws import (
    BY_CONTEXT,
    SHARE_DEVIATIONS,
    Deviates,
    Doubt,
    Drawn,
    Floor,
    Interval,
)
from simulator.scenario.uncertain.footings import footings, largest_in_words
from simulator.scenario.uncertain.links import slower_all_reduces
from simulator.scenario.uncertain.named import named_doubts

FIT = "fit of engine "
"""How the name of what the fit of an engine left begins."""
NO_PART = ("without", "held out")
"""How the names of errors begin that are of runs which took no part in a fit."""
ONE_WINDOW = log(2.0) / EIGHTY
"""What a doubling of a request's rows adds to the log of a step, as a standard deviation, where a
fit saw one window alone: a step may follow its rows fully or not at all, and the fit be at either
end, so that 80 % of the draws lie within one whole doubling.
"""


def run_with_interval(
    loaded: Loaded,
    command: str = "",
    log: OnIteration | None = None,
    finished: OnRequest | None = None,
) -> tuple[RunResult, Interval]:
    """Return the result of :func:`simulator.scenario.evaluate.run` with what it rests on and the
    decision on speculation, and the interval of its speed-up.
    """
    times = Times(finished)
    loaded = tuned(loaded)
    result = run(loaded, command, log, times.note)
    doubted = footings(loaded, every=False)
    batch = observed_batch(result.scenario, result.simulated)
    drawn = intervals(loaded, _answers(result), times.requests, batch)
    speedup = drawn["speedup"]
    result = replace(
        result,
        rests_on=largest_in_words(loaded, doubted),
        doubts=named_doubts(loaded, doubted, batch),
        decision=of_run(loaded, result, speedup, doubted, batch),
        intervals=intervals_data(drawn),
    )
    return result, speedup.interval()


def _answers(result: RunResult) -> dict[str, float]:
    """Return what a run answers, by name: no rate where arrivals or think times decide it."""
    simulated = result.simulated
    answers = {"step_ms": simulated.step_s * 1e3, "tpot_ms": simulated.tpot_s * 1e3}
    if not result.scenario.requests.varies:
        answers["tokens_per_s"] = simulated.tokens_per_s
    return answers | {"speedup": result.speedup}


class Laws(NamedTuple):
    """The law of a scenario, and that of plain decoding of the same requests."""

    own: Law
    plain: Law
    more_running: float = 1.0
    """Requests that run at a time over those of plain decoding, where clients wait for room."""

    def longer(self, own: float = 0.0, plain: float = 0.0) -> Self:
        """Return the laws whose steps take longer, by a log change each."""
        return self._replace(own=_longer(self.own, own), plain=_longer(self.plain, plain))

    def with_tokens(self, change: float) -> Self:
        """Return the laws with more tokens in a step of the scenario, by a log change."""
        tokens = self.own.verified_per_step * exp(change)
        return self._replace(own=replace(self.own, verified_per_step=tokens))


def _longer(law: Law, change: float) -> Law:
    seconds = {"step_s": law.step_s * exp(change)}
    if law.request_step_s is not None:
        seconds["request_step_s"] = law.request_step_s * exp(change)
    return replace(law, **seconds)


def laws_of(scenario: Scenario, acceptance: Acceptance, batch: int | None = None) -> Laws:
    """Return both laws of a scenario, for ``batch`` requests that decode together; None: one for
    every place. Where clients wait, that of plain decoding is of those that it has room for.
    """
    own = law(scenario, acceptance, batch)
    if scenario.waits and batch in (None, scenario.batch):
        plain = baseline(scenario, scenario.plain_batch)
        return Laws(own, plain, scenario.batch / scenario.plain_batch)
    return Laws(own, baseline(scenario, batch))


Quantity: TypeAlias = Callable[[Laws], float]
"""A number above zero that follows from both laws."""


def speedup_by_law(laws: Laws) -> float:
    """Return the time per token of plain decoding over that of the scenario; where clients wait,
    the ratio of the tokens per second of all together.
    """
    return float(laws.plain.tpot_s / laws.own.tpot_s * laws.more_running)


def step_by_law(laws: Laws) -> float:
    """Return the mean time of a step in seconds."""
    return float(laws.own.step_s)


def plain_step_by_law(laws: Laws) -> float:
    """Return the time of a step of plain decoding in seconds, in the same batch."""
    return float(laws.plain.step_s)


def tpot_by_law(laws: Laws) -> float:
    """Return the time per token of a request in seconds."""
    return float(laws.own.tpot_s)


def rate_by_law(laws: Laws) -> float:
    """Return the tokens per second of one of the requests that decode together."""
    return float(1.0 / laws.own.tpot_s)


BY_NAME: Mapping[str, Quantity] = {
    "step_ms": step_by_law,
    "tpot_ms": tpot_by_law,
    "tokens_per_s": rate_by_law,
    "speedup": speedup_by_law,
}
"""What :func:`intervals` knows, by name; rates are of all requests together."""
SHARES = (0.8, 0.9)
"""Shares of the draws that intervals in plain data hold."""


def intervals(
    loaded: Loaded,
    values: Mapping[str, float],
    requests: Sequence[tuple[float, int]] = (),
    batch: int | None = None,
) -> dict[str, Drawn]:
    """Return the draws of several answers of a scenario, named as in :data:`BY_NAME`, each in the
    unit of its value: the same draws for all, so that a speed-up is the ratio of two times.
    """
    quantities = [BY_NAME[name] for name in values]
    doubts = doubts_of(loaded, requests, quantities, batch)
    return drawn_together(values, dict(zip(values, doubts, strict=True)))


def drawn_together(values: Mapping[str, float], doubts: Mapping[str, Doubt]) -> dict[str, Drawn]:
    """Return the draws of several answers by name, from the same deviates."""
    deviates = Deviates()
    return {name: deviates.drawn(value, doubts[name]) for name, value in values.items()}


def values_by_law(loaded: Loaded, batch: int | None = None) -> dict[str, float]:
    """Return what the laws say of a scenario, by name; the rate is of all requests together."""
    scenario = loaded.scenario
    laws = laws_of(scenario, loaded.acceptance(), batch)
    together = scenario.serving.decoding * (batch or scenario.batch)
    if scenario.requests.arrivals is None:
        together = min(together, scenario.requests.concurrency)
    return {
        "step_ms": step_by_law(laws) * 1e3,
        "tpot_ms": tpot_by_law(laws) * 1e3,
        "tokens_per_s": rate_by_law(laws) * together,
        "speedup": speedup_by_law(laws),
    }


def intervals_by_law(loaded: Loaded, batch: int | None = None) -> dict[str, Drawn]:
    """Return the draws of what the laws say of a scenario, as :func:`values_by_law` has it."""
    return intervals(loaded, values_by_law(loaded, batch), batch=batch)


def intervals_data(drawn: Mapping[str, Drawn]) -> PlainData:
    """Return the intervals of some answers as plain data: by name and share in per cent, their low
    and high end.
    """
    data = {}
    for name, number in drawn.items():
        data[name] = {f"{100 * share:.0f}": number.interval(share)._asdict() for share in SHARES}
    return data


def doubt_of(
    loaded: Loaded,
    requests: Sequence[tuple[float, int]],
    quantity: Quantity = speedup_by_law,
    batch: int | None = None,
) -> Doubt:
    """Return how a number follows what is not known for certain, as :func:`doubts_of`."""
    return next(iter(doubts_of(loaded, requests, [quantity], batch)))


def doubts_of(
    loaded: Loaded,
    requests: Sequence[tuple[float, int]],
    quantities: Sequence[Quantity],
    batch: int | None = None,
    tokens_run: float | None = None,
) -> list[Doubt]:
    """Return how each of some numbers follows what is not known for certain, taken from the laws,
    which are as good and much quicker. What is in doubt has the same name in all of them.
    ``batch``: requests that decode together; None: one for every place. ``tokens_run``: tokens of
    a step of a run, where ranges of acceptance are about that; None: those of the law.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    stated = laws_of(scenario, acceptance, batch)
    moved = dict(_moved(loaded, stated, batch))
    at_ends: dict[str, tuple[Laws, Laws]] = {}
    held = held_by_fits(scenario, batch)
    for span in uneven(numbers_of(scenario), scenario):
        if span.number not in held:
            low, high = (span.at(end, loaded).scenario for end in span.ends)
            at_ends[span.name] = (
                laws_of(low, acceptance, batch),
                laws_of(high, acceptance, batch),
            )
    timed = tuple(requests)
    by_acceptance = acceptance_range(loaded, tokens_run)
    tokens_of_step = tokens_run or float(stated.own.verified_per_step)
    possible = possible_changes(scenario, tokens_of_step)
    by_context = _by_context(loaded, stated.own)
    floor = _floor(stated, moved, at_ends)
    doubts = []
    for quantity in quantities:
        change_to = partial(_log_change, quantity, stated)
        changes = {name: change_to(laws) for name, laws in moved.items()} | by_context
        ends = {name: (change_to(low), change_to(high)) for name, (low, high) in at_ends.items()}
        tokens = change_to(stated.with_tokens(1.0))
        under = floor and floor._replace(power=change_to(stated.longer(own=1.0)))
        doubts.append(Doubt(timed, changes, by_acceptance, ends, possible, tokens, under))
    return doubts


def _floor(
    stated: Laws, moved: Mapping[str, Laws], at_ends: Mapping[str, tuple[Laws, Laws]]
) -> Floor | None:
    """Return how long a step takes at least; None where it is less than a pass of the target by
    law, as a beat of a pipeline is.
    """
    longer = log(_step_ratio(stated))
    if longer <= 0.0:
        return None
    change_to = partial(_log_change, _step_ratio, stated)
    changes = {name: change_to(laws) for name, laws in moved.items()}
    ends = {name: (change_to(low), change_to(high)) for name, (low, high) in at_ends.items()}
    return Floor(longer, changes, ends)


def _step_ratio(laws: Laws) -> float:
    """Return the time of a step over that of one of plain decoding."""
    return float(laws.own.step_s / laws.plain.step_s)


def _moved(loaded: Loaded, stated: Laws, batch: int | None) -> Iterator[tuple[str, Laws]]:
    """Yield what is in doubt by its name, with the laws where it is off by one deviation."""
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    at_home = {place.device.name for place in fitted_here(scenario)}
    for device, name, change in by_operation(loaded):
        if device not in at_home:
            yield name, laws_of(change(loaded).scenario, acceptance, batch)
    for name, change in slower_all_reduces(loaded):
        yield name, laws_of(change(loaded).scenario, acceptance, batch)
    whole = devices(scenario)
    for name, change in (*slowed(loaded), *doubtful(loaded, held_by_fits(scenario, batch))):
        if name not in whole:
            yield name, laws_of(change(loaded).scenario, acceptance, batch)
    drafts = scenario.schedule.window > 0
    far = farthest(scenario, batch)
    for engine in nested(scenario, Engine):
        if engine.fit:
            left = left_by(engine.fit)
            yield f"{FIT}{engine.name}", stated.longer(left, 0.0 if drafts else left)
            if drafts:
                yield f"{FIT}{engine.name}, plain", stated.longer(plain=left)
        seen = lone_window(engine)
        if seen is not None:
            by_rows = stated.longer(*beyond_lone_window(scenario, seen))
            yield f"rows of engine {engine.name}", by_rows
            far.pop("rows", None)
    for beyond in outside(far):
        every = beyond.every_pass
        yield f"{beyond.axis} {OUTSIDE}, every pass", stated.longer(every, every)
        if drafts:
            name = f"{beyond.axis} {OUTSIDE}, speculation"
            yield name, stated.longer(beyond.speculation)


def _log_change(quantity: Quantity, before: Laws, after: Laws) -> float:
    return log(quantity(after) / quantity(before))


def _by_context(loaded: Loaded, stated: Law) -> dict[str, float]:
    """Return the log change of the tokens of a step, by one deviation, where acceptance falls with
    the context; empty where nothing is said of that.
    """
    scenario = loaded.scenario
    by_context = scenario.acceptance.by_context
    if not by_context:
        return {}
    falling = by_context.model_copy(update={"fall": "lowest"})
    low = scenario.acceptance.model_copy(update={"by_context": falling})
    lowest = law(scenario, loaded.replace(acceptance=low).acceptance())
    return {BY_CONTEXT: log(stated.tpot_s / lowest.tpot_s) / SHARE_DEVIATIONS}


def beyond_lone_window(scenario: Scenario, seen: int) -> tuple[float, float]:
    """Return the standard deviations of the log of a step, and of one of plain decoding, by how
    many doublings of rows they are away from the one window that a fit saw; negative below it.
    """
    own = log2(rows_of_a_request(scenario.schedule) / seen)
    return ONE_WINDOW * own, ONE_WINDOW * log2(1.0 / seen)


def left_by(fit: EngineErrors) -> float:
    """Return one standard deviation of a time by what the fit of an engine left of runs that took
    no part in it, held out or left out in groups: of normal errors with these mean absolute errors.

    Where all took part, it is what the fit left of its own runs, widened for the numbers
    that these decided (Akaike's final prediction error, as of the cells of papers).
    """
    left = [error for what, error in fit.errors.items() if what.startswith(NO_PART)]
    if not left:
        widened = sqrt((fit.rows + fit.free) / max(1, fit.rows - fit.free))
        left = [widened * fit.errors.get("fitted", 0.0)]
    return sqrt(pi / 2.0) * fmean(left)
