"""The command ``specsim budget``: how many tokens a draft beside the target should write."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli_options import Sizes, catalogue_option, faults_as_lines, overrides_option, seed_option


@click.command()
@click.argument("scenario")
@overrides_option
@seed_option
@click.option("--budgets", type=Sizes(), help="Budgets for the law [default: 1 to well past c].")
@click.option("--simulate", "simulated", type=Sizes(), help="Budgets to simulate [default: a dozen, and those around c].")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="SVG file to draw the sweep into.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def budget(
    scenario: str,
    overrides: tuple[str, ...],
    seed: int | None,
    budgets: list[int] | None,
    simulated: list[int] | None,
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """The budget of a DuoDecoding SCENARIO: c, gamma = c, the true optimum, numbers of sequences.

    By law, replay and simulation, with verified tokens counted and with shown ones.
    """
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.budgets import print_budgets
    from simulator.report.logs import whole_file
    from simulator.scenario import load
    from simulator.sweep_budget import budget_sweep, budgets_to_show, sequence_sweep, summary, to_simulate

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        loaded = load(scenario, overrides, Catalogue(own), seed)
        chosen = budgets or list(budgets_to_show(loaded))
        with whole_file(out) as file:
            status.update("sweeping the budget")
            points = budget_sweep(loaded, chosen, simulated or to_simulate(loaded, chosen))
            found = summary(loaded, points, sequence_sweep(loaded))
            if file:
                from simulator.report.budget_figures import budget_study

                file.write(budget_study(points, found))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_budgets(found, Console())
        if out:
            click.echo(f"figure: {out}")
