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
    commands = [judged._asdict() for judged in record.judged]
    lines = [json_text(command, indent=None) for command in commands]
    head = {"date": record.date, "versions": dict(record.versions), "served": dict(record.served)}
    opened = json_text(head, indent=1).removesuffix("\n}")
    return f'{opened},\n "commands": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def changed(record: ExportRecord, asked: Iterable[AskedCommand]) -> list[str]:
    """Return which commands are not those of a record, in words."""
    kept = {(one.engine, one.fleet): one.command for one in record.judged}
    words = []
    for command in asked:
        before = kept.pop((command.engine, command.fleet), None)
        if before is None:
            words.append(f"{command.name} was never asked")
        elif before != command.words:
            words.append(f"{command.name} is exported otherwise today")
    return words + [f"{engine}: {fleet} is exported no more" for engine, fleet in kept]


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
