"""Figure of scenarios under the same load as SVG text: tokens a second against time per token, and its tail."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.report.run_summary import short_names
from simulator.studies.load import Curves

LINES = ((BLUE, "o"), (GREY, "s"), (GREEN, "D"), (VERMILLION, "v"), (ORANGE, "^"), ("#CC79A7", "P"), ("#56B4E9", "X"))


def load_figure(curves: Curves) -> str:
    """Left: a curve for each scenario, its points marked with their clients; right: median and 99th percentile by clients."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN * 1.15, 4.4), layout="constrained")
        trade, tail = figure.subplots(1, 2, sharey=True)
        names = short_names(list(curves))
        for name, points, (colour, marker) in zip(names, curves.values(), LINES * len(curves), strict=False):
            look = {"color": colour, "marker": marker, "ms": 4, "lw": 1.2}
            trade.plot([one.tokens_per_s for one in points], [one.tpot_ms for one in points], "-", label=name, **look)
            tail.plot([one.clients for one in points], [one.tbt_p50_ms for one in points], "-", **look)
            tail.plot([one.clients for one in points], [one.tbt_p99_ms for one in points], ":", **look)
            for one, beside in (points[0], (-9, 4)), (points[-1], (4, 4)):
                at = (one.tokens_per_s, one.tpot_ms)
                trade.annotate(f"{one.clients}", at, beside, textcoords="offset points", size=7, color=colour)
        trade.set_xlabel("tokens per second, all requests")
        trade.set_ylabel("time of one request (ms)")
        trade.set_title("per token, mean; at the ends: clients", size=8, loc="left", color=GREY)
        tail.set_xlabel("clients")
        tail.set_title("between deliveries: median (line), 99th percentile (dots)", size=8, loc="left", color=GREY)
        for axes in (trade, tail):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        figure.legend(loc="outside lower center", ncols=2)
        return svg(figure)
