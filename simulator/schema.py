"""From YAML text to frozen models, with faults that name file, line, column and field.

The loader reads numbers as YAML 1.2 does (``1e9`` is a number, ``on`` is a word), refuses duplicate
keys and remembers where each value stood. Everything that users write passes through here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from simulator import bounded

Confidence = Literal["measured", "calibrated", "datasheet", "published", "computed", "assumed"]
DEEPEST = 32
"""Levels of nesting; far more than any file of ours has."""
MOST_VALUES = 20_000
"""Values in a file, what an alias stands for counted each time; a hundred times what any of ours has."""
LONGEST_NAME = 100
"""Characters of a name that others are compared with."""
LONGEST_FAULT = 2_000
"""Characters of a line about a fault."""
Place = tuple[str, int, int]  # file (or "--set"), line, column; lines and columns count from 1
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """One thing wrong with the input, in the words of the person who wrote it."""

    place: Place
    field: str
    message: str

    def __str__(self) -> str:
        file, line, column = self.place
        where = f"{file}:{line}:{column}" if line else file
        text = f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"
        text = text if len(text) <= LONGEST_FAULT else f"{text[: LONGEST_FAULT // 2]} … {text[-LONGEST_FAULT // 2 :]}"
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class UnknownField(Fault):
    """A field that does not exist."""


class BadInput(Exception):
    """The input cannot be understood; exit code 2. Carries one fault or more."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type[BadInput], tuple[tuple[Fault, ...]]]:
        """Whole on its way between processes."""
        return type(self), (self.faults,)


class Infeasible(BadInput):
    """The input is understood but nothing can run, as when a model does not fit; exit code 3."""

    exit_code = 3


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, unknown keys and infinities refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sourced(Frozen):
    """A number with the place it comes from; the key that holds it carries its unit."""

    value: float
    source: str = "not stated"
    confidence: Confidence = "assumed"

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


class Fraction(Positive):
    """A sourced share, above zero and at most one."""

    @model_validator(mode="after")
    def _at_most_one(self) -> Fraction:
        if self.value > 1:
            raise ValueError(f"expected a share of at most 1, got {self.value:g}")
        return self


class _Loader(yaml.SafeLoader):
    """Safe loader with the number rules of YAML 1.2 that stops at what no file of ours needs."""

    depth = values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next value; raises :class:`yaml.MarkedYAMLError` for too many of them, or too deep ones."""
        self.depth, self.values = self.depth + 1, self.values + 1
        if self.depth > 2 * DEEPEST or self.values > MOST_VALUES:
            what = "is nested too deeply" if self.depth > 2 * DEEPEST else f"holds more than {MOST_VALUES:,} values"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=what, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "null", "int", "float", "str", "map", "seq")}
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))


@dataclass
class Document:
    """Plain data and, for each path into it, the place where it was written."""

    data: Any
    places: dict[Path_, Place] = field(default_factory=dict)
    mentions: dict[Path_, Place] = field(default_factory=dict)
    """Where a file now in place was named."""

    def place(self, path: Path_) -> Place:
        """The place of ``path``, or of the nearest thing around it that was written down."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, ("input", 0, 0))

    def fault(self, path: Path_, message: str) -> Fault:
        """A fault about the value at ``path``."""
        within = [place for inner, place in self.places.items() if inner[: len(path)] == path and place[0].startswith("--set")]
        place = within[-1] if path and within else self.mentions.get(path) or self.place(path)
        return Fault(place, ".".join(map(str, path)), message)

    def get(self, path: Path_) -> Any:
        """The value at ``path``, None where there is none."""
        value = self.data
        for key in path:
            if not _holds(value, key):
                return None
            value = value[key]
        return value

    def graft(self, path: Path_, other: Document) -> None:
        """Put another document's content at ``path``; its places stay those of its own file."""
        parent = self.data
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = other.data
        self._forget_mentions(path)
        for old in [known for known in self.places if known[: len(path)] == path]:
            del self.places[old]
        self.places |= {path + inner: place for inner, place in other.places.items()}

    def _forget_mentions(self, path: Path_) -> None:
        for old in [known for known in self.mentions if known[: len(path)] == path]:
            del self.mentions[old]

    def merge(self, other: Document, path: Path_ = ()) -> None:
        """Lay ``other`` over this document: mappings merge, everything else is replaced.

        A mapping that changes its ``name`` (another strategy, another drafter) replaces the old one whole.
        """
        for key, value in other.get(path).items():
            inner, held = (*path, key), self.get((*path, key))
            if isinstance(value, dict) and isinstance(held, dict) and value.get("name", held.get("name")) == held.get("name"):
                self.merge(other, inner)
                self.places[inner] = other.places[inner]
            else:
                places = {place[len(inner) :]: where for place, where in other.places.items() if place[: len(inner)] == inner}
                self.graft(inner, Document(value, places))

    def override(self, assignment: str) -> None:
        """Apply ``dotted.key=value`` with the value read as YAML; the fault place becomes ``--set``."""
        key, equals, text = assignment.partition("=")
        place: Place = (f"--set {assignment}", 0, 0)
        if not equals or not key:
            raise BadInput([Fault(place, "", "expected key=value, as in target.tensor_parallel=4")])
        self.put(tuple(key.split(".")), parse(text, place[0]).data, place)

    def put(self, path: Path_, value: Any, place: Place) -> None:
        """Write ``value`` at ``path``, made where it is missing; faults about it will name ``place``.

        A plain number where a number with a source stands is one that was set by hand.
        """
        parent = self.data
        for depth, part in enumerate(path[:-1]):
            if not isinstance(parent.get(part), dict):
                if parent.get(part) is not None:
                    held = ".".join(map(str, path[: depth + 1]))
                    raise BadInput([Fault(place, held, f"holds {parent[part]!r}, which has no fields of its own")])
                parent[part] = {}
                self.places[path[: depth + 1]] = place
            parent = parent[part]
        sourced = isinstance(parent.get(path[-1]), dict) and "value" in parent[path[-1]]
        if sourced and not isinstance(value, dict):
            value = {"value": value, "source": "set on the command line", "confidence": "assumed"}
        parent[path[-1]] = value
        self._forget_mentions(path)
        for old in [known for known in self.places if known[: len(path)] == path]:
            del self.places[old]
        self.places[path] = place

    def branched(self, paths: Iterable[Path_]) -> Document:
        """A copy of which everything on the way to ``paths`` may be changed; the rest is shared."""
        root = dict(self.data)
        for path in paths:
            parent = root
            for part in path[:-1]:
                if not isinstance(parent.get(part), dict):
                    break
                parent[part] = parent = dict(parent[part])
        return Document(root, dict(self.places), dict(self.mentions))


def parse(text: str, file: str) -> Document:
    """Read YAML text; ``file`` is the name that faults will show.

    Raises :class:`BadInput` for broken syntax, duplicate keys and keys that are not words.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (file, mark.line + 1, mark.column + 1) if mark else (file, 0, 0)
        raise BadInput([Fault(place, "", f"not valid YAML: {error.problem}")]) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = (file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise BadInput([Fault(place, "", f"not valid YAML: {text[error.position]!r} is no character of a text")]) from error
    document = Document(None)
    if root is not None:
        document.data = _build(root, (), file, document.places)
    return document


def read(path: Path, shown: str | None = None) -> Document:
    """Read a YAML file that must hold a mapping."""
    name = shown or str(path)
    try:
        text = bounded.text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput([Fault((name, 0, 0), "", f"cannot be read: {bounded.reason(error)}")]) from error
    document = parse(text, name)
    if not isinstance(document.data, dict):
        raise BadInput([Fault((name, 1, 1), "", "expected a mapping of fields to values")])
    return document


def _build(node: yaml.Node, path: Path_, file: str, places: dict[Path_, Place]) -> Any:
    places[path] = (file, node.start_mark.line + 1, node.start_mark.column + 1)
    if len(path) > DEEPEST:
        raise BadInput([Fault(places[path], ".".join(map(str, path[:3])), "is nested too deeply, or contains itself")])
    if len(places) > MOST_VALUES:
        raise BadInput([Fault(places[path], "", f"holds more than {MOST_VALUES:,} values, aliases counted each time")])
    if node.tag not in _PLAIN_TAGS:
        raise BadInput([Fault(places[path], ".".join(map(str, path)), "a tag that is not allowed here")])
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, file, places)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, index), file, places) for index, item in enumerate(node.value)]
    loader = _Loader("")
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, KeyError) as error:  # a tag on what it does not fit; more digits than Python reads
        raise BadInput([Fault(places[path], ".".join(map(str, path)), f"is no {node.tag.rpartition(':')[2]}")]) from error
    finally:
        loader.dispose()


def _build_mapping(node: yaml.MappingNode, path: Path_, file: str, places: dict[Path_, Place]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            here = (file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            raise BadInput([Fault(here, ".".join(map(str, path)), "expected a word as key")])
        key = str(key_node.value)
        inner = (*path, key)
        place = (file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if key in result:
            raise BadInput([Fault(place, ".".join(map(str, inner)), f"written twice; first on line {places[inner][1]}")])
        result[key] = _build(value_node, inner, file, places)
        places[inner] = place
    return result


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], document: Document, context: Mapping[str, object] | None = None) -> Model:
    """Turn a document into ``model``; raises :class:`BadInput` with one fault per thing wrong."""
    try:
        found = model.model_validate(document.data, context=dict(context or {}))
    except ValidationError as error:
        raise BadInput(_faults(model, document, error)) from error
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
        model = (
            getattr(model, str(part), None) if isinstance(model, BaseModel) else model[part] if _holds(model, part) else None
        )
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
        if isinstance(value, dict) and value.get("name") == part and member is not value:
            member = value  # the name of a union's member, though a field may be called the same
            continue
        if _holds(value, part):
            value = value[part]
        elif missing and isinstance(value, dict) and step == len(loc) - 1:
            return (*path, part)  # a missing field: point at the mapping that lacks it
        else:
            continue
        path = (*path, part)
    return path


def _holds(value: Any, part: str | int) -> bool:
    return (
        part in value
        if isinstance(value, dict)
        else isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
    )


def _message(model: type[BaseModel], item: Any, path: Path_) -> str:
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        return f"unknown field{did_you_mean(str(path[-1]), _siblings(model, item['loc']))}"
    if kind == "union_tag_invalid":
        known = re.findall(r"'([^']*)'", item["ctx"]["expected_tags"])
        return f"there is no {path[-1]} '{item['ctx']['tag']}'{did_you_mean(item['ctx']['tag'], known)}"
    if kind == "union_tag_not_found":
        return "needs a field 'name'"
    if kind == "missing":
        return "is required and missing"
    text = str(item["msg"]).removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    text = re.sub(r"^input should be", "expected", text)
    text = re.sub(r" or instance of \w+", "", text)
    text = text.replace("a valid tuple", "a list").replace(
        "a valid dictionary or object to extract fields from", "a mapping of fields"
    )
    text = text.replace("a valid dictionary", "a mapping")
    if kind in ("value_error", "assertion_error") or isinstance(given, dict | list):
        return text
    return f"{text}, got {given!r}"


def _siblings(model: type[BaseModel], loc: Path_) -> list[str]:
    """Field names that would have been allowed where the unknown one stands."""
    known: list[type[BaseModel]] = [model]
    for part in loc[:-1]:
        inner = [_models_in(m.model_fields[part].annotation) for m in known if isinstance(part, str) and part in m.model_fields]
        named = [m for m in known if getattr(m, "name", None) == part]
        known = [m for group in inner for m in group] or named or known
    chosen = [m for m in known if loc[-2:-1] and _tag(m) == loc[-2]] or known
    return sorted({name for m in chosen for name in m.model_fields})


def _tag(model: type[BaseModel]) -> object:
    name = model.model_fields.get("name")
    return getattr(name, "default", None)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models_in(inner)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or, with nothing close, the list of what there is."""
    names, word = sorted(known), word[:LONGEST_NAME]
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; expected one of {', '.join(names)}" if names else ""


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
