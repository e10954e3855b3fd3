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
import pandas as pd
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
    """What is free: kernel tiles, the token counts of a table (none: the formula alone), and the
    time by depth.
    """

    tiles: tuple[int, ...] = (1,)
    at: tuple[int, ...] = ()
    depth: bool = False
    """Whether the time in which thread blocks pass the inputs is free."""

    @property
    def plateaus(self) -> list[int]:
        """Return the plateau of each point of the table; a new one begins between two neighbouring
        token counts.
        """
        if not self.at:
            return []
        begins = [int(after == before + 1) for before, after in pairwise(self.at)]
        return [0, *accumulate(begins)]


TILES = tuple(Form(tiles) for tiles in ((1,), (16, 64), (64,), (128,), (256,), (64, 128, 192, 256)))
"""Candidates for the formula; below the first tile there are those of 8, 16, 32, ... rows."""
TABLE = Form((64,), (1, 64, 65, 128, 129, 192, 256, 257, 384, 385, 512))
"""The table: a point on each side of a step; steps beyond one tile of 64 stand in it."""
START = (5.0, 0.8, 0.7, 3.0)
BOUNDS = ((0.0, 0.2, 0.05, 1.0), (60.0, 1.0, 1.0, 50.0))
"""Start and bounds of fixed_us, memory_efficiency, compute_efficiency and p_norm."""
RATIOS = ((1.0, 30.0), (0.5, 30.0))
"""Bounds of the ratio of the memory time, and of that of the constant."""
DEPTH = (0.5, 1e-6, 20.0)
"""Start and bounds of depth_us."""


def roofline(numbers: Sequence[float], form: Form = TILES[0]) -> Roofline:
    """Return a roofline made of bare numbers: the four of ``BOUNDS``, then what a table adds.

    That is a ratio of the memory time for each but its first point, and one of the constant for
    each but its first plateau; a form with ``depth`` has that behind them.
    """
    fixed, memory, compute, p, *ratios = numbers
    depth = {}
    if form.depth:
        depth["depth_us"] = ratios.pop()
    further = len(form.at[1:])
    slower = (1.0, *ratios[:further])
    constants = (1.0, *ratios[further:])
    points = []
    for tokens, ratio, plateau in zip(form.at, slower, form.plateaus, strict=False):
        points.append({"tokens": tokens, "ratio": ratio, "fixed_ratio": constants[plateau]})
    least_tile = None
    if form.tiles != (1,):
        least_tile = LEAST_TILE
    fields = {
        "fixed_us": fixed,
        "memory_efficiency": memory,
        "compute_efficiency": compute,
        "p_norm": p,
        "tile_tokens": form.tiles,
        "least_tile_tokens": least_tile,
        "width": points,
        "width_source": "a fit",
    }
    return Roofline.model_validate(fields | depth)


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
        heads = rows[["sequences", "rows", "kv_heads", "queries"]]
        read = CachedHeads(*heads.to_numpy(float).T)
        parts = operation.apart(read, *device.chip)
        size, *apart, beside = parts(rows["keys"].to_numpy(float), size)
    elif operation.depth_us is not None:
        apart = (operation.passing_s(*sides(rows), device.chip[0]),)
    distinct, place = np.unique(tokens, return_inverse=True)
    padding = np.array([operation.tiled(count) / count for count in distinct])
    ratios = np.array([operation.width_ratios(count) for count in distinct])
    ratio, fixed_ratio = ratios[place].T
    memory = size * ratio * _seconds_per_byte(device, operation, rows)
    flops = rows.flops.to_numpy() * padding[place]
    compute = flops / (operation.compute_efficiency.value * _peaks(device, rows) * 1e12)
    terms = (memory, compute, *apart)
    largest = np.maximum.reduce(terms)
    p = operation.p_norm.value
    norm = sum((term / largest) ** p for term in terms)
    fixed = operation.fixed_us.value * 1e-6 * fixed_ratio
    return np.asarray(fixed + largest * norm ** (1.0 / p) + beside)


def sides(rows: Table) -> tuple[Seconds, Seconds]:
    """Return the inputs and outputs of each product, of shape (rows,), as its ``shape`` names them;
    raise :class:`BadInput` where one names none.
    """
    place, shapes = pd.factorize(rows["shape"])
    named = shapes.to_series().str.extract(r"^(\d+)x(\d+)$")
    if named.isna().to_numpy().any():
        raise unfit("expected the inputs and outputs of products, as in 4096x12288", "shape")
    inputs, outputs = named.astype(float).to_numpy()[place].T
    return inputs, outputs


def _seconds_per_byte(device: Device, operation: Roofline, rows: Table) -> Any:
    """Return the seconds that a byte of each row takes from memory, or from the cache."""
    bandwidth = operation.memory_efficiency.value * device.memory_bandwidth_gb_s.value * 1e9
    from_memory = 1.0 / bandwidth
    if device.cache_bandwidth_gb_s is None:
        return from_memory
    share = cached_share(device, rows)
    cache_bandwidth = device.cache_bandwidth_gb_s.value * 1e9
    return (1.0 - share) * from_memory + share / cache_bandwidth


def _peaks(device: Device, rows: Table) -> Seconds | float:
    """Return the peak of each row's arithmetic, in 1e12 flops a second; attention computes in 16
    bits.
    """
    if rows.operation.iloc[0] not in ("matmul", "experts"):
        return device.peak_tflops.value
    computed = rows.format.map(lambda name: device.number_format(name).arithmetic)
    peaks = computed.map(lambda name: device.peaks_tflops.get(name, device.peak_tflops).value)
    return np.asarray(peaks, dtype=float)


def weight_bytes(rows: Table) -> Seconds:
    """Return the bytes of all copies of the weights of each product, shape (rows,)."""
    weights = rows.flops / (2.0 * rows.tokens)
    bytes_of_weight = rows.format.map(lambda name: FORMATS[name].weight_bytes)
    return np.asarray(weights * bytes_of_weight * rows.copies)


def cached_share(device: Device, rows: Table) -> Seconds:
    """Return the share of each product's bytes that the cache serves: all that it holds, none of
    twice as much (assumed).
    """
    if device.cache_mb is None or rows.operation.iloc[0] != "matmul":
        return np.zeros(len(rows))
    caches = weight_bytes(rows) / (device.cache_mb.value * 1e6)
    return np.asarray(np.clip(2.0 - caches, 0.0, 1.0))


def cache_bandwidth(device: Device, operation: Roofline, rows: Table) -> float | None:
    """Return the bandwidth of the cache, in 1e9 bytes a second, from products that it holds; None
    where it shows in none.

    The other numbers of ``operation`` stay; products count whose bytes take half of their time or
    more at the datasheet's rate.
    """
    bandwidth = device.memory_bandwidth_gb_s.value
    cached = cached_share(device, rows) == 1.0
    memory_bound = rows.size_bytes >= 0.5 * bandwidth * 1e9 * measured(rows)
    held_back = rows[cached & memory_bound]
    if held_back.empty:
        return None
    truth = measured(held_back)

    def off(numbers: Sequence[float]) -> Seconds:
        speed = device.memory_bandwidth_gb_s.model_copy(update={"value": numbers[0]})
        faster = device.model_copy(update={"cache_bandwidth_gb_s": speed})
        return np.asarray(np.log(seconds(faster, operation, held_back) / truth))

    bounds = ((bandwidth,), (20.0 * bandwidth,))
    (speed,) = least(off, (2.0 * bandwidth,), bounds)
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
            distances = np.abs(counts - wanted)
            near.add(counts[distances.argmin()])
    return rows[rows.tokens.isin(near)]


def by_layer(rows: Table, **times: Seconds) -> Table:
    """Sum times of products into layers, the LM head left out, in a column of each name."""
    body = rows.assign(**times)[rows.part != LM_HEAD]
    layers: Table = body.groupby(LAYER, as_index=False)[list(times)].sum()
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
        by_layer = np.log(layers[whole] / measured_layers[whole])
        return np.concatenate([PRODUCTS_BESIDE_LAYERS * by_product, by_layer])

    points = len(form.at[1:])
    plateaus = len(set(form.plateaus[1:]) - {0})
    depth, least_depth, most_depth = DEPTH
    first: Sequence[float]
    if start is None:
        first = (*START, *[1.2] * (points + plateaus), *[depth] * form.depth)
    else:
        first = _numbers(start)
    least_ratios, most_ratios = _ratio_bounds(points, plateaus)
    lowest, highest = BOUNDS
    low = (*lowest, *least_ratios, *[least_depth] * form.depth)
    high = (*highest, *most_ratios, *[most_depth] * form.depth)
    bounds = (low, high)
    numbers = least(error, first, bounds)
    return roofline(numbers, form)


def _ratio_bounds(points: int, plateaus: int) -> tuple[list[float], list[float]]:
    """Return the bounds of a table's free ratios: of memory time, then of the constant."""
    memory, constant = RATIOS
    low = [memory[0]] * points + [constant[0]] * plateaus
    high = [memory[1]] * points + [constant[1]] * plateaus
    return low, high


def width_ratios(device: Device, rows: Table, like: Roofline, most_tokens: int) -> Roofline:
    """Return ``like`` with the ratios of its table fitted to layers of up to ``most_tokens``; its
    other numbers stay.

    Every source weighs the same and stands at its own level, the median of its layers of one row to
    those of ``like``: stacks differ by 8 per cent in what one row takes. Raises :class:`BadInput`
    without a table, or a source's single rows.
    """
    points = [point.tokens for point in like.width]
    form = Form(like.tile_tokens, tuple(points), like.depth_us is not None)
    numbers = np.array(_numbers(like))
    rows = sample(rows[rows.tokens <= most_tokens], points)
    grouped = rows.groupby(["source", *LAYER])
    layer = grouped.ngroup().to_numpy()
    source = grouped.source.first().to_numpy()
    single = grouped.tokens.first().to_numpy() == 1.0
    if not points or set(source) != set(source[single]):
        missing = "have no table to fit"
        if points:
            names = ", ".join(set(source) - set(source[single]))
            missing = f"hold no single row of {names}"
        raise unfit(missing, "tokens")

    def off(operation: Roofline) -> Seconds:
        predicted = np.bincount(layer, seconds(device, operation, rows))
        return np.log(predicted / truth)

    truth = np.bincount(layer, measured(rows))
    start = off(like)
    sources = [source == name for name in np.unique(source)]
    level = sum(np.median(start[here & single]) * here for here in sources)
    weight = np.sqrt(sum(here * here.size / (here.sum() * len(sources)) for here in sources))
    ratios = np.array(points[1:]) <= most_tokens
    plateaus = form.plateaus
    begins = [points[plateaus.index(plateau)] for plateau in sorted(set(plateaus) - {0})]
    constants = np.array([begin <= most_tokens for begin in begins], bool)
    stay = np.zeros(len(START), bool)
    free = np.concatenate([stay, ratios, constants, np.zeros(int(form.depth), bool)])

    def made(values: Sequence[float]) -> Roofline:
        changed = numbers.copy()
        changed[free] = values
        return roofline(changed.tolist(), form).model_copy(
            update={"tile_step_tokens": like.tile_step_tokens}
        )

    def error(values: Sequence[float]) -> Seconds:
        return np.asarray(weight * (off(made(values)) - level))

    bounds = _ratio_bounds(int(ratios.sum()), int(constants.sum()))
    return made(least(error, numbers[free], bounds))


def best_tiles(device: Device, rows: Table) -> Mapping[Form, float]:
    """Return the layer error in per cent, up to 512 tokens, of each candidate form at its own best
    numbers.
    """
    few = rows[rows.tokens <= 512]
    errors = {}
    for form in TILES:
        best = products(device, rows, form)
        layers = by_layer(few, truth=measured(few), predicted=seconds(device, best, few))
        error = layers.predicted / layers.truth - 1.0
        errors[form] = float(100.0 * error.abs().mean())
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

    def error(x: Sequence[float]) -> Seconds:
        return np.asarray(np.log(reduced(made(x), rows) / truth))

    bounds = ((0.0, 1.0), (200.0, 5000.0))
    return made(least(error, (start, 200.0), bounds))


def reduced(
    form: RingAllReduce | TreeAllReduce | MeasuredAllReduce | Exchange, rows: Table
) -> Seconds:
    """Return the seconds that ``form`` gives every row, shape (rows,)."""
    times = []
    for size, ranks in zip(rows.size_bytes, rows.ranks, strict=True):
        times.append(form.seconds(size, int(ranks)))
    return np.array(times)


def transfer_latency_us(rows: Table, bandwidth_gb_s: float) -> float:
    """Return the latency of a link in microseconds at its datasheet's bandwidth, into which a free
    bandwidth runs.
    """
    rows = spread(rows)
    carried = rows.size_bytes.to_numpy() / (bandwidth_gb_s * 1e9)
    truth = measured(rows)

    def error(latency_us: Sequence[float]) -> Seconds:
        return np.asarray(np.log((latency_us[0] * 1e-6 + carried) / truth))

    (latency,) = least(error, (15.0,), ((0.0,), (200.0,)))
    return latency


def spread(rows: Table, sizes: int = 60) -> Table:
    """Return rows at sizes evenly spaced in their logarithm, by ranks: small messages weigh as much
    as large ones.
    """
    grid = np.geomspace(rows.size_bytes.min(), rows.size_bytes.max(), sizes)
    near = []
    for _, part in rows.groupby("ranks"):
        nearest_rows = [part.size_bytes.sub(size).abs().idxmin() for size in grid]
        near.append(np.unique(nearest_rows))
    return rows.loc[np.concatenate(near)]


def _numbers(operation: Roofline) -> list[float]:
    four = (
        operation.fixed_us,
        operation.memory_efficiency,
        operation.compute_efficiency,
        operation.p_norm,
    )
    points = operation.width
    form = Form(at=tuple(point.tokens for point in points))
    constants = {}
    for plateau, point in zip(form.plateaus, points, strict=True):
        constants[plateau] = point.fixed_ratio
    numbers = [number.value for number in four]
    numbers += [point.ratio for point in points[1:]]
    numbers += [ratio for plateau, ratio in constants.items() if plateau]
    if operation.depth_us is not None:
        numbers.append(operation.depth_us.value)
    return numbers


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

    def error(numbers: Sequence[float]) -> Seconds:
        times = seconds(device, made(numbers), rows)
        return np.asarray(weight * np.log(times / truth))

    return made(least(error, start, bounds))


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
