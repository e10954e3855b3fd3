"""What the papers print: each value with the role it had before anything was fitted, and where
papers contradict themselves.

``scenarios/papers/PAPER/cells.csv`` holds the values of one paper. ``cell`` names the table and
counts its values in reading order, ``source`` is where a reader finds it. ``published`` stands as
printed, in ``unit``; ``qualifier`` (at most, end of a range, ...) is empty where the value is meant
exactly. Roles, by rule and frozen:

=============  =================================================================================
``calibrate``  may be fitted to
``predict``    is predicted and pooled into the error
``check``      follows from shapes alone and must come out
``report``     is shown with its error but not pooled, since the paper does not state enough
``input``      a setting, an acceptance rate, a count of calls: what scenarios are made of
``excluded``   is not used, for the ``reason`` given
=============  =================================================================================

No row changes its role; a dispute is written beside the result. ``scenario``, ``overrides`` (as for
``--set``, blanks between them) and ``metric`` (a dotted path into what ``run --json`` prints) say
how a row of the first four roles is reproduced. A row without a scenario is not mapped yet;
``notes.csv`` beside it says why, and why a result is far off. ``same_as`` names the cell of which a
row is the same measurement, printed again; statistics count it once. ``figures.csv`` says of every
figure of the paper with which command of ours its shape comes out, or why it cannot, and
``contradictions.csv`` where the paper contradicts itself. Where papers contradict each other stands
in the file of that name beside their folders.
"""

import csv
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import Field, model_validator

from simulator.core.faults import BadInput
from simulator.core.quantities import Frozen
from simulator.inputs import reading
from simulator.inputs.catalogue import shipped, shown
from simulator.inputs.document import Document, readable
from simulator.inputs.schema import validate

Role = Literal["calibrate", "predict", "check", "report", "input", "excluded"]
PAPERS = "scenarios/papers"


class PublishedCell(Frozen):
    """One published value; columns as described above, empty ones left out."""

    cell: str
    source: str
    model: str = ""
    task: str = ""
    method: str = ""
    hardware: str = ""
    temperature: float | None = None
    batch_size: int | None = Field(default=None, le=1_000_000)
    quantity: str
    published: str
    unit: str = ""
    qualifier: str = ""
    role: Role
    reason: str = ""
    scenario: str = ""
    overrides: str = ""
    metric: str = ""
    against: str = ""
    same_as: str = ""

    @model_validator(mode="after")
    def _reproducible(self) -> Self:
        if self.role in ("calibrate", "predict", "check", "report"):
            float(self.published)  # pydantic words what this raises
            if bool(self.scenario) != bool(self.metric):
                raise ValueError("a scenario needs a metric, and a metric a scenario")
        elif self.scenario or self.overrides or self.metric or self.against:
            raise ValueError(
                f"a row with role '{self.role}' names no scenario, overrides, metric or against"
            )
        return self

    @property
    def mapped(self) -> bool:
        """Return whether the row names a scenario that reproduces this value."""
        return bool(self.scenario)

    @property
    def assignments(self) -> tuple[str, ...]:
        """Return the overrides as a tuple of ``key=value``."""
        return tuple(shlex.split(self.overrides))


class Contradiction(Frozen):
    """A slip, an ambiguity or two statements that cannot both hold: where, what we find, and what
    is done about it.

    ``weight`` says how much it matters for a simulation. ``paper`` is ``several`` where papers
    disagree with each other.
    """

    id: str
    paper: str
    kind: str
    where: str
    finding: str
    treatment: str = ""
    weight: Literal["none", "small", "medium", "large"]


class Note(Frozen):
    """What there is to say of some cells; ``cell`` is a name or a pattern like ``table1:*``."""

    cell: str
    note: str

    def about(self, cell: PublishedCell) -> bool:
        """Return whether this note is about ``cell``."""
        return fnmatchcase(cell.cell, self.cell)


class PaperFigure(Frozen):
    """A figure of a paper: what it ``shows``, the ``command`` that reproduces its shape and our
    ``picture`` of it, or why not.

    ``claims`` names the claims of the paper that say how it comes out; ``remark`` says what ours
    is, or why there is none.
    """

    paper: str
    figure: str
    shows: str
    command: str = ""
    picture: str = ""
    claims: str = ""
    remark: str

    @property
    def numbers(self) -> list[str]:
        """Return the numbers of the figures that this row is about: 1, 2, 3 and 8 of ``Figures 1 to
        3 and 8``.
        """
        numbers: list[str] = []
        for part in re.split(r", | and ", self.figure.partition(" ")[2]):
            first, _, last = part.partition(" to ")
            numbers += map(str, range(int(first), int(last) + 1)) if last else [first]
        return numbers

    @property
    def reproduced(self) -> bool:
        """Return whether a command of ours shows this figure."""
        return bool(self.command)


Row = TypeVar("Row", bound=Frozen)


def rows(kind: type[Row], path: Path, **same: str) -> Iterator[Row]:
    """Yield the rows of a CSV file as ``kind``, empty columns left out; raise BadInput with the
    line of the first fault.

    ``same`` holds what is the same in all rows, by column, and stands in none of them.
    """
    return (row for _, row in numbered(kind, path, **same))


def numbered(kind: type[Row], path: Path, **same: str) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a CSV file with their lines; raise BadInput as :func:`rows` does."""
    name = shown(path)
    try:
        with readable(name), reading.lines(path) as lines:
            reader = csv.DictReader(lines, restkey="more columns than the header", strict=True)
            for row in reader:
                filled = {column: value for column, value in row.items() if value} | same
                yield (
                    reader.line_num,
                    validate(kind, Document(filled, {(): (name, reader.line_num, 1)})),
                )
    except csv.Error as error:
        raise BadInput.at(name, f"cannot be read: {error}") from error


def cells(root: Path | None = None) -> Mapping[str, tuple[PublishedCell, ...]]:
    """Return every published value below ``root``, by paper."""
    folder = (root or shipped()) / PAPERS
    return {
        path.parent.name: tuple(rows(PublishedCell, path))
        for path in sorted(folder.glob("*/cells.csv"))
    }


def contradictions(root: Path | None = None) -> tuple[Contradiction, ...]:
    """Return what is wrong in the papers themselves, K01 to K75, in the order of the numbers."""
    folder = (root or shipped()) / PAPERS
    found = list(rows(Contradiction, folder / "contradictions.csv", paper="several"))
    for path in folder.glob("*/contradictions.csv"):
        found += rows(Contradiction, path, paper=path.parent.name)
    return tuple(sorted(found, key=lambda slip: slip.id))


def notes(paper: str, root: Path | None = None) -> tuple[Note, ...]:
    """Return the notes about cells of a paper; none without a file."""
    path = (root or shipped()) / PAPERS / paper / "notes.csv"
    if path.exists():
        return tuple(rows(Note, path))
    return ()


def paper_figures(root: Path | None = None) -> tuple[PaperFigure, ...]:
    """Return every figure of the papers, which follow each other as the numbers of their
    contradictions do: in the order in which they were read.
    """
    papers = [slip.paper for slip in contradictions(root)]

    def place(path: Path) -> int:
        paper = path.parent.name
        return papers.index(paper) if paper in papers else len(papers)

    folder = (root or shipped()) / PAPERS
    found: list[PaperFigure] = []
    for path in sorted(sorted(folder.glob("*/figures.csv")), key=place):
        found += rows(PaperFigure, path, paper=path.parent.name)
    return tuple(found)
