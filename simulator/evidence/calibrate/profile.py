"""A fitted device or link: its numbers, its errors, and the YAML file that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

from simulator.cost.device import Device, Link, RingAllReduce, Roofline, TreeAllReduce
from simulator.evidence.calibrate import fit, quality
from simulator.evidence.calibrate.fit import TABLE, Form
from simulator.evidence.calibrate.measurements import Table
from simulator.evidence.calibrate.quality import FitError, HeldOutErrors, TileStep
from simulator.files.schema import BadInput, Document, Fault

DEVICE_OPERATIONS = ("matmul", "attention", "small_operations")
NUMBERS = ("fixed_us", "memory_efficiency", "compute_efficiency", "p_norm")


class FittedProfile(NamedTuple):
    """What a fit came to. ``data`` is the content of the profile; errors are those of its rounded numbers."""

    data: dict[str, Any]
    errors: dict[str, list[FitError]]
    """By operation."""
    before: dict[str, list[FitError]]
    """The same of the profile that it was to be like."""
    left_out: list[HeldOutErrors]
    steps: list[TileStep]
    steps_before: list[TileStep]
    tiles: dict[str, float]
    """Layer error of each set of tiles that was tried, in per cent."""
    layers: Table | None
    """Seconds of every measured layer: ``seconds``, and as ``predicted``, by ``like`` and by the data``sheet``."""


def device(rows: Table, like: Document, profile: Device, form: Form | None = None, left_out: bool = True) -> FittedProfile:
    """Fit what was measured of a device; everything else stays as in ``like``, which is ``profile`` as it was written.

    ``form`` says which tiles and table; None tries the candidates for the formula. Raises :class:`BadInput` where the
    rows hold nothing of a device.
    """
    held = {name: some for name in DEVICE_OPERATIONS if len(some := rows[rows.operation == name])}
    if not held:
        raise BadInput([Fault(("measurements", 0, 0), "", f"hold none of {', '.join(DEVICE_OPERATIONS)}")])
    products = held.get("matmul")
    tried = fit.best_tiles(profile, products) if products is not None and form is None else {}
    form = form or min(tried, key=lambda one: tried[one], default=TABLE)
    fits = {name: _fitted(name, profile, some, form) for name, some in held.items()}
    before = {name: profile.matmul["default"] if name == "matmul" else getattr(profile, name) for name in held}
    data = deepcopy(like.data)
    for name, operation in fits.items():
        section = _section(name, profile, operation, held[name], like)
        data[name] = {**data[name], "default": section} if name == "matmul" else section
    told = [{name: quality.errors(profile, one, held[name]) for name, one in some.items()} for some in (fits, before)]
    outside: list[HeldOutErrors] = []
    steps: list[list[TileStep]] = [[], []]
    if products is not None:
        steps = [quality.steps(profile, one["matmul"], products) for one in (fits, before)]
        for by in quality.LEFT_OUT if left_out else ():
            outside += quality.left_out(profile, products, form, fits["matmul"], by)
    tiles = {", ".join(map(str, one.tiles)): error for one, error in tried.items()}
    layers = None if products is None else _layers(profile, products, fits["matmul"], before["matmul"])
    return FittedProfile(data, told[0], told[1], outside, steps[0], steps[1], tiles, layers)


def _layers(profile: Device, rows: Table, fitted: Roofline, before: Roofline) -> Table:
    operations = {"predicted": fitted, "like": before, "sheet": fit.DATASHEET}
    times = {name: fit.by_layer(rows, fit.seconds(profile, one, rows)).seconds for name, one in operations.items()}
    return fit.by_layer(rows, fit.measured(rows)).assign(**times)


def _fitted(name: str, profile: Device, rows: Table, form: Form) -> Roofline:
    if name == "matmul":
        return fit.products(profile, rows, form)
    return fit.attention(profile, rows, profile.attention) if name == "attention" else fit.small_operations(profile, rows)


def _section(name: str, profile: Device, operation: Roofline, rows: Table, like: Document) -> dict[str, Any]:
    """An operation as it stands in a file; what was not measured keeps its source, or says that it is not used."""
    told = _layer(profile, operation, rows) if name == "matmul" else _parts(profile, operation, rows)
    section = _written(operation, _source(rows, told))
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
    data, found = deepcopy(like.data), {}
    if len(reduces):
        told = fit.spread(reduces)
        forms: Mapping[str, Callable[[], fit.Reduce]] = {
            "ring": lambda: fit.all_reduce(RingAllReduce, reduces),
            "tree": lambda: fit.all_reduce(TreeAllReduce, reduces),
        }
        data["all_reduce"] = {}
        for name, fitted in forms.items():
            form = fitted()
            found[name] = quality.link_errors(f"all_reduce, {name}", told, fit.reduced(form, told))
            numbers = {key: value["value"] for key, value in form.model_dump().items() if isinstance(value, dict)}
            data["all_reduce"][name] = _numbers(numbers, _source(told, _first(found[name])))
    if len(transfers):
        told = fit.spread(transfers)
        latency = fit.transfer_latency_us(transfers, profile.bandwidth_gb_s.value)
        carried = told.size_bytes.to_numpy() / (profile.bandwidth_gb_s.value * 1e9)
        found["transfer"] = quality.link_errors("transfer", told, latency * 1e-6 + carried)
        data |= _numbers({"latency_us": latency}, _source(told, _first(found["transfer"])))
    return FittedProfile(data, found, {}, [], [], [], {}, None)


def text(data: Mapping[str, Any]) -> str:
    """A profile as YAML."""
    dumped: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return dumped


def _written(operation: Roofline, source: str) -> dict[str, Any]:
    """A roofline as it stands in a file; one fit, so the source stands with its first number."""
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
    found = {(e.least_tokens, e.most_tokens): e for e in quality.errors(profile, operation, rows) if e.what == "layer"}
    limits = [some for some in ((1, 64), (1, 256), (1, 512)) if some in found]
    told = [f"{found[low, high].mape_percent:.1f} % at {low}..{high}" for low, high in limits]
    return f"layer MAPE {', '.join(told)}"


def _parts(profile: Device, operation: Roofline, rows: Table) -> str:
    told = []
    for (part, shape), some in rows.groupby(["part", "shape"]):
        mape = quality.percents(fit.seconds(profile, operation, some), fit.measured(some))[0]
        told.append(f"{', '.join(filter(None, (str(part), str(shape))))} {mape:.1f} %".strip())
    return f"MAPE {'; '.join(told)}"


def _first(errors: list[FitError]) -> str:
    return f"MAPE {errors[0].mape_percent:.1f} %"
