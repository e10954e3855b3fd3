"""DuoDecoding's formulas give its budget and its expected tokens; those of a decoding program are
in ``benchmarks``.

prefix  x x x x|u u u          u: not yet verified (the tail, l tokens)
draft          |      1 1 1 1  sequence 1 of s, each gamma / s tokens
               |      2 2 2 2  sequence 2
target         |p p p p        checks the tail and the first token of every sequence
"""

from collections.abc import Mapping, Sequence
from math import floor
from typing import Literal, NamedTuple

import numpy as np


def cost_coefficient(target_s: float, draft_s: float) -> float:
    """Return c, the time of a pass of the target relative to one of the draft (DuoDecoding sec.
    3.1; DUO-1).
    """
    return target_s / draft_s


def budget(coefficient: float, rounding: Literal["floor", "round"] = "floor") -> int:
    """Return gamma = c in tokens, at least 1; the paper does not say how c is rounded (DUO-1,
    K75).
    """
    return max(1, floor(coefficient) if rounding == "floor" else round(coefficient))


Drafts = Mapping[int, tuple[float, float]]
"""Share of steps that draft so many sequences, and chance that one of them begins right, by number
of sequences.
"""


def tail_shares(
    survives: Mapping[int, float], drafts: Mapping[int, Drafts], tails: Mapping[int, int]
) -> dict[int, float]:
    """Return the long-run share of iterations that begin with a tail, by its length; DUO-6 with
    several numbers of sequences.

    ``survives[l]``: chance that a tail of ``l`` is right; ``drafts[l]``: sequences that are drafted
    behind it; ``tails[s]``: tail that a sequence leaves where ``s`` are drafted. Every length is
    reached from 0.
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
    """A request has these means when it ends."""

    seconds: float
    """Its duration."""
    shown: float
    """Tokens of the prefix, unverified ones included."""
    verified: float
    """Verified tokens of the prefix."""


def until_shown(
    cap: int,
    rights: Mapping[int, Sequence[float]],
    drafts: Mapping[int, Drafts],
    tails: Mapping[int, int],
    seconds: Mapping[tuple[int, int], float],
) -> Written:
    """Return the means of a request that ends once ``cap`` tokens are shown, as the released
    program counts.

    The prefill shows one token. ``rights[l][r]``: chance that ``r`` of ``l`` tail tokens are right;
    ``seconds[l, s]``: duration of an iteration with that tail and ``s`` sequences; ``drafts`` and
    ``tails`` as for :func:`tail_shares`. Exact for independent tokens: computed backwards over
    verified tokens and tails.
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
            means = chances[:length] @ ends[verified + 1 : verified + 1 + length, 0]
            behind = verified + length + 1
            for sequences, (share, hit) in drafts[length].items():
                taken = ends[behind, lengths.index(tails[sequences])]
                means = means + chances[length] * share * (
                    hit * taken + (1.0 - hit) * ends[behind, 0]
                )
                means[0] += share * seconds[length, sequences]
            ends[verified, column] = means
    return Written(*map(float, ends[1, 0]))
