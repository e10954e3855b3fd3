"""Asks the draft of the small pair about every token that its target wrote, chain by chain and
through dynamic trees.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.family.draft_tree import TravellingTree
from benchmarks.family.network import VOCABULARY, Network
from benchmarks.family.pair import Family, weights_hash
from benchmarks.family.tree_drafter import TreeDrafter
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.trace import FORMAT, Trace
from simulator.record.scores import Sampling, rank_of

PROMPT_TOKENS = 64
MOST_STAGES = 16
Arrays = dict[str, np.ndarray]


@torch.no_grad()
def observe(
    family: Family, prompt: Tensor, written: Tensor, sampling: Sampling, recorded: Sequence[Beam]
) -> Arrays:
    """Return ranks and probabilities of every written token, flat over (requests, tokens);
    ``recorded``: dynamic trees.
    """
    sequence = torch.cat((prompt, written), 1)
    trees = [passages(family, text, recorded) for text in sequence]
    return common_arrays(family.target, family.draft, sequence, written, sampling, trees)


def common_arrays(
    target: Network,
    draft: Network,
    sequence: Tensor,
    written: Tensor,
    sampling: Sampling,
    further: Sequence[Arrays],
) -> Arrays:
    """Return what both networks say of the tokens ``written`` that end each sequence, and
    ``further`` arrays by sequence.

    ``sequence`` (requests, tokens), ``written`` (requests, tokens); further arrays grow along their
    last axis.
    """
    p, _ = judged(target, sequence, written, sampling)
    q, rank = judged(draft, sequence, written, sampling)
    return {
        "token": written.numpy().astype(np.uint16).ravel(),
        "p": p,
        "q": q,
        "draft_rank": rank,
        "exit_rank": np.zeros((0, written.numel()), dtype=np.uint16),
        **{name: np.concatenate([part[name] for part in further], axis=-1) for name in further[0]},
    }


def judged(
    network: Network, sequence: Tensor, written: Tensor, sampling: Sampling
) -> tuple[np.ndarray, np.ndarray]:
    """Return a network's probabilities and ranks of the tokens that end the ``sequence`` (requests,
    tokens), flat.
    """
    logits = network(sequence[:, :-1])[:, -written.shape[1] :]
    return flat(sampling.probability(logits, written), np.float16), flat(
        rank_of(logits, written), np.uint16
    )


def flat(values: Tensor, dtype: type) -> np.ndarray:
    """Return values of all requests in a row, in the type that a trace stores."""
    return values.numpy().astype(dtype).ravel()


def passages(family: Family, text: Tensor, recorded: Sequence[Beam]) -> Arrays:
    """Return how every token of one request leaves a pipeline that is fed with each of the dynamic
    trees.

    ``beam.steps`` and ``beam.hit``: (trees, positions); ``beam.rows``: (trees, most stages,
    positions), the rows at each stage in the step in which a token leaves the last one, zeros
    behind the last stage.
    """
    if not recorded:
        return {}
    tokens = text.tolist()
    drafter = TreeDrafter(family.draft, tokens, max(beam.branching for beam in recorded))
    written = tokens[PROMPT_TOKENS:]
    steps = np.zeros((len(recorded), len(written)), dtype=np.uint8)
    hit = np.zeros_like(steps)
    rows = np.zeros((len(recorded), MOST_STAGES, len(written)), dtype=np.uint8)
    for index, beam in sorted(enumerate(recorded), key=lambda item: -item[1].width):
        tree = TravellingTree(written[0], PROMPT_TOKENS, drafter, beam)
        for position, token in enumerate(written[1:], start=1):
            passage = tree.verify(token)
            steps[index, position], hit[index, position] = passage.steps, passage.hit
            rows[index, : beam.stages, position] = passage.rows
    return {"beam.steps": steps, "beam.hit": hit, "beam.rows": rows}


def assemble(header: Mapping[str, Any], parts: Sequence[Arrays], tokens: int) -> Trace:
    """Join parts of one flavour each into one trace, in requests of ``tokens``."""
    arrays = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    counts = [len(part["token"]) // tokens for part in parts]
    return Trace(
        header=header,
        offsets=np.arange(sum(counts) + 1, dtype=np.int64) * tokens,
        flavour=np.repeat(np.arange(len(parts), dtype=np.uint8), counts),
        extra={name: arrays.pop(name) for name in list(arrays) if "." in name},
        **arrays,
    )


def describe(
    family: Family, sampling: Sampling, seed: int, recorded: Sequence[Beam]
) -> dict[str, Any]:
    """Return a header: everything needed to know what was recorded, but for the command."""
    models = family.header["models"]
    return {
        "format": FORMAT,
        "temperature": sampling.temperature,
        "sampling": {"top_k": sampling.top_k, "top_p": sampling.top_p},
        "seed": seed,
        "vocabulary": VOCABULARY,
        "tokenizer": "byte-level BPE trained on the corpus",
        "prompt_tokens": PROMPT_TOKENS,
        "exit_layers": [],
        "flavours": ["all"],
        "beams": [beam._asdict() for beam in recorded],
        "text": family.header["text"],
        "models": {
            name: {**models[name], "hash": weights_hash(module)}
            for name, module in family.modules.items()
        },
    }
