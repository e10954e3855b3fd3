"""TensorRT-LLM: ``trtllm-serve`` with a file of the arguments of its LLM API.

Fields are those of ``TorchLlmArgs``, which the documentation of a version lists with their types.
"""

from collections.abc import Iterator
from math import floor

from simulator.core.cost.placement import Placement
from simulator.core.plain import PlainData
from simulator.scenario import Scenario
from simulator.studies.plan.commands.checkpoints import ServedCheckpoint, served_checkpoint
from simulator.studies.plan.commands.program import (
    Configuration,
    Options,
    Served,
    ServingProgram,
    Words,
    chunk_of,
    kind_of,
)

VERSION = "TensorRT-LLM 1.4.0rc4"
FILE = "tensorrt_llm.sh"
CONFIGURATION = "tensorrt_llm.yaml"
WITHOUT_OVERLAP = ("Draft_Target", "NGram")
"""Ways to draft whose examples switch the overlap scheduler off."""
SHARE_DIGITS = 1_000
"""Shares of memory are rounded down to a multiple of one in so many."""


def _lines(served: Served) -> list[Words]:
    return [["trtllm-serve", "serve", served.model, "--config", CONFIGURATION]]


def _fields(served: Served) -> PlainData:
    """Return the arguments of the LLM API; what is as the server has it by itself is left out."""
    target = served.target
    fields: PlainData = {"tensor_parallel_size": target.tensor_parallel}
    if served.stages:
        fields["pipeline_parallel_size"] = served.stages
    if served.whole_experts:
        fields["moe_expert_parallel_size"] = target.tensor_parallel
    if served.shared_requests > 1:
        fields["enable_attention_dp"] = True
    if served.form:
        option, value = served.form
        fields[option] = value
    tokens, places = _pass(served)
    fields |= {
        "max_batch_size": places,
        "max_num_tokens": tokens,
        "max_seq_len": served.context,
        "enable_chunked_prefill": chunk_of(served.scenario.serving.policy) is not None,
        "kv_cache_config": _cache(served),
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": places},
    }
    if served.method in WITHOUT_OVERLAP:
        fields["disable_overlap_scheduler"] = True
    if served.method:
        fields["speculative_config"] = _speculation(served)
    return fields


def _pass(served: Served) -> tuple[int, int]:
    """Return the tokens of a pass of a rank, and its requests at a time."""
    chunk = chunk_of(served.scenario.serving.policy)
    if chunk is None:
        rows = 1 + served.tokens
        return max(served.context, served.places * rows), served.places
    tokens = -(-chunk // served.shared_requests)
    return tokens, min(served.places, tokens)


def _cache(served: Served) -> PlainData:
    """Return the room and the format of the cache."""
    memory = served.scenario.serving.memory
    fields: PlainData = {"free_gpu_memory_fraction": _free_share(served.scenario)}
    if memory.kv_tokens is not None:
        fields["max_tokens"] = memory.kv_tokens
    if memory.prefix_caching is not None:
        fields["enable_block_reuse"] = memory.prefix_caching
    if served.cache:
        option, value = served.cache
        fields[option] = value
    return fields


def _free_share(scenario: Scenario) -> float:
    """Return the share, of what the weights leave of a device, that the cache may take: with it
    weights and cache together take the scenario's share of the device.
    """
    shares = []
    for group in scenario.device_groups:
        whole_gb = group.limit_gb / group.utilisation
        weights_gb = group.weights_gb
        shares.append((group.limit_gb - weights_gb) / (whole_gb - weights_gb))
    return floor(min(shares) * SHARE_DIGITS) / SHARE_DIGITS


def _speculation(served: Served) -> PlainData:
    """Return how to speculate."""
    fields: PlainData = {"decoding_type": served.method, "max_draft_len": served.tokens}
    if served.draft:
        fields["speculative_model"] = served.draft
    if _is_tree(served):
        choices, tokens = served.tree
        fields |= {
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": choices,
            "max_total_draft_tokens": min(tokens, choices * served.tokens),
        }
    if served.method == "NGram":
        fields["is_public_pool"] = False
    schedule = _schedule(served)
    if schedule:
        fields["draft_len_schedule"] = schedule
    return fields


def _schedule(served: Served) -> dict[int, int]:
    """Return draft tokens by the last batch size that they hold for; empty without a schedule that
    begins with the most.
    """
    ranges = served.ranges or ()
    schedule = {last: tokens for _, last, tokens in ranges}
    first = next(iter(schedule.values()), 0)
    return schedule if first == served.tokens else {}


def _is_tree(served: Served) -> bool:
    """Return whether a tree is drafted that the program has: of EAGLE-3, over whole attention with
    keys and values of their own.
    """
    choices, _ = served.tree
    model = served.target.model
    whole = model.kv_latent_width is None and not model.mixers
    return served.method == "Eagle3" and whole and choices > 1


def _notes(served: Served) -> Iterator[str]:
    yield (
        f"it reads {CONFIGURATION} beside it; older versions call --config --extra_llm_api_options"
    )
    scenario = served.scenario
    share = scenario.serving.memory.utilisation
    yield (
        "free_gpu_memory_fraction is of what the weights leave: weights and cache take "
        f"{share:g} of a device"
    )
    chunk = chunk_of(scenario.serving.policy)
    if chunk and scenario.batch > chunk:
        yield "no more requests at a time than tokens of a pass"
    if served.target.servers > 1:
        yield (
            f"over {served.target.servers} servers: srun or mpirun with "
            f"{served.target.tensor_parallel} tasks, and trtllm-llmapi-launch before the command"
        )
    if served.method == "MTP":
        yield (
            "versions before 1.3 read num_nextn_predict_layers in the place of max_draft_len, 1 "
            "where nothing is said"
        )
    yield from _notes_of_trees(served)
    if served.ranges and not _schedule(served):
        yield "no draft lengths by batch size: they would have to begin with the most"
    if scenario.schedule.traits.shared_budget:
        yield "no option for adaptive verification: all drafts are verified"


def _notes_of_trees(served: Served) -> Iterator[str]:
    choices, tokens = served.tree
    most = choices * served.tokens
    if not _is_tree(served):
        if served.method and served.tree != (1, served.scenario.schedule.window):
            yield f"drafts are chains here: it keeps less than the tree of {tokens} tokens does"
    elif tokens > most:
        yield f"a tree of {choices} choices and {served.tokens} levels has {most} tokens at most"


def _loaded(place: Placement, formats: Options) -> ServedCheckpoint:
    """Return the checkpoint of a placement; of those in four-bit integers, that of ModelOpt alone
    can be read (``load_hf_quant_config``).
    """
    checkpoint = served_checkpoint(place, formats)
    if place.weights != "int4" or checkpoint.name in place.model.huggingface:
        return checkpoint
    words = f"{checkpoint.words}; TensorRT-LLM reads AWQ of ModelOpt alone: name such a checkpoint"
    return checkpoint._replace(words=words)


def _refuses(scenario: Scenario) -> str:
    target = scenario.target
    if target is None:
        return ""
    if target.device.maker != "NVIDIA":
        return f"TensorRT-LLM runs on devices of NVIDIA alone, not on {target.device.name}"
    if target.offload:
        return "TensorRT-LLM has no options for layers or experts on another device"
    if target.pipeline and kind_of(scenario, TENSORRT_LLM.methods):
        return f"{VERSION} does not speculate over the stages of a pipeline"
    return ""


TENSORRT_LLM = ServingProgram(
    file=FILE,
    version=VERSION,
    source=(
        "llm-api/reference/TorchLlmArgs of the documentation, tensorrt_llm/llmapi/llm_args.py "
        "(NVIDIA/TensorRT-LLM 00043967); read 2026-11"
    ),
    formats={
        "bf16": ("dtype", "bfloat16"),
        "fp16": ("dtype", "float16"),
        "fp32": ("dtype", "float32"),
    },
    cache={"fp8": ("dtype", "fp8")},
    methods={
        "draft_model": "Draft_Target",
        "p_eagle": None,
        "eagle_1": None,
        "eagle_2": None,
        "eagle_3": "Eagle3",
        "eagle": None,
        "ngram": "NGram",
        "mtp": "MTP",
        "dflash": "DFlash",
        "dspark": "DSpark",
    },
    affinity="a session stays on its replica with a load balancer that hashes a header of it",
    lines=_lines,
    notes=_notes,
    loads=_loaded,
    refuses=_refuses,
    configuration=Configuration(CONFIGURATION, _fields),
)
