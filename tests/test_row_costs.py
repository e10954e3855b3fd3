"""What several rows of a product take: by the engine's kernels on the device's vector units, or
as measured on a device or on its generation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from simulator.core.cost.kernels import measured_rows, products
from simulator.core.cost.placement import Placement
from simulator.core.cost.row_costs import MeasuredRows, RowCosts
from simulator.core.quantities import Open, Ranged, provenance
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, load
from simulator.scenario.uncertain.devices import by_operation
from simulator.scenario.uncertain.doubts import doubtful

WHERE = 'source: "round", confidence: computed'
CARD = f"""\
about: A card with round numbers.
maker: Nobody
architecture: Round 1.5
like: rtx_3090
memory_bandwidth_gb_s: {{value: 1000, {WHERE}}}
multiprocessors: {{value: 100, {WHERE}}}
clock_ghz: {{value: 1, {WHERE}}}
matmul: {{default: {{memory_efficiency: {{value: 0.9, {WHERE}}}, fixed_us: {{value: 0, {WHERE}}}}}}}
"""
GENERATION = f"""\
about: Round cards.
maker: Nobody
architecture: Round 1.5
dot_operations: {{value: 160, {WHERE}}}
"""
MEASURED = """\
rows:
  round:
    q4_k:
      ratios: {2: 1.5, 4: 2.0}
      growth: {value: GROWTH, low: 0.5, high: 2, source: round, confidence: computed}
"""
ENGINE = f"""\
about: Round kernels.
like: ideal
rows:
  quantised: {{row: {{value: 0.1, {WHERE}}}, operations: {{value: 2, {WHERE}}}, most: 5}}
"""


def place(folder: Path, card: str = "", generation: str = "", weights: str = "q4_k") -> Placement:
    """Return a target of a catalogue with one card, its generation and one engine."""
    target = world(folder, card, generation, weights).scenario.target
    assert target is not None
    return target


def world(folder: Path, card: str = "", generation: str = "", weights: str = "q4_k") -> Loaded:
    """Return target and draft on that card."""
    files = {
        "devices/round.yaml": CARD + card,
        "generations/round_1_5.yaml": GENERATION + generation,
        "engines/round.yaml": ENGINE,
    }
    for name, text in files.items():
        path = folder / "hardware_profiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sets = [f"{role}.{part}=round" for role in ("target", "draft") for part in ("device", "engine")]
    sets += [f"target.weights={weights}", "acceptance={rate: 0.5}"]
    return load("methods_vicuna_7b_a100", sets, Catalogue((folder,)))


def ratio(target: Placement, rows: int) -> float:
    """Return the time of a product of so many rows, relative to that of one."""
    timed = products(target).timed
    return timed(1e9, 0.0, rows) / timed(1e9, 0.0, 1)


def test_rows_cost_what_ordinary_cores_take_beside_reading_the_weight(tmp_path: Path) -> None:
    """160 operations on 100 multiprocessors at 1 GHz are 16e12 a second: two take 125 fs. A weight
    of 0.5625 bytes is read at 900 GB/s in 625 fs.
    """
    target = place(tmp_path)
    assert target.device.vector_rate == 16e12
    assert ratio(target, 2) == pytest.approx(1.0 + 0.1 + 0.2)
    assert ratio(target, 5) == pytest.approx(1.0 + 4 * 0.3)
    assert measured_rows(target) == 0, "of the ideal engine, further rows are matrices"
    wider = place(tmp_path, weights="q8_0")
    assert ratio(wider, 2) == pytest.approx(1.1 + 0.2 * 0.5625 / 1.0625)


def test_a_card_without_dot_products_multiplies_at_its_peak(tmp_path: Path) -> None:
    target = place(tmp_path)
    bare = target.device.model_copy(update={"clock_ghz": None})
    assert bare.vector_rate == 71e12


@pytest.mark.parametrize("spread", ["", "spread: another chip\n"])
def test_a_slower_card_has_slower_vector_units_too(spread: str, tmp_path: Path) -> None:
    """So that a product takes as many times longer for five rows as for one."""
    loaded = world(tmp_path, spread)
    (_, _, slower), *_ = by_operation(loaded)
    target = slower(loaded).scenario.target
    assert target is not None
    assert ratio(target, 5) == pytest.approx(1.0 + 4 * 0.3)
    one = products(target).timed(1e9, 0.0, 1) / products(place(tmp_path)).timed(1e9, 0.0, 1)
    assert one == pytest.approx(1.19 if spread else 1.1)


@pytest.mark.parametrize(("growth", "expected"), [(1, 2.0), (0.5, 1.5)])
def test_what_was_measured_of_a_generation_goes_before_the_engine(
    growth: float, expected: float, tmp_path: Path
) -> None:
    target = place(tmp_path, generation=MEASURED.replace("GROWTH", str(growth)))
    assert ratio(target, 4) == pytest.approx(expected)
    assert ratio(target, 3) == pytest.approx((1.0 + 0.5 * growth + expected) / 2)
    steep = 0.25 * growth
    assert ratio(target, 40) == pytest.approx(expected + 36 * steep), "on as steeply"
    assert measured_rows(target) == 4
    for name in ("quantised", "q4_k"):
        own = f"rows: {{round: {{{name}: {{most: 4, row: {{value: 1, {WHERE}}}}}}}}}"
        shared = MEASURED.replace("q4_k", name).replace("GROWTH", str(growth))
        both = place(tmp_path, card=own, generation=shared)
        assert ratio(both, 4) == pytest.approx(4.0), "its own go before those"
        assert measured_rows(both) == 0, "of the ideal engine"
    other = place(tmp_path, generation=MEASURED.replace("GROWTH", str(growth)), weights="q4_0")
    assert ratio(other, 2) == pytest.approx(1.3), "of another format, the engine says"


def test_rows_of_a_card_have_names_and_are_drawn(tmp_path: Path) -> None:
    row = f"{{value: 1, low: 0.5, high: 1.5, {WHERE}}}"
    own = f"rows: {{round: {{q4_k: {{most: 4, row: {row}}}}}}}"
    device = place(tmp_path, card=own, generation=MEASURED.replace("GROWTH", "1")).device
    names = {str(entry["parameter"]) for entry in provenance(device)}
    assert "rows.round.q4_k.row" in names
    sets = ["acceptance={rate: 0.5}", "target.weights=q4_k"]
    for role in ("target", "draft"):
        sets += [f"{role}.device=round", f"{role}.engine=round"]
    loaded = load("methods_vicuna_7b_a100", sets, Catalogue((tmp_path,)))
    assert "target.device.rows.round.q4_k.row" in {name for name, _ in doubtful(loaded)}


def test_rows_of_widened_weights_are_not_those_of_other_arithmetic(tmp_path: Path) -> None:
    own = f"""\
peaks_tflops: {{fp8: {{value: 142, {WHERE}}}}}
rows: {{round: {{quantised: {{most: 4, row: {{value: 1, {WHERE}}}}}}}}}
"""
    target = place(tmp_path, card=own)
    assert target.device.rows_of("round@2.0", "q8_0") is not None
    assert target.device.rows_of("round", "fp8_wo") is not None
    assert target.device.rows_of("round", "fp8") is None, "computed in 8 bits"
    assert target.device.rows_of("square", "q8_0") is None


def test_another_generation_takes_no_rows_and_no_dot_products(tmp_path: Path) -> None:
    place(tmp_path, generation=MEASURED.replace("GROWTH", "1"))
    other = tmp_path / "hardware_profiles/devices/other.yaml"
    catalogue = Catalogue((tmp_path,))
    other.write_text("like: round\narchitecture: Square\n")
    taken = catalogue.content("device", other).data
    assert "rows" not in taken
    assert "dot_operations" not in taken
    other.write_text("like: round\n")
    taken = catalogue.content("device", other).data
    assert taken["dot_operations"]["confidence"] == "borrowed"
    assert taken["rows"]["round"]["q4_k"]["growth"]["confidence"] == "borrowed"


def test_rows_say_whether_more_of_them_cost_more() -> None:
    one = Open(value=1.0)
    assert MeasuredRows(ratios={2: 1.0, 8: 2.0}, growth=one).monotone
    assert not MeasuredRows(ratios={2: 2.0, 8: 1.5}, growth=one).monotone
    assert not MeasuredRows(ratios={2: 0.9}, growth=one).monotone
    assert RowCosts(row=Ranged(value=0.1), most=8).monotone
    assert not RowCosts(beyond=Ranged(value=0.9), most=8).monotone
    with pytest.raises(ValidationError, match=r"as in \{8: 2\.4\}"):
        MeasuredRows(ratios={}, growth=one)
