"""Runs of steps: what a batch does between two moments at which something is decided, said at once
(``serving/leap.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Verdict
from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.step import Kind, Progress, State, Step

Counts = NDArray[np.int64]
Places = Counts | slice
"""Which steps of a run are meant, by their numbers from 0."""


class Foreseen(NamedTuple):
    """What the next steps of a batch will bring."""

    committed: Counts
    """(requests, steps) tokens."""
    verdicts: Sequence[Sequence[Verdict]] = ()
    """By request and step; empty where nothing is judged."""
    positions: Sequence[Sequence[int]] = ()
    """Where the cursor of a request stands behind each of them, and perhaps of some more."""

    def cut(self, steps: int) -> Self:
        """Return the same for the first so many steps."""
        return type(self)(
            self.committed[:, :steps],
            [verdicts[:steps] for verdicts in self.verdicts],
            self.positions,
        )


class TakesRuns(ABC):
    """A strategy with this capability can say at once what a batch does in a run of steps in which
    nothing is decided.

    All steps of a run have the same requests, no prompts and a window of one length; what is kept
    of it is foreseen.
    """

    @abstractmethod
    def steady(self, states: Sequence[State]) -> bool:
        """Return whether the next steps of this batch are such a run, as far as it depends on the
        strategy.
        """

    @abstractmethod
    def foresee(self, states: Sequence[State], left: Sequence[int], most: int) -> Foreseen:
        """Return what up to ``most`` steps will commit, less than the tokens that each request has
        ``left``; none moves on.
        """

    @abstractmethod
    def settle_run(
        self, states: Sequence[State], foreseen: Foreseen
    ) -> Iterable[tuple[Progress, int]]:
        """Leave the requests as the last step does, but for their contexts; return how often a step
        did what for one.
        """

    def steps_of_run(
        self, first: Step, states: Sequence[State], foreseen: Foreseen, contexts: Counts
    ) -> Iterator[tuple[Places, Step]]:
        """Yield the steps of each kind, in order of their first, with arrays over them for what
        depends on the context.

        ``first`` is the first of them, ``contexts`` (requests, steps) are the cached tokens. Here
        all are of one kind.
        """
        requests, steps = contexts.shape
        yield (
            slice(steps),
            first._replace(
                rows=Rows.decode(first.rows.tokens // requests, contexts.sum(axis=0), requests)
            ),
        )

    def in_turn(self, durations: Any, kind: Kind, one_lane: bool) -> tuple[Numbers, ...]:
        """Return the durations that follow one another from the begin of a step to its end, as its
        timeline adds them.
        """
        return tuple(durations)


def takes_runs(strategy: Strategy) -> bool:
    """Return whether steps may be taken in runs: not where a subclass has changed a step and not
    said anew what a run is.
    """
    of_a_step = "compose", "settle", "phases", "durations", "timeline"

    def depth(name: str) -> int:
        return next(
            depth for depth, owner in enumerate(type(strategy).__mro__) if name in vars(owner)
        )

    return isinstance(strategy, TakesRuns) and depth("steady") <= min(map(depth, of_a_step))
