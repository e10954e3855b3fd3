"""An observed service is a scenario: what was observed goes before, the rest is as in another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from simulator.core.faults import BadInput
from simulator.core.serving.requests import Request
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.joined import joined
from simulator.inputs.services.measured import (
    RequestSteps,
    ServedRequest,
    ServiceFile,
    counted,
    load_of,
    over_all_steps,
)
from simulator.inputs.services.observation_files import observation_files, read_observed
from simulator.inputs.services.observed import NotHeld, ObservedLoad, ObservedState
from simulator.inputs.services.read import read_services
from simulator.inputs.services.tables import read_passes, read_requests, read_steps
from simulator.scenario import Loaded
from simulator.scenario.evaluate import simulate
from simulator.scenario.live.service import ObservedScenario, load_observed, scenario_of
from tests.test_services import LIVE

LIKE = {
    "strategy": {"name": "vanilla_sd", "gamma": 4},
    "durations": {"target_ms": 10, "draft_step_ms": 1, "prefill_ms": 5},
    "acceptance": {"rate": 0.5, "source": "somebody"},
    "requests": {"count": 3, "prompt_tokens": 7, "output_tokens": 9},
}
NOTHING = NotHeld(what="acceptance: nothing was drafted", remedy="drafts")
NO_LOAD = ObservedLoad()
ONE = ServedRequest(arrival_s=5.0, prompt_tokens=100, output_tokens=5, ttft_ms=12.0)
TWO = ServedRequest(arrival_s=6.0, prompt_tokens=200, output_tokens=4, ttft_ms=23.0)


@pytest.fixture
def like(tmp_path: Path) -> str:
    path = tmp_path / "like.yaml"
    path.write_text(yaml.safe_dump(LIKE))
    return str(path)


def observed_in(folder: Path, *services: ServiceFile) -> Path:
    """The files of an observation, written; the path of ``observed.yaml``."""
    for name, content in observation_files(joined(services), services).items():
        (folder / name).write_text(content)
    return folder / "observed.yaml"


def service(
    requests: Sequence[ServedRequest],
    steps: Sequence[RequestSteps] = (),
    load: ObservedLoad = NO_LOAD,
    state: ObservedState | None = None,
) -> ServiceFile:
    """A file of requests, with drafts where steps are known."""
    drafted = [count for each in steps for count in each.drafted]
    kept = [count for each in steps for count in each.accepted]
    acceptance = counted("own.json", len(kept), sum(drafted), sum(kept), window=2)
    if acceptance is not None:
        acceptance = acceptance.model_copy(update={"replayable": True})
    return ServiceFile(
        file="own.json",
        kind="own",
        load=load_of(requests, load),
        acceptance=over_all_steps(acceptance, sum(kept) + len(kept), len(kept)),
        requests=requests,
        steps=steps,
        state=state,
        not_held=[] if steps else [NOTHING],
    )


def ended(loaded: Loaded) -> dict[int, Request]:
    """All requests of a run, by their number."""
    requests = {}
    simulate(loaded.scenario, loaded.acceptance(), finished=lambda r: requests.update({r.index: r}))
    return requests


def said(made: ObservedScenario) -> dict[str, tuple[str, str]]:
    return {fact.what: (fact.value, fact.of) for fact in made.facts}


def test_steps_are_replayed_by_the_request_that_had_them(tmp_path: Path, like: str) -> None:
    """Request 2 came first: in 12 ms a step of two drafts and the target, 2 + 1 and 0 + 1 tokens
    behind its first; request 1 keeps 1 and 2 of them, then nothing is left.
    """
    steps = [RequestSteps((1, 2), (2, 2), 0), RequestSteps((2, 0), (2, 2), 1)]
    requests = [ONE._replace(arrival_s=8.0, output_tokens=6), TWO._replace(output_tokens=5)]
    path = observed_in(tmp_path, service(requests, steps))
    made, loaded = load_observed(path, like, tmp_path / "out")
    assert made.rows == [1, 2]
    assert [request.prompt_tokens for request in made.requests] == [200, 100]
    assert loaded.scenario.schedule.window == 2
    done = ended(loaded)
    assert [done[0].arrival_s, done[1].arrival_s] == [0.0, 2.0]
    assert [done[place].prompt_tokens for place in (0, 1)] == [200, 100]
    for place in (0, 1):
        decoding_s = done[place].last_token_s - done[place].first_token_s
        assert decoding_s == pytest.approx(0.024)
    assert said(made)["acceptance"] == ("step by step, 4 steps that drafted", "observed")
    assert said(made)["steps of a request"][1] == "observed"
    assert said(made)["window"] == ("2 draft tokens", "observed")


def test_a_service_that_drafted_nothing_decodes_plainly(tmp_path: Path, like: str) -> None:
    made, loaded = load_observed(observed_in(tmp_path, service([ONE, TWO])), like, tmp_path / "out")
    assert loaded.scenario.schedule.window == 0
    done = ended(loaded)
    assert done[0].last_token_s - done[0].first_token_s == pytest.approx(4 * 0.010)
    assert said(made)["method"] == ("plain decoding: nothing was drafted", "observed")


def test_a_limit_without_a_rate_is_a_closed_loop_in_the_order_of_the_log(
    tmp_path: Path, like: str
) -> None:
    load = ObservedLoad(most_concurrent=1)
    path = observed_in(tmp_path, service([ONE, TWO], load=load))
    _, loaded = load_observed(path, like, tmp_path / "out")
    done = ended(loaded)
    assert [done[place].prompt_tokens for place in (0, 1)] == [100, 200]
    assert done[1].arrival_s == done[0].last_token_s
    _, loaded = load_observed(path, like, tmp_path / "log", form="arrivals")
    assert ended(loaded)[1].arrival_s == 1.0


def test_caches_are_as_they_were_observed(tmp_path: Path, like: str) -> None:
    """All but the first request find 160 of their tokens, as 160 of 300 were found."""
    state = ObservedState(
        kv_capacity_tokens=4_096, kv_block_tokens=16, queried_tokens=300, hit_tokens=100
    )
    path = observed_in(tmp_path, service([ONE._replace(prompt_tokens=120), TWO], state=state))
    made, loaded = load_observed(path, like, tmp_path / "out")
    assert loaded.scenario.serving.memory.kv_tokens == 4_096
    assert said(made)["shared beginning"] == (
        "96 tokens of a prompt, by what caches found",
        "observed",
    )
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    assert outcome.serving.prefix_cache is not None
    assert outcome.serving.prefix_cache["hit_tokens"] == 96


def test_sums_are_a_poisson_process_of_means(tmp_path: Path, like: str) -> None:
    load = ObservedLoad(
        duration_s=10.0, requests=5, prompt_tokens=500, output_tokens=50, arrival_rate_per_s=0.5
    )
    path = observed_in(tmp_path, ServiceFile("sums.txt", "sums", load=load, not_held=[NOTHING]))
    made, loaded = load_observed(path, like, tmp_path / "out")
    requests = loaded.scenario.requests
    assert (requests.count, requests.prompt_tokens, requests.output_tokens) == (5, 100, 10)
    assert requests.offered_per_s(0) == 0.5
    assert said(made)["lengths"][1] == "assumed"
    assert made.rows == []


def test_turns_follow_each_other_as_they_were_paused(tmp_path: Path, like: str) -> None:
    first = ONE._replace(session="a", turn=0, e2e_ms=1_000.0)
    second = TWO._replace(session="a", turn=1, arrival_s=8.0)
    path = observed_in(tmp_path, service([first, second]))
    made, loaded = load_observed(path, like, tmp_path / "out")
    done = ended(loaded)
    assert made.turns == [(0, 0), (0, 1)]
    assert done[1].arrival_s - done[0].last_token_s == pytest.approx(2.0)
    _, loaded = load_observed(path, like, tmp_path / "log", form="arrivals")
    assert ended(loaded)[1].arrival_s == pytest.approx(3.0)


def test_shares_by_position_hold_where_no_steps_are_known() -> None:
    (run,) = read_services([LIVE / "vllm_bench.json"])
    made = scenario_of(joined(run), LIVE, "ngram_qwen3_30b_a3b_h200", Catalogue())
    stated = yaml.safe_load(str(made.files["scenario.yaml"]))
    assert stated["acceptance"]["per_position"] == pytest.approx([73 / 117, 41 / 73, 35 / 41], 1e-5)
    assert stated["strategy"]["matched"]["value"] == pytest.approx(117 / 362, 1e-5)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"name": "autoregressive"}, "drafts were observed, and scenario"),
        ({"name": "tree_sd", "tree": {"branching": [2, 2]}}, "its method drafts trees"),
    ],
)
def test_a_method_that_cannot_draft_so_is_refused(
    tmp_path: Path, strategy: dict[str, object], message: str
) -> None:
    path = tmp_path / "like.yaml"
    path.write_text(yaml.safe_dump(LIKE | {"strategy": strategy}))
    (run,) = read_services([LIVE / "vllm_bench.json"])
    with pytest.raises(BadInput, match=message):
        scenario_of(joined(run), LIVE, str(path), Catalogue())


def test_an_observation_without_load_is_refused(like: str) -> None:
    (run,) = read_services([LIVE / "vllm_answer.json"])
    with pytest.raises(BadInput, match="no rate of requests"):
        scenario_of(joined(run), LIVE, like, Catalogue())


@pytest.mark.parametrize(
    ("table", "content", "place"),
    [
        ("requests", "arrival_s,prompt_tokens\n0.5,x\n", "observed_requests.csv:2:5"),
        ("requests", "arrival_s,prompt_tokens\n-1,2\n", "observed_requests.csv:2:1"),
        ("passes", "rank,wall_ms\n0,1\n", "observed_passes.csv:2:1: prefill_requests"),
        ("steps", '{"accepted": [1]}\n', "observed_steps.jsonl:1:1: drafted"),
        ("steps", '{"accepted": [1], "drafted": [2, 2]}\n', "observed_steps.jsonl:1:1: accepted"),
        ("steps", "{\n", "observed_steps.jsonl:1:"),
    ],
)
def test_broken_tables_are_told_by_place(
    tmp_path: Path, table: str, content: str, place: str
) -> None:
    ending = "jsonl" if table == "steps" else "csv"
    name = f"observed_{table}.{ending}"
    (tmp_path / name).write_text(content)
    path = tmp_path / "observed.yaml"
    path.write_text(f"observed: 1\nbottleneck: none\n{table}_file: {name}\n")
    readers = {"requests": read_requests, "passes": read_passes, "steps": read_steps}
    with pytest.raises(BadInput) as raised:
        readers[table](read_observed(path), tmp_path)
    assert place in str(raised.value)
