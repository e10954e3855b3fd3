"""Lets the target write, then asks every drafter about every token it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from simulator.record import corpus, lookup
from simulator.record.family import EXIT_LAYERS, HEADS, VOCABULARY, Family, weights_hash
from simulator.record.network import Cache, Network
from simulator.record.scores import rank_of
from simulator.record.training import Text
from simulator.traces import FORMAT, UNKNOWN, Trace

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 192
CANDIDATES = 3
"""Requests written for each one kept."""
COMMAND = "python -m simulator.record --work DIR --out scenarios"
TRACES = {"six_flavours_greedy": 0.0, "six_flavours_warm": 0.6, "six_flavours_sampled": 1.0}
"""Name and temperature of each shipped trace."""

Arrays = dict[str, np.ndarray]


def prompts(text: Text, flavour: str, count: int) -> Tensor:
    """(count, PROMPT_TOKENS) token ids from held-out documents, evenly spread over them."""
    windows = [
        document[start : start + PROMPT_TOKENS]
        for start in range(0, 16 * PROMPT_TOKENS, PROMPT_TOKENS)
        for document in text.held_out[flavour]
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
def observe(family: Family, prompt: Tensor, written: Tensor, temperature: float) -> Arrays:
    """Ranks and probabilities of every written token, each array flat over (requests, OUTPUT_TOKENS)."""
    sequence = torch.cat((prompt, written), 1)
    context = sequence[:, :-1]
    states = family.target.hidden(context)
    here = [state[:, PROMPT_TOKENS - 1 :] for state in states]
    target = family.target.head(here[-1])
    exits = [head(here[layer - 1], family.target) for layer, head in zip(EXIT_LAYERS, family.exits, strict=True)]
    arrays = {
        "token": written.numpy().astype(np.uint16).ravel(),
        "p": _flat(probability_of(target, written, temperature), np.float16),
        "exit_rank": np.stack([_flat(rank_of(logits, written), np.uint16) for logits in exits]),
    }
    for name, rank, chance in (("draft", "draft_rank", "q"), ("plain", "plain.rank", "plain.q")):
        logits = family.modules[name](context)[:, PROMPT_TOKENS - 1 :]
        arrays[rank] = _flat(rank_of(logits, written), np.uint16)
        arrays[chance] = _flat(probability_of(logits, written, temperature), np.float16)
    for name in HEADS:
        arrays |= _ahead(name, family.modules[name], family.target, states, sequence, temperature)
    return arrays | _looked_up(prompt, written)


def _flat(values: Tensor, dtype: type) -> np.ndarray:
    return values.numpy().astype(dtype).ravel()


def _ahead(name: str, head: nn.Module, target: Network, states: list[Tensor], sequence: Tensor, temperature: float) -> Arrays:
    """``NAME.rank`` and, where it is needed, ``NAME.q``: (depths, positions), for a window starting at each position.

    A window that starts at token s stands behind token s - 1, which the target has just yielded and not yet
    read: the newest state is that of token s - 2, and depth d is about token s + d.
    """
    ranks, chances = [], []
    for depth, logits in enumerate(head(target, states, sequence)):
        known = OUTPUT_TOKENS - depth
        rows, tokens = logits[:, PROMPT_TOKENS - 2 :][:, :known], sequence[:, PROMPT_TOKENS + depth :]
        behind = (0, depth)
        ranks.append(_flat(nn.functional.pad(rank_of(rows, tokens), behind, value=UNKNOWN), np.uint16))
        chances.append(_flat(nn.functional.pad(probability_of(rows, tokens, temperature), behind), np.float16))
    found = {f"{name}.rank": np.stack(ranks)}
    return found | {f"{name}.q": np.stack(chances)} if temperature else found


def _looked_up(prompt: Tensor, written: Tensor) -> Arrays:
    """``lookup.proposed`` and ``lookup.run``: tokens that prompt look-up would propose here, and how many are right."""
    rows = [pair for p, w in zip(prompt.tolist(), written.tolist(), strict=True) for pair in lookup.replay(p, w)]
    proposed, right = np.array(rows, dtype=np.uint16).T
    return {"lookup.proposed": proposed.copy(), "lookup.run": right.copy()}


def record(family: Family, text: Text, temperature: float, per_flavour: int, seed: int) -> Trace:
    """A trace of ``per_flavour`` requests of every flavour."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for flavour in corpus.FLAVOURS:
        prompt = prompts(text, flavour.name, per_flavour * CANDIDATES)
        written = generate(family.target, prompt, temperature, generator)
        kept = least_repetitive(written, per_flavour)
        parts.append(observe(family, prompt[kept], written[kept], temperature))
    return assemble(family, parts, temperature, seed)


def assemble(family: Family, parts: Sequence[Arrays], temperature: float, seed: int) -> Trace:
    """One trace of parts observed apart, each of one flavour."""
    arrays = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    counts = [len(part["token"]) // OUTPUT_TOKENS for part in parts]
    return Trace(
        header=describe(family, temperature, seed),
        offsets=np.arange(sum(counts) + 1, dtype=np.int64) * OUTPUT_TOKENS,
        flavour=np.repeat(np.arange(len(parts), dtype=np.uint8), counts),
        extra={name: arrays.pop(name) for name in list(arrays) if "." in name},
        **arrays,
    )


def describe(family: Family, temperature: float, seed: int) -> dict[str, object]:
    """The header: everything needed to know what was recorded and to record it again."""
    models = {name: {**about, "hash": weights_hash(family.modules[name])} for name, about in family.header["models"].items()}
    return {
        "format": FORMAT,
        "temperature": temperature,
        "seed": seed,
        "command": COMMAND,
        "vocabulary": VOCABULARY,
        "tokenizer": "byte-level BPE trained on the corpus",
        "prompt_tokens": PROMPT_TOKENS,
        "selection": f"the least repetitive of {CANDIDATES} times as many requests, by distinct four-token sequences",
        "exit_layers": list(EXIT_LAYERS),
        "flavours": [flavour.name for flavour in corpus.FLAVOURS],
        "lookup": {"longest_ngram": lookup.LONGEST, "proposed_tokens": lookup.PROPOSED},
        "text": family.header["text"],
        "models": models,
    }


def record_all(family: Family, text: Text, folder: Path, per_flavour: int) -> Iterator[Path]:
    """The shipped traces, greedy and sampled, one after the other."""
    for name, temperature in TRACES.items():
        path = folder / f"{name}.npz"
        record(family, text, temperature, per_flavour, seed=7).write(path)
        yield path
