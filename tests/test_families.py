"""Configurations of one model of each kind of attention, worked by hand; fields that are not
understood; published files.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored.mixes import published, stored_bits, stored_gb
from simulator.core.faults import BadInput
from simulator.inputs.models.huggingface import read_config
from simulator.scenario.loading import load

PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "model_configs"
"""Files of models that people serve, where they lie beside the project."""
BASE = {
    "hidden_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "head_dim": 10,
}
BASE |= {"intermediate_size": 300, "vocab_size": 1000, "tie_word_embeddings": False}
MLP, TABLES, HEADS = 3 * 100 * 300, 2 * 1000 * 100, 100 * (100 + 2 * 20) + 100 * 100
LATENT = {
    "q_lora_rank": 30,
    "kv_lora_rank": 40,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 10,
}
DOWN = 100 * (30 + 40 + 4)
LATENT_WEIGHTS = DOWN + 30 * 10 * 12 + 40 * 10 * (8 + 10) + 100 * 100
INDEXER = {"index_topk": 16, "index_n_heads": 3, "index_head_dim": 128}
EVERY_SECOND = ["linear_attention", "full_attention"] * 2
DELTA = {
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 8,
}
KDA = {
    "kda_layers": [1, 2, 3],
    "full_attn_layers": [4],
    "num_heads": 4,
    "head_dim": 8,
    "short_conv_kernel_size": 4,
}
MAMBA = {
    "hybrid_override_pattern": "M*M-",
    "mamba_num_heads": 8,
    "mamba_head_dim": 5,
    "n_groups": 2,
    "ssm_state_size": 16,
}
COMPRESSED = {
    "compress_ratios": [128, 4, 128, 4],
    "sliding_window": 8,
    "q_lora_rank": 30,
    "o_groups": 2,
    "o_lora_rank": 5,
}
BLOCKS = {"sparse_attention_freq": [0, 1, 1, 1], "sparse_topk_blocks": 2, "sparse_block_size": 8}
BLOCKS |= {"sparse_index_dim": 6, "sparse_num_index_heads": 2}

# What is added to BASE, kinds of the layers, weights of all mixers, bytes of a first token in 16
# bits, of the thousandth, bytes of the state of a sequence.
CASES: dict[str, tuple[dict[str, Any], dict[str | None, int], int, float, float, int]] = {
    "grouped heads": ({}, {"full": 4}, 4 * HEADS, 4 * 40 * 2, 4 * 40 * 2, 0),
    "latent": (LATENT, {"latent": 4}, 4 * LATENT_WEIGHTS, 4 * 44 * 2, 4 * 44 * 2, 0),
    "sliding window": (
        {
            "sliding_window": 64,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "swa_num_key_value_heads": 5,
        },
        {"sliding": 3, "full": 1},
        4 * HEADS + 3 * 100 * 60,
        3 * 100 * 2 + 80,
        80,
        0,
    ),
    "chunks": (
        {"attention_chunk_size": 64, "no_rope_layers": [1, 1, 1, 0]},
        {"chunked": 3, "full": 1},
        4 * HEADS,
        4 * 80,
        80,
        0,
    ),
    # q and k of 16, v and gate of 32, two scalars a head; three inputs of 64 channels wait for a
    # fourth
    "gated delta rule": (
        DELTA | {"layer_types": EVERY_SECOND, "attn_output_gate": True},
        {"linear": 2, "full": 2},
        2 * (100 * (16 + 16 + 32 + 32 + 8) + 32 * 100) + 2 * (HEADS + 100 * 100),
        2 * 80,
        2 * 80,
        2 * (4 * 8 * 8 * 4 + 3 * 64 * 2),
    ),
    "Kimi's delta attention": (  # q, k, v of 32, two gates of rank 8, a scalar a head
        {"linear_attn_config": KDA, **LATENT},
        {"linear": 3, "latent": 1},
        3 * (100 * (3 * 32 + 4) + 2 * 8 * (100 + 32) + 32 * 100) + LATENT_WEIGHTS,
        88,
        88,
        3 * (4 * 8 * 8 * 4 + 3 * 96 * 2),
    ),
    # x and gate of 40, B and C of 2 x 16 each, a scalar a head; the last block is an MLP alone
    "Mamba-2": (
        MAMBA,
        {"linear": 2, "full": 1, None: 1},
        2 * (100 * (40 + 40 + 64 + 8) + 40 * 100) + HEADS,
        80,
        80,
        2 * (40 * 16 * 4 + 3 * 104 * 2),
    ),
    "indexer over latents": (  # keys of the indexer in 8 bits, with a scale of 4 bytes
        LATENT | INDEXER | {"indexer_types": ["full", "full", "shared", "shared"]},
        {"sparse": 4},
        4 * LATENT_WEIGHTS + 2 * (30 * 3 * 128 + 100 * 128 + 100 * 3),
        4 * 88 + 2 * 132,
        4 * 88 + 2 * 132,
        0,
    ),
    # one head of 10; a window of 8 tokens; an entry for 128 tokens, or for 4 with an indexer
    "compressed entries": (
        COMPRESSED | INDEXER | {"num_key_value_heads": 1},
        {"sparse": 4},
        4 * (100 * 30 + 30 * 100 + 100 * 10 + 100 * 5 + 2 * 5 * 100)
        + 2 * 100 * 20
        + 2 * (100 * 4 * 138 + 100 * 3 + 30 * 3 * 128),
        4 * 20 + 2 * 20 / 128 + 2 * (20 + 132) / 4,
        2 * 20 / 128 + 2 * (20 + 132) / 4,
        0,
    ),
    "blocks of the context": (
        {"sparse_attention_config": BLOCKS},
        {"full": 1, "sparse": 3},
        4 * HEADS + 3 * 100 * 6 * 3,
        4 * 80 + 3 * 6 * 132 / 128,
        4 * 80 + 3 * 6 * 132 / 128,
        0,
    ),
    "shared caches": (
        {"num_kv_shared_layers": 2},
        {"full": 4},
        4 * HEADS - 2 * 100 * 40,
        2 * 80,
        2 * 80,
        0,
    ),
    "keys that are values": (
        {"attention_k_eq_v": True, "global_head_dim": 20, "num_global_key_value_heads": 1},
        {"full": 4},
        4 * (100 * (200 + 20) + 200 * 100),
        4 * 40 * 2,
        4 * 40 * 2,
        0,
    ),
}


def config(folder: Path, **fields: Any) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(BASE | fields))
    return read_config(path)


@pytest.mark.parametrize("name", CASES)
def test_a_small_model_of_each_kind_by_hand(tmp_path, name):
    fields, kinds, mixers, first, thousandth, state = CASES[name]
    model = config(tmp_path, **fields)
    counted: dict[str | None, int] = {}
    for kind, layers in model.kinds().items():
        of = kind.mixer.kind if kind.mixer else None
        counted[of] = counted.get(of, 0) + layers
    assert counted == kinds
    mlps = 1 if name == "Mamba-2" else 4
    assert model.weights == mixers + mlps * MLP + TABLES
    assert published(model) == {}
    assert model.kv_bytes_per_token() == pytest.approx(first, rel=1e-12)
    assert model.kv_bytes_per_token(after=999) == pytest.approx(thousandth, rel=1e-9)
    assert model.state_bytes == state


# ---- layers with experts


@pytest.mark.parametrize(
    ("fields", "expert_layers"),
    [
        ({}, 4),
        ({"first_k_dense_replace": 1}, 3),
        ({"moe_layer_freq": [0, 1, 1, 0]}, 2),
        ({"moe_layer_freq": 2}, 2),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, 1),
        ({"interleave_moe_layer_step": 2}, 2),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, 3),
        ({"moe_layers_enum": "1,3"}, 2),
    ],
)
def test_which_layers_have_experts(tmp_path, fields, expert_layers):
    model = config(
        tmp_path, num_experts=8, num_experts_per_token=2, moe_intermediate_size=50, **fields
    )
    assert model.expert_layers == expert_layers
    experts = expert_layers * (8 * 3 * 100 * 50 + 100 * 8)
    assert model.weights == 4 * HEADS + TABLES + (4 - expert_layers) * MLP + experts


def test_experts_in_a_latent_space_beside_an_mlp(tmp_path):
    fields = {
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 50,
        "enable_moe_block": True,
        "moe_latent_size": 20,
    }
    model = config(tmp_path, **fields, n_shared_experts=1)
    each = 8 * 3 * 20 * 50 + 3 * 100 * 50 + 100 * 8 + 2 * 100 * 20
    assert model.weights == 4 * (HEADS + MLP + each) + TABLES
    assert model.active_weights == model.weights - 4 * 6 * 3 * 20 * 50


def test_layers_of_an_architecture_search(tmp_path):
    full = {
        "attention": {"n_heads_in_group": 5, "no_op": False},
        "ffn": {"ffn_mult": 3.84, "no_op": False},
    }
    bare = {
        "attention": {"n_heads_in_group": None, "no_op": True},
        "ffn": {"ffn_mult": 1.0, "no_op": False},
    }
    model = config(tmp_path, block_configs=[full, bare, full, full], intermediate_size=None)
    assert model.weights == 3 * (HEADS + 3 * 100 * 256) + 3 * 100 * 256 + TABLES
    with pytest.raises(BadInput, match=r"attention\.window_length is not understood"):
        config(
            tmp_path,
            block_configs=[{**full, "attention": {"window_length": 8}}] * 4,
            intermediate_size=None,
        )


def test_inputs_of_each_layer_have_a_table_and_two_matrices(tmp_path):
    """Gemma 3n: and one projection for all layers together."""
    model = config(tmp_path, hidden_size_per_layer_input=20, vocab_size_per_layer_input=500)
    assert model.weights == 4 * (HEADS + MLP) + TABLES + 4 * 20 * (500 + 3 * 100)


# ---- what is not understood


@pytest.mark.parametrize(
    "fields",
    [
        {"attention_sparsity_ratio": 0.5},
        {"gated_intermediate_size": 512},
        {"cla_share_factor": 2},
        {"linear_attn_config": {**KDA, "state_rank": 8}, **LATENT},
        {"attn_type_list": [0, 1, 1, 1]},
        {"layer_types": ["retention"] * 4},
        {"hybrid_override_pattern": "M*X-"},
        {"quantization_config": {"quant_method": "of tomorrow"}},
        {"adapters": [{"rank": 8}]},
        {"is_encoder_decoder": True},
        {"add_cross_attention": True},
    ],
)
def test_what_may_change_the_cost_and_is_not_understood_is_refused_by_name(tmp_path, fields):
    with pytest.raises(BadInput) as error:
        config(tmp_path, **fields)
    (fault,) = error.value.faults[:1]
    assert any(fault.field.startswith(name) for name in fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"cla_share_factor": None},
        {"moe_step": 1},
        {"use_cla": False},
        {"vision_heads": 4},
        {"media_intermediate_size": 512},  # as Kimi-K2.5 calls its tower
        {"spatial_merge_size": 2},  # Mistral Small 3.1
        {"cache_implementation": "hybrid"},  # Gemma 2
        {"score_function": "sigmoid", "use_rmsnorm": True},  # Ling
    ],
)
def test_what_is_off_or_of_another_tower_is_passed_over(tmp_path, fields):
    assert config(tmp_path, **fields) == config(tmp_path)


@pytest.mark.parametrize(
    ("quantisation", "formats"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_block", None)),
        ({"quant_method": "fp8"}, ("fp8", None)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("int4", None)),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["model.layers.0.self_attn*"],
            },
            ("bf16", "nvfp4"),
        ),
        (
            {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
            ("bf16", "mxfp4"),
        ),
    ],
)
def test_formats(tmp_path, quantisation, formats):
    model = config(
        tmp_path,
        quantization_config=quantisation,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=50,
    )
    assert (model.weight_format, model.expert_format) == formats


# ---- published files

WORDS = {
    "dense": "full",
    "hybrid": "linear",
    "MLA +": "sparse",
    "MLA": "latent",
    "chunked": "chunked",
}
WORDS |= {"sparse": "sparse", "GQA, first": "sparse", "sliding": "sliding", "GQA in some": "full"}


def table() -> list[list[str]]:
    lines = (PUBLISHED / "README.md").read_text("utf-8").splitlines() if PUBLISHED.is_dir() else []
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| \w\S*--\S", line)
    ]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published configurations are not here")
def test_published_configurations_come_to_what_their_table_says():
    """GLM-5.2 has one indexer for four layers, while the table counts one in each: see the next
    test.
    """
    rows = table()
    assert len(rows) == 60
    for name, _, _, _, counted, active, attention, *_ in rows:
        model = read_config(PUBLISHED / f"{name}_config.json")
        for words, number in ((counted, model.weights), (active, model.active_weights)):
            allowed = 0.03 if words.startswith("~") or "GLM-5.2" in name else 0.01
            if words != "-":
                assert number / 1e9 == pytest.approx(float(words.strip("~")), rel=allowed), name
        kinds = {kind.mixer.kind for kind in model.kinds() if kind.mixer}
        assert WORDS[next(word for word in WORDS if attention.startswith(word))] in kinds, name
        assert kinds <= {
            "full",
            "latent",
            WORDS[next(word for word in WORDS if attention.startswith(word))],
        }, name


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published configurations are not here")
def test_what_glm_5_2_misses_are_the_indexers_that_its_layers_share(tmp_path):
    """By the table's way of counting, an indexer in each layer, it has 743.9 and 41.78 billion
    weights within 1 %.
    """
    data = json.loads((PUBLISHED / "zai-org--GLM-5.2_config.json").read_text("utf-8"))
    shared = data["indexer_types"].count("shared")
    (tmp_path / "config.json").write_text(
        json.dumps(data | {"indexer_types": ["full"] * data["num_hidden_layers"]})
    )
    counted, read = read_config(tmp_path), read_config(PUBLISHED / "zai-org--GLM-5.2_config.json")
    assert counted.weights / 1e9 == pytest.approx(743.9, rel=0.01)
    assert counted.active_weights / 1e9 == pytest.approx(41.78, rel=0.01)
    # keys, weights of 32 heads, queries
    each = data["hidden_size"] * (128 + 32) + data["q_lora_rank"] * 32 * 128
    assert counted.weights - read.weights == shared * each


V3_TABLES = 2 * 129_280 * 7_168
KEPT: dict[str, tuple[float, float, float, float]] = {
    "Qwen--Qwen3-8B": (  # grouped heads
        2
        * (36 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 12_288) + 2 * 151_936 * 4096),
        36 * 2 * 8 * 128 * 2,
        36 * 2 * 8 * 128 * 2,
        0,
    ),
    # a latent
    "deepseek-ai--DeepSeek-V3": (
        671.0e9 - V3_TABLES + 2 * V3_TABLES,
        61 * 576 * 2,
        61 * 576 * 2,
        0,
    ),
    "deepseek-ai--DeepSeek-V3.2": (  # and an indexer's key of 8 bits with a scale
        671.9e9 - V3_TABLES + 2 * V3_TABLES,
        61 * (576 * 2 + 128 + 4),
        61 * (576 * 2 + 128 + 4),
        0,
    ),
    # 48 layers of the gated delta rule: 48 states of 128 x 128, three inputs of 10,240 channels
    "Qwen--Qwen3.5-27B": (
        2 * 26.9e9,
        16 * 2 * 4 * 256 * 2,
        16 * 2 * 4 * 256 * 2,
        48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 + 48) * 128 * 2),
    ),
    # 69 layers of Kimi's delta attention, 24 of latents; 92 of experts with 4 1/4 bits a weight
    "moonshotai--Kimi-K3": (
        2 * 2780e9 - (2 - 17 / 32) * 92 * 896 * 3 * 3584 * 3072,
        24 * 576 * 2,
        24 * 576 * 2,
        69 * (96 * 128 * 128 * 4 + 3 * 3 * 96 * 128 * 2),
    ),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (  # 23 layers of Mamba-2, 6 of attention
        2 * 31.58e9,
        6 * 2 * 2 * 128 * 2,
        6 * 2 * 2 * 128 * 2,
        23 * (64 * 64 * 128 * 4 + 3 * (64 * 64 + 2 * 8 * 128) * 2),
    ),
    "openai--gpt-oss-120b": (  # a window in every second layer
        2 * 116.8e9 - (2 - 17 / 32) * 36 * 128 * 3 * 2880 * 2880,
        36 * 2 * 8 * 64 * 2,
        18 * 2 * 8 * 64 * 2,
        0,
    ),
    # chunks
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (
        2 * 400.7e9,
        48 * 2 * 8 * 128 * 2,
        12 * 2 * 8 * 128 * 2,
        0,
    ),
    "XiaomiMiMo--MiMo-V2-Flash": (  # windows of more heads; keys of 192, values of 128
        308.8e9 + 2 * 152_576 * 4096,
        (39 * 8 + 9 * 4) * (192 + 128) * 2,
        9 * 4 * (192 + 128) * 2,
        0,
    ),
    "google--gemma-4-26B-A4B": (  # keys that are values in full layers, cached as both
        2 * 25.2e9,
        (25 * 8 * 2 * 256 + 5 * 2 * 2 * 512) * 2,
        5 * 2 * 2 * 512 * 2,
        0,
    ),
    "MiniMaxAI--MiniMax-M3": (  # 57 layers choose blocks by a key of 128 in 8 bits
        2 * 426e9,
        60 * 2 * 4 * 128 * 2 + 57 * (128 + 4),
        60 * 2 * 4 * 128 * 2 + 57 * (128 + 4),
        0,
    ),
}
"""Bytes of weights; of a first token in 16 bits, and of one behind all windows; of the state of a
sequence.
"""


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published configurations are not here")
@pytest.mark.parametrize("name", KEPT)
def test_bytes_of_published_models_by_hand(name):
    weights, first, later, state = KEPT[name]
    model = read_config(PUBLISHED / f"{name}_config.json")
    bits = stored_bits(model, model.weight_format or "bf16", model.expert_format)
    assert stored_gb(model, bits) * 1e9 == pytest.approx(weights, rel=0.01)
    assert model.kv_bytes_per_token() == first
    assert model.kv_bytes_per_token(after=1 << 30) == pytest.approx(later, rel=1e-4)
    assert model.state_bytes == state


# ---- configurations as they are published or saved

COHERE = {
    "model_type": "cohere",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
}
COHERE |= {
    "vocab_size": 256_000,
    "logit_scale": 0.0625,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "max_position_embeddings": 131_072,
}
OPT_30B = {
    "model_type": "opt",
    "hidden_size": 7168,
    "num_hidden_layers": 48,
    "num_attention_heads": 56,
    "ffn_dim": 28_672,
}
OPT_30B |= {
    "vocab_size": 50_272,
    "word_embed_proj_dim": 7168,
    "max_position_embeddings": 2048,
    "init_std": 0.02,
}
OPT_30B |= {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "layerdrop": 0.0,
}
OPT_30B |= {"output_projection": True, "activation_dropout": 0.0, "dropout": 0.1, "prefix": "</s>"}
OPT_125M = OPT_30B | {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
}
OPT_125M |= {"word_embed_proj_dim": 768, "output_projection": None}
CONVOLUTIONS = ["conv", "conv", "full_attention"] * 3 + ["conv", "full_attention"] * 3 + ["conv"]
LFM2 = {
    "model_type": "lfm2",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
LFM2 |= {
    "block_ff_dim": 12_288,
    "vocab_size": 65_536,
    "conv_L_cache": 3,
    "layer_types": CONVOLUTIONS,
}
LFM2 |= {"max_position_embeddings": 128_000, "tie_word_embeddings": True}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 100,
    "n_layer": 4,
    "n_head": 10,
    "n_positions": 50,
    "vocab_size": 1000,
    "n_ctx": 50,
}
GPT2 |= {
    "resid_pdrop": 0.1,
    "summary_type": "cls_index",
    "n_inner": None,
    "activation_function": "gelu_new",
}
FALCON = {
    "model_type": "falcon",
    "hidden_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 10,
    "vocab_size": 1000,
}
FALCON |= {
    "multi_query": True,
    "parallel_attn": True,
    "new_decoder_architecture": False,
    "alibi": False,
}
DBRX = {
    "model_type": "dbrx",
    "d_model": 100,
    "n_layers": 4,
    "n_heads": 10,
    "max_seq_len": 50,
    "vocab_size": 1000,
}
DBRX |= {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500_000}}
DBRX |= {
    "ffn_config": {
        "ffn_hidden_size": 300,
        "moe_num_experts": 4,
        "moe_top_k": 2,
        "moe_loss_weight": 0.05,
    }
}
ERNIE = {
    "model_type": "ernie4_5_moe",
    **BASE,
    "moe_num_experts": 8,
    "moe_k": 2,
    "moe_intermediate_size": 50,
}
ERNIE |= {
    "moe_num_shared_experts": 1,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 2,
    "moe_layer_interval": 1,
}
QUARTER = 4 * (4 * 100 * 100 + 8 * 100 * 100) + 1000 * 100
SAVED: dict[
    str, tuple[dict[str, Any], int, float]
] = {  # weights, bytes of cache of a token in 16 bits
    "cohere ties its embeddings": (COHERE, 34_980_495_360, 40 * 2 * 8192 * 2),
    "OPT-30B": (OPT_30B, 29_970_053_120, 1_376_256),
    "OPT-125M": (OPT_125M, 125_117_952, 12 * 2 * 768 * 2),
    "LFM2-1.2B": (  # two thirds of the width stated
        LFM2,
        16 * 3 * 2048 * 8192 + 6 * 2048 * (2 * 2048 + 2 * 512) + 10 * 4 * 2048**2 + 65_536 * 2048,
        12_288,
    ),
    "GPT-2": (GPT2, QUARTER + 50 * 100, 4 * 2 * 100 * 2),
    "Falcon, all queries with one head of keys": (
        FALCON,
        QUARTER - 4 * 2 * 100 * 90,
        4 * 2 * 10 * 2,
    ),
    "DBRX": (DBRX, 4 * (HEADS + 4 * MLP + 4 * 100) + TABLES, 4 * 2 * 20 * 2),
    "ERNIE 4.5": (
        ERNIE | {"tie_word_embeddings": False},
        4 * HEADS + 2 * MLP + 2 * (9 * 15_000 + 800) + TABLES,
        320,
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_weights_and_cache_of_configurations_as_they_are_published(tmp_path, name):
    fields, weights, cached = SAVED[name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    model = read_config(tmp_path)
    assert (model.weights, model.kv_bytes_per_token()) == (weights, cached)


def test_a_short_convolution_keeps_the_inputs_that_wait(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LFM2))
    model = read_config(tmp_path)
    assert model.state_bytes == 10 * 2 * 2048 * 2
    assert {kind.mixer.kind: layers for kind, layers in model.kinds().items() if kind.mixer} == {
        "linear": 10,
        "full": 6,
    }


def test_what_a_class_takes_is_said(tmp_path):
    stated = config(tmp_path, model_type="cohere", max_position_embeddings=4096)
    assert stated.about == "cohere as its config.json describes it"
    (tmp_path / "config.json").write_text(json.dumps(COHERE))
    assert read_config(tmp_path).about == (
        "cohere as its config.json describes it; where it is silent, its class takes "
        "tie_word_embeddings true"
    )
    (tmp_path / "config.json").write_text(json.dumps(BASE | {"model_type": "llama_of_tomorrow"}))
    assert read_config(tmp_path).about == (
        "llama_of_tomorrow, a family that is not known here and is read like llama, as its "
        "config.json describes it"
    )


def test_the_text_model_of_a_file_of_several_towers_has_the_defaults_of_its_own_class(tmp_path):
    """Gemma 3: such a file leaves out what the class of its text model takes, the vocabulary and
    the heads among it.
    """
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    outer = {"model_type": "gemma3", "vision_config": {"hidden_size": 1152}}
    (tmp_path / "config.json").write_text(
        json.dumps(outer | {"text_config": text | {"model_type": "gemma3_text"}})
    )
    model = read_config(tmp_path)
    assert (
        model.vocab_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
    ) == (262_208, 8, 4, 256)
    assert {kind.mixer.kind: layers for kind, layers in model.kinds().items() if kind.mixer} == {
        "sliding": 29,
        "full": 5,
    }
    (tmp_path / "config.json").write_text(json.dumps(outer | {"text_config": text}))
    assert read_config(tmp_path) == model


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 4096, "max_position_embeddings": 4096},
        {"sliding_window": 8192, "max_position_embeddings": 4096},
        {
            "sliding_window": 4096,
            "max_position_embeddings": 4096,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {"attention_chunk_size": 8192, "max_position_embeddings": 4096},
        {
            "sliding_window_size": 4096,
            "max_position_embeddings": 4096,
            "hybrid_layer_pattern": [0, 1, 1, 0],
        },
    ],
)
def test_a_window_as_long_as_the_context_is_none(tmp_path, fields):
    assert config(tmp_path, **fields) == config(tmp_path, max_position_embeddings=4096)


def test_a_window_shorter_than_the_context_is_one(tmp_path):
    model = config(tmp_path, sliding_window=4095, max_position_embeddings=4096)
    assert {kind.mixer.kind for kind in model.kinds() if kind.mixer} == {"sliding"}


@pytest.mark.parametrize(
    "fields",
    [
        {"intermediate_size": [300] * 4},
        {"num_key_value_heads": [2] * 4},
        {"num_attention_heads": [10] * 4, "vocab_size": [1000]},
    ],
)
def test_a_list_of_equal_numbers_is_one_number(tmp_path, fields):
    assert config(tmp_path, **fields) == config(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "intermediate_size": "d_ff"},
        {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
        {"num_attention_heads": "n_heads", "intermediate_size": "n_inner"},
        {
            "hidden_size": "n_embed",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
        },
        {
            "intermediate_size": "ffn_hidden_size",
            "num_key_value_heads": "n_kv_heads",
            "vocab_size": "padded_vocab_size",
        },
        {
            "intermediate_size": "ffn_dim",
            "num_key_value_heads": "num_kv_heads",
            "head_dim": "kv_channels",
        },
    ],
)
def test_other_names_of_sizes(tmp_path, names):
    (tmp_path / "config.json").write_text(
        json.dumps({names.get(name, name): value for name, value in BASE.items()})
    )
    assert read_config(tmp_path) == config(tmp_path)


def test_numbers_that_differ_by_layer_are_refused_in_words(tmp_path):
    with pytest.raises(
        BadInput,
        match=r"intermediate_size: expected one number for all layers, got 4 that differ: \[300, 4",
    ):
        config(tmp_path, intermediate_size=[300, 400, 300, 400])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"model_type": "mamba2", "n_groups": 8, "state_size": 128},
            "'mamba2' is not known here; the nearest that are: ",
        ),
        ({"model_type": "qwen33"}, "'qwen33' is not known here; the nearest that are: qwen3"),
        (
            {"model_type": "zebra", "architectures": ["ZebraLM"]},
            "'zebra' is not known here (architecture ZebraLM); state its",
        ),
        ({"model_type": "bert", **BASE, "type_vocab_size": 2}, "'bert' is not known here"),
        ({"model_type": "gpt-sw3", **BASE}, "'gpt-sw3' is not known here"),
        (
            {
                "model_type": "t5",
                "d_model": 512,
                "d_kv": 64,
                "num_layers": 6,
                "is_encoder_decoder": True,
            },
            "'t5' is not known",
        ),
    ],
)
def test_an_unknown_architecture_is_called_that_before_anything_else(tmp_path, fields, words):
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(BadInput) as error:
        read_config(tmp_path)
    assert error.value.faults[0].field == "model_type"
    assert words in error.value.faults[0].message


def test_a_known_architecture_with_a_fault_is_not_called_unknown(tmp_path):
    with pytest.raises(BadInput) as error:
        config(tmp_path, model_type="llama", hidden_size="wide")
    assert [fault.field for fault in error.value.faults] == ["hidden_size"]


# ---- formats of the KV cache

EIGHT_BITS = {
    "num_bits": 8,
    "type": "float",
    "symmetric": True,
    "strategy": "tensor",
    "dynamic": False,
}
WEIGHTS_OF_8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
}


@pytest.mark.parametrize(
    ("quantisation", "weights", "cache", "each"),
    [
        (WEIGHTS_OF_8 | {"kv_cache_scheme": EIGHT_BITS}, "fp8", "fp8", 1.0),
        (
            WEIGHTS_OF_8 | {"kv_cache_scheme": EIGHT_BITS | {"type": "int"}},
            "fp8",
            "int8",
            1.0 + 4 / 128,
        ),
        (WEIGHTS_OF_8 | {"kv_cache_scheme": None}, "fp8", None, 2.0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {},
                "kv_cache_scheme": EIGHT_BITS,
            },
            None,
            "fp8",
            1.0,
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            "nvfp4",
            "fp8",
            1.0,
        ),
        (
            {"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"},
            None,
            "fp8",
            1.0,
        ),
        (
            {"quant_method": "fp8", "activation_scheme": "static", "kv_cache_scheme": "static"},
            "fp8",
            "fp8",
            1.0,
        ),
    ],
)
def test_the_format_of_the_cache_is_that_of_the_checkpoint(
    tmp_path, quantisation, weights, cache, each
):
    model = config(tmp_path, quantization_config=quantisation)
    assert model.counts()["kv_bytes_per_token"] == 4 * 2 * 20 * each
    assert (model.weight_format, model.cache_format) == (weights, cache)
    placed, sixteen = (
        load(
            "autoregressive_qwen3_32b_a100",
            ["target.tensor_parallel=1", f"target.model={tmp_path}/config.json", *more],
        ).scenario.target
        for more in ([], ["target.kv_cache=bf16"])
    )
    assert placed is not None
    assert placed.kv_cache == (cache or "fp16")
    assert placed.kv_gb(1000) == pytest.approx(
        4 * 2 * 20 * each * 1000 / placed.tensor_parallel / 1e9, rel=1e-12
    )
    assert sixteen is not None
    assert sixteen.kv_cache == "bf16"


def test_the_format_of_the_cache_in_a_file_beside_the_configuration(tmp_path):
    """As modelopt writes it."""
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps(
            {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            }
        )
    )
    assert config(tmp_path).counts()["kv_bytes_per_token"] == 4 * 2 * 20


@pytest.mark.parametrize(
    "stated", [{"kv_cache_scheme": EIGHT_BITS | {"num_bits": 2}}, {"kv_cache_quant_algo": "NVFP4"}]
)
def test_a_format_of_the_cache_that_cannot_be_expressed_is_refused_by_name(tmp_path, stated):
    with pytest.raises(
        BadInput,
        match=r"kv_cache_\w+: is no format of a KV cache that is known here: .*; leave it out of "
        r"a copy",
    ):
        config(tmp_path, quantization_config=WEIGHTS_OF_8 | stated)
