"""One schedule per file; adding a strategy is adding a file here."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from simulator.files.plugins import GROUP
from simulator.files.schema import descendants
from simulator.strategies.common.base import Strategy

__all__ = ["Strategy", "strategies"]


@cache
def strategies() -> dict[str, type[Strategy]]:
    """Every strategy, in order of names: one file each here, and those of packages that register in ``GROUP``."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    bases = Strategy.__module__
    own = [one for one in descendants(Strategy) if one.__module__.startswith(f"{__name__}.") and one.__module__ != bases]
    others: list[type[Strategy]] = [point.load() for point in entry_points(group=GROUP)]
    named = {found.model_fields["name"].default: found for found in (*own, *others)}
    return dict(sorted(named.items()))  # whatever was imported first
