"""A page as Markdown, with its pictures as files next to it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from simulator.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Hyperlink,
    Listing,
    Page,
    Paragraph,
    Strong,
    Table,
    Words,
)

MARKUP = re.compile(
    r"<(?=[A-Za-z/!?])|(?<=\])\(|[`~]{3,}|^[ \t]*(?:#|>|[-+*][ \t]|=+$|-+$)", re.MULTILINE
)
"""Matches what Markdown would read as a tag, a link, a fence, a title or a list in words that are
none.
"""


def plain(text: str) -> str:
    """Return text with everything escaped that would be markup."""
    return MARKUP.sub(_escaped, text)


def _escaped(markup: re.Match[str]) -> str:
    escaped = ""
    for letter in markup[0]:
        if not letter.isspace():
            escaped += "\\"
        escaped += letter
    return escaped


def as_markdown(page: Page) -> str:
    """Return a page as Markdown text."""
    paragraphs = [f"# {page.title}"]
    if page.about:
        paragraphs.append(plain(page.about))
    if page.answer:
        paragraphs.append(f"**{plain(page.answer)}**")
    for block in page.opening:
        paragraphs += shown(block)
    for section in page.sections:
        paragraphs.append(f"## {section.title}")
        for block in section.blocks:
            paragraphs += shown(block)
    command = page.command or "(the command was not recorded)"
    paragraphs += ["## Made by", fenced(command)]
    return "\n\n".join(paragraphs) + "\n"


def fenced(text: str, language: str = "") -> str:
    """Return text between fences that are longer than any row of backticks in it."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def shown(block: Block) -> Iterator[str]:
    """Yield the paragraphs of a block."""
    match block:
        case Paragraph(words):
            yield inline(words)
        case Bullets(items):
            yield "\n".join(f"- {inline(item)}" for item in items)
        case Table(head, rows):
            yield table(head, [list(map(inline, row)) for row in rows])
        case Figure(title, file):
            yield f"![{title}]({file})"
        case Listing(text, language, title):
            if title:
                yield f"<details><summary>{title}</summary>"
            yield fenced(text, language)
            if title:
                yield "</details>"


def inline(words: Words) -> str:
    """Return words with their marks as Markdown."""
    match words:
        case Strong(text):
            return f"**{plain(text)}**"
        case Code(text):
            ticks = "`" * (1 + _longest_ticks(text))
            if "`" in text:
                return f"{ticks} {text} {ticks}"
            return f"`{text}`"
        case Hyperlink(text, to):
            return f"[{plain(text)}]({to})"
        case tuple():
            return "".join(map(inline, words))
        case _:
            return plain(words)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""

    def line(cells: Iterable[object]) -> str:
        escaped = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
        return f"| {' | '.join(escaped)} |"

    lines = [line(head), line("---" for _ in head)]
    lines += map(line, rows)
    return "\n".join(lines)
