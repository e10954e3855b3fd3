"""Workloads, memory and what a user sees of them: lengths, refusals, logs, time to first token."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from simpy import Environment, Event

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.load.lengths import LogNormal, Uniform
from simulator.core.serving.policies import ChunkedPrefill, FixedBatch, PrefillFirst, UnifiedBudget
from simulator.core.serving.requests import Arrivals, Request, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load
from simulator.scenario.evaluate import run, simulate

SMALL = ["requests.concurrency=6", "requests.count=18", "requests.output_tokens=40"]
NAMES = ["fixed_batch", "prefill_first", "chunked_prefill", "unified_budget"]


# ---- workloads


def test_lengths_are_those_of_their_distribution_and_of_their_seed() -> None:
    requests = Requests(
        concurrency=4,
        count=5_000,
        prompt_tokens=LogNormal(
            name="lognormal", mean_tokens=300, spread=0.5, least_tokens=10, most_tokens=4_000
        ),
        output_tokens=Uniform(name="uniform", least_tokens=50, most_tokens=150),
    )
    pairs = list(requests.lengths(7))
    assert pairs == list(requests.lengths(7)) != list(requests.lengths(8))
    prompts, outputs = zip(*pairs, strict=True)
    assert sum(prompts) / 5_000 == pytest.approx(300, rel=0.03)
    assert (min(outputs), max(outputs)) == (50, 150)
    mean_prompt, mean_output, longest = requests.totals(7)
    assert (mean_prompt, mean_output) == (sum(prompts) / 5_000, sum(outputs) / 5_000)
    assert longest == max(prompt + output for prompt, output in pairs)


def test_even_lengths_have_the_mean_that_was_asked_for() -> None:
    requests = Requests(count=100, output_tokens={"name": "even", "mean_tokens": 6.59})
    outputs = [output for _, output in requests.lengths(1)]
    assert (set(outputs), sum(outputs), outputs[:4]) == ({6, 7}, 659, [6, 7, 6, 7])
    assert requests.totals(1) == (512, 6.59, 519)


def test_a_request_keeps_its_lengths_when_more_are_sent() -> None:
    lengths = Uniform(name="uniform", least_tokens=2, most_tokens=90)
    few, many = (
        list(Requests(count=count, prompt_tokens=lengths, output_tokens=lengths).lengths(1))
        for count in (1_024, 3_000)
    )
    assert many[:1_024] == few


def test_the_law_takes_the_mean_lengths_of_the_workload() -> None:
    changes = [
        "requests.prompt_tokens={name: uniform, least_tokens: 100, most_tokens: 300}",
        "requests.count=400",
    ]
    scenario = load("vanilla_llama_2_7b_a100", changes).scenario
    prompt, output, _ = scenario.lengths
    assert scenario.mean_context == int(prompt + output // 2)
    assert prompt == pytest.approx(200, abs=10)


# ---- chunks


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_the_chunks_of_a_prompt_are_the_prompt(chunks: list[int]) -> None:
    """Rows are additive but for the cache, which every chunk reads anew, and the call that reads
    it.
    """
    total, rows = 0, Rows()
    for index, chunk in enumerate(chunks):
        rows += Rows.prefill(chunk, total, index == len(chunks) - 1)
        total += chunk
    whole = Rows.prefill(total)
    assert (rows.tokens, rows.logit_rows, rows.attention_pairs) == (
        whole.tokens,
        whole.logit_rows,
        whole.attention_pairs,
    )
    assert (rows.sequences, rows.kv_tokens) == (
        len(chunks),
        sum(sum(chunks[: i + 1]) for i in range(len(chunks))),
    )


def test_a_chunk_and_a_verification_share_one_pass() -> None:
    """The pass is over the sum of both rows, cheaper than one after the other; the draft reads the
    chunk as well.
    """
    scenario = load("vanilla_llama_2_7b_a100").scenario
    strategy, cost = scenario.schedule, scenario.cost
    cursor = Cycle((2,)).cursor(0, None)
    chunk = Rows.prefill(100, 28, False)
    apart = strategy.compose([strategy.open(cursor, 500)])
    mixed = strategy.compose([strategy.open(cursor, 500)], chunk)
    assert mixed.kind.prompts == 1
    together, alone = strategy.durations(cost, mixed), strategy.durations(cost, apart)
    assert together.target == cost.target(apart.rows + chunk).wall_s
    assert alone.target < together.target < alone.target + cost.target(chunk).wall_s
    assert together.draft == pytest.approx(alone.draft + cost.prefill("draft", chunk).wall_s)


# ---- memory


def test_weights_drafts_and_what_a_method_adds_leave_less_room() -> None:
    plain = load("autoregressive_qwen3_32b_a100").scenario
    target = plain.target
    assert target
    room = 0.9 * target.device.memory_gb.value - target.model.weights * 2 / 8 / 1e9
    per_token = target.model.kv_bytes_per_token() / 8 / 1e9
    assert plain.kv_tokens == int(room / per_token)
    mirror = load("mirror_qwen3_32b_a100").scenario
    adapter = target.model.hidden_size**2 * 2 / 8 / 1e9
    (alone,) = (group for group in mirror.device_groups if group.roles[0].role == "target")
    assert alone.room_tokens == int((room - adapter) / per_token)
    shared = load("vanilla_llama_2_7b_a100").scenario
    (both,) = shared.device_groups
    draft = shared.draft
    assert draft
    assert [role for role, *_ in both.roles] == ["target", "draft"]
    needed = sum(place.weights_gb() + place.kv_gb(both.room_tokens) for _, place, *_ in both.roles)
    assert needed == pytest.approx(0.9 * target.device.memory_gb.value, rel=1e-4)
    without = load("vanilla_llama_2_7b_a100", ["strategy={name: autoregressive}"]).scenario
    assert without.kv_tokens and without.kv_tokens > both.room_tokens


def test_rejected_tokens_give_their_blocks_back() -> None:
    """Blocks of one token: room for the window before the step, for what was kept after it."""
    held: list[int] = []
    memory = Blocks(1, 100)
    policy = PrefillFirst(name="prefill_first")

    class Watched(VanillaSD):
        def settle(self, states):
            held.append(memory.used)
            return super().settle(states)

    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    cost = StatedCost(StatedDurations(target_ms=10, draft_ms=4), 4)
    strategy = Watched(gamma=4)
    one = Scheduler(
        strategy,
        Cycle((1,)),
        None,
        Arrivals([Request(0, 0, 10, 7)]),
        cost,
        policy,
        memory,
        log=lambda _: None,
    )
    world.environment.process(one.run(world, lanes))
    world.environment.run()
    assert held == [10 + 5, 12 + 5, 14 + 5]
    assert (memory.used, memory.most_used) == (0, 19)


@pytest.mark.parametrize(
    ("policy", "longest", "total", "reason"),
    [
        (FixedBatch(), 30, 31, None),
        (FixedBatch(), 30, 30, "needs room for 31"),
        (PrefillFirst(name="prefill_first", watermark=0.0), 30, 31, None),
        (
            PrefillFirst(name="prefill_first", watermark=0.1),
            30,
            31,
            "leaves less than the watermark",
        ),
        (
            PrefillFirst(name="prefill_first", batch_tokens=28, watermark=0.0),
            30,
            99,
            "does not fit one prefill",
        ),
        (ChunkedPrefill(name="chunked_prefill", watermark=0.1), 30, 32, None),
        (
            ChunkedPrefill(name="chunked_prefill", watermark=0.1),
            30,
            31,
            "leaves less than the watermark",
        ),
        (UnifiedBudget(name="unified_budget"), 30, 30, "needs room for 31"),
    ],
)
def test_what_can_never_fit_is_known_before(policy, longest, total, reason) -> None:
    found = policy.refusal(longest, 3, Blocks(1, total))
    assert (found is None) if reason is None else (reason in found)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_can_never_fit_is_refused_before_the_run(name: str) -> None:
    changes = [
        f"serving.policy.name={name}",
        "serving.memory.kv_tokens=640",
        "requests.concurrency=2",
        "requests.count=4",
    ]
    load("durations_only", [*changes, "requests.prompt_tokens=60", "requests.output_tokens=60"])
    with pytest.raises(BadInput) as error:
        load(
            "durations_only", [*changes, "requests.prompt_tokens=600", "requests.output_tokens=60"]
        )
    assert error.value.exit_code == 3
    assert "requests" in str(error.value.faults[0])


def test_tight_memory_preempts_and_everybody_is_still_served() -> None:
    tight = ["serving.policy.name=unified_budget", "serving.memory.kv_tokens=400"]
    shape = [
        "requests.concurrency=6",
        "requests.count=18",
        "requests.prompt_tokens=60",
        "requests.output_tokens=64",
    ]
    roomy = run(load("durations_only", [*shape, "serving.policy.name=unified_budget"]))
    result = run(load("durations_only", [*shape, *tight]))
    serving = result.simulated.serving
    assert serving.preemptions > 0
    assert 0 < serving.recomputed_rows < serving.prompt_rows
    assert serving.most_kv_tokens <= 400
    assert result.simulated.tokens == roomy.simulated.tokens == 18 * 64
    assert roomy.simulated.serving.preemptions == 0
    assert result.simulated.end_s > roomy.simulated.end_s


# ---- time to first token


@pytest.mark.parametrize(("draft_ms", "first_s"), [(0, 0.030), (20, 0.030), (50, 0.050)])
def test_the_draft_prefill_is_part_of_the_time_to_first_token(
    draft_ms: int, first_s: float
) -> None:
    """Side by side on two lanes: the longer one counts. The first window comes after the first
    token.
    """
    given = StatedDurations(
        prefix_ms=10,
        suffix_ms=10,
        draft_ms=8,
        redraft_ms=7,
        prefill_ms=30,
        draft_prefill_ms=draft_ms,
    )
    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    source = Arrivals([Request(0, 0.0, 16, 6)])
    one = Scheduler(
        MirrorSD(gamma=4), Cycle((4,)), None, source, StatedCost(given, 4), FixedBatch()
    )
    world.environment.process(one.run(world, lanes))
    world.environment.run()
    assert one.ledger.tally.ttft.mean == pytest.approx(first_s)
    assert world.now == pytest.approx(first_s + 0.007 + 0.020)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "scenario", ["durations_only", "vanilla_llama_2_7b_a100", "mirror_qwen3_32b_a100"]
)
def test_replay_and_simulation_agree_under_every_policy(scenario: str, name: str) -> None:
    """Also where prompts travel in the steps and windows follow the batch."""
    changes = [
        *SMALL,
        f"serving.policy.name={name}",
        "strategy.adaptive={name: table, windows: {1: 4, 3: 2, 6: 1}}",
    ]
    result = run(load(scenario, changes))
    replay, simulated = result.replay, result.simulated
    assert (replay.steps, replay.tokens, replay.accepted) == (
        simulated.steps,
        simulated.tokens,
        simulated.accepted,
    )
    assert replay.end_s == pytest.approx(simulated.end_s, rel=1e-9)
    for field in ("ttft", "tpot", "e2e", "wait"):
        one, other = getattr(replay.serving, field), getattr(simulated.serving, field)
        assert one.total == pytest.approx(other.total, rel=1e-9)
    assert simulated.tokens == 18 * 40


def test_chunked_prefill_holds_nobody_up_and_prefill_first_answers_sooner() -> None:
    """What the two policies trade: the longest gap between tokens against the time to the first
    one.
    """
    shape = ["requests.concurrency=32", "requests.count=96", "requests.prompt_tokens=900"]
    first, chunked = (
        run(
            load("vanilla_llama_2_7b_a100", [*shape, f"serving.policy.name={name}"])
        ).simulated.serving
        for name in ("prefill_first", "chunked_prefill")
    )
    assert chunked.tbt.most < 0.5 * first.tbt.most
    assert first.ttft.quantile(0.5) < chunked.ttft.quantile(0.5)


def test_the_window_of_most_goodput_beats_the_fixed_one_in_a_large_batch() -> None:
    shape = ["requests.concurrency=96", "requests.count=192", "strategy.gamma=6"]
    fixed, goodput = (
        run(load("vanilla_llama_2_7b_a100", [*shape, *extra]))
        for extra in ([], ["strategy.adaptive={name: goodput}"])
    )
    assert goodput.simulated.tokens_per_s > fixed.simulated.tokens_per_s
    windows = goodput.scenario.strategy.adaptive.windows
    assert windows[1] > windows[max(windows)]


# ---- the command line


def test_logs_hold_every_iteration_and_every_request(tmp_path: Path) -> None:
    iterations, requests = tmp_path / "iterations.csv", tmp_path / "requests.csv"
    arguments = [
        "run",
        "vanilla_llama_2_7b_a100",
        "--json",
        "--iteration-log",
        str(iterations),
        "--request-log",
        str(requests),
    ]
    changes = [
        word
        for change in [*SMALL, "serving.policy.name=chunked_prefill"]
        for word in ("--set", change)
    ]
    data = json.loads(
        CliRunner().invoke(main, [*arguments, *changes], catch_exceptions=False).stdout
    )
    lines = list(csv.DictReader(iterations.open()))
    assert {line["kind"] for line in lines} == {"prefill", "step", "step+prefill"}
    got = dict.fromkeys(range(18), 0)
    for line in lines:
        for index, tokens in zip(line["requests"].split(), line["tokens"].split(), strict=True):
            got[int(index)] += int(tokens)
        assert len(line["rows"].split()) == len(line["requests"].split())
    assert all(40 <= tokens <= 44 for tokens in got.values())
    assert sum(line["kind"].startswith("step") for line in lines) == data["simulated"]["steps"]
    ends = [float(line["start_s"]) + float(line["duration_s"]) for line in lines]
    assert [float(line["start_s"]) for line in lines[1:]] == pytest.approx(ends[:-1])
    served = list(csv.DictReader(requests.open()))
    assert sorted(int(line["request"]) for line in served) == list(range(18))
    mean = sum(float(line["ttft_s"]) for line in served) / 18
    assert data["simulated"]["serving"]["ttft_ms"]["mean"] == pytest.approx(mean * 1e3)
    assert {"mean", "p50", "p90", "p95", "p99", "most"} == set(
        data["simulated"]["serving"]["tbt_ms"]
    )


def test_a_log_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "log.csv"):
        result = CliRunner().invoke(
            main, ["run", "durations_only", "--json", "--iteration-log", str(path)]
        )
        assert result.exit_code == 2
        assert "expected the name of a file" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("simulator.scenario.evaluate.replay", fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        CliRunner().invoke(
            main,
            ["run", "durations_only", "--json", "--iteration-log", str(tmp_path / "log.csv")],
            catch_exceptions=False,
        )
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_run() -> None:
    """Spans, prices and records of a run ten times as long take no more room."""
    scenario = load("durations_only", ["requests.count=40"]).scenario
    kept = []
    for count in (40, 400):
        longer = scenario.replace(requests=scenario.requests.model_copy(update={"count": count}))
        outcome, spans = simulate(longer, Cycle((3,)), 100)
        assert outcome.busy_s["target"] == pytest.approx(outcome.end_s * 36 / 36.1, rel=0.02)
        kept.append((len(spans), len(outcome.serving.tpot.buckets), len(outcome.kinds)))
    assert kept[0] == kept[1]
    assert kept[0][0] == 300


def test_autoregressive_decoding_is_the_same_under_every_policy_with_room_to_spare() -> None:
    """One request after another: no policy can do anything about it."""
    ends = {
        name: simulate(
            load(
                "autoregressive_qwen3_32b_a100", ["requests.count=3", f"serving.policy.name={name}"]
            ).scenario,
            Cycle((0,)),
        )[0].end_s
        for name in NAMES
    }
    assert len(set(ends.values())) == 1
    assert isinstance(load("autoregressive_qwen3_32b_a100").scenario.strategy, Autoregressive)


def test_an_iteration_of_twenty_costs_no_more_than_sixty_events() -> None:
    """Paired with bare timeouts of the event engine, so that a busy machine slows both; 25 on a
    quiet one.
    """
    ratios = []
    for _ in range(5):
        environment = Environment()

        def bare(environment: Environment) -> Generator[Event, object, None]:
            for _ in range(20_000):
                yield environment.timeout(1.0)

        environment.process(bare(environment))
        begin = time.process_time()
        environment.run()
        timeout = (time.process_time() - begin) / 20_000
        world = World(0)
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        source = Arrivals([Request(index, 0.0, 100, 1_000 + 50 * index) for index in range(20)])
        cost, policy, memory = (
            StatedCost(StatedDurations(target_ms=10)),
            PrefillFirst(),
            Blocks(16, 10_000),
        )
        one = Scheduler(Autoregressive(), Cycle((0,)), None, source, cost, policy, memory)
        world.environment.process(one.run(world, lanes))
        begin = time.process_time()
        world.environment.run()
        ratios.append(
            (time.process_time() - begin) / sum(one.ledger.tally.steps.values()) / timeout
        )
    assert median(ratios) < 60
