"""What engines log about acceptance, line by line, and the rates or the mean that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.core.acceptance.continuation import continued
from simulator.core.acceptance.sources import Rates
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.inputs.traces import summaries
from simulator.inputs.traces.summaries import TO_RATES


def block(
    form: str, text: str, window: int | None = None, series: str | None = None
) -> dict[str, object]:
    """What a text becomes; a scenario takes it as it is."""
    made = dict(TO_RATES[form](text.splitlines(), window, series))
    AcceptanceSpec.model_validate(made)
    return made


SCRAPE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="a b"}} {0}
vllm:spec_decode_num_drafts_created{{engine="0",model_name="a b"}} 1.78e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="a b"}} 3000.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="a b"}} 1660.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="a b",position="0"}} {1}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="a b",position="1"}} {2}
vllm:spec_decode_num_accepted_tokens_per_pos_created{{engine="0",model_name="a b",position="0"}} \
1.78e+09
"""


def test_vllm_counters_by_position() -> None:
    """710 and 530 of 1,000 windows keep positions 0 and 1: 0.71, then 530 / 710; engines of a
    server are summed.
    """
    first = SCRAPE.format("1000.0", "710.0", "530.0")
    assert block("vllm_metrics", first)["per_position"] == pytest.approx([0.71, 530 / 710])
    second = SCRAPE.format("500", "90", "0").replace('engine="0"', 'engine="1"')
    assert block("vllm_metrics", first + second)["per_position"] == pytest.approx(
        [800 / 1500, 530 / 800]
    )


def test_two_scrapes_are_about_the_time_between_them() -> None:
    text = SCRAPE.format("1000.0", "710.0", "530.0") + SCRAPE.format("1100.0", "770.0", "550.0")
    assert block("vllm_metrics", text)["per_position"] == pytest.approx([0.6, 1 / 3])


def test_counters_are_continued_to_a_wider_window() -> None:
    rates = block("vllm_metrics", SCRAPE.format("1000.0", "710.0", "530.0"), window=6)[
        "per_position"
    ]
    assert isinstance(rates, list)
    assert rates[:2] == pytest.approx([0.71, 530 / 710])
    assert Rates(tuple(rates)).odds(6, None).committed() == pytest.approx(
        continued((1.71, 2.24), 6)[-1], abs=1e-9
    )


def test_sglang_log_server_and_benchmark() -> None:
    log = (
        "Decode batch, #running-req: 1, #token: 41, token usage: 0.01, accept len: 2.00, accept "
        "rate: 0.50, #queue-req: 0\n"
        "Prefill batch, #new-seq: 1\n"
        "Decode batch. #running-req: 3, #token: 99, token usage: 0.01, accept len: 3.00, accept "
        "rate: 0.75, #queue-req: 0\n"
    )
    made = block("sglang", log, window=3)
    assert (made["tokens_per_step"], made["window"], made["confidence"]) == (
        pytest.approx(2.75),
        3,
        "measured",
    )
    info = '{"speculative_num_steps": 5, "internal_states": [{"avg_spec_accept_length": 3.21}]}'
    assert {key: block("sglang", info)[key] for key in ("tokens_per_step", "window")} == {
        "tokens_per_step": 3.21,
        "window": 5,
    }
    assert (
        block("sglang", '{"accept_length": 2.5, "duration": 3}', window=4)["tokens_per_step"] == 2.5
    )


SERVER = """\
prompt eval time =     648.99 ms /   133 tokens (    4.88 ms per token,   204.94 tokens per second)
       eval time =   30387.12 ms /  2048 tokens (   14.84 ms per token,    67.40 tokens per second)
      total time =   31036.11 ms /  2181 tokens
draft acceptance rate = 0.98260 ( 1186 accepted /  1207 generated)
"""
PROGRAM = (
    "n_draft   = 16\nn_predict = 200\nn_drafted = 180\nn_accept  = 120\naccept    = "
    "66.667%\neval time = 9.0 ms / 80 runs\n"
)


def test_llama_cpp_counts_steps_as_predicted_less_accepted() -> None:
    """2,048 tokens of which 1,186 were drafted: 862 steps, however many of them drafted nothing."""
    made = block("llama_cpp", SERVER, window=8)
    assert made["tokens_per_step"] == pytest.approx(2048 / 862)
    assert (
        made["source"]
        == "llama.cpp: 2,048 predicted, 1,207 drafted, 1,186 accepted, 862 steps" + BEHIND
    )
    assert block("llama_cpp", SERVER + SERVER, window=8)["tokens_per_step"] == pytest.approx(
        2048 / 862
    )
    assert block("llama_cpp", PROGRAM, window=16)["tokens_per_step"] == pytest.approx(2.5)
    share = block("llama_cpp", SERVER.splitlines()[-1], window=3)
    assert (share["accepted_share"], share["window"]) == (pytest.approx(1186 / 1207), 3)


BATCHED = """\
main: n_kv_max = 16384, n_batch = 2048, n_ubatch = 512

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    1 |    256 |    0.108 |  1186.64 |    3.079 |    41.57 |    3.187 |    80.32 |
|   512 |    128 |    1 |    640 |    0.383 |  1335.19 |    3.102 |    41.26 |    3.486 |   183.60 |
|   512 |    128 |    8 |   5120 |    3.064 |  1336.68 |    4.480 |   228.57 |    7.544 |   678.69 |
"""


def test_llama_batched_bench_is_a_table_of_costs() -> None:
    """4.480 s for 128 passes over eight rows: 35 ms each; 3.064 s for eight prompts of 512
    tokens.
    """
    made = dict(TO_RATES["llama_batched_bench"](BATCHED.splitlines(), None, None))
    cost = StatedCost(StatedDurations.model_validate(made))
    assert cost.target(Rows.decode(1, 800, 8)).wall_s == pytest.approx(4.480 / 128)
    assert cost.target(Rows.decode(1, 100, 1)).wall_s == pytest.approx(3.102 / 128)
    assert cost.prefill("target", Rows.prefill(512)).wall_s == pytest.approx(0.383)
    assert cost.prefill("target", Rows.prefill(4096)).wall_s == pytest.approx(3.064)
    with pytest.raises(BadInput, match="two batches B or more"):
        TO_RATES["llama_batched_bench"](BATCHED.splitlines()[:5], None, None)


BATCHED_ROW = (
    "|   {} |    {} |    {} |    256 |    0.200 |  1186.64 |    {} |    41.57 |    3.187 |    "
    "80.32 |\n"
)


def test_llama_batched_bench_takes_the_longest_prompt_that_several_batches_have() -> None:
    """One pass over a row takes 2 s / 4, over eight 6 s / 4; the cache held but one prompt of 512
    tokens.
    """
    made = [(128, 4, 1, "2.000"), (128, 4, 8, "6.000"), (512, 4, 1, "2.500")]
    assert TO_RATES["llama_batched_bench"](
        [BATCHED_ROW.format(*row) for row in made], None, None
    ) == {
        "target_ms": {"columns": ["rows", "ms"], "points": [[1, 500], [8, 1500]]},
        "prefill_ms": {"columns": ["rows", "ms"], "points": [[128, 200], [1024, 200]]},
    }


@pytest.mark.parametrize(
    "rows",
    [
        [(128, 4, 1, "2.0"), (512, 4, 1, "2.0")],
        [(128, 0, 1, "0.0"), (128, 0, 8, "0.0")],
        [(0, 4, 1, "2.0"), (0, 4, 8, "6.0")],
    ],
    ids=["one batch each", "prompts alone", "tokens alone"],
)
def test_llama_batched_bench_needs_two_batches_of_prompts_and_tokens(
    rows: list[tuple[int, int, int, str]],
) -> None:
    with pytest.raises(BadInput, match="two batches B or more of one prompt PP, and of tokens TG"):
        TO_RATES["llama_batched_bench"]([BATCHED_ROW.format(*row) for row in rows], None, None)


def test_llama_cpp_counts_no_steps_where_a_request_lacks_its_predicted_tokens() -> None:
    """50 and 30 of 200 drafted tokens were accepted; 100 predicted tokens are those of the first
    request alone.
    """
    first = (
        "eval time = 9.0 ms / 100 tokens (\ndraft acceptance = 0.50 (50 accepted / 100 generated)\n"
    )
    second = "draft acceptance = 0.30 (30 accepted / 100 generated)\n"
    made = block("llama_cpp", first + second, 8)
    assert (made["accepted_share"], made.get("tokens_per_step")) == (pytest.approx(0.4), None)


def test_llama_cpp_takes_no_drafter_without_a_draft() -> None:
    line = (
        "statistics ngram: #gen drafts = 0, #acc drafts = 0, #gen tokens = 9, #acc tokens = 0, "
        "#acc rate/pos = (0.0, 0.0)\n"
    )
    with pytest.raises(BadInput, match="no speculative-decoding counters"):
        block("llama_cpp", line)


INFERENCEX = (
    "# key = num_speculative_tokens\nglm-5.2-fp8:\n  thinking_on:\n    1: 1.84\n    2: 2.50\n   "
    " 3: 2.99\n"
)
OFF = "  thinking_off:\n    1: 1.90\n    2: 2.70\n"


def test_golden_curves_as_inferencex_writes_them() -> None:
    assert block("golden_lengths", INFERENCEX) == {
        "per_position": pytest.approx([0.84, 0.66 / 0.84, 0.49 / 0.66])
    }
    assert block("golden_lengths", INFERENCEX + OFF, series="thinking_off") == {
        "per_position": pytest.approx([0.9, 8 / 9])
    }
    longer = block("golden_lengths", INFERENCEX + OFF, 8, "glm-5.2-fp8 thinking_on")["per_position"]
    assert isinstance(longer, list)
    assert Rates(tuple(longer)).odds(8, None).committed() == pytest.approx(4.06, rel=0.01)


MISTAKES = [
    (
        "vllm_metrics",
        "",
        None,
        (
            "no speculative-decoding counters in this file; is speculation switched on? Expected "
            "vllm:spec"
        ),
    ),
    (
        "vllm_metrics",
        SCRAPE.format("0", "0", "0"),
        None,
        "vllm:spec_decode_num_drafts_total is 0, nothing was drafted",
    ),
    (
        "vllm_metrics",
        SCRAPE.format("1e", "0", "0"),
        None,
        ":3:0: expected a number from 0 to 1e+18, found '1e'",
    ),
    ("vllm_metrics", SCRAPE.format("10", "11", "0"), None, "rates from 0 to 1 that fall"),
    (
        "sglang",
        '{"accept_length": 2.5}',
        None,
        "holds no window: expected --window, the draft steps served with",
    ),
    ("sglang", '{"accept_length": 2.5}', 1, "at window 1 it lies between 1 and 2"),
    (
        "llama_cpp",
        SERVER,
        None,
        "holds no window: expected --window, the draft tokens of a step (the server's --draft-max",
    ),
    (
        "llama_cpp",
        "n_drafted = 1\nn_accept = 2",
        3,
        "expected at most n_drafted = 1 accepted tokens, got 2",
    ),
    (
        "golden_lengths",
        INFERENCEX + OFF,
        None,
        "one of: glm-5.2-fp8 thinking_on, glm-5.2-fp8 thinking_off",
    ),
    ("golden_lengths", "m: {2: 1.8, 3: 2.0}", None, "it holds no curve by window 1, 2, 3"),
    ("golden_lengths", "m: [", None, "not valid YAML"),
    ("golden_lengths", "m: {1: 1.8, 2: 1.2}", None, "rates from 0 to 1 that fall"),
]


@pytest.mark.parametrize(
    ("form", "text", "window", "expected"), MISTAKES, ids=[text for *_, text in MISTAKES]
)
def test_summaries_that_are_wrong(form: str, text: str, window: int | None, expected: str) -> None:
    with pytest.raises(BadInput) as error:
        block(form, text, window)
    assert any(expected in str(fault) for fault in error.value.faults)


def test_every_summary_has_its_function() -> None:
    assert {getattr(summaries, name) for name in TO_RATES} == set(TO_RATES.values())


# ---- a count that is missing is unknown, one that is 0 was counted

BEHIND = "; drafts kept behind the end of an output count"
DATA = Path(__file__).parent / "data"
REQUEST = (
    "slot print_timing: id  1 | task 0 | draft acceptance = 0.5 ({:5d} accepted / {:5d} "
    "generated), mean acceptance length = {:5.2f}, acceptance rate per position = ({})\n"
)


@pytest.mark.parametrize("file", ["timing.log", "stats.log"])
def test_llama_cpp_says_rates_by_position_and_so_the_window(file: str) -> None:
    """167 of 259 kept; 80.5, 63.2 and 48.3 % of the drafts keep three positions: given those before
    0.805, 0.785, 0.764.
    """
    made = block("llama_cpp", (DATA / "llama_cpp" / file).read_text())
    assert made == {
        "per_position": pytest.approx([0.805, 0.632 / 0.805, 0.483 / 0.632]),
        "source": (
            "llama.cpp: 259 drafted, 167 accepted (0.645), mean length 2.92; steps that drafted "
            "nothing are not counted"
        )
        + BEHIND,
        "confidence": "measured",
    }


def test_llama_cpp_weighs_requests_by_their_drafts() -> None:
    """100 drafts keep (0.8, 0.2), 300 keep (0.4, 0.4): together 0.5 and 0.35."""
    made = block(
        "llama_cpp",
        REQUEST.format(100, 200, 2.0, "0.800, 0.200")
        + REQUEST.format(240, 600, 1.8, "0.400, 0.400"),
    )
    assert made["per_position"] == pytest.approx([0.5, 0.7])
    with pytest.raises(BadInput, match="expected counts behind the share"):
        block(
            "llama_cpp",
            REQUEST.format(100, 200, 2.0, "0.8")
            + "draft acceptance = 0.5, as a later wording may have it",
        )


@pytest.mark.parametrize("window", [1, 2])
def test_llama_cpp_keeps_no_more_than_a_window(window: int) -> None:
    """50 of 100 drafts at 1.5 kept a draft, and 90 of 100 at 2.7, which no window below 3 holds;
    140 in 66.7 at 3.
    """
    line = "draft acceptance = 0.5 ({} accepted / 100 generated), mean acceptance length = {}\n"
    log = line.format(50, "2.50") + line.format(90, "3.70")
    with pytest.raises(BadInput, match=f"a draft keeps 2.70 tokens .* at least 3, got {window}"):
        block("llama_cpp", log, window)
    assert block("llama_cpp", log, 3)["tokens_per_step"] == pytest.approx(3.1)


def test_llama_cpp_counts_steps_that_drafted_nothing() -> None:
    """A request of 301 tokens, the first by its prompt, 100 accepted: 200 steps, of which 100
    drafted and kept (0.8, 0.2).
    """
    line = (
        "       eval time =   30387.12 ms /   301 tokens (   14.84 ms per token,    67.40 "
        "tokens per second)\n"
    )
    made = block("llama_cpp", line + REQUEST.format(100, 200, 2.0, "0.800, 0.200"))
    assert made["per_position"] == pytest.approx([0.4, 0.25])
    assert made["source"] == (
        (
            "llama.cpp: 200 drafted, 100 accepted (0.500), mean length 2.00; 100 of 200 steps "
            "drafted, which the first rate counts"
        )
        + BEHIND
    )


@pytest.mark.parametrize(
    ("file", "window", "expected"),
    [
        ("l2.log", 3, {"accepted_share": 171 / 297, "window": 3}),
        ("l3.log", 3, {"accepted_share": 171 / 297, "window": 3}),
        ("l4.log", 3, {"tokens_per_step": 1 + 140 / (50 / 1.5 + 90 / 2.7), "window": 3}),
    ],
)
def test_llama_cpp_in_its_new_wording(file: str, window: int, expected: dict[str, float]) -> None:
    made = block("llama_cpp", (DATA / "llama_cpp" / file).read_text(), window)
    assert {key: made.get(key) for key in expected} == pytest.approx(expected)


def test_a_zero_that_was_counted_is_zero() -> None:
    kept_none = "draft acceptance = 0.00000 (    0 accepted /   297 generated)"
    assert block("llama_cpp", kept_none, 3)["accepted_share"] == 0.0
    random_draft = (DATA / "live_vllm" / "bench_draft_model.json").read_text()
    assert block("vllm_bench", random_draft)["per_position"] == [0.0, 0.0, 0.0]


def test_a_running_vllm_says_the_same_in_its_counters_and_in_its_benchmark() -> None:
    """293 drafts keep 246, 187 and 156 tokens at their positions: 3.01 tokens a draft."""
    folder = DATA / "live_vllm"
    scrapes = "".join((folder / f"metrics_{when}.txt").read_text() for when in ("before", "after"))
    made = block("vllm_metrics", scrapes)
    assert made["per_position"] == pytest.approx([246 / 293, 187 / 246, 156 / 187])
    assert (
        made["source"]
        == "/metrics: 293 drafts, 589 tokens accepted; steps that drafted nothing are not counted"
        + BEHIND.replace(";", ",")
    )
    assert block("vllm_bench", (folder / "bench_ngram.json").read_text())[
        "per_position"
    ] == pytest.approx(made["per_position"])
    assert Rates(tuple(made["per_position"])).odds(3, None).committed() == pytest.approx(
        3.01, abs=0.001
    )


def test_vllm_without_counters_by_position_has_a_mean() -> None:
    lines = [line for line in SCRAPE.format("1000", "0", "0").splitlines() if "per_pos" not in line]
    made = block("vllm_metrics", "\n".join(lines), 3)
    assert (made["accepted_share"], made["window"]) == (pytest.approx(1660 / 3000), 3)


TRTLLM = (
    'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 300.0\n'
    'trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 120.0\n'
    'trtllm_speculative_config_info{spec_method="Eagle3",spec_num_tokens="3"} 1.0\n'
)


def test_tensorrt_llm_counts_draft_tokens() -> None:
    made = block("trtllm", TRTLLM)
    assert (made["accepted_share"], made["window"]) == (pytest.approx(0.4), 3)
    stats = '{"specDecodingStats": {"numDraftTokens": 3, "numAcceptedTokens": 2}}\n'
    assert block("trtllm", stats * 2, 3)["accepted_share"] == pytest.approx(2 / 3)


def without(text: str, word: str) -> str:
    """A text without the lines that hold a word."""
    return "".join(line for line in text.splitlines(keepends=True) if word not in line)


VLLM_LINE = (
    "SpecDecoding metrics: Mean acceptance length: 2.3, Accepted: 9 tokens, Drafted: 300 tokens"
)
IDLE = "Decode batch, #running-req: 1, #token: 41, accept len: 0.00, #queue-req: 0\n"
SCRAPED = SCRAPE.format("1000.0", "710.0", "530.0")
LACKING = [
    (
        "llama_cpp",
        "n_drafted = 180\nn_predict = 200\n",
        8,
        "the count n_accept is missing; acceptance is unknown",
    ),
    (
        "llama_cpp",
        "n_accept = 120\nn_predict = 200\n",
        8,
        "the count n_drafted is missing; acceptance is unknown",
    ),
    (
        "llama_cpp",
        SERVER.splitlines()[1],
        8,
        "no speculative-decoding counters in this file; is speculation switched on?",
    ),
    ("llama_cpp", "draft acceptance = 0.5\n", 8, "expected counts behind the share"),
    (
        "vllm_metrics",
        without(SCRAPED, "accepted_tokens"),
        3,
        "per_pos_total are missing; acceptance is unknown",
    ),
    (
        "vllm_metrics",
        without(SCRAPED, "num_drafts"),
        None,
        "vllm:spec_decode_num_drafts_total is missing",
    ),
    (
        "vllm_metrics",
        without(SCRAPED, 'position="0"'),
        None,
        '{position="0"} is missing; acceptance is unknown',
    ),
    ("vllm_metrics", without(SCRAPED, "per_pos"), None, "the window is unknown: expected --window"),
    (
        "vllm_metrics",
        SCRAPED + SCRAPE.format("100.0", "71.0", "53.0"),
        None,
        "the server was started anew",
    ),
    (
        "vllm_metrics",
        SCRAPED + without(SCRAPED, 'position="1"'),
        None,
        "stands in one of several scrapes",
    ),
    (
        "vllm_metrics",
        SCRAPED * 2 + SCRAPED[:240],
        None,
        "stands in 2 of 3 scrapes; is one cut off?",
    ),
    ("vllm_log", VLLM_LINE, None, ":1:0: 'Per-position acceptance rate: 0.800, 0.500' is missing"),
    (
        "vllm_log",
        "INFO 11-25 Avg generation throughput: 9.9 tokens/s\n",
        None,
        "no speculative-decoding counters in this file",
    ),
    (
        "vllm_log",
        VLLM_LINE.replace("300", "0"),
        None,
        "every interval of this log drafted 0 tokens",
    ),
    ("vllm_bench", '{"completed": 24}', None, "no speculative-decoding counters in this file"),
    (
        "vllm_bench",
        '{"spec_decode_num_drafts": 9}',
        None,
        "spec_decode_per_position_acceptance_rates, a list of rates, is",
    ),
    (
        "sglang",
        IDLE,
        3,
        "every accept length in this file is 0, as of a server that is idle; acceptance is unknown",
    ),
    ("sglang", 'sglang:spec_accept_length{model_name="m"} 0.0\n', 3, "acceptance is unknown"),
    ("sglang", "Prefill batch, #new-seq: 1\n", 3, "no speculative-decoding counters in this file"),
    (
        "trtllm",
        without(TRTLLM, "accepted"),
        None,
        "the number of accepted tokens, trtllm_spec_decode_num_accepted_tokens_total",
    ),
    (
        "trtllm",
        without(TRTLLM, "draft_tokens"),
        None,
        "the number of draft tokens, trtllm_spec_decode_num_draft_tokens_total",
    ),
]


@pytest.mark.parametrize(
    ("form", "text", "window", "expected"),
    LACKING,
    ids=[f"{form}: {text}" for form, *_, text in LACKING],
)
def test_a_count_that_is_missing_is_unknown(
    form: str, text: str, window: int | None, expected: str
) -> None:
    with pytest.raises(BadInput) as error:
        block(form, text, window)
    assert any(expected in str(fault) for fault in error.value.faults)


def test_an_idle_sglang_is_left_out_of_the_mean() -> None:
    made = block("sglang", IDLE * 3 + IDLE.replace("0.00", "2.50"), 3)
    assert made["tokens_per_step"] == pytest.approx(2.5)
    assert made["source"] == "SGLang, 1 value of accept length, 3 of an idle server left out"
