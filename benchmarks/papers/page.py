"""The page of ``python -m benchmarks.papers``: what decides the free parameters of a paper, and
what each cell is left with.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, sqrt
from typing import Any

import yaml

from benchmarks.papers.fitting import Calibration
from simulator.evidence.fits import SCALES, FittedPaper, Paper, Parameter
from simulator.report.blocks import Block, Bullets, Page, sections
from simulator.report.wording import Wording

say = Wording("paper")
AT_BOUND = 1e-3
"""How near to a bound a term is called at it, as a share of the width between the bounds."""


def page(paper: Paper, calibration: Calibration) -> Page:
    """Return the page of a fit: its residual, every free term with its bounds, and the residual of
    every calibrated cell.
    """
    deciding, predicted = paper.with_role("calibrate"), len(paper.with_role("predict"))
    residuals = calibration.residuals
    spread = sqrt(sum(residual**2 for residual in residuals.values()) / len(residuals))
    terms = [
        {
            "name": name,
            "group": group,
            "parameter": parameter,
            "term": calibration.terms[name][group],
        }
        for (name, group), parameter in paper.terms().items()
    ]
    published = {cell.cell: float(cell.published) for cell in deciding}
    return Page(
        title=say("title", paper=paper, deciding=len(deciding), predicted=predicted),
        answer=say("answer", cells=len(residuals), spread=spread, runs=calibration.runs),
        opening=[say.table("terms", terms, scaled=_scaled, at_bound=at_bound)],
        sections=sections(
            ("What decides them", _parameters(paper, terms)),
            (
                "Residuals",
                [say.table("residuals", residuals.items(), published=published, exp=exp)],
            ),
        ),
        command=f"python -m benchmarks.papers {paper.name}",
    )


def _scaled(parameter: Parameter, term: float) -> float:
    """Return a term in the unit of the scenario's key."""
    return SCALES[parameter.scale](term)


def _parameters(paper: Paper, terms: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Yield every free term with its bounds, in the unit of the scenario's key, and how many cells
    decide it.
    """

    def bounds(parameter: Parameter) -> list[float]:
        return sorted(_scaled(parameter, bound) for bound in (parameter.least, parameter.most))

    def decided(term: Mapping[str, Any]) -> int:
        parameter, deciding = term["parameter"], paper.with_role("calibrate")
        return sum(
            parameter.decides(cell) and parameter.group(cell) == term["group"] for cell in deciding
        )

    yield say.table("parameters", terms, bounds=bounds, decided=decided)
    yield Bullets([f"{name}: {parameter.why}" for name, parameter in paper.parameters.items()])
    if paper.choices:
        yield say.table("choices", paper.choices)


def at_bound(parameter: Parameter, term: float) -> str:
    """Return ``at its bound`` where a fitted term lies at the end of its range, else an empty
    text.
    """
    near = AT_BOUND * (parameter.most - parameter.least)
    return "at its bound" if term - parameter.least < near or parameter.most - term < near else ""


def as_yaml(fitted: FittedPaper) -> str:
    """Return the text of ``fitted.yaml``."""
    return yaml.safe_dump(fitted.model_dump(), sort_keys=False, allow_unicode=True)
