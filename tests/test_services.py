"""Files of running services are read as they are: those of one vLLM 0.32 on a CPU, small ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from simulator.core.faults import BadInput
from simulator.inputs.services.joined import joined
from simulator.inputs.services.observation_files import observation_files
from simulator.inputs.services.observed import MeasuredTime, Observed, Quantity
from simulator.inputs.services.read import read_services
from simulator.inputs.traces.converters import TO_TRACE

DATA = Path(__file__).parent / "data"
LIVE = DATA / "live_services"


def observed(*names: str, folder: Path = LIVE) -> Observed:
    """What files make together."""
    (run,) = read_services([folder / name for name in names])
    return joined(run)


def written(tmp_path: Path, content: Any, name: str = "own.json") -> Path:
    """A file of JSON, of lines of JSON, or of a text."""
    text = content
    if isinstance(content, list):
        text = "".join(json.dumps(record) + "\n" for record in content)
    elif not isinstance(content, str):
        text = json.dumps(content)
    path = tmp_path / name
    path.write_text(text)
    return path


def read(*paths: Path) -> Observed:
    (run,) = read_services(paths)
    return joined(run)


def times(seen: Observed, quantity: Quantity) -> tuple[MeasuredTime, MeasuredTime]:
    """The times of one kind of a client, and those of the server."""
    client = [time for time in seen.times_of(quantity) if time.seen_by == "client"]
    server = [time for time in seen.times_of(quantity) if time.seen_by == "server"]
    return client[0], server[0]


# ---- the same requests in files of a load generator and in two scrapes of the server

RUNS = {
    "vllm bench serve": (
        ("vllm_bench.json", "vllm_bench_metrics_before.txt", "vllm_bench_metrics_after.txt"),
        (12, 554, 511),
        (117, 326, 149),
        (73, 41, 35),
    ),
    "AIPerf": (
        (
            "profile_export.jsonl",
            "profile_export_aiperf.json",
            "aiperf_metrics_before.txt",
            "aiperf_metrics_after.txt",
        ),
        (10, 370, 480),
        (110, 294, 216),
        (89, 66, 61),
    ),
    "GuideLLM": (
        ("guidellm.json", "guidellm_metrics_before.txt", "guidellm_metrics_after.txt"),
        (6, 240, 384),
        (96, 259, 198),
        (81, 65, 52),
    ),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_generator_and_the_server_count_the_same(run: str) -> None:
    """Requests, tokens and drafts exactly, in every file of the run and in all together."""
    names, (requests, prompt_tokens, output_tokens), drafts, by_position = RUNS[run]
    together = observed(*names)
    assert together.contradictions == ()
    readings = [observed(name) for name in names if "metrics" not in name]
    readings += [observed(*names[-2:]), together]
    for seen in readings:
        load = seen.load
        assert (load.requests, load.prompt_tokens, load.output_tokens) == (
            requests,
            prompt_tokens,
            output_tokens,
        )
        kept = seen.acceptance
        assert kept is not None
        assert (kept.drafts, kept.drafted_tokens, kept.accepted_tokens) == drafts
        assert kept.accepted_by_position_tokens in ((), by_position)
        assert kept.tokens_per_draft == pytest.approx(1 + drafts[2] / drafts[0])
    assert together.acceptance is not None
    assert together.acceptance.accepted_by_position_tokens == by_position
    assert together.acceptance.window == 3


@pytest.mark.parametrize("run", RUNS)
def test_times_of_client_and_server_differ_by_what_lies_between_them(run: str) -> None:
    """A client sends before the server counts, and reads after: its times to a first token are
    longer, by 11 to 33 ms here. Per token they differ by 10 %: chunks that come together late.
    """
    seen = observed(*RUNS[run][0])
    client, server = times(seen, "ttft")
    assert client.count == server.count
    assert 0.0 < (client.mean_ms or 0.0) - (server.mean_ms or 0.0) < 40.0
    client, server = times(seen, "tpot")
    assert client.mean_ms == pytest.approx(server.mean_ms, rel=0.1)
    client, server = times(seen, "e2e")
    assert 0.0 < (client.mean_ms or 0.0) - (server.mean_ms or 0.0) < 40.0


def test_tokens_of_all_steps_and_of_those_that_drafted() -> None:
    """499 tokens behind the first ones came in 362 chunks; the 117 steps that drafted kept 149 and
    added their own.
    """
    alone = observed("vllm_bench.json").acceptance
    scraped = observed("vllm_bench_metrics_before.txt", "vllm_bench_metrics_after.txt").acceptance
    for kept in (alone, scraped):
        assert kept is not None
        assert kept.steps == 362
        assert kept.tokens_per_step == pytest.approx(499 / 362)
        assert kept.tokens_per_draft == pytest.approx(266 / 117)


def test_a_result_of_sums_has_both_too() -> None:
    """1,128 tokens in 571 chunks are 1.98 a step, mean ITL over mean TPOT; drafts keep 3.01."""
    kept = observed("bench_ngram.json", folder=DATA / "live_vllm").acceptance
    assert kept is not None
    assert kept.tokens_per_step == pytest.approx(1128 / 571, rel=1e-3)
    assert kept.tokens_per_draft == pytest.approx(3.01, abs=1e-3)
    assert kept.accepted_by_position_tokens == (246, 187, 156)


def test_a_client_that_sees_chunks_together_leaves_steps_to_the_server() -> None:
    """GuideLLM has told 185 chunks apart, the server 186 outputs; 378 tokens are behind the first
    ones.
    """
    alone = observed("guidellm.json").acceptance
    together = observed(*RUNS["GuideLLM"][0]).acceptance
    assert alone is not None
    assert together is not None
    assert (alone.steps, together.steps) == (185, 186)
    assert together.tokens_per_step == pytest.approx(378 / 186)
    assert together.steps_by_accepted == (15, 16, 13, 52)


def test_an_answer_states_its_steps() -> None:
    (run,) = read_services([LIVE / "vllm_answer.json"])
    (answer,) = run
    (steps,) = answer.steps
    assert steps.accepted == (1, 1, 1, 1, 1, 0, 1, 0)
    assert steps.drafted == (1, 3, 1, 3, 1, 3, 3, 3)
    kept = joined(run).acceptance
    assert kept is not None
    assert kept.replayable
    assert (kept.drafts, kept.accepted_tokens, kept.window) == (8, 6, 3)


def test_an_answer_becomes_a_trace() -> None:
    """1, 1, 1, 1, 1, 0, 1 and 0 kept; the request has two positions for each step that kept one."""
    trace = TO_TRACE["vllm_answers"]((LIVE / "vllm_answer.json").read_text().splitlines(), None)
    assert trace.header["window"] == 3
    assert trace.run.tolist() == [0, *([1, 0] * 5), 0, 1, 0, 0]


def test_arrivals_and_lengths_of_requests() -> None:
    load = observed("vllm_bench.json").load
    assert load.arrival_rate_per_s == pytest.approx(11 / (3773.425172696 - 3770.593767413))
    assert load.asked_rate_per_s == 4.0
    assert load.ended_rate_per_s == pytest.approx(12 / 3.270266, rel=1e-5)
    assert load.prompts is not None
    assert (load.prompts.mean_tokens, load.prompts.most_tokens) == (pytest.approx(554 / 12), 61)
    assert load.in_flight_mean == pytest.approx(12 * 0.860163 / 3.270266, rel=1e-5)


def test_a_server_says_how_large_its_cache_is() -> None:
    """2,048 blocks of 128 tokens."""
    state = observed("vllm_bench_metrics_after.txt").state
    assert (state.kv_capacity_tokens, state.kv_block_tokens) == (2_048 * 128, 128)


# ---- files that are broken

PIECES = ["", "NaN", "-1", "1e999", "null", "[]", "{}", '"x"', "\n", "\x00", "99999999999999999999"]
SMALL = {
    "vllm_answer.json": (LIVE / "vllm_answer.json").read_text(),
    "bench_ngram.json": (DATA / "live_vllm" / "bench_ngram.json").read_text(),
    "metrics_after.txt": (DATA / "live_vllm" / "metrics_after.txt").read_text(),
    "profile_export.jsonl": (LIVE / "profile_export.jsonl").read_text()[:4_000],
}


@given(
    name=st.sampled_from(sorted(SMALL)),
    where=st.floats(0.0, 1.0),
    length=st.integers(0, 40),
    piece=st.sampled_from(PIECES),
)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_broken_file_is_refused_in_words_or_read(
    tmp_path: Path, name: str, where: float, length: int, piece: str
) -> None:
    """A stretch of a sound file is replaced: what comes of it is an observation that is read back
    as it was, or a fault that names the file and repeats no text of it at length.
    """
    text = SMALL[name]
    begin = int(where * len(text))
    path = tmp_path / name
    path.write_text(text[:begin] + piece + text[begin + length :])
    try:
        (services,) = read_services([path])
        seen = joined(services)
    except BadInput as error:
        assert all(name in fault.place[0] for fault in error.faults)
        assert len(str(error)) < 1_000
    else:
        assert Observed.model_validate_json(seen.model_dump_json()) == seen


def test_texts_of_prompts_and_answers_are_not_kept(tmp_path: Path) -> None:
    """Neither in what is read, nor in what is said of a file that is wrong."""
    private = "the customer's words"
    bench = json.loads((LIVE / "vllm_bench.json").read_text())
    bench["generated_texts"] = [private] * 12
    answer = json.loads((LIVE / "vllm_answer.json").read_text())
    answer["choices"][0]["text"] = private
    paths = [written(tmp_path, bench, "bench.json"), written(tmp_path, answer, "answer.json")]
    (services,) = read_services(paths)
    files = observation_files(joined(services), services)
    assert private not in str(services)
    assert private not in "".join(files.values())
    bench["ttfts"] = private
    with pytest.raises(BadInput) as raised:
        read(written(tmp_path, bench))
    assert private not in str(raised.value)


# ---- scrapes

SCRAPE = """vllm:request_success_total{{finished_reason="length"}} {0}
vllm:generation_tokens_total {1}
vllm:num_requests_running 3
vllm:num_requests_waiting {2}
vllm:kv_cache_usage_perc 0.95
vllm:prefix_cache_queries_total {1}
vllm:prefix_cache_hits_total {0}
vllm:time_to_first_token_seconds_bucket{{le="0.1"}} 0
vllm:time_to_first_token_seconds_bucket{{le="0.2"}} {0}
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {0}
vllm:time_to_first_token_seconds_sum {3}
vllm:time_to_first_token_seconds_count {0}
"""


def test_two_scrapes_are_about_the_time_between_them(tmp_path: Path) -> None:
    """From 10 to 14 requests: 4, 40 tokens, 4 of 40 looked up were found, half a second to all
    first tokens.
    """
    before = written(tmp_path, SCRAPE.format(10, 100, 0, 1.5), "before.txt")
    after = written(tmp_path, SCRAPE.format(14, 140, 8, 2.1), "after.txt")
    seen = read(before, after)
    assert (seen.load.requests, seen.load.output_tokens) == (4, 40)
    assert seen.state.hit_rate == pytest.approx(0.1)
    assert (seen.state.waiting_mean, seen.state.waiting_most) == (4.0, 8.0)
    (ttft,) = seen.times
    assert (ttft.count, ttft.mean_ms) == (4, pytest.approx(150.0))
    assert ttft.p50_ms == pytest.approx(150.0)
    assert ttft.p90_ms == pytest.approx(190.0)
    assert seen.acceptance is None
    assert seen.bottleneck.startswith("KV memory: 4 requests wait")
    whole = read(after)
    assert (whole.load.requests, whole.state.scrapes) == (14, 1)
    both = written(tmp_path, before.read_text() + after.read_text(), "both.txt")
    assert read(both).load == seen.load


def test_a_server_that_began_anew_between_scrapes_is_said(tmp_path: Path) -> None:
    before = written(tmp_path, SCRAPE.format(10, 100, 0, 1.5), "before.txt")
    after = written(tmp_path, SCRAPE.format(4, 140, 0, 2.1), "after.txt")
    with pytest.raises(BadInput, match=r"fell from 10 to 4 .* the server was started anew"):
        read(before, after)
    began = "process_start_time_seconds {}\n"
    before = written(tmp_path, began.format(5) + SCRAPE.format(10, 100, 0, 1.5), "before.txt")
    after = written(tmp_path, began.format(6) + SCRAPE.format(14, 140, 0, 2.1), "after.txt")
    with pytest.raises(BadInput, match="the server was started anew"):
        read(before, after)


def test_sglang_shows_its_state_and_a_length(tmp_path: Path) -> None:
    """Ranks that hold one model together count once, replicas each."""
    lines = ""
    for replica in (0, 1):
        for rank in (0, 1):
            labels = f'{{tp_rank="{rank}",dp_rank="{replica}"}}'
            lines += f"sglang:num_running_reqs{labels} 3\nsglang:token_usage{labels} 0.{replica}5\n"
            lines += f"sglang:spec_accept_length{labels} {'2.5' if replica == 0 else '0.0'}\n"
    lines += "sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 25\n"
    seen = read(written(tmp_path, lines, "metrics.txt"))
    assert seen.engine == "SGLang"
    assert seen.state.running_most == 6.0
    assert seen.state.kv_used_share_most == pytest.approx(0.15)
    assert seen.state.hit_rate == pytest.approx(0.25)
    assert seen.acceptance is not None
    assert seen.acceptance.tokens_per_draft == 2.5
    assert seen.acceptance.drafted_tokens is None


def test_a_busy_server_is_not_idle(tmp_path: Path) -> None:
    """No request ended meanwhile, but 40 tokens came of those that run."""
    before = written(tmp_path, SCRAPE.format(10, 100, 8, 1.5), "before.txt")
    after = written(tmp_path, SCRAPE.format(10, 140, 8, 1.5), "after.txt")
    seen = read(before, after)
    assert (seen.load.requests, seen.load.output_tokens) == (0, 40)
    assert seen.bottleneck.startswith("KV memory: 8 requests wait")


def test_requests_that_were_given_up_are_not_answered(tmp_path: Path) -> None:
    lines = 'vllm:request_success_total{finished_reason="stop"} 5\n'
    lines += 'vllm:request_success_total{finished_reason="abort"} 2\n'
    lines += 'vllm:request_success_total{finished_reason="error"} 1\n'
    load = read(written(tmp_path, lines, "metrics.txt")).load
    assert (load.requests, load.failed) == (5, 3)


@pytest.mark.parametrize(("preemptions", "said"), [(1, "Unknown"), (5, "KV memory: 5 preemptions")])
def test_few_preemptions_hold_nothing_back(tmp_path: Path, preemptions: int, said: str) -> None:
    lines = f"vllm:num_preemptions_total {preemptions}\n"
    lines += 'vllm:request_success_total{finished_reason="stop"} 100\n'
    seen = read(written(tmp_path, lines, "metrics.txt"))
    assert seen.bottleneck.startswith(said)
    assert seen.state.preemptions == preemptions


def test_counters_without_their_ending(tmp_path: Path) -> None:
    bare = SCRAPE.replace("_total", "")
    before = written(tmp_path, bare.format(10, 100, 0, 1.5), "before.txt")
    after = written(tmp_path, bare.format(14, 140, 0, 2.1), "after.txt")
    assert read(before, after).load.requests == 4
    with pytest.raises(BadInput, match="vllm:request_success fell from 14 to 10"):
        read(after, before)


def test_a_scrape_that_lacks_a_counter_is_cut(tmp_path: Path) -> None:
    """Whichever is named first: what they both count says which is later."""
    began = "process_start_time_seconds 5\n"
    whole = written(tmp_path, began + SCRAPE.format(10, 100, 0, 1.5), "whole.txt")
    content = began + SCRAPE.format(14, 140, 0, 2.1)
    cut = written(tmp_path, content[: content.index("vllm:time_to_first")], "cut.txt")
    for paths in ((whole, cut), (cut, whole)):
        with pytest.raises(BadInput, match=r"cut\.txt: lacks the counter .* is it cut\?"):
            read(*paths)


def test_the_second_scrape_of_a_file_is_cut(tmp_path: Path) -> None:
    first = SCRAPE.format(10, 100, 0, 1.5)
    second = SCRAPE.format(14, 140, 0, 2.1)
    text = first + second[: second.index("vllm:time_to_first")]
    with pytest.raises(BadInput, match=r"both\.txt: lacks the counter .* is it cut\?"):
        read(written(tmp_path, text, "both.txt"))


def test_a_file_of_two_scrapes_is_as_old_as_its_last(tmp_path: Path) -> None:
    """10 and 12 requests in one file, 14 in another: 4 passed, in whichever order."""
    began = "process_start_time_seconds 5\n"
    texts = [began + SCRAPE.format(count, 10 * count, 0, 1.5) for count in (10, 12, 14)]
    both = written(tmp_path, texts[0] + texts[1], "both.txt")
    third = written(tmp_path, texts[2], "third.txt")
    for paths in ((both, third), (third, both)):
        seen = read(*paths)
        assert (seen.load.requests, seen.state.scrapes) == (4, 3)


def sglang(tp_ranks: tuple[int, int], requests: int) -> str:
    """A scrape of two replicas, of which each has gauges of its own."""
    lines = f"sglang:prompt_tokens_total {100 * requests}\n"
    lines += f"sglang:cached_tokens_total {25 * requests}\n"
    lines += f"sglang:num_retracted_requests_total {requests}\n"
    lines += f"sglang:inter_token_latency_seconds_sum {requests}\n"
    lines += f"sglang:inter_token_latency_seconds_count {100 * requests}\n"
    for replica, rank in enumerate(tp_ranks):
        labels = f'dp_rank="{replica}",tp_rank="{rank}"'
        for priority, running in (("", 4), ("0", 3), ("1", 1)):
            lines += f'sglang:num_running_reqs{{{labels},priority="{priority}"}} {running}\n'
        lines += f"sglang:spec_accept_length{{{labels}}} {2.5 + 0.5 * replica}\n"
        lines += f"sglang:spec_num_steps{{{labels}}} 3\nsglang:cache_hit_rate{{{labels}}} 0\n"
    return lines


@pytest.mark.parametrize("tp_ranks", [(0, 0), (0, 1)])
def test_replicas_of_sglang(tmp_path: Path, tp_ranks: tuple[int, int]) -> None:
    """Each runs 4 requests, of all priorities; lengths of 2.5 and 3 have a mean, and are no sum;
    each of 200 tokens came 10 ms behind the one before it, however many came together; 25 of 100
    prompt tokens were cached, though none were when it was scraped.
    """
    before = written(tmp_path, sglang(tp_ranks, 1), "before.txt")
    after = written(tmp_path, sglang(tp_ranks, 3), "after.txt")
    seen = read(before, after)
    assert seen.state.running_most == 8.0
    assert seen.state.hit_rate == pytest.approx(0.25)
    assert seen.state.preemptions == 2
    assert seen.acceptance is not None
    assert (seen.acceptance.tokens_per_draft, seen.acceptance.window) == (2.75, 3)
    assert seen.acceptance.steps is None
    (per_token,) = seen.times
    assert (per_token.quantity, per_token.count) == ("tpot", 200)
    assert per_token.mean_ms == pytest.approx(10.0)
    assert "each token counted" in per_token.definition


def test_tensorrt_llm_counts_drafts(tmp_path: Path) -> None:
    lines = "trtllm_spec_decode_num_draft_tokens_total 300\n"
    lines += "trtllm_spec_decode_num_accepted_tokens_total 120\ntrtllm_kv_cache_hit_rate 0.5\n"
    seen = read(written(tmp_path, lines, "metrics.txt"))
    assert (seen.engine, seen.state.hit_rate) == ("TensorRT-LLM", 0.5)
    assert seen.acceptance is not None
    assert (seen.acceptance.drafted_tokens, seen.acceptance.accepted_tokens) == (300, 120)
    assert seen.acceptance.tokens_per_draft is None
    assert seen.acceptance.drafts is None


# ---- files written by hand, from the descriptions of their formats


def forward_pass(wall_s: float, prefill: int, decode: int) -> dict[str, Any]:
    scheduled = {
        "num_prefill_requests": prefill,
        "sum_prefill_tokens": 512 * prefill,
        "num_decode_requests": decode,
        "sum_decode_kv_tokens": 1_000 * decode,
    }
    waiting = {"num_prefill_requests": 2, "num_decode_requests": 0}
    return {
        "worker_id": "0",
        "dp_rank": 0,
        "wall_time": wall_s,
        "scheduled_requests": scheduled,
        "queued_requests": waiting,
    }


def test_forward_passes_have_their_times_and_what_was_in_them(tmp_path: Path) -> None:
    """A heartbeat is no pass."""
    records = [forward_pass(0.010, 0, 4), forward_pass(0.0, 0, 0), forward_pass(0.030, 1, 4)]
    path = written(tmp_path, records, "fpm.jsonl")
    (run,) = read_services([path])
    assert [each.wall_ms for each in run[0].passes] == [10.0, 30.0]
    assert [each.prefill_tokens for each in run[0].passes] == [0, 512]
    seen = joined(run)
    assert seen.times[0].mean_ms == pytest.approx(20.0)
    assert (seen.state.running_mean, seen.state.running_most) == (4.5, 5)
    assert seen.state.waiting_most == 2


def test_forward_passes_in_parquet(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "fpm.parquet"
    frame = pandas.json_normalize([forward_pass(0.010, 0, 4), forward_pass(0.030, 1, 4)])
    frame.to_parquet(path)
    assert read(path).times[0].mean_ms == pytest.approx(20.0)
    pandas.DataFrame([forward_pass(0.010, 0, 4)]).to_parquet(path)
    assert read(path).times[0].count == 1
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="Parquet"):
        read(path)


def test_iterations_of_tensorrt_llm(tmp_path: Path) -> None:
    drafting = {"numDraftTokens": 8, "numAcceptedTokens": 5, "numRequestsWithDraftTokens": 2}
    iteration = {
        "iterLatencyMS": 12.5,
        "numQueuedRequests": 1,
        "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 40, "cacheHitRate": 0.25},
        "inflightBatchingStats": {"numContextRequests": 1, "numCtxTokens": 64, "numGenRequests": 2},
        "specDecodingStats": drafting,
    }
    seen = read(written(tmp_path, [iteration, iteration], "stats.jsonl"))
    assert seen.times[0].mean_ms == pytest.approx(12.5)
    assert (seen.state.kv_used_share_most, seen.state.hit_rate) == (0.4, 0.25)
    assert seen.acceptance is not None
    assert seen.acceptance.tokens_per_draft == pytest.approx(1 + 10 / 4)


def test_answers_of_sglang_and_tensorrt_llm(tmp_path: Path) -> None:
    of_sglang: dict[str, Any] = {
        "text": "not kept",
        "meta_info": {
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "e2e_latency": 0.5,
            "spec_verify_ct": 8,
            "spec_num_correct_drafts": 12,
            "spec_num_proposed_drafts": 24,
            "spec_correct_drafts_histogram": [2, 2, 2, 2],
        },
    }
    seen = read(written(tmp_path, of_sglang))
    assert (seen.engine, seen.load.output_tokens) == ("SGLang", 20)
    assert seen.acceptance is not None
    assert seen.acceptance.accepted_by_position_tokens == (6, 4, 2)
    assert seen.acceptance.tokens_per_draft == pytest.approx(2.5)
    assert seen.acceptance.window is None
    assert "not kept" not in seen.model_dump_json()
    meta = of_sglang["meta_info"]
    meta["spec_accept_token_num"] = meta.pop("spec_num_correct_drafts")
    meta["spec_draft_token_num"] = meta.pop("spec_num_proposed_drafts")
    meta["spec_accept_histogram"] = meta.pop("spec_correct_drafts_histogram")
    assert read(written(tmp_path, of_sglang)).acceptance == seen.acceptance
    counts = {"total_draft_tokens": 9, "total_accepted_draft_tokens": 6, "num_spec_steps": 3}
    of_trtllm = {"choices": [{"text": "x", "speculative_decoding": counts}]}
    seen = read(written(tmp_path, of_trtllm))
    assert seen.engine == "TensorRT-LLM"
    assert seen.acceptance is not None
    assert seen.acceptance.tokens_per_draft == pytest.approx(3.0)


def test_a_streamed_answer_has_its_counts_in_the_last_chunk(tmp_path: Path) -> None:
    answer = json.loads((LIVE / "vllm_answer.json").read_text())
    chunk = {"choices": [{"text": ""}], "model": "target"}
    lines = [f"data: {json.dumps(part)}\n\n" for part in (chunk, chunk, answer)]
    seen = read(written(tmp_path, "".join(lines) + "data: [DONE]\n", "stream.txt"))
    assert seen.load.requests == 1
    assert seen.acceptance is not None
    assert seen.acceptance.accepted_tokens == 6


def test_chunks_that_count_up_are_one_answer(tmp_path: Path) -> None:
    """Two answers, each in three chunks with 3, 6 and 9 tokens so far."""
    of_openai = ""
    of_sglang = ""
    for place in range(6):
        number, tokens = f"answer {place % 2}", 3 * (1 + place // 2)
        chunk = {"id": number, "choices": [], "usage": {"completion_tokens": tokens}}
        of_openai += f"data: {json.dumps(chunk)}\n\n"
        meta = {"id": number, "completion_tokens": tokens, "spec_verify_ct": 1}
        of_sglang += f"data: {json.dumps({'text': '', 'meta_info': meta})}\n\n"
    for content in (of_openai, of_sglang):
        load = read(written(tmp_path, f"{content}data: [DONE]\n", "stream.txt")).load
        assert (load.requests, load.output_tokens) == (2, 18)


SGLANG_BENCH = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 4,
    "duration": 10.0,
    "completed": 2,
    "total_input_tokens": 30,
    "total_output_tokens": 40,
    "output_throughput": 4.0,
    "mean_e2e_latency_ms": 500.0,
    "mean_ttft_ms": 20.0,
    "median_ttft_ms": 19.0,
    "p99_ttft_ms": 30.0,
    "mean_tpot_ms": 5.0,
    "mean_itl_ms": 10.0,
    "accept_length": 2.2,
}


def test_a_result_of_sglang(tmp_path: Path) -> None:
    seen = read(written(tmp_path, SGLANG_BENCH))
    assert (seen.engine, seen.load.requests, seen.load.most_concurrent) == ("SGLang", 2, 4)
    assert seen.load.asked_rate_per_s is None
    assert seen.acceptance is not None
    assert seen.acceptance.tokens_per_draft == 2.2
    assert seen.times_of("e2e")[0].mean_ms == 500.0
    assert seen.times_of("itl") == ()
    assert [time.mean_ms for time in seen.times_of("tpot")] == [5.0, 10.0]
    of_trace = {**SGLANG_BENCH, "request_rate": "trace", "backend": "sglang-oai"}
    seen = read(written(tmp_path, of_trace))
    assert (seen.engine, seen.load.asked_rate_per_s) == ("SGLang", None)
    assert seen.times_of("itl")[0].mean_ms == 10.0


def test_chunks_of_sglang_are_no_steps(tmp_path: Path) -> None:
    """A chunk of two tokens behind 20 ms is written as two times of 10 ms."""
    details = {"ttfts": [0.1, 0.1], "output_lens": [3, 1], "itls": [[0.01, 0.01], []]}
    path = written(tmp_path, {**SGLANG_BENCH, **details})
    (services,) = read_services([path])
    assert [request.steps for request in services[0].requests] == [None, None]
    per_request, per_token = joined(services).times_of("tpot")
    assert (per_request.count, per_token.count) == (1, 2)


def test_a_sample_of_requests_is_not_the_run(tmp_path: Path) -> None:
    """Of 600 requests three are kept: totals, lengths and times are those that the report states,
    and the drafts of three say nothing of how many there were.
    """
    report = json.loads((LIVE / "guidellm.json").read_text())
    benchmark = report["benchmarks"][0]
    benchmark["requests"]["successful"] = benchmark["requests"]["successful"][:3]
    totals = benchmark["metrics"]["request_totals"]
    totals.update(successful=600, incomplete=7)
    (services,) = read_services([written(tmp_path, report)])
    seen = joined(services)
    assert (seen.load.requests, seen.load.incomplete) == (600, 7)
    assert seen.load.arrival_rate_per_s is None
    assert seen.load.prompts is not None
    assert (seen.load.prompts.mean_tokens, seen.load.prompt_tokens) == (40.0, 240)
    assert seen.acceptance is not None
    assert seen.acceptance.drafts is None
    assert seen.acceptance.accepted_by_position_tokens == ()
    assert seen.acceptance.tokens_per_draft is not None
    assert seen.acceptance.window == 3
    assert services[0].requests == ()


def test_requests_that_failed_arrived_too(tmp_path: Path) -> None:
    """Every other request fails: as many arrive a second as before."""
    bench = json.loads((LIVE / "vllm_bench.json").read_text())
    for place in range(0, 12, 2):
        bench["output_lens"][place] = 0
        bench["errors"][place] = "refused"
    bench.update(completed=6, failed=6)
    load = read(written(tmp_path, bench)).load
    assert load.arrival_rate_per_s == observed("vllm_bench.json").load.arrival_rate_per_s
    assert (load.requests, load.failed) == (6, 6)
    records = [
        json.loads(line) for line in (LIVE / "profile_export.jsonl").read_text().splitlines()
    ]
    records[0]["error"] = {"code": 500}
    load = read(written(tmp_path, records, "records.jsonl")).load
    assert load.arrival_rate_per_s == observed("profile_export.jsonl").load.arrival_rate_per_s
    report = json.loads((LIVE / "guidellm.json").read_text())
    benchmark = report["benchmarks"][0]
    benchmark["requests"]["errored"] = [benchmark["requests"]["successful"].pop(2)]
    benchmark["metrics"]["request_totals"].update(successful=5, errored=1)
    load = read(written(tmp_path, report)).load
    assert load.arrival_rate_per_s == observed("guidellm.json").load.arrival_rate_per_s
    assert (load.requests, load.failed) == (5, 1)
    sums = json.loads((LIVE / "profile_export_aiperf.json").read_text())
    sums["error_request_count"] = {"unit": "requests", "avg": 90.0}
    assert read(written(tmp_path, sums)).load.failed == 90


def test_any_server_may_be_asked_as_openai(tmp_path: Path) -> None:
    """That it is vLLM its own counters say; a path may be served by any name."""
    bench = json.loads((LIVE / "vllm_bench.json").read_text())
    assert read(written(tmp_path, bench)).engine == "vLLM"
    bench = {name: value for name, value in bench.items() if not name.startswith("spec_decode")}
    assert read(written(tmp_path, bench)).engine is None
    bench["model_id"] = "/models/qwen"
    path = written(tmp_path, bench)
    assert read(path).model == "qwen"
    scrapes = [LIVE / f"vllm_bench_metrics_{when}.txt" for when in ("before", "after")]
    assert read(path, *scrapes).contradictions == ()
    bench["model_id"] = "other"
    told = read(written(tmp_path, bench), *scrapes).contradictions
    assert [words.partition(":")[0] for words in told] == ["model"]


def test_several_runs_in_a_file_or_a_folder_stay_apart(tmp_path: Path) -> None:
    lines = written(tmp_path, [SGLANG_BENCH, {**SGLANG_BENCH, "completed": 3}], "runs.jsonl")
    runs = read_services([lines])
    assert [run[0].load.requests for run in runs] == [2, 3]
    with pytest.raises(BadInput, match="holds 2 runs; name it alone"):
        read_services([lines, LIVE / "vllm_answer.json"])
    sweep = tmp_path / "sweep"
    (sweep / "a").mkdir(parents=True)
    text = (DATA / "live_vllm" / "bench_ngram.json").read_text()
    for name in ("a/run=0.json", "a/run=1.json"):
        (sweep / name).write_text(text)
    (sweep / "summary.json").write_text(f"[{text}, {text}]")
    (sweep / "params.json").write_text('{"other": 1}')
    runs = read_services([sweep])
    assert [run[0].file for run in runs] == ["a/run=0.json", "a/run=1.json"]


def test_guidellm_in_yaml(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    report = json.loads((LIVE / "guidellm.json").read_text())
    path = written(tmp_path, yaml.safe_dump(report), "benchmarks.yaml")
    assert read(path).load == observed("guidellm.json").load


def test_files_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    bench = json.loads((LIVE / "vllm_bench.json").read_text())
    bench["total_output_tokens"] = 510
    path = written(tmp_path, bench)
    scrapes = [LIVE / f"vllm_bench_metrics_{when}.txt" for when in ("before", "after")]
    said = "output tokens: 510 in own.json, 511 in vllm_bench_metrics_before.txt, "
    assert read(path, *scrapes).contradictions == (f"{said}vllm_bench_metrics_after.txt",)


def test_what_is_not_held_names_what_adds_it() -> None:
    alone = {
        part.remedy for part in observed("bench_ngram.json", folder=DATA / "live_vllm").not_held
    }
    assert "vllm bench serve --save-detailed" in alone
    assert "a scrape of /metrics before and after" in alone
    assert "vllm serve --per-request-spec-decode-metrics detailed, and its answers" in alone
    assert observed(*RUNS["GuideLLM"][0]).not_held == ()
