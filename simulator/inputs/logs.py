"""Logs as people have them: tables, records and conversations, read into requests with a time, a
prompt and an output.

A log is CSV, JSONL, JSON or Parquet, or the text log of a server. ``log_columns.yaml`` holds the
names of columns that are recognised; others are named by the user. Records may be nested (OpenAI
usage), columns of lists (benchmarks), or conversations with turns (ShareGPT), of which every answer
is a request whose prompt is all before it. Requests come in the order of their arrival, the first
at 0; records without an output are failed calls and left out.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.core.faults import LARGEST, BadInput, told
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.loader import packaged

if TYPE_CHECKING:
    import pandas as pd

KNOWN: PlainData = packaged(Path(__file__).with_name("log_columns.yaml"))
TRAFFIC: PlainData = packaged(Path(__file__).with_name("traffic_columns.yaml"))
"""Columns of the formats of traffic files that are not recognised but known, and how they count
time.
"""
ROLES = ("arrival", "prompt", "output", "task", "hashes")
"""What a column may be named as."""
EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (0.0, 1.0))
"""From where on a number is nanoseconds, microseconds, milliseconds, seconds since 1970: each
begins before 1974.
"""
LATEST = 1e19
"""Latest time in any unit: nanoseconds since 1970 in the year 2286, as 2026 is at 1.8e18
already.
"""
UNITS = {"_ns": 1e-9, "_us": 1e-6, "_ms": 1e-3, "_s": 1.0}
SEPARATORS = {".csv": ",", ".tsv": "\t"}
TEXTS = (".log", ".txt")
"""Endings of the text logs of servers."""
FIRST_LINE = {".csv": 2, ".tsv": 2, ".jsonl": 1, ".ndjson": 1}
"""Line of the first record, by the ending of a file whose records are lines."""
BARS = "▁▂▃▄▅▆▇█"
LENGTHS = {"prompts": 2, "outputs": 3}
"""Place of the lengths in a request."""
BINS = 32
"""Intervals of the small picture."""


@dataclass(frozen=True)
class RecordedLog:
    """Holds the requests of a log, and how they were read."""

    requests: tuple[tuple[int, float, int, int, str], ...]
    """Number of the record, arrival (s, from the first), tokens of prompt and output, task; in
    order of arrival.
    """
    columns: Mapping[str, str]
    """Name of the column by what it was taken for."""
    skipped: int
    """Records without a prompt or an output."""
    timed: bool
    """Whether it says when requests came."""
    counted: str = ""
    """How tokens were counted where the log has texts; empty where it has counts."""
    hashes: tuple[tuple[Any, ...], ...] = ()
    """What each request names the prefixes of its prompt by; empty where the log does not."""

    @property
    def words(self) -> list[str]:
        """Return what was read, in sentences."""
        arrivals = [at for _, at, *_ in self.requests]
        taken = ", ".join(f"{role} from '{name}'" for role, name in self.columns.items())
        read = f"{len(arrivals):,} requests read: {taken}"
        if self.skipped:
            read += f"; {self.skipped:,} records without prompt or output left out"
        if self.counted:
            read += f"; {self.counted}"
        said = [read]
        lasted_s = arrivals[-1]
        if self.timed and lasted_s:
            span = f"{lasted_s:.3g} s"
            if lasted_s >= 1:
                span = f"{lasted_s:,.0f} s"
            rate = f"{len(arrivals) / lasted_s:.3g} a second in the mean"
            said.append(f"over {span} |{picture(arrivals)}| {rate}")
        for name, place in LENGTHS.items():
            lengths = [request[place] for request in self.requests]
            said.append(f"{name} of {_spread(lengths)} tokens")
        return said


def picture(arrivals: list[float]) -> str:
    """Return requests over time as a row of bars, as high as the most of any of ``BINS`` equal
    intervals.
    """
    counts = Counter(min(BINS - 1, int(at / arrivals[-1] * BINS)) for at in arrivals)
    most = max(counts.values())
    bars = ""
    for place in range(BINS):
        height = -(-counts[place] * (len(BARS) - 1) // most)
        bars += BARS[height]
    return bars


def _spread(values: list[Any]) -> str:
    """Return the median and the 95th percentile of lengths in words."""
    ordered = sorted(values)
    median = ordered[len(ordered) // 2]
    rank = -(-95 * len(ordered) // 100)
    return f"{median:,} (median; p95 {ordered[rank - 1]:,})"


def read_log(file: str, columns: Mapping[Any, str]) -> RecordedLog:
    """Return the requests of a log; raises :class:`BadInput` with file, line and column.

    ``columns`` names columns by role: arrival, prompt, output, task; the others are recognised.
    What was read is kept as long as the file stays as it is.
    """
    with readable(file):
        facts = os.stat(file)
        stated = tuple(sorted(columns.items()))
        return _read(file, stated, (facts.st_mtime_ns, facts.st_size))


@lru_cache(maxsize=4)
def _read(file: str, stated: tuple[tuple[str, str], ...], _: tuple[int, int]) -> RecordedLog:
    table, counted = _table(file)
    taken = _columns(file, table, dict(stated))
    prompt = _tokens(file, table, taken, "prompt")
    output = _tokens(file, table, taken, "output")
    whole = (prompt > 0) & (output > 0)
    if not whole.any():
        raise BadInput.at(file, "holds no request with a prompt and an output")
    at = _arrivals(file, table, taken, whole)
    tasks: Any = dict.fromkeys(table.index, "")
    if "task" in taken:
        tasks = table[taken["task"]].fillna("").astype(str)
    kept = sorted(table.index[whole], key=lambda row: at[row])
    since = (at - at[kept[0]]).round(6)  # seconds since 1970 have no more digits
    requests = []
    for row in kept:
        lengths = (int(prompt[row]), int(output[row]))
        requests.append((_line(file, row), float(since[row]), *lengths, tasks[row]))
    timed = "arrival" in taken or "end" in taken
    hashes: tuple[tuple[Any, ...], ...] = ()
    if "hashes" in taken:
        cells = table[taken["hashes"]]
        hashes = tuple(listed_hashes(cells[row]) for row in kept)
    skipped = int((~whole).sum())
    return RecordedLog(tuple(requests), taken, skipped, timed, counted, hashes)


def listed_hashes(value: Any) -> tuple[Any, ...]:
    """Return prefix hashes as they are listed, or stand in a cell; nothing where the value is
    neither.
    """
    if isinstance(value, str):
        parts = re.split(r"[\s,;]+", value.strip(" []()"))
        return tuple(part for part in parts if part)
    if hasattr(value, "tolist"):  # an array, where a log is Parquet
        value = value.tolist()
    if isinstance(value, list):
        return tuple(value)
    return ()


def _line(file: str, row: int) -> int:
    """Return the line of a record: below its head in a table, its own in lines of JSON; 0 where
    records have no lines.
    """
    if Path(file).suffix in FIRST_LINE:
        return row + FIRST_LINE[Path(file).suffix]
    return 0


def _table(file: str) -> tuple["pd.DataFrame", str]:
    """Return the records of a log as a table with dotted columns, and how tokens were counted where
    it has texts.
    """
    import pandas as pd

    path = Path(file)
    try:
        with reading.opened(path, reading.MOST_TABLE_BYTES) as opened:
            if path.suffix == ".parquet":
                return pd.read_parquet(opened), ""
            if path.suffix in SEPARATORS:
                separator = SEPARATORS[path.suffix]
                cells = pd.read_csv(
                    opened, sep=separator, dtype=str, skipinitialspace=True, encoding="utf-8-sig"
                )
                return cells, ""
        records = list(_records(path))
    except ImportError as error:
        remedy = "needs the extra 'parquet': pip install 'specdecode-sim[parquet]'"
        raise BadInput.at(file, remedy) from error
    except (ValueError, pd.errors.ParserError) as error:
        raise BadInput.at(file, f"cannot be read as {path.suffix[1:]}: {error}") from error
    turned = list(_conversations(records))
    if turned:
        counted = f"tokens counted as {KNOWN['characters_per_token']} characters each"
        return pd.DataFrame(turned), counted
    return _exploded(pd.json_normalize(records)), ""


def _records(path: Path) -> Iterator[PlainData]:
    """Yield the records of JSON, of JSONL, or those that the patterns find in a text log."""
    if path.suffix == ".json":
        text = reading.text(path, reading.MOST_TABLE_BYTES)
        records = reading.from_json(text)
        if not isinstance(records, list):
            records = [records]
        for record in records:
            if isinstance(record, dict):
                yield record
        return
    with reading.lines(path) as opened:
        for number, line in enumerate(opened, start=1):
            if path.suffix in TEXTS:
                for pattern in KNOWN["lines"]:
                    if match := re.search(pattern, line):
                        yield match.groupdict()
            elif line.strip():
                try:
                    yield reading.from_json(line)
                except json.JSONDecodeError as error:
                    message = f"cannot be read as {path.suffix[1:]}: {error}"
                    raise BadInput.at((str(path), number, 1), message) from error


def _exploded(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table with a line for every element where a benchmark has written lists, or one list
    of records.
    """
    import pandas as pd

    if table.empty:
        return table
    listed = [name for name in table if isinstance(table[name].iloc[0], list)]
    counts = _recognised("prompt", listed) or _recognised("output", listed)
    if counts is not None:
        lengths = {name: table[name].str.len() for name in listed}
        alike = [name for name in listed if lengths[name].equals(lengths[counts])]
        return table[alike].explode(alike, ignore_index=True)
    if len(table) == len(listed) == 1:
        records = table[listed[0]].iloc[0]
        if records and all(isinstance(record, dict) for record in records):
            return pd.json_normalize(records)
    return table


def turns_in(record: PlainMapping) -> list[PlainData]:
    """Return the messages of a conversation; none where the record is no conversation."""
    for name in KNOWN["turns"]:
        turns = record.get(name)
        if isinstance(turns, list):
            return turns
    return []


def _conversations(records: list[PlainData]) -> Iterator[PlainData]:
    """Yield a request for every answer in conversations that have no counts; its prompt is all
    before it.
    """
    if not records or "usage" in records[0] or not turns_in(records[0]):
        return
    for record in records:
        before = 0
        others = {}
        for name, value in record.items():
            if not isinstance(value, list | dict):
                others[name] = value
        for turn in turns_in(record):
            tokens = ceil(len(part_of(turn, "text")) / KNOWN["characters_per_token"])
            if part_of(turn, "speaker") in KNOWN["assistant"]:
                yield others | {"prompt_tokens": before, "completion_tokens": tokens}
            before += tokens


def part_of(turn: PlainMapping, part: str) -> str:
    """Return a part of a turn, under any of its known names; empty where it has none.

    Of a text that is a list of parts those that are texts are put together, and calls of tools
    beside it count with their names and arguments (OpenAI messages).
    """
    words = ""
    for name in KNOWN[part]:
        if name in turn:
            words = _words(turn[name])
            break
    if part == "text" and isinstance(turn.get("tool_calls"), list):
        words += "".join(_called(call) for call in turn["tool_calls"])
    return words


def _words(value: Any) -> str:
    """Return a text, or the texts of a list of parts; nothing where the value is null."""
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return "" if value is None else str(value)


def _called(call: Any) -> str:
    """Return name and arguments of a call of a tool."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ""
    return f"{function.get('name') or ''}{function.get('arguments') or ''}"


def _columns(file: str, table: "pd.DataFrame", stated: dict[str, str]) -> dict[str, str]:
    """Return the column of every role that the table has; raises :class:`BadInput` for one that is
    missing.
    """
    names = list(map(str, table.columns))
    for role, name in stated.items():
        if name not in names:
            message = f"there is no column '{name}' for {role}; it has {', '.join(names)}"
            raise BadInput.at((file, 1, 1), message, "columns")
    taken = dict(stated)
    for role in (*ROLES, "total", "end", "duration_s"):
        if role not in taken and (known := _recognised(role, names)):
            taken[role] = known
    lacking = [role for role in ("prompt", "output") if role not in taken]
    if lacking and not (len(lacking) == 1 and "total" in taken):
        lacks = " or ".join(lacking)
        has = ", ".join(names) or "nothing"
        remedy = f"name them, as in {named_columns(lacking)}"
        message = f"no column is known as {lacks} tokens; it has {has}; {remedy}"
        raise BadInput.at((file, 1, 1), message)
    unused = {"total": not lacking, "end": "arrival" in taken, "duration_s": "end" not in taken}
    return {role: name for role, name in taken.items() if not unused.get(role)}


def named_columns(roles: Iterable[str]) -> str:
    """Return how columns of a log are named, in one line and in a file."""
    roles = list(roles)
    field = ", ".join(f"{role}: COLUMN" for role in roles)
    typed = ",".join(f"{role}=COLUMN" for role in roles)
    return f"--columns {typed} of specsim plan, or requests.arrivals.columns={{{field}}} elsewhere"


def _recognised(role: str, names: list[str]) -> str | None:
    """Return the first column that is known for a role; of several at different depths the
    shallowest.
    """
    endings = [""]
    if role == "arrival":
        endings += UNITS
    for stem in (*KNOWN.get(role, ()), role):
        for ending in endings:
            word = f".{stem}{ending}".lower()
            fitting = [name for name in names if f".{_as_one_word(name)}".endswith(word)]
            if fitting:
                return min(fitting, key=lambda name: (name.count("."), name))
    return None


def _as_one_word(name: str) -> str:
    """Return the name of a column as one word, also where it has several: Input Tokens."""
    return re.sub(r"[\s-]+", "_", name.strip()).lower()


def _tokens(
    file: str, table: "pd.DataFrame", taken: Mapping[str, str], role: str
) -> "pd.Series[float]":
    """Return the tokens of every record, 0 where it has none."""
    if role not in taken:
        other = "output" if role == "prompt" else "prompt"
        total = _tokens(file, table, {other: taken["total"]}, other)
        return total - _tokens(file, table, taken, other)
    numbers = _numbers(file, table, taken[role], "a whole number of tokens")
    return numbers.fillna(0)


def _numbers(
    file: str, table: "pd.DataFrame", name: str, expected: str, most: float = LARGEST
) -> "pd.Series[float]":
    import pandas as pd

    column = table[name]
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    empty = column.isna() | (column.astype(str).str.strip() == "")
    truth_values = column.map(lambda cell: type(cell).__name__ in ("bool", "bool_"))
    wrong = numbers.isna() & ~empty
    wrong |= truth_values.astype(bool)  # they count as 0 and 1
    wrong |= (numbers < 0) | (numbers > most)
    if "whole" in expected:
        wrong |= numbers.notna() & (numbers % 1 != 0)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        if numbers.iloc[row] > most:
            expected += f", {most:g} at most"
        message = f"expected {expected}, got {told(column.iloc[row])}"
        raise BadInput.at((file, _line(file, row), 1), message, name)
    return numbers


def _arrivals(
    file: str, table: "pd.DataFrame", taken: Mapping[str, str], whole: "pd.Series[bool]"
) -> "pd.Series[float]":
    """Return when every record came, in seconds of its own clock; 0 where the log does not say."""
    import pandas as pd

    name = taken.get("arrival") or taken.get("end")
    if name is None:
        return pd.Series(0.0, index=table.index)
    column = table[name]
    numbers = pd.to_numeric(column, errors="coerce")
    if pd.api.types.is_datetime64_any_dtype(column) or numbers[whole].isna().any():
        words = column.astype(str).str.replace(",", ".", regex=False)
        dates = pd.to_datetime(words, errors="coerce", utc=True, format="ISO8601")
        undated = whole & dates.isna()
        if undated.any():
            neither = undated & numbers.isna()
            if neither.any():
                undated = neither
            row = int(undated.to_numpy().argmax())
            message = f"expected a time: ISO 8601, or a number, got {told(column.iloc[row])}"
            raise BadInput.at((file, _line(file, row), 1), message, name)
        seconds = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    else:
        numbers = _numbers(file, table, name, "a time of 0 or later", LATEST)
        hashed = taken.get("hashes") == "hash_ids"
        seconds = numbers * _unit_s(numbers[whole], name, hashed)
    if "duration_s" not in taken:
        return seconds
    lasted = pd.to_numeric(table[taken["duration_s"]], errors="coerce")
    return seconds - lasted.fillna(0.0)


def _unit_s(numbers: "pd.Series[float]", name: str, hashed: bool) -> float:
    """Return the seconds that a column of times counts in: by the ending of its name, or by how
    large its numbers are; ``hashed``: in a log with hashes as Mooncake calls them.
    """
    for ending, unit in UNITS.items():
        if name.lower().endswith(ending):
            return unit
    if _milliseconds(numbers, name, hashed):
        return 1e-3
    earliest = numbers.min()
    return next(unit for least, unit in EPOCHS if earliest >= least)


def _milliseconds(numbers: "pd.Series[float]", name: str, hashed: bool) -> bool:
    """Return whether numbers from a beginning are milliseconds: whole ones, called as Mooncake
    calls them, and either from 0 on or of a part of a log with its hashes.
    """
    if name != "timestamp" or (numbers.min() != 0 and not hashed):
        return False
    since_1970, _ = EPOCHS[-2]
    return bool(numbers.max() < since_1970 and (numbers % 1 == 0).all())
