"""Whose kernels a profile of a device takes; quick, for lists."""

from pathlib import Path

from simulator.core.relation import BORROWED_SPREADS
from simulator.inputs import reading
from simulator.inputs.document import head, read

FITTED = ("measured", "calibrated")
"""Confidence of what was fitted to measurements."""


def derived_from(path: Path) -> tuple[str, float] | None:
    """Return the name of the device whose products a profile takes, and the spread of a layer's
    time that it has; None where it states products of its own.
    """
    stated = dict[str, object](head(path, str(path)))
    quick = stated.get("spread") in BORROWED_SPREADS and "matmul" not in reading.text(path)
    if not quick:  # a number, behind the first lines, or beside products of its own
        stated = read(path, str(path)).data
    if "like" not in stated or "matmul" in stated:
        return None
    spread = stated.get("spread", "another chip")
    if isinstance(spread, dict):
        spread = spread.get("value")
    for relation, known in BORROWED_SPREADS.items():
        if spread == relation:
            spread = known.value
    if isinstance(spread, int | float):
        return str(stated["like"]), spread
    return None


def is_measured(path: Path) -> bool:
    """Return whether the products that a profile states were fitted to measurements."""
    stated: object = read(path, str(path)).data
    for field in ("matmul", "default", "memory_efficiency", "confidence"):
        stated = stated.get(field) if isinstance(stated, dict) else None
    return stated in FITTED
