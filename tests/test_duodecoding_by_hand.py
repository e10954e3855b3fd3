"""Steps of DuoDecoding worked out by hand, part by part, and its formulas."""

from __future__ import annotations

import pytest

from benchmarks.verification import sequences_worth, threshold, verify
from simulator.core.acceptance.sequence_chances import (
    budget,
    cost_coefficient,
    tail_shares,
    until_shown,
)
from simulator.core.acceptance.sequences import DrawnSequences, Split
from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.cost.rows import Phase, Rows
from simulator.core.quantities import NonNegative
from simulator.core.strategies.common.step import Admission, Kind, Progress, State, Step
from simulator.papers.duodecoding.strategy import DuoDecoding, SequenceDetail, UnverifiedPrefix
from tests.formulas import expected_tokens
from tests.ledger import PROMPT, Ledger, booked, first_finding, near, odds_of

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
    with pytest.raises(TypeError, match="_CycleCursor does not follow what is drafted"):
        one.open(Cycle((1,)).cursor(0, None), 3)


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
    odds = odds_of(slow.reads(Cycle((1,))))
    cold, warm = (
        slow.derived(ledger, slow.step(slow.kind_of(tail, 1), 10), odds) for tail in (0, 29)
    )
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
