"""What cannot be served is said before anything is simulated, with the nearest change that would
do; and that change does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.core.faults import BadInput, Infeasible
from simulator.scenario import load
from simulator.scenario.stability import load_of
from simulator.studies.capacity import capacity

SERVER = [
    "strategy=autoregressive",
    "durations={target_ms: 1000, prefill_ms: 1000}",
    "requests.output_tokens=3",
]
"""A second for a prompt and one for each of two more tokens."""
POISSON = "requests.arrivals={name: poisson, rate_per_s: 0.4}"


def refusal(scenario: str, *changes: str) -> str:
    with pytest.raises(Infeasible) as error:
        load(scenario, changes)
    return str(error.value)


def fits(scenario: str, *changes: str) -> bool:
    try:
        load(scenario, changes)
    except Infeasible:
        return False
    return True


@given(
    st.sampled_from(["a100_80g_sxm", "l40s", "rtx_4090", "h100_sxm"]),
    st.sampled_from(["bf16", "int8", "int4"]),
    st.integers(1, 400_000),
)
def test_the_ranks_that_a_refusal_asks_for_are_enough_and_half_of_them_are_not(
    device: str, weights: str, prompt: int
) -> None:
    scenario = "autoregressive_qwen3_32b_a100"
    changes = [
        f"target.device={device}",
        f"target.weights={weights}",
        "target.model.context_tokens=1000000",
        f"requests.prompt_tokens={prompt}",
    ]
    alone = [*changes, "target.tensor_parallel=1"]
    if fits(scenario, *alone):
        return
    if found := re.search(r"; set (target\.tensor_parallel)=(\d+)", refusal(scenario, *alone)):
        ranks = int(found[2])
        assert fits(scenario, *changes, f"target.tensor_parallel={ranks}")
        assert not fits(scenario, *changes, f"target.tensor_parallel={ranks // 2}")


@given(
    st.integers(2, 400),
    st.sampled_from(["fixed_batch", "prefill_first", "chunked_prefill", "unified_budget"]),
    st.integers(1, 40),
)
def test_requests_fit_up_to_the_length_that_a_refusal_names(
    room: int, policy: str, block: int
) -> None:
    memory = f"serving.memory={{kv_tokens: {room}, block_tokens: {block}}}"
    served = f"serving.policy={{name: {policy}, max_requests: 1}}"

    def request(tokens: int) -> tuple[str, ...]:
        return (
            memory,
            served,
            f"requests={{prompt_tokens: {tokens - 2}, output_tokens: 2, count: 3}}",
        )

    words = refusal("durations_only", *request(2000))
    fitting = int(re.search(r"requests of up to ([\d,]+) (?:fit|can)", words)[1].replace(",", ""))
    assert fitting < 2000
    if fitting > 2:
        assert not fits("durations_only", *request(fitting + 1))
        words = (
            words
            if fits("durations_only", *request(fitting))
            else refusal("durations_only", *request(fitting))
        )
        nearer = int(
            re.search(r"requests of up to ([\d,]+) (?:fit|can)", words)[1].replace(",", "")
        )
        # one of two reasons is told at a time
        assert nearer < 3 or fits("durations_only", *request(nearer))


def test_a_prompt_fits_the_pass_that_its_refusal_asks_for() -> None:
    policy = "serving.policy={name: prefill_first, batch_tokens: 100}"
    change = refusal("durations_only", policy).partition("; set ")[2]
    assert fits("durations_only", policy, change)


# ---- more arrivals than can be served


@pytest.mark.parametrize("replicas", [1, 3])
def test_one_place_of_three_seconds_serves_a_third_of_a_request_a_second(replicas: int) -> None:
    """By hand: a prompt and two steps of a second each."""
    loaded = load(
        "durations_only",
        [
            *SERVER,
            POISSON,
            "serving.policy={name: fixed_batch, max_requests: 1}",
            f"serving.replicas={replicas}",
        ],
    )
    found = load_of(loaded.scenario, loaded.acceptance())
    assert found is not None
    assert found.most_per_s == pytest.approx(replicas / 3, rel=1e-12)
    assert found.stable is (replicas == 3)


def test_four_places_share_their_passes() -> None:
    """By hand: one pass reads four prompts, two steps serve them: 3 s for 4."""
    loaded = load(
        "durations_only", [*SERVER, POISSON, "serving.policy={name: fixed_batch, max_requests: 4}"]
    )
    found = load_of(loaded.scenario, loaded.acceptance())
    assert found is not None
    assert (found.most_per_s, found.batch) == (pytest.approx(4 / 3, rel=1e-12), 4)


def test_no_load_is_told_of_a_closed_loop_or_of_requests_that_come_at_once(tmp_path: Path) -> None:
    closed = load("durations_only")
    assert load_of(closed.scenario, closed.acceptance()) is None
    (tmp_path / "same.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,10,5\n" * 12)
    served = "serving.policy={name: prefill_first}"
    at_once = load(
        "durations_only",
        [served, f"requests={{arrivals: {{name: file, format: csv, file: {tmp_path}/same.csv}}}}"],
    )
    assert load_of(at_once.scenario, at_once.acceptance()) is None
    with pytest.raises(
        BadInput, match=r"requests\.arrivals: come all at once, which offers no rate"
    ):
        capacity(at_once)


def test_what_was_measured_is_never_above_what_the_law_allows() -> None:
    for strategy, places in (
        ("autoregressive", 1),
        ("autoregressive", 8),
        ("vanilla_sd", 4),
        ("mirror_sd", 2),
    ):
        whole = (
            ["durations={target_ms: 36, draft_ms: 12, prefill_ms: 20}"]
            if strategy != "mirror_sd"
            else []
        )
        changes = [
            f"strategy={strategy}",
            *whole,
            f"serving.policy={{name: prefill_first, max_requests: {places}}}",
        ]
        arrivals = (
            "requests={arrivals: {name: poisson, rate_per_s: 50}, count: 1500, output_tokens: 40}"
        )
        loaded = load("durations_only", [*changes, arrivals])
        by_law, measured = load_of(loaded.scenario, loaded.acceptance()), capacity(loaded)
        assert by_law is not None
        assert not by_law.stable
        assert not measured.offered.stable
        assert 0.5 < measured.carried_per_s / by_law.most_per_s < 1.02, strategy


@pytest.mark.parametrize("command", ["law", "run", "explain"])
def test_an_unstable_load_is_called_so_with_what_would_do(command: str) -> None:
    words = [
        *SERVER,
        POISSON,
        "serving.policy={name: fixed_batch, max_requests: 1}",
        "requests.count=5",
    ]
    typed = [
        command,
        "durations_only",
        "--json",
        *(word for change in words for word in ("--set", change)),
    ]
    told = json.loads(CliRunner().invoke(main, typed).stdout)
    sentence = (
        told["load"]["words"]
        if command == "law"
        else next(note for note in told["notes"] if "unstable" in note)
    )
    assert sentence.startswith(
        "unstable: 0.4 requests come a second, and by law at most 0.3333 are served"
    )
    assert sentence.endswith("let fewer than 0.3333 come, or set serving.replicas=2")
    if command == "law":
        loaded = load("durations_only", [*words, "serving.replicas=2"])
        found = load_of(loaded.scenario, loaded.acceptance())
        assert found is not None
        assert found.stable
