"""Figures of all methods as SVG text: one bar chart, and up to which batch each of them pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from simulator.report.figures import BLUE, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.report.pages.methods import by_origin
from simulator.studies.methods import Crossover, MethodPoint

BAR_IN, PANEL_IN = 0.24, 0.75
HATCH = {"recorded": "", "stand_in": "", "published": "////", "stated": "...."}
SLOWER_FASTER = LinearSegmentedColormap.from_list("slower_faster", [VERMILLION, "#ffffff", BLUE])


def bars(points: Sequence[MethodPoint], title: str) -> str:
    """Speed-up of every method over autoregressive decoding, a panel for each origin of acceptance."""
    parts = list(by_origin(points))
    sizes = [len(held) for _, held in parts] or [1]
    with mpl.rc_context({**LOOK, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH_IN, BAR_IN * sum(sizes) + PANEL_IN * len(sizes) + 0.4), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", size=9)
        rows = figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=[size + 1 for size in sizes])[:, 0]
        for axes, (words, held) in zip(rows, parts, strict=False):
            _bars(axes, words, held)
        rows[-1].set_xlabel("speed-up over autoregressive decoding (simulation)" + _remarks(points), size=8)
        most = max((max(one.speedup, one.published_speedup or 0.0) for one in points), default=1.0)
        rows[-1].set_xlim(0.0, 1.28 * most)
        return svg(figure)


def _remarks(points: Sequence[MethodPoint]) -> str:
    """What marks in the chart stand for."""
    stated = "\ndiamond: published speed-up, on its source's own hardware and software"
    shared = "\n* drafts beside the target on a device of its own, which it does not have here"
    held = [(stated, any(one.published_speedup for one in points)), (shared, any("one lane" in one.relation for one in points))]
    return "".join(text for text, needed in held if needed)


def _bars(axes: Any, words: str, held: Sequence[MethodPoint]) -> None:
    places = np.arange(len(held))
    axes.barh(
        places, [one.speedup for one in held], 0.72, color=BLUE, alpha=0.6, hatch=HATCH[held[0].origin], edgecolor="white"
    )
    stated = [(one.published_speedup, place) for place, one in enumerate(held) if one.published_speedup]
    if stated:
        axes.plot(*zip(*stated, strict=True), "D", mfc="white", mec=VERMILLION, mew=1.2, ms=5)
    for place, one in enumerate(held):
        end = max(one.speedup, one.published_speedup or 0.0)
        text = f"{one.speedup:.2f}: {one.tokens_per_step:.2f} tokens in {one.step_ms:.1f} ms"
        axes.text(end + 0.07, place, text, va="center", size=7, color=GREY)
    axes.axvline(1.0, color=GREY, lw=0.8)
    axes.set_yticks(places, [f"{one.method} *" if one.relation else one.method for one in held])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(labelbottom=True)
    axes.invert_yaxis()
    axes.set_title(words, loc="left", size=8.5)


def batches(studies: Sequence[Crossover], title: str) -> str:
    """Law's speed-up of every method by batch as a strip, with the batch from which on autoregressive decoding is ahead."""
    parts = list(by_origin(studies))
    sizes = [len(held) for _, held in parts] or [1]
    with mpl.rc_context(LOOK):
        height_in = BAR_IN * sum(sizes) + PANEL_IN * len(sizes) + 0.9
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained", dpi=200)
        figure.suptitle(title, x=0.01, ha="left", size=9)
        rows = figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=[size + 1 for size in sizes])[:, 0]
        most = max((point.speedup for one in studies for point in one.points), default=2.0)
        norm, mesh = TwoSlopeNorm(1.0, 0.0, max(1.1, most)), None
        for axes, (words, held) in zip(rows, parts, strict=False):
            mesh = _strips(axes, words, held, norm)
        if mesh is not None:
            bar = figure.colorbar(mesh, ax=rows.tolist(), orientation="horizontal", fraction=0.04, aspect=50, pad=0.02)
            bar.set_label("speed-up over autoregressive decoding of the same batch (law)", size=8)
        rows[-1].set_xlabel(
            "batch B (requests that decode together)\nblack, and at the right: from here on autoregressive decoding is faster\n"
            "orange: up to there, where another tile of rows begins",
            size=8,
        )
        return svg(figure)


def _strips(axes: Any, words: str, held: Sequence[Crossover], norm: TwoSlopeNorm) -> Any:
    mesh = None
    for place, one in enumerate(held):
        sizes = np.array([point.batch for point in one.points], dtype=float)
        edges = np.append(
            np.sqrt(sizes * np.append(sizes[0] ** 2 / sizes[1] if len(sizes) > 1 else 1.0, sizes[:-1])), sizes[-1]
        )
        speedups = np.array([[point.speedup for point in one.points]])
        mesh = axes.pcolormesh(edges, [place - 0.36, place + 0.36], speedups, cmap=SLOWER_FASTER, norm=norm, rasterized=True)
        for edge in one.tile_edges:
            if edge <= (one.for_good or edge):
                axes.plot([before(edge)] * 2, [place + 0.18, place + 0.36], color=ORANGE, lw=1.2)
        _mark(axes, place, one)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    axes.set_yticks(range(len(held)), [one.method for one in held])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(labelbottom=True)
    axes.invert_yaxis()
    axes.set_title(words, loc="left", size=8.5)
    return mesh


def before(size: int) -> float:
    """Where a strip changes from one batch to the next."""
    return float(np.sqrt(size * (size - 1))) if size > 1 else size / np.sqrt(2.0)


def _mark(axes: Any, place: int, one: Crossover) -> None:
    """The first batch at which the method is behind, and the one from which on it stays there."""
    last = one.points[-1].batch
    for size, style in ((one.first, ":"), (one.for_good, "-")):
        if size is not None:
            axes.plot([before(size)] * 2, [place - 0.36, place + 0.36], style, color="black", lw=1.1)
    shown = f"over {last}" if one.for_good is None else str(one.for_good)
    if one.first is not None and one.first != one.for_good:
        shown = f"{one.first}, {shown}"
    axes.annotate(shown, (1.01, place), xycoords=("axes fraction", "data"), va="center", size=7.5, annotation_clip=False)
