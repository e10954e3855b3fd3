"""Combine the axes of a sweep: which fields of the scenario each point sets, and to what.

An axis is a list of values or a range ``low:high:count`` (``log:low:high:count`` for equal ratios).
A value of the form ``{label: ..., set: {field: value, ...}}`` sets fields that change together.
Axes combine to their product, in step (zip), or to a Latin hypercube.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from simulator.core.faults import BadInput, Place, told
from simulator.core.plain import PlainData
from simulator.inputs.document import in_a_line, parse

Label: TypeAlias = str | int | float | bool | None
Settings: TypeAlias = PlainData
"""Dotted fields of a scenario, and the values they are set to."""
Combination = Literal["product", "zip", "latin_hypercube"]
DIGITS = 12
"""Significant digits of a number from a range; more is rounding error, and would make keys
differ.
"""
MOST_POINTS = 100_000_000
"""Points of a sweep at most."""


MOST_VALUES = 1_000_000
"""Most values of all axes together: a point takes milliseconds, so that more would take days."""
MOST_DRAWN = 10_000_000
"""Most values that a Latin hypercube draws."""
NUMBER = r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?"
"""Pattern of a number in words that are typed."""


class Range(NamedTuple):
    """Spans numbers from ``low`` to ``high``, both included; evenly spaced, or in equal ratios."""

    low: float
    high: float
    steps: int
    ratios: bool
    whole: bool
    """Both ends were written as whole numbers: a Latin hypercube draws whole numbers between
    them.
    """

    def values(self) -> list[float]:
        """Return ``steps`` numbers; whole ones where all of them are whole and the ends were
        written so.
        """
        spaced = np.geomspace if self.ratios else np.linspace
        numbers = []
        for value in spaced(self.low, self.high, self.steps):
            numbers.append(float(f"{value:.{DIGITS}g}"))
        if self.whole and all(number.is_integer() for number in numbers):
            return [int(number) for number in numbers]
        return numbers

    def at(self, share: float) -> float:
        """Return the number this share of the way from ``low`` to ``high``, by difference or by
        ratio.
        """
        number: float
        if self.ratios:
            number = self.low * (self.high / self.low) ** share
        else:
            number = self.low + share * (self.high - self.low)
        if self.whole:
            return round(number)
        return float(f"{number:.{DIGITS}g}")


@dataclass(frozen=True)
class Axis:
    """Holds the labels of an axis' values in the table, and the fields that each value sets."""

    key: str
    labels: tuple[Label, ...]
    settings: tuple[Settings, ...]
    range: Range | None = None

    def drawn(self, share: float) -> tuple[Label, Settings]:
        """Return label and settings of the value this share of the way along, for a Latin
        hypercube.
        """
        if self.range:
            value = self.range.at(share)
            return value, {self.key: value}
        index = min(int(share * len(self.labels)), len(self.labels) - 1)
        return self.labels[index], self.settings[index]


class Point(NamedTuple):
    """Holds the number of a point from 0, its value on every axis, and the fields that these
    set.
    """

    number: int
    labels: tuple[Label, ...]
    settings: Settings


@dataclass(frozen=True)
class Design:
    """Combines axes to points, which are counted from 0, the last axis of a product changing
    fastest.
    """

    axes: tuple[Axis, ...]
    combination: Combination = "product"
    samples: int = 0
    """Points of a Latin hypercube."""
    seed: int = 0
    """Seed of a Latin hypercube."""

    def __len__(self) -> int:
        if self.combination == "latin_hypercube":
            return self.samples
        if self.combination == "zip":
            return len(self.axes[0].labels)
        return math.prod(len(axis.labels) for axis in self.axes)

    def point(self, number: int) -> Point:
        """Return the point of this number."""
        if self.combination == "latin_hypercube":
            chosen = [
                axis.drawn(share)
                for axis, share in zip(self.axes, self._shares[number].tolist(), strict=True)
            ]
        else:
            at = self._indices(number)
            chosen = [
                (axis.labels[index], axis.settings[index])
                for axis, index in zip(self.axes, at, strict=True)
            ]
        settings: Settings = {}
        for _, fields in chosen:
            settings |= fields
        return Point(number, tuple(label for label, _ in chosen), settings)

    def __iter__(self) -> Iterator[Point]:
        return map(self.point, range(len(self)))

    def _indices(self, number: int) -> list[int]:
        """Return the place on every axis of the point of this number."""
        if self.combination == "zip":
            return [number] * len(self.axes)
        indices = []
        for axis in reversed(self.axes):
            number, index = divmod(number, len(axis.labels))
            indices.append(index)
        return indices[::-1]

    @cached_property
    def _shares(self) -> Any:
        """Return (samples, axes): how far along every axis each point of a Latin hypercube lies, as
        a share of one.
        """
        # it takes half a second, and few sweeps are drawn
        from scipy.stats import qmc

        return qmc.LatinHypercube(len(self.axes), rng=np.random.default_rng(self.seed)).random(
            self.samples
        )


def axes_of(stated: Mapping[str, tuple[object, Place]]) -> list[Axis]:
    """Return axes by their values as stated and where; raises :class:`BadInput`, and before much is
    held for many values.
    """
    laid: list[Axis] = []
    left = MOST_VALUES
    for key, (values, place) in stated.items():
        laid.append(axis(key, values, place))
        left -= len(laid[-1].labels)
        if left < 0:
            raise BadInput.at(
                place, f"expected at most {MOST_VALUES:,} values on all axes together", key
            )
    return laid


def axis(key: str, stated: object, place: Place) -> Axis:
    """Return an axis as a file or the command line states it; raises :class:`BadInput` at
    ``place``.
    """
    limits = _range(key, stated, place) if isinstance(stated, str) else None
    values: list[Any]
    if limits:
        values = list(limits.values())
    elif isinstance(stated, list):
        values = stated
    else:
        values = [stated]
    if not values:
        raise BadInput.at(place, "expected at least one value", key)
    if any(map(_labelled, values)):
        return _axis_of_labels(key, values, place)
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput.at(place, f"expected finite numbers, got {value}", key)
    labels = tuple(value if isinstance(value, Label) else in_a_line(value) for value in values)
    return Axis(key, labels, tuple({key: value} for value in values), limits)


def _axis_of_labels(key: str, values: Sequence[Any], place: Place) -> Axis:
    """Return an axis whose values state a label and what they set."""
    for value in values:
        if not _labelled(value):
            raise BadInput.at(
                place,
                f"expected {{label: ..., set: {{field: value}}}} throughout, got {told(value)}",
                key,
            )
    labels = tuple(value["label"] for value in values)
    return Axis(key, labels, tuple(dict(value["set"]) for value in values))


def _labelled(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == {"label", "set"}
        and isinstance(value["label"], Label)
        and isinstance(value["set"], Mapping)
        and bool(value["set"])
    )


def _range(key: str, text: str, place: Place) -> Range | None:
    """Return the range ``low:high:count`` or ``log:low:high:count``; None for any other text, which
    is a value.
    """
    match = re.fullmatch(rf"\s*(log:)?({NUMBER}):({NUMBER}):(\d{{1,18}})\s*", text)
    if not match:
        if text.strip().startswith("log:") or re.fullmatch(rf"\s*{NUMBER}(:{NUMBER})+\s*", text):
            raise BadInput.at(
                place, f"expected low:high:count or log:low:high:count, got '{text}'", key
            )
        return None
    low = float(match[2])
    high = float(match[3])
    count = int(match[4])
    ratios = bool(match[1])
    if not -math.inf < low < high < math.inf or count < 2:
        raise BadInput.at(
            place, f"expected low below high and two values or more, got '{text}'", key
        )
    if count > MOST_VALUES:
        raise BadInput.at(
            place, f"expected at most {MOST_VALUES:,} values on an axis, got '{text}'", key
        )
    if ratios and low <= 0.0:
        raise BadInput.at(place, f"equal ratios need a low end above 0, got '{text}'", key)
    whole = match[2].lstrip("-+").isdigit() and match[3].lstrip("-+").isdigit()
    return Range(low, high, count, ratios, whole)


def assigned(assignment: str) -> tuple[str, Any]:
    """Return key and values of ``key=a,b,c`` or ``key=[log:]low:high:count`` of the command line,
    as a file states them.
    """
    key, equals, text = assignment.partition("=")
    place: Place = (f"--axis {assignment}", 0, 0)
    if not equals or not key or not text.strip():
        raise BadInput.at(place, "expected key=a,b,c, key=low:high:count or key=log:low:high:count")
    return key, text if _range(key, text, place) else parse(f"[{text}]", place[0]).data


def design(
    axes: Sequence[Axis], combination: Combination, samples: int, seed: int, place: Place
) -> Design:
    """Return the points of axes that can be combined so; raises :class:`BadInput` at ``place``."""
    points = Design(tuple(axes), combination, samples, seed)
    if not axes:
        raise BadInput.at(place, "a sweep needs at least one axis", "axes")
    if combination == "zip":
        _check_in_step(axes, place)
    else:
        _check_distinct(axes, place)
    if combination == "latin_hypercube":
        _check_samples(samples, len(axes), place)
    fields = Counter(key for axis in axes for key in axis.settings[0])
    twice = sorted(key for key, count in fields.items() if count > 1)
    if twice:
        raise BadInput.at(place, f"two axes set {twice[0]}", "axes")
    if len(points) > MOST_POINTS:
        raise BadInput.at(place, f"{len(points):,} points are more than {MOST_POINTS:,}", "axes")
    return points


def _check_in_step(axes: Sequence[Axis], place: Place) -> None:
    """Raise :class:`BadInput` where axes that go in step are not equally long."""
    lengths = {axis.key: len(axis.labels) for axis in axes}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise BadInput.at(
            place, f"axes that go in step must be equally long; values: {counts}", "axes"
        )


def _check_distinct(axes: Sequence[Axis], place: Place) -> None:
    """Raise :class:`BadInput` for an axis with the same value twice."""
    for axis in axes:
        if len(set(axis.labels)) < len(axis.labels):
            raise BadInput.at(place, "has the same value twice", axis.key)


def _check_samples(samples: int, axes: int, place: Place) -> None:
    """Raise :class:`BadInput` for no points of a Latin hypercube, or more than may be drawn."""
    if samples < 1:
        raise BadInput.at(place, "a Latin hypercube needs its number of points", "samples")
    if samples * axes > MOST_DRAWN:
        most = MOST_DRAWN // axes
        raise BadInput.at(place, f"expected at most {most:,} points on {axes} axes", "samples")
