"""A chain is retrieved where the end of the text has stood in it before for long enough; another
drafter drafts elsewhere.

Where a text was recorded, its matches are found in it, as a suffix automaton of the text so far
finds them (SAM-Decoding, arXiv 2411.10666, sec. 3). Prompts are not recorded: matches in them are
missing. Where acceptance is stated, so is how often a match is long enough, and what is kept of it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Chain, Cursor, Verdict, forked, forks
from simulator.core.acceptance.sources import Acceptance, Cycle, Exit, Odds, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import Ints, MatchCursor, RecordedRuns
from simulator.core.numeric import ordered_sum

HALVINGS = 60
"""Halvings of a rate between 0 and 1, down to the last bit of a number."""
SEED_OF_CHAINS = 1_000_003
"""Added to the seed, so that what is kept of retrieved chains is drawn apart from other drafts."""
RECORDINGS = 8
"""Recordings whose matches are kept."""


@runtime_checkable
class PassesBy(Protocol):
    """A cursor that has to know of tokens which others than its drafts brought."""

    def pass_by(self, tokens: int) -> None:
        """Move behind ``tokens`` without a verdict."""


def matches(text: NDArray[np.int64], tokens: int) -> tuple[Ints, Ints]:
    """Return for each position of a text (positions,) how many tokens before it stand earlier in
    it, and how many tokens are right of what followed there.

    Of the earlier occurrences the first one of the longest match is copied; where fewer than
    ``tokens`` follow it, the first one of the next shorter match that enough follow, as
    SAM-Decoding's automaton goes from a state to its suffix link (``dyn_sam.py``, ``to_anc``).
    """
    length = np.zeros(len(text), dtype=np.int64)
    right = np.zeros(len(text), dtype=np.int64)
    alike = np.zeros(len(text), dtype=np.int64)
    for position in range(2, len(text)):
        newest = position - 1
        longer = np.concatenate(([0], alike[: newest - 1])) + 1
        alike = np.where(text[:newest] == text[newest], longer, 0)
        length[position] = alike.max()
        if not length[position]:
            continue
        source = _copied_from(alike, newest, tokens)
        proposal = text[source + 1 : position][:tokens]
        ahead = text[position : position + len(proposal)]
        wrong = np.flatnonzero(proposal[: len(ahead)] != ahead)
        right[position] = wrong[0] if len(wrong) else len(ahead)
    return length, right


def _copied_from(alike: Ints, newest: int, tokens: int) -> int:
    """Return the place of the match whose continuation is copied; ``alike`` (places,) are the
    tokens up to each place that equal the newest ones.
    """
    lengths = np.unique(alike[alike > 0])[::-1]
    places = [int(np.argmax(alike >= length)) for length in lengths]
    return next((place for place in places if newest - place >= tokens), places[-1])


@lru_cache(RECORDINGS)
def recorded_matches(trace: Trace, tokens: int) -> tuple[Ints, Ints]:
    """Return :func:`matches` of every request of a recording (positions,)."""
    of_requests = [
        matches(trace.token[start:end].astype(np.int64), tokens)
        for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    ]
    length, right = zip(*of_requests, strict=True)
    return np.concatenate(length), np.concatenate(right)


def rate_of(kept: float, tokens: int) -> float:
    """Return the chance of each position at which a chain of ``tokens`` keeps ``kept`` of them in
    the mean.
    """
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        if ordered_sum(rate**place for place in range(1, tokens + 1)) < kept:
            low = rate
        else:
            high = rate
    return high


class RecordedRetrieval:
    """A recording is decoded by retrieved chains where its text has a long match, elsewhere by the
    runs of another drafter.
    """

    def __init__(self, replay: Replay, runs: Ints, tokens: int, window: int, least: int) -> None:
        length, right = recorded_matches(replay.trace, tokens)
        self.matched = length >= least
        """(positions,) whether a chain is retrieved there."""
        self.runs = RecordedRuns(
            replay, np.where(self.matched, right, runs), window, self.matched.astype(np.int64)
        )

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor over the recording that is assigned to this request."""
        return self.runs.cursor(request, exit)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the shares over the steps that decoding takes: few through stretches that are
        copied.
        """
        kept = np.zeros((2, gamma + 1))
        for recording in self.runs.order:
            start, end = self.runs._span(recording)
            run = np.minimum(self.runs.kept[start:end], gamma).tolist()
            drafted = (~self.matched[start:end]).tolist()
            position = 0
            while position < len(run):
                kept[int(drafted[position]), run[position]] += 1
                position += run[position] + 1
        steps = kept.sum(axis=1)
        of_steps = kept / np.maximum(1.0, steps)[:, None]
        none = np.zeros(gamma + 1)
        shares = (steps / steps.sum()).tolist()
        return mixed(
            tuple(
                (share, Odds(own, none, 0.0, "steps of the trace"))
                for share, own in zip(shares, of_steps, strict=True)
            )
        )


def mixed(drafted: tuple[tuple[float, Odds], ...]) -> Odds:
    """Return the odds of steps of which each drafter has a share, with those of each."""
    axes = max(odds.accepted.ndim for _, odds in drafted)
    accepted = np.zeros(1)
    for share, odds in drafted:
        own = odds.accepted
        accepted = accepted + share * own.reshape(own.shape + (1,) * (axes - own.ndim))
    return Odds(
        accepted=accepted,
        off_exit=np.zeros_like(accepted),
        off_path=0.0,
        source=drafted[-1][1].source,
        independent=all(odds.independent for _, odds in drafted),
        drafted=drafted,
    )


@dataclass(frozen=True)
class StatedRetrieval:
    """Stated verdicts are those of the other drafter; a ``share`` of the steps retrieves a chain of
    ``tokens``, of which ``kept`` are kept in the mean; None: what the verdicts keep of it.

    Which steps these are, and what they keep, is drawn for every step on its own. Where verdicts
    are a cycle nothing is drawn: matches are spread evenly, and the cycle judges both drafters.
    """

    verdicts: Acceptance
    share: float
    kept: float | None
    tokens: int
    depth: int
    """Levels of the other drafter's tree."""
    seed: int = 0

    @property
    def drawn(self) -> bool:
        """Return whether anything is left to chance."""
        return not isinstance(self.verdicts, Cycle)

    @property
    def chains(self) -> Rates | None:
        """Return the verdicts on retrieved chains; None where the same judge both."""
        if not self.drawn or self.kept is None:
            return None
        return Rates((rate_of(self.kept, self.tokens),), seed=self.seed + SEED_OF_CHAINS)

    def cursor(self, request: int, exit: Exit | None) -> "RetrievalCursor":
        """Return a cursor with random numbers of its own."""
        chains = self.chains
        return RetrievalCursor(
            self.verdicts.cursor(request, exit),
            Random(f"{self.seed}/retrieval/{request}"),
            self.share,
            chains.cursor(request, exit) if chains else None,
            self.drawn,
        )

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the exact odds of both drafters, and of a step whichever drafts in it."""
        chains = (self.chains or self.verdicts).odds(min(gamma, self.tokens), exit)
        others = self.verdicts.odds(min(gamma, self.depth), exit)
        drafted = (
            (self.share, _widened(chains, gamma)),
            (1.0 - self.share, _widened(others, gamma)),
        )
        of_steps = mixed(drafted)
        return replace(of_steps, independent=self.drawn and of_steps.independent)


def _widened(odds: Odds, gamma: int) -> Odds:
    """Return odds of a shorter proposal with a place for every number up to ``gamma``."""
    missing = gamma + 1 - len(odds.accepted)
    none = np.zeros((missing, *odds.accepted.shape[1:]))
    accepted = np.concatenate((odds.accepted, none))
    return replace(odds, accepted=accepted, off_exit=np.zeros_like(accepted), off_path=0.0)


class RetrievalCursor(MatchCursor):
    """A cursor that says before each step whether it retrieves, and asks whoever drafts in it."""

    def __init__(
        self, cursor: Cursor, random: Random, share: float, chains: Cursor | None, drawn: bool
    ) -> None:
        super().__init__(cursor, random, share)
        self.chains = chains
        self.at_random = drawn

    def _drawn(self, step: int) -> bool:
        """Return whether a step retrieves; where nothing is left to chance, as evenly as can be."""
        if self.at_random:
            return super()._drawn(step)
        return int((step + 1) * self.share) > int(step * self.share)

    @property
    def can_fork(self) -> bool:
        """Return whether the cursors that this one asks do."""
        return super().can_fork and (self.chains is None or forks(self.chains))

    def fork(self) -> Self:
        """Return a cursor at the same step."""
        fork = super().fork()
        if self.chains:
            fork.chains = forked(self.chains)
        return fork

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal of this step's drafter and return the verdict; a step without one uses
        up none of the verdicts.
        """
        retrieves = self.matched
        if not proposal.tokens or not retrieves or self.chains is None:
            return super().judge(proposal)
        self.step += 1
        judged = self.chains.judge(proposal)
        if isinstance(self.cursor, PassesBy):
            self.cursor.pass_by(judged.committed)
        return judged
