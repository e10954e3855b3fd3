"""Draft with whatever, verify a tree: whole timelines in tiny worlds, hits and misses, and what a
recording says of trees.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError
from test_laws import play
from test_tree_replay import trace_of

from simulator.core.acceptance.sources import Cycle, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import DrawnMatches, RecordedRuns
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import NonNegative, Ranged, Share
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.tree_sd import TreeSD

HEADS = TreeSD(
    tree=TokenTree(branching=(2, 2)),
    passes=(
        DraftPass(rows=(3, 2), head=DraftHead(layers=1)),
        DraftPass(rows=(4,), head=DraftHead(squares=1), logits=False),
    ),
    extra_rows=1,
    host_ms=Ranged(value=0.5),
)
"""Three draft passes, a tree of six, one row beside it."""
CHAIN = TreeSD(
    tree=TokenTree(branching=(1, 1, 1)),
    drafter="lookup",
    matched=Share(value=0.5),
    host_ms=Ranged(value=0.5),
)
COST = StatedCost(StatedDurations(target_ms=10.0, draft_ms=6.0), 3)
SEVEN_B = ModelSpec(
    name="x",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    head_dim=128,
    intermediate_size=11008,
    vocab_size=32000,
)


def test_the_program_of_a_step_takes_as_long_for_any_batch() -> None:
    """Half a millisecond for each of four requests, and 3 ms of the program."""
    busy = HEADS.model_copy(update={"step_host_ms": NonNegative(value=3.0)})
    assert busy.phases(COST, busy.step(Kind("step", 4), 10))["host"].wall_s == pytest.approx(5e-3)


def test_the_timeline_of_one_step() -> None:
    """Three passes of 2 ms, half a millisecond of host, a pass of 10 ms; two of three levels are
    kept.
    """
    loop, world = play(HEADS, Cycle((2,)), COST, Requests(count=1, output_tokens=7))
    ms = [
        (span.lane, span.label, round(span.start_s * 1e3, 6), round(span.end_s * 1e3, 6))
        for span in world.spans
    ]
    assert ms[-6:] == [
        ("target", "draft", 0.0, 6.0),
        ("rendezvous", "host", 6.0, 6.5),
        ("target", "verify", 6.5, 16.5),
        ("target", "draft", 16.5, 22.5),
        ("rendezvous", "host", 22.5, 23.0),
        ("target", "verify", 23.0, 33.0),
    ]
    assert dict(loop.ledger.tally.steps) == {Kind("step", 1): 2}
    assert dict(loop.ledger.tally.accepted) == {2: 2}


def test_rows_of_every_pass() -> None:
    """Two requests with 100 cached tokens each: rows, logits and cached tokens of the draft's
    passes and of the target's.
    """
    asked: list[tuple[str, Rows]] = []

    class Noted(StatedCost):
        def head(self, head: DraftHead, rows: Rows):
            asked.append((f"{head.layers}/{head.squares}", rows))
            return super().head(head, rows)

        def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0):
            asked.append(("target", rows))
            return super().target(rows, start, stop)

    HEADS.durations(Noted(COST.durations, 3), HEADS.step(Kind("step", 2), 100))
    assert asked == [
        ("1/0", Rows(6, 6, 2, 200, 600)),
        ("1/0", Rows(4, 4, 2, 200, 400)),
        ("0/1", Rows(8, 0, 2, 200, 800)),
        ("target", Rows.decode(8, 200, 2)),
    ]


def test_weights_count_once_and_tables_in_bytes() -> None:
    shared = DraftPass(rows=(1, 1), head=DraftHead(squares=2))
    heads = TreeSD(
        tree=TokenTree(branching=(1,)),
        passes=(shared, shared.model_copy(update={"reused": True})),
        ids_per_entry=8,
    )
    assert heads.extra_memory(SEVEN_B).weights == 2 * 4096**2
    assert heads.extra_memory(SEVEN_B).table_bytes == 8 * 32000 * 8
    assert not heads.needs.draft_model
    assert TreeSD(tree=TokenTree(branching=(1,)), passes=(DraftPass(rows=(1,)),)).needs.draft_model


# ---- steps with nothing to propose


def looked_up() -> Trace:
    """One request: prefill, then six positions; nothing matches at the second and the fifth."""
    return trace_of(
        [0] * 7, lookup_run=[0, 2, 0, 1, 3, 0, 0], lookup_proposed=[0, 3, 0, 3, 3, 0, 3]
    )


def test_misses_are_plain_steps() -> None:
    """From position 1: keep 2 (go to 4), keep 3 (round to 2), a miss (3), keep 1 (5), a miss (6),
    keep none (1).
    """
    acceptance = CHAIN.reads(Replay(looked_up()))
    cursor = acceptance.cursor(0, None)
    walk = []
    for _ in range(6):
        (state,) = states = [CHAIN.open(cursor, 100)]
        step = CHAIN.compose(states)
        (progress,) = CHAIN.settle(states)
        walk.append(
            (step.kind.name, step.rows.tokens, progress.accepted, progress.verified, state.context)
        )
    assert walk == [
        ("step", 4, 2, 3, 103),
        ("step", 4, 3, 4, 104),
        ("miss", 1, 0, 1, 101),
        ("step", 4, 1, 2, 102),
        ("miss", 1, 0, 1, 101),
        ("step", 4, 0, 1, 101),
    ]
    odds = acceptance.odds(3, None)
    assert odds.unmatched == pytest.approx(2 / 6)
    assert odds.accepted.tolist() == [0.25, 0.25, 0.25, 0.25]


def test_law_of_hits_and_misses_is_exact_with_the_shares_that_were_counted() -> None:
    """Twelve tokens a round in six steps, two of them misses: T(4) + T(1) weighted, against the
    event engine at 1e-9.
    """

    class ByRows(StatedCost):
        def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0):
            return super().target(rows, start, stop)._replace(wall_s=rows.tokens * 1e-3)

    acceptance = CHAIN.reads(Replay(looked_up()))
    cost = ByRows(StatedDurations(target_ms=10.0, draft_ms=0.0), 1)
    loop, _ = play(CHAIN, acceptance, cost, Requests(count=1, output_tokens=1 + 12 * 5))
    steps = loop.ledger.tally.steps
    assert dict(steps) == {Kind("step", 1): 20, Kind("miss", 0, 1): 10}
    shares = {kind: count / 30 for kind, count in steps.items()}
    law = CHAIN.law(cost, lambda gamma: acceptance.odds(gamma, None), 1, 100, shares)
    assert law.step_s == pytest.approx((20 * 4.5e-3 + 10 * 1.5e-3) / 30, rel=1e-12)
    assert loop.ledger.tally.step_seconds / 30 == pytest.approx(law.step_s, rel=1e-9)


def test_drawn_matches_meet_the_binomial_law() -> None:
    strategy, share = CHAIN, 0.7
    acceptance = DrawnMatches(Cycle((2,)), share, seed=1)
    cost = StatedCost(StatedDurations(target_ms=10.0, draft_ms=0.0), 1)
    loop, _ = play(
        strategy, acceptance, cost, Requests(concurrency=4, count=40, output_tokens=1_500)
    )
    law = strategy.law(cost, lambda gamma: acceptance.odds(gamma, None), 4, 100)
    assert sum(law.kinds.values()) == pytest.approx(1.0)
    assert law.tokens_per_step == pytest.approx(0.7 * 3 + 0.3)
    assert loop.ledger.tally.committed / loop.ledger.tally.request_steps == pytest.approx(
        law.tokens_per_step, rel=0.01
    )
    mean = loop.ledger.tally.step_seconds / sum(loop.ledger.tally.steps.values())
    assert mean == pytest.approx(law.step_s, rel=0.01), "the batch empties at the end"


def test_a_tree_that_is_granted_too_few_rows_is_not_verified() -> None:
    states = [HEADS.open(Cycle((2,)).cursor(0, None), 100) for _ in range(2)]
    states[1].most_rows = 7
    step = HEADS.compose(states)
    assert step.kind == Kind("hit", 1, 1)
    assert step.rows == Rows.decode(8, 100) + Rows.decode(1, 100)
    assert [progress.verified for progress in HEADS.settle(states)] == [3, 1]


# ---- trees and recordings


@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=20),
    st.sampled_from(["0 1 00 10 000", "1 10", "0 00 000 0000"]),
)
def test_what_a_tree_keeps_is_its_longest_path_of_ranks(ranks: list[int], paths: str) -> None:
    tree = TokenTree(paths=paths)
    kept = tree.kept(trace_of(ranks), "draft")
    words = {"", *paths.split()}
    for start in range(len(ranks)):
        ahead = "".join(map(str, ranks[start : start + tree.depth]))
        assert kept[start] == max(
            len(word)
            for word in words
            if ahead.startswith(word) and (word[:-1] in words or not word)
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "expected one of branching, paths, or budget"),
        ({"branching": [1], "paths": "0"}, "expected one of branching"),
        ({"budget": 8, "levels": 2}, "expected one of branching"),
        ({"branching": [1], "levels": 2}, "expected one of branching"),
        ({"paths": "0 12"}, "12 hangs below 1, which is not in the tree"),
        ({"paths": "0 x"}, "expected a digit for each level, as in 021, got 'x'"),
    ],
)
def test_a_tree_has_one_form(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenTree.model_validate(fields)


def test_only_the_recorded_dynamic_tree_is_replayed() -> None:
    header = {"trees": {"best": {"budget": 3, "levels": 2, "branching": 2}}}
    trace = trace_of([0] * 3, header=header, best_run=[2, 1, 0])
    tree = TokenTree(budget=3, levels=2, choices=2)
    assert tree.unrecorded(trace, "best") is None
    assert tree.kept(trace, "best").tolist() == [2, 1, 0]
    other = TokenTree(budget=4, levels=2, choices=2)
    assert "and none of 4 tokens in 2 levels" in (other.unrecorded(trace, "best") or "")
    assert other.unrecorded(trace, "best", borrowed=True) is None
    assert "holds no tree of 'draft'" in (tree.unrecorded(trace, "draft") or "")
    assert "holds nothing of the drafter 'medusa'" in (
        TokenTree(paths="0").unrecorded(trace, "medusa") or ""
    )
    heads = trace_of([0] * 3, heads_rank=[[0, 0, 0], [0, 0, 0]])
    assert TokenTree(paths="0 00 000").unrecorded(heads, "heads") == "knows 2 levels, got 3"


def test_recorded_runs_walk_as_the_chain_they_come_from() -> None:
    """A tree of one path is a chain: same verdicts, same odds."""
    ranks = np.random.default_rng(3).integers(0, 2, 60).tolist()
    replay, gamma = Replay(trace_of([0, *ranks])), 4
    runs = RecordedRuns(replay, np.concatenate(([0], replay.runs(0))), gamma)
    assert runs.odds(gamma, None).accepted == pytest.approx(
        Replay(runs.trace).odds(gamma, None).accepted
    )
    chain, tree = replay.cursor(0, None), runs.cursor(0, None)
    strategy = TreeSD(tree=TokenTree(branching=(1,) * gamma))
    for _ in range(100):
        mine, theirs = (strategy.open(cursor, 10) for cursor in (chain, tree))
        for state in (mine, theirs):
            strategy.compose([state])
        assert strategy.settle([mine]) == strategy.settle([theirs])
