"""A chart is what a picture shows, before it is drawn: panels with curves, marks and bars.

It is drawn as SVG by :mod:`~simulator.report.chart_svg`, which loads no other package, or by
matplotlib (:func:`~simulator.report.drawing.plotted`) in other forms, widths and styles.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Literal, Self, TypeVar

Point = TypeVar("Point")
Limits = tuple[float, float]
Line = Literal["", "-", "--", ":", "-."]
"""How points are joined, as matplotlib has it; nothing joins them if empty."""
Mark = Literal["", "o", "x", "D", "s", "^", "v", "<", ">", "P", "X", "*", "h", "p"]
"""What stands at every point, as matplotlib has it, or nothing."""
BAR_WIDE = 0.7
"""Width of a bar, of the distance to the next."""


@dataclass(frozen=True)
class ChartSeries:
    """Points of one kind, joined by a line, marked, or the ends of bars that begin at zero."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    line: Line = ""
    mark: Mark = ""
    bars: bool = False

    @classmethod
    def over(
        cls,
        points: Iterable[Point],
        x: Callable[[Point], float],
        y: Callable[[Point], float | None],
        label: str,
        colour: str,
        line: Line = "",
        mark: Mark = "",
    ) -> Self:
        """Return the series of the points that have a height."""
        places = []
        heights = []
        for point in points:
            height = y(point)
            if height is not None:
                places.append(x(point))
                heights.append(height)
        return cls(label, colour, places, heights, line, mark)


@dataclass(frozen=True)
class ChartLevel:
    """A line across a panel at a height."""

    label: str
    y: float


@dataclass(frozen=True)
class ChartNote:
    """Words at the lower edge of a panel, line by line; ``x``: their place as a share of its width,
    at which they begin, or end.
    """

    words: str
    x: float
    ends: bool = False
    soft: bool = False


@dataclass(frozen=True)
class Panel:
    """Series over the same places, with what is marked behind them.

    ``shaded``: from where to where it is shaded behind the series; ``marked``: where a line goes
    up. ``whole``: whether only whole numbers stand at the lower axis.
    """

    x_label: str
    y_label: str
    x_limits: Limits
    y_limits: Limits
    series: Sequence[ChartSeries]
    levels: Sequence[ChartLevel] = ()
    notes: Sequence[ChartNote] = ()
    shaded: Limits | None = None
    marked: float | None = None
    whole: bool = False

    @property
    def named(self) -> list[ChartSeries | ChartLevel]:
        """Return what the legend names, in order."""
        return [*self.drawn, *self.levels]

    @property
    def drawn(self) -> list[ChartSeries]:
        """Return the series that have a point."""
        return [one for one in self.series if len(one.x)]


@dataclass(frozen=True)
class Chart:
    """Panels below each other; ``title``: what they show, for readers who cannot see them."""

    title: str
    panels: Sequence[Panel]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield panel, series, x, y and an empty value of every point; of a bar its right end."""
        for panel in self.panels:
            for one in sorted(panel.drawn, key=lambda series: series.bars):
                right = BAR_WIDE / 2 if one.bars else 0.0
                for x, y in zip(one.x, one.y, strict=True):
                    yield panel.y_label, one.label, x + right if right else x, y, ""


def round_up(length: float) -> float:
    """Return the round number (1, 2 or 5 times a power of ten) at or above ``length``."""
    power = 10.0 ** floor(log10(length))
    steps = [factor * power for factor in (1.0, 2.0, 5.0, 10.0)]
    return next(step for step in steps if step >= length * (1 - 1e-9))
