"""Speculative Streaming over its tree factor, and on the plane of Eq. (10)."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.papers.speculative_streaming.laws import parity, speedup_over_two_models
from simulator.papers.speculative_streaming.streams import (
    StreamPoint,
    StreamStudy,
    TwoModels,
    best,
    fall,
)
from simulator.report.blocks import Bullets, Figure, Highlight, Page, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREY, ORANGE, SHADE, VERMILLION, dress
from simulator.report.wording import number

PAPER_GAMMA = 4
"""App. N's example, drawn where a scenario has no draft to compare with."""
LEVELS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
LABELLED_AT = 30.0
"""R at which the lines of the plane are labelled."""


LEGEND = (
    "Replay of recorded streams. tokens: per step; plain steps: a step in units of one of "
    "autoregressive decoding."
)


def page(result: StreamStudy) -> Page:
    """Return the page of the stream study: its picture, what it shows in words, and a table of
    trees.
    """
    picture = Figure(
        "Speed-up over k, and streaming against two models",
        "streams.svg",
        lambda: stream_figure(result),
    )
    return Page(
        f"{result.scenario}: streams over the tree factor k",
        answer=headline(result),
        highlights=list(highlights(result)),
        opening=[picture, Bullets(list(sentences(result)))],
        sections=[Section("Trees", [_trees(result), Paragraph(LEGEND)])],
    )


def headline(study: StreamStudy) -> str:
    """Return the best pruned tree and the best whole one, with their speed-ups."""
    pruned = best(study.pruned)
    whole = best(study.whole)
    return (
        f"Pruned, k = {pruned.branching} is best: {pruned.speedup:.2f} times autoregressive "
        f"decoding; unpruned, k = {whole.branching}: {whole.speedup:.2f} times."
    )


def highlights(study: StreamStudy) -> Iterator[Highlight]:
    """Yield the speed-ups of the best pruned tree, of the best whole one, and of the chain."""
    pruned = best(study.pruned)
    whole = best(study.whole)
    chain = study.whole[0]
    yield Highlight(f"{pruned.speedup:.2f} ×", f"as fast, pruned, with k = {pruned.branching}")
    yield Highlight(f"{whole.speedup:.2f} ×", f"as fast with whole trees, k = {whole.branching}")
    yield Highlight(f"{chain.speedup:.2f} ×", "as fast without a tree, k = 1")


def _trees(study: StreamStudy) -> Table:
    """Return the table of trees by k, whole ones before pruned ones."""

    def whole_first(point: StreamPoint) -> tuple[int, bool]:
        return point.branching, point.kept is not None

    distinct = {*study.whole, *study.pruned}
    trees = sorted(distinct, key=whole_first)
    fastest = (best(study.whole), best(study.pruned))
    columns: list[Column[StreamPoint]] = [
        Column("k", lambda point: point.branching),
        Column("nodes", lambda point: f"{point.nodes:,}"),
        Column("kept", lambda point: "all" if point.kept is None else point.kept),
        Column("tokens", lambda point: number(point.tokens_per_step, 3)),
        Column("step (ms)", lambda point: number(point.step_ms)),
        Column("plain steps", lambda point: f"{point.step_cost:.3f}"),
        Column("ms/token", lambda point: number(point.tpot_ms)),
        Column("speed-up", lambda point: f"{point.speedup:.2f}"),
        Column("", lambda point: "best" if point in fastest else ""),
    ]
    return table("Trees, whole and pruned", trees, columns)


def sentences(study: StreamStudy) -> Iterator[str]:
    """Yield from where trees are slower than the chain, what the streams bring Mirror-SD, and how
    two models compare.
    """
    whole = _slower(study.whole)
    pruned = _slower(study.pruned)
    yield f"Slower than the chain (k = 1): whole trees {whole}, pruned ones {pruned}."
    streams = "a stream"
    if len(study.emitted) > 1:
        streams = f"1 to {len(study.emitted)} streams"
    tokens = ", ".join(f"{tokens:.2f}" for tokens in study.emitted)
    yield (
        f"As the drafter of mirror_sd, with {streams}: {tokens} tokens per internal step "
        "(strategy.drafter.emitted)."
    )
    if study.two_models:
        yield _against(study.two_models)


def _slower(points: Sequence[StreamPoint]) -> str:
    """Return from which k on trees are slower than the chain."""
    first = fall(points)
    if first is None:
        return f"nowhere up to k = {points[-1].branching}"
    return f"from k = {first.branching} on"


def _against(models: TwoModels) -> str:
    """Return how streaming compares with a draft model and as long a window."""
    even = float(parity(models.gamma, models.latency_ratio, models.target_over_single))
    latency_ratio = number(models.latency_ratio, 3)
    target_over_single = number(models.target_over_single, 3)
    token_ratio = number(models.token_ratio, 3)
    even_at = number(even, 3)
    speedup = number(models.speedup, 3)
    return (
        f"With {models.draft} as the draft of {models.gamma} tokens: R = {latency_ratio}, "
        f"C_target / C_ss = {target_over_single}, zeta / beta = {token_ratio} (even at {even_at}): "
        f"streaming is {speedup} times as fast (Eq. 10, law)."
    )


def stream_figure(study: StreamStudy) -> Drawing:
    """Return the speed-up over k, and the plane of Eq. (10) with the scenario's place on it."""
    with canvas(6.4) as figure:
        trees, plane = figure.subplots(2, 1)
        _over_k(trees, study)
        _plane(plane, figure, study.two_models)
        return figure


def _over_k(axes: Axes, study: StreamStudy) -> None:
    pruned = f"pruned to {_kept(study.pruned)} nodes"
    curves = (
        (study.whole, "s--", GREY, "whole tree", (-14, -42), "center"),
        (study.pruned, "o-", BLUE, pruned, (6, 5), "left"),
    )
    for points, style, color, label, shift, side in curves:
        branchings = [point.branching for point in points]
        speedups = [point.speedup for point in points]
        axes.plot(branchings, speedups, style, color=color, label=label, ms=5)
        top = best(points)
        text = f"best at k = {top.branching}: {top.speedup:.2f}"
        place = (top.branching, top.speedup)
        axes.annotate(
            text, place, xytext=shift, textcoords="offset points", size=8, color=color, ha=side
        )
    chain = study.whole[0].speedup
    widest = study.whole[-1].branching
    axes.axhline(chain, color=GREY, lw=0.8, ls=":")
    axes.text(widest, chain, "the chain, k = 1", size=8, color=GREY, ha="right", va="bottom")
    dress(
        axes,
        x_label="tree factor k (tokens of a stream), and nodes of the whole tree",
        y_label="speed-up over autoregressive",
        levels=(1.0,),
        ylim=(0.0, None),
        room=1.1,
        legend_columns=2,
    )
    ticks = [point.branching for point in study.whole]
    labels = [f"{point.branching}\n{point.nodes:,}" for point in study.whole]
    axes.set_xticks(ticks, labels)


def _kept(points: Sequence[StreamPoint]) -> int:
    """Return the nodes that pruning leaves; those of the largest tree where nothing is pruned."""
    for point in points:
        if point.kept is not None:
            return point.kept
    return max(point.nodes for point in points)


def _plane(axes: Axes, figure: Drawing, models: TwoModels | None) -> None:
    """Draw by R and zeta/beta how many times as fast streaming is as two models."""
    gamma = PAPER_GAMMA
    over = 1.0
    if models:
        gamma = models.gamma
        over = models.target_over_single
    ratios = np.geomspace(1.0, 100.0, 121)
    tokens = np.linspace(0.5, 2.5, 101)
    law = speedup_over_two_models(gamma, ratios[None, :], tokens[:, None], over)
    widths = [2.0 if level == 1.0 else 0.8 for level in LEVELS]
    axes.contourf(ratios, tokens, law, levels=(1.0, 1e9), colors=[SHADE])
    lines = axes.contour(ratios, tokens, law, levels=LEVELS, colors=[BLUE], linewidths=widths)
    even_there = float(parity(gamma, LABELLED_AT, over))
    places = [(LABELLED_AT, even_there / level) for level in LEVELS]
    axes.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=7, manual=places)
    as_printed = parity(gamma, ratios)
    label = "even, were a step of both as long (Eq. 10 as printed)"
    axes.plot(ratios, as_printed, ":", color=ORANGE, label=label)
    axes.plot([], [], "-", color=BLUE, label="streaming is so many times as fast (Eq. 10)")
    if models:
        label = f"here, with {models.draft} as the draft: {models.speedup:.2f}"
        axes.plot(models.latency_ratio, models.token_ratio, "o", color=VERMILLION, label=label)
    dress(
        axes,
        x_label="R: pass of the target over one of the draft",
        y_label="ζ / β: tokens per step,\ntwo models over one",
        log_x=10,
    )
    axes.set_ylim(tokens[0], tokens[-1])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=1)
