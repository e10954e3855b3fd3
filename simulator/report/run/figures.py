"""The figures of a run: other windows, and draft tokens that are kept."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from simulator.core.acceptance.sources import Odds
from simulator.report.drawing import canvas
from simulator.report.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SHADE,
    VERMILLION,
    Curve,
    draw,
    dress,
    legend_above,
)
from simulator.report.wording import shown
from simulator.scenario.outcome import Outcome
from simulator.studies.window import SweepPoint


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
            spare = before.overlap_ms - before.draft_ms
            over = point.draft_ms - point.overlap_ms
            return before.gamma + (point.gamma - before.gamma) * spare / (spare + over), last
    return None, last


def _gamma(point: SweepPoint) -> int:
    return point.gamma


def _steps(axes: Axes, points: Sequence[SweepPoint]) -> None:
    main = [point.main_step_ms for point in points]
    mean = [point.law_step_ms for point in points]
    curves = [
        Curve[SweepPoint](lambda point: point.vanilla_step_ms, ":", GREY, "vanilla, law"),
        Curve[SweepPoint](lambda point: point.main_step_ms, "-", BLUE, "step, law"),
        Curve[SweepPoint](
            lambda point: point.simulated_step_ms,
            "o",
            VERMILLION,
            "mean step, simulation",
            hollow=True,
        ),
    ]
    if not np.allclose(main, mean):
        curves[1:2] = [
            Curve(lambda point: point.law_step_ms, "--", ORANGE, "mean step, law"),
            Curve(lambda point: point.main_step_ms, "-", BLUE, "step without fallback, law"),
        ]
    draw(axes, points, _gamma, *curves)
    dress(axes, y_label="step time (ms)")
    others = (step for point in points for step in (point.simulated_step_ms, point.vanilla_step_ms))
    drawn = [*main, *mean, *(step for step in others if step is not None)]
    room = (max(drawn) - min(drawn)) or max(drawn)
    axes.set_ylim(max(0.0, min(drawn) - 0.34 * room), max(drawn) + 0.08 * room)
    _zero_slope(axes, points)


def _zero_slope(axes: Axes, points: Sequence[SweepPoint]) -> None:
    """Shade where T_draft <= Delta, mark gamma*, name the slope behind it."""
    end, star = crossing(points)
    left, right = axes.get_xlim()
    where = 0.015
    side = "left"
    if star is not None:
        axes.axvspan(left, right if end is None else end, color=SHADE, lw=0, zorder=0)
    if star is not None and end is not None:
        axes.axvline(end, color=GREY, lw=0.8)
        where = (end - left) / (right - left)
        side = "right" if where > 0.5 else "left"
        where += -0.012 if side == "right" else 0.012
    axes.text(
        where,
        0.04,
        hidden_up_to(points),
        ha=side,
        va="bottom",
        size=8,
        transform=axes.transAxes,
    )


def hidden_up_to(points: Sequence[SweepPoint]) -> str:
    """Return in words up to which window drafting is hidden, and what a longer one costs."""
    end, star = crossing(points)
    slope = _slope(points)
    if slope is None:
        behind = ""
    else:
        behind = f"T_draft adds {shown(slope, '.3g')} ms per draft token"
    if star is None:
        if behind:
            return f"drafting is not hidden: {behind}"
        return ""
    if end is None:
        return "shaded: T_draft ≤ Δ, drafting is hidden at every window shown"
    beyond = f"\nbeyond, {behind}" if behind else ""
    return f"γ* = {star}: up to here T_draft ≤ Δ is hidden{beyond}"


def _slope(points: Sequence[SweepPoint]) -> float | None:
    """Return the growth of T_draft in ms per draft token over the windows at which it is not
    hidden.
    """
    exposed = []
    for point in points:
        if point.overlap_ms is None or point.draft_ms > point.overlap_ms:
            exposed.append(point)
    if len(exposed) < 2:
        return None
    first = exposed[0]
    last = exposed[-1]
    return (last.draft_ms - first.draft_ms) / (last.gamma - first.gamma)


def _tokens(axes: Axes, points: Sequence[SweepPoint]) -> None:
    draw(
        axes,
        points,
        _gamma,
        Curve[SweepPoint](lambda point: point.vanilla_tpot_ms, ":", GREY, "vanilla, law"),
        Curve[SweepPoint](lambda point: point.law_tpot_ms, "-", BLUE, "law, marginal rates"),
        Curve[SweepPoint](
            lambda point: point.replayed_tpot_ms,
            "x",
            GREEN,
            "law, replayed means",
            look={"ms": 5},
        ),
        Curve[SweepPoint](
            lambda point: point.simulated_tpot_ms, "o", VERMILLION, "simulation", hollow=True
        ),
    )
    dress(axes, y_label="time per token (ms)")
    top = max(_highest_tpot_ms(point) for point in points)
    baseline = points[0].baseline_tpot_ms
    if baseline <= 1.1 * top:
        axes.axhline(baseline, color=GREY, lw=1.0, ls="-.", label="autoregressive, law")
        top = max(top, baseline)
    else:
        note = f"autoregressive, law: {baseline:.1f} ms (above this panel)"
        axes.text(
            0.985, 0.04, note, transform=axes.transAxes, ha="right", va="bottom", size=8, color=GREY
        )
    axes.set_ylim(0.0, top * 1.05)


def _highest_tpot_ms(point: SweepPoint) -> float:
    return max(
        point.law_tpot_ms,
        point.vanilla_tpot_ms or 0.0,
        point.replayed_tpot_ms or 0.0,
        point.simulated_tpot_ms or 0.0,
    )


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
        dress(
            axes,
            x_label="accepted draft tokens per verified window (correction or bonus not counted)",
            y_label="verified windows (%)",
            integers=True,
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
        return figure
