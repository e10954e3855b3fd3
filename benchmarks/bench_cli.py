"""CPU time of starting the command line, and the memory of a run: each in a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from figures import Figure, at_least, at_most, in_loops, show

TITLE = "Command line"
ROUNDS = 5
MOST_CALLS = 8e6
"""Calls of an empty function that a start may take: 0.3 CPU seconds where one takes 38 ns."""
PEAK = """
import sys
from pathlib import Path
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""
"""Prints the most memory of a process, in kB; that by ``getrusage`` begins with its parent's."""
RUN = f"""
import sys
from simulator.cli.main import main
try:
    main(sys.argv[1:])
finally:
    exec({PEAK!r})
"""


def started(*arguments: str, tree: Path | None = None, code: str = RUN) -> tuple[float, float]:
    """(CPU seconds, MB at most) of one command, by the code of another checkout where ``tree`` is
    one.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree)} if tree else None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(done.stderr.split()[-1]) / 1024


def figures() -> list[Figure]:
    """The best of several starts."""
    helped, listed = (min(started(word)[0] for _ in range(ROUNDS)) for word in ("--help", "list"))
    _, law = started("law", "durations_only", "--json")
    _, run = started("run", "mirror_qwen3_32b_m2_ultra", "--json")
    return [
        in_loops(
            at_least("CPU seconds of specsim --help", helped, None, "{:.2f}"),
            helped,
            MOST_CALLS,
            "calls",
        ),
        in_loops(
            at_least("CPU seconds of specsim list", listed, None, "{:.2f}"),
            listed,
            MOST_CALLS,
            "calls",
        ),
        at_most("MB at most: specsim law durations_only", law, 300, "{:.0f}"),
        at_most("MB at most: specsim run mirror_qwen3_32b_m2_ultra", run, 500, "{:.0f}"),
    ]


if __name__ == "__main__":
    show(TITLE, figures())
