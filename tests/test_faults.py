"""Faults of scenarios that cannot be, or cannot run: every one word by word, behind its key."""

from __future__ import annotations

import pytest

from simulator.core.faults import BadInput
from simulator.scenario import load

POISSON = "requests={count: 8, arrivals: {name: poisson, rate_per_s: 1}}"
FAULTS = [
    (
        "durations_only",
        [
            "strategy={name: vanilla_sd, gamma: 3, drafts_first: true}",
            "serving.policy={name: prefill_first}",
        ],
        [
            "serving.policy: vanilla_sd with drafts_first verifies a window in a prompt's pass; "
            "choose fixed_batch"
        ],
    ),
    (
        "durations_only",
        ["strategy={name: duodecoding, sequences: 1}", "requests.concurrency=2"],
        ["requests.concurrency: duodecoding takes one request at a time, got 2"],
    ),
    (
        "durations_only",
        ["serving.policy={name: engine}"],
        [
            (
                "serving.policy: engine is what the engine of a target does, and stated "
                "durations have none; choose another policy, as prefill_first"
            )
        ],
    ),
    (
        "durations_only",
        [
            "strategy={name: specpipe_tandem}",
            "durations={stages_ms: [1,1], target_ms: null, draft_step_ms: 1}",
            POISSON,
            "serving={policy: {name: prefill_first, max_requests: 4}}",
        ],
        [
            (
                "requests.arrivals: specpipe_tandem takes one request at a time, got 4; set "
                "serving.policy.max_requests=1"
            )
        ],
    ),
    (
        "durations_only",
        ["serving.replicas=2", "requests.concurrency=4"],
        [
            (
                "serving.policy: fixed_batch needs max_requests where a router deals requests "
                "out: the clients of a replica change"
            )
        ],
    ),
    (
        "durations_only",
        [POISSON],
        [
            (
                "serving.policy: fixed_batch needs max_requests where requests arrive: there "
                "are no clients to count as places; set it, or choose another policy, as in "
                "serving: {policy: {name: prefill_first}}"
            )
        ],
    ),
    (
        "durations_only",
        ["durations={target_ms: 0, draft_step_ms: 1}", "strategy={name: vanilla_sd, gamma: 3}"],
        [
            (
                "durations: the target's passes take no time, so no speed can be told; state "
                "more than 0 ms"
            )
        ],
    ),
    (
        "durations_only",
        ["durations={target_ms: 5}", "strategy={name: vanilla_sd, gamma: 3}"],
        ["durations: vanilla_sd needs draft_ms (a window) or draft_step_ms"],
    ),
    (
        "durations_only",
        ["strategy=specpipe"],
        ["strategy: specpipe runs on the stages of a pipeline; set durations.stages_ms"],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["strategy=specpipe", "draft=null"],
        [
            (
                "strategy: specpipe needs a draft, and the scenario has none; models with the "
                "target's vocabulary of 32,000: llama_160m, llama_68m, tiny_vicuna_1b, "
                "tinyllama_1_1b"
            ),
            "strategy: specpipe runs on the stages of a pipeline; set target.pipeline",
        ],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["target.model=llama_2_70b"],
        [
            (
                "target.tensor_parallel: as vanilla_llama_2_7b_a100.yaml:5 has it, target "
                "llama_2_70b 138.1 GB + draft tinyllama_1_1b 2.2 GB does not fit a100_80g_sxm "
                "with 85.9 GB, of which 77.31 may be used; set target.tensor_parallel=2 with a "
                "target.link"
            )
        ],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["target.model=qwen3_32b"],
        [
            (
                "draft.model: as vanilla_llama_2_7b_a100.yaml:12 has it, vanilla_sd needs a "
                "draft, and tinyllama_1_1b has another vocabulary; models with the target's "
                "vocabulary of 151,936: qwen2_5_0_5b, qwen2_5_1_5b, qwen3_0_6b, qwen3_14b, "
                "qwen3_1_7b, qwen3_4b, qwen3_8b, spd_qwen_0_6b"
            )
        ],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["draft=null"],
        [
            (
                "strategy: vanilla_sd needs a draft, and the scenario has none; models with the"
                " target's vocabulary of 32,000: llama_160m, llama_68m, tiny_vicuna_1b, "
                "tinyllama_1_1b"
            )
        ],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["draft.model=llama_3_1_8b"],
        [
            (
                "draft.model: the draft's vocabulary of 128,256 is not the target's of 32,000; "
                "they must share a tokenizer"
            )
        ],
    ),
    (
        "autoregressive_qwen3_32b_a100",
        ["serving.memory.prefix_caching=true"],
        [
            (
                "serving.memory.prefix_caching: nobody knows what drawn prompts have in common;"
                " take sessions, or traffic with hash_ids (format: mooncake)"
            )
        ],
    ),
    (
        "autoregressive_qwen3_32b_a100",
        [
            "serving={replicas: 2, router: most_cached, memory: {prefix_caching: false}}",
            "requests.concurrency=4",
        ],
        [
            (
                "serving.policy: fixed_batch needs max_requests where a router deals requests "
                "out: the clients of a replica change"
            ),
            "serving.router: looks into caches; set serving.memory.prefix_caching=true",
        ],
    ),
    (
        "specpipe_llama_3_1_70b_8x3090",
        ["shared_memory={slowdown: {value: 1.5, source: x, confidence: assumed}}"],
        [
            (
                "shared_memory: slows a target and a draft that work side by side; stages have "
                "memories of their own"
            )
        ],
    ),
    (
        "specpipe_llama_3_1_70b_8x3090",
        ["strategy=mirror_sd"],
        ["strategy: mirror_sd stops within a pass, which a pipeline cannot do"],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["serving.memory.kv_tokens=100"],
        [
            (
                "requests: a request of 320 tokens needs room for 323 in the KV cache, which holds "
                "96; requests of up to 93 fit"
            )
        ],
    ),
    (
        "durations_only",
        ["serving.memory.kv_tokens=100"],
        [
            (
                "requests: a request of 768 tokens needs room for 774 in the KV cache, which holds "
                "96; requests of up to 90 fit"
            )
        ],
    ),
    (
        "specpipe_llama_3_1_70b_8x3090",
        ["acceptance={tokens_per_step: {code: 2, maths: 3}}"],
        [
            (
                "acceptance.tokens_per_step: nothing is recorded that lends this strategy the "
                "bursts of each kind of text; state one mean"
            )
        ],
    ),
    (
        "specpipe_llama_3_1_70b_8x3090",
        ["acceptance={tokens_per_step: 30}"],
        ["acceptance: a mean of 30 tokens a step cannot be: it lies between 1 and 2"],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["requests.prompt_tokens=9000"],
        [
            (
                "requests: a request of 9,192 tokens is too long: llama_2_7b has a context of "
                "4,096 tokens"
            )
        ],
    ),
    (
        "mirror_qwen3_32b_a100",
        ["acceptance={trace: small_mixture_sampled, stand_in: true}"],
        [
            (
                "acceptance.trace: mirror_sd needs early exits, and "
                "scenarios/traces/small_mixture_sampled.npz was recorded without; record it "
                "with --exits, or choose another"
            )
        ],
    ),
    (
        "vanilla_llama_2_7b_a100",
        ["acceptance={trace: six_flavours_greedy}"],
        [
            (
                "acceptance.trace: scenarios/traces/six_flavours_greedy.npz was recorded with a"
                " vocabulary of 2,048, the target has 32,000; record one from your models, or "
                "set acceptance.stand_in=true to borrow its shape"
            )
        ],
    ),
]


@pytest.mark.parametrize(("scenario", "sets", "faults"), FAULTS)
def test_what_is_wrong_with_a_scenario(scenario: str, sets: list[str], faults: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        load(scenario, sets)
    assert [f"{fault.field}: {fault.message}" for fault in caught.value.faults] == faults
