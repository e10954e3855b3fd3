"""Whose kernels a profile of a device takes; quick, for lists."""

from pathlib import Path

from simulator.core.relation import BORROWED_SPREADS
from simulator.inputs.document import head, read


def derived_from(path: Path) -> tuple[str, float] | None:
    """Return the name of the device whose products a profile takes, and the spread of a layer's
    time that it has; None where it states products of its own.
    """
    stated = dict[str, object](head(path, str(path)))
    if stated.get("spread") not in BORROWED_SPREADS:  # a number, or behind the first lines
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
