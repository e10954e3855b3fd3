"""Fits: what is free in the scenarios of a paper, which published values decide it, and what came
out.

``scenarios/papers/PAPER/parameters.yaml`` names every free parameter and the cells that decide it,
before anything is fitted; ``fitted.yaml`` beside it is written by ``python -m benchmarks.papers
PAPER`` and read by everybody else.

A parameter sets one key of the scenarios that it applies to. Where several set the same key their
terms are added, on its ``scale``: ``plain``, ``log`` (terms multiply) or ``logit`` (the value stays
between 0 and 1). A number that the cell's own row sets for the key, such as a published acceptance,
is one more term.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.faults import BadInput, Fault, did_you_mean, told
from simulator.core.quantities import Frozen
from simulator.core.serving.requests import Request
from simulator.evidence.published import PAPERS, Note, PublishedCell, cells, notes
from simulator.inputs.catalogue import Catalogue, shipped, shown
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import run
from simulator.scenario.result.data import result_data

Columns = Mapping[str, tuple[str, ...]]
"""Column of ``cells.csv`` -> the values of it that are meant."""
Values = Mapping[str, Mapping[str, float]]
"""Parameter -> group -> its term."""
Change = Callable[[Loaded], Loaded]
"""Replaces a loaded scenario before it runs."""
Finished = Callable[[Request], object]
"""Receives every request that has ended."""
SCALES: Mapping[str, Callable[[float], float]] = {
    "plain": float,
    "log": exp,
    "logit": lambda term: 1.0 / (1.0 + exp(-term)),
}
TERMS: Mapping[str, Callable[[float], float]] = {
    "plain": float,
    "log": log,
    "logit": lambda value: log(value / (1.0 - value)),
}
"""The inverse of ``SCALES``: the term of a value."""
DEFAULT = "all"
"""Group of a parameter that has one value for every cell."""


class Parameter(Frozen):
    """One free quantity: the ``key`` it sets, the cells it applies to, and those that decide it.

    ``per`` gives it a term of its own for every combination of these columns; each counts as a free
    parameter. ``start``, ``least`` and ``most`` are on its scale.
    """

    key: str | tuple[str, ...]
    """Key of the scenarios, or several that stand for one quantity and are set to the same
    value.
    """
    why: str
    scale: Literal["plain", "log", "logit"] = "plain"
    start: float
    least: float
    most: float
    per: tuple[str, ...] = ()
    where: Columns = Field(default_factory=dict)
    decided_by: Columns = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if not self.least <= self.start <= self.most:
            raise ValueError(
                f"start {self.start:g} is not between least {self.least:g} and most {self.most:g}"
            )
        unknown = sorted(
            {*self.where, *self.decided_by, *self.per} - set(PublishedCell.model_fields)
        )
        if unknown:
            raise ValueError(f"'{unknown[0]}' is no column of cells.csv")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """Return every key that it sets."""
        if isinstance(self.key, str):
            return (self.key,)
        return self.key

    def applies(self, cell: PublishedCell) -> bool:
        """Return whether this parameter sets its key in the scenario of ``cell``."""
        return _among(cell, self.where)

    def decides(self, cell: PublishedCell) -> bool:
        """Return whether this parameter is fitted to ``cell``, which is mapped and has the role
        ``calibrate``.
        """
        return (
            cell.role == "calibrate"
            and cell.mapped
            and self.applies(cell)
            and _among(cell, self.decided_by)
        )

    def group(self, cell: PublishedCell) -> str:
        """Return the name of the group whose term ``cell`` uses: its values in the columns
        ``per``.
        """
        return " | ".join(str(getattr(cell, column)) for column in self.per) or DEFAULT


class OpenChoice(Frozen):
    """One setting that the paper leaves open and that is chosen, not fitted: ``what``, its
    ``value``, what it ``rests_on``.

    ``after_seeing``: published results were known when it was chosen.
    """

    what: str
    value: str | float
    rests_on: str
    after_seeing: bool


class Parameters(Frozen):
    """Holds every free parameter of a paper, by name, and what was chosen beside them."""

    about: str = ""
    parameters: Mapping[str, Parameter]
    choices: tuple[OpenChoice, ...] = ()


class FittedPaper(Frozen):
    """The content of ``fitted.yaml``: the command that made it, and terms by parameter and group,
    on each parameter's scale.
    """

    command: str
    terms: dict[str, dict[str, float]]


Answer = Callable[[Iterable["Question"]], Sequence[float]]
"""Runs independent questions and returns their answers in order."""


def _among(cell: PublishedCell, columns: Columns) -> bool:
    return all(str(getattr(cell, column)) in wanted for column, wanted in columns.items())


class Run(NamedTuple):
    """Names a scenario file and holds what is set in it."""

    scenario: str
    overrides: tuple[str, ...]

    @property
    def typed(self) -> str:
        """Return the command that runs it."""
        words = [word for override in self.overrides for word in ("--set", override)]
        return shlex.join(["specsim", "run", shown(Path(self.scenario)), *words])

    def measured(
        self, metric: str, change: Change = lambda loaded: loaded, finished: Finished | None = None
    ) -> float:
        """Run the scenario as ``change`` leaves it and return one number of ``specsim run --json``,
        by its dotted path.
        """
        value: Any = result_data(
            run(change(load(self.scenario, self.overrides)), finished=finished)
        )
        for part in metric.split("."):
            value = value[int(part) if isinstance(value, list) else part]
        return float(value)


class Question(NamedTuple):
    """A metric of a run; with ``against``, that run's metric over this one's."""

    run: Run
    metric: str
    against: Run | None = None

    def answer(
        self, change: Change = lambda loaded: loaded, finished: Finished | None = None
    ) -> float:
        """Return what the simulation says, in the metric's unit; ``finished`` receives the requests
        of the first run.
        """
        own = self.run.measured(self.metric, change, finished)
        if self.against:
            return self.against.measured(self.metric, change) / own
        return own


@dataclass(frozen=True)
class Paper:
    """The cells of a paper with the scenarios, the free parameters and the fit that go with
    them.
    """

    name: str
    cells: tuple[PublishedCell, ...]
    parameters: Mapping[str, Parameter]
    fitted: Values
    folder: Path
    notes: tuple[Note, ...] = ()
    choices: tuple[OpenChoice, ...] = ()

    @classmethod
    def of(cls, name: str, cells: tuple[PublishedCell, ...], root: Path | None = None) -> Self:
        """Read a paper's parameters, fit and notes below ``root``; without their files nothing is
        free.
        """
        folder = (root or shipped()) / PAPERS / name
        declared = folder / "parameters.yaml"
        fitted = folder / "fitted.yaml"
        if declared.exists():
            open_ = validate(Parameters, read(declared, shown(declared)))
        else:
            open_ = Parameters(parameters={})
        if fitted.exists():
            values = validate(FittedPaper, read(fitted, shown(fitted))).terms
        else:
            values = {}
        return cls(name, cells, open_.parameters, values, folder, notes(name, root), open_.choices)

    def with_role(self, *roles: str) -> list[PublishedCell]:
        """Return the mapped cells of these roles, in the paper's order."""
        return [cell for cell in self.cells if cell.role in roles and cell.mapped]

    @property
    def free(self) -> int:
        """Count the free parameters: the terms that cells of the paper use."""
        return len(self.terms())

    def note(self, cell: PublishedCell) -> str:
        """Return every note about ``cell``, joined by semicolons."""
        return "; ".join(note.note for note in self.notes if note.about(cell))

    def unmapped(self, *roles: str) -> list[PublishedCell]:
        """Return the cells of these roles that name no scenario to reproduce them."""
        return [cell for cell in self.cells if cell.role in roles and not cell.mapped]

    def terms(self) -> dict[tuple[str, str], Parameter]:
        """Return every term that a mapped cell uses: its parameter, by parameter name and group."""
        used = {}
        for cell in self.with_role("calibrate", "predict", "check", "report"):
            for name, parameter in self.parameters.items():
                if parameter.applies(cell):
                    used[name, parameter.group(cell)] = parameter
        return used

    def overrides(self, cell: PublishedCell, values: Values | None = None) -> list[str]:
        """Return what the fit sets in a cell's scenario, as ``key=value``; raise BadInput where a
        term has not been fitted.
        """
        values = self.fitted if values is None else values
        stated = dict(assignment.split("=", 1) for assignment in cell.assignments)
        sums: dict[str, tuple[str, float]] = {}  # key of the scenario -> scale and sum of its terms
        for name, parameter in self.parameters.items():
            if not parameter.applies(cell):
                continue
            scale = parameter.scale
            group = parameter.group(cell)
            if group not in values.get(name, {}):
                message = f"has no value for '{group}'; run python -m benchmarks.papers {self.name}"
                raise BadInput.at(shown(self.folder / "fitted.yaml"), message, name)
            for key in parameter.keys:
                if key not in sums:
                    sums[key] = scale, TERMS[scale](float(stated[key])) if key in stated else 0.0
                sums[key] = scale, sums[key][1] + values[name][group]
        return [f"{key}={told(SCALES[scale](term))}" for key, (scale, term) in sums.items()]

    def question(self, cell: PublishedCell, values: Values | None = None) -> Question:
        """Return the run that reproduces a cell, with what its row and the fit set."""
        fitted = self.overrides(cell, values)
        own = Run(str(self.folder / f"{cell.scenario}.yaml"), (*cell.assignments, *fitted))
        if not cell.against:
            return Question(own, cell.metric)
        hardware = tuple(assignment for assignment in fitted if assignment.startswith("target."))
        return Question(own, cell.metric, Run(str(self.folder / f"{cell.against}.yaml"), hardware))


def papers(catalogue: Catalogue, names: Sequence[str] = ()) -> list[Paper]:
    """Return the papers of a catalogue by name, all of them without ``names``; raise BadInput for
    an unknown name.
    """
    by_name: dict[str, Paper] = {}
    for root in reversed(catalogue.roots):
        by_name |= {
            name: Paper.of(name, paper_cells, root) for name, paper_cells in cells(root).items()
        }
    unknown = [name for name in names if name not in by_name]
    if unknown:
        message = "there is no paper of this name"
        raise BadInput(
            [Fault((name, 0, 0), "", f"{message}{did_you_mean(name, by_name)}") for name in unknown]
        )
    return [by_name[name] for name in names or sorted(by_name)]
