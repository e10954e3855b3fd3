"""Evaluate one scenario: law, replay and simulation of the same steps, side by side.

Every number says where it comes from. *Law* is the closed form, once with marginal acceptance rates
and once with the shares that the replay counted; *replay* walks the recorded acceptance and takes
each step's time from the law; *simulation* books lanes on the event engine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from simulator.core.acceptance.sources import Acceptance, Cycle, Odds, odds_of
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.cost.rows import Phase
from simulator.core.faults import Fault, Infeasible
from simulator.core.parallel import STOP, counting, stopping, unheard
from simulator.core.serving.requests import Request
from simulator.core.serving.service import OnIteration, OnRequest, ServiceRun
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.capabilities import Tunable, appendix_of
from simulator.core.strategies.common.claim import Claim
from simulator.core.strategies.common.law import Law, OddsOf
from simulator.core.strategies.common.outputs import Outputs
from simulator.core.strategies.common.step import Kind
from simulator.core.world import Span
from simulator.scenario import Loaded, Scenario
from simulator.scenario.as_served import cache_unit_tokens
from simulator.scenario.cache_cost import CacheCost, TokenTimes, cache_cost
from simulator.scenario.caveats import cautions, caveats
from simulator.scenario.lossy import outputs_change
from simulator.scenario.outcome import Outcome, outcome_of
from simulator.scenario.pools import left_out_of_law, service_of, together
from simulator.scenario.result.closed_loop import closed_loop
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.routing import recorded_routing
from simulator.scenario.stated.means import stated_mean

SPANS = 50_000
"""Busy intervals of each lane that a run keeps for its report."""
NO_DRAFTS = Cycle((0,))
"""Verdicts on the windows of autoregressive decoding, in which nothing is drafted."""


def run(
    loaded: Loaded,
    command: str = "",
    log: OnIteration | None = None,
    finished: OnRequest | None = None,
) -> RunResult:
    """Return law, replay and simulation of a scenario.

    In the simulation ``log`` is called with every iteration, ``finished`` with every request that
    has ended. Once it is asked to stop (:func:`simulator.core.parallel.stoppable`), no more
    requests come, and the result is that of those that came; raises :class:`KeyboardInterrupt`
    where none count.
    """
    loaded = tuned(loaded)
    acceptance = loaded.acceptance()
    simulated, spans = simulate(loaded.scenario, acceptance, SPANS, log, finished)
    STOP.set(())
    scenario = _of_those_that_came(loaded.scenario, simulated)
    stated = stated_mean(scenario, acceptance, simulated.verified_per_step)
    noted = list(caveats(loaded, acceptance))
    warned = [*outputs_change(loaded, acceptance), *cautions(scenario)]
    if stated:
        noted = [*stated.caveats, *noted]
        warned = [*stated.cautions, *warned]
    if scenario is not loaded.scenario:
        came = scenario.requests.count
        asked = loaded.scenario.requests.count
        warned.insert(0, f"stopped early: the first {came:,} of {asked:,} requests")
    replayed = replayed_beside(scenario, acceptance, simulated)
    batch = observed_batch(scenario, simulated)
    of_steps = law(scenario, acceptance, batch)
    counted = law_from(scenario, simulated)
    beside = baseline_beside(scenario, acceptance, simulated)
    return RunResult(
        scenario=scenario,
        command=command,
        law=of_steps,
        law_replayed=counted,
        replay=replayed,
        simulated=simulated,
        odds=acceptance.odds(scenario.schedule.window_for(batch), scenario.exit),
        baseline=beside,
        cache_cost=_cache_cost(scenario, simulated, beside),
        phases=dict(_phases(scenario, simulated.kinds)),
        spans=spans,
        appendix=appendix_of(scenario.schedule, acceptance),
        caveats=tuple(noted),
        cautions=tuple(warned),
        stated=stated,
        closed_loop=closed_loop(scenario, acceptance, of_steps),
        together=_together(scenario, acceptance),
    )


def _together(scenario: Scenario, acceptance: Acceptance) -> Outcome | None:
    """Return the simulation of the same replicas where each reads and decodes; None without pools
    that are alike.
    """
    united = together(scenario)
    if united is None:
        return None
    outcome, _ = simulate(united, acceptance)
    return outcome


def cache_cost_beside(loaded: Loaded, simulated: Outcome) -> CacheCost | None:
    """Return what speculation costs the prefix cache of a run, beside one of plain decoding; None
    where nothing is kept, drafted or decoded.
    """
    loaded = tuned(loaded)
    scenario = loaded.scenario
    if not (simulated.serving.prefix_cache and scenario.schedule.window and simulated.steps):
        return None
    beside = baseline_beside(scenario, loaded.acceptance(), simulated)
    return _cache_cost(scenario, simulated, beside)


def _cache_cost(scenario: Scenario, simulated: Outcome, beside: Outcome) -> CacheCost | None:
    """Return what speculation costs the prefix cache of a run, held to one of plain decoding."""
    return cache_cost(scenario, simulated, beside, _token_times(scenario, simulated))


def _token_times(scenario: Scenario, simulated: Outcome) -> TokenTimes:
    """Return for how long a replica works for an output token of one request, with drafts by what
    was counted, and without; both in the mean batch with drafts.
    """
    batch = observed_batch(scenario, simulated)
    counted_s = float(law_from(scenario, simulated).tpot_s)
    return TokenTimes(counted_s / batch, float(baseline(scenario, batch).tpot_s) / batch)


def _of_those_that_came(scenario: Scenario, simulated: Outcome) -> Scenario:
    """Return the scenario with the requests that came: all, unless the simulation was stopped.

    Raises :class:`KeyboardInterrupt` where none of them counts, all being part of the warm-up.
    """
    requests = scenario.requests
    came = simulated.serving.requests + (simulated.serving.refused or 0)
    if came == requests.count:
        return scenario
    if came <= requests.warm_up:
        raise KeyboardInterrupt
    return scenario.replace(requests=requests.model_copy(update={"count": came, "cool_down": 0}))


def tuned(loaded: Loaded) -> Loaded:
    """Return the scenario with a strategy that has chosen what depends on cost and acceptance
    (windows of most goodput).
    """
    scenario = loaded.scenario
    schedule = scenario.schedule
    if not isinstance(schedule, Tunable):
        return loaded
    odds = odds_of(loaded.acceptance(), scenario.exit)
    strategy = schedule.tuned(scenario.cost, odds, scenario.batch, scenario.mean_context)
    if strategy is schedule:
        return loaded
    return loaded.replace(strategy=strategy)


def simulate(
    scenario: Scenario,
    acceptance: Acceptance,
    spans: int = 0,
    log: OnIteration | None = None,
    finished: OnRequest | None = None,
    prompts_alone: bool = False,
    arrived: OnRequest | None = None,
) -> tuple[Outcome, list[Span]]:
    """Simulate on the event engine; return the outcome and the first ``spans`` busy intervals of
    each lane of replica 1.

    ``log`` is called with every iteration, ``arrived`` with every request that has come, and
    ``finished`` with every one that has ended. With ``prompts_alone`` a run is also of use in which
    prompts are read and nothing is decoded.

    Raises :class:`Infeasible` where nothing that counts takes a step, unless ``prompts_alone``, or
    where a time that the SLO limits occurs in none of it; :class:`BadInput` at the traffic file
    where its requests are prompts alone; :class:`KeyboardInterrupt` where the run was stopped
    before any step.
    """
    traffic = scenario.requests.traffic
    if traffic and scenario.requests.prompts_alone and not prompts_alone:
        message = (
            "holds no request with more than one output token; nothing would be decoded. "
            "specsim plan and specsim capacity say how long its prompts wait"
        )
        raise traffic.fault(0, message)
    with counting("requests", scenario.requests.count) as advance:

        def counted(request: Request) -> None:
            advance()
            if finished:
                finished(request)

        note = finished if advance is unheard else counted
        done = service_of(scenario, acceptance).run(spans, log, note, arrived)
    if not done.tally.steps and not prompts_alone:
        if stopping():
            raise KeyboardInterrupt
        message = (
            "all outputs end with the pass that reads the prompt, so there is no step to time; "
            "ask for longer ones"
        )
        raise Infeasible([Fault((scenario.name, 0, 0), "requests.output_tokens", message)])
    if faults := list(_not_measured(scenario, done, prompts_alone)):
        raise Infeasible(faults)
    return outcome_of(done), done.spans


def _not_measured(scenario: Scenario, done: ServiceRun, prompts_alone: bool) -> Iterator[Fault]:
    """Yield what a run was to measure and could not: times of tokens, and times that the SLO
    limits.
    """
    collector = done.collector
    place = (scenario.name, 0, 0)
    edges = [name for name in ("warm_up", "cool_down") if getattr(scenario.requests, name)]
    remedy = ""
    if edges:
        remedy = "; set " + " and ".join(f"requests.{name}=0" for name in edges)
    if not collector.times["tpot"].total and not prompts_alone:
        message = (
            f"no request that counts ({collector.rule}) takes a step behind its prompt, so "
            "there is no time per token"
        )
        yield Fault(place, "requests", message + remedy)
        return
    if scenario.slo is None:
        return
    if scenario.requests.prompts_alone:
        remedy = "; leave the limit out"
    for metric in dict.fromkeys(limit.metric for limit in scenario.slo.limits):
        if not collector.times[metric].count:
            message = (
                f"nothing of what counts ({collector.rule}; {collector.seconds:.3g} s) has such a "
                f"time, so no limit can be held{remedy}"
            )
            yield Fault(place, f"slo.{metric}_ms", message)


def replay(scenario: Scenario, acceptance: Acceptance) -> Outcome:
    """Return the outcome of walking through the acceptance, each step as long as the law says."""
    return outcome_of(scenario.service(acceptance).replay())


def is_followed(scenario: Scenario) -> bool:
    """Return whether a replay can follow a scenario: one replica, with one step in flight."""
    return scenario.schedule.needs.in_flight == 1 and scenario.serving.copies == 1


def is_plain(scenario: Scenario) -> bool:
    """Return whether a scenario is plain decoding: a step is one pass of the target, which a
    timeline books as the law has it, and no acceptance is asked.
    """
    return bool(scenario.schedule == Autoregressive())


def replayed_beside(scenario: Scenario, acceptance: Acceptance, simulated: Outcome) -> Outcome:
    """Return the replay of a simulated scenario; the simulation itself where no replay can follow
    it.

    That of plain decoding is the simulation without its lanes, to the last bit, unless links
    jitter.
    """
    if not is_followed(scenario):
        return simulated
    if is_plain(scenario) and not scenario.cost.jitters:
        return replace(simulated, busy_s={})
    return replay(scenario, acceptance)


def baseline_beside(scenario: Scenario, acceptance: Acceptance, simulated: Outcome) -> Outcome:
    """Return the simulation of autoregressive decoding beside that of a scenario: the same one,
    where that is plain decoding and no recording says which experts its passes read.
    """
    routing = recorded_routing(scenario.target, scenario.schedule, acceptance)
    if is_plain(scenario) and routing is None:
        return simulated
    outcome, _ = simulate(plain(scenario), NO_DRAFTS)
    return outcome


def observed_batch(scenario: Scenario, outcome: Outcome) -> int:
    """Return how many requests decode together in one replica: all clients of a closed loop
    that never pause, else the mean of a run, rounded, 1 or more.

    That is the mean over steps or, where several steps are in flight, the mean over time of
    requests that do not wait.
    """
    if not scenario.requests.varies:
        return scenario.batch
    serving = outcome.serving
    mean = serving.mean_batch
    if scenario.schedule.needs.in_flight != 1:
        running = serving.mean_in_system - serving.mean_waiting
        mean = running / scenario.serving.decoding
    return max(1, round(mean))


def law(scenario: Scenario, acceptance: Acceptance, requests: int | None = None) -> Law:
    """Return the closed form with marginal acceptance rates, for ``requests`` at a time; None: one
    for every place.
    """
    requests = requests or scenario.batch
    of_batch = _law(scenario, odds_of(acceptance, scenario.exit), None, requests, scenario.outputs)
    if not scenario.requests.varies:
        return of_batch
    what = "sessions" if scenario.requests.sessions else "arrivals"
    words = (
        f"{requests:,} requests in every step, while {what} vary the batch (for one batch: "
        f"{of_batch.relation})"
    )
    return replace(of_batch, claimed=Claim("idealised", words))


def law_from(scenario: Scenario, outcome: Outcome) -> Law:
    """Return the closed form with the acceptance, kinds of step and ends that a run counted.

    What it still misses of the run is not a matter of acceptance. Steps that carried prompts are
    left out, as no law is about them.
    """
    kept = np.zeros(scenario.schedule.window + 1)
    for accepted, count in outcome.accepted.items():
        kept[accepted] += count
    verified = kept.sum()
    shares_kept = np.ones(1)
    if verified:
        shares_kept = kept / verified
    odds = Odds(shares_kept, np.zeros(len(kept)), 0.0, "acceptance and step kinds as replayed")
    pure = {kind: count for kind, count in outcome.kinds.items() if not kind.prompts}
    steps = sum(pure.values())
    shares = {kind: count / steps for kind, count in pure.items()}
    endless = _law(scenario, lambda gamma: odds, shares, observed_batch(scenario, outcome))
    return replace(endless, share_emitted=outcome.share_emitted)


def _law(
    scenario: Scenario,
    odds: OddsOf,
    kinds: Mapping[Kind, float] | None,
    requests: int,
    outputs: Outputs | None = None,
) -> Law:
    """Return the strategy's law at the mean context; it claims no more than to be idealised where
    links jitter, and where steps of pools are not all alike.
    """
    context = scenario.mean_context
    steady = scenario.schedule.law(
        scenario.cost, odds, requests, context, kinds, scenario.one_lane, outputs
    )
    if words := left_out_of_law(scenario):
        return replace(steady, claimed=Claim("idealised", words))
    if not scenario.cost.jitters:
        return steady
    words = f"links take their mean, jitter included (without jitter: {steady.relation})"
    return replace(steady, claimed=Claim("idealised", words))


def plain(scenario: Scenario) -> Scenario:
    """Return the scenario with autoregressive decoding: the same requests on the same target, one
    token a pass, and a prefix cache in the blocks that the engine has without drafts.

    :func:`simulate` it with ``NO_DRAFTS``.
    """
    alone = scenario.replace(strategy=Autoregressive(), acceptance=AcceptanceSpec(always=0))
    memory = scenario.serving.memory
    if not memory.prefix_caching or memory.block_tokens != cache_unit_tokens(scenario):
        return alone
    memory = memory.model_copy(update={"block_tokens": cache_unit_tokens(alone)})
    return alone.replace(serving=alone.serving.model_copy(update={"memory": memory}))


def baseline(scenario: Scenario, requests: int | None = None, context: int | None = None) -> Law:
    """Return the law of autoregressive decoding on the scenario's target, for ``requests`` at a
    time at ``context`` cached tokens each; None: as many as there is room for without drafts,
    halfway through the output.
    """
    unit = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
    tokens = scenario.mean_context if context is None else context
    return Autoregressive().law(
        scenario.cost, lambda gamma: unit, requests or scenario.plain_batch, tokens
    )


def plain_tpot_s(
    scenario: Scenario, requests: int | None = None, context: int | None = None
) -> float:
    """Return the seconds per token of autoregressive decoding that a scenario's are held to, for as
    many ``requests`` at ``context`` cached tokens each; None: those of the scenario.

    Where clients wait, more of them run without drafts: then it is that time over how many more, at
    which both bring as many tokens a second.
    """
    if scenario.waits and requests in (None, scenario.batch):
        plain_law = baseline(scenario, scenario.plain_batch, context)
        return float(plain_law.tpot_s * (scenario.batch / scenario.plain_batch))
    return float(baseline(scenario, requests, context).tpot_s)


def speedup_of(scenario: Scenario, law: Law) -> float:
    """Return the speed-up of a scenario over autoregressive decoding by its law; where clients
    wait, of the tokens a second of all together.
    """
    return plain_tpot_s(scenario) / float(law.tpot_s)


def _phases(
    scenario: Scenario, kinds: Mapping[Kind, int]
) -> Iterator[tuple[Kind, Mapping[str, Phase]]]:
    """Yield each step kind without prompts, most frequent first, with its named phases at the mean
    context.
    """
    schedule = scenario.schedule
    without_prompts = [kind for kind in kinds if not kind.prompts]
    for kind in sorted(without_prompts, key=lambda kind: -kinds[kind]):
        step = schedule.step(kind, scenario.mean_context)
        yield kind, schedule.phases(scenario.cost, step)
