"""Ages of an engine: ``vllm@0.9`` is the file that holds for version 0.9 of vLLM, ``vllm`` that of
the newest.

A file says from which version on it holds (``versions``); ``0.2x`` stands for 0.20. This module
loads neither numpy nor pydantic.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from simulator.inputs.document import read

BETWEEN = "@"
"""What stands between the name of an engine and its version."""
Version = tuple[int, ...]


class Age(NamedTuple):
    """From when on a file of an engine holds."""

    first: Version
    """The first version."""
    before: Version | None
    """The first version for which it no longer holds; None: the newest is among them."""
    since: str
    """The month of its release, as in 2026-01."""
    name: str
    """The name of the file."""


def version(text: str) -> Version | None:
    """Return a version as numbers, ``0.2x`` as 0.20; None for a text that is none."""
    if re.fullmatch(r"v?\d+(\.\d+)*x?(\.\d+)*", text) is None:
        return None
    return tuple(int(part) for part in text.removeprefix("v").replace("x", "0").split("."))


def ages(family: str, files: Mapping[str, Path]) -> list[Age]:
    """Return the ages of an engine by their first version; those files that state none are left
    out.
    """
    stated_ages = []
    for name, path in files.items():
        if name != family and not name.startswith(f"{family}{BETWEEN}"):
            continue
        stated = read(path, str(path)).data.get("versions") or {}
        first = version(str(stated.get("first", "")))
        if first is not None:
            before = version(str(stated.get("before", "")))
            stated_ages.append(Age(first, before, str(stated.get("since", "")), name))
    return sorted(stated_ages, key=lambda age: age.first)


def of_version(name: str, files: Mapping[str, Path]) -> str | None:
    """Return the file that holds for a version of an engine, as ``vllm@0.12``; None where there is
    no such engine, or none so old.
    """
    family, _, text = name.partition(BETWEEN)
    asked = version(text)
    if asked is None:
        return None
    held = None
    for age in ages(family, files):
        if age.first <= asked and (age.before is None or asked < age.before):
            held = age.name
    return held


def of_month(family: str, month: str, files: Mapping[str, Path]) -> str:
    """Return the file that holds for an engine of a month, as 2025-07; that of the newest where no
    age is as old.
    """
    held = [age.name for age in ages(family, files) if age.since <= month]
    return held[-1] if held else family
