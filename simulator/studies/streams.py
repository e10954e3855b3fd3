r"""Speculative Streaming over its tree factor k, and beside two-model decoding (Figures 10 and 20).

    speed-up |   _/\__ pruned      more tokens a stream, more kept; but the tree grows as k^gamma,
             | _/ \   \__          until the pass is bound by compute. Pruning spares the top layers,
             |/    \__   \         so that the fall comes later.
             +--------------- k

Every tree is replayed on what was recorded of it. The plane is Eq. (10), at the costs of the scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simulator.acceptance.tree_replay import LARGEST_TREE
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded, run
from simulator.scenario.outcome import Outcome
from simulator.strategies.common.step import Kind
from simulator.strategies.common.studied import StreamTree
from simulator.strategies.common.traits import Facts
from simulator.strategies.speculative_streaming.laws import relative_step_cost, speedup_over_two_models, tree_nodes
from simulator.strategies.vanilla_sd import VanillaSD

BRANCHINGS = range(1, 7)
KEPT = 32
"""Nodes of the pruned trees where the scenario prunes none (app. N.1)."""


@dataclass(frozen=True)
class StreamPoint:
    """One tree, whole (``kept`` None) or pruned to so many nodes."""

    branching: int
    nodes: int
    kept: int | None
    tokens_per_step: float
    """Beta, by replay."""
    step_ms: float
    tpot_ms: float
    speedup: float
    """Over autoregressive decoding, by replay."""
    step_cost: float
    """A step in units of a plain one (SS-11)."""


@dataclass(frozen=True)
class TwoModels:
    """Serial decoding with the scenario's draft and as long a window, beside the scenario's streams (Eq. 10)."""

    draft: str
    gamma: int
    latency_ratio: float
    """R = C_target / C_draft."""
    target_over_single: float
    """C_target / C_ss."""
    token_ratio: float
    """zeta / beta, both by replay."""
    speedup: float
    """Of streaming over it, by law."""


@dataclass(frozen=True)
class StreamStudy:
    """The sweep over k, and where the scenario lies on the plane; None without a draft model."""

    whole: tuple[StreamPoint, ...]
    pruned: tuple[StreamPoint, ...]
    """Trees that have no more nodes than are kept are in both."""
    emitted: tuple[float, ...]
    """Tokens per pass of the best path alone with 1, 2, ... streams: ``drafter.emitted`` of Mirror-SD (MSD-4)."""
    two_models: TwoModels | None


def stream_sweep(loaded: Loaded, branchings: Iterable[int] = BRANCHINGS) -> StreamStudy:
    """Whole trees of every k, pruned ones as far as they were recorded; BadInput without recorded streams."""
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, StreamTree) or loaded.trace is None:
        message = "expected a scenario of speculative_streaming with a trace that holds streams"
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "acceptance.trace", message)])
    shape, baseline = strategy.shape, run.simulated_baseline(loaded.scenario).tpot_s
    whole, pruned = [], []
    for branching in (one for one in branchings if tree_nodes(shape.streams, one) <= LARGEST_TREE):
        full = strategy.with_shape(shape._replace(branching=branching, kept=None))
        cut = strategy.with_shape(shape._replace(branching=branching, kept=shape.kept or KEPT))
        whole.append(_point(loaded.replace(strategy=full), full, baseline))
        if not cut.prunes:
            pruned.append(whole[-1])
        elif not any(cut.findings(Facts(trace=loaded.trace))):
            pruned.append(_point(loaded.replace(strategy=cut), cut, baseline))
    shapes = (shape._replace(streams=count, branching=1) for count in range(1, shape.streams + 1))
    chains = (strategy.with_shape(chain) for chain in shapes)
    emitted = (_replayed(loaded.replace(strategy=chain)).tokens_per_step for chain in chains)
    return StreamStudy(tuple(whole), tuple(pruned), tuple(emitted), _two_models(loaded, strategy))


def best(points: Iterable[StreamPoint]) -> StreamPoint:
    """The fastest."""
    return max(points, key=lambda point: point.speedup)


def fall(points: Sequence[StreamPoint]) -> StreamPoint | None:
    """The first tree behind the fastest that is slower than the first point, the chain; None if none is."""
    top = best(points)
    return next((one for one in points if one.branching > top.branching and one.speedup < points[0].speedup), None)


def _point(loaded: Loaded, strategy: StreamTree, baseline: float) -> StreamPoint:
    outcome = _replayed(loaded)
    speedup = baseline / outcome.tpot_s
    return StreamPoint(
        branching=strategy.shape.branching,
        nodes=strategy.nodes,
        kept=strategy.shape.kept,
        tokens_per_step=outcome.tokens_per_step,
        step_ms=outcome.step_s * 1e3,
        tpot_ms=outcome.tpot_s * 1e3,
        speedup=speedup,
        step_cost=float(relative_step_cost(outcome.tokens_per_step, speedup)),
    )


def _replayed(loaded: Loaded) -> Outcome:
    return run.replay(loaded.scenario, loaded.acceptance())


def _two_models(loaded: Loaded, strategy: StreamTree) -> TwoModels | None:
    """Serial decoding with a window as long as the streams."""
    scenario, gamma = loaded.scenario, strategy.shape.streams
    if scenario.draft is None:
        return None
    serial = loaded.replace(strategy=VanillaSD(gamma=gamma))
    zeta, beta = (_replayed(one).tokens_per_step for one in (serial, loaded))
    vanilla, kind = serial.scenario.schedule, Kind("step", scenario.batch)
    t = vanilla.durations(scenario.cost, vanilla.step(kind, scenario.mean_context))
    single = strategy.step_seconds(strategy.durations(scenario.cost, strategy.step(kind, scenario.mean_context)), kind)
    plane = {
        "latency_ratio": t.target / (t.draft / gamma),
        "target_over_single": t.target / single,
        "token_ratio": zeta / beta,
    }
    return TwoModels(scenario.draft.model.name, gamma, **plane, speedup=float(speedup_over_two_models(gamma, **plane)))


def summary(loaded: Loaded, study: StreamStudy) -> dict[str, Any]:
    """The study as plain data."""
    return {"scenario": loaded.scenario.name} | asdict(study)
