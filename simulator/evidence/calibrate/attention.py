"""Attention with the least error on measured times: one roofline, or decode and prefill, each
fitted to its own rows.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from simulator.core.cost.device import Device
from simulator.core.cost.formats import ACTIVATION_BYTES, CACHE_BYTES
from simulator.core.cost.roofline import AttentionParts, AttentionRoofline, Roofline
from simulator.evidence.calibrate.fit import BOUNDS, measured, nearest, roofline, sample
from simulator.evidence.calibrate.measurements import Table

START = (10.0, 0.8, 0.5, 5.0)
DECODE = {"fixed_us": (10.0, 0.0, 60.0), "regroup_us": (1.0, 0.0, 60.0)}
PREFILL = {
    "fixed_us": (12.0, 0.0, 300.0),
    "compute_efficiency": (0.6, 0.02, 1.0),
    "cached_ratio": (1.5, 1.0, 50.0),
}
BOTH = {
    "memory_efficiency": (0.7, 0.02, 1.0),
    "p_norm": (1.5, 1.0, 50.0),
    "head_us": (0.02, 0.0, 2.0),
    "key_us": (0.01, 0.0, 0.5),
    "reduction_us": (1.0, 0.0, 60.0),
}
"""Start and bounds of the numbers of a part."""
FEW = 171
"""Rows of attention that weigh in a fit, by part and shape, so that no large set outweighs a small
one.
"""


def evenly(rows: Table) -> Table:
    """Return at most ``FEW`` rows of each part and shape, evenly spaced in the table."""
    kept = []
    for _, part in rows.groupby(["part", "shape"]):
        every = ceil(len(part) / FEW)
        kept.append(part.index[::every])
    return rows.loc[np.concatenate(kept)]


def one_roofline(device: Device, rows: Table, like: Roofline) -> Roofline:
    """Return one roofline of decode and prefill attention, each part and shape weighing the same.

    Where keys and values never took a share of the time worth fitting to (:func:`bound_by_memory`),
    the memory side and the knee stay those of ``like``.
    """
    if bound_by_memory(device, rows):
        return nearest(roofline, device, evenly(rows), START, BOUNDS)
    memory = like.memory_efficiency.value
    p = like.p_norm.value
    bounds = ((0.0, 0.02), (60.0, 1.0))

    def made(numbers: Sequence[float]) -> Roofline:
        fixed, compute = numbers
        return roofline((fixed, memory, compute, p))

    return nearest(made, device, sample(rows), (6.0, 0.5), bounds)


def bound_by_memory(device: Device, rows: Table) -> bool:
    """Return whether reading keys and values at the datasheet's bandwidth takes a fifth of the
    measured time of any row.
    """
    reads = rows.size_bytes / (device.memory_bandwidth_gb_s.value * 1e9)
    return bool((reads >= 0.2 * measured(rows)).any())


def with_queries(rows: Table) -> Table:
    """Return rows of attention as those of attention in parts take them: bytes with queries and
    outputs, and thread blocks.

    New columns, of every sequence: its query ``rows``, ``keys`` that the last of them sees,
    ``queries`` of a KV head.
    """
    width = rows.query_width
    unstated = rows.tokens.where(rows.part == "decode", 1.0)
    sequences = rows.sequences.where(rows.sequences > 0.0, unstated)
    each = rows.tokens / sequences
    heads = rows.kv_heads.clip(lower=1.0)
    mean_keys = rows.flops / (4.0 * rows.tokens * width.clip(lower=1.0)) * (width > 0.0)
    keys = (mean_keys + (each - 1.0) / 2.0).where(rows["keys"] <= 0.0, rows["keys"])
    head_bytes = rows.size_bytes / (sequences * heads * keys.clip(lower=1.0))
    queries = 2.0 * width * rows.format.map(CACHE_BYTES) / (heads * head_bytes)
    activations = 2.0 * ACTIVATION_BYTES * rows.tokens * width
    return rows.assign(
        size_bytes=rows.size_bytes + activations,
        sequences=sequences,
        rows=each,
        keys=keys,
        queries=queries.round(),
    )


def uncached(device: Device, rows: Table) -> Table:
    """Return the rows of attention without those whose cached tokens the device's cache serves when
    a call is repeated.

    In a model, other layers push them out. Decode stays where twice the cache does not hold its
    keys and values, or where reading them at the datasheet's rate takes less than a fifth of the
    time; a prompt has just written its own.
    """
    if device.cache_mb is None:
        return rows
    beyond = rows.size_bytes > 2e6 * device.cache_mb.value
    reads = rows.size_bytes / (device.memory_bandwidth_gb_s.value * 1e9)
    minor = reads < 0.2 * measured(rows)
    return rows[beyond | minor | (rows.part == "prefill")]


def in_parts(device: Device, rows: Table, like: AttentionParts) -> AttentionParts:
    """Return decode and prefill, each fitted to its own rows; a part without rows is that of
    ``like``.

    Decode takes the compute efficiency of prefill, as it does too few flops to tell one, or over
    latents, which all heads share, at most that. Which caches kernels cut, and whether they pack
    heads, is known of them and as in ``like``.
    """
    latent = bool((rows.operation == "latent_attention").all())
    rows = evenly(with_queries(uncached(device, rows)))
    prefill = like.prefill
    decode = like.decode
    wide = rows[rows.part == "prefill"]
    narrow = rows[rows.part == "decode"]
    if len(wide):
        prefill = _fitted(device, wide, prefill, PREFILL | BOTH)
    if len(narrow):
        most = prefill.compute_efficiency
        known = decode.model_copy(update={"compute_efficiency": most})
        limits = DECODE | BOTH
        if latent:
            limits["compute_efficiency"] = (most.value, 0.02, most.value)
        decode = _fitted(device, narrow, known, limits)
    return AttentionParts(decode=decode, prefill=prefill)


def _fitted(
    device: Device, rows: Table, like: AttentionRoofline, limits: Mapping[str, Sequence[float]]
) -> AttentionRoofline:
    """Return a part with the numbers that rows can tell: no reduction where caches stay whole, no
    cache that is not stated.
    """
    free = dict(limits)
    if like.splits == "none":
        free.pop("reduction_us", None)
    if device.cache_mb is None:
        free.pop("cached_ratio", None)
    if (rows.kv_heads <= 1.0).all():
        free.pop("regroup_us", None)
    kept = like.model_dump(include={"compute_efficiency", "splits", "packs", "tile_rows"})

    def made(x: Sequence[float]) -> AttentionRoofline:
        return AttentionRoofline.model_validate(kept | dict(zip(free, x, strict=True)))

    start, low, high = zip(*free.values(), strict=True)
    return nearest(made, device, rows, start, (low, high))
