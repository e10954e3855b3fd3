"""Strategies of other packages, by the entry points that announce them; nothing of theirs is
imported here.
"""

import sys
from functools import cache
from glob import escape as glob_escape, glob
from pathlib import Path

from simulator.core.plugin_group import GROUP


@cache
def plugin_strategies() -> dict[str, str]:
    """Return the strategies of other packages by name, each with its module and class as
    ``MODULE:CLASS``.
    """
    if not any(map(_announces, sys.path)):
        return {}
    # it would be a fifth of the start of `list`
    from importlib.metadata import entry_points

    return {point.name: point.value for point in sorted(entry_points(group=GROUP))}


def _announces(folder: str) -> bool:
    """Return whether any package installed in a folder of the path names the group; true of an
    archive, which is not opened.
    """
    if Path(folder).is_file():
        return True
    announcements = glob(f"{glob_escape(folder or '.')}/*-info/entry_points.txt")
    return any(GROUP.encode() in Path(file).read_bytes() for file in announcements)


def packages_found() -> str:
    """Return in words how strategies of other packages are found, and which are there."""
    found = ", ".join(plugin_strategies()) or f"none is installed for {sys.executable}"
    return f"those of other packages are entry points of the group {GROUP} ({found})"


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
