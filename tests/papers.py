"""What the tests of every paper share: its cells, and what the committed validation says of
them.
"""

from __future__ import annotations

import csv
from pathlib import Path

from simulator.evidence.baseline import arithmetic
from simulator.evidence.fits import Paper
from simulator.evidence.published import PublishedCell, cells
from simulator.evidence.validation import Errors
from simulator.scenario import load

MAPPED = ("calibrate", "predict", "check", "report")
COMMITTED = Path(__file__).parent.parent / "reports" / "validation" / "cells.csv"
AS_PRINTED = 1e-4
"""Relative; runs stand there with five digits."""


class Committed:
    """A paper, and what runs said of each mapped cell when the report was written."""

    def __init__(self, name: str) -> None:
        self.paper = Paper.of(name, cells()[name])
        self.cells = {cell.cell: cell for cell in self.paper.with_role(*MAPPED)}
        with COMMITTED.open(newline="") as file:
            said = {
                row["cell"]: float(row["run"])
                for row in csv.DictReader(file)
                if row["paper"] == name
            }
        self.runs = {
            cell: run for cell, run in said.items() if cell in self.cells
        }  # others are run by a claim

    def load_all(self) -> None:
        """Every scenario that a cell names, as the cell and the fit set it; BadInput where one
        cannot be.
        """
        for cell in self.cells.values():
            question = self.paper.question(cell)
            for run in filter(None, (question.run, question.against)):
                load(run.scenario, run.overrides)

    def answer(self, cell: str) -> float:
        """What a run says now."""
        return self.paper.question(self.cells[cell]).answer()

    def error(self, cell: str) -> float:
        """Of the committed prediction, as a share of the published value."""
        return self.runs[cell] / float(self.cells[cell].published) - 1.0

    def errors(self) -> Errors:
        """Of all predicted cells."""
        return Errors.of([self.error(cell.cell) for cell in self.predicted])

    def baseline(self) -> Errors:
        """Of the baseline that needs no simulator, where there is one."""
        found = [(arithmetic(self.paper, cell), float(cell.published)) for cell in self.predicted]
        return Errors.of([value / published - 1.0 for value, published in found if value])

    @property
    def predicted(self) -> list[PublishedCell]:
        """The cells that no fit has seen."""
        return self.paper.with_role("predict")
