"""The cards that people rent: what their files say, what fits them, and how they are listed."""

from __future__ import annotations

import re
from math import log2
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.device import Device
from simulator.core.quantities import provenance
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.inputs.document import head, read
from simulator.inputs.schema import validate
from simulator.scenario import load

CATALOGUE = Catalogue()
FILES = CATALOGUE.names("device")
DERIVED = sorted(
    name for name, path in FILES.items() if "maker" in head(path, "") and "like" in read(path).data
)
CARDS = [
    name
    for name in DERIVED
    if {"spread", "memory_gb"} <= set(data := read(FILES[name]).data)
    and not {"matmul", "attention"} & set(data)
]
"""Cards of which nothing was measured: numbers of a datasheet on those of another card."""


def device(name: str) -> Device:
    return validate(Device, CATALOGUE.content("device", FILES[name]))


def listed(*words: str) -> list[str]:
    result = CliRunner().invoke(main, ["list", *words], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return [
        line for line in result.output.splitlines() if not line.startswith("   ")
    ]  # a second line is indented


def test_there_are_cards_that_people_rent() -> None:
    assert {
        "h100_pcie",
        "h100_nvl",
        "h20",
        "gh200_96g",
        "b300_sxm",
        "mi300x",
        "a100_40g_sxm",
        "m3_ultra",
    } <= set(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_derived_card_is_a_line_for_each_number_calls_nothing_calibrated_and_is_wider(
    name: str,
) -> None:
    card, text = device(name), FILES[name].read_text()
    assert len(text.splitlines()) <= 16
    rows = {str(row["parameter"]): str(row["confidence"]) for row in provenance(card)}
    # rows of a generation may have been measured on another of its cards, or on this one
    kernels = {name: known for name, known in rows.items() if not name.startswith("rows.")}
    assert not {"calibrated", "measured"} & set(kernels.values())
    own = {"memory_gb", "memory_bandwidth_gb_s", "peak_tflops", "power_w"}
    assert "borrowed" not in {rows[number] for number in own & set(rows)}
    origin = device(str(read(FILES[name]).data["like"]))
    assert card.spread is not None
    assert card.spread.value > (origin.spread.value if origin.spread else 0.0)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_card_states_its_own_multiprocessors_and_clock(name: str) -> None:
    """A borrowed number of multiprocessors would cut caches for another card."""
    card = device(name)
    if card.kind == "cpu" or name == "m2_ultra_npu":
        return
    assert card.multiprocessors is not None
    assert card.multiprocessors.confidence != "borrowed"
    assert card.clock_ghz is not None


OWN_CLOCK_OF_PRODUCTS = ("b300", "gh200", "h20", "h100", "h200", "h800", "gaudi", "tpu", "b200")
"""Beginnings of names of cards whose products run at another clock, or in units of their own."""


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_peak_is_a_power_of_two_operations_a_cycle_of_a_multiprocessor(name: str) -> None:
    """Multiprocessors, clock and peak come from different lines of a datasheet, so that a slip in
    one of them shows.
    """
    card = device(name)
    if name.startswith(OWN_CLOCK_OF_PRODUCTS) or card.kind != "gpu":
        return
    assert card.multiprocessors is not None
    assert card.clock_ghz is not None
    cycles = card.multiprocessors.value * card.clock_ghz.value * 1e9
    operations = card.peak_tflops.value * 1e12 / cycles
    power = 2 ** round(log2(operations))
    assert 256 <= power <= 4096
    assert operations == pytest.approx(power, rel=0.06)


def test_a_price_says_on_which_day_it_was_read() -> None:
    prices = {
        name: card.price_usd_per_hour for name in FILES if (card := device(name)).price_usd_per_hour
    }
    assert len(prices) > 20
    undated = [
        name
        for name, price in prices.items()
        if price and not re.search(r"read 20\d\d-\d\d-\d\d", price.source)
    ]
    assert undated == []


def test_memory_is_what_the_card_reports() -> None:
    reported_mib = {
        "a100_80g_sxm": 81_920,
        "a800_80g_sxm": 81_920,
        "h100_pcie": 81_559,
        "h800_pcie_80g": 81_559,
        "h100_nvl": 95_830,
        "b200_sxm": 183_359,
        "a100_40g_sxm": 40_960,
        "l40": 46_068,
        "rtx_3090": 24_576,
    }
    for name, mib in reported_mib.items():
        assert device(name).memory_gb.value == pytest.approx(mib * 2**20 / 1e9, rel=1e-3)


@pytest.mark.parametrize("name", ["a100_80g_sxm", "h100_pcie"])
def test_a_model_of_70b_in_fp16_fits_two_cards_of_80_gb_with_a_batch(name: str) -> None:
    """Weights take 70.6 GB on each, and each sequence of 2,304 tokens 0.38 GB."""
    sets = [
        "target.model=llama_3_1_70b",
        "target.tensor_parallel=2",
        "requests.prompt_tokens=2048",
        "requests.output_tokens=256",
    ]
    target = [f"target.device={name}", "target.link=nvlink_a100", "requests.concurrency=16"]
    loaded = load("autoregressive_qwen3_32b_a100", [*sets, *target])
    (group,) = loaded.scenario.device_groups
    assert group.needed_gb(16 * 2_304) <= group.limit_gb


def test_devices_are_listed_by_maker_and_year_in_80_columns() -> None:
    lines = listed("device")
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines[1:]]
    assert sorted(names) == sorted(FILES)
    heads = {name: head(FILES[name], "") for name in names}
    assert all({"maker", "year"} <= set(heads[name]) for name in names)
    assert [(heads[name]["maker"].lower(), heads[name]["year"]) for name in names] == sorted(
        (heads[name]["maker"].lower(), heads[name]["year"]) for name in names
    )
    assert any(line.split()[1] == "2024" for line in lines if line.startswith("  b200_sxm"))


def test_a_word_chooses_from_a_list() -> None:
    assert [line.split()[0] for line in listed("device", "B300")[1:]] == ["b300_sxm"]
    assert [line.split()[0] for line in listed("link", "infiniband")] == [
        "link",
        "infiniband_hdr",
        "infiniband_ndr",
    ]
    assert listed("device", "no such card") == ["device (0)"]


def test_the_page_about_a_card_of_ones_own_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (shipped() / "docs" / "how-to" / "own_card.md").read_text()
    text = page.split("```\n")[1]
    assert len(text.splitlines()) <= 13
    (tmp_path / "my_card.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    sets = ["A:target.device=h100_sxm", "B:target.device=my_card.yaml", "requests.count=2"]
    words = [word for change in sets for word in ("--set", change)]
    done = CliRunner().invoke(main, ["compare", "autoregressive_qwen3_32b_a100", *words, "--json"])
    assert done.exit_code == 0, done.output
    assert (
        load("autoregressive_qwen3_32b_a100", ["target.device=my_card.yaml"]).scenario.target
        is not None
    )


def test_no_two_scenarios_are_cut_to_the_same_words() -> None:
    """Names stand whole, descriptions on two lines at most; sorted by name where that is asked
    for.
    """
    result = CliRunner().invoke(main, ["list", "scenario", "--sort"], env={"COLUMNS": "80"})
    head, *lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    entries = re.split(r"\n  (?=\S)", "\n" + "\n".join(lines))[1:]
    assert head == f"scenario ({len(entries)})"
    assert len({" ".join(entry.split()[1:]) for entry in entries}) == len(entries)
    assert [entry.split()[0] for entry in entries] == sorted(Catalogue().names("scenario"))
