"""``specsim calibrate``: numbers that made a table come back out of it, errors are what they are,
mistakes are told by line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from command_tree import choices
from hypothesis import given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.sources import Rates
from simulator.core.cost.collectives import RingAllReduce, TreeAllReduce
from simulator.core.cost.device import Device, Link
from simulator.core.cost.formats import WEIGHT_BYTES
from simulator.core.cost.mixer import Mixer
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.roofline import AttentionParts
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput
from simulator.core.quantities import Positive
from simulator.evidence.calibrate import (
    attention,
    fit,
    importers,
    measurements,
    passes,
    profile,
    quality,
)
from simulator.evidence.calibrate.fit import DATASHEET, Form, roofline
from simulator.evidence.calibrate.quality import FitError, HeldOutErrors, TileStep
from simulator.evidence.calibrate.runs import EngineFit, FittedNumber, MeasuredRun
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.report.blocks import Paragraph, Table
from simulator.report.pages import calibrate as calibrate_page
from simulator.report.pages.calibrate import tables
from simulator.scenario import load

PARTS = {"matmul": {"default": DATASHEET}, "attention": DATASHEET, "small_operations": DATASHEET}
RATES = {"memory_gb": 80.0, "memory_bandwidth_gb_s": 1000.0, "peak_tflops": 100.0}
DEVICE = Device.model_validate({"kind": "gpu", **RATES, **PARTS})
"""Round datasheet numbers: 1 GB takes a millisecond, so do 0.1 TFLOP."""
TOKENS = [
    1,
    2,
    4,
    8,
    16,
    32,
    48,
    64,
    65,
    96,
    128,
    129,
    192,
    256,
    257,
    320,
    384,
    385,
    448,
    512,
    1024,
    2048,
]
SHAPES = {"qkv": (4096, 6144), "output": (4096, 4096), "up": (4096, 28672), "down": (14336, 4096)}


def layers(
    operation: object, models: dict[str, float] | None = None, degrees: tuple[int, ...] = (1, 2)
) -> measurements.Table:
    """A table of products that take the time ``operation`` says, stretched by a factor for each
    model.
    """
    rows = []
    for model, factor in (models or {"one": 1.0}).items():
        for ranks in degrees:
            for part, (inputs, outputs) in SHAPES.items():
                for tokens in TOKENS:
                    row = importers.product(part, tokens, inputs, outputs / ranks, 0.0)
                    taken = DEVICE.seconds(operation, row["size_bytes"], row["flops"], tokens)
                    rows.append(
                        {
                            **row,
                            "model": model,
                            "tensor_parallel": ranks,
                            "time_us": taken * 1e6 * factor,
                        }
                    )
    return measurements.table(rows)


numbers = st.tuples(st.floats(0, 60), st.floats(0.2, 1), st.floats(0.05, 1), st.floats(1, 50))
ratios = st.lists(st.floats(1, 5), min_size=14, max_size=14)


@settings(max_examples=40)
@given(
    numbers,
    ratios,
    st.sampled_from([Form(), Form((64,), fit.TABLE.at), Form((16, 64, 128))]),
    st.integers(1, 4096),
)
def test_all_rows_at_once_take_what_the_simulator_takes(
    four: tuple[float, ...], more: list[float], form: Form, tokens: int
) -> None:
    operation = roofline((*four, *(more if form.at else ())), form)
    rows = measurements.table([importers.product("up", n, 4096, 512, 1.0) for n in (1, tokens, 64)])
    expected = [
        DEVICE.seconds(operation, row.size_bytes, row.flops, row.tokens)
        for row in rows.itertuples()
    ]
    assert fit.seconds(DEVICE, operation, rows) == pytest.approx(expected, rel=1e-12)


# ---- what made a table comes back out of it


def test_the_formula_and_its_tiles_are_found() -> None:
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0), Form((128,))))
    tried = fit.best_tiles(DEVICE, rows)
    assert min(tried, key=lambda form: tried[form]) == Form((128,))
    found = fit.products(DEVICE, rows, Form((128,)))
    assert fit._numbers(found) == pytest.approx([5.0, 0.8, 0.7, 2.0], rel=0.01)


def test_a_table_follows_a_curve_that_falls_again() -> None:
    ratios, constants = (1.1, 1.6, 1.6, 1.2, 1.2, 1.2, 1.5, 1.5, 1.5, 1.5), (1.5, 2.0, 1.0, 1.2)
    made = roofline((5.0, 0.8, 0.7, 4.0, *ratios, *constants), fit.TABLE)
    rows = layers(made)
    found = fit.products(DEVICE, rows, fit.TABLE)
    worst = max(error.p95_percent for error in quality.errors(DEVICE, found, rows))
    assert worst < 0.5
    assert [point.ratio for point in found.width] == pytest.approx(
        [point.ratio for point in made.width], abs=0.05
    )


def test_attention_small_operations_and_links_are_found() -> None:
    heads = importers.Heads(8, 4096, 4096)
    queries = [
        importers.Queries(batch, 1, cached) for batch in (1, 8, 64) for cached in (128, 1024, 4096)
    ]
    queries += [importers.Queries(1, new, 0) for new in (64, 512, 2048)]
    rows = measurements.table(
        [importers.attention("decode" if q.cached else "prefill", q, heads, 0.0) for q in queries]
    )
    rows["time_us"] = fit.seconds(DEVICE, roofline((10.0, 0.8, 0.5, 2.0)), rows) * 1e6
    assert fit._numbers(attention.one_roofline(DEVICE, rows, DATASHEET)) == pytest.approx(
        [10.0, 0.8, 0.5, 2.0], rel=0.02
    )

    rows = measurements.table([importers.small(n, 4096, 14336, 6144, 0.0) for n in TOKENS])
    rows["time_us"] = fit.seconds(DEVICE, roofline((20.0, 0.5, 1.0, 1.0)), rows) * 1e6
    assert fit._numbers(fit.small_operations(DEVICE, rows))[:2] == pytest.approx(
        [20.0, 0.5], rel=0.01
    )

    sizes = [
        {"operation": "all_reduce", "size_bytes": float(2**power), "ranks": ranks}
        for power in range(11, 27)
        for ranks in (2, 8)
    ]
    rows = measurements.table(pd.DataFrame(sizes).assign(time_us=1.0))
    for made in (
        RingAllReduce(fixed_us=20, bandwidth_gb_s=200),
        TreeAllReduce(alpha_us=10, bandwidth_gb_s=50),
    ):
        rows["time_us"] = fit.reduced(made, rows) * 1e6
        found = fit.collective(type(made), fit.spread(rows)).model_dump()
        for name, number in made.model_dump().items():
            assert (
                found[name] == number
                if not isinstance(number, dict)
                else found[name]["value"] == pytest.approx(number["value"], rel=0.01)
            )
    assert fit.transfer_latency_us(
        rows.assign(time_us=15.0 + rows.size_bytes / 300e3), 300.0
    ) == pytest.approx(15.0)


def test_what_was_not_measured_stays_as_it_was() -> None:
    """An empty cache: keys and values take no time worth fitting to."""
    heads, like = importers.Heads(8, 4096, 4096), roofline((1.0, 0.66, 0.9, 3.0))
    rows = measurements.table(
        [importers.attention("prefill", importers.Queries(1, n, 0), heads, 0.0) for n in TOKENS]
    )
    rows["time_us"] = fit.seconds(DEVICE, roofline((8.0, 0.66, 0.5, 3.0)), rows) * 1e6
    assert not attention.bound_by_memory(DEVICE, rows)
    assert fit._numbers(attention.one_roofline(DEVICE, rows, like)) == pytest.approx(
        [8.0, 0.66, 0.5, 3.0], rel=0.02
    )


CARD = DEVICE.model_copy(
    update={"multiprocessors": Positive(value=100.0), "cache_mb": Positive(value=100.0)}
)
HEADS = ((1, 8), (2, 8), (4, 32), (8, 8))


def attention_rows(parts: AttentionParts) -> measurements.Table:
    """Rows of four shapes of heads of 128, as long as parts say."""
    made = []
    for kv_heads, heads in HEADS:
        shape = importers.Heads(kv_heads, 512 * kv_heads, 128 * heads)
        decodes = [
            importers.Queries(batch, 1, cached)
            for batch in (1, 4, 16, 64, 256)
            for cached in (63, 1023, 16383, 65535)
        ]
        prompts = [
            importers.Queries(batch, new, 0)
            for batch in (1, 4, 16)
            for new in (16, 64, 256, 1024, 4096, 16384)
        ]
        made += [
            importers.attention("prefill" if one.new > 1 else "decode", one, shape, 1.0)
            for one in (*decodes, *prompts)
        ]
    rows = attention.with_queries(measurements.table(made))
    for part, roofline_of in (("decode", parts.decode), ("prefill", parts.prefill)):
        of_part = rows.part == part
        rows.loc[of_part, "time_us"] = fit.seconds(CARD, roofline_of, rows[of_part]) * 1e6
    return measurements.table(made).assign(time_us=rows.time_us)


@pytest.mark.full
def test_the_blocks_of_attention_are_found_and_half_of_the_heads_tell_the_other() -> None:
    numbers = {"memory_efficiency": 0.8, "compute_efficiency": 0.5, "p_norm": 2.0, "key_us": 0.02}
    decode = numbers | {
        "fixed_us": 9.0,
        "head_us": 0.03,
        "reduction_us": 1.0,
        "regroup_us": 3.0,
        "splits": "grouped",
    }
    prefill = numbers | {"fixed_us": 7.0, "head_us": 0.05, "cached_ratio": 3.0, "packs": False}
    made = AttentionParts.model_validate({"decode": decode, "prefill": prefill})
    rows = attention_rows(made)
    found = attention.in_parts(CARD, rows, made)
    for part in ("decode", "prefill"):
        for name, number in getattr(made, part):
            if hasattr(number, "value"):
                assert getattr(getattr(found, part), name).value == pytest.approx(
                    number.value, rel=0.03
                ), (part, name)
    errors = quality.heads_left_out(CARD, rows, made)
    assert {error.what for error in errors} == {
        "decode, half of the shapes",
        "prefill, half of the shapes",
    }
    assert sum(
        error.rows for error in errors if error.most_tokens == 131072 and error.least_tokens == 1
    ) <= len(rows)
    assert max(error.mape_percent for error in errors) < 3.0
    assert quality.heads_left_out(CARD, rows[rows.kv_heads == 8], made) == []
    assert quality.heads_left_out(CARD, rows, made.decode) == []


def test_each_format_stands_beside_its_own_error_of_the_profile_it_starts_from() -> None:
    errors = [
        quality.FitError("decode", 1, 64, 9, mape, 0.0, 0.0, None) for mape in (1.0, 2.0, 3.0, 4.0)
    ]
    fitted = {
        "attention": errors[:1],
        "attention, fp8": errors[1:2],
        "latent_attention": errors[:1],
    }
    before = {
        "attention": errors[2:3],
        "attention, fp8": errors[3:],
        "latent_attention": errors[:1],
    }
    first, *_ = tables(profile.FittedProfile({}, fitted, before, [], [], [], {}, None))
    assert [(row[0], row[3], row[6]) for row in first.rows] == [
        ("decode", "1.0", "3.0"),
        ("fp8, decode", "2.0", "4.0"),
        ("latents, decode", "1.0", "1.0"),
    ]


# ---- errors


def test_errors_are_those_of_the_rows() -> None:
    made = roofline((5.0, 0.8, 0.7, 2.0))
    slower = roofline((0.0, 0.8, 0.7, 2.0))
    rows = layers(slower)
    rows["time_us"] *= 0.8
    for error in quality.errors(DEVICE, slower, rows):
        assert (error.mape_percent, error.p95_percent, error.bias_percent) == pytest.approx(
            (25.0, 25.0, 25.0)
        )
    layer = next(
        error for error in quality.errors(DEVICE, made, layers(made)) if error.what == "layer"
    )
    assert (layer.least_tokens, layer.most_tokens, layer.rows) == (
        1,
        64,
        2 * sum(n <= 64 for n in TOKENS),
    )
    assert layer.mape_percent == pytest.approx(0.0, abs=1e-9)
    assert layer.datasheet_mape_percent is not None
    assert layer.datasheet_mape_percent > 10.0


def test_a_model_left_out_is_predicted_by_the_others() -> None:
    """Two models alike and one of half the speed: left out, it is predicted at half its time."""
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0)), {"a": 1.0, "b": 1.0, "slow": 2.0}, degrees=(1,))
    fitted = fit.products(DEVICE, rows, Form())
    found = {
        candidate.name: candidate
        for candidate in quality.left_out(DEVICE, rows, Form(), fitted, "model")
    }
    assert found["slow"].mape_percent == pytest.approx((50.0, 50.0), abs=0.5)
    assert found["slow"].rows == (8, 14)
    assert quality.left_out(DEVICE, rows, Form(), fitted, "tensor_parallel") == [], (
        "there is but one"
    )


def test_steps_are_measured_and_predicted() -> None:
    made = roofline((0.0, 0.8, 1.0, 50.0, *[1.0, 1.5, 1.5, *[1.8] * 7], *[1.0] * 4), fit.TABLE)
    rows = layers(made)
    first, second, _ = quality.steps(DEVICE, made, rows)
    assert (first.after_tokens, first.next_tokens, second.next_tokens) == (64, 65, 129)
    assert (first.measured_percent, first.predicted_percent) == pytest.approx((50.0, 50.0), abs=1.5)
    assert second.measured_percent == pytest.approx(20.0, abs=1.5)
    flat = quality.steps(DEVICE, roofline((0.0, 0.8, 1.0, 50.0)), rows)[0]
    assert flat.predicted_percent == pytest.approx(0.0, abs=1.0)


# ---- whole passes


def pass_rows() -> measurements.Table:
    """10 layers of 100 us; fp16 1 GB in 2000 us and q4_0 0.25 GB in 500; four tokens read them 1.5
    and 3 times slower.
    """
    made = [
        ("fp16", 1, 3000),
        ("fp16", 4, 4000),
        ("fp16", 512, 11000),
        ("q4_0", 1, 1500),
        ("q4_0", 4, 2500),
    ]
    rows = pd.DataFrame(made, columns=["part", "tokens", "time_us"]).assign(
        operation="pass", model="m", layers=10, flops=1e11
    )
    return measurements.table(rows.assign(size_bytes=np.where(rows.part == "fp16", 1e9, 0.25e9)))


def test_passes_of_two_formats_tell_the_constant_from_the_weights() -> None:
    found = passes.fit(DEVICE, pass_rows())
    assert found.us_per_layer == 100.0
    assert found.formats["fp16"] == passes.FormatFit(0.5, 0.1, ((1, 1.0), (4, 1.5)), "not stated")
    assert found.formats["q4_0"] == passes.FormatFit(0.5, None, ((1, 1.0), (4, 3.0)), "not stated")


@pytest.mark.parametrize(
    ("keep", "fault"),
    [
        (lambda rows: rows.tokens > 1, "hold no pass of one token for fp16, q4_0"),
        (lambda rows: rows.part == "fp16", "hold no model in two weight formats"),
    ],
)
def test_passes_that_tell_too_little_are_refused(
    keep: Callable[[pd.DataFrame], pd.Series], fault: str
) -> None:
    rows = pass_rows()
    with pytest.raises(BadInput, match=fault):
        passes.fit(DEVICE, rows[keep(rows)])


@pytest.mark.parametrize(
    ("column", "rate"),
    [("size_bytes", "2.5 of the datasheet's bandwidth"), ("flops", "1.5 of the datasheet's peak")],
)
def test_passes_faster_than_the_datasheet_are_refused(column: str, rate: str) -> None:
    rows = pass_rows()
    rows[column] *= {"size_bytes": 5.0, "flops": 15.0}[column]
    with pytest.raises(BadInput, match=rate):
        passes.fit(DEVICE, rows)


# ---- tables and importers


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0)))
    for name in ("table.csv", "table.csv.gz"):
        measurements.write(rows, tmp_path / name)
        pd.testing.assert_frame_equal(
            measurements.read([tmp_path / name]), rows, check_dtype=False, rtol=1e-5
        )


GOOD = "operation,tokens,size_bytes,flops,time_us\nmatmul,1,100,5,5\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            GOOD + "matmull,1,100,5,5\n",
            ":3:1: operation: there is no 'matmull'; did you mean 'matmul'?",
        ),
        (GOOD + "matmul,1,100,5,\n", ":3:1: time_us: expected a number above 0, got ''"),
        (GOOD + "matmul,1,-4,5,5\n", ":3:1: size_bytes: expected a number above 0, got '-4'"),
        (GOOD + "matmul,0,100,5,5\n", ":3:1: tokens: expected a number above 0, got '0'"),
        (
            "left_out," + GOOD + "no,matmul,1,100,5,5\n",
            ":3:1: left_out: expected nothing or one of cached, test, eager, window, head_width, "
            "got 'no'",
        ),
        (GOOD + "matmul,1,inf,5,5\n", ":3:1: size_bytes: expected a number above 0, got 'inf'"),
        (
            "operation,size_byte,time_us\n",
            ":1:1: size_byte: unknown column; did you mean 'size_bytes'?",
        ),
        ("operation,time_us\nmatmul,5\n", ":1:1: size_bytes: is required and missing"),
        ("operation,size_bytes,time_us\n", ":1:1: holds no rows"),
        ("", "cannot be read"),
    ],
)
def test_a_mistake_in_a_table_names_its_line(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    result = CliRunner().invoke(main, ["calibrate", "device", str(path), "--like", "a100_80g_sxm"])
    assert result.exit_code == 2
    assert fault in result.stderr


def model() -> ModelSpec:
    return validate(ModelSpec, read(Catalogue().names("model")["llama_3_1_8b"])).model_copy(
        update={"name": "llama_3_1_8b"}
    )


def test_formats_of_the_command_are_the_importers() -> None:
    assert list(importers.IMPORTERS) == choices("calibrate import", "--from")


def converted(
    form: str, made: list[dict[str, object]], path: Path, like: ModelSpec | None = None
) -> tuple[pd.DataFrame, Counter]:
    """Rows written as a file, imported; and what was skipped, by reason."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(made).to_csv(path, index=False)
    skipped: Counter = Counter()
    return importers.imported(form, path, like, skipped), +skipped


GEMM = {"framework": "SGLang", "kernel_source": "k", "m": 16, "n": 4096, "k": 1024, "latency": 0.01}


def test_products_become_rows_of_true_bytes_by_format(tmp_path: Path) -> None:
    """1,024 inputs and 4,096 outputs for each of 16 rows; inputs that are quantised are also
    written and read again.
    """
    formats = {
        "bfloat16": "fp16",
        "fp8": "fp8",
        "fp8_block": "fp8_block",
        "int8_wo": "int8_wo",
        "int4_wo": "int4",
        "sq": "int8",
    }
    made = [GEMM | {"gemm_dtype": theirs} for theirs in formats]
    made += [
        GEMM | {"gemm_dtype": "fp4_new"},
        GEMM | {"gemm_dtype": "fp8", "m": 4096},
        GEMM | {"gemm_dtype": "fp8", "latency": 0.03},
    ]
    rows, skipped = converted("aiconfigurator", made, tmp_path / "gemm.csv")
    rows = rows.set_index("format")
    assert set(rows.index) == set(formats.values())
    assert rows.time_us.to_dict() == {
        name: 20.0 if name == "fp8" else 10.0 for name in formats.values()
    }, "median of two"
    weights, inputs, outputs = 1024 * 4096, 16 * 1024, 16 * 4096
    assert rows.size_bytes["fp16"] == 2 * (weights + inputs + outputs)
    assert rows.size_bytes["fp8"] == rows.size_bytes["int8"] == weights + 4 * inputs + 2 * outputs
    assert rows.size_bytes["int8_wo"] == weights + 2 * inputs + 2 * outputs
    assert rows.size_bytes["int4"] == weights * (0.5 + 2 / 128) + 2 * inputs + 2 * outputs
    assert set(rows.flops) == {2.0 * 16 * weights}
    assert rows.copies.to_dict() == dict.fromkeys(formats.values(), 6)
    assert skipped == {"format fp4_new": 1, "more than 2048 tokens": 1}
    given, _ = converted(
        "aiconfigurator",
        [GEMM | {"gemm_dtype": "sq", "framework": "TRTLLM"}],
        tmp_path / "gemm.csv",
    )
    assert given.size_bytes.tolist() == [weights + inputs + 2 * outputs], (
        "its inputs come in 8 bits"
    )


@pytest.mark.full
def test_products_that_the_host_launches_slowly_are_skipped(tmp_path: Path) -> None:
    """Eager calls: of each kernel, those within one and a half times its shortest tell the host's
    time.
    """
    times = [("a", 0.050), ("a", 0.074), ("a", 0.076), ("b", 0.100), ("b", 0.160)]
    made = [
        GEMM
        | {
            "framework": framework,
            "gemm_dtype": "fp8_block",
            "m": m,
            "kernel_source": kernel,
            "latency": latency,
        }
        for framework in ("VLLM", "SGLang")
        for m, (kernel, latency) in enumerate(times, 1)
    ]
    rows, skipped = converted("aiconfigurator", made, tmp_path / "gemm.csv")
    assert sorted(rows[rows.copies == 1].time_us) == pytest.approx([76, 160])
    assert sorted(rows.time_us) == pytest.approx([50, 74, 76, 76, 100, 160, 160])
    assert skipped == {
        "eager a, at a floor of 50 us: the host's time": 2,
        "eager b, at a floor of 100 us: the host's time": 1,
    }


def test_rows_that_take_as_long_whatever_their_shape_are_the_host_s_time(tmp_path: Path) -> None:
    """Ten products of 64 to 8192 inputs and outputs in 60 us are no work of a device; nor are they
    where nobody says that they were launched one by one. One of 100 us is another matter, as are
    ten of 30 us, which a kernel may take, and ten that move about as much.
    """
    sides = [64, 128, 256, 512, 1024, 2048, 4096, 5120, 6144, 8192]
    made = [GEMM | {"gemm_dtype": "bfloat16", "n": n, "k": n, "latency": 0.06} for n in sides]
    longer = GEMM | {"gemm_dtype": "bfloat16", "latency": 0.1}
    quick = [row | {"gemm_dtype": "fp8", "latency": 0.03} for row in made]
    alike = [
        row | {"gemm_dtype": "int8_wo", "n": 4096, "k": 4096, "m": m}
        for m, row in enumerate(made, 1)
    ]
    rows, skipped = converted(
        "aiconfigurator", [*made, longer, *quick, *alike], tmp_path / "gemm.csv"
    )
    assert rows.groupby("format").size().to_dict() == {"fp16": 1, "fp8": 10, "int8_wo": 10}
    assert skipped == {
        "matmul, product, fp16: at a floor of 60 us whatever the shape: the host's time": 10
    }


def test_of_rows_known_to_be_eager_only_groups_that_are_all_floor_go(tmp_path: Path) -> None:
    """The shortest time of a kernel, 30 us, is an exception: 20 products take 60, whatever they
    move. Where three take longer, no group is all floor.
    """
    sides = [64, 8192] * 10
    made = [
        GEMM
        | {"framework": "VLLM", "gemm_dtype": "fp8_block", "m": m, "n": n, "k": n, "latency": 0.06}
        for m, n in enumerate(sides, 1)
    ]
    shortest = made[0] | {"latency": 0.03, "m": 100}
    rows, skipped = converted("aiconfigurator", [*made, shortest], tmp_path / "gemm.csv")
    assert rows.empty
    assert skipped == {
        "eager k, at a floor of 30 us: the host's time": 1,
        "matmul, product, fp8_block: at a floor of 60 us whatever the shape: the host's time": 20,
    }
    longer = [row | {"latency": 0.6, "m": 200 + row["m"]} for row in made[:3]]
    rows, skipped = converted("aiconfigurator", [*made, *longer, shortest], tmp_path / "gemm.csv")
    assert len(rows) == 23


GENERATION: dict[str, object] = {
    "framework": "SGLang",
    "op_name": "generation_attention",
    "batch_size": 2,
    "isl": 1,
    "step": 99,
    "num_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "window_size": 0,
    "kv_cache_dtype": "bfloat16",
    "attn_dtype": "bfloat16",
    "latency": 0.5,
}


def test_attention_over_a_cache_becomes_our_rows_and_other_kinds_do_not(tmp_path: Path) -> None:
    """Two sequences behind 99 tokens, 8 query and 2 KV heads; a head of 80 and arithmetic of 8 bits
    are others.
    """
    one = GENERATION
    older, _ = converted(
        "aiconfigurator",
        [{key: cell for key, cell in one.items() if key != "window_size"}],
        tmp_path / "a.csv",
    )
    assert older.time_us.tolist() == [500.0], "before windows were told"
    others = [
        one | other
        for other in (
            {"head_dim": 80},
            {"attn_dtype": "fp8"},
            {"window_size": None},
            {"batch_size": 2**18},
        )
    ]
    prompt = one | {"op_name": "context_attention", "isl": 3, "step": 0}
    again = [one | {"latency": 0.3}, one | {"latency": 0.1}]
    small = one | {"kv_cache_dtype": "fp8", "latency": 0.2}
    rows, skipped = converted(
        "aiconfigurator", [one, *others, prompt, *again, small], tmp_path / "file.csv"
    )
    rows = rows.set_index(["part", "format"])
    decode, prefill, narrow = ("decode", "fp16"), ("prefill", "fp16"), ("decode", "fp8")
    assert rows.time_us.to_dict() == pytest.approx({decode: 300.0, prefill: 500.0, narrow: 200.0})
    sizes = {
        decode: 2 * 100 * 2 * 2 * 2 * 128,
        narrow: 2 * 100 * 2 * 2 * 128,
        prefill: 2 * 3 * 2 * 2 * 2 * 128,
    }
    assert rows.size_bytes.to_dict() == sizes
    assert rows.flops.to_dict() == {
        prefill: 4 * 2 * 6 * 8 * 128,
        **dict.fromkeys((decode, narrow), 4 * 2 * 100 * 8 * 128),
    }
    assert rows.loc[decode, ["tokens", "sequences", "kv_heads", "query_width"]].tolist() == [
        2,
        2,
        2,
        8 * 128,
    ]
    assert skipped == {
        "head_width 80": 1,
        "arithmetic fp8": 1,
        "cells without a value": 1,
        "more than 131072 tokens": 1,
    }


def test_a_window_limits_what_is_read_and_no_fit_uses_it(tmp_path: Path) -> None:
    """Two sequences: of 100 tokens a row sees 16. Eight rows of a prompt see 1, 2, 3, then 4 each,
    and all their keys are read. A window wider than the cache limits nothing.
    """
    prompt = GENERATION | {"op_name": "context_attention", "isl": 8, "step": 0}
    made = [
        GENERATION | {"window_size": 16},
        GENERATION | {"window_size": 128},
        prompt | {"window_size": 4},
        GENERATION,
    ]
    rows, skipped = converted("aiconfigurator", made, tmp_path / "file.csv")
    assert not skipped
    token = 2 * 2 * 2 * 128
    pair = 4 * 8 * 128
    columns = ["shape", "left_out", "keys", "size_bytes", "flops"]
    assert rows[columns].values.tolist() == [
        ["2 KV heads", "", 0, 2 * 100 * token, 2 * 100 * pair],
        ["2 KV heads, window 16", "window", 16, 2 * 16 * token, 2 * 16 * pair],
        ["2 KV heads, window 128", "window", 100, 2 * 100 * token, 2 * 100 * pair],
        ["2 KV heads, window 4", "window", 8, 2 * 8 * token, 2 * (1 + 2 + 3 + 5 * 4) * pair],
    ]
    queried = attention.with_queries(rows)
    assert queried["keys"].tolist() == [100, 16, 100, 8]
    assert queried.queries.tolist() == [4, 4, 4, 4]
    with pytest.raises(BadInput, match="hold none of"):
        document = read(Catalogue().names("device")["rtx_3090"])
        profile.device(rows[rows.left_out != ""], document, validate(Device, document))


def test_heads_of_other_widths_are_read_and_no_fit_uses_them(tmp_path: Path) -> None:
    """SGLang's heads with keys of 192 have values of 128, vLLM's of 192."""
    made = [GENERATION | {"head_dim": width} for width in (64, 128, 192, 256)]
    made.append(GENERATION | {"head_dim": 192, "framework": "VLLM"})
    rows, skipped = converted("aiconfigurator", made, tmp_path / "file.csv")
    assert not skipped
    widths = {
        "2 KV heads, width 64": 64,
        "2 KV heads": 128,
        "2 KV heads, keys of 192, values of 128": 160,
        "2 KV heads, width 192": 192,
        "2 KV heads, width 256": 256,
    }
    of_shape = rows.set_index("shape")
    assert of_shape.query_width.to_dict() == {name: 8 * width for name, width in widths.items()}
    assert of_shape.size_bytes.to_dict() == {
        name: 2 * 100 * 2 * 2 * 2 * width for name, width in widths.items()
    }
    assert of_shape.flops.to_dict() == {
        name: 4 * 2 * 100 * 8 * width for name, width in widths.items()
    }
    others = of_shape[of_shape.left_out == "head_width"]
    assert set(others.index) == set(widths) - {"2 KV heads"}
    assert set(attention.with_queries(rows).queries) == {4}


@given(st.integers(1, 64), st.integers(1, 300), st.integers(0, 300), st.integers(1, 400))
def test_a_row_in_a_window_is_what_the_simulator_makes_of_a_layer_with_one(
    sequences: int, new: int, cached: int, window: int
) -> None:
    """One entry of a byte, one pair of four flops."""
    queries = importers.Queries(sequences, new, cached)
    row = importers.attention("any", queries, importers.Heads(2, 1.0, 1.0), 1.0, "fp16", window)
    sliding = Mixer(
        kind="sliding", projections=1, projected=1, value_width=1, output=1, cached=2, window=window
    )
    every = Rows(
        tokens=sequences * new,
        sequences=sequences,
        kv_tokens=sequences * (cached + new),
        attention_pairs=sequences * (new * cached + new * (new + 1) / 2),
    )
    seen = sliding.seen(every)
    assert row["size_bytes"] == pytest.approx(seen.kv_tokens)
    assert row["flops"] == pytest.approx(4 * seen.attention_pairs)
    assert row["keys"] * sequences == pytest.approx(seen.kv_tokens)


def test_messages_are_counted_in_elements_and_told_by_implementation(tmp_path: Path) -> None:
    custom = {
        "op_name": "all_reduce",
        "allreduce_dtype": "bfloat16",
        "num_gpus": 4,
        "message_size": 128,
        "latency": 0.005,
    }
    made = [
        custom | {"backend": backend} for backend in ("vllm_graph", "sglang_eager", "new_graph")
    ]
    rows, skipped = converted("aiconfigurator", made, tmp_path / "custom.csv")
    assert rows[
        ["operation", "implementation", "ranks", "size_bytes", "time_us"]
    ].values.tolist() == [
        ["all_reduce", "eager", 4, 256, 5.0],
        ["all_reduce", "vllm_graph", 4, 256, 5.0],
    ]
    assert skipped == {"implementation new_graph": 1}
    nccl = {
        "op_name": "all_reduce",
        "nccl_dtype": "half",
        "num_gpus": 2,
        "message_size": 64,
        "latency": 0.02,
        "kernel_source": "NCCL",
    }
    others = [nccl | {"op_name": "all_gather"}, nccl | {"nccl_dtype": "int8"}]
    rows, skipped = converted("aiconfigurator", [nccl, *others], tmp_path / "nccl.csv")
    assert rows[["implementation", "size_bytes", "time_us"]].values.tolist() == [
        ["nccl", 128, 20.0]
    ]
    assert skipped == {"operation all_gather": 1, "element_bytes int8": 1}


def test_all_reduces_of_tensorrt_llm_are_told_by_implementation_or_kernel(tmp_path: Path) -> None:
    """TensorRT-LLM states no backend; sizes are elements of 2 bytes, and a time of which the
    compute beside it was subtracted may be 0.
    """
    own = {
        "framework": "TRTLLM",
        "op_name": "all_reduce",
        "kernel_source": "TRTLLM",
        "allreduce_dtype": "float16",
        "num_gpus": 8,
    }
    sizes = [
        own | {"message_size": size, "latency": latency}
        for size, latency in ((1024, 0.004), (2048, 0.006), (4096, 0.0))
    ]
    expected = [["trtllm", 8, 2048, 4.0], ["trtllm", 8, 4096, 6.0]]
    columns = ["implementation", "ranks", "size_bytes", "time_us"]
    newer = [row | {"implementation": "trtllm"} for row in sizes]
    for made in (sizes, newer):
        rows, skipped = converted("aiconfigurator", made, tmp_path / "custom_allreduce_perf.txt")
        assert rows[columns].values.tolist() == expected
        assert skipped == {"no time above 0": 1}
    for row in sizes:
        del row["kernel_source"]
    named = "1:1: backend or implementation or kernel_source: is required"
    with pytest.raises(BadInput, match=re.escape(f"custom.csv:{named}")):
        converted("aiconfigurator", sizes, tmp_path / "custom.csv")


@pytest.mark.parametrize(
    ("form", "column", "fault"),
    [
        ("aiconfigurator", "architecture", "architecture: holds whole modules"),
        ("aiconfigurator", "d_conv", "d_conv: holds linear attention"),
        ("llmservingsim", "activated_experts", "activated_experts: is a block of experts"),
        ("llmservingsim", "prediction", "prediction: holds predictions and no times"),
        (
            "vidur",
            "other",
            (
                "is no file of vidur; expected one of the columns time_stats.attn_pre_proj.median, "
                "is_prefill"
            ),
        ),
    ],
)
def test_files_without_a_place_in_the_table_are_refused(
    form: str, column: str, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=re.escape(f"file.csv:1:1: {fault}")):
        converted(form, [{column: 1}], tmp_path / "file.csv")


@pytest.mark.full
def test_products_that_the_cache_holds_say_nothing_of_the_memory(tmp_path: Path) -> None:
    """Five million weights of fp16 lie whole in the 40 MB of an A100."""
    lines = [
        f"matmul,qkv,{tokens},{1e7 + 8e3 * tokens},{1e7 * tokens},12.0" for tokens in (1, 2, 4, 8)
    ]
    (tmp_path / "small.csv").write_text(
        "\n".join(["operation,part,tokens,size_bytes,flops,time_us", *lines, ""])
    )
    done = CliRunner().invoke(
        main, ["calibrate", "device", str(tmp_path / "small.csv"), "--like", "a100_80g_sxm"]
    )
    assert done.exit_code == 2
    assert (
        "error: measurements: size_bytes: hold only products whose weights the device's cache holds"
    ) in done.stderr


def test_rows_beyond_the_datasheet_are_set_aside_and_named(tmp_path: Path) -> None:
    """1000 GB/s and 100 TFLOPS: 134 MB take 134 us; 34 MB may come from a cache of 50 MB; its 2048
    rows are 687 us of flops.
    """
    sides = {(8192, 1): 0.140, (8192, 2): 0.120, (4096, 1): 0.020, (4096, 2048): 0.600}
    made = [
        GEMM | {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": n, "latency": ms}
        for (n, m), ms in sides.items()
    ]
    rows, _ = converted("aiconfigurator", made, tmp_path / "gemm.csv")
    skipped: Counter = Counter()
    rest = importers.checked(rows, DEVICE, 50.0, skipped)
    assert rest[["shape", "tokens", "left_out"]].values.tolist() == [
        ["4096x4096", 1, "cached"],
        ["8192x8192", 1, ""],
    ]
    assert +skipped == {
        "1.12 x the memory: matmul fp16 8192x8192, 2 tokens": 1,
        "1.15 x the peak: matmul fp16 4096x4096, 2048 tokens": 1,
    }
    assert len(importers.checked(rows, None, 50.0, Counter())) == 4, "no device, no limit"


def test_products_that_a_cache_holds_are_marked_and_no_fit_uses_them(tmp_path: Path) -> None:
    sides = [
        (4096, 4096),
        (5120, 4883),
        (5120, 4882),
        (8192, 8192),
    ]  # 33.6, 50.002, 49.99 and 134 MB
    made = [
        {**GEMM, "gemm_dtype": "bfloat16", "latency": 1, "m": m, "n": n, "k": k}
        for m in (1, 9)
        for n, k in sides
    ]
    pd.DataFrame(made).to_csv(tmp_path / "gemm.csv", index=False)
    out = tmp_path / "out.csv"
    arguments = [
        "import",
        tmp_path / "gemm.csv",
        "--from",
        "aiconfigurator",
        "--source",
        "made@up",
        "--out",
        out,
    ]

    def marked(*more: str) -> set[str]:
        answer = json.loads(call(*arguments, *more, "--json"))
        rows = measurements.read([out])
        assert answer["rows"] == {"matmul": 8}
        assert answer["cached"] == (rows.left_out == "cached").sum()
        assert set(rows.source) == {f"made@up {tmp_path.name}/gemm.csv"}
        return set(rows[rows.left_out == "cached"]["shape"])

    assert marked("--cache-mb", "50") == {"4096x4096", "4882x5120"}
    assert marked() == {"4096x4096", "4882x5120", "4883x5120"}, "80 MB unless stated"
    assert marked("--cache-mb", "0") == set()
    assert "skipped" not in call(*arguments)
    assert "6 marked (in a cache), rates checked against no device" in call(*arguments)
    assert "against h100_sxm" in call(*arguments, "--device", "h100_sxm")
    document = read(Catalogue().names("device")["rtx_3090"])  # which states no cache
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0))).assign(left_out="cached")
    with pytest.raises(
        BadInput,
        match="hold none of matmul, attention, latent_attention, experts, small_operations to fit",
    ):
        profile.device(rows, document, validate(Device, document))


def test_single_products_are_left_out_by_halves_and_by_width() -> None:
    """Shapes of 5120 and 8192 take twice the time: a fit to 4096 alone misses half of it, a half is
    as the other.
    """
    sides = [(4096, n) for n in (6144, 7168, 10240, 12288)] + [
        (5120, 8192),
        (5120, 10240),
        (8192, 8192),
        (8192, 10240),
    ]
    rows = measurements.table(
        [
            {**importers.product("product", m, k, n, 0.0), "model": f"{k}x{n}"}
            for k, n in sides
            for m in (1, 4, 16, 64, 128, 256, 1024)
        ]
    )
    wide = rows["shape"].str.contains("5120|8192")
    rows["time_us"] = (
        fit.seconds(DEVICE, roofline((5.0, 0.8, 0.7, 2.0)), rows) * 1e6 * np.where(wide, 2.0, 1.0)
    )
    fitted = fit.products(DEVICE, rows[~wide], Form())
    found = {
        (candidate.by, candidate.name): candidate
        for candidate in quality.ways_left_out(DEVICE, rows, Form(), fitted)
    }
    assert set(found) == {
        (quality.HALF, "odd"),
        (quality.HALF, "even"),
        (quality.WIDTH, "5120, 8192 by 4096"),
    }
    assert found[quality.WIDTH, "5120, 8192 by 4096"].mape_percent == pytest.approx(
        (50.0, 50.0), abs=0.5
    )
    assert found[quality.HALF, "odd"].rows == (16, 24)


def test_serving_layers_become_our_rows(tmp_path: Path) -> None:
    """Llama-3.1-8B at TP 2, one token: 1 us for every layer; products that are fused elsewhere are
    summed.
    """
    names = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "up_proj",
        "gate_proj",
        "down_proj",
        "lm_head",
        "input_layernorm",
        "post_layernorm",
        "rope",
        "act_fn",
        "attn",
    )
    made = [
        {"layer_name": name, "input": 1, "kv_cache": 0, "tp_size": 2, "latency(ns)": 1000}
        for name in names
    ]
    rows = converted("llmservingsim", made, tmp_path / "file.csv", model())[0].set_index(
        ["operation", "part"]
    )
    assert rows.time_us.to_dict() == {
        ("matmul", "qkv"): 3.0,
        ("matmul", "output"): 1.0,
        ("matmul", "up"): 2.0,
        ("matmul", "down"): 1.0,
        ("matmul", "lm_head"): 1.0,
        ("small_operations", ""): 4.0,
        ("attention", "prefill"): 1.0,
    }
    assert rows["shape"].to_dict()["matmul", "down"] == "7168x4096"
    assert rows.size_bytes.to_dict()["matmul", "qkv"] == 2 * (4096 * 3072 + 4096 + 3072)
    assert rows.size_bytes.to_dict()["attention", "prefill"] == 2 * 2 * 8 / 2 * 128
    assert set(rows.model) == {"llama_3_1_8b"}


def test_a_bundle_says_degree_and_formats_by_its_folders(tmp_path: Path) -> None:
    """The layout of 2026: fused products, two norms a layer, decodes and chunks of prompts apart;
    mixed batches are skipped.
    """
    folder = tmp_path / "bf16-kvfp8" / "tp2"
    names = ("qkv_proj", "o_proj", "gate_up_proj", "layernorm", "rotary_emb", "act_fn", "embedding")
    made = [{"layer": name, "tokens": 4, "time_us": 1.0} for name in names]
    rows, skipped = converted("llmservingsim", made, folder / "dense.csv", model())
    assert rows[["part", "shape", "tensor_parallel", "time_us"]].values.tolist() == [
        ["qkv", "4096x3072", 2, 1.0],
        ["output", "2048x4096", 2, 1.0],
        ["up", "4096x14336", 2, 1.0],
        ["", "", 2, 4.0],
    ]
    assert skipped == {"no times of down_proj in the file": 1}
    head = [
        {"layer": "lm_head", "sequences": 3, "time_us": 9.0},
        {"layer": "sampler", "sequences": 3, "time_us": 2.0},
    ]
    rows, _ = converted("llmservingsim", head, folder / "per_sequence.csv", model())
    assert rows[["part", "shape", "tokens", "time_us"]].values.tolist() == [
        ["lm_head", "4096x64128", 3, 9.0]
    ]
    batch = [(0, 0, 8, 99), (32, 64, 0, 0), (32, 64, 8, 99)]
    made = [
        {"prefill_chunk": c, "kv_prefill": p, "n_decode": n, "kv_decode": d, "time_us": 7}
        for c, p, n, d in batch
    ]
    rows, skipped = converted("llmservingsim", made, folder / "attention.csv", model())
    assert rows[["part", "format", "tokens", "size_bytes"]].values.tolist() == [
        ["decode", "fp8", 8, 8 * 100 * 2 * 4 * 128],
        ["prefill", "fp8", 32, 96 * 2 * 4 * 128],
    ]
    assert rows.flops.tolist() == [4 * 8 * 100 * 2048, 4 * (32 * 64 + 32 * 33 / 2) * 2048]
    assert skipped == {"prompts and decodes in one batch": 1}
    with pytest.raises(BadInput, match="expected folders like bf16/tp2 above it"):
        converted("llmservingsim", head, tmp_path / "per_sequence.csv", model())


def test_norms_of_q_and_k_are_small_operations_with_bytes_of_their_own(tmp_path: Path) -> None:
    """32 query and 8 KV heads of 128, read and written; all of them at TP 2 as well, whose folder
    holds the times of one device. The product of q, k and v is what it was.
    """
    folder = tmp_path / "bf16" / "tp2"
    names = ("qkv_proj", "o_proj", "layernorm", "rotary_emb", "act_fn")
    made = [{"layer": name, "tokens": 4, "time_us": 1.0} for name in names]
    without, _ = converted("llmservingsim", made, folder / "dense.csv", model())
    norm = {"layer": "qk_norm", "tokens": 4, "time_us": 2.0}
    rows, _ = converted("llmservingsim", [*made, norm], folder / "dense.csv", model())
    of_products = rows.operation == "matmul"
    pd.testing.assert_frame_equal(rows[of_products], without[without.operation == "matmul"])
    (before,) = without[without.operation == "small_operations"].itertuples()
    (after,) = rows[~of_products].itertuples()
    assert (before.time_us, after.time_us) == (4.0, 6.0)
    assert after.size_bytes - before.size_bytes == 2 * 4 * 2 * (32 + 8) * 128


def stats(**medians: float) -> dict[str, float]:
    return {f"time_stats.{name}.median": value for name, value in medians.items()}


LLAMA = {
    "n_head": 32,
    "n_kv_head": 8,
    "n_embd": 4096,
    "n_expanded_embd": 14336,
    "num_tensor_parallel_workers": 2,
}
TIMES = stats(
    attn_pre_proj=0.01,
    attn_post_proj=0.02,
    mlp_up_proj=0.03,
    mlp_down_proj=0.04,
    add=0.001,
    input_layernorm=0.001,
    attn_rope=0.001,
    post_attention_layernorm=0.001,
    mlp_act=0.001,
)


def test_vidur_layers_are_those_of_their_model(tmp_path: Path) -> None:
    gated = {**TIMES, **LLAMA, "num_tokens": 8, "use_gated_mlp": True}
    rows, _ = converted("vidur", [gated], tmp_path / "Llama-3-8B_linear.csv")
    assert rows.part.tolist() == ["qkv", "output", "up", "down", ""]
    assert rows.time_us.tolist() == pytest.approx([10.0, 20.0, 30.0, 40.0, 6.0])
    assert rows["shape"].tolist() == ["4096x3072", "2048x4096", "4096x14336", "7168x4096", ""]
    assert set(rows.model) == {"Llama-3-8B"}
    rows, skipped = converted(
        "vidur", [gated, gated | {"num_tokens": 4096}], tmp_path / "Llama-3-8B" / "mlp.csv"
    )
    assert set(rows.model) == {"Llama-3-8B"}
    assert skipped == {"more than 2048 tokens": 1}
    others = [gated, gated | {"n_embd": 8192}]
    assert set(converted("vidur", others, tmp_path / "all.csv")[0].model) == {
        "all 4096x14336",
        "all 8192x14336",
    }


def test_an_ungated_mlp_has_one_up_matrix(tmp_path: Path) -> None:
    """The layout of Phi-2: no second norm, since its MLP runs beside the attention."""
    phi = {
        "n_head": 32,
        "n_kv_head": 32,
        "n_embd": 2560,
        "n_expanded_embd": 10240,
        "num_tensor_parallel_workers": 1,
    }
    made = {**TIMES, **phi, "num_tokens": 8, "use_gated_mlp": False}
    del made["time_stats.post_attention_layernorm.median"]
    rows = converted("vidur", [made], tmp_path / "phi-2.csv")[0].set_index("part")
    assert rows["shape"].to_dict() == {
        "qkv": "2560x7680",
        "output": "2560x2560",
        "up": "2560x10240",
        "down": "10240x2560",
        "": "",
    }
    assert rows.size_bytes["up"] == 2 * (2560 * 10240 + 8 * (2560 + 10240))
    assert rows.time_us[""] == pytest.approx(5.0)


def test_vidur_attention_and_collectives_are_known_by_their_columns(tmp_path: Path) -> None:
    shape = {
        "n_q_head": 64,
        "n_kv_head": 8,
        "n_embd": 8192,
        "num_tensor_parallel_workers": 2,
        "batch_size": 4,
    }
    made = [
        {
            **shape,
            **stats(attn_decode=0.02),
            "kv_cache_size": 99,
            "prefill_chunk_size": 0,
            "is_prefill": False,
        },
        {
            **shape,
            **stats(attn_prefill=0.5),
            "kv_cache_size": 0,
            "prefill_chunk_size": 64,
            "is_prefill": True,
        },
    ]
    for form in ("vidur", "llmservingsim"):  # which took the layout over for a while
        rows, _ = converted(form, made, tmp_path / "x.csv")
        assert rows[["part", "shape", "tokens", "time_us"]].values.tolist() == [
            ["decode", "4 KV heads", 4, 20.0],
            ["prefill", "4 KV heads", 256, 500.0],
        ]
        assert rows.size_bytes.tolist() == [4 * 100 * 2048, 4 * 64 * 2048]
        assert rows.flops.tolist() == [4 * 4 * 100 * 4096, 4 * 4 * (64 * 65 / 2) * 4096]

    medians = [{"batch_size": 4, "kv_cache_size": 99, "attn_decode_median_ms": 0.02}]
    assert converted("vidur", medians, tmp_path / "x.csv", model())[0].size_bytes.tolist() == [
        4 * 100 * 4096
    ]

    network = [
        {
            "collective": name,
            **stats(send_recv=0.02),
            "num_workers": ranks,
            "devices_per_node": 2,
            "size": 2048,
        }
        for name, ranks in (("send_recv", 2), ("send_recv", 4), ("all_gather", 2))
    ]
    rows, skipped = converted("vidur", network, tmp_path / "x.csv")
    assert rows[["operation", "size_bytes", "ranks", "time_us"]].values.tolist() == [
        ["transfer", 2048, 2, 20.0]
    ], "one node"
    assert skipped == {"ranks on several nodes": 1, "operation all_gather": 1}


# ---- the commands


def call(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["calibrate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_device_from_a_table_to_a_law(tmp_path: Path) -> None:
    measurements.write(
        layers(roofline((5.0, 0.8, 0.7, 2.0), Form((64, 128)))).assign(source="a test"),
        tmp_path / "table.csv",
    )
    arguments = [
        "device",
        tmp_path / "table.csv",
        "--like",
        "rtx_3090",
        "--tiles",
        "64,128",
        "--out",
        tmp_path / "mine.yaml",
    ]
    data = json.loads(call(*arguments, "--report", tmp_path / "page", "--json"))
    names = ["mine.yaml", *(f"rtx_3090.{ending}" for ending in ("md", "html", "data.csv", "svg"))]
    assert [Path(path).name for path in data["written"]] == names
    assert data["errors"]["matmul"][0]["what"] == "layer"
    assert {one["by"] for one in data["left_out"]} == {"tensor_parallel", "shape"}
    mine = validate(Device, read(tmp_path / "mine.yaml"))
    assert mine.matmul["default"].fixed_us.source.startswith(
        "calibrated-on: a test; qkv, output, up, down, 1..2048 tokens; layer MAPE"
    )
    assert (
        mine.attention == validate(Device, read(Catalogue().names("device")["rtx_3090"])).attention
    ), "not measured"
    law = CliRunner().invoke(
        main,
        [
            "law",
            "vanilla_llama_2_7b_a100",
            "--set",
            f"target.device={tmp_path / 'mine.yaml'}",
            "--json",
        ],
    )
    assert law.exit_code == 0, law.output
    text = call(*arguments, "--quick", "--long")
    assert "layer, TP 2" in text
    assert "left out" not in text


def test_a_profile_is_scored_by_operation_part_format_and_range(tmp_path: Path) -> None:
    """Products in 4/5 of the time that the profile says, and in 8 bits another 3/2 slower; a spread
    of 30 % holds the first.
    """
    device = validate(
        Device, Catalogue().content("device", Catalogue().names("device")["a100_80g_sxm"])
    )
    rows = layers(device.matmul["default"]).assign(
        part="product", model=lambda made: made["shape"] + made.tensor_parallel.astype(str)
    )
    rows["time_us"] = fit.seconds(device, device.matmul["default"], rows) * 1e6 / 1.25
    slow = rows.assign(format="int4", time_us=rows.time_us * 2.5, left_out="test")
    measurements.write(pd.concat([rows, slow]), tmp_path / "table.csv")
    arguments = ["score", "a100_80g_sxm", tmp_path / "table.csv"]
    errors = {
        (error["what"], error["least_tokens"], error["most_tokens"]): error
        for error in json.loads(call(*arguments, "--json"))["errors"]
    }
    assert set(errors) == {
        (f"matmul, {kind}, product", *limits)
        for kind in ("fp16", "int4, test")
        for limits in quality.SCORE_RANGES
    }
    first, second = (
        errors["matmul, fp16, product", 1, 64],
        errors["matmul, int4, test, product", 1, 256],
    )
    assert first["rows"] == 8 * sum(n <= 64 for n in TOKENS)
    assert (first["mape_percent"], first["bias_percent"]) == pytest.approx((25.0, 25.0), abs=0.01)
    assert (second["mape_percent"], second["bias_percent"]) == pytest.approx(
        (50.0, -50.0), abs=0.01
    )
    assert (first["inside_percent"], second["inside_percent"]) == (0.0, 0.0), "the spread is 4 %"
    sheet = quality.percents(
        fit.seconds(device, DATASHEET, (few := rows[rows.tokens <= 64])), fit.measured(few)
    )[0]
    assert first["datasheet_mape_percent"] == pytest.approx(sheet, rel=1e-4)
    exact = rows.assign(time_us=rows.time_us * 1.25 / 1.03, part="up", model="one")
    items = list(quality.scores(device, exact))
    assert {(one.what, one.inside_percent) for one in items} == {
        ("matmul, fp16, layer", 100.0),
        ("matmul, fp16, up", 100.0),
    }
    assert "a100_80g_sxm against measured times" in call(*arguments, "--out", tmp_path / "page")
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "a100_80g_sxm_score.html",
        "a100_80g_sxm_score.md",
    ]


def test_a_score_tells_decode_that_a_cache_serves_from_decode_that_the_memory_does() -> None:
    """A cache of 100 MB, of which up to 200 MB are served: 2.1 and 268 MB of keys and values; test
    rows stay test rows.
    """
    heads = importers.Heads(8, 4096, 4096)
    made = [
        importers.attention("decode", importers.Queries(64, 1, cached), heads, 1e4)
        for cached in (7, 1023, 7)
    ]
    rows = measurements.table([*made[:2], made[2] | {"left_out": "test"}]).assign(
        time_us=[2.0, 400.0, 2.0]
    )
    errors = [
        (score.what, score.rows)
        for score in quality.scores(CARD, rows)
        if score.least_tokens == 1 and score.most_tokens == 64
    ]
    assert sorted(errors) == [
        ("attention, fp16, cached, decode", 1),
        ("attention, fp16, decode", 1),
        ("attention, fp16, test, decode", 1),
    ]


def test_a_link_is_scored_by_implementation(tmp_path: Path) -> None:
    """A ring of 20 us and 200 GB/s, of twice the time; a form that the link does not name is held
    against the ring.
    """
    link = Link.model_validate(
        {
            "latency_us": 2.0,
            "bandwidth_gb_s": 100.0,
            "all_reduce": {"ring": {"fixed_us": 20.0, "bandwidth_gb_s": 200.0}},
        }
    )
    made = [
        {
            "operation": "all_reduce",
            "implementation": name,
            "size_bytes": 2e6,
            "ranks": 2,
            "time_us": 15.0,
        }
        for name in ("ring", "x")
    ]
    made.append({"operation": "transfer", "size_bytes": 1e6, "time_us": 12.0})
    errors = {
        link_score.what: link_score
        for link_score in quality.link_scores(link, measurements.table(made))
    }
    names = {"all_reduce, ring", "all_reduce x, ring", "transfer"}
    assert {name.removesuffix(", above 1 MB").removesuffix(", 2 ranks") for name in errors} >= names
    assert errors["all_reduce, ring"].bias_percent == pytest.approx(100.0)
    assert errors["all_reduce x, ring"].datasheet_mape_percent == pytest.approx(
        100 * (20.0 / 15.0 - 1.0)
    )
    assert errors["transfer"].mape_percent == pytest.approx(0.0)
    measurements.write(measurements.table(made), tmp_path / "link.csv")
    assert "nvlink_a100 against measured times" in call(
        "score", "nvlink_a100", tmp_path / "link.csv"
    )


def test_a_link_and_passes_are_written(tmp_path: Path) -> None:
    sizes = [
        {
            "operation": "all_reduce",
            "size_bytes": float(2**power),
            "ranks": 2,
            "time_us": 20 + 2**power / 2e5,
        }
        for power in range(11, 27)
    ]
    measurements.write(measurements.table(sizes), tmp_path / "link.csv")
    assert "all_reduce, ring, above 1 MB" in call(
        "link",
        "--long",
        tmp_path / "link.csv",
        "--like",
        "nvlink_a100",
        "--out",
        tmp_path / "link.yaml",
    )
    ring = validate(Link, read(tmp_path / "link.yaml")).all_reduce.ring
    assert ring is not None
    assert (ring.fixed_us.value, ring.bandwidth_gb_s.value) == pytest.approx(
        (20.0, 200.0), rel=0.01
    )

    measurements.write(pass_rows(), tmp_path / "passes.csv")
    assert "100 us per layer" in call(
        "passes", tmp_path / "passes.csv", "--like", "m2_ultra_gpu", "--out", tmp_path / "m2.yaml"
    )
    validation = validate(Device, read(tmp_path / "m2.yaml"))
    assert validation.small_operations.fixed_us.value == 100.0
    assert [point.ratio for point in validation.matmul["q4_0"].width] == [1.0, 3.0]


def test_tables_of_a_fit_name_what_they_show() -> None:
    error = FitError("layer", 1, 64, 1200, 2.04, 5.0, -1.0, None)
    outside = HeldOutErrors("model", "m", (1.0, float("nan")), (3, 0))
    step, before = TileStep(64, 65, 10.0, 9.0), TileStep(64, 65, 10.0, 4.0)
    fitted = profile.FittedProfile(
        {}, {"matmul": [error]}, {}, [outside], [step], [before], {"64, 128": 1.25}, None
    )
    page = calibrate_page.page("mine", fitted, "specsim calibrate device")
    assert [block.words for block in page.opening if isinstance(block, Paragraph)] == [
        (
            "Errors in % of the measured time; like: MAPE of the profile it starts from; sheet: of "
            "the datasheet's rates."
        ),
        (
            "Predicted by a fit to all the others: layers of a model or degree, products of a "
            "shape (%)."
        ),
        "Growth of a layer behind a step, median over models and degrees (%).",
        "Tiles tried, layer MAPE up to 512 tokens (%): 64, 128: 1.2.",
    ]
    assert [(list(table.head), list(table.rows)) for table in tables(fitted)] == [
        (
            ["", "tokens", "rows", "MAPE", "p95", "bias", "like", "sheet"],
            [("layer", "1..64", "1,200", "2.0", "5.0", "-1.0", "", "")],
        ),
        (
            ["left out", "", "MAPE 1..64", "MAPE 1..256"],
            [("model", "all 1", "1.0", ""), ("", "m", "1.0", "")],
        ),
        (
            ["behind", "next", "measured", "predicted", "like"],
            [("64", "65", "+10.0", "+9.0", "+4.0")],
        ),
    ]


def test_a_score_says_how_it_was_reckoned() -> None:
    error = FitError("all_reduce", 0, 0, 7, 2.0, 5.0, 1.0, 3.0, 90.4)
    page = calibrate_page.score_page("card", [error], "specsim calibrate score")
    assert page.title == "card against measured times"
    assert page.about == (
        "Errors in % of the measured time, without a fit. inside: share of times within the "
        "profile's spread; bare: MAPE of the datasheet's rates alone. Rows that no fit uses are "
        "named: cached, test, eager, window, head_width."
    )
    (shown,) = page.opening
    assert isinstance(shown, Table)
    assert shown.title == "Errors (%)"
    assert list(shown.head) == [
        "",
        "rows or bytes",
        "times",
        "MAPE",
        "p95",
        "bias",
        "inside",
        "bare",
    ]
    assert list(shown.rows) == [("all_reduce", "", "7", "2.0", "5.0", "+1.0", "90", "3.0")]


def test_a_fit_of_an_engine_says_what_its_rows_identify() -> None:
    loaded = load("vanilla_qwen3_32b_a100")
    assert loaded.scenario.target
    columns = {"strategy": "eagle_1", "step_ms": "2", "source": "a test", "draft.model": ""}
    measured_run = MeasuredRun(loaded, Rates((0.5,)), "step_ms", 2.0, 1.0, columns)
    numbers = {
        "host_us": FittedNumber(2.0, 0.5, 1.0, 0.2),
        "device": FittedNumber(0.1, 0.01, 0.0, 0.75),
    }
    fitted = EngineFit(
        loaded.scenario.target.engine,
        numbers,
        {"before": 0.2, "fitted": 0.1},
        [(measured_run, 2.2)],
    )
    page = calibrate_page.engine_page(fitted, "vllm")
    assert page.title == "vllm, fitted to 1 runs"
    assert page.answer == "Mean absolute errors: before 20.0 %, fitted 10.0 %."
    (shown,) = page.opening
    (section,) = page.sections
    (runs,) = section.blocks
    assert isinstance(shown, Table)
    assert isinstance(runs, Table)
    assert (shown.title, list(shown.head)) == (
        "Numbers of the engine",
        ["number", "before", "fitted", "deviation", "rows"],
    )
    assert list(shown.rows) == [
        ("host_us", "1.000", "2.000", "0.500", "identified"),
        ("device", "0", "0.100", "0.010", "not identified: 75 % of its pull is left"),
    ]
    assert (section.title, runs.title, list(runs.head)) == (
        "Runs",
        "Runs by law",
        ["run", "what", "measured", "law", "error"],
    )
    assert list(runs.rows) == [("eagle_1", "step_ms", "2.000", "2.200", "+10.0 %")]


VIDUR = ["--from", "vidur", "--source", "x", "--out", "x.csv"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["device", "own.csv", "--like", "a100"], "there is no device 'a100'; did you mean"),
        (
            ["link", "own.csv", "--like", "nvlink_a100"],
            "measurements: hold no all_reduce, transfer, dispatch or combine",
        ),
        (
            ["link", "links.csv", "--like", "nvlink_a100"],
            "measurements: implementation: expected all-reduces of one, got a, b",
        ),
        (
            ["device", "passes.csv", "--like", "a100_80g_sxm"],
            "hold none of matmul, attention, latent_attention, experts",
        ),
        (
            ["import", "own.csv", *VIDUR],
            "own.csv:1:1: is no file of vidur; expected one of the columns",
        ),
        (
            ["import", "medians.csv", *VIDUR],
            "medians.csv: holds no shapes; name the model with --model",
        ),
        (
            ["import", "medians.csv", *VIDUR, "--model", "llama_3_1_8b"],
            "medians.csv:1:1: batch_size: is required",
        ),
        (
            ["device", "own.csv", "--like", "a100_80g_sxm", "--tiles", "64,x"],
            "expected sizes like 1,2,4-8, got '64,x'",
        ),
    ],
)
def test_a_mistake_is_told_and_nothing_written(
    arguments: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measurements.write(layers(roofline((5.0, 0.8, 0.7, 2.0)), degrees=(1,)), tmp_path / "own.csv")
    measurements.write(pass_rows(), tmp_path / "passes.csv")
    header = "operation,implementation,size_bytes,ranks,time_us\n"
    (tmp_path / "links.csv").write_text(header + "all_reduce,a,1,2,1\nall_reduce,b,1,2,1\n")
    (tmp_path / "medians.csv").write_text("attn_decode_median_ms,kv_cache_size\n1,2\n")
    result = CliRunner().invoke(main, ["calibrate", *arguments])
    assert result.exit_code == 2
    assert fault in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "links.csv",
        "medians.csv",
        "own.csv",
        "passes.csv",
    ]


def test_a_written_profile_says_its_numbers_in_a_page() -> None:
    document = read(Catalogue().names("device")["a100_80g_sxm"])
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0)))
    found = profile.device(rows, document, validate(Device, document), Form(), left_out=False)
    assert found.data["matmul"]["default"]["fixed_us"]["value"] == pytest.approx(5.0, rel=0.02)
    assert found.layers is not None
    assert len(found.layers) == 2 * len(TOKENS)
    assert np.allclose(found.layers.predicted, found.layers.seconds, rtol=0.05)


# ---- Frontier


SIGNED = {
    "quant_signature": "none",
    "profiling_precision": "BF16",
    "measurement_type": "CUDA_EVENT",
}
EXPERTS = SIGNED | {
    "num_tokens": 4,
    "hidden_dim": 2048,
    "expert_hidden_dim": 768,
    "router_topk": 8,
    "num_experts": 128,
    "num_experts_per_device": 32,
    "num_tensor_parallel_workers": 2,
    "total_routed_tokens": 10,
    "expert_utilization": 0.25,
    "load_distribution": "uniform",
    "use_gated": True,
    "measurement_type": "KERNEL_ONLY",
    "time_stats.moe_grouped_gemm.median": 0.5,
}


def test_experts_of_frontier_are_those_that_were_read(tmp_path: Path) -> None:
    """A quarter of 32 experts on a device, for ten pairs; three matrices of 2048 x 384 at TP 2."""
    made = [EXPERTS, EXPERTS | {"num_tokens": 4096}, EXPERTS | {"total_routed_tokens": 0}]
    rows, skipped = converted("frontier", made, tmp_path / "moe.csv")
    weights = 3 * 2048 * 384
    columns = ["operation", "part", "format", "shape", "tensor_parallel", "tokens", "size_bytes"]
    assert rows[columns].values.tolist() == [
        ["experts", "uniform", "fp16", "2048x768, 8 of 128", 2, 4, 8 * weights * 2]
    ]
    columns = ["flops", "experts", "pairs", "width", "time_us", "implementation"]
    assert rows[columns].values.tolist() == [[2 * 10 * weights, 8, 10, 2048 + 384, 500.0, "graph"]]
    assert skipped == {"more than 2048 tokens": 1, "no token for an expert of this device": 1}
    eager = [EXPERTS | {"measurement_type": "CUDA_EVENT", "num_tokens": n} for n in (1, 2)]
    eager[1]["time_stats.moe_grouped_gemm.median"] = 1.0
    rows, skipped = converted("frontier", eager, tmp_path / "moe.csv")
    assert rows[["tokens", "implementation"]].values.tolist() == [[2, "eager"]]
    assert skipped == {"eager kernels, at a floor of 500 us: the host's time": 1}


FP8 = "method=fp8|act=dynamic|serialized=True|block="


@pytest.mark.parametrize(
    ("signature", "form"),
    [
        ("none", "fp16"),
        (FP8 + "none", "fp8"),
        (FP8 + "128x128|ignored=lm_head,router", "fp8_block"),
        ("int4", "int4"),
    ],
)
def test_a_signature_of_frontier_is_a_format_of_weights(
    signature: str, form: str, tmp_path: Path
) -> None:
    """Rows of two formats are never one row."""
    made = [EXPERTS | {"quant_signature": signature}, EXPERTS | {"quant_signature": "nvfp4"}]
    made[1]["time_stats.moe_grouped_gemm.median"] = 0.1
    rows, _ = converted("frontier", made, tmp_path / "moe.csv")
    assert dict(zip(rows.format, rows.time_us, strict=True)) == {form: 500.0, "nvfp4": 100.0}
    one = rows.set_index("format").size_bytes
    assert one[form] == 8 * 3 * 2048 * 384 * WEIGHT_BYTES[form]


@pytest.mark.parametrize(
    ("signature", "fault"),
    [
        ("method=awq|act=none|serialized=False|block=none", "names no format of weights"),
        (None, "names no format of weights that is known: 'nan'"),
        (FP8 + "64x64", "names no format of weights that is known: 'method=fp8"),
        (FP8 + "none|ignored=q_proj,lm_head", "keeps q_proj in 16 bits"),
    ],
)
def test_a_signature_that_is_not_known_is_refused_where_it_stands(
    signature: str, fault: str, tmp_path: Path
) -> None:
    made = [EXPERTS, EXPERTS | {"quant_signature": signature}]
    with pytest.raises(BadInput, match=re.escape(f"moe.csv:3:1: quant_signature: {fault}")):
        converted("frontier", made, tmp_path / "moe.csv")


LAYER_OF_FRONTIER = {**TIMES, **LLAMA, **SIGNED, "num_tokens": 8, "use_gated_mlp": True}


def test_layers_of_frontier_leave_norms_of_q_and_k_out_of_the_product(tmp_path: Path) -> None:
    """Where models have such norms, the time of qkv holds them: only the other products count."""
    fused = {key: cell for key, cell in LAYER_OF_FRONTIER.items() if "add" not in key}
    rows, skipped = converted("frontier", [fused], tmp_path / "linear_op.csv")
    assert rows.part.tolist() == ["qkv", "output", "up", "down", ""]
    assert rows.time_us.tolist() == pytest.approx([10.0, 20.0, 30.0, 40.0, 4.0])
    assert set(rows.implementation) == {"eager"}
    assert not skipped
    for flag, why in (
        ("use_qk_norm", "products of qkv whose time holds the norms of q and k"),
        ("attn_output_gate", "products of qkv with a gate as wide as q"),
    ):
        made = [fused | {flag: True}, fused | {flag: False, "num_tokens": 16}]
        rows, skipped = converted("frontier", made, tmp_path / "linear_op.csv")
        assert rows[rows.tokens == 8].part.tolist() == ["output", "up", "down", ""]
        assert rows[rows.tokens == 16].part.tolist() == ["qkv", "output", "up", "down", ""]
        assert skipped == {why: 1}


ATTENTION = SIGNED | {
    "n_embd": 4096,
    "n_q_head": 32,
    "n_kv_head": 8,
    "num_tensor_parallel_workers": 2,
    "batch_size": 3,
    "prefill_chunk_size": 0,
    "kv_cache_size": 99,
    "is_prefill": False,
    "attention_backend": "AttentionBackend.FLASHINFER",
    "is_mixed_batch": False,
    "time_stats.attn_decode.median": 0.05,
    "time_stats.attn_prefill.median": None,
}


def test_attention_of_frontier_becomes_our_rows(tmp_path: Path) -> None:
    """Three decodes behind 99 tokens, and a chunk of 10 behind 6, of 4 KV heads at TP 2."""
    times = {"time_stats.attn_decode.median": None, "time_stats.attn_prefill.median": 0.07}
    chunk = {"is_prefill": True, "batch_size": 1, "prefill_chunk_size": 10, "kv_cache_size": 6}
    prompt = ATTENTION | chunk | times
    made = [
        ATTENTION,
        prompt,
        prompt | {"is_mixed_batch": True},
        ATTENTION | {"attention_backend": "FLASHINFER_MLA"},
        ATTENTION | {"profiling_precision": "FP32"},
    ]
    rows, skipped = converted("frontier", made, tmp_path / "attention.csv")
    token = 2 * 2 * 4 * 128
    pair = 4 * 16 * 128
    columns = [
        "part",
        "format",
        "tokens",
        "sequences",
        "kv_heads",
        "size_bytes",
        "flops",
        "time_us",
    ]
    assert rows[columns].values.tolist() == [
        ["prefill", "fp16", 10, 1, 4, 16 * token, (60 + 55) * pair, 70.0],
        ["decode", "fp16", 3, 3, 4, 3 * 100 * token, 3 * 100 * pair, 50.0],
    ]
    assert skipped == {"several_lengths True": 1, "latent attention": 1, "format FP32": 1}


def test_heads_wider_than_hidden_over_heads_need_the_model(tmp_path: Path) -> None:
    narrow = ATTENTION | {"n_embd": 2048}
    named = "attention.csv:1:1: n_embd: is 64 times the heads"
    with pytest.raises(BadInput, match=named):
        converted("frontier", [narrow], tmp_path / "attention.csv")
    with pytest.raises(BadInput, match="n_embd: expected 4096, the hidden size of llama_3_1_8b"):
        converted("frontier", [narrow], tmp_path / "attention.csv", model())
    wide = model().model_copy(update={"hidden_size": 2048})
    rows, _ = converted("frontier", [narrow], tmp_path / "attention.csv", wide)
    assert rows.query_width.tolist() == [16 * 128]


OPS = Path(__file__).parents[2] / "shared" / "data" / "ops"


released = pytest.mark.skipif(not OPS.is_dir(), reason="needs measurements that are not ours")


@released
def test_released_experts_of_frontier_are_read() -> None:
    skipped: Counter = Counter()
    path = OPS / "frontier_a800" / "qwen3_30b_a3b_moe.csv.gz"
    rows = importers.imported("frontier", path, None, skipped)
    assert (len(rows), set(rows.format), set(rows["shape"])) == (
        2126,
        {"fp16"},
        {"2048x768, 8 of 128"},
    )
    reasons = {why.split(",")[0]: count for why, count in (+skipped).items()}
    assert reasons == {"more than 2048 tokens": 2048, "eager unnamed": 816, "eager vllm_fused": 22}


FLOORS = {
    "more than 2048 tokens": 42504,
    "eager CutlassFp8BlockScaledMMKernel, at a floor of 154 us: the host's time": 3246,
    "eager DeepGemmFp8BlockScaledMMKernel, at a floor of 151 us: the host's time": 10201,
    "matmul, product, fp8_block: at a floor of 238 us whatever the shape: the host's time": 11131,
}


@released
@pytest.mark.full
@pytest.mark.parametrize(
    ("table", "marked", "left"),
    [
        (
            "h100_sxm/generation_attention.sglang_0.5.14.parquet",
            {"": 14932, "head_width": 17896, "window": 7640},
            {},
        ),
        (
            "h100_sxm/context_attention.vllm_0.24.0.parquet",
            {"": 10648, "head_width": 14198, "window": 22112},
            {"prompts of one token, which decode's kernel takes": 3872},
        ),
        ("h100_sxm/custom_allreduce.vllm_0.24.0.parquet", {"": 138}, {}),
        ("b200_sxm/gemm.vllm_0.24.0.parquet", {"": 75886}, FLOORS),
    ],
)
def test_released_tables_are_read(table: str, marked: dict[str, int], left: dict[str, int]) -> None:
    """How many rows of each mark, and what is left out and why."""
    skipped: Counter = Counter()
    rows = importers.imported("aiconfigurator", OPS / table, None, skipped)
    marks = rows.groupby("left_out").size().to_dict()
    assert (marks, dict(+skipped)) == (marked, left)
