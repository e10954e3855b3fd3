"""What the network between servers costs: two servers with round numbers, and the shipped
scenario.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.papers.specpipe.network import (
    Breaking,
    NetworkRow,
    NetworkStudy,
    latency_sweep,
    link_between_servers,
    rate_sweep,
    study,
)
from simulator.papers.specpipe.network_page import broken, page as page_of, published, sentences
from simulator.report.blocks import Highlight
from simulator.scenario import load

ONE, TWO = "specpipe_llama_3_1_70b_8x3090", "specpipe_llama_3_1_70b_two_servers"
SURE = ["requests.count=2", "requests.output_tokens=30", "acceptance={rate: 1.0}"]


def test_a_full_pipeline_pays_the_exchange_that_is_not_hidden() -> None:
    """Trees of one row, all tokens in them: 29 tokens, of which the first one finds an empty
    pipeline and takes 8 steps.

    A step begins with T_token + T_prune (5 ms) beside or before the longest link; the 7 others of
    the first token with the links that the row has passed: three within the server, then the one
    between.
    """
    loaded = load(TWO, [*SURE, "strategy.width=1", "strategy.branching=1"])
    rows = study([loaded]).rows
    assert [(row.one_server, row.overlapped) for row in rows] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    within, between = (loaded.scenario.cost.carry(index, 1) for index in (0, 3))
    near, far = 10e-6 + 4 / 31.5e9, 50e-6 + 4 / 1.25e9
    seconds = [
        29 * (near + 5e-3) + 7 * within,
        29 * (near + 5e-3) + 28 * within + 7 * within,
        29 * (far + 5e-3) + 3 * within + 4 * between,
        29 * (far + 5e-3) + 28 * between + 3 * within + 4 * between,
    ]
    for row, total in zip(rows, seconds, strict=True):
        assert row.added_ms == pytest.approx((total - seconds[0]) / 29 * 1e3, abs=1e-9)
        assert row.added_share == pytest.approx(row.added_ms / rows[0].tpot_ms)


def test_a_scenario_on_one_server_has_no_network_to_take_away() -> None:
    rows = study([load(ONE, SURE)]).rows
    assert [(row.one_server, row.overlapped) for row in rows] == [(True, True), (True, False)]


def test_sweeps_rise_with_latency_and_fall_with_the_rate() -> None:
    loaded = load(TWO, SURE)
    by_latency, by_rate = latency_sweep(loaded, (50, 1_000)), rate_sweep(loaded, (1, 10))
    assert by_latency[0].overlapped_ms < by_latency[1].overlapped_ms < by_latency[1].in_turn_ms
    assert by_rate[0].in_turn_ms > by_rate[0].overlapped_ms > by_rate[1].overlapped_ms
    assert by_rate[1].overlapped_ms == by_latency[0].overlapped_ms, (
        "10 Gbit/s and 50 us are the profile's own"
    )
    assert link_between_servers(loaded) == 4


PRINTED = (
    "SpecPipe prints 4.19 to 5.53 on one server, 3.89 to 5.23 on two servers: 7.2 % and 5.4 % less."
)
ROWS = (
    NetworkRow("a", True, True, 40.0, 0.0, 160.0),
    NetworkRow("a", True, False, 42.0, 2.0, 160.0),
    NetworkRow("b", True, True, 40.0, 0.0, 152.0),
    NetworkRow("b", False, True, 41.0, 1.0, 152.0),
    NetworkRow("b", False, False, 44.0, 4.0, 152.0),
)


def test_what_the_paper_prints_stands_beside_it() -> None:
    assert published() == PRINTED
    assert list(sentences(ROWS)) == [
        "b: the network between servers costs 1.000 ms a token (2.5 %) where sending is overlapped "
        "with pruning, 4.000 ms (10.0 %) where it is not.",
        "Speed-up over the plain pipeline: 4.00 times for a, 3.71 for b: 7.3 % less, of which 5.0 "
        f"% without any network, from the devices alone. {PRINTED}",
    ]
    assert not list(sentences(ROWS[:2]))


def test_a_page_of_networks_reads_so() -> None:
    page = page_of(NetworkStudy(ROWS))
    assert page.answer == (
        "The network between servers costs b 1.00 ms per token (2.5 %) where sending overlaps with "
        "pruning."
    )
    assert page.highlights == [
        Highlight("41.0 ms", "per token, b, sending while stages prune"),
        Highlight("1.00 ms", "of that added by the network"),
        Highlight("3.71 ×", "as fast as the plain pipeline over the same links"),
    ]
    one_server, two_servers = (section.blocks[0] for section in page.sections)
    assert one_server.title == "Network of a"
    assert one_server.head == [
        "between servers",
        "sending",
        "ms per token",
        "added ms",
        "added",
        "speed-up",
    ]
    assert one_server.rows == [
        ("none", "overlapped", "40.00", "0", "0.0 %", "4.00"),
        ("none", "in turn", "42.00", "2.000", "5.0 %", "3.81"),
    ]
    assert [row[:2] for row in two_servers.rows] == [
        ("as within one", "overlapped"),
        ("network", "overlapped"),
        ("network", "in turn"),
    ]


def test_a_page_of_a_single_server_reads_so() -> None:
    assert page_of(NetworkStudy(ROWS[:2])).answer == (
        "All stages share a server: 40.0 ms per token where sending overlaps with pruning."
    )


def test_where_a_link_breaks_a_pipeline_in_sentences() -> None:
    breakings = (
        Breaking("b", True, 2.5, 0.125, 0.05, 10.0),
        Breaking("b", False, None, None, 0.05, 10.0),
    )
    assert list(broken(breakings)) == [
        "b, sending overlapped: a token takes twice as long as on one server from 2.5 ms of "
        "latency on (at 10 Gbit/s), or below 0.12 Gbit/s (at 0.05 ms).",
        "b, sending in turn: a token takes twice as long as on one server at no latency up to 1 s "
        "(at 10 Gbit/s), or at no rate down to 1 Mbit/s (at 0.05 ms).",
    ]


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    page = tmp_path / "network.md"
    few = [
        word
        for one in [*SURE, "requests.count=1", "requests.output_tokens=20"]
        for word in ("--set", one)
    ]
    result = CliRunner().invoke(
        main, ["network", ONE, TWO, *few, "--long", "--out", str(page)], catch_exceptions=False
    )
    assert "in turn" in result.stdout
    assert page.read_text().count("| overlapped |") == 3
    # our own
    words = "".join(ElementTree.parse(tmp_path / "network.svg").getroot().itertext())
    for text in (
        "stage 4",
        "stage 5",
        "time (ms)",
        "latency between servers (ms)",
        "rate between servers (Gbit/s)",
        "ms per token more than on one server",
        "sending while stages prune",
        "sending after pruning",
    ):
        assert text in words, text
    data = json.loads(CliRunner().invoke(main, ["network", ONE, *few, "--json"]).stdout)
    assert [row["scenario"] for row in data["rows"]] == [ONE, ONE]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["pipeline_llama_3_1_70b_8x3090"],
            "strategy: pipeline does not overlap sending with pruning",
        ),
        ([ONE, "--out", "x.svg"], "target.pipeline: all stages are on one server"),
    ],
)
def test_what_has_no_network_is_told_so(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["network", *arguments])
    assert result.exit_code == 2
    assert expected in result.stderr
    assert not list(tmp_path.iterdir())
