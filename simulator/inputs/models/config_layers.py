"""Which mixer and which MLP each layer of a Hugging Face configuration has.

Families say it in ways of their own, by lists, periods or windows. Each way has a reader here: a
function that returns the name of each layer's mixer, or None where a configuration says nothing in
this way. A new family is a function in ``LISTS``, where its files name the layers, or in ``RULES``,
where they follow from numbers.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from simulator.inputs.models.config_fields import FIELDS, Config

Reader: TypeAlias = Callable[[Config, int], list[str] | None]
"""From a configuration and its number of layers to the names of their mixers."""


def mixer_names(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer."""
    if config.get("compress_ratios"):
        return [f"compressed {ratio}" for ratio in config.by_layer("compress_ratios", count)]
    for name in FIELDS["beside_lists"]:
        config.asked.update(FIELDS["names"].get(name, [name]))
    names = _first(LISTS, config, count) or _first(RULES, config, count)
    if config.get("kv_lora_rank"):
        names = ["latent" if name == "full" else name for name in names]
    _refuse_lightning(config, count)
    names = _with_blocks(config, count, names)
    if config.get("index_topk"):
        return [f"latent_sparse {indexer}" for indexer in _indexers(config, count)]
    return names


def _first(readers: Sequence[Reader], config: Config, count: int) -> list[str]:
    """Return what the first reader says that has something to read; empty where none has."""
    for reader in readers:
        names = reader(config, count)
        if names is not None:
            return names
    return []


# ---- lists of layers


def _layer_types(config: Config, count: int) -> list[str] | None:
    """Read a list with a word a layer, as most families have it."""
    if not config.get("layer_types"):
        return None
    words = config.by_layer("layer_types", count)
    return [str(FIELDS["layer_types"].get(str(word), word)) for word in words]


def _mimo(config: Config, count: int) -> list[str] | None:
    """Read a list with a 1 for every layer that sees a window."""
    if not config.get("hybrid_layer_pattern"):
        return None
    flags = config.by_layer("hybrid_layer_pattern", count)
    return ["sliding" if flag else "full" for flag in flags]


def _gpt_neo(config: Config, count: int) -> list[str] | None:
    """Read a list with ``global`` or ``local`` a layer; ``attention_types`` is the same in
    short.
    """
    if not config.get("attention_layers"):
        return None
    config.asked.add("attention_types")
    words = config.by_layer("attention_layers", count)
    return [str(FIELDS["layer_types"].get(str(word), word)) for word in words]


def _kimi_linear(config: Config, count: int) -> list[str] | None:
    """Read the numbers, from 1, of the layers with delta attention."""
    if not config.get("linear_attn_config"):
        return None
    recurrent = config.numbers("linear_attn_config_kda_layers")
    return ["linear" if layer in recurrent else "full" for layer in range(1, count + 1)]


def _lfm2(config: Config, count: int) -> list[str] | None:
    """Read the numbers, from 0, of the layers with attention; the others are convolutions."""
    if config.get("full_attn_idxs") is None:
        return None
    attends = config.numbers("full_attn_idxs")
    return ["full" if layer in attends else "conv" for layer in range(count)]


def _bamba(config: Config, count: int) -> list[str] | None:
    """Read the numbers, from 0, of the layers with attention; the others are recurrent, all of them
    where none are listed.
    """
    if config.get("attn_layer_indices") is not None:
        attends = config.numbers("attn_layer_indices")
        return ["full" if layer in attends else "linear" for layer in range(count)]
    if config.model_type in FIELDS["recurrent_unless_listed"]:
        return ["linear"] * count
    return None


LISTS: tuple[Reader, ...] = (_layer_types, _mimo, _gpt_neo, _kimi_linear, _lfm2, _bamba)
"""Readers of lists; the first that finds its list is taken."""


# ---- periods and windows


def _qwen3_next(config: Config, count: int) -> list[str] | None:
    """Read the period of full attention among recurrent layers."""
    interval = config.count("full_attention_interval", default=0, least=0)
    if not interval:
        return None
    return ["linear" if layer % interval else "full" for layer in range(1, count + 1)]


def _llama4(config: Config, count: int) -> list[str] | None:
    """Read which layers have rotary positions: those see a chunk, the others everything."""
    if not config.get("attention_chunk_size"):
        return None
    step = config.count("no_rope_layer_interval", default=4)
    if config.get("no_rope_layers"):
        rotary = config.by_layer("no_rope_layers", count)
    else:
        rotary = [layer % step for layer in range(1, count + 1)]
    return ["chunked" if flag else "full" for flag in rotary]


def _exaone4(config: Config, count: int) -> list[str] | None:
    """Read a period in letters, L for layers that see a window and G for those that see
    everything.
    """
    if not _sees_window(config):
        return None
    pattern = config.get("sliding_window_pattern")
    if not isinstance(pattern, str) or not pattern or not set(pattern) <= {"L", "G"}:
        return None
    letters = [pattern[layer % len(pattern)] for layer in range(count)]
    return ["full" if letter == "G" else "sliding" for letter in letters]


def _gemma(config: Config, count: int) -> list[str] | None:
    """Read the period of full attention among layers that see a window, and how many full layers
    stand before them (Qwen2).
    """
    if not _sees_window(config):
        return None
    period = config.count("sliding_window_pattern", default=count + 1)
    if config.get("use_sliding_window"):
        full_before = config.count("max_window_layers", default=0, least=0)
    else:
        full_before = 0
    shift = 0 if config.get("first_layer_is_full") else 1
    names = []
    for layer in range(count):
        is_full = layer < full_before or (layer + shift) % period == 0
        names.append("full" if is_full else "sliding")
    return names


def _sees_window(config: Config) -> bool:
    """Return whether a window is stated and not switched off."""
    return bool(config.get("sliding_window") and config.get("use_sliding_window", True))


def _llama(config: Config, count: int) -> list[str]:
    """Take full attention in all layers."""
    return ["full"] * count


RULES: tuple[Reader, ...] = (_qwen3_next, _llama4, _exaone4, _gemma, _llama)
"""Readers of periods and windows, for files without a list; the first that has its numbers is
taken.
"""


# ---- what some families lay over that


def _refuse_lightning(config: Config, count: int) -> None:
    """Refuse layers of lightning attention (MiniMax)."""
    if config.get("attn_type_list") and not all(config.by_layer("attn_type_list", count)):
        config.refuse(
            "attn_type_list", "0 means an attention that is not understood here (lightning)"
        )


def _with_blocks(config: Config, count: int, names: list[str]) -> list[str]:
    """Return the mixers with those in which an indexer chooses blocks of the context
    (MiniMax-M3).
    """
    has_blocks = config.get("sparse_attention_config") is not None
    if not config.get("sparse_attention_config_use_sparse_attention", has_blocks):
        return names
    flags = config.by_layer("sparse_attention_config_sparse_attention_freq", count)
    return ["blocks" if flag else name for flag, name in zip(flags, names, strict=False)]


def _indexers(config: Config, count: int) -> list[str]:
    """Return for each layer whether it has an indexer (full) or takes what an earlier one chose
    (shared).
    """
    every = config.count("index_topk_freq", default=1)
    first = config.count("index_skip_topk_offset", default=0, least=0)
    if config.get("indexer_types"):
        return [str(entry) for entry in config.by_layer("indexer_types", count)]
    names = []
    for layer in range(count):
        has_indexer = layer < first or (layer - first + 1) % every == 0
        names.append("full" if has_indexer else "shared")
    return names


# ---- MLPs


def mlps(config: Config, count: int) -> list[str]:
    """Return what follows each layer's mixer, of a model with experts."""
    with_experts = _with_experts(config, count)
    last = config.get("moe_layer_end_index", -1)
    if isinstance(last, int) and last >= 0:
        with_experts = [chosen and layer <= last for layer, chosen in enumerate(with_experts)]
    name = "both" if config.get("enable_moe_block") else "experts"
    return [name if chosen else "dense" for chosen in with_experts]


def _with_experts(config: Config, count: int) -> list[bool]:
    """Return for each layer whether it has experts, by a list of layers or by periods."""
    dense_before = config.count("first_k_dense_replace", default=0, least=0)
    step = config.count("decoder_sparse_step", default=1)
    always_dense = config.numbers("mlp_only_layers")
    listed = config.numbers("moe_layers")
    if isinstance(config.get("moe_layer_freq"), list):
        return [bool(entry) for entry in config.by_layer("moe_layer_freq", count)]
    if config.get("mlp_layer_types"):
        return [entry == "sparse" for entry in config.by_layer("mlp_layer_types", count)]
    if listed:
        return [layer in listed for layer in range(count)]
    step = config.count("interleave_moe_layer_step", default=step)
    every = config.count("moe_layer_freq", default=1)
    chosen = []
    for layer in range(count):
        may_have = layer >= dense_before and layer not in always_dense
        chosen.append(may_have and layer % every == 0 and (layer + 1) % step == 0)
    return chosen
