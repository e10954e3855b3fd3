"""Validation: what runs say of published values, and how far off that is, beside a baseline that needs no simulator.

The baseline (``likeness``) is the geometric mean of the calibrated values of a quantity that are most like the cell: same
method first, then as many of task, model, hardware and temperature as any has. A simulator must beat it to be of use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import log, sqrt
from statistics import geometric_mean, mean, median
from types import MappingProxyType
from typing import NamedTuple

from simulator.evidence.claims import Judged
from simulator.evidence.fits import Answer, Paper, Question
from simulator.evidence.published import PublishedCell
from simulator.files.schema import BadInput, Fault
from simulator.parallel import Spread
from simulator.scenario import load
from simulator.scenario.uncertainty import Doubt, Interval, Times, interval, slowed

COLUMNS = ("task", "model", "hardware", "temperature", "batch_size")
NOISE_FLOOR = {"one lab, one GPU, again": (0.014, 0.04), "another lab": (0.106, 0.106)}
"""Median change of the same methods measured again on the same GPU (Spec-Bench leaderboard against later papers)."""


@dataclass(frozen=True)
class Prediction:
    """A published value beside what a run says."""

    paper: str
    cell: PublishedCell
    run: float
    likeness: float | None
    """The baseline without a simulator; None where nothing comparable was calibrated."""
    interval: Interval | None = None
    """The interval of the run; only predicted cells have one."""
    note: str = ""

    @property
    def published(self) -> float:
        """Return the value that the paper prints, in its unit."""
        return float(self.cell.published)

    @property
    def error(self) -> float:
        """Return the signed error of the run, as a share of the published value."""
        return self.run / self.published - 1.0

    @property
    def guess_error(self) -> float | None:
        """Return the signed error of the baseline, as a share of the published value; None without one."""
        return None if self.likeness is None else self.likeness / self.published - 1.0

    @property
    def covered(self) -> bool:
        """Return whether the interval contains the published value."""
        return self.interval is not None and self.interval.holds(self.published)


@dataclass(frozen=True)
class Errors:
    """Statistics of prediction errors, as shares."""

    count: int
    mape: float
    median: float
    most: float
    bias: float
    within_5: float
    within_10: float

    @staticmethod
    def of(errors: Sequence[float]) -> Errors:
        """Summarise signed errors; raise ValueError for an empty sequence."""
        sizes = [abs(error) for error in errors]
        shares = (mean(size <= bound for size in sizes) for bound in (0.05, 0.10))
        return Errors(len(sizes), mean(sizes), median(sizes), max(sizes), mean(errors), *shares)


@dataclass(frozen=True)
class Validated:
    """A paper's cells beside what runs say of them, by role."""

    paper: Paper
    predicted: Sequence[Prediction]
    calibrated: Sequence[Prediction]
    checked: Sequence[Prediction]
    reported: Sequence[Prediction]
    unmapped: Sequence[PublishedCell]
    """Cells of the four roles that no run reproduces."""

    @property
    def asked(self) -> int:
        """Count the cells of role ``predict``, unmapped ones included."""
        return len(self.predicted) + sum(cell.role == "predict" for cell in self.unmapped)


def predictions(paper: Paper, answer: Answer, roles: tuple[str, ...]) -> list[Prediction]:
    """Run every mapped cell of these roles and return the predictions in the paper's order."""
    chosen = paper.with_role(*roles)
    return _beside(paper, chosen, answer([paper.question(cell) for cell in chosen]))


def validated(paper: Paper, spread: Spread, claimed: Mapping[str, Judged] = MappingProxyType({})) -> Validated:
    """Run every mapped cell of a paper; predicted cells get an interval.

    ``claimed``: the claims that give reported cells without a scenario their run, by cell.
    """
    chosen = paper.with_role("predict")
    estimates = spread(estimate, [paper.question(cell) for cell in chosen])

    def answer(questions: Iterable[Question]) -> list[float]:
        return spread(Question.answer, questions)

    calibrated, checked, reported = (predictions(paper, answer, (role,)) for role in ("calibrate", "check", "report"))
    residuals = left_over(calibrated, paper.free)
    intervals = [interval(value, doubt, residuals) for value, doubt in estimates]
    bare = _beside(paper, chosen, [value for value, _ in estimates])
    predicted = [replace(prediction, interval=span) for prediction, span in zip(bare, intervals, strict=True)]
    unmapped = paper.unmapped("calibrate", "predict", "check", "report")
    said = [cell for cell in unmapped if cell.role == "report" and cell.cell in claimed]
    reported += _beside(paper, said, [claimed[cell.cell].run_of(cell) for cell in said])
    return Validated(paper, predicted, calibrated, checked, reported, [cell for cell in unmapped if cell not in said])


def _beside(paper: Paper, chosen: Sequence[PublishedCell], values: Sequence[float]) -> list[Prediction]:
    return [
        Prediction(paper.name, cell, run, likeness(cell, paper.cells), note=paper.note(cell))
        for cell, run in zip(chosen, values, strict=True)
    ]


def single_cells(papers: Iterable[Paper], patterns: Sequence[str]) -> list[tuple[str, PublishedCell, Question]]:
    """Return the mapped cells whose names match a pattern, each with its paper and question; raise BadInput for none."""
    chosen: list[tuple[str, PublishedCell, Question]] = []
    for paper in papers:
        mapped = paper.with_role("calibrate", "predict", "check", "report")
        named = [cell for cell in mapped if any(fnmatchcase(cell.cell, pattern) for pattern in patterns)]
        chosen += [(paper.name, cell, paper.question(cell)) for cell in named]
    if not chosen:
        raise BadInput([Fault((" ".join(patterns), 0, 0), "", "no mapped cell has such a name; see cells.csv of the paper")])
    return chosen


def left_over(calibrated: Sequence[Prediction], free: int) -> list[float]:
    """Return residuals ``log(run / published)`` of calibrated cells, widened by the degrees of freedom that the fit used."""
    widened = sqrt(len(calibrated) / max(1, len(calibrated) - free)) if free else 1.0
    return [widened * log(prediction.run / prediction.published) for prediction in calibrated]


def estimate(question: Question) -> tuple[float, Doubt]:
    """Return an answer in its metric's unit, and what its run knows of its own uncertainty."""
    times = Times()
    value = question.answer(finished=times.note)
    devices = slowed(load(question.run.scenario, question.run.overrides))
    return value, Doubt(tuple(times.requests), {name: log(question.answer(change) / value) for name, change in devices})


def likeness(cell: PublishedCell, cells: Iterable[PublishedCell]) -> float | None:
    """Return the estimate of somebody who has the calibrated cells and no simulator; None where nothing compares."""
    known = [other for other in cells if other.role == "calibrate" and other.quantity == cell.quantity and other is not cell]
    if not known:
        return None

    def alike(other: PublishedCell) -> tuple[bool, int]:
        return other.method == cell.method, sum(getattr(other, column) == getattr(cell, column) for column in COLUMNS)

    most = max(map(alike, known))
    return geometric_mean(float(other.published) for other in known if alike(other) == most)


POOLED = "all papers"
FEW = 10
"""Predicted cells of a paper below which it is not held to a bound of its own."""


@dataclass(frozen=True)
class Summary:
    """A paper, or all of them: its cells, its free parameters, its errors beside those of the baseline."""

    name: str
    asked: int
    free: int
    errors: Errors | None
    """None where no predicted cell has a run."""
    guess: Errors | None
    covered: float
    """Share of published values within the interval of their run."""


def summaries(papers: Sequence[Validated]) -> list[Summary]:
    """Return a summary of each paper, then one of all papers together."""

    def summary(name: str, members: Sequence[Validated]) -> Summary:
        predictions = [prediction for paper in members for prediction in paper.predicted]
        guesses = [prediction.guess_error for prediction in predictions if prediction.guess_error is not None]
        return Summary(
            name,
            sum(paper.asked for paper in members),
            sum(paper.paper.free for paper in members),
            Errors.of([prediction.error for prediction in predictions]) if predictions else None,
            Errors.of(guesses) if guesses else None,
            mean(prediction.covered for prediction in predictions) if predictions else 0.0,
        )

    return [*(summary(paper.paper.name, [paper]) for paper in papers), summary(POOLED, papers)]


class ErrorBounds(NamedTuple):
    """Bounds that errors must keep, as shares; None where nothing is asked."""

    most_mape: float | None = None
    most_median: float | None = None
    least_within_10: float | None = None
    most_mape_of_a_paper: float | None = None
    """Largest MAPE of a paper with ``FEW`` predicted cells or more."""


GOAL = ErrorBounds(0.06, 0.035, 0.82, 0.09)
"""What the project holds itself to over the 132 predicted cells of five papers."""


class Shortfall(NamedTuple):
    """A bound that is missed."""

    of: str
    what: str
    value: float
    bound: float

    def __str__(self) -> str:
        way = "below" if self.value < self.bound else "above"
        return f"{self.of}: {self.what} {100 * self.value:.1f} % is {way} {100 * self.bound:g} %"


def shortfalls(validations: Sequence[Validated], bounds: ErrorBounds) -> list[Shortfall]:
    """Return every bound that is missed; a bound with nothing to compare is not missed."""
    *papers, pooled = summaries(validations)
    checks: list[tuple[str, str, float, float | None]] = []
    if pooled.errors:
        errors = pooled.errors
        checks += [(POOLED, "MAPE", errors.mape, bounds.most_mape), (POOLED, "median", errors.median, bounds.most_median)]
        checks += [(POOLED, "within 10 %", errors.within_10, bounds.least_within_10)]
    for paper in papers:
        if paper.errors and paper.errors.count >= FEW:
            checks.append((paper.name, "MAPE", paper.errors.mape, bounds.most_mape_of_a_paper))
    missed = []
    for of, what, value, bound in checks:
        if bound is not None and (value < bound if what == "within 10 %" else value > bound):
            missed.append(Shortfall(of, what, value, bound))
    return missed
