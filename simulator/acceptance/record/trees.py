"""What becomes of drafted trees whose branches compete: EAGLE-2, Lyanna, pruned streams, and greedy roll-outs.

Trees are drafted behind every token of a text at once; rows of a tensor are starts, its first dimension the
branches of each. The answers are token counts: the longest path from the root that the text takes and that
was kept in the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from simulator.acceptance.draft_tree import PrunedTree
from simulator.acceptance.record.heads import EagleLayer, HiddenChain, Streams
from simulator.acceptance.record.network import Cache, ExitHead, Keys, Network

NOWHERE = float("-inf")


@dataclass(frozen=True)
class Starts:
    """Positions of ``text`` (tokens,) from ``first`` on; a start's tree proposes the token there and those behind it.

    The newest state that a head may use is that of the token before last, as in :mod:`simulator.acceptance.record.heads`;
    states of the whole text but its last token are given.
    """

    text: Tensor
    first: int

    @property
    def count(self) -> int:
        """Count the starts."""
        return len(self.text) - self.first

    def truth(self, depth: int) -> Tensor:
        """Return (starts,) the text's token ``depth`` behind each start; -1 behind the end."""
        behind = self.text[self.first + depth :][: self.count]
        return F.pad(behind, (0, self.count - len(behind)), value=-1)


@dataclass
class Growth:
    """Trees that grow level by level behind many starts, and where the true path lies in each.

    ``score`` is (branches, starts), the log-probability of every frontier node; ``path`` (starts,) the
    frontier node on the true path, -1 once it has left; ``scores`` holds every node ever proposed by start.
    """

    score: Tensor
    path: Tensor
    scores: list[Tensor] = field(default_factory=list)
    followed: list[Tensor] = field(default_factory=list)

    @staticmethod
    def seed(starts: int) -> Growth:
        """Return trees that are only roots."""
        return Growth(torch.zeros(1, starts), torch.zeros(starts, dtype=torch.long))

    def grow(self, chance: Tensor, truth: Tensor, branching: int, width: int) -> tuple[Tensor, Tensor]:
        """Give every frontier node its ``branching`` best children and keep ``width`` of them as the next frontier.

        ``chance``: (branches, starts, V) log-probabilities; ``truth``: (starts,) the text's next token. Returns
        (parent, token) of the new frontier, each (width, starts).
        """
        best = chance.topk(branching)
        score, token = (rows.permute(0, 2, 1).flatten(0, 1) for rows in best)
        parent = torch.arange(len(chance)).repeat_interleave(branching)[:, None].expand(-1, len(truth))
        self.add(score, token, truth)
        kept = self.score.topk(min(width, len(score)), dim=0)
        self.score, on_path = kept.values, kept.indices == self.path
        self.path = torch.where(on_path.any(0), on_path.long().argmax(0), -1)
        return parent.gather(0, kept.indices), token.gather(0, kept.indices)

    def add(self, chance: Tensor, token: Tensor, truth: Tensor) -> None:
        """Make children, the same number for every frontier node and in their order, the next frontier.

        ``chance`` and ``token``: (children, starts), log-probabilities given the parent and what they propose.
        """
        each = len(chance) // len(self.score)
        self.score = self.score.repeat_interleave(each, 0) + chance
        parent = torch.arange(len(chance))[:, None] // each
        true = (parent == self.path) & (token == truth)
        self.path = torch.where(true.any(0), true.long().argmax(0), -1)
        self.scores.append(self.score)
        self.followed.append(torch.where(true, self.score, NOWHERE).amax(0))

    def accepted(self, budget: int) -> Tensor:
        """Return (starts,) tokens of the true path among the ``budget`` best nodes of each tree."""
        nodes = torch.cat(self.scores)
        worst = nodes.topk(min(budget, len(nodes)), dim=0).values[-1]
        kept = torch.stack([score >= worst for score in self.followed]) & (torch.stack(self.followed) > NOWHERE)
        return kept.long().cumprod(0).sum(0)


def pick(rows: Tensor, parent: Tensor) -> Tensor:
    """Return of ``rows`` (branches, starts, width) those of each new branch's ``parent`` (branches, starts)."""
    return rows.gather(0, parent[..., None].expand(-1, -1, rows.shape[-1]))


def reorder(own: list[Keys], parent: Tensor) -> list[Keys]:
    """Return keys and values, each (branches, heads, starts, head width), of each new branch's ancestors."""

    def of(rows: Tensor) -> Tensor:
        return rows.gather(0, parent[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3]))

    return [(of(key), of(value)) for key, value in own]


@torch.no_grad()
def eagle_tree(
    head: EagleLayer, target: Network, states: list[Tensor], starts: Starts, branching: int, passes: int, budget: int
) -> Tensor:
    """Return (starts,) accepted tokens of EAGLE-2: ``passes`` of ``branching`` rows, ``budget`` best nodes verified."""
    row = head.fused(target, states[-1][:, :-1], starts.text[None, 1:-1])
    trunk = head.block.project(row, 0)[1:]
    state = head.block(row, 0, None)[:, -starts.count :]
    growth, own = Growth.seed(starts.count), list[Keys]()
    parent, token = growth.grow(target.head(state).log_softmax(-1), starts.truth(0), branching, branching)
    for depth in range(1, passes):
        own = reorder(own, parent)
        state = head.block.branch(head.fused(target, pick(state, parent), token), depth, trunk, own)
        parent, token = growth.grow(target.head(state).log_softmax(-1), starts.truth(depth), branching, branching)
    return growth.accepted(budget)


@torch.no_grad()
def hidden_trees(
    head: HiddenChain, target: Network, states: list[Tensor], starts: Starts, branching: int, budget: int, resampled_budget: int
) -> Tensor:
    """Return (depths, starts) accepted tokens of Lyanna's trees, from one pass of the hidden chain behind each start.

    Row 0 is the tree that is drafted (LYA-4, LYA-5). Row 1 + a is the tree that is sampled again from what is
    left of the chain once the token at depth a has been corrected; its first token is at depth a + 1 (LYA-6).
    """
    raw = [rows[:, -starts.count :] for rows in head.chain(target, [states[-1][:, :-1]], starts.text[None])]
    accepted = []
    for skipped in range(head.depths):
        growth = Growth.seed(starts.count)
        token = starts.truth(skipped - 1).clamp(min=0)[None]
        for depth in range(skipped, head.depths):
            shift = head.token_information(target, token) if depth else 0.0
            chance = (raw[depth] + shift).log_softmax(-1)
            _, token = growth.grow(chance, starts.truth(depth), branching, branching)
        accepted.append(growth.accepted(resampled_budget if skipped else budget))
    return torch.stack(accepted)


@torch.no_grad()
def pruned_streams(
    streams: Streams, exit: ExitHead, target: Network, states: list[Tensor], starts: Starts, trees: Sequence[PrunedTree]
) -> Tensor:
    """Return (trees, starts) accepted tokens of the streams' tree, pruned where the streams begin (SS-2).

    Every node but the deepest passes the lower layers; the early exit there rates its children, and the
    ``budget`` best of the whole tree go on to be verified. A tree of fewer branches is part of a wider one.
    """
    widest, deepest = max(tree.branching for tree in trees), max(tree.levels for tree in trees)
    ahead = streams(target, [s[:, :-1] for s in states], starts.text[None])
    proposed = [rows[0, -starts.count :].topk(widest).indices.T for rows in ahead[:deepest]]
    rated = _rated(proposed, exit, target, states, starts, target.shape.layers - streams.layers)
    accepted = []
    for tree in trees:
        growth, nodes = Growth.seed(starts.count), torch.zeros(1, dtype=torch.long)
        for depth, (chance, token) in enumerate(rated[: tree.levels]):
            nodes = (nodes[:, None] * widest + torch.arange(tree.branching)).flatten()
            growth.add(chance[nodes], token[nodes], starts.truth(depth))
        accepted.append(growth.accepted(tree.budget))
    return torch.stack(accepted)


def _rated(
    proposed: list[Tensor], exit: ExitHead, target: Network, states: list[Tensor], starts: Starts, below: int
) -> list[tuple[Tensor, Tensor]]:
    """By level, each (nodes, starts): log-probability given the parent under the exit behind ``below`` layers, and token.

    ``proposed``: (branching, starts) tokens by level, the same below every node of the level before.
    """
    inputs = [target.embedding(starts.text[None, :-1]), *states]
    trunks = [block.project(x, 0)[1:] for block, x in zip(target.blocks[:below], inputs, strict=False)]
    own = [list[Keys]() for _ in trunks]
    state = states[below - 1][:, -starts.count :]
    levels = []
    for depth, tokens in enumerate(proposed):
        logits = exit(state, target)
        children = tokens.T[None].expand(len(state), -1, -1)
        chance = logits.gather(-1, children) - logits.logsumexp(-1, keepdim=True)
        token = tokens.repeat(len(state), 1)
        levels.append((chance.transpose(1, 2).flatten(0, 1), token))
        if depth + 1 == len(proposed):
            break
        parent = torch.arange(len(token))[:, None].expand_as(token) // len(tokens)
        state = target.embedding(token)
        for layer, trunk in enumerate(trunks):
            own[layer] = reorder(own[layer], parent)
            state = target.blocks[layer].branch(state, depth + 1, trunk, own[layer])
    return levels


class RollOuts(NamedTuple):
    """What a draft would write behind each start, each (depths, starts)."""

    token: Tensor
    chance: Tensor
    """Its probability, given the ones before."""
    sequences: Tensor
    """First tokens here that are likelier than the best two in a row (DUO-3), of the likeliest 8, at least 1."""


@torch.no_grad()
def roll_outs(draft: Network, starts: Starts, depths: int) -> RollOuts:
    """Return greedy continuations of ``depths`` tokens behind every start."""
    cache: Cache = []
    state = draft.hidden(starts.text[None, :-1], 0, cache)[-1][:, -starts.count :]
    own = [list[Keys]() for _ in cache]
    tokens, best = list[Tensor](), list[Tensor]()
    for depth in range(depths + 1):
        if depth:
            state = draft.embedding(tokens[-1][None])
            for block, trunk, rows in zip(draft.blocks, cache, own, strict=True):
                state = block.branch(state, depth, trunk, rows)
        odds = draft.head(state)[0].softmax(-1).topk(8)
        tokens.append(odds.indices[:, 0])
        best.append(odds.values)
    both = [here[:, :1] * after[:, :1] for here, after in pairwise(best)]
    likelier = [(here > threshold).sum(-1).clamp(min=1) for here, threshold in zip(best, both, strict=False)]
    return RollOuts(torch.stack(tokens[:-1]), torch.stack([here[:, 0] for here in best[:-1]]), torch.stack(likelier))
