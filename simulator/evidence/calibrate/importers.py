"""Other people's measurements as our table: microsoft/vidur, casys-kaist/LLMServingSim and ai-dynamo/aiconfigurator.

Vidur (``data/profiling``): one file for a model's products and small operations, one for attention, one for each
collective, known by their columns; medians in milliseconds of 20 repeats, kernel time only. A fork publishes attention
medians alone, without shapes. LLMServingSim (``profiler/v0``): nanoseconds by layer name and tokens, without shapes.
Files without shapes need the model. AIConfigurator: milliseconds of single products (``gemm``), each a layer of its own,
or of attention (``generation_attention``, ``context_attention``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from simulator.cost.model import ModelSpec
from simulator.evidence.calibrate.measurements import Table, table
from simulator.files.schema import BadInput, Fault
from simulator.names import shown

Row = dict[str, object]
HALF_PRECISION = ("float16", "bfloat16")
HEAD_WIDTH = 128
"""Of Llama, Qwen and most others; one formula of bytes and flops does not hold for 64 and 256, too."""
HALF = 2
"""Bytes of a number in fp16, in which all of these were measured."""
MOST_TOKENS = 2048
"""Beyond this, kernels are those of long prefills; left out."""
ONE_NODE = "devices_per_node"
CACHE_MB = 80.0
"""Twice the L2 of an A100. Files that repeat a product of fewer bytes of weights time the cache."""


def product(part: str, tokens: float, inputs: float, outputs: float, time_us: float) -> Row:
    """Return the row of a product with ``inputs`` x ``outputs`` weights on one device."""
    size = HALF * (inputs * outputs + tokens * (inputs + outputs))
    flops = 2.0 * tokens * inputs * outputs
    shape = f"{inputs:.0f}x{outputs:.0f}"
    work = {"shape": shape, "tokens": tokens, "size_bytes": size, "flops": flops, "time_us": time_us}
    return {"operation": "matmul", "part": part, **work}


def small(tokens: float, hidden: float, inner: float, qkv: float, time_us: float) -> Row:
    """Return the row of a layer's norms, rotary positions, activation and residuals, as bytes of activations."""
    size = HALF * tokens * (8 * hidden + 3 * inner + 2 * qkv)
    return {"operation": "small_operations", "tokens": tokens, "size_bytes": size, "time_us": time_us}


class Queries(NamedTuple):
    """``new`` tokens of each of some sequences, behind ``cached`` ones; new tokens also see those before them."""

    sequences: float
    new: float
    cached: float


class Heads(NamedTuple):
    """Heads on one device: their number, bytes of keys and values that a token leaves, and query heads x head width."""

    kv_heads: float
    kv_bytes: float
    query_width: float


def attention(part: str, queries: Queries, heads: Heads, time_us: float) -> Row:
    """Return the row of one layer's attention on one device."""
    sequences, new, cached = queries
    pairs = sequences * (new * cached + new * (new + 1) / 2)
    work = {"size_bytes": sequences * (cached + new) * heads.kv_bytes, "flops": 4.0 * pairs * heads.query_width}
    work |= {"sequences": sequences, "kv_heads": heads.kv_heads, "query_width": heads.query_width}
    shape = f"{heads.kv_heads:g} KV heads"
    return {"operation": "attention", "part": part, "shape": shape, "tokens": sequences * new, **work, "time_us": time_us}


def _heads(model: ModelSpec, ranks: float = 1) -> Heads:
    kv_heads = model.num_key_value_heads or model.num_attention_heads
    return Heads(kv_heads / ranks, model.kv_bytes_per_layer() / ranks, model.query_width / ranks)


# ---- vidur


def vidur(frame: Table, name: str, model: ModelSpec | None) -> Table:
    """Return the table of any file of vidur's; ``name`` is what the file is called."""
    if "time_stats.attn_pre_proj.median" in frame:
        return _placed(_vidur_layers(frame), model=name.removesuffix("_linear"))
    if "time_stats.attn_decode.median" in frame:
        return _placed(_vidur_attention(frame), model=name)
    if "collective" in frame:
        return _placed(_vidur_collective(frame))
    return _placed(_vidur_medians(frame, _given(model)), model=_given(model).name)


def _vidur_layers(frame: Table) -> Iterator[Row]:
    frame = frame[frame.num_tokens <= MOST_TOKENS]
    medians = frame.groupby(["num_tensor_parallel_workers", "num_tokens"], as_index=False).median(numeric_only=True)
    for _, row in medians.iterrows():
        ranks, tokens, hidden, inner = row.num_tensor_parallel_workers, row.num_tokens, row.n_embd, row.n_expanded_embd
        qkv = (row.n_embd + 2 * row.n_kv_head * row.n_embd / row.n_head) / ranks
        shapes = {
            "attn_pre_proj": ("qkv", hidden, qkv),
            "attn_post_proj": ("output", hidden / ranks, hidden),
            "mlp_up_proj": ("up", hidden, 2 * inner / ranks),
            "mlp_down_proj": ("down", inner / ranks, hidden),
        }
        where = {"tensor_parallel": ranks}
        for column, (part, inputs, outputs) in shapes.items():
            yield where | product(part, tokens, inputs, outputs, row[f"time_stats.{column}.median"] * 1e3)
        others = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add", "add")  # two residuals
        time_us = sum(row[f"time_stats.{column}.median"] for column in others) * 1e3
        yield where | small(tokens, hidden, inner / ranks, qkv, time_us)


def _vidur_attention(frame: Table) -> Iterator[Row]:
    for row in frame.itertuples(index=False, name=None):
        cells = dict(zip(frame.columns, row, strict=True))
        ranks, query_width = cells["num_tensor_parallel_workers"], cells["n_embd"] / cells["num_tensor_parallel_workers"]
        kv_heads = cells["n_kv_head"] / ranks
        heads = Heads(kv_heads, 2 * HALF * kv_heads * cells["n_embd"] / cells["n_q_head"], query_width)
        part, new = ("prefill", cells["prefill_chunk_size"]) if cells["is_prefill"] else ("decode", 1)
        queries = Queries(cells["batch_size"], new, cells["kv_cache_size"])
        yield {"tensor_parallel": ranks} | attention(part, queries, heads, cells[f"time_stats.attn_{part}.median"] * 1e3)


def _vidur_medians(frame: Table, model: ModelSpec) -> Iterator[Row]:
    """Yield rows of the fork's files: sequences and cached tokens of decoding, or new and cached tokens of one prefill."""
    part = "decode" if "attn_decode_median_ms" in frame else "prefill"
    times = frame[f"attn_{part}_median_ms"] * 1e3
    firsts = frame["batch_size" if part == "decode" else "prefill_chunk_size"]
    for first, cached, time_us in zip(firsts, frame.kv_cache_size, times, strict=True):
        queries = Queries(first, 1, cached) if part == "decode" else Queries(1, first, cached)
        yield attention(part, queries, _heads(model), time_us)


def _vidur_collective(frame: Table) -> Iterator[Row]:
    """Yield rows of collectives within one node, where every rank is on it."""
    frame = frame[frame.num_workers == frame[ONE_NODE]]
    for collective, part in frame.groupby("collective"):
        operation = {"all_reduce": "all_reduce", "send_recv": "transfer"}[str(collective)]
        times = part[f"time_stats.{collective}.median"] * 1e3
        for size, ranks, time_us in zip(part["size"], part.num_workers, times, strict=True):
            yield {"operation": operation, "size_bytes": size, "ranks": ranks, "time_us": time_us}


# ---- LLMServingSim


def llmservingsim(frame: Table, name: str, model: ModelSpec | None) -> Table:
    """Return layers by name; q, k and v (up and gate) were separate kernels and are summed; residuals are not in the file."""
    return _placed(_serving_layers(frame, _given(model)), model=_given(model).name)


def _serving_layers(frame: Table, model: ModelSpec) -> Iterator[Row]:
    medians = frame.pivot_table(index=["tp_size", "input"], columns="layer_name", values="latency(ns)", aggfunc="median") * 1e-3
    hidden, query = model.hidden_size, model.query_width
    for (ranks, tokens), row in medians.iterrows():
        qkv, inner = (query + 2 * model.kv_width) / ranks, model.intermediate_size / ranks
        where: Row = {"tensor_parallel": ranks}
        yield where | product("qkv", tokens, hidden, qkv, row.q_proj + row.k_proj + row.v_proj)
        yield where | product("output", tokens, query / ranks, hidden, row.o_proj)
        yield where | product("up", tokens, hidden, 2 * inner, row.up_proj + row.gate_proj)
        yield where | product("down", tokens, inner, hidden, row.down_proj)
        yield where | product("lm_head", tokens, hidden, model.vocab_size / ranks, row.lm_head)
        yield where | small(tokens, hidden, inner, qkv, row.input_layernorm + row.post_layernorm + row.rope + row.act_fn)
        yield where | attention("prefill", Queries(1, tokens, 0), _heads(model, ranks), row.attn)


# ---- AIConfigurator


def aiconfigurator(frame: Table, name: str, model: ModelSpec | None) -> Table:
    """Return products in 16 bits, to ``MOST_TOKENS`` rows, or attention; the median where one was timed twice."""
    if "kv_cache_dtype" in frame:
        return _placed(_aiconfigurator_attention(frame))
    frame = frame[frame.gemm_dtype.isin(HALF_PRECISION) & (frame.m <= MOST_TOKENS)]
    medians = frame.groupby(["framework", "m", "n", "k"], as_index=False).latency.median()
    return _placed(
        {"model": f"{row.framework} {row.k}x{row.n}"} | product("product", row.m, row.k, row.n, row.latency * 1e3)
        for row in medians.itertuples()
    )


def _aiconfigurator_attention(frame: Table) -> Iterator[Row]:
    """Yield rows of full attention over a cache in 16 bits with heads of ``HEAD_WIDTH``, to ``MOST_TOKENS`` query rows."""
    frame = frame[frame.kv_cache_dtype.isin(HALF_PRECISION) & (frame.window_size == 0) & (frame.head_dim == HEAD_WIDTH)]
    frame = frame[frame.batch_size * frame.isl <= MOST_TOKENS]
    keys = ["op_name", "batch_size", "isl", "step", "num_heads", "num_key_value_heads"]
    for row in frame.groupby(keys, as_index=False).latency.median().itertuples():
        heads = Heads(row.num_key_value_heads, 2 * HALF * row.num_key_value_heads * HEAD_WIDTH, row.num_heads * HEAD_WIDTH)
        part = "prefill" if str(row.op_name).startswith("context") else "decode"
        yield attention(part, Queries(row.batch_size, row.isl, row.step), heads, row.latency * 1e3)


def cached(rows: Table, cache_mb: float) -> Table:
    """Return which rows are products whose weights in 16 bits a cache of ``cache_mb`` holds, shape (rows,)."""
    return (rows.operation == "matmul") & (rows.flops < rows.tokens * cache_mb * 1e6)


IMPORTERS: Mapping[str, Callable[[Table, str, ModelSpec | None], Table]] = {
    "vidur": vidur,
    "llmservingsim": llmservingsim,
    "aiconfigurator": aiconfigurator,
}
"""Name of a format -> from its columns, what the file is called and the model, if that is known, to our table."""


def _placed(rows: Iterator[Row], **same: object) -> Table:
    return table(pd.DataFrame(rows).assign(**same))


def _given(model: ModelSpec | None) -> ModelSpec:
    if model is None:
        raise BadInput([Fault(("", 0, 0), "", "holds no shapes; name the model with --model")])
    return model


def imported(form: str, path: Path, model: ModelSpec | None) -> Table:
    """Return the table of one file; raise BadInput that names the file."""
    name = shown(path)
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        return IMPORTERS[form](frame, path.name.partition(".")[0], model)
    except BadInput as error:
        raise BadInput([Fault((name, *fault.place[1:]), fault.field, fault.message) for fault in error.faults]) from error
    except KeyError as error:
        raise BadInput([Fault((name, 1, 1), str(error.args[0]), f"is required in a file of {form} and missing")]) from error
    except (OSError, ImportError, ValueError, AttributeError) as error:
        raise BadInput([Fault((name, 0, 0), "", f"is no file of {form}: {error}")]) from error
