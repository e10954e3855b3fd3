"""Whose kernels a profile of a device takes; quick, for lists."""

from pathlib import Path
from typing import Any, NamedTuple

from simulator.core.relation import BORROWED_SPREADS
from simulator.inputs import reading
from simulator.inputs.document import head, read

FITTED = ("measured", "calibrated")
"""Confidence of what was fitted to measurements."""


class Kernels(NamedTuple):
    """The kernels of a device: another one's, or its own."""

    like: str | None
    """The device whose products it takes; None where it states products of its own."""
    spread: float
    """One standard deviation of a layer's time, relative to it; 0 of products of its own."""
    measured: bool
    """Whether products of its own were fitted to measurements."""


def kernels_of(path: Path) -> Kernels:
    """Return whose products a profile takes; its file is read once, the beginning alone where that
    says it.
    """
    stated = dict[str, Any](head(path, str(path)))
    quick = stated.get("spread") in BORROWED_SPREADS and "matmul" not in reading.text(path)
    if not quick:  # a number, behind the first lines, or beside products of its own
        stated = read(path, str(path)).data
    spread = _spread(stated.get("spread", "another chip"))
    if "matmul" in stated or "like" not in stated or spread is None:
        return Kernels(None, 0.0, _fitted(stated))
    return Kernels(str(stated["like"]), spread, measured=False)


def _spread(stated: object) -> float | None:
    """Return the number of a spread that a profile states by relation, number or table."""
    if isinstance(stated, dict):
        stated = stated.get("value")
    for relation, known in BORROWED_SPREADS.items():
        if stated == relation:
            return known.value
    return stated if isinstance(stated, int | float) else None


def _fitted(stated: object) -> bool:
    for field in ("matmul", "default", "memory_efficiency", "confidence"):
        stated = stated.get(field) if isinstance(stated, dict) else None
    return stated in FITTED
