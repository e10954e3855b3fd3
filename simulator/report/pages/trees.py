"""The sweep over trees of a pipeline: a table, and in words where its optimum lies and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mode
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import panel
from simulator.report.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SHADE,
    VERMILLION,
    logarithmic,
)
from simulator.report.wording import Wording, short_names
from simulator.studies.trees import TreePoint, TreeStudies, TreeStudy

say = Wording("trees")
PAPER = 64, 16
"""Width and branching that SpecPipe chose (sec. 4.1)."""
LINES = ((VERMILLION, "v"), (ORANGE, "s"), (GREEN, "D"), (BLUE, "o"), (PURPLE, "^"))


def page(result: TreeStudies) -> Page:
    """Return the page of the tree study: its picture, and where the optimum lies and a table of
    trees per scenario.
    """
    picture = Figure(say("picture"), "trees.svg", lambda: tree_figure(result.studies))
    return Page(
        **say.first_screen(studies=result.studies),
        opening=[picture, Paragraph(say("legend"))],
        sections=[_section(study) for study in result.studies],
    )


def _section(study: TreeStudy) -> Section:
    """Return the sentences and the table of a scenario."""
    return Section(
        study.scenario,
        [Bullets(list(sentences(study))), say.table("trees", study.points, study=study)],
    )


def sentences(study: TreeStudy) -> Iterator[str]:
    """Yield the optimum with its interval, its tile, what a level hides behind, and how it stands
    to the paper's tree.
    """
    best, (below, above), (width, branching) = study.best, study.interval, PAPER
    same_width = [point for point in study.points if point.width == width]
    facts = {
        "levels": study.levels,
        "hiding": hiding(study),
        "paper": study.find(*PAPER),
        "w": width,
        "k": branching,
    }
    enough = [point.tpot_ms for point in same_width if point.branching >= 4]
    ties = [point for point in study.points if point.ties and point is not best]
    yield from say.all(
        "sentences",
        best=best,
        below=below,
        above=above,
        ties=ties,
        same_width=same_width,
        enough=enough,
        **facts,
    )


def hiding(study: TreeStudy) -> str:
    """Return up to how many rows a level hides behind the last stage."""
    levels, widest = study.levels, len(study.levels.body_ms)
    hides = {
        tile: levels.body_ms[tile - 1] <= levels.last_ms
        for tile in levels.tiles
        if tile > levels.hidden_rows
    }
    beyond = next((tile for tile, hidden in hides.items() if not hidden), widest)
    again = [tile for tile, hidden in hides.items() if hidden]
    return say("hiding", levels=levels, widest=widest, beyond=beyond, again=again)


def tree_figure(studies: Sequence[TreeStudy]) -> Drawing:
    """Return t(w), P(w, k) and E(T) as rows, a column per scenario, the optimum shaded and the best
    tree starred.
    """
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
        for row, label in zip(grid, say.said["y_labels"], strict=True):
            row[0].set_ylabel(label)
        legend: dict[str, Any] = {}
        for axes in grid.flat:
            handles, labels = axes.get_legend_handles_labels()
            legend |= dict(zip(labels, handles, strict=True))
        figure.legend(
            legend.values(),
            legend.keys(),
            loc="outside lower center",
            ncols=max(2, min(4, columns + 1)),
        )
        return figure


def _scales(grid: Any, widest: int) -> None:
    for axes in grid.flat:
        logarithmic(axes, 2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.set_xlim(0.9, 1.12 * widest)


def _level(axes: Any, study: TreeStudy) -> None:
    """Draw Figure 9 for a stage: flat within a token tile."""
    levels = study.levels
    widths = np.arange(1, len(levels.body_ms) + 1)
    for tile in levels.tiles:
        axes.axvline(
            tile,
            color=ORANGE,
            lw=0.7,
            zorder=0,
            label="end of a token tile" if tile == levels.tiles[0] else None,
        )
    panel(
        axes,
        say,
        "level_panel",
        list(zip(widths, levels.step_ms, levels.body_ms, strict=True)),
        last_ms=levels.last_ms,
    )


def _curves(
    axes: Any,
    study: TreeStudy,
    looks: Mapping[int, tuple[str, str]],
    value: Callable[[TreePoint], float],
) -> None:
    """Draw a line per branching over the recorded widths."""
    for branching, (colour, marker) in looks.items():
        places = [
            (point.width, value(point)) for point in study.points if point.branching == branching
        ]
        if places:
            axes.plot(
                *zip(*places, strict=True),
                color=colour,
                marker=marker,
                ms=4,
                lw=1.2,
                label=f"k = {branching}",
            )


def _mark(axes: Any, study: TreeStudy) -> None:
    """Draw two standard errors of all trees, shade where the optimum lies, and draw Eq. (1)."""
    best, (below, above), (left, right) = study.best, study.interval, axes.get_xlim()
    axes.axvspan(
        below.width if below else left, above.width if above else right, color=SHADE, lw=0, zorder=0
    )
    for point in study.points:
        axes.errorbar(
            point.width,
            point.tpot_ms,
            yerr=2 * point.error_ms,
            color=GREY,
            capsize=2,
            lw=0.8,
            zorder=1,
        )
    axes.plot(best.width, best.tpot_ms, "*", color="black", ms=9, zorder=5, label="best")
    swept = mode(point.branching for point in study.points)
    printed = [
        (point.width, point.printed_ms) for point in study.points if point.branching == swept
    ]
    axes.plot(
        *zip(*printed, strict=True), ":", color=GREY, label="Eq. (1), at the k of most widths"
    )
