"""Laws over grids: the same numbers as one law after the other, for every strategy there is, in
bounded memory.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from simulator.core.faults import BadInput
from simulator.core.strategies import strategies
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import baseline, law, tuned
from simulator.scenario.loading import variant
from simulator.studies.sweep.grid import QUANTITIES, Axes, law_columns

WHOLE = {
    "prefix_ms": 12.0,
    "suffix_ms": 20.0,
    "draft_ms": 9.0,
    "redraft_ms": 7.0,
    "rv_ee_ms": 0.3,
    "rv_fv_ms": 0.2,
}
STAGED = {
    "stages_ms": [4.0, {1: 5.0, 64: 9.0}, 4.5, 6.0],
    "links_ms": [1.0, 2.0, 0.5],
    "draft_step_ms": 3.0,
    "token_ms": 0.5,
}
SERIAL = {"target_ms": 30.0, "draft_step_ms": 2.0, "rv_fv_ms": 0.2}
TREE = {"name": "tree_sd", "tree": {"branching": [2, 2, 1]}, "passes": [{"rows": [1, 2]}]}
CASES: dict[str, tuple[Mapping[str, object], Mapping[str, object], Axes]] = {
    "autoregressive": ({}, WHOLE, {"durations.prefix_ms": [3.0, 30.0]}),
    "vanilla_sd": (
        {},
        SERIAL,
        {"strategy.gamma": [1, 2, 9], "durations.target_ms": [11.1, 40.0, 77.7]},
    ),
    "mirror_sd": (
        {},
        WHOLE,
        {"strategy.fallback": ["redraft", "undrafted"], "acceptance.overlap": [0.95, 1.0]},
    ),
    "tree_sd": (TREE, SERIAL, {"strategy.host_ms": [0.0, 0.7], "durations.rv_fv_ms": [0.0, 0.9]}),
    "lyanna": (
        {"depth": 4, "budget": 12},
        WHOLE,
        {"strategy.threshold": [0, 1], "durations.draft_head_ms": [0.1, 1.3]},
    ),
    "speculative_streaming": ({"branching": 2}, WHOLE, {"strategy.streams": [1, 3]}),
    "duodecoding": (
        {"sequences": 1, "gamma": 6},
        SERIAL,
        {"strategy.gamma": [2, 6], "durations.target_ms": [5.0, 31.0]},
    ),
    "specpipe": (
        {"width": 8, "branching": 4},
        STAGED,
        {"durations.token_ms": [0.0, 9.0], "strategy.late": [False, True]},
    ),
    "specpipe_tandem": (
        {"width": 8, "branching": 4},
        STAGED,
        {"durations.token_ms": [0.0, 9.0, 20.0]},
    ),
    "pipeline": ({}, STAGED, {"durations.token_ms": [0.0, 9.0]}),
    "pipeline_tree": ({}, STAGED, {"durations.token_ms": [0.0, 9.0]}),
}
"""By strategy: its settings, durations, and axes that mean something to it, beside acceptance and
draft.
"""
RATES = {"acceptance.rate": [0.0, 0.31, 0.77, 0.95]}


def case_of(name: str) -> tuple[Mapping[str, object], Mapping[str, object], Axes]:
    """Return the case of a strategy, or one from its own example."""
    if name in CASES:
        return CASES[name]
    example = strategies()[name].example()
    settings = example.strategy.model_dump(mode="json", exclude_none=True, exclude={"name"})
    return settings, example.durations.model_dump(mode="json", exclude_none=True), {}


def stated(name: str) -> Loaded:
    settings, durations, _ = case_of(name)
    acceptance = {"rate": 0.5}
    changes: dict[str, object] = {"acceptance": acceptance, "durations": durations}
    return variant(load("durations_only"), changes | {"strategy": {"name": name, **settings}})


def axes_of(name: str) -> dict[str, Any]:
    durations, axes = case_of(name)[1:]
    drafts = {
        f"durations.{key}": [0.1, 2.7, 33.3]
        for key in ("draft_ms", "draft_step_ms")
        if key in durations
    }
    return {**RATES, **axes, **drafts}


def one_law(base: Loaded, changes: Mapping[str, object]) -> dict[str, float]:
    one = tuned(variant(base, changes))
    found, plain = law(one.scenario, one.acceptance()), baseline(one.scenario)
    values = found.step_s, found.tokens_per_step, found.tpot_s, plain.tpot_s / found.tpot_s
    return dict(zip(QUANTITIES, values, strict=True))


def law_grid(base: Loaded, axes: Axes, quantities: Any = QUANTITIES) -> dict[str, Any]:
    """Columns of every combination of the axes' values, laid out with an axis for each key."""
    shape = tuple(map(len, axes.values()))
    places = [place.ravel() for place in np.indices(shape)]
    columns = {
        key: [values[at] for at in place]
        for (key, values), place in zip(axes.items(), places, strict=True)
    }
    return {
        name: column.reshape(shape)
        for name, column in law_columns(base, columns, quantities).items()
    }


def within_four_ulp(found: float, expected: float) -> bool:
    return abs(found - expected) <= 4 * np.spacing(expected)


@pytest.mark.parametrize("name", sorted(strategies()))
def test_a_grid_is_one_law_after_the_other(name: str) -> None:
    base, axes = stated(name), axes_of(name)
    found = law_grid(base, axes)
    for place in product(*(range(len(values)) for values in axes.values())):
        expected = one_law(
            base, {key: values[at] for (key, values), at in zip(axes.items(), place, strict=True)}
        )
        for quantity in QUANTITIES:
            assert within_four_ulp(found[quantity][place], expected[quantity]), (quantity, place)


@pytest.mark.parametrize("name", sorted(strategies()))
def test_columns_are_one_law_after_the_other(name: str) -> None:
    base, axes, random = stated(name), axes_of(name), np.random.default_rng(7)
    columns = {
        key: [values[at] for at in random.integers(len(values), size=12)]
        for key, values in axes.items()
    }
    found = law_columns(base, columns, ["tpot_s", "speedup"])
    for row in range(12):
        expected = one_law(base, {key: values[row] for key, values in columns.items()})
        assert all(
            within_four_ulp(found[quantity][row], expected[quantity])
            for quantity in ("tpot_s", "speedup")
        )


def test_a_grid_over_hardware_and_an_open_batch_is_one_law_after_the_other() -> None:
    """The channel's latency is spread; exit layer, batch and bandwidth of a device are walked."""
    base = load("mirror_qwen3_32b_a100")
    axes: Axes = {
        "strategy.exit_layer": [0.25, 0.5],
        "channel.latency_us": [1.0, 50.0, 5_000.0],
        "requests.concurrency": [1, 4],
        "target.device.memory_bandwidth_gb_s": [1_000.0, 3_000.0],
    }
    found = law_grid(base, axes, ["tpot_s", "speedup"])
    for place in product(*(range(len(values)) for values in axes.values())):
        expected = one_law(
            base, {key: values[at] for (key, values), at in zip(axes.items(), place, strict=True)}
        )
        assert all(
            within_four_ulp(found[quantity][place], expected[quantity]) for quantity in found
        )


def test_a_grid_over_the_overlap_alone_keeps_the_stated_rate() -> None:
    base, overlaps = stated("mirror_sd"), [0.9, 0.95, 1.0]
    found = law_grid(base, {"acceptance.overlap": overlaps}, ["tpot_s"])["tpot_s"]
    assert all(
        within_four_ulp(one, one_law(base, {"acceptance.overlap": at})["tpot_s"])
        for one, at in zip(found, overlaps, strict=True)
    )


def test_a_strategy_that_works_itself_out_does_so_at_every_point() -> None:
    base = variant(
        stated("vanilla_sd"), {"strategy.gamma": 8, "strategy.adaptive": {"name": "goodput"}}
    )
    axes: Axes = {"durations.draft_step_ms": [0.5, 4.0, 40.0], "acceptance.rate": [0.3, 0.9]}
    found = law_grid(base, axes, ["tpot_s"])["tpot_s"]
    for place in np.ndindex(3, 2):
        changes = {key: values[at] for (key, values), at in zip(axes.items(), place, strict=True)}
        assert within_four_ulp(found[place], one_law(base, changes)["tpot_s"])
    assert (
        len(
            {
                law_grid(base, {"acceptance.rate": [0.9]}, ["tokens_per_step"])["tokens_per_step"][
                    0
                ],
                1.0,
            }
        )
        == 2
    )


def test_a_value_that_cannot_be_is_refused_and_named() -> None:
    with pytest.raises(BadInput, match=r"durations\.draft_step_ms"):
        law_grid(stated("vanilla_sd"), {"durations.draft_step_ms": [1.0, -2.0, 3.0]})
    with pytest.raises(BadInput, match=r"acceptance\.rate"):
        law_columns(stated("vanilla_sd"), {"acceptance.rate": [0.5, float("nan")]})
    with pytest.raises(ValueError, match="has no values"):
        law_grid(stated("vanilla_sd"), {"acceptance.rate": []})


def test_memory_beside_the_result_does_not_grow_with_the_points() -> None:
    """Half a million points: less than 64 MB beside them, though a law makes dozens of arrays."""
    points = 512_000
    columns = {
        "durations.draft_ms": np.linspace(1, 40, points),
        "acceptance.rate": np.linspace(0, 0.9, points),
        "durations.suffix_ms": np.linspace(40, 1, points),
    }
    tracemalloc.start()
    try:
        found = law_columns(stated("mirror_sd"), columns, ["tpot_s"])["tpot_s"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.shape == (points,)
    assert peak - found.nbytes < 64e6
