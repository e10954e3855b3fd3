"""A mixer lets the tokens of a layer see one another: attention over a cache of any kind, or a
state of fixed size.

Grouped heads, latents, windows, indexers and recurrences differ in the sizes below and in nothing
else, so that one function prices them all. Sizes are in elements, and of the whole model; tensor
parallelism shares them out.
"""

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers, elementwise_max, elementwise_min
from simulator.core.quantities import Frozen

INDEX_BYTES = 1.0 + 4 / 128
"""Bytes of a cached value of an indexer: 8 bits, and a scale of 4 bytes for 128 of them
(DeepSeek-V3.2).
"""
MOST_LAYERS = 10_000
"""Most layers of a model; fifty times the most of any that is published."""


class Mixer(Frozen):
    """A mixer's sizes: projections before it, an output projection behind it, and a cache or a
    state in between.

    Ranks share the cache out by ``cache_heads``; where those are fewer than the ranks, cache and
    projections onto it are replicated. A query sees ``window`` tokens or the best ``top_k``
    entries; where an entry stands for several tokens (``entry_tokens``), it sees those entries and
    a window beside them.
    """

    kind: Literal["full", "latent", "sliding", "chunked", "sparse", "linear"] = "full"
    """What it is called; sparse: an indexer chooses what a query sees; linear: a state instead of a
    cache.
    """
    projections: int = Field(ge=0, le=1_000_000_000_000)
    """Weights read before mixing: queries, keys, values, gates, latents, indexers."""
    along_cache: int = Field(default=0, ge=0, le=1_000_000_000_000)
    """Those of ``projections`` that ranks share out as they share the cache: keys and values,
    latents.
    """
    projected: int = Field(ge=0, le=1_000_000_000_000)
    """Width of what the projections yield."""
    products: int = Field(default=1, gt=0, le=10_000_000)
    """Products one after the other among ``projections`` and foldings into a latent; each takes a
    product's constant time.
    """
    value_width: int = Field(gt=0, le=10_000_000)
    """Width of what the mixer yields."""
    output: int = Field(ge=0, le=1_000_000_000_000)
    """Weights of the output projection."""
    cached: int = Field(default=0, ge=0, le=10_000_000)
    """Values of an entry of the cache; 0: there is none."""
    cache_heads: int = Field(default=1, gt=0, le=100_000)
    """Parts in which ranks may share the cache out: heads of keys and values; 1 for a latent."""
    own_cache: bool = True
    """Whether the cache is its own; otherwise it reads that of an earlier layer."""
    pair_flops: float = Field(default=0.0, ge=0)
    """Flops of a pair of a query and an entry."""
    prompt_pair_flops: float | None = Field(default=None, ge=0)
    """The same for rows of a prompt, where a latent is widened to heads; by default as for all
    others.
    """
    window: int | None = Field(default=None, gt=0, le=1_000_000_000)
    """Most tokens that a query sees; chunked: the size of a chunk, of which it sees half on
    average.
    """
    top_k: int | None = Field(default=None, gt=0, le=1_000_000_000)
    """Most entries that a query sees, each query its own."""
    entry_tokens: int = Field(default=1, gt=0, le=1_000_000)
    """Tokens for which an entry of the cache stands."""
    index_width: int = Field(default=0, ge=0, le=10_000_000)
    """Values of an entry that an indexer reads, replicated on all ranks; 0: there is no indexer."""
    index_heads: int = Field(default=0, ge=0, le=100_000)
    """Heads of the indexer."""
    state: int = Field(default=0, ge=0, le=1_000_000_000_000)
    """Values of the state of a sequence, each of 4 bytes, read by its first row and written by
    every row.
    """
    tail: int = Field(default=0, ge=0, le=1_000_000_000_000)
    """Values of 16 bits that belong to the state: the last inputs of a short convolution."""

    @model_validator(mode="after")
    def _cache_or_state(self) -> Self:
        if (self.kind == "linear") != bool(self.state or self.tail):
            raise ValueError("a mixer of kind linear has a state or a tail, and no other has one")
        if self.kind in ("sliding", "chunked") and self.window is None:
            raise ValueError(f"a mixer of kind {self.kind} needs its window")
        if self.kind == "sparse" and self.top_k is None and self.entry_tokens == 1:
            raise ValueError("a mixer of kind sparse needs top_k: how many entries a query sees")
        if self.window is not None and self.top_k is not None and self.entry_tokens == 1:
            raise ValueError(
                "a window and top_k stand side by side only where entry_tokens is above 1; give "
                "one of them"
            )
        if self.kind != "linear" and not self.cached:
            raise ValueError(
                f"a mixer of kind {self.kind} needs entries to look at: cached above 0"
            )
        return self

    @property
    def weights(self) -> int:
        """Return the number of its weights."""
        return self.projections + self.output

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the state of a sequence; 0 where it has a cache instead."""
        return 4 * self.state + 2 * self.tail

    @property
    def sees_all(self) -> bool:
        """Return whether a query sees every token of its context."""
        return self.window is None and self.top_k is None and self.entry_tokens == 1

    @property
    def widened(self) -> bool:
        """Return whether it leaves latents that a prompt's rows widen to heads, while others stay
        in their width.
        """
        return self.prompt_pair_flops is not None

    def copies(self, ranks: int) -> float:
        """Return how many times ``ranks`` hold the cache among them, and the projections onto
        it.
        """
        return ranks / min(ranks, self.cache_heads)

    def weights_before(self, ranks: int) -> float:
        """Return the weights of all projections that ``ranks`` hold among them."""
        return self.projections + self.along_cache * (self.copies(ranks) - 1.0)

    def cache_bytes(self, tokens: float, value_bytes: float) -> float:
        """Return the bytes that ``tokens`` of a sequence take in the cache of a layer, without what
        its window drops.
        """
        if not self.own_cache:
            return 0.0
        near = min(tokens, self.window) if self.window else tokens
        if self.entry_tokens == 1:
            entries = near
        else:
            entries = tokens / self.entry_tokens
            if self.window:
                entries += near
        return (
            entries * self.cached * value_bytes
            + tokens / self.entry_tokens * self.index_width * INDEX_BYTES
        )

    def seen(self, rows: Rows) -> Rows:
        """Return ``rows`` with the entries that are read and the pairs that are computed instead of
        all tokens and pairs.

        Sequences that differ in length count as equally long ones. A chunk counts as half of it.
        """
        if self.sees_all:
            return rows
        tokens = rows.tokens - rows.prompt_tokens
        sequences = rows.sequences - rows.prompt_sequences
        cached = rows.kv_tokens - rows.prompt_kv_tokens
        pairs = rows.attention_pairs - rows.prompt_pairs
        entries, seen_pairs = self._seen(tokens, sequences, cached, pairs)
        prompt_entries, prompt_pairs = self._seen(
            rows.prompt_tokens, rows.prompt_sequences, rows.prompt_kv_tokens, rows.prompt_pairs
        )
        return rows._replace(
            kv_tokens=entries + prompt_entries,
            attention_pairs=seen_pairs + prompt_pairs,
            prompt_kv_tokens=prompt_entries,
            prompt_pairs=prompt_pairs,
        )

    def _seen(
        self, tokens: int, sequences: int, cached: Numbers, pairs: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return entries and pairs of ``tokens`` rows in so many sequences with ``cached`` tokens,
        the rows included.
        """
        if not tokens:
            return 0, 0
        shape = (tokens, max(1, sequences), cached, pairs)
        every = self.entry_tokens
        near = 0.0
        near_pairs = 0.0
        if self.window is not None:
            if self.kind == "chunked":
                window = (self.window + 1) // 2
            else:
                window = self.window
            near = elementwise_min(cached, sequences * (window - 1) + tokens)
            near_pairs = pairs_within(*shape, window)
            if every == 1:
                return near, near_pairs
        if self.top_k is None:
            return cached / every + near, pairs / every + near_pairs
        best = elementwise_min(cached / every, tokens * self.top_k)
        best_pairs = pairs_within(*shape, self.top_k * every) / every
        return best + near, best_pairs + near_pairs


def pairs_within(
    tokens: float, sequences: float, cached: Numbers, pairs: Numbers, most: float
) -> Numbers:
    """Return how many of ``pairs`` are left where a row sees ``most`` tokens at most: of ``tokens``
    rows in so many sequences of equal length, all of them together.
    """
    each = tokens / sequences
    # rows of streams are not in the cache, and may outnumber it
    before = elementwise_max(cached / sequences - each, 0.0)
    whole = elementwise_min(elementwise_max(most - before, 0.0), each)
    pairs_of_whole = whole * before + whole * (whole + 1.0) / 2.0
    pairs_of_cut = (each - whole) * most
    return elementwise_min(pairs, sequences * (pairs_of_whole + pairs_of_cut))


class LayerRun(Frozen):
    """A run of equal layers, in the order of the model."""

    count: int = Field(default=1, gt=0, le=MOST_LAYERS)
    """Number of layers."""
    mixer: str | None = "attention"
    """Name of their mixer; ``attention``: that of the model's heads; null: they have none."""
    mlp: Literal["dense", "experts", "both", "none"] = "dense"
    """What follows the mixer: a dense MLP, the model's experts, both side by side, or nothing."""
    intermediate_size: int | None = Field(default=None, gt=0, le=10_000_000)
    """Width inside the dense MLP, in elements; by default the model's."""


class LayerKind(NamedTuple):
    """A layer: its mixer, and its MLP."""

    mixer: Mixer | None
    """How its tokens see one another; None: they do not."""
    intermediate_size: int
    """Width of its dense MLP; 0: there is none."""
    experts: bool
    """Whether it has the model's experts."""

    @property
    def parts(self) -> int:
        """Return how many of mixer and MLP it has, each with an all-reduce behind it."""
        return (self.mixer is not None) + bool(self.intermediate_size or self.experts)
