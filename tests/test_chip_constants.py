"""What a card that borrows kernels makes of their constants: cycles at its own clock, blocks on its
own multiprocessors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from simulator.core.cost.borrowing import BY_CHIP, lend
from simulator.core.cost.device import Device
from simulator.core.plain import PlainData
from simulator.core.quantities import provenance
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.schema import validate

CARD = """about: "A card of which nothing is known but its datasheet"
maker: NVIDIA
like: h100_sxm
memory_gb: 48
memory_bandwidth_gb_s: 1000
peak_tflops: 200
"""
CHIP = "clock_ghz: 0.99\nmultiprocessors: 66\n"
"""Half of an H100's clock and multiprocessors."""


def card(folder: Path, text: str) -> Device:
    """Return the device of a file."""
    devices = folder / "hardware_profiles" / "devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / "card.yaml").write_text(text)
    names = Catalogue((folder,))
    return validate(Device, names.content("device", names.names("device")["card"]))


def shipped(name: str) -> Device:
    names = Catalogue()
    return validate(Device, names.content("device", names.names("device")[name]))


def test_half_the_clock_doubles_what_a_kernel_takes_and_half_the_chip_what_a_block_does(
    tmp_path: Path,
) -> None:
    half, whole = card(tmp_path, CARD + CHIP), shipped("h100_sxm")
    for ours, theirs in (
        (half.attention.decode, whole.attention.decode),
        (half.attention.over("fp8").decode, whole.attention.over("fp8").decode),
        (half.latent_attention.decode, whole.latent_attention.decode),
    ):
        assert ours.fixed_us.value == pytest.approx(2 * theirs.fixed_us.value)
        assert ours.head_us.value == pytest.approx(2 * theirs.head_us.value)
        assert ours.key_us == theirs.key_us.model_copy(
            update={"source": ours.key_us.source, "confidence": "borrowed"}
        )
    for name in ("default", "fp8"):
        ours, theirs = half.matmul[name].fixed_us, whole.matmul[name].fixed_us
        assert ours.value == pytest.approx(2 * theirs.value)
        assert ours.source.endswith("; x 2: clock_ghz")
    for ours, theirs in (
        (half.attention.prefill, whole.attention.prefill),
        (half.attention.over("fp8").prefill, whole.attention.over("fp8").prefill),
    ):
        assert ours.fixed_us.value == theirs.fixed_us.value
        assert ours.head_us.value == theirs.head_us.value
    experts = half.experts["default"].fixed_us.value
    assert experts == whole.experts["default"].fixed_us.value
    small = half.small_operations.fixed_us.value
    assert small == whole.small_operations.fixed_us.value


@pytest.mark.parametrize(
    "text",
    [
        CARD,  # says nothing of its chip
        CARD.replace("NVIDIA", "AMD") + CHIP,
        CARD + "clock_ghz: 1.98\nmultiprocessors: 132\n",
        CARD + "clock_ghz: fast\n",
    ],
)
def test_constants_stay_where_nothing_says_how_the_chips_differ(text: str, tmp_path: Path) -> None:
    if "fast" in text:
        names = Catalogue()
        base = names.content("device", names.names("device")["h100_sxm"]).data
        before = base["attention"]["decode"]["fixed_us"]["value"]
        lend(base, {"maker": "NVIDIA", "clock_ghz": "fast"}, "h100_sxm")
        assert base["attention"]["decode"]["fixed_us"]["value"] == before
        return
    ours, theirs = card(tmp_path, text), shipped("h100_sxm")
    for part in ("decode", "prefill"):
        mine, other = getattr(ours.attention, part), getattr(theirs.attention, part)
        assert mine.fixed_us.value == other.fixed_us.value
        assert mine.head_us.value == other.head_us.value


@pytest.mark.parametrize("name", ["h100_sxm", "h200_sxm", "l40s", "rtx_pro_6000", "b200_sxm"])
def test_a_card_with_measured_curves_scales_nothing(name: str) -> None:
    rows = provenance(shipped(name))
    assert not [row for row in rows if str(row["source"]).endswith(tuple(BY_CHIP.values()))]


@pytest.mark.parametrize("between", ["", "multiprocessors: 264\n"])
def test_a_card_between_two_others_passes_on_the_clock_that_its_constants_are_of(
    between: str, tmp_path: Path
) -> None:
    """Half the clock and half the chip of an H100, whatever lies between: all constants double."""
    devices = tmp_path / "hardware_profiles" / "devices"
    devices.mkdir(parents=True)
    (devices / "between.yaml").write_text(CARD + between)
    last = card(tmp_path, CARD.replace("h100_sxm", "between") + CHIP)
    first = shipped("h100_sxm").attention.decode
    assert last.attention.decode.fixed_us.value == pytest.approx(2 * first.fixed_us.value)
    assert last.attention.decode.head_us.value == pytest.approx(2 * first.head_us.value)


@given(st.floats(0.5, 4.0), st.floats(0.5, 4.0), st.integers(1, 400), st.integers(1, 400))
def test_lending_back_and_forth_changes_nothing(
    clock: float, other_clock: float, multiprocessors: int, others: int
) -> None:
    def chip(ghz: float, count: int) -> PlainData:
        return {"clock_ghz": ghz, "multiprocessors": {"value": count}}

    def number(value: float) -> PlainData:
        return {"value": value, "source": "made up", "confidence": "measured"}

    part = {"fixed_us": number(10.0), "head_us": number(0.5)}
    base: PlainData = {"attention": {"decode": part}, **chip(clock, multiprocessors)}
    lend(base, chip(other_clock, others), "here")
    base |= chip(other_clock, others)
    lend(base, chip(clock, multiprocessors), "there")
    after = base["attention"]["decode"]
    assert after["fixed_us"]["value"] == pytest.approx(10.0)
    assert after["head_us"]["value"] == pytest.approx(0.5)
