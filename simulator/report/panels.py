"""What the panels of figures share: colours, curves over points, and how axes are dressed.

The colours are asked for where nothing is drawn by matplotlib, so it is not loaded before it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from simulator.core.plain import PlainData
from simulator.report import WANTED
from simulator.report.chart import Line, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = TypeVar("Point")
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILLION = "#D55E00"
GREY = "#6b6b6b"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
YELLOW = "#F0E442"
BLACK = "black"
"""Okabe and Ito's colours, which the colour-blind tell apart too."""
SHADE = "#e9eff5"
COLOURS = (
    BLUE,
    VERMILLION,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    "#000000",
    "#8700f0",
    "#5a2d00",
    "#001e87",
    "#5a4b5a",
    "#9678ff",
)
"""Colours of series: Okabe and Ito's, then those that are farthest from all before them, for
everybody, among colours that stand out from white.
"""
DEEP = ("#000000", "#8700f0", "#5a2d00", "#001e87", "#5a4b5a")
"""Those of them that nobody sees on a dark page."""
MARKS: Sequence[Mark] = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "h", ">", "p")
DASHES: Sequence[Line] = ("-", "--", ":", "-.")


class Look(NamedTuple):
    """How a series is drawn."""

    colour: str
    mark: Mark
    line: Line


def look(place: int) -> Look:
    """Return the look of the series at a place: up to 12 no two share a colour or a mark, beyond
    that no two share colour and dashes.
    """
    return Look(
        COLOURS[place % len(COLOURS)],
        MARKS[place % len(MARKS)],
        DASHES[place // len(COLOURS) % len(DASHES)],
    )


SMALL: PlainData = {"size": 8, "loc": "left", "color": GREY}
"""Look of the title of a panel."""


@dataclass(frozen=True)
class Curve(Generic[Point]):
    """A curve over points: its height at a point, None where there is none.

    ``line`` is what matplotlib's ``plot`` takes, ``x`` a place of its own; ``hollow`` draws marks
    alone, in outline; ``look`` goes to ``plot``.
    """

    y: Callable[[Point], float | None]
    line: str
    colour: str | None = None
    label: str | None = None
    hollow: bool = False
    x: Callable[[Point], float | None] | None = None
    look: PlainData = field(default_factory=dict)

    def draw(self, axes: Axes, x: Callable[[Point], float | None], points: Sequence[Point]) -> None:
        """Draw the curve through the points that have both a place and a height."""
        places = [((self.x or x)(point), self.y(point)) for point in points]
        drawn = [place for place in places if None not in place]
        if not drawn:
            return
        look: PlainData = {}
        if self.hollow:
            look = {"mfc": "none", "mec": self.colour, "ms": 5, "ls": "none"}
        elif self.colour:
            look = {"color": self.colour}
        axes.plot(*zip(*drawn, strict=True), self.line, label=self.label, **(look | self.look))


def draw(
    axes: Axes,
    points: Sequence[Point],
    x: Callable[[Point], float | None],
    *curves: Curve[Point],
) -> None:
    """Draw curves over the same places."""
    for curve in curves:
        curve.draw(axes, x, points)


def dress(
    axes: Axes,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    log_x: int = 0,
    integers: bool = False,
    levels: Sequence[float] = (),
    room: float = 1.0,
    legend_columns: int = 0,
    **settings: Any,
) -> None:
    """Give the axes of a panel their names, scales and room.

    ``log_x`` is the base of a logarithmic axis, ``integers`` puts ticks on whole numbers,
    ``levels`` are horizontal lines, ``room`` is how many times higher than its curves the panel
    is, and ``settings`` go to ``Axes.set``.
    """
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if title:
        axes.set_title(title, **SMALL)
    if log_x:
        logarithmic(axes, log_x)
    if integers:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for level in levels:
        axes.axhline(level, color=GREY, lw=0.8)
    axes.set(**settings)
    if room != 1.0:
        axes.set_ylim(top=axes.get_ylim()[1] * room)
    if legend_columns:
        legend_above(axes, legend_columns)


LETTERS_ABOVE = 54
"""Letters of a legend that find room above a panel in one column."""
LETTERS_OF_SAMPLE = 8
"""Letters in place of which a legend has its sample, and the room around it."""


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend of a panel above it, in so many columns; in one of a journal as many as fit
    beside each other.
    """
    if WANTED.narrow:
        longest = max((len(label) for label in axes.get_legend_handles_labels()[1]), default=0)
        columns = min(columns, max(1, LETTERS_ABOVE // (longest + LETTERS_OF_SAMPLE)))
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.4,
    )


def logarithmic(axes: Axes, base: float = 10) -> None:
    """Make the lower axis logarithmic, with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
