"""A model spec can be read from a local Hugging Face ``config.json``; nothing is fetched.

Llama, Mistral, Qwen2 and Qwen3, Phi-3, Mixtral, OPT and DeepSeek-V3 are known; a config of any other type
is read as a Llama's if it has Llama's fields. A shape that ModelSpec cannot express is refused, not guessed.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.cost.model import ModelSpec
from simulator.files import reading
from simulator.files.document import LARGEST
from simulator.files.schema import BadInput, Document, Fault, Path_, Place, validate

TWO_MATRIX = frozenset({"opt", "phi", "gpt_neox", "starcoder2", "nemotron", "persimmon"})
"""Model types whose MLP has no gate."""

TIED_UNLESS_STATED = frozenset({"opt", "gemma", "gemma2", "gemma3_text"})
"""Model types that leave ``tie_word_embeddings`` out when it is true; the others leave it out when it is false."""

OPT_SPARE_POSITIONS = 2
"""Rows in OPT's position table beyond ``max_position_embeddings``."""

EXPERT_COUNTS = ("num_local_experts", "n_routed_experts", "num_experts")
"""Fields that may hold the number of routed experts."""


def read_config(path: Path) -> ModelSpec:
    """Return the model spec of a ``config.json``, or of that in the directory ``path``; sizes are in elements.

    Raises :class:`BadInput`, with one fault per field that is missing, of the wrong kind or not expressible.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _load(file)
    shape = _shape(config)
    if config.faults:
        raise BadInput(config.faults)
    shape |= {
        "name": (file.parent if file.name == "config.json" else file.with_suffix("")).resolve().name,
        "about": f"{config.model_type or 'unnamed model type'} as its config.json describes it",
        "source": f"{file} (HF config.json)",
        "confidence": "published",
    }
    places: dict[Path_, Place] = {(key,): config.place(key) for key in shape}
    places[()] = (str(file), 1, 1)
    spec = validate(ModelSpec, Document(shape, places))
    return _with_latent_attention(spec, config) if config.has("kv_lora_rank") else spec


@dataclass
class _Config:
    """A config is a JSON object with its text and the faults noted so far."""

    file: str
    text: str
    data: dict[str, Any]
    faults: list[Fault] = field(default_factory=list)

    @property
    def model_type(self) -> str:
        return str(self.data.get("model_type", ""))

    def has(self, key: str) -> bool:
        return self.data.get(key) is not None

    def place(self, key: str) -> Place:
        """Return where ``key`` stands; the start of the file where it does not."""
        before, quoted, _ = self.text.partition(f'"{key}"')
        return (self.file, before.count("\n") + 1, len(before) - before.rfind("\n")) if quoted else (self.file, 1, 1)

    def refuse(self, key: str, message: str) -> None:
        self.faults.append(Fault(self.place(key), key, message))

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under ``key``; note a fault and return 1 where there is none and no default."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
            return value
        bound = f"at most {LARGEST:g}" if isinstance(value, int) and value > LARGEST else f"at least {least}"
        wanted = f"expected a whole number of {bound}, got {value!r}"
        self.refuse(key, "is required and missing" if value is None else wanted)
        return 1


def _load(file: Path) -> _Config:
    try:
        text = reading.text(file)
        data = reading.from_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput([Fault((str(file), 0, 0), "", f"cannot be read: {reading.reason(error)}")]) from error
    except json.JSONDecodeError as error:
        raise BadInput([Fault((str(file), error.lineno, error.colno), "", f"not valid JSON: {error.msg}")]) from error
    if not isinstance(data, dict):
        raise BadInput([Fault((str(file), 1, 1), "", "expected a JSON object, as a Hugging Face config.json is")])
    return _Config(str(file), text, data)


def _shape(config: _Config) -> dict[str, Any]:
    """Return the fields of ModelSpec, in elements."""
    opt = config.model_type == "opt"
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    latent = config.has("kv_lora_rank")
    if not (latent or config.faults or config.has("head_dim")) and hidden % heads:
        config.refuse("head_dim", f"is missing, and hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    tied = config.data.get("tie_word_embeddings", config.model_type in TIED_UNLESS_STATED)
    if not isinstance(tied, bool):
        config.refuse("tie_word_embeddings", f"expected true or false, got {tied!r}")
    shape = {
        "hidden_size": hidden,
        "num_hidden_layers": config.count("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": config.count("v_head_dim") if latent else config.count("head_dim", default=hidden // heads),
        "intermediate_size": config.count("ffn_dim" if opt else "intermediate_size"),
        "vocab_size": config.count("vocab_size"),
        "tie_word_embeddings": tied,
        "mlp": "two_matrix" if config.model_type in TWO_MATRIX else "gated",
        "experts": _experts(config),
        "context_tokens": config.count("max_position_embeddings") if config.has("max_position_embeddings") else None,
    }
    if opt:
        width = config.count("word_embed_proj_dim", default=hidden)
        shape["embedding_width"] = width if width != hidden else None
        shape["learned_positions"] = config.count("max_position_embeddings") + OPT_SPARE_POSITIONS
    return shape


def _experts(config: _Config) -> dict[str, int] | None:
    """Return the fields of Experts; None for a dense model."""
    counted = next((key for key in EXPERT_COUNTS if config.has(key)), None)
    if counted is None:
        return None
    for key, plain in (("moe_layer_freq", 1), ("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if config.data.get(key, plain) != plain:
            config.refuse(key, f"only {plain} can be expressed: experts in every layer after the first dense ones")
    width = config.count("intermediate_size" if counted == "num_local_experts" else "moe_intermediate_size")
    together = config.count("shared_expert_intermediate_size", default=0, least=0)
    if together % width:
        config.refuse("shared_expert_intermediate_size", f"expected a multiple of the {width} of a routed expert")
    return {
        "routed": config.count(counted),
        "per_token": config.count("num_experts_per_tok"),
        "intermediate_size": width,
        "shared": config.count("n_shared_experts", default=together // width, least=0),
        "first_dense_layers": config.count("first_k_dense_replace", default=0, least=0),
    }


def _with_latent_attention(spec: ModelSpec, config: _Config) -> ModelSpec:
    """Return ``spec`` with DeepSeek's attention: a token leaves one latent and one rotary key in the cache.

    ``parameters`` counts the matrices of that attention.
    """
    hidden, heads = spec.hidden_size, spec.num_attention_heads
    latent, rotary, plain = (config.count(key) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    query, key = config.count("q_lora_rank", default=0, least=0), heads * (plain + rotary)
    if config.faults:
        raise BadInput(config.faults)
    queries = query * (hidden + key) if query else hidden * key
    keys_values = hidden * (latent + rotary) + latent * heads * (plain + spec.head_dim)
    saved = spec.qkv_weights - queries - keys_values
    parameters = spec.weights - spec.num_hidden_layers * saved
    return spec.model_copy(update={"kv_latent_width": latent + rotary, "parameters": parameters})
