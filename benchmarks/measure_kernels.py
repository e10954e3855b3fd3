"""Time single kernels as rows of our table: attention of few query rows over a cache, products in
bf16 and fp8, experts.

    python benchmarks/measure_kernels.py times.csv
    specsim calibrate device times.csv --like h100_sxm

Random weights. What a call reads rotates through so many copies that a cache does not hold them. On
CUDA each kernel is timed by events in a graph and as the host launches it; rows of the latter are
marked ``eager``. Of the shapes of an operation, part and format, in the order of their names, every
second one is marked ``test``: ``specsim calibrate device`` leaves it out, and ``specsim calibrate
score`` asks about it. Needs the extra ``record``. On a CPU shapes are tiny and try the program
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product as every
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
import torch
from rich.console import Console
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from benchmarks.live.machine import WARM_UP, Chip
from simulator.core.cost.formats import FORMATS
from simulator.evidence.calibrate.importers import Heads, Queries, Row, attention, product
from simulator.evidence.calibrate.measurements import EAGER, TEST, Table, table, write

HEAD_WIDTH, DTYPE, EIGHT = 128, torch.bfloat16, torch.float8_e4m3fn
MOST_COPIES = 64
Call = Callable[[], object]


class Sizes(NamedTuple):
    """What is timed on a kind of chip."""

    products: tuple[tuple[int, int], ...]
    """Inputs and outputs."""
    rows: tuple[int, ...]
    """Rows of products, and tokens that experts serve."""
    heads: tuple[tuple[int, int], ...]
    """Query and KV heads."""
    queries: tuple[int, ...]
    """Query rows of a sequence."""
    sequences: tuple[int, ...]
    cached: tuple[int, ...]
    """Cached tokens of a sequence."""
    experts: tuple[tuple[int, int, int, int], ...]
    """Width of a token, width inside an expert, experts, and experts of a token."""


SIZES = {
    "cuda": Sizes(
        products=tuple(every((2048, 4096, 5120, 8192), (4096, 6144, 8192, 14336, 28672))),
        rows=(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
        heads=((32, 8), (64, 8), (8, 1)),
        queries=(1, 2, 4, 8, 16, 32),
        sequences=(1, 4, 16, 64),
        cached=(256, 1024, 4096, 16384),
        experts=((2048, 768, 128, 8), (4096, 14336, 8, 2)),
    ),
    "cpu": Sizes(
        ((64, 96), (64, 128)),
        (1, 4, 16),
        ((4, 2), (4, 1)),
        (1, 2, 8),
        (1, 2),
        (32, 64),
        ((64, 32, 8, 2),),
    ),
}
"""Those of a core show that the program works; they are too small to say how fast it is."""


class Kernel(NamedTuple):
    """A kernel is a row without its time, and the function that makes a call with inputs of its
    own.
    """

    row: Row
    made: Callable[[], Call]


def products(chip: Chip, sizes: Sizes) -> Iterator[Kernel]:
    """Yield products in bf16 and, where the chip has it, in fp8 with one scale; inputs are
    quantised within the call.
    """
    eight = chip.kind == "cpu" or torch.cuda.get_device_capability() >= (8, 9)
    for (inputs, outputs), rows, weights in every(
        sizes.products, sizes.rows, ("fp16", "fp8")[: 1 + eight]
    ):

        def made(
            inputs: int = inputs, outputs: int = outputs, rows: int = rows, weights: str = weights
        ) -> Call:
            x, w, scale = (
                _random(chip, rows, inputs),
                _random(chip, outputs, inputs),
                torch.ones((), device=chip.kind),
            )
            if weights == "fp16":
                return lambda: F.linear(x, w)
            small = w.to(EIGHT).t()
            return lambda: torch._scaled_mm(x.to(EIGHT), small, scale, scale, out_dtype=DTYPE)

        name = f"{inputs}x{outputs} {weights}"
        yield Kernel(
            {"model": name, **product("product", rows, inputs, outputs, 0.0, weights)}, made
        )


def attentions(chip: Chip, sizes: Sizes) -> Iterator[Kernel]:
    """Yield attention of query rows that see the cache and the rows before them."""
    for heads, rows, sequences, cached in every(
        sizes.heads, sizes.queries, sizes.sequences, sizes.cached
    ):
        query, kv = heads

        def made(
            query: int = query,
            kv: int = kv,
            rows: int = rows,
            n: int = sequences,
            cached: int = cached,
        ) -> Call:
            q = _random(chip, n, query, rows, HEAD_WIDTH)
            k, v = (_random(chip, n, kv, cached + rows, HEAD_WIDTH) for _ in range(2))
            mask = None if rows == 1 else causal_lower_right(rows, cached + rows)
            return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

        on_device = Heads(kv, 4.0 * kv * HEAD_WIDTH, query * HEAD_WIDTH)
        row = attention(
            "decode" if rows == 1 else "window", Queries(sequences, rows, cached), on_device, 0.0
        )
        yield Kernel({"model": f"{query} heads over {kv}, {sequences} x {cached:06}", **row}, made)


def experts(chip: Chip, sizes: Sizes) -> Iterator[Kernel]:
    """Yield the two grouped products of gated experts that some tokens touch: from the same for all
    to as many as there are.
    """
    for (hidden, inner, routed, each), tokens in every(sizes.experts, sizes.rows):
        pairs, touched = tokens * each, each
        while touched <= min(routed, pairs):

            def made(
                hidden: int = hidden, inner: int = inner, pairs: int = pairs, touched: int = touched
            ) -> Call:
                x = _random(chip, pairs, hidden)
                up, down = (
                    _random(chip, touched, hidden, 2 * inner),
                    _random(chip, touched, inner, hidden),
                )
                ends = (
                    torch.linspace(0, pairs, touched + 1, device=chip.kind)[1:]
                    .round()
                    .to(torch.int32)
                )
                return lambda: _gated(x, up, down, ends)

            weights = 3.0 * touched * hidden * inner
            row = product("experts", pairs / touched, hidden, inner, 0.0)
            row |= {
                "size_bytes": FORMATS["fp16"].product_bytes(
                    hidden + inner, 2 * inner + hidden, pairs, weights
                )
            }
            row |= {
                "flops": 2.0 * pairs * weights / touched,
                "model": f"{touched:03} of {routed} experts, {hidden}x{inner}",
            }
            yield Kernel(row, made)
            touched *= 2


def _gated(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, ends: torch.Tensor) -> object:
    gate, value = torch._grouped_mm(x, up, offs=ends).chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * value, down, offs=ends)


def _random(chip: Chip, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=chip.kind, dtype=DTYPE)


@torch.inference_mode()
def timed(chip: Chip, sizes: Sizes, tick: Callable[[str], None] = lambda what: None) -> Table:
    """Time every kernel; return a row for each and each way to launch it
    (:mod:`simulator.evidence.calibrate.measurements`).
    """
    rows: list[Row] = []
    for kernel in (
        kernel for kind in (products, attentions, experts) for kernel in kind(chip, sizes)
    ):
        tick(f"{kernel.row['operation']} {kernel.row['model']}, {kernel.row['tokens']:g} rows")
        calls = [kernel.made() for _ in range(_copies(chip, kernel.row["size_bytes"]))]
        for way, time_us in _times_us(chip, calls).items():
            left_out = EAGER if chip.kind == "cuda" and way == "eager" else ""
            rows.append(
                {
                    **kernel.row,
                    "copies": len(calls),
                    "implementation": way,
                    "time_us": time_us,
                    "left_out": left_out,
                }
            )
    made = table(rows).assign(
        source=f"{chip.name}, torch {torch.__version__}, median of {chip.repeats}"
    )
    names = made.groupby(["operation", "part", "format"]).model.rank(method="dense")
    return made.assign(left_out=made.left_out.where((names % 2 == 1) | (made.left_out != ""), TEST))


def _copies(chip: Chip, size_bytes: float) -> int:
    """Return how many copies a cache does not hold even half of; on a core two, which are no
    measurement of its memory.
    """
    cache = torch.cuda.get_device_properties().L2_cache_size if chip.kind == "cuda" else 0
    return min(MOST_COPIES, max(2, ceil(2.0 * cache / size_bytes)))


def _times_us(chip: Chip, calls: Sequence[Call]) -> dict[str, float]:
    """Return the median microseconds of a call by how it is launched."""

    def work() -> None:
        for call in calls:
            call()

    if chip.kind == "cpu":
        return {"eager": chip.time_us(work) / len(calls)}
    eager_us = _events_us(chip, work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return {"graph": _events_us(chip, graph.replay) / len(calls), "eager": eager_us / len(calls)}


def _events_us(chip: Chip, work: Call) -> float:
    times: list[Any] = []
    for _ in range(WARM_UP + chip.repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return float(median(times[WARM_UP:]))


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--kind", type=click.Choice(("auto", "cpu", "cuda")), default="auto", show_default=True
)
def main(out: Path, kind: str) -> None:
    """Time the kernels of this machine and write them to OUT (.csv, .csv.gz)."""
    present = torch.cuda.is_available()
    if kind == "cuda" and not present:
        raise click.UsageError("torch finds no CUDA device here; expected cpu or auto")
    chip = Chip(("cuda" if present else "cpu") if kind == "auto" else kind)
    with Console(stderr=True).status("timing") as status:
        times = timed(chip, SIZES[chip.kind], lambda what: status.update(f"timing {what}"))
    write(times, out)
    click.echo(f"written: {out}, {len(times)} rows on {chip.name}")


if __name__ == "__main__":
    main()
