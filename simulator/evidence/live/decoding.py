"""Live decoding with a small pair: what a replay must reproduce, step for step.

Each decoder really drafts and really verifies, with caches that are rolled back after a rejection. It
returns what it wrote and, per step, how many draft tokens were kept.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simulator.acceptance.record.lookup import propose
from simulator.acceptance.record.network import Cache, Network
from simulator.acceptance.record.ngram import Trie
from simulator.acceptance.sources import accepted_prefix


class Decoded(NamedTuple):
    """Output tokens and accepted draft tokens per step; the first token is the prefill's."""

    tokens: list[int]
    accepted: list[int]
    seconds: float = 0.0
    """From the first token to the last."""


class Reader:
    """A network that has read some tokens and can take back the last of them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.cache: Cache = []
        self.read = 0

    @torch.no_grad()
    def extend(self, tokens: list[int]) -> Tensor:
        """Read ``tokens`` and return logits (tokens, vocabulary) behind each."""
        logits = self.network(torch.tensor([tokens], device=self.network.embedding.weight.device), self.read, self.cache)[0]
        self.read += len(tokens)
        return logits

    def keep(self, count: int) -> None:
        """Forget everything behind the first ``count`` tokens."""
        self.cache[:] = [(k[:, :, :count], v[:, :, :count]) for k, v in self.cache] if count else []
        self.read = count


Drafter = Callable[[list[int], int], list[int]]
"""(text so far, tokens wanted) -> proposal."""


def autoregressive_drafter(draft: Network) -> Drafter:
    """Return a drafter of the draft's own first choices; it rereads only what is new."""
    reader, seen = Reader(draft), list[int]()

    def write(text: list[int], count: int) -> list[int]:
        common = accepted_prefix(seen, text[:-1])
        reader.keep(common)
        proposal: list[int] = []
        unread = text[common:]
        for _ in range(count):
            proposal.append(int(reader.extend(unread)[-1].argmax()))
            unread = proposal[-1:]
        seen[:] = text + proposal[:-1]
        return proposal

    return write


def head_drafter(target: Network, head: nn.Module) -> Drafter:
    """Return a drafter with a head on the target's states; each depth reads what the depths before proposed."""

    @torch.no_grad()
    def write(text: list[int], count: int) -> list[int]:
        states = target.hidden(torch.tensor([text[:-1]]))
        known = list(text)
        for depth in range(count):
            known.append(int(head(target, states, torch.tensor([known]))[depth][0, -1].argmax()))
        return known[len(text) :]

    return write


def lookup_drafter() -> Drafter:
    """Return a drafter by prompt look-up (:mod:`simulator.acceptance.record.lookup`)."""
    return lambda text, count: propose(text)[:count]


def ngram_drafter() -> Drafter:
    """Return a drafter by n-grams (:mod:`simulator.acceptance.record.ngram`), counted anew in every step."""
    return lambda text, count: Trie(text).propose()[:count]


def alone(target: Network, prompt: list[int], tokens: int, clock: Callable[[], float] = perf_counter) -> Decoded:
    """Decode greedily without a draft; every step accepts nothing and yields one token."""
    reader = Reader(target)
    text = [*prompt, int(reader.extend(prompt)[-1].argmax())]
    begin = clock()
    while len(text) - len(prompt) < tokens:
        text.append(int(reader.extend(text[-1:])[-1].argmax()))
    return Decoded(text[len(prompt) :], [0] * (tokens - 1), clock() - begin)


def speculate(
    target: Network, drafter: Drafter, prompt: list[int], gamma: int, tokens: int, clock: Callable[[], float] = perf_counter
) -> Decoded:
    """Decode greedily with windows of up to ``gamma``; a full window also yields its bonus token."""
    reader = Reader(target)
    text = [*prompt, int(reader.extend(prompt)[-1].argmax())]
    accepted, begin = [], clock()
    while len(text) - len(prompt) < tokens:
        proposal = drafter(text, gamma)
        choices = reader.extend([text[-1], *proposal]).argmax(-1).tolist()
        kept = accepted_prefix(proposal, choices)
        accepted.append(kept)
        text += choices[: kept + 1]
        reader.keep(len(text) - 1)
    return Decoded(text[len(prompt) :], accepted, clock() - begin)


def sample_speculatively(
    target: Network, draft: Network, prompt: list[int], gamma: int, tokens: int, generator: torch.Generator
) -> Decoded:
    """Decode by speculative sampling at temperature 1: accept x ~ q with min(1, p/q), else draw from max(p - q, 0) (X-2)."""
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
        while kept < gamma and torch.rand((), generator=generator) * q[kept][proposal[kept]] < p[kept][proposal[kept]]:
            kept += 1
        last = p[kept] if kept == gamma else (p[kept] - q[kept]).clamp(min=0)
        text += [*proposal[:kept], _draw(last, generator)]
        accepted.append(kept)
        reader.keep(len(text) - 1)
        drafting.keep(min(drafting.read, len(text) - 1))
    return Decoded(text[len(prompt) :], accepted)


def _draw(weights: Tensor, generator: torch.Generator) -> int:
    return int(torch.multinomial(weights, 1, generator=generator))
