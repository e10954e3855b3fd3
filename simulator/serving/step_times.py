"""How long the steps of a batch take, worked out once for equal ones.

Steps of one request differ in its context alone, and go on by a few tokens at a time: they are worked out for many contexts
at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.cost.cost import NO_ROWS, REMEMBERED, Cost
from simulator.strategies.common.base import Strategy
from simulator.strategies.common.step import Kind, Step

AHEAD = 1_024
"""Contexts for which a step of one request is worked out at once."""


class StepTimes:
    """Durations of the steps of one strategy on one hardware."""

    def __init__(self, strategy: Strategy, cost: Cost) -> None:
        self._strategy, self._cost = strategy, cost
        self._known: dict[tuple[object, ...], Any] = {}
        self._lists: dict[Kind, tuple[int, list[tuple[float, ...]]]] = {}
        """By kind, the context of the first step that is worked out, and all that are."""

    def of(self, step: Step) -> Any:
        """Its named durations, in seconds; drawn anew every time where links jitter."""
        if not self._cost.reads_context:
            key = _without_context(step)
        elif (found := self._listed(step)) is not None:
            return found
        else:
            key = step
        durations = None if self._cost.jitters else self._known.get(key)
        if durations is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            durations = self._known[key] = self._strategy.durations(self._cost, step)
        return durations

    def _listed(self, step: Step) -> Any:
        """Durations of a step of one request, of which those behind the next contexts are worked out at once; else None."""
        kind, rows, *_ = step
        context, named = rows.kv_tokens - rows.tokens, self._strategy.traits.durations
        first, listed = self._lists.get(kind, (-AHEAD, []))
        if 0 <= context - first < AHEAD:
            return named._make(listed[context - first])
        if kind.verifying + kind.bare != 1 or step.loads or kind.prompts or self._cost.stages:
            return None
        if self._strategy.step(kind, context) != step:
            return None
        ahead = self._strategy.durations(self._cost, self._strategy.step(kind, np.arange(context, context + AHEAD)))
        listed = list(zip(*(np.broadcast_to(seconds, AHEAD).tolist() for seconds in ahead), strict=True))
        self._lists[kind] = context, listed
        return named._make(listed[0])


def _without_context(step: Step) -> tuple[object, ...]:
    """What tells steps apart where cached tokens make no difference."""
    kind, rows, _, prompts, loads = step
    if prompts is NO_ROWS and not loads:
        return kind, rows[:3]
    return kind, rows[:3], prompts[:3], tuple([each[:3] for each in loads])
