"""How quickly models of several kinds of layers are simulated: ``python benchmarks/bench_hybrid.py
[COMMIT]``, turn by turn.

Most layers of Qwen3.5-27B keep a state instead of a cache, so that the room of a request follows
from all kinds of layers. Its MTP layer drafts three tokens a step for 16 clients, as the shipped
scenario has it, under policies that give every request its blocks step by step. The earlier code
lies in a worktree of its commit beside this one; both run in processes of their own, turn by turn,
and the median of the ratios counts. They have to print the same numbers to the last byte. Without
Git, or without that commit, the code of today is timed alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from figures import Figure, at_least, show

TITLE = "Layers of several kinds"
ROOT = Path(__file__).resolve().parent.parent
BEFORE = "97aa638"
"""The last commit that worked the kinds of layers out again for every block."""
PAIRS = 7
SCENARIO = "mtp_qwen3_5_27b_h100"
POLICIES = ("unified_budget", "prefill_first")
GOAL = 5.0
"""How many times as fast as ``BEFORE`` a step should be."""
ONE_TURN = """
import hashlib, json, sys, time
from simulator.scenario import load
from simulator.scenario.outcome import outcome_data
from simulator.scenario.evaluate import simulate, tuned
name, policy, count = sys.argv[1:]
loaded = tuned(load(name, [f"serving.policy={{name: {policy}}}", f"requests.count={count}"]))
acceptance = loaded.acceptance()
begin = time.process_time()
outcome, _ = simulate(loaded.scenario, acceptance)
seconds = time.process_time() - begin
kept = {key: value for key, value in outcome_data(outcome).items() if key not in \
("tokens_per_step", "verified_per_step")}
digest = hashlib.sha256(json.dumps([kept, outcome.end_s, outcome.busy_s]).encode()).hexdigest()
print(json.dumps([seconds / outcome.steps, digest]))
"""
"""What a process does. How tokens per step are counted has changed since, and follows from the
rest.
"""


class Turn(NamedTuple):
    """Holds CPU seconds of a step, and a digest of all that was simulated."""

    step_s: float
    digest: str


def turn(tree: Path, policy: str, requests: int) -> Turn:
    """Simulate the scenario by the code of a tree, in a process of its own."""
    command = [sys.executable, "-c", ONE_TURN, SCENARIO, policy, str(requests)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return Turn(*json.loads(done.stdout))


@contextmanager
def worktree(commit: str) -> Iterator[Path | None]:
    """Check out a commit beside this tree for a while; None where Git does not have it."""
    with TemporaryDirectory() as folder:
        tree, git = Path(folder) / "before", ("git", "-C", str(ROOT), "worktree")
        added = subprocess.run(
            [*git, "add", "--detach", str(tree), commit], capture_output=True, check=False
        )
        try:
            yield None if added.returncode else tree
        finally:
            if not added.returncode:
                subprocess.run(
                    [*git, "remove", "--force", str(tree)], capture_output=True, check=True
                )


def figures(commit: str = BEFORE, pairs: int = PAIRS, requests: int = 256) -> list[Figure]:
    """Microseconds of a step today, before, and the median of their ratios, by policy."""
    found = []
    with worktree(commit) as tree:
        for policy in POLICIES:
            words = f"MTP on Qwen3.5-27B, 16 clients, {policy}"
            both = []
            for _ in range(pairs):
                before = turn(tree, policy, requests) if tree else None
                both.append((before, turn(ROOT, policy, requests)))
            found.append(
                Figure(f"{words}: us a step", f"{1e6 * median(now.step_s for _, now in both):,.0f}")
            )
            known = [(before, now) for before, now in both if before]
            if known:
                if any(before.digest != now.digest for before, now in known):
                    raise SystemExit(f"{words}: not the numbers of {commit}")
                found.append(
                    Figure(
                        f"the same at {commit}",
                        f"{1e6 * median(before.step_s for before, _ in known):,.0f}",
                    )
                )
                ratio = median(before.step_s / now.step_s for before, now in known)
                found.append(at_least("times as fast, the same numbers", ratio, GOAL, "{:.2f}"))
    return found


if __name__ == "__main__":
    show(TITLE, figures(*sys.argv[1:2]))
