"""Run one scenario: law, replay and simulation of the same steps, and what they agree on.

Every number says where it comes from. *Law* is the closed form, once with marginal acceptance rates and
once with the shares that the replay counted; *replay* walks the recorded acceptance and takes each
step's time from the law; *simulation* books lanes on the event engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from simulator.acceptance.assignment import TraceAssignment
from simulator.acceptance.sources import Acceptance, Cycle, Odds, Replay, odds_of
from simulator.acceptance.spec import AcceptanceSpec
from simulator.cost.cost import Cost, Phase
from simulator.cost.partition import message_bytes
from simulator.files.schema import provenance
from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.agreement import Agreement, GapPart, agreement, explained_gap, gap_data
from simulator.scenario.caveats import caveats
from simulator.scenario.expenses import Expenses, expenses
from simulator.scenario.outcome import Mean, Outcome, outcome_data, outcome_of
from simulator.scenario.stages import stage_memories
from simulator.serving.collector import MetricsCollector
from simulator.serving.requests import Request, Source
from simulator.serving.router import Fleet
from simulator.serving.scheduler import Iteration, Scheduler
from simulator.strategies.autoregressive import Autoregressive
from simulator.strategies.common.base import Law, OddsOf
from simulator.strategies.common.claim import Claim
from simulator.strategies.common.step import Kind, Lanes
from simulator.strategies.mirror_sd import MirrorSD
from simulator.strategies.mirror_sd.fallback import FallbackRate, fallback_rates
from simulator.world import Span, World

NO_DURATIONS = ("contention", "asynchronous", "levels")
"""Entries among the named durations of a strategy that are something else."""
SPANS = 50_000
"""Spans of each lane that a run keeps for its report."""


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
    """The first of each lane, at most ``SPANS``."""
    fallback: Sequence[FallbackRate]
    """By exit depth and width on the trace; empty without a trace or an early exit."""
    caveats: tuple[str, ...]
    replications: Mapping[str, Mean] = field(default_factory=dict)
    """Metrics over further seeds (:mod:`simulator.scenario.replications`), where these were simulated."""
    seeds: int = 1
    explain_gap: bool = False
    """Reports measure what explains the gap between law and simulation."""

    @property
    def speedup(self) -> float:
        """Simulated time per token against simulated autoregressive decoding on the same target."""
        return self.baseline.tpot_s / self.simulated.tpot_s

    @property
    def speedup_with_prompts(self) -> float:
        """Simulated tokens per second, prompts included, against simulated autoregressive decoding on the same target."""
        return self.simulated.tokens_per_s / self.baseline.tokens_per_s

    @property
    def busy(self) -> dict[str, float]:
        """Busy share of each lane over the whole run."""
        return {lane: seconds / self.simulated.end_s for lane, seconds in sorted(self.simulated.busy_s.items()) if seconds}

    @property
    def expenses(self) -> Expenses | None:
        """What the simulated tokens cost; None without devices."""
        return expenses(self.scenario, self.simulated)

    @property
    def agreement(self) -> Agreement:
        """What the law claims, and what this run shows of it."""
        return agreement(self.scenario, self.law, self.replay, self.simulated)

    @property
    def gap_parts(self) -> tuple[GapPart, ...]:
        """What the gap from the law with marginal rates to the simulation is made of; empty unless ``explain_gap``."""
        if not self.explain_gap:
            return ()
        return explained_gap(self.scenario, self.law, self.law_replayed, self.replay, self.simulated)

    def provenance(self) -> list[dict[str, object]]:
        """Every number with a source that went in."""
        return list(provenance(self.scenario))


def run(
    loaded: Loaded,
    command: str = "",
    log: Callable[[Iteration], object] | None = None,
    finished: Callable[[Request], object] | None = None,
) -> Result:
    """Law, replay and simulation of a scenario; the simulation hands ``log`` each iteration, ``finished`` each request."""
    loaded = tuned(loaded)
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    simulated, spans = simulate(scenario, acceptance, SPANS, log, finished)
    one_at_a_time = scenario.schedule.in_flight == scenario.serving.replicas == 1
    replayed = replay(scenario, acceptance) if one_at_a_time else simulated
    seen = _seen(scenario, simulated)
    marginal = law(scenario, acceptance, seen)
    return Result(
        scenario=scenario,
        command=command,
        law=marginal,
        law_replayed=law_from(scenario, simulated),
        replay=replayed,
        simulated=simulated,
        odds=acceptance.odds(scenario.schedule.window_for(seen), scenario.exit),
        baseline=simulated_baseline(scenario),
        phases=dict(_phases(scenario, simulated.kinds)),
        spans=spans,
        fallback=_fallback(scenario, acceptance),
        caveats=tuple(caveats(loaded, acceptance)),
    )


def tuned(loaded: Loaded) -> Loaded:
    """With a strategy that has worked out what depends on cost and acceptance (the windows of most goodput)."""
    scenario, acceptance = loaded.scenario, loaded.acceptance()
    schedule, most = scenario.schedule, scenario.batch
    found = schedule.tuned(scenario.cost, odds_of(acceptance, scenario.exit), most, scenario.mean_context)
    return loaded if found is schedule else loaded.replace(strategy=found)


def simulate(
    scenario: Scenario,
    acceptance: Acceptance,
    spans: int = 0,
    log: Callable[[Iteration], object] | None = None,
    finished: Callable[[Request], object] | None = None,
) -> tuple[Outcome, list[Span]]:
    """Book every step on the event engine; of each lane of the first replica, so many spans are kept."""
    account = _account(scenario, acceptance, finished)
    worlds, replicas = _fleet(scenario, acceptance, account, spans, log)
    for world, replica in zip(worlds, replicas, strict=True):
        lanes = _lanes(scenario, world)
        for _ in range(scenario.schedule.in_flight):
            world.environment.process(replica.run(world, lanes))
    worlds[0].environment.run()
    busy = [{lane.name: lane.busy_s for lane in world.lanes.values()} for world in worlds]
    return outcome_of(scenario, replicas, account, worlds[0].now, busy), worlds[0].spans


def _fleet(
    scenario: Scenario,
    acceptance: Acceptance,
    account: MetricsCollector,
    spans: int,
    log: Callable[[Iteration], object] | None,
) -> tuple[list[World], list[Scheduler]]:
    """Replicas on one clock, each in a world of its own; of the first, so many spans are kept."""
    count = scenario.serving.replicas
    first = World(spans)
    worlds = [first, *(World(0, first.environment) for _ in range(count - 1))]
    fleet = Fleet(account, scenario.serving.router, first.environment) if count > 1 else None
    cost = scenario.cost.drawn(scenario.seed)
    logs = [log and partial(_numbered, log, number) for number in range(1, count + 1)]
    replicas = [_scheduler(scenario, acceptance, fleet or account, cost, each) for each in logs]
    account.watch(replicas)
    if fleet:
        fleet.open(replicas)
    return worlds, replicas


def _numbered(log: Callable[[Iteration], object], replica: int, one: Iteration) -> None:
    log(one._replace(replica=replica))


def _lanes(scenario: Scenario, world: World) -> Lanes:
    if scenario.contention > 1.0:
        world.share_memory(("target", "draft"), scenario.contention)
    target = world.lane("target")
    draft = target if scenario.one_lane else world.lane("draft")
    stages = scenario.stages if scenario.schedule.staged else 0
    lanes = Lanes(
        target,
        draft,
        world.lane("rendezvous"),
        tuple(world.lane(f"stage {number}") for number in range(1, stages + 1)),
        tuple(world.lane(f"link {number}") for number in range(1, stages)),
    )
    return lanes._replace(line=scenario.schedule.line(scenario.cost, lanes))


def replay(scenario: Scenario, acceptance: Acceptance) -> Outcome:
    """Walk the acceptance and add up what the law says of each step."""
    account = _account(scenario, acceptance)
    scheduler = _scheduler(scenario, acceptance, account, scenario.cost)
    account.watch([scheduler])
    end = scheduler.replay(scenario.one_lane)
    return outcome_of(scenario, [scheduler], account, end, [])


def _seen(scenario: Scenario, outcome: Outcome) -> int:
    """Requests that decode together: those of a closed loop, or of arrivals the mean over the steps of a run.

    Where several steps are in flight, requests in the system that do not wait, mean over time. All in one replica.
    """
    if not scenario.requests.arrivals:
        return scenario.batch
    serving = outcome.serving
    running = (serving.mean_in_system - serving.mean_waiting) / scenario.serving.replicas
    mean = serving.mean_batch if scenario.schedule.in_flight == 1 else running
    return max(1, round(mean))


def law(scenario: Scenario, acceptance: Acceptance, requests: int | None = None) -> Law:
    """The closed form with marginal acceptance rates, for so many requests at a time; None: as many as there are places."""
    requests = requests or scenario.batch
    found = _law(scenario, odds_of(acceptance, scenario.exit), None, requests)
    if not scenario.requests.arrivals:
        return found
    words = f"{requests:,} requests in every step, while arrivals vary the batch (for one batch: {found.relation})"
    return replace(found, claim=Claim("idealised", words))


def law_from(scenario: Scenario, outcome: Outcome) -> Law:
    """The closed form with the acceptance and step kinds of a run: shows what is left to explain.

    Steps that carried prompts are left out; no law speaks of them.
    """
    kept = np.zeros(scenario.schedule.window + 1)
    pure = {kind: count for kind, count in outcome.kinds.items() if not kind.prompts}
    for accepted, count in outcome.accepted.items():
        kept[accepted] += count
    total = kept.sum()
    odds = Odds(kept / total if total else np.ones(1), np.zeros(len(kept)), 0.0, "acceptance and step kinds as replayed")
    steps = sum(pure.values())
    shares = {kind: count / steps for kind, count in pure.items()}
    return _law(scenario, lambda gamma: odds, shares, _seen(scenario, outcome))


def _law(scenario: Scenario, odds: OddsOf, kinds: Mapping[Kind, float] | None, requests: int) -> Law:
    context = scenario.mean_context
    found = scenario.schedule.law(scenario.cost, odds, requests, context, kinds, scenario.one_lane)
    if not scenario.cost.jitters:
        return found
    words = f"links take their mean, jitter included (without jitter: {found.relation})"
    return replace(found, claim=Claim("idealised", words))


def simulated_baseline(scenario: Scenario) -> Outcome:
    """Autoregressive decoding of the scenario's requests on its target."""
    return simulate(plain(scenario), Cycle((0,)))[0]


def plain(scenario: Scenario) -> Scenario:
    """The same requests on the same target, one token a pass."""
    return scenario.replace(strategy=Autoregressive(), acceptance=AcceptanceSpec(always=0))


def baseline(scenario: Scenario) -> Law:
    """Law of autoregressive decoding on the scenario's target."""
    unit = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
    return Autoregressive().law(scenario.cost, lambda gamma: unit, scenario.batch, scenario.mean_context)


def _account(
    scenario: Scenario, acceptance: Acceptance, finished: Callable[[Request], object] | None = None
) -> MetricsCollector:
    requests = scenario.requests
    source = requests.source_of(scenario.seed, TraceAssignment(acceptance, requests.task_flavours))
    return MetricsCollector(source, requests, scenario.slo, finished)


def _scheduler(
    scenario: Scenario,
    acceptance: Acceptance,
    source: Source,
    cost: Cost,
    log: Callable[[Iteration], object] | None = None,
) -> Scheduler:
    return Scheduler(
        scenario.schedule, acceptance, scenario.exit, source, cost, scenario.serving.policy, scenario.memory(), log=log
    )


def _phases(scenario: Scenario, kinds: Mapping[Kind, int]) -> Iterator[tuple[Kind, Mapping[str, Phase]]]:
    """Where the time of each kind of step goes, at the mean context, most frequent kind first; without prompts beside it."""
    pure = [kind for kind in kinds if not kind.prompts]
    for kind in sorted(pure, key=lambda kind: -kinds[kind]):
        yield kind, scenario.schedule.phases(scenario.cost, scenario.schedule.step(kind, scenario.mean_context))


def _fallback(scenario: Scenario, acceptance: Acceptance) -> list[FallbackRate]:
    strategy = scenario.schedule
    if isinstance(acceptance, Replay) and isinstance(strategy, MirrorSD):
        return fallback_rates(acceptance, strategy)
    return []


def summary(result: Result) -> dict[str, Any]:
    """A result as plain data, for ``run --json``."""
    simulated, requests, target = result.simulated, result.scenario.requests, result.scenario.target
    return {
        "scenario": resolved(result.scenario),
        "law": law_data(result.law),
        "law_replayed": law_data(result.law_replayed),
        "agreement": result.agreement.data(),
        **({"gap_parts": gap_data(result.gap_parts)} if result.explain_gap else {}),
        "replay": outcome_data(result.replay),
        "simulated": outcome_data(simulated),
        "baseline": {
            "strategy": "autoregressive",
            "tpot_ms": result.baseline.tpot_s * 1e3,
            "tokens_per_s": result.baseline.tokens_per_s,
        },
        "speedup": result.speedup,
        "bill": result.expenses and result.expenses._asdict(),
        "replications": {name: one._asdict() for name, one in result.replications.items()},
        "stages": list(_stage_data(result.scenario)),
        "speedup_with_prompts": result.speedup_with_prompts,
        "extra_weights": target and result.scenario.strategy.extra_weights(target.model),
        "lanes": {name: {"busy_fraction": share} for name, share in result.busy.items()},
        "concurrency": None if requests.arrivals else requests.concurrency,
        "fallback": [asdict(rate) for rate in result.fallback],
        "notes": list(result.caveats),
        "provenance": result.provenance(),
    }


def _stage_data(scenario: Scenario) -> Iterator[dict[str, float]]:
    """Memory of each stage, and the hidden states of a level on their way to the next one (SP-9)."""
    for layers, true, printed in stage_memories(scenario):
        tokens = getattr(scenario.schedule, "width", 1)
        message = message_bytes(scenario.target.model, tokens) if scenario.target else 0
        yield {"layers": layers, "memory_gib": true.gib, "memory_as_printed_gib": printed.gib,
               "message_kib": message / 2**10, "message_mib": message / 2**20}  # fmt: skip


def law_data(law: Law) -> dict[str, Any]:
    """A law as plain data."""
    return {
        "step_ms": law.step_s * 1e3,
        "tokens_per_step": law.tokens_per_step,
        "tpot_ms": law.tpot_s * 1e3,
        "relation": law.relation,
        "source": law.source,
    }


def law_details(loaded: Loaded) -> dict[str, Any]:
    """The law of a scenario with its durations by step kind, times in milliseconds."""
    scenario = loaded.scenario
    found, strategy = law(scenario, loaded.acceptance()), scenario.schedule
    kinds = []
    for kind, share in sorted(found.kinds.items(), key=lambda item: -item[1]):
        step = strategy.step(kind, scenario.mean_context)
        durations = strategy.durations(scenario.cost, step)
        named = dict(_named(durations))
        whole = float(strategy.step_seconds(durations, kind)) * 1e3
        derived = dict(strategy.derived(scenario.cost, step))
        kinds.append({**kind._asdict(), "share": share, "step_ms": whole, "durations": named, "derived": derived})
    autoregressive = baseline(scenario)
    return {
        "scenario": scenario.name,
        "law": law_data(found),
        "kinds": kinds,
        "baseline": {"strategy": "autoregressive", "tpot_ms": autoregressive.tpot_s * 1e3},
        "speedup": autoregressive.tpot_s / found.tpot_s,
        "stand_in": scenario.acceptance.stand_in,
    }


def _named(durations: Any) -> Iterator[tuple[str, float]]:
    """Named durations in ms; of those of many stages or links, the longest."""
    for name, seconds in durations._asdict().items():
        if name in NO_DURATIONS:
            continue
        if isinstance(seconds, tuple):
            yield f"longest_of_{name}_ms", max(seconds, default=0.0) * 1e3
        else:
            yield f"{name}_ms", seconds * 1e3
