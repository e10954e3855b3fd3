"""How full the memories of a replica are over time.

There is a bounded number of stretches of equal length, each with the most that there was in it::

    seconds       0     1     2     3     4
    blocks        | 2   | 5 9 | 4   | 4   |
    stretches     | 9         | 4         |        no peak is lost

Stretches become twice as long whenever time outgrows :data:`MOST_STRETCHES` of them. So they depend
on what was there when, and not on how often somebody looked: steps one by one and many at a time
come to the same.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

MOST_STRETCHES = 512
SHORTEST_S = 1e-3
"""Length of a stretch at first, in seconds."""


class Occupancy:
    """The most of each of some levels, numbers of blocks, in each stretch of time so far."""

    __slots__ = ("_most", "since_s", "stretch_s")

    def __init__(self, levels: int) -> None:
        self._most = np.zeros((levels, MOST_STRETCHES), dtype=np.int64)
        self.stretch_s = SHORTEST_S
        """Length of a stretch, in seconds."""
        self.since_s = 0.0
        """Until when levels are noted, in seconds."""

    def note(self, now: float, levels: Sequence[int]) -> None:
        """Note that these levels were there until ``now``, in seconds."""
        begin_s = self.since_s
        if now <= begin_s:
            return
        self._reach(now)
        first = int(begin_s / self.stretch_s)
        self._raise(first, ceil(now / self.stretch_s), np.array(levels))

    def note_each(
        self, begins: NDArray[np.float64], ends: NDArray[np.float64], levels: NDArray[np.int64]
    ) -> None:
        """Note levels, (levels, spans), of spans of time between ``begins`` and ``ends``, (spans,)
        in seconds, none of which ends behind the last.
        """
        self._reach(float(ends[-1]))
        firsts = np.floor(begins / self.stretch_s).astype(np.int64)
        stops = np.ceil(ends / self.stretch_s).astype(np.int64)
        lasts = ends > begins
        within = lasts & (stops == firsts + 1)
        for row, values in zip(self._most, levels, strict=True):
            np.maximum.at(row, firsts[within], values[within])
        for place in np.flatnonzero(lasts & (stops > firsts + 1)).tolist():
            self._raise(int(firsts[place]), int(stops[place]), levels[:, place])

    def _raise(self, first: int, stop: int, levels: NDArray[np.int64]) -> None:
        stretches = self._most[:, first:stop]
        np.maximum(stretches, levels[:, None], out=stretches)

    def _reach(self, now: float) -> None:
        """Make stretches so long that they reach up to ``now``."""
        self.since_s = now
        while now / self.stretch_s > MOST_STRETCHES:
            self._double()

    def _double(self) -> None:
        half = self._most.shape[1] // 2
        self._most[:, :half] = np.maximum(self._most[:, ::2], self._most[:, 1::2])
        self._most[:, half:] = 0
        self.stretch_s *= 2

    def most(self, stretch_s: float) -> NDArray[np.int64]:
        """Return the most of each level, (levels, stretches), in stretches of ``stretch_s``
        seconds, which are this series' or longer by a power of two.
        """
        while self.stretch_s < stretch_s:
            self._double()
        return self._most[:, : ceil(self.since_s / self.stretch_s)]


def mean_most(series: Sequence[Occupancy]) -> tuple[float, NDArray[np.float64]]:
    """Return the length of a stretch in seconds, and the most of each level in each of them, mean
    over replicas, (levels, stretches); replicas are noted up to the same time.
    """
    stretch_s = max(replica.stretch_s for replica in series)
    return stretch_s, np.mean([replica.most(stretch_s) for replica in series], axis=0)
