"""The device of every client drafts, a server verifies in batches, and a network lies between.

    target    |==verify==|      |
    network              |down|up|       RTT = T_down + T_up
    draft     |== next window ==|        of each client

    T_step = max{T_target, T_target + RTT, (gamma + 1) T_draft}    (written ahead)
    T_step = max{sum T_target, T_target + RTT + gamma T_draft}     (``ahead: false``)

Two inequalities are in the abstract of arXiv 2606.25091, of which the text was not read; they
follow from these steps. Beside a server that drafts itself, as fast, in gamma T_draft + T_target:

    RTT < gamma T_draft                    or the devices of clients bring no token sooner
    N' / N = 1 + gamma T_draft / T_target  clients at a saturated server, which drafts no more

The first is necessary whatever is kept, and enough where everything is. Where a window is lost with
chance *m*, and (gamma + 1) T_draft is the shorter side, B clients are better off where

    RTT < (T_target + gamma T_draft (1 - (1 + m) q)) / ((1 + m) (1 - q)) - T_target

with q = (m / (1 + m))^B, the chance that none has a window at hand; of a client alone that is
(1 - m) gamma T_draft. It is exact where a pass takes as long for fewer windows.

The second is reached with ``groups`` of clients that take turns, and a server that never waits.
"""

from typing import ClassVar, Literal

from pydantic import Field

from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.ahead import AheadDurations, WindowAhead
from simulator.core.strategies.common.capabilities import DerivesNumbers
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Step
from simulator.core.strategies.common.traits import Traits


class EdgeSD(WindowAhead, DerivesNumbers):
    """Every client has a device that drafts ``gamma`` tokens for it alone."""

    name: Literal["edge_sd"] = "edge_sd"
    traits: ClassVar[Traits] = Traits(
        AheadDurations,
        "max{T_target + RTT, (gamma + 1) T_draft}, or T_target + RTT + gamma T_draft "
        "(Speculation at a Distance, abstract)",
    )

    groups: int = Field(default=1, ge=1, le=10_000)
    """Groups of clients that take turns at the server, each with a pass of its own."""
    ahead: bool = True
    """Whether a client drafts on while its window is away; else it waits for the verdict."""

    @classmethod
    def example(cls) -> Example:
        """Return windows of four tokens on clients that take turns; each way takes 6 ms."""
        durations = StatedDurations(target_ms=18.0, draft_step_ms=5.5, rv_fv_ms=6.0)
        return Example(cls(gamma=4, groups=2), durations)

    @property
    def turns(self) -> int:
        """Return the groups."""
        return self.groups

    @property
    def writes_ahead(self) -> bool:
        """Return whether clients draft on."""
        return self.ahead

    def drafted_together(self, requests: int) -> int:
        """Return 1: the device of a client drafts for it alone."""
        return 1

    @property
    def caches_of_draft(self) -> float:
        """Return 0: a client's device keeps the cache of its own request."""
        return 0.0

    def draft_devices(self, requests: int) -> float:
        """Return one for every client."""
        return float(requests)

    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> dict[str, float]:
        """Return the round trip with the longest one that pays beside a server which drafts itself,
        as fast (0: none), and how many times as many clients a saturated server serves.
        """
        t = self.durations(cost, step)
        if not step.kind.verifying:
            return {}
        window_s = float(t.draft) * self.gamma / (self.gamma + self.writes_ahead)
        derived = {
            "round_trip_ms": float(t.down + t.up) * 1e3,
            "times_as_many_clients": float(more_clients(window_s, t.target)),
        }
        if self.writes_ahead and self.turns == 1:
            lost = self.lost(odds)
            longest_s = longest_round_trip_s(window_s, t.target, lost, step.kind.batch)
            derived["longest_round_trip_ms"] = max(0.0, float(longest_s)) * 1e3
        return derived


def longest_round_trip_s(
    window_s: Numbers, target_s: Numbers, lost: Numbers, requests: int
) -> Numbers:
    """Return the seconds of a round trip below which clients that draft ahead get their tokens
    sooner than from a server that drafts itself, as fast; below 0 where none is short enough.

    ``window_s`` and ``target_s`` are the seconds of a window and of a pass over those at hand,
    ``lost`` the chance that a window is lost; ``requests`` clients decode together. It holds where
    drafting is the shorter side of a step.
    """
    idle = (lost / (1.0 + lost)) ** requests
    steps = target_s + window_s * (1.0 - (1.0 + lost) * idle)
    return steps / ((1.0 + lost) * (1.0 - idle)) - target_s


def more_clients(window_s: Numbers, target_s: Numbers) -> Numbers:
    """Return how many times as many clients a saturated server serves that drafts no more; a
    window and a pass in seconds.
    """
    return 1.0 + window_s / target_s
