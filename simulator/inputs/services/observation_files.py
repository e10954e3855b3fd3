"""``observed.yaml`` and the tables beside it: written, and read back by the same model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.inputs.services.measured import (
    RequestSteps,
    ServedPass,
    ServedRequest,
    ServiceFile,
    by_arrival,
    known,
    listing_of,
    places_by_arrival,
)
from simulator.inputs.services.observed import Observed
from simulator.inputs.writing import csv_text, json_text

OBSERVED = "observed.yaml"
REQUESTS = "observed_requests.csv"
PASSES = "observed_passes.csv"
STEPS = "observed_steps.jsonl"
COLUMNS = {
    "arrival_s": "arrival_s",
    "session": "session",
    "turn": "turn",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached",
    "output_tokens": "output_tokens",
    "ttft_ms": "ttft_ms",
    "tpot_ms": "tpot_ms",
    "e2e_ms": "e2e_ms",
    "steps": "decode_steps",
    "drafts": "drafts",
    "drafted_tokens": "drafted",
    "accepted_tokens": "accepted",
}
"""Columns of the table of requests, which also is one of sessions and of a log of requests."""


def observation_files(observed: Observed, services: Sequence[ServiceFile]) -> Mapping[str, str]:
    """Return the files of an observation by name: what is known of it, and tables of its requests,
    passes and steps, where there are any.

    Requests are those of the first file about all of them, from the arrival of the first.
    """
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    for field, name, table in _tables(services):
        files[name] = table
        names[field] = name
    content = observed.model_copy(update=names).model_dump(mode="json", exclude_none=True)
    files[OBSERVED] = yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)
    return files


def _tables(services: Sequence[ServiceFile]) -> Iterator[tuple[str, str, str]]:
    """Yield the tables of files: the field of an observation that names one, its name, its text."""
    listing = listing_of(services)
    if listing:
        yield "requests_file", REQUESTS, _requests_table(listing.requests)
    passes = [one_pass for each in services for one_pass in each.passes]
    if passes:
        yield "passes_file", PASSES, csv_text(ServedPass._fields, passes)
    lines = []
    for each in services:
        rows = _rows_of(each, listing) if listing else {}
        lines += [_steps_line(steps, rows) for steps in each.steps]
    if lines:
        yield "steps_file", STEPS, "".join(lines)


def _rows_of(service: ServiceFile, listing: ServiceFile) -> Mapping[int, int]:
    """Return the rows in the table of requests, from 1, of the requests of a file, by their places
    in it: those of the same file, or those that alone have as many tokens in both.
    """
    order = places_by_arrival(listing.requests)
    if service is listing:
        return {place: row for row, place in enumerate(order, 1)}
    rows = _by_lengths([listing.requests[place] for place in order])
    places = _by_lengths(service.requests)
    return {place: rows[lengths] + 1 for lengths, place in places.items() if lengths in rows}


def _by_lengths(requests: Sequence[ServedRequest]) -> Mapping[tuple[int, int], int]:
    """Return the places of requests by tokens of prompt and output, of those that no two share."""
    places: dict[tuple[int, int], list[int]] = {}
    for place, request in enumerate(requests):
        if request.prompt_tokens and request.output_tokens:
            lengths = request.prompt_tokens, request.output_tokens
            places.setdefault(lengths, []).append(place)
    return {lengths: alike[0] for lengths, alike in places.items() if len(alike) == 1}


def _steps_line(steps: RequestSteps, rows: Mapping[int, int]) -> str:
    """Return a line of the steps of a request, with its row in the table of requests where that is
    known.
    """
    fields = steps._asdict()
    place = fields.pop("request")
    if place in rows:
        fields["request"] = rows[place]
    return json_text(fields, indent=None) + "\n"


def _requests_table(requests: Sequence[ServedRequest]) -> str:
    """Return requests as CSV, in the order of their arrival; sessions are numbers, and turns
    follow each other where one between them failed.
    """
    begin_s = min(known(request.arrival_s for request in requests), default=0.0)
    numbers: dict[str, int] = {}
    turns = _turns_by_session(requests)
    rows = []
    for request in by_arrival(requests):
        arrival_s = None
        if request.arrival_s is not None:
            arrival_s = round(request.arrival_s - begin_s, 6)
        session: int | str = ""
        if request.session:
            session = numbers.setdefault(request.session, len(numbers))
        turn = request.turn
        if turn is not None:
            turn = turns[request.session].index(turn)
        shown = request._replace(arrival_s=arrival_s, session=str(session), turn=turn)
        rows.append([getattr(shown, name) for name in COLUMNS])
    return csv_text(COLUMNS.values(), rows)


def _turns_by_session(requests: Sequence[ServedRequest]) -> Mapping[str, Sequence[int]]:
    """Return the turns of each session in their order."""
    turns: dict[str, list[int]] = {}
    for request in requests:
        if request.turn is not None:
            turns.setdefault(request.session, []).append(request.turn)
    return {session: sorted(each) for session, each in turns.items()}


def read_observed(path: Path) -> Observed:
    """Return the observation of a file; raises :class:`BadInput` with the place of every fault."""
    return validate(Observed, read(path))
