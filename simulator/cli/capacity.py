"""The command ``specsim capacity``: whether a scenario carries its traffic, and how much it would carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.options import Asked, faults_as_lines, study_options

if TYPE_CHECKING:
    from simulator.scenario import Loaded


@click.command()
@study_options
@click.option(
    "--traffic",
    multiple=True,
    metavar="WORKLOAD|FORMAT:FILE",
    help="Instead of the scenario's own: a workload by name, or a traffic file as azure:FILE, mooncake:FILE, ... [repeatable]",
)
@click.option("--search", type=click.IntRange(min=10), default=2_000, show_default=True, help="First requests to search on.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes  [default: one for each core].")
def capacity(asked: Asked, traffic: tuple[str, ...], search: int, workers: int | None) -> None:
    """Whether each SCENARIO is stable under its arrivals, and the highest rate that it carries within its SLO."""
    from rich.console import Console

    from simulator.parallel import CORES
    from simulator.report.page import study_file
    from simulator.report.pages.capacity import print_capacities, sections, summary
    from simulator.studies.capacity import capacities

    def loaded() -> Iterator[tuple[str, Loaded]]:
        for one in traffic or ("its own workload",):
            changes = (*asked.overrides, f"requests={workload(one)}") if traffic else asked.overrides
            yield from ((Path(one.partition(":")[2] or one).stem, each) for each in asked._replace(overrides=changes).loaded())

    words = [word for one in traffic for word in ("--traffic", one)]
    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        runs = list(loaded())
        with study_file(asked.out, asked.typed("capacity", *words, "--search", str(search))) as write:
            found = capacities(runs, search, workers or CORES, status.update)
            if write:
                from simulator.report.pages.capacity_figures import capacity_figure

                write("Which load is carried", capacity_figure(found), sections(found))
    if asked.as_json:
        click.echo(json.dumps(summary(found), indent=2))
    else:
        print_capacities(found, Console())


def workload(text: str) -> str:
    """What ``requests`` is set to: a name, or a mapping for FORMAT:FILE."""
    kind, colon, file = text.partition(":")
    return f"{{arrivals: {{name: file, format: {kind}, file: {json.dumps(file)}}}}}" if colon else text
