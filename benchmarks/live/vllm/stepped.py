"""A load against ``vllm.LLM`` in one process, step by step, with what its scheduler decided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.live.vllm.loads import LONGEST, SPECULATION, UNIT, Asked, Load, Setting, rows
from benchmarks.live.vllm.models import VOCABULARY, write_all
from benchmarks.live.vllm.sessions import Tokens, in_common


def record(setting: Setting, seed: int, folder: Path) -> dict[str, Any]:
    """Serve a drawn load; return its requests and the steps in which they were served."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    from vllm import LLM

    from benchmarks.live.vllm.steps import watched

    models = write_all(folder)
    speculation = None
    if setting.drafts:
        speculation = {**SPECULATION[setting.method], "num_speculative_tokens": setting.drafts}
        if "model" in speculation:
            speculation["model"] = str(models[speculation["model"]])
    engine = LLM(
        str(models["target"]),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=LONGEST + 2 * UNIT,
        block_size=UNIT,
        num_gpu_blocks_override=setting.blocks + 1,
        enable_prefix_caching=setting.caching,
        max_num_seqs=setting.together,
        max_num_batched_tokens=setting.budget,
        scheduling_policy="priority" if setting.ranked else "fcfs",
        speculative_config=speculation,
    ).llm_engine
    config = engine.vllm_config
    load = Load(setting, seed, VOCABULARY)
    with watched() as seen:
        asked, said = serve(engine, load, seen)
    dropped = bool(speculation) and config.speculative_config.use_eagle_block_drop()
    return {
        **{name: getattr(setting, name) for name in Setting.__dataclass_fields__},
        "seed": seed,
        "unit": UNIT,
        "blocks": config.cache_config.num_gpu_blocks - 1,
        "dropped": int(dropped),
        "requests": rows(asked, in_common(said)),
        "steps": seen.steps,
    }


def serve(engine: Any, load: Load, seen: Any) -> tuple[list[Asked], list[Tokens]]:
    """Serve a load to its end; return the requests, and prompts with outputs."""
    from vllm import SamplingParams

    asked: list[Asked] = []
    said: list[Tokens] = []
    inside = 0
    while load.sent < load.setting.requests or inside:
        for one in load.due(inside):
            limits = SamplingParams(
                temperature=0, max_tokens=one.output, ignore_eos=True, detokenize=False
            )
            name = str(len(asked))
            prompt = {"prompt_token_ids": one.prompt}
            engine.add_request(name, prompt, limits, priority=one.priority)
            asked.append(one)
            said.append(one.prompt)
            seen.arrived += 1
            inside += 1
        if not inside:
            seen.idle()
            continue
        for answer in engine.step():
            if answer.finished:
                number = int(answer.request_id)
                said[number] = [*said[number], *answer.outputs[0].token_ids]
                load.ended.append(said[number])
                inside -= 1
    return asked, said
