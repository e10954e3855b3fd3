"""The commands ``specsim sweep`` and ``specsim plot``: many points of one scenario, kept in a
store, and pictures of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli import options
from simulator.cli.groups import INTERRUPTED
from simulator.cli.options import answer, faults_as_lines
from simulator.core.faults import CONTROLS, BadInput, Fault
from simulator.core.parallel import CORES
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.shell import command_line, repeated

if TYPE_CHECKING:
    from simulator.scenario import Scenario
    from simulator.studies.sweep.store import Store
    from simulator.studies.sweep.study import SweepStudy
    from simulator.studies.sweep.table import SweepTable

NAMED_FAULTS = 20
"""Faulty points that are printed with their fault."""


@click.command("sweep")
@click.argument("name", metavar="SWEEP_OR_SCENARIO")
@click.option(
    "--axis",
    "axes",
    metavar="KEY=VALUES",
    multiple=True,
    help="a,b,c or low:high:count or log:low:high:count.",
)
@click.option(
    "--zip",
    "combine",
    flag_value="zip",
    help="All axes change in step, instead of every combination.",
)
@click.option(
    "--latin-hypercube",
    "samples",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="N points spread over all axes.",
)
@click.option(
    "--evaluate",
    type=click.Choice(["law", "replay", "simulation", "law then simulation"]),
    help="How points are evaluated.",
)
@click.option(
    "--keep",
    metavar="RULE",
    help="Points of a law that a simulation confirms: 'best 10% of tpot_ms', 'speedup >= 1.2'.",
)
@click.option(
    "--workers", type=click.IntRange(1, 4_096), help="Processes  [default: one for each core]."
)
@click.option(
    "--scheduler",
    metavar="tcp://HOST:PORT",
    help="A Dask scheduler whose workers evaluate the points.",
)
@options.output(
    "--store", type=options.NEW_FILE, help="SQLite file  [default: reports/sweeps/NAME.sqlite]."
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with a store; points that it holds are not evaluated again.",
)
@click.option("--status", is_flag=True, help="Only print how many points the store holds.")
@options.output(
    "--export",
    "exported",
    type=options.NEW_FILE,
    help="Table of all points, .csv or .parquet, once all are evaluated.",
)
@options.output(
    "--plots", type=options.FOLDER, help="Folder for the pictures that the sweep names."
)
@options.pictures
@options.output(
    "--report", type=options.FOLDER, help="Folder for a page, .md and .html, and its files."
)
@options.as_json
@options.long
@options.overrides
@options.seed
@options.own
def sweep(name: str, store: Path | None, status: bool, as_json: bool, **asked: Any) -> None:
    """Evaluate every point of a sweep: a file of scenarios/sweeps, or axes over any fields of a
    scenario.

    A point that is wrong or fails is named at the end and stops no other point; exit code 2
    where all points fail. Ctrl-C leaves a store that --resume goes on with, and changes no
    other file.
    """
    from simulator.studies.sweep.store import reading
    from simulator.studies.sweep.table import check_ending, table

    path = store or Path("reports/sweeps") / f"{Path(name).stem}.sqlite"
    files = {option: asked.pop(option) for option in ("exported", "plots", "report")}
    with faults_as_lines():
        if status:
            with reading(path) as database:
                _print_status(database, as_json)
            return
        if files["exported"]:
            check_ending(files["exported"])
        study, finished = _evaluated(name, path, **asked)
        with reading(path) as database:
            points = table(database)
        unwritten = "no other file was changed"
        if finished:
            try:
                _write_files(points, study, _typed(name, asked), **files)
            except KeyboardInterrupt:
                finished = False
                unwritten = "files that were not reached are as they were"
        if finished and len(points.frame) and points.frame["fault"].notna().all():
            raise _all_wrong(points)
    _print_points(points, study.base.scenario, _typed(name, asked), path, as_json)
    if not finished:
        click.echo(f"interrupted; {path} keeps the points that are done, and {unwritten}", err=True)
        click.echo(f"go on with: {_typed(name, asked, _resuming(path, files, asked))}", err=True)
        sys.exit(INTERRUPTED)


def _all_wrong(points: SweepTable) -> BadInput:
    """Return the error of a sweep without a point that could be evaluated: there is no answer, only
    faults.
    """
    from simulator.studies.sweep.table import faults

    wrong = (
        Fault((fault["at"] or points.name, 0, 0), "", fault["fault"])
        for fault in faults(points).values()
    )
    return BadInput(wrong)


def _evaluated(
    name: str, path: Path, *, workers: int | None, scheduler: str | None, resume: bool, **asked: Any
) -> tuple[SweepStudy, bool]:
    """Evaluate the points that the store does not have; return the sweep, and whether all of them
    were reached.
    """
    from simulator.cli.display import showing
    from simulator.studies.sweep.executors import crew
    from simulator.studies.sweep.store import writing
    from simulator.studies.sweep.study import study as read_study
    from simulator.studies.sweep.sweeping import sweep as evaluate

    samples = asked.pop("samples")
    combine = asked.pop("combine")
    if samples:
        combine = "latin_hypercube"
    catalogue = Catalogue(asked.pop("own"))
    study = read_study(name, catalogue, samples=samples, combine=combine, **asked)
    with writing(path, lambda text: click.echo(text, err=True)) as store:
        if not (resume or store.empty):
            raise BadInput.at(
                path, "holds a sweep already; --resume goes on with it, --store names another"
            )
        # so that there is a sweep to go on with, whenever it is interrupted
        store.begin(study.definition, study.identity)
        try:
            with crew(workers or CORES, scheduler) as hired, showing("sweeping"):
                evaluate(study, store, hired)
        except KeyboardInterrupt:
            return study, False
    return study, True


def _write_files(
    points: SweepTable,
    study: SweepStudy,
    command: str,
    *,
    exported: Path | None,
    plots: Path | None,
    report: Path | None,
) -> None:
    """Write what was asked for of a sweep that is complete: the table, its pictures, a page with
    both.
    """
    from simulator.studies.sweep.table import export

    if exported:
        export(points, exported)
    if plots:
        _draw_all(points, plots)
    if report:
        from simulator.report.pages.sweep import write_sweep

        write_sweep(points, study.base.scenario, command, report)


def _typed(name: str, asked: PlainData, more: Sequence[str] = ()) -> str:
    """Return the command that evaluates the same points again, with more options behind it."""
    words = repeated("--axis", asked["axes"])
    for key, flag in {
        "evaluate": "--evaluate",
        "keep": "--keep",
        "samples": "--latin-hypercube",
    }.items():
        if asked[key]:
            words += [flag, str(asked[key])]
    if asked["combine"]:
        words.append("--zip")
    return command_line("sweep", [name], asked["overrides"], asked["seed"], [*words, *more])


def _resuming(path: Path, files: dict[str, Path | None], asked: PlainData) -> list[str]:
    """Return the options with which an interrupted command goes on in the same place."""
    words = ["--store", str(path), "--resume", *repeated("--catalogue", asked["own"])]
    for option, value in {
        **files,
        "workers": asked["workers"],
        "scheduler": asked["scheduler"],
    }.items():
        if value is not None:
            words += [f"--{option.removesuffix('ed')}", str(value)]
    return words


def _print_status(store: Store, as_json: bool) -> None:
    from simulator.studies.sweep.key import code_version
    from simulator.studies.sweep.study import layout

    file, design = layout(store.fact("definition"))
    store.check(len(design))
    evaluators = {}
    for number, evaluator in enumerate(file.evaluators):
        evaluators[evaluator] = {
            "points": None if number else len(design),
            **store.progress(evaluator)._asdict(),
        }
    same_code = store.fact("code_version") == code_version().hex()
    status = {
        "sweep": file.name,
        "scenario": file.scenario,
        "evaluators": evaluators,
        "same_code": same_code,
    }
    keys = ", ".join(axis.key for axis in design.axes)
    lines = [f"{file.name}: {file.scenario} over {keys}".translate(CONTROLS)]
    for evaluator, state in evaluators.items():
        if state["points"]:
            total = f" of {state['points']:,}"
        else:
            total = ""
        lines.append(
            f"  {evaluator}: {state['done']:,}{total} points, {state['faults']:,} of them faulty"
        )
    lines += (
        []
        if same_code
        else ["  made by other code than this; --resume would evaluate every point again"]
    )
    answer(as_json, lambda: status, None, *lines)


def _print_points(
    points: SweepTable, base: Scenario, command: str, path: Path, as_json: bool
) -> None:
    """Print the answer of a sweep, and to stderr the first of the points that could not be
    evaluated.
    """
    from simulator.report.pages.sweep import page
    from simulator.studies.sweep.table import best, cautions, faults

    faulty = faults(points)
    summary = {
        "sweep": points.name,
        "points": len(points.design),
        "evaluated": len(points.frame),
        "best": best(points),
    }
    summary |= {"cautions": list(cautions(points, base)), "faults": faulty, "store": str(path)}
    answer(as_json, lambda: summary, lambda: page(points, base, command), f"store: {path}")
    if as_json:
        return
    for fault in list(faulty.values())[:NAMED_FAULTS]:
        click.echo(f"  faulty: {fault['at']}: {fault['fault']}", err=True)
    if len(faulty) > NAMED_FAULTS:
        click.echo(
            f"  and {len(faulty) - NAMED_FAULTS:,} more; the exported table names all of them",
            err=True,
        )


def _draw_all(points: SweepTable, folder: Path) -> list[str]:
    """Draw every picture that the sweep names; return their files."""
    from simulator.report.page import write_pictures
    from simulator.report.pages.plot import picture

    drawings = {}
    for number, plot in enumerate(points.file.plots, start=1):
        if len(points.file.plots) > 1 or plot.name:
            ending = f"_{plot.name or number}"
        else:
            ending = ""
        path = folder / f"{points.name}{ending}.svg"
        if path in drawings:
            raise BadInput.at(
                path,
                f"is the name of two pictures; plots of the sweep are called '{plot.name}' twice",
            )
        drawings[path] = picture(points, plot)
    return write_pictures(drawings)


@click.command("plot")
@click.argument("store", type=options.NEW_FILE)
@click.option(
    "--kind",
    type=click.Choice(["line", "heatmap", "contour", "pareto"]),
    help="[default: the sweep's own plots]",
)
@click.option("--x", help="Axis or metric.")
@click.option("--y", help="Axis or metric.")
@click.option("--value", help="What colours a heat map, or is cut by a contour.")
@click.option("--hue", help="Axis that tells lines or points of one panel apart.")
@click.option("--facet", help="Axis with a panel for each of its values (small multiples).")
@click.option(
    "--level",
    type=float,
    help="Where the contour is drawn  [default: 1, where speculation stops paying].",
)
@click.option("--title", help="Above the picture.")
@options.output(
    "--out", type=options.PATH, required=True, help="SVG file; without --kind a folder."
)
@options.pictures
def plot(store: Path, kind: str | None, out: Path, **asked: Any) -> None:
    """Draw the points of a sweep's STORE: lines, heat maps, contours, Pareto fronts, each also as
    small multiples.
    """
    from simulator.inputs.schema import validate
    from simulator.report.blocks import PICTURES
    from simulator.report.page import write_picture
    from simulator.report.pages.plot import picture
    from simulator.studies.sweep.store import reading
    from simulator.studies.sweep.study import Plot
    from simulator.studies.sweep.table import table

    with faults_as_lines():
        with reading(store) as database:
            points = table(database)
        if kind is None:
            if not points.file.plots:
                raise BadInput.at(store, "names no plots of its own; choose --kind, --x and --y")
            for path in _draw_all(points, out):
                click.echo(f"figure: {path}")
            return
        if out.suffix not in PICTURES:
            raise BadInput.at(f"--out {out}", f"expected a name that ends in {', '.join(PICTURES)}")
        stated = {
            "kind": kind,
            **{name: value for name, value in asked.items() if value is not None},
        }
        wanted = validate(Plot, Document(stated, {(): ("specsim plot", 0, 0)}))
        write_picture(out, picture(points, wanted))
    click.echo(f"figure: {out}")
