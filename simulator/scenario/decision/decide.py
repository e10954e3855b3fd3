"""Decide on speculation from what is drawn of its speed-up and from the laws."""

from collections.abc import Sequence

from simulator.core.acceptance.sources import odds_of
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.scenario import Loaded
from simulator.scenario.decision.answer import (
    AcceptanceOrigin,
    Decision,
    FewerTokens,
    Measure,
    Measured,
    Measurement,
    Origin,
    Setting,
    Side,
)
from simulator.scenario.decision.flips import flips, law_at
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Drawn
from simulator.scenario.uncertain.footings import ACCEPTANCE, WORTH_NAMING, Footing

HALF = 0.5
"""Tokens per step by which acceptance may well be lower: means of one method differ by as much
between kinds of text."""
KNOWN = ("measured", "calibrated", "computed")
"""Confidences of stated acceptance that leave nothing to be measured."""


def of_run(
    loaded: Loaded, result: RunResult, speedup: Drawn, doubted: Sequence[Footing], batch: int
) -> Decision | None:
    """Return the decision of a run in which ``batch`` requests decoded together.

    In a closed loop it is of output tokens per second, where those were measured of both.
    """
    throughput = None
    if not result.scenario.requests.varies:
        throughput = result.speedup_with_prompts
    return decide(loaded, speedup, doubted, batch, throughput)


def decide(
    loaded: Loaded,
    speedup: Drawn,
    doubted: Sequence[Footing],
    batch: int,
    throughput: float | None = None,
) -> Decision | None:
    """Return the decision of a tuned scenario; None where nothing is drafted.

    ``speedup``: draws of the time per token of plain decoding over that of speculation, for
    ``batch`` requests that decode together, or where clients wait, of output tokens per second.
    ``throughput``: the speed-up of output tokens per second, where a closed loop was simulated; it
    is as uncertain as the other. ``doubted``: the numbers in doubt, that of the largest effect
    first.
    """
    scenario = loaded.scenario
    if not scenario.schedule.window:
        return None
    odds = odds_of(loaded.acceptance(), scenario.exit)
    context = scenario.mean_context
    tokens = float(law_at(scenario, odds, batch, context).tokens_per_step)
    draws = speedup
    if throughput:
        draws = speedup._replace(value=throughput)
    measure: Measure = "time per token"
    if throughput or scenario.waits:
        measure = "output tokens per second"
    first = Side(measure, draws.value, draws.chance_above(1.0))
    other = None
    if throughput and not scenario.waits:
        other = Side("time per token", speedup.value, speedup.chance_above(1.0))
    ranged = any(footing.parameter == ACCEPTANCE for footing in doubted)
    rests_on = acceptance_origin(scenario.acceptance, ranged)
    return Decision(
        first=first,
        other=other,
        setting=Setting(batch, scenario.schedule.window_for(batch), context, tokens),
        flips=flips(loaded, batch),
        rests_on=rests_on,
        half_a_token_less=_with_fewer(draws, tokens),
        measurement=_measurement(doubted, rests_on, tokens),
    )


def _with_fewer(speedup: Drawn, tokens: float) -> FewerTokens | None:
    """Return what half a token less per step does; no step brings less than plain decoding."""
    if tokens <= 1.0:
        return None
    fewer = max(1.0, tokens - HALF)
    lower = speedup._replace(value=speedup.value * fewer / tokens)
    return FewerTokens(fewer, lower.value, lower.chance_above(1.0))


def acceptance_origin(spec: AcceptanceSpec, drawn: bool = False) -> AcceptanceOrigin:
    """Return where acceptance comes from: a recording of the scenario's own models, numbers that it
    states, or other models. ``drawn``: whether a range of it is part of the chance.
    """
    if spec.trace is None:
        confidence = spec.confidence or "assumed"
        origin: Origin = "borrowed" if confidence == "borrowed" else "stated"
        return AcceptanceOrigin(origin, spec.source or "", confidence, drawn)
    recording = f"{spec.trace}, drafter {spec.drafter}"
    if spec.rescale is None:
        if spec.stand_in:
            return AcceptanceOrigin("borrowed", recording, "borrowed", drawn)
        return AcceptanceOrigin("recorded", recording, "", drawn)
    of = f" of {spec.rescale.window} draft tokens" if spec.rescale.window else ""
    mean = f"{spec.rescale.words} tokens per step{of}, {spec.rescale.source}; bursts of {recording}"
    confidence = spec.rescale.confidence
    if spec.stand_in and confidence not in KNOWN:
        return AcceptanceOrigin("borrowed", mean, confidence, drawn)
    return AcceptanceOrigin("stated", mean, confidence, drawn)


def _measurement(
    doubted: Sequence[Footing], rests_on: AcceptanceOrigin, tokens: float
) -> Measurement | None:
    """Return what to measure: the number in doubt with the largest effect.

    Acceptance that is neither recorded nor measured, and has no range, is taken to be off by half a
    token.
    """
    doubts = list(doubted)
    known = rests_on.origin == "recorded" or rests_on.confidence in KNOWN
    if not rests_on.drawn and not known:
        change = max(min(1.0, tokens), tokens - HALF) / tokens - 1.0
        doubts.append(Footing(ACCEPTANCE, tokens, rests_on.confidence, rests_on.where, change))
    largest = max(doubts, key=lambda footing: abs(footing.change), default=None)
    if largest is None or abs(largest.change) < WORTH_NAMING:
        return None
    what = _measured(largest.parameter)
    return Measurement(what, largest.parameter, largest.confidence, largest.change)


def _measured(parameter: str) -> Measured:
    """Return what to measure for a number, by its place in the scenario."""
    if parameter == ACCEPTANCE:
        return "acceptance"
    role, _, _ = parameter.partition(".")
    if role == "draft" or parameter.startswith("draft:"):
        return "draft"
    over_a_link = ".link." in parameter or parameter.startswith("all-reduce of ")
    if role == "channel" or over_a_link:
        return "link"
    return "step"
