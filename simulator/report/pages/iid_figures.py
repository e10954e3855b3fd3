"""Error of the i.i.d. formula by drafter and window, as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.acceptance.iid import Independence
from simulator.report.figures import BLUE, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.report.pages.iid import windows
from simulator.report.run_summary import share

LOOKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREY))


def figure(found: Sequence[Independence]) -> str:
    """A line per drafter, a mark per window with its interval; SVG text."""
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(WIDTH_IN, 0.9 + 0.24 * len(found)), layout="constrained")
        axes = drawn.subplots()
        for gamma, (mark, colour) in zip(windows(found), LOOKS * 4, strict=False):
            _marks(axes, found, gamma, mark, colour)
        axes.axvline(0.0, color=GREY, lw=0.8, zorder=0)
        axes.set_yticks(range(len(found)), [f"{one.name}  ({share(one.rate)})" for one in found], size=7.5)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.grid(axis="y", color="#e4e4e4", lw=0.5)
        axes.set_xlabel(
            "i.i.d. formula against recording, tokens per step (%); in brackets: share kept by windows of one token"
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.2, columnspacing=1.4)
        return svg(drawn)


def _marks(axes: Any, found: Sequence[Independence], gamma: int, mark: str, colour: str) -> None:
    held = [(row, error) for row, one in enumerate(found) for error in one.errors if error.gamma == gamma]
    rows, errors = [row for row, _ in held], [error for _, error in held]
    axes.hlines(rows, [e.low_percent for e in errors], [e.high_percent for e in errors], color=colour, lw=1.0, alpha=0.6)
    axes.plot([e.percent for e in errors], rows, mark, color=colour, ms=4, label=f"γ = {gamma}")
