"""A mixture's experts: how many a pass reads, what they take, how ranks share them, and the fit to
measured times.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError
from scipy.optimize import least_squares

from simulator.core.acceptance.routing import experts_read
from simulator.core.cost.collectives import Exchange
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import all_reduce_time, busiest, exchange_time, experts_time
from simulator.core.cost.model import Experts
from simulator.core.cost.rows import Rows
from simulator.core.cost.stored.mixes import published
from simulator.core.faults import BadInput
from simulator.evidence.calibrate import experts as kernels, importers, measurements, quality
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read as read_trace
from simulator.scenario import load
from simulator.scenario.caveats import caveats
from simulator.scenario.evaluate import run
from simulator.scenario.routing import fitted_routing
from simulator.scenario.uncertain.devices import slowed
from simulator.studies.batches import chance_for, study as study_batches
from tests.test_calibrate import DEVICE as SHEET, converted
from tests.test_cost import DEVICE, ENGINE, LINK, MODEL, place

ROUTERS = {
    "GLM-4.7-Flash": (64, 4, 2, 6.972),
    "Laguna XS 2.1, 8 rows": (256, 8, 8, 39.4),
    "Laguna XS 2.1, 15 rows": (256, 8, 15, 58.9),
    "GLM-5.3-Flash": (288, 8, 8, 38.0),
}
"""Routed experts, those of a row, consecutive rows, and experts read (mlx-lm#1485, lucebox#501,
GLM-5.3-Flash-EXL3#239).
"""
HARD = {"fixed_us": 0, "memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 1000}
BESIDE = {"expert_us": 2, "width_us": 512, "pair_traffic_ratio": 0}


def numbers(**given: Any) -> dict[str, Any]:
    return {
        key: value if isinstance(value, list) else {"value": value} for key, value in given.items()
    }


def mixture(routed: int, per_token: int, **more: float) -> Experts:
    return Experts.model_validate(
        {"routed": routed, "per_token": per_token, "intermediate_size": 50} | numbers(**more)
    )


def on(ranks: int = 1, **changes: Any) -> Any:
    """Four experts of 50 behind a width of 100, of which two serve a row; bytes alone take time, 1
    ns each.
    """
    model = {
        **MODEL,
        "experts": {
            "routed": 4,
            "per_token": 2,
            "intermediate_size": 50,
            "popularity": {"value": 0.0},
        },
    }
    device = {**DEVICE, "experts": {"default": numbers(**HARD, **BESIDE) | {"tile_tokens": [16]}}}
    return place(
        **{
            "model": model,
            "device": device,
            "tensor_parallel": ranks,
            "link": LINK if ranks > 1 else None,
        }
        | changes
    )


# ---- how many are read


@given(st.integers(1, 512), st.data())
def test_a_union_lies_between_those_of_one_row_and_all(routed: int, data: st.DataObject) -> None:
    experts = mixture(
        routed, data.draw(st.integers(1, routed)), popularity=data.draw(st.floats(0, 0.5))
    )
    rows = sorted(data.draw(st.lists(st.floats(1, 1e5), min_size=2)))
    touched = [experts.touched(count) for count in (1.0, *rows)]
    assert touched[0] == pytest.approx(experts.per_token, rel=1e-9)
    assert touched == sorted(touched) or np.diff(touched).min() > -1e-7 * routed
    assert touched[-1] <= routed * (1 + 1e-12)


def test_all_experts_are_read_in_the_end_but_popular_ones_first() -> None:
    even, uneven = (mixture(64, 4, popularity=value) for value in (0.0, 0.1))
    assert even.touched(1e4) == pytest.approx(64)
    assert uneven.touched(1e6) == pytest.approx(64, rel=0.05)
    assert uneven.touched(8) < even.touched(8) < 32
    assert even.touched(2) == 4 + 4 * (1 - 4 / 64)
    assert mixture(4, 4).touched(1) == 4


def test_rows_of_a_window_route_alike_and_those_of_requests_do_not() -> None:
    experts = mixture(64, 4, window_exponent=0.5)
    assert experts.independent(Rows.decode(1, 10)) == 1
    assert experts.independent(Rows.decode(4, 10)) == 2
    assert experts.independent(Rows.decode(4, 30, sequences=3)) == 6
    assert experts.independent(Rows.decode(1, 30, sequences=12)) == 12
    assert experts.independent(Rows.decode(4, 30, sequences=3) + Rows.prefill(100)) == 16
    for field, value in (("window_exponent", 1.1), ("popularity", 1.0)):
        with pytest.raises(ValidationError, match="at most 1 and a popularity below 1"):
            mixture(4, 2, **{field: value})


def predicted(of: tuple[float, float], routed: int, per_token: int, rows: int) -> float:
    experts = mixture(routed, per_token, window_exponent=min(1.0, of[0]), popularity=of[1])
    return experts.touched(experts.independent(Rows.decode(rows, 0)))


@pytest.mark.parametrize("left_out", ROUTERS)
def test_three_routers_predict_the_fourth_within_10_per_cent(left_out: str) -> None:
    """5.3 % at worst; independent routing is 11, 46, 65 and 53 % too high."""
    others = [router for name, router in ROUTERS.items() if name != left_out]

    def error(numbers: Any) -> list[float]:
        return [float(np.log(predicted(numbers, *shape) / read)) for *shape, read in others]

    fitted = least_squares(error, (0.8, 0.05), bounds=((0.3, 0.0), (1.0, 0.5)), diff_step=1e-4).x
    *shape, read = ROUTERS[left_out]
    assert abs(predicted(tuple(fitted), *shape) / read - 1) < 0.1
    assert predicted((1.0, 0.0), *shape) / read - 1 > 0.11


def test_the_numbers_of_a_model_that_says_nothing_are_those_of_the_routers() -> None:
    for routed, per_token, rows, read in ROUTERS.values():
        experts = mixture(routed, per_token)
        assert experts.touched(experts.independent(Rows.decode(rows, 0))) == pytest.approx(
            read, rel=0.05
        )
    assert (experts.window_exponent.confidence, experts.popularity.confidence) == (
        "assumed",
        "assumed",
    )
    of_four = [predicted((0.837, 0.042), 8 * ratio, 8, 4) / 8 for ratio in (4, 10, 16, 48)]
    assert of_four == pytest.approx([2.32, 2.74, 2.85, 2.98], abs=0.02), (
        "Cohere: 2.5, E not published"
    )


# ---- what they take


def test_the_time_of_experts_by_hand() -> None:
    """Three rows read 3.5 of 15,000 weights at two bytes; 2 us an expert, and 512 us for 1,024 of
    the width of 150.

    The router is a product with 400 weights and 104 inputs and outputs of each row, whole on every
    device.
    """
    router = 400 * 2e-3 + 3 * 104 * 2e-3
    assert experts_time(on(), 3, 3.5) == pytest.approx(
        (3.5 * 30_000 * 1e-3 + 3.5 * 2 + 150 * 0.5 + router) * 1e-6
    )
    assert experts_time(on(), 3, 2) == pytest.approx(
        (2 * 30_000 * 1e-3 + 2 * 2 + 150 * 0.5 + router) * 1e-6
    )
    assert experts_time(on(2), 3, 3.5) == pytest.approx(
        (3.5 * 15_000 * 1e-3 + 3.5 * 2 + 125 * 0.5 + router) * 1e-6
    )


@given(st.integers(1, 40), st.integers(1, 40))
def test_bytes_read_lie_between_those_of_one_token_and_of_all_experts(
    rows: int, requests: int
) -> None:
    place = on()
    tokens = rows * requests
    taken = experts_time(place, tokens, place.model.experts_read(Rows.decode(rows, 0, requests)))
    read = (taken * 1e6 - 75 - 400 * 2e-3 - tokens * 104 * 2e-3) / (30 + 2)
    assert 2 * (1 - 1e-9) <= read <= 4 * (1 + 1e-9)


def test_whole_experts_fall_on_ranks_by_chance_and_the_busiest_is_waited_for() -> None:
    assert busiest(8, 1) == 8
    assert busiest(8, 2, of=8) == 4, "all of them are read, half on each rank"
    assert busiest(8, 4) == pytest.approx(2 + np.sqrt(2 * np.log(4) * 2))
    assert busiest(1, 8) == pytest.approx(min(1, 1 / 8 + np.sqrt(2 * np.log(8) / 8)))
    assert experts_time(on(2, experts="whole"), 1000, 4) == pytest.approx(
        (2 * 30 + 2 * 2 + 75 + 0.8 + 208) * 1e-6
    )


def test_the_busiest_rank_may_take_longer_than_chance_has_it() -> None:
    """Everything but the router, which runs whole on every rank; slices wait for nobody."""
    twice = {"engine": {**ENGINE, "busiest_rank_ratio": 2}}
    assert experts_time(on(2, experts="whole", **twice), 1000, 4) == pytest.approx(
        (2 * (2 * 30 + 2 * 2 + 75) + 0.8 + 208) * 1e-6
    )
    assert experts_time(on(2, **twice), 1000, 4) == experts_time(on(2), 1000, 4)


def test_rows_are_sent_to_their_experts_and_back() -> None:
    """Each of two ranks sends 2 of 3 rows to two experts: 400 bytes of which half stay, then
    800.
    """
    one_way = {"fixed_us": {"value": 3}, "bandwidth_gb_s": {"value": 1e-3}}
    link = {**LINK, "all_to_all": {"dispatch": one_way, "combine": one_way}}
    sent = on(2, experts="dispatched", link=link)
    assert exchange_time(sent, 3) == pytest.approx(
        (3 + 200 + 3 + 400) * 1e-6 - all_reduce_time(sent, 3)
    )
    assert exchange_time(on(2, experts="whole", link=link), 3) == 0.0
    with pytest.raises(ValidationError, match="needs a link with all_to_all"):
        on(2, experts="dispatched")
    assert Exchange.model_validate(one_way).seconds(1000, 1) == pytest.approx(3e-6)


@pytest.mark.parametrize(
    "changes",
    [[], ["target.experts=whole"], ["target.experts=dispatched"], ["requests.concurrency=3"]],
)
def test_law_replay_and_simulation_agree_with_experts(changes: list[str]) -> None:
    four = ["target.tensor_parallel=4", "target.link=nvlink_h100"]
    result = run(load("eagle3_qwen3_30b_a3b_h200", [*four, "requests.count=6", *changes]))
    assert result.agreement.gap == pytest.approx(0.0, abs=1e-9)
    assert not result.agreement.disagreement


def test_routing_that_is_not_known_enters_the_interval() -> None:
    names = [name for name, _ in slowed(load("eagle3_qwen3_30b_a3b_h200"))]
    assert names[-2:] == ["experts read, window_exponent", "experts read, popularity"]
    dense = [name for name, _ in slowed(load("vanilla_qwen3_32b_a100"))]
    assert not [name for name in dense if name.startswith("experts")]


# ---- the fit


def test_experts_read_by_the_rule_of_the_tables() -> None:
    """As the tables' README counts them; 40 draws of a power law differ by a few per cent."""
    balanced = [kernels.experts_read(tokens, 512, 10, "balanced") for tokens in (1, 16, 32, 64)]
    assert balanced == [10, 160, 316, 512]
    drawn = [
        kernels.experts_read(tokens, 128, 8, "power_law_1.2")
        for tokens in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    assert drawn == pytest.approx([8.0, 16.0, 28.5, 43.3, 59.3, 106.6, 119.4, 125.8], rel=0.04)


MOE = {
    "framework": "VLLM",
    "version": "0.24.0",
    "device": "card",
    "kernel_source": "triton",
    "moe_dtype": "bfloat16",
}
MOE |= {
    "hidden_size": 2048,
    "inter_size": 768,
    "topk": 8,
    "num_experts": 128,
    "moe_tp_size": 1,
    "moe_ep_size": 1,
}
MOE |= {"distribution": "balanced", "num_tokens": 4, "latency": 0.3}


def test_a_row_of_experts_counts_those_that_were_read(tmp_path: Path) -> None:
    odd = [
        {"moe_ep_size": 2},
        {"num_tokens": 4096},
        {"moe_tp_size": 8},
        {"num_experts": 512, "num_tokens": 32},
    ]
    odd += [
        {"hidden_size": 7168, "num_experts": 256},
        {"moe_dtype": "fp8", "device": "NVIDIA H100"},
    ]
    gateless = {"hidden_size": 2688, "inter_size": 1856, "topk": 6}
    made = [
        MOE,
        MOE | gateless,
        MOE | gateless | {"version": "0.14.0"},
        *(MOE | change for change in odd),
    ]
    rows, skipped = converted("aiconfigurator", made, tmp_path / "moe.csv")
    assert sum(skipped.values()) == len(odd)
    weights = {"2048x768, 8 of 128": 3 * 2048 * 768, "2688x1856, 6 of 128": 2 * 2688 * 1856}
    for row in rows[:2].itertuples():
        read = 32 if row.pairs == 32 else 24
        assert row.experts == read
        assert row.flops in (
            2 * row.pairs * weights[row.shape],
            2 * row.pairs * weights[row.shape] * 1.5,
        )
        assert row.size_bytes == pytest.approx(row.flops / row.pairs * read)
    assert sorted(rows.flops / rows.pairs / 2) == [3 * 2048 * 768, 2 * 2688 * 1856, 3 * 2688 * 1856]
    assert set(importers.checked(rows, None, 300.0, importers.Skipped()).left_out) == {"cached", ""}


def test_rows_sent_to_experts_become_two_directions(tmp_path: Path) -> None:
    made = {"node_num": 1, "hidden_size": 2048, "num_token": 4, "num_topk": 8, "num_experts": 128}
    made |= {"dispatch_avg_t_us": 10.0, "combine_avg_t_us": 12.0}
    rows, _ = converted("aiconfigurator", [made], tmp_path / "deepep.csv")
    assert rows[["operation", "size_bytes", "ranks", "time_us"]].values.tolist() == [
        ["dispatch", 4 * 8 * 2048, 8, 10.0],
        ["combine", 4 * 8 * 2048 * 2, 8, 12.0],
    ]


def made_up() -> pd.DataFrame:
    """Times of three models by a curve that is known: 10 us, 0.1 us an expert, 2 us for 1,024 of
    the widths, 80 %.
    """
    rows = []
    for hidden, inner, routed, per_token in (
        (2048, 768, 128, 8),
        (4096, 1536, 256, 8),
        (4096, 14336, 8, 2),
    ):
        for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 512):
            given = {
                "tensor_parallel": 1,
                "hidden": hidden,
                "inner": inner,
                "routed": routed,
                "per_token": per_token,
            }
            given |= {"tokens": tokens, "distribution": "balanced", "format": "fp16", "matrices": 3}
            rows += list(importers.ROWS["experts"]({**given, "both": 1.0}))
    table = measurements.table(rows)
    bandwidth = 0.8 * SHEET.memory_bandwidth_gb_s.value * 1e3
    time_us = 10 + 0.1 * table.experts + 2 * table.width / 1024 + table.size_bytes / bandwidth
    return table.assign(time_us=time_us)


@pytest.mark.full
def test_a_fit_returns_the_numbers_that_made_the_times() -> None:
    rows = made_up()
    fast = SHEET.model_copy(
        update={"peak_tflops": SHEET.peak_tflops.model_copy(update={"value": 1e6})}
    )
    fitted = kernels.fitted(fast, rows)
    shown = (fitted.memory_efficiency.value, fitted.expert_us.value, fitted.width_us.value)
    assert shown == pytest.approx((0.8, 0.1, 2.0), rel=0.1)
    assert quality.growth_bias(fast, fitted, rows) == pytest.approx(0.0, abs=1.0)
    assert quality.growth_bias(fast, fitted, rows[rows.tokens > 1]) is None
    errors = quality.left_out(fast, rows, None, fitted, "shape")
    assert max(error.mape_percent[0] for error in errors) < 5


# ---- whether it pays


def test_a_verdict_and_the_acceptance_that_breaks_even() -> None:
    """A chain of 2 with 0.5 each keeps 1.75 tokens a step; a step of 1.75 plain ones breaks even
    there.
    """
    assert chance_for(1.75, 2) == pytest.approx(0.5)
    assert chance_for(3.31, 2) == pytest.approx(1.1), "no chance pays"
    assert chance_for(0.9, 3) == 0.0
    (study,) = study_batches(
        [load("eagle3_qwen3_30b_a3b_h200", ["requests.count=4"])], (1, 2), (1,)
    ).studies
    simulated, by_law = study.points
    assert (by_law.verdict, by_law.break_even, simulated.verdict) == ("", None, "helps")
    best, least, most = simulated.break_even or (0.0, 0.0, 0.0)
    even = run(
        load("eagle3_qwen3_30b_a3b_h200", [f"acceptance={{rate: {best}}}", "requests.count=4"])
    )
    assert least < best < most
    a_token_s = even.law.step_s / even.law.verified_per_step  # ends of outputs apart
    assert a_token_s == pytest.approx(simulated.baseline_tpot_ms / 1e3, rel=1e-9)


# ---- recorded routing

RECORDED = Catalogue().names("trace")["small_mixture_sampled"]


def error_percent(experts: Experts, read: dict[tuple[int, int], float]) -> Any:
    by_law = [
        experts.touched(experts.independent(Rows(rows * count, sequences=count)))
        for rows, count in read
    ]
    return 100 * (np.array(by_law) / list(read.values()) - 1)


def test_experts_read_are_counted_as_by_hand() -> None:
    trace = read_trace(RECORDED)
    taken, read = trace.extra["experts.taken"], experts_read(trace)
    assert read[1, 1] == 2
    pairs = [
        len({*taken[layer, :, at], *taken[layer, :, at + 1]})
        for layer in range(len(taken))
        for first, end in pairwise(trace.offsets)
        for at in range(first, end - 1)
    ]
    assert read[2, 1] == pytest.approx(np.mean(pairs), rel=1e-12)


@pytest.mark.full
def test_the_law_of_the_union_holds_on_layers_and_flavours_left_out() -> None:
    """0.6 % where all are fitted; left out 2.6 % (layers; the last one 6.1) and 2.5 % (flavours);
    independent 6.5 and 11.4.
    """
    trace, mixture = read_trace(RECORDED), Experts(routed=16, per_token=2, intermediate_size=1)
    every = experts_read(trace)
    assert abs(error_percent(fitted_routing(mixture, every, "all"), every)).mean() < 1
    for parts in (
        [{"layers": [layer]} for layer in range(6)],
        [{"flavours": (name,)} for name in trace.flavours],
    ):
        counts: list[Any] = [experts_read(trace, **part) for part in parts]
        errors, alone = [], []
        for out, count in enumerate(counts):
            others = [read for at, read in enumerate(counts) if at != out]
            mean = {size: float(np.mean([read[size] for read in others])) for size in count}
            errors.append(abs(error_percent(fitted_routing(mixture, mean, "others"), count)).mean())
            alone.append(abs(error_percent(mixture_alone(), count)).mean())
        assert np.mean(errors) < 5
        assert np.median(errors) < 0.5 * np.median(alone)
        assert max(errors) < 8


@pytest.mark.full
def test_layers_beside_one_another_route_alike() -> None:
    """Each layer by the mean of its neighbours: 4.0 % at worst, the last one."""
    trace, mixture = read_trace(RECORDED), Experts(routed=16, per_token=2, intermediate_size=1)
    counts = [experts_read(trace, layers=[layer]) for layer in range(6)]
    for layer, count in enumerate(counts):
        beside = [counts[other] for other in (layer - 1, layer + 1) if 0 <= other < len(counts)]
        mean = {size: float(np.mean([read[size] for read in beside])) for size in count}
        assert abs(error_percent(fitted_routing(mixture, mean, "neighbours"), count)).mean() < 5


def mixture_alone() -> Experts:
    return mixture(16, 2, window_exponent=1.0, popularity=0.0)


def test_a_target_that_was_recorded_routes_as_recorded() -> None:
    draft = "draft={model: small_mixture, machine: h200, device: h200_sxm, engine: vllm}"
    own = [
        "target.model=small_mixture",
        "strategy={name: vanilla_sd, gamma: 3}",
        draft,
        "requests.count=8",
    ]
    recorded = load(
        "eagle3_qwen3_30b_a3b_h200", [*own, "acceptance={trace: small_mixture_sampled}"]
    )
    experts = recorded.scenario.target.model.experts
    assert experts is not None
    assert (experts.window_exponent.value, experts.popularity.value) == pytest.approx(
        (0.851, 0.0138), rel=0.01
    )
    assert experts.window_exponent.confidence == "calibrated"
    stated = load("eagle3_qwen3_30b_a3b_h200", [*own, "acceptance={rate: 0.7}"])
    assert stated.scenario.target.model.experts.window_exponent.confidence == "assumed"
    result = run(recorded)
    assert result.agreement.gap == pytest.approx(0.0, abs=1e-9)


# ---- formats of their own


def test_experts_in_a_format_of_their_own_by_hand() -> None:
    """Experts in 8 bits beside 16: half of their bytes, 1.5 x 15,000 ns for each read; router and
    dense products as before.
    """
    both, own = on(), on(expert_weights="int8_wo")
    beside = 3.5 * 2 + 75 + 400 * 2e-3 + 3 * 104 * 2e-3
    assert experts_time(own, 3, 3.5) == pytest.approx((3.5 * 15_000 * 1e-3 + beside) * 1e-6)
    assert experts_time(both, 3, 3.5) - experts_time(own, 3, 3.5) == pytest.approx(3.5 * 15e-6)
    assert both.weights_gb() - own.weights_gb() == pytest.approx(own.model.routed_weights / 1e9)
    experts = {**own.model.experts.model_dump(), "shared": 1}
    shared = on(model={**MODEL, "experts": experts}, expert_weights="int8_wo")
    with_it, without = (
        HardwareCost(where).target(Rows.decode(1, 9)).wall_s for where in (shared, own)
    )
    assert with_it - without == pytest.approx(4 * (15_000 * 2 + 350 * 2) * 1e-9, rel=1e-6), (
        "a shared expert stays in 16 bits"
    )


def test_gpt_oss_is_as_large_as_it_was_published() -> None:
    target = load("eagle3_gpt_oss_120b_h100").scenario.target
    assert target
    assert (target.weights, target.expert_weights) == (
        target.model.weight_format,
        target.model.expert_format,
    )
    published_gb = published(target.model)["published_weight_gb"]
    assert target.weights_gb() == pytest.approx(published_gb, rel=1e-12)


def test_a_format_that_the_device_does_not_compute_in_is_refused_by_name() -> None:
    with pytest.raises(
        BadInput, match=r"target.expert_weights: h100_sxm has no nvfp4 arithmetic; it has fp16, fp8"
    ):
        load("eagle3_gpt_oss_120b_h100", ["target.expert_weights=nvfp4"])


def test_experts_without_a_curve_of_their_format_are_named() -> None:
    loaded = load("eagle3_gpt_oss_120b_h100", ["target.expert_weights=q4_0"])
    notes = list(caveats(loaded, loaded.acceptance()))
    assert any("h100_sxm has no curve for experts in q4_0 of the target" in note for note in notes)
    shipped = load("eagle3_gpt_oss_120b_h100")
    assert not any("experts in" in note for note in caveats(shipped, shipped.acceptance()))


def test_break_even_of_a_look_up_is_about_the_steps_that_match() -> None:
    """At the chance that breaks even, the other steps still keep one token."""
    changes = ["strategy.matched.value=0.5", "requests.count=4"]
    (study,) = study_batches([load("ngram_qwen3_30b_a3b_h200", changes)], (1,), (1,)).studies
    (point,) = study.points
    assert point.unmatched == pytest.approx(0.5)
    assert point.break_even
    best, least, most = point.break_even
    even = run(load("ngram_qwen3_30b_a3b_h200", [*changes, f"acceptance.rate={best}"]))
    a_token_s = even.law.step_s / even.law.verified_per_step  # ends of outputs apart
    assert a_token_s == pytest.approx(point.baseline_tpot_ms / 1e3, rel=1e-9)
    assert point.times_interval and point.speedup_interval
    assert point.times_interval.low < point.speedup < point.times_interval.high
    times, whole = point.times_interval, point.speedup_interval
    assert whole.high / whole.low > times.high / times.low, "acceptance is in doubt, too"
    assert least < best < most
