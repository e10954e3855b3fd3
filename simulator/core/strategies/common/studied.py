"""Strategies that a study of one kind of method can ask about: abstract, so that a study names none
of them.
"""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, Self

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sequence_chances import Written
from simulator.core.cost.protocol import Cost
from simulator.core.strategies.common.base import D, S, Strategy
from simulator.core.strategies.common.law import OddsOf


class SharedBudget(Strategy[D, S], ABC):
    """A budget of draft tokens is shared by several sequences (``specsim budget``)."""

    @property
    @abstractmethod
    def accounting(self) -> Literal["verified", "emitted"]:
        """Return which tokens are counted as output: verified ones, or those shown before they are
        checked.
        """

    @property
    @abstractmethod
    def fixed(self) -> int | None:
        """Return the number of sequences; None where it is dynamic."""

    @property
    @abstractmethod
    def least_window(self) -> int:
        """Return the smallest budget that the other settings allow, in draft tokens."""

    @abstractmethod
    def coefficient(self, cost: Cost, context: int) -> float:
        """Return c = T_target / T_draft at ``context`` cached tokens (DUO-1)."""

    @abstractmethod
    def sides(self, cost: Cost, context: int) -> tuple[float, float]:
        """Return the seconds of the draft's and of the target's side of a whole iteration, at
        ``context`` cached tokens.
        """

    @abstractmethod
    def until_shown(self, cost: Cost, odds: OddsOf, context: int, cap: int) -> Written:
        """Return the law of a request that ends when ``cap`` tokens are shown, checked or not."""


class LevelTree(Strategy[D, S], ABC):
    """The levels of a draft tree fill the stages of a pipeline (``specsim trees``, ``specsim
    network``).
    """

    @property
    @abstractmethod
    def beam(self) -> Beam:
        """Return the tree: nodes of a level, children considered for each of them, stages."""

    @property
    @abstractmethod
    def notices_late(self) -> bool:
        """Return whether a miss is noticed one step later."""

    @property
    @abstractmethod
    def overlaps_sending(self) -> bool:
        """Return whether links carry while stages prune."""

    @property
    @abstractmethod
    def prune_s(self) -> float:
        """Return the seconds in which all levels of a step are pruned."""

    @property
    def steps_together(self) -> bool:
        """Return whether all stages step together, so that steps are a common clock."""
        return True

    @abstractmethod
    def with_tree(self, width: int, branching: int) -> Self:
        """Return the strategy with a tree of ``width`` nodes a level and ``branching`` children
        considered for each.
        """

    @abstractmethod
    def full_step_s(self, cost: Cost, context: int) -> float:
        """Return the seconds of a step with full levels of one request, at ``context`` cached
        tokens.
        """


class StreamShape(NamedTuple):
    """The shape of a tree that look-ahead streams draft."""

    streams: int
    """Tokens ahead (gamma)."""
    branching: int
    """Tokens of each stream (k)."""
    kept: int | None
    """Nodes left by pruning, the root among them; None: nothing is pruned."""


class StreamTree(Strategy[D, S], ABC):
    """Streams of the target draft a tree in the pass that verifies the last one (``specsim
    streams``).
    """

    @property
    @abstractmethod
    def shape(self) -> StreamShape:
        """Return the shape of the tree."""

    @property
    @abstractmethod
    def nodes(self) -> int:
        """Return the nodes of the whole tree, the root included."""

    @property
    @abstractmethod
    def prunes(self) -> bool:
        """Return whether the tree has nodes to cut."""

    @abstractmethod
    def with_shape(self, shape: StreamShape) -> Self:
        """Return the strategy with a tree of another shape."""
