"""A recording can be made easier or harder until it reaches a published mean; its bursts stay where
they are.

A chain whose probabilities were recorded is decided again at every position (:func:`rescale`). The
tokens kept of a tree, a head or a look-up were recorded by start; their numbers are exchanged for
new ones in the same order (:func:`tilted`). Both ways have one parameter, both give the recording
itself at one value of it, and both note in the header what was done.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sequences import RecordedSequences
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.spec import Means
from simulator.core.acceptance.trace import CONVERTED, Trace
from simulator.core.acceptance.tree_replay import Ints, RecordedRuns
from simulator.core.acceptance.window_replay import Walk
from simulator.core.faults import BadInput
from simulator.core.plain import PlainMapping

STEEPEST = 30.0
"""Tilt per token at which all but the shortest or the longest recorded length have vanished."""
NEIGHBOURS = 16
"""Positions around a position over which its score is averaged: fewer than in a recorded request,
more than a window of SpS.
"""
DERIVED = (
    "derived, not recorded: its mean at one window was set, its bursts are those of the "
    "recorded pair"
)


def check_length(length: float, window: int) -> None:
    """Raise :class:`BadInput` for a mean length, correction or bonus included, that is impossible
    at ``window``.
    """
    if not 1.0 < length < window + 1.0:
        message = (
            f"a mean accepted length of {length:g} cannot be: at window {window} it lies "
            f"between 1 and {window + 1}"
        )
        raise BadInput.at("", message)


EVERY = Walk()
"""Every recording once, with equal windows."""


def rescaled(
    acceptance: Acceptance,
    length: Means,
    window: int,
    seed: int = 0,
    stretch: float = 0.0,
    walk: Walk = EVERY,
) -> Replay | RecordedSequences:
    """Return acceptance of the same requests in the same order, with ``length`` tokens a step at
    ``window``.

    ``walk`` says over which requests that mean is, and how their windows move. Raises
    :class:`BadInput` for an impossible mean, for verdicts that are no recording by position or by
    start, and for a ``stretch`` of runs that were recorded by start.
    """
    if isinstance(length, dict):
        for mean in length.values():
            check_length(mean, window)
    else:
        check_length(length, window)
    if isinstance(acceptance, RecordedSequences):
        chain = rescaled_chain(acceptance.replay, length, window, seed, stretch, walk)
        return RecordedSequences(chain, acceptance.split)
    if stretch and (not isinstance(acceptance, Replay) or acceptance.trace.run is not None):
        raise BadInput.at("", "runs recorded by start cannot be stretched; leave stretch out")
    if isinstance(acceptance, RecordedRuns):
        return tilted(acceptance, length, window, seed, walk)
    if not isinstance(acceptance, Replay):
        raise BadInput.at("", "this strategy reads more of a recording than one run of kept tokens")
    return rescaled_chain(acceptance, length, window, seed, stretch, walk)


def rescaled_chain(
    acceptance: Replay,
    length: Means,
    window: int,
    seed: int = 0,
    stretch: float = 0.0,
    walk: Walk = EVERY,
) -> Replay:
    """Return the rescaled verdicts of a chain; raises :class:`BadInput` for a window that was not
    recorded.
    """
    largest = acceptance.trace.window
    if largest is not None and window > largest:
        known = f"it knows windows of up to {largest} draft tokens"
        raise BadInput.at("", f"cannot be re-scaled at window {window}: {known}")
    recorded = acceptance.trace
    if recorded.run is not None:
        run = recorded.run.astype(np.int64)
        runs = RecordedRuns(acceptance, run, largest or int(run.max()))
        return tilted(runs, length, window, seed, walk)
    if isinstance(length, dict):
        parts = {acceptance.only(name): mean for name, mean in length.items()}
    else:
        parts = {acceptance: length}
    ranks = recorded.draft_rank.copy()
    for part, mean in parts.items():
        trace = rescale(recorded, mean, window, seed, replay=part, stretch=stretch, walk=walk)
        own = part.positions()
        ranks[own] = trace.draft_rank[own]
    return acceptance.over(replace(trace, draft_rank=ranks))


def tilted(
    recorded: RecordedRuns, length: Means, window: int, seed: int, walk: Walk = EVERY
) -> RecordedRuns:
    """Return runs by start of which ``window`` draft tokens give ``length`` tokens a step; others
    follow from the same tilt.

    Of all distributions with that mean, the one nearest to the recorded one (least relative
    entropy) is its exponential tilt, p(r) e^(theta r). Every start keeps its place in the order of
    all starts, equal runs by a draw that is the same for every theta. So lengths grow monotonically
    with theta, and at 0 they are the recorded ones. Starts at which nothing is proposed stay so.
    The draws cost a part of the bursts: on the shipped recordings the correlation of a step with
    the next, 0.36, becomes 0.24 to 0.43.
    """
    most = recorded.most
    if window > most:
        reason = f"a mean at window {window} says nothing of a proposal of {most} levels"
        raise BadInput.at("", f"{reason}; state the mean at {most} or fewer")
    if isinstance(length, dict):
        for name, mean in length.items():
            pool = recorded.order
            recorded = tilted(recorded.only(name), mean, window, seed, walk)
            recorded.order = pool
        return recorded
    positions = recorded.positions()
    if recorded.proposed is not None:
        positions = positions[recorded.proposed[positions] > 0]
    run = recorded.kept[positions]
    draws = np.random.default_rng(seed).random(len(run))
    order = np.lexsort((draws, run))
    shares = np.bincount(run, minlength=most + 1) / len(run)

    def at(theta: float) -> RecordedRuns:
        changed = recorded.kept.copy()
        changed[positions[order]] = lengths(shares, theta, len(run))
        return recorded.with_runs(changed)

    def surplus(theta: float) -> float:
        return walk.mean(at(theta), window) - length

    least = surplus(-STEEPEST)
    most_surplus = surplus(STEEPEST)
    if least > 0.0 or most_surplus < 0.0:
        reach = f"{least + length:.3g} to {most_surplus + length:.3g} tokens a step"
        message = f"cannot be re-scaled to {length:g}: the recorded lengths reach {reach}"
        raise BadInput.at("", message)
    theta = _root(surplus, -STEEPEST, STEEPEST, 1e-5)
    tilted_runs = at(theta)
    before = walk.mean(recorded, window)
    derived = {
        "how": "runs by start, exponentially tilted in their recorded order",
        "tilt": round(theta, 5),
        "window": window,
        "mean_length_asked_tokens": length,
        "mean_length_tokens": round(walk.mean(tilted_runs, window), 4),
        "seed": seed,
        "mean_length_recorded_tokens": round(before, 4),
    }
    tilted_runs.trace = _labelled(tilted_runs.trace, derived)
    return tilted_runs


def lengths(shares: NDArray[np.float64], theta: float, count: int) -> Ints:
    """Return (count,) lengths in ascending order; their shares are ``shares`` tilted by ``theta``
    (to the nearest start).
    """
    tilt = theta * np.arange(len(shares))
    weights = shares * np.exp(tilt - tilt[shares > 0.0].max())
    ends = np.rint(np.cumsum(weights) / weights.sum() * count).astype(np.int64)
    return np.searchsorted(ends, np.arange(count), side="right")


def _labelled(trace: Trace, derived: PlainMapping) -> Trace:
    header = {**trace.header, "derived_from": derived, "replay": DERIVED}
    return replace(trace, header=header)


def rescale(
    trace: Trace,
    length: float,
    window: int,
    seed: int = 0,
    name: str = "",
    replay: Replay | None = None,
    stretch: float = 0.0,
    walk: Walk = EVERY,
) -> Trace:
    """Return a trace with easier or harder acceptance, so that ``window`` yields ``length`` tokens
    a step.

    ``length`` counts correction or bonus. Every position has a score, and the positions above one
    threshold are accepted, so that easy positions stay easy and bursts stay where they are.
    Sampled: q/p over the position's own uniform draw, for which a threshold of 1 is the trace as
    recorded at ``seed``. Greedy: the draft's probability of the emitted token, plus 1 for its first
    choices, so that the threshold at which those end is the trace as recorded. Windows other than
    ``window`` follow the bursts of the recorded pair, not those of the published one. Exits stay as
    recorded. Ranks say 0 for accepted; a position that was kept and is rejected now has the rank of
    a recorded rejection, drawn with ``seed``. ``name`` goes into the header; the mean is ``walk``'s
    over ``replay``.

    A trace with ``run`` is re-scaled as :func:`tilted` does. Raises :class:`BadInput` for one
    without runs and probabilities.
    """
    check_length(length, window)
    replay = replay or Replay(trace, seed=seed)
    if trace.run is not None:
        tilted_trace = rescaled_chain(replay, length, window, seed, walk=walk).trace
        derived = {"trace": name, **tilted_trace.header["derived_from"]}
        return _labelled(tilted_trace, derived)
    if not len(trace.q):
        message = "cannot be re-scaled: it holds no probabilities to score positions by"
        raise BadInput.at("", message)
    score = stretched(scores(trace, seed), trace.offsets, stretch)
    ordered = np.sort(score)
    last = len(ordered) - 1

    def at(share: float) -> Trace:
        if share <= 0.0:
            return _decided(trace, np.zeros(len(score), dtype=bool), seed)
        place = int((1.0 - share) * len(ordered))
        threshold = ordered[min(place, last)]
        return _decided(trace, score >= threshold, seed)

    def surplus(share: float) -> float:
        return walk.mean(replay.over(at(share)), window) - length

    _check_reach(length, surplus(0.0), surplus(1.0))
    decided = at(_root(surplus, 0.0, 1.0, 0.1 / len(score)))
    kind = "first choice of the draft, then its probability q,"
    if trace.temperature:
        kind = "q/p over a fixed uniform"
    derived = {
        "trace": name,
        "how": f"accepted where {kind} exceeds a threshold",
        "window": window,
        "stretch": stretch,
        **_means(walk, length, window, replay, replay.over(decided)),
        "seed": seed,
    }
    return _labelled(decided, derived)


def _check_reach(length: float, low: float, high: float) -> None:
    """Raise :class:`BadInput` where a mean, ``low`` and ``high`` less than its ends, lies outside
    of them.
    """
    if not low < 0.0 < high:
        reach = f"{low + length:.3g} to {high + length:.3g} tokens a step"
        message = f"cannot be re-scaled to {length:g}: with these windows the mean reaches {reach}"
        raise BadInput.at("", message)


def _means(
    walk: Walk, length: float, window: int, before: Replay, after: Replay
) -> dict[str, float]:
    """Return the mean that was asked for, and those that were recorded and reached."""
    recorded = walk.mean(before, window)
    reached = walk.mean(after, window)
    return {
        "mean_length_asked_tokens": length,
        "mean_length_tokens": round(reached, 4),
        "mean_length_recorded_tokens": round(recorded, 4),
    }


def scores(trace: Trace, seed: int) -> NDArray[np.float64]:
    """Return (positions,) how easily a token is accepted there, see :func:`rescale`."""
    q = trace.q.astype(np.float64)
    if not trace.temperature:
        return q + np.equal(trace.draft_rank, 0)
    p = trace.p.astype(np.float64)
    uniform = np.random.default_rng(seed).random(len(q))
    return q / np.maximum(p, 1e-12) / np.maximum(uniform, 1e-12)


def stretched(score: NDArray[np.float64], offsets: Ints, stretch: float) -> NDArray[np.float64]:
    """Return scores moved by the share ``stretch`` towards the mean over ``NEIGHBOURS`` positions
    of the same request.

    Text that repeats itself is easy for a long stretch; 0 leaves the recorded bursts.
    """
    if not stretch:
        return score
    position = np.arange(len(score))
    request = np.searchsorted(offsets, position, side="right") - 1
    first = np.maximum(position - NEIGHBOURS // 2, offsets[request])
    last = np.minimum(position + NEIGHBOURS // 2, offsets[request + 1])
    total = np.concatenate(([0.0], np.cumsum(score)))
    means: NDArray[np.float64] = (total[last] - total[first]) / (last - first)
    moved = (1.0 - stretch) * score + stretch * means
    return np.asarray(moved, dtype=np.float64)


def _decided(trace: Trace, accepted: NDArray[np.bool_], seed: int) -> Trace:
    """Return the trace with new decisions, without p and q, from which they no longer follow."""
    recorded = trace.draft_rank
    missed = recorded[recorded > 0]
    if not len(missed):
        missed = np.array([1])
    drawn = np.random.default_rng(seed).choice(missed, len(accepted))
    rejected = np.where(recorded > 0, recorded, drawn)
    ranks = np.where(accepted, 0, rejected).astype(np.uint16)
    empty = np.empty(0, dtype=np.float16)
    header = {**trace.header, "format": CONVERTED}
    return replace(trace, header=header, draft_rank=ranks, p=empty, q=empty)


def _root(function: Callable[[float], float], low: float, high: float, within: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=within))
