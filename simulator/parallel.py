"""Spread work over processes; the results do not depend on how many there are."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
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
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def everywhere(work: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
            return list(pool.map(work, inputs))

        yield everywhere
