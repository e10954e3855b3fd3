"""Types of tensors in a GGUF file: their numbers there, and weights and bytes of a block.

Blocks are those of ggml (ggml-org/llama.cpp 007dbbf ggml/src/ggml-common.h): one of 256 weights
holds scales of 4 to 8 bits for parts of it, and one or two numbers of 16 bits for all.
"""

from typing import NamedTuple


class TensorType(NamedTuple):
    """A type of tensors."""

    number: int
    """Its number in a file (``enum ggml_type``)."""
    weights: int
    """Weights of a block."""
    size: int
    """Bytes of a block, scales included."""

    @property
    def bits(self) -> float:
        """Return the bits of a weight, scales included."""
        return 8.0 * self.size / self.weights


TYPES = {
    "f32": TensorType(0, 1, 4),
    "f16": TensorType(1, 1, 2),
    "q4_0": TensorType(2, 32, 18),
    "q4_1": TensorType(3, 32, 20),
    "q5_0": TensorType(6, 32, 22),
    "q5_1": TensorType(7, 32, 24),
    "q8_0": TensorType(8, 32, 34),
    "q8_1": TensorType(9, 32, 36),
    "q2_k": TensorType(10, 256, 84),
    "q3_k": TensorType(11, 256, 110),
    "q4_k": TensorType(12, 256, 144),
    "q5_k": TensorType(13, 256, 176),
    "q6_k": TensorType(14, 256, 210),
    "q8_k": TensorType(15, 256, 292),
    "iq2_xxs": TensorType(16, 256, 66),
    "iq2_xs": TensorType(17, 256, 74),
    "iq3_xxs": TensorType(18, 256, 98),
    "iq1_s": TensorType(19, 256, 50),
    "iq4_nl": TensorType(20, 32, 18),
    "iq3_s": TensorType(21, 256, 110),
    "iq2_s": TensorType(22, 256, 82),
    "iq4_xs": TensorType(23, 256, 136),
    "i8": TensorType(24, 1, 1),
    "i16": TensorType(25, 1, 2),
    "i32": TensorType(26, 1, 4),
    "i64": TensorType(27, 1, 8),
    "f64": TensorType(28, 1, 8),
    "iq1_m": TensorType(29, 256, 56),
    "bf16": TensorType(30, 1, 2),
    "tq1_0": TensorType(34, 256, 54),
    "tq2_0": TensorType(35, 256, 66),
    "mxfp4": TensorType(39, 32, 17),
    "nvfp4": TensorType(40, 64, 36),
    "q1_0": TensorType(41, 128, 18),
    "q2_0": TensorType(42, 64, 18),
}
"""Types by name."""
BY_NUMBER = {kind.number: name for name, kind in TYPES.items()}
"""Names of types by their numbers."""
INSTEAD = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s"), "iq4_nl"),
    **dict.fromkeys(("iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
"""Type of a matrix whose rows are no multiple of a block of 256 (``tensor_type_fallback``)."""


def fitting(kind: str, inputs: int) -> str:
    """Return the type in which a matrix with rows of ``inputs`` weights is stored that was meant to
    have another: where its blocks do not fit, one of 32 weights a block, else 16 bits.
    """
    for name in (kind, INSTEAD.get(kind, "f16")):
        if inputs % TYPES[name].weights == 0:
            return name
    return "f16"
