"""How sure a drafter is of each token of its next block, calibrated against what was kept of
blocks; and the slots of all blocks in the order of the chance that they are kept.

    c_d = 1 / (1 + exp(-w_d logit(q_d) - b_d))     of a recorded roll-out, q_d as the draft wrote it
    c_d = (kept_d + 1) / (reached_d + 2)           of a look-up, by the length of its match
    S_d = c_1 c_2 ... c_d                          the token d of a block is kept with all before it

One w and b for each place of a block, as vLLM fits them while it serves to the margin of the two
likeliest tokens (``acceptance_estimator.py``, vllm-project/vllm 165b3663); look-ups as its suffix
decoding counts them (``suffix/speculator.py``, 05084858). Here both are fitted once, to the whole
recording.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROUNDS = 25
"""Newton steps of a fit; it is done after some eight."""
RIDGE = 1e-3
"""Added to the curvature of a fit, in observations (vLLM: ``L2``)."""
LEAST = 50
"""Blocks that reach a place, below which the place before it lends its fit (vLLM:
``MIN_ROUND_OBSERVATIONS``).
"""
FARTHEST = 12.0
"""Log odds beyond which a half-precision chance says nothing."""
MATCHES = (1, 2, 3, 4, 5, 6, 10, 20)
"""Longest match of each class but the last, in tokens (vLLM: ``_len_bucket``)."""


@runtime_checkable
class Confident(Protocol):
    """A cursor that knows how sure its drafter is of the block that it proposes next."""

    @property
    def confidences(self) -> Floats:
        """Return (window,) the chance of each draft token, given that all before it are kept."""


def of_rollouts(written: Floats, run: Ints, fitted_to: Ints) -> Floats:
    """Return (positions, window) the chance of each token of the block that starts there, given
    those before; ``written`` (window, positions) is the draft's own probability of it.

    ``run`` (positions,) are the tokens that are kept; the fit is to the blocks that start at
    ``fitted_to``.
    """
    chances = np.empty(written.shape[::-1])
    slope, offset = 1.0, 0.0
    for place, q in enumerate(written):
        with np.errstate(divide="ignore"):
            odds = np.clip(np.log(q) - np.log1p(-q), -FARTHEST, FARTHEST)
        reached = fitted_to[run[fitted_to] >= place]
        if len(reached) >= LEAST:
            slope, offset = _logistic(odds[reached], run[reached] > place)
        chances[:, place] = 1.0 / (1.0 + np.exp(-slope * odds - offset))
    return chances


def _logistic(feature: Floats, kept: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and offset of the likeliest chances, by Newton's method from even ones; a slope
    below 0, by which the surer are kept less often, is none.
    """
    rate = (kept.sum() + 1.0) / (len(kept) + 2.0)
    even = float(np.log(rate / (1.0 - rate)))
    slope, offset = 0.0, even
    for _ in range(ROUNDS):
        chance = 1.0 / (1.0 + np.exp(-slope * feature - offset))
        weight = chance * (1.0 - chance)
        missing = kept - chance
        over_slope = float(weight @ feature**2) + RIDGE
        over_both = float(weight @ feature)
        over_offset = float(weight.sum()) + RIDGE
        spread = over_slope * over_offset - over_both**2
        by_slope, by_offset = float(missing @ feature), float(missing.sum())
        slope += (over_offset * by_slope - over_both * by_offset) / spread
        offset += (over_slope * by_offset - over_both * by_slope) / spread
    return (slope, offset) if slope >= 0.0 else (0.0, even)


def of_matches(length: Ints, window: int, run: Ints, fitted_to: Ints) -> Floats:
    """Return (positions, window) the share that is kept of tokens behind matches of that
    ``length``; 0 where nothing matches and a block is filled up.
    """
    kind = np.searchsorted(MATCHES, length)
    chances = np.zeros((len(length), window))
    for each in np.unique(kind[length > 0]):
        alike = (kind == each) & (length > 0)
        kept = run[fitted_to[alike[fitted_to]]]
        for place in range(window):
            reached = int((kept >= place).sum())
            chances[alike, place] = (int((kept > place).sum()) + 1.0) / (reached + 2.0)
    return chances


@dataclass(frozen=True, eq=False)
class RankedSlots:
    """The slots of many blocks, likeliest first; their numbers are of one block."""

    chances: Floats
    """(blocks, window) calibrated chance of each token, given those before."""
    run: Ints
    """(blocks,) tokens that are kept of the whole block."""

    @cached_property
    def _order(self) -> Ints:
        """Return (slots,) the slots in descending order of the chance that they are kept."""
        survival = np.cumprod(self.chances, axis=1)
        return np.argsort(-survival, axis=None, kind="stable")

    @cached_property
    def _sums(self) -> tuple[Floats, Floats, Floats]:
        """Return (slots + 1,) what the first slots come to: tokens by their chances, tokens that
        are kept, blocks that are begun.
        """
        window = self.chances.shape[1]
        survival = np.cumprod(self.chances, axis=1).reshape(-1)[self._order]
        block, place = np.divmod(self._order, window)
        kept = self.run[block] > place
        each = survival, kept, place == 0
        expected, tokens, begun = (
            np.concatenate(([0.0], np.cumsum(column, dtype=np.float64))) for column in each
        )
        return expected, tokens, begun

    def _at(self, sums: Floats, taken: float | Floats) -> Floats:
        blocks = len(self.run)
        of_all: Floats = np.interp(np.asarray(taken) * blocks, np.arange(len(sums)), sums)
        return of_all / blocks

    def expected(self, taken: float | Floats) -> Floats:
        """Return the tokens by their chances of the ``taken`` likeliest slots."""
        return self._at(self._sums[0], taken)

    def kept(self, taken: float) -> float:
        """Return the tokens that are kept of so many slots."""
        return float(self._at(self._sums[1], taken))

    def begun(self, taken: float) -> float:
        """Return the share of blocks of which any slot is among them."""
        return float(self._at(self._sums[2], taken))

    def outcomes(self, taken: float) -> Floats:
        """Return (window + 1,) the share of the blocks that are begun by the tokens kept of
        them.
        """
        window = self.chances.shape[1]
        first = self._order[: round(taken * len(self.run))] // window
        lengths = np.bincount(first, minlength=len(self.run))
        kept = np.minimum(self.run, lengths)[lengths > 0]
        shares: Floats = np.bincount(kept, minlength=window + 1) / max(1, len(kept))
        return shares
