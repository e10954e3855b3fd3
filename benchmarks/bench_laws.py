"""Laws over arrays against the memory bandwidth of the same moment: ``numpy.full`` over as many numbers.

Both make their result anew. Bytes are those of the result. *Factored*: step and tokens depend on different axes and meet
in one division. *Plain*: four axes of durations meet one after the other. *Columns*: every point has numbers of its own.
The working set is what is allocated at most beside the result.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
from figures import Figure, at_least, at_most, show, turns

from simulator.scenario import Loaded, load
from simulator.scenario.loading import variant
from simulator.studies.sweep.grid import law_columns, law_grid

TITLE = "Laws"
POINTS, ROUNDS = 10_000_000, 5


def mirror() -> Loaded:
    """Mirror-SD on stated durations, all windows reused."""
    return variant(load("durations_only"), {"acceptance": {"rate": 0.8, "overlap": 1.0}})


def vanilla() -> Loaded:
    """Serial drafting on stated durations."""
    durations = {"target_ms": 30.0, "draft_step_ms": 2.0, "rv_fv_ms": 0.2}
    return variant(mirror(), {"strategy": {"name": "vanilla_sd", "gamma": 4}, "durations": durations})


def spread(*lengths: int) -> list[np.ndarray]:
    """Milliseconds for axes of these lengths."""
    return [np.linspace(1.0, 40.0, length) for length in lengths]


def factored(points: int = POINTS) -> object:
    """Rate x target x draft."""
    target, draft = spread(100, points // 10_000)
    axes = {"acceptance.rate": np.linspace(0.01, 0.95, 100), "durations.target_ms": target, "durations.draft_step_ms": draft}
    return law_grid(vanilla(), axes, ["tpot_s"])


def plain(points: int = POINTS) -> object:
    """Prefix x suffix x draft."""
    prefix, suffix, draft = spread(100, 100, points // 10_000)
    axes = {"durations.prefix_ms": prefix, "durations.suffix_ms": suffix, "durations.draft_ms": draft}
    return law_grid(mirror(), axes, ["tpot_s"])


def both_kinds(points: int = POINTS) -> object:
    """Rate x suffix x draft with windows lost now and then: two kinds of step, weighted by rate."""
    suffix, draft = spread(100, points // 10_000)
    axes = {"acceptance.rate": np.linspace(0.01, 0.9, 100), "durations.suffix_ms": suffix, "durations.draft_ms": draft}
    return law_grid(variant(mirror(), {"acceptance.overlap": 0.95}), axes, ["tpot_s"])


def columns() -> object:
    """Three durations of every point."""
    names = ("target_ms", "draft_step_ms", "rv_fv_ms")
    return law_columns(vanilla(), {f"durations.{name}": COLUMN for name in names}, ["tpot_s"])


COLUMN = np.random.default_rng(1).uniform(1.0, 20.0, POINTS)


def figures() -> list[Figure]:
    """Shares of ``numpy.full``, points a second and the working set."""
    works = [lambda: np.full(POINTS, 1.0), factored, plain, both_kinds, columns]
    rounds = list(turns(works, ROUNDS))
    full = min(one[0] for one in rounds)
    touched = np.empty(POINTS)
    again = min(seconds for (seconds,) in turns([lambda: touched.fill(1.0)], ROUNDS))
    shares = [full / min(one[place] for one in rounds) * 100 for place in (1, 2, 3)]
    rates = [POINTS / min(one[place] for one in rounds) / 1e6 for place in (1, 2, 3, 4)]
    tracemalloc.start()
    result = plain()["tpot_s"]  # type: ignore[index]
    beside = (tracemalloc.get_traced_memory()[1] - result.nbytes) / 1e6
    tracemalloc.stop()
    return [
        at_least("numpy.full over 1e7 numbers, made anew, GB/s", POINTS * 8e-9 / full, None, "{:.1f}"),
        at_least("the same into memory already touched, GB/s", POINTS * 8e-9 / again, None, "{:.1f}"),
        at_least("factored: per cent of numpy.full", shares[0], 25, "{:.0f}"),
        at_least("plain: per cent of numpy.full", shares[1], 14, "{:.0f}"),
        at_least("two kinds of step: per cent of numpy.full", shares[2], None, "{:.0f}"),
        at_least("factored: million points/s", rates[0], None, "{:.0f}"),
        at_least("plain: million points/s", rates[1], None, "{:.0f}"),
        at_least("two kinds of step: million points/s", rates[2], None, "{:.0f}"),
        at_least("columns: million points/s", rates[3], 60, "{:.0f}"),
        at_most("working set of the plain grid, MB", beside, 64),
    ]


if __name__ == "__main__":
    show(TITLE, figures())
