"""Steps over the stages of a pipeline, by hand and complete: rows at every stage, what is booked,
what is settled.
"""

from __future__ import annotations

import pytest

from simulator.core.acceptance.sources import Rates
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.rows import Phase, Rows
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.pipeline_laws import (
    PipelineTimes,
    break_even,
    hit_shares,
    unequal_stages,
)
from simulator.core.strategies.common.step import Kind, Progress, Step
from simulator.core.strategies.pipeline import Pipelined, PipelineDurations
from simulator.core.strategies.pipeline_tree import PipelineTree
from tests.formulas import arrivals, barrier_step, equal_stages, per_token
from tests.ledger import Ledger, booked, first_finding, near, states
from tests.test_cost import MODEL

PROMPT = Rows.prefill(6)


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
