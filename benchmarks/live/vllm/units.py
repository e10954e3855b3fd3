"""How many tokens a block of a hybrid holds, by vLLM's own sizes of its states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GatedDelta:
    """Layers of gated delta rule, and the attention beside them."""

    name: str
    key_heads: int
    value_heads: int
    kv_heads: int
    state_bytes: int
    """Bytes of a value of the recurrent state: ``mamba_ssm_cache_dtype``, else those of the model;
    the convolution's are the model's two.
    """
    kv_bytes: int = 2
    drafts: int = 0
    head: int = 256
    state_head: int = 128
    convolved: int = 4


MODELS = (
    GatedDelta("Qwen3-Next-80B-A3B, bf16", 16, 32, 2, 2),
    GatedDelta("Qwen3.5, 4 KV heads, states of float32", 16, 32, 4, 4),
    GatedDelta("Qwen3.5-35B-A3B, states of float32", 16, 32, 2, 4),
    GatedDelta("Qwen3.5-35B-A3B, fp8 keys and values, MTP 3", 16, 32, 2, 4, 1, 3),
)


def unit_tokens(model: GatedDelta, aligned: int = 16) -> int:
    """Return the tokens of a block (``Platform._align_hybrid_block_size``): the least multiple of
    the kernel's blocks whose keys and values in one layer take no less room than one state.
    """
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator

    convolution, state = MambaStateShapeCalculator.gated_delta_net_state_shape(
        1,
        model.key_heads,
        model.value_heads,
        model.state_head,
        model.state_head,
        model.convolved,
        model.drafts,
    )
    page = convolution[0] * convolution[1] * 2 + state[0] * state[1] * state[2] * model.state_bytes
    token = 2 * model.kv_heads * model.head * model.kv_bytes
    return aligned * -(-page // (aligned * token))
