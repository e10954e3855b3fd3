"""A figure of a paper drawn anew: our curves or bars filled, the points that the paper prints as
hollow marks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.evidence.drawn import Found, Place
from simulator.evidence.published import PaperFigure
from simulator.report.blocks import Page, Paragraph, Table
from simulator.report.drawing import canvas
from simulator.report.panels import LOOKS, logarithmic

Points = Mapping[str, Sequence[tuple[Place, float]]]
"""Points by the label of their series."""
GROUP = 0.8
"""Share of a place that a group of bars fills."""


def picture(asked: Found, ours: Points) -> Drawing:
    """Draw our points of a figure and the published ones."""
    described = asked.picture
    with canvas(3.9) as drawing:
        axes = drawing.subplots()
        names: list[Place] = []
        if described.kind == "bars":
            published = (printed.points for printed in described.published)
            names = list(
                dict.fromkeys(x for points in (*ours.values(), *published) for x, _ in points)
            )
        for label, points in ours.items():
            colour, mark = _look(asked, label)
            if names:
                places, width = _bars(asked, label, [x for x, _ in points], names)
                axes.bar(
                    places,
                    [y for _, y in points],
                    width=width,
                    color=colour,
                    alpha=0.75,
                    label=label,
                )
            else:
                line = mark if described.kind == "points" else f"{mark}-"
                axes.plot(*zip(*points, strict=True), line, color=colour, ms=4, label=label)
        for printed in described.published:
            colour, mark = _look(asked, printed.label)
            xs: Sequence[Any] = [x for x, _ in printed.points]
            if names:
                xs, _ = _bars(asked, printed.label, xs, names)
            look: dict[str, Any] = {"mfc": "white", "mec": "black" if names else colour, "ms": 7}
            look["label"] = f"{printed.label}, published"
            axes.plot(xs, [y for _, y in printed.points], mark, **look)
        _dress(axes, asked, names)
        drawing.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return drawing


def _look(asked: Found, label: str) -> tuple[str, str]:
    """Return colour and mark of a label, which a series and its published points share."""
    series, published = asked.picture.series, asked.picture.published
    labels = list(
        dict.fromkeys([*(one.label for one in series), *(one.label for one in published)])
    )
    return LOOKS[labels.index(label) % len(LOOKS)]


def _bars(
    asked: Found, label: str, xs: Sequence[Place], names: Sequence[Place]
) -> tuple[list[float], float]:
    """Return where the bars of a series stand and how wide they are; the middle of its group for
    any other label.
    """
    labels = [one.label for one in asked.picture.series]
    width = GROUP / len(labels)
    shift = (labels.index(label) - (len(labels) - 1) / 2) * width if label in labels else 0.0
    return [names.index(x) + shift for x in xs], width


def _dress(axes: Any, asked: Found, names: Sequence[Place]) -> None:
    """Give the axes their title, names, scales and room."""
    described = asked.picture
    axes.set_title(
        f"{asked.paper}, Figure {asked.number}: {described.figure}", size=9, loc="left", wrap=True
    )
    axes.set_xlabel(described.x)
    axes.set_ylabel(described.y)
    if names:
        axes.set_xticks(range(len(names)), [str(name).replace(" ", "\n") for name in names], size=8)
    if "x" in described.log:
        logarithmic(axes, 2)
    if "y" in described.log:
        axes.set_yscale("log")
        return
    low, high = axes.get_ylim()
    axes.set_ylim(min(0.0, low), high + 0.03 * (high - low))


def as_data(asked: Found, ours: Points) -> dict[str, Any]:
    """Return the points of a figure as the object that ``--json`` prints."""
    described = asked.picture
    return {
        "paper": asked.paper,
        "number": asked.number,
        **described.model_dump(include={"figure", "source", "x", "y"}),
        "ours": {label: [list(point) for point in points] for label, points in ours.items()},
        "published": {
            one.label: {"points": [*map(list, one.points)], "source": one.source}
            for one in described.published
        },
        "remark": described.remark,
        "commands": asked.commands,
    }


def list_data(
    figures: Sequence[PaperFigure], drawn: Mapping[tuple[str, str], Path]
) -> list[dict[str, Any]]:
    """Return every figure of the papers with the numbers that can be drawn, as ``--json`` prints
    it.
    """
    return [one.model_dump() | {"drawn": _drawn(one, drawn)} for one in figures]


def page(figures: Sequence[PaperFigure], drawn: Mapping[tuple[str, str], Path]) -> Page:
    """Return the table of the papers' figures: which can be drawn, and the claims that carry its
    verdict or the reason.
    """
    rows = [
        (one.paper, one.figure, ", ".join(_drawn(one, drawn)), one.claims or one.remark)
        for one in figures
    ]
    count = sum(bool(row[2]) for row in rows)
    return Page(
        title=f"{len(figures)} figures of the papers, {count} drawn anew",
        opening=[
            Table(
                ("paper", "figure", "drawn", "claims, or why none"), rows, "Figures of the papers"
            ),
            Paragraph(
                "Draw one: specsim figure PAPER NUMBER. The verdicts on claims: specsim "
                "validate --claims."
            ),
        ],
        command="specsim figure",
    )


def _drawn(one: PaperFigure, drawn: Mapping[tuple[str, str], Path]) -> list[str]:
    return [number for number in one.numbers if (one.paper, number) in drawn]
