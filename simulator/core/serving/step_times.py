"""How long the steps of a batch take: steps that differ in their context alone stand in a table.

Of its context, a step depends on nothing but the tokens that its requests have cached *together*,
as long as all of them verify windows of one length::

    total context   8,192   8,193   8,194  ...  9,215 | 9,216  ...
    target           21.1    21.1    21.2  ...   22.0 |             one block: worked out at once
    draft             4.0     4.0     4.0  ...    4.0 |             when one of its steps comes up

An entry of a block, a step priced on its own, and a step of :meth:`StepTimes.along` are the same
floats: a price is sums, products and powers, and each of these is the same for a number and for an
entry of an array (:func:`simulator.core.numeric.p_norm`).
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.numeric import Numbers
from simulator.core.quantities import has_hash
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.step import UNLIMITED, Admission, Kind, Step

BLOCK = 1_024
"""Total contexts of a block."""
MOST_BLOCKS = 2_048
"""Blocks that are kept: 8 KiB for each duration that depends on the context, 64 MiB where all have
four of them.
"""
LARGEST = 32
"""Requests of a batch up to which blocks pay: the total context of a larger one passes a block in a
few steps.
"""
REMEMBERED = 1 << 14
"""Steps outside of blocks whose durations are kept; then they are forgotten, so that memory stays
bounded.
"""
MOST_ADMISSIONS = 1 << 14
"""Passes over prompts alone whose durations are kept; then they are forgotten."""
MOST_TIMES = 16
"""Strategies on their hardware whose step times are kept."""


Price: TypeAlias = Callable[[Step], NamedTuple]
"""Gives the named durations of a step, in seconds."""


class Block(NamedTuple):
    """The durations of the steps of one kind whose total contexts follow one another."""

    first: int
    """Total context of its first entry: tokens that all requests of the step have cached before
    it."""
    stop: int
    """Total context behind its last entry."""
    durations: NamedTuple
    """The strategy's named durations, in seconds: each an array over the block, or a number where
    it is the same all along."""

    def at(self, context: int) -> NamedTuple:
        """Return the named durations, as numbers, of the step with this total context."""
        place = context - self.first
        numbers = [
            float(seconds[place]) if isinstance(seconds, np.ndarray) else seconds
            for seconds in self.durations
        ]
        return type(self.durations)._make(numbers)


class StepTimes:
    """Durations of the steps of a strategy on its hardware, remembered."""

    def __init__(self, strategy: Strategy, cost: Cost) -> None:
        self.strategy = strategy
        self.cost = cost
        self._price: Price = partial(strategy.durations, cost)
        """What blocks are kept by, so that they do not keep these step times."""
        self._remembered: dict[tuple[Hashable, ...], NamedTuple] = {}
        self._admissions: dict[tuple[Rows, int, int], Admission] = {}

    def of(self, step: Step) -> NamedTuple:
        """Return the named durations of a step, in seconds; drawn anew every time where links
        jitter.
        """
        key: tuple[Hashable, ...] = step
        if not self.cost.reads_context:
            key = _without_context(step)
        elif (asked := self._asked(step)) is not None:
            return _block(*asked).at(step.rows.kv_tokens - step.rows.tokens)
        durations = None if self.cost.jitters else self._remembered.get(key)
        if durations is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            durations = self._remembered[key] = self.strategy.durations(self.cost, step)
        return durations

    def block(self, step: Step) -> Block | None:
        """Return the durations of all steps like this one whose total contexts lie around its own;
        None where they depend on more than the total context, or would not be read again.
        """
        if self.cost.reads_context:
            asked = self._asked(step)
            return None if asked is None else _block(*asked)
        if self.cost.jitters or not _rows_each(step):
            return None
        return Block(0, UNLIMITED, self.of(step))

    def first_of(self, context: int) -> int:
        """Return the total context of the first entry of the block that holds this one."""
        return context - context % BLOCK if self.cost.reads_context else 0

    def along(self, step: Step) -> NamedTuple:
        """Return the named durations, each a number or an array, of steps whose contexts are
        arrays: those that :meth:`of` has of each step.
        """
        if not self.cost.reads_context:
            return self.of(_single(step, 0))
        return _shortened(self.strategy.durations(self.cost, step))

    def admission(self, prompts: Rows, ending: int, context: int) -> Admission:
        """Return the durations, in seconds, of a pass over prompts alone; ``ending`` of them are
        complete with it, with ``context`` tokens in their caches. Drawn anew every time where links
        jitter.
        """
        if self.cost.jitters:
            return self.strategy.admission(self.cost, prompts, ending, context)
        key = prompts, ending, context
        admission = self._admissions.get(key)
        if admission is None:
            if len(self._admissions) >= MOST_ADMISSIONS:
                self._admissions.clear()
            admission = self.strategy.admission(self.cost, prompts, ending, context)
            self._admissions[key] = admission
        return admission

    def _asked(self, step: Step) -> tuple[Price, Kind, int, int, int] | None:
        """Return what says which block a step lies in; None where there is none."""
        each = _rows_each(step)
        rows = step.rows
        if not each or rows.sequences > LARGEST or self.cost.jitters or self.cost.stages:
            return None
        first = self.first_of(rows.kv_tokens - rows.tokens)
        return self._price, step.kind, each, rows.sequences, first


_kept_times = lru_cache(MOST_TIMES)(StepTimes)


def step_times(strategy: Strategy, cost: Cost) -> StepTimes:
    """Return the step times of a strategy on its hardware, the same for equal ones; where links
    jitter, or a field has no hash, they are of this run alone.
    """
    if cost.jitters or not (has_hash(strategy) and has_hash(cost)):
        return StepTimes(strategy, cost)
    return _kept_times(strategy, cost)


@lru_cache(MOST_BLOCKS)
def _block(price: Price, kind: Kind, each: int, sequences: int, first: int) -> Block:
    """Return the durations of the steps of a kind with ``each`` rows in so many sequences, from a
    total context on.
    """
    stop = first + BLOCK
    rows = Rows.decode(each, np.arange(first, stop), sequences)
    durations = price(Step(kind, rows))
    return Block(first, stop, _shortened(durations))


def _rows_each(step: Step) -> int:
    """Return the rows of each sequence of a step whose durations depend on its total context alone;
    0 where they depend on more.
    """
    kind, rows, _, prompts, loads = step
    if kind.redrafts or prompts.tokens or loads or rows.experts_read or not rows.sequences:
        return 0
    each = rows.tokens // rows.sequences
    context = rows.kv_tokens - rows.tokens
    if rows == Rows.decode(each, context, rows.sequences):
        return each
    return 0


def _shortened(durations: NamedTuple) -> NamedTuple:
    """Return durations with a number for every array of equal ones: a strategy may ask whether a
    part occurs, and that is a question to a number.
    """
    return type(durations)._make([_number_or_array(seconds) for seconds in durations])


def _number_or_array(seconds: Numbers) -> Numbers:
    if isinstance(seconds, np.ndarray) and (seconds == seconds[0]).all():
        return float(seconds[0])
    return seconds


def _without_context(step: Step) -> tuple[Hashable, ...]:
    """Return what distinguishes steps where cached tokens make no difference."""
    kind, rows, _, prompts, loads = step
    if prompts is NO_ROWS and not loads:
        return kind, rows[:3]
    return kind, rows[:3], prompts[:3], tuple([load[:3] for load in loads])


def _single(step: Step, place: int) -> Step:
    """Return one step of those whose contexts are arrays."""
    rows = step.rows
    redraft = step.redraft_kv_tokens
    pairs = int(rows.attention_pairs[place])
    behind = int(np.broadcast_to(redraft, rows.kv_tokens.shape)[place])
    return step._replace(
        rows=rows._replace(kv_tokens=int(rows.kv_tokens[place]), attention_pairs=pairs),
        redraft_kv_tokens=behind,
    )
