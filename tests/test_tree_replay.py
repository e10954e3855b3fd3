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
    ranks_ahead,
    recorded_passages,
    static_tree_run,
    tree_of,
)


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
