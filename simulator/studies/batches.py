"""The batch study: what speculation is worth when so many requests decode together (Mirror-SD App.
D.1).

    speed-up |``--..__
           1 |--------``--..___   a larger batch verifies more rows, until compute binds the pass:
             +----------------------  B       a step up wherever the rows fill another tile

Every size is a closed loop of B clients with equal requests on the scenario's hardware, compared
with autoregressive decoding for the same clients. Those for which a cache has no room wait; the
draft and its cache take room from the batch. The scenario's strategy is set for as many as run
(Mirror-SD's ``batching_rule``, an adaptive window); vanilla speculative decoding is shown as well,
with the scenario's draft and window.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Acceptance, odds_of
from simulator.core.cost.protocol import Cost
from simulator.core.faults import BadInput
from simulator.core.numeric import ordered_sum
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies import strategies
from simulator.core.strategies.common.capabilities import DerivesNumbers, DraftsChain
from simulator.core.strategies.common.step import Kind
from simulator.scenario import Loaded, Scenario, evaluate
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.by_law import by_law
from simulator.scenario.decision.verdict import verdict
from simulator.scenario.uncertain.draws import Interval, interval
from simulator.scenario.uncertain.intervals import (
    BY_NAME,
    SHARES,
    doubts_of,
    drawn_together,
    intervals_data,
    values_by_law,
)
from simulator.studies.window import main_kind, serial_drafting

SIZES = range(1, 65)
SIMULATED = (1, 2, 4, 8, 16, 32, 64, 128)
TURNS = 4
"""Simulated requests per place of the batch, or as many as the scenario has where that is more."""
DERIVED = (
    *("verdict", "break_even", "speedup", "vanilla_speedup"),
    *("simulated_speedup", "simulated_vanilla_speedup", "law_tokens_per_s"),
)
"""Properties of a point that plain data has too."""


@runtime_checkable
class AddsToBatches(Protocol):
    """A strategy with this capability has numbers of its own at every batch size."""

    @classmethod
    def batch_columns(cls) -> tuple[str, ...]:
        """Return the columns of these numbers, which every row of plain data has."""
        ...

    def batch_extra(self, cost: Cost, requests: int, context: int) -> Mapping[str, float]:
        """Return the numbers by column for so many ``requests`` at ``context`` cached tokens each;
        columns without a number are left out.
        """
        ...


def added_columns() -> list[str]:
    """Return the columns that any strategy adds to the study."""
    columns: list[str] = []
    for strategy in strategies().values():
        if issubclass(strategy, AddsToBatches):
            columns += strategy.batch_columns()
    return columns


class LawAtBatch(NamedTuple):
    """Holds a batch size by law: the rows that verify it, and the speed-up over autoregressive
    decoding of the same batch.
    """

    batch: int
    verify_rows: int
    speedup: float


@dataclass(frozen=True)
class BatchPoint:
    """Holds what a batch size comes to; times in milliseconds, None where there is nothing to
    say.
    """

    batch: int
    gamma: int
    """The window of the scenario's strategy at this size, in draft tokens."""
    settings: str
    """Further settings that the strategy takes from the batch size, in words."""
    baseline_tpot_ms: float
    """Time per token of autoregressive decoding in ms, by law."""
    decode_ms: float
    """Time in ms of a pass of the target over a single row of all requests."""
    verify_rows: int
    verify_ms: float
    """Time in ms of a pass of the target over the windows of all requests."""
    draft_ms: float
    """T_draft of the main step kind in ms."""
    law_tpot_ms: float
    tokens_per_step: float
    """Verified tokens of a step, by law."""
    running: int
    """Requests that run at a time; the other clients wait for room in the cache."""
    baseline_running: int
    """The same of autoregressive decoding, which has the room of the draft and its cache, too."""
    vanilla_running: int | None = None
    """The same of vanilla speculative decoding."""
    speedup_interval: Interval | None = None
    """Between which 90 % of the draws of the speed-up by law lie, over all that is not known for
    certain.
    """
    times_interval: Interval | None = None
    """The same with acceptance as it is stated: over devices, hosts, rows of a verification and
    experts read.
    """
    chance: float | None = None
    """Chance that the strategy is faster than autoregressive decoding, as a share of 1: in output
    tokens per second, simulated.
    """
    intervals: PlainData = field(default_factory=dict)
    """Intervals of step, time per token, rate and speed-up by law
    (:func:`simulator.scenario.uncertain.intervals.intervals_data`).
    """
    log_changes: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)
    """Draws of the log change of the speed-up; the same deviates at every size."""
    unmatched: float = 0.0
    """Share of steps in which look-up finds nothing to propose."""
    vanilla_tpot_ms: float | None = None
    """Time per token of vanilla speculative decoding in ms, by law."""
    exposed_draft_ms: float | None = None
    relative_draft_overhead: float | None = None
    """Exposed draft time over the draft time of vanilla speculative decoding (MSD-11), a ratio."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the strategy's own, by column."""
    simulated_requests: int = 0
    simulated_tokens_per_s: float | None = None
    simulated_vanilla_tokens_per_s: float | None = None
    simulated_baseline_tokens_per_s: float | None = None

    @property
    def law_tokens_per_s(self) -> float:
        """Return the tokens per second of all requests together by law; prefills are left out."""
        return self.running / self.law_tpot_ms * 1e3

    @property
    def baseline_tokens_per_s(self) -> float:
        """Return the same of autoregressive decoding."""
        return self.baseline_running / self.baseline_tpot_ms * 1e3

    @property
    def speedup(self) -> float:
        """Return the time per token of autoregressive decoding over the strategy's, by law, times
        the ratio of the requests that run.
        """
        more_running = self.running / self.baseline_running
        return self.baseline_tpot_ms / self.law_tpot_ms * more_running

    @property
    def verdict(self) -> str:
        """Return whether the strategy helps, may hurt or hurts; empty without a chance."""
        if self.chance is None:
            return ""
        return verdict(self.chance)

    @property
    def break_even(self) -> tuple[float, float, float] | None:
        """Return the chance that each draft token must have for a speed-up of 1: at the law's time
        of a step, and at both ends.

        More than 1: no acceptance pays. For chains of ``gamma`` tokens, kept with the same chance
        each where there is a match.
        """
        # nothing is proposed that a chance could keep
        if self.times_interval is None or not self.gamma or self.unmatched == 1.0:
            return None
        low, high = self.times_interval
        means = (self.tokens_per_step / speedup for speedup in (self.speedup, high, low))
        best, least, most = (
            chance_for((mean - self.unmatched) / (1.0 - self.unmatched), self.gamma)
            for mean in means
        )
        return best, least, most

    @property
    def vanilla_speedup(self) -> float | None:
        """Return the speed-up of vanilla speculative decoding, by law."""
        if self.vanilla_tpot_ms is None or self.vanilla_running is None:
            return None
        more_running = self.vanilla_running / self.baseline_running
        return self.baseline_tpot_ms / self.vanilla_tpot_ms * more_running

    @property
    def simulated_speedup(self) -> float | None:
        """Return output tokens per second over those of autoregressive decoding, simulated,
        prefills included in both.
        """
        return _ratio(self.simulated_tokens_per_s, self.simulated_baseline_tokens_per_s)

    @property
    def simulated_vanilla_speedup(self) -> float | None:
        """Return the speed-up of vanilla speculative decoding, simulated, prefills included in
        both.
        """
        return _ratio(self.simulated_vanilla_tokens_per_s, self.simulated_baseline_tokens_per_s)


def chance_for(tokens_per_step: float, gamma: int) -> float:
    """Return the chance a of each of ``gamma`` draft tokens with 1 + a + ... + a^gamma tokens per
    step; above 1 where a is.
    """
    if tokens_per_step <= 1.0:
        return 0.0
    roots = np.roots([*[1.0] * gamma, 1.0 - tokens_per_step])
    return float(
        min((root for root in roots if root.real > 0.0), key=lambda root: abs(root.imag)).real
    )


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or below is None:
        return None
    return above / below


@dataclass(frozen=True)
class BatchStudy:
    """Holds the swept batch sizes of a scenario."""

    scenario: Scenario
    points: tuple[BatchPoint, ...]
    tile_edges: tuple[int, ...]
    """Swept sizes at which the rows of a verification first need a further tile."""
    decision: Decision | None
    """Whether to switch speculation on at the scenario's own batch; None where nothing is
    drafted."""

    def as_data(self) -> PlainData:
        """Return the study as plain data."""
        return {
            "scenario": self.scenario.name,
            "strategy": self.scenario.strategy.name,
            "decision": self.decision and self.decision.as_data(),
            "crossover": dict(zip(("first", "for_good"), crossover(self.points), strict=True)),
            "crossover_interval": self._crossover_intervals(),
            "tile_edges": list(self.tile_edges),
            "batches": [self._row(point) for point in self.points],
        }

    def _crossover_intervals(self) -> PlainData:
        """Return the intervals of the first size, by share of the draws in per cent."""
        data: PlainData = {}
        for share in SHARES:
            ends = crossover_interval(self.points, share)
            data[f"{100 * share:.0f}"] = ends and ends._asdict()
        return data

    @staticmethod
    def _row(point: BatchPoint) -> PlainData:
        row: PlainData = {}
        for name, value in asdict(point).items():
            if name == "log_changes":
                continue
            if name == "extra":
                row |= dict.fromkeys(added_columns()) | value
            elif isinstance(value, tuple):
                row[name] = list(value)
            else:
                row[name] = value
        for name in DERIVED:
            value = getattr(point, name)
            row[name] = list(value) if isinstance(value, tuple) else value
        return row


@dataclass(frozen=True)
class BatchStudies:
    """Holds the batch studies of several scenarios, in the order asked for."""

    studies: tuple[BatchStudy, ...]

    def as_data(self) -> PlainData:
        """Return plain data: of a single scenario as it is, of several as a list ``studies``."""
        rows = [study.as_data() for study in self.studies]
        if len(rows) == 1:
            return rows[0]
        return {"studies": rows}


def study(
    loaded: Sequence[Loaded], sizes: Iterable[int] = SIZES, simulated: Collection[int] = SIMULATED
) -> BatchStudies:
    """Return the batch study of the scenarios, by law at ``sizes`` and simulated at those that are
    in ``simulated`` too.
    """
    studies = []
    for scenario in loaded:
        points = tuple(batch_sweep(scenario, sizes, simulated))
        edges = tuple(tile_edges(scenario, points))
        studies.append(BatchStudy(scenario.scenario, points, edges, _decided(scenario, points)))
    return BatchStudies(tuple(studies))


def _decided(loaded: Loaded, points: Iterable[BatchPoint]) -> Decision | None:
    """Return the decision at the scenario's own batch, by output tokens per second where that size
    was simulated.
    """
    clients = loaded.scenario.asked_batch
    throughput = None
    for point in points:
        if point.batch == clients:
            throughput = point.simulated_speedup
    return by_law(evaluate.tuned(loaded), throughput=throughput).decision


def batch_sweep(
    loaded: Loaded, sizes: Iterable[int] = SIZES, simulate_at: Collection[int] = SIMULATED
) -> list[BatchPoint]:
    """Return a point for every size, by law, and simulated where also in ``simulate_at``; clients
    for which the cache has no room wait.
    """
    acceptance = loaded.acceptance()
    points = []
    for size in counted(sizes, "batches"):
        tuned = evaluate.tuned(at_size(loaded, size))
        point = _point(tuned.scenario, acceptance, size in simulate_at)
        if size in simulate_at:
            doubts = dict(zip(BY_NAME, doubts_of(tuned, (), [*BY_NAME.values()]), strict=True))
            drawn = drawn_together(values_by_law(tuned), doubts)
            draws = drawn["speedup"]
            without = doubts["speedup"]._replace(acceptance=(0.0, 0.0))
            simulated = draws._replace(value=point.simulated_speedup or point.speedup)
            point = replace(
                point,
                speedup_interval=draws.interval(),
                times_interval=interval(point.speedup, without),
                chance=simulated.chance_above(1.0) if point.gamma else None,
                intervals=intervals_data(drawn),
                log_changes=draws.changes,
            )
        points.append(point)
    return points


def crossover(points: Iterable[BatchPoint | LawAtBatch]) -> tuple[int | None, int | None]:
    """Return the first swept size at which autoregressive decoding is faster by law, and the size
    from which it always is.

    They differ where a tile that fills up brings the strategy back. None where it never happens.
    """
    return turning((point.batch, point.speedup < 1.0) for point in points)


def turning(sizes: Iterable[tuple[int, bool]]) -> tuple[int | None, int | None]:
    """Return the first size at which something is behind, and the size from which it always is, of
    sizes and whether it is.
    """
    slower = sorted(sizes)
    ahead = max((size for size, behind in slower if not behind), default=0)
    first = next((size for size, behind in slower if behind), None)
    return first, next((size for size, behind in slower if behind and size > ahead), None)


class CrossoverInterval(NamedTuple):
    """Says between which batch sizes a share of the draws has autoregressive decoding first
    ahead; None: at no size that was looked at.
    """

    low: int | None
    high: int | None


def crossover_interval(
    points: Sequence[BatchPoint], share: float = SHARES[0]
) -> CrossoverInterval | None:
    """Return the interval of the first size at which autoregressive decoding is faster by law;
    None where nothing was drawn. Between the sizes that were drawn, the log changes of the
    speed-up are those of the logs of sizes.
    """
    drawn = [point for point in points if point.log_changes is not None]
    if not drawn:
        return None
    known = np.log([point.batch for point in drawn])
    changes = np.array([point.log_changes for point in drawn])
    sizes = [point.batch for point in points]
    slower = []
    for point in points:
        at = float(np.clip(np.log(point.batch), known[0], known[-1]))
        after = min(int(np.searchsorted(known, at)), len(known) - 1)
        before = max(after - 1, 0)
        part = (at - known[before]) / (known[after] - known[before]) if after > before else 0.0
        change = changes[before] + part * (changes[after] - changes[before])
        slower.append(np.log(point.speedup) + change < 0.0)
    behind = np.array(slower)
    first = np.where(behind.any(axis=0), behind.argmax(axis=0), len(sizes))
    tail = (1.0 - share) / 2.0
    ends = np.quantile(first, (tail, 1.0 - tail), method="nearest")
    low, high = (sizes[int(end)] if end < len(sizes) else None for end in ends)
    return CrossoverInterval(low, high)


def tile_edges(loaded: Loaded, points: Iterable[BatchPoint | LawAtBatch]) -> list[int]:
    """Return the swept sizes at which the rows of a verification first need a further tile of the
    target's products.
    """
    target = loaded.scenario.target
    if target is None:
        return []
    product = target.device.matmul_for(target.weights)
    if product.tile_tokens[-1] == 1:
        return []
    edges = []
    before = None
    for point in points:
        rows = product.filled(point.verify_rows)
        if before is not None and rows > before:
            edges.append(point.batch)
        before = rows
    return edges


def at_size(loaded: Loaded, size: int) -> Loaded:
    """Return the scenario with ``size`` requests at a time, and enough of them for ``TURNS`` on all
    places.

    Raises :class:`BadInput` for a scenario with arrivals, and for several requests of a strategy
    that takes one at a time.
    """
    scenario = loaded.scenario
    requests = loaded.scenario.requests
    if requests.arrivals:
        message = "a sweep over sizes is about a closed loop; set requests.arrivals=null"
        raise BadInput.at(scenario.name, message, "requests.arrivals")
    if requests.sessions is not None:
        message = (
            "a sweep over sizes is about clients that never pause; set requests.sessions=null, or "
            f"vary the clients: specsim sweep {scenario.name} --axis requests.concurrency=4,8,16"
        )
        raise BadInput.at(scenario.name, message, "requests.sessions")
    if size > 1 and scenario.strategy.traits.alone:
        message = (
            f"{scenario.strategy.name} takes one request at a time, got {size}; ask for --sizes 1"
        )
        raise BadInput.at(scenario.name, message, "requests.concurrency")
    count = max(requests.count, TURNS * size)
    return loaded.replace(
        requests=requests.model_copy(update={"concurrency": size, "count": count})
    )


def _point(scenario: Scenario, acceptance: Acceptance, simulated: bool) -> BatchPoint:
    strategy = scenario.schedule
    size = scenario.requests.concurrency
    running = scenario.batch
    replicas = scenario.serving.replicas
    cost = scenario.cost
    context = scenario.mean_context
    law = evaluate.law(scenario, acceptance)
    kind = main_kind(law.kinds)
    step = strategy.step(kind, context)
    parts = strategy.phases(cost, step)
    drafted = ordered_sum(
        parts[name].wall_s for name in strategy.traits.drafted_in if name in parts
    )
    vanilla = serial_drafting(scenario)
    vanilla_law = evaluate.law(vanilla, acceptance) if vanilla else None
    if isinstance(strategy, DerivesNumbers):
        odds = odds_of(acceptance, scenario.exit)
        exposed = strategy.derived(cost, step, odds).get("exposed_draft_ms")
    else:
        exposed = None
    overhead = None
    if exposed is not None and vanilla:
        serial = vanilla.schedule
        whole = (
            serial.phases(vanilla.cost, serial.step(Kind("step", running), context))["draft"].wall_s
            * 1e3
        )
        overhead = exposed / whole if whole else None
    plain = strategy.step(Kind("step", 0, bare=running), context)
    extra: Mapping[str, float] = {}
    if isinstance(strategy, AddsToBatches):
        extra = strategy.batch_extra(cost, scenario.batch, context)
    runs = _simulated(scenario, vanilla, acceptance) if simulated else {}
    return BatchPoint(
        batch=size,
        gamma=strategy.window_for(running),
        settings=strategy.batch_settings if isinstance(strategy, DraftsChain) else "",
        baseline_tpot_ms=evaluate.baseline(scenario).tpot_s * 1e3,
        decode_ms=cost.target(plain.rows).wall_s * 1e3,
        verify_rows=step.rows.tokens,
        verify_ms=cost.target(step.rows).wall_s * 1e3,
        draft_ms=drafted * 1e3,
        law_tpot_ms=law.tpot_s * 1e3,
        tokens_per_step=law.tokens_per_step,
        running=min(size, replicas * running),
        baseline_running=min(size, replicas * scenario.plain_batch),
        vanilla_running=min(size, replicas * vanilla.batch) if vanilla else None,
        unmatched=acceptance.odds(strategy.window_for(running), scenario.exit).unmatched,
        vanilla_tpot_ms=vanilla_law.tpot_s * 1e3 if vanilla_law else None,
        exposed_draft_ms=exposed,
        relative_draft_overhead=overhead,
        simulated_requests=scenario.requests.count if simulated else 0,
        extra=extra,
        **runs,
    )


def _simulated(scenario: Scenario, vanilla: Scenario | None, acceptance: Acceptance) -> PlainData:
    """Return tokens per second of the strategy, of autoregressive decoding and, where there is such
    a scenario, of vanilla.
    """
    simulated, _ = evaluate.simulate(scenario, acceptance)
    baseline, _ = evaluate.simulate(evaluate.plain(scenario), evaluate.NO_DRAFTS)
    rates = {
        "simulated_tokens_per_s": simulated.tokens_per_s,
        "simulated_baseline_tokens_per_s": baseline.tokens_per_s,
    }
    if vanilla:
        rates["simulated_vanilla_tokens_per_s"] = evaluate.simulate(vanilla, acceptance)[
            0
        ].tokens_per_s
    return rates
