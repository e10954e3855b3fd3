"""Laws over arrays against the memory bandwidth of the same moment: ``numpy.full`` over as many
numbers.

Both make their result anew. *Rate*: acceptance and two durations, whose odds are powers. *Plain*:
three durations. *Two kinds*: windows that are lost now and then. Every point has numbers of its
own, whose making is timed, too. The working set is what is allocated at most beside the result.
"""

from __future__ import annotations

import tracemalloc
from functools import lru_cache

import numpy as np
from figures import Figure, at_least, at_most, in_loops, show, turns

from simulator.scenario import Loaded, load
from simulator.scenario.loading import variant
from simulator.studies.sweep.grid import Axes, law_columns

TITLE = "Laws"
POINTS, ROUNDS = 10_000_000, 5


def mirror() -> Loaded:
    """Mirror-SD on stated durations, all windows reused."""
    return variant(load("durations_only"), {"acceptance": {"rate": 0.8, "overlap": 1.0}})


def vanilla() -> Loaded:
    """Serial drafting on stated durations."""
    durations = {"target_ms": 30.0, "draft_step_ms": 2.0, "rv_fv_ms": 0.2}
    return variant(
        mirror(), {"strategy": {"name": "vanilla_sd", "gamma": 4}, "durations": durations}
    )


RATE = {
    "acceptance.rate": (0.01, 0.95),
    "durations.target_ms": (1.0, 40.0),
    "durations.draft_step_ms": (1.0, 40.0),
}
PLAIN = {
    "durations.target_ms": (1.0, 20.0),
    "durations.draft_step_ms": (1.0, 20.0),
    "durations.rv_fv_ms": (1.0, 20.0),
}
KINDS = {
    "acceptance.rate": (0.01, 0.9),
    "durations.suffix_ms": (1.0, 40.0),
    "durations.draft_ms": (1.0, 40.0),
}


@lru_cache(maxsize=1)
def drawn(points: int) -> list[np.ndarray]:
    """Three columns of numbers between 0 and 1."""
    return list(np.random.default_rng(1).random((3, points)))


def columns(points: int, ranges: dict[str, tuple[float, float]]) -> Axes:
    """Numbers of every point, drawn between two ends."""
    return {
        key: low + (high - low) * column
        for (key, (low, high)), column in zip(ranges.items(), drawn(points), strict=True)
    }


def rate(points: int = POINTS) -> object:
    """Rate, target and draft."""
    return law_columns(vanilla(), columns(points, RATE), ["tpot_s"])


def plain(points: int = POINTS) -> object:
    """Three durations."""
    return law_columns(vanilla(), columns(points, PLAIN), ["tpot_s"])


def both_kinds(points: int = POINTS) -> object:
    """Rate, suffix and draft with windows lost now and then: two kinds of step, weighted by
    rate.
    """
    return law_columns(
        variant(mirror(), {"acceptance.overlap": 0.95}), columns(points, KINDS), ["tpot_s"]
    )


def figures() -> list[Figure]:
    """Shares of ``numpy.full``, points a second and the working set."""
    works = [lambda: np.full(POINTS, 1.0), rate, plain, both_kinds]
    rounds = list(turns(works, ROUNDS))
    full = min(round_[0] for round_ in rounds)
    touched = np.empty(POINTS)
    again = min(seconds for (seconds,) in turns([lambda: touched.fill(1.0)], ROUNDS))
    rates = [POINTS / min(round_[place] for round_ in rounds) / 1e6 for place in (1, 2, 3)]
    table = columns(POINTS, PLAIN)
    tracemalloc.start()
    result = law_columns(vanilla(), table, ["tpot_s"])["tpot_s"]
    beside = (tracemalloc.get_traced_memory()[1] - result.nbytes) / 1e6
    tracemalloc.stop()
    return [
        at_least(
            "numpy.full over 1e7 numbers, made anew, GB/s", POINTS * 8e-9 / full, None, "{:.1f}"
        ),
        at_least(
            "the same into memory already touched, GB/s", POINTS * 8e-9 / again, None, "{:.1f}"
        ),
        of_points("rate, target and draft", rates[0]),
        of_points("three durations", rates[1], 17),
        of_points("two kinds of step", rates[2]),
        at_most("working set of three durations, MB", beside, 64),
    ]


def of_points(what: str, millions_per_s: float, most: float | None = None) -> Figure:
    """Points a second of a law, and what one takes in numbers that numpy writes."""
    return in_loops(
        at_least(f"{what}: million points/s", millions_per_s, None),
        1e-6 / millions_per_s,
        most,
        "fills",
    )


if __name__ == "__main__":
    show(TITLE, figures())
