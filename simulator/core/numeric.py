"""Sums, maxima, binomial chances, shares of chains and groups are computed so that they are the
same on every Python.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import ceil, comb, floor, lgamma, sqrt
from operator import add
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = Any
"""A number, or an array of numbers that fits the others: laws take both."""

Number = TypeVar("Number")
Item = TypeVar("Item")
Key = TypeVar("Key")
MOST_EXACT = 1_000
"""Most requests whose binomial coefficients are computed exactly; a float holds those of 1,029."""
LEAST = 1e-300
"""A number above 0 and below all that is measured."""


def ordered_sum(values: Iterable[Number]) -> Number:
    """Return the sum of floats, or of arrays, added from first to last; 0 where there are none.

    It is the same on every Python: from 3.12 on ``sum`` compensates the rounding between floats,
    before it does not.
    """
    return cast("Number", reduce(add, values, 0))


def added_up(so_far: float, values: NDArray[np.float64]) -> float:
    """Return a sum to which values (any,) have been added from first to last."""
    return float(np.add.accumulate(np.concatenate(([so_far], values)))[-1])


def quotient(measured: float | None, by: float | None) -> float | None:
    """Return a measured value over another; None where either was not measured, or nothing was
    there to divide by.
    """
    if measured is not None and by:
        return measured / by
    return None


def elementwise_max(*values: Numbers) -> Numbers:
    """Return the largest of some numbers, element by element where there are arrays among them."""
    for value in values:
        if isinstance(value, np.ndarray):
            return reduce(np.maximum, values)
    return max(values)


def elementwise_min(first: Numbers, second: Numbers) -> Numbers:
    """Return the smaller of two numbers, element by element where one is an array."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def root(number: Numbers) -> Numbers:
    """Return the square root, the same for a number and an entry of an array."""
    if isinstance(number, np.ndarray):
        return np.sqrt(number)
    return sqrt(number)


def p_norm(terms: Sequence[Numbers], p: float) -> Numbers:
    """Return ``(sum of term**p)**(1/p)`` of numbers or arrays that are not negative: of numbers
    exactly what arrays with these entries have there.

    All powers are those of the C library. The power of arrays in numpy (``np.power``) has code of
    its own that differs in the last bit, on some machines.
    """
    largest = elementwise_max(*terms)
    if isinstance(largest, np.ndarray):
        scale = np.maximum(largest, LEAST)  # a norm of nothing is 0, not 0 / 0
        powers = [np.float_power(term / scale, p) for term in terms]
        return largest * np.float_power(reduce(add, powers), 1.0 / p)
    if not largest:
        return largest
    total = 0.0
    for term in terms:
        total += (term / largest) ** p
    return largest * total ** (1.0 / p)


def occurs(seconds: Numbers) -> bool:
    """Return whether something takes any time: in any step, where they are an array over steps."""
    if isinstance(seconds, np.ndarray):
        return bool(seconds.any())
    return bool(seconds)


def binomial(requests: int, share: Numbers) -> dict[int, Numbers]:
    """Return the chance of exactly k successes among ``requests`` that succeed with chance
    ``share``, by k.

    ``share`` may be an array. Every k is left out that is impossible, or so far from the mean that
    Bernstein's inequality gives both tails together less than 1e-16.
    """
    far = 9.0 * sqrt(requests * max(0.0, float(np.max(share * (1.0 - share))))) + 40.0
    first = max(0, floor(requests * float(np.min(share)) - far))
    last = min(requests, ceil(requests * float(np.max(share)) + far))
    chances = {k: _chance(requests, k, share) for k in range(first, last + 1)}
    return {k: chance for k, chance in chances.items() if np.any(chance > 0.0)}


def _chance(requests: int, k: int, share: Numbers) -> Numbers:
    """Return the binomial chance of exactly k successes."""
    if requests <= MOST_EXACT:
        return comb(requests, k) * share**k * (1.0 - share) ** (requests - k)
    ways = lgamma(requests + 1) - lgamma(k + 1) - lgamma(requests - k + 1)
    with np.errstate(divide="ignore"):  # the logarithm of an impossible chance: e to its power is 0
        successes = k * np.log(share) if k else 0.0
        failures = (requests - k) * np.log(1.0 - share) if requests > k else 0.0
        return np.exp(ways + (successes + failures))


def stationary(transitions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the long-run shares (states,) of a chain whose ``transitions`` (states, states) hold
    in row ``i`` the chances of what follows ``i``.

    Of a chain that can end in several closed classes it is the mixture of least norm.
    """
    count = len(transitions)
    equations = np.vstack((transitions.T - np.eye(count), np.ones(count)))
    sum_is_one = np.eye(count + 1)[-1]
    shares = np.linalg.lstsq(equations, sum_is_one, rcond=None)[0]
    return np.asarray(shares.clip(min=0.0), dtype=np.float64)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return items by their key; keys and items are in the order in which they come up."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
