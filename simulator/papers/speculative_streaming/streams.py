r"""Speculative Streaming over its tree factor k, and compared with two-model decoding (Figures 10
and 20).

    speed-up |   _/\__ pruned      more tokens a stream, more kept; but the tree grows as k^gamma,
             | _/ \   \__        until the pass is bound by compute. Pruning spares the top layers,
             |/    \__   \         so that the fall comes later.
             +--------------- k

Trees are replayed on what was recorded of them. The plane is Eq. (10), at the costs of the
scenario.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from simulator.core.acceptance.tree_replay import LARGEST_TREE
from simulator.core.faults import BadInput
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.traits import Facts
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.speculative_streaming.laws import (
    relative_step_cost,
    speedup_over_two_models,
    tree_nodes,
)
from simulator.papers.speculative_streaming.strategy import SpeculativeStreaming
from simulator.scenario import Loaded, evaluate
from simulator.scenario.outcome import Outcome

BRANCHINGS = range(1, 9)
KEPT = 32
"""Nodes of the pruned trees where the scenario prunes none (app. N.1)."""


@dataclass(frozen=True)
class StreamPoint:
    """Holds a tree, whole (``kept`` None) or pruned to so many nodes."""

    branching: int
    nodes: int
    kept: int | None
    tokens_per_step: float
    """Beta, the tokens of a step by replay."""
    step_ms: float
    tpot_ms: float
    speedup: float
    """Speed-up over autoregressive decoding, by replay."""
    step_cost: float
    """Time of a step in units of an autoregressive step (SS-11)."""


@dataclass(frozen=True)
class TwoModels:
    """Compares the scenario's streams with serial decoding by its draft and as long a window (Eq.
    10).
    """

    draft: str
    gamma: int
    latency_ratio: float
    """R = C_target / C_draft, a ratio of times."""
    target_over_single: float
    """C_target / C_ss, a ratio of times."""
    token_ratio: float
    """zeta / beta, the tokens per step of two models over those of the streams, both by replay."""
    speedup: float
    """Speed-up of streaming over two models, by law."""


@dataclass(frozen=True)
class StreamStudy:
    """Holds the sweep over k, and where the scenario lies on the plane; None without a draft
    model.
    """

    scenario: str
    whole: tuple[StreamPoint, ...]
    pruned: tuple[StreamPoint, ...]
    """Trees that have no more nodes than are kept are in both."""
    emitted: tuple[float, ...]
    """Tokens per pass of the best path alone with 1, 2, ... streams: ``drafter.emitted`` of
    Mirror-SD (MSD-4).
    """
    two_models: TwoModels | None

    def as_data(self) -> PlainData:
        """Return the study as plain data."""
        return asdict(self)


def study(loaded: Sequence[Loaded]) -> StreamStudy:
    """Return the stream study of the only scenario; raises as :func:`stream_sweep`."""
    (scenario,) = loaded
    return stream_sweep(scenario)


def stream_sweep(loaded: Loaded, branchings: Iterable[int] = BRANCHINGS) -> StreamStudy:
    """Return whole trees of all k, and pruned ones as far as they were recorded.

    Raises :class:`BadInput` without recorded streams.
    """
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, SpeculativeStreaming) or loaded.trace is None:
        message = "expected a scenario of speculative_streaming with a trace that holds streams"
        raise BadInput.at(loaded.scenario.name, message, "acceptance.trace")
    autoregressive = evaluate.plain(loaded.scenario)
    plain, _ = evaluate.simulate(autoregressive, evaluate.NO_DRAFTS)
    baseline = plain.tpot_s
    facts = Facts(trace=loaded.trace)
    kept = strategy.kept or KEPT
    whole = []
    pruned = []
    for branching in counted(branchings, "trees"):
        if tree_nodes(strategy.streams, branching) > LARGEST_TREE:
            continue
        full = strategy.model_copy(update={"branching": branching, "kept": None})
        cut = strategy.model_copy(update={"branching": branching, "kept": kept})
        whole_tree = _point(loaded, full, baseline)
        whole.append(whole_tree)
        if not cut.prunes:
            pruned.append(whole_tree)
        elif not any(cut.findings(facts)):
            pruned.append(_point(loaded, cut, baseline))
    emitted = []
    for count in range(1, strategy.streams + 1):
        chain = strategy.model_copy(update={"streams": count, "branching": 1})
        replayed = _replayed(loaded.replace(strategy=chain))
        emitted.append(replayed.tokens_per_step)
    name = loaded.scenario.name
    plane = _two_models(loaded, strategy)
    return StreamStudy(name, tuple(whole), tuple(pruned), tuple(emitted), plane)


def best(points: Iterable[StreamPoint]) -> StreamPoint:
    """Return the point with the largest speed-up."""
    return max(points, key=lambda point: point.speedup)


def fall(points: Sequence[StreamPoint]) -> StreamPoint | None:
    """Return the first tree behind the fastest that is slower than the first point, the chain; None
    without such a tree.
    """
    top = best(points)
    chain = points[0]
    for point in points:
        if point.branching > top.branching and point.speedup < chain.speedup:
            return point
    return None


def _point(loaded: Loaded, strategy: SpeculativeStreaming, baseline: float) -> StreamPoint:
    """Return the point of the streams of ``strategy`` in the place of the scenario's."""
    outcome = _replayed(loaded.replace(strategy=strategy))
    speedup = baseline / outcome.tpot_s
    step_cost = float(relative_step_cost(outcome.tokens_per_step, speedup))
    return StreamPoint(
        branching=strategy.branching,
        nodes=strategy.nodes,
        kept=strategy.kept,
        tokens_per_step=outcome.tokens_per_step,
        step_ms=outcome.step_s * 1e3,
        tpot_ms=outcome.tpot_s * 1e3,
        speedup=speedup,
        step_cost=step_cost,
    )


def _replayed(loaded: Loaded) -> Outcome:
    return evaluate.replay(loaded.scenario, loaded.acceptance())


def _two_models(loaded: Loaded, strategy: SpeculativeStreaming) -> TwoModels | None:
    """Return the comparison with serial decoding in windows as long as the streams; None without a
    draft model.
    """
    scenario = loaded.scenario
    gamma = strategy.streams
    if scenario.draft is None:
        return None
    serial = loaded.replace(strategy=VanillaSD(gamma=gamma))
    zeta = _replayed(serial).tokens_per_step
    beta = _replayed(loaded).tokens_per_step
    cost = scenario.cost
    context = scenario.mean_context
    kind = Kind("step", scenario.batch)
    vanilla = serial.scenario.schedule
    of_vanilla = vanilla.durations(cost, vanilla.step(kind, context))
    of_streams = strategy.durations(cost, strategy.step(kind, context))
    target_s = of_vanilla.target
    draft_s = of_vanilla.draft / gamma
    single_s = strategy.step_seconds(of_streams, kind)
    plane = {
        "latency_ratio": target_s / draft_s,
        "target_over_single": target_s / single_s,
        "token_ratio": zeta / beta,
    }
    speedup = float(speedup_over_two_models(gamma, **plane))
    return TwoModels(scenario.draft.model.name, gamma, **plane, speedup=speedup)
