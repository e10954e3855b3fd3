r"""Width and branching of a pipeline's draft tree: what a token costs with every tree that a trace holds.

    ms per token |\_               _/    P(w) saturates, t(w) grows in steps of a token tile
                 |  \__     ______/
                 |     \___/
                 +-----------+-------- w
                            optimum

Each tree is replayed step by step (:mod:`simulator.pipeline_replay`) at the mean context, so that refills, full and partial,
cost what they cost; the law beside it is Eq. (1) with the tree's share of hits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import Replay
from simulator.cost import Rows
from simulator.draft_tree import Beam
from simulator.pipeline_laws import unequal_stages
from simulator.pipeline_replay import StepTables, token_seconds
from simulator.scenario import Loaded, Scenario
from simulator.schema import BadInput, Fault
from simulator.strategies.specpipe import SpecPipe
from simulator.traces import Trace
from simulator.tree_replay import Recording, recorded_beams

WITHIN = 2.0
"""Standard errors of the paired difference up to which two trees are told apart no more."""


@dataclass(frozen=True)
class TreePoint:
    """One tree: share of tokens in it, milliseconds per token by replay and by Eq. (1), and how it stands to the best."""

    width: int
    branching: int
    hit: float
    """Share of tokens that were in the tree."""
    tpot_ms: float
    error_ms: float
    """Standard error over recorded requests."""
    printed_ms: float
    """Eq. (1) with this share and full levels at every stage."""
    step_ms: float
    """A step with full levels."""
    behind_ms: float
    """Slower than the best tree by so much."""
    ties: bool
    """Not told apart from the best tree, request by request."""
    tile_edge: bool
    """The width fills whole token tiles on every device of the pipeline."""


def tree_sweep(loaded: Loaded) -> list[TreePoint]:
    """Every recorded tree for as many stages as the scenario has; BadInput without one.

    The first requests of a recording fill an empty pipeline, which counts.
    """
    scenario, trace = loaded.scenario, loaded.trace
    strategy = scenario.schedule
    beams = [beam for beam in recorded_beams(trace) if beam.stages == scenario.stages] if trace else []
    if not isinstance(strategy, SpecPipe) or trace is None or not beams:
        message = f"expected a scenario of specpipe with a trace that holds trees over {scenario.stages} stages"
        raise BadInput([Fault((scenario.name, 0, 0), "acceptance.trace", message)])
    replay = Replay(trace, scenario.acceptance.flavours, scenario.seed)
    found = {beam: _replayed(scenario, _with(strategy, beam), trace, beam, replay) for beam in beams}
    best = min(beams, key=lambda beam: float(found[beam][0].sum()))
    return [_point(scenario, _with(strategy, beam), *found[beam], found[best][0]) for beam in sorted(beams)]


def _with(strategy: SpecPipe, beam: Beam) -> SpecPipe:
    return strategy.model_copy(update={"width": beam.width, "branching": beam.branching})


def _replayed(
    scenario: Scenario, strategy: SpecPipe, trace: Trace, beam: Beam, replay: Replay
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Seconds and tokens of every request, and the share of hits."""
    index, tables = recorded_beams(trace).index(beam), StepTables.of(strategy, scenario.cost, scenario.mean_context)
    seconds, tokens, hits = [], [], 0
    for recording in replay.order:
        one = Recording(trace, recording)
        steps, hit, rows = (one.array(f"beam.{name}")[index].astype(np.int64) for name in ("steps", "hit", "rows"))
        waits = token_seconds(tables, steps, rows, hit.astype(bool), strategy.late)
        seconds.append(float(waits.sum()))
        tokens.append(len(waits))
        hits += int(hit.sum())
    return np.array(seconds), np.array(tokens), hits / sum(tokens)


def _point(
    scenario: Scenario,
    strategy: SpecPipe,
    seconds: NDArray[np.float64],
    tokens: NDArray[np.int64],
    hit: float,
    best: NDArray[np.float64],
) -> TreePoint:
    level = Rows.decode(strategy.width, scenario.mean_context)
    stages = [scenario.cost.stage(index, level).wall_s for index in range(scenario.stages)]
    kind = strategy.kind_of(1, 0, scenario.stages, 1)
    step = strategy.step_seconds(strategy.durations(scenario.cost, strategy.step(kind, scenario.mean_context)), kind)
    behind, error = _mean(seconds - best, tokens)
    mean, own_error = _mean(seconds, tokens)
    places = scenario.target.on_stages if scenario.target else ()
    tiled = [place.device.matmul_for(place.weights).tiled(strategy.width) for place in places]
    return TreePoint(
        width=strategy.width,
        branching=strategy.branching,
        hit=hit,
        tpot_ms=mean * 1e3,
        error_ms=own_error * 1e3,
        printed_ms=float(unequal_stages(stages, hit)) * 1e3,
        step_ms=step * 1e3,
        behind_ms=behind * 1e3,
        ties=behind <= WITHIN * error,
        tile_edge=bool(tiled) and all(tile == strategy.width for tile in tiled),
    )


def _mean(seconds: NDArray[np.float64], tokens: NDArray[np.int64]) -> tuple[float, float]:
    """Seconds per token over all requests, and its standard error from the spread between them."""
    mean = float(seconds.sum() / tokens.sum())
    spread = float(np.sqrt(np.sum((seconds - mean * tokens) ** 2)) / tokens.sum())
    return mean, spread * (len(tokens) / max(1, len(tokens) - 1)) ** 0.5
