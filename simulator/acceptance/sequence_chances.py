"""DuoDecoding's formulas: budget, threshold, verification, expected tokens.

prefix  x x x x|u u u          u: accepted by nobody yet (the tail, l tokens)
draft          |      1 1 1 1  sequence 1 of s, each gamma / s tokens
               |      2 2 2 2  sequence 2
target         |p p p p        checks the tail and the first token of every sequence
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import floor
from typing import Literal, NamedTuple

import numpy as np

from simulator.numeric import ordered_sum


def cost_coefficient(target_s: float, draft_s: float) -> float:
    """c: a pass of the target over a pass of the draft (DuoDecoding sec. 3.1; DUO-1)."""
    return target_s / draft_s


def budget(coefficient: float, rounding: Literal["floor", "round"] = "floor") -> int:
    """Gamma = c, at least 1; the paper does not say how c is rounded (DUO-1, K75)."""
    return max(1, floor(coefficient) if rounding == "floor" else round(coefficient))


def threshold(first: Sequence[float], second: float) -> float:
    """Theta = p_11 p_21: probability of the best first token and the best one behind it (sec. 3.2; DUO-3)."""
    return max(first) * second


def sequences_worth(first: Sequence[float], second: float) -> int:
    """First tokens that are likelier than the best two in a row, at least 1 (sec. 3.2; DUO-3, K74)."""
    return max(1, sum(chance > threshold(first, second) for chance in first))


class SequenceVerification(NamedTuple):
    """What one verification made of the tail and of the new sequences."""

    committed: int
    """Tokens that are final now."""
    chosen: int | None
    """The sequence whose first token is among them; None: every draft is thrown away."""


def verify(tail: Sequence[bool], firsts: Sequence[bool]) -> SequenceVerification:
    """Algorithm 2 on the outcome of each test ``r < p/q``, oldest first (DUO-5, K48 to K50).

    A rejection in the tail brings one token of the target's own and ends the iteration; behind a tail that is right
    the first sequence that begins right is taken, or one token of the target's own.
    """
    right = sum(1 for _ in takewhile(bool, tail))
    chosen = next((index for index, accepted in enumerate(firsts) if accepted), None) if right == len(tail) else None
    return SequenceVerification(right + 1, chosen)


class Expected(NamedTuple):
    """Long-run means of the automaton with independent tokens (DUO-6)."""

    warm: float
    """Share of iterations that begin with a tail."""
    tokens_warm: float
    """Tokens that such an iteration commits."""
    tokens: float
    """Tokens per iteration."""


def expected_tokens(rate: float, first_rate: float, tail: int) -> Expected:
    """Tail tokens are right with chance ``rate`` each, one of the sequences begins right with ``first_rate`` (DUO-6)."""
    survives = rate**tail
    tokens = float(ordered_sum(rate**place for place in range(tail + 1)))
    warm = first_rate / (1.0 + first_rate - first_rate * survives)
    return Expected(warm, tokens, 1.0 - warm + warm * tokens)


Drafts = Mapping[int, tuple[float, float]]
"""By number of sequences: how often so many are drafted, and how often one of them begins right."""


def tail_shares(survives: Mapping[int, float], drafts: Mapping[int, Drafts], tails: Mapping[int, int]) -> dict[int, float]:
    """Long-run share of iterations that begin with a tail of each length; DUO-6 with several numbers of sequences.

    ``survives[l]``: chance that a tail of ``l`` is right; ``drafts[l]``: what is drafted behind it; ``tails[s]``: the
    tail that a sequence leaves where ``s`` are drafted. Every length is reached from 0.
    """
    lengths = sorted(drafts)
    moves = np.zeros((len(lengths), len(lengths)))
    for row, length in enumerate(lengths):
        for sequences, (share, hit) in drafts[length].items():
            taken = share * survives[length] * hit
            moves[row, lengths.index(tails[sequences])] += taken
            moves[row, 0] += share - taken
    balance = moves.T - np.eye(len(lengths))
    balance[-1] = 1.0
    shares = np.linalg.solve(balance, np.eye(len(lengths))[-1])
    return {length: float(share) for length, share in zip(lengths, shares, strict=True)}


class Written(NamedTuple):
    """Means of a request when it ends."""

    seconds: float
    shown: float
    """Tokens of the prefix, those included that nobody has checked."""
    verified: float


def until_shown(
    cap: int,
    rights: Mapping[int, Sequence[float]],
    drafts: Mapping[int, Drafts],
    tails: Mapping[int, int],
    seconds: Mapping[tuple[int, int], float],
) -> Written:
    """A request that ends as soon as ``cap`` tokens are shown, as the released program counts; one is shown by the prefill.

    ``rights[l][r]``: chance that ``r`` of ``l`` tail tokens are right; ``seconds[l, s]``: an iteration with that tail
    and so many sequences; ``drafts`` and ``tails`` as for :func:`tail_shares`. Exact for independent tokens: worked out
    backwards over verified tokens and tails.
    """
    lengths = sorted(drafts)
    ends = np.zeros((cap + lengths[-1] + 2, len(lengths), 3))
    ends[:, :, 1] = np.arange(len(ends))[:, None] + np.array(lengths)
    ends[:, :, 2] = np.arange(len(ends))[:, None]
    for verified in range(cap - 1, 0, -1):
        for column, length in enumerate(lengths):
            if verified + length >= cap:
                continue
            chances = np.asarray(rights[length], dtype=float)
            found = chances[:length] @ ends[verified + 1 : verified + 1 + length, 0]
            behind = verified + length + 1
            for sequences, (share, hit) in drafts[length].items():
                taken = ends[behind, lengths.index(tails[sequences])]
                found = found + chances[length] * share * (hit * taken + (1.0 - hit) * ends[behind, 0])
                found[0] += share * seconds[length, sequences]
            ends[verified, column] = found
    return Written(*map(float, ends[1, 0]))
