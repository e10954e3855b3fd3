"""A Hugging Face configuration has fields of many names; one that nobody asked for is harmless, or refused."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simulator.files import reading
from simulator.files.document import LARGEST
from simulator.files.schema import BadInput, Fault, Place

FIELDS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("huggingface.yaml").read_text("utf-8"))
HARMLESS, COSTLY = (re.compile("|".join(FIELDS["harmless"])), re.compile(FIELDS["costly"].replace(" ", "")))
NOT_UNDERSTOOD = "is not understood and may change the cost"
MOST_BYTES = 8_000_000
"""Most bytes of a file: one that lists every module that is not quantised has 3 million."""


@dataclass
class Config:
    """A config is a JSON object with its text, the fields that were asked for and the faults noted so far."""

    file: str
    text: str
    data: dict[str, Any]
    implied: Mapping[str, Any]
    faults: list[Fault] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    @property
    def model_type(self) -> str:
        """Return the name of its family."""
        return str(self.data.get("model_type", ""))

    def get(self, key: str, default: Any = None) -> Any:
        """Return what stands under ``key`` or another name of it, what its family implies, or the default."""
        names = FIELDS["names"].get(key, [key])
        self.asked.update(names)
        stated = (self.data[name] for name in names if self.data.get(name) is not None)
        value = next(stated, self.implied.get(key))
        return default if value is None else value

    def place(self, key: str) -> Place:
        """Return where ``key`` stands; the start of the file where it does not."""
        before, quoted, _ = self.text.partition(f'"{self._written(key)}"')
        return (self.file, before.count("\n") + 1, len(before) - before.rfind("\n")) if quoted else (self.file, 1, 1)

    def refuse(self, key: str, message: str) -> None:
        """Note a fault about a field."""
        fault = Fault(self.place(key), self._written(key), message)
        self.faults += [fault] if fault not in self.faults else []

    def _written(self, key: str) -> str:
        return next((name for name in FIELDS["names"].get(key, [key]) if name in self.data), key)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under ``key``; note a fault and return 1 where there is none and no default."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
            return value
        bound = f"at most {LARGEST:g}" if isinstance(value, int) and value > LARGEST else f"at least {least}"
        wanted = f"expected a whole number of {bound}, got {value!r}"
        self.refuse(key, "is required and missing" if value is None else wanted)
        return 1

    def by_layer(self, key: str, layers: int) -> list[Any]:
        """Return the list under ``key``, an entry a layer; note a fault and return an empty one where it is too short."""
        value = self.get(key)
        if isinstance(value, str | list) and len(value) >= layers:
            return list(value[:layers])
        self.refuse(key, f"expected an entry for each of {layers} layers, got {str(value)[:60]}")
        return []

    def numbers(self, key: str) -> set[int]:
        """Return the numbers of layers under ``key``, a list or text with commas; empty where there are none."""
        value = self.get(key, [])
        entries = value.split(",") if isinstance(value, str) else value
        if isinstance(entries, list) and all(str(entry).strip().isdecimal() for entry in entries):
            return {int(entry) for entry in entries}
        self.refuse(key, f"expected numbers of layers, got {str(value)[:60]}")
        return set()

    def block(self, key: str, block: Any) -> dict[str, Any]:
        """Return the fields of the parts of a block, as PART.FIELD; note a fault for each that is not understood."""
        parts = block.items() if isinstance(block, dict) else ()
        fields = {f"{name}.{inner}": value for name, part in parts if isinstance(part, dict) for inner, value in part.items()}
        for name, value in fields.items():
            if not ((name in FIELDS["blocks_understood"] and isinstance(value, int | float | None)) or _off(name, value)):
                self.refuse(key, f"{name} {NOT_UNDERSTOOD}: {str(value)[:60]}")
        return fields

    def refuse_the_rest(self) -> None:
        """Note a fault for every field that nobody asked for, if it may change the cost."""
        for key, value in self.data.items():
            known = key in self.asked or key in (*FIELDS["text"], *FIELDS["objects"]) or HARMLESS.fullmatch(key)
            if not (known or _off(key, value)) and (COSTLY.fullmatch(key) or isinstance(value, dict | list)):
                self.refuse(key, f"{NOT_UNDERSTOOD}: {str(value)[:60]}")


def _off(key: str, value: Any) -> bool:
    """Return whether a field says nothing: it is null, false, empty or zero, or one for every so many layers."""
    every = re.search("freq|interval|step|period", key) and value == 1
    return value is None or value is False or value in (0, "", [], {}) or bool(every)


def load_config(file: Path) -> Config:
    """Return a configuration, the fields of its language model on top; raises :class:`BadInput` for what is no JSON object."""
    try:
        text = reading.text(file, MOST_BYTES)
        data = reading.from_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput([Fault((str(file), 0, 0), "", f"cannot be read: {reading.reason(error)}")]) from error
    except json.JSONDecodeError as error:
        raise BadInput([Fault((str(file), error.lineno, error.colno), "", f"not valid JSON: {error.msg}")]) from error
    if not isinstance(data, dict):
        raise BadInput([Fault((str(file), 1, 1), "", "expected a JSON object, as a Hugging Face config.json is")])
    for inner in FIELDS["text"]:
        data |= data[inner] if isinstance(data.get(inner), dict) else {}
    for inner in FIELDS["objects"]:
        parts = data[inner] if isinstance(data.get(inner), dict) else {}
        data |= {f"{inner}_{name}": part for name, part in parts.items()}
    return Config(str(file), text, data, FIELDS["families"].get(str(data.get("model_type", "")), {}))
