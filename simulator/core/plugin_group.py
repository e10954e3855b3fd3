"""What other packages add to specsim: a group of entry points for each kind, found and loaded here.

A package announces an entry point in its ``pyproject.toml``, as
``[project.entry-points."specsim.policies"]``; nothing of it is imported before it is needed.
"""

from __future__ import annotations

import sys
from functools import cache
from glob import escape as glob_escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.core.faults import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PAPERS = "simulator.papers"
"""The package of our own papers, whose strategies and studies are found by their names, too."""
STRATEGIES = "specsim.strategies"
"""Each is called like its strategy, and names the class of it."""
POLICIES = "specsim.policies"
"""Each is called like its scheduling policy, and names the class of it."""
ROUTERS = "specsim.routers"
"""Each is called like its router, and names the class of it."""
SECTIONS = "specsim.sections"
"""Each names a function from the result of a run to a section of its page, or to None."""


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in order of names; nothing is imported."""
    if not _announced(group):
        return {}
    from importlib.metadata import entry_points  # it would be a fifth of the start of `list`

    return {point.name: point for point in sorted(entry_points(group=group))}


def _announced(group: str) -> bool:
    """Return whether any package names the group; true where there is an archive on the path, which
    is not opened.
    """
    texts = [_announcements(folder) for folder in sys.path]
    return any(text is None or group.encode() in text for text in texts)


@cache
def _announcements(folder: str) -> bytes | None:
    """Return what the packages installed in a folder of the path announce, all of it in one text;
    None for an archive.
    """
    if Path(folder).is_file():
        return None
    files = glob(f"{glob_escape(folder or '.')}/*-info/entry_points.txt")
    return b"\n".join(Path(file).read_bytes() for file in files)


def loaded(point: EntryPoint) -> Any:
    """Return what an entry point names; raises :class:`BadInput` where its package cannot be
    imported or has nothing of that name.
    """
    try:
        return point.load()
    except Exception as error:
        raise broken(point, f"cannot be loaded: {error_in_words(error)}") from error


def broken(point: EntryPoint, message: str) -> BadInput:
    """Return the error about an entry point, at the package that announces it."""
    package = f"package {point.dist.name} {point.dist.version}" if point.dist else "a package"
    return BadInput.at(package, f"{point.group}: {point.name} ({point.value}) {message}")


def error_in_words(error: BaseException) -> str:
    """Return an exception of another package with its kind, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
