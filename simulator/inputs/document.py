"""A document is plain data from YAML that remembers where each value stood; a fault names file,
line, column and field.

The loader reads numbers as YAML 1.2 does (``1e9`` is a number, ``on`` is a word) and refuses
duplicate keys, unknown tags, and more depth and values than any shipped file has. Every file that
users write is read here.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from simulator.core.faults import LARGEST, BadInput, Fault, Path_, Place, plain, told
from simulator.core.plain import PlainData
from simulator.inputs import reading
from simulator.inputs.loader import DEEPEST, MOST_VALUES, NUMBER, PLAIN_TAGS, SCALARS, compose


@dataclass
class Document:
    """A document holds plain data and, for each path into it, the place where it was written."""

    data: Any
    places: dict[Path_, Place] = field(default_factory=dict)
    """File, line and column of every value, by path."""
    mentions: dict[Path_, Place] = field(default_factory=dict)
    """Where a file was named whose content now replaces the name, by path."""

    def __deepcopy__(self, known: dict[int, Any]) -> Self:
        """Copy the data; a place is never changed."""
        return type(self)(deepcopy(self.data, known), dict(self.places), dict(self.mentions))

    def place(self, path: Path_) -> Place:
        """Return the place of ``path``, or of the nearest value around it that was written."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, ("input", 0, 0))

    def file(self, path: Path_) -> str:
        """Return the file, or the option, that states the value at ``path``: where a name stands,
        not what it names.
        """
        return (self.mentions.get(path) or self.place(path))[0]

    def fault(self, path: Path_, message: str) -> Fault:
        """Return a fault about the value at ``path``."""
        return Fault(self.blamed(path), dotted(path), message)

    def blamed(self, path: Path_, on_command_line: dict[Path_, Place] | None = None) -> Place:
        """Return where the value at ``path`` is to be mended; ``on_command_line``:
        :meth:`set_within`, for many paths.
        """
        within = on_command_line
        if within is None:
            within = self.set_within()
        if path in within and path:
            return within[path]
        return self.mentions.get(path) or self.place(path)

    def set_within(self) -> dict[Path_, Place]:
        """Return the last ``--set`` at or below every path that has one."""
        last: dict[Path_, Place] = {}
        for inner, place in self.places.items():
            file, _, _ = place
            if file.startswith("--set"):
                last |= {inner[:end]: place for end in range(len(inner) + 1)}
        return last

    def refusal(self, path: Path_, message: str) -> BadInput:
        """Return the error of a single fault about the value at ``path``."""
        return BadInput([self.fault(path, message)])

    def get(self, path: Path_) -> Any:
        """Return the value at ``path``; None where there is none."""
        value = self.data
        for key in path:
            if not holds(value, key):
                return None
            value = value[key]
        return value

    def resolved(self, path: Path_) -> Path_:
        """Return a path with numbers for the places of lists, which a dotted key writes as
        words.
        """
        value = self.data
        parts: list[str | int] = []
        for part in path:
            place = part
            if isinstance(value, list) and isinstance(part, str) and part.isdecimal():
                place = int(part)
            parts.append(place)
            value = value[place] if holds(value, place) else None
        return tuple(parts)

    def graft(self, path: Path_, content: Self) -> None:
        """Put the data of ``content`` at ``path``; its places stay those of its own file."""
        parent = self.data
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = content.data
        self._forget(self.mentions, path)
        self._forget(self.places, path)
        self.places |= {path + inner: place for inner, place in content.places.items()}

    @staticmethod
    def _forget(places: dict[Path_, Place], path: Path_) -> None:
        """Remove ``path`` and all paths below it."""
        for inner in _below(places, path):
            del places[inner]

    def merge(self, overlay: Self, path: Path_ = ()) -> None:
        """Lay ``overlay`` over this document: mappings merge, every other value is replaced.

        A mapping that changes its ``name`` (another strategy, another drafter) replaces the old one
        whole, and so does a number with a ``value``, whose source is its own.
        """
        for key, value in overlay.get(path).items():
            inner = (*path, key)
            old = self.get(inner)
            both = isinstance(value, dict) and isinstance(old, dict) and "value" not in value
            if both and value.get("name", old.get("name")) == old.get("name"):
                self.merge(overlay, inner)
                self.places[inner] = overlay.place(inner)
            else:
                places = _below(overlay.places, inner)
                relative = {path[len(inner) :]: place for path, place in places.items()}
                self.graft(inner, type(self)(value, relative))
                self.mentions |= _below(overlay.mentions, inner)

    def override(self, assignment: str) -> Any:
        """Apply ``dotted.key=value`` with the value read as YAML, and return it; the fault place
        becomes ``--set``.
        """
        key, value = assigned(assignment)
        self.put(tuple(key.split(".")), value, (f"--set {assignment}", 0, 0))
        return value

    def put(self, path: Path_, value: Any, place: Place) -> None:
        """Write ``value`` at ``path``, which is made where it is missing; faults about it will name
        ``place``.

        A plain number that replaces a number with a source is marked as set on the command line.
        """
        if len(path) > DEEPEST:
            names = f"at most {DEEPEST} names with dots between them, as in strategy.gamma"
            raise BadInput.at(place, f"is nested too deeply; expected {names}")
        path = self.resolved(path)
        parent = self.data
        *outer, last = path
        for depth, part in enumerate(outer, start=1):
            inner = parent[part] if holds(parent, part) else None
            if inner is None:
                inner = {}
                parent[part] = inner
                self.places[path[:depth]] = place
            elif not (isinstance(inner, dict) or holds(inner, path[depth])):
                message = f"holds {told(inner)}, which has no fields of its own"
                if isinstance(inner, list):
                    message = f"is a list of {len(inner)}; expected a number below that, from 0"
                raise BadInput.at(place, message, dotted(path[:depth]))
            parent = inner
        old = parent[last] if holds(parent, last) else None
        sourced = isinstance(old, dict) and "value" in old
        if sourced and isinstance(value, int | float):
            value = {"value": value, "source": "set on the command line", "confidence": "assumed"}
        parent[last] = value
        if isinstance(old, dict | list):
            self._forget(self.mentions, path)
            self._forget(self.places, path)
        self.mentions.pop(path, None)
        self.places.pop(path, None)
        self.places[path] = place

    def changes(self, other: Self) -> "FieldChanges":
        """Return what ``other``, a copy that was changed, states otherwise, whole fields of the
        first level.
        """
        fields = self.data.keys() | other.data.keys()
        nothing = object()
        names = {
            name
            for name in fields
            if self.data.get(name, nothing) is not other.data.get(name, nothing)
        }
        data = {name: value for name, value in other.data.items() if name in names}
        places, no_places = _moved(self.places, other.places, names)
        mentions, no_mentions = _moved(self.mentions, other.mentions, names)
        stated = Document(data, places, mentions)
        gone = Document(dict.fromkeys(names - data.keys()), no_places, no_mentions)
        return FieldChanges(stated, gone)

    def take_over(self, changes: "FieldChanges") -> None:
        """Change whole fields of the first level."""
        for own, stated, gone in (
            (self.data, changes.stated.data, changes.gone.data),
            (self.places, changes.stated.places, changes.gone.places),
            (self.mentions, changes.stated.mentions, changes.gone.mentions),
        ):
            own.update(stated)
            for key in gone:
                del own[key]

    def branched(self, paths: Iterable[Path_]) -> Self:
        """Return a copy whose mappings on the way to ``paths`` may be changed; the rest is
        shared.
        """
        root = dict(self.data)
        for path in paths:
            parent: Any = root
            for part in self.resolved(path)[:-1]:
                inner = parent[part] if holds(parent, part) else None
                if not isinstance(inner, dict | list):
                    break
                copied = copy(inner)
                parent[part] = copied
                parent = copied
        return type(self)(root, dict(self.places), dict(self.mentions))


class FieldChanges(NamedTuple):
    """What has changed of whole fields of a document: what they state now, and what is gone."""

    stated: Document
    gone: Document

    @property
    def fields(self) -> set[str]:
        """Return the names of the fields."""
        return {*self.stated.data, *self.gone.data}


def assigned(assignment: str) -> tuple[str, Any]:
    """Return key and value of ``dotted.key=value``, with the value read as YAML; raises
    :class:`BadInput`.
    """
    key, equals, text = assignment.partition("=")
    option = f"--set {assignment}"
    if not equals or not key:
        raise BadInput.at(option, "expected key=value, as in target.tensor_parallel=4")
    return key, parse(text, option).data


def in_a_line(value: Any) -> str:
    """Return a plain value as a line of YAML, as :func:`assigned` reads it; what is no number stays
    a word, and is refused.
    """
    return json.dumps(value, default=plain)


def parse(text: str, file: str) -> Document:
    """Return the document of a YAML text; ``file`` is the name that faults will show.

    Raises :class:`BadInput` for broken syntax, duplicate keys and keys that are not words.
    """
    try:
        root = compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (file, 0, 0)
        if mark:
            place = _at(file, mark)
        problem = error.problem
        if "found character '\\t'" in str(problem):
            problem = "a tab, where YAML takes spaces alone"
        raise BadInput.at(place, f"not valid YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = (file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        character = told(text[error.position])
        message = f"not valid YAML: {character} is no character of a text"
        raise BadInput.at(place, message) from error
    document = Document(None)
    if root is not None:
        document.data = _build(root, (), file, document.places)
    return document


@contextmanager
def readable(name: str | Path) -> Iterator[None]:
    """Raise :class:`BadInput` about ``name`` where a file turns out in the block to be none that
    can be read.
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput.at(name, f"cannot be read: {reading.reason(error)}") from error


def read(path: Path, shown: str | None = None) -> Document:
    """Return the document of a YAML file; raises :class:`BadInput` for a file that does not hold a
    mapping.
    """
    name = shown or str(path)
    with readable(name):
        text = reading.text(path)
    document = parse(text, name)
    if not isinstance(document.data, dict):
        raise BadInput.at((name, 1, 1), "expected a mapping of fields to values")
    return document


def _build(node: yaml.Node, path: Path_, file: str, places: dict[Path_, Place]) -> Any:
    """Return the plain data of a node, and note the places of all values in it."""
    place = _at(file, node.start_mark)
    places[path] = place
    if len(path) > DEEPEST:
        raise BadInput.at(place, "is nested too deeply, or contains itself", dotted(path[:3]))
    if len(places) > MOST_VALUES:
        message = f"holds more than {MOST_VALUES:,} values, aliases counted each time"
        raise BadInput.at(place, message)
    if node.tag not in PLAIN_TAGS:
        raise BadInput.at(place, "a tag that is not allowed here", dotted(path))
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, file, places)
    if isinstance(node, yaml.SequenceNode):
        entries = []
        for index, entry in enumerate(node.value):
            entries.append(_build(entry, (*path, index), file, places))
        return entries
    return _build_scalar(node, path, place)


def _at(file: str, mark: Any) -> Place:
    """Return file, line and column of a mark in a YAML text, which counts from 0."""
    return file, mark.line + 1, mark.column + 1


def _build_scalar(node: yaml.Node, path: Path_, place: Place) -> Any:
    try:
        value = SCALARS[node.tag](node.value)
    except (ValueError, KeyError) as error:
        # a tag that does not fit its value; more digits than Python reads
        _, _, kind = node.tag.rpartition(":")
        raise BadInput.at(place, f"is no {kind}", dotted(path)) from error
    written = str(node.value)
    if "\0" in written:  # no file, no program and no shell takes it
        message = "holds a character of code 0, which is no character of a text"
        raise BadInput.at(place, message, dotted(path))
    if re.fullmatch(NUMBER, written.strip()) and abs(float(written)) > LARGEST:
        message = f"expected a number up to {LARGEST:g}, got {written[:40]}"
        raise BadInput.at(place, message, dotted(path))
    return value


def _build_mapping(
    node: yaml.MappingNode, path: Path_, file: str, places: dict[Path_, Place]
) -> PlainData:
    result: PlainData = {}
    for key_node, value_node in node.value:
        place = _at(file, key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            raise BadInput.at(place, "expected a word as key", dotted(path))
        key = str(key_node.value).replace("\0", "\ufffd")
        inner = (*path, key)
        if key in result:
            _, first_line, _ = places[inner]
            raise BadInput.at(place, f"written twice; first on line {first_line}", dotted(inner))
        result[key] = _build(value_node, inner, file, places)
        places[inner] = place
    return result


def head(path: Path, shown: str) -> dict[str, str]:
    """Return the plain fields that a file begins with, ``about`` among them; only the beginning is
    read if that comes first.
    """
    fields: dict[str, str] = {}
    with suppress(yaml.YAMLError, OSError, UnicodeDecodeError):
        text = reading.text(path)
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        third = next(islice(events, 2, 3), None)
        if isinstance(third, yaml.MappingStartEvent):
            for key, value in zip(events, events, strict=False):
                if not (isinstance(key, yaml.ScalarEvent) and isinstance(value, yaml.ScalarEvent)):
                    break
                fields[key.value] = value.value
    if "about" not in fields:
        whole = read(path, shown)
        fields["about"] = str(whole.data.get("about", ""))
    return fields


def dotted(path: Path_) -> str:
    """Return a path as ``--set`` takes it: ``strategy.gamma``."""
    return ".".join(map(str, path))


Places = dict[Path_, Place]


def _below(places: Places, path: Path_) -> Places:
    """Return the places of ``path`` and of all paths below it."""
    if not path:
        return dict(places)
    length = len(path)
    last = path[-1]
    found = {}
    for inner, place in places.items():
        # documents are long, and of most paths the first look says that they lie elsewhere
        if len(inner) >= length and inner[length - 1] == last and inner[:length] == path:
            found[inner] = place
    return found


def _moved(before: Places, after: Places, fields: set[str]) -> tuple[Places, Places]:
    """Return the places within some fields of the first level that are new or others than before,
    and those that are gone.
    """
    new = {}
    for path, place in after.items():
        if path and path[0] in fields and before.get(path) != place:
            new[path] = place
    gone = {}
    for path, place in before.items():
        if path and path[0] in fields and path not in after:
            gone[path] = place
    return new, gone


def holds(value: Any, part: str | int) -> bool:
    """Return whether a mapping has this key, or a list this index."""
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
