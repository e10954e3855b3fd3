"""``python -m benchmarks.live.vllm.hits living``: sessions against a running vLLM;
``scheduled``: its scheduler alone, also with layers that keep states.

Both write what the cache was asked for and what it answered into ``tests/data/live_vllm_hits``,
which ``tests/test_live_hits.py`` asks of ours. README.md beside this says how to install vLLM.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

DATA = Path(__file__).parents[3] / "tests/data/live_vllm_hits"
Run = dict[str, Any]


def alone(work: Callable[..., Run], *arguments: object) -> Run:
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def header() -> dict[str, Any]:
    """Return what the first line of a file says of those below."""
    import vllm

    from benchmarks.live.vllm.record import COLUMNS

    return {
        "vllm": vllm.__version__,
        "date": datetime.now(tz=UTC).date().isoformat(),
        "command": " ".join(["python -m benchmarks.live.vllm.hits", *sys.argv[1:]]),
        "columns": COLUMNS,
    }


def keep(name: str, runs: Iterator[Run]) -> None:
    """Print a line for each run, then write all of them."""
    from benchmarks.live.vllm.record import write

    kept = []
    for run in runs:
        kept.append(run)
        told = {
            key: value for key, value in run.items() if key not in ("requests", "events", "states")
        }
        click.echo(f"{told} requests: {len(run['requests'])}, events: {len(run['events'])}")
    write(DATA / f"{name}.jsonl.gz", header(), kept)


@click.group()
def main() -> None:
    """Record hits of vLLM's prefix cache."""


@main.command()
@click.option("--method", "methods", multiple=True, help="Only this method (several times).")
@click.option("--seed", default=1, show_default=True)
def living(methods: tuple[str, ...], seed: int) -> None:
    """Serve sessions with each method, in units of two lengths and caches of three sizes."""
    from benchmarks.live.vllm import living as module

    def runs() -> Iterator[Run]:
        with TemporaryDirectory() as folder:
            for place, method in enumerate(methods or module.METHODS):
                for unit in module.UNITS:
                    for cache in module.CACHES:
                        drawn = seed + 10 * place
                        yield alone(module.record, method, unit, cache, drawn, Path(folder))

    keep("living", runs())


@main.command()
@click.option("--seed", default=1, show_default=True)
def scheduled(seed: int) -> None:
    """Serve longer sessions with the scheduler alone: blocks of 16, and models with states."""
    from benchmarks.live.vllm import scheduled as module

    def runs() -> Iterator[Run]:
        with TemporaryDirectory() as folder:
            for place, setting in enumerate(module.settings()):
                yield module.record(setting, seed + place, Path(folder))

    keep("scheduled", runs())


@main.command()
def units() -> None:
    """Print how many tokens a block of a hybrid holds."""
    from benchmarks.live.vllm.units import MODELS, unit_tokens

    for model in MODELS:
        click.echo(f"{unit_tokens(model):6,} {model.name}")


if __name__ == "__main__":
    main()
