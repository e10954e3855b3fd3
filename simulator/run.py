"""Run one scenario: law, replay and simulation of the same steps, and what they agree on.

Every number says where it comes from. *Law* is the closed form, once with marginal acceptance rates and
once with the shares that the replay counted; *replay* walks the recorded acceptance and takes each
step's time from the law; *simulation* books lanes on the event engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.acceptance import Acceptance, Cycle, Odds, Replay
from simulator.cost import Phase
from simulator.fallback import FallbackRate, fallback_rates
from simulator.scenario import AcceptanceSpec, Loaded, Scenario, resolved
from simulator.schema import provenance
from simulator.serving.closed_loop import ClosedLoop, Tally
from simulator.strategies.autoregressive import Autoregressive
from simulator.strategies.mirror_sd import MirrorSD
from simulator.strategies.protocol import Kind, Lanes, Law, OddsOf
from simulator.world import Span, World


@dataclass(frozen=True)
class Outcome:
    """What a simulation or a replay came to; times in seconds."""

    step_s: float
    """Mean duration of a step."""
    tokens_per_step: float
    """Verified tokens per step and request, those past the end of an output included."""
    tpot_s: float
    """Mean over requests of (E2E - TTFT) / (tokens - 1)."""
    ttft_s: float
    end_s: float
    steps: int
    tokens: int
    kinds: Mapping[Kind, int]
    accepted: Mapping[int, int]
    """Verified windows by accepted draft tokens."""
    missed: int
    """Verified windows whose successor had to be drafted anew."""
    windows: int
    choices: Mapping[str, int]
    """What the strategy decided about its next step, counted; empty where it has no choice."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all requests together, prefill included."""
        return self.tokens / self.end_s

    @property
    def fallback_per_step(self) -> float:
        """Share of verified windows that left the next one off the tree."""
        return self.missed / self.windows if self.windows else 0.0


@dataclass(frozen=True)
class Result:
    """A scenario and everything found out about it."""

    scenario: Scenario
    command: str
    law: Law
    """With marginal acceptance rates."""
    law_replayed: Law
    """With the acceptance and the step kinds that the simulation counted: not a prediction of them."""
    replay: Outcome
    simulated: Outcome
    odds: Odds
    """Of one verified window, from marginal rates."""
    baseline: Outcome
    """Autoregressive decoding of the same requests on the same target, simulated."""
    phases: Mapping[Kind, Mapping[str, Phase]]
    spans: list[Span]
    fallback: Sequence[FallbackRate]
    """By exit depth and width on the trace; empty without a trace or an early exit."""
    notes: tuple[str, ...]

    @property
    def speedup(self) -> float:
        """Simulated time per token against simulated autoregressive decoding on the same target."""
        return self.baseline.tpot_s / self.simulated.tpot_s

    @property
    def busy(self) -> dict[str, float]:
        """Busy share of each lane over the whole run."""
        seconds: dict[str, float] = dict.fromkeys((span.lane for span in self.spans), 0.0)
        for span in self.spans:
            seconds[span.lane] += span.end_s - span.start_s
        return {lane: seconds[lane] / self.simulated.end_s for lane in sorted(seconds)}

    def provenance(self) -> list[dict[str, object]]:
        """Every number with a source that went in."""
        return list(provenance(self.scenario))


def run(loaded: Loaded, command: str = "") -> Result:
    """Law, replay and simulation of a scenario."""
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    simulated, spans = simulate(scenario, acceptance)
    replayed = replay(scenario, acceptance)
    marginal = law(scenario, acceptance)
    return Result(
        scenario=scenario,
        command=command,
        law=marginal,
        law_replayed=law_from(scenario, simulated),
        replay=replayed,
        simulated=simulated,
        odds=acceptance.odds(scenario.schedule.window, scenario.exit),
        baseline=simulated_baseline(scenario),
        phases=dict(_phases(scenario, simulated.kinds)),
        spans=spans,
        fallback=_fallback(scenario, acceptance),
        notes=tuple(_notes(loaded)),
    )


def simulate(scenario: Scenario, acceptance: Acceptance) -> tuple[Outcome, list[Span]]:
    """Book every step on the event engine."""
    world = World()
    if scenario.contention > 1.0:
        world.share_memory(("target", "draft"), scenario.contention)
    target = world.lane("target")
    lanes = Lanes(target, target if scenario.one_lane else world.lane("draft"), world.lane("rendezvous"))
    loop = _loop(scenario, acceptance)
    world.environment.process(loop.run(world, lanes))
    world.environment.run()
    return _outcome(scenario, loop.tally, world.now), world.spans


def replay(scenario: Scenario, acceptance: Acceptance) -> Outcome:
    """Walk the acceptance and add up what the law says of each step."""
    loop = _loop(scenario, acceptance)
    end = loop.replay()
    return _outcome(scenario, loop.tally, end)


def law(scenario: Scenario, acceptance: Acceptance) -> Law:
    """The closed form with marginal acceptance rates."""
    return _law(scenario, lambda gamma: acceptance.odds(gamma, scenario.exit), None)


def law_from(scenario: Scenario, outcome: Outcome) -> Law:
    """The closed form with the acceptance and step kinds of a run: shows what is left to explain."""
    kept = np.zeros(scenario.schedule.window + 1)
    for accepted, count in outcome.accepted.items():
        kept[accepted] += count
    total = kept.sum()
    odds = Odds(kept / total if total else np.ones(1), np.zeros(len(kept)), 0.0, "acceptance and step kinds as replayed")
    return _law(scenario, lambda gamma: odds, {kind: count / outcome.steps for kind, count in outcome.kinds.items()})


def _law(scenario: Scenario, odds: OddsOf, kinds: Mapping[Kind, float] | None) -> Law:
    requests, context = scenario.requests.concurrency, scenario.mean_context
    return scenario.schedule.law(scenario.cost, odds, requests, context, kinds, scenario.one_lane)


def simulated_baseline(scenario: Scenario) -> Outcome:
    """Autoregressive decoding of the scenario's requests on its target."""
    plain = scenario.replace(strategy=Autoregressive(), acceptance=AcceptanceSpec(always=0))
    return simulate(plain, Cycle((0,)))[0]


def baseline(scenario: Scenario) -> Law:
    """Law of autoregressive decoding on the scenario's target."""
    unit = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
    return Autoregressive().law(scenario.cost, lambda gamma: unit, scenario.requests.concurrency, scenario.mean_context)


def _loop(scenario: Scenario, acceptance: Acceptance) -> ClosedLoop:
    return ClosedLoop(scenario.schedule, acceptance, scenario.exit, scenario.requests, scenario.cost)


def _outcome(scenario: Scenario, tally: Tally, end: float) -> Outcome:
    steps = sum(tally.steps.values())
    done = tally.finished
    return Outcome(
        step_s=tally.step_seconds / steps,
        tokens_per_step=tally.committed / tally.request_steps,
        tpot_s=float(np.mean([(r.finished_s - r.first_token_s) / (r.tokens - 1) for r in done])),
        ttft_s=float(np.mean([r.first_token_s - r.admitted_s for r in done])),
        end_s=end,
        steps=steps,
        tokens=sum(r.tokens for r in done),
        kinds=dict(tally.steps),
        accepted=dict(sorted(tally.accepted.items())),
        missed=tally.windows_missed[scenario.schedule.window],
        windows=tally.judged[scenario.schedule.window],
        choices=dict(tally.choices),
    )


def _phases(scenario: Scenario, kinds: Mapping[Kind, int]) -> Iterator[tuple[Kind, Mapping[str, Phase]]]:
    """Where the time of each kind of step goes, at the mean context, most frequent kind first."""
    for kind in sorted(kinds, key=lambda kind: -kinds[kind]):
        rows = scenario.schedule.rows(kind, scenario.mean_context)
        yield kind, scenario.schedule.phases(scenario.cost, kind, rows)


def _fallback(scenario: Scenario, acceptance: Acceptance) -> list[FallbackRate]:
    strategy = scenario.schedule
    if isinstance(acceptance, Replay) and isinstance(strategy, MirrorSD):
        return fallback_rates(acceptance, strategy)
    return []


def _notes(loaded: Loaded) -> Iterator[str]:
    scenario, trace = loaded.scenario, loaded.trace
    relation = scenario.schedule.relation(scenario.contention, scenario.one_lane)
    if relation != "exact":
        yield f"the law is no equality here ({relation})"
    requests = scenario.requests.concurrency
    if requests > 1:
        yield "the law is about steps; what admissions of other requests cost in between is left out of it"
    if scenario.durations and requests > 1:
        yield f"stated durations are taken for the whole batch of {requests}, whatever its size"
    if trace is None:
        return
    if scenario.acceptance.stand_in:
        yield f"acceptance is a stand-in: recorded from {trace.pair}, not from the models of this scenario"
    drafter = scenario.acceptance.drafter
    if drafter != "draft" and scenario.schedule.window:
        priced = scenario.draft.model.name if scenario.draft else "the stated durations"
        yield f"acceptance is that of the drafter '{drafter}'; drafting is priced as {priced}"
    if "replay" in trace.header:
        yield f"replay of this trace: {trace.header['replay']}"
    if scenario.exit:
        used = trace.exit_fractions[trace.nearest_exit(scenario.exit.fraction)]
        if abs(used - scenario.exit.fraction) > 1e-9:
            wanted = scenario.exit.fraction
            yield f"the trace has no exit at {wanted:.3f} of the depth; the recorded one at {used:.3f} stands in"


def summary(result: Result) -> dict[str, Any]:
    """A result as plain data, for ``run --json``."""
    simulated, requests = result.simulated, result.scenario.requests.concurrency
    return {
        "scenario": resolved(result.scenario),
        "law": law_data(result.law),
        "law_replayed": law_data(result.law_replayed),
        "replay": outcome_data(result.replay),
        "simulated": outcome_data(simulated),
        "baseline": {
            "strategy": "autoregressive",
            "tpot_ms": result.baseline.tpot_s * 1e3,
            "tokens_per_s": result.baseline.tokens_per_s,
        },
        "speedup": result.speedup,
        "lanes": {name: {"busy_fraction": share} for name, share in result.busy.items()},
        "concurrency": requests,
        "fallback": [asdict(rate) for rate in result.fallback],
        "notes": list(result.notes),
        "provenance": result.provenance(),
    }


def law_data(law: Law) -> dict[str, Any]:
    """A law as plain data."""
    return {
        "step_ms": law.step_s * 1e3,
        "tokens_per_step": law.tokens_per_step,
        "tpot_ms": law.tpot_s * 1e3,
        "relation": law.relation,
        "source": law.source,
    }


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "step_ms": outcome.step_s * 1e3,
        "tokens_per_step": outcome.tokens_per_step,
        "tpot_ms": outcome.tpot_s * 1e3,
        "tokens_per_s": outcome.tokens_per_s,
        "ttft_ms": outcome.ttft_s * 1e3,
        "steps": outcome.steps,
        "tokens": outcome.tokens,
        "fallback_per_step": outcome.fallback_per_step,
        "choices": dict(outcome.choices),
    }


def law_details(loaded: Loaded) -> dict[str, Any]:
    """The law of a scenario with its durations by step kind, times in milliseconds."""
    scenario = loaded.scenario
    found, strategy = law(scenario, loaded.acceptance()), scenario.schedule
    kinds = []
    for kind, share in sorted(found.kinds.items(), key=lambda item: -item[1]):
        rows = strategy.rows(kind, scenario.mean_context)
        durations = strategy.durations(scenario.cost, kind, rows)
        named = {f"{name}_ms": seconds * 1e3 for name, seconds in durations._asdict().items() if name != "contention"}
        step = float(strategy.step_seconds(durations, kind)) * 1e3
        derived = dict(strategy.derived(scenario.cost, kind, rows))
        kinds.append({**kind._asdict(), "share": share, "step_ms": step, "durations": named, "derived": derived})
    autoregressive = baseline(scenario)
    return {
        "scenario": scenario.name,
        "law": law_data(found),
        "kinds": kinds,
        "baseline": {"strategy": "autoregressive", "tpot_ms": autoregressive.tpot_s * 1e3},
        "speedup": autoregressive.tpot_s / found.tpot_s,
    }
