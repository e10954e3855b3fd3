"""The versions of constraints.txt, for tests of what depends on the last digit or word of another
package.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PINS = dict(
    line.split("==")
    for line in (Path(__file__).parent.parent / "constraints.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
"""Version by name of the package."""


def as_pinned(*packages: str) -> bool:
    """Whether these packages are installed in the versions of constraints.txt."""
    return all(version(package) == PINS[package] for package in packages)
