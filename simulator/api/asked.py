"""What calls are asked: scenarios, changes to them, a catalogue of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import in_a_line

if TYPE_CHECKING:
    from simulator.scenario import Loaded

Overrides: TypeAlias = Mapping[str, object] | Sequence[str]
"""Fields to change: ``{"strategy.gamma": 5}``, or lines as after ``--set``:
``["strategy.gamma=5"]``.
"""
Source: TypeAlias = Union[str, Path, "Loaded"]
"""A scenario: its name in the catalogue, the path of a YAML file, or one that was loaded."""
Folder: TypeAlias = str | Path | None
"""A catalogue of the user's own, which is searched before the shipped one."""


def name_of(source: object) -> str:
    """Return the name or file of a scenario as text; raises TypeError for anything else, as one
    that is loaded.
    """
    if isinstance(source, str | Path):
        return str(source)
    raise TypeError(
        f"expected the name or the file of a scenario, got {type(source).__name__}; only run and "
        "law take one that is loaded. A strategy of your own is named once its package is "
        "installed (docs/how-to/own_strategy.md)"
    )


def lines(overrides: Overrides) -> tuple[str, ...]:
    """Return overrides as ``key=value``, with values as YAML."""
    if isinstance(overrides, Mapping):
        return tuple(f"{key}={in_a_line(value)}" for key, value in overrides.items())
    return tuple(overrides)


def shelves(folder: Folder) -> Catalogue:
    """Return the shipped catalogue, behind a folder of the user's own where there is one."""
    return Catalogue((Path(folder),) if folder else ())
