"""Number formats of weights, of what products take in, and of the KV cache: their bytes, and the
arithmetic that they need.

A format that quantises activations (W8A8, W4A4) computes at a peak of its own; a weight-only format
(W8A16, W4A16) is widened to 16 bits in the kernel and computes at the 16-bit peak of any device.
"""

import re
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.config import JsonDict

from simulator.core.cost.stored import ggml
from simulator.core.faults import told
from simulator.core.nearness import nearest_name
from simulator.core.quantities import Frozen

Arithmetic = Literal["fp16", "fp8", "int8", "nvfp4"]
"""What a product computes in; ``fp16`` stands for every 16-bit format, for which a device states
``peak_tflops``.
"""
ACTIVATION_BYTES = 2
"""Bytes of one element of a hidden state."""


class NumberFormat(NamedTuple):
    """A number format of weights."""

    weight_bytes: float
    """Bytes per weight, scales included."""
    arithmetic: Arithmetic = "fp16"
    """What products compute in."""
    quantised_bytes: float = 0.0
    """Bytes of one input of a product once it is quantised, scales included; 0: inputs stay in 16
    bits.
    """
    tables_in_16_bits: bool = False
    """Whether checkpoints leave embedding and LM head in 16 bits (``ignore: [lm_head]`` of
    compressed-tensors; AWQ).
    """
    curves: tuple[str, ...] = ()
    """Formats whose kernels stand in, the nearest first, where a device has no curve for this
    one.
    """

    block: tuple[int, int] = (1, 1)
    """Outputs and inputs of a product whose weights share a scale: a slice of a weight may have to
    end where a block does.
    """

    @property
    def input_bytes(self) -> float:
        """Return the bytes that one input of a product moves: read; quantised, it is also written
        and read again.
        """
        return ACTIVATION_BYTES + 2.0 * self.quantised_bytes

    @property
    def weight_only(self) -> Self:
        """Return the same weights, computed in 16 bits."""
        return self._replace(arithmetic="fp16", quantised_bytes=0.0)

    def product_bytes(self, inputs: float, outputs: float, rows: float, weights: float) -> float:
        """Return the bytes that a product of ``rows`` moves: ``weights``, its inputs, and its
        outputs in 16 bits.
        """
        return weights * self.weight_bytes + rows * (
            inputs * self.input_bytes + outputs * ACTIVATION_BYTES
        )


def _of_type(name: str) -> NumberFormat:
    """Return the format of all weights in a type of GGUF."""
    kind = ggml.TYPES[name]
    return NumberFormat(weight_bytes=kind.size / kind.weights, block=(1, kind.weights))


def _of_mix(usual: str, bits: float) -> NumberFormat:
    """Return the format of a mix of GGUF of so many bits a weight, most of which have the ``usual``
    type, whose kernels stand in.
    """
    block = (1, ggml.TYPES[usual].weights)
    return NumberFormat(weight_bytes=bits / 8.0, block=block, curves=(usual,))


def _of_mlx() -> dict[str, NumberFormat]:
    """Return the formats of MLX by name: a group of 64, 32 or 128 weights has a scale and a bias of
    16 bits each (ml-explore/mlx ``mx.quantize``); recipes mix two numbers of bits.
    """
    formats = {}
    for bits in (2, 3, 4, 5, 6, 8):
        for group, ending in ((64, ""), (32, "_g32"), (128, "_g128")):
            size = (bits + 32 / group) / 8
            formats[f"mlx_{bits}{ending}"] = NumberFormat(weight_bytes=size, block=(1, group))
    for recipe, mean in (("2_6", 3.5), ("3_4", 3.7), ("3_6", 4.2), ("4_6", 5.0)):
        formats[f"mlx_mixed_{recipe}"] = NumberFormat(weight_bytes=mean / 8, block=(1, 64))
    return formats


FORMATS = {
    "fp32": NumberFormat(weight_bytes=4.0),
    "fp16": NumberFormat(weight_bytes=2.0),
    "bf16": NumberFormat(weight_bytes=2.0),
    "fp8": NumberFormat(
        weight_bytes=1.0, arithmetic="fp8", quantised_bytes=1.0, tables_in_16_bits=True
    ),
    # a scale of 4 bytes for a block of 128 x 128 weights, and for 128 inputs
    "fp8_block": NumberFormat(
        weight_bytes=1.000244140625,
        arithmetic="fp8",
        quantised_bytes=1.03125,
        tables_in_16_bits=True,
        curves=("fp8",),
        block=(128, 128),
    ),
    "fp8_wo": NumberFormat(weight_bytes=1.0, tables_in_16_bits=True),
    "int8": NumberFormat(
        weight_bytes=1.0, arithmetic="int8", quantised_bytes=1.0, tables_in_16_bits=True
    ),
    "int8_wo": NumberFormat(weight_bytes=1.0, tables_in_16_bits=True),
    # a scale of 2 bytes for 128 weights of a row (GPTQ, AWQ)
    "int4": NumberFormat(weight_bytes=0.515625, tables_in_16_bits=True, block=(1, 128)),
    # a scale of 1 byte for 16 weights
    "nvfp4": NumberFormat(
        weight_bytes=0.5625,
        arithmetic="nvfp4",
        quantised_bytes=0.5625,
        tables_in_16_bits=True,
        block=(1, 16),
    ),
    "nvfp4_wo": NumberFormat(
        weight_bytes=0.5625, tables_in_16_bits=True, curves=("int4",), block=(1, 16)
    ),
    # a scale of 1 byte for 32 weights
    "mxfp4": NumberFormat(
        weight_bytes=0.53125, tables_in_16_bits=True, curves=("int4",), block=(1, 32)
    ),
    # a scale of 2 bytes for 32 or 64 weights, or for an output (GPTQ, AWQ)
    "int4_g32": NumberFormat(
        weight_bytes=0.5625, tables_in_16_bits=True, curves=("int4",), block=(1, 32)
    ),
    "int4_g64": NumberFormat(
        weight_bytes=0.53125, tables_in_16_bits=True, curves=("int4",), block=(1, 64)
    ),
    "int4_channel": NumberFormat(weight_bytes=0.5, tables_in_16_bits=True, curves=("int4",)),
    "int3": NumberFormat(weight_bytes=0.390625, tables_in_16_bits=True, block=(1, 128)),
    "int2": NumberFormat(weight_bytes=0.265625, tables_in_16_bits=True, block=(1, 128)),
    # types of GGUF, the same for all weights
    "q8_0": NumberFormat(weight_bytes=1.0625, block=(1, 32)),
    "q6_k": _of_type("q6_k"),
    "q5_k": _of_type("q5_k"),
    "q4_k": _of_type("q4_k"),
    "q3_k": _of_type("q3_k"),
    "q4_0": _of_type("q4_0"),
    # mixes of GGUF, in the bits of Llama-3.1-8B (llama.cpp 311c2c9 tools/quantize/README.md); those
    # of a model follow from the rules of the mix (mixes.py)
    "mostly_q4_0": _of_mix("q4_0", 4.63),
    "q4_1": _of_mix("q4_1", 5.10),
    "q5_0": _of_mix("q5_0", 5.57),
    "q5_1": _of_mix("q5_1", 6.04),
    "q2_k": _of_mix("q2_k", 3.1593),
    "q2_k_s": _of_mix("q2_k", 2.9697),
    "q2_k_l": _of_mix("q2_k", 3.68),
    "q3_k_s": _of_mix("q3_k", 3.6429),
    "q3_k_m": _of_mix("q3_k", 3.9960),
    "q3_k_l": _of_mix("q3_k", 4.2979),
    "q3_k_xl": _of_mix("q3_k", 4.76),
    "q4_k_s": _of_mix("q4_k", 4.6672),
    "q4_k_m": _of_mix("q4_k", 4.8944),
    "q4_k_l": _of_mix("q4_k", 5.28),
    "q5_k_s": _of_mix("q5_k", 5.5704),
    "q5_k_m": _of_mix("q5_k", 5.7),
    "q5_k_l": _of_mix("q5_k", 6.03),
    "q6_k_l": _of_mix("q6_k", 6.82),
    "ud_q2_k_xl": _of_mix("q2_k", 3.1593),
    "ud_q3_k_xl": _of_mix("q3_k", 3.9960),
    "ud_q4_k_xl": _of_mix("q4_k", 4.8944),
    "ud_q5_k_xl": _of_mix("q5_k", 5.7),
    "ud_q6_k_xl": _of_mix("q6_k", 6.5633),
    "iq1_s": _of_mix("iq1_s", 2.0042),
    "iq1_m": _of_mix("iq1_m", 2.1460),
    "iq2_xxs": _of_mix("iq2_xxs", 2.3824),
    "iq2_xs": _of_mix("iq2_xs", 2.5882),
    "iq2_s": _of_mix("iq2_xs", 2.7403),
    "iq2_m": _of_mix("iq2_s", 2.9294),
    "iq3_xxs": _of_mix("iq3_xxs", 3.2548),
    "iq3_xs": _of_mix("iq3_s", 3.4977),
    "iq3_s": _of_mix("iq3_s", 3.6606),
    "iq3_m": _of_mix("iq3_s", 3.7628),
    "iq4_xs": _of_mix("iq4_xs", 4.4597),
    "iq4_nl": _of_mix("iq4_nl", 4.6818),
    "tq1_0": _of_mix("tq1_0", 2.0),
    "tq2_0": _of_mix("tq2_0", 2.4),
    "mxfp4_moe": _of_mix("mxfp4", 4.4),
    **_of_mlx(),
}
"""Formats of weights, by name."""
WEIGHT_BYTES = {name: form.weight_bytes for name, form in FORMATS.items()}
"""Bytes per weight, scales included; of a mix those of Llama-3.1-8B."""
MEANT = {
    "awq": "int4",
    "awq_int4": "int4",
    "gptq": "int4",
    "gptq_int4": "int4",
    "w4a16": "int4",
    "int4_g128": "int4",
    "w8a8": "int8",
    "w8a16": "int8_wo",
    "float32": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "q4_0_file": "mostly_q4_0",
}
"""Formats by other names that people give them."""


WRITTEN = (
    "fp16, bf16, fp8, fp8_block, int8, int4 (AWQ, GPTQ), nvfp4, mxfp4; of GGUF as in Q4_K_M, of "
    "MLX as in mlx_4"
)
"""Formats in words, for who wrote another one."""


def format_name(stated: object) -> object:
    """Return the name here of a format as people write it: Q4_K_M, UD-Q4_K_XL, MLX-4bit, mlx_4_g64,
    AWQ; what is no text is returned as it is.
    """
    if not isinstance(stated, str):
        return stated
    name = re.sub(r"[\s-]+", "_", stated.strip().lower())
    name = re.sub(r"^(?:mlx_(\d)_?bits?|(\d)_?bits?_mlx)(?=_|$)", r"mlx_\1\2", name)
    name = re.sub(r"^(mlx_\d)_(?:g64|group_64)$", r"\1", name)
    return MEANT.get(name, name)


WeightName = Literal[
    "fp32",
    "fp16",
    "bf16",
    "fp8",
    "fp8_block",
    "fp8_wo",
    "int8",
    "int8_wo",
    "int4",
    "nvfp4",
    "nvfp4_wo",
    "mxfp4",
    "int4_g32",
    "int4_g64",
    "int4_channel",
    "int3",
    "int2",
    "q8_0",
    "q6_k",
    "q5_k",
    "q4_k",
    "q3_k",
    "q4_0",
    "mostly_q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q2_k",
    "q2_k_s",
    "q2_k_l",
    "q3_k_s",
    "q3_k_m",
    "q3_k_l",
    "q3_k_xl",
    "q4_k_s",
    "q4_k_m",
    "q4_k_l",
    "q5_k_s",
    "q5_k_m",
    "q5_k_l",
    "q6_k_l",
    "ud_q2_k_xl",
    "ud_q3_k_xl",
    "ud_q4_k_xl",
    "ud_q5_k_xl",
    "ud_q6_k_xl",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq2_m",
    "iq3_xxs",
    "iq3_xs",
    "iq3_s",
    "iq3_m",
    "iq4_xs",
    "iq4_nl",
    "tq1_0",
    "tq2_0",
    "mxfp4_moe",
    "mlx_2",
    "mlx_2_g32",
    "mlx_2_g128",
    "mlx_3",
    "mlx_3_g32",
    "mlx_3_g128",
    "mlx_4",
    "mlx_4_g32",
    "mlx_4_g128",
    "mlx_5",
    "mlx_5_g32",
    "mlx_5_g128",
    "mlx_6",
    "mlx_6_g32",
    "mlx_6_g128",
    "mlx_8",
    "mlx_8_g32",
    "mlx_8_g128",
    "mlx_mixed_2_6",
    "mlx_mixed_3_4",
    "mlx_mixed_3_6",
    "mlx_mixed_4_6",
]


def _known(stated: object) -> object:
    """Return the name of a format as it is here; raises :class:`ValueError` for an unknown one."""
    name = format_name(stated)
    if not isinstance(name, str) or name in FORMATS:
        return name
    near = nearest_name(name, FORMATS)
    meant = f"; did you mean '{near}'?" if near else f": {WRITTEN}"
    raise ValueError(f"there is no format of weights {told(stated)}{meant}")


AS_PEOPLE_WRITE: JsonDict = {
    "anyOf": [{"enum": [*FORMATS]}, {"type": "string", "pattern": "[A-Z -]|bit"}]
}
"""What an editor takes for a format: a name here, or one in capitals, with blanks or hyphens."""
WeightFormat = Annotated[WeightName, BeforeValidator(_known), WithJsonSchema(AS_PEOPLE_WRITE)]
"""A format of weights by name, in any case."""


class StoredBits(Frozen):
    """Stored bits are those of a weight, scales included, by group of tensors: averages over a
    group's weights.
    """

    block_bits: float = Field(gt=0, le=64)
    """Matrices of layers other than routed experts."""
    expert_bits: float = Field(gt=0, le=64)
    """Routed experts; as ``block_bits`` where there are none."""
    embedding_bits: float = Field(gt=0, le=64)
    """The embedding; as ``head_bits`` where it is also the LM head."""
    head_bits: float = Field(gt=0, le=64)
    """The LM head."""


CacheFormat = Literal["fp16", "bf16", "fp8", "int8", "int4"]
CACHE_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4 / 128, "int4": 0.5 + 4 / 128}
"""Bytes of a cached value. Integers: a 16-bit scale and zero for each head of 128 values
(LMDeploy); fp8: one for a tensor.
"""
