"""A day of sessions over two to sixteen replicas: CPU seconds, memory, whether anything is lost.

``python benchmarks/bench_day.py [REQUESTS] [--fixed]`` simulates half a million turns by default:
sessions of five turns that follow the hours of a day, prompts of some 4,000 tokens, Llama-3.1-8B on
A100s with a prefix cache each, whose number follows the sessions. With ``--fixed`` sixteen replicas
stand all day and sessions begin at one rate. It simulates nothing beside it, no plain decoding and
no law.
"""

import resource
import sys
import time

from simulator.scenario import load
from simulator.scenario.evaluate import simulate

DAY_S = 86_400
TURNS = 500_000
SCENARIO = "sessions_day_llama_3_1_8b_16xa100"
WEIGHTS = "{0: 2, 4: 1, 9: 8, 15: 10, 20: 6}"
FOLLOWING = (
    f"requests.arrivals={{name: daily, rate_per_s: {TURNS / 5 / DAY_S:.4g}, weights: {WEIGHTS}}}",
    "serving.replicas=2",
    "serving.scaling={least: 2, most: 16, target: 2, link: ethernet_25g}",
)
"""What lets sessions follow the hours of a day, and replicas the sessions."""
FIXED = "--fixed"


def main(turns: int, fixed: bool = False) -> None:
    """Print what a day of so many turns takes; ``fixed``: over sixteen replicas all day."""
    changes = () if fixed else FOLLOWING
    loaded = load(SCENARIO, [f"requests.count={turns}", *changes])
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
    scaling = outcome.scaling
    if scaling:
        idle = outcome.idle_s / outcome.replica_s
        print(
            f"{outcome.mean_replicas:.2f} replicas, {scaling.least_replicas} to "
            f"{scaling.most_replicas}; {scaling.starts} starts, {idle:.1%} idle"
        )


if __name__ == "__main__":
    numbers = [word for word in sys.argv[1:] if word != FIXED]
    main(int(numbers[0]) if numbers else TURNS, FIXED in sys.argv)
