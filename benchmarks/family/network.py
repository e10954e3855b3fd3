"""A small decoder-only transformer: pre-norm, rotary positions, SwiGLU, normalised queries and
keys.

It is what this machine is timed with; the shipped pair has two of its sizes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class NetworkShape:
    """The sizes of a network; all widths in elements."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int


VOCABULARY = 2_048
TARGET = NetworkShape(layers=8, width=224, heads=7, hidden=512, vocabulary=VOCABULARY)
DRAFT = NetworkShape(layers=2, width=128, heads=4, hidden=320, vocabulary=VOCABULARY)
"""The shipped pair, ``scenarios/pairs/six_flavours.npz``."""

Keys = tuple[Tensor, Tensor]
"""Keys and values of some tokens, each (batch, heads, tokens, head width)."""
Cache = list[Keys]


class Block(nn.Module):
    """One layer: attention and gated MLP, each behind a norm and a residual."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.norm_mlp = nn.RMSNorm(shape.width)
        self.up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, start: int, cache: Cache | None) -> Tensor:
        """Return the layer's output (batch, tokens, width) for ``x`` of that shape; ``start``:
        position of the first token.
        """
        batch, tokens, width = x.shape
        q, k, v = self.project(x, start)
        if cache is not None:
            if start:
                past_k, past_v = cache.pop(0)
                k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
            cache.append((k, v))
        mask = (
            None
            if tokens == 1
            else torch.ones(tokens, k.shape[2], dtype=torch.bool, device=x.device).tril(
                k.shape[2] - tokens
            )
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.finish(x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width)))

    def project(self, x: Tensor, start: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (batch, heads, tokens, head width)."""
        batch, tokens, _ = x.shape
        q, k, v = (
            self.qkv(self.norm_attention(x))
            .view(batch, tokens, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        return (
            rotate(F.rms_norm(q, q.shape[-1:]), start),
            rotate(F.rms_norm(k, k.shape[-1:]), start),
            v,
        )

    def finish(self, x: Tensor) -> Tensor:
        """Add the MLP behind its norm and return the residual stream."""
        gate, value = self.up(self.norm_mlp(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


def rotate(x: Tensor, start: int | Tensor) -> Tensor:
    """Return ``x`` (batch, heads, tokens, head width) with rotary positions: (tokens,), or those
    from ``start`` on.
    """
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
    place = (
        torch.arange(start, start + x.shape[2], device=x.device)
        if isinstance(start, int)
        else start
    )
    angle = place.float()[:, None] * frequency
    left, right = x[..., :half], x[..., half:]
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    return torch.cat((left * cosine - right * sine, left * sine + right * cosine), -1)


class Network(nn.Module):
    """A decoder: token ids in, hidden states and logits out; the embedding is also the output
    head.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = (
                    (2 * shape.layers) ** -0.5
                    if name.endswith(("out.weight", "down.weight"))
                    else 1.0
                )
                nn.init.normal_(parameter, std=0.02 * scale)

    def hidden(self, tokens: Tensor, start: int = 0, cache: Cache | None = None) -> list[Tensor]:
        """Return the residual stream after each layer, each (batch, tokens, width)."""
        x, states = self.embedding(tokens), []
        for block in self.blocks:
            x = block(x, start, cache)
            states.append(x)
        return states

    def head(self, state: Tensor) -> Tensor:
        """Return logits (..., vocabulary) of a residual state."""
        return F.linear(self.norm(state), self.embedding.weight)

    def forward(self, tokens: Tensor, start: int = 0, cache: Cache | None = None) -> Tensor:
        """Return logits (batch, tokens, vocabulary)."""
        return self.head(self.hidden(tokens, start, cache)[-1])


class Reader:
    """A network that has read some tokens and can take back the last of them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.cache: Cache = []
        self.read = 0

    @torch.no_grad()
    def extend(self, tokens: list[int]) -> Tensor:
        """Read ``tokens`` and return logits (tokens, vocabulary) behind each."""
        logits = self.network(
            torch.tensor([tokens], device=self.network.embedding.weight.device),
            self.read,
            self.cache,
        )[0]
        self.read += len(tokens)
        return logits

    def keep(self, count: int) -> None:
        """Forget everything behind the first ``count`` tokens."""
        self.cache[:] = [(k[:, :, :count], v[:, :, :count]) for k, v in self.cache] if count else []
        self.read = count
