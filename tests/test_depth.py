"""Products whose thread blocks pass their inputs one after the other: what that takes, on how many
ranks, and that a fit finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from simulator.core.cost.device import Device
from simulator.core.cost.kernels import products
from simulator.core.cost.roofline import TILE_OUTPUTS, Roofline
from simulator.core.faults import BadInput
from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.fit import Form
from simulator.evidence.calibrate.importers import product
from simulator.evidence.calibrate.measurements import Table, table
from tests.test_cost import DEVICE, place

PASSING = {"fixed_us": 0.0, "memory_efficiency": 1.0, "compute_efficiency": 1.0, "p_norm": 1.0}
DEEP = PASSING | {"depth_us": 10.0}
"""A block passes 1,024 inputs in 10 us."""


def card(**matmul: Any) -> dict[str, Any]:
    """Return a card of two multiprocessors."""
    return DEVICE | {"multiprocessors": 2.0, "matmul": {"default": PASSING | matmul}}


def passing_us(inputs: float, outputs: float, ranks: int, **changes: Any) -> float:
    """Return what the depth adds to a product on one of some ranks, in us."""
    times = []
    for depth in ({"depth_us": 10.0}, {}):
        on = place(device=card(**depth))
        rows = products(on, "blocks", ranks)
        times.append(rows.timed(*rows.work(inputs, outputs, 1.0, **changes)))
    deep, plain = times
    return 1e6 * (deep - plain)


@pytest.mark.parametrize(
    ("inputs", "outputs", "ranks", "cut", "us"),
    [
        (1024, 256, 1, "outputs", 10.0),  # two tiles, one on each multiprocessor
        (1024, 257, 1, "outputs", 20.0),  # a third one is a second wave
        (2048, 512, 1, "outputs", 40.0),
        (2048, 512, 2, "outputs", 20.0),  # half of the tiles on each rank
        (2048, 512, 2, "inputs", 20.0),  # half of the way
        (2048, 512, 4, "inputs", 10.0),
    ],
)
def test_waves_of_tiles_pass_the_inputs(
    inputs: int, outputs: int, ranks: int, cut: str, us: float
) -> None:
    assert passing_us(inputs, outputs, ranks, cut=cut) == pytest.approx(us, rel=1e-6)


@given(st.integers(1, 65_536), st.integers(1, 65_536), st.integers(1, 200))
def test_more_multiprocessors_or_fewer_outputs_never_take_longer(
    inputs: int, outputs: int, multiprocessors: int
) -> None:
    deep = Roofline.model_validate(DEEP)
    taken = deep.passing_s(inputs, outputs, multiprocessors)
    assert deep.passing_s(inputs, outputs, multiprocessors + 1) <= taken
    assert deep.passing_s(inputs, outputs + TILE_OUTPUTS, multiprocessors) >= taken
    assert taken >= inputs / 1024 * 9.999999e-6


def test_without_multiprocessors_all_tiles_run_at_once() -> None:
    deep = Roofline.model_validate(DEEP)
    assert deep.passing_s(1024, 65_536, 0.0) == pytest.approx(10e-6)


def timed(depth_us: float) -> tuple[Device, Table]:
    """Return a card of 64 multiprocessors and products that take what it says."""
    fast = {"multiprocessors": 64.0, "memory_bandwidth_gb_s": 1_000.0, "peak_tflops": 100.0}
    device = Device.model_validate(card() | fast)
    rows = []
    for inputs in (512, 1024, 4096, 16_384):
        for outputs in (512, 2048, 8192):
            for tokens in (1, 2, 4):
                rows.append(product("product", tokens, inputs, outputs, 1.0))
    every = table(rows).assign(source="made up", model="made up")
    numbers = (3.0, 0.8, 0.5, 2.0, depth_us)
    made = fit.roofline(numbers, Form((64,), (), depth=True))
    return device, every.assign(time_us=1e6 * fit.seconds(device, made, every))


def test_a_fit_finds_the_depth_that_made_the_times() -> None:
    device, rows = timed(5.0)
    found = fit.products(device, rows, Form((64,), (), depth=True))
    assert found.depth_us is not None
    assert found.depth_us.value == pytest.approx(5.0, rel=0.1)
    plain = fit.products(device, rows, Form((64,)))
    assert plain.depth_us is None
    deep_error = np.abs(fit.seconds(device, found, rows) / fit.measured(rows) - 1.0).mean()
    plain_error = np.abs(fit.seconds(device, plain, rows) / fit.measured(rows) - 1.0).mean()
    assert deep_error < 0.01 < plain_error


def test_a_fit_starts_from_the_depth_of_another() -> None:
    device, rows = timed(5.0)
    form = Form((64,), (), depth=True)
    first = fit.products(device, rows, form)
    again = fit.products(device, rows, form, first)
    assert again.depth_us is not None
    assert again.depth_us.value == pytest.approx(5.0, rel=0.1)


def test_products_of_no_named_sides_are_refused() -> None:
    _, rows = timed(5.0)
    with pytest.raises(BadInput, match="inputs and outputs"):
        fit.sides(rows.assign(shape="large"))
