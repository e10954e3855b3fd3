"""Scripts that serve the answer of a plan, in full: every option of every program."""

from __future__ import annotations

import pytest

from simulator.scenario import load
from simulator.studies.plan.commands.engines import ENGINES

VLLM = (
    "docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: 015a47e1), "
    "docs/cli/serve; read 2026-11"
)
SGLANG = (
    "docs/advanced_features/server_arguments.md (sgl-project/sglang 004813e1) and "
    "speculative_decoding.md (067ad4d); read 2026-11"
)
LLAMA_CPP = (
    "tools/server/README.md (ggml-org/llama.cpp 00dc8057); before builds of 2026 "
    "--spec-draft-n-max was --draft-max; read 2026-11"
)
GGUF = "(convert_hf_to_gguf.py, llama-quantize)"
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
# for 1 replica, on 1 x h100_sxm with vLLM 0.32: sh vllm.sh
# option names: {VLLM}
# checkpoint: lmsys/vicuna-7b-v1.3, computed in bf16
# draft: Jiayi-Pan/Tiny-Vicuna-1B, computed in bf16
vllm serve lmsys/vicuna-7b-v1.3 --tensor-parallel-size 1 \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 2048 \
    --speculative-config '{{"method": "draft_model", "model": "Jiayi-Pan/Tiny-Vicuna-1B", ~
"draft_tensor_parallel_size": 1, "num_speculative_tokens": 4, ~
"num_speculative_tokens_per_batch_size": [[1, 3, 4], [4, 8, 2]]}}'
""",
    ("vllm", "autoregressive", MIXTURE, CHUNKED): rf"""
# for each of 3 replicas, on 2 x h100_sxm with vLLM 0.32: sh vllm.sh
# option names: {VLLM}
# checkpoint: Qwen/Qwen3-30B-A3B, quantised to fp8 as it is loaded (--quantization fp8)
vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2 --enable-expert-parallel \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 ~
--quantization fp8 --kv-cache-dtype fp8 \
    --enable-chunked-prefill --max-num-batched-tokens 512 --no-enable-prefix-caching
""",
    ("sglang", "sglang_chain", "weights: q4_0, model: vicuna_7b", PREFILLS_FIRST): rf"""
# for 1 replica, on 1 x h100_sxm with SGLang 0.5.23: sh sglang.sh
# option names: {SGLANG}
# checkpoint: none in q4_0 is known here; put its name in the place of lmsys/vicuna-7b-v1.3
# draft: Jiayi-Pan/Tiny-Vicuna-1B, computed in bf16
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 ~
--chunked-prefill-size -1 \
    --speculative-algorithm STANDALONE --speculative-draft-model-path Jiayi-Pan/Tiny-Vicuna-1B \
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
""",
    ("sglang", "sglang_eagle", "weights: bf16, model: vicuna_7b", CHUNKED): rf"""
# for each of 3 replicas, on 1 x h100_sxm with SGLang 0.5.23: sh sglang.sh
# option names: {SGLANG}
# checkpoint: lmsys/vicuna-7b-v1.3, computed in bf16
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 --dtype bfloat16 \
    --disable-radix-cache --chunked-prefill-size 512 --enable-mixed-chunk \
    --speculative-algorithm EAGLE --speculative-draft-model-path some/head \
    --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
""",
    ("sglang", "autoregressive", MIXTURE, PREFILLS_FIRST): rf"""
# for 1 replica, on 2 x h100_sxm with SGLang 0.5.23: sh sglang.sh
# option names: {SGLANG}
# checkpoint: Qwen/Qwen3-30B-A3B, quantised to fp8 as it is loaded (--quantization fp8)
python3 -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 2 --ep-size 2 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 ~
--quantization fp8 --kv-cache-dtype fp8_e4m3 --chunked-prefill-size -1
""",
    ("llama_cpp", "sglang_chain", "weights: fp16, kv_cache: int8, model: vicuna_7b", CHUNKED): rf"""
# for each of 3 replicas, on 1 x h100_sxm with llama.cpp 00dc8057: sh llama_cpp.sh
# option names: {LLAMA_CPP}
# checkpoint: vicuna-7b-v1.3.gguf, lmsys/vicuna-7b-v1.3 in fp16 {GGUF}
# draft: Tiny-Vicuna-1B.gguf, Jiayi-Pan/Tiny-Vicuna-1B in bf16 {GGUF}
llama-server -m vicuna-7b-v1.3.gguf -md Tiny-Vicuna-1B.gguf -np 8 -c 16384 -ngl all ~
--cache-type-k q8_0 --cache-type-v q8_0 \
    --spec-type draft-simple --spec-draft-n-max 4 --spec-draft-n-min 0 --spec-draft-p-min 0
""",
    ("llama_cpp", "autoregressive", "weights: fp16, model: vicuna_7b", PREFILLS_FIRST): rf"""
# for 1 replica, on 1 x h100_sxm with llama.cpp 00dc8057: sh llama_cpp.sh
# option names: {LLAMA_CPP}
# checkpoint: vicuna-7b-v1.3.gguf, lmsys/vicuna-7b-v1.3 in fp16 {GGUF}
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


def script(engine: str, name: str, *settings: str, head: str = "") -> str:
    """The script of a shipped scenario."""
    written = ENGINES[engine].script(load(name, list(settings)).scenario, None, head)
    assert written is not None
    return written


PLACE = "machine: server, device: h100_sxm, engine: vllm"
REQUESTS = (
    "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 1000, "
    "output_tokens: 200}"
)


def drafted(target: str, draft: str, serving: str = PREFILLS_FIRST) -> list[str]:
    """Settings of a draft model on the GPUs of its target."""
    return [
        "strategy=vllm_chain",
        f"target={{{PLACE}, {target}}}",
        f"draft={{{PLACE}, {draft}}}",
        "acceptance={rate: 0.7}",
        REQUESTS,
        f"serving={serving}",
    ]


def test_a_draft_of_vllm_has_the_degree_of_its_target() -> None:
    """vLLM 0.32 refuses another one, and a draft of another vocabulary unless it is told."""
    sharded = "model: qwen2_5_72b, weights: bf16, tensor_parallel: 4, link: nvlink_h100"
    written = script(
        "vllm", "vanilla_llama_2_7b_a100", *drafted(sharded, "weights: fp8, model: qwen2_5_1_5b")
    )
    assert (
        '"draft_tensor_parallel_size": 4, "quantization": "fp8", "use_heterogeneous_vocab": true, '
    ) in written
    assert (
        "# draft: Qwen/Qwen2.5-1.5B, quantised to fp8 as it is loaded (--quantization fp8)\n"
        "# the draft was simulated on 1 of 4 devices; vLLM wants the target's degree for it\n"
    ) in written


def test_no_more_requests_at_a_time_than_tokens_of_a_pass() -> None:
    serving = "{policy: {name: chunked_prefill, max_requests: 256, chunk_tokens: 128}}"
    same = "model: vicuna_7b, weights: bf16"
    written = script(
        "vllm",
        "vanilla_llama_2_7b_a100",
        *drafted(same, "weights: bf16, model: tiny_vicuna_1b", serving),
    )
    assert " --max-num-seqs 128 " in written
    assert "# no more requests at a time than tokens of a pass, as vLLM refuses them\n" in written
    assert "--max-num-batched-tokens 128" in written


def test_a_context_ends_where_that_of_the_model_does() -> None:
    engine = "{policy: {name: engine}}"
    settings = [
        "strategy=autoregressive",
        "draft=null",
        "acceptance={always: 0}",
        f"target={{{PLACE}, model: qwen3_8b, weights: bf16}}",
        REQUESTS.replace("prompt_tokens: 1000", "prompt_tokens: 40760"),
        f"serving={engine}",
    ]
    written = script("vllm", "vanilla_llama_2_7b_a100", *settings)
    assert " --max-model-len 40960 " in written


def test_attention_may_be_data_parallel() -> None:
    name = "mtp_deepseek_v3_8xh200_data_parallel"
    assert " --tp 8 --dp-size 8 --enable-dp-attention" in script("sglang", name)
    written = script("vllm", name, "target.engine=vllm", "serving.policy.max_requests=64")
    assert "--tensor-parallel-size 1 --data-parallel-size 8" in written
    assert " --max-num-seqs 8 " in written
    assert "# checkpoint: deepseek-ai/DeepSeek-V3 as published, in fp8_block\n" in written


def test_offloaded_parts_have_options_of_llama_cpp() -> None:
    name = "offload_qwen3_30b_a3b_rtx_4060_ti_8g"
    assert " -ngl all --cpu-moe" in script("llama_cpp", name)
    some = "target.offload.cpu.experts=44"
    assert " -ngl all --n-cpu-moe 44" in script("llama_cpp", name, some)
    layers = ["target.offload.cpu.experts=null", "target.offload.cpu.layers=40"]
    assert " -ngl 9 " in script("llama_cpp", name, *layers)


def test_heads_have_options_of_their_own() -> None:
    """P-EAGLE is EAGLE-3 with parallel drafting; a head that nobody names is one that a published
    mean knows, else that is said.
    """
    name = "p_eagle_gpt_oss_120b_h100"
    written = script("vllm", name, head="some/head")
    assert '{"method": "eagle3", "model": "some/head", "num_speculative_tokens": 5, ' in written
    assert '"parallel_drafting": true}' in written
    assert ENGINES["sglang"].script(load(name, ["target.engine=sglang"]).scenario) is None
    assert "# state the checkpoint of a head" in script("vllm", name)
    known = script("vllm", "sessions_day_llama_3_1_8b_16xa100")
    assert '"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"' in known
    assert "# state the checkpoint" not in known
    assert "# head: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, which a published mean names" in known
    assert "# head:" not in written
    block = script("sglang", "dspark_qwen3_4b_h100", "target.engine=sglang", head="some/head")
    assert block.endswith(
        "--speculative-algorithm DSPARK --speculative-draft-model-path some/head \\\n"
        "    --speculative-num-draft-tokens 8\n"
    )


def test_looked_up_drafts_are_chains_in_sglang() -> None:
    written = script("sglang", "ngram_qwen3_30b_a3b_h200", "target.engine=sglang")
    assert written.endswith(
        "--speculative-algorithm NGRAM \\\n"
        "    --speculative-ngram-max-bfs-breadth 1 --speculative-num-draft-tokens 6\n"
    )


@pytest.mark.parametrize(
    ("model", "weights", "words", "served"),
    [
        ("qwen3_32b", "fp8_block", "Qwen/Qwen3-32B-FP8, in fp8_block", "Qwen/Qwen3-32B-FP8"),
        ("qwen3_8b", "int4", "Qwen/Qwen3-8B-AWQ, in int4", "Qwen/Qwen3-8B-AWQ"),
        (
            "gpt_oss_120b",
            "mxfp4",
            "openai/gpt-oss-120b as published, in mxfp4",
            "openai/gpt-oss-120b",
        ),
        (
            "mistral_7b",
            "fp8_block",
            (
                "mistralai/Mistral-7B-v0.1, quantised to fp8_block as it is loaded (--quantization "
                "fp8_per_block)"
            ),
            "mistralai/Mistral-7B-v0.1",
        ),
        (
            "mistral_7b",
            "int4",
            "none in int4 is known here; put its name in the place of mistralai/Mistral-7B-v0.1",
            "mistralai/Mistral-7B-v0.1",
        ),
        (
            "qwen2_5_72b",
            "int4",
            "Qwen/Qwen2.5-72B-Instruct-AWQ, in int4",
            "Qwen/Qwen2.5-72B-Instruct-AWQ",
        ),
        (
            "qwen2_5_32b, checkpoint: Qwen/Qwen2.5-32B-Instruct",
            "bf16",
            "Qwen/Qwen2.5-32B-Instruct, computed in bf16",
            "Qwen/Qwen2.5-32B-Instruct",
        ),
        (
            "llama_3_1_8b, checkpoint: meta-llama/Llama-3.1-8B",
            "fp8",
            "meta-llama/Llama-3.1-8B, quantised to fp8 as it is loaded (--quantization fp8)",
            "meta-llama/Llama-3.1-8B",
        ),
        (
            "llama_3_1_8b, checkpoint: me/my-llama-FP8",
            "fp8",
            "me/my-llama-FP8, in fp8",
            "me/my-llama-FP8",
        ),
        (
            "spd_mistral_0_5b",
            "bf16",
            (
                "spd_mistral_0_5b, of which no id on Hugging Face is known here; put a folder in "
                "its place"
            ),
            "spd_mistral_0_5b",
        ),
    ],
)
def test_a_checkpoint_is_published_so_or_quantised_as_it_is_loaded(
    model: str, weights: str, words: str, served: str
) -> None:
    settings = [
        "strategy=autoregressive",
        "draft=null",
        "acceptance={always: 0}",
        f"target={{{PLACE}, model: {model}, weights: {weights}}}",
        REQUESTS,
        f"serving={PREFILLS_FIRST}",
    ]
    written = script("vllm", "vanilla_llama_2_7b_a100", *settings)
    assert f"# checkpoint: {words}\n" in written
    assert f"\nvllm serve {served} " in written
