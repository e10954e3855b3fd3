"""Up to which batch a method pays: its law by batch size, against autoregressive decoding of the
same batch.

Marginal rates overstate what bursts keep, by a factor that differs from method to method, so a step
commits the tokens that a replay of a single request at a time commits; step kinds and their times
are the law's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from simulator.core.acceptance.sources import odds_of
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.scenario import Loaded, evaluate
from simulator.scenario.agreement import claim_of
from simulator.studies.batches import LawAtBatch, crossover, tile_edges
from simulator.studies.methods import (
    ExcludedMethod,
    MethodCandidate,
    Origin,
    conditions_of,
    left_out,
    source_of,
)
from simulator.studies.window import main_kind

SIZES = range(1, 129)


@dataclass(frozen=True)
class Crossover:
    """Says up to which batch a method pays, by law."""

    method: str
    origin: Origin
    acceptance: str
    """Where the acceptance comes from, in words."""
    points: tuple[LawAtBatch, ...]
    first: int | None
    """The first batch at which autoregressive decoding is faster; None: none of those swept."""
    for_good: int | None
    """The batch from which on autoregressive decoding stays faster; None: none of those swept."""
    tile_edges: tuple[int, ...]
    """Batches at which the rows of a verification first need a further tile."""


@dataclass(frozen=True)
class CrossoverStudy:
    """Holds the crossovers of all methods on a scenario, the method that pays longest first within
    an origin of acceptance.
    """

    scenario: str
    conditions: str
    """Target, device and engine in words."""
    crossovers: tuple[Crossover, ...]
    excluded: tuple[ExcludedMethod, ...]

    def as_data(self) -> PlainData:
        """Return the crossovers as plain data."""
        rows = [
            asdict(method) | {"points": [point._asdict() for point in method.points]}
            for method in self.crossovers
        ]
        return {
            "scenario": self.scenario,
            "crossovers": rows,
            "left_out": [asdict(method) for method in self.excluded],
        }


def study(
    candidates: Sequence[MethodCandidate], scenario: str, sizes: Iterable[int] = SIZES
) -> CrossoverStudy:
    """Return the crossovers of the candidates whose law is exact on ``scenario``, and why the
    remaining ones are left out.

    Raises :class:`BadInput` where none is exact.
    """
    exact = by_exact_laws(candidates)
    return CrossoverStudy(
        scenario, conditions_of(exact), tuple(crossovers(exact, sizes)), tuple(left_out(exact))
    )


def by_exact_laws(candidates: Iterable[MethodCandidate]) -> list[MethodCandidate]:
    """Return the candidates; those whose law for many requests is a bound only lose their scenario
    and say why.
    """
    checked = []
    for candidate in candidates:
        reason = _no_law(candidate.loaded) if candidate.loaded else ""
        checked.append(candidate._replace(loaded=None, reason=reason) if reason else candidate)
    return checked


def _no_law(loaded: Loaded) -> str:
    """Return why a scenario has no exact law for many requests; empty where it has one."""
    scenario = loaded.scenario
    if scenario.schedule.traits.alone:
        return f"{scenario.strategy.name} takes one request at a time"
    claim = claim_of(scenario)
    if claim.exact:
        return ""
    return f"its law is no equality here ({claim})"


def crossovers(candidates: Iterable[MethodCandidate], sizes: Iterable[int]) -> list[Crossover]:
    """Return the law of all candidates that run at the batches of ``sizes``.

    Those with a published mean come last, then the method that pays longest first.
    """
    methods = []
    batches = sorted(sizes)
    for candidate in counted(candidates, "methods"):
        if candidate.loaded is None:
            continue
        points = tuple(_at_batches(candidate.loaded, batches))
        first, for_good = crossover(points)
        edges = tuple(tile_edges(candidate.loaded, points))
        source = source_of(candidate.loaded, candidate.published)
        methods.append(
            Crossover(candidate.method, candidate.origin, source, points, first, for_good, edges)
        )

    def rank(method: Crossover) -> tuple[bool, int, float]:
        return (
            method.origin == "published",
            -(method.first or batches[-1] + 1),
            -method.points[0].speedup,
        )

    return sorted(methods, key=rank)


def _at_batches(loaded: Loaded, sizes: Sequence[int]) -> Iterator[LawAtBatch]:
    """Yield the law at the sizes whose caches fit the hardware."""
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    cost = scenario.cost
    context = scenario.mean_context
    longest = scenario.lengths[2]
    alone = scenario.replace(requests=scenario.requests.model_copy(update={"concurrency": 1}))
    replayed = (
        evaluate.replay(alone, acceptance).tokens_per_step
        / evaluate.law(alone, acceptance).tokens_per_step
    )
    odds = odds_of(acceptance, scenario.exit)
    policy = scenario.serving.policy
    for size in sizes:
        strategy = scenario.strategy.fitted_to(size, scenario.stages)
        if (
            scenario.kv_tokens is not None
            and size * (longest + policy.step_slots(strategy.needs)) > scenario.kv_tokens
        ):
            return
        law = strategy.law(
            cost, odds, size, context, one_lane=scenario.one_lane, outputs=scenario.outputs
        )
        rows = strategy.step(main_kind(law.kinds), context).rows.tokens
        yield LawAtBatch(
            size, rows, evaluate.baseline(scenario, size).tpot_s / law.tpot_s * replayed
        )
