"""The commands ``specsim sweep`` and ``specsim plot``: many points of one scenario, kept in a store, and pictures of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.options import catalogue_option, faults_as_lines, overrides_option, seed_option, typed

if TYPE_CHECKING:
    from simulator.studies.sweep.store import Store
    from simulator.studies.sweep.study import SweepStudy
    from simulator.studies.sweep.sweeping import Watcher
    from simulator.studies.sweep.table import SweepTable

EVALUATIONS = ("law", "replay", "simulation", "law then simulation")
NAMED_FAULTS = 20
INTERRUPTED = 130
FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("name", metavar="SWEEP_OR_SCENARIO")
@click.option("--axis", "axes", multiple=True, metavar="KEY=VALUES", help="a,b,c or low:high:count or log:low:high:count.")
@click.option("--zip", "combine", flag_value="zip", help="All axes change in step, instead of every combination.")
@click.option("--latin-hypercube", "samples", type=click.IntRange(min=1), metavar="N", help="N points spread over all axes.")
@click.option("--evaluate", type=click.Choice(EVALUATIONS), help="Who says what a point comes to.")
@click.option("--keep", metavar="RULE", help="Of a law, what a simulation confirms: 'best 10% of tpot_ms', 'speedup >= 1.2'.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes  [default: one for each core].")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="A Dask scheduler whose workers evaluate the points.")
@click.option("--store", type=FILE, help="SQLite file  [default: reports/sweeps/NAME.sqlite].")
@click.option("--resume", is_flag=True, help="Go on with a store; what it holds is not evaluated again.")
@click.option("--status", is_flag=True, help="Only say how far the store has come.")
@click.option("--export", "exported", type=FILE, help="Table of all points, .csv or .parquet.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Folder for the pictures that the sweep names.")
@click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), help="Folder for a page, .md and .html, and its files."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@overrides_option
@seed_option
@catalogue_option
def sweep(
    name: str,
    store: Path | None,
    status: bool,
    exported: Path | None,
    plots: Path | None,
    report: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Evaluate every point of a sweep: a file of scenarios/sweeps, or axes over any fields of a scenario.

    A point that is wrong or fails is named at the end and stops no other; exit code 2 where every one does. Ctrl-C leaves a
    store that --resume goes on with.
    """
    from simulator.files.schema import BadInput
    from simulator.studies.sweep.store import reading
    from simulator.studies.sweep.table import cautions, export, table

    path = store or Path("reports/sweeps") / f"{Path(name).stem}.sqlite"
    with faults_as_lines():
        if status:
            _print_status(reading(path), as_json)
            return
        given, finished = _swept(name, path, **asked)
        kept = reading(path)
        found = table(kept)
        if exported:
            export(found, exported)
        if plots:
            _draw_all(found, plots)
        if report:
            _report(found, given, report, _typed(name, asked))
    _print_found(found, list(cautions(found, given.base.scenario)), path, as_json)
    if not finished:
        click.echo(f"interrupted; go on with: specsim sweep ... --store {path} --resume", err=True)
        sys.exit(INTERRUPTED)
    if len(found.frame) and found.frame["fault"].notna().all():
        sys.exit(BadInput.exit_code)


def _swept(
    name: str, path: Path, *, workers: int | None, scheduler: str | None, resume: bool, **asked: Any
) -> tuple[SweepStudy, bool]:
    """Evaluate what the store does not have; the sweep, and whether it came to its end."""
    from simulator.catalogue import Catalogue
    from simulator.files.schema import BadInput, Fault
    from simulator.parallel import CORES
    from simulator.studies.sweep.executors import crew
    from simulator.studies.sweep.store import writing
    from simulator.studies.sweep.study import study
    from simulator.studies.sweep.sweeping import sweep as evaluate

    samples, combine = asked.pop("samples"), asked.pop("combine")
    if samples:
        combine = "latin_hypercube"
    catalogue = Catalogue(asked.pop("own"))
    given = study(name, catalogue, samples=samples, combine=combine, **asked)
    with writing(path, lambda text: click.echo(text, err=True)) as store:
        if not (resume or store.empty):
            raise BadInput(
                [Fault((str(path), 0, 0), "", "holds a sweep already; --resume goes on with it, --store names another")]
            )
        try:
            with crew(workers or CORES, scheduler) as hired, _progress() as watcher:
                evaluate(given, store, hired, watcher)
        except KeyboardInterrupt:
            return given, False
    return given, True


def _report(found: SweepTable, given: SweepStudy, folder: Path, command: str) -> None:
    """A page of all points with its pictures and the table."""
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.sweep import points_file, sweep_page
    from simulator.studies.sweep.table import export

    write_files(folder, page_files(sweep_page(found, given.base.scenario, command), found.name))
    export(found, folder / points_file(found))


def _typed(name: str, asked: dict[str, Any]) -> str:
    """The command that evaluates the same points again."""
    flags = {"evaluate": "--evaluate", "keep": "--keep", "samples": "--latin-hypercube"}
    others = [word for one in asked["axes"] for word in ("--axis", one)]
    others += [word for key, flag in flags.items() if asked[key] for word in (flag, str(asked[key]))]
    return typed("sweep", [name], asked["overrides"], asked["seed"], [*others, *(["--zip"] if asked["combine"] else [])])


@contextmanager
def _progress() -> Iterator[Watcher | None]:
    """A bar with the time left, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[faulty]}"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        yield _Bar(bar)


class _Bar:
    """One line of the progress display for each evaluator."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.task, self.faults = bar, None, 0

    def begin(self, what: str, total: int, done: int) -> None:
        """A new line."""
        self.faults = 0
        self.task = self.bar.add_task(what, total=total, completed=done, faulty="")

    def advance(self, points: int, faults: int) -> None:
        """Further along it."""
        self.faults += faults
        self.bar.update(self.task, advance=points, faulty=f"{self.faults} faulty" if self.faults else "")


def _print_status(store: Store, as_json: bool) -> None:
    from simulator.studies.sweep.key import code_version
    from simulator.studies.sweep.study import layout

    definition = store.fact("definition")
    file, design = layout(definition)
    ways = {}
    for number, evaluator in enumerate(file.evaluators):
        ways[evaluator] = {"points": None if number else len(design), **store.progress(evaluator)._asdict()}
    current = store.fact("code_version") == code_version().hex()
    found = {"sweep": definition["name"], "scenario": file.scenario, "evaluators": ways, "same_code": current}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{definition['name']}: {file.scenario} over {', '.join(axis.key for axis in design.axes)}")
    for evaluator, state in ways.items():
        total = f" of {state['points']:,}" if state["points"] else ""
        click.echo(f"  {evaluator}: {state['done']:,}{total} points, {state['faults']:,} of them faulty")
    if not current:
        click.echo("  made by other code than this; --resume would evaluate every point again")


def _print_found(found: SweepTable, cautions: list[str], path: Path, as_json: bool) -> None:
    from simulator.studies.sweep.table import best, faults

    wrong = faults(found)
    if as_json:
        data = {"sweep": found.name, "points": len(found.design), "evaluated": len(found.frame), "best": best(found)}
        click.echo(json.dumps(data | {"cautions": cautions, "faults": wrong, "store": str(path)}, indent=2))
        return
    click.echo(f"{found.name}: {len(found.frame):,} of {len(found.design):,} points, {len(wrong):,} of them faulty; {path}")
    for metric, row in best(found).items():
        told = ", ".join(f"{key}={value}" for key, value in row["at"].items())
        click.echo(f"  best {metric}: {row['value']:.4g} at {told}")
    for caution in cautions:
        click.echo(f"  caution: {caution}")
    for fault in list(wrong.values())[:NAMED_FAULTS]:
        click.echo(f"  faulty: {fault['at']}: {fault['fault']}", err=True)
    if len(wrong) > NAMED_FAULTS:
        click.echo(f"  and {len(wrong) - NAMED_FAULTS:,} more; all of them stand in the exported table", err=True)


def _draw_all(found: SweepTable, folder: Path) -> list[Path]:
    """Every picture that the sweep names."""
    from simulator.files.writing import write
    from simulator.report.pages.sweep_figures import picture

    drawn = []
    for number, plot in enumerate(found.file.plots, start=1):
        path = folder / f"{found.name}{f'_{plot.name or number}' if len(found.file.plots) > 1 or plot.name else ''}.svg"
        write(path, picture(found, plot))
        drawn.append(path)
    return drawn


@click.command()
@click.argument("store", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--kind", type=click.Choice(("line", "heatmap", "contour", "pareto")), help="[default: the sweep's own plots]")
@click.option("--x", help="Axis or metric.")
@click.option("--y", help="Axis or metric.")
@click.option("--value", help="What colours a heat map, or is cut by a contour.")
@click.option("--hue", help="Axis that tells lines or points of one panel apart.")
@click.option("--facet", help="Axis with a panel for each of its values (small multiples).")
@click.option("--level", type=float, help="Where the contour is drawn  [default: 1, where speculation stops paying].")
@click.option("--title", help="Above the picture.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="SVG file; without --kind a folder.")
def plot(store: Path, kind: str | None, out: Path, **asked: Any) -> None:
    """Draw the points of a sweep's STORE: lines, heat maps, contours, Pareto fronts, each also as small multiples."""
    from simulator.files.schema import BadInput, Document, Fault, validate
    from simulator.files.writing import whole_file
    from simulator.report.pages.sweep_figures import picture
    from simulator.studies.sweep.store import reading
    from simulator.studies.sweep.study import Plot
    from simulator.studies.sweep.table import table

    with faults_as_lines():
        found = table(reading(store))
        if kind is None:
            if not found.file.plots:
                raise BadInput([Fault((str(store), 0, 0), "", "names no plots of its own; choose --kind, --x and --y")])
            for path in _draw_all(found, out):
                click.echo(f"figure: {path}")
            return
        if out.suffix != ".svg":
            raise BadInput([Fault((f"--out {out}", 0, 0), "", "expected a name that ends in .svg")])
        stated = {"kind": kind, **{name: value for name, value in asked.items() if value is not None}}
        wanted = validate(Plot, Document(stated, {(): ("specsim plot", 0, 0)}))
        with whole_file(out) as file:
            if file:
                file.write(picture(found, wanted))
    click.echo(f"figure: {out}")
