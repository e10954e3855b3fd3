"""Attention over latents (MLA) has curves of its own: priced by hand, imported, fitted, and beside
measured kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simulator.core.cost.device import Device
from simulator.core.cost.kernels import attention_timer, layer_products
from simulator.core.cost.mixer import Mixer
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.roofline import Attention, AttentionParts
from simulator.core.cost.rows import Rows
from simulator.core.quantities import replace_nested
from simulator.evidence.calibrate import attention, fit, importers, measurements, profile, quality
from simulator.evidence.calibrate.fit import Form
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.schema import validate
from simulator.scenario import load
from simulator.scenario.caveats import caveats
from simulator.scenario.uncertain.devices import slowed
from tests.test_calibrate import CARD, converted
from tests.test_formats import BLOCKS, DEVICE, SUM, nanoseconds, place

LATENTS = Mixer(
    kind="latent",
    projections=100,
    projected=200,
    value_width=100,
    output=100,
    cached=36,
    pair_flops=1_360,
    prompt_pair_flops=400,
)
"""Ten heads: keys and values of 36 and 32 in the width of a latent, of 12 and 8 where a prompt
widens it.
"""


def seconds(rows: Rows, **device: Any) -> Any:
    return attention_timer(place(device), LATENTS)(rows)


# ---- what they take


def test_the_curves_of_latents_price_them_and_nothing_else() -> None:
    """100 entries of 72 bytes; ten queries and outputs of 36 and 32 values, whose products are
    1,360 flops a pair.
    """
    parts = {"decode": {**SUM, "fixed_us": 7}, "prefill": {**SUM, "fixed_us": 9}}
    one, prompt = Rows.decode(1, 99), Rows.prefill(10)
    decode = 100 * 72 + 2 * 680 + 100 * 1_360
    prefill = 10 * 72 + 10 * 2 * 200 + 55 * 400
    # by the curves of heads, which add a nanosecond for their block
    assert seconds(one) == nanoseconds(decode + 1)
    assert seconds(prompt) == nanoseconds(prefill + 1_000)
    assert seconds(one, latent_attention=parts) == nanoseconds(decode + 7_000)
    assert seconds(prompt, latent_attention=parts) == nanoseconds(prefill + 9_000)
    heads = attention_timer(place())(one)
    assert attention_timer(place({"latent_attention": parts}))(one) == heads


def test_a_card_with_one_curve_widens_the_latents_of_a_prompt_too() -> None:
    assert seconds(Rows.prefill(10), attention=SUM) == nanoseconds(10 * 72 + 55 * 400)
    both = Rows.prefill(10) + Rows.decode(1, 99)
    assert seconds(both, attention=SUM) == nanoseconds(110 * 72 + 55 * 400 + 100 * 1_360)


def test_a_verification_over_latents_computes_for_each_of_its_rows() -> None:
    dear = {"decode": SUM, "prefill": SUM, "extra_row": {"value": 0.5}}
    rows = Rows.decode(3, 97)
    assert seconds(rows, latent_attention=dear) == nanoseconds(
        (100 * 72 + 3 * 2 * 680 + (98 + 99 + 100) * 1_360) * 2.0
    )


def test_a_tile_of_few_heads_makes_blocks_of_which_each_takes_its_time() -> None:
    """A head's queries and outputs are 1.9 times as wide as a latent: ten heads are 19 rows, three
    tiles of eight.
    """
    for tile, blocks in ((128, 1), (8, 3), (19, 1), (18, 2)):
        parts = {"decode": BLOCKS | {"tile_rows": tile, "splits": "none"}, "prefill": BLOCKS}
        taken = seconds(Rows.decode(1, 99), latent_attention=parts)
        assert taken == nanoseconds(100 * 72 + 2 * 680 + 100 * 1_360 + blocks + 100)


def test_what_a_verification_takes_over_latents_is_in_the_interval() -> None:
    loaded = load("mtp_deepseek_v3_8xh200")
    (wider,) = (
        change for name, change in slowed(loaded) if name == "h200_sxm, rows of a verification"
    )
    before, after = (one.scenario.target.device.latent_attention for one in (loaded, wider(loaded)))
    assert isinstance(before, Attention)
    assert isinstance(after, Attention)
    assert before.extra_row.value < after.extra_row.value < before.extra_row.high
    assert after.decode == before.decode


# ---- from tables


MLA = {
    "framework": "TRTLLM",
    "kernel_source": "default",
    "op_name": "mla_generation",
    "mla_dtype": "bfloat16",
}
MLA |= {
    "kv_cache_dtype": "bfloat16",
    "num_heads": 16,
    "batch_size": 2,
    "isl": 1,
    "tp_size": 8,
    "step": 99,
    "latency": 0.5,
}


def test_rows_over_latents_are_counted_in_their_width_and_prompts_in_that_of_heads(
    tmp_path: Path,
) -> None:
    prompt = MLA | {"op_name": "context_mla", "isl": 4, "step": 0}
    others = [
        MLA | {"kv_cache_dtype": "fp8"},
        prompt | {"framework": "SGLang"},
        prompt | {"isl": 1},
    ]
    rows, skipped = converted("aiconfigurator", [MLA, prompt, *others], tmp_path / "mla.csv")
    assert set(rows.operation) == {"latent_attention"}
    assert set(rows["shape"]) == {"16 heads"}
    rows = rows.set_index("part")
    assert rows.size_bytes.to_dict() == {"decode": 2 * 100 * 576 * 2, "prefill": 2 * 4 * 576 * 2}
    flops = {"decode": 2 * 100 * 2 * 16 * (576 + 512), "prefill": 2 * 10 * 2 * 16 * (192 + 128)}
    assert rows.flops.to_dict() == pytest.approx(flops)
    assert rows.kv_heads.tolist() == [1, 1]
    assert sum(skipped.values()) == len(others)
    assert skipped["8 bits in kernels that save no time with them"] == 1
    own = [one | {"kernel_source": "trtllm_mla"} for one in others[:2]]
    faster, skipped = converted("aiconfigurator", own, tmp_path / "faster.csv")
    assert dict(zip(faster.part, faster["format"], strict=True)) == {
        "decode": "fp8",
        "prefill": "fp16",
    }
    assert not sum(skipped.values())
    late = MLA | {"framework": "VLLM"}
    times = [
        late | {"latency": latency, "step": int(1000 * latency)} for latency in (0.1, 0.14, 0.16)
    ]
    eager, _ = converted("aiconfigurator", times, tmp_path / "eager.csv")
    assert eager.time_us.tolist() == [160], "the host's time"


def test_a_table_row_costs_what_a_layer_of_the_model_does() -> None:
    """Bytes, flops and blocks of an imported row are those by which DeepSeek-V3's mixer is priced,
    on 1 to 8 ranks.
    """
    v3 = Catalogue().names("model")["deepseek_v3"]
    model = validate(ModelSpec, Catalogue().content("model", v3))
    for card in ("h100_sxm", "l40s"):
        device = validate(Device, Catalogue().content("device", Catalogue().names("device")[card]))
        link = {
            "latency_us": 1,
            "bandwidth_gb_s": 1,
            "all_reduce": {"ring": {"fixed_us": 1, "bandwidth_gb_s": 1}},
        }
        for ranks in (1, 2, 8):
            on = place(
                model=model.model_dump(), tensor_parallel=ranks, link={"name": "wire", **link}
            )
            on = on.model_copy(update={"device": device})
            timer, heads = attention_timer(on, model.mixers["latent"]), 128 // ranks
            for part, rows in (
                ("decode", Rows.decode(1, 64 * 999, 64)),
                ("prefill", Rows.prefill(700)),
            ):
                width = heads * (544 if part == "decode" else 160)
                queries = (
                    importers.Queries(64, 1, 999)
                    if part == "decode"
                    else importers.Queries(1, 700, 0)
                )
                row = importers.attention(part, queries, importers.Heads(1, 1152, width), 1.0) | {
                    "operation": "latent_attention"
                }
                assert quality.predicted(device, measurements.table([row]))[0] == pytest.approx(
                    timer(rows), rel=1e-9
                )


def made_up(parts: AttentionParts) -> measurements.Table:
    """Rows of DeepSeek-V3's heads on 1 to 16 devices, as long as ``parts`` say."""
    rows = []
    for heads in (8, 16, 32, 64, 128):
        for part, width in (("decode", 544), ("prefill", 160)):
            asked = [
                importers.Queries(batch, 1, cached)
                for batch in (1, 4, 16, 64, 256)
                for cached in (63, 1023, 16383)
            ]
            if part == "prefill":
                asked = [
                    importers.Queries(batch, new, 0)
                    for batch in (1, 4, 16)
                    for new in (16, 64, 256, 1024, 4096)
                ]
            shape = {"operation": "latent_attention", "shape": f"{heads} heads"}
            rows += [
                importers.attention(part, one, importers.Heads(1, 1152, width * heads), 1.0) | shape
                for one in asked
            ]
    table = measurements.table(rows)
    timed = attention.with_queries(table)
    for part, operation in parts:
        some = timed.part == part
        timed.loc[some, "time_us"] = fit.seconds(CARD, operation, timed[some]) * 1e6
    return table.assign(time_us=timed.time_us)


NUMBERS = {"memory_efficiency": 0.8, "compute_efficiency": 0.5, "p_norm": 2.0, "key_us": 0.02}


def test_a_fit_to_latents_finds_the_compute_of_decode_and_leaves_what_it_cannot_see() -> None:
    decode = NUMBERS | {
        "fixed_us": 9.0,
        "head_us": 0.3,
        "reduction_us": 1.0,
        "splits": "all",
        "tile_rows": 31,
    }
    decode["compute_efficiency"] = 0.2
    prefill = NUMBERS | {"fixed_us": 7.0, "head_us": 0.05, "cached_ratio": 3.0, "packs": False}
    made = AttentionParts.model_validate({"decode": decode, "prefill": prefill})
    found = attention.in_parts(CARD, made_up(made), made)
    assert found.decode.compute_efficiency.value == pytest.approx(0.2, rel=0.05)
    assert found.decode.head_us.value == pytest.approx(0.3, rel=0.05)
    assert found.decode.tile_rows == 31
    assert "not told apart" in found.decode.regroup_us.source


def test_a_fit_writes_latents_beside_heads_and_says_what_was_not_measured() -> None:
    def number(value):
        return {"value": value, "source": "here", "confidence": "measured"}

    part = {key: number(value) for key, value in (NUMBERS | {"fixed_us": 5.0}).items()}
    data = DEVICE | {
        "name": "card",
        "attention": {"decode": part, "prefill": part},
        "peak_tflops": 500.0,
        "cache_mb": 100.0,
    }
    data |= {"memory_bandwidth_gb_s": 2000.0, "multiprocessors": 100.0}
    parts = AttentionParts.model_validate({"decode": part | {"splits": "all"}, "prefill": part})
    rows = made_up(parts)
    rows = rows[rows.part == "decode"]
    document = Document(data, {(): ("card.yaml", 1, 1)})
    found = profile.device(rows, document, validate(Device, document), Form())
    assert found.data["attention"] == data["attention"], "heads stay as they were"
    latent = found.data["latent_attention"]
    assert latent["decode"]["fixed_us"]["confidence"] == "calibrated"
    assert latent["prefill"]["fixed_us"]["confidence"] == "borrowed"
    assert "attention over keys and values of card" in latent["prefill"]["fixed_us"]["source"]
    again = Document(found.data, {(): ("card.yaml", 1, 1)})
    assert np.isfinite(quality.predicted(validate(Device, again), rows)).all()


# ---- beside measured kernels


OPS = Path(__file__).parents[2] / "shared" / "data" / "ops"
MEASURED = {
    "h100_sxm": ("h100_sxm", "generation_mla.sglang_0.5.14", 7.0),
    "h200_sxm": ("h200_sxm", "generation_mla.sglang_0.5.14", 8.0),
    "l40s": ("l40s", "generation_mla.sglang_0.5.14", 13.0),
    "l40s, prompts": ("l40s", "context_mla.trtllm_1.0.0", 12.0),
    "rtx_pro_6000": ("rtx_pro_6000_server", "generation_mla.sglang_0.5.14", 13.0),
    "rtx_pro_6000, prompts": ("rtx_pro_6000_server", "context_mla.trtllm_1.3.0rc20", 9.0),
}
"""Folder, table, and the mean error in % that the shipped curves stay below; 6.1, 7.0, 12.0, 10.8,
11.4, 7.5 are stated.
"""


@pytest.mark.full
@pytest.mark.skipif(not OPS.is_dir(), reason="the tables of kernels lie outside the repository")
@pytest.mark.parametrize("name", MEASURED)
def test_shipped_curves_of_latents_are_as_far_from_measured_kernels_as_is_stated(name: str) -> None:
    pytest.importorskip("pyarrow")
    folder, table, most = MEASURED[name]
    device = validate(
        Device, Catalogue().content("device", Catalogue().names("device")[name.partition(",")[0]])
    )
    rows = importers.imported(
        "aiconfigurator", OPS / folder / f"{table}.parquet", None, Counter()
    ).assign(source=table)
    rows = attention.uncached(device, importers.checked(rows, device, 0.0, Counter()))
    truth = fit.measured(rows)
    error, bare = (
        quality.percents(quality.predicted(device, rows, sheet), truth)[0]
        for sheet in (False, True)
    )
    heads = quality.percents(
        quality.predicted(device.model_copy(update={"latent_attention": None}), rows), truth
    )[0]
    assert error < most < bare
    assert error < heads


def small_us(scenario: str, *sets: str) -> float:
    """Return the us of the small operations of the last layer of a scenario's target."""
    target = load(scenario, [*sets, "requests.count=64"]).scenario.target
    assert target is not None
    *_, kind = target.model.kinds()
    return layer_products(target, 4, kind).small * 1e6


def test_what_runs_between_the_products_of_latents_is_a_time_of_the_engine() -> None:
    """7 us for a layer with latents, 20 more for one with an indexer; none for one without."""
    latents = ["target.engine.latent_us=7", "target.engine.index_us=20"]
    none = ["target.engine.latent_us=0", "target.engine.index_us=0"]
    for scenario, sets, beside_us in (
        ("autoregressive_deepseek_v3_8xh200", [], 7.0),
        ("autoregressive_deepseek_v3_8xh200", ["target.model=deepseek_v3_2"], 27.0),
        ("eagle3_qwen3_30b_a3b_h200", [], 0.0),
    ):
        longer_us = small_us(scenario, *latents, *sets) - small_us(scenario, *none, *sets)
        assert longer_us == pytest.approx(beside_us)


@pytest.mark.full
@pytest.mark.skipif(not OPS.is_dir(), reason="the tables of kernels lie outside the repository")
@pytest.mark.parametrize("name", ["h100_sxm", "h200_sxm"])
@pytest.mark.parametrize(
    ("kernels", "model", "most"), [("mla", "deepseek_v3", 8.5), ("dsa", "deepseek_v3_2", 15.0)]
)
def test_modules_of_latents_take_their_parts_and_what_runs_between_them(
    name: str, kernels: str, model: str, most: float
) -> None:
    """vLLM 0.24, fp8_block; half of a layer's small operations belong to its module."""
    pytest.importorskip("pyarrow")
    table = pd.read_parquet(OPS / name / f"{kernels}_generation_module.vllm_0.24.0.parquet")
    table = table[(table.gemm_type == "fp8_block") & (table.kv_cache_dtype == "bfloat16")]
    table = table[table.model.str.contains("DeepSeek")]
    table = table[table.step.between(512, 4096) & (table.batch_size <= 64)]
    sets = ["target.engine=vllm", f"target.model={model}"]
    whole = load("autoregressive_deepseek_v3_8xh200", sets).scenario.target
    assert whole is not None
    content = Catalogue().content("device", Catalogue().names("device")[name])
    kind = next(kind for kind in whole.model.kinds(0, 61) if kind.experts)
    off = []
    for ranks, heads in ((8, 16), (4, 32), (2, 64), (1, 128)):
        update = {"tensor_parallel": ranks, "device": validate(Device, content)}
        on = whole.model_copy(update=update)
        engine = on.engine
        between_s = (engine.latent_us.value + engine.index_us.value * (kernels == "dsa")) * 1e-6
        attend = attention_timer(on, kind.mixer)
        some = table[table.num_heads == heads]
        for n, cached, ms in zip(some.batch_size, some.step, some.latency, strict=True):
            parts = layer_products(on, int(n), kind)
            small_s = (parts.small - between_s) / 2.0 + between_s
            core_s = attend(Rows.decode(1, int(cached * n), int(n)))
            off.append((parts.qkv + parts.output + core_s + small_s) * 1e3 / ms - 1.0)
    assert 100.0 * np.abs(off).mean() < most


def test_a_run_says_only_what_no_curve_was_fitted_to() -> None:
    loaded = load("autoregressive_deepseek_v3_8xh200")
    bare = replace_nested(
        loaded.scenario, Device, lambda device: device.model_copy(update={"latent_attention": None})
    )
    for scenario, said in ((loaded.scenario, 0), (bare, 2)):  # dense layers, and those with experts
        notes = caveats(replace(loaded, scenario=scenario), loaded.acceptance())
        assert sum("timed by other kernels" in note for note in notes) == said
