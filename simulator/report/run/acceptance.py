"""What acceptance came to in a run: windows drafted again, choices, draft tokens that are kept."""

from collections.abc import Mapping
from functools import partial

from simulator.core.strategies.common.capabilities import FallbackRate, LosesWindows
from simulator.core.strategies.common.step import Kind
from simulator.report.blocks import Block, Figure, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.run import figures
from simulator.report.wording import share, shown
from simulator.scenario.run import RunResult

ACCEPTED = "accepted_lengths.svg"


def lost_windows(result: RunResult) -> Section:
    """Return how often a window was drafted again, and what the strategy chose; empty for
    strategies that do neither.
    """
    blocks: list[Block] = []
    title = "Choices"
    drafted_again = fallback(result)
    if drafted_again:
        title = "Fallback"
        blocks.append(Paragraph(drafted_again))
    chosen = choices(result)
    if chosen:
        blocks.append(Paragraph(chosen))
    if result.fallback:
        blocks.append(Paragraph(_recording(result)))
        blocks.append(_depths(result))
    return Section(title, blocks)


def fallback(result: RunResult) -> str:
    """Return in words how often a window had to be drafted again; nothing for strategies that never
    have to.
    """
    if not isinstance(result.scenario.schedule, LosesWindows):
        return ""
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


def choices(result: RunResult) -> str:
    """Return the windows that the strategy chose with their shares in the simulation; nothing where
    it has no choice.
    """
    counts = result.simulated.choices
    if not counts:
        return ""
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda choice: (-choice[1], choice[0]))
    shares = ", ".join(f"{name} {share(count / total)}" for name, count in ranked)
    return f"Next window (simulation): {shares}."


def _recording(result: RunResult) -> str:
    return (
        f"On all {result.fallback[0].windows:,} windows of the recording "
        f"(γ = {result.scenario.schedule.window}), by exit depth and κ. The paper's bound, "
        "fallback ≤ 1 − Ω, is about a position and holds there; a step has up to γ + 1 chances. "
        "Wider is never worse; deeper need not be better, so it comes with an interval (95 %, "
        "whole requests resampled)."
    )


def _depths(result: RunResult) -> Table:
    columns: list[Column[FallbackRate]] = [
        Column("exit depth", lambda rate: shown(rate.exit_fraction, ".2f")),
        Column("κ", lambda rate: rate.kappa),
        Column("1 − Ω, all positions", lambda rate: share(rate.off_exit)),
        Column("fallback per position", lambda rate: share(rate.per_position)),
        Column("fallback per step", _per_step),
    ]
    return table(
        "Fallback by exit depth and width", result.fallback, columns, bars=(2, 3), sortable=True
    )


def _per_step(rate: FallbackRate) -> str:
    low = rate.per_step_low * 100
    high = rate.per_step_high * 100
    return f"{share(rate.per_step)} ({low:.1f} to {high:.1f})"


def kept_tokens(result: RunResult) -> Section:
    """Return the figure of draft tokens kept per window; empty where none is verified."""
    blocks: list[Block] = []
    if result.simulated.accepted:
        drawn = partial(figures.accepted_lengths, result.simulated, result.odds)
        blocks = [
            Figure("Accepted draft tokens per verified window", ACCEPTED, drawn),
            Paragraph(
                "Bars: simulation. Markers: law with marginal rates, as if positions were "
                "independent."
            ),
        ]
    return Section("How many draft tokens are kept", blocks, terminal=False)
