"""The command ``specsim drafts``: whether a bigger draft pays."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from simulator.cli.options import Asked, faults_as_lines, study_options


@click.command()
@study_options
@click.option("--model", "models", multiple=True, required=True, metavar="MODEL", help="Another draft, repeatable.")
def drafts(asked: Asked, models: tuple[str, ...]) -> None:
    """What drafts of other sizes would have to be kept in a vanilla_sd SCENARIO to come level with its own, by law."""
    from rich.console import Console

    from simulator.files.schema import BadInput, Fault
    from simulator.report.page import study_file
    from simulator.report.pages.drafts import print_drafts, sections
    from simulator.report.pages.drafts_figures import draft_figure
    from simulator.studies.drafts import draft_study

    others = [word for name in models for word in ("--model", name)]
    with faults_as_lines(), Console(stderr=True).status("pricing drafts"):
        if len(asked.scenarios) > 1:
            raise BadInput([Fault((asked.scenarios[1], 0, 0), "", "expected one scenario; its drafts are compared")])
        with study_file(asked.out, asked.typed("drafts", *others)) as write:
            found = draft_study(asked.loaded()[0], [asked.changed(f"draft.model={name}").loaded()[0] for name in models])
            if write:
                write("Does a bigger draft pay?", draft_figure(found), sections(found))
    if asked.as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        print_drafts(found, Console())
