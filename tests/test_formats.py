"""Formats of weights and caches: their bytes, the arithmetic that a device has, attention in parts,
weights in a cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.device import Device
from simulator.core.cost.formats import FORMATS, WeightName
from simulator.core.cost.kernels import attention_timer, computes_longer_than_it_reads
from simulator.core.cost.placement import Placement
from simulator.core.cost.roofline import Attention
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.schema import validate
from simulator.scenario import load
from simulator.scenario.caveats import caveats
from simulator.scenario.uncertain.devices import slowed
from tests.layer_times import layer_products

HARD = {"fixed_us": 0, "memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 1e4}
SUM = {**HARD, "p_norm": 1}
DEVICE = {
    "name": "round",
    "kind": "gpu",
    "memory_gb": 100,
    "memory_bandwidth_gb_s": 1,  # a byte takes a nanosecond
    "peak_tflops": 1e-3,  # and so does a flop
    "matmul": {"default": HARD},
    "attention": {
        "decode": {**SUM, "head_us": 1e-3},
        "prefill": {**SUM, "fixed_us": 1},
        "extra_row": 0.5,
    },
    "small_operations": HARD,
}
MODEL = {
    "name": "tiny",
    "hidden_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
    "head_dim": 10,
    "intermediate_size": 200,
    "vocab_size": 1000,
}
ENGINE = {
    "host_us_per_layer": 0,
    "host_us_per_pass": 0,
    "small_operations_ratio": 1,
    "kv_traffic_ratio": 1,
    "sampling_us": 0,
}


def place(device: dict[str, Any] | None = None, **changes: Any) -> Placement:
    document = Document(
        {"model": MODEL, "device": DEVICE | (device or {}), "engine": ENGINE, **changes},
        {(): ("test", 1, 1)},
    )
    return validate(Placement, document)


def nanoseconds(value: float) -> Any:
    return pytest.approx(value * 1e-9, rel=1e-12)


def test_the_formats_of_the_schema_are_those_that_have_bytes() -> None:
    assert get_args(WeightName) == tuple(FORMATS)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("fp16", 2 * 20_000 + 2 * 100 + 2 * 200),
        ("fp8", 20_000 + 4 * 100 + 2 * 200),  # an input is read in 16 bits, written and read in 8
        ("fp8_block", 20_000 * (1 + 4 / 128**2) + (4 + 2 * 4 / 128) * 100 + 2 * 200),
        ("fp8_wo", 20_000 + 2 * 100 + 2 * 200),
        ("int4", 20_000 * 33 / 64 + 2 * 100 + 2 * 200),
    ],
)
def test_a_product_moves_the_bytes_of_its_format(weights: str, expected: float) -> None:
    on = place({"peaks_tflops": {"fp8": 1e3}, "peak_tflops": 1e3}, weights=weights)
    assert layer_products(on, 1, False).qkv == nanoseconds(expected)


@pytest.mark.parametrize(
    ("weights", "flop_ns"),
    [("fp16", 1), ("fp8", 0.5), ("fp8_block", 0.5), ("fp8_wo", 1), ("int4", 1)],
)
def test_a_format_computes_at_the_peak_of_its_arithmetic(weights: str, flop_ns: float) -> None:
    on = place({"peaks_tflops": {"fp8": 2e-3}, "memory_bandwidth_gb_s": 1e6}, weights=weights)
    assert layer_products(on, 3, False).qkv == nanoseconds(2 * 3 * 20_000 * flop_ns)


def test_a_device_that_states_one_peak_computes_every_format_in_16_bits() -> None:
    """Files from before there were peaks by format keep their numbers."""
    for weights in ("fp8", "int8", "nvfp4"):
        assert layer_products(
            place({"memory_bandwidth_gb_s": 1e6}, weights=weights), 3, False
        ).qkv == nanoseconds(120_000)


def test_arithmetic_that_a_device_lacks_is_refused_at_its_place() -> None:
    refused = CliRunner().invoke(
        main, ["run", "vanilla_qwen3_32b_a100", "--set", "target.weights=fp8"]
    )
    assert refused.exit_code == 2
    assert (
        "target.weights: a100_80g_sxm has no fp8 arithmetic; it has fp16, int8. fp8_wo stores"
        in refused.stderr
    )
    with pytest.raises(
        BadInput, match=r"weights: round has no nvfp4 arithmetic; it has fp16, fp8\. nvfp4_wo"
    ):
        place({"peaks_tflops": {"fp8": 1}}, weights="nvfp4")
    with pytest.raises(BadInput, match="other has no fp8 arithmetic"):
        other = DEVICE | {"name": "other", "peaks_tflops": {"int8": 1}}
        stages = [{"layers": 2, "device": other}, {"layers": 2}]
        within = {"latency_us": 0, "bandwidth_gb_s": 1}
        place(
            {"peaks_tflops": {"fp8": 1}},
            weights="fp8",
            pipeline={"stages": stages, "within": within},
        )


def test_a_fault_names_line_and_column_of_the_file(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("like: vanilla_qwen3_32b_a100\ntarget:\n  weights: fp8\n")
    refused = CliRunner().invoke(main, ["run", str(scenario)])
    assert refused.exit_code == 2
    assert "mine.yaml:3:3: target.weights: a100_80g_sxm has no fp8 arithmetic" in refused.stderr


def test_checkpoints_leave_embedding_and_head_in_16_bits() -> None:
    """Four layers of 90,000 weights, two tables of 100,000; llama.cpp quantises those, too."""
    on = {"peaks_tflops": {"fp8": 1}}
    assert place(on, weights="fp8").weights_gb() == pytest.approx(
        (360_000 + 400_000) / 1e9, rel=1e-12
    )
    assert place(on, weights="q8_0").weights_gb() == pytest.approx(
        560_000 * 34 / 32 / 1e9, rel=1e-12
    )
    stages = {
        "stages": [{"layers": 1}, {"layers": 2}, {"layers": 1}],
        "within": {"latency_us": 0, "bandwidth_gb_s": 1},
    }
    parts = [part.weights_gb() * 1e9 for part in place(on, weights="fp8", pipeline=stages).parts]
    assert parts == pytest.approx([90_000 + 200_000, 180_000, 90_000 + 200_000], rel=1e-12)


@pytest.mark.parametrize(
    ("cache", "value_bytes"), [("fp16", 2), ("fp8", 1), ("int8", 1.03125), ("int4", 0.53125)]
)
def test_a_cache_has_a_format_of_its_own(cache: str, value_bytes: float) -> None:
    on = place({"peak_tflops": 1e6}, kv_cache=cache)
    assert on.kv_gb(10) == pytest.approx(10 * 4 * 100 * value_bytes / 1e9, rel=1e-12)
    # 100 cached tokens, query and output of 100 elements, five heads
    seconds = attention_timer(on)(Rows.decode(1, 99))
    assert seconds == pytest.approx((100 * 100 * value_bytes + 400 + 5) * 1e-9, rel=1e-6)


def test_attention_in_parts_by_hand() -> None:
    """Decode: 100 and 200 cached tokens, two rows each; a prompt of 10. Four flops and ten heads of
    ten for each pair.
    """
    seconds = attention_timer(place())
    decode = Rows.decode(2, 98) + Rows.decode(2, 198)
    read, moved, pairs = 300 * 200, 4 * 400, (2 * 98 + 3 + 2 * 198 + 3) * 400
    assert seconds(decode) == nanoseconds((read + moved + pairs + 2 * 5) * 1.5)
    prompt = 1_000 + 10 * 200 + 10 * 400 + 55 * 400
    assert seconds(Rows.prefill(10)) == nanoseconds(prompt)
    assert seconds(decode + Rows.prefill(10)) == nanoseconds(
        (read + moved + pairs + 10) * 1.5 + prompt
    )
    assert seconds(Rows()) == 0.0


BLOCKS = {**SUM, "head_us": 1e-3, "key_us": 1e-3, "reduction_us": 1e-3, "regroup_us": 7e-3}


def block_seconds(
    rows: Rows, model: dict[str, Any] | None = None, processors: float | None = 12.5, **kernel: Any
) -> Any:
    """Seconds of a device whose blocks take a nanosecond and one for each key; it has room for 25
    blocks, or says nothing.
    """
    parts = {"decode": BLOCKS | kernel, "prefill": BLOCKS | kernel}
    device = {"attention": parts, "cache_mb": 0.014} | (
        {} if processors is None else {"multiprocessors": processors}
    )
    return attention_timer(place(device, model=MODEL | (model or {})))(rows)


def test_a_cache_is_cut_until_blocks_fill_the_card_or_pieces_are_the_smallest() -> None:
    """640 cached tokens are five pieces of 128, and 25 blocks of five heads; what joins them takes
    the root of four.
    """
    one = 640 * 200 + 400 + 640 * 400 + 5
    assert block_seconds(Rows.decode(1, 639), splits="all") == nanoseconds(one + 640 / 5 + 2)
    assert block_seconds(Rows.decode(1, 639), splits="grouped") == nanoseconds(one + 640 / 5 + 2)
    assert block_seconds(Rows.decode(1, 639), splits="none") == nanoseconds(one + 640)
    assert block_seconds(Rows.decode(1, 639), None, None, splits="all") == nanoseconds(one + 640)
    assert block_seconds(Rows.decode(1, 255), splits="all") == nanoseconds(
        256 * 600 + 400 + 5 + 128 + 1
    )
    # ten heads leave room for two and a half pieces; queries are copied into order
    two = Rows.decode(1, 2 * 639, 2)
    assert block_seconds(two, splits="all") == nanoseconds(2 * one + 640 / 2.5 + 1.5**0.5 + 7)
    seconds = attention_timer(
        place(
            {
                "attention": {"decode": BLOCKS | {"splits": "all"}, "prefill": SUM},
                "multiprocessors": 12.5,
            }
        )
    )
    assert list(seconds(Rows.decode(1, np.array([639, 255])))) == [
        seconds(Rows.decode(1, context)) for context in (639, 255)
    ]


def test_a_kernel_that_cuts_for_shared_heads_cuts_neither_single_ones_nor_for_a_verification() -> (
    None
):
    alone = block_seconds(Rows.decode(1, 639), {"num_key_value_heads": 10}, splits="grouped")
    assert alone == nanoseconds(640 * 400 + 400 + 640 * 400 + 10 + 640)
    verified = 640 * 200 + 800 + (639 + 640) * 400 + 5 + 640
    assert block_seconds(Rows.decode(2, 638), splits="grouped") == nanoseconds(verified * 1.02)


def test_a_prompt_is_tiles_and_what_the_cache_holds_moves_faster() -> None:
    """130 rows are two tiles of each of ten heads, or three where five KV heads pack two; the cache
    has 14,000 bytes.
    """
    moved, pairs = 130 * 200 + 130 * 400, 130 * 131 / 2 * 400
    assert block_seconds(Rows.prefill(130), packs=False) == nanoseconds(moved + pairs + 20 + 130)
    assert block_seconds(Rows.prefill(130), packs=True) == nanoseconds(moved + pairs + 15 + 130)
    faster = block_seconds(Rows.prefill(10), packs=False, cached_ratio=3)
    assert faster == nanoseconds(6_000 / 3 + 55 * 400 + 10 + 10)
    # 21,000 bytes, one and a half times the cache
    half = block_seconds(Rows.prefill(35), packs=False, cached_ratio=3)
    assert half == nanoseconds(21_000 * (0.5 + 0.5 / 3) + 35 * 18 * 400 + 10 + 35)


def test_a_cache_format_may_have_kernels_of_its_own() -> None:
    parts = {"decode": {**SUM, "fixed_us": 7}, "prefill": SUM}
    on = place({"attention": {**DEVICE["attention"], "kv_cache": {"fp8": parts}}}, kv_cache="fp8")
    assert attention_timer(on)(Rows.decode(1, 99)) == nanoseconds(
        7_000 + 100 * 100 + 400 + 100 * 400
    )


def test_weights_that_a_cache_holds_are_read_from_there_and_no_others() -> None:
    """A pass reads 360,000 weights of layers and 100,000 of the LM head, not the embedding."""
    cache = {"cache_bandwidth_gb_s": 10, "peak_tflops": 1e3}
    small, large = (place(cache | {"cache_mb": size}) for size in (0.919, 0.92))
    assert (small.in_cache, large.in_cache) == (False, True)
    qkv = 20_000 * 2 + 300 * 2
    assert layer_products(small, 1, False).qkv == nanoseconds(qkv)
    assert layer_products(large, 1, False).qkv == nanoseconds(qkv / 10)


def test_the_range_of_a_verification_reaches_the_interval() -> None:
    device = {
        "attention": {**DEVICE["attention"], "extra_row": {"value": 0.1, "low": 0, "high": 0.9}}
    }
    loaded = load(
        "vanilla_qwen3_32b_a100",
        [f"{role}.device=a100_80g_sxm_vidur" for role in ("target", "draft")],
    )
    before = [name for name, _ in slowed(loaded)]
    target = loaded.scenario.target.model_copy(update={"device": place(device).device})
    changed = loaded.replace(target=target)
    (name, dearer), *_ = [entry for entry in slowed(changed) if entry[0] not in (*before, "round")]
    assert name == "round, rows of a verification"
    attention = dearer(changed).scenario.target.device.attention
    assert isinstance(attention, Attention)
    assert attention.extra_row.value == pytest.approx(0.1 + 0.8 / 1.6448536, rel=1e-6)
    assert not any("verification" in name for name in before)


def test_both_forms_of_attention_are_read_and_replace_each_other(tmp_path: Path) -> None:
    devices = tmp_path / "hardware_profiles" / "devices"
    devices.mkdir(parents=True)
    numbers = "{fixed_us: 1, memory_efficiency: 1, compute_efficiency: 1, p_norm: 1}"
    (devices / "one.yaml").write_text(f"like: a100_80g_sxm\nattention: {numbers}\n")
    (devices / "parts.yaml").write_text(
        f"like: one\nattention: {{decode: {numbers}, prefill: {numbers}}}\n"
    )
    (devices / "back.yaml").write_text(f"like: parts\nattention: {numbers}\n")
    (devices / "peak.yaml").write_text("like: a100_80g_sxm\npeak_tflops: 100\n")
    names = Catalogue((tmp_path,))

    def read(name: str) -> Device:
        return validate(Device, names.content("device", devices / f"{name}.yaml"))

    assert [isinstance(read(name).attention, Attention) for name in ("one", "parts", "back")] == [
        False,
        True,
        False,
    ]
    assert (list(read("one").peaks_tflops), list(read("peak").peaks_tflops)) == (["int8"], [])


def test_show_lists_the_formats_of_a_device() -> None:
    shown = CliRunner().invoke(main, ["show", "a100_80g_sxm"])
    assert shown.exit_code == 0, shown.output
    assert "formats" in shown.output
    assert "int8: 1 bytes, int8 (624 Tflops), kernels of default" in shown.output
    assert "fp8_wo" in shown.output


@pytest.mark.parametrize(
    ("ranks", "rows", "by_hand_us", "percent"),
    [
        (1, Rows.decode(1, 2047), 24.6 + 23.5 + 98.4 + 55.6 + 15.4, 3),
        (2, Rows.decode(1, 2047), 17.1 + 13.2 + 51.2 + 31.0 + 14.5, 3),
        (4, Rows.decode(1, 2047), 11.9 + 10.3 + 29.4 + 18.0 + 14.0, 3),
        (1, Rows.decode(1, 8 * 2047, 8), 25.3 + 21.9 + 99.1 + 59.0 + 40.2, 3),
        (2, Rows.decode(1, 8 * 2047, 8), 17.2 + 13.2 + 52.5 + 33.0 + 17.9, 5),
        (4, Rows.decode(1, 8 * 2047, 8), 11.1 + 9.7 + 32.8 + 19.3 + 16.3, 3),
        (1, Rows.prefill(2048), 182.0 + 153.6 + 824.1 + 487.5 + 162.4, 3),
        (2, Rows.prefill(2048), 101.9 + 80.7 + 424.1 + 245.1 + 83.3, 3),
        (4, Rows.prefill(2048), 70.8 + 44.3 + 222.0 + 124.7 + 45.9, 6.5),
    ],
)
def test_a_layer_of_qwen3_32b_in_fp8_takes_what_the_tables_add_up_to(
    ranks: int, rows: Rows, by_hand_us: float, percent: float
) -> None:
    """Products of qkv, output, up and down, then attention, in us.

    ai-dynamo/aiconfigurator@095f58a systems/data/h100_sxm: fp8 products, the mean of vllm 0.24.0
    and sglang 0.5.14, linear in a width that was not measured (25,600 and its shares), attention of
    vllm 0.24.0. Over 3 %: two ranks at batch 8, where the table reads the cache of 34 MB from L2,
    and prefill on four, where the fit does not see a product fill its last wave.
    """
    catalogue = Catalogue()

    def profile(kind: str, name: str) -> dict[str, Any]:
        return catalogue.content(kind, catalogue.names(kind)[name]).data | {"name": name}

    on = Placement.model_validate(
        {
            "model": profile("model", "qwen3_32b"),
            "device": profile("device", "h100_sxm"),
            "engine": ENGINE,
            "weights": "fp8",
            "tensor_parallel": ranks,
            "collectives": {"count": 0},
        }
    )
    layer = layer_products(on, rows.tokens, False)
    seconds = layer.qkv + layer.output + layer.mlp + attention_timer(on)(rows)
    assert seconds * 1e6 == pytest.approx(by_hand_us, rel=percent / 100)
    tables = 2 * 151_936 * 5_120 * 2
    weights = 64 * (5_120 * (8_192 + 2 * 1_024) + 8_192 * 5_120 + 3 * 5_120 * 25_600)
    assert on.weights_gb() == pytest.approx((weights + tables) / ranks / 1e9, rel=1e-9)
    assert place(kv_cache="fp8").kv_gb(1) == place().kv_gb(1) / 2


def test_a_pass_of_one_row_that_is_bound_by_compute_is_said() -> None:
    """An H20 computes 148 Tflops at 4,000 GB/s; billed for 8 rows it reads longer than it computes,
    for 64 it would not.
    """
    products = {**HARD, "tile_tokens": [64], "least_tile_tokens": 8}
    h20 = {"memory_bandwidth_gb_s": 4000, "peak_tflops": 148, "matmul": {"default": products}}
    assert not computes_longer_than_it_reads(place(h20))
    assert computes_longer_than_it_reads(place(h20 | {"peak_tflops": 20}))
    loaded = load("vanilla_qwen3_32b_a100", ["target.device.peak_tflops=10"])
    assert any(
        "one row comes out bound by compute on a100_80g_sxm" in caveat
        for caveat in caveats(loaded, loaded.acceptance())
    )
