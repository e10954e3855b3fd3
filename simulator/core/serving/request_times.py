"""Seconds and tokens of a run's requests, for a bootstrap, in memory that does not grow with their
number.
"""

from collections.abc import Callable

from simulator.core.serving.requests import Request

GROUPS = 8_192
"""Requests, or groups of consecutive requests, that draws are made from at most; an even number."""


class Times:
    """Seconds and tokens of a run's requests as these end, in memory that does not grow with their
    number.

    ``then`` is called with every request, once it is noted.
    """

    def __init__(self, then: Callable[[Request], object] | None = None) -> None:
        self.then = then
        self._groups = list[tuple[float, int]]()
        self._group_size = 1
        self._seconds = 0.0
        self._tokens = 0
        self._pending = 0
        """Sums over the requests of the group that is not yet full, and their number."""

    def note(self, request: Request) -> None:
        """Count a request that has ended, and hand it on."""
        if self.then:
            self.then(request)
        self._seconds += request.finished_s - request.admitted_s
        self._tokens += request.tokens
        self._pending += 1
        if self._pending == self._group_size:
            if len(self._groups) == GROUPS:
                self._pair_up()
            else:
                self._groups.append((self._seconds, self._tokens))
                self._seconds = 0.0
                self._tokens = 0
                self._pending = 0

    @property
    def requests(self) -> list[tuple[float, int]]:
        """Return (seconds since admission, tokens) of each request, summed over each group where
        there are too many.
        """
        unfinished = [(self._seconds, self._tokens)] if self._pending else []
        return [*self._groups, *unfinished]

    def _pair_up(self) -> None:
        """Join neighbouring groups, so that half as many are left, each twice as long; the pending
        one is then half full.
        """
        firsts = self._groups[::2]
        seconds = self._groups[1::2]
        self._groups = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(firsts, seconds, strict=True)]
        self._group_size *= 2
