"""The target writes: prompts in, its own continuations out."""

import torch
from torch import Tensor

from benchmarks.family.network import Cache, Network
from simulator.record.scores import Sampling


@torch.no_grad()
def generate(
    target: Network, prompt: Tensor, count: int, sampling: Sampling, generator: torch.Generator
) -> Tensor:
    """Return (requests, count) ids written by the target; temperature 0 takes the first choice."""
    cache: Cache = []
    tokens, written, start = prompt, [], 0
    for _ in range(count):
        logits = target(tokens, start, cache)[:, -1]
        start += tokens.shape[1]
        if sampling.temperature == 0:
            tokens = logits.argmax(-1, keepdim=True)
        else:
            tokens = torch.multinomial(sampling.distribution(logits), 1, generator=generator)
        written.append(tokens)
    return torch.cat(written, 1)
