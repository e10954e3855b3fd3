"""The tables beside ``observed.yaml``, read back: requests, passes, and drafts step by step."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simulator.core.faults import BadInput, told
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.rows import Values, lines_of_json, number_in, rows_of_table
from simulator.inputs.services.measured import RequestSteps, ServedPass, ServedRequest
from simulator.inputs.services.observation_files import COLUMNS
from simulator.inputs.services.observed import Observed

IN_TIME = ("arrival_s", "ttft_ms", "tpot_ms", "e2e_ms")
"""Columns that hold times; all others but the name of a session hold whole numbers."""
MOST = 1e15
"""Largest number that a table may hold."""
MOST_OF_A_STEP = 1_000
"""Draft tokens of a step, at most."""


class _Table(NamedTuple):
    """A table beside an observation, and what is wrong in which of its lines."""

    file: str

    def fault(self, number: int, message: str, column: int = 1, field: str = "") -> BadInput:
        """Return an error about a line of the table."""
        return BadInput.at((self.file, number, column), message, field)

    def cell(self, number: int, values: Values, name: str, least: float = 0.0) -> float | None:
        """Return the number in a cell; None where it is empty, or there is no such column."""
        if values.get(name) in (None, ""):
            return None
        what = f"a number from {least:g} to {MOST:g}"
        return number_in(
            self, number, values, name, what, float, lambda value: least <= value <= MOST
        )

    def whole(self, number: int, values: Values, name: str) -> int | None:
        """Return the whole number in a cell; None where it is empty, or there is no such column."""
        if values.get(name) in (None, ""):
            return None
        what = f"a whole number from 0 to {MOST:,.0f}"
        return number_in(self, number, values, name, what, int, lambda value: 0 <= value <= MOST)


def _rows(name: str | None, folder: Path) -> Iterator[tuple[_Table, int, Values]]:
    """Yield the lines of a table in ``folder``, with their table and number; nothing where there is
    none. Raises :class:`BadInput` where it cannot be read.
    """
    if name is None:
        return
    path = folder / name
    table = _Table(str(path))
    number = 1
    try:
        with readable(path), reading.lines(path) as lines:
            for number, values in rows_of_table(lines):
                yield table, number, values
    except csv.Error as error:
        raise table.fault(number + 1, f"cannot be read as csv: {error}") from error


def read_requests(observed: Observed, folder: Path) -> list[ServedRequest]:
    """Return the requests of an observation that lies in ``folder``, in the order of their rows;
    none where it has no table of them.

    Raises :class:`BadInput` with file, line and column.
    """
    requests = []
    for table, number, values in _rows(observed.requests_file, folder):
        held: dict[str, Any] = {}
        for field, column in COLUMNS.items():
            if field == "session":
                held[field] = str(values.get(column) or "")
            elif field in IN_TIME:
                held[field] = table.cell(number, values, column)
            else:
                held[field] = table.whole(number, values, column)
        requests.append(ServedRequest(**held))
    return requests


def read_passes(observed: Observed, folder: Path) -> list[ServedPass]:
    """Return the passes of an observation that lies in ``folder``; none where it has no table of
    them. Raises :class:`BadInput` with file, line and column.
    """
    passes = []
    for table, number, values in _rows(observed.passes_file, folder):
        counts: dict[str, Any] = {}
        for field in ServedPass._fields:
            if field == "wall_ms":
                counts[field] = table.cell(number, values, field)
            else:
                counts[field] = table.whole(number, values, field)
            if counts[field] is None and field != "waiting_requests":
                raise table.fault(number, "is missing; expected a number", 1, field)
        passes.append(ServedPass(**counts))
    return passes


def read_steps(observed: Observed, folder: Path) -> list[RequestSteps]:
    """Return the drafts by step of the requests of an observation that lies in ``folder``; none
    where it has no file of them. ``request`` is a row of the table of requests, from 1.

    Raises :class:`BadInput` with file and line.
    """
    if observed.steps_file is None:
        return []
    path = folder / observed.steps_file
    table = _Table(str(path))
    number = 0
    steps = []
    try:
        with readable(path), reading.lines(path) as lines:
            for number, values in lines_of_json(lines):
                accepted = _counts(table, number, values, "accepted")
                drafted = _counts(table, number, values, "drafted")
                if len(accepted) != len(drafted):
                    message = f"expected {len(drafted):,} steps as drafted has"
                    message = f"{message}, got {len(accepted):,}"
                    raise table.fault(number, message, field="accepted")
                request = table.whole(number, values, "request")
                steps.append(RequestSteps(accepted, drafted, request))
    except json.JSONDecodeError as error:
        raise table.fault(number + 1, f"is not JSON: {error.msg}", error.colno) from error
    return steps


def _counts(table: _Table, number: int, values: Values, name: str) -> tuple[int, ...]:
    """Return a list of tokens by step; raises :class:`BadInput` for anything else."""
    counts = values.get(name)
    if not isinstance(counts, list) or not counts:
        raise table.fault(number, "expected a list of tokens by step", field=name)
    for count in counts:
        if type(count) is not int or not 0 <= count <= MOST_OF_A_STEP:
            message = f"expected whole numbers from 0 to {MOST_OF_A_STEP:,}, got {told(count)}"
            raise table.fault(number, message, field=name)
    return tuple(counts)
