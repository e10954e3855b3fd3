"""SpecPipe step by step: tiny pipelines with all their spans, and its law on the event engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings, strategies as st
from test_flow_line import pipelines, seconds
from test_tree_replay import trace_of

from simulator.cli.main import main
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Acceptance, Cycle, Rates, Replay
from simulator.core.acceptance.tree_replay import DrawnPassages, RecordedPassages
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import NonNegative, OneOrMore
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import ClosedLoop, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import line_of
from simulator.core.strategies.common.pipeline_laws import PipelineTimes, hit_shares
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.pipeline import Pipelined
from simulator.core.world import World
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.traces import file as trace_file
from simulator.papers.specpipe.specpipe_tandem import SpecPipeTandem
from simulator.papers.specpipe.strategy import SpecPipe
from simulator.report.run.gaps import gaps
from simulator.scenario import load
from simulator.scenario.evaluate import run
from tests.formulas import barrier_passage, equal_stages, per_token


def specpipe(times: PipelineTimes, **fields: Any) -> SpecPipe:
    prune = NonNegative(value=times.prune * 1e3)
    return SpecPipe(
        stages=len(times.stages), prune_ms=prune, asynchronous=times.asynchronous, **fields
    )


def cost_of(times: PipelineTimes) -> StatedCost:
    stages, links = (tuple(one * 1e3 for one in many) for many in (times.stages, times.links))
    return StatedCost(
        StatedDurations(
            stages_ms=stages,
            links_ms=links,
            token_ms=times.token * 1e3,
            draft_step_ms=times.draft * 1e3,
        )
    )


def play(
    times: PipelineTimes, acceptance: Acceptance, tokens: int, requests: int = 1, **fields: Any
) -> tuple[list[Iteration], Scheduler, World]:
    """Decode so many tokens of each request; the iterations, the books and the spans."""
    return played(specpipe(times, **fields), times, acceptance, tokens, requests)


def played(
    strategy: Strategy,
    times: PipelineTimes,
    acceptance: Acceptance,
    tokens: int,
    requests: int,
    cost: StatedCost | None = None,
) -> tuple[list[Iteration], Scheduler, World]:
    world, log = World(), []
    lanes = Lanes(
        world.lane("target"),
        world.lane("draft"),
        world.lane("rendezvous"),
        tuple(world.lane(f"stage {i + 1}") for i in range(len(times.stages))),
        tuple(world.lane(f"link {i + 1}") for i in range(len(times.links))),
    )
    cost = cost or cost_of(times)
    lanes = lanes._replace(line=line_of(strategy, cost, lanes))
    source = ClosedLoop(Requests(concurrency=requests, count=requests, output_tokens=1 + tokens))
    loop = Scheduler(strategy, acceptance, None, source, cost, FixedBatch(), log=log.append)
    for _ in range(strategy.needs.in_flight):
        world.environment.process(loop.run(world, lanes))
    world.environment.run()
    loop.check()
    return [iteration for iteration in log if "prefill" not in iteration.kind], loop, world


def drawn(times: PipelineTimes, hits: list[bool], width: int = 64) -> DrawnPassages:
    return DrawnPassages(Cycle(tuple(map(int, hits))), Beam(width, 16, len(times.stages)))


def arrivals(log: list[Iteration]) -> list[float]:
    return [one.start_s + one.duration_s for one in log if sum(one.tokens)]


def test_a_miss_empties_three_stages() -> None:
    """Stages 10, 20, 10 s, link 1, pruning 3: a token a step of 23; the second is a miss and costs
    13, 21, 21 to refill.
    """
    times = PipelineTimes((10.0, 20.0, 10.0), (1.0, 1.0), prune=3.0)
    log, _, world = play(times, drawn(times, [True, False, True, True]), 5)
    assert arrivals(log) == pytest.approx(np.cumsum([13 + 21 + 21, 23, 13 + 21 + 21, 23, 23]))
    spans = {
        (s.lane, round(s.start_s, 9), round(s.end_s, 9), s.label)
        for s in world.spans
        if 55 <= s.start_s < 112
    }
    assert spans == {
        *((f"stage {n}", 55, 58, "prune") for n in (1, 2, 3)),
        *(
            ("stage 1", 58, 68, "compute"),
            ("stage 2", 58, 78, "compute"),
            ("stage 3", 58, 68, "compute"),
        ),
        *((f"link {n}", 55, 56, "transmit") for n in (1, 2)),
        *(("stage 1", 78, 81, "prune"), ("stage 1", 81, 91, "compute")),
        *(
            ("link 1", 91, 92, "transmit"),
            ("stage 1", 92, 102, "compute"),
            ("stage 2", 92, 112, "compute"),
        ),
    }


@settings(deadline=None)
@given(pipelines(), st.lists(st.booleans(), min_size=1, max_size=12), st.booleans())
def test_barrier_keeps_its_law_given_the_realised_hits(
    times: PipelineTimes, hits: list[bool], late: bool
) -> None:
    """Any stages, links, pruning and draft; a miss noticed at once or a step late; 1e-9 on the
    event engine.
    """
    log, _, _ = play(times, drawn(times, hits), len(hits) + 1, late=late)
    m = len(times.stages)
    steps = [m, *(1 if hit else m + late for hit in hits)]
    assert arrivals(log) == pytest.approx(
        np.cumsum([barrier_passage(times, count) for count in steps]), rel=1e-9
    )


@settings(deadline=None)
@given(pipelines(), st.floats(0.0, 1.0), st.booleans())
def test_the_law_is_the_mean_over_passages(times: PipelineTimes, hit: float, late: bool) -> None:
    strategy, m = specpipe(times, late=late), len(times.stages)
    law = strategy.law(cost_of(times), lambda gamma: Rates((hit,)).odds(gamma, None), 1, 100)
    assert law.tpot_s == pytest.approx(
        per_token(times, "barrier", hit_shares(hit, m, late)), rel=1e-9
    )


def test_independent_hits_meet_eq_2() -> None:
    """Eight stages of 50 ms, P = 0.95, late as Eq. (2) counts: 70 ms, within four standard errors
    of 4,000 tokens.
    """
    times = PipelineTimes((0.05,) * 8)
    log, _, _ = play(
        times, DrawnPassages(Rates((0.95,), seed=2), Beam(64, 16, 8)), 4_000, late=True
    )
    waits = np.diff(arrivals(log))
    law = equal_stages(0.05, 0.95, 8)
    assert law == pytest.approx(0.07)
    assert abs(waits.mean() - law) < 4 * waits.std() / len(waits) ** 0.5


BEAM: dict[str, Any] = {
    "beam_steps": [[0, 3, 1, 2, 3]],
    "beam_hit": [[0, 1, 1, 0, 1]],
    "beam_rows": [[[0, 4, 4, 3, 4], [0, 2, 3, 4, 2], [0, 1, 1, 1, 1]]],
}


def test_recorded_passages_with_a_gap() -> None:
    """Three stages of 10 s: after a token in place comes one two steps later, for which stages 1
    and 2 go on.

    Levels lose rows on their way: the third one, of 4, has 3 at stage 2; the fourth has one there,
    as its token is next.
    """
    trace = trace_of([0] * 5, header={"beams": [{"width": 4, "branching": 2, "stages": 3}]}, **BEAM)
    times = PipelineTimes((10.0, 10.0, 10.0))
    log, _, world = play(
        times, RecordedPassages(Replay(trace), Beam(4, 2, 3)), 4, width=4, branching=2
    )
    assert arrivals(log) == [30, 40, 60, 90]
    stage_3 = [(s.start_s, s.end_s) for s in world.spans if s.lane == "stage 3"]
    assert stage_3 == [(20, 30), (30, 40), (50, 60), (80, 90)]
    assert [iteration.rows for iteration in log] == [
        (1,),
        (3,),
        (7,),
        (8,),
        (5,),
        (8,),
        (1,),
        (3,),
        (7,),
    ]
    assert RecordedPassages(Replay(trace), Beam(4, 2, 3)).odds(1, None).accepted[1] == 0.75


def test_relaxed_verification_never_misses() -> None:
    times = PipelineTimes((10.0, 10.0, 10.0))
    log, _, _ = play(times, drawn(times, [False]), 4, relaxed=True)
    assert arrivals(log) == [30, 40, 50, 60]


def test_two_requests_share_each_step_and_a_miss_stalls_one() -> None:
    """Stages that take 10 whatever their rows leave nothing to pack. The second request's first
    token is a miss.
    """
    times = PipelineTimes((10.0, 10.0, 10.0))

    class Mixed(Cycle):
        def cursor(self, request: int, exit: Any) -> Any:
            return Cycle((1 - request,)).cursor(request, exit)

    passages = DrawnPassages(Mixed((1,)), Beam(64, 16, 3))
    log, loop, _ = play(times, passages, 3, requests=2, packing_ratio=OneOrMore(value=1.5))
    assert [(one.start_s, one.duration_s, one.tokens) for one in log] == [
        *((0, 10, (0, 0)), (10, 10, (0, 0)), (20, 10, (1, 1)), (30, 10, (1, 0)), (40, 10, (1, 0))),
        *((50, 10, (1,)), (60, 10, (0,)), (70, 10, (0,)), (80, 10, (1,))),
    ]
    assert (loop.ledger.tally.accepted[1], loop.ledger.tally.accepted[0]) == (3, 3)


def test_requests_are_packed_with_the_rows_that_pruning_left() -> None:
    """A second a row. One tree grows 1, 2, 4 and has 4, 3, 1 in flight a step later; the other one,
    1, 1, 2, is lost.

    Three stages hold 2 0 0, 3 2 0, 6 3 2 rows, then 5 3 1, for the lost tree begins again; at the
    end it is alone.
    """

    class OneSecondARow(StatedCost):
        def stage(self, index: int, rows: Rows) -> Phase:
            return Phase(float(rows.tokens), {})

    trace = trace_of(
        [0] * 6,
        offsets=(0, 3, 6),
        header={"beams": [{"width": 4, "branching": 2, "stages": 3}]},
        beam_steps=[[0, 3, 1, 0, 3, 3]],
        beam_hit=[[0, 1, 1, 0, 0, 1]],
        beam_rows=[[[0, 4, 4, 0, 2, 3], [0, 2, 3, 0, 1, 2], [0, 1, 1, 0, 1, 1]]],
    )
    times = PipelineTimes((10.0, 10.0, 10.0))
    strategy = specpipe(times, width=4, branching=2, packing_ratio=OneOrMore(value=1.0))
    log, _, _ = played(
        strategy,
        times,
        RecordedPassages(Replay(trace), Beam(4, 2, 3)),
        2,
        2,
        OneSecondARow(cost_of(times).durations),
    )
    assert [iteration.duration_s for iteration in log] == [2, 3, 6, 5, 2, 3]
    assert [sum(iteration.rows) for iteration in log] == [2, 5, 11, 9, 3, 6]
    assert [sum(outcome.tokens) for outcome in log] == [0, 0, 2, 1, 0, 1]


def plain(times: PipelineTimes, requests: int) -> Strategy:
    return Pipelined().fitted_to(requests, len(times.stages))


@pytest.mark.parametrize(("requests", "step"), [(1, 42), (2, 42), (3, 60)])
def test_requests_fill_the_stages_of_a_pipeline(requests: int, step: float) -> None:
    """Stages 10, 20, 10, links 1: alone 42 a token; three in flight wait for the slowest stage, 60
    a token for each.
    """
    times = PipelineTimes((10.0, 20.0, 10.0), (1.0, 1.0))
    log, _, _ = played(plain(times, requests), times, Cycle((0,)), 6, requests)
    mine = [one.start_s + one.duration_s for one in log if one.requests == (0,)]
    assert np.diff(mine)[1:] == pytest.approx([step] * 4)


@settings(deadline=None)
@given(pipelines(), st.integers(1, 12))
def test_plain_pipelines_keep_their_law(times: PipelineTimes, requests: int) -> None:
    """Any stages and links, up to two full pipelines of requests: the pace settles at ``max{L, g
    M}``.
    """
    strategy = plain(times, requests)
    law = strategy.law(cost_of(times), lambda gamma: Rates((0.0,)).odds(gamma, None), requests, 100)
    tokens = 40
    log, loop, _ = played(strategy, times, Cycle((0,)), tokens, requests)
    first = [one.start_s + one.duration_s for one in log if 0 in one.requests]
    assert (first[-1] - first[tokens // 2]) / (tokens - 1 - tokens // 2) == pytest.approx(
        law.tpot_s, rel=1e-9
    )
    assert loop.ledger.tally.tokens == requests * (tokens + 1)


def tandem(times: PipelineTimes, **fields: Any) -> SpecPipeTandem:
    return SpecPipeTandem(
        stages=len(times.stages),
        prune_ms=NonNegative(value=times.prune * 1e3),
        asynchronous=times.asynchronous,
        **fields,
    )


@settings(deadline=None)
@given(pipelines(), st.lists(st.booleans(), min_size=1, max_size=12), st.booleans())
def test_tandem_keeps_its_law_given_the_realised_hits(
    times: PipelineTimes, hits: list[bool], late: bool
) -> None:
    """Requests under the scheduler, stages and links that block on their own: 1e-9, as long as m
    levels cover the way.
    """
    assume(times.keeps_pace)
    log, _, _ = played(tandem(times, late=late), times, drawn(times, hits), len(hits) + 1, 1)
    m = len(times.stages)
    steps = [m, *(1 if hit else m + late for hit in hits)]
    assert arrivals(log) == pytest.approx(
        np.cumsum([times.at_most(count) for count in steps]), rel=1e-9
    )


@settings(deadline=None)
@given(pipelines(), st.floats(0.0, 1.0), st.booleans())
def test_the_law_of_tandem_is_the_mean_over_passages(
    times: PipelineTimes, hit: float, late: bool
) -> None:
    law = tandem(times, late=late).law(
        cost_of(times), lambda gamma: Rates((hit,)).odds(gamma, None), 1, 100
    )
    assert law.tpot_s == pytest.approx(
        per_token(times, "tandem", hit_shares(hit, len(times.stages), late)), rel=1e-9
    )
    assert (law.relation == "exact") == times.keeps_pace


@settings(deadline=None)
@given(
    st.lists(seconds, min_size=2, max_size=6),
    st.floats(0.0, 9.0),
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.booleans(),
)
def test_by_stage_and_by_step_agree_where_they_must(
    stages: list[float], prune: float, hits: list[bool], late: bool
) -> None:
    """Stages that do not decrease along the pipe: token by token. Stages in any order that miss
    nothing: from the first on.
    """
    rising = PipelineTimes(tuple(sorted(stages)), prune=prune)
    by_step, _, _ = play(rising, drawn(rising, hits), len(hits) + 1, late=late)
    by_stage, _, _ = played(
        tandem(rising, late=late), rising, drawn(rising, hits), len(hits) + 1, 1
    )
    assert arrivals(by_stage) == pytest.approx(arrivals(by_step), rel=1e-9)
    times = PipelineTimes(tuple(stages), prune=prune)
    by_step, _, _ = play(times, drawn(times, [True]), 9, late=late)
    by_stage, _, _ = played(tandem(times, late=late), times, drawn(times, [True]), 9, 1)
    assert np.diff(arrivals(by_stage)) == pytest.approx(np.diff(arrivals(by_step)), rel=1e-9)


def test_a_draft_slower_than_every_stage_sets_the_pace_in_tandem() -> None:
    """Three stages of 10 s and a draft of 25: 30 s through the empty pipeline, then a token every
    25.
    """
    times = PipelineTimes((10.0, 10.0, 10.0), draft=25.0)
    log, _, _ = played(tandem(times), times, drawn(times, [True]), 5, 1)
    assert arrivals(log) == pytest.approx(np.cumsum([30, 25, 25, 25, 25]))


def test_a_recorded_gap_in_tandem() -> None:
    """As recorded above, stages 10, 20, 10: tokens at 40, 60; the level between is dropped there,
    the next one moves up.
    """
    trace = trace_of([0] * 5, header={"beams": [{"width": 4, "branching": 2, "stages": 3}]}, **BEAM)
    times = PipelineTimes((10.0, 20.0, 10.0))
    log, _, world = played(
        tandem(times, width=4, branching=2),
        times,
        RecordedPassages(Replay(trace), Beam(4, 2, 3)),
        4,
        1,
    )
    assert arrivals(log) == [40, 60, 90, 130]
    second = [(s.start_s, s.end_s) for s in world.spans if s.lane == "stage 2"]
    assert second[:6] == [(10, 30), (30, 50), (50, 60), (60, 80), (80, 90), (100, 120)]


def test_levels_enter_a_tandem_with_the_rows_they_will_have() -> None:
    """The same passages: levels of 1, 2, 4, then 4, then 4 and 3; in step the fourth has one row at
    stage 2.

    The third dies at stage 2 and the sixth at stage 1; both go on with what they had until they are
    dropped. So does the last one, behind which the recording begins again with an empty pipeline.
    """
    trace = trace_of([0] * 5, header={"beams": [{"width": 4, "branching": 2, "stages": 3}]}, **BEAM)
    strategy = tandem(PipelineTimes((10.0, 20.0, 10.0)), width=4, branching=2)
    state = strategy.open(RecordedPassages(Replay(trace), Beam(4, 2, 3)).cursor(0, None), 7)
    steps = [strategy.compose([state]) for _ in range(4)]
    assert [[rows.tokens for rows in step.loads] for step in steps] == [
        [*(1, 1, 1), *(2, 2, 1), *(4, 3, 1)],
        [4, 1, 1],
        [*(4, 4, 1), *(3, 3, 1)],
        [*(1, 1, 1), *(2, 2, 1), *(4, 4, 1)],
    ]
    assert [step.rows.tokens for step in steps] == [7, 4, 7, 7]


SCENARIO = "like: specpipe_llama_3_1_70b_8x3090\n"
FAULTS = [
    (SCENARIO + "strategy: {width: 0}\n", "x.yaml:2:12: strategy.width: expected 1 or more, got 0"),
    (
        SCENARIO + "strategy: {branching: 128257}\n",
        (
            "x.yaml:2:12: strategy.branching: a node has 128,256 children at most, one for each "
            "token; got 128,257"
        ),
    ),
    (
        SCENARIO + "strategy: {stages: 4}\n",
        "x.yaml:2:12: strategy.stages: comes from target.pipeline, which has 8; leave it out",
    ),
    (
        SCENARIO + "target: {pipeline: null}\n",
        "strategy: specpipe runs on the stages of a pipeline; set target.pipeline",
    ),
    (
        SCENARIO + "strategy: {name: specpipe_tandem}\nrequests: {concurrency: 4}\n",
        "x.yaml:3:12: requests.concurrency: specpipe_tandem takes one request at a time, got 4",
    ),
    (SCENARIO + "draft: null\n", "strategy: specpipe needs a draft, and the scenario has none"),
    (
        (
            "strategy: specpipe\ndurations: {target_ms: 30, draft_step_ms: 3}\nacceptance: {rate: "
            "0.9}\n"
        ),
        "x.yaml:1:1: strategy: specpipe runs on the stages of a pipeline; set durations.stages_ms",
    ),
    (
        (
            "strategy: specpipe\ndurations: {stages_ms: [30, 30], links_ms: [1, 1], draft_step_ms: "
            "3}\nacceptance: {rate: 0.9}\n"
        ),
        "x.yaml:2:1: durations: links_ms: 2 stages_ms have one link less between them, got 2",
    ),
    (
        SCENARIO + "serving: {policy: {name: chunked_prefill}}\n",
        (
            "serving.policy: specpipe takes prompts in passes of their own; choose fixed_batch or "
            "prefill_first"
        ),
    ),
    (
        SCENARIO + "acceptance: {rate: null, trace: ./x.npz, stand_in: true}\n",
        (
            "strategy.width: ./x.npz holds no tree over 8 stages, only over 3; cut the target so, "
            "or state a rate"
        ),
    ),
    (
        SCENARIO + "strategy: {width: 48}\n",
        (
            "x.yaml:2:12: strategy.width: {trace} holds no tree of width 48 and branching 16 "
            "over 8 stages; it holds: 1 x 16, 2 x 16,"
        ),
    ),
    (
        (
            "like: specpipe_llama_3_1_70b_4xl40\ntarget: {pipeline: {stages: [{layers: 16}, "
            "{layers: 16}, {layers: 16}, {layers: 16}, {layers: 16}]}}\n"
        ),
        "holds no tree over 5 stages, only over 4, 8, 16; cut the target so, or state a rate",
    ),
    (
        SCENARIO + "target: {device: null}\n",
        "x.yaml:2:10: target.device: expected a mapping, got null",
    ),
]


@pytest.mark.parametrize(("text", "expected"), FAULTS, ids=lambda value: value[-50:])
def test_one_line_that_helps(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_file.write(
        trace_of([0] * 5, header={"beams": [{"width": 4, "branching": 2, "stages": 3}]}, **BEAM),
        tmp_path / "x.npz",
    )
    (tmp_path / "x.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "./x.yaml"])
    assert result.exit_code == 2
    shipped = shown(Catalogue().names("trace")["six_flavours_greedy"])
    assert expected.replace("./x.npz", "x.npz").replace("{trace}", shipped) in re.sub(
        r"as \S+:\d+ has it, ", "", result.stderr
    )


def test_a_report_says_that_gaps_make_tokens_late(tmp_path: Path) -> None:
    """Recorded hits of 75 %, one of them behind a gap: the law with the share of hits alone is
    below what the replay finds.
    """
    trace_file.write(
        trace_of([0] * 5, header={"beams": [{"width": 4, "branching": 2, "stages": 3}]}, **BEAM),
        tmp_path / "x.npz",
    )
    (tmp_path / "x.yaml").write_text(
        "strategy: {name: specpipe, width: 4, branching: 2, prune_ms: 0}\n"
        "durations: {stages_ms: [10, 10, 10], draft_step_ms: 1}\n"
        "acceptance: {trace: ./x.npz}\nrequests: {count: 2, output_tokens: 5}\n"
    )
    result = run(load(str(tmp_path / "x.yaml")))
    assert result.law.tpot_s == pytest.approx(0.01 * (0.75 + 0.25 * 3))
    assert (
        result.replay.tpot_s
        == result.simulated.tpot_s
        == pytest.approx((30 + 10 + 20 + 30) / 4 / 1e3)
    )
    assert "partial refills" in gaps(result)[0].why
