"""Number formats of weights, of what products take in, and of the KV cache: their bytes, and the
arithmetic that they need.

A format that quantises activations (W8A8, W4A4) computes at a peak of its own; a weight-only format
(W8A16, W4A16) is widened to 16 bits in the kernel and computes at the 16-bit peak of any device.
"""

from typing import Literal, NamedTuple, Self

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
    # GGUF: 32 weights in 34 bytes
    "q8_0": NumberFormat(weight_bytes=1.0625, block=(1, 32)),
    # GGUF: 5.7 bits a weight
    "q5_k_m": NumberFormat(weight_bytes=0.7125, block=(1, 256)),
    # GGUF: 4.5 bits a weight
    "q4_k": NumberFormat(weight_bytes=0.5625, block=(1, 256)),
    # GGUF: 32 weights in 18 bytes
    "q4_0": NumberFormat(weight_bytes=0.5625, block=(1, 32)),
}
"""Formats of weights, by name."""
WEIGHT_BYTES = {name: form.weight_bytes for name, form in FORMATS.items()}
"""Bytes per weight, scales included."""
WeightFormat = Literal[
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
    "q8_0",
    "q5_k_m",
    "q4_k",
    "q4_0",
]

CacheFormat = Literal["fp16", "bf16", "fp8", "int8", "int4"]
CACHE_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4 / 128, "int4": 0.5 + 4 / 128}
"""Bytes of a cached value. Integers: a 16-bit scale and zero for each head of 128 values
(LMDeploy); fp8: one for a tensor.
"""
