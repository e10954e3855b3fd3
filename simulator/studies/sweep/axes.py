"""Axes of a sweep and how they combine: which fields of the scenario each point sets, and to what.

An axis is a list of values or a range ``low:high:count`` (``log:low:high:count`` for equal ratios). A value of the form
``{label: ..., set: {field: value, ...}}`` sets fields that change together. Axes combine to their product, in step (zip), or to
a Latin hypercube.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from simulator.files.schema import BadInput, Fault, Place, parse

Label: TypeAlias = str | int | float | bool | None
Settings: TypeAlias = dict[str, Any]
"""Dotted fields of a scenario and what they are set to."""
Combination = Literal["product", "zip", "latin_hypercube"]
COMBINATIONS: tuple[Combination, ...] = ("product", "zip", "latin_hypercube")
DIGITS = 12
"""Significant digits of a number from a range; more is rounding error, and would make keys differ."""
MOST_POINTS = 100_000_000


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``, both included; evenly spaced, or in equal ratios."""

    low: float
    high: float
    steps: int
    ratios: bool
    whole: bool
    """Both ends were written as whole numbers: a Latin hypercube draws whole numbers between them."""

    def values(self) -> list[float]:
        """All of them; whole numbers where every one of them is whole and the ends were written so."""
        spaced = np.geomspace if self.ratios else np.linspace
        found = [float(f"{value:.{DIGITS}g}") for value in spaced(self.low, self.high, self.steps)]
        return [int(value) for value in found] if self.whole and all(value.is_integer() for value in found) else found

    def at(self, share: float) -> float:
        """The number this share of the way from ``low`` to ``high``, by difference or by ratio."""
        found = self.low * (self.high / self.low) ** share if self.ratios else self.low + share * (self.high - self.low)
        return round(found) if self.whole else float(f"{found:.{DIGITS}g}")


@dataclass(frozen=True)
class Axis:
    """One axis: what its values are called in the table, and what each of them sets."""

    key: str
    labels: tuple[Label, ...]
    settings: tuple[Settings, ...]
    range: Range | None = None

    def drawn(self, share: float) -> tuple[Label, Settings]:
        """The value this share of the way along, for a Latin hypercube."""
        if self.range:
            value = self.range.at(share)
            return value, {self.key: value}
        index = min(int(share * len(self.labels)), len(self.labels) - 1)
        return self.labels[index], self.settings[index]


class Point(NamedTuple):
    """One point of a sweep: its number from 0, its value on every axis, and the fields that these set."""

    number: int
    labels: tuple[Label, ...]
    settings: Settings


@dataclass(frozen=True)
class Design:
    """Axes and their combination; points are counted from 0, the last axis of a product changing fastest."""

    axes: tuple[Axis, ...]
    combination: Combination = "product"
    samples: int = 0
    """Points of a Latin hypercube."""
    seed: int = 0

    def __len__(self) -> int:
        if self.combination == "latin_hypercube":
            return self.samples
        if self.combination == "zip":
            return len(self.axes[0].labels)
        total = 1
        for axis in self.axes:
            total *= len(axis.labels)
        return total

    def point(self, number: int) -> Point:
        """The point of this number."""
        if self.combination == "latin_hypercube":
            chosen = [axis.drawn(share) for axis, share in zip(self.axes, self._shares[number].tolist(), strict=True)]
        else:
            at = self._indices(number)
            chosen = [(axis.labels[index], axis.settings[index]) for axis, index in zip(self.axes, at, strict=True)]
        settings: Settings = {}
        for _, fields in chosen:
            settings |= fields
        return Point(number, tuple(label for label, _ in chosen), settings)

    def __iter__(self) -> Iterator[Point]:
        return map(self.point, range(len(self)))

    def _indices(self, number: int) -> list[int]:
        if self.combination == "zip":
            return [number] * len(self.axes)
        found = []
        for axis in reversed(self.axes):
            number, index = divmod(number, len(axis.labels))
            found.append(index)
        return found[::-1]

    @cached_property
    def _shares(self) -> Any:
        from scipy.stats import qmc  # noqa: PLC0415 - it takes half a second, and few sweeps are drawn

        return qmc.LatinHypercube(len(self.axes), rng=np.random.default_rng(self.seed)).random(self.samples)


def axis(key: str, given: object, place: Place) -> Axis:
    """An axis as a file or the command line states it; raises :class:`BadInput` at ``place``."""
    limits = _range(key, given, place) if isinstance(given, str) else None
    values: list[Any] = limits.values() if limits else given if isinstance(given, list) else [given]
    if not values:
        raise BadInput([Fault(place, key, "expected at least one value")])
    if any(_labelled(value) for value in values):
        if wrong := [value for value in values if not _labelled(value)]:
            raise BadInput([Fault(place, key, f"expected {{label: ..., set: {{field: value}}}} throughout, got {wrong[0]!r}")])
        return Axis(key, tuple(value["label"] for value in values), tuple(dict(value["set"]) for value in values))
    labels = tuple(value if isinstance(value, Label) else json.dumps(value) for value in values)
    return Axis(key, labels, tuple({key: value} for value in values), limits)


def _labelled(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == {"label", "set"}
        and isinstance(value["label"], Label)
        and isinstance(value["set"], Mapping)
        and bool(value["set"])
    )


def _range(key: str, text: str, place: Place) -> Range | None:
    """``low:high:count`` or ``log:low:high:count``; None for any other text, which is a value."""
    number = r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?"
    found = re.fullmatch(rf"\s*(log:)?({number}):({number}):(\d+)\s*", text)
    if not found:
        if text.strip().startswith("log:") or re.fullmatch(rf"\s*{number}(:{number})+\s*", text):
            raise BadInput([Fault(place, key, f"expected low:high:count or log:low:high:count, got '{text}'")])
        return None
    low, high, count, ratios = float(found[2]), float(found[3]), int(found[4]), bool(found[1])
    if low >= high or count < 2:
        raise BadInput([Fault(place, key, f"expected low below high and two values or more, got '{text}'")])
    if ratios and low <= 0.0:
        raise BadInput([Fault(place, key, f"equal ratios need a low end above 0, got '{text}'")])
    return Range(low, high, count, ratios, found[2].lstrip("-+").isdigit() and found[3].lstrip("-+").isdigit())


def assigned(assignment: str) -> tuple[str, Any]:
    """``key=a,b,c``, ``key=low:high:count`` or ``key=log:low:high:count`` of the command line, as a file would state it."""
    key, equals, text = assignment.partition("=")
    place: Place = (f"--axis {assignment}", 0, 0)
    if not equals or not key or not text.strip():
        raise BadInput([Fault(place, "", "expected key=a,b,c, key=low:high:count or key=log:low:high:count")])
    return key, text if _range(key, text, place) else parse(f"[{text}]", place[0]).data


def design(axes: Sequence[Axis], combination: Combination, samples: int, seed: int, place: Place) -> Design:
    """Axes that can be combined so; raises :class:`BadInput` at ``place``."""
    found = Design(tuple(axes), combination, samples, seed)
    lengths = {one.key: len(one.labels) for one in axes}
    if not axes:
        raise BadInput([Fault(place, "axes", "a sweep needs at least one axis")])
    twice = [one.key for one in axes if len(set(one.labels)) < len(one.labels)]
    if combination != "zip" and twice:
        raise BadInput([Fault(place, twice[0], "has the same value twice")])
    if combination == "zip" and len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise BadInput([Fault(place, "axes", f"axes that go in step must be equally long; values: {told}")])
    if combination == "latin_hypercube" and samples < 1:
        raise BadInput([Fault(place, "samples", "a Latin hypercube needs its number of points")])
    fields = [key for one in axes for key in one.settings[0]]
    if both := sorted({key for key in fields if fields.count(key) > 1}):
        raise BadInput([Fault(place, "axes", f"two axes set {both[0]}")])
    if len(found) > MOST_POINTS:
        raise BadInput([Fault(place, "axes", f"{len(found):,} points are more than {MOST_POINTS:,}")])
    return found
