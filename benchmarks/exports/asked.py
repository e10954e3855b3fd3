"""Fleets whose commands are put to the engines: of widely different models, devices, methods,
degrees and formats, beside the scenarios of the catalogue that an engine can serve.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from simulator.core.strategies.adaptive_verification import of_chain
from simulator.scenario import Scenario, load
from simulator.studies.plan.commands.apart import scripts_apart
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.commands.program import Ranges

BASE = "autoregressive_qwen3_32b_a100"
SHORT = (
    "{arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 1000, output_tokens: 200}"
)
SHORTER = (
    "{arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 400, output_tokens: 100}"
)
LONG = (
    "{arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 40000, output_tokens: 900}"
)
ENGINE = "{policy: {name: engine}}"
WHOLE = "{policy: {name: prefill_first, max_requests: 64}}"
CHUNKED = (
    "{policy: {name: chunked_prefill, max_requests: 64, chunk_tokens: 512}, memory: "
    "{prefix_caching: false}}"
)
NARROW = "{policy: {name: chunked_prefill, max_requests: 256, chunk_tokens: 128}}"
APART = (
    "{policy: {name: prefill_first, max_requests: 64}, pools: [{role: prefill}, {role: decode, "
    "replicas: 2}], handover: {link: infiniband_ndr}}"
)
EAGLE3 = {
    "llama_3_1_8b": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    "llama_3_3_70b": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
    "qwen3_8b": "RedHatAI/Qwen3-8B-speculator.eagle3",
    "qwen3_32b": "RedHatAI/Qwen3-32B-speculator.eagle3",
    "gpt_oss_120b": "nvidia/gpt-oss-120b-Eagle3-v3",
    "vicuna_13b": "yuhuili/EAGLE3-Vicuna1.3-13B",
    "llama_4_maverick": "lmsys/sglang-EAGLE3-Llama-4-Maverick-17B-128E-Instruct-v1",
    "qwen3_30b_a3b": "nm-testing/Speculator-Qwen3-30B-MOE-VL-Eagle3",
}
"""Published heads, as scenarios/acceptance names them."""
DSPARK = "deepseek-ai/dspark_qwen3_4b_block7"
HEADS = {
    "adaptive_dflash_qwen3_coder_30b_a3b_h200": "z-lab/Qwen3-Coder-30B-A3B-DFlash",
    "adaptive_dspark_qwen3_4b_h100": DSPARK,
    "apart_eagle3_qwen3_32b_4xh100": EAGLE3["qwen3_32b"],
    "dflash_2_qwen3_5_27b_h100": "z-lab/Qwen3.8-27B-DFlash2",
    "dflash_qwen3_coder_30b_a3b_h200": "z-lab/Qwen3-Coder-30B-A3B-DFlash",
    "dspark_qwen3_4b_h100": DSPARK,
    "eagle3_gpt_oss_120b_h100": EAGLE3["gpt_oss_120b"],
    "eagle3_mixtral_8x7b_2xa100": "example/mixtral-eagle3",
    "eagle3_qwen3_235b_a22b_8xh200": "example/qwen3-235b-eagle3",
    "eagle3_qwen3_30b_a3b_h200": EAGLE3["qwen3_30b_a3b"],
    "eagle3_weak_qwen3_30b_a3b_h200": EAGLE3["qwen3_30b_a3b"],
    "p_eagle_gpt_oss_120b_h100": "example/gpt-oss-120b-p-eagle",
    "sessions_agents_eagle3_qwen3_30b_a3b_h200": EAGLE3["qwen3_30b_a3b"],
    "sessions_chat_eagle3_qwen3_30b_a3b_h200": EAGLE3["qwen3_30b_a3b"],
    "tiers_agents_eagle3_qwen3_30b_a3b_h200": EAGLE3["qwen3_30b_a3b"],
    "tiers_store_eagle3_qwen3_30b_a3b_2xh200": EAGLE3["qwen3_30b_a3b"],
}
"""The head of a scenario; ``example`` where none is published."""
SCENARIOS = (
    *HEADS,
    "adaptive_suffix_llama_2_7b_a100",
    "apart_vanilla_llama_3_1_70b_h100_h20",
    "autoregressive_deepseek_v3_8xh200",
    "mtp_deepseek_v3_8xh200_data_parallel",
    "mtp_layers_mimo_v2_flash_8xh200",
    "mtp_qwen3_5_27b_h100",
    "ngram_qwen3_30b_a3b_h200",
    "offload_qwen3_30b_a3b_rtx_4060_ti_8g",
    "pipeline_llama_3_1_70b_8x3090",
    "sessions_day_llama_3_1_8b_16xa100",  # its head is one that the bank knows
    "traffic_vanilla_llama_3_1_8b_4xa100",
)
"""Scenarios of the catalogue on an engine that serves."""


@dataclass(frozen=True)
class Fleet:
    """A fleet as a plan's answer would state it."""

    model: str
    device: str
    method: str = "autoregressive"
    draft: str = ""
    head: str = ""
    ranks: int = 1
    weights: str = "bf16"
    more: str = ""
    """Further fields of the target."""
    link: str = "nvlink_h100"
    serving: str = ENGINE
    requests: str = SHORT
    draft_more: str = "weights: bf16"
    ranges: Ranges | None = None
    adaptive: bool = False
    """Whether as many drafts are verified as bring most tokens, which vLLM alone has."""

    @property
    def name(self) -> str:
        """Return what it is called: what differs from another fleet."""
        parts = [self.method, self.model, self.draft, f"{self.ranks}x{self.device}", self.weights]
        parts += [
            self.more,
            "" if self.draft_more == "weights: bf16" else f"draft {self.draft_more}",
        ]
        named = {ENGINE: "", WHOLE: "whole prompts", CHUNKED: "chunks", NARROW: "small chunks"}
        parts += [named.get(self.serving, "apart"), "long" if self.requests == LONG else ""]
        parts += ["by batch size"] if self.ranges else []
        parts += ["adaptive verification"] if self.adaptive else []
        return ", ".join(part for part in parts if part)

    def scenario(self, engine: str) -> Scenario:
        """Return it as a scenario on an engine."""
        place = f"machine: server, device: {self.device}, engine: {engine}"
        target = f"{place}, model: {self.model}, weights: {self.weights}"
        if self.ranks > 1:
            target += f", tensor_parallel: {self.ranks}, link: {self.link}"
        if self.more:
            target += f", {self.more}"
        settings = [
            f"target={{{target}}}",
            f"strategy={self.method}",
            "draft=null",
            "acceptance={rate: 0.7}",
            f"requests={self.requests}",
            f"serving={self.serving}",
        ]
        if self.method == "autoregressive":
            settings[3] = "acceptance={always: 0}"
        if self.draft:
            settings[2] = f"draft={{{place}, model: {self.draft}, {self.draft_more}}}"
        loaded = load(BASE, settings)
        rule = of_chain(loaded.scenario.strategy)
        if self.adaptive and rule:
            loaded = loaded.replace(strategy=rule)
        return loaded.scenario


DENSE = (
    Fleet("llama_3_1_8b", "a100_80g_sxm"),
    Fleet("llama_3_1_8b", "h100_sxm", weights="fp8"),
    Fleet("llama_3_1_8b", "l40s", weights="fp16", serving=WHOLE),
    Fleet("qwen3_32b", "h100_sxm", ranks=4, weights="fp8_block"),
    Fleet("qwen3_32b", "a100_80g_sxm", weights="int4", link="nvlink_a100"),
    Fleet("qwen3_14b", "mi300x", weights="fp16", more="kv_cache: fp8"),
    Fleet("qwen3_8b", "b200_sxm", weights="fp8", more="kv_cache: fp8", serving=CHUNKED),
    Fleet("mistral_7b", "rtx_4090", serving=WHOLE),
    Fleet("mistral_small_24b", "rtx_pro_6000", weights="fp8"),
    Fleet("phi_3_mini", "l4", serving=NARROW),
    Fleet("qwen2_5_72b", "h200_sxm", weights="int4"),
    Fleet("opt_13b", "a100_40g_sxm", weights="fp16", serving=WHOLE),
    Fleet("llama_3_3_70b", "b200_sxm", weights="nvfp4"),
    Fleet("llama_3_1_70b", "h100_sxm", ranks=2, weights="fp8", more="kv_cache: fp8"),
    Fleet("qwen3_4b", "a10g", more="kv_cache: int8", serving=WHOLE),
    Fleet("qwen3_32b", "h200_sxm", requests=LONG),
)
"""Plain decoding, also with formats of weights and caches."""
MIXTURES = (
    Fleet("qwen3_30b_a3b", "h100_sxm", weights="fp8_block"),
    Fleet("qwen3_30b_a3b", "h100_sxm", ranks=2, more="experts: whole"),
    Fleet("qwen3_235b_a22b", "h200_sxm", ranks=8, weights="fp8_block", more="experts: whole"),
    Fleet("qwen3_235b_a22b", "b200_sxm", ranks=4, weights="nvfp4", link="nvlink_b200"),
    Fleet("mixtral_8x7b", "a100_80g_sxm", ranks=2, link="nvlink_a100", serving=CHUNKED),
    Fleet("gpt_oss_120b", "h100_sxm", weights="mxfp4"),
    Fleet("deepseek_v3", "h200_sxm", ranks=8, weights="fp8_block", more="experts: whole"),
    Fleet(
        "deepseek_v3_2",
        "b200_sxm",
        ranks=8,
        weights="fp8_block",
        more="experts: whole",
        link="nvlink_b200",
    ),
    Fleet("llama_4_maverick", "h200_sxm", ranks=8, weights="fp8"),
    Fleet("nemotron_3_nano_30b_a3b", "h100_sxm"),
    Fleet("qwen3_5_35b_a3b", "h100_sxm", ranks=2),
)
DRAFTED = (
    Fleet("llama_3_1_70b", "h100_sxm", "vllm_chain", "llama_3_2_1b", ranks=4),
    Fleet(
        "llama_3_3_70b",
        "h100_sxm",
        "vllm_chain",
        "llama_3_1_8b",
        ranks=8,
        weights="fp8",
        draft_more="weights: fp8",
    ),
    Fleet("qwen3_32b", "h100_sxm", "vllm_chain", "qwen3_0_6b", ranges=((1, 8, 3), (9, 256, 1))),
    Fleet(
        "qwen3_14b", "l40s", "vllm_chain", "qwen3_0_6b", serving=WHOLE, draft_more="weights: fp8"
    ),
    Fleet("qwen3_8b", "rtx_4090", "vllm_chain", "qwen3_1_7b", weights="int4"),
    Fleet("qwen3_30b_a3b", "h200_sxm", "vllm_chain", "qwen3_0_6b", ranks=2, more="experts: whole"),
    Fleet("qwen2_5_72b", "h100_sxm", "vllm_chain", "qwen2_5_1_5b", ranks=4),
    Fleet(
        "llama_2_13b", "a100_80g_sxm", "vllm_chain", "tinyllama_1_1b", weights="fp16", serving=WHOLE
    ),
    Fleet("vicuna_13b", "a100_80g_sxm", "vllm_chain", "llama_68m", serving=WHOLE),
    Fleet(
        "opt_66b",
        "a100_80g_sxm",
        "vllm_chain",
        "opt_125m",
        ranks=4,
        weights="fp16",
        link="nvlink_a100",
        serving=WHOLE,
    ),
    Fleet("llama_3_1_70b", "h100_sxm", "vllm_chain", "llama_3_2_1b", ranks=4, serving=APART),
)
LOOKED_UP = (
    Fleet("llama_3_1_8b", "h100_sxm", "vllm_ngram"),
    Fleet("qwen3_32b", "h100_sxm", "vllm_ngram", ranks=2, weights="fp8"),
    Fleet("mixtral_8x7b", "h100_sxm", "vllm_ngram", ranks=2, more="experts: whole"),
    Fleet("gpt_oss_120b", "h100_sxm", "ngram", weights="mxfp4"),
    Fleet("qwen3_8b", "a10g", "vllm_ngram", serving=NARROW),
    Fleet("deepseek_v3", "h200_sxm", "vllm_ngram", ranks=8, weights="fp8_block"),
    Fleet("llama_3_1_8b", "h100_sxm", "vllm_ngram", serving=APART),
)
HEADED = (
    Fleet("llama_3_1_8b", "a100_80g_sxm", "vllm_eagle_3", head=EAGLE3["llama_3_1_8b"]),
    Fleet(
        "llama_3_3_70b",
        "h100_sxm",
        "vllm_eagle_3",
        head=EAGLE3["llama_3_3_70b"],
        ranks=4,
        weights="fp8",
    ),
    Fleet("qwen3_32b", "h200_sxm", "vllm_eagle_3", head=EAGLE3["qwen3_32b"], requests=LONG),
    Fleet("qwen3_8b", "l40s", "vllm_eagle_3", head=EAGLE3["qwen3_8b"], more="kv_cache: fp8"),
    Fleet(
        "gpt_oss_120b",
        "h100_sxm",
        "vllm_eagle_3",
        head=EAGLE3["gpt_oss_120b"],
        weights="mxfp4",
        ranks=2,
    ),
    Fleet("vicuna_13b", "a100_80g_sxm", "vllm_eagle_3", head=EAGLE3["vicuna_13b"], serving=WHOLE),
    Fleet(
        "llama_4_maverick",
        "h200_sxm",
        "vllm_eagle_3",
        head=EAGLE3["llama_4_maverick"],
        ranks=8,
        weights="fp8",
    ),
    Fleet(
        "llama_3_1_8b",
        "h100_sxm",
        "eagle_1",
        head="yuhuili/EAGLE-LLaMA3.1-Instruct-8B",
        serving=WHOLE,
    ),
    Fleet("qwen3_8b", "h100_sxm", "dflash", head="z-lab/Qwen3-8B-DFlash-b16"),
    Fleet("qwen3_4b", "h100_sxm", "dspark", head=DSPARK),
    Fleet(
        "qwen3_32b", "h100_sxm", "vllm_eagle_3", head=EAGLE3["qwen3_32b"], ranks=2, serving=APART
    ),
)
ADAPTIVE = (
    Fleet(
        "llama_3_1_8b",
        "h100_sxm",
        "vllm_eagle_3",
        head=EAGLE3["llama_3_1_8b"],
        adaptive=True,
    ),
    Fleet("qwen3_4b", "h100_sxm", "dspark", head=DSPARK, adaptive=True),
)
MTP = (
    Fleet("deepseek_v3", "h200_sxm", "mtp", ranks=8, weights="fp8_block", more="experts: whole"),
    Fleet(
        "deepseek_v3",
        "b200_sxm",
        "mtp_3",
        ranks=8,
        weights="fp8_block",
        link="nvlink_b200",
        more="experts: whole",
    ),
    Fleet("deepseek_v3_2", "h200_sxm", "mtp", ranks=8, weights="fp8_block", more="experts: whole"),
    Fleet("qwen3_5_27b", "h100_sxm", "mtp"),
    Fleet("qwen3_5_35b_a3b", "h100_sxm", "mtp_3"),
    Fleet(
        "mimo_v2_flash",
        "h200_sxm",
        "mtp_layers",
        ranks=8,
        weights="fp8_block",
        more="experts: whole",
    ),
)
FLEETS = (*DENSE, *MIXTURES, *DRAFTED, *LOOKED_UP, *HEADED, *ADAPTIVE, *MTP)
AT_HOME = (
    Fleet("llama_3_1_8b", "rtx_4090", weights="q4_k", serving=WHOLE),
    Fleet("qwen3_8b", "rtx_3060_12g", weights="q8_0", more="kv_cache: int8", serving=WHOLE),
    Fleet(
        "qwen3_32b",
        "rtx_5090",
        "vanilla_sd",
        "qwen3_0_6b",
        weights="q4_k",
        draft_more="weights: q8_0",
        serving=WHOLE,
    ),
    Fleet("llama_3_1_8b", "rtx_3090", "vanilla_sd", "llama_3_2_1b", weights="fp16", serving=WHOLE),
)
"""Fleets for llama.cpp."""


SERVED = {
    "plain": Fleet("qwen3_8b", "l40s", requests=SHORTER),
    "ngram": Fleet("qwen3_8b", "l40s", "vllm_ngram", requests=SHORTER),
    "draft_model": Fleet("qwen3_8b", "l40s", "vllm_chain", "qwen3_0_6b", requests=SHORTER),
}
"""Fleets of vLLM whose commands are served, within the 1,024 tokens of the shipped family."""


class AskedCommand(NamedTuple):
    """A command that is put to its engine."""

    engine: str
    fleet: str
    """What it serves."""
    script: str
    """As it was exported."""
    configuration: str = ""
    """The file that it reads; empty where it has all in its options."""

    @property
    def name(self) -> str:
        """Return what it is called among all."""
        return f"{self.engine}: {self.fleet}"

    @property
    def words(self) -> list[str]:
        """Return its words, as a shell takes them."""
        lines = [line for line in self.script.splitlines() if not line.startswith("#")]
        return shlex.split("\n".join(lines).replace("\\\n", " "))

    @property
    def fields(self) -> Any:
        """Return what stands in the file that it reads; None without one."""
        return yaml.safe_load(self.configuration) if self.configuration else None


def commands() -> Iterator[AskedCommand]:
    """Yield the commands of all fleets on the engines that have options for them, then those of the
    catalogue's scenarios.
    """
    for engine in ("vllm", "sglang", "tensorrt_llm"):
        for fleet in FLEETS:
            if fleet.adaptive and engine != "vllm":
                continue
            yield from _exported(
                engine, fleet.name, fleet.scenario(engine), fleet.ranges, fleet.head
            )
    for fleet in AT_HOME:
        scenario = fleet.scenario("llama_cpp_cuda")
        yield from _exported("llama_cpp", fleet.name, scenario, fleet.ranges, fleet.head)
    for name in SCENARIOS:
        scenario = load(name).scenario
        for engine in ENGINES:
            if scenario.target and scenario.target.engine.name.startswith(engine):
                yield from _exported(engine, name, scenario, None, HEADS.get(name, ""))


def to_serve() -> dict[str, AskedCommand]:
    """Return the commands that are served, by name."""
    served = {}
    for name, fleet in SERVED.items():
        (served[name],) = _exported("vllm", fleet.name, fleet.scenario("vllm"), None, "")
    return served


def _exported(
    engine: str, fleet: str, scenario: Scenario, ranges: Ranges | None, head: str
) -> Iterator[AskedCommand]:
    """Yield the commands of a scenario: one for a replica, or those of its pools."""
    if scenario.serving.pools:
        for file, text in scripts_apart(engine, scenario, ranges, head).items():
            if file.endswith(".sh") and "router" not in file:
                yield AskedCommand(engine, f"{fleet} ({file.removesuffix('.sh')})", text)
        return
    files = ENGINES[engine].files(scenario, ranges, head)
    if files:
        yield AskedCommand(engine, fleet, *files.values())
