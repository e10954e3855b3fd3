"""Drawings by matplotlib: in the look of all pictures or a user's, in the width of one or two
columns, as files and as the points that they show.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from simulator.core.plain import PlainData
from simulator.report import WANTED
from simulator.report.chart import BAR_WIDE, Chart, ChartSeries, Panel
from simulator.report.panels import GREY, SHADE, legend_above

WIDTH_IN = 16 / 2.54
COLUMNS_IN = {1: 8.6 / 2.54, 2: 17.8 / 2.54}
"""Width of a drawing over one and over two columns of a journal."""
LETTERS_OF_PANEL = 36
"""Letters of a line over a panel in one column."""
SMALLER = 0.78
"""Letters and marks over one column, over those of a page."""
LOOK = Path(__file__).parent / "templates" / "look.mplstyle"


NO_PROGRAM = {"text.usetex": False}
"""No style file starts another program."""


@contextmanager
def canvas(height_in: float, width_in: float = WIDTH_IN, **options: Any) -> Iterator[Figure]:
    """Yield an empty figure in the look of all pictures; ``options`` are those of matplotlib's
    ``Figure``.
    """
    with style.context([LOOK, *WANTED.style, NO_PROGRAM]):
        yield Figure(
            figsize=(COLUMNS_IN.get(WANTED.paper_columns, width_in), height_in),
            layout="constrained",
            **options,
        )


def drawn(figure: Figure, ending: str = ".svg") -> bytes:
    """Return a figure as a file without a date."""
    if WANTED.narrow:
        _fit_one_column(figure)
    no_date = {
        ".svg": {"Date": None, "Creator": "specsim"},
        ".pdf": {"CreationDate": None, "Creator": "specsim"},
    }
    options: PlainData = {"dpi": 300} if ending == ".png" else {}
    file = BytesIO()
    with style.context([LOOK, *WANTED.style, NO_PROGRAM]):
        figure.savefig(
            file,
            format=ending[1:],
            metadata=no_date.get(ending, {"Software": "specsim"}),
            **options,
        )
    return file.getvalue()


def _fit_one_column(figure: Figure) -> None:
    """Make letters smaller, and break words that are wider than a panel."""
    for text in figure.findobj(Text):
        text.set_fontsize(SMALLER * float(text.get_fontsize()))
        words = text.get_text()
        if len(words) > LETTERS_OF_PANEL:
            lines = [fill(line, LETTERS_OF_PANEL) for line in words.splitlines()]
            text.set_text("\n".join(lines))


ASIDE = (
    ("left", 5, 4),
    ("right", -5, 4),
    ("left", 5, -9),
    ("right", -5, -9),
    ("center", 0, 8),
    ("center", 0, -13),
    ("left", 14, -2),
    ("right", -14, -2),
)
"""Where a label may stand, the first that is free: with which of its edges, so far to the right and
so far up from its point, in points of print.
"""
MARK_PX = 4.0
"""Half the width of a mark that no label may cover, in pixels of the figure."""


class PointLabel(NamedTuple):
    """Words beside a point; ``looks`` go to matplotlib's ``annotate``."""

    words: str
    x: float
    y: float
    looks: PlainData


def label_points(figure: Figure, axes: Axes, labels: Sequence[PointLabel]) -> None:
    """Write words beside points of a finished panel where they cover no other word and no point;
    what finds no such place is left out.
    """
    if not labels:
        return
    figure.draw_without_rendering()
    taken = []
    for label in labels:
        x, y = axes.transData.transform((label.x, label.y))
        taken.append(Bbox.from_extents(x - MARK_PX, y - MARK_PX, x + MARK_PX, y + MARK_PX))
    for label in labels:
        for side, right, up in ASIDE:
            text = axes.annotate(
                label.words,
                (label.x, label.y),
                (right, up),
                textcoords="offset points",
                ha=side,
                **label.looks,
            )
            text.set_in_layout(False)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


PANEL_IN = 3.0
"""Height of a panel of a chart."""


def plotted(chart: Chart) -> Figure:
    """Return a chart as a figure of matplotlib."""
    with canvas(PANEL_IN * len(chart.panels)) as figure:
        rows = figure.subplots(len(chart.panels), 1, squeeze=False)
        for axes, panel in zip(rows.flat, chart.panels, strict=True):
            _plot(axes, panel)
        return figure


def _plot(axes: Axes, panel: Panel) -> None:
    """Draw a panel of a chart."""
    if panel.shaded:
        axes.axvspan(*panel.shaded, color=SHADE, lw=0, zorder=0)
    if panel.marked is not None:
        axes.axvline(panel.marked, color=GREY, lw=0.8)
    for one in panel.drawn:
        _plot_series(axes, one)
    for level in panel.levels:
        axes.axhline(level.y, color=GREY, lw=1.0, ls="-.", label=level.label)
    for note in panel.notes:
        axes.text(
            note.x,
            0.04,
            note.words,
            ha="right" if note.ends else "left",
            va="bottom",
            size=8,
            color=GREY if note.soft else "black",
            transform=axes.transAxes,
        )
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, xlim=panel.x_limits, ylim=panel.y_limits)
    if panel.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, 2 if len(panel.named) == 4 else 3)


def _plot_series(axes: Axes, one: ChartSeries) -> None:
    if one.bars:
        axes.bar(one.x, one.y, width=BAR_WIDE, color=one.colour, alpha=0.55, label=one.label)
        return
    inside = "white" if one.mark == "D" else "none"
    axes.plot(
        one.x,
        one.y,
        ls=one.line or "none",
        marker=one.mark or "none",
        color=one.colour,
        mfc=inside,
        ms=5,
        label=one.label,
    )


def points(figure: Figure) -> Iterator[tuple[object, ...]]:
    """Yield panel, series, x, y and value of what a figure shows."""
    for place, axes in enumerate(figure.axes, start=1):
        panel = axes.get_title() or axes.get_title("left") or axes.get_ylabel() or str(place)
        for row in _series(axes):
            yield ((" ".join(panel.split()), *row))


def _series(axes: Axes) -> Iterator[tuple[object, ...]]:
    """Yield series, x, y and value of what stands in a panel."""
    for line in axes.get_lines():
        label = str(line.get_label())
        if label.startswith("_"):
            label = ""
        places: Any = line.get_xdata()
        heights: Any = line.get_ydata()
        if len(places) and line.get_transform() == axes.transData:
            for x, y in zip(places, heights, strict=True):
                yield ((label, x, y, ""))
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and patch.get_transform().contains_branch(axes.transData):
            yield (
                str(patch.get_label()).strip("_"),
                patch.get_x() + patch.get_width(),
                patch.get_y() + patch.get_height(),
                "",
            )
    for mesh in axes.collections:
        if isinstance(mesh, QuadMesh):
            corners: Any = mesh.get_coordinates()
            values: Any = np.reshape(
                np.asarray(mesh.get_array()), np.subtract(corners.shape[:2], 1)
            )
            for at in np.ndindex(values.shape):
                yield (("", *corners[at], values[at]))
