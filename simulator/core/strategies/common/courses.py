"""Courses: what a request does in each of its steps, known as it begins to decode, whoever is
beside it (``serving/lazy``).

A step of a batch is then made of sums over its requests: of their contexts, and of what else the
strategy's steps differ by.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Verdict, forked, forks
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.step import UNLIMITED, Kind, Progress, Step

Counts = NDArray[np.int64]
Places = Counts | slice
"""Which steps of a run are meant, by their numbers from 0."""
Sums = Sequence[Numbers]
"""What the requests of a step add up to, by column, first their contexts; arrays over the steps of
a run.
"""


class Course(NamedTuple):
    """What one request does from a step on until its output has so many tokens more."""

    adds: Counts
    """(columns, steps): what it adds to each step; first the tokens that have come into its cache
    before it.
    """
    shown: Sequence[int] | Counts
    """(steps,) tokens that it has shown by the end of each."""
    settled: Mapping[Progress, int] | Mapping[Verdict, int]
    """How often a step did what for it; of a verdict :meth:`TellsCourses.made_of` says it."""


class TellsCourses:
    """A strategy with this capability tells ahead what a request does, whoever is beside it.

    It says so in one place, :meth:`course_window`; a strategy that does not is stepped. Requests
    take part in every step from their first to their last.
    """

    def course_window(self, requests: int) -> int | None:
        """Return the window of a batch of so many requests, in draft tokens; courses hold as long
        as it is the same. None, as here, where no course is known.
        """
        return None

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of so many requests, without prompts, whose contexts add up to the first
        of ``sums``; arrays as :class:`simulator.core.cost.rows.Rows` has them. Raises
        NotImplementedError in a strategy that knows no courses.
        """
        raise NotImplementedError(type(self).__name__)

    kinds_by: ClassVar[tuple[int, ...]] = ()
    """Columns of the sums, counts all, by which kinds of step are told apart where there are such
    columns.
    """

    def steps_along(self, requests: int, sums: Sums) -> Iterator[tuple[Places, Step]]:
        """Yield the steps of a run by kind, in order of their first, each with its places; ``sums``
        are arrays over the run.
        """
        kinds_by = [column for column in self.kinds_by if column < len(sums)]
        if not kinds_by:
            yield slice(None), self.step_of(requests, sums)
            return
        counts = np.stack([sums[column] for column in kinds_by])
        for of_kind in dict.fromkeys(zip(*counts.tolist(), strict=True)):
            (these,) = np.nonzero(np.all(np.array(of_kind) == counts.T, axis=1))
            of_these = [column[these] for column in sums]
            for column, count in zip(kinds_by, of_kind, strict=True):
                of_these[column] = count
            yield these, self.step_of(requests, of_these)

    def along(self, state: Any) -> tuple[int, ...]:
        """Return what a request adds to the step that was composed of it alone; first its
        context.
        """
        return (state.context,)

    def rows_missing(self, course: Course) -> Counts | None:
        """Return (steps,) by how many the rows of a request are fewer than those of a window, in
        each step of its course; None, as here, where they never are.
        """
        return None

    def fork(self, state: Any) -> Any:
        """Return a state that can move on without the other one."""
        twin = copy(state)
        twin.cursor = forked(state.cursor)
        return twin

    def foreseeable(self, state: Any) -> bool:
        """Return whether the course of a request can be told."""
        return forks(state.cursor)

    def alone(self, state: Any, window: int) -> tuple[tuple[int, ...], Progress]:
        """Let a request take its next step; return what it adds to it and its progress.

        ``window`` is that of its batch.
        """
        strategy: Any = self
        state.most_rows = UNLIMITED
        strategy.compose([state])
        adds = self.along(state)
        (progress,) = strategy.settle([state])
        return adds, progress

    def course(self, state: Any, window: int, tokens: int) -> Course:
        """Return the course of a request up to the step by which it shows ``tokens``; the request
        stays where it is.
        """
        twin = self.fork(state)
        adds = list[tuple[int, ...]]()
        shown = list[int]()
        settled = Counter[Progress]()
        total = 0
        while total < tokens:
            added, progress = self.alone(twin, window)
            total += progress.shown
            adds.append(added)
            shown.append(total)
            settled[progress] += 1
        by_column = np.array(adds, dtype=np.int64).T
        by_column[0] -= state.context
        return Course(by_column, shown, settled)

    def made_of(self, judged: Verdict, window: int) -> Progress:
        """Return the progress of a request whose window of this length was judged so.

        Raises NotImplementedError in a strategy whose courses have no verdicts.
        """
        raise NotImplementedError(type(self).__name__)

    def in_turn(self, durations: Any, kind: Kind, one_lane: bool) -> tuple[Numbers, ...]:
        """Return the durations that follow one another from the begin of a step to its end, as its
        timeline adds them.
        """
        return tuple(durations)


def tells_courses(strategy: Strategy) -> bool:
    """Return whether courses are told: not where a subclass has changed a step and not said anew
    what courses depend on.
    """
    if not isinstance(strategy, TellsCourses):
        return False

    def depth(name: str) -> int:
        return next(
            depth for depth, owner in enumerate(type(strategy).__mro__) if name in vars(owner)
        )

    of_a_step = "compose", "settle", "phases", "durations", "timeline"
    told_at = depth("course_window")
    return told_at <= min(map(depth, of_a_step))
