"""Other people's records: tiny ones with their complete outcome, drawn ones, and the real files
where they lie.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance import rescale
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Rates, Replay, best_of
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.faults import BadInput
from simulator.inputs.traces import converters, file as trace_file, summaries
from simulator.inputs.traces.file import read
from simulator.inputs.traces.summaries import TO_RATES
from simulator.scenario import load
from simulator.scenario.evaluate import run
from tests.plain_walk import walk
from tests.test_acceptance import make_trace

DATA = Path(__file__).parents[2] / "shared/data/acceptance_traces"
SPEC = DATA / "specdecode_bench_llama3.1-8b_positional_acclen.jsonl"
REST = DATA / "rest_vicuna7b_v1.5_mtbench_steps.jsonl"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the data files are not part of the repository"
)


def check(
    trace: Trace, path: Path, flavour: list[int], offsets: list[int], run: list[int]
) -> Trace:
    """It comes back from its file, and holds exactly this."""
    trace_file.write(trace, path / "t.npz")
    again = read(path / "t.npz")
    assert again.header == trace.header
    assert again.flavour.tolist() == flavour
    assert again.offsets.tolist() == offsets
    assert again.run is not None
    assert again.run.tolist() == run
    assert [len(array) for array in (again.token, again.draft_rank, again.p, again.q)] == [
        0,
        0,
        0,
        0,
    ]
    assert again.exit_rank.shape == (0, offsets[-1])
    return again


def test_positional_lengths(tmp_path: Path) -> None:
    rows = [
        {"dataset": "cnn", "acc_len_eagle": [3, 1, 1]},
        {"dataset": "code", "acc_len_eagle": [1, 2]},
    ]
    trace = check(
        converters.positional(rows, "eagle"), tmp_path, [0, 1], [0, 4, 7], [0, 2, 0, 0, 0, 0, 1]
    )
    assert trace.header == {
        "format": 2,
        "temperature": None,
        "vocabulary": 128_256,
        "flavours": ["cnn", "code"],
        "exit_layers": [],
        "window": 2,
        "models": {
            "target": {"name": "Llama-3.1-8B-Instruct", "shape": None},
            "draft": {"name": "eagle", "shape": None},
        },
        "source": "SpecDecode-Bench positional accepted lengths, field acc_len_eagle",
        "replay": converters.FROM_ANY_START,
    }
    assert trace.pair == "the target Llama-3.1-8B-Instruct and the draft eagle"


def test_files_of_specdecode_bench_as_they_are(tmp_path: Path) -> None:
    """Their simulator's first window takes entry 0: a step law of 10 + 3 gamma ms over the walk by
    hand.
    """
    rows = [
        {"id": "7", "acc_eagle": {"acc_len": [3, 1, 1, 2]}, "acc_ngram": {"acc_len": [1, 1, 2, 1]}}
    ]
    trace = check(converters.positional(rows, "eagle"), tmp_path, [0], [0, 5], [0, 2, 0, 0, 1])
    assert trace.flavours == ("all",)
    assert converters.positional(rows, "ngram").run.tolist() == [0, 0, 0, 1, 0]
    with pytest.raises(BadInput, match="acc_len_eagle"):
        converters.positional([{"acc_eagle": {"acc_len": "3"}}], "eagle")


def test_both_methods_of_specdecode_bench_are_drafters_of_one_text(tmp_path: Path) -> None:
    """Where EAGLE knows a token more at the end, the shorter counts; the wider of the two windows
    is that of both.
    """
    rows = [{"acc_eagle": {"acc_len": [3, 1, 1, 2]}, "acc_ngram": {"acc_len": [1, 6, 2]}}]
    trace_file.write(converters.both(rows), tmp_path / "t.npz")
    trace = read(tmp_path / "t.npz")
    assert (list(trace.drafters), trace.window) == (["draft", "ngram"], 5)
    assert Replay(trace).runs(0).tolist() == [2, 0, 0]
    assert Replay(trace.drafted_by("ngram")).runs(0).tolist() == [0, 5, 1]
    assert Replay(best_of(trace, ["draft", "ngram"])).runs(0).tolist() == [2, 5, 1]
    with pytest.raises(BadInput, match="acc_len_ngram"):
        converters.both([*rows[:1], {"acc_eagle": {"acc_len": [1]}}])


def test_a_request_replays_the_recording_of_its_name(tmp_path: Path) -> None:
    """Three requests in another order than the records: each has the steps of its own, 4, 1 and 2
    of them for four tokens.
    """
    rows = [
        {"accepted": kept, "flavour": f"request {number}"}
        for number, kept in enumerate([[0, 0, 0, 0], [3], [1, 1]])
    ]
    trace_file.write(converters.steps(rows, window=3), tmp_path / "t.npz")
    order = (1, 2, 0)
    lines = [f"{at},10,5,request {number}" for at, number in enumerate(order)]
    (tmp_path / "asked.csv").write_text(
        "\n".join(["arrival_s,prompt_tokens,output_tokens,task", *lines]) + "\n"
    )
    (tmp_path / "x.yaml").write_text(
        "strategy: {name: vanilla_sd, gamma: 3}\ndurations: {target_ms: 10, draft_ms: "
        "2}\nacceptance: {trace: ./t.npz}\n"
        "serving: {policy: {name: prefill_first, max_requests: 3}}\n"
        "requests: {arrivals: {name: file, format: csv, file: ./asked.csv}, task_flavours: {"
        + ", ".join(f"request {number}: [request {number}]" for number in order)
        + "}}\n"
    )
    steps = dict[int, float]()
    run(
        load(str(tmp_path / "x.yaml")),
        finished=lambda request: steps.update(
            {request.index: request.finished_s - request.first_token_s}
        ),
    )
    assert {order[index]: round(seconds / 12e-3) for index, seconds in steps.items()} == {
        0: 4,
        1: 1,
        2: 2,
    }


def test_a_cell_by_hand_is_law_of_a_step_times_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start at p, emit length[p] tokens, go on at p + length[p]: steps by hand times the time of a
    step, at 1e-9.
    """
    monkeypatch.chdir(tmp_path)
    lengths = np.random.default_rng(5).geometric(0.4, 300).tolist()
    trace_file.write(
        converters.positional([{"acc_eagle": {"acc_len": lengths}}], "eagle"), tmp_path / "t.npz"
    )
    Path("x.yaml").write_text(
        "strategy: {name: vanilla_sd, gamma: 3}\ndurations: {target_ms: 10, draft_ms: 2.5}\n"
        f"acceptance: {{trace: ./t.npz}}\nrequests: {{count: 1, output_tokens: "
        f"{len(lengths) + 1}}}\n"
    )
    position = steps = 0
    while position < len(lengths):
        position += min(lengths[position], 4)
        steps += 1
    result = run(load("./x.yaml"))
    for outcome in (result.replay, result.simulated):
        assert outcome.tokens_per_step == pytest.approx(position / steps, abs=1e-9)
        assert outcome.step_s == pytest.approx(12.5e-3, abs=1e-12)
        assert outcome.tpot_s * len(lengths) == pytest.approx(steps * 12.5e-3, abs=1e-9)


def test_more_kinds_of_text_than_a_byte_counts(tmp_path: Path) -> None:
    trace = converters.steps([{"accepted": [i % 3], "flavour": f"request {i}"} for i in range(700)])
    trace_file.write(trace, tmp_path / "t.npz")
    again = read(tmp_path / "t.npz")
    assert again.requests_by_flavour["request 699"] == [699]
    assert Replay(again, ["request 698"]).runs(698).tolist() == [2, 1, 0]


def test_rest_steps_turn_by_turn(tmp_path: Path) -> None:
    """A turn's first step leaves its correction out: 1 3 1 keeps 1, 2, 0 and 0 2 keeps 0, 1."""
    rows = [{"category": "math", "steps_idx": [2, 1], "accept_lengths": [1, 3, 1, 0, 2]}]
    trace = check(
        converters.rest(rows), tmp_path, [0, 0], [0, 7, 11], [0, 1, 0, 2, 1, 0, 0, 0, 0, 1, 0]
    )
    assert (trace.window, trace.flavours, trace.vocabulary) == (2, ("math",), 32_000)


def test_steps_keep_the_window_they_were_served_with(tmp_path: Path) -> None:
    trace = converters.steps([{"accepted": [2, 0], "flavour": "chat"}, {"accepted": [1]}], window=3)
    check(trace, tmp_path, [0, 1], [0, 5, 8], [0, 2, 1, 0, 0, 0, 1, 0])
    assert (trace.window, trace.vocabulary, trace.flavours) == (3, None, ("chat", "all"))
    assert trace.pair == "an unknown target and an unknown draft"
    assert converters.steps([{"accepted": [0, 0]}]).window == 1


@given(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(1, 15),
)
def test_positional_lengths_replay_as_a_plain_walk(lengths: list[list[int]], gamma: int) -> None:
    replay = Replay(
        converters.positional([{"acc_len_ngram": length} for length in lengths], "ngram")
    )
    for request, recording in enumerate(replay.order):
        cursor, position, tokens = replay.cursor(request, None), 0, lengths[recording]
        while position < len(tokens):
            emitted = min(tokens[position], gamma + 1)
            assert cursor.judge(Chain(gamma)).committed == emitted
            position += emitted


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40), st.integers(1, 7))
def test_steps_are_exact_at_their_window_and_chains_below(kept: list[int], gamma: int) -> None:
    replay = Replay(converters.steps([{"accepted": kept}], window=7))
    run = replay.runs(0).tolist()
    assert walk(run, 7) == walk(run, 9) == kept
    smaller = walk(run, gamma)
    assert sum(smaller) + len(smaller) == len(run)
    assert max(smaller) <= gamma


BAD_ROWS = [
    ([], "holds no requests"),
    ([{"accepted": []}], "expected an object with 'accepted'"),
    ([[1, 2]], "expected an object, one per request"),
    (
        [{"accepted": [1]}, {"accepted": [1.5]}],
        ":2:0: accepted: expected whole numbers from 0 to 65,535",
    ),
    ([{"accepted": [70_000]}], "expected whole numbers from 0 to 65,535"),
    ([{"accepted": [4]}], "--window 3: a window was kept up to 4 draft tokens"),
    (
        [{"accepted": [1], "flavour": str(i)} for i in range(65_537)],
        "holds 65,537 flavours; a trace can distinguish 65,536",
    ),
]


@pytest.mark.parametrize(("rows", "expected"), BAD_ROWS, ids=[text for _, text in BAD_ROWS])
def test_records_that_are_wrong(rows: list[dict[str, object]], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        converters.steps(rows, window=3)


def test_rest_lengths_that_do_not_add_up() -> None:
    with pytest.raises(BadInput, match="expected 4 steps by steps_idx, found 3"):
        converters.rest([{"steps_idx": [3], "accept_lengths": [1, 1, 1]}])
    with pytest.raises(BadInput, match="cannot yield 0 tokens"):
        converters.rest([{"steps_idx": [1], "accept_lengths": [1, 0]}])


# ---- summaries


def test_survival_becomes_conditional_rates_and_keeps_the_mean() -> None:
    found = summaries.rates_by_position([0.8, 0.4, 0.1])
    assert found == {"per_position": pytest.approx([0.8, 0.5, 0.25])}
    assert Rates(tuple(found["per_position"])).odds(3, None).mean_accepted == pytest.approx(1.3)
    assert summaries.rates_by_position([0.5, 0.0, 0.0]) == {"per_position": [0.5, 0.0, 0.0]}
    for wrong in ([], [0.5, 0.6], [1.2], [float("nan")]):
        with pytest.raises(BadInput, match="rates from 0 to 1 that fall"):
            summaries.rates_by_position(wrong)


def test_a_golden_curve_of_lengths() -> None:
    assert summaries.rates_from_lengths([1.8, 2.2, 2.3]) == {
        "per_position": pytest.approx([0.8, 0.5, 0.25])
    }


def test_a_vllm_log_weighs_intervals_by_what_they_drafted() -> None:
    line = (
        "metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.9, Accepted: 9 tokens, "
        "Drafted: {} tokens, "
    )
    line += "Per-position acceptance rate: {}, Avg Draft acceptance rate: 47.0%"
    log = [
        "starting",
        line.format(100, "0.800, 0.500"),
        line.format(0, "nan, nan"),
        line.format(300, "0.400, 0.100"),
    ]
    assert TO_RATES["vllm_log"](log, None, None)["per_position"] == pytest.approx([0.5, 0.4])
    assert TO_RATES["vllm_log"](["0.5, 0.2  # by hand"], None, None) == {
        "per_position": pytest.approx([0.5, 0.4])
    }
    with pytest.raises(BadInput, match="mixes windows of different lengths"):
        TO_RATES["vllm_log"]([line.format(100, "0.8"), line.format(100, "0.8, 0.5")], None, None)


def test_a_mean_length_is_stated_with_its_window() -> None:
    block = summaries.mean_length(["2.75"], 2)
    assert (block["tokens_per_step"], block["window"]) == (2.75, 2)
    for length in ("1.0", "8.0", "9.0"):
        with pytest.raises(BadInput, match="at window 7 it lies between 1 and 8"):
            summaries.mean_length([length], 7)


# ---- re-scaling


def drawn(temperature: float, count: int = 4_000) -> Trace:
    """Positions whose difficulty drifts, so that acceptance comes in bursts."""
    random = np.random.default_rng(1)
    ease = 1 / (1 + np.exp(-np.convolve(random.normal(size=count), np.ones(9) / 2, "same") - 0.7))
    p = np.maximum(random.random(count), 0.05)
    ranks = np.where(random.random(count) < ease, 0, random.integers(1, 9, count))
    arrays = {"p": p.astype(np.float16), "q": (p * ease).astype(np.float16)}
    return make_trace([ranks.tolist()], temperature=temperature, **arrays)


@settings(max_examples=15, deadline=None)
@given(st.floats(1.3, 6.0), st.sampled_from([0.0, 1.0]), st.integers(2, 9))
def test_rescaling_hits_the_mean_and_keeps_the_order(
    length: float, temperature: float, window: int
) -> None:
    length = min(length, 0.9 * window)
    trace = drawn(temperature)
    found = rescale.rescale(trace, length, window, seed=4)
    derived = found.header["derived_from"]
    assert WindowReplay.of(Replay(found, seed=9)).mean(window) + 1.0 == pytest.approx(
        length, rel=0.01
    )
    assert derived["mean_length_tokens"] == pytest.approx(length, rel=0.01)
    accepted, score = found.accepted(0), rescale.scores(trace, 4)
    assert score[accepted].min() > score[~accepted].max()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rescaling_to_the_recorded_mean_changes_next_to_nothing(
    temperature: float, tmp_path: Path
) -> None:
    trace = drawn(temperature)
    found = rescale.rescale(trace, WindowReplay.of(Replay(trace)).mean(5) + 1.0, 5)
    assert (found.accepted(0) != trace.accepted(0)).mean() < 0.005
    trace_file.write(found, tmp_path / "t.npz")
    again = read(tmp_path / "t.npz")
    assert (again.accepted(3) == found.accepted(0)).all()
    assert again.exit_fractions == trace.exit_fractions


def test_rescaling_keeps_bursts() -> None:
    trace = drawn(0.0)
    runs = [
        np.diff(np.flatnonzero(~one.accepted(0))).var()
        for one in (trace, rescale.rescale(trace, 3.0, 7))
    ]
    rate = rescale.rescale(trace, 3.0, 7).accepted(0).mean()
    assert runs[1] > 1.2 * rate / (1.0 - rate) ** 2, "geometric gaps have less variance"


def test_what_cannot_be_rescaled() -> None:
    with pytest.raises(BadInput, match="no probabilities"):
        rescale.rescale(rescale.rescale(drawn(0.0), 2.0, 3), 2.5, 3)
    with pytest.raises(BadInput, match="between 1 and 4"):
        rescale.rescale(drawn(0.0), 4.5, 3)


# ---- the real files


@needs_data
@pytest.mark.parametrize(
    ("method", "means", "replayed"),
    [
        (
            "eagle",
            {"cnn": 3.16, "gsm8k": 3.07, "instructcoder": 3.77, "sharegpt": 3.33},
            [1.578, 1.666, 1.625, 1.478],
        ),
        (
            "ngram",
            {"cnn": 2.63, "gsm8k": 1.46, "instructcoder": 9.65, "sharegpt": 4.33},
            [0.378, 0.177, 1.289, 0.451],
        ),
    ],
)
def test_specdecode_bench(method: str, means: dict[str, float], replayed: list[float]) -> None:
    """Means over positions as the data's own notes give them, and means of replayed windows of
    five.
    """
    trace = converters.positional(converters.json_lines(SPEC.read_text().splitlines()), method)
    assert set(trace.flavours) == set(means)
    for (flavour, mean), expected in zip(means.items(), replayed, strict=True):
        replay = Replay(trace, [flavour])
        lengths = np.concatenate([replay.runs(recording) for recording in replay.order]) + 1
        assert lengths.mean() == pytest.approx(mean, abs=0.005)
        assert WindowReplay.of(replay).mean(5) == pytest.approx(expected, abs=5e-4)


@needs_data
def test_rest() -> None:
    """Steps as counted in the file; tokens of a turn are its new tokens and the correction that was
    never written.
    """
    rows = [json.loads(line) for line in REST.read_text().splitlines()]
    replay = Replay(converters.rest(rows))
    kept = [walk(replay.runs(recording).tolist(), 10) for recording in range(160)]
    assert sum(map(len, kept)) == sum(len(row["accept_lengths"]) for row in rows)
    lengths = [int(end - start - 1) for start, end in pairwise(replay.trace.offsets)]
    assert lengths == [tokens for row in rows for tokens in row["new_tokens"]]
