"""In MineDraft the draft, on a device of its own, writes for one half of the batch while the target
verifies the other half; then they change places.

    target    |==verify first==|  |==verify second==|  |
    draft     |draft second|      |draft first|        |
    rendezvous|                |rv|                 |rv|

    T_step = max{T_target(B_1), gamma T_draft(B_2)} + T_rv
           + max{T_target(B_2), gamma T_draft(B_1)} + T_rv

against gamma T_draft(B) + T_target(B) of drafting in turn (arXiv 2603.18016, as restated; the
plugin is of vLLM 0.9.2). In a step every request has a window verified, so it pays where what
overlaps is more than reading the weights of both models a second time.

Requests without a window at hand are the second half. While they are more than the others, some of
them have theirs written in the second part of the step, beside the verification, and are verified
with the first half from the next step on; where the first half is larger, some of it are left
without one. So a batch finds its halves in one step whoever comes and goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from simulator.core.acceptance.cursors import Cursor
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, occurs
from simulator.core.strategies.common.base import LONGEST_WINDOW, Strategy
from simulator.core.strategies.common.beside import DraftsBeside, overlap_s
from simulator.core.strategies.common.chain import cut_to_grants
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.drafters import AutoregressiveDrafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_kind,
)
from simulator.core.strategies.common.traits import Needs, Traits
from simulator.core.strategies.vanilla_sd import TOKEN_BYTES


class MineDraftDurations(NamedTuple):
    """These are the seconds of the first part of a step, then of the second: the target's pass over
    one half, the window of the other, and the exchange.
    """

    verify_first: float
    draft: float
    """Of the windows of the second half."""
    rv_first: float
    verify_second: float
    draft_first: float
    rv_second: float
    contention: float = 1.0
    """Not a duration: how much slower target and draft are while both use one memory."""


@dataclass(slots=True)
class HalfState(State):
    """Holds a request of one of the two halves."""

    ready_next: bool = False
    """Whether its next window is written in this step."""


class HalvesDetail(NamedTuple):
    """Tells steps by their halves."""

    first: int
    """Requests whose windows are at hand."""
    drafted: int
    """Requests that have one by the end of the step."""

    @property
    def words(self) -> str:
        """Return how many windows are at hand, before and after."""
        return f"{self.first} windows at hand, {self.drafted} afterwards"

    @property
    def extra_work(self) -> int:
        """Return 0: every window is drafted once."""
        return 0


class MineDraft(DraftsBeside, Strategy[MineDraftDurations, HalfState]):
    """Two halves of a batch take turns between the draft and the target."""

    name: Literal["minedraft"] = "minedraft"
    traits: ClassVar[Traits] = Traits(
        MineDraftDurations,
        "max{T_target(B1), T_draft(B2)} + max{T_target(B2), T_draft(B1)} + 2 T_rv (MineDraft)",
        drafted_in=("draft", "draft_first"),
        hidden_behind="verify_first",
    )

    gamma: int = Field(default=3, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window."""

    @classmethod
    def example(cls) -> Example:
        """Return windows of three tokens; the draft is slower than the target, and they share a
        memory.
        """
        durations = StatedDurations(target_ms=18.0, draft_step_ms=7.0, rv_fv_ms=0.2)
        return Example(cls(), durations, contention=1.25)

    @property
    def window(self) -> int:
        """Return gamma."""
        return self.gamma

    @property
    def needs(self) -> Needs:
        """Return the needs of a draft model."""
        return Needs(draft_model=True, draft_steps=self.gamma, cache_tokens=self.gamma + 1)

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> HalfState:
        """Return a request that has no window at hand."""
        return HalfState(cursor, context, ready=False)

    def compose(self, states: Sequence[HalfState], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which both halves are verified, but for requests that change halves."""
        first = [state for state in states if state.ready]
        second = [state for state in states if not state.ready]
        late = max(0, (len(second) - len(first)) // 2)
        left = max(0, (len(first) - len(second)) // 2)
        for place, state in enumerate(first):
            state.proposed = self.gamma
            state.ready_next = place < len(first) - left
        for place, state in enumerate(second):
            waits = place >= len(second) - late
            state.proposed = None if waits else self.gamma
            state.ready_next = waits
        loads = (cut_to_grants(first), cut_to_grants(second))
        drafted = [state for state in states if state.ready_next]
        detail = HalvesDetail(len(first), len(drafted))
        kind = intern_kind(
            "step",
            len(states) - late,
            prompts=prompts.sequences,
            waiting=late,
            detail=detail,
        )
        context = sum(state.context for state in drafted)
        return Step(kind, loads[0] + loads[1], context, prompts, loads)

    def settle(self, states: Sequence[HalfState]) -> list[Progress]:
        """Verify what was proposed, and note who has a window at hand."""
        settled = super().settle(states)
        for state in states:
            state.ready = state.ready_next
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return both parts of the step; prompts are read in the first."""
        first, second = step.loads
        detail = step.kind.detail
        drafted = detail.drafted if isinstance(detail, HalvesDetail) else 0
        written = [cost.prefill("draft", step.prompts)] if step.prompts.sequences else []
        written.append(self._drafted(cost, second.sequences, second.kv_tokens))
        return {
            "verify_first": _pass(cost, first + step.prompts),
            "draft": together(*written),
            "rv_first": self._exchange(cost, second.sequences),
            "verify_second": _pass(cost, second),
            "draft_first": self._drafted(cost, drafted, step.redraft_kv_tokens),
            "rv_second": self._exchange(cost, drafted),
        }

    def _drafted(self, cost: Cost, requests: int, kv_tokens: Numbers) -> Phase:
        """Return the internal steps of a window for each of so many requests."""
        if not requests:
            return Phase(0.0, {})
        inner = AutoregressiveDrafter().step(cost, requests, requests, kv_tokens)
        return together(inner, times=self.gamma)

    def _exchange(self, cost: Cost, requests: int) -> Phase:
        """Return the message with the windows of so many requests."""
        if not requests:
            return Phase(0.0, {})
        return cost.rendezvous("fv", 0, requests * self.gamma * TOKEN_BYTES)

    def timeline(self, lanes: Lanes, durations: MineDraftDurations, kind: Kind) -> Timeline:
        """Book both parts; the second begins behind the exchange of the first."""
        t = durations
        target, draft, rendezvous = lanes.target, lanes.draft, lanes.rendezvous
        if occurs(t.verify_first):
            target.occupy(t.verify_first, "verify first half")
        if occurs(t.draft):
            draft.occupy(t.draft, "draft second half")
        rendezvous.occupy(t.rv_first, "windows", target, draft)
        if occurs(t.verify_second):
            target.occupy(t.verify_second, "verify second half", rendezvous)
        if occurs(t.draft_first):
            draft.occupy(t.draft_first, "draft first half", rendezvous)
        return (rendezvous.start(t.rv_second, "windows", target, draft),)

    # ---- the law

    def step_seconds(self, durations: MineDraftDurations, kind: Kind) -> Numbers:
        """Return the seconds of both parts: the longer side of each, with the contention of one
        memory, and the exchange.
        """
        t = durations
        first = overlap_s(t.verify_first, t.draft, t.contention)
        second = overlap_s(t.verify_second, t.draft_first, t.contention)
        return first + second + t.rv_first + t.rv_second

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return a share of 1 for the step in which the second half is the larger by one at
        most.
        """
        first = requests // 2
        return {Kind("step", requests, detail=HalvesDetail(first, first)): 1.0}

    def step(self, kind: Kind, context: Numbers) -> Step:
        """Return a step of this kind without prompts, with all requests at ``context`` tokens."""
        detail = kind.detail
        first, drafted = detail if isinstance(detail, HalvesDetail) else (0, 0)
        halves = (first, kind.verifying - first)
        loads = tuple(Rows.decode(self.gamma + 1, half * context, half) for half in halves)
        return Step(kind, loads[0] + loads[1], drafted * context, NO_ROWS, loads)


def _pass(cost: Cost, rows: Rows) -> Phase:
    """Return a pass of the target over these rows; none over no rows."""
    return cost.target(rows) if rows.tokens else Phase(0.0, {})
