"""A paper of round numbers: what is free is found from calibrated cells, and predicts the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from benchmarks.papers.fitting import Calibration, calibrate
from benchmarks.papers.page import page
from simulator.core.faults import BadInput
from simulator.evidence.baseline import arithmetic
from simulator.evidence.fits import OpenChoice, Paper, Question
from simulator.evidence.published import PublishedCell, cells
from simulator.evidence.validation import Errors, predictions
from tests.toy_paper import TERMS, written


@pytest.fixture
def paper(tmp_path: Path) -> Paper:
    written(tmp_path)
    return Paper.of("round", cells(tmp_path)["round"], tmp_path)


def answer(questions: Iterable[Question]) -> Sequence[float]:
    return [question.answer() for question in questions]


def test_terms_of_one_key_add_up_on_their_scale(paper: Paper) -> None:
    by_name = {cell.cell: cell for cell in paper.cells}
    assert paper.free == 4
    small_code = paper.question(by_name["c"], TERMS)
    assert small_code.run.overrides == ("durations.target_ms=4.0", "durations.draft_step_ms=3.0")
    assert small_code.answer() == pytest.approx(4 * 3 + 4)


def test_calibrated_cells_decide_and_predicted_ones_do_not(paper: Paper) -> None:
    found = calibrate(paper, answer)
    assert set(found.residuals) == {"a", "b", "c"}
    asked = {
        cell.cell: paper.question(cell, found.terms).answer() for cell in paper.cells if cell.mapped
    }
    assert asked["a"] == pytest.approx(8, rel=1e-3)
    assert asked["b"] == pytest.approx(12, rel=1e-3)
    assert asked["c"] == pytest.approx(16, rel=1e-3)
    steps = found.terms["draft"]
    assert steps["large"] - steps["small"] == pytest.approx(1.0, rel=1e-2)


def test_predictions_stand_beside_the_baseline(paper: Paper) -> None:
    fitted = Paper(paper.name, paper.cells, paper.parameters, TERMS, paper.folder)
    found = predictions(fitted, answer, ("predict",))
    assert [(cell.cell.cell, cell.run) for cell in found] == [
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


# ---- the page


def test_a_page_of_a_fit_reads_so(paper: Paper) -> None:
    fit = Calibration(TERMS, {"a": 0.0, "b": log(1.1), "c": log(0.9)}, 12)
    chosen = OpenChoice(what="links", value=2.5, rests_on="a guess", after_seeing=True)
    before = OpenChoice(what="lanes", value="two", rests_on="the text", after_seeing=False)
    written = page(replace(paper, choices=(chosen, before)), fit)
    assert written.title == "round: 4 free parameters, 3 calibrated cells, 2 predicted cells"
    assert written.answer == "3 cells, residual 8.20 % (root mean square), 12 runs."
    assert written.command == "python -m benchmarks.papers round"
    (terms,) = written.opening
    decided, why, choices = written.sections[0].blocks
    (cells_left,) = written.sections[1].blocks
    assert [section.title for section in written.sections] == ["What decides them", "Residuals"]
    assert why.items == ["pass: host cost", "draft: size", "draft_on_code: longer"]
    shown = {
        table.title: [table.head, *table.rows] for table in (terms, decided, choices, cells_left)
    }
    assert shown == {
        "Fitted terms": [
            ["parameter", "for", "value", "term", ""],
            ("pass", "all", "4.000", "1.386", ""),
            ("draft", "small", "1.000", "1.000", ""),
            ("draft", "large", "2.000", "2.000", ""),
            ("draft_on_code", "all", "2.000", "2.000", ""),
        ],
        "Free parameters": [
            ["parameter", "for", "key", "from", "to", "decided by"],
            ("pass", "all", "durations.target_ms", "1.000", "148.4", "2 cells"),
            ("draft", "small", "durations.draft_step_ms", "0.010", "9.000", "2 cells"),
            ("draft", "large", "durations.draft_step_ms", "0.010", "9.000", "1 cells"),
            ("draft_on_code", "all", "durations.draft_step_ms", "0", "9.000", "1 cells"),
        ],
        "Choices": [
            ["chosen", "value", "after seeing results", "rests on"],
            ("links", "2.5", "yes", "a guess"),
            ("lanes", "two", "no", "the text"),
        ],
        "Cells": [
            ["cell", "published", "run", "residual"],
            ("a", "8.000", "8.000", "+0.0 %"),
            ("b", "12.00", "13.20", "+10.0 %"),
            ("c", "16.00", "14.40", "-10.0 %"),
        ],
    }


def test_a_term_at_the_end_of_its_range_is_named(paper: Paper) -> None:
    at_least = {**TERMS, "pass": {"all": 0.0}, "draft_on_code": {"all": 9.0}}
    (terms,) = page(paper, Calibration(at_least, {"a": 0.0}, 1)).opening
    assert [row[-1] for row in terms.rows] == ["at its bound", "", "", "at its bound"]
