"""What nobody measured: rows beyond a kernel's curve, drafts over several ranks, and host times
that another card lent.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import products
from simulator.core.cost.rows import Rows
from simulator.scenario import load
from simulator.scenario.evaluate import baseline, law, run
from simulator.scenario.uncertain.doubts import about_rows, numbers_of
from simulator.scenario.uncertain.draws import drawn
from simulator.scenario.uncertain.footings import footings, rests_on
from simulator.scenario.uncertain.intervals import doubt_of, plain_step_by_law, run_with_interval
from tests.test_cost import DEVICE, ENGINE, LINK, MODEL, place

# ---- rows beyond what was measured

ROWS: dict[str, Any] = {"rows": {"quantised": {"row": 0.25, "most": 5}}}
"""Two rows take 1.25 of one, five twice as long."""


def ratio(n: int, prompts: int = 0, **changes: Any) -> float:
    """Return the time of a product of ``n`` rows relative to one row, where nothing but its weights
    counts.
    """
    slow = {**DEVICE, "memory_bandwidth_gb_s": 1e-3}
    on = place(engine={**ENGINE, **ROWS, **changes}, weights="q4_0", device=slow)

    def seconds(rows: float, prompt_rows: float) -> float:
        product = products(on, "blocks", None, prompt_rows)
        return product.timed(*product.work(0.0, 0.0, rows, 1e6))

    return seconds(n, prompts) / seconds(1, 0)


@pytest.mark.parametrize(("n", "expected"), [(1, 1.0), (5, 2.0), (6, 2.25), (13, 4.0), (37, 10.0)])
def test_rows_beyond_those_measured_cost_on_in_a_line(n: int, expected: float) -> None:
    assert ratio(n, further_rows=1) == pytest.approx(expected, rel=1e-6)
    assert ratio(n, further_rows=2) == pytest.approx(
        max(0.0, 2 * (expected - 2.0)) + min(2.0, expected), rel=1e-6
    )
    assert ratio(n) == ratio(n, further_rows=0) == pytest.approx(min(2.0, expected), rel=1e-6)


@given(st.integers(0, 300), st.integers(1, 60))
def test_rows_of_prompts_are_multiplied_by_kernels_for_matrices(prompts: int, rows: int) -> None:
    """A pass takes as long as its rows of verifications alone would, or as the kernels beyond;
    prompts add no more.
    """
    alone = ratio(rows, further_rows=1)
    both = ratio(rows + prompts, prompts, further_rows=1)
    assert both == pytest.approx(max(alone, ratio(rows + prompts)), rel=1e-6)
    assert both <= ratio(rows + prompts, 0, further_rows=1) * (1 + 1e-12)


LLAMA_CPP = [
    *(
        "target.device=rtx_3090",
        "target.weights=q4_k",
        "target.engine=llama_cpp_cuda",
        "target.device.memory_gb=200",
    ),
    *(
        "draft.device=rtx_3090",
        "draft.weights=q4_k",
        "draft.engine=llama_cpp_cuda",
        "strategy.gamma=3",
    ),
]


def clients(count: int) -> list[str]:
    return [
        *LLAMA_CPP,
        (
            f"requests={{count: {max(6, count)}, concurrency: {count}, prompt_tokens: 128, "
            f"output_tokens: 32}}"
        ),
    ]


def speedup(count: int) -> float:
    loaded = load("vanilla_qwen3_32b_a100", clients(count))
    return float(
        baseline(loaded.scenario).tpot_s / law(loaded.scenario, loaded.acceptance()).tpot_s
    )


def test_speculation_in_llama_cpp_gains_less_the_more_clients_there_are() -> None:
    gains = [speedup(count) for count in (1, 2, 4, 8, 16, 32)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 1.0


def test_what_further_rows_cost_is_said_with_a_range_that_holds_no_gain() -> None:
    """At four clients a gain of 1.00 was measured."""
    result, interval = run_with_interval(load("vanilla_qwen3_32b_a100", clients(4)))
    assert interval.holds(1.0)
    assert interval.low < 0.9
    words = (
        "products of more than 8 rows in q4_k were not measured under llama_cpp_cuda: up to 16 "
        "of the target cost on in a line"
    )
    assert any(caution.startswith(words) for caution in result.cautions)
    assert "largest uncertainty: target.engine.further_rows (assumed); " in result.rests_on


@pytest.mark.parametrize("weights", ["q8_0", "q4_k"])
def test_curves_of_an_apple_gpu_go_on_in_a_line_too(weights: str) -> None:
    sets = [
        f"target.weights={weights}",
        "target.tensor_parallel=1",
        "target.device.memory_gb=900",
        "requests={count: 64, concurrency: 64}",
    ]
    on = load("autoregressive_qwen3_32b_m2_ultra", sets).scenario.cost
    assert isinstance(on, HardwareCost)
    took = [on.target(Rows.decode(1, 100 * n, n)).wall_s for n in (8, 16, 24, 32)]
    steps = [after - before for before, after in pairwise(took)]
    assert min(steps) > 0.05 * took[0]
    assert max(steps) == pytest.approx(min(steps), rel=0.2)


def test_rows_cost_on_in_a_line_without_a_range() -> None:
    sets = [
        *("target.device=rtx_3090", "target.engine=llama_cpp_cuda", "target.weights=q4_k"),
        *("target.model=qwen3_8b", "target.tensor_parallel=1", "requests.concurrency=64"),
        *("requests.count=64", "target.engine.further_rows=1"),
    ]
    over = load("autoregressive_qwen3_32b_a100", sets).scenario
    assert any("(1 to 1 times as steep as before)" in words for words in about_rows(over))


def test_numbers_with_one_value_and_source_but_other_ranges_are_two() -> None:
    same = {"value": 0.0, "source": "assumed"}
    engine = {
        "verified_row_us": {**same, "low": 0.0, "high": 20.0},
        "sharded_pass_us": {**same, "low": 0.0, "high": 980.0},
    }
    sets = [f"target.engine.{name}={value}" for name, value in engine.items()]
    scenario = load("vanilla_qwen3_32b_a100", [*sets, "target.engine.name=mine"]).scenario
    names = numbers_of(scenario)
    highs = {name: number.high for name, number in names.items() if name.endswith(tuple(engine))}
    assert highs["target.engine.verified_row_us"] == 20.0
    assert highs["target.engine.sharded_pass_us"] == 980.0


# ---- drafts over several ranks


def test_a_pass_of_a_draft_over_several_ranks_takes_as_much_longer_as_is_stated() -> None:
    sharded = {"tensor_parallel": 2, "link": LINK, "engine": {**ENGINE, "sharded_pass_us": 3e6}}
    plain = {"tensor_parallel": 2, "link": LINK, "engine": ENGINE}
    one, prompt = Rows.decode(1, 99), Rows.prefill(10)

    def draft(rows: Rows, **changes: Any) -> float:
        return float(HardwareCost(place(), place(**changes)).draft(rows).wall_s)

    assert draft(one, **sharded) == pytest.approx(3 + draft(one, **plain))
    assert draft(prompt, **sharded) == draft(prompt, **plain)
    assert draft(one, **{**sharded, "tensor_parallel": 1}) == draft(
        one, **{**plain, "tensor_parallel": 1}
    )
    assert HardwareCost(place(**sharded)).target(one) == HardwareCost(place(**plain)).target(one)


def test_the_ratio_of_before_is_read_where_it_changes_nothing_and_else_replaced() -> None:
    for nothing in (1, {"value": 1.0, "low": 1.0, "high": 8.0}):
        assert place(engine={**ENGINE, "sharded_draft_ratio": nothing}) == place(engine=ENGINE)
    with pytest.raises(ValidationError, match="state sharded_pass_us, by how many us"):
        place(engine={**ENGINE, "sharded_draft_ratio": 3})


ON_H100 = [
    *(
        "target.device=h100_sxm",
        "draft.device=h100_sxm",
        "target.engine=vllm",
        "draft.engine=vllm",
        "target.link=nvlink_h100",
    ),
    *(
        "draft.link=nvlink_h100",
        "target.tensor_parallel=4",
        "strategy.drafter={name: autoregressive}",
        "strategy.gamma=3",
    ),
    *("draft.model=qwen3_0_6b", "requests.count=6"),
]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_draft_over_several_ranks_is_said_to_be_slower_than_computed(ranks: int) -> None:
    """Its interval holds the speed-up with the longest passes that are possible; that of one rank
    does not.
    """
    unmeasured = ["target.engine=tensorrt_llm", "draft.engine=tensorrt_llm"]
    sets = [*ON_H100, *unmeasured]
    result, wide = run_with_interval(
        load("vanilla_qwen3_32b_a100", [*sets, f"draft.tensor_parallel={ranks}"])
    )
    step = sum(phase.wall_s for phase in next(iter(result.phases.values())).values())
    assert wide.holds(result.speedup * step / (step + 3 * 1.5e-3))
    words = f"each pass of the draft over {ranks} ranks may take up to 1.5 ms longer than computed"
    assert any(caution.startswith(words) for caution in result.cautions)
    words = "a speculative step over 4 ranks may take up to 5 ms longer than computed: nobody"
    assert any(caution.startswith(words) for caution in result.cautions)
    assert "sharded_pass_us (assumed, " in result.rests_on
    alone, _ = run_with_interval(load("vanilla_qwen3_32b_a100", [*sets, "draft.tensor_parallel=1"]))
    assert not any("each pass of the draft" in caution for caution in alone.cautions)


# ---- mixtures that no single device holds


EXPERTS = {"routed": 4, "per_token": 2, "intermediate_size": 50}
TOO_SMALL = {"device": {**DEVICE, "memory_gb": 1e-4}}


def test_a_mixture_that_no_device_holds_takes_as_many_times_as_long_as_is_stated() -> None:
    slow = {"engine": {**ENGINE, "large_mixture_ratio": 3}}
    mixture = {"model": {**MODEL, "experts": EXPERTS}}
    rows, prompt = Rows.decode(1, 99), Rows.prefill(10)

    def target(rows: Rows, **changes: Any) -> float:
        return float(HardwareCost(place(**changes)).target(rows).wall_s)

    large = {**mixture, **TOO_SMALL}
    assert target(rows, **slow, **large) == pytest.approx(3 * target(rows, **large))
    assert target(prompt, **slow, **large) == target(prompt, **large)
    assert target(rows, **slow, **mixture) == target(rows, **mixture)
    assert target(rows, **slow, **TOO_SMALL) == target(rows, **TOO_SMALL)


def test_a_step_of_a_large_mixture_is_said_to_be_that_of_an_ideal_engine() -> None:
    """DeepSeek-R1 took 22.9 ms a step on eight H200 (sgl-project/sglang#3582): 2.3 times ours."""
    one = ["requests={count: 2, concurrency: 1, prompt_tokens: 1024, output_tokens: 64}"]
    loaded = load("autoregressive_deepseek_v3_8xh200", one)
    result = run(loaded)
    words = "times of deepseek_v3 over 8 x h200_sxm are those of an ideal engine"
    assert any(caution.startswith(words) for caution in result.cautions)
    doubt = doubt_of(loaded, (), plain_step_by_law)
    step_s = float(law(loaded.scenario, loaded.acceptance()).step_s)
    assert 22.9e-3 / step_s == pytest.approx(2.3, abs=0.05)
    assert drawn(step_s, doubt).interval(0.8).holds(22.9e-3)
    small = load("eagle3_qwen3_30b_a3b_h200", ["requests.count=2"])
    assert not any("ideal engine" in caution for caution in run(small).cautions)


def test_a_head_on_its_targets_ranks_is_one_too() -> None:
    result, _ = run_with_interval(load("eagle3_qwen3_235b_a22b_8xh200", ["requests.count=6"]))
    assert any("over 8 ranks may take up to" in caution for caution in result.cautions)
    assert "sharded_" in result.rests_on
    alone, _ = run_with_interval(load("eagle3_qwen3_30b_a3b_h200", ["requests.count=6"]))
    assert not any("ranks" in caution for caution in alone.cautions)


# ---- numbers away from home


@pytest.mark.parametrize("device", ["rtx_5090", "a100_80g_sxm"])
def test_an_answer_says_on_which_card_its_numbers_were_calibrated(device: str) -> None:
    sets = [
        f"target.device={device}",
        "target.weights=int4",
        "target.device.memory_gb=96",
        "requests.count=6",
    ]
    words = rests_on(load("eagle3_qwen3_30b_a3b_h200", sets))
    assert (
        "target.engine.speculation.head.fixed_us (calibrated on h100_94g_sxm; borrowed, -" in words
    )
    at_home = rests_on(
        load("eagle3_qwen3_30b_a3b_h200", ["target.device=h100_94g_sxm", "requests.count=6"])
    )
    assert "target.engine.speculation.head.fixed_us (calibrated, -" in at_home


def test_an_interval_holds_a_host_that_is_three_times_slower_on_another_card() -> None:
    sets = [
        "target.device=rtx_5090",
        "target.weights=int4",
        "target.device.memory_gb=96",
        "requests.count=6",
    ]
    loaded = load("eagle3_qwen3_30b_a3b_h200", [*sets, "acceptance.tokens_per_step_between=null"])
    _, interval = run_with_interval(loaded)
    slower = load(
        "eagle3_qwen3_30b_a3b_h200", [*sets, "target.engine.speculation.head.fixed_us=456"]
    )
    assert interval.holds(run_with_interval(slower)[0].speedup)
    found = next(
        footing for footing in footings(loaded) if footing.parameter.endswith("head.fixed_us")
    )
    assert found.ends is not None
    assert found.ends[0] < found.change < 0.0 < found.ends[1]
