"""What counts, and what it is worth: warm-up, limits, goodput, queues over time, Little's law,
replications, cost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.core.serving.metrics import level_quantile
from simulator.core.serving.slo import Limit, Slo
from simulator.scenario import load
from simulator.scenario.evaluate import replay, run, simulate
from simulator.scenario.outcome import Outcome

TRAFFIC = """arrival_s,prompt_tokens,output_tokens
0,8,3
1,8,3
2,8,5
10,8,3
20,8,2
"""
PLAIN = ["strategy=autoregressive", "durations={target_ms: 1000, prefill_ms: 1000}"]


def five(tmp_path: Path, *more: str) -> tuple[Outcome, Outcome]:
    """Five requests on one place where a pass takes a second: simulated and replayed.

    They are served from 0 to 3, 3 to 6, 6 to 11, 11 to 14 and 20 to 22: TTFT 1, 3, 5, 2, 1 s, E2E
    3, 5, 9, 4, 2 s.
    """
    path = tmp_path / "t.csv"
    path.write_text(TRAFFIC)
    changes = [f"requests={{arrivals: {{name: file, format: csv, file: {path}}}}}", *more]
    loaded = load(
        "durations_only", [*PLAIN, "serving.policy={name: fixed_batch, max_requests: 1}", *changes]
    )
    return simulate(loaded.scenario, loaded.acceptance())[0], replay(
        loaded.scenario, loaded.acceptance()
    )


def test_a_crowd_of_five_under_limits(tmp_path: Path) -> None:
    slo = "slo={ttft_ms: {p50: 2000, p99: 4000}, tbt_ms: {p99: 1000}, e2e_ms: {p80: 5000}}"
    for outcome in five(tmp_path, slo):
        counted = outcome.serving.counted
        found = [
            (each.metric, each.percentile, each.limit_ms, each.attainment, each.met)
            for each in counted.slo
        ]
        assert found == [
            ("ttft", "p50", 2000, 0.6, True),
            ("ttft", "p99", 4000, 0.8, False),
            ("tbt", "p99", 1000, 1.0, True),
            ("e2e", "p80", 5000, 0.8, True),
        ]
        assert not counted.slo_met
        assert (counted.requests, counted.good, counted.good_tokens, counted.tokens) == (
            5,
            4,
            11,
            16,
        )
        assert (counted.begin_s, counted.seconds) == (0, 22)
        assert counted.goodput_requests_per_s == 4 / 22
        assert counted.goodput_tokens_per_s == 11 / 22


def test_queue_and_batch_over_time(tmp_path: Path) -> None:
    """From 1 s to 2 s one request waits, then two until 3 s, one until 6 s, and one from 10 s to 11
    s.
    """
    for outcome in five(tmp_path):
        serving = outcome.serving
        assert dict(serving.queue_s) == pytest.approx({0: 1 + 4 + 11, 1: 1 + 3 + 1, 2: 1})
        assert dict(serving.batch_s) == pytest.approx({1: 2 + 2 + 4 + 2 + 1})
        assert serving.mean_waiting == pytest.approx((5 + 2) / 22)
        littles = serving.littles_law
        assert (
            littles.mean_in_system,
            littles.arrivals_per_s,
            littles.mean_time_s,
        ) == pytest.approx((23 / 22, 5 / 22, 23 / 5))
        assert abs(littles.gap) < 1e-12


def test_warm_up_and_cool_down_are_served_but_do_not_count(tmp_path: Path) -> None:
    """Requests 2 to 4 count, from 1 s to 20 s, in which 2 + 3 + 5 + 3 tokens are shown, and the
    gaps between them.
    """
    for outcome in five(
        tmp_path, "requests.warm_up=1", "requests.cool_down=1", "slo={ttft_ms: {p50: 3000}}"
    ):
        serving, counted = outcome.serving, outcome.serving.counted
        assert (
            counted.requests,
            counted.begin_s,
            counted.seconds,
            counted.tokens,
            counted.good,
        ) == (3, 1, 19, 13, 2)
        assert (serving.ttft.total, serving.e2e.total, serving.wait.total) == (10, 18, 7)
        assert serving.tbt.count == 2 + 2 + 4 + 2
        assert outcome.tokens_per_s == 13 / 19
        assert (serving.requests, outcome.tokens, outcome.end_s) == (5, 16, 22)
        assert counted.rule == (
            "requests 2 to 4 of 5 in order of arrival; rates from the arrival of request 2 to "
            "that of request 5"
        )


def test_a_request_is_late_if_one_gap_is_too_long() -> None:
    """The prompt of the second holds the first one up for 5 s between two tokens."""
    changes = [
        "durations={target_ms: 1000, prefill_ms: 5000}",
        "requests={arrivals: {name: deterministic, rate_per_s: 0.15}}",
    ]
    more = [
        "requests.count=2",
        "requests.prompt_tokens=8",
        "requests.output_tokens=5",
        "slo={tbt_ms: {p50: 4000}}",
    ]
    policy = "serving.policy={name: prefill_first, max_requests: 4}"
    loaded = load("durations_only", ["strategy=autoregressive", *changes, *more, policy])
    for outcome in (
        simulate(loaded.scenario, loaded.acceptance())[0],
        replay(loaded.scenario, loaded.acceptance()),
    ):
        (verdict,) = outcome.serving.counted.slo
        assert (verdict.attainment, verdict.met, outcome.serving.counted.good) == (7 / 8, True, 1)


@given(st.dictionaries(st.integers(0, 9), st.floats(0.1, 9.0), min_size=1), st.floats(0.01, 0.99))
def test_a_level_is_not_exceeded_for_its_share_of_the_time(
    seconds: dict[int, float], share: float
) -> None:
    level, whole = level_quantile(seconds, share), sum(seconds.values())
    assert sum(held for one, held in seconds.items() if one <= level) >= share * whole - 1e-9
    assert sum(held for one, held in seconds.items() if one < level) <= share * whole + 1e-9


def test_limits_are_named_by_metric_and_percentile() -> None:
    assert Slo(tpot_ms={"p90": 50}, ttft_ms={"p99.9": 700, "p50": 200}).limits == (
        Limit("ttft", 0.5, 0.2),
        Limit("ttft", 0.9990000000000001, 0.7),
        Limit("tpot", 0.9, 0.05),
    )


WRONG = [
    (
        "ttft_ms: 500",
        "x.yaml:2:7: slo.ttft_ms: a limit needs a percentile, as in {p99: 500}; got 500",
    ),
    (
        "tpot_ms: {50: 20}",
        "x.yaml:2:7: slo.tpot_ms: a limit needs a percentile above p0 and below p100",
    ),
    (
        "tpot_ms: {p100: 20}",
        (
            "slo.tpot_ms: a limit needs a percentile above p0 and below p100, as in {p99: 500}; "
            "got 'p100'"
        ),
    ),
    ("tbt_ms: {p99: -1}", "slo.tbt_ms: p99: expected milliseconds above 0, got -1"),
    ("tbt_ms: {p99: soon}", "slo.tbt_ms: p99: expected milliseconds above 0, got 'soon'"),
    ("e2e_ms: {}", "slo.e2e_ms: a limit needs a percentile, as in {p99: 500}; got {}"),
    ("ttf_ms: {p99: 500}", "slo.ttf_ms: unknown field; did you mean 'ttft_ms'?"),
]


@pytest.mark.parametrize(("slo", "expected"), WRONG, ids=[slo for slo, _ in WRONG])
def test_a_broken_slo_is_one_line_that_helps(
    slo: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(f"like: durations_only\nslo: {{{slo}}}\n")
    result = CliRunner().invoke(main, ["run", "./x.yaml"])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert expected in result.stderr


def test_somebody_must_count(tmp_path: Path) -> None:
    wrong = [["requests.warm_up=2", "requests.cool_down=2", "requests.count=4"]]
    path = tmp_path / "t.csv"
    path.write_text(TRAFFIC)
    file = f"requests={{arrivals: {{name: file, format: csv, file: {path}}}, warm_up: 5}}"
    wrong.append([file, "serving.policy={name: chunked_prefill}"])
    messages = (
        "leave none of 4 requests to count",
        "t.csv: holds 5 requests; warm_up 5 and cool_down 0 leave none",
    )
    for changes, message in zip(wrong, messages, strict=True):
        result = CliRunner().invoke(
            main,
            ["run", "durations_only", *(word for change in changes for word in ("--set", change))],
        )
        assert result.exit_code == 2
        assert message in result.stderr


# ---- replications


LOAD = [
    (
        "requests={arrivals: {name: poisson, rate_per_s: 4}, count: 40, prompt_tokens: 8, "
        "output_tokens: 20}"
    )
]
LOADED = [
    *PLAIN[:1],
    "durations={target_ms: 5}",
    "serving.policy={name: fixed_batch, max_requests: 8}",
    *LOAD,
]


def test_a_replication_is_a_run_with_the_next_seed() -> None:
    changes = [word for setting in LOADED for word in ("--set", setting)]
    command = ["run", "durations_only", "--json", *changes]
    found = [
        json.loads(CliRunner().invoke(main, [*command, "--seed", str(seed)]).stdout)
        for seed in (7, 8, 9)
    ]
    again = json.loads(
        CliRunner().invoke(main, [*command, "--seed", "7", "--replications", "3"]).stdout
    )["replications"]
    for metric in ("mean", "p99"):
        values = [one["simulated"]["serving"]["e2e_ms"][metric] for one in found]
        middle = sum(values) / 3
        spread = (sum((value - middle) ** 2 for value in values) / 2 / 3) ** 0.5
        assert again[f"e2e_{metric}_ms"]["value"] == pytest.approx(middle)
        # t of 2 degrees of freedom at 97.5 %
        assert again[f"e2e_{metric}_ms"]["half_width"] == pytest.approx(4.302653 * spread)


# ---- cost


def test_devices_cost_by_the_hour_and_draw_at_most_their_power() -> None:
    """Two replicas of an A100 that holds both models: 2 x 1.5 USD and 2 x 400 W."""
    small = [
        "requests.concurrency=4",
        "requests.count=12",
        "requests.output_tokens=40",
        "serving.replicas=2",
    ]
    changes = [
        *small,
        "serving.policy={name: chunked_prefill}",
        "target.device.price_usd_per_hour=1.5",
    ]
    result = run(load("vanilla_llama_2_7b_a100", changes))
    found, simulated = result.expenses, result.simulated
    assert found
    assert found.usd_per_hour == 3.0
    assert found.usd_per_million_tokens == pytest.approx(
        3.0 / 3600 * simulated.end_s / simulated.tokens * 1e6
    )
    assert found.most_j_per_token == pytest.approx(800 * simulated.end_s / simulated.tokens)
    assert found.busy_j_per_token == pytest.approx(
        800 * simulated.busy_s["target"] / simulated.tokens
    )
    assert found.unpriced == ()


def test_a_stage_is_busy_with_prompts_and_with_its_levels() -> None:
    """Prompts pass all stages on the target's lane: eight RTX 3090 of 350 W, and the L40 of 300 W
    that drafts.
    """
    result = run(load("specpipe_llama_3_1_70b_8x3090", ["requests.count=4"]))
    found, simulated = result.expenses, result.simulated
    stages = sum(
        simulated.busy_s[f"stage {number}"] + simulated.busy_s["target"] for number in range(1, 9)
    )
    watt_seconds = 350 * stages + 300 * simulated.busy_s["draft"]
    assert found
    assert found.busy_j_per_token == pytest.approx(watt_seconds / simulated.tokens)
    assert (
        found.busy_j_per_token
        < found.most_j_per_token
        == pytest.approx(3100 * simulated.end_s / simulated.tokens)
    )


def test_what_states_no_price_has_no_cost() -> None:
    assert run(load("durations_only", ["requests.count=2"])).expenses is None
    result = run(load("mirror_qwen3_32b_a100", ["requests.count=2", "draft.device=a800_80g_sxm"]))
    found = result.expenses
    assert found
    assert (found.usd_per_hour, found.unpriced) == (None, ("a800_80g_sxm",))
    assert found.most_j_per_token == pytest.approx(
        9 * 400 * result.simulated.end_s / result.simulated.tokens
    )
