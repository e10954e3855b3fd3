"""What a server shows at ``/metrics``: the text format of Prometheus and OpenMetrics, of all
engines.

A text may hold several scrapes, one behind the other: each series then has a value for each. The
parser of ``prometheus_client`` takes one scrape, and names no line of what is wrong in it.
Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import nan
from typing import NamedTuple

from simulator.core.faults import LARGEST, BadInput

SAMPLE = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^\s{}]+)"
    r"(?:[ \t]+[-+0-9.eE]+)?(?:[ \t]+#[ \t].*)?\s*$"
)
LABEL = re.compile(r'[\s,]*(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
LONGEST_SAMPLE = 20_000
"""Most characters of a line; the longest that engines write (their configuration) has 3,000."""
Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, Labels]
SeriesValues = Mapping[SeriesKey, Sequence[float]]
"""Values by name and labels, scrape after scrape."""


class Sample(NamedTuple):
    """A line of a scrape."""

    name: str
    labels: Labels
    """Sorted by name."""
    value: str
    """As it is written."""


def sample_in(text: str) -> Sample | None:
    """Return the sample that a line states; None for comments, blank lines and anything else."""
    if len(text) > LONGEST_SAMPLE:
        return None
    match = SAMPLE.match(text)
    if match is None:
        return None
    labels = LABEL.findall(match["labels"] or "")
    return Sample(match["name"], tuple(sorted(labels)), match["value"])


def series(lines: Sequence[str], names: Iterable[str]) -> SeriesValues:
    """Return the values of all series of some names; raises :class:`BadInput` with its line for one
    that is no number of 0 or more.
    """
    wanted = frozenset(names)
    values: dict[SeriesKey, list[float]] = {}
    for line, text in enumerate(lines, 1):
        sample = sample_in(text)
        if sample is not None and sample.name in wanted:
            key = sample.name, sample.labels
            values.setdefault(key, []).append(finite(sample.value, line))
    return values


def finite(text: str, line: int) -> float:
    """Return the number of 0 or more that a text states; raises :class:`BadInput` for any other."""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0.0 <= value <= LARGEST:  # neither does a text that is no number
        message = f"expected a number from 0 to {LARGEST:g}, found '{text[:40]}'"
        raise BadInput.at(("", line, 0), message)
    return value


def increase(name: str, values: Sequence[float], file: str = "") -> float:
    """Return how much a counter grew over all scrapes, or what it is in the only one; raises
    :class:`BadInput` where it fell.
    """
    for before, after in pairwise(values):
        if after < before:
            message = f"the counter {name} fell from {before:g} to {after:g} between two scrapes"
            raise BadInput.at(
                file,
                f"{message}: the server was started anew in between; take two scrapes behind that, "
                "and name the earlier one first",
            )
    if len(values) == 1:
        return values[0]
    return values[-1] - values[0]


def check_complete(values: SeriesValues) -> None:
    """Raise :class:`BadInput` for a series that is in fewer scrapes than another."""
    most = max(map(len, values.values()), default=0)
    for (name, labels), scraped in values.items():
        if len(scraped) == most:
            continue
        if len(scraped) > 1:
            stands = f"{len(scraped)} of {most} scrapes"
        else:
            stands = "one of several scrapes"
        shown = ",".join(f'{label}="{value}"' for label, value in labels)
        raise BadInput.at("", f"the counter {name}{{{shown}}} stands in {stands}; is one cut off?")
