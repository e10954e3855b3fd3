"""The budget study as SVG text: time of both sides, tokens per second in both accountings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, SHADE, VERMILLION, WIDTH_IN, svg
from simulator.studies.budget import BudgetStudy

BOX = {"fc": "white", "alpha": 0.8, "lw": 0}


def budget_figure(studies: Sequence[BudgetStudy]) -> str:
    """Two panels over the budget for every study, one study beside the other."""
    with mpl.rc_context(LOOK):
        width = WIDTH_IN * (1.0 + 0.55 * (len(studies) - 1))
        figure = Figure(figsize=(width, 6.6), layout="constrained")
        panels = figure.subplots(2, len(studies), squeeze=False, height_ratios=(2, 3), sharey="row")
        for study, (times, rates) in zip(studies, panels.T, strict=True):
            _times(times, study)
            _rates(rates, study)
            times.set_title(study.scenario, size=9)
            for axes in (times, rates):
                axes.axvline(study.cost_coefficient, color=GREY, lw=0.8)
                axes.set_xlim(study.points[0].gamma - 0.4, study.points[-1].gamma + 0.4)
                axes.set_ylim(0.0)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
                axes.set_xlabel("budget γ (draft tokens per iteration, one sequence)")
        panels[0, 0].legend(loc="upper left")
        panels[1, 0].legend(loc="lower left")
        panels[0, 0].set_ylabel("time (ms)")
        panels[1, 0].set_ylabel("tokens per second")
        return svg(figure)


def _times(axes: Any, study: BudgetStudy) -> None:
    gammas = [point.gamma for point in study.points]
    axes.plot(gammas, [point.step_ms for point in study.points], "-", color=BLUE, label="mean iteration, law")
    axes.plot(gammas, [point.target_ms for point in study.points], "-.", color=GREY, label="target verifies a sequence")
    axes.plot(gammas, [point.draft_ms for point in study.points], "--", color=GREEN, label="draft writes γ tokens")
    c = study.cost_coefficient
    side = "right" if c > (gammas[0] + gammas[-1]) / 2 else "left"
    axes.text(c, 1.0, f" c = T_target / T_draft = {c:.1f} ", ha=side, va="bottom", size=8, color=GREY)


def _rates(axes: Any, study: BudgetStudy) -> None:
    for count, line, marker, colour, edge in (("verified", "-", "o", BLUE, VERMILLION), ("emitted", "--", "s", ORANGE, ORANGE)):
        law, simulated = study.read(count, "law"), study.read(count, "simulation")
        axes.plot(list(law), list(law.values()), line, color=colour, label=f"{count}, law")
        look = {"mfc": "none", "mec": edge, "ms": 5}
        axes.plot(list(simulated), list(simulated.values()), marker, label=f"{count}, simulation", **look)
    if study.read("verified", "simulation"):
        first, last = study.flat("verified", "simulation")
        axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
        most = tuple(study.best(count, "simulation") for count in ("verified", "emitted"))
        text = f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        text += "most verified at γ = {}, emitted at γ = {} (simulation)".format(*most)
        axes.text(0.985, 0.27, text, ha="right", va="bottom", size=8, transform=axes.transAxes, bbox=BOX)
