"""The command ``specsim calibrate service``: device and engine fitted to a running service."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from simulator.cli import options
from simulator.cli.options import Names, Paths, answer, working
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.evidence.live.cases import ObservedCase


@click.command("service")
@click.argument("observations", metavar="OBSERVED...", type=options.FILE, nargs=-1, required=True)
@click.option(
    "--like",
    metavar="NAME",
    required=True,
    help="Scenario that supplies models, device, engine and method.",
)
@click.option(
    "--hold-out",
    "held_out",
    metavar="OBSERVED",
    type=options.FILE,
    multiple=True,
    help="An observation that no fit sees, and that is simulated all the same; repeatable.",
)
@click.option(
    "--free",
    metavar="TERM",
    multiple=True,
    help="A term that may be fitted, as engine.outside_ms; repeatable, at most eight "
    "[default: the first eight that act].",
)
@click.option(
    "--skip",
    metavar="N",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help="First requests of each observation that do not count, as a server warms up.",
)
@options.output(
    "--out", type=options.FOLDER, help="Folder for device.yaml, engine.yaml, scenario.yaml, a page."
)
@options.as_json
@options.own
def service(
    observations: Paths,
    like: str,
    held_out: Paths,
    free: Names,
    skip: int,
    out: Path | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Fit at most eight numbers of device and engine to a running service, as `specsim observe`
    wrote it down.

    One request of four is held out by a fixed rule, and its error printed; terms that the files do
    not tell keep their values, and what would tell them is said.
    """
    from simulator.evidence.live.calibration import fit_service
    from simulator.evidence.live.written import fitted_files, scenario_files
    from simulator.report.page import page_files, write_files
    from simulator.report.services.fitted import fitted_data, fitted_page

    catalogue = Catalogue(own)
    lines = []
    with working("reading") as display, TemporaryDirectory() as kept:
        paths = [*observations, *held_out]
        cases = read_cases(paths, len(observations), like, Path(kept), catalogue, skip)
        fit = fit_service(cases, free, display.update)
        page = fitted_page(fit)
        data = fitted_data(fit)
        if out:
            files = dict(fitted_files(fit, paths, like, out, catalogue))
            files |= page_files(page, "calibrated")
            write_files(out, files)
            lines = [f"specsim run {out / name}" for name in scenario_files(len(cases))]
            data["written"] = [str(out / name) for name in files]
    answer(as_json, lambda: data, lambda: page, *lines)


def read_cases(
    paths: Sequence[Path],
    fitted: int,
    like: str,
    folder: Path,
    catalogue: Catalogue,
    skip: int = 0,
) -> list[ObservedCase]:
    """Return observations, of which the first ``fitted`` may be fitted, with scenarios in a
    folder; those of one name are told apart by numbers.
    """
    from dataclasses import replace

    from simulator.evidence.live.cases import observed_case

    if len(set(paths)) < len(paths):
        raise BadInput.at("calibrate service", "expected each observation once")
    cases: list[ObservedCase] = []
    for place, path in enumerate(paths):
        own = folder / str(place)
        case = observed_case(path, like, own, catalogue, held_out=place >= fitted, skipped=skip)
        if case.name in {other.name for other in cases}:
            case = replace(case, name=f"{case.name} ({place + 1})")
        cases.append(case)
    return cases
