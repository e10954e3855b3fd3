"""How quickly a pipeline full of a draft tree is simulated, on recorded hits: SpecPipe,
Llama-3.1-70B on eight RTX 3090.

By stage (``specpipe_tandem``) and by step (``specpipe``) only the timeline runs, as in
bench_engine: acceptance, pricing and the books of requests are left out. All times are taken turn
by turn in one process; the quickest count.

E = bookings of a token / (time of a token / time of one bare SimPy timeout). A booking is one
stretch of a stage that computes or of a link that carries, as found in the spans: an engine that
lets each stage and link block on its own has to end each of them, by an event if it knows nothing
ahead. Events that are really scheduled: one a token by stage, one a step by step. The replay looks
all steps up at once. The live tree is grown by a draft that is a table of random choices, and its
step includes asking it: one level appended, or one appended and the tree pruned.

Goals: 60,000 tokens a second by stage with E >= 0.7, 500,000 by step in the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from figures import Figure, at_least, bare_timeouts, in_loops, show, turns
from simpy import Event

from benchmarks.family.draft_tree import Floats, Ints, TravellingTree
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.tree_replay import recorded_beams
from simulator.core.serving.scheduler import TURNS
from simulator.core.strategies.common.capabilities import line_of
from simulator.core.strategies.common.step import Kind, Lanes
from simulator.core.world import World
from simulator.papers.specpipe.replay import StepTables, token_seconds
from simulator.papers.specpipe.specpipe_tandem import SpecPipeTandem
from simulator.papers.specpipe.strategy import SpecPipe
from simulator.scenario import load

TITLE = "A pipeline of 8 stages, w = 64"
TOKENS, ROUNDS = 20_000, 7
LOADED = load("specpipe_llama_3_1_70b_8x3090")
COST, CONTEXT, BEAM = LOADED.scenario.cost, LOADED.scenario.mean_context, Beam(64, 16, 8)
Steps = list[tuple[Any, Kind]]


def priced(strategy: SpecPipe) -> Steps:
    """Durations and kind of every step of ``TOKENS`` recorded tokens, one request after another."""
    acceptance, prices, steps, request, tokens = LOADED.acceptance(), {}, Steps(), 0, 0
    output = LOADED.scenario.requests.output_tokens
    while tokens < TOKENS:
        state, mine = strategy.open(acceptance.cursor(request, None), CONTEXT), 0
        while mine < output and tokens < TOKENS:
            step = strategy.compose([state])
            if step not in prices:
                prices[step] = strategy.durations(COST, step)
            steps.append((prices[step], step.kind))
            state.context = CONTEXT
            done = strategy.settle([state])[0].verified
            mine, tokens = mine + done, tokens + done
        request += 1
    return steps


def on_events(strategy: SpecPipe, steps: Steps, spans: int | None = 0) -> World:
    """Let all steps pass; spans are written and forgotten as in a run, unless ``spans`` is None."""
    world = World(spans)
    lanes = Lanes(
        world.lane("target"),
        world.lane("draft"),
        world.lane("rendezvous"),
        tuple(world.lane(f"stage {number}") for number in range(BEAM.stages)),
        tuple(world.lane(f"link {number}") for number in range(BEAM.stages - 1)),
    )
    lanes = lanes._replace(line=line_of(strategy, COST, lanes))

    def request() -> Iterator[Event]:
        for turn, (durations, kind) in enumerate(steps):
            yield from strategy.timeline(lanes, durations, kind)
            if not turn % TURNS:
                world.forget()

    world.environment.process(request())
    world.environment.run()
    return world


def bookings(strategy: SpecPipe, steps: Steps) -> float:
    """Stretches of computing and carrying that began, for each token."""
    world = on_events(strategy, steps, None)
    spans = (span for lane in world.lanes.values() for span in lane.spans)
    return (
        sum(label in {"compute", "transmit"} and begin < world.now for begin, _, label in spans)
        / TOKENS
    )


class Choices:
    """A draft whose choices are looked up in a table by a hash of the path."""

    def __init__(self, nodes: int = 1 << 14) -> None:
        random = np.random.default_rng(1)
        self.tokens = random.random((nodes, 64)).argsort(axis=1)[:, : BEAM.branching]
        odds = random.dirichlet(np.full(BEAM.branching, 0.1), nodes) + 1e-9
        self.chance = -np.sort(-np.log(odds), axis=1)

    def read(self, parents: Ints, tokens: Ints) -> Ints:
        return (parents * 31 + tokens * 17 + 7) % len(self.tokens)

    def children(self, keys: Ints, count: int) -> tuple[Ints, Floats]:
        return self.tokens[keys, :count], self.chance[keys, :count]


def text(choices: Choices, tokens: int) -> list[int]:
    """What the target says: mostly the draft's first choices, one token in 33 none of its 16."""
    random, key, said = np.random.default_rng(2), np.array(0), []
    for rank in np.where(
        random.random(tokens) < 0.97, np.minimum(random.geometric(0.85, tokens) - 1, 15), -1
    ):
        said.append(int(choices.tokens[key, rank]) if rank >= 0 else 64)
        key = choices.read(key, np.array(said[-1]))
    return said


def live_tree(choices: Choices, said: list[int]) -> int:
    """Pipeline steps of a tree of 64 nodes a level over eight stages, grown and pruned as a text is
    verified.
    """
    tree = TravellingTree(0, 0, choices, BEAM)
    return sum(tree.verify(token).steps for token in said)


def replay() -> tuple[int, Callable[[], object]]:
    """Tokens of the recorded tree, all recordings as one, and the vectorised replay of them."""
    strategy = SpecPipe(stages=BEAM.stages)
    trace = LOADED.acceptance().replay.trace
    index = recorded_beams(trace).index(BEAM)
    steps, hit, rows = (
        trace.extra[f"beam.{name}"][index].astype(np.int64) for name in ("steps", "hit", "rows")
    )
    told = steps > 0
    tables = StepTables.of(strategy, COST, CONTEXT)
    return int(told.sum()), lambda: token_seconds(
        tables, steps[told], rows[:, told], hit[told].astype(bool)
    )


def figures() -> list[Figure]:
    """Tokens a second of each way, and E of those on events."""
    tandem, barrier, choices = (
        SpecPipeTandem(stages=BEAM.stages),
        SpecPipe(stages=BEAM.stages),
        Choices(),
    )
    by_stage, by_step, said = priced(tandem), priced(barrier), text(choices, 2_000)
    replayed, vectorised = replay()
    works: dict[str, tuple[Callable[[], object], float, float | None, float | None]] = {
        "by stage, each blocks on its own": (
            lambda: on_events(tandem, by_stage),
            TOKENS,
            20,
            bookings(tandem, by_stage),
        ),
        "by step, on events": (
            lambda: on_events(barrier, by_step),
            TOKENS,
            None,
            bookings(barrier, by_step),
        ),
        "by step, vectorised replay": (vectorised, replayed, 2.4, None),
        "the tree itself, live, w = 64": (lambda: live_tree(choices, said), len(said), None, None),
    }
    rounds = list(
        turns([*(work for work, *_ in works.values()), lambda: bare_timeouts(TOKENS)], ROUNDS)
    )
    found, timeout = [], min(round_[-1] for round_ in rounds) / TOKENS
    for place, (name, (_, tokens, most, booked)) in enumerate(works.items()):
        seconds = min(round_[place] for round_ in rounds) / tokens
        found.append(
            in_loops(at_least(f"tokens a CPU second: {name}", 1 / seconds, None), seconds, most)
        )
        if booked is not None:
            found.append(at_least(f"E: {name}", booked / (seconds / timeout), 0.7, "{:.2f}"))
    steps = live_tree(choices, said)
    live = min(round_[3] for round_ in rounds) / steps * 1e6
    step = at_least("microseconds of a live pipeline step of the tree", live, None)
    return [*found, in_loops(step, live * 1e-6)]


if __name__ == "__main__":
    show(TITLE, figures())
