"""Prefill apart from decode beside the same replicas together."""

from __future__ import annotations

from simulator.report.run.serving import split
from simulator.scenario import evaluate, load
from simulator.scenario.pools import together

APART = "apart_eagle3_qwen3_32b_4xh100"


def test_a_run_stands_beside_the_same_replicas_together() -> None:
    result = evaluate.run(load(APART, ["requests.count=40"]))
    assert result.together is not None
    both = ["serving.pools=[{role: both, replicas: 2}]", "serving.handover=null"]
    loaded = load(APART, ["requests.count=40", *both])
    outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    assert result.together.end_s == outcome.end_s
    assert result.together.serving.ttft.mean == outcome.serving.ttft.mean
    assert "beside the same replicas together: TTFT p50" in split(result)


def test_unlike_pools_have_no_replicas_to_put_together() -> None:
    loaded = load("apart_vanilla_llama_3_1_70b_h100_h20", ["requests.count=8"])
    assert together(loaded.scenario) is None
    assert together(load("durations_only").scenario) is None
