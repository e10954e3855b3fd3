"""Rows of tables and records of files that are read line by line, and numbers in them."""

import csv
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from simulator.core.faults import BadInput, told
from simulator.core.plain import PlainMapping
from simulator.inputs import reading

Values = PlainMapping
Number = TypeVar("Number", int, float)


class ReadFile(Protocol):
    """A file that tells what is wrong in which of its lines."""

    def fault(self, number: int, message: str, column: int = 1, field: str = "") -> BadInput:
        """Return an error about a line of the file."""


def number_in(
    file: ReadFile,
    number: int,
    values: Values,
    name: str,
    what: str,
    read: Callable[[Any], Number],
    fits: Callable[[Number], bool],
) -> Number:
    """Return what a cell holds, if that is ``what`` is expected and ``fits``; no bool does, and
    no float as tokens.
    """
    value = values.get(name)
    if value is None:
        present = ", ".join(str(key) for key in values if key)
        raise file.fault(number, f"is missing; the line has {present or 'nothing'}", 1, name)
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool | float if read is int else bool) and fits(
            found := read(value)
        ):
            return found
    raise file.fault(number, f"expected {what}, got {told(value)}", column_of(values, name), name)


def rows_of_table(lines: Iterator[str]) -> Iterator[tuple[int, Values]]:
    """Yield the lines of a CSV file after its header: their numbers, and their cells by column."""
    table = csv.reader(lines, strict=True)
    names = [name.strip() for name in next(table, [])]
    for cells in table:
        if cells:
            yield table.line_num, dict(zip(names, cells, strict=False))


def lines_of_json(lines: Iterator[str]) -> Iterator[tuple[int, Values]]:
    """Yield the lines of a JSONL file: their numbers, and the object of each."""
    for number, text in enumerate(lines, start=1):
        if text.strip():
            record = reading.from_json(text)
            yield number, record if isinstance(record, dict) else {}


def column_of(values: Values, name: str) -> int:
    """Return the column at which a cell begins, from 1; that of the line's start where it is not
    known.
    """
    cells = list(values.items())
    before = [value for key, value in cells[: [key for key, _ in cells].index(name)]]
    if all(isinstance(cell, str) for cell in before):
        return 1 + sum(len(cell) + 1 for cell in before)
    return 1
