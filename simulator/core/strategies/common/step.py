"""A step of a batch is made of lanes, a kind and rows, and makes progress for the requests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from simpy import Event

from simulator.core.acceptance.cursors import Chain, Cursor, Verdict
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.strategies.common.stage_pipeline import StagePipeline
from simulator.core.world import Lane

UNLIMITED = 1 << 30
"""More rows, tokens or requests than there ever are."""
Timeline = Iterable[Event]
"""Events to wait for in this order: the end of a step that is booked at once, or several where it
is decided on the way.
"""
NO_DURATIONS = ("contention", "asynchronous", "levels")
"""Entries among the named durations of a strategy that are no durations."""


class Lanes(NamedTuple):
    """These are the lanes of the roles; two roles on one device have the same lane."""

    target: Lane
    draft: Lane
    rendezvous: Lane
    """Lane of the exchanges between the two, at the early exit and at the verification: sampling
    and transfer.
    """
    stages: tuple[Lane, ...] = ()
    """Stages of a pipeline in the order in which a step passes them; empty without a pipeline."""
    links: tuple[Lane, ...] = ()
    """Links between the stages."""
    line: StagePipeline | None = None
    """Stages and links as one pipeline where each blocks independently; None where a step books its
    lanes itself.
    """


class Detail(Protocol):
    """What the kinds of step of one strategy differ by besides what all strategies share: a named
    tuple of counts.
    """

    @property
    def words(self) -> str:
        """Return the detail in words for a report; empty where there is nothing to say."""
        ...

    @property
    def extra_work(self) -> int:
        """Return how many requests do more in this step than the paper's equation is about."""
        ...

    def __iter__(self) -> Iterator[int]:
        """Iterate over the counts."""
        ...

    def _asdict(self) -> dict[str, int]: ...


class Kind(NamedTuple):
    """What sort of step this is: how many requests of the batch do what in it.

    ``verifying`` requests have a window verified and ``bare`` ones a single token. ``redrafts``
    windows are written serially because none was at hand. ``waiting`` requests belong to the batch
    and get nothing from this step.
    """

    name: str
    verifying: int
    bare: int = 0
    redrafts: int = 0
    window: int | None = None
    """Length of the verified windows in draft tokens where it is not the strategy's gamma."""
    prompts: int = 0
    """Chunks of prompts in the target's pass."""
    waiting: int = 0
    detail: Detail | None = None
    """What this strategy's kinds of step differ by besides."""

    @property
    def batch(self) -> int:
        """Return the number of requests in the batch of this step."""
        return self.verifying + self.bare + self.waiting

    @property
    def extra_work(self) -> int:
        """Return how many requests do more in this step than the paper's equation is about."""
        if self.detail:
            return self.detail.extra_work
        return 0

    def data(self) -> dict[str, object]:
        """Return the kind as plain data for ``law --json``, where every strategy has the same
        keys.
        """
        shared = {
            "name": self.name,
            "verifying": self.verifying,
            "bare": self.bare,
            "redrafts": self.redrafts or self.waiting,
        }
        details = dict.fromkeys(("active", "begun", "resampled", "sequences"), 0)
        if self.detail:
            details |= self.detail._asdict()
        return {**shared, "window": self.window, "prompts": self.prompts, **details}


intern_kind = lru_cache(4_096)(Kind)
"""The same as ``Kind``: one object for equal kinds, quicker to make and to find again in a
dictionary.
"""


class Step(NamedTuple):
    """A composed step consists of its kind, the rows of the requests that decode, and those of
    prompts in the same pass.
    """

    kind: Kind
    rows: Rows
    redraft_kv_tokens: int = 0
    """Cached tokens of the requests whose window is written again."""
    prompts: Rows = NO_ROWS
    """Rows of prompt chunks; they travel in the target's pass, and in a separate pass through the
    draft.
    """
    loads: tuple[Rows, ...] = ()
    """Rows at each stage of a pipeline, level after level where they enter in tandem; or rows of
    each pass of the target where a step has several."""


NOTHING = Verdict(0, 0, False, False)
"""A verdict on no window."""


if TYPE_CHECKING:
    import typing_extensions

    C_co = typing_extensions.TypeVar("C_co", bound=Cursor, default=Cursor, covariant=True)
else:
    C_co = TypeVar("C_co", bound=Cursor, covariant=True)


@dataclass(slots=True)
class State(Generic[C_co]):
    """A state holds what a strategy knows of one request, which it follows by a cursor ``C_co``.

    A strategy that remembers more has a state of its own, and is a ``Strategy`` of this state.
    """

    cursor: C_co
    context: int
    """Tokens in the KV cache of the request."""
    ready: bool = True
    """Whether a window waits for verification."""
    proposed: int | None = 0
    """Draft tokens verified in the step that is composed; None where the request takes no part in
    it.
    """
    pending: int = UNLIMITED
    """Draft tokens at hand: as many as the draft has written for this request."""
    window: int | None = None
    """Draft tokens of the next window, where windows follow the request; None before the first."""
    turn: int = 0
    """Windows of this request so far, likewise."""
    foreseen: Verdict = NOTHING
    """Verdict on the window of this step, where it was judged to choose the window."""
    most_rows: int = UNLIMITED
    """Rows that the scheduler grants this request in the step; a longer window is cut."""
    plain_below: int = 0
    """Context up to which its steps are plain ones, as its draft has not read the prompt."""
    batch_memory: dict[int, Any] | None = None
    """What all requests of its batch remember together, by a number; None where a strategy's batch
    remembers nothing.
    """


class Progress(NamedTuple):
    """A progress says what one step did for one request."""

    verified: int
    """Tokens that are final: accepted ones and the correction or bonus."""
    shown: int
    """Tokens a reader has seen; equal to ``verified`` unless a method shows unverified tokens and
    takes them back.
    """
    accepted: int
    """Draft tokens that were kept."""
    proposed: int
    """Draft tokens that were verified."""
    choice: str = ""
    """Words for what the strategy decided about its next step; empty where it has no choice."""
    missed: bool = False
    """Whether the next window was lost and has to be written again."""


intern_chain = lru_cache(4_096)(Chain)
ABSENT = Progress(0, 0, 0, 0)
"""Progress of a request that takes no part in a step of its batch."""
intern_progress = lru_cache(4_096)(Progress)
"""The same as ``Progress``: one object per outcome, as there are few of them."""


class Admission(NamedTuple):
    """An admission holds the seconds before the first step: prompts through target and draft, then
    a first window.
    """

    target: float
    draft: float
    window: float


def named_durations(durations: NamedTuple) -> Iterator[tuple[str, float]]:
    """Yield named durations in milliseconds; of a duration for every stage or link, the longest."""
    for name, seconds in durations._asdict().items():
        if name in NO_DURATIONS:
            continue
        if isinstance(seconds, tuple):
            yield f"longest_of_{name}_ms", max(seconds, default=0.0) * 1e3
        else:
            yield f"{name}_ms", seconds * 1e3
