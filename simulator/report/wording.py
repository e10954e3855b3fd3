"""Numbers as a report writes them. A number that is None is an empty text."""

from collections.abc import Callable, Sequence
from math import floor, log10
from typing import TypeVar

Thing = TypeVar("Thing")


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


def if_known(thing: Thing | None, words: Callable[[Thing], str]) -> str:
    """Return what ``words`` makes of a thing; nothing where there is none."""
    if thing is None:
        return ""
    return words(thing)


def plural(count: int, noun: str) -> str:
    """Return a number of things, in the plural unless it is 1."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


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
