"""How often Mirror-SD drafted a window again: a section of the page of a run."""

from collections.abc import Mapping

from simulator.core.strategies.common.step import Kind
from simulator.papers.mirror_sd.fallback import Fallback, FallbackRate
from simulator.report.blocks import Block, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.run.acceptance import choices
from simulator.report.wording import share, shown
from simulator.scenario.result.run_result import RunResult


def fallback_section(result: RunResult) -> Section:
    """Return how often a window was drafted again, what was drafted next, and how often windows
    are lost on the whole recording.
    """
    blocks: list[Block] = [Paragraph(drafted_again(result))]
    chosen = choices(result)
    if chosen:
        blocks.append(Paragraph(chosen))
    if isinstance(result.appendix, Fallback):
        windows = result.appendix.rates[0].windows
        blocks.append(Paragraph(_recording(windows, result.scenario.schedule.window)))
        blocks.append(_depths(result.appendix))
    return Section("Fallback", blocks)


def drafted_again(result: RunResult) -> str:
    """Return in words how often a window had to be drafted again."""
    simulated = result.simulated
    return (
        f"{simulated.missed:,} of {simulated.windows:,} verified windows "
        f"({share(simulated.fallback_per_step)}, simulation) were not covered by the draft tree, "
        "so the next window was drafted again; requests in fallback per step: "
        f"{_missing_per_step(result.law.kinds):.3f} by law (marginal rates), "
        f"{_missing_per_step(simulated.kinds):.3f} in the simulation (a miss at the very end of an "
        "output costs nothing)."
    )


def _missing_per_step(kinds: Mapping[Kind, float] | Mapping[Kind, int]) -> float:
    """Return how many requests of a step have no window on average, weighted by the frequency of
    step kinds.
    """
    missing = 0.0
    steps = 0.0
    for kind, weight in kinds.items():
        bare = kind.bare if kind.name == "fallback" else 0
        missing += (kind.redrafts + bare) * weight
        steps += weight
    return missing / steps


def _recording(windows: int, gamma: int) -> str:
    return (
        f"On all {windows:,} windows of the recording "
        f"(γ = {gamma}), by exit depth and κ. The paper's bound, "
        "fallback ≤ 1 − Ω, is about a position and holds there; a step has up to γ + 1 chances. "
        "Wider is never worse; deeper need not be better, so it comes with an interval (95 %, "
        "whole requests resampled)."
    )


def _depths(fallback: Fallback) -> Table:
    columns: list[Column[FallbackRate]] = [
        Column("exit depth", lambda rate: shown(rate.exit_fraction, ".2f")),
        Column("κ", lambda rate: rate.kappa),
        Column("1 − Ω, all positions", lambda rate: share(rate.off_exit)),
        Column("fallback per position", lambda rate: share(rate.per_position)),
        Column("fallback per step", _per_step),
    ]
    return table(
        "Fallback by exit depth and width", fallback.rates, columns, bars=(2, 3), sortable=True
    )


def _per_step(rate: FallbackRate) -> str:
    low = rate.per_step_low * 100
    high = rate.per_step_high * 100
    return f"{share(rate.per_step)} ({low:.1f} to {high:.1f})"
