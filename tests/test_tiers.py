"""Tiers of KV memory: complete timelines of tiny worlds, the books whatever comes, and the law."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.device import Link
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.cache.tiers import (
    BlockKey,
    BlockStore,
    MemoryTier,
    TieredCache,
    TierLink,
    crossover_tokens,
    tier_books,
)
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.content import Hash, Prefix
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Arrivals, Request
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Lanes
from simulator.core.world import World
from simulator.report.run.serving import tiers_words
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.outcome import Outcome, outcome_data

BLOCK = 4
BLOCK_BYTES = 4.0
SECOND = StatedDurations.model_validate(
    {"target_ms": 1000, "prefill_ms": {"base_ms": 0, "row_ms": 1000}}
)
"""A token of a prompt takes a second, and so does a step."""
ONE = FixedBatch(max_requests=1)


def tier(
    name: str = "host",
    block_s: float = 1.0,
    start_up_s: float = 0.0,
    write: str = "on_eviction",
    tokens: int | None = None,
) -> MemoryTier:
    """A tier over whose link a block comes in so many seconds."""
    rate = BLOCK_BYTES / block_s / 1e9 if block_s else 1e30
    return MemoryTier.model_validate(
        {
            "name": name,
            "link": Link(latency_us=start_up_s * 1e6, bandwidth_gb_s=rate),
            "write": write,
            "room_tokens": tokens,
        }
    )


def tiered(blocks: int | None, *tiers: MemoryTier, rule: str = "load") -> TieredCache:
    links = [TierLink(one, BlockStore(one.room_blocks(BLOCK, BLOCK_BYTES))) for one in tiers]
    return TieredCache(BLOCK, blocks, None, 0, links, BLOCK_BYTES, rule)  # type: ignore[arg-type]


def asked(index: int, at_s: float, names: str, output: int = 2, piece: int = 16) -> Request:
    """A request whose prompt has so many tokens under each of its names."""
    ends = range(piece, piece * len(names) + 1, piece)
    prefixes = tuple(Prefix(name, end) for name, end in zip(names, ends, strict=True))
    return Request(index, at_s, piece * len(names), output, prefixes=prefixes)


class Served(NamedTuple):
    """Who did what when: begin and end in seconds, kind, requests, tokens of each."""

    log: list[tuple[float, float, str, tuple[int, ...], tuple[int, ...]]]
    scheduler: Scheduler


def serve(
    requests: Sequence[Request],
    memory: PrefixCache,
    policy: Policy = ONE,
    replay: bool = False,
    prefetches: bool = False,
    durations: StatedDurations = SECOND,
) -> Served:
    log: list[Iteration] = []
    scheduler = Scheduler(
        Autoregressive(),
        Cycle((0,)),
        None,
        Arrivals(requests),
        StatedCost(durations),
        policy,
        memory,
        log=log.append,
    )
    if isinstance(memory, TieredCache):
        scheduler.load_from(memory, prefetches)
    if replay:
        scheduler.replay()
    else:
        world = World()
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        world.environment.process(scheduler.run(world, lanes))
        world.environment.run()
    scheduler.check()
    lines = []
    for one in log:
        end_s = one.start_s + one.duration_s
        lines.append((round(one.start_s, 9), round(end_s, 9), one.kind, one.requests, one.rows))
    return Served(lines, scheduler)


BOTH_CLOCKS = pytest.mark.parametrize("replay", [False, True])


@BOTH_CLOCKS
def test_evicted_to_the_host_and_loaded_back(replay: bool) -> None:
    """Room for one request: b sends a to the host, from where three blocks come back, a second
    each; the last one is computed in any case.
    """
    memory = tiered(5, tier())
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "a")]
    assert serve(requests, memory, replay=replay).log == [
        (0, 16, "prefill", (0,), (16,)),
        (16, 17, "step", (0,), (1,)),
        (100, 116, "prefill", (1,), (16,)),
        (116, 117, "step", (1,), (1,)),
        (203, 207, "prefill", (2,), (4,)),
        (207, 208, "step", (2,), (1,)),
    ]
    assert tier_books([memory]) == {
        "host": {
            "hit_tokens": 12,
            "loads": 1,
            "loaded_tokens": 12,
            "loaded_bytes": 12,
            "written_bytes": 32,
            "link_busy_s": 3,
            "kept_tokens": 32,
            "evicted_tokens": 0,
        }
    }
    assert (memory.asked_tokens, memory.hit_tokens, memory.load_s) == (48, 12, 3)
    assert requests[2].first_token_s == 207
    lane = memory.tiers[0].lane
    assert (lane and lane.spans) == (None if replay else [(200, 203, "load")])


@pytest.mark.parametrize(
    ("start_up_s", "begins_s", "tokens"), [(8.5, 211.5, 4), (9.0, 200, 16), (9.5, 200, 16)]
)
@BOTH_CLOCKS
def test_what_is_computed_as_quickly_is_not_loaded(
    start_up_s: float, begins_s: float, tokens: int, replay: bool
) -> None:
    """Three blocks take the device 12 seconds, and the link 3 and its start-up."""
    memory = tiered(5, tier(start_up_s=start_up_s), rule="cheaper")
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "a")]
    *_, prefill, _ = serve(requests, memory, replay=replay).log
    assert prefill == (begins_s, begins_s + tokens, "prefill", (2,), (tokens,))


@pytest.mark.parametrize(("prefetches", "begins_s"), [(False, 323), (True, 320)])
@BOTH_CLOCKS
def test_a_prefetch_overlaps_with_the_queue(
    prefetches: bool, begins_s: float, replay: bool
) -> None:
    """Request 4 finds request 3 in its place until 320; its three blocks come from 316 on, the
    next boundary, or behind it.
    """
    memory = tiered(10, tier())
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "c")]
    requests += [asked(3, 300, "d", output=5), asked(4, 301, "a")]
    log = serve(requests, memory, replay=replay, prefetches=prefetches).log
    assert log[-2:] == [
        (begins_s, begins_s + 4, "prefill", (4,), (4,)),
        (begins_s + 4, begins_s + 5, "step", (4,), (1,)),
    ]
    assert log[-3][1] == 320


@BOTH_CLOCKS
def test_loads_take_their_turns_and_others_go_first(replay: bool) -> None:
    """Requests 3 and 4 load three blocks each over one link, one after the other; request 5 has
    nothing to load and is read meanwhile. Request 4's blocks come during that.
    """
    memory = tiered(15, tier())
    requests = [asked(0, 0, "a"), asked(1, 100, "b")]
    requests += [asked(2, 200, "cde")]
    requests += [asked(3, 300, "a"), asked(4, 300, "b"), asked(5, 300, "x")]
    policy = FixedBatch(max_requests=3)
    log = serve(requests, memory, policy, replay).log
    assert [line[:4] for line in log[6:]] == [
        (300, 316, "prefill", (5,)),
        (316, 324, "prefill", (3, 4)),
        (324, 325, "step", (5, 3, 4)),
    ]
    assert (memory.tiers[0].busy_s, memory.load_s) == (6, 3 + 6)


@BOTH_CLOCKS
def test_as_many_load_as_there_are_places(replay: bool) -> None:
    """Two places, and three requests with three blocks each in the host: the third one's come once
    a place is free.
    """
    memory = tiered(13, tier())
    requests = [asked(index, 100.0 * index, name) for index, name in enumerate("abc")]
    requests += [asked(3, 300, "xyz", piece=16)]
    requests += [asked(index, 400, name) for index, name in enumerate("abc", start=4)]
    log = serve(requests, memory, FixedBatch(max_requests=2), replay).log
    assert [line[:4] for line in log[8:]] == [
        (403, 407, "prefill", (4,)),
        (407, 411, "prefill", (5,)),
        (411, 412, "step", (4, 5)),
        (415, 419, "prefill", (6,)),
        (419, 420, "step", (6,)),
    ]


@BOTH_CLOCKS
def test_what_leaves_the_host_goes_to_the_store(replay: bool) -> None:
    """The host has room for four blocks: c sends b there and a from there to a store, which brings
    a block in two seconds.
    """
    memory = tiered(5, tier(tokens=16), tier("store", block_s=2.0))
    requests = [asked(index, 100.0 * index, name) for index, name in enumerate("abca")]
    assert serve(requests, memory, replay=replay).log[-2:] == [
        (306, 310, "prefill", (3,), (4,)),
        (310, 311, "step", (3,), (1,)),
    ]
    books = tier_books([memory])
    assert (books["host"]["hit_tokens"], books["store"]["hit_tokens"]) == (0, 12)
    assert (books["host"]["written_bytes"], books["store"]["written_bytes"]) == (48, 32)


def via_host(block_s: float) -> MemoryTier:
    """A store from which blocks go to the host first."""
    return tier("store", block_s).model_copy(update={"via_above": True})


@pytest.mark.parametrize(("block_s", "begins_s", "tokens"), [(2, 309, 4), (3.2, 300, 16)])
@BOTH_CLOCKS
def test_two_hops_take_one_link_after_the_other(
    block_s: float, begins_s: float, tokens: int, replay: bool
) -> None:
    """Three blocks take 6 s to the host and 3 s on to the device, and a copy stays; 12 s to be
    computed, which is quicker where the store is slower.
    """
    memory = tiered(5, tier(tokens=16), via_host(block_s), rule="cheaper")
    names = "abca"
    requests = [asked(place, 100 * place, name) for place, name in enumerate(names)]
    *_, prefill, _ = serve(requests, memory, replay=replay).log
    assert prefill == (begins_s, begins_s + tokens, "prefill", (3,), (tokens,))
    host, store = (link.loaded_blocks for link in memory.tiers)
    assert (host, store) == ((3, 3) if tokens == 4 else (0, 0))
    assert (("a", 0) in memory.tiers[0].store.blocks) == (tokens == 4)


def test_a_link_is_free_until_a_second_hop_begins() -> None:
    """Of request 3 two blocks are in the host and one is in the store, from where it takes ten
    seconds to the host; request 4 takes the host's link meanwhile, for three.
    """
    memory = tiered(15, tier(tokens=16), via_host(10.0))
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "cde")]
    requests += [asked(3, 300, "a"), asked(4, 300, "b")]
    log = serve(requests, memory, FixedBatch(max_requests=2)).log
    host, store = (link.lane.spans for link in memory.tiers if link.lane)
    assert store == [(300, 310, "load")]
    assert host == [(300, 302, "load"), (302, 305, "load"), (310, 311, "load")]
    assert log[6:] == [
        (305, 309, "prefill", (4,), (4,)),
        (309, 310, "step", (4,), (1,)),
        (311, 315, "prefill", (3,), (4,)),
        (315, 316, "step", (3,), (1,)),
    ]


@BOTH_CLOCKS
def test_written_through_is_there_before_it_is_evicted(replay: bool) -> None:
    """Every block goes to the host once, as it is filled, and is not written again."""
    memory = tiered(5, tier(write="through"))
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "a")]
    assert serve(requests, memory, replay=replay).log[-2][:2] == (203, 207)
    books = tier_books([memory])["host"]
    assert (books["written_bytes"], books["kept_tokens"]) == (32, 32)


def test_a_request_that_leaves_while_it_waits_for_blocks() -> None:
    memory = tiered(5, tier())
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "a"), asked(3, 201, "x")]
    scheduler = Scheduler(
        Autoregressive(), Cycle((0,)), None, Arrivals(requests), StatedCost(SECOND), ONE, memory
    )
    scheduler.load_from(memory)
    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    environment = world.environment
    environment.process(scheduler.run(world, lanes))
    environment.run(until=202)
    assert scheduler.queues.loading == [requests[2]]
    scheduler.cancel(requests[2], 202)
    environment.run()
    scheduler.check()
    assert (requests[2].tokens, requests[3].first_token_s) == (0, 218)


# ---- the books, whatever comes


class Watched(TieredCache):
    """Remembers every block that was ever on the device."""

    __slots__ = ("seen",)

    def __init__(self, blocks: int | None, tiers: Sequence[MemoryTier], rule: str) -> None:
        links = [TierLink(one, BlockStore(one.room_blocks(BLOCK, BLOCK_BYTES))) for one in tiers]
        super().__init__(BLOCK, blocks, None, 0, links, BLOCK_BYTES, rule)  # type: ignore[arg-type]
        self.seen = set[BlockKey]()

    def _filled(self, name: Hash, begin: int, end: int) -> None:
        self.seen.update((name, block) for block in range(begin, end))
        super()._filled(name, begin, end)

    def on_device(self) -> set[BlockKey]:
        return {(name, at) for name, run in self.runs.items() for at in range(run.begin, run.end)}


@st.composite
def families(draw: st.DrawFn) -> list[Request]:
    """Requests whose prompts begin alike, close to each other or far apart."""
    requests = []
    at_s = 0.0
    for index in range(draw(st.integers(1, 12))):
        at_s += draw(st.sampled_from([0.0, 1.0, 7.0, 100.0]))
        names = draw(st.sampled_from(["a", "ab", "abc", "abd", "e", "ef", "g"]))
        request = asked(index, at_s, names, draw(st.integers(2, 9)), piece=8)
        request.prompt_tokens += draw(st.sampled_from([0, 0, 1, 3]))
        requests.append(request)
    return requests


def again(requests: Sequence[Request]) -> list[Request]:
    return [
        Request(
            one.index, one.arrival_s, one.prompt_tokens, one.output_tokens, prefixes=one.prefixes
        )
        for one in requests
    ]


POLICIES: list[Policy] = [
    ONE,
    FixedBatch(max_requests=3),
    PrefillFirst(name="prefill_first", max_requests=4, watermark=0.0),
    ChunkedPrefill(name="chunked_prefill", max_requests=4, chunk_tokens=6, watermark=0.0),
    UnifiedBudget(name="unified_budget", max_requests=4, budget_tokens=9),
]


@settings(max_examples=300)
@given(
    families(),
    st.sampled_from(POLICIES),
    st.integers(10, 30),
    st.lists(
        st.tuples(
            st.sampled_from(["through", "on_eviction"]),
            st.sampled_from([None, 4, 20, 60]),
            st.sampled_from([0.0, 0.5, 3.0]),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["load", "cheaper", "recompute"]),
    st.booleans(),
)
def test_every_block_is_where_it_should_be(
    requests: list[Request],
    policy: Policy,
    blocks: int,
    kinds: list[tuple[str, int | None, float, bool]],
    rule: str,
    prefetches: bool,
) -> None:
    tiers = []
    for place, (write, tokens, block_s, above) in enumerate(kinds):
        below = tier(f"tier {place}", block_s, 0.25, write, tokens)
        tiers.append(below.model_copy(update={"via_above": above and place > 0}))
    memory = Watched(blocks, tiers, rule)
    served = serve(requests, memory, policy, prefetches=prefetches)
    replayed = serve(again(requests), Watched(blocks, tiers, rule), policy, True, prefetches)
    assert served.log == replayed.log
    device = memory.on_device()
    assert device <= memory.seen
    for place, link in enumerate(memory.tiers):
        there = set(link.store.blocks)
        assert there <= memory.seen
        assert len(there) <= link.store.room
        assert link.written_blocks == len(there) + link.store.evicted
        if link.store.room == inf and link.tier.write == "through":
            assert there == memory.seen
        if link.store.room == inf and link.tier.write == "on_eviction" and not place:
            assert there | device == memory.seen
        seconds = link.loads * 0.25 + link.loaded_blocks * kinds[place][2]
        assert link.busy_s == pytest.approx(seconds, rel=1e-9)
        assert rule != "recompute" or not link.loads
    by_tier = sum(link.hit_tokens for link in memory.tiers)
    assert 0 <= by_tier <= memory.hit_tokens
    assert memory.asked_tokens == sum(request.prompt_tokens for request in requests)
    tally = served.scheduler.ledger.tally
    if not served.scheduler.queues.preemptions:
        assert memory.asked_tokens == tally.prompt_rows + memory.hit_tokens
    assert not memory.loaded
    assert [one.tokens for one in requests] == [one.output_tokens for one in requests]


@given(
    families(),
    st.sampled_from(["through", "on_eviction"]),
    st.integers(10, 30),
    st.booleans(),
    st.integers(0, 1),
)
def test_a_host_without_an_end_is_a_device_without_one(
    requests: list[Request], write: str, blocks: int, prefetches: bool, dropped: int
) -> None:
    """With a link that takes no time, as many tokens are computed, whatever a draft drops."""
    memory = tiered(blocks, tier(block_s=0.0, write=write))
    whole = PrefixCache(BLOCK)
    memory.dropped = whole.dropped = dropped
    few = serve(requests, memory, prefetches=prefetches)
    all_there = serve(again(requests), whole)
    assert few.log == all_there.log
    assert memory.hit_tokens == whole.hit_tokens


@given(
    st.integers(1, 12),
    st.floats(0.1, 10.0),
    st.floats(0.05, 0.95),
)
def test_law_of_the_crossover(pieces: int, token_s: float, share: float) -> None:
    """A prompt of n tokens and a block, n of them in the host: at n = n* it takes as long to load
    as to compute; a block more is loaded more quickly, a block less is not.
    """
    tokens = pieces * BLOCK
    byte_s = share * token_s
    start_up_s = tokens * (token_s - byte_s)
    crossover = crossover_tokens(start_up_s, 1.0 / byte_s, BLOCK_BYTES / BLOCK, token_s)
    assert crossover == pytest.approx(tokens, rel=1e-9)
    durations = StatedDurations.model_validate(
        {"target_ms": 1000, "prefill_ms": {"base_ms": 0, "row_ms": token_s * 1e3}}
    )

    def first_token_s(blocks: int, rule: str) -> float:
        memory = tiered(blocks + 2, tier(block_s=BLOCK * byte_s, start_up_s=start_up_s), rule=rule)
        piece = (blocks + 1) * BLOCK
        requests = [asked(index, 1e4 * index, name, 2, piece) for index, name in enumerate("aba")]
        serve(requests, memory, durations=durations)
        return requests[2].first_token_s - requests[2].arrival_s

    loaded_s, computed_s = (first_token_s(pieces, rule) for rule in ("load", "recompute"))
    assert loaded_s == pytest.approx(computed_s, rel=1e-9)
    assert first_token_s(pieces + 1, "load") < first_token_s(pieces + 1, "recompute")
    if pieces > 1:
        assert first_token_s(pieces - 1, "load") > first_token_s(pieces - 1, "recompute")
        fewer = pieces - 1
        assert first_token_s(fewer, "cheaper") == first_token_s(fewer, "recompute")


def test_a_link_slower_than_the_device_never_pays() -> None:
    assert crossover_tokens(1.0, 1.0, 2.0, 2.0) == inf
    assert crossover_tokens(1.0, 1.0, 2.0, 4.0) == 0.5


def test_a_tier_without_room_is_none() -> None:
    stated = {"link": {"latency_us": 0, "bandwidth_gb_s": 1}, "name": "host"}
    for room in ({"room_gb": 0}, {"room_tokens": 0}, {"room_tokens": 15}, {"room_gb": 1e-9}):
        memory = KVMemory.model_validate({"prefix_caching": True, "tiers": [stated | room]})
        assert type(memory.pool(160, block_bytes=2.0)) is PrefixCache
    memory = KVMemory.model_validate(
        {"prefix_caching": True, "tiers": [stated | {"room_gb": 4e-9}]}
    )
    pool = memory.pool(160, block_bytes=2.0)
    assert isinstance(pool, TieredCache)
    assert pool.tiers[0].store.room == 2


# ---- in a scenario

AGENTS = "tiers_agents_eagle3_qwen3_30b_a3b_h200"
FEW = ["requests.count=40", "serving.memory.kv_tokens=65536"]


def test_a_scenario_whose_tier_has_no_room_has_none() -> None:
    one = ["serving.memory.tiers=[{name: host, room_gb: 0, link: pcie_5_x16}]"]
    without, none = (simulated(FEW + tiers) for tiers in (["serving.memory.tiers=[]"], one))
    assert outcome_data(without) == outcome_data(none)
    assert "tiers" not in without.serving.prefix_cache


def test_a_scenario_with_tiers_has_their_books() -> None:
    """98,304 bytes a token of the target and 2,048 of the head."""
    outcome = simulated(FEW)
    host, store = outcome.serving.tiers.values()
    assert host["loaded_bytes"] == host["loaded_tokens"] * 100_352
    assert host["hit_tokens"] > 0
    assert store["written_bytes"] == host["evicted_tokens"] * 100_352
    data = outcome_data(outcome)["serving"]["prefix_cache"]
    assert data["tiers"] == outcome.serving.tiers
    assert data["load_wait_s"] == outcome.serving.load_wait_s
    line = tiers_words(outcome.serving)
    assert line.startswith("host ")
    assert "; store " in line


def simulated(overrides: list[str]) -> Outcome:
    loaded = load(AGENTS, overrides)
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    return outcome
