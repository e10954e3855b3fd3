"""Ask a measured card about whole shapes that a fit did not see: pairs of inputs and outputs of
products, settings of heads, and decades of message sizes.

    specsim calibrate import FILES --from aiconfigurator --device b200_sxm --cache-mb 126 --source
    SOURCE --out b200_sxm.csv.gz
    python -m benchmarks.by_shape b200_sxm.csv.gz nvlink_b200.csv.gz

Tables are called like their profiles. A rule splits shapes before anything is fitted: one half has
names of an even CRC-32, the other of an odd one, and each is asked of a fit to the other. Of
all-reduces a decade of sizes in KiB is left out of a table of all other measured sizes. Products
are single ones here, not sums over a layer; what a cache holds is set aside as in other fits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd

from benchmarks.shelf import LEAST_WEIGHTS, of_formats, profile
from simulator.core.cost.collectives import MeasuredAllReduce
from simulator.core.cost.device import Device, Link
from simulator.evidence.calibrate import attention, fit
from simulator.evidence.calibrate.fit import measured, seconds
from simulator.evidence.calibrate.measurements import Table, read

RANGES = ((1, 64), (1, 256), (1, 2048))
DECADES_KIB = ((1.0, 10.0), (10.0, 100.0), (100.0, 1_000.0), (1_000.0, 10_000.0))
LEAST_KIB, MOST_KIB = 7.9, 4_100.0
"""Sizes that are asked about: 8 KiB to 4 MiB, as six digits round them."""
ATTENTION = ("attention", "latent_attention")
PARTS = ("decode", "prefill")
FEW_SETTINGS = 16
"""The most settings of heads of which each is also left out in turn."""


class Asked(NamedTuple):
    """Errors on rows that a fit did not see, in per cent of the measured time."""

    profile: str
    what: str
    range: str
    shapes: int
    rows: int
    mape: float
    p95: float
    bias: float


def odd(names: pd.Series[str]) -> Any:
    """Return whether the CRC-32 of each name is odd: the rule by which shapes are split."""
    return names.map(lambda name: crc32(str(name).encode()) % 2 == 1).to_numpy(bool)


def errors(
    name: str, what: str, asked: Table, shape: str, ranges: Sequence[tuple[int, int]]
) -> Iterator[Asked]:
    """Yield the errors of ``asked`` rows, which have ``seconds`` and ``predicted``, by range of
    tokens; ``shape`` is the column that was left out by.
    """
    for low, high in ranges:
        part = asked[asked.tokens.between(low, high)]
        if part.empty:
            continue
        off = 100.0 * (part.predicted / part.seconds - 1.0)
        size = abs(off)
        yield Asked(
            name,
            what,
            f"{low}..{high}",
            part[shape].nunique(),
            len(part),
            float(size.mean()),
            float(np.percentile(size, 95)),
            float(off.mean()),
        )


def with_times(device: Device, operation: Any, rows: Table) -> Table:
    """Return rows with their measured and predicted seconds."""
    return rows.assign(seconds=measured(rows), predicted=seconds(device, operation, rows))


def pairs(name: str, device: Device, rows: Table) -> Iterator[Asked]:
    """Yield the errors of single products of 2e6 weights or more, by format."""
    products = rows[rows.operation == "matmul"]
    if products.empty:
        return
    for form, shape, timed in of_formats(name, device, products):
        weights = timed.flops / (2.0 * timed.tokens)
        some = timed[weights >= LEAST_WEIGHTS]
        outside = odd(some["shape"])
        if outside.all() or not outside.any():
            continue
        asked = []
        for half in (outside, ~outside):
            fitted = fit.products(device, some[~half], shape)
            asked.append(with_times(device, fitted, some[half]))
        yield from errors(name, f"products, {form}", pd.concat(asked), "shape", RANGES)


def heads(name: str, device: Device, rows: Table) -> Iterator[Asked]:
    """Yield the errors of attention, over keys and values or latents, by cache and part; of few
    settings, which a rule may split badly, also where each is left out in turn.
    """
    usable = rows[rows.operation.isin(ATTENTION) & (rows.left_out == "")]
    for (operation, form), of_form in usable.groupby(["operation", "format"]):
        some = attention.uncached(device, of_form)
        setting = some.kv_heads.map("{:g}".format) + "x" + some.query_width.map("{:g}".format)
        some = some.assign(setting=setting)
        outside = odd(setting)
        if outside.all() or not outside.any():
            continue
        like: Any = device.attention_for(str(operation))
        what = f"{operation} {{}}, {form} cache"
        halves = [outside, ~outside]
        yield from left_out(name, what, device, some, like.over(form), halves)
        if setting.nunique() <= FEW_SETTINGS:
            each = [(setting == one).to_numpy() for one in sorted(setting.unique())]
            words = what + ", each setting in turn"
            yield from left_out(name, words, device, some, like.over(form), each)


def left_out(
    name: str, what: str, device: Device, rows: Table, like: Any, masks: Sequence[Any]
) -> Iterator[Asked]:
    """Yield the errors of both parts of attention where each mask's rows are asked of a fit to all
    others.
    """
    asked: dict[str, list[Table]] = {part: [] for part in PARTS}
    for mask in masks:
        fitted = attention.in_parts(device, rows[~mask], like)
        for part in PARTS:
            of_part = rows[mask & (rows.part == part).to_numpy()]
            if len(of_part):
                timed = attention.with_queries(of_part)
                asked[part].append(with_times(device, getattr(fitted, part), timed))
    for part, tables in asked.items():
        if tables:
            every = pd.concat(tables)
            yield from errors(name, what.format(part), every, "setting", ((1, 131_072),))


def decades(name: str, link: Link, rows: Table) -> Iterator[Asked]:
    """Yield the errors of all-reduces of a decade of sizes that a table of all others passes in a
    line, by implementation.
    """
    reduces = rows[rows.operation == "all_reduce"]
    reduces = reduces.assign(kib=reduces.size_bytes / 1024.0, tokens=1.0)
    for implementation in link.all_reduce.measured:
        stack = "vllm" if implementation == "eager" else ""
        some = reduces[reduces.implementation == implementation]
        some = some[some.source.str.contains(stack)]
        asked = []
        for low, high in DECADES_KIB:
            inside = some.kib.between(low, high, inclusive="left")
            wanted = some[inside & some.kib.between(LEAST_KIB, MOST_KIB)]
            if wanted.empty or inside.all():
                continue
            times = fit.reduced(table_of(some[~inside]), wanted)
            asked.append(wanted.assign(seconds=measured(wanted), predicted=times))
        if asked:
            what = f"all-reduce, {implementation}"
            (one,) = errors(name, what, pd.concat(asked), "kib", ((1, 1),))
            yield one._replace(range="8 KiB..4 MiB")


def table_of(rows: Table) -> MeasuredAllReduce:
    """Return the table of all sizes that every number of devices was measured at."""
    times = rows.pivot_table(index="kib", columns="ranks", values="time_us").dropna()
    by_ranks = {int(ranks): tuple(times[ranks]) for ranks in times}
    content = {"size_kib": tuple(times.index), "time_us": by_ranks, "source": "all other sizes"}
    return MeasuredAllReduce.model_validate(content)


def ask(name: str, rows: Table) -> Iterator[Asked]:
    """Yield all errors of the profile that a table is called after."""
    home = profile(name)
    if isinstance(home, Link):
        yield from decades(name, home, rows)
    else:
        yield from pairs(name, home, rows)
        yield from heads(name, home, rows)


def main(paths: Sequence[Path]) -> None:
    """Print the errors of each table."""
    print("| profile | of | range | shapes | rows | error | 95 % | bias |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.name.partition(".")[0], []).append(path)
    for name, files in groups.items():
        for one in ask(name, read(files)):
            figures = f"{one.mape:.1f} | {one.p95:.1f} | {one.bias:+.1f}"
            print(
                f"| {one.profile} | {one.what} | {one.range} | {one.shapes} | {one.rows:,} | "
                f"{figures} |",
                flush=True,
            )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
