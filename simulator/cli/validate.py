"""The command ``specsim validate``: how far laws and runs are from simulations and published
values.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from simulator.cli import options
from simulator.cli.claims import judged_claims
from simulator.cli.options import Names, Paths, answer, beside_the_package, page_in, working
from simulator.core.faults import BadInput, Fault, did_you_mean
from simulator.core.parallel import CORES, Spread, spread
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.plugins import packages_found
from simulator.inputs.shell import command_line, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.cli.bars import Display
    from simulator.cli.display import Lines
    from simulator.evidence.claims import Judged
    from simulator.evidence.law_check import ExampleVerdict, LawGap

ALL = "all"


def _live(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    """End a validation by decoding on this machine, which stands beside the package."""
    if wanted:
        beside_the_package(
            "validate --live", "benchmarks.live validation, with the same --out and --json"
        )


@click.command("validate")
@click.argument("papers", metavar="[PAPER]...", nargs=-1, required=False)
@click.option(
    "--law",
    "laws",
    metavar="STRATEGY",
    multiple=True,
    help="Its law alone, on its own example; `all`: every one.",
)
@click.option(
    "--claims",
    "only_claims",
    is_flag=True,
    help="The papers' claims alone, run anew; kept verdicts and bounds: specsim claims.",
)
@click.option(
    "--cell",
    "patterns",
    metavar="CELL",
    multiple=True,
    help="Single cells: their runs and commands.",
)
@click.option(
    "--table",
    "tables",
    type=options.FILE,
    multiple=True,
    help="A CSV of measured runs, plain and with speculation: what is said of each, how far it is "
    "off, and which losses are found.",
)
@click.option(
    "--set",
    "cells",
    metavar="COLUMN=CELL",
    multiple=True,
    help="With --table, a cell of every row that does not state it: prompt_tokens=145.",
)
@options.output(
    "--out", type=options.FOLDER, help="Folder for the page, its cells and its pictures."
)
@options.pictures
@click.option(
    "--most-mape",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Largest MAPE over all predicted cells.",
)
@click.option(
    "--most-median",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Largest median error over all predicted cells.",
)
@click.option(
    "--least-within-10",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Smallest share of cells within 10 %.",
)
@click.option(
    "--most-mape-of-a-paper",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Largest MAPE of a paper with ten cells or more.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 4_096),
    help="Runs at a time [default: one for each core].",
)
@options.as_json
@options.long
@options.own
@click.option("--live", is_flag=True, hidden=True, expose_value=False, callback=_live)
def validate(
    papers: Names,
    laws: Names,
    only_claims: bool,
    patterns: Names,
    tables: Paths,
    cells: Names,
    out: Path | None,
    processes: int | None,
    as_json: bool,
    own: Paths,
    **bounds: float | None,
) -> None:
    """Compare laws with simulation, then published values and claims with runs that use the
    committed fits.

    Nothing is fitted. Exit code 3 where a bound that was given is missed, a law breaks what it
    claims, or a claim of a paper has no verdict.
    """
    if tables:
        _tables(tables, cells, as_json, own, out)
    if cells:
        raise click.UsageError("--set is for the rows of a --table")
    if laws:
        _laws(laws, processes, as_json)
    if patterns:
        _cells(papers, patterns, processes, as_json, own)
    if only_claims:
        _claims(papers, processes, as_json, own, out)
    _papers(
        papers,
        processes,
        as_json,
        own,
        out,
        {name: share and share / 100 for name, share in bounds.items()},
    )


def _papers(
    papers: Names,
    processes: int | None,
    as_json: bool,
    own: Paths,
    out: Path | None,
    bounds: dict[str, float | None],
) -> NoReturn:
    """Run laws, claims and cells of papers, print or write the page, and end."""
    from simulator.evidence.claims import runs_of_cells
    from simulator.evidence.fits import papers as chosen
    from simulator.evidence.law_check import law_gaps
    from simulator.evidence.published import contradictions, paper_figures
    from simulator.evidence.validation import GOAL, ErrorBounds, engine_fits, shortfalls, validated
    from simulator.report.law_claims import law_data
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.claims import as_data as claims_data
    from simulator.report.pages.validate import CELLS, as_data, cells_csv, page

    with working("laws") as status, spread(processes or CORES) as processes_map:
        asked = chosen(Catalogue(own), papers)  # before the laws, which take minutes
        examples = _examples((ALL,), processes_map)
        gaps = law_gaps(processes_map)
        results = []
        status.update("claims")
        claims = _judged([paper.name for paper in asked], own, processes_map, status)
        for paper in asked:
            status.update(paper.name)
            said = runs_of_cells(claim for claim in claims if claim.row.paper == paper.name)
            results.append(validated(paper, processes_map, said))
        missed = shortfalls(results, ErrorBounds(**bounds))
        fits = engine_fits(Catalogue(own))
        command = command_line("validate", papers, ())
        goals = shortfalls(results, GOAL)
        answered = page(
            results, gaps, goals, paper_figures(), contradictions(), command, claims, fits
        )
        if out:
            write_files(out, page_files(answered, "validation") | {CELLS: cells_csv(results)})
    more = {
        "engines": {name: fit.model_dump() for name, fit in fits.items()},
        "claims": claims_data(claims),
        "examples": law_data(examples),
    }
    answer(
        as_json,
        lambda: as_data(results, gaps, missed) | more,
        lambda: answered,
        page_at=page_in(out, "validation"),
    )
    _end(
        [*(f"bound missed: {bound}" for bound in missed), *_broken(examples, gaps), *_open(claims)]
    )


def _end(sentences: Sequence[str]) -> NoReturn:
    """Say what is missed or broken, and end with exit code 3 where anything is."""
    for sentence in sentences:
        click.echo(sentence, err=True)
    sys.exit(3 if sentences else 0)


def _broken(examples: Sequence[ExampleVerdict], gaps: Sequence[LawGap]) -> list[str]:
    """Return a sentence for every law that breaks its claim, on its example or in a shipped
    scenario.
    """
    from simulator.report.law_claims import law_sentence, on_page

    sentences = [law_sentence(verdict) for verdict in examples if verdict.disagreement]
    return sentences + [f"{gap.scenario}: {on_page(gap.shown)}" for gap in gaps if gap.disagreement]


def _open(claims: Sequence[Judged]) -> list[str]:
    """Return a sentence for every claim without a verdict."""
    ending = "has no verdict: give it a bound, or the input that is missing"
    return [f"{claim.row.fault('', ending)}" for claim in claims if not claim.verdict]


def _claims(
    names: Names, processes: int | None, as_json: bool, own: Paths, out: Path | None
) -> None:
    """Judge the claims of papers, and end: with exit code 3 where one has no verdict."""
    from simulator.evidence.fits import papers
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.claims import CLAIMS, as_data, claims_csv, page, refuted_page

    with working("claims") as status, spread(processes or CORES) as everywhere:
        claims = _judged(
            [paper.name for paper in papers(Catalogue(own), names)], own, everywhere, status
        )
        answered = page(claims, command_line("validate", names, (), options=["--claims"]))
        if out:
            refuted = refuted_page(claims, command_line("claims", names, (), options=["--refuted"]))
            files = page_files(answered, "claims") | page_files(refuted, "refuted")
            write_files(out, files | {CLAIMS: claims_csv(claims)})
    data = {"claims": as_data(claims)}
    answer(as_json, lambda: data, lambda: answered, page_at=page_in(out, "claims"))
    _end(_open(claims))


def _judged(
    papers: Sequence[str], own: Paths, everywhere: Spread, display: Display | Lines
) -> list[Judged]:
    """Return the claims of papers, judged paper by paper; every verdict is told as it comes, for
    they take minutes.
    """
    claims: list[Judged] = []
    for place, paper in enumerate(papers, 1):
        display.update(f"claims of {paper}, paper {place} of {len(papers)}")
        judged = judged_claims([paper], own, everywhere)
        for one in judged:
            display.tell(f"{paper}, {one.row.claim.claim}: {one.verdict or 'no verdict'}")
        claims += judged
    return claims


def _tables(tables: Paths, cells: Names, as_json: bool, own: Paths, out: Path | None) -> NoReturn:
    """Hold what the laws say to tables of measured runs, and end."""
    from simulator.evidence.ledger.rows import read_table
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.ledger import as_data, page

    with working("rows"):
        ledgers = [read_table(path, Catalogue(own), _shared(cells)) for path in tables]
    typed = [*repeated("--table", tables), *repeated("--set", cells)]
    answered = page(ledgers, command_line("validate", (), (), options=typed))
    if out:
        write_files(out, page_files(answered, "ledger"))
    answer(as_json, lambda: as_data(ledgers), lambda: answered, page_at=page_in(out, "ledger"))
    _end([])


def _shared(cells: Names) -> dict[str, str]:
    """Return the cells that hold for every row, by column."""
    shared = {}
    for assignment in cells:
        column, equals, cell = assignment.partition("=")
        if not (column and equals and cell):
            message = f"expected COLUMN=CELL, got '{assignment}'"
            raise click.BadParameter(message, param_hint="--set")
        shared[column] = cell
    return shared


def _cells(
    names: Names, patterns: Names, processes: int | None, as_json: bool, own: Paths
) -> NoReturn:
    """Run single cells of papers with the committed fit, and end."""
    from simulator.evidence.fits import Question, papers
    from simulator.evidence.validation import single_cells
    from simulator.report.pages.validate import cells_page, single_data

    with working("cells"), spread(processes or 1) as everywhere:
        asked = single_cells(papers(Catalogue(own), names), patterns)
        runs = everywhere(Question.answer, [question for _, _, question in asked])
        data = [
            single_data(paper, cell, question, run)
            for (paper, cell, question), run in zip(asked, runs, strict=True)
        ]
    answer(
        as_json,
        lambda: {"cells": data},
        lambda: cells_page(data, command_line("validate", names, ())),
    )
    _end([])


def _laws(names: Names, processes: int | None, as_json: bool) -> None:
    """Hold laws to the timelines of their examples, and end: with exit code 3 where one breaks its
    claim.
    """
    from simulator.report.law_claims import law_data, page

    with working("laws"), spread(processes or (CORES if ALL in names else 1)) as everywhere:
        verdicts = _examples(names, everywhere)
    disagreement = any(verdict.disagreement for verdict in verdicts)
    command = command_line("validate", (), (), options=repeated("--law", names))
    answer(
        as_json,
        lambda: {"examples": law_data(verdicts), "disagreement": disagreement},
        lambda: page(verdicts, command),
    )
    sys.exit(3 if disagreement else 0)


def _examples(names: Names, everywhere: Spread) -> list[ExampleVerdict]:
    """Return what became of the examples of strategies; raises :class:`BadInput` for a name that is
    none.
    """
    from simulator.core.strategies import strategies
    from simulator.evidence.law_check import check_strategy

    if ALL in names:
        chosen = list(strategies())
    else:
        chosen = list(dict.fromkeys(names))
    wrong = [name for name in chosen if name not in strategies()]
    if wrong:
        message = "there is no strategy of this name"
        found = packages_found()
        raise BadInput(
            [
                Fault((name, 0, 0), "", f"{message}{did_you_mean(name, strategies())}; {found}")
                for name in wrong
            ]
        )
    return list(everywhere(check_strategy, chosen))
