"""The batch study: what speculation is worth when so many requests decode together (Mirror-SD App. D.1).

    speed-up |``--..__
           1 |--------``--..___      a larger batch verifies more rows, until the pass is bound by compute:
             +----------------------  B       a step up wherever the rows fill another tile

Every size is a closed loop of B equal requests on the scenario's hardware, compared with autoregressive
decoding of the same batch. The scenario's strategy is set for that size (Mirror-SD's ``batching_rule``,
an adaptive window); vanilla speculative decoding stands beside it with the scenario's own draft and window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from simulator.acceptance.sources import Acceptance
from simulator.files.schema import BadInput, Fault
from simulator.numeric import ordered_sum
from simulator.scenario import Loaded, Scenario, run
from simulator.strategies.common.capabilities import DerivesNumbers, DraftsChain
from simulator.strategies.common.step import Kind
from simulator.strategies.common.studied import ResampledTrees
from simulator.strategies.vanilla_sd import VanillaSD
from simulator.studies.window import main_kind

SIZES = range(1, 65)
SIMULATED = (1, 2, 4, 8, 16, 32, 64, 128)
TURNS = 4
"""Simulated requests for each place of the batch, or as many as the scenario has where that is more."""


class PointAtBatch(Protocol):
    """A batch size, the rows that verify it, and what it is worth."""

    @property
    def batch(self) -> int:
        """Requests that decode together."""

    @property
    def verify_rows(self) -> int:
        """Rows of the target's pass."""

    @property
    def speedup(self) -> float:
        """Over autoregressive decoding of the same batch, by law."""


@dataclass(frozen=True)
class BatchPoint:
    """One batch size; times in milliseconds, None where there is nothing to say."""

    batch: int
    gamma: int
    """Window of the scenario's strategy at this size."""
    settings: str
    """What else the strategy sets by batch size."""
    baseline_tpot_ms: float
    """Autoregressive decoding, law."""
    decode_ms: float
    """One pass of the target over one row of each request."""
    verify_rows: int
    verify_ms: float
    """One pass of the target over a window of each request."""
    draft_ms: float
    """T_draft of the main step kind."""
    law_tpot_ms: float
    vanilla_tpot_ms: float | None = None
    """Law of vanilla speculative decoding."""
    exposed_draft_ms: float | None = None
    relative_draft_overhead: float | None = None
    """Exposed draft time over the draft time of vanilla speculative decoding (MSD-11)."""
    drafted_trees_ms: float | None = None
    """Passes of the target where nobody has a re-sampled tree (Lyanna)."""
    fused_trees_ms: float | None = None
    """The same where everybody has one, in one pass (LYA-7)."""
    apart_trees_ms: float | None = None
    """The same in two passes."""
    simulated_requests: int = 0
    simulated_tokens_per_s: float | None = None
    simulated_vanilla_tokens_per_s: float | None = None
    simulated_baseline_tokens_per_s: float | None = None

    @property
    def law_tokens_per_s(self) -> float:
        """By law, of all requests together; prefills are left out."""
        return self.batch / self.law_tpot_ms * 1e3

    @property
    def speedup(self) -> float:
        """By law: time per token of autoregressive decoding over the strategy's."""
        return self.baseline_tpot_ms / self.law_tpot_ms

    @property
    def vanilla_speedup(self) -> float | None:
        """The same for vanilla speculative decoding."""
        return None if self.vanilla_tpot_ms is None else self.baseline_tpot_ms / self.vanilla_tpot_ms

    @property
    def simulated_speedup(self) -> float | None:
        """By simulation: output tokens per second over those of autoregressive decoding, prefills included in both."""
        return _ratio(self.simulated_tokens_per_s, self.simulated_baseline_tokens_per_s)

    @property
    def simulated_vanilla_speedup(self) -> float | None:
        """The same for vanilla speculative decoding."""
        return _ratio(self.simulated_vanilla_tokens_per_s, self.simulated_baseline_tokens_per_s)


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def batch_sweep(loaded: Loaded, sizes: Iterable[int] = SIZES, simulate_at: Collection[int] = SIMULATED) -> list[BatchPoint]:
    """Law at every size whose caches fit the hardware, simulation where also in ``simulate_at``."""
    acceptance = loaded.acceptance()
    points = []
    for size in sizes:
        scenario = at_size(loaded.scenario, size)
        if scenario.kv_tokens is None or size * (scenario.lengths[2] + scenario.strategy.window) <= scenario.kv_tokens:
            points.append(_point(run.tuned(_loaded(loaded, scenario)).scenario, acceptance, size in simulate_at))
    return points


def crossover(points: Iterable[PointAtBatch]) -> tuple[int | None, int | None]:
    """The first swept size at which autoregressive decoding is faster by law, and the one from which on it always is.

    They differ where a tile that fills up brings the strategy back. None where it never happens.
    """
    slower = [(point.batch, point.speedup < 1.0) for point in sorted(points, key=lambda point: point.batch)]
    ahead = max((size for size, behind in slower if not behind), default=0)
    first = next((size for size, behind in slower if behind), None)
    return first, next((size for size, behind in slower if behind and size > ahead), None)


def tile_edges(loaded: Loaded, points: Iterable[PointAtBatch]) -> list[int]:
    """Swept sizes at which the rows of a verification first need another tile of the target's matrix products."""
    target = loaded.scenario.target
    if target is None:
        return []
    product = target.device.matmul_for(target.weights)
    if product.tile_tokens[-1] == 1:
        return []
    edges, before = [], None
    for point in points:
        rows = product.filled(point.verify_rows)
        if before is not None and rows > before:
            edges.append(point.batch)
        before = rows
    return edges


def summary(loaded: Loaded, points: list[BatchPoint]) -> dict[str, Any]:
    """The study as plain data."""
    derived = ("speedup", "vanilla_speedup", "simulated_speedup", "simulated_vanilla_speedup", "law_tokens_per_s")
    return {
        "scenario": loaded.scenario.name,
        "strategy": loaded.scenario.strategy.name,
        "crossover": dict(zip(("first", "for_good"), crossover(points), strict=True)),
        "tile_edges": tile_edges(loaded, points),
        "batches": [asdict(point) | {name: getattr(point, name) for name in derived} for point in points],
    }


def _loaded(loaded: Loaded, scenario: Scenario) -> Loaded:
    return Loaded(scenario, loaded.trace, loaded.document)


def at_size(scenario: Scenario, size: int) -> Scenario:
    """The same for so many requests at a time, and enough of them for ``TURNS`` on every place."""
    requests = scenario.requests
    if requests.arrivals:
        message = "a sweep over sizes is about a closed loop; set requests.arrivals=null"
        raise BadInput([Fault((scenario.name, 0, 0), "requests.arrivals", message)])
    return scenario.replace(
        requests=requests.model_copy(update={"concurrency": size, "count": max(requests.count, TURNS * size)})
    )


def _point(scenario: Scenario, acceptance: Acceptance, simulated: bool) -> BatchPoint:
    strategy, size, cost, context = scenario.schedule, scenario.requests.concurrency, scenario.cost, scenario.mean_context
    law = run.law(scenario, acceptance)
    kind = main_kind(law.kinds)
    step = strategy.step(kind, context)
    parts = strategy.phases(cost, step)
    drafted = ordered_sum(parts[name].wall_s for name in strategy.traits.drafted_in if name in parts)
    vanilla = _vanilla(scenario)
    vanilla_law = run.law(vanilla, acceptance) if vanilla else None
    exposed = strategy.derived(cost, step).get("exposed_draft_ms") if isinstance(strategy, DerivesNumbers) else None
    overhead = None
    if exposed is not None and vanilla:
        serial = vanilla.schedule
        whole = serial.phases(vanilla.cost, serial.step(Kind("step", size), context))["draft"].wall_s * 1e3
        overhead = exposed / whole if whole else None
    plain = strategy.step(Kind("step", 0, bare=size), context)
    runs = _simulated(scenario, vanilla, acceptance) if simulated else {}
    return BatchPoint(
        batch=size,
        gamma=strategy.window_for(size),
        settings=strategy.batch_settings if isinstance(strategy, DraftsChain) else "",
        baseline_tpot_ms=run.baseline(scenario).tpot_s * 1e3,
        decode_ms=cost.target(plain.rows).wall_s * 1e3,
        verify_rows=step.rows.tokens,
        verify_ms=cost.target(step.rows).wall_s * 1e3,
        draft_ms=drafted * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        vanilla_tpot_ms=vanilla_law.tpot_s * 1e3 if vanilla_law else None,
        exposed_draft_ms=exposed,
        relative_draft_overhead=overhead,
        simulated_requests=scenario.requests.count if simulated else 0,
        **_trees(scenario),
        **runs,
    )


def _trees(scenario: Scenario) -> dict[str, float]:
    """What verifying re-sampled trees costs, fused and apart; nothing where none are sampled."""
    strategy = scenario.schedule
    if not isinstance(strategy, ResampledTrees):
        return {}
    passes = strategy.tree_passes_s(scenario.cost, scenario.batch, scenario.mean_context)
    return {f"{name}_trees_ms": seconds * 1e3 for name, seconds in passes.items()}


def _vanilla(scenario: Scenario) -> Scenario | None:
    """Serial drafting with the scenario's window and drafter; None where the strategy is that already, or drafts nothing."""
    own = scenario.strategy
    if not isinstance(own, DraftsChain) or own.serial:
        return None
    serial = VanillaSD(gamma=own.window, drafter=own.chain_drafter, bonus_on_full_accept=own.bonus_on_full_accept)
    return scenario.replace(strategy=serial)


def _simulated(scenario: Scenario, vanilla: Scenario | None, acceptance: Acceptance) -> dict[str, float]:
    found = {
        "simulated_tokens_per_s": run.simulate(scenario, acceptance)[0].tokens_per_s,
        "simulated_baseline_tokens_per_s": run.simulated_baseline(scenario).tokens_per_s,
    }
    if vanilla:
        found["simulated_vanilla_tokens_per_s"] = run.simulate(vanilla, acceptance)[0].tokens_per_s
    return found
