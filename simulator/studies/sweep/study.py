"""A sweep as a file states it: the base scenario, axes, how they combine, who evaluates, what is kept and drawn.

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

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from simulator.catalogue import FOLDERS, Catalogue, shown
from simulator.files.schema import BadInput, Document, Fault, Frozen, Place, UnknownField, did_you_mean, parse, read, validate
from simulator.scenario import Loaded, checked
from simulator.studies.sweep.axes import Combination, Design, assigned, axis, design
from simulator.studies.sweep.base import Evaluator, SweepJob, with_settings
from simulator.studies.sweep.key import canonical, code_version, digest, fields_of, file_digest
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS

Evaluation = Literal["law", "replay", "simulation", "law then simulation"]
AxisGiven = list[Any] | str
KEEP = r"best (?P<share>\d+(?:\.\d+)?) ?% of (?P<of>\w+)|(?P<metric>\w+) ?(?P<sign><=|>=) ?(?P<bound>[-+.\deE]+)"


class Plot(Frozen):
    """A picture of the table.

    ``x`` and ``y`` are axes or metrics. ``value`` colours a heat map or is cut by the contour of ``level``; ``hue`` tells
    lines or points of one panel apart; ``facet`` makes a panel for each of its values. ``pareto`` marks what no other point
    beats in both. A metric is meant as the last evaluator found it, or as ``law_``, ``replay_``, ``simulation_`` say.
    """

    kind: Literal["line", "heatmap", "contour", "pareto"]
    """What sort of picture."""
    x: str
    """Axis or metric."""
    y: str | None = None
    """Axis or metric."""
    value: str | None = None
    """What colours a heat map or is cut by a contour."""
    hue: str | None = None
    """Tells lines or points apart."""
    facet: str | None = None
    """A panel for each of its values."""
    level: float = 1.0
    """Where a contour cuts."""
    title: str = ""
    """Above the picture."""
    name: str = Field(default="", pattern=r"^[\w-]*$")
    """Of its file."""

    @model_validator(mode="after")
    def _whole(self) -> Plot:
        needed = ("y", "value") if self.kind in ("heatmap", "contour") else ("y",)
        for field in needed:
            if getattr(self, field) is None:
                raise ValueError(f"a {self.kind} needs {field}")
        return self


class SweepFile(Frozen):
    """One sweep; ``keep`` says which points a simulation is to confirm: ``best 10% of tpot_ms`` or ``speedup >= 1.2``."""

    about: str = ""
    """What it asks, in a sentence."""
    scenario: str
    """Where every point starts from."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted fields and their values, for all points."""
    axes: dict[str, AxisGiven] = Field(default_factory=dict)
    """Dotted fields, each with a list of values or a range ``first:last:count``."""
    combine: Combination = "product"
    """Every value with every other, the values in step, or points spread over the ranges."""
    samples: int = Field(default=0, ge=0)
    """Points of a Latin hypercube."""
    seed: int = Field(default=0, ge=0)
    """Of a Latin hypercube."""
    evaluate: Evaluation = "simulation"
    """By what a point is judged."""
    keep: str = "best 10% of tpot_ms"
    """Which points a simulation confirms after the law."""
    metrics: tuple[str, ...] = ()
    """Columns to keep; by default all."""
    plots: tuple[Plot, ...] = ()
    """Pictures of the table."""

    @property
    def evaluators(self) -> tuple[Evaluator, ...]:
        """Who evaluates, one after the other."""
        return ("law", "simulation") if self.evaluate == "law then simulation" else (self.evaluate,)

    @field_validator("keep")
    @classmethod
    def _understood(cls, text: str) -> str:
        found = re.fullmatch(KEEP, text.strip())
        if not found:
            raise ValueError(f"expected 'best 10% of tpot_ms' or 'speedup >= 1.2', got '{text}'")
        metric = found["of"] or found["metric"]
        if metric not in LAW_METRICS:
            raise ValueError(f"the law says nothing of '{metric}'{did_you_mean(metric, LAW_METRICS)}")
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
    """A sweep ready to be evaluated."""

    name: str
    file: SweepFile
    document: Document
    """The base scenario before any axis, and before it is checked."""
    base: Loaded
    catalogue: Catalogue
    design: Design

    def job(self, evaluator: Evaluator) -> SweepJob:
        """What a worker is told."""
        return SweepJob(self.identity, evaluator, self.document, self.catalogue)

    @property
    def definition(self) -> dict[str, Any]:
        """The sweep as plain data, enough to lay out its points again."""
        return {"name": self.name, **self.file.model_dump(mode="json")}

    @cached_property
    def identity(self) -> str:
        """Of everything that decides which scenario a point's number stands for, and what it comes to."""
        asked = {name: value for name, value in self.definition.items() if name in ("axes", "combine", "samples", "seed")}
        texts = [value for one in self.design.axes for fields in one.settings for value in fields.values()]
        named = [file_digest(Path(text)) for text in texts if isinstance(text, str) and Path(text).is_file()]
        shelves = [file_digest(path) for kind in FOLDERS for path in self.catalogue.names(kind).values() if kind != "sweep"]
        read = fields_of(self.base, self.catalogue).values()
        return digest(canonical([self.document.data, asked]), *read, *named, *shelves, code_version()).hex()

    def check(self) -> None:
        """Refuse an axis over a field that the first point does not have; other faults are for the points to say."""
        try:
            with_settings(self.base, self.design.point(0).settings, self.catalogue)
        except BadInput as error:
            if unknown := [fault for fault in error.faults if isinstance(fault, UnknownField)]:
                raise BadInput([replace(fault, place=(f"{self.name}: axes", 0, 0)) for fault in unknown]) from error


def layout(definition: Mapping[str, Any]) -> tuple[SweepFile, Design]:
    """A definition from a store, and its points; the scenario itself is not needed for that."""
    written = Document({name: value for name, value in definition.items() if name != "name"}, {(): ("store", 0, 0)})
    file = validate(SweepFile, written)
    return file, _designed(file, written)


def study(
    name: str,
    catalogue: Catalogue,
    overrides: Sequence[str] = (),
    axes: Sequence[str] = (),
    seed: int | None = None,
    **stated: Any,
) -> SweepStudy:
    """The sweep of this name, or a sweep over the scenario of this name, with what is ``stated`` in place of the file's.

    ``axes`` (``key=values``) replace those of the same key or stand behind them; ``overrides`` (``key=value``) change the
    base scenario. Raises :class:`BadInput`, also for an axis over a field that does not exist.
    """
    document = _document(name, catalogue)
    document.data |= {key: value for key, value in stated.items() if value is not None}
    for field, assignments, read_one in (("axes", axes, assigned), ("set", overrides, _override)):
        held = document.data.setdefault(field, {})
        for assignment in assignments:
            key, value = read_one(assignment)
            held[key] = value
            document.places[field, key] = (f"--{'axis' if field == 'axes' else 'set'} {assignment}", 0, 0)
    file = validate(SweepFile, document)
    base = _base(file, document, catalogue, seed)
    loaded = checked(deepcopy(base), catalogue)
    found = SweepStudy(Path(name).stem, file, base, loaded, catalogue, _designed(file, document))
    found.check()
    return found


def _document(name: str, catalogue: Catalogue) -> Document:
    """A sweep's file; or one that has nothing but the scenario of this name."""
    sweeps, scenarios = catalogue.names("sweep"), catalogue.names("scenario")
    path = sweeps.get(name) or (Path(name) if "/" in name or name.endswith(".yaml") else None)
    if path is not None:
        document = read(path, shown(path))
        if "strategy" not in document.data and "like" not in document.data:
            return document
    elif name not in scenarios:
        hint = catalogue.elsewhere(name) or did_you_mean(name, {**sweeps, **scenarios})
        message = f"there is no sweep and no scenario of this name{hint}"
        raise BadInput([Fault((name, 0, 0), "", message)])
    return Document({"scenario": name}, {(): (name, 0, 0)})


def _base(file: SweepFile, document: Document, catalogue: Catalogue, seed: int | None) -> Document:
    """The scenario with what the sweep sets, before it is checked."""
    base = catalogue.scenario(str(catalogue.path("scenario", file.scenario, document, ("scenario",))))
    for key, value in file.set.items():
        base.put(tuple(key.split(".")), value, document.place(("set", key)))
        catalogue.expand(base)
    if seed is not None:
        base.data["seed"] = seed
    return base


def _override(assignment: str) -> tuple[str, Any]:
    key, equals, text = assignment.partition("=")
    place: Place = (f"--set {assignment}", 0, 0)
    if not equals or not key:
        raise BadInput([Fault(place, "", "expected key=value, as in target.tensor_parallel=4")])
    return key, parse(text, place[0]).data


def _designed(file: SweepFile, document: Document) -> Design:
    axes = [axis(key, given, document.place(("axes", key))) for key, given in file.axes.items()]
    return design(axes, file.combine, file.samples, file.seed, document.place(("axes",)))


def kept(text: str, values: Iterable[tuple[int, float | None]]) -> set[int]:
    """Numbers of the points that ``keep`` chooses from (number, its metric); of equal ones those with the lowest numbers."""
    found = re.fullmatch(KEEP, text)
    known = [(value, number) for number, value in values if value is not None]
    if found is None:
        raise ValueError(text)
    if metric := found["metric"]:
        sign, bound = (1.0 if found["sign"] == "<=" else -1.0), float(found["bound"])
        return {number for value, number in known if sign * value <= sign * bound and metric}
    sign = 1.0 if METRICS[found["of"]].less_is_better else -1.0
    best = sorted((sign * value, number) for value, number in known)
    return {number for _, number in best[: max(1, round(len(best) * float(found["share"]) / 100.0))]}


def metric_of(text: str) -> str:
    """The metric that ``keep`` looks at."""
    found = re.fullmatch(KEEP, text)
    return (found["of"] or found["metric"]) if found else ""
