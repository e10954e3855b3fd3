"""Files of Python as trees, each parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a file; nobody changes it."""
    return ast.parse(path.read_text("utf-8"))
