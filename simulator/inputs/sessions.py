"""Files of sessions, read into turns: our own columns, exports of AIPerf, conversations.

What a file is follows from what it holds:

* A table (CSV) or records (JSONL) with a line for every turn: ``session``, ``output_tokens``, and
  either ``new_tokens`` or ``prompt_tokens``; perhaps ``turn``, ``arrival_s``, ``think_s``,
  ``parent``, ``system_prompt`` and ``system_tokens``.
* ``profile_export.jsonl`` of AIPerf, with ``metadata`` and ``metrics`` of every turn
  (ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md). A think time is what passed
  between the end of a turn and the start of the next. Failed and cancelled turns, and those of the
  warm-up, are left out. A conversation that was held several times, and is known by its
  ``conversation_id`` alone, is told apart by the order of its turns.
* Conversations with messages (ShareGPT, WildChat, OpenAI), JSON or JSONL: every answer is a turn,
  and tokens are counted as :mod:`simulator.inputs.logs` does.

Where a prompt has fewer tokens than all that was said before it (a client that drops thoughts),
only the prompt of the turn before is taken to be in common with it; where it has fewer than that,
the system prompt.
"""

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

from simulator.core.faults import BadInput, told
from simulator.core.nearness import nearest_name
from simulator.core.plain import PlainMapping
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.load.traffic import LATEST_S, MOST_TOKENS
from simulator.core.serving.load.turns import Said, Session
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.logs import KNOWN, part_of, turns_in
from simulator.inputs.rows import Values, column_of, lines_of_json, number_in, rows_of_table

COLUMNS = (
    *("session", "turn", "arrival_s", "think_s", "parent"),
    *("prompt_tokens", "new_tokens", "output_tokens", "system_prompt", "system_tokens"),
)
"""What a line for a turn may have; whatever is called quite otherwise is left alone."""
TABLES = (".csv",)
RECORDS = (".jsonl", ".ndjson")
NS = 1e-9
"""Seconds of a nanosecond."""


def recorded(file: SessionFile) -> Sequence[Session]:
    """Return the sessions of a file, the earliest first; what was read is kept as long as the file
    stays as it is.
    """
    with readable(file.file):
        facts = os.stat(file.file)
        return _read(file.file, (facts.st_mtime_ns, facts.st_size))


@lru_cache(maxsize=4)
def _read(name: str, _: tuple[int, int]) -> Sequence[Session]:
    file = SessionFile(file=name)
    path = Path(name.removesuffix(".gz"))
    if path.suffix == ".json":
        sessions = _conversations(file, _json(file))
    elif path.suffix in TABLES:
        sessions = _of_lines(file, _lines(file, rows_of_table, "csv"))
    elif path.suffix in RECORDS:
        sessions = _of_records(file, list(_lines(file, lines_of_json, "jsonl")))
    else:
        kinds = ", ".join((*TABLES, *RECORDS, ".json"))
        raise file.fault(0, f"expected a file of sessions that ends in one of {kinds}")
    if not sessions:
        raise file.fault(0, "holds no turn with an output")
    return sorted(sessions, key=lambda session: session.begin_s or 0.0)


def _lines(file: SessionFile, read: Any, kind: str) -> Iterator[tuple[int, Values]]:
    """Yield the lines of a file with their numbers, as ``read`` takes them apart."""
    number = 0
    try:
        with reading.lines(file.file) as lines:
            for number, values in read(lines):
                yield number, values
    except (csv.Error, json.JSONDecodeError) as error:
        column = getattr(error, "colno", 1)
        raise file.fault(number + 1, f"cannot be read as {kind}: {error}", column) from error


def _json(file: SessionFile) -> list[tuple[int, Values]]:
    """Return the records of a JSON file; they have no lines."""
    text = reading.text(Path(file.file), reading.MOST_TABLE_BYTES)
    try:
        records = reading.from_json(text)
    except json.JSONDecodeError as error:
        message = f"cannot be read as json: {error.msg}"
        raise file.fault(error.lineno, message, error.colno) from error
    listed = records if isinstance(records, list) else [records]
    return [(0, record if isinstance(record, dict) else {}) for record in listed]


def _of_records(file: SessionFile, records: Sequence[tuple[int, Values]]) -> list[Session]:
    """Return the sessions of lines of JSON, which the first one tells apart."""
    _, first = records[0] if records else (0, {})
    if "metadata" in first and "metrics" in first:
        return _of_aiperf(file, records)
    if turns_in(first):
        return _conversations(file, records)
    return _of_lines(file, records)


# ---- our own columns


class _Row(NamedTuple):
    """A line for a turn."""

    line: int
    values: Values


def _of_lines(file: SessionFile, lines: Iterator[tuple[int, Values]] | Any) -> list[Session]:
    """Return the sessions of a table with a line for every turn."""
    by_session: dict[str, list[_Row]] = {}
    checked = set[str]()
    for line, values in lines:
        for column in values:
            if column not in checked:
                _check_column(file, line, column, values)
                checked.add(column)
        name = values.get("session")
        if name is None or name == "":
            _missing(file, line, values, "session")
        by_session.setdefault(str(name), []).append(_Row(line, values))
    systems: dict[str, int] = {}
    sessions = [_of_rows(file, rows, systems) for rows in by_session.values()]
    untimed = [session.begin_s is None for session in sessions]
    if any(untimed) and not all(untimed):
        line = sessions[untimed.index(True)].turns[0].line
        message = "is missing in the first turn of a session, while others have it"
        raise file.fault(line, message, field="arrival_s")
    first_s = min((session.begin_s or 0.0 for session in sessions), default=0.0)
    if all(untimed):
        return sessions
    return [session._replace(begin_s=(session.begin_s or 0.0) - first_s) for session in sessions]


def _check_column(file: SessionFile, line: int, column: str, values: Values) -> None:
    """Raise the error of a column that is called almost as one that is read."""
    if column in COLUMNS:
        return
    parted = [name.strip() for name in re.split(r"[;\t|]", column)]
    if len(parted) > 1 and "session" in map(str.lower, parted):
        message = f"expected commas between columns, got '{column[len(parted[0])]}'"
        raise file.fault(1, message, len(parted[0]) + 1)
    meant = nearest_name(column, [name for name in COLUMNS if name not in values])
    if not meant:
        return
    message = f"is no column of sessions; did you mean '{meant}'?"
    if Path(file.file.removesuffix(".gz")).suffix not in TABLES:
        raise file.fault(line, message, field=column)
    names = list(values)
    begins = 1 + sum(len(name) + 1 for name in names[: names.index(column)])
    raise file.fault(1, message, begins, column)  # in the head of the table


def _of_rows(file: SessionFile, rows: Sequence[_Row], systems: dict[str, int]) -> Session:
    """Return a session of the lines of its turns; ``systems`` gets the tokens of system prompts by
    name.
    """
    begin_s = _optional_s(file, rows[0], "arrival_s")
    system, system_tokens = _system(file, rows[0], systems)
    numbers: list[int] = []
    prompts: list[int] = []
    said: list[Said] = []
    for row in rows:
        number = _turn_number(file, row, numbers)
        output = _tokens(file, row, "output_tokens")
        if not said:
            prompts.append(_first_prompt(file, row, system_tokens))
            said.append(Said(prompts[0] - system_tokens, output, line=row.line))
        else:
            parent = _parent(file, row, numbers)
            from_turn = len(said) - 1 if parent is None else parent
            before = prompts[from_turn], said[from_turn].output_tokens
            if _stated(row, "prompt_tokens"):
                prompt = _tokens(file, row, "prompt_tokens")
                new, shared = behind(prompt, *before, system_tokens)
                _check_new_tokens(file, row, new)
            else:
                new, shared = _tokens(file, row, "new_tokens"), None
                prompt = sum(before) + new
            arrival_s = _optional_s(file, row, "arrival_s")
            prompts.append(prompt)
            said.append(
                Said(
                    new,
                    output,
                    _optional_s(file, row, "think_s") or 0.0,
                    max(0.0, (arrival_s or 0.0) - (begin_s or 0.0)),
                    parent,
                    shared,
                    row.line,
                )
            )
        numbers.append(number)
    return Session(said, system, system_tokens, begin_s)


def _check_new_tokens(file: SessionFile, row: _Row, new: int) -> None:
    """Raise the error of ``new_tokens`` that contradict the ``prompt_tokens`` beside them."""
    if _stated(row, "new_tokens") and _tokens(file, row, "new_tokens") != new:
        message = (
            f"expected {new:,}, which prompt_tokens leave behind all that was said; leave one out"
        )
        raise _wrong(file, row, message, "new_tokens")


def behind(
    prompt: int, prompt_before: int, output_before: int, system: int
) -> tuple[int, int | None]:
    """Return what a prompt of so many tokens has of its own, and what it has in common with the
    turn that it goes on from, whose prompt and output have so many; None: all of it.
    """
    if prompt > prompt_before + output_before:
        return prompt - prompt_before - output_before, None
    shared = prompt_before if prompt > prompt_before else min(system, prompt - 1)
    return prompt - shared, shared


def _first_prompt(file: SessionFile, row: _Row, system_tokens: int) -> int:
    """Return the tokens of the first prompt of a session, which has more than its system prompt."""
    if not _stated(row, "prompt_tokens"):
        return system_tokens + _tokens(file, row, "new_tokens")
    prompt = _tokens(file, row, "prompt_tokens")
    if prompt <= system_tokens:
        message = f"expected more than the {system_tokens:,} system_tokens, got {prompt:,}"
        raise _wrong(file, row, message, "prompt_tokens")
    return prompt


def _system(file: SessionFile, row: _Row, systems: dict[str, int]) -> tuple[str, int]:
    """Return name and tokens of the system prompt of a session."""
    name = str(row.values.get("system_prompt") or "")
    if not name and _stated(row, "system_tokens"):
        message = "are those of a system prompt without a name; state system_prompt"
        raise _wrong(file, row, message, "system_tokens")
    if not name:
        return "", 0
    tokens = _tokens(file, row, "system_tokens")
    if systems.setdefault(name, tokens) != tokens:
        message = f"'{name}' has {systems[name]:,} tokens further up, got {tokens:,}"
        raise _wrong(file, row, message, "system_tokens")
    return f"system {name}", tokens


def _wrong(file: SessionFile, row: _Row, message: str, name: str) -> BadInput:
    """Return the error of a cell."""
    return file.fault(row.line, message, column_of(row.values, name), name)


def _turn_number(file: SessionFile, row: _Row, numbers: Sequence[int]) -> int:
    """Return the number of a turn, which is one more than that of the turn before it."""
    expected = numbers[-1] + 1 if numbers else 0
    if not _stated(row, "turn"):
        return expected
    number = number_in(
        file, row.line, row.values, "turn", "a whole number", int, lambda turn: turn >= 0
    )
    if numbers and number != expected:
        message = f"expected {expected}, as turns of a session follow each other, got {number}"
        raise _wrong(file, row, message, "turn")
    return number


def _parent(file: SessionFile, row: _Row, numbers: Sequence[int]) -> int | None:
    """Return the place of the turn that a turn goes on from; None: the one before it."""
    if not _stated(row, "parent"):
        return None
    what = f"the number of an earlier turn, {numbers[0]} to {numbers[-1]}"
    number = number_in(
        file, row.line, row.values, "parent", what, int, lambda turn: turn in numbers
    )
    return None if number == numbers[-1] else numbers.index(number)


def _stated(row: _Row, name: str) -> bool:
    """Return whether a line says anything in a column."""
    return row.values.get(name) not in (None, "")


def _tokens(file: SessionFile, row: _Row, name: str) -> int:
    return number_in(
        file,
        row.line,
        row.values,
        name,
        f"a whole number of tokens from 1 to {MOST_TOKENS:,}",
        int,
        lambda tokens: 1 <= tokens <= MOST_TOKENS,
    )


def _optional_s(file: SessionFile, row: _Row, name: str) -> float | None:
    """Return a time in seconds; None where the line has none."""
    if not _stated(row, name):
        return None
    what = f"seconds from 0 to {LATEST_S:g}"
    return number_in(
        file, row.line, row.values, name, what, float, lambda seconds: 0.0 <= seconds <= LATEST_S
    )


def _missing(file: SessionFile, line: int, values: Values, name: str) -> None:
    """Raise the error of a line without a column."""
    present = ", ".join(str(key) for key in values if key)
    raise file.fault(line, f"is missing; the line has {present or 'nothing'}", 1, name)


# ---- AIPerf


class _Sent(NamedTuple):
    """A turn that AIPerf has sent."""

    line: int
    turn: int
    start_ns: int
    end_ns: int
    prompt: int
    output: int
    worker: str = ""
    """Who has sent it; empty where nobody says so."""


def _of_aiperf(file: SessionFile, records: Sequence[tuple[int, Values]]) -> list[Session]:
    """Return the sessions of an export of AIPerf."""
    by_session: dict[str, list[_Sent]] = {}
    for line, record in records:
        metadata, metrics = (_object(file, line, record, name) for name in ("metadata", "metrics"))
        if metadata.get("was_cancelled") or metadata.get("benchmark_phase") == "warmup":
            continue
        if record.get("error"):
            continue
        name = metadata.get("x_correlation_id") or metadata.get("conversation_id")
        if name is None:
            _missing(file, line, metadata, "conversation_id")
        by_session.setdefault(str(name), []).append(_sent(file, line, metadata, metrics))
    sessions = [held for turns in by_session.values() for held in _instances(turns)]
    first_ns = min((turn.start_ns for turns in sessions for turn in turns), default=0)
    return [_of_sent(turns, first_ns) for turns in sessions]


def _instances(turns: list[_Sent]) -> list[list[_Sent]]:
    """Return the turns of each time that a conversation was held: several where a number of a turn
    comes twice. A turn goes on from the one before it that has ended longest ago, of its worker if
    that has one.
    """
    if len({sent.turn for sent in turns}) == len(turns):
        return [turns]
    instances: list[list[_Sent]] = []
    for sent in sorted(turns, key=lambda sent: (sent.start_ns, sent.turn)):
        before = [
            held
            for held in instances
            if held[-1].turn < sent.turn and held[-1].end_ns <= sent.start_ns
        ]
        if not before:
            instances.append([sent])
            continue
        nearest = min(
            before,
            key=lambda held: (-held[-1].turn, held[-1].worker != sent.worker, held[-1].end_ns),
        )
        nearest.append(sent)
    return instances


def _object(file: SessionFile, line: int, record: Values, name: str) -> PlainMapping:
    """Return a part of a record that holds fields of its own."""
    part = record.get(name)
    if not isinstance(part, Mapping):
        raise file.fault(line, f"expected fields in braces, got {told(part)}", 1, name)
    return part


def _sent(file: SessionFile, line: int, metadata: PlainMapping, metrics: PlainMapping) -> _Sent:
    """Return a turn of an export."""
    values = {name: metadata.get(name) for name in ("turn_index", *TIMES)}
    for name in LENGTHS:
        metric = metrics.get(name)
        values[name] = metric.get("value") if isinstance(metric, Mapping) else metric
    given = {name: value for name, value in values.items() if value is not None}
    whole = "a whole number of 0 or more"
    times = [
        number_in(file, line, given, name, whole, int, lambda value: 0 <= value < 1 << 63)
        for name in ("turn_index", *TIMES)
    ]
    row = _Row(line, {name: _as_whole(value) for name, value in given.items()})
    turn, start_ns, end_ns = times
    if end_ns < start_ns:
        message = f"is {(start_ns - end_ns) * NS:.6g} s before request_start_ns"
        raise file.fault(line, message, 1, "request_end_ns")
    prompt, output = (_tokens(file, row, name) for name in LENGTHS)
    worker = str(metadata.get("worker_id") or "")
    return _Sent(line, turn, start_ns, end_ns, prompt, output, worker)


TIMES = ("request_start_ns", "request_end_ns")
LENGTHS = ("input_sequence_length", "output_sequence_length")


def _as_whole(value: Any) -> Any:
    """Return a count that is written as 3.0 as the whole number that it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < inf:
        return int(value)
    return value


def _of_sent(turns: list[_Sent], first_ns: int) -> Session:
    """Return a session of its turns."""
    turns = sorted(turns, key=lambda sent: sent.turn)
    said = [Said(turns[0].prompt, turns[0].output, line=turns[0].line)]
    for before, sent in zip(turns, islice(turns, 1, None), strict=False):
        new, shared = behind(sent.prompt, before.prompt, before.output, 0)
        wait_s = max(0, sent.start_ns - before.end_ns) * NS
        said.append(Said(new, sent.output, wait_s, shared_tokens=shared, line=sent.line))
    return Session(said, begin_s=(turns[0].start_ns - first_ns) * NS)


# ---- conversations


def _conversations(file: SessionFile, records: Sequence[tuple[int, Values]]) -> list[Session]:
    """Return the sessions of conversations, of which every answer is a turn; a system prompt is
    known by its text.
    """
    systems: dict[str, int] = {}
    sessions = []
    for number, (line, record) in enumerate(records, start=1):
        messages = turns_in(record)
        if not messages:
            place = "" if line else f"record {number}: "
            present = ", ".join(record) or "nothing"
            raise file.fault(line, f"{place}expected messages of a conversation, got {present}")
        session = _of_messages(file, line, number, messages, systems)
        if session.turns:
            sessions.append(session)
    return sessions


def _of_messages(
    file: SessionFile, line: int, number: int, messages: Sequence[Any], systems: dict[str, int]
) -> Session:
    """Return the session of a conversation; without a turn where nobody has answered."""
    system = ""
    system_tokens = 0
    unread = 0
    said: list[Said] = []
    for count, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            what = f"record {number}, message {count}"
            raise file.fault(line, f"{what}: expected fields in braces, got {told(message)}")
        text = part_of(message, "text")
        speaker = part_of(message, "speaker")
        tokens = ceil(len(text) / KNOWN["characters_per_token"])
        if count == 1 and speaker == "system" and tokens:
            system = f"system {systems.setdefault(text, len(systems))}"
            system_tokens = tokens
        elif speaker in KNOWN["assistant"] and unread and tokens:
            said.append(Said(unread, tokens, line=line))
            unread = 0
        else:
            unread += tokens
    return Session(said, system, system_tokens, by_characters=True)
