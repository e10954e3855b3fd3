"""Replicas behind a router: who is sent where, and that a fleet keeps what one replica keeps."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.memory import Report
from simulator.core.serving.fields import Serving, routers
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import Arrivals, ClosedLoop, Request, Requests, Source
from simulator.core.serving.router import Fleet, RoundRobin
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import Lanes
from simulator.core.world import World
from simulator.scenario import load
from simulator.scenario.evaluate import simulate

SECOND = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000))
ROUTERS = [
    "cache_aware",
    "join_shortest_queue",
    "least_outstanding",
    "most_cached",
    "prefix_index",
    "round_robin",
    "session_affinity",
]
Served = dict[int, tuple[str, float, float]]
"""By request: replica, admitted, finished."""


def _fleet(source: Source, router: str, world: World) -> Fleet:
    return Fleet(source, routers()[router](), world.environment)


def served(source: Source, router: str | None, count: int, places: int) -> Served:
    """Every pass takes a second. Without a router there is one replica, which fetches its
    requests.
    """
    first = World()
    worlds = [first, *(World(None, first.environment) for _ in range(count - 1))]
    front, found = _fleet(source, router, first) if router else None, Served()

    def note(replica: str, one: Request) -> None:
        found[one.index] = replica, one.admitted_s, one.finished_s

    policy = FixedBatch(max_requests=places)
    replicas = [
        Scheduler(
            Autoregressive(),
            Cycle((0,)),
            None,
            front or source,
            SECOND,
            policy,
            finished=partial(note, name),
        )
        for name in "ABC"[:count]
    ]
    if front:
        front.open(replicas)
    for world, replica in zip(worlds, replicas, strict=True):
        first.environment.process(
            replica.run(world, Lanes(*map(world.lane, ("target", "draft", "rendezvous"))))
        )
    first.environment.run()
    for replica in replicas:
        replica.check()
    return dict(sorted(found.items()))


def crowd() -> Arrivals:
    """Six at once, of which two of B are soon done, then two that find B with less to do but more
    waiting.
    """
    outputs = {0: 6, 1: 6, 2: 6, 3: 2, 4: 6, 5: 2}
    late = [Request(6, 2.5, 8, 2), Request(7, 2.6, 8, 2)]
    return Arrivals([*(Request(index, 0.0, 8, tokens) for index, tokens in outputs.items()), *late])


def test_the_three_routers_on_the_same_crowd() -> None:
    """A prompt holds its replica's batch up for a second, so who joins whom shows in when everybody
    ends.
    """
    a_alone = {
        0: ("A", 0, 6),
        1: ("B", 0, 7),
        2: ("A", 0, 6),
        3: ("B", 0, 2),
        4: ("A", 0, 6),
        5: ("B", 0, 2),
    }
    both = a_alone | {0: ("A", 0, 7), 2: ("A", 0, 7), 4: ("A", 0, 7)}
    assert served(crowd(), "round_robin", 2, 5) == both | {6: ("A", 3, 5), 7: ("B", 3, 5)}
    assert served(crowd(), "least_outstanding", 2, 5) == a_alone | {6: ("B", 3, 5), 7: ("B", 3, 5)}
    assert served(crowd(), "join_shortest_queue", 2, 5) == both | {6: ("B", 3, 5), 7: ("A", 3, 5)}


def test_an_idle_fleet_shares_out_what_comes_one_by_one() -> None:
    source = Arrivals([Request(index, 10.0 * index, 8, 2) for index in range(5)])
    for router in ROUTERS:
        source = Arrivals([Request(index, 10.0 * index, 8, 2) for index in range(5)])
        assert [request[0] for request in served(source, router, 3, 1).values()] == [
            "A",
            "B",
            "C",
            "A",
            "B",
        ]


class OddAndEven(RoundRobin):
    """Requests of odd numbers go to replicas of their own, in turn."""

    def pools(self, replicas: int) -> dict[str, int]:
        return {"odd": 2, "even": replicas - 2}

    def role(self, request: Request) -> str:
        return "odd" if request.index % 2 else "even"


def test_each_pool_has_a_turn_of_its_own() -> None:
    """Requests of two roles alternate; in either pool replica follows replica."""

    class Listener:
        """Takes requests, and counts none."""

        waiting = outstanding = 0
        kv_use = 0.0

        def __init__(self) -> None:
            self.taken: list[int] = []

        def cached(self, request: Request) -> int:
            return 0

        def report_to(self, report: Report) -> None:
            pass

        def submit(self, request: Request) -> None:
            self.taken.append(request.index)

        def ring(self) -> None:
            pass

    listeners = [Listener() for _ in range(5)]
    source = Arrivals([Request(index, 0.0, 8, 2) for index in range(12)])
    Fleet(source, OddAndEven(), World().environment).open(listeners)
    assert [listener.taken for listener in listeners] == [
        [1, 5, 9],
        [3, 7, 11],
        [0, 6],
        [2, 8],
        [4, 10],
    ]


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_role_needs_a_replica(replicas: int) -> None:
    refusal = OddAndEven().refusal(replicas)
    assert refusal is not None
    assert refusal.startswith(f"round_robin makes 2 odd and {replicas - 2} even of {replicas} rep")
    assert OddAndEven().refusal(3) is None
    assert RoundRobin().refusal(1) is None


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_may_be_given_by_its_name_alone_and_is_written_so(name: str) -> None:
    by_name = Serving(router=name)
    assert by_name == Serving(router={"name": name})
    written = by_name.model_dump()["router"]
    assert (written if by_name.router.plain else written["name"]) == name
    assert Serving.model_validate(by_name.model_dump(mode="json")) == by_name
    assert by_name.model_dump(mode="json", exclude_defaults=True) == (
        {} if name == "least_outstanding" else {"router": name}
    )
    assert Serving(router={}).router.name == "least_outstanding"


def test_a_client_sends_its_next_request_to_whoever_is_free() -> None:
    """Two clients, one place each: the second request of a client goes where one has just ended."""
    requests = Requests(concurrency=2, count=4, prompt_tokens=8, output_tokens=3)
    assert served(ClosedLoop(requests), "least_outstanding", 2, 1) == {
        0: ("A", 0, 3),
        1: ("B", 0, 3),
        2: ("A", 3, 6),
        3: ("B", 3, 6),
    }


@settings(deadline=None, max_examples=60)
@given(
    router=st.sampled_from(ROUTERS),
    gaps=st.lists(st.floats(0.01, 4.0), min_size=1, max_size=25),
    clients=st.integers(0, 6),
    places=st.integers(1, 4),
)
def test_a_fleet_of_one_is_one_replica(
    router: str, gaps: list[float], clients: int, places: int
) -> None:
    def source() -> Source:
        if clients:
            return ClosedLoop(
                Requests(
                    concurrency=clients, count=clients + len(gaps), prompt_tokens=8, output_tokens=5
                )
            )
        return Arrivals(
            [Request(index, sum(gaps[: index + 1]), 8, 2 + index % 7) for index in range(len(gaps))]
        )

    assert served(source(), router, 1, places) == served(source(), None, 1, places)


SMALL = [
    (
        "requests={arrivals: {name: poisson, rate_per_s: 6}, count: 60, prompt_tokens: 100, "
        "output_tokens: 40}"
    )
]
MANY = ["serving.replicas=3", "serving.policy={name: chunked_prefill}"]


@pytest.mark.parametrize("router", [name for name in ROUTERS if name != "most_cached"])
@pytest.mark.parametrize("name", ["vanilla_llama_2_7b_a100", "mirror_qwen3_32b_m2_ultra"])
def test_what_replicas_did_adds_up(name: str, router: str) -> None:
    loaded = load(name, [*SMALL, *MANY, f"serving.router={router}"])
    outcome, spans = simulate(loaded.scenario, loaded.acceptance(), 100)
    assert (
        sum(replica.requests for replica in outcome.replicas)
        == outcome.serving.requests
        == outcome.serving.e2e.count
        == 60
    )
    assert sum(replica.tokens for replica in outcome.replicas) == outcome.tokens == 60 * 40
    littles = [replica.littles_law for replica in outcome.replicas]
    assert sum(little.mean_in_system for little in littles) == pytest.approx(
        outcome.serving.mean_in_system
    )
    assert all(abs(one.gap) < 1e-9 for one in (*littles, outcome.serving.littles_law))
    assert sum(replica.mean_waiting for replica in outcome.replicas) == pytest.approx(
        outcome.serving.mean_waiting
    )
    assert all(replica.requests for replica in outcome.replicas)
    whole = [
        sum(replica.busy_s[lane] for replica in outcome.replicas) / 3 for lane in outcome.busy_s
    ]
    assert whole == pytest.approx(list(outcome.busy_s.values()))
    assert {span.lane for span in spans} <= set(outcome.busy_s)


def test_twice_the_replicas_under_twice_the_clients_serve_twice_as_much() -> None:
    """All requests alike, so each half sees what one replica saw alone."""
    shape = [
        "requests.prompt_tokens=100",
        "requests.output_tokens=40",
        "strategy=autoregressive",
        "durations={target_ms: 5}",
    ]
    places = "serving.policy={name: fixed_batch, max_requests: 4}"
    one, two = (
        simulate(
            (loaded := load("durations_only", [*shape, places, *more])).scenario,
            loaded.acceptance(),
        )[0]
        for more in (
            ["requests.concurrency=4", "requests.count=20"],
            ["requests.concurrency=8", "requests.count=40", "serving.replicas=2"],
        )
    )
    assert two.tokens_per_s == pytest.approx(2 * one.tokens_per_s)
    assert two.serving.mean_batch == one.serving.mean_batch == 4
    first, second = two.replicas
    assert (first.requests, first.tokens, first.littles_law, first.busy_s) == (
        20,
        800,
        second.littles_law,
        second.busy_s,
    )


def test_a_router_needs_places_and_a_name_it_knows() -> None:
    with pytest.raises(
        BadInput, match="fixed_batch needs max_requests where a router deals requests out"
    ):
        load("vanilla_llama_2_7b_a100", ["serving.replicas=2"])
    with pytest.raises(BadInput, match=r"serving\.router.*round_robin"):
        load("vanilla_llama_2_7b_a100", [*MANY, "serving.router=roundrobin"])


def test_the_logs_say_which_replica_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    changes = [word for one in (*SMALL, *MANY) for word in ("--set", one)]
    arguments = ["run", "vanilla_llama_2_7b_a100", *changes, "--json", "--iteration-log", str(log)]
    data = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)
    tokens = [0, 0, 0]
    for line in csv.DictReader(log.open()):
        tokens[int(line["replica"]) - 1] += sum(map(int, line["tokens"].split()))
    assert all(
        logged >= one["tokens"]
        for logged, one in zip(tokens, data["simulated"]["replicas"], strict=True)
    )
