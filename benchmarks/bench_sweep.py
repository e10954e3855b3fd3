"""Points a minute of ``specsim sweep`` by simulation, 1,000 tokens each, and by law; stores
included.

A point is one request of 1,001 output tokens, one of them shown by the prefill; axes are the window
and the acceptance rate, or a bandwidth, so that no two simulations are alike. *Two workers* are
timed by the clock, from before they are started, turn by turn with one and the best of three, and
want a machine with nothing else to do; points a CPU minute do not.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, at_least, cpu_seconds, in_loops, show

from simulator.inputs.catalogue import Catalogue
from simulator.studies.sweep.executors import crew
from simulator.studies.sweep.store import writing
from simulator.studies.sweep.study import study
from simulator.studies.sweep.sweeping import sweep

TITLE = "Sweeps"
ONE_REQUEST = ("requests.count=1", "requests.concurrency=1", "requests.output_tokens=1001")
GAMMAS = "strategy.gamma=3,4,5,6"
RATES = "acceptance.rate=0.5:0.9:{}"
STATED = (
    "strategy={name: vanilla_sd, gamma: 4}",
    "durations={target_ms: 30.0, draft_step_ms: 2.0}",
    "acceptance={rate: 0.8}",
)
CASES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "vanilla_sd on stated durations": ("durations_only", STATED, RATES),
    "mirror_sd on stated durations": ("durations_only", ("acceptance={rate: 0.8}",), RATES),
    "vanilla_sd, Qwen3-32B on A100s, a trace": (
        "vanilla_qwen3_32b_a100",
        (),
        "draft.device.memory_bandwidth_gb_s=1000:2000:{}",
    ),
}
"""A scenario, what is set in it, and the axis beside the window."""
QUICKEST = "vanilla_sd on stated durations"
MOST_TIMEOUTS = 7_000
"""Bare timeouts that a point by simulation may take: 10,000 points a CPU minute where one takes
0.85 microseconds.
"""
AT_ONCE = 3_000
"""Points that two workers share: so many that a second to start them is little of it."""


def swept(case: str, evaluator: str, points: int, workers: int) -> None:
    """All points into a store of their own."""
    scenario, overrides, axis = CASES[case]
    axes = (GAMMAS, axis.format(points // 4))
    asked = study(scenario, Catalogue(), (*overrides, *ONE_REQUEST), axes, evaluate=evaluator)
    with (
        TemporaryDirectory() as folder,
        writing(Path(folder) / "points.sqlite") as store,
        crew(workers) as workforce,
    ):
        sweep(asked, store, workforce)


def figures() -> list[Figure]:
    """Points a CPU minute of one process, and of two workers by the clock."""
    found = []
    for case in CASES:
        few, many = (
            min(cpu_seconds(lambda: swept(case, "simulation", points, 1)) for _ in range(2))
            for points in (8, 208)
        )
        point = (many - few) / 200
        rate = at_least(
            f"by simulation, points a CPU minute of one process: {case}", 60 / point, None
        )
        found.append(in_loops(rate, point, MOST_TIMEOUTS))
    few, many = (cpu_seconds(lambda: swept(QUICKEST, "law", points, 1)) for points in (8, 2_008))
    point = (many - few) / 2_000
    found.append(
        in_loops(at_least("by law, points a CPU minute of one process", 60 / point, None), point)
    )
    one, two = (min(times) for times in zip(*(map(clocked, (1, 2)) for _ in range(3)), strict=True))
    found.append(
        at_least("by simulation, points a minute of two workers at once", 60 * AT_ONCE / two, None)
    )
    found.append(at_least("two workers against one, by the clock", one / two, 1.7, "{:.2f}"))
    return found


def clocked(workers: int) -> float:
    """Seconds by the clock of a sweep by so many workers, their start included."""
    begin = time.perf_counter()
    swept(QUICKEST, "simulation", AT_ONCE, workers)
    return time.perf_counter() - begin


if __name__ == "__main__":
    show(TITLE, figures())
