"""Prefix caching: who finds which blocks, what is evicted, held against counts and a second, naive
cache.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.content import Hash, Prefix, hashed_prefixes
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Arrivals, Request
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies import Strategy
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import Loaded, load, resolved
from simulator.scenario.cache_cost import TokenTimes, cache_cost
from simulator.scenario.evaluate import NO_DRAFTS, plain, simulate
from simulator.scenario.outcome import Outcome, outcome_data
from simulator.scenario.stability import load_of
from simulator.studies.plan.bounds import holds_for
from simulator.studies.plan.export import exports

TRACES = Path(__file__).parents[2] / "shared/data/mooncake_fast25"
needs_data = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the data files are not part of the repository"
)
NAMES = ("conversation_trace", "synthetic_trace")
BLOCK, PIECE = 16, 512
Key = tuple[Hash, int]
"""A name and the place of a block under it."""
ON = "serving.memory.prefix_caching=true"
EIGHTH = {
    "target_ms": 10,
    "draft_ms": 4,
    "prefill_ms": {"base_ms": 0, "row_ms": 0.125},
    "draft_prefill_ms": {"base_ms": 0, "row_ms": 0.25},
}
"""A token of a prompt takes the target an eighth of a millisecond and the draft a quarter; a pass
takes 10 ms, a window 4.
"""


def asked(index: int, at: float, prompt: int, hashes: Sequence[int], output: int = 2) -> Request:
    return Request(index, at, prompt, output, prefixes=hashed_prefixes(hashes, prompt))


def named(request: Request, blocks: int, outputs: bool = False) -> list[Key]:
    """The names of the first ``blocks`` of a request, block by block, as far as it has names; with
    ``outputs`` also of its output.
    """
    prefixes = list(request.prefixes)
    if outputs:
        prefixes.append(Prefix(f"output of request {request.index}"))
    keys: list[Key] = []
    for name, tokens in prefixes:
        end = int(min(tokens, blocks * BLOCK)) // BLOCK
        keys += [(name, block) for block in range(len(keys), end)]
    return keys


def timeline(
    requests: Sequence[Request],
    memory: Blocks,
    policy: Policy,
    strategy: Strategy | None = None,
    replay: bool = False,
) -> list[Iteration]:
    log: list[Iteration] = []
    strategy = strategy or Autoregressive()
    cost = StatedCost(StatedDurations.model_validate(EIGHTH), max(1, strategy.window))
    one = Scheduler(
        strategy, Cycle((1,)), None, Arrivals(requests), cost, policy, memory, log=log.append
    )
    if replay:
        one.replay()
    else:
        world = World()
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        world.environment.process(one.run(world, lanes))
        world.environment.run()
    one.check()
    return log


def in_ms(log: Sequence[Iteration]) -> list[tuple[object, ...]]:
    return [
        (
            round(one.start_s * 1e3, 6),
            round(one.duration_s * 1e3, 6),
            one.kind,
            one.requests,
            one.rows,
            one.kv_tokens,
        )
        for one in log
    ]


# ---- tiny worlds


FIVE = [(1024, "ab"), (1024, "ac"), (1024, "ab"), (600, "de"), (1024, "ab")]
"""Prompts and the names of their prefixes, a second apart."""


@pytest.mark.parametrize("replay", [False, True])
def test_five_requests_in_room_for_three_pieces(replay: bool) -> None:
    """97 blocks: a, b and c stay; d with its rest e evicts c, which was let go first, and the last
    five of b; these evict e, not d, when the last request needs them again.
    """
    requests = [
        asked(index, index, prompt, [ord(name) for name in names])
        for index, (prompt, names) in enumerate(FIVE)
    ]
    memory = PrefixCache(BLOCK, 97)
    log = timeline(requests, memory, FixedBatch(max_requests=1), replay=replay)
    assert in_ms(log) == [
        (0, 128, "prefill", (0,), (1024,), 65 * 16),
        (128, 10, "step", (0,), (1,), 65 * 16),
        (1000, 64, "prefill", (1,), (512,), 65 * 16),  # a is there
        (1064, 10, "step", (1,), (1,), 65 * 16),
        # all is there; the last block is computed again
        (
            2000,
            2,
            "prefill",
            (2,),
            (16,),
            65 * 16,
        ),
        (2002, 10, "step", (2,), (1,), 65 * 16),
        (3000, 75, "prefill", (3,), (600,), 38 * 16),
        (3075, 10, "step", (3,), (1,), 38 * 16),
        (4000, 10, "prefill", (4,), (80,), 65 * 16),  # a is there, and 27 blocks of b
        (4010, 10, "step", (4,), (1,), 65 * 16),
    ]
    assert (memory.asked_tokens, memory.hit_tokens) == (4 * 1024 + 600, 512 + 1008 + 944)
    assert memory.evicted == 32 + 5 + 5
    assert list(memory.idle.values()) == [(ord("d"), 0, 32), (ord("b"), 32, 64), (ord("a"), 0, 32)]
    assert (memory.used, memory.idle_blocks, memory.most_used) == (0, 96, 65)


@pytest.mark.parametrize("replay", [False, True])
def test_requests_of_one_pass_share_for_target_and_draft(replay: bool) -> None:
    """The draft reads 1,024 + 512 tokens in 384 ms and not 2,048 in 512; a second later it has to
    read 16 of each.
    """
    requests = [asked(index, index // 2, 1024, [0, 1 + index % 2]) for index in range(4)]
    memory = PrefixCache(BLOCK)
    policy = PrefillFirst(name="prefill_first")
    log = timeline(requests, memory, policy, VanillaSD(gamma=1), replay)
    assert in_ms(log) == [
        (0, 384, "prefill", (0, 1), (1024, 512), 96 * 16),
        (384, 14, "step", (0, 1), (2, 2), 98 * 16),
        (1000, 8, "prefill", (2, 3), (16, 16), 96 * 16),
        (1008, 14, "step", (2, 3), (2, 2), 98 * 16),
    ]
    without = timeline(
        [asked(index, 0, 1024, [0, 1 + index]) for index in range(2)],
        Blocks(BLOCK),
        policy,
        VanillaSD(gamma=1),
    )
    assert in_ms(without)[0] == (0, 512, "prefill", (0, 1), (1024, 1024), 128 * 16)


def test_attention_reads_what_the_cache_has() -> None:
    """1,024 new tokens alone, then as many behind 512 that are there: an eighth of a millisecond
    for each of these.
    """
    cost = StatedDurations.model_validate(
        {"target_ms": 10, "prefill_ms": {"base_ms": 0, "row_ms": 0, "cached_token_ms": 0.125}}
    )
    log: list[Iteration] = []
    requests = [asked(0, 0, 1024, [0, 1]), asked(1, 1, 1536, [0, 2, 3])]
    one = Scheduler(
        Autoregressive(),
        Cycle((0,)),
        None,
        Arrivals(requests),
        StatedCost(cost),
        FixedBatch(max_requests=1),
        PrefixCache(BLOCK),
        log.append,
    )
    one.replay()
    assert [
        (entry.rows, round(entry.duration_s * 1e3, 6)) for entry in log if entry.kind == "prefill"
    ] == [
        ((1024,), 0),
        ((1024,), 64),
    ]


def test_the_next_turn_finds_the_output_before_it() -> None:
    """40 tokens and 24 more, all but the last of which are written: 63, three blocks of 16."""
    cache = PrefixCache(16, 20)
    first = Request(0, 0, 40, 24, prefixes=(Prefix("conversation"),))
    assert cache.hold(first, 64)
    first.cached = 63
    cache.share(first, 40)
    cache.keep(first, 0)
    assert cache.cached(Request(1, 0, 100, 2, prefixes=(Prefix("conversation"),))) == 48
    assert cache.cached(Request(2, 0, 40, 2, prefixes=(Prefix("conversation"),))) == 32


def test_a_copy_of_what_somebody_left_counts_once() -> None:
    """Two requests compute the same block; the first leaves before the second shares its copy."""
    cache = PrefixCache(16, 20)
    first, second = (Request(index, 0, 16, 2, prefixes=(Prefix("same"),)) for index in range(2))
    assert cache.hold(first, 16)
    assert cache.hold(second, 16)
    first.cached = second.cached = 16
    cache.keep(first, 0)
    assert (cache.used, cache.idle_blocks) == (1, 1)
    cache.share(second, 16)
    assert (cache.used, cache.idle_blocks) == (1, 0)
    cache.keep(second, 0)
    assert (cache.used, cache.idle_blocks) == (0, 1)


def test_a_preempted_request_finds_its_prompt_again() -> None:
    """Room for 68 blocks: after 32 steps the first needs a 35th, which is the last of the second,
    whose prompt and 16 tokens of its output are there when it comes again.
    """
    requests = [asked(0, 0, 512, [0], output=40), asked(1, 0, 512, [1], output=40)]
    memory = PrefixCache(BLOCK, 68)
    done = [
        iteration
        for iteration in timeline(
            requests, memory, PrefillFirst(name="prefill_first", watermark=0.0)
        )
        if iteration.kind == "prefill"
    ]
    assert [(iteration.requests, iteration.rows) for iteration in done] == [
        ((0, 1), (512, 512)),
        ((1,), (17,)),
    ]
    # what a preemption saves is no hit; the first leaves 34 blocks, the second comes with 35
    assert (memory.hit_tokens, memory.evicted) == (0, 2)
    assert requests[1].preemptions == 1


def test_a_prompt_in_chunks_is_there_chunk_by_chunk() -> None:
    """Two pieces in passes of 512: when the second request comes, the first has only one of them in
    the cache.
    """
    requests = [asked(0, 0, 1536, [0, 1, 2]), asked(1, 0.1, 1024, [0, 1])]
    log = timeline(
        requests, PrefixCache(BLOCK), UnifiedBudget(name="unified_budget", budget_tokens=512)
    )
    assert [(iteration.requests, iteration.rows) for iteration in log[:4]] == [
        ((0,), (512,)),
        ((0,), (512,)),
        ((0,), (512,)),
        ((0, 1), (1, 16)),
    ]


# ---- the books, whatever comes


@st.composite
def families(draw: st.DrawFn) -> list[Request]:
    """Requests whose prompts branch off each other, with rests of any length, close to each other
    or far apart.
    """
    requests: list[Request] = []
    prompts: list[tuple[int, list[int]]] = []
    names = iter(range(10_000))
    for index in range(draw(st.integers(1, 9))):
        whole, rest = draw(st.integers(0, 4)), draw(st.sampled_from([0, 1, 15, 16, 100, 511]))
        begin: list[int] = []
        if prompts and draw(st.booleans()):
            tokens, listed = draw(st.sampled_from(prompts))
            if draw(st.booleans()):
                begin, whole, rest = listed, tokens // PIECE, tokens % PIECE
            else:
                begin = listed[: min(draw(st.integers(0, len(listed))), tokens // PIECE, whole)]
        prompt = max(1, whole * PIECE + rest)
        hashes = [*begin, *(next(names) for _ in range(-(-prompt // PIECE) - len(begin)))]
        prompts.append((prompt, hashes))
        gap = draw(st.sampled_from([0.0, 0.01, 0.05, 10.0]))
        at = (requests[-1].arrival_s if requests else 0.0) + gap
        requests.append(asked(index, at, prompt, hashes, draw(st.integers(2, 40))))
    return requests


LONGEST = 4 * PIECE + 511 + 40
POLICIES: list[Policy] = [
    FixedBatch(max_requests=3),
    PrefillFirst(name="prefill_first", max_requests=4, watermark=0.0),
    ChunkedPrefill(name="chunked_prefill", max_requests=4, chunk_tokens=300, watermark=0.0),
    UnifiedBudget(name="unified_budget", max_requests=4, budget_tokens=700),
]


class Watched(PrefixCache):
    """Checks its books after every move."""

    __slots__ = ("before", "shared_by", "together")

    def __init__(self, requests: Sequence[Request], total: int | None) -> None:
        super().__init__(BLOCK, total)
        self.together = requests
        self.before: dict[Key, Key | None] = {}
        """The block before each block, by name and place."""
        self.shared_by: dict[int, list[Key]] = {}
        """The names of all blocks of each request."""
        for request in requests:
            keys = named(request, LONGEST // BLOCK + 1, self.total < inf)
            self.before |= zip(keys, [None, *keys], strict=False)
            self.shared_by[request.index] = keys

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        given = super().hold(request, tokens, spare)
        self.check()
        return given

    def keep(self, request: Request, tokens: int) -> None:
        super().keep(request, tokens)
        self.check()

    def share(self, request: Request, tokens: int) -> None:
        super().share(request, tokens)
        self.check()

    def check(self) -> None:
        own = 0
        in_use: set[Key] = set()
        for request in self.together:
            shared = self.shared_by[request.index][: request.shared]
            own += request.blocks - len(shared)
            in_use |= set(shared)
        idle = waiting_blocks(self)
        kept = kept_blocks(self)
        assert len(set(idle)) == len(idle) == self.idle_blocks
        assert not in_use & set(idle)
        assert set(kept) == in_use | set(idle)
        assert self.used == own + len(in_use)
        assert self.used + self.idle_blocks <= self.total
        assert {self.before[key] for key in kept} <= {None, *kept}


def kept_blocks(memory: PrefixCache) -> list[Key]:
    """All blocks that a cache has."""
    return [
        (name, place) for name, run in memory.runs.items() for place in range(run.begin, run.end)
    ]


def waiting_blocks(memory: PrefixCache) -> list[Key]:
    """All blocks that nobody has, in the order in which they make way."""
    return [
        (stretch.name, place)
        for stretch in memory.idle.values()
        for place in reversed(range(stretch.begin, stretch.end))
    ]


@settings(deadline=None)
@given(
    families(),
    st.sampled_from(POLICIES),
    st.sampled_from([Autoregressive(), VanillaSD(gamma=3), MirrorSD(gamma=3)]),
    st.one_of(st.none(), st.integers(0, 200)),
)
def test_no_block_is_lost_and_none_is_there_without_the_one_before(
    requests: list[Request], policy: Policy, strategy: Strategy, spare: int | None
) -> None:
    total = None if spare is None else -(-(LONGEST + strategy.needs.cache_tokens) // BLOCK) + spare
    memory = Watched(requests, total)
    log = timeline(requests, memory, policy, strategy)
    rows = [0] * len(requests)
    for iteration in log:
        decoding = (
            len(iteration.requests) - len(iteration.rows) if iteration.kind == "prefill" else 0
        )
        assert not decoding
        if iteration.kind == "prefill":
            for index, count in zip(iteration.requests, iteration.rows, strict=True):
                rows[index] += count
    assert memory.asked_tokens == sum(request.prompt_tokens for request in requests)
    assert 0 <= memory.hit_tokens < memory.asked_tokens
    assert all(request.tokens == request.output_tokens for request in requests)
    if total is None and policy.name in ("fixed_batch", "prefill_first"):
        assert sum(rows) == memory.asked_tokens - memory.hit_tokens
        prompts = [(hashes_of(request), request.prompt_tokens) for request in requests]
        assert memory.hit_tokens == counted(prompts)[3]


def counted(requests: Iterable[tuple[Sequence[Hash], int]]) -> tuple[int, int, int, int]:
    """Pieces and tokens of prompts, of each those that were there before, by counting hashes
    alone.
    """
    seen: set[object] = set()
    pieces = there = tokens = hit = 0
    for hashes, prompt in requests:
        met = sum(name in seen for name in hashes)
        pieces += len(hashes)
        there += met
        tokens += prompt
        hit += min(met * PIECE, (prompt - 1) // BLOCK * BLOCK)
        seen.update(hashes)
    return pieces, there, tokens, hit


def hashes_of(request: Request) -> list[Hash]:
    return [prefix.name for prefix in request.prefixes]


@settings(deadline=None)
@given(families(), st.sampled_from(POLICIES), st.integers(0, 200))
def test_where_nothing_is_alike_caching_changes_nothing(
    requests: list[Request], policy: Policy, spare: int
) -> None:
    """Blocks that stay must never keep a running request from its room."""
    total = -(-LONGEST // BLOCK) + spare
    alone = [
        asked(
            request.index,
            request.arrival_s,
            request.prompt_tokens,
            [100 * request.index + place for place in range(len(request.prefixes))],
            request.output_tokens,
        )
        for request in requests
    ]
    plain = timeline(
        [
            asked(
                request.index,
                request.arrival_s,
                request.prompt_tokens,
                hashes_of(request),
                request.output_tokens,
            )
            for request in alone
        ],
        Blocks(BLOCK, total),
        policy,
    )
    cached = timeline(alone, PrefixCache(BLOCK, total), policy)
    if not any(request.preemptions for request in alone):
        assert cached == plain
    else:
        assert [outcome.tokens for outcome in alone] == [request.output_tokens for request in alone]


# ---- LRU against a naive cache


class NaiveLRU:
    """A queue of blocks by name and place, the least recently used first; nothing else is
    remembered.
    """

    def __init__(self, total: float) -> None:
        self.total = total
        self.recent = OrderedDict[Key, None]()
        self.evicted = 0

    def serve(self, request: Request, held: int, written: int) -> int:
        """Serve a request alone, which holds so many blocks in all and writes so many tokens;
        return its tokens that were there.
        """
        there = 0
        prompt = named(request, request.prompt_tokens // BLOCK)
        while there < len(prompt) and prompt[there] in self.recent:
            del self.recent[prompt[there]]
            there += 1
        while len(self.recent) + held > self.total:
            self.recent.popitem(last=False)
            self.evicted += 1
        for key in reversed(named(request, written // BLOCK, True)):
            self.recent[key] = None
        return min(there, (request.prompt_tokens - 1) // BLOCK) * BLOCK


def one_by_one(requests: Sequence[Request], total: float) -> tuple[list[int], PrefixCache]:
    """The tokens that each request finds where one is served at a time."""
    memory, found = PrefixCache(BLOCK, None if total == inf else int(total)), list[int]()
    for request in requests:
        request.cached = memory.cached(request)
        assert memory.hold(request, request.prompt_tokens + request.output_tokens)
        found.append(request.cached)
        request.cached = request.prompt_tokens
        memory.keep(request, 0)
    return found, memory


@given(families(), st.integers(0, 400))
def test_it_evicts_as_a_naive_lru_does(requests: list[Request], spare: int) -> None:
    total = -(-LONGEST // BLOCK) + spare
    found, memory = one_by_one(requests, total)
    naive = NaiveLRU(total)
    again = [
        naive.serve(
            request,
            -(-(request.prompt_tokens + request.output_tokens) // BLOCK),
            request.prompt_tokens,
        )
        for request in requests
    ]
    assert (found, memory.evicted) == (again, naive.evicted)
    assert waiting_blocks(memory) == list(naive.recent)


@given(families(), st.integers(0, 300), st.integers(0, 300))
def test_more_memory_holds_all_that_less_does(
    requests: list[Request], spare: int, more: int
) -> None:
    """Inclusion: LRU keeps the most recent blocks, so that a smaller cache is a part of a larger
    one, and hits no more.
    """
    total = -(-LONGEST // BLOCK) + spare
    small, less = one_by_one(requests, total)
    for request in requests:
        request.slots = 0
    large, full = one_by_one(requests, total + more)
    assert all(one <= other for one, other in zip(small, large, strict=True))
    assert set(kept_blocks(less)) <= set(kept_blocks(full))
    assert less.evicted >= full.evicted


# ---- the Mooncake traces


def served(name: str, *changes: str) -> tuple[Loaded, Outcome, list[Iteration]]:
    """A trace on stated durations, where sixteen tokens come out of every step."""
    log: list[Iteration] = []
    traffic = (
        f"requests={{arrivals: {{name: file, format: mooncake, file: {TRACES / name}.jsonl}}}}"
    )
    quick = [
        "strategy={name: vanilla_sd, gamma: 15}",
        "acceptance={always: 15}",
        "durations={target_ms: 1, draft_ms: 1}",
    ]
    loaded = load("durations_only", [*quick, traffic, ON, *changes])
    outcome, _ = simulate(loaded.scenario, loaded.acceptance(), log=log.append)
    return loaded, outcome, log


@pytest.mark.full
@needs_data
@pytest.mark.parametrize(
    "policy",
    [
        "prefill_first, batch_tokens: 200000",
        "chunked_prefill, chunk_tokens: 8192",
        "unified_budget, budget_tokens: 8192",
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_an_infinite_cache_hits_what_a_count_of_hashes_says(name: str, policy: str) -> None:
    loaded, outcome, _ = served(name, f"serving.policy={{name: {policy}}}")
    pieces, there, tokens, hit = counted(
        (line.hashes, line.prompt_tokens) for line in loaded.scenario.requests.lines()
    )
    hits = outcome.serving.prefix_cache
    assert (hits["prompt_tokens"], hits["hit_tokens"], hits["evicted_tokens"]) == (tokens, hit, 0)
    assert hits["hit_rate"] == hit / tokens
    expected = {"conversation_trace": (288_500, 105_710), "synthetic_trace": (121_877, 77_953)}[
        name
    ]
    assert (pieces, there) == expected


@pytest.mark.full
@needs_data
@pytest.mark.parametrize("kv_tokens", [300_000, 3_000_000])
@pytest.mark.parametrize("name", NAMES)
def test_a_finite_cache_follows_lru_on_the_traces(name: str, kv_tokens: int) -> None:
    """One place: request by request, the simulation prefills what a naive LRU list has not got."""
    loaded, outcome, log = served(
        name,
        "serving.policy={name: fixed_batch, max_requests: 1}",
        f"serving.memory.kv_tokens={kv_tokens}",
    )
    naive, ahead = NaiveLRU(kv_tokens // BLOCK), 16
    expected = []
    for line in loaded.scenario.requests.lines():
        held = -(-(line.prompt_tokens + line.output_tokens + ahead - 2) // BLOCK)
        request = asked(line.number, 0, line.prompt_tokens, line.hashes)
        written = line.prompt_tokens + line.output_tokens - 1
        expected.append(line.prompt_tokens - naive.serve(request, held, written))
    assert [iteration.rows[0] for iteration in log if iteration.kind == "prefill"] == expected
    hits = outcome.serving.prefix_cache
    assert hits["prompt_tokens"] - hits["hit_tokens"] == sum(expected)
    assert hits["evicted_tokens"] == naive.evicted * BLOCK > 0


# ---- what is asked and told


def line(at: float, prompt: int, hashes: object, output: int = 3) -> str:
    return (
        json.dumps(
            {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": hashes}
        )
        + "\n"
    )


def traffic(folder: Path, text: str, form: str = "mooncake") -> str:
    path = folder / f"t.{form}"
    path.write_text(text)
    return f"requests={{arrivals: {{name: file, format: {form}, file: {path}}}}}"


PLACES = "serving.policy={name: prefill_first}"
PLAIN = [
    "strategy=autoregressive",
    "durations={target_ms: 10, prefill_ms: {base_ms: 0, row_ms: 0.125}}",
    "acceptance={rate: 0.5}",
    PLACES,
]
GOOD = line(0, 600, [1, 2])


@pytest.mark.parametrize(
    ("text", "form", "reason"),
    [
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 3}\n',
            "mooncake",
            ":1:1: hash_ids: prefix caching needs 1, ",
        ),
        (GOOD + line(1, 600, []), "mooncake", ":2:1: hash_ids: prefix caching needs"),
        (GOOD + line(1, 600, 7), "mooncake", ":2:1: hash_ids: prefix caching needs"),
        (
            GOOD + line(1, 1025, [1, 3]),
            "mooncake",
            ":2:1: hash_ids: prefix caching needs 3, one for every 512 of 1,025",
        ),
        (
            GOOD + line(1, 600, [1, 2.5]),
            "mooncake",
            ":2:1: hash_ids: expected whole numbers or texts, got 2.5",
        ),
        (
            GOOD + line(1, 600, [[1], 2]),
            "mooncake",
            ":2:1: hash_ids: expected whole numbers or texts, got [1]",
        ),
        (
            GOOD + line(1, 601, [1, 2]),
            "mooncake",
            ":2:1: hash_ids: 2 named another prefix further up",
        ),
        (
            GOOD + line(1, 1024, [2, 1]),
            "mooncake",
            ":2:1: hash_ids: 2 named another prefix further up",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens\n0,9,3\n",
            "csv",
            ":2:1: hash_ids: prefix caching needs",
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n",
            "azure",
            ":2:1: hash_ids: prefix",
        ),
    ],
)
def test_a_trace_without_usable_hashes_is_refused_at_its_line(
    tmp_path: Path, text: str, form: str, reason: str
) -> None:
    changes = [*PLAIN, traffic(tmp_path, text, form)]
    with pytest.raises(BadInput) as refused:
        load("durations_only", [*changes, ON])
    assert f"t.{form}{reason}" in str(refused.value)
    # without caching nobody asks
    assert load("durations_only", changes).scenario.serving.memory.prefix_caching is None


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        (
            "durations_only",
            [PLACES],
            "serving.memory.prefix_caching: nobody knows what drawn prompts have in common",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(name: str, changes: list[str], reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(name, [*changes, ON])
    assert reason in str(refused.value)


def test_our_own_csv_names_prefixes_too(tmp_path: Path) -> None:
    """Texts or numbers, with blanks between them; two of three prompts are alike to the end."""
    text = (
        "arrival_s,prompt_tokens,output_tokens,hash_ids\n0,1024,3,fe 07\n1,1024,3,fe "
        "07\n2,1024,3,fe 08\n"
    )
    loaded = load("durations_only", [*PLAIN, traffic(tmp_path, text, "csv"), ON])
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    told = outcome_data(outcome)["serving"]["prefix_cache"]
    assert told == {
        "prompt_tokens": 3072,
        "hit_tokens": 1008 + 512,
        "hit_rate": 1520 / 3072,
        "evicted_tokens": 0,
        "dropped_tokens": 0,
    }


def test_the_baseline_keeps_blocks_too(tmp_path: Path) -> None:
    text = "".join(line(at * 1e3, 1024, [1, 2]) for at in range(4))
    loaded = load(
        "durations_only",
        [
            "strategy={name: vanilla_sd, gamma: 3}",
            "durations={target_ms: 10, draft_ms: 4}",
            PLACES,
            traffic(tmp_path, text),
            ON,
        ],
    )
    plain_run, _ = simulate(plain(loaded.scenario), NO_DRAFTS)
    hits = plain_run.serving.prefix_cache
    assert hits["hit_tokens"] == 3 * 1008


def test_without_caching_nothing_is_said_of_it(tmp_path: Path) -> None:
    """Left out or off, hashes or none: the same numbers, and no word of a cache."""
    many = "".join(line(at * 10, 1024, [1, 2 + at % 3]) for at in range(20))
    runs = []
    for text, off in (
        (many, []),
        (many, ["serving.memory.prefix_caching=false"]),
        (many.replace("hash_ids", "x"), []),
    ):
        loaded = load("durations_only", [*PLAIN, traffic(tmp_path, text), *off])
        runs.append(outcome_data(simulate(loaded.scenario, loaded.acceptance())[0]))
    assert runs[0] == runs[1] == runs[2]
    assert "prefix_cache" not in runs[0]["serving"]
    loaded = load("durations_only", [*PLAIN, traffic(tmp_path, many)])
    assert "prefix_caching" not in resolved(loaded.scenario)["serving"]["memory"]


def test_each_replica_has_a_cache_of_its_own(tmp_path: Path) -> None:
    """In turn, two replicas each compute the prompt once; four requests hit twice."""
    text = "".join(line(at * 1e3, 1024, [1, 2]) for at in range(4))
    loaded = load(
        "durations_only",
        [*PLAIN, traffic(tmp_path, text), ON, "serving.replicas=2", "serving.router=round_robin"],
    )
    hits = simulate(loaded.scenario, loaded.acceptance())[0].serving.prefix_cache
    assert (hits["prompt_tokens"], hits["hit_tokens"]) == (4096, 2 * 1008)


def test_a_router_that_looks_into_caches(tmp_path: Path) -> None:
    """Two prompts part; from then on each begins where its blocks are, in whose turn it may be, and
    even behind a request.
    """
    prompts = [(0, [1, 2]), (0, [3, 4]), (1e3, [3, 4]), (2e3, [3, 5]), (2e3, [3, 4]), (2e3, [6, 7])]
    text = "".join(line(at, 1024, hashes) for at, hashes in prompts)
    changes = [*PLAIN, traffic(tmp_path, text), "serving.replicas=2", "serving.router=most_cached"]
    loaded, log = load("durations_only", [*changes, ON]), list[Iteration]()
    outcome, _ = simulate(loaded.scenario, loaded.acceptance(), log=log.append)
    sent = {request: one.replica for one in log for request in one.requests}
    assert [sent[index] for index in range(6)] == [1, 2, 2, 2, 2, 1]
    assert outcome.serving.prefix_cache["hit_tokens"] == 1008 + 512 + 1008
    with pytest.raises(BadInput, match=r"serving\.router: looks into caches; set serving"):
        load("durations_only", changes)


def test_the_load_that_can_be_served_counts_what_is_computed(tmp_path: Path) -> None:
    """A prompt of 1,024 takes 128 ms; of ten that are alike, all but 16 tokens of nine are there:
    13.6 ms in the mean.
    """
    text = "".join(line(at * 1e3, 1024, [1, 2], 3) for at in range(10))
    changes = [
        *PLAIN[:-1],
        traffic(tmp_path, text),
        "serving.policy={name: prefill_first, max_requests: 1}",
    ]
    on, off = (load("durations_only", [*changes, *more]) for more in ([ON], []))
    rates = [load_of(loaded.scenario, loaded.acceptance()).most_per_s for loaded in (on, off)]
    mean = round(1024 - 9 * 1008 / 10)
    assert rates == pytest.approx([1 / (mean * 0.125e-3 + 0.02), 1 / (0.128 + 0.02)])


COMMANDS = {
    "vllm": ("vllm.sh", "--enable-prefix-caching", "--no-enable-prefix-caching"),
    "sglang": ("sglang.sh", "", "--disable-radix-cache"),
}
"""File, what is in its command with prefix caching, and what without."""


@pytest.mark.parametrize("engine", COMMANDS)
def test_an_exported_answer_caches_as_the_scenario_does(tmp_path: Path, engine: str) -> None:
    """The command follows the field; the exported scenario takes the hashes along and comes to the
    same digits.
    """
    place = f"{{machine: server, device: a100_80g_sxm, engine: {engine}, weights: bf16, model: "
    text = "".join(line(at * 100, 1100, [1, 2 + at % 2, 9 + at]) for at in range(12))
    settings = [
        "strategy=vllm_chain",
        f"target={place}vicuna_7b}}",
        f"draft={place}tiny_vicuna_1b}}",
        "acceptance={rate: 0.7}",
    ]
    settings += ["serving.policy={name: prefill_first, max_requests: 8}", traffic(tmp_path, text)]
    file, with_it, without = COMMANDS[engine]
    off, on = (
        exports(SimpleNamespace(candidate=SimpleNamespace(loaded=loaded), replicas=1), None, {})
        for loaded in (
            load("methods_vicuna_7b_a100", [*settings, more])
            for more in (ON.replace("true", "false"), ON)
        )
    )
    assert f" {without}" in off[file]
    assert f" {with_it}" in on[file]
    assert without not in on[file]
    assert "\\\n\n" not in on[file]
    assert off["traffic.csv"].startswith(
        "arrival_s,prompt_tokens,output_tokens,task\n0.0,1100,3,\n"
    )
    assert on["traffic.csv"].startswith(
        "arrival_s,prompt_tokens,output_tokens,task,hash_ids\n0.0,1100,3,,1 2 9\n"
    )
    for name in ("scenario.yaml", "traffic.csv"):
        (tmp_path / name).write_text(on[name])
    given, again = (
        load("methods_vicuna_7b_a100", [*settings, ON]),
        load(str(tmp_path / "scenario.yaml")),
    )
    told = [
        outcome_data(simulate(loaded.scenario, loaded.acceptance())[0]) for loaded in (given, again)
    ]
    assert told[0] == told[1]
    assert told[0]["serving"]["prefix_cache"]["hit_tokens"] == 512 + 10 * 1024


def test_a_page_says_what_was_found(tmp_path: Path) -> None:
    """Four prompts of 4,096 tokens in all, of which three were there but for their last block."""
    text = "".join(line(at * 1e3, 1024, [1, 2]) for at in range(4))
    words = [word for change in (*PLAIN, traffic(tmp_path, text), ON) for word in ("--set", change)]
    done = CliRunner().invoke(main, ["run", "durations_only", *words, "--long"])
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert (
        "Prefix cache: 73.8 % of 4,096 prompt tokens were there already and not computed; 0 "
        "tokens of"
    ) in told


def test_bounds_say_nothing_where_company_pays(tmp_path: Path) -> None:
    text = "".join(line(at * 1e3, 1024, [1, 2]) for at in range(4))
    changes = [
        "requests.count=4",
        "serving.policy={name: prefill_first, max_requests: 8}",
        traffic(tmp_path, text),
    ]
    assert holds_for(load("autoregressive_qwen3_32b_a100", [*changes, ON.replace("true", "false")]))
    assert not holds_for(load("autoregressive_qwen3_32b_a100", [*changes, ON]))


# ---- what speculation costs a cache


def test_a_dropped_block_costs_what_it_takes_to_read_it_again(tmp_path: Path) -> None:
    """Ten prompts of 1,024 tokens, alike, one after the other: nine find 1,008 tokens and
    one drops a block of 16, which the draft, the slower of both, reads in 4 ms. A step of 20 ms
    brings three tokens and a plain one of 10 ms one, so that a token takes 10 ms less 20 / 3.
    """
    path = tmp_path / "alike.jsonl"
    path.write_text("".join(line(1000.0 * at, 1024, [0, 1], 32) for at in range(10)))
    changes = [
        ON,
        f"requests={{arrivals: {{name: file, format: mooncake, file: {path}}}}}",
        "serving.policy={name: prefill_first}",
        f"durations={json.dumps(EIGHTH | {'draft_ms': 5})}",
        "acceptance={always: 2}",
    ]
    loaded = load("durations_only", ["strategy={name: vanilla_sd, gamma: 2}", *changes])
    scenario = loaded.scenario
    simulated, _ = simulate(scenario, loaded.acceptance())
    beside, _ = simulate(plain(scenario), NO_DRAFTS)
    cache = {"prompt_tokens": 10240, "hit_tokens": 9 * 992, "dropped_tokens": 9 * 16}
    heads = replace(
        simulated, serving=replace(simulated.serving, prefix_cache=cache | rates(cache))
    )
    cost = cache_cost(scenario, heads, beside, TokenTimes(20e-3 / 3, 10e-3))
    assert cost is not None
    assert cost.dropped_tokens == 14.4
    assert cost.again_s == pytest.approx(14 * 0.25e-3)
    assert cost.lost_rate == pytest.approx(9 * 16 / 10240)
    assert cost.worth_tokens == pytest.approx(14 * 0.25 / (10 - 20 / 3))
    slower = cache_cost(scenario, heads, beside, TokenTimes(11e-3, 10e-3))
    assert slower is not None and slower.worth_tokens is None
    assert cache_cost(plain(scenario), beside, beside, TokenTimes(0.01, 0.01)) is None


def rates(cache: dict[str, int]) -> dict[str, float]:
    return {"hit_rate": cache["hit_tokens"] / cache["prompt_tokens"], "evicted_tokens": 0}
