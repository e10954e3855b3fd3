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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simulator.core.faults import LARGEST, BadInput, told
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs import reading
from simulator.inputs.document import readable

if TYPE_CHECKING:
    import pandas as pd

KNOWN: PlainData = yaml.safe_load(Path(__file__).with_name("log_columns.yaml").read_text("utf-8"))
TRAFFIC: PlainData = yaml.safe_load(
    Path(__file__).with_name("traffic_columns.yaml").read_text("utf-8")
)
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
        left = (
            f"; {self.skipped:,} records without prompt or output left out" if self.skipped else ""
        )
        said = [
            (
                f"{len(arrivals):,} requests read: "
                f"{taken}{left}{f'; {self.counted}' if self.counted else ''}"
            )
        ]
        if self.timed and arrivals[-1]:
            if arrivals[-1] >= 1:
                span = f"{arrivals[-1]:,.0f} s"
            else:
                span = f"{arrivals[-1]:.3g} s"
            said.append(
                f"over {span} |{picture(arrivals)}| {len(arrivals) / arrivals[-1]:.3g} a second "
                "in the mean"
            )
        said += [
            f"{name} of {_spread([request[at] for request in self.requests])} tokens"
            for name, at in LENGTHS.items()
        ]
        return said


def picture(arrivals: list[float]) -> str:
    """Return requests over time as a row of bars, as high as the most of any of ``BINS`` equal
    intervals.
    """
    counts = Counter(min(BINS - 1, int(at / arrivals[-1] * BINS)) for at in arrivals)
    most = max(counts.values())
    return "".join(BARS[-(-counts[place] * (len(BARS) - 1) // most)] for place in range(BINS))


def _spread(values: list[Any]) -> str:
    """Return the median and the 95th percentile of lengths in words."""
    ordered = sorted(values)
    return (
        f"{ordered[len(ordered) // 2]:,} (median; p95 "
        f"{ordered[-(-95 * len(ordered) // 100) - 1]:,})"
    )


def read_log(file: str, columns: Mapping[Any, str]) -> RecordedLog:
    """Return the requests of a log; raises :class:`BadInput` with file, line and column.

    ``columns`` names columns by role: arrival, prompt, output, task; the others are recognised.
    What was read is kept as long as the file stays as it is.
    """
    with readable(file):
        facts = os.stat(file)
        return _read(file, tuple(sorted(columns.items())), (facts.st_mtime_ns, facts.st_size))


@lru_cache(maxsize=4)
def _read(file: str, stated: tuple[tuple[str, str], ...], _: tuple[int, int]) -> RecordedLog:
    table, counted = _table(file)
    taken = _columns(file, table, dict(stated))
    prompt, output = (_tokens(file, table, taken, role) for role in ("prompt", "output"))
    whole = (prompt > 0) & (output > 0)
    if not whole.any():
        raise BadInput.at(file, "holds no request with a prompt and an output")
    at = _arrivals(file, table, taken, whole)
    if "task" in taken:
        tasks = table[taken["task"]].fillna("").astype(str)
    else:
        tasks = dict.fromkeys(table.index, "")
    kept = sorted(table.index[whole], key=lambda row: at[row])
    since = (at - at[kept[0]]).round(6)  # seconds since 1970 have no more digits
    requests = (
        (_line(file, row), float(since[row]), int(prompt[row]), int(output[row]), tasks[row])
        for row in kept
    )
    timed = "arrival" in taken or "end" in taken
    if "hashes" in taken:
        hashes = tuple(listed_hashes(table[taken["hashes"]][row]) for row in kept)
    else:
        hashes = ()
    return RecordedLog(tuple(requests), taken, int((~whole).sum()), timed, counted, hashes)


def listed_hashes(value: Any) -> tuple[Any, ...]:
    """Return prefix hashes as they are listed, or stand in a cell; nothing where the value is
    neither.
    """
    if isinstance(value, str):
        return tuple(part for part in re.split(r"[\s,;]+", value.strip(" []()")) if part)
    listed = (
        value.tolist() if hasattr(value, "tolist") else value
    )  # an array where a log is Parquet
    if isinstance(listed, list):
        return tuple(listed)
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
            if path.suffix in (".csv", ".tsv"):
                separator = "\t" if path.suffix == ".tsv" else ","
                return pd.read_csv(
                    opened, sep=separator, dtype=str, skipinitialspace=True, encoding="utf-8-sig"
                ), ""
        records = list(_records(path))
    except ImportError as error:
        raise BadInput.at(
            file, "needs the extra 'parquet': pip install 'specdecode-sim[parquet]'"
        ) from error
    except (ValueError, pd.errors.ParserError) as error:
        raise BadInput.at(file, f"cannot be read as {path.suffix[1:]}: {error}") from error
    turned = list(_conversations(records))
    if turned:
        return pd.DataFrame(
            turned
        ), f"tokens counted as {KNOWN['characters_per_token']} characters each"
    return _exploded(pd.json_normalize(records)), ""


def _records(path: Path) -> Iterator[PlainData]:
    """Yield the records of JSON, of JSONL, or those that the patterns find in a text log."""
    if path.suffix == ".json":
        value = reading.from_json(reading.text(path, reading.MOST_TABLE_BYTES))
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, dict):
                yield (record)
        return
    with reading.lines(path) as opened:
        for number, line in enumerate(opened, start=1):
            if path.suffix in TEXTS:
                for pattern in KNOWN["lines"]:
                    if match := re.search(pattern, line):
                        yield (match.groupdict())
            elif line.strip():
                try:
                    yield reading.from_json(line)
                except json.JSONDecodeError as error:
                    raise BadInput.at(
                        (str(path), number, 1), f"cannot be read as {path.suffix[1:]}: {error}"
                    ) from error


def _exploded(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table with a line for every element where a benchmark has written lists, or one list
    of records.
    """
    import pandas as pd

    listed = [name for name in table if len(table) and isinstance(table[name].iloc[0], list)]
    counts = next(
        (name for role in ("prompt", "output") if (name := _recognised(role, listed))), None
    )
    if counts is not None:
        alike = [name for name in listed if table[name].str.len().equals(table[counts].str.len())]
        return table[alike].explode(alike, ignore_index=True)
    if len(table) == len(listed) == 1:
        records = table[listed[0]].iloc[0]
    else:
        records = ()
    if records and all(isinstance(record, dict) for record in records):
        return pd.json_normalize(records)
    return table


def _turns(record: PlainMapping) -> list[PlainData]:
    """Return the messages of a conversation; none where the record is no conversation."""
    return next((record[name] for name in KNOWN["turns"] if isinstance(record.get(name), list)), [])


def _conversations(records: list[PlainData]) -> Iterator[PlainData]:
    """Yield a request for every answer in conversations that have no counts; its prompt is all
    before it.
    """
    if not records or "usage" in records[0] or not _turns(records[0]):
        return
    for record in records:
        before = 0
        for turn in _turns(record):
            who, text = (
                next((str(turn[name]) for name in KNOWN[part] if name in turn), "")
                for part in ("speaker", "text")
            )
            tokens = -(-len(text) // KNOWN["characters_per_token"])
            if who in KNOWN["assistant"]:
                others = {
                    name: value
                    for name, value in record.items()
                    if not isinstance(value, list | dict)
                }
                yield others | {"prompt_tokens": before, "completion_tokens": tokens}
            before += tokens


def _columns(file: str, table: "pd.DataFrame", stated: dict[str, str]) -> dict[str, str]:
    """Return the column of every role that the table has; raises :class:`BadInput` for one that is
    missing.
    """
    names = list(map(str, table.columns))
    for role, name in stated.items():
        if name not in names:
            raise BadInput.at(
                (file, 1, 1),
                f"there is no column '{name}' for {role}; it has {', '.join(names)}",
                "columns",
            )
    taken = dict(stated)
    for role in (*ROLES, "total", "end", "duration_s"):
        if role not in taken and (known := _recognised(role, names)):
            taken[role] = known
    lacking = [role for role in ("prompt", "output") if role not in taken]
    if lacking and not (len(lacking) == 1 and "total" in taken):
        message = (
            f"no column is known as {' or '.join(lacking)} tokens; it has "
            f"{', '.join(names) or 'nothing'}"
        )
        raise BadInput.at((file, 1, 1), f"{message}; name them, as in {named_columns(lacking)}")
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
    stems = (*KNOWN.get(role, ()), role)
    known = []
    for stem in stems:
        for ending in ("", *UNITS) if role == "arrival" else ("",):
            known.append(stem + ending)
    for word in map(str.lower, known):
        if fitting := [
            name for name in names if name.lower() == word or name.lower().endswith(f".{word}")
        ]:
            return min(fitting, key=lambda name: (name.count("."), name))
    return None


def _tokens(
    file: str, table: "pd.DataFrame", taken: Mapping[str, str], role: str
) -> "pd.Series[float]":
    """Return the tokens of every record, 0 where it has none."""
    if role not in taken:
        other = "output" if role == "prompt" else "prompt"
        return _tokens(file, table, {other: taken["total"]}, other) - _tokens(
            file, table, taken, other
        )
    return _numbers(file, table, taken[role], "a whole number of tokens").fillna(0)


def _numbers(
    file: str, table: "pd.DataFrame", name: str, expected: str, most: float = LARGEST
) -> "pd.Series[float]":
    import pandas as pd

    numbers = pd.to_numeric(table[name], errors="coerce").astype(float)
    wrong = numbers.isna() & table[name].notna() & (table[name].astype(str).str.strip() != "")
    wrong |= (
        table[name].map(lambda cell: type(cell).__name__ in ("bool", "bool_")).astype(bool)
    )  # they count as 0 and 1
    wrong |= (
        (numbers < 0)
        | (numbers > most)
        | ((numbers % 1 != 0) & numbers.notna() & ("whole" in expected))
    )
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        if numbers.iloc[row] > most:
            beyond = f", {most:g} at most"
        else:
            beyond = ""
        message = f"expected {expected}{beyond}, got {told(table[name].iloc[row])}"
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
        dates = pd.to_datetime(
            column.astype(str).str.replace(",", ".", regex=False),
            errors="coerce",
            utc=True,
            format="ISO8601",
        )
        undated = whole & dates.isna()
        if undated.any():
            neither = undated & numbers.isna()
            row = int((neither if neither.any() else undated).to_numpy().argmax())
            message = f"expected a time: ISO 8601, or a number, got {told(column.iloc[row])}"
            raise BadInput.at((file, _line(file, row), 1), message, name)
        seconds = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    else:
        numbers = _numbers(file, table, name, "a time of 0 or later", LATEST)
        unit = next(
            (factor for ending, factor in UNITS.items() if name.lower().endswith(ending)), None
        )
        scale = unit or next(factor for least, factor in EPOCHS if numbers[whole].min() >= least)
        if unit is None and _milliseconds(numbers[whole], name):
            scale = 1e-3
        seconds = numbers * scale
    if "duration_s" in taken:
        late = pd.to_numeric(table[taken["duration_s"]], errors="coerce").fillna(0.0)
    else:
        late = 0.0
    return seconds - late


def _milliseconds(numbers: "pd.Series[float]", name: str) -> bool:
    """Return whether numbers from a beginning are milliseconds: whole ones, called as Mooncake
    calls them.
    """
    return name == "timestamp" and bool(
        numbers.max() < EPOCHS[-2][0] and (numbers % 1 == 0).all() and numbers.min() == 0
    )
