"""Words that nobody wrote before: ``python3 tools/words.py``, a part of ``dev.py lint``.

Every sentence of the package, on pages, in messages, help texts and docstrings, is made of words of
``tools/words.txt``. A slip of a letter makes a word that is not there, and fails. A new word that
is right is added by ``python3 tools/words.py --add``, and seen in the change. Words in back quotes
are names and are left out, as are words with digits, dashes or underscores; capitals inside of a
word count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".txt")
WORD = re.compile(r"(?<![\w/@&%-])[A-Za-z]{2,}(?:'[a-z]+)?(?![\w/@(=-])")
QUOTED = re.compile(r"``.*?``|`[^`]*`|:\w+:|https?://\S+|--[a-z-]+", re.DOTALL)


class Word(NamedTuple):
    """A word and where it is written."""

    text: str
    place: str


def words(path: Path) -> Iterator[Word]:
    """Yield the words of all sentences in a module: of every text that has a blank in it."""
    for text, line in sentences(ast.parse(path.read_text("utf-8"))):
        place = f"{path.relative_to(ROOT)}:{line}"
        for match in WORD.finditer(QUOTED.sub(" ", text)):
            word = match[0]
            yield Word(word.lower() if word[1:].islower() else word, place)


def sentences(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every text with a blank, and its line; a dash stands for what is filled in."""
    parts = set()
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            for part in node.values:
                text += str(part.value) if isinstance(part, ast.Constant) else " - "
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            text = node.value if isinstance(node.value, str) else ""
        if " " in text.strip():
            yield text, node.lineno


def main(add: bool) -> int:
    """Print every word that is not in the list, or put all of them there; return how many lines of
    the package have one, at most 1.
    """
    known = set(LIST.read_text("utf-8").split()) if LIST.exists() else set()
    written = [word for path in sorted((ROOT / "simulator").rglob("*.py")) for word in words(path)]
    if add:
        LIST.write_text("\n".join(sorted({word.text for word in written})) + "\n", "utf-8")
        return 0
    unknown = [word for word in written if word.text not in known]
    for word in unknown:
        print(f"{word.place}: '{word.text}' is a new word: tools/words.py --add, if it is right")
    return min(1, len(unknown))


if __name__ == "__main__":
    sys.exit(main("--add" in sys.argv[1:]))
