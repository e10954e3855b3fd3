"""Cursors follow one request through its output and judge its windows one by one.

A window of ``gamma`` tokens keeps its first ``A``; the token after them, correction or bonus, is
the target's own. Some cursors tell ahead what they will say, so that a run of steps is known before
it is taken.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MOST_WALKS = 512
"""Walks along recordings that are kept, each with two numbers for every window."""


class Chain(NamedTuple):
    """A chain proposes draft tokens in a row."""

    tokens: int
    """Number of draft tokens."""
    bonus: bool = True
    """Whether a window that is kept in full earns one more token."""


BARE = Chain(0)
"""A proposal of nothing: the target adds one token."""


class Verdict(NamedTuple):
    """A verdict says what verification made of a proposal."""

    accepted: int
    """Draft tokens that are kept."""
    committed: int
    """Tokens that are final now, correction or bonus included."""
    off_exit: bool
    """Whether the token after the accepted ones is outside the exit's top kappa."""
    off_path: bool
    """Whether the first emitted token is outside the exit's top kappa, or the draft would not have
    gone on to the bonus.
    """


verdict = lru_cache(4_096)(Verdict)
"""Return a ``Verdict`` as the class does, from a cache: few different ones exist, and a look-up is
quicker than a new one.
"""


class Cursor(Protocol):
    """A cursor follows one request through its output."""

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal, move behind the committed tokens, and return the verdict."""


@runtime_checkable
class Matching(Cursor, Protocol):
    """A cursor that knows before it is asked whether there is anything to propose."""

    @property
    def matched(self) -> bool:
        """Return whether there is something to propose in the next step."""


class Forking(ABC):
    """A cursor of which a second one can be made, which will judge the same from here on."""

    @property
    def can_fork(self) -> bool:
        """Return whether the cursors that this one asks fork as well; one that asks none does."""
        return True

    @abstractmethod
    def fork(self) -> Any:
        """Return a cursor that stands where this one does; neither moves the other."""


class Positioned:
    """A cursor that stands at a position of what it follows, counted from 0."""

    __slots__ = ()
    position: int


class Ahead(NamedTuple):
    """What a cursor tells ahead of a request's windows, if all propose the same."""

    verdicts: list[Verdict]
    behind: list[int]
    """Tokens committed by the end of each of them."""


class CountedAhead(NamedTuple):
    """The same, verdicts counted; those that differ in nothing but an exit may be told as one."""

    before: NDArray[np.int64]
    """(windows + 1,) tokens committed before each of them, and behind the last."""
    counts: Mapping[Verdict, int]


class Retraceable(Positioned, Forking, ABC):
    """A cursor that judges the same again where its position is set back."""

    position = 0

    @abstractmethod
    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal as a :class:`Cursor` does."""

    def fork(self) -> Self:
        """Return a cursor at the same position."""
        return copy(self)

    def ahead(self, proposal: Chain, tokens: int) -> Ahead:
        """Return the verdicts of the next windows up to the one by which ``tokens`` are committed;
        the cursor stays where it is.
        """
        stands = self.position
        verdicts = list[Verdict]()
        behind = list[int]()
        committed = 0
        while committed < tokens:
            judged = self.judge(proposal)
            committed += judged.committed
            verdicts.append(judged)
            behind.append(committed)
        self.position = stands
        return Ahead(verdicts, behind)

    def counted(self, proposal: Chain, tokens: int) -> CountedAhead:
        """Return the same, verdicts counted."""
        verdicts, behind = self.ahead(proposal, tokens)
        return CountedAhead(np.array([0, *behind]), Counter(verdicts))


class KnownWalk:
    """What a cursor judges on its way from where it stands, if all windows propose the same: walked
    once, as far as it is asked for.
    """

    def __init__(self, cursor: Retraceable, proposal: Chain) -> None:
        self._cursor = cursor
        self._proposal = proposal
        self._numbers: dict[Verdict, int] = {}
        """Verdicts in the order in which they come up."""
        self._judged = np.zeros(0, dtype=np.int64)
        """(windows,) numbers of their verdicts."""
        self._before = np.zeros(1, dtype=np.int64)
        """(windows + 1,) tokens committed before each of them, and behind the last."""

    def counted(self, tokens: int) -> CountedAhead:
        """Return the verdicts of the first windows by which ``tokens`` are committed, counted."""
        if self._before[-1] < tokens:
            self._go_on(max(tokens, 2 * int(self._before[-1])))
        windows = int(self._before.searchsorted(tokens))
        times = np.bincount(self._judged[:windows]).tolist()
        counts = dict(zip(self._numbers, times, strict=False))
        return CountedAhead(self._before[: windows + 1], counts)

    def _go_on(self, tokens: int) -> None:
        """Walk on until so many tokens are committed."""
        numbers = self._numbers
        judged = list[int]()
        before = list[int]()
        committed = int(self._before[-1])
        while committed < tokens:
            one = self._cursor.judge(self._proposal)
            committed += one.committed
            judged.append(numbers.setdefault(one, len(numbers)))
            before.append(committed)
        self._judged = np.append(self._judged, judged)
        self._before = np.append(self._before, before)


class Following(Retraceable):
    """A cursor that follows a recording, from which alone and from its position it judges."""

    def __init__(self, recorded: Any) -> None:
        self.recorded = recorded

    def counted(self, proposal: Chain, tokens: int) -> CountedAhead:
        """Return the same, of a walk for all that stand here, whatever their outputs and their
        hardware.
        """
        return _walk(type(self), self.recorded, self.position, proposal).counted(tokens)


@lru_cache(MOST_WALKS)
def _walk(
    follow: Callable[[Any], Retraceable], recorded: Any, position: int, proposal: Chain
) -> KnownWalk:
    """Return the walk from a position of a recording on."""
    cursor = follow(recorded)
    cursor.position = position
    return KnownWalk(cursor, proposal)


class Wrapping:
    """A cursor that asks another one, and makes something else of its verdicts."""

    cursor: Cursor


def position_of(cursor: Cursor) -> int:
    """Return where a cursor, or the one that it asks, stands; raises TypeError where it stands
    nowhere.
    """
    while isinstance(cursor, Wrapping):
        cursor = cursor.cursor
    if isinstance(cursor, Positioned):
        return cursor.position
    raise TypeError(f"{type(cursor).__name__} stands at no position")


def forks(cursor: Cursor) -> bool:
    """Return whether a second cursor can be made of this one, and of those that it asks."""
    return isinstance(cursor, Forking) and cursor.can_fork


def forked(cursor: Cursor) -> Cursor:
    """Return a second cursor; raises TypeError for one of which none can be made."""
    if isinstance(cursor, Forking):
        twin: Cursor = cursor.fork()
        return twin
    raise TypeError(f"of a {type(cursor).__name__} no second one can be made")


@dataclass(frozen=True, eq=False)
class RecordedVerdicts:
    """One recording, prepared so that judging a window takes one look-up."""

    run: list[int]
    """Draft tokens that an endless window keeps, by position."""
    off_exit: list[bool]
    """Whether the emitted token is off the exit, by position."""
    sure: list[int]
    """Tokens in a row of which the draft is sure, by position; empty if nobody asks."""
    judged: dict[Chain, list[Verdict | None]] = field(default_factory=dict)
    """By proposal, the verdicts that were asked for so far, by position."""

    def of(self, proposal: Chain) -> list[Verdict | None]:
        """Return the verdicts on a proposal by position, None where :meth:`at` was not asked."""
        if proposal not in self.judged:
            self.judged[proposal] = [None] * len(self.run)
        return self.judged[proposal]

    def at(self, position: int, proposal: Chain) -> Verdict:
        """Return the verdict on a proposal that begins at a position, and remember it."""
        run, (tokens, bonus), off_exit = self.run[position], proposal, self.off_exit
        if run < tokens:
            accepted = run
            committed = run + 1
            off_path = False
        else:
            accepted = tokens
            committed = tokens + bonus
            off_path = off_exit[position] or run == tokens
        judged = verdict(
            accepted, committed, off_exit[(position + accepted) % len(off_exit)], off_path
        )
        self.judged[proposal][position] = judged
        return judged


class RecordedCursor(Following):
    """Follows one recording from position 1 on, and starts over at its end."""

    recorded: RecordedVerdicts

    def __init__(self, recorded: RecordedVerdicts) -> None:
        super().__init__(recorded)
        self.length = len(recorded.run)
        self.proposal = BARE
        self.judged = recorded.of(BARE)

    @property
    def sure(self) -> int:
        """Return the tokens in a row of which the draft is sure enough here."""
        return self.recorded.sure[self.position]

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal as :class:`Cursor` does, by one look-up."""
        if proposal is not self.proposal:
            self.proposal = proposal
            self.judged = self.recorded.of(proposal)
        position = self.position
        judged = self.judged[position] or self.recorded.at(position, proposal)
        self.position = (position + judged.committed) % self.length
        return judged

    def ahead(self, proposal: Chain, tokens: int) -> Ahead:
        """Return the verdicts that stand in the recording from here on."""
        recorded = self.recorded
        of_proposal = recorded.of(proposal)
        length = self.length
        position = self.position
        verdicts = list[Verdict]()
        behind = list[int]()
        committed = 0
        while committed < tokens:
            judged = of_proposal[position] or recorded.at(position, proposal)
            tokens_kept = judged[1]
            committed += tokens_kept
            position = (position + tokens_kept) % length
            verdicts.append(judged)
            behind.append(committed)
        return Ahead(verdicts, behind)
