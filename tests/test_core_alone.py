"""The core stands alone: without YAML, a command line, tables or pictures it runs a law and a
simulation.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLOCKED = ("yaml", "click", "rich", "jinja2", "matplotlib", "pandas")
ALONE = f"""
import sys


class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ImportError(name + " is blocked")


sys.meta_path.insert(0, Wall())

import simulator.core
from simulator.core.acceptance.sources import Cycle, odds_of
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.fields import Serving
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.strategies.vanilla_sd import VanillaSD

strategy = VanillaSD(gamma=3)
cost = StatedCost(StatedDurations(target_ms=10, draft_step_ms=2, prefill_ms=10))
kept = Cycle((1,))
law = strategy.law(cost, odds_of(kept, None), 1, 100)
print(f"{{law.step_s * 1e3:.6f}} {{law.tokens_per_step:.6f}}")
requests = Requests(count=2, prompt_tokens=8, output_tokens=5)
serving = Serving(policy=FixedBatch(max_requests=1))
done = Service(strategy, kept, cost, requests, serving).run()
print(f"{{done.tally.finished}} {{done.tally.tokens}} {{done.end_s * 1e3:.6f}}")
outside = {{name.split(".")[1] for name in sys.modules if name.startswith("simulator.")}}
print(*sorted(outside))
"""


def test_without_files_tables_and_pictures_it_runs_a_law_and_a_simulation() -> None:
    """Steps of 10 + 3 x 2 ms keep one of three draft tokens and write two; a request of five tokens
    takes a prefill of 10 ms and two steps.
    """
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=True,
    )
    assert done.stdout.splitlines() == ["16.000000 2.000000", "2 10 84.000000", "core"]
