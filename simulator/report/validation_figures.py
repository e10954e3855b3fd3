"""Figures of ``specsim validate``: run against published, and the error of each predicted cell by
paper.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.core.numeric import grouped
from simulator.core.plain import PlainData
from simulator.evidence.validation import Validated
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, VERMILLION, legend_above

MARKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREEN), ("v", GREY))
BANDS = ((0.10, "#e4ebf2"), (0.05, "#cfdbe8"))
MOST_TICKS = 4
"""Numbers that fit along a panel."""
MOST_PERCENT = 30.0
"""Errors beyond this, in per cent, are drawn at the edge with their number."""


def parity(papers: Sequence[Validated]) -> Drawing:
    """Draw run against published of every predicted cell, a panel for each paper, bands of 5 % and
    10 %.
    """
    shown = [paper for paper in papers if paper.predicted]
    across = min(3, len(shown)) or 1
    rows = ceil(len(shown) / across) or 1
    note = "published; shaded: within 5 % and 10 %; bars: 90 % interval of the run"
    with canvas(0.5 + 2.4 * rows) as drawing:
        grid = drawing.subplots(rows, across, squeeze=False)
        panels = grid.ravel()
        for axes, paper in zip(panels, shown, strict=False):
            _panel(axes, paper)
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        drawing.supxlabel(note, size=9)
        drawing.supylabel("simulation", size=9)
        return drawing


def _panel(axes: Axes, paper: Validated) -> None:
    """Draw the cells of a paper on logarithmic axes, a mark for each unit."""
    values = [value for cell in paper.predicted for value in (cell.published, cell.run)]
    span = np.array([min(values) / 1.15, max(values) * 1.15])
    for band, shade in BANDS:
        axes.fill_between(span, span * (1 - band), span * (1 + band), color=shade, lw=0)
    axes.plot(span, span, "-", color=GREY, lw=0.8)
    by_unit = grouped(paper.predicted, lambda cell: cell.cell.unit)
    for (unit, cells), (mark, colour) in zip(by_unit.items(), MARKS, strict=False):
        x = [cell.published for cell in cells]
        y = [cell.run for cell in cells]
        intervals = [cell.interval or (cell.run, cell.run) for cell in cells]
        lows = [low for low, _ in intervals]
        highs = [high for _, high in intervals]
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


def _ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers between two, for a logarithmic axis."""
    steps: tuple[float, ...] = (1, 1.5, 2, 3, 4, 5, 7)
    if high / low > 4:
        steps = (1, 2, 5)
    shown = []
    for power in range(-3, 6):
        ticks = [step * 10.0**power for step in steps]
        shown += [tick for tick in ticks if low <= tick <= high]
    every = ceil(len(shown) / MOST_TICKS)
    return shown[::every]


def residuals(papers: Sequence[Validated]) -> Drawing:
    """Draw the signed error of every predicted cell in the papers' order, and that of the
    baseline.
    """
    shown = [paper for paper in papers if paper.predicted]
    cells = [cell for paper in shown for cell in paper.predicted]
    with canvas(3.3) as drawing:
        axes = drawing.subplots()
        for band, shade in BANDS:
            axes.axhspan(-100 * band, 100 * band, color=shade, lw=0)
        axes.axhline(0.0, color=GREY, lw=0.8)
        places = []
        baseline = []
        for place, cell in enumerate(cells):
            if cell.baseline_error is not None:
                places.append(place)
                baseline.append(_clipped(100 * cell.baseline_error))
        if baseline:
            label = "baseline by arithmetic (beyond 30 % at the edge)"
            axes.plot(places, baseline, "x", color=GREY, ms=3, mew=0.7, label=label)
        first = 0
        for paper, (mark, colour) in zip(shown, MARKS, strict=False):
            own_places = range(first, first + len(paper.predicted))
            percents = [100 * cell.error for cell in paper.predicted]
            clipped = list(map(_clipped, percents))
            axes.plot(own_places, clipped, mark, color=colour, ms=3, label=paper.paper.name)
            _annotate_beyond(axes, own_places, percents, colour)
            first += len(percents)
        axes.set_ylim(-MOST_PERCENT - 3, MOST_PERCENT + 3)
        axes.set_xlim(-1, len(cells))
        axes.set_xlabel("predicted cells in the papers' order")
        axes.set_ylabel("run over published (%)")
        legend_above(axes, 2)
        return drawing


def _clipped(percent: float) -> float:
    return max(-MOST_PERCENT, min(MOST_PERCENT, percent))


def _annotate_beyond(
    axes: Axes, places: Sequence[int], percents: Sequence[float], colour: str
) -> None:
    """Write the number of every error that lies beyond the edge of the figure."""
    look: PlainData = {"textcoords": "offset points", "size": 6.5, "color": colour, "ha": "center"}
    for place, percent in zip(places, percents, strict=True):
        if abs(percent) <= MOST_PERCENT:
            continue
        offset = 4
        if percent < 0:
            offset = -9
        axes.annotate(f"{percent:+.0f}", (place, _clipped(percent)), (0, offset), **look)
