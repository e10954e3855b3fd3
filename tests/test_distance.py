"""How much less is known outside of what an engine was fitted on."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise
from math import exp, hypot, log, log2, sqrt
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from pydantic import ValidationError

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine, EngineErrors, Home
from simulator.core.cost.hull import Hull, doublings, kinds_of
from simulator.core.quantities import Positive
from simulator.evidence.fits import papers
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, load
from simulator.scenario.uncertain.devices import by_operation
from simulator.scenario.uncertain.distance import (
    GROWTH,
    OUTSIDE,
    Axis,
    Growth,
    distances,
    farthest,
    held_by_fits,
    outside,
)
from simulator.scenario.uncertain.doubts import changed
from simulator.scenario.uncertain.draws import Deviates
from simulator.scenario.uncertain.footings import Footing
from simulator.scenario.uncertain.intervals import (
    doubt_of,
    doubts_of,
    left_by,
    plain_step_by_law,
    speedup_by_law,
    step_by_law,
)
from simulator.scenario.uncertain.named import distance_footing, named_doubts

AT_HOME = "vanilla_qwen3_32b_a100"
"""Set below to what vLLM was fitted on: one request of Qwen3-32B in bf16 on one H100 of 94 GB."""
HOME = [
    *("target.device=h100_94g_sxm", "draft.device=h100_94g_sxm", "target.engine=vllm"),
    *("draft.engine=vllm", "target.weights=bf16", "strategy.gamma=3", "acceptance={rate: 0.6}"),
    *("target.tensor_parallel=1", "draft.tensor_parallel=1", "requests.count=64"),
    *("requests.prompt_tokens=100", "requests.output_tokens=100"),
]
GROWN: dict[Axis, Growth] = {
    "batch": Growth(0.01, 0.03, "a toy"),
    "ranks": Growth(0.1, 0.2, "a toy"),
}


FITTED_TO = Hull(
    batch=(1, 1),
    rows=(1, 7),
    ranks=(1, 1),
    kinds=("dense",),
    models=("qwen3_32b",),
    formats=("bf16",),
    drafting=("head", "draft_model"),
)
HOME_CARD = Home(card="h100_94g_sxm", maker="NVIDIA", architecture="Hopper")


def fitted(engine: Engine) -> Engine:
    return engine.model_copy(update={"hull": FITTED_TO, "fitted_on": HOME_CARD})


def at_home(*others: str) -> Loaded:
    """The scenario under an engine that was fitted to one request, whatever the shipped one saw."""
    return changed(Engine, fitted, load(AT_HOME, [*HOME, *others]))


def test_distance_is_counted_in_doublings_beyond_the_hull() -> None:
    """Fitted to 2 to 8: 32 are two doublings away, 1 is one, 4 is inside."""
    assert [doublings(value, (2, 8)) for value in (32, 8, 4, 2, 1)] == [2.0, 0.0, 0.0, 0.0, 1.0]
    assert doublings(32, None) == 0.0


def test_a_hull_names_its_lower_end_first() -> None:
    with pytest.raises(ValidationError, match="expected the lower end first"):
        Hull(batch=(8, 2))


def test_inside_of_the_hull_nothing_is_far() -> None:
    assert farthest(at_home().scenario) == {}


@pytest.mark.parametrize(
    ("change", "axis", "distance"),
    [
        ("requests.concurrency=8", "batch", 3.0),
        ("strategy.gamma=13", "rows", 1.0),
        ("target.weights=fp8", "format", 1.0),
        ("target.model=qwen3_14b", "model", 1.0),
    ],
)
def test_a_scenario_is_far_on_the_axis_on_which_it_differs(
    change: str, axis: Axis, distance: float
) -> None:
    assert farthest(at_home(change).scenario) == {axis: distance}


@pytest.mark.parametrize("rows", [2, 64])
def test_constants_of_plain_decoding_leave_rows_to_the_products_of_the_device(rows: int) -> None:
    """Read off plain steps, any verification is one step away; fitted to them, each doubling."""

    def plain(engine: Engine) -> Engine:
        return engine.model_copy(update={"hull": Hull(rows=(1, 1)), "fit": None})

    def plain_fitted(engine: Engine) -> Engine:
        errors = EngineErrors(source="a toy", rows=3, free=1, errors={"fitted": 0.01})
        return engine.model_copy(update={"hull": Hull(rows=(1, 1)), "fit": errors})

    own = load(AT_HOME, [*HOME, f"strategy.gamma={rows - 1}"])
    assert farthest(changed(Engine, plain, own).scenario) == {"verification": 1.0}
    assert farthest(changed(Engine, plain_fitted, own).scenario) == {"rows": log2(rows)}
    alone = load(AT_HOME, [*HOME, "strategy=autoregressive"])
    assert farthest(changed(Engine, plain, alone).scenario) == {}


def test_the_step_to_verification_is_as_wide_as_the_worst_method_is_off() -> None:
    """Of the predicted cells whose engines saw plain decoding alone, by method and quantity."""
    kept = Path(__file__).parent.parent / "reports/validation/cells.csv"
    with kept.open(encoding="utf-8", newline="") as file:
        predicted = {
            row["cell"]: row for row in csv.DictReader(file) if row["kind"] == "prediction"
        }
    errors = defaultdict[tuple[str, ...], list[float]](list)
    for paper in papers(Catalogue()):
        for cell in paper.with_role("predict"):
            run = paper.question(cell).run
            if cell.cell not in predicted or "verification" not in farthest(
                load(run.scenario, run.overrides).scenario
            ):
                continue
            row = predicted[cell.cell]
            group = (paper.name, row["method"], row["quantity"])
            errors[group].append(log(float(row["run"]) / float(row["published"])))
    off = {group: sqrt(fmean(error**2 for error in own)) for group, own in errors.items()}
    assert {group[0] for group in off} == {"duodecoding", "specpipe", "speculative_streaming"}
    assert min(off.values()) == pytest.approx(0.02, abs=0.005)
    assert max(off.values()) == pytest.approx(GROWTH["verification"].speculation, abs=0.005)


@pytest.mark.parametrize(
    ("device", "axis"),
    [("h100_sxm", "card"), ("l40s", "architecture"), ("mi300x", "maker")],
)
def test_a_card_is_one_of_three_steps_away_from_home(device: str, axis: Axis) -> None:
    scenario = at_home("target.model=qwen3_0_6b", f"target.device={device}").scenario
    place = scenario.target
    assert place and place.engine.hull
    found = distances(place.engine.hull, place.engine.fitted_on, place, scenario)
    assert [name for name in ("card", "architecture", "maker") if found[name]] == [axis]


def test_kinds_of_models() -> None:
    known = {
        "dense": "autoregressive_qwen3_32b_a100",
        "experts": "eagle3_qwen3_30b_a3b_h200",
        "hybrid": "mtp_qwen3_5_27b_h100",
    }
    for kind, name in known.items():
        target = load(name).scenario.target
        assert target and kinds_of(target.model) == {kind}


def test_growth_is_in_proportion_to_the_distance() -> None:
    """Three doublings of the batch and one of the ranks; on an axis without growth, nothing."""
    far: dict[Axis, float] = {"batch": 3.0, "ranks": 1.0, "kind": 1.0}
    found = list(outside(far, GROWN))
    assert [one.axis for one in found] == ["batch", "ranks"]
    assert [one.every_pass for one in found] == pytest.approx([0.03, 0.1])
    assert [one.speculation for one in found] == pytest.approx([0.09, 0.2])


def test_growth_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three doublings: 0.03 of every pass, 0.09 of speculation. A plain step has the first, a
    speed-up the second, a speculative step both.
    """
    monkeypatch.setattr("simulator.scenario.uncertain.distance.GROWTH", GROWN)
    monkeypatch.setattr(outside, "__defaults__", (GROWN,))
    quantities = [plain_step_by_law, speedup_by_law, step_by_law]
    doubts = doubts_of(at_home("requests.concurrency=8"), (), quantities)
    found = []
    for doubt in doubts:
        alone = {name: size for name, size in doubt.changes.items() if OUTSIDE in name}
        found.append(hypot(*alone.values()))
    assert found == pytest.approx([0.03, 0.09, hypot(0.03, 0.09)])


def test_inside_of_the_hull_the_left_out_groups_are_the_spread() -> None:
    """Mean absolute errors of 1 and 3 % are those of a normal error of 2 % times the root of
    pi / 2; what the fit itself left is none of them, what was held out of it is.
    """
    fit = EngineErrors(
        source="a toy",
        rows=9,
        free=1,
        errors={"fitted": 0.001, "without #a": 0.01, "held out": 0.03},
    )
    assert left_by(fit) == pytest.approx(0.02 * 1.2533, rel=1e-4)


def test_a_fit_that_left_no_group_out_is_widened_by_its_free_numbers() -> None:
    """Ten rows decided six numbers: 1 % of its own rows is 2 % of others."""
    fit = EngineErrors(source="a toy", rows=10, free=6, errors={"fitted": 0.01})
    assert left_by(fit) == pytest.approx(0.02 * 1.2533, rel=1e-4)


def test_ranges_of_fitted_numbers_are_not_drawn_at_home_beside_what_the_fit_left() -> None:
    home, away = at_home(), at_home("target.device=h100_sxm", "draft.device=h100_sxm")
    fixed = "target.engine.schedule_us"
    assert held_by_fits(home.scenario)
    assert not held_by_fits(away.scenario)
    assert not any(fixed == name for name in doubt_of(home, ()).ends)
    assert any(fixed == name for name in doubt_of(away, ()).ends)


@settings(deadline=None, max_examples=25)
@given(batches=some.lists(some.integers(1, 64), min_size=2, max_size=2).map(sorted))
def test_the_spread_never_shrinks_with_distance(batches: list[int]) -> None:
    """Of what distance adds to a step and to a speed-up, at a smaller and at a larger batch."""
    widths = []
    for batch in batches:
        far = farthest(at_home(f"requests.concurrency={batch}").scenario)
        widths.append([hypot(one.every_pass, one.speculation) for one in outside(far)] or [0.0])
    assert hypot(*widths[0]) <= hypot(*widths[1])


def test_constants_name_what_showed_them_and_further_from_home_is_no_better_known() -> None:
    for growth in GROWTH.values():
        assert growth.source
        assert min(growth.every_pass, growth.speculation) >= 0.0
    steps = [GROWTH[axis] for axis in ("card", "architecture", "maker")]
    for nearer, further in pairwise(steps):
        assert nearer.every_pass <= further.every_pass
        assert nearer.speculation <= further.speculation


def test_a_large_batch_is_less_certain_than_the_one_that_was_fitted() -> None:
    spreads = []
    for batch in (1, 8, 64):
        doubt = doubt_of(at_home(f"requests.concurrency={batch}"), ())
        spreads.append(float(np.std(Deviates().drawn(1.0, doubt).changes)))
    assert spreads[0] < log(1.05)
    assert spreads == sorted(spreads)
    assert spreads[2] > 2.0 * spreads[0]


def test_an_operation_with_a_spread_of_its_own_moves_by_itself() -> None:
    """A roofline of 2 us and half of both rates, 1.25 times as long; the other operations of the
    device stay.
    """
    spreads = {"default": Positive(value=0.25), "attention": Positive(value=0.1)}

    def told(device: Device) -> Device:
        return device.model_copy(update={"spreads": spreads})

    loaded = changed(Device, told, at_home("target.device=h100_sxm", "draft.device=h100_sxm"))
    moved = {name: change for _, name, change in by_operation(loaded)}
    assert list(moved) == ["h100_sxm", "h100_sxm, default", "h100_sxm, attention"]
    before = device_of(loaded)
    after = device_of(moved["h100_sxm, default"](loaded))
    products, longer = before.matmul["default"], after.matmul["default"]
    assert longer.fixed_us.value == pytest.approx(1.25 * products.fixed_us.value)
    assert longer.memory_efficiency.value == pytest.approx(products.memory_efficiency.value / 1.25)
    assert after.attention == before.attention
    assert after.small_operations == before.small_operations
    others = device_of(moved["h100_sxm"](loaded))
    assert others.matmul["default"] == products
    assert others.attention == before.attention
    fixed_us = before.small_operations.fixed_us.value
    spread = before.spread
    assert spread
    assert others.small_operations.fixed_us.value == pytest.approx((1 + spread.value) * fixed_us)


def device_of(loaded: Loaded) -> Device:
    assert loaded.scenario.target
    return loaded.scenario.target.device


def test_a_device_without_such_spreads_is_slower_as_a_whole() -> None:
    names = [name for _, name, _ in by_operation(load("vanilla_llama_2_7b_a100"))]
    assert names == ["a100_80g_sxm"]


def test_a_spread_of_no_operation_is_refused() -> None:
    device = device_of(at_home("target.device=h100_sxm"))
    with pytest.raises(ValidationError, match="there is no operation 'fp9'"):
        Device(**{**dict(device), "spreads": {"fp9": Positive(value=0.1)}})


def test_the_rows_of_a_tree_are_all_of_its_nodes() -> None:
    """Three levels of four: 84 drafts and the last token, log2(85 / 7) doublings beyond seven."""
    passes = "passes: [{head: {layers: 1}, rows: [4, 4, 16]}]"
    tree = f"strategy={{name: tree_sd, {passes}, tree: {{branching: [4, 4, 4]}}}}"
    on_tree = load(AT_HOME, [tree if "gamma" in setting else setting for setting in HOME])
    place = on_tree.scenario.target
    assert place is not None
    assert distances(FITTED_TO, None, place, on_tree.scenario)["rows"] == doublings(85, (1, 7))


def test_a_draft_in_another_format_does_not_make_a_target_one() -> None:
    on_int4 = load(AT_HOME, [*HOME, "draft.weights=int4"]).scenario
    assert on_int4.draft is not None
    assert distances(FITTED_TO, None, on_int4.draft, on_int4)["format"] == 0.0


def test_numbers_are_held_for_the_batch_that_is_asked_for() -> None:
    loaded = load(AT_HOME, [*HOME, "target.model=qwen3_32b"])
    assert held_by_fits(loaded.scenario, 1) > held_by_fits(loaded.scenario, 4_096)


def test_the_distance_is_named_where_it_is_among_the_largest_doubts() -> None:
    """Axes are independent: their squares add up; one number of the engine is in doubt by less."""
    loaded = at_home("requests.concurrency=8", "target.model=qwen3_14b")
    far = distance_footing(loaded)
    assert far
    error = hypot(3.0 * GROWTH["batch"].speculation, GROWTH["model"].speculation)
    assert far.change == pytest.approx(exp(-error) - 1.0)
    assert far.parameter == "distance from the fit: model, batch of 8 beyond 1"
    small = Footing("a number", 1.0, "assumed", "nobody", 0.01)
    large = Footing("another", 1.0, "assumed", "nobody", -0.9)
    named = named_doubts(loaded, [large, small])
    assert named == (
        "another (assumed, -90.0 %)",
        f"{far.parameter} (fitted on h100_94g_sxm, {100 * far.change:.1f} %)",
        "a number (assumed, +1.0 %)",
    )


def test_inside_of_the_fit_no_distance_is_named() -> None:
    assert distance_footing(at_home()) is None
    assert distance_footing(at_home("requests.concurrency=8"), batch=1) is None


def test_plain_decoding_is_as_far_as_every_pass() -> None:
    loaded = at_home("strategy=autoregressive", "draft=null", "requests.concurrency=8")
    far = distance_footing(loaded)
    assert far
    assert far.change == pytest.approx(exp(-3.0 * GROWTH["batch"].every_pass) - 1.0)
