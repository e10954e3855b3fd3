"""Which window would be best: step time and time per token of other windows."""

from collections.abc import Sequence
from functools import partial

from simulator.report.blocks import Block, Code, Figure, Paragraph, Section, Words
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


def best_window(sweep: Sequence[SweepPoint], gamma: int) -> Words:
    """Return in words which window is best by law, and what that of the scenario, ``gamma``, comes
    to.
    """
    best = min(sweep, key=lambda point: point.law_tpot_ms)
    words = (
        f"Best window by law (marginal rates): γ = {best.gamma} with {number(best.law_tpot_ms)} ms "
        f"per token. This scenario runs γ = {gamma}"
    )
    own = next((point for point in sweep if point.gamma == gamma), None)
    if own and own.simulated_tpot_ms is not None:
        words += (
            f": {number(own.law_tpot_ms)} ms by law, {number(own.simulated_tpot_ms)} ms by "
            "simulation"
        )
    if best.gamma == gamma:
        return f"{words}."
    setting = Code(f"--set strategy.gamma={best.gamma}")
    return f"{words}; ", setting, f" simulates γ = {best.gamma}."


def stated_draft(draft_ms: float, gamma: int) -> Words:
    """Return what is taken for other windows where the time of one is stated."""
    taken = (
        f"The stated draft_ms of {number(draft_ms)} ms is for γ = {gamma}; other windows are taken "
        "in proportion to their internal draft steps, and the stated target time as the same for "
        "all. A run of another window takes "
    )
    return taken, Code("durations.draft_ms"), " as it is stated."
