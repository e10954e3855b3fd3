"""Bits a weight of stored files: rules of mixes by hand, names as people write them, and sizes of
files that were published.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from simulator.core.cost.formats import FORMATS, WeightFormat, format_name
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored import ggml
from simulator.core.cost.stored.mixes import (
    DYNAMIC,
    LARGE,
    MIXES,
    RECIPES,
    Spot,
    more_bits,
    spots,
    stored_bits,
    stored_gb,
    tensors,
)
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.scenario import load
from simulator.scenario.caveats import caveats
from tests.test_formats import ENGINE, MODEL, place

SMALL: dict[str, Any] = {
    "name": "small",
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "intermediate_size": 512,
    "vocab_size": 1024,
}
TIED = {"tie_word_embeddings": True}
Q, KV, OUTPUT, MLP = 256 * 256, 256 * 128, 256 * 256, 256 * 512
LAYER = Q + 2 * KV + OUTPUT + 3 * MLP


def small(**changes: Any) -> ModelSpec:
    return ModelSpec.model_validate(SMALL | changes)


def test_q4_k_m_by_hand() -> None:
    """Eight layers: the first, the last and every third after the first, counted from 0, have six
    bits for values and for the matrix behind the activation.
    """
    raised = [layer for layer in range(8) if more_bits(Spot(layer, 8, small()))]
    assert raised == [0, 3, 6, 7]
    bits = stored_bits(small(), "q4_k_m")
    half = (KV + MLP) / 2
    assert bits.block_bits == pytest.approx(4.5 + half / LAYER * (6.5625 - 4.5), rel=1e-12)
    assert (bits.embedding_bits, bits.head_bits) == (4.5, 6.5625)
    assert bits.expert_bits == bits.block_bits
    size = 8 * LAYER * bits.block_bits + 1024 * 256 * (4.5 + 6.5625)
    assert stored_gb(small(), bits) == pytest.approx(size / 8e9, rel=1e-12)


@pytest.mark.parametrize(
    ("mix", "changes", "expected"),
    [
        ("q4_k_s", {}, 4.5 + (KV * 4 / 8 + MLP / 8) / LAYER),
        ("q3_k_s", {}, 3.4375),
        (
            "q3_k_m",
            {},
            3.4375 + (KV * (2 * 5.5 + 6 * 4.5 - 8 * 3.4375) / 8 + (MLP + OUTPUT) * 1.0625) / LAYER,
        ),
        ("q3_k_l", {}, 3.4375 + (KV + MLP + OUTPUT) * (5.5 - 3.4375) / LAYER),
        ("q2_k", {}, 2.625 + (KV + MLP + OUTPUT) * (3.4375 - 2.625) / LAYER),
        ("q5_k_s", {}, 5.5),
        ("q6_k", {}, 6.5625),
        ("mostly_q4_0", {}, 4.5),
        ("iq4_xs", {}, 4.25),
        ("iq2_xxs", {}, 2.0625 + (KV + MLP / 8) * (2.625 - 2.0625) / LAYER),
        # four queries or more share a head of values
        (
            "iq4_xs",
            {"num_key_value_heads": 2},
            4.25 + KV / 2 * (5.5 - 4.25) / (LAYER - KV),
        ),
    ],
)
def test_rules_by_hand(mix: Any, changes: dict[str, Any], expected: float) -> None:
    assert stored_bits(small(**changes), mix).block_bits == pytest.approx(expected, rel=1e-12)


def test_rows_that_no_block_of_256_divides_take_another_type() -> None:
    """As Qwen2.5-0.5B: a hidden size of 320 makes Q4_K Q5_0, Q6_K Q8_0, and the tables Q8_0; the
    matrix behind the activation has 512 inputs and stays.
    """
    bits = stored_bits(small(hidden_size=320), "q4_k_m")
    mlp = 320 * 512
    kv = 320 * 128
    others = 320 * 256 + kv + 2 * mlp
    output = 256 * 320
    layer = others + kv + output + mlp
    mean = others * 5.5 + kv * (5.5 + 8.5) / 2 + output * 4.5 + mlp * (4.5 + 6.5625) / 2
    assert bits.block_bits == pytest.approx(mean / layer, rel=1e-12)
    assert (bits.embedding_bits, bits.head_bits) == (5.5, 8.5)


def test_one_table_for_both_is_stored_like_the_head() -> None:
    bits = stored_bits(small(tie_word_embeddings=True), "q4_k_m")
    assert (bits.embedding_bits, bits.head_bits) == (6.5625, 6.5625)


def test_a_mixture_has_bits_of_its_own_for_experts() -> None:
    experts = {"routed": 8, "per_token": 2, "intermediate_size": 256}
    bits = stored_bits(small(experts=experts), "q4_k_m")
    assert bits.expert_bits == pytest.approx((2 * 4.5 + (4.5 + 6.5625) / 2) / 3, rel=1e-12)
    # eight experts: keys and values in Q8_0, the output in Q5_K; the choice among them in 32 bits
    router = 256 * 8
    attention = Q * 4.5 + 2 * KV * 8.5 + OUTPUT * 5.5
    mean = (attention + router * 32) / (Q + 2 * KV + OUTPUT + router)
    assert bits.block_bits == pytest.approx(mean, rel=1e-12)
    moe = stored_bits(small(experts=experts), "mxfp4_moe")
    assert moe.expert_bits == 4.25
    assert moe.head_bits == 8.5


def test_a_recipe_of_mlx_by_hand() -> None:
    """A scale and a bias of 16 bits for 64 weights are half a bit."""
    bits = stored_bits(small(), "mlx_mixed_3_6")
    assert bits.block_bits == pytest.approx(3.5 + 3 * (KV + MLP) / 2 / LAYER, rel=1e-12)
    assert (bits.embedding_bits, bits.head_bits) == (3.5, 6.5)
    assert stored_bits(small(), "mlx_4").block_bits == 4.5
    assert stored_bits(small(), "mlx_4_g32").head_bits == 5.0
    assert stored_bits(small(), "mlx_6_g128").embedding_bits == 6.25


@given(st.sampled_from(sorted({*MIXES, *RECIPES})), st.integers(1, 90), st.sampled_from([1, 2, 8]))
def test_matrices_are_all_weights_and_bits_lie_between_the_types(
    mix: Any, layers: int, heads: int
) -> None:
    model = small(num_hidden_layers=layers, num_key_value_heads=heads)
    every = list(tensors(model))
    assert sum(tensor.weights for tensor in every) == model.weights - model.table_weights
    assert all(0 <= spot.number < spot.of for _, spot in spots(model))
    bits = stored_bits(model, mix)
    for value in bits.model_dump().values():
        assert 1.5 < value <= 8.5
    assert stored_gb(model, bits) > 0.0


@pytest.mark.parametrize("name", Catalogue().names("model"))
def test_matrices_of_every_model_are_its_weights(name: str) -> None:
    model = find_model(name, Catalogue(), "name").spec
    if model.parameters is None and model.embedding_width is None and not model.learned_positions:
        found = sum(tensor.weights for tensor in tensors(model))
        assert found == model.weights - model.table_weights


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Q4_K_M", "q4_k_m"),
        ("q4_k_m", "q4_k_m"),
        ("Q4-K-M", "q4_k_m"),
        ("IQ4_XS", "iq4_xs"),
        ("UD-Q4_K_XL", "ud_q4_k_xl"),
        ("MLX-4bit", "mlx_4"),
        ("mlx 4 bits", "mlx_4"),
        ("4bit-mlx", "mlx_4"),
        ("mlx_4_g64", "mlx_4"),
        ("mlx_4_g32", "mlx_4_g32"),
        ("MLX-8bit-g128", "mlx_8_g128"),
        ("AWQ", "int4"),
        ("GPTQ-Int4", "int4"),
        ("BF16", "bf16"),
        ("MXFP4_MOE", "mxfp4_moe"),
    ],
)
def test_formats_as_people_write_them(written: str, name: str) -> None:
    assert format_name(written) == name
    assert name in FORMATS
    assert place(weights=written).weights == name


def test_editors_take_formats_as_people_write_them() -> None:
    schema = TypeAdapter(WeightFormat).json_schema()
    names, written = schema["anyOf"]
    assert names["enum"] == list(FORMATS)
    for name in ("Q4_K_M", "UD-Q4_K_XL", "mlx 4 bit", "4bit-mlx"):
        assert re.search(written["pattern"], name)
    assert not re.search(written["pattern"], "q4_km")


def test_a_format_that_nobody_knows_is_refused_with_what_there_is() -> None:
    with pytest.raises(BadInput, match="there is no format of weights 'exl3': fp16, bf16, fp8"):
        place(weights="exl3")
    with pytest.raises(BadInput, match="'mlx_mixed_3_7'; did you mean 'mlx_mixed_3_6'"):
        place(weights="mlx_mixed_3_7")


def test_products_and_memory_have_the_bytes_of_a_mix() -> None:
    """A tiny model whose rows are no multiple of 32 stays in 16 bits, as llama.cpp keeps it; in a
    width of 256 a row of a product reads what the rules say, the head its own format.
    """
    assert place(weights="Q4_K_M").weights_gb() == pytest.approx(560_000 * 2 / 1e9, rel=0.2)
    wide = place(model=MODEL | SMALL, weights="Q4_K_M")
    bits = stored_bits(wide.model, "q4_k_m")
    assert wide.number_format("blocks").weight_bytes == pytest.approx(
        bits.block_bits / 8, rel=1e-12
    )
    assert wide.number_format("head").weight_bytes == 6.5625 / 8
    assert wide.weights_gb() == pytest.approx(stored_gb(wide.model, bits), rel=1e-12)


def test_llama_cpp_leaves_the_embedding_to_the_host() -> None:
    """Of Qwen3.5-27B in Q4_K_M 682.03 MiB, as llama.cpp prints them; a table that is also the LM
    head is on the device.
    """
    engine = ENGINE | {"embeds_on_host": True}
    wide, lean = (
        place(model=MODEL | SMALL, weights="Q4_K_M", engine=stated) for stated in (ENGINE, engine)
    )
    assert wide.weights_gb() - lean.weights_gb() == pytest.approx(1024 * 256 * 4.5 / 8e9, rel=1e-9)
    tied = place(model=MODEL | SMALL | TIED, weights="Q4_K_M", engine=engine)
    assert tied.weights_gb() == pytest.approx(stored_gb(tied.model, tied.bits), rel=1e-12)
    model = find_model("qwen3_5_27b", Catalogue(), "name").spec
    embedding = model.head_weights * stored_bits(model, "q4_k_m").embedding_bits / 8
    assert embedding / 2**20 == pytest.approx(682.03, abs=0.005)


def test_dynamic_mixes_count_as_the_nearest_and_say_so() -> None:
    """unsloth/Mistral-Small-3.2-24B-Instruct-2506-GGUF: 14.55 GB, Qwen3-0.6B-GGUF 0.405 GB."""
    for name, size in {"mistral_small_24b": 14.548_880_928, "qwen3_0_6b": 0.405_372_608}.items():
        model = find_model(name, Catalogue(), "name").spec
        less = stored_gb(model, stored_bits(model, "ud_q4_k_xl")) / size
        assert 0.96 < less < 1.0
    loaded = load("vanilla_qwen3_32b_m2_ultra_gpu_draft", ["target.weights=UD-Q4_K_XL"])
    noted = list(caveats(loaded, loaded.acceptance()))
    assert any("differs from model to model: it counts as q4_k_m" in note for note in noted)


def test_old_names_have_the_bits_they_had() -> None:
    old = {"q4_k": 4.5, "q4_0": 4.5, "q8_0": 8.5, "int4": 4.125, "q5_k_m": 5.7}
    for name, bits in old.items():
        assert stored_bits(small(), name).block_bits == bits  # type: ignore[arg-type]
    assert stored_bits(small(), "q4_0").head_bits == 4.5
    assert stored_bits(small(), "int4").head_bits == 16


def test_a_mix_takes_the_curve_of_its_type() -> None:
    sets = ["target.weights=Q4_K_M", "target.device=m2_ultra_gpu"]
    target = load("vanilla_qwen3_32b_m2_ultra_gpu_draft", sets).scenario.target
    assert target
    assert target.device.matmul_for("q4_k_m") is target.device.matmul["q4_k"]
    lighter = load("vanilla_qwen3_32b_m2_ultra_gpu_draft", ["target.weights=q4_k"]).scenario.target
    assert lighter
    assert target.weights_gb() / lighter.weights_gb() == pytest.approx(4.824 / 4.5, rel=1e-3)


def test_every_mix_names_types_that_there_are() -> None:
    for name, mix in MIXES.items():
        kinds = {mix.usual, mix.head, *(kind for rules in mix.parts.values() for _, kind in rules)}
        assert kinds | ({mix.embedding} if mix.embedding else set()) <= set(ggml.TYPES), name
        assert name in FORMATS
    assert {*LARGE, *DYNAMIC} <= set(MIXES)


# ---- sizes of files that were published

README = "ggml-org/llama.cpp 311c2c9 tools/quantize/README.md, bits a weight of Llama-3.1-8B"
BARTOWSKI = "bartowski/Llama-3.1-70B-GGUF, model card (quoted at ozeki.chat/p_8590)"
LISTED = "sizes of files at pinned revisions of Hugging Face (bartowski, Qwen)"
EXO = "exo-explore/exo, sizes of pinned revisions of mlx-community"
UNSLOTH = "unsloth/Qwen3-0.6B-GGUF, sizes of files"
BENCH = "llama-bench of geerlingguy/ai-benchmarks#43, size of all tensors"
HEADER = 5_940_000
"""Bytes of a header with a vocabulary of 151,936 tokens (Qwen3-32B-Q4_K_M.gguf: 5,974,661)."""
HEADER_OF_LLAMA = 7_900_000
"""The same of 128,256 tokens: what the file of Llama-3.1-8B has beside the bits of the README."""
BITS_OF_8B = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,  # without an importance matrix: the first eighth behind activations in Q5_K
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_l": 4.2979,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
    "fp16": 16.0005,
}
GB_OF_70B = {
    "q8_0": 74.98,
    "q6_k": 57.89,
    "q5_k_l": 50.60,
    "q5_k_m": 49.95,
    "q5_k_s": 48.66,
    "q4_k_l": 43.30,
    "q4_k_m": 42.52,
    "q4_k_s": 40.35,
    "mostly_q4_0": 40.12,
    "q3_k_xl": 38.06,
    "iq4_xs": 37.90,
    "q3_k_l": 37.14,
    "q3_k_m": 34.27,
    "iq3_m": 31.94,
    "q3_k_s": 30.91,
}
FILES = [
    *(("llama_3_1_8b", form, bits * 8.030261e9 / 8, README) for form, bits in BITS_OF_8B.items()),
    *(("llama_3_1_70b", form, size * 1e9, BARTOWSKI) for form, size in GB_OF_70B.items()),
    ("llama_3_1_8b", "q4_k_m", 4_920_739_232, LISTED),
    ("llama_3_2_1b", "q4_k_m", 807_694_464 - HEADER_OF_LLAMA, LISTED),
    ("llama_3_3_70b", "q4_k_m", 42_520_398_816, LISTED),
    ("qwen2_5_32b", "q4_k_m", 19_851_336_576, LISTED),
    ("qwen2_5_72b", "q4_k_m", 47_415_715_488, LISTED),
    ("qwen3_14b", "q4_k_m", 9_001_752_960, LISTED),
    ("qwen3_32b", "q4_k_m", 19_762_149_024, LISTED),
    ("qwen3_30b_a3b", "q4_k_m", 18_556_685_824, LISTED),
    ("qwen3_235b_a22b", "q4_k_m", 142_154_074_512, LISTED),
    ("qwen3_0_6b", "q4_k_m", 396_705_472 - HEADER, UNSLOTH),
    ("qwen3_0_6b", "q4_k_s", 383_270_592 - HEADER, UNSLOTH),
    ("qwen3_0_6b", "q8_0", 639_447_744 - HEADER, UNSLOTH),
    ("tinyllama_1_1b", "q4_k_m", 636.18 * 2**20, BENCH),
    ("llama_3_2_1b", "mlx_4", 695_242_752, EXO),
    ("llama_3_1_8b", "mlx_4", 4_517_404_672, EXO),
    ("llama_3_3_70b", "mlx_4", 39_688_355_840, EXO),
    ("qwen3_30b_a3b", "mlx_4", 17_180_913_664, EXO),
    ("llama_3_1_8b", "fp8", 9.08e9, "tinygrad/tinygrad#12893, memory of the weights"),
]


@pytest.mark.parametrize(("name", "form", "size", "source"), FILES)
def test_sizes_of_published_files(name: str, form: Any, size: float, source: str) -> None:
    model = find_model(name, Catalogue(), "name").spec
    found = stored_gb(model, stored_bits(model, form)) * 1e9
    assert found == pytest.approx(size, rel=0.01), source
