"""Results and laws as plain data, as ``--json`` prints them."""

from collections.abc import Iterator

from simulator.core.acceptance.sources import odds_of
from simulator.core.cost.partition import message_bytes
from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import DerivesNumbers, beam_of, extra_memory
from simulator.core.strategies.common.law import Law
from simulator.core.strategies.common.step import named_durations
from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.agreement import gap_data
from simulator.scenario.caveats import cautions
from simulator.scenario.decision.by_law import DecidedLaw
from simulator.scenario.evaluate import baseline, law, speedup_of
from simulator.scenario.lossy import outputs_change
from simulator.scenario.outcome import outcome_data, stage_memories
from simulator.scenario.result.closed_loop import closed_loop
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.stability import load_of


def result_data(result: RunResult) -> PlainData:
    """Return a result as plain data, as ``run --json`` prints it."""
    simulated = result.simulated
    requests = result.scenario.requests
    target = result.scenario.target
    over_time = [cache.data() for cache in simulated.cache]
    return {
        "scenario": resolved(result.scenario),
        "law": law_data(result.law),
        "law_replayed": law_data(result.law_replayed),
        "agreement": result.agreement.data(),
        **({"gap_parts": gap_data(result.gap_parts)} if result.explain_gap else {}),
        **({"stated_mean": result.stated._asdict()} if result.stated else {}),
        "replay": outcome_data(result.replay),
        "simulated": outcome_data(simulated),
        "baseline": {
            "strategy": "autoregressive",
            "tpot_ms": result.baseline.tpot_s * 1e3,
            "tokens_per_s": result.baseline.tokens_per_s,
        },
        "speedup": result.speedup,
        "intervals": result.intervals,
        "decision": result.decision and result.decision.as_data(),
        **({"together": outcome_data(result.together)} if result.together else {}),
        **({"cache_over_time": over_time} if over_time else {}),
        **({"cache_cost": result.cache_cost._asdict()} if result.cache_cost else {}),
        "bill": result.expenses and result.expenses._asdict(),
        "replications": {name: mean._asdict() for name, mean in result.replications.items()},
        "stages": list(_stage_data(result.scenario)),
        "speedup_with_prompts": result.speedup_with_prompts,
        "extra_weights": target and extra_memory(result.scenario.strategy, target.model).weights,
        "lanes": {name: {"busy_fraction": share} for name, share in result.busy.items()},
        "concurrency": None if requests.arrivals else requests.concurrency,
        **({"closed_loop": result.closed_loop.as_data()} if result.closed_loop else {}),
        "fallback": [],  # in every result, whether or not an appendix has rates
        **(result.appendix.as_data() if result.appendix else {}),
        "notes": [*result.cautions, *result.caveats, *[result.rests_on] * bool(result.rests_on)],
        "provenance": result.provenance(),
    }


def _stage_data(scenario: Scenario) -> Iterator[dict[str, float]]:
    """Yield memory of each stage, and the size of a level's hidden states on their way to the next
    stage (SP-9).
    """
    beam = beam_of(scenario.schedule)
    tokens = beam.width if beam else 1
    for layers, true, printed in stage_memories(scenario):
        message = message_bytes(scenario.target.model, tokens) if scenario.target else 0
        yield {
            "layers": layers,
            "memory_gib": true.gib,
            "memory_as_printed_gib": printed.gib,
            "message_kib": message / 2**10,
            "message_mib": message / 2**20,
        }


def law_data(law: Law) -> PlainData:
    """Return a law as plain data, times in milliseconds."""
    return {
        "step_ms": law.step_s * 1e3,
        "tokens_per_step": law.tokens_per_step,
        "verified_per_step": law.verified_per_step,
        "tpot_ms": law.tpot_s * 1e3,
        "relation": law.relation,
        "source": law.source,
    }


def law_details(loaded: Loaded, decided: DecidedLaw) -> PlainData:
    """Return the law of a scenario with its durations by step kind as plain data, times in
    milliseconds, and what was decided by it.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    marginal = law(scenario, acceptance)
    loop = closed_loop(scenario, acceptance, marginal)
    strategy = scenario.schedule
    load = load_of(scenario, acceptance)
    odds = odds_of(acceptance, scenario.exit)
    kinds = []
    for kind, share in sorted(marginal.kinds.items(), key=lambda entry: -entry[1]):
        step = strategy.step(kind, scenario.mean_context)
        durations = strategy.durations(scenario.cost, step)
        named = dict(named_durations(durations))
        whole = float(strategy.step_seconds(durations, kind)) * 1e3
        if isinstance(strategy, DerivesNumbers):
            derived = dict(strategy.derived(scenario.cost, step, odds))
        else:
            derived = {}
        kinds.append(
            {
                **kind.data(),
                "share": share,
                "step_ms": whole,
                "durations": named,
                "derived": derived,
            }
        )
    autoregressive = baseline(scenario)
    return {
        "scenario": scenario.name,
        "law": law_data(marginal),
        "kinds": kinds,
        "baseline": {"strategy": "autoregressive", "tpot_ms": autoregressive.tpot_s * 1e3},
        "speedup": speedup_of(scenario, marginal),
        "speedup_interval": decided.speedup.interval()._asdict(),
        "intervals": decided.intervals,
        "decision": decided.decision and decided.decision.as_data(),
        **({"closed_loop": loop.as_data() | {"words": loop.words}} if loop else {}),
        "stand_in": scenario.acceptance.stand_in,
        "cautions": [*outputs_change(loaded, acceptance), *cautions(scenario)],
        **(
            {"load": {**load._asdict(), "stable": load.stable, "words": load.words}} if load else {}
        ),
    }
