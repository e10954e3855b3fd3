"""What was predicted of each cell beside what the running vLLM took: errors, signs, coverage."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live.vllm.kept import Cell, Recording
from benchmarks.live.vllm.settings import is_judged

BOUND = 0.08
"""Allowed error of time per token and of throughput, or the spread of the turns, if that is more.
"""
UNITS = {"tpot_ms": "ms per token", "tokens_per_s": "tokens a second"}


@dataclass(frozen=True)
class Judged:
    """A number of a cell: measured in each turn, and predicted with a 90 % interval."""

    cell: Cell
    kind: str
    measured: Sequence[float]
    predicted: float
    interval: tuple[float, float]

    @property
    def judged(self) -> bool:
        """Return whether the profile was not fitted to this cell."""
        return is_judged(*self.cell)

    @property
    def error(self) -> float:
        """Return predicted over measured, less one; of the median of the turns."""
        return self.predicted / median(self.measured) - 1.0

    @property
    def spread(self) -> float:
        """Return half the range of the turns over their median."""
        return (max(self.measured) - min(self.measured)) / 2.0 / median(self.measured)

    @property
    def bound(self) -> float:
        """Return the allowed error."""
        return max(BOUND, self.spread)

    @property
    def held(self) -> bool:
        """Return whether the error keeps the bound."""
        return abs(self.error) <= self.bound

    @property
    def covered(self) -> int:
        """Count the turns that lie within the interval."""
        low, high = self.interval
        return sum(low <= value <= high for value in self.measured)


@dataclass(frozen=True)
class Sign:
    """Speculation beside plain decoding of the same load: time per token of plain over its own."""

    cell: Cell
    measured: Sequence[float]
    """Speed-up in each turn."""
    predicted: float

    @property
    def clear(self) -> bool:
        """Return whether every turn has the same sign."""
        return min(self.measured) > 1.0 or max(self.measured) < 1.0

    @property
    def right(self) -> bool:
        """Return whether the predicted sign is that of the median of the turns."""
        return (self.predicted > 1.0) == (median(self.measured) > 1.0)


@dataclass(frozen=True)
class Verdict:
    """All numbers of all cells."""

    numbers: Sequence[Judged]

    @cached_property
    def judged(self) -> list[Judged]:
        """Return those that the profile was not fitted to."""
        return [number for number in self.numbers if number.judged]

    @property
    def held(self) -> int:
        """Count the judged numbers whose error keeps its bound."""
        return sum(number.held for number in self.judged)

    @property
    def middle_error(self) -> float:
        """Return the median of the judged errors without their signs."""
        return median(abs(number.error) for number in self.judged)

    @property
    def coverage(self) -> tuple[int, int]:
        """Return how many measured numbers lie in their intervals, of how many."""
        turns = sum(len(number.measured) for number in self.judged)
        return sum(number.covered for number in self.judged), turns

    @cached_property
    def signs(self) -> list[Sign]:
        """Return the sign of every judged configuration that speculates, by load."""
        times = {number.cell: number for number in self.numbers if number.kind == "tpot_ms"}
        found = []
        for cell, own in times.items():
            plain = times["plain", cell[1]]
            if cell[0] != "plain" and own.judged:
                pairs = zip(plain.measured, own.measured, strict=True)
                ratios = [before / after for before, after in pairs]
                found.append(Sign(cell, ratios, plain.predicted / own.predicted))
        return found


def judge(recording: Recording, predicted: dict[Cell, dict[str, Any]]) -> Verdict:
    """Return every number beside its prediction; ``predicted`` holds by kind a value and
    an interval.
    """
    numbers = []
    for cell in recording.cells:
        for kind in UNITS:
            value, interval = predicted[cell][kind]
            numbers.append(Judged(cell, kind, recording.of(cell, kind), value, interval))
    return Verdict(numbers)


COLUMNS = (
    *("configuration", "load", "quantity", "role", "measured", "turns", "spread", "predicted"),
    *("low_90", "high_90", "error", "bound", "held", "turns_within"),
)


def as_csv(numbers: Iterable[Judged]) -> str:
    """Return a line for every number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number in numbers:
        low, high = number.interval
        writer.writerow(
            (
                *number.cell,
                number.kind,
                "judged" if number.judged else "calibration",
                f"{median(number.measured):.6g}",
                " ".join(f"{value:.6g}" for value in number.measured),
                f"{number.spread:.4f}",
                f"{number.predicted:.6g}",
                f"{low:.6g}",
                f"{high:.6g}",
                f"{number.error:.4f}",
                f"{number.bound:.4f}",
                number.held,
                number.covered,
            )
        )
    return text.getvalue()


def read_cells(path: Path) -> list[dict[str, str]]:
    """Return the lines that :func:`as_csv` wrote, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
