"""In PEARL the draft, on devices of its own, writes a window while the target verifies the one
before; requests of a batch stand at different places of that.

    draft     |=1=|=2=|...|=gamma=|          |          |
    target    |====== pre: 1 row, post: gamma ======|          |
    rendezvous|                                     |exchange|

    T_step = max{gamma T_draft(B), T_target(B, rows)} + T_exchange

A request begins in *pre-verify*: behind its last final token the draft writes a window, and the
target, with one row, says what the first token of that window should have been. If it is right the
window stands, and the request goes on in *post-verify*: the target reads the gamma tokens of which
that is the first, and judges the others and the first one of the window that is written meanwhile.
Anything wrong throws away what is unverified, and the request is in pre-verify again
(arXiv 2408.11850, section 4; ``pearl_model_runner.py`` of smart-lty/nano-PEARL, where rows of both
sorts share a pass).

With a chance *a* of keeping any token, a run of kept tokens with its correction has 1 / (1 - a)
tokens and takes 1 + a / (1 - a^gamma) steps (a renewal law of ours). The share of requests in
post-verify is a / (1 + a - a^gamma), and as they do not heed each other their number is binomial.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.sequence_chances import budget, cost_coefficient
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial
from simulator.core.strategies.common.adaptive import Tabled, tabled_window
from simulator.core.strategies.common.base import LONGEST_WINDOW, Strategy
from simulator.core.strategies.common.beside import DraftsBeside, overlap_s
from simulator.core.strategies.common.capabilities import Tunable
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.courses import Sums, TellsCourses
from simulator.core.strategies.common.drafters import AutoregressiveDrafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    UNLIMITED,
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
from simulator.core.strategies.common.traits import Needs, Traits

MEASURED_AT_TOKENS = 256
"""Context at which nano-PEARL measures both models before a run, to choose gamma for a batch."""


class PearlDurations(NamedTuple):
    """These are the seconds of both sides, and of the exchange behind them."""

    target: float
    draft: float
    exchange: float
    contention: float = 1.0
    """Not a duration: how much slower target and draft are while both use one memory."""


class Pearl(DraftsBeside, TellsCourses, Strategy[PearlDurations], Tunable):
    """A window of ``gamma`` is written while the one before is verified, for each request of a
    batch.
    """

    name: Literal["pearl"] = "pearl"
    kinds_by: ClassVar[tuple[int, ...]] = (1,)
    traits: ClassVar[Traits] = Traits(
        PearlDurations,
        "max{gamma T_draft, T_target} + T_exchange (PEARL section 4)",
        hidden_behind="target",
    )

    gamma: int = Field(default=5, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window, at most."""
    rule: Literal["stated", "round"] = "stated"
    """The stated window, or T_target / T_draft of the batch rounded to the nearest (nano-PEARL),
    where that is less.
    """
    windows: Tabled = Field(default_factory=dict)
    """Draft tokens of a window from each batch size on; worked out before a run where ``rule`` asks
    for it.
    """
    token_bytes: int = Field(default=4, gt=0, le=1_000_000_000)
    """Bytes of a draft token in a message: its id, or with probabilities those of a vocabulary."""
    bonus_on_full_accept: Literal[False] = False
    """A window that is kept whole brings no further token: its last one is the first of the next
    window.
    """

    @classmethod
    def example(cls) -> Example:
        """Return windows of four tokens; the draft is slower than the target, and they share a
        memory.
        """
        durations = StatedDurations(target_ms=18.0, draft_step_ms=5.5, rv_fv_ms=0.2)
        return Example(cls(gamma=4), durations, contention=1.25)

    @property
    def window(self) -> int:
        """Return gamma."""
        return self.gamma

    def window_for(self, requests: int) -> int:
        """Return the draft tokens of the largest listed batch size not above ``requests``; gamma
        where there is none.
        """
        return tabled_window(self.windows, self.gamma, requests)

    @property
    def needs(self) -> Needs:
        """Return the needs of a draft model that writes behind tokens which are not verified."""
        return Needs(
            draft_model=True, draft_steps=self.gamma, cache_tokens=2 * self.gamma, rows=self.gamma
        )

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """Return the strategy with the window of each batch size 1, 2, 4, ... up to ``requests``,
        if that is asked for.
        """
        if self.rule == "stated":
            return self
        windows = {}
        size = 1
        while size <= requests:
            coefficient = cost_coefficient(
                cost.target(Rows.decode(1, size * MEASURED_AT_TOKENS, size)).wall_s,
                self._pass(cost, size, size * MEASURED_AT_TOKENS).wall_s,
            )
            windows[size] = min(self.gamma, budget(coefficient, "round"))
            size *= 2
        return self.model_copy(update={"rule": "stated", "windows": windows})

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Return a request in pre-verify: nothing is drafted behind its first token."""
        return State(cursor, context, pending=0)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which requests have one token verified, or the window that they have
        written.
        """
        window = self.window_for(len(states))
        contexts: dict[int, list[int]] = {}
        post = 0
        for state in states:
            post += self._propose(state, window)
            contexts.setdefault(state.proposed or 1, []).append(state.context)
        rows = NO_ROWS
        for tokens, cached in contexts.items():
            rows += Rows.decode(tokens, sum(cached), len(cached))
        kind = self._kind(post, len(states) - post, window, prompts.sequences)
        return Step(kind, rows, 0, prompts)

    def _propose(self, state: State, window: int) -> bool:
        """Let a request propose what it has written but not had verified, and the first token of
        the ``window`` that it writes now; return whether it is in post-verify.
        """
        state.proposed = max(1, min(state.pending + 1, state.most_rows))
        state.window = window
        return state.pending > 0

    def _kind(self, post: int, pre: int, window: int, prompts: int = 0) -> Kind:
        """Return the kind of a step with so many requests in post- and in pre-verify."""
        noted = None if window == self.window else window
        return intern_kind("step", post, pre, window=noted, prompts=prompts)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify what was proposed; where all of it is right, what the draft has written since is
        at hand.
        """
        settled = []
        for state in states:
            proposed = state.proposed or 1
            written = state.window or 0
            accepted, committed = self._judged(state, proposed)
            state.context += committed
            if accepted == proposed:
                state.pending = min(state.pending - proposed + written, self.window - 1)
            else:
                state.pending = 0
            settled.append(intern_progress(committed, committed, accepted, proposed))
        return settled

    def _judged(self, state: State, proposed: int) -> tuple[int, int]:
        """Return how many of the proposed tokens are right, and how many that commits."""
        accepted, committed, _, _ = state.cursor.judge(intern_chain(proposed, False))
        return accepted, committed

    def course_window(self, requests: int) -> int | None:
        """Return the window of this batch."""
        return self.window_for(requests)

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of a batch: ``sums`` are its contexts, how many are in post-verify, and
        the contexts of those.
        """
        context, post, post_context = sums
        window = self.window_for(requests)
        rows = Rows.decode(window, post_context, post)
        rows += Rows.decode(1, context - post_context, requests - post)
        return Step(self._kind(post, requests - post, window), rows)

    def along(self, state: State) -> tuple[int, ...]:
        """Return the context, whether the request is in post-verify, and its context if so."""
        post = int(state.pending > 0)
        return state.context, post, post * state.context

    def alone(self, state: State, window: int) -> tuple[tuple[int, ...], Progress]:
        """Let a request take its next step in a batch with this window."""
        state.most_rows = UNLIMITED
        self._propose(state, window)
        adds = self.along(state)
        (progress,) = self.settle([state])
        return adds, progress

    def in_turn(self, durations: PearlDurations, kind: Kind, one_lane: bool) -> tuple[Numbers, ...]:
        """Return the longer side, or both on one lane, and the exchange behind it."""
        t = durations
        sides = (t.target, t.draft) if one_lane else (np.maximum(t.target, t.draft),)
        return (*sides, t.exchange)

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the pass of the target over rows of both sorts, the passes of the draft over one
        row a request, and the messages.
        """
        requests = step.kind.batch
        window = self.window_for(requests) if requests else 0
        drafted = [cost.prefill("draft", step.prompts)] if step.prompts.sequences else []
        exchange = Phase(0.0, {})
        if window:
            drafted.append(self._drafted(cost, requests, step.rows.kv_tokens))
            exchange = cost.rendezvous(
                "fv", step.rows.logit_rows, requests * (window + 1) * self.token_bytes
            )
        return {
            "target": cost.target(step.rows + step.prompts),
            "draft": together(*drafted),
            "exchange": exchange,
        }

    def _drafted(self, cost: Cost, requests: int, kv_tokens: int) -> Phase:
        """Return the passes in which the next windows of all requests are written."""
        return together(self._pass(cost, requests, kv_tokens), times=self.window_for(requests))

    def _pass(self, cost: Cost, requests: int, kv_tokens: int) -> Phase:
        """Return one pass of the draft over a row of each request."""
        return AutoregressiveDrafter().step(cost, requests, requests, kv_tokens)

    def timeline(self, lanes: Lanes, durations: PearlDurations, kind: Kind) -> Timeline:
        """Book the two sides, and their messages behind both."""
        t = durations
        lanes.target.occupy(t.target, "verify")
        lanes.draft.occupy(t.draft, "draft")
        return (lanes.rendezvous.start(t.exchange, "exchange", lanes.target, lanes.draft),)

    # ---- the law

    def step_seconds(self, durations: PearlDurations, kind: Kind) -> Numbers:
        """Return the seconds of the longer side, with the contention of one memory, and of the
        exchange.
        """
        t = durations
        return overlap_s(t.target, t.draft, t.contention) + t.exchange

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the share of each number of requests in post-verify: binomial, as they do not heed
        each other.
        """
        window = self.window_for(requests)
        share = self.post_share(odds, window)
        return {
            self._kind(post, requests - post, window): chance
            for post, chance in binomial(requests, share).items()
        }

    def post_share(self, odds: OddsOf, window: int) -> Numbers:
        """Return the long-run share of steps that a request spends in post-verify: begun by a first
        token that is right, ended by a window that is not.
        """
        if window == 1:
            return 0.0
        begun = odds(1).accepted[-1]
        ended = 1.0 - odds(window).accepted[-1]
        return begun / np.maximum(begun + ended, 1e-300)

    def step(self, kind: Kind, context: Numbers) -> Step:
        """Return a step of this kind without prompts, with all requests at ``context`` tokens."""
        post = Rows.decode(self._window_of(kind), kind.verifying * context, kind.verifying)
        return Step(kind, post + Rows.decode(1, kind.bare * context, kind.bare))
