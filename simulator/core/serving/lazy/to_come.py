"""What the requests of a lazy batch add up to, in each of the steps to come.

Contexts and blocks are kept as what has come since a request began to decode; what it had then adds
up to one number over all of them::

    step          7     8     9    10    11    12
    request 3     0     3     4     8                  tokens since it began with 612
    request 4           0     3     4     8    11      since it began with 530
    sum           0     3     7    12     8    11      + 612, + 1,142 from step 8 on, + 530 from 11
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.core.numeric import Numbers
from simulator.core.serving.cache.memory import Blocks
from simulator.core.strategies.common.courses import Course

Counts = NDArray[np.int64]
AT_FIRST = 1 << 15
"""Steps for which there is room at first: 256 KiB for each row."""
MOST_SHARED = 1 << 20
"""Steps of shared courses whose blocks are kept, 8 MiB and as much for the courses; then they are
forgotten, so that memory stays bounded.
"""
TOKENS, DURING, BEFORE = range(3)
"""Rows: tokens, then blocks in use during a step, and before it."""
BLOCKS = BEFORE + 1
"""Rows in front of what else a strategy's steps differ by."""


Begun: TypeAlias = tuple[int, int, int]
"""What a request had as it began to decode: tokens in its cache, and blocks in use during its steps
and before them, but for those in the sums.
"""


class StepsToCome:
    """Sums over the requests of a batch by step; ``step`` is the number of the next one.

    ``reserved``: blocks do not grow. ``alone``: prompts are read alone, so that blocks before a
    step are of interest too. Without ``priced`` no price reads how contexts grow, and those that
    requests began with are told for them (3 % of a plain request).
    """

    def __init__(self, memory: Blocks, reserved: bool, alone: bool, priced: bool) -> None:
        self.memory = memory
        self.priced = priced
        self.reserved = reserved
        self.alone = alone
        self.step = 0
        self.base = 0
        """The number of the step in the first column."""
        self.until = 0
        """The number of the step behind the last one that a request takes part in."""
        self.rows: Counts = np.zeros((BLOCKS, 0), dtype=np.int64)
        """(rows, steps): see :data:`TOKENS`."""
        self.context = 0
        """Tokens that all requests had in their caches as they began."""
        self.during = 0
        self.before = 0
        """Blocks in use, during steps and before them, but for those in the sums."""
        self._shared: dict[tuple[int, int], tuple[Counts, Counts]] = {}
        """Blocks that a request gets by a course that many have, with it, by the tokens in its last
        block.
        """
        self._shared_steps = 0
        """Steps of all of them together."""

    def begin(
        self,
        course: Course,
        context: int,
        ahead: int,
        blocks: int,
        room: Counts | None = None,
    ) -> Begun:
        """Add a request that begins with the next step; it has ``blocks`` and gets room for
        ``ahead`` tokens more in each of them, or for ``room`` (steps,) tokens in all.
        """
        first = self.step - self.base
        steps = course.adds.shape[1]
        to_come = self.rows[:, first : first + steps]
        self.until = max(self.until, self.step + steps)
        if self.priced:
            contexts = to_come[TOKENS]
            contexts += course.adds[0]
        if len(course.adds) > 1:
            to_come[BLOCKS:] += course.adds[1:]
        during = before = 0
        if not self.reserved:
            if room is None:
                during = self._grow(to_come[DURING], course, context + ahead)
            else:
                to_come[DURING] += self.memory.needed_each(room)
            during -= blocks
            if self.alone:
                before = self._grow(to_come[BEFORE], course, context) - blocks
        self.context += context
        self.during += during
        self.before += before
        return context, during, before

    def end(self, begun: Begun) -> None:
        """Take away what a request had as it began, which has had its last step."""
        context, during, before = begun
        self.context -= context
        self.during -= during
        self.before -= before

    def clear(self) -> None:
        """Forget all requests."""
        self.rows[:, : self.until - self.base] = 0
        self.context = self.during = self.before = 0

    def has_room(self, steps: int) -> bool:
        """Return whether there is room for so many steps."""
        room: int = self.rows.shape[1]
        return self.step - self.base + steps <= room

    def make_room(self, columns: int, steps: int) -> None:
        """Make room for so many steps, of a strategy with so many columns; steps that have passed
        are forgotten.
        """
        to_come = self.rows[:, self.step - self.base :]
        wide = max(AT_FIRST, 2 * (steps + to_come.shape[1]))
        self.rows = np.zeros((BLOCKS + columns - 1, wide), dtype=np.int64)
        self.rows[: len(to_come), : to_come.shape[1]] = to_come
        self.base = self.step

    def context_of(self, step: int) -> int:
        """Return the tokens that all requests have in their caches before a step."""
        return self.rows.item(TOKENS, step - self.base) + self.context

    def contexts(self, first: int, stop: int) -> Counts:
        """Return (steps,) the same before each of the steps from one to before another."""
        contexts: Counts = self.rows[TOKENS, first - self.base : stop - self.base] + self.context
        return contexts

    def sums_next(self) -> list[int]:
        """Return contexts and what else is added up of the next step, by the strategy's columns."""
        sums = [self.context_of(self.step)]
        if len(self.rows) > BLOCKS:
            sums += self.rows[BLOCKS:, self.step - self.base].tolist()
        return sums

    def sums_until(self, step: int) -> list[Numbers]:
        """Return the same as arrays over the steps from the next one up to another."""
        places = slice(self.step - self.base, step - self.base)
        return [self.contexts(self.step, step), *self.rows[BLOCKS:, places]]

    def blocks_next(self, before: bool = False) -> int:
        """Return those in use during the next step, or before it."""
        place = self.step - self.base
        if before:
            return self.rows.item(BEFORE, place) + self.before if self.alone else 0
        return self.rows.item(DURING, place) + self.during

    def grown(self, first: int, stop: int) -> Counts:
        """Return (steps,) the blocks in use during the steps from one to before another, beside
        those that requests had as they began.
        """
        return self.rows[DURING, first - self.base : stop - self.base]

    def _grow(self, row: Counts, course: Course, cached: int) -> int:
        """Add the blocks that a request has for its tokens, ``cached`` as it begins, to a row of
        its steps, but for so many in each of them; return these.
        """
        tokens = course.adds[0]
        memory = self.memory
        if memory.held is not None:
            row += memory.needed_each(tokens + cached)
            return 0
        each = memory.block_tokens
        whole, begun = divmod(cached - 1, each)
        key = id(course.adds), begun
        known = self._shared.get(key)
        if known is None or known[0] is not course.adds:
            known = course.adds, (tokens + (begun + each)) // each
            if not course.adds.flags.writeable:
                self._share(key, known)
        row += known[1]
        return whole

    def _share(self, key: tuple[int, int], known: tuple[Counts, Counts]) -> None:
        """Keep the blocks of a course that other requests may have, too."""
        steps = len(known[1])
        if self._shared_steps + steps > MOST_SHARED:
            self._shared.clear()
            self._shared_steps = 0
        self._shared[key] = known
        self._shared_steps += steps
