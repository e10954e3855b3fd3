"""The command ``specsim trees``: width and branching of a pipeline's draft tree."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from simulator.cli.options import Asked, faults_as_lines, study_options


@click.command()
@study_options
def trees(asked: Asked) -> None:
    """What a token costs with every draft tree that the trace of a SpecPipe SCENARIO holds."""
    from rich.console import Console

    from simulator.report.page import study_file
    from simulator.report.pages.trees import print_trees, sections
    from simulator.studies.trees import tree_study

    with faults_as_lines(), Console(stderr=True).status("sweeping the tree"):
        loaded = asked.loaded()
        with study_file(asked.out, asked.typed("trees")) as write:
            studies = [tree_study(one) for one in loaded]
            if write:
                from simulator.report.pages.trees_figures import tree_figure

                write("Width and branching of the draft tree", tree_figure(studies), sections(studies))
    if asked.as_json:
        found = [{"scenario": one.scenario, "trees": [asdict(point) for point in one.points]} for one in studies]
        click.echo(json.dumps({"studies": found}, indent=2))
    else:
        print_trees(studies, Console())
