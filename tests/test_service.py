"""A service: its replicas, router and collector together, by complete timelines of small ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.fields import Serving
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Admission
from simulator.core.world import Span
from simulator.scenario import load

SECOND = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000))
"""Every pass takes a second."""


def service(replicas: int, **settings: int | None) -> Service:
    serving = Serving(
        policy=FixedBatch(max_requests=1),
        memory=KVMemory(block_tokens=8),
        replicas=replicas,
        router="round_robin",
    )
    requests = Requests(concurrency=3, count=3, prompt_tokens=8, output_tokens=3)
    return Service(Autoregressive(), Cycle((0,)), SECOND, requests, serving, **settings)


def test_two_replicas_with_a_place_each() -> None:
    """Requests 0 and 2 go to replica 1, request 1 to replica 2: a prefill and two steps each."""
    log: list[Iteration] = []
    finished: list[Request] = []
    done = service(2).run(spans=2, on_iteration=log.append, on_finished=finished.append)
    assert [
        (line.start_s, line.kind, line.requests, line.replica, line.waiting) for line in log
    ] == [
        (0.0, "prefill", (0,), 1, 1),
        (0.0, "prefill", (1,), 2, 0),
        (1.0, "step", (0,), 1, 1),
        (1.0, "step", (1,), 2, 0),
        (2.0, "step", (0,), 1, 1),
        (2.0, "step", (1,), 2, 0),
        (3.0, "prefill", (2,), 1, 0),
        (4.0, "step", (2,), 1, 0),
        (5.0, "step", (2,), 1, 0),
    ]
    assert [(request.index, request.finished_s) for request in finished] == [
        (0, 3.0),
        (1, 3.0),
        (2, 6.0),
    ]
    assert done.end_s == 6.0
    assert [busy["target"] for busy in done.busy_s] == [6.0, 3.0]
    assert done.spans == [Span("target", 0.0, 1.0, "prefill"), Span("target", 1.0, 2.0, "decode")]
    assert (done.tally.finished, done.tally.tokens, done.collector.times["e2e"].count) == (3, 9, 3)
    assert done.collector.times["e2e"].mean == 4.0


def test_who_leaves_within_a_step_may_end_what_counts() -> None:
    """Requests 0 and 2 run in replica 1, 1 and 3 in replica 2; after a prefill and two steps
    request 0 leaves first and lets request 4 come, which ends the stretch before the last tokens of
    the others are shown.
    """
    requests = Requests(concurrency=4, count=5, cool_down=1, prompt_tokens=8, output_tokens=3)
    serving = Serving(policy=FixedBatch(max_requests=2), replicas=2, router="round_robin")
    collector = Service(Autoregressive(), Cycle((0,)), SECOND, requests, serving).run().collector
    assert (collector.begin_s, collector.end_s) == (0.0, 3.0)
    assert (collector.tokens, collector.times["tbt"].count) == (8, 4)


def test_a_replay_follows_one_replica_as_the_simulation_does() -> None:
    alone = service(1)
    simulated, replayed = alone.run(), alone.replay()
    assert simulated.end_s == replayed.end_s == 9.0
    assert simulated.tally.steps == replayed.tally.steps
    assert (replayed.busy_s, replayed.spans) == ([], [])


def test_a_service_can_be_run_again() -> None:
    """Everything that moves is made anew: with jitter, lengths and arrivals drawn from the same
    seed.
    """
    loaded = load(
        "vanilla_llama_2_7b_a100", ["requests={concurrency: 2, count: 4, output_tokens: 12}"]
    )
    twice = loaded.scenario.service(loaded.acceptance())
    first, second = twice.run(), twice.run()
    assert first.end_s == second.end_s
    assert first.tally.settled == second.tally.settled
    assert first.replicas[0] is not second.replicas[0]


@pytest.mark.parametrize(("room", "blocks"), [(None, float("inf")), (47, 5), (48, 6)])
def test_each_replica_has_room_in_whole_blocks(room: int | None, blocks: float) -> None:
    done = service(2, kv_tokens=room).run()
    assert [replica.memory.total for replica in done.replicas] == [blocks, blocks]
    assert done.replicas[0].memory is not done.replicas[1].memory


def test_a_prompt_that_another_run_has_read_is_not_priced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three prompts of 8 tokens, read one at a time by one replica or two: one price."""
    priced: list[Rows] = []
    price = Autoregressive.admission

    def counted(
        self: Autoregressive, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0
    ) -> Admission:
        priced.append(prompts)
        return price(self, cost, prompts, ending, context)

    monkeypatch.setattr(Autoregressive, "admission", counted)
    for replicas in (2, 1, 2):
        cost = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1500))
        done = replace(service(replicas), cost=cost).run()
        assert done.end_s == {1: 10.5, 2: 7.0}[replicas]
    assert priced == [Rows.prefill(8)]
