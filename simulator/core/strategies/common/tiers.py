"""Tiers: the window is one of a few candidates for batches of such a size, and follows the tokens
that were accepted of late (SGLang's ``--speculative-adaptive``).

    mean <- (1 - a) mean + a (accepted draft tokens of the batch, per request)      in every step
    every n steps: down while mean <= candidate below - 1/2 + down_hysteresis (0: 1/2 + it),
                   else up while mean > candidate - 1/2 + up_hysteresis; behind a window of 0 up

SGLang, ``adaptive_spec_params.py`` (sgl-project/sglang 015c8726) and ``adaptive_step_router.py``
(a12239f6); read 2026-11. All requests of a batch remember the same: a batch that ends forgets it,
where SGLang's server does not.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from simulator.core.acceptance.sources import Odds
from simulator.core.numeric import Numbers
from simulator.core.quantities import Frozen
from simulator.core.strategies.common.step import Progress, State

BatchSize = Annotated[int, Field(gt=0, le=1_000_000)]
"""Requests of a batch."""
Window = Annotated[int, Field(ge=0, le=1_000)]
UPDATES_OF_A_LAW = 2_000
"""Decisions over which a law takes the shares of windows; the first quarter is left out."""


class Tier(Frozen):
    """The windows that batches from one size on may have, and how they move."""

    candidates: tuple[Window, ...] = Field(min_length=1, max_length=64)
    """Draft tokens, of which 0 drafts nothing."""
    up_hysteresis: float = Field(default=0.0, ge=-1_000, le=1_000)
    """Accepted tokens by which the mean has to be higher for a longer window."""
    down_hysteresis: float = Field(default=-0.25, ge=-1_000, le=1_000)
    """The same for a shorter one, where it may be higher."""
    ceiling_coeff: float = Field(default=0.0, ge=0, le=1_000)
    """Window that a mean of one token allows where it does not move up; 0: any."""


SGLANG_TIERS = {
    1: Tier(candidates=(1, 3, 5, 7)),
    8: Tier(candidates=(0, 1, 3), down_hysteresis=0.0),
    32: Tier(candidates=(0, 1), down_hysteresis=0.0),
    64: Tier(candidates=(0,), down_hysteresis=0.0),
}
"""``DEFAULT_ADAPTIVE_CONFIG`` of SGLang."""
SGLANG_CAPTURED = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
"""Batches for which SGLang captures graphs, as far as they change a tier of it."""


@dataclass
class TierState:
    """What is known of one tier."""

    tier: Tier
    window: int
    """Draft tokens of its next step."""
    mean: float
    """Moving mean of the accepted draft tokens of a request; below 0 where none were drafted
    yet.
    """
    steps: int = 0
    """Steps of its batches so far."""

    def decide(self) -> None:
        """Choose the window anew by the mean."""
        candidates = sorted(set(self.tier.candidates))
        place = before = candidates.index(self.window)
        if not self.window:
            self.window = candidates[min(place + 1, len(candidates) - 1)]
            if self.window and self.mean < 0.0:
                self.mean = self.window - 1.0
            return
        while place and self.mean <= self._least(candidates[place - 1]):
            place -= 1
        if place == before:
            rises = 0.5 - self.tier.up_hysteresis
            while place < len(candidates) - 1 and self.mean > candidates[place] - rises:
                place += 1
        ceiling = max(1, ceil(self.mean * self.tier.ceiling_coeff))
        if self.tier.ceiling_coeff and candidates[place] <= self.window:
            while place and candidates[place] > ceiling:
                place -= 1
        self.window = candidates[place]

    def _least(self, below: int) -> float:
        """Return the mean down to which a window stays, with the candidate ``below`` it."""
        return (below - 0.5 if below else 0.5) + self.tier.down_hysteresis


class TierWindow(Frozen):
    """The window is a candidate of the batch's tier, and follows what the batch accepts (SGLang's
    ``--speculative-adaptive``).

    ``gamma`` is the longest, and where it is a candidate the first one; else that is the candidate
    in the middle. A batch is taken to be as large as the next graph that is ``captured``.
    """

    name: Literal["tiers"] = "tiers"
    tiers: dict[BatchSize, Tier] = Field(default=SGLANG_TIERS, min_length=1)
    """Tiers by the smallest batch of each; that of the smallest holds below it too."""
    captured: tuple[BatchSize, ...] = SGLANG_CAPTURED
    """Batches for which graphs are captured, in ascending order; larger ones are not padded."""
    ema_alpha: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest step in the mean of the accepted tokens."""
    update_interval: int = Field(default=5, ge=1, le=1_000_000)
    """Steps of a tier between two decisions."""
    warmup_batches: int = Field(default=10, ge=0, le=1_000_000)
    """Steps of a tier before the first of them."""

    def size_of(self, requests: int) -> int:
        """Return the smallest batch of the tier that a batch of ``requests`` belongs to."""
        padded = next((size for size in self.captured if size >= requests), requests)
        return max((size for size in self.tiers if size <= padded), default=min(self.tiers))

    @property
    def longest(self) -> dict[int, int]:
        """Return the longest candidate of each tier, in draft tokens."""
        return {size: max(tier.candidates) for size, tier in self.tiers.items()}

    def window(self, gamma: int, requests: int) -> int:
        """Return the longest window that a batch of ``requests`` may have, in draft tokens."""
        return min(gamma, self.longest[self.size_of(requests)])

    def opened(self, gamma: int, states: Sequence[State]) -> int:
        """Return the draft tokens of the next window of a batch, which remembers its tiers."""
        known = next((state.batch_memory for state in states if state.batch_memory), None)
        memory = known or {}
        for state in states:
            state.batch_memory = memory
        return self._of(memory, gamma, len(states)).window

    def settled(self, gamma: int, states: Sequence[State], progress: Sequence[Progress]) -> None:
        """Note what a batch accepted, and choose its next window where it is time."""
        memory = states[0].batch_memory
        if memory is not None:
            tier = self._of(memory, gamma, len(states))
            self._note(tier, sum(one.accepted for one in progress) / len(progress))

    def _of(self, memory: dict[int, TierState], gamma: int, requests: int) -> TierState:
        size = self.size_of(requests)
        if size not in memory:
            memory[size] = self.first(gamma, size)
        return memory[size]

    def first(self, gamma: int, size: int) -> TierState:
        """Return what is known of the tier of this smallest batch before its first step."""
        tier = self.tiers[size]
        candidates = sorted(set(tier.candidates))
        window = gamma if gamma in candidates else candidates[len(candidates) // 2]
        return TierState(tier, window, window - 1.0)

    def _note(self, state: TierState, accepted: float) -> None:
        if state.window:
            state.mean = (1.0 - self.ema_alpha) * state.mean + self.ema_alpha * accepted
        state.steps += 1
        behind = state.steps - self.warmup_batches
        if behind > 0 and behind % self.update_interval == 0:
            state.decide()

    def shares(
        self, gamma: int, requests: int, odds: Callable[[int], Odds]
    ) -> Mapping[int, Numbers]:
        """Return the share of steps of each window, where every batch accepts its mean."""
        state = self.first(gamma, self.size_of(requests))
        counts = Counter[int]()
        for update in range(UPDATES_OF_A_LAW):
            if update >= UPDATES_OF_A_LAW // 4:
                counts[state.window] += 1
            accepted = float(odds(state.window).mean_accepted) if state.window else 0.0
            for _ in range(self.update_interval):
                self._note(state, accepted)
        return {window: count / counts.total() for window, count in counts.items()}
