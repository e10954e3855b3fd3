"""What a compiled inner loop could add, before one is written: ``pip install numba``, then ``python
benchmarks/compiled.py``.

The smallest loop that keeps time as a service does, run by Python and compiled: requests of 512
prompt and 128 output tokens come at random, are read when there is a place, and decode together in
passes that take longer behind more context. It keeps no books, spans, memory or policies, asks no
strategy and replays no acceptance: whatever does all that in compiled code is slower. Beside it
stands the service itself, and what of its time passes with prompts, arrivals and ends (outputs of
two tokens).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_runs import CASES, Case
from figures import cpu_seconds

NAME = "plain, 128 tokens, Poisson"
BASE_S, ROW_S, TOKEN_S, PREFILL_S = 12e-3, 5e-5, 4e-7, 20e-3


def walk(arrivals: Any, prompt: int, output: int) -> tuple[int, float]:
    """Decode iterations, and when the last request ends, in seconds."""
    left = np.zeros(len(arrivals), np.int64)
    now, first, last, context, steps = 0.0, 0, 0, 0, 0
    running = 0
    while first < len(arrivals):
        entered = 0
        while last < len(arrivals) and arrivals[last] <= now:
            left[last] = output - 1
            last, entered, context = last + 1, entered + 1, context + prompt
        if entered:
            running += entered
            now += PREFILL_S
            continue
        if not running:
            now = arrivals[last]
            continue
        now += BASE_S + ROW_S * running + TOKEN_S * context
        steps += 1
        context += running
        for request in range(first, last):
            left[request] -= 1
            if left[request] == 0:
                running, context = running - 1, context - prompt - output + 1
        while first < last and left[first] <= 0:
            first += 1
    return steps, now


def least(work: Callable[[], object]) -> float:
    """CPU seconds, the least of five turns."""
    return min(cpu_seconds(work) for _ in range(5))


def main() -> None:
    """Print what an iteration takes in each."""
    begin = time.process_time()
    from numba import njit

    imported = time.process_time() - begin
    case = CASES[NAME]
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1.0 / case.per_s, case.count))
    compiled = njit(walk)
    compiling = cpu_seconds(lambda: compiled(arrivals, 512, case.output_tokens))
    steps, _ = walk(arrivals, 512, case.output_tokens)
    each = {
        "the loop in Python": least(lambda: walk(arrivals, 512, case.output_tokens)) / steps,
        "the loop compiled": least(lambda: compiled(arrivals, 512, case.output_tokens)) / steps,
    }
    service = case.service
    iterations = sum(service.run().tally.steps.values())
    each["the service"] = least(service.run) / iterations
    for name, seconds in each.items():
        print(f"{name}: {1e6 * seconds:.2f} microseconds an iteration")
    ends = Case(case.strategy, 2, case.per_s, count=case.count).service
    print(
        f"prompts, arrivals and ends: {1e6 * least(ends.run) / case.count:.1f} microseconds a "
        "request"
    )
    print(
        f"all of a request: {1e6 * each['the service'] * iterations / case.count:.1f} microseconds"
    )
    print(
        f"numba itself: {imported:.2f} CPU seconds to import, {compiling:.2f} to compile this loop"
    )


if __name__ == "__main__":
    main()
