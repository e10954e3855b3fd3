"""Live decoding with trees, several sequences and pipelines: the plainest programs, for replays to
be held against.

Nothing here shares code with the recorder: nodes are tuples of tokens, every context is read from
its start, and the target really chooses every token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.family.heads import ExitHead
from benchmarks.family.network import Network
from benchmarks.live.decoding import Decoded
from benchmarks.verification import accepted_prefix
from simulator.core.acceptance.draft_tree import Beam, Passage
from simulator.core.acceptance.sequences import SequenceIteration

Path = tuple[int, ...]
TreeDrafter = Callable[[list[int]], set[Path]]
"""Text so far -> the paths of a tree behind it."""


@torch.no_grad()
def chances(network: Network, text: Sequence[int]) -> Tensor:
    """(V,) log-probabilities of the token behind ``text``."""
    return network(torch.tensor([list(text)]))[0, -1].log_softmax(-1)


def choice(network: Network, text: Sequence[int]) -> int:
    """The likeliest token behind ``text``."""
    return int(chances(network, text).argmax())


def first_choices(logits: Tensor, count: int) -> list[int]:
    """The ``count`` likeliest tokens."""
    return [int(token) for token in logits.topk(count).indices]


def continued(network: Network, text: Sequence[int], count: int) -> list[int]:
    """``count`` tokens written greedily behind ``text``."""
    written: list[int] = []
    for _ in range(count):
        written.append(choice(network, [*text, *written]))
    return written


def walk(target: Network, text: list[int], *trees: set[Path]) -> list[int]:
    """What verification commits: the target's choices for as long as they are in one of the trees,
    and the one behind.
    """
    committed: list[int] = []
    while True:
        committed.append(choice(target, [*text, *committed]))
        if not any(tuple(committed) in tree for tree in trees):
            return committed


def speculate_tree(
    target: Network, drafter: TreeDrafter, prompt: list[int], tokens: int
) -> Decoded:
    """Greedy decoding with a tree a step."""
    text, accepted = [*prompt, choice(target, prompt)], []
    while len(text) - len(prompt) < tokens:
        committed = walk(target, text, drafter(text))
        accepted.append(len(committed) - 1)
        text += committed
    return Decoded(text[len(prompt) :], accepted)


def static_drafter(draft: Network, branching: Sequence[int]) -> TreeDrafter:
    """SpecInfer: the draft's ``branching[d]`` first choices below every node of level d."""

    def propose(text: list[int]) -> set[Path]:
        paths, level = set[Path](), list[Path]([()])
        for children in branching:
            level = [
                (*path, token)
                for path in level
                for token in first_choices(chances(draft, [*text, *path]), children)
            ]
            paths |= set(level)
        return paths

    return propose


def best(scores: dict[Path, float], count: int) -> list[Path]:
    """The ``count`` paths with the highest score."""
    return sorted(scores, key=lambda path: -scores[path])[:count]


def eagle2_drafter(
    target: Network, head: nn.Module, branching: int, passes: int, budget: int
) -> TreeDrafter:
    """EAGLE-2: in each pass the ``branching`` best nodes get as many children; the ``budget`` best
    of all are verified.
    """

    @torch.no_grad()
    def propose(text: list[int]) -> set[Path]:
        states = target.hidden(torch.tensor([text[:-1]]))
        scores: dict[Path, float] = {}
        frontier: dict[Path, float] = {(): 0.0}
        for depth in range(passes):
            level = dict[Path, float]()
            for path, score in frontier.items():
                chance = head(target, states, torch.tensor([[*text, *path]]))[depth][
                    0, -1
                ].log_softmax(-1)
                level |= {
                    (*path, token): score + float(chance[token])
                    for token in first_choices(chance, branching)
                }
            scores |= level
            frontier = {path: level[path] for path in best(level, branching)}
        return set(best(scores, budget))

    return propose


def pruned_streams_drafter(
    target: Network, streams: nn.Module, gate: ExitHead, levels: int, branching: int, budget: int
) -> TreeDrafter:
    """Speculative Streaming: every stream's first choices below every node, rated where the streams
    begin.
    """
    below = target.shape.layers - int(streams.layers)

    @torch.no_grad()
    def propose(text: list[int]) -> set[Path]:
        ahead = streams(target, target.hidden(torch.tensor([text[:-1]])), torch.tensor([text]))
        level: dict[Path, float] = {(): 0.0}
        scores: dict[Path, float] = {}
        for rows in ahead[:levels]:
            grown = dict[Path, float]()
            for path, score in level.items():
                state = target.hidden(torch.tensor([[*text, *path]]))[below - 1][0, -1]
                rated = gate(state, target).log_softmax(-1)
                grown |= {
                    (*path, token): score + float(rated[token])
                    for token in first_choices(rows[0, -1], branching)
                }
            scores, level = scores | grown, grown
        return set(best(scores, budget))

    return propose


def duodecode(
    target: Network,
    draft: Network,
    prompt: list[int],
    tokens: int,
    budget: int,
    divisors: Iterable[int],
) -> tuple[list[int], list[SequenceIteration]]:
    """Output and iterations of DuoDecoding as its program decides them: both models see the same
    unverified prefix.
    """
    text, unverified, steps = (
        [*prompt, choice(target, prompt)],
        list[int](),
        list[SequenceIteration](),
    )
    while len(text) - len(prompt) < tokens:
        prefix = [*text, *unverified]
        odds = chances(draft, prefix).exp()
        first = first_choices(odds, 8)
        threshold = odds[first[0]] * chances(draft, [*prefix, first[0]]).exp().max()
        worth = max(1, sum(bool(odds[token] > threshold) for token in first))
        count = max(divisor for divisor in divisors if divisor <= worth)
        drafted = [
            [token, *continued(draft, [*prefix, token], budget // count - 1)]
            for token in first[:count]
        ]
        checked = [
            choice(target, [*text, *unverified[:done]]) for done in range(len(unverified) + 1)
        ]
        right = accepted_prefix(unverified, checked)
        text += checked[: right + 1]
        accepted = [row for row in drafted if right == len(unverified) and row[0] == text[-1]]
        steps.append(SequenceIteration(count, len(unverified), right + 1, bool(accepted)))
        unverified = accepted[0][1:] if accepted else []
    return text[len(prompt) :], steps


class Mirrored(NamedTuple):
    """One step of Mirror-SD: what was kept, and whether the next window was in the tree, for both
    messages (K07).
    """

    accepted: int
    reused_per_position: bool
    reused_first_position: bool


@torch.no_grad()
def mirror(
    target: Network,
    draft: Network,
    gate: ExitHead,
    layer: int,
    prompt: list[int],
    tokens: int,
    gamma: int,
    kappa: int,
) -> tuple[list[int], list[Mirrored]]:
    """Output and steps of Mirror-SD with trees that hold every branch the early exit names
    (MSD-7).
    """
    text, steps = [*prompt, choice(target, prompt)], list[Mirrored]()
    while len(text) - len(prompt) < tokens:
        window = continued(draft, text, gamma)
        states = target.hidden(torch.tensor([[*text, *window]]))
        named = [
            first_choices(logits, kappa)
            for logits in gate(states[layer - 1][0, -gamma - 1 :], target)
        ]
        checked = target.head(states[-1][0, -gamma - 1 :]).argmax(-1).tolist()
        accepted = accepted_prefix(window, checked)
        committed = tuple(checked[: accepted + 1])
        every = {
            (*window[:place], token)
            for place, tokens_here in enumerate(named)
            for token in tokens_here
        }
        roots = [[token, *continued(draft, [*text, token], gamma)] for token in named[0]]
        first = {tuple(row[: depth + 1]) for row in roots for depth in range(gamma + 1)}
        steps.append(Mirrored(accepted, committed in every, committed in first))
        text += committed
    return text[len(prompt) :], steps


class Node:
    """A token in the tree of a pipeline, with its parent; ``score`` sums log-probabilities from the
    first root.
    """

    def __init__(self, token: int, parent: Node | None, score: float) -> None:
        self.token, self.parent, self.score = token, parent, score

    def below(self, root: Node) -> bool:
        """Whether the node is ``root`` or stands below it."""
        return self is root or (self.parent is not None and self.parent.below(root))

    def path(self, root: Node) -> Path:
        """Tokens from below ``root`` to here."""
        return () if self is root or self.parent is None else (*self.parent.path(root), self.token)


def pipeline(
    target: Network, draft: Network, prompt: list[int], tokens: int, beam: Beam
) -> tuple[list[int], list[Passage]]:
    """Output and passages of SpecPipe, pipeline step by pipeline step: ``stages[i]`` is the level
    in stage i.
    """
    text = [*prompt, choice(target, prompt)]
    root = Node(text[-1], None, 0.0)
    stages: list[list[Node]] = [[root], *([] for _ in range(beam.stages - 1))]
    passages, steps = list[Passage](), 0

    def grown() -> list[Node]:
        bottom = next(level for level in stages if level)
        contexts = torch.tensor([[*text, *node.path(root)] for node in bottom])
        with torch.no_grad():
            rows = draft(contexts)[:, -1].log_softmax(-1)
        children = [
            Node(token, node, node.score + float(chance[token]))
            for node, chance in zip(bottom, rows, strict=True)
            for token in first_choices(chance, beam.branching)
        ]
        chosen = sorted(children, key=lambda node: -node.score)[: beam.width]
        return [node for node in children if node in chosen]

    while len(text) - len(prompt) < tokens:
        steps += 1
        level = grown()
        if root in stages[-1]:
            token = choice(target, text)
            text.append(token)
            child = next(
                (
                    node
                    for each in stages
                    for node in each
                    if node.parent is root and node.token == token
                ),
                None,
            )
            child = child or next(
                (node for node in level if node.parent is root and node.token == token), None
            )
            passages.append(Passage(steps, [len(each) for each in stages], child is not None))
            steps, root = 0, child or Node(token, None, 0.0)
            stages = [[node for node in each if node.below(root)] for each in stages]
            level = [node for node in level if node.below(root)] if child else [root]
            level = level or grown()
        stages = [level, *stages[:-1]]
    return text[len(prompt) :], passages
