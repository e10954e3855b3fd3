"""What figures share: colours, panels that a page's wording states, axes; and the figures of a
run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from simulator.acceptance.sources import Odds
from simulator.report.drawing import canvas
from simulator.report.panels import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SHADE,
    SKY,
    SMALL,
    VERMILLION,
    YELLOW,
    legend_above,
    logarithmic,
)
from simulator.report.wording import Wording
from simulator.scenario.outcome import Outcome
from simulator.studies.window import SweepPoint

COLOURS = {
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "vermillion": VERMILLION,
    "grey": GREY,
    "purple": PURPLE,
    "sky": SKY,
    "yellow": YELLOW,
    "black": BLACK,
}


say = Wording("run")


def panel(axes: Any, say: Wording, key: str, objects: Sequence[object], **values: object) -> None:
    """Draw the curves that a page's wording states for a panel, each at the objects that have a
    value, and dress the axes.

    A curve has ``x`` and ``y``, expressions over ``one``, ``line`` as matplotlib's ``plot`` takes
    it, ``color`` or the colour of its ``hollow`` marks, and ``label``; what else it states goes to
    ``plot``. ``set`` of a panel goes to ``Axes.set``.
    """
    stated = say.said[key]
    for curve in stated.get("curves", ()):
        look = {
            name: value
            for name, value in curve.items()
            if name not in ("x", "y", "line", "hollow", "label", "color")
        }
        if "hollow" in curve:
            look = {"mfc": "none", "mec": COLOURS[curve["hollow"]], "ms": 5, "ls": "none"} | look
        if "color" in curve:
            look["color"] = COLOURS[curve["color"]]
        label = say.filled(curve["label"], **values) if "label" in curve else None
        if points := say.points(curve.get("x", stated.get("x")), curve["y"], objects, **values):
            axes.plot(*zip(*points, strict=True), curve["line"], label=label, **look)
    _dress(
        axes,
        {
            name: say.filled(text, **values) if isinstance(text, str) else text
            for name, text in stated.items()
        },
    )


def _dress(axes: Any, stated: Mapping[str, Any]) -> None:
    """Give the axes of a panel their names, their scales and their room."""
    axes.set_xlabel(stated.get("x_label", ""))
    axes.set_ylabel(stated.get("y_label", ""))
    if "title" in stated:
        axes.set_title(stated["title"], **SMALL)
    if "log_x" in stated:
        logarithmic(axes, stated["log_x"])
    if stated.get("integers"):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for level in stated.get("levels", ()):
        axes.axhline(level, color=GREY, lw=0.8)
    axes.set(**stated.get("set", {}))
    if "room" in stated:
        axes.set_ylim(top=axes.get_ylim()[1] * stated["room"])
    if "columns" in stated:
        legend_above(axes, stated["columns"])


def window_sweep(points: Sequence[SweepPoint]) -> Drawing:
    """Draw step time and time per token against ``gamma``, the zero-slope region shaded."""
    with canvas(6.0) as figure:
        steps, tokens = figure.subplots(2, 1, sharex=True)
        steps.set_xlim(points[0].gamma - 0.4, points[-1].gamma + 0.4)
        _steps(steps, points)
        _tokens(tokens, points)
        steps.tick_params(labelbottom=True)
        for axes in (steps, tokens):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("window γ (draft tokens)")
            columns = 2 if len(axes.get_legend_handles_labels()[0]) == 4 else 3
            legend_above(axes, columns)
        return figure


def crossing(points: Sequence[SweepPoint]) -> tuple[float | None, int | None]:
    """Return the window at which T_draft reaches Delta, interpolated, and gamma*, the last swept
    window that is hidden.

    The first is None where drafting is hidden at every window, the second where it is never hidden.
    """
    last = None
    for before, point in zip([None, *points], points, strict=False):
        if point.overlap_ms is None:
            return None, None
        if point.draft_ms <= point.overlap_ms:
            last = point.gamma
        elif before is None or before.overlap_ms is None:
            return float(point.gamma), None
        else:
            spare, over = before.overlap_ms - before.draft_ms, point.draft_ms - point.overlap_ms
            return before.gamma + (point.gamma - before.gamma) * spare / (spare + over), last
    return None, last


def _steps(axes: Any, points: Sequence[SweepPoint]) -> None:
    main, mean = [point.main_step_ms for point in points], [point.law_step_ms for point in points]
    panel(axes, say, "steps_panel", points, differ=not np.allclose(main, mean))
    others = (step for point in points for step in (point.simulated_step_ms, point.vanilla_step_ms))
    shown = [*main, *mean, *(step for step in others if step is not None)]
    room = (max(shown) - min(shown)) or max(shown)
    axes.set_ylim(max(0.0, min(shown) - 0.34 * room), max(shown) + 0.08 * room)
    _zero_slope(axes, points)


def _zero_slope(axes: Any, points: Sequence[SweepPoint]) -> None:
    """Shade where T_draft <= Delta, mark gamma*, name the slope behind it."""
    end, star = crossing(points)
    left, right = axes.get_xlim()
    where, side, text = 0.015, "left", say("zero_slope", star=star, end=end, slope=_slope(points))
    if star is not None:
        axes.axvspan(left, right if end is None else end, color=SHADE, lw=0, zorder=0)
    if star is not None and end is not None:
        axes.axvline(end, color=GREY, lw=0.8)
        where = (end - left) / (right - left)
        side = "right" if where > 0.5 else "left"
        where += -0.012 if side == "right" else 0.012
    axes.text(where, 0.04, text, ha=side, va="bottom", size=8, transform=axes.transAxes)


def _slope(points: Sequence[SweepPoint]) -> float | None:
    """Return the growth of T_draft in ms per draft token over the windows at which it is not
    hidden.
    """
    exposed = [
        point for point in points if point.overlap_ms is None or point.draft_ms > point.overlap_ms
    ]
    return (
        None
        if len(exposed) < 2
        else (exposed[-1].draft_ms - exposed[0].draft_ms) / (exposed[-1].gamma - exposed[0].gamma)
    )


def _tokens(axes: Any, points: Sequence[SweepPoint]) -> None:
    panel(axes, say, "tokens_panel", points)
    drawn = ("vanilla_tpot_ms", "law_tpot_ms", "replayed_tpot_ms", "simulated_tpot_ms")
    top = max(getattr(point, name) or 0.0 for point in points for name in drawn)
    baseline = points[0].baseline_tpot_ms
    if baseline <= 1.1 * top:
        axes.axhline(baseline, color=GREY, lw=1.0, ls="-.", label="autoregressive, law")
    else:
        note = f"autoregressive, law: {baseline:.1f} ms (above this panel)"
        axes.text(
            0.985, 0.04, note, transform=axes.transAxes, ha="right", va="bottom", size=8, color=GREY
        )
    axes.set_ylim(0.0, max(top, baseline if baseline <= 1.1 * top else 0.0) * 1.05)


def accepted_lengths(outcome: Outcome, odds: Odds | None) -> Drawing:
    """Draw the share of verified windows by accepted draft tokens: simulated bars and the law's
    markers.
    """
    longest = max([*outcome.accepted, len(odds.accepted) - 1 if odds else 0])
    lengths = np.arange(longest + 1)
    counts = np.array([outcome.accepted.get(int(length), 0) for length in lengths], dtype=float)
    with canvas(2.9) as figure:
        axes = figure.subplots()
        mean = float(lengths @ counts / counts.sum())
        label = f"simulation, mean {mean:.2f}"
        axes.bar(
            lengths, 100 * counts / counts.sum(), width=0.7, color=BLUE, alpha=0.55, label=label
        )
        if odds is not None:
            label = f"law, {odds.source}, mean {odds.mean_accepted:.2f}"
            law = 100 * odds.accepted
            axes.plot(
                lengths[: len(law)],
                law,
                "D",
                mfc="white",
                mec=VERMILLION,
                mew=1.5,
                ms=6,
                label=label,
            )
        panel(axes, say, "accepted_panel", ())
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
        return figure
