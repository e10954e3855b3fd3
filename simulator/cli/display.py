"""What a command shows while it works: what it is at, and how much of what is counted is done.

On a terminal that is a bar with the time left. Elsewhere, in a file or a pipe, it is a line now and
then, so that work of minutes is seen to go on; what is done within ``PLAIN_S`` says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TextIO

import click

from simulator.core.parallel import WATCHER, Advance

if TYPE_CHECKING:
    from simulator.cli.bars import Display

PLAIN_S = 15.0
"""How long work lasts before a line about it is written where no terminal is, and how long until
the next.
"""


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

    def __enter__(self) -> Lines:
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
    if WATCHER.get() is not None:  # a command within another, which tells how far it is
        yield Lines(what, sys.stderr)
        return
    context = click.get_current_context(silent=True)
    as_json = bool(context and context.params.get("as_json"))
    bars = None if as_json else _bars(what)
    display = bars or Lines(what, sys.stderr)
    with ExitStack() as stack:
        stack.callback(WATCHER.reset, WATCHER.set(display))
        stack.enter_context(display)
        yield display


def _bars(what: str) -> Display | None:
    """Return bars for stderr; None where it is no terminal."""
    from simulator.cli.bars import on_terminal

    return on_terminal(what)
