"""A result on a terminal: at most 100 columns wide, and readable without colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from simulator.report import run_memory, run_serving
from simulator.report.run_summary import (
    GAP_HEAD,
    agreement_sentence,
    choices,
    columns,
    conditions,
    doubt,
    fallback,
    gap_rows,
    gaps,
    headline,
    number,
    percent,
    share,
)
from simulator.scenario.run import RunResult
from simulator.scenario.uncertainty import Interval

WIDEST = 100
BAR = 30


def print_result(result: RunResult, console: Console, speedup: Interval) -> None:
    """Print the answer, the interval of its speed-up, the four columns, gaps, lanes, serving, memory and notes."""
    width = min(console.width, WIDEST)

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), width=width)

    say(f"{result.scenario.name}: {result.scenario.method_name}", "bold")
    say(headline(result), "bold")
    say(conditions(result), "dim")
    say(doubt(speedup), "dim")
    console.print(_answers(result), width=width)
    for gap in gaps(result):
        item(console, f"{gap.title}: {percent(gap.percent)}; may be due to: {gap.why}", width)
    item(console, agreement_sentence(result), width)
    console.print(_lanes(result), width=width)
    served = result.simulated.serving

    def show(head: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
        table = new_table(*head)
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            console.print(table, width=width)
        return table.row_count > 0

    show(GAP_HEAD, gap_rows(result))
    show(run_serving.SLO_HEAD, run_serving.verdicts(served))
    show(run_serving.REPLICATION_HEAD, run_serving.replications(result))
    if result.scenario.requests.together:
        show(run_serving.HEAD, run_serving.times(served))
        show(run_serving.REPLICA_HEAD, run_serving.replicas(result.simulated))
        for sentence in run_serving.sentences(result):
            item(console, sentence, width)
    if show(run_memory.HEAD, run_memory.stage_rows(result.scenario)):
        item(console, run_memory.caption(result.scenario), width)
    if text := fallback(result):
        item(console, f"Fallback: {text}", width)
    if text := choices(result):
        item(console, f"{text[0].upper()}{text[1:]}", width)
    for caveat in result.caveats:
        item(console, f"Note: {caveat}", width)


def item(console: Console, text: str, width: int) -> None:
    """Print a paragraph behind a dash, its lines indented."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("-", Text(text))
    console.print(grid, width=width)


def _answers(result: RunResult) -> Table:
    answers = columns(result)
    table = new_table("", "law, marginal", "law, replayed", "replay", "simulation", "law to simul.")

    def row(name: str, values: Iterable[float]) -> None:
        numbers = list(values)
        table.add_row(name, *map(number, numbers), percent((numbers[-1] / numbers[0] - 1) * 100))

    row("mean step (ms)", (column.step_ms for column in answers))
    row("tokens per step", (column.tokens_per_step for column in answers))
    row("ms per token", (column.tpot_ms for column in answers))
    return table


def _lanes(result: RunResult) -> Table:
    table = new_table("lane", "busy (simulation)", "")
    table.columns[2].justify = "left"
    for lane, fraction in result.busy.items():
        full = min(BAR, round(fraction * BAR))
        table.add_row(lane, share(fraction), "#" * full + "." * (BAR - full))
    return table


class _UncutTable(Table):
    """A table in which no number and no word of a row is cut, however narrow the terminal."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns, cells, strict=False):
            longest = max(map(len, cell.split()), default=0) if isinstance(cell, str) else 0
            column.min_width = max(column.min_width or 0, longest)


def new_table(first: str, *others: str) -> Table:
    """Return an empty table in the look that all tables share: names to the left, numbers to the right."""
    table = _UncutTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
