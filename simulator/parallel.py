"""Spread work over processes; the results do not depend on how many there are, and none of them outlives this process."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Protocol, TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")
CORES = os.cpu_count() or 1


class Spread(Protocol):
    """Applies a function to many inputs that do not depend on each other."""

    def __call__(self, work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
        """Return the results in the order of the inputs; both must be picklable where there is more than one process."""


def in_turn(work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
    """Apply a function in this process, to one input after the other; return the results in their order."""
    return list(map(work, inputs))


@contextmanager
def spread(processes: int = CORES) -> Iterator[Spread]:
    """Yield a spread over so many new processes, which end with the block; with one, everything happens here."""
    if processes == 1:
        yield in_turn
        return
    with pool(processes) as executor:

        def everywhere(work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
            return list(executor.map(work, inputs))

        yield everywhere


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of so many new processes, which end with the block."""
    executor = ProcessPoolExecutor(processes, get_context("spawn"), begin_worker)
    with ended(lambda: executor):
        yield executor


@contextmanager
def ended(executor: Callable[[], Executor]) -> Iterator[None]:
    """Shut an executor down behind the block; processes that an interruption leaves at work are terminated."""
    before = set(active_children())
    try:
        yield
        executor().shutdown()
    finally:
        for child in set(active_children()) - before:
            child.terminate()  # its work is not wanted any more
        executor().shutdown(cancel_futures=True)  # waits for its thread, which may not meet the end of this process


def begin_worker() -> None:
    """Prepare a new worker: Ctrl-C is for the parent to answer, and no worker outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
