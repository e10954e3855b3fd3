"""A Hugging Face configuration has fields of many names; one that nobody asked for is harmless, or
refused.
"""

import difflib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from simulator.core.faults import LARGEST, BadInput, Fault, Place, told
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs import reading
from simulator.inputs.loader import packaged

HERE = Path(__file__)
FIELDS: PlainMapping = packaged(HERE.with_name("huggingface.yaml"))
FAMILIES: PlainMapping = packaged(HERE.with_name("families.yaml"))
"""By ``model_type``: what its class in transformers takes where a file is silent, the model of a
composite; unread types.
"""
HARMLESS = re.compile("|".join(FIELDS["harmless"]))
COSTLY = re.compile(FIELDS["costly"].replace(" ", ""))
STATED_ALONE = ("hidden_size", "num_hidden_layers")
"""Width and depth: a file that is not part of another always states them."""
NEAR = 3
"""Most names of architectures that are suggested for an unknown one."""
NOT_UNDERSTOOD = "is not understood and may change the cost"
QUOTED_OR_NEW_LINE = re.compile(r'"(?:[^"\\\n]|\\.)*"|\n')
MOST_BYTES = 8_000_000
"""Most bytes of a file: one that lists every module that is not quantised has 3 million."""


@dataclass
class Config:
    """A config is a JSON object with its text, the fields that were asked for and the faults noted
    so far.
    """

    file: str
    text: str
    data: PlainData
    implied: PlainMapping
    """What its family takes where the file is silent, by name of a field."""
    taken: PlainData = field(default_factory=dict)
    """What was taken from there."""
    faults: list[Fault] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    @property
    def model_type(self) -> str:
        """Return the name of its family."""
        return str(self.data.get("model_type", ""))

    def get(self, key: str, default: Any = None) -> Any:
        """Return what stands under ``key`` or another name of it, what its family implies, or the
        default.

        What is stated as null is left to the default, as the family's class does.
        """
        names = FIELDS["names"].get(key, [key])
        self.asked.update(names)
        in_turn = key in FIELDS["in_turn"]
        for name in names:
            value = self.data.get(name)
            if value is not None:
                return value
            if in_turn and name not in self.data and self.implied.get(name) is not None:
                return self._take(name)
        if any(name in self.data for name in names):
            return default
        for name in (key, *names):
            if self.implied.get(name) is not None:
                return self._take(name)
        return default

    def _take(self, name: str) -> Any:
        self.taken[name] = self.implied[name]
        return self.implied[name]

    def place(self, key: str) -> Place:
        """Return where ``key`` stands; the start of the file where it does not."""
        return self._places.get(self._written(key), (self.file, 1, 1))

    @cached_property
    def _places(self) -> dict[str, Place]:
        """Return where every text in quotes stands first."""
        places: dict[str, Place] = {}
        line = 1
        start = 0
        for match in QUOTED_OR_NEW_LINE.finditer(self.text):
            if match[0] == "\n":
                line = line + 1
                start = match.end()
            else:
                column = match.start() - start + 1
                places.setdefault(match[0][1:-1], (self.file, line, column))
        return places

    def refuse(self, key: str, message: str) -> None:
        """Note a fault about a field; one that was noted before is told once."""
        self.faults.append(Fault(self.place(key), self._written(key), message))

    def _written(self, key: str) -> str:
        for name in FIELDS["names"].get(key, [key]):
            if name in self.data:
                return str(name)
        return key

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under ``key``; note a fault and return 1 where there is none and
        no default.
        """
        value = _single(self.get(key))
        if value is None and default is not None:
            return default
        if isinstance(value, list):
            got = f"{len(value)} that differ: {str(value)[:40]}"
            self.refuse(key, f"expected one number for all layers, got {got}")
            return 1
        if value is None:
            self.refuse(key, "is required and missing")
            return 1
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
            return value
        bound = f"at least {least}"
        if isinstance(value, int) and value > LARGEST:
            bound = f"at most {LARGEST:g}"
        self.refuse(key, f"expected a whole number of {bound}, got {told(value)}")
        return 1

    def by_layer(self, key: str, layers: int) -> list[Any]:
        """Return the list under ``key``, an entry a layer; note a fault and return an empty one
        where it is too short.
        """
        value = self.get(key)
        if isinstance(value, str | list) and len(value) >= layers:
            return list(value[:layers])
        self.refuse(key, f"expected an entry for each of {layers} layers, got {str(value)[:60]}")
        return []

    def numbers(self, key: str) -> set[int]:
        """Return the numbers of layers under ``key``, a list or text with commas; empty where there
        are none.
        """
        value = self.get(key, [])
        entries = value
        if isinstance(value, str):
            entries = value.split(",")
        if isinstance(entries, list) and all(str(entry).strip().isdecimal() for entry in entries):
            return {int(entry) for entry in entries}
        self.refuse(key, f"expected numbers of layers, got {str(value)[:60]}")
        return set()

    def block(self, key: str, block: Any) -> PlainData:
        """Return the fields of the parts of a block, as PART.FIELD; note a fault for each that is
        not understood.
        """
        fields: PlainData = {}
        if not isinstance(block, dict):
            return fields
        for name, part in block.items():
            if isinstance(part, dict):
                fields |= {f"{name}.{inner}": value for inner, value in part.items()}
        for name, value in fields.items():
            is_number = isinstance(value, int | float | None)
            understood = name in FIELDS["blocks_understood"] and is_number
            if not understood and not _off(name, value):
                self.refuse(key, f"{name} {NOT_UNDERSTOOD}: {str(value)[:60]}")
        return fields

    def refuse_unknown_family(self) -> None:
        """Note, before all other faults, that the family is not known here, where there are others
        or it is read by nobody.
        """
        kind = self.model_type
        known = known_families()
        if not kind or kind in known or not (self.faults or kind in FAMILIES["not_read"]):
            return
        near = difflib.get_close_matches(kind, sorted(known), n=NEAR, cutoff=0.6)
        names = self.data.get("architectures")
        unknown = f"{told(kind[:60])} is not known here"
        if isinstance(names, list) and names:
            architectures = ", ".join(map(str, names))
            unknown += f" (architecture {architectures[:80]})"
        if near:
            unknown += f"; the nearest that are: {', '.join(near)}"
        message = (
            f"{unknown}; state its sizes in a model file of your own instead: "
            "specsim schema model names the fields, specsim show llama_3_1_8b is an example"
        )
        self.faults.insert(0, Fault(self.place("model_type"), "model_type", message))

    def refuse_the_rest(self) -> None:
        """Note a fault for every field that nobody asked for, if it may change the cost."""
        parts = {*FIELDS["text"], *FIELDS["objects"]}
        for key, value in self.data.items():
            if key in self.asked or key in parts or _off(key, value):
                continue
            if HARMLESS.fullmatch(_inner(key)) or HARMLESS.fullmatch(key):
                continue
            if COSTLY.fullmatch(key) or isinstance(value, dict | list):
                self.refuse(key, f"{NOT_UNDERSTOOD}: {str(value)[:60]}")


def _single(value: Any) -> Any:
    """Return the number of a list of equal numbers, one a layer; anything else as it is."""
    numbers = isinstance(value, list) and all(type(entry) is int for entry in value)
    if numbers and len(set(value)) == 1:
        return value[0]
    return value


def _inner(key: str) -> str:
    """Return the name of a field without that of the object in which it stands."""
    for outer in FIELDS["objects"]:
        if key.startswith(f"{outer}_"):
            return key.removeprefix(f"{outer}_")
    return key


def _off(key: str, value: Any) -> bool:
    """Return whether a field says nothing: it is null, false, empty or zero, or one for every so
    many layers.
    """
    every = re.search("freq|interval|step|period", key) and value == 1
    return value is None or value is False or value in (0, "", [], {}) or bool(every)


def load_config(file: Path) -> Config:
    """Return a configuration, the fields of its language model on top; raises :class:`BadInput` for
    what is no JSON object.
    """
    try:
        text = reading.text(file, MOST_BYTES)
        data = reading.from_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput.at(str(file), f"cannot be read: {reading.reason(error)}") from error
    except json.JSONDecodeError as error:
        place = (str(file), error.lineno, error.colno)
        raise BadInput.at(place, f"not valid JSON: {error.msg}") from error
    if not isinstance(data, dict):
        message = "expected a JSON object, as a Hugging Face config.json is"
        raise BadInput.at((str(file), 1, 1), message)
    outer = data.get("model_type")
    around = None
    for inner in FIELDS["text"]:
        if isinstance(data.get(inner), dict):
            around = str(outer)
            composite = FAMILIES["composites"].get(around, {})
            data = data | {"model_type": composite.get("of", outer)} | data[inner]
    for inner in FIELDS["objects"]:
        parts = data.get(inner)
        if isinstance(parts, dict):
            data |= {f"{inner}_{name}": part for name, part in parts.items()}
    return Config(str(file), text, data, _implied(data, around))


def _implied(data: PlainMapping, outer: str | None) -> PlainData:
    """Return what the family of ``data`` takes where the file is silent; ``outer`` is the type of a
    file around it.
    """
    kind = str(data.get("model_type", ""))
    implied = {**FAMILIES["takes"].get(kind, {}), **FIELDS["families"].get(kind, {})}
    if outer is None:
        for key in STATED_ALONE:
            for name in FIELDS["names"][key]:
                implied.pop(name, None)
    elif outer in FAMILIES["composites"]:
        composite = FAMILIES["composites"][outer]
        implied["tie_word_embeddings"] = composite.get("tie_word_embeddings", False)
    return implied


def known_families() -> set[str]:
    """Return the values of ``model_type`` that are read as their classes in transformers, or their
    own code, mean them.
    """
    return {*FAMILIES["takes"], *FAMILIES["composites"], *FAMILIES["read_too"]}
