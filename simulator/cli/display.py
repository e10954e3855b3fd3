"""What a command shows while it works: what it is at, and how much of what is counted is done.

On a terminal that is a bar with the time left. Elsewhere, in a file or a pipe, it is a line now and
then, so that work of minutes is seen to go on; what is done within ``PLAIN_S`` says nothing.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event, Thread
from time import monotonic
from typing import TextIO

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.text import Text

from simulator.core.parallel import WATCHER, Advance

SHOWN_AFTER_S = 1.0
REFRESHED_S = 0.1
"""How long work lasts before it gets a bar, and how long a bar stands still at least: nothing
flickers, nothing is slowed.
"""
PLAIN_S = 15.0
"""How long work lasts before a line about it is written where no terminal is, and how long until
the next.
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


class Lines:
    """A watcher that writes a line every ``PLAIN_S`` for as long as the block lasts, where no
    terminal is.
    """

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what = what
        self.stream = stream
        self.works = dict[int, str]()
        self.numbers = count()
        self.ended = Event()

    def update(self, what: str) -> None:
        """Say what the command is at now."""
        self.what = what

    def tell(self, line: str) -> None:
        """Write a line at once."""
        click.echo(line, file=self.stream)

    @contextmanager
    def watch(self, what: str, total: int, done: int) -> Iterator[Advance]:
        """Count work for as long as the block lasts."""
        key = next(self.numbers)
        finished = done
        faulty = 0

        def advance(parts: int = 1, faults: int = 0) -> None:
            nonlocal finished, faulty
            finished = finished + parts
            faulty = faulty + faults
            wrong = f", {faulty:,} faulty" if faulty else ""
            self.works[key] = f"{what} {finished:,} of {total:,}{wrong}".strip()

        advance(0)
        try:
            yield advance
        finally:
            del self.works[key]

    def __enter__(self) -> "Lines":
        Thread(target=self._write, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()

    def _write(self) -> None:
        begun = monotonic()
        while not self.ended.wait(PLAIN_S):
            parts = "; ".join([self.what, *list(self.works.values())])
            self.tell(f"... {parts} ({monotonic() - begun:,.0f} s)")


@contextmanager
def showing(what: str) -> Iterator[Display | Lines]:
    """Show on stderr what the block is at; beside JSON, and where that is no terminal, as lines now
    and then.
    """
    console = Console(stderr=True)
    context = click.get_current_context(silent=True)
    if WATCHER.get() is not None:  # a command within another, which tells how far it is
        yield Display(what, console)
        return
    plain = not console.is_terminal or bool(context and context.params.get("as_json"))
    display = Lines(what, sys.stderr) if plain else Display(what, console)
    with ExitStack() as stack:
        stack.callback(WATCHER.reset, WATCHER.set(display))
        stack.enter_context(
            display
            if isinstance(display, Lines)
            else Live(display, console=console, transient=True)
        )
        yield display
