"""A model spec can be read from a local Hugging Face ``config.json``; nothing is fetched.

``huggingface.yaml`` says what fields are called, what a family leaves out, and which fields change
no cost. A field that says something about the cost and is not understood is refused by name, as is
a shape that ModelSpec cannot express. A mixer is called after its formulas there, with a detail
behind a blank where layers of one kind differ.
"""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from simulator.cost.checkpoint import gguf
from simulator.cost.checkpoint.config_fields import FIELDS, Config, known_families, load_config
from simulator.cost.checkpoint.config_formats import formats_of
from simulator.cost.checkpoint.config_layers import mixer_names, mlps
from simulator.cost.mixer import MOST_LAYERS
from simulator.cost.model import ModelSpec
from simulator.files.document import LARGEST, told
from simulator.files.schema import BadInput, Document, Path_, Place, validate

OPT_SPARE_POSITIONS = 2
"""Rows in OPT's position table beyond ``max_position_embeddings``."""

FFN_MULTIPLE = 256
"""Widths of an MLP that are stated as a multiple of the hidden size are rounded up to this many
(DeciLM).
"""
Shape = Mapping[str, Any]


def read_config(path: Path) -> ModelSpec:
    """Return the model spec of a ``config.json``, of that in the directory ``path``, or of a GGUF
    file; sizes are in elements.

    Raises :class:`BadInput`, with one fault per field that is missing, of the wrong kind, not
    expressible or not understood.
    """
    file = path / "config.json" if path.is_dir() else path
    if file.suffix == gguf.ENDING:
        config, formats, words = gguf.config_of(file)
        spec = spec_of(config, formats)
        if formats:
            unknown = ""
        else:
            unknown = ", of which no format here is like it: state the format of the weights"
        about = (
            f"{config.model_type} as its GGUF header describes it, with weights in {words}{unknown}"
        )
        return spec.model_copy(
            update={"name": file.stem, "about": about, "source": f"{file} (GGUF header)"}
        )
    config = load_config(file)
    spec = spec_of(config, formats_of(config, file))
    name = (file.parent if file.name == "config.json" else file.with_suffix("")).resolve().name
    return spec.model_copy(update={"name": name, "source": f"{file} (HF config.json)"})


def spec_of(config: Config, formats: Mapping[str, str]) -> ModelSpec:
    """Return the model spec of a configuration whose weights were published in ``formats``; raises
    as :func:`read_config`.
    """
    shape = _shape(config)
    if shape["num_hidden_layers"] > MOST_LAYERS:
        config.refuse("num_hidden_layers", f"expected at most {MOST_LAYERS:,} layers")
    inputs = config.count(
        "hidden_size_per_layer_input", default=0, least=0
    )  # a table and two matrices a layer (Gemma 3n)
    if not config.faults:
        shape |= {**_layers(config, shape), **formats}
    if not config.faults:
        config.refuse_the_rest()
    config.refuse_unknown_family()
    if config.faults:
        raise BadInput(dict.fromkeys(config.faults))
    shape |= {"about": _about(config), "confidence": "published"}
    places: dict[Path_, Place] = {(key,): config.place(key) for key in shape}
    places[()] = (config.file, 1, 1)
    spec = validate(ModelSpec, Document(shape, places))
    more = (
        inputs
        * spec.num_hidden_layers
        * (config.count("vocab_size_per_layer_input", default=1) + 3 * spec.hidden_size)
    )
    if more:
        return spec.model_copy(update={"parameters": spec.weights + more})
    return spec


def _about(config: Config) -> str:
    """Return what was read in words: the family, and what was taken for it because the file does
    not say.
    """
    kind = config.model_type or "unnamed model type"
    known = config.model_type in ("", *known_families())
    unknown = "" if known else ", a family that is not known here and is read like llama,"
    said = {
        name: value
        for name, value in sorted(config.taken.items())
        if value and name in FIELDS["said"]
    }
    taken = [f"{name} {str(value).lower()}" for name, value in said.items()]
    silent = f"; where it is silent, its class takes {', '.join(taken)}" if taken else ""
    return f"{kind}{unknown} as its config.json describes it{silent}"


def _shape(config: Config) -> dict[str, Any]:
    """Return the fields of ModelSpec that all layers share, in elements."""
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    latent = config.get("kv_lora_rank") is not None
    blocks = config.get("block_configs") is not None
    config.asked.add("head_dim")  # with a latent it is a part of a key that other fields state
    if not (latent or config.faults or config.get("head_dim")) and hidden % heads:
        config.refuse(
            "head_dim",
            f"is missing, and hidden_size {hidden} is not a multiple of num_attention_heads "
            f"{heads}",
        )
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        config.refuse("tie_word_embeddings", f"expected true or false, got {told(tied)}")
    without_gate = FIELDS["two_matrices"]
    kind = config.model_type
    ungated = (
        kind in without_gate["types"] or config.get("activation") in without_gate["activations"]
    )
    experts = config.get("num_experts") and config.get("enable_moe_block", True)
    shape = {
        "hidden_size": hidden,
        "num_hidden_layers": _depth(config),
        "num_attention_heads": heads,
        "num_key_value_heads": _key_heads(config, heads),
        "head_dim": _value_heads(config, hidden // heads)
        if latent
        else config.count("head_dim", default=hidden // heads),
        "intermediate_size": _width(config, hidden, 1 if blocks else None),
        "vocab_size": config.count("vocab_size"),
        "tie_word_embeddings": tied,
        "mlp": "two_matrix" if ungated and kind not in without_gate["gated"] else "gated",
        "experts": _experts(config) if experts else None,
        "context_tokens": config.count("max_position_embeddings")
        if config.get("max_position_embeddings")
        else None,
        "mtp_layers": config.count("num_nextn_predict_layers", default=0, least=0),
    }
    if config.model_type == "opt":
        width = config.count("word_embed_proj_dim", default=hidden)
        shape["embedding_width"] = width if width != hidden else None
    if kind in FIELDS["positions"]:
        shape["learned_positions"] = (
            config.count("max_position_embeddings") + FIELDS["positions"][kind]
        )
    return shape


def _value_heads(config: Config, width: int) -> int:
    """Return the width of a head of values behind a latent, which some families take from the
    hidden size.
    """
    return config.count(
        "v_head_dim", default=width if config.model_type in FIELDS["value_heads_as_wide"] else None
    )


def _key_heads(config: Config, heads: int) -> int:
    """Return the number of heads of keys and values: by default that of queries, or one that all
    queries share.
    """
    config.asked.update(FIELDS["names"]["num_key_value_heads"])
    if config.model_type in FIELDS["one_head_of_keys"] and not config.get(
        "new_decoder_architecture"
    ):
        if config.get("multi_query"):
            return 1
        return heads
    return config.count("num_key_value_heads", default=heads)


def _width(config: Config, hidden: int, default: int | None) -> int:
    """Return the width inside the MLP: stated, a multiple of the hidden size, or two thirds of what
    is stated (LFM2).
    """
    config.asked.update(
        FIELDS["names"]["moe_intermediate_size"]
    )  # stated beside a dense MLP, it changes nothing
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


def _experts(config: Config) -> dict[str, Any]:
    """Return the fields of Experts."""
    width = config.count("moe_intermediate_size")
    count, shared = (
        config.count(key, default=0, least=0)
        for key in ("n_shared_experts", "shared_intermediate_size")
    )
    together = shared * max(1, count) if shared else width * count
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


def _layers(config: Config, shape: Shape) -> dict[str, Any]:
    """Return the fields mixers and layers of ModelSpec, or how many layers have no experts where no
    others differ.
    """
    count = shape["num_hidden_layers"]
    experts = shape["experts"]
    if pattern := _blocks_of(config):
        blocks = [str(block) for block in config.by_layer(pattern, count)]
        runs = [
            dict(FIELDS["blocks"].get(block, {"mixer": block, "mlp": "none"})) for block in blocks
        ]
    elif config.get("block_configs"):
        runs = [_block(config, shape, block) for block in config.by_layer("block_configs", count)]
    else:
        followed = mlps(config, count) if experts else ["dense"] * count
        names = mixer_names(config, count)
        runs = [{"mixer": mixer, "mlp": mlp} for mixer, mlp in zip(names, followed, strict=False)]
    _heads_of_some(config, [str(run["mixer"]) for run in runs])
    shared = config.count("num_kv_shared_layers", default=0, least=0)
    for run in runs[count - shared :] if shared else ():
        run["mixer"] = f"{run['mixer']} shared"
        if config.get("use_double_wide_mlp"):
            run["intermediate_size"] = 2 * shape["intermediate_size"]
    mixers = {}
    for name in dict.fromkeys(run["mixer"] for run in runs if run["mixer"]):
        mixers[name] = _mixer(config, shape, name)
    if config.faults:
        return {}
    return _shortest(shape, mixers, runs)


def _heads_of_some(config: Config, mixers: list[str]) -> None:
    """Take heads that are stated layer by layer for those that all layers of full attention have
    (Gemma 4).
    """
    stated = config.get("per_layer_config")
    if stated is None:
        return
    full = {index for index, name in enumerate(mixers) if name == "full"}
    if isinstance(stated, dict):
        own = [dict(part) for part in stated.values() if isinstance(part, dict)]
    else:
        own = []
    numbers = isinstance(stated, dict) and all(str(key).isdecimal() for key in stated)
    same = (
        numbers
        and len(own) == len(stated)
        and {int(key) for key in stated} == full
        and own.count(own[0]) == len(own)
    )
    if not own or not same or set(own[0]) - set(FIELDS["of_full_layers"]):
        config.refuse(
            "per_layer_config",
            f"expected the same heads for all layers of full attention, got {str(stated)[:60]}",
        )
        return
    config.data |= {FIELDS["of_full_layers"][key]: value for key, value in own[0].items()}


def _blocks_of(config: Config) -> str:
    """Return the field whose entries are each a mixer or an MLP (Nemotron-H); empty where each
    layer has both.
    """
    listed = (
        "layer_types" if config.model_type == "nemotron_h" and config.get("layer_types") else ""
    )
    if config.get("hybrid_pattern"):
        return "hybrid_pattern"
    return listed


def _depth(config: Config) -> int:
    """Return the number of layers, which a list of blocks also tells."""
    pattern = _blocks_of(config)
    blocks = config.get(pattern) if pattern else None
    return config.count(
        "num_hidden_layers", default=len(blocks) if isinstance(blocks, str | list) else None
    )


def _shortest(shape: Shape, mixers: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mixers and runs without what ModelSpec takes by default."""
    attention = ModelSpec.model_construct(**shape).attention.model_dump()
    own = {name for name, mixer in mixers.items() if attention | mixer == attention}
    runs = [run | {"mixer": "attention"} if run["mixer"] in own else run for run in runs]
    grouped = [(run, len(list(equal))) for run, equal in groupby(runs)]
    usual = [{"mixer": "attention", "mlp": "dense"}, {"mixer": "attention", "mlp": "experts"}]
    if [run for run, _ in grouped] in (usual[:1], usual[1:], usual):
        first = grouped[0][1] if len(grouped) == 2 else 0
        if shape["experts"]:
            return {"experts": shape["experts"] | {"first_dense_layers": first}}
        return {}
    period = next(
        every for every in range(1, len(runs) + 1) if runs[every:] == runs[: len(runs) - every]
    )
    grouped = [(run, len(list(equal))) for run, equal in groupby(runs[:period])]
    mixers = {name: mixer for name, mixer in mixers.items() if name not in own}
    return {"mixers": mixers, "layers": [run | {"count": equal} for run, equal in grouped]}


def _block(config: Config, shape: Shape, block: Any) -> dict[str, Any]:
    """Return the run of a layer that was found by architecture search (DeciLM): heads and width of
    its own, or none.
    """
    field = config.block("block_configs", block).get
    width = field("ffn.intermediate_size")
    if not width and not config.faults:
        width = (
            -(-int(2 * (field("ffn.ffn_mult") or 0) * shape["hidden_size"] / 3) // FFN_MULTIPLE)
            * FFN_MULTIPLE
            or None
        )
    if field("attention.no_op"):
        mixer = None
    else:
        mixer = f"full {shape['num_attention_heads'] // (field('attention.n_heads_in_group') or 1)}"
    return {
        "mixer": mixer,
        "mlp": "none" if field("ffn.no_op") else "dense",
        "intermediate_size": width,
    }


def _mixer(config: Config, shape: Shape, name: str) -> dict[str, Any]:
    """Return the fields of the mixer whose formulas stand under ``name`` up to a blank, from the
    configuration's numbers.
    """
    kind, _, detail = name.partition(" ")
    if kind == "linear":
        kind = next((kind for field, kind in FIELDS["linear"].items() if config.get(field)), kind)
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
    mixer = {
        "value_width": known["value"],
        **{field: known.computed(formula) for field, formula in formulas.items() if field != "let"},
    }
    context = shape["context_tokens"]
    if mixer["kind"] in ("sliding", "chunked") and context and mixer["window"] >= context:
        mixer |= {"kind": "full", "window": None}  # a window as long as the context is none
    return mixer


class _Numbers(dict[str, Any]):
    """Names in formulas; one that is not there is a field of the configuration."""

    def __init__(self, config: Config, shape: Shape, detail: str) -> None:
        super().__init__(
            {**shape, "detail": detail, "number": int(detail) if detail.isdecimal() else 0}
        )
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
