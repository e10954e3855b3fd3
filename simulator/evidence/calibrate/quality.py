"""How well a roofline or a link fits what was measured, and what was left out when it was
fitted.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from simulator.core.cost.device import Device, Link
from simulator.core.cost.roofline import Attention, AttentionParts, ExpertRoofline, Roofline
from simulator.evidence.calibrate import attention, experts, fit
from simulator.evidence.calibrate.fit import (
    DATASHEET,
    LAYER,
    Form,
    Seconds,
    by_layer,
    measured,
    seconds,
)
from simulator.evidence.calibrate.measurements import CACHED, OPERATIONS, Table, unfit

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Least and largest token count of each range, both inside."""
LAYER_RANGES = ((1, 64), (65, 128), (129, 256), (1, 256), (257, 512), (1, 512), (513, 2048))
RANGES = ((1, 64), (1, 512), (513, 2048), (2049, 131072))
EVERY = (1, 131072)
EXPERT_RANGES = ((1, 128), (129, 2048))
SCORE_RANGES = ((1, 64), (65, 256), (1, 256), (257, 2048))
STEPS = (64, 128, 256)
"""Token counts behind which kernels take another tile."""
LEFT_OUT_RANGES = ((1, 64), (1, 256))
LEFT_OUT = ("model", "tensor_parallel", "shape")
SINGLE_PRODUCTS = HALF, WIDTH = "half of the shapes", "width"
"""What is left out where every layer is one product, so that a shape has neighbours on all
sides.
"""
WIDTH_KNOWN = {"4096"}
WIDTHS_ASKED = {"5120", "8192"}
MEGABYTE = 1e6


class FitError(NamedTuple):
    """Errors of some rows in per cent of the measured time."""

    what: str
    least_tokens: int
    most_tokens: int
    rows: int
    mape_percent: float
    p95_percent: float
    bias_percent: float
    datasheet_mape_percent: float | None
    """Of a hard maximum of the datasheet's rates; None for links."""
    inside_percent: float | None = None
    """Share of rows within the profile's spread; None where it states none."""


class HeldOutErrors(NamedTuple):
    """Errors of one model, tensor-parallel degree or shape that took no part in the fit; layers, or
    products of a shape.
    """

    by: str
    name: str
    mape_percent: tuple[float, ...]
    """Up to each of ``LEFT_OUT_RANGES``; None where nothing was measured."""
    rows: tuple[int, ...]


class TileStep(NamedTuple):
    """How much longer a layer takes behind a step of token counts: the median over models and
    degrees, in per cent.
    """

    after_tokens: int
    next_tokens: int
    measured_percent: float
    predicted_percent: float


def percents(predicted: Seconds, truth: Seconds) -> tuple[float, float, float]:
    """Return the mean and the 95th percentile of the absolute error and the mean signed error, in
    per cent.
    """
    error = 100.0 * (predicted / truth - 1.0)
    absolute = np.abs(error)
    return float(np.mean(absolute)), float(np.percentile(absolute, 95)), float(np.mean(error))


def errors(device: Device, operation: Roofline, rows: Table) -> list[FitError]:
    """Return errors by range of tokens: layers first where there are products, then parts, of
    attention also shapes.
    """
    timed = rows.assign(
        predicted=seconds(device, operation, rows),
        sheet=seconds(device, DATASHEET, rows),
        seconds=measured(rows),
    )
    name = str(rows.operation.iloc[0])
    fit_errors: list[FitError] = []
    if name == "matmul":
        summed = layers(timed)
        fit_errors += _by_range("layer", summed, LAYER_RANGES)
        if summed.tensor_parallel.nunique() > 1:
            for degree, of_degree in summed.groupby("tensor_parallel"):
                fit_errors += _by_range(f"layer, TP {degree:g}", of_degree, RANGES)
    ranges: Ranges = RANGES
    if name == "experts":
        ranges = EXPERT_RANGES
    for part, of_part in timed.groupby("part"):
        fit_errors += _by_range(str(part) or name, of_part, ranges)
        if name.endswith("attention") and of_part["shape"].nunique() > 1:
            for shape, of_shape in of_part.groupby("shape"):
                fit_errors += _by_range(f"{part}, {shape}", of_shape, RANGES)
    return fit_errors


def growth_bias(device: Device, operation: Roofline, rows: Table) -> float | None:
    """Return by how many per cent the time of 2 to 128 tokens relative to one is predicted too
    high; None: one is missing.
    """
    few = rows[rows.tokens <= experts.DECODES]
    timed = few.assign(off=seconds(device, operation, few) / measured(few))
    of_one = timed[timed.tokens == 1]
    keys = ["source", "shape", "tensor_parallel", "part"]
    pairs = timed.merge(of_one, on=keys, suffixes=("", "_of_one"))
    pairs = pairs[pairs.tokens > 1]
    if pairs.empty:
        return None
    too_high = pairs.off / pairs.off_of_one - 1.0
    return float(100.0 * too_high.mean())


def layers(timed: Table) -> Table:
    """Sum the columns ``predicted``, ``sheet`` and ``seconds`` over the products of each layer."""
    times = {name: timed[name].to_numpy() for name in ("seconds", "predicted", "sheet")}
    return by_layer(timed, **times)


def scores(device: Device, rows: Table) -> Iterator[FitError]:
    """Yield the errors of a profile on rows of any table, without a fit: by operation, part,
    format, implementation and range.

    Rows that no fit uses stand apart, by reason, decode that a cache serves among them; layers of
    several products stand before their parts.
    """
    rows = rows[rows.operation.isin(OPERATIONS[:5])]
    attended = rows[rows.operation.isin(OPERATIONS[1:3])]
    from_memory = attention.uncached(device, attended)
    served = rows.index.isin(attended.index.difference(from_memory.index))
    left_out = rows.left_out.mask(served & (rows.left_out == ""), CACHED)
    rows = rows.assign(left_out=left_out)
    timed = rows.assign(
        predicted=predicted(device, rows),
        sheet=predicted(device, rows, bare=True),
        seconds=measured(rows),
    )
    keys = ["operation", "format", "implementation", "left_out"]
    for kind, of_kind in timed.groupby(keys, sort=False):
        operation, *_ = kind
        name = _joined(*kind)
        if operation == "matmul" and of_kind.groupby(LAYER).size().max() > 1:
            yield from _by_range(f"{name}, layer", layers(of_kind), SCORE_RANGES, device.spread)
        for part, of_part in of_kind.groupby("part"):
            yield from _by_range(_joined(name, part), of_part, SCORE_RANGES, device.spread)


def _joined(*words: object) -> str:
    """Return those of some words that are not empty, with commas between them."""
    return ", ".join(filter(None, map(str, words)))


def predicted(device: Device, rows: Table, bare: bool = False) -> Seconds:
    """Return the seconds that a profile gives every row, shape (rows,); ``bare``: a hard maximum of
    its datasheet's rates.

    Raises :class:`BadInput` for a format whose arithmetic the device does not have.
    """
    times = pd.Series(0.0, rows.index)
    if bare:
        device = device.model_copy(update={"cache_bandwidth_gb_s": None})
    try:
        for (name, weights, part), some in rows.groupby(["operation", "format", "part"]):
            operation = _operation(device, name, weights)
            if bare:
                times[some.index] = seconds(device, DATASHEET, some)
            elif isinstance(operation, Attention):
                times[some.index] = _attention_seconds(device, operation, weights, part, some)
            else:
                times[some.index] = seconds(device, operation, some)
    except ValueError as error:
        raise unfit(str(error), "format") from error
    return np.asarray(times)


def _operation(device: Device, name: str, weights: str) -> Any:
    """Return what a device states of an operation; the datasheet's rates for products of which it
    states nothing.
    """
    if name == "matmul":
        return device.matmul_for(weights) or DATASHEET
    if name == "experts":
        return device.experts_for(weights) or DATASHEET
    if name == "small_operations":
        return device.small_operations
    return device.attention_for(name)


def _attention_seconds(
    device: Device, operation: Attention, weights: Any, part: str, rows: Table
) -> Any:
    """Return the seconds of attention over a cache of a format, shape (rows,)."""
    parts = operation.over(weights)
    of_part = attention.with_queries(rows)
    if part == "prefill":
        return seconds(device, parts.prefill, of_part)
    times = seconds(device, parts.decode, of_part)
    if part == "decode":
        return times
    further_rows = of_part.rows.to_numpy() - 1.0
    return times * (1.0 + operation.extra_row.value * further_rows)


def _by_range(name: str, timed: Table, ranges: Ranges, spread: Any = None) -> Iterator[FitError]:
    for low, high in ranges:
        part = timed[timed.tokens.between(low, high)]
        if part.empty:
            continue
        truth = part.seconds.to_numpy()
        own = percents(part.predicted.to_numpy(), truth)
        sheet_mape, _, _ = percents(part.sheet.to_numpy(), truth)
        inside = None
        if spread is not None:
            off = (part.predicted / truth - 1.0).abs()
            inside = 100.0 * float((off <= spread.value).mean())
        yield FitError(name, low, high, len(part), *own, sheet_mape, inside)


def ways_left_out(
    device: Device, rows: Table, form: Form, fitted: Roofline
) -> Iterator[HeldOutErrors]:
    """Yield the errors of each model, degree or shape, or group of single products, as a fit to all
    the others predicts it.
    """
    ways: tuple[str, ...] = LEFT_OUT
    if isinstance(fitted, ExpertRoofline):
        ways = ("shape",)
    elif rows.groupby(LAYER).size().eq(1).all():
        ways = SINGLE_PRODUCTS
    for by in ways:
        yield from left_out(device, rows, form, fitted, by)


def _splits(rows: Table, by: str) -> Iterator[tuple[object, Any, Any]]:
    """Yield a name, which rows are left out, and to which the fit is made."""
    shapes = rows["shape"]
    if by == HALF:
        ordered = sorted(shapes.unique())
        half = shapes.map({shape: place % 2 for place, shape in enumerate(ordered)})
        yield "odd", half == 0, half != 0
        yield "even", half == 1, half != 1
    elif by == WIDTH:
        sides = shapes.map(lambda name: set(name.split("x")))
        asked = sides.map(WIDTHS_ASKED.intersection).astype(bool)
        known = sides.map(WIDTH_KNOWN.intersection).astype(bool)
        if asked.any() and (known & ~asked).any():
            yield "5120, 8192 by 4096", asked, known & ~asked
    elif rows[by].nunique() > 1:
        for value in rows[by].unique():
            yield value, rows[by] == value, rows[by] != value


def left_out(
    device: Device, rows: Table, form: Form, fitted: Roofline, by: str
) -> list[HeldOutErrors]:
    """Return the errors of each part of ``rows``, split ``by`` one of the ways, as a fit to others
    predicts it; maybe none.
    """
    results = []
    for value, outside, others in _splits(rows, by):
        if not (outside.any() and others.any()):
            continue  # a single shape has no other half
        excluded = rows[outside]
        start = None
        if by == "shape":  # one of forty leaves the numbers where they are
            start = fitted
        refit: Any
        if isinstance(fitted, ExpertRoofline):
            refit = experts.fitted(device, rows[others])
        else:
            refit = fit.products(device, rows[others], form, start)
        times = {"seconds": measured(excluded), "predicted": seconds(device, refit, excluded)}
        if by in ("shape", *SINGLE_PRODUCTS):
            timed = excluded.assign(**times)
        else:
            timed = by_layer(excluded, **times)
        mapes = []
        counts = []
        for limits in LEFT_OUT_RANGES:
            part = timed[timed.tokens.between(*limits)]
            counts.append(len(part))
            mapes.append(_mape(part))
        name = str(value)
        if isinstance(value, float):
            name = f"{value:g}"
        results.append(HeldOutErrors(by, name, tuple(mapes), tuple(counts)))
    return results


def _mape(timed: Table) -> float:
    """Return the mean absolute error in per cent; no number where there are no rows."""
    if timed.empty:
        return np.nan
    mape, _, _ = percents(timed.predicted.to_numpy(), timed.seconds.to_numpy())
    return mape


def heads_left_out(device: Device, rows: Table, like: Roofline | AttentionParts) -> list[FitError]:
    """Return the errors of decode and prefill where each half of the head shapes is asked of a fit
    to the other; maybe none.
    """
    shapes = rows.kv_heads.map(str) + "x" + rows.query_width.map(str)
    asked = []
    if isinstance(like, Roofline) or shapes.nunique() == 1:
        return []
    for _, outside, others in _splits(rows.assign(shape=shapes), HALF):
        parts = attention.in_parts(device, rows[others], like)
        queried = attention.with_queries(attention.uncached(device, rows[outside]))
        for part, some in queried.groupby("part"):
            refit = getattr(parts, str(part))
            timed = some.assign(
                seconds=measured(some),
                predicted=seconds(device, refit, some),
                sheet=seconds(device, DATASHEET, some),
            )
            asked.append(timed)
    fit_errors: list[FitError] = []
    for part, timed in pd.concat(asked).groupby("part"):
        fit_errors += _by_range(f"{part}, {HALF}", timed, (*RANGES, EVERY))
    return fit_errors


def steps(device: Device, operation: Roofline, rows: Table) -> list[TileStep]:
    """Return the measured and the predicted growth of a layer from each of ``STEPS`` to the next
    measured token count.
    """
    layers = by_layer(rows, measured=measured(rows), predicted=seconds(device, operation, rows))
    at = {}
    for tokens, some in layers.groupby("tokens"):
        at[tokens] = some.set_index(LAYER[:2])[["measured", "predicted"]]
    grown = []
    for after in STEPS:
        if after in at and after < max(at):
            then = min(tokens for tokens in at if tokens > after)
            growth = at[then] / at[after] - 1.0
            medians = 100.0 * growth.median()
            grown.append(TileStep(after, int(then), *medians.tolist()))
    return grown


def link_scores(link: Link, rows: Table) -> Iterator[FitError]:
    """Yield the errors of a link on collectives and transfers, without a fit, by implementation.

    An implementation that the link does not name is held against each of its forms; bare: bytes
    that move over its bandwidth.
    """
    forms = link.all_reduce.forms(0)
    for (operation, implementation), some in rows.groupby(["operation", "implementation"]):
        moved = some.size_bytes / (link.bandwidth_gb_s.value * 1e9)
        if operation == "transfer":
            transferred = link.latency_us.value * 1e-6 + moved
            yield from link_errors("transfer", some, transferred.to_numpy(), moved)
            continue
        if operation != "all_reduce":  # a direction of an all-to-all, which few links state
            form = getattr(link.all_to_all, str(operation), None)
            if form is None:
                whose = link.name or "the link"
                raise unfit(f"hold {operation}, of which {whose} states no time", "operation")
            yield from link_errors(str(operation), some, fit.reduced(form, some), moved)
            continue
        bare = 2.0 * (some.ranks - 1.0) / some.ranks * moved
        names = list(forms)
        if implementation in forms:
            names = [implementation]
        for name in names:
            what = f"all_reduce, {name}"
            if implementation not in ("", name):
                what = f"all_reduce {implementation}, {name}"
            yield from link_errors(what, some, fit.reduced(forms[name], some), bare)


def link_errors(name: str, rows: Table, predicted: Seconds, sheet: Any = None) -> list[FitError]:
    """Return the errors of a collective: over all sizes, up to and above one megabyte, and by
    ranks.
    """
    timed = rows.assign(seconds=measured(rows), predicted=predicted, sheet=sheet)
    parts = {
        name: timed,
        f"{name}, up to 1 MB": timed[timed.size_bytes <= MEGABYTE],
        f"{name}, above 1 MB": timed[timed.size_bytes > MEGABYTE],
    }
    parts |= {f"{name}, {ranks:g} ranks": part for ranks, part in timed.groupby("ranks")}
    fit_errors = []
    for what, part in parts.items():
        if part.empty:
            continue
        truth = part.seconds.to_numpy()
        own = percents(part.predicted.to_numpy(), truth)
        sheet_mape = None
        if sheet is not None:
            sheet_mape, _, _ = percents(part.sheet.to_numpy(), truth)
        fit_errors.append(FitError(what, 0, 0, len(part), *own, sheet_mape))
    return fit_errors
