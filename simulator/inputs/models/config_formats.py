"""Formats in which a Hugging Face checkpoint was published: of its weights, its routed experts and
its KV cache.
"""

import re
from pathlib import Path
from typing import Any

from simulator.core.cost.formats import CACHE_BYTES
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs.models import mlx
from simulator.inputs.models.config_fields import FIELDS, Config, load_config


def formats_of(config: Config, file: Path) -> dict[str, str]:
    """Return the formats in which weights, routed experts and KV cache were published, by the field
    of a model that takes each.

    Nothing is said of what is not quantised, and of experts in the format of the other weights.
    """
    stated = quantisation(config, file)
    if stated is None:
        return {}
    if mlx.is_mlx(stated):
        return _of_mlx(config, stated)
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


def _of_mlx(config: Config, stated: PlainMapping) -> dict[str, str]:
    """Return the format of most weights of a quantisation of MLX."""
    form = mlx.format_name(stated)
    if form is None:
        mode = stated.get("mode", "affine")
        config.refuse(
            "quantization",
            f"states {str(stated['bits'])[:20]} bits in groups of {str(stated['group_size'])[:20]} "
            f"({str(mode)[:20]}), which is no format here",
        )
        return {}
    return {"weight_format": form}


def quantisation(config: Config, file: Path) -> PlainMapping | None:
    """Return what a configuration, or the file that ModelOpt writes beside it, says of its
    quantisation; None for nothing.
    """
    of_mlx = config.data.get("quantization")
    stated = config.get("quantization_config")
    if isinstance(of_mlx, dict) and mlx.is_mlx(of_mlx):
        config.get("quantization")  # another one is not understood
        return of_mlx
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
    without_attention = re.search(FIELDS["attention_left_out"], str(_left_out(stated)))
    if without_attention and not config.get("num_experts"):
        config.refuse(
            "quantization_config",
            "leaves attention in 16 bits and quantises the MLPs of a model without experts, "
            "which is no format here",
        )
    elif without_attention and not for_experts:
        weights = "bf16"
    return weights, experts


def _left_out(stated: PlainMapping) -> list[Any]:
    """Return what a quantisation leaves out: by the names that lists of modules have, by a minus
    (GPTQModel), or as modules in 16 bits (AutoRound).
    """
    found = [stated.get(key) for key in FIELDS["left_out"]]
    dynamic = stated.get("dynamic")
    if isinstance(dynamic, dict):
        found += [name for name in dynamic if str(name).startswith("-:")]
    extra = stated.get("extra_config")
    if isinstance(extra, dict):
        for name, module in extra.items():
            if isinstance(module, dict) and module.get("bits") in (16, 32):
                found.append(name)
    return found


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
    if isinstance(groups, dict) and groups:
        forms = {_of_group(quantisation, group) for group in groups.values()}
        return forms.pop() if len(forms) == 1 else None
    method = quantisation.get("quant_method")
    if _differs_by_module(quantisation) or method not in (None, *FIELDS["methods_of_bits"]):
        return None
    return _of_group(quantisation, {})


def _of_group(quantisation: PlainMapping, group: Any) -> str | None:
    """Return the format of a group of a quantisation by its bits; None for one that is unknown."""
    group = group if isinstance(group, dict) else {}
    weights = group.get("weights")
    bits = {**quantisation, **(weights if isinstance(weights, dict) else {})}
    kind = str(bits.get("type") or FIELDS["data_types"].get(str(bits.get("data_type")), "int"))
    size = bits.get("num_bits", bits.get("bits"))
    word = f"{kind}{size} of {bits.get('group_size')}"
    inputs = group.get("input_activations", quantisation.get("act_bits"))
    if isinstance(inputs, dict):
        word += f" by {inputs.get('type', 'int')}{inputs.get('num_bits')}"
    elif "input_activations" in group:
        word += " by 16"
    elif isinstance(inputs, int) and inputs < 16:
        word += f" by int{inputs}"
    return next(
        (str(form) for pattern, form in FIELDS["bits"].items() if re.fullmatch(pattern, word)), None
    )


def _differs_by_module(quantisation: PlainMapping) -> bool:
    """Return whether single modules have bits of their own (GPTQModel, AutoRound) other than 16."""
    of_modules: PlainData = {}
    for key in ("dynamic", "extra_config"):
        stated = quantisation.get(key)
        if isinstance(stated, dict):
            of_modules |= stated
    usual = quantisation.get("bits")
    return any(
        isinstance(module, dict) and module.get("bits", usual) not in (usual, 16, 32)
        for module in of_modules.values()
    )
