"""Every formula of a pass worked out by hand, on a device where bytes count and on one where flops
do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.core.cost.device import Link
from simulator.core.cost.hardware_cost import HardwareCost, priced_layers
from simulator.core.cost.kernels import (
    LayerTime,
    all_reduce_time,
    attention_timer,
    head_time,
    side_product_time,
)
from simulator.core.cost.model import DraftHead
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Phase, Rows, together
from simulator.core.faults import BadInput
from tests.layer_times import layer_products, layer_time
from tests.test_cost import DEVICE, ENGINE, HARD, LINK, MODEL, ONE, place

READS = {**DEVICE, "small_operations": HARD}
"""1e9 bytes a second, and 1e12 flops, which are never the longer."""
COMPUTES = {**READS, "name": "flops", "memory_bandwidth_gb_s": 1e6, "peak_tflops": 1e-3}
"""1e9 flops a second, and 1e15 bytes."""
RANKS = {"tensor_parallel": 2, "link": LINK}
WIRE = {"name": "wire", "latency_us": 10, "bandwidth_gb_s": 1e-3}
"""1e6 bytes a second."""
SLOW_WIRE = {"name": "slow wire", "latency_us": 70, "bandwidth_gb_s": 1e-3}


def nanoseconds(seconds: float | tuple[float, ...]) -> Any:
    return pytest.approx(
        seconds * 1e-9
        if isinstance(seconds, float | int)
        else tuple(each * 1e-9 for each in seconds),
        rel=1e-9,
    )


# ---- the parts of a layer


@pytest.mark.parametrize("ranks", [1, 2])
def test_bytes_of_a_layer(ranks: int) -> None:
    """Three rows through 100 x 200, 100 x 100, 100 x 400 and 200 x 100 at two bytes; two of five
    pass an adapter instead.
    """
    on = place(device=READS, **(RANKS if ranks == 2 else {}))
    mlp = 2 * 40_000 + 3 * 500 * 2 + 2 * 20_000 + 3 * 300 * 2
    small = 2 * (3 * (800 + 2 * 200 / ranks) + 3 * 3 * 200 / ranks)
    found = layer_products(on, 3, False)
    assert found == nanoseconds(
        ((40_000 + 3 * 600) / ranks, 0.0, (20_000 + 3 * 400) / ranks, mlp / ranks, small)
    )
    adapted = layer_products(on, 5, False, adapted=2)
    assert adapted.mlp == pytest.approx(found.mlp)
    assert adapted.small == nanoseconds(2 * (5 * (800 + 2 * 200 / ranks) + 3 * 3 * 200 / ranks))
    assert adapted.qkv == nanoseconds((40_000 + 5 * 600) / ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_flops_of_a_layer(ranks: int) -> None:
    """Two for every weight and row; small operations have none."""
    on = place(device=COMPUTES, **(RANKS if ranks == 2 else {}))
    found = layer_products(on, 3, False)
    assert found[:4] == nanoseconds(
        (6 * 20_000 / ranks, 0.0, 6 * 10_000 / ranks, 6 * 60_000 / ranks)
    )
    assert found.small == pytest.approx(2 * (3 * (800 + 400 / ranks) + 9 * 200 / ranks) * 1e-15)
    plain = place(model={**MODEL, "mlp": "two_matrix"}, device=COMPUTES)
    assert layer_products(plain, 3, False).mlp == nanoseconds(6 * 40_000)


def test_a_layer_of_two_matrices_has_no_gate() -> None:
    plain = place(model={**MODEL, "mlp": "two_matrix"}, device=READS)
    assert layer_products(plain, 3, False).mlp == nanoseconds(
        2 * 20_000 + 3 * 300 * 2 + 2 * 20_000 + 3 * 300 * 2
    )


def test_kernels_tile_by_the_rows_they_see() -> None:
    """Tiles of 4 rows: 5 rows cost as much as 8, and 3 of them in the MLP as much as 4."""
    tiled = {**HARD, "tile_tokens": (4,)}
    device = {**COMPUTES, "matmul": {"default": tiled}, "attention": tiled}
    found = layer_products(place(device=device), 5, False, adapted=2)
    assert found[:4] == nanoseconds((16 * 20_000, 0.0, 16 * 10_000, 8 * 60_000))
    assert side_product_time(place(device=device), 3, 7) == nanoseconds(8 * 700)
    assert head_time(place(device=device), 3) == nanoseconds(8 * 100_000)
    assert attention_timer(place(device=device))(Rows.decode(2, 0)) == nanoseconds(2 * 3 * 400)


@pytest.mark.parametrize("ranks", [1, 2])
def test_attention_reads_the_cache_and_computes_by_pairs(ranks: int) -> None:
    """100 cached tokens of 200 bytes each; 3 rows behind 97 make 297 pairs of 400 flops."""
    changes = RANKS if ranks == 2 else {}
    rows = Rows.decode(3, 97)
    assert attention_timer(place(device=READS, **changes))(rows) == nanoseconds(100 * 200 / ranks)
    assert attention_timer(place(device=COMPUTES, **changes))(rows) == nanoseconds(
        297 * 400 / ranks
    )


EVEN = {"value": 0.0}
"""Experts that are chosen alike."""


def test_experts_by_hand() -> None:
    """Four of which two are active: three rows touch 3.5, each with 12/7 rows (2 in a kernel); a
    shared one sees all three.
    """
    experts = {
        "routed": 4,
        "per_token": 2,
        "intermediate_size": 50,
        "shared": 0,
        "popularity": EVEN,
    }
    each, touched = 3 * 100 * 50, 4 * (1 - 0.5**3)
    for shared in (0, 2):
        model = {**MODEL, "experts": {**experts, "shared": shared}}
        reads = layer_products(place(model=model, device=READS), 3, True).mlp
        # a row goes in as 100 values, is 200 and then 100 inside of both, and leaves as 100
        beside = shared * each * 2 + 3 * 500 * 2 if shared else 0
        assert reads == nanoseconds(touched * each * 2 + 3 * 2 / touched * 250 * 2 + beside)
        computes = layer_products(place(model=model, device=COMPUTES), 3, True).mlp
        assert computes == nanoseconds(2 * 2 * touched * each + 2 * 3 * shared * each)
    dense = layer_products(place(model={**MODEL, "experts": experts}, device=READS), 3, False)
    assert dense == layer_products(place(device=READS), 3, True)
    one = layer_products(
        place(model={**MODEL, "experts": {**experts, "per_token": 1}}, device=COMPUTES), 1, True
    ).mlp
    assert one == nanoseconds(2 * each)


def test_a_single_expert_row_is_a_whole_row() -> None:
    """Of 8 experts 1 is active: a row touches one, which sees a row and not less."""
    experts = {"routed": 8, "per_token": 1, "intermediate_size": 50, "popularity": EVEN}
    on = place(model={**MODEL, "experts": experts}, device=READS)
    assert layer_products(on, 1, True).mlp == nanoseconds(15_000 * 2 + 250 * 2)
    spread = place(model={**MODEL, "experts": {**experts, "per_token": 2}}, device=READS)
    touched = 8 * (1 - 0.75**2)
    assert layer_products(spread, 2, True).mlp == nanoseconds(touched * 30_000 + 4 / touched * 500)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_matrix_beside_the_layers(ranks: int) -> None:
    changes = RANKS if ranks == 2 else {}
    assert side_product_time(place(device=READS, **changes), 3, 50) == nanoseconds(
        (10_000 + 3 * 150 * 2) / ranks
    )
    assert side_product_time(place(device=COMPUTES, **changes), 3, 50) == nanoseconds(
        6 * 5_000 / ranks
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_lm_head_runs_over_rows_with_logits_and_samples(ranks: int) -> None:
    changes = (RANKS if ranks == 2 else {}) | {"engine": {**ENGINE, "sampling_us": 3}}
    assert head_time(place(device=READS, **changes), 2) == nanoseconds(
        (200_000 + 2 * 1_100 * 2) / ranks + 3_000
    )
    assert head_time(place(device=COMPUTES, **changes), 2) == nanoseconds(
        4 * 100_000 / ranks + 3_000
    )
    assert head_time(place(**changes), 0) == 0.0


def test_small_operations_of_a_program_take_a_multiple() -> None:
    once, twice = (
        layer_products(place(engine={**ENGINE, "small_operations_ratio": ratio}), 3, False)
        for ratio in (1, 2)
    )
    assert twice == once._replace(small=pytest.approx(2 * once.small))
    width = {
        "width": [{"tokens": 1, "ratio": 1}, {"tokens": 3, "ratio": 5}],
        "width_source": "made up",
    }
    narrow, wide = (
        place(device={**READS, "small_operations": each}) for each in (HARD, {**HARD, **width})
    )
    assert layer_products(wide, 3, False).small == pytest.approx(
        5 * layer_products(narrow, 3, False).small
    )


def test_each_format_has_its_own_kernel_and_width() -> None:
    device = {**READS, "matmul": {"default": HARD, "int8": {**HARD, "fixed_us": 1}}}
    on = place(device=device, weights="int8")
    assert layer_products(on, 1, False).qkv == nanoseconds(20_000 + 600 + 1_000)
    assert side_product_time(on, 1, 50) == nanoseconds(5_000 + 300 + 1_000)
    assert head_time(on, 1) == nanoseconds(200_000 + 2_200)  # in 16 bits, as checkpoints leave it
    early = HardwareCost(on).rendezvous("ee", 1, 0)
    assert early.wall_s == nanoseconds(10_000 + 1_000 + 200_000 + 2_200)


def test_collectives_are_between_ranks_only() -> None:
    """A ring of two at 1 GB/s: 100 us and the 600 bytes of three rows."""
    assert all_reduce_time(place(**RANKS), 3) == pytest.approx(100e-6 + 600e-9)
    assert all_reduce_time(place(link=LINK), 3) == 0.0
    assert all_reduce_time(place(**RANKS, collectives={"count": 0}), 3) == 0.0
    assert all_reduce_time(place(tensor_parallel=2, collectives={"count": 0}), 3) == 0.0


# ---- a pass


def test_rows_add_field_by_field() -> None:
    assert Rows(1, 2, 3, 4, 5, 6) + Rows(10, 20, 30, 40, 50, 60) == Rows(11, 22, 33, 44, 55, 66)
    assert Rows() == Rows(0, 0, 0, 0, 0, 0)
    assert Rows.prefill(4, 10, ends=False) == Rows(4, 0, 1, 14, 50, 0, 4, 1, 14, 50)
    assert Rows.prefill(4) == Rows(4, 1, 1, 4, 10, 0, 4, 1, 4, 10)
    assert Rows.decode(3, 20, 2) == Rows(6, 6, 2, 26, 72)
    assert together() == Phase(0, {})


def test_the_host_pays_for_layers_and_once_for_the_pass() -> None:
    """A second for each layer, ten for a pass, which its first layer stands for; half as much again
    over many rows.
    """
    engine = ENGINE | {
        "host_us_per_layer": 1e6,
        "host_us_per_pass": 1e7,
        "many_rows_host_ratio": 1.5,
    }
    cost = HardwareCost(place(engine=engine))
    walls = [cost.target(ONE, *part).wall_s for part in ((0, 1), (1, 4), (0, 4), (1, 1), (3, 2))]
    assert walls == pytest.approx([11, 3, 14, 0, 0])
    assert cost.target(Rows.decode(2, 10), 1, 3).wall_s == pytest.approx(3)
    assert cost.head(DraftHead(layers=2), ONE).wall_s == pytest.approx(12)
    assert cost.head(DraftHead(layers=2), Rows.decode(2, 10)).wall_s == pytest.approx(13)


def test_the_host_pays_for_every_row_of_logits_where_it_takes_them_one_by_one() -> None:
    """A prompt of 4 rows needs one row of logits, or with ``all_logits`` four; a chunk that does
    not end needs none.
    """
    rows = Rows.prefill(4), Rows.prefill(4, ends=False), Rows.decode(3, 10)
    for all_logits, expected in ((False, [5, 4, 7]), (True, [8, 4, 7])):
        engine = ENGINE | {
            "host_us_per_layer": 1e6,
            "host_us_per_logit_row": 1e6,
            "all_logits": all_logits,
        }
        cost = HardwareCost(place(engine=engine))
        assert [cost.target(each).wall_s for each in rows] == pytest.approx(expected)
        assert cost.target(rows[0], 0, 2).wall_s == pytest.approx(2)


def test_a_pass_is_its_layers_and_at_the_end_the_head() -> None:
    cost = HardwareCost(place(device=READS))
    attention, head = 100 * 200, 200_000 + 2_200
    layer = sum(layer_products(place(device=READS), 1, False)) * 1e9 + attention
    for part, expected in (
        ((0, 1), layer),
        ((1, 3), 2 * layer),
        ((1, 4), 3 * layer + head),
        ((0, 4), 4 * layer + head),
    ):
        phase = cost.target(ONE, *part)
        assert (phase.wall_s, phase.busy["target compute"]) == (
            nanoseconds(expected),
            nanoseconds(expected),
        )
    assert cost.target(ONE._replace(logit_rows=0)).wall_s == nanoseconds(4 * layer)
    assert cost.target(ONE._replace(logit_rows=3)).wall_s == nanoseconds(
        4 * layer + 200_000 + 6_600
    )


def test_collectives_of_a_pass_come_with_its_layers_or_with_its_end() -> None:
    once = 100e-6 + 200e-9
    by_layer = HardwareCost(place(**RANKS, collectives={"count": 3}))
    by_pass = HardwareCost(place(**RANKS, collectives={"count": 3, "per": "pass"}))
    found = [
        [cost.target(ONE, *part).busy["target collectives"] for part in ((0, 1), (1, 4))]
        for cost in (by_layer, by_pass)
    ]
    assert found == [pytest.approx([3 * once, 9 * once]), pytest.approx([0, 3 * once])]
    head = by_layer.head(DraftHead(layers=2), ONE)
    assert head.busy["draft head collectives"] == pytest.approx(2 * 3 * once)
    assert head.wall_s == pytest.approx(
        head.busy["draft head collectives"] + head.busy["draft head compute"]
    )


def test_dense_layers_come_before_those_with_experts() -> None:
    experts = {"routed": 4, "per_token": 2, "intermediate_size": 50, "first_dense_layers": 1}
    on = place(model={**MODEL, "experts": experts}, device=READS)
    attention, nothing = 20_000e-9, ONE._replace(logit_rows=0)
    dense, sparse = (sum(layer_products(on, 1, each)) + attention for each in (False, True))
    cost = HardwareCost(on)
    walls = [
        cost.target(nothing, *part).wall_s for part in ((0, 1), (0, 3), (1, 2), (2, 4), (0, 4))
    ]
    assert walls == pytest.approx(
        [dense, dense + 2 * sparse, sparse, 2 * sparse, dense + 3 * sparse], rel=1e-12
    )


def test_adapted_rows_skip_the_mlp_in_a_pass_and_in_a_head() -> None:
    on, rows = place(device=READS), Rows(5, 0, 1, 100, 500, adapted=2)
    layer = sum(layer_products(on, 5, False, 2)) + 20_000e-9
    assert HardwareCost(on).target(rows).wall_s == pytest.approx(4 * layer)
    assert HardwareCost(on).head(DraftHead(layers=3), rows).wall_s == pytest.approx(3 * layer)


def test_parts_are_remembered_by_everything_they_depend_on() -> None:
    """One after the other through one cost, each of these as through a cost of its own."""
    kinds = [
        *(
            Rows(4, 1, 4, 80, 80),
            Rows(4, 2, 4, 80, 80),
            Rows(4, 1, 4, 80, 80, adapted=1),
            Rows(4, 1, 2, 80, 80),
        ),
        *(Rows(5, 1, 4, 80, 80), Rows(4, 1, 4, 90, 80), Rows(4, 1, 4, 80, 80_000_000)),
    ]
    engine = ENGINE | {
        "host_us_per_layer": 1e6,
        "many_rows_host_ratio": 1.5,
        "launch": "synchronous",
    }
    seasoned = HardwareCost(place(engine=engine))
    for rows in kinds:
        fresh = HardwareCost(place(engine=engine))
        assert seasoned.target(rows) == fresh.target(rows)
        assert seasoned.target(rows, 1, 3) == HardwareCost(place(engine=engine)).target(rows, 1, 3)
        for head in (DraftHead(layers=1), DraftHead(layers=2)):
            assert seasoned.head(head, rows) == HardwareCost(place(engine=engine)).head(head, rows)
    assert len({seasoned.target(rows).wall_s for rows in kinds}) == len(kinds)


def test_contexts_of_many_steps_are_priced_at_once_and_not_remembered() -> None:
    cost = HardwareCost(place(), place())
    contexts = np.array([10, 500, 90])
    for price in (cost.target, cost.draft, lambda rows: cost.head(DraftHead(layers=1), rows)):
        walls = price(Rows.decode(2, contexts)).wall_s
        assert walls.tolist() == [
            price(Rows.decode(2, int(context))).wall_s for context in contexts
        ]


def test_a_head_beside_a_mixture_of_experts_is_dense() -> None:
    mixture = place(
        model={**MODEL, "experts": {"routed": 4, "per_token": 2, "intermediate_size": 50}},
        device=READS,
    )
    layer = sum(layer_products(place(device=READS), 1, False)) + 20_000e-9
    assert HardwareCost(mixture).head(
        DraftHead(layers=1), ONE._replace(logit_rows=0)
    ).wall_s == pytest.approx(layer)


def test_a_layer_is_its_products_and_its_attention() -> None:
    on, rows = place(device=READS), Rows(5, 5, 1, 100, 500, adapted=2)
    assert layer_time(on, rows, False) == layer_products(on, 5, False, 2)._replace(
        attention=nanoseconds(20_000)
    )


def test_what_a_head_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.core.cost.hardware_cost.REMEMBERED", 3)
    priced_layers.cache_clear()
    cost, head = HardwareCost(place()), DraftHead(layers=1)
    first = cost.head(head, ONE)
    times = cost._layers["target"].head_passes(head, None)
    assert cost.head(head, ONE) == first
    for further in range(10):
        cost.head(head, Rows.decode(2 + further, 99))
        assert len(times._parts) == (further + 1) % 3 + 1
    assert cost.head(head, ONE) == first


def test_a_draft_head_in_parts() -> None:
    """Two squares, a transform through rank 10, a layer, an LM head of 500 over two rows."""
    on, rows = place(device=READS), Rows.decode(2, 98)
    square, narrow = 20_000 + 2 * 200 * 2, 2_000 + 2 * 110 * 2
    layer, logits = sum(layer_products(on, 2, False)) * 1e9 + 20_000, 100_000 + 2 * 600 * 2
    cost = HardwareCost(on)
    whole = DraftHead(layers=1, squares=2, vocabulary=500, rank=10)
    assert cost.head(whole, rows).wall_s == nanoseconds(2 * square + 2 * narrow + layer + logits)
    assert cost.head(whole, rows._replace(logit_rows=0)).wall_s == nanoseconds(
        2 * square + 2 * narrow + layer
    )
    two = DraftHead(lm_heads=2)
    assert cost.head(two, rows).busy == {
        "draft head compute": nanoseconds(2 * 200_000 + 2 * 2_100 * 2),
        "draft head collectives": 0.0,
        "draft head host": 0.0,
    }


# ---- a placement


def test_a_placement_knows_its_bytes_and_its_layers() -> None:
    """Four layers of 90,000 weights, two tables of 100,000 in 16 bits; a token leaves 800 bytes in
    the cache.
    """
    one, two = place(), place(**RANKS, weights="int8")
    assert (one.weights_gb(), one.weights_gb(50_000)) == pytest.approx(
        (560_000 * 2e-9, 610_000 * 2e-9), rel=1e-12
    )
    assert (two.weights_gb(), two.weights_gb(50_000)) == pytest.approx((380_000e-9, 405_000e-9))
    assert (one.kv_gb(10**9), two.kv_gb(10**9)) == pytest.approx((800, 400), rel=1e-12)
    assert [one.layer(depth) for depth in (0, 3, -1, -4, 0.0, 0.5, 0.6, 0.7, 1.0)] == [
        0,
        3,
        3,
        0,
        0,
        2,
        2,
        3,
        4,
    ]
    assert (one.devices, two.devices) == ("1 x round", "2 x round")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor_parallel": 2}, "needs a link between the devices"),
        (
            {"tensor_parallel": 2, "link": {**LINK, "all_reduce": {}}},
            "'wire' has no all_reduce in form 'ring'; it has none",
        ),
        (
            {**RANKS, "link": {**LINK, "all_reduce": {"tree": LINK["all_reduce"]["tree"]}}},
            "form 'ring'; it has tree",
        ),
        (
            {"tensor_parallel": 3, "link": LINK},
            "tensor_parallel 3 does not divide the 10 attention heads of tiny",
        ),
        (
            {"pipeline": {"stages": [{"layers": 1}, {"layers": 2}], "within": WIRE}},
            "the stages hold 3 layers, tiny has 4",
        ),
    ],
)
def test_what_does_not_fit_together_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        place(**changes)


def test_ranks_that_never_speak_need_no_link() -> None:
    assert place(tensor_parallel=2, collectives={"count": 0}).link is None


def staged(**changes: Any) -> Placement:
    """Layers 1 | 1 | 2, the last on a device of its own behind the slow wire."""
    stages = [
        {"layers": 1, "server": "a"},
        {"layers": 1, "server": "a"},
        {"layers": 2, "server": "b", "device": COMPUTES},
    ]
    return place(
        device=READS, pipeline={"stages": stages, "within": WIRE, "between": SLOW_WIRE}, **changes
    )


def test_stages_run_their_layers_on_their_devices() -> None:
    on = staged()
    cost, reads, computes = HardwareCost(on), place(device=READS), place(device=COMPUTES)
    assert [(part.device.name, part.machine, part.pipeline) for part in on.on_stages] == [
        *(("round", "a", None), ("round", "a", None), ("flops", "b", None)),
    ]
    assert (on.devices, cost.stages, HardwareCost(reads).stages) == ("2 x round + 1 x flops", 3, 0)
    assert (reads.on_stages, reads.parts) == ((), ())
    layer = sum(layer_products(reads, 1, False)) + 20_000e-9
    last = 2 * (sum(layer_products(computes, 1, False)) + 100 * 400e-9) + 2 * 100_000e-9
    assert [cost.stage(index, ONE).wall_s for index in range(3)] == pytest.approx(
        [layer, layer, last]
    )
    assert cost.stage(2, ONE).busy["stage 3 compute"] == pytest.approx(last)
    carried = [10e-6 + 200e-6, 70e-6 + 200e-6]
    assert [cost.carry(index, 1) for index in range(2)] == pytest.approx(carried)
    assert cost.carry(0, 3) == pytest.approx(10e-6 + 600e-6)
    assert cost.token() == pytest.approx(70e-6 + 4e-6)
    whole = cost.target(ONE)
    assert whole.wall_s == pytest.approx(2 * layer + last + sum(carried))
    assert whole.busy["target links"] == pytest.approx(sum(carried))
    assert cost.target(Rows.decode(3, 97)).busy["target links"] == pytest.approx(
        10e-6 + 70e-6 + 2 * 600e-6
    )


def test_parts_of_stages_hold_layers_and_tables() -> None:
    parts = staged().parts
    assert [part.model.num_hidden_layers for part in parts] == [1, 1, 2]
    assert [part.model.weights for part in parts] == [190_000, 90_000, 280_000]
    tied = staged(model={**MODEL, "tie_word_embeddings": True}).parts
    assert [part.model.weights for part in tied] == [190_000, 90_000, 280_000]
    assert [part.device.name for part in parts] == ["round", "round", "flops"]


def test_without_a_pipeline_nothing_is_carried() -> None:
    cost = HardwareCost(place())
    assert (cost.carry(0, 5), cost.token(), cost.jitters) == (0.0, 0.0, False)
    assert cost.drawn(3) is cost
    with pytest.raises(BadInput, match=r"target\.pipeline"):
        cost.stage(0, ONE)


def test_jitter_is_at_its_mean_or_drawn_with_the_seed() -> None:
    shaky = {**WIRE, "jitter": {"name": "exponential", "mean_us": 100}}
    stages = [{"layers": 2}, {"layers": 2}]
    cost = HardwareCost(place(pipeline={"stages": stages, "within": shaky}))
    steady = HardwareCost(place(pipeline={"stages": stages, "within": WIRE}))
    assert (cost.jitters, steady.jitters) == (True, False)
    assert steady.drawn(1) is steady
    assert (cost.carry(0, 1), cost.token()) == pytest.approx((310e-6, 114e-6))

    def draws(seed: int) -> list[float]:
        drawn = cost.drawn(seed)
        return [drawn.carry(0, 1), drawn.token()]

    random = np.random.default_rng(5)
    assert draws(5) == pytest.approx(
        [base + random.exponential(100) * 1e-6 for base in (210e-6, 14e-6)]
    )
    assert draws(5) == draws(5) != draws(6)


# ---- target, draft, and between them


def test_a_draft_runs_where_it_is_placed() -> None:
    small = place(model={**MODEL, "num_hidden_layers": 2}, device=COMPUTES)
    cost = HardwareCost(place(device=READS), small)
    phase = cost.draft(ONE)
    assert phase == cost.draft(ONE, "redraft") == cost.prefill("draft", ONE)
    assert phase.wall_s == pytest.approx(
        2 * (sum(layer_products(small, 1, False)) + 40_000e-9) + 200_000e-9,
    )
    assert set(phase.busy) == {"draft compute", "draft collectives", "draft host"}
    assert cost.prefill("target", ONE) == cost.target(ONE) != phase
    assert cost.target(ONE, 2, 4) == cost.target(ONE, 0.5, 1.0)


def test_without_a_draft_there_is_none_to_ask() -> None:
    cost = HardwareCost(place())
    assert (cost.prefill("draft", ONE), cost.copy(100)) == (Phase(0.0, {}), 0.0)
    with pytest.raises(BadInput, match="this strategy needs a draft"):
        cost.draft(ONE)


def test_a_copy_reads_and_writes_every_byte_of_the_drafts_cache() -> None:
    """2000 tokens of 800 bytes at 4 GB/s, twice."""
    draft = place(device={**DEVICE, "memory_bandwidth_gb_s": 4})
    assert HardwareCost(place(), draft).copy(2_000) == pytest.approx(2 * 1.6e6 / 4e9)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_exit_head_by_hand(ranks: int) -> None:
    """An adapter of 100 x 100 weights, the LM head over three rows, 1000 bytes over the wire."""
    changes = RANKS if ranks == 2 else {}
    for device, adapter, head in (
        (READS, 20_000, 200_000 + 3 * 2_200),
        (COMPUTES, 6 * 10_000, 6 * 100_000),
    ):
        cost = HardwareCost(place(device=device, **changes), channel=Link.model_validate(WIRE))
        early = cost.rendezvous("ee", 3, 1_000)
        assert early.busy == {"target compute": nanoseconds((adapter + head) / ranks)}
        assert early.wall_s == nanoseconds((adapter + head) / ranks + 10_000 + 1_000_000)
        assert cost.rendezvous("fv", 3, 1_000) == Phase(pytest.approx(1.01e-3), {})
    alone = HardwareCost(place(device=READS)).rendezvous("fv", 3, 1_000)
    assert alone == Phase(0.0, {})


def test_the_exit_head_tiles_by_its_rows() -> None:
    device = {**COMPUTES, "matmul": {"default": {**HARD, "tile_tokens": (4,)}}}
    assert HardwareCost(place(device=device)).rendezvous("ee", 3, 0).wall_s == nanoseconds(
        8 * 110_000
    )


def test_times_of_a_layer_start_without_attention() -> None:
    assert LayerTime._fields == ("qkv", "attention", "output", "mlp", "small")
    assert layer_products(place(), 1, False).attention == 0.0
