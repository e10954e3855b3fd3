"""Run every benchmark and write ``reports/benchmarks.md``: what, by which file, the figure, its
goal, and whether it is met.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

from figures import Figure, show

HERE = Path(__file__).parent
PAGE = HERE.parent / "reports" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Made by `python3 dev.py bench` on {when}: {cores} cores, Python {python}, load {load:.1f} when it
began. Seconds are CPU seconds of one process unless it says otherwise; ratios are of work done turn
by turn in one process. What each figure means, and what is left out of it, stands at the top of the
file that measures it. Goals for what takes time are in turns of a reference loop of the same
process: a bare SimPy timeout, a call in Python, a number that numpy writes.
"""


MEASURE = (
    "import importlib, json, sys; one = importlib.import_module(sys.argv[1]); "
    "print(json.dumps([one.TITLE, one.figures()]))"
)
"""In a process of its own: what a child takes at most counts from what its parent had taken."""


def measured(name: str) -> tuple[str, list[Figure]]:
    """Title and figures of a benchmark."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, name],
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    title, figures = json.loads(done.stdout)
    return title, [Figure(*figure) for figure in figures]


def section(name: str, title: str, figures: list[Figure]) -> str:
    """One benchmark's table in Markdown."""
    words = {None: "", True: "yes", False: "**no**"}
    rows = [
        f"| {what} | {figure} | {loops} | {goal} | {words[met]} |"
        for what, figure, goal, met, loops in figures
    ]
    columns = [
        "| what | figure | in reference loops | goal | met |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    head = ["", f"## {title} (`benchmarks/{name}.py`)", "", *columns]
    return "\n".join([*head, *rows]) + "\n"


def main() -> None:
    """All of them, or those named; a page of all is kept."""
    chosen = sys.argv[1:] or [path.stem for path in sorted(HERE.glob("bench_*.py"))]
    load = os.getloadavg()[0]
    page = INTRODUCTION.format(
        when=date.today(), cores=os.cpu_count(), python=platform.python_version(), load=load
    )
    for name in chosen:
        title, found = measured(name)
        show(title, found)
        page += section(name, title, found)
    if not sys.argv[1:]:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
