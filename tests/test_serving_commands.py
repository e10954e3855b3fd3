"""Scripts that serve the answer of a plan, in full: every option of every program."""

from __future__ import annotations

import pytest

from simulator.scenario import load
from simulator.studies.plan.commands import ENGINES

VLLM = (
    "vLLM 0.25: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: "
    "015a47e1), engine arguments; read 2026-11"
)
SGLANG = (
    "SGLang: docs/advanced_features/server_arguments.md (sgl-project/sglang 004813e1) and "
    "speculative_decoding.md (067ad4d); read 2026-11"
)
LLAMA_CPP = (
    "llama.cpp: tools/server/README.md (ggml-org/llama.cpp 00dc8057); before builds of 2026 "
    "--spec-draft-n-max was --draft-max; read 2026-11"
)
PREFILLS_FIRST = "{policy: {name: prefill_first, max_requests: 8}}"
CHUNKED = (
    "{policy: {name: chunked_prefill, max_requests: 8, chunk_tokens: 512}, memory: "
    "{prefix_caching: false}, replicas: 3}"
)
MIXTURE = (
    "weights: fp8, kv_cache: fp8, model: qwen3_30b_a3b, experts: whole, tensor_parallel: 2, "
    "link: nvlink_h100"
)
# a line that ends in ~ goes on in the next
SCRIPTS = {
    ("vllm", "vllm_chain", "weights: bf16, model: vicuna_7b", PREFILLS_FIRST): rf"""
# 1 replica; option names: {VLLM}
vllm serve lmsys/vicuna-7b-v1.3 --tensor-parallel-size 1 \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 2048 \
    --speculative-config '{{"method": "draft_model", "model": "Jiayi-Pan/Tiny-Vicuna-1B", ~
"draft_tensor_parallel_size": 1, "num_speculative_tokens": 4, ~
"num_speculative_tokens_per_batch_size": [[1, 3, 4], [4, 8, 2]]}}'
""",
    ("vllm", "autoregressive", MIXTURE, CHUNKED): rf"""
# each of 3 replicas; option names: {VLLM}
vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2 --enable-expert-parallel \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 ~
--quantization fp8 --kv-cache-dtype fp8 \
    --enable-chunked-prefill --max-num-batched-tokens 512 --no-enable-prefix-caching
""",
    ("sglang", "sglang_chain", "weights: q4_0, model: vicuna_7b", PREFILLS_FIRST): rf"""
# 1 replica; option names: {SGLANG}
# take a checkpoint in q4_0
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 ~
--chunked-prefill-size -1 \
    --speculative-algorithm STANDALONE --speculative-draft-model-path Jiayi-Pan/Tiny-Vicuna-1B \
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
""",
    ("sglang", "sglang_eagle", "weights: bf16, model: vicuna_7b", CHUNKED): rf"""
# each of 3 replicas; option names: {SGLANG}
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 --dtype bfloat16 \
    --disable-radix-cache --chunked-prefill-size 512 --enable-mixed-chunk \
    --speculative-algorithm EAGLE --speculative-draft-model-path some/head \
    --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
""",
    ("sglang", "autoregressive", MIXTURE, PREFILLS_FIRST): rf"""
# 1 replica; option names: {SGLANG}
python3 -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 2 --ep-size 2 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 ~
--quantization fp8 --kv-cache-dtype fp8_e4m3 --chunked-prefill-size -1
""",
    ("llama_cpp", "sglang_chain", "weights: fp16, kv_cache: int8, model: vicuna_7b", CHUNKED): rf"""
# each of 3 replicas; option names: {LLAMA_CPP}
# take a checkpoint in fp16
llama-server -m vicuna-7b-v1.3.gguf -md Tiny-Vicuna-1B.gguf -np 8 -c 16384 -ngl all ~
--cache-type-k q8_0 --cache-type-v q8_0 \
    --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0
""",
    ("llama_cpp", "autoregressive", "weights: fp16, model: vicuna_7b", PREFILLS_FIRST): rf"""
# 1 replica; option names: {LLAMA_CPP}
# take a checkpoint in fp16
llama-server -m vicuna-7b-v1.3.gguf -np 8 -c 16384 -ngl all
""",
}


@pytest.mark.parametrize(("engine", "strategy", "placed", "serving"), SCRIPTS)
def test_a_script_has_every_option(engine: str, strategy: str, placed: str, serving: str) -> None:
    called = "llama_cpp_cuda" if engine == "llama_cpp" else engine
    device = f"machine: server, device: h100_sxm, engine: {called}"
    settings = [
        f"strategy={strategy}",
        f"target={{{device}, {placed}}}",
        f"draft={{{device}, weights: bf16, model: tiny_vicuna_1b}}",
        "acceptance={rate: 0.7}",
        (
            "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 1000, "
            "output_tokens: 200}"
        ),
        f"serving={serving}",
    ]
    if strategy == "autoregressive":
        settings[2:4] = ["draft=null", "acceptance={always: 0}"]
    scenario = load("vanilla_llama_2_7b_a100", settings).scenario
    ranges = [[1, 3, 4], [4, 8, 2]] if strategy.endswith("chain") else None
    head = "some/head" if strategy == "sglang_eagle" else ""
    script = ENGINES[engine].script(scenario, ranges, head)
    expected = SCRIPTS[engine, strategy, placed, serving].replace("~\n", "")
    assert f"\n{script}" == expected


def test_stages_and_cached_prefixes_have_options() -> None:
    """Stages are those of a pipeline; prefixes are looked up in a log that has their hashes."""
    stages = load("pipeline_llama_3_1_70b_8x3090").scenario
    assert " --pipeline-parallel-size 8 " in (ENGINES["vllm"].script(stages) or "")
    assert " --pp-size 8 " in (ENGINES["sglang"].script(stages) or "")
    memory = stages.serving.memory.model_copy(update={"prefix_caching": True})
    serving = stages.serving.model_copy(update={"memory": memory})
    cached = stages.replace(serving=serving)
    assert " --enable-prefix-caching\n" in (ENGINES["vllm"].script(cached) or "")
    assert "--disable-radix-cache" not in (ENGINES["sglang"].script(cached) or "")


def test_no_script_is_written_for_what_a_program_cannot_do() -> None:
    lookahead = load(
        "vanilla_llama_2_7b_a100", ["strategy=lookahead", "draft=null", "acceptance={rate: 0.7}"]
    ).scenario
    assert all(program.script(lookahead) is None for program in ENGINES.values())
    assert ENGINES["vllm"].script(load("durations_only").scenario) is None
