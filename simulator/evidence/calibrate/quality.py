"""How well a roofline or a link fits what was measured, and what was left out when it was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from simulator.cost.device import Device, Roofline
from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.fit import DATASHEET, LAYER, Form, Seconds, by_layer, measured, seconds
from simulator.evidence.calibrate.measurements import Table

LAYER_RANGES = ((1, 64), (65, 128), (129, 256), (1, 256), (257, 512), (1, 512), (513, 2048))
RANGES = ((1, 64), (1, 512), (513, 2048))
STEPS = (64, 128, 256)
"""Token counts behind which kernels take another tile."""
LEFT_OUT_RANGES = ((1, 64), (1, 256))
LEFT_OUT = ("model", "tensor_parallel", "shape")
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


class HeldOutErrors(NamedTuple):
    """Errors of one model, tensor-parallel degree or shape that took no part in the fit; layers, or products of a shape."""

    by: str
    name: str
    mape_percent: tuple[float, ...]
    """Up to each of ``LEFT_OUT_RANGES``; None where nothing was measured."""
    rows: tuple[int, ...]


class TileStep(NamedTuple):
    """How much longer a layer takes behind a step: the median over models and degrees, in per cent."""

    after_tokens: int
    next_tokens: int
    measured_percent: float
    predicted_percent: float


def percents(predicted: Seconds, truth: Seconds) -> tuple[float, float, float]:
    """Mean and 95th percentile of the absolute error and the mean signed one."""
    error = 100.0 * (predicted / truth - 1.0)
    return float(np.mean(np.abs(error))), float(np.percentile(np.abs(error), 95)), float(np.mean(error))


def errors(device: Device, operation: Roofline, rows: Table) -> list[FitError]:
    """By range of tokens: layers first where there are products, then every part, of attention also every shape."""
    timed = rows.assign(
        predicted=seconds(device, operation, rows), sheet=seconds(device, DATASHEET, rows), seconds=measured(rows)
    )
    name = str(rows.operation.iloc[0])
    found: list[FitError] = []
    if name == "matmul":
        summed = layers(timed)
        found += _by_range("layer", summed, LAYER_RANGES)
        for degree, some in summed.groupby("tensor_parallel") if summed.tensor_parallel.nunique() > 1 else ():
            found += _by_range(f"layer, TP {degree:g}", some, RANGES)
    for part, some in timed.groupby("part"):
        found += _by_range(str(part) or name, some, RANGES)
        if name == "attention" and some["shape"].nunique() > 1:
            for shape, one in some.groupby("shape"):
                found += _by_range(f"{part}, {shape}", one, RANGES)
    return found


def layers(timed: Table) -> Table:
    """Columns ``predicted``, ``sheet`` and ``seconds`` summed over the products of a layer."""
    summed = [
        by_layer(timed, timed[column].to_numpy()).rename(columns={"seconds": column}) for column in ("predicted", "sheet")
    ]
    truth = by_layer(timed, timed.seconds.to_numpy())
    return truth.merge(summed[0], on=LAYER).merge(summed[1], on=LAYER)


def _by_range(name: str, some: Table, ranges: Sequence[tuple[int, int]]) -> Iterator[FitError]:
    for low, high in ranges:
        part = some[some.tokens.between(low, high)]
        if len(part):
            truth = part.seconds.to_numpy()
            sheet = percents(part.sheet.to_numpy(), truth)[0]
            yield FitError(name, low, high, len(part), *percents(part.predicted.to_numpy(), truth), sheet)


def left_out(device: Device, rows: Table, form: Form, fitted: Roofline, by: str) -> list[HeldOutErrors]:
    """Each model, degree or shape predicted by a fit to all the others; nothing where there is but one."""
    found, values = [], rows[by].unique()
    for value in values if len(values) > 1 else ():
        held = rows[rows[by] == value]
        start = fitted if by == "shape" else None  # one of forty leaves the numbers where they are
        refit = fit.products(device, rows[rows[by] != value], form, start)
        times, truth = seconds(device, refit, held), measured(held)
        if by == "shape":
            timed = held.assign(seconds=truth, predicted=times)
        else:
            timed = by_layer(held, truth).assign(predicted=by_layer(held, times).seconds)
        parts = [timed[timed.tokens.between(*limits)] for limits in LEFT_OUT_RANGES]
        mapes = [percents(part.predicted.to_numpy(), part.seconds.to_numpy())[0] if len(part) else np.nan for part in parts]
        name = f"{value:g}" if isinstance(value, float) else str(value)
        found.append(HeldOutErrors(by, name, tuple(mapes), tuple(map(len, parts))))
    return found


def steps(device: Device, operation: Roofline, rows: Table) -> list[TileStep]:
    """Measured and predicted growth of a layer from ``STEPS`` to the next measured token count."""
    truth, predicted = by_layer(rows, measured(rows)), by_layer(rows, seconds(device, operation, rows))
    counts = np.unique(truth.tokens)
    found = []
    for after in (step for step in STEPS if step in counts and step < counts[-1]):
        following = counts[counts > after][0]
        growth = [_growth(table, after, following) for table in (truth, predicted)]
        found.append(TileStep(after, int(following), *growth))
    return found


def _growth(layer: Table, after: int, following: float) -> float:
    keys = LAYER[:2]
    before, behind = (layer[layer.tokens == tokens].set_index(keys).seconds for tokens in (after, following))
    return float(100.0 * (behind / before - 1.0).median())


def link_errors(name: str, rows: Table, predicted: Seconds) -> list[FitError]:
    """Of a collective: all sizes, those up to and above one megabyte, and by ranks."""
    timed = rows.assign(seconds=measured(rows), predicted=predicted)
    parts = {
        name: timed,
        f"{name}, up to 1 MB": timed[timed.size_bytes <= MEGABYTE],
        f"{name}, above 1 MB": timed[timed.size_bytes > MEGABYTE],
    }
    parts |= {f"{name}, {ranks:g} ranks": part for ranks, part in timed.groupby("ranks")}
    held: Sequence[tuple[str, pd.DataFrame]] = [(what, part) for what, part in parts.items() if len(part)]
    return [
        FitError(what, 0, 0, len(part), *percents(part.predicted.to_numpy(), part.seconds.to_numpy()), None)
        for what, part in held
    ]
