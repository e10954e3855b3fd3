"""Which measured card another one should be like, and what a list says of those without
measurements.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.cost.device import Device
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.derived import kernels_of
from simulator.inputs.schema import validate
from simulator.report.pages.measured_cards import answer, in_common, profile
from simulator.studies.measured_cards import Sheet, measured_cards, near_card, near_sheet

CATALOGUE = Catalogue()


@cache
def measured() -> tuple[Device, ...]:
    return tuple(measured_cards(CATALOGUE))


def test_measured_cards_have_products_of_their_own() -> None:
    names = {card.name for card in measured()}
    assert {"a100_80g_sxm", "h100_sxm", "rtx_3090", "rtx_4090", "m2_ultra_gpu"} <= names
    assert not {"gb10", "l40", "xeon_16_cores", "m2_ultra_npu"} & names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rtx_4070", "rtx_4090"),
        ("rtx_3060_12g", "rtx_3090"),
        ("rtx_5080", "rtx_pro_6000"),
        ("gb10", "rtx_pro_6000"),
        ("h100_pcie", "h100_94g_sxm"),
        ("m4_max", "m2_ultra_gpu"),
        ("v100_16g_sxm", "rtx_3090"),
    ],
)
def test_the_nearest_card_has_the_architecture_or_the_maker(name: str, nearest: str) -> None:
    found = near_card(name, CATALOGUE)
    assert found.nearest[0].name == nearest
    assert not found.measured
    shared = [in_common(found.sheet, card) for card in found.nearest]
    order = ["architecture", "maker", "nothing"]
    assert shared == sorted(shared, key=order.index)


def test_a_measured_card_is_not_near_itself() -> None:
    found = near_card("rtx_4090", CATALOGUE)
    assert found.measured
    assert "rtx_4090" not in {card.name for card in found.nearest}
    assert answer(found).endswith("rtx_4090 has kernels of its own, which were measured.")


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_sheet_with_the_numbers_of_a_measured_card_is_nearest_to_it(data: st.DataObject) -> None:
    card = data.draw(st.sampled_from(measured()))
    sheet = Sheet(
        card.memory_bandwidth_gb_s.value,
        card.peak_tflops.value,
        maker=card.maker.upper(),
        architecture=card.architecture.lower(),
        year=data.draw(st.none() | st.integers(2015, 2030)),
    )
    found = near_sheet("", sheet, CATALOGUE)
    first = found.nearest[0]
    assert (first.name, first.bandwidth_ratio, first.peak_ratio) == (card.name, 1.0, 1.0)
    assert (found.sheet.maker, found.sheet.architecture) == (card.maker, card.architecture)


def test_years_decide_among_other_architectures_and_numbers_among_other_makers() -> None:
    numbers = (936.0, 71.0)  # those of an RTX 3090
    newest = near_sheet(
        "", Sheet(*numbers, maker="NVIDIA", architecture="Rubin", year=2026), CATALOGUE
    )
    assert newest.nearest[0].architecture == "Blackwell"
    assert near_sheet("", Sheet(*numbers, maker="Huawei", year=2026), CATALOGUE).nearest[
        0
    ].name == ("rtx_3090")


def test_the_beginning_of_an_architecture_is_enough() -> None:
    sheet = near_sheet("", Sheet(500, 50, maker="nvidia", architecture="Ada"), CATALOGUE).sheet
    assert (sheet.maker, sheet.architecture) == ("NVIDIA", "Ada Lovelace")


def test_the_printed_profile_is_one(tmp_path: Path) -> None:
    found = near_sheet("mine", Sheet(500, 50, 12.9, "AMD", "RDNA 4", 2025), CATALOGUE)
    devices = tmp_path / "hardware_profiles" / "devices"
    devices.mkdir(parents=True)
    (devices / "mine.yaml").write_text(profile(found))
    own = Catalogue((tmp_path,))
    card = validate(Device, own.content("device", own.names("device")["mine"]))
    assert (card.memory_gb.value, card.memory_bandwidth_gb_s.value) == (12.9, 500)
    assert card.spread is not None
    assert card.spread.value == found.nearest[0].spread == 0.3
    assert kernels_of(devices / "mine.yaml") == (found.nearest[0].name, 0.3, False)


def listed(*words: str) -> str:
    result = CliRunner().invoke(main, ["list", *words], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "--json" in words or max(map(len, result.output.splitlines())) <= 80
    return result.output


def test_the_command_prints_cards_in_order_and_a_profile() -> None:
    words = listed("device", "--like", "rtx_4070")
    assert "Nearest to rtx_4070 is rtx_4090: of the same architecture, Ada Lovelace" in words
    assert words.index("\nl40s") < words.index("\nh100_sxm") < words.index("\nm2_ultra_gpu")
    assert "like: rtx_4090\nspread: another chip\n" in words
    sheet = ["--memory-bandwidth", "504", "--peak-tflops", "58.3", "--maker", "NVIDIA"]
    numbers = listed("device", *sheet, "--architecture", "Ada Lovelace", "--year", "2023", "--json")
    assert (
        json.loads(numbers)["nearest"]
        == json.loads(listed("device", "--like", "rtx_4070", "--json"))["nearest"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["device", "--like", "rtx_4071"], "there is no device 'rtx_4071'; did you mean"),
        (["device", "--peak-tflops", "3"], "expected a name, or both --memory-bandwidth and"),
        (["device", "--maker", "AMD"], "expected a name, or both --memory-bandwidth and"),
        (["engine", "--like", "vllm"], "specsim list device --like NAME"),
        (["--like", "gb10"], "specsim list device --like NAME"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["list", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_a_name_that_is_not_here_is_refused_from_python_too() -> None:
    with pytest.raises(BadInput, match="there is no device"):
        near_card("no_such_card", CATALOGUE)


def test_a_list_says_whose_kernels_a_card_takes_and_how_far_off_it_may_be() -> None:
    words = " ".join(listed("device").split())
    assert "gb10 2025 derived from rtx_pro_6000, ±19 %: NVIDIA GB10" in words
    assert "rtx_5090 2025 derived from rtx_pro_6000, ±6 %: NVIDIA" in words
    assert "rtx_4090 2022 NVIDIA GeForce RTX 4090." in words
    assert "l40 2022 not measured: NVIDIA L40," in words
    assert "derived" not in json.loads(listed("device", "--json"))["device"]["gb10"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("like: l40s\nspread: same chip\n", ("l40s", 0.06)),
        ("like: l40s\nmemory_gb: 3\nspread: another maker\n", ("l40s", 0.3)),
        ("memory_gb: 3\nlike: l40s\nspread: {value: 0.5}\n", ("l40s", 0.5)),
        ("like: l40s\nspread: 0.4\n", ("l40s", 0.4)),
        ("like: l40s\n", ("l40s", 0.19)),
        ("like: l40s\nspread: what\n", (None, 0)),
        ("like: l40s\nmatmul: {}\n", (None, 0)),
        ("like: l40s\nspread: same chip\nmatmul: {}\n", (None, 0)),
        ("memory_gb: 3\n", (None, 0)),
    ],
)
def test_what_a_profile_borrows_is_read_from_its_lines(
    tmp_path: Path, lines: str, expected: tuple[str | None, float]
) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(f"about: a card\n{lines}")
    assert kernels_of(path) == (*expected, False)


def test_an_architecture_says_who_makes_a_card() -> None:
    near = near_sheet("", Sheet(300.0, 60.0, architecture="Ada Lovelace"), CATALOGUE)
    assert near.sheet.maker == "NVIDIA"
    assert near.nearest[0].architecture == "Ada Lovelace"
    nobody = near_sheet("", Sheet(300.0, 60.0, architecture="Round"), CATALOGUE)
    assert in_common(nobody.sheet, nobody.nearest[0]) == "not known"
