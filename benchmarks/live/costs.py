"""What passes take on this machine, timed in blocks between blocks of decoding.

A shared machine drifts by 15 to 30 % within minutes, so that costs hold for their own minute only.
A side that has company while it decodes has it here too: the other core works while it is timed.
Contexts are those halfway through an output.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from multiprocessing.connection import Connection
from statistics import fmean, geometric_mean
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np

from benchmarks.family.draft_tree import TravellingTree
from benchmarks.family.network import Reader
from benchmarks.family.pair import Family
from benchmarks.family.tree_drafter import TreeDrafter
from benchmarks.live.budget import BudgetVerdict
from benchmarks.live.pipeline import FirstStage
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sequences import Split

BURST = 32
"""Passes of the draft in a row, beside the target's or alone."""
WARM_UP, PLAIN, EXCHANGES = 2, 12, 4
Clock = Callable[[], float]
Key = tuple[str, int]
"""What was timed, and its rows."""


class TimedText(NamedTuple):
    """A text as it is when passes are timed: what has been read, and what comes next."""

    read: list[int]
    behind: list[int]


class Samples:
    """Timed seconds by what was timed."""

    def __init__(self) -> None:
        self.seconds: dict[Key, list[float]] = defaultdict(list)

    def add(self, what: str, rows: int, seconds: float) -> None:
        """Add one time in seconds."""
        self.seconds[what, rows].append(seconds)

    def mean_ms(self, what: str, rows: int = 1) -> float:
        """Return the mean time in ms, not the median: other programs slow decoding too."""
        return fmean(self.seconds[what, rows]) * 1e3

    def by_rows_ms(self, what: str) -> Mapping[int, float]:
        """Return mean times in ms by the number of rows that was timed."""
        return {
            rows: self.mean_ms(what, rows) for name, rows in sorted(self.seconds) if name == what
        }


def time_plain(samples: Samples, family: Family, text: TimedText, clock: Clock) -> None:
    """Time ``plain`` passes of the target over one token, one behind the other as plain decoding
    has them.
    """
    target = Reader(family.target)
    target.extend(text.read)
    for index, token in enumerate(text.behind[: WARM_UP + PLAIN]):
        begin = clock()
        int(target.extend([token])[-1].argmax())
        if index >= WARM_UP:
            samples.add("plain", 1, clock() - begin)


def time_in_turns(
    samples: Samples, family: Family, text: TimedText, rows: Sequence[int], clock: Clock
) -> None:
    """Time ``draft`` as often as a window has it, then ``target`` over the window, with the cut of
    its cache.
    """
    target, draft = Reader(family.target), Reader(family.draft)
    target.extend(text.read)
    draft.extend(text.read)
    for count in rows:
        for token in text.behind[: count - 1]:
            begin = clock()
            int(draft.extend([token])[-1].argmax())
            samples.add("draft", 1, clock() - begin)
        draft.keep(len(text.read))
        begin = clock()
        target.extend(text.behind[:count]).argmax(-1).tolist()
        target.keep(len(text.read))
        samples.add("target", count, clock() - begin)


class Beside:
    """The target on this core and a :func:`~benchmarks.live.budget.draft_process` on the other,
    each alone and both.
    """

    def __init__(
        self, samples: Samples, family: Family, connection: Connection, text: TimedText
    ) -> None:
        self.samples, self.connection, self.text = samples, connection, text
        self.target = Reader(family.target)
        self.target.extend(text.read)

    def time(self, rows: Sequence[int], repeats: int) -> None:
        """Time both sides ``apart``, each while the other waits, and ``beside``, while both work.

        ``exchange``: a verdict there and drafts back, in which this side is at work for
        ``handling``.
        """
        for count in [*rows] * repeats:
            self._target("apart", count)
        self._open(BURST)
        self._draft("apart", lambda: None)
        turns = cycle(rows)
        for _ in range(-(-repeats * len(rows) // 8)):
            self._draft("beside", lambda: self._target("beside", next(turns)))
        self.connection.send(None)
        self._open(1)
        for _ in range(EXCHANGES):
            begin, busy = perf_counter(), thread_time()
            self._verdict()
            self.samples.add("exchange", 1, -self.connection.recv().wall_s + perf_counter() - begin)
            self.samples.add("handling", 1, thread_time() - busy)
        self.connection.send(None)

    def _target(self, how: str, count: int) -> None:
        begin = perf_counter()
        self.target.extend(self.text.behind[:count]).argmax(-1).tolist()
        self.target.keep(len(self.text.read))
        self.samples.add(f"target {how}", count, perf_counter() - begin)

    def _draft(self, how: str, meanwhile: Callable[[], None]) -> None:
        self._verdict()
        while how == "beside" and not self.connection.poll():
            meanwhile()
        drafts = self.connection.recv()
        self.samples.add(f"draft {how}", 1, drafts.wall_s / len(drafts.pass_s))

    def _open(self, budget: int) -> None:
        self.connection.send((self.text.read, Split(budget, 1)))
        self.connection.recv()

    def _verdict(self) -> None:
        self.connection.send(BudgetVerdict(len(self.text.read), self.text.behind[0], None))


def slowdown(samples: Samples) -> float:
    """Return how much longer passes take while the other core works: geometric mean of both sides,
    1 or more.
    """
    sides = [key for key in samples.seconds if key[0].endswith("beside")]
    ratios = [
        samples.mean_ms(what, rows) / samples.mean_ms(what.replace("beside", "apart"), rows)
        for what, rows in sides
    ]
    return max(1.0, geometric_mean(ratios))


def time_stages(
    samples: Samples,
    family: Family,
    connection: Connection,
    text: TimedText,
    widths: Sequence[int],
    repeats: int,
    branching: int,
) -> None:
    """Time the ``first`` stage with the draft, the ``second``, a ``hop`` there and back, and the
    ``cut`` between.
    """
    stage, end = FirstStage(family.target, text.read), np.array([len(text.read) - 1])
    drafter = TreeDrafter(family.draft, text.read, branching)
    connection.send((stage.text.numpy(), 0))
    connection.recv()
    for root, width in enumerate([*widths] * repeats):
        tree = TravellingTree(
            root, int(drafter.read(end, np.array([root]))[0]), drafter, Beam(width, branching, 2)
        )
        tree.grow()
        level = tree.entering(2)
        connection.send((stage.text[:, -1:].numpy(), len(text.read)))
        begin = perf_counter()
        states = stage.level(level)
        tree.grow()
        samples.add("first", width, perf_counter() - begin)
        samples.add("second", 1, connection.recv().wall_s)
        begin, before = perf_counter(), stage.trunk
        tree.cut(level[0])
        stage.keep(0)
        samples.add("cut", 1, perf_counter() - begin)
        stage.trunk = before
        begin = perf_counter()
        connection.send((states[:1].numpy(), len(text.read)))
        samples.add("hop", 1, -connection.recv().wall_s + perf_counter() - begin)
