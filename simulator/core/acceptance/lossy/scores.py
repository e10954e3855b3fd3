"""What a target thinks of drafts behind the tokens of a recording, and what rules keep of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import CONVERTED, Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RankPath = tuple[int, ...]
"""A node of a static tree, as of :mod:`simulator.core.acceptance.tree_replay`."""


@dataclass(frozen=True, eq=False)
class Kept:
    """A rule keeps so much of the proposals that start at each position."""

    tokens: Ints
    """(positions,) draft tokens."""
    forced: Floats
    """(levels, positions) chance that the target alone would not have written the token that is
    kept at a level; 0 where none is.
    """


@dataclass(frozen=True, eq=False)
class Scores:
    """A target scores what a drafter proposes behind every position of a recording."""

    nodes: tuple[RankPath, ...]
    """Nodes of a static tree; a chain is one."""
    p: Floats
    """(nodes, positions) the target's probability of the token at a node."""
    entropy: Floats
    """(parents, positions) entropy in nats of the target's distribution behind each of
    ``parents``.
    """

    @property
    def levels(self) -> int:
        """Return the levels of the tree."""
        return max(map(len, self.nodes))

    @property
    def parents(self) -> tuple[RankPath, ...]:
        """Return the nodes that have children, the root first, then by level and rank."""
        return parents_of(self.nodes)

    def children(self, parent: RankPath) -> list[tuple[int, RankPath]]:
        """Return the row and path of the children of a node, by rank."""
        found = []
        for row, path in enumerate(self.nodes):
            if path[:-1] == parent:
                found.append((row, path))
        return sorted(found, key=lambda child: child[1])


def parents_of(nodes: Sequence[RankPath]) -> tuple[RankPath, ...]:
    """Return the nodes of a tree that have children, the root first, then by level and rank."""
    return tuple(sorted({path[:-1] for path in nodes}, key=lambda path: (len(path), path)))


def chain_of(tokens: int) -> tuple[RankPath, ...]:
    """Return a chain of so many tokens as a tree."""
    return tuple((0,) * length for length in range(1, tokens + 1))


def _paths(words: str) -> tuple[RankPath, ...]:
    return tuple(tuple(map(int, word)) for word in words.split())


def scores_of(trace: Trace, drafter: str, nodes: Sequence[RankPath]) -> Scores | None:
    """Return the scores of a chain, or of a tree that is part of the recorded one; None where the
    recording does not hold them.
    """
    longest = max(map(len, nodes))
    prefix = "" if drafter == "draft" else f"{drafter}."
    if tuple(nodes) == chain_of(longest) and f"{prefix}rollout.p" in trace.extra:
        recorded = chain_of(len(trace.extra[f"{prefix}rollout.p"]))
        arrays = f"{prefix}rollout"
    elif f"{drafter}.tree.p" in trace.extra:
        recorded = _paths(trace.header["scored_trees"][drafter]["paths"])
        arrays = f"{drafter}.tree"
    else:
        return None
    if not set(nodes) <= set(recorded) or f"{arrays}.entropy" not in trace.extra:
        return None
    parents = parents_of(recorded)
    rows = [recorded.index(path) for path in nodes]
    behind = [parents.index(path) for path in parents_of(nodes)]
    return Scores(
        tuple(nodes),
        trace.extra[f"{arrays}.p"][rows].astype(np.float64),
        trace.extra[f"{arrays}.entropy"][behind].astype(np.float64),
    )


def scored_depth(trace: Trace, drafter: str) -> int:
    """Return the tokens of the scored chains of a drafter; 0 where there are none."""
    prefix = "" if drafter == "draft" else f"{drafter}."
    chains = trace.extra.get(f"{prefix}rollout.p")
    return 0 if chains is None else len(chains)


FORCED = "rule.forced"
"""Array of a derived trace: :attr:`Kept.forced`."""


def under(trace: Trace, kept: Kept) -> Trace:
    """Return a trace that holds what a rule keeps, by start."""
    levels = len(kept.forced)
    header = {**trace.header, "format": CONVERTED, "window": levels}
    none = trace.draft_rank[:0]
    extra = {**trace.extra, FORCED: kept.forced}
    run = kept.tokens.astype(np.uint16)
    return replace(trace, header=header, run=run, draft_rank=none, q=trace.q[:0], extra=extra)


def changed_share(replay: Replay, window: int) -> float | None:
    """Return the share of written tokens that the target alone would not have written, over windows
    that start everywhere; None where no rule was followed.
    """
    forced = replay.trace.extra.get(FORCED)
    if forced is None or replay.trace.run is None:
        return None
    positions = replay.positions()
    kept = np.minimum(replay.trace.run[positions].astype(np.int64), window)
    reached = np.arange(min(window, len(forced)))[:, None] < kept
    changed = float(forced[:window, positions][reached].sum())
    return changed / float((kept + 1).sum())
