"""The shapes of a transformer determine its flops and bytes.

A matrix product of ``n`` tokens with a ``(k, m)`` weight is ``2 n k m`` flops and reads ``k m``
weights. Norms and biases are left out: they count as the small operations of a layer.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import cycle
from math import exp, lgamma
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.core.cost.formats import CACHE_BYTES, CacheFormat, StoredBits, WeightFormat
from simulator.core.cost.mixer import MOST_LAYERS, LayerKind, LayerRun, Mixer
from simulator.core.cost.rows import Rows
from simulator.core.identifiers import hub_id
from simulator.core.quantities import Confidence, Frozen, Ranged

ROUTERS = (
    "assumed: a fit to four counts of experts read by consecutive rows (mlx-lm#1485, "
    "GLM-4.7-Flash; lucebox#501, Laguna XS "
    "2.1; GLM-5.3-Flash-EXL3#239); each predicted within 5 % by the others"
)
"""Where the numbers of a mixture's routing come from unless its file says otherwise."""
EVEN = 1e-4
"""Popularity below which experts count as chosen alike."""


class Experts(Frozen):
    """A mixture of experts has ``routed`` experts of width ``intermediate_size``, ``per_token`` of
    them active for a token.
    """

    routed: int = Field(gt=0, le=100_000)
    """Experts of a layer among which the router chooses."""
    per_token: int = Field(gt=0, le=100_000)
    """Routed experts that are active for a token."""
    intermediate_size: int = Field(gt=0, le=10_000_000)
    """Width inside an expert, in elements."""
    shared: int = Field(default=0, ge=0, le=100_000)
    """Experts of a layer that are always active."""
    first_dense_layers: int = Field(default=0, ge=0, le=MOST_LAYERS)
    """Layers without experts, at the bottom of the model, where ``layers`` of the model does not
    say.
    """
    latent_size: int | None = Field(default=None, gt=0, le=10_000_000)
    """Width in which routed experts work, between two projections; by default that of a token."""
    window_exponent: Ranged = Ranged(value=0.837, low=0.72, high=0.95, source=ROUTERS)
    """Rows of one sequence in a pass, to this power, are the independent rows that read as many
    experts; at most 1.
    """
    popularity: Ranged = Ranged(value=0.042, low=0.0, high=0.1, source=ROUTERS)
    """How unequally experts are chosen: the correlation of two independent rows in one expert; 0:
    alike, below 1.
    """

    @model_validator(mode="after")
    def _active_within_routed(self) -> Self:
        if self.per_token > self.routed:
            raise ValueError(
                f"per_token {self.per_token} is more than the {self.routed} routed experts"
            )
        if self.window_exponent.value > 1.0 or self.popularity.value >= 1.0:
            raise ValueError("expected a window_exponent of at most 1 and a popularity below 1")
        return self

    def independent(self, rows: Rows) -> float:
        """Return how many rows of as many sequences read the experts that ``rows`` do.

        The n rows that a sequence has in a pass route alike and count as n to the power of
        ``window_exponent``.
        """
        total: float = 0.0
        exponent = self.window_exponent.value
        prompts = rows.prompt_tokens
        sequences = rows.prompt_sequences
        for tokens, parts in (
            (prompts, sequences),
            (rows.tokens - prompts, rows.sequences - sequences),
        ):
            total += max(1, parts) * (tokens / max(1, parts)) ** exponent
        return total

    def touched(self, rows: float) -> float:
        """Return the mean number of routed experts that ``rows`` independent rows read.

        A row chooses an expert with a chance that is beta distributed over experts, with mean k/E
        and a sum of parameters c = 1/popularity - 1: E (1 - B(a, b + n)/B(a, b)) with a = c k/E and
        b = c - a. Without popularity that is E (1 - (1 - k/E)^n). It is k for one row, never above
        E, and E in the end.
        """
        share = self.per_token / self.routed
        if self.popularity.value < EVEN or share == 1.0:
            return self.routed * (1.0 - float((1.0 - share) ** rows))
        both = 1.0 / self.popularity.value - 1.0
        rest = (1.0 - share) * both
        return self.routed * (
            1.0 - exp(lgamma(rest + rows) - lgamma(both + rows) + lgamma(both) - lgamma(rest))
        )


class ModelSpec(Frozen):
    """A model spec gives the shapes of a decoder-only transformer, in elements.

    Where its layers are not all alike, ``layers`` says what follows what, and is repeated up to the
    last layer.

    ``learned_positions`` are the rows of a position table (OPT: 2 more than its positions).
    ``embedding_width`` is set where embeddings are projected to the hidden size,
    ``kv_latent_width`` where a token leaves one latent in the cache instead of keys and values; the
    latent projections are counted in ``parameters``, not in ``qkv_weights``. ``context_tokens``
    limits prompt and output together (``max_position_embeddings``); None: not known.
    """

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the model is, in a sentence."""
    source: str = "not stated"
    """Where the shapes come from."""
    confidence: Confidence = "assumed"
    """How well the shapes are known."""
    huggingface: tuple[Annotated[str, AfterValidator(hub_id)], ...] = ()
    """Checkpoints of these shapes on Hugging Face, by id; commands that serve the model name the
    first one.
    """
    hidden_size: int = Field(gt=0, le=10_000_000)
    """Width of a token between layers, in elements."""
    num_hidden_layers: int = Field(gt=0, le=MOST_LAYERS)
    """Number of decoder layers."""
    num_attention_heads: int = Field(gt=0, le=100_000)
    """Number of query heads."""
    num_key_value_heads: int = Field(gt=0, le=100_000)
    """Number of heads of keys and values; it divides that of the query heads."""
    head_dim: int = Field(gt=0, le=10_000_000)
    """Width of a head, in elements."""
    intermediate_size: int = Field(gt=0, le=10_000_000)
    """Width inside the MLP, in elements."""
    vocab_size: int = Field(gt=0, le=100_000_000)
    """Number of tokens in the vocabulary."""
    tie_word_embeddings: bool = False
    """Whether embedding and LM head are one matrix."""
    mlp: Literal["gated", "two_matrix"] = "gated"
    """Whether the MLP has three matrices, one of them a gate, or two."""
    embedding_width: int | None = Field(default=None, gt=0, le=10_000_000)
    """Width of embeddings that are projected to the hidden size, in elements."""
    kv_latent_width: int | None = Field(default=None, gt=0, le=10_000_000)
    """Width of the latent that a token leaves in the cache instead of keys and values, in
    elements.
    """
    learned_positions: int = Field(default=0, ge=0, le=1_000_000_000)
    """Rows of the table of positions; 0: there is none."""
    context_tokens: int | None = Field(default=None, gt=0, le=1_000_000_000_000)
    """Most tokens of prompt and output together."""
    parameters: int | None = Field(default=None, gt=0, le=1_000_000_000_000_000)
    """Number of all weights, where the shapes do not determine it."""
    tables: int | None = Field(default=None, ge=0, le=2)
    """How many of embedding and LM head it holds; by default both, or one matrix for both."""
    experts: Experts | None = None
    """The mixture of experts; by default the model is dense."""
    mixers: dict[str, Mixer] = Field(default={})
    """Mixers other than attention with the heads above, by name."""
    layers: tuple[LayerRun, ...] = ()
    """Runs of equal layers, from the first on, repeated up to the last; by default all are alike,
    experts' layers last.
    """
    mtp_layers: int = Field(default=0, ge=0, le=MOST_LAYERS)
    """Layers that predict further tokens (MTP), which ``parameters`` leave out."""
    weight_format: WeightFormat | None = None
    """Format in which it was published, embedding and LM head aside; by default not known."""
    expert_format: WeightFormat | None = None
    """The same of its routed experts, where it differs."""
    stored: StoredBits | None = None
    """Bits a weight that its file has in those formats, where the file says so tensor by tensor; by
    default those of the formats.
    """
    cache_format: CacheFormat | None = None
    """Format of the KV cache for which it was published, with scales of its own; by default 16
    bits.
    """

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        names = ("attention", *self.mixers)
        for run in self.layers:
            if run.mixer not in (None, *names):
                raise ValueError(
                    f"layers: there is no mixer '{run.mixer}'; mixers are {', '.join(names)}"
                )
            if run.mlp in ("experts", "both") and self.experts is None:
                raise ValueError("layers: mlp is experts, and the model has none")
        return self

    @property
    def query_width(self) -> int:
        """Return the width of all query heads together, not always the hidden size (Qwen3-32B: 8192
        against 5120).
        """
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
    def layer_weights(self) -> int:
        """Return the number of weights in one dense layer, with keys and values of the grouped
        heads only.
        """
        return self.kind_weights(LayerKind(self.attention, self.intermediate_size, False))

    @property
    def head_weights(self) -> int:
        """Return the number of weights in the LM head; a pass that yields logits reads them
        once.
        """
        return self.vocab_size * self.head_width

    @property
    def head_width(self) -> int:
        """Return the width of a row of the LM head."""
        return self.embedding_width or self.hidden_size

    @property
    def table_weights(self) -> int:
        """Return the number of weights of embedding and LM head, which quantised checkpoints leave
        in 16 bits.
        """
        tables = self.tables if self.tables is not None else 2 - self.tie_word_embeddings
        return tables * self.head_weights

    @property
    def expert_weights(self) -> int:
        """Return the number of weights in one routed expert; 0 without experts."""
        matrices = 3 if self.mlp == "gated" else 2
        width = self.experts and (self.experts.latent_size or self.hidden_size)
        if self.experts and width:
            return matrices * width * self.experts.intermediate_size
        return 0

    @property
    def shared_expert_weights(self) -> int:
        """Return the number of weights in one shared expert, which works in the width of a token; 0
        without experts.
        """
        matrices = 3 if self.mlp == "gated" else 2
        if self.experts:
            return matrices * self.hidden_size * self.experts.intermediate_size
        return 0

    @cached_property
    def attention(self) -> Mixer:
        """Return the mixer of the model's own heads: grouped keys and values, or one latent for all
        heads.
        """
        latent = self.kv_latent_width
        query = self.query_width
        heads = self.num_key_value_heads
        return Mixer(
            kind="latent" if latent else "full",
            projections=self.qkv_weights,
            along_cache=2 * self.hidden_size * self.kv_width,
            projected=query + 2 * self.kv_width,
            value_width=query,
            output=query * self.hidden_size,
            cached=latent or 2 * self.kv_width,
            cache_heads=1 if latent else heads,
            pair_flops=4.0 * query,
        )

    def runs(self, first: int = 0, last: int | None = None) -> tuple[LayerRun, ...]:
        """Return the runs of equal layers from ``first`` to before ``last``, each as long as it
        is.
        """
        runs = self.layers
        layers = self.num_hidden_layers
        if not runs:
            dense = min(layers, self.experts.first_dense_layers) if self.experts else layers
            runs = (LayerRun(count=dense),) if dense else ()
            runs += (LayerRun(count=layers, mlp="experts"),) if self.experts else ()
        chosen: list[LayerRun] = []
        begin = 0
        stop = layers if last is None else last
        for run in cycle(runs):
            if begin >= stop:
                return tuple(chosen)
            if (count := min(begin + run.count, stop) - max(begin, first)) > 0:
                chosen.append(
                    run if count == run.count else run.model_copy(update={"count": count})
                )
            begin += run.count
        return ()

    def kinds(self, first: int = 0, last: int | None = None) -> dict[LayerKind, int]:
        """Return how many layers there are of each kind from ``first`` to before ``last``, in the
        order in which they come.
        """
        mixers = {"attention": self.attention} | self.mixers
        kinds = Counter[LayerKind]()
        for run in self.runs(first, last):
            if run.mlp in ("dense", "both"):
                width = run.intermediate_size or self.intermediate_size
            else:
                width = 0
            kinds[
                LayerKind(
                    mixers[run.mixer] if run.mixer else None, width, run.mlp in ("experts", "both")
                )
            ] += run.count
        return kinds

    @cached_property
    def mixer_layers(self) -> tuple[tuple[Mixer, int], ...]:
        """Return the mixers and the number of layers of each."""
        return tuple((kind.mixer, count) for kind, count in self.kinds().items() if kind.mixer)

    @cached_property
    def expert_layers(self) -> int:
        """Return the number of layers that have experts."""
        return sum(count for kind, count in self.kinds().items() if kind.experts)

    @cached_property
    def weights(self) -> int:
        """Return the number of all matrix weights: ``parameters`` where it is stated (published
        totals).
        """
        if self.parameters is not None:
            return self.parameters
        layers = sum(count * self.kind_weights(kind) for kind, count in self.kinds().items())
        width = self.embedding_width or self.hidden_size
        tables = (
            self.vocab_size * width * (1 if self.tie_word_embeddings else 2)
            + self.learned_positions * self.hidden_size
        )
        projections = 2 * width * self.hidden_size if width != self.hidden_size else 0
        return layers + tables + projections

    def kind_weights(self, kind: LayerKind) -> int:
        """Return the number of weights in a layer of a kind, with all its experts, their router and
        their projections.
        """
        matrices = 3 if self.mlp == "gated" else 2
        weights = (
            kind.mixer.weights if kind.mixer else 0
        ) + matrices * self.hidden_size * kind.intermediate_size
        if kind.experts and self.experts:
            router = self.hidden_size * self.experts.routed
            latent = 2 * self.hidden_size * (self.experts.latent_size or 0)
            weights += (
                self.experts.routed * self.expert_weights
                + self.experts.shared * self.shared_expert_weights
            )
            weights += router + latent
        return weights

    @property
    def routed_weights(self) -> int:
        """Return the number of weights of all routed experts."""
        if self.experts:
            return self.expert_layers * self.experts.routed * self.expert_weights
        return 0

    @property
    def active_weights(self) -> int:
        """Return the number of matrix weights that one token uses: all of them unless there are
        experts.
        """
        if not self.experts:
            return self.weights
        idle = (
            self.expert_layers
            * (self.experts.routed - self.experts.per_token)
            * self.expert_weights
        )
        return self.weights - idle

    def experts_read(self, rows: Rows) -> float:
        """Return the routed experts of a layer that ``rows`` read: those recorded, else by the law;
        0 without experts.
        """
        if not self.experts or rows.experts_read:
            return float(rows.experts_read)
        return self.experts.touched(min(self.experts.independent(rows), rows.tokens - rows.adapted))

    def kv_bytes_per_layer(self, bytes_per_value: float = 2.0) -> float:
        """Return the bytes that one token leaves in the KV cache of one layer with the model's own
        heads.
        """
        return (self.kv_latent_width or 2 * self.kv_width) * bytes_per_value

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0, after: int = 0) -> float:
        """Return the bytes that one token leaves in the KV cache of all layers, ``after`` others,
        which windows drop.
        """
        before, now = (
            sum(
                count * mixer.cache_bytes(tokens, bytes_per_value)
                for mixer, count in self.mixer_layers
            )
            for tokens in (after, after + 1)
        )
        return now - before

    @cached_property
    def state_bytes(self) -> int:
        """Return the bytes of the states of one sequence in all layers, which do not grow; 0 where
        all layers have caches.
        """
        return sum(count * mixer.state_bytes for mixer, count in self.mixer_layers)

    def counts(self, stored: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return what follows from the shapes, by name with unit: weights, and what tokens and
        requests keep; ``stored``: what is said of the weights as they were published.
        """
        sizes = {
            "weights": self.weights,
            "active_weights_per_token": self.active_weights,
            "fp16_weight_gb": self.weights * 2 / 1e9,
        }
        value = CACHE_BYTES[self.cache_format or "fp16"]
        kept = {"kv_bytes_per_token": self.kv_bytes_per_token(value)}
        later = {
            "kv_bytes_per_token_after_all_windows": self.kv_bytes_per_token(value, after=1 << 40)
        }
        state = {"state_bytes_per_request": self.state_bytes} if self.state_bytes else {}
        windows = any(mixer.window for mixer, _ in self.mixer_layers)
        return {**sizes, **(stored or {}), **kept, **(later if windows else {}), **state}


class DraftHead(Frozen):
    """A draft head drafts on the target's device, in the target's shapes: dense decoder layers, h x
    h matrices, an LM head.

    ``vocabulary`` is the width of an LM head of its own, ``lm_heads`` counts LM heads of its own
    that are as wide as the target's; without either it shares the target's. EAGLE: one layer and
    ``squares`` 2 (features and embeddings, 2h to h); Medusa: a square and an LM head for each of
    its heads. ``rank`` is that of a low-rank transform before the LM head, from h to rank and back
    to h; ``transition`` that of a table that adds to the logits what follows the token before
    (DSpark).
    """

    layers: int = Field(default=0, ge=0, le=MOST_LAYERS)
    """Number of decoder layers like the target's."""
    squares: int = Field(default=0, ge=0, le=1_000_000)
    """Number of matrices of hidden size by hidden size."""
    vocabulary: int | None = Field(default=None, gt=0, le=100_000_000)
    """Width of an LM head of its own, in tokens."""
    lm_heads: int = Field(default=0, ge=0, le=1_000)
    """Number of LM heads of its own that are as wide as the target's."""
    rank: int = Field(default=0, ge=0, le=10_000_000)
    """Rank of a low-rank transform before the LM head; 0: there is none."""
    transition: int = Field(default=0, ge=0, le=10_000_000)
    """Rank of a table of transitions: a row looks the token before up in it, and multiplies it with
    rank times vocabulary, whole on every rank of devices; 0: there is none."""
    mixture: bool = False
    """Whether its layers have experts of their own like the target's last layer (MTP); by default
    their MLP is dense.
    """

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.vocabulary and self.lm_heads:
            raise ValueError(
                "expected vocabulary (one LM head of that width) or lm_heads (as wide as the "
                "target's), not both"
            )
        return self

    def layer(self, target: ModelSpec) -> LayerKind:
        """Return the kind of its layers: the mixer of the target's last kind that has a cache, and
        a dense MLP or experts.
        """
        mixers = [mixer for mixer, _ in target.mixer_layers if mixer.cached] or [target.attention]
        experts = self.mixture and target.experts is not None
        return LayerKind(mixers[-1], 0 if experts else target.intermediate_size, experts)

    def width(self, target: ModelSpec) -> int:
        """Return the number of logits in one row."""
        return self.vocabulary or max(1, self.lm_heads) * target.vocab_size

    def weights(self, target: ModelSpec) -> int:
        """Return the number of weights that it adds to the target's."""
        if self.vocabulary or self.lm_heads:
            lm_heads = self.width(target) * target.hidden_size
        else:
            lm_heads = 0
        transform = 2 * self.rank * target.hidden_size
        transform += 2 * self.transition * target.vocab_size
        layers = self.layers * target.kind_weights(self.layer(target))
        return layers + self.squares * target.hidden_size**2 + transform + lm_heads
