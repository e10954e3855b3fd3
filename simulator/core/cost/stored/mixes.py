"""Files whose tensors have formats of their own: which one each of them gets, and the bits a weight
that follow for its group.

A file that people call Q4_K_M stores most matrices in the type Q4_K, and values, the matrix behind
an activation, embedding and LM head in others, by the layer. The rules of GGUF are those of
``llama_tensor_get_type_impl`` (ggml-org/llama.cpp 007dbbf src/llama-quant.cpp), with an importance
matrix, which files of three bits and less need; without those of Falcon. The recipes of MLX are
those of ``mixed_quant_predicate_builder`` (ml-explore/mlx-lm mlx_lm/convert.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from simulator.core.cost.formats import FORMATS, StoredBits, WeightFormat
from simulator.core.cost.mixer import LayerRun, Mixer
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored import ggml

Part = Literal["q", "k", "v", "output", "mixer", "up", "down", "router"]
"""What a matrix of a layer is: projections of attention, its output, another of a mixer; in front
of the activation of an MLP, or behind it; the choice among experts.
"""
KEPT = 256
"""Models whose bits are kept, each with its formats."""
ROUTER_BITS = 32.0
"""Bits of a router's weight in a GGUF file, which is not quantised."""
MLX_GROUP = 64
"""Weights that share a scale and a bias in recipes of MLX."""
LAYERS_OF_70B = 80
"""Layers by which llama.cpp knows a model of 70B, whose values get more bits."""
EIGHT = 8
"""Experts by which llama.cpp knows Mixtral, whose attention gets more bits."""
SHARING = 4
"""Query heads that share a head of values from which on values get more bits."""


class Tensor(NamedTuple):
    """A matrix of a layer, or all of one part."""

    part: Part
    layer: int
    weights: float
    """Number of weights."""
    inputs: int
    """Inputs of a product with it, which blocks of weights divide."""
    routed: bool = False
    """Whether it belongs to routed experts."""


def tensors(model: ModelSpec) -> Iterator[Tensor]:
    """Yield the matrices of all layers, in their order."""
    layer = 0
    mixers = {"attention": model.attention} | model.mixers
    for run in model.runs():
        mixer = mixers[run.mixer] if run.mixer else None
        for _ in range(run.count):
            yield from _of_layer(model, layer, run, mixer)
            layer += 1


def _of_layer(model: ModelSpec, layer: int, run: LayerRun, mixer: Mixer | None) -> Iterator[Tensor]:
    if mixer is not None:
        yield from _of_mixer(model.hidden_size, layer, mixer)
    if run.mlp in ("dense", "both"):
        yield from _of_mlp(model, layer, run.intermediate_size or model.intermediate_size)
    experts = model.experts
    if experts is None or run.mlp not in ("experts", "both"):
        return
    outer = experts.latent_size or model.hidden_size
    inner = experts.intermediate_size
    ups = _ups(model)
    yield Tensor("router", layer, model.hidden_size * experts.routed, model.hidden_size)
    yield Tensor("up", layer, experts.routed * ups * outer * inner, outer, routed=True)
    yield Tensor("down", layer, experts.routed * inner * outer, inner, routed=True)
    if experts.latent_size:
        yield Tensor("mixer", layer, 2 * model.hidden_size * outer, outer)
    if experts.shared:
        yield from _of_mlp(model, layer, experts.shared * inner)


def _of_mixer(hidden: int, layer: int, mixer: Mixer) -> Iterator[Tensor]:
    """Yield the matrices of a mixer. Heads have queries, keys and values; the three of a gated
    delta rule are one matrix, which llama.cpp stores like values, beside that of a gate.
    """
    if mixer.kind == "linear" and mixer.projected > 2 * mixer.value_width and mixer.state:
        gate = hidden * mixer.value_width
        yield Tensor("v", layer, mixer.projections - gate, hidden)
        yield Tensor("mixer", layer, gate, hidden)
    elif mixer.widened or mixer.kind in ("linear", "latent", "sparse"):
        yield Tensor("mixer", layer, mixer.projections, hidden)
    else:
        onto = mixer.along_cache / 2
        yield Tensor("q", layer, mixer.projections - mixer.along_cache, hidden)
        if onto:
            yield Tensor("k", layer, onto, hidden)
            yield Tensor("v", layer, onto, hidden)
    part: Part = "mixer" if mixer.kind == "linear" else "output"
    yield Tensor(part, layer, mixer.output, mixer.value_width)


def _of_mlp(model: ModelSpec, layer: int, width: int) -> Iterator[Tensor]:
    hidden = model.hidden_size
    yield Tensor("up", layer, _ups(model) * hidden * width, hidden)
    yield Tensor("down", layer, width * hidden, width)


def _ups(model: ModelSpec) -> int:
    return 2 if model.mlp == "gated" else 1


class Spot(NamedTuple):
    """Where a matrix stands that a rule asks about."""

    number: int
    """How many of its part come before it."""
    of: int
    """How many of its part there are."""
    model: ModelSpec

    @property
    def experts(self) -> int:
        """Return the routed experts of a layer; 0 without any."""
        return self.model.experts.routed if self.model.experts else 0


Where = Callable[[Spot], bool]


def everywhere(_: Spot) -> bool:
    """Return that a rule holds for all layers."""
    return True


def more_bits(spot: Spot) -> bool:
    """Return whether a layer is among the first and last eighth, or every third between them."""
    first = spot.of // 8
    last = 7 * spot.of // 8
    return spot.number < first or spot.number >= last or (spot.number - first) % 3 == 2


def first_eighth(spot: Spot) -> bool:
    """Return whether a layer is among the first eighth."""
    return spot.number < spot.of // 8


def first_sixteenth(spot: Spot) -> bool:
    """Return whether a layer is among the first sixteenth."""
    return spot.number < spot.of // 16


def middle(spot: Spot) -> bool:
    """Return whether a layer is among neither the first nor the last eighth."""
    return spot.of // 8 <= spot.number < 7 * spot.of // 8


def first_two(spot: Spot) -> bool:
    """Return whether a layer is one of the first two."""
    return spot.number < 2


def first_four(spot: Spot) -> bool:
    """Return whether a layer is one of the first four."""
    return spot.number < 4


def shared_values(spot: Spot) -> bool:
    """Return whether four or more heads of queries share one of values."""
    return spot.model.num_attention_heads >= SHARING * spot.model.num_key_value_heads


def shared_or_experts(spot: Spot) -> bool:
    """Return whether heads share values, or there are four experts or more."""
    return shared_values(spot) or spot.experts >= SHARING


def eight_experts_more_bits(spot: Spot) -> bool:
    """Return whether a layer is among the first eighth, or of those with more bits in Mixtral."""
    return first_eighth(spot) or (spot.experts == EIGHT and more_bits(spot))


Rules = tuple[tuple[Where, str], ...]
"""Types with where each is taken; the first that holds is."""


class Mix(NamedTuple):
    """Which type each part of a file has."""

    usual: str
    """Type of what no rule is about."""
    parts: Mapping[Part, Rules] = {}
    """Rules by part."""
    embedding: str | None = None
    """Type of an embedding that is not the LM head; by default the usual one."""
    head: str = "q6_k"
    """Type of the LM head."""
    experts: str | None = None
    """Type of routed experts, where no other rule is about them."""
    mixtral: bool = False
    """Whether the output of attention has Q5_K where there are eight experts."""
    few: bool = False
    """Whether it has one or two bits, which are raised by rules of their own."""


def _rules(*given: tuple[Where, str] | str) -> Rules:
    return tuple((everywhere, rule) if isinstance(rule, str) else rule for rule in given)


_SIX: Mapping[Part, Rules] = {"v": ((more_bits, "q6_k"),), "down": ((more_bits, "q6_k"),)}


def _of_one_or_two_bits(usual: str, raised: str, output: str) -> Mix:
    """Return a mix of IQ1 or IQ2, in which values, the first layers and the output are raised."""
    return Mix(
        usual,
        {
            "v": _rules((shared_or_experts, "q4_k"), raised),
            "down": _rules((first_eighth, raised)),
            "output": _rules(output),
        },
        embedding=raised,
        head="q5_k",
        few=True,
    )


GGUF: Mapping[str, Mix] = {
    "mostly_q4_0": Mix("q4_0"),
    "q4_1": Mix("q4_1"),
    "q5_0": Mix("q5_0"),
    "q5_1": Mix("q5_1"),
    "q2_k": Mix(
        "q2_k",
        {
            "v": _rules((shared_values, "q4_k"), "q3_k"),
            "down": _rules("q3_k"),
            "output": _rules("q3_k"),
        },
        mixtral=True,
    ),
    "q2_k_s": Mix(
        "q2_k", {"v": _rules((shared_values, "q4_k")), "down": _rules((first_eighth, "q4_k"))}
    ),
    "q3_k_s": Mix("q3_k", mixtral=True),
    "q3_k_m": Mix(
        "q3_k",
        {
            "v": _rules((first_two, "q5_k"), "q4_k"),
            "down": _rules((first_sixteenth, "q5_k"), "q4_k"),
            "output": _rules("q4_k"),
        },
        mixtral=True,
    ),
    "q3_k_l": Mix("q3_k", {"v": _rules("q5_k"), "down": _rules("q5_k"), "output": _rules("q5_k")}),
    "q4_k_s": Mix(
        "q4_k",
        {"v": _rules((first_four, "q5_k")), "down": _rules((first_eighth, "q5_k"))},
        mixtral=True,
    ),
    "q4_k_m": Mix("q4_k", _SIX, mixtral=True),
    "q5_k_s": Mix("q5_k"),
    "q5_k_m": Mix("q5_k", _SIX),
    "q6_k": Mix("q6_k"),
    "iq1_s": _of_one_or_two_bits("iq1_s", "q2_k", "iq2_xxs"),
    "iq1_m": _of_one_or_two_bits("iq1_m", "q2_k", "iq2_xxs"),
    "iq2_xxs": _of_one_or_two_bits("iq2_xxs", "q2_k", "iq2_xxs"),
    "iq2_xs": _of_one_or_two_bits("iq2_xs", "q2_k", "iq2_xs"),
    "iq2_s": _of_one_or_two_bits("iq2_xs", "iq3_s", "iq3_s"),
    "iq2_m": _of_one_or_two_bits("iq2_s", "iq3_s", "iq3_s"),
    "iq3_xxs": Mix(
        "iq3_xxs",
        {
            "q": _rules("iq2_s"),
            "k": _rules("iq2_s"),
            "v": _rules((shared_values, "q4_k")),
            "output": _rules("iq3_s"),
        },
        embedding="iq3_s",
        head="q5_k",
        mixtral=True,
    ),
    "iq3_xs": Mix(
        "iq3_s",
        {
            "q": _rules("iq3_xxs"),
            "k": _rules("iq3_xxs"),
            "v": _rules((shared_values, "q4_k")),
            "up": _rules((middle, "iq3_xxs")),
        },
        mixtral=True,
    ),
    "iq3_s": Mix("iq3_s", {"v": _rules((shared_values, "q4_k"))}, mixtral=True),
    "iq3_m": Mix(
        "iq3_s",
        {
            "v": _rules("q4_k"),
            "down": _rules((eight_experts_more_bits, "q4_k")),
            "output": _rules("q4_k"),
        },
        mixtral=True,
    ),
    "iq4_xs": Mix("iq4_xs", {"v": _rules((shared_values, "q5_k"))}, mixtral=True),
    "iq4_nl": Mix("iq4_nl", {"v": _rules((shared_values, "q5_k"))}, mixtral=True),
    "tq1_0": Mix("tq1_0", embedding="q4_k"),
    "tq2_0": Mix("tq2_0", embedding="q4_k"),
    "mxfp4_moe": Mix("q8_0", head="q8_0", experts="mxfp4"),
}
"""Mixes of GGUF files, by what llama.cpp calls them."""
LARGE = {
    "q2_k_l": "q2_k",
    "q3_k_xl": "q3_k_l",
    "q4_k_l": "q4_k_m",
    "q5_k_l": "q5_k_m",
    "q6_k_l": "q6_k",
}
"""Mixes whose embedding and LM head have Q8_0 (bartowski), each with what it is otherwise."""
DYNAMIC = {
    "ud_q2_k_xl": "q2_k",
    "ud_q3_k_xl": "q3_k_m",
    "ud_q4_k_xl": "q4_k_m",
    "ud_q5_k_xl": "q5_k_m",
    "ud_q6_k_xl": "q6_k",
}
"""Mixes of Unsloth, which differ from model to model, each with the nearest one whose rules are
known; a .gguf file says its own bits.
"""
UNIFORM = ("q5_k_m",)
"""Mixes whose mean is taken for all weights: devices were fitted with it (DuoDecoding's 5.7)."""
MIXES: Mapping[str, Mix] = {
    **{name: mix for name, mix in GGUF.items() if name not in UNIFORM},
    **{name: GGUF[base]._replace(embedding="q8_0", head="q8_0") for name, base in LARGE.items()},
    **{name: GGUF[base] for name, base in DYNAMIC.items()},
}
"""Mixes of GGUF files whose bits follow from their rules."""
RECIPES = {
    "mlx_mixed_2_6": (2, 6),
    "mlx_mixed_3_4": (3, 4),
    "mlx_mixed_3_6": (3, 6),
    "mlx_mixed_4_6": (4, 6),
}
"""Recipes of MLX: bits of most matrices; and those of the LM head, and in some layers of values
and of the matrix behind the activation.
"""

OF_FILES = frozenset(
    (*MIXES, *UNIFORM, *RECIPES, *(name for name in FORMATS if name.startswith("mlx_")))
) - {"q6_k"}
"""Formats that are those of files: mixes of GGUF, and MLX."""


def mlx_bits(bits: int, group: int) -> float:
    """Return the bits of a weight in MLX, of which ``group`` share a scale and a bias of 16 bits
    (ml-explore/mlx ``mx.quantize``).
    """
    return bits + 32.0 / group


@lru_cache(KEPT)
def stored_bits(
    model: ModelSpec, weights: WeightFormat, experts: WeightFormat | None = None
) -> StoredBits:
    """Return the bits a weight of a model that is stored in a format, by group of tensors;
    ``experts``: the format of its routed experts, by default the same.

    What a file says of itself goes before the rules of its format.
    """
    bits = _by_file(model, weights) or _by_rules(model, weights)
    if experts is None or experts == weights:
        return bits
    return bits.model_copy(update={"expert_bits": stored_bits(model, experts).expert_bits})


def _by_file(model: ModelSpec, weights: WeightFormat) -> StoredBits | None:
    """Return the bits that a model's file states for this format; None where it states none."""
    if model.stored is None or weights != model.weight_format:
        return None
    return model.stored


def _by_rules(model: ModelSpec, weights: WeightFormat) -> StoredBits:
    if weights in MIXES:
        return _of_gguf(model, MIXES[weights])
    if weights in RECIPES:
        return _of_mlx(model, *RECIPES[weights])
    form = FORMATS[weights]
    bits = 8.0 * form.weight_bytes
    tables = 16.0 if form.tables_in_16_bits else bits
    return StoredBits(block_bits=bits, expert_bits=bits, embedding_bits=tables, head_bits=tables)


def _of_gguf(model: ModelSpec, mix: Mix) -> StoredBits:
    """Return the bits of a GGUF file; a model whose embedding is its LM head stores it as one."""
    width = model.embedding_width or model.hidden_size
    usual = mix.usual
    head = mix.head
    if model.hidden_size % ggml.TYPES[usual].weights:
        head = "q8_0"
    embedding = head if model.tie_word_embeddings else mix.embedding or usual
    return averages(
        ((tensor, _gguf_bits(mix, tensor, spot)) for tensor, spot in spots(model)),
        embedding=_bits(embedding, width),
        head=_bits(head, width),
        usual=ggml.TYPES[usual].bits,
    )


def _bits(kind: str, inputs: int) -> float:
    return ggml.TYPES[ggml.fitting(kind, inputs)].bits


def spots(model: ModelSpec) -> Iterator[tuple[Tensor, Spot]]:
    """Yield the matrices of all layers with where each stands, as llama.cpp counts: values and, in
    a model without experts, matrices of MLPs by how many there were, others by their layer.
    """
    every = list(tensors(model))
    values = sum(tensor.part == "v" for tensor in every)
    seen: dict[Part, int] = {}
    for tensor in every:
        number = tensor.layer
        of = model.num_hidden_layers
        if tensor.part == "v":
            of = values
        if tensor.part == "v" or model.experts is None:
            number = seen.get(tensor.part, 0)
            seen[tensor.part] = number + 1
        yield tensor, Spot(number, of, model)


def _gguf_bits(mix: Mix, tensor: Tensor, spot: Spot) -> float:
    """Return the bits of a matrix in a GGUF file."""
    if tensor.part == "router":
        return ROUTER_BITS
    return _bits(_gguf_type(mix, tensor, spot), tensor.inputs)


def _gguf_type(mix: Mix, tensor: Tensor, spot: Spot) -> str:
    part = tensor.part
    if mix.experts is not None:
        return mix.experts if tensor.routed else mix.usual
    if spot.experts == EIGHT:
        kind = _type_beside_eight_experts(mix, part)
        if kind is not None:
            return kind
    rules = mix.parts.get(part, ())
    kind = next((kind for where, kind in rules if where(spot)), mix.usual)
    large = part == "v" and not mix.few and spot.model.num_hidden_layers == LAYERS_OF_70B
    if large and kind in ("q3_k", "q4_k"):
        return "q5_k"
    return kind


def _type_beside_eight_experts(mix: Mix, part: str) -> str | None:
    """Return the type of a part of a model with eight experts; None where it is the usual one."""
    if part == "output":
        return "q5_k" if mix.mixtral or mix.few else mix.usual
    if part in ("k", "v") and not mix.few:
        return "q8_0"
    if part == "k":
        return "q4_k"
    return None


def _of_mlx(model: ModelSpec, low: int, high: int) -> StoredBits:
    """Return the bits of a recipe of MLX."""
    lower = mlx_bits(low, MLX_GROUP)
    higher = mlx_bits(high, MLX_GROUP)
    layers = model.num_hidden_layers

    def bits(tensor: Tensor) -> float:
        raised = tensor.part in ("v", "down") and more_bits(Spot(tensor.layer, layers, model))
        return higher if raised else lower

    return averages(
        ((tensor, bits(tensor)) for tensor in tensors(model)),
        embedding=lower,
        head=lower if model.tie_word_embeddings else higher,
        usual=lower,
    )


def averages(
    matrices: Iterable[tuple[Tensor, float]], *, embedding: float, head: float, usual: float
) -> StoredBits:
    """Return the bits by group of matrices whose bits are given; ``usual`` where there are none."""
    weights = {True: 0.0, False: 0.0}
    total = {True: 0.0, False: 0.0}
    for tensor, bits in matrices:
        weights[tensor.routed] += tensor.weights
        total[tensor.routed] += tensor.weights * bits
    blocks = total[False] / weights[False] if weights[False] else usual
    experts = total[True] / weights[True] if weights[True] else blocks
    return StoredBits(
        block_bits=blocks, expert_bits=experts, embedding_bits=embedding, head_bits=head
    )


def stored_gb(model: ModelSpec, bits: StoredBits) -> float:
    """Return the size of a model's weights in 1e9 bytes, with so many bits by group."""
    rest = model.weights - model.routed_weights - model.table_weights
    routed = model.routed_weights * bits.expert_bits
    return (rest * bits.block_bits + routed + model.table_weights * table_bits(model, bits)) / 8e9


def table_bits(model: ModelSpec, bits: StoredBits) -> float:
    """Return the bits a weight of embedding and LM head together."""
    if model.tie_word_embeddings:
        return bits.head_bits
    return (bits.embedding_bits + bits.head_bits) / 2.0


def published(model: ModelSpec) -> dict[str, float]:
    """Return what follows of a model's weights as they were published, by name with unit: their
    size and, where its file says so, their bits by group; empty where nobody says how.
    """
    if model.weight_format is None:
        return {}
    bits = stored_bits(model, model.weight_format, model.expert_format)
    computed = {"published_weight_gb": stored_gb(model, bits)}
    if model.stored is None:
        return computed
    groups = {"blocks": bits.block_bits, "embedding": bits.embedding_bits, "head": bits.head_bits}
    if model.experts:
        groups["experts"] = bits.expert_bits
    return computed | {f"bits_per_weight_{group}": value for group, value in groups.items()}
