"""A draft that reads tree nodes beside a text it has read once; every context is read once, whoever
asks.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.family.draft_tree import Floats, Ints
from benchmarks.family.network import Cache, Keys, Network


class TreeDrafter:
    """Answers what ``draft`` says behind the tokens of ``text`` (keys 0, 1, ...) and behind
    branches (later keys).

    Keys and values of a branch are kept, so that a node costs one row, as in the tree attention of
    a real draft.
    """

    @torch.no_grad()
    def __init__(self, draft: Network, text: Sequence[int], branching: int) -> None:
        self.draft, self.branching = draft, branching
        cache: Cache = []
        logits = draft(torch.tensor([text]), 0, cache)[0]
        self.trunk = [(k[0], v[0]) for k, v in cache]
        self.trunk_length = len(text)
        self.known = {(position - 1, token): position for position, token in enumerate(text)}
        self.attach = list(range(len(text)))
        self.path: list[list[int]] = [[] for _ in text]
        shape = draft.shape
        empty = logits.new_zeros(1024, shape.heads, shape.width // shape.heads)
        self.branch = [(empty.clone(), empty.clone()) for _ in draft.blocks]
        tokens, chance = self._best(logits)
        self.tokens, self.chance = [*tokens], [*chance]

    def _best(self, logits: Tensor) -> tuple[Ints, Floats]:
        best = logits.log_softmax(-1).topk(self.branching)
        return best.indices.numpy(), best.values.double().numpy()

    def children(self, keys: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` most probable tokens behind each node, at most ``branching``, and
        their log-probabilities.
        """
        rows = [(self.tokens[key][:count], self.chance[key][:count]) for key in keys.tolist()]
        tokens, chance = zip(*rows, strict=True)
        return np.stack(tokens), np.stack(chance)

    def read(self, parents: Ints, tokens: Ints) -> Ints:
        """Read tokens behind nodes of one depth in one pass and return their keys."""
        pairs = list(zip(parents.tolist(), tokens.tolist(), strict=True))
        new = [pair for pair in pairs if pair not in self.known]
        if new:
            self._read(new)
        return np.array([self.known[pair] for pair in pairs], dtype=np.int64)

    @torch.no_grad()
    def _read(self, new: list[tuple[int, int]]) -> None:
        first = len(self.attach)
        for key, (parent, token) in enumerate(new, start=first):
            on_trunk = parent < self.trunk_length
            self.known[parent, token] = key
            self.attach.append(parent if on_trunk else self.attach[parent])
            self.path.append([key] if on_trunk else [*self.path[parent], key])
        self._reserve(len(self.attach) - self.trunk_length)
        attach = torch.tensor(self.attach[first:])
        longest = max(map(len, self.path[first:]))
        path = (
            torch.tensor([[0] * (longest - len(row)) + row for row in self.path[first:]])
            - self.trunk_length
        )
        blind = torch.cat((torch.arange(int(attach.max()) + 1) > attach[:, None], path < 0), 1)
        position = self.attach[first] + len(self.path[first])
        x = self.draft.embedding(torch.tensor([token for _, token in new]))[:, None]
        for block, trunk, branch in zip(self.draft.blocks, self.trunk, self.branch, strict=True):
            q, k, v = block.project(x, position)
            here = slice(first - self.trunk_length, first - self.trunk_length + len(new))
            branch[0][here], branch[1][here] = k[:, :, 0], v[:, :, 0]
            mixed = self._attend(
                q[:, :, 0],
                trunk,
                (branch[0][path.clamp(min=0)], branch[1][path.clamp(min=0)]),
                blind,
            )
            x = block.finish(x + block.out(mixed)[:, None])
        tokens, chance = self._best(self.draft.head(x)[:, 0])
        self.tokens.extend(tokens)
        self.chance.extend(chance)

    @staticmethod
    def _attend(q: Tensor, trunk: Keys, branch: Keys, blind: Tensor) -> Tensor:
        """(nodes, heads x head width): attention of (nodes, heads, head width) over the text and
        each node's own branch.

        ``trunk``: (heads, text, head width), ``branch``: (nodes, ancestors and itself, heads, head
        width).
        """
        seen = blind.shape[1] - branch[0].shape[1]
        keys, values = (rows[:, :seen] for rows in trunk)
        scores = torch.cat(
            (torch.einsum("nhd,htd->nht", q, keys), torch.einsum("nhd,nlhd->nhl", q, branch[0])), -1
        )
        weights = (
            (scores * q.shape[-1] ** -0.5).masked_fill(blind[:, None], float("-inf")).softmax(-1)
        )
        mixed = torch.einsum("nht,htd->nhd", weights[..., :seen], values)
        return (mixed + torch.einsum("nhl,nlhd->nhd", weights[..., seen:], branch[1])).flatten(1)

    def _reserve(self, count: int) -> None:
        """Room for ``count`` rows off the text."""
        while len(self.branch[0][0]) < count:
            self.branch = [
                (torch.cat((k, torch.zeros_like(k))), torch.cat((v, torch.zeros_like(v))))
                for k, v in self.branch
            ]
