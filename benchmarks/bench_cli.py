"""CPU time of starting the command line, and the memory of a run: each in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

from figures import Figure, at_most, show

TITLE = "Command line"
ROUNDS = 5
RUN = """
import resource, sys
from simulator.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def started(*arguments: str) -> tuple[float, float]:
    """(CPU seconds, MB at most) of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(done.stderr.split()[-1]) / 1024


def figures() -> list[Figure]:
    """The best of several starts."""
    helped, listed = (min(started(word)[0] for _ in range(ROUNDS)) for word in ("--help", "list"))
    _, law = started("law", "durations_only", "--json")
    _, run = started("run", "mirror_qwen3_32b_m2_ultra", "--json")
    return [
        at_most("CPU seconds of specsim --help", helped, 0.3, "{:.2f}"),
        at_most("CPU seconds of specsim list", listed, 0.3, "{:.2f}"),
        at_most("MB at most: specsim law durations_only", law, 300, "{:.0f}"),
        at_most("MB at most: specsim run mirror_qwen3_32b_m2_ultra", run, 500, "{:.0f}"),
    ]


if __name__ == "__main__":
    show(TITLE, figures())
