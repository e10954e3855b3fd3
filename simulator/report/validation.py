"""What validation found: on a terminal, as data, as one page with the cells beside it in a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich.console import Console
from rich.text import Text

from simulator.law_check import LawGap
from simulator.published import Contradiction, PaperFigure
from simulator.report.console import WIDEST, item, new_table
from simulator.report.facts import number
from simulator.report.markdown import table
from simulator.uncertainty import SHARE
from simulator.validation import NOISE_FLOOR, Errors, Prediction, Shortfall, Summary, Validated, summaries

PAGE, CELLS, PARITY, RESIDUALS = "validation.md", "cells.csv", "parity.svg", "residuals.svg"
HEAD = ("paper", "cells", "free", "MAPE", "median", "most", "bias", "≤ 5 %", "≤ 10 %", "guess", "covered")
LEGEND = (
    "cells: predicted ones with a run, of those there are; free: parameters fitted to other cells of the paper; MAPE, median "
    "and most of the absolute error, bias of the signed one; guess: MAPE of the geometric mean of the calibrated cells most "
    f"like it, no simulator needed; covered: published values within the {SHARE:.0%} interval of the run"
)
NARROW = (0, 1, 2, 3, 4, 8, 9, 10)
"""Those for a terminal, in per cent; the worst cells are told below."""
COLUMNS = (
    *(
        "paper",
        "role",
        "cell",
        "source",
        "model",
        "task",
        "method",
        "hardware",
        "temperature",
        "batch_size",
        "quantity",
        "unit",
    ),
    *("published", "run", "error_percent", "low", "high", "guess", "guess_error_percent", "note"),
)
FAR = 0.10
"""An error that needs a word."""


def percent(share: float | None) -> str:
    """A share, signed where it may be negative."""
    return "" if share is None else f"{100 * share:.1f} %"


def signed(share: float | None) -> str:
    """A signed share."""
    return "" if share is None else f"{100 * share:+.1f} %"


def line(one: Summary) -> tuple[str, ...]:
    """Under ``HEAD``."""
    cells = f"{one.errors.count if one.errors else 0} of {one.asked}"
    if one.errors is None:
        return one.name, cells, str(one.free), *[""] * 8
    told = one.errors
    shares = (told.mape, told.median, told.most)
    within = (told.within_5, told.within_10)
    guess = percent(one.guess.mape) if one.guess else ""
    return (
        *(
            one.name,
            cells,
            str(one.free),
            *map(percent, shares),
            signed(told.bias),
            *(f"{100 * share:.0f} %" for share in within),
        ),
        *(guess, f"{100 * one.covered:.0f} %"),
    )


def noise_floor() -> str:
    """What re-measuring alone does, in words."""
    spans = (
        f"{name}: {' to '.join(dict.fromkeys(f'{100 * end:.3g}' for end in ends))} %" for name, ends in NOISE_FLOOR.items()
    )
    return f"Noise floor of the field, the same methods measured again: {'; '.join(spans)}."


def print_validation(found: Sequence[Validated], gaps: Sequence[LawGap], missed: Sequence[Shortfall], console: Console) -> None:
    """Laws, papers, cells that are far off, bounds."""
    width = min(console.width, WIDEST)
    console.print(Text(laws_headline(gaps), style="bold"), width=width)
    shown = new_table(*(HEAD[column].replace(" %", "") for column in NARROW))
    for one in summaries(found):
        told = line(one)
        shown.add_row(*(told[column].removesuffix(" %").replace(" of ", "/") for column in NARROW))
    console.print(shown, width=width)
    far = [one for paper in found for one in paper.predicted if abs(one.error) > FAR]
    for cell in far:
        item(console, f"{cell.paper} {cell.cell.cell}: {_told(cell)}", width)
    for sentence in (noise_floor(), LEGEND, *(f"missed: {one}" for one in missed)):
        item(console, sentence, width)


def _told(one: Prediction) -> str:
    words = f"{number(one.run)} for {number(one.published)} {one.cell.unit} ({signed(one.error)})"
    return f"{words}: {one.note}" if one.note else words


def laws_headline(gaps: Sequence[LawGap]) -> str:
    """The largest gap of the laws that call themselves exact, at one request and at several."""
    exact = sorted((one for one in gaps if one.relation == "exact"), key=lambda one: abs(one.step_gap))
    if not exact:
        return "No law was asked."
    worst, middle = exact[-1], exact[len(exact) // 2]
    return (
        f"Law against simulation, {len(gaps)} shipped scenarios: a step by law is within {abs(middle.step_gap):.1e} of the "
        f"simulated one in half of them; furthest off is {worst.scenario} ({signed(worst.step_gap)})"
    )


def as_data(found: Sequence[Validated], gaps: Sequence[LawGap], missed: Sequence[Shortfall]) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "laws": [one._asdict() | {"step_gap": one.step_gap, "tpot_gap": one.tpot_gap} for one in gaps],
        "papers": [asdict(one) for one in summaries(found)],
        "cells": [dict(zip(COLUMNS, row, strict=True)) for row in cell_rows(found)],
        "unmapped": [{"paper": one.paper.name, "cell": cell.cell, "role": cell.role} for one in found for cell in one.unmapped],
        "missed": [one._asdict() for one in missed],
    }


def cell_rows(found: Sequence[Validated]) -> Iterator[tuple[str, ...]]:
    """Every cell that was run, under ``COLUMNS``."""
    for paper in found:
        for one in (*paper.predicted, *paper.checked, *paper.reported, *paper.calibrated):
            cell = one.cell
            named = (cell.role, cell.cell, cell.source, cell.model, cell.task, cell.method, cell.hardware)
            conditions = ("" if held is None else f"{held:g}" for held in (cell.temperature, cell.batch_size))
            span = one.interval or (None, None)
            figures = (one.run, 100 * one.error, *span, one.likeness, one.guess_error and 100 * one.guess_error)
            shown = ("" if held is None else f"{held:.5g}" for held in figures)
            yield paper.paper.name, *named, *conditions, cell.quantity, cell.unit, cell.published, *shown, one.note


def cells_csv(found: Sequence[Validated]) -> str:
    """Those rows as CSV."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(cell_rows(found))
    return text.getvalue()


def page(
    found: Sequence[Validated],
    gaps: Sequence[LawGap],
    missed: Sequence[Shortfall],
    figures: Sequence[PaperFigure],
    slips: Sequence[Contradiction],
    command: str,
) -> str:
    """The page; pictures and :data:`CELLS` stand beside it."""
    blocks = ["# How far off the simulator is", *_answer(found, missed)]
    blocks += [f"![Run against published, by paper]({PARITY})", f"![Error of every predicted cell]({RESIDUALS})"]
    for one in found:
        blocks += [f"## {one.paper.name}", *_paper(one)]
    blocks += ["## Laws against simulation", *_laws(gaps)]
    blocks += ["## Figures of the papers", *_figures(figures)]
    blocks += ["## What is wrong in the papers", *_slips(slips)]
    return "\n\n".join([*blocks, "## Made by", f"```\n{command}\n```"]) + "\n"


def _answer(found: Sequence[Validated], missed: Sequence[Shortfall]) -> Iterator[str]:
    rows = summaries(found)
    pooled = rows[-1]
    if pooled.errors:
        told = pooled.errors
        yield (
            f"**{told.count} published values predicted from runs: {percent(told.mape)} off on average, half of them by less "
            f"than {percent(told.median)}, {100 * told.within_10:.0f} % within 10 %.**"
        )
    yield (
        "Roles of the published values were frozen before anything was fitted; free parameters are fitted to calibrated cells "
        f"alone. Every number comes out of a run of its scenario. Every cell: [{CELLS}]({CELLS})."
    )
    yield table(HEAD, map(line, rows))
    yield f"{LEGEND}. {noise_floor()} The intervals leave out links, host times that are not fitted, and acceptance."
    yield "What was aimed at:"
    yield "\n".join(f"- missed: {one}" for one in missed) or "- every bound is met"


def _paper(one: Validated) -> Iterator[str]:
    head = ("cell", "what", "published", "run", f"{SHARE:.0%} interval", "error", "guess", "note")
    if one.predicted:
        yield table(head, map(_predicted, one.predicted))
    others = {"Must come out": one.checked, "Reported, not pooled": one.reported, "Fitted to": one.calibrated}
    for title, some in others.items():
        if some:
            spread = Errors.of([cell.error for cell in some])
            yield f"{title}: {spread.count} cells, MAPE {percent(spread.mape)}, most {percent(spread.most)}."
    for title in ("Must come out", "Reported, not pooled"):
        if others[title]:
            yield f"{title}:"
            yield table(("cell", "what", "published", "run", "error", "note"), map(_plain, others[title]))
    if one.unmapped:
        yield f"Without a run ({len(one.unmapped)}):"
        yield table(("role", "cells", "why"), _unmapped(one))


def _what(one: Prediction) -> str:
    cell = one.cell
    words = [cell.method, cell.model, cell.task, "" if cell.temperature is None else f"T {cell.temperature:g}"]
    words += ["" if cell.batch_size in (None, 1) else f"batch {cell.batch_size}", cell.qualifier]
    return f"{', '.join(word for word in words if word)}: {cell.quantity.replace('_', ' ')}"


def _predicted(one: Prediction) -> tuple[str, ...]:
    span = f"{number(one.interval.low, 3)} to {number(one.interval.high, 3)}" if one.interval else ""
    error = f"**{signed(one.error)}**" if abs(one.error) > FAR else signed(one.error)
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


def _laws(gaps: Sequence[LawGap]) -> Iterator[str]:
    yield f"{laws_headline(gaps)}."
    yield (
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
    rows = (
        (
            *(one.scenario, number(one.simulated_step_ms), number(one.law_step_ms), f"{100 * one.step_gap:+.3f} %"),
            *(number(one.simulated_tpot_ms), number(one.law_tpot_ms), signed(one.tpot_gap), one.relation),
        )
        for one in gaps
    )
    yield table(head, rows)


def _figures(figures: Sequence[PaperFigure]) -> Iterator[str]:
    shown = sum(one.reproduced for one in figures)
    yield f"{len(figures)} entries; {shown} come out in shape, the others say why not."
    rows = (
        (
            one.paper,
            one.figure,
            one.shows,
            f"`{one.command}`" if one.command else "not reproduced",
            f"[{one.picture}](../{one.picture})" if one.picture else "",
            one.remark,
        )
        for one in figures
    )
    yield table(("paper", "figure", "shows", "command", "picture", "remark"), rows)


def _slips(slips: Sequence[Contradiction]) -> Iterator[str]:
    weighty = sum(one.weight in ("medium", "large") for one in slips)
    yield (
        f"{len(slips)} slips, ambiguities and statements that cannot both hold; {weighty} of them matter to a simulation. "
        "Findings that follow from printed values alone are recomputed from them by tests."
    )
    rows = ((one.id, one.paper, one.where, one.finding, one.treatment, one.weight) for one in slips)
    yield table(("", "paper", "where", "finding", "treatment", "weight"), rows)
