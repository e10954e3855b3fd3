"""The commands ``specsim new`` and ``specsim explain``: a scenario to start from, and what it comes to before it is run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.cli.options import catalogue_option, faults_as_lines, overrides_option, seed_option

EXAMPLE = "durations_only"


@click.command()
@click.argument("name", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--from", "example", default=EXAMPLE, show_default=True, metavar="SCENARIO", help="Scenario to copy.")
@catalogue_option
def new(name: Path, example: str, own: tuple[Path, ...]) -> None:
    """Copy a scenario as NAME.yaml, to be changed; nothing is ever overwritten."""
    from simulator.catalogue import Catalogue
    from simulator.files.schema import BadInput, Fault

    path = name if name.suffix == ".yaml" else name.with_name(f"{name.name}.yaml")
    with faults_as_lines():
        text = Catalogue(own).file("scenario", example).read_text("utf-8")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(f"# Begun as {example}.\n{text}")
        except OSError as error:
            reason = "is there already; choose another name" if isinstance(error, FileExistsError) else error.strerror
            raise BadInput([Fault((str(path), 0, 0), "", f"{reason}")]) from error
    typed = path if "/" in str(path) else f"./{path}"
    click.echo(f"{path}, begun as {example}. Next: specsim explain {typed}, specsim run {typed}")


@click.command()
@click.argument("scenario")
@overrides_option
@seed_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def explain(scenario: str, overrides: tuple[str, ...], seed: int | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """What SCENARIO will simulate, in words, and every default that applies; runs nothing."""
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.pages.explain import print_explanation
    from simulator.scenario import load
    from simulator.scenario.explain import explain as explained

    with faults_as_lines():
        loaded = load(scenario, overrides, Catalogue(own), seed)
        found = explained(loaded)
    if as_json:
        data = found._asdict() | {"defaults": [one._asdict() for one in found.defaults]}
        click.echo(json.dumps({"scenario": loaded.scenario.name, **data}, indent=2))
    else:
        print_explanation(loaded.scenario.name, found, Console())
