"""A drawing in the form of a file, and its data: SVG text as it is, a chart by our own code
wherever that can draw it, anything else by matplotlib, which is loaded for nothing else.
"""

from collections.abc import Callable
from typing import Any

from simulator.inputs.writing import csv_text
from simulator.report import WANTED, Wanted, in_one_column
from simulator.report.chart import Chart
from simulator.report.chart_svg import PHONE, chart_svg

HEAD = ("panel", "series", "x", "y", "value")


def as_svg(drawing: Any) -> str:
    """Return a drawing as SVG text."""
    return as_picture(drawing, ".svg").decode()


def as_narrow_svg(picture: Callable[[], Any]) -> str | None:
    """Return what a function draws as SVG text for the screen of a phone; None where panels stand
    beside each other in it.
    """
    with in_one_column():
        drawing = picture()
        if isinstance(drawing, Chart) and not WANTED.style:
            return chart_svg(drawing, PHONE)
        if isinstance(drawing, str) or has_columns(drawing):
            return None
        return as_svg(drawing)


def has_columns(drawing: Any) -> bool:
    """Return whether panels of a drawing stand beside each other."""
    if isinstance(drawing, Chart):
        return False
    places = [axes.get_subplotspec() for axes in drawing.axes]
    return any(place is not None and place.get_gridspec().ncols > 1 for place in places)


def as_picture(drawing: Any, ending: str) -> bytes:
    """Return a drawing as a file without a date; SVG text has no other form."""
    if isinstance(drawing, str):
        return drawing.encode()
    if isinstance(drawing, Chart):
        if ending == ".svg" and Wanted() == WANTED:
            return chart_svg(drawing).encode()
        from simulator.report.drawing import plotted

        drawing = plotted(drawing)
    from simulator.report.drawing import drawn

    return drawn(drawing, ending)


def as_data(drawing: Any) -> str | None:
    """Return what a drawing shows as CSV text: panel, series, x and y of every point; of a bar its
    end, of a map its value. SVG text has none.
    """
    if isinstance(drawing, str):
        return None
    if isinstance(drawing, Chart):
        return csv_text(HEAD, drawing.rows())
    from simulator.report.drawing import points

    return csv_text(HEAD, points(drawing))
