"""Programs that serve the answer of a plan, by engine, with the options that they document.

Options are those of the documentation that an engine's ``source`` names.
"""

from collections.abc import Iterator

from simulator.core.acceptance.lossy.rules import LossyRule, ThresholdRule
from simulator.core.cost.placement import Placement
from simulator.core.serving.policies import ChunkedPrefill, UnifiedBudget
from simulator.inputs.shell import Comment
from simulator.inputs.writing import json_text
from simulator.scenario import Scenario
from simulator.studies.plan.commands.checkpoints import ServedCheckpoint, gguf_checkpoint
from simulator.studies.plan.commands.program import (
    LOOKED_UP,
    Options,
    Served,
    ServingProgram,
    Words,
    chunk_of,
)
from simulator.studies.plan.commands.tensorrt import TENSORRT_LLM


def _vllm(served: Served) -> list[Words]:
    scenario = served.scenario
    serve = ["vllm", "serve", served.model]
    serve += ["--tensor-parallel-size", str(served.sliced)]
    ranks = served.shared_requests
    if ranks > 1:
        serve += ["--data-parallel-size", str(ranks)]
    if served.stages:
        serve += ["--pipeline-parallel-size", str(served.stages)]
    if served.whole_experts:
        serve.append("--enable-expert-parallel")
    chunk = chunk_of(scenario.serving.policy)
    places = served.places
    if chunk:
        tokens = -(-chunk // ranks)
        places = min(places, tokens)
        prompts = ["--enable-chunked-prefill"]
    else:
        tokens = max(served.context, places)
        prompts = ["--no-enable-chunked-prefill"]
    prompts += ["--max-num-batched-tokens", str(tokens)]
    room = ["--max-num-seqs", str(places), "--max-model-len", str(served.context)]
    room += ["--gpu-memory-utilization", str(scenario.serving.memory.utilisation)]
    room += [*served.form, *served.cache]
    keeps = scenario.serving.memory.prefix_caching
    if keeps is not None:
        prompts.append("--enable-prefix-caching" if keeps else "--no-enable-prefix-caching")
    lines = [serve, room, prompts]
    if served.method:
        lines.append(["--speculative-config", _vllm_config(served)])
    return lines


def _vllm_notes(served: Served) -> Iterator[str]:
    scenario = served.scenario
    chunk = chunk_of(scenario.serving.policy)
    if chunk and scenario.batch > chunk:
        yield "no more requests at a time than tokens of a pass, as vLLM refuses them"
    drafted = served.drafted
    if drafted and drafted.tensor_parallel != served.sliced:
        yield (
            f"the draft was simulated on {drafted.tensor_parallel} of {served.sliced} devices; "
            "vLLM wants the target's degree for it"
        )
    if served.method and served.tree != (1, served.scenario.schedule.window):
        yield f"vLLM drafts chains: it keeps less than the tree of {served.tree[1]} tokens does"
    if scenario.schedule.traits.shared_budget:
        rules = served.target.engine.windows
        yield f"adaptive verification as of {Comment(rules.source)}"


def _vllm_config(served: Served) -> str:
    """Return how to speculate, as vLLM takes it; what is empty is left out."""
    drafted = served.drafted
    adaptive = served.scenario.schedule.traits.shared_budget
    config = {
        "method": served.method,
        "model": served.draft,
        "draft_tensor_parallel_size": drafted and served.sliced,
        "quantization": _vllm_quantisation(served.loaded_draft),
        "use_heterogeneous_vocab": _other_vocabulary(served) or None,
        "num_speculative_tokens": served.tokens,
        "num_speculative_tokens_per_batch_size": served.ranges,
        "parallel_drafting": served.kind == "p_eagle" or None,
        "enable_adaptive_verification": adaptive or None,
    }
    stated = {name: value for name, value in config.items() if value not in ("", None)}
    return json_text(stated, indent=None)


def _vllm_quantisation(drafted: ServedCheckpoint | None) -> str | None:
    """Return how a draft model is quantised while it is loaded; None where it is not."""
    if drafted and "--quantization" in drafted.options:
        return drafted.options[drafted.options.index("--quantization") + 1]
    return None


def _other_vocabulary(served: Served) -> bool:
    """Return whether the draft model counts other tokens than its target, as where one of two
    tables is padded.
    """
    drafted = served.drafted
    return drafted is not None and drafted.model.vocab_size != served.target.model.vocab_size


def _sglang(served: Served) -> list[Words]:
    scenario = served.scenario
    serve = ["python3", "-m", "sglang.launch_server", "--model-path", served.model]
    serve += ["--tp", str(served.target.tensor_parallel)]
    if served.shared_requests > 1:
        serve += ["--dp-size", str(served.shared_requests), "--enable-dp-attention"]
    if served.stages:
        serve += ["--pp-size", str(served.stages)]
    if served.whole_experts:
        serve += ["--ep-size", str(served.target.tensor_parallel)]
    room = ["--max-running-requests", str(scenario.batch), "--context-length", str(served.context)]
    room += ["--mem-fraction-static", str(scenario.serving.memory.utilisation)]
    room += [*served.form, *served.cache]
    policy = scenario.serving.policy
    prompts = ["--chunked-prefill-size", str(chunk_of(policy) or -1)]
    if isinstance(policy, ChunkedPrefill | UnifiedBudget):
        prompts.append("--enable-mixed-chunk")
    if scenario.serving.memory.prefix_caching is False:
        lines = [serve, room, ["--disable-radix-cache", *prompts]]
    else:
        lines = [serve, [*room, *prompts]]
    if served.method:
        lines += _sglang_speculation(served)
    return lines


def _sglang_speculation(served: Served) -> list[Words]:
    algorithm = ["--speculative-algorithm", served.method]
    if served.draft:
        algorithm += ["--speculative-draft-model-path", served.draft]
    choices, tokens = served.tree
    drafts = ["--speculative-num-draft-tokens", str(1 + tokens)]
    if served.method in ("DFLASH", "DSPARK"):
        return [algorithm, drafts]
    if served.method == "NGRAM":
        return [algorithm, ["--speculative-ngram-max-bfs-breadth", str(choices), *drafts]]
    steps = ["--speculative-num-steps", str(served.scenario.schedule.window)]
    steps += ["--speculative-eagle-topk", str(choices)]
    return [algorithm, [*steps, *drafts]]


def _sglang_notes(served: Served) -> Iterator[str]:
    mixed = isinstance(served.scenario.serving.policy, ChunkedPrefill | UnifiedBudget)
    if mixed and served.method in ("NGRAM", "STANDALONE"):
        yield f"with {served.method} SGLang switches --enable-mixed-chunk off"
    if served.scenario.schedule.traits.shared_budget:
        yield "no option for adaptive verification: all drafts are verified"


def _sglang_rule(rule: LossyRule) -> Words:
    """Return the thresholds of a rule; none for a rule that the program does not have."""
    if not isinstance(rule, ThresholdRule):
        return []
    single = ["--speculative-accept-threshold-single", f"{rule.single:g}"]
    return [*single, "--speculative-accept-threshold-acc", f"{rule.accumulated:g}"]


def _llama_cpp(served: Served) -> list[Words]:
    places = served.scenario.batch
    serve = ["llama-server", "-m", served.model]
    if served.method:
        serve += ["-md", served.draft]
    serve += ["-np", str(places), "-c", str(served.context * places)]
    serve += [*_llama_cpp_layers(served.target), *served.cache]
    if not served.method:
        return [serve]
    drafts = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(served.tokens)]
    drafts += ["--spec-draft-n-min", "0"]
    return [serve, [*drafts, "--spec-draft-p-min", "0"]]


def _llama_cpp_layers(target: Placement) -> Words:
    """Return which layers, and experts of layers, lie on the card: all that are not offloaded."""
    layers = target.model.num_hidden_layers
    on_card = ["-ngl", "all"]
    experts: Words = []
    for part in (target.offload or {}).values():
        away = part.places(layers)
        if part.layers is not None:
            on_card = ["-ngl", str(layers + 1 - away.stop)]
        elif len(away) == layers:
            experts = ["--cpu-moe"]
        else:
            experts = ["--n-cpu-moe", str(away.stop)]
    return [*on_card, *experts]


FORMATS: Options = {
    "bf16": ("--dtype", "bfloat16"),
    "fp16": ("--dtype", "float16"),
    "fp32": ("--dtype", "float32"),
    "fp8": ("--quantization", "fp8"),
}
ENGINES = {
    "vllm": ServingProgram(
        file="vllm.sh",
        version="vLLM 0.32",
        source=(
            "docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic lengths: "
            "015a47e1), docs/cli/serve; read 2026-11"
        ),
        formats={**FORMATS, "fp8_block": ("--quantization", "fp8_per_block")},
        cache={
            "fp8": ("--kv-cache-dtype", "fp8"),
            "int8": ("--kv-cache-dtype", "int8_per_token_head"),
            "int4": ("--kv-cache-dtype", "int4_per_token_head"),
        },
        methods={
            "draft_model": "draft_model",
            "p_eagle": "eagle3",
            "eagle_1": "eagle",
            "eagle_2": "eagle",
            "eagle_3": "eagle3",
            "eagle": "eagle",
            "ngram": "ngram",
            "mtp": "mtp",
            "dflash": "dflash",
            "dspark": "dspark",
            LOOKED_UP: "suffix",
        },
        affinity=(
            "a session stays on its replica with --routing-logic session --session-key HEADER of "
            "the router of vllm-project/production-stack"
        ),
        lines=_vllm,
        notes=_vllm_notes,
    ),
    "sglang": ServingProgram(
        file="sglang.sh",
        version="SGLang 0.5.23",
        source=(
            "docs/advanced_features/server_arguments.md (sgl-project/sglang 004813e1) and "
            "speculative_decoding.md (067ad4d); read 2026-11"
        ),
        formats=FORMATS,
        cache={"fp8": ("--kv-cache-dtype", "fp8_e4m3")},
        methods={
            "draft_model": "STANDALONE",
            "p_eagle": None,
            "eagle_1": "EAGLE",
            "eagle_2": "EAGLE",
            "eagle_3": "EAGLE3",
            "eagle": "EAGLE",
            "ngram": "NGRAM",
            "mtp": "EAGLE",
            "dflash": "DFLASH",
            "dspark": "DSPARK",
        },
        affinity=("a session stays where its prefix is with --policy cache_aware of sglang_router"),
        lines=_sglang,
        notes=_sglang_notes,
        rule=_sglang_rule,
    ),
    "llama_cpp": ServingProgram(
        file="llama_cpp.sh",
        version="llama.cpp 00dc8057",
        source=(
            "tools/server/README.md (ggml-org/llama.cpp 00dc8057); before builds of 2026 "
            "--spec-draft-n-max was --draft-max; read 2026-11"
        ),
        formats={},
        cache={
            "int8": ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0"),
            "int4": ("--cache-type-k", "q4_0", "--cache-type-v", "q4_0"),
        },
        methods={"draft_model": "draft_model"},
        affinity="a session stays on its replica with a load balancer that hashes a header of it",
        lines=_llama_cpp,
        loads=gguf_checkpoint,
    ),
    "tensorrt_llm": TENSORRT_LLM,
}
"""Programs by engine, whose name may go on."""


def program_name(scenario: Scenario) -> str | None:
    """Return the engine of a scenario's target as :data:`ENGINES` names it; None where no options
    of it are known.
    """
    engine = scenario.target.engine.name if scenario.target else ""
    return next((name for name in ENGINES if engine.startswith(name)), None)
