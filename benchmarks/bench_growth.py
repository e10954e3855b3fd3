"""How what a user types grows: CPU time and memory of ``specsim run`` with its report, from 1,000
requests to 100,000; and a decode iteration from a batch of 1 to one of 512. Drawn in
``reports/growth.svg``.

Requests arrive at random at stated durations, 512 prompt and 128 output tokens, twenty at a time in
the mean; the command simulates them with and without drafts, replays the acceptance, and writes its
report. A start is that of the same command with two requests, and told apart. An iteration is the
quickest of several runs without spans, its requests longer than the clock is coarse, its prompts
taken in before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_cli import started
from figures import Figure, at_least, at_most, cpu_seconds, in_loops, loop_s, show

from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.fields import Serving
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.report.drawing import canvas
from simulator.report.page import write_picture

TITLE = "Growth"
PICTURE = Path(__file__).parent.parent / "reports" / "growth.svg"
FEWEST, COUNTS = 2, (1_000, 10_000, 100_000)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LOAD = (
    "strategy={name: vanilla_sd, gamma: 4}",
    "durations={target_ms: 20.0, draft_step_ms: 1.0, prefill_ms: 20.0}",
    "acceptance={rate: 0.8}",
    "serving.policy={name: prefill_first, max_requests: 64}",
)
REQUESTS = (
    "requests={{arrivals: {{name: poisson, rate_per_s: 12}}, count: {}, prompt_tokens: 512, "
    "output_tokens: 128}}"
)
MOST_MB = 300
STATED = StatedDurations(target_ms=20, draft_step_ms=1, prefill_ms=20)
STRATEGIES: dict[str, tuple[Strategy, Rates | Cycle]] = {
    "plain decoding": (Autoregressive(), Cycle((0,))),
    "vanilla SD, gamma 4": (VanillaSD(gamma=4), Rates((0.8,), 1.0)),
}
TOKENS = 1_000
"""Output tokens of each request whose iterations are timed."""


def run(count: int) -> tuple[float, float]:
    """(CPU seconds, MB at most) of the command with so many requests and its report."""
    words = [word for text in (*LOAD, REQUESTS.format(count)) for word in ("--set", text)]
    with TemporaryDirectory() as folder:
        return started("run", "durations_only", *words, "--out", f"{folder}/report")


def iteration_s(strategy: Strategy, acceptance: Rates | Cycle, batch: int) -> float:
    """CPU seconds of one decode iteration of a batch of this size, the least of five."""
    requests = Requests(concurrency=batch, count=batch, prompt_tokens=512, output_tokens=TOKENS)
    cost = StatedCost(STATED, strategy.needs.draft_steps)
    taken = []
    for _ in range(5):
        service = Service(strategy, acceptance, cost, requests, Serving(policy=FixedBatch()))
        done: list[int] = []
        taken.append(
            cpu_seconds(lambda: done.append(sum(service.run(0).tally.steps.values()))) / done[0]
        )
    return min(taken)


def figures() -> list[Figure]:
    """Times by requests and by batch, each in turns of a reference loop; the picture is drawn on
    the way.
    """
    start = run(FEWEST)[0]
    found = [
        in_loops(
            at_least("CPU seconds: a start, specsim run of two requests", start, None, "{:.2f}"),
            start,
        )
    ]
    by_count = {count: run(count) for count in COUNTS}
    for count, (seconds, mb) in by_count.items():
        each = (seconds - start) / count
        taken = at_least(
            f"CPU microseconds a request: specsim run, {count:,} requests", 1e6 * each, None
        )
        found += [
            in_loops(taken, each),
            at_most(f"MB at most: specsim run, {count:,} requests", mb, MOST_MB, "{:.0f}"),
        ]
    first, last = ((by_count[count][0] - start) / count for count in (COUNTS[1], COUNTS[-1]))
    found.append(at_most("time per request, 100,000 against 10,000", last / first, 1.1, "{:.2f}"))
    by_batch = {
        name: [iteration_s(*parts, batch) for batch in BATCHES]
        for name, parts in STRATEGIES.items()
    }
    found += list(_growth(by_batch))
    _draw({count: (seconds - start) / count for count, (seconds, _) in by_count.items()}, by_batch)
    return found


def _growth(by_batch: dict[str, list[float]]) -> Iterator[Figure]:
    """Yield what an iteration takes at the smallest and largest batch, and the steepest doubling
    between.
    """
    for name, seconds in by_batch.items():
        for batch, taken in ((BATCHES[0], seconds[0]), (BATCHES[-1], seconds[-1])):
            rate = at_least(
                f"decode iterations a CPU second, a batch of {batch}: {name}", 1 / taken, None
            )
            yield in_loops(rate, taken)
        steepest = max(later / earlier for earlier, later in pairwise(seconds))
        yield at_most(
            f"an iteration when the batch doubles, at most: {name}", steepest, 2.0, "{:.2f}"
        )


def _draw(by_count: dict[int, float], by_batch: dict[str, list[float]]) -> None:
    """Draw microseconds per request by requests, and per iteration by batch beside what grows in
    proportion.
    """
    with canvas(2.9) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([*by_count], [1e6 * each for each in by_count.values()], marker="o")
        left.set(
            title="specsim run, start apart",
            xlabel="requests",
            ylabel="CPU microseconds a request",
            xscale="log",
        )
        left.set_ylim(bottom=0)
        for name, seconds in by_batch.items():
            right.plot(BATCHES, [1e6 * each for each in seconds], marker="o", label=name)
        base = 1e6 * min(seconds[0] for seconds in by_batch.values())
        right.plot(
            BATCHES, [base * batch for batch in BATCHES], ls=":", color="0.5", label="in proportion"
        )
        right.set(
            title="a decode iteration",
            xlabel="batch",
            ylabel="CPU microseconds",
            xscale="log",
            yscale="log",
        )
        right.legend()
        write_picture(PICTURE, figure)


if __name__ == "__main__":
    print(f"a timeout takes {1e6 * loop_s('timeouts'):.2f} microseconds", file=sys.stderr)
    show(TITLE, figures())
