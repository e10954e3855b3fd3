"""Every shipped profile can be read and says where its numbers come from; the calibrated ones still
fit.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.collectives import RingAllReduce
from simulator.core.cost.device import Device, Generation, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.formats import WEIGHT_BYTES
from simulator.core.cost.model import ModelSpec
from simulator.core.quantities import provenance
from simulator.evidence.calibrate import attention, fit, passes, quality
from simulator.evidence.calibrate.importers import checked, imported
from simulator.evidence.calibrate.measurements import table as make_table
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ROOT / "hardware_profiles"
MEASUREMENTS = ROOT.parent / "shared" / "data" / "measurements"
GEMMS = ROOT.parent / "shared" / "data" / "ops" / "a100_sxm"
NOUNS = {"devices": Device, "generations": Generation, "links": Link, "engines": Engine}
FILES = sorted(PROFILES.glob("*/*.yaml"))
measured = pytest.mark.skipif(
    not MEASUREMENTS.is_dir(), reason="needs the measurements, which are not part of the project"
)


def load(name):
    path = PROFILES / f"{name}.yaml"
    return validate(
        NOUNS[path.parent.name], Catalogue().content(path.parent.name.removesuffix("s"), path)
    )


def test_there_are_profiles_of_every_kind():
    assert {path.parent.name for path in FILES} == set(NOUNS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_profile_is_valid_and_sourced(path):
    numbers = list(provenance(load(f"{path.parent.name}/{path.stem}")))
    assert numbers
    assert [
        row["parameter"] for row in numbers if row["source"] == "not stated" or not row["source"]
    ] == []
    assert [
        row["parameter"]
        for row in numbers
        if str(row["source"]).startswith("calibrated-on") != (row["confidence"] == "calibrated")
    ] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_profile_names_no_place_on_this_machine(path):
    text = path.read_text("utf-8")
    assert "shared/" not in text
    assert "/work" not in text


def test_the_ideal_engine_adds_nothing():
    engine = load("engines/ideal")
    assert (
        engine.host_us_per_layer.value,
        engine.host_us_per_pass.value,
        engine.sampling_us.value,
    ) == (0, 0, 0)
    assert (engine.small_operations_ratio.value, engine.kv_traffic_ratio.value) == (1, 1)


# ---- the calibrated ones against the measurements, and the command that fitted them


def table(form, pattern, **options):
    files = sorted(MEASUREMENTS.glob(pattern))
    assert files
    return pd.concat(
        [imported(form, file, options.get("model")) for file in files], ignore_index=True
    )


def model(name):
    return validate(ModelSpec, read(Catalogue().names("model")[name])).model_copy(
        update={"name": name}
    )


@pytest.fixture(scope="module")
def measurements():
    """All rows of each device and link; products of the RTX 3090 are fitted as they are on one
    device.
    """
    rtx_3090 = table("llmservingsim", "rtx3090/*.csv.gz", model=model("llama_3_1_8b"))
    a100 = [table("vidur", "a100/*_linear.csv.gz"), table("vidur", "a100/*_attention.csv.gz")]
    a100 = pd.concat(
        [*a100, table("vidur", "a100/*_sampled.csv", model=model("llama_2_7b"))], ignore_index=True
    )
    return {
        **dict.fromkeys(("a100_80g_sxm", "a100_80g_sxm_vidur"), a100),
        "rtx_3090": rtx_3090[(rtx_3090.operation != "matmul") | (rtx_3090.tensor_parallel == 1)],
        "nvlink_a100": table("vidur", "a100/dgx_*.csv.gz"),
    }


def some(measurements, name, operation):
    rows = measurements[name]
    return rows[rows.operation == operation]


def mape(errors, what, least, most):
    (found,) = [
        e.mape_percent
        for e in errors
        if (e.what, e.least_tokens, e.most_tokens) == (what, least, most)
    ]
    return found


@measured
@pytest.mark.parametrize(
    ("name", "operation", "what", "most_tokens", "bound_percent"),
    [
        ("a100_80g_sxm", "matmul", "layer", 64, 3.7),
        ("a100_80g_sxm", "matmul", "layer", 512, 7.0),
        ("rtx_3090", "matmul", "layer", 64, 2.4),
        ("rtx_3090", "matmul", "layer", 512, 3.8),
        ("a100_80g_sxm", "small_operations", "small_operations", 512, 12.8),
        ("rtx_3090", "small_operations", "small_operations", 512, 11.9),
        ("a100_80g_sxm_vidur", "attention", "decode", 512, 12.0),
        ("a100_80g_sxm_vidur", "attention", "decode, 32 KV heads", 512, 17.1),
        ("a100_80g_sxm_vidur", "attention", "prefill, 4 KV heads", 512, 24.6),
    ],
)
def test_a_profile_takes_the_measured_time(
    measurements, name, operation, what, most_tokens, bound_percent
):
    device = load(f"devices/{name}")
    shipped = device.matmul["default"] if operation == "matmul" else getattr(device, operation)
    errors = quality.errors(device, shipped, some(measurements, name, operation))
    assert mape(errors, what, 1, most_tokens) < bound_percent
    if operation == "matmul":
        sheet = quality.errors(device, fit.DATASHEET, some(measurements, name, operation))
        assert mape(sheet, what, 1, most_tokens) > 2 * bound_percent


def beyond(rows, cache_mb):
    """Products of 16 bits whose weights a cache does not hold."""
    rows = checked(rows[rows.format == "fp16"], None, cache_mb, Counter())
    return rows[rows.left_out == ""]


@pytest.fixture(scope="module")
def gemms():
    """Products of an A100 in three stacks, each a source of its own; not those that a cache
    holds.
    """
    files = sorted(GEMMS.glob("gemm.*.parquet"))
    rows = pd.concat(
        [imported("aiconfigurator", file, None).assign(source=file.stem) for file in files],
        ignore_index=True,
    )
    return beyond(rows, 80.0).reset_index(drop=True)


@measured
def test_the_command_fits_the_shipped_ratios_of_an_a100(measurements, gemms):
    device = load("devices/a100_80g_sxm")
    rows = pd.concat([some(measurements, "a100_80g_sxm", "matmul"), gemms], ignore_index=True)
    shipped = device.matmul["default"]
    fitted = fit.width_ratios(device, rows, shipped, 512)
    for found, stated in zip(fitted.width, shipped.width, strict=True):
        assert (found.ratio, found.fixed_ratio) == pytest.approx(
            (stated.ratio, stated.fixed_ratio), rel=0.01
        )


@measured
@pytest.mark.parametrize(
    ("rows", "percent"), [(16, 2), (32, 4), (64, 2), (80, 2), (96, 4), (128, 2), (160, 4), (192, 4)]
)
def test_a_large_product_grows_with_its_rows_as_in_three_stacks(gemms, rows, percent):
    device = load("devices/a100_80g_sxm")
    large = gemms[gemms.size_bytes.between(1e8, 8e8)]

    def growth(times):
        by_rows = large.assign(seconds=times).pivot_table(
            index=["source", "model"], columns="tokens", values="seconds"
        )
        return (by_rows[rows] / by_rows[1]).groupby("source").median()

    off = 100 * (
        growth(fit.seconds(device, device.matmul["default"], large)) / growth(fit.measured(large))
        - 1
    )
    assert len(off) == 3
    assert abs(off.median()) < percent


@pytest.mark.few(1)
@measured
@pytest.mark.parametrize(
    ("profile", "table", "percent_to_64", "percent_to_256"),
    [
        ("h100_sxm", "h100_sxm", 4.4, 5.1),
        ("h200_sxm", "h200_sxm", 5.9, 7.3),
        ("h100_sxm", "h200_sxm", 4.9, 6.5),
    ],
)
def test_a_hopper_takes_the_measured_time_and_predicts_its_neighbour(
    profile, table, percent_to_64, percent_to_256
):
    own, card = load(f"devices/{profile}"), load(f"devices/{table}")
    files = sorted((GEMMS.parent / table).glob("gemm.*.parquet"))
    rows = pd.concat([imported("aiconfigurator", file, None) for file in files], ignore_index=True)
    errors = quality.errors(card, own.matmul["default"], beyond(rows, 50.0))
    assert mape(errors, "layer", 1, 64) < percent_to_64
    assert mape(errors, "layer", 1, 256) < percent_to_256


@pytest.mark.parametrize("name", ["h100_sxm", "h200_sxm"])
def test_on_hopper_320_rows_cost_what_384_do_where_they_are_bound_by_compute(name):
    products = load(f"devices/{name}").matmul["default"]
    device = load(f"devices/{name}")

    def seconds(rows):
        side = 16_384.0
        size = 2.0 * (side * side + 2.0 * rows * side)
        return device.seconds(products, size, 2.0 * rows * side * side, rows)

    assert seconds(320) == pytest.approx(seconds(384), rel=0.01)
    assert seconds(384) < 0.9 * seconds(512)
    # 257 rows were measured, and take less than three tiles of 128
    assert seconds(257) < 0.9 * seconds(384)


def test_tiles_of_hopper_belong_to_its_formats():
    products = load("devices/h100_94g_sxm").matmul
    rows = (256, 257, 513, 769)
    assert [products["default"].tiled(n) for n in rows] == [256, 288, 576, 832]
    assert [products["fp8_block"].tiled(n) for n in rows] == [256, 384, 640, 896]
    assert [products["fp8"].tiled(n) for n in rows] == [256, 512, 768, 1024]


@pytest.mark.few(1)
@measured
@pytest.mark.parametrize("name", ["a100_80g_sxm_vidur", "rtx_3090"])
def test_the_command_fits_the_shipped_numbers(measurements, name):
    device = load(f"devices/{name}")
    products = device.matmul["default"]
    form = fit.Form(products.tile_tokens, tuple(point.tokens for point in products.width))
    found = {
        "matmul": fit.products(device, some(measurements, name, "matmul"), form),
        "attention": attention.one_roofline(
            device, some(measurements, name, "attention"), device.attention
        ),
        "small_operations": fit.small_operations(
            device, some(measurements, name, "small_operations")
        ),
    }
    for operation, fitted in found.items():
        shipped = device.matmul["default"] if operation == "matmul" else getattr(device, operation)
        for number in ("fixed_us", "memory_efficiency", "compute_efficiency", "p_norm"):
            assert getattr(fitted, number).value == pytest.approx(
                getattr(shipped, number).value, rel=0.01
            ), (operation, number)
        if name == "rtx_3090" or operation != "matmul":  # the A100's ratios are a fit of their own
            ratios = [
                [(point.ratio, point.fixed_ratio) for point in one.width]
                for one in (fitted, shipped)
            ]
            assert np.array(ratios[0]) == pytest.approx(np.array(ratios[1]), rel=0.01), operation


@measured
@pytest.mark.full
@pytest.mark.parametrize("name", ["h100_sxm", "h200_sxm", "l40s", "rtx_pro_6000", "a100_80g_sxm"])
def test_the_commands_make_the_shipped_card_from_the_tables(name, tmp_path):
    """An A100's products are those of other tables, see above."""
    folder = GEMMS if name == "a100_80g_sxm" else next(GEMMS.parent.glob(f"{name}*"))
    kinds = ("gemm.*", "*_attention.vllm*")[folder == GEMMS :]
    tables = [str(file) for kind in kinds for file in sorted(folder.glob(kind))]
    rows, made, sizes = (
        tmp_path / "rows.csv.gz",
        tmp_path / "card.yaml",
        "1,16,64,65,128,129,192,256,257,512",
    )
    for words in (
        [
            "import",
            *tables,
            "--from",
            "aiconfigurator",
            "--source",
            "a test",
            "--device",
            name,
            "--out",
            str(rows),
        ],
        [
            "device",
            str(rows),
            "--like",
            name,
            "--table",
            "--at",
            sizes,
            "--quick",
            "--out",
            str(made),
        ],
    ):
        assert CliRunner().invoke(main, ["calibrate", *words]).exit_code == 0
    fitted, shipped = (
        yaml.safe_load(file.read_text("utf-8"))
        for file in (made, PROFILES / f"devices/{name}.yaml")
    )
    parts = [(card["matmul"]["default"], *card["attention"].values()) for card in (fitted, shipped)]
    for ours, theirs in zip(*parts, strict=True):
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=0.01)


def numbers(content):
    """Every number below, by its path."""
    flat = pd.json_normalize(content)
    return {key: value for key, value in flat.iloc[0].items() if key.endswith(".value")}


@measured
def test_nvlink_reduces_in_the_measured_time(measurements):
    ring, rows = (
        load("links/nvlink_a100").all_reduce.ring,
        fit.spread(some(measurements, "nvlink_a100", "all_reduce")),
    )
    every, small, large, *_ = quality.link_errors("ring", rows, fit.reduced(ring, rows))
    assert (every.mape_percent, small.mape_percent) < (27.8, 46.3)
    assert large.mape_percent < 9.3
    found = fit.collective(
        RingAllReduce, fit.spread(some(measurements, "nvlink_a100", "all_reduce"))
    )
    assert (found.fixed_us.value, found.bandwidth_gb_s.value) == (
        ring.fixed_us.value,
        ring.bandwidth_gb_s.value,
    )


@measured
@pytest.mark.full
@pytest.mark.parametrize("by", ["model", "tensor_parallel"])
def test_a_table_predicts_an_a100_layer_that_was_left_out(measurements, by):
    """What the formula with tiles misses: 1..256 tokens within 7 %, steps within 5 points."""
    device, rows = load("devices/a100_80g_sxm"), some(measurements, "a100_80g_sxm", "matmul")
    fitted = device.matmul["default"]
    left_out = quality.left_out(device, rows, fit.TABLE, fitted, by)
    assert len(left_out) == {"model": 3, "tensor_parallel": 4}[by]
    assert max(one.mape_percent[0] for one in left_out) < 6.0
    assert max(one.mape_percent[1] for one in left_out) < 7.0
    assert np.mean([one.mape_percent[1] for one in left_out]) < 6.0
    for step in quality.steps(device, fitted, rows):
        assert abs(step.measured_percent - step.predicted_percent) < 5.0


WEIGHTS = {"llama 3B": (3.21e9, 28), "qwen2 7B": (7.07e9, 28), "qwen2 32B": (31.98e9, 64)}
"""Weights read by a pass (the embedding left out, the head included) and layers."""
PROMPT_WEIGHTS = 3.21e9 - 128256 * 3072
"""Of the 3B: a prompt yields logits of its last token only."""
FORMATS = {"F16": "fp16", "Q4_0": "q4_0", "Q8_0": "q8_0", "Q4_K": "q4_k"}


@pytest.fixture(scope="module")
def m2_passes():
    """Throughputs that llama.cpp's pull requests report for M2 Ultra, as passes."""
    published = pd.read_csv(MEASUREMENTS / "apple" / "reported.csv")
    published = published[published.id <= 23]
    rows = []
    for row in published.itertuples():
        weights, layers = next(
            held for name, held in WEIGHTS.items() if str(row.model).startswith(name)
        )
        part, width = FORMATS[row.quant], int(row.x)
        flops = 2.0 * width * (PROMPT_WEIGHTS if width >= 512 else weights)
        made = {
            "operation": "pass",
            "part": part,
            "model": row.model,
            "layers": layers,
            "tokens": width,
            "flops": flops,
        }
        rows.append(
            made
            | {
                "size_bytes": weights * WEIGHT_BYTES[part],
                "time_us": width / float(row.value) * 1e6,
            }
        )
    return make_table(rows)


@measured
def test_the_command_finds_the_shipped_passes_of_m2_ultra(m2_passes):
    shipped = load("devices/m2_ultra_gpu")
    found = passes.fit(shipped, m2_passes)
    assert found.us_per_layer == shipped.small_operations.fixed_us.value
    assert set(found.formats) == set(FORMATS.values())
    for name, one in found.formats.items():
        product = shipped.matmul_for(name)
        assert one.memory_efficiency == product.memory_efficiency.value
        assert one.width == tuple((point.tokens, point.ratio) for point in product.width)
        assert one.compute_efficiency in (None, product.compute_efficiency.value)


@measured
def test_m2_ultra_takes_the_published_time_of_narrow_passes(m2_passes):
    device = load("devices/m2_ultra_gpu")
    for row in m2_passes[m2_passes.tokens <= 8].itertuples():
        small = row.layers * device.seconds(device.small_operations, 0, 0, row.tokens)
        product = device.seconds(device.matmul_for(row.part), row.size_bytes, row.flops, row.tokens)
        assert (small + product) * 1e6 == pytest.approx(row.time_us, rel=0.01)
