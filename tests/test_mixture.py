"""The small mixture: routing of draft tokens behind every position is that of the text with these
tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from benchmarks.family import mixture
from benchmarks.family.network import Network, NetworkShape
from benchmarks.family.observations import PROMPT_TOKENS
from benchmarks.family.rollouts import roll_outs
from benchmarks.family.trees import Starts

SHAPE = NetworkShape(layers=2, width=32, heads=2, hidden=16, vocabulary=50)


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    with torch.no_grad():
        big, draft = mixture.Mixture(SHAPE), Network(SHAPE)
        for parameter in (*big.parameters(), *draft.parameters()):
            parameter.mul_(8.0) if parameter.dim() == 2 else None
    return big, draft, torch.randint(50, (PROMPT_TOKENS + 6,))


def test_every_token_takes_as_many_different_experts_as_stated(made: tuple[Any, Any, Any]) -> None:
    big, _, text = made
    big(text[None])
    assert big.routing.shape == (1, len(text), SHAPE.layers, mixture.ACTIVE)
    assert (big.routing[..., 0] != big.routing[..., 1]).all()
    assert big.unbalance >= 1.0 - 1e-6
    loss = mixture.mixture_loss(big, text[None])
    loss.backward()
    assert all(block.experts.router.weight.grad.abs().sum() > 0 for block in big.blocks)


def test_routes_of_draft_tokens_are_those_of_the_text_that_holds_them(
    made: tuple[Any, Any, Any],
) -> None:
    big, draft, text = made
    routes = mixture.routes(big, draft, text)
    drafted, _, _ = roll_outs(draft, big, [], Starts(text, PROMPT_TOKENS), mixture.DRAFTED)
    with torch.no_grad():
        for start in range(6):
            written = torch.cat((text[: PROMPT_TOKENS + start], drafted[:, start]))
            big(written[None])
            behind = big.routing[0, PROMPT_TOKENS + start :].numpy()
            for depth in range(mixture.DRAFTED):
                mine = np.sort(routes["experts.drafted"][depth, :, :, start])
                assert (mine == np.sort(behind[depth])).all()
            big(text[None])
            taken = np.sort(routes["experts.taken"][:, :, start])
            assert (taken == np.sort(big.routing[0, PROMPT_TOKENS + start].numpy())).all()
