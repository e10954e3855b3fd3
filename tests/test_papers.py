"""Every paper of the committed validation: each mapped cell has a scenario that loads, and a run
still says the same.

That all of them do is in ``test_validation``, which writes the report anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from papers import AS_PRINTED, Committed

from simulator.evidence.published import cells

FOUND = {name: Committed(name) for name in sorted(cells())}


def every_sixth() -> Iterator[object]:
    """Cells of all papers."""
    for name, found in FOUND.items():
        for cell in list(found.runs)[::6]:
            yield pytest.param(name, cell, id=cell)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FOUND)
def test_every_mapped_cell_loads(name: str) -> None:
    FOUND[name].load_all()


@pytest.mark.parametrize("name", FOUND)
def test_every_predicted_cell_is_mapped_and_committed(name: str) -> None:
    predicted = [cell.cell for cell in FOUND[name].paper.cells if cell.role == "predict"]
    assert [cell.cell for cell in FOUND[name].predicted] == predicted
    assert set(predicted) <= set(FOUND[name].runs) == set(FOUND[name].cells)


@pytest.mark.parametrize("name", FOUND)
def test_free_parameters_are_at_most_half_of_ten_predicted_cells_or_more(name: str) -> None:
    predicted = len(FOUND[name].predicted)
    assert predicted < 10 or FOUND[name].paper.free <= predicted / 2


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "cell"), list(every_sixth()))
def test_a_run_says_what_is_committed(name: str, cell: str) -> None:
    assert FOUND[name].answer(cell) == pytest.approx(FOUND[name].runs[cell], rel=AS_PRINTED)
