"""Steps of Speculative Streaming, by hand and complete, and its formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.core.acceptance.draft_tree import PrunedTree
from simulator.core.acceptance.sources import Cycle, Rates, Replay, odds_of
from simulator.core.cost.model import DraftHead
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.strategies.common.step import Kind, Progress, Step
from simulator.papers.speculative_streaming.laws import (
    parity,
    query_products,
    relative_step_cost,
    speedup_over_two_models,
    tree_nodes,
)
from simulator.papers.speculative_streaming.strategy import SpeculativeStreaming
from tests.formulas import accept_threshold, late_saving, stream_rows, token_layers
from tests.ledger import PROMPT, TINY, Ledger, booked, first_finding, near, states
from tests.test_tree_replay import trace_of

STREAMS = SpeculativeStreaming(streams=2, branching=2, stream_layers=1, kept=4, attended_tokens=5)
"""Trees of 7 nodes, 4 of them kept; each with two streams that see 5 tokens."""


def test_a_tree_goes_up_whole_and_on_pruned_with_its_streams() -> None:
    ledger = Ledger()
    batch = states(STREAMS, (10, 1), (3, 9))
    step = STREAMS.compose(batch)
    lower = Rows(14, 0, 2, 27, 7 * 13 + 56)
    upper = Rows(24, 0, 2, 21, (40 + 8 * 5 + 10) + (12 + 8 * 3 + 10), adapted=16)
    assert step == Step(Kind("step", 2), lower, 0, NO_ROWS, (upper,))
    assert [state.proposed for state in batch] == [6, 6]
    phases = STREAMS.phases(ledger, step)
    assert {name: phase.wall_s for name, phase in phases.items()} == {
        "lower": 14,
        "prune": near(0.14),
        "upper": 24,
        "head": near(0.24),
    }
    assert [(question[0], *question[-3:]) for question in ledger.asked] == [
        ("head", *ledger.asked[0]),
        ("target", lower, 0.0, -1),
        ("target", upper, -1, 1.0),
        ("head", *ledger.asked[3]),
    ]
    assert (ledger.asked[0][1].rank, ledger.asked[0][2]) == (8, Rows(14, 14))
    assert (ledger.asked[3][1], ledger.asked[3][2]) == (DraftHead(), Rows(24, 24))
    t = STREAMS.durations(ledger, step)
    assert booked(STREAMS, t, step.kind) == (
        [
            ("target", 0, 14, "layers 1..N-N_s, whole tree"),
            ("target", 14, near(14.14), "prune"),
            ("target", near(14.14), near(38.14), "layers N-N_s+1..N, streams"),
            ("target", near(38.14), near(38.38), "LM head, next tree"),
        ],
        near(38.38),
    )
    assert STREAMS.step_seconds(t, step.kind) == near(38.38)
    assert STREAMS.derived(ledger, step, odds_of(Cycle((1,)), None)) == {
        "tree_rows": 14.0,
        "stream_layer_rows": 24.0,
        "stream_layer_pairs": 136.0,
    }
    assert STREAMS.settle(batch) == [Progress(2, 2, 1, 6), Progress(3, 3, 2, 6)]
    assert [state.context for state in batch] == [12, 6]


def test_a_whole_tree_is_not_pruned_and_sees_the_whole_context() -> None:
    whole = SpeculativeStreaming(
        streams=2, branching=2, stream_layers=1, kept=None, attended_tokens=None, rank=None
    )
    ledger = Ledger()
    step = whole.compose(states(whole, (10, 1)), PROMPT)
    (upper,) = step.loads
    assert upper == Rows(21, 0, 1, 17, 70 + 140 + 28)
    assert (step.kind, step.prompts) == (Kind("step", 1, prompts=1), PROMPT)
    t = whole.durations(ledger, step)
    assert t == (13, 0, 27, near(0.22))
    assert [span[3] for span in booked(whole, t, step.kind)[0]] == [
        *("layers 1..N-N_s, whole tree", "layers N-N_s+1..N, streams", "LM head, next tree"),
    ]
    assert ledger.asked[0] == ("target", step.rows + PROMPT._replace(logit_rows=0), 0.0, -1)


def test_a_grant_leaves_levels_of_the_tree_or_a_single_token() -> None:
    batch = states(STREAMS, (10, 9), (10, 9), (10, 9), (10, 9))
    for state, rows in zip(batch, (7, 6, 2, 0), strict=True):
        state.most_rows = rows
    step = STREAMS.compose(batch)
    assert [state.proposed for state in batch] == [6, 2, 0, 0]
    assert (step.kind, step.rows.tokens) == (Kind("step", 2, 2), 12)
    assert STREAMS.settle(batch) == [
        Progress(3, 3, 2, 6),
        Progress(2, 2, 1, 2),
        Progress(1, 1, 0, 0),
        Progress(1, 1, 0, 0),
    ]
    one = STREAMS.step(Kind("step", 1, 1), 10)
    assert (one.rows, one.loads[0].tokens) == (
        Rows.decode(7, 10)._replace(logit_rows=0) + Rows(1, 0, 1, 11, 11),
        15,
    )


def test_numbers_of_streams() -> None:
    assert (
        STREAMS.window,
        STREAMS.needs.draft_steps,
        STREAMS.nodes,
        STREAMS.needs.rows,
        STREAMS.needs.cache_tokens,
    ) == (
        2,
        0,
        7,
        7,
        7,
    )
    assert [STREAMS.model_copy(update={"kept": kept}).prunes for kept in (None, 6, 7, 8)] == [
        False,
        True,
        False,
        False,
    ]
    assert (STREAMS.needs.dynamic_draft, STREAMS.needs.draft_model) == (True, False)
    assert STREAMS.pruned_tree == PrunedTree(2, 2, 3)
    assert STREAMS.model_copy(update={"kept": None}).pruned_tree == PrunedTree(2, 2, 6)
    printed, adapter = 2 * 100 + 2 * 8 * 100, 2 * 8 * 100
    assert STREAMS.extra_memory(TINY).weights == printed + adapter
    assert (
        STREAMS.model_copy(update={"mode": "shared", "stream_layers": 3}).extra_memory(TINY).weights
        == printed
    )
    assert STREAMS.model_copy(update={"rank": None}).extra_memory(TINY).weights == printed
    with pytest.raises(
        ValueError,
        match=r"a tree of 131,071 nodes; expected streams and branching with 65,536 or fewer",
    ):
        SpeculativeStreaming(streams=16, branching=2)
    assert SpeculativeStreaming(streams=15, branching=2).nodes == 65_535
    assert first_finding(STREAMS, target=TINY) is None
    assert (
        first_finding(
            STREAMS.model_copy(update={"stream_layers": 3, "branching": 1_000}), target=TINY
        )
        is None
    )
    assert first_finding(STREAMS.model_copy(update={"stream_layers": 4}), target=TINY) == (
        *("stream_layers", "tiny has 4 layers, and one at least lies below; got 4"),
    )
    assert first_finding(STREAMS.model_copy(update={"branching": 1_001}), target=TINY) == (
        *("branching", "a node has 1,000 children at most; got 1,001"),
    )


def test_what_a_recording_of_streams_can_answer() -> None:
    header = {"pruned_trees": [{"levels": 2, "branching": 2, "budget": 3}]}
    trace = replace(
        trace_of([0] * 5, header=header),
        extra={"streams.rank": np.zeros((2, 5)), "streams_pruned.run": np.zeros((1, 5))},
    )
    assert first_finding(STREAMS, trace=trace) is None
    assert first_finding(STREAMS.model_copy(update={"kept": None}), trace=trace_of([0])) == (
        "name",
        (
            "holds no look-ahead streams; choose a trace that does, without acceptance.drafter, or "
            "state rates"
        ),
    )
    assert first_finding(STREAMS.model_copy(update={"streams": 3}), trace=trace) == (
        *("streams", "holds 2 streams, got 3; set strategy.streams=2"),
    )
    assert first_finding(STREAMS.model_copy(update={"mode": "shared"}), trace=trace) == (
        *(
            "mode",
            (
                "was recorded from lossless streams, and shared ones keep other tokens; state "
                "rates instead"
            ),
        ),
    )
    assert first_finding(STREAMS.model_copy(update={"kept": 5}), trace=trace) == (
        "kept",
        "does not say what is left of 2 streams of 2 tokens pruned to 5 nodes; it says so of 2 x "
        "2 to 4 nodes; set strategy.kept=null for the whole tree",
    )
    assert first_finding(STREAMS.model_copy(update={"kept": None}), trace=trace) is None
    rates = Rates((0.5,))
    assert STREAMS.reads(rates) is rates


def test_what_streams_keep_of_a_recording() -> None:
    """Ranks 0 1 2 0 of the next token and 1 0 0 0 of the one behind: a whole tree from them, a
    pruned one as recorded.
    """
    header = {
        "pruned_trees": [
            {"levels": 2, "branching": 2, "budget": 2},
            {"levels": 2, "branching": 2, "budget": 3},
        ]
    }
    ranks, runs = (
        np.array([[9, 0, 1, 2, 0], [9, 1, 0, 0, 65_535]]),
        np.array([[0, 9, 9, 9, 9], [0, 1, 2, 0, 1]]),
    )
    extra = {"streams.rank": ranks, "streams_pruned.run": runs}
    trace = replace(trace_of([0] * 5, header={**header, "models": {"target": {}}}), extra=extra)
    for kept, expected in ((None, [2, 2, 0, 1]), (4, [1, 2, 0, 1])):
        found = STREAMS.model_copy(update={"kept": kept}).reads(Replay(trace))
        assert isinstance(found, Replay)
        assert found.runs(0).tolist() == expected
    one = first_finding(STREAMS.model_copy(update={"kept": 6}), trace=trace) or ("", "")
    assert "it says so of 2 x 2 to 3 nodes; 2 x 2 to 4 nodes; set" in one[1]


def test_formulas_of_streams_by_hand() -> None:
    assert [tree_nodes(*each) for each in ((0, 3), (1, 3), (3, 2), (4, 1))] == [1, 4, 15, 5]
    assert (stream_rows(7, 2), token_layers(32, 4, 40, 10, 3)) == (21, 28 * 40 + 4 * 40)
    assert (late_saving(32, 4), relative_step_cost(3.0, 2.0)) == (0.875, 1.5)
    assert (query_products(10, 4, 1000, 64), query_products(10, 4, 50, 64)) == (
        10_000 + 2_560,
        500 + 2_000,
    )
    assert (accept_threshold(0.3, 0.6), accept_threshold(0.6, 0.3)) == (0.5, 1.0)
    assert (parity(4, 8.0), parity(4, 8.0, 0.5), speedup_over_two_models(4, 8.0, 0.5)) == (
        1.5,
        0.75,
        3.0,
    )
    assert speedup_over_two_models(4, 8.0, 0.5, 0.5) == 1.5
