"""A small mixture of experts: the family's network with sixteen experts a layer, of which every token takes two.

It is trained as mixtures that are served are: a softmax router whose two largest weights are normalised, and a loss that
keeps the experts in use (Fedus et al. 2022, Switch Transformers, Eqs. 4 to 6). What it is for is its routing.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simulator.acceptance.record.network import Block, Network, NetworkShape

EXPERTS, ACTIVE = 16, 2
MIXTURE = NetworkShape(layers=6, width=192, heads=6, hidden=192, vocabulary=2_048)
"""The mixture's sizes; ``hidden`` is that of one expert."""
BALANCE = 0.01
"""Weight of the loss that keeps the experts in use, as in Switch Transformers."""


class Experts(nn.Module):
    """A gated MLP in ``EXPERTS`` copies; each token takes the ``ACTIVE`` that its router prefers."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.width, EXPERTS, bias=False)
        self.up = nn.ModuleList(nn.Linear(shape.width, 2 * shape.hidden, bias=False) for _ in range(EXPERTS))
        self.down = nn.ModuleList(nn.Linear(shape.hidden, shape.width, bias=False) for _ in range(EXPERTS))
        self.taken = torch.empty(0)
        self.unbalance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum (batch, tokens, width) of each token's experts; note which, and how unevenly they are used."""
        rows = x.reshape(-1, x.shape[-1])
        chance = self.router(rows).float().softmax(-1)
        weight, taken = chance.topk(ACTIVE, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(rows.dtype)
        out = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            token, rank = (taken == expert).nonzero(as_tuple=True)
            gate, value = self.up[expert](rows[token]).chunk(2, -1)
            done = self.down[expert](F.silu(gate) * value) * weight[token, rank, None]
            out = out.index_add(0, token, done.to(out.dtype))
        share = torch.bincount(taken.flatten(), minlength=EXPERTS) / taken.numel()
        self.taken, self.unbalance = taken.reshape(*x.shape[:-1], ACTIVE), EXPERTS * (share * chance.mean(0)).sum()
        return out.reshape(x.shape)


class MixtureBlock(Block):
    """One layer of the network with experts in place of its MLP."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__(shape)
        del self.up, self.down
        self.experts = Experts(shape)

    def finish(self, x: Tensor) -> Tensor:
        """Add the experts behind their norm and return the residual stream."""
        mixed: Tensor = self.experts(self.norm_mlp(x))
        return x + mixed


class Mixture(Network):
    """The decoder with experts in every layer."""

    def __init__(self, shape: NetworkShape = MIXTURE) -> None:
        super().__init__(shape)
        self.blocks = nn.ModuleList(MixtureBlock(shape) for _ in range(shape.layers))
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() == 2:
                scale = (2 * shape.layers) ** -0.5 if "out." in name or "down." in name else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    @property
    def unbalance(self) -> Tensor:
        """Return how unevenly the last tokens used the experts, 1 where evenly, mean over layers."""
        return torch.stack([block.experts.unbalance for block in self.blocks]).mean()

    @property
    def routing(self) -> Tensor:
        """Return the experts (batch, tokens, layers, ACTIVE) that the last tokens took."""
        return torch.stack([block.experts.taken for block in self.blocks], -2)


def mixture_loss(mixture: Mixture, tokens: Tensor) -> Tensor:
    """Return the cross entropy of the next token in nats, with what keeps the experts in use."""
    loss = F.cross_entropy(mixture(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
    return loss + BALANCE * mixture.unbalance
