"""Plans for classes of requests: each class is held to its own limits, and told by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.core.serving.slo import Limit
from simulator.studies.plan.bounds import FleetBounds
from simulator.studies.plan.file import Plan, load_plan
from simulator.studies.plan.limits import classed_outputs, limit_name, limits_of
from simulator.studies.plan.search import examine, keeps, search
from tests.test_plan import SMALL, small

REQUESTS = SMALL["scenario"]["requests"]


def classes(ttft_ms: float = 300, slo: bool = True) -> dict[str, Any]:
    """Three in four chat, one in four is read overnight."""
    chat: dict[str, Any] = {"share": 0.75}
    if slo:
        chat["slo"] = {"ttft_ms": {"p90": ttft_ms}, "tpot_ms": {"p90": 20}}
    return {"chat": chat, "batch": {"share": 0.25, "priority": 1}}


def classed(folder: Path, *overrides: str, **given_classes: Any) -> Plan:
    requests = REQUESTS | {"classes": classes(**given_classes)}
    scenario = SMALL["scenario"] | {"requests": requests}
    return small(folder, *overrides, scenario=scenario, slo={"e2e_ms": {"p50": 60_000}})


def test_a_class_without_limits_of_its_own_has_those_of_the_plan(tmp_path: Path) -> None:
    limits = limits_of(classed(tmp_path).candidates[0].loaded.scenario)
    assert limits == (
        Limit("ttft", 0.9, 0.3, "chat"),
        Limit("tpot", 0.9, 0.02, "chat"),
        Limit("e2e", 0.5, 60.0, "batch"),
    )
    assert [limit_name(limit) for limit in limits] == [
        "chat TTFT p90",
        "chat TPOT p90",
        "batch E2E p50",
    ]
    without = limits_of(classed(tmp_path, slo=False).candidates[0].loaded.scenario)
    assert without == (Limit("e2e", 0.5, 60.0),)


def test_every_class_is_held_to_its_own_limits(tmp_path: Path) -> None:
    plan = classed(tmp_path)
    one = plan.candidates[0]
    run = examine(one, 1, "end")
    assert run.outcome
    of = {found.name: found for found in run.outcome.serving.classes}
    assert sum(found.arrived for found in of.values()) == REQUESTS["count"]
    requests = one.loaded.scenario.requests
    asked = classed_outputs(requests, one.loaded.scenario.seed)
    for name, found in of.items():
        assert found.arrived == sum(request.of == name for request in asked)
    for measured in run.measured:
        sketch = getattr(of[measured.limit.of], measured.limit.metric)
        assert measured.seconds == pytest.approx(sketch.quantile(measured.limit.share))


@pytest.mark.full
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ttft_ms=st.sampled_from([30, 60, 100, 200]),
    rate=st.sampled_from([4, 20, 60]),
    replicas=st.sampled_from([1, 2]),
)
def test_a_run_cut_short_and_a_bound_say_what_the_whole_run_says(
    tmp_path: Path, ttft_ms: float, rate: float, replicas: int
) -> None:
    plan = classed(tmp_path, f"scenario.requests.arrivals.rate_per_s={rate}", ttft_ms=ttft_ms)
    for one in (plan.candidates[0], plan.candidates[2]):
        whole = examine(one, replicas, "end")
        assert keeps(one, replicas) is whole.kept
        assert examine(one, replicas, "exceeded").kept is whole.kept
        assert examine(one, replicas, "known").kept is whole.kept
        bounds = FleetBounds(one.loaded, limits_of(one.loaded.scenario))
        if bounds.broken_by(replicas):
            assert not whole.kept


def test_what_one_class_asks_for_changes_the_answer(tmp_path: Path) -> None:
    easy = search(classed(tmp_path, ttft_ms=2_000)).best
    assert easy
    hard = search(classed(tmp_path, "scenario.requests.arrivals.rate_per_s=30", ttft_ms=60)).best
    assert hard is None or hard.cost_usd_per_hour > easy.cost_usd_per_hour


def test_a_class_whose_wait_is_unlimited_is_refused(tmp_path: Path) -> None:
    requests = REQUESTS | {"classes": classes()}
    plan = {key: value for key, value in SMALL.items() if key != "slo"}
    plan["scenario"] = SMALL["scenario"] | {"requests": requests}
    path = tmp_path / "unlimited.yaml"
    path.write_text(yaml.safe_dump(plan, sort_keys=False))
    with pytest.raises(BadInput, match="batch needs a limit on ttft_ms"):
        load_plan(str(path))


QUESTION = ["--model", "lmsys/vicuna-7b-v1.3", "--device", "a100_80g_sxm", "--draws", "1"]
CHAT = "chat:share=0.75,ttft=2s,tpot_p90=60ms"
BATCH = "batch:share=0.25,e2e=60s,priority=1"


@pytest.mark.full
def test_a_line_asks_for_two_classes(tmp_path: Path) -> None:
    words = [*QUESTION, "--traffic", "chat_poisson", "--class", CHAT, "--class", BATCH]
    saved = tmp_path / "asked.yaml"
    done = CliRunner().invoke(main, ["plan", *words, "--json", "--save", str(saved)])
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)["answer"]
    assert set(answer["measured_ms"]) == {"chat TTFT p95", "chat TPOT p90", "batch E2E p95"}
    assert set(answer["classes"]) == {"chat", "batch"}
    assert sum(one["arrived"] for one in answer["classes"].values()) == 400
    again = CliRunner().invoke(main, ["plan", str(saved), "--draws", "1", "--json"])
    assert json.loads(again.stdout)["answer"] == answer


def test_a_class_is_named_once() -> None:
    line = ["plan", *QUESTION, "--traffic", "chat_poisson", "--class", CHAT, "--class", CHAT]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2
    assert f"--class {CHAT}: 'chat' is named twice; state it once" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chat", "expected NAME:share=0.7"),
        ("chat:share=much", "expected share=0.7"),
        ("chat:tbt=1s", "expected share=0.7"),
        ("chat:ttft=1", "expected a time with its unit"),
        ("chat:priority=1.7", "priority=1 (a whole number)"),
    ],
)
def test_a_class_that_is_none_is_refused(text: str, words: str) -> None:
    line = ["plan", *QUESTION, "--traffic", "chat_poisson", "--ttft-p95", "1s", "--class", text]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2
    assert words in done.stderr
