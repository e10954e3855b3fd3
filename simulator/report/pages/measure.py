"""A live validation as a page: what decoding took on a machine beside what was predicted of it.

From plain data, as ``specsim validate --live --json`` prints it, so that no torch is needed here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from statistics import median
from typing import Any

from simulator.report.blocks import (
    Block,
    Bullets,
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
from simulator.report.pages.measure_figures import predicted_beside_measured
from simulator.report.pages.validate_words import percent, signed
from simulator.report.run_summary import number

ROUNDS, PICTURE = "live.csv", "live.svg"
HEAD = (
    *("strategy", "γ", "measured (ms per token)", "predicted (ms per token)", "error", "spread of rounds", "bound"),
    *("90 % interval (ms)", "rounds in it", "same steps"),
)
COLUMNS = ("strategy", "gamma", "round", "measured_ms", "predicted_ms")


def live_page(found: Mapping[str, Any], machine: str, day: str, command: str) -> Page:
    """All of it. ``found``: as :meth:`Live.data` has it; ``machine``: its kind in words; ``day``: when it ran."""
    points = found["points"]
    errors = [abs(one["error"]) for one in points]
    held = sum(one["held"] for one in points)
    same, requests = (sum(one[name] for one in points) for name in ("identical", "requests"))
    return Page(
        title="Live decoding beside its prediction",
        about=f"{machine}; {day}.",
        answer=(
            f"{held} of {len(points)} settings are predicted within their bounds, half of them within "
            f"{percent(median(errors))}; {percent(found['coverage'])} of the measured rounds lie in their 90 % intervals; "
            f"{same} of {requests} requests took the simulated steps one by one."
        ),
        opening=list(_answer(found)),
        sections=sections(("Every setting", _settings(points)), ("Which window", _windows(found)), ("How", _how(found))),
        command=command,
        highlights=[
            Highlight(f"{held} of {len(points)}", "settings within their bounds"),
            Highlight(percent(median(errors)), "median absolute error of time per token"),
            Highlight(percent(max(errors)), "largest"),
            Highlight(percent(found["coverage"]), "of measured rounds in their 90 % intervals"),
        ],
    )


def _answer(found: Mapping[str, Any]) -> Iterator[Block]:
    far = [one for one in found["points"] if not one["held"]]
    told = (f"{_named(one)}: {signed(one['error'])}, and {percent(one['bound'])} were allowed" for one in far)
    yield Bullets(list(told) or ["Every error is within its bound: 8 or 12 %, or the spread of rounds where that is larger."])
    yield Figure("Time per token of every setting, measured and predicted", PICTURE, predicted_beside_measured(found["points"]))


def _settings(points: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Table(HEAD, [_row(one) for one in points], "Settings", sortable=True)
    yield Paragraph(
        (
            "Times are medians of the rounds; the error is the median over rounds of predicted over measured, less one; the "
            "spread is half of what lies between the slowest round and the fastest. Every round: ",
            Hyperlink(ROUNDS, ROUNDS),
            ".",
        )
    )


def _row(one: Mapping[str, Any]) -> tuple[Words, ...]:
    low, high = one["interval_ms"]
    error = signed(one["error"]) if one["held"] else Strong(signed(one["error"]))
    return (
        *(one["strategy"], str(one["gamma"] or ""), number(median(one["measured_ms"]), 3)),
        *(number(median(one["predicted_ms"]), 3), error, percent(one["spread"]), percent(one["bound"])),
        f"{number(low, 3)} to {number(high, 3)}",
        *(f"{one['covered']} of {len(one['measured_ms'])}", f"{one['identical']} of {one['requests']}"),
    )


def _windows(found: Mapping[str, Any]) -> Iterator[Block]:
    rows = [(strategy, str(measured), str(predicted)) for strategy, (measured, predicted) in found["best_window"].items()]
    yield Table(("strategy", "best γ, measured", "best γ, predicted"), rows, "Best windows")


def _how(found: Mapping[str, Any]) -> Iterator[Block]:
    before, after = found["load"]
    yield Paragraph(
        "The shipped small models decode; passes are timed in blocks between the blocks of decoding, request by request, "
        "since a shared machine drifts. Each round's prediction is a simulation on that round's timed passes and on the "
        "acceptance recorded from the same prompts."
    )
    yield Paragraph(
        f"What one core does alone is told by its {found['clock']} time, two cores by the wall. Programs that wanted a core: "
        f"{before:.1f} before, {after:.1f} after, this one being one or two of them."
    )


def _named(one: Mapping[str, Any]) -> str:
    return f"{one['strategy']} with γ = {one['gamma']}" if one["gamma"] else str(one["strategy"])


def rounds_csv(found: Mapping[str, Any]) -> str:
    """Every round of every setting under ``COLUMNS``."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in found["points"]:
        for place, (measured, predicted) in enumerate(zip(one["measured_ms"], one["predicted_ms"], strict=True), start=1):
            writer.writerow((one["strategy"], one["gamma"], place, f"{measured:.5g}", f"{predicted:.5g}"))
    return text.getvalue()
