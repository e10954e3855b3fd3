"""The command ``specsim batches``: the batch study of a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli_options import Sizes, catalogue_option, faults_as_lines, overrides_option, seed_option


@click.command()
@click.argument("scenario")
@overrides_option
@seed_option
@click.option("--sizes", type=Sizes(), default="1-64", show_default=True, help="Batch sizes for the law.")
@click.option(
    "--simulate", "simulated", type=Sizes(), default="1,2,4,8,16,32,64,128", show_default=True, help="Sizes to simulate."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="SVG file to draw the study into.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def batches(
    scenario: str,
    overrides: tuple[str, ...],
    seed: int | None,
    sizes: list[int],
    simulated: list[int],
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """What speculation is worth in a batch of 1, 2, 3, ... requests: speed-up, passes, exposed draft time."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.console import print_batches
    from simulator.report.logs import whole_file
    from simulator.scenario import load
    from simulator.sweep_batch import batch_sweep, summary, tile_edges

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        loaded = load(scenario, overrides, Catalogue(own), seed)
        with whole_file(out) as file:
            status.update("sweeping the batch")
            points = batch_sweep(loaded, sizes, simulated)
            if file:
                from simulator.report.batch_figures import batch_study

                file.write(batch_study(points, loaded.scenario.strategy.name, tile_edges(loaded, points)))
    found = summary(loaded, points)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_batches(found, Console())
        if out:
            click.echo(f"figure: {out}")
