"""How close a strategy's step comes to the fewest events it could have.

E = fewest possible events of the step / (time of the step / time of one bare SimPy timeout)

Acceptance and the bookkeeping of requests are left out: only the timeline runs. Both times are taken
turn by turn in one process, so that a busy machine slows both; the median of the ratios counts.
Goal: E >= 0.7, and 0.6 for a step of two events or fewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from statistics import median

from rich.console import Console
from rich.table import Table
from simpy import Environment, Event

from simulator.strategies.autoregressive import Autoregressive
from simulator.strategies.mirror_sd import MirrorSD
from simulator.strategies.protocol import Kind, Lanes, Strategy
from simulator.strategies.vanilla_sd import VanillaSD
from simulator.world import World

STEPS, ROUNDS = 20_000, 15

MIRROR = MirrorSD.named(prefix=18.0, rv_ee=0.05, suffix=18.0, draft=12.0, rv_fv=0.05, redraft=12.0)
CASES: list[tuple[str, Strategy, object, Kind, int]] = [
    ("autoregressive", Autoregressive(), Autoregressive.named(target=36.0), Kind("step", 0, bare=1), 1),
    ("vanilla_sd", VanillaSD(), VanillaSD.named(draft=12.0, rv=0.0, target=36.0), Kind("step", 1), 2),
    ("vanilla_sd, two devices", VanillaSD(), VanillaSD.named(draft=12.0, rv=0.05, target=36.0), Kind("step", 1), 3),
    ("mirror_sd, reuse", MirrorSD(), MIRROR, Kind("reuse", 1), 5),
    ("mirror_sd, fallback", MirrorSD(), MIRROR, Kind("fallback", 1, redrafts=1), 6),
]


def seconds_per(
    process: Callable[[Environment], Generator[Event, object, None]], environment: Environment, count: int
) -> float:
    environment.process(process(environment))
    begin = time.process_time()
    environment.run()
    return (time.process_time() - begin) / count


def bare(environment: Environment) -> Generator[Event, object, None]:
    for _ in range(STEPS):
        yield environment.timeout(1.0)


def step_seconds(strategy: Strategy, durations: object, kind: Kind) -> float:
    world = World()
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))

    def steps(environment: Environment) -> Generator[Event, object, None]:
        for _ in range(STEPS):
            yield from strategy.timeline(lanes, durations, kind)

    return seconds_per(steps, world.environment, STEPS)


def efficiency(strategy: Strategy, durations: object, kind: Kind, events: int) -> tuple[float, float]:
    """(E, events-worth of time per step), the median of paired rounds."""
    ratios = []
    for _ in range(ROUNDS):
        timeout = seconds_per(bare, Environment(), STEPS)
        ratios.append(step_seconds(strategy, durations, kind) / timeout)
    return events / median(ratios), median(ratios)


def main() -> None:
    table = Table("step", "fewest events", "time in bare timeouts", "E", "goal", title="Event engine")
    for name, strategy, durations, kind, events in CASES:
        found, cost = efficiency(strategy, durations, kind, events)
        table.add_row(name, str(events), f"{cost:.2f}", f"{found:.2f}", "0.6" if events <= 2 else "0.7")
    Console().print(table)


if __name__ == "__main__":
    main()
