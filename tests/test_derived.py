"""A profile that starts from another one by ``like``: what it borrows, what it says of that, and
what is a slip.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.device import Device
from simulator.core.faults import BadInput
from simulator.core.quantities import provenance
from simulator.core.relation import BORROWED_SPREADS, OPERATION_SPREADS, Relation
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate

CARD = """about: "A card of which nothing is known but its datasheet"
like: a100_80g_sxm
memory_gb: {value: 48, source: "its datasheet", confidence: datasheet}
memory_bandwidth_gb_s: {value: 1000, source: "its datasheet", confidence: datasheet}
peak_tflops: {value: 200, source: "its datasheet", confidence: datasheet}
power_w: 300
"""


def catalogue(folder: Path, **files: str) -> Catalogue:
    devices = folder / "hardware_profiles" / "devices"
    devices.mkdir(parents=True)
    for name, text in files.items():
        (devices / f"{name}.yaml").write_text(text)
    return Catalogue((folder,))


def device(names: Catalogue, name: str) -> Device:
    return validate(Device, names.content("device", names.names("device")[name]))


def test_four_numbers_of_a_datasheet_make_a_device(tmp_path: Path) -> None:
    names = catalogue(tmp_path, card=CARD)
    card, origin = device(names, "card"), device(names, "a100_80g_sxm")
    assert (card.memory_gb.value, card.memory_bandwidth_gb_s.value, card.peak_tflops.value) == (
        48,
        1000,
        200,
    )
    assert card.attention.decode.fixed_us.value == origin.attention.decode.fixed_us.value
    assert card.matmul["default"].width == origin.matmul["default"].width


def test_what_is_borrowed_says_from_whom_and_is_never_called_calibrated(tmp_path: Path) -> None:
    rows = {
        str(row["parameter"]): row
        for row in provenance(device(catalogue(tmp_path, card=CARD), "card"))
    }
    own = {"memory_gb", "memory_bandwidth_gb_s", "peak_tflops", "power_w"}
    stated = {
        name for name in rows if not str(rows[name]["source"]).startswith("assumed: ")
    }  # by the schema, for any device
    assert {name for name, row in rows.items() if row["confidence"] == "borrowed"} == stated - own
    assert all(
        str(rows[name]["source"]).startswith("borrowed from a100_80g_sxm") for name in stated - own
    )
    assert rows["power_w"] == {
        "parameter": "power_w",
        "value": 300.0,
        "source": "not stated",
        "confidence": "assumed",
    }


def test_the_spread_of_a_measured_device_is_not_borrowed(tmp_path: Path) -> None:
    names = catalogue(tmp_path, card=CARD)
    assert device(names, "a100_80g_sxm").spread is not None
    assert device(names, "card").spread is None


@pytest.mark.parametrize("relation", sorted(BORROWED_SPREADS))
def test_a_spread_may_say_how_the_card_is_related_to_its_origin(
    tmp_path: Path, relation: Relation
) -> None:
    names = catalogue(tmp_path, card=f"{CARD}spread: {relation}\n")
    spread = device(names, "card").spread
    assert spread is not None
    assert (spread.value, spread.source, spread.confidence) == BORROWED_SPREADS[relation]


def test_the_further_the_relation_the_wider_the_spread() -> None:
    same, other_chip, other_maker = (
        BORROWED_SPREADS[relation].value
        for relation in ("same chip", "another chip", "another maker")
    )
    assert same < other_chip < other_maker


def test_shipped_cards_say_how_they_are_related_to_their_origins() -> None:
    """A relation is stated by cards without kernels of their own, and tells makers apart."""
    names = Catalogue()
    related = {
        name: data
        for name, path in names.names("device").items()
        if isinstance((data := read(path).data).get("spread"), str)
    }
    assert len(related) > 25
    for name, data in related.items():
        assert "matmul" not in data, name
        elsewhere = device(names, name).maker != device(names, data["like"]).maker
        assert (data["spread"] == "another maker") == elsewhere, name


def test_a_chain_keeps_the_first_home_of_a_number(tmp_path: Path) -> None:
    names = catalogue(tmp_path, card=CARD, cheaper="like: card\nmemory_gb: 24\n")
    cheaper = device(names, "cheaper")
    assert cheaper.memory_gb.value == 24
    assert cheaper.attention.decode.fixed_us.source.startswith(
        "borrowed from a100_80g_sxm (calibrated)"
    )
    assert cheaper.peak_tflops.source == "borrowed from card (datasheet): its datasheet"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "like: a100_80g_sxn\n",
            "card.yaml:1:1: like: there is no device 'a100_80g_sxn'; did you mean 'a100_80g_sxm'?",
        ),
        ("like: card\n", "card.yaml:1:1: like: comes back to"),
        ("like: a100_80g_sxm\npeak_tflop: 3\n", "peak_tflop"),
        (
            "like: a100_80g_sxm\nspread: same chop\n",
            "card.yaml:2:1: spread: expected a number, or one of same chip, another chip, another "
            "maker; got 'same chop'",
        ),
    ],
)
def test_a_slip_is_named_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        device(catalogue(tmp_path, card=text), "card")
    assert words in str(error.value)


PROTECTED = """like: a100_80g_sxm
ecc_data_share: {value: 0.9, source: "its memory holds its own ECC", confidence: datasheet}
"""


def test_a_card_whose_memory_holds_its_ecc_carries_less_data_and_one_without_more(
    tmp_path: Path,
) -> None:
    """0.9 of the bandwidth carries data: shares of the sheet are 0.9 times as large, of decoding
    too, and back again.
    """
    plain = "like: protected\necc_data_share: 1\n"
    names = catalogue(
        tmp_path,
        card=CARD,
        protected=PROTECTED,
        plain=plain,
        further="like: protected\nmemory_gb: 24\n",
    )
    origin, protected, unprotected, further = (
        device(names, name) for name in ("a100_80g_sxm", "protected", "plain", "further")
    )
    share = origin.matmul["default"].memory_efficiency.value
    assert protected.matmul["default"].memory_efficiency.value == pytest.approx(0.9 * share)
    assert unprotected.matmul["default"].memory_efficiency.value == pytest.approx(share)
    assert further.matmul["default"].memory_efficiency.value == pytest.approx(0.9 * share)
    ours, theirs = (one.attention.decode.memory_efficiency.value for one in (protected, origin))
    assert ours == pytest.approx(0.9 * theirs)
    assert (
        protected.matmul["default"].compute_efficiency.value
        == origin.matmul["default"].compute_efficiency.value
    )
    assert protected.matmul["default"].memory_efficiency.source.endswith("; x 0.9: ecc_data_share")


@pytest.mark.parametrize("share", ["0", "1.5", "much", "{value: -1}"])
def test_a_share_that_is_none_is_refused(share: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ecc_data_share"):
        device(catalogue(tmp_path, card=CARD + f"ecc_data_share: {share}\n"), "card")


def test_a_beginning_that_one_name_has_shows_it_and_an_ambiguous_one_does_not() -> None:
    shown = CliRunner().invoke(main, ["show", "h200"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("device h200_sxm ")
    assert CliRunner().invoke(main, ["show", "h100"]).exit_code == 2


def test_show_says_of_every_number_where_it_comes_from(tmp_path: Path) -> None:
    catalogue(tmp_path, card=CARD)
    shown = CliRunner().invoke(
        main, ["show", "card", "--catalogue", str(tmp_path)], env={"COLUMNS": "100"}
    )
    assert shown.exit_code == 0, shown.output
    assert "peak_tflops = 200   datasheet: its datasheet" in shown.output
    assert "Derived from a100_80g_sxm, whose kernels it takes" in shown.output
    assert "±19 % of a layer's time" in " ".join(shown.output.split())
    lines = shown.output.splitlines()
    borrowed = "  attention.decode.p_norm = 2.6   borrowed from a100_80g_sxm (calibrated)"
    assert lines.index(borrowed) > lines.index("  peak_tflops = 200   datasheet: its datasheet")
    assert max(map(len, shown.output.splitlines()[1:])) <= 100


def test_two_cards_are_compared_in_one_line() -> None:
    sets = ["A:target.device=a100_80g_sxm", "B:target.device=a800_80g_sxm"]
    arguments = [
        "compare",
        *["vanilla_llama_2_7b_a100"] * 2,
        "--json",
        *(word for one in sets for word in ("--set", one)),
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output


def test_a_relation_says_how_far_single_operations_are_off(tmp_path: Path) -> None:
    """Another chip's attention is known less well than its products in 16 bits; a spread in figures
    says nothing of operations, and stated ones are kept.
    """
    chip = CARD + "spread: another chip\n"
    names = catalogue(
        tmp_path,
        related=chip.replace("a100_80g_sxm", "h100_sxm"),
        of_sixteen_bits=chip,
        in_figures=CARD + "spread: {value: 0.2, source: x, confidence: assumed}\n",
        stated=chip + "spreads: {attention: {value: 0.5, source: x, confidence: assumed}}\n",
        of_another_maker=CARD + "spread: another maker\n",
    )
    spreads = {
        name: {key: spread.value for key, spread in device(names, name).spreads.items()}
        for name in ("related", "of_sixteen_bits", "in_figures", "stated", "of_another_maker")
    }
    another = OPERATION_SPREADS["another chip"]
    formats = {"fp8", "fp8_block", "attention", "experts"}
    assert spreads["related"] == {name: another[name] for name in formats}
    assert set(spreads["of_sixteen_bits"]) == {"attention", "experts"}
    assert spreads["in_figures"] == spreads["of_another_maker"] == {}
    assert spreads["stated"] == {"attention": 0.5}
    row = device(names, "related").spreads["attention"]
    assert row.confidence == "computed"
