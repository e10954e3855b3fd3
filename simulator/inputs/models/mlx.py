"""Formats of MLX: a configuration states bits and group of all modules, and of those that differ.

``quantization`` holds ``bits``, ``group_size`` and ``mode`` (ml-explore/mlx-lm mlx_lm/utils.py
``quantize_model``), and under the path of a module what it has instead, or false: 16 bits. A matrix
whose rows are no multiple of the group stays in 16 bits. Embedding and LM head are quantised.
"""

import re
from typing import Any, NamedTuple

from simulator.core.cost.formats import FORMATS, StoredBits
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored.mixes import Tensor, averages, mlx_bits, tensors
from simulator.core.faults import BadInput
from simulator.core.plain import PlainMapping
from simulator.inputs.models.config_fields import HARMLESS, Config

OPTIONS = frozenset(("bits", "group_size", "mode", "quant_method", "linear_class"))
"""Keys that are no paths of modules."""
MODES = {"mxfp4": (4, 8, 32), "nvfp4": (4, 8, 16), "mxfp8": (8, 8, 32)}
"""Modes other than affine: bits of a weight, bits of a scale, and weights that share one
(``mx.quantize``).
"""
FORMATS_OF_MODES = {"mxfp4": "mxfp4", "nvfp4": "nvfp4_wo", "mxfp8": "fp8_wo"}
OF_A_MODULE = {"bits": 4, "group_size": 64}
"""What a module has that states something else (``nn.Linear.to_quantized``)."""
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
UNQUANTISED = 16.0
MODULES = {
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj", "in_proj_qkv", "in_proj_qkvz"),
    "output": ("o_proj", "dense"),
    "up": ("gate_proj", "up_proj", "gate_up_proj", "fc1", "w1", "w3"),
    "down": ("down_proj", "fc2", "w2"),
    "router": ("gate", "router", "gate.gate"),
    "mixer": (
        *("in_proj_z", "out_proj", "in_proj"),
        *("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "embed_q", "unembed_out"),
    ),
}
"""Last names of modules, by the part of a layer that they are."""
SMALL = re.compile(r".*(in_proj_[ab]|in_proj_ba|conv1d|shared_expert_gate|norm|embed_positions)")
"""Modules of so few weights that their bits count for nothing."""
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(.+)")


class Module(NamedTuple):
    """A module of a layer."""

    layer: int
    part: str
    name: str
    routed: bool


def is_mlx(stated: PlainMapping) -> bool:
    """Return whether a quantisation is one of MLX: bits and a group, and no method."""
    return "group_size" in stated and "bits" in stated and not stated.get("quant_method")


def format_name(stated: PlainMapping) -> str | None:
    """Return the format of most weights; None for one that is unknown."""
    mode = stated.get("mode", "affine")
    if mode != "affine":
        of_mode = MODES.get(str(mode))
        if of_mode is None or stated["group_size"] != of_mode[2]:
            return None
        return FORMATS_OF_MODES[str(mode)]
    name = f"mlx_{stated['bits']}"
    if stated["group_size"] != 64:
        name += f"_g{stated['group_size']}"
    if name in FORMATS:
        return name
    return None


def bits_of(stated: PlainMapping, module: Any) -> float | None:
    """Return the bits of a weight that a module has, true or nothing for those of all; None for a
    format that is not known.
    """
    if module is False:
        return UNQUANTISED
    own = {**OF_A_MODULE, **module} if isinstance(module, dict) else stated
    mode = str(own.get("mode", "affine"))
    if mode in MODES:
        bits, scale, group = MODES[mode]
        return bits + scale / group
    if own["bits"] not in BITS or own["group_size"] not in GROUPS or mode != "affine":
        return None
    return mlx_bits(own["bits"], own["group_size"])


OfLayers = dict[tuple[int, str, bool], dict[str, float]]
"""Bits by name of a module, by layer, part and whether it is of routed experts."""


def _of_modules(config: Config, stated: PlainMapping) -> tuple[dict[str, float], OfLayers]:
    """Return the bits of single modules: of embedding and LM head, and of matrices of layers.

    Raises :class:`BadInput` for a module of which nothing here tells the weights.
    """
    tables = dict[str, float]()
    of_layers: OfLayers = {}
    for path, module in stated.items():
        if path in OPTIONS or HARMLESS.fullmatch(path) or SMALL.fullmatch(path):
            continue
        bits = bits_of(stated, module)
        if bits is None:
            config.refuse("quantization", f"states of {path[:60]} what is no format here")
            continue
        last = path.rpartition(".")[2]
        if last in ("embed_tokens", "wte", "word_embeddings", "embedding", "lm_head", "output"):
            tables["head" if last in ("lm_head", "output") else "embedding"] = bits
            continue
        known = _module(path)
        if known is None:
            config.refuse("quantization", f"states bits of {path[:60]}, which is not known here")
            continue
        key = (known.layer, known.part, known.routed)
        of_layers.setdefault(key, {})[known.name] = bits
    if config.faults:
        raise BadInput(dict.fromkeys(config.faults))
    return tables, of_layers


def stored(config: Config, model: ModelSpec, stated: PlainMapping) -> StoredBits:
    """Return the bits a weight of a model by group of tensors, with what single modules have.

    Raises :class:`BadInput` for a module of which nothing here tells the weights.
    """
    tables, of_layers = _of_modules(config, stated)
    usual = bits_of(stated, True) or UNQUANTISED
    embedding = tables.get("embedding", _fitting(stated, usual, model.hidden_size))
    head = tables.get("head", _fitting(stated, usual, model.hidden_size))

    def bits_of_tensor(tensor: Tensor) -> float:
        own = of_layers.get((tensor.layer, tensor.part, tensor.routed), {})
        rest = _fitting(stated, usual, tensor.inputs)
        of_part = 1 if len(MODULES[tensor.part]) == 1 or tensor.part != "up" else 2
        if "gate_up_proj" in own or model.mlp != "gated":
            of_part = 1
        others = max(0, of_part - len(own))
        return (sum(own.values()) + others * rest) / (len(own) + others)

    return averages(
        ((tensor, bits_of_tensor(tensor)) for tensor in tensors(model)),
        embedding=embedding if not model.tie_word_embeddings else tables.get("embedding", head),
        head=tables.get("embedding", head) if model.tie_word_embeddings else head,
        usual=usual,
    )


def _fitting(stated: PlainMapping, bits: float, inputs: int) -> float:
    """Return the bits of a matrix with so many inputs, which its groups divide, or it has 16."""
    if inputs % stated["group_size"]:
        return UNQUANTISED
    return bits


def _module(path: str) -> Module | None:
    """Return the module of a layer that a path names; None for any other."""
    named = LAYER.search(path)
    if named is None:
        return None
    layer = int(named[1])
    names = named[2].split(".")
    routed = any(name in ("switch_mlp", "experts") for name in names)
    for part, modules in MODULES.items():
        if names[-1] in modules:
            return Module(layer, part, names[-1], routed)
    return None
