"""A page as Markdown, with its pictures as files next to it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

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
    return MARKUP.sub(
        lambda markup: "".join(
            letter if letter.isspace() else f"\\{letter}" for letter in markup[0]
        ),
        text,
    )


def as_markdown(page: Page) -> str:
    """Return a page as Markdown text."""
    about = plain(page.about)
    answer = page.answer
    blocks = [
        f"# {page.title}",
        *([about] if about else []),
        *([f"**{plain(answer)}**"] if answer else []),
    ]
    blocks += chain.from_iterable(map(shown, page.opening))
    for section in page.sections:
        blocks += [f"## {section.title}", *chain.from_iterable(map(shown, section.blocks))]
    return (
        "\n\n".join(
            [*blocks, "## Made by", fenced(page.command or "(the command was not recorded)")]
        )
        + "\n"
    )


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
            yield table(head, ([inline(cell) for cell in row] for row in rows))
        case Figure(title, file):
            yield f"![{title}]({file})"
        case Listing(text, language, title):
            listed = fenced(text, language)
            yield from (
                [f"<details><summary>{title}</summary>", listed, "</details>"]
                if title
                else [listed]
            )


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
        return (
            "| "
            + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
            + " |"
        )

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])
