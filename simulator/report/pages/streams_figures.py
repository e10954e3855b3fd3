"""The study of Speculative Streaming as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from simulator.report.figures import BLUE, GREY, LOOK, ORANGE, SHADE, VERMILLION, WIDTH_IN, svg
from simulator.strategies.speculative_streaming.laws import parity, speedup_over_two_models
from simulator.studies.streams import StreamPoint, StreamStudy, TwoModels, best

PAPER_GAMMA = 4
"""App. N's example, drawn where a scenario has no draft to compare with."""
LEVELS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
LABELLED_AT = 30.0
"""R at which the lines of the plane are labelled."""


def stream_figure(study: StreamStudy) -> str:
    """Speed-up over k, and the plane of Eq. (10) with the scenario's place on it; SVG text."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
        trees, plane = figure.subplots(2, 1)
        _over_k(trees, study)
        _plane(plane, figure, study.two_models)
        return svg(figure)


def _over_k(axes: Any, study: StreamStudy) -> None:
    pruned = f"pruned to {_kept(study.pruned)} nodes"
    curves = (
        (study.whole, "s--", GREY, "whole tree", (-14, -42), "center"),
        (study.pruned, "o-", BLUE, pruned, (6, 5), "left"),
    )
    for points, style, color, label, shift, side in curves:
        axes.plot([p.branching for p in points], [p.speedup for p in points], style, color=color, label=label, ms=5)
        top = best(points)
        text = f"best at k = {top.branching}: {top.speedup:.2f}"
        place = (top.branching, top.speedup)
        axes.annotate(text, place, xytext=shift, textcoords="offset points", size=8, color=color, ha=side)
    axes.axhline(study.whole[0].speedup, color=GREY, lw=0.8, ls=":")
    axes.text(
        study.whole[-1].branching, study.whole[0].speedup, "the chain, k = 1", size=8, color=GREY, ha="right", va="bottom"
    )
    axes.axhline(1.0, color=GREY, lw=0.8)
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.1)
    axes.set_xticks([p.branching for p in study.whole], [f"{p.branching}\n{p.nodes:,} nodes" for p in study.whole])
    axes.set_xlabel("tree factor k (tokens of each stream), and nodes of the whole tree")
    axes.set_ylabel("speed-up over autoregressive")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.4)


def _kept(points: Sequence[StreamPoint]) -> int:
    return next((point.kept for point in points if point.kept is not None), max(point.nodes for point in points))


def _plane(axes: Any, figure: Figure, other: TwoModels | None) -> None:
    """Streaming over two models by R and zeta/beta."""
    gamma, over = (other.gamma, other.target_over_single) if other else (PAPER_GAMMA, 1.0)
    ratios, tokens = np.geomspace(1.0, 100.0, 121), np.linspace(0.5, 2.5, 101)
    law = speedup_over_two_models(gamma, ratios[None, :], tokens[:, None], over)
    widths = [2.0 if level == 1.0 else 0.8 for level in LEVELS]
    axes.contourf(ratios, tokens, law, levels=(1.0, 1e9), colors=[SHADE])
    lines = axes.contour(ratios, tokens, law, levels=LEVELS, colors=[BLUE], linewidths=widths)
    named = [(LABELLED_AT, float(parity(gamma, LABELLED_AT, over)) / level) for level in LEVELS]
    axes.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=7, manual=named)
    axes.plot(ratios, parity(gamma, ratios), ":", color=ORANGE, label="even, were a step of both as long (Eq. 10 as printed)")
    axes.plot([], [], "-", color=BLUE, label="streaming is so many times as fast (Eq. 10)")
    if other:
        axes.plot(
            other.latency_ratio,
            other.token_ratio,
            "o",
            color=VERMILLION,
            label=f"here, with {other.draft} as the draft: {other.speedup:.2f}",
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.set_ylim(tokens[0], tokens[-1])
    axes.set_xlabel("R: pass of the target over one of the draft")
    axes.set_ylabel("ζ / β: tokens per step,\ntwo models over one")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=1)
