"""Write the drawings of ``docs/background/laws.md``: what a step books on its lanes, and its law,
as the docstring of every strategy has them.

``python3 dev.py reference`` runs it; a test compares the committed drawings with what this writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import simulator

PACKAGE = Path(simulator.__file__).parent
PAGE = Path(__file__).parent / "background" / "laws.md"
BEGIN, END = "<!-- drawings: made by `python3 dev.py reference` -->", "<!-- end of the drawings -->"
LANE = re.compile(r"^ *(?:draft|target|stage \d) *\|", re.MULTILINE)
INDENTED = re.compile(r"^(?:(?: {4}.*)?\n)+", re.MULTILINE)


def drawn() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of every module that draws a strategy, those of papers
    last.
    """
    paths = [*PACKAGE.glob("core/strategies/*.py"), *PACKAGE.glob("papers/*/*.py")]
    for path in sorted(paths):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False) or ""
        if LANE.search(docstring):
            yield path.parent.name if path.stem == "strategy" else path.stem, docstring


def drawing(docstring: str) -> str:
    """Return the lanes of a docstring with the formulas below them: the indented lines around its
    first lane.
    """
    blocks = [match[0] for match in INDENTED.finditer(f"{docstring}\n")]
    lanes = next(block for block in blocks if LANE.search(block))
    return lanes.strip("\n").rstrip()


def summary(docstring: str) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(docstring.partition("\n\n")[0].split())


def drawings() -> str:
    """Return the part of the page between its two marks."""
    parts = []
    for name, docstring in drawn():
        parts += [f"### `{name}`", summary(docstring), f"```\n{drawing(docstring)}\n```"]
    return "\n\n".join(parts)


def page(text: str) -> str:
    """Return the page with the drawings made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{drawings()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
