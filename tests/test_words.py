"""A slip of a letter in a sentence is a word that nobody wrote before."""

from __future__ import annotations

from pathlib import Path

import pytest
import words

MODULE = '''"""A page says how fast a method is."""

def headline(run):
    return f"{run.name} takes {run.tpot_ms} ms a tokne, at `gamma` 5"

KEY = "tokne_ms"
'''


def test_words_of_sentences_are_read_and_names_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "page.py").write_text(MODULE)
    written = [(word.text, word.place) for word in words.words(tmp_path / "page.py")]
    assert written == [
        *((text, "page.py:1") for text in ("page", "says", "how", "fast", "method", "is")),
        *((text, "page.py:4") for text in ("takes", "ms", "tokne", "at")),
    ]


def test_a_new_word_fails_until_it_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "LIST", tmp_path / "words.txt")
    (tmp_path / "simulator").mkdir()
    page = tmp_path / "simulator/page.py"
    page.write_text(MODULE.replace("tokne,", "token,"))
    assert words.main(add=True) == 0
    assert words.main(add=False) == 0
    page.write_text(MODULE)
    assert words.main(add=False) == 1
    assert capsys.readouterr().out == (
        "simulator/page.py:4: 'tokne' is a new word: tools/words.py --add, if it is right\n"
    )


def test_all_words_of_the_package_are_in_the_list() -> None:
    assert words.main(add=False) == 0
