"""The call that answers a plan."""

from pathlib import Path

import pandas as pd

from simulator.api.asked import Folder, Overrides, lines, shelves
from simulator.api.result import Result
from simulator.inputs.shell import command_line
from simulator.report.pages.plan import page as plan_page, write_plan
from simulator.studies.plan.file import load_plan
from simulator.studies.plan.study import (
    PlanStudy,
    finding_data,
    study as plan_study,
    summary as plan_summary,
)


def plan(
    name: str | Path,
    overrides: Overrides = (),
    *,
    draws: int = 20,
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[PlanStudy]:
    """Find the cheapest fleet of a plan file that keeps its SLO, and return it with how firm that
    answer is.

    ``draws`` runs are resampled for the chance that the SLO is met. Raises :class:`BadInput` with
    the faults of the file, :class:`Infeasible` with the nearest miss where no fleet keeps the SLO.
    """
    command = command_line(
        "plan", [str(name)], lines(overrides), seed, [] if draws == 20 else ["--draws", str(draws)]
    )
    answer = plan_study(
        load_plan(str(name), lines(overrides), shelves(catalogue), seed), command, draws
    )
    return Result(
        answer,
        lambda: plan_summary(answer),
        lambda: pd.json_normalize([finding_data(finding) for finding in answer.search.findings]),
        lambda: plan_page(answer),
        lambda folder: write_plan(answer, folder),
    )
