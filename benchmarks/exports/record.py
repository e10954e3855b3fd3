"""The record of the last run: every command, and what its engine said of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.exports.asked import AskedCommand
from simulator.inputs.writing import json_text

DOCUMENTED = Path(__file__).with_name("documented.yaml")
LACKING = (
    "Adaptive verification requires full CUDA graphs",
    "Arctic Inference is required for suffix decoding",
    "Model Runner V1 does not support: dspark speculative decoding",
    "Model Runner V1 does not support: adaptive draft verification",
    "ForConditionalGeneration'] failed to be inspected",
)
"""Words of vLLM about what its build for CPUs lacks (graphs, the second model runner), or about a
package that is not beside it: the last of torchvision, which models with a vision tower import.
"""
ACCEPTED = "accepted"
APART = "apart"
REFUSED = "refused"


class JudgedCommand(NamedTuple):
    """A command, and what its engine said."""

    engine: str
    fleet: str
    command: list[str]
    said: str
    """Why it is refused, in the engine's words; empty where it is accepted."""
    fields: Any = None
    """What stands in the file that it reads; None without one."""

    @property
    def verdict(self) -> str:
        """Return the word for it: what this build lacks is counted apart."""
        if not self.said:
            return ACCEPTED
        if any(words in self.said for words in LACKING):
            return APART
        return REFUSED


class ExportRecord(NamedTuple):
    """What was asked of the engines, and served."""

    date: str
    versions: Mapping[str, str]
    judged: list[JudgedCommand]
    served: Mapping[str, Mapping[str, Any]]
    """Answers by the name of a command that was served, with its words."""

    def came_to(self, engine: str, verdict: str) -> int:
        """Return how many commands of an engine came to a verdict."""
        return sum(one.engine == engine and one.verdict == verdict for one in self.judged)


def read_record(file: Path) -> ExportRecord:
    """Return a record that was written."""
    held = json.loads(file.read_text("utf-8"))
    judged = [JudgedCommand(**one) for one in held["commands"]]
    return ExportRecord(held["date"], held["versions"], judged, held["served"])


def record_text(record: ExportRecord) -> str:
    """Return the text of a record."""
    commands = []
    for judged in record.judged:
        stated = judged._asdict()
        if judged.fields is None:
            del stated["fields"]
        commands.append(stated)
    lines = [json_text(command, indent=None) for command in commands]
    head = {"date": record.date, "versions": dict(record.versions), "served": dict(record.served)}
    opened = json_text(head, indent=1).removesuffix("\n}")
    return f'{opened},\n "commands": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def changed(record: ExportRecord, asked: Iterable[AskedCommand]) -> list[str]:
    """Return which commands are not those of a record, in words."""
    kept = {(one.engine, one.fleet): (one.command, _as_read(one.fields)) for one in record.judged}
    words = []
    for command in asked:
        before = kept.pop((command.engine, command.fleet), None)
        if before is None:
            words.append(f"{command.name} was never asked")
        elif before != (command.words, _as_read(command.fields)):
            words.append(f"{command.name} is exported otherwise today")
    return words + [f"{engine}: {fleet} is exported no more" for engine, fleet in kept]


def _as_read(fields: Any) -> Any:
    """Return fields as JSON holds them: its keys are texts."""
    return json.loads(json_text(fields))


def undocumented(program: str, words: Iterable[str]) -> str:
    """Return what a program's documentation does not have of a command, in words; empty where it
    has all.
    """
    facts = yaml.safe_load(DOCUMENTED.read_text("utf-8"))[program]
    values = facts.get("values", {})
    option = ""
    for word in words:
        named = word.startswith("-") and not word.lstrip("-").isdigit()
        if named and word not in facts["options"]:
            return f"unknown option {word}"
        if not named and word not in values.get(option, [word]):
            return f"{option} has no value {word}"
        option = word if named else ""
    return ""


def held_to_documents(command: AskedCommand) -> str:
    """Return what the documentation of a program that is not asked here does not have of a command
    and of the file that it reads, in words; empty where it has all.
    """
    options = command.words[3:] if command.fields else command.words[1:]
    said = undocumented(command.engine, options)
    if said or not command.fields:
        return said
    listed = yaml.safe_load(DOCUMENTED.read_text("utf-8"))[command.engine]["fields"]
    return "; ".join(misfits(command.fields, listed))


TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "number": (int, float),
    "text": (str,),
}
"""Python's types by the words for them in documented.yaml."""


def misfits(fields: Mapping[str, Any], listed: Mapping[str, Any], within: str = "") -> list[str]:
    """Return which fields are not those that documentation lists, or of another type, in words.

    ``listed`` has by field a word of :data:`TYPES`, a list of the values that there are, or the
    fields inside; of fields that depend on a kind, ``kind`` names the field that states it,
    ``kinds`` has those of each, and what has to be there.
    """
    if "kind" in listed:
        return _misfits_of_kind(fields, listed, within)
    words = []
    for name, value in fields.items():
        path = f"{within}{name}"
        expected = listed.get(name)
        if expected is None:
            words.append(f"{path} is not documented")
        elif isinstance(expected, dict):
            words += misfits(value, expected, f"{path}.")
        elif isinstance(expected, list):
            if value not in expected:
                words.append(f"{path} has no value {value}")
        elif not _is_of(value, expected):
            words.append(f"{path} is {value}, not of type {expected}")
    return words


def _misfits_of_kind(
    fields: Mapping[str, Any], listed: Mapping[str, Any], within: str
) -> list[str]:
    """Return :func:`misfits` of fields that depend on a kind."""
    kind = fields.get(listed["kind"])
    if kind not in listed["kinds"]:
        return [f"{within}{listed['kind']} has no value {kind}"]
    own = listed["kinds"][kind]
    known = {listed["kind"]: "text", **listed["all"], **own.get("fields", {})}
    lacking = [name for name in own["needs"] if name not in fields]
    words = [f"{within}{name} is missing for {kind}" for name in lacking]
    return words + misfits(fields, known, within)


def _is_of(value: object, expected: str) -> bool:
    """Return whether a value is of a type; ``int by int`` is a mapping of such."""
    if expected == "int by int":
        return isinstance(value, dict) and all(
            type(each) is int for pair in value.items() for each in pair
        )
    if isinstance(value, bool):
        return expected == "bool"
    return isinstance(value, TYPES[expected])
