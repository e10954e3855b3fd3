"""A chart as SVG text, without any other package: it is light or dark as the page around it, and
the same chart gives the same bytes.

Lengths are in units of the drawing, of which it is ``WIDTH`` wide, or ``PHONE``.
"""

from collections.abc import Callable, Iterator, Mapping
from math import ceil, cos, floor, pi, sin
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from simulator.report.chart import (
    BAR_WIDE,
    Chart,
    ChartLevel,
    ChartSeries,
    Limits,
    Mark,
    Panel,
    round_up,
)
from simulator.report.panels import DEEP, GREY

SVG = "http://www.w3.org/2000/svg"
WIDTH = 760.0
PHONE = 380.0
"""Width of a drawing for the screen of a phone."""
LEFT = 64.0
"""From the left edge to the axis: the name of the axis and its numbers."""
MARGIN = 14.0
HIGH = 230.0
"""Height of a panel between its axes."""
AXIS = 46.0
"""Height of the numbers and the name below a panel."""
GAP = 24.0
"""Between a panel and the legend of the next."""
LEGEND = 19.0
"""Height of a line of the legend."""
SAMPLE = 30.0
"""Length of the piece of a series that the legend shows."""
LETTER = 7.0
"""Width of an average letter, on the wide side."""
LINE = 16.0
"""Height of a line of words."""
SHORTEST = 20
"""Letters of a line of a note, at least."""
TICKS_APART = 34.0
"""Least distance of two numbers at an axis that goes up."""
NUMBERS_APART = 64.0
"""Least distance of two numbers at an axis that goes right."""
DASHES = {"-": "", "--": "7 4", ":": "2 3", "-.": "7 3 2 3"}
STYLE = Path(__file__).parent / "templates" / "chart.css"


def chart_svg(chart: Chart, width: float = WIDTH) -> str:
    """Return a chart as SVG text, ``width`` wide."""
    top = MARGIN
    panels = []
    for panel in chart.panels:
        placed = _Placed(panel, top, width)
        panels.append(placed)
        top = placed.ends + GAP
    root = blank(chart.title, top - GAP, width)
    for placed in panels:
        placed.draw(SubElement(root, "g"))
    return written(root)


def blank(title: str, high: float, wide: float = WIDTH) -> Element:
    """Return an empty drawing in the style of all charts."""
    height = short(high)
    root = Element("svg", {"xmlns": SVG, "width": short(wide), "height": height, "role": "img"})
    root.set("viewBox", f"0 0 {short(wide)} {height}")
    SubElement(root, "title").text = title
    SubElement(root, "style").text = "\n" + STYLE.read_text("utf-8")
    SubElement(root, "rect", {"class": "page", "width": "100%", "height": "100%"})
    return root


def written(root: Element) -> str:
    """Return a drawing as SVG text."""
    return ElementTree.tostring(root, "unicode") + "\n"


class _Placed:
    """A panel at its place in the drawing: ``top`` is where its legend begins."""

    def __init__(self, panel: Panel, top: float, width: float) -> None:
        self.panel = panel
        self.right = width - MARGIN
        self.legend = list(_legend(panel, top, self.right))
        self.top = max((y for _, y, _ in self.legend), default=top - LEGEND) + LEGEND
        self.bottom = self.top + HIGH
        self.names = wrap(panel.x_label, int((self.right - LEFT) / LETTER))
        self.ends = self.bottom + AXIS + LINE * max(0, len(self.names) - 1)
        self.x = scale(panel.x_limits, LEFT, self.right)
        self.y = scale(panel.y_limits, self.bottom, self.top)

    def draw(self, group: Element) -> None:
        """Draw the panel, from what lies behind to what lies before."""
        self._behind(group)
        self._axes(group)
        for one in self.panel.drawn:
            points = [(self.x(x), self.y(y)) for x, y in zip(one.x, one.y, strict=True)]
            if one.bars:
                self._bars(group, one)
            if one.line:
                _path(group, one, points)
            for x, y in points if one.mark else ():
                _mark(group, one, x, y)
        for x, y, entry in self.legend:
            _entry(group, x, y, entry)
        for note in self.panel.notes:
            x = LEFT + note.x * (self.right - LEFT)
            room = x - LEFT if note.ends else self.right - x
            lines = []
            for words in note.words.splitlines():
                lines += wrap(words, max(SHORTEST, int(room / LETTER)))
            style = "soft" if note.soft else "ink"
            for line, words in enumerate(lines):
                y = self.bottom - 10 - LINE * (len(lines) - 1 - line)
                add_text(group, x, y, words, style, "end" if note.ends else "start")

    def _behind(self, group: Element) -> None:
        panel = self.panel
        if panel.shaded:
            left, right = map(self.x, panel.shaded)
            add_box(group, left, self.top, right - left, HIGH, "shade")
        if panel.marked is not None:
            add_line(group, (self.x(panel.marked), self.bottom, self.x(panel.marked), self.top))
        for level in panel.levels:
            line = (LEFT, self.y(level.y), self.right, self.y(level.y))
            add_line(group, line, dashes=DASHES["-."])

    def _axes(self, group: Element) -> None:
        panel = self.panel
        add_line(group, (LEFT, self.top, LEFT, self.bottom), "axis")
        add_line(group, (LEFT, self.bottom, self.right, self.bottom), "axis")
        for value in ticks(panel.y_limits, HIGH / TICKS_APART):
            y = self.y(value)
            add_line(group, (LEFT - 4, y, LEFT, y), "axis")
            add_text(group, LEFT - 8, y + 4, f"{value:.10g}", "soft", "end")
        for value in ticks(panel.x_limits, (self.right - LEFT) / NUMBERS_APART, panel.whole):
            x = self.x(value)
            add_line(group, (x, self.bottom, x, self.bottom + 4), "axis")
            add_text(group, x, self.bottom + 18, f"{value:.10g}", "soft", "middle")
        middle = (LEFT + self.right) / 2
        for line, words in enumerate(self.names):
            add_text(group, middle, self.bottom + 36 + LINE * line, words, "ink", "middle")
        half = (self.top + self.bottom) / 2
        name = add_text(group, 0, 0, panel.y_label, "ink", "middle")
        name.set("transform", f"translate({short(MARGIN + 4)} {short(half)}) rotate(-90)")

    def _bars(self, group: Element, one: ChartSeries) -> None:
        for x, y in zip(one.x, one.y, strict=True):
            left, right = self.x(x - BAR_WIDE / 2), self.x(x + BAR_WIDE / 2)
            bar = add_box(group, left, self.y(y), right - left, self.bottom - self.y(y), "bar")
            bar.set("fill", one.colour)


def _legend(
    panel: Panel, top: float, right: float
) -> Iterator[tuple[float, float, ChartSeries | ChartLevel]]:
    """Yield place and what is named there, in as many lines as the names take."""
    x = LEFT
    y = top
    for one in panel.named:
        wide = SAMPLE + 8 + LETTER * len(one.label) + 16
        if x + wide > right and x > LEFT:
            x = LEFT
            y = y + LEGEND
        yield x, y, one
        x += wide


def _entry(group: Element, x: float, y: float, one: ChartSeries | ChartLevel) -> None:
    """Draw a piece of a series, and its name behind it."""
    ends = [(x, y), (x + SAMPLE, y)]
    if isinstance(one, ChartLevel):
        add_line(group, (x, y, x + SAMPLE, y), dashes=DASHES["-."])
    elif one.bars:
        add_box(group, x, y - 6, SAMPLE, 12, "bar").set("fill", one.colour)
    elif one.line:
        _path(group, one, ends)
    if isinstance(one, ChartSeries) and one.mark:
        _mark(group, one, x + SAMPLE / 2, y)
    add_text(group, x + SAMPLE + 8, y + 4, one.label, "ink")


def scale(limits: Limits, begin: float, end: float) -> Callable[[float], float]:
    """Return the place of a value between two ends of an axis."""
    least, most = limits
    return lambda value: begin + (value - least) / (most - least) * (end - begin)


def ticks(limits: Limits, room: float, whole: bool = False) -> Iterator[float]:
    """Yield the round numbers within limits, at most ``room`` of them; ``whole`` numbers alone."""
    least, most = limits
    step = round_up((most - least) / room)
    if whole:
        step = max(step, 1.0)
    for index in range(ceil(least / step - 1e-9), floor(most / step + 1e-9) + 1):
        yield index * step


CROSS = "M{0}-{0}L-{0} {0}M-{0}-{0}L{0} {0}"
DIAMOND = "M0-{0}L{0} 0L0 {0}L-{0} 0Z"


def _ring(corners: int, size: float, inner: float = 1.0) -> str:
    """Return the path of a polygon, or of a star whose ``inner`` corners are so much nearer."""
    points = []
    count = corners if inner == 1.0 else 2 * corners
    for corner in range(count):
        far = size * (inner if corner % 2 and inner != 1.0 else 1.0)
        angle = 2 * pi * corner / count
        points.append(f"{far * sin(angle):.2f} {-far * cos(angle):.2f}")
    return f"M{'L'.join(points)}Z"


SHAPES: Mapping[Mark, str] = MappingProxyType(
    {
        "x": CROSS.format(3.2),
        "D": DIAMOND.format(6),
        "o": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
        "s": "M-4-4L4-4L4 4L-4 4Z",
        "^": "M0-5L4.6 3.5L-4.6 3.5Z",
        "v": "M0 5L4.6-3.5L-4.6-3.5Z",
        "<": "M-5 0L3.5-4.6L3.5 4.6Z",
        ">": "M5 0L-3.5-4.6L-3.5 4.6Z",
        "P": "M-2-5L2-5L2-2L5-2L5 2L2 2L2 5L-2 5L-2 2L-5 2L-5-2L-2-2Z",
        "X": "M0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0L-5-3L-3-5Z",
        "*": _ring(5, 6.5, 0.42),
        "h": _ring(6, 5.2),
        "p": _ring(5, 5.2),
    }
)
"""Paths of marks around their point."""


def _mark(group: Element, one: ChartSeries, x: float, y: float) -> None:
    mark = SubElement(group, "path", {"class": "mark", "d": SHAPES[one.mark]})
    mark.set("transform", f"translate({short(x)} {short(y)})")
    if one.mark == "D":  # what lies behind it does not show through
        mark.set("class", "mark page")
    _coloured(mark, one)


def _path(group: Element, one: ChartSeries, points: list[tuple[float, float]]) -> None:
    places = " ".join(f"{short(x)} {short(y)}" for x, y in points)
    path = SubElement(group, "path", {"class": "line", "d": f"M{places}"})
    if DASHES[one.line]:
        path.set("stroke-dasharray", DASHES[one.line])
    _coloured(path, one)


def _coloured(drawn: Element, one: ChartSeries) -> None:
    """Give a line its colour; grey has one of its own in the dark, and deep colours are light."""
    if one.colour == GREY:
        drawn.set("class", drawn.get("class", "") + " grey")
    else:
        drawn.set("stroke", one.colour)
        if one.colour in DEEP:
            drawn.set("class", drawn.get("class", "") + " deep")


def add_line(
    group: Element,
    ends: tuple[float, float, float, float],
    style: str = "grey",
    dashes: str = "",
) -> None:
    """Draw a line from x, y to x, y."""
    names = ("x1", "y1", "x2", "y2")
    line = SubElement(group, "line", {"class": style})
    for name, value in zip(names, ends, strict=True):
        line.set(name, short(value))
    if dashes:
        line.set("stroke-dasharray", dashes)


def add_box(group: Element, x: float, y: float, wide: float, high: float, style: str) -> Element:
    """Draw a rectangle; return it."""
    size = {"width": short(wide), "height": short(high)}
    return SubElement(group, "rect", {"class": style, "x": short(x), "y": short(y), **size})


def add_text(
    group: Element, x: float, y: float, words: str, style: str, anchor: str = "start"
) -> Element:
    """Write words whose ``anchor`` (start, middle, end) is at x, y; return them."""
    place = {"x": short(x), "y": short(y), "text-anchor": anchor}
    text = SubElement(group, "text", {"class": style, **place})
    text.text = words
    return text


def short(length: float) -> str:
    """Return a length as short text; more digits nobody sees."""
    return f"{round(length, 2):g}" if abs(length) < 1e4 else f"{length:.0f}"
