"""The page of ``python -m benchmarks.papers``: what decides the free parameters of a paper, and
what each cell is left with.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, sqrt
from typing import NamedTuple

import yaml

from benchmarks.papers.fitting import Calibration
from simulator.evidence.fits import SCALES, FittedPaper, OpenChoice, Paper, Parameter
from simulator.report.blocks import Block, Bullets, Page, Table, sections
from simulator.report.columns import Column, table
from simulator.report.wording import number

AT_BOUND = 1e-3
"""How near to a bound a term is called at it, as a share of the width between the bounds."""


class Term(NamedTuple):
    """A fitted term of a parameter, on the parameter's scale, for a group of cells."""

    name: str
    group: str
    parameter: Parameter
    value: float

    @property
    def scaled(self) -> float:
        """Return the term in the unit of the scenario's key."""
        return SCALES[self.parameter.scale](self.value)

    @property
    def bounds(self) -> list[float]:
        """Return the ends of its range in the unit of the scenario's key, ascending."""
        scale = SCALES[self.parameter.scale]
        return sorted((scale(self.parameter.least), scale(self.parameter.most)))


def page(paper: Paper, calibration: Calibration) -> Page:
    """Return the page of a fit: its residual, every free term with its bounds, and the residual of
    every calibrated cell.
    """
    deciding = len(paper.with_role("calibrate"))
    predicted = len(paper.with_role("predict"))
    residuals = calibration.residuals
    spread = sqrt(sum(residual**2 for residual in residuals.values()) / len(residuals))
    terms = [
        Term(name, group, parameter, calibration.terms[name][group])
        for (name, group), parameter in paper.terms().items()
    ]
    return Page(
        f"{paper.name}: {paper.free} free parameters, {deciding} calibrated cells, {predicted} "
        "predicted cells",
        answer=f"{len(residuals)} cells, residual {100 * spread:.2f} % (root mean square), "
        f"{calibration.runs} runs.",
        opening=[_terms(terms)],
        sections=sections(
            ("What decides them", _parameters(paper, terms)),
            ("Residuals", [_residuals(paper, residuals)]),
        ),
        command=f"python -m benchmarks.papers {paper.name}",
    )


def _terms(terms: Sequence[Term]) -> Table:
    """Return the table of fitted terms."""
    columns = [
        Column[Term]("parameter", lambda term: term.name),
        Column[Term]("for", lambda term: term.group),
        Column[Term]("value", lambda term: number(term.scaled)),
        Column[Term]("term", lambda term: number(term.value)),
        Column[Term]("", lambda term: at_bound(term.parameter, term.value)),
    ]
    return table("Fitted terms", terms, columns)


def _residuals(paper: Paper, residuals: Mapping[str, float]) -> Table:
    """Return the table of calibrated cells: what is published, and what the fit makes of it."""
    published = {cell.cell: float(cell.published) for cell in paper.with_role("calibrate")}
    columns = [
        Column[str]("cell", str),
        Column[str]("published", lambda cell: number(published[cell])),
        Column[str]("run", lambda cell: number(published[cell] * exp(residuals[cell]))),
        Column[str]("residual", lambda cell: f"{100 * (exp(residuals[cell]) - 1):+.1f} %"),
    ]
    return table("Cells", residuals, columns)


def _parameters(paper: Paper, terms: Sequence[Term]) -> Iterator[Block]:
    """Yield every free term with its bounds, in the unit of the scenario's key, and how many cells
    decide it.
    """
    deciding = paper.with_role("calibrate")

    def decided(term: Term) -> str:
        parameter = term.parameter
        cells = [
            cell
            for cell in deciding
            if parameter.decides(cell) and parameter.group(cell) == term.group
        ]
        return f"{len(cells)} cells"

    columns = [
        Column[Term]("parameter", lambda term: term.name),
        Column[Term]("for", lambda term: term.group),
        Column[Term]("key", lambda term: ", ".join(term.parameter.keys)),
        Column[Term]("from", lambda term: number(term.bounds[0])),
        Column[Term]("to", lambda term: number(term.bounds[1])),
        Column[Term]("decided by", decided),
    ]
    yield table("Free parameters", terms, columns)
    yield Bullets([f"{name}: {parameter.why}" for name, parameter in paper.parameters.items()])
    if paper.choices:
        yield table("Choices", paper.choices, CHOICES)


CHOICES = (
    Column[OpenChoice]("chosen", lambda choice: choice.what),
    Column[OpenChoice]("value", lambda choice: choice.value),
    Column[OpenChoice](
        "after seeing results", lambda choice: "yes" if choice.after_seeing else "no"
    ),
    Column[OpenChoice]("rests on", lambda choice: choice.rests_on),
)


def at_bound(parameter: Parameter, term: float) -> str:
    """Return ``at its bound`` where a fitted term lies at the end of its range, else an empty
    text.
    """
    near = AT_BOUND * (parameter.most - parameter.least)
    return "at its bound" if term - parameter.least < near or parameter.most - term < near else ""


def as_yaml(fitted: FittedPaper) -> str:
    """Return the text of ``fitted.yaml``."""
    return yaml.safe_dump(fitted.model_dump(), sort_keys=False, allow_unicode=True)
