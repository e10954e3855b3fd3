"""The dynamic tree: the paper's cases, a naive tree of objects, and a pipeline walked stage by
stage.
"""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.family.draft_tree import DraftTree, Floats, Ints, TravellingTree, widest
from simulator.core.acceptance.draft_tree import Beam, Passage


def grown(*levels: tuple[list[int], list[float], list[int]], root: int = 1) -> DraftTree:
    """A tree of tokens, probabilities and parents by level."""
    tree = DraftTree.single(root)
    for tokens, chance, parents in levels:
        tree = tree.append(np.array(tokens), np.log(chance), np.array(parents))
    return tree


FIVE = grown(([2, 3], [0.6, 0.3], [0, 0]), ([5, 4], [0.4, 0.7], [2, 1]))
MASK = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]


def test_a_level_is_appended_in_the_order_of_its_parents() -> None:
    """SP-4 a."""
    assert FIVE.tokens.tolist() == [1, 2, 3, 4, 5]
    assert np.exp(FIVE.chance) == pytest.approx([1, 0.6, 0.3, 0.7, 0.4])
    assert FIVE.mask.astype(int).tolist() == MASK


def test_an_empty_level_changes_nothing() -> None:
    """SP-4 c."""
    tree = DraftTree.single(1).append(
        np.array([], dtype=int), np.array([]), np.array([], dtype=int)
    )
    assert tree.tokens.tolist() == [1]
    assert tree.mask.tolist() == [[True]]


@pytest.mark.parametrize(
    ("root", "kept", "mask", "cached"),
    [
        (1, [1, 3], [[1, 0], [1, 1]], [0, 1, 3]),
        (2, [2, 4], [[1, 0], [1, 1]], [0, 2, 4]),
        (3, [3], [[1]], [0, 1, 3]),
        (0, [0, 1, 2, 3, 4], MASK, [0, 1, 2, 3, 4]),
    ],
)
def test_pruning_keeps_the_column_and_the_cache_row_or_column(
    root: int, kept: list[int], mask: list[list[int]], cached: list[int]
) -> None:
    """SP-5 a to c, SP-6 a to c."""
    tree = FIVE.prune(root)
    assert FIVE.subtree(root).tolist() == kept
    assert tree.tokens.tolist() == FIVE.tokens[kept].tolist()
    assert tree.mask.astype(int).tolist() == mask
    assert FIVE.cached(root).tolist() == cached
    assert int(tree.level[0]) == 0


@pytest.mark.parametrize(
    ("k", "width", "layer"),
    [
        (2, 2, [("Aa", 0.3), ("Ba", 0.27)]),
        (2, 3, [("Aa", 0.3), ("Ab", 0.18), ("Ba", 0.27)]),
        (1, 3, [("Aa", 0.3), ("Ba", 0.27)]),
    ],
)
def test_the_beam_keeps_the_most_probable_paths(
    k: int, width: int, layer: list[tuple[str, float]]
) -> None:
    """SP-7 a to c; the layer stands in the order of its parents."""
    chance = np.log([[0.5, 0.3, 0.1], [0.9, 0.05, 1e-9]])[:, :k]
    reach = np.log([0.6, 0.3])
    parent, rank = widest(reach, chance, width)
    names = ["AB"[p] + "abc"[r] for p, r in zip(parent, rank, strict=True)]
    assert names == [name for name, _ in layer]
    assert np.exp(reach[parent] + chance[parent, rank]) == pytest.approx(
        [value for _, value in layer]
    )


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(1, 16),
)
def test_among_equals_the_first_parent_wins_then_the_better_rank(
    scores: list[list[int]], width: int
) -> None:
    chance = np.array(scores, dtype=float)
    parent, rank = widest(np.zeros(len(scores)), chance, width)
    ordered = sorted(np.ndindex(*chance.shape), key=lambda place: -chance[place])[:width]
    assert list(zip(parent.tolist(), rank.tolist(), strict=True)) == sorted(ordered)


class Invented:
    """A drafter over an alphabet of 12 whose choices depend on the whole path, by a hash; keys
    index its contexts.
    """

    def __init__(self, text: tuple[int, ...] = ()) -> None:
        self.contexts = [text]

    def read(self, parents: Ints, tokens: Ints) -> Ints:
        first = len(self.contexts)
        self.contexts += [
            (*self.contexts[parent], int(token))
            for parent, token in zip(parents, tokens, strict=True)
        ]
        return np.arange(first, len(self.contexts))

    def children(self, keys: Ints, count: int) -> tuple[Ints, Floats]:
        rows = [choices(self.contexts[key])[:count] for key in keys]
        return np.array([[token for token, _ in row] for row in rows]), np.array(
            [[chance for _, chance in row] for row in rows]
        )


@cache
def choices(context: tuple[int, ...]) -> list[tuple[int, float]]:
    """Tokens behind a context with log-probabilities, likeliest first."""
    seed = int.from_bytes(hashlib.blake2b(repr(context).encode(), digest_size=8).digest())
    odds = np.random.default_rng(seed).dirichlet(np.full(12, 0.3)) + 1e-9
    return sorted(enumerate(np.log(odds).tolist()), key=lambda item: -item[1])


def staged(text: list[int], beam: Beam) -> list[Passage]:
    """The same pipeline as plain lists: paths in stages, one step after the other."""
    stages: list[list[tuple[int, ...]]] = [[()], *([] for _ in range(beam.stages - 1))]
    done, passages, steps = 1, list[Passage](), 0

    def next_level() -> list[tuple[int, ...]]:
        bottom = next(level for level in stages if level)
        known = tuple(text[:done])
        scored = {
            (*path, token): score(known, (*path, token))
            for path in bottom
            for token, _ in choices(known + path)[: beam.branching]
        }
        best = set(sorted(scored, key=lambda path: -scored[path])[: beam.width])
        return [path for path in scored if path in best]

    while done < len(text):
        steps += 1
        level = next_level()
        if () in stages[-1]:
            token, done = text[done], done + 1
            hit = any((token,) in each for each in (*stages, level))
            passages.append(Passage(steps, [len(each) for each in stages], hit))
            steps = 0
            stages = [[path[1:] for path in each if path[:1] == (token,)] for each in stages]
            level = [path[1:] for path in level if path[:1] == (token,)] if hit else [()]
            level = level or next_level()
        stages = [level, *stages[:-1]]
    return passages


def score(known: tuple[int, ...], path: tuple[int, ...]) -> float:
    """Log-probability of a path behind what is known."""
    return sum(dict(choices(known + path[:place]))[token] for place, token in enumerate(path))


def drawn_text(seed: int, tokens: int) -> list[int]:
    """A text that the invented draft often guesses: each token one of its first three choices."""
    rng, text = np.random.default_rng(seed), [0]
    for rank in rng.choice([0, 0, 0, 0, 1, 2, 5], size=tokens):
        text.append(choices(tuple(text))[rank][0])
    return text


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 5), st.integers(1, 6))
def test_a_tree_in_a_pipeline_is_that_of_plain_lists(
    seed: int, width: int, branching: int, stages: int
) -> None:
    text, beam = drawn_text(seed, 12), Beam(width, branching, stages)
    tree = TravellingTree(text[0], 0, Invented((text[0],)), beam)
    assert [tree.verify(token) for token in text[1:]] == staged(text, beam)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 6))
def test_steps_lie_between_one_and_the_stages(seed: int, width: int, stages: int) -> None:
    """A hit behind a hit with every level in place takes a step; behind a miss, all stages."""
    text = drawn_text(seed, 15)
    tree = TravellingTree(text[0], 0, Invented((text[0],)), Beam(width, 4, stages))
    passages = [tree.verify(token) for token in text[1:]]
    assert all(
        1 <= passage.steps <= stages == len(passage.rows) and passage.rows[-1] == 1
        for passage in passages
    )
    assert all(after.steps == stages for before, after in pairwise(passages) if not before.hit)
    assert max(max(passage.rows) for passage in passages) <= max(width, 1)


def test_a_perfect_draft_gives_a_token_a_step() -> None:
    text = [0]
    for _ in range(10):
        text.append(choices(tuple(text))[0][0])
    tree = TravellingTree(text[0], 0, Invented((0,)), Beam(width=1, branching=1, stages=4))
    assert [tree.verify(token) for token in text[1:]] == [
        Passage(4, [1] * 4, True),
        *[Passage(1, [1] * 4, True)] * 9,
    ]
