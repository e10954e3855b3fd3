"""The command ``specsim load``: scenarios under the same load."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from simulator.cli.options import Asked, Sizes, faults_as_lines, study_options


@click.command("load")
@study_options
@click.option("--sizes", type=Sizes(), default="1,2,4,8,16,32", show_default=True, help="Clients at a time.")
def load_(asked: Asked, sizes: list[int]) -> None:
    """Tokens per second against the time per token, of every SCENARIO with 1, 2, 4, ... clients.

    The first SCENARIO is the one that the others are compared with.
    """
    from rich.console import Console

    from simulator.report.page import study_file
    from simulator.report.pages.load import print_load, sections
    from simulator.studies.load import load_sweep

    with faults_as_lines(), Console(stderr=True).status("simulating"):
        loaded = asked.loaded()
        with study_file(asked.out, asked.typed("load", "--sizes", ",".join(map(str, sizes)))) as write:
            curves = load_sweep(loaded, sizes)
            if write:
                from simulator.report.pages.load_figures import load_figure

                write("Scenarios under the same load", load_figure(curves), sections(curves))
    if asked.as_json:
        click.echo(json.dumps({name: [asdict(point) for point in points] for name, points in curves.items()}, indent=2))
    else:
        print_load(curves, Console())
