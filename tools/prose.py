"""How plainly the documentation reads: ``python3 tools/prose.py [COMMIT]``.

A table to look at: for each page words a sentence and numbers a paragraph, as they are and as they
were at a commit. Code, tables, titles and formulas are no prose (``tests/sentences.py``).

With ``--numbers N`` it prints the paragraphs of more than N numbers, with ``--words N`` the
sentences of more than N words.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.sentences import paragraphs, sentences

NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[,.]\d+)*(?!\w)")
"""A figure; digits within a name, as those of Qwen3-32B, are none, and neither is code."""
FIRST = ("docs/background/trust.md", "README.md")
"""Pages that stand at the top of the table."""
HEAD = f"{'page':<38}{'words a sentence':>22}{'longest':>16}{'numbers a paragraph':>24}{'most':>14}"


@dataclass(frozen=True)
class Measure:
    """Of a page; 0 where there is no prose."""

    words_per_sentence: float
    longest_words: int
    numbers_per_paragraph: float
    most_numbers: int


def measured(page: str) -> Measure:
    """Measure the prose of a Markdown page."""
    words = [len(sentence.split()) for sentence in sentences(page)]
    numbers = [len(NUMBER.findall(paragraph)) for paragraph in paragraphs(page)]
    return Measure(
        sum(words) / max(1, len(words)),
        max(words, default=0),
        sum(numbers) / max(1, len(numbers)),
        max(numbers, default=0),
    )


def pages() -> list[str]:
    """List the pages that are written by hand, those that are read first on top."""
    books = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.parent.name != "reference"
    ]
    return [*FIRST, *(book for book in books if book not in FIRST)]


def as_of(commit: str, page: str) -> Measure | None:
    """Measure a page at a commit; nothing where it was not there."""
    done = subprocess.run(
        ("git", "show", f"{commit}:{page}"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return measured(done.stdout) if done.returncode == 0 else None


def row(page: str, before: Measure | None, after: Measure) -> str:
    """Write the line of a page: before, an arrow, after."""

    def pair(width: int, name: str, form: str) -> str:
        then = format(getattr(before, name), form) if before else "–"
        return f"{then} -> {getattr(after, name):{form}}".rjust(width)

    return (
        f"{page:<38}{pair(22, 'words_per_sentence', '.1f')}{pair(16, 'longest_words', 'd')}"
        f"{pair(24, 'numbers_per_paragraph', '.1f')}{pair(14, 'most_numbers', 'd')}"
    )


def crowded(page: str, most: int) -> list[str]:
    """List the paragraphs of more numbers than that."""
    return [text for text in paragraphs(page) if len(NUMBER.findall(text)) > most]


def long(page: str, most: int) -> list[str]:
    """List the sentences of more words than that."""
    return [text for text in sentences(page) if len(text.split()) > most]


def main(args: list[str]) -> int:
    """Print the table, or what is over a bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--numbers", type=int, metavar="N")
    parser.add_argument("--words", type=int, metavar="N")
    asked = parser.parse_args(args)
    texts = {page: (ROOT / page).read_text("utf-8") for page in pages()}
    if asked.numbers is None and asked.words is None:
        print(HEAD)
        for page, text in texts.items():
            print(row(page, as_of(asked.commit, page), measured(text)))
        return 0
    for page, text in texts.items():
        over = [] if asked.numbers is None else crowded(text, asked.numbers)
        over += [] if asked.words is None else long(text, asked.words)
        for found in over:
            print(f"{page}: {found}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
