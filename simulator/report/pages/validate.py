"""What ``specsim validate`` found: errors of every predicted cell, laws against simulation, and
slips of the papers.

Terminal, JSON, CSV of every cell, and a page.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from simulator.cost.engine import EngineErrors
from simulator.evidence.claims import Judged
from simulator.evidence.fits import Question
from simulator.evidence.law_check import LawGap
from simulator.evidence.published import Contradiction, PaperFigure, PublishedCell
from simulator.evidence.validation import (
    NOISE_FLOOR,
    Errors,
    Prediction,
    Shortfall,
    Validated,
    apart,
    summaries,
)
from simulator.files.writing import csv_text
from simulator.numeric import grouped
from simulator.report import validation_figures
from simulator.report.blocks import (
    Block,
    Bullets,
    Figure,
    Hyperlink,
    Page,
    Paragraph,
    Table,
    sections,
)
from simulator.report.pages.claims import by_paper, counts
from simulator.report.wording import Wording, share
from simulator.scenario.uncertainty import SHARE

say = Wording("validate")
CELLS, PARITY, RESIDUALS = "cells.csv", "parity.svg", "residuals.svg"
FAR = 0.10
"""An error from here on, as a share, is listed by name."""


def _laws_headline(gaps: Sequence[LawGap]) -> str:
    """Return a sentence: the median and the largest gap of a step, of the laws that claim to be
    exact.
    """
    exact = sorted(
        (gap for gap in gaps if gap.relation == "exact"), key=lambda gap: abs(gap.step_gap)
    )
    middle = abs(exact[len(exact) // 2].step_gap) if exact else 0.0
    return say("laws", worst=exact[-1] if exact else None, middle=middle, count=len(gaps))


def as_data(
    papers: Sequence[Validated], gaps: Sequence[LawGap], missed: Sequence[Shortfall]
) -> dict[str, Any]:
    """Return laws, papers and cells as the object that ``--json`` prints."""
    unmapped = []
    for paper in papers:
        unmapped += [
            {"paper": paper.paper.name, "cell": cell.cell, "role": cell.role}
            for cell in paper.unmapped
        ]
    return {
        "laws": [
            gap._asdict() | {"step_gap": gap.step_gap, "tpot_gap": gap.tpot_gap} for gap in gaps
        ],
        "papers": [asdict(summary) for summary in summaries(papers)],
        "cells": [
            dict(zip(say.head("cells"), row, strict=True))
            for row in say.rows("cells", _run(papers))
        ],
        "unmapped": unmapped,
        "missed": [shortfall._asdict() for shortfall in missed],
    }


def _run(papers: Sequence[Validated]) -> Iterator[Prediction]:
    """Yield every cell that was run."""
    for paper in papers:
        yield from (*paper.predicted, *paper.checked, *paper.reported, *paper.calibrated)


def cells_csv(papers: Sequence[Validated]) -> str:
    """Return every cell that was run as CSV text."""
    return csv_text(say.head("cells"), say.rows("cells", _run(papers)))


def page(
    papers: Sequence[Validated],
    gaps: Sequence[LawGap],
    missed: Sequence[Shortfall],
    figures: Sequence[PaperFigure],
    slips: Sequence[Contradiction],
    command: str,
    claims: Sequence[Judged] = (),
    engines: Mapping[str, EngineErrors] = MappingProxyType({}),
) -> Page:
    """Return the page: how far off predictions are, cell by cell, the laws, and what is wrong in
    the papers.

    It links to :data:`CELLS`, which is to be written beside it.
    """
    every = summaries(papers)[-1]
    pooled = every.errors
    drawings = [
        Figure(say("parity"), PARITY, lambda: validation_figures.parity(papers)),
        Figure(say("residuals"), RESIDUALS, lambda: validation_figures.residuals(papers)),
    ]
    return Page(
        title=say("title"),
        answer=say("headline", pooled=pooled, again=every.again) if pooled else "",
        opening=[Paragraph(_laws_headline(gaps)), *_answer(papers, missed), *drawings],
        sections=[
            *sections(
                ("Engines beside arithmetic with one constant", _engines(engines)),
                (f"Predicted cells that are more than {100 * FAR:.0f} % off", _far_off(papers)),
            ),
            *sections(
                *((f"Claims of {name}", blocks) for name, blocks in by_paper(claims).items()),
                *((paper.paper.name, _paper(paper)) for paper in papers),
                (
                    "Laws against simulation",
                    [Paragraph(say("laws_legend")), say.table("gaps", gaps)],
                ),
                ("Figures of the papers", _figures(figures, claims)),
                (
                    "What is wrong in the papers",
                    [Paragraph(say("slips_legend", slips=slips)), say.table("slips", slips)],
                ),
                ("Every cell", [Paragraph(("As a table: ", Hyperlink(CELLS, CELLS), "."))]),
                terminal=False,
            ),
        ],
        command=command,
        highlights=say.highlights(pooled=pooled) if pooled else (),
    )


def _engines(engines: Mapping[str, EngineErrors]) -> Iterator[Block]:
    """Yield the errors that fits of engines left of measured runs, beside those of arithmetic
    fitted to the same rows.
    """

    def outside(fit: EngineErrors) -> str:
        return ", ".join(
            f"{what} {share(error)}"
            for what, error in fit.errors.items()
            if what.startswith("without")
        )

    if engines:
        yield say.table("engines", engines.items(), outside=outside)
        yield Paragraph(say("engines_legend"))


def _answer(papers: Sequence[Validated], missed: Sequence[Shortfall]) -> Iterator[Block]:
    spans = [
        (name, list(dict.fromkeys(f"{100 * end:.3g}" for end in ends)))
        for name, ends in NOISE_FLOOR.items()
    ]
    yield Paragraph(say("roles"))
    yield say.table("errors", summaries(papers))
    yield Paragraph(say("legend", covered=SHARE, noise=say("noise", spans=spans)))
    yield say.table(
        "apart",
        apart(papers),
        both=lambda summary: summary.comparable if summary.baseline else None,
    )
    yield Paragraph(f"{_as_good(papers)} {say('baseline_rule')}")
    yield Paragraph("Goals:")
    yield Bullets([f"missed: {shortfall}" for shortfall in missed] or ["every bound is met"])


def _as_good(papers: Sequence[Validated]) -> str:
    """Return a sentence: where arithmetic is as good as the simulator, or better."""
    parted = [(summary.name, summary.comparable, summary.baseline) for summary in apart(papers)]
    both = [(name, ours, baseline) for name, ours, baseline in parted if ours and baseline]
    beaten = [
        (name, ours.mape, theirs.mape, ours.count)
        for name, ours, theirs in both
        if theirs.mape <= ours.mape
    ]
    return say("as_good", beaten=beaten)


def _paper(paper: Validated) -> Iterator[Block]:
    """Yield the choices and the tables of a paper: predicted cells, then those of the other roles,
    then those without a run.
    """
    name, choices = paper.paper.name, paper.paper.choices
    if choices:
        yield Paragraph(
            say("choices_legend", paper=paper.paper, seen=sum(one.after_seeing for one in choices))
        )
        yield say.table("choices", choices, name=name)
    if paper.predicted:
        yield say.table("predicted", paper.predicted, name=name, what=_what, far=FAR)
    roles = {
        "Must come out": paper.checked,
        "Reported, not pooled": paper.reported,
        "Fitted to": paper.calibrated,
    }
    for role, cells in roles.items():
        if cells:
            yield Paragraph(
                say("role", role=role, errors=Errors.of([cell.error for cell in cells]))
            )
    for role in ("Must come out", "Reported, not pooled"):
        if roles[role]:
            yield Paragraph(f"{role}:")
            yield say.table("plain", roles[role], role=role, name=name, what=_what)
    if paper.unmapped:
        yield Paragraph(f"Without a run ({len(paper.unmapped)}):")
        yield Table(
            ("role", "cells", "why"), list(_unmapped_rows(paper)), f"Cells of {name} without a run"
        )


def _what(prediction: Prediction) -> str:
    """Return method, model, task and conditions of a cell, and the quantity that was published."""
    cell = prediction.cell
    return f"{', '.join(say.all('what', cell=cell))}: {cell.quantity.replace('_', ' ')}"


def _unmapped_rows(paper: Validated) -> Iterator[tuple[str, ...]]:
    """Yield a row for each reason why cells have no run, with their names table by table."""
    reasons = grouped(
        paper.unmapped,
        lambda cell: (cell.role, paper.paper.note(cell) or cell.reason or "not mapped yet"),
    )
    for (role, why), cells in reasons.items():
        tables = grouped((cell.cell for cell in cells), lambda name: name.rpartition(":")[0])
        listed = (
            f"{table}: {', '.join(name.rpartition(':')[2] for name in own)}"
            for table, own in tables.items()
        )
        yield role, "; ".join(listed), why


def _far_off(papers: Sequence[Validated]) -> Iterator[Block]:
    """Yield the predicted cells with an error beyond ``FAR``, each in words."""
    far = [one for paper in papers for one in paper.predicted if abs(one.error) > FAR]
    if far:
        yield Bullets([say("far", one=one) for one in far])


def _figures(figures: Sequence[PaperFigure], claims: Sequence[Judged]) -> Iterator[Block]:
    judged = {(one.row.paper, one.claim.claim): one for one in claims}

    def verdicts(figure: PaperFigure) -> str:
        return counts(
            judged[figure.paper, name]
            for name in figure.claims.split()
            if (figure.paper, name) in judged
        )

    shown, claimed = (
        sum(figure.reproduced for figure in figures),
        sum(bool(figure.claims) for figure in figures),
    )
    yield Paragraph(say("figures_legend", count=len(figures), shown=shown, judged=claimed))
    yield say.table("figures", figures, verdicts=verdicts)


def single_data(paper: str, cell: PublishedCell, question: Question, run: float) -> dict[str, Any]:
    """Return a cell with its run and the commands that give it, as ``validate --cell --json``
    prints it.
    """
    names = (
        "cell",
        "source",
        "role",
        "model",
        "task",
        "method",
        "batch_size",
        "quantity",
        "unit",
        "qualifier",
    )
    published = float(cell.published)
    values = {"published": published, "run": run, "error_percent": 100 * (run / published - 1)}
    typed = [one.typed for one in (question.run, question.against) if one]
    of_cell = {"paper": paper} | {name: getattr(cell, name) for name in names}
    return of_cell | values | {"commands": typed, "metric": cell.metric}


def cells_page(cells: Sequence[dict[str, Any]], command: str) -> Page:
    """Return the page of single cells: what is published, what a run gives, and how to run it
    again.
    """
    again = [f"{cell['cell']}: {' against '.join(cell['commands'])}" for cell in cells]
    return Page(
        "Published values beside runs",
        opening=[say.table("single", cells), Bullets(again)],
        command=command,
    )
