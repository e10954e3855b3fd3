"""Steps of SpecPipe, one step at a time and in tandem, by hand and complete: rows at every stage,
what is booked, what is settled.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.draft_tree import Beam, Passage
from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.acceptance.tree_replay import DrawnPassages
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.core.strategies.common.step import ABSENT, Kind, Progress, State, Step
from simulator.papers.specpipe.levels import FillDetail, InPipeline, filled
from simulator.papers.specpipe.specpipe_tandem import InTandem, SpecPipeTandem
from simulator.papers.specpipe.strategy import SpecPipe
from tests.ledger import Ledger, booked, first_finding, near
from tests.test_cost import MODEL

NOTHING = Phase(0.0, {})


def odds(rate: float) -> OddsOf:
    return lambda gamma: Rates((rate,)).odds(gamma, None)


# ---- SpecPipe


class Given:
    """A cursor that hands out passages as they were stated."""

    def __init__(self, *passages: Passage) -> None:
        self.left = list(passages)

    def passage(self) -> Passage:
        return self.left.pop(0)

    def judge(self, proposal: Chain) -> None:
        raise AssertionError("nothing is judged")


HIT, MISS = Passage(1, [4, 4, 1], True), Passage(3, [4, 2, 1], False)
SPEC = SpecPipe(width=4, branching=2, stages=3)


def steps(strategy: SpecPipe, state: State, count: int) -> tuple[list[Step], list[Progress]]:
    composed, progress = [], []
    for _ in range(count):
        composed.append(strategy.compose([state]))
        progress += strategy.settle([state])
    return composed, progress


def rows_of(step: Step) -> list[int]:
    return [load.tokens for load in step.loads]


def test_a_refill_a_hit_and_a_miss_step_by_step() -> None:
    """Through an empty pipeline three steps of a tree that grows 1, 2, 4; then a hit; then a miss
    and its refill.
    """
    state = SPEC.open(Given(HIT, HIT, MISS, HIT), 10)
    assert state == InPipeline(state.cursor, 10)
    composed, progress = steps(SPEC, state, 8)
    assert [rows_of(step) for step in composed] == [
        *([1, 0, 0], [2, 1, 0], [4, 2, 1]),
        *([4, 4, 1], [1, 0, 0], [2, 1, 0], [4, 2, 1]),
        [4, 4, 1],
    ]
    begins, refill, token = (
        Kind("refill", 0, waiting=1, detail=FillDetail(1, 1)),
        Kind("refill", 0, waiting=1, detail=FillDetail(2)),
        Kind,
    )
    assert [step.kind for step in composed] == [
        *(begins, refill, token("token", 1, detail=FillDetail(3))),
        token("token", 1, detail=FillDetail(3, 1)),
        *(begins, refill, token("token", 1, detail=FillDetail(3))),
        token("token", 1, detail=FillDetail(3, 1)),
    ]
    hit, miss = Progress(1, 1, 1, 1), Progress(1, 1, 0, 1, missed=True)
    assert progress == [ABSENT, ABSENT, hit, hit, ABSENT, ABSENT, miss, hit]
    assert state.context == 14
    assert composed[3].rows == Rows(9, 9, 3, 9 + 33, 4 * 11 + 10 + 4 * 11 + 10 + 12)


def test_a_miss_noticed_late_costs_a_step_in_vain() -> None:
    late = SPEC.model_copy(update={"late": True})
    state = late.open(Given(HIT, MISS, MISS, HIT), 10)
    composed, progress = steps(late, state, 11)
    assert [rows_of(step) for step in composed][3:] == [
        *([1, 0, 0], [2, 1, 0], [4, 2, 1]),
        [4, 4, 2],
        *([1, 0, 0], [2, 1, 0], [4, 2, 1]),
        [4, 4, 2],
    ]
    assert [sum(one.verified for one in progress[: count + 1]) for count in range(11)] == [
        0,
        0,
        1,
        1,
        1,
        2,
        2,
        2,
        2,
        3,
        3,
    ]
    assert composed[6].kind == Kind("refill", 0, waiting=1, detail=FillDetail(3, 1))


def test_a_relaxed_tree_always_holds_the_token() -> None:
    relaxed = SPEC.model_copy(update={"relaxed": True})
    composed, progress = steps(relaxed, relaxed.open(Given(), 10), 5)
    assert [rows_of(step) for step in composed] == [
        [1, 0, 0],
        [2, 1, 0],
        [4, 2, 1],
        [4, 4, 1],
        [4, 4, 1],
    ]
    assert [one.verified for one in progress] == [0, 0, 1, 1, 1]


def test_requests_in_different_steps_share_the_stages() -> None:
    one, other = SPEC.open(Given(HIT, HIT), 10), SPEC.open(Given(HIT), 20)
    steps(SPEC, one, 2)
    step = SPEC.compose([one, other])
    assert step.kind == Kind("token", 1, waiting=1, detail=FillDetail(3, 1))
    assert [load.tokens for load in step.loads] == [5, 2, 1]
    assert step.loads[0] == Rows.decode(4, 10) + Rows.decode(1, 20)
    assert (one.proposed, other.proposed) == (6, 0)
    assert SPEC.settle([one, other]) == [Progress(1, 1, 1, 1), ABSENT]
    with pytest.raises(TypeError, match="_CycleCursor knows no passages through a pipeline"):
        SPEC.open(Cycle((1,)).cursor(0, None), 3)


def test_what_a_step_of_all_stages_takes() -> None:
    """Rows 4, 4, 1: stages 4, 8, 3; links 1 and 0.5 with 0.25 a row; the verdict 0.13; a level of
    the draft 0.4.
    """
    ledger = Ledger()
    step = SPEC.step(Kind("token", 1, detail=FillDetail(3, 1)), 10)
    assert rows_of(step) == [4, 4, 1]
    t = SPEC.durations(ledger, step)
    assert t == ((4, 8, 3), (1.0, 0.5), near(0.13), near(0.4), True)
    assert ledger.asked == [
        *(("stage", index, step.loads[index]) for index in range(3)),
        *(("carry", 0, 4), ("carry", 1, 1)),
        ("draft", step.loads[0], "window"),
    ]
    spans, end = booked(SPEC, t, step.kind, stages=3)
    assert sorted(spans) == [
        ("draft", 0, near(0.4), "draft level"),
        ("link 1", 0, 1, "transmit"),
        ("link 2", 0, 0.5, "transmit"),
        *(("stage 1", 0, near(0.13), "prune"), ("stage 1", 1, 5, "compute")),
        *(("stage 2", 0, near(0.13), "prune"), ("stage 2", 1, 9, "compute")),
        *(("stage 3", 0, near(0.13), "prune"), ("stage 3", 1, 4, "compute")),
    ]
    assert (end, SPEC.step_seconds(t, step.kind)) == (9, 9)
    phases = SPEC.phases(ledger, step)
    assert (phases["exchange"].wall_s, phases["compute"]) == (1.0, Phase(8, {"target compute": 15}))
    assert phases["draft_level"].wall_s == near(0.4)
    serial = t._replace(asynchronous=False)
    spans, end = booked(SPEC, serial, step.kind, stages=3)
    assert [span[1:3] for span in spans if span[0] == "link 1"] == [(near(0.13), near(1.13))]
    assert end == near(9.13)
    assert SPEC.step_seconds(serial, step.kind) == near(9.13)
    assert booked(SPEC, t._replace(draft=20.0), step.kind, stages=3)[1] == 20


def test_a_step_with_work_for_some_stages_only() -> None:
    ledger = Ledger()
    step = SPEC.step(Kind("refill", 0, waiting=1, detail=FillDetail(2)), 10)
    assert rows_of(step) == [2, 1, 0]
    t = SPEC.durations(ledger, step)
    assert t == ((2, 2, 0), (0.25, 0), 0, near(0.2), True)
    spans, end = booked(SPEC, t, step.kind, stages=3)
    assert sorted(spans) == [
        ("draft", 0, near(0.2), "draft level"),
        ("link 1", 0, 0.25, "transmit"),
        *(("stage 1", 0.25, 2.25, "compute"), ("stage 2", 0.25, 2.25, "compute")),
    ]
    assert end == 2.25
    nothing = step._replace(loads=(NO_ROWS, *step.loads[1:]))
    assert (SPEC.durations(ledger, nothing).draft, SPEC.phases(ledger, nothing)["draft_level"]) == (
        0.0,
        NOTHING,
    )


def test_several_requests_pay_for_packing() -> None:
    """As much again as two levels take longer than one: 8 rows 4 longer than 4 rows at a second a
    row, and so on.
    """
    ledger, step = Ledger(), SPEC.step(Kind("token", 2, detail=FillDetail(3, 2)), 10)
    assert rows_of(step) == [8, 8, 2]
    assert SPEC.durations(ledger, step).stages == (12, 24, 9)
    assert SPEC.durations(
        ledger, SPEC.step(Kind("refill", 1, waiting=1, detail=FillDetail(3)), 10)
    ).stages == (12, 12, 9)


def test_kinds_of_specpipe() -> None:
    def kinds(requests: int, **changes: bool) -> list[tuple[str, int, int, int, float]]:
        found = SPEC.model_copy(update=changes).kinds(odds(0.75), requests)
        return [(kind.name, kind.verifying, *filled(kind), share) for kind, share in found.items()]

    assert kinds(1) == [
        ("token", 1, 3, 1, near(0.5)),
        *(
            ("refill", 0, 1, 1, near(1 / 6)),
            ("refill", 0, 2, 0, near(1 / 6)),
            ("token", 1, 3, 0, near(1 / 6)),
        ),
    ]
    total = 0.75 + 3 * 0.25 + 0.25
    assert kinds(1, late=True)[-1] == ("refill", 0, 3, 1, near(0.25 / total))
    assert kinds(1, relaxed=True) == [("token", 1, 3, 1, 1.0)]
    assert kinds(2) == [("token", 2, 3, 2, near(1 / 1.5)), ("refill", 0, 3, 2, near(1 - 1 / 1.5))]
    assert kinds(2, late=True)[0][-1] == near(1 / 1.75)
    waits = [kind.waiting for kind in SPEC.kinds(odds(0.75), 2)]
    assert waits == [0, 2]


def test_numbers_of_specpipe() -> None:
    model = ModelSpec.model_validate(MODEL)
    assert (SPEC.window, SPEC.needs.cache_tokens, SPEC.needs.dynamic_draft, SPEC.beam) == (
        1,
        13,
        True,
        Beam(4, 2, 3),
    )
    assert (SPEC.level(7), SPEC.grown(4)) == ([7, 7, 1], [1, 2, 4, 4])
    assert SPEC.fitted_to(stages=5).stages == 5
    kind = Kind("refill", 2, waiting=3)
    assert (kind.batch, SPEC._committed(kind, odds(0.5))) == (5, 2)
    assert first_finding(SPEC, target=model) is None
    assert first_finding(SpecPipe(branching=1_000), target=model) is None
    assert first_finding(SpecPipe(branching=1_001), target=model) == (
        *("branching", "a node has 1,000 children at most, one for each token; got 1,001"),
    )
    rates = Rates((0.5,))
    drawn = SPEC.reads(rates)
    assert isinstance(drawn, DrawnPassages)
    assert (drawn.verdicts, drawn.beam) == (rates, SPEC.beam)
    two = SPEC.law(Ledger(), odds(0.75), 2, 10)
    assert (
        two.relation
        == "upper bound: full levels of all requests in every step, also of those that refill"
    )
    assert SPEC.law(Ledger(), odds(0.75), 1, 10).relation == "exact"


# ---- SpecPipe in tandem


TANDEM = SpecPipeTandem(width=4, branching=2, stages=3)


def levels(step: Step, stages: int = 3) -> list[list[int]]:
    rows = rows_of(step)
    return [rows[first : first + stages] for first in range(0, len(rows), stages)]


def composed(strategy: SpecPipeTandem, passages: Sequence[Passage], count: int) -> list[Step]:
    state = strategy.open(Given(*passages), 10)
    assert isinstance(state, InTandem)
    return [strategy.compose([state]) for _ in range(count)]


def test_levels_enter_with_the_rows_that_they_will_have() -> None:
    first, hit, miss = composed(TANDEM, [HIT, HIT, MISS, *[HIT] * 4], 3)
    assert levels(first) == [[1, 1, 1], [2, 2, 1], [4, 4, 1]]
    assert first.kind == Kind("token", 1, detail=FillDetail(3, 1))
    assert (levels(hit), filled(hit.kind).active) == ([[4, 4, 1]], 1)
    assert (levels(miss), filled(miss.kind).active) == ([[1, 1, 1], [2, 2, 1], [4, 4, 1]], 3)
    assert first.rows == Rows.decode(1, 10) + Rows.decode(2, 10) + Rows.decode(4, 10)


def test_a_late_miss_in_tandem_sends_a_level_in_vain() -> None:
    late = TANDEM.model_copy(update={"late": True})
    state = late.open(Given(HIT, MISS, *[HIT] * 6), 10)
    found = [late.compose([state]) for _ in range(3)]
    assert [filled(iteration.kind).active for iteration in found] == [3, 3, 2]
    assert levels(found[2]) == [[4, 4, 1], [4, 4, 1]]
    assert state.proposed == 7
    with pytest.raises(TypeError, match="_CycleCursor knows no passages through a pipeline"):
        late.open(Cycle((1,)).cursor(0, None), 3)


def test_a_level_is_proposed_as_it_enters_and_pruned_on_its_way() -> None:
    state = TANDEM.open(Given(*[Passage(1, [4, 2, 1], True)] * 9), 10)
    TANDEM.compose([state])
    step = TANDEM.compose([state])
    assert (levels(step), state.proposed, step.rows) == ([[4, 2, 1]], 3, Rows.decode(4, 10))


def test_what_levels_in_tandem_take() -> None:
    """A full level: stages 4, 8, 3, links 1 and 0.5, pruning 5 ms, token 0.125; M = 8.005, L =
    16.63.
    """
    ledger = Ledger()
    step = TANDEM.step(Kind("token", 1, detail=FillDetail(1, 1)), 10)
    assert levels(step) == [[4, 4, 1]]
    t = TANDEM.durations(ledger, step)
    assert (t.pace, t.latency) == (near(8.005), near(16.63))
    assert t.levels == (PipelineTimes((4, 8, 3), (1.0, 0.5), near(0.005), 0.125, near(0.4), True),)
    assert [question[:2] for question in ledger.asked[:5]] == [
        ("stage", 0),
        ("stage", 1),
        ("stage", 2),
        ("carry", 0),
        ("carry", 1),
    ]
    assert TANDEM.phases(ledger, step) == {
        "exchange": Phase(near(0.13), {}),
        "compute": Phase(8, {"target compute": 15}),
        "draft_level": Phase(near(0.4), {}),
    }
    assert TANDEM.step_seconds(t, step.kind) == near(8.005)
    refill = TANDEM.step(Kind("token", 1, detail=FillDetail(3, 1)), 10)
    assert levels(refill) == [[1, 1, 1], [2, 2, 1], [4, 4, 1]]
    once = TANDEM.durations(ledger, refill)
    assert TANDEM.step_seconds(once, refill.kind) == near(1 + 2 + 3 + 0.25 + 0.5 + 0.13)
    late = TANDEM.step(Kind("token", 1, detail=FillDetail(4, 1)), 10)
    assert levels(late) == [[4, 4, 1], [1, 1, 1], [2, 2, 1], [4, 4, 1]]
    assert TANDEM.step_seconds(TANDEM.durations(ledger, late), late.kind) == near(8.005 + 6.88)
    partial = TANDEM.step(Kind("token", 1, detail=FillDetail(2, 1)), 10)
    assert levels(partial) == [[4, 4, 1], [4, 4, 1]]
    assert partial.rows == Rows.decode(4, 10) + Rows.decode(4, 10)


def test_kinds_and_relation_in_tandem() -> None:
    def shares(**changes: bool) -> list[tuple[str, int, int, float]]:
        found = TANDEM.model_copy(update=changes).kinds(odds(0.75), 1)
        return [
            (kind.name, kind.verifying, filled(kind).active, share) for kind, share in found.items()
        ]

    assert shares() == [("token", 1, 1, 0.75), ("token", 1, 3, 0.25)]
    assert shares(late=True) == [("token", 1, 1, 0.75), ("token", 1, 4, 0.25)]
    assert shares(relaxed=True) == [("token", 1, 1, 1.0)]
    law = TANDEM.law(Ledger(), odds(0.75), 1, 10)
    assert law.relation == (
        "idealised: levels of a growing tree are taken to be as long as full ones or as a "
        "single row"
    )
    narrow = SpecPipeTandem(width=1, branching=1, stages=3).law(Ledger(), odds(0.75), 1, 10)
    assert narrow.relation == "exact"
