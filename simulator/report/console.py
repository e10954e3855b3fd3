"""The answer on a terminal: at most 100 columns, nothing that only a colour says."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.report.facts import columns, conditions, fallback, gaps, headline, number, percent
from simulator.run import Result

WIDEST = 100
BAR = 30


def print_result(result: Result, console: Console) -> None:
    """Answer, the four columns, gaps, lanes, fallback, notes."""
    width = min(console.width, WIDEST)

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), width=width)

    say(f"{result.scenario.name}: {result.scenario.strategy.name}", "bold")
    say(headline(result), "bold")
    say(conditions(result), "dim")
    console.print(_answers(result), width=width)
    for gap in gaps(result):
        _item(console, f"{gap.title}: {percent(gap.percent)}; {gap.why}", width)
    console.print(_lanes(result), width=width)
    extra = [f"Fallback: {text}" for text in [fallback(result)] if text]
    for note in (*extra, *(f"Note: {note}" for note in result.notes)):
        _item(console, note, width)


def _item(console: Console, text: str, width: int) -> None:
    """A paragraph with a hanging mark."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("-", Text(text))
    console.print(grid, width=width)


def _answers(result: Result) -> Table:
    found = columns(result)
    table = _table("", "law, marginal", "law, replayed", "replay", "simulation", "law to simulation")

    def row(name: str, values: Iterable[float]) -> None:
        held = list(values)
        table.add_row(name, *map(number, held), percent((held[-1] / held[0] - 1) * 100))

    row("mean step (ms)", (column.step_ms for column in found))
    row("tokens per step", (column.tokens_per_step for column in found))
    row("ms per token", (column.tpot_ms for column in found))
    return table


def _lanes(result: Result) -> Table:
    table = _table("lane", "busy (simulation)", "")
    table.columns[2].justify = "left"
    for lane, share in result.busy.items():
        full = min(BAR, round(share * BAR))
        table.add_row(lane, f"{share:.1%}", "#" * full + "." * (BAR - full))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
