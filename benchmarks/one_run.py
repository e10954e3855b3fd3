"""What a process does for ``bench_against.py``: simulate scenarios by the code that ``PYTHONPATH``
names, this checkout's or an earlier one's.

Its one argument is JSON, ``[[scenario, changes, times], ...]``: a shipped scenario, what is set in
it, and how often it is simulated. It prints, in JSON, what :func:`simulated` returns of each.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

HOMES = ("simulator.scenario.evaluate", "simulator.scenario.run")
"""Modules that ``simulate`` has stood in, the latest first."""
WINDOWS = 20_000
"""Windows of one request that are judged to time what drawing their acceptance takes."""


def simulated(home: Any, scenario: str, changes: list[str], times: int) -> dict[str, Any]:
    """Simulate a scenario so many times; return CPU seconds of each, and what was simulated.

    Timed is ``simulate``, books included; not timed are imports, reading, and checking. What a pass
    takes is remembered with what was read, so that the first time is cold, as a user has it, and
    the others are warm.
    """
    load = import_module("simulator.scenario").load
    loaded = home.tuned(load(scenario, changes))
    acceptance = loaded.acceptance()
    seconds = []
    for _ in range(times):
        begin = time.process_time()
        outcome, _ = home.simulate(loaded.scenario, acceptance)
        seconds.append(time.process_time() - begin)
    batch = outcome.serving.mean_batch
    return {
        "seconds": seconds,
        "requests": outcome.serving.requests,
        "steps": outcome.steps,
        "request_steps": batch * outcome.steps,
        "drawing_s": drawing_s(loaded.scenario, acceptance),
        "told": [outcome.end_s, outcome.tpot_s, batch, sorted(outcome.busy_s.items())],
    }


def drawing_s(scenario: Any, acceptance: Any) -> float:
    """CPU seconds of judging one window of a chain; 0 where nothing is drafted."""
    window = scenario.schedule.window
    if not window or not getattr(scenario.schedule, "gamma", 0):
        return 0.0
    proposal = import_module("simulator").Chain(window)
    cursor = acceptance.cursor(0, scenario.exit)
    begin = time.process_time()
    for _ in range(WINDOWS):
        cursor.judge(proposal)
    return (time.process_time() - begin) / WINDOWS


def main() -> None:
    """Simulate what the argument asks for."""
    home = import_module(next(name for name in HOMES if find_spec(name)))
    cases = json.loads(sys.argv[1])
    print(json.dumps([simulated(home, *case) for case in cases], allow_nan=False))


if __name__ == "__main__":
    main()
