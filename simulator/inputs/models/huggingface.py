"""A model spec can be read from a local Hugging Face ``config.json``; nothing is fetched.

``huggingface.yaml`` says what fields are called, what a family leaves out, and which fields change
no cost. A field that says something about the cost and is not understood is refused by name, as is
a shape that ModelSpec cannot express. A mixer is called after its formulas there, with a detail
behind a blank where layers of one kind differ.
"""

from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.core.cost.mixer import MOST_LAYERS
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored.mixes import stored_bits
from simulator.core.faults import LARGEST, BadInput, Path_, Place, told
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs.document import Document
from simulator.inputs.models import gguf, mlx
from simulator.inputs.models.config_fields import FIELDS, Config, known_families, load_config
from simulator.inputs.models.config_formats import formats_of, quantisation
from simulator.inputs.models.config_layers import mixer_names, mlps
from simulator.inputs.schema import validate

OPT_SPARE_POSITIONS = 2
"""Rows in OPT's position table beyond ``max_position_embeddings``."""

FFN_MULTIPLE = 256
"""Widths of an MLP that are stated as a multiple of the hidden size are rounded up to this many
(DeciLM).
"""
Shape = PlainMapping
Run = PlainData
"""A layer as ModelSpec has it: names of its mixer and of its MLP, and a width of its own."""
DENSE = {"mixer": "attention", "mlp": "dense"}
ROUTED = {"mixer": "attention", "mlp": "experts"}


def read_config(path: Path) -> ModelSpec:
    """Return the model spec of a ``config.json``, of that in the directory ``path``, or of a GGUF
    file; sizes are in elements.

    Raises :class:`BadInput`, with one fault per field that is missing, of the wrong kind, not
    expressible or not understood.
    """
    file = path / "config.json" if path.is_dir() else path
    if file.suffix == gguf.ENDING:
        return _of_gguf(file)
    config = load_config(file)
    spec = spec_of(config, formats_of(config, file))
    stated = quantisation(config, file)
    if stated is not None and mlx.is_mlx(stated):
        spec = spec.model_copy(update={"stored": mlx.stored(config, spec, stated)})
    elif stated is not None and stated.get("lm_head") is True and spec.weight_format:
        # GPTQ and AutoRound may quantise the LM head too
        bits = stored_bits(spec, spec.weight_format, spec.expert_format)
        head = bits.model_copy(update={"head_bits": bits.block_bits})
        spec = spec.model_copy(update={"stored": head})
    name = (file.parent if file.name == "config.json" else file.with_suffix("")).resolve().name
    return spec.model_copy(update={"name": name, "source": f"{file} (HF config.json)"})


def _of_gguf(file: Path) -> ModelSpec:
    """Return the model spec of a GGUF file, with the bits in which it stores each group of
    tensors.
    """
    config, formats, words, tensors = gguf.read_model(file)
    spec = spec_of(config, formats)
    if formats:
        unknown = ""
    else:
        unknown = ", of which no format here is like it: state the format of the weights"
    about = f"{config.model_type} as its GGUF header describes it, with weights in {words}{unknown}"
    named = {"name": file.stem, "about": about, "source": f"{file} (GGUF header)"}
    spec = spec.model_copy(update=named)
    gguf.check_weights(file, spec, tensors)
    return spec


def spec_of(config: Config, formats: PlainMapping) -> ModelSpec:
    """Return the model spec of a configuration whose weights were published in ``formats``; raises
    as :func:`read_config`.
    """
    shape = _shape(config)
    if shape["num_hidden_layers"] > MOST_LAYERS:
        config.refuse("num_hidden_layers", f"expected at most {MOST_LAYERS:,} layers")
    inputs = config.count("hidden_size_per_layer_input", default=0, least=0)
    if not config.faults:
        try:
            shape |= _layers(config, shape)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            words = f"make a mixer that is none: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            config.refuse("num_attention_heads", words)
        shape |= formats
    if not config.faults:
        config.refuse_the_rest()
    config.refuse_unknown_family()
    if config.faults:
        raise BadInput(dict.fromkeys(config.faults))
    shape |= {"about": _about(config), "confidence": "published"}
    places: dict[Path_, Place] = {(key,): config.place(key) for key in shape}
    places[()] = (config.file, 1, 1)
    spec = validate(ModelSpec, Document(shape, places))
    if inputs:
        more = _weights_of_inputs(config, spec, inputs)
        return spec.model_copy(update={"parameters": spec.weights + more})
    return spec


def _weights_of_inputs(config: Config, spec: ModelSpec, width: int) -> int:
    """Return the weights of inputs of this width to each layer, a table and two matrices
    (Gemma 3n).
    """
    rows = config.count("vocab_size_per_layer_input", default=1)
    return width * spec.num_hidden_layers * (rows + 3 * spec.hidden_size)


def _about(config: Config) -> str:
    """Return what was read in words: the family, and what was taken for it because the file does
    not say.
    """
    kind = config.model_type or "unnamed model type"
    known = config.model_type in ("", *known_families())
    unknown = "" if known else ", a family that is not known here and is read like llama,"
    taken = []
    for name, value in sorted(config.taken.items()):
        if value and name in FIELDS["said"]:
            taken.append(f"{name} {str(value).lower()}")
    silent = f"; where it is silent, its class takes {', '.join(taken)}" if taken else ""
    return f"{kind}{unknown} as its config.json describes it{silent}"


def _shape(config: Config) -> PlainData:
    """Return the fields of ModelSpec that all layers share, in elements."""
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    _check_head_width(config, hidden, heads)
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        config.refuse("tie_word_embeddings", f"expected true or false, got {told(tied)}")
    width_may_be_missing = config.get("block_configs") is not None
    has_experts = config.get("num_experts") and config.get("enable_moe_block", True)
    shape = {
        "hidden_size": hidden,
        "num_hidden_layers": _depth(config),
        "num_attention_heads": heads,
        "num_key_value_heads": _key_heads(config, heads),
        "head_dim": _head_width(config, hidden // heads),
        "intermediate_size": _width(config, hidden, 1 if width_may_be_missing else None),
        "vocab_size": config.count("vocab_size"),
        "tie_word_embeddings": tied,
        "mlp": _mlp(config),
        "experts": _experts(config) if has_experts else None,
        "context_tokens": _context(config),
        "mtp_layers": config.count("num_nextn_predict_layers", default=0, least=0),
    }
    return shape | _embeddings(config, hidden)


def _check_head_width(config: Config, hidden: int, heads: int) -> None:
    """Refuse heads whose width is not stated and does not follow from the hidden size."""
    config.asked.add("head_dim")  # with a latent it is a part of a key that other fields state
    if config.faults or config.get("kv_lora_rank") is not None or config.get("head_dim"):
        return
    if hidden % heads:
        config.refuse(
            "head_dim",
            f"is missing, and hidden_size {hidden} is not a multiple of num_attention_heads "
            f"{heads}",
        )


def _head_width(config: Config, width: int) -> int:
    """Return the width of a head, by default ``width``; behind a latent that of its values."""
    if config.get("kv_lora_rank") is not None:
        return _value_heads(config, width)
    return config.count("head_dim", default=width)


def _mlp(config: Config) -> str:
    """Return whether an MLP has a gate, as its family or its activation tells."""
    without_gate = FIELDS["two_matrices"]
    kind = config.model_type
    ungated = (
        kind in without_gate["types"] or config.get("activation") in without_gate["activations"]
    )
    if ungated and kind not in without_gate["gated"]:
        return "two_matrix"
    return "gated"


def _context(config: Config) -> int | None:
    """Return the tokens of the longest context; None where they are not stated."""
    if config.get("max_position_embeddings"):
        return config.count("max_position_embeddings")
    return None


def _embeddings(config: Config, hidden: int) -> PlainData:
    """Return the fields of embeddings that some families have: a width of their own (OPT), and a
    table of learned positions.
    """
    fields: PlainData = {}
    kind = config.model_type
    if kind == "opt":
        width = config.count("word_embed_proj_dim", default=hidden)
        fields["embedding_width"] = width if width != hidden else None
    if kind in FIELDS["positions"]:
        positions = config.count("max_position_embeddings")
        fields["learned_positions"] = positions + FIELDS["positions"][kind]
    return fields


def _value_heads(config: Config, width: int) -> int:
    """Return the width of a head of values behind a latent, which some families take from the
    hidden size.
    """
    as_wide = config.model_type in FIELDS["value_heads_as_wide"]
    return config.count("v_head_dim", default=width if as_wide else None)


def _key_heads(config: Config, heads: int) -> int:
    """Return the number of heads of keys and values: by default that of queries, or one that all
    queries share.
    """
    config.asked.update(FIELDS["names"]["num_key_value_heads"])
    may_share = config.model_type in FIELDS["one_head_of_keys"]
    if not may_share or config.get("new_decoder_architecture"):
        return config.count("num_key_value_heads", default=heads)
    if config.get("multi_query"):
        return 1
    return heads


def _width(config: Config, hidden: int, default: int | None) -> int:
    """Return the width inside the MLP: stated, a multiple of the hidden size, or two thirds of what
    is stated (LFM2).
    """
    # stated beside a dense MLP, the width of an expert changes nothing
    config.asked.update(FIELDS["names"]["moe_intermediate_size"])
    if config.get("num_experts"):
        default = config.get("moe_intermediate_size") or default
    elif config.model_type == "granitemoehybrid":
        return config.count("shared_intermediate_size")
    if config.model_type in FIELDS["four_times"]:
        default = config.count("expansion_ratio", default=4) * hidden
    width = config.count("intermediate_size", default=default)
    if config.model_type != "lfm2":
        return width
    ratio = config.get("block_ffn_dim_multiplier", 1.0)
    multiple = config.count("block_multiple_of", default=1)
    if not isinstance(ratio, int | float) or not 0 < ratio < LARGEST:
        config.refuse(
            "block_ffn_dim_multiplier", f"expected a number above 0, got {str(ratio)[:60]}"
        )
        return width
    if config.get("block_auto_adjust_ff_dim"):
        return -(-int(ratio * int(2 * width / 3)) // multiple) * multiple
    return width


def _experts(config: Config) -> PlainData:
    """Return the fields of Experts."""
    width = config.count("moe_intermediate_size")
    count = config.count("n_shared_experts", default=0, least=0)
    shared_width = config.count("shared_intermediate_size", default=0, least=0)
    if shared_width:
        together = shared_width * max(1, count)
    else:
        together = width * count
    if together % width:
        config.refuse(
            "shared_intermediate_size", f"expected a multiple of the {width} of a routed expert"
        )
    return {
        "routed": config.count("num_experts"),
        "per_token": config.count("num_experts_per_tok"),
        "intermediate_size": width,
        "shared": together // width,
        "latent_size": config.get("moe_latent_size"),
    }


def _layers(config: Config, shape: Shape) -> PlainData:
    """Return the fields mixers and layers of ModelSpec, or how many layers have no experts where no
    others differ.
    """
    runs = _runs(config, shape)
    _heads_of_some(config, runs)
    _share_caches(config, shape, runs)
    mixers = {}
    for run in runs:
        name = run["mixer"]
        if name and name not in mixers:
            mixers[name] = _mixer(config, shape, name)
    if config.faults:
        return {}
    return _shortest(shape, mixers, runs)


def _runs(config: Config, shape: Shape) -> list[Run]:
    """Return the mixer and the MLP of each layer."""
    count = shape["num_hidden_layers"]
    pattern = _blocks_of(config)
    if pattern:
        return [_mixer_or_mlp(str(block)) for block in config.by_layer(pattern, count)]
    if config.get("block_configs"):
        return [_block(config, shape, block) for block in config.by_layer("block_configs", count)]
    followed = mlps(config, count) if shape["experts"] else ["dense"] * count
    names = mixer_names(config, count)
    return [{"mixer": mixer, "mlp": mlp} for mixer, mlp in zip(names, followed, strict=False)]


def _mixer_or_mlp(block: str) -> Run:
    """Return the run of a layer that is either a mixer or an MLP (Nemotron-H); an unknown block is
    refused as a mixer.
    """
    return dict(FIELDS["blocks"].get(block, {"mixer": block, "mlp": "none"}))


def _share_caches(config: Config, shape: Shape, runs: list[Run]) -> None:
    """Note which layers, the last ones, read the cache of an earlier one, and that their MLP may be
    twice as wide (Gemma 3n, Gemma 4).
    """
    shared = config.count("num_kv_shared_layers", default=0, least=0)
    if not shared:
        return
    for run in runs[shape["num_hidden_layers"] - shared :]:
        run["mixer"] = f"{run['mixer']} shared"
        if config.get("use_double_wide_mlp"):
            run["intermediate_size"] = 2 * shape["intermediate_size"]


def _heads_of_some(config: Config, runs: list[Run]) -> None:
    """Take heads that are stated layer by layer for those that all layers of full attention have
    (Gemma 4).
    """
    stated = config.get("per_layer_config")
    if stated is None:
        return
    full_layers = {layer for layer, run in enumerate(runs) if run["mixer"] == "full"}
    heads = _equal_heads(stated, full_layers)
    if heads is None:
        config.refuse(
            "per_layer_config",
            f"expected the same heads for all layers of full attention, got {str(stated)[:60]}",
        )
        return
    for key, value in heads.items():
        config.data[FIELDS["of_full_layers"][key]] = value


def _equal_heads(stated: Any, layers: set[int]) -> PlainMapping | None:
    """Return the heads that are stated for exactly these layers, by number; None where they differ,
    or more is stated than heads.
    """
    if not isinstance(stated, dict) or not stated:
        return None
    if not all(str(number).isdecimal() for number in stated):
        return None
    if {int(number) for number in stated} != layers:
        return None
    heads, *others = stated.values()
    if not isinstance(heads, dict) or any(other != heads for other in others):
        return None
    if set(heads) - set(FIELDS["of_full_layers"]):
        return None
    return heads


def _blocks_of(config: Config) -> str:
    """Return the field whose entries are each a mixer or an MLP (Nemotron-H); empty where each
    layer has both.
    """
    lists_blocks = config.model_type == "nemotron_h" and config.get("layer_types")
    if config.get("hybrid_pattern"):
        return "hybrid_pattern"
    if lists_blocks:
        return "layer_types"
    return ""


def _depth(config: Config) -> int:
    """Return the number of layers, which a list of blocks also tells."""
    pattern = _blocks_of(config)
    blocks = config.get(pattern) if pattern else None
    depth = len(blocks) if isinstance(blocks, str | list) else None
    return config.count("num_hidden_layers", default=depth)


def _shortest(shape: Shape, mixers: PlainMapping, runs: list[Run]) -> PlainData:
    """Return mixers and runs without what ModelSpec takes by default."""
    attention = ModelSpec.model_construct(**shape).attention.model_dump()
    usual = {name for name, mixer in mixers.items() if attention | mixer == attention}
    named = []
    for run in runs:
        is_usual = run["mixer"] in usual
        named.append(run | {"mixer": "attention"} if is_usual else run)
    grouped = _grouped(named)
    order = [run for run, _ in grouped]
    if order in ([DENSE], [ROUTED], [DENSE, ROUTED]):
        if not shape["experts"]:
            return {}
        dense_before = grouped[0][1] if len(grouped) == 2 else 0
        return {"experts": shape["experts"] | {"first_dense_layers": dense_before}}
    period = named[: _period(named)]
    return {
        "mixers": {name: mixer for name, mixer in mixers.items() if name not in usual},
        "layers": [run | {"count": count} for run, count in _grouped(period)],
    }


def _grouped(runs: list[Run]) -> list[tuple[Run, int]]:
    """Return runs without repetition, each with how often it stands in a row."""
    return [(run, len(list(equal))) for run, equal in groupby(runs)]


def _period(runs: list[Run]) -> int:
    """Return after how many layers the runs repeat, all of them where they never do."""
    for period in range(1, len(runs)):
        if runs[period:] == runs[:-period]:
            return period
    return len(runs)


def _block(config: Config, shape: Shape, block: Any) -> PlainData:
    """Return the run of a layer that was found by architecture search (DeciLM): heads and width of
    its own, or none.
    """
    field = config.block("block_configs", block).get
    width = field("ffn.intermediate_size")
    if not width and not config.faults:
        width = _rounded_width((field("ffn.ffn_mult") or 0) * shape["hidden_size"])
    if field("attention.no_op"):
        mixer = None
    else:
        queries_of_a_key = field("attention.n_heads_in_group") or 1
        mixer = f"full {shape['num_attention_heads'] // queries_of_a_key}"
    return {
        "mixer": mixer,
        "mlp": "none" if field("ffn.no_op") else "dense",
        "intermediate_size": width,
    }


def _rounded_width(width: float) -> int | None:
    """Return the width of an MLP with a gate that is stated as that of one without: two thirds,
    rounded up; None for 0.
    """
    multiples = -(-int(2 * width / 3) // FFN_MULTIPLE)
    return multiples * FFN_MULTIPLE or None


def _mixer(config: Config, shape: Shape, name: str) -> PlainData:
    """Return the fields of the mixer whose formulas stand under ``name`` up to a blank, from the
    configuration's numbers.
    """
    kind, _, detail = name.partition(" ")
    if kind == "linear":
        kind = _recurrence(config)
    formulas = FIELDS["mixers"].get(kind)
    if formulas is None:
        config.refuse(
            "hybrid_pattern" if config.get("hybrid_pattern") else "layer_types",
            f"{told(name)} is no known layer",
        )
        return {}
    known = _Numbers(config, shape, detail)
    for variable, formula in formulas["let"].items():
        known[variable] = known.computed(formula)
    mixer = {"value_width": known["value"]}
    for field, formula in formulas.items():
        if field != "let":
            mixer[field] = known.computed(formula)
    context = shape["context_tokens"]
    if mixer["kind"] in ("sliding", "chunked") and context and mixer["window"] >= context:
        mixer |= {"kind": "full", "window": None}  # a window as long as the context is none
    return mixer


def _recurrence(config: Config) -> str:
    """Return which recurrence linear layers have, by the first field that tells it."""
    for field, kind in FIELDS["linear"].items():
        if config.get(field):
            return str(kind)
    return "linear"


class _Numbers(PlainData):
    """Names in formulas; one that is not there is a field of the configuration."""

    def __init__(self, config: Config, shape: Shape, detail: str) -> None:
        number = int(detail) if detail.isdecimal() else 0
        super().__init__({**shape, "detail": detail, "number": number})
        self.config = config

    def __missing__(self, name: str) -> Any:
        if name in FIELDS["flags"]:
            return bool(self.config.get(name))
        if name == "mamba_head_dim" and self.config.get(name) in (None, "auto"):
            return (
                self.config.count("mamba_expand", default=2)
                * self["hidden_size"]
                // self.config.count("mamba_num_heads")
            )
        return self.config.count(name, FIELDS["defaults"].get(name), least=0)

    def computed(self, formula: object) -> Any:
        """Return what a shipped formula comes to; it can call nothing."""
        # of our own file, over numbers
        return eval(str(formula), {"__builtins__": {}}, self)  # noqa: S307
