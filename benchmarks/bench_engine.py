"""How close a strategy's step comes to the fewest events it could have, and how many tokens a
second that makes.

E = bookings of the step / (time of the step / time of one bare SimPy timeout)

A booking is a stretch of a lane as found in the spans, all of which are written down: an engine has
to end each of them, by an event if it knows nothing ahead. Events that are really scheduled may be
fewer, as bookings behind one another on one lane wait for the last. Acceptance and the bookkeeping
of requests are left out: only the timeline runs.

Tokens a second are counted twice: of one request whose recorded acceptance is judged window by
window between its steps, without pricing and books; and of a whole simulation of a batch, books and
all. Both keep all spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from figures import Figure, at_least, bare_timeouts, in_loops, show, turns
from simpy import Event

from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Cycle, odds_of
from simulator.core.cost.protocol import Cost
from simulator.core.strategies import Strategy, strategies
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.capabilities import line_of
from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.core.strategies.common.step import Kind, Lanes
from simulator.core.world import World
from simulator.papers.specpipe.filled_pipeline import FilledPipeline
from simulator.papers.specpipe.levels import FillDetail
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.loading import variant

TITLE = "Event engine"
STEPS, ROUNDS, TOKENS = 2_000, 40, 50_000
MOST_TIMEOUTS = 1.2
"""Bare timeouts that a token may take: a million a CPU second where a timeout takes 0.85
microseconds.
"""
STAGES = 8
LOADED = load("vanilla_qwen3_32b_a100")
BATCH = {
    "requests.concurrency": 64,
    "requests.count": 128,
    "requests.prompt_tokens": 64,
    "requests.output_tokens": 257,
}
PASSES = ((4.0,) * STAGES, (0.5,) * (STAGES - 1))
MIRROR = {
    "prefix": 18.0,
    "rv_ee": 0.05,
    "suffix": 18.0,
    "draft": 12.0,
    "rv_fv": 0.05,
    "redraft": 12.0,
}
LEVEL = PipelineTimes(*PASSES, prune=0.1, token=0.1, draft=3.0)


class Case(NamedTuple):
    """A step: its durations and kind."""

    strategy: str
    durations: tuple[Any, ...]
    kind: Kind
    note: str = ""
    stages: int = STAGES


def case_of(name: str) -> Case:
    """Return a step of a strategy's own example, of the first kind that its law names."""
    example = strategies()[name].example()
    strategy = example.strategy_for(1)
    cost = example.cost_of(strategy)
    odds = odds_of(strategy.reads(Cycle((strategy.window,))), early_exit(strategy, None))
    kind = next(iter(strategy.law(cost, odds, 1, 100).kinds))
    return Case(
        name,
        tuple(strategy.durations(cost, strategy.step(kind, 100))),
        kind,
        ", its example",
        cost.stages,
    )


CASES = [
    Case("autoregressive", (36.0,), Kind("step", 0, bare=1)),
    Case("vanilla_sd", (12.0, 0.0, 36.0), Kind("step", 1)),
    Case("vanilla_sd", (12.0, 0.05, 36.0), Kind("step", 1), ", two devices"),
    Case("mirror_sd", tuple(MIRROR.values()), Kind("reuse", 1), ", reuse"),
    Case("mirror_sd", tuple(MIRROR.values()), Kind("fallback", 1, redrafts=1), ", fallback"),
    Case("tree_sd", (4.0, 1.0, 20.0), Kind("step", 1)),
    Case("speculative_streaming", (20.0, 1.0, 8.0, 2.0), Kind("step", 1)),
    Case("duodecoding", (20.0, 18.0, 0.1, 0.0, 0.1), Kind("warm", 1)),
    Case("specpipe", (*PASSES, 0.1, 3.0), Kind("token", 1, detail=FillDetail(STAGES, 1))),
    Case(
        "specpipe_tandem",
        (LEVEL.pace, LEVEL.latency, (LEVEL,)),
        Kind("token", 1, detail=FillDetail(1, 1)),
    ),
    Case("pipeline", (*PASSES, 0.1), Kind("step", 0, bare=1)),
    Case("pipeline_tree", (8.0, *PASSES, 0.1), Kind("step", 1)),
]
CASES += [case_of(name) for name in strategies() if name not in {case.strategy for case in CASES}]
"""Steps with round numbers, and for every strategy that has none here a step of its own example."""


def made(name: str, stages: int = STAGES) -> Strategy:
    """Return a strategy with the settings of its example, on so many stages."""
    return strategies()[name].example().strategy.fitted_to(stages=stages)


def world_of(
    strategy: Strategy, cost: Cost | None = None, count: int = STAGES
) -> tuple[World, Lanes]:
    """All lanes that a strategy may ask for."""
    world = World()
    stages = tuple(world.lane(f"s {number}") for number in range(count))
    links = tuple(world.lane(f"l {number}") for number in range(count - 1))
    lanes = Lanes(
        world.lane("target"), world.lane("draft"), world.lane("rendezvous"), stages, links
    )
    line = line_of(strategy, cost, lanes) if cost else None
    return world, lanes._replace(line=line)


class Steps:
    """So many steps of a case, again and again, spans kept."""

    def __init__(self, case: Case, count: int = STEPS) -> None:
        self.strategy, self.kind, self.count, self.stages = (
            made(case.strategy, case.stages),
            case.kind,
            count,
            case.stages,
        )
        self.durations = self.strategy.traits.durations(*case.durations)
        self.cost = (
            load("specpipe_llama_3_1_70b_8x3090").scenario.cost
            if isinstance(self.strategy, FilledPipeline)
            else None
        )

    def __call__(self) -> World:
        world, lanes = world_of(self.strategy, self.cost, self.stages)
        strategy, durations, kind, count = self.strategy, self.durations, self.kind, self.count

        def request() -> Iterator[Event]:
            for _ in range(count):
                yield from strategy.timeline(lanes, durations, kind)

        world.environment.process(request())
        world.environment.run()
        return world

    @property
    def bookings(self) -> float:
        """Of one step."""
        world = self()
        return (
            sum(begin < world.now for lane in world.lanes.values() for begin, _, _ in lane.spans)
            / self.count
        )


def decode(strategy: Strategy, durations: Any, tokens: int = TOKENS) -> None:
    """So many tokens of one request after another from a recording."""
    acceptance: Any = LOADED.acceptance()
    world, lanes = world_of(strategy)
    proposal, exit = Chain(strategy.window), early_exit(strategy, None)
    kinds = {True: Kind("reuse", 1), False: Kind("fallback", 1, redrafts=1)}
    reuses = getattr(strategy, "reuses", lambda verdict, proposed: True)

    def requests() -> Iterator[Event]:
        done, number, kind = 0, 0, kinds[True]
        while done < tokens:
            cursor, end = acceptance.cursor(number, exit), done + acceptance.length(number)
            while done < end:
                yield from strategy.timeline(lanes, durations, kind)
                verdict = cursor.judge(proposal)
                done += verdict.committed
                kind = kinds[reuses(verdict, proposal.tokens)]
            number += 1

    world.environment.process(requests())
    world.environment.run()


def efficiency(case: Case, rounds: int = ROUNDS, count: int = STEPS) -> float:
    """E by the quickest rounds of each, taken turn by turn."""
    work = Steps(case, count)
    step, bare = map(min, zip(*turns([work, lambda: bare_timeouts(count)], rounds), strict=True))
    return work.bookings / (step / bare)


def figures() -> list[Figure]:
    """Every strategy's E, and tokens a second of the chains."""
    found = [
        at_least(f"E of {case.strategy}{case.note}", efficiency(case), 0.7, "{:.2f}")
        for case in CASES
    ]
    for name, settings, times in (
        ("vanilla_sd", {"gamma": 4}, (12.0, 0.0, 36.0)),
        ("vanilla_sd", {"gamma": 7}, (12.0, 0.0, 36.0)),
        ("mirror_sd", {"gamma": 7}, tuple(MIRROR.values())),
    ):
        strategy = strategies()[name].model_validate(settings)
        durations = strategy.traits.durations(*times)
        # called here
        takes = turns([lambda: decode(strategy, durations)], 9)
        best = min(seconds for (seconds,) in takes)
        rate = at_least(
            f"tokens a CPU second: {name}, gamma {settings['gamma']}, spans kept",
            TOKENS / best,
            None,
        )
        found.append(in_loops(rate, best / TOKENS, MOST_TIMEOUTS))
    base = variant(
        LOADED,
        {
            "durations": {"prefix_ms": 15.0, "suffix_ms": 15.0, "draft_step_ms": 2.0},
            "target": None,
            "draft": None,
        }
        | BATCH,
    )
    for name, gamma in (("vanilla_sd", 4), ("vanilla_sd", 7), ("mirror_sd", 7)):
        one, tokens = variant(base, {"strategy": {"name": name, "gamma": gamma}}), 128 * 256
        best = min(
            seconds
            for (seconds,) in turns([lambda: simulate(one.scenario, one.acceptance(), 1 << 40)], 5)
        )
        rate = at_least(
            f"tokens a CPU second: {name}, gamma {gamma}, a batch of 64, books and spans kept",
            tokens / best,
            None,
        )
        found.append(in_loops(rate, best / tokens, MOST_TIMEOUTS))
    return found


if __name__ == "__main__":
    show(TITLE, figures())
