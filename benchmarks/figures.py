"""What every benchmark here shares: a figure with its goal, times taken turn by turn, and a table.

Times are CPU seconds of this process. Two kinds of work are compared turn by turn in one process, so that a busy machine
slows both; the best or the median of the ratios counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from simpy import Environment, Event


class Figure(NamedTuple):
    """One number: what it is of, what it came to, what it should be; ``met`` is None without a goal."""

    what: str
    figure: str
    goal: str = ""
    met: bool | None = None


def at_least(what: str, value: float, goal: float | None, form: str = "{:,.0f}") -> Figure:
    """A figure that should not be less."""
    if goal is None:
        return Figure(what, form.format(value))
    return Figure(what, form.format(value), f">= {form.format(goal)}", value >= goal)


def at_most(what: str, value: float, goal: float, form: str = "{:,.1f}") -> Figure:
    """A figure that should not be more."""
    return Figure(what, form.format(value), f"<= {form.format(goal)}", value <= goal)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one turn."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def turns(works: Sequence[Callable[[], object]], rounds: int) -> Iterator[list[float]]:
    """Seconds of each work, one after the other, over and over."""
    for _ in range(rounds):
        yield [cpu_seconds(work) for work in works]


def bare_timeouts(count: int) -> None:
    """What every event costs at least."""
    environment = Environment()

    def process() -> Iterator[Event]:
        for _ in range(count):
            yield environment.timeout(1.0)

    environment.process(process())
    environment.run()


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print them as a table."""
    table = Table("what", "figure", "goal", "met", title=title)
    for what, figure, goal, met in figures:
        table.add_row(what, figure, goal, {None: "", True: "yes", False: "no"}[met])
    Console(width=128).print(table)
