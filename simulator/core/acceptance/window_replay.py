"""Windows are replayed without judging them one by one: all windows over all recorded requests at
once.

Where a chain was recorded by position, a stretch of L agreements is cut into windows from its
beginning on, whatever came before; with s tokens a full window (gamma and the bonus)

    | gamma + bonus | gamma + bonus | ... | L mod s + correction | floor(L / s) full windows, one
                                                                  then one with the rest

so that how often each length occurs, counted once, answers for every gamma. Where runs were
recorded by start (trees, look-up), windows are walked step by step, all requests side by side. The
same windows as those of a run on the event engine: from position 1 of every request, each behind
what the one before committed, until the request ends.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Replay

Ints = NDArray[np.int64]
ENDLESS = np.iinfo(np.int64).max
"""Run of a request in which nothing is ever rejected (:meth:`Replay.runs`)."""


class Stretches(NamedTuple):
    """Stretches count how often a request has so many agreements in a row before a rejection."""

    request: Ints
    """Request, by entry."""
    length: Ints
    """Agreements in a row, by entry."""
    times: Ints
    """How often they occur, by entry."""

    @classmethod
    def counted(cls, request: Ints, length: Ints) -> Self:
        """Return the stretches of a list of single ones, given by request and length."""
        width = int(length.max(initial=0)) + 1
        keys, times = np.unique(request * width + length, return_counts=True)
        return cls(*np.divmod(keys, width), times)


class WindowReplay:
    """Requests by their ``runs``: for each position, draft tokens that an endless window from there
    keeps.
    """

    def __init__(self, runs: Sequence[Ints]) -> None:
        self.lengths: Ints = np.array([len(run) for run in runs], dtype=np.int64)
        self.first: Ints = np.cumsum(self.lengths) - self.lengths
        self.run: Ints = np.concatenate([*runs, np.empty(0, dtype=np.int64)])
        self.by_position = self._by_position()
        self.stretches = self.pooled = Stretches(*np.empty((3, 0), dtype=np.int64))
        """Stretches by request, and of all requests together, which are fewer entries."""
        if self.by_position:
            self._count_stretches()

    @classmethod
    def of(cls, replay: Replay) -> Self:
        """Return the windows of all requests in a replay's order."""
        return cls([replay.runs(recording) for recording in replay.order])

    def kept(self, gamma: int, bonus: bool = True) -> Ints:
        """Return (gamma + 1,) the number of windows that keep 0 to ``gamma`` tokens; ``bonus``: a
        full one brings one more.
        """
        windows: Ints = np.zeros(gamma + 1, dtype=np.int64)
        for _, kept, times in self._windows(gamma, bonus, self.pooled):
            windows += np.bincount(kept, weights=times, minlength=gamma + 1).astype(np.int64)
        return windows

    def totals(self, gamma: int, bonus: bool = True) -> Ints:
        """Return (requests, 2) the draft tokens kept and the number of windows, by request."""
        totals: Ints = np.zeros((len(self.lengths), 2), dtype=np.int64)
        for request, kept, times in self._windows(gamma, bonus, self.stretches):
            tokens = np.bincount(request, kept * times, minlength=len(totals))
            windows = np.bincount(request, times, minlength=len(totals))
            totals[:, 0] += tokens.astype(np.int64)
            totals[:, 1] += windows.astype(np.int64)
        return totals

    def mean(self, gamma: int, bonus: bool = True) -> float:
        """Return the mean accepted draft tokens of all windows."""
        kept = self.kept(gamma, bonus)
        return float(np.arange(gamma + 1) @ kept / kept.sum())

    def by_place(self, gamma: int, fewest: int) -> tuple[float, ...]:
        """Return the share kept at each position of a window, of the windows that got there, if
        ``fewest`` or more did.
        """
        reached = self.kept(gamma)[::-1].cumsum()[::-1].tolist()
        return tuple(after / before for before, after in pairwise(reached) if before >= fewest)

    def _windows(
        self, gamma: int, bonus: bool, stretches: Stretches
    ) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield (request, tokens kept, how often) of all windows, in parts."""
        stride = gamma + bonus
        if not self.by_position:
            yield from self._steps(gamma, stride)
            return
        full, rest = np.divmod(stretches.length, stride)
        yield stretches.request, np.full_like(full, gamma), full * stretches.times
        yield stretches.request, rest, stretches.times
        request = np.flatnonzero(self.tail)
        last = (self.tail[request] - 1) // stride
        yield request, np.full_like(last, gamma), last
        yield request, np.minimum(self.beyond[request] - last * stride, gamma), np.ones_like(last)

    # ---- by position

    def _by_position(self) -> bool:
        """Return whether every run is one less than the one before, so that stretches say all about
        them.
        """
        run = self.run
        inside = self.lengths > 0
        last = self.first + self.lengths - 1
        behind = np.append(run[1:], 0)
        behind[last[inside]] = run[self.first[inside]]
        one_less = (run == 0) | (behind == run - 1) | (run == ENDLESS)
        return bool(one_less.all())

    def _count_stretches(self) -> None:
        """Count, in a single pass, the stretches that end in a rejection, and the agreements behind
        the last rejection.
        """
        missed = np.flatnonzero(self.run == 0)
        request = np.searchsorted(self.first + self.lengths, missed, side="right")
        before = missed
        if len(missed):
            before = np.concatenate(([-1], missed[:-1]))
        begins = np.maximum(before + 1, self.first[request])
        length = missed - begins
        self.stretches = Stretches.counted(request, length)
        self.pooled = Stretches.counted(np.zeros_like(length), length)
        ends = self.first.copy()
        np.maximum.at(ends, request, missed + 1)
        self.tail = self.first + self.lengths - ends
        """(requests,) agreements at the end of each request."""
        self.beyond = ends
        if len(self.run):
            at_ends = self.run[np.minimum(ends, len(self.run) - 1)]
            self.beyond = np.where(self.tail > 0, at_ends, 0)
        """(requests,) the same, plus those at its beginning, where a window goes on."""

    # ---- by start

    def _steps(self, gamma: int, stride: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield one window of every request that has not ended, over and over."""
        request: Ints = np.flatnonzero(self.lengths > 0)
        position = np.zeros_like(request)
        while len(request):
            kept = np.minimum(self.run[self.first[request] + position], gamma)
            yield request, kept, np.ones_like(kept)
            position = position + np.minimum(kept + 1, stride)
            going = position < self.lengths[request]
            request = request[going]
            position = position[going]


class WindowRule(Protocol):
    """A rule says how many draft tokens a request's next window has."""

    def after(self, gamma: int, window: int | None, kept_all: bool, turn: int) -> int:
        """Return the window behind one of so many tokens in this turn of a request; None: the
        first.
        """


class Walk(NamedTuple):
    """How a mean is measured: over which requests, and with which windows.

    A step in which an output ends counts in full.
    """

    rule: WindowRule | None = None
    """How windows follow each request, up to the one that is asked about; None: all are equal."""
    written: Sequence[tuple[int, int]] = ()
    """Recording and tokens behind the first one, by request; empty: every recording once, to its
    end.
    """

    def mean(self, replay: Replay, gamma: int) -> float:
        """Return the mean tokens of a step, correction or bonus included, with windows of up to
        ``gamma`` draft tokens.
        """
        own = set(replay.order)
        written = []
        for recording, tokens in self.written:
            if recording in own and tokens > 0:
                written.append((recording, tokens))
        if self.rule is None and not written:
            return WindowReplay.of(replay).mean(gamma) + 1.0
        if not written:
            written = [(recording, len(replay.runs(recording))) for recording in replay.order]
        return self._stepped(replay, written, gamma)

    def _stepped(self, replay: Replay, written: Sequence[tuple[int, int]], gamma: int) -> float:
        """Return the mean over all requests side by side, a step of each at a time."""
        recordings = list(dict.fromkeys(recording for recording, _ in written))
        runs = [replay.runs(recording) for recording in recordings]
        lengths = np.array([len(run) for run in runs], dtype=np.int64)
        begins = np.cumsum(lengths) - lengths
        place = {recording: at for at, recording in enumerate(recordings)}
        run = np.concatenate(runs)
        sure = None
        if replay.p_min is not None:
            sure = np.concatenate([replay.sure(recording) for recording in recordings])
        at = np.array([place[recording] for recording, _ in written], dtype=np.int64)
        left = np.array([tokens for _, tokens in written], dtype=np.int64)
        position = np.zeros_like(at)
        turn = 0
        tokens = 0
        steps = 0
        first_window = gamma
        if self.rule:
            first_window = self.rule.after(gamma, None, False, 0)
        window = np.full_like(at, first_window)
        while len(at):
            here = begins[at] + position
            if sure is not None:
                window = np.minimum(gamma, sure[here])
            kept = np.minimum(run[here], window)
            tokens = tokens + int(kept.sum()) + len(kept)
            steps = steps + len(kept)
            turn = turn + 1
            position = (position + kept + 1) % lengths[at]
            left = left - kept - 1
            if self.rule is not None and sure is None:
                window = self._moved(gamma, window, kept == window, turn)
            going = left > 0
            at = at[going]
            position = position[going]
            left = left[going]
            window = window[going]
        return tokens / steps

    def _moved(self, gamma: int, window: Ints, kept_all: NDArray[np.bool_], turn: int) -> Ints:
        """Return the windows behind those that were kept whole or not."""
        if self.rule is None:
            return np.full_like(window, gamma)
        moved = window.copy()
        for length in np.unique(window).tolist():
            for whole in (False, True):
                alike = (window == length) & (kept_all == whole)
                moved[alike] = self.rule.after(gamma, length, whole, turn)
        return moved
