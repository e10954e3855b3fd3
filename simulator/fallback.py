"""How often Mirror-SD loses its window, on a recorded trace: by width and by depth of the early exit.

The paper bounds the frequency by 1 - Omega (App. E.3). That holds per *position*: a rejected token that
is off the exit is a token off the exit. A *step* has up to gamma + 1 chances, so it does not hold there
(K11). More candidates can only help, exactly; a deeper exit need not (K12), so depth comes with intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import Chain, Exit, Replay
from simulator.strategies.mirror_sd import MirrorSD

WIDTHS = (1, 2, 4, 8, 16)
RESAMPLES = 1_000


@dataclass(frozen=True)
class FallbackRate:
    """Shares at one exit depth and width; intervals are 95 % by resampling whole requests."""

    exit_fraction: float
    kappa: int
    off_exit: float
    """1 - Omega: share of all recorded positions whose token is outside the top kappa."""
    per_position: float
    """Share of all recorded positions that are rejected and off the exit; never above ``off_exit``."""
    per_step: float
    """Share of verified windows whose successor is off the tree."""
    per_step_low: float
    per_step_high: float
    windows: int


def fallback_rates(replay: Replay, strategy: MirrorSD, widths: Sequence[int] = WIDTHS) -> list[FallbackRate]:
    """Every recorded exit at every width, for the strategy's window and reading of the message."""
    return [_rate(replay, strategy, Exit(fraction, kappa)) for fraction in replay.trace.exit_fractions for kappa in widths]


def _rate(replay: Replay, strategy: MirrorSD, exit: Exit) -> FallbackRate:
    counts = np.array([_walk(replay, strategy, exit, request) for request in range(len(replay.order))])
    low, high = _interval(counts)
    missed, windows = counts.sum(axis=0)
    positions = replay.positions()
    off = ~replay.trace.on_exit(exit.fraction, exit.kappa)[positions]
    rejected = ~replay.accepted[positions]
    return FallbackRate(
        exit_fraction=exit.fraction,
        kappa=exit.kappa,
        off_exit=float(off.mean()),
        per_position=float((off & rejected).mean()),
        per_step=missed / windows,
        per_step_low=low,
        per_step_high=high,
        windows=int(windows),
    )


def _walk(replay: Replay, strategy: MirrorSD, exit: Exit, request: int) -> tuple[int, int]:
    """Missed windows and all windows of one request, from its first position to its last."""
    cursor, left = replay.cursor(request, exit), replay.length(request)
    window, missed, windows = Chain(strategy.gamma, strategy.bonus_on_full_accept), 0, 0
    while left > 0:
        verdict = cursor.judge(window)
        missed += not strategy.reuses(verdict, strategy.gamma)
        windows += 1
        left -= verdict.committed
    return missed, windows


def _interval(counts: NDArray[np.int64]) -> tuple[float, float]:
    """95 % interval of a ratio of sums, resampling rows: windows of one request are not independent."""
    chosen = np.random.default_rng(0).integers(len(counts), size=(RESAMPLES, len(counts)))
    sums = counts[chosen].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return float(low), float(high)
