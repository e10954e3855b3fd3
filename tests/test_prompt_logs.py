"""Logs as users have them: prompts without an answer, requests that are all too long, times and a
rate beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CONTEXT = 131_072


def written(folder: Path, rows: list[tuple[float, int, int]], ending: str = "csv") -> Path:
    path = folder / f"log.{ending}"
    if ending == "csv":
        path.write_text(
            "arrival,prompt,output\n"
            + "".join(f"{at},{prompt},{output}\n" for at, prompt, output in rows)
        )
    else:
        names = ("arrival", "prompt", "output")
        path.write_text(
            "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        )
    return path


def asked(log: Path, *words: str) -> Result:
    command = [
        "plan",
        "--model",
        MODEL,
        "--device",
        "h100_sxm",
        "--traffic",
        str(log),
        "--ttft-p95",
        "1s",
        "--draws",
        "1",
    ]
    return CliRunner().invoke(main, [*command, *words])


def found(log: Path, *words: str) -> dict[str, Any]:
    done = asked(log, "--json", *words)
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


PROMPTS = [(place / 2, 4_000, 1) for place in range(12)]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_prompts_alone_have_a_plan_without_drafts(tmp_path: Path, ending: str) -> None:
    answer = found(written(tmp_path, PROMPTS, ending))
    assert {family["strategy"] for family in answer["families"]} == {"plain"}
    assert answer["answer"]["measured_ms"]["TTFT p95"] == pytest.approx(103, rel=0.05)
    assert answer["answer"]["tpot_ms"] is None
    assert answer["break_even"] is None
    said = " ".join(asked(written(tmp_path, PROMPTS, ending), "--long").output.split())
    assert (
        "Not measured: time per token (TPOT), as no output has a second token; drafts are of no "
        "use there."
    ) in said
    assert "ngram: left out, as no output has a second token that could be drafted" in said


def test_one_prompt_is_enough_and_one_that_is_answered_measures_its_tokens(tmp_path: Path) -> None:
    assert found(written(tmp_path, PROMPTS[:1]))["answer"]["kept"]
    mixed = found(written(tmp_path, [*PROMPTS, (6.0, 4_000, 8)]))
    assert mixed["answer"]["tpot_ms"] > 0.0
    assert len({family["strategy"] for family in mixed["families"]}) > 1


def test_a_limit_on_tokens_that_nobody_waits_for_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = asked(written(tmp_path, PROMPTS), "--tpot-p95", "20ms")
    assert done.exit_code == 3
    assert "so no limit can be held; leave the limit out" in done.stderr


def test_a_run_of_prompts_alone_is_refused_and_their_capacity_is_not(tmp_path: Path) -> None:
    log = written(tmp_path, PROMPTS)
    policy = ["--set", "serving.policy={name: prefill_first, max_requests: 8}"]
    traffic = ["--set", f"requests={{arrivals: {{name: file, format: log, file: {log}}}}}"]
    done = CliRunner().invoke(main, ["run", "vanilla_qwen3_32b_a100", *policy, *traffic])
    assert done.exit_code == 2
    assert (
        "nothing would be decoded. specsim plan and specsim capacity say how long its prompts wait"
        in done.stderr
    )
    command = [
        "capacity",
        "vanilla_qwen3_32b_a100",
        *policy,
        "--traffic",
        f"log:{log}",
        "--search",
        "20",
    ]
    (one,) = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["capacities"]
    assert one["offered"]["ttft_p50_ms"] > 0.0
    assert one["offered"]["tpot_p50_ms"] is None
    assert CliRunner().invoke(main, command).exit_code == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(0.0, 200_000, 10), (1.0, 200_000, 20)], "all 2 requests are longer than"),
        ([(0.0, CONTEXT - 1, 2)], "its request is longer than"),
        ([(0.0, 4_000, 140_000), (2.0, 4_000, 140_000)], "all 2 requests are longer than"),
    ],
)
def test_a_log_of_requests_that_are_all_too_long_is_refused_with_the_limit(
    tmp_path: Path, rows: list[tuple[float, int, int]], words: str
) -> None:
    log = written(tmp_path, rows)
    done = asked(log)
    shortest = min(prompt + output for _, prompt, output in rows)
    assert done.exit_code == 2
    assert (
        f"{words} the model's context of 131,072 tokens: the shortest has {shortest:,}"
        in done.stderr
    )


def test_one_that_is_too_long_among_others_is_left_out_and_said(tmp_path: Path) -> None:
    rows = [*PROMPTS, (7.0, 200_000, 1)]
    said = " ".join(asked(written(tmp_path, rows), "--long").output.split())
    assert "1 requests of more than 131,072 tokens left out" in said


def test_a_run_of_requests_that_are_all_too_long_names_no_remedy_that_leaves_none(
    tmp_path: Path,
) -> None:
    log = written(tmp_path, [(0.0, 50_000, 10), (1.0, 60_000, 10)])
    arrivals = f"{{name: file, format: log, file: {log}}}"
    words = [
        "--set",
        "serving.policy={name: chunked_prefill, max_requests: 8}",
        "--set",
        f"requests={{arrivals: {arrivals}}}",
    ]
    done = CliRunner().invoke(main, ["run", "vanilla_qwen3_32b_a100", *words])
    assert done.exit_code == 2
    assert (
        "all 2 requests are longer than the context of qwen3_32b of 40,960 tokens: the shortest "
        "has 50,010"
    ) in done.stderr
    assert "drop_above_tokens" not in done.stderr


TALK = [
    {"role": "user", "content": "Tell me a story about a fox"},
    {"role": "assistant", "content": "Once upon a time there was a fox who lived in a wood."},
]


def test_a_rate_beside_times_stretches_them(tmp_path: Path) -> None:
    talks = [
        {"timestamp": f"2024-04-09T00:00:{at:02}", "conversation": TALK, "turn": 1}
        for at in (0, 5, 9, 30)
    ]
    log = tmp_path / "talks.jsonl"
    log.write_text("".join(f"{json.dumps(talk)}\n" for talk in talks))
    done = asked(log, "--rate", "2", "--long")
    assert done.exit_code == 0, done.output
    assert "talks.jsonl: its times are stretched to 2 a second in the mean, as stated" in " ".join(
        done.output.split()
    )
    one = tmp_path / "one.jsonl"
    one.write_text(f"{json.dumps(talks[0])}\n")
    assert asked(one, "--rate", "2").exit_code == 0


def test_a_remedy_for_times_that_no_rate_spreads_works(tmp_path: Path) -> None:
    log = written(tmp_path, [(0.0, 100, 5)] * 3)
    done = asked(log, "--rate", "2", "--long")
    assert done.exit_code == 2
    assert (
        "has 3 requests at one time, which no rate spreads; leave rate_per_s (--rate) out"
        in done.stderr
    )
    assert asked(log).exit_code == 0
