"""The sentences of a page of the books."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCED = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
NOT_PROSE = re.compile(r"    | *\||#|\$\$|!\[")
"""How a line of code, a table, a title, a formula or a picture begins."""
ITEM = re.compile(r"^(?:[*-] |\d+\. )")
END = re.compile(r"(?<=[.?!:]) (?=[A-Z*`\[0-9\"])")
"""Between two sentences; a colon ends one where a capital follows."""


def paragraphs(page: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a Markdown page, each on one line. Code, tables,
    titles, formulas and pictures are left out; a name in back quotes is one word, and of a link
    its words are left.
    """
    lines: list[str] = []
    for line in [*FENCED.sub("\n", page).splitlines(), ""]:
        in_item = bool(lines) and line.startswith("    ")
        ends = not line.strip() or (NOT_PROSE.match(line) is not None and not in_item)
        if (ends or ITEM.match(line)) and lines:
            yield plain(" ".join(lines))
            lines = []
        if not ends:
            lines.append(line.strip() if lines else ITEM.sub("", line))


def plain(paragraph: str) -> str:
    """Return a paragraph with ``CODE`` for what stands in back quotes and without targets of
    links.
    """
    named = re.sub(r"`[^`]*`", "CODE", paragraph)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", named)


def sentences(page: str) -> list[str]:
    """Return the sentences of all paragraphs of a page."""
    return [
        sentence for paragraph in paragraphs(page) for sentence in END.split(paragraph) if sentence
    ]
