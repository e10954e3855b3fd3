"""A recorded trace shows how often Mirror-SD loses its window, by width and depth of the early
exit.

The paper bounds the frequency by 1 - Omega (App. E.3). That holds per *position*: a rejected token
that is off the exit is a token off the exit. A *step* has up to gamma + 1 chances, so it does not
hold there (K11). More candidates can only help, exactly; a deeper exit need not (K12), so depth
comes with intervals.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import Chain, Verdict, verdict
from simulator.core.acceptance.sources import Exit, Odds, Replay
from simulator.core.acceptance.trace import Bools
from simulator.core.numeric import Numbers, ordered_sum
from simulator.core.plain import PlainData

Ints = NDArray[np.int64]

WIDTHS = (1, 2, 4, 8, 16)
RESAMPLES = 1_000


@dataclass(frozen=True)
class FallbackRate:
    """Shares of lost windows at one depth and width of the early exit; intervals are 95 % by
    resampling whole requests.
    """

    exit_fraction: float
    """Depth of the exit as a share of the layers."""
    kappa: int
    """Candidate tokens that the exit sends."""
    off_exit: float
    """1 - Omega: share of all recorded positions whose token is outside the top kappa."""
    per_position: float
    """Share of all recorded positions that are rejected and off the exit; never above
    ``off_exit``.
    """
    per_step: float
    """Share of verified windows whose successor is off the tree."""
    per_step_low: float
    """Lower end of its interval."""
    per_step_high: float
    """Upper end of its interval."""
    windows: int
    """Verified windows of the whole recording."""


@dataclass(frozen=True)
class Fallback:
    """How often windows are lost on a recording, by depth and width of the early exit."""

    rates: Sequence[FallbackRate]

    def as_data(self) -> PlainData:
        """Return the rates as plain data."""
        return {"fallback": [asdict(rate) for rate in self.rates]}


class Reuse(Protocol):
    """What is asked of the strategy: its window, and when the next one is at hand."""

    @property
    def window(self) -> int:
        """Return the draft tokens of a window."""

    @property
    def bonus_on_full_accept(self) -> bool:
        """Return whether a window that is kept whole brings one more token."""

    def reuses(self, verdict: Verdict, proposed: int) -> bool:
        """Return whether what was committed of ``proposed`` draft tokens is a path of the tree."""


class _Windows(NamedTuple):
    """All windows that are verified on the way through all requests; which they are does not depend
    on the exit.
    """

    first: Ints
    """(windows,) position in the trace of its first token."""
    successor: Ints
    """(windows,) position of the correction or bonus behind what is kept."""
    kept: Ints
    """(windows,) draft tokens."""
    ended: Bools
    """(windows,) whether the draft is wrong right behind it."""
    begins: Ints
    """(requests,) number of its first window."""


def fallback_rates(
    replay: Replay, strategy: Reuse, widths: Sequence[int] = WIDTHS
) -> list[FallbackRate]:
    """Return the share of lost windows for every recorded exit at every width, as the strategy
    reads the message.
    """
    windows = _walked(replay, strategy)
    reuses = _reuses(strategy)
    draws = _draws(len(replay.order))
    exits = (Exit(fraction, kappa) for fraction in replay.trace.exit_fractions for kappa in widths)
    return [_rate(replay, windows, reuses, draws, exit) for exit in exits]


def _walked(replay: Replay, strategy: Reuse) -> _Windows:
    """Walk through all requests of the recording and return the windows that are verified."""
    proposal = Chain(strategy.window, strategy.bonus_on_full_accept)
    begins: list[int] = []
    windows: list[tuple[int, int, int, bool]] = []
    for request, recording in enumerate(replay.order):
        begins.append(len(windows))
        cursor = replay.cursor(request, None)
        length = replay.length(request)
        runs = replay.runs(recording)
        start = int(replay.trace.offsets[recording]) + 1
        left = length
        while left > 0:
            here = length - left
            seen = cursor.judge(proposal)
            windows.append(
                (
                    start + here,
                    start + (here + seen.accepted) % length,
                    seen.accepted,
                    runs[here] == seen.accepted,
                )
            )
            left -= seen.committed
    first, successor, kept, ended = np.array(windows).T
    return _Windows(first, successor, kept, ended.astype(bool), np.array(begins))


def _rate(
    replay: Replay, windows: _Windows, reuses: Bools, draws: Ints, exit: Exit
) -> FallbackRate:
    """Return the rate at one exit; ``draws`` resample whole requests."""
    off = ~replay.trace.on_exit(exit.fraction, exit.kappa)
    full = windows.kept == len(reuses) - 1
    off_path = full & (off[windows.first] | windows.ended)
    reused = reuses[windows.kept, off[windows.successor].astype(int), off_path.astype(int)]
    counts = np.add.reduceat(
        np.stack([~reused, np.ones_like(reused)], axis=1).astype(np.int64), windows.begins
    )
    missed, verified = counts.sum(axis=0)
    low, high = _interval(draws @ counts)
    positions = replay.positions()
    return FallbackRate(
        exit_fraction=exit.fraction,
        kappa=exit.kappa,
        off_exit=float(off[positions].mean()),
        per_position=float((off & ~replay.accepted)[positions].mean()),
        per_step=missed / verified,
        per_step_low=low,
        per_step_high=high,
        windows=int(verified),
    )


def _reuses(strategy: Reuse) -> Bools:
    """Return the strategy's answer by tokens kept, successor off the exit, path off the exit:
    (gamma + 1, 2, 2).
    """
    shape = (strategy.window + 1, 2, 2)
    asked = (
        verdict(kept, kept + 1, bool(off), bool(path)) for kept, off, path in np.ndindex(*shape)
    )
    return np.array(
        [strategy.reuses(outcome, strategy.window) for outcome in asked], dtype=bool
    ).reshape(shape)


def _draws(requests: int) -> Ints:
    """Return how often each request is drawn: (resamples, requests)."""
    chosen = np.random.default_rng(0).integers(requests, size=(RESAMPLES, requests))
    return np.stack([np.bincount(draw, minlength=requests) for draw in chosen])


def _interval(sums: Ints) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of sums, whole requests resampled: windows of one request
    are not independent.
    """
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return float(low), float(high)


def miss(odds: Odds, bonus: bool, per_position: bool) -> Numbers:
    """Return the chance that the draft tree does not cover what follows a verified window
    (MSD-8).
    """
    if per_position:
        return ordered_sum(odds.off_exit[: len(odds.accepted) if bonus else -1])
    return odds.off_exit[0] + ordered_sum(odds.accepted[1:-1]) + (odds.off_path if bonus else 0.0)
