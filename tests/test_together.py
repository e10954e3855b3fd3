"""Prefill apart from decode beside the same replicas together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.core.serving.fleet.apart import ApartService
from simulator.core.world import Span
from simulator.report.run.serving import split
from simulator.report.timeline import opening_window
from simulator.scenario import evaluate, load
from simulator.scenario.pools import service_of, together
from simulator.scenario.stability import load_of

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


# ---- loads by law


BOTH = ["serving.pools=[{role: both},{role: both}]", "serving.handover=null"]


def test_pools_that_do_both_need_no_handover() -> None:
    loaded = load(APART, ["requests.count=20", *BOTH])
    outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    fleet = load(
        APART, ["requests.count=20", *BOTH[1:], "serving.pools=[{role: both, replicas: 2}]"]
    )
    same, _ = evaluate.simulate(fleet.scenario, fleet.acceptance())
    assert outcome.serving.requests == 20
    assert outcome.serving.ttft.mean == same.serving.ttft.mean


def test_pools_that_do_one_thing_need_one() -> None:
    loaded = load(APART, ["requests.count=20"])
    service = service_of(loaded.scenario, loaded.acceptance())
    assert isinstance(service, ApartService)
    with pytest.raises(ValueError, match="how requests are handed over"):
        replace(service, handover=None).run()


def test_an_unstable_load_of_pools_names_what_is_slowest() -> None:
    slow = ["serving.handover.link=ethernet_10g", "serving.handover.connections=1"]
    loaded = load(APART, [*slow, "requests.arrivals.rate_per_s=6"])
    of_link = load_of(loaded.scenario, loaded.acceptance())
    assert of_link is not None and not of_link.stable
    assert of_link.words.endswith("set a faster serving.handover.link, or more connections")
    loaded = load(APART, [*BOTH, "requests.arrivals.rate_per_s=200"])
    of_both = load_of(loaded.scenario, loaded.acceptance())
    assert of_both is not None and not of_both.stable
    assert "prefill pool" not in of_both.words


def test_recorded_sessions_come_no_faster_than_they_think(tmp_path: Path) -> None:
    """Two sessions of three turns, ten seconds before each later one: six turns in 21 s."""
    rows = ["session,turn,arrival_s,think_s,new_tokens,output_tokens"]
    for session in range(2):
        rows.append(f"{session},1,{session},0,100,20")
        rows += [f"{session},{turn},,10,50,20" for turn in (2, 3)]
    path = tmp_path / "sessions.csv"
    path.write_text("\n".join(rows) + "\n")
    recorded = f"{{sessions: {{name: file, file: {path}}}, arrivals: {{name: recorded}}}}"
    policy = "serving.policy={name: prefill_first}"
    scenario = load("durations_only", [f"requests={recorded}", policy]).scenario
    assert scenario.requests.offered_per_s(0) == 6 / 21
