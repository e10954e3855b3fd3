"""How wrong is i.i.d.? The textbook formula is fitted at one draft token and compared with the
recording at wider windows.

Tokens per step, correction or bonus included, are ``(1 - a^(gamma+1)) / (1 - a)`` if every draft
token is accepted with the same chance ``a`` whatever happened before (Leviathan et al. 2023, Eq.
1). Here ``a`` is the share of replayed one-token windows that keep their token, and the formula
predicts wider ones. It predicts too much where easy stretches are long, since a wide window takes
one of them in a step and starts the next behind a miss, and where a draft gets worse the further it
runs ahead; and too little where a hit makes the next one far likelier.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.statistics import FEWEST, independent
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import WindowReplay

WINDOWS = (3, 5, 8)
"""Draft tokens per window at which the formula is compared with the recording."""
RESAMPLES = 1_000
"""Bootstrap samples over requests."""
INTERVAL_PERCENT = (5.0, 95.0)
"""Percentiles of the samples that bound an error."""


class IidError(NamedTuple):
    """The formula errs by this much at one window."""

    gamma: int
    """The window, in draft tokens."""
    recorded_tokens: float
    """Tokens per step of the replay, correction or bonus included."""
    formula_tokens: float
    """Tokens per step of the formula, correction or bonus included."""
    percent: float
    """Error of the formula, in per cent of the replay."""
    low_percent: float
    """5th percentile of the error over bootstrap samples of requests."""
    high_percent: float
    """95th percentile of the error over bootstrap samples of requests."""


class Independence(NamedTuple):
    """The formula is compared with one drafter on one kind of text."""

    name: str
    """Name of trace, drafter and kind of text."""
    requests: int
    """Number of recorded requests."""
    rate: float
    """Share of one-token windows that keep their token: what the formula is fitted to."""
    by_position: tuple[float, ...]
    """Share kept at each position of the widest window, of the windows that got there."""
    errors: tuple[IidError, ...]
    """Error of the formula at each window."""


def independence(
    trace: Trace,
    name: str,
    flavours: Sequence[str] = (),
    windows: Sequence[int] = WINDOWS,
    seed: int = 0,
) -> Independence:
    """Return the errors of the formula, at those of ``windows`` that the trace can answer for.

    ``seed`` draws the acceptance of a sampled trace and the bootstrap.
    """
    replay = Replay(trace, flavours, seed)
    replayed = WindowReplay.of(replay)
    recorded = [gamma for gamma in windows if trace.window is None or gamma <= trace.window]
    weights = _resampled(len(replay.order), seed)
    rates = _per_step(replayed, 1, weights) - 1.0
    return Independence(
        name=name,
        requests=len(replay.order),
        rate=float(rates[0]),
        by_position=replayed.by_place(max(recorded, default=1), FEWEST),
        errors=tuple(
            _error(gamma, rates, _per_step(replayed, gamma, weights)) for gamma in recorded
        ),
    )


def every_drafter(
    trace: Trace, name: str, flavours: Sequence[str], windows: Sequence[int], seed: int
) -> list[Independence]:
    """Return the comparison of every drafter of a recording; with a single drafter, also of every
    kind of text.
    """
    if len(trace.drafters) > 1:
        return [
            independence(
                trace.drafted_by(drafter, seed), f"{name}:{drafter}", flavours, windows, seed
            )
            for drafter in trace.drafters
        ]
    compared = [independence(trace, name, flavours, windows, seed)]
    chosen = flavours or trace.flavours
    if len(chosen) > 1:
        compared += [
            independence(trace, f"{name}, {flavour}", [flavour], windows, seed)
            for flavour in chosen
        ]
    return compared


def _resampled(requests: int, seed: int) -> NDArray[np.float64]:
    """Return (samples, requests) how often each request counts; the first sample is the recording
    itself.
    """
    drawn = np.random.default_rng(seed).multinomial(
        requests, np.full(requests, 1.0 / requests), RESAMPLES
    )
    return np.vstack([np.ones(requests), drawn])


def _per_step(
    replayed: WindowReplay, gamma: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (samples,) the tokens per step of replayed windows."""
    kept, steps = (weights @ replayed.totals(gamma)).T
    return np.asarray(1.0 + kept / steps)


def _error(gamma: int, rates: NDArray[np.float64], recorded: NDArray[np.float64]) -> IidError:
    formula = np.array([1.0 + independent(rate, gamma) for rate in rates])
    percents = 100.0 * (formula / recorded - 1.0)
    low, high = np.percentile(percents[1:], INTERVAL_PERCENT)
    return IidError(
        gamma, float(recorded[0]), float(formula[0]), float(percents[0]), float(low), float(high)
    )
