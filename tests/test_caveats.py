"""Every caveat and every caution word by word, and scenarios of which it is said."""

from __future__ import annotations

import pytest

from simulator.scenario import caveats as module, load
from simulator.scenario.caveats import cautions, caveats

BATCHED = ["requests.concurrency=4", "requests.count=800"]
ARRIVALS = [
    "requests={count: 8, arrivals: {name: poisson, rate_per_s: 1}}",
    "serving={policy: {name: prefill_first, max_requests: 4}}",
]
SHIPPED = "vanilla_llama_2_7b_a100"
MANY = ["strategy.gamma=16", "requests={concurrency: 400, count: 400, prompt_tokens: 8}"]
FALLING = (
    "acceptance={tokens_per_step: 2.5, window: 4, by_context: {tokens_per_step: {1000: 2.5, "
    "2000: 2.2, 4000: 1.6}, source: a table, confidence: published}}"
)
MOVING = (
    "acceptance={tokens_per_step: 2.5, window: 4, adaptive: {name: moving, start: 2, up: 1, "
    "down: 1}}"
)
TRACE = "trace: six_flavours_greedy"
JITTER = (
    "target.pipeline.between.jitter={name: exponential, mean_us: {value: 30, source: pinged, "
    "confidence: measured}}"
)
SAID = [
    (
        "durations_only",
        ["strategy.gamma=40", "requests.output_tokens=8"],
        "a window of 40 draft tokens is longer than any output behind its first token, 7 at most: "
        "what lies beyond the end is drafted and verified for nothing",
    ),
    (
        SHIPPED,
        [FALLING, "requests.prompt_tokens=3000"],
        "acceptance falls with the context (measured from 1,000 to 4,000 tokens; a table, "
        "published): behind 3,192 1.84 tokens a step are left of 2.48 (1.76 to 1.91, 80 %)",
    ),
    (
        "mtp_qwen3_5_27b_h100",
        [],
        "48 layers of the target have a recurrence, timed by other kernels of h100_sxm (assumed)",
    ),
    (
        "eagle3_gpt_oss_120b_h100",
        [],
        "18 layers of the target have sliding attention, timed by other kernels of h100_sxm "
        "(assumed)",
    ),
    (
        SHIPPED,
        ["target.weights=q4_0"],
        "a100_80g_sxm has no curve for products in q4_0 of the target: it takes that of 16 bits",
    ),
    (
        SHIPPED,
        ["target.weights=q4_0", "target.engine=llama_cpp_cuda"],
        "a100_80g_sxm has no curve for products in q4_0 of the target: several rows cost what "
        "engine llama_cpp_cuda says",
    ),
    (
        "eagle3_gpt_oss_120b_h100",
        ["target.expert_weights=q4_0"],
        "h100_sxm has no curve for experts in q4_0 of the target: they take that of another format",
    ),
    (
        SHIPPED,
        MANY,
        "products of 6,800 rows are outside what was measured on a100_80g_sxm: 512 rows at most",
    ),
    (
        "vanilla_qwen3_32b_a100",
        ["target.device.peak_tflops=10"],
        "a target's pass of one row comes out bound by compute on a100_80g_sxm (it is billed for "
        "8 rows): check peak_tflops, compute_efficiency and tile_tokens of its products",
    ),
    (
        "mirror_qwen3_32b_a100",
        ["acceptance={rate: 0.5, overlap: 0.7}"],
        "no recording says what a pass of the draft with 2 streams writes: one token a stream is "
        "taken",
    ),
    (
        "traffic_specpipe_llama_3_1_8b_4xa100",
        [],
        "the law is no equality here (upper bound: full levels of all requests in every step, also "
        "of those that refill)",
    ),
    (
        "traffic_mirror_llama_3_1_8b_4xa100",
        [],
        "a replay follows one replica, and there are several: the simulation stands in its "
        "column; pictures show the first replica, busy shares are means over all",
    ),
    (
        "durations_only",
        ARRIVALS,
        "the law is taken at the mean batch that the simulation saw, and with replayed means at "
        "every batch it saw",
    ),
    (
        "durations_only",
        BATCHED,
        "the law is about steps; what admissions of other requests cost in between is left out of "
        "it",
    ),
    (
        "specpipe_llama_3_1_70b_two_servers",
        [JITTER],
        "links jitter: drawn for every transfer in the simulation, at its mean in law and replay",
    ),
    (
        "durations_only",
        ARRIVALS,
        "stated durations are taken for the whole batch, whatever its size",
    ),
    (
        "durations_only",
        BATCHED,
        "stated durations are taken for the whole batch of 4, whatever its size",
    ),
    (
        SHIPPED,
        [],
        "acceptance is a stand-in: recorded from a target of 4,820,704 parameters and a draft of "
        "639,616 parameters, not from the models of this scenario",
    ),
    (
        SHIPPED,
        ["acceptance={tokens_per_step: 2.5}"],
        "acceptance is re-scaled from 3.28 recorded to 2.5 tokens a step (not stated, assumed); "
        "the bursts stay as recorded",
    ),
    (
        SHIPPED,
        [MOVING],
        "acceptance is re-scaled from 2.73 recorded to 2.5 tokens a step with windows that move "
        "(moving) (not stated, assumed); the bursts stay as recorded",
    ),
    (
        SHIPPED,
        ["acceptance={tokens_per_step: {code: 2.5, maths: 3}}"],
        "acceptance is re-scaled by kind of text to code 2.5, maths 3 tokens a step (not stated, "
        "assumed); the bursts stay as recorded",
    ),
    (
        SHIPPED,
        ["requests.count=1200"],
        "1,200 requests replay 120 recordings, which are dealt out again from the first",
    ),
    (
        "durations_only",
        [f"acceptance={{{TRACE}, drafter: eagle}}"],
        "outputs of up to 255 tokens after the first go round in recordings of 191 and more "
        "positions",
    ),
    (
        "durations_only",
        [f"acceptance={{{TRACE}, drafter: eagle}}"],
        "acceptance is that of the drafter 'eagle'; drafting is priced as the strategy or the "
        "durations state it",
    ),
    (
        SHIPPED,
        [],
        "acceptance is that of the drafter 'plain'; drafting is priced as tinyllama_1_1b",
    ),
    (
        SHIPPED,
        [f"acceptance={{{TRACE}, stand_in: true, drafter: best_of, best_of: [eagle, ngram]}}"],
        "acceptance is that of the drafter 'best_of'; drafting is priced as tinyllama_1_1b, in "
        "series with what the strategy states beside it; any other drafter as if it ran only where "
        "it is best",
    ),
    (
        SHIPPED,
        [],
        "acceptance was recorded behind contexts of up to 256 tokens, the requests reach 320: it "
        "may fall with the context (acceptance.by_context)",
    ),
    (
        SHIPPED,
        ["acceptance.temperature=0.5"],
        "the mean is of temperature 0.5, the bursts were recorded at 0",
    ),
    (
        "mirror_qwen3_32b_a100",
        ["strategy.exit_layer=0.4"],
        "the trace has no exit at 0.400 of the depth; the recorded one at 0.500 stands in",
    ),
]


@pytest.mark.few(10)
@pytest.mark.parametrize(("scenario", "sets", "sentence"), SAID)
def test_what_is_said_of_a_scenario(scenario: str, sets: list[str], sentence: str) -> None:
    loaded = load(scenario, sets)
    said = [*cautions(loaded.scenario), *caveats(loaded, loaded.acceptance())]
    assert sentence in said


def test_little_is_said_of_stated_durations() -> None:
    loaded = load("durations_only", ["requests.count=8"])
    assert [*cautions(loaded.scenario), *caveats(loaded, loaded.acceptance())] == []


def test_steps_in_flight_are_not_replayed() -> None:
    sentence = (
        "steps are in flight together, which a replay does not follow; the simulation stands in "
        "its column"
    )
    loaded = load("specpipe_one_at_a_time_llama_3_1_70b_8x3090")
    assert sentence not in caveats(loaded, loaded.acceptance())
    piped = load("pipeline_llama_3_1_70b_8x3090")
    assert sentence in caveats(piped, piped.acceptance())


def test_many_tasks_are_counted_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = ["requests=mixed_tasks", "serving.policy={name: chunked_prefill}"]
    loaded = load("vanilla_qwen3_32b_a100", changes)
    named = [text for text in caveats(loaded, loaded.acceptance()) if "of task '" in text]
    monkeypatch.setattr(module, "NAMED", 1)
    said = list(caveats(loaded, loaded.acceptance()))
    sentence = f"requests of {len(named)} tasks replay the recordings of theirs, over and over"
    assert len(named) > 1
    assert sentence in said
    assert not set(named) & set(said)


def test_weights_in_another_format_than_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(SHIPPED)
    assert loaded.trace
    sentence = "acceptance was recorded with weights in float32, the target's are in fp16"
    recorded = loaded.trace.header["models"]["target"]
    for dtype, differs in (("float16", False), ("float32", True)):
        monkeypatch.setitem(recorded, "dtype", dtype)
        assert (sentence in caveats(loaded, loaded.acceptance())) == differs
