"""Prefill apart from decode beside the same replicas together."""

from __future__ import annotations

from simulator.core.world import Span
from simulator.report.run.serving import split
from simulator.report.timeline import opening_window
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


def test_a_timeline_of_pools_shows_the_way_of_the_first_request() -> None:
    """Prefill from 1 to 3 s, its cache from 2 to 3.5 s, and steps of a second from there on."""
    spans = [
        Span("prefill target", 1.0, 3.0, "prefill"),
        Span("handover 1 to 2", 2.0, 3.5, "KV"),
        *(Span("decode target", 3.5 + step, 4.5 + step, "verify") for step in range(6)),
    ]
    assert opening_window(spans) == (1.0, 6.5)
