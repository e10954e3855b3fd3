"""The scheduler under arbitrary traffic: what is conserved at every event, and pipelines with steps
in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, inf
from typing import Any, ClassVar, Literal, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.metrics import BrokenRunError, Sketch, Tally
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Arrivals, Request
from simulator.core.serving.router import (
    CacheAware,
    Fleet,
    JoinShortestQueue,
    LeastOutstanding,
    MostCached,
    PrefixIndex,
    RoundRobin,
    Router,
    SessionAffinity,
)
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.step_times import StepTimes
from simulator.core.strategies import Strategy
from simulator.core.strategies.autoregressive import ONE_TOKEN, Autoregressive
from simulator.core.strategies.common.adaptive import OffAbove, WindowTable
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.step import Kind, Lanes, Progress, State, Step, Timeline
from simulator.core.strategies.common.traits import Needs, Traits
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.loading import variant


class Stages(NamedTuple):
    """Seconds in each stage."""

    stage: float


class Pipeline(Strategy):
    """One token a step, handed from stage to stage; as many steps under way as there are stages."""

    name: Literal["pipeline"] = "pipeline"
    traits: ClassVar[Traits] = Traits(Stages, "T_step = m T_stage")
    depth: int = 3

    @classmethod
    def example(cls) -> Example:
        return Example(cls(), StatedDurations(target_ms=9.0))

    def claim(self, *conditions: Any) -> Claim:
        return EXACT

    @property
    def needs(self) -> Needs:
        return super().needs._replace(in_flight=self.depth)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        rows = Rows.decode(1, sum(state.context for state in states), len(states))
        return Step(Kind("step", 0, len(states), prompts=prompts.sequences), rows, 0, prompts)

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        return {"stage": Phase(cost.target(step.rows + step.prompts).wall_s / self.depth, {})}

    def timeline(self, lanes: Lanes, durations: Any, kind: Kind) -> Timeline:
        for lane in lanes.stages:
            yield lane.start(durations.stage, "decode")

    def step_seconds(self, durations: Any, kind: Kind) -> Any:
        return durations.stage * self.depth

    def settle(self, states: Sequence[State]) -> list[Progress]:
        for state in states:
            state.context += 1
        return [ONE_TOKEN] * len(states)


class Inbox:
    """Requests come from outside, one by one."""

    exhausted = False
    next_s = inf

    def __init__(self) -> None:
        self.fresh: list[Request] = []

    def due(self, now: float) -> list[Request]:
        fresh, self.fresh = self.fresh, []
        return fresh

    def ended(self, request: Request) -> None:
        pass


ROUTERS: list[Router] = [
    RoundRobin(),
    LeastOutstanding(),
    JoinShortestQueue(),
    MostCached(),
    SessionAffinity(),
    CacheAware(),
    PrefixIndex(),
]
STRATEGIES: list[Strategy] = [
    Autoregressive(),
    VanillaSD(gamma=3),
    VanillaSD(
        gamma=4,
        adaptive=WindowTable(name="table", windows={2: 2, 3: 0, 4: 1}),
        bonus_on_full_accept=False,
    ),
    MirrorSD(gamma=3),
    MirrorSD(gamma=3, others="proceed", adaptive=OffAbove(name="off_above", requests=2)),
    MirrorSD(gamma=2, fallback="undrafted", message="first_position"),
    Pipeline(depth=3),
]
LONGEST = 40
"""Tokens of the longest request, prompt and output together."""
policies = st.one_of(
    st.builds(FixedBatch, max_requests=st.one_of(st.none(), st.integers(1, 5))),
    st.builds(
        PrefillFirst,
        name=st.just("prefill_first"),
        max_requests=st.integers(1, 5),
        batch_tokens=st.integers(LONGEST, 90),
    ),
    st.builds(
        ChunkedPrefill,
        name=st.just("chunked_prefill"),
        max_requests=st.integers(1, 5),
        chunk_tokens=st.integers(1, 30),
    ),
    st.builds(
        UnifiedBudget,
        name=st.just("unified_budget"),
        max_requests=st.integers(1, 5),
        budget_tokens=st.integers(1, 30),
    ),
)
durations = StatedDurations(
    prefix_ms=8,
    suffix_ms=8,
    draft_ms=9,
    redraft_ms=5,
    rv_ee_ms=1,
    rv_fv_ms=1,
    prefill_ms=20,
    draft_prefill_ms=4,
)


class Traffic(RuleBasedStateMachine):
    """Arrivals and cancellations at any time, one replica or several; after every event the books
    must balance.
    """

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        policy=policies,
        block=st.sampled_from([1, 4, 16]),
        spare=st.sampled_from([0, 0, 1, 2, 5, 12, 40]),
        kept=st.lists(st.integers(0, 4), min_size=1, max_size=5),
        off=st.lists(st.booleans(), min_size=1, max_size=3),
        replicas=st.sampled_from([1, 1, 2, 3]),
        router=st.sampled_from(ROUTERS),
    )
    def begin(
        self,
        strategy: Strategy,
        policy: Policy,
        block: int,
        spare: int,
        kept: list[int],
        off: list[bool],
        replicas: int,
        router: Router,
    ) -> None:
        total = 1
        while policy.refusal(LONGEST, strategy.needs.cache_tokens, Blocks(block, total)):
            total += 1
        first, self.inbox = World(), Inbox()
        self.worlds = [first, *(World(None, first.environment) for _ in range(replicas - 1))]
        self.environment = first.environment
        self.fleet = Fleet(self.inbox, router, self.environment)
        cost = StatedCost(durations, strategy.needs.draft_steps)
        acceptance = Cycle(tuple(kept), tuple(off))
        self.log: list[Iteration] = []
        self.replicas = []
        for world in self.worlds:
            memory, exit = Blocks(block, total + spare), early_exit(strategy, None)
            one = Scheduler(
                strategy, acceptance, exit, self.fleet, cost, policy, memory, log=self.log.append
            )
            in_flight = strategy.needs.in_flight
            stages = tuple(
                world.lane(f"stage {i}") for i in range(in_flight if in_flight > 1 else 0)
            )
            lanes = Lanes(
                world.lane("target"), world.lane("draft"), world.lane("rendezvous"), stages
            )
            for _ in range(in_flight):
                self.environment.process(one.run(world, lanes))
            self.replicas.append(one)
        self.fleet.open(self.replicas)
        self.requests: list[Request] = []
        self.owner: dict[int, Scheduler] = {}
        self.cancelled: set[int] = set()
        self.seen: dict[int, int] = {}

    @rule(
        crowd=st.lists(
            st.tuples(st.integers(1, LONGEST), st.integers(2, 28)), min_size=1, max_size=6
        )
    )
    def arrive(self, crowd: list[tuple[int, int]]) -> None:
        for prompt, output in crowd:
            request = Request(
                len(self.requests), self.environment.now, min(prompt, LONGEST - output), output
            )
            self.requests.append(request)
            self.inbox.fresh.append(request)
        self.fleet.dispatch()
        for replica in self.replicas:
            self.owner |= {request.index: replica for request in replica.queues.waiting}

    @rule(milliseconds=st.integers(0, 120))
    def wait(self, milliseconds: int) -> None:
        until = self.environment.now + milliseconds * 1e-3
        self.play(until)
        self.environment.run(until=max(until, self.environment.now + 1e-9))

    def play(self, until: float) -> None:
        """Event by event, with the books after each; as many events as any sane schedule needs, and
        no more.
        """
        for _ in range(20_000):
            if self.environment.peek() > until or self.environment.peek() == inf:
                return
            self.environment.step()
            self.books()
        raise AssertionError("time does not pass, or requests are preempted for ever")

    @precondition(lambda self: any(not request.gone for request in getattr(self, "requests", [])))
    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        alive = [request for request in self.requests if not request.gone]
        request = alive[which % len(alive)]
        self.cancelled.add(request.index)
        self.owner[request.index].cancel(request, self.environment.now)

    @invariant()
    def balanced(self) -> None:
        if hasattr(self, "fleet"):
            self.books()

    def books(self) -> None:
        for replica in self.replicas:
            self.books_of(
                replica,
                [request for request in self.requests if self.owner.get(request.index) is replica],
            )
        for request in self.requests:
            assert self.seen.get(request.index, 0) <= request.tokens <= request.output_tokens
            self.seen[request.index] = request.tokens

    def books_of(self, scheduler: Scheduler, requests: list[Request]) -> None:
        queues, memory, tally = scheduler.queues, scheduler.memory, scheduler.ledger.tally
        assert memory.used == sum(request.blocks for request in queues.running) <= memory.total
        assert all(request.blocks == 0 for request in queues.waiting)
        for request in queues.running:
            held = request.cached if request.state is None else request.state.context
            assert held <= request.slots == request.blocks * memory.block_tokens
        present = [*queues.waiting, *queues.running]
        assert len(present) == len({request.index for request in present})
        alive = {request.index for request in requests if not request.gone}
        assert alive <= {request.index for request in present}, (
            "nobody is lost, nobody is somewhere else"
        )
        assert tally.in_system == len(alive)
        assert tally.shown + tally.first_tokens == sum(request.tokens for request in requests)
        taking_part = [
            request.index
            for iteration in scheduler.under_way
            for request in (*iteration.decode, *(r for r, _ in iteration.prompts))
        ]
        assert len(taking_part) == len(set(taking_part)), (
            "steps under way are over disjoint requests"
        )
        waiting = {request.index for request in requests if request.cursor is None} - self.cancelled
        admitted = {request.index for request in requests if request.cursor is not None}
        assert not {index for index in waiting if index < max(admitted, default=-1)}, (
            "nobody is admitted before who came earlier"
        )

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        self.inbox.exhausted = True
        for one in self.replicas:
            one.ring()
        self.play(inf)
        for one in self.replicas:
            one.check()
        whole = Tally.pooled([replica.ledger.tally for replica in self.replicas])
        whole.check()
        assert whole.tokens + whole.thrown_away == sum(request.tokens for request in self.requests)
        for request in self.requests:
            assert (request.tokens == request.output_tokens) != (request.index in self.cancelled), (
                "everybody is served"
            )
        for lane in (lane for world in self.worlds for lane in world.lanes.values()):
            for before, after in pairwise(lane.spans):
                assert before[1] <= after[0] + 1e-12, f"{lane.name} is booked twice"
        waited = sum(
            r.finished_s - r.arrival_s for r in self.requests if r.index not in self.cancelled
        )
        assert whole.e2e.total == pytest.approx(waited)
        for iteration in self.log:
            assert len(iteration.requests) == len(iteration.rows) == len(iteration.tokens)
        self.log_adds_up()

    def log_adds_up(self) -> None:
        """What the log says a request got is what it got, but for what lies past its end or came
        after it had left.
        """
        got = dict.fromkeys(range(len(self.requests)), 0)
        for iteration in self.log:
            for index, tokens in zip(iteration.requests, iteration.tokens, strict=True):
                got[index] += tokens
        for request in self.requests:
            if request.index not in self.cancelled:
                assert (
                    request.output_tokens
                    <= got[request.index]
                    <= request.output_tokens + self.replicas[0].strategy.window
                )


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


class TestMoreTraffic(TestTraffic):
    """The same for longer."""

    settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
    pytestmark = pytest.mark.full


# ---- steps in flight


def pipeline(count: int, depth: int, output: int) -> tuple[list[Iteration], World, Scheduler]:
    world, log = World(), []
    stages = tuple(world.lane(f"stage {i}") for i in range(1, depth + 1))
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"), stages)
    cost = StatedCost(StatedDurations(target_ms=1000.0 * depth))
    source = Arrivals([Request(index, 0.0, 4, output) for index in range(count)])
    scheduler = Scheduler(
        Pipeline(depth=depth), Cycle((0,)), None, source, cost, FixedBatch(), log=log.append
    )
    for _ in range(depth):
        world.environment.process(scheduler.run(world, lanes))
    world.environment.run()
    scheduler.check()
    return log, world, scheduler


def test_as_many_steps_as_stages_are_under_way_over_disjoint_requests() -> None:
    """Six requests in three groups of two: each stage is handed from group to group without a
    gap.
    """
    log, world, _ = pipeline(count=6, depth=3, output=4)
    steps = [
        (one.start_s, one.start_s + one.duration_s, one.requests)
        for one in log
        if one.kind == "step"
    ]
    assert steps == [
        (0, 3, (0, 1)),
        (0, 4, (2, 3)),
        (0, 5, (4, 5)),
        (3, 6, (0, 1)),
        (4, 7, (2, 3)),
        (5, 8, (4, 5)),
        (6, 9, (0, 1)),
        (7, 10, (2, 3)),
        (8, 11, (4, 5)),
    ]
    assert world.lanes["stage 1"].spans == [(float(i), float(i + 1), "decode") for i in range(9)]


def test_one_request_alone_leaves_a_pipeline_empty() -> None:
    log, world, scheduler = pipeline(count=1, depth=4, output=5)
    assert [iteration.duration_s for iteration in log if iteration.kind == "step"] == [4.0] * 4
    assert scheduler.ledger.tally.tpot.mean == pytest.approx(4.0)
    assert world.lanes["stage 1"].busy_s == pytest.approx(4.0)


def test_two_requests_that_need_the_same_room_do_not_push_themselves_out_for_ever() -> None:
    """While the younger one is in flight the older one waits for it instead of giving its own
    prompt up.
    """
    world, log = World(), []
    lanes = Lanes(
        *(world.lane(name) for name in ("target", "draft", "rendezvous")),
        tuple(map(world.lane, "abc")),
    )
    source = Arrivals([Request(0, 0.0, 19, 13), Request(1, 0.01, 19, 9)])
    policy, cost = UnifiedBudget(budget_tokens=17), StatedCost(durations)
    scheduler = Scheduler(
        Pipeline(depth=3), Cycle((0,)), None, source, cost, policy, Blocks(1, 40), log=log.append
    )
    for _ in range(3):
        world.environment.process(scheduler.run(world, lanes))
    for _ in range(5_000):
        if world.environment.peek() == inf:
            break
        world.environment.step()
    scheduler.check()
    assert scheduler.ledger.tally.finished == 2
    assert scheduler.ledger.tally.preemptions == 1
    ends = {index: max(one.start_s for one in log if index in one.requests) for index in (0, 1)}
    assert ends[0] < ends[1]


def test_a_replay_follows_one_iteration_at_a_time() -> None:
    _, _, scheduler = pipeline(count=1, depth=2, output=2)
    with pytest.raises(ValueError, match="one iteration at a time"):
        scheduler.replay()


# ---- the run checks itself


def test_a_run_that_contradicts_itself_is_a_fault() -> None:
    _, _, scheduler = pipeline(count=2, depth=2, output=3)
    scheduler.ledger.tally.system_s += 1e-3
    with pytest.raises(BrokenRunError, match="Little's law"):
        scheduler.check()
    scheduler.ledger.tally.system_s -= 1e-3
    scheduler.ledger.tally.shown += 1
    with pytest.raises(BrokenRunError, match="tokens are not conserved"):
        scheduler.check()
    scheduler.ledger.tally.shown -= 1
    scheduler.memory.used = 1
    with pytest.raises(BrokenRunError, match="blocks are still in use"):
        scheduler.check()


def test_an_idle_system_waits_for_the_next_arrival_on_both_clocks() -> None:
    ends = []
    for replayed in (False, True):
        world = World()
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        source = Arrivals([Request(0, 1.0, 4, 3), Request(1, 50.0, 4, 2)])
        scheduler = Scheduler(
            Autoregressive(),
            Cycle((0,)),
            None,
            source,
            StatedCost(StatedDurations(target_ms=1000)),
            FixedBatch(),
        )
        if replayed:
            ends.append(scheduler.replay())
        else:
            world.environment.process(scheduler.run(world, lanes))
            world.environment.run()
            ends.append(world.now)
        scheduler.check()
        assert scheduler.ledger.tally.area_s == pytest.approx(2 + 1)
    assert ends == [51.0, 51.0]


def test_quantiles_of_a_sketch_are_within_half_a_per_cent() -> None:
    sketch = Sketch()
    for value in range(1, 10_001):
        sketch.add(value / 7)
    sketch.add(0.0, 10)
    held = [0.0] * 10 + [value / 7 for value in range(1, 10_001)]
    for share in (0.01, 0.5, 0.9, 0.99):
        assert sketch.quantile(share) == pytest.approx(
            held[ceil(share * len(held)) - 1], rel=0.00501
        )
    assert (sketch.quantile(0.0), sketch.quantile(1.0), sketch.least) == (0.0, 10_000 / 7, 0.0)
    assert len(sketch.buckets) < 1_000
    assert Sketch().quantile(0.5) == Sketch().mean == 0.0


@pytest.mark.parametrize(
    "name", ["vanilla_llama_2_7b_a100", "mirror_qwen3_32b_a100", "methods_vicuna_7b_a100"]
)
def test_steps_priced_for_many_contexts_at_once_take_what_each_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit."""
    short = {"requests.count": 3, "requests.concurrency": 1, "requests.output_tokens": 300}
    one = variant(load(name), short)
    listed, _ = simulate(one.scenario, one.acceptance())
    monkeypatch.setattr(StepTimes, "block", lambda self, step: None)
    alone, _ = simulate(one.scenario.replace(), one.acceptance())
    assert listed.kinds == alone.kinds
    assert (listed.end_s, listed.step_s) == (alone.end_s, alone.step_s)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(2, 9)), min_size=1, max_size=8),
    st.integers(1, 3),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
)
def test_rounds_of_the_same_requests_are_what_planning_them_anew_gives(
    arriving: list[tuple[int, int]], places: int, kept: list[int]
) -> None:
    """Whoever arrives, also at the very end of a round, waits for a place or leaves is met as by a
    plan for every round.
    """

    def ends(planned: bool) -> list[tuple[int, float]]:
        requests = [
            Request(index, at * 1e-2, 4, output)
            for index, (at, output) in enumerate(sorted(arriving))
        ]
        world, finished = World(), []
        scheduler = Scheduler(
            VanillaSD(gamma=4),
            Cycle(tuple(kept)),
            None,
            Arrivals(requests),
            StatedCost(StatedDurations(target_ms=6.0, draft_step_ms=1.0, prefill_ms=10.0), 4),
            FixedBatch(max_requests=places),
            finished=lambda request: finished.append((request.index, request.finished_s)),
        )
        if planned:
            scheduler._fixed = False
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        world.environment.process(scheduler.run(world, lanes))
        world.environment.run()
        scheduler.check()
        return finished

    assert ends(False) == ends(True)


def served(
    strategy: VanillaSD, kept: int, outputs: Sequence[int], places: int, replayed: bool
) -> list[tuple[float, float]]:
    """Return the times to the first and the last token, in ms, of requests that come together."""
    world, finished = World(), []
    requests = [Request(index, 0.0, 4, output) for index, output in enumerate(outputs)]
    durations = StatedDurations(
        target_ms=6.0, draft_step_ms=1.0, prefill_ms=10.0, draft_prefill_ms=4.0
    )
    cost, policy = StatedCost(durations, 4), FixedBatch(max_requests=places)
    scheduler = Scheduler(
        strategy,
        Cycle((kept,)),
        None,
        Arrivals(requests),
        cost,
        policy,
        Blocks(4, 40),
        finished=finished.append,
    )
    if replayed:
        scheduler.replay()
    else:
        lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
        world.environment.process(scheduler.run(world, lanes))
        world.environment.run()
    scheduler.check()
    assert scheduler.ledger.tally.tokens == sum(outputs)
    return [(request.first_token_s * 1e3, request.finished_s * 1e3) for request in finished]


@pytest.mark.parametrize("replayed", [False, True])
def test_the_first_token_comes_with_the_first_verification(replayed: bool) -> None:
    """Windows of 4, 2 kept: the draft reads (4 ms) and writes 3 more, then the target reads (10
    ms); steps take 10 ms.

    Three tokens are shown at 17 ms, three at 27 and the last at 37; by a prefill of its own one at
    10 ms and 3 in a step.
    """
    first = VanillaSD(gamma=4, drafts_first=True)
    assert served(first, 2, [7], 1, replayed) == [pytest.approx((17.0, 37.0), rel=1e-9)]
    assert served(VanillaSD(gamma=4), 2, [7], 1, replayed) == [
        pytest.approx((10.0, 30.0), rel=1e-9)
    ]
    assert served(first, 4, [2], 1, replayed) == [pytest.approx((17.0, 17.0), rel=1e-9)]
    two = [pytest.approx((17.0, 17.0), rel=1e-9), pytest.approx((17.0, 27.0), rel=1e-9)]
    assert served(first, 2, [3, 6], 2, replayed) == two


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5), st.integers(1, 3))
def test_first_windows_take_as_long_in_events_as_by_the_law(
    outputs: list[int], kept: int, places: int
) -> None:
    strategy = VanillaSD(gamma=4, drafts_first=True)
    by_law = served(strategy, kept, outputs, places, True)
    for ours, theirs in zip(served(strategy, kept, outputs, places, False), by_law, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)
