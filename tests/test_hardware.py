"""The formulas of devices and links, with round numbers worked out by hand."""

import pytest
from pydantic import ValidationError

from simulator.core.cost.collectives import RingAllReduce, TreeAllReduce
from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.roofline import Roofline


def roofline(**changes):
    """No constant, full efficiency, p = 1: bytes / bandwidth + flops / peak."""
    return Roofline.model_validate(
        {"fixed_us": 0, "memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 1} | changes
    )


def device(**changes):
    """1 GB/s and 1 TFLOPS: a byte takes a nanosecond, a flop a picosecond."""
    plain = roofline()
    fields = {"kind": "gpu", "memory_gb": 1, "memory_bandwidth_gb_s": 1, "peak_tflops": 1}
    parts = {"matmul": {"default": plain}, "attention": plain, "small_operations": plain}
    return Device.model_validate(fields | parts | changes)


@pytest.mark.parametrize(("p_norm", "expected_s"), [(1, 7.0), (2, 5.0), (200, 4.0)])
def test_memory_and_compute_join_in_a_p_norm(p_norm, expected_s):
    assert device().seconds(roofline(p_norm=p_norm), 3e9, 4e12, tokens=1) == pytest.approx(
        expected_s, rel=1e-12
    )


def test_p_norm_of_equal_parts_is_two_to_the_one_over_p():
    assert device().seconds(roofline(p_norm=4), 1e9, 1e12, tokens=1) == pytest.approx(
        2 ** (1 / 4), rel=1e-12
    )


def test_a_huge_p_does_not_overflow():
    assert device().seconds(roofline(p_norm=1e6), 1e9, 3e12, tokens=1) == pytest.approx(
        3.0, rel=1e-12
    )


def test_constant_is_added_once_and_efficiencies_divide_the_rates():
    operation = roofline(fixed_us=10, memory_efficiency=0.5, compute_efficiency=0.25)
    assert device().seconds(operation, 1e3, 1e6, tokens=1) == pytest.approx(
        10e-6 + 2e-6 + 4e-6, rel=1e-12
    )


def test_an_operation_without_work_takes_its_constant():
    assert device().seconds(roofline(fixed_us=10), 0, 0, tokens=0) == pytest.approx(
        10e-6, rel=1e-12
    )


@pytest.mark.parametrize(
    ("tokens", "rounded"),
    [
        (1, 64),
        (64, 64),
        (65, 128),
        (128, 128),
        (129, 256),
        (256, 256),
        (257, 512),
        (512, 512),
        (513, 768),
    ],
)
def test_tokens_are_rounded_up_to_tiles(tokens, rounded):
    assert roofline(tile_tokens=(64, 128, 256)).tiled(tokens) == rounded


@pytest.mark.parametrize(
    ("tokens", "rounded"), [(1, 8), (8, 8), (9, 16), (33, 48), (48, 48), (49, 96), (97, 192)]
)
def test_few_tokens_take_no_whole_tile_where_less_is_multiplied_at_once(tokens, rounded):
    assert roofline(tile_tokens=(48, 96), least_tile_tokens=8).tiled(tokens) == rounded


@pytest.mark.parametrize(
    ("tokens", "rounded"), [(1, 4), (5, 6), (6, 6), (7, 8), (8, 8), (9, 10), (11, 12)]
)
def test_tiles_beyond_the_last_one_go_on_in_steps_of_their_own(tokens, rounded):
    assert roofline(tile_tokens=(4, 6), tile_step_tokens=2).tiled(tokens) == rounded


def test_time_steps_up_after_64_tokens():
    operation = roofline(tile_tokens=(64, 128))

    def seconds(tokens):
        return device().seconds(operation, 0, tokens * 1e12, tokens)

    assert [seconds(tokens) for tokens in (1, 64, 65, 128, 129)] == pytest.approx(
        [64, 64, 128, 128, 256], rel=1e-12
    )


def test_without_tiles_time_follows_the_tokens():
    assert [roofline().tiled(tokens) for tokens in (1, 7, 130)] == [1, 7, 130]


def test_width_is_linear_between_its_points_and_flat_outside():
    points = [
        {"tokens": 2, "ratio": 1.0},
        {"tokens": 4, "ratio": 3.0, "fixed_ratio": 2.0},
        {"tokens": 8, "ratio": 5.0},
    ]
    operation = roofline(width=points, width_source="round numbers")
    memory, fixed = zip(
        *(operation.width_ratios(tokens) for tokens in (1, 2, 3, 4, 6, 8, 100)), strict=True
    )
    assert memory == pytest.approx([1, 1, 2, 3, 4, 5, 5])
    assert fixed == pytest.approx([1, 1, 1.5, 2, 1.5, 1, 1])
    assert device().seconds(operation, 1e9, 0, tokens=3) == pytest.approx(2.0, rel=1e-12)
    # compute is not stretched
    assert device().seconds(operation, 0, 1e12, tokens=3) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"tile_tokens": (128, 64)},
        {"width": [{"tokens": 1, "ratio": 1}]},
        {"memory_efficiency": 1.1},
        {"p_norm": 0},
        {"fixed_us": -1},
    ],
)
def test_a_roofline_that_makes_no_sense_is_refused(changes):
    with pytest.raises(ValidationError):
        roofline(**changes)


def test_weight_formats_fall_back_to_the_default_product():
    plain, slow = roofline(), roofline(memory_efficiency=0.5)
    hardware = device(matmul={"default": plain, "q8_0": slow})
    assert hardware.matmul_for("q8_0") == slow
    assert hardware.matmul_for("fp16") == plain
    with pytest.raises(ValidationError, match="default"):
        device(matmul={"q8_0": slow})


MIRROR_SD = {
    "alpha_us": 10,
    "bandwidth_gb_s": 2 / 1.33333e-10 / 1e9,
}  # beta 1.33333e-10 s per word of two bytes


@pytest.mark.parametrize(
    ("tokens", "hidden", "expected_us"), [(8, 5120, 30.6827), (8, 2048, 30.2731)]
)
def test_tree_gives_the_worked_examples_of_mirror_sd(tokens, hidden, expected_us):
    one = TreeAllReduce.model_validate(MIRROR_SD).seconds(tokens * hidden * 2, ranks=8)
    assert one * 1e6 == pytest.approx(expected_us, abs=1e-4)


def test_tree_communication_totals_of_mirror_sd():
    tree = TreeAllReduce.model_validate(MIRROR_SD)
    assert 2 * 64 * tree.seconds(8 * 5120 * 2, ranks=8) * 1e6 == pytest.approx(3927.38, abs=0.01)
    assert 2 * 4 * tree.seconds(8 * 2048 * 2, ranks=8) * 1e6 == pytest.approx(242.185, abs=0.001)


def test_ring_moves_twice_all_but_one_share():
    ring = RingAllReduce.model_validate({"fixed_us": 5, "bandwidth_gb_s": 1})
    assert ring.seconds(1e3, ranks=2) == pytest.approx(5e-6 + 1e-6, rel=1e-12)
    assert ring.seconds(1e3, ranks=4) == pytest.approx(5e-6 + 1.5e-6, rel=1e-12)
    assert ring.seconds(0, ranks=4) == pytest.approx(5e-6, rel=1e-12)


@pytest.mark.parametrize(
    "form",
    [
        TreeAllReduce.model_validate(MIRROR_SD),
        RingAllReduce.model_validate({"fixed_us": 5, "bandwidth_gb_s": 1}),
    ],
)
def test_one_rank_reduces_for_nothing(form):
    assert form.seconds(1e9, ranks=1) == 0


def test_transfer_is_latency_and_bytes_over_bandwidth():
    link = Link.model_validate({"latency_us": 10, "bandwidth_gb_s": 2})
    assert link.transfer_seconds(4000) == pytest.approx(10e-6 + 2e-6, rel=1e-12)
    assert link.transfer_seconds(0) == pytest.approx(10e-6, rel=1e-12)
    assert link.all_reduce.tree is None
    assert link.all_reduce.ring is None


@pytest.mark.parametrize(("launch", "expected_s"), [("asynchronous", 3.0), ("synchronous", 5.0)])
def test_host_and_device_overlap_when_launches_are_asynchronous(launch, expected_s):
    zero = dict.fromkeys(("host_us_per_layer", "host_us_per_pass", "sampling_us"), 0)
    one = dict.fromkeys(("small_operations_ratio", "kv_traffic_ratio"), 1)
    engine = Engine.model_validate({"launch": launch} | zero | one)
    assert engine.wall_seconds(2.0, 3.0) == expected_s
