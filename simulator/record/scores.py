"""What a model says about tokens that were written: their rank, and the distribution they are drawn
from.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


def rank_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the rank of each token (...) by falling logit (..., V), ties to the lower id."""
    own = logits.gather(-1, tokens[..., None])
    ids = torch.arange(logits.shape[-1], device=logits.device)
    before = (logits > own) | ((logits == own) & (ids < tokens[..., None]))
    return before.sum(-1)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; temperature 0 takes the first choice, ``top_k`` 0 and ``top_p``
    1 keep every token.

    Draft and target draw in the same way, as speculative sampling wants it (Leviathan et al. 2023,
    section 2.2).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def distribution(self, logits: Tensor) -> Tensor:
        """Return probabilities (..., V); greedy ones are the model's own confidence at temperature
        1, uncut.
        """
        odds = (logits / (self.temperature or 1.0)).softmax(-1)
        if self.top_k or self.top_p < 1.0:
            return self._cut(odds)
        return odds

    def probability(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the probability (...) of each of ``tokens`` (...) to be drawn from ``logits``
        (..., V).
        """
        return self.distribution(logits).gather(-1, tokens[..., None])[..., 0]

    def _cut(self, odds: Tensor) -> Tensor:
        """The ``top_k`` likeliest tokens, then the fewest that together reach ``top_p``; what is
        left adds up to 1.
        """
        # stable: ties to the lower id
        falling, order = odds.sort(dim=-1, descending=True, stable=True)
        if self.top_k:
            falling[..., self.top_k :] = 0.0
            falling /= falling.sum(-1, keepdim=True)
        falling[falling.cumsum(-1) - falling >= self.top_p] = 0.0
        return torch.zeros_like(odds).scatter(-1, order, falling / falling.sum(-1, keepdim=True))


def draw(odds: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token per row of ``odds`` (batch, V): the first whose cumulated probability exceeds
    ``uniform`` (batch,).

    The random number comes from outside, so that a request is written the same in any batch.
    """
    reached = odds.double().cumsum(-1)
    found = torch.searchsorted(reached, (uniform * reached[:, -1])[:, None], right=True)
    return found[:, 0].clamp(max=odds.shape[-1] - 1)
