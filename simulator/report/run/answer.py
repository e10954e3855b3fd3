"""What a run answers: time per token and speed-up, how sure they are, and under what conditions."""

from collections.abc import Iterator

from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.plain import PlainMapping
from simulator.core.serving.load.arrivals import Daily, Deterministic, Gamma, Poisson, Recorded
from simulator.core.serving.load.lengths import OutputTokens, PromptTokens
from simulator.core.serving.load.traffic import TrafficFile
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.capabilities import accounting_of
from simulator.report.blocks import Block, Highlight, Paragraph, Strong
from simulator.report.pages import decision as decided
from simulator.report.run.drafting import regime
from simulator.report.run.gaps import agreement_sentence
from simulator.report.run.scaling import scaled
from simulator.report.run.serving import cache_cost, split, tiers_words
from simulator.report.wording import as_sentence, number, percent, whole_share
from simulator.scenario import Scenario
from simulator.scenario.outcome import LimitOutcome
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import DRAWS, SHARE, Interval


def headline(result: RunResult) -> str:
    """Return the answer: whether to switch speculation on, and in one sentence what it brings."""
    return decided.led(result.decision, speed(result))


def speed(result: RunResult) -> str:
    """Return what a run comes to in one sentence."""
    simulated = result.simulated
    baseline = result.baseline
    if result.closed_loop and result.scenario.schedule.window:
        return f"{_of_closed_loop(result)}; {regime(result)}."
    answer = f"{number(simulated.tpot_s * 1e3, 3)} ms per token (simulation)"
    if not result.scenario.schedule.window:
        return f"{answer}."
    slower = "only " if result.speedup < 1.0 else ""
    answer += (
        f", {slower}{result.speedup:.2f} times as fast as autoregressive decoding "
        f"({number(baseline.tpot_s * 1e3, 3)} ms, simulation)"
    )
    if result.scenario.requests.together:
        answer += (
            f"; {number(simulated.tokens_per_s, 3)} tokens per second against "
            f"{number(baseline.tokens_per_s, 3)}, {_with_prompts(result.speedup_with_prompts)}"
        )
    return f"{answer}; {regime(result)}."


def _of_closed_loop(result: RunResult) -> str:
    """Return what all clients together get where some wait, which no time per token shows."""
    simulated = result.simulated
    baseline = result.baseline
    only = "only " if result.speedup < 1.0 else ""
    rates = (
        f"{number(simulated.tokens_per_s, 4)} tokens per second (simulation), "
        f"{only}{result.speedup:.2f} times those of autoregressive decoding "
        f"({number(baseline.tokens_per_s, 4)}, simulation)"
    )
    own_ms = number(simulated.tpot_s * 1e3, 3)
    plain_ms = number(baseline.tpot_s * 1e3, 3)
    return f"{rates}; {own_ms} ms per token for a request that runs, against {plain_ms} ms"


def _with_prompts(speedup: float | None) -> str:
    if speedup is None:
        return "too few to compare"
    return f"{speedup:.2f} times, admissions included"


def highlights(result: RunResult, speedup: Interval | None) -> Iterator[Highlight]:
    """Yield the chance that speculation is faster, the simulated time per token, the speed-up with
    its interval, and the law's time.
    """
    yield from decided.highlights(result.decision)
    simulated_ms = result.simulated.tpot_s * 1e3
    law_ms = result.law.tpot_s * 1e3
    yield Highlight(f"{number(simulated_ms, 3)} ms", "per token, simulation")
    if result.scenario.schedule.window:
        what = _against_baseline(result)
        if speedup:
            within = f"{speedup.low:.2f} to {speedup.high:.2f} ×"
            what += f"; {whole_share(SHARE)} of {DRAWS:,} draws: {within}"
        yield Highlight(f"{result.speedup:.2f} ×", what)
    error = percent((law_ms / simulated_ms - 1) * 100)
    yield Highlight(f"{number(law_ms, 3)} ms", f"per token by law, {error} against the simulation")


def _against_baseline(result: RunResult) -> str:
    """Return what a speed-up is a multiple of, in words."""
    baseline = result.baseline
    if result.closed_loop:
        rate = number(baseline.tokens_per_s, 4)
        return f"the tokens per second of autoregressive decoding ({rate})"
    return f"the speed of autoregressive decoding ({number(baseline.tpot_s * 1e3, 3)} ms)"


def waiting(result: RunResult) -> Iterator[str]:
    """Yield how many clients run and wait for room, and how far the law of waves is from the
    run.
    """
    loop = result.closed_loop
    if loop is None:
        return
    yield loop.words
    law = loop.law
    simulated = result.simulated
    by_law = f"{number(law.tokens_per_s, 4)} tokens per second, TTFT {number(law.ttft_s, 3)} s"
    met = (
        f"{number(simulated.tokens_per_s, 4)} and {number(simulated.ttft_s, 3)} s in this run, "
        "its beginning and its end included"
    )
    yield f"By law of the closed loop: {by_law}; {met}"


def paragraphs(result: RunResult, speedup: Interval | None) -> Iterator[Block]:
    """Yield what stands behind the answer: what is wrong or in doubt with it, and its conditions,
    which come last.
    """
    if result.agreement.disagreement:
        yield Paragraph((Strong(agreement_sentence(result)),))
    for sentence in waiting(result):
        yield Paragraph(as_sentence(sentence))
    replicas = _behind("Replicas", scaled(result))
    tiers = _behind("Tiers of KV memory", tiers_words(result.simulated.serving))
    for sentence in (replicas, split(result), cache_cost(result.cache_cost), tiers):
        if sentence:
            yield Paragraph(sentence)
    for caution in result.cautions:
        yield Paragraph(as_sentence(caution))
    if speedup and result.scenario.schedule.window:
        words = f"{doubt(result.speedup, speedup)}{decided.beside(result.decision)}."
        if result.intervals:
            words += f" {known(result.intervals)}."
        yield Paragraph(words)
    elif result.intervals:
        yield Paragraph(f"{known(result.intervals)}.")
    if result.decision:
        yield decided.reasons(result.decision)
    if result.rests_on:
        yield Paragraph(as_sentence(result.rests_on))
    limits = result.simulated.serving.counted.slo
    if limits:
        yield Paragraph(f"SLO: {', '.join(map(limit, limits))}.")
    yield Paragraph(conditions(result))


def _behind(topic: str, words: str) -> str:
    """Return words behind their topic; empty without any."""
    return f"{topic}: {words}" if words else ""


def doubt(speedup: float, interval: Interval) -> str:
    """Return a speed-up and its interval in words."""
    return (
        f"Speed-up {speedup:.2f}x ({whole_share(SHARE)} interval "
        f"{interval.low:.2f} to {interval.high:.2f})"
    )


NAMED = {"step_ms": "step {} ms", "tpot_ms": "{} ms per token", "tokens_per_s": "{} tokens/s"}
"""How intervals of answers are said beside each other, by name."""


def known(intervals: PlainMapping) -> str:
    """Return between which numbers step, time per token and rate lie, in words."""
    said = []
    for name, words in NAMED.items():
        if name in intervals:
            low, high = intervals[name]["80"].values()
            said.append(words.format(f"{number(low, 3)} to {number(high, 3)}"))
    return f"80 % intervals: {', '.join(said)}"


def limit(limit: LimitOutcome) -> str:
    """Return a limit of the SLO in words, and whether it is met."""
    met = "met" if limit.met else "MISSED"
    return (
        f"{limit.metric.upper()} {limit.percentile} {number(limit.found_ms)} of "
        f"{number(limit.limit_ms)} ms {met}"
    )


def conditions(result: RunResult) -> str:
    """Return in words what a speed-up depends on: acceptance, engines, token accounting, load."""
    scenario = result.scenario
    requests = result.scenario.requests
    load = f"{requests.count:,} requests, {arrivals(requests)}, {sizes(scenario)}"
    return (
        f"Acceptance: {acceptance_source(scenario.acceptance)}. Times: {placements(scenario)}. "
        f"Tokens counted: {counted(scenario)}. Load: {load}."
    )


def origin(spec: AcceptanceSpec) -> str:
    """Return in a word where acceptance comes from: recorded, stand-in, or the confidence of stated
    rates.
    """
    if spec.trace is not None:
        if spec.stand_in:
            return "stand-in"
        return "recorded"
    return spec.confidence or "assumed"


def acceptance_source(spec: AcceptanceSpec) -> str:
    """Return in words where acceptance comes from."""
    if spec.trace is None:
        stated = "stated rates"
        if spec.cycle or spec.always is not None:
            stated = "stated cycle"
        source = f"; source: {spec.source}" if spec.source else ""
        return f"{stated} ({origin(spec)}{source})"
    words = f"trace {spec.trace}"
    if spec.drafter != "draft":
        words += f", drafter {spec.drafter}"
    if spec.stand_in:
        words += " (stand-in from other models)"
    if spec.rescale:
        words += f", re-scaled to {spec.rescale.words} tokens a step"
    return words


def placements(scenario: Scenario) -> str:
    """Return which models run on what, in words."""
    roles = {"target": scenario.target}
    if scenario.schedule.needs.draft_model:
        roles["draft"] = scenario.draft
    placed = []
    for role, place in roles.items():
        if place:
            placed.append(f"{role} {place.model.name} on {place.devices} with {place.engine.name}")
    return "; ".join(placed) or "stated in the scenario, no hardware or engine"


def counted(scenario: Scenario) -> str:
    """Return which tokens count as output: ``verified``, or ``emitted`` where tokens are shown
    before they are checked.
    """
    return accounting_of(scenario.schedule)


def arrivals(requests: Requests) -> str:
    """Return when requests come, in words."""
    when = requests.arrivals
    if requests.sessions is not None:
        return f"turns of sessions, {_sessions_begin(requests)}"
    match when:
        case None:
            return f"{requests.concurrency} at a time"
        case TrafficFile():
            return _traffic(when)
        case Recorded():
            return "as recorded"
        case Gamma():
            return f"{when.rate_per_s:g} a second (gamma with burstiness {when.burstiness:g})"
        case Poisson() | Deterministic() | Daily():
            return f"{when.rate_per_s:g} a second ({when.name})"


def _sessions_begin(requests: Requests) -> str:
    """Return when sessions begin, in words."""
    if requests.arrivals is None:
        clients = f"{requests.concurrency:,} clients"
        if requests.concurrency == 1:
            clients = "one client"
        return f"one session after another of {clients}"
    apart = requests.model_copy(update={"sessions": None})
    return f"which begin {arrivals(apart)}"


def _traffic(traffic: TrafficFile) -> str:
    """Return which part of a traffic file is used, in words."""
    part = ""
    if traffic.from_s or traffic.to_s:
        if traffic.to_s is None:
            end = "its end"
        else:
            end = f"{traffic.to_s:g} s"
        part = f", {traffic.from_s:g} s to {end}"
    rate = ""
    if traffic.rate_scale != 1.0:
        rate = f", at {traffic.rate_scale:g} times its rate"
    return f"from {traffic.file} ({traffic.format}{part}){rate}"


def sizes(scenario: Scenario) -> str:
    """Return how long prompts and outputs are, in words."""
    requests = scenario.requests
    if requests.traffic or requests.sessions:
        prompt, output, longest = scenario.lengths
        return (
            f"{prompt:,.0f} prompt and {output:,.0f} output tokens on average, at most "
            f"{longest:,} together"
        )
    prompts = _length(requests.prompt_tokens)
    outputs = _length(requests.output_tokens)
    return f"{prompts} prompt and {outputs} output tokens each"


def _length(tokens: PromptTokens | OutputTokens) -> str:
    if isinstance(tokens, int):
        return f"{tokens:,}"
    return f"{tokens.least_tokens:,} to {tokens.most_tokens:,} ({tokens.name})"
