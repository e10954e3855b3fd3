"""Numbers as a report writes them, and what pages say.

``wording/NAME.yaml`` states the sentences and the columns of a page, which its results fill in. A
sentence is a Jinja template; a column is a Jinja expression over ``one``, the object of the row.
What results hold is filled in as it stands and is never read as a template. A number that is None
is an empty text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor, log10
from pathlib import Path
from typing import Any

from simulator.files.sentences import Sentences, compiled, environment, evaluated, of_none
from simulator.report.blocks import Code, Highlight, Hyperlink, Strong, Table, Words


def number(value: float | None, significant: int = 4) -> str:
    """Return a number as text with ``significant`` digits, at most three behind the point;
    nothing for None.
    """
    if value is None:
        return ""
    if value == 0.0:
        return "0"
    if abs(value) < 0.0005:
        if value > 0:
            return "<0.001"
        return ">-0.001"
    digits = min(3, max(0, significant - 1 - floor(log10(abs(value)))))
    return f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Return a number of per cent as signed text with two digits behind the point; nothing for
    None.
    """
    if value is None:
        return ""
    text = f"{value:+.2f} %"
    if text not in ("+0.00 %", "-0.00 %"):
        return text
    return "0.00 %"


def share(value: float | None) -> str:
    """Return a share of one as per cent with one digit behind the point; nothing for None."""
    if value is None:
        return ""
    return f"{value * 100:.1f} %"


def whole_share(value: float | None) -> str:
    """Return a share of one as whole per cent; nothing for None."""
    if value is None:
        return ""
    return f"{100 * value:.0f} %"


def shown(value: float | None, form: str) -> str:
    """Return a number in a format of Python; nothing for None."""
    if value is None:
        return ""
    return format(value, form)


def signed_share(value: float | None) -> str:
    """Return a share of one as signed per cent with one digit behind the point; nothing for
    None.
    """
    if value is None:
        return ""
    return f"{value * 100:+.1f} %"


def as_sentence(words: str) -> str:
    """Return words with a capital and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def spread(values: Sequence[float] | None) -> str:
    """Return a number, if there is one, and in brackets the ends of its interval, which come
    last; nothing for None.
    """
    if values is None:
        return ""
    *best, low, high = (number(value, 3) for value in values)
    return f"{' '.join(best)} ({low} to {high})".lstrip()


def short_names(names: Sequence[str]) -> list[str]:
    """Return names of scenarios without the words that all of them begin or end with, for a figure
    or a table.
    """
    if len(names) < 2:
        return list(names)
    words = [name.split("_") for name in names]
    while _same_first(words):
        words = [parts[1:] for parts in words]
    while _same_first([parts[::-1] for parts in words]):
        words = [parts[:-1] for parts in words]
    return ["_".join(parts) for parts in words]


def _same_first(words: Sequence[Sequence[str]]) -> bool:
    """Whether all names begin with the same word and have more of them."""
    return all(len(parts) > 1 and parts[0] == words[0][0] for parts in words)


FOLDER = Path(__file__).parent / "wording"
FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "percent": percent,
    "share": share,
    "signed": signed_share,
}
FILTERS |= {"spread": spread, "whole": whole_share}


def _of(one: object, name: str) -> object:
    """Return an attribute, or None of nothing."""
    if one:
        return getattr(one, name)
    return None


environment().filters |= {name: of_none(show) for name, show in FILTERS.items()}
environment().globals |= {"code": Code, "strong": Strong, "link": Hyperlink, "of": _of}


def _words(cell: object) -> Words:
    """Return what a cell shows: words with their marks as they are, nothing for None, all else as
    text.
    """
    if isinstance(cell, Code | Hyperlink | Strong | tuple):
        return cell
    if cell is None:
        return ""
    return str(cell)


class Wording(Sentences):
    """The words of a page, by the keys of its file."""

    def __init__(self, name: str) -> None:
        super().__init__(FOLDER / f"{name}.yaml")

    def first_screen(self, **values: object) -> dict[str, Any]:
        """Return ``title``, ``answer`` and ``highlights`` of a page."""
        texts = {"title": self("title", **values), "answer": self("headline", **values)}
        return texts | {"highlights": self.highlights(**values)}

    def highlights(self, **values: object) -> list[Highlight]:
        """Return the numbers of an answer; one that is an empty text is left out."""
        numbers = [
            (self.filled(text, **values), what) for what, text in self.said["highlights"].items()
        ]
        return [Highlight(value, self.filled(what, **values)) for value, what in numbers if value]

    def rows(
        self, key: str, objects: Iterable[object], /, **values: object
    ) -> list[tuple[Words, ...]]:
        """Return a row of cells for every object, under :meth:`head`."""
        columns = list(self._columns(key, values))
        return [
            tuple(_words(self.value(cell, one=one, it=it, **values)) for _, cell, it in columns)
            for one in objects
        ]

    def head(self, key: str, /, **values: object) -> list[str]:
        """Return the heads of a table's columns: those whose ``if`` holds, and one for each value
        of an ``each``.
        """
        return [head for head, *_ in self._columns(key, values)]

    def table(self, key: str, objects: Iterable[object], /, **values: object) -> Table:
        """Return the table of a key with a row for every object."""
        stated = {
            name: value
            for name, value in self.said[key].items()
            if name not in ("columns", "title")
        }
        looks: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in stated.items()
        }
        title = self.filled(self.said[key]["title"], **values)
        return Table(self.head(key, **values), self.rows(key, objects, **values), title, **looks)

    def points(
        self, x: str, y: str, objects: Iterable[object], /, **values: object
    ) -> list[tuple[Any, ...]]:
        """Return two expressions over ``one``, at every object that has both."""
        places = evaluated((x, y))
        return [
            point for point in (places(one=one, **values) for one in objects) if None not in point
        ]

    def _columns(self, key: str, values: dict[str, object]) -> Iterator[tuple[str, str, object]]:
        """Yield head and cell of every column whose condition holds; of one with ``each``, for each
        value that ``it`` takes.
        """
        for column in self.said[key]["columns"]:
            if "if" not in column or self.value(column["if"], **values):
                ((head, cell),) = [part for part in column.items() if part[0] not in ("if", "each")]
                for it in self.value(column["each"], **values) if "each" in column else (None,):
                    yield compiled(head)(it=it, **values), cell, it
