"""The load that a scenario carries: against queues whose capacity is known, and what a user sees of
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.inputs.catalogue import Catalogue
from simulator.report.blocks import Highlight, Paragraph, Table
from simulator.report.pages.capacity import answers, headline, highlights, page
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.studies.capacity import (
    DRIFT,
    TOLERANCE,
    Capacity,
    CapacityStudy,
    Trial,
    capacity,
    drift,
    trial,
)

SERVER = [
    "strategy=autoregressive",
    "durations={target_ms: 1000, prefill_ms: 1000}",
    "requests.output_tokens=3",
]
ONE = "serving.policy={name: fixed_batch, max_requests: 1}"
"""One place, three seconds for every request: it carries a third of a request per second."""


def arriving(name: str, rate: float, count: int, *more: str) -> list[str]:
    return [
        *SERVER,
        f"requests.arrivals={{name: {name}, rate_per_s: {rate}}}",
        f"requests.count={count}",
        ONE,
        *more,
    ]


@given(st.floats(0.05, 1.0), st.integers(60, 400))
def test_the_drift_is_the_share_of_work_that_is_too_much(rate: float, count: int) -> None:
    """A server that ends a request every ``1 / rate`` s, while one arrives every second."""
    arrivals = np.arange(1.0, count + 1)
    ends = np.maximum.accumulate(1.0 + (np.arange(count) + 1) / rate)
    assert drift(arrivals, ends) == pytest.approx(1.0 - rate, abs=3.0 / count)


def test_nobody_in_the_system_for_long_is_no_drift() -> None:
    arrivals = np.arange(1.0, 300.0)
    assert drift(arrivals, arrivals + 0.5) == pytest.approx(0.0, abs=1e-3)
    assert drift(np.zeros(5), np.arange(1.0, 6.0)) == 0.0


@pytest.mark.parametrize(("rate", "stable"), [(0.32, True), (0.36, False)])
def test_a_server_is_stable_below_its_rate_and_not_above(rate: float, stable: bool) -> None:
    one = trial(load("durations_only", arriving("deterministic", rate, 300)))
    assert one.stable is stable
    assert one.drift == pytest.approx(max(0.0, 1 - 1 / 3 / rate), abs=DRIFT / 2)
    assert one.requests_per_s == pytest.approx(rate)


@pytest.mark.parametrize("name", ["deterministic", "poisson"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_capacity_of_a_server_is_its_rate(name: str, replicas: int) -> None:
    for rate in (0.2 * replicas, 0.5 * replicas):
        found = capacity(
            load("durations_only", arriving(name, rate, 1_000, f"serving.replicas={replicas}"))
        )
        assert found.offered.stable is (rate < replicas / 3)
        assert found.carried_per_s == pytest.approx(replicas / 3, rel=0.02)
        assert found.headroom == pytest.approx(found.carried_per_s / found.offered.requests_per_s)


def test_an_slo_lowers_the_capacity() -> None:
    """M/D/1: a mean wait of rho S / 2 (1 - rho) is 1.5 s at half the load (Pollaczek,
    Khinchine).
    """
    loaded = load("durations_only", arriving("poisson", 0.1, 2_000, "slo={ttft_ms: {p50: 1500}}"))
    found = capacity(loaded)
    assert found.offered.carried
    assert 0.1 < found.carried_per_s < 0.28
    assert found.refused_per_s / found.carried_per_s <= 1 + TOLERANCE


def test_the_search_takes_the_whole_log_where_its_first_requests_come_at_once(
    tmp_path: Path,
) -> None:
    """Twelve come at 0, then one a second to 30 s: the first ten have no rate, all of them 42 in 30
    s.
    """
    times = [0] * 12 + list(range(1, 31))
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{at},50,3\n" for at in times)
    (tmp_path / "own.csv").write_text(text)
    traffic = f"requests={{arrivals: {{name: file, format: csv, file: {tmp_path}/own.csv}}}}"
    fast = [
        SERVER[0],
        "durations={target_ms: 10, prefill_ms: 10}",
        traffic,
        ONE,
        "slo={ttft_ms: {p50: 900}}",
    ]
    found = capacity(load("durations_only", fast), searched=10)
    assert (found.offered.requests, found.offered.requests_per_s) == (42, pytest.approx(1.4))
    assert 1.4 < found.carried_per_s <= 1 / 0.03
    assert found.refused_per_s / found.carried_per_s <= 1 + TOLERANCE


def test_an_slo_out_of_reach_is_carried_at_no_rate() -> None:
    found = capacity(
        load("durations_only", arriving("poisson", 0.1, 50, "slo={ttft_ms: {p50: 900}}"))
    )
    assert (found.carried_per_s, found.headroom, found.offered.stable, found.offered.carried) == (
        0.0,
        0.0,
        True,
        False,
    )


@pytest.mark.full
def test_verdicts_of_a_shipped_scenario_under_two_workloads(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    traffic = "arrival_s,prompt_tokens,output_tokens\n" + "".join(
        f"{at},50,5\n" for at in range(1, 120)
    )
    (tmp_path / "own.csv").write_text(traffic)
    command = [
        "capacity",
        "durations_only",
        "--set",
        "strategy=autoregressive",
        "--set",
        "durations={target_ms: 5}",
    ]
    command += [
        "--set",
        "serving.policy={name: prefill_first}",
        "--traffic",
        "steady",
        "--traffic",
        f"csv:{tmp_path}/own.csv",
    ]
    result = CliRunner().invoke(
        main, [*command, "--search", "100", "--json", "--out", str(page)], catch_exceptions=False
    )
    found = json.loads(result.stdout)["capacities"]
    assert [one["verdict"] for one in found] == ["stable", "stable"]
    assert [one["offered"]["requests"] for one in found] == [400, 119]
    assert all(abs(one["offered"]["littles_gap"]) < 1e-9 for one in found)
    text = page.read_text()
    assert "specsim capacity durations_only" in text
    assert "| steady | durations_only | 2.00 | stable |" in text
    ElementTree.parse(page.with_suffix(".svg"))


def verdict(scenario: str, traffic: str, offered: float, carried: float) -> Capacity:
    """A capacity with nothing but its rates; stable where it carries what is offered."""
    stable = carried > offered
    offers = Trial(offered, 9, 0.0, stable, True, 1, 1, 1, 1, 1, 1, 1, 0.0, 0, 0.0, (), ())
    return Capacity(scenario, traffic, 1, offers, carried, carried, 0.0)


def test_the_answer_names_who_carries_most_of_every_traffic() -> None:
    rates = [
        verdict("a_x", "night", 2.0, 3.0),
        verdict("b_x", "night", 2.0, 1.0),
        verdict("a_x", "day", 4.0, 2.0),
    ]
    assert headline(rates) == (
        "day: a_x carries the most, 2.00 requests per second, 0.50 times the 4.00 offered; night: "
        "a_x carries the most, 3.00 requests per second, 1.50 times the 2.00 offered."
    )
    assert list(highlights(rates)) == [
        Highlight("1.50 ×", "the offered rate of night, carried by a_x"),
        Highlight("3.00", "requests per second there"),
        Highlight("1", "of 3 pairs of traffic and scenario are stable"),
    ]
    assert list(answers(rates)) == [
        (
            "night, 2.00 requests per second: carried by a; a carries the most, 3.00 requests per "
            "second"
        ),
        (
            "day, 4.00 requests per second: carried by none; a carries the most, 2.00 requests per "
            "second"
        ),
    ]


def test_tables_of_capacities_name_what_they_show() -> None:
    shown = page(CapacityStudy((verdict("a_x", "day", 4.0, 2.0),)))
    assert shown.title == "How much traffic each scenario carries"
    verdicts, times = (block for block in shown.blocks if isinstance(block, Table))
    assert (verdicts.title, list(verdicts.head)) == (
        "Verdicts and rates",
        [
            "traffic",
            "scenario",
            "offered (req/s)",
            "verdict",
            "drift",
            "carries (req/s)",
            "of the offered",
        ],
    )
    assert list(verdicts.rows) == [("day", "a_x", "4.00", "unstable", "0.00 %", "2.00", "0.50 x")]
    assert (times.title, list(times.head)) == (
        "Times, tokens and requests at the offered rate",
        [
            "traffic",
            "scenario",
            "TTFT p50 (s)",
            "TTFT p99 (s)",
            "TPOT p50 (ms)",
            "tokens per s",
            "mean in system",
            "Little's law off by",
            "CPU s, run + search",
        ],
    )
    assert list(times.rows) == [
        ("day", "a_x", "0.001", "0.001", "1.00", "1.00", "1.00", "0e+00", "0 + 0")
    ]
    assert [section.title for section in shown.sections] == [
        "Verdicts",
        "Times at the offered rate",
    ]
    assert shown.sections[0].blocks[1] == Paragraph(
        "Stable: at most 2% of the arrivals between the middles of the second and the last third "
        "stay in the system. Carries: what is delivered when work never lacks, as an unstable run "
        "shows and a stable one with all requests at once; with an SLO the highest rate that meets "
        "it, bisected to 5% on the first requests. Times and tokens are those of the whole traffic "
        "at its own rate: of an unstable system they grow with its length."
    )
    assert [figure.title for figure in shown.figures] == [
        "Requests in the system, and rates carried"
    ]


def test_a_closed_loop_offers_no_rate() -> None:
    result = CliRunner().invoke(main, ["capacity", "vanilla_qwen3_32b_a100"])
    assert result.exit_code == 2
    assert (
        "requests: is a closed loop, which offers no rate; set requests.arrivals, or name --traffic"
        in result.stderr
    )
    result = CliRunner().invoke(
        main, ["capacity", "vanilla_qwen3_32b_a100", "--traffic", "azur:x.csv"]
    )
    assert result.exit_code == 2
    assert "azur" in result.stderr


# ---- recorded traffic


DATA = Path(__file__).parent.parent.parent / "shared/data"
FILES = {
    "azure": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "mooncake": "mooncake_fast25/conversation_trace.jsonl",
}


@pytest.mark.full
@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded traffic lies outside the repository")
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "name", sorted(name for name in Catalogue().names("scenario") if name.startswith("traffic_"))
)
def test_recorded_traffic_under_every_strategy_loses_nobody(name: str, kind: str) -> None:
    """The first hour is in reports/serving/traffic.md; here the first 800 requests, whose books are
    checked by the run.
    """
    loaded = load(
        name,
        [
            (
                f"requests={{arrivals: {{name: file, format: {kind}, file: {DATA / FILES[kind]}}}, "
                f"count: 800}}"
            )
        ],
    )
    tokens = sum(line.output_tokens for line in loaded.scenario.requests.lines())
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    assert outcome.serving.requests == 800
    assert outcome.tokens == tokens
    assert abs(outcome.serving.littles_law.gap) < 1e-9
    assert all(abs(replica.littles_law.gap) < 1e-9 for replica in outcome.replicas)
