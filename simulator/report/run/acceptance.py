"""Acceptance in a run: what the strategy says or chose, and how many draft tokens are kept."""

from functools import partial
from typing import Protocol, runtime_checkable

from simulator.report.blocks import Block, Figure, Paragraph, Section
from simulator.report.run import figures
from simulator.report.wording import share
from simulator.scenario.result.run_result import RunResult

ACCEPTED = "accepted_lengths.svg"


@runtime_checkable
class SaysOfRuns(Protocol):
    """A strategy with this capability has a section of its own on the page of a run."""

    def run_section(self, result: RunResult) -> Section:
        """Return its section of the page."""
        ...

    def left_out_by_law(self) -> str:
        """Return in words what happens in a simulation beside the steps of the law."""
        ...


def of_strategy(result: RunResult) -> Section:
    """Return the strategy's own section, or else what it chose; empty where it has neither."""
    strategy = result.scenario.schedule
    if isinstance(strategy, SaysOfRuns):
        return strategy.run_section(result)
    blocks: list[Block] = []
    chosen = choices(result)
    if chosen:
        blocks.append(Paragraph(chosen))
    return Section("Choices", blocks)


def choices(result: RunResult) -> str:
    """Return the windows that the strategy chose with their shares of all choices in the
    simulation, the most frequent first; nothing where it has no choice.
    """
    counts = result.simulated.choices
    if not counts:
        return ""
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda choice: (-choice[1], choice[0]))
    shares = ", ".join(f"{name} {share(count / total)}" for name, count in ranked)
    return f"Next window (simulation): {shares}."


def kept_tokens(result: RunResult) -> Section:
    """Return the figure of draft tokens kept per window; empty where none is verified."""
    blocks: list[Block] = []
    if result.simulated.accepted:
        figure = partial(figures.accepted_lengths, result.simulated, result.odds)
        blocks = [
            Figure("Accepted draft tokens per verified window", ACCEPTED, figure),
            Paragraph(
                "Bars: simulation. Markers: law with marginal rates, as if positions were "
                "independent."
            ),
        ]
    return Section("How many draft tokens are kept", blocks, terminal=False)
