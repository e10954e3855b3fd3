"""Costs of a pass, by hand on a device of round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from simulator.core.cost.hardware_cost import MOST_RUNS, HardwareCost, priced_layers
from simulator.core.cost.kernels import layer_products
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Phase, Rows, together
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from tests.layer_times import layer_time

HARD = {"fixed_us": 0, "memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 100}
DEVICE = {
    "name": "round",
    "kind": "gpu",
    "memory_gb": 100,
    "memory_bandwidth_gb_s": 1,  # 1e9 bytes a second
    "peak_tflops": 1,
    "matmul": {"default": HARD},
    "attention": HARD,
    "small_operations": {**HARD, "fixed_us": 10},
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
LINK = {
    "name": "wire",
    "latency_us": 5,
    "bandwidth_gb_s": 1,
    "all_reduce": {
        "ring": {"fixed_us": 100, "bandwidth_gb_s": 1},
        "tree": {"alpha_us": 10, "bandwidth_gb_s": 1},
    },
}
ONE = Rows.decode(1, 99)


def place(**changes: Any) -> Placement:
    return Placement.model_validate({"model": MODEL, "device": DEVICE, "engine": ENGINE, **changes})


@pytest.mark.parametrize(
    ("rows", "milliseconds"), [(ONE, 4), (Rows.decode(1, 99, 2), 4), (Rows.decode(2, 99), 6)]
)
def test_the_host_takes_longer_over_several_rows_of_a_sequence(
    rows: Rows, milliseconds: float
) -> None:
    """Four layers at 1 ms, and half as much again."""
    engine = ENGINE | {"host_us_per_layer": 1_000, "many_rows_host_ratio": 1.5}
    cost = HardwareCost(place(engine=engine))
    assert cost.target(rows).wall_s == pytest.approx(milliseconds * 1e-3)
    assert cost.head(DraftHead(layers=2), rows).wall_s == pytest.approx(milliseconds / 2 * 1e-3)


def test_one_layer_by_hand() -> None:
    """Weights 100 x 200, 100 x 100, 100 x 400, 200 x 100 at two bytes and 1 GB/s, plus
    activations.
    """
    layer = layer_time(place(), ONE, experts=False)
    assert layer.qkv == pytest.approx((20_000 * 2 + 300 * 2) * 1e-9)
    assert layer.output == pytest.approx((10_000 * 2 + 200 * 2) * 1e-9)
    assert layer.mlp == pytest.approx((40_000 * 2 + 500 * 2 + 20_000 * 2 + 300 * 2) * 1e-9)
    assert layer.attention == pytest.approx(100 * 2 * 50 * 2 * 1e-9)
    small_bytes = 2 * (8 * 100 + 3 * 200 + 2 * 200)
    assert layer.small == pytest.approx(10e-6 + small_bytes * 1e-9)


def test_rows_add_up() -> None:
    """A chunk of prefill and two verifications in one pass are the sum of their rows."""
    total = Rows.prefill(16) + Rows.decode(8, 100) + Rows.decode(8, 50)
    prompt = {
        "prompt_tokens": 16,
        "prompt_sequences": 1,
        "prompt_kv_tokens": 16,
        "prompt_pairs": 136,
    }
    assert total == Rows(
        32, 17, 3, kv_tokens=16 + 108 + 58, attention_pairs=136 + 836 + 436, **prompt
    )


@pytest.mark.parametrize("exit_layer", [1, 2, 0.5, 0.75])
def test_prefix_and_suffix_make_the_whole_pass(exit_layer: int | float) -> None:
    for cost in (
        HardwareCost(place()),
        StatedCost(StatedDurations(layers_ms=(1, 2, 3, 4), draft_ms=1)),
    ):
        prefix, suffix = cost.target(ONE, 0.0, exit_layer), cost.target(ONE, exit_layer, 1.0)
        assert prefix.wall_s + suffix.wall_s == pytest.approx(cost.target(ONE).wall_s)
        assert min(prefix.wall_s, suffix.wall_s) > 0.0


def test_an_exit_at_the_last_layer_leaves_nothing_to_overlap() -> None:
    """MSD-2: Delta = 0, and the LM head is paid once."""
    for cost in (
        HardwareCost(place()),
        StatedCost(StatedDurations(layers_ms=(1, 2, 3, 4), draft_ms=1)),
    ):
        assert cost.target(ONE, 4, 1.0) == Phase(0.0, {})
        assert cost.target(ONE, 0.0, 4).wall_s == pytest.approx(cost.target(ONE).wall_s)
    assert (
        StatedCost(StatedDurations(prefix_ms=18, suffix_ms=18, draft_ms=1))
        .target(ONE, 1.0, 1.0)
        .wall_s
        == 0.0
    )


def test_the_host_hides_behind_the_device_or_adds_to_it() -> None:
    slow_host = {**ENGINE, "host_us_per_layer": 1_000_000}
    assert HardwareCost(place(engine=slow_host)).target(ONE).wall_s == pytest.approx(4.0)
    device = HardwareCost(place()).target(ONE).wall_s
    both = HardwareCost(place(engine={**slow_host, "launch": "synchronous"})).target(ONE)
    assert both.wall_s == pytest.approx(4.0 + device)
    assert both.busy == {
        "target compute": pytest.approx(device),
        "target collectives": 0.0,
        "target host": 4.0,
    }


def test_tensor_parallel_shares_the_work_and_pays_two_collectives_a_layer() -> None:
    cost = HardwareCost(place(tensor_parallel=2, link=LINK))
    phase = cost.target(ONE)
    one = 100e-6 + 2 * 0.5 * 200e-9
    assert phase.busy["target collectives"] == pytest.approx(8 * one)
    assert phase.busy["target compute"] < HardwareCost(place()).target(ONE).busy["target compute"]
    tree = HardwareCost(place(tensor_parallel=2, link=LINK, collectives={"form": "tree"})).target(
        ONE
    )
    assert tree.busy["target collectives"] == pytest.approx(8 * (10e-6 + 100e-9))


def test_a_sharded_draft_pays_two_collectives_a_pass() -> None:
    draft = place(tensor_parallel=5, link=LINK, collectives={"count": 2, "per": "pass"})
    cost = HardwareCost(place(), draft)
    assert cost.draft(ONE).busy["draft collectives"] == pytest.approx(2 * (100e-6 + 1.6 * 200e-9))
    assert cost.target(ONE).busy["target collectives"] == 0.0


def test_quantised_weights_are_read_faster_and_kv_copies_slower() -> None:
    full, quantised = layer_time(place(), ONE, False), layer_time(place(weights="int8"), ONE, False)
    assert quantised.qkv == pytest.approx((20_000 + 600) * 1e-9)
    assert quantised.attention == full.attention
    copies = layer_time(place(engine={**ENGINE, "kv_traffic_ratio": 3}), ONE, False)
    assert copies.attention == pytest.approx(3 * full.attention)
    repeated = {**ENGINE, "kv_traffic_ratio": 3, "repeats_kv": True}
    assert layer_time(place(engine=repeated), ONE, False).attention == pytest.approx(
        (3 + 2 * 2) * full.attention
    )
    one_head_each = {"model": {**MODEL, "num_key_value_heads": 10}}
    once, same = (
        layer_time(place(engine=engine, **one_head_each), ONE, False)
        for engine in (ENGINE, repeated)
    )
    assert same.attention == pytest.approx(3 * once.attention)


def test_experts_are_read_as_tokens_touch_them() -> None:
    experts = {"routed": 8, "per_token": 2, "intermediate_size": 200}
    mixture = place(model={**MODEL, "experts": experts})
    one, many = (layer_time(mixture, Rows.decode(n, 99), experts=True).mlp for n in (1, 64))
    assert one == pytest.approx((2 * 60_000 * 2 + 700 * 2) * 1e-9, rel=0.01)
    assert 3.5 < many / one < 4.5


def test_rendezvous_is_exit_head_and_transfer() -> None:
    from simulator.core.cost.device import Link

    cost = HardwareCost(place(), channel=Link.model_validate(LINK))
    assert cost.rendezvous("fv", 8, 1000).wall_s == pytest.approx(5e-6 + 1e-6)
    early = cost.rendezvous("ee", 1, 0)
    adapter, head = 10_000 * 2e-9, (100_000 * 2 + 1_100 * 2) * 1e-9
    assert early.busy["target compute"] == pytest.approx(adapter + head)
    assert early.wall_s == pytest.approx(adapter + head + 5e-6)


@given(st.integers(1, 64), st.integers(0, 2_000), st.integers(1, 64), st.integers(0, 2_000))
def test_more_work_never_takes_less_time(n: int, context: int, more: int, further: int) -> None:
    cost = HardwareCost(place())
    assert (
        cost.target(Rows.decode(n + more, context + further)).wall_s
        >= cost.target(Rows.decode(n, context)).wall_s
    )


def unseasoned(**changes: Any) -> HardwareCost:
    """A cost for which nothing is remembered."""
    priced_layers.cache_clear()
    return HardwareCost(place(**changes))


@given(st.integers(1, 4), st.integers(1, 16))
def test_remembering_changes_no_digit(n: int, context: int) -> None:
    cost = unseasoned()
    rows = Rows.decode(n, context)
    assert cost.target(rows) == cost.target(Rows.decode(n, context))
    assert cost.target(rows) == unseasoned().target(rows)


def test_costs_on_one_place_share_its_passes_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another draft, link or contention prices no pass of the target anew; another kind of drafting
    has a step of its own.
    """
    drafted = {"head": {"fixed_us": 1_000, "request_us": 0, "asynchronous": True}}
    target = place(engine={**ENGINE, "speculation": drafted})
    slow = place(device={**DEVICE, "memory_bandwidth_gb_s": 0.5})
    rows = Rows.decode(4, 99)
    first = HardwareCost(target, place())
    took = first.target(rows)
    priced = []

    def noted(*asked: Any) -> Any:
        priced.append(asked)
        return layer_products(*asked)

    monkeypatch.setattr("simulator.core.cost.hardware_cost.layer_products", noted)
    further = HardwareCost(target, slow, contention=2.0)
    assert further.target(rows) == took
    assert not priced
    assert further.draft(rows).wall_s > first.draft(rows).wall_s
    by_head = HardwareCost(target, drafting="head")
    assert by_head.target(rows).wall_s == pytest.approx(took.wall_s + 1e-3)
    assert HardwareCost(target).target(rows) == took


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 900)), min_size=2, max_size=6))
def test_a_pass_of_remembered_parts_is_the_pass(
    passes: list[tuple[int, int]],
) -> None:
    """One cost sees every pass, each other one a single pass; and both are the sum of the layer's
    groups.
    """
    ranks = {"tensor_parallel": 2, "link": LINK}
    seasoned = unseasoned(**ranks)
    for tokens, context in [*passes, *passes]:
        rows = Rows.decode(tokens, context)
        assert seasoned.target(rows) == unseasoned(**ranks).target(rows)
        layer = sum(layer_time(place(**ranks), rows, experts=False))
        compute_s = seasoned.target(rows, 0, 2).busy["target compute"]
        assert compute_s == pytest.approx(2 * layer, rel=1e-14)


RUNS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 2),
        st.lists(st.sampled_from((0, 1, 500, 4_000)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@given(RUNS)
def test_a_run_of_passes_is_each_of_them_whatever_was_asked_before(
    runs: list[tuple[int, int, list[int]]],
) -> None:
    """Runs of few contexts that begin alike come up again, and are told apart."""
    seasoned = unseasoned()
    for tokens, sequences, contexts in runs:
        run = seasoned.target(Rows.decode(tokens, np.array(contexts), sequences))
        alone = [
            unseasoned().target(Rows.decode(tokens, context, sequences)) for context in contexts
        ]
        assert np.broadcast_to(run.wall_s, len(alone)).tolist() == [one.wall_s for one in alone]
        for lane, seconds in run.busy.items():
            each = [one.busy[lane] for one in alone]
            assert np.broadcast_to(seconds, len(alone)).tolist() == each


def test_few_runs_of_passes_are_kept() -> None:
    cost = unseasoned()
    blocks = [np.arange(first, first + 3) for first in range(0, 30, 3)]
    told = [cost.target(Rows.decode(1, block)) for block in blocks]
    (times,) = cost._passes.values()
    assert len(times._runs) == MOST_RUNS
    assert cost.target(Rows.decode(1, blocks[-1])) is told[-1]
    again = cost.target(Rows.decode(1, blocks[0]))
    assert again is not told[0]
    assert again.wall_s.tolist() == told[0].wall_s.tolist()


def test_what_is_remembered_is_bounded_and_forgotten_without_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simulator.core.cost.hardware_cost.REMEMBERED", 3)
    cost = unseasoned()
    first = cost.target(ONE)
    (times,) = cost._passes.values()
    for further in range(10):
        cost.target(Rows.decode(2 + further, 99))
        assert len(times._parts) == (further + 1) % 3 + 1
    assert cost.target(ONE) == first


def test_rows_of_many_sequences_are_the_sum_of_each() -> None:
    contexts = (10, 0, 77)
    total = Rows()
    for context in contexts:
        total += Rows.decode(5, context)
    assert Rows.decode(5, sum(contexts), len(contexts)) == total


def test_phases_add() -> None:
    one = Phase(1.0, {"a": 1.0, "b": 0.5})
    assert together(one, Phase(2.0, {"a": 2.0}), times=3) == Phase(9.0, {"a": 9.0, "b": 1.5})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "expected one of target_ms, layers_ms"),
        ({"target_ms": 1, "prefix_ms": 1, "suffix_ms": 1}, "expected one of"),
        ({"prefix_ms": 1}, "expected one of"),
        ({"target_ms": 1, "draft_ms": 1, "draft_step_ms": 1}, "not both"),
        ({"target_ms": -1}, "greater than or equal to 0"),
    ],
)
def test_durations_that_do_not_fit_together(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StatedDurations.model_validate(fields)


def test_a_stated_pass_takes_the_time_of_its_rows() -> None:
    cost = StatedCost(StatedDurations(target_ms={8: 10, 1: 4, 4: 7}, draft_step_ms=1))
    times = [cost.target(Rows.decode(rows, 100)).wall_s * 1e3 for rows in (1, 2, 4, 6, 8, 99)]
    assert times == pytest.approx([4, 5, 7, 8.5, 10, 10])
    staged = StatedCost(
        StatedDurations(stages_ms=({1: 2, 5: 4}, 3), links_ms=(1,), draft_step_ms=0)
    )
    assert [
        staged.stage(index, Rows.decode(3, 100)).wall_s * 1e3 for index in (0, 1)
    ] == pytest.approx([3, 3])
    assert staged.target(Rows.decode(3, 100)).wall_s * 1e3 == pytest.approx(7)


def test_given_durations_split_at_the_exit() -> None:
    cost = StatedCost(StatedDurations(target_ms=40, draft_ms=21), window_steps=7)
    assert cost.target(ONE, 0.0, 0.25).wall_s == pytest.approx(0.010)
    assert cost.draft(ONE).wall_s == pytest.approx(0.003)
    layers = StatedCost(StatedDurations(layers_ms=(1, 2, 3, 4), draft_ms=1))
    assert (layers.target(ONE, 0.0, 3).wall_s, layers.target(ONE, 3, 1.0).wall_s) == pytest.approx(
        (0.006, 0.004)
    )


def test_a_draft_head_is_its_layers_its_squares_and_an_lm_head_beside_the_target() -> None:
    """An EAGLE step: two square matrices fuse features and embeddings, one layer, the target's LM
    head.
    """
    target = place()
    costs, fusing = HardwareCost(target), (100 * 100 * 2 + 2 * 100 * 2) * 1e-9
    layer = sum(layer_time(target, ONE, experts=False))
    logits = (100_000 * 2 + 1_100 * 2) * 1e-9
    eagle = costs.head(DraftHead(layers=1, squares=2), ONE)
    assert eagle.wall_s == pytest.approx(2 * fusing + layer + logits)
    assert eagle.busy["draft head compute"] == pytest.approx(eagle.wall_s)
    hidden = ONE._replace(logit_rows=0)
    assert costs.head(DraftHead(layers=1), hidden).wall_s == pytest.approx(layer)
    narrow = costs.head(DraftHead(layers=1, vocabulary=500), ONE).wall_s
    assert narrow == pytest.approx(layer + (50_000 * 2 + 600 * 2) * 1e-9)


@pytest.mark.parametrize(
    ("model", "head", "billions"),
    [
        ("vicuna_7b", DraftHead(layers=1, squares=2), 0.24),
        ("vicuna_13b", DraftHead(layers=1, squares=2), 0.37),
        ("vicuna_7b", DraftHead(squares=1, vocabulary=32_000), 0.74 / 5),
        ("vicuna_13b", DraftHead(squares=1, vocabulary=32_000), 0.95 / 5),
    ],
)
def test_weights_of_published_draft_heads(model: str, head: DraftHead, billions: float) -> None:
    """EAGLE's README gives 0.24 B and 0.37 B; five Medusa heads of 7B and 13B have 0.74 B and 0.95
    B.
    """
    target = validate(ModelSpec, read(Catalogue().names("model")[model]))
    assert head.weights(target) / 1e9 == pytest.approx(billions, rel=0.03)
