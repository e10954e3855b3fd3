"""Work spread over processes; what comes out does not depend on how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")
CORES = os.cpu_count() or 1


class Spread(Protocol):
    """Applies a function to many things that do not depend on each other; results in their order."""

    def __call__(self, work: Callable[[Given], Found], things: Iterable[Given]) -> list[Found]:
        """Function and things must be picklable where there is more than one process."""


def in_turn(work: Callable[[Given], Found], things: Iterable[Given]) -> list[Found]:
    """In this process, one after the other."""
    return list(map(work, things))


@contextmanager
def spread(processes: int = CORES) -> Iterator[Spread]:
    """So many fresh processes, which end with the block; with one, everything happens here."""
    if processes == 1:
        yield in_turn
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def everywhere(work: Callable[[Given], Found], things: Iterable[Given]) -> list[Found]:
            return list(pool.map(work, things))

        yield everywhere
