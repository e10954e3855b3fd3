"""Headroom and twice the traffic: more traffic is more requests, whatever the length of the log;
and what bounds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from simulator.cli.main import main

PLAN: dict[str, Any] = {
    "about": "a 7B on A100",
    "scenario": {
        "like": "vanilla_llama_2_7b_a100",
        "serving": {"policy": {"name": "prefill_first", "max_requests": 8}},
    },
    "slo": {"ttft_ms": {"p95": 1000}},
    "devices": {"a100_80g_sxm": {"price_usd_per_hour": 2, "count": 8}},
    "hardware": {"a100": {"target": {"device": "a100_80g_sxm"}}},
    "strategies": {"plain": {"strategy": "autoregressive"}},
    "replicas": 8,
}


def log(folder: Path, times: list[float], prompt: int = 300, output: int = 40) -> Path:
    path = folder / "log.csv"
    rows = "".join(f"{at},{prompt},{output}\n" for at in times)
    path.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    return path


def planned(folder: Path, times: list[float], *options: str, output: int = 40) -> dict[str, Any]:
    """What the plan says of a log with these times."""
    arrivals = {"name": "file", "format": "log", "file": str(log(folder, times, output=output))}
    scenario = PLAN["scenario"] | {"requests": {"arrivals": arrivals}}
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(PLAN | {"scenario": scenario}))
    done = CliRunner().invoke(main, ["plan", str(path), "--draws", "1", "--json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def doubled(found: dict[str, Any]) -> dict[str, Any]:
    return next(case for case in found["sensitivity"] if case["change"] == "twice the traffic")


def steady(count: int, rate: float = 2.0) -> list[float]:
    return [place / rate for place in range(count)]


@pytest.mark.parametrize("straggler", [[], [30.0]])
def test_twice_a_burst_is_a_burst_of_twice_as_many(tmp_path: Path, straggler: list[float]) -> None:
    """A burst cannot be squeezed; that somebody comes later makes it no easier."""
    once = planned(tmp_path, [0.0] * 24 + straggler)
    twice = planned(tmp_path, [0.0] * 48 + 2 * straggler)
    assert once["answer"]["replicas"] < twice["answer"]["replicas"]
    assert once["capacity_ratio"] < 2.0
    assert not doubled(once)["holds"]
    assert doubled(once)["answer"]["replicas"] == twice["answer"]["replicas"]


def test_a_burst_that_comes_again_grows_each_time(tmp_path: Path) -> None:
    once = planned(tmp_path, [minute * 60.0 for minute in range(4) for _ in range(16)])
    twice = planned(tmp_path, [minute * 60.0 for minute in range(4) for _ in range(32)])
    assert not doubled(once)["holds"]
    assert doubled(once)["answer"]["replicas"] == twice["answer"]["replicas"]


def test_headroom_is_the_same_at_each_length_of_a_steady_log(tmp_path: Path) -> None:
    found = {count: planned(tmp_path, steady(count))["capacity_ratio"] for count in (20, 60, 200)}
    assert max(found.values()) < 1.1 * min(found.values())
    most = found[20]
    inside, beyond = (planned(tmp_path, steady(400, 2.0 * most * times)) for times in (0.8, 1.25))
    assert (inside["answer"]["replicas"], beyond["answer"]["replicas"]) == (1, 2)


def test_all_methods_of_a_table_have_a_headroom_that_the_datasheet_allows(tmp_path: Path) -> None:
    plan = planned(tmp_path, steady(20))
    flops = 2 * 6.5e9 * 340  # 7B without its tables, prompt and output
    assert plan["capacity_ratio"] < 312e12 / flops / 2.0
    for family in plan["families"]:
        assert 2.0 < family["capacity_ratio"] < 312e12 / flops / 2.0


def test_a_log_that_ends_before_its_queue_shows_has_no_headroom(tmp_path: Path) -> None:
    """Twenty requests within a second are served, and would not be if they went on like that."""
    plan = planned(tmp_path, steady(20, 40.0))
    assert plan["answer"]["kept"]
    assert plan["capacity_ratio"] < 1.0
    assert not doubled(plan)["holds"]


def test_what_could_not_be_served_for_long_is_a_burst_and_doubles_as_one(tmp_path: Path) -> None:
    """Twice a burst of 64 within 64 ms is 128 within 64 ms, not 64 within half of that, nor
    thousands.
    """
    burst = [number * 0.001 for number in range(64)]
    plan = planned(tmp_path, burst)
    assert plan["headroom"]["by_law"]
    assert plan["capacity_ratio"] < 0.5
    twice = planned(tmp_path, [number * 0.0005 for number in range(128)])
    assert doubled(plan)["answer"]["replicas"] == twice["answer"]["replicas"]
    assert plan["answer"]["replicas"] < twice["answer"]["replicas"]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_of_a_few_requests_headroom_is_unknown(tmp_path: Path, count: int) -> None:
    plan = planned(tmp_path, steady(count))
    assert plan["capacity_ratio"] is None
    assert doubled(plan)["reason"].startswith(f"unknown from {count} request")
    assert not doubled(plan)["holds"]


def test_headroom_is_said_with_what_bounds_it(tmp_path: Path) -> None:
    planned(tmp_path, steady(20))
    said = " ".join(
        CliRunner()
        .invoke(main, ["plan", str(tmp_path / "plan.yaml"), "--draws", "1", "--long"])
        .output.split()
    )
    assert "times the planned traffic (the log's 20 requests, drawn again:" in said
    assert "flops, bytes and KV cache allow at most" in said
    planned(tmp_path, steady(3))
    said = " ".join(
        CliRunner()
        .invoke(main, ["plan", str(tmp_path / "plan.yaml"), "--draws", "1", "--long"])
        .output.split()
    )
    assert "Headroom: unknown from 3 requests, too few to draw more from" in said
    assert "With twice the traffic: unknown from 3 requests; it takes 10." in said


def test_what_a_scenario_carries_does_not_follow_the_length_of_its_log(tmp_path: Path) -> None:
    changes = [
        "serving.policy={name: prefill_first, max_requests: 8}",
        "strategy=autoregressive",
        "slo={ttft_ms: {p95: 1000}}",
    ]
    words = [word for change in changes for word in ("--set", change)]
    found = {}
    for count in (20, 200):
        path = log(tmp_path, steady(count))
        command = [
            "capacity",
            "vanilla_llama_2_7b_a100",
            "--traffic",
            f"log:{path}",
            "--search",
            "300",
            "--json",
            *words,
        ]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        found[count] = json.loads(done.stdout)["capacities"][0]["headroom"]
    assert found[20] == pytest.approx(found[200], rel=0.12)


def test_a_burst_that_is_carried_once_is_not_carried_at_any_rate(tmp_path: Path) -> None:
    """Bursts of sixteen each minute: ``capacity`` does not make them easier by letting them come
    closer together.
    """
    path = log(tmp_path, [minute * 60.0 for minute in range(4) for _ in range(16)])
    changes = [
        "serving.policy={name: prefill_first, max_requests: 8}",
        "strategy=autoregressive",
        "slo={ttft_ms: {p95: 1000}}",
    ]
    words = [word for change in changes for word in ("--set", change)]
    command = [
        "capacity",
        "vanilla_llama_2_7b_a100",
        "--traffic",
        f"log:{path}",
        "--search",
        "300",
        "--json",
        *words,
    ]
    (found,) = json.loads(CliRunner().invoke(main, command).stdout)["capacities"]
    assert 1.0 <= found["headroom"] < 2.0
