"""Jitter of links: drawn for every transfer in a simulation, at its mean in the law, the same for
the same seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.core.cost.device import Link
from simulator.scenario import load
from simulator.scenario.evaluate import law, replay, run as run_scenario, simulate
from simulator.scenario.result.data import result_data

TWO_SERVERS = "specpipe_llama_3_1_70b_two_servers"
FEW = ["requests.count=3", "requests.output_tokens=40"]
EXPONENTIAL = "target.pipeline.between.jitter={name: exponential, mean_us: 2000}"


def link(**jitter: Any) -> Link:
    return Link.model_validate({"latency_us": 50, "bandwidth_gb_s": 1, "jitter": jitter or None})


@pytest.mark.parametrize(
    ("jitter", "deviation_us"),
    [
        ({"name": "exponential", "mean_us": 80}, 80),
        ({"name": "lognormal", "mean_us": 80, "spread": 0.5}, 40),
    ],
)
def test_what_is_drawn_has_the_stated_mean_and_spread(
    jitter: dict[str, Any], deviation_us: float
) -> None:
    """1,000 bytes at 1 GB/s and 50 us take 51; the rest is jitter. Mean within 5 standard errors,
    deviation within 3 %.
    """
    drawing, count = np.random.default_rng(1), 40_000
    drawn = np.array(
        [link(**jitter).transfer_seconds(1_000, drawing) * 1e6 - 51 for _ in range(count)]
    )
    assert drawn.mean() == pytest.approx(80, abs=5 * deviation_us / count**0.5)
    assert drawn.std() == pytest.approx(deviation_us, rel=0.03)
    assert drawn.min() >= 0
    assert link(**jitter).transfer_seconds(1_000) * 1e6 == pytest.approx(51 + 80)
    assert link().transfer_seconds(1_000, drawing) * 1e6 == pytest.approx(51)


@pytest.mark.parametrize("strategy", ["specpipe", "specpipe_tandem", "pipeline"])
def test_every_transfer_of_a_level_has_a_draw_of_its_own(strategy: str) -> None:
    """Between the servers no two spans are alike; within them all full levels take the same."""
    loaded = load(TWO_SERVERS, [*FEW, f"strategy={{name: {strategy}}}", EXPONENTIAL])
    cost = loaded.scenario.cost
    _, spans = simulate(loaded.scenario, loaded.acceptance(), 10_000)
    taken = {
        lane: [round(s.end_s - s.start_s, 12) for s in spans if s.lane == lane]
        for lane in ("link 3", "link 4")
    }
    assert len(taken["link 4"]) == len(set(taken["link 4"])) > 50
    assert len(set(taken["link 3"])) < 0.5 * len(taken["link 3"])
    if strategy == "pipeline":
        assert min(taken["link 4"]) > cost.carry(3, 1) - 2e-3


def test_with_one_request_on_the_plain_pipeline_the_law_is_the_mean() -> None:
    """A sum of independent times: 4 standard errors, and what the growing context is off."""
    loaded = load(
        TWO_SERVERS,
        [
            "requests.count=20",
            "strategy={name: pipeline}",
            "draft=null",
            EXPONENTIAL.replace("2000", "20000"),
        ],
    )
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    steps = outcome.steps
    error = 20e-3 * (2 / steps) ** 0.5
    expected = law(loaded.scenario, loaded.acceptance())
    assert outcome.tpot_s == pytest.approx(expected.tpot_s, abs=4 * error + 1e-4)
    assert expected.relation.startswith("idealised: links take their mean")


def test_jitter_costs_more_than_its_mean_where_the_longest_link_counts() -> None:
    """Stages that step together wait for the longest of a token's way and of a level's; without
    jitter they agree.
    """
    for jitter, least_ms in ("exponential, mean_us: 0", -1e-9), ("exponential, mean_us: 8000", 1.0):
        loaded = load(TWO_SERVERS, [*FEW, f"target.pipeline.between.jitter={{name: {jitter}}}"])
        acceptance = loaded.acceptance()
        drawn, mean = (
            simulate(loaded.scenario, acceptance)[0].tpot_s,
            replay(loaded.scenario, acceptance).tpot_s,
        )
        assert least_ms < (drawn - mean) * 1e3 < least_ms + 8.0


def test_the_same_seed_gives_the_same_bytes() -> None:
    def told(*more: str) -> str:
        return json.dumps(result_data(run_scenario(load(TWO_SERVERS, [*FEW, *more])))["simulated"])

    assert told(EXPONENTIAL) == told(EXPONENTIAL)
    assert told(EXPONENTIAL) != told(EXPONENTIAL, "seed=1")
    assert told("target.pipeline.between.jitter={name: exponential, mean_us: 0}") == told()


def test_jitter_is_among_the_numbers_with_a_source(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        f"like: {TWO_SERVERS}\ntarget:\n  pipeline:\n    between:\n      jitter:\n        name: "
        "exponential\n"
        "        mean_us: {value: 30, source: pinged, confidence: measured}\n"
    )
    result = run_scenario(load(str(tmp_path / "x.yaml"), FEW))
    (found,) = [one for one in result.provenance() if "jitter" in str(one["parameter"])]
    assert (found["value"], found["source"], found["confidence"]) == (30, "pinged", "measured")
    assert any(note.startswith("links jitter") for note in result.caveats)
