"""Measured and predicted time per token of every live setting as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.report.figures import BLUE, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg

ABOVE, BELOW = -0.14, 0.14
"""Where the two of a setting stand about its row."""


def predicted_beside_measured(points: Sequence[Mapping[str, Any]]) -> str:
    """A row for each setting: rounds as measured with their median, the prediction with its interval; SVG text."""
    names = [f"{one['strategy']} γ = {one['gamma']}" if one["gamma"] else one["strategy"] for one in points]
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(WIDTH_IN, 0.9 + 0.26 * len(points)), layout="constrained")
        axes = drawn.subplots()
        for row, one in enumerate(points):
            first = row == 0
            measured, predicted = one["measured_ms"], median(one["predicted_ms"])
            axes.hlines(
                row + BELOW, *one["interval_ms"], color=ORANGE, lw=4, alpha=0.45, label="90 % interval" if first else ""
            )
            axes.plot(predicted, row + BELOW, "D", mfc="white", mec=VERMILLION, ms=4.5, label="predicted" if first else "")
            axes.plot(measured, [row + ABOVE] * len(measured), "|", color=BLUE, ms=7, label="measured rounds" if first else "")
            axes.plot(median(measured), row + ABOVE, "o", color=BLUE, ms=4, label="their median" if first else "")
        axes.set_yticks(range(len(points)), names)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.set_xlim(left=0.0)
        axes.grid(axis="x", lw=0.4)
        axes.set_xlabel("time per token (ms)")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.2, columnspacing=1.4)
        return svg(drawn)
