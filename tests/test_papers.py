"""Every paper with committed predictions: each mapped cell has a scenario that loads, and a run still says the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from papers import Committed

from simulator.catalogue import shipped
from simulator.published import PAPERS

FOUND = {path.parent.name: Committed(path.parent.name) for path in sorted((shipped() / PAPERS).glob("*/predictions.csv"))}


def every_fifth_is_quick() -> Iterator[object]:
    """Cells of all papers; those between are run in the full tier."""
    for name, found in FOUND.items():
        for number, cell in enumerate(found.runs):
            yield pytest.param(name, cell, marks=[pytest.mark.full] if number % 5 else [], id=cell)


@pytest.mark.parametrize("name", FOUND)
def test_every_mapped_cell_loads(name: str) -> None:
    FOUND[name].load_all()


@pytest.mark.parametrize("name", FOUND)
def test_every_predicted_cell_is_mapped_and_committed(name: str) -> None:
    predicted = [cell.cell for cell in FOUND[name].paper.cells if cell.role == "predict"]
    assert [cell.cell for cell in FOUND[name].predicted] == predicted
    assert set(predicted) <= set(FOUND[name].runs) <= set(FOUND[name].cells)


@pytest.mark.parametrize("name", FOUND)
def test_free_parameters_are_at_most_half_of_ten_predicted_cells_or_more(name: str) -> None:
    predicted = len(FOUND[name].predicted)
    assert predicted < 10 or FOUND[name].paper.free <= predicted / 2


@pytest.mark.parametrize(("name", "cell"), list(every_fifth_is_quick()))
def test_a_run_says_what_is_committed(name: str, cell: str) -> None:
    assert FOUND[name].answer(cell) == pytest.approx(FOUND[name].runs[cell], rel=1e-6)
