"""What a strategy claims of its law, and the example on which the claim is tried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Literal, Self

from simulator.core.cost.stated import StatedCost, StatedDurations

Relation = Literal["exact", "upper_bound", "lower_bound", "idealised"]
SEVERAL = 8
"""Requests in the larger batch of an example."""


@dataclass(frozen=True)
class Claim:
    """The relation of a law to its process that a strategy vouches for.

    ``exact``: a step takes what the law says; a bound: it takes no more, or no less; ``idealised``:
    the law leaves something out that may count either way. ``words`` say what a law that is not
    exact leaves out.
    """

    relation: Relation
    words: str = ""

    def __str__(self) -> str:
        """The relation in words, with what is left out behind a colon."""
        relation = self.relation.replace("_", " ")
        if self.words:
            return f"{relation}: {self.words}"
        return relation

    @property
    def noun(self) -> str:
        """Return the relation as it stands behind "the law claims to be": a bound has its
        article.
        """
        return {"upper_bound": "an upper bound", "lower_bound": "a lower bound"}.get(
            self.relation, self.relation
        )

    @property
    def exact(self) -> bool:
        """Return whether the law claims to say what a step takes."""
        return self.relation == "exact"

    def allows(self, process: float, least: float, most: float, tolerance: float) -> bool:
        """Return whether a process keeps to the claim, where the law lies between ``least`` and
        ``most``.

        All are in one unit; ``tolerance`` is relative. An idealised law allows everything.
        """
        below = process < least * (1.0 - tolerance)
        above = process > most * (1.0 + tolerance)
        if self.relation == "exact":
            return not (below or above)
        if self.relation == "upper_bound":
            return not above
        if self.relation == "lower_bound":
            return not below
        return True


EXACT = Claim("exact")


@dataclass(frozen=True)
class Example:
    """A strategy with small settings and the durations under which its law is held to its timeline.

    ``contention``: how many times longer target and draft take while both are busy, as they share
    one memory.
    """

    strategy: Any
    """A strategy: their base class stands upon this module, so that its type cannot be named
    here.
    """
    durations: StatedDurations
    contention: float = 1.0

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the numbers of requests that decode together in the runs of this example."""
        if self.strategy.traits.alone:
            return (1,)
        return (1, SEVERAL)

    def strategy_for(self, requests: int) -> Any:
        """Return the strategy as it is set for so many requests, on the stated stages."""
        return self.strategy.fitted_to(requests, len(self.durations.stages_ms or ()))

    def cost_of(self, strategy: Any) -> StatedCost:
        """Return the stated durations as the costs of a strategy."""
        return StatedCost(self.durations, strategy.needs.draft_steps, self.contention)

    def scaled(self, factors: Sequence[float]) -> Self:
        """Return the example with every stated duration multiplied by a factor; the factors take
        turns.
        """
        scaled = _scaled(self.durations.model_dump(exclude_none=True), cycle(factors))
        return replace(self, durations=StatedDurations.model_validate(scaled))


def _scaled(stated: Any, factors: Iterator[float]) -> Any:
    """Return nested mappings and sequences with every number in them multiplied by the next
    factor.
    """
    if isinstance(stated, dict):
        return {key: _scaled(value, factors) for key, value in stated.items()}
    if isinstance(stated, list | tuple):
        return [_scaled(value, factors) for value in stated]
    return stated * next(factors)
