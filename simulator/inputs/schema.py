"""Plain data becomes frozen models; a fault names the place where the faulty value was written."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simulator.core.faults import (
    MOST_FAULTS,
    BadInput,
    Fault,
    Path_,
    UnknownField,
    did_you_mean,
    told,
)
from simulator.core.nearness import nearest_name
from simulator.inputs.document import Document, holds
from simulator.inputs.loader import packaged

MOST_HOMES = 3
"""Most places one level below that a fault suggests for a field that was written one level too
high.
"""


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
        if _follows(report):
            continue
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


def _follows(report: Any) -> bool:
    """Return whether a list is found too short only as what stands in it is wrong."""
    if report["type"] != "too_short":
        return False
    return len(report["input"]) >= int(report["ctx"]["min_length"])


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
        elif missing and isinstance(value, dict | str) and step == len(loc) - 1:
            return (*path, part)  # a missing field: point at the mapping that lacks it
        else:
            continue
        path = (*path, part)
    return path


PLAIN_WORDS: list[list[str]] = packaged(Path(__file__).with_name("plain_words.yaml"))
"""Pattern in a message of pydantic, and its replacement in the words of the reference."""
NUMBER = "number"
"""The tag of a number among the members of a union that have names."""


def _message(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return what pydantic reports in our words."""
    message = MESSAGES.get(report["type"], _reworded)
    return message(model, report, path)


def _unknown_field(model: type[BaseModel], report: Any, path: Path_) -> str:
    return f"unknown field{_perhaps(path, _around(model, report['loc']))}"


def _unknown_name(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return which of the models that may stand there was perhaps meant by a name."""
    tag = report["ctx"]["tag"]
    tags = _quoted(report["ctx"]["expected_tags"])
    names = [name for name in tags if name != NUMBER]
    or_else = ", or a number" if NUMBER in tags else ""
    return f"there is no {path[-1]} '{tag}'{did_you_mean(tag, names)}{or_else}"


def _without_name(model: type[BaseModel], report: Any, path: Path_) -> str:
    possible = ", ".join(sorted(_names_at(model, report["loc"])))
    return f"needs a field 'name'{': one of ' if possible else ''}{possible}"


def _missing(model: type[BaseModel], report: Any, path: Path_) -> str:
    return "is required and missing"


def _told_by_check(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return what a check of ours said."""
    text = str(report["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _unknown_word(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return which words are possible, and which of them was perhaps meant."""
    near = nearest_name(str(report["input"]), _quoted(report["ctx"]["expected"]))
    perhaps = f"; did you mean '{near}'?" if near else ""
    return _reworded(model, report, path) + perhaps


def _quoted(words: str) -> list[str]:
    """Return the words that pydantic puts between quotes."""
    return re.findall(r"'([^']*)'", words)


def _reworded(model: type[BaseModel], report: Any, path: Path_) -> str:
    """Return what pydantic says in the words of the reference, what else may stand there, and what
    was given.
    """
    kind = report["type"]
    given = report.get("input")
    text = _told_by_check(model, report, path)
    for theirs, ours in PLAIN_WORDS:
        text = re.sub(theirs, ours, text)
    of_number = report["loc"][-1:] == (NUMBER,) and kind.endswith(("_parsing", "_type"))
    if of_number and (members := _names_at(model, report["loc"][:-1])):
        text += f" or {{name: ...}} of {', '.join(sorted(members))}"
    if kind == "model_attributes_type" and isinstance(given, str):
        text += f", as in {{name: {given}}}"
    if isinstance(given, dict | list):
        return text
    return f"{text}, got {told(given)}"


MESSAGES: dict[str, Callable[[type[BaseModel], Any, Path_], str]] = {
    "extra_forbidden": _unknown_field,
    "union_tag_invalid": _unknown_name,
    "union_tag_not_found": _without_name,
    "missing": _missing,
    "value_error": _told_by_check,
    "assertion_error": _told_by_check,
    "literal_error": _unknown_word,
}
"""Takes the model that was read for, the report and its path; returns the message, by pydantic's
type of error. All others are pydantic's own in plain words.
"""


def _names_at(model: type[BaseModel], loc: Path_) -> set[str]:
    """Return the names of the models of which one may stand at a field."""
    names = set[str]()
    for around in _around(model, loc):
        field = around.model_fields.get(str(loc[-1]))
        for member in _models_in(field.annotation if field else None):
            if name := _name_of(member):
                names.add(str(name))
    return names - {"PydanticUndefined"}


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
    return [outer for outer in models if loc[-2:-1] == (_name_of(outer),)] or models


def _name_of(model: type[BaseModel]) -> object:
    """Return the name by which a union chooses a model; None without one."""
    return getattr(model.model_fields.get("name"), "default", None)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """Return the models that a type annotation mentions."""
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return [annotation]
        return []
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models_in(inner)]
