"""What drafts of several sizes are worth as their tokens are kept more often; SVG text."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.studies.drafts import RATES, DraftStudy


def draft_figure(study: DraftStudy) -> str:
    """A curve for each draft; the scenario's own point, and the level that a bigger one has to reach."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 3.8), layout="constrained")
        axes = figure.subplots()
        for one, colour in zip(study.points, (BLUE, VERMILLION, GREEN, ORANGE, "#CC79A7", "#56B4E9"), strict=False):
            axes.plot(
                [rate * 100 for rate in RATES], one.speedups, color=colour, label=f"{one.model}, {one.draft_ms:.2g} ms a token"
            )
            if one.needed is not None:
                axes.plot(one.needed * 100, study.own_speedup, "o", color=colour, ms=5)
        axes.axhline(study.own_speedup, color=GREY, lw=0.8, ls=":")
        axes.axhline(1.0, color=GREY, lw=0.8)
        axes.set_xlabel("draft tokens kept (%)")
        axes.set_ylabel("speed-up over autoregressive decoding")
        axes.set_title("best window for each point; dots: level with the scenario's own draft", size=8, loc="left", color=GREY)
        axes.legend(loc="upper left")
        return svg(figure)
