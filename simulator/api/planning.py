"""The calls that answer a plan, and that compare stated fleets."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from simulator.api.asked import Folder, Overrides, lines, shelves
from simulator.api.result import Result
from simulator.core.plain import PlainData
from simulator.inputs.shell import command_line
from simulator.report.pages.fleets import page as fleets_page, write_fleets
from simulator.report.pages.plan import page as plan_page, write_plan
from simulator.studies.plan.file import load_plan
from simulator.studies.plan.line.asked import PlanLine, asked_fleets
from simulator.studies.plan.robustness import DRAWS
from simulator.studies.plan.stated import StatedFleets, stated_fleets
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
    draws: int = DRAWS,
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[PlanStudy]:
    """Find the cheapest fleet of a plan file that keeps its SLO, and return it with how firm that
    answer is.

    ``draws`` runs are resampled for the chance that the SLO is met. Raises :class:`BadInput` with
    the faults of the file, :class:`Infeasible` with the nearest miss where no fleet keeps the SLO.
    """
    command = command_line("plan", [str(name)], lines(overrides), seed, _draws(draws))
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


def compare_fleets(
    fleets: Iterable[str],
    model: str,
    slo: str,
    traffic: str | Path | None = None,
    overrides: Overrides = (),
    *,
    sessions: str | Path | None = None,
    rate: float | None = None,
    requests: int | None = None,
    price: str | None = None,
    engine: str | None = None,
    draft: str | None = None,
    weights: str | None = None,
    draws: int = DRAWS,
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[StatedFleets]:
    """Compare stated fleets, and return whether each meets the SLO, what it costs and carries, and
    what limits it.

    A fleet is ``"h100_sxm:4"``, or ``"h100_sxm:4+l40s:8"`` for devices that serve side by side.
    All else is what follows the options of ``specsim plan``: ``slo`` as ``"ttft_ms p95 < 1000"``,
    ``traffic`` a log or a workload by name (or ``sessions``), ``rate`` in requests per second,
    ``price`` as ``"h100_sxm=2.10"`` (USD per hour). Raises :class:`BadInput` with the faults of
    these words, :class:`Infeasible` where the model has room on none of the fleets.
    """
    line = PlanLine(
        model=model,
        fleets=tuple(fleets),
        traffic=None if traffic is None else str(traffic),
        sessions=None if sessions is None else str(sessions),
        rate=rate,
        requests=requests,
        slos=(slo,),
        price=price,
        engine=engine,
        draft=draft,
        weights=weights,
    )
    words = [*line.words, *_draws(draws)]
    command = command_line("plan", [], lines(overrides), seed, words)
    shelf = shelves(catalogue)
    question, stated = asked_fleets(line, shelf)
    compared = stated_fleets(question, stated, shelf, lines(overrides), seed, draws)
    return Result(
        compared,
        compared.as_data,
        lambda: pd.json_normalize([_row(fleet) for fleet in compared.as_data()["fleets"]]),
        lambda: fleets_page(compared, command),
        lambda folder: write_fleets(compared, folder, command),
    )


def _draws(draws: int) -> list[str]:
    """Return how many resampled runs a command states; nothing for as many as it takes itself."""
    return [] if draws == DRAWS else ["--draws", str(draws)]


def _row(fleet: PlainData) -> PlainData:
    """Return a fleet as a line of a table: without its groups, which are a table of their own."""
    return {name: value for name, value in fleet.items() if name != "groups"}
