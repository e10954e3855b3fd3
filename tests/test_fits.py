"""A paper of round numbers: what is free is found from calibrated cells, and predicts the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.fitting import calibrate
from simulator.evidence.baseline import arithmetic
from simulator.evidence.fits import Paper, Question
from simulator.evidence.published import PublishedCell, cells
from simulator.evidence.validation import Errors, predictions
from simulator.files.schema import BadInput
from tests.toy_paper import TERMS, written


@pytest.fixture
def paper(tmp_path: Path) -> Paper:
    written(tmp_path)
    return Paper.of("round", cells(tmp_path)["round"], tmp_path)


def answer(questions: Iterable[Question]) -> Sequence[float]:
    return [question.answer() for question in questions]


def test_terms_of_one_key_add_up_on_their_scale(paper: Paper) -> None:
    by_name = {one.cell: one for one in paper.cells}
    assert paper.free == 4
    small_code = paper.question(by_name["c"], TERMS)
    assert small_code.run.overrides == ("durations.target_ms=4.0", "durations.draft_step_ms=3.0")
    assert small_code.answer() == pytest.approx(4 * 3 + 4)


def test_calibrated_cells_decide_and_predicted_ones_do_not(paper: Paper) -> None:
    found = calibrate(paper, answer)
    assert set(found.residuals) == {"a", "b", "c"}
    asked = {
        one.cell: paper.question(one, found.terms).answer() for one in paper.cells if one.mapped
    }
    assert asked["a"] == pytest.approx(8, rel=1e-3)
    assert asked["b"] == pytest.approx(12, rel=1e-3)
    assert asked["c"] == pytest.approx(16, rel=1e-3)
    steps = found.terms["draft"]
    assert steps["large"] - steps["small"] == pytest.approx(1.0, rel=1e-2)


def test_predictions_stand_beside_the_baseline(paper: Paper) -> None:
    fitted = Paper(paper.name, paper.cells, paper.parameters, TERMS, paper.folder)
    found = predictions(fitted, answer, ("predict",))
    assert [(one.cell.cell, one.run) for one in found] == [
        ("d", pytest.approx(20)),
        ("e", pytest.approx(12)),
    ]
    assert [one.error for one in found] == [pytest.approx(-0.2), pytest.approx(0.2)]
    assert [one.baseline for one in found] == [
        12,
        12,
    ]  # b is of the same model, and differs in the task
    assert [one.interpolated for one in found] == [True, False]  # e differs in gamma, too
    errors = Errors.of([one.error for one in found])
    assert (errors.count, errors.mape, errors.bias, errors.within_10) == (
        2,
        pytest.approx(0.2),
        pytest.approx(0),
        0,
    )


def test_what_was_not_fitted_is_said(paper: Paper) -> None:
    with pytest.raises(
        BadInput, match=r"no value for 'small'; run python -m benchmarks\.papers round"
    ):
        paper.question(paper.cells[0], {"pass": {"all": 1.0}})


def test_a_parameter_that_nothing_decides_is_refused(paper: Paper) -> None:
    lonely = Paper(paper.name, paper.cells[2:], paper.parameters, {}, paper.folder)
    with pytest.raises(ValueError, match="no cell decides parameter 'pass' for 'all'"):
        calibrate(lonely, answer)


def test_a_baseline_needs_something_calibrated(paper: Paper) -> None:
    alone = PublishedCell(cell="x", source="T1", quantity="tpot", published="3", role="predict")
    assert arithmetic(replace(paper, cells=(alone,)), alone) is None


def test_a_number_of_the_row_is_one_more_term(paper: Paper) -> None:
    stated = paper.cells[0].model_copy(update={"overrides": "durations.target_ms=2.5"})
    assert paper.question(stated, TERMS).answer() == pytest.approx(4 * 1 + 2.5 * 4)
