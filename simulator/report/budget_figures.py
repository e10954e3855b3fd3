"""The budget study as SVG text: time of both sides, tokens per second in both accountings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, SHADE, VERMILLION, WIDTH_IN, svg
from simulator.sweep_budget import BudgetPoint


def budget_study(points: Sequence[BudgetPoint], found: Mapping[str, Any]) -> str:
    """Two panels over the budget; ``found`` is the summary of the sweep."""
    c = found["cost_coefficient"]
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
        times, rates = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
        times.set_xlim(points[0].gamma - 0.4, points[-1].gamma + 0.4)
        _times(times, points)
        _rates(rates, points, found)
        for axes in (times, rates):
            axes.axvline(c, color=GREY, lw=0.8)
            axes.set_ylim(0.0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("budget γ (draft tokens per iteration, one sequence)")
            axes.tick_params(labelbottom=True)
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.4)
        left, right = times.get_xlim()
        side = "right" if c > (left + right) / 2 else "left"
        text = f" c = T_target / T_draft = {c:.1f} "
        times.text(c, 0.05 * times.get_ylim()[1], text, ha=side, va="bottom", size=8, color=GREY)
        return svg(figure)


def _times(axes: Any, points: Sequence[BudgetPoint]) -> None:
    gammas = [point.gamma for point in points]
    axes.plot(gammas, [point.step_ms for point in points], "-", color=BLUE, label="mean iteration, law")
    axes.plot(gammas, [point.target_ms for point in points], "-.", color=GREY, label="target verifies a sequence")
    axes.plot(gammas, [point.draft_ms for point in points], "--", color=GREEN, label="draft writes γ tokens")
    axes.set_ylabel("time (ms)")


def _rates(axes: Any, points: Sequence[BudgetPoint], found: Mapping[str, Any]) -> None:
    gammas = [point.gamma for point in points]
    looks = (("verified", BLUE, "-", "o", VERMILLION), ("emitted", ORANGE, "--", "s", ORANGE))
    for count, colour, line, marker, edge in looks:
        axes.plot(gammas, [getattr(point, count).law for point in points], line, color=colour, label=f"{count}, law")
        held = [(point.gamma, getattr(point, count).simulation) for point in points if getattr(point, count).simulation]
        look = {"mfc": "none", "mec": edge, "ms": 5}
        axes.plot(*zip(*held, strict=True), marker, label=f"{count}, simulation", **look)
    if "verified_simulation" in found["flat"]:
        first, last = found["flat"]["verified_simulation"]
        axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
        text = f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        most = (found["best"][f"{count}_simulation"] for count in ("verified", "emitted"))
        text += "most at γ = {}, emitted at γ = {} (simulation)".format(*most)
        axes.text(
            0.985,
            0.05,
            text,
            ha="right",
            va="bottom",
            size=8,
            transform=axes.transAxes,
            bbox={"fc": "white", "alpha": 0.8, "lw": 0},
        )
    axes.set_ylabel("tokens per second")
