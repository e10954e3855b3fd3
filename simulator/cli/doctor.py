"""The command ``specsim doctor``: whether the installation is whole, and what is missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from simulator.cli import options

if TYPE_CHECKING:
    from simulator.evidence.installation import Check

MARKS = {"ok": "ok", "missing": "MISSING", "optional": "-"}


@click.command("doctor")
@options.as_json
def doctor(as_json: bool) -> None:
    """Check this installation: Python, packages and extras, the catalogue, the shipped recordings,
    where files can be written, and a run whose answer is known.

    Exit code 1 where something that is needed is missing; what only some commands take is told with
    the command that adds it.
    """
    from simulator.evidence.installation import examine, is_whole

    checks = examine()
    whole = is_whole(checks)
    if as_json:
        options.print_json({"whole": whole, "checks": [check._asdict() for check in checks]})
    else:
        widest = max(len(check.what) for check in checks)
        for check in checks:
            click.echo(f"{MARKS[check.state]:<8} {check.what:<{widest}}  {check.words}")
            if check.remedy:
                click.echo(f"{'':<8} {'':<{widest}}  add it: {check.remedy}")
        click.echo("Nothing that is needed is missing." if whole else _missing(checks))
    sys.exit(0 if whole else 1)


def _missing(checks: list[Check]) -> str:
    """Return what is missing, in a sentence."""
    names = [check.what for check in checks if check.state == "missing"]
    return f"Missing: {', '.join(names)}."
