"""Claims and figures of the papers: commands run for their ``--json``, and the commands ``specsim
claims`` and ``specsim figure``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import click

import simulator
from simulator.cli import options
from simulator.cli.options import Names, Paths, answer, faults_as_lines, working
from simulator.core.faults import BadInput, did_you_mean
from simulator.core.parallel import CORES, Spread, spread
from simulator.inputs.catalogue import Catalogue

if TYPE_CHECKING:
    from simulator.evidence.claims import Answers, ClaimRow, Judged

CLAIMS = "claims"
"""Name of the module of a paper that holds its claims."""


def output(command: str, roots: Paths) -> Any:
    """Return what a command prints with ``--json``, or the :class:`BadInput` it ends with.

    A word that is a file below one of ``roots`` stands for that file, wherever this is run.
    """
    words = []
    for word in shlex.split(command):
        words.append(next((str(root / word) for root in roots if (root / word).is_file()), word))
    printed = StringIO()
    said = StringIO()
    with redirect_stdout(printed), redirect_stderr(said):
        try:
            import_module("simulator.cli.main").main([*words[1:], "--json"], prog_name="specsim")
        except SystemExit as end:
            code = end.code
    if code not in (0, 3):
        *_, last = said.getvalue().splitlines() or [f"exit code {code}"]
        return BadInput.at(command, last.removeprefix("error: "))
    try:
        return json.loads(printed.getvalue())
    except ValueError:
        return BadInput.at(command, "prints no JSON object")


def answers(commands: Iterable[str], own: Paths, everywhere: Spread) -> Answers:
    """Return what commands print with ``--json``, each run once."""
    once = list(dict.fromkeys(commands))
    return dict(
        zip(once, everywhere(partial(output, roots=Catalogue(own).roots), once), strict=True)
    )


def judged_claims(papers: Sequence[str], own: Paths, everywhere: Spread) -> list[Judged]:
    """Return every claim of papers beside what its commands give; raise :class:`BadInput` for a
    command that fails.
    """
    from simulator.evidence.claims import judged

    rows = claims(papers)
    commands: list[str] = []
    for row in rows:
        commands += row.claim.commands
    return judged(rows, answers(commands, own, everywhere))


def claims(papers: Iterable[str]) -> list[ClaimRow]:
    """Return the claims of papers, in the order of their functions; none for a paper without a
    folder in ``simulator/papers``, which is found by its name.
    """
    from simulator.evidence.claims import claims_of

    rows: list[ClaimRow] = []
    for paper in papers:
        folder = Path(simulator.__file__).parent / "papers" / paper
        modules = {module.name for module in iter_modules([str(folder)])}
        if CLAIMS in modules:
            written = import_module(f"simulator.papers.{paper}.{CLAIMS}")
            rows += claims_of(paper, vars(written).values())
    return rows


@click.command("claims")
@click.argument("papers", metavar="[PAPER]...", nargs=-1, required=False)
@click.option(
    "--refuted", is_flag=True, help="Only what did not come out, each with the bound it breaks."
)
@options.output(
    "--out", type=options.FOLDER, help="Folder for the page: claims, or refuted with --refuted."
)
@options.as_json
@options.own
def kept(papers: Names, refuted: bool, out: Path | None, as_json: bool, own: Paths) -> None:
    """What papers claim and whether it came out: the kept verdicts, with nothing run.

    `specsim validate --claims PAPER` runs them anew, which takes minutes.
    """
    from simulator.evidence.fits import papers as chosen
    from simulator.evidence.kept_claims import kept_claims
    from simulator.inputs.shell import command_line
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.claims import as_data, page, refuted_page

    with faults_as_lines():
        judged = kept_claims(claims(paper.name for paper in chosen(Catalogue(own), papers)))
    if refuted:
        name, made, typed = "refuted", refuted_page, ["--refuted"]
        shown = [one for one in judged if one.verdict == "refuted"]
    else:
        name, made, typed, shown = "claims", page, [], judged
    answered = made(judged, command_line("claims", papers, (), options=typed))
    if out:
        write_files(out, page_files(answered, name))
    answer(as_json, lambda: {"claims": as_data(shown)}, lambda: answered)


@click.command("figure")
@click.argument("paper", required=False)
@click.argument("number", required=False)
@options.output(
    "--out", type=options.PICTURE, help="File for the picture [default: PAPER_figure_NUMBER.svg]."
)
@options.pictures
@click.option(
    "--processes",
    type=click.IntRange(1, 4_096),
    help="Runs at a time [default: one for each core].",
)
@options.as_json
@options.own
def figure(
    paper: str | None,
    number: str | None,
    out: Path | None,
    processes: int | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Draw figure NUMBER of PAPER anew, ours beside the published points; without a name, list all
    figures.
    """
    from simulator.evidence.drawn import figure as described
    from simulator.report.page import write_picture
    from simulator.report.pages.figure import as_data, picture

    if paper is None or number is None:
        _list(paper, as_json, own)
        return
    with working("running") as status:
        asked = described(Catalogue(own), paper, number)
        commands = list(dict.fromkeys(asked.commands))
        status.update(f"{len(commands)} commands")
        with spread(min(processes or CORES, len(commands))) as everywhere:
            points = asked.points(answers(commands, own, everywhere))
        path = out or (None if as_json else Path(f"{paper}_figure_{number}.svg"))
        if path:
            write_picture(path, picture(asked, points))
    answer(as_json, lambda: as_data(asked, points), None, f"{asked.picture.figure}: {path}")


def _list(paper: str | None, as_json: bool, own: Paths) -> None:
    """List the figures of a paper, or of all: what draws them and which claims say how they come
    out, or why none does.
    """
    from simulator.evidence.drawn import drawn_figures
    from simulator.evidence.published import paper_figures
    from simulator.report.pages.figure import list_data, page

    with faults_as_lines():
        every = paper_figures()
        drawn = drawn_figures(Catalogue(own))
        figures = [known for known in every if paper in (None, known.paper)]
        if not figures:
            hint = did_you_mean(str(paper), {known.paper for known in every})
            raise BadInput.at(str(paper), f"there is no paper of this name{hint}")
    answer(as_json, lambda: list_data(figures, drawn), lambda: page(figures, drawn))
