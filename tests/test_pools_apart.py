"""Prefill and decode apart: complete timelines of small services, and what is conserved."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.cost.device import Link
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.cache.tiers import MemoryTier, TieredCache
from simulator.core.serving.fields import routers
from simulator.core.serving.fleet.apart import ApartService, ServicePool
from simulator.core.serving.fleet.between import Luggage
from simulator.core.serving.fleet.handover import PoolRole
from simulator.core.serving.fleet.tandem import Tandem, least_end_s
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.arrivals import Deterministic, Poisson
from simulator.core.serving.load.lengths import Uniform
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Request, Requests
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import Span
from tests.pools import BYTE_A_SECOND, FREE, apart, handover

TWO = Requests(concurrency=2, count=2, prompt_tokens=8, output_tokens=3)


def test_two_requests_pass_a_prefill_replica_a_link_and_a_decode_replica() -> None:
    """Prompts of a second each, a link of two seconds a request, two steps of a second."""
    log: list[Iteration] = []
    finished: list[Request] = []
    service = apart(
        {"prefill": 1, "decode": 1},
        TWO,
        handover(BYTE_A_SECOND),
        luggage=Luggage(lambda tokens: 2.0),
    )
    done = service.run(20, log.append, finished.append)
    assert [(line.start_s, line.kind, line.requests, line.replica) for line in log] == [
        (0.0, "prefill", (0,), 1),
        (1.0, "prefill", (1,), 1),
        (3.0, "step", (0,), 2),
        (4.0, "step", (0,), 2),
        (5.0, "step", (1,), 2),
        (6.0, "step", (1,), 2),
    ]
    assert [(one.index, one.first_token_s, one.finished_s) for one in finished] == [
        (0, 3.0, 5.0),
        (1, 5.0, 7.0),
    ]
    assert [span for span in done.spans if span.lane.startswith("handover")] == [
        ("handover 1 to 2", 1.0, 3.0, "KV"),
        ("handover 1 to 2", 3.0, 5.0, "KV"),
    ]


POLICIES: dict[str, Policy] = {
    "fixed_batch": FixedBatch(max_requests=2),
    "prefill_first": PrefillFirst(max_requests=3, batch_tokens=96, watermark=0.05),
    "chunked_prefill": ChunkedPrefill(name="chunked_prefill", max_requests=3, chunk_tokens=16),
    "unified_budget": UnifiedBudget(name="unified_budget", max_requests=3, budget_tokens=24),
}
BY_LOAD = StatedCost(
    StatedDurations.model_validate(
        {
            "target_ms": {"base_ms": 10, "row_ms": 1, "cached_token_ms": 0.01},
            "prefill_ms": {"base_ms": 5, "row_ms": 0.5},
            "draft_step_ms": 2,
            "draft_prefill_ms": 3,
        }
    )
)


@st.composite
def services(draw: st.DrawFn) -> ApartService:
    """Pools, routings, draft states, policies and memories of all sorts, with speculation."""
    pools: dict[PoolRole, int] = {
        "prefill": draw(st.integers(1, 3)),
        "decode": draw(st.integers(1, 3)),
    }
    if draw(st.booleans()):
        pools["both"] = draw(st.integers(1, 2))
    routing = draw(st.sampled_from(["decode_first", "prefill_first"]))
    state = draw(st.sampled_from(["transferred", "recomputed", "absent"]))
    over = handover(
        Link(latency_us=draw(st.integers(0, 5_000)), bandwidth_gb_s=1e-6),
        routing=routing,
        overlap=draw(st.sampled_from(["none", "by_layer"])),
        shared=draw(st.booleans()),
        shown_by=draw(st.sampled_from(["decode", "prefill"])),
        draft_state=state,
        connections=draw(st.integers(1, 2)),
    )
    redraft = (lambda tokens: tokens * 1e-4) if state == "recomputed" else None
    luggage = Luggage(lambda tokens: 8.0 * tokens, draw(st.integers(1, 4)), redraft)
    arrivals = draw(st.sampled_from([None, Poisson(name="poisson", rate_per_s=20.0)]))
    requests = Requests(
        arrivals=arrivals,
        concurrency=1 if arrivals else draw(st.integers(1, 12)),
        count=draw(st.integers(12, 30)),
        prompt_tokens=Uniform(least_tokens=1, most_tokens=40),
        output_tokens=Uniform(least_tokens=2, most_tokens=40),
    )
    return apart(
        pools,
        requests,
        over,
        strategy=VanillaSD(gamma=draw(st.integers(1, 4))),
        acceptance=Rates((draw(st.sampled_from([0.0, 0.5, 0.9])),), seed=3),
        cost=BY_LOAD,
        luggage=luggage,
        decode_policy=POLICIES[draw(st.sampled_from(sorted(POLICIES)))],
        prefill_policy=POLICIES[draw(st.sampled_from(sorted(POLICIES)))],
        kv_tokens=draw(st.sampled_from([None, 112, 240])),
        router=draw(st.sampled_from(sorted(routers()))),
        plain_tokens=5 if state == "absent" else 0,
    )


@given(services())
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_between_pools(service: ApartService) -> None:
    """Requests, tokens, blocks, bytes and times: what comes is what goes, over all pools."""
    came: list[Request] = []
    finished: list[Request] = []
    done = service.run(1_000, on_finished=finished.append, on_arrived=came.append)
    lengths = list(service.requests.lengths(service.seed))
    assert sorted(one.index for one in came) == list(range(len(lengths)))
    assert sorted(one.index for one in finished) == list(range(len(lengths)))
    for one in finished:
        assert (one.prompt_tokens, one.tokens) == lengths[one.index]
        assert one.arrival_s <= one.admitted_s < one.first_token_s <= one.finished_s
    tally = done.tally
    between = done.between
    assert between is not None
    assert tally.tokens == sum(output for _, output in lengths)
    assert tally.arrived == tally.finished == len(lengths)
    assert tally.taken_over == tally.handed_on == 2 * between.transfers
    assert tally.tokens_taken_over == tally.tokens_handed_on
    over = [one for one in finished if one.entered_s > one.arrival_s]
    assert len(over) == between.transfers
    assert between.size_bytes == 8.0 * sum(one.prompt_tokens for one in over)
    roles = [pool.role for pool in service.pools for _ in range(pool.service.serving.replicas)]
    for role, replica in zip(roles, done.replicas, strict=True):
        its = replica.ledger.tally
        assert its.steps if its.finished else not its.steps
        assert role != "prefill" or its.finished == its.tokens == 0
        assert role != "both" or its.taken_over == its.handed_on == 0
        assert role != "decode" or its.arrived == 0
    links = defaultdict[str, list[Span]](list)
    for span in done.spans:
        links[span.lane].append(span)
    for lane, spans in links.items():
        if lane.startswith("handover"):
            assert all(now.end_s <= after.start_s for now, after in pairwise(spans))
    assert between.link_s == pytest.approx(
        sum(
            end - begin
            for lane in links
            if lane.startswith("handover")
            for _, begin, end, _ in links[lane]
        )
    )
    parts = [tally.wait, tally.reading, between.room_wait, between.link_wait, between.transfer]
    parts += [between.redraft, tally.joining]
    if "both" not in roles and between.handover.shown_by == "decode":
        total = sum(part.total for part in parts)
        assert done.collector.times["ttft"].total == pytest.approx(total, rel=1e-9)


# ---- the law beside it


QUARTERS = st.integers(1, 24).map(lambda number: number / 4)


@given(
    read_s=QUARTERS,
    transfer_s=st.just(0.0) | QUARTERS,
    step_s=QUARTERS,
    gap_s=QUARTERS,
    replicas=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    count=st.integers(1, 14),
    output=st.integers(2, 6),
    routing=st.sampled_from(["decode_first", "prefill_first"]),
)
@settings(max_examples=500, deadline=None)
def test_equal_requests_are_two_queues_in_tandem(
    read_s: float,
    transfer_s: float,
    step_s: float,
    gap_s: float,
    replicas: tuple[int, int],
    count: int,
    output: int,
    routing: str,
) -> None:
    """First and last token of every request, to 1e-9; nothing in the law is fitted to the run."""
    prefills, decodes = replicas
    finished: list[Request] = []
    done = apart(
        {"prefill": prefills, "decode": decodes},
        Requests(
            arrivals=Deterministic(rate_per_s=1.0 / gap_s),
            count=count,
            prompt_tokens=8,
            output_tokens=output,
        ),
        handover(BYTE_A_SECOND, routing=routing),
        cost=StatedCost(StatedDurations(target_ms=step_s * 1e3, prefill_ms=read_s * 1e3)),
        luggage=Luggage(lambda tokens: transfer_s),
    ).run(on_finished=finished.append)
    in_order = sorted(finished, key=lambda one: one.index)
    law = Tandem(read_s, transfer_s, (output - 1) * step_s, prefills, decodes)
    times = list(law.times(one.arrival_s for one in in_order))
    assert len(times) == count
    for one, shown in zip(in_order, times, strict=True):
        assert (one.first_token_s, one.finished_s) == pytest.approx(shown, rel=1e-9, abs=1e-9)
    assert done.end_s == pytest.approx(max(last_s for _, last_s in times), rel=1e-9)
    assert count / done.end_s <= law.most_per_s * (1.0 + 1e-9) + 1e-9


def test_a_long_run_is_as_fast_as_its_slower_pool() -> None:
    """Read in 2 s and decoded in 3 s: of two and two replicas decoding is the slower, of three and
    two still, of two and four the prefill.
    """
    for prefills, decodes, rate in ((2, 2, 2 / 3), (3, 2, 2 / 3), (2, 4, 1.0)):
        law = Tandem(2.0, 0.0, 3.0, prefills, decodes)
        assert law.most_per_s == pytest.approx(rate)
        *_, (_, last_s) = law.times([0.0] * 4_000)
        assert 4_000 / last_s == pytest.approx(rate, rel=0.01)
        least_s = least_end_s([2.0] * 4_000, [3.0] * 4_000, (prefills, decodes))
        assert least_s <= last_s <= 1.01 * least_s


@given(services())
@settings(max_examples=500, deadline=None)
def test_bounds_hold_whatever_the_pools_do(service: ApartService) -> None:
    """No first token before prefill and transfer alone; no run shorter than the work of a pool, or
    longer than all work in series. A prompt of n tokens takes 5 + n / 2 ms alone and n / 2 ms at
    least beside others, a window at least a row of the target, 1 ms, for its request.
    """
    finished: list[Request] = []
    done = service.run(on_finished=finished.append)
    over = service.handover
    luggage = service.luggage
    assert over is not None
    assert luggage is not None
    tokens = service.strategy.window + 1
    roles = [pool.role for pool in service.pools for _ in range(pool.service.serving.replicas)]
    for one in finished:
        alone_s = (5.0 + one.prompt_tokens / 2.0) * 1e-3
        bound_s = alone_s
        if one.entered_s > one.arrival_s:
            size = luggage.size_bytes(one.prompt_tokens)
            bound_s = over.least_ttft_s(alone_s, size, luggage.layers)
        assert one.first_token_s - one.arrival_s >= bound_s * (1.0 - 1e-9)
    read_s = [one.prompt_tokens * 0.5e-3 for one in finished]
    decode_s = [ceil((one.tokens - 1) / tokens) * 1e-3 for one in finished]
    sizes = (len(roles) - roles.count("decode"), len(roles) - roles.count("prefill"))
    assert done.end_s >= least_end_s(read_s, decode_s, sizes) * (1.0 - 1e-9)
    if not done.tally.preemptions:
        last_s = max(one.arrival_s for one in finished)
        work_s = sum(in_series_s(service, one) for one in finished)
        assert done.end_s <= (last_s + work_s) * (1.0 + 1e-9)


def in_series_s(service: ApartService, request: Request) -> float:
    """The most that a request takes with every token of its prompt in a pass of its own and every
    token of its output in a step: target with 5 or 10 ms and a row each, the draft's 3 ms beside a
    prompt and 2 ms a step, a window of which lies ahead.
    """
    over, luggage = service.handover, service.luggage
    assert over is not None
    assert luggage is not None
    tokens = request.prompt_tokens
    window = service.strategy.window
    read_ms = tokens * (5.0 + 0.5 + 3.0)
    cached_ms = 0.01 * (tokens + request.output_tokens + window)
    step_ms = 10.0 + window + 1 + cached_ms + 2.0 * (window + 1)
    redraft_s = luggage.redraft_s(tokens) if luggage.redraft_s else 0.0
    handed_s = over.seconds(luggage.size_bytes(tokens)) + redraft_s
    return (read_ms + request.output_tokens * step_ms) * 1e-3 + handed_s


@given(services())
@settings(max_examples=50, deadline=None)
def test_a_pool_that_does_both_is_a_fleet_of_replicas(service: ApartService) -> None:
    """Every request is served at the same times as by replicas behind the same router."""
    replicas = service.pools[0].service.serving.replicas
    last = service.pools[-1].service
    serving = last.serving.model_copy(update={"replicas": replicas})
    plain = replace(last, serving=serving)
    whole = replace(service, pools=(ServicePool("both", "both", plain),))
    times = []
    for fleet in (plain, whole):
        finished: list[Request] = []
        done = fleet.run(on_finished=finished.append)
        times.append([(one.index, one.first_token_s, one.finished_s) for one in finished])
        times.append([done.end_s, done.tally.block_area_s, done.tally.ttft.total])
    assert times[:2] == times[2:]


def test_who_is_preempted_where_it_decodes_reads_its_prompt_again_there() -> None:
    """Six blocks of eight tokens: two requests of 16 + 12 tokens, both taken over with three, need
    four each in the end.
    """
    requests = Requests(concurrency=2, count=2, prompt_tokens=16, output_tokens=12)
    finished: list[Request] = []
    done = apart(
        {"prefill": 2, "decode": 1},
        requests,
        decode_policy=PrefillFirst(max_requests=2, watermark=0.0),
        kv_tokens=48,
    ).run(on_finished=finished.append)
    decode = done.replicas[2].ledger.tally
    assert done.tally.preemptions == decode.preemptions == 1
    assert decode.recomputed_rows == decode.prompt_rows > 16
    assert [one.tokens for one in finished] == [12, 12]


# ---- one thing at a time, by hand


def first_and_last(service: ApartService) -> list[tuple[float, float]]:
    """When the first and the last token of each request are shown, in order of arrival."""
    finished: list[Request] = []
    service.run(on_finished=finished.append)
    finished.sort(key=lambda one: one.index)
    return [(one.first_token_s, one.finished_s) for one in finished]


@pytest.mark.parametrize(
    ("overlap", "size", "first_s"),
    [
        ("none", 2.0, 6.0),  # a prefill of four seconds, then two
        ("by_layer", 2.0, 4.5),  # the last of four layers is seen
        ("by_layer", 8.0, 9.0),  # begins with the first layer, after a second
    ],
)
def test_a_transfer_layer_by_layer_hides_behind_the_prefill(
    overlap: str, size: float, first_s: float
) -> None:
    service = apart(
        {"prefill": 1, "decode": 1},
        Requests(concurrency=1, count=1, prompt_tokens=8, output_tokens=3),
        handover(BYTE_A_SECOND, overlap=overlap),
        cost=StatedCost(StatedDurations(target_ms=1000, prefill_ms=4000)),
        luggage=Luggage(lambda tokens: size, layers=4),
    )
    assert first_and_last(service) == [(first_s, first_s + 2.0)]
    over = service.handover
    assert over is not None
    assert over.least_ttft_s(4.0, size, 4) == first_s


@pytest.mark.parametrize(("shared", "second_s"), [(False, 3.0), (True, 5.0)])
def test_a_shared_link_carries_one_request_at_a_time(shared: bool, second_s: float) -> None:
    """Two prefill replicas send to one that decodes both: two seconds each."""
    service = apart(
        {"prefill": 2, "decode": 1},
        TWO,
        handover(BYTE_A_SECOND, shared=shared),
        luggage=Luggage(lambda tokens: 2.0),
        decode_policy=FixedBatch(max_requests=2),
    )
    assert [first_s for first_s, _ in first_and_last(service)] == [3.0, second_s]


@pytest.mark.parametrize(
    ("routing", "begins"), [("decode_first", [0.0, 3.0]), ("prefill_first", [0.0, 1.0])]
)
def test_blocks_to_decode_in_are_found_before_the_prefill_or_behind_it(
    routing: str, begins: list[float]
) -> None:
    """Room for one request where both decode: of the second the prefill waits until the first has
    ended, or its prompt waits, read. Prefill, two steps: it is done after three seconds.
    """
    log: list[Iteration] = []
    done = apart(
        {"prefill": 1, "decode": 1},
        TWO,
        handover(routing=routing),
        decode_policy=FixedBatch(max_requests=2),
        kv_tokens=16,
    ).run(on_iteration=log.append)
    assert [line.start_s for line in log if line.kind == "prefill"] == begins
    waits = {"decode_first": 3.0, "prefill_first": 1.0}
    assert done.between is not None
    assert done.between.room_wait.most == waits[routing]
    assert done.tally.wait.most == {"decode_first": 0.0, "prefill_first": 1.0}[routing]
    assert done.end_s == {"decode_first": 6.0, "prefill_first": 5.0}[routing]


def test_a_draft_reads_a_prompt_again_before_the_first_step() -> None:
    """Read in a second, there at once, read again in half a second by the draft."""
    service = apart(
        {"prefill": 1, "decode": 1},
        Requests(concurrency=1, count=1, prompt_tokens=8, output_tokens=3),
        handover(draft_state="recomputed"),
        luggage=Luggage(lambda tokens: 0.0, redraft_s=lambda tokens: tokens / 16),
    )
    assert first_and_last(service) == [(1.5, 3.5)]


def test_steps_are_plain_until_a_window_is_written() -> None:
    """All of a window of two is kept: three tokens a step, but one each until two are there. Of
    nine tokens the first came with the prompt; plain steps bring 2 and 3, then 6 and 9.
    """
    log: list[Iteration] = []
    apart(
        {"prefill": 1, "decode": 1},
        Requests(concurrency=1, count=1, prompt_tokens=8, output_tokens=9),
        handover(draft_state="absent"),
        strategy=VanillaSD(gamma=2),
        acceptance=Cycle((2,)),
        cost=StatedCost(StatedDurations(target_ms=1000, draft_step_ms=250)),
        plain_tokens=2,
    ).run(on_iteration=log.append)
    steps = [(line.rows, line.tokens, line.duration_s) for line in log if line.kind == "step"]
    assert steps == [((1,), (1,), 1.0), ((1,), (1,), 1.0), ((3,), (3,), 1.5), ((3,), (3,), 1.5)]


def test_the_first_token_may_be_shown_where_the_prompt_was_read() -> None:
    service = apart(
        {"prefill": 1, "decode": 1},
        TWO,
        handover(BYTE_A_SECOND, shown_by="prefill"),
        luggage=Luggage(lambda tokens: 2.0),
    )
    assert first_and_last(service) == [(1.0, 5.0), (2.0, 7.0)]


def test_a_shared_store_has_room_for_the_largest_blocks() -> None:
    """Of 100 bytes, blocks of 10 for who drafts and of 5 for who only reads: 10 in either."""
    room = MemoryTier(
        name="store", link=FREE, room_gb=1e-7, write="through", shared_by_replicas=True
    )
    memory = KVMemory(block_tokens=8, prefix_caching=True, tiers=(room,))
    service = apart({"both": 1, "prefill": 1, "decode": 1}, TWO)
    pools = []
    for pool, block_bytes in zip(service.pools, (10.0, 5.0, 99.0), strict=True):
        caching = memory.model_copy(update={"prefix_caching": pool.role != "decode"})
        serving = pool.service.serving.model_copy(update={"memory": caching})
        own = replace(pool.service, serving=serving, block_bytes=block_bytes, kv_tokens=800)
        pools.append(replace(pool, service=own))
    serving = service.serving.model_copy(update={"memory": memory})
    done = replace(service, pools=tuple(pools), serving=serving).run()
    stores = []
    for replica in done.replicas[:2]:
        assert isinstance(replica.memory, TieredCache)
        stores.append(replica.memory.tiers[0].store)
    assert stores[0] is stores[1]
    assert stores[0].room == 10
    assert not isinstance(done.replicas[2].memory, TieredCache)
