"""Speculative Streaming over its tree factor, and on the plane of Eq. (10)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.panels import BLUE, GREY, ORANGE, SHADE, VERMILLION
from simulator.report.wording import Wording
from simulator.strategies.speculative_streaming.laws import parity, speedup_over_two_models
from simulator.studies.streams import StreamPoint, StreamStudy, TwoModels, best, fall

say = Wording("streams")
PAPER_GAMMA = 4
"""App. N's example, drawn where a scenario has no draft to compare with."""
LEVELS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
LABELLED_AT = 30.0
"""R at which the lines of the plane are labelled."""


def page(result: StreamStudy) -> Page:
    """Return the page of the stream study: its picture, what it shows in words, and a table of
    trees.
    """
    trees = sorted(
        {*result.whole, *result.pruned}, key=lambda point: (point.branching, point.kept is not None)
    )
    table = say.table("trees", trees, fastest=(best(result.whole), best(result.pruned)))
    picture = Figure(say("picture"), "streams.svg", lambda: stream_figure(result))
    return Page(
        **say.first_screen(scenario=result.scenario, study=result),
        opening=[picture, Bullets(list(sentences(result)))],
        sections=[Section("Trees", [table, Paragraph(say("legend"))])],
    )


def sentences(study: StreamStudy) -> Iterator[str]:
    """Yield from where trees are slower than the chain, what the streams bring Mirror-SD, and how
    two models compare.
    """
    two = study.two_models
    even = float(parity(two.gamma, two.latency_ratio, two.target_over_single)) if two else None
    yield from say.all(
        "sentences",
        study=study,
        whole=fall(study.whole),
        pruned=fall(study.pruned),
        two=two,
        even=even,
    )


def stream_figure(study: StreamStudy) -> Drawing:
    """Return the speed-up over k, and the plane of Eq. (10) with the scenario's place on it."""
    with canvas(6.4) as figure:
        trees, plane = figure.subplots(2, 1)
        _over_k(trees, study)
        _plane(plane, figure, study.two_models)
        return figure


def _over_k(axes: Any, study: StreamStudy) -> None:
    pruned = f"pruned to {_kept(study.pruned)} nodes"
    curves = (
        (study.whole, "s--", GREY, "whole tree", (-14, -42), "center"),
        (study.pruned, "o-", BLUE, pruned, (6, 5), "left"),
    )
    for points, style, color, label, shift, side in curves:
        axes.plot(
            [p.branching for p in points],
            [p.speedup for p in points],
            style,
            color=color,
            label=label,
            ms=5,
        )
        top = best(points)
        text = f"best at k = {top.branching}: {top.speedup:.2f}"
        place = (top.branching, top.speedup)
        axes.annotate(
            text, place, xytext=shift, textcoords="offset points", size=8, color=color, ha=side
        )
    chain, widest = study.whole[0], study.whole[-1]
    axes.axhline(chain.speedup, color=GREY, lw=0.8, ls=":")
    axes.text(
        widest.branching,
        chain.speedup,
        "the chain, k = 1",
        size=8,
        color=GREY,
        ha="right",
        va="bottom",
    )
    panel(axes, say, "factor_panel", ())
    axes.set_xticks(
        [p.branching for p in study.whole],
        [f"{p.branching}\n{p.nodes:,} nodes" for p in study.whole],
    )


def _kept(points: Sequence[StreamPoint]) -> int:
    """Return the nodes that pruning leaves; those of the largest tree where nothing is pruned."""
    return next(
        (point.kept for point in points if point.kept is not None),
        max(point.nodes for point in points),
    )


def _plane(axes: Any, figure: Drawing, models: TwoModels | None) -> None:
    """Draw by R and zeta/beta how many times as fast streaming is as two models."""
    gamma, over = (models.gamma, models.target_over_single) if models else (PAPER_GAMMA, 1.0)
    ratios, tokens = np.geomspace(1.0, 100.0, 121), np.linspace(0.5, 2.5, 101)
    law = speedup_over_two_models(gamma, ratios[None, :], tokens[:, None], over)
    widths = [2.0 if level == 1.0 else 0.8 for level in LEVELS]
    axes.contourf(ratios, tokens, law, levels=(1.0, 1e9), colors=[SHADE])
    lines = axes.contour(ratios, tokens, law, levels=LEVELS, colors=[BLUE], linewidths=widths)
    places = [(LABELLED_AT, float(parity(gamma, LABELLED_AT, over)) / level) for level in LEVELS]
    axes.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=7, manual=places)
    axes.plot(
        ratios,
        parity(gamma, ratios),
        ":",
        color=ORANGE,
        label="even, were a step of both as long (Eq. 10 as printed)",
    )
    axes.plot([], [], "-", color=BLUE, label="streaming is so many times as fast (Eq. 10)")
    if models:
        label = f"here, with {models.draft} as the draft: {models.speedup:.2f}"
        axes.plot(models.latency_ratio, models.token_ratio, "o", color=VERMILLION, label=label)
    panel(axes, say, "plane_panel", ())
    axes.set_ylim(tokens[0], tokens[-1])
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=1)
