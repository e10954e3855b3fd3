"""What ``specsim validate`` found: errors of every predicted cell, laws against simulation, and slips of the papers.

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
from simulator.evidence.validation import NOISE_FLOOR, Errors, Prediction, Shortfall, Summary, Validated, apart, summaries
from simulator.numeric import grouped
from simulator.report import validation_figures
from simulator.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Page,
    Paragraph,
    Strong,
    Table,
    Words,
    sections,
)
from simulator.report.numbers import number, share, signed_share
from simulator.report.page import csv_text
from simulator.report.pages.claims import by_paper, counts
from simulator.scenario.uncertainty import SHARE

CELLS, PARITY, RESIDUALS = "cells.csv", "parity.svg", "residuals.svg"
HEAD = ("paper", "cells", "free", "MAPE", "median", "most", "bias", "≤ 5 %", "≤ 10 %", "baseline", "covered", "choices")
LEGEND = (
    "cells: predicted ones with a run, of those there are, each measurement once; free: parameters fitted to other cells of "
    "the paper; MAPE, median and most of the absolute error, bias of the signed error; baseline: MAPE of arithmetic on the "
    f"calibrated cells, which needs no simulator; covered: published values within the {SHARE:.0%} interval of the run; "
    "choices: discrete ones, listed below"
)
BASELINE_RULE = (
    "Arithmetic has the same inputs: of the calibrated cells of the same method those that differ least (model and hardware "
    "first, then task and settings); printed tokens times the sibling's ratio of speed-up to tokens, else its value times the "
    "ratio that another method shows between the two settings; times the layers where it is a time. Interpolations are cells "
    "with a calibrated sibling of the same method, model and hardware that differs in the task or in one setting only; the "
    "others are predictions."
)
APART_HEAD = ("paper", "cells", "MAPE", "baseline", "median", "its median")
NARROW = (0, 1, 2, 3, 4, 8, 9, 10)
"""Columns of ``HEAD`` that a terminal shows."""
COLUMNS = (
    *("paper", "role", "cell", "source", "model", "task", "method", "hardware", "temperature", "batch_size", "quantity"),
    "unit",
    *("published", "run", "error_percent", "low", "high", "baseline", "baseline_error_percent", "kind", "same_as", "note"),
)
"""Columns of the CSV of every cell; ``baseline`` is what arithmetic gives, ``kind`` a prediction or an interpolation."""
PREDICTED_HEAD = ("cell", "what", "published", "run", f"{SHARE:.0%} interval", "error", "baseline", "note")
PLAIN_HEAD = ("cell", "what", "published", "run", "error", "note")
LAW_HEAD = (
    *("scenario", "step, simulated (ms)", "step, law (ms)", ""),
    *("token, simulated (ms)", "token, law (ms)", "", "the law is"),
)
FAR = 0.10
"""An error from here on, as a share, is listed by name."""


def summary_row(summary: Summary) -> tuple[str, ...]:
    """Return the cells of a paper under ``HEAD``; errors are empty where no cell was predicted."""
    errors = summary.errors
    cells = f"{errors.count if errors else 0} of {summary.asked - summary.again}"
    if errors is None:
        return summary.name, cells, str(summary.free), *[""] * 8, str(summary.choices)
    sizes = (share(errors.mape), share(errors.median), share(errors.most), signed_share(errors.bias))
    within = (f"{100 * part:.0f} %" for part in (errors.within_5, errors.within_10))
    baseline = share(summary.baseline.mape) if summary.baseline else ""
    covered = f"{100 * summary.covered:.0f} %"
    return summary.name, cells, str(summary.free), *sizes, *within, baseline, covered, str(summary.choices)


def noise_floor() -> str:
    """Return a sentence: by how many per cent the same methods differ when they are measured again."""
    spans = []
    for name, ends in NOISE_FLOOR.items():
        spans.append(f"{name}: {' to '.join(dict.fromkeys(f'{100 * end:.3g}' for end in ends))} %")
    return f"Noise floor of the field, the same methods measured again: {'; '.join(spans)}."


def _in_words(prediction: Prediction) -> str:
    """Return what was run, what was published, and the note on the difference."""
    cell = prediction.cell
    words = f"{number(prediction.run)} for {number(prediction.published)} {cell.unit} ({signed_share(prediction.error)})"
    return f"{words}: {prediction.note}" if prediction.note else words


def laws_headline(gaps: Sequence[LawGap]) -> str:
    """Return half a sentence: the median and the largest gap of a step, of the laws that claim to be exact."""
    exact = sorted((gap for gap in gaps if gap.relation == "exact"), key=lambda gap: abs(gap.step_gap))
    if not exact:
        return "No law was asked"
    worst, middle = exact[-1], exact[len(exact) // 2]
    return (
        f"Law against simulation, {len(gaps)} shipped scenarios: a step by law is within {abs(middle.step_gap):.1e} of the "
        f"simulated one in half of them; furthest off is {worst.scenario} ({signed_share(worst.step_gap)})"
    )


def as_data(papers: Sequence[Validated], gaps: Sequence[LawGap], missed: Sequence[Shortfall]) -> dict[str, Any]:
    """Return laws, papers and cells as the object that ``--json`` prints."""
    unmapped = []
    for paper in papers:
        unmapped += [{"paper": paper.paper.name, "cell": cell.cell, "role": cell.role} for cell in paper.unmapped]
    return {
        "laws": [gap._asdict() | {"step_gap": gap.step_gap, "tpot_gap": gap.tpot_gap} for gap in gaps],
        "papers": [asdict(summary) for summary in summaries(papers)],
        "cells": [dict(zip(COLUMNS, row, strict=True)) for row in cell_rows(papers)],
        "unmapped": unmapped,
        "missed": [shortfall._asdict() for shortfall in missed],
    }


def cell_rows(papers: Sequence[Validated]) -> Iterator[tuple[str, ...]]:
    """Yield a row under ``COLUMNS`` for every cell that was run."""
    for paper in papers:
        for prediction in (*paper.predicted, *paper.checked, *paper.reported, *paper.calibrated):
            cell = prediction.cell
            names = (cell.role, cell.cell, cell.source, cell.model, cell.task, cell.method, cell.hardware)
            conditions = ("" if value is None else f"{value:g}" for value in (cell.temperature, cell.batch_size))
            interval = prediction.interval or (None, None)
            percent = prediction.baseline_error and 100 * prediction.baseline_error
            figures = (prediction.run, 100 * prediction.error, *interval, prediction.baseline, percent)
            digits = ("" if value is None else f"{value:.5g}" for value in figures)
            quantity = (cell.quantity, cell.unit, cell.published)
            kinds = {"predict": ("prediction", "interpolation")[prediction.interpolated]}
            kind = (kinds.get(cell.role, ""), cell.same_as)
            yield paper.paper.name, *names, *conditions, *quantity, *digits, *kind, prediction.note


def cells_csv(papers: Sequence[Validated]) -> str:
    """Return every cell that was run as CSV text under ``COLUMNS``."""
    return csv_text(COLUMNS, cell_rows(papers))


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
    """Return the page: how far off predictions are, cell by cell, the laws, and what is wrong in the papers.

    It links to :data:`CELLS`, which is to be written beside it.
    """
    pooled = summaries(papers)[-1].errors
    drawings = [
        Figure("Run against published, by paper", PARITY, lambda: validation_figures.parity(papers)),
        Figure("Error of every predicted cell", RESIDUALS, lambda: validation_figures.residuals(papers)),
    ]
    return Page(
        title="How far off the simulator is",
        answer=_headline(pooled, summaries(papers)[-1].again),
        opening=[Paragraph(f"{laws_headline(gaps)}."), *_answer(papers, missed), *drawings],
        sections=[
            *sections(
                ("Engines beside arithmetic with one constant", _engines(engines)),
                (f"Predicted cells that are more than {100 * FAR:.0f} % off", _far_off(papers)),
            ),
            *sections(
                *((f"Claims of {name}", blocks) for name, blocks in by_paper(claims).items()),
                *((paper.paper.name, _paper(paper)) for paper in papers),
                ("Laws against simulation", _laws(gaps)),
                ("Figures of the papers", _figures(figures, claims)),
                ("What is wrong in the papers", _slips(slips)),
                ("Every cell", [Paragraph(("As a table: ", Hyperlink(CELLS, CELLS), "."))]),
                terminal=False,
            ),
        ],
        command=command,
        highlights=_highlights(pooled),
    )


def _engines(engines: Mapping[str, EngineErrors]) -> Iterator[Block]:
    """Yield the errors that fits of engines left of measured runs, beside those of arithmetic fitted to the same rows."""
    rows = []
    for name, fit in engines.items():
        outside = ", ".join(f"{what} {share(error)}" for what, error in fit.errors.items() if what.startswith("without"))
        rows.append(
            (name, str(fit.rows), str(fit.free), share(fit.errors["fitted"]), outside, share(fit.errors["one constant"]))
        )
    if rows:
        yield Table(
            ("engine", "runs", "free", "fitted", "groups that took no part", "one constant"), rows, "Mean absolute errors"
        )
        yield Paragraph(
            "Calibrated, not predicted, but for groups that took no part. One constant: speed-up 1 + c (tokens a step - 1), a "
            "step c times the time in which the datasheet's bandwidth reads its weights, fitted to the same rows. The rows are "
            "not shipped; each engine's file names them."
        )


def _headline(pooled: Errors | None, again: int) -> str:
    if pooled is None:
        return ""
    cells = f" ({pooled.count + again} cells, {again} of them printed twice)" if again else ""
    return (
        f"{pooled.count} published values predicted from runs{cells}: {share(pooled.mape)} off on average, half of them by "
        f"less than {share(pooled.median)}, {100 * pooled.within_10:.0f} % within 10 %."
    )


def _highlights(pooled: Errors | None) -> list[Highlight]:
    if pooled is None:
        return []
    return [
        Highlight(share(pooled.mape), f"mean absolute error of {pooled.count} predicted values"),
        Highlight(share(pooled.median), "median"),
        Highlight(f"{100 * pooled.within_10:.0f} %", "of them within 10 %"),
        Highlight(signed_share(pooled.bias), "bias"),
    ]


def _answer(papers: Sequence[Validated], missed: Sequence[Shortfall]) -> Iterator[Block]:
    yield Paragraph(
        "Roles of the published values were frozen before anything was fitted; free parameters are fitted to calibrated "
        "cells alone. Every number comes out of a run of its scenario."
    )
    rows = [summary_row(summary) for summary in summaries(papers)]
    yield Table(HEAD, rows, "Errors by paper", terminal_columns=NARROW)
    yield Paragraph(f"{LEGEND}. {noise_floor()} The intervals leave out links, host times that are not fitted, and acceptance.")
    yield Table(APART_HEAD, [_apart_row(summary) for summary in apart(papers)], "Beside arithmetic")
    yield Paragraph(f"{_as_good(papers)} {BASELINE_RULE}")
    yield Paragraph("Goals:")
    yield Bullets([f"missed: {shortfall}" for shortfall in missed] or ["every bound is met"])


def _apart_row(summary: Summary) -> tuple[str, ...]:
    """Return the cells under ``APART_HEAD``: our errors of the cells that have a baseline, and those of the baseline."""
    ours, baseline = summary.comparable, summary.baseline
    if not (ours and baseline):
        return summary.name, "0", "", "", "", ""
    return summary.name, str(ours.count), *map(share, (ours.mape, baseline.mape, ours.median, baseline.median))


def _as_good(papers: Sequence[Validated]) -> str:
    """Return a sentence: where arithmetic is as good as the simulator, or better."""
    parted = [(one.name, one.comparable, one.baseline) for one in apart(papers)]
    beaten = [
        f"{name} ({share(baseline.mape)} against our {share(ours.mape)}, {ours.count} cells)"
        for name, ours, baseline in parted
        if ours and baseline and baseline.mape <= ours.mape
    ]
    return f"Arithmetic is as good or better for {'; '.join(beaten)}." if beaten else "Arithmetic is as good nowhere."


def _choices(paper: Validated) -> Iterator[Block]:
    """Yield the discrete choices of a paper, which no fit made."""
    rows = [(one.what, str(one.value), one.rests_on, "yes" if one.after_seeing else "no") for one in paper.paper.choices]
    if rows:
        seen = sum(one.after_seeing for one in paper.paper.choices)
        yield Paragraph(
            f"{paper.paper.free} free parameters and {len(rows)} discrete choices, {seen} of them made after results were seen:"
        )
        head = ("choice", "value", "rests on", "results seen")
        yield Table(head, rows, f"Discrete choices of {paper.paper.name}")


def _paper(paper: Validated) -> Iterator[Block]:
    """Yield the tables of a paper: predicted cells first, then those of the other roles, then those without a run."""
    yield from _choices(paper)
    if paper.predicted:
        name = f"Predicted cells of {paper.paper.name}"
        yield Table(PREDICTED_HEAD, [_predicted_row(cell) for cell in paper.predicted], name, sortable=True)
    roles = {"Must come out": paper.checked, "Reported, not pooled": paper.reported, "Fitted to": paper.calibrated}
    for title, cells in roles.items():
        if cells:
            spread = Errors.of([cell.error for cell in cells])
            yield Paragraph(f"{title}: {spread.count} cells, MAPE {share(spread.mape)}, most {share(spread.most)}.")
    for title in ("Must come out", "Reported, not pooled"):
        if roles[title]:
            yield Paragraph(f"{title}:")
            name = f"{title}: cells of {paper.paper.name}"
            yield Table(PLAIN_HEAD, [_plain_row(cell) for cell in roles[title]], name, sortable=True)
    if paper.unmapped:
        yield Paragraph(f"Without a run ({len(paper.unmapped)}):")
        yield Table(("role", "cells", "why"), list(_unmapped_rows(paper)), f"Cells of {paper.paper.name} without a run")


def _what(prediction: Prediction) -> str:
    """Return method, model, task and conditions of a cell, and the quantity that was published."""
    cell = prediction.cell
    words = [cell.method, cell.model, cell.task, "" if cell.temperature is None else f"T {cell.temperature:g}"]
    words += ["" if cell.batch_size in (None, 1) else f"batch {cell.batch_size}", cell.qualifier]
    return f"{', '.join(word for word in words if word)}: {cell.quantity.replace('_', ' ')}"


def _predicted_row(prediction: Prediction) -> tuple[Words, ...]:
    cell, interval = prediction.cell, prediction.interval
    span = f"{number(interval.low, 3)} to {number(interval.high, 3)}" if interval else ""
    error: Words = signed_share(prediction.error)
    if abs(prediction.error) > FAR:
        error = Strong(signed_share(prediction.error))
    baseline = "" if prediction.baseline_error is None else signed_share(prediction.baseline_error)
    values = (f"{cell.published} {cell.unit}", number(prediction.run, 3), span, error, baseline)
    return cell.cell, _what(prediction), *values, prediction.note


def _plain_row(prediction: Prediction) -> tuple[str, ...]:
    cell = prediction.cell
    values = (f"{cell.published} {cell.unit}", number(prediction.run, 3), signed_share(prediction.error))
    return cell.cell, _what(prediction), *values, prediction.note


def _unmapped_rows(paper: Validated) -> Iterator[tuple[str, ...]]:
    """Yield a row for each reason why cells have no run, with their names table by table."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in paper.unmapped:
        reasons.setdefault((cell.role, paper.paper.note(cell) or cell.reason or "not mapped yet"), []).append(cell.cell)
    for (role, why), names in reasons.items():
        tables = grouped(names, lambda name: name.rpartition(":")[0])
        listed = (f"{table}: {', '.join(name.rpartition(':')[2] for name in own)}" for table, own in tables.items())
        yield role, "; ".join(listed), why


def _far_off(papers: Sequence[Validated]) -> Iterator[Block]:
    """Yield the predicted cells with an error beyond ``FAR``, each in words."""
    sentences: list[str] = []
    for paper in papers:
        far = (prediction for prediction in paper.predicted if abs(prediction.error) > FAR)
        sentences += [f"{prediction.paper} {prediction.cell.cell}: {_in_words(prediction)}" for prediction in far]
    if sentences:
        yield Bullets(sentences)


def _laws(gaps: Sequence[LawGap]) -> Iterator[Block]:
    yield Paragraph(
        "Step: with the acceptance and the kinds of steps that the run met, at its mean context. Token: with marginal rates, "
        "prompts left out. The worked examples of every equation are tests."
    )
    rows = []
    for gap in gaps:
        step = number(gap.simulated_step_ms), number(gap.law_step_ms), f"{100 * gap.step_gap:+.3f} %"
        token = number(gap.simulated_tpot_ms), number(gap.law_tpot_ms), signed_share(gap.tpot_gap)
        rows.append((gap.scenario, *step, *token, gap.shown if gap.disagreement else gap.relation))
    yield Table(LAW_HEAD, rows, "Laws against simulation", sortable=True)


def _figures(figures: Sequence[PaperFigure], claims: Sequence[Judged]) -> Iterator[Block]:
    verdicts = {(one.row.paper, one.claim.claim): one for one in claims}
    shown, judged = sum(figure.reproduced for figure in figures), sum(bool(figure.claims) for figure in figures)
    yield Paragraph(f"{len(figures)} entries; {shown} have a command, {judged} have claims, the others say why not.")
    rows: list[tuple[Words, ...]] = []
    for figure in figures:
        command = Code(figure.command) if figure.command else "not reproduced"
        picture = Hyperlink(figure.picture, f"../{figure.picture}") if figure.picture else ""
        own = [verdicts[figure.paper, name] for name in figure.claims.split() if (figure.paper, name) in verdicts]
        rows.append((figure.paper, figure.figure, figure.shows, counts(own), command, picture, figure.remark))
    head = ("paper", "figure", "shows", "claims", "command", "picture", "remark")
    yield Table(head, rows, "Figures of the papers", sortable=True)


def _slips(slips: Sequence[Contradiction]) -> Iterator[Block]:
    weighty = sum(slip.weight in ("medium", "large") for slip in slips)
    yield Paragraph(
        f"{len(slips)} slips, ambiguities and statements that cannot both hold; {weighty} of them matter to a simulation. "
        "Findings that follow from printed values alone are recomputed from them by tests."
    )
    rows = [(slip.id, slip.paper, slip.where, slip.finding, slip.treatment, slip.weight) for slip in slips]
    yield Table(("", "paper", "where", "finding", "treatment", "weight"), rows, "Slips of the papers", sortable=True)


def single_data(paper: str, cell: PublishedCell, question: Question, run: float) -> dict[str, Any]:
    """Return a cell with its run and the commands that give it, as ``validate --cell --json`` prints it."""
    names = ("cell", "source", "role", "model", "task", "method", "batch_size", "quantity", "unit", "qualifier")
    published = float(cell.published)
    values = {"published": published, "run": run, "error_percent": 100 * (run / published - 1)}
    typed = [one.typed for one in (question.run, question.against) if one]
    of_cell = {"paper": paper} | {name: getattr(cell, name) for name in names}
    return of_cell | values | {"commands": typed, "metric": cell.metric}


def cells_page(cells: Sequence[dict[str, Any]], command: str) -> Page:
    """Return the page of single cells: what is published, what a run gives, and how to run it again."""
    head, errors = ("cell", "quantity", "published", "run", "error"), [cell["error_percent"] for cell in cells]
    rows = [
        (cell["cell"], cell["quantity"], number(cell["published"]), number(cell["run"]), f"{error:+.1f} %")
        for cell, error in zip(cells, errors, strict=True)
    ]
    again = [f"{cell['cell']}: {' against '.join(cell['commands'])}" for cell in cells]
    opening: list[Block] = [Table(head, rows, "Cells"), Bullets(again)]
    return Page("Published values beside runs", "", "", opening, [], command)
