"""Which mixer and which MLP each layer of a Hugging Face configuration has, by its lists, periods
and windows.
"""

from simulator.cost.checkpoint.config_fields import FIELDS, Config


def mixer_names(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer."""
    if config.get("compress_ratios"):
        return [f"compressed {entry}" for entry in config.by_layer("compress_ratios", count)]
    sparse = config.get(
        "sparse_attention_config_use_sparse_attention",
        config.get("sparse_attention_config") is not None,
    )
    full = "latent" if config.get("kv_lora_rank") else "full"
    names = [
        full if name == "full" else name
        for name in _listed(config, count) or _computed(config, count)
    ]
    if config.get("attn_type_list") and not all(config.by_layer("attn_type_list", count)):
        config.refuse(
            "attn_type_list", "0 means an attention that is not understood here (lightning)"
        )
    if sparse:
        chosen = config.by_layer("sparse_attention_config_sparse_attention_freq", count)
        names = ["blocks" if entry else name for entry, name in zip(chosen, names, strict=False)]
    if config.get("index_topk"):
        names = [f"latent_sparse {own}" for own in _indexers(config, count)]
    return names


def _listed(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer where a list says; empty where none does."""
    config.asked.update(
        key for name in FIELDS["beside_lists"] for key in FIELDS["names"].get(name, [name])
    )
    for key in ("layer_types", "hybrid_layer_pattern", "attention_layers"):
        if config.get(key):
            if key == "attention_layers":
                config.asked.add("attention_types")  # the same, in short
            return [_mixer_of(key, entry) for entry in config.by_layer(key, count)]
    if config.get("linear_attn_config"):
        kda = config.numbers("linear_attn_config_kda_layers")
        return ["linear" if layer in kda else "full" for layer in range(1, count + 1)]
    for key, others in FIELDS["only_full"].items():
        if config.get(key) is not None:
            attends = config.numbers(key)
            return ["full" if layer in attends else others for layer in range(count)]
    if config.model_type in FIELDS["recurrent_unless_listed"]:
        return ["linear"] * count
    return []


def _mixer_of(key: str, entry: object) -> str:
    """Return the name of a mixer that an entry of the list ``key`` means."""
    if key == "hybrid_layer_pattern":
        if entry:
            return "sliding"
        return "full"
    return str(FIELDS["layer_types"].get(str(entry), entry))


def _computed(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer, by periods and windows."""
    window = config.get("sliding_window")
    chunk = config.get("attention_chunk_size")
    if interval := config.count("full_attention_interval", default=0, least=0):
        return ["full" if (layer + 1) % interval == 0 else "linear" for layer in range(count)]
    if chunk:
        return _chunked(config, count)
    if window and config.get("use_sliding_window", True):
        return _sliding(config, count)
    return ["full"] * count


def _chunked(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer where layers with rotary positions see a chunk, those
    without see everything.
    """
    step = config.count("no_rope_layer_interval", default=4)
    every = [(layer + 1) % step for layer in range(count)]
    rotary = config.by_layer("no_rope_layers", count) if config.get("no_rope_layers") else every
    return ["chunked" if entry else "full" for entry in rotary]


def _sliding(config: Config, count: int) -> list[str]:
    """Return the name of each layer's mixer where some see a window: by a pattern of letters, or
    all but every so many.
    """
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"} and pattern:
        return [
            "full" if pattern[layer % len(pattern)] == "G" else "sliding" for layer in range(count)
        ]
    every_so_many = config.count("sliding_window_pattern", default=count + 1)
    if config.get("use_sliding_window"):
        first = config.count("max_window_layers", default=0, least=0)
    else:
        first = 0
    shift = 0 if config.get("first_layer_is_full") else 1
    return [
        "full" if layer < first or (layer + shift) % every_so_many == 0 else "sliding"
        for layer in range(count)
    ]


def _indexers(config: Config, count: int) -> list[str]:
    """Return for each layer whether it has an indexer (full) or takes what an earlier one chose
    (shared).
    """
    every = config.count("index_topk_freq", default=1)
    first = config.count("index_skip_topk_offset", default=0, least=0)
    if config.get("indexer_types"):
        return [str(entry) for entry in config.by_layer("indexer_types", count)]
    return [
        "full" if layer < first or (layer - first + 1) % every == 0 else "shared"
        for layer in range(count)
    ]


def mlps(config: Config, count: int) -> list[str]:
    """Return what follows each layer's mixer, of a model with experts."""
    sparse = _with_experts(config, count)
    last = config.get("moe_layer_end_index", -1)
    if isinstance(last, int) and last >= 0:
        sparse = [chosen and layer <= last for layer, chosen in enumerate(sparse)]
    with_experts = "both" if config.get("enable_moe_block") else "experts"
    return [with_experts if chosen else "dense" for chosen in sparse]


def _with_experts(config: Config, count: int) -> list[bool]:
    """Return for each layer whether it has experts, by a list of layers or by periods."""
    first = config.count("first_k_dense_replace", default=0, least=0)
    step = config.count("decoder_sparse_step", default=1)
    only = config.numbers("mlp_only_layers")
    listed = config.numbers("moe_layers")
    if isinstance(config.get("moe_layer_freq"), list):
        return [bool(entry) for entry in config.by_layer("moe_layer_freq", count)]
    if config.get("mlp_layer_types"):
        return [entry == "sparse" for entry in config.by_layer("mlp_layer_types", count)]
    if listed:
        return [layer in listed for layer in range(count)]
    step = config.count("interleave_moe_layer_step", default=step)
    every = config.count("moe_layer_freq", default=1)
    return [
        i >= first and i % every == 0 and (i + 1) % step == 0 and i not in only
        for i in range(count)
    ]
