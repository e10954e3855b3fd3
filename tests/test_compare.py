"""Scenarios side by side: a step of round numbers, what differs in input, when to be careful, the
command and its page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.report.blocks import Code, Highlight, Page, Paragraph, Table
from simulator.report.pages.compare import borrowed, page
from simulator.scenario import load
from simulator.scenario.uncertain.devices import with_slower
from simulator.studies.compare import CHECKS, MEASURES, Contestant, Value, differences, study

TEXT = """\
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 30, draft_ms: 10}
acceptance: {always: 3}
requests: {prompt_tokens: 8, output_tokens: 41, count: 2}
"""
"""A step takes 40 ms and brings four tokens: 10 ms per token against 30."""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return str(path)


def asked(*args: str) -> Result:
    return CliRunner().invoke(main, ["compare", *args], env={"COLUMNS": "100"})


def data(*args: str) -> dict[str, Any]:
    result = asked(*args, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_change_is_held_against_what_it_changes(mine: str) -> None:
    """Half the target's time: 25 ms a step, 6.25 ms per token, and the speed-up falls, since plain
    decoding gains more.
    """
    found = data(mine, mine, "--set", "B:durations.target_ms=15")
    a, b = found["scenarios"].values()
    for one, target in (a, 30.0), (b, 15.0):
        assert one["step_ms"] == pytest.approx(target + 10)
        assert one["tokens_per_step"] == pytest.approx(4)
        assert one["tpot_ms"] == pytest.approx((target + 10) / 4) == one["law_tpot_ms"]
        assert one["baseline_tpot_ms"] == pytest.approx(target)
        assert one["speedup"] == pytest.approx(4 * target / (target + 10))
        assert one["tbt_p99_ms"] == pytest.approx(target + 10, rel=5e-3)
        assert one["parts_ms"] == pytest.approx({"draft": 10, "target": target})
        assert "usd_per_million_tokens" not in one
    assert (a["name"], b["name"]) == ("mine", "mine, durations.target_ms=15")
    assert a["command"] == f"specsim run {mine}"
    assert b["command"] == f"specsim run {mine} --set durations.target_ms=15"
    (apart,) = found["differences"]
    assert (apart["field"], apart["A"]["text"], apart["B"]["text"]) == (
        "durations.target_ms",
        "30.0",
        "15.0",
    )
    assert found["cautions"] == []


def test_what_is_set_without_a_letter_is_set_everywhere(mine: str) -> None:
    found = data(
        mine,
        mine,
        "--set",
        "strategy.gamma=1",
        "--set",
        "acceptance.always=1",
        "--set",
        "B:strategy.gamma=2",
    )
    assert [
        scenario["tokens_per_step"] for scenario in found["scenarios"].values()
    ] == pytest.approx([2, 2])
    assert [difference["field"] for difference in found["differences"]] == ["strategy.gamma"]


def test_a_promise_is_counted_where_there_is_one(mine: str) -> None:
    """A request takes 400 ms: ten steps, behind a prompt for which no time is stated."""
    found = data(mine, mine, "--set", "B:slo={e2e_ms: {p90: 500}}")
    assert "B serves other requests" in found["cautions"][0]
    goodput = [scenario["goodput_requests_per_s"] for scenario in found["scenarios"].values()]
    assert goodput == [None, pytest.approx(1 / 0.4)]


def test_the_order_changes_nothing_and_a_scenario_does_not_differ_from_itself() -> None:
    loaded = [
        load(name).scenario
        for name in ("durations_only", "vanilla_llama_2_7b_a100", "specpipe_llama_3_1_70b_8x3090")
    ]
    for scenario in loaded:
        assert list(differences([scenario, scenario])) == []
        for other in loaded:
            there, back = differences([scenario, other]), differences([other, scenario])
            assert {(apart.field, apart.values) for apart in there} == {
                (apart.field, apart.values[::-1]) for apart in back
            }


def test_a_number_says_where_it_comes_from() -> None:
    name = "mirror_qwen3_32b_a100"
    changed = load(name, ["target.device.memory_bandwidth_gb_s=1000"])
    (apart,) = differences([load(name).scenario, changed.scenario, load(name).scenario])
    assert apart.field == "target.device.memory_bandwidth_gb_s"
    held, mine, again = apart.values
    assert mine == Value("1000", "set on the command line", "assumed")
    assert held == again
    assert held
    assert held.confidence == "datasheet"
    assert apart.others() == [1]


def test_what_only_one_has_is_named_once() -> None:
    """A scenario without a draft lacks a model and a device, not a hundred fields."""
    loaded = load("vanilla_qwen3_32b_m2_ultra")
    plain = load(
        "vanilla_qwen3_32b_m2_ultra",
        ["draft=null", "strategy={name: autoregressive}", "channel=null"],
    )
    apart = {
        difference.field: difference.values
        for difference in differences([loaded.scenario, plain.scenario])
    }
    assert apart["draft"] == (Value("spd_qwen_0_6b"), None)
    assert not any(field.startswith("draft.") for field in apart)
    assert apart["strategy.name"] == (Value("vanilla_sd"), Value("autoregressive"))


def test_stages_that_differ_alike_are_told_once_and_tables_by_their_length() -> None:
    loaded = load("specpipe_llama_3_1_70b_8x3090")
    slower = with_slower({"rtx_3090": 1.0}, loaded).scenario
    fields = [difference.field for difference in differences([loaded.scenario, slower])]
    parts = ("dot_operations", "memory_bandwidth_gb_s", "peak_tflops")
    assert sorted(fields) == [f"target.device.{part}" for part in parts]
    name, table = "mirror_qwen3_32b_m2_ultra", "target.device.matmul.q8_0.width"
    short, other = (
        f"{table}=[{{tokens: 1, ratio: 1}}, {{tokens: 8, ratio: {ratio}}}]" for ratio in (3, 4)
    )
    (apart,) = differences(
        [load(name, overrides).scenario for overrides in ([], [short], [other], [f"{table}=[]"])]
    )
    assert [value.text for value in apart.values if value] == [
        "8 entries",
        "2 entries, no. 1",
        "2 entries, no. 2",
        "[]",
    ]


@pytest.mark.parametrize(
    ("overrides", "caution"),
    [
        (["B:requests.output_tokens=21"], "B serves other requests"),
        (["B:acceptance.always=2"], "B takes acceptance from elsewhere"),
        (["B:seed=7"], "B has another seed"),
        (["B:strategy.gamma=4"], "B drafts another window in the same stated draft_ms"),
        (["B:strategy.gamma=4", "B:durations.draft_ms=11"], None),
        (["durations.draft_ms=null", "durations.draft_step_ms=2", "B:strategy.gamma=4"], None),
        (["B:durations.draft_ms=1"], None),
    ],
)
def test_what_is_another_question_is_said(
    overrides: list[str], caution: str | None, mine: str
) -> None:
    found = data(mine, mine, *(word for override in overrides for word in ("--set", override)))[
        "cautions"
    ]
    assert [one for one in found if not caution or not one.startswith(caution)] == []
    assert bool(found) == bool(caution)


def test_another_target_and_stated_times_are_said(mine: str) -> None:
    small = ["requests.count=1", "requests.output_tokens=5"]
    held = ["vanilla_llama_2_7b_a100", "vanilla_qwen3_32b_a100", mine]
    found = data(*held, *(word for one in small for word in ("--set", one)))
    told = [caution.partition(":")[0] for caution in found["cautions"]]
    assert told[:2] == ["B decodes another target", "C has its times from elsewhere"]
    assert told[2:5] == [
        "B serves other requests",
        "C serves other requests",
        "C takes acceptance from elsewhere",
    ]
    assert told[5:] == ["A", "B"], "what their speed-ups rest on"
    assert all(scenario["memory_gb"] > 0 for scenario in list(found["scenarios"].values())[:2])
    assert found["scenarios"]["C"]["memory_gb"] is None


def test_borrowed_acceptance_is_marked(mine: str, tmp_path: Path) -> None:
    small = (
        "--set",
        "A:requests.count=1",
        "--set",
        "A:requests.output_tokens=5",
        "--out",
        str(tmp_path / "page"),
    )
    told = "Acceptance of A is a stand-in, recorded from other models."
    assert told in asked("vanilla_llama_2_7b_a100", mine, *small, "--long").stdout
    assert told in (tmp_path / "page" / "compare.md").read_text()
    assert "stand-in" not in asked(mine, mine, "--long").stdout


def test_the_page_says_it_all(mine: str, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    result = asked(mine, mine, "--set", "B:durations.draft_ms=0", "--out", str(folder))
    assert result.exit_code == 0, result.output
    assert "A takes 10.0 ms per token (simulation); B 7.50 ms, 1.33 times as fast." in " ".join(
        result.stdout.split()
    )
    assert {path.name for path in folder.iterdir()} == {
        "compare.md",
        "compare.html",
        "compare.svg",
        "compare.data.csv",
    }
    page = (folder / "compare.md").read_text()
    assert "| ms per token, simulation | 10.00 | 7.500 (0.75 ×) |" in page
    assert "| `durations.draft_ms` | 10.0 | 0.0 |" in page
    assert "B:durations.draft_ms=0 --out" in page
    # our own
    words = "".join(ElementTree.parse(folder / "compare.svg").getroot().itertext())
    assert "time per token (ms)" in words
    again = asked(mine, mine, "--set", "B:durations.draft_ms=0", "--out", str(folder))
    assert again.exit_code == 0
    assert (folder / "compare.md").read_text() == page


def compared(mine: str, *overrides: list[str]) -> Page:
    """The page of a scenario with these overrides, by letter."""
    contestants = [
        Contestant(letter, f"mine {letter}", f"specsim run {letter}", load(mine, changes))
        for letter, changes in zip("ABCD", overrides, strict=False)
    ]
    return page(study(contestants))


def test_the_answer_says_how_many_times_as_fast_each_is(mine: str) -> None:
    pair = compared(mine, [], ["durations.draft_ms=0"])
    assert pair.title == "mine"
    assert pair.answer == "A takes 10.0 ms per token (simulation); B 7.50 ms, 1.33 times as fast."
    assert pair.highlights == [
        Highlight("10.0 ms", "per token, A: mine A"),
        Highlight("7.50 ms", "per token, B: mine B"),
        Highlight("1.33 ×", "as fast, B against A"),
    ]
    three = compared(mine, [], ["durations.draft_ms=30"], ["durations.draft_ms=0"])
    assert three.answer == (
        "A takes 10.0 ms per token (simulation); B 15.0 ms, 0.67 times as fast; C 7.50 ms, 1.33 "
        "times as fast."
    )
    assert three.highlights == [
        Highlight("10.0 ms", "per token, A: mine A"),
        Highlight("7.50 ms", "per token, C: mine C, the fastest of the others"),
        Highlight("1.33 ×", "as fast, C against A"),
    ]
    assert [section.title for section in pair.sections] == [
        "Results",
        "Inputs that differ",
        "Where the time goes",
        "Commands that run each alone",
        "The scenarios, resolved",
    ]


def test_numbers_that_differ_have_their_sources_in_a_table() -> None:
    small = ["requests.count=1", "requests.output_tokens=5"]
    faster = [*small, "target.device.memory_bandwidth_gb_s=3000"]
    found = compared("mirror_qwen3_32b_a100", small, faster)
    section = next(section for section in found.sections if section.title.startswith("Sources"))
    (sources,) = section.blocks
    assert section.title == "Sources of the numbers that differ"
    assert isinstance(sources, Table)
    assert list(sources.head) == ["field", "", "confidence", "source"]
    assert sources.rows[-1] == (
        Code("target.device.memory_bandwidth_gb_s"),
        "B: 3000",
        "assumed",
        "set on the command line",
    )


def test_pictures_and_tables_say_what_they_mean(mine: str) -> None:
    shown = compared(mine, [], [])
    assert [block.words for block in shown.blocks if isinstance(block, Paragraph)] == [
        (
            "In brackets: against A. Law: step over tokens at the mean context, with marginal "
            "acceptance; simulation: mean over requests. Autoregressive decoding is simulated for "
            "each on its own target. USD and J count every device for the whole run."
        ),
        "None: the scenarios are the same.",
        (
            "Mean over the steps of the simulation, by the cost model at the mean context; parts "
            "that run side by side overlap."
        ),
    ]
    (picture,) = shown.figures
    assert picture.title == "Time per token of each scenario, and the parts of a step"
    tokens, parts = picture.drawing.axes
    assert (tokens.get_xlabel(), tokens.get_title("left")) == (
        "time per token (ms)",
        "a token, simulation",
    )
    assert (parts.get_xlabel(), parts.get_title("left")) == (
        "ms in a mean step",
        "its parts; some run side by side",
    )


def test_letters_whose_acceptance_is_borrowed_are_listed() -> None:
    rest = "is a stand-in, recorded from other models."
    assert borrowed(["B"]) == f"Acceptance of B {rest}"
    assert borrowed(["A", "B"]) == f"Acceptance of A and B {rest}"
    assert borrowed(["A", "B", "D"]) == f"Acceptance of A, B and D {rest}"


def test_what_is_compared_is_named() -> None:
    assert {measure.key: measure.words for measure in MEASURES} == {
        "tpot_ms": "ms per token, simulation",
        "law_tpot_ms": "ms per token, law",
        "baseline_tpot_ms": "ms per token, autoregressive",
        "speedup": "speed-up over autoregressive",
        "step_ms": "ms per step",
        "tokens_per_step": "tokens per step and request",
        "tokens_per_s": "tokens per second, all requests",
        "goodput_requests_per_s": "good requests per second (SLO)",
        "ttft_ms": "TTFT, mean (ms)",
        "tbt_p99_ms": "between deliveries, p99 (ms)",
        "usd_per_million_tokens": "USD per million tokens",
        "most_j_per_token": "J per token, at most",
        "memory_gb": "GB on the fullest device",
    }


def test_what_may_not_be_compared_is_said_in_these_words() -> None:
    assert [check.words for check in CHECKS] == [
        "decodes another target: its times and its text are another model's",
        "has its times from elsewhere: hardware in one, stated in the other",
        "serves other requests: times, tokens per second and tails are under another load",
        (
            "takes acceptance from elsewhere: keeping more or less may be due to the text, not to "
            "the method"
        ),
        (
            "drafts another window in the same stated draft_ms, as if more tokens took no longer; "
            "draft_step_ms would grow with it"
        ),
        "has another seed: a small difference may be chance",
    ]


def test_a_single_scenario_is_changed_letter_by_letter(mine: str) -> None:
    alone = data(
        mine,
        "--set",
        "A:durations.draft_ms=5",
        "--set",
        "C:durations.draft_ms=0",
        "--set",
        "requests.count=1",
    )
    sets = [
        "--set",
        "A:durations.draft_ms=5",
        "--set",
        "C:durations.draft_ms=0",
        "--set",
        "requests.count=1",
    ]
    assert alone == data(mine, mine, mine, *sets)
    assert [scenario["tpot_ms"] for scenario in alone["scenarios"].values()] == pytest.approx(
        [8.75, 10.0, 7.5]
    )


def test_one_scenario_or_a_letter_too_many_is_refused(mine: str) -> None:
    for args, words in (
        (
            (mine,),
            "expected 2 to 26 scenarios, or one with --set A:KEY=VALUE --set B:KEY=VALUE, got 1",
        ),
        ((mine, "--set", "A:seed=1"), "got 1"),
        ((mine, mine, "--set", "C:seed=1"), "there are scenarios A to B"),
        ((mine, mine, "--set", "B:strategy.gama=1"), "strategy.gama"),
    ):
        result = asked(*args)
        assert result.exit_code == 2
        assert words in result.stderr
