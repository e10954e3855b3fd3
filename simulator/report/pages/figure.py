"""A figure of a paper drawn anew: our curves or bars filled, the points that the paper prints as
hollow marks.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.core.plain import PlainData
from simulator.evidence.drawn import Found, Place
from simulator.evidence.published import PaperFigure
from simulator.report.blocks import Page, Paragraph
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLACK, Look, logarithmic, look

Points = Mapping[str, Sequence[tuple[Place, float]]]
"""Points by the label of their series."""
GROUP = 0.8
"""Share of a place that a group of bars fills."""


def picture(asked: Found, ours: Points) -> Drawing:
    """Draw our points of a figure and the published ones."""
    described = asked.picture
    with canvas(3.9) as drawing:
        axes = drawing.subplots()
        names = _names(asked, ours)
        for label, points in ours.items():
            _ours(axes, asked, label, points, names)
        for printed in described.published:
            colour, mark, _ = _look(asked, printed.label)
            xs: Sequence[Any] = [x for x, _ in printed.points]
            ys = [y for _, y in printed.points]
            if names:
                xs, _ = _bars(asked, printed.label, xs, names)
                colour = BLACK
            published = f"{printed.label}, published"
            axes.plot(xs, ys, mark, mfc="white", mec=colour, ms=7, label=published)
        _dress(axes, asked, names)
        handles, labels = axes.get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=2)
        return drawing


def _names(asked: Found, ours: Points) -> list[Place]:
    """Return the places that groups of bars stand at; none for a figure without bars."""
    if asked.picture.kind != "bars":
        return []
    published = (printed.points for printed in asked.picture.published)
    return list(dict.fromkeys(x for x, _ in chain(*ours.values(), *published)))


def _ours(
    axes: Axes,
    asked: Found,
    label: str,
    points: Sequence[tuple[Place, float]],
    names: Sequence[Place],
) -> None:
    """Draw a series of ours as bars, as marks or as a line."""
    colour, mark, dashes = _look(asked, label)
    xs: Sequence[Any] = [x for x, _ in points]
    ys = [y for _, y in points]
    if names:
        places, width = _bars(asked, label, xs, names)
        axes.bar(places, ys, width=width, color=colour, alpha=0.75, label=label)
        return
    line = f"{mark}{dashes}"
    if asked.picture.kind == "points":
        line = mark
    axes.plot(xs, ys, line, color=colour, ms=4, label=label)


def _look(asked: Found, label: str) -> Look:
    """Return the look of a label, which a series and its published points share."""
    labels = [series.label for series in asked.picture.series]
    labels += [printed.label for printed in asked.picture.published]
    labels = list(dict.fromkeys(labels))
    return look(labels.index(label))


def _bars(
    asked: Found, label: str, xs: Sequence[Place], names: Sequence[Place]
) -> tuple[list[float], float]:
    """Return where the bars of a series stand and how wide they are; the middle of its group for
    any other label.
    """
    labels = [series.label for series in asked.picture.series]
    width = GROUP / len(labels)
    shift = 0.0
    if label in labels:
        middle = (len(labels) - 1) / 2
        shift = (labels.index(label) - middle) * width
    return [names.index(x) + shift for x in xs], width


def _dress(axes: Axes, asked: Found, names: Sequence[Place]) -> None:
    """Give the axes their title, names, scales and room."""
    described = asked.picture
    title = f"{asked.paper}, Figure {asked.number}: {described.figure}"
    axes.set_title(title, size=9, loc="left", wrap=True)
    axes.set_xlabel(described.x)
    axes.set_ylabel(described.y)
    if names:
        lines = [str(name).replace(" ", "\n") for name in names]
        axes.set_xticks(range(len(names)), lines, size=8)
    if "x" in described.log:
        logarithmic(axes, 2)
    if "y" in described.log:
        axes.set_yscale("log")
        return
    low, high = axes.get_ylim()
    axes.set_ylim(min(0.0, low), high + 0.03 * (high - low))


def as_data(asked: Found, ours: Points) -> PlainData:
    """Return the points of a figure as the object that ``--json`` prints."""
    described = asked.picture
    published = {}
    for printed in described.published:
        points = [list(point) for point in printed.points]
        published[printed.label] = {"points": points, "source": printed.source}
    return {
        "paper": asked.paper,
        "number": asked.number,
        **described.model_dump(include={"figure", "source", "x", "y"}),
        "ours": {label: list(map(list, points)) for label, points in ours.items()},
        "published": published,
        "remark": described.remark,
        "commands": asked.commands,
    }


def list_data(
    figures: Sequence[PaperFigure], drawn: Mapping[tuple[str, str], Path]
) -> list[PlainData]:
    """Return every figure of the papers with the numbers that can be drawn, as ``--json`` prints
    it.
    """
    return [figure.model_dump() | {"drawn": _drawn(figure, drawn)} for figure in figures]


def page(figures: Sequence[PaperFigure], drawn: Mapping[tuple[str, str], Path]) -> Page:
    """Return the table of the papers' figures: which can be drawn, and the claims that carry its
    verdict or the reason.
    """
    columns: list[Column[PaperFigure]] = [
        Column("paper", lambda figure: figure.paper),
        Column("figure", lambda figure: figure.figure),
        Column("drawn", lambda figure: ", ".join(_drawn(figure, drawn))),
        Column("claims, or why none", lambda figure: figure.claims or figure.remark),
    ]
    count = sum(bool(_drawn(figure, drawn)) for figure in figures)
    how = Paragraph(
        "Draw one: specsim figure PAPER NUMBER. The verdicts on claims: specsim validate --claims."
    )
    return Page(
        title=f"{len(figures)} figures of the papers, {count} drawn anew",
        opening=[table("Figures of the papers", figures, columns), how],
        command="specsim figure",
    )


def _drawn(figure: PaperFigure, drawn: Mapping[tuple[str, str], Path]) -> list[str]:
    return [number for number in figure.numbers if (figure.paper, number) in drawn]
