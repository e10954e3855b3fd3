"""Shapes to weights, bytes and touched experts; the model files; the config.json reader."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from simulator.core.cost.formats import WEIGHT_BYTES
from simulator.core.cost.model import Experts, ModelSpec
from simulator.core.faults import BadInput
from simulator.inputs.document import read
from simulator.inputs.models.huggingface import read_config
from simulator.inputs.schema import validate

MODELS = Path(__file__).parent.parent / "scenarios" / "models"
FILES = sorted(MODELS.glob("*.yaml"))

# Computed from the shape, norms and biases left out: (matrix parameters, KV bytes per token in
# fp16).
KNOWN = {
    "llama_3_1_8b": (8_029_995_008, 131_072),
    "llama_3_1_70b": (70_552_387_584, 327_680),
    "llama_3_3_70b": (70_552_387_584, 327_680),
    "llama_3_2_1b": (1_235_746_816, 32_768),
    "llama_2_7b": (6_738_149_376, 524_288),
    "llama_2_13b": (13_015_449_600, 819_200),
    "llama_2_70b": (68_975_329_280, 327_680),
    "vicuna_7b": (6_738_149_376, 524_288),
    "vicuna_13b": (13_015_449_600, 819_200),
    "vicuna_33b": (32_528_138_240, 1_597_440),
    "llama_68m": (68_026_368, 6_144),
    "llama_160m": (162_398_208, 36_864),
    "tinyllama_1_1b": (1_099_956_224, 22_528),
    "tiny_vicuna_1b": (1_099_956_224, 22_528),
    "qwen3_0_6b": (595_984_384, 114_688),
    "qwen3_1_7b": (1_720_451_072, 114_688),
    "qwen3_4b": (4_022_272_000, 147_456),
    "qwen3_8b": (8_190_427_136, 147_456),
    "qwen3_14b": (14_767_882_240, 163_840),
    "qwen3_32b": (32_761_446_400, 262_144),
    "mistral_7b": (7_241_465_856, 131_072),
    "mistral_small_24b": (23_571_988_480, 163_840),
    "phi_3_mini": (3_820_879_872, 393_216),
    "opt_125m": (125_117_952, 36_864),
    "opt_350m": (330_876_928, 98_304),
    "opt_1_3b": (1_315_115_008, 196_608),
    "opt_6_7b": (6_656_761_856, 524_288),
    "opt_13b": (12_850_800_640, 819_200),
    "opt_66b": (65_712_015_360, 2_359_296),
    "mixtral_8x7b": (46_702_526_464, 131_072),
    "deepseek_v3": (671_025_397_760, 70_272),
    "deepseek_v3_2": (671_876_907_008, 78_324),  # 132 bytes of the indexer's key in each layer
    "gpt_oss_120b": (116_788_838_400, 73_728),
    "qwen3_5_27b": (26_893_352_960, 65_536),
    "qwen3_5_35b_a3b": (34_659_368_960, 20_480),
    "nemotron_3_nano_30b_a3b": (31_576_989_696, 6_144),
    "llama_4_maverick": (400_711_352_320, 196_608),
    "mimo_v2_flash": (308_778_369_024, 222_720),
}

# Hidden 100, 2 layers, 10 heads of 10 (2 for keys and values), MLP of 300, 1000 words.
ROUND = {
    "hidden_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
}
ROUND |= {"head_dim": 10, "intermediate_size": 300, "vocab_size": 1000}


def model(**changes: object) -> ModelSpec:
    return ModelSpec.model_validate(ROUND | changes)


def load(name: str) -> ModelSpec:
    return validate(ModelSpec, read(MODELS / f"{name}.yaml"))


# Shapes by hand


def test_a_round_model_by_hand():
    spec = model()
    assert spec.qkv_weights == 100 * (100 + 2 * 20)
    assert spec.attention.output == 100 * 100
    assert spec.layer_weights == 14_000 + 10_000 + 3 * 100 * 300
    assert spec.head_weights == 1000 * 100
    assert spec.weights == 2 * (14_000 + 10_000 + 60_000 + 30_000) + 2 * 100_000 == 428_000
    assert spec.active_weights == spec.weights


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({"tie_word_embeddings": True}, 428_000 - 100_000),
        ({"mlp": "two_matrix"}, 428_000 - 2 * 30_000),
        ({"num_key_value_heads": 10}, 428_000 + 2 * 100 * 2 * 80),
        # query width 200, twice the hidden size
        (
            {"head_dim": 20},
            428_000 + 2 * (14_000 + 10_000),
        ),
        ({"learned_positions": 12}, 428_000 + 12 * 100),
        # and a projection in and out
        (
            {"embedding_width": 50},
            428_000 - 2 * 1000 * 50 + 2 * 50 * 100,
        ),
        ({"embedding_width": 100}, 428_000),
        ({"parameters": 5}, 5),
    ],
)
def test_each_shape_changes_the_weights_it_should(changes, weights):
    assert model(**changes).weights == weights


@pytest.mark.parametrize(
    ("changes", "per_layer"),
    [
        ({}, 2 * 2 * 10 * 2),
        ({"num_key_value_heads": 10}, 2 * 10 * 10 * 2),
        ({"kv_latent_width": 7}, 7 * 2),
    ],
)
def test_kv_bytes(changes, per_layer):
    spec = model(**changes)
    assert spec.kv_bytes_per_layer() == per_layer
    assert spec.kv_bytes_per_token() == 2 * per_layer
    assert spec.kv_bytes_per_token(bytes_per_value=1.0) == per_layer


@pytest.mark.parametrize(
    ("kind", "thousand_weights"),
    [
        ("fp32", 4000),
        ("bf16", 2000),
        ("fp8", 1000),
        ("int4", 515.625),
        ("nvfp4", 562.5),
        ("q8_0", 1062.5),
        ("q4_0", 562.5),
        ("q5_k_m", 712.5),
    ],
)
def test_bytes_of_quantised_weights(kind, thousand_weights):
    assert 1000 * WEIGHT_BYTES[kind] == pytest.approx(thousand_weights, rel=1e-12)


def test_heads_must_divide():
    with pytest.raises(ValidationError, match="multiple of num_key_value_heads"):
        model(num_key_value_heads=3)


# Experts


def test_touched_experts():
    experts = Experts.model_validate(
        {"routed": 8, "per_token": 2, "intermediate_size": 1, "popularity": {"value": 0.0}}
    )
    assert experts.touched(0) == 0
    assert experts.touched(1) == pytest.approx(2, rel=1e-12)
    assert experts.touched(2) == pytest.approx(8 * (1 - 0.75**2), rel=1e-12)
    assert experts.touched(1000) == pytest.approx(8, rel=1e-12)
    assert Experts(routed=4, per_token=4, intermediate_size=1).touched(1) == 4


def test_weights_of_a_mixture_by_hand():
    spec = model(
        experts={
            "routed": 4,
            "per_token": 1,
            "intermediate_size": 50,
            "shared": 1,
            "first_dense_layers": 1,
        }
    )
    assert (spec.expert_layers, spec.expert_weights) == (1, 3 * 100 * 50)
    # one dense MLP out; experts and router in
    assert spec.weights == 428_000 - 90_000 + (4 + 1) * 15_000 + 100 * 4
    assert spec.active_weights == spec.weights - 3 * 15_000


def test_more_active_than_routed_is_refused():
    with pytest.raises(ValidationError, match="more than the 4 routed"):
        Experts(routed=4, per_token=5, intermediate_size=1)


@pytest.mark.parametrize(("name", "billion"), [("mixtral_8x7b", 12.9), ("deepseek_v3", 37.5)])
def test_active_weights_of_published_mixtures(name, billion):
    assert load(name).active_weights / 1e9 == pytest.approx(billion, abs=0.06)


# The files


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_model_file_is_valid_and_sourced(path):
    spec = validate(ModelSpec, read(path))
    assert spec.about
    assert spec.source not in ("", "not stated")
    assert spec.confidence in ("published", "computed", "assumed")
    if spec.source.startswith(("well known", "assumed")):
        assert spec.confidence == "assumed"
        assert "unverified" in spec.about


@pytest.mark.parametrize("name", KNOWN)
def test_weights_and_kv_bytes_of_known_models(name):
    spec = load(name)
    assert (spec.weights, spec.kv_bytes_per_token()) == KNOWN[name]


@pytest.mark.parametrize(
    ("draft", "target", "stated"),
    [
        ("spd_qwen_0_6b", "qwen3_32b", 0.6e9),
        ("spd_mistral_0_5b", "mistral_small_24b", 0.5e9),
        ("spd_opt_0_2b", "opt_66b", 0.2e9),
    ],
)
def test_mirror_sd_drafts_have_the_stated_size(draft, target, stated):
    spec = load(draft)
    assert spec.weights == pytest.approx(stated, rel=0.02)
    assert spec.vocab_size == load(target).vocab_size
    for width in (
        spec.hidden_size,
        spec.num_attention_heads,
        spec.num_key_value_heads,
        spec.intermediate_size,
    ):
        assert width % 8 == 0  # one part per track


# config.json

LLAMA = ROUND | {
    "model_type": "llama",
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}
OPT = {
    "model_type": "opt",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "ffn_dim": 4096,
}
OPT |= {"vocab_size": 50272, "word_embed_proj_dim": 512, "max_position_embeddings": 2048}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "head_dim": None,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
ORIGIN = {"name", "huggingface", "about", "source", "confidence"}  # not part of a shape


def write(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config, indent=2))
    return path


def without(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.parametrize(
    "kind", ["llama", "mistral", "qwen2", "qwen3", "phi3", "a_family_of_tomorrow"]
)
def test_llama_like_configs(tmp_path, kind):
    spec = read_config(write(tmp_path, LLAMA | {"model_type": kind}))
    known = model(context_tokens=LLAMA["max_position_embeddings"])
    assert spec.model_dump(exclude=ORIGIN) == known.model_dump(exclude=ORIGIN)
    assert spec.source == f"{tmp_path / 'config.json'} (HF config.json)"


def test_a_directory_and_the_optional_fields(tmp_path):
    write(
        tmp_path,
        without(LLAMA, "head_dim", "num_key_value_heads", "tie_word_embeddings", "model_type"),
    )
    spec = read_config(tmp_path)
    assert (spec.name, spec.head_dim, spec.num_key_value_heads, spec.tie_word_embeddings) == (
        tmp_path.name,
        10,
        10,
        False,
    )


@pytest.mark.parametrize(("config", "name"), [(OPT, "opt_350m"), (DEEPSEEK, "deepseek_v3")])
def test_a_config_gives_the_same_shape_as_the_file(tmp_path, config, name):
    assert read_config(write(tmp_path, config)).model_dump(exclude=ORIGIN) == load(name).model_dump(
        exclude=ORIGIN
    )


def test_opt_without_a_projection(tmp_path):
    assert read_config(write(tmp_path, without(OPT, "word_embed_proj_dim"))).embedding_width is None


def test_deepseek_without_a_query_latent(tmp_path):
    spec = read_config(write(tmp_path, DEEPSEEK | {"q_lora_rank": None}))
    queries = 128 * (128 + 64)
    assert spec.weights == 671_025_397_760 + 61 * (7168 * queries - 1536 * (7168 + queries))


def test_mixtral(tmp_path):
    spec = read_config(write(tmp_path, MIXTRAL))
    assert spec.experts == Experts(routed=8, per_token=2, intermediate_size=300)
    assert spec.head_dim == 10


def test_qwen_moe(tmp_path):
    names = {
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 50,
        "decoder_sparse_step": 1,
    }
    spec = read_config(write(tmp_path, LLAMA | names | {"shared_expert_intermediate_size": 200}))
    assert spec.experts == Experts(routed=16, per_token=4, intermediate_size=50, shared=4)


@pytest.mark.parametrize(
    ("config", "messages"),
    [
        (without(LLAMA, "hidden_size"), ["{}:1:1: hidden_size: is required and missing"]),
        (
            without(LLAMA, "intermediate_size", "model_type"),
            ["{}:1:1: intermediate_size: is required and missing"],
        ),
        (
            without(MIXTRAL, "num_experts_per_tok", "model_type"),
            ["{}:1:1: num_experts_per_tok: is required and missing"],
        ),
        (
            without(DEEPSEEK, "qk_rope_head_dim", "model_type"),
            ["{}:1:1: qk_rope_head_dim: is required and missing"],
        ),
        (
            without(LLAMA, "vocab_size", "num_hidden_layers", "model_type"),
            [
                "{}:1:1: num_hidden_layers: is required and missing",
                "{}:1:1: vocab_size: is required and missing",
            ],
        ),
        (
            LLAMA | {"hidden_size": "wide"},
            ["{}:2:3: hidden_size: expected a whole number of at least 1, got 'wide'"],
        ),
        (
            LLAMA | {"num_hidden_layers": True},
            ["{}:3:3: num_hidden_layers: expected a whole number of at least 1, got true"],
        ),
        (
            LLAMA | {"tie_word_embeddings": 1},
            ["{}:10:3: tie_word_embeddings: expected true or false, got 1"],
        ),
        (
            without(LLAMA, "head_dim") | {"hidden_size": 101},
            [
                (
                    "{}:1:1: head_dim: is missing, and hidden_size 101 is not a multiple of "
                    "num_attention_heads 10"
                )
            ],
        ),
        (
            LLAMA | {"num_key_value_heads": 3},
            ["{}:1:1: num_attention_heads must be a multiple of num_key_value_heads"],
        ),
        (
            DEEPSEEK | {"moe_layer_freq": [0, 1]},
            ["{}:14:3: moe_layer_freq: expected an entry for each of 61 layers, got [0, 1]"],
        ),
        (
            LLAMA | {"attention_mixture_size": 4},
            ["{}:12:3: attention_mixture_size: is not understood and may change the cost: 4"],
        ),
        (
            LLAMA | {"layer_types": ["full_attention", "retention"]},
            ["{}:12:3: layer_types: 'retention' is no known layer"],
        ),
        (
            "{\n  not json",
            ["{}:2:3: not valid JSON: Expecting property name enclosed in double quotes"],
        ),
        ("[]", ["{}:1:1: expected a JSON object, as a Hugging Face config.json is"]),
    ],
)
def test_a_config_that_cannot_be_read_says_where(tmp_path, config, messages):
    path = write(tmp_path, config)
    with pytest.raises(BadInput) as error:
        read_config(path)
    assert str(error.value).splitlines() == [message.format(path) for message in messages]


def test_a_directory_without_a_config(tmp_path):
    with pytest.raises(BadInput, match=r"config\.json: cannot be read: No such file"):
        read_config(tmp_path)
