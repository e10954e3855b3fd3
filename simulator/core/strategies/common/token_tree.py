"""A token tree is what one pass of the target verifies; a recording says what it keeps."""

from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from simulator.core.acceptance.lossy.rules import Rule
from simulator.core.acceptance.lossy.scores import Kept, scores_of
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import (
    LARGEST_TREE,
    Ints,
    RankPath,
    ranks_ahead,
    static_tree_run,
    tree_of,
)
from simulator.core.quantities import Confidence, Frozen


def _not_endless(branching: tuple[int, ...]) -> tuple[int, ...]:
    nodes = sum(accumulate(branching, mul))
    if nodes > LARGEST_TREE:
        raise ValueError(f"a tree of {nodes:,} nodes; expected {LARGEST_TREE:,} or fewer")
    return branching


Branching = Annotated[tuple[Annotated[int, Field(ge=1)], ...], AfterValidator(_not_endless)]
"""Children of a node, by level."""


class TokenTree(Frozen):
    """A tree is static, by ``branching`` of every node of a level or by ``paths``, or a dynamic
    one.

    A path is written as one digit a level, "021": of the drafter's choices at each level the one of
    that rank, from 0. A dynamic tree is the likeliest ``budget`` tokens within ``levels``, chosen
    anew in every step from ``choices`` of every node that is expanded; what it keeps is known only
    where it was recorded.
    """

    branching: Branching = ()
    """Children of a node, level by level."""
    paths: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    """Nodes as words of digits, separated by spaces."""
    budget: int | None = Field(default=None, ge=1, le=LARGEST_TREE)
    """Nodes of a dynamic tree."""
    levels: int | None = Field(default=None, ge=1, le=1_000_000)
    """Levels of a dynamic tree."""
    choices: int | None = Field(default=None, ge=1, le=1_000_000)
    """Children considered for each node of a dynamic tree."""
    source: str = "not stated"
    """Paper or program that the tree comes from."""
    confidence: Confidence = "assumed"
    """Confidence in the source."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        dynamic = [self.budget, self.levels, self.choices]
        forms = [bool(self.branching), bool(self.paths), None not in dynamic]
        if sum(forms) != 1 or (not forms[-1] and any(value is not None for value in dynamic)):
            raise ValueError(
                "expected one of branching, paths, or budget, levels and choices together"
            )
        if self.budget and self.levels and self.levels > self.budget:
            raise ValueError(
                f"levels: a tree of {self.budget:,} nodes has no {self.levels:,} levels"
            )
        words = set(self.paths.split())
        for word in words:
            if not word.isdecimal():
                raise ValueError(f"paths: expected a digit for each level, as in 021, got '{word}'")
            if len(word) > 1 and word[:-1] not in words:
                raise ValueError(f"paths: {word} hangs below {word[:-1]}, which is not in the tree")
        return self

    @property
    def dynamic(self) -> bool:
        """Return whether it is chosen in every step by the draft's answers."""
        return self.budget is not None

    @cached_property
    def nodes(self) -> tuple[RankPath, ...]:
        """Return the draft tokens of a static tree as rank paths; empty for a dynamic tree."""
        if self.paths:
            return tuple(tuple(map(int, word)) for word in self.paths.split())
        return tuple(tree_of(self.branching))

    @property
    def size(self) -> int:
        """Return the number of draft tokens."""
        return self.budget or len(self.nodes)

    @property
    def depth(self) -> int:
        """Return the levels: the most draft tokens that one step can keep."""
        return self.levels or max(map(len, self.nodes))

    def unrecorded(self, trace: Trace, drafter: str, borrowed: bool = False) -> str | None:
        """Return what is missing for :meth:`kept`, in words that go on from a file's name;
        ``borrowed``: any tree will do.
        """
        if trace.rule is not None:
            return self._unscored(trace, drafter)
        return self._not_kept(trace, drafter, borrowed)

    def _not_kept(self, trace: Trace, drafter: str, borrowed: bool) -> str | None:
        """Return what is missing where the target alone keeps the tree."""
        if trace.run is not None:
            recorded_levels = trace.window
        elif f"{drafter}.run" in trace.extra:
            if borrowed:
                return None
            return self._not_as_recorded(trace.header.get("trees", {}).get(drafter), drafter)
        elif drafter != "draft" and f"{drafter}.rank" not in trace.extra:
            return f"holds nothing of the drafter '{drafter}', but {', '.join(trace.drafters)}"
        elif self.dynamic:
            return f"holds no tree of '{drafter}'; only a recording says what a dynamic tree keeps"
        else:
            if drafter == "draft":
                rank = trace.draft_rank
            else:
                rank = trace.extra[f"{drafter}.rank"]
            recorded_levels = len(rank) if rank.ndim == 2 else None
        if recorded_levels is None or self.depth <= recorded_levels:
            return None
        remedy = f"; set strategy.tree.levels={recorded_levels}" if self.levels else ""
        return f"knows {recorded_levels} levels, got {self.depth}{remedy}"

    def _unscored(self, trace: Trace, drafter: str) -> str | None:
        """Return what is missing for :meth:`kept_under`."""
        if not self.dynamic and scores_of(trace, drafter, self.nodes) is not None:
            return None
        return (
            f"does not know what the target thinks of this tree of '{drafter}', which the rule "
            "asks: small_family_scored does of medusa's tree of 63 and parts of it, and of chains "
            "of draft and eagle up to 8 tokens; or state rate, or tokens_per_step, under the rule"
        )

    def kept_under(self, rule: Rule, trace: Trace, drafter: str, seed: int) -> Kept:
        """Return what a rule keeps of the tree that starts at each position; raises ValueError for
        a recording without scores.
        """
        scores = scores_of(trace, drafter, self.nodes)
        if scores is None:
            raise ValueError(f"no scores of '{drafter}' for this tree")
        return rule.kept(scores, seed)

    def _not_as_recorded(self, recorded: Mapping[str, int] | None, drafter: str) -> str | None:
        """Return what is missing in a recording by start: it holds one tree, or chains."""
        if recorded is None:
            if self.size == self.depth:
                return None
            return f"holds chains of '{drafter}', and no trees"
        mine = {"budget": self.budget, "levels": self.levels, "branching": self.choices}
        if all(recorded[key] == value for key, value in mine.items()):
            return None
        asked = _words(mine) if self.dynamic else "of fixed places"
        return f"holds the tree {_words(recorded)} of '{drafter}', and none {asked}"

    def kept(self, trace: Trace, drafter: str) -> Ints:
        """Return the draft tokens kept of the tree that starts at each position (positions,); see
        :meth:`unrecorded`.
        """
        run: NDArray[np.generic] | None = trace.run
        if run is None:
            run = trace.extra.get(f"{drafter}.run")
        if run is None:
            return static_tree_run(ranks_ahead(trace, drafter, self.depth), self.nodes)
        return np.minimum((run[0] if run.ndim == 2 else run).astype(np.int64), self.depth)


def _words(tree: Mapping[str, int | None]) -> str:
    return f"of {tree['budget']} tokens in {tree['levels']} levels, {tree['branching']} choices"
