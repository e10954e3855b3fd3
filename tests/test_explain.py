"""What ``specsim explain`` says of a scenario, topic by topic and word by word."""

from __future__ import annotations

import pytest

from simulator.scenario import explain as module, load
from simulator.scenario.explain import explain

MIRROR = (
    "mirror_sd: In Mirror speculative decoding the draft works on the next window while the target "
    "ends this one; a step takes T_prefix + T_rv_ee + max{Delta, T_draft} + T_rv_fv (Mirror-SD Eq. "
    "10)"
)
FIXED = "Iteration-level batching with a fixed number of places: the closed loop of the papers"
BESIDE = (
    "the law, a replay of the same acceptance, and autoregressive decoding of the same requests"
)


def test_stated_durations_in_words() -> None:
    assert explain(load("durations_only")).topics == {
        "about": "My T_target, T_draft and E[A]: what does Mirror-SD give me? No hardware at all.",
        "strategy": MIRROR,
        "times": "stated outright, no hardware or engine",
        "acceptance": "stated rates, every window drawn",
        "requests": "200 in the simulation, 1 at a time; 512 prompt and 256 output tokens in the "
        "mean, 768 together at most",
        "batching": FIXED,
        "memory": "no limit stated",
        "beside it": BESIDE,
        "seed": "0",
    }


def test_models_on_devices_in_words() -> None:
    assert explain(load("mirror_qwen3_32b_a100", ["seed=7"])).topics == {
        "about": "GPU-only Mirror-SD (App. D.3): Qwen3-32B on 8 A100, the draft unsharded on one "
        "more",
        "strategy": MIRROR,
        "target": "qwen3_32b, 32.8e9 weights as fp16, on 8 x a100_80g_sxm, joined by nvlink_a100, "
        "with vllm",
        "draft": "spd_qwen_0_6b, 0.601e9 weights as fp16, on 1 x a100_80g_sxm, joined by "
        "nvlink_a100, with vllm",
        "acceptance": "replayed from the recording six_flavours_greedy, drafter draft, recorded "
        "from other models",
        "requests": "120 in the simulation, 1 at a time; 512 prompt and 160 output tokens in the "
        "mean, 672 together at most",
        "batching": FIXED,
        "memory": "room for 2,109,163 tokens of KV cache",
        "beside it": BESIDE,
        "seed": "7",
    }


def test_requests_that_arrive_and_a_stated_cycle_in_words() -> None:
    changes = [
        "acceptance={always: 2}",
        "requests={count: 8, arrivals: {name: poisson, rate_per_s: 1}}",
        "serving={policy: {name: prefill_first, max_requests: 4}}",
    ]
    topics = explain(load("durations_only", changes)).topics
    assert topics["acceptance"] == "a stated cycle"
    assert topics["requests"] == (
        "8 in the simulation, poisson; 512 prompt and 128 output tokens in the mean, 640 together "
        "at most"
    )
    assert topics["batching"] == (
        "Prefill first (vLLM v0): new requests enter as soon as they fit, and decoding waits for "
        "their prompts"
    )


def test_a_recording_of_the_same_models_is_no_stand_in() -> None:
    changes = ["acceptance={trace: six_flavours_greedy, drafter: eagle}"]
    assert explain(load("durations_only", changes)).topics["acceptance"] == (
        "replayed from the recording six_flavours_greedy, drafter eagle"
    )


def test_experts_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load("eagle3_gpt_oss_120b_h100", ["target.expert_weights=q4_0"])
    topics = explain(loaded).topics
    assert topics["target"] == (
        "gpt_oss_120b, 117e9 weights as bf16, routed experts as q4_0, on 1 x h100_sxm, with vllm"
    )
    assert topics["experts"] == (
        "as many are read as the law says: no recording of routing is replayed"
    )
    monkeypatch.setattr(module, "why_by_law", lambda *_: "")
    assert explain(loaded).topics["experts"] == (
        "each window reads those that it took when recorded; law and plain decoding by two numbers "
        "fitted to that"
    )


def test_the_spreads_of_a_card_without_measurements_are_numbers() -> None:
    """Defaults in a mapping are shown as they can be typed, whatever their source."""
    explained = explain(load("autoregressive_qwen3_32b_a100", ["target.device=h20"]))
    (shown,) = [one for one in explained.defaults if one.field == "target.device.spreads"]
    assert shown.value.startswith("{attention: 0.")


def test_pools_in_words() -> None:
    loaded = load("apart_vanilla_llama_3_1_70b_h100_h20")
    explained = explain(loaded)
    assert explained.topics["prefill pool"] == (
        "a replica, on 4 x h100_sxm, batching by prefill_first, no draft, room for 508,933 tokens "
        "of KV cache"
    )
    assert explained.topics["handover"].endswith(
        "over 4 x infiniband_ndr; the replica that decodes is chosen behind the prefill; the first "
        "token is shown where a request decodes; the draft reads the prompt again where the "
        "request decodes"
    )
    fields = {one.field for one in explained.defaults}
    assert "serving.handover.shown_by" in fields
    assert not {field for field in fields if field.startswith("serving.pools.*.target")}


def test_tiers_of_memory_are_said_with_room_and_link() -> None:
    topics = explain(load("tiers_agents_eagle3_qwen3_30b_a3b_h200")).topics
    assert topics["memory"] == (
        "room for 131,072 tokens of KV cache; below it host (20 GB) over pcie_5_x16, which gets "
        "blocks as they are filled; below it store (no limit stated) over infiniband_ndr, which "
        "gets blocks as they are evicted"
    )
