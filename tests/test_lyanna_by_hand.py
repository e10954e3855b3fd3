"""Steps of Lyanna worked out by hand, part by part, and what it reads of a recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.core.acceptance.sources import Cycle, Rates, Replay
from simulator.core.cost.rows import Phase, Rows
from simulator.core.quantities import NonNegative
from simulator.core.strategies.common.step import ABSENT, Admission, Kind, Progress, Step
from simulator.papers.lyanna import (
    FUSING,
    HEAD,
    LAYER,
    Drafted,
    Lyanna,
    ResampledDetail,
    table_bytes,
)
from simulator.papers.lyanna.resampling import RatedTrees, ResampledReplay
from tests.ledger import PROMPT, TINY, Ledger, booked, first_finding, near, odds_of, states
from tests.lyanna_steps import ResampledVerification, verified
from tests.test_tree_replay import trace_of

CHAIN = Lyanna(
    depth=3,
    branching=2,
    budget=5,
    resampled_budget=2,
    level_us=NonNegative(value=1e6),
    host_ms=NonNegative(value=500.0),
)


def test_a_batch_that_verifies_new_trees_and_one_sampled_again() -> None:
    """Trees of 6 rows at 10 and 20; the second has two nodes more."""
    lyanna, ledger = CHAIN, Ledger()
    batch = states(lyanna, (10, 9), (20, 0))
    assert batch == [Drafted(state.cursor, state.context) for state in batch]
    batch[1].left = 2
    step = lyanna.compose(batch)
    together = Rows.decode(6, 10) + Rows.decode(8, 20)
    assert step == Step(Kind("resampled", 2, detail=ResampledDetail(1)), together)
    t = lyanna.durations(ledger, step)
    first, later = Rows.decode(4, 30, 2)._replace(logit_rows=0), Rows(2, 0, 2, 32, 32)
    assert ledger.asked == [
        *(("head", FUSING, first), ("head", LAYER, later), ("head", HEAD, Rows(6, 6))),
        ("target", together, 0.0, 1.0),
    ]
    assert t == (near(0.08 + 2 * 0.02), near(0.06), 3, 14, 2, 0.5)
    spans = [
        ("target", 0, near(0.12), "draft layers"),
        ("target", near(0.12), near(0.18), "LM head"),
        ("target", near(0.18), near(5.18), "sample trees"),
        ("rendezvous", near(5.18), near(5.68), "host"),
        ("target", near(5.68), near(19.68), "verify"),
    ]
    assert booked(lyanna, t, step.kind) == (spans, near(19.68))
    assert lyanna.step_seconds(t, step.kind) == near(19.68)
    phases = lyanna.phases(ledger, step)
    assert (phases["host"], phases["sample"]) == (
        Phase(0.5, {"target host": 0.5}),
        Phase(3, {"draft head compute": 3}),
    )
    assert lyanna.settle(batch) == [
        Progress(4, 4, 3, 3, "a drafted tree alone"),
        Progress(1, 1, 0, 3, "one re-sampled from 2 levels beside it"),
    ]
    assert [(state.context, state.left) for state in batch] == [(14, 0), (21, 2)]


def test_what_a_rejection_left_goes_first_in_a_pass_of_its_own() -> None:
    """Three rows behind 20 tokens, while the other request waits; then both draft, and nothing is
    left of the chain before.
    """
    lyanna, ledger = CHAIN.model_copy(update={"fusion": False}), Ledger()
    batch = states(lyanna, (10, 9), (20, 0))
    batch[1].left = 2
    step = lyanna.compose(batch)
    assert step == Step(
        Kind("resampled", 1, waiting=1, detail=ResampledDetail(1)), Rows.decode(3, 20)
    )
    assert step == lyanna.step(step.kind, 20)
    t = lyanna.durations(ledger, step)
    assert ledger.asked == [("target", Rows.decode(3, 20), 0.0, 1.0)]
    assert t == (0, 0, 0, 3, 2, 0.5)
    spans = [
        ("target", 0, 2, "sample trees"),
        ("rendezvous", 2, 2.5, "host"),
        ("target", 2.5, 5.5, "verify re-sampled trees"),
    ]
    assert booked(lyanna, t, step.kind) == (spans, 5.5)
    assert lyanna.step_seconds(t, step.kind) == 5.5
    assert lyanna.settle(batch) == [ABSENT, Progress(1, 1, 0, 2, "a drafted tree alone")]
    assert [(state.context, state.left) for state in batch] == [(10, 0), (21, 0)]
    assert lyanna.compose(batch) == Step(Kind("step", 2), Rows.decode(6, 31, 2))
    assert [progress.choice for progress in lyanna.settle(batch)] == [
        "a drafted tree alone",
        "one re-sampled from 2 levels before it",
    ]
    assert [state.left for state in batch] == [0, 2]
    with_prompt = lyanna.compose(batch, PROMPT)
    assert with_prompt.kind.prompts == 1
    assert lyanna.phases(Ledger(), with_prompt)["layers"].wall_s > 0


def test_a_lyanna_step_without_anything_left() -> None:
    ledger = Ledger()
    step = CHAIN.compose(states(CHAIN, (10, 1)), PROMPT)
    assert step == Step(Kind("step", 1, prompts=1), Rows.decode(6, 10), 0, PROMPT)
    t = CHAIN.durations(ledger, step)
    assert ("head", FUSING, Rows.decode(4, 10)._replace(logit_rows=0)) in ledger.asked
    assert ("head", FUSING, PROMPT._replace(logit_rows=0)) in ledger.asked
    assert t == (near(0.06 + 0.04 + 2 * 0.01), near(0.03), 3, 12, 0, 0.5)
    quiet = CHAIN.model_copy(update={"host_ms": NonNegative(value=0.0)})
    assert [span[3] for span in booked(quiet, quiet.durations(ledger, step), step.kind)[0]] == [
        *("draft layers", "LM head", "sample trees", "verify"),
    ]
    one = states(CHAIN, (10, 1))
    CHAIN.compose(one)
    assert CHAIN.settle(one) == [Progress(2, 2, 1, 3, "one re-sampled from 1 level beside it")]
    apart = CHAIN.model_copy(update={"fusion": False})
    alone = apart.step(Kind("step", 1), 10)
    assert (alone.rows, set(apart.phases(ledger, alone))) == (
        Rows.decode(6, 10),
        {"layers", "head", "sample", "host", "verify"},
    )


def test_a_chain_of_tokens_reads_every_node_and_its_head_every_level() -> None:
    tokens, ledger = (
        CHAIN.model_copy(update={"chain": "tokens", "token_info": False, "resample": False}),
        Ledger(),
    )
    t = tokens.durations(ledger, tokens.step(Kind("step", 2), 15))
    width = Rows(4, 0, 2, 34, 2 * 30 + 4)
    assert ledger.asked[:5] == [
        *(("head", FUSING, Rows.decode(4, 30, 2)._replace(logit_rows=0)), ("head", FUSING, width)),
        *(("head", HEAD, Rows(2, 2)), ("head", HEAD, Rows(4, 4)), ("head", HEAD, Rows(4, 4))),
    ]
    assert (t.layers, t.head) == (near(0.16), near(0.1))


def test_numbers_of_lyanna() -> None:
    assert (
        CHAIN.window,
        CHAIN.needs.draft_steps,
        CHAIN.built,
        CHAIN.needs.cache_tokens,
        CHAIN.needs.dynamic_draft,
    ) == (
        3,
        3,
        10,
        8,
        True,
    )
    once = CHAIN.model_copy(update={"resample": False})
    assert (
        once.needs.cache_tokens,
        once.least,
        CHAIN.least,
        CHAIN.model_copy(update={"threshold": 1}).least,
    ) == (6, 3, 1, 2)
    assert [CHAIN.left(kept) for kept in range(4)] == [2, 1, 0, 0]
    assert [CHAIN.model_copy(update={"threshold": 1}).left(kept) for kept in range(4)] == [
        2,
        0,
        0,
        0,
    ]
    assert [once.left(kept) for kept in range(4)] == [0, 0, 0, 0]
    assert CHAIN.extra_memory(TINY).weights == 90_000 + 20_000
    assert (
        CHAIN.extra_memory(TINY).table_bytes,
        CHAIN.model_copy(update={"token_info": False}).extra_memory(TINY).table_bytes,
    ) == (1_000_000, 0)
    assert [table_bytes(size) for size in (40_000, 40_001)] == [40_000**2, 32_000**2]
    assert first_finding(CHAIN, target=TINY) is None
    assert first_finding(CHAIN.model_copy(update={"branching": 1_000}), target=TINY) is None
    assert first_finding(CHAIN.model_copy(update={"branching": 1_001}), target=TINY) == (
        *("branching", "a node has 1,000 children at most, one for each token; got 1,001"),
    )
    ledger = Ledger()
    assert CHAIN.admission(ledger, PROMPT) == Admission(near(3.06), 0.0, 0.0)
    assert ledger.asked == [
        ("head", FUSING, PROMPT._replace(logit_rows=0)),
        ("prefill", "target", PROMPT),
    ]
    with pytest.raises(ValueError, match="budget 11 is more than the 10 nodes of a tree 3 deep"):
        Lyanna(depth=3, branching=2, budget=11)
    assert Lyanna(depth=3, branching=2, budget=10).budget == 10
    for changes in ({}, {"token_info": False}, {"resample": False}):
        with pytest.raises(
            ValueError, match="a chain that reads its tokens has no use for token_info"
        ):
            Lyanna.model_validate({"chain": "tokens", **changes})
    assert Lyanna(chain="tokens", token_info=False, resample=False).built == 4 + 2 * 16


def test_how_many_of_a_batch_sample_again() -> None:
    """Kept 0, 1, 2, 3 with 0.5, 0.25, 0.125, 0.125: three quarters leave levels."""
    found = CHAIN.kinds(odds_of(Rates((0.5,))), 2)
    assert found == {
        Kind("step", 2): near(1 / 16),
        Kind("resampled", 2, detail=ResampledDetail(1)): near(6 / 16),
        Kind("resampled", 2, detail=ResampledDetail(2)): near(9 / 16),
    }
    apart = CHAIN.model_copy(update={"fusion": False})
    assert apart.kinds(odds_of(Rates((0.5,))), 2) == {
        Kind("step", 2): near(16 / 31),
        Kind("resampled", 1, waiting=1, detail=ResampledDetail(1)): near(6 / 31),
        Kind("resampled", 2, detail=ResampledDetail(2)): near(9 / 31),
    }
    assert apart.kinds(odds_of(Rates((1.0,))), 2) == {Kind("step", 2): 1.0}
    assert CHAIN.kinds(odds_of(Rates((1.0,))), 2) == {Kind("step", 2): 1.0}
    assert CHAIN.kinds(odds_of(Rates((0.0,))), 1) == {
        Kind("resampled", 1, detail=ResampledDetail(1)): 1.0
    }


def test_what_a_recording_of_trees_can_answer() -> None:
    tree = {"levels": 3, "branching": 2, "budget": 5, "resampled_budget": 2}
    trace = replace(
        trace_of([0], header={"trees": {"lyanna_tree": tree}}),
        extra={"lyanna_tree.run": np.zeros(1)},
    )
    assert first_finding(CHAIN, trace=trace) is None
    for field, recorded in (("depth", 3), ("branching", 2), ("budget", 5), ("resampled_budget", 2)):
        other = CHAIN.model_copy(update={field: recorded + 1})
        assert first_finding(other, trace=trace) == (
            field,
            f"holds trees of {field} {recorded}, got {recorded + 1}",
        )
    for field in ("token_info", "first_token"):
        missing = (
            "holds no trees without it; state the rates of Lyanna's Table 1 in "
            "acceptance.per_position"
        )
        assert first_finding(CHAIN.model_copy(update={field: False}), trace=trace) == (
            field,
            missing,
        )
    assert first_finding(CHAIN, trace=trace_of([0])) == (
        *(
            "name",
            (
                "holds no trees of a hidden-state chain (lyanna_tree), or acceptance.drafter asks "
                "for others"
            ),
        ),
    )
    assert first_finding(CHAIN.model_copy(update={"chain": "tokens"}), trace=trace_of([0])) is None
    cycle, rated = Cycle((1,)), CHAIN.model_copy(update={"threshold": 1}).reads(Rates((0.5,)))
    assert CHAIN.reads(cycle) is cycle
    assert rated == RatedTrees(Rates((0.5,)), 3, 2, 0.93)
    replay = Replay(trace_of([0, 0]))
    assert CHAIN.model_copy(update={"chain": "tokens"}).reads(replay) is replay


LEFT = [[0, 1, 0, 3, 0, 0], [0, 2, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]]


def test_lyanna_takes_the_better_of_two_trees() -> None:
    """Windows of 3: what a rejection at depth a leaves is row 1 + a of the same start; at the last
    depth, nothing.
    """
    trace = trace_of([0] * 6, header={"models": {"target": {}}})
    trace.extra["lyanna_tree.run"] = np.array(LEFT)
    replay = ResampledReplay(trace, 0)
    assert [verified(replay) for _ in range(4)] == [
        # start 1 keeps 1 of its tree; of the chain, row 2 is left: 1 token
        ResampledVerification(accepted=1, resampled=False),
        ResampledVerification(accepted=3, resampled=True),  # start 3 keeps 3, and nothing is left
        # start 2, having gone round, keeps none; row 1 is left: none of it right
        ResampledVerification(accepted=0, resampled=False),
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
