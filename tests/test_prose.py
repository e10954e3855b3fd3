"""The measure of the documentation counts words and figures, and nothing of code or names."""

from __future__ import annotations

import pytest
from prose import as_of, crowded, long, measured, pages, row

PAGE = """# A title of 9 words

Three short words. Five of Qwen3-32B take 12.5 ms.

Between 1 and 2,048 rows, 3 of 4; `7` is code.

    $ specsim run anything --set a=5
"""


def test_words_and_numbers_of_a_page() -> None:
    found = measured(PAGE)
    assert found.longest_words == 11
    assert found.words_per_sentence == pytest.approx((3 + 6 + 11) / 3)
    assert found.most_numbers == 4
    assert found.numbers_per_paragraph == pytest.approx((1 + 4) / 2)


def test_what_is_over_a_bar_is_listed() -> None:
    assert crowded(PAGE, 3) == ["Between 1 and 2,048 rows, 3 of 4; CODE is code."]
    assert crowded(PAGE, 4) == []
    assert long(PAGE, 10) == ["Between 1 and 2,048 rows, 3 of 4; CODE is code."]


def test_a_page_without_prose_measures_nothing() -> None:
    assert measured("# Title\n").words_per_sentence == 0


def test_a_row_says_before_and_after_or_that_there_was_none() -> None:
    after = measured(PAGE)
    assert row("README.md", after, after).split()[1:4] == ["6.7", "->", "6.7"]
    assert row("README.md", None, after).split()[1:4] == ["–", "->", "6.7"]
    assert as_of("HEAD", "docs/there_is_no_such_page.md") is None


def test_pages_begin_with_those_that_are_read_first() -> None:
    listed = pages()
    assert listed[:2] == ["docs/background/trust.md", "README.md"]
    assert len(listed) == len(set(listed))
    assert not any(page.startswith("docs/reference/") for page in listed)
