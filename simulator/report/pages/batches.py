"""Figures of the batch study as SVG text: speed-up, passes of the target with their tiles, exposed draft time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, SHADE, VERMILLION, WIDTH_IN, svg
from simulator.report.pages.load_figures import LINES
from simulator.report.run_serving import crossed
from simulator.report.run_summary import origin, short_names
from simulator.scenario import Scenario
from simulator.studies.batches import BatchPoint, crossover


def batch_study(points: Sequence[BatchPoint], name: str, edges: Sequence[int] = ()) -> str:
    """Panels over the batch size, on a logarithmic axis; ``edges`` are the sizes at which a pass needs another tile."""
    overhead = any(point.relative_draft_overhead is not None for point in points)
    trees = any(point.fused_trees_ms is not None for point in points)
    with mpl.rc_context(LOOK):
        panels = 2 + overhead + trees
        figure = Figure(figsize=(WIDTH_IN, 2.9 * panels), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True)
        _speedup(axes[0], points, name)
        _passes(axes[1], points, edges)
        if overhead:
            _overhead(axes[2], points)
        if trees:
            _trees(axes[-1], points)
        for one in axes:
            one.set_xscale("log", base=2)
            one.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
            one.set_xlim(points[0].batch / 1.06, points[-1].batch * 1.06)
            one.tick_params(labelbottom=True)
            one.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.4)
        axes[-1].set_xlabel("batch B (requests that decode together)")
        return svg(figure)


def throughput(studies: Sequence[tuple[Scenario, Sequence[BatchPoint]]]) -> str:
    """Tokens per second of scenarios over the batch size, and beside those of the first one."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
        whole, ratio = figure.subplots(2, 1, sharex=True)
        first, names = studies[0][1], short_names([scenario.name for scenario, _ in studies])
        for name, (scenario, points), (colour, marker) in zip(names, studies, LINES * len(studies), strict=False):
            label = f"{name} (acceptance {origin(scenario.acceptance)})"
            for field, style, look in (
                ("law_tokens_per_s", "-", {"label": label}),
                ("simulated_tokens_per_s", marker, {"mfc": "none", "ms": 5}),
            ):
                ours, theirs = ({one.batch: getattr(one, field) for one in held} for held in (points, first))
                sizes = [size for size, rate in ours.items() if rate and theirs.get(size)]
                whole.plot(sizes, [ours[size] for size in sizes], style, color=colour, **look)
                ratio.plot(sizes, [ours[size] / theirs[size] for size in sizes], style, color=colour, **look)
        whole.set_ylabel("tokens per second, all requests")
        whole.set_title("lines: law, prefills left out; marks: simulation", size=8, loc="left", color=GREY)
        ratio.set_ylabel(f"beside {names[0]}")
        ratio.set_xlabel("batch B (requests that decode together)")
        for axes in (whole, ratio):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
            axes.tick_params(labelbottom=True)
        whole.set_ylim(0.0)
        whole.legend(loc="upper left")
        return svg(figure)


def _drawn(axes: Any, points: Sequence[BatchPoint], field: str, style: str, **look: Any) -> None:
    held = [(point.batch, getattr(point, field)) for point in points if getattr(point, field) is not None]
    if held:
        axes.plot(*zip(*held, strict=True), style, **look)


def _speedup(axes: Any, points: Sequence[BatchPoint], name: str) -> None:
    if points[0].vanilla_speedup is not None:
        _drawn(axes, points, "vanilla_speedup", "--", color=GREY, label="vanilla_sd, law")
        _drawn(axes, points, "simulated_vanilla_speedup", "s", mfc="none", mec=GREY, ms=5, label="vanilla_sd, simulation")
    _drawn(axes, points, "speedup", "-", color=BLUE, label=f"{name}, law")
    _drawn(axes, points, "simulated_speedup", "o", mfc="none", mec=VERMILLION, ms=5, label=f"{name}, simulation")
    axes.axhline(1.0, color=GREY, lw=0.8)
    axes.set_ylabel("speed-up over autoregressive")
    axes.set_ylim(0.0)
    first, last = crossover(points)
    if last is not None:
        axes.axvspan(last, points[-1].batch * 1.06, color=SHADE, lw=0, zorder=0)
    axes.text(0.015, 0.06, crossed(first, last, name), ha="left", va="bottom", size=8, transform=axes.transAxes)


def _passes(axes: Any, points: Sequence[BatchPoint], edges: Sequence[int]) -> None:
    rows = {point.batch: point.verify_rows for point in points}
    for edge in edges:
        axes.axvline(edge, color=ORANGE, lw=0.7, zorder=0, label="another tile of rows" if edge == edges[0] else None)
    _drawn(axes, points, "verify_ms", "-", color=BLUE, label="target verifies its windows")
    _drawn(axes, points, "decode_ms", "-.", color=GREY, label="target decodes one token each")
    _drawn(axes, points, "draft_ms", "--", color=GREEN, label="T_draft")
    axes.set_ylabel("law (ms)")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.08)
    top, last = axes.get_ylim()[1], 0.0
    for edge in edges:
        if edge > last * 1.12:
            axes.text(edge, top * 0.99, f"{rows[edge]} rows ", ha="right", va="top", size=7, color=ORANGE, rotation=90)
            last = edge


def _overhead(axes: Any, points: Sequence[BatchPoint]) -> None:
    _drawn(axes, points, "relative_draft_overhead", "-", color=BLUE, label="exposed draft time / T_draft of vanilla_sd, law")
    axes.set_ylabel("relative draft overhead")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.3)
    top, before = axes.get_ylim()[1], None
    for point in points:
        if point.settings != before:
            axes.axvline(point.batch, color=GREY, lw=0.5, ls=":")
            text = point.settings.replace(", ", "\n").replace("kappa", "κ =")
            ends = point.batch > 0.9 * points[-1].batch
            where, side = point.batch * (0.98 if ends else 1.02), "right" if ends else "left"
            axes.text(where, top * (0.8 if ends else 0.98), text, va="top", ha=side, size=7, color=GREY)
            before = point.settings


def _trees(axes: Any, points: Sequence[BatchPoint]) -> None:
    _drawn(axes, points, "apart_trees_ms", "--", color=VERMILLION, label="everybody's re-sampled tree in a pass of its own")
    _drawn(axes, points, "fused_trees_ms", "-", color=BLUE, label="the same, fused")
    _drawn(axes, points, "drafted_trees_ms", "-.", color=GREY, label="drafted trees alone")
    axes.set_ylabel("target in a step, law (ms)")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.08)
