"""Read a sweep: the base scenario, axes, how they combine, the evaluator, and what is kept and
drawn.

The file, in short::

    about: ...
    scenario: mirror_qwen3_32b_m2_ultra
    set: {requests.count: 30}
    axes:
      strategy.gamma: [1, 3, 7, 15]
      channel.latency_us: log:1:1000:7
    evaluate: law then simulation
    keep: best 10% of tpot_ms
    plots:
    - {kind: heatmap, x: strategy.gamma, y: channel.latency_us, value: speedup}

A value ``{label: 8, set: {field: value, ...}}`` sets fields that change together.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from simulator.core.faults import BadInput, UnknownField, did_you_mean
from simulator.core.plain import PlainData
from simulator.core.quantities import Frozen
from simulator.inputs.catalogue import FOLDERS, Catalogue, shown
from simulator.inputs.document import Document, assigned, read
from simulator.inputs.schema import validate
from simulator.scenario import Loaded, checked
from simulator.studies.sweep.axes import (
    NUMBER,
    Combination,
    Design,
    assigned as axis_assigned,
    axes_of,
    design,
)
from simulator.studies.sweep.base import Evaluator, SweepJob, with_settings
from simulator.studies.sweep.key import canonical, code_version, digest, fields_of, file_digest
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS

Evaluation = Literal["law", "replay", "simulation", "law then simulation"]
StatedAxis = list[Any] | str
KEEP = (
    rf"best (?P<share>\d{{1,3}}(?:\.\d+)?) ?% of (?P<of>\w+)|(?P<metric>\w+) ?(?P<sign><=|>=) "
    rf"?(?P<bound>{NUMBER})"
)


class Plot(Frozen):
    """States a picture of the table of a sweep.

    ``x`` and ``y`` are axes or metrics. ``value`` colours a heat map or is cut by the contour of
    ``level``; ``hue`` tells lines or points of one panel apart; ``facet`` makes a panel for each of
    its values. ``pareto`` marks the points that no point beats in both. A metric is that of the
    last evaluator, or of ``law_``, ``replay_``, ``simulation_`` before its name.
    """

    kind: Literal["line", "heatmap", "contour", "pareto"]
    """The kind of picture."""
    x: str
    """The axis or metric along the lower edge."""
    y: str | None = None
    """The axis or metric along the left edge."""
    value: str | None = None
    """The metric that colours a heat map or is cut by a contour."""
    hue: str | None = None
    """The axis whose values are lines or points of different colours."""
    facet: str | None = None
    """The axis with a panel for each of its values."""
    level: float = 1.0
    """The value at which a contour is drawn."""
    title: str = ""
    """The words above the picture."""
    name: str = Field(default="", pattern=r"^[\w-]*$")
    """The last part of its file's name."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = ("y", "value") if self.kind in ("heatmap", "contour") else ("y",)
        for field in needed:
            if getattr(self, field) is None:
                raise ValueError(f"a {self.kind} needs {field}")
        return self


class SweepFile(Frozen):
    """States a sweep as written; ``keep`` chooses points for a simulation: ``best 10% of tpot_ms``
    or ``speedup >= 1.2``.
    """

    about: str = ""
    """The question that the sweep asks, in a sentence."""
    scenario: str
    """The scenario that every point starts from."""
    set: PlainData = Field(default_factory=dict)
    """Dotted fields and their values, for all points."""
    axes: dict[str, StatedAxis] = Field(default_factory=dict)
    """Dotted fields, each with a list of values or a range ``first:last:count``."""
    combine: Combination = "product"
    """Every value with every other, the values in step, or points spread over the ranges."""
    samples: int = Field(default=0, ge=0, le=100_000_000)
    """Number of points of a Latin hypercube."""
    seed: int = Field(default=0, ge=0, le=10**18)
    """Seed of a Latin hypercube, and where it is stated of every point, as ``--seed`` has it."""
    evaluate: Evaluation = "simulation"
    """How points are evaluated."""
    keep: str = "best 10% of tpot_ms"
    """The points that a simulation confirms after the law."""
    metrics: tuple[str, ...] = ()
    """The columns to keep; by default all."""
    plots: tuple[Plot, ...] = ()
    """The pictures of the table."""

    @property
    def evaluators(self) -> tuple[Evaluator, ...]:
        """Return the evaluators, in the order in which they run."""
        if self.evaluate == "law then simulation":
            return ("law", "simulation")
        return (self.evaluate,)

    @field_validator("keep")
    @classmethod
    def _understood(cls, text: str) -> str:
        rule = re.fullmatch(KEEP, text.strip())
        if not rule:
            raise ValueError(f"expected 'best 10% of tpot_ms' or 'speedup >= 1.2', got '{text}'")
        metric = rule["of"] or rule["metric"]
        if metric not in LAW_METRICS:
            raise ValueError(f"the law does not give '{metric}'{did_you_mean(metric, LAW_METRICS)}")
        return text.strip()

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in METRICS:
                raise ValueError(f"there is no metric '{name}'{did_you_mean(name, METRICS)}")
        return names


@dataclass(frozen=True)
class SweepStudy:
    """Holds a sweep that is ready to be evaluated."""

    name: str
    file: SweepFile
    document: Document
    """The base scenario before any axis, and before it is checked."""
    base: Loaded
    catalogue: Catalogue
    design: Design

    def job(self, evaluator: Evaluator) -> SweepJob:
        """Return what goes to a worker with the points."""
        return SweepJob(self.identity, evaluator, self.document, self.catalogue)

    @property
    def definition(self) -> PlainData:
        """Return the sweep as plain data, enough to lay out its points again."""
        return {"name": self.name, **self.file.model_dump(mode="json")}

    @cached_property
    def identity(self) -> str:
        """Return the digest of everything that decides which scenario a point's number stands for,
        and what it comes to.
        """
        asked = {}
        for name, value in self.definition.items():
            if name in ("axes", "combine", "samples", "seed"):
                asked[name] = value
        named = [file_digest(path) for path in self._files_on_axes()]
        kinds = [kind for kind in FOLDERS if kind != "sweep"]
        shelves = [
            file_digest(path) for kind in kinds for path in self.catalogue.names(kind).values()
        ]
        read = fields_of(self.base, self.catalogue).values()
        return digest(
            canonical([self.document.data, asked]), *read, *named, *shelves, code_version()
        ).hex()

    def _files_on_axes(self) -> Iterator[Path]:
        """Yield the files that values of axes name."""
        for axis_of_files in self.design.axes:
            for fields in axis_of_files.settings:
                for value in fields.values():
                    if isinstance(value, str) and Path(value).is_file():
                        yield Path(value)

    def check(self) -> None:
        """Refuse an axis over a field that the first point does not have; other faults are for the
        points to say.
        """
        try:
            with_settings(self.base, self.design.point(0).settings, self.catalogue)
        except BadInput as error:
            if unknown := [fault for fault in error.faults if isinstance(fault, UnknownField)]:
                raise BadInput(
                    [replace(fault, place=(f"{self.name}: axes", 0, 0)) for fault in unknown]
                ) from error


class StoredSweep(SweepFile):
    """A sweep as its store has it, with the name that files about it begin with."""

    name: str = Field(pattern=r"^[^/\x00]*$")
    """What the sweep is called."""


def layout(definition: object) -> tuple[StoredSweep, Design]:
    """Return a sweep from its definition in a store, and its points; the scenario itself is not
    needed for that.
    """
    written = Document(definition, {(): ("store", 0, 0)})
    file = validate(StoredSweep, written)
    return file, _designed(file, written)


def study(
    name: str,
    catalogue: Catalogue,
    overrides: Sequence[str] = (),
    axes: Sequence[str] = (),
    seed: int | None = None,
    **stated: Any,
) -> SweepStudy:
    """Return the sweep of this name, or a sweep over the scenario of this name; what is ``stated``
    replaces the file's.

    ``axes`` (``key=values``) replace those of the same key or stand behind them; ``overrides``
    (``key=value``) change the base scenario. Raises :class:`BadInput`, also for an axis over a
    field that does not exist.
    """
    document = _document(name, catalogue)
    document.data |= {
        key: value for key, value in (stated | {"seed": seed}).items() if value is not None
    }
    for field, assignments, read_one in (
        ("axes", axes, axis_assigned),
        ("set", overrides, assigned),
    ):
        fields = document.data.setdefault(field, {})
        for assignment in assignments:
            key, value = read_one(assignment)
            fields[key] = value
            document.places[field, key] = (
                f"--{'axis' if field == 'axes' else 'set'} {assignment}",
                0,
                0,
            )
    file = validate(SweepFile, document)
    base = _base(file, document, catalogue)
    loaded = checked(deepcopy(base), catalogue)
    sweep = SweepStudy(Path(name).stem, file, base, loaded, catalogue, _designed(file, document))
    sweep.check()
    return sweep


def _document(name: str, catalogue: Catalogue) -> Document:
    """Return a sweep's file; or a document with nothing but the scenario of this name."""
    sweeps = catalogue.names("sweep")
    scenarios = catalogue.names("scenario")
    path = sweeps.get(name) or (Path(name) if "/" in name or name.endswith(".yaml") else None)
    if path is not None:
        document = read(path, shown(path))
        if "strategy" not in document.data and "like" not in document.data:
            return document
    elif name not in scenarios:
        hint = catalogue.elsewhere(name) or did_you_mean(name, {**sweeps, **scenarios})
        raise BadInput.at(name, f"there is no sweep and no scenario of this name{hint}")
    return Document({"scenario": name}, {(): (name, 0, 0)})


def _base(file: SweepFile, document: Document, catalogue: Catalogue) -> Document:
    """Return the scenario with what the sweep sets, before it is checked."""
    base = catalogue.scenario(
        str(catalogue.path("scenario", file.scenario, document, ("scenario",)))
    )
    for key, value in file.set.items():
        base.put(tuple(key.split(".")), value, document.place(("set", key)))
        catalogue.expand(base)
    if "seed" in file.model_fields_set:
        base.put(("seed",), file.seed, document.place(("seed",)))
    return base


def _designed(file: SweepFile, document: Document) -> Design:
    stated = {key: (values, document.place(("axes", key))) for key, values in file.axes.items()}
    return design(axes_of(stated), file.combine, file.samples, file.seed, document.place(("axes",)))


def kept(text: str, values: Iterable[tuple[int, float | None]]) -> set[int]:
    """Return the numbers of the points that ``keep`` chooses from (number, its metric).

    Of equal points it chooses those with the lowest numbers.
    """
    rule = re.fullmatch(KEEP, text)
    points = [(value, number) for number, value in values if value is not None]
    if rule is None:
        raise ValueError(text)
    if rule["metric"]:
        sign = 1.0 if rule["sign"] == "<=" else -1.0
        bound = float(rule["bound"])
        return {number for value, number in points if sign * value <= sign * bound}
    sign = 1.0 if METRICS[rule["of"]].less_is_better else -1.0
    best = sorted((sign * value, number) for value, number in points)
    return {number for _, number in best[: max(1, round(len(best) * float(rule["share"]) / 100.0))]}


def metric_of(text: str) -> str:
    """Return the name of the metric that ``keep`` looks at."""
    rule = re.fullmatch(KEEP, text)
    if rule:
        return rule["of"] or rule["metric"]
    return ""
