"""The command ``specsim budget``: how many tokens a draft beside the target should write."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from simulator.cli.options import Asked, Sizes, faults_as_lines, study_options


@click.command()
@study_options
@click.option("--budgets", type=Sizes(), help="Budgets for the law [default: 1 to well past c].")
@click.option("--simulate", "simulated", type=Sizes(), help="Budgets to simulate [default: a dozen, and those around c].")
def budget(asked: Asked, budgets: list[int] | None, simulated: list[int] | None) -> None:
    """The budget of a DuoDecoding SCENARIO: c, gamma = c, the true optimum, numbers of sequences.

    By law, replay and simulation, with verified tokens counted and with shown ones.
    """
    from rich.console import Console

    from simulator.report.page import study_file
    from simulator.report.pages.budget import print_budgets, sections
    from simulator.studies.budget import budget_study

    with faults_as_lines(), Console(stderr=True).status("sweeping the budget"):
        loaded = asked.loaded()
        with study_file(asked.out, asked.typed("budget")) as write:
            studies = [budget_study(one, budgets or (), simulated or ()) for one in loaded]
            if write:
                from simulator.report.pages.budget_figures import budget_figure

                write("Budget of a draft beside its target", budget_figure(studies), sections(studies))
    if asked.as_json:
        click.echo(json.dumps({"studies": [asdict(study) for study in studies]}, indent=2))
    else:
        print_budgets(studies, Console())
