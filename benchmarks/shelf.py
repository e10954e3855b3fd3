"""Ask of measured cards what a fit left out, beside a bare roofline and two numbers: a page, and
the table behind it.

    specsim calibrate import FILES --from aiconfigurator --device h100_sxm --source SOURCE --out
    h100_sxm.csv.gz python -m benchmarks.shelf h100_sxm.csv.gz l40s.csv.gz nvlink_h100.csv.gz
    --configs FOLDER --out reports/calibration

A table is called like the profile that it is of. Devices: products, attention and experts, the form
of the shipped profile fitted to some shapes and asked about the others; with ``--configs``, a
folder of ``config.json`` files, also fitted to the shapes of one model and asked about the layers
of the others, as tables of products name no models. Links: sizes between those of the shipped
tables. ``bare`` is a hard maximum of the datasheet's rates; ``two numbers`` a constant and a share
of it, fitted to the same rows. Rows of other profiles that ``held_out.csv`` holds already stay as
they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as every
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from rich.console import Console

from simulator.core.cost.device import Device, Link
from simulator.core.faults import BadInput
from simulator.evidence.calibrate import attention, experts, fit
from simulator.evidence.calibrate.fit import (
    DATASHEET,
    TABLE,
    Form,
    Seconds,
    least,
    measured,
    seconds,
)
from simulator.evidence.calibrate.measurements import LM_HEAD, Table, read
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read as read_document
from simulator.inputs.models.huggingface import read_config
from simulator.inputs.schema import validate

CATALOGUE = Catalogue()
HOMES = {"a100_sxm": "a100_80g_sxm"}
SHEET = (
    "memory_gb",
    "memory_bandwidth_gb_s",
    "ecc_data_share",
    "peak_tflops",
    "peaks_tflops",
    "power_w",
)
"""What a derived card takes of its own datasheet."""
HIDDEN, LEAST_WEIGHTS, WIDEST, NARROWEST = (2_048, 8_192), 2e6, 8.0, 0.25
"""Hidden sizes of layers, the fewest weights of their products, and how wide the other side is,
relative to the hidden size.
"""
STACKS = {
    ("rtx_pro_6000", "fp8"): ("VLLM",),
    ("rtx_pro_6000", "nvfp4"): ("VLLM",),
    ("rtx_pro_6000", "fp8_block"): ("TRTLLM",),
    ("h100_sxm", "fp8_block"): ("SGLang",),
    ("h200_sxm", "fp8_block"): ("SGLang",),
    ("b200_sxm", "fp8"): ("SGLang",),
    ("b200_sxm", "fp8_block"): ("SGLang",),
}
"""Formats whose profile is fitted to some stacks alone; see its file."""
RANGES = ((1, 64), (1, 256))
ALL = (1, 131_072)
DEGREES = (1, 2, 4, 8)
"""Devices that share a model's layers, each a part of every product."""
LEAST_PRODUCTS = 2
"""The fewest products of a layer that are asked about; a fit takes more."""
AIMS = {
    "layers": (4.0, 6.0),
    "layers, l40s": (8.0, 10.0),
    "layers, quantised": (8.0,),
    "decode": (12.0,),
    "prefill": (15.0,),
    "experts": (10.0,),
    "all-reduce": (15.0,),
    "derived": (12.0,),
}
"""The most that a mean error should be, by table; of layers to 64 and to 256 rows."""
LEAST_KIB, MOST_KIB = 8, 4096
LARGE_BYTES = 50e6
"""Weights of the products of which derived cards are asked."""
DERIVED = {
    "h200_sxm": ("h100_sxm",),
    "a100_sxm": ("h100_sxm",),
    "h100_sxm": ("a100_80g_sxm",),
    "l40s": ("a100_80g_sxm", "h100_sxm"),
    "rtx_pro_6000": ("h100_sxm", "a100_80g_sxm", "l40s"),
    "rtx_4090": ("rtx_pro_6000", "l40s"),
    "b200_sxm": ("h100_sxm",),
}
"""Cards that were measured, and those of which they would start by ``like``."""


class Line(NamedTuple):
    """One line of the page: mean errors in per cent of the measured time."""

    table: str
    profile: str
    what: str
    range: str
    rows: int
    percent: float
    two_numbers_percent: float
    bare_percent: float
    worst_percent: float
    bias_percent: float


def profile(name: str) -> Any:
    """The shipped profile that a table is called after."""
    kind = "link" if name in CATALOGUE.names("link") else "device"
    path = CATALOGUE.names(kind)[HOMES.get(name, name)]
    return validate(Link if kind == "link" else Device, CATALOGUE.content(kind, path))


def two_numbers(known: Seconds, truth: Seconds) -> tuple[float, float]:
    """A constant in microseconds and a factor of the bare times that meet ``truth`` best."""
    first, second = least(
        lambda x: np.log((x[0] * 1e-6 + x[1] * known) / truth),
        (5.0, 1.3),
        ((0.0, 0.2), (1000.0, 50.0)),
    )
    return first, second


def off(times: Any, truth: Any) -> NDArray[np.float64]:
    """Absolute errors in per cent."""
    return np.asarray(100.0 * abs(times / truth - 1.0))


def lines(
    head: tuple[str, str, str], asked: Table, ranges: Sequence[tuple[int, int]], by: str = ""
) -> Iterator[Line]:
    """The errors of rows that were asked, by range; worst is the mean of the worst group ``by`` a
    column, else the p95.
    """
    for low, high in ranges:
        part = asked[asked.tokens.between(low, high)]
        if part.empty:
            continue
        error = off(part.predicted, part.seconds)
        worst = (
            pd.Series(error, part.index).groupby(part[by]).mean().max()
            if by
            else np.percentile(error, 95)
        )
        two, bare = (float(off(part[column], part.seconds).mean()) for column in ("two", "bare"))
        bias = float(100.0 * (part.predicted / part.seconds - 1.0).mean())
        yield Line(
            *head, f"{low}..{high}", len(part), float(error.mean()), two, bare, float(worst), bias
        )


def asked_of(device: Device, rows: Table, outside: Any, times: Seconds) -> Table:
    """The rows ``outside`` of a fit with their measured, predicted and simpler times."""
    asked, known = rows[outside], rows[~outside]
    constant, factor = two_numbers(seconds(device, DATASHEET, known), measured(known))
    bare = seconds(device, DATASHEET, asked)
    return asked.assign(
        seconds=measured(asked), predicted=times, bare=bare, two=constant * 1e-6 + factor * bare
    )


def halves(shapes: Any) -> Iterator[Any]:
    """Masks of either half of the shapes, sorted by name and taken in turn."""
    place = shapes.map({shape: number % 2 for number, shape in enumerate(sorted(shapes.unique()))})
    yield from (place == number for number in (0, 1) if shapes.nunique() > 1)


def uncached(device: Device, rows: Table) -> Table:
    """Rows of products that no cache holds."""
    kept = rows if device.cache_mb is not None else rows[rows.left_out == ""]
    return kept[fit.cached_share(device, kept) == 0.0]


def of_formats(name: str, device: Device, rows: Table) -> Iterator[tuple[str, Form, Table]]:
    """Products by format, in the stacks that its profile is fitted to and beyond the cache, with
    the form of that profile.
    """
    rows = rows[(rows.operation == "matmul") & (rows.part != LM_HEAD)]
    for form, of_form in uncached(device, rows).groupby("format"):
        curve = device.matmul_for(str(form))
        points = tuple(point.tokens for point in curve.width)
        some = of_form[of_form.model.str.startswith(STACKS.get((name, str(form)), ("",)))]
        shape = Form((64,), points) if points else TABLE
        shape = shape._replace(depth=curve.depth_us is not None)
        yield str(form), shape, some.reset_index(drop=True)


def products(name: str, device: Device, rows: Table) -> Iterator[Line]:
    """Layers of one hidden size in one stack, summed over the products of a half that a fit to the
    other predicts.
    """
    for form, shape, some in of_formats(name, device, rows):
        asked, single = [], some.model.nunique() == 1
        for outside in halves(some.tokens if single else some["shape"]):
            fitted = fit.products(device, some[~outside], shape)
            asked.append(asked_of(device, some, outside, seconds(device, fitted, some[outside])))
        if asked:
            summed_up = summed(pd.concat(asked)) if single else layers(asked)
            yield from lines(
                ("layers", name, form + ", half of the token counts" * single), summed_up, RANGES
            )


def layer_shapes(folder: Path) -> dict[str, tuple[frozenset[str], ...]]:
    """Shapes of the products of a dense model's layer, by model and number of devices; models of
    one shape stand once.
    """
    found: dict[tuple[frozenset[str], ...], str] = {}
    for file in sorted(folder.glob("*config.json")):
        try:
            model = read_config(file)
        except BadInput:
            continue
        if model.experts or model.mixers or model.layers or model.mlp != "gated":
            continue
        hidden, queries, ff = model.hidden_size, model.query_width, model.intermediate_size
        sides = [
            (hidden, queries + 2 * model.kv_width, 2),
            (queries, hidden, 1),
            (hidden, 2 * ff, 2),
            (ff, hidden, 1),
        ]
        divided = (
            [
                (k // (ranks if cut == 1 else 1), n // (ranks if cut == 2 else 1))
                for k, n, cut in sides
            ]
            for ranks in DEGREES
        )
        shapes = tuple(frozenset(f"{k}x{n}" for k, n in products) for products in divided)
        found.setdefault(shapes, file.stem.removesuffix("_config"))
    return {model: shapes for shapes, model in found.items()}


def other_models(name: str, device: Device, rows: Table, configs: Path) -> Iterator[Line]:
    """Layers of models in one stack on 1 to 8 devices, as a fit to the shapes of one other model,
    or of all others, has them.

    A layer's products that the fit has seen are left out of it, and those that no table times.
    """
    models = layer_shapes(configs)
    for form, shape, some in of_formats(name, device, rows):
        own = {
            model: some["shape"].isin(frozenset().union(*layers))
            for model, layers in models.items()
        }
        one: list[Table] = []
        every_other: list[Table] = []
        for model, mask in own.items():
            others = np.logical_or.reduce([other for key, other in own.items() if key != model])
            for known, about, asked in (
                (mask, own.keys() - {model}, one),
                (others & ~mask, {model}, every_other),
            ):
                if some["shape"][known].nunique() > LEAST_PRODUCTS:
                    fitted = fit.products(device, some[known], shape)
                    times = asked_of(device, some, ~known, seconds(device, fitted, some[~known]))
                    layers = [
                        of_model(times, models[other]).assign(fit=model) for other in sorted(about)
                    ]
                    asked.extend(layer for layer in layers if len(layer))
        for asked, what in ((one, "fit to one model"), (every_other, "fit to the others")):
            if asked:
                yield from lines(
                    ("models", name, f"{form}, {what}"), pd.concat(asked), RANGES, by="fit"
                )


def of_model(asked: Table, layers: Sequence[frozenset[str]]) -> Table:
    """Sums over the products of a model's layer, by stack and number of rows, on each number of
    devices.
    """
    found = []
    for shapes in layers:
        part = asked[asked["shape"].isin(shapes)]
        stack = part.model.str.replace(r" .*", "", regex=True)
        whole = part.groupby([stack, "tokens"])["shape"].transform("nunique") >= LEAST_PRODUCTS
        found.append(
            part[whole]
            .groupby([stack[whole], "tokens"])[["seconds", "predicted", "two", "bare"]]
            .sum()
            .reset_index()
        )
    return pd.concat(found, ignore_index=True)


def layers(asked: Sequence[Table]) -> Table:
    """Sums over the products of each half, hidden size, stack and number of rows."""
    found = []
    for half, hidden in every(asked, HIDDEN_SIZES):
        sides = half["shape"].str.split("x", expand=True).astype(float)
        other = np.where(sides[0] == hidden, sides[1], sides[0])
        fits = (
            (sides == hidden).any(axis=1)
            & (hidden * NARROWEST <= other)
            & (other <= hidden * WIDEST)
        )
        part = half[fits & (hidden * other >= LEAST_WEIGHTS)]
        stack = part.model.str.replace(r" .*", "", regex=True)
        found.append(
            part.groupby([stack, "tokens"])[["seconds", "predicted", "two", "bare"]]
            .sum()
            .reset_index()
        )
    return pd.concat(found, ignore_index=True)


HIDDEN_SIZES = tuple(
    size
    for size in (2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192)
    if HIDDEN[0] <= size <= HIDDEN[1]
)


def attentions(name: str, device: Device, rows: Table) -> Iterator[Line]:
    """Decode and prefill of one half of the head shapes as a fit to the other predicts them; of one
    shape, rows in turn.
    """
    for form, of_form in rows[(rows.operation == "attention") & (rows.left_out == "")].groupby(
        "format"
    ):
        some = attention.uncached(device, of_form).reset_index(drop=True)
        heads = some.kv_heads.map(str) + "x" + some.query_width.map(str)
        single = heads.nunique() == 1
        masks = (
            [some.groupby("part").cumcount() % 2 == number for number in (0, 1)]
            if single
            else halves(heads)
        )
        like: Any = device.attention
        asked = []
        for outside in masks:
            parts = attention.in_parts(device, some[~outside], like.over(form))
            for part in ("decode", "prefill"):
                of_part = attention.with_queries(some[some.part == part])
                if len(of_part):
                    out = outside[of_part.index]
                    asked.append(
                        asked_of(
                            device,
                            of_part,
                            out,
                            seconds(device, getattr(parts, part), of_part[out]),
                        )
                    )
        for part, timed in pd.concat(asked).groupby("part"):
            yield from lines(
                (str(part), name, str(form) + " cache" + ", rows in turn" * single), timed, (ALL,)
            )


def mixtures(name: str, device: Device, rows: Table) -> Iterator[Line]:
    """Experts of each model, as a fit to the others predicts them."""
    rows = rows[(rows.operation == "experts") & (rows.left_out == "")]
    for form, some in rows.groupby("format"):
        asked = []
        for model in some["shape"].unique() if some["shape"].nunique() > 1 else ():
            outside = some["shape"] == model
            fitted = experts.fitted(device, some[~outside])
            asked.append(asked_of(device, some, outside, seconds(device, fitted, some[outside])))
        if asked:
            yield from lines(("experts", name, str(form)), pd.concat(asked), RANGES, by="shape")


def derived(name: str, device: Device, rows: Table) -> Iterator[Line]:
    """Large products of a card that starts from another one, with what its own datasheet says."""
    some = rows[(rows.operation == "matmul") & (rows.format == "fp16") & (rows.part != LM_HEAD)]
    whole = name == "rtx_4090"
    large = (
        some
        if whole
        else uncached(device, some[fit.weight_bytes(some) / some.copies >= LARGE_BYTES])
    )
    large = large[~large.model.str.startswith("TRTLLM")]
    for origin in DERIVED.get(name, ()):
        card, home = starting_from(name, origin), profile(origin)
        known = seconds(home, home.matmul["default"], large)
        constant, factor = two_numbers(seconds(home, DATASHEET, large), known)
        bare, times = seconds(card, DATASHEET, large), seconds(card, card.matmul["default"], large)
        asked = large.assign(
            seconds=measured(large), predicted=times, bare=bare, two=constant * 1e-6 + factor * bare
        )
        yield from lines(
            ("derived", name, f"from {origin}"), summed(asked) if whole else asked, RANGES
        )


def starting_from(name: str, origin: str) -> Device:
    """A card as a file of its datasheet's numbers and ``like`` would have it."""
    own = read_document(CATALOGUE.names("device")[HOMES.get(name, name)]).data
    with TemporaryDirectory() as folder:
        path = Path(folder) / "card.yaml"
        path.write_text(
            yaml.safe_dump({"like": origin} | {key: own[key] for key in SHEET if key in own})
        )
        return validate(Device, CATALOGUE.content("device", path))


def summed(asked: Table) -> Table:
    """Layers of one model."""
    return asked.groupby(fit.LAYER, as_index=False)[["seconds", "predicted", "bare", "two"]].sum()


def all_reduces(name: str, link: Link, rows: Table) -> Iterator[Line]:
    """Sizes between those of the shipped tables, by implementation and number of devices."""
    rows = rows[
        (rows.operation == "all_reduce")
        & rows.size_bytes.between(LEAST_KIB * 1024, MOST_KIB * 1024)
    ]
    for implementation, table in link.all_reduce.measured.items():
        stack = "vllm" if implementation == "eager" else ""
        some = rows[
            (rows.implementation == implementation) & rows.source.str.contains(stack)
        ].assign(tokens=1.0)
        if some.empty:
            continue
        bare = (
            2.0
            * (some.ranks - 1.0)
            / some.ranks
            * some.size_bytes
            / (link.bandwidth_gb_s.value * 1e9)
        )
        known = (some.size_bytes / 1024.0).map(
            lambda size, sizes=table.size_kib: bool(np.isclose(size, sizes, rtol=1e-4).any())
        )
        constant, factor = two_numbers(bare[known].to_numpy(), measured(some[known]))
        times = fit.reduced(table, some)
        asked = some.assign(
            seconds=measured(some), predicted=times, bare=bare, two=constant * 1e-6 + factor * bare
        )[~known]
        yield from (
            line._replace(range="8 KiB..4 MiB")
            for line in lines(("all-reduce", name, implementation), asked, (ALL,), by="ranks")
        )


QUESTIONS: dict[Any, tuple[str, ...]] = {
    products: ("layers",),
    other_models: ("models",),
    attentions: ("decode", "prefill"),
    mixtures: ("experts",),
    derived: ("derived",),
    all_reduces: ("all-reduce",),
}
"""Functions of a name, its profile and its rows, and the tables of the page that they fill."""


def everything(name: str, rows: Table, only: Sequence[str], configs: Path | None) -> Iterator[Line]:
    """All lines of one profile's rows, or those of some tables; without files of models none that
    they name.
    """
    home = profile(name)
    for ask, tables in QUESTIONS.items():
        if (ask is all_reduces) == isinstance(home, Link) and set(tables) & set(only):
            if ask is not other_models:
                yield from ask(name, home, rows)
            elif configs:
                yield from ask(name, home, rows, configs)


# ---- the page

TITLES = {
    "layers": "Layers of products that a fit to the other half of the shapes predicts",
    "models": "Layers of dense models that a fit to the shapes of other models predicts",
    "decode": "Attention of decoding, half of the head shapes asked of a fit to the other",
    "prefill": "Attention of prompts, likewise",
    "experts": "Experts of a model that a fit to the other models predicts",
    "all-reduce": "All-reduces of sizes between those of the shipped table",
    "derived": "Large products of a card by another one's curves and its own datasheet",
}
OPENING = """# What measured cards say of what no fit saw

Mean absolute errors in % of the measured time. Bare: a hard maximum of the datasheet's rates (of
links: bytes over bandwidth). Two numbers: a constant and a share of the bare time, fitted to the
rows that the form was fitted to; of derived cards to the times of the card that they start from.
Worst: the 95th percentile; of experts and all-reduces the mean of the worst model and number of
GPUs, of models the mean of the worst one to fit to, or to leave out. What is above its aim, or
above two numbers, is said. How rows were chosen: `benchmarks/shelf.py`; what the numbers mean: [how
far to trust a number](../../docs/background/trust.md).
"""
HEAD = (
    "| profile | of | range | rows | error | bias | worst | two numbers | bare | aim |  |",
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
)


def aim_of(line: Line) -> float | None:
    """The most that the mean error should be."""
    apart = line.profile if line.what.startswith("fp16") else "quantised"
    table = line.table.replace("models", "layers")
    aims = AIMS.get(f"{table}, {apart}", AIMS.get(table, ()))
    return aims[min(line.range == "1..256", len(aims) - 1)] if aims else None


def row(line: Line) -> str:
    """A line of the page."""
    aim = aim_of(line)
    missed = ["**missed**"] * (aim is not None and line.percent > aim) + [
        "worse than two numbers"
    ] * (line.percent > line.two_numbers_percent)
    numbers = (
        line.percent,
        line.bias_percent,
        line.worst_percent,
        line.two_numbers_percent,
        line.bare_percent,
    )
    cells = (
        line.profile,
        line.what,
        line.range,
        f"{line.rows:,}",
        *(f"{number:.1f}" for number in numbers),
    )
    return f"| {' | '.join((*cells, '' if aim is None else f'{aim:g}', ', '.join(missed)))} |"


def page(found: Sequence[Line]) -> str:
    """The whole page."""
    parts = [OPENING]
    for table, title in TITLES.items():
        if rows := [row(line) for line in found if line.table == table]:
            parts.append("\n".join((f"## {title}", "", *HEAD, *rows, "")))
    return "\n".join(parts)


def kept(path: Path, names: Sequence[str], only: Sequence[str]) -> list[Line]:
    """Lines of other profiles or tables that a file holds already."""
    old = pd.read_csv(path).itertuples(index=False, name=None) if path.exists() else ()
    return [
        line
        for line in (Line(*cells) for cells in old)
        if line.profile not in names or line.table not in only
    ]


@click.command()
@click.argument(
    "tables", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--only", multiple=True, type=click.Choice(list(TITLES)), default=list(TITLES))
@click.option("--configs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(tables: tuple[Path, ...], only: tuple[str, ...], configs: Path | None, out: Path) -> None:
    """Write ``held_out.csv`` and ``held_out.md``."""
    out.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[Path]] = {}
    for path in tables:
        groups.setdefault(path.name.partition(".")[0], []).append(path)
    only = tuple(table for table in only if configs or table != "models")
    found = kept(out / "held_out.csv", tuple(groups), only)
    for name, paths in groups.items():
        for line in everything(name, read(paths), only, configs):
            Console().print(
                *line[:4],
                f"{line.percent:.1f}, two numbers {line.two_numbers_percent:.1f}, bare "
                f"{line.bare_percent:.1f}",
            )
            found.append(line)
            found.sort(key=lambda one: (list(TITLES).index(one.table), one.profile))
            pd.DataFrame(found).to_csv(out / "held_out.csv", index=False, float_format="%.4g")
            (out / "held_out.md").write_text(page(found))


if __name__ == "__main__":
    main()
