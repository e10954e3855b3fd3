"""Figure of a plan as SVG text: what fleets cost against how fast they are, those that keep the SLO and those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.studies.plan.search import Finding
from simulator.studies.plan.study import PlanStudy, limit_name

LOOKS = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "D"), (ORANGE, "^"), ("#CC79A7", "v"), ("#56B4E9", "P"), ("#000000", "X"))

THICK = 0.3
"""Of a bar, where the next one is 1 away."""
LONGEST_OF_THREE = 22
"""Letters of a name for which three stand beside each other."""


def front(found: Sequence[Finding]) -> list[Finding]:
    """Those that nothing beats in cost and time per token at once, cheapest first."""
    best: list[Finding] = []
    for one in sorted(found, key=lambda one: (one.cost_usd_per_hour, _tpot(one))):
        if not best or _tpot(one) < _tpot(best[-1]):
            best.append(one)
    return best


def plan_figure(done: PlanStudy) -> str:
    """Cost against mean time per token, a line for each family; beside it how much of each limit the answer uses."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN * 1.1, 4.2), layout="constrained")
        pareto, limits = figure.subplots(1, 2, width_ratios=(5, 2))
        _pareto(pareto, done)
        _limits(limits, done)
        handles, labels = pareto.get_legend_handles_labels()
        columns = 3 if max(map(len, labels[1:]), default=0) <= LONGEST_OF_THREE else 2
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        return svg(figure)


def _pareto(axes: Any, done: PlanStudy) -> None:
    best = front([one for one in done.sizes if one.kept])
    axes.step(*_points(best), where="post", color=GREY, lw=4.0, alpha=0.25, label="Pareto front of those that keep it")
    for family, (colour, marker) in zip(done.search.by_family, LOOKS * len(done.sizes), strict=False):
        own = [one for one in done.sizes if one.candidate.family == family]
        axes.plot(*_points(own), lw=1.0, color=colour)
        for kept, face in (True, colour), (False, "white"):
            held = [one for one in own if one.kept is kept]
            label = f"{family[1]} on {family[0]}" if kept else None
            axes.plot(*_points(held), marker, ms=6, mfc=face, mec=colour, label=label)
        for one in own:
            axes.annotate(f"{one.replicas}", (one.cost_usd_per_hour, _tpot(one)), (5, 4), textcoords="offset points", size=7)
    at = done.chosen.cost_usd_per_hour, _tpot(done.chosen)
    axes.annotate("answer", at, (-8, -16), textcoords="offset points", ha="center", size=8, weight="bold")
    axes.set_xlabel("USD per hour")
    axes.set_ylabel("mean time per token (ms)")
    axes.set_title("cheapest of each family and its sizes (replicas); hollow: SLO missed", size=8, loc="left", color=GREY)
    axes.margins(0.12)


def _points(found: Sequence[Finding]) -> tuple[list[float], list[float]]:
    return [one.cost_usd_per_hour for one in found], [_tpot(one) for one in found]


def _limits(axes: Any, done: PlanStudy) -> None:
    names = [limit_name(one.limit) for one in done.chosen.measured]
    axes.barh(names, [one.strain * 100 for one in done.chosen.measured], color=BLUE, height=THICK)
    axes.axvline(100.0, color=VERMILLION, lw=1.2)
    for place, one in enumerate(done.chosen.measured):
        text = f"{one.seconds * 1e3:,.0f} of {one.limit.seconds * 1e3:,.0f} ms"
        axes.annotate(text, (0, place + THICK / 2), (2, -3), textcoords="offset points", va="top", size=8)
    axes.set_xlim(0, 110)
    axes.set_xlabel("per cent of the limit")
    axes.set_title("the answer's use of the SLO", size=8, loc="left", color=GREY)
    axes.set_ylim(max(len(names), 2) - 0.33, -0.67)  # one alone is no thicker


def _tpot(one: Finding) -> float:
    return one.outcome.tpot_s * 1e3 if one.outcome else float("inf")
