"""Heads on the frozen target: early exits, an EAGLE layer, Lyanna's hidden chain, Medusa heads,
look-ahead streams.

Draft heads take the target's residual states of some tokens and answer, for every one of these
positions as a start, for several tokens ahead: ``head(target, states, tokens)`` gives the logits by
depth. Row t stands behind token t + 1, the newest, which the target has yielded and not yet read;
depth d is about token t + 2 + d. ``tokens`` may reach further than the states: what is behind a
start is what has been proposed there. A head that attends sees the target's positions up to its
start and its own rows.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.family.network import Block, Keys, Network


class ExitHead(nn.Module):
    """Early exit as in Mirror-SD, App. E.2: adapter H -> H/2 -> H, then the target's own head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.adapter = nn.Sequential(
            nn.RMSNorm(width), nn.Linear(width, width // 2), nn.GELU(), nn.Linear(width // 2, width)
        )

    def forward(self, state: Tensor, target: Network) -> Tensor:
        """Return logits (..., vocabulary) of the residual state at the exit layer."""
        return target.head(state + self.adapter(state))


class MedusaHeads(nn.Module):
    """Medusa: independent residual blocks on the last state, each with an output head that starts
    as the target's.
    """

    name = "medusa"

    def __init__(self, target: Network, depths: int = 4) -> None:
        super().__init__()
        width = target.shape.width
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depths))
        self.shifts = nn.ParameterList(
            torch.zeros(target.shape.vocabulary, width) for _ in range(depths)
        )

    def forward(self, target: Network, states: list[Tensor], tokens: Tensor) -> list[Tensor]:
        """Return logits (batch, starts, vocabulary) by depth; ``tokens`` are the inputs behind
        ``states``.
        """
        state = target.norm(states[-1])
        heads = (target.embedding.weight + shift for shift in self.shifts)
        return [
            F.linear(block(state), head) for block, head in zip(self.blocks, heads, strict=True)
        ]


class ResidualBlock(nn.Module):
    """An MLP around a residual; at first it changes nothing."""

    def __init__(self, width: int, widening: int = 2) -> None:
        super().__init__()
        self.up = nn.Linear(width, widening * width)
        self.down = nn.Linear(widening * width, width, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (..., width) plus its MLP, of the same shape."""
        return x + self.down(F.silu(self.up(x)))


class StateAndToken(nn.Module):
    """A layer fuses the target's newest state with the token behind it."""

    def __init__(self, target: Network, depths: int) -> None:
        super().__init__()
        width = target.shape.width
        self.depths = depths
        self.norm = nn.RMSNorm(width)
        self.fuse = nn.Linear(2 * width, width, bias=False)
        self.block = Block(target.shape)

    def fused(self, target: Network, state: Tensor, token: Tensor) -> Tensor:
        """Return a state and the token behind it as one row (..., width)."""
        return self.fuse(torch.cat((self.norm(state), target.embedding(token)), -1))


class EagleLayer(StateAndToken):
    """EAGLE: one layer predicts the next state from (state, next token), token by token."""

    name = "eagle"

    def __init__(self, target: Network, depths: int = 5) -> None:
        super().__init__(target, depths)

    def forward(
        self, target: Network, states: list[Tensor], tokens: Tensor, depths: int | None = None
    ) -> list[Tensor]:
        """Return logits by depth, each fed the token and the predicted state before it; by default
        the trained depths.
        """
        state = self.fused(target, states[-1], following(tokens, 1, states[-1]))
        trunk = self.block.project(state, 0)[1:]
        own: list[Keys] = []
        predicted = self.block(state, 0, None)
        logits = [target.head(predicted)]
        for depth in range(1, depths or self.depths):
            state = self.fused(target, predicted, following(tokens, depth + 1, predicted))
            predicted = branch(self.block, state, depth, trunk, own)
            logits.append(target.head(predicted))
        return logits


class HiddenChain(StateAndToken):
    """Lyanna: a layer rolled forward on hidden states alone; the token's own information is added
    late.

    h_1 = TL(h_0 fused with E(r)), h_{i+1} = TL(h_i);  l'_i = W_head h_i + RMSNorm(E(parent) W_1
    W_2) (LYA-1, LYA-3). The parent of depth 0 is r, which the layer has seen, so it gets no shift.
    """

    name = "lyanna"

    def __init__(self, target: Network, depths: int = 3, rank: int = 96) -> None:
        super().__init__(target, depths)
        self.narrow = nn.Linear(target.shape.width, rank, bias=False)
        self.wide = nn.Linear(rank, target.shape.vocabulary, bias=False)
        self.scale = nn.Parameter(torch.zeros(()))

    def chain(
        self, target: Network, states: list[Tensor], tokens: Tensor, depths: int | None = None
    ) -> list[Tensor]:
        """Return raw logits of every depth, by default of the trained ones; no sampled token
        enters.
        """
        x = self.fused(target, states[-1], following(tokens, 1, states[-1]))
        trunk = self.block.project(x, 0)[1:]
        own: list[Keys] = []
        x = self.block(x, 0, None)
        logits = [target.head(x)]
        for depth in range(1, depths or self.depths):
            x = branch(self.block, x, depth, trunk, own)
            logits.append(target.head(x))
        return logits

    def token_information(self, target: Network, parents: Tensor) -> Tensor:
        """Return the shift of the logits behind each parent token."""
        table = self.wide(self.narrow(target.embedding(parents)))
        return self.scale * F.rms_norm(table, table.shape[-1:])

    def forward(
        self, target: Network, states: list[Tensor], tokens: Tensor, depths: int | None = None
    ) -> list[Tensor]:
        """Return logits by depth, with the information of the true parent token; by default the
        trained depths.
        """
        raw = self.chain(target, states, tokens, depths)
        parents = [following(tokens, depth + 1, states[-1]) for depth in range(1, len(raw))]
        return raw[:1] + [
            rows + self.token_information(target, parent)
            for rows, parent in zip(raw[1:], parents, strict=True)
        ]


class Streams(nn.Module):
    """Speculative streaming: look-ahead rows run through the target's top layers, with low-rank
    adapters.

    Stream ``g`` of a position starts as the main stream's state at layer N - N_s plus an embedding
    of its own; it attends to the main stream up to its position and to streams before it (SS-3,
    lossless).
    """

    name = "streams"

    def __init__(self, target: Network, depths: int = 4, layers: int = 4, rank: int = 64) -> None:
        super().__init__()
        width = target.shape.width
        self.layers = layers
        self.starts = nn.Parameter(torch.randn(depths, width) * 0.02)
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(rank, width, bias=False) for _ in range(layers))
        for up in self.up:
            nn.init.zeros_(up.weight)

    def forward(self, target: Network, states: list[Tensor], tokens: Tensor) -> list[Tensor]:
        """Return logits by stream."""
        first = target.shape.layers - self.layers
        rows = [states[first - 1] + start for start in self.starts]
        for index in range(self.layers):
            block, main = target.blocks[first + index], states[first + index - 1]
            rows = self._layer(block, self.down[index], self.up[index], main, rows)
        return [target.head(row) for row in rows]

    def _layer(
        self, block: Block, down: nn.Module, up: nn.Module, main: Tensor, rows: list[Tensor]
    ) -> list[Tensor]:
        trunk = block.project(main, 0)[1:]
        own: list[Keys] = []
        passed = [branch(block, x, stream, trunk, own) for stream, x in enumerate(rows, start=1)]
        return [
            after + up(F.silu(down(before))) for before, after in zip(rows, passed, strict=True)
        ]


def following(tokens: Tensor, by: int, state: Tensor) -> Tensor:
    """Return ``tokens[t + by]`` for every row t of ``state``; the last token repeats (no loss
    counts those rows).
    """
    rows = state.shape[1]
    held = tokens[:, by : by + rows]
    return torch.cat((held, tokens[:, -1:].expand(-1, rows - held.shape[1])), 1)


def branch(
    block: Block, x: Tensor, shift: int, trunk: Keys, own: list[Keys], at: Tensor | None = None
) -> Tensor:
    """Run one more row of a layer for every start: behind trunk row ``t`` it stands at position ``t
    + shift``.

    ``x`` is (branches, starts, width), the starts being the trunk rows ``at``, by default the last
    ones. A row attends to the trunk's keys up to its start and to ``own``, the branch's rows so
    far, which it joins.
    """
    branches, starts, width = x.shape
    length = trunk[0].shape[2]
    at = torch.arange(length - starts, length) if at is None else at
    q, k, v = block.project(x, at + shift)
    own.append((k, v))
    q = q * q.shape[-1] ** -0.5
    later = torch.arange(length) > at[:, None]
    scores = [(q @ trunk[0].transpose(-1, -2)).masked_fill(later, float("-inf"))]
    scores += [(q * key).sum(-1, keepdim=True) for key, _ in own]
    weights = torch.cat(scores, -1).float().softmax(-1).to(v.dtype)
    mixed = weights[..., :length] @ trunk[1]
    for step, (_, value) in enumerate(own):
        mixed = mixed + weights[..., length + step, None] * value
    return block.finish(x + block.out(mixed.transpose(1, 2).reshape(branches, starts, width)))
