"""Figure of the sweep over trees as SVG text: time of a level, share of hits, time per token; a column for each scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mode
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, SHADE, VERMILLION, WIDTH_IN, svg
from simulator.report.run_summary import short_names
from simulator.studies.trees import TreePoint, TreeStudy

LINES = ((VERMILLION, "v"), (ORANGE, "s"), (GREEN, "D"), (BLUE, "o"), ("#CC79A7", "^"))


def tree_figure(studies: Sequence[TreeStudy]) -> str:
    """Rows: t(w), P(w, k), E(T); the interval of the optimum shaded, the best tree starred."""
    columns, widest = len(studies), max(len(study.levels.body_ms) for study in studies)
    branchings = sorted({point.branching for study in studies for point in study.points})
    looks = {k: LINES[index % len(LINES)] for index, k in enumerate(branchings)}
    names = short_names([study.scenario for study in studies])
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN * max(1.0, columns / 2.6), 7.6), layout="constrained")
        grid = figure.subplots(3, columns, sharex=True, sharey="row", squeeze=False)
        _scales(grid, widest)
        for name, study, (level, hits, time) in zip(names, studies, grid.T, strict=True):
            level.set_title(name, size=9)
            _level(level, study)
            _curves(hits, study, looks, lambda point: point.hit * 100)
            _curves(time, study, looks, lambda point: point.tpot_ms)
            _mark(time, study)
            time.set_xlabel("width w")
        for row, label in zip(grid, ("t(w), law (ms)", "tokens in the tree (%)", "E(T), replay (ms)"), strict=True):
            row[0].set_ylabel(label)
        shown = {text: one for axes in grid.flat for one, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=max(2, min(4, columns + 1)))
        return svg(figure)


def _scales(grid: Any, widest: int) -> None:
    for axes in grid.flat:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.set_xlim(0.9, 1.12 * widest)


def _level(axes: Any, study: TreeStudy) -> None:
    """Figure 9 for a stage: flat within a token tile."""
    levels = study.levels
    rows = np.arange(1, len(levels.body_ms) + 1)
    for tile in levels.tiles:
        axes.axvline(tile, color=ORANGE, lw=0.7, zorder=0, label="end of a token tile" if tile == levels.tiles[0] else None)
    axes.plot(rows, levels.step_ms, color=BLUE, label="step, full levels")
    axes.plot(rows, levels.body_ms, color=GREEN, label="slowest stage before the last")
    axes.plot(rows, np.full(len(rows), levels.last_ms), "--", color=GREY, lw=1.0, label="last stage: one row, LM head")


def _curves(axes: Any, study: TreeStudy, looks: Mapping[int, tuple[str, str]], value: Callable[[TreePoint], float]) -> None:
    """One line for each branching, over the recorded widths."""
    for branching, (colour, marker) in looks.items():
        held = [(point.width, value(point)) for point in study.points if point.branching == branching]
        if held:
            axes.plot(*zip(*held, strict=True), color=colour, marker=marker, ms=4, lw=1.2, label=f"k = {branching}")


def _mark(axes: Any, study: TreeStudy) -> None:
    """Two standard errors of each tree, where the optimum lies, and Eq. (1) beside it."""
    best, (below, above), (left, right) = study.best, study.interval, axes.get_xlim()
    axes.axvspan(below.width if below else left, above.width if above else right, color=SHADE, lw=0, zorder=0)
    for point in study.points:
        axes.errorbar(point.width, point.tpot_ms, yerr=2 * point.error_ms, color=GREY, capsize=2, lw=0.8, zorder=1)
    axes.plot(best.width, best.tpot_ms, "*", color="black", ms=9, zorder=5, label="best")
    swept = mode(point.branching for point in study.points)
    printed = [(one.width, one.printed_ms) for one in study.points if one.branching == swept]
    axes.plot(*zip(*printed, strict=True), ":", color=GREY, label="Eq. (1), at the k of most widths")
