"""Traffic files: recorded requests, read line by line, so that a file of any length takes the
memory of a single request.

``format`` names one of five: four that ``files/traffic_columns.yaml`` describes, and ``log``,
whatever :mod:`simulator.files.logs` recognises.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from math import inf
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from simulator.files import reading
from simulator.files.document import readable, told
from simulator.files.logs import TRAFFIC, listed_hashes, named_columns, read_log
from simulator.files.schema import BadInput, Frozen

Values = Mapping[str, Any]
Time = TypeVar("Time", int, float)
LATEST_S = 1e10
"""Three hundred years: the latest arrival on a clock that still tells microseconds apart."""
MOST_BYTES = 10**11
"""Bytes of a file, at most: a thousand million requests."""
MOST_TOKENS = 10**9
"""Tokens of a prompt or an output, at most: a hundred times any context there is."""


class Line(NamedTuple):
    """A recorded request; its arrival counts from the start of the slice, at the scaled rate."""

    number: int
    """Line number in the file, from 1."""
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    task: str
    hashes: tuple[Any, ...] = ()
    """What the file names the prefixes of the prompt by, one for every 512 tokens and one for the
    rest; not checked here.
    """

    @property
    def tokens(self) -> int:
        """Return the tokens of prompt and output together."""
        return self.prompt_tokens + self.output_tokens


class TrafficFile(Frozen):
    """Requests as recorded; a slice of them, at another rate.

    ``from_s`` and ``to_s`` cut in the file's own time; what is left starts at 0. ``rate_scale`` = 2
    lets twice as many arrive in a second. ``task`` is that of lines which name none. Requests of
    more than ``drop_above_tokens``, prompt and output together, are left out: a model of a shorter
    context would never have got them. Raises :class:`BadInput` with file, line and column.
    """

    name: Literal["file"] = "file"
    format: Literal["azure", "mooncake", "burstgpt", "csv", "log"]
    """Who recorded it, which says what its columns are called."""
    file: str
    """Path, beside the file that names it."""
    from_s: float = Field(default=0.0, ge=0)
    """Begin of the slice, in the file's own time."""
    to_s: float | None = Field(default=None, gt=0)
    """End of the slice; by default that of the file."""
    rate_scale: float = Field(default=1.0, gt=0)
    """How many times as many requests come in a second."""
    task: str = ""
    """That of lines which name none."""
    drop_above_tokens: int | None = Field(default=None, gt=0, le=1_000_000_000_000)
    """Longer requests, prompt and output together, are left out."""
    columns: dict[Literal["arrival", "prompt", "output", "task", "hashes"], str] = Field(default={})
    """Columns of a log, by what they hold; those that are left out are recognised by their
    names.
    """
    rate_per_s: float | None = Field(default=None, gt=0)
    """Requests per second of a log: of one with times these are stretched; without, gaps are drawn
    as of a Poisson process.
    """

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"to_s {self.to_s:g} must be more than from_s {self.from_s:g}")
        if self.format != "log" and (self.columns or self.rate_per_s):
            raise ValueError(
                "columns and rate_per_s are for format: log; the other formats have names and "
                "times of their own"
            )
        return self

    def lines(self) -> Iterator[Line]:
        """Return the requests of the slice in order of arrival, without those that are too long."""
        return (line for line in self._slice() if line.tokens <= (self.drop_above_tokens or inf))

    @property
    def dropped(self) -> int:
        """Return how many requests of the slice are too long."""
        if self.drop_above_tokens:
            return sum(line.tokens > self.drop_above_tokens for line in self._slice())
        return 0

    def empty(self) -> BadInput:
        """Return the error of a slice without a request, or whose requests are all too long."""
        limit = self.drop_above_tokens
        if limit and self.dropped:
            return self.all_too_long(limit, "drop_above_tokens")
        return self.fault(0, f"holds no request from {self.from_s:g} s to {self.to_s or 'its end'}")

    def all_too_long(self, limit: int, whose: str) -> BadInput:
        """Return the error of a slice of which every request has more tokens than a limit, with the
        shortest.
        """
        lengths = [line.tokens for line in self._slice()]
        if len(lengths) == 1:
            what = "its request is"
        else:
            what = f"all {len(lengths):,} requests are"
        message = f"{what} longer than {whose} of {limit:,} tokens"
        return self.fault(
            0, f"{message}: the shortest has {min(lengths):,}, prompt and output together"
        )

    def _slice(self) -> Iterator[Line]:
        """Yield the requests between ``from_s`` and ``to_s``."""
        before = -inf
        for line in self._recorded():
            if line.arrival_s < before:
                raise self.fault(
                    line.number,
                    f"arrives {before - line.arrival_s:.6g} s before the request above it",
                )
            before = line.arrival_s
            if self.to_s is not None and line.arrival_s >= self.to_s:
                return
            if line.arrival_s >= self.from_s:
                arrival = (line.arrival_s - self.from_s) / self.rate_scale
                if arrival > LATEST_S:
                    raise self.fault(
                        line.number,
                        f"arrives {arrival:.3g} s from the beginning; expected {LATEST_S:g} at "
                        "most",
                    )
                yield line._replace(arrival_s=arrival, task=line.task or self.task)

    def fault(self, number: int, message: str, column: int = 1, field: str = "") -> BadInput:
        """Return an error about a line of the file."""
        return BadInput.at((self.file, number, column), message, field)

    def _recorded(self) -> Iterator[Line]:
        """Yield all requests of the file, in its own time."""
        if self.format == "log":
            yield from self._logged()
            return
        columns = TRAFFIC[self.format]
        first = None
        number = 1
        read = _rows_of_table if columns["table"] else _lines_of_json
        try:
            with readable(self.file), reading.lines(self.file, MOST_BYTES) as lines:
                for number, values in read(lines):
                    output = self._tokens(
                        number, values, columns["output"], 0 if columns["failures"] else 1
                    )
                    prompt = self._tokens(number, values, columns["prompt"], 1)
                    arrival = self._seconds(number, values, columns)
                    first = arrival if first is None else first
                    if output:
                        task = str(values.get(columns["task"]) or "")
                        hashes = listed_hashes(values.get("hash_ids"))
                        at = arrival - first if columns["time"] == "date" else arrival
                        yield Line(number, at, prompt, output, task, hashes)
        except (csv.Error, json.JSONDecodeError) as error:
            raise self.fault(number + 1, f"cannot be read as {self.format}: {error}") from error

    def _logged(self) -> Iterator[Line]:
        """Yield the requests of a log."""
        log = read_log(self.file, self.columns)
        if self.rate_per_s is None and not log.timed:
            remedy = (
                "state rate_per_s (--rate) of specsim plan, or "
                "requests.arrivals.rate_per_s=RATE elsewhere, "
            )
            remedy += f"or the column that has them, as in {named_columns(['arrival'])}"
            raise self.fault(0, f"has no times of arrival; {remedy}", field="rate_per_s")
        hashes = log.hashes or repeat(())
        lines = [
            Line(*request, named) for request, named in zip(log.requests, hashes, strict=False)
        ]
        if self.rate_per_s is None or len(lines) == 1:
            yield from lines
            return
        if log.timed:
            lasted_s = lines[-1].arrival_s
            if not lasted_s:
                message = (
                    f"has {len(lines):,} requests at one time, which no rate spreads; leave "
                    "rate_per_s (--rate) out"
                )
                raise self.fault(0, message, field="rate_per_s")
            slower = (len(lines) - 1) / lasted_s / self.rate_per_s
            yield from (line._replace(arrival_s=line.arrival_s * slower) for line in lines)
            return
        at = np.random.default_rng(0).exponential(1.0 / self.rate_per_s, len(lines)).cumsum()
        yield from (
            line._replace(arrival_s=float(at[place] - at[0])) for place, line in enumerate(lines)
        )

    def _tokens(self, number: int, values: Values, name: str, least: int) -> int:
        what = f"a whole number of tokens from {least} to {MOST_TOKENS:,}"
        return self._number(
            number, values, name, what, int, lambda tokens: least <= tokens <= MOST_TOKENS
        )

    def _seconds(self, number: int, values: Values, columns: Mapping[str, Any]) -> float:
        clock = CLOCKS[columns["time"]]
        name = columns["arrival"]
        return self._number(
            number,
            values,
            name,
            "a time of 0 or later",
            clock,
            lambda seconds: 0.0 <= seconds < inf,
        )

    def _number(
        self,
        number: int,
        values: Values,
        name: str,
        what: str,
        read: Callable[[Any], Time],
        fits: Callable[[Time], bool],
    ) -> Time:
        """Return what a cell holds, if that is ``what`` is expected and ``fits``; no bool does, and
        no float as tokens.
        """
        value = values.get(name)
        if value is None:
            present = ", ".join(str(key) for key in values if key)
            raise self.fault(number, f"is missing; the line has {present or 'nothing'}", 1, name)
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool | float if read is int else bool) and fits(
                found := read(value)
            ):
                return found
        raise self.fault(number, f"expected {what}, got {told(value)}", _column(values, name), name)


def _rows_of_table(lines: Iterator[str]) -> Iterator[tuple[int, Values]]:
    """Yield the lines of a CSV file after its header: their numbers, and their cells by column."""
    table = csv.reader(lines, strict=True)
    names = [name.strip() for name in next(table, [])]
    for cells in table:
        if cells:
            yield table.line_num, dict(zip(names, cells, strict=False))


def _lines_of_json(lines: Iterator[str]) -> Iterator[tuple[int, Values]]:
    """Yield the lines of a JSONL file: their numbers, and the object of each."""
    for number, text in enumerate(lines, start=1):
        if text.strip():
            record = reading.from_json(text)
            yield number, record if isinstance(record, dict) else {}


def _column(values: Values, name: str) -> int:
    """Return the column at which a cell begins, from 1; that of the line's start where it is not
    known.
    """
    cells = list(values.items())
    before = [value for key, value in cells[: [key for key, _ in cells].index(name)]]
    if all(isinstance(cell, str) for cell in before):
        return 1 + sum(len(cell) + 1 for cell in before)
    return 1


def _date(text: str) -> float:
    """Return a date and time as seconds; without a zone as if it were UTC, so that summer time
    moves nothing.
    """
    return datetime.fromisoformat(
        text if text.endswith("Z") or "+" in text else f"{text}+00:00"
    ).timestamp()


CLOCKS: Mapping[str, Callable[[Any], float]] = {
    "date": _date,
    "ms": lambda ms: ms / 1e3,
    "s": float,
}
"""Functions from a time in a file to seconds, by the ``time`` of its format."""
