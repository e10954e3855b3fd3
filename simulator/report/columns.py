"""Tables by columns: each states its head, and what a cell shows of an object.

Column("speed-up", lambda point: number(point.speedup, 3))
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from simulator.report.blocks import Code, Hyperlink, Strong, Table, Words

Row = TypeVar("Row")
Cell: TypeAlias = Words | float | None
"""What a cell may show: words as they are, a number as Python writes it, nothing for None."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table."""

    head: str
    cell: Callable[[Row], Cell]


def table(title: str, rows: Iterable[Row], columns: Sequence[Column[Row]], **looks: Any) -> Table:
    """Return the table of these columns with a row for every object; ``looks`` are further fields
    of :class:`~simulator.report.blocks.Table`.
    """
    cells = [tuple(_words(column.cell(row)) for column in columns) for row in rows]
    return Table([column.head for column in columns], cells, title, **looks)


def _words(cell: Cell) -> Words:
    if isinstance(cell, Code | Hyperlink | Strong | tuple):
        return cell
    if cell is None:
        return ""
    return str(cell)
