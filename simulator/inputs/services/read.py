"""Files of services, recognised by what they hold; no option says what a file is."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from simulator.core.faults import BadInput, Fault, Place
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.loader import SHIPPED
from simulator.inputs.services.aiperf import is_record, is_sums, read_records, read_sums
from simulator.inputs.services.answers import is_answer, read_answers
from simulator.inputs.services.exposition import sample_in
from simulator.inputs.services.fields import Fields
from simulator.inputs.services.guidellm import is_guidellm, read_guidellm
from simulator.inputs.services.measured import ServiceFile
from simulator.inputs.services.passes import (
    is_forward_pass,
    is_iteration,
    read_forward_passes,
    read_iterations,
)
from simulator.inputs.services.scrapes import ScrapeText, read_scrapes
from simulator.inputs.services.sglang_bench import is_sglang_bench, read_sglang_bench
from simulator.inputs.services.vllm_bench import is_vllm_bench, read_vllm_bench

PARQUET = b"PAR1"
PACKED = ".gz"
YAML = (".yaml", ".yml")
LINES = (".jsonl", ".ndjson")
KNOWN = (
    "answers of vLLM, SGLang or TensorRT-LLM, text of /metrics, results of vllm bench serve, "
    "SGLang's bench_serving, AIPerf or GuideLLM, forward-pass metrics, iterations of TensorRT-LLM"
)
MOST_RUNS = 200
"""Most files of a folder of runs."""
SUMMARY = "summary.json"
"""Where ``vllm bench sweep`` says once more what its runs say."""
EVENT = "data:"
"""How a line of a streamed answer begins."""

OF_ONE: Sequence[tuple[Callable[[Fields], bool], Callable[[Fields], list[ServiceFile]]]] = (
    (is_guidellm, read_guidellm),
    (is_vllm_bench, lambda values: [read_vllm_bench(values)]),
    (is_sglang_bench, lambda values: [read_sglang_bench(values)]),
    (is_sums, lambda values: [read_sums(values)]),
)
"""What a record is, and how it is read: each is a run, or several."""
OF_MANY: Sequence[
    tuple[Callable[[Fields], bool], Callable[[str, Sequence[Fields]], ServiceFile]]
] = (
    (is_record, read_records),
    (is_forward_pass, read_forward_passes),
    (is_iteration, read_iterations),
    (is_answer, read_answers),
)
"""What records are that belong to one run together, and how they are read."""


def read_services(paths: Sequence[Path]) -> list[list[ServiceFile]]:
    """Return what files of services hold, run by run: all files together are one run, but for a
    file or a folder that holds several.

    Texts of ``/metrics`` of one server are scrapes one behind the other, in the order in which
    they are named. Raises :class:`BadInput` for a file that is none that is known, and where one
    that holds several runs is named beside others.
    """
    scraped: list[ScrapeText] = []
    single: list[ServiceFile] = []
    for path in paths:
        content = _content(path)
        if isinstance(content, ScrapeText):
            scraped.append(content)
            continue
        if len(content) > 1 and len(paths) > 1:
            message = f"holds {len(content)} runs; name it alone, or a file of one run"
            raise BadInput.at(path, message)
        if len(content) > 1:
            return [[run] for run in content]
        single += content
    if scraped:
        single.append(read_scrapes(scraped))
    return [single]


def _content(path: Path) -> ScrapeText | list[ServiceFile]:
    """Return the lines of a scrape, or what any other file or a folder of runs holds."""
    if path.is_dir():
        return _runs_of(path)
    with readable(path), reading.opened(path, reading.MOST_TABLE_BYTES) as opened:
        packed = opened.read(len(PARQUET)) == PARQUET
    if packed:
        with _placed(path):
            return _of_records(path.name, _of_parquet(path))
    with readable(path):
        text = _text(path)
    with _placed(path):
        if not text.strip():
            raise UnknownService.at(path.name, "holds nothing")
        if _suffix(path) in YAML:
            return _of_records(path.name, [_of_yaml(path, text)])
        first = next((line for line in text.splitlines() if line.strip()), "")
        if first.startswith("#") or sample_in(first) is not None:
            return ScrapeText(str(path), text.splitlines())
        return _of_records(path.name, _of_json(path, text))


def _text(path: Path) -> str:
    """Return the text of a file, packed if its name ends in ``.gz``."""
    if path.suffix != PACKED:
        return reading.text(path, reading.MOST_TABLE_BYTES)
    try:
        with reading.lines(path) as lines:
            return "".join(lines)
    except (EOFError, zlib.error) as error:
        raise BadInput.at(path, "cannot be unpacked; is it cut?") from error


def _suffix(path: Path) -> str:
    """Return the ending of a name, without that of packing."""
    return Path(path.name.removesuffix(PACKED)).suffix


def _runs_of(folder: Path) -> list[ServiceFile]:
    """Return what the files of a folder hold, those of ``vllm bench sweep`` or several runs of a
    benchmark; files that are no results of one are left out.
    """
    files = []
    for path in sorted(folder.rglob("*.json*")):
        if path.is_file() and path.name != SUMMARY:
            files.append(path)
    if len(files) > MOST_RUNS:
        raise BadInput.at(folder, f"holds {len(files):,} files; expected at most {MOST_RUNS}")
    runs: list[ServiceFile] = []
    for path in files:
        try:
            content = _content(path)
        except UnknownService:
            continue
        if not isinstance(content, ScrapeText):
            inside = str(path.relative_to(folder))
            runs += [replace(run, file=inside) for run in content]
    if not runs:
        raise BadInput.at(folder, "holds no result of a benchmark")
    return runs


class UnknownService(BadInput):
    """Raised for a file that is none of a service."""


@contextmanager
def _placed(path: Path) -> Iterator[None]:
    """Give faults of the block the whole path of their file."""

    def named(fault: Fault) -> Fault:
        file, line, column = fault.place
        if file in ("", path.name):
            return replace(fault, place=(str(path), line, column))
        return fault

    try:
        yield
    except BadInput as error:
        raise error.changed(named) from error


def _of_records(file: str, records: Sequence[Fields]) -> list[ServiceFile]:
    """Return what records hold, which the first tells apart."""
    if not records:
        raise UnknownService.at(file, "holds nothing")
    for is_run, read_run in OF_ONE:
        if is_run(records[0]):
            runs: list[ServiceFile] = []
            for record in _alike(records, is_run, "a result"):
                runs += read_run(record)
            return runs
    for is_part, read_parts in OF_MANY:
        if is_part(records[0]):
            return [read_parts(file, list(_alike(records, is_part, "a record")))]
    present = ", ".join(str(name)[:40] for name in list(records[0].values)[:8]) or "nothing"
    raise UnknownService.at(file, f"is no file that is known (it has {present}): expected {KNOWN}")


def _alike(
    records: Sequence[Fields], is_one: Callable[[Fields], bool], what: str
) -> Iterator[Fields]:
    """Yield records one by one; raises :class:`BadInput` at the first that is of another kind."""
    for record in records:
        if not is_one(record):
            place = (record.file, record.line, 1)
            raise BadInput.at(place, f"expected {what} like the first one")
        yield record


def _of_json(path: Path, text: str) -> list[Fields]:
    """Return the objects of JSON, of JSONL, or of a streamed answer."""
    if _suffix(path) in LINES or text.lstrip().startswith(EVENT):
        return _of_lines(path.name, text)
    try:
        content = reading.from_json(text)
    except json.JSONDecodeError as error:
        if _has_lines_of_json(text):
            return _of_lines(path.name, text)
        raise _no_json((path.name, error.lineno, error.colno), error) from error
    listed = content if isinstance(content, list) else [content]
    return [_fields(path.name, value, 0) for value in listed]


def _has_lines_of_json(text: str) -> bool:
    """Return whether a text has several lines, the first of them a whole JSON object."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return False
    try:
        return isinstance(reading.from_json(lines[0]), dict)
    except json.JSONDecodeError:
        return False


def _no_json(place: Place, error: json.JSONDecodeError) -> BadInput:
    return BadInput.at(place, f"cannot be read as JSON: {error.msg}")


def _of_lines(file: str, text: str) -> list[Fields]:
    """Return the objects of JSONL, one a line, or of a streamed answer."""
    records = []
    streamed = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if words.startswith(EVENT):
            streamed = True
            words = words.removeprefix(EVENT).strip()
        if not words or words == "[DONE]":
            continue
        try:
            records.append(_fields(file, reading.from_json(words), number))
        except json.JSONDecodeError as error:
            raise _no_json((file, number, error.colno), error) from error
    return _last_chunks(records) if streamed else records


def _last_chunks(chunks: Sequence[Fields]) -> list[Fields]:
    """Return the last chunk of each streamed answer, which has its counts: those before it have
    none, or those so far.
    """
    last: dict[str | None, Fields] = {}
    for chunk in [chunk for chunk in chunks if "usage" in chunk] or chunks:
        last[chunk.text("id") or chunk.inner("meta_info").text("id")] = chunk
    return list(last.values())


def _fields(file: str, value: Any, line: int) -> Fields:
    if not isinstance(value, Mapping):
        raise UnknownService.at((file, line, 1 if line else 0), "expected a JSON object")
    return Fields(file, value, line)


def _of_yaml(path: Path, text: str) -> Fields:
    """Return the object of a YAML file, as GuideLLM writes it."""
    try:
        content = yaml.load(text, SHIPPED)  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (path.name, mark.line + 1, mark.column + 1) if mark else (path.name, 0, 0)
        raise BadInput.at(place, f"cannot be read as YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput.at(path.name, "cannot be read as YAML") from error
    return _fields(path.name, content, 0)


def _of_parquet(path: Path) -> list[Fields]:
    """Return the rows of a Parquet file; ``a.b`` is the column of a field within another."""
    import pandas as pd

    try:
        with reading.opened(path, reading.MOST_TABLE_BYTES) as opened:
            rows = pd.read_parquet(opened).to_dict("records")
    except ImportError as error:
        remedy = "needs the extra 'parquet': pip install 'specdecode-sim[parquet]'"
        raise BadInput.at(path.name, remedy) from error
    except (ValueError, OSError) as error:
        raise BadInput.at(path.name, "cannot be read as Parquet; is it cut?") from error
    records = []
    for number, row in enumerate(rows, 1):
        nested: dict[str, Any] = {}
        for name, value in row.items():
            if isinstance(value, float) and isnan(value):
                continue
            outer, dot, inner = str(name).partition(".")
            if dot:
                nested.setdefault(outer, {})[inner] = value
            else:
                nested[outer] = value
        records.append(Fields(path.name, nested, number))
    return records
