#!/usr/bin/env python3
"""What stated durations come to on the stored trace, as JSON: nothing of it is drawn, and nothing is calibrated.

``tests/golden.json`` holds what this prints; ``python3 tests/golden.py > tests/golden.json`` after a change that is meant.
"""

from __future__ import annotations

import json

from simulator.run import run, summary
from simulator.scenario import load

TRACE = "acceptance={trace: six_flavours_greedy, rate: null, overlap: 1.0}"
WHOLE = "durations={target_ms: 36, draft_ms: 12, prefill_ms: 20}"
SETTINGS = {
    "mirror_sd": [],
    "vanilla_sd": ["strategy={name: vanilla_sd, gamma: 5}", WHOLE],
    "autoregressive": ["strategy={name: autoregressive}", WHOLE],
    "three_at_a_time": ["strategy={name: vanilla_sd, gamma: 5}", WHOLE, "requests.concurrency=3"],
}


def golden() -> dict[str, dict[str, object]]:
    """Law and simulation by setting of ``durations_only``."""
    found = {}
    for name, overrides in SETTINGS.items():
        told = summary(run(load("durations_only", [*overrides, TRACE, "requests.count=12"])))
        simulated = {key: told["simulated"][key] for key in ("steps", "tokens", "tokens_per_step", "tpot_ms", "ttft_ms")}
        found[name] = {"law_tpot_ms": told["law"]["tpot_ms"], **simulated}
    return found


if __name__ == "__main__":
    print(json.dumps(golden(), indent=1, sort_keys=True))
