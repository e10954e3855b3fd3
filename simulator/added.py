"""Sums that are the same on every Python.

From 3.12 on ``sum`` makes up for what rounding loses between floats, before it does not; a last digit differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import TypeVar, cast

Number = TypeVar("Number")


def added(values: Iterable[Number]) -> Number:
    """Floats, or arrays of them, added from first to last; 0 of none."""
    return cast("Number", reduce(add, values, 0))
