"""The batch at which methods stop paying: a table and a strip per method."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Section
from simulator.report.drawing import canvas
from simulator.report.pages.methods import BAR_IN, PANEL_IN, by_origin, label_rows, left_out
from simulator.report.panels import BLUE, ORANGE, VERMILLION, logarithmic
from simulator.report.wording import Wording
from simulator.studies.crossovers import Crossover, CrossoverStudy

say = Wording("crossovers")
SLOWER_FASTER = LinearSegmentedColormap.from_list("slower_faster", [VERMILLION, "#ffffff", BLUE])


def page(result: CrossoverStudy) -> Page:
    """Return the page of crossovers: their picture, which method pays longest, and a table per
    origin of acceptance.
    """
    methods, title = result.crossovers, f"{result.scenario}: {result.conditions}"
    sections = [
        Section(words, [say.table("methods", chosen)]) for words, chosen in by_origin(methods)
    ]
    notes = Section("How to read it", [Bullets([say("legend"), *left_out(result.excluded)])])
    picture = Figure(say("picture"), "crossovers.svg", lambda: strip_figure(methods, title))
    said = Bullets(list(sentences(methods)))
    return Page(
        **say.first_screen(on=title, methods=methods),
        opening=[picture, said],
        sections=[*sections, notes],
    )


def sentences(methods: Sequence[Crossover]) -> Iterator[str]:
    """Yield which methods pay longest and shortest, a sentence per origin of acceptance."""
    for words, chosen in by_origin(methods):
        behind = sorted(
            (method.first, method.method) for method in chosen if method.first is not None
        )
        never = sorted(method.method for method in chosen if method.first is None)
        yield say(
            "sentence", words=words, behind=behind, never=never, last=chosen[0].points[-1].batch
        )


def strip_figure(methods: Sequence[Crossover], title: str) -> Drawing:
    """Return the law's speed-up of all methods by batch as strips, marked where autoregressive
    decoding is ahead.
    """
    parts = list(by_origin(methods))
    sizes = [len(chosen) for _, chosen in parts] or [1]
    height_in = BAR_IN * sum(sizes) + PANEL_IN * len(sizes) + 0.9
    with canvas(height_in, dpi=200) as figure:
        figure.suptitle(title, x=0.01, ha="left", size=9)
        panels = figure.subplots(
            len(sizes), 1, sharex=True, squeeze=False, height_ratios=[size + 1 for size in sizes]
        )[:, 0]
        speedups = [point.speedup for method in methods for point in method.points]
        norm, mesh = TwoSlopeNorm(1.0, 0.0, max(1.1, max(speedups, default=2.0))), None
        for axes, (words, chosen) in zip(panels, parts, strict=False):
            mesh = _strips(axes, words, chosen, norm)
        if mesh is not None:
            bar = figure.colorbar(
                mesh,
                ax=panels.tolist(),
                orientation="horizontal",
                fraction=0.04,
                aspect=50,
                pad=0.02,
            )
            bar.set_label(say("map"), size=8)
        panels[-1].set_xlabel(say("axis"), size=8)
        return figure


def _strips(axes: Any, words: str, methods: Sequence[Crossover], norm: TwoSlopeNorm) -> Any:
    mesh = None
    for place, method in enumerate(methods):
        speedups = np.array([[point.speedup for point in method.points]])
        edges, heights = _edges(method), [place - 0.36, place + 0.36]
        mesh = axes.pcolormesh(
            edges, heights, speedups, cmap=SLOWER_FASTER, norm=norm, rasterized=True
        )
        for edge in method.tile_edges:
            if edge <= (method.for_good or edge):
                axes.plot([before(edge)] * 2, [place + 0.18, place + 0.36], color=ORANGE, lw=1.2)
        _mark(axes, place, method)
    logarithmic(axes, 2)
    label_rows(axes, words, [method.method for method in methods])
    return mesh


def _edges(method: Crossover) -> Any:
    """Return where the colours of a strip change: the geometric means of neighbouring sizes, and
    the last size.
    """
    sizes = np.array([point.batch for point in method.points], dtype=float)
    below = sizes[0] ** 2 / sizes[1] if len(sizes) > 1 else 1.0
    return np.append(np.sqrt(sizes * np.append(below, sizes[:-1])), sizes[-1])


def before(size: int) -> float:
    """Return the place between a batch and the next smaller one on a logarithmic axis."""
    return float(np.sqrt(size * (size - 1))) if size > 1 else size / np.sqrt(2.0)


def _mark(axes: Any, place: int, method: Crossover) -> None:
    """Mark the first batch at which the method is behind, and the batch from which on it stays
    there.
    """
    for size, style in ((method.first, ":"), (method.for_good, "-")):
        if size is not None:
            axes.plot(
                [before(size)] * 2, [place - 0.36, place + 0.36], style, color="black", lw=1.1
            )
    text = f"over {method.points[-1].batch}" if method.for_good is None else str(method.for_good)
    if method.first is not None and method.first != method.for_good:
        text = f"{method.first}, {text}"
    axes.annotate(
        text,
        (1.01, place),
        xycoords=("axes fraction", "data"),
        va="center",
        size=7.5,
        annotation_clip=False,
    )
