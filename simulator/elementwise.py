"""Expressions that serve one value and a grid of values alike."""

from __future__ import annotations

from functools import reduce
from typing import Any


def longest(*seconds: Any) -> Any:
    """The longest of some durations; element by element where there are arrays among them."""
    try:
        return max(seconds)
    except ValueError:  # an array is neither more nor less
        import numpy as np  # noqa: PLC0415  # profiles are listed without it

        return reduce(np.maximum, seconds)
