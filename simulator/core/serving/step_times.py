"""Remember how long the steps of a batch take: equal steps are worked out once.

Steps of a single request differ in its context alone, which grows by a few tokens at a time: they
are worked out for many contexts at once.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from simulator.core.cost.hardware_cost import REMEMBERED
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS
from simulator.core.cost.stated import StatedCost
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.step import Kind, Step

AHEAD = 1_024
"""Contexts for which a step of a single request is worked out at once."""


class StepTimes:
    """Durations of the steps of a strategy on its hardware, remembered."""

    def __init__(self, strategy: Strategy, cost: Cost) -> None:
        self._strategy = strategy
        self._cost = cost
        self._named: type[NamedTuple] = strategy.traits.durations
        self._remembered: dict[tuple[Hashable, ...], NamedTuple] = {}
        self._lists: dict[Kind, tuple[int, list[tuple[float, ...]]]] = {}
        """By kind, the context of the first step that was worked out ahead, and the durations from
        there on.
        """

    def of(self, step: Step) -> NamedTuple:
        """Return the named durations of a step, in seconds; drawn anew every time where links
        jitter.
        """
        if not self._cost.reads_context:
            key = _without_context(step)
        elif (listed := self._listed(step)) is not None:
            return listed
        elif (ahead := self._with_next_contexts(step)) is not None:
            return self._list(step, self._strategy.durations(self._cost, ahead))
        else:
            key = step
        durations = None if self._cost.jitters else self._remembered.get(key)
        if durations is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            durations = self._remembered[key] = self._strategy.durations(self._cost, step)
        return durations

    def along(self, step: Step) -> NamedTuple:
        """Return the named durations, each a number or an array, of steps whose contexts are
        arrays, as :meth:`of` has them.

        What a formula states, and what is listed ahead, comes from arrays there too; an array's
        powers differ in the last bit.
        """
        first = _single(step, 0)
        if not self._cost.reads_context:
            return self.of(first)
        if not isinstance(self._cost, StatedCost):
            self.of(first)
        if isinstance(self._cost, StatedCost) or self._listed(first) is not None:
            priced: NamedTuple = self._strategy.durations(self._cost, step)
            return priced
        columns = np.array(
            [self.of(_single(step, place)) for place in range(len(step.rows.kv_tokens))]
        ).T
        # a strategy may ask whether a part occurs, and that is a question to a number
        constant = (
            float(column[0]) if (column == column[0]).all() else column for column in columns
        )
        return self._named._make(constant)

    def _listed(self, step: Step) -> "NamedTuple | None":
        """Return the durations of a step of a single request, where they are listed; else None."""
        if step.rows.experts_read:  # differs from step to step
            return None
        first, listed = self._lists.get(step.kind, (-AHEAD, []))
        place = step.rows.kv_tokens - step.rows.tokens - first
        if 0 <= place < AHEAD:
            return self._named._make(listed[place])
        return None

    def _with_next_contexts(self, step: Step) -> Step | None:
        """Return a step of a single request at its context and at the next ones; of others None."""
        kind, rows, *_ = step
        if rows.experts_read or kind.verifying + kind.bare != 1:
            return None
        if step.loads or kind.prompts or self._cost.stages:
            return None
        context = rows.kv_tokens - rows.tokens
        if self._strategy.step(kind, context) != step:
            return None
        return self._strategy.step(kind, np.arange(context, context + AHEAD))

    def _list(self, step: Step, ahead: Iterable[Numbers]) -> NamedTuple:
        """Keep the durations of a step at its context and at the next ones; return those of the
        first.
        """
        columns = [np.broadcast_to(seconds, AHEAD).tolist() for seconds in ahead]
        listed = list(zip(*columns, strict=True))
        self._lists[step.kind] = step.rows.kv_tokens - step.rows.tokens, listed
        return self._named._make(listed[0])


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
