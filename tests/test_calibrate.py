"""``specsim calibrate``: numbers that made a table come back out of it, errors are what they are, mistakes are told by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cli.calibrate import FORMATS
from simulator.cli.main import main
from simulator.cost.collectives import RingAllReduce, TreeAllReduce
from simulator.cost.device import Device, Link
from simulator.cost.model import ModelSpec
from simulator.evidence.calibrate import fit, importers, measurements, passes, profile, quality
from simulator.evidence.calibrate.fit import DATASHEET, Form, roofline
from simulator.files.schema import BadInput, read, validate
from simulator.names import Catalogue

PARTS = {"matmul": {"default": DATASHEET}, "attention": DATASHEET, "small_operations": DATASHEET}
RATES = {"memory_gb": 80.0, "memory_bandwidth_gb_s": 1000.0, "peak_tflops": 100.0}
DEVICE = Device.model_validate({"kind": "gpu", **RATES, **PARTS})
"""Round datasheet numbers: 1 GB takes a millisecond, so do 0.1 TFLOP."""
TOKENS = [1, 2, 4, 8, 16, 32, 48, 64, 65, 96, 128, 129, 192, 256, 257, 320, 384, 385, 448, 512, 1024, 2048]
SHAPES = {"qkv": (4096, 6144), "output": (4096, 4096), "up": (4096, 28672), "down": (14336, 4096)}


def layers(operation: object, models: dict[str, float] | None = None, degrees: tuple[int, ...] = (1, 2)) -> measurements.Table:
    """A table of products that take the time ``operation`` says, stretched by a factor for each model."""
    rows = []
    for model, factor in (models or {"one": 1.0}).items():
        for ranks in degrees:
            for part, (inputs, outputs) in SHAPES.items():
                for tokens in TOKENS:
                    row = importers.product(part, tokens, inputs, outputs / ranks, 0.0)
                    taken = DEVICE.seconds(operation, row["size_bytes"], row["flops"], tokens)
                    rows.append({**row, "model": model, "tensor_parallel": ranks, "time_us": taken * 1e6 * factor})
    return measurements.table(rows)


numbers = st.tuples(st.floats(0, 60), st.floats(0.2, 1), st.floats(0.05, 1), st.floats(1, 50))
ratios = st.lists(st.floats(1, 5), min_size=14, max_size=14)


@settings(max_examples=40)
@given(numbers, ratios, st.sampled_from([Form(), Form((64,), fit.TABLE.at), Form((16, 64, 128))]), st.integers(1, 4096))
def test_all_rows_at_once_take_what_the_simulator_takes(
    four: tuple[float, ...], more: list[float], form: Form, tokens: int
) -> None:
    operation = roofline((*four, *(more if form.at else ())), form)
    rows = measurements.table([importers.product("up", n, 4096, 512, 1.0) for n in (1, tokens, 64)])
    expected = [DEVICE.seconds(operation, row.size_bytes, row.flops, row.tokens) for row in rows.itertuples()]
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
    assert [point.ratio for point in found.width] == pytest.approx([point.ratio for point in made.width], abs=0.05)


def test_attention_small_operations_and_links_are_found() -> None:
    heads = importers.Heads(8, 4096, 4096)
    queries = [importers.Queries(batch, 1, cached) for batch in (1, 8, 64) for cached in (128, 1024, 4096)]
    queries += [importers.Queries(1, new, 0) for new in (64, 512, 2048)]
    rows = measurements.table([importers.attention("decode" if q.cached else "prefill", q, heads, 0.0) for q in queries])
    rows["time_us"] = fit.seconds(DEVICE, roofline((10.0, 0.8, 0.5, 2.0)), rows) * 1e6
    assert fit._numbers(fit.attention(DEVICE, rows, DATASHEET)) == pytest.approx([10.0, 0.8, 0.5, 2.0], rel=0.02)

    rows = measurements.table([importers.small(n, 4096, 14336, 6144, 0.0) for n in TOKENS])
    rows["time_us"] = fit.seconds(DEVICE, roofline((20.0, 0.5, 1.0, 1.0)), rows) * 1e6
    assert fit._numbers(fit.small_operations(DEVICE, rows))[:2] == pytest.approx([20.0, 0.5], rel=0.01)

    sizes = [
        {"operation": "all_reduce", "size_bytes": float(2**power), "ranks": ranks}
        for power in range(11, 27)
        for ranks in (2, 8)
    ]
    rows = measurements.table(pd.DataFrame(sizes).assign(time_us=1.0))
    for made in (RingAllReduce(fixed_us=20, bandwidth_gb_s=200), TreeAllReduce(alpha_us=10, bandwidth_gb_s=50)):
        rows["time_us"] = fit.reduced(made, rows) * 1e6
        found = fit.all_reduce(type(made), rows).model_dump()
        for name, number in made.model_dump().items():
            assert (
                found[name] == number
                if isinstance(number, str)
                else found[name]["value"] == pytest.approx(number["value"], rel=0.01)
            )
    assert fit.transfer_latency_us(rows.assign(time_us=15.0 + rows.size_bytes / 300e3), 300.0) == pytest.approx(15.0)


def test_what_was_not_measured_stays_as_it_was() -> None:
    """An empty cache: keys and values take no time worth fitting to."""
    heads, like = importers.Heads(8, 4096, 4096), roofline((1.0, 0.66, 0.9, 3.0))
    rows = measurements.table([importers.attention("prefill", importers.Queries(1, n, 0), heads, 0.0) for n in TOKENS])
    rows["time_us"] = fit.seconds(DEVICE, roofline((8.0, 0.66, 0.5, 3.0)), rows) * 1e6
    assert not fit.bound_by_memory(DEVICE, rows)
    assert fit._numbers(fit.attention(DEVICE, rows, like)) == pytest.approx([8.0, 0.66, 0.5, 3.0], rel=0.02)


# ---- errors


def test_errors_are_those_of_the_rows() -> None:
    made = roofline((5.0, 0.8, 0.7, 2.0))
    slower = roofline((0.0, 0.8, 0.7, 2.0))
    rows = layers(slower)
    rows["time_us"] *= 0.8
    for error in quality.errors(DEVICE, slower, rows):
        assert (error.mape_percent, error.p95_percent, error.bias_percent) == pytest.approx((25.0, 25.0, 25.0))
    layer = next(error for error in quality.errors(DEVICE, made, layers(made)) if error.what == "layer")
    assert (layer.least_tokens, layer.most_tokens, layer.rows) == (1, 64, 2 * sum(n <= 64 for n in TOKENS))
    assert layer.mape_percent == pytest.approx(0.0, abs=1e-9)
    assert layer.datasheet_mape_percent is not None
    assert layer.datasheet_mape_percent > 10.0


def test_a_model_left_out_is_predicted_by_the_others() -> None:
    """Two models alike and one of half the speed: left out, it is predicted at half its time."""
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0)), {"a": 1.0, "b": 1.0, "slow": 2.0}, degrees=(1,))
    fitted = fit.products(DEVICE, rows, Form())
    found = {one.name: one for one in quality.left_out(DEVICE, rows, Form(), fitted, "model")}
    assert found["slow"].mape_percent == pytest.approx((50.0, 50.0), abs=0.5)
    assert found["slow"].rows == (8, 14)
    assert quality.left_out(DEVICE, rows, Form(), fitted, "tensor_parallel") == [], "there is but one"


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
    """10 layers of 100 us; fp16 1 GB in 2000 us and q4_0 0.25 GB in 500; four tokens read them 1.5 and 3 times slower."""
    made = [("fp16", 1, 3000), ("fp16", 4, 4000), ("fp16", 512, 11000), ("q4_0", 1, 1500), ("q4_0", 4, 2500)]
    rows = pd.DataFrame(made, columns=["part", "tokens", "time_us"]).assign(operation="pass", model="m", layers=10, flops=1e11)
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
def test_passes_that_tell_too_little_are_refused(keep: Callable[[pd.DataFrame], pd.Series], fault: str) -> None:
    rows = pass_rows()
    with pytest.raises(BadInput, match=fault):
        passes.fit(DEVICE, rows[keep(rows)])


@pytest.mark.parametrize(
    ("column", "rate"), [("size_bytes", "2.5 of the datasheet's bandwidth"), ("flops", "1.5 of the datasheet's peak")]
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
        pd.testing.assert_frame_equal(measurements.read([tmp_path / name]), rows, check_dtype=False, rtol=1e-5)


GOOD = "operation,tokens,size_bytes,time_us\nmatmul,1,100,5\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GOOD + "matmull,1,100,5\n", ":3:1: operation: there is no 'matmull'; did you mean 'matmul'?"),
        (GOOD + "matmul,1,100,\n", ":3:1: time_us: expected a number above 0, got ''"),
        (GOOD + "matmul,1,-4,5\n", ":3:1: size_bytes: expected a number above 0, got '-4'"),
        (GOOD + "matmul,0,100,5\n", ":3:1: tokens: expected a number above 0, got '0'"),
        (GOOD + "matmul,1,inf,5\n", ":3:1: size_bytes: expected a number above 0, got 'inf'"),
        ("operation,size_byte,time_us\n", ":1:1: size_byte: unknown column; did you mean 'size_bytes'?"),
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
    return validate(ModelSpec, read(Catalogue().names("model")["llama_3_1_8b"])).model_copy(update={"name": "llama_3_1_8b"})


def test_formats_of_the_command_are_the_importers() -> None:
    assert tuple(importers.IMPORTERS) == FORMATS


def test_attention_over_a_cache_becomes_our_rows_and_other_kinds_do_not() -> None:
    """Two sequences behind 99 tokens, 8 query and 2 KV heads; a window, a narrow head and a cache of 8 bits are others."""
    one = {"op_name": "generation_attention", "batch_size": 2, "isl": 1, "step": 99, "num_heads": 8, "num_key_value_heads": 2,
           "head_dim": 128, "window_size": 0, "kv_cache_dtype": "bfloat16", "latency": 0.5}  # fmt: skip
    others = [one | other for other in ({"window_size": 128}, {"head_dim": 64}, {"kv_cache_dtype": "fp8"})]
    prompt = one | {"op_name": "context_attention", "isl": 3, "step": 0}
    again = [one | {"latency": 0.3}, one | {"latency": 0.1}]
    rows = importers.aiconfigurator(pd.DataFrame([one, *others, prompt, *again]), "file", None).set_index("part")
    assert rows.time_us.to_dict() == pytest.approx({"decode": 300.0, "prefill": 500.0})
    assert rows.size_bytes.to_dict() == {"decode": 2 * 100 * 2 * 2 * 2 * 128, "prefill": 2 * 3 * 2 * 2 * 2 * 128}
    assert rows.flops.to_dict() == {"decode": 4 * 2 * 100 * 8 * 128, "prefill": 4 * 2 * 6 * 8 * 128}


def test_products_that_a_cache_holds_are_counted_and_left_out(tmp_path: Path) -> None:
    sides = [(4096, 4096), (5120, 4883), (5120, 4882), (8192, 8192)]  # 33.6, 50.002, 49.99 and 134 MB
    same = {"framework": "s", "gemm_dtype": "bfloat16", "latency": 1}
    made = [{**same, "m": m, "n": n, "k": k} for m in (1, 9) for n, k in sides]
    pd.DataFrame(made).to_csv(tmp_path / "gemm.csv", index=False)
    arguments = ["calibrate", "import", str(tmp_path / "gemm.csv"), "--from", "aiconfigurator", "--source", "made up", "--json"]

    def run(*more: str) -> dict[str, object]:
        result = CliRunner().invoke(main, [*arguments, *more, "--out", str(tmp_path / "out.csv")])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    small = run("--cache-mb", "50")
    assert (small["rows"], small["cached"]) == ({"matmul": 4}, {"rows": 4, "shapes": 2})
    assert set(measurements.read([tmp_path / "out.csv"])["shape"]) == {"4883x5120", "8192x8192"}
    assert run()["cached"] == {"rows": 6, "shapes": 3}, "80 MB unless stated"
    assert run("--cache-mb", "0")["cached"] == {"rows": 0, "shapes": 0}


def test_single_products_are_left_out_by_halves_and_by_width() -> None:
    """Shapes of 5120 and 8192 take twice the time: a fit to 4096 alone misses half of it, a half is as the other."""
    sides = [(4096, n) for n in (6144, 7168, 10240, 12288)] + [(5120, 8192), (5120, 10240), (8192, 8192), (8192, 10240)]
    rows = measurements.table(
        [
            {**importers.product("product", m, k, n, 0.0), "model": f"{k}x{n}"}
            for k, n in sides
            for m in (1, 4, 16, 64, 128, 256, 1024)
        ]
    )
    wide = rows["shape"].str.contains("5120|8192")
    rows["time_us"] = fit.seconds(DEVICE, roofline((5.0, 0.8, 0.7, 2.0)), rows) * 1e6 * np.where(wide, 2.0, 1.0)
    fitted = fit.products(DEVICE, rows[~wide], Form())
    found = {(one.by, one.name): one for one in quality.ways_left_out(DEVICE, rows, Form(), fitted)}
    assert set(found) == {(quality.HALF, "odd"), (quality.HALF, "even"), (quality.WIDTH, "5120, 8192 by 4096")}
    assert found[quality.WIDTH, "5120, 8192 by 4096"].mape_percent == pytest.approx((50.0, 50.0), abs=0.5)
    assert found[quality.HALF, "odd"].rows == (16, 24)


def test_serving_layers_become_our_rows() -> None:
    """Llama-3.1-8B at TP 2, one token: 1 us for every layer; products that are fused elsewhere are summed."""
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj", "lm_head", "input_layernorm",
             "post_layernorm", "rope", "act_fn", "attn")  # fmt: skip
    frame = pd.DataFrame([{"layer_name": name, "input": 1, "kv_cache": 0, "tp_size": 2, "latency(ns)": 1000} for name in names])
    rows = importers.llmservingsim(frame, "file", model()).set_index(["operation", "part"])
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


def stats(**medians: float) -> dict[str, float]:
    return {f"time_stats.{name}.median": value for name, value in medians.items()}


def test_vidur_files_are_known_by_their_columns() -> None:
    shape = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 14336, "num_tensor_parallel_workers": 2}
    times = stats(attn_pre_proj=0.01, attn_post_proj=0.02, mlp_up_proj=0.03, mlp_down_proj=0.04, add=0.001,
                  input_layernorm=0.001, attn_rope=0.001, post_attention_layernorm=0.001, mlp_act=0.001)  # fmt: skip
    rows = importers.vidur(pd.DataFrame([{**times, **shape, "num_tokens": 8}]), "Llama-3-8B_linear", None)
    assert rows.part.tolist() == ["qkv", "output", "up", "down", ""]
    assert rows.time_us.tolist() == pytest.approx([10.0, 20.0, 30.0, 40.0, 6.0])
    assert rows["shape"].tolist() == ["4096x3072", "2048x4096", "4096x14336", "7168x4096", ""]
    assert set(rows.model) == {"Llama-3-8B"}

    shape = {"n_q_head": 64, "n_kv_head": 8, "n_embd": 8192, "num_tensor_parallel_workers": 2, "batch_size": 4}
    held = [
        {**shape, **stats(attn_decode=0.02), "kv_cache_size": 99, "prefill_chunk_size": 0, "is_prefill": False},
        {**shape, **stats(attn_prefill=0.5), "kv_cache_size": 0, "prefill_chunk_size": 64, "is_prefill": True},
    ]
    rows = importers.vidur(pd.DataFrame(held), "x", None)
    assert rows[["part", "shape", "tokens", "time_us"]].values.tolist() == [
        ["decode", "4 KV heads", 4, 20.0],
        ["prefill", "4 KV heads", 256, 500.0],
    ]
    assert rows.size_bytes.tolist() == [4 * 100 * 2048, 4 * 64 * 2048]
    assert rows.flops.tolist() == [4 * 4 * 100 * 4096, 4 * 4 * (64 * 65 / 2) * 4096]

    medians = pd.DataFrame([{"batch_size": 4, "kv_cache_size": 99, "attn_decode_median_ms": 0.02}])
    assert importers.vidur(medians, "x", model()).size_bytes.tolist() == [4 * 100 * 4096]

    network = pd.DataFrame(
        [
            {"collective": "send_recv", **stats(send_recv=0.02), "num_workers": ranks, "devices_per_node": 2, "size": 2048}
            for ranks in (2, 4)
        ]
    )
    rows = importers.vidur(network, "x", None)
    assert rows[["operation", "size_bytes", "ranks", "time_us"]].values.tolist() == [["transfer", 2048, 2, 20.0]], "one node"


# ---- the commands


def call(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["calibrate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_device_from_a_table_to_a_law(tmp_path: Path) -> None:
    measurements.write(layers(roofline((5.0, 0.8, 0.7, 2.0), Form((64, 128)))).assign(source="a test"), tmp_path / "table.csv")
    arguments = [
        "device",
        tmp_path / "table.csv",
        "--like",
        "a100_80g_sxm",
        "--tiles",
        "64,128",
        "--out",
        tmp_path / "mine.yaml",
    ]
    found = json.loads(call(*arguments, "--report", tmp_path / "page", "--json"))
    names = ["mine.yaml", "a100_80g_sxm.md", "a100_80g_sxm.html", "a100_80g_sxm.svg"]
    assert [Path(path).name for path in found["written"]] == names
    assert found["errors"]["matmul"][0]["what"] == "layer"
    assert {one["by"] for one in found["left_out"]} == {"tensor_parallel", "shape"}
    mine = validate(Device, read(tmp_path / "mine.yaml"))
    assert mine.matmul["default"].fixed_us.source.startswith(
        "calibrated-on: a test; qkv, output, up, down, 1..2048 tokens; layer MAPE"
    )
    assert mine.attention == validate(Device, read(Catalogue().names("device")["a100_80g_sxm"])).attention, "not measured"
    law = CliRunner().invoke(
        main, ["law", "vanilla_llama_2_7b_a100", "--set", f"target.device={tmp_path / 'mine.yaml'}", "--json"]
    )
    assert law.exit_code == 0, law.output
    text = call(*arguments, "--quick")
    assert "layer, TP 2" in text
    assert "left out" not in text


def test_a_link_and_passes_are_written(tmp_path: Path) -> None:
    sizes = [
        {"operation": "all_reduce", "size_bytes": float(2**power), "ranks": 2, "time_us": 20 + 2**power / 2e5}
        for power in range(11, 27)
    ]
    measurements.write(measurements.table(sizes), tmp_path / "link.csv")
    assert "all_reduce, ring, above 1 MB" in call(
        "link", tmp_path / "link.csv", "--like", "nvlink_a100", "--out", tmp_path / "link.yaml"
    )
    ring = validate(Link, read(tmp_path / "link.yaml")).all_reduce.ring
    assert ring is not None
    assert (ring.fixed_us.value, ring.bandwidth_gb_s.value) == pytest.approx((20.0, 200.0), rel=0.01)

    measurements.write(pass_rows(), tmp_path / "passes.csv")
    assert "100 us per layer" in call(
        "passes", tmp_path / "passes.csv", "--like", "m2_ultra_gpu", "--out", tmp_path / "m2.yaml"
    )
    found = validate(Device, read(tmp_path / "m2.yaml"))
    assert found.small_operations.fixed_us.value == 100.0
    assert [point.ratio for point in found.matmul["q4_0"].width] == [1.0, 3.0]


VIDUR = ["--from", "vidur", "--source", "x", "--out", "x.csv"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["device", "own.csv", "--like", "a100"], "there is no device 'a100'; did you mean"),
        (["link", "own.csv", "--like", "nvlink_a100"], "measurements: hold no all_reduce or transfer"),
        (["device", "passes.csv", "--like", "a100_80g_sxm"], "measurements: hold none of matmul, attention, small_operations"),
        (["import", "own.csv", *VIDUR], "own.csv: holds no shapes; name the model with --model"),
        (["import", "own.csv", *VIDUR, "--model", "llama_3_1_8b"], "own.csv:1:1: attn_prefill_median_ms: is required"),
        (["device", "own.csv", "--like", "a100_80g_sxm", "--tiles", "64,16"], "expected ascending token counts"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_and_nothing_written(
    arguments: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measurements.write(layers(roofline((5.0, 0.8, 0.7, 2.0)), degrees=(1,)), tmp_path / "own.csv")
    measurements.write(pass_rows(), tmp_path / "passes.csv")
    result = CliRunner().invoke(main, ["calibrate", *arguments])
    assert result.exit_code == 2
    assert fault in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.csv", "passes.csv"]


def test_a_written_profile_says_its_numbers_in_a_page() -> None:
    document = read(Catalogue().names("device")["a100_80g_sxm"])
    rows = layers(roofline((5.0, 0.8, 0.7, 2.0)))
    found = profile.device(rows, document, validate(Device, document), Form(), left_out=False)
    assert found.data["matmul"]["default"]["fixed_us"]["value"] == pytest.approx(5.0, rel=0.02)
    assert found.layers is not None
    assert len(found.layers) == 2 * len(TOKENS)
    assert np.allclose(found.layers.predicted, found.layers.seconds, rtol=0.05)
