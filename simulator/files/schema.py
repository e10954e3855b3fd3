"""From plain data to frozen models, with faults about what was written in the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from simulator.files.document import (
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
)

__all__ = ["BadInput", "Document", "Fault", "Infeasible", "Path_", "Place", "UnknownField", "did_you_mean", "parse", "read"]
"""What reads a file into models needs of the text, from here; what does without models takes it where it stands."""

Confidence = Literal["measured", "calibrated", "datasheet", "published", "computed", "assumed"]


MOST_HOMES = 3
"""So many places of a field one level below are named to someone who wrote it one too high."""


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, unknown keys and infinities refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def descendants(base: type[Any]) -> Iterator[type[Any]]:
    """Every class that comes from it, near or far."""
    for child in base.__subclasses__():
        yield child
        yield from descendants(child)


class Sourced(Frozen):
    """A number with the place it comes from; the key that holds it carries its unit."""

    value: float
    """The number, in the unit of the key that holds it."""
    source: str = "not stated"
    """Where it comes from: a paper, a datasheet, a measurement."""
    confidence: Confidence = "assumed"
    """How well it is known."""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, data: object) -> object:
        return {"value": data} if isinstance(data, int | float) and not isinstance(data, bool) else data


class Positive(Sourced):
    """A sourced number above zero."""

    @model_validator(mode="after")
    def _above_zero(self) -> Positive:
        if self.value <= 0:
            raise ValueError(f"expected a number above 0, got {self.value:g}")
        return self


class NonNegative(Sourced):
    """A sourced number of zero or more."""

    @model_validator(mode="after")
    def _not_below_zero(self) -> NonNegative:
        if self.value < 0:
            raise ValueError(f"expected 0 or more, got {self.value:g}")
        return self


class OneOrMore(Sourced):
    """A sourced number of at least one."""

    @model_validator(mode="after")
    def _not_below_one(self) -> OneOrMore:
        if self.value < 1:
            raise ValueError(f"expected 1 or more, got {self.value:g}")
        return self


class Fraction(Positive):
    """A sourced share, above zero and at most one."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Fraction:
        if self.value > 1:
            raise ValueError(f"expected a share of at most 1, got {self.value:g}")
        return self


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], document: Document, context: Mapping[str, object] | None = None) -> Model:
    """Turn a document into ``model``; raises :class:`BadInput` with one fault per thing wrong, in the order of the file."""
    try:
        found = model.model_validate(document.data, context=dict(context or {}))
    except ValidationError as error:
        raise BadInput(sorted(_faults(model, document, error), key=lambda fault: fault.place)) from error
    if wrong := [path for path in _booleans(document.data) if type(_attribute(found, path)) in (int, float)]:
        raise BadInput([document.fault(path, "expected a number, got true or false") for path in wrong])
    return found


def _booleans(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where a document says true or false, which pydantic takes for 1 and 0."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if isinstance(value, bool):
            yield (*path, key)
        else:
            yield from _booleans(value, (*path, key))


def _attribute(model: Any, path: Path_) -> object:
    for part in path:
        model = getattr(model, str(part), None) if isinstance(model, BaseModel) else model[part] if holds(model, part) else None
    return model


def _faults(model: type[BaseModel], document: Document, error: ValidationError) -> Iterator[Fault]:
    seen: set[object] = set()
    for item in error.errors():
        path = _written_path(document, item["loc"], item["type"] == "missing")
        message = _message(model, item, path)
        fault = document.fault(path, message)
        if item["type"] == "extra_forbidden":
            fault = UnknownField(fault.place, fault.field, fault.message)
        key = path if item["type"].endswith(("_parsing", "_type", "_from_float")) else fault
        if key not in seen:  # a field that may be of two types complains about each
            seen.add(key)
            yield fault


def _written_path(document: Document, loc: Path_, missing: bool) -> Path_:
    """The part of pydantic's location that exists in the document (it adds names of union members)."""
    path: Path_ = ()
    value, member = document.data, None
    for step, part in enumerate(loc):
        if isinstance(value, dict) and value.get("name") == part and member is not value and step < len(loc) - 1:
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


PLAIN_WORDS = (
    (r"^input should be", "expected"),
    (r"^\w+ should have at least (\d+) items? after validation, not (\d+)$", r"expected \1 or more, got \2"),
    (r"a valid integer.*", "a whole number"),
    (r"a valid number.*", "a number"),
    (r"a valid boolean.*", "true or false"),
    (r"a valid string", "text"),
    (r"a valid tuple", "a list"),
    (r"a valid dictionary or object to extract fields from", "a mapping of fields"),
    (r"a valid dictionary", "a mapping"),
    (r" or instance of \w+", ""),
    (r"greater than or equal to (\S+)", r"\1 or more"),
    (r"less than or equal to (\S+)", r"at most \1"),
    (r"greater than (\S+)", r"a number above \1"),
    (r"less than (\S+)", r"a number below \1"),
)
"""What the library says of a value, and what we say, in the words of the reference."""


def _message(model: type[BaseModel], item: Any, path: Path_) -> str:
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        return f"unknown field{_perhaps(path, _around(model, item['loc']))}"
    if kind == "union_tag_invalid":
        known = re.findall(r"'([^']*)'", item["ctx"]["expected_tags"])
        return f"there is no {path[-1]} '{item['ctx']['tag']}'{did_you_mean(item['ctx']['tag'], known)}"
    if kind == "union_tag_not_found":
        return "needs a field 'name'"
    if kind == "missing":
        return "is required and missing"
    text = str(item["msg"]).removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    if kind in ("value_error", "assertion_error"):
        return text
    for theirs, ours in PLAIN_WORDS:
        text = re.sub(theirs, ours, text)
    if kind == "model_attributes_type" and isinstance(given, str):
        text += f", as in {{name: {given}}}"
    return text if isinstance(given, dict | list) else f"{text}, got {_as_yaml(given)}"


def _as_yaml(given: object) -> str:
    """A value as its file has it."""
    return "null" if given is None else str(given).lower() if isinstance(given, bool) else repr(given)


def _perhaps(path: Path_, around: Sequence[type[BaseModel]]) -> str:
    """What was meant by a field that none of the models ``around`` it has: the same one level below, or a name like it."""
    word = str(path[-1])
    fields = [(name, info.annotation) for model in around for name, info in model.model_fields.items()]
    homes = sorted({name for name, kind in fields if any(word in below.model_fields for below in _models_in(kind))})
    if 0 < len(homes) <= MOST_HOMES:
        return f"; did you mean {' or '.join(repr('.'.join(map(str, (*path[:-1], home, word)))) for home in homes)}?"
    return did_you_mean(word, {name for model in around for name in model.model_fields})


def _around(model: type[BaseModel], loc: Path_) -> list[type[BaseModel]]:
    """The models that may stand where the unknown field does."""
    known: list[type[BaseModel]] = [model]
    for part in loc[:-1]:
        inner = [_models_in(m.model_fields[part].annotation) for m in known if isinstance(part, str) and part in m.model_fields]
        named = [m for m in known if getattr(m, "name", None) == part]
        known = [m for group in inner for m in group] or named or known
    return [m for m in known if loc[-2:-1] and _tag(m) == loc[-2]] or known


def _tag(model: type[BaseModel]) -> object:
    name = model.model_fields.get("name")
    return getattr(name, "default", None)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models_in(inner)]


def provenance(model: BaseModel, path: str = "") -> Iterator[dict[str, object]]:
    """Every sourced number below ``model``: parameter, value, source and confidence."""
    width = getattr(model, "width", ())
    if isinstance(width, tuple) and width:  # a measured table has one source for all its points
        source = getattr(model, "width_source", "not stated")
        confidence = "calibrated" if source.startswith("calibrated-on") else "assumed"
        yield {"parameter": f"{path}.width (points)", "value": len(width), "source": source, "confidence": confidence}
    for name in type(model).model_fields:
        value = getattr(model, name)
        where = f"{path}.{name}" if path else name
        if isinstance(value, Sourced):
            yield {"parameter": where, **value.model_dump()}
        elif isinstance(value, BaseModel):
            yield from provenance(value, where)
        elif isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, BaseModel):
                    nested = {"parameter": f"{where}.{key}", **inner.model_dump()} if isinstance(inner, Sourced) else None
                    yield from [nested] if nested else provenance(inner, f"{where}.{key}")


Part = TypeVar("Part", bound=Frozen)


def replace_nested(one: Any, kind: type[Part], change: Callable[[Part], Part]) -> Any:
    """``one`` with every ``kind`` in it replaced by what ``change`` makes of it; itself where that changes nothing.

    What holds something changed is made anew, so that nothing it has computed is kept.
    """
    if isinstance(one, kind):
        return change(one)
    if isinstance(one, tuple):
        parts = [replace_nested(part, kind, change) for part in one]
        return one if all(new is old for new, old in zip(parts, one, strict=True)) else type(one)(parts)
    if isinstance(one, dict):
        held = {key: replace_nested(value, kind, change) for key, value in one.items()}
        return one if all(held[key] is one[key] for key in one) else held
    if isinstance(one, Frozen):
        held = {name: getattr(one, name) for name in type(one).model_fields}
        fields = {name: replace_nested(value, kind, change) for name, value in held.items()}
        return one if all(fields[name] is held[name] for name in held) else type(one)(**fields)
    return one
