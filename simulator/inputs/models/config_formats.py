"""Formats in which a Hugging Face checkpoint was published: of its weights, its routed experts and
its KV cache.
"""

import re
from pathlib import Path
from typing import Any

from simulator.core.cost.formats import CACHE_BYTES
from simulator.core.plain import PlainMapping
from simulator.inputs.models.config_fields import FIELDS, Config, load_config


def formats_of(config: Config, file: Path) -> dict[str, str]:
    """Return the formats in which weights, routed experts and KV cache were published, by the field
    of a model that takes each.

    Nothing is said of what is not quantised, and of experts in the format of the other weights.
    """
    stated = _stated(config, file)
    if stated is None:
        return {}
    cache = _cache_format(config, stated)
    if cache and not any(stated.get(name) for name in FIELDS["of_weights"]):
        return cache  # of the cache alone
    weights, experts = _weight_formats(config, stated)
    if weights is None or experts is None:
        config.refuse(
            "quantization_config", f"holds no format that is known here: {str(stated)[:60]}"
        )
        return {}
    of_experts = {"expert_format": experts} if experts != weights else {}
    return {"weight_format": weights} | of_experts | cache


def _stated(config: Config, file: Path) -> PlainMapping | None:
    """Return what a configuration, or the file that ModelOpt writes beside it, says of its
    quantisation; None for nothing.
    """
    stated = config.get("quantization_config")
    companion = file.with_name(file.name.replace("config.json", "hf_quant_config.json"))
    if stated is None and companion != file and companion.is_file():
        stated = load_config(companion).data.get("quantization")
    if isinstance(stated, dict):
        return stated
    return None


def _weight_formats(config: Config, stated: PlainMapping) -> tuple[str | None, str | None]:
    """Return the formats of weights and of routed experts that a quantisation states; None for one
    that is unknown.
    """
    everywhere = _named(stated.get("quant_method"), stated) or _named(
        stated.get("quant_algo"), stated
    )
    of_modules, of_experts = _of_modules(stated)
    for_experts = stated.get("moe_quant_algo") or config.get("expert_dtype") or of_experts
    experts = _named(for_experts, {}) if for_experts else everywhere
    weights = everywhere or _named(of_modules, {})
    if (
        config.get("num_experts")
        and not for_experts
        and re.search(FIELDS["attention_left_out"], str(stated))
    ):
        weights = "bf16"
    return weights, experts


def _of_modules(stated: PlainMapping) -> tuple[Any, Any]:
    """Return the algorithms of the first module without routed experts in a list of modules, and of
    the first with them.
    """
    listed = stated.get("quantized_layers")
    modules = listed.items() if isinstance(listed, dict) else ()
    others = list[Any]()
    experts = list[Any]()
    for name, module in modules:
        if isinstance(module, dict):
            routed = "expert" in name and "shared" not in name
            (experts if routed else others).append(module.get("quant_algo"))
    return next(iter(others), None), next(iter(experts), None)


def _cache_format(config: Config, stated: PlainMapping) -> dict[str, str]:
    """Return the format of the KV cache that a quantisation states, with scales for it; empty for
    16 bits.
    """
    scheme = stated.get("kv_cache_scheme") or stated.get("kv_cache_quant_algo")
    if not scheme:
        return {}
    if isinstance(scheme, dict):
        word = f"{scheme.get('type')}{scheme.get('num_bits')}"
    else:
        word = str(scheme).lower()
    if word not in FIELDS["cache_formats"]:
        config.refuse(
            "kv_cache_scheme" if stated.get("kv_cache_scheme") else "kv_cache_quant_algo",
            f"is no format of a KV cache that is known here: {str(scheme)[:60]}; leave it out "
            "of a copy of the file and state "
            f"kv_cache where the model is placed: {', '.join(CACHE_BYTES)}",
        )
    known = FIELDS["cache_formats"].get(word)
    if known:
        return {"cache_format": str(known)}
    return {}


def _named(name: object, quantisation: PlainMapping) -> str | None:
    """Return the format that a quantisation means by its name, or by the bits of its first group;
    None for an unknown one.
    """
    known = FIELDS["formats"].get(str(name).lower())
    if known is not None:
        if known == "fp8" and quantisation.get("weight_block_size"):
            return "fp8_block"
        return str(known)
    groups = quantisation.get("config_groups")
    group: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    bits = group.get("weights", {}) if isinstance(group, dict) else {}
    bits = {**quantisation, **(bits if isinstance(bits, dict) else {})}
    word = (
        f"{bits.get('type', 'int')}{bits.get('num_bits', bits.get('bits'))} of "
        f"{bits.get('group_size')}"
    )
    return next(
        (str(form) for pattern, form in FIELDS["bits"].items() if re.fullmatch(pattern, word)), None
    )
