"""The commands ``specsim methods`` and ``specsim crossovers``: all methods on one scenario."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from simulator.cli.options import Ending, Sizes, catalogue_option, faults_as_lines, overrides_option, seed_option, typed


def comparison(command: Callable[..., Any], out: Ending, text: str) -> Callable[..., Any]:
    """What both commands take, and the file that each writes."""
    command = catalogue_option(command)
    command = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")(command)
    command = click.option("--out", type=out, help=text)(command)
    command = click.option("--only", multiple=True, metavar="METHOD", help="A method to compare, repeatable [default: all].")(
        command
    )
    return click.argument("scenario")(overrides_option(seed_option(command)))


@click.command()
@partial(comparison, out=Ending(".svg"), text="SVG file to draw the comparison into.")
def methods(
    scenario: str,
    overrides: tuple[str, ...],
    seed: int | None,
    only: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """Every method on SCENARIO's target, device, engine and trace: one table and one bar chart."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.files.writing import whole_file
    from simulator.report.pages.methods import print_methods
    from simulator.studies.methods import candidates, left_out, method_sweep, summary

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        chosen = _known(only, Catalogue(own))
        with whole_file(out) as file:
            found = list(candidates(scenario, overrides, Catalogue(own), seed, chosen))
            status.update("simulating")
            points, without = method_sweep(found), left_out(found)
            title = f"{scenario}: {_conditions(found)}"
            if file:
                from simulator.report.pages.methods_figures import bars

                file.write(bars(points, title))
    if as_json:
        click.echo(json.dumps(summary(scenario, points, without), indent=2))
    else:
        print_methods(points, without, title, Console())
        if out:
            click.echo(f"figure: {out}")


@click.command()
@partial(comparison, out=Ending(".svg", ".md"), text="File for the comparison: a picture (.svg), or a page (.md).")
@click.option("--sizes", type=Sizes(), default="1-128", show_default=True, help="Batch sizes for the law.")
def crossovers(
    scenario: str,
    overrides: tuple[str, ...],
    seed: int | None,
    only: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
    sizes: list[int],
) -> None:
    """The batch at which each method stops paying on SCENARIO's hardware, by law."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.page import study_file
    from simulator.report.pages.methods import crossover_sections, print_crossovers
    from simulator.studies.methods import by_exact_laws, candidates, crossover_summary, left_out
    from simulator.studies.methods import crossovers as study

    with faults_as_lines(), Console(stderr=True).status("sweeping the batch"):
        chosen = _known(only, Catalogue(own))
        told = [*(word for name in only for word in ("--only", name)), *(["--out", str(out)] if out else [])]
        with study_file(out, typed("crossovers", [scenario], overrides, seed, told)) as write:
            found = by_exact_laws(candidates(scenario, overrides, Catalogue(own), seed, chosen))
            studies, without = study(found, sizes), left_out(found)
            title = f"{scenario}: {_conditions(found)}"
            if write:
                from simulator.report.pages.methods_figures import batches

                write("Up to which batch each method pays", batches(studies, title), crossover_sections(studies, without))
    if as_json:
        click.echo(json.dumps(crossover_summary(scenario, studies, without), indent=2))
    else:
        print_crossovers(studies, without, title, Console())
        if out:
            click.echo(f"figure: {out}")


def _known(only: tuple[str, ...], catalogue: Any) -> tuple[str, ...]:
    from simulator.files.schema import BadInput, Fault, did_you_mean

    names = catalogue.names("method")
    faults = [
        Fault((f"--only {name}", 0, 0), "", f"there is no method '{name}'{did_you_mean(name, names)}")
        for name in only
        if name not in names
    ]
    if faults:
        raise BadInput(faults)
    return only


def _conditions(found: list[Any]) -> str:
    """Target, device and engine, in words."""
    one = next((one.loaded.scenario for one in found if one.loaded), None)
    if one is None or one.target is None:
        return "every method"
    return f"{one.target.model.name} on {one.target.devices} with {one.target.engine.name}"
