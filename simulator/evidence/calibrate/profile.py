"""A fitted device or link: its numbers, its errors, and the YAML file that holds them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

import yaml

from simulator.core.cost.borrowing import IN_PARTS, borrow
from simulator.core.cost.collectives import Exchange, RingAllReduce, TreeAllReduce
from simulator.core.cost.device import Device, Link
from simulator.core.cost.roofline import (
    TILE_ROWS,
    Attention,
    AttentionParts,
    AttentionRoofline,
    ExpertRoofline,
    Roofline,
)
from simulator.core.parallel import counted, say
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.quantities import Positive, Sourced
from simulator.evidence.calibrate import attention, experts, fit, quality
from simulator.evidence.calibrate.fit import TABLE, Form
from simulator.evidence.calibrate.measurements import CACHED, OPERATIONS, Table, unfit
from simulator.evidence.calibrate.quality import FitError, HeldOutErrors, TileStep
from simulator.inputs.document import Document

DEVICE_OPERATIONS = OPERATIONS[:5]
PRODUCTS = ("matmul", "fp16")
SHAPED = {"matmul": "products", "experts": "experts"}
"""Operations of which some shapes are left out of a fit to the others, in words."""
Operation: TypeAlias = Roofline | AttentionParts
Group: TypeAlias = tuple[str, str]
"""An operation, and the format of its weights or of its cache."""
DIRECTIONS = ("dispatch", "combine")
NUMBERS = ("fixed_us", "memory_efficiency", "compute_efficiency", "p_norm")


class FittedProfile(NamedTuple):
    """A fitted profile. ``data`` is the content of its file; errors are those of its rounded
    numbers.
    """

    data: PlainData
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
    """Seconds of every measured layer: ``seconds``, and as ``predicted``, by ``like`` and by the
    data``sheet``.
    """


def device(
    rows: Table,
    like: Document,
    profile: Device,
    form: Form | None = None,
    left_out: bool = True,
    ratios: int | None = None,
) -> FittedProfile:
    """Fit what was measured of a device; everything else stays as in ``like``, which is ``profile``
    as it was written.

    ``form`` says which tiles and table; None tries the candidates for the formula. ``ratios`` is
    the most tokens to which the table of ``like`` alone is fitted
    (:func:`~simulator.evidence.calibrate.fit.width_ratios`). Raises :class:`BadInput` where the
    rows hold nothing of a device.
    """
    if ratios:
        rows = rows[(rows.operation == "matmul") & (rows.format == "fp16")]
        form = TABLE
        left_out = False
    groups = _groups(profile, rows)
    products = groups.get(PRODUCTS)
    tried: Mapping[Form, float] = {}
    if products is not None and form is None:
        tried = fit.best_tiles(profile, products)
    form = form or min(tried, key=tried.__getitem__, default=TABLE)
    data = deepcopy(like.data)
    before = dict[str, Operation]()
    fits = dict[str, Operation]()
    errors = dict[str, list[FitError]]()
    errors_before = dict[str, list[FitError]]()
    for group in counted(sorted(groups, key=_in_turn), "operations"):
        name = _name(group)
        say(f"fitting {name}")
        measured = _uncached(profile, groups[group])
        old = _of(profile, *group, measured)
        fitted = _fitted(group, profile, measured, form, ratios, old)
        before[name] = old
        fits[name] = fitted
        if group == PRODUCTS:
            data, profile = _with_cache(data, profile, fitted, groups[group])
        _write(data, group, profile, fitted, measured, like)
        if ratios:
            _keep_all_but_the_width(data, like)
        errors[name] = _errors(profile, fitted, measured)
        errors_before[name] = _errors(profile, old, measured)
        if left_out and "attention" in name:
            errors[name] += quality.heads_left_out(profile, measured, fitted)
    steps = list[TileStep]()
    steps_before = list[TileStep]()
    layers = None
    now = fits.get("matmul")
    start = before.get("matmul")
    if products is not None and isinstance(now, Roofline) and isinstance(start, Roofline):
        steps = quality.steps(profile, now, products)
        steps_before = quality.steps(profile, start, products)
        layers = _layers(profile, products, now, start)
    outside = list[HeldOutErrors]()
    if left_out:
        outside = _shapes_left_out(profile, groups, fits, form)
    tiles = {}
    for candidate, error in tried.items():
        tiles[", ".join(map(str, candidate.tiles))] = error
    return FittedProfile(data, errors, errors_before, outside, steps, steps_before, tiles, layers)


def _groups(profile: Device, rows: Table) -> dict[Group, Table]:
    """Return the rows that can be fitted, by operation and format; raise :class:`BadInput` where
    there are none.
    """
    usable = [""]
    if profile.cache_mb is not None:
        usable.append(CACHED)
    rows = rows[rows.operation.isin(DEVICE_OPERATIONS) & rows.left_out.isin(usable)]
    rows = rows[(rows.operation != "experts") | (rows.left_out == "")]
    if rows.empty:
        raise unfit(f"hold none of {', '.join(DEVICE_OPERATIONS)} to fit")
    groups = {}
    for (operation, weights), part in rows.groupby(["operation", "format"], sort=False):
        groups[operation, str(weights)] = part
    return groups


def _in_turn(group: Group) -> tuple[bool, bool]:
    """Return the key by which groups are fitted in turn: products in 16 bits first, as they tell
    the bandwidth of the cache, and each operation's 16 bits before its other formats.
    """
    return group != PRODUCTS, group[1] != "fp16"


def _name(group: Group) -> str:
    """Return the name of an operation in a format; 16 bits are not named."""
    return ", ".join(word for word in group if word != "fp16")


def _keep_all_but_the_width(data: PlainData, like: Document) -> None:
    """Put back what products were before the fit, but for their table by width."""
    section = dict(like.data["matmul"]["default"])
    for key in ("width", "width_source"):
        section[key] = data["matmul"]["default"][key]
    data["matmul"]["default"] = section


def _layers(profile: Device, products: Table, now: Roofline, start: Roofline) -> Table:
    """Return the seconds of every measured layer, and what the fit, its start and the datasheet say
    of it.
    """
    return fit.by_layer(
        products,
        seconds=fit.measured(products),
        predicted=fit.seconds(profile, now, products),
        like=fit.seconds(profile, start, products),
        sheet=fit.seconds(profile, fit.DATASHEET, products),
    )


def _shapes_left_out(
    profile: Device, groups: Mapping[Group, Table], fits: Mapping[str, Operation], form: Form
) -> list[HeldOutErrors]:
    """Return the errors of shapes that a fit to the others predicts, by operation and format."""
    outside = []
    for group, measured in groups.items():
        operation, weights = group
        fitted = fits[_name(group)]
        if operation not in SHAPED or not isinstance(fitted, Roofline):
            continue
        say(f"predicting {SHAPED[operation]} in {weights} that a fit leaves out")
        uncached = _uncached(profile, measured)
        shape = _with_depth(form, fitted)
        for error in quality.ways_left_out(profile, uncached, shape, fitted):
            by = error.by
            if weights != "fp16":
                by = f"{weights}, {by}"
            outside.append(error._replace(by=by))
    return outside


def _with_cache(
    data: PlainData, profile: Device, fitted: Operation, rows: Table
) -> tuple[PlainData, Device]:
    """Return the data of a file and its profile with the bandwidth of the cache, where products
    show one.
    """
    speed = None
    if isinstance(fitted, Roofline):
        speed = fit.cache_bandwidth(profile, fitted, rows)
    if not speed:
        return data, profile
    source = _source(_uncached(profile, rows), "products that the cache holds")
    number = _numbers({"cache_bandwidth_gb_s": speed}, source)
    cache = {key: Positive.model_validate(value) for key, value in number.items()}
    return data | number, profile.model_copy(update=cache)


def _uncached(profile: Device, rows: Table) -> Table:
    """Return rows without products whose weights the device's cache holds; attention drops its
    own.
    """
    beyond = rows[fit.cached_share(profile, rows) == 0.0]
    if beyond.empty:
        raise unfit(
            "hold only products whose weights the device's cache holds; nothing to fit its "
            "memory to",
            "size_bytes",
        )
    return beyond


def _of(profile: Device, name: str, form: str, rows: Table) -> Operation:
    """Return an operation of a profile as rows of this format take it; attention in parts where the
    rows are.
    """
    if name == "matmul":
        return profile.matmul_for(form)
    if name == "experts":
        return profile.experts_for(form) or fit.DATASHEET
    if name == "small_operations":
        return profile.small_operations
    whole = profile.attention_for(name)
    if isinstance(whole, Attention):
        return next((parts for cache, parts in whole.kv_cache.items() if cache == form), whole)
    if set(rows.part) - {"decode", "prefill"}:
        return whole
    return AttentionParts.model_validate(dict.fromkeys(IN_PARTS, whole.model_dump()))


def _errors(profile: Device, operation: Operation, rows: Table) -> list[FitError]:
    if isinstance(operation, Roofline):
        return quality.errors(profile, operation, rows)
    rows = attention.with_queries(attention.uncached(profile, rows))
    decodes = rows[rows.part == "decode"]
    prefills = rows[rows.part == "prefill"]
    errors = list[FitError]()
    if len(decodes):
        errors += quality.errors(profile, operation.decode, decodes)
    if len(prefills):
        errors += quality.errors(profile, operation.prefill, prefills)
    return errors


def _fitted(
    group: tuple[str, str],
    profile: Device,
    rows: Table,
    form: Form,
    ratios: int | None,
    before: Operation,
) -> Operation:
    name, _ = group
    if ratios:
        return fit.width_ratios(profile, rows, profile.matmul["default"], ratios)
    if name == "matmul":
        return fit.products(profile, rows, _with_depth(form, before))
    if name == "experts":
        return experts.fitted(profile, rows)
    if name == "small_operations":
        return fit.small_operations(profile, rows)
    if isinstance(before, Roofline):
        return attention.one_roofline(profile, rows, before)
    if not rows.part.isin(IN_PARTS).any():
        parts = " or ".join(IN_PARTS)
        raise unfit(f"hold {name} of which no row says whether it is {parts}", "part")
    return attention.in_parts(profile, rows, before)


def _with_depth(form: Form, like: Operation) -> Form:
    """Return the form with the time by depth free where ``like`` states one, as it states of
    attention which caches are cut.
    """
    return form._replace(depth=isinstance(like, Roofline) and like.depth_us is not None)


def _write(
    data: PlainData,
    group: tuple[str, str],
    profile: Device,
    fitted: Operation,
    rows: Table,
    like: Document,
) -> None:
    """Put an operation into the data of a file; of attention in parts, a part that has no rows says
    whose it is.
    """
    name, form = group
    if isinstance(fitted, AttentionParts):
        _write_parts(data, group, profile, fitted, rows)
        return
    section = _section(name, profile, fitted, rows, like)
    if name not in SHAPED:
        data[name] = section
    elif form == "fp16":
        data[name] = {**data.get(name, {}), "default": section}
    else:
        data[name] = {**data.get(name, {}), form: section}


def _write_parts(
    data: PlainData, group: Group, profile: Device, fitted: AttentionParts, rows: Table
) -> None:
    """Put attention in parts into the data of a file."""
    name, form = group
    whole = data["attention"]
    parts = data.get(name, {})
    # one roofline until now, or none of latents, of which either part may stay
    if "decode" not in parts:
        parts = {part: deepcopy(whole.get(part, whole)) for part in IN_PARTS}
        data[name] = parts
        origin = profile.name or "the profile it starts from"
        if name != "attention":
            origin = f"attention over keys and values of {origin}"
        borrow(parts, origin)
    if form != "fp16":
        formats = parts.setdefault("kv_cache", {})
        parts = formats.setdefault(form, {key: deepcopy(parts[key]) for key in IN_PARTS})
    for part in IN_PARTS:
        uncached = attention.uncached(profile, rows[rows.part == part])
        measured = attention.with_queries(uncached)
        if len(measured):
            operation = getattr(fitted, part)
            errors = _parts(profile, operation, measured)
            parts[part] = _written(operation, _source(measured, errors))
    if name == "attention" and "prefill" not in set(rows.part):
        parts["decode"]["compute_efficiency"] = deepcopy(parts["prefill"]["compute_efficiency"])


def _section(
    name: str, profile: Device, operation: Roofline, rows: Table, like: Document
) -> PlainData:
    """Return an operation as it stands in a file; what was not measured keeps its source, or says
    that it is not used.
    """
    if name == "matmul":
        errors = _layer(profile, operation, rows)
    else:
        errors = _parts(profile, operation, rows)
    if name == "experts":
        growth = quality.growth_bias(profile, operation, rows)
        if growth is not None:
            errors += f"; t(n)/t(1) {growth:+.1f} % on average"
    section = _written(operation, _source(rows, errors))
    if name == "attention" and not attention.bound_by_memory(profile, rows):
        section |= {key: like.data[name][key] for key in ("memory_efficiency", "p_norm")}
    if name == "small_operations":
        unused = {"source": "not used: small operations count no flops", "confidence": "assumed"}
        for key in ("compute_efficiency", "p_norm"):
            section[key] = {"value": section[key]["value"], **unused}
    return section


def link(rows: Table, like: Document, profile: Link) -> FittedProfile:
    """Fit what was measured of a link: forms of all-reduce, and the latency of a transfer at its
    stated bandwidth.
    """
    reduces = rows[rows.operation == "all_reduce"]
    transfers = rows[rows.operation == "transfer"]
    exchanges = rows[rows.operation.isin(DIRECTIONS)]
    if reduces.empty and transfers.empty and exchanges.empty:
        raise unfit("hold no all_reduce, transfer, dispatch or combine; nothing to fit a link to")
    names = sorted(reduces.implementation.unique())
    if len(names) > 1:
        raise unfit(f"expected all-reduces of one, got {', '.join(names)}", "implementation")
    data = deepcopy(like.data)
    errors = dict[str, list[FitError]]()

    def collective(kind: Any, rows: Table, name: str, title: str) -> PlainData:
        form = fit.collective(kind, rows)
        errors[name] = quality.link_errors(title, rows, fit.reduced(form, rows))
        numbers = {}
        for key, value in form.model_dump().items():
            if isinstance(value, dict):
                numbers[key] = value["value"]
        return _numbers(numbers, _source(rows, _first(errors[name])))

    if len(reduces):
        sample = fit.spread(reduces)
        forms = {"ring": RingAllReduce, "tree": TreeAllReduce}
        fitted_forms = {}
        for name, kind in forms.items():
            fitted_forms[name] = collective(kind, sample, name, f"all_reduce, {name}")
        data["all_reduce"] = fitted_forms
    if len(transfers):
        sample = fit.spread(transfers)
        bandwidth_gb_s = profile.bandwidth_gb_s.value
        latency = fit.transfer_latency_us(transfers, bandwidth_gb_s)
        carried = sample.size_bytes.to_numpy() / (bandwidth_gb_s * 1e9)
        errors["transfer"] = quality.link_errors("transfer", sample, latency * 1e-6 + carried)
        data |= _numbers({"latency_us": latency}, _source(sample, _first(errors["transfer"])))
    for direction, sample in exchanges.groupby("operation"):
        directions = data.setdefault("all_to_all", {})
        directions[direction] = collective(Exchange, sample, direction, direction)
    return FittedProfile(data, errors, {}, [], [], [], {}, None)


def text(data: PlainMapping) -> str:
    """Return a profile as YAML text."""
    dumped: str = yaml.safe_dump(
        data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
    )
    return dumped


def _written(operation: Roofline, source: str) -> PlainData:
    """Return a roofline as it stands in a file; it is one fit, so the source stands with its first
    number.
    """
    values = {key: getattr(operation, key).value for key in NUMBERS}
    if operation.depth_us is not None:
        values["depth_us"] = operation.depth_us.value
    for key, number in operation:
        if key in Roofline.model_fields or not isinstance(number, Sourced):
            continue
        if "not told apart" not in number.source:
            values[key] = number.value
    numbers = _numbers(values, source)
    tiles: PlainData = {}
    if operation.tile_tokens != (1,):
        tiles["tile_tokens"] = list(operation.tile_tokens)
        if operation.tile_step_tokens is not None:
            tiles["tile_step_tokens"] = operation.tile_step_tokens
        if operation.least_tile_tokens is not None:
            tiles["least_tile_tokens"] = operation.least_tile_tokens
    if isinstance(operation, AttentionRoofline):
        fields = {"splits", "packs"}
        if operation.tile_rows != TILE_ROWS:
            fields.add("tile_rows")
        tiles |= operation.model_dump(include=fields)
    if not operation.width:
        return numbers | tiles
    points = [point.model_dump() for point in operation.width]
    return numbers | tiles | {"width": points, "width_source": source}


def _numbers(values: Mapping[str, float], source: str) -> PlainData:
    first, *_ = values
    numbers = {}
    for key, value in values.items():
        numbers[key] = {"value": value, "source": source, "confidence": "calibrated"}
        source = f"calibrated-on: as {first} (one fit)"
    return numbers


def _source(rows: Table, errors: str) -> str:
    what = [str(part) for part in rows.part.unique() if part]
    if rows.tokens.max():
        what.append(f"{rows.tokens.min():g}..{rows.tokens.max():g} tokens")
    else:
        what.append(f"{len(rows)} sizes")
    origins = "; ".join(rows.source.unique())
    return f"calibrated-on: {origins}; {', '.join(what)}; {errors}"


def _layer(profile: Device, operation: Roofline, rows: Table) -> str:
    mapes = {}
    for error in quality.errors(profile, operation, rows):
        if error.what == "layer":
            mapes[error.least_tokens, error.most_tokens] = error.mape_percent
    words = []
    for low, high in ((1, 64), (1, 256), (1, 512)):
        if (low, high) in mapes:
            words.append(f"{mapes[low, high]:.1f} % at {low}..{high}")
    return f"layer MAPE {', '.join(words)}"


def _parts(profile: Device, operation: Roofline, rows: Table) -> str:
    words = []
    if isinstance(operation, ExpertRoofline):
        rows = rows[rows.tokens <= experts.DECODES].assign(part=f"1..{experts.DECODES}", shape="")
    for (part, shape), timed in rows.groupby(["part", "shape"]):
        predicted = fit.seconds(profile, operation, timed)
        mape, _, _ = quality.percents(predicted, fit.measured(timed))
        name = ", ".join(filter(None, (str(part), str(shape))))
        words.append(f"{name} {mape:.1f} %".strip())
    return f"MAPE {'; '.join(words)}"


def _first(errors: list[FitError]) -> str:
    return f"MAPE {errors[0].mape_percent:.1f} %"
