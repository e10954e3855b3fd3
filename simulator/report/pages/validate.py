"""What validation found as a page: how far off it is, cell by cell, the laws, and what is wrong in the papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.evidence.law_check import LawGap
from simulator.evidence.published import Contradiction, PaperFigure
from simulator.evidence.validation import Errors, Prediction, Shortfall, Validated, summaries
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
from simulator.report.pages import validate_figures as validation_figures
from simulator.report.pages.validate_words import CELLS, FAR, HEAD, LEGEND, laws_headline, line, noise_floor, percent, signed
from simulator.report.run_summary import number
from simulator.scenario.uncertainty import SHARE

PARITY, RESIDUALS = "parity.svg", "residuals.svg"
PREDICTED_HEAD = ("cell", "what", "published", "run", f"{SHARE:.0%} interval", "error", "guess", "note")
PLAIN_HEAD = ("cell", "what", "published", "run", "error", "note")


def validation_page(
    found: Sequence[Validated],
    gaps: Sequence[LawGap],
    missed: Sequence[Shortfall],
    figures: Sequence[PaperFigure],
    slips: Sequence[Contradiction],
    command: str,
) -> Page:
    """All of it; :data:`~simulator.report.pages.validate_words.CELLS` stands beside it."""
    pooled = summaries(found)[-1].errors
    drawn = [
        Figure("Run against published, by paper", PARITY, validation_figures.parity(found)),
        Figure("Error of every predicted cell", RESIDUALS, validation_figures.residuals(found)),
    ]
    return Page(
        title="How far off the simulator is",
        about="",
        answer=_headline(pooled),
        opening=[*_answer(found, missed), *drawn],
        sections=sections(
            *((one.paper.name, _paper(one)) for one in found),
            ("Laws against simulation", _laws(gaps)),
            ("Figures of the papers", _figures(figures)),
            ("What is wrong in the papers", _slips(slips)),
        ),
        command=command,
        highlights=_highlights(pooled),
    )


def _headline(pooled: Errors | None) -> str:
    if pooled is None:
        return ""
    return (
        f"{pooled.count} published values predicted from runs: {percent(pooled.mape)} off on average, half of them by less "
        f"than {percent(pooled.median)}, {100 * pooled.within_10:.0f} % within 10 %."
    )


def _highlights(pooled: Errors | None) -> list[Highlight]:
    if pooled is None:
        return []
    return [
        Highlight(percent(pooled.mape), f"mean absolute error of {pooled.count} predicted values"),
        Highlight(percent(pooled.median), "median"),
        Highlight(f"{100 * pooled.within_10:.0f} %", "of them within 10 %"),
        Highlight(signed(pooled.bias), "bias"),
    ]


def _answer(found: Sequence[Validated], missed: Sequence[Shortfall]) -> Iterator[Block]:
    yield Paragraph(
        (
            "Roles of the published values were frozen before anything was fitted; free parameters are fitted to calibrated "
            "cells alone. Every number comes out of a run of its scenario. Every cell: ",
            Hyperlink(CELLS, CELLS),
            ".",
        )
    )
    yield Table(HEAD, [line(one) for one in summaries(found)], "Errors by paper")
    yield Paragraph(f"{LEGEND}. {noise_floor()} The intervals leave out links, host times that are not fitted, and acceptance.")
    yield Paragraph("What was aimed at:")
    yield Bullets([f"missed: {one}" for one in missed] or ["every bound is met"])


def _paper(one: Validated) -> Iterator[Block]:
    if one.predicted:
        name = f"Predicted cells of {one.paper.name}"
        yield Table(PREDICTED_HEAD, list(map(_predicted, one.predicted)), name, sortable=True)
    others = {"Must come out": one.checked, "Reported, not pooled": one.reported, "Fitted to": one.calibrated}
    for title, some in others.items():
        if some:
            spread = Errors.of([cell.error for cell in some])
            yield Paragraph(f"{title}: {spread.count} cells, MAPE {percent(spread.mape)}, most {percent(spread.most)}.")
    for title in ("Must come out", "Reported, not pooled"):
        if others[title]:
            yield Paragraph(f"{title}:")
            name = f"{title}: cells of {one.paper.name}"
            yield Table(PLAIN_HEAD, list(map(_plain, others[title])), name, sortable=True)
    if one.unmapped:
        yield Paragraph(f"Without a run ({len(one.unmapped)}):")
        yield Table(("role", "cells", "why"), list(_unmapped(one)), f"Cells of {one.paper.name} without a run")


def _what(one: Prediction) -> str:
    cell = one.cell
    words = [cell.method, cell.model, cell.task, "" if cell.temperature is None else f"T {cell.temperature:g}"]
    words += ["" if cell.batch_size in (None, 1) else f"batch {cell.batch_size}", cell.qualifier]
    return f"{', '.join(word for word in words if word)}: {cell.quantity.replace('_', ' ')}"


def _predicted(one: Prediction) -> tuple[Words, ...]:
    span = f"{number(one.interval.low, 3)} to {number(one.interval.high, 3)}" if one.interval else ""
    error = Strong(signed(one.error)) if abs(one.error) > FAR else signed(one.error)
    values = (f"{one.cell.published} {one.cell.unit}", number(one.run, 3), span, error, signed(one.guess_error))
    return one.cell.cell, _what(one), *values, one.note


def _plain(one: Prediction) -> tuple[str, ...]:
    published = f"{one.cell.published} {one.cell.unit}"
    return one.cell.cell, _what(one), published, number(one.run, 3), signed(one.error), one.note


def _unmapped(one: Validated) -> Iterator[tuple[str, ...]]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in one.unmapped:
        reasons.setdefault((cell.role, one.paper.note(cell) or cell.reason or "not mapped yet"), []).append(cell.cell)
    for (role, why), names in reasons.items():
        tables: dict[str, list[str]] = {}
        for name in names:
            tables.setdefault(name.rpartition(":")[0], []).append(name.rpartition(":")[2])
        yield role, "; ".join(f"{name}: {', '.join(numbers)}" for name, numbers in tables.items()), why


def _laws(gaps: Sequence[LawGap]) -> Iterator[Block]:
    yield Paragraph(f"{laws_headline(gaps)}.")
    yield Paragraph(
        "Step: with the acceptance and the kinds of steps that the run met, at its mean context. Token: with marginal rates, "
        "prompts left out. The worked examples of every equation are tests."
    )
    head = (
        "scenario",
        "step, simulated (ms)",
        "step, law (ms)",
        "",
        "token, simulated (ms)",
        "token, law (ms)",
        "",
        "the law is",
    )
    rows = [
        (
            gap.scenario,
            number(gap.simulated_step_ms),
            number(gap.law_step_ms),
            f"{100 * gap.step_gap:+.3f} %",
            number(gap.simulated_tpot_ms),
            number(gap.law_tpot_ms),
            signed(gap.tpot_gap),
            gap.shown if gap.disagreement else gap.relation,
        )
        for gap in gaps
    ]
    yield Table(head, rows, "Laws against simulation", sortable=True)


def _figures(figures: Sequence[PaperFigure]) -> Iterator[Block]:
    shown = sum(one.reproduced for one in figures)
    yield Paragraph(f"{len(figures)} entries; {shown} come out in shape, the others say why not.")
    rows = [
        (
            one.paper,
            one.figure,
            one.shows,
            Code(one.command) if one.command else "not reproduced",
            Hyperlink(one.picture, f"../{one.picture}") if one.picture else "",
            one.remark,
        )
        for one in figures
    ]
    yield Table(("paper", "figure", "shows", "command", "picture", "remark"), rows, "Figures of the papers", sortable=True)


def _slips(slips: Sequence[Contradiction]) -> Iterator[Block]:
    weighty = sum(one.weight in ("medium", "large") for one in slips)
    yield Paragraph(
        f"{len(slips)} slips, ambiguities and statements that cannot both hold; {weighty} of them matter to a simulation. "
        "Findings that follow from printed values alone are recomputed from them by tests."
    )
    rows = [(one.id, one.paper, one.where, one.finding, one.treatment, one.weight) for one in slips]
    yield Table(("", "paper", "where", "finding", "treatment", "weight"), rows, "Slips of the papers", sortable=True)
