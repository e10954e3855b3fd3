"""How long the batch stays as it is, and what a step then costs: the table of
``docs/background/speed.md``.

A *run of steps* is a stretch in which the same requests decode and nobody comes, goes or is
prefilled between them: nothing is decided in it. A lazy batch goes on beyond its end. Requests have
prompts of 512 tokens and come at random (Poisson) at
the stated rate, which makes batches of about 20; or a closed loop has so many clients. A pass takes
longer in proportion to the tokens in its caches, as that of 13 billion weights on an A100
(rounded).

How much a lazy batch gains is told against the same service step by step, turn by turn. What a step
costs is CPU time of the whole simulation, prompts and books included, over its decode iterations;
in bare SimPy timeouts of the same minute it means the same on every machine.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from figures import Figure, at_least, in_loops, show, turns

from simulator.core.acceptance.sources import Acceptance, Cycle
from simulator.core.cost.durations import ByLoad
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.fields import Serving
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.arrivals import Poisson
from simulator.core.serving.policies import FixedBatch, PrefillFirst
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy, early_exit
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load

TITLE = "Runs of steps"
ROUNDS = 3
DURATIONS = StatedDurations(
    target_ms=ByLoad(base_ms=12.0, row_ms=0.05, cached_token_ms=0.0004),
    draft_step_ms=ByLoad(base_ms=0.5, cached_token_ms=0.00002),
    prefill_ms=20.0,
    draft_prefill_ms=2.0,
    rv_ee_ms=0.1,
    rv_fv_ms=0.1,
)
TRACE = load("vanilla_qwen3_32b_a100").acceptance()


class Case(NamedTuple):
    """A load: the strategy, where its acceptance comes from, output tokens, and requests a second
    or clients.
    """

    strategy: Strategy
    output_tokens: int
    per_s: float = 0.0
    clients: int = 0
    count: int = 400
    goal: float = 10.0
    """How many times as fast it should be with a lazy batch."""

    @property
    def acceptance(self) -> Acceptance:
        return TRACE if self.strategy.window else Cycle((0,))

    @property
    def requests(self) -> Requests:
        if self.clients:
            lengths = {"prompt_tokens": 512, "output_tokens": self.output_tokens}
            return Requests(concurrency=self.clients, count=self.count, **lengths)
        arrivals = Poisson(name="poisson", rate_per_s=self.per_s)
        return Requests(
            arrivals=arrivals, count=self.count, prompt_tokens=512, output_tokens=self.output_tokens
        )

    @property
    def service(self) -> Service:
        cost = StatedCost(DURATIONS, self.strategy.needs.draft_steps)
        policy = FixedBatch() if self.clients else PrefillFirst(name="prefill_first")
        exit = early_exit(self.strategy, None)
        return Service(
            self.strategy, self.acceptance, cost, self.requests, Serving(policy=policy), exit=exit
        )


PLAIN, SERIAL, MIRROR = Autoregressive(), VanillaSD(gamma=4), MirrorSD(gamma=4)
CASES: dict[str, Case] = {
    "plain, 128 tokens, Poisson": Case(PLAIN, 128, 7.2, count=1_000, goal=4.0),
    "plain, 1,024 tokens, Poisson": Case(PLAIN, 1_024, 0.95, goal=12.0),
    "vanilla SD, 128 tokens, Poisson": Case(SERIAL, 128, 15.0, count=1_000, goal=2.0),
    "vanilla SD, 1,024 tokens, Poisson": Case(SERIAL, 1_024, 2.15, goal=5.0),
    "Mirror-SD, 128 tokens, Poisson": Case(MIRROR, 128, 15.0, count=1_000, goal=1.0),
    "Mirror-SD, 1,024 tokens, Poisson": Case(MIRROR, 1_024, 2.25, goal=4.0),
    "plain, 1,024 tokens, one client": Case(PLAIN, 1_024, clients=1, count=20),
    "plain, 1,024 tokens, 20 clients": Case(PLAIN, 1_024, clients=20, count=200),
    "vanilla SD, 1,024 tokens, one client": Case(SERIAL, 1_024, clients=1, count=40),
    "Mirror-SD, 1,024 tokens, one client": Case(MIRROR, 1_024, clients=1, count=40),
}


class Count(NamedTuple):
    """Decode iterations of a load, the runs that they fall into, and the mean batch."""

    steps: int
    runs: int
    batch: float


@lru_cache
def counted(name: str) -> Count:
    """Follow a load with a log."""
    steps = runs = requests = 0
    before: tuple[int, ...] = ()

    def note(iteration: Iteration) -> None:
        nonlocal steps, runs, requests, before
        decodes = iteration.kind != "prefill"
        steps += decodes
        requests += decodes * len(iteration.requests)
        runs += decodes and iteration.requests != before
        before = iteration.requests if decodes else ()

    CASES[name].service.run(on_iteration=note)
    return Count(steps, runs, requests / steps)


def figures() -> list[Figure]:
    """Steps a run, how much a lazy batch gains, and what a step costs with it."""
    found = []
    for name, case in CASES.items():
        steps, runs, batch = counted(name)
        found.append(
            at_least(f"steps a run, mean batch {batch:.1f}: {name}", steps / runs, None, "{:.1f}")
        )
        gained, seconds = timed(case)
        found.append(
            at_least(f"times as fast as step by step: {name}", gained, case.goal, "{:.2f}")
        )
        rate = at_least(f"decode iterations a CPU second: {name}", steps / seconds, None)
        found.append(in_loops(rate, seconds / steps))
    return found


def timed(case: Case) -> tuple[float, float]:
    """How many times as fast a load is with a lazy batch, and its CPU seconds with it; the least of
    several turns.
    """
    service = case.service
    both = turns([service.run, replace(service, lazy=False).run], ROUNDS)
    lazy, stepped = (min(seconds) for seconds in zip(*both, strict=True))
    return stepped / lazy, lazy


def table() -> str:
    """The counts, and what a lazy batch gains, in Markdown."""
    columns = (
        "load",
        "mean batch",
        "decode iterations",
        "runs",
        "steps a run",
        "times as fast",
        "goal",
    )
    lines = [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    for name, case in CASES.items():
        steps, runs, batch = counted(name)
        gained, _ = timed(case)
        lines.append(
            f"| {name} | {batch:.1f} | {steps:,} | {runs:,} | {steps / runs:.1f} | {gained:.2f} "
            f"| {case.goal:g} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table())
    else:
        show(TITLE, figures())
