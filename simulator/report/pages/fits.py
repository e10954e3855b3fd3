"""What is free in the scenarios of a paper, what decides it, and what a fit came to: on a terminal, and as a file."""

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
"""Of the width between the bounds."""


def parameters(paper: Paper, console: Console) -> None:
    """Every term with its bounds, as the key of the scenario takes it, and how many cells decide it."""
    width, deciding = min(console.width, WIDEST), paper.with_role("calibrate")
    predicted = len(paper.with_role("predict"))
    title = f"{paper.name}: {paper.free} free parameters, {len(deciding)} calibrated cells, {predicted} predicted cells"
    console.print(Text(title, style="bold"), width=width)
    table = new_table("parameter", "for", "key", "from", "to", "decided by")
    for (name, group), one in paper.terms().items():
        least, most = sorted(SCALES[one.scale](bound) for bound in (one.least, one.most))
        cells = sum(one.decides(cell) and one.group(cell) == group for cell in deciding)
        table.add_row(name, group, one.key, number(least), number(most), f"{cells} cells")
    console.print(table, width=width)
    for name, one in paper.parameters.items():
        item(console, f"{name}: {one.why}", width)


def residuals(paper: Paper, found: Calibration, console: Console) -> None:
    """The terms, and the residual of every calibrated cell."""
    width = min(console.width, WIDEST)
    table = new_table("parameter", "for", "value", "term", "")
    for (name, group), one in paper.terms().items():
        term = found.terms[name][group]
        table.add_row(name, group, number(SCALES[one.scale](term)), number(term), at_bound(one, term))
    console.print(table, width=width)
    cells = new_table("cell", "published", "run", "residual")
    published: Mapping[str, float] = {cell.cell: float(cell.published) for cell in paper.with_role("calibrate")}
    for name, left in found.residuals.items():
        cells.add_row(name, number(published[name]), number(published[name] * exp(left)), f"{100 * (exp(left) - 1):+.1f} %")
    console.print(cells, width=width)
    spread = sqrt(sum(left**2 for left in found.residuals.values()) / len(found.residuals))
    item(console, f"{len(found.residuals)} cells, residual {100 * spread:.2f} % (root mean square), {found.runs} runs", width)


def at_bound(one: Parameter, term: float) -> str:
    """Says so where a term lies at the end of what was allowed."""
    near = AT_BOUND * (one.most - one.least)
    return "at its bound" if term - one.least < near or one.most - term < near else ""


def as_yaml(fitted: FittedPaper) -> str:
    """The text of ``fitted.yaml``."""
    return yaml.safe_dump(fitted.model_dump(), sort_keys=False, allow_unicode=True)
