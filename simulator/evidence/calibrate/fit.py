"""Rooflines and links with the least error on measured times; bounded, so that every number stays
physical.

What is fitted is what the simulator uses: ``fixed + ||(bytes / bandwidth, flops / peak)||_p`` with
flops rounded up to tiles (:class:`~simulator.core.cost.roofline.Roofline`). A ``table`` beside the
formula multiplies memory time and constant by ratios that depend on the token count alone; it
follows a curve that steps, or is not monotone, where tiles do not. Fits minimise a robust (soft L1)
loss of log(predicted / measured); numbers are rounded to three digits before any error is stated.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from simulator.core.cost.collectives import (
    Exchange,
    MeasuredAllReduce,
    RingAllReduce,
    TreeAllReduce,
)
from simulator.core.cost.device import Device
from simulator.core.cost.formats import FORMATS
from simulator.core.cost.roofline import AttentionRoofline, CachedHeads, ExpertRoofline, Roofline
from simulator.evidence.calibrate.measurements import LM_HEAD, Table, unfit

Seconds: TypeAlias = NDArray[np.float64]
Bounds: TypeAlias = tuple[Sequence[float], Sequence[float]]
Formula = TypeVar("Formula", bound=Roofline)
Collective = TypeVar("Collective", RingAllReduce, TreeAllReduce, Exchange)
DIGITS = 3
NOTHING = 9
"""Digits of a fitted number, and decimals behind which it is zero."""
LEAST_TILE = 8
"""Rows that tensor cores multiply at once: the N of their instructions, with the weights as M."""
LAYER = ["model", "tensor_parallel", "tokens"]
SAMPLE = (
    1,
    2,
    4,
    8,
    16,
    32,
    48,
    64,
    65,
    72,
    96,
    128,
    129,
    136,
    160,
    192,
    200,
    256,
    257,
    264,
    320,
    384,
    385,
    392,
    448,
    512,
    513,
    520,
    640,
    768,
    1024,
    1536,
    2048,
)
"""Token counts that weigh in a fit, dense where kernels step; others only in the errors."""
PRODUCTS_BESIDE_LAYERS = 0.3
"""Weight of single products where a table is fitted to layers, which is what it is for."""


class Form(NamedTuple):
    """What is free: kernel tiles, and the token counts of a table (none: the formula alone)."""

    tiles: tuple[int, ...] = (1,)
    at: tuple[int, ...] = ()

    @property
    def plateaus(self) -> list[int]:
        """Return the plateau of each point of the table; a new one begins between two neighbouring
        token counts.
        """
        if self.at:
            return [0, *accumulate(int(after == before + 1) for before, after in pairwise(self.at))]
        return []


TILES = tuple(Form(tiles) for tiles in ((1,), (16, 64), (64,), (128,), (256,), (64, 128, 192, 256)))
"""Candidates for the formula; below the first tile there are those of 8, 16, 32, ... rows."""
TABLE = Form((64,), (1, 64, 65, 128, 129, 192, 256, 257, 384, 385, 512))
"""The table: a point on each side of a step; steps beyond one tile of 64 stand in it."""
START = (5.0, 0.8, 0.7, 3.0)
BOUNDS = ((0.0, 0.2, 0.05, 1.0), (60.0, 1.0, 1.0, 50.0))
"""Start and bounds of fixed_us, memory_efficiency, compute_efficiency and p_norm."""
RATIOS = ((1.0, 30.0), (0.5, 30.0))
"""Bounds of the ratio of the memory time, and of that of the constant."""


def roofline(numbers: Sequence[float], form: Form = TILES[0]) -> Roofline:
    """Return a roofline made of bare numbers: the four of ``BOUNDS``, then what a table adds.

    That is a ratio of the memory time for each but its first point, and one of the constant for
    each but its first plateau.
    """
    fixed, memory, compute, p, *ratios = numbers
    further = len(form.at[1:])
    slower = (1.0, *ratios[:further])
    constants = (1.0, *ratios[further:])
    points = []
    for tokens, ratio, plateau in zip(form.at, slower, form.plateaus, strict=False):
        points.append({"tokens": tokens, "ratio": ratio, "fixed_ratio": constants[plateau]})
    named = {
        "fixed_us": fixed,
        "memory_efficiency": memory,
        "compute_efficiency": compute,
        "p_norm": p,
    }
    tiles = {
        "tile_tokens": form.tiles,
        "least_tile_tokens": LEAST_TILE if form.tiles != (1,) else None,
    }
    return Roofline.model_validate({**named, **tiles, "width": points, "width_source": "a fit"})


DATASHEET = roofline((0.0, 1.0, 1.0, 200.0))
"""A hard maximum of the datasheet's rates, to compare with."""


def seconds(device: Device, operation: Roofline, rows: Table) -> Seconds:
    """Return ``Device.seconds`` of every row, shape (rows,)."""
    tokens = rows.tokens.to_numpy(float)
    size = rows.size_bytes.to_numpy()
    beside = 0.0
    apart: Sequence[Any] = ()
    if isinstance(operation, ExpertRoofline):
        tokens = (rows.pairs / rows.experts).to_numpy()
        size = size + operation.pair_bytes(rows.pairs, rows.width).to_numpy()
        beside = operation.beside_s(rows.experts, rows.width).to_numpy()
    elif isinstance(operation, AttentionRoofline):
        read = CachedHeads(
            *rows[["sequences", "rows", "kv_heads", "queries", "keys"]].to_numpy(float).T
        )
        size, *apart, beside = operation.apart(read, size, *device.chip)
    distinct, place = np.unique(tokens, return_inverse=True)
    tiled = np.array([operation.tiled(count) / count for count in distinct])[place]
    ratio, fixed_ratio = np.array([operation.width_ratios(count) for count in distinct])[place].T
    per_byte: Any = 1.0 / (
        operation.memory_efficiency.value * device.memory_bandwidth_gb_s.value * 1e9
    )
    if device.cache_bandwidth_gb_s is not None:
        share = cached_share(device, rows)
        per_byte = (1.0 - share) * per_byte + share / (device.cache_bandwidth_gb_s.value * 1e9)
    memory = size * ratio * per_byte
    compute = (
        rows.flops.to_numpy()
        * tiled
        / (operation.compute_efficiency.value * _peaks(device, rows) * 1e12)
    )
    largest = np.maximum.reduce((memory, compute, *apart))
    p = operation.p_norm.value
    norm = sum((term / largest) ** p for term in (memory, compute, *apart))
    return np.asarray(
        operation.fixed_us.value * 1e-6 * fixed_ratio + largest * norm ** (1.0 / p) + beside
    )


def _peaks(device: Device, rows: Table) -> Seconds | float:
    """Return the peak of each row's arithmetic, in 1e12 flops a second; attention computes in 16
    bits.
    """
    if rows.operation.iloc[0] not in ("matmul", "experts"):
        return device.peak_tflops.value
    computed = rows.format.map(lambda name: device.number_format(name).arithmetic)
    return np.asarray(
        computed.map(lambda name: device.peaks_tflops.get(name, device.peak_tflops).value),
        dtype=float,
    )


def weight_bytes(rows: Table) -> Seconds:
    """Return the bytes of all copies of the weights of each product, shape (rows,)."""
    return np.asarray(
        rows.flops
        / (2.0 * rows.tokens)
        * rows.format.map(lambda name: FORMATS[name].weight_bytes)
        * rows.copies
    )


def cached_share(device: Device, rows: Table) -> Seconds:
    """Return the share of each product's bytes that the cache serves: all that it holds, none of
    twice as much (assumed).
    """
    if device.cache_mb is None or rows.operation.iloc[0] != "matmul":
        return np.zeros(len(rows))
    return np.asarray(np.clip(2.0 - weight_bytes(rows) / (device.cache_mb.value * 1e6), 0.0, 1.0))


def cache_bandwidth(device: Device, operation: Roofline, rows: Table) -> float | None:
    """Return the bandwidth of the cache, in 1e9 bytes a second, from products that it holds; None
    where it shows in none.

    The other numbers of ``operation`` stay; products count whose bytes take half of their time or
    more at the datasheet's rate.
    """
    bandwidth = device.memory_bandwidth_gb_s.value
    held_back = rows[
        (cached_share(device, rows) == 1.0)
        & (rows.size_bytes >= 0.5 * bandwidth * 1e9 * measured(rows))
    ]
    if held_back.empty:
        return None
    truth = measured(held_back)

    def off(numbers: Sequence[float]) -> Seconds:
        speed = device.memory_bandwidth_gb_s.model_copy(update={"value": numbers[0]})
        faster = device.model_copy(update={"cache_bandwidth_gb_s": speed})
        return np.asarray(np.log(seconds(faster, operation, held_back) / truth))

    (speed,) = least(off, (2.0 * bandwidth,), ((bandwidth,), (20.0 * bandwidth,)))
    if speed > bandwidth:
        return speed
    return None


def measured(rows: Table) -> Seconds:
    """Return the measured seconds of every row, shape (rows,)."""
    return np.asarray(rows.time_us.to_numpy() * 1e-6)


def sample(rows: Table, at: Sequence[int] = ()) -> Table:
    """Return the rows at the measured token counts nearest to each of ``SAMPLE`` and to the points
    of a table.
    """
    counts = np.unique(rows.tokens)
    near = set()
    for wanted in (*SAMPLE, *at):
        if wanted <= counts[-1]:
            near.add(counts[np.abs(counts - wanted).argmin()])
    return rows[rows.tokens.isin(near)]


def by_layer(rows: Table, **times: Seconds) -> Table:
    """Sum times of products into layers, the LM head left out, in a column of each name."""
    layers: Table = (
        rows.assign(**times)[rows.part != LM_HEAD].groupby(LAYER, as_index=False)[list(times)].sum()
    )
    return layers


def products(device: Device, rows: Table, form: Form, start: Roofline | None = None) -> Roofline:
    """Return the roofline of matrix products: the formula fitted to each of them, a table to layers
    and products together.
    """
    rows = sample(rows, form.at)
    truth = measured(rows)
    layer = np.where(rows.part == LM_HEAD, -1, rows.groupby(LAYER).ngroup())
    body = layer >= 0
    measured_layers = np.bincount(layer[body], truth[body])
    whole = measured_layers > 0.0  # an LM head may be all that was measured of a layer

    def error(numbers: Sequence[float]) -> Seconds:
        times = seconds(device, roofline(numbers, form), rows)
        by_product = np.log(times / truth)
        if not form.at:
            return np.asarray(by_product)
        layers = np.bincount(layer[body], times[body])
        return np.concatenate(
            [PRODUCTS_BESIDE_LAYERS * by_product, np.log(layers[whole] / measured_layers[whole])]
        )

    points = len(form.at[1:])
    plateaus = len(set(form.plateaus[1:]) - {0})
    first: Sequence[float]
    if start is None:
        first = (*START, *[1.2] * (points + plateaus))
    else:
        first = _numbers(start)
    low, high = (
        (*four, *[memory] * points, *[fixed] * plateaus)
        for four, memory, fixed in zip(BOUNDS, *RATIOS, strict=True)
    )
    return roofline(least(error, first, (low, high)), form)


def width_ratios(device: Device, rows: Table, like: Roofline, most_tokens: int) -> Roofline:
    """Return ``like`` with the ratios of its table fitted to layers of up to ``most_tokens``; its
    other numbers stay.

    Every source weighs the same and stands at its own level, the median of its layers of one row to
    those of ``like``: stacks differ by 8 per cent in what one row takes. Raises :class:`BadInput`
    without a table, or a source's single rows.
    """
    points = [point.tokens for point in like.width]
    form = Form(like.tile_tokens, tuple(points))
    numbers = np.array(_numbers(like))
    rows = sample(rows[rows.tokens <= most_tokens], points)
    grouped = rows.groupby(["source", *LAYER])
    layer = grouped.ngroup().to_numpy()
    source = grouped.source.first().to_numpy()
    single = grouped.tokens.first().to_numpy() == 1.0
    if not points or set(source) != set(source[single]):
        if points:
            missing = f"hold no single row of {', '.join(set(source) - set(source[single]))}"
        else:
            missing = "have no table to fit"
        raise unfit(missing, "tokens")

    def off(operation: Roofline) -> Seconds:
        return np.log(np.bincount(layer, seconds(device, operation, rows)) / truth)

    truth = np.bincount(layer, measured(rows))
    start = off(like)
    sources = [source == name for name in np.unique(source)]
    level = sum(np.median(start[here & single]) * here for here in sources)
    weight = np.sqrt(sum(here * here.size / (here.sum() * len(sources)) for here in sources))
    ratios = np.array(points[1:]) <= most_tokens
    constants = np.array(
        [
            points[form.plateaus.index(plateau)] <= most_tokens
            for plateau in sorted(set(form.plateaus) - {0})
        ],
        bool,
    )
    free = np.concatenate([np.zeros(len(START), bool), ratios, constants])

    def made(values: Sequence[float]) -> Roofline:
        changed = numbers.copy()
        changed[free] = values
        return roofline(changed.tolist(), form)

    low, high = (
        [*[ends[0]] * ratios.sum(), *[ends[1]] * constants.sum()]
        for ends in zip(*RATIOS, strict=True)
    )
    return made(
        least(lambda values: weight * (off(made(values)) - level), numbers[free], (low, high))
    )


def best_tiles(device: Device, rows: Table) -> Mapping[Form, float]:
    """Return the layer error in per cent, up to 512 tokens, of each candidate form at its own best
    numbers.
    """
    few = rows[rows.tokens <= 512]
    errors = {}
    for form in TILES:
        layers = by_layer(
            few, truth=measured(few), predicted=seconds(device, products(device, rows, form), few)
        )
        errors[form] = float(100.0 * (layers.predicted / layers.truth - 1.0).abs().mean())
    return errors


def small_operations(device: Device, rows: Table) -> Roofline:
    """Return the roofline of small operations: constant and memory efficiency, on up to 512 tokens;
    they count no flops.
    """
    rows = sample(rows[rows.tokens <= 512])
    bounds = ((0.0, 0.02), (300.0, 1.0))
    return nearest(lambda x: roofline((*x, 1.0, 1.0)), device, rows, (20.0, 0.5), bounds)


def collective(kind: type[Collective], rows: Table) -> Collective:
    """Return a form of all-reduce, or a direction of an all-to-all, its constant in microseconds
    and its bandwidth fitted.
    """
    constant = "alpha_us" if kind is TreeAllReduce else "fixed_us"
    start = 10.0 if kind is Exchange else 30.0
    truth = measured(rows)

    def made(x: Sequence[float]) -> Collective:
        return kind.model_validate({constant: x[0], "bandwidth_gb_s": x[1]})

    return made(
        least(
            lambda x: np.log(reduced(made(x), rows) / truth),
            (start, 200.0),
            ((0.0, 1.0), (200.0, 5000.0)),
        )
    )


def reduced(
    form: RingAllReduce | TreeAllReduce | MeasuredAllReduce | Exchange, rows: Table
) -> Seconds:
    """Return the seconds that ``form`` gives every row, shape (rows,)."""
    return np.array(
        [
            form.seconds(size, int(ranks))
            for size, ranks in zip(rows.size_bytes, rows.ranks, strict=True)
        ]
    )


def transfer_latency_us(rows: Table, bandwidth_gb_s: float) -> float:
    """Return the latency of a link in microseconds at its datasheet's bandwidth, into which a free
    bandwidth runs.
    """
    rows = spread(rows)
    carried = rows.size_bytes.to_numpy() / (bandwidth_gb_s * 1e9)
    truth = measured(rows)
    return least(lambda x: np.log((x[0] * 1e-6 + carried) / truth), (15.0,), ((0.0,), (200.0,)))[0]


def spread(rows: Table, sizes: int = 60) -> Table:
    """Return rows at sizes evenly spaced in their logarithm, by ranks: small messages weigh as much
    as large ones.
    """
    grid = np.geomspace(rows.size_bytes.min(), rows.size_bytes.max(), sizes)
    near = []
    for _, part in rows.groupby("ranks"):
        near.append(np.unique([part.size_bytes.sub(size).abs().idxmin() for size in grid]))
    return rows.loc[np.concatenate(near)]


def _numbers(operation: Roofline) -> list[float]:
    four = (
        operation.fixed_us,
        operation.memory_efficiency,
        operation.compute_efficiency,
        operation.p_norm,
    )
    plateaus = Form(at=tuple(point.tokens for point in operation.width)).plateaus
    constants = dict(zip(plateaus, (point.fixed_ratio for point in operation.width), strict=True))
    ratios = [point.ratio for point in operation.width[1:]] + [
        ratio for plateau, ratio in constants.items() if plateau
    ]
    return [number.value for number in four] + ratios


def nearest(
    made: Callable[[Any], Formula],
    device: Device,
    rows: Table,
    start: Sequence[float],
    bounds: Bounds,
    weight: Any = 1.0,
) -> Formula:
    """Return what is ``made`` of those numbers with which it comes nearest to the times of rows, of
    any ``weight`` each.
    """
    truth = measured(rows)
    return made(
        least(lambda x: weight * np.log(seconds(device, made(x), rows) / truth), start, bounds)
    )


def least(error: Callable[[Any], Seconds], start: Sequence[float], bounds: Bounds) -> list[float]:
    """Return the numbers with the least soft-L1 loss, rounded."""
    inside = np.clip(start, *bounds)
    best = least_squares(
        error,
        inside,
        bounds=bounds,
        loss="soft_l1",
        f_scale=0.05,
        x_scale=np.maximum(inside, 1e-3),
        diff_step=np.full(len(inside), 1e-4),
    )
    return [float(f"{round(value, NOTHING):.{DIGITS}g}") for value in best.x]
