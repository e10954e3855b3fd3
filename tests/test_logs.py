"""Logs as people have them: every kind is read into the same requests, and a log that cannot be
read says what is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from simulator.core.faults import BadInput
from simulator.core.serving.load.traffic import TrafficFile
from simulator.inputs.logs import picture, read_log
from simulator.scenario import load

SHARED = Path(__file__).parents[2] / "shared"
EXPECTED = [(0.0, 100, 20), (1.0, 50, 10), (2.5, 70, 30)]
"""Arrival (s), prompt and output of the requests that every log below holds."""


def table(head: str, *rows: str) -> str:
    return "\n".join([head, *rows]) + "\n"


def records(*values: dict[str, Any]) -> str:
    return "\n".join(json.dumps(value) for value in values)


def test_a_part_of_a_mooncake_log_counts_milliseconds_too(tmp_path: Path) -> None:
    """Its times begin later than 0; hashes called as Mooncake calls them tell its unit."""
    part = tmp_path / "part.jsonl"
    lines = [
        {"timestamp": at, "input_length": 600, "output_length": 9, "hash_ids": [1, at]}
        for at in (27_000, 30_000, 33_500)
    ]
    part.write_text(records(*lines))
    assert [at for _, at, *_ in read_log(str(part), {}).requests] == [0.0, 3.0, 6.5]
    for line in lines:
        del line["hash_ids"]
    part.write_text(records(*lines) + "\n")
    assert [at for _, at, *_ in read_log(str(part), {}).requests] == [0.0, 3_000.0, 6_500.0]


HEAD = "ts,input_tokens,output_tokens"
NAMES = {"prompt": "prompt_tokens", "output": "completion_tokens"}


def usage(
    created: float, prompt: int, output: int, words: dict[str, str] = NAMES
) -> dict[str, Any]:
    return {
        "id": "x",
        "created": created,
        "usage": {
            words["prompt"]: prompt,
            words["output"]: output,
            "total_tokens": prompt + output,
        },
    }


FINISH = (
    "[2026-01-02 03:04:{0} TP0] Finish: obj=GenerateReqInput(rid='1'), out={{'meta_info': "
    "{{'id': 'a', 'prompt_tokens': {1}, 'completion_tokens': {2}, 'cached_tokens': 0, "
    "'e2e_latency': {3}}}}}"
)
LOGS = {
    "iso.csv": table(
        "ts,input_tokens,output_tokens",
        "2026-01-02T03:04:05Z,100,20",
        "2026-01-02T04:04:06+01:00,50,10",
        "2026-01-02 03:04:07.5,70,30",
    ),
    "unsorted.csv": table(
        "time,prompt_tokens,completion_tokens", "7.5,70,30", "5,100,20", "6,50,10"
    ),
    "epoch.csv": table(
        "created,prompt_len,output_len",
        "1767323045,100,20",
        "1767323046,50,10",
        "1767323047.5,70,30",
    ),
    "epoch_ms.csv": table(
        "request_time,n_prompt,n_output",
        "1767323045000,100,20",
        "1767323046000,50,10",
        "1767323047500,70,30",
    ),
    "unit.csv": table("arrival_ms,tokens_in,tokens_out", "500,100,20", "1500,50,10", "3000,70,30"),
    "rest.csv": table(
        "arrived_at,num_prefill_tokens,total_tokens", "5,100,120", "6,50,60", "7.5,70,100"
    ),
    "tabs.tsv": table(
        "start_time\tinput_length\toutput_length", "5\t100\t20", "6\t50\t10", "7.5\t70\t30"
    ),
    "openai.jsonl": records(usage(5, 100, 20), usage(6, 50, 10), usage(7.5, 70, 30)),
    "responses.jsonl": records(
        *(
            usage(*one, {"prompt": "input_tokens", "output": "output_tokens"})
            for one in ((5, 100, 20), (6, 50, 10), (7.5, 70, 30))
        )
    ),
    "batch.jsonl": records(
        *(
            {"custom_id": "a", "response": {"status_code": 200, "body": usage(*one)}}
            for one in ((5, 100, 20), (6, 50, 10), (7.5, 70, 30))
        )
    ),
    "list.json": json.dumps([usage(5, 100, 20), usage(6, 50, 10), usage(7.5, 70, 30)]),
    "inside.json": json.dumps({"data": [usage(5, 100, 20), usage(6, 50, 10), usage(7.5, 70, 30)]}),
    "vllm_bench.json": json.dumps(
        {
            "date": "x",
            "input_lens": [70, 100, 50],
            "output_lens": [30, 20, 10],
            "start_times": [7.5, 5.0, 6.0],
            "errors": ["", "", ""],
        }
    ),
    "sglang.log": table(
        "server started",
        FINISH.format("07.000", 50, 10, 1.0),
        "noise",
        FINISH.format("08,000", 100, 20, 3.0),
        FINISH.format("09", 70, 30, 1.5),
    ),
}


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_kind_of_log_holds_the_same_requests(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LOGS[name])
    log = read_log(str(tmp_path / name), {})
    assert log.timed
    assert [request[2:4] for request in log.requests] == [row[1:] for row in EXPECTED]
    assert [request[1] for request in log.requests] == pytest.approx([row[0] for row in EXPECTED])


def test_a_parquet_file_is_read_or_says_what_it_needs(tmp_path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        with pytest.raises(BadInput, match=r"needs the extra 'parquet': pip install"):
            read_log(str(tmp_path / "a.parquet"), {})
        return
    pq.write_table(
        pa.table(
            {"ts": [5.0, 6.0, 7.5], "input_tokens": [100, 50, 70], "output_tokens": [20, 10, 30]}
        ),
        tmp_path / "a.parquet",
    )
    assert [
        request[1:4] for request in read_log(str(tmp_path / "a.parquet"), {}).requests
    ] == EXPECTED


def test_conversations_are_requests_whose_prompt_is_all_before(tmp_path: Path) -> None:
    turns = [("human", "a" * 40), ("gpt", "b" * 80), ("human", "c" * 8), ("gpt", "d" * 21)]
    (tmp_path / "sharegpt.json").write_text(
        json.dumps(
            [{"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}]
        )
    )
    log = read_log(str(tmp_path / "sharegpt.json"), {})
    assert [(prompt, output) for _, _, prompt, output, _ in log.requests] == [
        (10, 20),
        (10 + 20 + 2, 6),
    ]
    assert (log.timed, log.counted) == (False, "tokens counted as 4 characters each")
    timeless = TrafficFile(format="log", file=str(tmp_path / "sharegpt.json"))
    with pytest.raises(BadInput, match=r"has no times of arrival; state rate_per_s \(--rate\)"):
        list(timeless.lines())
    timed = list(timeless.model_copy(update={"rate_per_s": 2.0}).lines())
    assert timed == list(timeless.model_copy(update={"rate_per_s": 2.0}).lines())
    assert timed[0].arrival_s == 0.0 < timed[1].arrival_s


def test_names_in_several_words_are_known(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(table("Arrival Time,Input Tokens,output-tokens", "0,100,20", "2,60,5"))
    log = read_log(str(path), {})
    assert log.requests == ((2, 0.0, 100, 20, ""), (3, 2.0, 60, 5, ""))
    assert log.columns["prompt"] == "Input Tokens"


def test_named_columns_go_before_known_ones_and_failures_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        table(
            "ts,asked,input_tokens,output_tokens,kind",
            "1,9,100,20,chat",
            "2,8,50,,chat",
            "3,7,60,0,code",
            "4,6,70,5,code",
        )
    )
    log = read_log(str(path), {"prompt": "asked", "task": "kind"})
    assert log.requests == ((2, 0.0, 9, 20, "chat"), (5, 3.0, 6, 5, "code"))
    assert log.skipped == 2
    assert "prompt from 'asked'" in log.words[0]
    assert "2 records without prompt or output left out" in log.words[0]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (
            "a.csv",
            table(HEAD, "1,5,6", "x,5,6"),
            "a.csv:3:1: ts: expected a time: ISO 8601, or a number, got 'x'",
        ),
        (
            "a.csv",
            table(HEAD, "1,5.5,6"),
            "a.csv:2:1: input_tokens: expected a whole number of tokens, got '5.5'",
        ),
        (
            "a.csv",
            table(HEAD, "1,-5,6"),
            "a.csv:2:1: input_tokens: expected a whole number of tokens, got '-5'",
        ),
        (
            "a.csv",
            table("ts,foo", "1,5"),
            "it has ts, foo; name them, as in --columns prompt=COLUMN,output=COLUMN",
        ),
        ("a.csv", table(HEAD), "holds no request with a prompt and an output"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl:2:1: cannot be read as jsonl"),
        ("a.json", "[]", "no column is known as prompt or output tokens; it has nothing"),
        ("a.csv", "", "cannot be read as csv"),
    ],
)
def test_a_log_that_cannot_be_read_says_what_is_wrong(
    tmp_path: Path, name: str, text: str, fault: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput) as error:
        read_log(str(tmp_path / name), {})
    assert fault in str(error.value)


def test_columns_and_a_rate_are_for_logs_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are for format: log"):
        TrafficFile(format="csv", file="a.csv", columns={"arrival": "ts"})


def test_times_of_a_log_are_stretched_to_a_stated_rate(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("arrival,prompt,output\n" + "".join(f"{at},10,5\n" for at in (0, 1, 5, 10)))
    log = TrafficFile(format="log", file=str(path), rate_per_s=3.0)
    assert [line.arrival_s for line in log.lines()] == pytest.approx([0.0, 0.1, 0.5, 1.0])
    path.write_text("arrival,prompt,output\n7,10,5\n")
    assert [line.arrival_s for line in log.lines()] == [0.0]
    path.write_text("arrival,prompt,output\n7,10,5\n7,10,5\n")
    with pytest.raises(
        BadInput,
        match=r"has 2 requests at one time, which no rate spreads; leave rate_per_s \(--rate\) out",
    ):
        list(log.lines())


@given(st.lists(st.floats(0, 1e6), min_size=1).map(lambda times: sorted([0.0, *times, 1e6])))
def test_a_picture_has_a_bar_for_every_interval_and_none_is_lost(arrivals: list[float]) -> None:
    drawn = picture(arrivals)
    assert len(drawn) == 32
    assert max(drawn) == "█"
    assert drawn[0] != "▁" != drawn[-1]


def test_a_scenario_reads_a_log_and_a_changed_one_anew(tmp_path: Path) -> None:
    path = tmp_path / "iso.csv"
    path.write_text(LOGS["iso.csv"])
    arrivals = f"requests={{arrivals: {{name: file, format: log, file: {path}}}}}"
    settings = [arrivals, "serving={policy: {name: prefill_first, max_requests: 4}}"]
    assert load("vanilla_llama_2_7b_a100", settings).scenario.requests.count == 3
    path.write_text(LOGS["iso.csv"] + "2026-01-02 03:04:09,70,30\n")
    assert load("vanilla_llama_2_7b_a100", settings).scenario.requests.count == 4


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded traces are not here")
@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("azure", "azure_llm_2023/AzureLLMInferenceTrace_code.csv"),
        ("mooncake", "mooncake_fast25/synthetic_trace.jsonl"),
    ],
)
def test_recorded_traces_are_recognised_as_their_own_formats_read_them(
    form: Any, file: str
) -> None:
    path = SHARED / "data" / file
    own = [line[1:4] for line in TrafficFile(format=form, file=str(path)).lines()]
    known = [line[1:4] for line in TrafficFile(format="log", file=str(path)).lines()]
    assert [line[1:] for line in known] == [line[1:] for line in own]
    assert [line[0] for line in known] == pytest.approx([line[0] for line in own], abs=1e-6)


def test_times_since_1970_have_no_digits_of_rounding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(table(HEAD, "2026-03-02T09:00:00.260,5,6", "2026-03-02T09:00:00.564,5,6"))
    assert [line.arrival_s for line in TrafficFile(format="log", file=str(path)).lines()] == [
        0.0,
        0.304,
    ]
