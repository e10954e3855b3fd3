"""Broken files of every kind: the fault that each plants is named on one line, exit code 2 or 3,
nothing is written.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_inputs import COMMANDS, FOLDER, Broken, command, corpus
from click.testing import CliRunner

from simulator.cli.main import main

CORPUS = list(corpus())


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder of a known name."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def refused(work: Path, folder: str, name: str) -> tuple[int, list[str]]:
    """Exit code and lines of stderr; nothing else may come of it."""
    before = sorted(work.rglob("*"))
    result = CliRunner().invoke(main, shlex.split(command(folder, name)))
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.stdout == ""
    assert sorted(work.rglob("*")) == before
    return result.exit_code, result.stderr.splitlines()


def names_it(line: str, name: str, fault: str) -> bool:
    """Whether a line of stderr says what was planted, at the stated line and column where there is
    one.
    """
    return (
        line.startswith("error: ") and (f"{name}:{fault}" if fault[0].isdigit() else fault) in line
    )


@pytest.mark.few(100)
@pytest.mark.parametrize("broken", CORPUS, ids=lambda one: f"{one.folder}/{one.path.name}")
def test_the_planted_fault_is_named(broken: Broken, work: Path) -> None:
    shutil.copy(broken.path, work)
    code, lines = refused(work, broken.folder, broken.path.name)
    assert code in (2, 3)
    assert len(lines) == len(broken.faults), lines
    for line, fault in zip(lines, broken.faults, strict=True):
        assert names_it(line, broken.path.name, fault), line


def test_every_file_states_its_faults_and_every_stated_file_is_there() -> None:
    assert all(broken.faults and all(broken.faults) for broken in CORPUS)
    listed = [
        line.partition(",")[0] for line in (FOLDER / "faults.csv").read_text().splitlines()[1:]
    ]
    assert {name for name in listed if not (FOLDER / name).exists()} == set()
    assert {broken.folder for broken in CORPUS} <= set(COMMANDS)
    assert len(CORPUS) + len(MADE) >= 150


# ---- what git or a text editor would spoil is made here

DURATIONS = (
    b"strategy: {name: mirror_sd, gamma: 7}\ndurations: {prefix_ms: 18, suffix_ms: 18, "
    b"draft_ms: 12}\nacceptance: {rate: 0.8}\n"
)
HEADER = {
    "format": 1,
    "vocabulary": 100,
    "temperature": 0,
    "flavours": ["code"],
    "exit_layers": [2],
    "models": {
        role: {"shape": {"layers": 4, "vocabulary": 100}, "parameters": 1}
        for role in ("target", "draft")
    },
}
GARBAGE = bytes(np.random.default_rng(1).integers(128, 256, 4096, dtype=np.uint8))


def saved(**arrays: Any) -> bytes:
    """An ``.npz`` file."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def trace(header: object = None, without: str = "", **changes: Any) -> bytes:
    """A sound trace of two requests but for what is changed; ``header``: changed fields, or
    something else in its place.
    """
    facts = HEADER | header if isinstance(header, dict) else HEADER if header is None else header
    arrays = {
        "header": np.frombuffer(
            facts if isinstance(facts, bytes) else json.dumps(facts).encode(), np.uint8
        ),
        "offsets": np.array([0, 4, 8]),
        "flavour": np.zeros(2, np.uint8),
        "token": np.arange(8, dtype=np.uint16),
        "draft_rank": np.zeros(8, np.uint16),
        "p": np.ones(8, np.float16),
        "q": np.ones(8, np.float16),
        "exit_rank": np.zeros((1, 8), np.uint16),
    } | changes
    return saved(**{name: array for name, array in arrays.items() if name != without})


def later_version() -> bytes:
    """A trace that says it takes version 10.9 of the format to read its first array."""
    content = bytearray(trace())
    content[content.index(b"PK\x01\x02") + 6] = 109
    return bytes(content)


def headless() -> dict[str, Any]:
    return {name: value for name, value in HEADER.items() if name != "models"}


def pickled() -> bytes:
    """A pickle that would make a folder if anything unpickled it."""

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, ("executed",)

    return pickle.dumps(Bomb())


def zip_bomb() -> bytes:
    """A few kB that unpack to 3 GB, as every reader of zip files is told them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", bytes(10_001))
    return file.getvalue().replace(
        (10_001).to_bytes(4, "little"), (3 * 10**9).to_bytes(4, "little")
    )


def long_trace() -> bytes:
    """A few hundred kB that unpack to 320 MB, which a replay would make many times as many of."""
    length = 40_000_000
    arrays = {name: np.zeros(length, np.uint8) for name in ("token", "draft_rank")}
    fractions = {name: np.ones(length, np.float16) for name in ("p", "q")}
    return trace(
        offsets=np.array([0, length]),
        flavour=np.zeros(1, np.uint8),
        exit_rank=np.zeros((1, length), np.uint8),
        **arrays,
        **fractions,
    )


def tall_order() -> bytes:
    """An array whose header promises 8 TB and whose member holds nothing."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        array = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            array, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
        )
        archive.writestr("header.npy", array.getvalue())
    return file.getvalue()


MADE: dict[str, tuple[Callable[[], bytes], str]] = {
    "scenarios/garbage.yaml": (lambda: GARBAGE, "cannot be read: not UTF-8 text"),
    "scenarios/latin_1.yaml": (
        lambda: DURATIONS + "about: Überholen\n".encode("latin-1"),
        "cannot be read: not UTF-8 text",
    ),
    "scenarios/utf_16.yaml": (
        lambda: DURATIONS.decode().encode("utf-16"),
        "cannot be read: not UTF-8 text",
    ),
    "scenarios/zero_bytes.yaml": (
        lambda: DURATIONS + b"about: a\0b\n",
        "4:9: not valid YAML: '\\x00' is no character of a text",
    ),
    "scenarios/control_character.yaml": (
        lambda: DURATIONS + b"about: a\x07\n",
        "4:9: not valid YAML: '\\x07' is no character",
    ),
    "scenarios/half_a_letter.yaml": (
        lambda: DURATIONS + b"about: \xc3\n",
        "cannot be read: not UTF-8 text",
    ),
    "scenarios/surrogate.yaml": (
        lambda: DURATIONS + b"about: \xed\xa0\x80\n",
        "cannot be read: not UTF-8 text",
    ),
    "scenarios/order_mark.yaml": (
        lambda: b"\xef\xbb\xbfseed: -1\n" + DURATIONS,
        "1:1: seed: expected 0 or more",
    ),
    "scenarios/dos_lines.yaml": (
        lambda: DURATIONS.replace(b"7", b"0").replace(b"\n", b"\r\n"),
        "1:29: strategy.gamma: expected",
    ),
    "scenarios/a_picture.yaml": (
        lambda: b"\x89PNG\r\n\x1a\n" + GARBAGE,
        "cannot be read: not UTF-8 text",
    ),
    "scenarios/a_trace.yaml": (trace, "cannot be read: not UTF-8 text"),
    "devices/garbage.yaml": (lambda: GARBAGE, "garbage.yaml: cannot be read: not UTF-8 text"),
    "models/garbage.yaml": (lambda: GARBAGE, "garbage.yaml: cannot be read: not UTF-8 text"),
    "configs/garbage.json": (lambda: GARBAGE, "garbage.json: cannot be read: not UTF-8 text"),
    "configs/empty.json": (bytes, "1:1: not valid JSON"),
    "traffic/csv-garbage.csv": (lambda: GARBAGE, "cannot be read: not UTF-8 text"),
    "traffic/mooncake-garbage.jsonl": (lambda: GARBAGE, "cannot be read: not UTF-8 text"),
    "records/steps-garbage.jsonl": (lambda: GARBAGE, "cannot be read: not UTF-8 text"),
    "measurements/garbage.csv": (lambda: GARBAGE, "cannot be read: not UTF-8 text"),
    "measurements/not_packed.csv.gz": (
        lambda: b"operation,time_us\n",
        "cannot be read: Not a gzipped file",
    ),
    "measurements/truncated.csv.gz": (lambda: gzip.compress(GARBAGE)[:-20], "cannot be read: "),
    "stores/garbage.sqlite": (lambda: GARBAGE, "is no store of a sweep"),
    "stores/empty.sqlite": (bytes, "store"),
    "traces/empty.npz": (bytes, "is not a trace: it is no .npz archive"),
    "traces/garbage.npz": (lambda: GARBAGE, "is not a trace: it is no .npz archive"),
    "traces/truncated.npz": (lambda: trace()[:-100], "is not a trace: it is no .npz archive"),
    "traces/bits_flipped.npz": (
        lambda: trace().replace(b"exit_rank.npy", b"exit_rank.npz", 1),
        "is not a trace: File name in",
    ),
    "traces/later_version.npz": (later_version, "is not a trace: zip file version 10.9"),
    "traces/pickle.npz": (pickled, "is not a trace: it is no .npz archive"),
    "traces/pickled_array.npz": (
        lambda: trace(p=np.array([{}] * 8)),
        "is not a trace: Object arrays cannot be loaded",
    ),
    "traces/zip_without_arrays.npz": (
        lambda: zipped("readme.txt", b"hello"),
        "is not a trace: array ",
    ),
    "traces/zip_bomb.npz": (zip_bomb, "holds 3,000 MB of arrays; expected at most 400 MB"),
    "traces/tall_order.npz": (tall_order, "is not a trace: "),
    "traces/array_missing.npz": (
        lambda: trace(without="draft_rank"),
        "is not a trace: array draft_rank is missing",
    ),
    "traces/header_missing.npz": (
        lambda: trace(without="header"),
        "is not a trace: array header is missing",
    ),
    "traces/header_not_json.npz": (
        lambda: trace(b"{format: 1}"),
        "is not a trace: Expecting property name",
    ),
    "traces/header_garbage.npz": (lambda: trace(GARBAGE), "is not a trace: 'utf-8' codec"),
    "traces/header_a_list.npz": (lambda: trace([1]), "expected a header that is a JSON object"),
    "traces/header_very_deep.npz": (
        lambda: trace(b"[" * 100_000),
        "is not a trace: nested too deeply",
    ),
    "traces/header_key_twice.npz": (
        lambda: trace(b'{"format": 1, "format": 2}'),
        "key 'format' written twice",
    ),
    "traces/format_unknown.npz": (
        lambda: trace({"format": 9}),
        "has format 9; this version reads formats 1 and 2",
    ),
    "traces/models_missing.npz": (
        lambda: trace(json.dumps(headless()).encode()),
        "models: is required and missing",
    ),
    "traces/flavours_none.npz": (lambda: trace({"flavours": []}), "flavours: "),
    "traces/flavours_numbers.npz": (lambda: trace({"flavours": [1]}), "flavours.0: expected text"),
    "traces/vocabulary_in_words.npz": (
        lambda: trace({"vocabulary": "large"}),
        "vocabulary: expected a whole number",
    ),
    "traces/temperature_nan.npz": (lambda: trace({"temperature": float("nan")}), "temperature: "),
    "traces/temperature_negative.npz": (lambda: trace({"temperature": -1}), "temperature: "),
    "traces/vocabularies_differ.npz": (
        lambda: trace({"vocabulary": 300}),
        "mixes vocabularies (target 100, draft 100; header 300)",
    ),
    "traces/vocabulary_of_models_alone.npz": (
        lambda: trace({"vocabulary": None}),
        "mixes vocabularies (target 100, draft 100; header none)",
    ),
    "traces/token_unknown.npz": (
        lambda: trace(token=np.full(8, 200)),
        "holds token 200, outside its vocabulary of 100",
    ),
    "traces/tokens_fractions.npz": (
        lambda: trace(token=np.ones(8)),
        "array token: expected whole numbers, holds float64",
    ),
    "traces/tokens_words.npz": (
        lambda: trace(token=np.array(["a"] * 8)),
        "array token: expected whole numbers, holds <U1",
    ),
    "traces/offsets_fall.npz": (
        lambda: trace(offsets=np.array([0, 9, 8])),
        "array offsets: expected offsets that rise from 0",
    ),
    "traces/offsets_from_one.npz": (
        lambda: trace(offsets=np.array([1, 4, 8])),
        "array offsets: expected offsets that rise",
    ),
    "traces/offsets_short.npz": (
        lambda: trace(offsets=np.array([0, 8])),
        "holds arrays of different lengths",
    ),
    "traces/offsets_none.npz": (
        lambda: trace(offsets=np.empty(0, int)),
        "array offsets: expected offsets that rise from 0",
    ),
    "traces/offsets_one_number.npz": (
        lambda: trace(offsets=np.array(8)),
        "array offsets: expected 1 dimensions, has 0",
    ),
    "traces/flavour_unknown.npz": (
        lambda: trace(flavour=np.array([0, 7])),
        "array flavour: holds 7, and the header names 1",
    ),
    "traces/p_nan.npz": (
        lambda: trace(p=np.full(8, np.nan)),
        "array p: expected numbers of 0 or more, holds negative or infinite ones",
    ),
    "traces/q_negative.npz": (
        lambda: trace(q=np.full(8, -1.0)),
        "array q: expected numbers of 0 or more, holds negative or infinite ones",
    ),
    "traces/p_short.npz": (lambda: trace(p=np.ones(7)), "holds arrays of different lengths"),
    "traces/exits_too_many.npz": (
        lambda: trace(exit_rank=np.zeros((2, 8), int)),
        "array exit_rank: has 2 rows, and the header",
    ),
    "traces/exits_flat.npz": (
        lambda: trace(exit_rank=np.zeros(8, int)),
        "array exit_rank: expected 2 dimensions, has 1",
    ),
    "traces/drafter_short.npz": (
        lambda: trace(**{"head.rank": np.zeros(3, int)}),
        "holds arrays of different lengths",
    ),
    "traces/drafter_of_no_dimension.npz": (
        lambda: trace(**{"head.rank": np.array(3)}),
        "array head.rank: expected",
    ),
}
"""Folder and name -> what makes the file, and the fault that it plants."""


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("made", MADE)
def test_the_fault_of_a_file_that_is_no_text_is_named(made: str, work: Path) -> None:
    folder, name = made.split("/")
    make, fault = MADE[made]
    (work / name).write_bytes(make())
    code, lines = refused(work, folder, name)
    assert (code, len(lines)) == (2, 1), lines
    assert names_it(lines[0], name, fault), lines[0]


def test_the_trace_that_the_faults_are_planted_in_is_sound(work: Path) -> None:
    (work / "own.npz").write_bytes(trace())
    assert CliRunner().invoke(main, ["trace", "info", "own.npz"]).exit_code == 0


def test_links_that_lead_in_a_circle_are_named(work: Path) -> None:
    (work / "a.yaml").symlink_to("b.yaml")
    (work / "b.yaml").symlink_to("a.yaml")
    assert refused(work, "scenarios", "a.yaml") == (
        2,
        ["error: a.yaml: cannot be read: Too many levels of symbolic links"],
    )
    (work / "x.yaml").write_text("like: ./a.yaml\n")
    code, lines = refused(work, "scenarios", "x.yaml")
    assert (code, lines) == (
        2,
        ["error: x.yaml:1:1: like: cannot be read: Too many levels of symbolic links"],
    )


def test_a_scenario_that_is_like_a_link_to_itself_is_named(work: Path) -> None:
    (work / "x.yaml").write_text("like: ./y.yaml\n")
    (work / "y.yaml").symlink_to("x.yaml")
    assert refused(work, "scenarios", "x.yaml") == (
        2,
        ["error: x.yaml:1:1: like: comes back to y.yaml"],
    )


def test_a_chain_of_scenarios_ends(work: Path) -> None:
    for number in range(100):
        (work / f"x{number}.yaml").write_text(f"like: ./x{number + 1}.yaml\n")
    code, lines = refused(work, "scenarios", "x0.yaml")
    assert (code, len(lines)) == (2, 1)
    assert (
        "x32.yaml:1:1: like: x33.yaml is too far; at most 32 scenarios may start from one another"
        in lines[0]
    )


# ---- time and memory, in a process of its own


HEAVY: dict[str, tuple[Callable[[], bytes], str]] = {
    "scenarios/line_of_100_mb.yaml": (lambda: b"about: " + b"x" * 10**8, "holds more than 500 kB"),
    "scenarios/open_lists.yaml": (
        lambda: b"a: " + b"[" * 400_000,
        "not valid YAML: is nested too deeply",
    ),
    "scenarios/many_values.yaml": (
        lambda: b"a: [" + b"1," * 240_000 + b"]",
        "not valid YAML: holds more than 20,000 values",
    ),
    "scenarios/billion_laughs.yaml": (
        (FOLDER / "scenarios/billion_laughs.yaml").read_bytes,
        "aliases counted each",
    ),
    "traffic/csv-line_of_100_mb.csv": (
        lambda: b"arrival_s," + b"x" * 10**8,
        "line 1 is longer than 4,000,000 characters",
    ),
    "traffic/mooncake-line_of_100_mb.jsonl": (
        lambda: b'{"timestamp": ' + b"1" * 10**8,
        "line 1 is longer than 4,000,000",
    ),
    "records/steps-line_of_90_mb.jsonl": (
        lambda: b'{"accepted": [' + b"1," * 45 * 10**6,
        "line 1 is longer than 4,000,000",
    ),
    "records/steps-101_mb.jsonl": (
        lambda: (b'{"accepted": [1]' + b" " * 60 + b"}\n") * 1_300_000,
        "holds more than 100 MB",
    ),
    "measurements/packed_500_mb.csv.gz": (
        lambda: gzip.compress(b"1\n" * 250_000_000, 1),
        "holds more than 1,700,000 lines",
    ),
    "traces/positions_40_million.npz": (
        long_trace,
        "array offsets: holds 40,000,000 positions; expected at most 10,000,000",
    ),
    "traces/zip_bomb.npz": (zip_bomb, "holds 3,000 MB of arrays"),
    "traces/tall_order.npz": (tall_order, "is not a trace"),
    "measurements/packed_100_mb.csv.gz": (
        lambda: gzip.compress(bytes(10**8)),
        "line 1 is longer than 4,000,000 characters",
    ),
}
MOST_S, MOST_BYTES = 10.0, 300e6
MEASURED = """
import re, time
from simulator.cli.main import main
try:
    main()
finally:
    print(time.process_time(), re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
"""The command, and behind its own output its CPU seconds and most kB; what the operating system
tells of a child is its parent's.
"""


@pytest.mark.full
@pytest.mark.parametrize("made", HEAVY)
def test_a_file_that_is_too_much_takes_little(made: str, work: Path) -> None:
    """CPU seconds and peak memory of the whole command, start included."""
    folder, name = made.split("/")
    make, fault = HEAVY[made]
    (work / name).write_bytes(make())
    words = [sys.executable, "-c", MEASURED, *shlex.split(command(folder, name))]
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER.parent.parent),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert fault in done.stderr
    seconds, kilobytes = map(float, done.stdout.split())
    assert seconds < MOST_S
    assert kilobytes * 1024 < MOST_BYTES
    assert [path.name for path in work.iterdir()] == [name]
