"""Files of a running service that is a simulation: the result of ``vllm bench serve``, and scrapes
of ``/metrics`` before and after, and answers with their drafts where there are any.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from simulator.core.serving.iteration import Iteration
from simulator.core.serving.requests import Request
from simulator.scenario import Loaded
from simulator.scenario.pools import service_of


def served(loaded: Loaded) -> tuple[list[Request], dict[int, list[tuple[float, int]]]]:
    """The requests of a run in the order in which they came, and of each when its chunks came and
    how many tokens they had, the last one as the engine counts it: past the end.
    """
    requests: list[Request] = []
    chunks: dict[int, list[tuple[float, int]]] = defaultdict(list)

    def note(iteration: Iteration) -> None:
        for request, tokens in zip(iteration.requests, iteration.tokens, strict=True):
            if tokens:
                chunks[request].append((iteration.start_s + iteration.duration_s, tokens))

    service = service_of(loaded.scenario, loaded.acceptance())
    service.run(on_iteration=note, on_finished=requests.append)
    return sorted(requests, key=lambda request: request.index), chunks


def write_service(folder: Path, loaded: Loaded) -> list[Path]:
    """Write the files of a service that is a scenario of a closed loop; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    requests, chunks = served(loaded)
    window = loaded.scenario.schedule.window
    detailed: dict[str, list[object]] = defaultdict(list)
    kept = [0] * window
    drafts = 0
    for request in requests:
        times_s = [at_s for at_s, _ in chunks[request.index]]
        detailed["start_times"].append(100.0 + request.arrival_s)
        detailed["ttfts"].append(request.spent_s["ttft"])
        detailed["itls"].append([later - sooner for sooner, later in pairwise(times_s)])
        detailed["input_lens"].append(request.prompt_tokens)
        detailed["output_lens"].append(request.output_tokens)
        detailed["errors"].append("")
        for _, tokens in chunks[request.index][1:] if window else ():
            drafts += 1
            for position in range(tokens - 1):
                kept[position] += 1
    prompts = sum(request.prompt_tokens for request in requests)
    outputs = sum(request.output_tokens for request in requests)
    result = {
        "model_id": "target",
        "backend": "vllm",
        "completed": len(requests),
        "failed": 0,
        "request_rate": "inf",
        "max_concurrency": loaded.scenario.requests.concurrency,
        "duration": max(request.finished_s for request in requests),
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        **detailed,
    }
    counters = {
        "vllm:request_success_total": len(requests),
        "vllm:prompt_tokens_total": prompts,
        "vllm:generation_tokens_total": outputs,
    }
    if window:
        counters |= {
            "vllm:spec_decode_num_drafts_total": drafts,
            "vllm:spec_decode_num_draft_tokens_total": drafts * window,
            "vllm:spec_decode_num_accepted_tokens_total": sum(kept),
        }
        for position, count in enumerate(kept):
            name = f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}}'
            counters[name] = count
    paths = [folder / "bench.json", folder / "before.txt", folder / "after.txt"]
    if window:
        paths.append(folder / "answers.jsonl")
        answers = [answer(request, chunks[request.index][1:], window) for request in requests]
        paths[-1].write_text("".join(json.dumps(each) + "\n" for each in answers))
    paths[0].write_text(json.dumps(result, allow_nan=False))
    paths[1].write_text(scrape(dict.fromkeys(counters, 0)))
    paths[2].write_text(scrape(counters))
    return paths


def answer(request: Request, steps: list[tuple[float, int]], window: int) -> dict[str, object]:
    """What a vLLM answers with ``--per-request-spec-decode-metrics detailed``."""
    kept = [tokens - 1 for _, tokens in steps]
    return {
        "system_fingerprint": "vllm-0.32.0",
        "choices": [{"index": 0}],
        "usage": {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.output_tokens,
        },
        "metrics": {
            "speculative_decoding": {
                "num_spec_tokens": window,
                "num_spec_steps": len(kept),
                "num_draft_tokens": window * len(kept),
                "num_accepted_draft_tokens": sum(kept),
                "per_step_accepted": kept,
                "per_step_drafted": [window] * len(kept),
            }
        },
    }


def scrape(counters: dict[str, int]) -> str:
    """The text of ``/metrics`` with these counters."""
    lines = []
    typed = set()
    for name, value in counters.items():
        family = name.partition("{")[0]
        if family not in typed:
            lines.append(f"# TYPE {family} counter")
            typed.add(family)
        lines.append(f"{name} {float(value)}")
    return "\n".join(lines) + "\n"
