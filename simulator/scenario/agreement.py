"""What a law claims, what a run shows of the claim, and what the gap between the two is made of.

Where a replay follows the run it prices every step by the law at its real context, so that a law
that claims to be exact has to agree with the simulation to 1e-9. Where several steps are in flight,
or several replicas run, there is none: then the law is taken over the kinds of steps that the run
met, at the least and at the most context that any request had, and a step has to lie between the
two.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ulp
from typing import NamedTuple

from simulator.core.cost.rows import Rows
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.core.strategies.common.claim import Claim
from simulator.core.strategies.common.law import Law
from simulator.core.strategies.common.step import Kind
from simulator.scenario import Scenario
from simulator.scenario.outcome import Outcome
from simulator.scenario.pools import left_out_of_law

TOLERANCE = 1e-9
"""Relative difference up to which two ways to a number are the same."""


def claim_of(scenario: Scenario) -> Claim:
    """Return what the strategy claims of its law in this scenario, for the batch that the scenario
    asks for.
    """
    if words := left_out_of_law(scenario):
        return Claim("idealised", words)
    return scenario.schedule.claim(
        scenario.cost, scenario.batch, scenario.mean_context, {}, scenario.one_lane
    )


@dataclass(frozen=True)
class Agreement:
    """Holds a claim and what one run shows of it; ``shown`` is a sentence."""

    claim: Claim
    shown: str
    gap: float | None
    """Mean step by law over that of the simulation, less one; None where this run cannot show
    it.
    """
    disagreement: bool

    def data(self) -> PlainData:
        """Return the agreement as plain data, for JSON."""
        return {
            "claim": str(self.claim),
            "shown": self.shown,
            "disagreement": self.disagreement,
            "gap": self.gap,
        }


def agreement(scenario: Scenario, law: Law, replay: Outcome, simulated: Outcome) -> Agreement:
    """Return what a run shows of the claim of its law; ``replay`` is the simulation itself where no
    replay follows it.
    """
    claim = _claim_of_run(scenario, law)
    if claim.relation == "idealised":
        return Agreement(claim, "it claims no equality, so no run can break it", None, False)
    gap = _gap_within(scenario, law)
    if gap is not None:
        than = "than its own kinds of step add up to"
        shown = f"DISAGREEMENT: the law's mean step is {_size(gap)} {than}"
        return Agreement(claim, shown, gap, True)
    if replay is not simulated:
        gap = replay.step_s / simulated.step_s - 1.0
        # what the clock tells apart so late, as a share of a step
        clock = 2.0 * ulp(simulated.end_s) / simulated.step_s
        kept = claim.allows(simulated.step_s, replay.step_s, replay.step_s, max(TOLERANCE, clock))
        shown = _shown(claim, gap, kept, "every step at its own context")
        return Agreement(claim, shown, gap, not kept)
    return _without_replay(scenario, claim, simulated)


def _gap_within(scenario: Scenario, law: Law) -> float | None:
    """Return by what share a law's mean step differs from the mean over its own kinds; None where
    the two are the same.

    The steps of a run are priced kind by kind, so that a mean which is taken in another way would
    be held to nothing.
    """
    if not law.kinds:
        return None
    mean_s = mean_step_s(scenario, law.kinds, scenario.mean_context)
    gap = float(law.step_s) / mean_s - 1.0
    if abs(gap) > TOLERANCE:
        return gap
    return None


def _claim_of_run(scenario: Scenario, law: Law) -> Claim:
    """Return the claim about the steps of a run: arrivals vary the batch, which a replay follows;
    jitter it does not, nor what the law leaves out of pools.
    """
    if scenario.cost.jitters or left_out_of_law(scenario):
        return law.claim
    return scenario.schedule.claim(
        scenario.cost, scenario.batch, scenario.mean_context, law.kinds, scenario.one_lane
    )


def _without_replay(scenario: Scenario, claim: Claim, simulated: Outcome) -> Agreement:
    if any(kind.prompts for kind in simulated.kinds):
        shown = "prompts travel in the steps, of which no law speaks, and no replay follows them"
        return Agreement(claim, shown, None, False)
    rows = 0
    for kind, count in simulated.kinds.items():
        rows += count * scenario.schedule.step(kind, 1).rows.tokens
    if claim.exact and rows != simulated.serving.verified_rows:
        shown = (
            "levels are pruned or windows cut, of which no kind of step speaks, and no replay "
            "follows them"
        )
        return Agreement(claim, shown, None, False)
    pairs = list(scenario.requests.lengths(scenario.seed))
    shortest = min(prompt for prompt, _ in pairs)
    longest = max(map(sum, pairs))
    contexts = (shortest, scenario.mean_context, longest)
    steps = [mean_step_s(scenario, simulated.kinds, context) for context in contexts]
    _, at_mean_context, _ = steps
    least = min(steps)
    most = max(steps)
    in_flight = scenario.schedule.needs.in_flight
    if in_flight > 1:
        # with fewer batches in flight a step has less to wait for
        places = scenario.batch * scenario.serving.replicas
        least *= min(1.0, simulated.serving.mean_in_system / places)
        # prompts hold up whatever is behind them
        most *= 1.0 + in_flight / simulated.steps
        most += in_flight * _prompts_s(scenario, pairs) / simulated.steps
    gap = at_mean_context / simulated.step_s - 1.0
    kept = claim.allows(simulated.step_s, least, most, TOLERANCE)
    explained = f"{least * 1e3:.4g} to {most * 1e3:.4g} ms a step"
    span = f"contexts of {shortest:,} to {longest:,} tokens explain {explained}"
    return Agreement(claim, _shown(claim, gap, kept, span), gap, not kept)


def _prompts_s(scenario: Scenario, pairs: Iterable[tuple[int, int]]) -> float:
    """Return the seconds in which all prompts pass through the target, each alone."""
    prompts = Counter(prompt for prompt, _ in pairs)
    seconds = []
    for tokens, count in prompts.items():
        passed = scenario.cost.prefill("target", Rows.prefill(tokens))
        seconds.append(count * passed.wall_s)
    return float(ordered_sum(seconds))


def _shown(claim: Claim, gap: float, kept: bool, how: str) -> str:
    """Return a sentence about a gap, a share of the simulated step."""
    size = "the same within 1e-9"
    if abs(gap) > TOLERANCE:
        size = _size(gap)
    if kept:
        return f"a step by law is {size} ({how}), as claimed"
    return (
        f"DISAGREEMENT: the law claims to be {claim.noun}, and its step is {size} than the "
        f"simulated one ({how})"
    )


def _size(gap: float) -> str:
    percent = f"{abs(gap) * 100:.3g} %"
    if gap > 0:
        return f"{percent} longer"
    return f"{percent} shorter"


def mean_step_s(scenario: Scenario, kinds: Mapping[Kind, float], context: int) -> float:
    """Return the seconds of a step by law at ``context`` tokens, mean over ``kinds`` by their
    counts or shares.
    """
    strategy = scenario.schedule
    cost = scenario.cost
    seconds = []
    for kind, count in kinds.items():
        durations = strategy.durations(cost, strategy.step(kind, context))
        seconds.append(count * float(strategy.step_seconds(durations, kind)))
    return ordered_sum(seconds) / ordered_sum(kinds.values())


# ---- what the gap is made of


class GapPart(NamedTuple):
    """Holds one reason for the gap between law and simulation, switched on after those before
    it.
    """

    reason: str
    tpot_s: float
    """Seconds per token with this reason and all before it taken into account."""
    share: float
    """Part of the whole gap that it explains, as a share; negative where it works against the
    gap.
    """


UNEXPLAINED = "unexplained"
CONTEXTS = 16
"""Contexts at which a law is taken where no replay tells what the steps really met."""


def gap_data(parts: Sequence[GapPart]) -> list[PlainData]:
    """Return parts of a gap as plain data: times in milliseconds, shares of the whole gap in per
    cent.
    """
    return [
        {"reason": part.reason, "tpot_ms": part.tpot_s * 1e3, "share_percent": part.share * 100.0}
        for part in parts
    ]


def explained_gap(
    scenario: Scenario, law: Law, law_replayed: Law, replay: Outcome, simulated: Outcome
) -> tuple[GapPart, ...]:
    """Return what the gap from the law with marginal rates to the simulation is made of, reason by
    reason in a stated order.

    Every reason is measured: the time per token with it, less the time without it. What only law
    and lanes disagree about is called unexplained, unless the claim says what the law leaves out.
    Empty where there is no gap.
    """
    whole = simulated.tpot_s - law.tpot_s
    if abs(whole) <= TOLERANCE * simulated.tpot_s:
        return ()
    parts = []
    before = law.tpot_s
    for reason, tpot_s in _reasons(scenario, law, law_replayed, replay, simulated):
        if abs(tpot_s - before) > TOLERANCE * before or reason == UNEXPLAINED:
            parts.append(GapPart(reason, tpot_s, (tpot_s - before) / whole))
        before = tpot_s
    return tuple(parts)


def _reasons(
    scenario: Scenario, law: Law, law_replayed: Law, replay: Outcome, simulated: Outcome
) -> Iterator[tuple[str, float]]:
    """Reasons in their order, each with the time per token that takes it and all before it into
    account.
    """
    step_s = law.request_step_s
    if step_s is None:
        step_s = law.step_s
    by_law = law_replayed.verified_per_step * law.share_emitted
    yield "acceptance as replayed instead of marginal rates", step_s / by_law
    yield "ends of outputs as met", step_s / law_replayed.tokens_per_step
    yield "mix of step kinds as met", law_replayed.tpot_s
    if replay is not simulated:
        replayed_s = request_step_s(replay) / law_replayed.tokens_per_step
        yield "context that grows from step to step, and prompts in the steps", replayed_s
    elif pure := {kind: count for kind, count in simulated.kinds.items() if not kind.prompts}:
        steps = [mean_step_s(scenario, pure, context) for context in _contexts_met(scenario)]
        mean_s = ordered_sum(steps) / len(steps)
        growth = mean_s / mean_step_s(scenario, pure, scenario.mean_context)
        yield "contexts that the steps met, by law", law_replayed.tpot_s * growth
    steady_s = request_step_s(simulated) / simulated.tokens_per_step
    claim = _claim_of_run(scenario, law)
    yield UNEXPLAINED if claim.exact else f"what the law leaves out ({claim})", steady_s
    yield "admissions between the steps, and the mean taken over requests", simulated.tpot_s


def _contexts_met(scenario: Scenario) -> list[int]:
    """Return ``CONTEXTS`` contexts, in tokens, that stand for equal shares of all output tokens."""
    lengths = list(scenario.requests.lengths(scenario.seed))
    weighted = []
    for prompt, output in lengths:
        weighted.append((prompt + output / 4, output))
        weighted.append((prompt + output * 3 / 4, output))
    weighted.sort()
    passed = list(accumulate(weight for _, weight in weighted))
    contexts = []
    for number in range(CONTEXTS):
        place = bisect_left(passed, (number + 0.5) / CONTEXTS * passed[-1])
        context, _ = weighted[place]
        contexts.append(round(context))
    return contexts


def request_step_s(outcome: Outcome) -> float:
    """Return the seconds of a step as a request meets it, mean over requests and steps: large
    batches count more.
    """
    seconds = ordered_sum(batch * seconds for batch, seconds in outcome.serving.batch_s.items())
    return seconds / _request_steps(outcome)


def _request_steps(outcome: Outcome) -> float:
    """Return how many steps all requests together took part in."""
    return ordered_sum(kind.batch * count for kind, count in outcome.kinds.items())
