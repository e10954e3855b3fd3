"""DuoDecoding's automaton drafts several short sequences a step and verifies them one step late
(DUO-3 to DUO-5).

It asks acceptance how many sequences are worth while behind an unverified tail, how much of the
tail is right and whether one of the sequences begins right. A recording answers from agreement,
ranks and roll-outs of one request; stated acceptance answers from the verdicts of a chain.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from simulator.core.acceptance.cursors import (
    Chain,
    Cursor,
    Forking,
    Positioned,
    Verdict,
    forked,
    forks,
)
from simulator.core.acceptance.sequence_chances import Drafts
from simulator.core.acceptance.sources import Acceptance, Exit, Odds, Rates, Replay
from simulator.core.acceptance.trace import Trace


class Split(NamedTuple):
    """A split says how the budget of draft tokens is shared among sequences."""

    budget: int
    """Draft tokens of a step."""
    fixed: int | None = None
    """Number of sequences; None: as many as are worth while."""
    divisors: bool = True
    """Whether that number is cut to a divisor of the budget."""

    def sequences(self, worth: int) -> int:
        """Return the number of sequences that are drafted where ``worth`` of them are worth
        while.
        """
        if self.fixed is not None:
            return self.fixed
        if self.divisors:
            return largest_divisor(self.budget, worth)
        return min(self.budget, worth)

    def tail(self, sequences: int) -> int:
        """Return the unverified tokens that an accepted sequence leaves; the remainder of the
        budget is not used (DUO-4).
        """
        return self.budget // sequences - 1

    @property
    def longest_tail(self) -> int:
        """Return the most tokens that can be left unverified."""
        return self.tail(self.fixed or 1)


def largest_divisor(number: int, at_most: int) -> int:
    """Return the largest divisor of ``number`` that is no more than ``at_most``."""
    return next(divisor for divisor in range(min(number, at_most), 0, -1) if number % divisor == 0)


class SequenceIteration(NamedTuple):
    """One iteration of DuoDecoding had this outcome."""

    sequences: int
    """Number of drafted sequences, of ``budget / sequences`` tokens."""
    unverified: int
    """Tokens at the end of the prefix that were not verified when it began."""
    committed: int
    """Tokens that are final now."""
    hit: bool
    """Whether the first token of a new sequence was right; the rest of the sequence is unverified
    now.
    """


@runtime_checkable
class Drafting(Cursor, Protocol):
    """A drafting follows one request: what a draft proposes behind a tail, and what the target
    keeps of it.
    """

    def worth(self, unverified: int) -> int:
        """Return the number of sequences that are worth while behind a tail of ``unverified``
        tokens.
        """

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """Return the right tokens of the tail, and whether a sequence begins right; move behind the
        committed tokens.
        """


class Automaton:
    """The automaton follows the unverified tail of one request; every iteration verifies the draft
    of the one before.
    """

    def __init__(self, drafting: Drafting, split: Split) -> None:
        self.drafting = drafting
        self.split = split
        self.unverified = 0
        self.sequences = split.sequences(drafting.worth(0))

    def fork(self, drafting: Drafting) -> Self:
        """Return an automaton with the same tail, which follows another cursor."""
        fork = copy(self)
        fork.drafting = drafting
        return fork

    def judge(self) -> SequenceIteration:
        """Draft and verify once; return the outcome."""
        unverified = self.unverified
        sequences = self.sequences
        right, hit = self.drafting.check(unverified, sequences)
        self.unverified = self.split.tail(sequences) if hit else 0
        self.sequences = self.split.sequences(self.drafting.worth(self.unverified))
        return SequenceIteration(sequences, unverified, right + 1, hit)


@dataclass(frozen=True)
class SequenceOdds(Odds):
    """Sequence odds are those of a tail and of the sequences behind it."""

    drafts: Drafts = field(default_factory=dict)
    """Share of steps and chance of a right beginning, by number of sequences."""


# ---- recorded


class RecordedRequest(NamedTuple):
    """A recorded request holds these lists by position, from 1 on."""

    run: list[int]
    """Draft tokens that an endless window keeps."""
    rank: list[int]
    """Rank of the emitted token among the draft's choices; empty where only runs were recorded."""
    worth: list[list[int]]
    """Sequences that are worth while, by number of greedy tokens before, then by position; empty
    without roll-outs.
    """


class RecordedDrafting(Positioned, Forking):
    """Recorded drafting is greedy; a request that wants more than was recorded goes on at position
    1.

    Drafting goes on behind tokens that may be wrong, so that how many sequences are worth while
    there comes from roll-outs: ``rollout.sequences[l, s]`` behind ``l`` greedy tokens from position
    ``s``.
    """

    def __init__(self, request: RecordedRequest) -> None:
        self.request = request
        self.position = 0

    def fork(self) -> Self:
        """Return a cursor at the same position."""
        return copy(self)

    def worth(self, unverified: int) -> int:
        """Return the recorded number of sequences worth while; raises ValueError where no roll-out
        is so long.
        """
        worth = self.request.worth
        if not worth:
            return 1
        if unverified >= len(worth):
            raise ValueError(
                f"roll-outs of {len(worth)} tokens cannot answer behind {unverified} unverified "
                "ones"
            )
        return worth[unverified][self.position]

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """Return the right tokens of the tail, and whether a sequence begins right by the rank of
        its first token.
        """
        request = self.request
        start = self.position
        right = min(request.run[start], unverified)
        hit = request.run[start] > unverified
        if sequences > 1 and right == unverified:
            hit = request.rank[(start + unverified) % len(request.rank)] < sequences
        self._move(right + 1)
        return right, hit

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a chain without sequences, such as the one token of a repeated prefill; return the
        verdict.
        """
        accepted = min(self.request.run[self.position], proposal.tokens)
        whole = accepted == proposal.tokens and not proposal.bonus
        committed = accepted if whole else accepted + 1
        self._move(committed)
        return Verdict(accepted, committed, False, False)

    def _move(self, tokens: int) -> None:
        self.position = (self.position + tokens) % len(self.request.run)


class RecordedSequences:
    """Recorded sequences answer from a recording; every request walks one recorded request."""

    def __init__(self, replay: Replay, split: Split) -> None:
        self.replay = replay
        self.split = split
        self._requests: dict[int, RecordedRequest] = {}
        self._odds: dict[int, SequenceOdds] = {}

    def cursor(self, request: int, exit: Exit | None) -> RecordedDrafting:
        """Return a cursor over the recording that is assigned to this request."""
        order = self.replay.order
        return RecordedDrafting(self.request(order[request % len(order)]))

    def request(self, recording: int) -> RecordedRequest:
        """Return the lists of one recorded request."""
        recorded = self._requests.get(recording)
        if recorded is None:
            trace = self.replay.trace
            inside = slice(int(trace.offsets[recording]) + 1, int(trace.offsets[recording + 1]))
            if self.split.fixed:
                worth = []
            else:
                worth = trace.extra["rollout.sequences"][:, inside].tolist()
            rank = trace.draft_rank[inside].tolist()
            recorded = RecordedRequest(self.replay.runs(recording).tolist(), rank, worth)
            self._requests[recording] = recorded
        return recorded

    def odds(self, gamma: int, exit: Exit | None) -> SequenceOdds:
        """Return the odds of a tail of ``gamma`` tokens and of the sequences behind it, from
        marginal rates and shares.
        """
        odds = self._odds.get(gamma)
        if odds is None:
            tail = self.replay.odds(gamma, None)
            drafts = self._drafts(gamma) if gamma <= self.split.longest_tail else {}
            odds = self._odds[gamma] = SequenceOdds(
                tail.accepted, tail.off_exit, tail.off_path, tail.source, drafts=drafts
            )
        return odds

    def _drafts(self, tail: int) -> Drafts:
        """Return how often each number of sequences is drafted behind a tail, and how often one of
        them begins right.
        """
        drafted, right, begins = (
            np.concatenate(column) for column in zip(*self._behind(tail), strict=True)
        )
        drafts = {}
        for sequences in np.unique(drafted).tolist():
            chosen = drafted == sequences
            judged = chosen & right
            drafts[sequences] = (
                float(chosen.mean()),
                float(begins[judged].mean()) if judged.any() else 0.0,
            )
        return drafts

    def _behind(self, tail: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield for each request, by position: sequences behind the tail, whether it is right,
        whether one begins right.
        """
        for recording in self.replay.order:
            run, rank, worth = self.request(recording)
            if worth:
                split = {count: self.split.sequences(count) for count in set(worth[tail])}
                drafted = np.array([split[count] for count in worth[tail]])
            else:
                drafted = np.full(len(run), self.split.sequences(1))
            runs = np.array(run)
            if rank and self.split.fixed != 1:
                begins = np.roll(rank, -tail) < drafted
            else:
                begins = runs > tail
            yield drafted, runs >= tail, begins


def unrecorded(trace: Trace, split: Split) -> tuple[str, str] | None:
    """Return a field of the strategy that asks more than the trace can answer, and why; None where
    it can.
    """
    return next(_lacking(trace, split), None)


def _lacking(trace: Trace, split: Split) -> Iterator[tuple[str, str]]:
    """Yield fields of the strategy that ask more than the trace can answer, and why."""
    if trace.window is not None and split.longest_tail >= trace.window:
        longest = trace.window
        yield (
            "gamma",
            (
                f"knows windows of up to {longest} draft tokens, got {split.budget}; set "
                f"strategy.gamma={longest}"
            ),
        )
    if split.fixed == 1:
        return
    if trace.temperature:
        yield (
            "sequences",
            (
                "was sampled, and which of several sequences begins right is recorded for greedy "
                "text; set strategy.sequences=1"
            ),
        )
    if not len(trace.draft_rank):
        yield (
            "sequences",
            (
                "holds no ranks, which tell whether one of several sequences begins right; set "
                "strategy.sequences=1"
            ),
        )
    if split.fixed:
        return
    depths = len(trace.extra.get("rollout.sequences", ()))
    if not depths:
        yield (
            "sequences",
            (
                "holds no roll-outs, which tell how many sequences are worth while; set "
                "strategy.sequences=1"
            ),
        )
    if split.budget > depths:
        yield (
            "gamma",
            (
                f"holds roll-outs of {depths} tokens, got {split.budget}; set "
                f"strategy.gamma={depths}, or strategy.sequences=1"
            ),
        )


# ---- stated


class DrawnDrafting(Forking):
    """Drawn drafting takes stated verdicts: a tail and the first token behind it are a chain.

    ``firsts`` judges first tokens where several sequences make them likelier to be right than the
    next token of the chain.
    """

    def __init__(self, tails: Cursor, firsts: Cursor | None) -> None:
        self.tails = tails
        self.firsts = firsts

    @property
    def can_fork(self) -> bool:
        """Return whether the cursors of both verdicts do."""
        return forks(self.tails) and (self.firsts is None or forks(self.firsts))

    def fork(self) -> Self:
        """Return a cursor behind as many verdicts."""
        return type(self)(forked(self.tails), self.firsts and forked(self.firsts))

    def worth(self, unverified: int) -> int:
        """Return 1: the number is unknown, and the split fixes it."""
        return 1

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """Return the right tokens of the tail and whether a sequence begins right, from a verdict
        of the chain, or two.
        """
        if self.firsts is None:
            accepted = self.tails.judge(Chain(unverified + 1, bonus=False)).accepted
            return min(accepted, unverified), accepted > unverified
        right = self.tails.judge(Chain(unverified)).accepted
        return right, right == unverified and self.firsts.judge(Chain(1)).accepted == 1

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a chain without sequences; return the verdict."""
        return self.tails.judge(proposal)


@dataclass(frozen=True)
class DrawnSequences:
    """Drawn sequences answer from stated verdicts."""

    verdicts: Acceptance
    split: Split
    first_rate: float | None = None
    """Chance that one of the sequences begins right; None: that of the chain's next token."""

    def cursor(self, request: int, exit: Exit | None) -> DrawnDrafting:
        """Return a cursor with verdicts of its own."""
        if self.first_rate is None:
            firsts = None
        else:
            firsts = Rates((self.first_rate,), seed=-1).cursor(request, exit)
        return DrawnDrafting(self.verdicts.cursor(request, exit), firsts)

    def odds(self, gamma: int, exit: Exit | None) -> SequenceOdds:
        """Return the odds of a tail of ``gamma`` tokens and of the first token behind it."""
        tail = self.verdicts.odds(gamma, exit)
        longer = self.verdicts.odds(gamma + 1, exit)
        survives = float(tail.accepted[-1])
        hit = float(longer.accepted[-1]) / survives if survives else 0.0
        drafts = {
            self.split.sequences(1): (1.0, hit if self.first_rate is None else self.first_rate)
        }
        return SequenceOdds(tail.accepted, tail.off_exit, tail.off_path, tail.source, drafts=drafts)
