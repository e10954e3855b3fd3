"""The figures of a run: other windows, and draft tokens that are kept."""

from collections.abc import Sequence

import numpy as np

from simulator.core.acceptance.sources import Odds
from simulator.report.chart import Chart, ChartLevel, ChartNote, ChartSeries, Limits, Panel
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, VERMILLION
from simulator.report.wording import shown
from simulator.scenario.outcome import Outcome
from simulator.studies.window import SweepPoint

WINDOW = "window γ (draft tokens)"


def window_sweep(points: Sequence[SweepPoint]) -> Chart:
    """Show step time and time per token against ``gamma``, the zero-slope region shaded."""
    limits = (points[0].gamma - 0.4, points[-1].gamma + 0.4)
    panels = [_steps(points, limits), _tokens(points, limits)]
    return Chart("Step time and time per token against the window", panels)


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


def _steps(points: Sequence[SweepPoint], limits: Limits) -> Panel:
    main = [point.main_step_ms for point in points]
    mean = [point.law_step_ms for point in points]

    def vanilla_ms(point: SweepPoint) -> float | None:
        return point.vanilla_step_ms

    def main_ms(point: SweepPoint) -> float:
        return point.main_step_ms

    def mean_ms(point: SweepPoint) -> float:
        return point.law_step_ms

    def simulated_ms(point: SweepPoint) -> float | None:
        return point.simulated_step_ms

    if np.allclose(main, mean):
        laws = [ChartSeries.over(points, _gamma, main_ms, "step, law", BLUE, "-")]
    else:
        laws = [
            ChartSeries.over(points, _gamma, mean_ms, "mean step, law", ORANGE, "--"),
            ChartSeries.over(points, _gamma, main_ms, "step without fallback, law", BLUE, "-"),
        ]
    series = [
        ChartSeries.over(points, _gamma, vanilla_ms, "vanilla, law", GREY, ":"),
        *laws,
        ChartSeries.over(
            points, _gamma, simulated_ms, "mean step, simulation", VERMILLION, mark="o"
        ),
    ]
    others = (step for point in points for step in (point.simulated_step_ms, point.vanilla_step_ms))
    drawn = [*main, *mean, *(step for step in others if step is not None)]
    room = (max(drawn) - min(drawn)) or max(drawn)
    heights = (max(0.0, min(drawn) - 0.34 * room), max(drawn) + 0.08 * room)
    shaded, marked, note = _zero_slope(points, limits)
    return Panel(
        WINDOW,
        "step time (ms)",
        limits,
        heights,
        series,
        notes=[note],
        shaded=shaded,
        marked=marked,
        whole=True,
    )


def _zero_slope(
    points: Sequence[SweepPoint], limits: Limits
) -> tuple[Limits | None, float | None, ChartNote]:
    """Return the stretch where T_draft <= Delta, where it ends, and what is said of the slope
    behind it.
    """
    end, star = crossing(points)
    left, right = limits
    words = hidden_up_to(points)
    if star is None:
        return None, None, ChartNote(words, 0.015)
    if end is None:
        return limits, None, ChartNote(words, 0.015)
    share = (end - left) / (right - left)
    if share > 0.5:
        note = ChartNote(words, share - 0.012, ends=True)
    else:
        note = ChartNote(words, share + 0.012)
    return (left, end), end, note


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


def _tokens(points: Sequence[SweepPoint], limits: Limits) -> Panel:
    def vanilla_ms(point: SweepPoint) -> float | None:
        return point.vanilla_tpot_ms

    def law_ms(point: SweepPoint) -> float:
        return point.law_tpot_ms

    def replayed_ms(point: SweepPoint) -> float | None:
        return point.replayed_tpot_ms

    def simulated_ms(point: SweepPoint) -> float | None:
        return point.simulated_tpot_ms

    series = [
        ChartSeries.over(points, _gamma, vanilla_ms, "vanilla, law", GREY, ":"),
        ChartSeries.over(points, _gamma, law_ms, "law, marginal rates", BLUE, "-"),
        ChartSeries.over(points, _gamma, replayed_ms, "law, replayed means", GREEN, mark="x"),
        ChartSeries.over(points, _gamma, simulated_ms, "simulation", VERMILLION, mark="o"),
    ]
    top = max(_highest_tpot_ms(point) for point in points)
    baseline = points[0].baseline_tpot_ms
    levels = []
    notes = []
    if baseline <= 1.1 * top:
        levels.append(ChartLevel("autoregressive, law", baseline))
        top = max(top, baseline)
    else:
        words = f"autoregressive, law: {baseline:.1f} ms (above this panel)"
        notes.append(ChartNote(words, 0.985, ends=True, soft=True))
    return Panel(
        WINDOW,
        "time per token (ms)",
        limits,
        (0.0, top * 1.05),
        series,
        levels=levels,
        notes=notes,
        whole=True,
    )


def _highest_tpot_ms(point: SweepPoint) -> float:
    return max(
        point.law_tpot_ms,
        point.vanilla_tpot_ms or 0.0,
        point.replayed_tpot_ms or 0.0,
        point.simulated_tpot_ms or 0.0,
    )


def accepted_lengths(outcome: Outcome, odds: Odds | None) -> Chart:
    """Show the share of verified windows by accepted draft tokens: simulated bars and the law's
    markers.
    """
    longest = max([*outcome.accepted, len(odds.accepted) - 1 if odds else 0])
    lengths = list(range(longest + 1))
    counts = np.array([outcome.accepted.get(length, 0) for length in lengths], dtype=float)
    mean = float(lengths @ counts / counts.sum())
    simulated = list(100 * counts / counts.sum())
    series = [ChartSeries(f"simulation, mean {mean:.2f}", BLUE, lengths, simulated, bars=True)]
    highest = max(simulated)
    if odds is not None:
        label = f"law, {odds.source}, mean {odds.mean_accepted:.2f}"
        law = list(100 * odds.accepted)
        series.append(ChartSeries(label, VERMILLION, lengths[: len(law)], law, mark="D"))
        highest = max([highest, *law])
    panel = Panel(
        "accepted draft tokens per verified window (correction or bonus not counted)",
        "verified windows (%)",
        (-0.7, longest + 0.7),
        (0.0, 1.05 * highest),
        series,
        whole=True,
    )
    return Chart("Accepted draft tokens per verified window", [panel])
