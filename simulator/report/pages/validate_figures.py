"""Predicted cells as pictures: run against published, and the error of each cell by paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.evidence.validation import Prediction, Validated
from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg

MARKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREEN), ("v", GREY))
BANDS = ((0.10, "#e4ebf2"), (0.05, "#cfdbe8"))
MOST_PERCENT = 30.0
"""Errors beyond are drawn here, with their number beside."""


def parity(found: Sequence[Validated]) -> str:
    """Run over published of every predicted cell, one panel a paper, bands of 5 % and 10 %; SVG text."""
    shown = [one for one in found if one.predicted]
    with mpl.rc_context(LOOK):
        across = min(3, len(shown)) or 1
        rows = -(-len(shown) // across) or 1
        drawn = Figure(figsize=(WIDTH_IN, 0.5 + 2.4 * rows), layout="constrained")
        axes = drawn.subplots(rows, across, squeeze=False).ravel()
        for one, paper in zip(axes, shown, strict=False):
            _panel(one, paper)
        for one in axes[len(shown) :]:
            one.set_visible(False)
        drawn.supxlabel("published; shaded: within 5 % and 10 %; bars: 90 % interval of the run", size=9)
        drawn.supylabel("simulation", size=9)
        return svg(drawn)


def _panel(axes: Any, paper: Validated) -> None:
    ends = [end for one in paper.predicted for end in (one.published, one.run)]
    span = np.array([min(ends) / 1.15, max(ends) * 1.15])
    for band, shade in BANDS:
        axes.fill_between(span, span * (1 - band), span * (1 + band), color=shade, lw=0)
    axes.plot(span, span, "-", color=GREY, lw=0.8)
    for (unit, some), (mark, colour) in zip(_by_unit(paper.predicted).items(), MARKS, strict=False):
        x, y = [one.published for one in some], [one.run for one in some]
        lows, highs = ([one.interval[end] if one.interval else one.run for one in some] for end in (0, 1))
        axes.vlines(x, lows, highs, color=colour, lw=0.7, alpha=0.5)
        axes.plot(x, y, mark, mfc="none", mec=colour, ms=3.5, label=unit or "cells")
    axes.set(xscale="log", yscale="log", xlim=span, ylim=span, aspect="equal")
    axes.set_title(f"{paper.paper.name}, {len(paper.predicted)} cells", size=8.5)
    ticks = _ticks(*span)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_ticks(ticks)
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(labelsize=7.5)
    axes.legend(loc="upper left", borderaxespad=0.1, handletextpad=0.2)


def _by_unit(found: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    units = dict.fromkeys(one.cell.unit for one in found)
    return {unit: [one for one in found if one.cell.unit == unit] for unit in units}


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two, for a logarithmic axis."""
    steps = (1, 2, 5) if high / low > 4 else (1, 1.5, 2, 3, 4, 5, 7)
    return [step * 10.0**power for power in range(-3, 6) for step in steps if low <= step * 10.0**power <= high]


def residuals(found: Sequence[Validated]) -> str:
    """Signed error of every predicted cell in the papers' order, beside that of the guess; SVG text."""
    every = [one for paper in found for one in paper.predicted]
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(WIDTH_IN, 3.3), layout="constrained")
        axes = drawn.subplots()
        for band, shade in BANDS:
            axes.axhspan(-100 * band, 100 * band, color=shade, lw=0)
        axes.axhline(0.0, color=GREY, lw=0.8)
        guesses = [(place, 100 * one.guess_error) for place, one in enumerate(every) if one.guess_error is not None]
        axes.plot(
            *zip(*_clipped(guesses), strict=True),
            "x",
            color=GREY,
            ms=3,
            mew=0.7,
            label="guess from alike cells (beyond 30 % at the edge)",
        ) if guesses else 0
        first = 0
        for paper, (mark, colour) in zip((one for one in found if one.predicted), MARKS, strict=False):
            points = [(first + place, 100 * one.error) for place, one in enumerate(paper.predicted)]
            axes.plot(*zip(*_clipped(points), strict=True), mark, color=colour, ms=3, label=paper.paper.name)
            _beyond(axes, points, colour)
            first += len(points)
        axes.set_ylim(-MOST_PERCENT - 3, MOST_PERCENT + 3)
        axes.set_xlim(-1, len(every))
        axes.set_xlabel("predicted cells in the papers' order")
        axes.set_ylabel("run over published (%)")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.4)
        return svg(drawn)


def _clipped(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(place, max(-MOST_PERCENT, min(MOST_PERCENT, percent))) for place, percent in points]


def _beyond(axes: Any, points: Sequence[tuple[int, float]], colour: str) -> None:
    for place, percent in points:
        if abs(percent) > MOST_PERCENT:
            low = percent < 0
            at = -MOST_PERCENT if low else MOST_PERCENT
            axes.annotate(
                f"{percent:+.0f}",
                (place, at),
                (0, -9 if low else 4),
                textcoords="offset points",
                size=6.5,
                color=colour,
                ha="center",
            )
