"""Formulas of the papers that no run needs; worked examples and properties of the parts that runs
do need use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.numeric import elementwise_max, ordered_sum
from simulator.core.strategies.common.pipeline_laws import PipelineTimes


def speculative_sampling(
    p: NDArray[np.float64], q: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64] | None]:
    """Return the chance to accept a token drawn from q, and the distribution of its replacement, so
    that the output is p (X-2).

    The replacement is None where p = q, since no token is ever rejected.
    """
    rest = np.maximum(p - q, 0.0)
    left = float(rest.sum())
    return float(np.minimum(p, q).sum()), rest / left if left > 0.0 else None


def top(probabilities: NDArray[np.float64], kappa: int) -> NDArray[np.int64]:
    """Return the ids of the kappa most probable tokens; ties go to the lower id, so that the sets
    are nested (MSD-6).
    """
    return np.argsort(-probabilities, kind="stable")[:kappa]


def overlap_mass(
    q: NDArray[np.float64], exit_probabilities: NDArray[np.float64], kappa: int
) -> float:
    """Return Omega, the mass of the final distribution q on the top kappa of the early exit
    (Mirror-SD Eq. 9, MSD-6).
    """
    return float(q[top(exit_probabilities, kappa)].sum())


def overlap_bound(
    q: NDArray[np.float64], exit_probabilities: NDArray[np.float64], kappa: int
) -> float:
    """Return q(S*) - 2 kappa eps, below which Omega cannot fall (Proposition 2, MSD-9)."""
    error = float(np.abs(exit_probabilities - q).max())
    return float(q[top(q, kappa)].sum()) - 2.0 * kappa * error


class Expected(NamedTuple):
    """The automaton with independent tokens has these long-run means (DUO-6)."""

    warm: float
    """Share of iterations that begin with a tail."""
    tokens_warm: float
    """Tokens that such an iteration commits."""
    tokens: float
    """Tokens per iteration."""


def expected_tokens(rate: float, first_rate: float, tail: int) -> Expected:
    """Return long-run means (DUO-6).

    A token of a tail of ``tail`` tokens is right with chance ``rate``; one of the sequences begins
    right with ``first_rate``.
    """
    survives = rate**tail
    tokens = float(ordered_sum(rate**place for place in range(tail + 1)))
    warm = first_rate / (1.0 + first_rate - first_rate * survives)
    return Expected(warm, tokens, 1.0 - warm + warm * tokens)


def equal_stages(stage: Any, hit: Any, refill_steps: int) -> Any:
    """Return the mean time of a token by Eq. (2): ``t (1 + (1 - P) m)`` with ``refill_steps`` = m
    (SP-2).

    A row that enters at once needs m - 1.
    """
    return stage * (1.0 + (1.0 - hit) * refill_steps)


def arrivals(
    stage: float, stages: int, tokens: int, missed: Iterable[int], refill_steps: int
) -> list[float]:
    """Return when tokens 1, 2, ... leave with equal stages; ``missed``: tokens that were not in the
    tree (SP-3).
    """
    behind = set(missed)
    waits = [stages, *(1 + refill_steps * (token in behind) for token in range(1, tokens))]
    return (stage * np.cumsum(waits)).tolist()


def token_layers(layers: Any, stream_layers: Any, nodes: Any, kept: Any, streams: Any) -> Any:
    """Return rows times layers of one pass; plain decoding has ``layers`` (SS-2)."""
    return (layers - stream_layers) * nodes + stream_layers * stream_rows(kept, streams)


def late_saving(layers: Any, stream_layers: Any) -> Any:
    """Return the share of the streams' work that is saved as they begin behind layer N - N_s (Eq.
    4, SS-5).
    """
    return (layers - stream_layers) / layers


def accept_threshold(target: Any, draft: Any) -> Any:
    """Return ``min(1, q_target / q_virtual)``, below which a drawn number keeps a streams' token
    (app. F, Eq. 9; SS-4).
    """
    return np.minimum(1.0, target / draft)


def stream_rows(nodes: Any, streams: Any) -> Any:
    """Return the rows of the top layers, every node with its streams: ``(1 + gamma) nodes`` (sec.
    2.3, SS-1).
    """
    return (1 + streams) * nodes


def barrier_step(times: PipelineTimes, active: int, verified: bool = True) -> Any:
    """Return the time of a step of all stages together, of which the first ``active`` have work.

    It begins with pruning, where a token has just been ``verified``, and the levels moving on; the
    draft grows a level meanwhile.
    """
    pruning, carried = (
        verified * (times.token + times.prune),
        elementwise_max(0.0, *times.links[: active - 1]),
    )
    exchange = elementwise_max(pruning, carried) if times.asynchronous else pruning + carried
    return elementwise_max(exchange + elementwise_max(*times.stages[:active]), times.draft)


def barrier_passage(times: PipelineTimes, steps: int) -> Any:
    """Return the time of ``steps`` barrier steps to the next token; m + 1: a miss that was noticed
    a step late.
    """
    m = len(times.stages)
    if steps > m:
        return barrier_step(times, m) + barrier_passage(times, m)
    first = m - steps + 1
    return barrier_step(times, first) + ordered_sum(
        barrier_step(times, active, False) for active in range(first + 1, m + 1)
    )


def per_token(
    times: PipelineTimes, clock: Literal["barrier", "tandem"], shares: Mapping[int, float]
) -> Any:
    """Return the mean time of a token; ``shares`` of passages by their steps add up to 1."""
    if clock == "barrier":
        return ordered_sum(share * barrier_passage(times, steps) for steps, share in shares.items())
    return ordered_sum(share * times.at_most(steps) for steps, share in shares.items())
