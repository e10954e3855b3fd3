"""Recorded requests, one by one, so that traffic of any length takes the memory of a single
request.
"""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.faults import BadInput
from simulator.core.quantities import Frozen

LATEST_S = 1e10
"""Three hundred years: the latest arrival on a clock that still tells microseconds apart."""
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
        """Return all requests of the file, in its own time."""
        if self.format not in READERS:
            raise self.fault(0, f"nothing here reads traffic of format {self.format}")
        return READERS[self.format](self)


READERS: dict[str, Callable[[TrafficFile], Iterator[Line]]] = {}
"""What reads a file of each format; who reads files enters its own."""
