"""A curve of mean accepted lengths, known at the first windows, is continued to wider ones.

The chance that the first k draft tokens of a window are all kept is taken as a discrete Weibull
distribution (Nakagawa and Osaki 1975), S(k) = exp(-a k^b), so that a window of K gives 1 + S(1) +
... + S(K) tokens a step. With b = 1 every position is kept with the same chance (i.i.d.); with b >
1 the chance falls, as of a head that runs ahead of what it was trained for; with b < 1 it rises, as
where easy and hard stretches alternate and a window that got far is in an easy one. The forms that
were compared, on whole drafters left out, are in ``docs/background/acceptance.md``;
``tests/test_continuation.py`` compares them again on the shipped recordings.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, hypot, log
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 64
"""Widest window, in draft tokens, to which a curve is continued."""
REPEAT_ERROR = 0.01
"""Error of a known length, as a share of it: more than that of a replay, less than that of an
engine's repeat (0.03).
"""
MEASURED_ERROR = 0.015
"""The same of a length that an engine measured once, in its interval: repeats differ by 0.03, taken
as two deviations.
"""
BENT = 0.3
"""Standard deviation of ln b before a length is known; drafters that are known to eight tokens have
b from 0.6 to 2.5.
"""
SPREAD = 0.04
SPREAD_OF_ONE = 0.08
"""Half of the 80 % interval, as a share of the length, per unit of ln(window / known windows);
where one window is known.
"""
TOLERATED = 0.05
"""Largest change, as a share of a length, that makes a measured curve one of falling gains; repeats
differ by 0.03.
"""


def even(lengths: Sequence[float]) -> list[float]:
    """Return the nearest lengths each of whose gains is at most the one before, as is true of ever
    wider windows.

    Engines measure every window in a run of its own, so that published curves jump. Raises
    ``ValueError`` for lengths that no repeat error explains.
    """
    from scipy.optimize import nnls

    windows = np.arange(1, len(lengths) + 1)
    if lengths and np.isfinite(lengths).all():
        ramps = np.minimum.outer(windows, windows)  # any sum of ramps that end has falling gains
        weights, _ = nnls(ramps.astype(float), np.array(lengths) - 1.0)
        nearest = 1.0 + ramps @ weights
        near = abs(nearest - lengths) <= TOLERATED * nearest
        if weights.sum() <= 1.0 + TOLERATED and near.all():
            return [float(length) for length in np.minimum(nearest, 1.0 + windows)]
    raise ValueError("expected rates from 0 to 1 that fall from position to position")


@lru_cache(maxsize=256)
def continued(lengths: tuple[float, ...], window: int = LONGEST) -> tuple[float, ...]:
    """Return the mean lengths at windows 1 to ``window``, correction or bonus included, from those
    at the first windows.

    Known lengths stay as they are (:func:`even`); beyond, a window gains what the curve gains that
    is fitted to all of them, and never more than the window before.
    """
    return tuple((1.0 + np.cumsum(_gains(lengths, window))).tolist())


def continued_rates(lengths: Sequence[float], window: int = LONGEST) -> list[float]:
    """Return the chance that a draft token is kept, given those before, at positions 1 to
    ``window``.
    """
    rates = []
    for before, after in pairwise([1.0, *_gains(lengths, window)]):
        rate = 0.0
        if before > 0.0:
            rate = min(1.0, after / before)
        rates.append(rate)
    return rates


def half_interval(known: int, window: int) -> float:
    """Return half of the 80 % interval of a continued length, as a share of it; 0 at the ``known``
    windows.

    Calibrated on the shipped recordings, SpecDecode-Bench (2fdccbd), InferenceX's golden curves
    (843c625) and Qwen3-32B in vLLM (tomasruizt/vllm-scripts d94d714); the error of the known
    lengths themselves is not in it.
    """
    spread = SPREAD
    if known == 1:
        spread = SPREAD_OF_ONE
    return spread * log(max(1.0, window / known))


def half_of_measured(lengths: Sequence[float], window: int) -> float:
    """Return half of that interval where the known lengths were measured, each with an error of
    :data:`MEASURED_ERROR`.
    """
    known = even(lengths)
    length = continued(tuple(known), window)[-1]
    moved_by = []
    for place, known_length in enumerate(known):
        moved = list(known)
        moved[place] = max(1.0, known_length * (1.0 - MEASURED_ERROR))
        moved_by.append(continued(tuple(moved), window)[-1] / length - 1.0)
    of_measurement = NormalDist().inv_cdf(0.9) * hypot(*moved_by)
    return hypot(half_interval(len(known), window), of_measurement)


class ContinuedLength(NamedTuple):
    """Tokens a step at a window wider than those that are known, and the 80 % interval around
    them.
    """

    known: int
    """Draft tokens in a row up to which rates are known."""
    window: int
    """Draft tokens in a row that are asked about."""
    length: float
    """Tokens a step there, correction or bonus included, as they are taken."""
    low: float
    high: float


def continued_range(lengths: Sequence[float], window: int, taken: float) -> ContinuedLength:
    """Return the interval of a length that is ``taken`` at ``window``, beyond the known
    ``lengths``; it holds what is taken.

    A draft token more adds at most what the last known one added, and at least nothing.
    """
    known = [1.0, *even(lengths)]
    length = continued(tuple(lengths), window)[-1]
    half = half_of_measured(lengths, window)
    last_gain = known[-1] - known[-2]
    most = known[-1] + (window - len(lengths)) * last_gain
    low = max(known[-1], length * (1.0 - half))
    high = min(most, length * (1.0 + half))
    return ContinuedLength(len(lengths), window, taken, min(low, taken), max(high, taken))


def _gains(lengths: Sequence[float], window: int) -> list[float]:
    """Return what each of ``window`` draft tokens adds to the mean length."""
    known = [after - before for before, after in pairwise([1.0, *even(lengths)])]
    scale, bend = _fitted(lengths)
    positions = np.arange(len(known) + 1.0, window + 1.0)
    further = np.minimum(_survival(positions, scale, bend), known[-1])
    return [*known, *further.tolist()][:window]


def _survival(positions: NDArray[np.float64], scale: float, bend: float) -> NDArray[np.float64]:
    """Return S(k) = exp(-scale k^bend) at the positions k of a window."""
    return np.asarray(np.exp(-scale * positions**bend))


def _fitted(lengths: Sequence[float]) -> tuple[float, float]:
    """Return a and b of the curve that is nearest to the lengths, b drawn towards 1 by
    :data:`BENT`.
    """
    # slow to load, and few runs continue a curve
    from scipy.optimize import least_squares

    stated = np.array(lengths)
    positions = np.arange(1.0, len(lengths) + 1.0)

    def misses(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        log_scale, log_bend = logs
        curve = 1.0 + _survival(positions, exp(log_scale), exp(log_bend)).cumsum()
        off = (curve - stated) / (REPEAT_ERROR * stated)
        return np.append(off, log_bend / BENT)

    first = min(max(lengths[0] - 1.0, 1e-9), 0.999)
    start = [log(-log(first)), 0.0]
    log_scale, log_bend = least_squares(misses, start, bounds=(-12.0, 4.0)).x
    return exp(log_scale), exp(log_bend)
