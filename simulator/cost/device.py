"""Devices and links: how long an operation, a transfer and a collective take.

All of hardware in two nouns. A file in ``hardware_profiles/`` holds the numbers, each with its source;
here stand the formulas. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, log, log2
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from simulator.files.schema import Fraction, Frozen, NonNegative, OneOrMore, Positive
from simulator.numeric import elementwise_max

if TYPE_CHECKING:  # profiles are listed without numpy
    from numpy.random import Generator


class WidthPoint(Frozen):
    """Measured: over ``tokens``, the memory time is ``ratio`` times that of one token, the constant ``fixed_ratio`` times."""

    tokens: int = Field(gt=0)
    """How many rows."""
    ratio: float = Field(gt=0)
    """Memory time over that of one row."""
    fixed_ratio: float = Field(default=1.0, gt=0)
    """Constant over that of one row."""


class Roofline(Frozen):
    """Time of one operation: ``fixed + ||(bytes / bandwidth, flops / peak)||_p``.

    ``p_norm`` says how sharp the knee is (large: a hard maximum). Kernels work in tiles: flops are those
    of the token count rounded up to the next of ``tile_tokens``, beyond the last to its multiples; this
    makes the steps after 64, 128 and 256 tokens. ``width`` multiplies the memory time by a measured
    ratio where a kernel reads its weights slower for several tokens than for one, and the constant by
    another where wide tiles leave a small matrix to few multiprocessors.
    """

    fixed_us: NonNegative
    """Whatever the size."""
    memory_efficiency: Fraction
    """Share of the datasheet's bandwidth that is reached."""
    compute_efficiency: Fraction
    """Share of the datasheet's peak that is reached."""
    p_norm: OneOrMore
    """How sharp the knee is; large: a hard maximum."""
    tile_tokens: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1,), min_length=1)
    """Token counts to which rows are filled up; beyond the last, its multiples."""
    width: tuple[WidthPoint, ...] = ()
    """Measured ratios of the memory time by number of tokens."""
    width_source: str = ""
    """Where those come from."""

    @model_validator(mode="after")
    def _ascending(self) -> Roofline:
        tokens = [point.tokens for point in self.width]
        if tokens != sorted(set(tokens)) or list(self.tile_tokens) != sorted(set(self.tile_tokens)):
            raise ValueError("tile_tokens and the tokens of width must ascend")
        if self.width and not self.width_source:
            raise ValueError("a width table needs its width_source")
        return self

    def tiled(self, tokens: float) -> float:
        """``tokens`` rounded up to whole tiles."""
        for tile in self.tile_tokens:
            if tokens <= tile:
                return tile
        return ceil(tokens / self.tile_tokens[-1]) * self.tile_tokens[-1]

    def filled(self, tokens: float) -> float:
        """``tokens`` filled up to where one more opens another tile; an end of a tile that a table passes smoothly is none."""
        steps = {before.tokens for before, after in pairwise(self.width) if after.tokens == before.tokens + 1}
        end = self.tiled(tokens)
        while self.width and end < self.width[-1].tokens and end not in steps:
            end = self.tiled(end + 1)
        return end

    def width_ratios(self, tokens: float) -> tuple[float, float]:
        """Measured slowdown of memory time and constant at ``tokens``, linear between points, flat outside."""
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


class Device(Frozen):
    """Hardware that computes."""

    name: str = ""
    """The file's name."""
    about: str = ""
    """What it is, in a sentence."""
    kind: Literal["gpu", "npu", "cpu"]
    """What sort of processor."""
    memory_gb: Positive
    """Room, in 1e9 bytes."""
    memory_bandwidth_gb_s: Positive
    """Of the datasheet; what operations reach is their efficiency."""
    peak_tflops: Positive
    """Of the datasheet, dense; likewise."""
    matmul: dict[str, Roofline]
    """Matrix products: ``default``, and formats of weights whose kernels differ."""
    attention: Roofline
    """Attention over cached tokens."""
    small_operations: Roofline
    """Norms, activations, rotations."""
    spread: Positive | None = None
    """Standard deviation of a layer's time over the formula's, where something was left out of the fit to see it."""
    price_usd_per_hour: Positive | None = None
    """Of one, for plans and bills."""
    power_w: Positive | None = None
    """Of the datasheet, for energy."""

    @model_validator(mode="after")
    def _has_default(self) -> Device:
        if "default" not in self.matmul:
            raise ValueError("matmul needs an entry 'default'; others are named after weight formats")
        return self

    def seconds(self, operation: Roofline, size_bytes: float, flops: float, tokens: float) -> float:
        """Time of one operation that moves ``size_bytes`` and does ``flops`` on ``tokens`` rows."""
        taken: float = self.timer(operation)(size_bytes, flops, tokens)
        return taken

    def timer(self, operation: Roofline) -> Callable[[Any, Any, float], Any]:
        """``seconds`` of one operation, for who asks often; bytes and flops may be arrays."""
        bandwidth = operation.memory_efficiency.value * self.memory_bandwidth_gb_s.value * 1e9
        peak = operation.compute_efficiency.value * self.peak_tflops.value * 1e12
        constant, p = operation.fixed_us.value * 1e-6, operation.p_norm.value

        def seconds(size_bytes: Any, flops: Any, tokens: float) -> Any:
            memory_ratio, fixed_ratio = operation.width_ratios(tokens)
            memory, fixed = size_bytes / bandwidth * memory_ratio, constant * fixed_ratio
            compute = flops * (operation.tiled(tokens) / tokens if tokens else 1.0) / peak
            largest = elementwise_max(memory, compute)
            if isinstance(largest, float) and not largest:
                return fixed
            return fixed + largest * ((memory / largest) ** p + (compute / largest) ** p) ** (1.0 / p)

        return seconds

    def matmul_for(self, weight_format: str) -> Roofline:
        """The matrix-product roofline of a weight format, or the default one."""
        return self.matmul.get(weight_format, self.matmul["default"])


class TreeAllReduce(Frozen):
    """Mirror-SD App. C: ``alpha log G + beta M`` with M the *shard* of one rank (B S H / G elements).

    The paper does not print the base of the logarithm; 2 (a tree) is assumed.
    """

    alpha_us: NonNegative
    """Of every level of the tree."""
    bandwidth_gb_s: Positive
    """Over the shard of one rank."""
    log_base: Literal["2", "e"] = "2"
    """Of the number of levels."""

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Time to sum an activation of ``size_bytes`` over ``ranks``; one rank costs nothing."""
        if ranks == 1:
            return 0.0
        return self.alpha_us.value * 1e-6 * (log2(ranks) if self.log_base == "2" else log(ranks)) + size_bytes / ranks / (
            self.bandwidth_gb_s.value * 1e9
        )


class RingAllReduce(Frozen):
    """As NCCL measures: ``fixed + 2 (G-1)/G * bytes / bandwidth`` over the whole activation."""

    fixed_us: NonNegative
    """Whatever the size."""
    bandwidth_gb_s: Positive
    """Over the whole activation, twice (G - 1) / G."""

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Time to sum an activation of ``size_bytes`` over ``ranks``; one rank costs nothing."""
        if ranks == 1:
            return 0.0
        return self.fixed_us.value * 1e-6 + 2.0 * (ranks - 1) / ranks * size_bytes / (self.bandwidth_gb_s.value * 1e9)


class AllReduce(Frozen):
    """The forms in which a link knows the time of a collective; a scenario chooses one."""

    tree: TreeAllReduce | None = None
    """Mirror-SD's form."""
    ring: RingAllReduce | None = None
    """NCCL's form."""


class ExponentialJitter(Frozen):
    """What a transfer takes longer, memoryless: its standard deviation is its mean."""

    name: Literal["exponential"] = "exponential"
    mean_us: NonNegative
    """On average."""

    def draw_us(self, random: Generator) -> float:
        """One transfer's."""
        return random.exponential(self.mean_us.value)


class LogNormalJitter(Frozen):
    """What a transfer takes longer, with a tail to choose: ``spread`` is the standard deviation over the mean."""

    name: Literal["lognormal"] = "lognormal"
    mean_us: NonNegative
    """On average."""
    spread: Positive
    """Standard deviation over mean."""

    def draw_us(self, random: Generator) -> float:
        """One transfer's."""
        variance = log(1.0 + self.spread.value**2)
        return float(self.mean_us.value * random.lognormal(-variance / 2, variance**0.5))


Jitter = Annotated[ExponentialJitter | LogNormalJitter, Field(discriminator="name")]


class Link(Frozen):
    """Hardware that carries; ``jitter`` comes on top of every transfer."""

    name: str = ""
    """The file's name."""
    about: str = ""
    """What it is, in a sentence."""
    latency_us: NonNegative
    """Of every transfer."""
    bandwidth_gb_s: Positive
    """One way."""
    jitter: Jitter | None = None
    """What comes on top, drawn for every transfer."""
    all_reduce: AllReduce = AllReduce()
    """Times of collectives, by form."""

    def transfer_seconds(self, size_bytes: float, random: Generator | None = None) -> float:
        """Time to carry ``size_bytes`` from one end to the other; jitter at its mean, or drawn where ``random`` is given."""
        seconds = self.latency_us.value * 1e-6 + size_bytes / (self.bandwidth_gb_s.value * 1e9)
        if self.jitter is None:
            return seconds
        return seconds + (self.jitter.mean_us.value if random is None else self.jitter.draw_us(random)) * 1e-6
