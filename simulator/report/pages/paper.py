"""The fit of a paper's free parameters (``specsim calibrate paper``): what decides them, and what it leaves of each cell."""

from collections.abc import Iterator, Mapping
from math import exp, sqrt

import yaml

from simulator.evidence.fits import SCALES, FittedPaper, Paper, Parameter
from simulator.evidence.fitting import Calibration
from simulator.report.blocks import Block, Bullets, Page, Table, sections
from simulator.report.numbers import number

AT_BOUND = 1e-3
"""How near to a bound a term is called at it, as a share of the width between the bounds."""


def page(paper: Paper, calibration: Calibration) -> Page:
    """Return the page of a fit: its residual, every free term with its bounds, and the residual of every calibrated cell."""
    deciding, predicted = len(paper.with_role("calibrate")), len(paper.with_role("predict"))
    squares = [residual**2 for residual in calibration.residuals.values()]
    spread = f"residual {100 * sqrt(sum(squares) / len(squares)):.2f} % (root mean square)"
    return Page(
        title=f"{paper.name}: {paper.free} free parameters, {deciding} calibrated cells, {predicted} predicted cells",
        answer=f"{len(squares)} cells, {spread}, {calibration.runs} runs.",
        opening=[Table(("parameter", "for", "value", "term", ""), list(_terms(paper, calibration)), "Fitted terms")],
        sections=sections(
            ("What decides them", _parameters(paper)),
            ("Residuals", [Table(("cell", "published", "run", "residual"), list(_residuals(paper, calibration)), "Cells")]),
        ),
        command=f"specsim calibrate paper {paper.name}",
    )


def _terms(paper: Paper, calibration: Calibration) -> Iterator[tuple[str, ...]]:
    """Yield a row for each fitted term: its value in the unit of the scenario's key, and whether it is at its bound."""
    for (name, group), parameter in paper.terms().items():
        term = calibration.terms[name][group]
        yield name, group, number(SCALES[parameter.scale](term)), number(term), at_bound(parameter, term)


def _parameters(paper: Paper) -> Iterator[Block]:
    """Yield every free term with its bounds, in the unit of the scenario's key, and how many cells decide it."""
    deciding, rows = paper.with_role("calibrate"), []
    for (name, group), parameter in paper.terms().items():
        least, most = sorted(SCALES[parameter.scale](bound) for bound in (parameter.least, parameter.most))
        cells = sum(parameter.decides(cell) and parameter.group(cell) == group for cell in deciding)
        rows.append((name, group, ", ".join(parameter.keys), number(least), number(most), f"{cells} cells"))
    yield Table(("parameter", "for", "key", "from", "to", "decided by"), rows, "Free parameters")
    yield Bullets([f"{name}: {parameter.why}" for name, parameter in paper.parameters.items()])
    if paper.choices:
        chosen = [(c.what, str(c.value), "yes" if c.after_seeing else "no", c.rests_on) for c in paper.choices]
        yield Table(("chosen", "value", "after seeing results", "rests on"), chosen, "Choices")


def _residuals(paper: Paper, calibration: Calibration) -> Iterator[tuple[str, ...]]:
    """Yield a row for each calibrated cell: what was published, what the fit gives, and the residual in per cent."""
    published: Mapping[str, float] = {cell.cell: float(cell.published) for cell in paper.with_role("calibrate")}
    for name, residual in calibration.residuals.items():
        ratio = exp(residual)
        yield name, number(published[name]), number(published[name] * ratio), f"{100 * (ratio - 1):+.1f} %"


def at_bound(parameter: Parameter, term: float) -> str:
    """Return ``at its bound`` where a fitted term lies at the end of its range, else an empty text."""
    near = AT_BOUND * (parameter.most - parameter.least)
    return "at its bound" if term - parameter.least < near or parameter.most - term < near else ""


def as_yaml(fitted: FittedPaper) -> str:
    """Return the text of ``fitted.yaml``."""
    return yaml.safe_dump(fitted.model_dump(), sort_keys=False, allow_unicode=True)
