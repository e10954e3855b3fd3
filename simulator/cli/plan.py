"""The command ``specsim plan``: find the cheapest fleet that meets an SLO."""

from pathlib import Path

import click

from simulator.cli.options import Names, Paths, answer, stated, typed, working
from simulator.names import Catalogue


@click.command("plan", **stated("plan"))
def plan(name: str, overrides: Names, seed: int | None, draws: int, out: Path | None, as_json: bool, own: Paths) -> None:
    """Which strategy on which hardware, and how many: the cheapest fleet of PLAN (a name or a YAML file) that meets its SLO."""
    from simulator.report.pages.plan import page, write_plan
    from simulator.studies.plan.file import load_plan
    from simulator.studies.plan.study import study, summary

    with working("reading") as status:
        read = load_plan(name, overrides, Catalogue(own), seed)
        words = ["--draws", str(draws)] if draws != 20 else []
        words += ["--out", str(out)] if out else []
        answered = study(read, typed("plan", [name], overrides, seed, words), draws, status.update)
        if out:
            write_plan(answered, out)
    files = [f"page: {out / 'plan.html'}   {out / 'plan.md'}   exports: {', '.join(answered.exports)}"] if out else []
    answer(as_json, lambda: summary(answered), lambda: page(answered), *files)
