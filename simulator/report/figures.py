"""What figures share: colours, panels that a page's wording states, axes."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from simulator.report.panels import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    VERMILLION,
    YELLOW,
    legend_above,
    logarithmic,
)
from simulator.report.wording import Wording

COLOURS = {
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "vermillion": VERMILLION,
    "grey": GREY,
    "purple": PURPLE,
    "sky": SKY,
    "yellow": YELLOW,
    "black": BLACK,
}


def panel(axes: Any, say: Wording, key: str, objects: Sequence[object], **values: object) -> None:
    """Draw the curves that a page's wording states for a panel, each at the objects that have a
    value, and dress the axes.

    A curve has ``x`` and ``y``, expressions over ``one``, ``line`` as matplotlib's ``plot`` takes
    it, ``color`` or the colour of its ``hollow`` marks, and ``label``; what else it states goes to
    ``plot``. ``set`` of a panel goes to ``Axes.set``.
    """
    stated = say.said[key]
    for curve in stated.get("curves", ()):
        look = {
            name: value
            for name, value in curve.items()
            if name not in ("x", "y", "line", "hollow", "label", "color")
        }
        if "hollow" in curve:
            look = {"mfc": "none", "mec": COLOURS[curve["hollow"]], "ms": 5, "ls": "none"} | look
        if "color" in curve:
            look["color"] = COLOURS[curve["color"]]
        label = say.filled(curve["label"], **values) if "label" in curve else None
        if points := say.points(curve.get("x", stated.get("x")), curve["y"], objects, **values):
            axes.plot(*zip(*points, strict=True), curve["line"], label=label, **look)
    _dress(
        axes,
        {
            name: say.filled(text, **values) if isinstance(text, str) else text
            for name, text in stated.items()
        },
    )


def _dress(axes: Any, stated: Mapping[str, Any]) -> None:
    """Give the axes of a panel their names, their scales and their room."""
    axes.set_xlabel(stated.get("x_label", ""))
    axes.set_ylabel(stated.get("y_label", ""))
    if "title" in stated:
        axes.set_title(stated["title"], **SMALL)
    if "log_x" in stated:
        logarithmic(axes, stated["log_x"])
    if stated.get("integers"):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for level in stated.get("levels", ()):
        axes.axhline(level, color=GREY, lw=0.8)
    axes.set(**stated.get("set", {}))
    if "room" in stated:
        axes.set_ylim(top=axes.get_ylim()[1] * stated["room"])
    if "columns" in stated:
        legend_above(axes, stated["columns"])
