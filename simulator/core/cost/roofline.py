"""Rooflines give the time of one operation by its bytes and flops; here are those of products,
attention and experts.

A file in ``hardware_profiles/devices/`` holds the numbers, each with its source. Times are in
seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from simulator.core.cost.formats import ACTIVATION_BYTES, CacheFormat
from simulator.core.numeric import Numbers, elementwise_max, elementwise_min, occurs, root
from simulator.core.quantities import Fraction, Frozen, NonNegative, OneOrMore, Positive, Ranged

TILE_OUTPUTS = 128
"""Outputs of a thread block of a product (CUTLASS and cuBLAS on Hopper and Blackwell)."""


class WidthPoint(Frozen):
    """A width point is a measurement: how much longer an operation takes over ``tokens`` rows than
    over one.
    """

    tokens: int = Field(gt=0, le=1_000_000_000)
    """Number of rows."""
    ratio: float = Field(gt=0)
    """Memory time, relative to that of one row."""
    fixed_ratio: float = Field(default=1.0, gt=0)
    """Constant part of the time, relative to that of one row."""


class Roofline(Frozen):
    """A roofline gives the time of one operation: ``fixed + ||(bytes / bandwidth, flops /
    peak)||_p``.

    ``p_norm`` says how sharp the knee is (large: a hard maximum). Kernels work in tiles: flops are
    those of the token count rounded up to the next of ``tile_tokens``, beyond the last to its
    multiples, or to those of ``tile_step_tokens``; this makes the steps after 64, 128 and 256
    tokens. ``width`` multiplies the memory time by a measured ratio where a kernel reads its
    weights slower for several tokens than for one, and the constant by a second ratio where wide
    tiles leave a small matrix to few multiprocessors. With ``depth_us`` the norm also holds the
    time in which the thread blocks of a product, each a tile of outputs, pass its inputs.
    """

    fixed_us: NonNegative
    """Constant part of the time, in us, whatever the size."""
    memory_efficiency: Fraction
    """Share of the datasheet's bandwidth that the operation reaches."""
    compute_efficiency: Fraction
    """Share of the datasheet's peak that the operation reaches."""
    p_norm: OneOrMore
    """How sharp the knee is between memory and compute time; large: a hard maximum."""
    tile_tokens: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(
        default=(1,), min_length=1
    )
    """Token counts to which rows are rounded up; beyond the last, its multiples."""
    tile_step_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Rows to whose multiples they are rounded up beyond the last of ``tile_tokens``; by default
    that one.
    """
    least_tile_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Fewest rows multiplied at once: up to the first tile, rows are rounded to it, its double,
    ...; by default to the tile.
    """
    width: tuple[WidthPoint, ...] = ()
    """Measured ratios of the memory time, by number of tokens."""
    width_source: str = ""
    """Where the ratios of ``width`` come from."""
    depth_us: Positive | None = None
    """Time in which a thread block of a product passes 1,024 of its inputs, one after the other, in
    us; not told apart where not stated.
    """

    @model_validator(mode="after")
    def _ascending(self) -> Roofline:
        tokens = [point.tokens for point in self.width]
        if tokens != sorted(set(tokens)) or list(self.tile_tokens) != sorted(set(self.tile_tokens)):
            raise ValueError("tile_tokens and the tokens of width must ascend")
        if self.width and not self.width_source:
            raise ValueError("a width table needs its width_source")
        return self

    def passing_s(self, inputs: Numbers, outputs: Numbers, multiprocessors: float) -> Numbers:
        """Return the seconds in which thread blocks pass the ``inputs`` of a product, as many waves
        of them as its ``outputs`` take tiles of the multiprocessors; 0 without ``depth_us``.
        """
        if self.depth_us is None:
            return 0.0
        blocks = -(-outputs // TILE_OUTPUTS)
        waves = -(-blocks // multiprocessors) if multiprocessors else 1.0
        return waves * (inputs / 1024.0) * (self.depth_us.value * 1e-6)

    def tiled(self, tokens: float) -> float:
        """Return the rows whose flops ``tokens`` take: whole tiles, but up to the first one the
        least tile doubled.
        """
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
        step = self.tile_step_tokens or self.tile_tokens[-1]
        return ceil(tokens / step) * step

    def filled(self, tokens: float) -> float:
        """Return the most tokens that take no more tiles than ``tokens``.

        The end of a tile that a width table passes smoothly does not count.
        """
        steps = {
            before.tokens
            for before, after in pairwise(self.width)
            if after.tokens == before.tokens + 1
        }
        end = self._whole(tokens)
        while self.width and end < self.width[-1].tokens and end not in steps:
            end = self._whole(end + 1)
        return end

    def width_ratios(self, tokens: float) -> tuple[float, float]:
        """Return the measured ratios of memory time and constant at ``tokens``: linear between
        points, flat outside.
        """
        if not self.width:
            return 1.0, 1.0
        below = self.width[0]
        for point in self.width:
            if tokens <= point.tokens:
                span = point.tokens - below.tokens
                if span and tokens > below.tokens:
                    share = (tokens - below.tokens) / span
                else:
                    share = 1.0
                ratio = below.ratio + share * (point.ratio - below.ratio)
                return ratio, below.fixed_ratio + share * (point.fixed_ratio - below.fixed_ratio)
            below = point
        return below.ratio, below.fixed_ratio


NOT_TOLD = NonNegative(value=0.0, source="assumed: not told apart")
PIECE_KEYS = 128
TILE_ROWS = 128
BLOCKS = 2
"""Keys of the smallest piece of a cache, query rows of a tile, and thread blocks of a
multiprocessor (FlashAttention 2).
"""


class CachedHeads(NamedTuple):
    """What one call of attention passes on one device; numbers or arrays."""

    sequences: Numbers
    rows: Numbers
    """Query rows of a sequence."""
    kv_heads: Numbers
    queries: Numbers
    """Query heads of a KV head."""


class AttentionRoofline(Roofline):
    """Attention: a thread block takes a tile of query rows of a KV head and passes its keys, one
    after the other.

    Few blocks do not reach bandwidth or peak, so that the norm also has the time of all blocks
    whatever they pass, and that of one block. Kernels may cut a cache into pieces, each a block's,
    until they fill the multiprocessors or are the smallest.
    """

    head_us: NonNegative = NOT_TOLD
    """Time of one block whatever it passes, over all multiprocessors, in us: of decode, a KV head
    of a sequence.
    """
    key_us: NonNegative = NOT_TOLD
    """Time in which a block passes one key, in us."""
    reduction_us: NonNegative = NOT_TOLD
    """Time in which the results of pieces are joined, by the root of the pieces beyond the first,
    in us; on top of the norm.
    """
    regroup_us: NonNegative = NOT_TOLD
    """Time in which copies sort the queries of several sequences by KV head, and outputs back, in
    us; on top of the norm.
    """
    cached_ratio: OneOrMore = OneOrMore(value=1.0, source="assumed: not told apart")
    """How many times faster than from memory bytes move that the device's cache holds: a prompt has
    just written its own.
    """
    splits: Literal["none", "grouped", "all"] = "none"
    """Which caches are cut: none, all, or of single query rows those that several heads share
    (FlashAttention 2, paged).
    """
    packs: bool = True
    """Whether a tile takes rows of all query heads of a KV head."""
    tile_rows: int = Field(default=TILE_ROWS, gt=0, le=1_000_000)
    """Query rows of a tile, each as wide with its output as the keys and values of a token; 16
    heads on a latent: 31.
    """

    def apart(
        self, read: CachedHeads, multiprocessors: float, cache_mb: float
    ) -> Callable[[Numbers, Numbers], tuple[Numbers, ...]]:
        """Return a function from the keys that the last row of a sequence sees, and the bytes of
        the call, to the bytes that memory serves, the seconds of all blocks and of the longest one,
        and those on top of the norm.

        Without multiprocessors a cache stays whole. The device's cache serves all of a size that it
        holds, none of twice it.
        """
        rows, columns = (read.rows * read.queries, 1.0) if self.packs else (read.rows, read.queries)
        blocks = -(-rows // self.tile_rows) * columns * read.kv_heads * read.sequences
        grouped = (read.queries > 1) & (read.rows <= 1)
        cut = (self.splits == "all") | (grouped & (self.splits == "grouped"))
        most_beyond = (BLOCKS * multiprocessors / elementwise_max(blocks, 1.0) - 1.0) * cut
        copied = grouped & (read.kv_heads > 1) & (read.sequences > 1)
        blocks_s = blocks * (self.head_us.value * 1e-6)
        regroup_s = copied * (self.regroup_us.value * 1e-6)
        reduction_s = self.reduction_us.value * 1e-6
        key_s = self.key_us.value * 1e-6
        stays_whole = not occurs(most_beyond > 0.0)
        spared = 1.0 - 1.0 / self.cached_ratio.value

        def from_memory(size_bytes: Numbers) -> Numbers:
            if not cache_mb or not spared:
                return size_bytes
            held = elementwise_max(0.0, 2.0 - size_bytes / (cache_mb * 1e6))
            return size_bytes * (1.0 - spared * elementwise_min(1.0, held))

        def parts(keys: Numbers, size_bytes: Numbers) -> tuple[Numbers, ...]:
            size = from_memory(size_bytes)
            if stays_whole:
                return size, blocks_s, keys * key_s, regroup_s
            pieces_beyond = elementwise_min(keys / PIECE_KEYS - 1.0, most_beyond)
            beyond = elementwise_max(0.0, pieces_beyond)
            on_top_s = reduction_s * root(beyond) + regroup_s
            return size, blocks_s, keys / (1.0 + beyond) * key_s, on_top_s

        return parts


class ExpertRoofline(Roofline):
    """The experts of one layer in one call: rows sorted by expert, two grouped products, and the
    sum over a row's experts.

    ``tile_tokens`` are rows of one expert; an expert with fewer, down to a single one, takes a
    whole tile. What an expert and the widths take comes on top of the norm.
    """

    expert_us: NonNegative
    """Time of each expert that is read, whatever its size, in us."""
    width_us: NonNegative
    """Time of 1,024 elements over which the two products sum one after the other (hidden, and
    inside an expert), in us.
    """
    pair_traffic_ratio: NonNegative
    """Bytes that a row moves for each of its experts, relative to inputs and outputs of both
    products in 16 bits.
    """

    def pair_bytes(self, pairs: Numbers, width: Numbers) -> Numbers:
        """Return the bytes that ``pairs`` of a row and an expert move; ``width``: hidden and
        expert's width together.
        """
        return self.pair_traffic_ratio.value * pairs * 2.0 * width * ACTIVATION_BYTES

    def beside_s(self, experts: Numbers, width: Numbers) -> Numbers:
        """Return the seconds beside those of bytes and flops."""
        return (self.expert_us.value * experts + self.width_us.value * width / 1024.0) * 1e-6


class AttentionParts(Frozen):
    """Attention as it is served: over a cache by one query row a sequence, and of whole prompts or
    chunks of them.
    """

    decode: AttentionRoofline
    """Attention of one query row a sequence, over keys and values of the cache."""
    prefill: AttentionRoofline
    """Attention of many query rows a sequence; it also moves queries and outputs."""


class Attention(AttentionParts):
    """Attention in parts, and what a verification takes, which lies between them: few rows over a
    cache that is read once.
    """

    extra_row: Ranged = Ranged(
        value=0.02,
        low=0.0,
        high=0.1,
        source="assumed: the cache is read once for all rows; up to 1.7 times decode for 8 rows "
        "where kernels do not pack them",
    )
    """Time of each further query row of a sequence (verification: 2 to 32 rows), relative to decode
    of the first.
    """
    kv_cache: dict[CacheFormat, AttentionParts] = Field(default={})
    """Parts for caches whose kernels differ, by format of the cache; others take those above, with
    their own bytes.
    """

    def over(self, cache: CacheFormat) -> AttentionParts:
        """Return the parts for a cache of this format."""
        return self.kv_cache.get(cache, self)
