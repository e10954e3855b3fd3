"""Validation: what runs say of published values, and how far off that is, beside a guess that needs no simulator.

The guess (``likeness``) is the geometric mean of the calibrated values of a quantity that are most like the cell: same
method first, then as many of task, model, hardware and temperature as any has. A simulator must beat it to be of use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean, median

from simulator.fits import Paper, Question
from simulator.published import Cell

Answer = Callable[[Iterable[Question]], Sequence[float]]
COLUMNS = ("task", "model", "hardware", "temperature", "batch_size")
NOISE_FLOOR = {"one lab, one GPU, again": (0.014, 0.04), "another lab": (0.106, 0.106)}
"""Median change of the same methods measured again on the same GPU (Spec-Bench leaderboard against later papers)."""


@dataclass(frozen=True)
class Prediction:
    """A published value beside what a run says."""

    paper: str
    cell: Cell
    run: float
    likeness: float | None
    """The guess without a simulator; None where nothing was calibrated that could be compared."""

    @property
    def published(self) -> float:
        """The value in the paper."""
        return float(self.cell.published)

    @property
    def error(self) -> float:
        """Signed, as a share of the published value."""
        return self.run / self.published - 1.0


@dataclass(frozen=True)
class Errors:
    """Errors of some predictions, as shares."""

    count: int
    mape: float
    median: float
    most: float
    bias: float
    within_5: float
    within_10: float

    @staticmethod
    def of(errors: Sequence[float]) -> Errors:
        """Of signed errors; ValueError for none."""
        sizes = [abs(error) for error in errors]
        shares = (mean(size <= bound for size in sizes) for bound in (0.05, 0.10))
        return Errors(len(sizes), mean(sizes), median(sizes), max(sizes), mean(errors), *shares)


def predictions(paper: Paper, answer: Answer, roles: tuple[str, ...]) -> list[Prediction]:
    """Runs for every mapped cell of these roles, in the paper's order."""
    chosen = paper.with_role(*roles)
    runs = answer([paper.question(cell) for cell in chosen])
    return [Prediction(paper.name, cell, run, likeness(cell, paper.cells)) for cell, run in zip(chosen, runs, strict=True)]


def likeness(cell: Cell, cells: Iterable[Cell]) -> float | None:
    """The guess of somebody who has the calibrated cells and no simulator."""
    known = [one for one in cells if one.role == "calibrate" and one.quantity == cell.quantity and one is not cell]
    if not known:
        return None

    def alike(one: Cell) -> tuple[bool, int]:
        return one.method == cell.method, sum(getattr(one, column) == getattr(cell, column) for column in COLUMNS)

    most = max(map(alike, known))
    return geometric_mean(float(one.published) for one in known if alike(one) == most)
