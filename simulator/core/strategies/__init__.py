"""Strategies lie here, a file or a folder for each; adding a strategy is adding a file.

Those of a paper lie in its folder of ``simulator/papers``, and are found there by name.
"""

import importlib
import pkgutil
from functools import cache
from inspect import isabstract

from simulator.core.plugin_group import PAPERS, STRATEGIES
from simulator.core.quantities import descendants, members
from simulator.core.strategies.common.base import Strategy

__all__ = ["Strategy", "strategies"]


@cache
def strategies() -> dict[str, type[Strategy]]:
    """Return all strategies by name, in order of names: those of this folder, those of papers, and
    those registered in ``STRATEGIES``.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for paper in pkgutil.iter_modules(importlib.import_module(PAPERS).__path__):
        if paper.ispkg:
            _import_strategies_of(paper.name)
    homes = (f"{__name__}.", f"{PAPERS}.")
    shipped = [
        strategy
        for strategy in descendants(Strategy)
        if strategy.__module__.startswith(homes) and not isabstract(strategy)
    ]
    by_name = members(Strategy, shipped, STRATEGIES)
    return dict(sorted(by_name.items()))  # whatever was imported first


def _import_strategies_of(paper: str) -> None:
    """Import the module ``strategy`` of a paper, and further ones in modules whose names begin with
    that of the folder.
    """
    package = importlib.import_module(f"{PAPERS}.{paper}")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name == "strategy" or module.name.startswith(f"{paper}_"):
            importlib.import_module(f"{PAPERS}.{paper}.{module.name}")
