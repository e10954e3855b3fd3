"""How wrong is i.i.d.? The textbook formula fitted at one draft token, held against the recording at wider windows.

Tokens per step, correction or bonus included, are ``(1 - a^(gamma+1)) / (1 - a)`` if every draft token is accepted with
the same chance ``a`` whatever happened before (Leviathan et al. 2023, Eq. 1). Here ``a`` is the share that windows of
one token keep as they are replayed, and the formula is asked for wider ones. It predicts too much where easy stretches
are long, since a wide window takes one of them in a step and starts the next behind a miss, and where a draft gets worse
the further it runs ahead; and too little where a hit makes the next one far likelier.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.sources import Replay
from simulator.acceptance.statistics import FEWEST, independent
from simulator.acceptance.trace import Trace
from simulator.acceptance.window_replay import WindowReplay

WINDOWS = (3, 5, 8)
"""Draft tokens per window at which the formula is held against the recording."""
RESAMPLES = 1_000
INTERVAL_PERCENT = (5.0, 95.0)


class IidError(NamedTuple):
    """One window; ``low_percent`` and ``high_percent`` hold 90 % of bootstrap samples over requests."""

    gamma: int
    recorded_tokens: float
    formula_tokens: float
    percent: float
    low_percent: float
    high_percent: float


class Independence(NamedTuple):
    """One drafter on one kind of text."""

    name: str
    requests: int
    rate: float
    """Share of one-token windows that keep their token: what the formula is fitted to."""
    by_position: tuple[float, ...]
    """Share kept at each position of the widest window, of the windows that got there."""
    errors: tuple[IidError, ...]


def independence(
    trace: Trace, name: str, flavours: Sequence[str] = (), windows: Sequence[int] = WINDOWS, seed: int = 0
) -> Independence:
    """The formula against the recording, at those of ``windows`` that the trace can answer for.

    ``seed`` draws the acceptance of a sampled trace and the bootstrap.
    """
    replay = Replay(trace, flavours, seed)
    replayed = WindowReplay.of(replay)
    held = [gamma for gamma in windows if trace.window is None or gamma <= trace.window]
    weights = _resampled(len(replay.order), seed)
    rates = _per_step(replayed, 1, weights) - 1.0
    return Independence(
        name=name,
        requests=len(replay.order),
        rate=float(rates[0]),
        by_position=_by_position(replayed, max(held, default=1)),
        errors=tuple(_error(gamma, rates, _per_step(replayed, gamma, weights)) for gamma in held),
    )


def every_drafter(trace: Trace, name: str, flavours: Sequence[str], windows: Sequence[int], seed: int) -> list[Independence]:
    """Each drafter of a recording; where there is but one, also each kind of text."""
    if len(trace.drafters) > 1:
        return [independence(trace.drafted_by(one, seed), f"{name}:{one}", flavours, windows, seed) for one in trace.drafters]
    chosen = flavours or trace.flavours
    single = [independence(trace, f"{name}, {one}", [one], windows, seed) for one in chosen if len(chosen) > 1]
    return [independence(trace, name, flavours, windows, seed), *single]


def _resampled(requests: int, seed: int) -> NDArray[np.float64]:
    """How often each request counts, by sample; the first sample is the recording itself."""
    drawn = np.random.default_rng(seed).multinomial(requests, np.full(requests, 1.0 / requests), RESAMPLES)
    return np.vstack([np.ones(requests), drawn])


def _per_step(replayed: WindowReplay, gamma: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens per step of replayed windows, by sample."""
    kept, steps = (weights @ replayed.totals(gamma)).T
    return np.asarray(1.0 + kept / steps)


def _error(gamma: int, rates: NDArray[np.float64], recorded: NDArray[np.float64]) -> IidError:
    formula = np.array([1.0 + independent(rate, gamma) for rate in rates])
    percents = 100.0 * (formula / recorded - 1.0)
    low, high = np.percentile(percents[1:], INTERVAL_PERCENT)
    return IidError(gamma, float(recorded[0]), float(formula[0]), float(percents[0]), float(low), float(high))


def _by_position(replayed: WindowReplay, gamma: int) -> tuple[float, ...]:
    reached = replayed.kept(gamma)[::-1].cumsum()[::-1].tolist()
    return tuple(after / before for before, after in pairwise(reached) if before >= FEWEST)
