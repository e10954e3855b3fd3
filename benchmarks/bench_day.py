"""A day of sessions over sixteen replicas: CPU seconds, memory, and whether anything is lost.

``python benchmarks/bench_day.py [REQUESTS]`` simulates half a million turns by default: sessions of
five turns that begin all day long, prompts of some 4,000 tokens, Llama-3.1-8B on A100s with a
prefix cache each. It simulates nothing beside it, no plain decoding and no law.
"""

import resource
import sys
import time

from simulator.scenario import load
from simulator.scenario.evaluate import simulate

DAY_S = 86_400
TURNS = 500_000
SCENARIO = "sessions_day_llama_3_1_8b_16xa100"


def main(turns: int) -> None:
    """Print what a day of so many turns takes."""
    loaded = load(SCENARIO, [f"requests.count={turns}"])
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    began = time.process_time()
    outcome, _ = simulate(scenario, acceptance)
    seconds = time.process_time() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    serving = outcome.serving
    cache = serving.prefix_cache
    mean = cache["prompt_tokens"] / turns
    print(f"{turns:,} turns, {mean:,.0f} prompt tokens each, over {outcome.end_s / 3600:.1f} hours")
    print(f"{seconds:.0f} CPU s, {seconds / turns * 1e6:.0f} us a turn, {megabytes:.0f} MB")
    print(f"{serving.requests:,} ended, {turns - serving.requests:,} lost")
    print(f"{cache['hit_rate']:.1%} of prompt tokens found, batch {serving.mean_batch:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)
