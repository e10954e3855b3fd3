"""The tree of draft tokens that one pass of the target verifies, and what a recording says it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from simulator.acceptance.trace import Trace
from simulator.acceptance.tree_replay import LARGEST_TREE, Ints, RankPath, ranks_ahead, static_tree_run, tree_of
from simulator.files.schema import Confidence, Frozen


def _not_endless(branching: tuple[int, ...]) -> tuple[int, ...]:
    nodes = sum(accumulate(branching, mul))
    if nodes > LARGEST_TREE:
        raise ValueError(f"a tree of {nodes:,} nodes; expected {LARGEST_TREE:,} or fewer")
    return branching


Branching = Annotated[tuple[Annotated[int, Field(ge=1)], ...], AfterValidator(_not_endless)]
"""Children of every node, by level."""


class TokenTree(Frozen):
    """A static tree, by ``branching`` of every node of a level or by ``paths``, or a dynamic one.

    A path is written as one digit a level, "021": of the drafter's choices at each level the one of that rank, from 0.
    A dynamic tree is the likeliest ``budget`` tokens within ``levels``, chosen anew in every step from ``choices`` of
    every node that is expanded; what it keeps is known only where it was recorded.
    """

    branching: Branching = ()
    """Children of every node, level by level."""
    paths: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    """Nodes one by one, as digits."""
    budget: int | None = Field(default=None, ge=1, le=LARGEST_TREE)
    """Nodes of a dynamic tree."""
    levels: int | None = Field(default=None, ge=1)
    """Levels of a dynamic tree."""
    choices: int | None = Field(default=None, ge=1)
    """Children considered for each node of a dynamic tree."""
    source: str = "not stated"
    """Where the tree comes from."""
    confidence: Confidence = "assumed"
    """How well it is known."""

    @model_validator(mode="after")
    def _one_form(self) -> TokenTree:
        dynamic = [self.budget, self.levels, self.choices]
        forms = [bool(self.branching), bool(self.paths), None not in dynamic]
        if sum(forms) != 1 or (not forms[-1] and any(value is not None for value in dynamic)):
            raise ValueError("expected one of branching, paths, or budget, levels and choices together")
        if self.budget and self.levels and self.levels > self.budget:
            raise ValueError(f"levels: a tree of {self.budget:,} nodes has no {self.levels:,} levels")
        words = set(self.paths.split())
        for word in words:
            if not word.isdecimal():
                raise ValueError(f"paths: expected a digit for each level, as in 021, got '{word}'")
            if len(word) > 1 and word[:-1] not in words:
                raise ValueError(f"paths: {word} hangs below {word[:-1]}, which is not in the tree")
        return self

    @property
    def dynamic(self) -> bool:
        """Chosen in every step by what the draft says."""
        return self.budget is not None

    @cached_property
    def nodes(self) -> tuple[RankPath, ...]:
        """A static tree's draft tokens; empty for a dynamic one."""
        if self.paths:
            return tuple(tuple(map(int, word)) for word in self.paths.split())
        return tuple(tree_of(self.branching))

    @property
    def size(self) -> int:
        """Draft tokens."""
        return self.budget or len(self.nodes)

    @property
    def depth(self) -> int:
        """Levels; the most that one step can keep."""
        return self.levels or max(map(len, self.nodes))

    def unrecorded(self, trace: Trace, drafter: str, borrowed: bool = False) -> str | None:
        """What is missing for :meth:`kept`, in words that go on from a file's name; ``borrowed``: any tree will do."""
        if trace.run is not None:
            known = trace.window
        elif f"{drafter}.run" in trace.extra:
            return None if borrowed else self._not_as_recorded(trace.header.get("trees", {}).get(drafter), drafter)
        elif drafter != "draft" and f"{drafter}.rank" not in trace.extra:
            return f"holds nothing of the drafter '{drafter}'"
        elif self.dynamic:
            return f"holds no tree of '{drafter}'; only a recording says what a dynamic tree keeps"
        else:
            rank = trace.draft_rank if drafter == "draft" else trace.extra[f"{drafter}.rank"]
            known = len(rank) if rank.ndim == 2 else None
        return None if known is None or self.depth <= known else f"knows {known} levels, got {self.depth}"

    def _not_as_recorded(self, recorded: Mapping[str, int] | None, drafter: str) -> str | None:
        """Recorded by start: only this very tree, or a chain no longer than the text allows."""
        if recorded is None:
            return None if self.size == self.depth else f"holds chains of '{drafter}', and no trees"
        mine = {"budget": self.budget, "levels": self.levels, "branching": self.choices}
        if all(recorded[key] == value for key, value in mine.items()):
            return None
        asked = _words(mine) if self.dynamic else "of fixed places"
        return f"holds the tree {_words(recorded)} of '{drafter}', and none {asked}"

    def kept(self, trace: Trace, drafter: str) -> Ints:
        """(positions,) draft tokens kept of the tree that starts at each position; see :meth:`unrecorded`."""
        run: NDArray[np.generic] | None = trace.run
        if run is None:
            run = trace.extra.get(f"{drafter}.run")
        if run is None:
            return static_tree_run(ranks_ahead(trace, drafter, self.depth), self.nodes)
        return np.minimum((run[0] if run.ndim == 2 else run).astype(np.int64), self.depth)


def _words(tree: Mapping[str, int | None]) -> str:
    return f"of {tree['budget']} tokens in {tree['levels']} levels, {tree['branching']} choices"
