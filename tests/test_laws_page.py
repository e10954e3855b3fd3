"""The page of the laws: its drawings are those of the docstrings, one for every strategy."""

from __future__ import annotations

import pytest

from docs.write_laws import PAGE, drawing, drawn, page, summary
from simulator.core.strategies import strategies
from tests.apart import gone

WAIT_AND_GO = """The draft writes,
then the target reads.

    draft  |=1=|
    target     |==2==|

    T = 1 + 2

A further paragraph.

    not | of it
"""


@pytest.mark.skipif(bool(gone()), reason="drawings of a paper that was taken away are missing")
def test_the_committed_drawings_are_those_of_the_docstrings() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run `python3 dev.py reference`"


def test_a_drawing_is_the_lanes_with_the_formulas_below_them() -> None:
    assert summary(WAIT_AND_GO) == "The draft writes, then the target reads."
    assert drawing(WAIT_AND_GO) == "    draft  |=1=|\n    target     |==2==|\n\n    T = 1 + 2"


def test_every_strategy_is_drawn() -> None:
    shipped = {
        name
        for name, strategy in strategies().items()
        if strategy.__module__.startswith("simulator.")
    }
    assert {name for name, _ in drawn()} == shipped
