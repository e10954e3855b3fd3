"""Recorded routing: replay and events read the experts that each window really took; elsewhere the
law says how many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.core.acceptance.routing import RecordedRouting, Window, experts_read
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.serving.fields import Serving
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.tree_sd import TreeSD
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read as read_trace
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import run
from simulator.scenario.explain import explain
from simulator.scenario.routing import why_by_law
from tests.test_acceptance import make_trace
from tests.test_cost import DEVICE, HARD, MODEL, place
from tests.test_experts import numbers

TAKEN = [[0, 1, 2, 3, 0, 1, 3, 3, 3, 3, 3], [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2]]
"""Experts of two layers by position: a request of six tokens, then one of five; the first of each
is its prefill's.
"""
FIRST_DRAFT = [[0, 1, 0, 3, 0, 0, 0, 3, 2, 3, 3], [0, 0, 0, 3, 0, 0, 2, 2, 2, 2, 2]]
"""Those of the first draft token of a window that starts there; those of further ones were not
recorded.
"""
RANKS = [[0, 0, 1, 0, 0, 0], [0, 1, 1, 1, 1]]
FAST = DEVICE | {"memory_bandwidth_gb_s": 1e12, "peak_tflops": 1e12, "small_operations": HARD}
A_MILLISECOND_EACH = numbers(**HARD, expert_us=1_000, width_us=0, pair_traffic_ratio=0) | {
    "tile_tokens": [16]
}


RECORDED = Catalogue().names("trace")["small_mixture_sampled"]


def recorded() -> Trace:
    trace = make_trace(RANKS)
    target = {
        **trace.header["models"]["target"],
        "experts": {"routed": 4, "per_token": 1, "layers": [0, 1]},
    }
    header = {**trace.header, "models": {**trace.header["models"], "target": target}}
    taken, drafted = (
        np.array(TAKEN, dtype=np.uint8)[:, None],
        np.array(FIRST_DRAFT, dtype=np.uint8)[None, :, None],
    )
    return replace(trace, header=header, extra={"experts.taken": taken, "experts.drafted": drafted})


def service(routing: bool = True) -> Service:
    """Two layers of four experts, one of which serves a token; each that is read takes 1 ms, and
    nothing else takes time.
    """
    model = {**MODEL, "num_hidden_layers": 2}
    experts: dict[str, Any] = {
        "routed": 4,
        "per_token": 1,
        "intermediate_size": 50,
        "popularity": {"value": 0.0},
    }
    device = FAST | {"experts": {"default": A_MILLISECOND_EACH}}
    cost = HardwareCost(
        place(model={**model, "experts": experts}, device=device), place(model=model, device=FAST)
    )
    acceptance = Replay(recorded())
    requests = Requests(concurrency=2, count=2, prompt_tokens=1, output_tokens=6)
    read = RecordedRouting(acceptance) if routing else None
    return Service(VanillaSD(gamma=2), acceptance, cost, requests, Serving(), routing=read)


def timeline(of: Service) -> list[tuple[str, float]]:
    iterations: list[Iteration] = []
    of.run(on_iteration=iterations.append)
    return [(iteration.kind, round(iteration.duration_s * 1e3, 6)) for iteration in iterations]


def test_each_step_reads_the_experts_that_its_windows_took() -> None:
    """Two layers, so 2 ms for an expert in the mean over layers; prompts of a token each by law, 4
    (1 - 0.75^2) = 1.75.

    Step 1: {0, 1, 2} and {3} in the first layer, {0} and {2} in the second: 3. Step 2: {2, 3, 0}
    and {3, 2}; {0, 3, 1} and {2}: 3.5, the first drafts being 3 and 2 (first layer), 3 and 2. Then
    the second request alone, which takes expert 3 and 2 only and goes round: 1 each.
    """
    whole = timeline(service())
    assert [milliseconds for _, milliseconds in whole] == [3.5, 6.0, 7.0, 2.0, 2.0, 2.0]
    assert service().replay().end_s == pytest.approx(22.5e-3, rel=1e-9)
    assert service().run().end_s == pytest.approx(22.5e-3, rel=1e-9)
    by_law = [milliseconds for _, milliseconds in timeline(service(routing=False))]
    assert len(set(by_law[3:])) == 1
    assert by_law[1] == by_law[2] != 6.0


def test_windows_behind_the_recorded_depths_go_on_with_what_was_emitted() -> None:
    routing = RecordedRouting(Replay(recorded(), seed=0))
    first = Replay(recorded(), seed=0).order.index(0)
    assert routing.read([Window(first, 0, 0)]) == 1
    assert routing.read([Window(first, 2, 1)]) == 2, "{2, 3}, {0, 3}"
    assert routing.read([Window(first, 2, 5)]) == 4, (
        "emitted behind it: 0, 1, and round 1, 2; 1, 2, 0, 0"
    )


def test_how_many_experts_a_sum_reads_is_left_to_the_law() -> None:
    known = Rows.decode(2, 9)._replace(experts_read=3.0)
    assert (known + NO_ROWS).experts_read == (NO_ROWS + known).experts_read == 3.0
    assert (known + Rows.decode(1, 9)).experts_read == 0.0
    model = service().cost.target_place.model
    assert model.experts_read(known) == 3.0
    assert model.experts_read(Rows.decode(1, 9)) == pytest.approx(1.0)


def small_mixture(*more: str) -> Loaded:
    draft = "draft={model: small_mixture, machine: h200, device: h200_sxm, engine: vllm}"
    own = [
        "target.model=small_mixture",
        "strategy={name: vanilla_sd, gamma: 3}",
        draft,
        "requests.count=16",
    ]
    return load(
        "eagle3_qwen3_30b_a3b_h200", [*own, "acceptance={trace: small_mixture_sampled}", *more]
    )


def test_law_and_recording_agree_in_the_mean_over_windows() -> None:
    """Mean over every window of four rows of the shipped recording, draft tokens included, beside
    the two fitted numbers.
    """
    trace = read_trace(RECORDED)
    replay, loaded = Replay(trace), small_mixture()
    routing = RecordedRouting(replay)
    read = [
        routing.read([Window(request, at, 3)])
        for request in range(len(replay.order))
        for at in range(replay.length(request))
    ]
    by_law = loaded.scenario.target.model.experts_read(Rows.decode(4, 0))
    assert by_law == pytest.approx(experts_read(trace)[4, 1], rel=0.02)
    assert float(np.mean(read)) == pytest.approx(by_law, rel=0.03)


def test_replay_and_events_agree_on_recorded_routing_and_the_law_is_near() -> None:
    result = run(small_mixture("requests.concurrency=4"))
    assert result.agreement.gap == pytest.approx(0.0, abs=1e-9)
    assert not result.agreement.disagreement
    assert result.law.step_s == pytest.approx(result.simulated.step_s, rel=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([], "when recorded"),
        (["acceptance={rate: 0.7}"], "no recording of routing"),
        (["acceptance={trace: six_flavours_sampled}"], "no recording of routing"),
        (
            ["target.model=qwen3_30b_a3b", "draft.model=qwen3_0_6b", "acceptance.stand_in=true"],
            "2 of 16 experts serve a token in the recording, not 8 of 128",
        ),
    ],
)
def test_explain_says_where_the_number_of_experts_comes_from(change: list[str], words: str) -> None:
    assert words in explain(small_mixture(*change)).topics["experts"]


def test_a_tree_is_no_window() -> None:
    target = small_mixture().scenario.target
    assert target
    assert "not trees" in why_by_law(
        target, TreeSD.example().strategy, Replay(read_trace(RECORDED))
    )


def test_explain_says_nothing_of_experts_without_any() -> None:
    assert "experts" not in explain(load("vanilla_llama_2_7b_a100")).topics
