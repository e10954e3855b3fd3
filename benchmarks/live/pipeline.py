"""SpecPipe live in two stages on two cores of this machine: what its replay must reproduce, passage
for passage.

    core A  |== first layers read level 1, the draft grows level 2 ==|         |
    core B  |== last layers read the root's row ==|                  |token    |

With two stages the root's row is in the second one while its children are in the first, so that a
level there is siblings behind a text that all of them share. A child that is right goes on to the
second stage in the next step; after a miss the target's token passes the first stage alone. The
draft shares core A, as there are but two.
"""

from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.family.draft_tree import TravellingTree
from benchmarks.family.heads import branch
from benchmarks.family.network import Cache, Keys, Network
from benchmarks.family.pair import Family
from benchmarks.family.tree_drafter import TreeDrafter
from benchmarks.live.budget import settle_down
from simulator.core.acceptance.draft_tree import Beam, Passage

FIRST_LAYERS = 3
"""Of the target's eight, which leaves room for the draft on the first core and for the head on the
second.
"""


class Choice(NamedTuple):
    """Holds the answer of the second stage."""

    token: int
    wall_s: float


class FirstStage:
    """The first layers: a text that has been read, and the siblings behind it."""

    @torch.no_grad()
    def __init__(self, target: Network, text: list[int]) -> None:
        self.target, self.blocks = target, target.blocks[:FIRST_LAYERS]
        cache: Cache = []
        x = target.embedding(torch.tensor([text]))
        for block in self.blocks:
            x = block(x, 0, cache)
        self.text, self.trunk, self.siblings = x, cache, list[Keys]()

    @torch.no_grad()
    def level(self, tokens: list[int]) -> Tensor:
        """Return states (siblings, 1, width) of tokens that all stand behind the text."""
        x, self.siblings = self.target.embedding(torch.tensor(tokens))[:, None], []
        for block, trunk in zip(self.blocks, self.trunk, strict=True):
            own = list[Keys]()
            x = branch(block, x, 1, trunk, own)
            self.siblings += own
        return x

    def keep(self, sibling: int) -> None:
        """Continue the text with one of the siblings."""
        self.trunk = [
            (
                torch.cat((k, new_k[sibling : sibling + 1]), 2),
                torch.cat((v, new_v[sibling : sibling + 1]), 2),
            )
            for (k, v), (new_k, new_v) in zip(self.trunk, self.siblings, strict=True)
        ]


@torch.no_grad()
def second_stage_process(connection: Connection, pair: Path, core: int | None) -> None:
    """Run the last layers until the end: a prompt's states open a request, None ends the process.

    Every message is the states of rows to read and how many rows of the text to keep before that.
    """
    settle_down(core)
    target = Family.read(pair).target
    blocks, cache = target.blocks[FIRST_LAYERS:], Cache()
    connection.send(None)
    while (message := connection.recv()) is not None:
        states, kept = message
        begin = perf_counter()
        cache[:] = [(k[:, :, :kept], v[:, :, :kept]) for k, v in cache] if kept else []
        x = torch.from_numpy(states)
        for block in blocks:
            x = block(x, kept, cache)
        token = int(target.head(x[0, -1]).argmax())
        connection.send(Choice(token, perf_counter() - begin))


class PipelinedRequest(NamedTuple):
    """One request: its tokens, the passages behind the first one, and their seconds on the wall."""

    tokens: list[int]
    passages: list[Passage]
    seconds: float


def decode(
    family: Family, connection: Connection, prompt: list[int], tokens: int, beam: Beam
) -> PipelinedRequest:
    """Decode greedily beside a :func:`second_stage_process`, pipeline step by pipeline step."""
    stage = FirstStage(family.target, prompt)
    drafter = TreeDrafter(family.draft, prompt, beam.branching)
    connection.send((stage.text.numpy(), 0))
    text, passages, begin = [*prompt, connection.recv().token], list[Passage](), perf_counter()
    key = int(drafter.read(np.array([len(prompt) - 1]), np.array(text[-1:]))[0])
    tree, entered = TravellingTree(text[-1], key, drafter, beam), text[-1:]
    states = stage.text
    while len(text) - len(prompt) < tokens:
        for step in range(tree.step + 1, tree.due + 1):
            if step == tree.due:
                root = entered.index(text[-1])
                stage.keep(root)
                connection.send((states[root : root + 1].numpy(), len(text) - 1))
            entered = tree.entering(step)
            states = stage.level(entered)
            tree.grow()
        text.append(connection.recv().token)
        passages.append(tree.cut(text[-1]))
    return PipelinedRequest(text[len(prompt) :], passages, perf_counter() - begin)
