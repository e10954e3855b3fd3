"""Open workloads: arrivals, traffic files, and which recording a request replays."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from scipy.stats import t as student

from simulator.cli.main import main
from simulator.core.acceptance.assignment import TraceAssignment, replay_behind
from simulator.core.acceptance.sources import Cycle, Replay
from simulator.core.faults import BadInput
from simulator.core.serving.load.arrivals import Deterministic, Gamma, Poisson
from simulator.core.serving.load.traffic import Line, TrafficFile
from simulator.core.serving.requests import Request, Requests
from simulator.inputs import traffic
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.outcome import Outcome
from simulator.scenario.result.data import result_data

DATA = Path(__file__).parents[2] / "shared/data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the data files are not part of the repository"
)
SECOND = [
    "strategy=autoregressive",
    "durations={target_ms: 1000, prefill_ms: 1000}",
    "acceptance={rate: 0.5}",
]
"""A prefill and a token take a second each: a request of n tokens is served in n seconds."""
ONE_PLACE = ["serving.policy={name: fixed_batch, max_requests: 1}"]


def written(folder: Path, text: str, name: str = "traffic.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read_from(path: Path, kind: str = "csv", **more: object) -> list[Line]:
    return list(TrafficFile.model_validate({"format": kind, "file": str(path), **more}).lines())


def simulated(loaded: Loaded) -> tuple[Outcome, list[Request]]:
    done: list[Request] = []
    return evaluate.simulate(loaded.scenario, loaded.acceptance(), finished=done.append)[0], done


# ---- a tiny world


def test_a_file_becomes_a_timeline(tmp_path: Path) -> None:
    """One place, tokens of a second: the second request waits for the first, the third finds the
    system empty.
    """
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n1,10,3\n2.5,10,2\n9,10,1\n")
    loaded = load(
        "durations_only",
        [*SECOND, *ONE_PLACE, f"requests={{arrivals: {{name: file, format: csv, file: {path}}}}}"],
    )
    outcome, done = simulated(loaded)
    log = [
        (
            request.index,
            request.arrival_s,
            request.admitted_s,
            request.first_token_s,
            request.finished_s,
        )
        for request in done
    ]
    assert log == [(0, 1.0, 1.0, 2.0, 4.0), (1, 2.5, 4.0, 5.0, 6.0), (2, 9.0, 9.0, 10.0, 10.0)]
    assert (outcome.serving.requests, outcome.tokens, outcome.end_s) == (3, 6, 10.0)
    assert outcome.serving.mean_in_system == pytest.approx((3 + 3.5 + 1) / 10)
    assert outcome.serving.mean_waiting == pytest.approx(1.5 / 10)
    assert outcome.serving.tpot.count == 2  # one token has no time between tokens
    assert loaded.scenario.requests.count == 3
    replayed = evaluate.replay(loaded.scenario, loaded.acceptance())
    assert replayed.serving.wait.mean == pytest.approx(outcome.serving.wait.mean, abs=1e-12)


@pytest.mark.parametrize(
    "policy", ["fixed_batch", "prefill_first", "chunked_prefill", "unified_budget"]
)
def test_every_policy_takes_arrivals(policy: str) -> None:
    changes = [
        "requests=mixed_tasks",
        f"serving.policy={{name: {policy}, max_requests: 8}}",
        "requests.count=60",
    ]
    outcome, done = simulated(load("vanilla_llama_2_7b_a100", changes))
    assert outcome.serving.requests == len(done) == 60
    assert sorted(request.index for request in done) == list(range(60))
    assert all(
        request.arrival_s <= request.admitted_s < request.first_token_s <= request.finished_s
        for request in done
    )


def test_arrivals_wake_every_step_in_flight() -> None:
    changes = ["requests={arrivals: {name: poisson, rate_per_s: 0.2}, count: 12, output_tokens: 8}"]
    loaded = load(
        "pipeline_llama_3_1_70b_8x3090", [*changes, "serving.policy={name: prefill_first}"]
    )
    outcome, done = simulated(loaded)
    assert (outcome.serving.requests, outcome.tokens) == (12, 96)
    assert max(request.admitted_s - request.arrival_s for request in done) < 5


# ---- queueing theory


def waits(changes: Sequence[str], seeds: int = 10) -> list[float]:
    """Mean time from arrival to admission, by seed."""
    return [
        simulated(load("durations_only", [*SECOND, *ONE_PLACE, *changes], seed=seed))[
            0
        ].serving.wait.mean
        for seed in range(seeds)
    ]


def agrees(found: list[float], theory: float) -> bool:
    """Theory lies within the 99 % confidence interval of the mean, which is at most 15 % to either
    side.
    """
    half = float(student.ppf(0.995, len(found) - 1)) * stdev(found) / len(found) ** 0.5
    assert half < 0.15 * theory
    return abs(fmean(found) - theory) < half


def test_one_place_and_exponential_outputs_wait_as_m_m_1() -> None:
    """W = rho / (mu - lambda) (M/M/1); tokens are whole, so service is geometric: lambda E[S^2] /
    (2 (1 - rho)) (M/G/1).
    """
    mean, rate = 20.0, 0.025
    lengths = f"output_tokens: {{name: exponential, mean_tokens: {mean}, most_tokens: 2000}}"
    found = waits(
        [f"requests={{arrivals: {{name: poisson, rate_per_s: {rate}}}, count: 1500, {lengths}}}"]
    )
    stop = 1.0 - np.exp(-1.0 / mean)
    tokens = np.maximum(np.arange(1, 2001), 2)  # two are the least
    chance = stop * (1.0 - stop) ** np.arange(2000)
    first, second = float((tokens * chance).sum()), float((tokens**2 * chance).sum())
    exact = rate * second / (2.0 * (1.0 - rate * first))
    limit = rate * first / (1.0 / first - rate)
    assert exact == pytest.approx(limit, rel=0.04)
    assert agrees(found, exact)
    assert agrees(found, limit)


@pytest.mark.full
def test_one_place_and_fixed_outputs_wait_as_m_d_1() -> None:
    """W = rho S / (2 (1 - rho)): half of what exponential service costs."""
    service, rate = 2.0, 0.3
    load_ = rate * service
    found = waits(
        [
            (
                f"requests={{arrivals: {{name: poisson, rate_per_s: {rate}}}, count: 1500, "
                f"output_tokens: {service:.0f}}}"
            )
        ]
    )
    assert agrees(found, load_ * service / (2.0 * (1.0 - load_)))


def test_evenly_spaced_requests_below_capacity_never_wait() -> None:
    changes = [
        "requests={arrivals: {name: deterministic, rate_per_s: 0.05}, count: 50, output_tokens: 19}"
    ]
    assert waits(changes, 1) == [0.0]
    assert waits(
        [
            (
                "requests={arrivals: {name: deterministic, rate_per_s: 0.05}, count: 50, "
                "output_tokens: 21}"
            )
        ],
        1,
    )[0] == pytest.approx(24.5)


def test_bursts_wait_longer_than_independent_arrivals() -> None:
    even, bursty = (
        fmean(
            waits(
                [
                    (
                        f"requests={{arrivals: {{name: gamma, rate_per_s: 0.3, burstiness: "
                        f"{one}}}, count: 800, output_tokens: 2}}"
                    )
                ],
                4,
            )
        )
        for one in (0.5, 3)
    )
    assert bursty > 5 * even


# ---- arrivals


@pytest.mark.parametrize(
    ("arrivals", "deviation"),
    [
        (Poisson(rate_per_s=4), 1.0),
        (Gamma(rate_per_s=4, burstiness=2.5), 2.5),
        (Gamma(rate_per_s=4, burstiness=0.3), 0.3),
        (Deterministic(rate_per_s=4), 0.0),
    ],
)
def test_gaps_have_the_stated_rate_and_burstiness(
    arrivals: Poisson | Gamma | Deterministic, deviation: float
) -> None:
    times = np.array([0.0, *arrivals.times(3, 40_000)])
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(deviation, rel=0.05, abs=1e-9)
    # a longer workload begins like a shorter one
    assert list(arrivals.times(3, 1500)) == times[1:1501].tolist()


# ---- traffic files


FORMATS = {
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 "
        "18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
    ),
    "mooncake": '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0, 1]}\n'
    '{"timestamp": 4315, "input_length": 396, "output_length": 109, "hash_ids": [0]}\n',
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log "
    "Type\n0,ChatGPT,374,44,418,API log\n"
    "2,ChatGPT,50,0,50,API log\n4.315,GPT-4,396,109,505,API log\n",
    "csv": "arrival_s,prompt_tokens,output_tokens,task\n"
    "0,374,44,API log\n\n4.315,396,109,API log\n",
}


def test_every_format_that_is_read_can_be_named_and_has_a_sample() -> None:
    named = set(get_args(TrafficFile.model_fields["format"].annotation))
    assert named == set(traffic.FORMATS), "TrafficFile.format names the formats"
    assert named == {*FORMATS, "log"}, "FORMATS in this test has a sample of each"


@pytest.mark.parametrize(("clock", "cell"), [("ms", "1500"), ("s", "1.5")])
def test_a_table_may_count_time_in_any_unit(clock: str, cell: str) -> None:
    assert traffic.CLOCKS[clock](cell) == 1.5


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_says_the_same(kind: str, tmp_path: Path) -> None:
    table = read_from(written(tmp_path, FORMATS[kind]), kind, task="API log")
    assert [row[2:5] for row in table] == [(374, 44, "API log"), (396, 109, "API log")]
    assert [request.arrival_s for request in table] == pytest.approx([0.0, 4.315], abs=1e-3)


def test_a_slice_starts_at_zero_and_comes_at_its_own_rate(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "arrival_s,prompt_tokens,output_tokens\n"
        + "".join(f"{at},{at + 1},2\n" for at in range(10)),
    )
    table = read_from(path, from_s=3, to_s=7, rate_scale=2)
    assert [(request.number, request.arrival_s, request.prompt_tokens) for request in table] == [
        (5, 0, 4),
        (6, 0.5, 5),
        (7, 1, 6),
        (8, 1.5, 7),
    ]


HEAD = "arrival_s,prompt_tokens,output_tokens\n"


def test_what_no_context_holds_may_be_left_out(tmp_path: Path) -> None:
    """The others keep their arrivals and their lines; the report says how many are gone."""
    path = written(tmp_path, HEAD + "1,50,9\n2,50000,9\n3,60,9\n", "t.csv")
    traffic = f"name: file, format: csv, file: {path}"
    policy = "serving.policy={name: chunked_prefill}"
    with pytest.raises(
        BadInput,
        match=r"too long: .* requests.arrivals.drop_above_tokens=40960 leaves such requests out",
    ):
        load("vanilla_qwen3_32b_a100", [f"requests={{arrivals: {{{traffic}}}}}", policy])
    loaded = load(
        "vanilla_qwen3_32b_a100",
        [f"requests={{arrivals: {{{traffic}, drop_above_tokens: 40960}}}}", policy],
    )
    assert [(line.number, line.arrival_s) for line in loaded.scenario.requests.lines()] == [
        (2, 1.0),
        (4, 3.0),
    ]
    assert (
        "1 requests of more than 40,960 tokens, prompt and output together, are left out of the "
        "traffic"
    ) in evaluate.run(loaded).caveats


BROKEN = [
    ("csv", HEAD + "1,5,5\n0.5,5,5\n", "t.csv:3:1: arrives 0.5 s before the request above it"),
    (
        "csv",
        HEAD + "1,5,5\n2,-4,5\n",
        (
            "t.csv:3:3: prompt_tokens: expected a whole number of tokens from 1 to 1,000,000,000, "
            "got '-4'"
        ),
    ),
    (
        "csv",
        HEAD + "1,5,0\n",
        (
            "t.csv:2:5: output_tokens: expected a whole number of tokens from 1 to 1,000,000,000, "
            "got '0'"
        ),
    ),
    (
        "csv",
        HEAD + "1,5,2.5\n",
        (
            "t.csv:2:5: output_tokens: expected a whole number of tokens from 1 to 1,000,000,000, "
            "got '2.5'"
        ),
    ),
    ("csv", HEAD + "nan,5,5\n", "t.csv:2:1: arrival_s: expected a time of 0 or later, got 'nan'"),
    (
        "csv",
        HEAD + "1,5\n",
        "t.csv:2:1: output_tokens: is missing; the line has arrival_s, prompt_tokens",
    ),
    (
        "csv",
        "time,in,out\n1,5,5\n",
        "t.csv:2:1: output_tokens: is missing; the line has time, in, out",
    ),
    ("csv", HEAD, "t.csv: holds no request from 0 s to its end"),
    ("csv", "", "t.csv: holds no request from 0 s to its end"),
    (
        "csv",
        HEAD + "1,5,1\n",
        "t.csv: holds no request with more than one output token; nothing would be decoded",
    ),
    (
        "csv",
        HEAD + "1,5,5\n2,50000,5\n",
        (
            "t.csv:3:1: a request of 50,005 tokens is too long: qwen3_32b has a context of 40,960 "
            "tokens"
        ),
    ),
    (
        "azure",
        "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,5\n",
        "t.csv:2:1: TIMESTAMP: expected a time of 0 or later, got 'yesterday'",
    ),
    (
        "mooncake",
        '{"timestamp": 0, "input_length": 5, "output_length": true}\n',
        (
            "t.csv:1:1: output_length: expected a whole number of tokens from 1 to 1,000,000,000, "
            "got true"
        ),
    ),
    (
        "mooncake",
        '{"timestamp": 0, "input_length": 5, "output_length": 5}\n{"timest',
        "t.csv:2:1: cannot be read as mooncake",
    ),
    ("mooncake", "[1]\n", "t.csv:1:1: output_length: is missing; the line has nothing"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), BROKEN, ids=lambda value: value[-45:])
def test_a_broken_file_is_one_line_that_helps(
    kind: str, text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text, "t.csv")
    written(
        tmp_path,
        "like: vanilla_qwen3_32b_a100\nserving: {policy: {name: chunked_prefill}}\n",
        "x.yaml",
    )
    changes = ["--set", f"requests={{arrivals: {{name: file, format: {kind}, file: t.csv}}}}"]
    result = CliRunner().invoke(main, ["run", "./x.yaml", *changes])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert expected in result.stderr


STATED = [
    (
        "requests={arrivals: {name: poisson}}",
        "requests.arrivals.rate_per_s: is required and missing",
    ),
    (
        "requests={arrivals: {name: poison, rate_per_s: 1}}",
        "there is no arrivals 'poison'; did you mean 'poisson'?",
    ),
    (
        "requests={arrivals: {name: poisson, rate_per_s: 1}, concurrency: 4}",
        "concurrency is for a closed loop, and there are arrivals",
    ),
    (
        "requests={arrivals: {name: file, format: csv, file: none.csv}}",
        "requests.arrivals.file: there is no file none.csv",
    ),
    (
        "requests={arrivals: {name: file, format: csv, file: x.yaml, from_s: 5, to_s: 5}}",
        "to_s 5 must be more than from_s 5",
    ),
    (
        "requests={arrivals: {name: file, format: csv, file: x.yaml}, prompt_tokens: 5}",
        "prompt_tokens stand in the traffic file",
    ),
    ("requests={task_flavours: {chat: [code]}}", "task_flavours is for a traffic file"),
    (
        "requests=azure_sampel",
        "requests: there is no workload 'azure_sampel'; did you mean 'azure_sample'?",
    ),
    (
        "requests=steady",
        (
            "serving.policy: fixed_batch needs max_requests where requests arrive: there are no "
            "clients to count as places; set it, or choose another policy"
        ),
    ),
]


@pytest.mark.parametrize(("assignment", "expected"), STATED, ids=lambda value: value[-45:])
def test_a_broken_workload_is_one_line_that_helps(
    assignment: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "like: vanilla_qwen3_32b_a100\n", "x.yaml")
    result = CliRunner().invoke(main, ["run", "./x.yaml", "--set", assignment])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert expected in result.stderr


def test_a_scenario_like_another_takes_a_file_instead_of_its_load(tmp_path: Path) -> None:
    """The other one's count and lengths do not cut what is read; later changes do what they say."""
    written(tmp_path, HEAD + "".join(f"{at},50,20\n" for at in range(9)), "t.csv")
    text = (
        "like: vanilla_llama_2_7b_a100\nrequests: {arrivals: {name: file, format: csv, file: "
        "./t.csv}}\n"
    )
    path = str(written(tmp_path, text + "serving: {policy: {name: chunked_prefill}}\n", "x.yaml"))
    assert load(path).scenario.lengths == (50, 20, 70)
    assert [
        load(path, [f"requests.{one}"]).scenario.requests.count
        for one in ("count=4", "arrivals.to_s=6")
    ] == [4, 6]
    written(tmp_path, "like: ./x.yaml\nrequests: {arrivals: {rate_scale: 2}}\n", "y.yaml")
    assert [line.arrival_s for line in load(str(tmp_path / "y.yaml")).scenario.requests.lines()][
        -1
    ] == 4.0


def test_what_takes_one_request_at_a_time_needs_one_place() -> None:
    with pytest.raises(
        BadInput, match=r"takes one request at a time, got 256; set serving\.policy\.max_requests=1"
    ):
        load(
            "duodecoding_llama_2_7b_a800",
            ["requests=steady", "serving.policy={name: prefill_first}"],
        )
    changes = [
        "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 4, output_tokens: 20}",
        *ONE_PLACE,
    ]
    assert simulated(load("duodecoding_llama_2_7b_a800", changes))[0].serving.requests == 4


def test_a_sweep_over_sizes_refuses_arrivals() -> None:
    result = CliRunner().invoke(
        main,
        ["batches", "vanilla_qwen3_32b_a100", "--set", "requests=steady", "--set", ONE_PLACE[0]],
    )
    assert result.exit_code == 2
    assert "requests.arrivals: a sweep over sizes is about a closed loop" in result.stderr


# ---- the shipped workloads


@pytest.mark.few(6)
@pytest.mark.parametrize("name", sorted(Catalogue().names("workload")))
def test_every_shipped_workload_runs(name: str) -> None:
    loaded = load(
        "durations_only",
        [
            "strategy=autoregressive",
            "durations={target_ms: 5}",
            f"requests={name}",
            ONE_PLACE[0][:-2] + "64}",
        ],
    )
    outcome, done = simulated(loaded)
    assert outcome.serving.requests == loaded.scenario.requests.count == len(done)
    assert loaded.scenario.requests.source
    traffic = loaded.scenario.requests.traffic
    assert traffic is None or Path(traffic.file).is_file()


def test_a_report_says_what_came_and_what_was_replayed() -> None:
    changes = [
        "requests=mixed_tasks",
        "requests.count=40",
        "serving.policy={name: chunked_prefill}",
    ]
    result = evaluate.run(load("vanilla_qwen3_32b_a100", changes))
    assert "requests of task 'code' replay 20 recordings (code), over and over" in result.caveats
    assert "idealised" in result.law.relation
    held = result_data(result)["scenario"]["requests"]
    assert held["task_flavours"]["chat"] == ["dialogue", "prose"]
    assert held["count"] == 40
    assert result.law_replayed.step_s == pytest.approx(result.simulated.step_s, rel=0.15)


def test_the_law_is_taken_at_the_batch_that_the_run_saw() -> None:
    """Stated durations do not depend on the batch, so the law of a token is exact whatever
    arrives.
    """
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 10}",
        "serving.policy={name: fixed_batch, max_requests: 9}",
    ]
    result = evaluate.run(
        load(
            "durations_only",
            [*changes, "requests={arrivals: {name: poisson, rate_per_s: 3}, output_tokens: 99}"],
        )
    )
    assert 1.5 < result.simulated.serving.mean_batch < 9
    assert result.law.relation.startswith(
        f"idealised: {round(result.simulated.serving.mean_batch)} requests"
    )
    assert (
        result.law.tpot_s
        == result.law_replayed.tpot_s
        == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    )


# ---- traffic meets traces


def test_a_request_replays_a_recording_of_its_task() -> None:
    loaded = load(
        "vanilla_qwen3_32b_a100", ["requests=mixed_tasks", "serving.policy={name: chunked_prefill}"]
    )
    replay = replay_behind(loaded.acceptance())
    assert isinstance(replay, Replay)
    flavour = {one: name for name, held in replay.trace.requests_by_flavour.items() for one in held}
    deal, known = (
        TraceAssignment(replay, loaded.scenario.requests.task_flavours),
        loaded.scenario.requests.task_flavours,
    )
    for index, line in enumerate(loaded.scenario.requests.lines()):
        number = deal(index, line.task)
        assert flavour[replay.order[number % len(replay.order)]] in known[line.task]
    done = simulated(loaded)[1]
    assert {request.number for request in done} != set(range(len(done)))


@given(st.lists(st.sampled_from(["chat", "code"]), max_size=300))
def test_dealing_uses_every_recording_of_a_task_before_any_again(tasks: list[str]) -> None:
    deal = TraceAssignment(REPLAY, {"chat": ("dialogue", "prose"), "code": ("code",)})
    numbers = [deal(index, task) for index, task in enumerate(tasks)]
    assert len(set(numbers)) == len(numbers)
    for task, held in (("chat", 40), ("code", 20)):
        mine = [
            number % len(REPLAY.order)
            for number, one in zip(numbers, tasks, strict=True)
            if one == task
        ]
        for start in range(0, len(mine), held):
            assert len(set(mine[start : start + held])) == len(mine[start : start + held])


REPLAY = replay_behind(load("vanilla_qwen3_32b_a100").acceptance())


def test_without_a_recording_everybody_gets_a_number_of_their_own() -> None:
    assert [
        TraceAssignment(Cycle((1,)), {"chat": ("code",)})(index, "chat") for index in range(3)
    ] == [0, 1, 2]


def test_a_task_without_flavours_and_a_flavour_without_recordings(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens,task\n1,5,5,chat\n2,5,5,cod\n")
    traffic = f"arrivals: {{name: file, format: csv, file: {path}}}, task_flavours"
    held = "serving.policy={name: chunked_prefill}"
    with pytest.raises(
        BadInput, match=r"traffic.csv:3:1: task 'cod' is not in task_flavours; did you mean 'code'"
    ):
        load(
            "vanilla_qwen3_32b_a100",
            [f"requests={{{traffic}: {{chat: [prose], code: [code]}}}}", held],
        )
    with pytest.raises(
        BadInput, match=r"task_flavours.chat: the trace has no flavour 'pros'; did you mean 'prose'"
    ):
        load(
            "vanilla_qwen3_32b_a100",
            [f"requests={{{traffic}: {{chat: [pros], cod: [code]}}}}", held],
        )
    with pytest.raises(
        BadInput,
        match=r"task_flavours.chat: none of these is among the flavours of acceptance, code",
    ):
        load(
            "vanilla_qwen3_32b_a100",
            [
                f"requests={{{traffic}: {{chat: [prose], cod: [code]}}}}",
                held,
                "acceptance.flavours=[code]",
            ],
        )


# ---- size


def test_one_request_is_kept_ahead() -> None:
    """Nothing is read from a workload before it is due."""
    read = 0

    class Counted(Poisson):
        def times(self, seed: int, count: int) -> Iterator[float]:
            nonlocal read
            for at in super().times(seed, count):
                read += 1
                yield at

    source = (
        Requests(arrivals=Poisson(rate_per_s=1), count=5_000)
        .model_copy(update={"arrivals": Counted(rate_per_s=1)})
        .source_of(0)
    )
    assert read == 1
    came = list(source.due(100.0))
    assert read == len(came) + 1
    assert all(a.arrival_s < b.arrival_s <= 100.0 < source.next_s for a, b in pairwise(came))


@pytest.mark.full
def test_two_hundred_thousand_requests_take_no_more_memory_than_a_tenth(tmp_path: Path) -> None:
    """Books are written 32,768 iterations at a time, which a run of a thousand does not fill."""
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        file.writelines(f"{at / 100},64,{2 + at % 3}\n" for at in range(200_000))
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 1, prefill_ms: 1}",
        "serving.policy={name: prefill_first}",
    ]
    loaded = load(
        "durations_only",
        [*changes, f"requests={{arrivals: {{name: file, format: csv, file: {path}}}}}"],
    )
    evaluate.simulate(
        loaded.scenario.replace(
            requests=loaded.scenario.requests.model_copy(update={"count": 20_000})
        ),
        loaded.acceptance(),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    assert outcome.serving.requests == 200_000
    # KiB: 16 bytes a request
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * 1024


@pytest.mark.full
@needs_data
@pytest.mark.parametrize("name", ["autoregressive_qwen3_32b_a100", "vanilla_qwen3_32b_a100"])
def test_the_azure_conversations_run_and_nothing_is_lost(name: str) -> None:
    path = DATA / "azure_llm_2023/AzureLLMInferenceTrace_conv.csv"
    changes = [
        f"requests={{arrivals: {{name: file, format: azure, file: {path}}}}}",
        "serving.policy={name: chunked_prefill}",
    ]
    outcome, _ = evaluate.simulate((loaded := load(name, changes)).scenario, loaded.acceptance())
    assert outcome.serving.requests == 19_366
    assert outcome.tokens == 4_088_665


@needs_data
@pytest.mark.parametrize(
    ("kind", "file", "requests", "longest"),
    [
        ("azure", "azure_llm_2023/AzureLLMInferenceTrace_code.csv", 8_819, 7_437),
        ("mooncake", "mooncake_fast25/conversation_trace.jsonl", 12_031, 126_195),
    ],
)
def test_the_real_files_are_read_whole(kind: str, file: str, requests: int, longest: int) -> None:
    lines = read_from(DATA / file, kind)
    assert len(lines) == requests
    assert max(line.prompt_tokens for line in lines) == longest


# ---- a request is paired with its own recording by name


def dealt(loaded: Any) -> list[tuple[str, int]]:
    """Flavour and number, from 1, of the recording that each request replays, in order of the
    requests.
    """
    replay, done = replay_behind(loaded.acceptance()), simulated(loaded)[1]
    assert isinstance(replay, Replay)
    called = {
        one: (name, n)
        for name, held in replay.trace.requests_by_flavour.items()
        for n, one in enumerate(held, 1)
    }
    return [
        called[replay.order[one.dealt % len(replay.order)]]
        for one in sorted(done, key=lambda request: int(request.index))
    ]


@pytest.mark.parametrize("load_", ["concurrency: 3", "arrivals: {name: poisson, rate_per_s: 2}"])
def test_requests_name_their_recordings_in_turn(load_: str) -> None:
    # as if nothing were said of them
    nothing = f"requests={{count: 7, {load_}, output_tokens: 9, recordings: {{}}}}"
    requests = nothing.replace("{}", "[maths/3, code/20, code, code]")
    loaded = load("vanilla_qwen3_32b_a100", [requests, "serving.policy={name: chunked_prefill}"])
    paired = dealt(loaded)
    assert [paired[index] for index in (0, 1, 4, 5)] == [
        ("maths", 3),
        ("code", 20),
        ("maths", 3),
        ("code", 20),
    ]
    assert [paired[index][0] for index in (2, 3, 6)] == ["code"] * 3
    assert len({paired[index] for index in (2, 3, 6)}) == 3, (
        "a flavour's recordings one after another"
    )
    result = evaluate.run(loaded)
    assert (
        "requests of task 'maths/3' replay 1 recordings (maths/3), over and over" in result.caveats
    )
    again = load("vanilla_qwen3_32b_a100", ["acceptance.flavours=[maths/3]", "requests.count=2"])
    assert dealt(again) == [("maths", 3)] * 2
    unnamed = nothing.replace(", recordings: {}", "")
    policy = "serving.policy={name: chunked_prefill}"
    assert dealt(load("vanilla_qwen3_32b_a100", [nothing, policy])) == dealt(
        load("vanilla_qwen3_32b_a100", [unnamed, policy])
    )


def test_tasks_of_a_traffic_file_are_paired_by_name(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "arrival_s,prompt_tokens,output_tokens,task\n1,5,5,code/7\n2,5,5,prose\n3,5,5,code/2\n",
    )
    traffic = (
        f"requests={{arrivals: {{name: file, format: csv, file: {path}}}, task_flavours: by_name}}"
    )
    held = "serving.policy={name: chunked_prefill}"
    paired = dealt(load("vanilla_qwen3_32b_a100", [traffic, held]))
    assert (paired[0], paired[1][0], paired[2]) == (("code", 7), "prose", ("code", 2))


@pytest.mark.parametrize(
    ("requests", "fault"),
    [
        (
            "{recordings: [code/21]}",
            (
                "requests.recordings.code/21: the trace has no flavour 'code/21'; expected one of "
                "code, dialogue"
            ),
        ),
        ("{recordings: [code/0]}", "the trace has no flavour 'code/0'"),
        (
            "{arrivals: {name: file, format: csv, file: FILE}, recordings: [code]}",
            "task_flavours: by_name pairs them",
        ),
        (
            "{arrivals: {name: file, format: csv, file: FILE}, task_flavours: by_name}",
            "no flavour 'cod'; did you mean 'code'",
        ),
        (
            "{recordings: [maths/1]} & acceptance.flavours=[code]",
            "none of these is among the flavours of acceptance, code",
        ),
    ],
)
def test_names_of_no_recording(tmp_path: Path, requests: str, fault: str) -> None:
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens,task\n1,5,5,cod\n")
    changes = f"requests={requests.replace('FILE', str(path))}".split(" & ")
    with pytest.raises(BadInput) as caught:
        load("vanilla_qwen3_32b_a100", [*changes, "serving.policy={name: chunked_prefill}"])
    assert fault in str(caught.value)
