"""Drawn sessions against ``vllm.LLM`` in one process, with each kind of speculation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.live.vllm.models import VOCABULARY, write_all
from benchmarks.live.vllm.sessions import Tokens, Turn, draw, in_common, prompt_of

METHODS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
    "draft_model": {"method": "draft_model", "model": "draft", "num_speculative_tokens": 3},
    "eagle": {"method": "eagle", "model": "eagle", "num_speculative_tokens": 3},
    "eagle3": {"method": "eagle3", "model": "eagle3", "num_speculative_tokens": 2},
}
UNITS = (32, 128)
"""Block sizes; the attention of a CPU takes multiples of 32."""
CACHES = {"ample": (20.0, 4, 30), "small": (2.0, 2, 60), "tiny": (1.3, 8, 4)}
"""Room of the cache in sequences of the longest length, requests that run together, and steps
between the beginnings of sessions.
"""


def record(method: str, unit: int, cache: str, seed: int, folder: Path) -> dict[str, Any]:
    """Serve drawn sessions; return what they were and what the cache was asked for."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    from vllm import LLM

    from benchmarks.live.vllm.record import watched

    models = write_all(folder)
    speculation = METHODS[method]
    if speculation and "model" in speculation:
        speculation = {**speculation, "model": str(models[speculation["model"]])}
    turns = draw(seed, unit, sessions=8, longest_output=64 if unit < 100 else 96)
    longest = max(turn.total for turn in turns) + 8
    share, together, spacing = CACHES[cache]
    budget = max(64, 2 * unit)
    engine = LLM(
        str(models["target"]),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=longest,
        block_size=unit,
        num_gpu_blocks_override=int(share * -(-longest // unit)) + 2,
        max_num_seqs=together,
        max_num_batched_tokens=budget,
        speculative_config=speculation,
        disable_log_stats=False,
    ).llm_engine
    config = engine.vllm_config
    with watched(unit) as events:
        said, hits = serve(engine, turns, seed, spacing)
    check_hits(events, hits)
    return {
        "method": method,
        "unit": unit,
        "dropped": int(bool(speculation) and config.speculative_config.use_eagle_block_drop()),
        "cache": cache,
        "blocks": config.cache_config.num_gpu_blocks - 1,
        "lookahead": config.num_lookahead_tokens,
        "together": together,
        "budget": budget,
        "seed": seed,
        **drafts(engine),
        "requests": described(turns, said),
        "events": events,
    }


def described(turns: Sequence[Turn], said: Sequence[Tokens]) -> list[list[int]]:
    """Return a row for each request (see ``record.COLUMNS``)."""
    rows = []
    for turn, (earlier, tokens) in zip(turns, in_common(said), strict=True):
        parent = -1 if turn.parent is None else turn.parent
        rows.append([turn.session, turn.turn, parent, earlier, tokens, turn.prompt, turn.output])
    return rows


def serve(
    engine: Any, turns: Sequence[Turn], seed: int, spacing: int
) -> tuple[list[Tokens], dict[int, int]]:
    """Serve turns, each when its time has come; return prompts with outputs, and hits as the
    answers say them.
    """
    from vllm import SamplingParams

    new = Random(seed + 1)
    systems = [[new.randrange(3, VOCABULARY) for _ in range(10_000)] for _ in range(3)]
    said: list[Tokens] = [[] for _ in turns]
    hits: dict[int, int] = {}
    ended: dict[int | None, int] = {None: 0}
    waiting = list(range(len(turns)))
    step = 0
    while len(ended) <= len(turns):
        for number in list(waiting):
            turn = turns[number]
            start = spacing * turn.session if turn.parent is None else 0
            if turn.parent in ended and ended[turn.parent] + start + turn.after <= step:
                waiting.remove(number)
                said[number] = prompt_of(turn, systems, said, new, VOCABULARY)
                limits = SamplingParams(
                    temperature=0, max_tokens=turn.output, ignore_eos=True, detokenize=False
                )
                engine.add_request(str(number), {"prompt_token_ids": said[number]}, limits)
        for answer in engine.step():
            if answer.finished:
                number = int(answer.request_id)
                said[number] = [*said[number], *answer.outputs[0].token_ids]
                hits[number] = answer.num_cached_tokens
                ended[number] = step
        step += 1
    return said, hits


def check_hits(events: Sequence[Sequence[int]], hits: dict[int, int]) -> None:
    """Raise where the first grant of a request says another hit than its answer."""
    granted: dict[int, int] = {}
    for kind, *rest in events:
        if kind == 1:
            granted.setdefault(rest[0], rest[1])
    if granted != hits:
        raise AssertionError(f"grants say {granted}, answers {hits}")


def drafts(engine: Any) -> dict[str, int]:
    """Return how many tokens were drafted and accepted."""
    counters = {metric.name: getattr(metric, "value", 0) for metric in engine.get_metrics()}
    return {
        "drafted": int(counters.get("vllm:spec_decode_num_draft_tokens", 0)),
        "accepted": int(counters.get("vllm:spec_decode_num_accepted_tokens", 0)),
    }
