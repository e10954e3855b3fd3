"""What is said of laws beside the timelines of their examples: on the page, and as data."""

from __future__ import annotations

import pytest

from simulator.core.strategies.common.claim import EXACT, Claim
from simulator.evidence.law_check import ExampleVerdict, LawCheck
from simulator.report.blocks import Bullets, Table
from simulator.report.law_claims import headline, law_data, law_sentence, on_page, page

CLOSE = LawCheck("mine", "replay, tokens", "batch 1, 0 kept", EXACT, 2.0, 2.0 + 1e-10)
STEP = LawCheck("mine", "simulation, step", "batch 8, 2 kept", EXACT, 0.1, 0.052)
MIX = LawCheck("mine", "share of steps", "batch 1, kind hit", EXACT, 0.25, 0.2, slack=0.02)
TOKENS = LawCheck("mine", "replay, tokens", "batch 1, 0 kept", Claim("upper_bound"), 2.5, 3.0)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            ExampleVerdict("mine", (), 0, None, 0),
            "mine: FAIL: its example leaves nothing of the law to compare",
        ),
        (ExampleVerdict("mine", (), 9, None, 0), "mine: the law keeps its claim in 9 numbers"),
        (
            ExampleVerdict("mine", (), 9, CLOSE, 0),
            "mine: the law keeps its claim in 9 numbers; the largest gap is 5.0e-11",
        ),
        (
            ExampleVerdict("mine", (), 9, STEP, 2),
            "mine: FAIL in 2 of 9 numbers: the law claims to be exact; worst is simulation, step "
            "(batch 8, 2 kept): 100 ms by law, 52 ms by the process (+92.3 %)",
        ),
        (
            ExampleVerdict("mine", (), 9, MIX, 1),
            "mine: FAIL in 1 of 9 numbers: the law claims to be exact; worst is share of steps "
            "(batch 1, kind hit): 25 % by law, 20 % by the process (+25 %)",
        ),
        (
            ExampleVerdict("mine", (), 9, TOKENS, 1),
            "mine: FAIL in 1 of 9 numbers: the law claims to be an upper bound; worst is replay, "
            "tokens (batch 1, 0 kept): 2.5 tokens by law, 3 tokens by the process (-16.7 %)",
        ),
    ],
)
def test_the_sentence_about_a_law(verdict: ExampleVerdict, sentence: str) -> None:
    assert law_sentence(verdict) == sentence
    assert law_data([verdict])[0]["words"] == sentence.replace("FAIL", "DISAGREEMENT")


def test_the_page_of_laws_says_which_fail() -> None:
    good = ExampleVerdict("good", ("exact",), 9, CLOSE, 0)
    bound = ExampleVerdict("bound", ("upper bound",), 4, None, 0)
    wrong = ExampleVerdict("wrong", ("exact",), 9, STEP, 2)
    shown = page([good, bound, wrong], "specsim validate --law all")
    laws, sentences = shown.opening
    assert isinstance(laws, Table)
    assert isinstance(sentences, Bullets)
    assert shown.title == "Laws against the timelines of their examples"
    assert shown.answer == "2 of 3 laws keep their claim."
    assert laws.title == "Laws"
    assert laws.head == ["strategy", "compared", "broken", "largest gap", "verdict"]
    assert laws.rows == [
        ("good", "9", "0", "5.0e-11", "PASS"),
        ("bound", "4", "0", "", "PASS"),
        ("wrong", "9", "2", "9.2e-01", "FAIL"),
    ]
    assert sentences.items == [law_sentence(wrong)]
    assert len(page([good], "specsim validate --law good").opening) == 1


def test_a_page_says_fail_of_a_broken_law() -> None:
    broken = "DISAGREEMENT: the law claims to be exact, and its step is 5 % longer"
    assert on_page(broken) == "FAIL: the law claims to be exact, and its step is 5 % longer"
    assert on_page("a step by law is 5 % longer, as claimed") == (
        "a step by law is 5 % longer, as claimed"
    )


def test_a_single_law_keeps_its_claim() -> None:
    assert headline(1, 1) == "1 of 1 law keeps its claim."
    assert headline(0, 1) == "0 of 1 law keeps its claim."


def test_laws_as_data_keep_their_keys() -> None:
    (record,) = law_data([ExampleVerdict("mine", ("exact",), 9, STEP, 2)])
    record.pop("words")
    assert record == {
        "strategy": "mine",
        "compared": 9,
        "broken": 2,
        "disagreement": True,
        "claims": ["exact"],
        "gap": STEP.gap,
    }
    assert law_data([ExampleVerdict("mine", (), 9, None, 0)])[0]["gap"] is None
