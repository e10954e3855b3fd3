"""In SpecActor servers that draft and servers that verify are decoupled, M : N; a drafter runs a
window ahead, and serves several verifiers.

    target    |==verify==|      |
    link                 |down|up|
    draft     |== next windows of all verifiers ==|

    T_step = max{T_target(B) + T_down + T_up, (gamma + 1) T_draft(B N / M)}

One of N equal verifiers is followed, with B requests and its share of the drafters; the contexts of
the others are taken to be as long. A window that is not kept whole, or behind which the guess was
wrong, is written again, and its request sits that step out. The schedule is restated (arXiv
2511.16193; sgl-project/sglang#22520 and verl-project/verl#5559 have it over ZMQ); the law is ours.

*Coupled*, every one of the servers would hold both models and draft and verify in turn, with
B N / (M + N) requests each. At low batches a drafter is free anyway, and decoupling is worth most:
``specsim methods --parallel`` says from which batch down.
"""

from math import ceil, gcd
from typing import ClassVar, Literal

from pydantic import Field

from simulator.core.cost.stated import StatedDurations
from simulator.core.strategies.common.ahead import AheadDurations, WindowAhead
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.traits import Traits


class SpecActor(WindowAhead):
    """``drafters`` serve ``verifiers``, a window ahead."""

    name: Literal["specactor"] = "specactor"
    traits: ClassVar[Traits] = Traits(
        AheadDurations,
        "max{T_target(B) + T_rv, (gamma + 1) T_draft(B N / M)} (SpecActor, as restated)",
        hidden_behind="target",
    )

    drafters: int = Field(default=1, ge=1, le=10_000)
    """Servers that draft (M)."""
    verifiers: int = Field(default=1, ge=1, le=10_000)
    """Servers that verify (N)."""

    @classmethod
    def example(cls) -> Example:
        """Return windows of three tokens, written for three verifiers by two drafters."""
        durations = StatedDurations(target_ms=18.0, draft_step_ms=5.5, rv_fv_ms=0.2)
        return Example(cls(gamma=3, drafters=2, verifiers=3), durations)

    def drafted_together(self, requests: int) -> int:
        """Return the requests of all verifiers over the drafters."""
        return ceil(requests * self.verifiers / self.drafters)

    @property
    def caches_of_draft(self) -> float:
        """Return the verifiers whose requests a drafter keeps."""
        return self.verifiers / self.drafters

    def draft_devices(self, requests: int) -> float:
        """Return the drafters for each verifier."""
        return self.drafters / self.verifiers

    @property
    def sharing_targets(self) -> int:
        """Return the fewest verifiers that have a whole number of drafters."""
        return self.verifiers // gcd(self.drafters, self.verifiers)
