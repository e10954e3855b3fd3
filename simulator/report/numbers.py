"""Numbers and names as a report writes them."""

from collections.abc import Sequence
from math import floor, log10


def number(value: float, significant: int = 4) -> str:
    """Return a number as text with ``significant`` digits, at most three behind the point."""
    if value == 0.0:
        return "0"
    if abs(value) < 0.0005:
        return "<0.001" if value > 0 else ">-0.001"
    digits = min(3, max(0, significant - 1 - floor(log10(abs(value)))))
    return f"{value:,.{digits}f}"


def percent(value: float) -> str:
    """Return a number of per cent as signed text with two digits behind the point."""
    text = f"{value:+.2f} %"
    return text if text not in ("+0.00 %", "-0.00 %") else "0.00 %"


def share(value: float) -> str:
    """Return a share of one as per cent with one digit behind the point."""
    return f"{value * 100:.1f} %"


def signed_share(value: float) -> str:
    """Return a share of one as signed per cent with one digit behind the point."""
    return f"{value * 100:+.1f} %"


def spread(values: Sequence[float]) -> str:
    """Return a number, if there is one, and in brackets the ends of its interval, which come last."""
    *best, low, high = (number(value, 3) for value in values)
    return f"{' '.join(best)} ({low} to {high})".lstrip()


def short_names(names: Sequence[str]) -> list[str]:
    """Return names of scenarios without the words that all of them begin or end with, for a figure or a table."""
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
