"""Bars on a terminal for work under way, by rich."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.text import Text

from simulator.core.parallel import Advance

SHOWN_AFTER_S = 1.0
REFRESHED_S = 0.1
"""How long work lasts before it gets a bar, and how long a bar stands still at least: nothing
flickers, nothing is slowed.
"""
REMEMBERED_S = 600.0
"""Time over which the speed is taken that says how long is left."""


class Display:
    """A line of words, and below it a bar for each work under way; a watcher as
    :mod:`simulator.core.parallel` asks for.
    """

    def __init__(self, what: str, console: Console) -> None:
        self.spinner = Spinner("dots")
        self.update(what)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
        )
        left = (TextColumn("{task.fields[faulty]}"), TextColumn("left"), TimeRemainingColumn())
        self.bars = Progress(*columns, *left, console=console, speed_estimate_period=REMEMBERED_S)

    def __enter__(self) -> Self:
        self.live = Live(self, console=self.bars.console, transient=True)
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def update(self, what: str) -> None:
        """Say what the command is at now."""
        self.spinner.update(text=Text(what))

    def tell(self, line: str) -> None:
        """Leave a line above what is shown."""
        self.bars.console.print(Text(line), soft_wrap=True)

    def __rich__(self) -> Group:
        """Return what is shown now: the words, and the bars of work that has lasted for a while."""
        lasting = [task for task in self.bars.tasks if (task.elapsed or 0.0) >= SHOWN_AFTER_S]
        return Group(self.spinner, self.bars.make_tasks_table(lasting))

    @contextmanager
    def watch(self, what: str, total: int, done: int) -> Iterator[Advance]:
        """Show a bar for as long as the block lasts."""
        task = self.bars.add_task(what, total=total, completed=done, faulty="")
        drawn = monotonic()
        new = 0
        faulty = 0

        def advance(parts: int = 1, faults: int = 0) -> None:
            nonlocal drawn, new, faulty
            new = new + parts
            faulty = faulty + faults
            now = monotonic()
            if now - drawn >= REFRESHED_S:
                self.bars.update(task, advance=new, faulty=f"{faulty} faulty" if faulty else "")
                drawn = now
                new = 0

        try:
            yield advance
        finally:
            self.bars.remove_task(task)


def on_terminal(what: str) -> Display | None:
    """Return bars for stderr; None where it is no terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        return Display(what, console)
    return None
