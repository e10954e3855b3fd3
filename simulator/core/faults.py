"""A fault names file, line, column and field, in the words of the person who wrote the input."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from simulator.core.nearness import nearest_name

LARGEST = 10**18
"""Largest number that is accepted, in any unit; beyond it a number is a slip."""
MOST_NAMES = 20
"""Most names that a fault lists; it counts the rest."""
MOST_FAULTS = 20
"""Most faults that an error carries and a command prints; it counts the rest."""
LONGEST_FAULT = 2_000
"""Most characters of a line about a fault."""
IN_YAML = {"None": "null", "True": "true", "False": "false"}
"""Values of Python as they are written in a file."""
CONTROLS = dict.fromkeys(
    (*range(10), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
    "\ufffd",
)
"""What stands on a terminal for letters that it obeys or that turn a line around; no sentence needs
them.
"""
Place = tuple[str, int, int]  # file (or "--set"), line, column; lines and columns count from 1
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """A fault is one thing wrong with the input, in the words of the person who wrote it."""

    place: Place
    """File, line and column."""
    field: str
    """Dotted path of the field; empty where the fault is not in a field."""
    message: str
    """What was expected instead."""

    def __str__(self) -> str:
        file, line, column = self.place
        where = f"{file}:{line}:{column}" if line else file
        if self.field:
            text = f"{where}: {self.field}: {self.message}"
        else:
            text = f"{where}: {self.message}"
        if len(text) > LONGEST_FAULT:
            text = f"{text[: LONGEST_FAULT // 2]} … {text[-LONGEST_FAULT // 2 :]}"
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class UnknownField(Fault):
    """A fault about a field that does not exist."""


class BadInput(Exception):
    """Raised where the input cannot be understood (exit code 2); it carries one fault or more, and
    counts those beyond 20.
    """

    exit_code = 2

    def __init__(self, faults: Iterable[Fault], more: int = 0) -> None:
        left = iter(faults)
        self.faults = tuple(islice(left, MOST_FAULTS))
        self.more = more + sum(1 for _ in left)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """Return a line for each fault, and one that counts those that are not listed."""
        return [*map(str, self.faults), *([f"... and {self.more:,} more"] if self.more else [])]

    def changed(self, change: Callable[[Fault], Fault]) -> Self:
        """Return the same error with other faults in the place of its own."""
        return type(self)(map(change, self.faults), self.more)

    @classmethod
    def at(cls, where: Place | str | Path, message: str, field: str = "") -> Self:
        """Return the error of a single fault; ``where`` is its place, or only the file or the
        option that it is in.
        """
        return cls(
            [Fault(where if isinstance(where, tuple) else (str(where), 0, 0), field, message)]
        )

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Fault, ...], int]]:
        """Return how to rebuild it, so that its faults survive the way between processes."""
        return type(self), (self.faults, self.more)


class Infeasible(BadInput):
    """Raised where the input is understood but nothing can run, as when a model does not fit (exit
    code 3).
    """

    exit_code = 3


def told(value: Any) -> str:
    """Return a value as a message tells it: texts in quotes, numbers as they are written, whatever
    library holds them.
    """
    value = plain(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(told, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{told(key)}: {told(inner)}' for key, inner in value.items())}}}"
    return IN_YAML.get(repr(value), repr(value))


def plain(value: Any) -> Any:
    """Return numbers and arrays of numpy as those of Python; any other value as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def did_you_mean(word: str, possible: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` or, where no name is near, a list of the possible names."""
    names = sorted(possible)
    if near := nearest_name(word, names):
        return f"; did you mean '{near}'?"
    if len(names) > MOST_NAMES:
        more = f" and {len(names) - MOST_NAMES} more"
    else:
        more = ""
    if names:
        return f"; expected one of {', '.join(names[:MOST_NAMES])}{more}"
    return ""
