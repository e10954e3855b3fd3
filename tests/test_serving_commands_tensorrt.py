"""Files that serve with TensorRT-LLM, in full, and what it is not asked for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from simulator.scenario import Scenario, load
from simulator.studies.plan.commands.apart import why_no_command
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.commands.tensorrt import CONFIGURATION, FILE

PROGRAM = ENGINES["tensorrt_llm"]
PLACE = "machine: server, device: h100_sxm, engine: tensorrt_llm"
REQUESTS = (
    "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 1000, "
    "output_tokens: 200}"
)
WHOLE = "{policy: {name: prefill_first, max_requests: 8}}"


def scenario(strategy: str, target: str, *more: str, place: str = PLACE) -> Scenario:
    """A scenario of eight places on H100."""
    settings = [
        f"strategy={strategy}",
        "draft=null",
        f"target={{{place}, {target}}}",
        "acceptance={rate: 0.7}",
        REQUESTS,
        f"serving={WHOLE}",
        *more,
    ]
    if strategy == "autoregressive":
        settings[3] = "acceptance={always: 0}"
    return load("vanilla_llama_2_7b_a100", settings).scenario


def fields(of: Scenario, ranges: list[list[int]] | None = None, head: str = "") -> Any:
    """What its file says."""
    return yaml.safe_load(PROGRAM.files(of, ranges, head)[CONFIGURATION])


VICUNA = "model: vicuna_7b, weights: bf16"
DRAFT = f"draft={{{PLACE}, model: tiny_vicuna_1b, weights: bf16}}"


def test_both_files_in_full() -> None:
    written = PROGRAM.files(scenario("vllm_chain", VICUNA, DRAFT), [[1, 2, 4], [3, 8, 2]])
    source = PROGRAM.source
    assert written == {
        FILE: f"""\
# for 1 replica, on 1 x h100_sxm with TensorRT-LLM 1.4.0rc4: sh tensorrt_llm.sh
# option names: {source}
# checkpoint: lmsys/vicuna-7b-v1.3, computed in bf16
# draft: Jiayi-Pan/Tiny-Vicuna-1B, computed in bf16
# it reads tensorrt_llm.yaml beside it; older versions call --config --extra_llm_api_options
# free_gpu_memory_fraction is of what the weights leave: weights and cache take 0.9 of a device
trtllm-serve serve lmsys/vicuna-7b-v1.3 --config tensorrt_llm.yaml
""",
        CONFIGURATION: f"""\
# read by tensorrt_llm.sh; for TensorRT-LLM 1.4.0rc4
# field names: {source}
tensor_parallel_size: 1
dtype: bfloat16
max_batch_size: 8
max_num_tokens: 2048
max_seq_len: 2048
enable_chunked_prefill: false
kv_cache_config:
  free_gpu_memory_fraction: 0.877
cuda_graph_config:
  enable_padding: true
  max_batch_size: 8
disable_overlap_scheduler: true
speculative_config:
  decoding_type: Draft_Target
  max_draft_len: 4
  speculative_model: Jiayi-Pan/Tiny-Vicuna-1B
  draft_len_schedule:
    2: 4
    8: 2
""",
    }


def test_the_share_of_free_memory_is_that_of_the_scenario() -> None:
    one = scenario("autoregressive", VICUNA)
    (group,) = one.device_groups
    whole_gb = group.limit_gb / 0.9
    assert one.target is not None
    assert whole_gb == pytest.approx(one.target.device.memory_gb.value)
    free_gb = whole_gb - group.weights_gb
    share = fields(one)["kv_cache_config"]["free_gpu_memory_fraction"]
    assert 0 <= group.limit_gb - group.weights_gb - share * free_gb < 0.001 * free_gb


def test_a_mixture_with_whole_experts_an_fp8_cache_and_chunks() -> None:
    chunks = (
        "serving={policy: {name: chunked_prefill, max_requests: 16, chunk_tokens: 8}, memory: "
        "{prefix_caching: false, kv_tokens: 50000}}"
    )
    mixture = (
        "model: qwen3_30b_a3b, weights: fp8_block, kv_cache: fp8, experts: whole, tensor_parallel: "
        "2, link: nvlink_h100"
    )
    one = scenario("autoregressive", mixture, chunks)
    read = fields(one)
    assert "trtllm-serve serve Qwen/Qwen3-30B-A3B-FP8 " in (PROGRAM.script(one) or "")
    assert read["tensor_parallel_size"] == read["moe_expert_parallel_size"] == 2
    assert "dtype" not in read
    assert (read["max_batch_size"], read["max_num_tokens"]) == (8, 8)
    assert read["enable_chunked_prefill"] is True
    cache = read["kv_cache_config"]
    assert (cache["dtype"], cache["enable_block_reuse"], cache["max_tokens"]) == (
        "fp8",
        False,
        50_000,
    )


def test_requests_are_dealt_to_ranks_with_whole_attention() -> None:
    name = "mtp_deepseek_v3_8xh200_data_parallel"
    settings = ["target.engine=tensorrt_llm", "serving.policy.max_requests=64"]
    one = load(name, settings).scenario
    read = fields(one)
    assert read["tensor_parallel_size"] == 8
    assert read["enable_attention_dp"] is True
    assert read["max_batch_size"] == 8
    assert read["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 1}
    assert "# versions before 1.3 read num_nextn_predict_layers" in (PROGRAM.script(one) or "")


def test_eagle_3_has_a_head_and_may_have_a_tree() -> None:
    """Of 59 tokens in five levels of ten choices, as TensorRT-LLM bounds it, 50."""
    tree = scenario("eagle_3", VICUNA)
    assert fields(tree, head="some/head")["speculative_config"] == {
        "decoding_type": "Eagle3",
        "max_draft_len": 5,
        "speculative_model": "some/head",
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": 10,
        "max_total_draft_tokens": 50,
    }
    assert "levels has 50 tokens at most" in (PROGRAM.script(tree, None, "some/head") or "")
    latents = "model: deepseek_v3, weights: fp8_block, tensor_parallel: 8, link: nvlink_h100"
    h200 = PLACE.replace("h100", "h200")
    chained = scenario("eagle_3", latents, place=h200)
    assert "use_dynamic_tree" not in fields(chained)["speculative_config"]
    assert "# drafts are chains here" in (PROGRAM.script(chained) or "")
    chain = fields(scenario("vllm_eagle_3", VICUNA), head="some/head")
    assert chain["speculative_config"] == {
        "decoding_type": "Eagle3",
        "max_draft_len": 3,
        "speculative_model": "some/head",
    }
    assert "disable_overlap_scheduler" not in chain


def test_a_lookup_searches_its_own_request() -> None:
    read = fields(scenario("vllm_ngram", VICUNA))
    assert read["disable_overlap_scheduler"] is True
    assert read["speculative_config"] == {
        "decoding_type": "NGram",
        "max_draft_len": 5,
        "is_public_pool": False,
    }


def test_lengths_by_batch_size_begin_with_the_most() -> None:
    one = scenario("vllm_chain", VICUNA, DRAFT)
    growing = [[1, 2, 1], [3, 8, 4]]
    assert "draft_len_schedule" not in fields(one, growing)["speculative_config"]
    assert fields(one, growing)["speculative_config"]["max_draft_len"] == 4
    assert "# no draft lengths by batch size" in (PROGRAM.script(one, growing) or "")


def test_awq_has_to_be_that_of_modelopt() -> None:
    one = scenario("autoregressive", "model: qwen3_8b, weights: int4")
    assert "TensorRT-LLM reads AWQ of ModelOpt alone" in (PROGRAM.script(one) or "")


@pytest.mark.parametrize(
    ("strategy", "target", "place", "why"),
    [
        ("eagle_1", VICUNA, PLACE, "TensorRT-LLM 1.4.0rc4 has no options for eagle_1"),
        (
            "autoregressive",
            VICUNA,
            "device: mi300x, engine: tensorrt_llm",
            "TensorRT-LLM runs on devices of NVIDIA alone, not on mi300x",
        ),
    ],
)
def test_what_it_does_not_serve_is_said_and_not_written(
    strategy: str, target: str, place: str, why: str
) -> None:
    one = scenario(strategy, target, place=place)
    assert why_no_command(one) == why
    assert PROGRAM.files(one) == {}


def test_it_does_not_speculate_over_stages_nor_offload() -> None:
    stages = load("pipeline_llama_3_1_70b_8x3090", ["target.engine=tensorrt_llm"]).scenario
    assert fields(stages)["pipeline_parallel_size"] == 8
    offload = ["target.engine=tensorrt_llm"]
    away = load("offload_qwen3_30b_a3b_rtx_4060_ti_8g", offload).scenario
    assert "on another device" in why_no_command(away)
    assert PROGRAM.files(away) == {}


def test_other_engines_say_why_too() -> None:
    sglang = PLACE.replace("tensorrt_llm", "sglang")
    assert why_no_command(scenario("lookahead", VICUNA, place=sglang)) == (
        "SGLang 0.5.23 has no options for lookahead"
    )
    transformers = PLACE.replace("tensorrt_llm", "hf_eager")
    assert why_no_command(scenario("autoregressive", VICUNA, place=transformers)) == (
        "no options of hf_eager are known"
    )
    assert why_no_command(load("durations_only").scenario) == (
        "no options of stated durations are known"
    )
