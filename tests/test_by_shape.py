"""``benchmarks/by_shape.py`` and ``benchmarks/derived.py`` on made-up tables: the rule that splits
shapes, decades of sizes, and spreads that hold what they should.
"""

from __future__ import annotations

from math import expm1, log1p

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from benchmarks import by_shape, derived
from simulator.core.cost import borrowing
from simulator.core.cost.device import Link
from simulator.evidence.calibrate.measurements import Table, table
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.schema import validate


def link(name: str) -> Link:
    names = Catalogue()
    return validate(Link, names.content("link", names.names("link")[name]))


def reduces(time_us: dict[float, float], implementation: str = "nccl") -> Table:
    """Return all-reduces over two devices by size in KiB."""
    rows = [
        {
            "operation": "all_reduce",
            "implementation": implementation,
            "ranks": 2,
            "size_bytes": kib * 1024,
            "time_us": us,
        }
        for kib, us in time_us.items()
    ]
    return table(rows).assign(source="vllm")


def test_names_are_split_by_a_rule_that_no_time_decides() -> None:
    names = pd.Series(["4096x4096", "4096x12288", "8192x8192", "4096x4096"])
    first = by_shape.odd(names)
    assert (by_shape.odd(names) == first).all()
    assert first[0] == first[3]
    many = pd.Series([f"{width}x4096" for width in range(256, 65_536, 256)])
    assert 0.4 < by_shape.odd(many).mean() < 0.6


def test_a_decade_is_asked_of_all_other_sizes() -> None:
    """10 us and one more for each KiB: a line passes what is left out; a hump in the decade from
    10 KiB does not reach it.
    """
    sizes = [2.0**power for power in range(-1, 14)]
    line = {kib: 10.0 + kib for kib in sizes}
    (straight,) = by_shape.decades("made_up", link("nvlink_b200"), reduces(line))
    assert straight.mape == pytest.approx(0.0, abs=1e-3)
    assert straight.shapes == 10
    hump = line | {32.0: 2 * line[32.0]}
    (humped,) = by_shape.decades("made_up", link("nvlink_b200"), reduces(hump))
    assert humped.mape == pytest.approx(50.0 / 10, rel=1e-3)


def test_errors_are_counted_by_range_and_by_shape() -> None:
    asked = pd.DataFrame(
        {
            "tokens": [1, 64, 65],
            "shape": ["a", "b", "b"],
            "seconds": [1.0, 1.0, 1.0],
            "predicted": [1.1, 0.9, 2.0],
        }
    )
    narrow, wide = by_shape.errors("card", "products", asked, "shape", ((1, 64), (1, 65)))
    assert (narrow.rows, narrow.shapes) == (2, 2)
    assert narrow.mape == pytest.approx(10.0)
    assert narrow.bias == pytest.approx(0.0)
    assert wide.mape == pytest.approx(40.0)


def missed(logs: list[float], card: str = "l40s") -> derived.Missed:
    return derived.Missed(card, "rtx_pro_6000", "products, fp16", np.array(logs), np.array(logs))


@given(st.lists(st.floats(0.001, 1.0), min_size=5, max_size=50))
def test_a_spread_holds_the_share_that_it_is_named_after(sizes: list[float]) -> None:
    width = derived.DEVIATIONS * log1p(derived.spread([missed(sizes)]))
    inside = sum(size <= width * (1 + 1e-9) for size in sizes)
    assert inside / len(sizes) >= derived.SHARE - 1e-9
    below = sum(size < width * (1 - 1e-9) for size in sizes)
    assert below / len(sizes) < derived.SHARE + 1e-9


def test_each_card_weighs_the_same_in_a_spread() -> None:
    """A thousand small errors of one card do not hide ten large ones of another."""
    small, large = missed([0.01] * 1000), missed([0.3] * 10, "rtx_pro_6000")
    assert derived.spread([small, large]) == pytest.approx(expm1(0.3 / derived.DEVIATIONS))


def test_an_operation_has_the_spread_of_its_entry_in_a_profile() -> None:
    entries = {
        operation: missed([0.1])._replace(operation=operation).entry
        for operation in ("products, fp16", "products, fp8", "decode, fp8 cache", "experts, int4")
    }
    assert list(entries.values()) == ["default", "fp8", "attention", "experts"]


def test_constants_are_those_of_the_other_card_for_a_while() -> None:
    """An A100 from an H100: 1.98 GHz over 1.41, 132 multiprocessors over 108."""
    origin = derived.profile("h100_sxm").attention.decode
    with derived.constants_as_borrowed():
        as_borrowed = derived.derived("a100_80g_sxm", "h100_sxm").attention.decode
    scaled = derived.derived("a100_80g_sxm", "h100_sxm").attention.decode
    assert as_borrowed.fixed_us.value == origin.fixed_us.value
    assert scaled.fixed_us.value / origin.fixed_us.value == pytest.approx(1.98 / 1.41)
    assert scaled.head_us.value / origin.head_us.value == pytest.approx(132 / 108)
    assert set(borrowing.BY_CHIP) == {"fixed_us", "head_us"}
