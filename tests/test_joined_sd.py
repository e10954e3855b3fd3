"""Retrieval joined with a drafter: whole timelines in tiny worlds, what a text holds of itself, and
law, replay and simulation of both kinds of step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError
from test_laws import play
from test_tree_replay import trace_of

from simulator.core.acceptance.by_context import ByContext, Falling
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.retrieval import RetrievalCursor, StatedRetrieval, matches, rate_of
from simulator.core.acceptance.sources import Cycle, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import Ranged
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.joined_sd import DraftedRequests, JoinedSD, Retrieval
from simulator.scenario import evaluate, load
from simulator.scenario.evaluate import law, simulate

JOINED = JoinedSD(
    retrieval=Retrieval(
        tokens=4,
        least_match_tokens=2,
        matched=Ranged(value=0.5),
        kept=Ranged(value=2.0),
        host_ms=Ranged(value=0.5),
    ),
    drafter="draft",
    passes=(DraftPass(rows=(2, 2)),),
    tree=TokenTree(branching=(2, 1)),
    host_ms=Ranged(value=1.0),
)
"""Chains of four, or a tree of four nodes in two levels, drafted in two passes."""
COST = StatedCost(StatedDurations(target_ms=10.0, draft_ms=6.0), 2)
RETRIEVED = Kind("retrieved", 1, detail=DraftedRequests(0))
DRAFTED = Kind("drafted", 1, detail=DraftedRequests(1))
METHODS = "methods_vicuna_7b_a100"


class ByRows(StatedCost):
    """A pass of the target takes a millisecond a row."""

    def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0):
        return super().target(rows, start, stop)._replace(wall_s=rows.tokens * 1e-3)


def text(tokens: Sequence[int], ranks: Sequence[int]) -> Trace:
    """One recorded request with its text; position 0 is the token of its prefill."""
    return replace(trace_of(ranks), token=np.array(tokens, dtype=np.uint16))


# ---- the timeline


def test_the_timeline_of_both_kinds_of_step() -> None:
    """Half a millisecond of look-up in every step; a drafted one has two passes of 3 ms and 1 ms of
    its tree, a retrieved one neither. Two tokens are kept each time.
    """
    acceptance = JOINED.reads(Cycle((2,)))
    loop, world = play(JOINED, acceptance, COST, Requests(count=1, output_tokens=7))
    ms = [
        (span.lane, span.label, round(span.start_s * 1e3, 6), round(span.end_s * 1e3, 6))
        for span in world.spans
    ]
    assert ms[-5:] == [
        ("draft", "draft", 0.0, 6.0),
        ("rendezvous", "host", 6.0, 7.5),
        ("target", "verify", 7.5, 17.5),
        ("rendezvous", "host", 17.5, 18.0),
        ("target", "verify", 18.0, 28.0),
    ]
    assert dict(loop.ledger.tally.steps) == {DRAFTED: 1, RETRIEVED: 1}
    assert dict(loop.ledger.tally.accepted) == {2: 2}


def test_a_batch_verifies_ragged_rows_and_drafts_for_those_that_need_it() -> None:
    """Three requests behind 100 tokens: two retrieve five rows each, one has a tree of five, whose
    two equal passes are priced once.
    """
    kind = JOINED.joined_kind(2, 1)
    asked: list[Rows] = []

    class Noted(StatedCost):
        def draft(self, rows: Rows, *where: object):
            asked.append(rows)
            return super().draft(rows)

    step = JOINED.step(kind, 100)
    durations = JOINED.durations(Noted(COST.durations, 2), step)
    assert kind.name == "both" and kind.batch == 3
    assert step.rows == Rows.decode(5, 200, 2) + Rows.decode(5, 100)
    assert asked == [Rows(2, 2, 1, 100, 200)]
    assert durations.draft == pytest.approx(2 * 3e-3)
    assert durations.host == pytest.approx(3 * 0.5e-3 + 1e-3)


def test_a_request_that_is_granted_too_few_rows_adds_one_token() -> None:
    states = [JOINED.open(JOINED.reads(Cycle((2,))).cursor(n, None), 100) for n in range(2)]
    states[1].most_rows = 4
    step = JOINED.compose(states)
    assert step.kind == Kind("drafted", 1, 1, detail=DraftedRequests(1))
    assert step.rows == Rows.decode(5, 100) + Rows.decode(1, 100)
    assert [progress.verified for progress in JOINED.settle(states)] == [3, 1]


# ---- what a text holds of itself


@pytest.mark.parametrize(
    ("tokens", "length", "right"),
    [
        # behind 1 stood 2 3, behind 1 2 stood 3 1, and of 1 2 behind 1 2 3 one token is there
        ([1, 2, 3, 1, 2, 3, 1], [0, 0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 2, 2, 1]),
        ([5, 6, 7, 8], [0, 0, 0, 0], [0, 0, 0, 0]),
        # what followed 1 2 is wrong
        ([1, 2, 3, 1, 2, 4], [0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 1, 0]),
    ],
)
def test_matches_of_a_text_by_hand(tokens: list[int], length: list[int], right: list[int]) -> None:
    found = matches(np.array(tokens), 2)
    assert found[0].tolist() == length
    assert found[1].tolist() == right


def test_a_match_with_too_few_tokens_behind_it_gives_way_to_a_shorter_one() -> None:
    """The end 2 2 stood one place earlier, behind which there is one token; 2 alone stood first,
    behind which there are two, as a chain of two wants them.
    """
    length, right = matches(np.array([2, 2, 2, 2]), 2)
    assert length.tolist() == [0, 0, 1, 2]
    assert right.tolist() == [0, 0, 1, 1]


@given(st.lists(st.integers(0, 2), min_size=2, max_size=25), st.integers(1, 5))
def test_matches_are_what_a_search_through_the_text_finds(tokens: list[int], most: int) -> None:
    length, right = matches(np.array(tokens), most)
    for position in range(2, len(tokens)):
        before = tokens[:position]
        longest = max(
            (
                size
                for size in range(1, position)
                for start in range(position - size)
                if before[start : start + size] == before[-size:]
            ),
            default=0,
        )
        assert length[position] == longest
        assert right[position] <= min(most, len(tokens) - position)
        copies = {
            tuple(before[start + size :][:most])
            for size in range(1, longest + 1)
            for start in range(position - size)
            if before[start : start + size] == before[-size:]
        }
        ahead = tuple(tokens[position : position + right[position]])
        assert not longest or any(copy[: len(ahead)] == ahead for copy in copies)


# ---- a recording


def recorded() -> Trace:
    """The text 0 1 2 3 1 2 3 1 2 7, of which a tree is right at every other position."""
    return text([0, 1, 2, 3, 1, 2, 3, 1, 2, 7], [0, 0, 9, 0, 9, 0, 9, 0, 9, 9])


def test_a_recording_is_walked_through_by_who_drafts() -> None:
    """The tree keeps one token three times; then the end 1 2 3 is known, and of what is copied from
    behind it, 1 2 3, two tokens are right.
    """
    acceptance = JOINED.reads(Replay(recorded()))
    (state,) = states = [JOINED.open(acceptance.cursor(0, None), 100)]
    walk = []
    for _ in range(4):
        step = JOINED.compose(states)
        (progress,) = JOINED.settle(states)
        walk.append((step.kind.name, progress.accepted, state.context))
    assert walk == [
        ("drafted", 1, 102),
        ("drafted", 1, 104),
        ("drafted", 1, 106),
        ("retrieved", 2, 109),
    ]
    odds = acceptance.odds(4, None)
    (copied, chains), (drafted, trees) = odds.drafted
    assert (copied, drafted) == (0.25, 0.75)
    assert (chains.mean_accepted, trees.mean_accepted) == (2.0, 1.0)
    assert odds.mean_accepted == pytest.approx(0.25 * 2 + 0.75 * 1)


def test_law_of_a_recording_is_exact_with_the_shares_that_were_counted() -> None:
    """Nine tokens a round, three steps of 6 + 1.5 + 5 ms and one of 0.5 + 5 ms."""
    acceptance = JOINED.reads(Replay(recorded()))
    cost = ByRows(StatedDurations(target_ms=10.0, draft_ms=6.0), 2)
    loop, _ = play(JOINED, acceptance, cost, Requests(count=1, output_tokens=1 + 9 * 8))
    steps = loop.ledger.tally.steps
    assert dict(steps) == {DRAFTED: 24, RETRIEVED: 8}
    by_law = JOINED.law(cost, lambda gamma: acceptance.odds(gamma, None), 1, 100)
    assert by_law.step_s == pytest.approx((3 * 12.5e-3 + 5.5e-3) / 4, rel=1e-12)
    assert by_law.kinds == pytest.approx({DRAFTED: 0.75, RETRIEVED: 0.25})
    assert loop.ledger.tally.step_seconds / 32 == pytest.approx(by_law.step_s, rel=1e-9)
    assert by_law.tokens_per_step == pytest.approx(9 / 4)


def test_a_recording_without_its_text_is_refused() -> None:
    bare = replace(trace_of([0, 0, 0]), token=np.array([], dtype=np.uint16))
    found = JOINED._unrecorded(bare)
    assert found is not None
    assert found[0] == "retrieval" and "holds no text" in found[1]


# ---- stated


def test_drawn_matches_meet_the_binomial_law() -> None:
    """Chains keep two of four in the mean, trees one of two at a rate of 0.62; a batch of four."""
    acceptance = StatedRetrieval(Rates((0.618034,)), 0.3, 2.0, 4, 2, seed=3)
    cost = ByRows(StatedDurations(target_ms=10.0, draft_ms=6.0), 2)
    loop, _ = play(JOINED, acceptance, cost, Requests(concurrency=4, count=40, output_tokens=1_500))
    by_law = JOINED.law(cost, lambda gamma: acceptance.odds(gamma, None), 4, 100)
    assert sum(by_law.kinds.values()) == pytest.approx(1.0)
    assert by_law.tokens_per_step == pytest.approx(0.3 * 3 + 0.7 * 2, rel=1e-6)
    tally = loop.ledger.tally
    assert tally.committed / tally.request_steps == pytest.approx(by_law.tokens_per_step, rel=0.01)
    mean = tally.step_seconds / sum(tally.steps.values())
    assert mean == pytest.approx(by_law.step_s, rel=0.01), "the batch empties at the end"


@given(st.floats(0.01, 38.9), st.integers(39, 60))
def test_the_rate_of_chains_keeps_what_is_stated(kept: float, tokens: int) -> None:
    odds = Rates((rate_of(kept, tokens),)).odds(tokens, None)
    assert odds.mean_accepted == pytest.approx(kept, rel=1e-9)


def test_chains_of_which_nothing_is_stated_keep_what_a_window_as_long_does() -> None:
    """At a rate of a half 0.9375 of four tokens, and 0.75 of the tree's two."""
    odds = StatedRetrieval(Rates((0.5,)), 0.2, None, 4, 2).odds(4, None)
    (_, chains), (_, trees) = odds.drafted
    assert (chains.mean_accepted, trees.mean_accepted) == (0.9375, 0.75)
    assert odds.mean_accepted == pytest.approx(0.2 * 0.9375 + 0.8 * 0.75)


def test_a_context_grows_by_what_chains_bring_too() -> None:
    """Acceptance that falls with the context knows of tokens that were retrieved: ten of them."""
    stated = ByContext(tokens_per_step={1: 3.0, 1_000: 2.0}, source="x")
    falling = Falling(Rates((0.9,)), stated, 2, lambda request: 100, [(100, 10)], 0)
    cursor = StatedRetrieval(falling, 1.0, 3.999999, 4, 2).cursor(0, None)
    for _ in range(2):
        assert cursor.judge(Chain(4)).committed == 5
    assert isinstance(cursor, RetrievalCursor)
    assert cursor.cursor.context == 110  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retrieval": {"matched": {"value": 1.2}}}, "expected a share of at most 1, got 1.2"),
        ({"retrieval": {"kept": {"value": 9}}}, "a chain of 4 tokens keeps no more of them"),
        ({"matched": {"value": 0.5}}, "is stated as retrieval.matched"),
        ({"bonus_on_full_accept": False}, "both drafts bring a bonus"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, dict[str, object]], message: str) -> None:
    stated = JOINED.model_dump()
    for name, value in fields.items():
        stated[name] = {**stated[name], **value} if name == "retrieval" else value
    with pytest.raises(ValidationError, match=message):
        JoinedSD.model_validate(stated)


# ---- SAM-Decoding with EAGLE-2


def on_spec_bench(method: str, *changes: str) -> float:
    """The speed-up of all tokens of a method with the published mean, on the programs' engine."""
    loaded = load(
        METHODS,
        [
            f"strategy={method}",
            "target.engine=hf_eager",
            "draft.engine=hf_eager",
            "acceptance={tokens_per_step: 4.58, source: Spec-Bench}",
            *changes,
        ],
    )
    found = law(loaded.scenario, loaded.acceptance())
    assert found.verified_per_step == pytest.approx(4.58, rel=1e-9)
    return 22.43e-3 * float(found.verified_per_step) / float(found.step_s)


def test_a_step_drafts_with_one_of_both() -> None:
    """Spec-Bench prints 2.73 times. Chains alone were said to give 3.8; the pair lies between its
    drafters, and the fewer steps retrieve, the nearer to the head.
    """
    pair = on_spec_bench("sam_decoding_eagle_2")
    assert pair == pytest.approx(2.73, rel=0.05)
    shares = [
        on_spec_bench("sam_decoding_eagle_2", f"strategy.retrieval.matched.value={share}")
        for share in (0.1, 0.2, 0.4)
    ]
    assert shares == sorted(shares)
    assert shares[0] < pair < shares[-1] < on_spec_bench("sam_decoding")


@pytest.mark.parametrize("engine", ["hf_eager", "vllm"])
@pytest.mark.parametrize(
    "acceptance", ["{always: 2}", "{trace: six_flavours_greedy, stand_in: true}"]
)
def test_law_replay_and_simulation_agree(engine: str, acceptance: str) -> None:
    loaded = load(
        METHODS,
        [
            "strategy=sam_decoding_eagle_2",
            f"target.engine={engine}",
            f"draft.engine={engine}",
            f"acceptance={acceptance}",
            "requests={count: 3, concurrency: 2, prompt_tokens: 16, output_tokens: 40}",
        ],
    )
    verdicts = loaded.acceptance()
    simulated, _ = simulate(loaded.scenario, verdicts)
    replayed = evaluate.replay(loaded.scenario, verdicts)
    assert replayed.tpot_s == pytest.approx(simulated.tpot_s, rel=1e-9)
    assert {kind.name for kind in simulated.kinds} >= {"drafted", "retrieved"}
