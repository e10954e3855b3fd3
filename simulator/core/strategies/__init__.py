"""Strategies lie here, a file or a folder for each; adding a strategy is adding a file."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from simulator.core.plugin_group import GROUP
from simulator.core.quantities import descendants
from simulator.core.strategies.common.base import Strategy

__all__ = ["Strategy", "strategies"]


@cache
def strategies() -> dict[str, type[Strategy]]:
    """Return all strategies by name, in order of names: those of this folder, and those registered
    in ``GROUP``.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    bases = f"{__name__}.common."
    found = descendants(Strategy)
    shipped = [
        one
        for one in found
        if one.__module__.startswith(f"{__name__}.") and not one.__module__.startswith(bases)
    ]
    registered: list[type[Strategy]] = [point.load() for point in entry_points(group=GROUP)]
    by_name = {
        strategy.model_fields["name"].default: strategy for strategy in (*shipped, *registered)
    }
    return dict(sorted(by_name.items()))  # whatever was imported first
