"""Prompts of the requests, and what draft and look-up get right of the answers: a trace.

The target writes the answers here with PyTorch, as it does in vLLM; nothing of the engine decides
what is in the trace. Prompts are what the target wrote in the shipped trace, whose own prompts are
not shipped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.family.observations import Arrays, assemble, describe, judged
from benchmarks.family.pair import Family
from benchmarks.family.writing import generate
from benchmarks.live.vllm.exported import PAIR, word
from benchmarks.live.vllm.settings import (
    LOOK_UP,
    MOST_DRAFTS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
)
from benchmarks.verification import accepted_prefix
from simulator.core.acceptance.trace import Trace
from simulator.inputs.traces import file as trace_file
from simulator.record.scores import Sampling

SHIPPED = PAIR.parents[1] / "traces/six_flavours_greedy.npz"
MORE_TOKENS = MOST_DRAFTS + 1
"""Recorded behind what is asked for, for drafts that go beyond the end."""


def prompts() -> list[list[int]]:
    """Return the prompts as token ids, flavours in turn."""
    trace = trace_file.read(SHIPPED)
    flavours = len(trace.header["flavours"])
    by_flavour = [np.flatnonzero(trace.flavour == flavour) for flavour in range(flavours)]
    made = []
    for index in range(PROMPTS):
        request = by_flavour[index % flavours][index // flavours]
        begin = int(trace.offsets[request])
        made.append(trace.token[begin : begin + PROMPT_TOKENS].astype(int).tolist())
    return made


def write_prompts(path: Path) -> None:
    """Write the prompts as ``vllm bench serve`` reads them (``--dataset-name sharegpt``)."""
    conversations = []
    for prompt in prompts():
        text = " ".join(word(token) for token in prompt)
        conversations.append({"conversations": [{"value": text}, {"value": word(0)}]})
    path.write_text(json.dumps(conversations, allow_nan=False))


def look_up(text: Sequence[int], drafts: int = MOST_DRAFTS) -> list[int]:
    """Return what vLLM's n-gram proposer drafts behind ``text``: what stands behind the first place
    where its last ``LOOK_UP`` tokens stand, none where they are new.

    Source: vllm/v1/spec_decode/ngram_proposer.py of 0.32.0, with prompt_lookup_min = max.
    """
    suffix = list(text[-LOOK_UP:])
    for end in range(LOOK_UP, len(text)):
        if list(text[end - LOOK_UP : end]) == suffix:
            return list(text[end : end + drafts])
    return []


def record(path: Path) -> Trace:
    """Record the answers to all prompts, and write the trace; returns it."""
    family, sampling = Family.read(PAIR), Sampling()
    flavours = trace_file.read(SHIPPED).header["flavours"]
    prompt = torch.tensor(prompts())
    tokens = OUTPUT_TOKENS + MORE_TOKENS
    written = generate(family.target, prompt, tokens, sampling, torch.Generator())
    parts: list[list[Arrays]] = [[] for _ in flavours]
    for index in range(len(prompt)):
        of_one = observed(family, prompt[index : index + 1], written[index : index + 1])
        parts[index % len(flavours)].append(of_one)
    header = describe(family, sampling, 0, ()) | {
        "flavours": flavours,
        "prompt_tokens": PROMPT_TOKENS,
        "lookup": {"longest_ngram": LOOK_UP, "proposed_tokens": MOST_DRAFTS},
        "command": "python -m benchmarks.live.vllm.loop acceptance",
    }
    joined = [
        {name: np.concatenate([part[name] for part in own], axis=-1) for name in own[0]}
        for own in parts
    ]
    trace = assemble(header, joined, tokens)
    trace_file.write(trace, path)
    return trace


def observed(family: Family, prompt: Tensor, written: Tensor) -> Arrays:
    """Return what draft and look-up say of each token of the answer to one prompt, each (1,
    tokens).
    """
    text = torch.cat((prompt, written), 1)
    p, _ = judged(family.target, text, written, Sampling())
    q, rank = judged(family.draft, text, written, Sampling())
    tokens, answer = text[0].tolist(), written[0].tolist()
    found = [look_up(tokens[: PROMPT_TOKENS + place]) for place in range(len(answer))]
    right = [accepted_prefix(drafts, answer[place:]) for place, drafts in enumerate(found)]
    return {
        "token": np.array(answer, dtype=np.uint16),
        "p": p,
        "q": q,
        "draft_rank": rank,
        "exit_rank": np.zeros((0, len(answer)), dtype=np.uint16),
        "lookup.proposed": np.array([len(drafts) for drafts in found], dtype=np.uint16),
        "lookup.run": np.array(right, dtype=np.uint16),
    }
