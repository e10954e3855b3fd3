"""The blocks that a page is made of; :mod:`~simulator.report.markdown` and
:mod:`~simulator.report.html` render them.

Words are text with a few marks. Text is never read as markup, so that nothing that came from a file
can become markup.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import Any, ClassVar, TypeAlias

from simulator.core.plain import PlainMapping
from simulator.report import WANTED


@dataclass(frozen=True)
class Strong:
    """Words that stand out."""

    text: str


@dataclass(frozen=True)
class Code:
    """Words that are typed: a command, a field, a value."""

    text: str


@dataclass(frozen=True)
class Hyperlink:
    """Words that lead to a page or to a file next to this page."""

    text: str
    to: str


PICTURES = (".svg", ".pdf", ".png")
"""Endings of the files that a picture may be written to."""

Words: TypeAlias = str | Strong | Code | Hyperlink | tuple["Words", ...]


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    words: Words
    name: ClassVar[str] = "paragraph"


@dataclass(frozen=True)
class Bullets:
    """A list of sentences without an order."""

    items: Sequence[Words]
    name: ClassVar[str] = "bullets"


@dataclass(frozen=True)
class Table:
    """Rows under a head. ``bars``: columns of shares that a bar may be drawn behind; ``badges``:
    columns of single words.

    ``sortable``: whether a reader may order the rows; ``title``: what it shows, for readers who
    cannot see its place. ``terminal_rows`` and ``terminal_columns``: the first rows and the columns
    that a terminal shows, 0 or none for all of them.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Words]]
    title: str
    bars: tuple[int, ...] = ()
    badges: tuple[int, ...] = ()
    sortable: bool = False
    terminal_rows: int = 0
    terminal_columns: tuple[int, ...] = ()
    name: ClassVar[str] = "table"


@dataclass(frozen=True)
class Figure:
    """A picture, which a Markdown page refers to as ``file``.

    ``picture``: SVG text, or the function that draws it once a page needs it: a terminal shows no
    picture. ``spans``: data of a timeline that an HTML page draws instead and can zoom
    (:func:`~simulator.report.timeline.span_data`).
    """

    title: str
    file: str
    picture: str | Callable[[], Any]
    spans: PlainMapping | None = None
    name: ClassVar[str] = "figure"

    @cached_property
    def drawing(self) -> Any:
        """Return the matplotlib figure, the chart, or SVG text that is a picture already; it is
        made once.
        """
        if isinstance(self.picture, str):
            return self.picture
        return self.picture()

    @cached_property
    def svg(self) -> str:
        """Return the picture as SVG text."""
        from simulator.report.forms import as_svg

        return as_svg(self.drawing)

    @cached_property
    def narrow_svg(self) -> str | None:
        """Return the picture for the screen of a phone; None where it is text already, where the
        page draws a timeline that can be zoomed, where panels stand beside each other, and where
        one column is asked for anyway.
        """
        from simulator.report.forms import as_narrow_svg

        if isinstance(self.picture, str) or self.spans or WANTED.paper_columns:
            return None
        return as_narrow_svg(self.picture)

    @cached_property
    def data(self) -> str | None:
        """Return what the picture shows as CSV text; None where it is SVG text already."""
        from simulator.report.forms import as_data

        return as_data(self.drawing)

    @property
    def name_of_file(self) -> str:
        """Return the name that the picture is saved under, without its ending."""
        return PurePath(self.file).stem


@dataclass(frozen=True)
class Listing:
    """Text to be typed or to be read by a program; folded behind its ``title`` where it has a
    title.
    """

    text: str
    language: str = ""
    title: str = ""
    name: ClassVar[str] = "listing"


ALWAYS, FIRST, THEN, LAST = range(4)
"""How soon a remark is left out where there is no room: never, or after those behind it."""


@dataclass(frozen=True)
class Remark:
    """A sentence or two under a name of one word or two, as the answer on a terminal has them."""

    name: str
    words: str
    rank: int
    """``ALWAYS``, ``FIRST``, ``THEN`` or ``LAST``."""
    most_lines: int = 0
    """Lines behind which its words are cut, or fewer where there is no room; 0: as many as they
    take."""


@dataclass(frozen=True)
class Brief:
    """An answer in a few lines, for a terminal alone: names to the left, words beside them.

    Those of rank ``ALWAYS`` are printed, others by rank and then in their order as far as ``lines``
    lines have room.
    """

    remarks: Sequence[Remark]
    lines: int


@dataclass(frozen=True)
class Standing:
    """What an answer is worth, for a terminal, which shows a page that has one in brief
    (:mod:`simulator.report.pages.brief`). Empty words are left out.
    """

    interval: str = ""
    """Between what the number of the answer lies, in a sentence."""
    verdict: str = ""
    """Whether speculation, or a change, helps, may hurt or hurts, in a sentence; empty where the
    answer says so."""
    doubts: Sequence[str] = ()
    """The numbers that the answer rests on most, the largest uncertainty first."""
    more: Sequence[Remark] = ()
    """What else there may be room for."""
    answer: str = ""
    """The answer in fewer words than the page has; empty: those of the page."""


@dataclass(frozen=True)
class Sliders:
    """Sliders over ``data``, a law in pieces (:mod:`simulator.studies.what_if`); only an HTML page
    has them.
    """

    title: str
    data: PlainMapping
    name: ClassVar[str] = "sliders"


Block: TypeAlias = Paragraph | Bullets | Table | Figure | Listing | Sliders


@dataclass(frozen=True)
class Section:
    """A title and the blocks below it. ``terminal``: whether a terminal shows it too; ``brief``:
    also below an answer in brief, as it was asked for.
    """

    title: str
    blocks: Sequence[Block]
    terminal: bool = True
    brief: bool = False


@dataclass(frozen=True)
class Highlight:
    """A number of the answer, and its meaning in words; ``verdict``: whether it helps, may hurt or
    hurts.
    """

    value: str
    what: str
    verdict: str = ""


@dataclass(frozen=True)
class Page:
    """A report: the answer first, then how it comes about, then all inputs and the command that
    makes the page again.
    """

    title: str
    about: str = ""
    answer: str = ""
    opening: Sequence[Block] = ()
    sections: Sequence[Section] = ()
    command: str = ""
    highlights: Sequence[Highlight] = ()
    brief: Brief | None = None
    """What a terminal shows instead of the answer and the opening."""
    standing: Standing | None = None
    """What its answer is worth; None for a page that a terminal shows whole."""
    decides: bool = False
    """Whether the answer says that speculation helps, may hurt or hurts."""
    in_short: Sequence[Remark] = ()
    """What else is said where it is shown in brief, before the rest of its standing."""

    @property
    def blocks(self) -> Iterator[Block]:
        """Yield every block of the page, in order."""
        return chain(self.opening, *(section.blocks for section in self.sections))

    @property
    def figures(self) -> Iterator[Figure]:
        """Yield every picture of the page, in order."""
        return (block for block in self.blocks if isinstance(block, Figure))


def sections(*titled: tuple[str, Iterable[Block]], terminal: bool = True) -> list[Section]:
    """Return sections made of titles and blocks, without those that have no block, shown on a
    terminal or not.
    """
    filled = [Section(title, list(blocks), terminal) for title, blocks in titled]
    return [section for section in filled if section.blocks]
