"""Fitting: the free parameters of a paper fitted to the cells whose role is ``calibrate``, all at
once.

Least squares of ``log(run / published)`` within bounds. Every evaluation is a run of the cell's
scenario; a run is repeated only where a term that it depends on has changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from simulator.evidence.fits import Answer, FittedPaper, Paper, Parameter, Question, Values

TOLERANCE = 1e-4
STEP = 0.02
"""Of a term, to see which way it moves a run; runs replay tokens, so that a smaller one may move
nothing.
"""


@dataclass(frozen=True)
class Calibration:
    """A fit: the terms, the residuals ``log(run / published)`` it leaves by cell, and how many runs
    it took.
    """

    terms: Values
    residuals: Mapping[str, float]
    runs: int

    def fitted(self, paper: str) -> FittedPaper:
        """Return the content of ``fitted.yaml`` for this paper, terms rounded to six digits."""
        terms = {
            name: {group: round(term, 6) for group, term in groups.items()}
            for name, groups in self.terms.items()
        }
        return FittedPaper(command=f"python -m benchmarks.papers {paper}", terms=terms)


class Runs:
    """Asks each question once and remembers its answer."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.known = answer, dict[Question, float]()

    def of(self, questions: Sequence[Question]) -> list[float]:
        """Return the answers to ``questions`` in order, running only those that are new."""
        new = list(dict.fromkeys(question for question in questions if question not in self.known))
        self.known.update(zip(new, self.answer(new), strict=True))
        return [self.known[question] for question in questions]


def calibrate(
    paper: Paper, answer: Answer, progress: Callable[[float], object] = lambda error: None
) -> Calibration:
    """Fit every term that a calibrated cell decides; ``progress`` receives the RMS residual after
    every evaluation.

    A term that was fitted before begins there, any other at its ``start``.

    Raises ValueError where a term is decided by no cell.
    """
    terms, runs = paper.terms(), Runs(answer)
    cells = [
        cell
        for cell in paper.with_role("calibrate")
        if any(term.decides(cell) for term in paper.parameters.values())
    ]
    for name, group in terms:
        if not any(
            terms[name, group].decides(cell) and terms[name, group].group(cell) == group
            for cell in cells
        ):
            raise ValueError(f"no cell decides parameter '{name}' for '{group}'")
    published = np.array([float(cell.published) for cell in cells])

    def residuals(point: NDArray[np.float64]) -> NDArray[np.float64]:
        values = _values(terms, point)
        logarithms = np.log(runs.of([paper.question(cell, values) for cell in cells]) / published)
        progress(float(np.sqrt(np.mean(logarithms**2))))
        return logarithms

    start = np.array(
        [paper.fitted.get(name, {}).get(group, term.start) for (name, group), term in terms.items()]
    )
    least, most = (
        np.array([getattr(term, end) for term in terms.values()]) for end in ("least", "most")
    )

    def slopes(point: NDArray[np.float64]) -> NDArray[np.float64]:
        here, steps = residuals(point), np.where(point + STEP <= most, STEP, -STEP)
        moved = point + np.diag(np.maximum(steps, least - point))
        return np.column_stack(
            [(residuals(neighbour) - here) / (neighbour - point).sum() for neighbour in moved]
        )

    best = least_squares(
        residuals,
        start,
        slopes,
        (least, most),
        x_scale="jac",
        max_nfev=12,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
    )
    left = {
        cell.cell: float(residual) for cell, residual in zip(cells, residuals(best.x), strict=True)
    }
    return Calibration(_values(terms, best.x), left, len(runs.known))


def _values(
    terms: Mapping[tuple[str, str], Parameter], point: NDArray[np.float64]
) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for (name, group), term in zip(terms, point, strict=True):
        values.setdefault(name, {})[group] = float(term)
    return values
