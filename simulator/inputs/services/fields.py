"""Fields of records that other programs wrote: each of its kind, or absent."""

from collections.abc import Iterator, Mapping
from math import inf, isnan
from typing import Any

from simulator.core.faults import LARGEST, BadInput, told
from simulator.core.plain import PlainMapping


class Fields:
    """The fields of an object in a file.

    A field that is missing, null or no number (NaN) is None. Raises :class:`BadInput` with file,
    line and field for one of another kind.
    """

    def __init__(self, file: str, values: PlainMapping, line: int = 0, path: str = "") -> None:
        self.file = file
        self.values = values
        self.line = line
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def fault(self, name: str, message: str) -> BadInput:
        """Return the error of a field."""
        field = f"{self.path}.{name}".strip(".")
        return BadInput.at((self.file, self.line, 1 if self.line else 0), message, field)

    def number(self, name: str, most: float = LARGEST) -> float | None:
        """Return a number of 0 or more."""
        return self._number(name, self.values.get(name), most)

    def count(self, name: str) -> int | None:
        """Return a whole number of 0 or more, which may be written as 3.0."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value):
            raise self.fault(name, f"expected a whole number, got {told(self.values[name])}")
        return int(self.values[name])

    def text(self, name: str) -> str | None:
        """Return a text."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.fault(name, f"expected a text, got {_short(value)}")

    def inner(self, name: str) -> "Fields":
        """Return an object within; one without fields where it is missing."""
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.fault(name, f"expected fields in braces, got {_short(value)}")
        return Fields(self.file, value, self.line, f"{self.path}.{name}".strip("."))

    def objects(self, name: str) -> Iterator["Fields"]:
        """Yield the objects of a list."""
        for place, value in enumerate(self.entries(name)):
            if not isinstance(value, Mapping):
                raise self.fault(f"{name}.{place}", f"expected an object, got {_short(value)}")
            yield Fields(self.file, value, self.line, f"{self.path}.{name}.{place}".strip("."))

    def entries(self, name: str) -> list[Any]:
        """Return a list; an empty one where it is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fault(name, f"expected a list, got {_short(value)}")
        return value

    def numbers(self, name: str) -> list[float]:
        """Return a list of numbers of 0 or more; an empty one where it is missing."""
        return [self._of_list(name, place, value) for place, value in enumerate(self.entries(name))]

    def counts(self, name: str) -> list[int]:
        """Return a list of whole numbers of 0 or more; an empty one where it is missing."""
        counts = []
        for place, value in enumerate(self.numbers(name)):
            if value != int(value):
                raise self.fault(f"{name}.{place}", f"expected a whole number, got {value:g}")
            counts.append(int(value))
        return counts

    def lists(self, name: str) -> list[list[float]]:
        """Return a list of lists of numbers."""
        rows = []
        for place, row in enumerate(self.entries(name)):
            if not isinstance(row, list):
                raise self.fault(f"{name}.{place}", f"expected a list, got {_short(row)}")
            rows.append([self._of_list(f"{name}.{place}", at, cell) for at, cell in enumerate(row)])
        return rows

    def _of_list(self, name: str, place: int, value: Any) -> float:
        field = f"{name}.{place}"
        number = self._number(field, value, LARGEST)
        if number is None:
            raise self.fault(field, f"expected a number, got {_short(value)}")
        return number

    def _number(self, name: str, value: Any, most: float) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(name, f"expected a number, got {_short(value)}")
        if isinstance(value, float) and isnan(value):
            return None
        if not 0 <= value <= most or value == inf:
            raise self.fault(name, f"expected a number from 0 to {most:.3g}, got {_short(value)}")
        return value


def _short(value: Any) -> str:
    """Return a value for a message: kinds of containers alone, as texts of answers stay unsaid."""
    if isinstance(value, Mapping):
        return "fields in braces"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "a text"
    return told(value)[:40]
