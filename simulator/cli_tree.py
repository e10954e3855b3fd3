"""The command ``specsim trees``: width and branching of a pipeline's draft tree."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from simulator.cli_options import catalogue_option, faults_as_lines, overrides_option, seed_option


@click.command()
@click.argument("scenario")
@overrides_option
@seed_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def trees(scenario: str, overrides: tuple[str, ...], seed: int | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """What a token costs with every draft tree that the trace of a SpecPipe SCENARIO holds."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.trees import print_trees
    from simulator.scenario import load
    from simulator.sweep_tree import tree_sweep

    with faults_as_lines(), Console(stderr=True).status("sweeping the tree"):
        points = tree_sweep(load(scenario, overrides, Catalogue(own), seed))
    if as_json:
        click.echo(json.dumps({"scenario": scenario, "trees": [asdict(point) for point in points]}, indent=2))
    else:
        print_trees(points, Console())
