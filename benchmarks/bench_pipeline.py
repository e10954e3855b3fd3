"""How quickly a pipeline full of a draft tree is simulated: tokens per CPU second, and E of the engine.

E = fewest possible events of a token / (time of a token / time of one bare SimPy timeout), as in bench_engine: with eight
stages and seven links that block on their own, fifteen for every token. Both times are taken turn by turn in one
process; the median counts. Goals: 60,000 tokens a second by stage, 500,000 by step, E >= 0.7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from simpy import Environment, Event

from simulator.flow_line import FlowLine, Level
from simulator.pipeline_laws import PipelineTimes
from simulator.pipeline_replay import StepTables, token_seconds
from simulator.world import World

STAGES, TOKENS, ROUNDS = 8, 20_000, 7
HIT = np.random.default_rng(1).random(TOKENS) < 0.99
STEPS = np.where(np.concatenate(([False], HIT[:-1])), 1, STAGES)
ROWS = np.full((STAGES, TOKENS), 64)
TABLES = StepTables(np.full((STAGES, 65), 0.05), np.full((STAGES - 1, 65), 0.001), np.zeros(65), 0.005)
TIMES = PipelineTimes((0.05,) * STAGES, (0.001,) * (STAGES - 1), prune=0.005)


def cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def bare() -> None:
    environment = Environment()

    def process() -> Iterator[Event]:
        for _ in range(TOKENS):
            yield environment.timeout(1.0)

    environment.process(process())
    environment.run()


def by_stage() -> None:
    world = World(0)
    stages = [world.lane(f"stage {number}") for number in range(STAGES)]
    links = [world.lane(f"link {number}") for number in range(STAGES - 1)]
    line = FlowLine(stages, links, world.lane("draft"), TIMES.prune)

    def request() -> Iterator[Event]:
        for steps in STEPS.tolist():
            yield line.advance(steps - 1, [Level(TIMES.stages, TIMES.links) for _ in range(steps)])

    world.environment.process(request())
    world.environment.run()


def by_step() -> None:
    for _ in range(10):
        token_seconds(TABLES, STEPS, ROWS, HIT)


def main() -> None:
    rounds = [(cpu_seconds(bare), cpu_seconds(by_stage), cpu_seconds(by_step) / 10) for _ in range(ROUNDS)]
    events = 2 * STAGES - 1
    table = Table(
        "simulation", "tokens per CPU s", "goal", "E", "goal of E", title="Pipeline of 8 stages, P = 0.99, one process"
    )
    stage = median(row[1] for row in rounds)
    efficiency = events / median(row[1] / row[0] for row in rounds)
    table.add_row("by stage: every stage and link blocks", f"{TOKENS / stage:,.0f}", "60,000", f"{efficiency:.2f}", "0.7")
    table.add_row("by step, vectorised", f"{TOKENS / median(row[2] for row in rounds):,.0f}", "500,000", "", "")
    table.add_row("a bare timeout", f"{TOKENS / median(row[0] for row in rounds):,.0f}", "", "", "")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
