"""DuoDecoding's automaton: several short sequences a step, verified one step late (DUO-3 to DUO-5).

What is asked of acceptance is how many sequences are worth while behind an unverified tail, how much of the tail is
right and whether one of the sequences begins right. Recorded, it comes from agreement, ranks and roll-outs of one
request; stated, from the verdicts of a chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from simulator.acceptance.sequence_chances import Drafts
from simulator.acceptance.sources import Acceptance, Chain, Cursor, Exit, Odds, Rates, Replay, Verdict
from simulator.acceptance.trace import Trace


class Split(NamedTuple):
    """How a budget is shared out: ``fixed`` sequences, or as many as are worth while, cut to a divisor of the budget."""

    budget: int
    fixed: int | None = None
    divisors: bool = True

    def sequences(self, worth: int) -> int:
        """Sequences drafted where ``worth`` of them are worth while."""
        if self.fixed is not None:
            return self.fixed
        return largest_divisor(self.budget, worth) if self.divisors else min(self.budget, worth)

    def tail(self, sequences: int) -> int:
        """Unverified tokens that an accepted sequence leaves; what does not divide the budget is not used (DUO-4)."""
        return self.budget // sequences - 1

    @property
    def longest_tail(self) -> int:
        """The most that can be left unverified."""
        return self.tail(self.fixed or 1)


def largest_divisor(number: int, at_most: int) -> int:
    """The largest divisor of ``number`` that is no more than ``at_most``."""
    return next(divisor for divisor in range(min(number, at_most), 0, -1) if number % divisor == 0)


class SequenceIteration(NamedTuple):
    """One iteration of DuoDecoding."""

    sequences: int
    """Sequences drafted, ``budget / sequences`` tokens each."""
    unverified: int
    """Tokens at the end of the prefix that were still to be checked when it began."""
    committed: int
    hit: bool
    """The first token of a new sequence was right; the rest of the sequence is unverified now."""


class Drafting(Cursor, Protocol):
    """Follows one request: what a draft proposes behind a tail, and what the target makes of it."""

    def worth(self, unverified: int) -> int:
        """Sequences that are worth while behind a tail of ``unverified`` tokens."""

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """(tail tokens that are right, whether one of the sequences begins right); moves on by what is committed."""


class Automaton:
    """The unverified prefix of one request; every iteration verifies what the one before has drafted."""

    def __init__(self, drafting: Drafting, split: Split) -> None:
        self.drafting, self.split = drafting, split
        self.unverified = 0
        self.sequences = split.sequences(drafting.worth(0))

    def judge(self) -> SequenceIteration:
        """Draft and verify once."""
        unverified, sequences = self.unverified, self.sequences
        right, hit = self.drafting.check(unverified, sequences)
        self.unverified = self.split.tail(sequences) if hit else 0
        self.sequences = self.split.sequences(self.drafting.worth(self.unverified))
        return SequenceIteration(sequences, unverified, right + 1, hit)


@dataclass(frozen=True)
class SequenceOdds(Odds):
    """Odds of a tail, and what is drafted behind it."""

    drafts: Drafts = field(default_factory=dict)


# ---- recorded


class RecordedRequest(NamedTuple):
    """One recorded request from position 1 on."""

    run: list[int]
    rank: list[int]
    """Of the emitted token among the draft's choices; empty where only runs were recorded."""
    worth: list[list[int]]
    """By greedy tokens written, then by position: sequences that are worth while; empty without roll-outs."""


class RecordedDrafting:
    """Greedy drafting as recorded; a request that wants more goes on at position 1.

    Drafting goes on behind tokens that may be wrong, so that how many sequences are worth while there comes from
    roll-outs: ``rollout.sequences[l, s]`` behind ``l`` greedy tokens from position ``s``.
    """

    def __init__(self, request: RecordedRequest) -> None:
        self.request, self.position = request, 0

    def worth(self, unverified: int) -> int:
        """As recorded; ValueError where no roll-out is so long."""
        worth = self.request.worth
        if not worth:
            return 1
        if unverified >= len(worth):
            raise ValueError(f"roll-outs of {len(worth)} tokens cannot answer behind {unverified} unverified ones")
        return worth[unverified][self.position]

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """By agreement, and by the rank of the first token."""
        request, here = self.request, self.position
        right = min(request.run[here], unverified)
        hit = request.run[here] > unverified
        if sequences > 1 and right == unverified:
            hit = request.rank[(here + unverified) % len(request.rank)] < sequences
        self._move(right + 1)
        return right, hit

    def judge(self, proposal: Chain) -> Verdict:
        """A chain without sequences, as a prefill that is done again shows one token."""
        accepted = min(self.request.run[self.position], proposal.tokens)
        self._move(accepted + 1)
        return Verdict(accepted, accepted + 1, False, False)

    def _move(self, tokens: int) -> None:
        self.position = (self.position + tokens) % len(self.request.run)


class RecordedSequences:
    """What a recording says of several sequences; every request walks one recorded request."""

    def __init__(self, replay: Replay, split: Split) -> None:
        self.replay, self.split = replay, split
        self._requests: dict[int, RecordedRequest] = {}
        self._odds: dict[int, SequenceOdds] = {}

    def cursor(self, request: int, exit: Exit | None) -> RecordedDrafting:
        """A cursor over the recording dealt to this request."""
        order = self.replay.order
        return RecordedDrafting(self.request(order[request % len(order)]))

    def request(self, recording: int) -> RecordedRequest:
        """Arrays of one recorded request."""
        found = self._requests.get(recording)
        if found is None:
            trace = self.replay.trace
            inside = slice(int(trace.offsets[recording]) + 1, int(trace.offsets[recording + 1]))
            worth = [] if self.split.fixed else trace.extra["rollout.sequences"][:, inside].tolist()
            rank = trace.draft_rank[inside].tolist()
            found = self._requests[recording] = RecordedRequest(self.replay.runs(recording).tolist(), rank, worth)
        return found

    def odds(self, gamma: int, exit: Exit | None) -> SequenceOdds:
        """Of a tail of ``gamma`` tokens: marginal rates, and marginal shares of what is drafted behind it."""
        found = self._odds.get(gamma)
        if found is None:
            tail = self.replay.odds(gamma, None)
            drafts = self._drafts(gamma) if gamma <= self.split.longest_tail else {}
            found = self._odds[gamma] = SequenceOdds(tail.accepted, tail.off_exit, tail.off_path, tail.source, drafts=drafts)
        return found

    def _drafts(self, tail: int) -> Drafts:
        drafted, right, begins = (np.concatenate(column) for column in zip(*self._behind(tail), strict=True))
        found = {}
        for sequences in np.unique(drafted).tolist():
            these = drafted == sequences
            judged = these & right
            found[sequences] = float(these.mean()), float(begins[judged].mean()) if judged.any() else 0.0
        return found

    def _behind(self, tail: int) -> Iterator[tuple[np.ndarray, ...]]:
        """By position of each request: sequences drafted behind the tail, whether it is right, whether one begins right."""
        for recording in self.replay.order:
            run, rank, worth = self.request(recording)
            if worth:
                split = {count: self.split.sequences(count) for count in set(worth[tail])}
                drafted = np.array([split[count] for count in worth[tail]])
            else:
                drafted = np.full(len(run), self.split.sequences(1))
            runs = np.array(run)
            begins = np.roll(rank, -tail) < drafted if rank and self.split.fixed != 1 else runs > tail
            yield drafted, runs >= tail, begins


def unrecorded(trace: Trace, split: Split) -> tuple[str, str] | None:
    """A field of the strategy and what it asks for that the trace cannot answer."""
    return next(_lacking(trace, split), None)


def _lacking(trace: Trace, split: Split) -> Iterator[tuple[str, str]]:
    if trace.window is not None and split.longest_tail >= trace.window:
        longest = trace.window
        yield "gamma", f"knows windows of up to {longest} draft tokens, got {split.budget}; set strategy.gamma={longest}"
    if split.fixed == 1:
        return
    if trace.temperature:
        yield "sequences", "was sampled, and which of several sequences begins right is recorded for greedy text; set 1"
    if not len(trace.draft_rank):
        yield "sequences", "holds no ranks, which tell whether one of several sequences begins right; set 1"
    if split.fixed:
        return
    depths = len(trace.extra.get("rollout.sequences", ()))
    if not depths:
        yield "sequences", "holds no roll-outs, which tell how many sequences are worth while; set a number"
    if split.budget > depths:
        yield "gamma", f"holds roll-outs of {depths} tokens, got {split.budget}; set {depths}, or strategy.sequences=1"


# ---- stated


class DrawnDrafting:
    """Drafting from stated verdicts: a tail and the first token behind it are a chain.

    ``firsts`` judges first tokens where several sequences make them likelier to be right than one more of the chain.
    """

    def __init__(self, tails: Cursor, firsts: Cursor | None) -> None:
        self.tails, self.firsts = tails, firsts

    def worth(self, unverified: int) -> int:
        """Unknown; the number is fixed."""
        return 1

    def check(self, unverified: int, sequences: int) -> tuple[int, bool]:
        """One verdict of the chain, or two."""
        if self.firsts is None:
            accepted = self.tails.judge(Chain(unverified + 1, bonus=False)).accepted
            return min(accepted, unverified), accepted > unverified
        right = self.tails.judge(Chain(unverified)).accepted
        return right, right == unverified and self.firsts.judge(Chain(1)).accepted == 1

    def judge(self, proposal: Chain) -> Verdict:
        """A chain without sequences."""
        return self.tails.judge(proposal)


@dataclass(frozen=True)
class DrawnSequences:
    """Stated verdicts, with ``first_rate`` as the chance that one of the sequences begins right (None: as the chain has it)."""

    verdicts: Acceptance
    split: Split
    first_rate: float | None = None

    def cursor(self, request: int, exit: Exit | None) -> DrawnDrafting:
        """A cursor with verdicts of its own."""
        firsts = None if self.first_rate is None else Rates((self.first_rate,), seed=-1).cursor(request, exit)
        return DrawnDrafting(self.verdicts.cursor(request, exit), firsts)

    def odds(self, gamma: int, exit: Exit | None) -> SequenceOdds:
        """Of a tail of ``gamma`` tokens, with the first token behind it."""
        tail, longer = self.verdicts.odds(gamma, exit), self.verdicts.odds(gamma + 1, exit)
        survives = float(tail.accepted[-1])
        hit = float(longer.accepted[-1]) / survives if survives else 0.0
        drafts = {self.split.sequences(1): (1.0, hit if self.first_rate is None else self.first_rate)}
        return SequenceOdds(tail.accepted, tail.off_exit, tail.off_path, tail.source, drafts=drafts)
