"""The format of the weights that the id of a checkpoint names: ``Qwen/Qwen3-32B-FP8``,
``Qwen/Qwen3-32B-AWQ``, ``unsloth/Qwen3-32B-GGUF:Q4_K_M``.

Publishers have no common rule, so that only endings are read that mean one thing. One that leaves
the number of bits open (``-GPTQ``, ``-4bit``, ``-GGUF``) is refused with the names that say it.
"""

import re
from typing import NamedTuple

from simulator.core.cost.formats import FORMATS
from simulator.core.faults import BadInput

BLOCKS_OF_FP8 = ("qwen", "deepseek-ai")
"""Owners whose checkpoints in FP8 have a scale for each block of 128 x 128 weights: config.json of
Qwen/Qwen3-32B-FP8 and deepseek-ai/DeepSeek-V3 (``weight_block_size``).
"""
ENDINGS: dict[str, str] = {
    r"fp8[-_]block": "fp8_block",
    r"fp8(?:[-_]dynamic|[-_]kv)?": "fp8",
    r"nvfp4a16": "nvfp4_wo",
    r"(?:nv)?fp4": "nvfp4",
    r"mxfp4": "mxfp4",
    r"awq(?:[-_]int4)?": "int4",
    r"gptq[-_]int4": "int4",
    r"gptq[-_]int8": "int8_wo",
    r"(?:quantized\.)?w8a8": "int8",
    r"(?:quantized\.)?w8a16": "int8_wo",
    r"(?:quantized\.)?w4a16": "int4",
    r"mlx[-_]([234568])bit": r"mlx_\1",
}
"""Formats by how ids end, the longer endings first."""
OPEN: dict[str, str] = {
    r"gptq": "{base}-GPTQ-Int4 or {base}-GPTQ-Int8",
    r"(?:bnb[-_])?(?:int[48]|[48][-_]?bits?)": (
        "{base}-GPTQ-Int4, {base}-AWQ, {base}-W8A8 or {base}-MLX-4bit"
    ),
    r"gguf": "{name}:Q4_K_M, with the quantisation behind the colon",
}
"""Endings that leave the format open, with names that do not."""


class QuantisedId(NamedTuple):
    """An id taken apart: the model that was quantised, and the format of its weights."""

    base: str
    """The id without its ending."""
    weights: str


def quantised(name: str, option: str) -> QuantisedId | None:
    """Return what an id says of its weights; None where it says nothing.

    Raises :class:`BadInput` for an ending that leaves the format open, and for a quantisation of
    GGUF that there is none.
    """
    stem, colon, quantisation = name.partition(":")
    if colon:
        base = re.sub(r"[-_]gguf$", "", stem, flags=re.IGNORECASE)
        return QuantisedId(base, _of_gguf(quantisation, option))
    owner = name.partition("/")[0].lower()
    for ending, weights in ENDINGS.items():
        match = re.fullmatch(rf"(.+?)[-_]{ending}", name, re.IGNORECASE)
        if match:
            form = match.expand(weights)
            if form == "fp8" and owner in BLOCKS_OF_FP8:
                form = "fp8_block"
            return QuantisedId(match[1], form)
    if owner == "mlx-community" and (match := re.fullmatch(r"(.+)-([234568])bit", name)):
        return QuantisedId(match[1], f"mlx_{match[2]}")
    for ending, names in OPEN.items():
        match = re.fullmatch(rf"(.+?)[-_](?:{ending})", name, re.IGNORECASE)
        if match:
            says = names.format(base=match[1], name=name)
            raise BadInput.at(option, f"leaves the format of its weights open; name {says}")
    return _named_after_its_file(name)


def _of_gguf(quantisation: str, option: str) -> str:
    """Return the format of a quantisation of GGUF, as llama.cpp and Ollama name it."""
    form = quantisation.lower().replace("-", "_")
    if form == "f16":
        return "fp16"
    if form not in FORMATS:
        message = (
            f"'{quantisation}' is no quantisation of GGUF; those are Q4_K_M, Q8_0, IQ4_XS, ..."
        )
        raise BadInput.at(option, message)
    return form


def _named_after_its_file(name: str) -> QuantisedId | None:
    """Return an id that ends like the file of a quantisation: ``Qwen3-32B-Q4_K_M``."""
    match = re.fullmatch(r"(.+?)-((?:UD-)?I?Q\d_\w+)", name, re.IGNORECASE)
    if match is None:
        return None
    form = match[2].lower().replace("-", "_")
    return QuantisedId(match[1], form) if form in FORMATS else None
