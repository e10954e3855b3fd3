"""Numbers and sentences of a run's report, the same on a terminal and on a page."""

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.acceptance.spec import AcceptanceSpec
from simulator.report.wording import Wording
from simulator.scenario import Scenario
from simulator.scenario.run import RunResult
from simulator.scenario.uncertainty import SHARE, Interval
from simulator.strategies.common.capabilities import LosesWindows
from simulator.strategies.common.step import Kind
from simulator.strategies.common.studied import SharedBudget
from simulator.studies.window import main_kind

say = Wording("run")


@dataclass(frozen=True)
class Gap:
    """The difference of two columns in per cent of the first, and what it may come from."""

    title: str
    percent: float
    why: str
    """Reasons that there may be; ``run --explain-gap`` measures what each of them explains."""
    parts: tuple[tuple[str, float], ...]
    """Names and sizes in per cent of the factors that multiply to the whole difference."""


def regime(result: RunResult) -> str:
    """Return half a sentence that compares T_draft to Delta, with times of the cost model at the
    mean context.
    """
    if level := _level_of_tree(result):
        return level
    scenario, traits = result.scenario, result.scenario.schedule.traits
    parts_ms = {
        name: phase.wall_s * 1e3 for name, phase in result.phases[main_kind(result.phases)].items()
    }
    hidden = bool(traits.hidden_behind) and "draft" in parts_ms
    redrafts = {
        kind: parts["redraft"].wall_s * 1e3
        for kind, parts in result.phases.items()
        if "redraft" in parts
    }
    return say(
        "regime",
        scenario=scenario,
        draft_ms=parts_ms["draft"] if hidden else None,
        delta_ms=parts_ms[str(traits.hidden_behind)] if hidden else None,
        drafted_ms=sum(parts_ms[name] for name in traits.drafted_in if name in parts_ms),
        redrafting=sum(result.simulated.kinds.get(kind, 0) for kind in redrafts),
        redraft_ms=next(iter(redrafts.values()), None),
        steps=result.simulated.steps,
    )


def _level_of_tree(result: RunResult) -> str | None:
    """Return whether growing a level of the tree is hidden behind a pipeline step, in words; None
    where no tree is grown.
    """
    full = max(result.phases, key=lambda kind: (kind.verifying, tuple(kind.detail or ())))
    parts = {name: phase.wall_s * 1e3 for name, phase in result.phases[full].items()}
    if "draft_level" not in parts:
        return None
    draft, cover = parts["draft_level"], parts["exchange"] + parts["compute"]
    kept, point = result.simulated.accepted, 0.01 * (result.scenario.stages - 1) * max(draft, cover)
    hit = kept.get(1, 0) / (sum(kept.values()) or 1)
    return say("level_of_tree", parts=parts, draft=draft, cover=cover, hit=hit, point=point)


def headline(result: RunResult) -> str:
    """Return the answer in one sentence."""
    together, window = result.scenario.requests.together, result.scenario.schedule.window
    facts = {"simulated": result.simulated, "baseline": result.baseline, "speedup": result.speedup}
    return say(
        "headline",
        **facts,
        together=together,
        window=window,
        with_prompts=result.speedup_with_prompts,
        regime=regime(result),
    )


def doubt(speedup: Interval) -> str:
    """Return the interval of a speed-up in words, and which draws it covers."""
    return say("doubt", low=speedup.low, high=speedup.high, covered=SHARE)


def origin(spec: AcceptanceSpec) -> str:
    """Return in a word where acceptance comes from: recorded, stand-in, or the confidence of stated
    rates.
    """
    if spec.trace is not None:
        return "stand-in" if spec.stand_in else "recorded"
    return spec.confidence or "assumed"


def conditions(result: RunResult) -> str:
    """Return in words what a speed-up depends on: acceptance, engines, token accounting, load."""
    scenario, requests, spec = result.scenario, result.scenario.requests, result.scenario.acceptance
    roles = {
        "target": scenario.target,
        "draft": scenario.draft if scenario.schedule.needs.draft_model else None,
    }
    return say(
        "conditions",
        acceptance=say("rates" if spec.trace is None else "trace", spec=spec, origin=origin(spec)),
        placed=[(role, placed) for role, placed in roles.items() if placed],
        counted=counted(scenario),
        count=requests.count,
        arrivals=say("arrivals", one=requests.arrivals, concurrency=requests.concurrency),
        sizes=say("sizes", requests=requests, lengths=scenario.lengths),
    )


def gaps(result: RunResult) -> list[Gap]:
    """Return two gaps: from the law with marginal rates to the law with replayed means, and from
    there to the simulation.
    """
    steady = result.simulated.step_s / result.simulated.tokens_per_step
    facts = {
        "law": result.law,
        "means": result.law_replayed,
        "simulated": result.simulated,
        "steady": steady,
    }

    def percent(change: str) -> float:
        return float(say.value(change, change=lambda old, new: (new / old - 1.0) * 100.0, **facts))

    return [
        Gap(
            gap["title"],
            percent(gap["percent"]),
            why,
            tuple((name, percent(part)) for name, part in gap["parts"].items()),
        )
        for gap, why in zip(
            say.said["gaps"], (_why_first(result), _why_second(result)), strict=True
        )
    ]


def _why_first(result: RunResult) -> str:
    """Return what may explain the gap that is due to acceptance."""
    schedule, facts = (
        result.scenario.schedule,
        {"spec": result.scenario.acceptance, "source": result.odds.source},
    )
    return say(
        "first_gap",
        window=schedule.window,
        windows=result.simulated.windows,
        staged=schedule.traits.staged,
        **facts,
    )


def _why_second(result: RunResult) -> str:
    """Return what may explain this gap; where the law breaks its claim that is said alone, as
    nothing else is known then.
    """
    if result.agreement.disagreement:
        return say("broken")
    scenario, schedule = result.scenario, result.scenario.schedule
    reasons = say.all(
        "second_gap",
        prompts=any(kind.prompts for kind in result.simulated.kinds),
        together=scenario.requests.together,
        reads_context=scenario.cost.reads_context,
        window=schedule.window,
        loses=isinstance(schedule, LosesWindows),
        counted=counted(scenario),
        claim=result.agreement.claim,
    )
    return "; ".join(reasons) or "nothing the law leaves out"


def agreement_sentence(result: RunResult) -> str:
    """Return what the law claims of its process, and what this run shows of it."""
    return say("agreement", claim=result.agreement.claim, shown=result.agreement.shown)


def counted(scenario: Scenario) -> str:
    """Return which tokens count as output: ``verified``, or ``emitted`` where tokens are shown
    before they are checked.
    """
    strategy = scenario.schedule
    return strategy.accounting if isinstance(strategy, SharedBudget) else "verified"


def kind_name(kind: Kind) -> str:
    """Return a step kind in words."""
    parts = ", ".join(say.all("kind", kind=kind))
    return f"{kind.name} ({parts})" if parts else kind.name


def fallback(result: RunResult) -> str | None:
    """Return in words how often a window had to be drafted again; None for strategies that never
    have to.
    """
    if not isinstance(result.scenario.schedule, LosesWindows):
        return None
    by_law, by_run = _missing_per_step(result.law.kinds), _missing_per_step(result.simulated.kinds)
    return say("fallback", run=result.simulated, by_law=by_law, by_run=by_run)


def _missing_per_step(kinds: Mapping[Kind, float] | Mapping[Kind, int]) -> float:
    """Return how many requests of a step have no window on average, weighted by the frequency of
    step kinds.
    """
    missing = [
        (kind.redrafts + (kind.bare if kind.name == "fallback" else 0), weight)
        for kind, weight in kinds.items()
    ]
    return sum(requests * weight for requests, weight in missing) / sum(
        weight for _, weight in missing
    )


def choices(result: RunResult) -> str | None:
    """Return the windows that the strategy chose with their shares in the simulation; None where it
    has no choice.
    """
    counts = result.simulated.choices
    ranked = sorted(counts.items(), key=lambda choice: (-choice[1], choice[0]))
    return say("choices", ranked=ranked, total=sum(counts.values())) if ranked else None
