"""Figure of scenarios side by side as SVG text: time per token by simulation and law, and the parts of a step."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.report.run_summary import number
from simulator.studies.compare import Comparison, parts_ms

COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, "#CC79A7", "#56B4E9", "#F0E442")
MOST_PARTS = 8
"""Parts of a step that are drawn, the longest; the table beside the figure has all."""


def comparison_figure(found: Comparison) -> str:
    """Left: bars of ms per token with the law and autoregressive decoding marked; right: the longest parts of a step."""
    count, parts = len(found.compared), _longest(found)
    height = 1.4 + max(0.5 * count, 0.13 * len(parts) * (count + 1))
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN * 1.1, min(height, 9.0)), layout="constrained")
        tokens, steps = figure.subplots(1, 2)
        _tokens(tokens, found)
        _parts(steps, found, parts)
        figure.legend(loc="outside lower center", ncols=min(4, count + 2))
        return svg(figure)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _tokens(axes: Any, found: Comparison) -> None:
    for place, one in enumerate(found.compared):
        simulated, law, plain = (each.tpot_s * 1e3 for each in (one.result.simulated, one.result.law, one.result.baseline))
        axes.barh(place, simulated, 0.6, color=_colour(place), label=one.letter)
        known = {} if place else {"label": "law"}
        axes.plot(law, place, "D", ms=5, mfc="white", mec="black", **known)
        if one.result.scenario.schedule.window:
            axes.plot(plain, place, "|", ms=16, mew=2, color=GREY, **({} if place else {"label": "autoregressive"}))
    labels = [f"{one.letter}\n{number(one.result.simulated.tpot_s * 1e3)}" for one in found.compared]
    axes.set_yticks(range(len(found.compared)), labels)
    axes.set_xlabel("time per token (ms)")
    axes.set_title("a token, simulation", size=8, loc="left", color=GREY)
    axes.set_xlim(left=0)
    axes.invert_yaxis()


def _parts(axes: Any, found: Comparison, names: list[str]) -> None:
    thick = 0.8 / len(found.compared)
    for place, one in enumerate(found.compared):
        taken = parts_ms(one.result)
        at = [row - 0.4 + thick * (place + 0.5) for row in range(len(names))]
        axes.barh(at, [taken.get(name, 0.0) for name in names], thick, color=_colour(place))
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("ms in a mean step")
    axes.set_title("its parts; some run side by side", size=8, loc="left", color=GREY)
    axes.invert_yaxis()


def _longest(found: Comparison) -> list[str]:
    """Names of parts in the order of the step, only the longest where there are many."""
    taken = [parts_ms(one.result) for one in found.compared]
    names = list(dict.fromkeys(name for one in taken for name in one))
    kept = sorted(names, key=lambda name: -max(one.get(name, 0.0) for one in taken))[:MOST_PARTS]
    return [name for name in names if name in kept]
