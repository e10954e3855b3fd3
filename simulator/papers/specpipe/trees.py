r"""Width and branching of a pipeline's draft tree: what a token costs with all trees that a trace
holds.

    ms per token |\_               _/    P(w) saturates, t(w) grows in steps of a token tile
                 |  \__     ______/
                 |     \___/
                 +-----------+-------- w
                            optimum

Trees are replayed step by step (:mod:`simulator.papers.specpipe.replay`) at the mean
context, so that refills, full and partial, cost what they cost; the law to compare with is Eq. (1)
with the tree's share of hits. Figures 9 and 10 of SpecPipe are made of this.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import Recording, recorded_beams
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies.common.pipeline_laws import unequal_stages
from simulator.papers.specpipe.replay import StepTables, token_seconds
from simulator.papers.specpipe.strategy import SpecPipe
from simulator.scenario import Loaded, Scenario

WITHIN = 2.0
"""Standard errors of the paired difference up to which two trees tie."""


@dataclass(frozen=True)
class TreePoint:
    """Holds a tree: share of tokens in it, milliseconds per token by replay and by Eq. (1), and how
    it stands to the best.
    """

    width: int
    branching: int
    hit: float
    """The share of tokens that were in the tree."""
    tpot_ms: float
    error_ms: float
    """Standard error of the time per token over recorded requests, in ms."""
    printed_ms: float
    """Time per token in ms by Eq. (1), with this share and full levels at all stages."""
    step_ms: float
    """Time in ms of a step with full levels."""
    steps: float
    """Steps per token, refills included: ``tpot_ms`` is so many times the mean step."""
    behind_ms: float
    """Time per token in ms by which the tree is slower than the best."""
    behind_error_ms: float
    """Standard error of that difference in ms, request by request."""
    ties: bool
    """Whether the tree differs from the best by no more than chance, request by request."""
    tile_edge: bool
    """Whether the width fills whole token tiles on all devices of the pipeline."""

    @property
    def mean_step_ms(self) -> float:
        """Return the mean of all steps in ms, those of refills included."""
        return self.tpot_ms / self.steps


@dataclass(frozen=True)
class LevelTimes:
    """Holds t(w) at the mean context, as in Figure 9; by rows of a level from 1 on, in
    milliseconds.
    """

    body_ms: NDArray[np.float64]
    """Time in ms of the slowest of all stages but the last, by rows of a level."""
    last_ms: float
    """Time in ms of the last stage with its LM head: a single row is left of the level whose token
    is due.
    """
    step_ms: NDArray[np.float64]
    """Time in ms of a step with full levels, by rows of a level."""
    tiles: tuple[int, ...]
    """Rows of a level that fill whole token tiles on all devices."""

    @property
    def hidden_rows(self) -> int:
        """Return the rows up to which every level takes no longer than the last stage; wider ones
        may hide again (tiles).
        """
        longer = np.flatnonzero(self.body_ms > self.last_ms)
        if longer.size:
            return int(longer[0])
        return len(self.body_ms)


@dataclass(frozen=True)
class TreeStudy:
    """Holds all recorded trees of a scenario, and the time of a level by its rows."""

    scenario: str
    points: list[TreePoint]
    levels: LevelTimes

    @property
    def best(self) -> TreePoint:
        """Return the tree with the least time per token."""
        return min(self.points, key=lambda point: point.behind_ms)

    @property
    def interval(self) -> tuple[TreePoint | None, TreePoint | None]:
        """Return the best trees of the next narrower and the next wider width that do not tie with
        the best of all.

        The optimum lies between the two; None where no such width was recorded.
        """
        of_width: dict[int, TreePoint] = {}
        for point in sorted(self.points, key=lambda point: point.behind_ms):
            of_width.setdefault(point.width, point)
        distinct = [point for point in of_width.values() if not point.ties]
        optimum = self.best.width
        below = [point for point in distinct if point.width < optimum]
        above = [point for point in distinct if point.width > optimum]
        lower = max(below, key=lambda point: point.width, default=None)
        upper = min(above, key=lambda point: point.width, default=None)
        return lower, upper

    def find(self, width: int, branching: int) -> TreePoint | None:
        """Return the recorded tree of this width and branching; None where it was not recorded."""
        for point in self.points:
            if point.width == width and point.branching == branching:
                return point
        return None


@dataclass(frozen=True)
class TreeStudies:
    """Holds the tree studies of several scenarios, in the order asked for."""

    studies: tuple[TreeStudy, ...]

    def as_data(self) -> PlainData:
        """Return the recorded trees of all scenarios as plain data."""
        rows = []
        for study in self.studies:
            trees = [asdict(point) for point in study.points]
            rows.append({"scenario": study.scenario, "trees": trees})
        return {"studies": rows}


def study(loaded: Sequence[Loaded]) -> TreeStudies:
    """Return the tree study of the scenarios; raises as :func:`tree_sweep`."""
    studies = [tree_study(scenario) for scenario in counted(loaded, "scenarios")]
    return TreeStudies(tuple(studies))


def tree_study(loaded: Loaded) -> TreeStudy:
    """Return all recorded trees and the times of levels up to the widest of them; raises as
    :func:`tree_sweep`.
    """
    scenario = loaded.scenario
    points = tree_sweep(loaded)
    widest = max(point.width for point in points)
    return TreeStudy(scenario.name, points, _levels(scenario, widest))


def _levels(scenario: Scenario, widest: int) -> LevelTimes:
    strategy = scenario.schedule
    if not isinstance(strategy, SpecPipe):
        raise TypeError(f"{strategy.name} has no levels")
    strategy = strategy.with_tree(widest, strategy.beam.branching)
    tables = StepTables.of(strategy, scenario.cost, scenario.mean_context)
    rows = np.arange(1, widest + 1)
    full = [rows] * (scenario.stages - 1)
    single_row = np.ones_like(rows)
    loads = np.array([*full, single_row])
    drafting = np.ones(widest, dtype=bool)
    step_s = tables.step(loads, drafting)
    slowest_s = tables.stages[:-1, 1:].max(axis=0)
    last_s = float(tables.stages[-1, 1])
    filled = [width for width in range(1, widest + 1) if _tile_edge(scenario, width)]
    return LevelTimes(slowest_s * 1e3, last_s * 1e3, step_s * 1e3, tuple(filled))


def _tile_edge(scenario: Scenario, width: int) -> bool:
    """Return whether a width fills whole token tiles on all devices of the pipeline."""
    places = scenario.target.on_stages if scenario.target else ()
    for place in places:
        products = place.device.matmul_for(place.weights)
        if products.filled(width) != width:
            return False
    return bool(places)


def tree_sweep(loaded: Loaded) -> list[TreePoint]:
    """Return all recorded trees for as many stages as the scenario has.

    The first requests of a recording fill an empty pipeline, which counts. Raises :class:`BadInput`
    without such a tree.
    """
    scenario = loaded.scenario
    trace = loaded.trace
    strategy = scenario.schedule
    if trace:
        beams = [beam for beam in recorded_beams(trace) if beam.stages == scenario.stages]
    else:
        beams = []
    if not isinstance(strategy, SpecPipe) or trace is None or not beams:
        if scenario.stages:
            held = f"trees over its {scenario.stages} stages"
        else:
            held = "trees, and with stages"
        message = (
            f"expected a scenario of specpipe, with a trace that holds {held}; this one is of "
            f"{strategy.name}"
        )
        raise BadInput.at(scenario.name, message, "acceptance.trace")
    replay = Replay(trace, scenario.acceptance.flavours, scenario.seed)
    trees = {beam: strategy.with_tree(beam.width, beam.branching) for beam in sorted(beams)}
    replays = {}
    for beam, tree in counted(trees.items(), "trees"):
        replays[beam] = _replayed(scenario, tree, trace, beam, replay)
    totals = {beam: float(replays[beam].seconds.sum()) for beam in beams}
    best = min(beams, key=lambda beam: totals[beam])
    fastest = replays[best].seconds
    return [_point(scenario, tree, replays[beam], fastest) for beam, tree in trees.items()]


class _Replayed(NamedTuple):
    """Holds seconds and tokens by request, and hits and steps over all of them."""

    seconds: NDArray[np.float64]
    tokens: NDArray[np.int64]
    hits: int
    steps: int


def _replayed(
    scenario: Scenario, strategy: SpecPipe, trace: Trace, beam: Beam, replay: Replay
) -> _Replayed:
    index = recorded_beams(trace).index(beam)
    tables = StepTables.of(strategy, scenario.cost, scenario.mean_context)
    seconds = []
    tokens = []
    hits = 0
    passed = 0
    for recording in replay.order:
        recorded = Recording(trace, recording)
        steps = recorded.array("beam.steps")[index].astype(np.int64)
        hit = recorded.array("beam.hit")[index].astype(bool)
        rows = recorded.array("beam.rows")[index].astype(np.int64)
        waits = token_seconds(tables, steps, rows, hit, strategy.late)
        seconds.append(float(waits.sum()))
        tokens.append(len(waits))
        hits += int(hit.sum())
        refills = int((~hit[:-1]).sum())
        passed += int(steps.sum()) + strategy.late * refills
    return _Replayed(np.array(seconds), np.array(tokens), hits, passed)


def _point(
    scenario: Scenario, strategy: SpecPipe, replayed: _Replayed, best: NDArray[np.float64]
) -> TreePoint:
    beam = strategy.beam
    cost = scenario.cost
    context = scenario.mean_context
    level = Rows.decode(beam.width, context)
    stages = [cost.stage(index, level).wall_s for index in range(scenario.stages)]
    seconds = replayed.seconds
    tokens = replayed.tokens
    all_tokens = int(tokens.sum())
    behind, error = _mean(seconds - best, tokens)
    mean, mean_error = _mean(seconds, tokens)
    hit = replayed.hits / all_tokens
    printed = float(unequal_stages(stages, hit))
    step = strategy.full_step_s(cost, context)
    return TreePoint(
        width=beam.width,
        branching=beam.branching,
        hit=hit,
        tpot_ms=mean * 1e3,
        error_ms=mean_error * 1e3,
        printed_ms=printed * 1e3,
        step_ms=step * 1e3,
        steps=replayed.steps / all_tokens,
        behind_ms=behind * 1e3,
        behind_error_ms=error * 1e3,
        ties=behind <= WITHIN * error,
        tile_edge=_tile_edge(scenario, beam.width),
    )


def _mean(seconds: NDArray[np.float64], tokens: NDArray[np.int64]) -> tuple[float, float]:
    """Return seconds per token over all requests, and their standard error from the spread between
    requests.
    """
    requests = len(tokens)
    all_tokens = tokens.sum()
    mean = float(seconds.sum() / all_tokens)
    residuals = seconds - mean * tokens
    spread = float(np.sqrt(np.sum(residuals**2)) / all_tokens)
    small_sample = requests / max(1, requests - 1)
    return mean, spread * small_sample**0.5
