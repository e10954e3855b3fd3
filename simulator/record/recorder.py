"""Lets the target write, then asks draft and early exits about every token it wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simulator.record import corpus
from simulator.record.network import Cache, Network, parameters
from simulator.record.scores import rank_of
from simulator.record.training import (
    BATCH,
    CONTEXT,
    DRAFT_SCHEDULE,
    EXIT_LAYERS,
    EXIT_SCHEDULE,
    TARGET_SCHEDULE,
    VOCABULARY,
    Family,
    weights_hash,
)
from simulator.traces import FORMAT, Trace

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 192
CANDIDATES = 3
"""Requests written for each one kept."""
COMMAND = "python -m simulator.record --work DIR --out scenarios/traces"


def prompts(family: Family, flavour: str, count: int) -> Tensor:
    """(count, PROMPT_TOKENS) token ids from held-out documents, evenly spread over them."""
    windows = [
        document[start : start + PROMPT_TOKENS]
        for start in range(0, 16 * PROMPT_TOKENS, PROMPT_TOKENS)
        for document in family.text.held_out[flavour]
        if len(document) >= start + PROMPT_TOKENS
    ]
    if len(windows) < count:
        raise ValueError(f"{flavour}: {len(windows)} prompts of {PROMPT_TOKENS} tokens held out, {count} wanted")
    return torch.from_numpy(np.stack(windows[:count]).astype(np.int64))


@torch.no_grad()
def generate(target: Network, prompt: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """(requests, OUTPUT_TOKENS) ids written by the target; temperature 0 takes the first choice."""
    cache: Cache = []
    tokens, written, start = prompt, [], 0
    for _ in range(OUTPUT_TOKENS):
        logits = target(tokens, start, cache)[:, -1]
        start += tokens.shape[1]
        if temperature == 0:
            tokens = logits.argmax(-1, keepdim=True)
        else:
            tokens = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        written.append(tokens)
    return torch.cat(written, 1)


def least_repetitive(written: Tensor, count: int) -> Tensor:
    """Rows with the most distinct four-token sequences, in their own order: small models fall into loops."""
    grams = written.unfold(1, 4, 1)
    distinct = torch.tensor([len(set(map(tuple, row.tolist()))) for row in grams])
    return distinct.argsort(descending=True, stable=True)[:count].sort().values


def probability_of(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Probability of each token at ``temperature`` (1 stands in for greedy: the model's own confidence)."""
    return (logits / (temperature or 1.0)).softmax(-1).gather(-1, tokens[..., None])[..., 0]


@torch.no_grad()
def observe(family: Family, prompt: Tensor, written: Tensor, temperature: float) -> dict[str, np.ndarray]:
    """Ranks and probabilities of every written token, each array flat over (requests, OUTPUT_TOKENS)."""
    context = torch.cat((prompt, written), 1)[:, :-1]
    states = [state[:, PROMPT_TOKENS - 1 :] for state in family.target.hidden(context)]
    target, draft = family.target.head(states[-1]), family.draft(context)[:, PROMPT_TOKENS - 1 :]
    exits = [head(states[layer - 1], family.target) for layer, head in zip(EXIT_LAYERS, family.exits, strict=True)]
    return {
        "token": written.numpy().astype(np.uint16).ravel(),
        "draft_rank": rank_of(draft, written).numpy().astype(np.uint16).ravel(),
        "p": probability_of(target, written, temperature).numpy().astype(np.float16).ravel(),
        "q": probability_of(draft, written, temperature).numpy().astype(np.float16).ravel(),
        "exit_rank": torch.stack([rank_of(logits, written).flatten() for logits in exits]).numpy().astype(np.uint16),
    }


def record(family: Family, temperature: float, per_flavour: int, seed: int, command: str) -> Trace:
    """A trace of ``per_flavour`` requests of every flavour."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for flavour in corpus.FLAVOURS:
        prompt = prompts(family, flavour.name, per_flavour * CANDIDATES)
        written = generate(family.target, prompt, temperature, generator)
        kept = least_repetitive(written, per_flavour)
        prompt, written = prompt[kept], written[kept]
        parts.append(observe(family, prompt, written, temperature))
    arrays = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    requests = per_flavour * len(corpus.FLAVOURS)
    return Trace(
        header=describe(family, temperature, seed, command),
        offsets=np.arange(requests + 1, dtype=np.int64) * OUTPUT_TOKENS,
        flavour=np.repeat(np.arange(len(corpus.FLAVOURS), dtype=np.uint8), per_flavour),
        **arrays,
    )


def describe(family: Family, temperature: float, seed: int, command: str) -> dict[str, object]:
    """The header: everything needed to know what was recorded and to record it again."""
    tokens_per_step = BATCH * CONTEXT
    models = {"target": (family.target, TARGET_SCHEDULE), "draft": (family.draft, DRAFT_SCHEDULE)}
    return {
        "format": FORMAT,
        "temperature": temperature,
        "seed": seed,
        "command": command,
        "vocabulary": VOCABULARY,
        "tokenizer": "byte-level BPE trained on the corpus",
        "prompt_tokens": PROMPT_TOKENS,
        "selection": f"the least repetitive of {CANDIDATES} times as many requests, by distinct four-token sequences",
        "exit_layers": list(EXIT_LAYERS),
        "exits": {
            "steps": EXIT_SCHEDULE.steps,
            "seed": EXIT_SCHEDULE.seed,
            "loss": family.loss["exits"],
            "hash": weights_hash(family.exits),
        },
        "flavours": [flavour.name for flavour in corpus.FLAVOURS],
        "text": {
            "digest": family.text.digest,
            "sources": {
                f.name: {"packages": list(f.packages), "licence": f.licence, "about": f.about} for f in corpus.FLAVOURS
            },
        },
        "models": {
            role: {
                "shape": network.shape.describe(),
                "parameters": parameters(network),
                "training_steps": schedule.steps,
                "training_tokens": schedule.steps * tokens_per_step,
                "seed": schedule.seed,
                "loss": family.loss[role],
                "objective": "next token" if role == "target" else "distilled from the target (forward KL)",
                "hash": weights_hash(network),
            }
            for role, (network, schedule) in models.items()
        },
    }


def record_all(family: Family, folder: Path, per_flavour: int) -> list[Path]:
    """The shipped traces: greedy and sampled at temperature 1."""
    paths = []
    for name, temperature in (("six_flavours_greedy", 0.0), ("six_flavours_sampled", 1.0)):
        trace = record(family, temperature, per_flavour, seed=7, command=COMMAND)
        path = folder / f"{name}.npz"
        trace.write(path)
        paths.append(path)
    return paths
