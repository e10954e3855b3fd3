"""A device from whole passes, as llama-bench tells them: one constant per layer, an efficiency and
widths by weight format.

Two formats of one model at one token give two equations for the constant and a memory efficiency
common to both. The constant then leaves each format an efficiency of its own, and each wider pass a
ratio of memory times. Every number comes from one cell and is exact there; nothing is left to hold
it against.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple

from simulator.core.cost.device import Device
from simulator.core.plain import PlainData
from simulator.evidence.calibrate.fit import DIGITS
from simulator.evidence.calibrate.measurements import Table, unfit
from simulator.inputs.document import Document

PROMPT_TOKENS = 512
"""From here on a pass is bound by compute and says how fast that is."""


class FormatFit(NamedTuple):
    """The fit of one weight format: efficiencies, and ratios of memory times by width."""

    memory_efficiency: float
    compute_efficiency: float | None
    """None where no wide pass was measured."""
    width: tuple[tuple[int, float], ...]
    """Tokens and the ratio of memory times."""
    source: str


class PassFit(NamedTuple):
    """The fit of a device: its constant in microseconds per layer, and its weight formats by
    name.
    """

    us_per_layer: float
    formats: Mapping[str, FormatFit]


def fit(device: Device, rows: Table) -> PassFit:
    """Return the constant and the formats from rows with operation ``pass``, whose ``part`` is the
    weight format.

    Raises :class:`BadInput` unless every format was timed at one token, and two of them on one
    model, and where the device would have to be faster than its datasheet.
    """
    rows = rows[rows.operation == "pass"]
    single = rows[rows.tokens == 1].drop_duplicates(["model", "part"]).sort_values("size_bytes")
    missing = sorted({*rows.part} - {*single.part})
    if missing or rows.empty:
        raise unfit(f"hold no pass of one token for {', '.join(missing) or 'any weight format'}")
    pairs = [formats for _, formats in single.groupby("model") if len(formats) > 1]
    if not pairs:
        raise unfit(
            "hold no model in two weight formats, which tell the constant of a layer from the "
            "time of its weights"
        )
    least = pairs[0].iloc[0]
    most = pairs[0].iloc[-1]
    if most.size_bytes == least.size_bytes:
        raise unfit(
            "hold two weight formats of one size, which do not tell how long their bytes take",
            "size_bytes",
        )
    us_per_byte = (most.time_us - least.time_us) / (most.size_bytes - least.size_bytes)
    us_per_layer = _rounded((least.time_us - least.size_bytes * us_per_byte) / least.layers)
    if not us_per_layer >= 0.0:
        raise unfit(
            f"say {us_per_layer:g} us per layer of {least.model or 'the model'}; expected 0 or "
            "more",
            "time_us",
        )
    formats = {}
    for name, passes in rows.groupby("part"):
        formats[str(name)] = _format(device, passes, us_per_layer)
    return PassFit(us_per_layer, formats)


def _format(device: Device, passes: Table, us_per_layer: float) -> FormatFit:
    passes = passes.sort_values("tokens")
    single = passes.iloc[0]
    constant = us_per_layer * single.layers
    memory = single.time_us - constant
    efficiency = single.size_bytes / memory / (device.memory_bandwidth_gb_s.value * 1e3)
    narrow = passes[passes.tokens < PROMPT_TOKENS]
    wide = passes[passes.tokens >= PROMPT_TOKENS]
    width = tuple(
        (int(row.tokens), round(float(row.time_us - constant) / float(memory), 3))
        for row in narrow.itertuples()
    )
    busy = (wide.time_us - constant) * device.peak_tflops.value * 1e6
    if len(wide):
        compute = _rounded(float((wide.flops / busy).mean()))
    else:
        compute = None
    for value, rate in ((efficiency, "bandwidth"), (compute, "peak")):
        if value is not None and not 0.0 < value <= 1.0:
            raise unfit(
                f"say {value:.3g} of the datasheet's {rate} for {single.part}; expected above 0 "
                "and at most 1"
            )
    return FormatFit(_rounded(efficiency), compute, width, "; ".join(passes.source.unique()))


def written(device: PassFit, like: Document) -> PlainData:
    """Return the content of ``like`` with the fit put in; fp16 is the default format. What no pass
    measured stays.
    """
    data: PlainData = deepcopy(like.data)
    sources = "; ".join(sorted({weights.source for weights in device.formats.values()}))
    data["small_operations"]["fixed_us"] = _calibrated(
        device.us_per_layer, f"{sources}; per layer, all but its weights"
    )
    for name, weights in device.formats.items():
        entry = "default" if name == "fp16" else name
        section = {**data["matmul"]["default"], **data["matmul"].get(entry, {})}
        section["memory_efficiency"] = _calibrated(
            weights.memory_efficiency, f"{weights.source}; one token, exact"
        )
        if weights.compute_efficiency is not None:
            source = f"{weights.source}; {PROMPT_TOKENS} tokens, exact"
            section["compute_efficiency"] = _calibrated(weights.compute_efficiency, source)
        section["width"] = [{"tokens": tokens, "ratio": ratio} for tokens, ratio in weights.width]
        section["width_source"] = (
            f"calibrated-on: {weights.source}; time less {device.us_per_layer:g} us per layer, "
            "over one token"
        )
        data["matmul"][entry] = section
    return data


def _calibrated(value: float, source: str) -> PlainData:
    return {"value": value, "source": f"calibrated-on: {source}", "confidence": "calibrated"}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
