"""The command ``specsim plan``: the cheapest fleet that keeps an SLO."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli.options import catalogue_option, faults_as_lines, overrides_option, seed_option, typed


@click.command()
@click.argument("name", metavar="PLAN")
@overrides_option
@seed_option
@click.option("--draws", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Worlds drawn for the chance.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for a page (.md, .html) and the exports.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def plan(
    name: str,
    overrides: tuple[str, ...],
    seed: int | None,
    draws: int,
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """Which strategy on which hardware, and how many: the cheapest fleet of PLAN (a name or a YAML file) that keeps its SLO.

    Exit code 3 with the nearest miss where no fleet does.
    """
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.pages.plan_words import print_plan
    from simulator.studies.plan.file import load_plan
    from simulator.studies.plan.study import study, summary

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        read = load_plan(name, overrides, Catalogue(own), seed)
        others = [*(["--draws", str(draws)] if draws != 20 else []), *(["--out", str(out)] if out else [])]
        done = study(read, typed("plan", [name], overrides, seed, others), draws, status.update)
        if out:
            from simulator.report.pages.plan import write_plan

            write_plan(done, out)
    if as_json:
        click.echo(json.dumps(summary(done), indent=2))
    else:
        print_plan(done, Console())
        if out:
            click.echo(f"page: {out / 'plan.html'}   {out / 'plan.md'}   exports: {', '.join(done.exports)}")
