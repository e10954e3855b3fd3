"""The sweep over trees of a pipeline: a table, and in words where its optimum lies and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mode
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, SHADE, VERMILLION, log_x
from simulator.report.numbers import number, share, short_names
from simulator.studies.trees import TreePoint, TreeStudies, TreeStudy

PAPER = 64, 16
"""Width and branching that SpecPipe chose (sec. 4.1)."""
HEAD = ("w", "k", "in tree", "steps", "step ms", "ms per token", "behind", "Eq. (1)", "")
LEGEND = (
    "ms per token: replay of the recorded passages at the mean context, ± standard error over requests; it is the steps of a "
    "token times the mean step. Behind: the difference to the best tree, request by request; a tree ties if that is below two "
    "of its standard errors. Edge: the width fills whole token tiles. Eq. (1): law as printed, with the share of tokens in "
    "the tree."
)
LINES = ((VERMILLION, "v"), (ORANGE, "s"), (GREEN, "D"), (BLUE, "o"), ("#CC79A7", "^"))


def page(result: TreeStudies) -> Page:
    """Return the page of the tree study: its picture, and where the optimum lies and a table of trees per scenario."""
    return Page(
        title="Width and branching of the draft tree",
        opening=[
            Figure("Time of a level, tokens in the tree, time per token", "trees.svg", lambda: tree_figure(result.studies)),
            Paragraph(LEGEND),
        ],
        sections=[_section(study) for study in result.studies],
    )


def _section(study: TreeStudy) -> Section:
    """Return the sentences and the table of a scenario."""
    table = Table(HEAD, list(rows(study)), f"Trees of {study.scenario}")
    return Section(study.scenario, [Bullets(list(sentences(study))), table])


def rows(study: TreeStudy) -> Iterator[tuple[str, ...]]:
    """Yield a row per tree, under ``HEAD``."""
    for point in study.points:
        marks, behind = [], number(point.behind_ms)
        if point is study.best:
            marks, behind = ["best"], ""
        elif point.ties:
            marks = ["ties"]
        if point.tile_edge:
            marks.append("edge")
        counts = str(point.width), str(point.branching), share(point.hit), number(point.steps, 3)
        time = f"{number(point.tpot_ms)} ± {number(point.error_ms, 2)}"
        yield *counts, number(point.mean_step_ms), time, behind, number(point.printed_ms), " ".join(marks)


def sentences(study: TreeStudy) -> Iterator[str]:
    """Yield the optimum with its interval, its tile, what a level hides behind, and how it stands to the paper's tree."""
    best, levels = study.best, study.levels
    ties = [f"{point.width} x {point.branching}" for point in study.points if point.ties and point is not best]
    tied = f"ties with {', '.join(ties)}" if ties else "no other recorded tree ties with it"
    yield f"Best: w = {best.width}, k = {best.branching} with {number(best.tpot_ms)} ms per token; {tied}. {_interval(study)}"
    if levels.tiles:
        ends = "ends" if best.tile_edge else "does not end"
        yield f"w = {best.width} {ends} a token tile (tiles of these devices: {', '.join(map(str, levels.tiles))} rows)."
    yield _hiding(study)
    if text := _against_paper(study):
        yield text
    if text := _branching(study):
        yield text


def _interval(study: TreeStudy) -> str:
    below, above = study.interval
    narrow = f"above {below.width} ({number(below.behind_ms)} ms slower)" if below else "from the narrowest recorded"
    wide = f"below {above.width} ({number(above.behind_ms)} ms slower)" if above else "up to the widest recorded"
    return f"Interval of the optimum: {narrow}, {wide}."


def _hiding(study: TreeStudy) -> str:
    """Return up to how many rows a level hides behind the last stage."""
    levels, widest = study.levels, len(study.levels.body_ms)
    last = f"the last stage, one row and the LM head ({number(levels.last_ms)} ms)"
    if levels.hidden_rows >= widest:
        return f"A full level of up to {widest} rows hides behind {last}: width costs no time."
    if not levels.hidden_rows:
        return f"Any level takes longer than {last}."
    hides = {tile: levels.body_ms[tile - 1] <= levels.last_ms for tile in levels.tiles if tile > levels.hidden_rows}
    beyond = next((tile for tile, hidden in hides.items() if not hidden), widest)
    again = "".join(f" and again at {tile}" for tile, hidden in hides.items() if hidden)
    longer = f"{beyond} rows take {number(levels.body_ms[beyond - 1])} ms"
    return f"A full level hides behind {last} up to {levels.hidden_rows} rows{again}, where width costs no time; {longer}."


def _against_paper(study: TreeStudy) -> str | None:
    best, paper = study.best, study.find(*PAPER)
    if paper is None or best is paper:
        return None
    tree = f"The paper's tree, w = {PAPER[0]} and k = {PAPER[1]}"
    behind = f"{number(paper.behind_ms)} ± {number(paper.behind_error_ms, 2)} ms"
    stands = f"ties with it ({behind} behind)" if paper.ties else f"is slower by {behind}"
    return (
        f"{tree}, {stands}: {number(paper.steps)} steps a token of {number(paper.mean_step_ms)} ms on average, against "
        f"{number(best.steps)} of {number(best.mean_step_ms)} ms. "
        f"It holds {share(paper.hit)} of the tokens, the best tree {share(best.hit)}."
    )


def _branching(study: TreeStudy) -> str | None:
    """Return how the time depends on the branching at the paper's width; None where fewer than two were recorded."""
    points = [point for point in study.points if point.width == PAPER[0]]
    if len(points) < 2:
        return None
    enough = [point.tpot_ms for point in points if point.branching >= 4]
    times = ", ".join(f"{number(point.tpot_ms)} (k = {point.branching})" for point in points)
    return (
        f"Branching at w = {PAPER[0]}, ms per token: {times}. From k = 4 on they are within "
        f"{share(max(enough) / min(enough) - 1)}; k = 2 is {share(points[0].tpot_ms / min(enough) - 1)} behind."
    )


# ---- the picture


def tree_figure(studies: Sequence[TreeStudy]) -> Drawing:
    """Return t(w), P(w, k) and E(T) as rows, a column per scenario, the optimum shaded and the best tree starred."""
    columns, widest = len(studies), max(len(study.levels.body_ms) for study in studies)
    branchings = sorted({point.branching for study in studies for point in study.points})
    looks = {k: LINES[index % len(LINES)] for index, k in enumerate(branchings)}
    names = short_names([study.scenario for study in studies])
    with canvas(7.6, WIDTH_IN * max(1.0, columns / 2.6)) as figure:
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
        legend: dict[str, Any] = {}
        for axes in grid.flat:
            handles, labels = axes.get_legend_handles_labels()
            legend |= dict(zip(labels, handles, strict=True))
        figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=max(2, min(4, columns + 1)))
        return figure


def _scales(grid: Any, widest: int) -> None:
    for axes in grid.flat:
        log_x(axes, 2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.set_xlim(0.9, 1.12 * widest)


def _level(axes: Any, study: TreeStudy) -> None:
    """Draw Figure 9 for a stage: flat within a token tile."""
    levels = study.levels
    widths = np.arange(1, len(levels.body_ms) + 1)
    for tile in levels.tiles:
        axes.axvline(tile, color=ORANGE, lw=0.7, zorder=0, label="end of a token tile" if tile == levels.tiles[0] else None)
    axes.plot(widths, levels.step_ms, color=BLUE, label="step, full levels")
    axes.plot(widths, levels.body_ms, color=GREEN, label="slowest stage before the last")
    axes.plot(widths, np.full(len(widths), levels.last_ms), "--", color=GREY, lw=1.0, label="last stage: one row, LM head")


def _curves(axes: Any, study: TreeStudy, looks: Mapping[int, tuple[str, str]], value: Callable[[TreePoint], float]) -> None:
    """Draw a line per branching over the recorded widths."""
    for branching, (colour, marker) in looks.items():
        places = [(point.width, value(point)) for point in study.points if point.branching == branching]
        if places:
            axes.plot(*zip(*places, strict=True), color=colour, marker=marker, ms=4, lw=1.2, label=f"k = {branching}")


def _mark(axes: Any, study: TreeStudy) -> None:
    """Draw two standard errors of all trees, shade where the optimum lies, and draw Eq. (1)."""
    best, (below, above), (left, right) = study.best, study.interval, axes.get_xlim()
    axes.axvspan(below.width if below else left, above.width if above else right, color=SHADE, lw=0, zorder=0)
    for point in study.points:
        axes.errorbar(point.width, point.tpot_ms, yerr=2 * point.error_ms, color=GREY, capsize=2, lw=0.8, zorder=1)
    axes.plot(best.width, best.tpot_ms, "*", color="black", ms=9, zorder=5, label="best")
    swept = mode(point.branching for point in study.points)
    printed = [(point.width, point.printed_ms) for point in study.points if point.branching == swept]
    axes.plot(*zip(*printed, strict=True), ":", color=GREY, label="Eq. (1), at the k of most widths")
