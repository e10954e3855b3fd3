"""Greedy roll-outs: what a draft or a head would write behind every token of a text, left to itself."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simulator.acceptance.record.heads import EagleLayer, HiddenChain
from simulator.acceptance.record.network import Cache, Keys, Network
from simulator.acceptance.record.trees import Starts

Speech = Generator[Tensor, Tensor]
"""Logits (starts, V) behind every start, then behind the tokens (starts,) that are sent."""


class RollOuts(NamedTuple):
    """What is written behind each start, each (depths, starts)."""

    token: Tensor
    chance: Tensor
    """Its probability, given the ones before."""
    sequences: Tensor
    """First tokens here that are likelier than the best two in a row (DUO-3), of the likeliest 8, at least 1."""


@torch.no_grad()
def roll_outs(drafter: nn.Module, target: Network, states: list[Tensor], starts: Starts, depths: int) -> RollOuts:
    """Return greedy continuations of ``depths`` tokens behind every start; a head has to answer for one depth more."""
    speech = _speech(drafter, target, [rows[:, :-1] for rows in states], starts, depths + 1)
    best = [next(speech).softmax(-1).topk(8)]
    for _ in range(depths):
        best.append(speech.send(best[-1].indices[:, 0]).softmax(-1).topk(8))
    both = [here.values[:, :1] * after.values[:, :1] for here, after in pairwise(best)]
    likelier = [(here.values > threshold).sum(-1).clamp(min=1) for here, threshold in zip(best, both, strict=False)]
    first = [(here.indices[:, 0], here.values[:, 0]) for here in best[:-1]]
    token, chance = (torch.stack(column) for column in zip(*first, strict=True))
    return RollOuts(token, chance, torch.stack(likelier))


def _speech(drafter: nn.Module, target: Network, states: list[Tensor], starts: Starts, depths: int) -> Speech:
    """What a drafter says; ``states`` are those of the text without its last two tokens, as a head knows them."""
    if isinstance(drafter, Network):
        return _model(drafter, starts)
    if isinstance(drafter, EagleLayer):
        return _eagle(drafter, target, states, starts)
    if isinstance(drafter, HiddenChain):
        return _hidden(drafter, target, states, starts, depths)
    return _apart(drafter(target, states, starts.text[None]), starts)


def _model(draft: Network, starts: Starts) -> Speech:
    cache: Cache = []
    state = draft.hidden(starts.text[None, :-1], 0, cache)[-1][:, -starts.count :]
    own = [list[Keys]() for _ in cache]
    for depth in count(1):
        token = yield draft.head(state)[0]
        state = draft.embedding(token[None])
        for block, trunk, rows in zip(draft.blocks, cache, own, strict=True):
            state = block.branch(state, depth, trunk, rows)


def _eagle(head: EagleLayer, target: Network, states: list[Tensor], starts: Starts) -> Speech:
    row = head.fused(target, states[-1], starts.text[None, 1:-1])
    trunk, own = head.block.project(row, 0)[1:], list[Keys]()
    state = head.block(row, 0, None)[:, -starts.count :]
    for depth in count(1):
        token = yield target.head(state)[0]
        state = head.block.branch(head.fused(target, state, token[None]), depth, trunk, own)


def _hidden(head: HiddenChain, target: Network, states: list[Tensor], starts: Starts, depths: int) -> Speech:
    first, *later = (rows[0, -starts.count :] for rows in head.chain(target, states, starts.text[None], depths))
    token = yield first
    for rows in later:
        token = yield rows + head.token_information(target, token)


def _apart(logits: list[Tensor], starts: Starts) -> Speech:
    """Heads that do not read what they wrote."""
    for rows in logits:
        yield rows[0, -starts.count :]
