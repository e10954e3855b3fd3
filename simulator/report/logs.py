"""Logs of a run as CSV: one line per iteration, one per request. A file appears when it is complete, or not at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulator.files.writing import whole_file
from simulator.serving.iteration import Iteration
from simulator.serving.requests import Request

REQUEST_COLUMNS = (
    *("request", "arrival_s", "admitted_s", "first_token_s", "finished_s", "prompt_tokens", "output_tokens"),
    *("preemptions", "ttft_s", "tpot_s", "e2e_s"),
)


@contextmanager
def iteration_log(path: Path | None) -> Iterator[Callable[[Iteration], object] | None]:
    """A function that writes an iteration to ``path``; None without one. Lists are separated by blanks."""
    with _table(path, Iteration._fields) as write:
        yield write and (lambda one: write([" ".join(map(str, held)) if isinstance(held, tuple) else held for held in one]))


@contextmanager
def request_log(path: Path | None) -> Iterator[Callable[[Request], object] | None]:
    """A function that writes a finished request to ``path``; None without one."""

    def row(one: Request) -> list[object]:
        times = [one.arrival_s, one.admitted_s, one.first_token_s, one.finished_s]
        tpot = (one.finished_s - one.first_token_s) / (one.tokens - 1) if one.tokens > 1 else 0.0
        spans = [one.first_token_s - one.arrival_s, tpot, one.finished_s - one.arrival_s]
        return [one.index, *times, one.prompt_tokens, one.tokens, one.preemptions, *spans]

    with _table(path, REQUEST_COLUMNS) as write:
        yield write and (lambda one: write(row(one)))


@contextmanager
def _table(path: Path | None, columns: Sequence[str]) -> Iterator[Callable[[Sequence[object]], object] | None]:
    with whole_file(path) as file:
        if file is None:
            yield None
            return
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        yield table.writerow
