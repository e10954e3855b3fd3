"""Draw a sweep's table as SVG text: lines, heat maps, contours, Pareto fronts, each also as small
multiples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from string import ascii_uppercase
from typing import Any, NamedTuple, get_args

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.report.drawing import PointLabel, canvas, label_points
from simulator.report.panels import COLOURS, GREY, VERMILLION, Look, look
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.study import Plot
from simulator.studies.sweep.table import Frame, SweepTable

RAMP = "cividis"
"""A colour map that goes from dark to light for everybody, also without colour."""
UNITS = {
    "_us": "µs",
    "_ms": "ms",
    "_gb_s": "GB/s",
    "_gb": "GB",
    "_s": "s",
    "_tflops": "TFLOP/s",
    "_tokens": "tokens",
    "_bytes": "bytes",
    "_w": "W",
}
"""Units by the endings of keys."""
WORDS = {
    "strategy.gamma": "window γ (draft tokens)",
    "strategy.exit_layer": "early exit (share of the depth)",
    "requests.concurrency": "batch (requests)",
    "requests.prompt_tokens": "prompt (tokens)",
    "strategy": "method",
}
"""Labels of axes that are better known by another name than their field."""
CELLS = 14
"""Number of ticks that fit along an edge of the whole picture."""
FAR = 12.0
"""Largest over smallest value beyond which a front needs a logarithmic scale."""
NAMED = 6
"""Points of a Pareto front whose settings are named."""


def label(key: str) -> str:
    """Return the words for a metric, or for an axis with its unit: ``channel.latency_us`` is
    ``channel latency (µs)``.
    """
    evaluator, _, metric = key.partition("_")
    if evaluator in get_args(Evaluator) and metric in METRICS:
        return f"{METRICS[metric].label}, {evaluator}"
    if key in WORDS:
        return WORDS[key]
    unit = _unit(key)
    last_two = key.replace("strategy.", "").split(".")[-2:]
    words = " ".join(last_two).removesuffix(unit).replace("_", " ")
    if unit:
        return f"{words} ({UNITS[unit]})"
    return words


def _short(key: str) -> str:
    """Return an axis in a word or two, where there is little room."""
    if key == "strategy":
        return ""
    _, _, field = key.rpartition(".")
    return field.removesuffix(_unit(key)).replace("_", " ")


def _unit(key: str) -> str:
    """Return the ending of a key that tells its unit; nothing for a number without one."""
    for suffix in UNITS:
        if key.endswith(suffix):
            return suffix
    return ""


def _quantity(key: str, value: Any) -> str:
    """Return a value with its unit."""
    unit = UNITS.get(_unit(key), "")
    return f"{_text(value)} {unit}".strip()


def picture(points: SweepTable, plot: Plot) -> Drawing:
    """Return one plot of a table.

    Axes that the plot does not name are left at their best: the value of the last metric named
    decides, and the picture names these axes. Raises :class:`BadInput` for a column that does not
    exist, or where nothing is left to draw.
    """
    plot = _resolved(points, plot)
    frame, note = _reduced(points, plot)
    facets = [None]
    if plot.facet:
        facets = _values(frame, plot.facet)
    columns = min(len(facets), 3)
    if len(facets) == 4:
        columns = 2
    rows = ceil(len(facets) / columns)
    height = {1: 3.6, 2: 2.9}.get(columns, 2.4) * rows + 0.5
    draw = KINDS[plot.kind]
    with canvas(height) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        drawn = None
        labelled = []
        for axes, facet in zip(panels, facets, strict=False):
            part = frame
            if facet is not None:
                part = frame[frame[plot.facet] == facet]
                name = str(plot.facet)
                title = f"{_short(name)} {_quantity(name, facet)}"
                axes.set_title(title, size=9, loc="left")
            panel = _Panel(axes, part, frame, plot, points, CELLS // columns, [])
            labelled.append(panel)
            drawn = draw(panel) or drawn
        for axes in panels[len(facets) :]:
            axes.set_visible(False)
        shown = panels[: len(facets)]
        hues = [_text(value) for value in _values(frame, plot.hue)]
        if plot.value and not plot.hue and _crosses(frame[plot.value], plot.level):
            quantity, _, _ = label(plot.value).partition(",")
            level = f"{quantity} = {plot.level:g}"
            panels[0].plot([], [], color=VERMILLION, lw=2.2, label=level)
        _finish(figure, shown, columns, plot, note, hues)
        if drawn is not None and plot.value:
            figure.colorbar(drawn, ax=shown, label=label(plot.value), shrink=0.9)
        for panel in labelled:
            label_points(figure, panel.axes, panel.labels)
        return figure


# ---- which rows


def _resolved(points: SweepTable, plot: Plot) -> Plot:
    """Return the plot with whole names of columns."""
    stated = {field: getattr(plot, field) for field in ("x", "y", "value", "hue", "facet")}
    named = {field: points.column(name) for field, name in stated.items() if name}
    return plot.model_copy(update=named)


def _reduced(points: SweepTable, plot: Plot) -> tuple[Frame, str]:
    """Return rows without a fault, one for each combination of the axes that the plot names, and a
    note on the rest.
    """
    named = [name for name in (plot.x, plot.y, plot.value, plot.hue, plot.facet) if name]
    frame = points.frame.dropna(subset=named)
    if frame.empty:
        raise BadInput.at(points.name, "no point has a value for all of these", ", ".join(named))
    free = _free_axes(points, frame, named)
    if plot.kind == "pareto" or points.file.combine != "product" or not free:
        return frame, ""
    metrics = [name for name in named if name not in points.axes]
    judge = metrics[-1]
    shown = [axis for axis in points.axes if axis in named]
    judged = frame.groupby(shown, sort=False)[judge]
    if _less_is_better(judge):
        chosen = judged.idxmin()
    else:
        chosen = judged.idxmax()
    best_over = ", ".join(map(label, free))
    return frame.loc[chosen], f"best over {best_over}"


def _less_is_better(column: str) -> bool:
    """Return whether small values of a metric are good; ``column`` begins with its evaluator."""
    _, _, metric = column.partition("_")
    return METRICS[metric].less_is_better


def _free_axes(points: SweepTable, frame: Frame, named: Sequence[str]) -> list[str]:
    """Return the axes that have several values and that the plot does not name."""
    return [axis for axis in points.axes if axis not in named and frame[axis].nunique() > 1]


def _values(frame: Frame, column: str | None) -> list[Any]:
    """Return the distinct values of an axis in its order, numbers ascending."""
    if not column:
        return []
    values = list(dict.fromkeys(frame[column]))
    if all(isinstance(value, int | float) for value in values):
        return sorted(values)
    return values


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,g}"
    return str(value)


class _Panel(NamedTuple):
    """The data that one panel is drawn from: its rows, and those of all panels, which share their
    scales.
    """

    axes: Axes
    rows: Frame
    whole: Frame
    plot: Plot
    points: SweepTable
    ticks: int
    """Number of ticks that fit along the lower edge."""
    labels: list[PointLabel]
    """Words beside points, which are written when everything else has its place."""


# ---- the kinds


def _line(panel: _Panel) -> None:
    """Draw ``y`` against ``x``, a line for each ``hue``."""
    axes = panel.axes
    plot = panel.plot
    places = _scale(axes.xaxis, panel.whole[plot.x], panel.ticks)
    scattered = panel.points.file.combine == "latin_hypercube"
    for (colour, marker, dashes), hue, part in _hues(panel):
        rows = part
        if places is None:
            rows = part.sort_values(plot.x)
            at = rows[plot.x]
        else:
            at = [places[value] for value in rows[plot.x]]
        style = "none" if scattered else dashes
        drawn: PlainData = {"ls": style, "marker": marker, "ms": 4, "mfc": "white", "color": colour}
        axes.plot(at, rows[plot.y], label=hue, **drawn)
    low, high = axes.get_ylim()
    if str(plot.y).endswith("speedup") and low < 1.15:
        axes.axhline(1.0, color=GREY, lw=1.0, ls="--")
        axes.set_ylim(min(low, 0.95), high)


def _heatmap(panel: _Panel) -> Any:
    """Draw ``value`` over cells, and the border between cells above and below ``level``."""
    axes = panel.axes
    plot = panel.plot
    whole = panel.whole
    if panel.points.file.combine == "latin_hypercube":
        message = "points of a Latin hypercube make no cells; choose contour"
        raise BadInput.at(panel.points.name, message, "kind")
    xs = _values(whole, plot.x)
    ys = _values(whole, plot.y)
    grid = _grid(panel.rows, plot, xs, ys)
    low = float(whole[plot.value].min())
    high = float(whole[plot.value].max())
    x_edges = np.arange(len(xs) + 1)
    y_edges = np.arange(len(ys) + 1)
    drawn = axes.pcolormesh(x_edges, y_edges, grid, cmap=RAMP, vmin=low, vmax=high)
    _name_cells(axes.xaxis, xs, panel.ticks)
    _name_cells(axes.yaxis, ys, CELLS)
    if len(xs) <= panel.ticks:
        light_from = low + 0.55 * (high - low)
        for row, column in np.argwhere(~np.isnan(grid)):
            value = grid[row, column]
            ink = "black"
            if value < light_from:
                ink = "white"
            look: PlainData = {"ha": "center", "va": "center", "size": 6.5, "color": ink}
            axes.text(column + 0.5, row + 0.5, f"{value:.3g}", **look)
    _border(axes, grid, plot.level)
    return drawn


def _name_cells(axis: Any, values: Sequence[Any], room: int) -> None:
    """Write the values of cells below their middles, as many as there is ``room`` for."""
    step = ceil(len(values) / room)
    middles = [index + 0.5 for index in range(0, len(values), step)]
    names = [_text(value) for value in values[::step]]
    axis.set_ticks(middles, names)


def _grid(part: Frame, plot: Plot, xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """Return an array (ys, xs) of ``value``, not a number where there is no point."""
    cells = part.pivot(index=plot.y, columns=plot.x, values=plot.value)
    ordered = cells.reindex(index=ys, columns=xs)
    return ordered.to_numpy(dtype=float)


def _border(axes: Axes, grid: Any, level: float) -> None:
    """Draw the edges between cells on both sides of ``level``."""
    above = grid >= level
    filled = ~np.isnan(grid)
    look: PlainData = {"color": VERMILLION, "lw": 2.2, "solid_capstyle": "round"}
    between_columns = above[:, 1:] != above[:, :-1]
    between_columns &= filled[:, 1:] & filled[:, :-1]
    for row, column in np.argwhere(between_columns):
        axes.plot([column + 1, column + 1], [row, row + 1], **look)
    between_rows = above[1:] != above[:-1]
    between_rows &= filled[1:] & filled[:-1]
    for row, column in np.argwhere(between_rows):
        axes.plot([column, column + 1], [row + 1, row + 1], **look)


def _contour(panel: _Panel) -> Any:
    """Draw ``value`` as filled levels with the line at ``level``; with ``hue`` only the lines, one
    for each.
    """
    axes = panel.axes
    plot = panel.plot
    whole = panel.whole
    _check_contour(panel)
    _scale(axes.xaxis, whole[plot.x], panel.ticks)
    _scale(axes.yaxis, whole[plot.y], CELLS)
    filled = None
    for (colour, _, dashes), hue, rows in _hues(panel):
        over, data = _surface(axes, rows, plot, panel.points)
        line_colour = colour
        if plot.hue is None:
            line_colour = VERMILLION
            every_value = whole[plot.value]
            levels = MaxNLocator(10).tick_values(every_value.min(), every_value.max())
            filled = over("contourf")(*data, levels=levels, cmap=RAMP)
        values = rows[plot.value]
        low = values.min()
        high = values.max()
        if _crosses(values, plot.level):
            draw_lines = over("contour")
            draw_lines(
                *data, levels=[plot.level], colors=[line_colour], linewidths=2.2, linestyles=dashes
            )
        if plot.hue:
            side = _side(low, high, plot.level)
            axes.plot([], [], dashes, color=colour, lw=2.2, label=hue + side)
    if plot.hue:
        axes.grid(color="#e4e4e4", lw=0.6)
    return filled


def _check_contour(panel: _Panel) -> None:
    """Raise :class:`BadInput` where points are no surface: for words or for a single value on an
    axis.
    """
    for name in (str(panel.plot.x), str(panel.plot.y)):
        if not pd.api.types.is_numeric_dtype(panel.whole[name]):
            message = "a contour needs numbers on both axes; choose heatmap"
            raise BadInput.at(panel.points.name, message, name)
        for _, _, rows in _hues(panel):
            if rows[name].nunique() < 2:
                message = "a contour needs two values on both axes; choose line"
                raise BadInput.at(panel.points.name, message, name)


def _crosses(values: Any, level: float) -> bool:
    """Return whether a line at ``level`` separates some of the values from others."""
    return bool(values.min() < level <= values.max())


def _side(low: float, high: float, level: float) -> str:
    """Return on which side of ``level`` all values lie, from ``low`` to ``high``; empty where the
    line separates them.
    """
    if low < level <= high:
        return ""
    if low >= level:
        return ": above everywhere"
    return ": below everywhere"


def _surface(
    axes: Axes, rows: Frame, plot: Plot, points: SweepTable
) -> tuple[Any, tuple[Any, ...]]:
    """Return the methods that draw over these points, and their data: a grid, or points
    anywhere.
    """
    if points.file.combine == "latin_hypercube":
        anywhere = (rows[plot.x], rows[plot.y], rows[plot.value])
        return lambda verb: getattr(axes, f"tri{verb}"), anywhere
    xs = _values(rows, plot.x)
    ys = _values(rows, plot.y)
    values = np.ma.masked_invalid(_grid(rows, plot, xs, ys))
    return lambda verb: getattr(axes, verb), (xs, ys, values)


def _pareto(panel: _Panel) -> None:
    """Draw every point, and the front of those that no point beats in both metrics, with the
    settings of up to ``NAMED``.
    """
    axes = panel.axes
    plot = panel.plot
    for (colour, marker, _), hue, rows in _hues(panel):
        drawn: PlainData = {
            "ls": "none",
            "marker": marker,
            "ms": 3.5,
            "color": colour,
            "alpha": 0.55,
            "mew": 0,
        }
        axes.plot(rows[plot.x], rows[plot.y], label=hue, **drawn)
    front = _front(panel.rows, str(plot.x), str(plot.y))
    rings: PlainData = {"marker": "o", "mfc": "none", "ms": 6}
    axes.plot(front[plot.x], front[plot.y], "-", color=GREY, lw=1.2, label="front", **rings)
    _logarithmic_where_far(axes.xaxis, panel.whole[plot.x])
    _logarithmic_where_far(axes.yaxis, panel.whole[str(plot.y)])
    evenly_spaced = np.linspace(0, len(front) - 1, min(NAMED, len(front)))
    chosen = sorted({round(index) for index in evenly_spaced})
    for letter, at in zip(ascii_uppercase, chosen, strict=False):
        row = front.iloc[at]
        settings = []
        for key in panel.points.axes:
            if key != plot.facet:
                settings.append(f"{_short(key)} {_quantity(key, row[key])}")
        place = (row[plot.x], row[plot.y])
        panel.labels.append(PointLabel(letter, *place, {"size": 8}))
        axes.plot([], [], ls="none", label=f"{letter}: {', '.join(settings)}")
    axes.margins(0.06, 0.1)


def _logarithmic_where_far(axis: Any, values: Any) -> None:
    """Make an axis logarithmic where its values are ``FAR`` apart."""
    if not 0.0 < FAR * values.min() < values.max():
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _front(part: Frame, x: str, y: str) -> Frame:
    """Return the points that none is at least as good as in both metrics and better in one, by
    ``x``.
    """
    costs = pd.DataFrame({"x": _cost(part, x), "y": _cost(part, y)})
    ranked = costs.sort_values(["x", "y"])
    least_before = ranked.y.cummin().shift(fill_value=np.inf)
    unbeaten = ranked.index[ranked.y < least_before]
    return part.loc[unbeaten].sort_values(x)


def _cost(part: Frame, column: str) -> Any:
    """Return a metric with the sign with which less of it is better."""
    metric = part[column].astype(float)
    if _less_is_better(column):
        return metric
    return -metric


KINDS: Mapping[str, Callable[[_Panel], Any]] = {
    "line": _line,
    "heatmap": _heatmap,
    "contour": _contour,
    "pareto": _pareto,
}
"""What draws a panel, by kind of plot."""


# ---- what panels have in common


def _hues(panel: _Panel) -> Iterator[tuple[Look, str, Frame]]:
    """Yield look, name and rows of each line; where there are many, colours go from dark to
    light.
    """
    hue = panel.plot.hue
    if not hue:
        yield look(0), "", panel.rows
        return
    values = _values(panel.whole, hue)
    for index, value in enumerate(values):
        rows = panel.rows[panel.rows[hue] == value]
        drawn = look(index)
        if len(values) > len(COLOURS):
            shade = mpl.colormaps[RAMP](0.92 * index / (len(values) - 1))
            drawn = drawn._replace(colour=to_hex(shade))
        if len(rows):
            yield drawn, _text(value), rows


def _scale(axis: Any, values: Any, room: int) -> dict[Any, int] | None:
    """Set an axis' ticks at its values, logarithmic for equal ratios; for words, return the place
    of each.
    """
    if not pd.api.types.is_numeric_dtype(values):
        places = {value: index for index, value in enumerate(dict.fromkeys(values))}
        axis.set_ticks(range(len(places)), [_text(value) for value in places])
        return places
    numbers = sorted(set(values))
    if len(numbers) > 2 and numbers[0] > 0 and _uneven(np.log(numbers)) < _uneven(numbers):
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_minor_locator(NullLocator())
    if len(numbers) <= 2 * CELLS:
        axis.set_ticks(numbers[:: ceil(len(numbers) / room)])
    axis.set_major_formatter(FuncFormatter(lambda value, _: _text(float(f"{value:.4g}"))))
    return None


def _uneven(values: ArrayLike) -> float:
    """Return the standard deviation of the distances between neighbours over their mean."""
    steps = np.diff(values)
    return float(steps.std() / steps.mean())


def _finish(
    figure: Any, panels: Sequence[Any], columns: int, plot: Plot, note: str, hues: Sequence[str]
) -> None:
    """Name the axes at the edges, and put the legend below and the heading above the panels."""
    _name_axes(panels, columns, plot)
    handles = _legend(panels, hues)
    if handles:
        title = None
        if plot.hue:
            title = label(plot.hue)
        columns_of_legend = min(4, len(handles))
        if plot.kind == "pareto":
            columns_of_legend = 2
        look = {"title": title, "loc": "outside lower center", "ncols": columns_of_legend}
        figure.legend(handles.values(), handles.keys(), **look)
    heading = " · ".join(part for part in (plot.title, note) if part)
    if heading:
        figure.suptitle(heading, size=10, x=0.01, ha="left")


def _name_axes(panels: Sequence[Any], columns: int, plot: Plot) -> None:
    """Name the lower axes of the last row of panels, and the left ones of the first column."""
    for number, axes in enumerate(panels):
        if number + columns >= len(panels):
            axes.set_xlabel(label(plot.x))
            axes.tick_params(labelbottom=True)
        if number % columns == 0:
            lines = label(str(plot.y)).rsplit(", ", 1)
            axes.set_ylabel("\n".join(lines))


def _legend(panels: Sequence[Any], hues: Sequence[str]) -> PlainData:
    """Return what the panels draw by its name, hues in their order and then all else."""
    handles: PlainData = {}
    for axes in panels:
        drawn, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, drawn, strict=True))
    handles.pop("", None)
    order = {hue: number for number, hue in enumerate(hues)}

    def place(name: str) -> int:
        hue, _, _ = name.partition(":")
        return order.get(hue, len(order))

    return {name: handles[name] for name in sorted(handles, key=place)}
