"""Numbers and sentences of a run's report, the same on a terminal and on a page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import NamedTuple

from simulator.acceptance.spec import AcceptanceSpec
from simulator.report.blocks import Highlight
from simulator.scenario import Scenario
from simulator.scenario.run import RunResult
from simulator.scenario.uncertainty import SHARE, Interval
from simulator.serving.lengths import Lengths
from simulator.serving.requests import Requests
from simulator.strategies.common.capabilities import LosesWindows
from simulator.strategies.common.step import Kind
from simulator.strategies.common.studied import SharedBudget
from simulator.studies.window import main_kind


class Column(NamedTuple):
    """A column of the table of answers: its origin, mean step in ms, tokens per step, ms per token."""

    origin: str
    step_ms: float
    tokens_per_step: float
    tpot_ms: float


@dataclass(frozen=True)
class Gap:
    """The difference of two columns in per cent of the first, and what it may come from."""

    title: str
    percent: float
    why: str
    """Reasons that there may be; ``run --explain-gap`` measures what each of them explains."""
    parts: tuple[tuple[str, float], ...]
    """Names and sizes in per cent of the factors that multiply to the whole difference."""


def number(value: float, significant: int = 4) -> str:
    """Return a number as text with ``significant`` digits, at most three behind the point."""
    if value == 0.0:
        return "0"
    if abs(value) < 0.0005:
        return "<0.001" if value > 0 else ">-0.001"
    digits = min(3, max(0, significant - 1 - floor(log10(abs(value)))))
    return f"{value:,.{digits}f}"


def percent(value: float) -> str:
    """Return a number of per cent as signed text with two digits behind the point."""
    text = f"{value:+.2f} %"
    return text if text not in ("+0.00 %", "-0.00 %") else "0.00 %"


def share(value: float) -> str:
    """Return a share of one as per cent with one digit behind the point."""
    return f"{value * 100:.1f} %"


def signed_share(value: float) -> str:
    """Return a share of one as signed per cent with one digit behind the point."""
    return f"{value * 100:+.1f} %"


def short_names(names: Sequence[str]) -> list[str]:
    """Return names of scenarios without the words that all of them begin or end with, for a figure or a table."""
    if len(names) < 2:
        return list(names)
    words = [name.split("_") for name in names]
    while _same_first(words):
        words = [parts[1:] for parts in words]
    while _same_first([parts[::-1] for parts in words]):
        words = [parts[:-1] for parts in words]
    return ["_".join(parts) for parts in words]


def _same_first(words: Sequence[Sequence[str]]) -> bool:
    """Whether all names begin with the same word and have more of them."""
    return all(len(parts) > 1 and parts[0] == words[0][0] for parts in words)


def columns(result: RunResult) -> list[Column]:
    """Return law (marginal), law (replayed), replay and simulation, in this order."""
    laws = (("law, marginal rates", result.law), ("law, replayed means", result.law_replayed))
    runs = (("replay", result.replay), ("simulation", result.simulated))
    answers = (*laws, *runs)
    return [Column(name, answer.step_s * 1e3, answer.tokens_per_step, answer.tpot_s * 1e3) for name, answer in answers]


def overlap(result: RunResult) -> tuple[float, float] | None:
    """Return T_draft and Delta of the main step kind in seconds; None where nothing overlaps."""
    parts = result.phases[main_kind(result.phases)]
    cover = result.scenario.schedule.traits.hidden_behind
    return (parts["draft"].wall_s, parts[cover].wall_s) if cover and "draft" in parts else None


def regime(result: RunResult) -> str:
    """Return half a sentence that compares T_draft to Delta, with times of the cost model at the mean context."""
    scenario = result.scenario
    pair = overlap(result)
    if level := _level_of_tree(result):
        return level
    if pair is None:
        parts = result.phases[main_kind(result.phases)]
        drafted = [parts[name].wall_s for name in scenario.schedule.traits.drafted_in if name in parts]
        if not drafted:
            drafts = scenario.schedule.window > 0
            return "drafting takes no pass of its own" if drafts else "nothing is drafted"
        return f"drafting a window takes {number(sum(drafted) * 1e3, 3)} ms and nothing hides it"
    draft, delta = (seconds * 1e3 for seconds in pair)
    stands = f"T_draft = {number(draft, 3)} ms"
    if scenario.one_lane:
        return f"{stands} is not hidden: target and draft share one device, so Δ = {number(delta, 3)} ms adds to it"
    if draft <= delta:
        text = f"{stands} is hidden behind Δ = {number(delta, 3)} ms with {number(delta - draft, 3)} ms to spare"
    else:
        text = f"{stands} exceeds Δ = {number(delta, 3)} ms, so {number(draft - delta, 3)} ms of every step are exposed"
    if scenario.contention > 1.0:
        text += f" (before both slow down by {scenario.contention:g} while they share one memory)"
    return text + _serial_redrafts(result)


def _level_of_tree(result: RunResult) -> str | None:
    """Return whether growing a level of the tree is hidden behind a pipeline step, in words; None where no tree is grown."""
    full = max(result.phases, key=lambda kind: (kind.verifying, tuple(kind.detail or ())))
    parts = {name: phase.wall_s * 1e3 for name, phase in result.phases[full].items()}
    if "draft_level" not in parts:
        return None
    draft, cover = parts["draft_level"], parts["exchange"] + parts["compute"]
    hidden = f"hidden with {number(cover - draft, 3)} ms to spare" if draft <= cover else "what it waits for"
    kept, point = result.simulated.accepted, 0.01 * (result.scenario.stages - 1) * max(draft, cover)
    hit = share(kept.get(1, 0) / (sum(kept.values()) or 1))
    hits = f"{hit} of the tokens were in the tree, of which a point is {number(point, 3)} ms a token"
    return (
        f"a step of all stages takes {number(parts['compute'], 3)} ms to compute and {number(parts['exchange'], 3)} ms "
        f"to prune and transmit; T_draft = {number(draft, 3)} ms for a level is {hidden}; {hits}"
    )


def _serial_redrafts(result: RunResult) -> str:
    """Return how often Eq. 10 (Mirror-SD) is not the whole step, because a window had to be drafted first."""
    lost = {kind: parts["redraft"] for kind, parts in result.phases.items() if "redraft" in parts}
    steps = sum(result.simulated.kinds.get(kind, 0) for kind in lost)
    if not steps:
        return ""
    wall = next(iter(lost.values())).wall_s * 1e3
    return f"; {share(steps / result.simulated.steps)} of the steps redraft a window for {number(wall, 3)} ms"


def headline(result: RunResult) -> str:
    """Return the answer in one sentence."""
    tpot, baseline = number(result.simulated.tpot_s * 1e3, 3), number(result.baseline.tpot_s * 1e3, 3)
    if not result.scenario.schedule.window:
        return f"{tpot} ms per token (simulation)."
    speed = result.speedup
    verdict = f"{speed:.2f} times as fast as" if speed >= 1.0 else f"only {speed:.2f} times as fast as"
    rate = ""
    if result.scenario.requests.together:
        rates = number(result.simulated.tokens_per_s, 3), number(result.baseline.tokens_per_s, 3)
        share_of = result.simulated.tokens_per_s / result.baseline.tokens_per_s
        rate = f"; {rates[0]} tokens per second against {rates[1]}, {share_of:.2f} times, admissions included"
    answer = f"{tpot} ms per token (simulation), {verdict} autoregressive decoding ({baseline} ms, simulation){rate}"
    return f"{answer}; {regime(result)}."


def doubt(speedup: Interval) -> str:
    """Return the interval of a speed-up in words, and which draws it covers."""
    return f"speed-up within {speedup.low:.2f} to {speedup.high:.2f} ({SHARE:.0%} of draws of requests and of devices)"


def highlights(result: RunResult, speedup: Interval | None) -> list[Highlight]:
    """Return the numbers of the answer, for the head of a page."""
    simulated, law, baseline = (answer.tpot_s * 1e3 for answer in (result.simulated, result.law, result.baseline))
    numbers = [Highlight(f"{number(simulated, 3)} ms", "per token, simulation")]
    if result.scenario.schedule.window:
        numbers.append(Highlight(f"{result.speedup:.2f} ×", f"the speed of autoregressive decoding ({number(baseline, 3)} ms)"))
    if speedup and result.scenario.schedule.window:
        numbers.append(Highlight(f"{speedup.low:.2f} to {speedup.high:.2f} ×", f"{SHARE:.0%} interval of that speed-up"))
    off = percent((law / simulated - 1) * 100)
    return [*numbers, Highlight(f"{number(law, 3)} ms", f"per token by law, {off} against the simulation")]


def origin(spec: AcceptanceSpec) -> str:
    """Return in a word where acceptance comes from: recorded, stand-in, or the confidence of stated rates."""
    if spec.trace is not None:
        return "stand-in" if spec.stand_in else "recorded"
    return spec.confidence or "assumed"


def conditions(result: RunResult) -> str:
    """Return in words what a speed-up depends on: acceptance, engines, token accounting, load."""
    scenario, requests = result.scenario, result.scenario.requests
    roles = {"target": scenario.target, "draft": scenario.draft if scenario.schedule.needs.draft_model else None}
    hardware = [
        f"{role} {placed.model.name} on {placed.devices} with {placed.engine.name}" for role, placed in roles.items() if placed
    ]
    times = "; ".join(hardware) or "stated in the scenario, no hardware or engine"
    return (
        f"Acceptance: {_acceptance_source(scenario.acceptance)}. Times: {times}. "
        f"Tokens counted: {counted(scenario)}. Load: {requests.count:,} requests, {_arrivals(requests)}, {_sizes(scenario)}."
    )


def _acceptance_source(spec: AcceptanceSpec) -> str:
    """Return the trace or the stated rates that acceptance comes from, in words."""
    if spec.trace is None:
        kind = "stated cycle" if spec.cycle or spec.always is not None else "stated rates"
        source = f"; source: {spec.source}" if spec.source else ""
        return f"{kind} ({origin(spec)}{source})"
    drafter = f", drafter {spec.drafter}" if spec.drafter != "draft" else ""
    words = f"trace {spec.trace}{drafter}" + (" (stand-in from other models)" if spec.stand_in else "")
    return words + (f", re-scaled to {spec.rescale.tokens_per_step:g} tokens a step" if spec.rescale else "")


def _arrivals(requests: Requests) -> str:
    """Return in words when requests arrive."""
    arrivals = requests.arrivals
    if arrivals is None:
        return f"{requests.concurrency} at a time"
    if arrivals.name == "file":
        end = "its end" if arrivals.to_s is None else f"{arrivals.to_s:g} s"
        piece = f", {arrivals.from_s:g} s to {end}" if arrivals.from_s or arrivals.to_s else ""
        rate = f", at {arrivals.rate_scale:g} times its rate" if arrivals.rate_scale != 1.0 else ""
        return f"from {arrivals.file} ({arrivals.format}{piece}){rate}"
    shape = f" with burstiness {arrivals.burstiness:g}" if arrivals.name == "gamma" else ""
    return f"{arrivals.rate_per_s:g} a second ({arrivals.name}{shape})"


def _sizes(scenario: Scenario) -> str:
    """Return the tokens of a prompt and of an output, in words."""
    requests = scenario.requests
    if requests.traffic:
        prompt, output, longest = scenario.lengths
        return f"{prompt:,.0f} prompt and {output:,.0f} output tokens on average, at most {longest:,} together"
    return f"{_lengths(requests.prompt_tokens)} prompt and {_lengths(requests.output_tokens)} output tokens each"


def _lengths(tokens: int | Lengths) -> str:
    if isinstance(tokens, int):
        return f"{tokens:,}"
    return f"{tokens.least_tokens:,} to {tokens.most_tokens:,} ({tokens.name})"


def gaps(result: RunResult) -> list[Gap]:
    """Return two gaps: from the law with marginal rates to the law with replayed means, and from there to the simulation."""
    law, means, simulated = result.law, result.law_replayed, result.simulated

    def change(new: float, old: float) -> float:
        return (new / old - 1.0) * 100.0

    steady = simulated.step_s / simulated.tokens_per_step
    return [
        Gap(
            "Gap 1: law with marginal rates to law with replayed means",
            change(means.tpot_s, law.tpot_s),
            _why_first(result),
            (
                ("tokens per step", change(law.tokens_per_step, means.tokens_per_step)),
                ("mix of step kinds", change(means.step_s, law.step_s)),
            ),
        ),
        Gap(
            "Gap 2: law with replayed means to simulation",
            change(simulated.tpot_s, means.tpot_s),
            _why_second(result),
            (
                ("mean step and tokens of a step", change(steady, means.tpot_s)),
                ("admissions and end of output", change(simulated.tpot_s, steady)),
            ),
        ),
    ]


def _why_first(result: RunResult) -> str:
    spec, windows = result.scenario.acceptance, result.simulated.windows
    if not result.scenario.schedule.window:
        return "nothing is drafted, so acceptance plays no part"
    if result.odds.source.startswith("marginal run lengths"):
        return "averaged over all starts, long runs count at each of their positions, and decoding jumps over them"
    if result.odds.source.startswith("marginal hits"):
        return (
            "a token that was in the tree still comes late where pruning left a gap before its level: partial refills, "
            "which the share of hits does not count; and every request finds an empty pipeline"
        )
    if spec.trace is not None:
        return (
            "acceptance comes in bursts and flavours differ, so the positions that decoding visits keep another share "
            "than all recorded positions, which the marginal rate averages"
        )
    if spec.cycle or spec.always is not None:
        return "the cycle is cut where an output ends; over whole cycles both are the same"
    chance = f"positions are independent here, so what is left is chance over {windows:,} windows"
    return f"{chance}, and the pipeline that every request finds empty" if result.scenario.schedule.traits.staged else chance


def _why_second(result: RunResult) -> str:
    """Return what may explain this gap; where the law breaks its claim that is said alone, as nothing else is known then."""
    if result.agreement.disagreement:
        return "a wrong law or a wrong timeline: they DISAGREE, and while they do nothing else is named"
    scenario = result.scenario
    reasons = []
    if scenario.cost.reads_context:
        reasons.append("the context grows from step to step while the law takes the mean context")
    if scenario.schedule.window:
        reasons.append("tokens past the end of an output are verified but not delivered")
        if counted(scenario) == "emitted":
            reasons.append("a request ends when its last token is shown, checked or not")
        if isinstance(scenario.schedule, LosesWindows):
            reasons.append("the first window of a request is drafted outside the steps")
    if any(kind.prompts for kind in result.simulated.kinds):
        reasons.insert(0, "prompts of other requests travel in the steps, and the batch empties at the end")
    elif scenario.requests.together:
        reasons.insert(0, "prefills of other requests hold up the batch, which empties at the end")
    claim = result.agreement.claim
    if not claim.exact:
        reasons.append(str(claim))
    return "; ".join(reasons) or "nothing the law leaves out"


def agreement_sentence(result: RunResult) -> str:
    """Return what the law claims of its process, and what this run shows of it."""
    agreement, claim = result.agreement, result.agreement.claim
    left_out = f": {claim.words}" if claim.words else ""
    return f"The law claims to be {claim.noun}{left_out}. This run shows: {agreement.shown}."


def gap_rows(result: RunResult) -> list[tuple[str, str, str]]:
    """Return the reasons for the gap between law and simulation: reason, ms per token with it, per cent of the gap."""
    return [(part.reason, number(part.tpot_s * 1e3), share(part.share)) for part in result.gap_parts]


GAP_HEAD = ("taken into account, one after the other", "time per token (ms)", "explains of the gap")
GAP_TITLE = "From the law with marginal rates to the simulation"


def counted(scenario: Scenario) -> str:
    """Return which tokens count as output: ``verified``, or ``emitted`` where tokens are shown before they are checked."""
    strategy = scenario.schedule
    return strategy.accounting if isinstance(strategy, SharedBudget) else "verified"


def step_kinds(result: RunResult) -> Iterator[tuple[str, float, float]]:
    """Yield name, share by law (marginal) and share in the simulation of each step kind, most frequent first."""
    total = result.simulated.steps
    for kind in result.phases:
        yield kind_name(kind), result.law.kinds.get(kind, 0.0), result.simulated.kinds.get(kind, 0) / total


def kind_name(kind: Kind) -> str:
    """Return a step kind in words."""
    window = "a window" if kind.window is None else f"a window of {kind.window}"
    counts = (
        (kind.verifying, f"verifying {window}"),
        (kind.bare, "without a window"),
        (kind.redrafts, "windows redrafted"),
        (0 if kind.redrafts else kind.waiting, "waiting"),
    )
    parts = [f"{count} {text}" for count, text in counts if count]
    if kind.detail and kind.detail.words:
        parts.append(kind.detail.words)
    if kind.prompts:
        parts.append(f"{kind.prompts} prompts beside them")
    return f"{kind.name} ({', '.join(parts)})" if parts else kind.name


def fallback(result: RunResult) -> str | None:
    """Return in words how often a window had to be drafted again; None for strategies that never have to."""
    if not isinstance(result.scenario.schedule, LosesWindows):
        return None
    simulated = result.simulated
    rates = [_missing_per_step(result.law.kinds), _missing_per_step(simulated.kinds)]
    return (
        f"{simulated.missed:,} of {simulated.windows:,} verified windows ({share(simulated.fallback_per_step)}, simulation) "
        "were not covered by the draft tree, so the next window was drafted again; "
        f"requests in fallback per step: {rates[0]:.3f} by law (marginal rates), "
        f"{rates[1]:.3f} in the simulation (a miss at the very end of an output costs nothing)"
    )


def _missing_per_step(kinds: Mapping[Kind, float] | Mapping[Kind, int]) -> float:
    """Return how many requests of a step have no window on average, weighted by the frequency of step kinds."""
    missing = [(kind.redrafts + (kind.bare if kind.name == "fallback" else 0), weight) for kind, weight in kinds.items()]
    return sum(requests * weight for requests, weight in missing) / sum(weight for _, weight in missing)


def choices(result: RunResult) -> str | None:
    """Return the windows that the strategy chose with their shares in the simulation; None where it has no choice."""
    counts = result.simulated.choices
    total = sum(counts.values())
    if not total:
        return None
    ranked = sorted(counts.items(), key=lambda choice: (-choice[1], choice[0]))
    return "next window (simulation): " + ", ".join(f"{name} {share(count / total)}" for name, count in ranked)
