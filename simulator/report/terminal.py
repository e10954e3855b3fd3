"""A page on a terminal: titles, sentences and tables in at most 100 columns; pictures and folded
texts are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from simulator.core.faults import CONTROLS
from simulator.report.blocks import (
    ALWAYS,
    Block,
    Brief,
    Bullets,
    Figure,
    Listing,
    Page,
    Paragraph,
    Sliders,
    Table,
    Words,
)
from simulator.report.html import LONG, NUMBER, SHARE, plain as without_marks

WIDEST = 100
"""Columns of a terminal that are used, at most."""
BAR, LEAST_BAR = 30, 10
"""Letters of a bar of 100 %, and at least so many where the cells of its table need the room."""
NAME = 8
"""Letters of the first column of a table that is too wide, at least."""
WORDS = 12
"""Letters of a cell of words from which on its column begins at the left, as a text."""


def print_page(page: Page, console: Console) -> None:
    """Print the title, then in brief or else the answer and the opening, and every section that is
    meant for a terminal; ``console`` gets as narrow.
    """
    console.width = min(console.width, WIDEST)
    _say(console, page.title, "bold")
    if page.brief:
        more_of_title = len(Text(plain(page.title)).wrap(console, console.width)) - 1
        _show_brief(console, replace(page.brief, lines=page.brief.lines - more_of_title))
    else:
        _show_opening(console, page)
    for section in page.sections:
        if section.terminal:
            _say(console, f"\n{section.title}", "bold")
            for block in section.blocks:
                _show(console, block)


def _show_opening(console: Console, page: Page) -> None:
    for text, style in ((page.about, ""), (page.answer, "bold")):
        if text:
            _say(console, text, style)
    for block in page.opening:
        _show(console, block)


def _show(console: Console, block: Block) -> None:
    match block:
        case Paragraph(words):
            _say(console, plain(words))
        case Bullets(items):
            for words in items:
                _item(console, plain(words))
        case Table():
            _show_table(console, block)
        case Listing(text, title=""):
            _list(console, text)
        case Figure() | Listing() | Sliders():
            pass


def _show_brief(console: Console, brief: Brief) -> None:
    """Print the remarks that there is room for, in their order; no word, as a path, is broken."""
    indent = max((len(remark.name) for remark in brief.remarks), default=0) + 2
    width = console.width - indent
    wrapped = []
    for remark in brief.remarks:
        words = plain(remark.words)
        wrapped.append(wrap(words, width, break_long_words=False, break_on_hyphens=False))
    for place, most in sorted(_allotted(brief, list(map(len, wrapped))).items()):
        name = brief.remarks[place].name
        for line in _cut(wrapped[place], most, width):
            console.print(Text.assemble((f"{name:<{indent}}", "bold"), line), soft_wrap=True)
            name = ""


def _allotted(brief: Brief, needed: Sequence[int]) -> dict[int, int]:
    """Return how many lines each remark that is printed gets, by its place; ``needed``: those that
    it takes.

    1. What is always said gets its lines, cut to its most; where these are too many, what may be
       cut is cut to a line, the last first.
    2. Of the lines that are left it gets what it was cut by, in its order.
    3. Other remarks follow by rank, each as long as it fits whole.
    """
    lines: dict[int, int] = {}
    for place, remark in enumerate(brief.remarks):
        if remark.rank == ALWAYS:
            lines[place] = min(needed[place], remark.most_lines or needed[place])
    left = brief.lines - sum(lines.values())
    for place in reversed(lines):
        if left < 0 and brief.remarks[place].most_lines:
            fewer = min(-left, lines[place] - 1)
            lines[place] -= fewer
            left += fewer
    for place, own in lines.items():
        more = max(0, min(left, needed[place] - own))
        lines[place] += more
        left -= more
    for place, remark in sorted(enumerate(brief.remarks), key=lambda placed: placed[1].rank):
        if remark.rank != ALWAYS and needed[place] <= left:
            lines[place] = needed[place]
            left -= needed[place]
    return lines


def _cut(lines: Sequence[str], most: int, width: int) -> list[str]:
    """Return lines of ``width`` letters, cut behind the most that there may be."""
    kept = list(lines[:most])
    if len(lines) > most:
        last = kept[-1][: max(0, width - 2)]
        kept[-1] = f"{last.rpartition(' ')[0] or last} …"
    return kept


def _show_table(console: Console, block: Table) -> None:
    """Print the rows under the head, or the first of them with a line that counts the remaining
    ones.
    """
    places = block.terminal_columns or tuple(range(len(block.head)))
    shown = block.rows[: block.terminal_rows or None]
    rows = [_cells(row, places) for row in shown]
    names = [block.head[place] for place in places]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    head = [_folded(name, cells) for name, cells in zip(names, columns, strict=True)]
    table = new_table(*head, *("" for _ in block.bars))
    full = _full_bar(console, head, rows, len(block.bars))
    for row, cells in zip(shown, rows, strict=True):
        bars = (_bar(text, full) for text in _cells(row, block.bars))
        table.add_row(*cells, *bars)
    _fit(console, table, rows)
    if _least_width(console, table) <= console.width:
        console.print(table)
    else:
        for cells in rows:
            _item(console, _in_a_line(names, cells))
    hidden = len(block.rows) - len(rows)
    if hidden:
        _item(console, f"{hidden} more rows: the page, as a file, has all of them")


def _cells(row: Sequence[Words], places: Sequence[int]) -> list[str]:
    """Return some cells of a row without their marks."""
    return [plain(row[place]) for place in places]


def _in_a_line(names: Sequence[str], cells: Sequence[str]) -> str:
    """Return a row in words, without its empty cells."""
    named = zip(names, cells, strict=True)
    return "; ".join(f"{name}: {cell}" for name, cell in named if cell)


def _fit(console: Console, table: RichTable, rows: Sequence[Sequence[str]]) -> None:
    """Make a table of ``rows`` fit the terminal: long texts wrap, then blanks give way, then names,
    then cells of words.
    """
    width = console.width
    words = [column.min_width for column in table.columns]
    columns = list(zip(*rows, strict=True))
    for column, cells in zip(table.columns, columns, strict=False):
        column.overflow = "fold"
        longest = max(map(len, cells))
        most = LONG if column is table.columns[0] else WORDS
        if longest > most and not all(NUMBER.fullmatch(cell) for cell in cells if cell):
            column.justify = "left"
        else:
            column.min_width = longest
    for bar in table.columns[len(columns) :]:
        bar.justify = "left"
    if _least_width(console, table) > width:
        table.padding = 0
    for least_widths in ([], words[1:]):
        for column, least in zip(table.columns[1:], least_widths, strict=False):
            column.min_width = least
        if (excess := _least_width(console, table) - width) > 0:
            name = table.columns[0]
            longest_word = max(
                map(len, " ".join([str(name.header), *(row[0] for row in rows)]).split()), default=0
            )
            name.min_width = None
            name.max_width = max(NAME, longest_word - excess)


def _full_bar(
    console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], bars: int
) -> int:
    """Return the letters of a bar of 100 % beside cells of which none is wrapped, if it can be."""
    if not bars:
        return BAR
    table = new_table(*head, *("" for _ in range(bars)))
    for cells in rows:
        table.add_row(*cells)
    options = console.options.update(max_width=10_000)
    room = console.width - Measurement.get(console, options, table).maximum
    return max(LEAST_BAR, min(BAR, room // bars))


def _bar(text: str, full: int) -> str:
    """Return a bar as long as the share in per cent that a cell begins with, ``full`` at 100 %."""
    share = SHARE.match(text)
    if share:
        return "#" * round(full * float(share[1]) / 100)
    return ""


def _least_width(console: Console, table: RichTable) -> int:
    """Return the columns of the terminal that a table takes with every line wrapped that may be."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).minimum


def _folded(name: str, cells: Sequence[str]) -> str:
    """Return the head of a column on as many lines as keep it no wider than its cells or its
    longest word; own lines stay.
    """
    if "\n" in name:
        return name
    words = re.findall(r"[^\s/]+/?", name)
    lines = [""]
    room = max(map(len, [*words, *cells]), default=0)
    for word in words:
        if not lines[-1] or lines[-1].endswith("/"):
            gap = ""
        else:
            gap = " "
        if len(lines[-1] + gap + word) <= room:
            lines[-1] += gap + word
        else:
            lines.append(word)
    return "\n".join(lines)


def plain(words: Words) -> str:
    """Return words without their marks, and without letters that a terminal obeys."""
    return without_marks(words).translate(CONTROLS)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(plain(text), style=style))


def _list(console: Console, text: str) -> None:
    """Print lines that are copied, a command or a file, as they are: none is broken at the end of
    the terminal.
    """
    console.print(Text(plain(text)), soft_wrap=True)


def _item(console: Console, text: str) -> None:
    """Print a paragraph behind a dash, its lines indented."""
    grid = RichTable.grid(padding=(0, 1))
    grid.add_row("-", Text(text))
    console.print(grid)


class _UncutTable(RichTable):
    """A table in which no number and no word of a row is cut, however narrow the terminal."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns, cells, strict=False):
            if isinstance(cell, str):
                longest = max(map(len, cell.split()), default=0)
            else:
                longest = 0
            column.min_width = max(column.min_width or 0, longest)


def new_table(first: str, *others: str) -> RichTable:
    """Return an empty table in the look that all tables share: names to the left, numbers to the
    right.
    """
    table = _UncutTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
