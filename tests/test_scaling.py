"""A number of replicas that follows the load: the law of the Horizontal Pod Autoscaler, a world in
which every time is known, and what is conserved whatever comes.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.device import Link
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.cache.prefixes import PrefixCache, cache_hits
from simulator.core.serving.cache.states import StateCache
from simulator.core.serving.cache.tiers import BlockStore, MemoryTier, TieredCache, TierLink
from simulator.core.serving.fields import AdmissionControl, Serving
from simulator.core.serving.fleet.scaled import ReplicaLife, ScaledFleet, ScalingChange
from simulator.core.serving.fleet.scaling import Scaling, ScalingRule
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.classes import RequestClass
from simulator.core.serving.policies import FixedBatch, PrefillFirst
from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.service import Service, ServiceRun
from simulator.core.serving.slo import Slo
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.report.run.serving import sentences
from simulator.scenario import load
from simulator.scenario.caveats import cautions
from simulator.scenario.evaluate import run, simulate
from simulator.scenario.expenses import expenses
from simulator.scenario.explain import explain
from simulator.studies.plan.search import replicated
from tests.both_ways import Bursts, differences, eager, told

SECOND = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000))
"""Every pass takes a second."""
UNEVEN = StatedCost(StatedDurations(target_ms=997.3, prefill_ms=1_011.7))
"""Passes that end with no arrival: whose turn is first at one moment is left open."""
TENS = 10
"""Tokens of an output that keeps a replica for as many seconds, its prompt included."""


def scaled(
    drawn: list[tuple[float, int, int, int]],
    scaling: dict[str, Any],
    replicas: int = 1,
    places: int = 1,
    **fields: Any,
) -> Service:
    """A service of passes of a second, that requests come to as ``drawn``: when (s), prompt and
    output tokens, and which prefix.
    """
    serving = fields.pop("serving", {})
    policy = fields.pop("policy", None) or FixedBatch(max_requests=places)
    return Service(
        Autoregressive(),
        Cycle((0,)),
        SECOND,
        Requests(
            arrivals=Bursts(format="csv", file="bursts", drawn=tuple(drawn)), count=len(drawn)
        ),
        Serving(policy=policy, replicas=replicas, scaling=scaling, **serving),
        **fields,
    )


def coming(*times_s: float) -> list[tuple[float, int, int, int]]:
    """Requests that take ten seconds each, at these times."""
    return [(at_s, 1, TENS, 0) for at_s in times_s]


def fleet_of(done: ServiceRun) -> ScaledFleet:
    """The replicas that came and went."""
    assert done.scaled is not None
    return done.scaled


SMALL = {
    "least": 1,
    "most": 2,
    "target": 2,
    "every_s": 10,
    "stable_s": 20,
    "start_s": 5,
}


# ---- a world in which every time is known


def test_every_time_of_a_small_world() -> None:
    """Four requests at once ask for a second replica, which is ready at 15; it goes at 40, when
    one has done at two looks.
    """
    done = scaled(coming(1, 1, 1, 1, 16, 42), SMALL).run()
    fleet = fleet_of(done)
    assert fleet.changes == [ScalingChange(10, 1, 2, 4.0), ScalingChange(40, 2, 1, 0.5)]
    assert fleet.lives == [ReplicaLife(1, 0, 0, 52, 52), ReplicaLife(2, 10, 15, 40, 40)]
    assert [replica.ledger.tally.finished for replica in done.replicas] == [5, 1]
    assert [replica.ledger.tally.occupied_s for replica in done.replicas] == [50, 10]
    assert (fleet.replica_s, fleet.starting_s, fleet.draining_s) == (82, 5, 0)
    assert (done.end_s, fleet.waiting_starts) == (52, 0)


def test_who_is_to_go_ends_what_it_has() -> None:
    """The second replica has a request from 36 to 46: it is to go at 40, and gets none of 41."""
    ended: list[tuple[int, float]] = []

    def note(request: Request) -> None:
        ended.append((request.index, request.finished_s))

    done = scaled(coming(1, 1, 1, 1, 16, 36, 41), SMALL).run(on_finished=note)
    fleet = fleet_of(done)
    assert fleet.lives == [ReplicaLife(1, 0, 0, 51, 51), ReplicaLife(2, 10, 15, 40, 46)]
    assert ended == [(0, 11), (1, 21), (4, 26), (2, 31), (3, 41), (5, 46), (6, 51)]
    assert (fleet.replica_s, fleet.draining_s) == (51 + 36, 6)


def test_a_start_waits_for_the_place_of_who_drains() -> None:
    """The second replica drains from 40 to 56; what comes at 41 asks for it again at 50, and it
    begins once its place is free.
    """
    drawn = [*coming(1, 1, 1, 1, 16), (36, 1, 20, 0), *coming(41, 41, 41, 41)]
    fleet = fleet_of(scaled(drawn, SMALL).run())
    assert [change[:3] for change in fleet.changes] == [
        (10, 1, 2),
        (40, 2, 1),
        (50, 1, 2),
        (80, 2, 1),
    ]
    assert fleet.lives[1:] == [ReplicaLife(2, 10, 15, 40, 56), ReplicaLife(2, 56, 61, 80, 80)]
    assert fleet.waiting_starts == 1


def test_who_starts_goes_first() -> None:
    """A replica that takes 100 s to start is not wanted any more at 50."""
    fleet = fleet_of(scaled(coming(1, 1, 1, 1, 45), SMALL | {"start_s": 100}).run())
    assert fleet.lives[1] == ReplicaLife(2, 10, 50, 50, 50)
    assert fleet.starting_s == 40


def test_a_look_sees_all_of_its_moment() -> None:
    """A request that comes or ends at a look has come or ended before it."""
    fleet = fleet_of(scaled(coming(0, 0, 10, 10), SMALL).run())
    assert fleet.changes[0] == ScalingChange(10, 1, 2, 3.0)


# ---- by memory, and by promises


def test_by_the_memory_in_use() -> None:
    """Requests of 16 tokens each have a block, of four: two running ones are half of it."""
    fields = {"by": "kv_use", "target": 0.25}
    service = scaled(
        coming(1, 1), SMALL | fields, places=2, kv_tokens=64, serving={"memory": KVMemory()}
    )
    fleet = fleet_of(service.run())
    assert fleet.changes[0] == ScalingChange(10, 1, 2, 0.5)


def test_by_what_was_promised() -> None:
    """Of the requests that ended in the last 20 s half waited for longer than a second: five times
    as many as may ask for as many more replicas as there may be.
    """
    fields = {"by": "slo", "target": 0.9, "recent_s": 20}
    slo = Slo(ttft_ms={"p90": 1_500.0})
    fleet = fleet_of(scaled(coming(0, 0, 20), SMALL | fields, slo=slo).run())
    assert fleet.changes == [ScalingChange(20, 1, 2, 0.5)]


def test_promises_are_those_of_the_class() -> None:
    classes = {"chat": RequestClass(share=1, slo=Slo(ttft_ms={"p90": 1_500.0}))}
    fields = {"by": "slo", "target": 0.9, "recent_s": 20}
    service = scaled(coming(0, 0, 20), SMALL | fields)
    service = replace(service, requests=service.requests.model_copy(update={"classes": classes}))
    assert fleet_of(service.run()).changes == [ScalingChange(20, 1, 2, 0.5)]


def test_one_goes_at_a_time_where_promises_are_kept() -> None:
    scaling = Scaling(most=8, by="slo", target=0.9)
    assert scaling.desired(scaling.work(1.0, 6), 6, 6) == 5
    assert scaling.desired(scaling.work(0.6, 2), 2, 2) == 8
    assert scaling.desired(scaling.work(0.9, 6), 6, 6) == 6


# ---- the law by itself


@pytest.mark.parametrize(
    ("metric", "serving", "current", "desired"),
    [
        (200, 5, 5, 10),
        (50, 4, 4, 2),
        (109, 10, 10, 10),
        (91, 10, 10, 10),
        (150, 2, 4, 4),
        (300, 2, 4, 6),
        (40, 2, 4, 1),
    ],
)
def test_the_law(metric: float, serving: int, current: int, desired: int) -> None:
    """The first two are the example of the Kubernetes documentation, 200m and 50m for 100m; then
    the tolerance; then two that start, which count as idle only where more are wanted.
    """
    scaling = Scaling(most=100, target=100)
    assert scaling.desired(scaling.work(metric, serving), serving, current) == desired


def test_up_by_as_many_again_or_by_four() -> None:
    rule = ScalingRule(Scaling(most=100, target=1), 2)
    assert [rule.look(15.0 * look, 50.0, 2) for look in (1, 2, 3, 4, 5)] == [6, 12, 24, 48, 96]
    often = ScalingRule(Scaling(most=100, target=1, every_s=5), 2)
    assert [often.look(5.0 * look, 50.0, 2) for look in (1, 2, 3, 4, 5)] == [6, 6, 6, 12, 12]


def test_down_to_the_most_that_was_wanted_lately() -> None:
    rule = ScalingRule(Scaling(most=10, target=1, every_s=100), 10)
    asked = [(100, 1.0), (200, 0.3), (300, 0.2), (400, 0.2), (500, 0.2), (600, 1.0)]
    assert [rule.look(at_s, metric, rule.wanted) for at_s, metric in asked] == [10, 10, 10, 3, 2, 2]


def test_nobody_knows_and_nothing_changes() -> None:
    rule = ScalingRule(Scaling(most=10, target=1, stable_s=0), 5)
    assert rule.look(15, None, 5) == 5


def test_a_start_takes_its_boot_and_its_weights() -> None:
    link = Link(latency_us=0, bandwidth_gb_s=2)
    assert Scaling(most=2, target=1, boot_s=30, link=link).seconds(16e9) == 38
    assert Scaling(most=2, target=1, boot_s=30, start_s=7, link=link).seconds(16e9) == 7


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"least": 3, "most": 2, "target": 1}, "least <= most"),
        ({"most": 2, "by": "kv_use", "target": 5}, "target up to 1"),
        ({"most": 2, "by": "slo", "target": 1}, "below 1"),
        ({"most": 2}, "target"),
    ],
)
def test_what_cannot_be_meant(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Scaling.model_validate(fields)


# ---- whatever comes

TRAFFIC = st.lists(
    st.tuples(
        st.sampled_from((0.0, 0.0, 0.51, 3.07, 40.03)),
        st.sampled_from((1, 5, 512, 1_024)),
        st.sampled_from((2, 3, 10, 30)),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=30,
)
SCALINGS = st.fixed_dictionaries(
    {
        "least": st.integers(1, 2),
        "most": st.integers(2, 5),
        "target": st.sampled_from((0.5, 1.0, 3.0)),
        "every_s": st.sampled_from((1.0, 7.0, 15.0)),
        "stable_s": st.sampled_from((0.0, 20.0)),
        "start_s": st.sampled_from((0.5, 9.0, 60.0)),
        "by": st.sampled_from(("outstanding", "outstanding", "slo", "kv_use")),
    }
)
ROUTERS = st.sampled_from(("round_robin", "least_outstanding", "cache_aware", "prefix_index"))


@st.composite
def services(draw: Any) -> Service:
    """A service whose traffic, scaling, router and places are drawn."""
    at_s = 0.0
    drawn = []
    for gap_s, prompt, output, prefix in draw(TRAFFIC):
        at_s += gap_s
        drawn.append((at_s, prompt, output, prefix))
    fields = draw(SCALINGS)
    if fields["by"] != "outstanding":
        fields |= {"target": draw(st.sampled_from((0.1, 0.5, 0.9)))}
    policies = (FixedBatch(max_requests=2), PrefillFirst(max_requests=2, watermark=0.0))
    policy = draw(st.sampled_from(policies))
    shares = not policy.reserves and draw(st.booleans())
    memory = KVMemory(prefix_caching=shares, block_tokens=64)
    serving = {"router": draw(ROUTERS), "memory": memory}
    first = draw(st.integers(fields["least"], fields["most"]))
    service = scaled(drawn, fields, first, 2, policy=policy, serving=serving)
    return replace(service, cost=UNEVEN, kv_tokens=4_096, slo=Slo(ttft_ms={"p90": 3_000.0}))


@settings(deadline=None, max_examples=60)
@given(services())
def test_nothing_is_lost_and_nobody_works_who_is_not_there(service: Service) -> None:
    """All that came is finished; every pass lies in a life of its place; replicas over time are the
    sum of the lives; between two changes there are as many as were wanted, as far as they come.
    """
    passes: list[Iteration] = []
    done = service.run(on_iteration=passes.append)
    tally = done.tally
    assert tally.arrived == tally.finished == service.requests.count
    if done.scaled is None:
        assert service.serving.copies == service.serving.replicas
        return
    fleet = done.scaled
    for one in passes:
        assert any(
            life.place == one.replica
            and life.ready_s <= one.start_s
            and one.start_s + one.duration_s <= life.end_s + 1e-9
            for life in fleet.lives
        )
    _books_close(fleet, done)


def _books_close(fleet: ScaledFleet, done: ServiceRun) -> None:
    """Check lives against one another, against the changes and against the books of replicas."""
    scaling = fleet.scaling
    times = sorted({at_s for life in fleet.lives for at_s in (life.begin_s, life.end_s)})
    area_s = 0.0
    for begin_s, end_s in pairwise(times):
        held = [life for life in fleet.lives if life.begin_s <= begin_s and end_s <= life.end_s]
        assert len({life.place for life in held}) == len(held) <= scaling.most
        area_s += len(held) * (end_s - begin_s)
    assert area_s == pytest.approx(fleet.replica_s)
    for life in fleet.lives:
        assert life.begin_s <= life.ready_s <= life.leaving_s <= life.end_s <= done.end_s
    for before, after in pairwise(fleet.changes):
        assert before.after == after.before != after.after
    assert all(scaling.least <= change.after <= scaling.most for change in fleet.changes)
    occupied_s = sum(replica.ledger.tally.occupied_s for replica in done.replicas)
    assert occupied_s + fleet.starting_s <= fleet.replica_s + 1e-6


@pytest.mark.full
@settings(deadline=None, max_examples=60)
@given(services())
def test_lazy_and_stepped_runs_scale_alike(service: Service) -> None:
    with eager():
        assert not differences(service, replayed=False)
        lazy = service.run().scaled
    stepped = replace(service, lazy=False).run().scaled
    if lazy and stepped:
        assert lazy.changes == stepped.changes
        assert lazy.lives == stepped.lives
        assert lazy.waiting_starts == stepped.waiting_starts


@pytest.mark.parametrize("router", ["session_affinity", "most_cached"])
def test_sessions_lose_a_cache_and_no_turn(router: str) -> None:
    """Turns whose replica went are read again elsewhere; steps one by one scale alike."""
    changes = [
        *("requests.count=300", f"serving.router={router}", "requests.arrivals.rate_per_s=2"),
        *("serving.scaling.target=2", "serving.scaling.start_s=7", "serving.scaling.stable_s=20"),
    ]
    loaded = load(SCALED_DAY, changes)
    service = loaded.scenario.service(loaded.acceptance())
    lazy = service.run()
    stepped = replace(service, lazy=False).run()
    assert lazy.tally.finished == 300
    assert any(change.after < change.before for change in fleet_of(lazy).changes)
    assert fleet_of(lazy).changes == fleet_of(stepped).changes
    assert fleet_of(lazy).lives == fleet_of(stepped).lives
    assert cache_hits([one.memory for one in lazy.replicas]) == cache_hits(
        [one.memory for one in stepped.replicas]
    )


def test_who_is_refused_is_not_lost() -> None:
    """Of twenty at once a replica takes one and lets one wait; the others are turned away."""
    serving = {"admission": AdmissionControl(max_waiting=1)}
    tally = scaled(coming(*[1.0] * 20, 30, 31, 32), SMALL, serving=serving).run().tally
    assert (tally.arrived, tally.finished + tally.refused) == (23, 23)
    assert tally.refused >= 18


def test_who_comes_anew_has_an_empty_cache() -> None:
    """All prompts are alike: each life of the second place reads its first one whole."""
    drawn = [(at_s, 512, 10, 0) for at_s in (1, 1, 1, 1, 16, 30, *[60] * 4, 76, 77, 78)]
    policy = PrefillFirst(max_requests=1, watermark=0.0)
    memory = KVMemory(prefix_caching=True)
    done = scaled(drawn, SMALL, policy=policy, serving={"memory": memory}, kv_tokens=9_999).run()
    fleet = fleet_of(done)
    lives = [sum(life.place == place for life in fleet.lives) for place in (1, 2)]
    assert lives == [1, 2]
    hits = [replica.memory for replica in done.replicas]
    for count, cache in zip(lives, hits, strict=True):
        assert isinstance(cache, PrefixCache)
        alike = cache.asked_tokens // 512 - count
        assert cache.hit_tokens == alike * 496


def test_as_many_as_ever_is_a_fleet_that_stays() -> None:
    """``least == most`` is the run without scaling, to the last bit."""
    drawn = coming(0, 0, 1, 3, 3, 3, 8, 30)
    same = scaled(drawn, {"least": 3, "most": 3, "target": 1}, replicas=3)
    fixed = replace(same, serving=same.serving.model_copy(update={"scaling": None}))
    assert told(same.run()) == told(fixed.run())


# ---- in a scenario

DAY = "sessions_day_llama_3_1_8b_16xa100"
APART = (
    "serving.pools=[{role: prefill, policy: {name: chunked_prefill, max_requests: 16}}, "
    "{role: decode}]"
)
FILLED = "{least: 2, most: 16, target: 2, link: ethernet_25g}"


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        (["serving.replicas=1"], "serving.replicas", "serving.replicas=2"),
        (["serving.scaling.link=null"], "serving.scaling.link", "serving.scaling.start_s=60"),
        (
            ["serving.scaling.by=slo", "serving.scaling.target=0.9"],
            "serving.scaling.by",
            "slo={ttft_ms: {p99: 500}}",
        ),
        (
            [APART, "serving.handover={link: infiniband_ndr}", "serving.replicas=1"],
            "serving.scaling",
            "serving.scaling=null",
        ),
        (
            ["requests={arrivals: null, sessions: null}"],
            "serving.scaling",
            "requests.arrivals={name: poisson, rate_per_s: 1}",
        ),
    ],
)
def test_faults_and_their_remedies(changes: list[str], field: str, remedy: str) -> None:
    scaling = [f"serving.scaling={FILLED}", *changes]
    with pytest.raises(BadInput) as raised:
        load(DAY, scaling)
    assert field in {fault.field for fault in raised.value.faults}
    load(DAY, [*scaling, remedy])


def test_weights_of_a_replica_are_those_of_target_and_head() -> None:
    """16 GB of Llama-3.1-8B in bf16 and the EAGLE-3 head take 5.4 s over 25 Gbit/s."""
    scenario = load(DAY, [f"serving.scaling={FILLED}"]).scenario
    assert scenario.weight_bytes == pytest.approx(8.03e9 * 2, rel=0.06)
    carried_s = scenario.weight_bytes / 3.125e9
    assert scenario.start_s == pytest.approx(90 + carried_s, abs=1e-3)


def test_a_single_pool_that_does_both_may_scale() -> None:
    changes = ["serving.pools=[{role: both, replicas: 3}]", "serving.replicas=1"]
    serving = load(DAY, [f"serving.scaling={FILLED}", *changes]).scenario.serving
    assert serving.scaling
    assert (serving.replicas, serving.copies) == (3, 16)


# ---- what a place forgets


@pytest.mark.parametrize("kind", ["prefixes", "states", "tiers"])
def test_a_cache_forgets_what_nobody_has(kind: str) -> None:
    """Of two requests that begin alike one runs; what the other alone had is gone, and nothing
    counts as evicted or goes down.
    """
    tier = MemoryTier(name="host", link=Link(latency_us=0, bandwidth_gb_s=1))
    store = BlockStore(100)
    caches: dict[str, PrefixCache] = {
        "prefixes": PrefixCache(4, 100),
        "states": StateCache(4, 100),
        "tiers": TieredCache(4, 100, tiers=(TierLink(tier, store),), block_bytes=1.0),
    }
    cache = caches[kind]
    gone, running = (
        Request(index, 0.0, 16, 1, prefixes=(("system", 8), (f"turn {index}", 16)))
        for index in range(2)
    )
    for request in (gone, running):
        cache.hold(request, 16)
        request.cached = 16
        cache.share(request, 16)
    cache.keep(gone, 0)
    assert cache.idle
    cache.forget()
    assert not cache.idle
    assert not cache.idle_blocks
    assert not cache.evicted
    assert not store.blocks
    assert set(cache.runs) == {"system", "turn 1"}
    cache.keep(running, 0)
    cache.forget()
    assert not cache.runs
    assert cache.used == 0


# ---- what a run tells

SCALED_DAY = "scaled_day_llama_3_1_8b_16xa100"
SHORT = ("requests.count=60", "serving.scaling.start_s=20", "serving.scaling.target=0.5")


def test_a_run_tells_when_replicas_came_and_what_idle_ones_cost(tmp_path: Path) -> None:
    words = [word for change in SHORT for word in ("--set", change)]
    arguments = ["run", SCALED_DAY, *words, "--json", "--out", str(tmp_path / "report")]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    found = json.loads(done.stdout)
    simulated = found["simulated"]
    scaling = simulated["scaling"]
    assert simulated["replica_s"] == pytest.approx(
        simulated["mean_replicas"]
        * simulated["serving"]["requests"]
        / simulated["serving"]["littles_law"]["arrivals_per_s"]
    )
    devices = found["bill"]["usd"] / simulated["replica_s"]
    assert found["bill"]["idle_usd"] == pytest.approx(devices * simulated["idle_s"])
    assert set(scaling) == _documented("simulated.scaling")
    assert set(scaling["changes"][0]) == _documented("simulated.scaling.changes.*")
    lines = (tmp_path / "report/scaling.csv").read_text("utf-8").splitlines()
    assert lines[0] == "at_s,from,to,metric,why"
    assert len(lines) == 1 + len(scaling["changes"])
    page = (tmp_path / "report/report.md").read_text("utf-8")
    assert "by requests of a replica (target 0.5)" in page
    assert "of them for idle ones" in page


def test_a_run_tells_of_every_place_and_of_the_replicas_that_were_there() -> None:
    """Nothing is drawn of caches over time: most places are empty most of the time."""
    changes = ["requests.count=60", "serving.memory.prefix_caching=true", "requests.warm_up=20"]
    loaded = load(SCALED_DAY, [*SHORT, *changes])
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    scaling = outcome.scaling
    assert scaling
    assert len(outcome.replicas) == loaded.scenario.serving.copies == 16
    assert sum(replica.requests for replica in outcome.replicas) == 60
    assert outcome.cache == ()
    spent = expenses(loaded.scenario, outcome)
    assert spent
    assert spent.usd
    assert spent.usd_per_million_tokens == pytest.approx(spent.usd / outcome.tokens * 1e6)
    words = " ".join(sentences(run(loaded)))
    assert (scaling.least_replicas, scaling.most_replicas) == (2, 10)
    assert "; 2 to 10 replicas behind" in words


def _documented(title: str) -> set[str]:
    """The keys that the page on results has in a section."""
    page = Path("docs/reference/results.md").read_text("utf-8")
    section = page.split(f"\n## `{title}`\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_what_nobody_measured_is_said_with_its_range() -> None:
    (words,) = (line for line in cautions(load(SCALED_DAY).scenario) if "starts" in line)
    assert "a replica starts in 95.4 s" in words
    assert "assumed, 34 to 260 s" in words
    stated = load(SCALED_DAY, ["serving.scaling.start_s=20"]).scenario
    assert not [line for line in cautions(stated) if "starts" in line]


def test_explain_says_how_replicas_follow() -> None:
    words = explain(load(SCALED_DAY)).topics["scaling"]
    assert words.startswith("2 to 16 replicas; every 15 s a look compares requests of a replica")


def test_a_plan_sizes_a_fleet_that_stays() -> None:
    assert replicated(load(SCALED_DAY), 3).scenario.serving.scaling is None
