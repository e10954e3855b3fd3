"""Strategies of other packages, by the entry points that announce them; nothing of theirs is imported here."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

GROUP = "specsim.strategies"
"""Group of entry points: each is called like its strategy, and names the class of it."""


@cache
def plugin_strategies() -> dict[str, str]:
    """Return the strategies of other packages by name, each with its module and class as ``MODULE:CLASS``."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (only where names are looked up: `--help` is quick)

    return {point.name: point.value for point in sorted(entry_points(group=GROUP))}


def plugin_file(name: str) -> Path | None:
    """Return the file of another package's strategy; None where there is no such strategy or it lies in no file."""
    module = plugin_strategies().get(name, "").partition(":")[0]
    spec = find_spec(module) if module else None
    return Path(spec.origin) if spec and spec.origin else None
