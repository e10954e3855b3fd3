"""What a step of a batch is made of: lanes, a kind, rows, the requests it finds, and what it did for each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from simpy import Event

from simulator.acceptance.sources import Chain, Cursor
from simulator.cost.rows import NO_ROWS, Rows
from simulator.strategies.common.stage_pipeline import StagePipeline
from simulator.world import Lane

UNLIMITED = 1 << 30
"""More rows, tokens or requests than there ever are."""
Timeline = Iterable[Event]
"""What to wait for, one after the other: the end of a step that is booked at once, or more where it is decided on the way."""


class Lanes(NamedTuple):
    """The lanes of the roles; two roles on one device have the same lane."""

    target: Lane
    draft: Lane
    rendezvous: Lane
    """Early exit and verification between the two: sampling and transfer."""
    stages: tuple[Lane, ...] = ()
    """The stages of a pipeline, in the order in which a step passes them; empty without one."""
    links: tuple[Lane, ...] = ()
    """The links between them."""
    line: StagePipeline | None = None
    """Stages and links as one line, where each blocks on its own."""


class Kind(NamedTuple):
    """What sort of step this is: how many requests of the batch do what in it.

    ``verifying`` requests have a window verified, ``bare`` ones a single token, and ``redrafts``
    windows are written serially because none was at hand. ``window`` is the length of the verified
    windows where it is not the strategy's gamma; ``prompts`` are chunks of prompts in the target's pass.
    """

    name: str
    verifying: int
    bare: int = 0
    redrafts: int = 0
    window: int | None = None
    prompts: int = 0
    active: int = 0
    """Stages of a pipeline that have work."""
    begun: int = 0
    """Requests for which a token was verified just before."""
    resampled: int = 0
    """Requests with a tree left from the step before that is verified along."""
    sequences: int = 0
    """Sequences drafted beside the target's pass, where their number is chosen step by step."""


intern_kind = lru_cache(4_096)(Kind)
"""The same as ``Kind``: one object for equal kinds, quicker to make and to find again in a dictionary."""


class Step(NamedTuple):
    """A composed step: its kind, the rows of the requests that decode, and those of prompts beside them."""

    kind: Kind
    rows: Rows
    redraft_kv_tokens: int = 0
    """Cached tokens of the requests whose window is written anew."""
    prompts: Rows = NO_ROWS
    """Chunks of prompts; they travel in the target's pass, and in a pass of their own through the draft."""
    loads: tuple[Rows, ...] = ()
    """Rows at each stage of a pipeline, of one level after the other where they enter in tandem; or of each pass of the
    target where a step has several."""


@dataclass(slots=True)
class State:
    """One request as its strategy sees it."""

    cursor: Cursor
    context: int
    """Tokens in the KV cache."""
    ready: bool = True
    """A window waits for verification."""
    proposed: int | None = 0
    """Length of the window verified in the step now composed; None: not in this step."""
    pending: int = UNLIMITED
    """Longest window that is at hand: as many tokens as the draft has written for it."""
    most_rows: int = UNLIMITED
    """Rows that the scheduler grants this request in the step; a longer window is cut."""


class Progress(NamedTuple):
    """What one step did for one request."""

    verified: int
    """Tokens that are final: accepted ones and the correction or bonus."""
    shown: int
    """Tokens a reader has seen; equal to ``verified`` unless a method shows unverified ones, and takes them back."""
    accepted: int
    """Draft tokens kept."""
    proposed: int
    """Draft tokens judged."""
    choice: str = ""
    """What a strategy decided about its next step, where it has a choice."""
    missed: bool = False
    """The window that follows was lost and has to be written anew."""


intern_chain = lru_cache(4_096)(Chain)
BARE = intern_chain(0)
"""Nothing proposed: the target adds a token of its own."""
ABSENT = Progress(0, 0, 0, 0)
"""A request that has no part in a step of its batch."""
intern_progress = lru_cache(4_096)(Progress)
"""The same as ``Progress``: one object for each outcome, as there are few."""


class Admission(NamedTuple):
    """Time from admission to the first step: prompts through both models, then a first window."""

    target: float
    draft: float
    window: float
