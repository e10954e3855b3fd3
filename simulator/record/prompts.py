"""Prompts from a file: plain text with one per line, or JSON lines as Spec-Bench's
``question.jsonl`` has them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.core.faults import BadInput, told
from simulator.core.plain import PlainData
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.traces.header import MOST_FLAVOURS

JSON_LINES = frozenset({".jsonl", ".ndjson", ".json"})
UNNAMED = "prompts"
"""The flavour of prompts that state none."""


@dataclass(frozen=True)
class Prompt:
    """One prompt, the kind of text it is, and its line in the file, from 1."""

    text: str
    flavour: str
    line: int


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Return all prompts of a file, or ``limit`` of them spread evenly, since such files are sorted
    by category.

    A JSON line holds ``prompt`` and, if it likes, ``flavour`` or ``category``; or ``turns``, of
    which the first is taken: later ones answer a model that was not recorded.
    """
    with readable(path):
        # splitlines would also cut at U+2028 inside a text
        lines = reading.text(path, reading.MOST_TABLE_BYTES).split("\n")
    read = _json_line if path.suffix in JSON_LINES else _plain_line
    prompts = [read(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise _bad(path, 0, "holds no prompts")
    if limit is not None and limit < len(prompts):
        prompts = [prompts[index * len(prompts) // limit] for index in range(limit)]
    if len({prompt.flavour for prompt in prompts}) > MOST_FLAVOURS:
        raise _bad(path, 0, f"names more than {MOST_FLAVOURS} flavours")
    return prompts


def _plain_line(path: Path, number: int, line: str) -> Prompt:
    return Prompt(line.rstrip("\r"), UNNAMED, number)


def _json_line(path: Path, number: int, line: str) -> Prompt:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise _bad(path, number, f"not valid JSON: {error.msg}", error.colno) from error
    texts = list(_texts(data)) if isinstance(data, dict) else []
    if not texts or not isinstance(texts[0], str) or not texts[0].strip():
        raise _bad(
            path,
            number,
            "expected an object with a text under 'prompt', or a list of texts under 'turns'",
        )
    flavour = data.get("flavour", data.get("category", UNNAMED))
    if not isinstance(flavour, str):
        raise _bad(path, number, f"expected a name as flavour or category, got {told(flavour)}")
    return Prompt(texts[0], flavour, number)


def _texts(data: PlainData) -> Iterator[Any]:
    yield from [data["prompt"]] if "prompt" in data else []
    turns = data.get("turns")
    yield from turns if isinstance(turns, list) else []


def _bad(path: Path, line: int, message: str, column: int = 1) -> BadInput:
    return BadInput.at((str(path), line, column), message)
