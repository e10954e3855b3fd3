"""The command ``specsim compare``: scenarios side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import ascii_uppercase

import click

from simulator.cli.options import catalogue_option, faults_as_lines, seed_option, typed

ONE = re.compile(r"([A-Z]):(.*)", re.DOTALL)
"""A ``--set`` for one of the scenarios."""


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO SCENARIO...")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="[A:]KEY=VALUE",
    help="Override a field of all scenarios, or of one by its letter: B:strategy.gamma=5.",
)
@seed_option
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for a page (.md, .html) and its picture.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
@catalogue_option
def compare(
    scenarios: tuple[str, ...],
    overrides: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    as_json: bool,
    own: tuple[Path, ...],
) -> None:
    """Scenarios side by side: what they come to, and in what they differ.

    They are called A, B, C, ... in the order given, and the others are held against A. Each SCENARIO is a name or a YAML file;
    name one twice and change one of the two: specsim compare mine mine --set B:strategy.gamma=5.
    """
    from rich.console import Console

    from simulator.catalogue import Catalogue
    from simulator.report.pages.compare import as_data, print_comparison, write_comparison
    from simulator.scenario import load
    from simulator.studies.compare import Contestant
    from simulator.studies.compare import compare as compared

    each = _by_letter(scenarios, overrides)
    with faults_as_lines(), Console(stderr=True).status("simulating"):
        candidates = []
        for name, (letter, own_sets) in zip(scenarios, each.items(), strict=True):
            loaded = load(name, own_sets, Catalogue(own), seed)
            told = _name(letter, loaded.scenario.name, overrides)
            candidates.append(Contestant(letter, told, typed("run", [name], own_sets, seed), loaded))
        found = compared(candidates, typed("compare", scenarios, overrides, seed, ["--out", str(out)] if out else []))
        if out:
            write_comparison(found, out)
    if as_json:
        click.echo(json.dumps(as_data(found), indent=2))
        return
    print_comparison(found, Console())
    if out:
        click.echo(f"page: {out / 'compare.html'}   {out / 'compare.md'}")


def _by_letter(scenarios: tuple[str, ...], overrides: tuple[str, ...]) -> dict[str, list[str]]:
    """What is set in each of them, in the order given."""
    letters = ascii_uppercase[: len(scenarios)]
    if not 2 <= len(scenarios) <= len(ascii_uppercase):
        raise click.UsageError(f"expected 2 to {len(ascii_uppercase)} scenarios, got {len(scenarios)}")
    found: dict[str, list[str]] = {letter: [] for letter in letters}
    for override in overrides:
        one = ONE.fullmatch(override)
        if one and one[1] not in found:
            raise click.UsageError(f"--set {override}: there are scenarios A to {letters[-1]}")
        for letter in one[1] if one else letters:
            found[letter].append(one[2] if one else override)
    return found


def _name(letter: str, name: str, overrides: tuple[str, ...]) -> str:
    """A scenario with what is set in it alone."""
    own = [one[2] for one in map(ONE.fullmatch, overrides) if one and one[1] == letter]
    return ", ".join([name, *own])
