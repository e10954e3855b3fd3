"""Traffic files, read line by line.

``format`` names one of five: four that ``traffic_columns.yaml`` describes, and ``log``, whatever
:mod:`simulator.inputs.logs` recognises.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import repeat
from math import inf
from typing import Any

import numpy as np

from simulator.core.plain import PlainMapping
from simulator.core.serving.load.traffic import MOST_TOKENS, Line, TrafficFile
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.logs import TRAFFIC, listed_hashes, named_columns, read_log
from simulator.inputs.rows import Values, lines_of_json, number_in, rows_of_table

FORMATS = (*TRAFFIC, "log")
"""Formats that are read here."""
MOST_BYTES = 10**11
"""Bytes of a file, at most: a thousand million requests."""


def recorded(file: TrafficFile) -> Iterator[Line]:
    """Yield all requests of the file, in its own time."""
    if file.format == "log":
        yield from _logged(file)
        return
    columns = TRAFFIC[file.format]
    first = None
    number = 1
    read = rows_of_table if columns["table"] else lines_of_json
    try:
        with readable(file.file), reading.lines(file.file, MOST_BYTES) as lines:
            for number, values in read(lines):
                output = _tokens(
                    file, number, values, columns["output"], 0 if columns["failures"] else 1
                )
                prompt = _tokens(file, number, values, columns["prompt"], 1)
                arrival = _seconds(file, number, values, columns)
                first = arrival if first is None else first
                if output:
                    task = str(values.get(columns["task"]) or "")
                    hashes = listed_hashes(values.get("hash_ids"))
                    at = arrival - first if columns["time"] == "date" else arrival
                    yield Line(number, at, prompt, output, task, hashes)
    except (csv.Error, json.JSONDecodeError) as error:
        raise file.fault(number + 1, f"cannot be read as {file.format}: {error}") from error


def _logged(file: TrafficFile) -> Iterator[Line]:
    """Yield the requests of a log."""
    log = read_log(file.file, file.columns)
    if file.rate_per_s is None and not log.timed:
        remedy = (
            "state rate_per_s (--rate) of specsim plan, or "
            "requests.arrivals.rate_per_s=RATE elsewhere, "
        )
        remedy += f"or the column that has them, as in {named_columns(['arrival'])}"
        raise file.fault(0, f"has no times of arrival; {remedy}", field="rate_per_s")
    hashes = log.hashes or repeat(())
    lines = [Line(*request, named) for request, named in zip(log.requests, hashes, strict=False)]
    if file.rate_per_s is None or len(lines) == 1:
        yield from lines
        return
    if log.timed:
        lasted_s = lines[-1].arrival_s
        if not lasted_s:
            message = (
                f"has {len(lines):,} requests at one time, which no rate spreads; leave "
                "rate_per_s (--rate) out"
            )
            raise file.fault(0, message, field="rate_per_s")
        slower = (len(lines) - 1) / lasted_s / file.rate_per_s
        yield from (line._replace(arrival_s=line.arrival_s * slower) for line in lines)
        return
    at = np.random.default_rng(0).exponential(1.0 / file.rate_per_s, len(lines)).cumsum()
    yield from (
        line._replace(arrival_s=float(at[place] - at[0])) for place, line in enumerate(lines)
    )


def _tokens(file: TrafficFile, number: int, values: Values, name: str, least: int) -> int:
    what = f"a whole number of tokens from {least} to {MOST_TOKENS:,}"
    return number_in(
        file, number, values, name, what, int, lambda tokens: least <= tokens <= MOST_TOKENS
    )


def _seconds(file: TrafficFile, number: int, values: Values, columns: PlainMapping) -> float:
    clock = CLOCKS[columns["time"]]
    name = columns["arrival"]
    return number_in(
        file,
        number,
        values,
        name,
        "a time of 0 or later",
        clock,
        lambda seconds: 0.0 <= seconds < inf,
    )


def _date(text: str) -> float:
    """Return a date and time as seconds; without a zone as if it were UTC, so that summer time
    moves nothing.
    """
    return datetime.fromisoformat(
        text if text.endswith("Z") or "+" in text else f"{text}+00:00"
    ).timestamp()


CLOCKS: Mapping[str, Callable[[Any], float]] = {
    "date": _date,
    "ms": lambda ms: float(ms) / 1e3,
    "s": float,
}
"""Functions from a time in a file to seconds, by the ``time`` of its format."""
