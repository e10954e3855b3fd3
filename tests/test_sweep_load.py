"""Scenarios under the same load: a pipeline with round numbers, crossings, the shipped study."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.report.blocks import Highlight, Paragraph, Table
from simulator.report.pages.load import headline, highlights, load_figure, page, sentences
from simulator.report.wording import short_names
from simulator.scenario import load
from simulator.studies.load import LoadPoint, LoadStudy, crossing, study

TEXT = """\
strategy: {name: pipeline}
durations: {stages_ms: [10, 10]}
acceptance: {rate: 0}
requests: {output_tokens: 11, count: 16}
serving: {policy: {name: prefill_first}}
"""


def pair(folder: Path) -> tuple[str, str]:
    """The plain pipeline, and the same with two requests at a time at most."""
    (folder / "batched.yaml").write_text(TEXT)
    (folder / "two.yaml").write_text(
        TEXT.replace("prefill_first", "prefill_first, max_requests: 2")
    )
    return str(folder / "batched.yaml"), str(folder / "two.yaml")


def test_two_stages_hold_two_batches(tmp_path: Path) -> None:
    """A token takes 20 ms, 10 of them in steps: 11 tokens in 200 ms for each of 1, 2 or 4 clients;
    with two places 4 wait.

    Requests of a batch begin together; the second batch is 10 ms behind, once.
    """
    batched, two = study([load(name) for name in pair(tmp_path)], (1, 2, 4)).curves.values()
    assert [point.clients for point in batched] == [1, 2, 4]
    for point in (*batched, *two):
        assert point.tpot_ms == pytest.approx(20.0, abs=0.13)
        assert point.tbt_p50_ms == pytest.approx(20.0, rel=5e-3)
        assert point.tbt_p99_ms <= 30.0
        assert point.preemptions == 0
    assert batched[0].tokens_per_s == pytest.approx(55)
    assert [point.tokens_per_s for point in batched[1:]] == pytest.approx([110, 220], rel=0.02)
    assert [point.tokens_per_s for point in two] == pytest.approx([55, 110, 110], rel=0.02)


def curve(*tokens_per_s: float) -> list[LoadPoint]:
    return [
        LoadPoint("x", 2**index, rate, 1e3 / rate, 1.0, 1.0, 0)
        for index, rate in enumerate(tokens_per_s)
    ]


def test_a_crossing_is_for_good() -> None:
    assert crossing(curve(5, 5, 5, 5), curve(1, 9, 4, 6)) == 8
    assert crossing(curve(5, 5, 5), curve(1, 9, 9)) == 2
    assert crossing(curve(5, 5), curve(9, 5)) is None
    assert crossing(curve(5, 5), curve(9, 9)) == 1


def test_the_first_scenario_is_what_others_are_compared_with() -> None:
    (said,) = sentences({"a": curve(10, 20, 40), "b": curve(20, 30, 30)})
    assert said == (
        "b against a: fewer tokens per second from 4 clients on, more with 1, 2. From two "
        "clients on its throughput is 0.75 to "
        "1.50 times as high, and tokens follow each other 0.75 to 1.50 times as fast."
    )
    (ahead,) = sentences({"a": curve(10, 20), "b": curve(20, 30)})
    assert "b against a: more tokens per second with 1, 2 clients. From" in ahead
    assert short_names(["specpipe_db_llama_8x3090", "specpipe_llama_8x3090"]) == [
        "db_llama",
        "llama",
    ]
    assert short_names(["a_b"]) == ["a_b"]


def test_scenarios_that_never_part_are_said_to_be_level() -> None:
    assert list(sentences({"a": curve(10), "b": curve(10)})) == [
        "b against a: never fewer, never more tokens per second."
    ]
    assert list(sentences({"a": curve(10), "b": curve(5)})) == [
        "b against a: fewer tokens per second from 1 clients on."
    ]


def test_the_answer_names_who_brings_most_and_who_is_fastest() -> None:
    alone = {
        "a": [LoadPoint("a", 1, 10.0, 100.0, 1, 1, 0), LoadPoint("a", 4, 30.0, 130.0, 1, 1, 0)]
    }
    other = [LoadPoint("b", 1, 20.0, 50.0, 1, 1, 0), LoadPoint("b", 4, 25.0, 160.0, 1, 1, 0)]
    assert headline(alone) == (
        "With 4 clients a brings 30.0 tokens per second; with 1, 100 ms per token (simulation)."
    )
    assert headline(alone | {"b": other}) == (
        "With 4 clients a brings 30.0 tokens per second, the most of 2 scenarios; with 1, b is "
        "fastest: 50.0 ms per token (simulation)."
    )
    assert list(highlights(alone | {"b": other})) == [
        Highlight("30.0", "tokens per second with 4 clients"),
        Highlight("130 ms", "per token with 4 clients"),
        Highlight("50.0 ms", "per token with 1"),
    ]


def test_tables_and_axes_name_what_they_show() -> None:
    curves = {"a": curve(10, 20)}
    shown = page(LoadStudy(curves))
    (table,) = [block for block in shown.blocks if isinstance(block, Table)]
    assert shown.title == "Scenarios under the same load"
    assert (table.title, list(table.head)) == (
        "Load of a",
        ["clients", "tokens per second", "ms per token", "TBT p50", "TBT p99", "preempted"],
    )
    assert list(table.rows) == [
        ("1", "10.00", "100.0", "1.000", "1.000", "0"),
        ("2", "20.00", "50.00", "1.000", "1.000", "0"),
    ]
    assert shown.opening[-1] == Paragraph(
        "Simulation of a closed loop: clients send their next request as soon as their last one "
        "has ended. Tokens per second are of all requests, prefills included in the time. Ms per "
        "token: of one request behind its first token, waiting to be admitted left out. TBT: "
        "between two deliveries to a request, however many tokens they bring."
    )
    assert [figure.title for figure in shown.figures] == [
        "Tokens per second against time per token"
    ]
    trade, tail = load_figure(curves).axes
    assert (trade.get_xlabel(), trade.get_ylabel(), trade.get_title("left")) == (
        "tokens per second, all requests",
        "time of one request (ms)",
        "per token, mean; at the ends: clients",
    )
    assert (tail.get_xlabel(), tail.get_title("left")) == (
        "clients",
        "between deliveries: median (line), 99th percentile (dots)",
    )


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    page = tmp_path / "load.md"
    result = CliRunner().invoke(
        main,
        ["load", *pair(tmp_path), "--sizes", "1,4", "--long", "--out", str(page)],
        catch_exceptions=False,
    )
    assert "two against batched: fewer tokens per second from 4 clients on" in " ".join(
        result.stdout.split()
    )
    assert page.read_text().count("| 4 |") == 2
    assert "--sizes 1,4 --out" in page.read_text()
    # our own
    words = "".join(ElementTree.parse(tmp_path / "load.svg").getroot().itertext())
    assert "tokens per second, all requests" in words
    data = json.loads(
        CliRunner().invoke(main, ["load", pair(tmp_path)[0], "--sizes", "2", "--json"]).stdout
    )
    assert [point["clients"] for point in data["batched"]] == [2]


def test_two_scenarios_of_one_name_are_refused() -> None:
    done = CliRunner().invoke(main, ["load", "durations_only", "durations_only", "--sizes", "1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "error: durations_only: name: 2 scenarios are called durations_only; give each a name of "
        "its own\n"
    )


def test_plain_specpipe_loses_to_dynamic_batching() -> None:
    """SpecPipe sec. 4.4: one request at a time is fastest alone, and batches bring more tokens from
    some size on.
    """
    names = ("pipeline_llama_3_1_70b_8x3090", "specpipe_one_at_a_time_llama_3_1_70b_8x3090")
    batched, alone = study(
        [load(name, ["requests.count=16", "requests.output_tokens=60"]) for name in names], (1, 8)
    ).curves.values()
    assert alone[0].tokens_per_s > 2 * batched[0].tokens_per_s
    assert alone[1].tokens_per_s < batched[1].tokens_per_s
    assert alone[1].tpot_ms < 0.5 * batched[1].tpot_ms
    assert alone[1].tbt_p99_ms > 2 * alone[1].tbt_p50_ms, "a miss is the tail"
