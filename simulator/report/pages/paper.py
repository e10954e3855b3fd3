"""The fit of a paper's free parameters (``specsim calibrate paper``): what decides them, and what it leaves of each cell."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, sqrt

import yaml
from rich.console import Console
from rich.text import Text

from simulator.evidence.fits import SCALES, FittedPaper, Paper, Parameter
from simulator.evidence.fitting import Calibration
from simulator.report.console import WIDEST, item, new_table
from simulator.report.run_summary import number

AT_BOUND = 1e-3
"""How near to a bound a term is called at it, as a share of the width between the bounds."""


def print_parameters(paper: Paper, console: Console) -> None:
    """Print every free term with its bounds, in the unit of the scenario's key, and how many cells decide it."""
    width, deciding = min(console.width, WIDEST), paper.with_role("calibrate")
    predicted = len(paper.with_role("predict"))
    title = f"{paper.name}: {paper.free} free parameters, {len(deciding)} calibrated cells, {predicted} predicted cells"
    console.print(Text(title, style="bold"), width=width)
    table = new_table("parameter", "for", "key", "from", "to", "decided by")
    for (name, group), parameter in paper.terms().items():
        least, most = sorted(SCALES[parameter.scale](bound) for bound in (parameter.least, parameter.most))
        cells = sum(parameter.decides(cell) and parameter.group(cell) == group for cell in deciding)
        table.add_row(name, group, parameter.key, number(least), number(most), f"{cells} cells")
    console.print(table, width=width)
    for name, parameter in paper.parameters.items():
        item(console, f"{name}: {parameter.why}", width)


def print_residuals(paper: Paper, calibration: Calibration, console: Console) -> None:
    """Print the fitted terms, and the residual of every calibrated cell in per cent."""
    width = min(console.width, WIDEST)
    table = new_table("parameter", "for", "value", "term", "")
    for (name, group), parameter in paper.terms().items():
        term = calibration.terms[name][group]
        table.add_row(name, group, number(SCALES[parameter.scale](term)), number(term), at_bound(parameter, term))
    console.print(table, width=width)
    cells = new_table("cell", "published", "run", "residual")
    published: Mapping[str, float] = {cell.cell: float(cell.published) for cell in paper.with_role("calibrate")}
    for name, residual in calibration.residuals.items():
        ratio = exp(residual)
        cells.add_row(name, number(published[name]), number(published[name] * ratio), f"{100 * (ratio - 1):+.1f} %")
    console.print(cells, width=width)
    squares = [residual**2 for residual in calibration.residuals.values()]
    spread = f"residual {100 * sqrt(sum(squares) / len(squares)):.2f} % (root mean square)"
    item(console, f"{len(squares)} cells, {spread}, {calibration.runs} runs", width)


def at_bound(parameter: Parameter, term: float) -> str:
    """Return ``at its bound`` where a fitted term lies at the end of its range, else an empty text."""
    near = AT_BOUND * (parameter.most - parameter.least)
    return "at its bound" if term - parameter.least < near or parameter.most - term < near else ""


def as_yaml(fitted: FittedPaper) -> str:
    """Return the text of ``fitted.yaml``."""
    return yaml.safe_dump(fitted.model_dump(), sort_keys=False, allow_unicode=True)
