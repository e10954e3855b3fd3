"""Outputs end: the last step of a request commits tokens that nobody asked for, and a law of finite
outputs leaves them out.

Where the steps of a request are independent and alike, the steps ``M(n)`` that bring ``n`` tokens
are a renewal function over the chances ``p_k`` that a step commits ``k`` tokens::

    M(n) = 1 + sum_k p_k M(n - k),    M(n) = 0 for n <= 0         tokens per step = sum n / sum M(n)

over the lengths ``n`` of the outputs behind their first token. Far from its beginning M grows by
one over the mean of a step for every token (the renewal theorem), from where on it is a straight
line.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from simulator.core.numeric import Numbers, ordered_sum

LOOKED_AT = 2_048
"""Tokens after which, over and over, M is looked at: whether it has become a straight line."""
STRAIGHT = 1e-14
"""Difference of an increment of M from one over the mean of a step, relative and per step so far,
up to which it has.
"""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a workload by their length, as far as the steps of a law bring them."""

    requests: Mapping[int, int]
    """Number of requests by output tokens."""
    cut: bool = True
    """Whether tokens beyond the end of an output are cut off; else they count as output."""
    windows_first: bool = False
    """Whether the pass over a prompt shows what is kept of a window; else it shows one token."""

    def share_emitted(self, chances: Sequence[Numbers]) -> Numbers:
        """Return the share of committed tokens that are output, where a step commits ``k`` tokens
        with ``chances[k]``.

        Chances may be arrays over a grid. Steps that commit nothing are passed over.
        """
        some = [chance if np.ndim(chance) else float(chance) for chance in chances[1:]]
        if not self.cut or len(some) < 2 or not self.requests:
            return 1.0
        any_tokens = ordered_sum(some)
        if not np.all(any_tokens > 0.0):
            return 1.0
        each = [chance / any_tokens for chance in some]
        if not any(np.ndim(chance) for chance in each):
            return _share_of_numbers(
                tuple(each), tuple(sorted(self.requests.items())), self.windows_first
            )
        return _share(each, self.requests, self.windows_first)


@lru_cache(maxsize=4_096)
def _share_of_numbers(
    each: tuple[float, ...], requests: tuple[tuple[int, int], ...], windows_first: bool
) -> float:
    return float(_share(each, dict(requests), windows_first))


def _share(each: Sequence[Numbers], requests: Mapping[int, int], windows_first: bool) -> Numbers:
    """Return the emitted tokens of all requests over those that their steps commit; ``each[k - 1]``
    is the chance of k.
    """
    left = {tokens: weight for tokens, weight in _left(each, requests, windows_first) if tokens > 0}
    if not left:
        return 1.0
    mean = ordered_sum(tokens * chance for tokens, chance in enumerate(each, start=1))
    emitted = ordered_sum(weight * tokens for tokens, weight in left.items())
    return emitted / (mean * expected_steps(each, left))


def _left(
    each: Sequence[Numbers], requests: Mapping[int, int], windows_first: bool
) -> Iterator[tuple[int, Numbers]]:
    """Yield the tokens that are left for steps, fewest first, with the number of requests of which
    they are left.
    """
    if not windows_first:
        yield from ((output - 1, count) for output, count in sorted(requests.items()))
        return
    by_tokens: dict[int, Numbers] = {}
    for output, count in sorted(requests.items()):
        for first, chance in enumerate(each, start=1):
            by_tokens[output - first] = by_tokens.get(output - first, 0.0) + count * chance
    yield from sorted(by_tokens.items())


def expected_steps(each: Sequence[Numbers], left: Mapping[int, Numbers]) -> Numbers:
    """Return the expected steps of all requests, from the number of those that have so many tokens
    ``left``, fewest first.

    ``each[k - 1]`` is the chance that a step brings k tokens. Products and sums are taken one by
    one, so that a number of a grid is the same as alone.
    """
    certain = [taken for taken, chance in enumerate(each, start=1) if np.any(chance)]
    if len(certain) == 1:
        return ordered_sum(
            weight * float(-(-tokens // certain[0])) for tokens, weight in left.items()
        )
    mean = ordered_sum(tokens * chance for tokens, chance in enumerate(each, start=1))
    total: Numbers = 0.0
    steps = deque[Numbers]([0.0] * len(each), maxlen=len(each))
    for tokens in range(1, max(left) + 1):
        expected: Numbers = 1.0
        for chance, before in zip(each, steps, strict=True):
            expected = expected + chance * before
        steps.appendleft(expected)
        if tokens in left:
            total = total + left[tokens] * expected
        if not tokens % LOOKED_AT and _straight(steps, mean):
            further = (
                (behind - tokens, weight) for behind, weight in left.items() if behind > tokens
            )
            return total + ordered_sum(
                weight * (expected + more / mean) for more, weight in further
            )
    return total


def _straight(steps: Sequence[Numbers], mean: Numbers) -> bool:
    """Return whether each of the last expected steps, latest first, is one over the mean more than
    the one before it.
    """
    return all(
        np.all(np.abs((after - before) * mean - 1.0) <= STRAIGHT * after)
        for after, before in pairwise(steps)
    )
