"""Lyanna verifies a drafted tree together with what a rejection has left to sample again (LYA-6,
LYA-8).

Fused, the tokens that a step keeps depend on the step before through one thing, the levels that it
left. Both sources answer a law with the Markov chain over accepted tokens that follows from it. In
a pass of its own a tree is a proposal of as many levels as were left, fewer than a drafted tree
has; a window of so many tokens asks for its odds.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Chain, Cursor, Forking, Verdict, forked
from simulator.core.acceptance.sources import Exit, Odds, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import Recording
from simulator.core.numeric import stationary

Floats = NDArray[np.float64]


def better_of(first: Floats, second: Floats) -> Floats:
    """Return the distribution of the larger of two independent counts; all three are (most +
    1,).
    """
    at_most: Floats = np.cumsum(first) * np.cumsum(second)
    chances: Floats = np.diff(at_most, prepend=0.0)
    return chances


class ResampledReplay(Forking):
    """Lyanna verifies its drafted tree and the tree re-sampled after a rejection (LYA-6), here on
    one recorded request.

    Reads ``lyanna_tree.run``: row 0 by start, row 1 + a for the tree that a rejection at depth a of
    the window that started there leaves. ``least``: levels that must be left for a second sampling
    (the paper's r, plus one). Where the two trees are not ``fused``, a proposal of fewer levels
    than a drafted tree has is of what was left.
    """

    def __init__(self, trace: Trace, recording: int, least: int = 1, fused: bool = True) -> None:
        self.recording = Recording(trace, recording)
        self.least = least
        self.fused = fused
        self.runs = self.recording.array("lyanna_tree.run").astype(np.int64)
        self.left: int | None = None
        """Draft tokens kept of the tree that is sampled again; None where there is none."""

    def fork(self) -> Self:
        """Return a cursor at the same position of the recording."""
        fork = copy(self)
        fork.recording = copy(self.recording)
        return fork

    def judge(self, proposal: Chain) -> Verdict:
        """Judge the trees of this step; a proposal of nothing moves one token on and leaves
        nothing.
        """
        here = self.recording.position
        left = self.left or 0
        accepted = 0
        self.left = None
        if not self.fused and 0 < proposal.tokens < len(self.runs):
            accepted = left
        elif proposal.tokens:
            accepted = max(int(self.runs[0, here]), left * self.fused)
            if len(self.runs) - accepted - 1 >= self.least:
                self.left = int(self.runs[1 + accepted, here])
        self.recording.move(accepted + 1)
        return Verdict(accepted, accepted + 1, False, False)


@dataclass(frozen=True)
class RecordedTrees:
    """Trees of a hidden-state chain are taken as recorded; a tree is sampled again where ``least``
    levels are left.
    """

    replay: Replay
    least: int
    fused: bool = True

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor over the recording that is assigned to this request."""
        order = self.replay.order
        return ResampledReplay(
            self.replay.trace, order[request % len(order)], self.least, self.fused
        )

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds over all recorded starts: of the chain whose transitions they count, or
        of trees that stand alone.
        """
        if self.fused:
            return self._odds
        return self._alone(gamma)

    def _alone(self, gamma: int) -> Odds:
        """Return the odds of drafted trees, or of those sampled again where ``gamma`` levels, fewer
        than all, were left.
        """
        depth = len(self.replay.trace.extra["lyanna_tree.run"])
        counts = np.zeros(depth + 1)
        for runs in self._runs():
            row = (depth - gamma) % depth
            counts += np.bincount(
                runs[row][runs[0] == row - 1] if row else runs[0], minlength=depth + 1
            )
        if counts.any():
            kept = counts[: gamma + 1]
        else:
            kept = np.eye(gamma + 1)[0]
        return Odds(kept / kept.sum(), np.zeros(gamma + 1), 0.0, "trees of every recorded start")

    def _runs(self) -> Iterator[NDArray[np.int64]]:
        """Yield (depth, starts) the tokens kept of the trees of each recording."""
        for recording in self.replay.order:
            yield Recording(self.replay.trace, recording).array("lyanna_tree.run").astype(np.int64)

    @cached_property
    def _odds(self) -> Odds:
        depth = len(self.replay.trace.extra["lyanna_tree.run"])
        counts = np.zeros((depth + 1, depth + 1))
        for before, after in self._pairs(depth):
            np.add.at(counts, (before, after), 1.0)
        fresh = np.where(counts.sum(1, keepdims=True) > 0.0, counts, counts.sum(0))
        shares = stationary(fresh / fresh.sum(1, keepdims=True))
        return Odds(
            shares,
            np.zeros(depth + 1),
            0.0,
            "steps that follow each other, over all recorded starts",
        )

    def _pairs(self, depth: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the tokens kept of the tree of every start, and by the step behind it."""
        for runs in self._runs():
            kept = runs[0]
            here = np.arange(runs.shape[1])
            left = np.where(depth - 1 - kept >= self.least, runs[(kept + 1) % depth, here], 0)
            yield kept, np.maximum(kept[(here + kept + 1) % len(here)], left)


@dataclass(frozen=True)
class RatedTrees:
    """Trees are drawn from stated rates by level, each given the level above it (LYA-8).

    A level that is sampled again keeps the ``share`` of its rate, now behind the corrected token,
    and the two trees of a step are independent. Both are assumptions: the paper prints no rates of
    its re-sampled trees.
    """

    rates: Rates
    depth: int
    least: int
    share: float = 1.0
    fused: bool = True

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor with separate random numbers for each level at which a tree may begin."""
        trees = [self._from(level) for level in range(self.depth)]
        cursors = [tree.cursor(request, None) for tree in trees]
        return _RatedCursor(cursors, self.least, self.fused)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the exact long-run odds of this source; of trees that stand alone, of one with
        ``gamma`` levels.
        """
        if not self.fused:
            kept = self._kept(self.depth - gamma)[: gamma + 1]
            return Odds(
                kept,
                np.zeros(gamma + 1),
                0.0,
                "stated rates by level, re-sampled levels keeping a share (assumed)",
            )
        # level at which what is left begins, by tokens accepted
        drafted, begins = (
            self._kept(0),
            range(1, self.depth + 2),
        )
        again = [
            self._kept(level) if self.depth - level >= self.least else self._kept(self.depth)
            for level in begins
        ]
        shares = stationary(np.array([better_of(drafted, left) for left in again]))
        return Odds(
            shares,
            np.zeros(self.depth + 1),
            0.0,
            "stated rates by level, re-sampled levels keeping a share (assumed)",
        )

    def _from(self, level: int) -> Rates:
        """Return the rates of the levels from ``level`` on."""
        share = self.share if level else 1.0
        rates = tuple(share * self.rates.rate(position) for position in range(level, self.depth))
        return Rates(rates, seed=self.rates.seed * self.depth + level)

    def _kept(self, level: int) -> Floats:
        """Return the distribution (depth + 1,) of tokens kept of a tree that begins at ``level``; 0
        tokens from depth on.
        """
        kept: Floats = np.zeros(self.depth + 1)
        kept[0] = 1.0
        if level < self.depth:
            kept[: self.depth - level + 1] = (
                self._from(level).odds(self.depth - level, None).accepted
            )
        return kept


class _RatedCursor(Forking):
    def __init__(self, trees: list[Cursor], least: int, fused: bool) -> None:
        self.trees = trees
        self.least = least
        self.fused = fused
        self.begins = 0
        """Level at which the tree left from the step before begins; 0: none was left."""

    def fork(self) -> Self:
        """Return a cursor behind as many trees of every level."""
        fork = copy(self)
        fork.trees = [forked(tree) for tree in self.trees]
        return fork

    def judge(self, proposal: Chain) -> Verdict:
        """Judge the better of the two trees, or unfused one of as many levels; a proposal of
        nothing leaves nothing.
        """
        depth = len(self.trees)
        begins = self.begins
        self.begins = 0
        if not self.fused:
            return self.trees[-proposal.tokens % depth].judge(proposal)
        if not proposal.tokens:
            return Verdict(0, 1, False, False)
        accepted = self.trees[0].judge(Chain(depth)).accepted
        if begins:
            accepted = max(accepted, self.trees[begins].judge(Chain(depth - begins)).accepted)
        if depth - accepted - 1 >= self.least:
            self.begins = accepted + 1
        return Verdict(accepted, accepted + 1, False, False)
