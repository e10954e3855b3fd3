"""What validation found: on a terminal, as data, and cell by cell as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich.console import Console
from rich.text import Text

from simulator.evidence.law_check import ExampleVerdict, LawGap
from simulator.evidence.validation import NOISE_FLOOR, Prediction, Shortfall, Summary, Validated, summaries
from simulator.report.console import WIDEST, item, new_table
from simulator.report.run_summary import number
from simulator.scenario.uncertainty import SHARE

CELLS = "cells.csv"
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


def law_sentence(verdict: ExampleVerdict) -> str:
    """Return what became of the law of a strategy on its example."""
    worst = verdict.worst
    if not verdict.compared:
        return f"{verdict.strategy}: DISAGREEMENT: its example leaves nothing of the law that could be held"
    if not verdict.broken or worst is None:
        largest = f"; the largest gap is {abs(worst.gap):.1e}" if worst else ""
        return f"{verdict.strategy}: the law keeps its claim in {verdict.compared} numbers{largest}"
    law, process = (f"{value * 1e3:.6g} ms" if "step" in worst.way else f"{value:.6g} tokens" for value in worst[-2:])
    return (
        f"{verdict.strategy}: DISAGREEMENT in {verdict.broken} of {verdict.compared} numbers: the law claims to be "
        f"{worst.claim}; worst is {worst.way} ({worst.condition}): {law} by law, {process} by the process ({signed(worst.gap)})"
    )


def print_laws(verdicts: Sequence[ExampleVerdict], console: Console) -> None:
    """Print a table of strategies and their examples, and a sentence about every law that disagrees."""
    width = min(console.width, WIDEST)
    table = new_table("strategy", "compared", "broken", "largest gap", "the law is")
    for verdict in verdicts:
        gap = f"{abs(verdict.worst.gap):.1e}" if verdict.worst else ""
        outcome = "in DISAGREEMENT" if verdict.disagreement else "as claimed"
        table.add_row(verdict.strategy, str(verdict.compared), str(verdict.broken), gap, outcome)
    console.print(table, width=width)
    for verdict in verdicts:
        if verdict.disagreement:
            item(console, law_sentence(verdict), width)


def law_data(verdicts: Sequence[ExampleVerdict]) -> list[dict[str, Any]]:
    """Return what became of each strategy's example as plain data."""
    return [
        {
            "strategy": verdict.strategy,
            "claims": list(verdict.claims),
            "compared": verdict.compared,
            "broken": verdict.broken,
            "gap": verdict.worst.gap if verdict.worst else None,
            "disagreement": verdict.disagreement,
            "words": law_sentence(verdict),
        }
        for verdict in verdicts
    ]


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
