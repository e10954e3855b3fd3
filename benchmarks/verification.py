"""What a decoding program makes of drafts, token by token: live recordings and worked examples use
it, no simulation does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple


def accepted_prefix(draft: Sequence[object], target: Sequence[object]) -> int:
    """Return A_t: how many drafted tokens agree before the first that does not (MSD-1)."""
    for agreed, (drafted, wanted) in enumerate(zip(draft, target, strict=False)):
        if drafted != wanted:
            return agreed
    return min(len(draft), len(target))


def threshold(first: Sequence[float], second: float) -> float:
    """Return theta = p_11 p_21, the probability of the best first token and the best one behind it
    (sec. 3.2; DUO-3).
    """
    return max(first) * second


def sequences_worth(first: Sequence[float], second: float) -> int:
    """Return the number of first tokens likelier than the best two in a row, at least 1 (sec. 3.2;
    DUO-3, K74).
    """
    return max(1, sum(chance > threshold(first, second) for chance in first))


class SequenceVerification(NamedTuple):
    """One verification of the tail and of the new sequences has this outcome."""

    committed: int
    """Tokens that are final now."""
    chosen: int | None
    """Index of the sequence whose first token is among them; None: every draft is discarded."""


def verify(tail: Sequence[bool], firsts: Sequence[bool]) -> SequenceVerification:
    """Return the outcome of Algorithm 2, given that of each test ``r < p/q``, oldest first (DUO-5,
    K48 to K50).

    A rejection in the tail yields a token of the target's own and ends the iteration; behind a
    right tail the first sequence that begins right is taken, or a token of the target's own.
    """
    right = sum(1 for _ in takewhile(bool, tail))
    if right < len(tail):
        return SequenceVerification(right + 1, None)
    chosen = next((index for index, accepted in enumerate(firsts) if accepted), None)
    return SequenceVerification(right + 1, chosen)
