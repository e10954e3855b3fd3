"""Steps over the stages of a pipeline, by hand and complete: rows at every stage, what is booked,
what is settled.
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
from simulator.core.strategies.common.pipeline_laws import (
    PipelineTimes,
    break_even,
    hit_shares,
    unequal_stages,
)
from simulator.core.strategies.common.step import ABSENT, Kind, Progress, State, Step
from simulator.core.strategies.pipeline import Pipelined, PipelineDurations
from simulator.core.strategies.pipeline_tree import PipelineTree
from simulator.papers.specpipe.levels import FillDetail, InPipeline, filled
from simulator.papers.specpipe.specpipe_tandem import InTandem, SpecPipeTandem
from simulator.papers.specpipe.strategy import SpecPipe
from tests.formulas import arrivals, barrier_step, equal_stages, per_token
from tests.ledger import Ledger, booked, first_finding, near, states
from tests.test_cost import MODEL

PROMPT = Rows.prefill(6)
NOTHING = Phase(0.0, {})


def odds(rate: float) -> OddsOf:
    return lambda gamma: Rates((rate,)).odds(gamma, None)


# ---- plain pipelines


def test_a_batch_passes_three_stages_and_two_links() -> None:
    """Two requests: stages of 2, 4 and 6 seconds, links of 0.5 and 1, a token of 0.125."""
    plain, ledger = Pipelined(stages=3, requests=2), Ledger()
    batch = states(plain, (10, 5), (20, 5))
    step = plain.compose(batch)
    assert step == Step(Kind("step", 0, 2), Rows(2, 2, 2, 32, 32))
    t = plain.durations(ledger, step)
    assert t == PipelineDurations((2, 4, 6), (0.5, 1.0), 0.125)
    assert [question[:2] for question in ledger.asked] == [
        ("stage", 0),
        ("stage", 1),
        ("stage", 2),
        ("carry", 0),
        ("carry", 1),
    ]
    assert plain.phases(ledger, step) == {
        "compute": Phase(12, {"target compute": 12}),
        "carry": Phase(1.625, {}),
    }
    spans, end = booked(plain, t, step.kind, stages=3)
    assert spans == [
        ("stage 1", 0, 2, "compute"),
        ("link 1", 2, 2.5, "transmit"),
        ("stage 2", 2.5, 6.5, "compute"),
        ("link 2", 6.5, 7.5, "transmit"),
        ("stage 3", 7.5, 13.5, "compute"),
    ]
    assert end == 13.625
    assert plain.settle(batch) == [Progress(1, 1, 0, 0)] * 2
    assert [state.context for state in batch] == [11, 21]
    with_prompt = plain.compose(batch, PROMPT)
    assert (with_prompt.kind, with_prompt.prompts) == (Kind("step", 0, 2, prompts=1), PROMPT)
    assert plain.durations(ledger, with_prompt).stages == (8, 16, 24)


def test_links_that_take_no_time_leave_no_span() -> None:
    plain = Pipelined(stages=2)
    spans, end = booked(plain, PipelineDurations((2, 4), (0.0,), 0.0), Kind("step", 0, 1), stages=2)
    assert (spans, end) == ([("stage 1", 0, 2, "compute"), ("stage 2", 2, 6, "compute")], 6)


def test_batches_in_flight_share_requests_out_evenly() -> None:
    """Over four stages: 1 to 4 requests one by one, 5 in batches of 2, 9 in batches of 3."""
    found = [
        Pipelined(stages=4, requests=count).in_flight for count in (1, 2, 4, 5, 6, 8, 9, 12, 13)
    ]
    assert found == [1, 2, 4, 3, 3, 4, 3, 4, 4]
    assert Pipelined(requests=5).in_flight == 1
    assert (Pipelined().fitted_to(stages=7), Pipelined().fitted_to(3)) == (
        Pipelined(stages=7),
        Pipelined(requests=3),
    )


def test_law_of_a_pipeline_is_its_way_or_its_slowest_part() -> None:
    t = PipelineDurations((2, 4, 6), (0.5, 1.0), 0.125)
    for requests, seconds in ((1, 13.625), (2, 13.625), (3, 18.0)):
        assert Pipelined(stages=3, requests=requests).step_seconds(t, Kind("step", 0, 1)) == seconds
    assert (
        Pipelined(stages=3, requests=3).step_seconds(
            t._replace(links=(0.5, 7.0)), Kind("step", 0, 1)
        )
        == 21.0
    )
    five = Pipelined(stages=3, requests=5)
    assert five.kinds(odds(0.5), 5) == {Kind("step", 0, bare=2): 1.0}
    assert five.law(Ledger(), odds(0.5), 5, 100).relation == "idealised: batches of unequal size"
    six = Pipelined(stages=3, requests=6).law(Ledger(), odds(0.5), 6, 100)
    assert (six.relation, six.step_s, six.tokens_per_step) == ("exact", 18.0, 1.0)
    assert six.source == "T_step = max{L, g M} (pipeline parallelism); stated rates"


# ---- a tree over a pipeline


TREE = PipelineTree(branching=(2, 3), stages=3, requests=2)
"""Levels of 2 and 6 nodes; with the root 9 rows a request."""


def test_a_tree_is_drafted_level_by_level_and_passes_all_stages() -> None:
    ledger = Ledger()
    batch = states(TREE, (10, 1), (20, 9))
    step = TREE.compose(batch)
    assert step == Step(Kind("step", 2), Rows(18, 18, 2, 48, 9 * 30 + 90))
    t = TREE.durations(ledger, step)
    assert t == (near(0.2 + 0.4), (18, 36, 54), (4.5, 9.0), 0.125)
    assert ledger.asked[:2] == [
        ("draft", Rows(2, 2, 2, 32, 32), "window"),
        ("draft", Rows(4, 4, 2, 34, 66), "window"),
    ]
    spans, end = booked(TREE, t, step.kind, stages=3)
    assert spans[0] == ("draft", 0, near(0.6), "draft tree")
    assert [span[0] for span in spans[1:]] == ["stage 1", "link 1", "stage 2", "link 2", "stage 3"]
    assert end == near(0.6 + 108 + 13.5 + 0.125)
    assert TREE.step_seconds(t, step.kind) == near(122.225)
    assert TREE.phases(ledger, step)["draft"].wall_s == near(0.6)
    assert TREE.settle(batch) == [Progress(2, 2, 1, 2), Progress(3, 3, 2, 2)]
    with_prompt = TREE.compose(batch, PROMPT)
    assert (with_prompt.kind, with_prompt.prompts) == (Kind("step", 2, prompts=1), PROMPT)
    assert TREE.durations(ledger, with_prompt)[0] == near(0.6 + 1.5)


def test_numbers_of_a_tree_over_a_pipeline() -> None:
    assert (TREE.levels, TREE.window, TREE.needs.draft_steps, TREE.needs.cache_tokens) == (
        (2, 6),
        2,
        2,
        9,
    )
    assert sum(PipelineTree().levels) == 20
    assert TREE.step(Kind("step", 2), 15) == Step(Kind("step", 2), Rows(18, 18, 2, 48, 9 * 30 + 90))
    t = TREE.durations(Ledger(), TREE.step(Kind("step", 2), 15))._replace(draft=100.0)
    assert (
        PipelineTree(branching=(2, 3), stages=3, requests=3).step_seconds(t, Kind("step", 1))
        == 300.0
    )
    assert TREE.kinds(odds(0.5), 5) == {Kind("step", 3): 1.0}
    model = ModelSpec.model_validate(MODEL)
    assert first_finding(TREE, target=model) is None
    assert first_finding(PipelineTree(branching=(1_000, 1)), target=model) is None
    assert first_finding(PipelineTree(branching=(1, 1_001)), target=model) == (
        *("branching", "a node has 1,000 children at most, one for each token; got 1,001"),
    )
    rates = Rates((0.5,))
    assert TREE.reads(rates) is rates


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
    assert [filled(one.kind).active for one in found] == [3, 3, 2]
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


# ---- the printed equations


def test_printed_equations_by_hand() -> None:
    assert unequal_stages([10.0, 30.0, 20.0], 0.75) == 45
    assert unequal_stages([[10.0, 1.0], [30.0, 2.0]], 0.5).tolist() == [50, 3.5]
    assert equal_stages(10.0, 0.75, 4) == 20
    assert break_even(10.0, 20.0, 4) == near(0.75)
    assert arrivals(10.0, 3, 4, [2], 3) == [30, 40, 80, 90]
    assert (hit_shares(0.75, 3), hit_shares(0.75, 3, late=True)) == (
        {1: 0.75, 3: 0.25},
        {1: 0.75, 4: 0.25},
    )


def test_times_of_a_pipeline_by_hand() -> None:
    """Stages 10, 30, 20; links 2 and 8; pruning 5, its token 1."""
    free, held = (
        PipelineTimes((10.0, 30.0, 20.0), (2.0, 8.0), 5.0, 1.0, asynchronous=each)
        for each in (True, False)
    )
    assert (free.pace, held.pace, free.latency) == (35, 43, 76)
    assert PipelineTimes((10.0, 30.0), (50.0,)).pace == 50
    assert PipelineTimes((10.0, 30.0), (0.0,), draft=60.0).pace == 60
    assert [free.at_most(steps) for steps in (1, 2, 3, 4)] == [35, 70, 76, 111]
    assert [barrier_step(free, active) for active in (1, 2, 3)] == [16, 36, 38]
    assert [barrier_step(held, active) for active in (1, 2, 3)] == [16, 38, 44]
    assert [barrier_step(held, active, verified=False) for active in (1, 2, 3)] == [10, 32, 38]
    assert per_token(free, "tandem", {1: 0.5, 3: 0.5}) == (35 + 76) / 2
    assert per_token(free, "barrier", {1: 0.5, 3: 0.5}) == (38 + 16 + 32 + 38) / 2
    assert PipelineTimes((1.0, 2.0)).links == (0.0,)


def test_how_the_laws_of_a_pipeline_stand_to_their_processes() -> None:
    times, stretched = (
        PipelineTimes((10.0, 10.0, 10.0)),
        PipelineTimes((10.0, 10.0, 10.0), (1.0, 1.0)),
    )
    assert (times.keeps_pace, stretched.keeps_pace) == (True, False)
    assert times.claim({1: 0.5, 3: 0.5, 4: 0.0}).exact
    partial = "upper bound: a partial refill is charged the pace for each of its steps"
    assert str(times.claim({1: 0.5, 2: 0.5})) == partial
    bound = "lower bound: 3 levels in flight cannot keep the slowest part busy over all links"
    assert str(stretched.claim({1: 1.0})) == bound


@pytest.mark.parametrize(
    ("stages", "links", "message"),
    [
        ((1.0,), (), "two stages or more"),
        ((1.0, 2.0, 3.0), (1.0,), "3 stages have 2 links between them, got 1"),
    ],
)
def test_a_pipeline_that_cannot_be(
    stages: tuple[float, ...], links: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineTimes(stages, links)
