"""Configurations of published checkpoints and headers of GGUF files as they lie on Hugging Face, by
their shapes and what they say of their weights: read right, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored.mixes import published, stored_bits, stored_gb
from simulator.core.faults import BadInput
from simulator.inputs.models.huggingface import read_config
from tests.test_cost import place
from tests.test_gguf import Value, made


def shape(kind: str, hidden: int, layers: int, heads: tuple[int, int], **others: Any) -> Any:
    """Return the fields of a configuration; ``heads``: of queries, and of keys and values."""
    fields = {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
    }
    return fields | others


def wide(inner: int, vocabulary: int, **others: Any) -> dict[str, Any]:
    return {"intermediate_size": inner, "vocab_size": vocabulary, **others}


TIED = {"tie_word_embeddings": True}
LLAMA_8B = shape("llama", 4096, 32, (32, 8), **wide(14_336, 128_256))
LLAMA_70B = shape("llama", 8192, 80, (64, 8), **wide(28_672, 128_256))
LLAMA_3B = shape("llama", 3072, 28, (24, 8), **wide(8192, 128_256, head_dim=128)) | TIED
LLAMA_2_7B = shape("llama", 4096, 32, (32, 32), **wide(11_008, 32_000))
LLAMA_2_13B = shape("llama", 5120, 40, (40, 40), **wide(13_824, 32_000))
YI_34B = shape("llama", 7168, 60, (56, 8), **wide(20_480, 64_000))
MISTRAL_7B = shape("mistral", 4096, 32, (32, 8), **wide(14_336, 32_000))
QWEN_2_5_7B = shape("qwen2", 3584, 28, (28, 4), **wide(18_944, 152_064))
QWEN_2_5_14B = shape("qwen2", 5120, 48, (40, 8), **wide(13_824, 152_064))
OF_HEADS = {"head_dim": 128, "vocab_size": 151_936}
QWEN_3_4B = shape("qwen3", 2560, 36, (32, 8), intermediate_size=9728, **OF_HEADS) | TIED
QWEN_3_8B = shape("qwen3", 4096, 36, (32, 8), intermediate_size=12_288, **OF_HEADS)
QWEN_3_14B = shape("qwen3", 5120, 40, (40, 8), intermediate_size=17_408, **OF_HEADS)
QWEN_3_32B = shape("qwen3", 5120, 64, (64, 8), intermediate_size=25_600, **OF_HEADS)
QWEN_3_30B = shape("qwen3_moe", 2048, 48, (32, 4), intermediate_size=6144, **OF_HEADS) | {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
MIXTRAL = shape("mixtral", 4096, 32, (32, 8), **wide(14_336, 32_000)) | {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GPT_OSS_20B = shape("gpt_oss", 2880, 24, (64, 8), **wide(2880, 201_088, head_dim=64)) | {
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
GEMMA_3_1B = shape("gemma3_text", 1152, 26, (4, 1), **wide(6912, 262_144, head_dim=256)) | TIED
GEMMA_3_1B |= {"sliding_window": 512}
GRANITE_8B = shape("granite", 4096, 40, (32, 8), **wide(12_800, 49_155)) | TIED
COMMAND_R = shape("cohere", 8192, 40, (64, 64), **wide(22_528, 256_000)) | TIED


def groups(kind: str, bits: int, size: int | None, inputs: Any = None) -> dict[str, Any]:
    """Return a quantisation of compressed-tensors."""
    weights = {"type": kind, "num_bits": bits, "group_size": size}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "input_activations": inputs}},
        "ignore": ["lm_head"],
    }


def by_bits(method: str, bits: Any, size: int, **others: Any) -> dict[str, Any]:
    return {"quant_method": method, "bits": bits, "group_size": size, **others}


def eight(kind: str) -> dict[str, Any]:
    return {"type": kind, "num_bits": 8}


AWQ = by_bits("awq", 4, 128, version="gemm", zero_point=True)
FP8_BLOCKS = {
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
    "activation_scheme": "dynamic",
}
MODEL_OPT = {"quant_method": "modelopt", "producer": {"name": "modelopt"}}
READ: Mapping[str, tuple[dict[str, Any], dict[str, Any], str, str | None, float]] = {
    # fields, quantisation, formats of weights and of experts, size in 1e9 bytes
    "Qwen/Qwen2.5-7B-Instruct-AWQ": (QWEN_2_5_7B, AWQ, "int4", None, 5.545),
    "Qwen/Qwen3-4B-AWQ": (QWEN_3_4B, AWQ, "int4", None, 2.651),
    "Qwen/Qwen3-14B-AWQ": (QWEN_3_14B, AWQ, "int4", None, 9.923),
    "TheBloke/Mistral-7B-Instruct-v0.2-AWQ": (MISTRAL_7B, AWQ, "int4", None, 4.123),
    "TheBloke/Yi-34B-AWQ": (YI_34B, AWQ, "int4", None, 19.094),
    "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4": (LLAMA_70B, AWQ, "int4", None, 39.497),
    "TheBloke/Llama-2-13B-chat-GPTQ": (
        LLAMA_2_13B,
        by_bits("gptq", 4, 128, desc_act=True),
        "int4",
        None,
        7.198,
    ),
    "TheBloke/Llama-2-7B-GPTQ, gptq-4bit-32g-actorder_True": (
        LLAMA_2_7B,
        by_bits("gptq", 4, 32, desc_act=True),
        "int4_g32",
        None,
        4.167,
    ),
    "TheBloke/Llama-2-7B-GPTQ, gptq-4bit-64g-actorder_True": (
        LLAMA_2_7B,
        by_bits("gptq", 4, 64, desc_act=True),
        "int4_g64",
        None,
        3.965,
    ),
    "TheBloke/Yi-34B-GPTQ, gptq-3bit-128g-actorder_True": (
        YI_34B,
        by_bits("gptq", 3, 128, desc_act=True),
        "int3",
        None,
        14.9,
    ),
    "Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4": (
        QWEN_2_5_14B,
        by_bits("gptq", 4, 128, sym=True),
        "int4",
        None,
        9.926,
    ),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8": (
        QWEN_2_5_7B,
        by_bits("gptq", 8, 128, sym=True),
        "int8_wo",
        None,
        8.706,
    ),
    "OPEA/Qwen2.5-14B-Instruct-int4-sym-inc": (
        QWEN_2_5_14B,
        by_bits("auto-round", 4, 128, data_type="int", packing_format="auto_round:auto_gptq"),
        "int4",
        None,
        9.926,
    ),
    "Intel/Llama-3.1-8B-Instruct-MXFP4-AutoRound": (
        LLAMA_8B,
        by_bits("auto-round", 4, 32, data_type="mx_fp", act_bits=4),
        "mxfp4",
        None,
        5.809,
    ),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8": (
        LLAMA_8B,
        groups("float", 8, None, eight("float")),
        "fp8",
        None,
        9.081,
    ),
    "RedHatAI/Qwen3-8B-FP8-dynamic": (
        QWEN_3_8B,
        groups("float", 8, None, eight("float") | {"dynamic": True}),
        "fp8",
        None,
        9.435,
    ),
    "RedHatAI/Mistral-7B-Instruct-v0.3-FP8A16": (
        MISTRAL_7B,
        groups("float", 8, None),
        "fp8_wo",
        None,
        7.503,
    ),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": (
        LLAMA_8B,
        groups("int", 8, None, eight("int")),
        "int8",
        None,
        9.081,
    ),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a16": (
        LLAMA_8B,
        groups("int", 8, None),
        "int8_wo",
        None,
        9.081,
    ),
    "RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16": (
        LLAMA_70B,
        groups("int", 4, 128),
        "int4",
        None,
        39.497,
    ),
    "RedHatAI/Qwen3-32B-NVFP4": (
        QWEN_3_32B,
        groups("float", 4, 16, {"type": "float", "num_bits": 4}),
        "nvfp4",
        None,
        20.663,
    ),
    "RedHatAI/Qwen3-32B-NVFP4A16": (QWEN_3_32B, groups("float", 4, 16), "nvfp4_wo", None, 20.663),
    "nvidia/Llama-3.3-70B-Instruct-FP8": (
        LLAMA_70B,
        MODEL_OPT | {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        "fp8",
        None,
        72.652,
    ),
    "nvidia/Llama-3.1-8B-Instruct-FP4": (
        LLAMA_8B,
        MODEL_OPT | {"quant_algo": "NVFP4", "group_size": 16},
        "nvfp4",
        None,
        6.027,
    ),
    "Qwen/Qwen3-14B-FP8": (QWEN_3_14B, FP8_BLOCKS, "fp8_block", None, 16.323),
    "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8": (QWEN_3_30B, FP8_BLOCKS, "fp8_block", None, 31.162),
    "openai/gpt-oss-20b": (
        GPT_OSS_20B,
        {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
        },
        "bf16",
        "mxfp4",
        13.757,
    ),
    "TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ": (MIXTRAL, AWQ, "int4", None, 24.465),
    "ibm-granite/granite-3.1-8b-instruct, AWQ": (GRANITE_8B, AWQ, "int4", None, 4.514),
    "TheBloke/c4ai-command-r-v01-GPTQ": (COMMAND_R, by_bits("gptq", 4, 128), "int4", None, 21.154),
}


QWEN_3_NEXT = shape("qwen3_next", 2048, 48, (16, 2), **wide(5120, 151_936, head_dim=256)) | {
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
SMALL_LEFT_OUT = [
    "lm_head",
    *(f"model.layers.{layer}.linear_attn.in_proj_ba" for layer in range(48)),
    *(f"model.layers.{layer}.mlp.gate" for layer in range(48)),
]


def test_small_projections_that_are_left_out_are_no_attention(tmp_path: Path) -> None:
    """Qwen/Qwen3-Next-80B-A3B-Instruct-FP8: 79.7e9 weights, of which 0.6e9 in tables."""
    quantisation = FP8_BLOCKS | {"modules_to_not_convert": SMALL_LEFT_OUT}
    model = written(tmp_path, QWEN_3_NEXT | {"quantization_config": quantisation})
    assert (model.weight_format, model.expert_format) == ("fp8_block", None)
    assert published(model)["published_weight_gb"] == pytest.approx(80.3, rel=0.005)
    whole = [f"model.layers.{layer}.linear_attn.in_proj_qkvz" for layer in range(48)]
    quantisation["modules_to_not_convert"] = whole
    model = written(tmp_path, QWEN_3_NEXT | {"quantization_config": quantisation})
    assert (model.weight_format, model.expert_format) == ("bf16", "fp8_block")


def test_a_quantised_head_is_as_small_as_the_layers(tmp_path: Path) -> None:
    """``lm_head``: true (GPTQ, AutoRound): 128,256 x 4096 weights in 4.125 bits."""
    fields = LLAMA_8B | {"quantization_config": by_bits("gptq", 4, 128, lm_head=True)}
    model = written(tmp_path, fields)
    assert model.stored
    assert (model.stored.head_bits, model.stored.embedding_bits) == (4.125, 16.0)


@pytest.mark.parametrize(("stated", "expected"), [({"lm_head": True}, "int4"), ({}, "fp16")])
def test_a_quantised_head_is_multiplied_like_the_layers(
    stated: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    model = written(tmp_path, LLAMA_8B | {"quantization_config": by_bits("gptq", 4, 128, **stated)})
    assert place(model=model).format_of("head") == expected


def test_attention_that_a_dense_model_leaves_out_is_refused(tmp_path: Path) -> None:
    quantisation = AWQ | {"modules_to_not_convert": ["self_attn"]}
    with pytest.raises(BadInput, match="leaves attention in 16 bits"):
        written(tmp_path, LLAMA_8B | {"quantization_config": quantisation})


def of_mlx(bits: int, group: int = 64, **others: Any) -> dict[str, Any]:
    return {"group_size": group, "bits": bits, **others}


def in_every_layer(layers: int, modules: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"model.layers.{layer}.{name}": stated
        for layer in range(layers)
        for name, stated in modules.items()
    }


Q8 = {"group_size": 64, "bits": 8}
ATTENTION = dict.fromkeys([f"self_attn.{name}_proj" for name in "qkvo"], Q8)
RAISED = [layer for layer in range(36) if layer < 4 or layer >= 31 or (layer - 4) % 3 == 2]
MLX: Mapping[str, tuple[dict[str, Any], dict[str, Any], str, float]] = {
    "mlx-community/Qwen3-8B-4bit": (QWEN_3_8B, of_mlx(4), "mlx_4", 4.607),
    "mlx-community/Qwen3-8B-6bit": (QWEN_3_8B, of_mlx(6), "mlx_6", 6.655),
    "mlx-community/Qwen3-14B-5bit": (QWEN_3_14B, of_mlx(5), "mlx_5", 10.154),
    "mlx-community/Llama-3.3-70B-Instruct-3bit": (LLAMA_70B, of_mlx(3), "mlx_3", 30.867),
    "mlx-community/Llama-3.2-3B-Instruct-4bit": (LLAMA_3B, of_mlx(4), "mlx_4", 1.807423488),
    "mlx-community/Qwen3-4B-4bit-g32": (QWEN_3_4B, of_mlx(4, 32), "mlx_4_g32", 2.514),
    "mlx-community/gemma-3-1b-it-8bit": (GEMMA_3_1B, of_mlx(8), "mlx_8", 1.0623),
    "mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit": (
        QWEN_3_30B,
        of_mlx(4) | in_every_layer(48, {"mlp.gate": Q8}),
        "mlx_4",
        17.180913664,
    ),
    "mlx-community/gpt-oss-20b-MXFP4-Q8": (
        GPT_OSS_20B,
        of_mlx(4, 32, mode="mxfp4")
        | {"model.embed_tokens": Q8, "lm_head": Q8}
        | in_every_layer(24, {**ATTENTION, "mlp.router": Q8}),
        "mxfp4",
        12.076119168,
    ),
    "mlx-community/Qwen3-8B-mixed_3_6": (
        QWEN_3_8B,
        of_mlx(3)
        | {"lm_head": of_mlx(6)}
        | {
            f"model.layers.{layer}.{name}": of_mlx(6)
            for layer in RAISED
            for name in ("self_attn.v_proj", "mlp.down_proj")
        },
        "mlx_3",
        0.0,  # as the recipe says
    ),
    "mlx-community/Qwen3-8B-4bit, LM head left out": (
        QWEN_3_8B,
        of_mlx(4) | {"lm_head": False},
        "mlx_4",
        4.607 + 151_936 * 4096 * 11.5 / 8e9,
    ),
}


def written(folder: Path, fields: Mapping[str, Any]) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return read_config(path)


@pytest.mark.parametrize("name", READ)
def test_a_quantised_checkpoint_is_read(tmp_path: Path, name: str) -> None:
    fields, quantisation, weights, experts, size_gb = READ[name]
    model = written(tmp_path, fields | {"quantization_config": quantisation})
    assert (model.weight_format, model.expert_format, model.stored) == (weights, experts, None)
    assert published(model)["published_weight_gb"] == pytest.approx(size_gb, rel=0.01)


@pytest.mark.parametrize("name", MLX)
def test_a_checkpoint_of_mlx_is_read_module_by_module(tmp_path: Path, name: str) -> None:
    fields, quantisation, weights, size_gb = MLX[name]
    both = {"quantization": quantisation, "quantization_config": quantisation}
    model = written(tmp_path, fields | both)
    assert model.weight_format == weights
    if not size_gb:
        size_gb = stored_gb(model, stored_bits(model, "mlx_mixed_3_6"))
    assert published(model)["published_weight_gb"] == pytest.approx(size_gb, rel=0.002)
    assert written(tmp_path, fields | {"quantization": quantisation}) == model


W4A8 = groups("int", 4, 128, eight("float"))
TWO = groups("float", 8, None, eight("float"))
TWO["config_groups"]["group_1"] = groups("int", 4, 128)["config_groups"]["group_0"]
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "unsloth/llama-3-8b-Instruct-bnb-4bit": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        "quantization_config: holds no format",
    ),
    "turboderp/Llama-3.1-8B-Instruct-exl2": (
        {"quant_method": "exl2", "bits": 4, "head_bits": 6},
        "quantization_config: holds no format",
    ),
    "turboderp/Llama-3.1-8B-Instruct-exl3": (
        {"quant_method": "exl3", "bits": 4.0, "head_bits": 6},
        "quantization_config: holds no format",
    ),
    "mobiuslabsgmbh/Llama-3.1-8b-instruct_4bitgs64_hqq": (
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}},
        "quantization_config: holds no format",
    ),
    "ISTA-DASLab/Meta-Llama-3.1-8B-AQLM-PV-2Bit-1x16": (
        {"quant_method": "aqlm", "nbits_per_codebook": 16, "in_group_size": 8},
        "quantization_config: holds no format",
    ),
    "VPTQ-community/Meta-Llama-3.1-8B-Instruct-v8": (
        {"quant_method": "vptq", "config_for_layers": {}},
        "quantization_config: holds no format",
    ),
    "medmekk/Llama-3.1-8B-quanto-int4": (
        {"quant_method": "quanto", "weights": "int4"},
        "quantization_config: holds no format",
    ),
    "pytorch/Phi-4-mini-instruct-int4wo": (
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}},
        "quantization_config: holds no format",
    ),
    "medmekk/Llama3.1-8B-eetq": (
        {"quant_method": "eetq", "weights": "int8"},
        "quantization_config: holds no format",
    ),
    "bits by module (AutoRound)": (
        by_bits("auto-round", 4, 128, extra_config={"model.layers.0.mlp": {"bits": 8}}),
        "quantization_config: holds no format",
    ),
    "bits by module (GPTQModel)": (
        by_bits("gptq", 4, 128, dynamic={"+:.*down_proj": {"bits": 8}}),
        "quantization_config: holds no format",
    ),
    "two formats": (TWO, "quantization_config: holds no format"),
    "W4A8": (W4A8, "quantization_config: holds no format"),
    "GPTQ with groups of 16": (by_bits("gptq", 4, 16), "quantization_config: holds no format"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, name: str) -> None:
    quantisation, words = REFUSED[name]
    with pytest.raises(BadInput, match=words):
        written(tmp_path, LLAMA_8B | {"quantization_config": quantisation})


@pytest.mark.parametrize(
    ("quantisation", "words"),
    [
        (of_mlx(7), r"quantization: states 7 bits in groups of 64 \(affine\)"),
        (of_mlx(4, 16), r"quantization: states 4 bits in groups of 16 \(affine\)"),
        (of_mlx(4, mode="nf4"), r"quantization: states 4 bits in groups of 64 \(nf4\)"),
        (
            of_mlx(4) | {"model.layers.3.mlp.loop_proj": of_mlx(8)},
            r"states bits of model\.layers\.3\.mlp\.loop_proj",
        ),
        (of_mlx(4) | {"model.memory": of_mlx(8)}, r"states bits of model\.memory"),
        (of_mlx(4) | {"lm_head": of_mlx(8, 0)}, r"states of lm_head what is no format here"),
        (of_mlx(4) | {"lm_head": {"bits": [4]}}, r"states of lm_head what is no format here"),
        (of_mlx(4, 0, mode="mxfp4"), r"quantization: states 4 bits in groups of 0 \(mxfp4\)"),
        ({"format": "of tomorrow"}, r"quantization: is not understood"),
    ],
)
def test_mlx_that_is_not_understood_is_refused(
    tmp_path: Path, quantisation: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        written(tmp_path, QWEN_3_8B | {"quantization": quantisation})


# ---- headers of GGUF files

Q4_0, Q4_1, Q5_0, Q8_0, Q6_K, IQ4_NL, F32, MXFP4 = 2, 3, 6, 8, 14, 20, 0, 39
Sizes = dict[str, tuple[int, ...]]


def heads(hidden: int, queries: int, keys: int) -> Sizes:
    """Return the matrices of attention by the widths of their outputs."""
    return {
        "attn_q": (hidden, queries),
        "attn_k": (hidden, keys),
        "attn_v": (hidden, keys),
        "attn_output": (queries, hidden),
    }


def mlp(hidden: int, inner: int, gate: bool = True) -> Sizes:
    gated: Sizes = {"ffn_gate": (hidden, inner)} if gate else {}
    return gated | {"ffn_up": (hidden, inner), "ffn_down": (inner, hidden)}


def fused(hidden: int, width: int) -> Sizes:
    return {"attn_qkv": (hidden, width), "attn_output": (hidden, hidden)}


def experts(hidden: int, inner: int, count: int) -> Sizes:
    return {
        "ffn_gate_inp": (hidden, count),
        "ffn_gate_exps": (hidden, inner, count),
        "ffn_up_exps": (hidden, inner, count),
        "ffn_down_exps": (inner, hidden, count),
    }


class Header(NamedTuple):
    """A file: its architecture and keys, the sizes of its tensors, and their types."""

    architecture: str
    hidden: int
    inner: int
    heads: tuple[int, int | list[int]]
    vocabulary: int
    layers: list[Sizes]
    kinds: dict[str, int]
    """Types by the end of a name; ``weight`` last, for all others."""
    size_gb: float
    """Size of all matrices in 1e9 bytes."""
    tied: bool = False
    keys: Mapping[str, int] = {}
    file_type: int = 7
    extra: Mapping[str, tuple[int, ...]] = {}

    def content(self) -> bytes:
        """Return the header."""
        queries, keys = self.heads
        of_keys: Value = (4, keys)
        if isinstance(keys, list):
            of_keys = (9, (4, keys))
        values: dict[str, Value] = {
            "block_count": (4, len(self.layers)),
            "embedding_length": (4, self.hidden),
            "feed_forward_length": (4, self.inner),
            "attention.head_count": (4, queries),
            "attention.head_count_kv": of_keys,
            "context_length": (4, 8192),
        }
        values |= {key: (4, value) for key, value in self.keys.items()}
        named = {f"{self.architecture}.{key}": value for key, value in values.items()}
        general: dict[str, Value] = {
            "general.architecture": (8, self.architecture),
            "general.file_type": (4, self.file_type),
        }
        table = (self.hidden, self.vocabulary)
        tensors = {"token_embd.weight": table} | ({} if self.tied else {"output.weight": table})
        for number, layer in enumerate(self.layers):
            tensors |= {f"blk.{number}.{name}.weight": sizes for name, sizes in layer.items()}
            tensors[f"blk.{number}.attn_norm.weight"] = (self.hidden,)
        return made(general | named, tensors | dict(self.extra), kinds=self.kinds)


ALL_Q8 = {"weight": Q8_0}
KEY = {"attention.key_length": 256, "attention.value_length": 256}
KEY_128 = {"attention.key_length": 128, "attention.value_length": 128}
SHORT = {
    "shortconv.in_proj": (2048, 6144),
    "shortconv.conv": (3, 2048),
    "shortconv.out_proj": (2048, 2048),
}
OF_LFM2 = [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0]
OF_QWEN_3_5 = {
    "attn_qkv": (5120, 10_240),
    "attn_gate": (5120, 6144),
    "ssm_alpha": (5120, 48),
    "ssm_beta": (5120, 48),
    "ssm_conv1d": (4, 10_240),
    "ssm_out": (6144, 5120),
}
GATED = {"attn_q": (5120, 12_288), "attn_output": (6144, 5120)}
DELTA = {
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 48,
    "ssm.inner_size": 6144,
}
HEADERS: Mapping[str, Header] = {
    "Llama-3.2-3B-Instruct-Q8_0": Header(
        *("llama", 3072, 8192, (24, 8), 128_256),
        [heads(3072, 3072, 1024) | mlp(3072, 8192)] * 28,
        ALL_Q8,
        3.4136,
        tied=True,
    ),
    "mistral-7b-instruct-v0.2.Q4_0": Header(
        *("llama", 4096, 14_336, (32, 8), 32_000),
        [heads(4096, 4096, 1024) | mlp(4096, 14_336)] * 32,
        {"output.weight": Q6_K, "weight": Q4_0},
        4.107,
        file_type=2,
    ),
    "llama-2-13b-chat.Q4_1": Header(
        *("llama", 5120, 13_824, (40, 40), 32_000),
        [heads(5120, 5120, 5120) | mlp(5120, 13_824)] * 40,
        {"output.weight": Q6_K, "weight": Q4_1},
        8.166,
        file_type=3,
    ),
    "mixtral-8x7b-instruct-v0.1.Q5_0": Header(
        *("llama", 4096, 14_336, (32, 8), 32_000),
        [heads(4096, 4096, 1024) | experts(4096, 14_336, 8)] * 32,
        {
            "output.weight": Q6_K,
            "attn_k.weight": Q8_0,
            "attn_v.weight": Q8_0,
            "ffn_gate_inp.weight": F32,
            "weight": Q5_0,
        },
        32.23,
        keys={"expert_count": 8, "expert_used_count": 2},
        file_type=8,
    ),
    "qwen2.5-7b-instruct-q8_0": Header(
        *("qwen2", 3584, 18_944, (28, 4), 152_064),
        [heads(3584, 3584, 512) | mlp(3584, 18_944)] * 28,
        ALL_Q8,
        8.091,
    ),
    "Qwen1.5-MoE-A2.7B-Chat-Q8_0": Header(
        *("qwen2moe", 2048, 5632, (16, 16), 151_936),
        [
            heads(2048, 2048, 2048)
            | experts(2048, 1408, 60)
            | {f"{name}_shexp": sizes for name, sizes in mlp(2048, 5632).items()}
        ]
        * 24,
        {"ffn_gate_inp.weight": F32, "weight": Q8_0},
        15.218,
        keys={
            "expert_count": 60,
            "expert_used_count": 4,
            "expert_feed_forward_length": 1408,
            "expert_shared_feed_forward_length": 5632,
        },
    ),
    "Qwen3-4B-Q6_K": Header(
        *("qwen3", 2560, 9728, (32, 8), 151_936),
        [heads(2560, 4096, 1024) | mlp(2560, 9728)] * 36,
        {"weight": Q6_K},
        3.300,
        tied=True,
        keys=KEY_128,
        file_type=18,
    ),
    "Qwen3-30B-A3B-IQ4_NL": Header(
        *("qwen3moe", 2048, 6144, (32, 4), 151_936),
        [heads(2048, 4096, 512) | experts(2048, 768, 128)] * 48,
        {"output.weight": Q6_K, "ffn_gate_inp.weight": F32, "weight": IQ4_NL},
        17.29,
        keys=KEY_128
        | {"expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768},
        file_type=25,
    ),
    "gemma-2b-it.Q8_0": Header(
        *("gemma", 2048, 16_384, (8, 1), 256_000),
        [heads(2048, 2048, 256) | mlp(2048, 16_384)] * 18,
        ALL_Q8,
        2.6626,
        tied=True,
        keys=KEY,
    ),
    "gemma-2-9b-it-Q8_0": Header(
        *("gemma2", 3584, 14_336, (16, 8), 256_000),
        [heads(3584, 4096, 2048) | mlp(3584, 14_336)] * 42,
        ALL_Q8,
        9.819,
        tied=True,
        keys=KEY | {"attention.sliding_window": 4096},
    ),
    "gemma-3-4b-it-Q8_0": Header(
        *("gemma3", 2560, 10_240, (8, 4), 262_144),
        [heads(2560, 2048, 1024) | mlp(2560, 10_240)] * 34,
        ALL_Q8,
        4.122,
        tied=True,
        keys=KEY | {"attention.sliding_window": 1024},
    ),
    "phi-2.Q8_0": Header(
        *("phi2", 2560, 10_240, (32, 32), 51_200),
        [fused(2560, 7680) | mlp(2560, 10_240, gate=False)] * 32,
        ALL_Q8,
        2.952,
    ),
    "Phi-3-mini-4k-instruct-Q8_0": Header(
        *("phi3", 3072, 8192, (32, 32), 32_064),
        [fused(3072, 9216) | {"ffn_up": (3072, 16_384), "ffn_down": (8192, 3072)}] * 32,
        ALL_Q8,
        4.060,
    ),
    "starcoder2-3b-Q8_0": Header(
        *("starcoder2", 3072, 12_288, (24, 2), 49_152),
        [heads(3072, 3072, 256) | mlp(3072, 12_288, gate=False)] * 30,
        ALL_Q8,
        3.2187,
        tied=True,
    ),
    "gpt2.Q8_0": Header(
        *("gpt2", 768, 3072, (12, 12), 50_257),
        [fused(768, 2304) | mlp(768, 3072, gate=False)] * 12,
        {"position_embd.weight": F32, "weight": Q8_0},
        0.1345,
        tied=True,
        keys={"context_length": 1024},
        extra={"position_embd.weight": (768, 1024)},
    ),
    "c4ai-command-r-v01-Q4_0": Header(
        *("command-r", 8192, 22_528, (64, 64), 256_000),
        [heads(8192, 8192, 8192) | mlp(8192, 22_528)] * 40,
        {"token_embd.weight": Q6_K, "weight": Q4_0},
        20.22,
        tied=True,
        file_type=2,
    ),
    "OLMo-2-1124-7B-Instruct-Q8_0": Header(
        *("olmo2", 4096, 11_008, (32, 32), 100_352),
        [heads(4096, 4096, 4096) | mlp(4096, 11_008)] * 32,
        ALL_Q8,
        7.754,
    ),
    "granite-3.1-8b-instruct-Q8_0": Header(
        *("granite", 4096, 12_800, (32, 8), 49_155),
        [heads(4096, 4096, 1024) | mlp(4096, 12_800)] * 40,
        ALL_Q8,
        8.682,
        tied=True,
    ),
    "stablelm-2-1_6b-chat.Q8_0": Header(
        *("stablelm", 2048, 5632, (32, 32), 100_352),
        [heads(2048, 2048, 2048) | mlp(2048, 5632)] * 24,
        ALL_Q8,
        1.747,
    ),
    "LFM2-1.2B-Q8_0": Header(
        *("lfm2", 2048, 8192, (32, OF_LFM2), 65_536),
        [(heads(2048, 2048, 512) if keys else SHORT) | mlp(2048, 8192) for keys in OF_LFM2],
        {"shortconv.conv.weight": F32, "weight": Q8_0},
        1.2435,
        tied=True,
        keys={"shortconv.l_cache": 3},
    ),
    "gpt-oss-20b-mxfp4": Header(
        *("gpt-oss", 2880, 2880, (64, 8), 201_088),
        [heads(2880, 4096, 512) | experts(2880, 2880, 32)] * 24,
        {
            "ffn_gate_inp.weight": F32,
            "ffn_gate_exps.weight": MXFP4,
            "ffn_up_exps.weight": MXFP4,
            "ffn_down_exps.weight": MXFP4,
            "weight": Q8_0,
        },
        12.066,
        keys={
            "attention.key_length": 64,
            "attention.value_length": 64,
            "attention.sliding_window": 128,
            "expert_count": 32,
            "expert_used_count": 4,
            "expert_feed_forward_length": 2880,
        },
        file_type=38,
    ),
    "glm-4-9b-chat-0414-Q8_0": Header(
        *("glm4", 4096, 13_696, (32, 2), 151_552),
        [heads(4096, 4096, 256) | {"ffn_up": (4096, 27_392), "ffn_down": (13_696, 4096)}] * 40,
        ALL_Q8,
        9.987,
    ),
    "SmolLM3-3B-Q8_0": Header(
        *("smollm3", 2048, 11_008, (16, 4), 128_256),
        [heads(2048, 2048, 512) | mlp(2048, 11_008)] * 36,
        ALL_Q8,
        3.267,
        tied=True,
    ),
    "Nemotron-Mini-4B-Instruct-Q8_0": Header(
        *("nemotron", 3072, 9216, (24, 8), 256_000),
        [heads(3072, 3072, 1024) | mlp(3072, 9216, gate=False)] * 32,
        ALL_Q8,
        4.453,
    ),
    "Qwen3.5-27B-Q8_0": Header(
        *("qwen35", 5120, 17_408, (24, 4), 248_320),
        [
            *[
                (OF_QWEN_3_5 if (layer + 1) % 4 else heads(5120, 6144, 1024) | GATED)
                | mlp(5120, 17_408)
                for layer in range(64)
            ],
            heads(5120, 6144, 1024) | GATED | mlp(5120, 17_408) | {"nextn.eh_proj": (10_240, 5120)},
        ],
        {"ssm_conv1d.weight": F32, "weight": Q8_0},
        28.577,
        keys={**KEY, **DELTA, "nextn_predict_layers": 1},
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_is_read_with_the_size_of_its_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(HEADERS[name].content())
    model = read_config(path)
    assert published(model)["published_weight_gb"] == pytest.approx(
        HEADERS[name].size_gb, rel=0.005
    )


@pytest.mark.parametrize(
    "architecture",
    [
        "rwkv7",
        "mamba",
        "falcon-h1",
        "deepseek2",
        "kimi-linear",
        "llama4",
        "t5",
        "bert",
        "plamo2",
        "jamba",
    ],
)
def test_an_architecture_that_is_not_known_is_refused_by_its_name(
    tmp_path: Path, architecture: str
) -> None:
    header = HEADERS["Llama-3.2-3B-Instruct-Q8_0"]._replace(architecture=architecture)
    path = tmp_path / "model.gguf"
    path.write_bytes(header.content())
    with pytest.raises(
        BadInput, match=f"of architecture '{architecture}', which is not known here"
    ):
        read_config(path)
