"""A draft on devices of its own runs a window ahead: it writes the next one while this one travels
and is verified.

    target    |==first group==|==others==|      |
    link                      |down|up|         |
    draft     |======= next window =======|     |

    T_step = max{sum T_target, T_target + T_down + T_up, T_draft}            (written ahead)
    T_step = max{sum T_target, T_target + T_down + T_draft + T_up}           (stop and wait)

A step begins with windows at the target, and ends as the next ones can be there. What is written
ahead stands behind a guess at the token that the target adds to a window, so that a window of gamma
tokens takes gamma + 1 passes. It is at hand where the whole window is kept and the guess is right;
else the request sits one step out while its window is written again, which is never longer than a
step: a window that was begun is written to its end. Where nobody has a window a step is that
writing alone. With a chance *m* that a window is lost, a request sits out m / (1 + m) of its steps.

Requests come to the target in ``groups`` that take turns. Those that stand behind the first one are
verified while the windows of that travel.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.numeric import Numbers, binomial, occurs
from simulator.core.strategies.common.base import LONGEST_WINDOW, Strategy
from simulator.core.strategies.common.beside import DraftsBeside
from simulator.core.strategies.common.capabilities import DraftsElsewhere
from simulator.core.strategies.common.claim import Claim
from simulator.core.strategies.common.drafters import AutoregressiveDrafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    ABSENT,
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_chain,
    intern_kind,
    intern_progress,
)
from simulator.core.strategies.common.traits import Finding, Needs


class AheadDurations(NamedTuple):
    """These are the seconds of the first pass of the target and of its others, of the next windows,
    and of the ways of a verdict and of a window.
    """

    target: float
    others: float
    draft: float
    down: float
    up: float


class WindowAhead(DraftsBeside, Strategy[AheadDurations], DraftsElsewhere, ABC):
    """A window of ``gamma`` tokens is verified while the draft writes the next one elsewhere."""

    gamma: int = Field(default=5, ge=1, le=LONGEST_WINDOW - 1)
    """Draft tokens of a window."""
    token_bytes: int = Field(default=6, gt=0, le=1_000_000_000)
    """Bytes of a draft token in a message: its id and its log-probability in 16 bits."""
    verdict_bytes: int = Field(default=12, ge=0, le=1_000_000_000)
    """Bytes of a verdict."""
    bonus_on_full_accept: Literal[False] = False
    """The token that the target adds to a window kept whole is the last of gamma + 1 guesses."""

    @abstractmethod
    def drafted_together(self, requests: int) -> int:
        """Return for how many requests a device drafts, where ``requests`` decode together."""

    @property
    def turns(self) -> int:
        """Return the groups in which requests come to the target."""
        return 1

    @property
    def writes_ahead(self) -> bool:
        """Return whether the draft goes on while a window is away."""
        return True

    # ---- what it is

    @property
    def window(self) -> int:
        """Return gamma and the guess behind it."""
        return self.gamma + 1

    @property
    def needs(self) -> Needs:
        """Return the needs of a draft model that writes behind tokens which are not verified."""
        return Needs(
            draft_model=True,
            draft_steps=self.gamma + 1,
            cache_tokens=2 * self.gamma + 2,
            rows=self.gamma + 1,
        )

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return that windows with their guess are longer than those that were recorded."""
        missing = super()._unrecorded(trace)
        if missing is None or trace.window is None:
            return missing
        return "gamma", (
            f"knows windows of up to {trace.window} draft tokens, and the guess behind "
            f"{self.gamma} is one more; set strategy.gamma={trace.window - 1}"
        )

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Return a request; without a first window it sits its first step out."""
        return State(cursor, context, ready=drafted)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which the requests with a window at hand have it verified, in turns."""
        ready = []
        missing_context = 0
        for state in states:
            if state.ready:
                state.proposed = min(self.window, state.most_rows)
                ready.append(state)
            else:
                state.proposed = None
                missing_context += state.context
        kind = intern_kind(
            "step", len(ready), waiting=len(states) - len(ready), prompts=prompts.sequences
        )
        loads = []
        first = 0
        for size in self._sizes(len(ready)):
            loads.append(_rows(ready[first : first + size]))
            first += size
        return Step(kind, sum(loads, NO_ROWS), missing_context, prompts, tuple(loads))

    def _sizes(self, requests: int) -> list[int]:
        """Return the sizes of the groups of so many requests, the larger ones first."""
        turns = min(self.turns, requests)
        return [ceil((requests - place) / turns) for place in range(turns)]

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify what was proposed, and note who has a window at hand."""
        settled = []
        for state in states:
            proposed = state.proposed
            if proposed is None:
                state.ready = True
                settled.append(ABSENT)
                continue
            accepted, committed, _, _ = state.cursor.judge(intern_chain(proposed, False))
            state.context += committed
            state.ready = accepted == proposed or not self.writes_ahead
            progress = intern_progress(committed, committed, accepted, proposed)
            settled.append(progress._replace(missed=not state.ready))
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the passes of the target over each group, prompts with the first, the passes of a
        draft device over the requests that are its own, and the messages.
        """
        kind = step.kind
        passes = [cost.target(rows) for rows in step.loads[1:]]
        first = Phase(0.0, {})
        if step.loads or step.prompts.sequences:
            own = step.loads[0] if step.loads else NO_ROWS
            first = cost.target(own + step.prompts)
        drafted = []
        if step.prompts.sequences:
            drafted.append(self._prefill(cost, step.prompts))
        if kind.batch:
            cached = step.rows.kv_tokens + step.redraft_kv_tokens
            drafted.append(self._drafted(cost, kind.batch, cached, kind.verifying > 0))
        goes = kind.batch if kind.verifying or not self.writes_ahead else 0
        return {
            "target": first,
            "others": together(*passes) if passes else Phase(0.0, {}),
            "draft": together(*drafted),
            "down": self._message(cost, kind.verifying, self.verdict_bytes),
            "up": self._message(cost, goes, self.gamma * self.token_bytes),
        }

    def _drafted(self, cost: Cost, requests: int, cached: Numbers, ahead: bool) -> Phase:
        """Return the passes of one draft device in which windows of its requests are written, and
        ``ahead`` of them the guess.
        """
        own = self.drafted_together(requests)
        inner = AutoregressiveDrafter().step(cost, own, own, cached * own // requests)
        return together(inner, times=self.gamma + (ahead and self.writes_ahead))

    def _prefill(self, cost: Cost, prompts: Rows) -> Phase:
        """Return the pass of one draft device over those of the prompts that are its own."""
        share = self.drafted_together(prompts.sequences) / prompts.sequences
        return cost.prefill("draft", Rows._make(ceil(count * share) for count in prompts))

    def _message(self, cost: Cost, requests: int, size_bytes: int) -> Phase:
        """Return a message for the requests of one draft device; none without requests."""
        if not requests:
            return Phase(0.0, {})
        return cost.rendezvous("fv", 0, self.drafted_together(requests) * size_bytes)

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds of the prompts through both models, and of the first windows of those
        that end here with their way to the target.
        """
        target = cost.prefill("target", prompts)
        draft = self._prefill(cost, prompts)
        window = 0.0
        if ending:
            sent = self._message(cost, ending, self.gamma * self.token_bytes)
            window = self._drafted(cost, ending, context + ending, False).wall_s + sent.wall_s
        return Admission(target.wall_s, draft.wall_s, window)

    def timeline(self, lanes: Lanes, durations: AheadDurations, kind: Kind) -> Timeline:
        """Book the passes of the target, the ways of the first group behind its pass, and the next
        windows beside the passes or between the ways.
        """
        t = durations
        target, draft, link = lanes.target, lanes.draft, lanes.rendezvous
        if not (kind.verifying or kind.prompts):
            draft.occupy(t.draft, "draft")
            return (link.start(t.up, "windows", draft),)
        target.occupy(t.target, "verify")
        if self.writes_ahead:
            drafted = draft.start(t.draft, "draft ahead")
            link.occupy(t.down, "verdicts", target)
            sent = link.start(t.up, "windows")
        else:
            link.occupy(t.down, "verdicts", target)
            drafted = draft.start(t.draft, "draft", link)
            sent = link.start(t.up, "windows", draft)
        if occurs(t.others):
            return (target.start(t.others, "verify others"), drafted, sent)
        return (drafted, sent)

    # ---- the law

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact where the draft shares neither device nor memory with the
        target.
        """
        if not one_lane and cost.contention > 1.0:
            return Claim("lower_bound", "a draft elsewhere shares no memory with the target")
        return super().claim(cost, requests, context, shares, one_lane)

    def step_seconds(self, durations: AheadDurations, kind: Kind) -> Numbers:
        """Return the seconds of the longest of all passes, of the first one with both ways, and of
        the next windows; where nothing is written ahead, of these between the ways.
        """
        t = durations
        if not (kind.verifying or kind.prompts):
            return t.draft + t.up
        passes = t.target + t.others
        if not self.writes_ahead:
            return np.maximum(passes, t.target + t.down + t.draft + t.up)
        ways = t.target + t.down + t.up
        return np.maximum(np.maximum(passes, ways), t.draft)

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the share of each number of requests that sit a step out: binomial, as they do not
        heed each other.
        """
        lost = self.lost(odds)
        return {
            intern_kind("step", requests - waiting, waiting=waiting): chance
            for waiting, chance in binomial(requests, lost / (1.0 + lost)).items()
        }

    def lost(self, odds: OddsOf) -> Numbers:
        """Return the chance that the window which is written ahead is of no use."""
        if not self.writes_ahead:
            return 0.0
        return 1.0 - odds(self.window).accepted[-1]

    def step(self, kind: Kind, context: Numbers) -> Step:
        """Return a step of this kind without prompts, with all requests at ``context`` tokens."""
        loads = tuple(
            Rows.decode(self.window, size * context, size) for size in self._sizes(kind.verifying)
        )
        return Step(kind, sum(loads, NO_ROWS), kind.waiting * context, NO_ROWS, loads)


def _rows(states: Sequence[State]) -> Rows:
    """Return the rows of a pass over the windows of these requests, a row for each token that is
    judged.
    """
    contexts: dict[int, list[int]] = {}
    for state in states:
        contexts.setdefault(state.proposed or 1, []).append(state.context)
    rows = NO_ROWS
    for tokens, cached in contexts.items():
        rows += Rows.decode(tokens, sum(cached), len(cached))
    return rows
