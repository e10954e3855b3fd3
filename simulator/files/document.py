"""YAML text as plain data that remembers where each value stood, and the faults that name file, line, column and field.

The loader reads numbers as YAML 1.2 does (``1e9`` is a number, ``on`` is a word) and refuses duplicate keys, other
tags, and more depth and values than any file of ours has. Everything that users write passes through here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from simulator.files import reading

DEEPEST = 32
"""Levels of nesting; far more than any file of ours has."""
MOST_VALUES = 20_000
"""Values in a file, what an alias stands for counted each time; a hundred times what any of ours has."""
LARGEST = 10**18
"""A number beyond it is a slip, in whatever unit."""
LONGEST_NAME = 100
"""Characters of a name that others are compared with."""
SHORTEST_STEM = 3
"""Characters of a word from which on a name that begins with it is the nearest."""
MOST_NAMES = 20
"""Names that a fault lists; of more it says how many there are."""
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


_NUMBER = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", _NUMBER, "-+.0123456789"),
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
            if not holds(value, key):
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
        tab = "found character '\\t'" in str(error.problem)
        told = "a tab, where YAML takes spaces alone" if tab else error.problem
        raise BadInput([Fault(place, "", f"not valid YAML: {told}")]) from error
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
        text = reading.text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput([Fault((name, 0, 0), "", f"cannot be read: {reading.reason(error)}")]) from error
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
    return _build_scalar(node, path, places[path])


def _build_scalar(node: yaml.Node, path: Path_, place: Place) -> Any:
    loader = _Loader("")
    try:
        value = loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, KeyError) as error:  # a tag on what it does not fit; more digits than Python reads
        raise BadInput([Fault(place, ".".join(map(str, path)), f"is no {node.tag.rpartition(':')[2]}")]) from error
    finally:
        loader.dispose()
    if re.fullmatch(_NUMBER, str(node.value).strip()) and abs(float(node.value)) > LARGEST:
        raise BadInput([Fault(place, ".".join(map(str, path)), f"expected a number up to {LARGEST:g}, got {node.value[:40]}")])
    return value


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


def about(path: Path, shown: str) -> str:
    """What a file says it is; of one that says so first, as every shipped file does, only the beginning is looked at."""
    with suppress(yaml.YAMLError, OSError, UnicodeDecodeError):
        events = yaml.parse(reading.text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        match tuple(islice(events, 5)):
            case _, _, yaml.MappingStartEvent(), yaml.ScalarEvent(value="about"), yaml.ScalarEvent(value=text):
                return str(text)
    return str(read(path, shown).data.get("about", ""))


def holds(value: Any, part: str | int) -> bool:
    """Whether a mapping has this key, or a list this index."""
    return (
        part in value
        if isinstance(value, dict)
        else isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or, with nothing close, the list of what there is.

    A name that begins with the word is closer than one that is spelt alike.
    """
    names, word = sorted(known), word[:LONGEST_NAME].lower()
    begun = [name for name in names if len(word) >= SHORTEST_STEM and name.lower().startswith(word)]
    close = difflib.get_close_matches(word, begun or names, n=1, cutoff=0.0 if begun else 0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; expected one of {', '.join(names[:MOST_NAMES])}{more}" if names else ""
