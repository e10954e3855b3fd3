"""Other people's measurements as our table: microsoft/vidur, casys-kaist/LLMServingSim,
NetX-lab/Frontier and ai-dynamo/aiconfigurator.

``columns.yaml`` says which columns tell a kind of file, what they are called here, and which rows
have no place here: those are skipped, and counted by reason. Files without shapes need the model.
Single products are layers of their own.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import yaml

from simulator.core.cost.device import Device
from simulator.core.cost.formats import ACTIVATION_BYTES, CACHE_BYTES, FORMATS, WEIGHT_BYTES
from simulator.core.cost.mixer import pairs_within
from simulator.core.cost.model import ModelSpec
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData, PlainMapping
from simulator.evidence.calibrate.experts import experts_read
from simulator.evidence.calibrate.measurements import CACHED, OPERATIONS, Table, table
from simulator.inputs import reading
from simulator.inputs.catalogue import shown

Row = PlainData
Skipped: TypeAlias = Counter[str]
MOST_CELLS = 20_000_000
"""Most cells of a packed table, of which a few bytes may promise any number."""
IMPORTERS: PlainMapping = yaml.safe_load(
    Path(__file__).with_name("columns.yaml").read_text("utf-8")
)
"""What is known of the files of each project, by its name."""
CACHE_MB = {"aiconfigurator": 80.0, "frontier": 80.0}
"""What a cache holds between repeats, unless stated: twice the L2 of an A100, for files that repeat
one operation.
"""
LAUNCHES = 1.5
"""Eager rows within so many times the shortest one of their kernel time the host (assumed; 1.2 to
2).
"""
ONE_KERNEL = ("matmul", "attention", "latent_attention", "experts")
"""Operations of which a row is one kernel of a device."""
LEAST_HOST_US = 40.0
"""Shortest time that is looked at as the host's: kernels in a graph take 2 to 30 us at least, calls
one by one 55 to 450 (six cards).
"""
WHATEVER_THE_SHAPE = 100.0
"""Rows of a floor move bytes that differ so many times; where kernels of experts take long at
least, those that take no longer differ 64 times at most (six cards).
"""
FEWEST_OF_A_FLOOR = 10
MOSTLY_FLOOR = 0.9
"""Share of a group: 0.95 of the B200's products of fp8 by block; elsewhere 0.71 at most, once the
host's rows are out.
"""
EVICTS = 1.25
"""Experts that take so many times the size of a cache are out of it when read again (seen on five
cards; 1 to 1.25).
"""
MOST_NAMED = 3
NOT_TIMED = {"lm_head", "router", "gate", "embed_tokens"}
"""Tensors that a checkpoint may keep in 16 bits without a row that times them."""
USUAL_WIDTH = 128
"""Width of the heads of most models."""
VALUE_WIDTHS: Mapping[tuple[str, float], float] = {("SGLang", 192.0): 128.0}
"""Width of a head's values by framework and width of its keys, where they differ (MiMo-V2)."""


def product(
    part: str, tokens: float, inputs: float, outputs: float, time_us: float, weights: str = "fp16"
) -> Row:
    """Return the row of a product with ``inputs`` x ``outputs`` weights of a format on one
    device.
    """
    size = FORMATS[weights].product_bytes(inputs, outputs, tokens, inputs * outputs)
    return {
        "operation": "matmul",
        "part": part,
        "format": weights,
        "shape": f"{inputs:.0f}x{outputs:.0f}",
        "tokens": tokens,
        "size_bytes": size,
        "flops": 2.0 * tokens * inputs * outputs,
        "time_us": time_us,
    }


def small(
    tokens: float, hidden: float, inner: float, qkv: float, time_us: float, normed: float = 0.0
) -> Row:
    """Return the row of a layer's norms, rotary positions, activation and residuals, as bytes of
    activations; ``normed``: width of q and k that pass norms of their own.
    """
    widths = 8 * hidden + 3 * inner + 2 * qkv + 2 * normed
    size = FORMATS["fp16"].weight_bytes * tokens * widths
    return {
        "operation": "small_operations",
        "tokens": tokens,
        "size_bytes": size,
        "time_us": time_us,
    }


class Queries(NamedTuple):
    """``new`` tokens of each of some sequences, behind ``cached`` ones; new tokens also see those
    before them.
    """

    sequences: float
    new: float
    cached: float


class Heads(NamedTuple):
    """Heads on one device: their number, bytes of keys and values that a token leaves, and query
    heads x head width.
    """

    kv_heads: float
    kv_bytes: float
    query_width: float


def attention(
    part: str,
    queries: Queries,
    heads: Heads,
    time_us: float,
    cache: str = "fp16",
    window: float = 0.0,
) -> Row:
    """Return the row of one layer's attention on one device over a cache of a format; ``window``:
    how many tokens a query row sees at most, 0: all.
    """
    sequences, new, cached = queries
    pairs = sequences * (new * cached + new * (new + 1) / 2)
    keys = cached + new
    seen: Row = {}
    if window:
        pairs = pairs_within(sequences * new, sequences, sequences * keys, pairs, window)
        keys = min(keys, window - 1 + new)
        seen = {"keys": keys}
    return {
        "operation": "attention",
        "part": part,
        "shape": f"{heads.kv_heads:g} KV heads",
        "format": cache,
        "tokens": sequences * new,
        "size_bytes": sequences * keys * heads.kv_bytes,
        "flops": 4.0 * pairs * heads.query_width,
        "sequences": sequences,
        **seen,
        "kv_heads": heads.kv_heads,
        "query_width": heads.query_width,
        "time_us": time_us,
    }


# ---- what a row of each kind of file becomes


def _products(row: Row) -> Iterator[Row]:
    weights = row["format"]
    form = FORMATS[weights]
    tokens = row["tokens"]
    inputs = row["inputs"]
    outputs = row["outputs"]
    name = f"{row['framework']} {inputs}x{outputs}"
    if weights != "fp16":
        name += f" {weights.removeprefix('fp16')}"
    work = product("product", tokens, inputs, outputs, row["product"], weights)
    saved_bytes = form.input_bytes - form.quantised_bytes
    work["size_bytes"] -= row["given"] * tokens * inputs * saved_bytes
    yield {"model": name, "copies": row["copies"], **work}


def _layers(row: Row) -> Iterator[Row]:
    ranks = row["tensor_parallel"]
    hidden = row["hidden"]
    tokens = row["tokens"]
    weights = row["format"]
    width = row.get("head_width", hidden / row["query_heads"])
    query = width * row["query_heads"] / ranks
    inner = row["inner"] / ranks
    qkv = query + 2 * width * row["kv_heads"] / ranks
    up = inner * (1 + row.get("gated", True))
    vocabulary = row.get("vocabulary", 0) / ranks
    shapes = {
        "qkv": (hidden, qkv),
        "output": (query, hidden),
        "up": (hidden, up),
        "down": (inner, hidden),
        "lm_head": (hidden, vocabulary),
    }
    for part, (inputs, outputs) in shapes.items():
        if part in row:
            work = product(part, tokens, inputs, outputs, row[part], weights)
            yield {"tensor_parallel": ranks, **work}
    if "small" in row:
        normed = 0.0
        if "norms" in row:
            normed = width * (row["query_heads"] + row["kv_heads"])
        time_us = row["small"] + row.get("norms", 0.0)
        work = small(tokens, hidden, inner, qkv, time_us, normed)
        yield {"tensor_parallel": ranks, **work}
    if "prefill" in row:
        whole_prompt = {"part": "prefill", "sequences": 1, "new": tokens, "cached": 0}
        yield from _attention(row | whole_prompt)


def _attention(row: Row) -> Iterator[Row]:
    if row.get("before") is not None:  # a batch of a chunk behind cached tokens, or of decodes
        if not row["new"]:
            row = row | {"part": "decode"}
        else:
            row = row | {"sequences": 1, "cached": row["before"]}
    default_part = "decode"
    if row.get("new"):
        default_part = "prefill"
    part = str(row.get("part", default_part))
    cache = str(row.get("cache", row["format"]))
    ranks = row["tensor_parallel"]
    head_width = row.get("head_width") or row["hidden"] / row["query_heads"]
    value_width = VALUE_WIDTHS.get((row.get("framework", ""), head_width), head_width)
    width = (head_width + value_width) / 2
    kv_heads = row["kv_heads"] / ranks
    kv_bytes = 2 * CACHE_BYTES[cache] * width * kv_heads
    heads = Heads(kv_heads, kv_bytes, width * row["query_heads"] / ranks)
    new = 1
    if part == "prefill":
        new = row["new"]
    queries = Queries(row.get("sequences", 1), new, row["cached"])
    if "both" in row:
        time_us = row["both"]
    else:
        time_us = row[part]
    window = row.get("window", 0)
    work = attention(part, queries, heads, time_us, cache, window)
    if row.get("left_out"):
        work["shape"] += _told_apart(head_width, value_width, window)
    stated: Row = {}
    for column in ("operation", "shape", "left_out"):
        if column in row:
            stated[column] = row[column]
    yield {"tensor_parallel": ranks, **work, **stated}


def _told_apart(head_width: float, value_width: float, window: float) -> str:
    """Return what the name of a shape says beyond its KV heads."""
    words = ""
    if value_width != head_width:
        words += f", keys of {head_width:g}, values of {value_width:g}"
    elif head_width != USUAL_WIDTH:
        words += f", width {head_width:g}"
    if window:
        words += f", window {window:g}"
    return words


def _collectives(row: Row) -> Iterator[Row]:
    operation = row["operation"]
    if "elements" in row:
        size = row["elements"] * row["element_bytes"]
    else:
        size = row["size_bytes"]
    yield {
        "operation": operation,
        "implementation": row.get("implementation", ""),
        "size_bytes": size,
        "ranks": row["ranks"],
        "time_us": row[operation],
    }


def _experts(row: Row) -> Iterator[Row]:
    ranks = row["tensor_parallel"]
    tokens = row["tokens"]
    routed = row["routed"]
    per_token = row["per_token"]
    hidden = row["hidden"]
    inner = row["inner"] / ranks
    distribution = row["distribution"]
    weights = row["matrices"] * hidden * inner
    weight_bytes = FORMATS[row["format"]].weight_bytes
    read = row.get("read") or experts_read(tokens, routed, per_token, distribution)
    pairs = row.get("pairs") or tokens * per_token
    shape = f"{hidden}x{row['inner']}, {per_token} of {routed}"
    yield {
        "operation": "experts",
        "part": distribution,
        "format": row["format"],
        "shape": shape,
        "model": shape,
        "tensor_parallel": ranks,
        "tokens": tokens,
        "size_bytes": read * weights * weight_bytes,
        "flops": 2.0 * pairs * weights,
        "experts": read,
        "pairs": pairs,
        "width": hidden + inner,
        "time_us": row["both"],
    }


def _exchanges(row: Row) -> Iterator[Row]:
    values = row["tokens"] * row["per_token"] * row["hidden"]
    for operation, value_bytes in (("dispatch", 1), ("combine", ACTIVATION_BYTES)):
        yield {
            "operation": operation,
            "implementation": "deepep_low_latency",
            "size_bytes": values * value_bytes,
            "ranks": row["ranks"],
            "time_us": row[operation],
        }


ROWS: Mapping[str, Callable[[Row], Iterator[Row]]] = {
    "products": _products,
    "layers": _layers,
    "attention": _attention,
    "collectives": _collectives,
    "experts": _experts,
    "exchanges": _exchanges,
}


# ---- from a file to its rows


def imported(
    form: str, path: Path, model: ModelSpec | None, skipped: Skipped | None = None
) -> Table:
    """Return the table of one file, counting what is ``skipped`` by reason; raise BadInput that
    names the file.
    """
    name = shown(path)
    skipped = Counter() if skipped is None else skipped
    kind: PlainMapping = {}
    try:
        frame = _frame(path)
        kind = _kind(form, frame)
        if kind.get("model") and model is None:
            raise BadInput.at("", "holds no shapes; name the model with --model")
        frame = _placed(_translated(frame, kind, skipped), kind, path, model)
        return _without_floors(table(_rows(frame, kind, skipped)), "eager" in kind, skipped)
    except BadInput as error:
        raise error.changed(lambda fault: replace(fault, place=(name, *fault.place[1:]))) from error
    except KeyError as error:
        missing = str(error.args[0])
        theirs, *_ = kind.get("times", {}).get(missing, [missing])
        message = f"is required in a file of {form} and missing"
        raise BadInput.at((name, 1, 1), message, theirs.removesuffix("?")) from error
    except (OSError, ImportError, ValueError, AttributeError, EOFError, zlib.error) as error:
        raise BadInput.at(name, f"is no file of {form}: {error}") from error


def _rows(frame: Table, kind: PlainMapping, skipped: Skipped) -> list[Row]:
    """Return our rows of a file's, of whose times those that are 0 or missing say nothing; a row
    without any other is counted as ``skipped``.
    """
    ours_of = ROWS[kind["rows"]]
    rows = []
    for record in frame.to_dict("records"):
        row = {}
        for key, cell in record.items():
            if key not in kind["times"] or cell > 0.0:
                row[str(key)] = cell
        if not row.keys() & kind["times"]:
            skipped["no time above 0"] += 1
            continue
        stated: Row = {}
        for column in ("model", "implementation"):
            if column in row:
                stated[column] = row[column]
        for ours in ours_of(row):
            rows.append(stated | ours)
    return rows


def _frame(path: Path) -> Table:
    """Return the table of a file as it is."""
    if path.suffix != ".parquet":
        with reading.lines(path) as lines:
            return pd.read_csv(StringIO("".join(lines)))
    from pyarrow import parquet

    with reading.opened(path, reading.MOST_TABLE_BYTES) as file:
        facts = parquet.read_metadata(file)
        if facts.num_rows * facts.num_columns > MOST_CELLS:
            message = f"holds {facts.num_rows:,} rows; expected at most {MOST_CELLS:,} cells"
            raise BadInput.at("", message)
        file.seek(0)
        return pd.read_parquet(file)


def _kind(form: str, frame: Table) -> PlainMapping:
    refused = IMPORTERS[form]["refused"]
    kinds = {kind["known_by"]: kind for kind in IMPORTERS[form]["kinds"]}
    for column, why in refused.items():
        if column in frame:
            raise BadInput.at(("", 1, 1), why, column)
    for column, kind in kinds.items():
        if column in frame:
            return dict(kind)
    expected = ", ".join(kinds)
    raise BadInput.at(("", 1, 1), f"is no file of {form}; expected one of the columns {expected}")


def _translated(frame: Table, kind: PlainMapping, skipped: Skipped) -> Table:
    """Return a file's rows under our names, times in microseconds; those without a place here are
    left out and counted.
    """
    names = _our_names(frame, kind)
    if "long" in kind:
        times_column = frame.columns[-1]
        by_part = frame.pivot_table(times_column, list(names), kind["long"], "median")
        frame = by_part.reset_index()
    times = _times(frame, kind, skipped)
    frame = frame.rename(columns=names)[list(names.values())].assign(**times)
    if "signature" in kind:
        frame = _with_formats(frame, kind["signature"])
    frame = _in_our_words(frame, kind.get("words", {}), skipped)
    for flag, (part, why) in kind.get("within", {}).items():
        if flag in frame and part in frame:
            skipped[why] += int(frame[flag].sum())
            frame[part] = frame[part].mask(frame[flag].astype(bool))
    for rule, why in kind.get("keep", {}).items():
        frame = kept(frame, frame.eval(rule), why, skipped)
    if "eager" in kind:
        (time,) = times
        if "kernel" not in frame:
            frame = frame.assign(kernel="kernels")
        frame = _without_host_times(frame, time, frame.eval(kind["eager"]), skipped)
    derived = {column: frame.eval(rule) for column, rule in kind.get("derived", {}).items()}
    frame = frame.assign(**derived)
    frame = _apart(frame, kind.get("apart", {}))
    if kind.get("median"):
        keys = [column for column in frame if column not in (*times, "kernel")]
        frame = kept(frame, frame[keys].notna().all(axis=1), "cells without a value", skipped)
        return frame.groupby(keys, as_index=False)[list(times)].median()
    return frame


def _our_names(frame: Table, kind: PlainMapping) -> dict[str, str]:
    """Return our names of a file's columns by theirs, of which those that end in ? may be missing,
    and of those with | between them the first that is there counts; raise :class:`KeyError` for
    another one that is missing.
    """
    names = {}
    missing = []
    for theirs, ours in kind["columns"].items():
        choices = theirs.removesuffix("?").split("|")
        found = [column for column in choices if column in frame]
        if found:
            names[found[0]] = ours
        elif not theirs.endswith("?"):
            missing.append(" or ".join(choices))
    if missing:
        raise KeyError(min(missing))
    return names


def _times(frame: Table, kind: PlainMapping, skipped: Skipped) -> PlainData:
    """Return the times of each part in microseconds, sums of the file's columns; parts of which a
    column is missing are counted, and raise :class:`KeyError` where no part is left.
    """
    times = {}
    for part, columns in kind["times"].items():
        wanted = []
        for column in columns:
            name = column.removesuffix("?")
            if name == column or name in frame:
                wanted.append(name)
        missing = set(wanted) - {*frame}
        if missing:
            skipped[f"no times of {', '.join(sorted(missing))} in the file"] += len(frame)
        elif wanted:
            times[part] = sum(frame[name] * kind["unit_us"] for name in wanted)
    if not times:
        first_columns = next(iter(kind["times"].values()))
        raise KeyError(first_columns[0])
    return times


def _in_our_words(frame: Table, words: Mapping[str, PlainMapping], skipped: Skipped) -> Table:
    """Return the rows with our ``words`` of each column for theirs; rows with another word are
    counted as ``skipped``.
    """
    for column, ours_by_theirs in words.items():
        if column not in frame:
            continue
        cells = frame[column].astype(object)
        theirs = cells.where(cells.notna(), "").astype(str)
        ours = theirs.map(ours_by_theirs)
        for word, rows in theirs[ours.isna()].value_counts().items():
            skipped[f"{column} {word or 'not stated'}"] += int(rows)
        frame = frame.assign(**{column: ours})[ours.notna()]
    return frame


def _with_formats(frame: Table, column: str) -> Table:
    """Return the rows with the format of weights for each signature of Frontier; raise
    :class:`BadInput` at the first line of one that is not known.
    """
    formats = {}
    for line, signature in enumerate(frame[column], 2):
        if signature not in formats:
            formats[signature] = _signed(str(signature), line)
    return frame.assign(**{column: frame[column].map(formats)})


def _signed(signature: str, line: int) -> str:
    """Return the format that a signature names: ``none``, a format, or as Frontier writes one
    ``method=fp8|act=dynamic|serialized=True|block=128x128|ignored=lm_head``.
    """
    facts = dict(fact.split("=", 1) for fact in signature.split("|") if "=" in fact)
    name = facts.get("method", signature).lower()
    block = facts.get("block", "none")
    known = FORMATS.keys() - {"fp32"}
    if name in ("none", "bf16"):
        return "fp16"
    if name not in known or (name, block) not in ((name, "none"), ("fp8", "128x128")):
        raise BadInput.at(
            ("", line, 1),
            f"names no format of weights that is known: '{signature}'; expected none, "
            "method=fp8 with block=none or 128x128, or the name of a format (int8, int4, nvfp4, "
            "...); put rows of this one into a file of their own",
            "quant_signature",
        )
    kept_wide = set(filter(None, facts.get("ignored", "").split(","))) - NOT_TIMED
    if kept_wide:
        raise BadInput.at(
            ("", line, 1),
            f"keeps {', '.join(sorted(kept_wide))} in 16 bits, and a row does not say whether it "
            "is of these; put rows of one format into a file of their own",
            "quant_signature",
        )
    if block != "none":
        return "fp8_block"
    return name


def _apart(frame: Table, usual: PlainMapping) -> Table:
    """Return rows of which those that are not as ``usual`` in a column say so: no fit uses them,
    and a score states their errors apart.
    """
    reasons = np.full(len(frame), "", dtype=object)
    for column, value in usual.items():
        if column in frame:
            reasons[frame[column] != value] = column
    if not usual:
        return frame
    return frame.assign(left_out=reasons)


def _without_host_times(frame: Table, time: str, eager: Any, skipped: Skipped) -> Table:
    """Return the rows without ``eager`` ones that take little more than the shortest of their
    kernel: those time the host that launches them.
    """
    shortest = frame.groupby("kernel")[time].transform("min")
    of_host = eager & (frame[time] < LAUNCHES * shortest)
    for (kernel, floor_us), floor in frame[of_host].groupby(["kernel", shortest]):
        why = f"eager {kernel}, at a floor of {floor_us:.3g} us: the host's time"
        skipped[why] += len(floor)
    return frame[~of_host]


def _without_floors(rows: Table, told: bool, skipped: Skipped) -> Table:
    """Return the rows without groups of them that take as long whatever their shape: the time of
    the host, which no bytes explain.

    A group is an operation, part, format and implementation. A file of which it was ``told`` that
    the host launches its rows has lost those already; there, only groups are left out that are
    floor in all but a few rows. The least time of small operations, which are sums of several
    kernels, and of what goes over links is their own.
    """
    kinds = ["operation", "part", "format", "implementation"]
    for names, group in rows[rows.operation.isin(ONE_KERNEL)].groupby(kinds):
        shortest = group.time_us.min()
        floor = group[group.time_us < LAUNCHES * shortest]
        if shortest < LEAST_HOST_US or len(floor) < FEWEST_OF_A_FLOOR:
            continue
        if told and len(floor) < MOSTLY_FLOOR * len(group):
            continue
        if floor.size_bytes.max() < WHATEVER_THE_SHAPE * floor.size_bytes.min():
            continue
        what = ", ".join(name for name in map(str, names) if name)
        why = (
            f"{what}: at a floor of {floor.time_us.median():.3g} us whatever the shape: the host's "
            "time"
        )
        skipped[why] += len(floor)
        rows = rows.drop(floor.index)
    return rows.reset_index(drop=True)


def _placed(frame: Table, kind: PlainMapping, path: Path, model: ModelSpec | None) -> Table:
    """Add the shapes of a model, the degree and formats that the folders of a file tell, and whose
    rows they are.
    """
    name, _, _ = path.name.partition(".")
    stem = name.removesuffix("_linear")
    if stem in ("mlp", "attention"):
        stem = path.parent.name
    where: Row = {"tensor_parallel": 1.0, "format": "fp16", "model": stem}
    if "inner" in frame and len(frame[["hidden", "inner"]].drop_duplicates()) > 1:
        widths = frame.hidden.astype(str) + "x" + frame.inner.astype(str)
        where["model"] = f"{stem} " + widths
    if kind.get("folder"):
        folder = path.absolute().parent
        degree = re.fullmatch(r"tp(\d+)", folder.name)
        weights, _, cache = folder.parent.name.partition("-kv")
        if not degree or {weights, cache or "fp8"} - {"bf16", "fp16", "fp8"}:
            message = "expected folders like bf16/tp2 above it, which say its format and degree"
            raise BadInput.at("", message)
        where["tensor_parallel"] = float(degree[1])
        where["format"] = weights.replace("bf16", "fp16")
        where["cache"] = cache or "fp16"
    if "width" in kind:
        where["head_width"] = _head_width(frame, kind["width"], model)
    if kind.get("model") and model is not None:
        where |= {
            "model": model.name,
            "hidden": model.hidden_size,
            "inner": model.intermediate_size,
            "query_heads": model.num_attention_heads,
            "kv_heads": model.num_key_value_heads,
            "head_width": model.head_dim,
            "vocabulary": model.vocab_size,
            "gated": model.mlp == "gated",
        }
    added = {column: value for column, value in where.items() if column not in frame}
    return frame.assign(**added)


def _head_width(frame: Table, heads: str, model: ModelSpec | None) -> float:
    """Return the width of heads of a file that does not hold it; raise :class:`BadInput` where
    hidden over heads is not the usual one and no model says it.
    """
    if model is not None:
        others = frame.hidden[frame.hidden != model.hidden_size]
        if len(others):
            raise BadInput.at(
                ("", 1, 1),
                f"expected {model.hidden_size}, the hidden size of {model.name}, got "
                f"{others.iloc[0]}; name its own model with --model",
                "n_embd",
            )
        return float(model.head_dim)
    for width in (frame.hidden / frame[heads]).unique():
        if width != USUAL_WIDTH:
            raise BadInput.at(
                ("", 1, 1),
                f"is {width:g} times the heads, and heads of models may be wider than that; name "
                "the model with --model",
                "n_embd",
            )
    return float(USUAL_WIDTH)


def kept(frame: Table, mask: Any, why: str, skipped: Skipped) -> Table:
    """Return the rows of a mask; the others are counted as ``skipped``."""
    skipped[why] += int((~mask).sum())
    return frame[mask]


def checked(rows: Table, device: Device | None, cache_mb: float, skipped: Skipped) -> Table:
    """Mark products whose weights a cache holds; set aside what beats the peak of ``device`` or,
    beyond the cache, its memory.

    A format for whose arithmetic the device states no peak is compared with the memory alone.
    """
    local = rows.operation.isin(OPERATIONS[:3])
    inside = rows.size_bytes < cache_mb * 1e6
    weights = rows.flops / rows.tokens / 2 * rows.format.map(WEIGHT_BYTES)
    weights = weights.where(rows.operation == "matmul", rows.size_bytes / EVICTS)
    cached = rows.operation.isin(("matmul", "experts")) & (weights < cache_mb * 1e6)
    rows = rows.assign(left_out=np.where(cached, CACHED, rows.left_out))
    if device is None:
        return rows
    peaks = {"fp16": device.peak_tflops.value}
    peaks |= {name: peak.value for name, peak in device.peaks_tflops.items()}
    computed = rows.format.map(lambda name: FORMATS[name].arithmetic)
    computed = computed.where(rows.operation == "matmul", "fp16")
    bytes_per_us = device.memory_bandwidth_gb_s.value * 1e3
    memory = rows.size_bytes / rows.time_us / bytes_per_us * ~inside
    flops_per_us = computed.map(peaks).fillna(np.inf) * 1e6
    peak = rows.flops / rows.time_us / flops_per_us
    for rate, times_it in (("memory", memory), ("peak", peak)):
        too_fast = rows.assign(times=times_it)[local & (times_it > 1.0)]
        beyond = too_fast.sort_values("times", ascending=False)
        for row in beyond[:MOST_NAMED].itertuples():
            what = f"{row.operation} {row.format} {row.shape}, {row.tokens:g} tokens"
            skipped[f"{row.times:.2f} x the {rate}: {what}"] += 1
        skipped[f"others that beat the {rate}"] += max(0, len(beyond) - MOST_NAMED)
    return rows[~local | ((memory <= 1.0) & (peak <= 1.0))]
