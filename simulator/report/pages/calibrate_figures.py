"""Measured layers beside what a fit says of them, as SVG text."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from simulator.evidence.calibrate import fit
from simulator.report.figures import BLUE, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg

MOST_TOKENS = 512
"""Shown."""


def figure(layers: pd.DataFrame) -> str:
    """The products of a layer by token count: measured, fitted, as before and by the datasheet; SVG text."""
    shown = layers[layers.tokens <= MOST_TOKENS]
    groups = [(model, ranks, some) for (model, ranks), some in shown.groupby(fit.LAYER[:2]) if ranks in _ends(shown, model)]
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(WIDTH_IN, 0.4 + 2.3 * -(-len(groups) // 2)), layout="constrained")
        axes = drawn.subplots(-(-len(groups) // 2), 2, squeeze=False, sharex=True).ravel()
        for one, (model, ranks, some) in zip(axes, groups, strict=False):
            one.plot(some.tokens, some.sheet * 1e6, ":", color=GREY, lw=1.0, label="datasheet")
            one.plot(some.tokens, some.like * 1e6, "--", color=ORANGE, lw=1.1, label="like")
            one.plot(some.tokens, some.predicted * 1e6, "-", color=BLUE, lw=1.3, label="fitted")
            one.plot(some.tokens, some.seconds * 1e6, ".", color=VERMILLION, ms=2.5, label="measured")
            one.set_title(f"{model}, TP {ranks:g}", size=8.5)
            one.set_ylim(bottom=0.0)
            one.xaxis.set_major_locator(MultipleLocator(64))
            one.tick_params(labelsize=7.5)
        for one in axes[len(groups) :]:
            one.set_visible(False)
        drawn.supxlabel("tokens", size=9)
        drawn.supylabel("products of a layer (µs)", size=9)
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
        return svg(drawn)


def _ends(shown: pd.DataFrame, model: object) -> tuple[float, float]:
    """The smallest and the largest degree measured of a model."""
    ranks = shown[shown.model == model].tensor_parallel
    return float(ranks.min()), float(ranks.max())
