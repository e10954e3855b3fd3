r"""Width and branching of a pipeline's draft tree: what a token costs with every tree that a trace holds.

    ms per token |\_               _/    P(w) saturates, t(w) grows in steps of a token tile
                 |  \__     ______/
                 |     \___/
                 +-----------+-------- w
                            optimum

Each tree is replayed step by step (:mod:`simulator.strategies.specpipe.replay`) at the mean context, so that refills, full and
partial, cost what they cost; the law beside it is Eq. (1) with the tree's share of
hits. Figures 9 and 10 of SpecPipe are made of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.draft_tree import Beam
from simulator.acceptance.sources import Replay
from simulator.acceptance.trace import Trace
from simulator.acceptance.tree_replay import Recording, recorded_beams
from simulator.cost.rows import Rows
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded, Scenario
from simulator.strategies.common.pipeline_laws import unequal_stages
from simulator.strategies.common.studied import LevelTree
from simulator.strategies.specpipe.replay import StepTables, token_seconds

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
    steps: float
    """Steps for a token, refills included: ``tpot_ms`` is so many times the mean step."""
    behind_ms: float
    """Slower than the best tree by so much."""
    behind_error_ms: float
    """Standard error of that, request by request."""
    ties: bool
    """Not told apart from the best tree, request by request."""
    tile_edge: bool
    """The width fills whole token tiles on every device of the pipeline."""

    @property
    def mean_step_ms(self) -> float:
        """Of all steps, those of refills included."""
        return self.tpot_ms / self.steps


@dataclass(frozen=True)
class LevelTimes:
    """t(w) at the mean context, as Figure 9 has it; by rows of a level from 1 on, in milliseconds."""

    body_ms: NDArray[np.float64]
    """The slowest of all stages but the last."""
    last_ms: float
    """The last stage with its LM head: one row is left of the level whose token is due."""
    step_ms: NDArray[np.float64]
    """A step with full levels."""
    tiles: tuple[int, ...]
    """Rows that fill whole token tiles on every device."""

    @property
    def hidden_rows(self) -> int:
        """Rows up to which a level takes no longer than the last stage; 0 if it always does."""
        return int(np.searchsorted(self.body_ms, self.last_ms, side="right"))


@dataclass(frozen=True)
class TreeStudy:
    """All recorded trees of one scenario, and what a level of so many rows takes."""

    scenario: str
    points: list[TreePoint]
    levels: LevelTimes

    @property
    def best(self) -> TreePoint:
        """The tree with the least time per token."""
        return min(self.points, key=lambda point: point.behind_ms)

    @property
    def interval(self) -> tuple[TreePoint | None, TreePoint | None]:
        """The best trees of the next narrower and the next wider width that are told apart from the best of all.

        The optimum lies between the two; None where no such width was recorded.
        """
        of_width: dict[int, TreePoint] = {}
        for point in sorted(self.points, key=lambda point: point.behind_ms):
            of_width.setdefault(point.width, point)
        told = sorted((point for point in of_width.values() if not point.ties), key=lambda point: point.width)
        below = [point for point in told if point.width < self.best.width]
        above = [point for point in told if point.width > self.best.width]
        return below[-1] if below else None, above[0] if above else None

    def find(self, width: int, branching: int) -> TreePoint | None:
        """One recorded tree."""
        return next((one for one in self.points if (one.width, one.branching) == (width, branching)), None)


def tree_study(loaded: Loaded) -> TreeStudy:
    """Every recorded tree and the times of levels up to the widest of them; raises as :func:`tree_sweep`."""
    points = tree_sweep(loaded)
    return TreeStudy(loaded.scenario.name, points, _levels(loaded.scenario, max(point.width for point in points)))


def _levels(scenario: Scenario, widest: int) -> LevelTimes:
    strategy = scenario.schedule
    if not isinstance(strategy, LevelTree):
        raise TypeError(f"{strategy.name} has no levels")
    strategy = strategy.with_tree(widest, strategy.beam.branching)
    tables, rows = StepTables.of(strategy, scenario.cost, scenario.mean_context), np.arange(1, widest + 1)
    loads = np.array([rows] * (scenario.stages - 1) + [np.ones_like(rows)])
    step = tables.step(loads, np.ones(widest, dtype=bool))
    filled = tuple(width for width in range(1, widest + 1) if _tile_edge(scenario, width))
    return LevelTimes(tables.stages[:-1, 1:].max(axis=0) * 1e3, float(tables.stages[-1, 1]) * 1e3, step * 1e3, filled)


def _tile_edge(scenario: Scenario, width: int) -> bool:
    places = scenario.target.on_stages if scenario.target else ()
    return bool(places) and all(place.device.matmul_for(place.weights).filled(width) == width for place in places)


def tree_sweep(loaded: Loaded) -> list[TreePoint]:
    """Every recorded tree for as many stages as the scenario has; BadInput without one.

    The first requests of a recording fill an empty pipeline, which counts.
    """
    scenario, trace = loaded.scenario, loaded.trace
    strategy = scenario.schedule
    beams = [beam for beam in recorded_beams(trace) if beam.stages == scenario.stages] if trace else []
    if not isinstance(strategy, LevelTree) or not strategy.steps_together or trace is None or not beams:
        held = f"trees over its {scenario.stages} stages" if scenario.stages else "trees, and with stages"
        message = f"expected a scenario of specpipe, with a trace that holds {held}; this one is of {strategy.name}"
        raise BadInput([Fault((scenario.name, 0, 0), "acceptance.trace", message)])
    replay = Replay(trace, scenario.acceptance.flavours, scenario.seed)
    found = {beam: _replayed(scenario, strategy.with_tree(beam.width, beam.branching), trace, beam, replay) for beam in beams}
    best = min(beams, key=lambda beam: float(found[beam].seconds.sum()))
    return [
        _point(scenario, strategy.with_tree(beam.width, beam.branching), found[beam], found[best].seconds)
        for beam in sorted(beams)
    ]


class _Replayed(NamedTuple):
    """By request: seconds and tokens; over all of them: hits and steps."""

    seconds: NDArray[np.float64]
    tokens: NDArray[np.int64]
    hits: int
    steps: int


def _replayed(scenario: Scenario, strategy: LevelTree, trace: Trace, beam: Beam, replay: Replay) -> _Replayed:
    index, tables = recorded_beams(trace).index(beam), StepTables.of(strategy, scenario.cost, scenario.mean_context)
    seconds, tokens, hits, passed = [], [], 0, 0
    for recording in replay.order:
        one = Recording(trace, recording)
        steps, hit, rows = (one.array(f"beam.{name}")[index].astype(np.int64) for name in ("steps", "hit", "rows"))
        waits = token_seconds(tables, steps, rows, hit.astype(bool), strategy.notices_late)
        seconds.append(float(waits.sum()))
        tokens.append(len(waits))
        hits += int(hit.sum())
        passed += int(steps.sum()) + strategy.notices_late * int((1 - hit[:-1]).sum())
    return _Replayed(np.array(seconds), np.array(tokens), hits, passed)


def _point(scenario: Scenario, strategy: LevelTree, found: _Replayed, best: NDArray[np.float64]) -> TreePoint:
    level = Rows.decode(strategy.beam.width, scenario.mean_context)
    stages = [scenario.cost.stage(index, level).wall_s for index in range(scenario.stages)]
    seconds, tokens = found.seconds, found.tokens
    behind, error = _mean(seconds - best, tokens)
    mean, own_error = _mean(seconds, tokens)
    hit = found.hits / int(tokens.sum())
    return TreePoint(
        width=strategy.beam.width,
        branching=strategy.beam.branching,
        hit=hit,
        tpot_ms=mean * 1e3,
        error_ms=own_error * 1e3,
        printed_ms=float(unequal_stages(stages, hit)) * 1e3,
        step_ms=strategy.full_step_s(scenario.cost, scenario.mean_context) * 1e3,
        steps=found.steps / int(tokens.sum()),
        behind_ms=behind * 1e3,
        behind_error_ms=error * 1e3,
        ties=behind <= WITHIN * error,
        tile_edge=_tile_edge(scenario, strategy.beam.width),
    )


def _mean(seconds: NDArray[np.float64], tokens: NDArray[np.int64]) -> tuple[float, float]:
    """Seconds per token over all requests, and its standard error from the spread between them."""
    mean = float(seconds.sum() / tokens.sum())
    spread = float(np.sqrt(np.sum((seconds - mean * tokens) ** 2)) / tokens.sum())
    return mean, spread * (len(tokens) / max(1, len(tokens) - 1)) ** 0.5
