"""In DuoDecoding the draft writes on the CPU while the target verifies on the GPU what was drafted
one step before.

    draft     |=1=|=2=|...|=gamma=|          |                      |
    target    |====== verify l + 1 =========|                       |
    rendezvous|                             |drafts|verify|verdict  |

    T_iter = max{T_target, T_draft(gamma, s)} + T_send + T_verify + T_reply  (DUO-2, Algorithm 1)
    E[tokens] = (1 - pi_warm) + pi_warm (1 - a^(l+1)) / (1 - a)                    (DUO-6)

Both start from the same prefix, at whose end ``l`` tokens are unverified. A *cold* step has none
and commits one token; a *warm* one checks all of them. Where they are right, the first token of
every new sequence is checked too, and the sequence that begins right is appended, all but its first
token unverified. Anything else throws the drafts away (Algorithm 2; DUO-5). The first token of a
sequence is the target's own choice, so it counts as no draft token kept.

The budget of ``gamma`` tokens is shared by ``sequences``: as many as there are first tokens
likelier than the best two in a row (DUO-3), cut to a divisor. The program writes them one after
another, gamma - s + 1 passes of one row, and copies the draft's cache s + 1 times; ``batched`` lets
them share passes (K75).

The first step of a request drafts with a budget of one while both models read the prompt, so the
first token is shown after the longer of the two and an exchange; two passes of the draft and
``start_us`` count with its side.

PEARL is the same schedule with one sequence, its draft on a second GPU, and probabilities in the
messages; in batches it is a strategy of its own (:mod:`simulator.papers.pearl.strategy`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Cursor, forked
from simulator.core.acceptance.sequence_chances import (
    Written,
    budget,
    cost_coefficient,
    tail_shares,
    until_shown,
)
from simulator.core.acceptance.sequences import (
    Automaton,
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
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, ordered_sum
from simulator.core.quantities import NonNegative
from simulator.core.strategies.common.base import LONGEST_WINDOW, Strategy
from simulator.core.strategies.common.beside import DraftsBeside, overlap_s
from simulator.core.strategies.common.capabilities import DerivesNumbers, Tunable
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.courses import Sums, TellsCourses
from simulator.core.strategies.common.drafters import AutoregressiveDrafter, branch_rows
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
)
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits


class DuoDecodingDurations(NamedTuple):
    """These are the seconds of both sides, then of the drafts on their way, the verification, and
    the verdict on its way.
    """

    target: float
    draft: float
    send: float
    verify: float
    reply: float
    contention: float = 1.0
    """Not a duration: how much slower target and draft are while both use one memory."""


@dataclass(slots=True)
class UnverifiedPrefix(State):
    """Holds a request whose last tokens are not checked yet."""

    automaton: Automaton = field(kw_only=True)
    """What follows them from one iteration to the next."""


class SequenceDetail(NamedTuple):
    """Tells iterations by the number of sequences that are drafted."""

    sequences: int

    @property
    def words(self) -> str:
        """Return the number of sequences in words."""
        return f"{self.sequences} sequences drafted"

    @property
    def extra_work(self) -> int:
        """Return 0: all iterations are of one request."""
        return 0


class DuoDecoding(
    DraftsBeside,
    TellsCourses,
    Strategy[DuoDecodingDurations, UnverifiedPrefix],
    Tunable,
    DerivesNumbers,
):
    """``sequences`` share a budget of ``gamma`` tokens; ``rule`` makes it c = T_target / T_draft
    where that is less (DUO-1).

    ``count: emitted`` shows unverified tokens, as the released program counts them. ``first_rate``:
    with stated acceptance, the chance that one of the sequences begins right (DUO-6's alpha_first).
    """

    name: Literal["duodecoding"] = "duodecoding"
    kinds_by: ClassVar[tuple[int, ...]] = (1, 2)
    traits: ClassVar[Traits] = Traits(
        DuoDecodingDurations,
        "max{T_target, T_draft} + T_send + T_verify + T_reply (DuoDecoding Algorithm 1)",
        hidden_behind="target",
        alone=True,
        separate_prompts=True,
    )

    gamma: int = Field(default=24, ge=1, le=LONGEST_WINDOW)
    """Budget of draft tokens of an iteration."""
    rule: Literal["stated", "floor", "round"] = "stated"
    """The stated budget, or T_target / T_draft rounded down or to the nearest, where that is
    less.
    """
    sequences: Annotated[int, Field(le=1_000)] | Literal["dynamic"] = "dynamic"
    """Sequences that share the budget."""
    divisors: bool = True
    """Whether their number is cut to a divisor of the budget."""
    batched: bool = False
    """Whether sequences share passes of the draft."""
    first_rate: float | None = Field(default=None, ge=0.0, le=1.0)
    """Chance that one of the sequences begins right, where acceptance is stated."""
    count: Literal["verified", "emitted"] = "verified"
    """Which tokens are counted as shown."""
    token_bytes: int = Field(default=4, gt=0, le=1_000_000_000)
    """Bytes of a draft token in a message."""
    reply_bytes: int = Field(default=12, ge=0, le=1_000_000_000)
    """Bytes of the verdict."""
    verify_us: NonNegative = NonNegative(
        value=0.0, source="DuoDecoding sec. 4.4.2: negligible", confidence="published"
    )
    """Microseconds of comparing drafts with the target's choice."""
    start_us: NonNegative = NonNegative(
        value=0.0, source="assumed: nothing is made anew for a request"
    )
    """Microseconds in which the draft gets ready for a request before it reads the prompt."""
    bonus_on_full_accept: Literal[True] = True

    @model_validator(mode="after")
    def _shared_out(self) -> Self:
        if self.fixed is not None and not 1 <= self.fixed <= self.gamma:
            raise ValueError(
                f"sequences: expected 'dynamic' or 1 to gamma = {self.gamma}, got {self.fixed}"
            )
        return self

    @classmethod
    def example(cls) -> Example:
        """Return a budget of four tokens in one sequence; the draft is slower than the target, and
        they share a memory.
        """
        durations = StatedDurations(target_ms=18.0, draft_step_ms=5.5, rv_fv_ms=0.2)
        return Example(cls(gamma=4, sequences=1), durations, contention=1.25)

    @property
    def window(self) -> int:
        """Return gamma: as many tokens may be drafted in one iteration."""
        return self.gamma

    @property
    def least_window(self) -> int:
        """Return the least budget in tokens: one for each of a fixed number of sequences."""
        return self.fixed or 1

    @property
    def needs(self) -> Needs:
        """Return the needs of one sequence; where the draft is unsure, a dynamic number of
        sequences is higher.
        """
        return Needs(
            draft_model=True,
            draft_steps=self.gamma,
            cache_tokens=self.gamma + 1,
            dynamic_draft=self.fixed is None,
            single_rates=True,
        )

    @property
    def fixed(self) -> int | None:
        """Return the number of sequences, None where it is dynamic."""
        if self.sequences == "dynamic":
            return None
        return self.sequences

    @property
    def accounting(self) -> Literal["verified", "emitted"]:
        """Return which tokens are counted as output."""
        return self.count

    @property
    def split(self) -> Split:
        """Return how the budget is shared out."""
        return Split(self.gamma, self.fixed, self.divisors)

    def window_for(self, requests: int) -> int:
        """Return the tokens of the longest tail that is verified."""
        return self.split.longest_tail

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return sequences as recorded, or drawn from stated verdicts."""
        if isinstance(verdicts, Replay):
            return RecordedSequences(verdicts, self.split)
        return DrawnSequences(verdicts, self.split, self.first_rate)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the field that asks for roll-outs, ranks or windows which the trace does not
        hold.
        """
        return unrecorded(trace, self.split)

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield what stated acceptance does not say: how sure the draft is, on which the number of
        sequences depends.
        """
        if not facts.stated or self.fixed == 1 or (self.fixed and self.first_rate is not None):
            return
        if self.fixed:
            yield lacks_first_rate(self.fixed)
        else:
            yield (
                "sequences",
                "'dynamic' needs a recorded trace; with stated acceptance set strategy.sequences=1",
            )

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """Return the strategy with gamma = c, if that is asked for."""
        if self.rule == "stated":
            return self
        gamma = min(self.gamma, budget(self.coefficient(cost, context), self.rule))
        fixed = self.fixed and min(self.fixed, gamma)
        return self.model_copy(
            update={"rule": "stated", "gamma": gamma, "sequences": fixed or "dynamic"}
        )

    def coefficient(self, cost: Cost, context: int) -> float:
        """Return c: the target's pass over a whole sequence and one token more, over one pass of
        the draft.
        """
        step = self.step(self.kind_of(self.gamma - 1, 1), context)
        return cost_coefficient(
            cost.target(step.rows).wall_s, self._pass(cost, 1, step.rows.kv_tokens).wall_s
        )

    def sides(self, cost: Cost, context: int) -> tuple[float, float]:
        """Return the seconds of drafting and of verifying a whole tail, at ``context`` cached
        tokens.
        """
        sequences = self.fixed or 1
        t = self.durations(
            cost, self.step(self.kind_of(self.split.tail(sequences), sequences), context)
        )
        return t.draft, t.target

    # ---- the request

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> UnverifiedPrefix:
        """Return a request that has nothing unverified behind its first token; raises TypeError for
        a cursor that follows no drafts.
        """
        if not isinstance(cursor, Drafting):
            raise TypeError(f"{type(cursor).__name__} does not follow what is drafted")
        return UnverifiedPrefix(cursor, context, automaton=Automaton(cursor, self.split))

    def compose(self, states: Sequence[UnverifiedPrefix], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which the target reads the tail and the token before it, and the draft
        writes behind them.
        """
        (state,) = states
        automaton = state.automaton
        state.proposed = automaton.unverified
        rows = Rows.decode(automaton.unverified + 1, state.context)
        return Step(self.kind_of(automaton.unverified, automaton.sequences), rows, 0, prompts)

    def kind_of(self, tail: int, sequences: int) -> Kind:
        """Return the kind of a step: cold without a tail, warm with one."""
        return Kind(
            "warm" if tail else "cold",
            int(tail > 0),
            int(tail == 0),
            window=tail,
            detail=SequenceDetail(sequences),
        )

    def course_window(self, requests: int) -> int | None:
        """Return the budget of the only request; None where tokens are shown before they are
        checked, so that a step may take some back.
        """
        return self.window if requests == 1 and self.count == "verified" else None

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of the only request: ``sums`` are its context, tail and sequences."""
        context, tail, sequences = sums
        return Step(self.kind_of(tail, sequences), Rows.decode(tail + 1, context))

    def along(self, state: UnverifiedPrefix) -> tuple[int, ...]:
        """Return context, tail and sequences."""
        automaton = state.automaton
        return state.context, automaton.unverified, automaton.sequences

    def fork(self, state: UnverifiedPrefix) -> UnverifiedPrefix:
        """Return a state whose tail follows a second cursor."""
        cursor = forked(state.cursor)
        if not isinstance(cursor, Drafting):
            raise TypeError(f"{type(cursor).__name__} does not follow what is drafted")
        automaton = state.automaton.fork(cursor)
        return UnverifiedPrefix(cursor, state.context, automaton=automaton)

    def in_turn(
        self, durations: DuoDecodingDurations, kind: Kind, one_lane: bool
    ) -> tuple[Numbers, ...]:
        """Return the longer side, or both on one lane, and the exchange behind it."""
        t = durations
        sides = (t.target, t.draft) if one_lane else (np.maximum(t.target, t.draft),)
        return (*sides, t.send, t.verify, t.reply)

    def settle(self, states: Sequence[UnverifiedPrefix]) -> list[Progress]:
        """Verify the tail, take over the sequence that begins right, and return the progress of the
        request.
        """
        (state,) = states
        automaton = state.automaton
        done = automaton.judge()
        state.context += done.committed
        taken = automaton.unverified - done.unverified if self.count == "emitted" else 0
        choice = f"{done.sequences} sequence{'s' if done.sequences > 1 else ''}"
        return [
            Progress(
                done.committed, done.committed + taken, done.committed - 1, done.unverified, choice
            )
        ]

    # ---- the time

    def passes(self, sequences: int) -> dict[int, int]:
        """Return the number of draft passes by their rows.

        One after another a sequence of n tokens takes n passes, all but the first one less, as its
        first token is known; where the number is dynamic, it is known after two.
        """
        seen = 2 if self.fixed is None and self.gamma > 1 else 1
        return passes_of(self.gamma, sequences, seen, self.batched)

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the pass of the target, the drafting of all sequences with the copies between
        them, and the messages.
        """
        kv_tokens = step.rows.kv_tokens
        detail = step.kind.detail
        sequences = detail.sequences if isinstance(detail, SequenceDetail) else 0
        written = [
            together(self._pass(cost, rows, kv_tokens), times=times)
            for rows, times in self.passes(sequences).items()
        ]
        if sequences > 1 and not self.batched:
            copied = (sequences + 1) * cost.copy(kv_tokens)
        else:
            copied = 0.0
        send, reply = self._exchange(cost, self.gamma)
        return {
            "target": cost.target(step.rows),
            "draft": together(*written, Phase(copied, {"draft copies": copied})),
            "send": send,
            "verify": Phase(self.verify_us.value * 1e-6, {}),
            "reply": reply,
        }

    def _pass(self, cost: Cost, rows: int, kv_tokens: int) -> Phase:
        """Return one pass of the draft over ``rows`` of one request."""
        return cost.draft(branch_rows(AutoregressiveDrafter(), rows, 1, kv_tokens))

    def _exchange(self, cost: Cost, tokens: int) -> tuple[Phase, Phase]:
        """Return the two messages: the drafts with their number, and the verdict."""
        return cost.rendezvous("fv", 0, (tokens + 1) * self.token_bytes), cost.rendezvous(
            "fv", 0, self.reply_bytes
        )

    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> dict[str, float]:
        """Return the cost coefficient (DUO-1), and how long either side waits for the other
        (DUO-2).
        """
        t = self.durations(cost, step)
        context = step.rows.kv_tokens - step.rows.tokens
        return {
            "cost_coefficient": self.coefficient(cost, context),
            "target_idle_ms": max(0.0, t.draft - t.target) * 1e3,
            "draft_idle_ms": max(0.0, t.target - t.draft) * 1e3,
        }

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds in which both read the prompt, and the draft gets ready before and
        writes two tokens behind.

        One is checked at once, the other shows the draft's odds.
        """
        target, draft, _ = super().admission(cost, prompts, ending, context)
        if not ending:
            return Admission(target, draft, 0.0)
        seen = 1 if self.fixed else 2
        first = together(self._pass(cost, 1, context), times=seen).wall_s
        exchange = (
            ordered_sum(phase.wall_s for phase in self._exchange(cost, 1))
            + self.verify_us.value * 1e-6
        )
        return Admission(
            target + exchange, self.start_us.value * 1e-6 + draft + first + exchange, 0.0
        )

    def timeline(self, lanes: Lanes, durations: DuoDecodingDurations, kind: Kind) -> Timeline:
        """Book the two sides, and their messages behind both."""
        t = durations
        lanes.target.occupy(t.target, "verify")
        lanes.draft.occupy(t.draft, "draft")
        lanes.rendezvous.occupy(t.send, "drafts", lanes.target, lanes.draft)
        if t.verify:
            lanes.rendezvous.occupy(t.verify, "verification")
        return (lanes.rendezvous.start(t.reply, "verdict"),)

    # ---- the law

    def step_seconds(self, durations: DuoDecodingDurations, kind: Kind) -> Numbers:
        """Return the seconds of the longer side, with the contention of one memory, and of the
        exchange.
        """
        t = durations
        return overlap_s(t.target, t.draft, t.contention) + t.send + t.verify + t.reply

    def chain(self, odds: OddsOf) -> tuple[dict[int, SequenceOdds], dict[int, int]]:
        """Return the odds by every length of tail that is reached from none, and the tail that a
        number of sequences leaves.
        """
        by_tail: dict[int, SequenceOdds] = {}
        reached = {0}
        while reached:
            tail = reached.pop()
            behind = odds(tail)
            if not isinstance(behind, SequenceOdds):
                raise TypeError(f"{type(behind).__name__} do not say what is drafted behind a tail")
            by_tail[tail] = behind
            likely = {
                self.split.tail(count)
                for count, (_, hit) in behind.drafts.items()
                if hit * behind.accepted[-1]
            }
            reached |= likely - set(by_tail)
        tails = {
            count: self.split.tail(count) for behind in by_tail.values() for count in behind.drafts
        }
        return by_tail, {count: tail if tail in by_tail else 0 for count, tail in tails.items()}

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Return the shares of DUO-6 over all tails with what is drafted behind them."""
        by_tail, tails = self.chain(odds)
        survives = {tail: float(behind.accepted[-1]) for tail, behind in by_tail.items()}
        shares = tail_shares(
            survives, {tail: behind.drafts for tail, behind in by_tail.items()}, tails
        )
        kinds: dict[Kind, float] = {}
        for tail, behind in by_tail.items():
            for count, (share, _) in behind.drafts.items():
                if shares[tail] * share:
                    kinds[self.kind_of(tail, count)] = shares[tail] * share
        return kinds

    def until_shown(self, cost: Cost, odds: OddsOf, context: int, cap: int) -> Written:
        """Return the law of a request that ends when ``cap`` tokens are shown, checked or not
        (``count: emitted``).
        """
        by_tail, tails = self.chain(odds)
        kinds = {
            (tail, count): self.kind_of(tail, count)
            for tail, behind in by_tail.items()
            for count in behind.drafts
        }
        seconds = {
            key: float(self.step_seconds(self.durations(cost, self.step(kind, context)), kind))
            for key, kind in kinds.items()
        }
        rights = {tail: behind.accepted.tolist() for tail, behind in by_tail.items()}
        return until_shown(
            cap, rights, {tail: behind.drafts for tail, behind in by_tail.items()}, tails, seconds
        )


def lacks_first_rate(sequences: int) -> Finding:
    """Return what stated acceptance does not say of several sequences."""
    return (
        "first_rate",
        (
            f"is required with stated acceptance and {sequences} sequences: how often one begins "
            "right"
        ),
    )


def passes_of(budget: int, sequences: int, seen: int, batched: bool) -> dict[int, int]:
    """Return the number of draft passes by their rows, for one request: sequences one after
    another, or ``batched`` in passes that they share; ``seen`` passes tell how many there are.
    """
    length = budget // sequences
    if not batched or sequences == 1:
        return {1: max(length, seen) + (sequences - 1) * (length - 1)}
    passes = Counter({1: seen})
    if length > 1 and seen == 2:
        passes[sequences - 1] += 1
    if length > seen:
        passes[sequences] += length - seen
    return dict(passes)
