"""DuoDecoding: every value that the simulator can produce is mapped, and the fit predicts what it
predicted.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from papers import Committed

from simulator.cli.claims import claims
from simulator.evidence.fits import Paper
from simulator.evidence.published import PublishedCell, cells
from simulator.evidence.validation import Errors
from simulator.scenario import load

PAPER = Paper.of("duodecoding", cells()["duodecoding"])
MAPPED = PAPER.with_role("calibrate", "predict", "report")
FOUND = Committed("duodecoding")


def test_what_is_predicted_is_mapped_and_at_most_half_as_much_is_free() -> None:
    assert Counter(cell.role for cell in MAPPED) == {"calibrate": 36, "predict": 42, "report": 4}
    assert PAPER.free == 17 <= 42 // 2
    assert {cell.cell for cell in MAPPED} == set(FOUND.runs)


@pytest.mark.few(20)
@pytest.mark.parametrize("cell", MAPPED, ids=lambda one: one.cell)
def test_a_mapped_value_loads(cell: PublishedCell) -> None:
    question = PAPER.question(cell)
    loaded = load(question.run.scenario, question.run.overrides)
    assert (loaded.scenario.strategy.name == "duodecoding") == (
        cell.method.startswith("DuoDec") and not cell.against
    )


def errors(role: str) -> Errors:
    """Of the committed runs."""
    return Errors.of(
        [
            FOUND.runs[cell.cell] / float(cell.published) - 1.0
            for cell in MAPPED
            if cell.role == role
        ]
    )


def test_the_fit_is_tight_and_the_predictions_keep_the_bound() -> None:
    assert errors("calibrate").mape < 0.01
    predicted = errors("predict")
    assert (
        predicted.count,
        predicted.mape < 0.06,
        predicted.median < 0.035,
        predicted.within_10 > 0.82,
    ) == (
        42,
        True,
        True,
        True,
    )


def test_claims_run_with_the_constant_of_a_pass_that_was_fitted() -> None:
    stated: set[str] = set()
    for row in claims(["duodecoding"]):
        for command in row.claim.commands:
            stated |= {*re.findall(r"draft\.engine\.host_us_per_pass\.value=(\d+)", command)}
    assert stated == {f"{PAPER.fitted['draft_host_per_pass']['all']:.0f}"}
