"""What other packages announce, by the names of its entry points; nothing of theirs is imported
here.
"""

import sys
from functools import cache
from pathlib import Path

from simulator.core.plugin_group import STRATEGIES, registered


@cache
def announced(group: str) -> dict[str, str]:
    """Return what other packages announce in a group of entry points, by name, each with its module
    and class as ``MODULE:CLASS``.
    """
    return {name: point.value for name, point in registered(group).items()}


def plugin_strategies() -> dict[str, str]:
    """Return the strategies of other packages by name, each as ``MODULE:CLASS``."""
    return announced(STRATEGIES)


def packages_found(group: str = STRATEGIES) -> str:
    """Return in words how strategies, or what a group is for, are found in other packages, and
    which are there.
    """
    names = ", ".join(announced(group)) or f"none is installed for {sys.executable}"
    return f"those of other packages are entry points of the group {group} ({names})"


def plugin_file(name: str) -> Path | None:
    """Return the file of another package's strategy; None where there is no such strategy or it
    lies in no file.
    """
    module = plugin_strategies().get(name, "").partition(":")[0]
    from importlib.util import find_spec

    spec = find_spec(module) if module else None
    if spec and spec.origin:
        return Path(spec.origin)
    return None
