"""The command ``specsim streams``: the study of Speculative Streaming."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli.options import Ending, catalogue_option, faults_as_lines, overrides_option, seed_option


@click.command()
@click.argument("scenario")
@overrides_option
@seed_option
@click.option("--out", type=Ending(".svg"), help="SVG file to draw the study into.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def streams(
    scenario: str, overrides: tuple[str, ...], seed: int | None, out: Path | None, as_json: bool, own: tuple[Path, ...]
) -> None:
    """Speculative Streaming SCENARIO over its tree factor k, pruned or not, and beside decoding with a draft model."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.files.writing import whole_file
    from simulator.report.pages.streams import print_streams
    from simulator.report.pages.streams_figures import stream_figure
    from simulator.scenario import load
    from simulator.studies.streams import stream_sweep, summary

    with faults_as_lines(), Console(stderr=True).status("sweeping the tree"):
        loaded = load(scenario, overrides, Catalogue(own), seed)
        with whole_file(out) as file:
            study = stream_sweep(loaded)
            if file:
                file.write(stream_figure(study))
    if as_json:
        click.echo(json.dumps(summary(loaded, study), indent=2))
        return
    print_streams(study, Console())
    if out:
        click.echo(f"figure: {out}")
