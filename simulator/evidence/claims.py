"""Claims of the papers: what each headline, table and figure says, what commands of ours give, and
the verdict, computed.

A paper's claims are functions, one for each, in ``simulator/papers/PAPER/claims.py``. Their
docstring is what the paper says, word for word as it is shown, and :func:`claim` says what is
printed. A function returns :class:`Values`: the commands whose ``--json`` gives ours, and the path
to the numbers in it::

    @claim(where="Figure 7", shape=[FALLS])
    def deeper_exit() -> Values:
        "a deeper exit lowers fallbacks"
        return values("simulated.fallback_per_step", "specsim run shallow", "specsim run deep")

``published`` is a number (``1.64``) or a range (``1.64..2.08``), as it is printed; it is left out
where only a shape is claimed. ``shape`` holds conditions on our values in their order. ``bound`` is
what can come out at all, in the claim's unit, with its arithmetic in ``bound_why``. ``missing``
names the input that the paper does not print, and where its range is from: :func:`unprinted` writes
into a command what is taken and the two ends that are plausible; several go to their ends together.

The verdict is the first that applies. ``reproduced``: ours is within 10 % of the number, or every
value inside the range widened by 5 % at both ends, and the shape holds where one is claimed.
``refuted``: the bound excludes number and range, or nothing between the ends is near (neither end
has the shape). ``in shape``: the shape holds; the number is off or not printed. ``inputs not
printed``: ``missing`` says which.

``cells`` names the values of ``cells.csv`` that say the same; those of role ``report`` without a
scenario get their run from here: the end of a range its least or most, a value that is printed as
``at_most`` our most, any other our mean.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import getfile, getsourcelines
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple, Self

from simulator.core.faults import BadInput, Fault, did_you_mean
from simulator.core.plain import PlainMapping
from simulator.evidence.published import PublishedCell
from simulator.inputs.catalogue import shown

Verdict = Literal["reproduced", "refuted", "in shape", "inputs not printed", ""]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "in shape", "inputs not printed", "refuted")
Combine = Literal["", "over", "under", "percent", "change_percent", "reduction_percent"]
Reduction = Literal["", "mean", "least", "most", "first", "last", "onset"]
Answers = PlainMapping
"""What commands print with ``--json``, by command; :class:`BadInput` for one that fails."""
SCALES: Mapping[Combine, tuple[int, int]] = {
    "over": (1, 0),
    "percent": (100, 0),
    "change_percent": (100, 100),
    "reduction_percent": (-100, -100),
}
"""What ours over the others is multiplied by, and what is then taken off; ``under`` is the others
over ours.
"""
NEAR = 0.10
WIDENED = 0.05
UNPRINTED = re.compile(r"\{([^{}]+) in ([^{}]+?)\.\.([^{}]+)\}")
"""An input in a command: what is taken, and its two plausible ends."""


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
    """Holds a shape or a bound in words, and whether values keep it."""

    words: str
    holds: Callable[[Sequence[float]], bool]


def _rises(values: Sequence[float]) -> bool:
    return all(a <= b for a, b in pairwise(values)) and values[0] < values[-1]


def _falls(values: Sequence[float]) -> bool:
    return all(a >= b for a, b in pairwise(values)) and values[0] > values[-1]


def _inside(values: Sequence[float], value: float) -> bool:
    """Return whether a value stands neither first nor last."""
    return 0 < values.index(value) < len(values) - 1


RISES = Condition("rises", _rises)
"""No value is below the one before, and the last is above the first."""
FALLS = Condition("falls", _falls)
"""No value is above the one before, and the last is below the first."""
PEAKS = Condition("peaks", lambda values: _inside(values, max(values)))
"""The largest value is neither the first nor the last."""
DIPS = Condition("dips", lambda values: _inside(values, min(values)))
"""The smallest value is neither the first nor the last."""


def flat(percent: float) -> Condition:
    """Return that the largest value is at most so many per cent above the smallest."""
    share = percent / 100
    return Condition(f"flat {percent:g}%", lambda values: max(values) <= min(values) * (1 + share))


def at_least(bound: float) -> Condition:
    """Return that every value is at least a number."""
    return Condition(f"at_least {bound:g}", lambda values: min(values) >= bound)


def at_most(bound: float) -> Condition:
    """Return that every value is at most a number."""
    return Condition(f"at_most {bound:g}", lambda values: max(values) <= bound)


def largest_at(place: int) -> Condition:
    """Return that the largest value stands at a place, counted from 1."""
    return Condition(f"largest_at {place}", lambda values: values.index(max(values)) + 1 == place)


def smallest_at(place: int) -> Condition:
    """Return that the smallest value stands at a place, counted from 1."""
    return Condition(f"smallest_at {place}", lambda values: values.index(min(values)) + 1 == place)


@dataclass(frozen=True)
class Values:
    """Values of ours: the commands that print them, and where in what they print.

    ``path`` is dotted: ``*`` goes through a list, ``a.0.b`` takes an entry. Values of several
    commands stand behind each other. With ``others`` they are combined value by value (a single
    other serves all), and what is combined may be reduced to one number.
    """

    path: str = ""
    commands: tuple[str, ...] = ()
    other_path: str = ""
    others: tuple[str, ...] = ()
    combine: Combine = ""
    reduction: Reduction = ""

    @property
    def command(self) -> str:
        """Return the commands in one line."""
        return " ; ".join(self.commands)

    @property
    def against(self) -> str:
        """Return the commands that these are compared with, in one line."""
        return " ; ".join(self.others)

    @property
    def metric(self) -> str:
        """Return the path in words: behind the word of the reduction, before that of the others
        where it differs.
        """
        words = self.path
        if self.reduction:
            words = f"{self.reduction} {words}"
        if self.other_path != self.path and self.others:
            words = f"{words} | {self.other_path}"
        return words

    @property
    def readings(self) -> list[Self]:
        """Return these values with unprinted inputs as taken; where there are any, with all at
        their first and their last end.
        """
        groups = [1]
        if UNPRINTED.search(self.command + self.against):
            groups += [2, 3]
        return [self._at(group) for group in groups]

    def _at(self, group: int) -> Self:
        """Return these values with one of the three groups of every unprinted input."""
        chosen = rf"\{group}"
        return replace(
            self,
            commands=tuple(UNPRINTED.sub(chosen, command) for command in self.commands),
            others=tuple(UNPRINTED.sub(chosen, command) for command in self.others),
        )

    def numbers(self, answers: Answers) -> list[float]:
        """Return the numbers, combined and reduced; raise ValueError where the path is not in what
        commands print.
        """
        ours = _picked(answers, self.commands, self.path)
        if self.others:
            ours = combined(ours, _picked(answers, self.others, self.other_path), self.combine)
        if self.reduction:
            return [REDUCTIONS[self.reduction](ours)]
        return ours


NO_VALUES = Values()
"""What a claim returns where nothing of ours stands beside it."""


def values(path: str, *commands: str) -> Values:
    """Return the values at a path of what commands print.

    Raises ValueError for what is no command of ours.
    """
    for command in commands:
        if not command.startswith("specsim ") or " --json" in command:
            raise ValueError(
                f"expected a command that begins with 'specsim' and has no --json, got '{command}'"
            )
    return Values(path, commands)


def cell_runs(*cells: str) -> Values:
    """Return what we get for cells of ``cells.csv``, which may be patterns."""
    patterns = " ".join(f"--cell {cell}" for cell in cells)
    return values("cells.*.run", f"specsim validate {patterns}")


def over(ours: Values, others: Values) -> Values:
    """Return ours over the others."""
    return _beside(ours, others, "over")


def quotient(path: str, other_path: str, *commands: str) -> Values:
    """Return the values at one path over those at another of what the same commands print."""
    return over(values(path, *commands), values(other_path, *commands))


def under(ours: Values, others: Values) -> Values:
    """Return the others over ours."""
    return _beside(ours, others, "under")


def percent(ours: Values, others: Values) -> Values:
    """Return ours in per cent of the others."""
    return _beside(ours, others, "percent")


def change_percent(ours: Values, others: Values) -> Values:
    """Return how many per cent ours are above the others."""
    return _beside(ours, others, "change_percent")


def reduction_percent(ours: Values, others: Values) -> Values:
    """Return how many per cent ours are below the others."""
    return _beside(ours, others, "reduction_percent")


def _beside(ours: Values, others: Values, combine: Combine) -> Values:
    """Return ours combined with others, value by value; raise ValueError where either is combined
    or reduced already, since a reduction comes last.
    """
    for side in (ours, others):
        if side.others or side.reduction:
            raise ValueError(f"expected values that are combined first, got '{side.metric}'")
    return replace(ours, other_path=others.path, others=others.commands, combine=combine)


def mean_of(several: Values) -> Values:
    """Return the mean of values."""
    return replace(several, reduction="mean")


def least_of(several: Values) -> Values:
    """Return the least of values."""
    return replace(several, reduction="least")


def most_of(several: Values) -> Values:
    """Return the most of values."""
    return replace(several, reduction="most")


def first_of(several: Values) -> Values:
    """Return the first of values."""
    return replace(several, reduction="first")


def last_of(several: Values) -> Values:
    """Return the last of values."""
    return replace(several, reduction="last")


def onset_of(several: Values) -> Values:
    """Return the place of the first of values above 1, counted from 1."""
    return replace(several, reduction="onset")


def _onset(several: Sequence[float]) -> float:
    for place, value in enumerate(several, 1):
        if value > 1:
            return place
    return inf


REDUCTIONS: Mapping[Reduction, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "least": min,
    "most": max,
    "first": lambda several: several[0],
    "last": lambda several: several[-1],
    "onset": _onset,
}


def unprinted(taken: str, first: str, last: str) -> str:
    """Return an input that the paper does not print, as a command says it: what is taken, and the
    two ends that are plausible.
    """
    return f"{{{taken} in {first}..{last}}}"


@dataclass(frozen=True)
class PaperClaim:
    """A claim of a paper: what is printed, as described above, and the function that gives ours."""

    measure: Callable[[], Values]
    where: str
    published: str = ""
    unit: str = ""
    shape: Sequence[Condition] = ()
    bound: Condition | None = None
    bound_why: str = ""
    missing: str = ""
    cells: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        if not self.says:
            raise ValueError(f"{self.claim}: expected a docstring, which is what the paper says")
        if not (self.published or self.shape):
            raise ValueError(f"{self.claim}: expected a published value or a shape")
        if bool(self.bound) != bool(self.bound_why):
            raise ValueError(f"{self.claim}: a bound needs a bound_why, and the other way round")
        _ = self.span  # which raises what is wrong with the number

    @property
    def claim(self) -> str:
        """Return the name of the claim: that of its function."""
        return self.measure.__name__

    @property
    def says(self) -> str:
        """Return what the paper says, in one line: the docstring of the function."""
        return " ".join((self.measure.__doc__ or "").split())

    @cached_property
    def values(self) -> Values:
        """Return what gives our values."""
        return self.measure()

    @property
    def span(self) -> PrintedRange | None:
        """Return what is published; None where only a shape is claimed."""
        if self.published:
            return PrintedRange.of(self.published)
        return None

    def keeps_shape(self, ours: Sequence[float]) -> bool:
        """Return whether our values keep every condition of the shape."""
        return all(condition.holds(ours) for condition in self.shape)

    @property
    def commands(self) -> list[str]:
        """Return every command that this claim needs, those of the others last, then again for
        each end.
        """
        commands: list[str] = []
        for reading in self.values.readings:
            commands += (*reading.commands, *reading.others)
        return commands

    @property
    def refuted(self) -> bool:
        """Return whether the bound excludes the number, or the whole range."""
        if not (self.bound and self.span):
            return False
        return not any(self.bound.holds([end]) for end in self.span)


def claim(
    *,
    where: str,
    published: str = "",
    unit: str = "",
    shape: Sequence[Condition] = (),
    bound: Condition | None = None,
    bound_why: str = "",
    missing: str = "",
    cells: str = "",
    remark: str = "",
) -> Callable[[Callable[[], Values]], PaperClaim]:
    """Return what makes a claim of a function: what is printed, as described above."""

    def made(measure: Callable[[], Values]) -> PaperClaim:
        return PaperClaim(
            measure,
            where=where,
            published=published,
            unit=unit,
            shape=shape,
            bound=bound,
            bound_why=bound_why,
            missing=missing,
            cells=cells,
            remark=remark,
        )

    return made


class ClaimRow(NamedTuple):
    """Holds a claim and its paper."""

    paper: str
    claim: PaperClaim

    def fault(self, field: str, message: str) -> Fault:
        """Return a fault of this claim, at the place of its function."""
        measure = self.claim.measure
        _, line = getsourcelines(measure)
        place = (shown(Path(getfile(measure))), line, 1)
        return Fault(place, field, f"{self.claim.claim}: {message}")


@dataclass(frozen=True)
class Judged:
    """A claim beside our values."""

    row: ClaimRow
    ours: Sequence[float]
    ends: Sequence[Sequence[float]] = ()
    """Our values with the unprinted inputs at their ends."""
    given: Verdict | None = None
    """The verdict of a kept table, whose values are rounded; None: computed."""

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
        if self.given is not None:
            return self.given
        claim = self.claim
        if claim.span and self.in_shape and claim.span.near(self.ours):
            return "reproduced"
        if claim.refuted or self.out_of_reach:
            return "refuted"
        if claim.shape and self.in_shape:
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


def _picked(answers: Answers, commands: Iterable[str], path: str) -> list[float]:
    """Return the numbers at a path of what several commands print, behind each other."""
    numbers: list[float] = []
    for command in commands:
        numbers += picked(answers[command], path)
    return numbers


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


def claims_of(paper: str, written: Iterable[object]) -> list[ClaimRow]:
    """Return the claims of a paper among everything that its module holds, in their order."""
    return [ClaimRow(paper, known) for known in written if isinstance(known, PaperClaim)]


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
            taken, *ends = [reading.numbers(answers) for reading in row.claim.values.readings]
            beside.append(Judged(row, taken, ends))
        except (ValueError, ZeroDivisionError) as error:
            faults.append(row.fault("metric", str(error)))
    if faults:
        raise BadInput(faults)
    return beside


def runs_of_cells(beside: Iterable[Judged]) -> dict[str, Judged]:
    """Return the claim that gives a cell its run, by the name of the cell."""
    return {cell: one for one in beside if one.ours for cell in one.claim.cells.split()}
