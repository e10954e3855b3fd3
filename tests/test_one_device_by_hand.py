"""Steps of methods that draft beside the target or on a second side, by hand and complete, and
their formulas.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.verification import sequences_worth, threshold, verify
from simulator.core.acceptance.draft_tree import PrunedTree
from simulator.core.acceptance.sequence_chances import (
    budget,
    cost_coefficient,
    tail_shares,
    until_shown,
)
from simulator.core.acceptance.sequences import DrawnSequences, Split
from simulator.core.acceptance.sources import Acceptance, Cycle, Rates, Replay
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.quantities import NonNegative
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Admission, Kind, Progress, State, Step
from simulator.core.strategies.duodecoding import DuoDecoding, SequenceDetail, UnverifiedPrefix
from simulator.core.strategies.speculative_streaming import SpeculativeStreaming
from simulator.core.strategies.speculative_streaming.laws import (
    parity,
    query_products,
    relative_step_cost,
    speedup_over_two_models,
    tree_nodes,
)
from tests.formulas import accept_threshold, expected_tokens, late_saving, stream_rows, token_layers
from tests.ledger import Ledger, booked, first_finding, near, states
from tests.test_cost import MODEL
from tests.test_tree_replay import trace_of

PROMPT = Rows.prefill(6)
NOTHING = Phase(0.0, {})
TINY = ModelSpec.model_validate(MODEL)


def odds_of(acceptance: Acceptance) -> OddsOf:
    return lambda gamma: acceptance.odds(gamma, None)


# ---- Speculative Streaming


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
    assert STREAMS.derived(ledger, step) == {
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


# ---- DuoDecoding


DUO = DuoDecoding(gamma=6, sequences=2, first_rate=0.8, verify_us=NonNegative(value=250_000.0))


def duo_state(duo: DuoDecoding, context: int, kept: int) -> State:
    return duo.open(DrawnSequences(Cycle((kept,)), duo.split).cursor(0, None), context)


def test_a_cold_and_a_warm_step_of_two_sides() -> None:
    """Three tokens a sequence, the first of the second known: 3 + 2 passes; 28 bytes there, 12
    back; three copies.
    """
    ledger, state = Ledger(), duo_state(DUO, 10, 9)
    assert isinstance(state, UnverifiedPrefix)
    cold = DUO.compose([state])
    assert (cold, state.proposed) == (
        Step(Kind("cold", 0, 1, window=0, detail=SequenceDetail(2)), Rows(1, 1, 1, 11, 11)),
        0,
    )
    t = DUO.durations(Ledger(contention=1.5), cold)
    assert t == (1, near(0.5 + 3 * 11e-4), near(0.028), 0.25, near(0.012), 1.5)
    phases = DUO.phases(ledger, cold)
    assert ledger.asked == [
        ("draft", Rows(1, 1, 1, 11, 11), "window"),
        ("copy", 11),
        ("rendezvous", "fv", 0, 28),
        ("rendezvous", "fv", 0, 12),
        ("target", cold.rows, 0.0, 1.0),
    ]
    assert phases["draft"].busy == {"draft compute": near(0.5), "draft copies": near(3 * 11e-4)}
    assert DUO.settle([state]) == [Progress(1, 1, 0, 0, "2 sequences")]
    warm = DUO.compose([state])
    assert (warm, state.proposed) == (
        Step(Kind("warm", 1, 0, window=2, detail=SequenceDetail(2)), Rows.decode(3, 11)),
        2,
    )
    assert DUO.settle([state]) == [Progress(3, 3, 2, 2, "2 sequences")]
    assert state.context == 14
    t = t._replace(contention=1.0)
    assert booked(DUO, t, warm.kind) == (
        [
            ("draft", 0, near(0.5033), "draft"),
            ("target", 0, 1, "verify"),
            ("rendezvous", 1, near(1.028), "drafts"),
            ("rendezvous", near(1.028), near(1.278), "verification"),
            ("rendezvous", near(1.278), near(1.29), "verdict"),
        ],
        near(1.29),
    )
    assert booked(DUO, t._replace(draft=4.0, verify=0.0), warm.kind)[1] == near(4.04)
    assert DUO.step_seconds(t, warm.kind) == near(1.29)
    assert DUO.step_seconds(t._replace(contention=1.5), warm.kind) == near(1.29 + 0.5 * 0.5033)


def test_a_rejected_tail_leaves_the_next_step_cold() -> None:
    one = DuoDecoding(gamma=4, sequences=1)
    state = duo_state(one, 10, 2)
    found = [(one.compose([state]).kind, *one.settle([state])) for _ in range(4)]
    assert found == [
        (
            Kind("cold", 0, 1, window=0, detail=SequenceDetail(1)),
            Progress(1, 1, 0, 0, "1 sequence"),
        ),
        (
            Kind("warm", 1, 0, window=3, detail=SequenceDetail(1)),
            Progress(3, 3, 2, 3, "1 sequence"),
        ),
        (
            Kind("cold", 0, 1, window=0, detail=SequenceDetail(1)),
            Progress(1, 1, 0, 0, "1 sequence"),
        ),
        (
            Kind("warm", 1, 0, window=3, detail=SequenceDetail(1)),
            Progress(3, 3, 2, 3, "1 sequence"),
        ),
    ]
    shows = one.model_copy(update={"count": "emitted"})
    state = duo_state(shows, 10, 2)
    assert [(shows.compose([state]), shows.settle([state])[0].shown)[1] for _ in range(3)] == [
        4,
        0,
        4,
    ]
    with pytest.raises(TypeError, match="State is no request with an unverified prefix"):
        one.compose([State(state.cursor, 3)])


@pytest.mark.parametrize(
    ("gamma", "sequences", "batched", "passes"),
    [
        (6, 1, False, {1: 6}),
        (6, 2, False, {1: 3 + 2}),
        (6, 3, False, {1: 2 + 1 + 1}),
        (6, 6, False, {1: 1}),
        (6, 2, True, {1: 1, 2: 2}),
        (6, 6, True, {1: 1}),
    ],
)
def test_passes_of_the_draft(
    gamma: int, sequences: int, batched: bool, passes: dict[int, int]
) -> None:
    assert (
        DuoDecoding(gamma=gamma, sequences=sequences, batched=batched).passes(sequences) == passes
    )


@pytest.mark.parametrize(
    ("sequences", "batched", "passes"),
    [
        (1, False, {1: 6}),
        (2, False, {1: 5}),
        (6, False, {1: 2}),
        (2, True, {1: 3, 2: 1}),
        (3, True, {1: 2, 2: 1}),
        (6, True, {1: 2}),
    ],
)
def test_passes_where_their_number_is_known_after_two(
    sequences: int, batched: bool, passes: dict[int, int]
) -> None:
    assert DuoDecoding(gamma=6, batched=batched).passes(sequences) == passes
    assert DuoDecoding(gamma=1, batched=batched).passes(1) == {1: 1}


def test_a_budget_follows_the_ratio_of_both_sides() -> None:
    """A pass of the target over gamma rows of 1 s, one of the draft of 0.1 s: c = 10 gamma; of 2.6
    where it is that.
    """
    ledger = Ledger()
    assert DUO.coefficient(ledger, 10) == near(60)
    assert ledger.asked == [
        ("target", Rows.decode(6, 10), 0.0, 1.0),
        ("draft", Rows(1, 1, 1, 16, 16), "window"),
    ]

    class Slow(Ledger):
        def draft(self, rows: Rows, purpose: str = "window") -> Phase:
            return Phase(6 / 2.6, {})

    def tuned(**changes: object) -> DuoDecoding:
        return DuoDecoding.model_validate({"gamma": 6, **changes}).tuned(
            Slow(), odds_of(Rates((0.5,))), 1, 10
        )

    assert [
        (one.gamma, one.rule, one.sequences)
        for one in (tuned(), tuned(rule="floor"), tuned(rule="round"))
    ] == [
        *((6, "stated", "dynamic"), (2, "stated", "dynamic"), (3, "stated", "dynamic")),
    ]
    assert tuned(rule="floor", sequences=3).sequences == 2
    assert tuned(rule="floor", sequences=1).sequences == 1
    assert (
        DuoDecoding(gamma=6, rule="floor").tuned(ledger, odds_of(Rates((0.5,))), 1, 10).gamma == 6
    )


def test_numbers_of_duodecoding() -> None:
    assert (
        DUO.window,
        DUO.least_window,
        DUO.needs.draft_steps,
        DUO.fixed,
        DUO.needs.dynamic_draft,
    ) == (6, 2, 6, 2, False)
    dynamic = DuoDecoding(gamma=6)
    assert (dynamic.least_window, dynamic.fixed, dynamic.needs.dynamic_draft) == (1, None, True)
    assert (DUO.split, dynamic.split) == (Split(6, 2, True), Split(6, None, True))
    assert (DUO.window_for(1), dynamic.window_for(1)) == (2, 5)
    assert first_finding(DUO, stated=True) is None
    assert first_finding(DuoDecoding(sequences=1), stated=True) is None
    assert first_finding(DuoDecoding(sequences=2), stated=True) == (
        *(
            "first_rate",
            "is required with stated acceptance and 2 sequences: how often one begins right",
        ),
    )
    assert first_finding(dynamic, stated=True) == (
        "sequences",
        "'dynamic' needs a recorded trace; with stated acceptance set strategy.sequences=1",
    )
    for wrong in (0, 7):
        with pytest.raises(ValueError, match=f"expected 'dynamic' or 1 to gamma = 6, got {wrong}"):
            DuoDecoding(gamma=6, sequences=wrong)
    assert DuoDecoding(gamma=6, sequences=6).fixed == 6
    assert [str(DUO.claim(Ledger(), 1, 100, {}, one_lane)) for one_lane in (True, False)] == [
        *("lower bound: target and draft share one lane and cannot overlap", "exact"),
    ]
    drawn = DUO.reads(Cycle((1,)))
    assert drawn == DrawnSequences(Cycle((1,)), DUO.split, 0.8)


def test_who_waits_for_whom() -> None:
    slow, ledger = DuoDecoding(gamma=30, sequences=1), Ledger()
    cold, warm = (slow.derived(ledger, slow.step(slow.kind_of(tail, 1), 10)) for tail in (0, 29))
    assert cold == {
        "cost_coefficient": near(300),
        "target_idle_ms": near(2_000),
        "draft_idle_ms": 0.0,
    }
    assert warm == {
        "cost_coefficient": near(300),
        "target_idle_ms": 0.0,
        "draft_idle_ms": near(27_000),
    }
    assert ledger.asked[-2][1] == Rows.decode(30, 10)


def test_both_sides_read_the_prompt_and_talk_once() -> None:
    """8 bytes there, 12 back, 0.25 s to verify; one pass of the draft at 50, two where it has to
    know its odds.
    """
    ledger = Ledger()
    assert DUO.admission(ledger, PROMPT) == Admission(3.0, 1.5, 0.0)
    assert DUO.admission(ledger, PROMPT, 1, 50) == Admission(
        near(3.27), near(1.5 + 0.1 + 0.27), 0.0
    )
    assert ("draft", Rows(1, 1, 1, 50, 50), "window") in ledger.asked
    dynamic = DuoDecoding(gamma=6)
    assert dynamic.admission(ledger, PROMPT, 1, 50) == Admission(
        near(3.02), near(1.5 + 0.2 + 0.02), 0.0
    )


def test_kinds_of_two_sides() -> None:
    """Tails of 2 survive with 0.25, a sequence begins right with 0.8: warm = 0.8 / (1.8 - 0.2)."""
    acceptance = DUO.reads(Rates((0.5,)))
    assert DUO.kinds(odds_of(acceptance), 1) == {
        Kind("cold", 0, 1, window=0, detail=SequenceDetail(2)): near(0.5),
        Kind("warm", 1, 0, window=2, detail=SequenceDetail(2)): near(0.5),
    }
    never = DUO.model_copy(update={"first_rate": 0.0})
    assert never.kinds(odds_of(never.reads(Rates((0.5,)))), 1) == {
        Kind("cold", 0, 1, window=0, detail=SequenceDetail(2)): 1.0
    }
    with pytest.raises(TypeError, match="Odds do not say what is drafted behind a tail"):
        DUO.kinds(odds_of(Rates((0.5,))), 1)


def test_a_request_that_ends_when_enough_is_shown() -> None:
    """Always right, three tokens a sequence: shown 1, then 1 + 1 + 2 behind a cold step, then 3 + 2
    more.
    """
    sure = DUO.model_copy(update={"first_rate": 1.0})
    acceptance, ledger = sure.reads(Rates((1.0,))), Ledger()
    cold, warm = (
        sure.step_seconds(sure.durations(ledger, sure.step(sure.kind_of(tail, 2), 10)), Kind("", 1))
        for tail in (0, 2)
    )
    found = [sure.until_shown(ledger, odds_of(acceptance), 10, cap) for cap in (1, 4, 5, 8)]
    assert found == [
        (0, 1, 1),
        (near(cold), 4, 2),
        (near(cold + warm), 7, 5),
        (near(cold + 2 * warm), 10, 8),
    ]


# ---- DuoDecoding's formulas


def test_formulas_of_two_sides_by_hand() -> None:
    assert cost_coefficient(12.0, 4.0) == 3
    assert [budget(each) for each in (0.3, 1.0, 2.7)] == [1, 1, 2]
    assert [budget(each, "round") for each in (0.3, 2.4, 2.7)] == [1, 2, 3]
    assert threshold([0.2, 0.5, 0.1], 0.6) == 0.3
    assert [sequences_worth(first, 0.6) for first in ([0.5, 0.4, 0.1], [0.5, 0.3, 0.2], [0.5])] == [
        2,
        1,
        1,
    ]
    assert sequences_worth([0.5, 0.2], 1.0) == 1
    assert [
        tuple(verify(*each)) for each in (([], [True]), ([], [False, True]), ([], [False]))
    ] == [(1, 0), (1, 1), (1, None)]
    assert [
        tuple(verify([True, False, True], [True])),
        tuple(verify([True, True], [False, True, True])),
    ] == [(2, None), (3, 1)]
    found = expected_tokens(0.5, 0.8, 2)
    assert found == (near(0.5), 1.75, near(0.5 + 0.5 * 1.75))
    assert expected_tokens(0.5, 0.8, 0).tokens == near(1.0)


def test_shares_of_tails_by_hand() -> None:
    """From 0 to 2 with 0.8, from 2 back to 2 with 0.25 x 0.8 = 0.2."""
    drafts = {0: {2: (1.0, 0.8)}, 2: {2: (1.0, 0.8)}}
    assert tail_shares({0: 1.0, 2: 0.25}, drafts, {2: 2}) == {0: near(0.5), 2: near(0.5)}
    two = {0: {1: (0.5, 1.0), 2: (0.5, 1.0)}, 1: {1: (1.0, 1.0)}, 3: {1: (1.0, 1.0)}}
    assert tail_shares({0: 1.0, 1: 0.0, 3: 0.0}, two, {1: 3, 2: 1}) == {
        0: near(0.5),
        1: near(0.25),
        3: near(0.25),
    }


def test_until_shown_by_hand() -> None:
    """Cold: 1 s; warm with a tail of 1: 2 s, right with 0.5. Shown 3: after a hit 1 + 1 + 1; after
    a miss a step more.
    """
    rights, drafts = {0: [1.0], 1: [0.5, 0.5]}, {0: {1: (1.0, 0.5)}, 1: {1: (1.0, 0.5)}}
    seconds = {(0, 1): 1.0, (1, 1): 2.0}
    assert until_shown(1, rights, drafts, {1: 1}, seconds) == (0, 1, 1)
    assert until_shown(2, rights, drafts, {1: 1}, seconds) == (1, 2.5, 2)
    assert until_shown(3, rights, drafts, {1: 1}, seconds) == (
        1.5,
        0.5 * 3 + 0.5 * 3.5,
        0.5 * 2 + 0.5 * 3,
    )
    four = until_shown(4, rights, drafts, {1: 1}, seconds)
    assert four.seconds == near(1 + 0.5 * (2 + 0.5 * (0.5 * 0 + 0.5 * 0 + 1.0)) + 0.5 * (1 + 0.5))
    either = {0: {1: (0.5, 0.5), 2: (0.5, 1.0)}, 1: {1: (1.0, 0.5)}}
    found = until_shown(2, rights, either, {1: 1, 2: 1}, {**seconds, (0, 2): 3.0})
    assert found == (0.5 * 1 + 0.5 * 3, 0.5 * 2.5 + 0.5 * 3, 2)
