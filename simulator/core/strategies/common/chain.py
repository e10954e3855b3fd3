"""Strategies whose draft proposes one chain of tokens."""

from abc import ABC
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import count, takewhile
from operator import add
from typing import Any, Self

from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Chain, Retraceable, Verdict
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import tokens_per_pass
from simulator.core.cost.model import DraftHead
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.strategies.common.adaptive import (
    Adaptive,
    ConfidentWindow,
    FixedWindow,
    GoodputWindow,
    MovingWindow,
    OracleWindow,
    RequestWindow,
    WindowTable,
    stated_windows,
)
from simulator.core.strategies.common.base import LONGEST_WINDOW, D, Strategy
from simulator.core.strategies.common.capabilities import (
    DraftsChain,
    ReadsHiddenStates,
    Tunable,
    drafts_first,
)
from simulator.core.strategies.common.courses import Course, TellsCourses
from simulator.core.strategies.common.drafters import (
    AutoregressiveDrafter,
    Drafter,
    HeadDrafter,
    StreamingDrafter,
)
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Progress, State, intern_chain, intern_progress
from simulator.core.strategies.common.tiers import TierWindow
from simulator.core.strategies.common.traits import Facts, Finding, Needs

FORESEEN = 64
"""Longest window of ``gamma: oracle``."""


class ChainStrategy(TellsCourses, Strategy[D], DraftsChain, ReadsHiddenStates, Tunable, ABC):
    """A chain strategy drafts ``gamma`` tokens at most, fewer where ``adaptive`` says so.

    What the draft has not seen while its window was off goes into its cache at no cost.
    """

    gamma: int = Field(default=4, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window, at most; ``oracle`` for as many as will be kept."""
    drafter: Drafter = AutoregressiveDrafter()
    """How the draft writes a window."""
    adaptive: Adaptive = FixedWindow()
    """How the window follows the batch."""

    @model_validator(mode="before")
    @classmethod
    def _oracle(cls, stated: Any) -> Any:
        """Read ``gamma: oracle`` as the oracle's window of up to :data:`FORESEEN` tokens."""
        oracle = isinstance(stated, dict) and stated.get("gamma") == "oracle"
        if oracle:
            return {"adaptive": "oracle", **stated, "gamma": FORESEEN}
        return stated

    @property
    def window(self) -> int:
        """Return gamma."""
        return self.gamma

    def window_for(self, requests: int) -> int:
        """Return gamma, or what ``adaptive`` makes of it for ``requests``."""
        return self.adaptive.window(self.gamma, requests)

    @property
    def needs(self) -> Needs:
        """Return the needs of a chain, whose J internal draft steps depend on the drafter (MSD-4);
        a head is no model.
        """
        headed = isinstance(self.drafter, HeadDrafter)
        return super().needs._replace(
            draft_steps=self.drafter.steps(self.gamma),
            draft_model=not headed,
            single_rates=isinstance(self.adaptive, TierWindow | MovingWindow),
        )

    @property
    def reads_hidden_states(self) -> bool:
        """Return whether the drafter is a head with layers."""
        return isinstance(self.drafter, HeadDrafter) and self.drafter.head.layers > 0

    @property
    def heads(self) -> tuple[DraftHead, ...]:
        """Return the head that is the drafter; none where a model drafts."""
        if isinstance(self.drafter, HeadDrafter):
            return (self.drafter.head,)
        return ()

    def alone(self, state: State, window: int) -> tuple[tuple[int, ...], Progress]:
        """Let a request verify a window of the length that its batch has."""
        context = state.context
        judged = state.cursor.judge(self._proposal(window))
        state.context += judged.committed
        return (context,), self.made_of(judged, window)

    def course(self, state: State, window: int, tokens: int) -> Course:
        """Return the course of windows of that length, as the cursor tells it ahead."""
        cursor = state.cursor
        if not isinstance(cursor, Retraceable):
            return super().course(state, window, tokens)
        before, counts = cursor.counted(self._proposal(window), tokens)
        return Course(before[None, :-1], before[1:], counts)

    def _proposal(self, tokens: int) -> Chain:
        """Return a window of so many tokens; one of none brings the target's own token."""
        return intern_chain(tokens, self.bonus_on_full_accept or not tokens)

    def made_of(self, judged: Verdict, window: int) -> Progress:
        """Return the progress of a request whose window of this length was judged so."""
        return self._progress(judged, window)

    @staticmethod
    def _progress(judged: Verdict, window: int, choice: str = "", missed: bool = False) -> Progress:
        """Return the progress that a verdict on a window is, with what follows for the next one."""
        return intern_progress(
            judged.committed, judged.committed, judged.accepted, window, choice, missed
        )

    @property
    def chain_rule(self) -> Adaptive:
        """Return the rule by which the window follows the batch."""
        return self.adaptive

    @property
    def batch_settings(self) -> str:
        """Return the number of streams in words, where the drafter has any."""
        if not isinstance(self.drafter, StreamingDrafter):
            return ""
        return f"{self.drafter.streams} stream{'s' if self.drafter.streams > 1 else ''}"

    @property
    def chain_drafter(self) -> Drafter:
        """Return how the draft writes a window."""
        return self.drafter

    def with_rule(self, rule: Adaptive) -> Self:
        """Return the same strategy whose window follows the batch by another rule."""
        return self.model_copy(update={"adaptive": rule})

    def recorded_in(self, trace: Trace) -> Self:
        """Return the strategy with the tokens that a pass of recorded streams writes (MSD-4),
        unless they are stated.
        """
        drafter = self.drafter
        if not isinstance(drafter, StreamingDrafter) or drafter.emitted or drafter.per_pass:
            return self
        return self.model_copy(
            update={"drafter": drafter.model_copy(update={"per_pass": tokens_per_pass(trace)})}
        )

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """Return the strategy with the windows of most goodput by law filled in, for batches of up
        to ``requests``.

        Every size up to 16 is looked at, then four sizes a doubling.
        """
        if not isinstance(self.adaptive, GoodputWindow) or self.adaptive.windows:
            return self
        windows: dict[int, int] = {}
        for size in takewhile(lambda size: size <= requests, _sizes()):
            best = min(
                range(self.gamma + 1),
                key=lambda window: self._with(window).law(cost, odds, size, context).tpot_s,
            )
            if best != windows.get(max(windows, default=0)):
                windows[size] = best
        return self.with_rule(self.adaptive.model_copy(update={"windows": windows}))

    def _with(self, window: int) -> Self:
        """Return the same strategy with one window for every batch."""
        return self.with_rule(WindowTable(name="table", windows={1: window}))

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield a stated window that is longer than gamma, and windows that follow requests in a
        schedule that cannot.
        """
        if isinstance(self.adaptive, ConfidentWindow) and facts.stated:
            yield (
                "adaptive",
                (
                    "confidence is read from a recording, and acceptance is stated; take gated, or "
                    "a trace"
                ),
            )
        if isinstance(self.adaptive, OracleWindow) and not self.bonus_on_full_accept:
            yield (
                "bonus_on_full_accept",
                "the oracle's windows are kept whole, and each step brings the target's own token",
            )
        if isinstance(self.adaptive, RequestWindow | TierWindow) and not self.serial:
            follows = "its request" if isinstance(self.adaptive, RequestWindow) else "its batch"
            yield (
                "adaptive",
                (
                    f"a window that follows {follows} ({self.adaptive.name}) is drafted by "
                    "vanilla_sd alone"
                ),
            )
        if isinstance(self.drafter, HeadDrafter) and (not self.serial or drafts_first(self)):
            yield (
                "drafter",
                (
                    "a head drafts behind the target's pass: for vanilla_sd alone, without "
                    "drafts_first"
                ),
            )
        longest = max(stated_windows(self.adaptive).values(), default=0)
        if longest > self.gamma:
            yield (
                "adaptive.windows",
                f"a window of {longest} is longer than gamma = {self.gamma}, which is the longest",
            )
        yield from super()._contradictions(facts)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return a window, or confidence in it, that was not recorded; a shorter one in place of an
        oracle's is one still.
        """
        depths = len(trace.extra.get("rollout.q", ()))
        missing = super()._unrecorded(trace)
        if isinstance(self.adaptive, ConfidentWindow) and depths < self.gamma:
            return (
                "adaptive",
                (
                    f"holds the draft's confidence in {depths} tokens ahead, got a window of "
                    f"{self.gamma}"
                ),
            )
        too = " and strategy.adaptive=oracle" if isinstance(self.adaptive, OracleWindow) else ""
        return missing and (missing[0], missing[1] + too)

    def _noted(self, window: int) -> int | None:
        """Return ``window`` as a kind of step notes it: only where it is not gamma."""
        if window == self.gamma:
            return None
        return window


def _sizes() -> Iterator[int]:
    """Yield the batch sizes 1 to 16, then four for each doubling."""
    yield from range(1, 17)
    yield from (round(16 * 2 ** (quarter / 4)) for quarter in count(1))


def cut_to_grants(states: Sequence[State]) -> Rows:
    """Cut windows to the rows granted to their requests, drafted for nothing beyond them; return
    the rows of the step.
    """
    contexts: dict[int, list[int]] = {}
    for state in states:
        if state.proposed is not None:
            state.proposed = min(state.proposed, state.most_rows - 1)
            contexts.setdefault(state.proposed, []).append(state.context)
    return reduce(
        add,
        (Rows.decode(window + 1, sum(cached), len(cached)) for window, cached in contexts.items()),
        NO_ROWS,
    )
