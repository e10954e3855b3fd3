"""Fit the calibrated numbers of ``hardware_profiles`` to published measurements and say how well they fit.

    python benchmarks/fit_profiles.py MEASUREMENTS_DIR        (with the project installed, or PYTHONPATH=.)

MEASUREMENTS_DIR holds ``a100/``, ``rtx3090/`` and ``apple/`` (origins: microsoft/vidur 7d47513 and acb95f6,
casys-kaist/LLMServingSim 5daddb2, threads of ggml-org/llama.cpp). Everything is evaluated through
``Device.seconds`` and the links' own formulas: what is fitted is what the simulator uses. Fits minimise a robust
(soft L1) loss of log(predicted / measured median); numbers are rounded to three digits before any error is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from simulator.hardware import Device, RingAllReduce, Roofline, TreeAllReduce
from simulator.model import WEIGHT_BYTES

TILES = [(1,), (64,), (128,), (64, 128), (64, 128, 256), (64, 128, 192, 256), (16, 64), (16, 64, 128), (32, 64, 128)]
SAMPLE = [1, 2, 4, 8, 16, 32, 48, 64, 65, 72, 96, 128, 129, 136, 160, 192, 200, 256, 257, 264, 320, 384, 385, 392, 448, 512,
          513, 520, 640, 768, 1024, 1536, 2048]  # fmt: skip
RANGES = [(1, 64), (65, 128), (129, 256), (257, 512), (513, 2048)]
A100_MODELS = ("Llama-2-7b-hf", "Meta-Llama-3-8B", "Llama-2-70b-hf")
Model: TypeAlias = Callable[[Sequence[float]], np.ndarray]
Bounds: TypeAlias = tuple[Sequence[float], Sequence[float]]
Rows: TypeAlias = pd.DataFrame  # columns op, tokens, size_bytes, flops, seconds, and any that name a shape


def roofline(numbers: Sequence[float], tiles: Sequence[int] = (1,)) -> Roofline:
    """A roofline of bare numbers: constant in microseconds, memory and compute efficiency, p."""
    named = dict(zip(("fixed_us", "memory_efficiency", "compute_efficiency", "p_norm"), numbers, strict=True))
    return Roofline.model_validate({**named, "tile_tokens": tuple(tiles)})


DATASHEET = roofline((0, 1, 1, 200))


def device(bandwidth_gb_s: float, peak_tflops: float) -> Device:
    """A device of which only the datasheet rates matter."""
    parts = {"matmul": {"default": DATASHEET}, "attention": DATASHEET, "small_operations": DATASHEET}
    rates = {"memory_gb": 80.0, "memory_bandwidth_gb_s": bandwidth_gb_s, "peak_tflops": peak_tflops}
    return Device.model_validate({"kind": "gpu", **rates, **parts})


A100, RTX_3090, M2_ULTRA = device(2039, 312), device(936, 71), device(800, 27.2)


def predict(on: Device, operation: Roofline, rows: Rows) -> np.ndarray:
    """Seconds of every row."""
    columns = zip(rows.size_bytes, rows.flops, rows.tokens, strict=True)
    return np.array([on.seconds(operation, size, flops, tokens) for size, flops, tokens in columns])


def solve(make: Model, measured: pd.Series, start: Sequence[float], bounds: Bounds) -> list[float]:
    """Parameters with the least soft-L1 loss of log(make(x) / measured), rounded to three digits."""
    truth, scale = measured.to_numpy(), np.maximum(start, 1e-3)
    found = least_squares(lambda x: np.log(make(x) / truth), start, bounds=bounds, loss="soft_l1", f_scale=0.05, x_scale=scale,
                          diff_step=1e-4)  # fmt: skip
    return [float(f"{value:.3g}") for value in found.x]


def fit_roofline(on: Device, rows: Rows, tiles: Sequence[int], start: Sequence[float] = (5, 0.8, 0.7, 3)) -> Roofline:
    """All four numbers of a roofline."""
    bounds = ([0, 0.2, 0.05, 1], [60, 1, 1, 50])
    return roofline(solve(lambda x: predict(on, roofline(x, tiles), rows), rows.seconds, start, bounds), tiles)


def fit_tiles(on: Device, rows: Rows) -> Roofline:
    """The candidate tile set, each with its own best numbers, that has the least error per layer up to 512 tokens."""
    fits = [fit_roofline(on, rows[rows.tokens.isin(SAMPLE)], tiles) for tiles in TILES]
    errors = [layer_mape(on, operation, rows) for operation in fits]
    for operation, error in zip(fits, errors, strict=True):
        print(f"    tiles {operation.tile_tokens!s:20} layer MAPE <= 512 tokens {error:.1f} %")
    return fits[int(np.argmin(errors))]


def layers(rows: Rows) -> Rows:
    """Matrix products summed into layers; the LM head is not part of one."""
    summed = [column for column in ("predicted", "datasheet", "seconds") if column in rows]
    return rows[rows.op != "lm_head"].groupby(["model", "tp", "tokens"], as_index=False)[summed].sum()


def layer_mape(on: Device, operation: Roofline, rows: Rows, most_tokens: int = 512) -> float:
    """Mean absolute error in per cent of the matrix products of a layer, over every measured token count."""
    some = rows[rows.tokens <= most_tokens]
    layer = layers(some.assign(predicted=predict(on, operation, some)))
    return mape(layer.predicted, layer.seconds)[0]


def show(name: str, operation: Roofline) -> None:
    numbers = [operation.fixed_us, operation.memory_efficiency, operation.compute_efficiency, operation.p_norm]
    fixed, memory, compute, p = (number.value for number in numbers)
    print(f"  {name}: fixed_us {fixed} memory_efficiency {memory} compute_efficiency {compute} p_norm {p} "
          f"tile_tokens {operation.tile_tokens}")  # fmt: skip


def mape(predicted: np.ndarray | pd.Series, measured: pd.Series) -> tuple[float, float, float]:
    """Mean and 95th percentile of the absolute error, and the mean signed error, in per cent."""
    error = 100.0 * (np.asarray(predicted) / np.asarray(measured) - 1.0)
    return float(np.mean(np.abs(error))), float(np.percentile(np.abs(error), 95)), float(np.mean(error))


def table(on: Device, operation: Roofline, rows: Rows, ranges: Iterable[tuple[int, int]] = RANGES) -> None:
    """Errors by operation group and token range, those of the datasheet roofline beside them; products also by layer."""
    rows = rows.assign(predicted=predict(on, operation, rows), datasheet=predict(on, DATASHEET, rows))
    tables = {str(op): part for op, part in rows.groupby("op")}
    if "k" in rows:
        tables = {"layer": layers(rows), "all ops": rows} | tables
    for name, part in tables.items():
        for low, high in [(1, 512), *ranges]:
            some = part[part.tokens.between(low, high)]
            if len(some):
                mean, p95, bias = mape(some.predicted, some.seconds)
                sheet = mape(some.datasheet, some.seconds)[0]
                print(f"    {name:10} {low:5d}..{high:<5d} n {len(some):5d}  MAPE {mean:5.1f} %  p95 {p95:5.1f} %  "
                      f"bias {bias:+5.1f} %  datasheet roofline {sheet:5.1f} %")  # fmt: skip


def matmul_row(op: str, tokens: int, k: float, m: float, seconds: float) -> dict[str, object]:
    size = 2.0 * (k * m + tokens * (k + m))
    return {"op": op, "tokens": tokens, "k": k, "m": m, "size_bytes": size, "flops": 2.0 * tokens * k * m, "seconds": seconds}


def a100_layers(directory: Path) -> tuple[Rows, Rows]:
    """Matrix products and small operations of every measured layer up to 2048 tokens (medians, repeats pooled)."""
    products, small = [], []
    for model in A100_MODELS:
        frame = pd.read_csv(directory / "a100" / f"{model}_linear.csv.gz")
        frame = frame[frame.num_tokens <= 2048].groupby(["num_tensor_parallel_workers", "num_tokens"]).median(numeric_only=True)
        for index, row in frame.iterrows():
            tp, tokens = index
            hidden, inner, query = row.n_embd, row.n_expanded_embd, row.n_embd
            kv = row.n_kv_head * row.n_embd / row.n_head
            shapes = {"attn_pre_proj": ("qkv", hidden, (query + 2 * kv) / tp), "attn_post_proj": ("output", query / tp, hidden),
                      "mlp_up_proj": ("up", hidden, 2 * inner / tp), "mlp_down_proj": ("down", inner / tp, hidden)}  # fmt: skip
            where = {"model": model, "tp": tp}
            for column, (op, k, m) in shapes.items():
                products.append(where | matmul_row(op, tokens, k, m, row[f"time_stats.{column}.median"] * 1e-3))
            once = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add")
            seconds = sum(row[f"time_stats.{column}.median"] for column in (*once, "add")) * 1e-3  # two residual adds
            small.append(where | small_row(tokens, hidden, inner / tp, (query + 2 * kv) / tp, seconds))
    return pd.DataFrame(products), pd.DataFrame(small)


def small_row(tokens: int, hidden: float, inner: float, qkv: float, seconds: float) -> dict[str, object]:
    size = 2.0 * tokens * (8 * hidden + 3 * inner + 2 * qkv)
    return {"op": "small", "tokens": tokens, "size_bytes": size, "flops": 0.0, "seconds": seconds}


def attention_row(op: str, shape: Sequence[int], kv_bytes: int, query_width: int, seconds: float) -> dict[str, object]:
    """``shape`` is sequences, new tokens of each, cached tokens of each; new tokens also see those before them."""
    batch, new, cached = shape
    pairs = batch * (new * cached + new * (new + 1) / 2)
    size, flops = float(batch * (cached + new) * kv_bytes), 4.0 * pairs * query_width
    return {"op": op, "tokens": batch * new, "size_bytes": size, "flops": flops, "seconds": seconds}


def a100_attention(directory: Path) -> Rows:
    """Decode and prefill attention with 32 query heads of 128, on 32 (Llama-2-7B) or 4 KV heads (Llama-2-70B, half)."""
    seven = directory / "a100" / "llama2_7b_a100_tp1_attn"
    decode, prefill = (pd.read_csv(f"{seven}_{kind}_sampled.csv") for kind in ("decode", "prefill"))
    rows = [attention_row("decode 32 kv", (b, 1, c), 16384, 4096, t * 1e-3) for b, c, t in decode.itertuples(index=False)]
    rows += [attention_row("prefill 32 kv", (1, n, c), 16384, 4096, t * 1e-3) for n, c, t in prefill.itertuples(index=False)]
    frame = pd.read_csv(directory / "a100" / "Llama-2-70b_CodeLlama-34b_tp2_attention.csv.gz")
    for op, part in frame.groupby("is_prefill"):
        kind, some = ("prefill", part.iloc[::25]) if op else ("decode", part.iloc[::60])  # all four sets weigh about the same
        columns = (some.batch_size, some.prefill_chunk_size if op else some.batch_size * 0 + 1, some.kv_cache_size,
                   some[f"time_stats.attn_{kind}.median"])  # fmt: skip
        rows += [attention_row(f"{kind} 4 kv", row[:3], 2048, 4096, row[3] * 1e-3) for row in zip(*columns, strict=True)]
    return pd.DataFrame(rows)


def rtx_3090_layers(directory: Path) -> tuple[Rows, Rows, Rows]:
    """Llama-3.1-8B: matrix products (q, k, v and up, gate summed: separate kernels), small operations, prefill attention."""
    products, small, attention = [], [], []
    for tp in (1, 2):
        frame = pd.read_csv(directory / "rtx3090" / f"Llama-3.1-8B_tp{tp}_layers.csv.gz")
        frame = frame.pivot_table(index="input", columns="layer_name", values="latency(ns)", aggfunc="median") * 1e-9
        where = {"model": "Llama-3.1-8B", "tp": tp}
        for tokens, row in frame.iterrows():
            n = int(tokens)
            products += [
                where | matmul_row("qkv", n, 4096, 6144 / tp, row.q_proj + row.k_proj + row.v_proj),
                where | matmul_row("output", n, 4096 / tp, 4096, row.o_proj),
                where | matmul_row("up", n, 4096, 28672 / tp, row.up_proj + row.gate_proj),
                where | matmul_row("down", n, 14336 / tp, 4096, row.down_proj),
                where | matmul_row("lm_head", n, 4096, 128256 / tp, row.lm_head),
            ]
            seconds = row.input_layernorm + row.post_layernorm + row.rope + row.act_fn  # residual adds are not in the file
            small.append(where | small_row(n, 4096, 14336 / tp, 6144 / tp, seconds))
            attention.append(where | attention_row("prefill", (1, n, 0), 4096 // tp, 4096 // tp, row.attn))
    return pd.DataFrame(products), pd.DataFrame(small), pd.DataFrame(attention)


def leave_one_shape_out(on: Device, fitted: Roofline, rows: Rows) -> None:
    """Error at <= 512 tokens of each weight shape (k, m), in every model that has it, when it took no part in the fit."""
    start = [fitted.fixed_us.value, fitted.memory_efficiency.value, fitted.compute_efficiency.value, fitted.p_norm.value]
    errors, inside, sample = [], [], rows[rows.tokens.isin(SAMPLE)]
    for (k, m), held in rows[rows.tokens <= 512].groupby(["k", "m"]):
        others = sample[(sample.k != k) | (sample.m != m)]
        refit = fit_roofline(on, others, fitted.tile_tokens, start)
        errors.append(mape(predict(on, refit, held), held.seconds)[0])
        inside.append(mape(predict(on, fitted, held), held.seconds)[0])
    print(f"    leave one shape out, <= 512 tokens: {len(errors)} shapes, mean MAPE {np.mean(errors):.1f} % "
          f"(in sample {np.mean(inside):.1f} %), worst shape {max(errors):.1f} %")  # fmt: skip


def fit_small(on: Device, rows: Rows) -> Roofline:
    """Constant and memory efficiency of the small operations, on up to 512 tokens."""
    sample = rows[rows.tokens.isin(SAMPLE) & (rows.tokens <= 512)]
    fixed, memory = solve(lambda x: predict(on, roofline((*x, 1, 1)), sample), sample.seconds, (20, 0.5), ([0, 0.02], [300, 1]))
    return roofline((fixed, memory, 1, 1))


def fit_a100(directory: Path) -> None:
    print("a100_80g_sxm")
    products, small = a100_layers(directory)
    matmul = fit_tiles(A100, products)
    show("matmul.default", matmul)
    table(A100, matmul, products)
    leave_one_shape_out(A100, matmul, products)
    operation = fit_small(A100, small)
    show("small_operations", operation)
    table(A100, operation, small)
    rows = a100_attention(directory)
    operation = fit_roofline(A100, rows, (1,), (10, 0.8, 0.5, 5))
    show("attention", operation)
    table(A100, operation, rows, ranges=[(1, 8), (9, 128), (129, 4096)])


def fit_rtx_3090(directory: Path) -> None:
    print("rtx_3090")
    products, small, attention = rtx_3090_layers(directory)
    matmul = fit_tiles(RTX_3090, products)
    show("matmul.default", matmul)
    table(RTX_3090, matmul, products)
    operation = fit_small(RTX_3090, small)
    show("small_operations", operation)
    table(RTX_3090, operation, small)
    sample = attention[attention.tokens.isin(SAMPLE)]
    fixed, compute = solve(lambda x: predict(RTX_3090, roofline((x[0], 0.8, x[1], 3)), sample), sample.seconds, (6, 0.5),
                           ([0, 0.02], [60, 1]))  # fmt: skip
    operation = roofline((fixed, 0.8, compute, 3))
    show("attention (memory_efficiency and p_norm assumed)", operation)
    table(RTX_3090, operation, attention)


def fit_links(directory: Path) -> None:
    print("nvlink_a100 (one node)")
    reduce = collectives(directory, "all_reduce")
    forms: dict[str, tuple[type[RingAllReduce] | type[TreeAllReduce], str]] = {
        "ring": (RingAllReduce, "fixed_us"),
        "tree": (TreeAllReduce, "alpha_us"),
    }
    for name, (form, key) in forms.items():
        make = partial(collective_seconds, form, key, reduce)
        x = solve(make, reduce.seconds, (30, 200), ([0, 1], [200, 5000]))
        print(f"  all_reduce.{name}: {key} {x[0]} bandwidth_gb_s {x[1]}")
        link_errors(reduce, make(x))
    pairs = collectives(directory, "send_recv")

    def nvlink(x: Sequence[float]) -> np.ndarray:
        return np.asarray(x[0] * 1e-6 + pairs.size_bytes.to_numpy() / 300e9)  # a free bandwidth runs into the datasheet's

    x = solve(nvlink, pairs.seconds, (15,), ([0], [200]))
    print(f"  transfer: latency_us {x[0]} bandwidth_gb_s 300 (datasheet)")
    link_errors(pairs, nvlink(x))


def collective_seconds(form: type[RingAllReduce] | type[TreeAllReduce], key: str, rows: Rows, x: Sequence[float]) -> np.ndarray:
    """Seconds of every row when the constant named ``key`` is x[0] microseconds and the bandwidth x[1] GB/s."""
    made = form.model_validate({key: x[0], "bandwidth_gb_s": x[1]})
    return np.array([made.seconds(size, int(ranks)) for size, ranks in zip(rows.size_bytes, rows.ranks, strict=True)])


def collectives(directory: Path, kind: str) -> Rows:
    """NCCL medians within one node at 60 sizes, evenly spaced in their logarithm: small messages weigh as much as large."""
    frame = pd.read_csv(directory / "a100" / f"dgx_{kind}.csv.gz")
    frame = frame[frame.num_workers == frame.devices_per_node].rename(columns={"size": "size_bytes", "num_workers": "ranks"})
    frame["seconds"] = frame[f"time_stats.{kind}.median"] * 1e-3
    grid = np.geomspace(2048, frame.size_bytes.max(), 60)
    near = [np.unique([part.size_bytes.sub(size).abs().idxmin() for size in grid]) for _, part in frame.groupby("ranks")]
    return frame.loc[np.concatenate(near)]


def link_errors(rows: pd.DataFrame, predicted: np.ndarray) -> None:
    """Errors over sizes spaced evenly in their logarithm, by range of sizes and number of ranks."""
    rows = rows.assign(predicted=predicted)
    parts = {"all": rows, "<= 1 MB": rows[rows.size_bytes <= 1e6], "> 1 MB": rows[rows.size_bytes > 1e6]}
    parts |= {f"{ranks} ranks": part for ranks, part in rows.groupby("ranks")}
    for name, part in parts.items():
        mean, p95, bias = mape(part.predicted, part.seconds)
        print(f"    {name:8} n {len(part):4d}  MAPE {mean:5.1f} %  p95 {p95:5.1f} %  bias {bias:+5.1f} %")


def fit_m2_ultra(directory: Path) -> None:
    """Memory efficiencies, width tables and one constant per layer from llama.cpp throughputs.

    Weights read per pass (embedding table left out, head included): Llama-3.2-3B 3.21e9 in 28 layers (tied head),
    Qwen2.5-7B 7.07e9 in 28, Qwen2.5-32B 31.98e9 in 64. F16 and Q4_0 of the 3B give two equations for the constant and a
    common efficiency; the constant then leaves each format its own efficiency, and the widths theirs.
    """
    print("m2_ultra_gpu")
    rows = pd.read_csv(directory / "apple" / "reported.csv")
    rows = rows[rows.id.astype(int) <= 23]
    rows["seconds"] = rows.x.astype(float) / rows.value.astype(float)
    weights = {"F16": (3.21e9, 28), "Q4_0": (3.21e9, 28), "Q8_0": (7.07e9, 28), "Q4_K": (31.98e9, 64)}
    formats = {"F16": "fp16", "Q4_0": "q4_0", "Q8_0": "q8_0", "Q4_K": "q4_k"}
    size = {quant: weights[quant][0] * WEIGHT_BYTES[formats[quant]] for quant in weights}
    one = {quant: float(rows[(rows.quant == quant) & (rows.x == 1)].seconds.iloc[0]) for quant in weights}
    rate = (size["F16"] - size["Q4_0"]) / (one["F16"] - one["Q4_0"])
    per_layer = float(f"{(one['Q4_0'] - size['Q4_0'] / rate) / 28 * 1e6:.3g}")
    print(f"  small_operations.fixed_us (per layer, everything but the weights) {per_layer}")
    for quant, part in rows.groupby("quant"):
        constant = weights[quant][1] * per_layer * 1e-6
        memory = one[quant] - constant
        efficiency = float(f"{size[quant] / memory / (M2_ULTRA.memory_bandwidth_gb_s.value * 1e9):.3g}")
        points = [
            {"tokens": int(x), "ratio": round((t - constant) / memory, 3)}
            for x, t in zip(part.x, part.seconds, strict=True)
            if x < 512
        ]
        print(f"  matmul.{formats[quant]}: memory_efficiency {efficiency} width {[(p['tokens'], p['ratio']) for p in points]}; "
              f"pass ratios as published {[round(t / one[quant], 3) for t in part.seconds]}")  # fmt: skip
        if quant == "F16":
            body = 3.21e9 - 128256 * 3072  # a prompt yields logits of its last token only
            busy = float(part.seconds.iloc[-1]) - constant
            print(f"    compute_efficiency from width 512: {2 * 512 * body / busy / (M2_ULTRA.peak_tflops.value * 1e12):.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measurements", type=Path, help="directory with a100/, rtx3090/ and apple/")
    directory = parser.parse_args().measurements
    for fit in (fit_a100, fit_rtx_3090, fit_links, fit_m2_ultra):
        fit(directory)


if __name__ == "__main__":
    main()
