"""Every shipped profile can be read and says where its numbers come from; the calibrated ones still fit."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from simulator.engine import Engine
from simulator.hardware import Device, Link
from simulator.schema import provenance, read, validate

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ROOT / "hardware_profiles"
MEASUREMENTS = ROOT.parent / "shared" / "data" / "measurements"
NOUNS = {"devices": Device, "links": Link, "engines": Engine}
FILES = sorted(PROFILES.glob("*/*.yaml"))
measured = pytest.mark.skipif(not MEASUREMENTS.is_dir(), reason="needs the measurements, which are not part of the project")


def load(name):
    path = PROFILES / f"{name}.yaml"
    return validate(NOUNS[path.parent.name], read(path))


def test_there_are_profiles_of_every_kind():
    assert {path.parent.name for path in FILES} == set(NOUNS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_profile_is_valid_and_sourced(path):
    numbers = list(provenance(validate(NOUNS[path.parent.name], read(path))))
    assert numbers
    assert [row["parameter"] for row in numbers if row["source"] == "not stated" or not row["source"]] == []
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
    assert (engine.host_us_per_layer.value, engine.host_us_per_pass.value, engine.sampling_us.value) == (0, 0, 0)
    assert (engine.small_operations_ratio.value, engine.kv_traffic_ratio.value) == (1, 1)


@pytest.fixture(scope="module")
def fits():
    """The calibration program, for its readers of the measurements."""
    spec = importlib.util.spec_from_file_location("fit_profiles", ROOT / "benchmarks" / "fit_profiles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@measured
@pytest.mark.parametrize(("name", "most_tokens", "bound_percent"), [("a100_80g_sxm", 512, 6.8), ("a100_80g_sxm", 64, 3.9),
                                                                    ("rtx_3090", 512, 8.8), ("rtx_3090", 64, 6.4)])  # fmt: skip
def test_products_of_a_layer_take_the_measured_time(fits, name, most_tokens, bound_percent):
    rows = (fits.a100_layers if name.startswith("a100") else fits.rtx_3090_layers)(MEASUREMENTS)[0]
    hardware = load(f"devices/{name}")
    assert fits.layer_mape(hardware, hardware.matmul_for("fp16"), rows, most_tokens) < bound_percent
    assert fits.layer_mape(hardware, fits.DATASHEET, rows, most_tokens) > 2 * bound_percent


@measured
@pytest.mark.parametrize(("name", "bound_percent"), [("a100_80g_sxm", 12.8), ("rtx_3090", 11.9)])
def test_small_operations_take_the_measured_time(fits, name, bound_percent):
    rows = (fits.a100_layers if name.startswith("a100") else fits.rtx_3090_layers)(MEASUREMENTS)[1]
    rows = rows[rows.tokens <= 512]
    hardware = load(f"devices/{name}")
    assert fits.mape(fits.predict(hardware, hardware.small_operations, rows), rows.seconds)[0] < bound_percent


@measured
def test_attention_takes_the_measured_time(fits):
    hardware = load("devices/a100_80g_sxm")
    rows = fits.a100_attention(MEASUREMENTS)
    for kind, bound_percent in {"decode 32 kv": 17.1, "decode 4 kv": 11.9, "prefill 32 kv": 22.0, "prefill 4 kv": 22.5}.items():
        some = rows[rows.op == kind]
        assert fits.mape(fits.predict(hardware, hardware.attention, some), some.seconds)[0] < bound_percent


@measured
def test_nvlink_reduces_in_the_measured_time(fits):
    ring = load("links/nvlink_a100").all_reduce.ring
    rows = fits.collectives(MEASUREMENTS, "all_reduce")
    rows = rows.assign(
        predicted=np.array([ring.seconds(size, ranks) for size, ranks in zip(rows.size_bytes, rows.ranks, strict=True)])
    )
    assert fits.mape(rows.predicted, rows.seconds)[0] < 27.8
    large = rows[rows.size_bytes > 1e6]
    assert fits.mape(large.predicted, large.seconds)[0] < 9.3


PASSES = [
    ("fp16", "F16", 3.21e9, 28),
    ("q4_0", "Q4_0", 3.21e9, 28),
    ("q8_0", "Q8_0", 7.07e9, 28),
    ("q4_k", "Q4_K", 31.98e9, 64),
]


@measured
@pytest.mark.parametrize(("weight_format", "quant", "weights", "layers"), PASSES)
def test_m2_ultra_takes_the_published_time_of_narrow_passes(fits, weight_format, quant, weights, layers):
    hardware = load("devices/m2_ultra_gpu")
    published = fits.pd.read_csv(MEASUREMENTS / "apple" / "reported.csv")
    published = published[(published.id <= 23) & (published.quant == quant)]
    product = hardware.matmul_for(weight_format)
    size = weights * fits.WEIGHT_BYTES[weight_format]
    for width, rate in zip(published.x.astype(int), published.value.astype(float), strict=True):
        if width <= 8:
            small = layers * hardware.seconds(hardware.small_operations, 0, 0, width)
            seconds = small + hardware.seconds(product, size, 2 * weights * width, width)
            assert width / seconds == pytest.approx(rate, rel=0.01)
