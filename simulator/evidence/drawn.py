"""Figures of the papers drawn anew: which commands give the points of each curve, and what the
paper prints of it.

``scenarios/papers/PAPER/figures/NUMBER.yaml`` describes one figure. A series is either a
``scenario`` (of the paper's folder, else of the catalogue) with what is ``set``, run at every value
of its ``axis``, or a ``command`` whose ``x`` and ``y`` are paths into its ``--json``. ``metric``
and paths are those of :mod:`~simulator.evidence.claims`. ``over`` and ``under`` name a second
scenario on the same axis: the series is the ratio.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.faults import BadInput, did_you_mean
from simulator.core.quantities import Frozen
from simulator.evidence.claims import Answers, Combine, combined, entries, picked
from simulator.evidence.published import PAPERS
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.inputs.shell import repeated

Place = float | str
"""Where a point stands on the horizontal axis: a number, or the name of a bar."""
SCENARIO = "scenario"
"""Key of an axis over scenarios instead of a setting."""


class FigureAxis(Frozen):
    """The setting that varies along a series, or ``scenario``; ``labels`` are shown in place of the
    values.
    """

    key: str
    values: tuple[Place, ...]
    labels: tuple[Place, ...] = ()

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        if self.labels and len(self.labels) != len(self.values):
            raise ValueError(
                f"expected a label for each of {len(self.values)} values, got {len(self.labels)}"
            )
        return self


NO_AXIS = FigureAxis(key="", values=())


class SecondScenario(Frozen):
    """The scenario that a series is compared with, on the same axis."""

    scenario: str = Field(min_length=1)
    set: tuple[str, ...] = ()


class Series(Frozen):
    """A curve of ours, or a group of bars."""

    label: str
    scenario: str = ""
    set: tuple[str, ...] = ()
    axis: FigureAxis = NO_AXIS
    metric: str = ""
    by: Literal["run", "law"] = "run"
    over: SecondScenario | None = None
    under: SecondScenario | None = None
    command: str = ""
    x: str | tuple[Place, ...] = ""
    y: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.command:
            if not (self.x and self.y) or self.scenario or self.axis.key or self.metric:
                raise ValueError("a command needs x and y, and has no scenario, axis or metric")
        elif not (self.metric and self.axis and bool(self.scenario) != (self.axis.key == SCENARIO)):
            raise ValueError(
                "expected a command, or a metric with an axis and a scenario (none where the "
                "axis is over scenarios)"
            )
        return self

    def commands(self, folder: Path) -> list[str]:
        """Return the commands of this series, one for each point where it has an axis."""
        if self.command:
            return [self.command]
        return self._typed(folder, self.scenario, self.set)

    def others(self, folder: Path) -> list[str]:
        """Return the commands of what the series is compared with; none without."""
        other = self.over or self.under
        if other:
            return self._typed(folder, other.scenario, other.set)
        return []

    def _typed(self, folder: Path, scenario: str, changes: Sequence[str]) -> list[str]:
        commands = []
        for value in self.axis.values:
            varied = list(changes)
            if self.axis.key != SCENARIO:
                varied.append(f"{self.axis.key}={value}")
            path = folder / f"{scenario or value}.yaml"
            name = path.stem
            if path.exists():
                name = shown(path)
            words = ["specsim", self.by, name, *repeated("--set", varied)]
            commands.append(shlex.join(words))
        return commands

    def points(self, answers: Answers, folder: Path) -> list[tuple[Place, float]]:
        """Return the points of the series; raise ValueError where a path leads nowhere."""
        if self.command:
            data = answers[self.command]
            places: Sequence[Place]
            if isinstance(self.x, str):
                places = entries(data, self.x)
            else:
                places = self.x
            return list(zip(places, picked(data, self.y), strict=True))
        values = self._values(answers, self.commands(folder))
        others = self.others(folder)
        if others:
            combine: Combine = "under"
            if self.over:
                combine = "over"
            values = combined(values, self._values(answers, others), combine)
        places = self.axis.labels or self.axis.values
        return list(zip(places, values, strict=True))

    def _values(self, answers: Answers, commands: Sequence[str]) -> list[float]:
        """Return the metric of every command."""
        return [picked(answers[command], self.metric)[0] for command in commands]


class Printed(Frozen):
    """Points that the paper prints, and where."""

    label: str
    points: tuple[tuple[Place, float], ...]
    source: str


class DrawnFigure(Frozen):
    """A figure of a paper, drawn anew."""

    figure: str
    source: str
    x: str
    y: str
    kind: Literal["lines", "bars", "points"]
    log: tuple[Literal["x", "y"], ...] = ()
    series: tuple[Series, ...] = Field(min_length=1)
    published: tuple[Printed, ...] = ()
    remark: str = ""


class Found(NamedTuple):
    """Holds a figure, its paper and number, and the file that describes it."""

    paper: str
    number: str
    picture: DrawnFigure
    path: Path

    @property
    def commands(self) -> list[str]:
        """Return every command that the figure needs."""
        commands = []
        for series in self.picture.series:
            commands += self._commands_of(series)
        return commands

    def _commands_of(self, series: Series) -> list[str]:
        return [*series.commands(self.folder), *series.others(self.folder)]

    @property
    def folder(self) -> Path:
        """Return the folder of the paper, which holds its scenarios."""
        return self.path.parent.parent

    def points(self, answers: Answers) -> dict[str, list[tuple[Place, float]]]:
        """Return our points by series; raise BadInput where a command or a path fails."""
        drawn = {}
        for place, series in enumerate(self.picture.series):
            field = f"series.{place}"
            for command in self._commands_of(series):
                answer = answers[command]
                if isinstance(answer, BadInput):
                    raise self._fault(field, "; ".join(map(str, answer.faults)))
            try:
                drawn[series.label] = series.points(answers, self.folder)
            except ValueError as error:
                raise self._fault(field, str(error)) from error
        return drawn

    def _fault(self, field: str, message: str) -> BadInput:
        return BadInput.at((shown(self.path), 1, 1), message, field)


def drawn_figures(catalogue: Catalogue) -> dict[tuple[str, str], Path]:
    """Return the file of every figure that is drawn anew, by paper and number; a folder of the user
    goes first.
    """
    files: dict[tuple[str, str], Path] = {}
    for root in catalogue.roots:
        for path in sorted((root / PAPERS).glob("*/figures/*.yaml")):
            files.setdefault((path.parent.parent.name, path.stem), path)
    return files


def figure(catalogue: Catalogue, paper: str, number: str) -> Found:
    """Return a figure of a paper; raise BadInput where it is not drawn or faulty."""
    files = drawn_figures(catalogue)
    papers = {name for name, _ in files}
    if paper not in papers:
        raise _unknown("paper with drawn figures", paper, papers)
    numbers = {drawn for name, drawn in files if name == paper}
    if number not in numbers:
        raise _unknown(f"drawn figure of {paper}", number, numbers)
    path = files[paper, number]
    picture = validate(DrawnFigure, read(path, shown(path)))
    return Found(paper, number, picture, path)


def _unknown(what: str, name: str, possible: set[str]) -> BadInput:
    meant = did_you_mean(name, possible)
    return BadInput.at(name, f"there is no {what} of this name{meant}")
