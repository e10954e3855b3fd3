"""SpecPipe's token tree grows by a level a step, is pruned by verification, and travels through the
stages of a pipeline.

Source: SpecPipe, sections 3.2.1 and 3.3.2 to 3.3.3 (SP-4 to SP-7) and Algorithm 1 (SP-12).
"""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.draft_tree import Beam, Passage

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A draft tree holds its nodes in breadth-first order, the root first; every array has an entry
    or row for each node.
    """

    tokens: Ints
    """(nodes,) token ids."""
    chance: Floats
    """(nodes,) natural logarithm of the draft's probability given the parent."""
    reach: Floats
    """(nodes,) sum of ``chance`` from below the first root to the node."""
    level: Ints
    """(nodes,) levels below the root."""
    key: Ints
    """(nodes,) key by which the drafter knows the node; -1 until it has read it."""
    path: Ints
    """(nodes, levels) node on that level on the way from the root to the node, itself included; -1
    below it.
    """

    @classmethod
    def single(cls, token: int, key: int = -1) -> Self:
        """Return a tree of a root alone."""
        zero = np.zeros(1)
        return cls(
            np.array([token]), zero, zero, np.zeros(1, int), np.array([key]), np.zeros((1, 1), int)
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Return (nodes, nodes) whether j is i or an ancestor of i: the attention mask of a pass
        over the tree (SP-4).
        """
        mask = np.zeros((len(self), len(self) + 1), dtype=bool)
        mask[np.arange(len(self))[:, None], self.path] = True
        return mask[:, :-1]

    @property
    def bottom(self) -> Ints:
        """Return the indices of the nodes on the deepest level."""
        return np.arange(self.level.searchsorted(self.level[-1]), len(self))

    def append(self, tokens: Ints, chance: Floats, parents: Ints) -> Self:
        """Return the tree with one more level below the deepest, sorted by the order of the parents
        (SP-4).
        """
        old, new, levels = len(self), len(tokens), self.path.shape[1]
        if not new:
            return self
        order = np.argsort(parents, kind="stable")
        tokens, chance, parents = tokens[order], chance[order], parents[order]
        path = np.full((old + new, levels + 1), -1)
        path[:old, :levels] = self.path
        path[old:, :levels] = self.path[parents]
        path[old:, levels] = np.arange(old, old + new)
        return type(self)(
            np.concatenate((self.tokens, tokens)),
            np.concatenate((self.chance, chance)),
            np.concatenate((self.reach, self.reach[parents] + chance)),
            np.concatenate((self.level, np.full(new, levels))),
            np.concatenate((self.key, np.full(new, -1))),
            path,
        )

    def subtree(self, root: int) -> Ints:
        """Return the indices of the nodes that stay when ``root`` becomes the root: its column of
        the mask (SP-5).
        """
        return np.flatnonzero(self.path[:, self.level[root]] == root)

    def cached(self, root: int) -> Ints:
        """Return the indices whose keys and values stay in the cache: the row of ``root`` in the
        mask, or its column (SP-6).
        """
        return np.union1d(self.path[root, : self.level[root]], self.subtree(root))

    def prune(self, root: int) -> Self:
        """Return the tree below ``root``; reach keeps the common factor, which changes no order
        (SP-5).
        """
        kept, level = self.subtree(root), self.level[root]
        depth = self.level[kept[-1]] + 1
        renumbered = np.full(len(self) + 1, -1)
        renumbered[kept] = np.arange(len(kept))
        return type(self)(
            self.tokens[kept],
            self.chance[kept],
            self.reach[kept],
            self.level[kept] - level,
            self.key[kept],
            renumbered[self.path[kept, level:depth]],
        )

    def child(self, token: int) -> int | None:
        """Return the index of the root's child with this token; None where there is none."""
        children = ((self.level == 1) & (self.tokens == token)).nonzero()[0]
        return int(children[0]) if len(children) else None

    def keyed(self, nodes: Ints, keys: Ints) -> Self:
        """Return the tree in which the drafter knows ``nodes`` by ``keys``."""
        key = self.key.copy()
        key[nodes] = keys
        return type(self)(self.tokens, self.chance, self.reach, self.level, key, self.path)

    def parents(self, nodes: Ints) -> Ints:
        """Return the indices of the parents of ``nodes``, which must not include the root."""
        return self.path[nodes, self.level[nodes] - 1]


def widest(reach: Floats, chance: Floats, width: int) -> tuple[Ints, Ints]:
    """Return (parent, rank) of the ``width`` children with the highest cumulative probability, by
    parent (SP-7).

    ``reach``: (bottom nodes,), ``chance``: (bottom nodes, k), both logarithms; ties go to the first
    parent, then to the better rank.
    """
    score = (reach[:, None] + chance).ravel()
    if len(score) <= width:
        best = np.arange(len(score))
    else:
        worst = np.partition(score, -width)[-width]
        above, equal = np.flatnonzero(score > worst), np.flatnonzero(score == worst)
        best = np.sort(np.concatenate((above, equal[: width - len(above)])))
    return best // chance.shape[1], best % chance.shape[1]


class Drafter(Protocol):
    """A drafter reads nodes of a tree and proposes tokens behind them."""

    def read(self, parents: Ints, tokens: Ints) -> Ints:
        """Read ``tokens`` behind the nodes with the keys ``parents``; return the keys of the new
        nodes.
        """

    def children(self, keys: Ints, count: int) -> tuple[Ints, Floats]:
        """Return tokens and log-probabilities, both (nodes, count), of the most probable tokens
        behind every node.
        """


class TravellingTree:
    """A travelling tree is a request's tree while its levels pass through the stages of a pipeline,
    one level a step (SP-12).

    In each step the draft grows the next level from the deepest one and the root's row may leave
    the last stage; then every level is cut to the descendants of the verified token. The next level
    is always grown from the deepest that survives, from tokens that the draft has already scored,
    so that a level enters in every step. A token outside the tree enters alone, and comes out
    ``stages`` steps later.
    """

    def __init__(self, root: int, key: int, drafter: Drafter, beam: Beam) -> None:
        self.drafter, self.beam = drafter, beam
        self.tree, self.entry, self.step = DraftTree.single(root, key), [1], 0
        self.above = -1

    def verify(self, token: int) -> Passage:
        """Let steps pass until the root's row is out and gives ``token``; prune the tree and return
        the token's passage.
        """
        for _ in range(self.step, self.due):
            self.grow()
        return self.cut(token)

    @property
    def due(self) -> int:
        """Return the step in which the root's row leaves the last stage."""
        return self.entry[0] + self.beam.stages - 1

    def entering(self, step: int) -> list[int]:
        """Return the tokens of the level that enters the first stage in a step."""
        tokens: list[int] = self.tree.tokens[self.tree.level == self.entry.index(step)].tolist()
        return tokens

    def cut(self, token: int) -> Passage:
        """Prune the tree to ``token``, which the root's row gave, after :meth:`grow` in every step;
        return its passage.
        """
        last = self.due
        steps, self.step = last - self.step, last
        rows = self._rows_in_flight()
        root, self.above = self.tree.child(token), int(self.tree.key[0])
        if root is None:
            key = int(self.drafter.read(self.tree.key[:1], np.array([token]))[0])
            self.tree, self.entry = DraftTree.single(token, key), [last + 1]
            return Passage(steps, rows, hit=False)
        self.tree = self.tree.prune(root)
        self.entry = self.entry[1 : 2 + int(self.tree.level[-1])]
        if self.entry[-1] <= last:
            self.grow()
        return Passage(steps, rows, hit=True)

    def _rows_in_flight(self) -> list[int]:
        """Return the nodes at each stage in the present step; the level grown in it has yet to
        enter.
        """
        rows = [0] * self.beam.stages
        for entry, nodes in zip(self.entry, np.bincount(self.tree.level).tolist(), strict=True):
            if entry <= self.step:
                rows[self.step - entry] = nodes
        return rows

    def grow(self) -> None:
        """Append a level, which enters the pipeline a step after the deepest one; after a gap, in
        the next step.
        """
        bottom = self.tree.bottom
        if self.tree.key[bottom[0]] < 0:
            above = (
                self.tree.key[self.tree.parents(bottom)] if bottom[0] else np.array([self.above])
            )
            keys = self.drafter.read(above, self.tree.tokens[bottom])
            self.tree = self.tree.keyed(bottom, keys)
        tokens, chance = self.drafter.children(self.tree.key[bottom], self.beam.branching)
        parent, rank = widest(self.tree.reach[bottom], chance, self.beam.width)
        self.tree = self.tree.append(tokens[parent, rank], chance[parent, rank], bottom[parent])
        self.entry.append(max(self.entry[-1], self.step) + 1)
