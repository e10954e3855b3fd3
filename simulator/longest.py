"""The longest of some durations, be they numbers or arrays."""

from __future__ import annotations

from functools import reduce
from typing import Any


def longest(*seconds: Any) -> Any:
    """Element by element where there are arrays among them; numpy is loaded then, and not before."""
    try:
        return max(seconds)
    except ValueError:  # an array is neither more nor less
        import numpy as np  # noqa: PLC0415  (what is only listed needs none)

        return reduce(np.maximum, seconds)
