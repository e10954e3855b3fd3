"""The command ``specsim validate``: how far laws and runs are from simulations and published values."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, cast

import click

from simulator.cli.options import catalogue_option, faults_as_lines, json_option

SHARE = click.FloatRange(min=0)


@click.command()
@click.argument("papers", nargs=-1, metavar="[PAPER]...")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the page, its cells and its pictures."
)
@click.option("--most-mape", type=SHARE, metavar="PERCENT", help="Largest MAPE over all predicted cells.")
@click.option("--most-median", type=SHARE, metavar="PERCENT", help="Largest median error over all predicted cells.")
@click.option("--least-within-10", type=SHARE, metavar="PERCENT", help="Smallest share of cells within 10 %.")
@click.option("--most-mape-of-a-paper", type=SHARE, metavar="PERCENT", help="Largest MAPE of a paper with ten cells or more.")
@click.option("--live", is_flag=True, help="Decoding on this machine instead: what `specsim measure decoding` does.")
@click.option("--processes", type=click.IntRange(min=1), help="Runs at a time [default: one for each core].")
@json_option
@catalogue_option
@click.pass_context
def validate(
    context: click.Context,
    /,
    papers: tuple[str, ...],
    out: Path | None,
    live: bool,
    processes: int | None,
    as_json: bool,
    own: tuple[Path, ...],
    **bounds: float | None,
) -> None:
    """Compare laws with simulation, then published values with runs that use the committed fits.

    Nothing is fitted. Exit code 3 where a bound that was given is missed.
    """
    if live:
        _decoding(context, out, as_json)
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.evidence.fits import papers as chosen
    from simulator.evidence.law_check import law_gaps
    from simulator.evidence.validation import GOAL, ErrorBounds, shortfalls, validated
    from simulator.parallel import CORES, spread
    from simulator.report.pages.validate import as_data, print_validation

    with faults_as_lines(), Console(stderr=True).status("laws") as status:
        results = []
        with spread(processes or CORES) as processes_map:
            gaps = law_gaps(processes_map)
            for paper in chosen(Catalogue(own), papers):
                status.update(paper.name)
                results.append(validated(paper, processes_map))
        missed = shortfalls(results, ErrorBounds(**{name: share and share / 100 for name, share in bounds.items()}))
        if out:
            _write(out, results, gaps, shortfalls(results, GOAL), shlex.join(["specsim", "validate", *papers]))
    if as_json:
        click.echo(json.dumps(as_data(results, gaps, missed), indent=2))
    else:
        print_validation(results, gaps, missed, Console())
    for shortfall in missed:
        click.echo(f"bound missed: {shortfall}", err=True)
    sys.exit(3 if missed else 0)


def _decoding(context: click.Context, out: Path | None, as_json: bool) -> None:
    """Invoke ``measure decoding``, found by its name because nothing else here needs torch."""
    root = context.find_root()
    measure = cast(click.Group, cast(click.Group, root.command).get_command(root, "measure"))
    context.invoke(cast(click.Command, measure.get_command(context, "decoding")), out=out, as_json=as_json)


def _write(out: Path, results: Any, gaps: Any, missed: Any, command: str) -> None:
    """Write the page and the CSV of every cell into a folder."""
    from simulator.evidence.published import contradictions, paper_figures
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.validate import CELLS, cells_csv, validation_page

    page = validation_page(results, gaps, missed, paper_figures(), contradictions(), command)
    write_files(out, page_files(page, "validation") | {CELLS: cells_csv(results)})
