"""Drawn sessions against vLLM's scheduler and its manager of the cache, without a model: what is
drafted, accepted and answered is made up.

Which layers there are is said by the groups of a ``KVCacheConfig``. A hybrid has one group of full
attention and three of layers with a state, as a model has that repeats three such layers and one of
attention (Qwen3-Next, Qwen3.5).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.live.vllm.living import described
from benchmarks.live.vllm.models import write_all
from benchmarks.live.vllm.sessions import Tokens, Turn, draw, prompt_of

WORDS = 2**31
DRAFTS = 3


@dataclass(frozen=True)
class Setting:
    """A model as its cache sees it, what speculates, and the limits of its server."""

    layers: str
    """``plain``, ``hybrid`` or ``windows``."""
    method: str
    """``none``, ``ngram`` or ``eagle``."""
    unit: int
    share: float
    """Room of the cache in sequences of the longest length."""
    together: int
    budget: int
    ahead: bool = False
    """Whether the scheduler is the one that runs ahead of the device (asynchronous scheduling)."""
    window: int = 0


def settings() -> Iterator[Setting]:
    """Yield what is recorded."""
    for ahead in (False, True):
        for method in ("none", "ngram", "eagle"):
            for share, together in ((20.0, 4), (2.0, 2), (1.3, 8)):
                yield Setting("plain", method, 16, share, together, 96, ahead)
    for unit in (528, 1056, 2144):
        for method in ("none", "eagle"):
            for budget in (1024, 2048, 8192):
                yield Setting("hybrid", method, unit, 40.0, 4, budget, ahead=True)
            yield Setting("hybrid", method, unit, 40.0, 4, 2048)
            yield Setting("hybrid", method, unit, 8.0, 2, 8192)
            yield Setting("hybrid", method, unit, 7.0, 4, 2048, ahead=True)


def groups(setting: Setting) -> list[Any]:
    """Return the groups of layers, as vLLM makes them."""
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=setting.unit, **shape)
    first = KVCacheGroupSpec(["full"], full, is_eagle_group=setting.method == "eagle")
    if setting.layers == "plain":
        return [first]
    if setting.layers == "windows":
        window = SlidingWindowSpec(block_size=setting.unit, sliding_window=setting.window, **shape)
        return [first, KVCacheGroupSpec(["window"], window)]
    state = MambaSpec(
        block_size=setting.unit,
        shapes=((1, full.page_size_bytes // 4),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        num_speculative_blocks=0 if setting.method == "none" else DRAFTS,
    )
    return [first, *(KVCacheGroupSpec([f"state {index}"], state) for index in range(3))]


def scheduler_of(setting: Setting, longest: int, blocks: int, folder: Path) -> Any:
    """Return a scheduler with an empty cache."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.structured_output import StructuredOutputManager

    models = write_all(folder)
    speculation: dict[str, Any] | None = {
        "none": None,
        "ngram": {"method": "ngram", "prompt_lookup_max": 3},
        "eagle": {"method": "eagle", "model": str(models["eagle"])},
    }[setting.method]
    if speculation is not None:
        speculation["num_speculative_tokens"] = DRAFTS
    config = EngineArgs(
        str(models["target"]),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=longest,
        enforce_eager=True,
        max_num_seqs=setting.together,
        max_num_batched_tokens=setting.budget,
        speculative_config=speculation,
    ).create_engine_config()
    config.cache_config.block_size = setting.unit
    config.cache_config.num_gpu_blocks = blocks + 1
    if setting.layers == "hybrid":
        config.cache_config.mamba_cache_mode = "align"
        config.cache_config.mamba_block_size = setting.unit
    made = AsyncScheduler if setting.ahead else Scheduler
    return made(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(blocks + 1, [], groups(setting)),
        structured_output_manager=StructuredOutputManager(config),
        block_size=setting.unit,
        hash_block_size=setting.unit,
        log_stats=True,
    )


def record(setting: Setting, seed: int, folder: Path) -> dict[str, Any]:
    """Serve drawn sessions; return what they were and what the cache was asked for."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    from benchmarks.live.vllm.record import watched

    unit = setting.unit
    turns = draw(seed, unit, sessions=10, longest_output=max(64, unit * 5 // 4))
    longest = max(turn.total for turn in turns) + 2 * DRAFTS
    blocks = int(setting.share * -(-longest // unit)) + 2
    scheduler = scheduler_of(setting, longest, blocks, folder)
    hashing = get_hash_fn_by_name("sha256")
    init_none_hash(hashing)
    with watched(unit) as events:
        said, kept = serve(scheduler, turns, seed, get_request_block_hasher(unit, hashing))
    return {
        **{name: getattr(setting, name) for name in Setting.__dataclass_fields__},
        "dropped": int(scheduler.use_eagle_block_drop),
        "blocks": blocks,
        "lookahead": scheduler.num_lookahead_tokens,
        "drafts": scheduler.num_spec_tokens,
        "seed": seed,
        "requests": described(turns, said),
        "events": events,
        "states": kept,
    }


def serve(
    scheduler: Any, turns: Sequence[Turn], seed: int, hasher: Any
) -> tuple[list[Tokens], list[list[int]]]:
    """Serve turns, each when its time has come; return prompts with outputs, and what of each was
    in the cache with its state when it ended.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

    chance = Random(seed + 1)
    systems = [[chance.randrange(WORDS) for _ in range(10_000)] for _ in range(3)]
    said: list[Tokens] = [[] for _ in turns]
    kept: list[list[int]] = [[] for _ in turns]
    ended: dict[int | None, int] = {None: 0}
    waiting = list(range(len(turns)))
    step = 0
    while len(ended) <= len(turns):
        for number in list(waiting):
            turn = turns[number]
            start = 20 * turn.session if turn.parent is None else 0
            if turn.parent in ended and ended[turn.parent] + start + turn.after <= step:
                waiting.remove(number)
                said[number] = prompt_of(turn, systems, said, chance, WORDS)
                limits = SamplingParams(temperature=0, max_tokens=turn.output, ignore_eos=True)
                asked = Request(str(number), said[number], limits, None, block_hasher=hasher)
                scheduler.add_request(asked)
        step += 1
        plan = scheduler.schedule()
        requests = {name: scheduler.requests[name] for name in plan.num_scheduled_tokens}
        sampled = [_sampled(chance, one, plan) for one in requests.values()]
        for name, request in requests.items():
            kept[int(name)] = _states(scheduler, request)
        names = list(requests)
        scheduler.update_from_output(
            plan,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        for name, request in requests.items():
            if request.is_finished():
                said[int(name)] = list(request.all_token_ids)
                ended[int(name)] = step
        if scheduler.num_spec_tokens and names and not _is_ahead(scheduler):
            drafted = [
                [chance.randrange(WORDS) for _ in range(scheduler.num_spec_tokens)] for _ in names
            ]
            scheduler.update_draft_token_ids(DraftTokenIds(names, drafted))
    return said, kept


def _is_ahead(scheduler: Any) -> bool:
    """Return whether a scheduler runs ahead of the device."""
    return type(scheduler).__name__ == "AsyncScheduler"


def _sampled(chance: Random, request: Any, plan: Any) -> Tokens:
    """Make up what a pass yields for a request: nothing before its prompt is read."""
    name = request.request_id
    drafts = plan.scheduled_spec_decode_tokens.get(name, [])
    read = request.num_computed_tokens - len(drafts)
    if read < request.num_tokens:
        return []
    accepted = 0
    while accepted < len(drafts) and chance.random() < 0.6:
        accepted += 1
    return [chance.randrange(WORDS) for _ in range(accepted + 1)]


def _states(scheduler: Any, request: Any) -> list[int]:
    """Return the ends, in units, of the prefixes of a request whose states are in the cache."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    last = len(manager.coordinator.single_type_managers) - 1
    if last < 1:
        return []
    return [
        index + 1
        for index, block_hash in enumerate(request.block_hashes)
        if pool.get_cached_block(block_hash, [last]) is not None
    ]
