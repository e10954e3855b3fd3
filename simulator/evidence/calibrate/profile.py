"""A fitted device or link: its numbers, its errors, and the YAML file that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

from simulator.cost.device import Attention, Device, Link, RingAllReduce, Roofline, TreeAllReduce
from simulator.evidence.calibrate import fit, quality
from simulator.evidence.calibrate.fit import TABLE, Form
from simulator.evidence.calibrate.measurements import Table
from simulator.evidence.calibrate.quality import FitError, HeldOutErrors, TileStep
from simulator.files.schema import BadInput, Document, Fault

DEVICE_OPERATIONS = ("matmul", "attention", "small_operations")
NUMBERS = ("fixed_us", "memory_efficiency", "compute_efficiency", "p_norm")


class FittedProfile(NamedTuple):
    """A fitted profile. ``data`` is the content of its file; errors are those of its rounded numbers."""

    data: dict[str, Any]
    errors: dict[str, list[FitError]]
    """Errors of the fit, by operation."""
    before: dict[str, list[FitError]]
    """Errors of the profile that the fit started from, by operation."""
    left_out: list[HeldOutErrors]
    steps: list[TileStep]
    steps_before: list[TileStep]
    tiles: dict[str, float]
    """Layer error of each set of tiles that was tried, in per cent."""
    layers: Table | None
    """Seconds of every measured layer: ``seconds``, and as ``predicted``, by ``like`` and by the data``sheet``."""


def device(
    rows: Table,
    like: Document,
    profile: Device,
    form: Form | None = None,
    left_out: bool = True,
    ratios: int | None = None,
) -> FittedProfile:
    """Fit what was measured of a device; everything else stays as in ``like``, which is ``profile`` as it was written.

    ``form`` says which tiles and table; None tries the candidates for the formula. ``ratios`` is the most tokens to which
    the table of ``like`` alone is fitted (:func:`~simulator.evidence.calibrate.fit.width_ratios`). Raises
    :class:`BadInput` where the rows hold nothing of a device.
    """
    if ratios:
        rows, form, left_out = rows[rows.operation == "matmul"], TABLE, False
    by_operation = {name: rows[rows.operation == name] for name in DEVICE_OPERATIONS if (rows.operation == name).any()}
    if not by_operation:
        raise BadInput([Fault(("measurements", 0, 0), "", f"hold none of {', '.join(DEVICE_OPERATIONS)}")])
    products = by_operation.get("matmul")
    tried = fit.best_tiles(profile, products) if products is not None and form is None else {}
    form = form or min(tried, key=tried.__getitem__, default=TABLE)
    fits = {name: _fitted(name, profile, measured, form, ratios) for name, measured in by_operation.items()}
    before = {name: profile.matmul["default"] if name == "matmul" else getattr(profile, name) for name in by_operation}
    data = deepcopy(like.data)
    for name, operation in fits.items():
        section = _section(name, profile, operation, by_operation[name], like)
        if ratios:
            section = like.data[name]["default"] | {key: section[key] for key in ("width", "width_source")}
        data[name] = {**data[name], "default": section} if name == "matmul" else section
    errors, errors_before = (
        {name: quality.errors(profile, operation, by_operation[name]) for name, operation in operations.items()}
        for operations in (fits, before)
    )
    outside: list[HeldOutErrors] = []
    steps: list[list[TileStep]] = [[], []]
    if products is not None:
        steps = [quality.steps(profile, operations["matmul"], products) for operations in (fits, before)]
        outside += quality.ways_left_out(profile, products, form, fits["matmul"]) if left_out else []
    tiles = {", ".join(map(str, candidate.tiles)): error for candidate, error in tried.items()}
    layers = None if products is None else _layers(profile, products, fits["matmul"], before["matmul"])
    return FittedProfile(data, errors, errors_before, outside, steps[0], steps[1], tiles, layers)


def _layers(profile: Device, rows: Table, fitted: Roofline, before: Roofline) -> Table:
    operations = {"predicted": fitted, "like": before, "sheet": fit.DATASHEET}
    times = {name: fit.by_layer(rows, fit.seconds(profile, roofline, rows)).seconds for name, roofline in operations.items()}
    return fit.by_layer(rows, fit.measured(rows)).assign(**times)


def _fitted(name: str, profile: Device, rows: Table, form: Form, ratios: int | None) -> Roofline:
    if ratios:
        return fit.width_ratios(profile, rows, profile.matmul["default"], ratios)
    if name == "matmul":
        return fit.products(profile, rows, form)
    if name == "attention":
        like = profile.attention.decode if isinstance(profile.attention, Attention) else profile.attention
        return fit.attention(profile, rows, like)
    return fit.small_operations(profile, rows)


def _section(name: str, profile: Device, operation: Roofline, rows: Table, like: Document) -> dict[str, Any]:
    """Return an operation as it stands in a file; what was not measured keeps its source, or says that it is not used."""
    errors = _layer(profile, operation, rows) if name == "matmul" else _parts(profile, operation, rows)
    section = _written(operation, _source(rows, errors))
    if name == "attention" and not fit.bound_by_memory(profile, rows):
        section |= {key: like.data[name][key] for key in ("memory_efficiency", "p_norm")}
    if name == "small_operations":
        unused = {"source": "not used: small operations count no flops", "confidence": "assumed"}
        section |= {key: {"value": section[key]["value"], **unused} for key in ("compute_efficiency", "p_norm")}
    return section


def link(rows: Table, like: Document, profile: Link) -> FittedProfile:
    """Fit what was measured of a link: forms of all-reduce, and the latency of a transfer at its stated bandwidth."""
    reduces, transfers = (rows[rows.operation == name] for name in ("all_reduce", "transfer"))
    if reduces.empty and transfers.empty:
        raise BadInput([Fault(("measurements", 0, 0), "", "hold no all_reduce or transfer; nothing to fit a link to")])
    data, errors = deepcopy(like.data), {}
    if len(reduces):
        sample = fit.spread(reduces)
        forms: Mapping[str, Callable[[], fit.Reduce]] = {
            "ring": lambda: fit.all_reduce(RingAllReduce, reduces),
            "tree": lambda: fit.all_reduce(TreeAllReduce, reduces),
        }
        data["all_reduce"] = {}
        for name, fitted in forms.items():
            form = fitted()
            errors[name] = quality.link_errors(f"all_reduce, {name}", sample, fit.reduced(form, sample))
            numbers = {key: value["value"] for key, value in form.model_dump().items() if isinstance(value, dict)}
            data["all_reduce"][name] = _numbers(numbers, _source(sample, _first(errors[name])))
    if len(transfers):
        sample = fit.spread(transfers)
        latency = fit.transfer_latency_us(transfers, profile.bandwidth_gb_s.value)
        carried = sample.size_bytes.to_numpy() / (profile.bandwidth_gb_s.value * 1e9)
        errors["transfer"] = quality.link_errors("transfer", sample, latency * 1e-6 + carried)
        data |= _numbers({"latency_us": latency}, _source(sample, _first(errors["transfer"])))
    return FittedProfile(data, errors, {}, [], [], [], {}, None)


def text(data: Mapping[str, Any]) -> str:
    """Return a profile as YAML text."""
    dumped: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return dumped


def _written(operation: Roofline, source: str) -> dict[str, Any]:
    """Return a roofline as it stands in a file; it is one fit, so the source stands with its first number."""
    numbers = _numbers({key: getattr(operation, key).value for key in NUMBERS}, source)
    tiles = {"tile_tokens": list(operation.tile_tokens)} if operation.tile_tokens != (1,) else {}
    if not operation.width:
        return numbers | tiles
    points = [point.model_dump() for point in operation.width]
    return numbers | tiles | {"width": points, "width_source": source}


def _numbers(values: Mapping[str, float], source: str) -> dict[str, Any]:
    first, *_ = values
    sources = {key: source if key == first else f"calibrated-on: as {first} (one fit)" for key in values}
    return {key: {"value": value, "source": sources[key], "confidence": "calibrated"} for key, value in values.items()}


def _source(rows: Table, errors: str) -> str:
    parts = ", ".join(str(part) for part in rows.part.unique() if part)
    tokens = f"{rows.tokens.min():g}..{rows.tokens.max():g} tokens" if rows.tokens.max() else f"{len(rows)} sizes"
    return f"calibrated-on: {'; '.join(rows.source.unique())}; {', '.join(filter(None, (parts, tokens)))}; {errors}"


def _layer(profile: Device, operation: Roofline, rows: Table) -> str:
    layers = [error for error in quality.errors(profile, operation, rows) if error.what == "layer"]
    mapes = {(error.least_tokens, error.most_tokens): error.mape_percent for error in layers}
    limits = [limit for limit in ((1, 64), (1, 256), (1, 512)) if limit in mapes]
    return f"layer MAPE {', '.join(f'{mapes[low, high]:.1f} % at {low}..{high}' for low, high in limits)}"


def _parts(profile: Device, operation: Roofline, rows: Table) -> str:
    words = []
    for (part, shape), timed in rows.groupby(["part", "shape"]):
        mape = quality.percents(fit.seconds(profile, operation, timed), fit.measured(timed))[0]
        words.append(f"{', '.join(filter(None, (str(part), str(shape))))} {mape:.1f} %".strip())
    return f"MAPE {'; '.join(words)}"


def _first(errors: list[FitError]) -> str:
    return f"MAPE {errors[0].mape_percent:.1f} %"
