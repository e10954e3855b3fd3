"""Spread work over processes, and count what is done of it.

The results do not depend on how many processes there are. What starts them is imported when several
are wanted: it takes longer than a short run.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar

from simulator.core.faults import BadInput
from simulator.core.package_errors import raised_in_package

Input = TypeVar("Input")
Output = TypeVar("Output")
CORES = os.cpu_count() or 1
Advance = Callable[..., object]
"""A function that hears how many more parts of some work are done, 1 unless it is said, and how
many of them in vain.
"""
WATCHER: ContextVar[Any] = ContextVar("watcher", default=None)
"""Who hears what this process is at, as :class:`simulator.cli.bars.Display` does; None:
nobody.
"""
STOP: ContextVar[Sequence[bool]] = ContextVar("stop", default=())
"""Holds something once somebody has asked for an early end; set to nothing, what follows goes on to
its own.
"""


def unheard(parts: int = 1, faults: int = 0) -> None:
    """Count for nobody."""


def say(what: str) -> None:
    """Let the watcher hear what is done now."""
    if watcher := WATCHER.get():
        watcher.update(what)


def counting(what: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
    """Count work of ``total`` parts while the block does them, ``done`` of which were there
    before.
    """
    watcher = WATCHER.get()
    return watcher.watch(what, total, done) if watcher else nullcontext(unheard)


def counted(inputs: Iterable[Input], what: str = "", total: int | None = None) -> Iterator[Input]:
    """Yield the inputs, each of which is done when the next one is asked for; ``total``: their
    number, where they come late.
    """
    if total is None:
        inputs = list(inputs)
        total = len(inputs)
    with counting(what, total) as advance:
        for one in inputs:
            yield one
            advance()


class Spread(Protocol):
    """Applies a function to many inputs that do not depend on each other."""

    def __call__(self, work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
        """Return the results in the order of the inputs; both must be picklable where there is more
        than one process.
        """


def in_turn(work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Apply a function in this process, to one input after the other; return the results in their
    order.
    """
    return [work(one) for one in counted(inputs)]


@contextmanager
def stoppable() -> Iterator[None]:
    """Let the first Ctrl-C ask what the block does to come to its end, as :func:`stopping` tells; a
    second ends it at once.
    """
    asked: list[bool] = []

    def ask(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        say("stopping: no more requests come; Ctrl-C again ends at once")

    token = STOP.set(asked)
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        STOP.reset(token)


def stopping() -> bool:
    """Return whether somebody has asked for an early end."""
    return bool(STOP.get())


@contextmanager
def spread(processes: int = CORES) -> Iterator[Spread]:
    """Yield a spread over so many new processes, which end with the block; with one, everything
    happens here.
    """
    if processes == 1:
        yield in_turn
        return
    from simulator.core.processes import pool

    with pool(processes) as executor:

        def everywhere(work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
            given = list(inputs)
            done = executor.map(partial(_with_places, work), given)
            return list(counted(done, total=len(given)))

        yield everywhere


def _with_places(work: Callable[[Input], Output], one: Input) -> Output:
    """Apply a function to one input in a worker; where another package's code raises, say so here:
    a traceback stays in its process.
    """
    try:
        return work(one)
    except Exception as error:
        if isinstance(error, BadInput):
            raise
        fault = raised_in_package(error)
        if fault is None:
            raise
        raise fault from error
