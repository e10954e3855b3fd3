"""One comparison: every method of the catalogue on one scenario's target, device, engine and trace.

Where its acceptance comes from decides whether two methods may be compared: what the scenario's trace recorded of
it, or a mean published for a larger model, to which a recording is re-scaled. A method may have both; they are never
mixed, and every point says its origin. All points share the autoregressive run of the same requests.

``crossovers`` asks the same of larger batches: up to which one each method is ahead of autoregressive decoding.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from simulator.acceptance.sources import Odds
from simulator.catalogue import Catalogue
from simulator.files.schema import BadInput
from simulator.numeric import ordered_sum
from simulator.scenario import Loaded, load, run
from simulator.scenario.agreement import claim_of
from simulator.strategies.autoregressive import Autoregressive
from simulator.strategies.common.capabilities import NamesRecording, extra_memory
from simulator.strategies.common.method import PublishedMean
from simulator.studies.batches import crossover, tile_edges
from simulator.studies.method_features import read_method
from simulator.studies.window import main_kind

Origin = Literal["recorded", "stand_in", "published", "stated"]
"""The scenario's own models, other ones whose recording stands in, a published mean, the scenario's own numbers."""


class MethodCandidate(NamedTuple):
    """A method with acceptance from one origin: what would run, or why it cannot."""

    method: str
    origin: Origin
    loaded: Loaded | None
    published: PublishedMean | None = None
    reason: str = ""


@dataclass(frozen=True)
class MethodPoint:
    """One method with acceptance from one origin; times in milliseconds."""

    method: str
    strategy: str
    origin: Origin
    acceptance: str
    """Where it comes from, in words."""
    verified_rows: int
    extra_weights_gb: float
    draft_ms: float
    step_ms: float
    """Mean step of the simulation."""
    tokens_per_step: float
    tpot_ms: float
    law_tpot_ms: float
    baseline_tpot_ms: float
    """Autoregressive decoding of the same requests, simulated."""
    relation: str
    """How the law relates to the process, where it is not exact."""
    published_speedup: float | None = None
    """What the source of the mean reports, on hardware and software of its own."""

    @property
    def speedup(self) -> float:
        """Simulated time per token against simulated autoregressive decoding."""
        return self.baseline_tpot_ms / self.tpot_ms

    @property
    def relative_step(self) -> float:
        """Step over autoregressive step: tokens per step over speed-up (SS-11)."""
        return self.tokens_per_step / self.speedup


@dataclass(frozen=True)
class ExcludedMethod:
    """A method that does not run here, and why."""

    method: str
    reason: str


class MethodAtBatch(NamedTuple):
    """One batch size of one method, by law with the replayed tokens of a step."""

    batch: int
    verify_rows: int
    speedup: float


@dataclass(frozen=True)
class Crossover:
    """Up to which batch a method pays, by law."""

    method: str
    origin: Origin
    acceptance: str
    points: tuple[MethodAtBatch, ...]
    first: int | None
    """The first batch at which autoregressive decoding is faster; None: none of those swept."""
    for_good: int | None
    tile_edges: tuple[int, ...]
    """Batches at which the rows of a verification first need another tile."""


def candidates(
    scenario: str,
    overrides: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    seed: int | None = None,
    only: Collection[str] = (),
) -> Iterator[MethodCandidate]:
    """Every method with every origin of acceptance that the scenario allows; faults of the scenario itself are raised."""
    catalogue = catalogue or Catalogue()
    base = load(scenario, overrides, catalogue, seed)
    target = base.scenario.target.model.name if base.scenario.target else ""
    origin: Origin = "stated" if base.trace is None else "stand_in" if base.scenario.acceptance.stand_in else "recorded"
    for name, path in catalogue.names("method").items():
        if only and name not in only:
            continue
        chosen = [f"strategy={path.resolve()}", *overrides]
        yield _candidate(name, origin, lambda chosen=chosen: load(scenario, chosen, catalogue, seed))
        published = read_method(path).mean_for(target)
        if published and base.trace is not None:
            mean = published.model_dump(include={"tokens_per_step", "source", "confidence"})
            chosen = [*chosen, f"acceptance.rescale={json.dumps(mean)}"]
            again = _candidate(name, "published", lambda chosen=chosen: load(scenario, chosen, catalogue, seed))
            yield again._replace(published=published)


def _candidate(name: str, origin: Origin, read: Any) -> MethodCandidate:
    try:
        return MethodCandidate(name, origin, read())
    except BadInput as error:
        return MethodCandidate(name, origin, None, reason=error.faults[0].message)


def by_exact_laws(found: Iterable[MethodCandidate]) -> list[MethodCandidate]:
    """Those with a law that is more than a bound here, for many requests; the others say why they cannot run."""
    return [
        one._replace(loaded=None, reason=_no_law(one.loaded)) if one.loaded and _no_law(one.loaded) else one for one in found
    ]


def _no_law(loaded: Loaded) -> str:
    scenario = loaded.scenario
    if scenario.schedule.traits.alone:
        return f"{scenario.strategy.name} takes one request at a time"
    claim = claim_of(scenario)
    return "" if claim.exact else f"its law is no equality here ({claim})"


def left_out(found: Iterable[MethodCandidate]) -> list[ExcludedMethod]:
    """Methods that run with no origin, each with its first reason."""
    found = list(found)
    running = {one.method for one in found if one.loaded}
    reasons = {one.method: one.reason for one in reversed(found) if one.method not in running}
    return [ExcludedMethod(name, reason) for name, reason in sorted(reasons.items())]


def method_sweep(found: Iterable[MethodCandidate]) -> list[MethodPoint]:
    """Simulate every candidate that runs, fastest first within each origin."""
    points: list[MethodPoint] = []
    baseline: float | None = None
    for one in found:
        if one.loaded:
            if baseline is None:
                baseline = run.simulated_baseline(one.loaded.scenario).tpot_s * 1e3
            points.append(_point(one, run.tuned(one.loaded), baseline))
    return sorted(points, key=lambda point: (point.origin == "published", point.tpot_ms))


def _point(one: MethodCandidate, loaded: Loaded, baseline_ms: float) -> MethodPoint:
    scenario, acceptance = loaded.scenario, loaded.acceptance()
    strategy, target = scenario.schedule, scenario.target
    law = run.law(scenario, acceptance)
    simulated = run.simulate(scenario, acceptance)[0]
    step = strategy.step(main_kind(law.kinds), scenario.mean_context)
    drafted = strategy.phases(scenario.cost, step)
    extra = target.weights_gb(extra_memory(strategy, target.model).weights) - target.weights_gb() if target else 0.0
    return MethodPoint(
        method=one.method,
        strategy=strategy.name,
        origin=one.origin,
        acceptance=source_of(loaded, one.published),
        verified_rows=step.rows.tokens,
        extra_weights_gb=extra,
        draft_ms=ordered_sum(drafted[name].wall_s for name in strategy.traits.drafted_in if name in drafted) * 1e3,
        step_ms=simulated.step_s * 1e3,
        tokens_per_step=simulated.tokens_per_step,
        tpot_ms=simulated.tpot_s * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        baseline_tpot_ms=baseline_ms,
        relation="" if law.claim.exact else law.relation,
        published_speedup=one.published.speedup if one.published else None,
    )


def source_of(loaded: Loaded, published: PublishedMean | None) -> str:
    """Where a point's acceptance comes from, in words."""
    if loaded.trace is None:
        return "stated by the scenario"
    strategy = loaded.scenario.strategy
    drafter = strategy.recorded_drafter if isinstance(strategy, NamesRecording) else None
    name = loaded.scenario.acceptance.drafter if drafter is None else drafter
    if published is None:
        return f"recorded, drafter {name}"
    return f"{published.tokens_per_step:g} tokens a step, {published.confidence} for {published.target}; bursts of {name}"


def crossovers(found: Iterable[MethodCandidate], sizes: Iterable[int]) -> list[Crossover]:
    """Law of every candidate that runs at every batch of ``sizes``, the one that pays longest first.

    Marginal rates overstate what bursts keep, each method by another factor, so that a step here commits the tokens
    that a replay of one request at a time commits; step kinds and their times are the law's.
    """
    studies, sizes = [], sorted(sizes)
    for one in found:
        if one.loaded is None:
            continue
        points = tuple(_at_batches(one.loaded, sizes))
        first, for_good = crossover(points)
        edges = tuple(tile_edges(one.loaded, points))
        studies.append(Crossover(one.method, one.origin, source_of(one.loaded, one.published), points, first, for_good, edges))
    return sorted(studies, key=lambda one: (one.origin == "published", -(one.first or sizes[-1] + 1), -one.points[0].speedup))


def _at_batches(loaded: Loaded, sizes: Sequence[int]) -> Iterator[MethodAtBatch]:
    scenario, acceptance = loaded.scenario, loaded.acceptance()
    cost, context, longest = scenario.cost, scenario.mean_context, scenario.lengths[2]
    plain = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
    alone = scenario.replace(requests=scenario.requests.model_copy(update={"concurrency": 1}))
    replayed = run.replay(alone, acceptance).tokens_per_step / run.law(alone, acceptance).tokens_per_step

    def odds(gamma: int) -> Odds:
        return acceptance.odds(gamma, scenario.exit)

    for size in sizes:
        strategy = scenario.strategy.fitted_to(size)
        if scenario.kv_tokens is not None and size * (longest + strategy.needs.cache_tokens) > scenario.kv_tokens:
            return
        law = strategy.law(cost, odds, size, context, one_lane=scenario.one_lane)
        baseline = Autoregressive().law(cost, lambda gamma: plain, size, context)
        rows = strategy.step(main_kind(law.kinds), context).rows.tokens
        yield MethodAtBatch(size, rows, baseline.tpot_s / law.tpot_s * replayed)


def summary(scenario: str, points: Iterable[MethodPoint], without: Iterable[ExcludedMethod]) -> dict[str, Any]:
    """The comparison as plain data."""
    rows = [asdict(one) | {"speedup": one.speedup, "relative_step": one.relative_step} for one in points]
    return {"scenario": scenario, "methods": rows, "left_out": [asdict(one) for one in without]}


def crossover_summary(scenario: str, studies: Iterable[Crossover], without: Iterable[ExcludedMethod]) -> dict[str, Any]:
    """The crossovers as plain data."""
    rows = [asdict(one) | {"points": [point._asdict() for point in one.points]} for one in studies]
    return {"scenario": scenario, "crossovers": rows, "left_out": [asdict(one) for one in without]}
