"""Greedy roll-outs: what a draft or a head would write behind every token of a text, left to
itself.
"""

from collections.abc import Generator
from itertools import count, pairwise

import torch
from torch import Tensor, nn

from benchmarks.family.heads import EagleLayer, HiddenChain, branch
from benchmarks.family.network import Cache, Keys, Network
from benchmarks.family.trees import Starts

Speech = Generator[Tensor, Tensor]
"""Logits (starts, V) behind every start, then behind the tokens (starts,) that are sent."""


@torch.no_grad()
def roll_outs(
    drafter: nn.Module, target: Network, states: list[Tensor], starts: Starts, depths: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is written greedily behind every start, its probability, and sequences worth
    while, each (depths, starts).

    A sequence is worth while where its first token is likelier than the best two in a row (DUO-3);
    they are counted among the likeliest 8, at least 1. A head has to answer for one depth more.
    """
    speech = _speech(drafter, target, [rows[:, :-1] for rows in states], starts, depths + 1)
    best = [next(speech).softmax(-1).topk(8)]
    for _ in range(depths):
        best.append(speech.send(best[-1].indices[:, 0]).softmax(-1).topk(8))
    both = [here.values[:, :1] * after.values[:, :1] for here, after in pairwise(best)]
    likelier = [
        (here.values > threshold).sum(-1).clamp(min=1)
        for here, threshold in zip(best, both, strict=False)
    ]
    token, chance = (
        torch.stack(rows)
        for rows in zip(
            *((here.indices[:, 0], here.values[:, 0]) for here in best[:-1]), strict=True
        )
    )
    return token, chance, torch.stack(likelier)


def _speech(
    drafter: nn.Module, target: Network, states: list[Tensor], starts: Starts, depths: int
) -> Speech:
    """What a drafter says; ``states`` are those of the text without its last two tokens, as a head
    knows them.
    """
    if isinstance(drafter, Network):
        return model_speech(drafter, starts)
    if isinstance(drafter, EagleLayer):
        return _eagle(drafter, target, states, starts)
    return _prepared(drafter, target, states, starts, depths)


def model_speech(draft: Network, starts: Starts) -> Speech:
    """Return what a network says behind every start."""
    cache: Cache = []
    state = draft.hidden(starts.text[None, :-1], 0, cache)[-1][:, -starts.count :]
    own = [list[Keys]() for _ in cache]
    for depth in count(1):
        token = yield draft.head(state)[0]
        state = draft.embedding(token[None])
        for block, trunk, rows in zip(draft.blocks, cache, own, strict=True):
            state = branch(block, state, depth, trunk, rows)


def _eagle(head: EagleLayer, target: Network, states: list[Tensor], starts: Starts) -> Speech:
    row = head.fused(target, states[-1], starts.text[None, 1:-1])
    trunk, own = head.block.project(row, 0)[1:], list[Keys]()
    state = head.block(row, 0, None)[:, -starts.count :]
    for depth in count(1):
        token = yield target.head(state)[0]
        state = branch(head.block, head.fused(target, state, token[None]), depth, trunk, own)


def _prepared(
    head: nn.Module, target: Network, states: list[Tensor], starts: Starts, depths: int
) -> Speech:
    """Heads that say everything in one pass; only Lyanna's chain adds the information of what it
    wrote.
    """
    chain = head if isinstance(head, HiddenChain) else None
    text = starts.text[None]
    first, *later = (
        chain.chain(target, states, text, depths) if chain else head(target, states, text)
    )
    token = yield first[0, -starts.count :]
    for rows in later:
        token = yield rows[0, -starts.count :] + (
            chain.token_information(target, token) if chain else 0.0
        )
