"""Which window would be best: step time and time per token of other windows."""

from collections.abc import Sequence
from functools import partial

from simulator.report.blocks import Block, Figure, Paragraph, Section
from simulator.report.run import figures
from simulator.report.wording import number
from simulator.scenario.result.run_result import RunResult
from simulator.studies.window import SweepPoint

SWEEP = "window_sweep.svg"


def section(result: RunResult, sweep: Sequence[SweepPoint]) -> Section:
    """Return the figure of other windows, and which window is best; empty without other windows."""
    blocks: list[Block] = []
    if sweep:
        gamma = result.scenario.schedule.window
        durations = result.scenario.durations
        drawn = partial(figures.window_sweep, sweep)
        blocks.append(Figure("Step time and time per token against the window", SWEEP, drawn))
        blocks.append(Paragraph(best_window(sweep, gamma)))
        if durations and durations.draft_ms is not None:
            blocks.append(Paragraph(stated_draft(durations.draft_ms, gamma)))
    return Section("Which window", blocks)


def best_window(sweep: Sequence[SweepPoint], gamma: int) -> str:
    """Return in words which window is best by law and by simulation; ``gamma`` is that of the
    scenario.
    """
    best = min(sweep, key=lambda point: point.law_tpot_ms)
    words = (
        f"Best window by law (marginal rates): γ = {best.gamma} with {number(best.law_tpot_ms)} ms "
        "per token"
    )
    simulated = {
        point.gamma: point.simulated_tpot_ms
        for point in sweep
        if point.simulated_tpot_ms is not None
    }
    if simulated:
        count = max(point.simulated_requests for point in sweep)
        tried = ", ".join(map(str, simulated))
        quickest = min(simulated, key=lambda window: simulated[window])
        words += (
            f"; by simulation ({count} requests at each of γ = {tried}): γ = {quickest} with "
            f"{number(simulated[quickest])} ms"
        )
    return f"{words}. This scenario runs γ = {gamma}."


def stated_draft(draft_ms: float, gamma: int) -> str:
    """Return what is taken for other windows where the time of one is stated."""
    return (
        f"The stated draft_ms of {number(draft_ms)} ms is for γ = {gamma}; other windows are taken "
        "in proportion to their internal draft steps, and the stated target time as the same for "
        "all."
    )
