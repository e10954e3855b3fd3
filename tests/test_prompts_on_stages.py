"""Prompts pass the stages on which others decode: SpecPipe carries them a stage a step, a plain
pipeline like a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_specpipe import cost_of, drawn, specpipe

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.acceptance.tree_replay import DrawnPassages
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.quantities import OneOrMore
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.policies import FixedBatch, Policy, PrefillFirst
from simulator.core.serving.requests import ClosedLoop, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.pipeline import Pipelined
from simulator.core.world import World
from simulator.scenario import load
from simulator.scenario.evaluate import replay, simulate

DB = "specpipe_db_llama_3_1_70b_8x3090"


class OneSecondARow(StatedCost):
    """Stages take a second a row, links and the draft nothing; a prompt takes all stages in
    turn.
    """

    def stage(self, index: int, rows: Rows) -> Phase:
        return Phase(float(rows.tokens), {})

    def prefill(self, role: str, rows: Rows) -> Phase:
        return Phase(float(rows.tokens) * self.stages * (role == "target"), {})


THREE = PipelineTimes((1.0, 1.0, 1.0))


def served(
    strategy: Strategy,
    acceptance: Any,
    policy: Policy,
    outputs: list[int],
    places: int,
    pool: int | None = None,
) -> tuple[list[Iteration], Scheduler, float, World]:
    """Serve requests with prompts of 10 tokens on three stages; log, books, end of the same run as
    a replay, lanes.
    """
    cost = OneSecondARow(cost_of(THREE).durations)

    def scheduler(log: Any = None) -> Scheduler:
        requests = Requests(
            concurrency=places, count=len(outputs), prompt_tokens=10, output_tokens=max(outputs)
        )
        source = ClosedLoop(requests)
        made = Scheduler(strategy, acceptance, None, source, cost, policy, Blocks(1, pool), log=log)
        submit = made.submit

        def cut(request: Any) -> None:
            request.output_tokens = outputs[request.index]
            submit(request)

        made.submit = cut
        return made

    log: list[Iteration] = []
    world, run = World(), scheduler(log.append)
    stages, links = (
        tuple(world.lane(f"{name} {n + 1}") for n in range(count))
        for name, count in (("stage", 3), ("link", 2))
    )
    lanes = Lanes(
        world.lane("target"), world.lane("draft"), world.lane("rendezvous"), stages, links
    )
    for _ in range(strategy.needs.in_flight):
        world.environment.process(run.run(world, lanes))
    world.environment.run()
    run.check()
    return log, run, scheduler().replay() if strategy.needs.in_flight == 1 else world.now, world


def test_a_prompt_travels_beside_the_levels_of_another_request() -> None:
    """Levels of one row: 10 + 1 seconds at the prompt's stage, three times, in which the other
    request gets three tokens.
    """
    strategy = specpipe(THREE, width=1, branching=1, packing_ratio=OneOrMore(value=1.0))
    passages = drawn(THREE, [True], width=1)
    log, loop, replayed, world = served(strategy, passages, FixedBatch(), [9, 3, 6], 2)
    whole = [(one.kind, one.duration_s, one.requests, one.tokens) for one in log]
    assert whole[:6] == [
        ("prefill", 60, (0, 1), (1, 1)),
        *(("refill", 2, (0, 1), (0, 0)), ("refill", 2, (0, 1), (0, 0))),
        *(("token", 2, (0, 1), (1, 1)), ("token", 2, (0, 1), (1, 1))),
        ("token", 11, (0,), (1,)),
    ]
    assert whole[6:8] == [("token", 11, (0,), (1,)), ("token+prefill", 11, (0, 2), (1, 1))]
    tally = loop.ledger.tally
    assert (tally.prefills, tally.finished, tally.prompt_rows) == (1, 3, 30)
    assert replayed == pytest.approx(world.now, rel=1e-9)


def test_prompts_go_on_where_nobody_decodes() -> None:
    """The last of two requests ends while a prompt is at the first stage: two more steps of 10
    bring its token.
    """
    strategy = specpipe(THREE, width=1, branching=1, packing_ratio=OneOrMore(value=1.0))
    log, _, replayed, world = served(
        strategy, drawn(THREE, [True], width=1), FixedBatch(), [3, 2, 2], 2
    )
    durations = [(iteration.kind, iteration.duration_s) for iteration in log]
    assert durations[4:7] == [("token", 11), ("refill", 10), ("refill+prefill", 10)]
    assert replayed == pytest.approx(world.now, rel=1e-9)


@pytest.mark.parametrize("pool", [None, 60, 34])
def test_events_and_replay_agree_whatever_the_memory(pool: int | None) -> None:
    """Hits by chance, prompts in flight, and a pool that takes one request at a time or preempts:
    the same end at 1e-9.
    """
    strategy = specpipe(THREE, width=4, branching=2)
    passages = DrawnPassages(Rates((0.7,), seed=3), Beam(4, 2, 3))
    outputs = [7, 12, 5, 9, 12, 3, 8]
    _, loop, replayed, world = served(
        strategy, passages, PrefillFirst(watermark=0.0), outputs, 3, pool
    )
    assert loop.ledger.tally.finished == 7
    assert replayed == pytest.approx(world.now, rel=1e-9)
    assert not loop.memory.used
    assert not any(request.flying for request in loop.queues.running)


def test_batches_of_a_pipeline_stand_behind_a_prompt() -> None:
    """A prompt of 10 seconds at each of three stages: it begins a second before a token of the
    other request, whose next one comes behind it.
    """
    strategy = Pipelined().fitted_to(2, 3)
    log, _, _, world = served(strategy, Cycle((0,)), FixedBatch(), [9, 3, 6], 2)
    prompt = [
        (span.lane, span.start_s, span.end_s) for span in world.spans if span.label == "prefill"
    ]
    begun = prompt[3][1]
    assert prompt[3:] == [(f"stage {n + 1}", begun + 10 * n, begun + 10 * n + 10) for n in range(3)]
    mine = [one.start_s + one.duration_s for one in log if one.requests == (0,)]
    assert sorted(np.diff(mine))[-2:] == [3, 29]
    assert not any(span.lane == "target" for span in world.spans)


def test_requests_share_the_rows_of_a_level() -> None:
    strategy = specpipe(THREE, width=64, width_rule="shared")
    shares = {
        requests: strategy.fitted_to(requests, 3).beam.width for requests in (1, 2, 3, 8, 64, 100)
    }
    assert shares == {1: 64, 2: 32, 3: 21, 8: 8, 64: 1, 100: 1}
    assert specpipe(THREE, width=64).fitted_to(8, 3).beam.width == 64
    assert strategy.fitted_to(8, 3).needs.cache_tokens == 8 * 3 + 1
    with pytest.raises(
        BadInput,
        match=r"holds no tree of width 21 \(64 shared by 3 requests\) and branching 16 over 8 "
        r"stages; it holds: 1 x 16, 2 x 16",
    ):
        load(DB, ("requests.concurrency=3",)).acceptance()


def test_the_shipped_scenario_agrees_with_its_replay() -> None:
    loaded = load(DB, ("requests.count=20",))
    acceptance = loaded.acceptance()
    simulated, _ = simulate(loaded.scenario, acceptance)
    replayed = replay(loaded.scenario, acceptance)
    assert any(kind.prompts for kind in simulated.kinds)
    assert replayed.end_s == pytest.approx(simulated.end_s, rel=1e-9)
    assert replayed.tpot_s == pytest.approx(simulated.tpot_s, rel=1e-9)


def test_a_cache_too_small_for_a_tree_is_said_before_the_run() -> None:
    """Levels in flight need room besides prompt and output: 1 + 64 x 8 tokens; the run would wait
    for it in vain.
    """
    requests = "requests={concurrency: 1, count: 5, prompt_tokens: 512, output_tokens: 64}"
    with pytest.raises(
        BadInput,
        match="a request of 576 tokens needs room for 1,087 in the KV cache, which holds 592",
    ):
        load("specpipe_llama_3_1_70b_8x3090", (requests, "serving.memory.kv_tokens=600"))


def test_stated_prefills_keep_their_length_on_stages() -> None:
    """A stated prefill of 12 ms is shared by stages of 4, 5 and 3 ms as they stand to each
    other.
    """
    cost = StatedCost(StatedDurations(stages_ms=(4.0, 5.0, 3.0), prefill_ms=24.0))
    world = World()
    lanes = Lanes(
        *(world.lane(name) for name in ("t", "d", "r")),
        (*(world.lane(f"s{n}") for n in range(3)),),
        (world.lane("l"),),
    )
    lanes = lanes._replace(links=(world.lane("l1"), world.lane("l2")))
    (end,) = Pipelined().fitted_to(2, 3).prefill(lanes, cost, Rows.prefill(10), 24e-3)
    world.environment.run(end)
    assert world.now == pytest.approx(24e-3)
    assert [lane.busy_s for lane in lanes.stages] == pytest.approx([8e-3, 10e-3, 6e-3])
