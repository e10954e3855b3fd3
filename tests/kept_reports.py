"""Compare a report that is committed with the one that its command makes, on whatever processor
that is.
"""

from __future__ import annotations

import re
from pathlib import Path

HASHED = re.compile(rb"\b[pm][0-9a-f]{10}\b")
"""What matplotlib calls clips and marks of an SVG: a hash over coordinates to the last bit, in
which processors differ.
"""


def differing(kept: Path, made: Path) -> list[str]:
    """Return the files of two folders that one of them lacks, or that differ in more than such a
    name.
    """
    names = {path.name for folder in (kept, made) for path in folder.iterdir()}
    return sorted(name for name in names if _numbered(kept / name) != _numbered(made / name))


def _numbered(path: Path) -> bytes | None:
    """Return a file with hashed names numbered as they come; None where there is none."""
    if not path.exists():
        return None
    numbers: dict[bytes, bytes] = {}
    return HASHED.sub(
        lambda found: numbers.setdefault(found[0], b"%d" % len(numbers)), path.read_bytes()
    )
