"""Prices of mixers beside tables of measured kernels, and beside a bare roofline: ``python -m
benchmarks.mixers TABLES``.

TABLES is a folder with one of ai-dynamo/aiconfigurator for each card. ``specsim calibrate score``
asks about operations that a device is fitted to; here are those that it is not: whole modules of
latent attention, and the kernels of recurrences. States that a cache serves when a call is repeated
are left out, as other layers of a model push them out of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.kernels import attention_timer, layer_products
from simulator.core.cost.mixer import LayerKind, Mixer
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Collectives, Placement
from simulator.core.cost.rows import Rows
from simulator.evidence.calibrate.quality import percents
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.schema import validate

CARDS = {"a100_sxm": "a100_80g_sxm", "h100_sxm": "h100_sxm", "h200_sxm": "h200_sxm", "l40s": "l40s"}
CARDS |= {"rtx_pro_6000_server": "rtx_pro_6000"}
A100_CACHE_MB = 40.0
"""Last-level cache of an A100, which its profile does not state."""
LATENT = "deepseek_v3"
MOST_ROWS = 131_072
"""Most rows of a prompt, or of all of a batch, as in the other tables."""
STEPS = (
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_recurrent_kda_packed_decode",
)
SCANS = (
    "chunk_gated_delta_rule",
    "chunk_gated_delta_rule_flashinfer",
    "chunk_gated_delta_rule_triton",
    "flashkda_fwd",
    "chunk_kda",
)
VERIFIES = ("fused_recurrent_kda", "fused_sigmoid_gating_delta_rule_update")
LEAST_SEQUENCES = 32
"""Sequences from which the ratio of a verification to a step is that of the states, not of
launches.
"""


class Score(NamedTuple):
    """Errors of a price on some rows of a table, in per cent of the measured time."""

    card: str
    what: str
    stack: str
    rows: int
    mape: float
    bias: float
    bare: float
    """Mean absolute error of a hard maximum of the datasheet's rates on the same bytes and
    flops.
    """


def entry(kind: str, name: str, model: type[Any]) -> Any:
    """Return an entry of the catalogue."""
    catalogue = Catalogue()
    return validate(model, catalogue.content(kind, catalogue.names(kind)[name]))


def placed(device: Device, ranks: int = 1) -> Placement:
    """Return DeepSeek-V3 in 16 bits on one of ``ranks``, without what they exchange."""
    wire = entry("link", "nvlink_h100", Link) if ranks > 1 else None
    model, engine = entry("model", LATENT, ModelSpec), entry("engine", "vllm", Engine)
    on = {"tensor_parallel": ranks, "link": wire, "collectives": Collectives(count=0)}
    return Placement(model=model, device=device, engine=engine, weights="bf16", **on)


def bare(device: Device, size: Any, flops: Any) -> Any:
    """Return the seconds of a hard maximum of the datasheet's rates."""
    return np.maximum(
        size / (device.memory_bandwidth_gb_s.value * 1e9), flops / (device.peak_tflops.value * 1e12)
    )


def batch(rows: Rows, sequences: int) -> Rows:
    """Return as many sequences of the same rows."""
    return Rows._make(value * sequences for value in rows)


def modules(folder: Path, device: Device) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield projections and attention over latents of a layer in 16 bits: what is asked, stack,
    ``price``, ``bare``, ``s``.
    """
    for path in sorted(folder.glob("mla_*_module.vllm_*.parquet")):
        decodes = "generation" in path.name
        table = pd.read_parquet(path).query(
            "kv_cache_dtype == 'bfloat16' and gemm_type == 'bfloat16'"
        )
        table = table[table.batch_size * table.isl <= MOST_ROWS]
        times = []
        for heads, of_heads in table.groupby("num_heads"):
            place = placed(device, 128 // int(heads))
            mixer = place.model.mixers["latent"]
            timer, products = attention_timer(place, mixer), dict[int, float]()
            for row in of_heads.itertuples():
                one = (
                    Rows.decode(1, row.step + row.isl - 1)
                    if decodes
                    else Rows.prefill(row.isl, row.step)
                )
                rows = batch(one, row.batch_size)
                if rows.tokens not in products:
                    layer = layer_products(place, rows.tokens, LayerKind(mixer, 0, experts=False))
                    products[rows.tokens] = layer.qkv + layer.output
                pair = (
                    (mixer.pair_flops if decodes else mixer.prompt_pair_flops or 0.0) * heads / 128
                )
                weights = (
                    mixer.weights_before(place.mixer_ranks) + mixer.output
                ) / place.mixer_ranks
                size = 2 * weights + rows.kv_tokens * 2 * mixer.cached
                least = bare(device, size, 2 * weights * rows.tokens + rows.attention_pairs * pair)
                times.append((products[rows.tokens] + timer(rows), least, row.latency / 1e3))
        part = "module, decode" if decodes else "module, prompts"
        yield part, "vllm", pd.DataFrame(times, columns=["price", "bare", "s"])


def recurrences(folder: Path, device: Device) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield steps, scans of prompts and verifications of delta rules: what is asked, stack,
    ``price``, ``bare``, ``s``.
    """
    place, cache = (
        placed(device),
        2e6 * (device.cache_mb.value if device.cache_mb else A100_CACHE_MB),
    )
    for path in sorted((*folder.glob("gdn.*.parquet"), *folder.glob("kda.*.parquet"))):
        name, stack = path.name.split(".")[0], path.name.split(".")[1].split("_")[0]
        table = pd.read_parquet(path)
        for what, kernels in (("step", STEPS), ("scan", SCANS), ("verification", VERIFIES)):
            times = []
            for row in table[table.kernel_source.isin(kernels)].itertuples():
                width, state = (
                    row.num_v_heads * row.head_v_dim,
                    row.num_v_heads * row.head_v_dim * row.head_k_dim,
                )
                mixer = Mixer(
                    kind="linear",
                    projections=1,
                    projected=1,
                    value_width=width,
                    output=1,
                    state=state,
                )
                one = Rows.prefill(row.seq_len) if what == "scan" else Rows.decode(row.seq_len, 0)
                rows = batch(one, row.batch_size)
                if rows.tokens > MOST_ROWS:
                    continue
                states = (
                    rows.sequences * (2 if what == "scan" else 1 + row.seq_len) * mixer.state_bytes
                )
                minor = states < 0.2e9 * device.memory_bandwidth_gb_s.value * row.latency / 1e3
                if what != "scan" and not minor and rows.sequences * mixer.state_bytes <= cache:
                    continue
                least = bare(device, states + 4 * rows.tokens * width, 7.0 * state * rows.tokens)
                took = (attention_timer(place, mixer)(rows), least, row.latency / 1e3)
                times.append((*took, row.num_v_heads, row.batch_size, row.seq_len))
            if times:
                yield (
                    f"{name}, {what}",
                    stack,
                    pd.DataFrame(times, columns=["price", "bare", "s", "heads", "batch", "rows"]),
                )


def scores(tables: Path) -> Iterator[Score]:
    """Yield the errors of every kind of row on every card."""
    for folder, card in CARDS.items():
        device = entry("device", card, Device)
        for kind in (modules, recurrences):
            for what, stack, timed in kind(tables / folder, device):
                truth = timed.s.to_numpy()
                error, _, bias = percents(timed.price.to_numpy(), truth)
                yield Score(
                    card,
                    what,
                    stack,
                    len(timed),
                    error,
                    bias,
                    percents(timed.bare.to_numpy(), truth)[0],
                )


def verifications(folder: Path, device: Device) -> dict[str, dict[int, tuple[float, float]]]:
    """Return by stack and rows how many times a step a verification takes, as measured and as
    priced, of many sequences.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {}
    timed = {
        (what, stack): table
        for what, stack, table in recurrences(folder, device)
        if what.startswith("kda")
    }
    for stack in sorted({stack for _, stack in timed}):
        steps = timed["kda, step", stack].groupby(["heads", "batch"])[["s", "price"]].median()
        many = timed["kda, verification", stack].query(f"batch >= {LEAST_SEQUENCES}")
        both = many.merge(steps, on=["heads", "batch"], suffixes=("", "_step"))
        ratios = both.assign(
            measured=both.s / both.s_step, priced=both.price / both.price_step
        ).groupby("rows")
        found[stack] = {int(rows): (one.measured.mean(), one.priced.mean()) for rows, one in ratios}
    return found


def main() -> None:
    """Print a line for every kind of row and card."""
    tables = Path(sys.argv[1])
    print(f"{'card':14} {'what':18} {'stack':7} {'rows':>6} {'error':>7} {'bias':>7} {'bare':>7}")
    for score in scores(tables):
        print(
            f"{score.card:14} {score.what:18} {score.stack:7} {score.rows:6} {score.mape:6.1f}% "
            f"{score.bias:+6.1f}% {score.bare:6.1f}%"
        )
    for folder, card in CARDS.items():
        for stack, ratios in verifications(tables / folder, entry("device", card, Device)).items():
            words = "; ".join(
                f"{rows} rows {measured:.2f} {priced:.2f}"
                for rows, (measured, priced) in ratios.items()
            )
            print(f"{card}, {stack}, times a step (measured, priced): {words}")


if __name__ == "__main__":
    main()
