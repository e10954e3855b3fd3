"""Speculative Streaming's published values: every one loads, what is free is counted, predictions
come out again.
"""

from __future__ import annotations

import pytest
from papers import Committed

from simulator.evidence.fits import Paper
from simulator.evidence.published import PublishedCell, cells
from simulator.scenario import load

NAME = "speculative_streaming"
PAPER = Paper.of(NAME, cells()[NAME])
PREDICTED = PAPER.with_role("predict")
RUNS = Committed(NAME).runs
UNMAPPED = {f"specstream_text:{number}" for number in (2, 3, 4, 12, 13)}
"""Ranges over many settings, and two values whose acceptance is not printed."""
CALLS = [cell for cell in PAPER.cells if cell.source == "Table 5" and cell.method == "Two-model SD"]
GAMMA = 4


def test_every_value_is_mapped_or_named_here() -> None:
    wanted = [
        cell for cell in PAPER.cells if cell.role in ("calibrate", "predict", "check", "report")
    ]
    assert {cell.cell for cell in wanted if not cell.mapped} == UNMAPPED
    assert (len(PREDICTED), len(PAPER.with_role("calibrate"))) == (60, 28)


def test_half_as_many_parameters_as_predictions_at_most() -> None:
    assert PAPER.free == 17
    assert 2 * PAPER.free <= len(PREDICTED)
    assert set(PAPER.fitted) == set(PAPER.parameters)


@pytest.mark.parametrize("scenario", sorted({cell.scenario for cell in PAPER.cells if cell.mapped}))
def test_a_scenario_loads_with_what_was_fitted(scenario: str) -> None:
    cell = next(
        loaded for loaded in PREDICTED + PAPER.with_role("check") if loaded.scenario == scenario
    )
    load(*PAPER.question(cell).run)


@pytest.mark.parametrize("cell", PAPER.with_role("check")[:9], ids=lambda one: one.cell)
def test_extra_parameters_follow_from_shapes(cell: PublishedCell) -> None:
    """To the two digits printed; EAGLE's layer for Mistral is printed in Llama-2's shape (no
    grouped heads, narrower MLP).
    """
    tolerance = 0.06 if (cell.model, cell.method) == ("Mistral-Instruct-7B", "Eagle") else 0.025
    assert PAPER.question(cell).answer() == pytest.approx(float(cell.published), rel=tolerance)


@pytest.mark.parametrize(("model", "task"), sorted({(one.model, one.task) for one in CALLS}))
def test_table_5_counts_the_call_of_the_prompt(model: str, task: str) -> None:
    """Four draft calls for every target call but one give the printed draft calls, but for OPT-6.7B
    on DialogSum.
    """
    calls = {
        one.quantity: float(one.published)
        for one in CALLS
        if (one.model, one.task) == (model, task)
    }
    agrees = GAMMA * (calls["target_calls_per_sample"] - 1.0) == pytest.approx(
        calls["draft_calls_per_sample"], rel=3e-3
    )
    assert agrees == ((model, task) != ("OPT-6.7b", "Dialogsum"))
