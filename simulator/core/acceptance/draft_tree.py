"""Shapes of drafted trees, and how a token leaves a pipeline that a tree travels through (SpecPipe,
sections 3.2.1 and 3.3).

The tree itself, which grows while a model drafts, is in ``benchmarks/family/draft_tree.py``:
recordings hold what came of it.
"""

from typing import NamedTuple


class Beam(NamedTuple):
    """A beam says how a tree grows while it is verified."""

    width: int
    """Nodes of a level."""
    branching: int
    """Children that are considered for a node."""
    stages: int
    """Stages of the pipeline, which is the number of levels in flight."""


class PrunedTree(NamedTuple):
    """A pruned tree is a static tree that is cut down to its best nodes before it is verified."""

    levels: int
    """Levels below the root."""
    branching: int
    """Children of a node before pruning."""
    budget: int
    """Nodes that stay; the root does not count."""


class Passage(NamedTuple):
    """A passage says how one token came out of the pipeline."""

    steps: int
    """Pipeline steps since the token before it: 1 with every level in place, ``stages`` after a
    miss.
    """
    rows: list[int]
    """Rows at each stage in the last of these steps; 0 at an empty stage."""
    hit: bool
    """Whether the token was in the tree."""

    def at(self, step: int) -> list[int]:
        """Return the rows at each stage in one of the steps, from 0: rows only move on, as nothing
        is pruned in between.
        """
        ahead = self.steps - 1 - step
        return self.rows[ahead:] + [0] * ahead
