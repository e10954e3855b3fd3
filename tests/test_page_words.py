"""What the pages of laws, sliders, inputs, explanations and the bank say, in whole sentences."""

from __future__ import annotations

from types import SimpleNamespace as Facts
from typing import Any

import pytest

from simulator.report import bank, inputs
from simulator.report.blocks import (
    ALWAYS,
    FIRST,
    Bullets,
    Code,
    Highlight,
    Listing,
    Page,
    Paragraph,
    Remark,
    Section,
    Sliders,
    Standing,
    Table,
)
from simulator.report.pages import explain, law, what_if
from simulator.scenario import load
from simulator.scenario.bank import Loan
from simulator.scenario.explain import Default, Explanation
from simulator.scenario.uncertain.footings import Footing

# ---- a law


def kinds(count: int) -> list[dict[str, Any]]:
    """Kinds of step, the first with a derived term, the others with windows to redraft."""
    return [
        {
            "name": f"kind {place}",
            "share": 0.5,
            "redrafts": place,
            "bare": 0,
            "verifying": 1,
            "step_ms": 20.0,
            "durations": {"target_ms": 10.0} if place else {"draft_ms": 1.0},
            "derived": {} if place else {"hidden_part_ms": 4.0},
        }
        for place in range(count)
    ]


def details(count: int = 1, **further: Any) -> dict[str, Any]:
    """A law with so many kinds of step, as plain data."""
    return {
        "scenario": "any",
        "law": {
            "tpot_ms": 10.0,
            "step_ms": 30.0,
            "tokens_per_step": 3.0,
            "source": "T = 1",
            "relation": "exact",
        },
        "baseline": {"tpot_ms": 25.0},
        "speedup": 2.5,
        "kinds": kinds(count),
        "cautions": [],
        **further,
    }


def test_a_law_in_sentences() -> None:
    assert law.page(details(), None) == Page(
        title="any",
        answer="10.0 ms per token (law), 2.50 times the speed of autoregressive decoding (25.0 ms, "
        "law): 30.00 ms per step, 3.000 tokens per step.",
        opening=[
            Table(
                ("ms", "kind 0\n50.0 %"),
                [("draft", "1.000"), ("step", "20.00"), ("hidden part", "4.000")],
                "Durations by step kind",
                terminal_columns=(0, 1),
            ),
            Bullets(["Law: T = 1. Relation to the process: exact"]),
        ],
        command="specsim law any",
        highlights=[
            Highlight("10.0 ms", "per token, by law"),
            Highlight("2.50 ×", "the speed of autoregressive decoding"),
        ],
    )


def test_what_a_law_leaves_out_is_said() -> None:
    page = law.page(
        details(6, cautions=["a caution"], load={"words": "2 requests come a second"}), None
    )
    caution, table, sentences = page.opening
    assert caution == Paragraph("A caution.")
    assert isinstance(table, Table)
    assert table.head[:2] == ("ms", "kind 0\n50.0 %")
    assert table.head[2] == "kind 1 of 1\n50.0 %"
    assert table.terminal_columns == (0, 1, 2, 3, 4)
    assert sentences == Bullets(
        [
            "On a terminal 2 rarer step kinds are left out",
            "Law: T = 1. Relation to the process: exact",
            "2 requests come a second",
        ]
    )


# ---- sliders


def pieces(requests: int, rates: list[float | None], price: float | None) -> dict[str, Any]:
    """A law in pieces over windows of one and two draft tokens."""
    return {
        "name": "vanilla_sd",
        "requests": requests,
        "rates": rates,
        "windows": [1, 2],
        "tpot_s": [[0.02, 0.01] for _ in rates],
        "plain_s": 0.04,
        "usd_per_hour": price,
    }


def test_sliders_without_acceptance() -> None:
    alone = pieces(1, [None], None)
    assert list(what_if.blocks(alone)) == [
        Sliders("vanilla_sd by law, 1 request at a time", alone),
        Paragraph(
            "By law, at the mean context. Plain decoding stays as it is. Python worked out the "
            "kinds of step (durations, shares, tokens); the page adds them up."
        ),
    ]


def test_sliders_over_acceptance_have_a_table_of_few_rates() -> None:
    over_rates = pieces(2000, [0.3, 0.35, None], 2.0)
    assert list(what_if.blocks(over_rates)) == [
        Sliders("vanilla_sd by law, 2,000 requests at a time", over_rates),
        Paragraph(
            "By law, at the mean context; the chance is the same at every place of a window and "
            'independent of the places before it, while "as it is" is the acceptance of the '
            "scenario. Plain decoding stays as it is; the price of a token leaves out the work for "
            "prompts and the time without requests. Python worked out the kinds of step "
            "(durations, shares, tokens); the page adds them up."
        ),
        Table(
            ["draft tokens kept", "1 token", "2 tokens"],
            [("30 %", "2.00 ×", "4.00 ×"), ("as it is", "2.00 ×", "4.00 ×")],
            "Speed-up over plain decoding by law, by acceptance and draft tokens",
        ),
    ]


# ---- inputs


def test_numbers_are_counted_by_how_well_they_are_known() -> None:
    assert inputs.counted({"measured": 2, "assumed": 1}) == "3 numbers: 2 measured, 1 assumed."
    assert list(inputs.provenance_blocks(load("durations_only").scenario)) == [
        Paragraph(
            "No number with a source was used: durations and rates are stated in the scenario."
        )
    ]


def test_every_number_stands_with_its_source() -> None:
    _, table = inputs.provenance_blocks(load("vanilla_llama_2_7b_a100").scenario)
    assert isinstance(table, Table)
    assert table.head == ["confidence", "parameter", "value", "source"]
    assert (table.title, table.badges, table.sortable) == ("Numbers used", (0,), True)
    confidences = [str(row[0]) for row in table.rows]
    assert confidences == sorted(confidences, key=inputs.CONFIDENCES.index)
    assert isinstance(table.rows[0][1], Code)


def test_the_scenario_is_listed_with_every_default() -> None:
    (listing,) = inputs.resolved_blocks(load("durations_only").scenario)
    assert isinstance(listing, Listing)
    assert listing.title == "durations_only, every default and every file filled in"


# ---- an explanation


def test_an_explanation_in_sentences() -> None:
    footings = [
        Footing("link.us", 2.5, "assumed", "x" * 70, -0.096),
        Footing("too.small", 1.0, "assumed", "x", 0.0001),
    ]
    defaults = [Default("seed", "0", "", "A scenario"), Default("a.b", "1", "p (measured)", "A b")]
    counts = {"measured": 2, "assumed": 1}
    page = explain.page(
        "any", Explanation({"about": "a thing"}, defaults, counts, ["take care"], footings)
    )
    assert page == Page(
        title="any",
        opening=[Table(["topic", "in words"], [("about", "a thing")], "What will be simulated")],
        sections=[
            Section(
                "Defaults that apply (2); --set changes any of them",
                [
                    Paragraph("A scenario"),
                    Bullets(["seed = 0"]),
                    Paragraph("A b"),
                    Bullets(["a.b = 1   p (measured)"]),
                ],
            ),
            Section(
                "What the answer depends on most",
                [
                    Table(
                        ["number", "value", "confidence", "speed-up", "source"],
                        [("link.us", "2.500", "assumed", "-9.6 %", "x" * 60)],
                        "Numbers by what one deviation of each changes",
                        badges=(2,),
                    ),
                    Paragraph(
                        "Speed-up: how much it changes, by law, where the number is one standard "
                        "deviation higher, or lower where it can be no higher (without "
                        "speculation: how much the speed changes). The deviation comes from the "
                        "range of the number, where it has one; otherwise it is a share by "
                        "confidence, judged and not measured: measured 2 %, datasheet 2 %, "
                        "computed 2 %, calibrated 5 %, published 5 %, borrowed 15 %, assumed 30 %."
                    ),
                ],
            ),
            Section(
                "Numbers used",
                [
                    Bullets(
                        [
                            "2 measured, 1 assumed; the report lists each with its source",
                            "Note: take care",
                        ]
                    )
                ],
            ),
        ],
    )
    assert explain.sources({}) == "none with a source: all are stated"


# ---- the bank of acceptance


def test_what_can_be_borrowed_is_listed() -> None:
    recordings = [
        {
            "recording": "t:draft",
            "temperature": None,
            "requests": 40,
            "widest": 8,
            "tokens_per_step_at_3": 2.5,
            "scenarios": 3,
            "pair": "a and b",
            "texts": "code, prose",
        },
        {
            "recording": "t:eagle",
            "temperature": 0.6,
            "requests": 40,
            "widest": None,
            "tokens_per_step_at_3": 2.25,
            "scenarios": 0,
            "pair": "a and c",
            "texts": "code, prose",
        },
    ]
    assert bank.list_page(recordings, 193, 49) == Page(
        "Acceptance that can be borrowed",
        answer="2 recordings to replay, and 193 published means of 49 targets (specsim list "
        "acceptance).",
        opening=[
            Table(
                ["recording", "T", "requests", "widest", "tokens/step at 3", "scenarios"],
                [
                    ("t:draft", "-", "40", "8", "2.5", "3"),
                    ("t:eagle", "0.6", "40", "-", "2.25", "0"),
                ],
                "Recordings",
            ),
            Bullets(["Texts: code, prose: t (draft, eagle)"]),
            Bullets(["Models: a and b: t (draft)", "Models: a and c: t (eagle)"]),
        ],
        standing=Standing(
            more=[
                Remark("Numbers", "Tokens a step with 3 draft tokens, by drafter.", ALWAYS),
                Remark("Trace", "t: draft 2.50, eagle 2.25", FIRST, 1),
            ]
        ),
    )


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (
            None,
            "No recording is of such a drafter, so the mean is used as an i.i.d. rate: the same "
            "chance at every position.",
        ),
        (
            {"name": "t:draft", "pair": "a and b", "temperature": 0.0},
            "t:draft lends its bursts, never its mean; recorded from a and b, temperature 0.0.",
        ),
    ],
)
def test_advice_in_sentences(recorded: dict[str, object] | None, words: str) -> None:
    mean: Any = Facts(method="eagle_3", window=None, temperature=0.6, task="chat")
    mean.tokens_per_step = 2.26
    shown = ("eagle_3", "-", "0.6", "chat", "2.26")
    loans = [
        Loan("Qwen/Qwen3-8B", mean, (), {"tokens_per_step": 2.26}),
        Loan("Other", mean, ("target Other", "window not stated"), {}),
    ]
    assert bank.advice_page("mine", recorded, loans, "vllm serve") == Page(
        "Acceptance for mine",
        answer="Nearest published mean: 2.26 tokens a step with eagle_3 on Qwen/Qwen3-8B (chat).",
        standing=Standing(
            doubts=[
                "a mean of another mix of tasks is 15 % off",
                "one of code is up to 45 % off for prose",
            ],
            more=[
                Remark("Differs", "In nothing that was stated.", FIRST),
                Remark("As typed", "{acceptance: {tokens_per_step: 2.26}}", ALWAYS, 2),
                Remark("Recording", words, FIRST),
            ],
        ),
        opening=[
            Table(
                ["target", "method", "window", "T", "task", "tokens/step", "differs in"],
                [
                    ("Qwen/Qwen3-8B", *shown, "nothing that was stated"),
                    ("Other", *shown, "target Other; window not stated"),
                ],
                "Nearest published means",
            )
        ],
        sections=[
            Section(
                "The nearest, as a scenario states it",
                [
                    Listing("acceptance:\n  tokens_per_step: 2.26\n", "yaml"),
                    Paragraph(
                        "How far off a borrowed mean may be, by published means that were measured "
                        "again: 2 % in a repeat of the same test, 15 % on another mix of tasks, up "
                        "to 45 % from code to prose, up to a factor of 2 with another tree, "
                        "language, context or sampling rule."
                    ),
                ],
            ),
            Section("Nearest recording", [Paragraph(words)]),
            Section("Your own in ten minutes", [Listing("vllm serve", "sh")]),
        ],
    )
