"""``python -m benchmarks.live.vllm.schedules record``: loads against a running vLLM, and what its
scheduler did in each step; ``compare``: that beside ours.

The first writes into ``tests/data/live_vllm_schedules``, which the second and
``tests/test_live_schedules.py`` read without vLLM. README.md beside this says how to install it.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.live.vllm.loads import Setting, settings

DATA = Path(__file__).parents[3] / "tests/data/live_vllm_schedules"
Run = dict[str, Any]


def runs_of(name: str) -> list[Run]:
    """Return the runs of a record, without its header."""
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines[1:]]


def served(number: int, setting: Setting) -> Run:
    """Return the run of a setting, which is drawn by its number."""
    from benchmarks.live.vllm.stepped import record

    with TemporaryDirectory() as folder:
        return record(setting, number, Path(folder))


def keep(name: str, runs: Sequence[Run]) -> None:
    """Write runs with a header that says what they are."""
    import vllm

    from benchmarks.live.vllm.record import write
    from benchmarks.live.vllm.steps import COLUMNS

    header = {
        "vllm": vllm.__version__,
        "date": datetime.now(tz=UTC).date().isoformat(),
        "command": " ".join(["python -m benchmarks.live.vllm.schedules", *sys.argv[1:]]),
        "columns": COLUMNS,
    }
    write(DATA / f"{name}.jsonl.gz", header, runs)


def _process_of(placed: tuple[int, tuple[int, Setting]]) -> int:
    """Return what tells processes apart: one for each run with n-grams, as no second engine with
    them starts in a process, and one for those between.
    """
    place, (_, setting) = placed
    return place if setting.method == "ngram" else -1


@click.group()
def main() -> None:
    """Record schedules of vLLM, or compare ours with them."""


@main.command()
@click.option("--first", default=0, help="Place of the first run; those before it are kept.")
@click.option("--runs", "most", default=None, type=int, help="So many runs, by default all.")
def record(first: int, most: int | None) -> None:
    """Serve loads with each kind of speculation."""
    runs = runs_of("served")[:first] if first else []
    todo = [*enumerate(settings())][first:][:most]
    for _, placed in groupby(todo, _process_of):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            for _, (number, setting) in placed:
                runs.append(pool.submit(served, number, setting).result())
                click.echo(f"{setting}: {len(runs[-1]['steps'])} steps")
                keep("served", runs)


@main.command()
def compare() -> None:
    """Print what ours does in the recorded steps, the table of the README."""
    from benchmarks.live.vllm.replayed import table

    click.echo("\n".join(table(runs_of("served"))))


if __name__ == "__main__":
    main()
