"""A comparison: all methods of the catalogue on the target, device, engine and trace of a scenario.

Where its acceptance comes from decides whether two methods may be compared: what the scenario's
trace recorded of it, or a mean published for a larger model, to which a recording is re-scaled. A
method may have both; they are never mixed, and a point says its origin. All points share the
autoregressive run of the same requests.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from simulator.core.faults import BadInput, Fault, did_you_mean
from simulator.core.numeric import ordered_sum, quotient
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import NamesRecording, extra_memory
from simulator.core.strategies.common.method import PublishedMean
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import in_a_line
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.agreement import claim_of
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.decide import decide
from simulator.scenario.outcome import Outcome
from simulator.scenario.uncertain.draws import drawn
from simulator.scenario.uncertain.footings import Footing, footings, largest_in_words
from simulator.scenario.uncertain.intervals import doubt_of
from simulator.scenario.uncertain.named import named_doubts
from simulator.studies import parallel_methods
from simulator.studies.method_features import read_method
from simulator.studies.parallel_methods import SIZES, ParallelCandidates, ParallelComparison
from simulator.studies.window import main_kind

Origin = Literal["recorded", "stand_in", "published", "stated"]
"""The scenario's models, different ones whose recording stands in, a published mean, numbers that
the scenario states.
"""


class MethodCandidate(NamedTuple):
    """Holds a method with acceptance from one origin: what would run, or why it cannot."""

    method: str
    origin: Origin
    loaded: Loaded | None
    published: PublishedMean | None = None
    reason: str = ""


@dataclass(frozen=True)
class MethodPoint:
    """Holds what a method with acceptance from one origin comes to; times in milliseconds."""

    method: str
    strategy: str
    origin: Origin
    acceptance: str
    """Where the acceptance comes from, in words."""
    verified_rows: int
    extra_weights_gb: float
    draft_ms: float
    step_ms: float
    """Mean step of the simulation in ms."""
    tokens_per_step: float
    tpot_ms: float
    law_tpot_ms: float
    baseline_tpot_ms: float
    """Time per token in ms of autoregressive decoding of the same requests, simulated."""
    relation: str
    """How the law relates to the process, where it is not exact."""
    rests_on: str = ""
    """What in doubt its speed-up rests on most, and what that could change."""
    doubts: tuple[str, ...] = ()
    """Numbers in doubt that change its speed-up, the largest change first."""
    decision: Decision | None = None
    """Whether to switch speculation on with this method."""
    published_speedup: float | None = None
    """The speed-up that the source of the mean reports, on its own hardware and software."""

    @property
    def speedup(self) -> float:
        """Return the time per token of autoregressive decoding over the method's, both
        simulated.
        """
        return self.baseline_tpot_ms / self.tpot_ms

    @property
    def relative_step(self) -> float:
        """Return the step over an autoregressive step: tokens per step over speed-up (SS-11)."""
        return self.tokens_per_step / self.speedup


@dataclass(frozen=True)
class ExcludedMethod:
    """Names a method that does not run here, and why."""

    method: str
    reason: str


@dataclass(frozen=True)
class MethodComparison:
    """Holds all methods on a scenario, fastest first within an origin of acceptance."""

    scenario: str
    conditions: str
    """Target, device and engine in words."""
    points: tuple[MethodPoint, ...]
    excluded: tuple[ExcludedMethod, ...]

    def as_data(self) -> PlainData:
        """Return the comparison as plain data."""
        rows = []
        for point in self.points:
            rows.append(
                asdict(replace(point, decision=None))
                | {"speedup": point.speedup, "relative_step": point.relative_step}
                | {"decision": point.decision and point.decision.as_data()}
            )
        return {
            "scenario": self.scenario,
            "methods": rows,
            "left_out": [asdict(method) for method in self.excluded],
        }


def study(
    candidates: Sequence[MethodCandidate] | ParallelCandidates,
    scenario: str,
    sizes: Iterable[int] = SIZES,
) -> MethodComparison | ParallelComparison:
    """Return the simulated points of the candidates that run on ``scenario``, and why the remaining
    ones do not; of those that draft beside the target, by law in the batches of ``sizes``.

    Raises :class:`BadInput` where none runs.
    """
    if isinstance(candidates, ParallelCandidates):
        return parallel_methods.study(candidates, scenario, sizes)
    points = method_sweep(candidates)
    return MethodComparison(
        scenario, conditions_of(candidates), tuple(points), tuple(left_out(candidates))
    )


def conditions_of(candidates: Iterable[MethodCandidate]) -> str:
    """Return target, device and engine of the candidates in words."""
    target = next(
        (candidate.loaded.scenario.target for candidate in candidates if candidate.loaded), None
    )
    if target is None:
        return "all methods"
    return f"{target.model.name} on {target.devices} with {target.engine.name}"


def candidates(
    scenario: str,
    overrides: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    seed: int | None = None,
    only: Collection[str] = (),
) -> Iterator[MethodCandidate]:
    """Yield all methods with all origins of acceptance that the scenario allows.

    Raises :class:`BadInput` for faults of the scenario itself, and for a method in ``only`` that
    does not exist.
    """
    catalogue = catalogue or Catalogue()
    _check_names(only, catalogue)
    base = load(scenario, overrides, catalogue, seed)
    target = base.scenario.target.model.name if base.scenario.target else ""
    origin = _origin(base)
    for name, path in catalogue.names("method").items():
        if only and name not in only:
            continue
        chosen = [f"strategy={path.resolve()}", *overrides]
        yield _candidate(name, origin, partial(load, scenario, chosen, catalogue, seed))
        published = read_method(path).mean_for(target)
        if published and base.trace is not None:
            mean = published.model_dump(include={"tokens_per_step", "source", "confidence"})
            chosen = [*chosen, f"acceptance.rescale={in_a_line(mean)}"]
            rescaled = _candidate(
                name, "published", partial(load, scenario, chosen, catalogue, seed)
            )
            yield rescaled._replace(published=published)


def _check_names(only: Collection[str], catalogue: Catalogue) -> None:
    names = catalogue.names("method")
    faults = []
    for name in only:
        if name not in names:
            faults.append(
                Fault(
                    (f"--only {name}", 0, 0),
                    "",
                    f"there is no method '{name}'{did_you_mean(name, names)}",
                )
            )
    if faults:
        raise BadInput(faults)


def _origin(loaded: Loaded) -> Origin:
    """Return where the acceptance of a scenario comes from without any published mean."""
    if loaded.trace is None:
        return "stated"
    if loaded.scenario.acceptance.stand_in:
        return "stand_in"
    return "recorded"


def _candidate(name: str, origin: Origin, read: Callable[[], Loaded]) -> MethodCandidate:
    """Return the candidate that ``read`` loads, or one without a scenario and with the first fault
    as the reason.
    """
    try:
        return MethodCandidate(name, origin, read())
    except BadInput as error:
        return MethodCandidate(name, origin, None, reason=error.faults[0].message)


def left_out(candidates: Iterable[MethodCandidate]) -> list[ExcludedMethod]:
    """Return the methods that run with no origin of acceptance, with their first reason, by name.

    Raises :class:`BadInput` where that is all of them: there is no answer, only reasons.
    """
    tried = list(candidates)
    running = {candidate.method for candidate in tried if candidate.loaded}
    reasons: dict[str, str] = {}
    for candidate in tried:
        if candidate.method not in running:
            reasons.setdefault(candidate.method, candidate.reason)
    if reasons and not running:
        raise BadInput(
            Fault((name, 0, 0), "", f"is left out: {reason}")
            for name, reason in sorted(reasons.items())
        )
    return [ExcludedMethod(name, reason) for name, reason in sorted(reasons.items())]


def method_sweep(candidates: Iterable[MethodCandidate]) -> list[MethodPoint]:
    """Return the simulated points of all candidates that run; those with a published mean last,
    then fastest first.
    """
    points: list[MethodPoint] = []
    baseline: Outcome | None = None
    for candidate in counted(candidates, "methods"):
        if candidate.loaded:
            if baseline is None:
                plain = evaluate.plain(candidate.loaded.scenario)
                baseline, _ = evaluate.simulate(plain, evaluate.NO_DRAFTS)
            points.append(_point(candidate, evaluate.tuned(candidate.loaded), baseline))
    return sorted(points, key=lambda point: (point.origin == "published", point.tpot_ms))


def _point(candidate: MethodCandidate, loaded: Loaded, baseline: Outcome) -> MethodPoint:
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    strategy = scenario.schedule
    target = scenario.target
    law = evaluate.law(scenario, acceptance)
    simulated = evaluate.simulate(scenario, acceptance)[0]
    step = strategy.step(main_kind(law.kinds), scenario.mean_context)
    drafted = strategy.phases(scenario.cost, step)
    doubted = footings(loaded, every=False)
    if target:
        extra = (
            target.weights_gb(extra_memory(strategy, target.model).weights) - target.weights_gb()
        )
    else:
        extra = 0.0
    return MethodPoint(
        method=candidate.method,
        strategy=strategy.name,
        origin=candidate.origin,
        acceptance=source_of(loaded, candidate.published),
        verified_rows=step.rows.tokens,
        extra_weights_gb=extra,
        draft_ms=ordered_sum(
            drafted[name].wall_s for name in strategy.traits.drafted_in if name in drafted
        )
        * 1e3,
        step_ms=simulated.step_s * 1e3,
        tokens_per_step=simulated.tokens_per_step,
        tpot_ms=simulated.tpot_s * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        baseline_tpot_ms=baseline.tpot_s * 1e3,
        relation="" if (claim := claim_of(scenario)).exact else str(claim),
        rests_on=largest_in_words(loaded, doubted, 2),
        doubts=named_doubts(loaded, doubted),
        decision=_decided(loaded, simulated, baseline, doubted),
        published_speedup=candidate.published.speedup if candidate.published else None,
    )


def _decided(
    loaded: Loaded, simulated: Outcome, baseline: Outcome, doubted: Sequence[Footing]
) -> Decision | None:
    """Return the decision on a method, by output tokens per second in a closed loop."""
    batch = evaluate.observed_batch(loaded.scenario, simulated)
    speedup = drawn(baseline.tpot_s / simulated.tpot_s, doubt_of(loaded, (), batch=batch))
    throughput = None
    if not loaded.scenario.requests.varies:
        throughput = quotient(simulated.tokens_per_s, baseline.tokens_per_s)
    return decide(loaded, speedup, doubted, batch, throughput)


def source_of(loaded: Loaded, published: PublishedMean | None) -> str:
    """Return in words where a point's acceptance comes from."""
    if loaded.trace is None:
        return "stated by the scenario"
    strategy = loaded.scenario.strategy
    drafter = strategy.recorded_drafter if isinstance(strategy, NamesRecording) else None
    name = loaded.scenario.acceptance.drafter if drafter is None else drafter
    if published is None:
        return f"recorded, drafter {name}"
    return (
        f"{published.tokens_per_step:g} tokens a step, {published.confidence} for "
        f"{published.target}; bursts of {name}"
    )
