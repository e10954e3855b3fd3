"""Replays of recorded outcomes in tiny worlds with the whole sequence of steps written out."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from simulator.core.acceptance.draft_tree import Beam, Passage
from simulator.core.acceptance.trace import UNKNOWN, Trace
from simulator.core.acceptance.tree_replay import (
    ResampledReplay,
    ranks_ahead,
    recorded_passages,
    static_tree_run,
    tree_of,
)
from tests.resampled_steps import ResampledVerification, verified


def trace_of(
    ranks: list[int],
    offsets: tuple[int, ...] = (),
    header: dict[str, Any] | None = None,
    **extra: Any,
) -> Trace:
    """A greedy trace of draft ranks; keyword ``beam_steps`` is the array ``beam.steps``."""
    count = len(ranks)
    bounds = offsets or (0, count)
    return Trace(
        header={
            "format": 1,
            "flavours": ["x"],
            "temperature": 0.0,
            "exit_layers": [],
            "vocabulary": 10,
            "models": {},
        }
        | (header or {}),
        offsets=np.array(bounds),
        flavour=np.zeros(len(bounds) - 1, dtype=np.uint8),
        token=np.zeros(count, dtype=np.uint16),
        draft_rank=np.array(ranks, dtype=np.uint16),
        p=np.ones(count, dtype=np.float16),
        q=np.ones(count, dtype=np.float16),
        exit_rank=np.zeros((0, count), dtype=np.uint16),
        extra={
            name.replace("_", ".", 1): np.array(values, dtype=np.uint16)
            for name, values in extra.items()
        },
    )


def test_the_static_tree_of_specinfer_has_twenty_nodes() -> None:
    """SP-11 a and b."""
    tree = tree_of((1, 1, 3, 1, 1, 1, 1, 1))
    assert len(tree) == 20
    assert [sum(len(path) == depth for path in tree) for depth in range(1, 9)] == [
        1,
        1,
        3,
        3,
        3,
        3,
        3,
        3,
    ]
    assert len(tree_of((2, 2, 2))) == 14


def test_a_static_tree_keeps_what_its_branches_name() -> None:
    ranks = ranks_ahead(trace_of([9, 0, 1, 0, 2, 0, 0], offsets=(0, 5, 7)), "draft", 3)
    assert ranks.tolist() == [
        [9, 0, 1, 0, 2, 0, 0],
        [0, 1, 0, 2, UNKNOWN, 0, UNKNOWN],
        [1, 0, 2, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
    ]
    assert static_tree_run(ranks, tree_of((1, 2, 1))).tolist() == [0, 3, 0, 1, 0, 2, 1]
    assert static_tree_run(ranks, [(0,), (1,), (1, 0)]).tolist() == [0, 1, 2, 1, 0, 1, 1]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_a_tree_of_one_choice_a_level_is_a_chain(ranks: list[int], branching: list[int]) -> None:
    """And a tree with more choices keeps at least as much: until the first rank that no level
    holds.
    """
    ahead = ranks_ahead(trace_of(ranks), "draft", len(branching))
    kept = static_tree_run(ahead, tree_of(branching))
    for start, found in enumerate(kept):
        held = [
            start + d < len(ranks) and ranks[start + d] < width for d, width in enumerate(branching)
        ]
        assert found == (held.index(False) if False in held else len(held))


LEFT = [[0, 1, 0, 3, 0, 0], [0, 2, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]]


def test_lyanna_takes_the_better_of_two_trees() -> None:
    """Windows of 3: what a rejection at depth a leaves is row 1 + a of the same start; at the last
    depth, nothing.
    """
    trace = trace_of([0] * 6, header={"models": {"target": {}}})
    trace.extra["lyanna_tree.run"] = np.array(LEFT)
    replay = ResampledReplay(trace, 0)
    assert [verified(replay) for _ in range(4)] == [
        ResampledVerification(
            accepted=1, resampled=False
        ),  # start 1 keeps 1 of its tree; of the chain, row 2 is left: 1 token
        ResampledVerification(accepted=3, resampled=True),  # start 3 keeps 3, and nothing is left
        ResampledVerification(
            accepted=0, resampled=False
        ),  # start 2, having gone round, keeps none; row 1 is left: none of it right
        ResampledVerification(accepted=3, resampled=True),  # start 3 again
    ]
    alone = ResampledReplay(trace, 0, least=3)  # of three levels so many are never left
    assert [verified(alone) for _ in range(2)] == [
        ResampledVerification(1, False),
        ResampledVerification(3, False),
    ]


def test_a_resampled_tree_can_be_the_better_one() -> None:
    trace = trace_of([0] * 4, header={"models": {"target": {}}})
    trace.extra["lyanna_tree.run"] = np.array([[0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]])
    replay = ResampledReplay(trace, 0)
    assert [verified(replay) for _ in range(2)] == [
        ResampledVerification(0, False),
        ResampledVerification(2, True),
    ]


def test_a_pipeline_passes_tokens_as_recorded() -> None:
    beam = Beam(4, 2, 3)
    trace = trace_of(
        [0] * 3,
        header={"beams": [{"width": 4, "branching": 2, "stages": 3}]},
        beam_steps=[[0, 3, 1]],
        beam_hit=[[0, 1, 0]],
        beam_rows=[[[0, 4, 4], [0, 2, 3], [0, 1, 1]]],
    )
    assert list(islice(recorded_passages(trace, 0, beam), 3)) == [
        Passage(3, [4, 2, 1], True),
        Passage(1, [4, 3, 1], False),
        Passage(3, [4, 2, 1], True),
    ]
    with pytest.raises(ValueError, match=r"Beam\(width=8"):
        recorded_passages(trace, 0, Beam(8, 2, 3))
