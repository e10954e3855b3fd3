"""The batch at which methods stop paying: a table and a strip per method."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure as Drawing

from simulator.core.plain import PlainData
from simulator.report.blocks import Bullets, Figure, Highlight, Page, Section, Table
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.pages.methods import (
    by_origin,
    label_rows,
    left_out,
    row_panels,
    rows_in,
    yes_no,
)
from simulator.report.panels import BLUE, ORANGE, VERMILLION, logarithmic
from simulator.studies.crossovers import Crossover, CrossoverStudy

LEGEND = "By law of the step, with the tokens a step that a replay of one request at a time commits"
MAP = "speed-up over autoregressive decoding of the same batch (law)"
AXIS = """batch B (requests that decode together)
black, and at the right: from here on autoregressive decoding is faster
orange: up to there, where another tile of rows begins"""
SLOWER_FASTER = LinearSegmentedColormap.from_list("slower_faster", [VERMILLION, "#ffffff", BLUE])


def page(result: CrossoverStudy) -> Page:
    """Return the page of crossovers: their picture, which method pays longest, and a table per
    origin of acceptance.
    """
    methods = result.crossovers
    title = f"{result.scenario}: {result.conditions}"
    sections = [Section(words, [_methods(chosen)]) for words, chosen in by_origin(methods)]
    notes = Section("How to read it", [Bullets([LEGEND, *left_out(result.excluded)])])
    drawing = "Speed-up of all methods by batch"
    picture = Figure(drawing, "crossovers.svg", lambda: strip_figure(methods, title))
    return Page(
        f"Up to which batch each method is worth using on {title}",
        answer=headline(methods),
        highlights=list(highlights(methods)),
        opening=[picture, Bullets(list(sentences(methods)))],
        sections=[*sections, notes],
    )


def _falling_behind(methods: Sequence[Crossover]) -> list[tuple[int, Crossover]]:
    """Return the methods that fall behind, each after the first batch at which it does, in that
    order.
    """
    behind = [(method.first, method) for method in methods if method.first is not None]
    return sorted(behind, key=lambda pair: pair[0])


def _never_behind(methods: Sequence[Crossover]) -> list[Crossover]:
    return [method for method in methods if method.first is None]


def headline(methods: Sequence[Crossover]) -> str:
    """Return which method stays ahead longest, and which falls behind first."""
    behind = _falling_behind(methods)
    never = _never_behind(methods)
    if never:
        best = never[0]
        largest = best.points[-1].batch
        answer = (
            f"By law {len(never)} of {len(methods)} methods are faster than plain decoding up to "
            f"B = {largest}, {best.method} by most"
        )
    elif behind:
        size, last = behind[-1]
        answer = f"By law {last.method} stays ahead longest, up to B = {size - 1}"
    else:
        answer = "No method has a law here"
    if behind:
        size, first = behind[0]
        answer += f"; {first.method} is the first to fall behind, at B = {size}"
    return f"{answer}."


def highlights(methods: Sequence[Crossover]) -> Iterator[Highlight]:
    """Yield where the first and the last method fall behind, and how many never do."""
    behind = _falling_behind(methods)
    if behind:
        first_size, first = behind[0]
        last_size, last = behind[-1]
        yield Highlight(f"B = {first_size}", f"where {first.method} falls behind, the first")
        yield Highlight(f"B = {last_size}", f"where {last.method} falls behind, the last that does")
    yield Highlight(str(len(_never_behind(methods))), f"of {len(methods)} never fall behind")


def _methods(methods: Sequence[Crossover]) -> Table:
    columns: list[Column[Crossover]] = [
        Column("method", lambda method: method.method),
        Column("rows per request", _rows_per_request),
        Column("speed-up at B = 1", lambda method: f"{method.points[0].speedup:.2f}"),
        Column("slower from B =", lambda method: _from(method, method.first)),
        Column("for good from B =", lambda method: _from(method, method.for_good)),
        Column("where a tile ends", _at_a_tile),
    ]
    return table("Methods, the one that stays ahead longest first", methods, columns)


def _rows_per_request(method: Crossover) -> int:
    first = method.points[0]
    return first.verify_rows // first.batch


def _from(method: Crossover, size: int | None) -> str:
    """Return a batch; where there is none, that it lies beyond the largest."""
    if size is None:
        return f"over {method.points[-1].batch}"
    return str(size)


def _at_a_tile(method: Crossover) -> str:
    if method.for_good is None:
        return ""
    return yes_no(method.for_good in method.tile_edges)


def sentences(methods: Sequence[Crossover]) -> Iterator[str]:
    """Yield which methods fall behind first, last and never, a sentence per origin of
    acceptance.
    """
    for words, chosen in by_origin(methods):
        behind = sorted((size, method.method) for size, method in _falling_behind(chosen))
        never = sorted(method.method for method in _never_behind(chosen))
        clauses = []
        if behind:
            size, name = behind[0]
            clauses.append(f"{name} falls behind first, from {size} requests on")
        if len(behind) > 1:
            size, name = behind[-1]
            clauses.append(f"{name} last, from {size} on")
        if never:
            largest = chosen[0].points[-1].batch
            clauses.append(f"never up to {largest}: {', '.join(never)}")
        yield f"{words}: {'; '.join(clauses)}."


def strip_figure(methods: Sequence[Crossover], title: str) -> Drawing:
    """Return the law's speed-up of all methods by batch as strips, marked where autoregressive
    decoding is ahead.
    """
    parts = list(by_origin(methods))
    sizes = [len(chosen) for _, chosen in parts] or [1]
    with canvas(rows_in(sizes) + 0.9, dpi=200) as figure:
        figure.suptitle(title, x=0.01, ha="left", size=9)
        panels = row_panels(figure, sizes)
        speedups = [point.speedup for method in methods for point in method.points]
        norm = TwoSlopeNorm(1.0, 0.0, max(1.1, max(speedups, default=2.0)))
        mesh = None
        for axes, (words, chosen) in zip(panels, parts, strict=False):
            mesh = _strips(axes, words, chosen, norm)
        if mesh is not None:
            below: PlainData = {"orientation": "horizontal", "fraction": 0.04, "pad": 0.02}
            bar = figure.colorbar(mesh, ax=panels.tolist(), aspect=50, **below)
            bar.set_label(MAP, size=8)
        panels[-1].set_xlabel(AXIS, size=8)
        return figure


def _strips(axes: Axes, words: str, methods: Sequence[Crossover], norm: TwoSlopeNorm) -> Any:
    mesh = None
    for place, method in enumerate(methods):
        speedups = np.array([[point.speedup for point in method.points]])
        heights = [place - 0.36, place + 0.36]
        look: PlainData = {"cmap": SLOWER_FASTER, "norm": norm, "rasterized": True}
        mesh = axes.pcolormesh(_edges(method), heights, speedups, **look)
        for edge in method.tile_edges:
            if method.for_good is None or edge <= method.for_good:
                at = before(edge)
                axes.plot([at, at], [place + 0.18, place + 0.36], color=ORANGE, lw=1.2)
        _mark(axes, place, method)
    logarithmic(axes, 2)
    label_rows(axes, words, [method.method for method in methods])
    return mesh


def _edges(method: Crossover) -> Any:
    """Return where the colours of a strip change: the geometric means of neighbouring sizes, and
    the last size.
    """
    sizes = np.array([point.batch for point in method.points], dtype=float)
    below = 1.0
    if len(sizes) > 1:
        below = sizes[0] ** 2 / sizes[1]
    smaller = np.append(below, sizes[:-1])
    return np.append(np.sqrt(sizes * smaller), sizes[-1])


def before(size: int) -> float:
    """Return the place between a batch and the next smaller one on a logarithmic axis."""
    if size > 1:
        return float(np.sqrt(size * (size - 1)))
    return float(size / np.sqrt(2.0))


def _mark(axes: Axes, place: int, method: Crossover) -> None:
    """Mark the first batch at which the method is behind, and the batch from which on it stays
    there.
    """
    for size, style in ((method.first, ":"), (method.for_good, "-")):
        if size is not None:
            at = before(size)
            axes.plot([at, at], [place - 0.36, place + 0.36], style, color="black", lw=1.1)
    text = _from(method, method.for_good)
    if method.first is not None and method.first != method.for_good:
        text = f"{method.first}, {text}"
    beside: PlainData = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
    axes.annotate(text, (1.01, place), va="center", size=7.5, **beside)
