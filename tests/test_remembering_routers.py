"""Routers that remember: sessions that stay, trees of what was sent, an index that lags behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.index import Predicted, Reported, SentPrefixes
from simulator.core.serving.cache.memory import Report
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.fields import routers
from simulator.core.serving.load.content import Hash, Prefix
from simulator.core.serving.policies import PrefillFirst
from simulator.core.serving.requests import Arrivals, Request
from simulator.core.serving.router import CacheAware, Fleet, PrefixIndex, Router
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Lanes
from simulator.core.world import World
from simulator.scenario import evaluate, load
from tests.both_ways import differences

REMEMBERING = ["session_affinity", "cache_aware", "prefix_index"]


class Desk:
    """A replica that finishes nothing by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outstanding = self.waiting = 0
        self.kv_use = 0.0
        self.report: Report | None = None

    def __repr__(self) -> str:
        return self.name

    def cached(self, request: Request) -> int:
        raise AssertionError("none of these routers looks into a cache")

    def report_to(self, report: Report) -> None:
        self.report = report

    def submit(self, request: Request) -> None:
        self.outstanding += 1

    def ring(self) -> None:
        pass


class Counter:
    """A router before desks A, B, C; time is what a test says."""

    def __init__(self, router: Router, count: int = 2) -> None:
        self.desks = [Desk(name) for name in "ABC"[:count]]
        self.now = 0.0
        self._chooser = router.opened(lambda: self.now)

    def send(
        self, *prefixes: tuple[Hash, float], tokens: int = 100, session: int | None = None
    ) -> str:
        """Where a prompt of so many tokens goes, always asked in the same order."""
        named = tuple(Prefix(name, end) for name, end in prefixes)
        request = Request(0, self.now, tokens, 2, prefixes=named, session=session)
        chosen = self._chooser.choose(request, self.desks)
        chosen.submit(request)
        return repr(chosen)

    def load(self, *outstanding: int) -> None:
        """State how many requests each desk has."""
        for desk, count in zip(self.desks, outstanding, strict=True):
            desk.outstanding = count


# ---- sessions


def test_a_session_stays_where_it_began_whatever_the_load() -> None:
    desks = Counter(routers()["session_affinity"]())
    assert [desks.send(session=number) for number in (0, 1, 2, 0, 0, 0)] == [*"ABAAAA"]
    assert desks.send(session=3) == "B"  # five requests at A, one at B
    assert desks.send() == "B"
    desks.load(0, 9)
    assert [desks.send(session=number) for number in (1, 3, 4)] == [*"BBA"]


def test_a_session_whose_replica_is_gone_begins_again() -> None:
    desks = Counter(routers()["session_affinity"](), count=3)
    assert [desks.send(session=number) for number in (0, 1, 2)] == [*"ABC"]
    desks.desks = desks.desks[1:]
    desks.load(4, 0)
    assert desks.send(session=0) == "C"
    desks.load(0, 9)
    assert desks.send(session=0) == "C"


# ---- what was sent


def test_a_tree_counts_what_prompts_have_in_common_once() -> None:
    tree = SentPrefixes()
    tree.send(Request(0, 0.0, 100, 2, prefixes=(Prefix("system", 40), Prefix("one"))))
    assert tree.tokens == 100
    tree.send(Request(1, 0.0, 70, 2, prefixes=(Prefix("system", 40), Prefix("two"))))
    assert tree.tokens == 130
    tree.send(Request(2, 0.0, 120, 2, prefixes=(Prefix("system", 40), Prefix("one"))))
    assert tree.tokens == 150
    asked = Request(3, 0.0, 90, 2, prefixes=(Prefix("system", 40), Prefix("three")))
    assert tree.matched(asked) == 40
    assert tree.matched(Request(4, 0.0, 90, 2)) == 0
    asked = Request(5, 0.0, 200, 2, prefixes=(Prefix("system", 40), Prefix("one")))
    assert tree.matched(asked) == 120


def test_cache_aware_by_hand() -> None:
    """More than 0.3 of a prompt decides; else the smallest tree does."""
    desks = Counter(CacheAware())
    assert desks.send(("a", 100)) == "A"  # both trees are empty
    assert desks.send(("b", 100)) == "B"
    assert desks.send(("a", 200), tokens=200) == "A"  # 100 of 200
    assert desks.send(("a", 30), ("c", 100)) == "B"  # 30 of 100 are not more than 0.3
    assert desks.send(("a", 31), ("d", 100)) == "A"
    desks.load(65, 0)
    assert desks.send(("a", 100)) == "B"  # far apart: 65 > 64, and 65 > 1.5 x 0
    desks.load(64, 0)
    assert desks.send(("d", 100)) == "A"
    desks.load(200, 134)
    assert desks.send(("d", 100)) == "A"  # 66 more, and not half as many again
    desks.load(202, 134)
    assert desks.send(("d", 100)) == "B"


# ---- an index


def test_what_was_sent_is_believed_for_a_while() -> None:
    sent = Predicted(ttl_s=2.0)
    sent.send(Request(0, 0.0, 100, 2, prefixes=(Prefix("a"),)), 0.0)
    sent.send(Request(0, 0.0, 60, 2, prefixes=(Prefix("a"),)), 1.0)
    assert [sent.known("a", now) for now in (1.0, 2.5, 2.999, 3.0)] == [100, 100, 100, 0]
    sent.send(Request(0, 0.0, 60, 2, prefixes=(Prefix("a"),)), 3.0)
    assert sent.known("a", 3.0) == 60
    assert sent.known("b", 3.0) == 0


def test_what_a_cache_reports_is_known_late() -> None:
    time = [0.0]
    reported = Reported(2.0, lambda: time[0])
    reported.report("a", 64)
    time[0] = 1.0
    reported.report("a", 32)
    reported.report("b", 16)
    time[0] = 1.5
    reported.report("a", 0)
    assert [reported.known("a", now) for now in (1.9, 2.0, 2.9, 3.0, 3.4, 3.5)] == [
        0,
        64,
        64,
        32,
        32,
        0,
    ]
    assert reported.known("b", 3.5) == 16


def test_prefix_index_by_hand() -> None:
    """Weights 3, 2 and 2: a prompt that is there whole is worth a queue and half of a cache."""
    desks = Counter(PrefixIndex())
    assert desks.send(("a", 100)) == "A"
    assert desks.send(("b", 100)) == "A"  # all are equal, and nobody waits
    desks.desks[0].waiting = 1
    assert desks.send(("c", 100)) == "B"  # 2 + 2 against 2
    assert desks.send(("a", 100)) == "A"  # 3 + 2 against 2 + 2
    desks.desks[0].kv_use = 0.5
    assert desks.send(("a", 100)) == "A"  # 3 + 1 against 2 + 2, and A is asked first
    desks.desks[0].kv_use = 0.51
    assert desks.send(("a", 100)) == "B"
    desks.desks[0].waiting = 0
    desks.now = 2.0
    assert desks.send(("a", 100)) == "B"  # what was sent to A is not believed any more; nor to B
    desks.desks[0].kv_use = 0.0
    desks.desks[0].report("d", 96)  # type: ignore[misc]
    assert desks.send(("d", 100)) == "A"
    desks.desks[1].report("e", 96)  # type: ignore[misc]
    desks.now = 3.9
    assert desks.send(("e", 100)) == "A"
    desks.now = 6.0
    assert desks.send(("e", 100)) == "B"


def test_an_index_without_reports_asks_for_none() -> None:
    desks = Counter(PrefixIndex(stale_s=None, ttl_s=120))  # type: ignore[arg-type]
    desks.send(("a", 100))
    assert [desk.report for desk in desks.desks] == [None, None]
    with_reports = Counter(PrefixIndex())
    with_reports.send(("a", 100))
    assert None not in [desk.report for desk in with_reports.desks]


# ---- what caches say


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 200)), min_size=1
    ),
    blocks=st.integers(30, 60),
)
def test_whoever_gets_all_reports_of_a_cache_knows_what_it_has(
    sizes: list[tuple[int, int, int]], blocks: int
) -> None:
    """Requests come and go one by one; without a delay the index says what the cache would."""
    cache = PrefixCache(16, blocks)
    reported = Reported(0.0, lambda: 0.0)
    cache.report_to(reported.report)
    for index, (system, conversation, more) in enumerate(sizes):
        names = (Prefix(f"system {system}", 33), Prefix(f"talk {system} {conversation}"))
        request = Request(index, 0.0, 33 + more, 2, prefixes=names)
        known = max(
            min(reported.known(name, 0.0), end, request.prompt_tokens // 16 * 16)
            for name, end in names
        )
        assert known // 16 == cache.known(request)
        request.cached = cache.cached(request)
        assert cache.hold(request, request.prompt_tokens)
        cache.share(request, request.prompt_tokens)
        request.cached = request.prompt_tokens
        cache.keep(request, 0)


# ---- whole fleets


def run(
    requests: Sequence[Request], router: Router, count: int, blocks: int | None = None
) -> tuple[dict[int, int], float]:
    """Serve requests, every pass in a second; return who went to which replica, and the share of
    prompts that was found.
    """
    first = World()
    worlds = [first, *(World(None, first.environment) for _ in range(count - 1))]
    front = Fleet(Arrivals(requests), router, first.environment)
    went: dict[int, int] = {}

    def note(number: int) -> Callable[[Request], object]:
        return lambda request: went.setdefault(request.index, number)

    pools = [PrefixCache(16, blocks) for _ in range(count)]
    replicas = [
        Scheduler(
            Autoregressive(),
            Cycle((0,)),
            None,
            front,
            StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000)),
            PrefillFirst(max_requests=2),
            pool,
            finished=note(number),
        )
        for number, pool in enumerate(pools)
    ]
    front.open(replicas)
    for world, replica in zip(worlds, replicas, strict=True):
        lanes = Lanes(*(world.lane(name) for name in ("target", "draft", "rendezvous")))
        first.environment.process(replica.run(world, lanes))
    first.environment.run()
    for replica in replicas:
        replica.check()
    hit = sum(pool.hit_tokens for pool in pools)
    return went, hit / sum(pool.asked_tokens for pool in pools)


def talks(sessions: int, turns: int, gap_s: float = 10.0) -> list[Request]:
    """Sessions whose turns come in rounds, each longer than the last by 64 tokens."""
    requests = []
    for turn in range(turns):
        for session in range(sessions):
            index = len(requests)
            names = (Prefix(f"session {session}"),)
            tokens = 64 * (turn + 1)
            arrival_s = gap_s * index
            requests.append(Request(index, arrival_s, tokens, 2, prefixes=names, session=session))
    return requests


def test_three_sessions_before_two_replicas() -> None:
    """In turn, sessions change sides at every turn and find what is two turns old; whoever
    remembers where they were finds all but what is new.
    """
    found = {}
    for name in ("round_robin", *REMEMBERING):
        went, found[name] = run(talks(3, 4), routers()[name](), 2)
        assert len(went) == 12
        if name == "round_robin":
            assert list(went.values()) == [0, 1] * 6
        else:
            assert list(went.values()) == [0, 1, 0] * 4
    # of prompts of 64, 128, 192 and 256 tokens all of the turn before is there, but for the last
    # token of a prompt that is there whole; in turn, of the third the first, of the fourth the
    # second
    assert found["round_robin"] == (64 + 128) / 640
    assert found["session_affinity"] == found["cache_aware"] == (64 + 128 + 192) / 640
    assert found["prefix_index"] == found["cache_aware"]


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(REMEMBERING),
    turns=st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 3.0)), min_size=1, max_size=30),
    count=st.integers(1, 4),
    blocks=st.sampled_from([None, 40]),
)
def test_nothing_is_lost_and_sessions_stay_together(
    name: str, turns: list[tuple[int, float]], count: int, blocks: int | None
) -> None:
    requests = []
    lengths: dict[int, int] = {}
    now = 0.0
    for index, (session, gap_s) in enumerate(turns):
        now += gap_s
        lengths[session] = min(400, lengths.get(session, 0) + 30)
        names = (Prefix(f"session {session}"),)
        requests.append(Request(index, now, lengths[session], 3, prefixes=names, session=session))
    went, _ = run(requests, routers()[name](), count, blocks)
    assert sorted(went) == list(range(len(turns)))
    if name == "session_affinity":
        homes = {(request.session, went[request.index]) for request in requests}
        assert len(homes) == len({session for session, _ in turns})


@settings(deadline=None, max_examples=30)
@given(sessions=st.integers(1, 7), turns=st.integers(1, 5), count=st.integers(1, 4))
def test_sessions_that_stay_find_at_least_what_those_do_that_move(
    sessions: int, turns: int, count: int
) -> None:
    _, stays = run(talks(sessions, turns), routers()["session_affinity"](), count)
    _, moves = run(talks(sessions, turns), routers()["round_robin"](), count)
    assert stays >= moves


# ---- in a scenario


@pytest.mark.parametrize("router", REMEMBERING)
def test_lazy_replicas_are_sent_what_stepped_ones_are(router: str) -> None:
    """A cache that is never large enough, so that what runs and what is evicted decide."""
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 10.3, prefill_ms: 20.7}",
        "requests={arrivals: {name: poisson, rate_per_s: 4}, count: 80, prompt_tokens: 64, "
        "output_tokens: 40, sessions: {turns: 4, turn_tokens: 32, think_s: 1}}",
        "serving={policy: {name: prefill_first, max_requests: 4}, replicas: 3, "
        f"router: {router}, memory: {{kv_tokens: 1024, prefix_caching: true}}}}",
    ]
    loaded = load("durations_only", changes)
    assert not differences(loaded.scenario.service(loaded.acceptance()))


def outcome(router: str) -> Any:
    """Sessions of a closed loop before three replicas."""
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 10, prefill_ms: 20}",
        "requests={concurrency: 9, count: 60, prompt_tokens: 64, output_tokens: 8, "
        "sessions: {turns: 4, turn_tokens: 32, think_s: 1}}",
        "serving={policy: {name: prefill_first, max_requests: 4}, replicas: 3, "
        f"router: {router}, memory: {{kv_tokens: 20000}}}}",
    ]
    loaded = load("durations_only", changes)
    done: list[Request] = []
    evaluate.simulate(loaded.scenario, loaded.acceptance(), finished=done.append)
    return done


@pytest.mark.parametrize("router", REMEMBERING)
def test_a_scenario_names_them(router: str) -> None:
    done = outcome(router)
    assert len(done) == 60
    sessions = {request.session for request in done}
    assert len(sessions) == 15
    assert None not in sessions


@pytest.mark.parametrize(
    ("router", "fault"),
    [
        ("{name: cache_aware, cache_threshold: 1.5}", "cache_threshold.*at most 1"),
        ("{name: cache_aware, balance_rel_threshold: 0.5}", "balance_rel_threshold.*1 or more"),
        ("{name: prefix_index, ttl_s: -1}", "ttl_s.*0 or more"),
        ("{name: prefix_index, weight: 3}", "weight"),
    ],
)
def test_fields_that_are_wrong(router: str, fault: str) -> None:
    with pytest.raises(BadInput, match=rf"serving\.router.*{fault}"):
        outcome(router)
