"""Plain data becomes frozen models; a fault names the place where the faulty value was written."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from simulator.files.document import (
    MOST_FAULTS,
    BadInput,
    Document,
    Fault,
    Infeasible,
    Path_,
    Place,
    UnknownField,
    did_you_mean,
    holds,
    parse,
    read,
    told,
)
from simulator.files.nearness import nearest_name

__all__ = [
    "BadInput",
    "Document",
    "Fault",
    "Infeasible",
    "Path_",
    "Place",
    "UnknownField",
    "did_you_mean",
    "parse",
    "read",
]
"""Modules that read files into models import these names from here, others from
:mod:`simulator.files.document`.
"""

Confidence = Literal[
    "measured", "calibrated", "datasheet", "published", "computed", "borrowed", "assumed"
]
"""How well a number is known."""


MOST_HOMES = 3
"""Most places one level below that a fault suggests for a field that was written one level too
high.
"""


class Frozen(BaseModel):
    """Base of all models that are read from files: immutable; unknown keys and infinite numbers are
    refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with fields replaced; what a cached property worked out of the old fields
        is left behind.
        """
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys() if update else ():
            del copied.__dict__[name]
        return copied


def descendants(base: type[Any]) -> Iterator[type[Any]]:
    """Yield every class that is derived from ``base``, directly or not."""
    for child in base.__subclasses__():
        yield child
        yield from descendants(child)


Rules = tuple[tuple[Callable[[float], bool], str], ...]
"""Conditions on a number, each with what is expected in words."""


class Sourced(Frozen):
    """A sourced number states where it comes from; the key that holds it carries its unit."""

    rules: ClassVar[Rules] = ()
    value: float
    """The number, in the unit of the key that holds it."""
    source: str = "not stated"
    """Where it comes from: a paper, a datasheet, a measurement."""
    confidence: Confidence = "assumed"
    """How well the number is known."""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, data: object) -> object:
        if isinstance(data, bool | dict | Sourced):
            return data
        return {"value": data}

    @model_validator(mode="after")
    def _within_rules(self) -> Self:
        for allowed, words in self.rules:
            if not allowed(self.value):
                raise ValueError(f"expected {words}, got {self.value:g}")
        return self


class SourcedTable(Frozen):
    """A sourced table states once where all of its numbers come from."""

    source: str = "not stated"
    """Where they come from: a paper, a datasheet, a measurement."""
    confidence: Confidence = "assumed"
    """How well they are known."""

    @property
    @abstractmethod
    def points(self) -> int:
        """Return how many numbers the table holds."""


class Positive(Sourced):
    """A sourced number above zero, and no smaller than makes times without end."""

    rules: ClassVar[Rules] = (
        (lambda value: value > 0, "a number above 0"),
        (lambda value: value >= 1e-30, "1e-30 or more"),
    )


class NonNegative(Sourced):
    """A sourced number of zero or more."""

    rules: ClassVar[Rules] = ((lambda value: value >= 0, "0 or more"),)


class OneOrMore(Sourced):
    """A sourced number of at least one."""

    rules: ClassVar[Rules] = ((lambda value: value >= 1, "1 or more"),)


class Ranged(NonNegative):
    """A sourced number of zero or more that is not known well: it lies between ``low`` and
    ``high``.
    """

    low: float | None = None
    """The least that it may be; by default the number itself."""
    high: float | None = None
    """The most that it may be; by default the number itself."""

    @model_validator(mode="after")
    def _within(self) -> Self:
        if (self.low is not None and self.low > self.value) or (
            self.high is not None and self.high < self.value
        ):
            raise ValueError(
                f"expected low <= value <= high, got {self.low}, {self.value:g}, {self.high}"
            )
        return self


class Open(Ranged):
    """A ranged number whose ends lie unevenly around it, so that each end is taken as such and not
    as a deviation.
    """


class Fraction(Positive):
    """A sourced share, above zero and at most one."""

    rules: ClassVar[Rules] = (*Positive.rules, (lambda value: value <= 1, "a share of at most 1"))


class Share(NonNegative):
    """A sourced share from none to all."""

    rules: ClassVar[Rules] = (
        *NonNegative.rules,
        (lambda value: value <= 1, "a share of at most 1"),
    )


def otherwise_named(name: str) -> BeforeValidator:
    """Return how fields of a union's member that give no name are read: as those of the member of
    this name.
    """
    return BeforeValidator(
        lambda stated: (
            {"name": name} | stated if isinstance(stated, dict) and "name" not in stated else stated
        )
    )


Model = TypeVar("Model", bound=BaseModel)


def validate(
    model: type[Model], document: Document, context: Mapping[str, object] | None = None
) -> Model:
    """Return a document as ``model``; raises :class:`BadInput` with all its faults, in the order of
    the file.
    """
    try:
        validated = model.model_validate(document.data, context=dict(context or {}))
    except ValidationError as error:
        raise _bad_input(model, document, error) from error
    whole: Any = validated
    if wrong := [
        path
        for path in _booleans(document.data)
        if type(reduce(_step, path, whole)) in (int, float)
    ]:
        raise BadInput(
            [document.fault(path, "expected a number, got true or false") for path in wrong]
        )
    return validated


def _booleans(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield where a document says true or false, which pydantic takes for 1 and 0."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if isinstance(value, bool):
            yield (*path, key)
        elif isinstance(value, dict | list):
            yield from _booleans(value, (*path, key))


def _step(model: Any, part: str | int) -> Any:
    """Return a field of a model, or an entry of a mapping or list; None where there is none."""
    if isinstance(model, BaseModel):
        return getattr(model, str(part), None)
    if holds(model, part):
        return model[part]
    return None


def _bad_input(model: type[BaseModel], document: Document, error: ValidationError) -> BadInput:
    """Return the faults that pydantic reports, without repetitions, in the order of the file; words
    for those that are told.
    """
    on_command_line = document.set_within()
    placed = []
    for report in error.errors(include_url=False):
        path = _written_path(document, report["loc"], report["type"] == "missing")
        placed.append((document.blamed(path, on_command_line), path, report))
    placed.sort(key=itemgetter(0))
    seen: set[object] = set()
    faults: list[Fault] = []
    more = 0
    for place, path, report in placed:
        typed = report["type"].endswith(("_parsing", "_type", "_from_float"))
        key: object = path
        if not typed and len(faults) < MOST_FAULTS:
            kind = UnknownField if report["type"] == "extra_forbidden" else Fault
            key = kind(place, ".".join(map(str, path)), _message(model, report, path))
        elif not typed:
            key = (path, report["type"], report["msg"])
        if key in seen:  # a field of two possible types is reported once for each
            continue
        seen.add(key)
        if len(faults) == MOST_FAULTS:
            more += 1
        else:
            faults.append(
                key
                if isinstance(key, Fault)
                else Fault(place, ".".join(map(str, path)), _message(model, report, path))
            )
    return BadInput(faults, more)


def _written_path(document: Document, loc: Path_, missing: bool) -> Path_:
    """Return the part of pydantic's location that exists in the document (it adds names of union
    members).
    """
    path: Path_ = ()
    value = document.data
    member = None
    for step, part in enumerate(loc):
        if (
            isinstance(value, dict)
            and value.get("name") == part
            and member is not value
            and step < len(loc) - 1
        ):
            member = value  # the name of a union's member, though a field may be called the same
            continue
        if holds(value, part):
            value = value[part]
        elif missing and isinstance(value, dict) and step == len(loc) - 1:
            return (*path, part)  # a missing field: point at the mapping that lacks it
        else:
            continue
        path = (*path, part)
    return path


PLAIN_WORDS: list[list[str]] = yaml.safe_load(
    Path(__file__).with_name("plain_words.yaml").read_text("utf-8")
)
"""Pattern in a message of pydantic, and its replacement in the words of the reference."""


def _message(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return what pydantic reports in our words."""
    kind = report["type"]
    given = report.get("input")
    if kind == "extra_forbidden":
        return f"unknown field{_perhaps(path, _around(model, report['loc']))}"
    if kind == "union_tag_invalid":
        tag = report["ctx"]["tag"]
        tags = re.findall(r"'([^']*)'", report["ctx"]["expected_tags"])
        return f"there is no {path[-1]} '{tag}'{did_you_mean(tag, tags)}"
    if kind == "union_tag_not_found":
        return "needs a field 'name'"
    if kind == "missing":
        return "is required and missing"
    text = str(report["msg"]).removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    if kind in ("value_error", "assertion_error"):
        return text
    for theirs, ours in PLAIN_WORDS:
        text = re.sub(theirs, ours, text)
    if kind == "model_attributes_type" and isinstance(given, str):
        text += f", as in {{name: {given}}}"
    if isinstance(given, dict | list):
        shown = ""
    else:
        shown = f", got {told(given)}"
    return f"{text}{shown}{_near(report) if kind == 'literal_error' else ''}"


def _near(report: Any) -> str:
    """Return which of the words that are possible was perhaps meant; empty where none is near."""
    near = nearest_name(str(report["input"]), re.findall(r"'([^']*)'", report["ctx"]["expected"]))
    if near:
        return f"; did you mean '{near}'?"
    return ""


def _perhaps(path: Path_, around: Sequence[type[BaseModel]]) -> str:
    """Return what an unknown field may have meant: a field of its name one level below, or one of a
    similar name.
    """
    word = str(path[-1])
    fields = [
        (name, info.annotation) for model in around for name, info in model.model_fields.items()
    ]
    homes = sorted(
        {
            name
            for name, kind in fields
            if any(word in below.model_fields for below in _models_in(kind))
        }
    )
    if 0 < len(homes) <= MOST_HOMES:
        paths = [".".join(map(str, (*path[:-1], home, word))) for home in homes]
        return f"; did you mean {' or '.join(map(repr, paths))}?"
    return did_you_mean(word, {name for model in around for name in model.model_fields})


def _around(model: type[BaseModel], loc: Path_) -> list[type[BaseModel]]:
    """Return the models that may stand where an unknown field was written."""
    models: list[type[BaseModel]] = [model]
    for part in loc[:-1]:
        inner: list[type[BaseModel]] = []
        for outer in models:
            if isinstance(part, str) and part in outer.model_fields:
                inner += _models_in(outer.model_fields[part].annotation)
        named = [outer for outer in models if getattr(outer, "name", None) == part]
        models = inner or named or models
    tags = [
        getattr(outer.model_fields.get("name"), "default", None) for outer in models
    ]  # by which a union chooses
    return [
        outer for outer, tag in zip(models, tags, strict=True) if loc[-2:-1] and tag == loc[-2]
    ] or models


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """Return the models that a type annotation mentions."""
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return [annotation]
        return []
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models_in(inner)]


def provenance(model: BaseModel, path: str = "") -> Iterator[dict[str, object]]:
    """Yield parameter, value, source and confidence of every sourced number in ``model``."""
    if isinstance(model, SourcedTable):
        yield {
            "parameter": f"{path} (points)",
            "value": model.points,
            "source": model.source,
            "confidence": model.confidence,
        }
    width = getattr(model, "width", ())
    if isinstance(width, tuple) and width:  # a measured table has one source for all its points
        source = getattr(model, "width_source", "not stated")
        confidences = {"calibrated-on": "calibrated", "borrowed from": "borrowed"}
        confidence = next(
            (known for start, known in confidences.items() if source.startswith(start)), "assumed"
        )
        yield {
            "parameter": f"{path}.width (points)",
            "value": len(width),
            "source": source,
            "confidence": confidence,
        }
    for name in type(model).model_fields:
        value = getattr(model, name)
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            parts = {f"{where}.{key}": inner for key, inner in value.items()}
        else:
            parts = {where: value}
        for place, part in parts.items():
            if isinstance(part, Sourced):
                yield {"parameter": place, **part.model_dump()}
            elif isinstance(part, BaseModel):
                yield from provenance(part, place)


Part = TypeVar("Part", bound=Frozen)


def nested(value: Any, kind: type[Part]) -> Iterator[Part]:
    """Yield every ``kind`` in ``value``, a model or a tuple or mapping of models; the inside of a
    ``kind`` is not searched.
    """
    if isinstance(value, kind):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, tuple):
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, Frozen):
        inner = (getattr(value, name) for name in type(value).model_fields)
    for part in inner:
        yield from nested(part, kind)


def replace_nested(value: Any, kind: type[Part], change: Callable[[Part], Part]) -> Any:
    """Return ``value`` with every ``kind`` in it replaced by what ``change`` returns; itself where
    nothing changes.

    A model around a changed part is made anew, so that no cached property of it is kept.
    """
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        parts = [replace_nested(part, kind, change) for part in value]
        changed = any(new is not old for new, old in zip(parts, value, strict=True))
        return type(value)(parts) if changed else value
    if isinstance(value, dict):
        members = {key: replace_nested(member, kind, change) for key, member in value.items()}
        changed = any(members[key] is not value[key] for key in value)
        return members if changed else value
    if isinstance(value, Frozen):
        before = {name: getattr(value, name) for name in type(value).model_fields}
        fields = {name: replace_nested(field, kind, change) for name, field in before.items()}
        changed = any(fields[name] is not before[name] for name in before)
        return type(value)(**fields) if changed else value
    return value
