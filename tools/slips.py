"""Slips of a letter in what a user reads: ``python3 tools/slips.py [--seed N] [--count N]``.

Draws places in the sentences of pages, messages and help texts (texts with a blank, and what stands
in braces inside of them), changes a letter there, and asks who notices: ruff, mypy and the list of
words, as ``dev.py lint`` does, then the tests that import the module. Prints a line for each slip
and the two counts. The files are put back as they were.
"""

from __future__ import annotations

import argparse
import ast
import random
import string
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("report", "scenario", "studies", "papers", "cli", "api")
LINTS = (
    ("ruff", "check", "-q"),
    ("python", "tools/words.py"),
    ("mypy",),
)


class Slip(NamedTuple):
    """A letter at a place of a file, and what stands there instead."""

    path: Path
    at: int
    letter: str

    def __str__(self) -> str:
        text = self.path.read_text("utf-8")
        line = text.count("\n", 0, self.at) + 1
        around = text[max(0, self.at - 15) : self.at + 15].replace("\n", " ")
        return f"{self.path.relative_to(ROOT)}:{line} '{around}' -> {self.letter}"


def places(path: Path) -> list[int]:
    """Return where the letters of all sentences of a module stand, docstrings left out."""
    text = path.read_text("utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spots: list[int] = []
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        if id(node) not in docstrings:
            spots += _letters(node, text, starts)
    return sorted(set(spots))


def _letters(node: ast.AST, text: str, starts: list[int]) -> list[int]:
    """Return where the letters of a sentence stand; none for another node."""
    if isinstance(node, ast.JoinedStr):
        sentence = any(isinstance(part, ast.Constant) and " " in part.value for part in node.values)
    else:
        sentence = isinstance(node, ast.Constant) and isinstance(node.value, str)
        sentence = sentence and " " in node.value.strip()
    if not sentence:
        return []
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    return [at for at in range(begin, end) if text[at].isascii() and text[at].isalpha()]


def drawn(seed: int, count: int) -> list[Slip]:
    """Return so many slips, each at a place of its own."""
    chance = random.Random(seed)
    spots = []
    for room in ROOMS:
        for path in sorted((ROOT / "simulator" / room).rglob("*.py")):
            spots += [(path, at) for at in places(path)]
    slips = []
    for path, at in chance.sample(spots, count):
        letter = path.read_text("utf-8")[at]
        others = string.ascii_lowercase if letter.islower() else string.ascii_uppercase
        slips.append(Slip(path, at, chance.choice(others.replace(letter, ""))))
    return slips


def noticed(slip: Slip) -> str:
    """Return who notices a slip: a lint or the tests; empty for nobody."""
    text = slip.path.read_text("utf-8")
    try:
        slip.path.write_text(text[: slip.at] + slip.letter + text[slip.at + 1 :], "utf-8")
        for command in LINTS:
            if _fails(*command):
                return command[-1] if command[0] == "python" else command[0]
        module = slip.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        package, _, name = module.rpartition(".")
        tests = []
        for test in sorted((ROOT / "tests").glob("test_*.py")):
            source = test.read_text("utf-8")
            imports = module in source or f"from {package} import {name}" in source
            if imports or test.stem.endswith(f"_{name}"):
                tests.append(str(test))
        if tests and _fails("pytest", "-q", "-x", "-m", "not full", *tests):
            return "tests"
        return ""
    finally:
        slip.path.write_text(text, "utf-8")


def _fails(tool: str, *words: str) -> bool:
    command = [str(Path(sys.executable).parent / tool), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


def main(seed: int, count: int) -> None:
    """Print who notices each of the slips, and how many lint and tests notice."""
    by: list[str] = []
    for slip in drawn(seed, count):
        by.append(noticed(slip))
        print(f"{by[-1] or 'nobody':16} {slip}", flush=True)
    lint = sum(who not in ("", "tests") for who in by)
    print(f"seed {seed}: {lint} of {count} by lint or types, {lint + by.count('tests')} with tests")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    asked = parser.parse_args()
    main(asked.seed, asked.count)
