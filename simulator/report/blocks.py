"""What a page is made of, whoever shows it: :mod:`~simulator.report.markdown` or :mod:`~simulator.report.html`.

Words are text with a few marks; text is never markup, so that nothing that came from a file can become any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True)
class Strong:
    """Words that stand out."""

    text: str


@dataclass(frozen=True)
class Code:
    """Words to be typed."""

    text: str


@dataclass(frozen=True)
class Hyperlink:
    """Words that lead to a page or a file beside this one."""

    text: str
    to: str


Words: TypeAlias = str | Strong | Code | Hyperlink | tuple["Words", ...]


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    words: Words
    name: ClassVar[str] = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """Things of equal rank."""

    items: Sequence[Words]
    name: ClassVar[str] = "bullets"


@dataclass(frozen=True)
class Table:
    """Rows under a head. ``bars``: columns of shares that a bar may stand behind; ``badges``: columns of one word each.

    ``sortable``: whether its rows have no order of their own; ``title``: what it shows, for who cannot see where it stands.
    ``terminal_rows``: the rows that a terminal shows, 0 for all of them.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Words]]
    title: str
    bars: tuple[int, ...] = ()
    badges: tuple[int, ...] = ()
    sortable: bool = False
    terminal_rows: int = 0
    name: ClassVar[str] = "table"


@dataclass(frozen=True)
class Figure:
    """A picture as SVG text, in a ``file`` of its own beside a Markdown page.

    ``picture``: the SVG text, or the function that draws it once a page needs it: a terminal shows no picture.
    ``spans``: what a page that can may draw instead, to be zoomed (:func:`~simulator.report.timeline.span_data`).
    """

    title: str
    file: str
    picture: str | Callable[[], str]
    spans: Mapping[str, Any] | None = None
    name: ClassVar[str] = "figure"

    @cached_property
    def svg(self) -> str:
        """Return the SVG text; it is drawn once."""
        return self.picture if isinstance(self.picture, str) else self.picture()


@dataclass(frozen=True)
class Listing:
    """Text to be typed or read by a machine; folded behind its ``title`` where it has one."""

    text: str
    language: str = ""
    title: str = ""
    name: ClassVar[str] = "listing"


Block: TypeAlias = Paragraph | Bullets | Table | Figure | Listing


@dataclass(frozen=True)
class Section:
    """A title and what stands below it. ``terminal``: whether a terminal shows it too."""

    title: str
    blocks: Sequence[Block]
    terminal: bool = True


@dataclass(frozen=True)
class Highlight:
    """A number of the answer, and what it is."""

    value: str
    what: str


@dataclass(frozen=True)
class Page:
    """The answer first, then how it came about, then everything that went in and the command that makes it again."""

    title: str
    about: str
    answer: str
    opening: Sequence[Block]
    sections: Sequence[Section]
    command: str
    highlights: Sequence[Highlight] = ()

    @property
    def figures(self) -> Iterator[Figure]:
        """Every picture, in order."""
        for blocks in (self.opening, *(section.blocks for section in self.sections)):
            yield from (block for block in blocks if isinstance(block, Figure))


def sections(*found: tuple[str, Iterable[Block]]) -> list[Section]:
    """Of titles and blocks; what has no block has no section."""
    held = (Section(title, list(blocks)) for title, blocks in found)
    return [one for one in held if one.blocks]
