"""DuoDecoding with several requests: the CPU writes sequences for all of them while the GPU
verifies the tails of some and one row of the others.

    draft     |= sequences of request 1, 2, ... N =|          |
    target    |== cold: 1 row, warm: l + 1 ==|                |
    rendezvous|                                    |exchange|

    T_step = max{T_draft(N), T_target(N, rows)} + T_exchange

The paper and its program take one request at a time; how several share a step is ours, and is that
of PEARL (:mod:`simulator.papers.pearl.strategy`), whose schedule DuoDecoding with one sequence has.
A request with a tail is warm, one without cold, as they do not heed each other; their number is
binomial. The number of sequences is fixed: as many as are worth while differ by request, so that
their drafts would not end together.

Sequences are written one after another, in passes over a row of every request, with the copies of
the draft's cache between them; ``batched`` lets the sequences share passes, too.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.sequences import (
    Drafting,
    DrawnSequences,
    RecordedSequences,
    SequenceOdds,
    Split,
    unrecorded,
)
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import Phase, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.quantities import NonNegative
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.drafters import AutoregressiveDrafter, branch_rows
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import State, Step
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits
from simulator.papers.duodecoding.strategy import lacks_first_rate, passes_of
from simulator.papers.pearl.strategy import Pearl, PearlDurations


class DuoDecodingBatch(Pearl):
    """``sequences`` share a budget of ``gamma`` tokens, for each request of a batch."""

    name: Literal["duodecoding_batch"] = "duodecoding_batch"  # type: ignore[assignment]
    traits: ClassVar[Traits] = Traits(
        PearlDurations,
        "max{T_target, T_draft} + T_exchange (DuoDecoding Algorithm 1, for several requests)",
        hidden_behind="target",
    )

    gamma: int = Field(default=24, ge=1, le=1_000)
    """Budget of draft tokens of a request in a step, at most."""
    sequences: int = Field(default=1, ge=1, le=1_000)
    """Sequences that share it."""
    batched: bool = False
    """Whether sequences share passes of the draft."""
    first_rate: float | None = Field(default=None, ge=0.0, le=1.0)
    """Chance that one of the sequences begins right, where acceptance is stated."""
    reply_bytes: int = Field(default=12, ge=0, le=1_000_000_000)
    """Bytes of the verdict on a request."""
    verify_us: NonNegative = NonNegative(
        value=0.0, source="DuoDecoding sec. 4.4.2: negligible", confidence="published"
    )
    """Microseconds of comparing drafts with the target's choice."""

    @model_validator(mode="after")
    def _shared_out(self) -> Self:
        if self.sequences > self.gamma:
            raise ValueError(f"sequences: expected 1 to gamma = {self.gamma}, got {self.sequences}")
        return self

    @classmethod
    def example(cls) -> Example:
        """Return a sequence of four tokens; the draft is slower than the target, and they share a
        memory.
        """
        durations = StatedDurations(target_ms=18.0, draft_step_ms=5.5, rv_fv_ms=0.2)
        return Example(cls(gamma=4), durations, contention=1.25)

    @property
    def least_window(self) -> int:
        """Return the least budget in tokens: one for each of a fixed number of sequences."""
        return self.sequences

    @property
    def window(self) -> int:
        """Return the tokens of a sequence."""
        return self.gamma // self.sequences

    def window_for(self, requests: int) -> int:
        """Return the tokens of a sequence in a batch of this size."""
        return max(1, super().window_for(requests) // self.sequences)

    @property
    def needs(self) -> Needs:
        """Return the needs of tails and of sequences behind them."""
        return Needs(
            draft_model=True,
            draft_steps=self.gamma,
            cache_tokens=self.gamma + self.window,
            rows=self.window,
            single_rates=True,
        )

    @property
    def split(self) -> Split:
        """Return how the budget is shared out."""
        return Split(self.gamma, self.sequences)

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return sequences as recorded, or drawn from stated verdicts."""
        if isinstance(verdicts, Replay):
            return RecordedSequences(verdicts, self.split)
        return DrawnSequences(verdicts, self.split, self.first_rate)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the field that asks for ranks or windows which the trace does not hold."""
        return unrecorded(trace, self.split)

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield that stated acceptance does not say how often one of several sequences begins
        right.
        """
        if facts.stated and self.sequences > 1 and self.first_rate is None:
            yield lacks_first_rate(self.sequences)
        yield from super()._contradictions(facts)

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Return a cold request; raises TypeError for a cursor that follows no drafts."""
        if not isinstance(cursor, Drafting):
            raise TypeError(f"{type(cursor).__name__} does not follow what is drafted")
        return super().open(cursor, context, drafted)

    def _judged(self, state: State, proposed: int) -> tuple[int, int]:
        """Return how much of the tail and of the first tokens behind it is right, and what that
        commits; of a tail that is cut short, how much of it.
        """
        if proposed <= state.pending or not isinstance(state.cursor, Drafting):
            return super()._judged(state, proposed)
        right, hit = state.cursor.check(state.pending, self.sequences)
        return right + hit, right + 1

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the pass of the target over rows of both sorts, the drafting of all sequences with
        the copies between them, and the exchange of drafts and verdicts.
        """
        requests = step.kind.batch
        parts = super().phases(cost, step)
        if requests:
            sent = requests * (self.gamma + 1) * self.token_bytes
            parts["exchange"] = together(
                cost.rendezvous("fv", 0, sent),
                Phase(self.verify_us.value * 1e-6, {}),
                cost.rendezvous("fv", 0, requests * self.reply_bytes),
            )
        return parts

    def _drafted(self, cost: Cost, requests: int, kv_tokens: int) -> Phase:
        """Return the passes in which all sequences of all requests are written."""
        written = []
        budget = self.window_for(requests) * self.sequences
        for rows, times in passes_of(budget, self.sequences, 1, self.batched).items():
            branches = branch_rows(AutoregressiveDrafter(), rows * requests, requests, kv_tokens)
            written.append(together(cost.draft(branches), times=times))
        if self.sequences > 1 and not self.batched:
            copied = (self.sequences + 1) * cost.copy(kv_tokens)
            written.append(Phase(copied, {"draft copies": copied}))
        return together(*written)

    # ---- the law

    def post_share(self, odds: OddsOf, window: int) -> Numbers:
        """Return the long-run share of steps in which a request is warm: begun by a sequence that
        begins right, ended by a tail that does not stand, or behind which none does.
        """
        if window == 1:
            return 0.0
        begun = self._goes_on(odds, 0)
        ended = 1.0 - self._goes_on(odds, window - 1)
        return begun / max(begun + ended, 1e-300)

    def _goes_on(self, odds: OddsOf, tail: int) -> float:
        """Return the chance that a tail is right and a sequence behind it begins right."""
        behind = odds(tail)
        if not isinstance(behind, SequenceOdds):
            raise TypeError(f"{type(behind).__name__} do not say what is drafted behind a tail")
        _, hit = behind.drafts[self.sequences]
        return float(behind.accepted[-1]) * hit
