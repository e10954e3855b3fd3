"""The command ``specsim trees``: width and branching of a pipeline's draft tree."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from simulator.cli_options import catalogue_option, faults_as_lines, out_option, overrides_option, seed_option, typed


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overrides_option
@seed_option
@out_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def trees(
    scenarios: tuple[str, ...],
    overrides: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """What a token costs with every draft tree that the trace of a SpecPipe SCENARIO holds."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.page import study_file
    from simulator.report.trees import print_trees, sections
    from simulator.scenario import load
    from simulator.sweep_tree import tree_study

    with faults_as_lines(), Console(stderr=True).status("sweeping the tree"):
        loaded = [load(name, overrides, Catalogue(own), seed) for name in scenarios]
        with study_file(out, typed("trees", scenarios, overrides, seed, out)) as write:
            studies = [tree_study(one) for one in loaded]
            if write:
                from simulator.report.tree_figures import tree_figure

                write("Width and branching of the draft tree", tree_figure(studies), sections(studies))
    if as_json:
        found = [{"scenario": one.scenario, "trees": [asdict(point) for point in one.points]} for one in studies]
        click.echo(json.dumps({"studies": found}, indent=2))
    else:
        print_trees(studies, Console())
