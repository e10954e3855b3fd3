"""The pages of ``python -m benchmarks.live``: what live decoding took on a machine, and what was
predicted of it.

That of ``decoding`` is made from plain data, as ``decoding --json`` prints it, so that no torch is
needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

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
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, ORANGE, VERMILLION, legend_above
from simulator.report.wording import number, share, signed_share

if TYPE_CHECKING:
    from benchmarks.live.budget import MeasuredBudgets

ROUNDS, PICTURE = "live.csv", "live.svg"
HEAD = (
    *(
        "strategy",
        "γ",
        "measured (ms per token)",
        "predicted (ms per token)",
        "error",
        "spread of rounds",
        "bound",
    ),
    *("90 % interval (ms)", "rounds in it", "same steps"),
)
NARROW = (0, 1, 2, 3, 4, 6, 8, 9)
"""Columns of ``HEAD`` that a terminal shows."""
BUDGET_HEAD = (
    "γ",
    "tokens/s",
    "slowest",
    "fastest",
    "tokens",
    "iteration",
    "target",
    "draft",
    "beyond both",
)
COLUMNS = ("strategy", "gamma", "round", "measured_ms", "predicted_ms")
"""Columns of the CSV of every round."""
ABOVE, BELOW = -0.14, 0.14
"""Where measured and predicted stand about the row of a setting in the figure, in rows."""


def page(live: Mapping[str, Any], machine: str, day: str, command: str) -> Page:
    """Return the page: how many settings were predicted within their bounds, and every setting.

    ``live``: data of :meth:`~benchmarks.live.validation.Live.data`; ``machine``: in words; ``day``:
    when it ran.
    """
    points = live["points"]
    errors = [abs(point["error"]) for point in points]
    within = sum(point["held"] for point in points)
    same, requests = (sum(point[name] for point in points) for name in ("identical", "requests"))
    return Page(
        title="Live decoding beside its prediction",
        about=f"{machine}; {day}.",
        answer=(
            f"{within} of {len(points)} settings are predicted within their bounds, half of them "
            f"within {share(median(errors))}; {share(live['coverage'])} of the measured rounds "
            f"lie in their 90 % intervals; {same} of {requests} requests took the simulated steps "
            "one by one."
        ),
        opening=list(_answer(live)),
        sections=[
            *sections(
                ("Every setting", _settings(points)),
                ("Which window", _windows(live)),
                ("How", _how(live)),
            ),
            *sections(
                ("Every round", [Paragraph(("As a table: ", Hyperlink(ROUNDS, ROUNDS), "."))]),
                terminal=False,
            ),
        ],
        command=command,
        highlights=[
            Highlight(f"{within} of {len(points)}", "settings within their bounds"),
            Highlight(share(median(errors)), "median absolute error of time per token"),
            Highlight(share(max(errors)), "largest"),
            Highlight(share(live["coverage"]), "of measured rounds in their 90 % intervals"),
        ],
    )


def _answer(live: Mapping[str, Any]) -> Iterator[Block]:
    far = [point for point in live["points"] if not point["held"]]
    sentences = []
    for point in far:
        name = (
            f"{point['strategy']} with γ = {point['gamma']}"
            if point["gamma"]
            else point["strategy"]
        )
        sentences.append(
            f"{name}: {signed_share(point['error'])}, and {share(point['bound'])} were allowed"
        )
    yield Bullets(
        sentences
        or [
            (
                "Every error is within its bound: 8 or 12 %, or the spread of rounds where that is "
                "larger."
            )
        ]
    )
    title = "Time per token of every setting, measured and predicted"
    yield Figure(title, PICTURE, lambda: predicted_beside_measured(live["points"]))


def _settings(points: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Table(
        HEAD, [_row(point) for point in points], "Settings", sortable=True, terminal_columns=NARROW
    )
    yield Paragraph(
        "Times are medians of the rounds; the error is the median over rounds of predicted over "
        "measured, less one; the "
        "spread is half of what lies between the slowest round and the fastest."
    )


def _row(point: Mapping[str, Any]) -> tuple[Words, ...]:
    """Return the cells of a setting under ``HEAD``; an error beyond its bound stands out."""
    low, high = point["interval_ms"]
    error: Words = signed_share(point["error"])
    if not point["held"]:
        error = Strong(signed_share(point["error"]))
    times = number(median(point["measured_ms"]), 3), number(median(point["predicted_ms"]), 3)
    counts = (
        f"{point['covered']} of {len(point['measured_ms'])}",
        f"{point['identical']} of {point['requests']}",
    )
    spreads = (
        share(point["spread"]),
        share(point["bound"]),
        f"{number(low, 3)} to {number(high, 3)}",
    )
    return point["strategy"], str(point["gamma"] or ""), *times, error, *spreads, *counts


def _windows(live: Mapping[str, Any]) -> Iterator[Block]:
    rows = [
        (strategy, str(measured), str(predicted))
        for strategy, (measured, predicted) in live["best_window"].items()
    ]
    yield Table(("strategy", "best γ, measured", "best γ, predicted"), rows, "Best windows")


def _how(live: Mapping[str, Any]) -> Iterator[Block]:
    before, after = live["load"]
    yield Paragraph(
        "The shipped small models decode; passes are timed in blocks between the blocks of "
        "decoding, request by request, since a shared machine drifts. Each round's prediction is "
        "a simulation on that round's timed passes and on the acceptance recorded from the same "
        "prompts."
    )
    yield Paragraph(
        f"What one core does alone is timed by its {live['clock']} time, two cores by the wall. "
        "Programs that wanted a core: "
        f"{before:.1f} before, {after:.1f} after, this one being one or two of them."
    )


def budget_page(study: MeasuredBudgets, command: str) -> Page:
    """Return the page of ``budget``: c of this machine, and live decoding at the budgets around
    it.
    """
    rows = []
    for point in study.budgets:
        speeds = (
            f"{rate:.1f}" for rate in (point.tokens_per_s, point.slowest_per_s, point.fastest_per_s)
        )
        times_ms = (point.iteration_ms, point.target_ms, point.draft_ms, point.overhead_ms)
        times = (f"{milliseconds:.2f}" for milliseconds in times_ms)
        rows.append((str(point.budget), *speeds, f"{point.tokens_per_iteration:.2f}", *times))
    rows.append(("alone", f"{study.autoregressive_per_s:.1f}", *[""] * (len(BUDGET_HEAD) - 2)))
    legend = (
        f"Verified tokens per second, median of {study.rounds} rounds and their spread, "
        f"{study.requests} requests a round; "
        "tokens of an iteration; times in ms. Alone: the target without a draft."
    )
    return Page(
        title="The budget of a draft that runs beside its target, on this machine",
        answer=(
            f"c = T_target / T_draft = {study.target_ms:.2f} ms / {study.draft_ms:.2f} ms = "
            f"{study.cost_coefficient:.2f}, "
            f"gamma = {study.budget}; most tokens per second at gamma = {study.best}."
        ),
        opening=[Table(BUDGET_HEAD, rows, "Budgets"), Paragraph(legend)],
        command=command,
    )


def rounds_csv(live: Mapping[str, Any]) -> str:
    """Return every round of every setting as CSV text under ``COLUMNS``."""
    rows = []
    for point in live["points"]:
        rounds = zip(point["measured_ms"], point["predicted_ms"], strict=True)
        rows += [
            (point["strategy"], point["gamma"], place, *times)
            for place, times in enumerate(rounds, start=1)
        ]
    return str(
        pd.DataFrame(rows, columns=COLUMNS).to_csv(
            index=False, float_format="%.5g", lineterminator="\n"
        )
    )


def predicted_beside_measured(points: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw a row for each setting: measured rounds with their median, the prediction with its
    interval.
    """
    names = [
        f"{point['strategy']} γ = {point['gamma']}" if point["gamma"] else point["strategy"]
        for point in points
    ]
    with canvas(0.9 + 0.26 * len(points)) as drawing:
        axes = drawing.subplots()
        for row, point in enumerate(points):
            first = row == 0
            measured, predicted = point["measured_ms"], median(point["predicted_ms"])
            axes.hlines(
                row + BELOW,
                *point["interval_ms"],
                color=ORANGE,
                lw=4,
                alpha=0.45,
                label="90 % interval" if first else "",
            )
            axes.plot(
                predicted,
                row + BELOW,
                "D",
                mfc="white",
                mec=VERMILLION,
                ms=4.5,
                label="predicted" if first else "",
            )
            axes.plot(
                measured,
                [row + ABOVE] * len(measured),
                "|",
                color=BLUE,
                ms=7,
                label="measured rounds" if first else "",
            )
            axes.plot(
                median(measured),
                row + ABOVE,
                "o",
                color=BLUE,
                ms=4,
                label="their median" if first else "",
            )
        axes.set_yticks(range(len(points)), names)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.set_xlim(left=0.0)
        axes.grid(axis="x", lw=0.4)
        axes.set_xlabel("time per token (ms)")
        legend_above(axes, 4)
        return drawing
