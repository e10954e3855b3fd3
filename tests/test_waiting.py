"""More clients than the cache holds wait: by law, by replay and on the event engine."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.policies import FixedBatch, UnifiedBudget
from simulator.core.serving.requests import Request
from simulator.core.serving.waiting import ClosedLoopLaw, running_together
from simulator.report.pages import law as law_page
from simulator.report.run import answer
from simulator.scenario import Loaded, load
from simulator.scenario.decision.by_law import by_law as decided
from simulator.scenario.evaluate import (
    NO_DRAFTS,
    law,
    plain,
    replay,
    run,
    simulate,
    speedup_of,
)
from simulator.scenario.outcome import Outcome
from simulator.scenario.result.closed_loop import WaitingClients, closed_loop, in_words
from simulator.scenario.result.data import law_details, result_data

PLAIN = [
    "strategy=autoregressive",
    "durations={target_ms: 1000, prefill_ms: 1000}",
    "requests.prompt_tokens=14",
    "requests.output_tokens=3",
]
"""A second for prompts and one for each of two more tokens, in a block of 16 tokens."""
DRAFTED = [
    "strategy={name: vanilla_sd, gamma: 1}",
    "durations={target_ms: 60, draft_ms: 20, prefill_ms: 40}",
    "acceptance={always: 1}",
]
"""Two tokens in a step of 80 ms."""


def loaded(*changes: str) -> Loaded:
    return load("durations_only", changes)


def by_law(of: Loaded) -> WaitingClients:
    scenario = of.scenario
    acceptance = of.acceptance()
    found = closed_loop(scenario, acceptance, law(scenario, acceptance))
    assert found is not None
    return found


def timeline(of: Loaded) -> tuple[Outcome, list[tuple[float, ...]]]:
    """The outcome on the event engine, and arrival, admission, first and last token of each
    request.
    """
    told: dict[int, tuple[float, ...]] = {}

    def note(request: Request) -> None:
        times = (request.arrival_s, request.admitted_s, request.first_token_s, request.finished_s)
        told[request.index] = times

    outcome, _ = simulate(of.scenario, of.acceptance(), finished=note)
    return outcome, [told[index] for index in sorted(told)]


# ---- the tiny world


def test_three_clients_in_room_for_two() -> None:
    """By hand: waves of 3 s; of those that come at 3 s the first finds a place, the second waits
    for the next wave.
    """
    world = loaded(
        *PLAIN, "requests.concurrency=3", "requests.count=6", "serving.memory.kv_tokens=32"
    )
    outcome, requests = timeline(world)
    assert requests == [
        (0.0, 0.0, 1.0, 3.0),
        (0.0, 0.0, 1.0, 3.0),
        (0.0, 3.0, 4.0, 6.0),
        (3.0, 3.0, 4.0, 6.0),
        (3.0, 6.0, 7.0, 9.0),
        (6.0, 6.0, 7.0, 9.0),
    ]
    found = by_law(world)
    assert found.claim.exact
    assert found.words == "3 clients: 2 run at a time, 1 wait for room in the KV cache"
    loop = found.law
    assert (loop.running, loop.waiting, loop.read_s, loop.decode_s) == (2, 1, 1.0, 2.0)
    assert loop.tokens_per_s == 2.0 == outcome.tokens_per_s
    assert (loop.wait_s, loop.ttft_s, loop.e2e_s) == (1.5, 2.5, 4.5)
    assert np.mean([admitted - came for came, admitted, *_ in requests[2:]]) == loop.wait_s
    assert loop.mean_wait_s(6) == 1.0 == outcome.serving.wait.mean
    assert replay(world.scenario, world.acceptance()).tokens_per_s == 2.0


def test_places_and_room_for_all_are_no_queue_for_room() -> None:
    few = [*PLAIN, "requests.concurrency=3", "requests.count=6"]
    for changes in (
        ["serving.memory.kv_tokens=48"],
        ["serving.policy={name: fixed_batch, max_requests: 2}"],
        ["requests.concurrency=1", "serving.memory.kv_tokens=16"],
    ):
        world = loaded(*few, *changes)
        scenario = world.scenario
        assert not scenario.waits
        assert scenario.plain_batch == scenario.batch
        assert closed_loop(scenario, world.acceptance(), law(scenario, NO_DRAFTS)) is None
        assert "closed_loop" not in law_details(world, decided(world))


# ---- whatever the sizes


@st.composite
def waiting_worlds(draw: st.DrawFn) -> Loaded:
    """Clients of equal requests, more than there is room for, of which all keep the same."""
    block = draw(st.integers(1, 40))
    prompt = draw(st.integers(1, 60))
    output = draw(st.integers(2, 30))
    lookahead = draw(st.sampled_from([1, 2]))
    needed = -(-(prompt + output + lookahead - 2) // block)
    running = draw(st.integers(1, 5))
    spare = draw(st.integers(0, needed * block - 1))
    clients = running + draw(st.integers(1, 9))
    waves = draw(st.integers(3, 6))
    return loaded(
        *(PLAIN[:2] if lookahead == 1 else DRAFTED),
        f"requests.prompt_tokens={prompt}",
        f"requests.output_tokens={output}",
        f"requests.concurrency={clients}",
        f"requests.count={running * waves * -(-clients // running)}",
        f"serving.memory={{block_tokens: {block}, kv_tokens: {running * needed * block + spare}}}",
    )


@given(waiting_worlds())
def test_waves_are_as_the_law_has_them(world: Loaded) -> None:
    scenario = world.scenario
    acceptance = world.acceptance()
    found = by_law(world)
    loop = found.law
    count = scenario.requests.count
    assert found.claim.exact
    assert loop.running + loop.waiting == scenario.requests.concurrency
    simulated, _ = simulate(scenario, acceptance)
    for outcome in (simulated, replay(scenario, acceptance)):
        serving = outcome.serving
        assert max(serving.batch_s) == loop.running
        assert outcome.tokens_per_s == pytest.approx(loop.tokens_per_s, rel=1e-9)
        assert serving.wait.mean == pytest.approx(loop.mean_wait_s(count), rel=1e-9, abs=1e-9)
        ttft_s = loop.mean_wait_s(count) + loop.read_s
        assert outcome.ttft_s == pytest.approx(ttft_s, rel=1e-9)


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(0.01, 10),
    st.floats(0.01, 10),
    st.integers(1, 9),
)
def test_the_queue_of_the_law_keeps_littles_law(
    running: int, waiting: int, read_s: float, decode_s: float, waves: int
) -> None:
    """Requests in the system are those that come in a second times how long they stay; and once
    the queue has filled up, each wave's mean wait is the steady one.
    """
    loop = ClosedLoopLaw(running + waiting, running, read_s, decode_s, 7)
    assert loop.requests_per_s * loop.e2e_s == pytest.approx(loop.clients, rel=1e-12)
    assert loop.requests_per_s * loop.wait_s == pytest.approx(waiting, rel=1e-12)
    filled = running * -(-loop.clients // running)
    some, more = filled, filled + waves * running
    later_s = loop.mean_wait_s(more) * more - loop.mean_wait_s(some) * some
    assert later_s / (more - some) == pytest.approx(loop.wait_s, rel=1e-9)


# ---- how much room a request takes


def test_blocks_in_service_by_hand() -> None:
    """Prompts of 3 and outputs of 6 in blocks of 4 with 1 token ahead: contexts of 3 to 7 need 1,
    2, 2, 2, 2 blocks; a policy that reserves takes those of 3 + 6 + 1 - 2 tokens from the start.
    """
    memory = Blocks(4, 20)
    lengths = (np.array([3]), np.array([6]))
    grown = UnifiedBudget().blocks_in_service(memory, *lengths, 1)
    assert grown.tolist() == [9 / 5]
    assert FixedBatch().blocks_in_service(memory, *lengths, 1).tolist() == [2.0]
    assert running_together(memory, grown, np.array([5.0])) == pytest.approx(20 / 1.8)
    # one request of 2 blocks for 3 s, one of 8 for 1 s: in the mean of time 3.5 blocks a request
    blocks, seconds = np.array([2.0, 8.0]), np.array([3.0, 1.0])
    assert running_together(memory, blocks, seconds) == pytest.approx(20 / 3.5)


@pytest.mark.few(3)
@pytest.mark.parametrize("policy", ["fixed_batch", "prefill_first", "unified_budget"])
@pytest.mark.parametrize("spread", [False, True])
def test_as_many_run_as_the_blocks_of_a_request_allow(policy: str, spread: bool) -> None:
    """The mean number that runs is that of the law within 5 %, preemptions included."""
    lengths = "prompt_tokens: 100, output_tokens: 200"
    if spread:
        lengths = (
            "prompt_tokens: {name: uniform, least_tokens: 50, most_tokens: 150}, "
            "output_tokens: {name: uniform, least_tokens: 50, most_tokens: 350}"
        )
    world = loaded(
        "strategy={name: vanilla_sd, gamma: 3}",
        "durations={target_ms: 36, draft_ms: 12, prefill_ms: 10}",
        f"requests={{concurrency: 120, count: 2400, {lengths}}}",
        f"serving={{policy: {{name: {policy}}}, memory: {{kv_tokens: 16000}}}}",
    )
    serving = simulate(world.scenario, world.acceptance())[0].serving
    running = serving.mean_in_system - serving.mean_waiting
    assert world.scenario.batch == pytest.approx(running, rel=0.05)
    assert not by_law(world).claim.exact


# ---- the room of a draft

SHARED = [
    "strategy={name: vanilla_sd, gamma: 3}",
    "target.machine=one",
    "target.tensor_parallel=1",
    "target.device=h100_94g_sxm",
    "draft={machine: one, model: qwen3_1_7b, device: h100_94g_sxm, engine: vllm}",
    "acceptance={trace: null, stand_in: false, tokens_per_step: 2.57}",
    "requests={concurrency: 300, count: 600, prompt_tokens: 145, output_tokens: 200}",
]


@pytest.fixture(scope="module")
def shared() -> Loaded:
    return load("autoregressive_qwen3_32b_a100", SHARED)


def test_plain_decoding_has_the_room_of_the_draft_and_its_cache(shared: Loaded) -> None:
    scenario = shared.scenario
    without = plain(scenario)
    assert scenario.kv_tokens is not None
    assert without.kv_tokens is not None
    draft_gb = scenario.draft.weights_gb() if scenario.draft else 0.0
    assert draft_gb > 0.0
    target_only = sum(group.weights_gb for group in without.device_groups)
    assert sum(group.weights_gb for group in scenario.device_groups) == target_only + draft_gb
    assert scenario.batch == scenario.kv_tokens // 16 // 22 < scenario.plain_batch
    assert without.batch == scenario.plain_batch == without.kv_tokens // 16 // 22
    of_steps = law(scenario, shared.acceptance())
    plain_rate = without.batch / law(without, NO_DRAFTS).tpot_s
    rate = scenario.batch / of_steps.tpot_s
    assert speedup_of(scenario, of_steps) == pytest.approx(rate / plain_rate, rel=1e-12)


def test_the_room_that_drafts_take_is_said_by_law_and_run(shared: Loaded) -> None:
    found = by_law(shared)
    running = found.law.running
    words = (
        f"300 clients: {running} run at a time, {300 - running} wait; without speculation "
        f"{shared.scenario.plain_batch} would run"
    )
    assert found.words == words
    details = law_details(shared, decided(shared))
    numbers = details["closed_loop"]
    assert (numbers["clients"], numbers["run"], numbers["wait"]) == (300, running, 300 - running)
    assert numbers["run_without_speculation"] == shared.scenario.plain_batch
    said = list(law_page.waiting(numbers))
    assert said[0] == f"{words}."
    assert "times those of autoregressive decoding" in law_page.answer(details)
    result = run(shared)
    assert result.speedup == result.speedup_with_prompts
    assert result.speedup == result.simulated.tokens_per_s / result.baseline.tokens_per_s
    assert next(answer.waiting(result)) == words
    assert answer.speed(result).startswith(f"{result.simulated.tokens_per_s:,.0f} tokens per")
    numbers = result_data(result)["closed_loop"]
    assert (numbers["run"], numbers["wait"]) == (running, 300 - running)
    ran = result.replay.tokens_per_s
    assert ran == pytest.approx(result.simulated.tokens_per_s, rel=1e-9)


def test_without_drafts_the_queue_is_said_alone() -> None:
    assert in_words(1_300, 200, None) == (
        "1,300 clients: 200 run at a time, 1,100 wait for room in the KV cache"
    )
    assert in_words(300, 200, 300) == (
        "300 clients: 200 run at a time, 100 wait; without speculation all would run"
    )


def test_replicas_share_clients_and_each_has_its_room() -> None:
    world = loaded(
        *PLAIN,
        "requests.concurrency=9",
        "requests.count=36",
        "serving={replicas: 3, policy: {name: fixed_batch, max_requests: 3}, "
        "memory: {kv_tokens: 32}}",
    )
    found = by_law(world)
    assert (found.law.running, found.law.waiting, found.claim.exact) == (6, 3, False)


@pytest.mark.parametrize("command", ["law", "run", "batches"])
def test_more_clients_than_fit_run_on_the_command_line(command: str) -> None:
    typed = [command, "vanilla_llama_2_7b_a100", "--json"]
    if command == "batches":
        typed += ["--sizes", "600"]
    else:
        typed += ["--set", "requests.concurrency=600", "--set", "requests.count=600"]
    done = CliRunner().invoke(main, typed)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    if command == "batches":
        (row,) = told["batches"]
        assert row["running"] < row["baseline_running"] < row["batch"] == 600
        return
    numbers = told["closed_loop"]
    assert numbers["run"] < numbers["run_without_speculation"] < numbers["clients"] == 600
