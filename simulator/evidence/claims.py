"""Claims of the papers: what each headline, table and figure says, what a command of ours gives,
and the verdict, computed.

``scenarios/papers/PAPER/claims.csv`` has a row for each claim. ``published`` is a number
(``1.64``), a range (``1.64..2.08``) or empty where only a shape is claimed. ``command`` is typed
without ``--json``; several are joined by `` ; `` and their values stand behind each other.
``metric`` is a dotted path into what they print with ``--json``: ``*`` goes through a list,
``a.0.b`` takes an entry. ``mean``, ``least``, ``most``, ``first`` or ``last`` before the path makes
one number of a list; ``onset`` counts to the first value above 1. ``against`` is a second command,
value by value (one value serves all): ``combine`` says ``over`` (command / against), ``under``
(against / command), ``percent`` (100 command / against), ``change_percent`` (``percent`` less 100)
or ``reduction_percent`` (100 less ``percent``). A ``|`` in the metric parts the path for
``command`` from the one for ``against``. The word before the path counts after combining.

``shape`` holds one condition or several, joined by `` and ``, on our values in their order:
:data:`CONDITIONS`. ``bound`` is ``at_most X`` or ``at_least X`` in the claim's unit:
what can come out at all, with its arithmetic in ``bound_why``. ``missing`` names the input that the
paper does not print, and where its range is from: a command says ``{0.58 in 0.56..0.8}`` for what
is taken and the two ends that are plausible; several go to their ends together. The verdict is the
first that applies. ``reproduced``: ours is within 10 % of the number, or every value inside the
range widened by 5 % at both ends, and the shape holds where one is claimed. ``refuted``: the bound
excludes number and range, or nothing between the ends is near (neither end has the shape). ``in
shape``: the shape holds; the number is off or not printed. ``inputs not printed``: ``missing`` says
which.

``cells`` names the values of ``cells.csv`` that say the same; those of role ``report`` without a
scenario get their run from here: the end of a range its least or most, a value that is printed as
``at_most`` our most, any other our mean.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple, Self

from pydantic import model_validator

from simulator.core.faults import BadInput, Fault, did_you_mean
from simulator.core.quantities import Frozen
from simulator.evidence.published import PAPERS, PublishedCell, numbered
from simulator.inputs.catalogue import Catalogue, shown

Verdict = Literal["reproduced", "refuted", "in shape", "inputs not printed", ""]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "in shape", "inputs not printed", "refuted")
Combine = Literal["", "over", "under", "percent", "change_percent", "reduction_percent"]
Answers = Mapping[str, Any]
"""What commands print with ``--json``, by command; :class:`BadInput` for one that fails."""
SCALES: Mapping[Combine, tuple[int, int]] = {
    "over": (1, 0),
    "percent": (100, 0),
    "change_percent": (100, 100),
    "reduction_percent": (-100, -100),
}
"""What command / against is multiplied by, and what is then taken off; ``under`` is against /
command.
"""
NEAR = 0.10
WIDENED = 0.05
UNPRINTED = re.compile(r"\{([^{}]+) in ([^{}]+?)\.\.([^{}]+)\}")
"""An input in a command: what is taken, and its two plausible ends."""
REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "least": min,
    "most": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "onset": lambda values: next(
        (place for place, value in enumerate(values, 1) if value > 1), inf
    ),
}
Holds = Callable[[Sequence[float], float], bool]
CONDITIONS: Mapping[str, Holds] = {
    "rises": lambda values, _: all(a <= b for a, b in pairwise(values)) and values[0] < values[-1],
    "falls": lambda values, _: all(a >= b for a, b in pairwise(values)) and values[0] > values[-1],
    "peaks": lambda values, _: 0 < values.index(max(values)) < len(values) - 1,
    "dips": lambda values, _: 0 < values.index(min(values)) < len(values) - 1,
    "flat": lambda values, bound: max(values) <= min(values) * (1 + bound),
    "at_least": lambda values, bound: min(values) >= bound,
    "at_most": lambda values, bound: max(values) <= bound,
    "largest_at": lambda values, place: values.index(max(values)) + 1 == place,
    "smallest_at": lambda values, place: values.index(min(values)) + 1 == place,
}
"""Conditions on values in their order. ``rises`` and ``falls``: no value is on the wrong side of
the one before, and the last differs from the first; ``peaks`` and ``dips``: the largest or the
smallest value is neither the first nor the last; ``flat 5%``: the largest is at most 5 % above the
smallest; ``at_least X`` and ``at_most X``: every value is; ``largest_at N`` and ``smallest_at N``:
it is the Nth, counted from 1.
"""
WITHOUT_NUMBER = ("rises", "falls", "peaks", "dips")
"""Conditions that stand alone; the others take a number."""


class PrintedRange(NamedTuple):
    """Holds the least and the most that is published; both are the number where there is no
    range.
    """

    least: float
    most: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read ``1.64`` or ``1.64..2.08``; raise ValueError for anything else."""
        least, _, most = text.partition("..")
        span = cls(float(least), float(most or least))
        if span.least > span.most:
            raise ValueError(f"expected a range from the least to the most, got '{text}'")
        return span

    def near(self, values: Sequence[float]) -> bool:
        """Return whether values are within ``NEAR`` of the number, or inside the range widened by
        ``WIDENED``.
        """
        room = NEAR if self.least == self.most else WIDENED
        low = self.least - room * abs(self.least)
        high = self.most + room * abs(self.most)
        return all(low <= value <= high for value in values)

    def reached(self, values: Sequence[float]) -> bool:
        """Return whether anything between the least and the most of values is as near as that."""
        return any(self.near([min(max(end, min(values)), max(values))]) for end in self)


class Condition(NamedTuple):
    """Holds one word of a shape or a bound, and its number."""

    word: str
    number: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read ``rises``, ``flat 5%`` or ``at_least 2``; raise ValueError for anything else."""
        word, *rest = text.split() or [""]
        if word not in CONDITIONS:
            raise ValueError(f"there is no shape '{word}'{did_you_mean(word, CONDITIONS)}")
        if word in WITHOUT_NUMBER and rest:
            raise ValueError(f"expected '{word}' alone, got '{text}'")
        if word not in WITHOUT_NUMBER and len(rest) != 1:
            raise ValueError(f"expected '{word}' and a number, got '{text}'")
        number = rest[0] if rest else "0"
        return cls(word, float(number.removesuffix("%")) / (100 if number.endswith("%") else 1))

    def holds(self, values: Sequence[float]) -> bool:
        """Return whether values keep it."""
        return CONDITIONS[self.word](values, self.number)


class PaperClaim(Frozen):
    """One claim of a paper; columns as described above, empty ones left out."""

    claim: str
    where: str
    says: str
    published: str = ""
    unit: str = ""
    command: str = ""
    metric: str = ""
    against: str = ""
    combine: Combine = ""
    shape: str = ""
    bound: str = ""
    bound_why: str = ""
    missing: str = ""
    cells: str = ""
    remark: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for command in self.commands:
            if not command.startswith("specsim ") or " --json" in command:
                raise ValueError(
                    "expected a command that begins with 'specsim' and has no --json, got "
                    f"'{command}'"
                )
        if not (self.published or self.shape):
            raise ValueError("expected a published value or a shape")
        pairs = {"metric": "command", "combine": "against", "bound": "bound_why"}
        for name, other in pairs.items():
            if bool(getattr(self, name)) != bool(getattr(self, other)):
                raise ValueError(f"a {name} needs a {other}, and the other way round")
        if self.limit and self.limit.word not in ("at_most", "at_least"):
            raise ValueError(
                f"expected a bound like 'at_most 64.8' or 'at_least 1.18', got '{self.bound}'"
            )
        _ = self.conditions, self.span  # which raise what pydantic words
        return self

    @property
    def span(self) -> PrintedRange | None:
        """Return what is published; None where only a shape is claimed."""
        if self.published:
            return PrintedRange.of(self.published)
        return None

    @property
    def conditions(self) -> list[Condition]:
        """Return the conditions of the shape."""
        if self.shape:
            return [Condition.of(text) for text in self.shape.split(" and ")]
        return []

    def keeps_shape(self, values: Sequence[float]) -> bool:
        """Return whether values keep every condition of the shape."""
        return all(condition.holds(values) for condition in self.conditions)

    @property
    def limit(self) -> Condition | None:
        """Return the bound; None without one."""
        if self.bound:
            return Condition.of(self.bound)
        return None

    @property
    def commands(self) -> list[str]:
        """Return every command that this claim needs, those of ``against`` last, then again for
        each end.
        """
        return [
            command
            for reading in self.readings
            for command in (*split(reading.command), *split(reading.against))
        ]

    @property
    def readings(self) -> list[Self]:
        """Return the claim with unprinted inputs as taken; where there are any, with all at their
        first and their last end.
        """
        named = ("command", "against")
        each = []
        for end in (1, 2, 3):
            each.append({name: UNPRINTED.sub(rf"\{end}", getattr(self, name)) for name in named})
        return [
            self.model_copy(update=update)
            for update in each[: 3 if UNPRINTED.search(self.command + self.against) else 1]
        ]

    @property
    def refuted(self) -> bool:
        """Return whether the bound excludes the number, or the whole range."""
        if not (self.limit and self.span):
            return False
        return not self.limit.holds(
            [self.span.least if self.limit.word == "at_most" else self.span.most]
        )

    def ours(self, answers: Answers) -> list[float]:
        """Return our values, combined and reduced; raise ValueError where the metric is not in what
        commands print.
        """
        first, _, rest = self.metric.partition(" ")
        word, paths = (first, rest) if first in REDUCTIONS else ("", self.metric)
        own, _, other = (path.strip() for path in paths.partition("|"))
        values = [
            value for command in split(self.command) for value in picked(answers[command], own)
        ]
        if self.against:
            seconds = [
                value
                for command in split(self.against)
                for value in picked(answers[command], other or own)
            ]
            values = combined(values, seconds, self.combine)
        if word:
            return [REDUCTIONS[word](values)]
        return values


class ClaimRow(NamedTuple):
    """Holds a claim, its paper, and the place where it is written."""

    paper: str
    claim: PaperClaim
    file: str
    line: int

    def fault(self, field: str, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault((self.file, self.line, 1), field, f"{self.claim.claim}: {message}")


@dataclass(frozen=True)
class Judged:
    """A claim beside our values."""

    row: ClaimRow
    ours: Sequence[float]
    ends: Sequence[Sequence[float]] = ()
    """Our values with the unprinted inputs at their ends."""

    @property
    def claim(self) -> PaperClaim:
        """Return the claim."""
        return self.row.claim

    @cached_property
    def in_shape(self) -> bool:
        """Return whether our values keep every condition of the shape."""
        return bool(self.ours) and self.claim.keeps_shape(self.ours)

    @property
    def out_of_reach(self) -> bool:
        """Return whether no plausible value of the unprinted inputs gives the number, or the shape
        where none is printed.
        """
        if not self.ends:
            return False
        if self.claim.span:
            return not self.claim.span.reached([*self.ours, *chain(*self.ends)])
        return not (self.in_shape or any(map(self.claim.keeps_shape, self.ends)))

    @cached_property
    def verdict(self) -> Verdict:
        """Return the verdict by the rule above; empty where none applies."""
        claim = self.claim
        if claim.span and self.in_shape and claim.span.near(self.ours):
            return "reproduced"
        if claim.refuted or self.out_of_reach:
            return "refuted"
        if claim.conditions and self.in_shape:
            return "in shape"
        if claim.missing:
            return "inputs not printed"
        return ""

    def run_of(self, cell: PublishedCell) -> float:
        """Return what is ours beside a cell: the least or the most of our values for the end of a
        range, else their mean.
        """
        if cell.qualifier.endswith("min"):
            return min(self.ours)
        if cell.qualifier.endswith(("max", "at_most")):
            return max(self.ours)
        return mean(self.ours)


def split(commands: str) -> list[str]:
    """Return commands that are joined by `` ; ``."""
    if commands:
        return [command.strip() for command in commands.split(" ; ")]
    return []


def combined(values: Sequence[float], others: Sequence[float], combine: Combine) -> list[float]:
    """Return values beside others, one by one; a single other serves all. Raises ValueError where
    the counts differ.
    """
    if len(others) == 1:
        others = [*others] * len(values)
    if len(values) != len(others):
        raise ValueError(
            f"expected as many values from both commands, got {len(values)} and {len(others)}"
        )
    pairs = zip(values, others, strict=True)
    if combine == "under":
        return [other / value for value, other in pairs]
    scale, less = SCALES[combine]
    return [scale * value / other - less for value, other in pairs]


def entries(data: Any, path: str) -> list[Any]:
    """Return what stands at a dotted path, ``*`` going through a list; raise ValueError where there
    is nothing.
    """
    reached = [data]
    for part in path.split("."):
        reached = [inner for entry in reached for inner in _entries(entry, part, path)]
    return reached


def picked(data: Any, path: str) -> list[float]:
    """Return the numbers at a dotted path as :func:`entries` does; raise ValueError for anything
    else.
    """
    reached = entries(data, path)
    wrong = [type(entry).__name__ for entry in reached if not isinstance(entry, int | float)]
    if wrong or not reached:
        raise ValueError(
            f"expected numbers at '{path}', got {wrong[0] if wrong else 'an empty list'}"
        )
    return [float(entry) for entry in reached]


def _entries(entry: Any, part: str, path: str) -> list[Any]:
    """Return what one part of a path leads to: an entry, or with ``*`` all of them."""
    if part == "*" and isinstance(entry, dict | list):
        return list(entry.values() if isinstance(entry, dict) else entry)
    if isinstance(entry, list) and part.isdigit() and int(part) < len(entry):
        return [entry[int(part)]]
    if isinstance(entry, dict) and part in entry:
        return [entry[part]]
    names = entry if isinstance(entry, dict) else ()
    raise ValueError(f"there is no '{part}' of '{path}'{did_you_mean(part, names)}")


def claims(catalogue: Catalogue, papers: Iterable[str]) -> list[ClaimRow]:
    """Return the claims of papers, in the order of their files; raise BadInput for a faulty row or
    a name used twice.
    """
    rows: list[ClaimRow] = []
    for paper in papers:
        paths = (root / PAPERS / paper / "claims.csv" for root in catalogue.roots)
        path = next(filter(Path.exists, paths), None)
        if path:
            own = []
            for line, claim in numbered(PaperClaim, path):
                own.append(ClaimRow(paper, claim, shown(path), line))
        else:
            own = []
        names = [row.claim.claim for row in own]
        twice = [row for place, row in enumerate(own) if row.claim.claim in names[:place]]
        if twice:
            raise BadInput(
                [row.fault("claim", "there is a claim of this name already") for row in twice]
            )
        rows += own
    return rows


def judged(rows: Sequence[ClaimRow], answers: Answers) -> list[Judged]:
    """Return every claim beside what its commands gave; raise BadInput with all rows whose command
    or metric fails.
    """
    beside = []
    faults = []
    for row in rows:
        failed = []
        for command in row.claim.commands:
            if isinstance(answer := answers[command], BadInput):
                failed.append(answer)
        if failed:
            faults.append(row.fault("command", "; ".join(map(str, failed[0].faults))))
            continue
        try:
            taken, *ends = [one.ours(answers) if one.command else [] for one in row.claim.readings]
            beside.append(Judged(row, taken, ends))
        except (ValueError, ZeroDivisionError) as error:
            faults.append(row.fault("metric", str(error)))
    if faults:
        raise BadInput(faults)
    return beside


def runs_of_cells(beside: Iterable[Judged]) -> dict[str, Judged]:
    """Return the claim that gives a cell its run, by the name of the cell."""
    return {cell: one for one in beside if one.ours for cell in one.claim.cells.split()}
