"""How quickly batches are simulated: decode iterations per CPU second, and a long run in time and
memory.

Goals, one process, spans off: a decode iteration at a mean batch of 20 with costs remembered takes
29 bare timeouts at most (40,000 a CPU second where a timeout takes 0.85 microseconds); 10,000
requests of 512 prompt and 128 output tokens 4.7 million of them (4 s there) and 300 MB. Each case
runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from figures import Figure, at_least, at_most, in_loops, loop_s, show

from simulator.core.acceptance.sources import Acceptance, Cycle, Rates
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.fields import Serving
from simulator.core.serving.load.lengths import Uniform
from simulator.core.serving.policies import FixedBatch, Policy, PrefillFirst, UnifiedBudget
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy, early_exit
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load

TITLE = "Batches"
QUICK = ("autoregressive, prefill first, varied lengths", "the same, spans on")
"""Cases with costs remembered, for which iterations have a goal."""
GIVEN = StatedDurations(
    prefix_ms=8, suffix_ms=8, draft_ms=6, redraft_ms=6, rv_ee_ms=0.1, rv_fv_ms=0.1, prefill_ms=20
)
PLAIN, RATES = Cycle((0,)), Rates((0.8,), 0.95)
SEVEN_B = "vanilla_llama_2_7b_a100"
VARIED = Requests(
    concurrency=20,
    count=2_000,
    prompt_tokens=Uniform(name="uniform", least_tokens=100, most_tokens=900),
    output_tokens=Uniform(name="uniform", least_tokens=100, most_tokens=400),
)
ALIKE = Requests(concurrency=20, count=10_000, prompt_tokens=512, output_tokens=128)
TWICE = ALIKE.model_copy(update={"concurrency": 40})
PREFILL_FIRST = PrefillFirst(name="prefill_first")
TRACE = load("vanilla_qwen3_32b_a100").acceptance()
CASES: dict[str, tuple[Strategy, Policy, Requests, bool, int, Acceptance]] = {
    "autoregressive, prefill first, varied lengths": (
        Autoregressive(),
        PREFILL_FIRST,
        VARIED,
        False,
        0,
        PLAIN,
    ),
    "the same, spans on": (Autoregressive(), PREFILL_FIRST, VARIED, False, 1 << 40, PLAIN),
    "the same, Llama-2-7B on an A100, costs not seen before": (
        Autoregressive(),
        PREFILL_FIRST,
        VARIED,
        True,
        0,
        PLAIN,
    ),
    "autoregressive, unified budget": (
        Autoregressive(),
        UnifiedBudget(name="unified_budget"),
        VARIED,
        False,
        0,
        PLAIN,
    ),
    "vanilla_sd, gamma 4, prefill first, a trace": (
        VanillaSD(gamma=4),
        PREFILL_FIRST,
        VARIED,
        False,
        0,
        TRACE,
    ),
    "vanilla_sd, gamma 4, prefill first, drawn": (
        VanillaSD(gamma=4),
        PREFILL_FIRST,
        VARIED,
        False,
        0,
        RATES,
    ),
    "mirror_sd, gamma 4, prefill first, a trace": (
        MirrorSD(gamma=4),
        PREFILL_FIRST,
        VARIED,
        False,
        0,
        TRACE,
    ),
    "10,000 of 512/128, autoregressive": (Autoregressive(), PREFILL_FIRST, ALIKE, False, 0, PLAIN),
    "10,000 of 512/128, vanilla_sd, gamma 4, a trace": (
        VanillaSD(gamma=4),
        FixedBatch(),
        ALIKE,
        False,
        0,
        TRACE,
    ),
    "10,000 of 512/128, autoregressive, two replicas": (
        Autoregressive(),
        PREFILL_FIRST,
        TWICE,
        False,
        0,
        PLAIN,
    ),
}
REPLICAS = {"10,000 of 512/128, autoregressive, two replicas": 2}


def measure(name: str) -> dict[str, Any]:
    strategy, policy, requests, hardware, spans, acceptance = CASES[name]
    cost: Cost = (
        load(SEVEN_B).scenario.cost if hardware else StatedCost(GIVEN, strategy.needs.draft_steps)
    )
    serving = Serving(policy=policy, replicas=REPLICAS.get(name, 1))
    service = Service(
        strategy,
        acceptance,
        cost,
        requests,
        serving,
        exit=early_exit(strategy, None),
        kv_tokens=16 * 20_000,
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    tally = service.run(spans).tally
    seconds = time.process_time() - begin
    steps = sum(tally.steps.values())
    return {
        "cpu_s": seconds,
        "timeout_s": loop_s("timeouts"),
        "iterations": steps,
        "iterations_per_s": steps / seconds,
        "batch": tally.mean_batch,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def figures() -> list[Figure]:
    """Return for every case iterations a second, and for the long runs also CPU seconds and
    memory.
    """
    shown = []
    for name in CASES:
        done = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=True
        )
        case = json.loads(done.stdout)
        # in the loops of the process that it ran in
        turn = case["cpu_s"] / case["timeout_s"] * loop_s("timeouts")
        rate = at_least(
            f"decode iterations a CPU second, mean batch {case['batch']:.1f}: {name}",
            case["iterations_per_s"],
            None,
        )
        shown.append(in_loops(rate, turn / case["iterations"], 29 if name in QUICK else None))
        if name.startswith("10,000"):
            whole = at_least(f"CPU seconds: {name}", case["cpu_s"], None, "{:.2f}")
            shown += [
                in_loops(whole, turn, 4.7e6),
                at_most(f"MB at most: {name}", case["mb"], 300, "{:.0f}"),
            ]
    return shown


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1]), allow_nan=False))
    else:
        show(TITLE, figures())
