"""A page on a terminal: titles, sentences and tables in at most 100 columns; pictures and folded texts are left out."""

from __future__ import annotations

from textwrap import fill

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from simulator.report.blocks import Block, Bullets, Figure, Listing, Page, Paragraph, Table
from simulator.report.console import BAR, WIDEST, item, new_table
from simulator.report.html import LONG, SHARE, plain


def print_page(page: Page, console: Console) -> None:
    """Print the title, the answer, the opening and every section that is meant for a terminal."""
    _say(console, page.title, "bold")
    for text, style in ((page.about, ""), (page.answer, "bold")):
        if text:
            _say(console, text, style)
    for block in page.opening:
        _show(console, block)
    for section in page.sections:
        if section.terminal:
            _say(console, f"\n{section.title}", "bold")
            for block in section.blocks:
                _show(console, block)


def _show(console: Console, block: Block) -> None:
    width = min(console.width, WIDEST)
    match block:
        case Paragraph(words):
            _say(console, plain(words))
        case Bullets(items):
            for words in items:
                item(console, plain(words), width)
        case Table():
            _show_table(console, block)
        case Listing(text, title=""):
            _say(console, text)
        case Figure() | Listing():
            pass


def _show_table(console: Console, block: Table) -> None:
    """Print the rows under the head, or the first of them with a line that counts the remaining ones."""
    width = min(console.width, WIDEST)
    places = block.terminal_columns or range(len(block.head))
    rows = [[plain(row[place]) for place in places] for row in block.rows[: block.terminal_rows or None]]
    head = [_folded(block.head[place], [row[column] for row in rows]) for column, place in enumerate(places)]
    table = new_table(*head, *("" for _ in block.bars))
    for row, cells in zip(block.rows, rows, strict=False):
        table.add_row(*cells, *(_bar(plain(row[place])) for place in block.bars))
    _fit(console, table, [max((len(row[column]) for row in rows), default=0) for column in range(len(head))])
    console.print(table, width=width)
    hidden = len(block.rows) - len(rows)
    if hidden:
        item(console, f"{hidden} more rows: the page, as a file, has all of them", width)


def _fit(console: Console, table: RichTable, lengths: list[int]) -> None:
    """Make a table fit the terminal: long texts wrap, then blanks give way, then the names, then all cells of several words.

    ``lengths``: letters of the longest cell of each column, without those of bars.
    """
    width, words = min(console.width, WIDEST), [column.min_width for column in table.columns]
    for column, length in zip(table.columns, lengths, strict=False):
        column.overflow = "fold"
        if length > LONG:
            column.justify = "left"
        else:
            column.min_width = length
    for bar in table.columns[len(lengths) :]:
        bar.justify = "left"
    if _least_width(console, table) > width:
        table.padding = 0
    if _least_width(console, table) > width:
        table.columns[0].min_width = None
    if _least_width(console, table) > width:
        for column, longest_word in zip(table.columns[1:], words[1:], strict=True):
            column.min_width = longest_word


def _bar(text: str) -> str:
    """Return a bar as long as the share in per cent that a cell begins with."""
    share = SHARE.match(text)
    return "#" * round(BAR * float(share[1]) / 100) if share else ""


def _least_width(console: Console, table: RichTable) -> int:
    """Return the columns of the terminal that a table takes with every line wrapped that may be."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).minimum


def _folded(name: str, cells: list[str]) -> str:
    """Return the head of a column on as many lines as keep it no wider than its cells or its longest word."""
    words = name.split()
    return fill(name, max(1, *map(len, words), *map(len, cells)), break_long_words=False) if words else name


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), width=min(console.width, WIDEST))
