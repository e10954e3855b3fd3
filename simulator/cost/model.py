"""The shapes of a transformer determine its flops and bytes.

A matrix product of ``n`` tokens with a ``(k, m)`` weight is ``2 n k m`` flops and reads ``k m``
weights. Norms and biases are left out: they count as the small operations of a layer.
"""

from collections.abc import Mapping
from math import exp, lgamma, log
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simulator.cost.rows import Rows
from simulator.files.schema import Confidence, Frozen, Ranged

ROUTERS = (
    "assumed: a fit to four counts of experts read by consecutive rows (mlx-lm#1485, GLM-4.7-Flash; lucebox#501, Laguna XS "
    "2.1; GLM-5.3-Flash-EXL3#239); each predicted within 5 % by the others"
)
"""Where the numbers of a mixture's routing come from unless its file says otherwise."""
EVEN = 1e-4
"""Popularity below which experts count as chosen alike."""


class Experts(Frozen):
    """A mixture of experts has ``routed`` experts of width ``intermediate_size``, ``per_token`` of them active for a token."""

    routed: int = Field(gt=0)
    """Experts of a layer among which the router chooses."""
    per_token: int = Field(gt=0)
    """Routed experts that are active for a token."""
    intermediate_size: int = Field(gt=0)
    """Width inside an expert, in elements."""
    shared: int = Field(default=0, ge=0)
    """Experts of a layer that are always active."""
    first_dense_layers: int = Field(default=0, ge=0)
    """Layers without experts, at the bottom of the model."""
    window_exponent: Ranged = Ranged(value=0.837, low=0.72, high=0.95, source=ROUTERS)
    """Rows of one sequence in a pass, to this power, are the independent rows that read as many experts; at most 1."""
    popularity: Ranged = Ranged(value=0.042, low=0.0, high=0.1, source=ROUTERS)
    """How unequally experts are chosen: the correlation of two independent rows in one expert; 0: alike, below 1."""

    @model_validator(mode="after")
    def _active_within_routed(self) -> Self:
        if self.per_token > self.routed:
            raise ValueError(f"per_token {self.per_token} is more than the {self.routed} routed experts")
        if self.window_exponent.value > 1.0 or self.popularity.value >= 1.0:
            raise ValueError("expected a window_exponent of at most 1 and a popularity below 1")
        return self

    def independent(self, rows: Rows) -> float:
        """Return how many rows of as many sequences read the experts that ``rows`` do.

        The n rows that a sequence has in a pass route alike and count as n to the power of ``window_exponent``.
        """
        total: float = 0.0
        exponent = self.window_exponent.value
        prompts, sequences = rows.prompt_tokens, rows.prompt_sequences
        for tokens, parts in ((prompts, sequences), (rows.tokens - prompts, rows.sequences - sequences)):
            total += max(1, parts) * (tokens / max(1, parts)) ** exponent
        return total

    def fitted(self, read: Mapping[tuple[int, int], float], source: str) -> "Experts":
        """Return the mixture with the routing that best gives the experts ``read`` by (rows of a window, requests)."""
        from scipy.optimize import least_squares  # noqa: PLC0415 - slow to load, and few need it

        def made(x: Any) -> "Experts":
            return self.model_copy(update={
                name: Ranged(value=float(value), source=source, confidence="calibrated")
                for name, value in zip(("window_exponent", "popularity"), x, strict=True)
            })  # fmt: skip

        def off(x: Any) -> list[float]:
            mixture: Experts = made(x)
            windows = {size: mixture.independent(Rows(size[0] * size[1], sequences=size[1])) for size in read}
            return [log(mixture.touched(windows[size]) / number) for size, number in read.items()]

        return made(least_squares(off, (0.8, 0.05), bounds=((0.0, EVEN), (1.0, 0.9))).x)

    def touched(self, rows: float) -> float:
        """Return the mean number of routed experts that ``rows`` independent rows read.

        A row chooses an expert with a chance that is beta distributed over experts, with mean k/E and a sum of parameters
        c = 1/popularity - 1: E (1 - B(a, b + n)/B(a, b)) with a = c k/E and b = c - a. Without popularity that is
        E (1 - (1 - k/E)^n). It is k for one row, never above E, and E in the end.
        """
        share = self.per_token / self.routed
        if self.popularity.value < EVEN or share == 1.0:
            return self.routed * (1.0 - float((1.0 - share) ** rows))
        both = 1.0 / self.popularity.value - 1.0
        rest = (1.0 - share) * both
        return self.routed * (1.0 - exp(lgamma(rest + rows) - lgamma(both + rows) + lgamma(both) - lgamma(rest)))


class ModelSpec(Frozen):
    """A model spec gives the shapes of a decoder-only transformer, in elements.

    ``learned_positions`` are the rows of a position table (OPT: 2 more than its positions). ``embedding_width``
    is set where embeddings are projected to the hidden size, ``kv_latent_width`` where a token leaves one latent
    in the cache instead of keys and values; the latent projections are counted in ``parameters``, not in ``qkv_weights``.
    ``context_tokens`` limits prompt and output together (``max_position_embeddings``); None: not known.
    """

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the model is, in a sentence."""
    source: str = "not stated"
    """Where the shapes come from."""
    confidence: Confidence = "assumed"
    """How well the shapes are known."""
    hidden_size: int = Field(gt=0)
    """Width of a token between layers, in elements."""
    num_hidden_layers: int = Field(gt=0)
    """Number of decoder layers."""
    num_attention_heads: int = Field(gt=0)
    """Number of query heads."""
    num_key_value_heads: int = Field(gt=0)
    """Number of heads of keys and values; it divides that of the query heads."""
    head_dim: int = Field(gt=0)
    """Width of a head, in elements."""
    intermediate_size: int = Field(gt=0)
    """Width inside the MLP, in elements."""
    vocab_size: int = Field(gt=0)
    """Number of tokens in the vocabulary."""
    tie_word_embeddings: bool = False
    """Whether embedding and LM head are one matrix."""
    mlp: Literal["gated", "two_matrix"] = "gated"
    """Whether the MLP has three matrices, one of them a gate, or two."""
    embedding_width: int | None = Field(default=None, gt=0)
    """Width of embeddings that are projected to the hidden size, in elements."""
    kv_latent_width: int | None = Field(default=None, gt=0)
    """Width of the latent that a token leaves in the cache instead of keys and values, in elements."""
    learned_positions: int = Field(default=0, ge=0)
    """Rows of the table of positions; 0: there is none."""
    context_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of prompt and output together."""
    parameters: int | None = Field(default=None, gt=0)
    """Number of all weights, where the shapes do not determine it."""
    tables: int | None = Field(default=None, ge=0, le=2)
    """How many of embedding and LM head it holds; by default both, or one matrix for both."""
    experts: Experts | None = None
    """The mixture of experts; by default the model is dense."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        return self

    @property
    def query_width(self) -> int:
        """Return the width of all query heads together, not always the hidden size (Qwen3-32B: 8192 against 5120)."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Return the width of the keys, and again of the values, of one token in one layer."""
        return self.num_key_value_heads * self.head_dim

    @property
    def qkv_weights(self) -> int:
        """Return the number of weights in the query, key and value projections of one layer."""
        return self.hidden_size * (self.query_width + 2 * self.kv_width)

    @property
    def output_weights(self) -> int:
        """Return the number of weights in the attention's output projection of one layer."""
        return self.query_width * self.hidden_size

    @property
    def up_weights(self) -> int:
        """Return the number of weights from hidden to intermediate width in a dense layer, gate included."""
        return self.hidden_size * self.intermediate_size * (2 if self.mlp == "gated" else 1)

    @property
    def down_weights(self) -> int:
        """Return the number of weights from intermediate back to hidden width in a dense layer."""
        return self.intermediate_size * self.hidden_size

    @property
    def layer_weights(self) -> int:
        """Return the number of weights in one dense layer, with keys and values of the grouped heads only."""
        return self.qkv_weights + self.output_weights + self.up_weights + self.down_weights

    @property
    def head_weights(self) -> int:
        """Return the number of weights in the LM head; a pass that yields logits reads them once."""
        return self.vocab_size * (self.embedding_width or self.hidden_size)

    @property
    def table_weights(self) -> int:
        """Return the number of weights of embedding and LM head, which quantised checkpoints leave in 16 bits."""
        tables = self.tables if self.tables is not None else 2 - self.tie_word_embeddings
        return tables * self.head_weights

    @property
    def expert_weights(self) -> int:
        """Return the number of weights in one expert; 0 without experts."""
        matrices = 3 if self.mlp == "gated" else 2
        return matrices * self.hidden_size * self.experts.intermediate_size if self.experts else 0

    @property
    def mixture_weights(self) -> int:
        """Return the number of weights of all experts of a layer and of their router; 0 without experts."""
        experts = self.experts
        return (experts.routed + experts.shared) * self.expert_weights + self.hidden_size * experts.routed if experts else 0

    @property
    def expert_layers(self) -> int:
        """Return the number of layers whose MLP is a mixture of experts."""
        return self.num_hidden_layers - self.experts.first_dense_layers if self.experts else 0

    @property
    def weights(self) -> int:
        """Return the number of all matrix weights: ``parameters`` where it is stated (latent attention, published totals)."""
        if self.parameters is not None:
            return self.parameters
        attention = self.num_hidden_layers * (self.qkv_weights + self.output_weights)
        dense = (self.num_hidden_layers - self.expert_layers) * (self.up_weights + self.down_weights)
        experts = self.expert_layers * self.mixture_weights
        width = self.embedding_width or self.hidden_size
        tables = self.vocab_size * width * (1 if self.tie_word_embeddings else 2) + self.learned_positions * self.hidden_size
        projections = 2 * width * self.hidden_size if width != self.hidden_size else 0
        return attention + dense + experts + tables + projections

    @property
    def active_weights(self) -> int:
        """Return the number of matrix weights that one token uses: all of them unless there are experts."""
        if not self.experts:
            return self.weights
        idle = self.expert_layers * (self.experts.routed - self.experts.per_token) * self.expert_weights
        return self.weights - idle

    def independent_rows(self, rows: Rows) -> float:
        """Return how many rows of as many sequences read the experts that ``rows`` do; 0 without experts."""
        return self.experts.independent(rows) if self.experts else 0.0

    def kv_bytes_per_layer(self, bytes_per_value: float = 2.0) -> float:
        """Return the bytes that one token leaves in the KV cache of one layer."""
        return (self.kv_latent_width or 2 * self.kv_width) * bytes_per_value

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Return the bytes that one token leaves in the KV cache of all layers."""
        return self.num_hidden_layers * self.kv_bytes_per_layer(bytes_per_value)


class DraftHead(Frozen):
    """A draft head drafts on the target's device, in the target's shapes: dense decoder layers, h x h matrices, an LM head.

    ``vocabulary`` is the width of an LM head of its own, ``lm_heads`` counts LM heads of its own that are as wide as the
    target's; without either it shares the target's. EAGLE: one layer and ``squares`` 2 (features and embeddings, 2h
    to h); Medusa: a square and an LM head for each of its heads. ``rank`` is that of a
    low-rank transform before the LM head, from h to rank and back to h.
    """

    layers: int = Field(default=0, ge=0)
    """Number of decoder layers like the target's."""
    squares: int = Field(default=0, ge=0)
    """Number of matrices of hidden size by hidden size."""
    vocabulary: int | None = Field(default=None, gt=0)
    """Width of an LM head of its own, in tokens."""
    lm_heads: int = Field(default=0, ge=0)
    """Number of LM heads of its own that are as wide as the target's."""
    rank: int = Field(default=0, ge=0)
    """Rank of a low-rank transform before the LM head; 0: there is none."""
    mixture: bool = False
    """Whether its layers have experts of their own like the target's last layer (MTP); by default their MLP is dense."""

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.vocabulary and self.lm_heads:
            raise ValueError("expected vocabulary (one LM head of that width) or lm_heads (as wide as the target's), not both")
        return self

    def width(self, target: ModelSpec) -> int:
        """Return the number of logits in one row."""
        return self.vocabulary or max(1, self.lm_heads) * target.vocab_size

    def weights(self, target: ModelSpec) -> int:
        """Return the number of weights that it adds to the target's."""
        lm_heads = self.width(target) * target.hidden_size if self.vocabulary or self.lm_heads else 0
        transform = 2 * self.rank * target.hidden_size
        layer = target.qkv_weights + target.output_weights + target.mixture_weights if self.mixture else target.layer_weights
        return self.layers * layer + self.squares * target.hidden_size**2 + transform + lm_heads
