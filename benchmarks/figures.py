"""What every benchmark here shares: a figure with its goal, times taken turn by turn, reference
loops, and a table.

Times are CPU seconds of this process. Two kinds of work are compared turn by turn in one process,
so that a busy machine slows both; the best or the median of the ratios counts. What takes time is
also told in turns of a reference loop that is timed in the same process, and its goal is in those:
a goal in seconds is met on one machine and missed on the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from simpy import Environment, Event


class Figure(NamedTuple):
    """One number: what it is of, what it came to, what it should be; ``met`` is None without a
    goal.
    """

    what: str
    figure: str
    goal: str = ""
    met: bool | None = None
    loops: str = ""
    """What it takes in turns of a reference loop."""


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


def calls(count: int) -> None:
    """What Python takes to call a function that does nothing."""

    def nothing() -> None:
        pass

    for _ in range(count):
        nothing()


def fill(count: int) -> None:
    """What it takes to make an array and write every number of it."""
    np.full(count, 1.0)


LOOPS: dict[str, tuple[Callable[[int], None], int]] = {
    "timeouts": (bare_timeouts, 20_000),
    "calls": (calls, 100_000),
    "fills": (fill, 10_000_000),
}
"""Reference loops: a bare SimPy timeout, a call in Python, a number that numpy writes; and how many
turns are timed.
"""


@cache
def loop_s(loop: str) -> float:
    """CPU seconds of one turn of a reference loop, the quickest of several goes in this process."""
    work, count = LOOPS[loop]
    return min(seconds for (seconds,) in turns([lambda: work(count)], 9)) / count


def in_loops(
    figure: Figure, seconds: float, most: float | None = None, loop: str = "timeouts"
) -> Figure:
    """The same figure with what ``seconds`` are in turns of a reference loop, and at most how many
    they should be.
    """
    told = f"{(taken := seconds / loop_s(loop)):,.3g} {loop}"
    if most is None:
        return figure._replace(loops=told)
    return figure._replace(loops=told, goal=f"<= {most:,.3g} {loop}", met=taken <= most)


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print them as a table."""
    table = Table("what", "figure", "in reference loops", "goal", "met", title=title)
    for what, figure, goal, met, loops in figures:
        table.add_row(what, figure, loops, goal, {None: "", True: "yes", False: "no"}[met])
    Console(width=140).print(table)
