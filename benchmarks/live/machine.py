"""A machine as profiles: products, attention, small operations, forward passes and a fork-join,
timed on it.

Operations are those of three models of different width, on one pinned core or on one CUDA device.
What passes take beyond their operations is the engine's host time. Products are timed in fp32 on a
core (state ``weights: fp32`` in a scenario) and in fp16 on CUDA; keys, values and activations are
counted as two bytes each, as everywhere in the simulator.
"""

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch.nn import functional as F

from benchmarks.family.network import DRAFT, TARGET, Network, NetworkShape, Reader, rotate
from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.formats import WEIGHT_BYTES, WeightFormat
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows
from simulator.evidence.calibrate import profile
from simulator.evidence.calibrate.importers import Heads, Queries, Row, attention, product, small
from simulator.evidence.calibrate.measurements import Table, table
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.schema import validate

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (64, 256, 1024)
MESSAGES = (64, 4_096, 65_536, 1_048_576)
WIDE = NetworkShape(layers=4, width=768, heads=12, hidden=2_048, vocabulary=8_192)
SHAPES = {"small target": TARGET, "small draft": DRAFT, "wide": WIDE}
LIKE = {"cpu": "xeon_16_cores", "cuda": "a100_80g_sxm"}
"""Profiles whose other numbers hold: memory, tiles."""
DEFINED = {
    "value": 1.0,
    "source": "definition: the device was timed with this software",
    "confidence": "assumed",
}
WARM_UP = 2
PRODUCTS_ALONE = 1_024
"""Rows and columns of the product whose rate is taken for the peak."""


@dataclass(frozen=True)
class Chip:
    """What is timed: a core by its processor time, which other programs do not stretch, or a CUDA
    device by the wall.
    """

    kind: str
    repeats: int = 15

    @property
    def dtype(self) -> torch.dtype:
        """Return the number format of weights and activations."""
        return torch.float16 if self.kind == "cuda" else torch.float32

    @property
    def weights(self) -> WeightFormat:
        """Return that format as scenarios call it."""
        return "fp16" if self.kind == "cuda" else "fp32"

    @property
    def name(self) -> str:
        """Return the name of the hardware."""
        return (
            torch.cuda.get_device_name() if self.kind == "cuda" else f"one core of {_processor()}"
        )

    def random(self, *sizes: int) -> torch.Tensor:
        """Return normal random numbers on the chip."""
        return torch.randn(*sizes, device=self.kind, dtype=self.dtype)

    def once_s(self, work: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        clock = perf_counter if self.kind == "cuda" else thread_time
        self._wait()
        begin = clock()
        work()
        self._wait()
        return clock() - begin

    def time_us(self, work: Callable[[], object]) -> float:
        """Return the median microseconds of some calls behind those that warm up."""
        return median([self.once_s(work) for _ in range(WARM_UP + self.repeats)][WARM_UP:]) * 1e6

    def _wait(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()


def described() -> str:
    """Return the kind of machine this is, in words."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{_processor()}, {cores} cores, torch {torch.__version__}, Python "
        f"{platform.python_version()}"
    )


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        named = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def spec(name: str, shape: NetworkShape) -> ModelSpec:
    """Describe a network as the simulator describes models."""
    return ModelSpec(
        name=name,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        intermediate_size=shape.hidden,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=True,
    )


@torch.inference_mode()
def operations(chip: Chip) -> Table:
    """Time operations; return a row for every time
    (:mod:`simulator.evidence.calibrate.measurements`).
    """
    rows = []
    for name, shape in SHAPES.items():
        for count in TOKENS:
            timed = (
                *_products(chip, shape, count),
                *_attention(chip, shape, count),
                _small(chip, shape, count),
            )
            rows += [{**row, "model": name} for row in timed]
    return table(rows).assign(
        source=f"{chip.name}, torch {torch.__version__}, median of {chip.repeats}"
    )


def _products(chip: Chip, shape: NetworkShape, tokens: int) -> Iterator[Row]:
    """Products in the order of a pass, layer by layer, so that each finds its weights where a pass
    finds them.
    """
    h, ff = shape.width, shape.hidden
    sizes = {
        "qkv": (h, 3 * h),
        "output": (h, h),
        "up": (h, 2 * ff),
        "down": (ff, h),
        "lm_head": (h, shape.vocabulary),
    }
    layer = [part for part in sizes if part != "lm_head"]
    order = [
        (part, chip.random(*reversed(sizes[part]))) for part in [*layer * shape.layers, "lm_head"]
    ]
    given = {part: chip.random(tokens, inputs) for part, (inputs, _) in sizes.items()}
    times_s: dict[str, list[float]] = {part: [] for part in sizes}
    for repeat in range(WARM_UP + chip.repeats):
        for part, weights in order:
            took = chip.once_s(partial(F.linear, given[part], weights))
            if repeat >= WARM_UP:
                times_s[part].append(took)
    for part, (inputs, outputs) in sizes.items():
        row = product(part, tokens, inputs, outputs, median(times_s[part]) * 1e6)
        beyond_fp16 = (WEIGHT_BYTES[chip.weights] - WEIGHT_BYTES["fp16"]) * inputs * outputs
        yield {**row, "size_bytes": row["size_bytes"] + beyond_fp16}


def _attention(chip: Chip, shape: NetworkShape, tokens: int) -> Iterator[Row]:
    model = spec("", shape)
    heads = Heads(shape.heads, model.kv_bytes_per_layer(), model.query_width)
    for context in CONTEXTS:
        q = chip.random(1, shape.heads, tokens, model.head_dim)
        k, v = (chip.random(1, shape.heads, context + tokens, model.head_dim) for _ in range(2))
        mask = torch.ones(tokens, context + tokens, dtype=torch.bool, device=chip.kind).tril(
            context
        )
        took = chip.time_us(
            lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=None if tokens == 1 else mask)
        )
        yield attention(
            "decode" if tokens == 1 else "window", Queries(1, tokens, context), heads, took
        )


def _small(chip: Chip, shape: NetworkShape, tokens: int) -> Row:
    """Norms, rotary positions, activation and residuals of a layer."""
    x, up = chip.random(1, tokens, shape.width), chip.random(1, tokens, 2 * shape.hidden)
    q = chip.random(1, shape.heads, tokens, shape.width // shape.heads)

    def work() -> object:
        for _ in range(2):
            F.rms_norm(x, x.shape[-1:])
            rotate(F.rms_norm(q, q.shape[-1:]), 0)
        gate, value = up.chunk(2, -1)
        return F.silu(gate) * value, x + x, x + x

    return small(tokens, shape.width, shape.hidden, 3 * shape.width, chip.time_us(work))


def passes(chip: Chip) -> Table:
    """Time whole passes of the three models behind the shortest context, head included."""
    rows, context = [], CONTEXTS[0]
    for name, shape in SHAPES.items():
        reader = Reader(Network(shape).to(chip.kind, chip.dtype))
        reader.extend([0] * context)
        for count in TOKENS:

            def work(reader: Reader = reader, count: int = count) -> None:
                reader.extend([0] * count)
                reader.keep(context)

            rows.append(
                {
                    "operation": "pass",
                    "part": chip.weights,
                    "model": name,
                    "layers": shape.layers,
                    "tokens": count,
                    "size_bytes": 4.0 * spec("", shape).weights,
                    "time_us": chip.time_us(work),
                }
            )
    return table(rows).assign(
        source=f"{chip.name}, torch {torch.__version__}, median of {chip.repeats}"
    )


def _echo(connection: Connection) -> None:
    while (message := connection.recv_bytes()) != b"":
        connection.send_bytes(message)


def messages(sizes: Iterable[int] = MESSAGES, repeats: int = 40) -> Table:
    """Time half a round trip to a process on the other core: a fork-join, by the wall, 10th
    percentile.
    """
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_echo, args=(there,), daemon=True)
    process.start()
    rows = []
    for size in sizes:
        message, halves_s = bytes(size), []
        for _ in range(repeats):
            begin = perf_counter()
            here.send_bytes(message)
            here.recv_bytes()
            halves_s.append((perf_counter() - begin) / 2)
        rows.append(
            {
                "operation": "transfer",
                "size_bytes": float(size),
                "time_us": float(np.percentile(halves_s, 10)) * 1e6,
            }
        )
    here.send_bytes(b"")
    process.join(10.0)
    return table(rows).assign(
        source=f"pipe between two processes, 10th percentile of {repeats} half round trips"
    )


class Profiles(NamedTuple):
    """Contents of the files, what was timed, and the error of predicted whole passes in per cent,
    by model.
    """

    device: dict[str, Any]
    engine: dict[str, Any]
    link: dict[str, Any]
    times: Table
    pass_percent: dict[str, float]


def measured(kind: str, tick: Callable[[str], None] = lambda what: None) -> Profiles:
    """Time everything and fit the profiles, pinned to one core; ``kind`` is cpu or cuda."""
    before, chip = os.sched_getaffinity(0), Chip(kind)
    torch.set_num_threads(1)
    try:
        os.sched_setaffinity(0, {min(before)})
        tick("operations")
        rows = operations(chip)
        square, logits = chip.random(PRODUCTS_ALONE, PRODUCTS_ALONE), chip.random(TARGET.vocabulary)
        peak_us, choice_us = (
            chip.time_us(lambda: square @ square),
            chip.time_us(lambda: int(logits.argmax())),
        )
        tick("passes")
        whole = passes(chip)
    finally:
        os.sched_setaffinity(0, before)
    tick("messages")
    carried = messages()
    tick("fitting")
    device = _device(chip, rows, 2.0 * PRODUCTS_ALONE**3 / peak_us * 1e-6)
    engine, errors = _engine(chip, validate(Device, Document(device, {})), whole, choice_us)
    times = table(
        [*rows.to_dict("records"), *whole.to_dict("records"), *carried.to_dict("records")]
    )
    return Profiles(device, engine, _link(carried), times, errors)


def _number(value: float, source: str) -> dict[str, Any]:
    return {
        "value": float(f"{value:.4g}"),
        "source": f"measured: {source}",
        "confidence": "measured",
    }


def _device(chip: Chip, rows: Table, peak_tflops: float) -> dict[str, Any]:
    """A fit to the operations; rates are the best that any of them reached, and not a
    datasheet's.
    """
    catalogue = Catalogue()
    like = catalogue.content("device", catalogue.names("device")[LIKE[chip.kind]])
    products = rows[rows.operation == "matmul"]
    reached = float((products.size_bytes / products.time_us).max()) * 1e-3
    peak = max(peak_tflops, float((products.flops / products.time_us).max()) * 1e-6)
    like.data |= {
        "about": (
            f"{chip.name}, found by `python -m benchmarks.live machine`, {chip.weights} "
            "weights; rates are those reached."
        ),
        "memory_bandwidth_gb_s": _number(
            reached, "the most bytes a second in any product, caches included"
        ),
        "peak_tflops": _number(peak, "the most in any product"),
    }
    if chip.kind == "cpu":
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        like.data["memory_gb"] = _number(installed, "as the system tells")
    like.data.pop("power_w", None)
    like.data["matmul"] = {"default": like.data["matmul"]["default"]}
    return profile.device(rows, like, validate(Device, like), left_out=False).data


def _engine(
    chip: Chip, device: Device, whole: Table, choice_us: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """What passes take beyond their operations, by layer and by pass; and the error of passes with
    it.
    """
    source = "passes of three models less their operations, non-negative least squares"
    made: dict[str, Any] = {
        "about": f"Plain PyTorch {torch.__version__} on {chip.name}, no graphs.",
        "launch": "asynchronous" if chip.kind == "cuda" else "synchronous",
        "host_us_per_layer": _number(0.0, source),
        "host_us_per_pass": _number(0.0, source),
        "small_operations_ratio": dict(DEFINED),
        "kv_traffic_ratio": dict(DEFINED),
        "sampling_us": _number(choice_us, "greedy choice from one row of 2,048 logits"),
    }
    layers, truth = whole.layers.to_numpy(float), whole.time_us.to_numpy(float)
    bare = _predicted_us(chip, device, validate(Engine, Document(made, {})), whole)
    beyond = truth if chip.kind == "cuda" else np.maximum(truth - bare, 0.0)
    per_layer, per_pass = nnls(
        np.stack((layers, np.ones_like(layers)), 1) / truth[:, None], beyond / truth
    )[0]
    made |= {
        "host_us_per_layer": _number(per_layer, source),
        "host_us_per_pass": _number(per_pass, source),
    }
    predicted = _predicted_us(chip, device, validate(Engine, Document(made, {})), whole)
    off = (
        whole.assign(percent=100.0 * np.abs(predicted / truth - 1.0))
        .groupby("model")
        .percent.mean()
    )
    return made, {str(name): float(percent) for name, percent in off.items()}


def _predicted_us(chip: Chip, device: Device, engine: Engine, whole: Table) -> np.ndarray:
    costs = {
        name: HardwareCost(
            Placement(model=spec(name, shape), device=device, engine=engine, weights=chip.weights)
        )
        for name, shape in SHAPES.items()
    }
    rows = [Rows.decode(int(count), CONTEXTS[0]) for count in whole.tokens]
    return np.array(
        [
            costs[name].target(pass_rows).wall_s * 1e6
            for name, pass_rows in zip(whole.model, rows, strict=True)
        ]
    )


def _link(carried: Table) -> dict[str, Any]:
    catalogue = Catalogue()
    like = catalogue.content("link", catalogue.names("link")["gloo_local"])
    largest = carried.loc[carried.size_bytes.idxmax()]
    rate = float(largest.size_bytes / largest.time_us) * 1e-3
    like.data |= {
        "about": "Two processes of this machine and a pipe between them.",
        "bandwidth_gb_s": _number(rate, f"messages of {largest.size_bytes:.0f} bytes"),
    }
    return profile.link(carried, like, validate(Link, like)).data
