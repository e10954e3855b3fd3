"""What becomes of drafted trees whose branches compete: EAGLE-2, Lyanna, pruned streams.

Trees are drafted behind every token of a text at once; rows of a tensor are starts, its first
dimension the branches of each. The answers are token counts: the longest path from the root that
the text takes and that was kept in the tree.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.family.heads import EagleLayer, ExitHead, HiddenChain, Streams, branch
from benchmarks.family.network import Keys, Network
from simulator.core.acceptance.draft_tree import PrunedTree

NOWHERE = float("-inf")


@dataclass(frozen=True)
class Starts:
    """Positions of ``text`` (tokens,) from ``first`` on; a start's tree proposes the token there
    and those behind it.

    The newest state that a head may use is that of the token before last, as in
    :mod:`benchmarks.family.heads`; states of the whole text but its last token are given.
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

    ``score`` is (branches, starts), the log-probability of every frontier node, and ``rank`` the
    worst choice on the way to it: it stands in every tree of more branches than that. ``path``
    (starts,) is the frontier node on the true path, -1 once it has left. ``scores``, ``ranks`` and
    ``true`` hold, level by level, every node ever proposed.
    """

    score: Tensor
    rank: Tensor
    path: Tensor
    scores: list[Tensor] = field(default_factory=list)
    ranks: list[Tensor] = field(default_factory=list)
    true: list[Tensor] = field(default_factory=list)

    @classmethod
    def seed(cls, starts: int) -> Self:
        """Return trees that are only roots."""
        nothing = torch.zeros(1, starts, dtype=torch.long)
        return cls(torch.zeros(1, starts), nothing, nothing[0])

    def grow(
        self, chance: Tensor, truth: Tensor, branching: int, width: int
    ) -> tuple[Tensor, Tensor]:
        """Give every frontier node its ``branching`` best children and keep ``width`` of them as
        the next frontier.

        ``chance``: (branches, starts, V) log-probabilities; ``truth``: (starts,) the text's next
        token. Returns (parent, token) of the new frontier, each (width, starts).
        """
        best = chance.topk(branching)
        score, token = (rows.permute(0, 2, 1).flatten(0, 1) for rows in best)
        parent = (
            torch.arange(len(chance)).repeat_interleave(branching)[:, None].expand(-1, len(truth))
        )
        self.add(score, token, truth)
        kept = self.score.topk(min(width, len(score)), dim=0).indices
        self.keep(kept)
        return parent.gather(0, kept), token.gather(0, kept)

    def keep(self, nodes: Tensor) -> None:
        """Leave only ``nodes`` (width, starts) of the frontier."""
        self.score, self.rank = self.score.gather(0, nodes), self.rank.gather(0, nodes)
        on_path = nodes == self.path
        self.path = torch.where(on_path.any(0), on_path.long().argmax(0), -1)

    def add(self, chance: Tensor, token: Tensor, truth: Tensor) -> None:
        """Make children, the same number for every frontier node, by parent and then by choice, the
        next frontier.

        ``chance`` and ``token``: (children, starts), log-probabilities given the parent and what
        they propose.
        """
        each = len(chance) // len(self.score)
        self.score = self.score.repeat_interleave(each, 0) + chance
        node = torch.arange(len(chance))[:, None]
        self.rank = torch.maximum(self.rank.repeat_interleave(each, 0), node % each)
        true = (node // each == self.path) & (token == truth)
        self.path = torch.where(true.any(0), true.long().argmax(0), -1)
        self.scores.append(self.score)
        self.ranks.append(self.rank)
        self.true.append(true)

    def kept(
        self, budget: int, branching: int | None = None, levels: int | None = None
    ) -> list[Tensor]:
        """Return, by level, (nodes, starts) whether a node is among the ``budget`` best of its
        tree.

        The tree is the whole one, or the part of it that has so many ``levels`` and children of a
        node.
        """
        nodes = torch.cat(self.scores[:levels])
        if branching:
            nodes = nodes.masked_fill(torch.cat(self.ranks[:levels]) >= branching, NOWHERE)
        worst = nodes.topk(min(budget, len(nodes)), dim=0).values[-1]
        return list(
            ((nodes >= worst) & (nodes > NOWHERE)).split(
                [len(level) for level in self.scores[:levels]]
            )
        )

    def accepted(
        self, budget: int, branching: int | None = None, levels: int | None = None
    ) -> Tensor:
        """Return (starts,) tokens of the true path that are kept of each tree."""
        followed = [
            (kept & true).any(0)
            for kept, true in zip(self.kept(budget, branching, levels), self.true, strict=False)
        ]
        return torch.stack(followed).long().cumprod(0).sum(0)


def pick(rows: Tensor, parent: Tensor) -> Tensor:
    """Return of ``rows`` (branches, starts, width) those of each new branch's ``parent`` (branches,
    starts).
    """
    return rows.gather(0, parent[..., None].expand(-1, -1, rows.shape[-1]))


def reorder(own: list[Keys], parent: Tensor) -> list[Keys]:
    """Return keys and values, each (branches, heads, starts, head width), of each new branch's
    ancestors.
    """

    def of(rows: Tensor) -> Tensor:
        return rows.gather(0, parent[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3]))

    return [(of(key), of(value)) for key, value in own]


@torch.no_grad()
def eagle_tree(
    head: EagleLayer,
    target: Network,
    states: list[Tensor],
    starts: Starts,
    branching: int,
    passes: int,
    budget: int,
) -> Tensor:
    """Return (starts,) accepted tokens of EAGLE-2: ``passes`` of ``branching`` rows, ``budget``
    best nodes verified.
    """
    row = head.fused(target, states[-1][:, :-1], starts.text[None, 1:-1])
    trunk = head.block.project(row, 0)[1:]
    state = head.block(row, 0, None)[:, -starts.count :]
    growth, own = Growth.seed(starts.count), list[Keys]()
    parent, token = growth.grow(
        target.head(state).log_softmax(-1), starts.truth(0), branching, branching
    )
    for depth in range(1, passes):
        own = reorder(own, parent)
        state = branch(
            head.block, head.fused(target, pick(state, parent), token), depth, trunk, own
        )
        parent, token = growth.grow(
            target.head(state).log_softmax(-1), starts.truth(depth), branching, branching
        )
    return growth.accepted(budget)


@torch.no_grad()
def hidden_trees(
    head: HiddenChain,
    target: Network,
    states: list[Tensor],
    starts: Starts,
    branching: int,
    budget: int,
    resampled_budget: int,
) -> Tensor:
    """Return (depths, starts) accepted tokens of Lyanna's trees, from one pass of the hidden chain
    behind each start.

    Row 0 is the tree that is drafted (LYA-4, LYA-5). Row 1 + a is the tree that is sampled again
    from what is left of the chain once the token at depth a has been corrected; its first token is
    at depth a + 1 (LYA-6).
    """
    raw = [
        rows[:, -starts.count :]
        for rows in head.chain(target, [states[-1][:, :-1]], starts.text[None])
    ]
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
    streams: Streams,
    exit: ExitHead,
    target: Network,
    states: list[Tensor],
    starts: Starts,
    trees: Sequence[PrunedTree],
) -> Tensor:
    """Return (trees, starts) accepted tokens of the streams' tree, pruned where the streams begin
    (SS-2).

    Every node but the deepest passes the lower layers; the early exit there rates its children, and
    the ``budget`` best of the whole tree go on to be verified. A tree of fewer branches is part of
    a wider one. Only children that may matter are rated: below a node that is among the best so far
    of some tree, and no less likely than the text itself as far as the streams know it, which every
    descendant of a less likely node is too.
    """
    widest, deepest = max(tree.branching for tree in trees), max(tree.levels for tree in trees)
    budgets = {tree.branching: tree.budget for tree in sorted(trees, key=lambda tree: tree.budget)}
    below = target.shape.layers - streams.layers
    ahead = streams(target, [s[:, :-1] for s in states], starts.text[None])[:deepest]
    proposed = [rows[0, -starts.count :].topk(widest).indices for rows in ahead]
    rating, floor = (
        _rating(exit, target, states, starts, below),
        _text_score(exit(states[below - 1], target)[0], starts, proposed),
    )
    growth, every = Growth.seed(starts.count), torch.arange(starts.count)
    row, start, logits = torch.zeros_like(every), every, next(rating)
    for depth, tokens in enumerate(proposed):
        chance = torch.full((len(growth.score), starts.count, widest), NOWHERE, dtype=logits.dtype)
        chance[row, start] = logits.gather(-1, tokens[start]) - logits.logsumexp(-1, keepdim=True)
        token = tokens.T.repeat(len(chance), 1)
        growth.add(chance.transpose(1, 2).flatten(0, 1), token, starts.truth(depth))
        if depth + 1 == deepest:
            break
        best = torch.stack(
            [growth.kept(budget, branching)[-1] for branching, budget in budgets.items()]
        ).any(0)
        best &= growth.score >= floor
        if not best.any():  # no text of any start is proposed so deep
            break
        nodes = (
            growth.score.masked_fill(~best, NOWHERE)
            .topk(max(1, int(best.sum(0).max())), dim=0)
            .indices
        )
        parents = torch.full(chance.shape[:2], -1).index_put((row, start), torch.arange(len(row)))
        growth.keep(nodes)
        row, start = best.gather(0, nodes).nonzero().T
        node = nodes[row, start]
        logits = rating.send((parents[node // widest, start], token[node, start], start))
    return torch.stack(
        [growth.accepted(tree.budget, tree.branching, tree.levels) for tree in trees]
    )


def _text_score(logits: Tensor, starts: Starts, proposed: list[Tensor]) -> Tensor:
    """(starts,) log-probability of the text behind each start, as far as every token of it is
    proposed, a little less.

    ``logits``: (tokens, V) of the exit that rates, behind every token of the text but the last.
    """
    first = len(logits) - starts.count
    chance = logits.log_softmax(-1).gather(-1, starts.text[1:, None])[first:, 0]
    known = torch.stack(
        [(tokens == starts.truth(depth)[:, None]).any(-1) for depth, tokens in enumerate(proposed)]
    )
    scores = torch.stack([F.pad(chance[depth:], (0, depth)) for depth in range(len(proposed))])
    return (scores * known.long().cumprod(0)).sum(0) - 1e-3


def _rating(
    exit: ExitHead, target: Network, states: list[Tensor], starts: Starts, below: int
) -> Generator[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Yield (nodes, V) logits of the exit behind ``below`` layers: of the starts, then of the nodes
    sent.

    They are sent as (parent, token, start), each (nodes,): place among the nodes before, token read
    there, and start.
    """
    inputs = [target.embedding(starts.text[None, :-1]), *states]
    trunks = [
        block.project(x, 0)[1:] for block, x in zip(target.blocks[:below], inputs, strict=False)
    ]
    own = [list[Keys]() for _ in trunks]
    state = states[below - 1][:, -starts.count :]
    first = states[0].shape[1] - starts.count
    for depth in count(1):
        parent, token, start = yield exit(state, target)[0]
        state = target.embedding(token)[None]
        for layer, trunk in enumerate(trunks):
            own[layer] = [(key[:, :, parent], value[:, :, parent]) for key, value in own[layer]]
            state = branch(target.blocks[layer], state, depth, trunk, own[layer], first + start)
