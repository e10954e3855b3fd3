"""Live decoding with the drafters that only recordings have: what their replay must reproduce, step
for step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.family.heads import StateAndToken
from benchmarks.family.lookup import propose
from benchmarks.family.network import Network, Reader
from benchmarks.family.ngram import Trie
from benchmarks.live.decoding import Decoded, Drafter


def head_drafter(target: Network, head: nn.Module) -> Drafter:
    """Return a drafter with a head on the target's states; each depth reads what the depths before
    proposed.
    """

    @torch.no_grad()
    def write(text: list[int], count: int) -> list[int]:
        states = target.hidden(torch.tensor([text[:-1]]))
        known, longer = list(text), {"depths": count} if isinstance(head, StateAndToken) else {}
        for depth in range(count):
            known.append(
                int(head(target, states, torch.tensor([known]), **longer)[depth][0, -1].argmax())
            )
        return known[len(text) :]

    return write


def lookup_drafter() -> Drafter:
    """Return a drafter by prompt look-up (:mod:`benchmarks.family.lookup`)."""
    return lambda text, count: propose(text)[:count]


def ngram_drafter() -> Drafter:
    """Return a drafter by n-grams (:mod:`benchmarks.family.ngram`), counted anew in every step."""
    return lambda text, count: Trie(text).propose()[:count]


def sample_speculatively(
    target: Network,
    draft: Network,
    prompt: list[int],
    gamma: int,
    tokens: int,
    generator: torch.Generator,
) -> Decoded:
    """Decode by speculative sampling at temperature 1: accept x ~ q with min(1, p/q), else draw
    from max(p - q, 0) (X-2).
    """
    reader, drafting = Reader(target), Reader(draft)
    p = reader.extend(prompt)[-1].softmax(-1)
    text = [*prompt, _draw(p, generator)]
    drafting.extend(prompt)
    accepted = []
    while len(text) - len(prompt) < tokens:
        proposal, q = [], []
        unread = text[drafting.read :]
        for _ in range(gamma):
            q.append(drafting.extend(unread)[-1].softmax(-1))
            proposal.append(_draw(q[-1], generator))
            unread = proposal[-1:]
        p = reader.extend([text[-1], *proposal]).softmax(-1)
        kept = 0
        while (
            kept < gamma
            and torch.rand((), generator=generator) * q[kept][proposal[kept]]
            < p[kept][proposal[kept]]
        ):
            kept += 1
        last = p[kept] if kept == gamma else (p[kept] - q[kept]).clamp(min=0)
        text += [*proposal[:kept], _draw(last, generator)]
        accepted.append(kept)
        reader.keep(len(text) - 1)
        drafting.keep(min(drafting.read, len(text) - 1))
    return Decoded(text[len(prompt) :], accepted)


def _draw(weights: Tensor, generator: torch.Generator) -> int:
    return int(torch.multinomial(weights, 1, generator=generator))
