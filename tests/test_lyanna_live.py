"""Live decoding with Lyanna's re-sampled trees against replays of what was recorded, step for step.

The plainest program: every context is read from its start, and the target really chooses every
token.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from torch import Tensor

from benchmarks.family.heads import HiddenChain
from benchmarks.family.members import Members
from benchmarks.family.network import Network
from benchmarks.family.recorder import TREES
from simulator.core.acceptance.trace import Trace
from simulator.papers.lyanna.resampling import ResampledReplay
from tests.live_trees import Path, best, choice, first_choices, walk
from tests.lyanna_steps import ResampledVerification, verified as next_verified
from tests.test_live_trees import TOKENS, same_text

pytestmark = pytest.mark.full


class Resampler:
    """Lyanna's drafter: one pass of the hidden chain, a tree sampled from it, and again behind a
    correction.
    """

    def __init__(self, target: Network, head: HiddenChain, branching: int) -> None:
        self.target, self.head, self.branching = target, head, branching

    @torch.no_grad()
    def chain(self, text: list[int]) -> list[Tensor]:
        """Raw logits of every depth behind ``text``."""
        states = self.target.hidden(torch.tensor([text[:-1]]))
        return [rows[0, -1] for rows in self.head.chain(self.target, states, torch.tensor([text]))]

    @torch.no_grad()
    def tree(self, raw: list[Tensor], root: int | None, budget: int) -> set[Path]:
        """Algorithm 1 on the logits ``raw``; ``root``: the token whose information the first level
        gets, if any.
        """
        scores: dict[Path, float] = {}
        frontier: dict[Path, float] = {(): 0.0}
        for logits in raw:
            level = dict[Path, float]()
            for path, score in frontier.items():
                parent = path[-1] if path else root
                shift = (
                    0.0
                    if parent is None
                    else self.head.token_information(self.target, torch.tensor(parent))
                )
                chance = (logits + shift).log_softmax(-1)
                level |= {
                    (*path, token): score + float(chance[token])
                    for token in first_choices(chance, self.branching)
                }
            scores |= level
            frontier = {path: level[path] for path in best(level, self.branching)}
        return set(best(scores, budget))


def speculate_resampling(
    target: Network,
    drafter: Resampler,
    prompt: list[int],
    tokens: int,
    budget: int,
    resampled_budget: int,
) -> tuple[list[int], list[ResampledVerification]]:
    """Output and steps of Lyanna: the drafted tree and the one left from the step before are
    verified together.
    """
    text, steps, left = (
        [*prompt, choice(target, prompt)],
        list[ResampledVerification](),
        set[Path](),
    )
    while len(text) - len(prompt) < tokens:
        raw = drafter.chain(text)
        committed = walk(target, text, drafter.tree(raw, None, budget), left)
        steps.append(ResampledVerification(len(committed) - 1, bool(left)))
        text += committed
        remaining = raw[len(committed) :]
        left = drafter.tree(remaining, text[-1], resampled_budget) if remaining else set()
    return text[len(prompt) :], steps


@pytest.mark.parametrize("resample", [True, False])
def test_lyanna_replays_with_and_without_resampling(
    family: Members, greedy: Trace, prompts: torch.Tensor, resample: bool
) -> None:
    sizes = TREES["lyanna_tree"]
    drafter = Resampler(family.target, cast(Any, family.modules["lyanna"]), sizes["branching"])
    again = sizes["resampled_budget"] if resample else 0
    verified = 0
    for request in range(6):
        prompt = prompts[request].tolist()
        tokens, steps = speculate_resampling(
            family.target, drafter, prompt, TOKENS, sizes["budget"], again
        )
        assert same_text(greedy, request, tokens)
        replay = ResampledReplay(
            greedy, request, least=1 if resample else len(greedy.extra["lyanna_tree.run"])
        )
        assert [next_verified(replay) for _ in steps] == steps
        verified += sum(step.resampled for step in steps)
    assert (verified > 0) == resample
