"""Devices compute and links carry: here are the formulas for how long an operation, a transfer and a collective take.

A file in ``hardware_profiles/`` holds the numbers, each with its source. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, log
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from simulator.cost.collectives import AllReduce, AllToAll
from simulator.cost.formats import ACTIVATION_BYTES, FORMATS, Arithmetic, CacheFormat, NumberFormat
from simulator.files.schema import Fraction, Frozen, NonNegative, OneOrMore, Positive, Ranged
from simulator.numeric import elementwise_max

if TYPE_CHECKING:  # profiles are listed without numpy
    from numpy.random import Generator


class WidthPoint(Frozen):
    """A width point is a measurement: how much longer an operation takes over ``tokens`` rows than over one."""

    tokens: int = Field(gt=0)
    """Number of rows."""
    ratio: float = Field(gt=0)
    """Memory time, relative to that of one row."""
    fixed_ratio: float = Field(default=1.0, gt=0)
    """Constant part of the time, relative to that of one row."""


class Roofline(Frozen):
    """A roofline gives the time of one operation: ``fixed + ||(bytes / bandwidth, flops / peak)||_p``.

    ``p_norm`` says how sharp the knee is (large: a hard maximum). Kernels work in tiles: flops are those
    of the token count rounded up to the next of ``tile_tokens``, beyond the last to its multiples; this
    makes the steps after 64, 128 and 256 tokens. ``width`` multiplies the memory time by a measured
    ratio where a kernel reads its weights slower for several tokens than for one, and the constant by
    a second ratio where wide tiles leave a small matrix to few multiprocessors.
    """

    fixed_us: NonNegative
    """Constant part of the time, in us, whatever the size."""
    memory_efficiency: Fraction
    """Share of the datasheet's bandwidth that the operation reaches."""
    compute_efficiency: Fraction
    """Share of the datasheet's peak that the operation reaches."""
    p_norm: OneOrMore
    """How sharp the knee is between memory and compute time; large: a hard maximum."""
    tile_tokens: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1,), min_length=1)
    """Token counts to which rows are rounded up; beyond the last, its multiples."""
    least_tile_tokens: Annotated[int, Field(ge=1)] | None = None
    """Fewest rows multiplied at once: up to the first tile, rows are rounded to it, its double, ...; by default to the tile."""
    width: tuple[WidthPoint, ...] = ()
    """Measured ratios of the memory time, by number of tokens."""
    width_source: str = ""
    """Where the ratios of ``width`` come from."""

    @model_validator(mode="after")
    def _ascending(self) -> Roofline:
        tokens = [point.tokens for point in self.width]
        if tokens != sorted(set(tokens)) or list(self.tile_tokens) != sorted(set(self.tile_tokens)):
            raise ValueError("tile_tokens and the tokens of width must ascend")
        if self.width and not self.width_source:
            raise ValueError("a width table needs its width_source")
        return self

    def tiled(self, tokens: float) -> float:
        """Return the rows whose flops ``tokens`` take: whole tiles, but up to the first one the least tile doubled."""
        if self.least_tile_tokens is None or tokens > self.tile_tokens[0]:
            return self._whole(tokens)
        rows = self.least_tile_tokens
        while rows < tokens:
            rows *= 2
        return min(rows, self.tile_tokens[0])

    def _whole(self, tokens: float) -> float:
        for tile in self.tile_tokens:
            if tokens <= tile:
                return tile
        return ceil(tokens / self.tile_tokens[-1]) * self.tile_tokens[-1]

    def filled(self, tokens: float) -> float:
        """Return the most tokens that take no more tiles than ``tokens``.

        The end of a tile that a width table passes smoothly does not count.
        """
        steps = {before.tokens for before, after in pairwise(self.width) if after.tokens == before.tokens + 1}
        end = self._whole(tokens)
        while self.width and end < self.width[-1].tokens and end not in steps:
            end = self._whole(end + 1)
        return end

    def width_ratios(self, tokens: float) -> tuple[float, float]:
        """Return the measured ratios of memory time and constant at ``tokens``: linear between points, flat outside."""
        if not self.width:
            return 1.0, 1.0
        below = self.width[0]
        for point in self.width:
            if tokens <= point.tokens:
                span = point.tokens - below.tokens
                share = (tokens - below.tokens) / span if span and tokens > below.tokens else 1.0
                ratio = below.ratio + share * (point.ratio - below.ratio)
                return ratio, below.fixed_ratio + share * (point.fixed_ratio - below.fixed_ratio)
            below = point
        return below.ratio, below.fixed_ratio


class DecodeRoofline(Roofline):
    """Attention of few query rows a sequence; beside bytes and flops, each KV head of a sequence takes a while of its own."""

    head_us: NonNegative = NonNegative(value=0.0, source="assumed: not told apart")
    """Time of one KV head of one sequence whatever is cached, over all multiprocessors, in us; a term of the norm."""


class ExpertRoofline(Roofline):
    """The experts of one layer in one call: rows sorted by expert, two grouped products, and the sum over a row's experts.

    ``tile_tokens`` are rows of one expert; an expert with fewer, down to a single one, takes a whole tile. What an expert and
    the widths take comes on top of the norm.
    """

    expert_us: NonNegative
    """Time of each expert that is read, whatever its size, in us."""
    width_us: NonNegative
    """Time of 1,024 elements over which the two products sum one after the other (hidden, and inside an expert), in us."""
    pair_traffic_ratio: NonNegative
    """Bytes that a row moves for each of its experts, relative to inputs and outputs of both products in 16 bits."""

    def pair_bytes(self, pairs: Any, width: Any) -> Any:
        """Return the bytes that ``pairs`` of a row and an expert move; ``width``: hidden and expert's width together."""
        return self.pair_traffic_ratio.value * pairs * 2.0 * width * ACTIVATION_BYTES

    def beside_s(self, experts: Any, width: Any) -> Any:
        """Return the seconds beside those of bytes and flops."""
        return (self.expert_us.value * experts + self.width_us.value * width / 1024.0) * 1e-6


class AttentionParts(Frozen):
    """Attention as it is served: over a cache by one query row a sequence, and of whole prompts or chunks of them."""

    decode: DecodeRoofline
    """Attention of one query row a sequence, over keys and values of the cache."""
    prefill: Roofline
    """Attention of many query rows a sequence; it also moves queries and outputs."""


class Attention(AttentionParts):
    """Attention in parts, and what a verification takes, which lies between them: few rows over a cache that is read once."""

    extra_row: Ranged = Ranged(
        value=0.02,
        low=0.0,
        high=0.1,
        source="assumed: the cache is read once for all rows; up to 1.7 times decode for 8 rows where kernels do not pack them",
    )
    """Time of each further query row of a sequence (verification: 2 to 32 rows), relative to decode of the first."""
    kv_cache: dict[CacheFormat, AttentionParts] = Field(default={})
    """Parts for caches whose kernels differ, by format of the cache; others take those above, with their own bytes."""

    def over(self, cache: CacheFormat) -> AttentionParts:
        """Return the parts for a cache of this format."""
        return self.kv_cache.get(cache, self)


def _in_parts(given: object) -> str:
    in_parts = isinstance(given, Attention) or (isinstance(given, dict) and ("decode" in given or "prefill" in given))
    return "parts" if in_parts else "one roofline"


class Device(Frozen):
    """A device is hardware that computes."""

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the device is, in a sentence."""
    maker: str = ""
    """Who makes it; devices are listed by maker and age."""
    year: int | None = Field(default=None, ge=1990, le=2100)
    """The year in which it came out."""
    kind: Literal["gpu", "npu", "cpu"]
    """Sort of processor."""
    memory_gb: Positive
    """Memory, in 1e9 bytes."""
    memory_bandwidth_gb_s: Positive
    """Memory bandwidth of the datasheet, in 1e9 bytes a second; operations reach a share of it."""
    peak_tflops: Positive
    """Dense peak of the datasheet in 16 bits, in 1e12 flops a second; operations reach a share of it."""
    peaks_tflops: dict[Arithmetic, Positive] = Field(default={})
    """Dense peaks of its other arithmetic, in 1e12 operations a second; where none is stated, all is computed in 16 bits."""
    cache_mb: Positive | None = None
    """Last-level cache that weights can stay in from pass to pass, in 1e6 bytes."""
    cache_bandwidth_gb_s: Positive | None = None
    """Bandwidth at which products read weights from that cache, in 1e9 bytes a second."""
    matmul: dict[str, Roofline]
    """Rooflines of matrix products: ``default``, and weight formats whose kernels differ; shares are of the format's peak."""
    attention: Annotated[
        Annotated[Roofline, Tag("one roofline")] | Annotated[Attention, Tag("parts")], Discriminator(_in_parts)
    ]
    """Attention over cached tokens: one roofline, or ``decode`` and ``prefill``."""
    experts: dict[str, ExpertRoofline] = Field(default={})
    """Rooflines of a mixture's experts: ``default``, and weight formats whose kernels differ; without any, that of products."""
    small_operations: Roofline
    """Roofline of norms, activations and rotations."""
    spread: Positive | None = None
    """Standard deviation of a layer's measured time relative to the formula's, over points that were left out of the fit."""
    price_usd_per_hour: Positive | None = None
    """Price of one device, in US dollars an hour, for plans and costs per token."""
    power_w: Positive | None = None
    """Power of the datasheet, in watts, for energy."""

    @model_validator(mode="after")
    def _has_default(self) -> Device:
        if "default" not in self.matmul:
            raise ValueError("matmul needs an entry 'default'; others are named after weight formats")
        return self

    def seconds(self, operation: Roofline, size_bytes: float, flops: float, tokens: float) -> float:
        """Return the seconds of one operation that moves ``size_bytes`` and does ``flops`` on ``tokens`` rows."""
        seconds: float = self.timer(operation)(size_bytes, flops, tokens)
        return seconds

    def number_format(self, weights: str) -> NumberFormat:
        """Return how products with weights of this format are computed here.

        A device that states no other peak computes everything in 16 bits. Raises :class:`ValueError` for arithmetic that the
        device does not have.
        """
        form = FORMATS[weights]
        if form.arithmetic in ("fp16", *self.peaks_tflops):
            return form
        if not self.peaks_tflops:
            return form.weight_only
        has = ", ".join(("fp16", *self.peaks_tflops))
        instead = f"{weights.partition('_')[0]}_wo"
        raise ValueError(
            f"{self.name or 'the device'} has no {form.arithmetic} arithmetic; it has {has}. "
            f"{instead} stores weights in this format and computes in 16 bits, as engines do on such a device"
        )

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the names of the weight formats that the device computes as they are."""
        return tuple(name for name, form in FORMATS.items() if form.arithmetic in ("fp16", *self.peaks_tflops))

    def timer(self, operation: Roofline, arithmetic: Arithmetic = "fp16", cached: bool = False) -> Callable[..., Any]:
        """Return a function (bytes, flops, tokens) to the seconds of one operation; bytes and flops may be arrays.

        That of decode attention also takes the KV heads of all sequences. ``cached``: the bytes are in the cache, if the
        device has one.
        """
        bandwidth = operation.memory_efficiency.value * self.memory_bandwidth_gb_s.value * 1e9
        if cached and self.cache_bandwidth_gb_s is not None:
            bandwidth = self.cache_bandwidth_gb_s.value * 1e9
        peak = operation.compute_efficiency.value * self.peaks_tflops.get(arithmetic, self.peak_tflops).value * 1e12
        constant, p = operation.fixed_us.value * 1e-6, operation.p_norm.value
        per_head = operation.head_us.value * 1e-6 if isinstance(operation, DecodeRoofline) else 0.0

        def seconds(size_bytes: Any, flops: Any, tokens: float, heads: float = 0.0) -> Any:
            memory_ratio, fixed_ratio = operation.width_ratios(tokens)
            memory, fixed = size_bytes / bandwidth * memory_ratio, constant * fixed_ratio
            compute = flops * (operation.tiled(tokens) / tokens if tokens else 1.0) / peak
            largest = elementwise_max(memory, compute)
            if heads and per_head:
                waiting = heads * per_head
                largest = elementwise_max(largest, waiting)
                norm = (memory / largest) ** p + (compute / largest) ** p + (waiting / largest) ** p
                return fixed + largest * norm ** (1.0 / p)
            if isinstance(largest, float) and not largest:
                return fixed
            return fixed + largest * ((memory / largest) ** p + (compute / largest) ** p) ** (1.0 / p)

        return seconds

    def matmul_for(self, weight_format: str) -> Roofline:
        """Return the roofline of matrix products with weights of this format, of the nearest one, or the default roofline."""
        names = (weight_format, *FORMATS[weight_format].curves)
        return next((self.matmul[name] for name in names if name in self.matmul), self.matmul["default"])

    def experts_for(self, weight_format: str) -> ExpertRoofline | None:
        """Return the roofline of experts with weights of this format, of the nearest one, or the default; None without any."""
        names = (weight_format, *FORMATS[weight_format].curves, "default")
        return next((self.experts[name] for name in names if name in self.experts), None)

    def lacks_experts(self, weight_format: str) -> bool:
        """Return whether experts in this format, not of 16 bits, take a roofline that was fitted to another one."""
        form = FORMATS[weight_format]
        return form.weight_bytes != ACTIVATION_BYTES and not {weight_format, *form.curves} & set(self.experts)

    def lacks(self, weight_format: str) -> bool:
        """Return whether products with weights of this format take the default roofline, as none was fitted to them."""
        return not {weight_format, *FORMATS[weight_format].curves} & set(self.matmul)


class ExponentialJitter(Frozen):
    """Exponential jitter adds a memoryless time to a transfer; its standard deviation is its mean."""

    name: Literal["exponential"] = "exponential"
    mean_us: NonNegative
    """Mean of the added time, in us."""

    def draw_us(self, random: Generator) -> float:
        """Return the time that is added to one transfer, in us."""
        return random.exponential(self.mean_us.value)


class LogNormalJitter(Frozen):
    """Log-normal jitter adds a time to a transfer, with a tail of any length."""

    name: Literal["lognormal"] = "lognormal"
    mean_us: NonNegative
    """Mean of the added time, in us."""
    spread: Positive
    """Standard deviation of the added time, relative to its mean."""

    def draw_us(self, random: Generator) -> float:
        """Return the time that is added to one transfer, in us."""
        variance = log(1.0 + self.spread.value**2)
        return float(self.mean_us.value * random.lognormal(-variance / 2, variance**0.5))


Jitter = Annotated[ExponentialJitter | LogNormalJitter, Field(discriminator="name")]


class Link(Frozen):
    """A link is hardware that carries; ``jitter`` is added to every transfer."""

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the link is, in a sentence."""
    latency_us: NonNegative
    """Latency of every transfer, in us."""
    bandwidth_gb_s: Positive
    """Bandwidth in one direction, in 1e9 bytes a second."""
    jitter: Jitter | None = None
    """Time that is added to every transfer, drawn anew for each of them."""
    all_reduce: AllReduce = AllReduce()
    """Times of all-reduces, by form."""
    all_to_all: AllToAll | None = None
    """Times of sending rows to their experts and back."""

    def transfer_seconds(self, size_bytes: float, random: Generator | None = None) -> float:
        """Return the seconds to carry ``size_bytes`` over the link; its jitter is drawn from ``random``, else at its mean."""
        seconds = self.latency_us.value * 1e-6 + size_bytes / (self.bandwidth_gb_s.value * 1e9)
        if self.jitter is None:
            return seconds
        return seconds + (self.jitter.mean_us.value if random is None else self.jitter.draw_us(random)) * 1e-6
