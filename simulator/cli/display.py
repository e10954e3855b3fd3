"""What a command shows on a terminal while it works: what it is at, and a bar with count and time left for what is counted."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.text import Text

from simulator.parallel import WATCHER, Advance

SHOWN_AFTER_S, REFRESHED_S = 1.0, 0.1
"""How long work lasts before it gets a bar, and how long a bar stands still at least: nothing flickers, nothing is slowed."""
REMEMBERED_S = 600.0
"""Time over which the speed is taken that says how long is left."""


class Display:
    """A line of words, and below it a bar for each work under way; a watcher as :mod:`simulator.parallel` asks for."""

    def __init__(self, what: str, console: Console) -> None:
        self.spinner = Spinner("dots")
        self.update(what)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        left = (TextColumn("{task.fields[faulty]}"), TextColumn("left"), TimeRemainingColumn())
        self.bars = Progress(*columns, *left, console=console, speed_estimate_period=REMEMBERED_S)

    def update(self, what: str) -> None:
        """Say what the command is at now."""
        self.spinner.update(text=Text(what))

    def __rich__(self) -> Group:
        """Return what is shown now: the words, and the bars of work that has lasted for a while."""
        lasting = [task for task in self.bars.tasks if (task.elapsed or 0.0) >= SHOWN_AFTER_S]
        return Group(self.spinner, self.bars.make_tasks_table(lasting))

    @contextmanager
    def watch(self, what: str, total: int, done: int) -> Iterator[Advance]:
        """Show a bar for as long as the block lasts."""
        task = self.bars.add_task(what, total=total, completed=done, faulty="")
        drawn, new, faulty = monotonic(), 0, 0

        def advance(parts: int = 1, faults: int = 0) -> None:
            nonlocal drawn, new, faulty
            new, faulty, now = new + parts, faulty + faults, monotonic()
            if now - drawn >= REFRESHED_S:
                self.bars.update(task, advance=new, faulty=f"{faulty} faulty" if faulty else "")
                drawn, new = now, 0

        try:
            yield advance
        finally:
            self.bars.remove_task(task)


@contextmanager
def showing(what: str) -> Iterator[Display]:
    """Show on stderr what the block is at; nothing where that is no terminal, nor beside JSON."""
    console, context = Console(stderr=True), click.get_current_context(silent=True)
    display = Display(what, console)
    with ExitStack() as stack:
        if console.is_terminal and not (context and context.params.get("as_json")):
            stack.callback(WATCHER.reset, WATCHER.set(display))
            stack.enter_context(Live(display, console=console, transient=True))
        yield display
