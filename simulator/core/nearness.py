"""Which of several names a word perhaps means."""

import difflib
import re
from collections.abc import Iterable

LONGEST_NAME = 100
"""Characters of a name that are compared with possible names."""
SHORTEST_STEM = 3
"""Fewest characters of a word for which a name that begins with it counts as nearest."""
NEAR = 0.5
NEAR_WITH_OTHER_NUMBERS = 0.8
"""Least likeness of a name that is suggested, and of one whose numbers are others."""


def nearest_name(word: str, possible: Iterable[str]) -> str | None:
    """Return the name that a word perhaps means; None where no name is near.

    A name that begins with the word, or with which it begins, is nearer than one of a similar
    spelling. Numbers tell models and formats apart: of a word with numbers, one that has the same
    is near, and another only where nearly all of it is the same.
    """
    names = sorted(possible)
    word = word[:LONGEST_NAME].lower()
    begun = [name for name in names if len(word) >= SHORTEST_STEM and name.lower().startswith(word)]
    if begun:
        return difflib.get_close_matches(word, begun, n=1, cutoff=0.0)[0]
    begins = [
        name
        for name in names
        if len(name) >= SHORTEST_STEM and re.match(rf"{re.escape(name.lower())}[_.-]", word)
    ]
    if begins:
        return max(begins, key=len)
    numbers = sorted(re.findall(r"\d+", word))
    alike = [name for name in names if sorted(re.findall(r"\d+", name)) == numbers]
    spelt = difflib.get_close_matches(word, alike, n=1, cutoff=NEAR)
    close = spelt or difflib.get_close_matches(
        word, names, n=1, cutoff=NEAR_WITH_OTHER_NUMBERS if numbers else NEAR
    )
    if close:
        return close[0]
    return None
