"""The command ``specsim batches``: the batch study of a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli.options import Ending, Sizes, catalogue_option, faults_as_lines, overrides_option, seed_option


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overrides_option
@seed_option
@click.option("--sizes", type=Sizes(), default="1-64", show_default=True, help="Batch sizes for the law.")
@click.option(
    "--simulate", "simulated", type=Sizes(), default="1,2,4,8,16,32,64,128", show_default=True, help="Sizes to simulate."
)
@click.option("--out", type=Ending(".svg"), help="SVG file to draw the study into.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def batches(
    scenarios: tuple[str, ...],
    overrides: tuple[str, ...],
    seed: int | None,
    sizes: list[int],
    simulated: list[int],
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """What speculation is worth in a batch of 1, 2, 3, ... requests: speed-up, passes, exposed draft time.

    The picture of several scenarios has their tokens per second, beside those of the first.
    """
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.files.writing import whole_file
    from simulator.report.console import print_batches
    from simulator.scenario import load
    from simulator.studies.batches import batch_sweep, summary, tile_edges

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        every = [load(scenario, overrides, Catalogue(own), seed) for scenario in scenarios]
        with whole_file(out) as file:
            status.update("sweeping the batch")
            studies = [batch_sweep(loaded, sizes, simulated) for loaded in every]
            if file:
                from simulator.report.pages.batches import batch_study, throughput

                if len(every) == 1:
                    edges = tile_edges(every[0], studies[0])
                    file.write(batch_study(studies[0], every[0].scenario.strategy.name, edges))
                else:
                    scenarios_and_points = zip((loaded.scenario for loaded in every), studies, strict=True)
                    file.write(throughput(list(scenarios_and_points)))
    found = [summary(loaded, points) for loaded, points in zip(every, studies, strict=True)]
    if as_json:
        click.echo(json.dumps(found[0] if len(found) == 1 else {"studies": found}, indent=2))
    else:
        for one in found:
            print_batches(one, Console())
        if out:
            click.echo(f"figure: {out}")
