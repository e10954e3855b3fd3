"""The gallery: every answer says what its report says, every picture is there and small."""

from __future__ import annotations

import pytest

from docs.write_gallery import PAGE, QUESTIONS, Question, page

LARGEST_BYTES = 120_000


def test_the_committed_page_is_what_is_written() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python3 dev.py reference`"


def test_a_reader_finds_eight_to_twelve_questions() -> None:
    assert 8 <= len(QUESTIONS) <= 12
    assert len({question.drawn[1] for question in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.report)
def test_figures_of_an_answer_stand_in_its_report(question: Question) -> None:
    assert question.unsaid() == []


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.report)
def test_a_picture_is_kept_and_small(question: Question) -> None:
    assert question.drawn[1].stat().st_size <= LARGEST_BYTES


def test_a_figure_that_the_report_lacks_is_found() -> None:
    wrong = Question("Is it so?", "It takes 987.65 ms.", "demo/report.md")
    assert wrong.unsaid() == ["987.65"]
