"""Write logs of a run as CSV: a line per iteration, a line per request. A file appears when it is
complete, or not at all.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulator.core.serving.iteration import Iteration
from simulator.core.serving.requests import Request
from simulator.inputs.writing import whole_file

REQUEST_COLUMNS = (
    *(
        "request",
        "arrival_s",
        "admitted_s",
        "first_token_s",
        "finished_s",
        "prompt_tokens",
        "output_tokens",
    ),
    *("preemptions", "ttft_s", "tpot_s", "e2e_s"),
)


@contextmanager
def iteration_log(path: Path | None) -> Iterator[Callable[[Iteration], object] | None]:
    """Yield a function that writes an iteration to ``path``; None without a path. Lists are
    separated by blanks.
    """

    def row(iteration: Iteration) -> list[object]:
        return [
            " ".join(map(str, field)) if isinstance(field, tuple) else field for field in iteration
        ]

    with _table(path, Iteration._fields) as write:
        yield write and (lambda iteration: write(row(iteration)))


@contextmanager
def request_log(path: Path | None) -> Iterator[Callable[[Request], object] | None]:
    """Yield a function that writes a finished request to ``path``; None without a path."""

    def row(request: Request) -> list[object]:
        times = [request.arrival_s, request.admitted_s, request.first_token_s, request.finished_s]
        spent = request.spent_s
        spans = [spent["ttft"], spent.get("tpot", 0.0), spent["e2e"]]
        return [
            request.index,
            *times,
            request.prompt_tokens,
            request.tokens,
            request.preemptions,
            *spans,
        ]

    with _table(path, REQUEST_COLUMNS) as write:
        yield write and (lambda request: write(row(request)))


@contextmanager
def _table(
    path: Path | None, columns: Sequence[str]
) -> Iterator[Callable[[Sequence[object]], object] | None]:
    """Yield a function that writes a row below a head of ``columns``; None without a path."""
    with whole_file(path) as file:
        if file is None:
            yield None
            return
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        yield table.writerow
